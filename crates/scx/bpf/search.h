/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * How a decision looks for CPUs: sets as words of 64, walked in scan order, charged to a budget and counted. For
 * what the includer defines before it see place.h.
 */
#ifndef HUDDLE_SEARCH_H
#define HUDDLE_SEARCH_H

#define NO_LIMIT	(~0U)
#define LOST_CLAIMS	8	/* a step that lost so many claims is left */
#define CONTINUE	(-1)	/* what a step comes to, if not to a CPU */
#define LEAVE_SCANS	(-2)

/*
 * Functions with loops are global: the verifier walks such a function once, for any decision. A static one it walks
 * at each call, for all that it knows there, which is too much for it. Of a decision's surroundings a global
 * function sees nothing.
 */
#ifdef __bpf__
#define __global	__attribute__((noinline))
#else
#define __global	static __attribute__((noinline))
#endif
#ifndef __arg_nonnull		/* a word of libbpf's */
#define __arg_nonnull
#endif

/* A number that the verifier does not know: of a loop it walks every round with numbers that it knows. */
static __always_inline u64 opaque(struct decision *d, u64 number)
{
	return number + d->zero;
}

static __noinline u32 weight(u64 bits)
{
	bits -= (bits >> 1) & 0x5555555555555555ULL;
	bits = (bits & 0x3333333333333333ULL) + ((bits >> 2) & 0x3333333333333333ULL);
	bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
	return (bits * 0x0101010101010101ULL) >> 56;
}

/* All bits through the first of bits; all there are when it has none. */
static __always_inline u64 through_first(u64 bits)
{
	return bits ^ (bits - 1);
}

static __always_inline u32 first_cpu(u32 word, u64 bits)
{
	return 64 * word + weight(~bits & (bits - 1));
}

static __always_inline bool has(u64 word, u32 cpu)
{
	return word >> (cpu % 64) & 1;
}

static __noinline u64 mask_word(struct decision *d, const struct mask *mask, u32 word)
{
	u32 offset = word - mask->first;

	return opaque(d, offset < mask->len ? plan_word(mask->at + offset) : 0);
}

/*
 * Part i of len + 1 of the mask in scan order: start's word from start up, the others with wrap, its own below
 * start.
 */
__global u64 walk(struct decision *d __arg_nonnull, u32 start, u32 i, u32 *word __arg_nonnull)
{
	const struct mask *mask = &d->mask;
	u32 offset = start / 64 - mask->first;
	u64 above = ~0ULL << (start % 64);

	if (offset >= mask->len) {
		offset = 0;
		above = ~0ULL;
	}
	offset += i;
	*word = mask->first + (offset < mask->len ? offset : offset - mask->len);
	return mask_word(d, mask, *word) & (!i ? above : i == mask->len ? ~above : ~0ULL);
}

/* The scratch: the scans' candidates that are left, CPUs of the target's LLC; behind them a copy of the affinity. */
static __noinline u64 candidates(struct decision *d, u32 word)
{
	u64 *left = word < d->nr_words ? scratch_word(d, word) : NULL;

	return opaque(d, left ? *left : 0);
}

static __noinline u64 allowed_word(struct decision *d, u32 word)
{
	u64 *allowed = word < d->nr_words ? scratch_word(d, d->nr_words + word) : NULL;

	return opaque(d, allowed ? *allowed : 0);
}

static __always_inline bool idle(struct decision *d, u32 cpu)
{
	return has(view_idle_word(d, cpu / 64), cpu);
}

static __always_inline bool allowed(struct decision *d, u32 cpu)
{
	return has(allowed_word(d, cpu / 64), cpu);
}

/* CPUs of a word that will do: for a claim those that it may take, else those that satisfy the predicate. */
__global u64 good_word(struct decision *d __arg_nonnull, u32 word)
{
	u64 bits = opaque(d, view_idle_word(d, word));

	if (d->s.kind >= KIND_SYNC_STACK)
		return bits & allowed_word(d, word) & (d->s.flags & STEP_CORES ? view_idle_core_word(d, word) : ~0ULL);
	if (d->s.pred == PRED_OK59 || (d->s.pred == PRED_OK72 && !d->is_sched_idle))
		bits |= view_sched_idle_word(d, word);
	return bits;
}

static __always_inline bool good(struct decision *d, u32 cpu)
{
	return has(good_word(d, cpu / 64), cpu);
}

/* Counts examined CPUs by their distance from this CPU. */
__global int examine(struct decision *d __arg_nonnull, u32 word, u64 bits)
{
	const struct cpu_facts *here = plan_facts(d->this_cpu);
	u32 total = weight(bits), within, nearer, i;

	if (!here || !total)
		return 0;
	within = d->this_cpu / 64 == word && has(bits, d->this_cpu);
	d->examined[0] += within;
	PLAN_FOR(i, REACHES) {
		if (within == total || i >= REACHES)
			break;
		nearer = within;
		within = weight(bits & mask_word(d, &here->reach[i], word));
		d->examined[i + 1] += within - nearer;
	}
	d->examined[REACHES + 1] += total - within;
	return 0;
}

/* Charges walked CPUs to the budget and counts those allowed as examined. False: the budget ran out on the way. */
__global bool afford(struct decision *d __arg_nonnull, u32 word, u64 bits)
{
	u32 count = d->s.flags & STEP_CHARGE && d->left != NO_LIMIT ? weight(bits) : 0, i;
	bool enough = count <= d->left;
	u64 rest = bits;

	if (!enough) {
		PLAN_FOR(i, d->left)
			rest &= rest - 1;
		bits &= ~rest;
		count = d->left;
		d->exhausted = true;
	}
	d->left -= count;
	examine(d, word, bits & allowed_word(d, word));
	return enough;
}

/* CPUs of a word that a search walks over. */
__global u64 walked(struct decision *d __arg_nonnull, u32 word)
{
	u32 anchor = d->s.flags & STEP_ANCHOR_PREV ? d->prev : d->target;
	const struct cpu_facts *target = plan_facts(d->target);
	u64 bits = allowed_word(d, word);

	if (d->s.kind == KIND_SCAN_LLC || (d->s.kind == KIND_SCAN_CLUSTER && d->s.source != SOURCE_RAW_TOPOLOGY))
		return candidates(d, word);
	if (d->s.flags & STEP_IN_LLC && target)
		bits &= mask_word(d, &target->llc, word);
	if (d->s.kind == KIND_IDLE_SMT && !(d->s.flags & STEP_INCL_ANCHOR) && anchor / 64 == word)
		bits &= ~(1ULL << (anchor % 64));
	return bits;
}

/* Walks over the mask in scan order to the first CPU that will do, of a claim to the first that is won. */
__global s32 search(struct decision *d __arg_nonnull, u32 start)
{
	u32 at = opaque(d, 0), lost = opaque(d, 0), most = d->s.kind == KIND_CLAIM_IDLEST ? 1 : LOST_CLAIMS, word, i;
	u64 behind = ~0ULL;	/* what is left of a word behind a lost claim */
	s32 flow = CONTINUE;

	PLAN_FOR(i, d->mask.len + 1 + LOST_CLAIMS) {
		u64 bits, hits;

		if (at > d->mask.len || lost >= most)
			break;
		bits = walk(d, start, at, &word) & walked(d, word) & behind;
		hits = bits & allowed_word(d, word) & good_word(d, word);
		if (d->s.kind != KIND_CLAIM_IDLEST && !afford(d, word, bits & through_first(hits))) {
			flow = LEAVE_SCANS;
			break;
		}
		at = opaque(d, at + !hits);
		behind = hits ? ~through_first(hits) : ~0ULL;
		if (!hits)
			continue;
		d->claimed = d->s.kind >= KIND_CLAIM_PREV && view_claim(d, first_cpu(word, hits));
		if (d->claimed || d->s.kind < KIND_CLAIM_PREV) {
			flow = first_cpu(word, hits);
			break;
		}
		lost = opaque(d, lost + 1);
	}
	return flow;
}

#endif
