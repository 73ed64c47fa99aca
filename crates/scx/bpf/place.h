/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The interpreter of plans: where a wake-up or a new task goes. Twin of crates/policy/src/{place,scan,claim}.rs, where the reasons and the
 * mirrored kernel functions stand; crates/scx-native holds the two against each other, decision for decision.
 *
 *   plan_place ── only one CPU allowed? ── choose_target ── run_steps ── outside the affinity? the first CPU in it
 *
 * The includer defines before it: view_*() (the world), plan_facts(), plan_cluster(), plan_word() (bounded look-ups), affinity_word(),
 * PLAN_FOR(i, n) (a bounded loop), __global, and plan_uses(bit): a constant by which the verifier drops what no loaded
 * plan has. plan.h is made of crates/scx/src/layout.rs, which says what sets and flags mean.
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


struct decision {			/* zeroed by the caller, but for what comes before target */
	u32 this_cpu, prev;
	bool sync, is_fork, is_sched_idle, current_hint, kthread_waker, keeps_sync;
	s32 recent;			/* where the wakee ran before prev; the caller keeps what it becomes */
	u64 waker_load, wakee_load;
	u64 affinity, affinity_0;	/* for affinity_word(): where the wakee's is, and its first word */
	u32 target, step;
	bool claimed, marks_waker;	/* the CPU was claimed; the waker's recent CPU becomes this one */
	bool hic;			/* idle cores are hinted */
	s32 candidate, kept;		/* plus 1; 0: none */
	u32 left;			/* CPUs that charged scans may still walk over */
	u32 nr_clusters, zero;		/* zero: see opaque() */
	struct step s;			/* the step being taken, and what it walks over */
	struct mask mask;
};

/* A number that the verifier does not know: of a loop it walks every round with numbers that it knows. */
#define opaque(d, number)	((u64)(number) + (d)->zero)

#define has(bits, cpu)		((bits) >> ((cpu) & 63) & 1)
#define allowed(d, cpu)		has(affinity_word(d, (u32)(cpu) / 64), cpu)
#define first_cpu(word, bits)	(64 * (word) + weight(~(bits) & ((bits) - 1)))

static __noinline u32 weight(u64 bits)
{
	return __builtin_popcountll(bits);
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

/* CPUs of a word that will do. */
__global u64 good_word(struct decision *d __arg_nonnull, u32 word)
{
	u32 flags = d->s.flags;
	u64 bits = opaque(d, flags & STEP_CORES ? view_idle_core_word(word) : view_idle_word(word));

	if (flags & STEP_SCHED_IDLE && !(flags & STEP_NO_KIN && d->is_sched_idle))
		bits |= view_sched_idle_word(word);
	return flags & STEP_ANY ? ~0ULL : bits;
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
		(d->s.flags & STEP_ANYWHERE ? ~0ULL : affinity_word(d, *word));
}

/* Walks over the mask in scan order to the first CPU that will do, of a claim to the first that is won. */
__global s32 search(struct decision *d __arg_nonnull, u32 start)
{
	u32 at = opaque(d, 0), lost = opaque(d, 0), flags = d->s.flags, walked, word, i;
	u64 behind = ~0ULL;	/* what is left of a word behind a lost claim */

	PLAN_FOR(i, d->mask.len + 1 + LOST_CLAIMS) {
		u64 bits, hits, through;

		if (at > d->mask.len || lost >= LOST_CLAIMS)
			break;
		bits = walk(d, start, at, &word) & behind;
		hits = bits & good_word(d, word);
		through = hits ^ (hits - 1);	/* through the first hit, or all */
		walked = flags & STEP_CHARGE && d->left != NO_LIMIT ? weight(bits & through) : 0;
		if (walked > d->left) {
			d->left = 0;
			return LEAVE_SCANS;
		}
		d->left -= walked;
		at = opaque(d, at + !hits);
		behind = hits ? ~through : ~0ULL;
		if (!hits)
			continue;
		d->claimed = flags & STEP_CLAIM && view_claim(first_cpu(word, hits));
		if (d->claimed || !(flags & STEP_CLAIM))
			return first_cpu(word, hits);
		lost = opaque(d, lost + 1);
	}
	return CONTINUE;
}

/* What a search core by core notes on its way: of the first core of the mask with threads that would do, the first of them. */
__global int note_candidate(struct decision *d __arg_nonnull, u32 start)
{
	struct mask mask = d->mask;
	u32 word, i, j;

	PLAN_FOR(i, mask.len + 1) {
		u64 rest = walk(d, start, i, &word);

		PLAN_FOR(j, 64) {
			const struct cpu_facts *core = rest ? plan_facts(first_cpu(word, rest)) : NULL;

			if (!core || d->candidate)
				break;
			d->mask = core->sets[SET_CORE];
			d->candidate = search(d, 0) + 1;
			d->mask = mask;
			rest &= rest - 1;
		}
	}
	return 0;
}

/* Of the mask: CPUs that will do, in the upper half, and busy ones. */
__global u64 count_cpus(struct decision *d __arg_nonnull)
{
	u32 good = opaque(d, 0), busy = good, i;

	PLAN_FOR(i, d->mask.len) {
		u32 word = d->mask.first + i;
		u64 bits = opaque(d, mask_word(&d->mask, word));

		good += weight(bits & good_word(d, word) & affinity_word(d, word));
		busy += weight(bits & (d->s.flags & STEP_HOGS ? view_hog_word(word) : ~view_idle_word(word)));
	}
	return (u64)good << 32 | busy;
}

/* The least busy cluster of prev's LLC, node or all with a CPU that will do, of equals prev's own first; else NO_LIMIT. */
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

/* A step that looks for a CPU. */
__global s32 look(struct decision *d __arg_nonnull)
{
	u32 flags = d->s.flags, of = d->s.of, set = d->s.set, near = d->s.near, start;
	u32 cpu = of == OF_PREV ? d->prev : of == OF_RECENT ? (u32)d->recent : d->target;
	const struct cpu_facts *facts = plan_facts(cpu), *prev = plan_facts(d->prev);
	const struct mask *mask;
	s32 found;

	if (flags & STEP_ALWAYS)
		d->recent = d->prev;
	if (!facts || !prev || set >= NR_SETS || (near != SET_NONE && !in_set(d, near, cpu)) || (flags & STEP_NO_HIC && d->hic) ||
	    (flags & STEP_OTHER && (cpu == d->target || (of == OF_RECENT && cpu == d->prev))))
		return CONTINUE;
	if (flags & STEP_NO_BUSIER && (!has(good_word(d, cpu / 64), cpu) || idlest(d, SET_LLC) != prev->cluster))
		return CONTINUE;
	mask = flags & STEP_IDLEST ? plan_cluster(idlest(d, set)) : &facts->sets[set];
	if (!mask)
		return CONTINUE;
	d->mask = *mask;
	start = flags & STEP_FROM_ZERO ? 0 : cpu + !!(flags & STEP_AFTER);
	if (plan_uses(USED_CORES) && flags & STEP_CORES_HINTED && d->hic) {
		d->s.flags = (flags | STEP_CORES) & ~(STEP_SCHED_IDLE | STEP_CHARGE);
		found = search(d, start);
		d->s.flags = flags & ~STEP_CHARGE;
		if (found == CONTINUE)
			note_candidate(d, start);
		if (found == CONTINUE && flags & STEP_LAST)
			found = d->candidate - 1;
	} else {
		found = search(d, start);
	}
	if (found >= 0 && flags & STEP_KEEP && !in_set(d, SET_SHARE, found)) {
		if (!d->kept || flags & STEP_FIRST)
			d->kept = found + 1;
		return CONTINUE;
	}
	if (found >= 0 && of == OF_RECENT)
		d->recent = d->prev;
	return found;
}

/* What scans may walk over, from the LLC's utilisation. */
__global s32 step_budget(struct decision *d __arg_nonnull)
{
	const struct cpu_facts *target = plan_facts(d->target);

	if (!target || !target->sets[SET_SD_LLC].len)
		return CONTINUE;
	d->mask = target->sets[SET_SD_LLC];
	d->left = view_nr_idle_scan(target->llc_index);
	if (!d->left)
		return LEAVE_SCANS;
	d->left -= d->left == NO_LIMIT;
	return !d->s.flags || search(d, 0) >= 0 ? CONTINUE : LEAVE_SCANS;
}

static __always_inline s32 run_step(struct decision *d)
{
#define CASE(kind, found) case kind: return plan_uses(1U << (kind)) ? (found) : CONTINUE
	switch (d->s.kind) {
	CASE(KIND_LOOK, look(d));
	CASE(KIND_BUDGET, step_budget(d));
	CASE(KIND_NEED_LLC, in_set(d, SET_SD_LLC, d->target) ? CONTINUE : (s32)d->target);
	CASE(KIND_TAKE_KEPT, d->kept - 1);
	CASE(KIND_KTHREAD_STACK, d->kthread_waker && d->prev == d->this_cpu && view_nr_running(d->prev) <= 1 ?
	     (s32)d->prev : CONTINUE);
	CASE(KIND_SYNC_STACK, d->target == d->this_cpu && d->sync && d->keeps_sync && allowed(d, d->target) &&
	     view_nr_running(d->target) == 1 ? (s32)d->target : CONTINUE);
	case KIND_HINT:
		d->hic = plan_uses(1U << KIND_HINT) && look(d) >= 0;
	}
	return CONTINUE;
#undef CASE
}

/* The deciding step's CPU. */
static __noinline s32 run_steps(struct decision *d, const struct plan *plan)
{
	u32 next = opaque(d, 0), i;
	s32 found;

	PLAN_FOR(i, plan->nr_steps) {
		if (i >= MAX_STEPS)
			break;
		if (i < next)
			continue;
		d->step = i;
		d->s = plan->steps[i];
		found = run_step(d);
		if (found >= 0)
			return found;
		if (found == LEAVE_SCANS)
			next = plan->after_scans;
	}
	return d->target;
}

/* wake_affine: which CPU is idle or alone, else less loaded, in the kernel's signed arithmetic; all capacities are equal. */
static __noinline u32 wake_affine(struct decision *d, u32 entry)
{
	bool prev_idle = has(view_idle_word(d->prev / 64), d->prev);
	const struct cpu_facts *facts = plan_facts(d->this_cpu);
	u64 margin = 0, here, there;

	for (u32 i = AFFINES; facts && i-- > 0;)
		margin = has(mask_word(&facts->sets[SET_AFFINE + i], d->prev / 64), d->prev) ? facts->margins[i] : margin;
	if (!margin)
		return d->prev;
	if (has(view_idle_word(d->this_cpu / 64), d->this_cpu) && in_set(d, SET_SHARE_LLC, d->this_cpu))
		return prev_idle ? d->prev : d->this_cpu;
	if (d->sync && view_nr_running(d->this_cpu) == 1)
		return d->this_cpu;
	if (entry & ENTRY_AFFINE_IDLE_PREV && prev_idle)
		return d->prev;
	here = view_cpu_load(d->this_cpu);
	there = view_cpu_load(d->prev);
	if (d->sync && (s64)d->waker_load > (s64)here)
		return d->this_cpu;
	here = (here - (d->sync ? d->waker_load : 0) + d->wakee_load) * 100 * 1024;
	there = (there - d->wakee_load) * margin * 1024 + d->sync;
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

/* The first CPU of one of prev's sets that the wakee may use; -1 if there is none. */
__global s32 first_allowed(struct decision *d __arg_nonnull, u32 set)
{
	const struct cpu_facts *prev = plan_facts(d->prev);

	if (!prev || set >= NR_SETS)
		return -1;
	d->mask = prev->sets[set];
	d->s.flags = STEP_ANY;
	return search(d, 0);
}

/* In a global function: the verifier does not know what that writes and follows one case. */
__global int begin(struct decision *d __arg_nonnull, const struct plan *plan __arg_nonnull)
{
	d->target = d->prev;
	d->step = plan->nr_steps;
	d->left = NO_LIMIT;
	d->nr_clusters = plan->nr_clusters;
	return 0;
}

/*
 * Places a wake-up or, with is_fork, a new task, which may use nr_allowed CPUs, those of affinity_word(): see the decision for more.
 * -1: a CPU is beyond the machine.
 */
static __always_inline s32 plan_place(const struct plan *plan, struct decision *d, u32 nr_allowed)
{
	s32 cpu, other;

	if (!plan_facts(d->this_cpu) || !plan_facts(d->prev))
		return -1;
	begin(d, plan);
	if (nr_allowed == 1)
		return d->target = first_allowed(d, SET_EVERY);
	if (!d->is_fork && plan->entry & ENTRY_CURRENT_HINT && d->current_hint && allowed(d, d->this_cpu))
		return d->target = d->this_cpu;
	if (!d->is_fork)
		d->target = choose_target(d, plan->entry);
	cpu = run_steps(d, plan);
	if (allowed(d, cpu) || !nr_allowed)
		return cpu;
	d->step = plan->nr_steps;
	other = first_allowed(d, SET_WHOLE_NODE);
	return other >= 0 ? other : first_allowed(d, SET_EVERY);
}

#endif
