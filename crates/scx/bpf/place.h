/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The interpreter of plans: where a wake-up or a new task goes. Twin of crates/policy/src/{place,scan,claim}.rs,
 * where the reasons and the mirrored kernel functions stand; crates/scx-native holds the two against each other,
 * decision for decision.
 *
 *   plan_place ── only one CPU allowed? ── choose_target ── run_steps ── outside the affinity? first_allowed
 *
 * The includer defines before it: view_*() (the world), plan_facts(), plan_cluster(), plan_affine(), plan_word() and
 * scratch_word() (bounded look-ups; the scratch has 2 * nr_words), PLAN_FOR(i, n) (a bounded loop, whose body must
 * not return), and plan_uses(kind), plan_uses_entry(bit): constants by which the verifier drops what no loaded plan
 * has. A decision may begin a struct of the includer, but only view_allowed_word(), view_wakee_is_sched_idle(),
 * view_recent(), view_set_recent(), view_scan_time() and those of the entry rule find it there, being called from
 * static functions.
 */
#ifndef HUDDLE_PLACE_H
#define HUDDLE_PLACE_H

#include "search.h"
#include "fair.h"

__global s32 step_budget(struct decision *d __arg_nonnull)
{
	const struct cpu_facts *here = plan_facts(d->this_cpu), *target = plan_facts(d->target);
	u64 any = 0;
	u32 word;

	if (!target || !target->llc.len)
		return CONTINUE;
	if (d->s.method == METHOD_UTIL) {
		d->left = view_nr_idle_scan(d, target->llc_index);
		d->left -= d->left == NO_LIMIT;
		d->exhausted |= !d->left;
		if (!d->left)
			return LEAVE_SCANS;
	} else if (d->s.method != METHOD_NONE) {
		if (!here || !here->llc.len)
			return LEAVE_SCANS;
		if (!d->hic)
			d->left = proportional(d, target) - 1;
	}
	if (!(d->s.flags & STEP_FAIL_IF_EMPTY))
		return CONTINUE;
	prepare(d);
	PLAN_FOR(word, d->nr_words)
		any |= candidates(d, word);
	return any ? CONTINUE : LEAVE_SCANS;
}

/* Of the mask: CPUs that will do, in the upper half, and busy ones. */
__global u64 count_cpus(struct decision *d __arg_nonnull)
{
	u32 good = opaque(d, 0), busy = good, i;

	PLAN_FOR(i, d->mask.len) {
		u32 word = d->mask.first + i;
		u64 bits = mask_word(d, &d->mask, word);

		good += weight(bits & good_word(d, word));
		busy += weight(bits & ~view_idle_word(d, word));
	}
	return (u64)good << 32 | busy;
}

/*
 * The least busy cluster of prev's LLC, node or all with a CPU to claim, of equals prev's own first; else NO_LIMIT.
 */
__global u32 idlest(struct decision *d __arg_nonnull, u32 within)
{
	const struct cpu_facts *prev = plan_facts(d->prev);
	u32 best = opaque(d, NO_LIMIT), from, len, turn, i;
	u64 best_busy = 0, best_size = 0;

	if (!prev)
		return NO_LIMIT;
	from = within == WITHIN_LLC ? prev->llc_from : within == WITHIN_NODE ? prev->node_from : 0;
	len = within == WITHIN_LLC ? prev->llc_len : within == WITHIN_NODE ? prev->node_len : prev->nr_clusters;
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

/* Claims a CPU of the idlest cluster, prev before others. */
__global s32 step_claim_idlest(struct decision *d __arg_nonnull)
{
	s32 flow = CONTINUE;
	u32 i;

	PLAN_FOR(i, LOST_CLAIMS) {
		const struct mask *cluster = plan_cluster(idlest(d, d->s.within));

		if (!cluster)
			break;
		d->mask = *cluster;
		flow = search(d, d->prev);
		if (flow >= 0)
			break;
	}
	return flow;
}

/* Claims prev, or any CPU of a set. */
__global s32 step_claim(struct decision *d __arg_nonnull)
{
	const struct cpu_facts *prev = plan_facts(d->prev), *target = plan_facts(d->target);
	bool around_prev = d->s.within == WITHIN_PREV_CLUSTER;

	if (!prev || !target || d->s.within >= NR_WITHIN)
		return CONTINUE;
	d->mask = (around_prev ? prev : target)->claim[d->s.within];
	if (d->s.kind == KIND_CLAIM_ANY)
		return search(d, (around_prev ? d->prev : d->target) + 1);
	if (!has(mask_word(d, &d->mask, d->prev / 64), d->prev) || !good(d, d->prev))
		return CONTINUE;
	if (d->s.flags & STEP_NO_BUSIER && idlest(d, WITHIN_LLC) != prev->cluster)
		return CONTINUE;
	d->claimed = view_claim(d, d->prev);
	return d->claimed ? (s32)d->prev : CONTINUE;
}

/* A waker that is about to sleep makes room for the wakee, unless its cluster has idle CPUs to spare. */
__global s32 step_sync_stack(struct decision *d __arg_nonnull)
{
	const struct cpu_facts *here = plan_facts(d->this_cpu);

	if (!here || d->target != d->this_cpu || !d->sync || !allowed(d, d->target) ||
	    view_nr_running(d, d->target) != 1 || !view_waker_keeps_sync(d))
		return CONTINUE;
	d->mask = here->claim[WITHIN_CLUSTER];
	return count_cpus(d) >> 32 > d->s.spare ? CONTINUE : (s32)d->target;
}

static __always_inline s32 run_step(struct decision *d)
{
	const struct cpu_facts *target = plan_facts(d->target);
	u32 flags = d->s.flags;

	if (!target || (d->s.kind >= KIND_SYNC_STACK && flags & STEP_CORES && !(d->flags & PLAN_SMT_ACTIVE)))
		return CONTINUE;
#define CASE(kind, flow) case kind: return plan_uses(kind) ? (flow) : CONTINUE
	switch (d->s.kind) {
	CASE(KIND_TARGET_IDLE, good(d, d->target) ? (s32)d->target : CONTINUE);
	CASE(KIND_PREV_IDLE, near_idle(d, d->prev));
	CASE(KIND_KTHREAD_STACK, view_waker_is_per_cpu_kthread(d) && d->prev == d->this_cpu &&
	     view_nr_running(d, d->prev) <= 1 ? (s32)d->prev : CONTINUE);
	CASE(KIND_RECENT_IDLE, step_recent_idle(d));
	CASE(KIND_NEED_LLC, target->llc.len ? CONTINUE : (s32)d->target);
	CASE(KIND_IDLE_CORE, step_idle_core(d));
	CASE(KIND_IDLE_SMT, step_idle_smt(d));
	CASE(KIND_BUDGET, step_budget(d));
	CASE(KIND_SCAN_CLUSTER, step_scan_cluster(d));
	CASE(KIND_SCAN_LLC, step_scan_llc(d));
	CASE(KIND_RETURN_TARGET, (s32)d->target);
	CASE(KIND_RETURN_PREV, (s32)d->prev);
	CASE(KIND_SYNC_STACK, step_sync_stack(d));
	CASE(KIND_CLAIM_PREV, step_claim(d));
	CASE(KIND_CLAIM_ANY, step_claim(d));
	CASE(KIND_CLAIM_IDLEST, step_claim_idlest(d));
	case KIND_READ_HIC:
		if (plan_uses(KIND_READ_HIC))
			d->hic = d->flags & PLAN_SMT_ACTIVE && view_has_idle_cores(d, target->llc_index);
		return CONTINUE;
	case KIND_TAKE_KEPT:
		if (flags & STEP_TAKE_RECENT && d->kept_recent >= 0 && (flags & STEP_RECENT_FIRST || d->kept_prev < 0))
			return d->kept_recent;
		return flags & STEP_TAKE_PREV ? d->kept_prev : CONTINUE;
	}
	return CONTINUE;	/* AsymScan: all capacities are equal */
#undef CASE
}

/* The deciding step's CPU. */
static __noinline s32 run_steps(struct decision *d, const struct plan *plan)
{
	u32 next = opaque(d, 0), i;
	s32 cpu = d->target, flow;

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

/* wake_wide: waker and wakee both switch partners so often that gathering would crowd an LLC of that size. */
static __noinline bool wake_wide(struct decision *d, u32 llc_size)
{
	u32 waker = view_waker_flips(d), wakee = view_wakee_flips(d);

	return waker < wakee ? waker >= llc_size && wakee >= (u64)waker * llc_size :
		wakee >= llc_size && waker >= (u64)wakee * llc_size;
}

/* The entry rule: this CPU or prev, which is the target so far. */
static __noinline u32 choose_target(struct decision *d, const struct cpu_facts *here, u32 entry)
{
	u32 imbalance_pct;

	d->wide = plan_uses_entry(ENTRY_WIDE) && entry & ENTRY_WIDE && wake_wide(d, here->llc_size);
	if (d->wide || !allowed(d, d->this_cpu))
		return d->prev;
	if (plan_uses_entry(ENTRY_SET_WAKER_RECENT) && entry & ENTRY_SET_WAKER_RECENT)
		view_set_waker_recent(d, d->this_cpu);
	if (plan_uses_entry(ENTRY_ANCHOR_WAKER) && entry & ENTRY_ANCHOR_WAKER) {
		bool near = shares(d, d->this_cpu, false) || (d->sync && view_nr_running(d, d->this_cpu) == 1);

		return near ? d->this_cpu : d->prev;
	}
	if (!plan_uses_entry(ENTRY_ANCHOR_LOAD) || !(entry & ENTRY_ANCHOR_LOAD) || d->this_cpu == d->prev)
		return d->prev;
	imbalance_pct = affine_imbalance(d);
	return imbalance_pct ? wake_affine(d, imbalance_pct, entry) : d->prev;
}

/* The first CPU, of the mask or of all, that the wakee may use; -1 if there is none. */
__global s32 first_allowed(struct decision *d __arg_nonnull, bool in_mask)
{
	s32 cpu = -1;
	u32 word;

	PLAN_FOR(word, d->nr_words) {
		u64 bits = allowed_word(d, word) & (in_mask ? mask_word(d, &d->mask, word) : ~0ULL);

		if (bits) {
			cpu = first_cpu(word, bits);
			break;
		}
	}
	return cpu;
}

/* Sets up a decision, in a global function: the verifier does not know what that writes and follows one case. */
__global int begin(struct decision *d __arg_nonnull, u32 flags, u32 nr_words, u32 nr_steps)
{
	d->target = d->prev;
	d->step = nr_steps;
	d->left = NO_LIMIT;
	d->candidate = d->kept_prev = d->kept_recent = -1;
	d->flags = flags;
	d->nr_words = nr_words;
	return 0;
}

/* Places a wake-up or, with is_fork, a new task: see the decision for more. -1: a CPU is beyond the machine. */
static __always_inline s32 plan_place(const struct plan *plan, struct decision *d)
{
	const struct cpu_facts *here = plan_facts(d->this_cpu), *prev = plan_facts(d->prev);
	u32 nr_allowed, word;
	s32 cpu, other;

	if (!here || !prev)
		return -1;
	begin(d, plan->flags, plan->nr_words, plan->nr_steps);
	d->is_sched_idle = view_wakee_is_sched_idle(d);
	nr_allowed = opaque(d, 0);
	PLAN_FOR(word, plan->nr_words) {
		u64 *copy = scratch_word(d, plan->nr_words + word), bits = view_allowed_word(d, word);

		nr_allowed += weight(bits);
		if (copy)
			*copy = bits;
	}
	if (nr_allowed == 1) {
		d->target = first_allowed(d, false);
		return d->target;
	}
	if (!d->is_fork) {
		if (plan_uses_entry(ENTRY_PREFER_CURRENT_HINT) && plan->entry & ENTRY_PREFER_CURRENT_HINT &&
		    view_prefers_current_cpu(d) && allowed(d, d->this_cpu)) {
			d->target = d->this_cpu;
			return d->this_cpu;
		}
		d->target = choose_target(d, here, plan->entry);
	}
	cpu = run_steps(d, plan);
	if (allowed(d, cpu) || !nr_allowed)
		return cpu;
	d->mask = prev->node;
	other = first_allowed(d, true);
	d->step = plan->nr_steps;
	return other >= 0 ? other : first_allowed(d, false);
}

#endif
