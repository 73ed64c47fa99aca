/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The interpreter of plans: where a wake-up or a new task goes. Twin of crates/policy/src/{place,scan,claim}.rs, where the reasons and the
 * mirrored kernel functions stand; crates/scx-native holds the two against each other, decision for decision.
 *
 *   plan_place ── only one CPU allowed? ── choose_target ── run_steps ── outside the affinity? first_allowed
 *
 * The includer defines before it: view_*() (the world), plan_facts(), plan_cluster(), plan_affine(), plan_word() and scratch_word()
 * (bounded look-ups; the scratch has 2 * nr_words, the upper half of which is the wakee's affinity), PLAN_FOR(i, n) (a bounded
 * loop, whose body must not return), and plan_uses(bit): a constant by which the verifier drops what no loaded plan has.
 *
 * Functions with loops are global: the verifier walks such a function once, for any decision. A static one it walks at each call, for all
 * that it knows there, which is too much for it.
 */
#ifndef HUDDLE_PLACE_H
#define HUDDLE_PLACE_H

#define NO_LIMIT	(~0U)
#define LOST_CLAIMS	8	/* a step that lost so many claims is left */
#define CONTINUE	(-1)	/* what a step comes to, if not to a CPU */
#define LEAVE_SCANS	(-2)

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

static __noinline u64 mask_word(const struct mask *mask, u32 word)
{
	u32 offset = word - mask->first;

	return offset < mask->len ? plan_word(mask->at + offset) : 0;
}

/* Whether a CPU lies in a set of the target's. */
__global bool in_set(struct decision *d __arg_nonnull, u32 set, u32 cpu)
{
	const struct cpu_facts *target = plan_facts(d->target);

	return target && set < NR_SETS && has(mask_word(&target->sets[set], cpu / 64), cpu);
}

/* The scratch: the scans' candidates that are left; behind them a copy of the affinity. */
static __noinline u64 scratch(struct decision *d, u32 word, bool affinity)
{
	u64 *bits = word < d->nr_words ? scratch_word(affinity ? d->nr_words + word : word) : NULL;

	return opaque(d, bits ? *bits : 0);
}

static __always_inline bool allowed(struct decision *d, u32 cpu)
{
	return has(scratch(d, cpu / 64, true), cpu);
}

/* CPUs of a word that will do: for a claim those that it may take, else those that satisfy the predicate. */
__global u64 good_word(struct decision *d __arg_nonnull, u32 word)
{
	u64 bits = opaque(d, view_idle_word(word));
	u32 flags = d->s.flags;

	if (flags & STEP_CLAIM)
		return bits & scratch(d, word, true) & (flags & STEP_CORES ? view_idle_core_word(word) : ~0ULL);
	if (flags & STEP_SCHED_IDLE && !(flags & STEP_NO_KIN && d->is_sched_idle))
		bits |= view_sched_idle_word(word);
	return bits;
}

/* Part i of len + 1 of the mask in scan order: start's word from start up, the others with wrap, its own below start. */
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
	return opaque(d, mask_word(mask, *word)) & (!i ? above : i == mask->len ? ~above : ~0ULL) &
		scratch(d, *word, !(d->s.flags & STEP_SCAN));
}

/* Walks over the mask in scan order to the first CPU that will do, of a claim to the first that is won. */
__global s32 search(struct decision *d __arg_nonnull, u32 start)
{
	u32 at = opaque(d, 0), lost = opaque(d, 0), flags = d->s.flags, walked, word, i;
	u64 behind = ~0ULL;	/* what is left of a word behind a lost claim */
	s32 flow = CONTINUE;

	PLAN_FOR(i, d->mask.len + 1 + LOST_CLAIMS) {
		u64 bits, hits;

		if (at > d->mask.len || lost >= LOST_CLAIMS)
			break;
		bits = walk(d, start, at, &word) & behind;
		hits = bits & good_word(d, word);
		walked = flags & STEP_CHARGE && d->left != NO_LIMIT ? weight(bits & through_first(hits)) : 0;
		if (walked > d->left) {
			d->left = 0;
			flow = LEAVE_SCANS;
			break;
		}
		d->left -= walked;
		at = opaque(d, at + !hits);
		behind = hits ? ~through_first(hits) : ~0ULL;
		if (!hits)
			continue;
		d->claimed = flags & STEP_CLAIM && view_claim(first_cpu(word, hits));
		if (d->claimed || !(flags & STEP_CLAIM)) {
			flow = first_cpu(word, hits);
			break;
		}
		lost = opaque(d, lost + 1);
	}
	return flow;
}

/* The first thread of a core that is a candidate and would do; -1. */
__global s32 core_candidate(struct decision *d __arg_nonnull, u32 core)
{
	const struct cpu_facts *facts = plan_facts(core);
	s32 found = -1;
	u32 i;

	if (!facts)
		return -1;
	PLAN_FOR(i, facts->sets[SET_SMT].len) {
		u32 word = facts->sets[SET_SMT].first + i;
		u64 hits = mask_word(&facts->sets[SET_SMT], word) & scratch(d, word, false) & good_word(d, word);

		if (hits) {
			found = first_cpu(word, hits);
			break;
		}
	}
	return found;
}

/*
 * The first candidate of the mask in scan order whose core is idle as a whole. Without one, what a search core by core would note on its way:
 * the first thread that would do.
 */
__global s32 search_cores(struct decision *d __arg_nonnull, u32 start)
{
	s32 flow = CONTINUE;
	u32 word, i, j;

	PLAN_FOR(i, d->mask.len + 1) {
		u64 hits = walk(d, start, i, &word) & view_idle_core_word(word);

		if (hits) {
			flow = first_cpu(word, hits);
			break;
		}
	}
	if (flow != CONTINUE)
		return flow;
	PLAN_FOR(i, d->mask.len + 1) {
		u64 rest = walk(d, start, i, &word);

		PLAN_FOR(j, 64) {
			if (!rest || d->candidate >= 0)
				break;
			d->candidate = core_candidate(d, first_cpu(word, rest));
			rest &= rest - 1;
		}
	}
	return CONTINUE;
}

/* Of the mask: CPUs that will do, in the upper half, and busy ones. */
__global u64 count_cpus(struct decision *d __arg_nonnull)
{
	u32 good = opaque(d, 0), busy = good, i;

	PLAN_FOR(i, d->mask.len) {
		u32 word = d->mask.first + i;
		u64 bits = opaque(d, mask_word(&d->mask, word));

		good += weight(bits & good_word(d, word));
		busy += weight(bits & (d->s.flags & STEP_HOGS ? view_hog_word(word) : ~view_idle_word(word)));
	}
	return (u64)good << 32 | busy;
}

/* The least busy cluster of prev's LLC, node or all with a CPU to claim, of equals prev's own first; else NO_LIMIT. */
__global u32 idlest(struct decision *d __arg_nonnull, u32 set)
{
	const struct cpu_facts *prev = plan_facts(d->prev);
	u32 best = opaque(d, NO_LIMIT), from, len, turn, i;
	u64 best_busy = 0, best_size = 0;

	if (!prev)
		return NO_LIMIT;
	from = set == SET_LLC ? prev->llc_from : set == SET_NODE ? prev->node_from : 0;
	len = set == SET_LLC ? prev->llc_len : set == SET_NODE ? prev->node_len : d->nr_clusters;
	turn = prev->cluster - from < len ? prev->cluster - from : 0;
	PLAN_FOR(i, len) {
		u32 at = from + (turn + i < len ? turn + i : turn + i - len);
		const struct mask *cluster = plan_cluster(at);
		u64 count;

		if (!cluster)
			break;
		d->mask = *cluster;
		count = count_cpus(d);
		if (!(count >> 32) || (best != NO_LIMIT && (u32)count * best_size >= best_busy * d->mask.weight))
			continue;
		best = at;
		best_busy = (u32)count;
		best_size = d->mask.weight;
	}
	return best;
}

__global s32 step_idlest(struct decision *d __arg_nonnull)
{
	const struct mask *cluster = plan_cluster(idlest(d, d->s.set));

	if (!cluster)
		return CONTINUE;
	d->mask = *cluster;
	return search(d, d->prev);
}

__global s32 step_test(struct decision *d __arg_nonnull)
{
	const struct cpu_facts *prev = plan_facts(d->prev);
	u32 flags = d->s.flags, cpu = d->s.of == OF_TARGET ? d->target : d->prev;

	if (d->s.of == OF_RECENT) {
		cpu = d->recent;
		if (flags & STEP_ALWAYS)
			d->recent = d->prev;
		if (cpu == d->prev || !allowed(d, cpu))
			return CONTINUE;
	}
	if ((flags & STEP_OTHER && cpu == d->target) || !in_set(d, d->s.set, cpu) || !has(good_word(d, cpu / 64), cpu))
		return CONTINUE;
	if (flags & STEP_NO_BUSIER && prev && idlest(d, SET_LLC) != prev->cluster)
		return CONTINUE;
	d->claimed = flags & STEP_CLAIM && view_claim(cpu);
	if (flags & STEP_CLAIM && !d->claimed)
		return CONTINUE;
	if (flags & STEP_KEEP && !in_set(d, SET_SHARE, cpu)) {
		*(d->s.of == OF_PREV ? &d->kept_prev : &d->kept_recent) = cpu;
		return CONTINUE;
	}
	if (d->s.of == OF_RECENT)
		d->recent = d->prev;
	return cpu;
}

/* Takes the mask out of the candidates, or (fill) makes it the candidates, as far as the wakee may use it. */
__global int set_candidates(struct decision *d __arg_nonnull, bool fill)
{
	u32 word;

	PLAN_FOR(word, d->nr_words) {
		u64 *left = scratch_word(word), bits = mask_word(&d->mask, word);

		if (left && word < d->nr_words)
			*left = fill ? bits & scratch(d, word, true) : *left & ~bits;
	}
	return 0;
}

__global s32 step_search(struct decision *d __arg_nonnull)
{
	u32 flags = d->s.flags, set = d->s.set, cpu = d->s.of == OF_PREV ? d->prev : d->target;
	const struct cpu_facts *facts = plan_facts(cpu);
	s32 flow;

	if (!facts || set >= NR_SETS || (flags & STEP_NO_HIC && (d->hic || !in_set(d, SET_SHARE_LLC, d->prev))))
		return CONTINUE;
	d->mask = facts->sets[set];
	cpu = flags & STEP_FROM_ZERO ? 0 : cpu + !!(flags & STEP_AFTER);
	if (plan_uses(USED_CORES) && flags & STEP_SCAN && flags & STEP_CORES && d->hic) {
		flow = search_cores(d, cpu);
		if (flags & STEP_LAST && flow == CONTINUE)
			flow = d->candidate;
		flags |= STEP_REMOVE;	/* no core of it will do */
	} else {
		flow = search(d, cpu);
	}
	if (flow == CONTINUE && flags & STEP_REMOVE)
		set_candidates(d, false);
	return flow;
}

/* What scans may walk over, from the LLC's utilisation. */
__global s32 step_budget(struct decision *d __arg_nonnull)
{
	const struct cpu_facts *target = plan_facts(d->target);
	u64 any = 0;
	u32 word;

	if (!target || !target->sets[SET_SD_LLC].len)
		return CONTINUE;
	if (d->s.spare) {
		d->left = view_nr_idle_scan(target->llc_index);
		if (!d->left)
			return LEAVE_SCANS;
		d->left -= d->left == NO_LIMIT;
	}
	PLAN_FOR(word, d->nr_words)
		any |= scratch(d, word, false);
	return any || !(d->s.flags & STEP_FAIL_IF_EMPTY) ? CONTINUE : LEAVE_SCANS;
}

/* A waker that is about to sleep makes room for the wakee, unless its cluster has idle CPUs to spare. */
__global s32 step_sync_stack(struct decision *d __arg_nonnull)
{
	const struct cpu_facts *here = plan_facts(d->this_cpu);

	if (!here || d->target != d->this_cpu || !d->sync || !allowed(d, d->target) ||
	    !d->keeps_sync || view_nr_running(d->target) != 1)
		return CONTINUE;
	d->mask = here->sets[SET_CLUSTER];
	return d->s.spare != NO_LIMIT && count_cpus(d) >> 32 > d->s.spare ? CONTINUE : (s32)d->target;
}

static __always_inline s32 run_step(struct decision *d)
{
	u32 flags = d->s.flags;

#define CASE(kind, flow) case kind: return plan_uses(1U << (kind)) ? (flow) : CONTINUE
	switch (d->s.kind) {
	CASE(KIND_TEST, step_test(d));
	CASE(KIND_SEARCH, step_search(d));
	CASE(KIND_IDLEST, step_idlest(d));
	CASE(KIND_BUDGET, step_budget(d));
	CASE(KIND_SYNC_STACK, step_sync_stack(d));
	CASE(KIND_NEED_LLC, in_set(d, SET_SD_LLC, d->target) ? CONTINUE : (s32)d->target);
	CASE(KIND_KTHREAD_STACK, d->kthread_waker && d->prev == d->this_cpu && view_nr_running(d->prev) <= 1 ?
	     (s32)d->prev : CONTINUE);
	CASE(KIND_RETURN, d->s.of == OF_PREV ? (s32)d->prev : (s32)d->target);
	case KIND_READ_HIC:
		d->hic = plan_uses(1U << KIND_READ_HIC) && view_has_idle_cores(d);
		return CONTINUE;
	case KIND_TAKE_KEPT:
		if (flags & STEP_TAKE_RECENT && d->kept_recent >= 0 && (flags & STEP_RECENT_FIRST || d->kept_prev < 0))
			return d->kept_recent;
		return flags & STEP_TAKE_PREV ? d->kept_prev : CONTINUE;
	}
	return CONTINUE;
#undef CASE
}

/* The deciding step's CPU. */
static __noinline s32 run_steps(struct decision *d, const struct plan *plan)
{
	const struct cpu_facts *target = plan_facts(d->target);
	u32 next = opaque(d, 0), i;
	s32 cpu = d->target, flow;

	if (plan_uses(USED_SCAN) && plan->used & USED_SCAN && target) {
		d->mask = target->sets[SET_SD_LLC];
		set_candidates(d, true);
	}
	PLAN_FOR(i, plan->nr_steps) {
		if (i >= MAX_STEPS)
			break;
		if (i < next)
			continue;
		d->step = i;
		d->s = plan->steps[i];
		flow = run_step(d);
		if (flow >= 0) {
			cpu = flow;
			break;
		}
		if (flow == LEAVE_SCANS)
			next = plan->after_scans;
	}
	return cpu;
}

/* The imbalance that the narrowest domain of this CPU with prev tolerates, in percent; 0 without one. */
__global u32 affine_imbalance(struct decision *d __arg_nonnull)
{
	const struct cpu_facts *here = plan_facts(d->this_cpu);
	u32 imbalance_pct = 0, i;

	if (!here)
		return 0;
	PLAN_FOR(i, here->affine_len) {
		const struct affine_span *affine = plan_affine(here->affine_from + i);

		if (affine && has(mask_word(&affine->span, d->prev / 64), d->prev)) {
			imbalance_pct = affine->imbalance_pct;
			break;
		}
	}
	return imbalance_pct;
}

/* wake_affine: which CPU is idle or alone, else less loaded, in the kernel's signed arithmetic; all capacities are equal. */
static __noinline u32 wake_affine(struct decision *d, u32 entry)
{
	bool prev_idle = has(view_idle_word(d->prev / 64), d->prev);
	u64 pct = affine_imbalance(d), here, there;

	if (!pct)
		return d->prev;
	if (has(view_idle_word(d->this_cpu / 64), d->this_cpu) && in_set(d, SET_SHARE_LLC, d->this_cpu))
		return prev_idle ? d->prev : d->this_cpu;
	if (d->sync && view_nr_running(d->this_cpu) == 1)
		return d->this_cpu;
	if (entry & ENTRY_AFFINE_IDLE_PREV && prev_idle)
		return d->prev;
	here = view_cpu_load(d->this_cpu);
	there = view_cpu_load(d->prev);
	if (d->sync) {
		if ((s64)d->waker_load > (s64)here)
			return d->this_cpu;
		here -= d->waker_load;
	}
	pct = 100 + ((pct - (pct >= 100 ? 100 : 99)) >> 1);	/* half of what is above 100 */
	here = (here + d->wakee_load) * 100 * 1024;
	there = (there - d->wakee_load) * pct * 1024 + d->sync;
	return (s64)here < (s64)there ? d->this_cpu : d->prev;
}

/* The entry rule: this CPU or prev, which is the target so far. */
static __noinline u32 choose_target(struct decision *d, u32 entry)
{
	if (!allowed(d, d->this_cpu))
		return d->prev;
	d->marks_waker = entry & ENTRY_SET_WAKER_RECENT;
	if (entry & ENTRY_WAKER)
		return in_set(d, SET_SHARE_LLC, d->this_cpu) || (d->sync && view_nr_running(d->this_cpu) == 1) ?
			d->this_cpu : d->prev;
	return plan_uses(USED_LOAD) && entry & ENTRY_LOAD && d->this_cpu != d->prev ? wake_affine(d, entry) : d->prev;
}

/* The first CPU, of the mask or of all, that the wakee may use; -1 if there is none. */
__global s32 first_allowed(struct decision *d __arg_nonnull, bool in_mask)
{
	s32 cpu = -1;
	u32 word;

	PLAN_FOR(word, d->nr_words) {
		u64 bits = scratch(d, word, true) & (in_mask ? mask_word(&d->mask, word) : ~0ULL);

		if (bits) {
			cpu = first_cpu(word, bits);
			break;
		}
	}
	return cpu;
}

/* Sets up a decision, in a global function: the verifier does not know what that writes and follows one case. */
__global int begin(struct decision *d __arg_nonnull, u32 nr_words, u32 nr_clusters, u32 nr_steps)
{
	d->target = d->prev;
	d->step = nr_steps;
	d->left = NO_LIMIT;
	d->candidate = d->kept_prev = d->kept_recent = -1;
	d->nr_words = nr_words;
	d->nr_clusters = nr_clusters;
	return 0;
}

/*
 * Places a wake-up or, with is_fork, a new task, which may use nr_allowed CPUs, those in the scratch: see the decision for more.
 * -1: a CPU is beyond the machine.
 */
static __always_inline s32 plan_place(const struct plan *plan, struct decision *d, u32 nr_allowed)
{
	const struct cpu_facts *prev = plan_facts(d->prev);
	s32 cpu, other;

	if (!plan_facts(d->this_cpu) || !prev)
		return -1;
	begin(d, plan->nr_words, plan->nr_clusters, plan->nr_steps);
	if (nr_allowed == 1) {
		d->target = first_allowed(d, false);
		return d->target;
	}
	if (!d->is_fork) {
		if (plan->entry & ENTRY_CURRENT_HINT && d->current_hint && allowed(d, d->this_cpu)) {
			d->target = d->this_cpu;
			return d->this_cpu;
		}
		d->target = choose_target(d, plan->entry);
	}
	cpu = run_steps(d, plan);
	if (allowed(d, cpu) || !nr_allowed)
		return cpu;
	d->step = plan->nr_steps;
	d->mask = prev->sets[SET_WHOLE_NODE];
	other = first_allowed(d, true);
	return other >= 0 ? other : first_allowed(d, false);
}

#endif
