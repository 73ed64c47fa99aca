/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The steps of the kernel's own policies, and its choice of a target by load: kernel/sched/fair.c,
 * select_idle_sibling and wake_affine.
 */
#ifndef HUDDLE_FAIR_H
#define HUDDLE_FAIR_H

/* Whether a CPU shares the target's LLC, or its lowest cache with a domain. */
static __noinline bool shares(struct decision *d, u32 cpu, bool lowest)
{
	const struct cpu_facts *facts = plan_facts(cpu), *target = plan_facts(d->target);

	if (!facts || !target)
		return false;
	return cpu == d->target || (lowest ? facts->share_id == target->share_id : facts->llc_id == target->llc_id);
}

/* Fills the candidates, once: CPUs of the target's LLC that the wakee may use. */
__global int prepare(struct decision *d __arg_nonnull)
{
	const struct cpu_facts *target = plan_facts(d->target);
	u32 word;

	if (d->ready || !target)
		return 0;
	d->ready = true;
	PLAN_FOR(word, d->nr_words) {
		u64 *left = scratch_word(d, word);

		if (left)
			*left = mask_word(d, &target->llc, word) & allowed_word(d, word);
	}
	return 0;
}

/* Takes CPUs out of the candidates. */
static __noinline void remove(struct decision *d, const struct mask *gone)
{
	u32 i;

	PLAN_FOR(i, gone->len) {
		u64 *left = scratch_word(d, gone->first + i);

		if (left && gone->first + i < d->nr_words)
			*left &= ~mask_word(d, gone, gone->first + i);
	}
}

/*
 * Tests a core. IdleCore asks that all threads satisfy the predicate. The search of 5.13 on asks that all are idle;
 * on its way it notes the first thread that would do, and from there on leaves the core at a busy thread. A core
 * that will not do is no more a candidate.
 */
__global bool core_will_do(struct decision *d __arg_nonnull, u32 core)
{
	const struct cpu_facts *facts = plan_facts(core);
	bool noting = d->s.kind != KIND_IDLE_CORE;
	u64 any_busy = 0;
	u32 i;

	if (!facts)
		return false;
	PLAN_FOR(i, facts->smt.len) {
		u32 word = facts->smt.first + i;
		u64 threads = mask_word(d, &facts->smt, word), good = good_word(d, word), leave;
		u64 busy = threads & ~(noting ? view_idle_word(d, word) : good);

		leave = busy;
		if (noting && d->candidate < 0) {
			good &= threads & candidates(d, word);
			if (good)
				d->candidate = first_cpu(word, good);
			leave &= -(good & -good);
		}
		examine(d, word, threads & through_first(leave));
		any_busy |= busy;
		if (leave)
			break;
	}
	if (any_busy)
		remove(d, &facts->smt);
	return !any_busy;
}

/* Tests the cores among the candidates in the mask in scan order, by the first CPU met of each. */
__global s32 search_cores(struct decision *d __arg_nonnull)
{
	u32 start = d->target + !!(d->s.flags & STEP_AFTER_TARGET), word, i, j;
	s32 flow = CONTINUE;

	PLAN_FOR(i, d->mask.len + 1) {
		u64 part = walk(d, start, i, &word);

		PLAN_FOR(j, 64) {
			u64 rest = part & candidates(d, word);

			if (!rest)
				break;
			if (core_will_do(d, first_cpu(word, rest))) {
				flow = first_cpu(word, rest);
				break;
			}
		}
		if (flow != CONTINUE)
			break;
	}
	return flow;
}

/* PrevIdle, and RecentIdle for what is left of its tests. */
__global s32 near_idle(struct decision *d __arg_nonnull, u32 cpu)
{
	bool lowest = d->s.flags & STEP_LOWEST, keep = d->s.flags & STEP_KEEP;

	if (cpu == d->target || !shares(d, cpu, lowest && !keep) || !good(d, cpu))
		return CONTINUE;
	if (!lowest || shares(d, cpu, true))
		return cpu;
	if (cpu == d->prev)
		d->kept_prev = cpu;
	else
		d->kept_recent = cpu;
	return CONTINUE;
}

static __noinline s32 step_recent_idle(struct decision *d)
{
	s32 recent = view_recent(d), flow;

	if (d->s.flags & STEP_UPDATE_ALWAYS)
		view_set_recent(d, d->prev);
	if (recent < 0 || recent == (s32)d->prev || !allowed(d, recent))
		return CONTINUE;
	flow = near_idle(d, recent);
	if (flow >= 0 && !(d->s.flags & STEP_UPDATE_ALWAYS))
		view_set_recent(d, d->prev);
	return flow;
}

__global s32 step_idle_core(struct decision *d __arg_nonnull)
{
	const struct cpu_facts *target = plan_facts(d->target);
	s32 flow;

	if (!target || !(d->flags & PLAN_SMT_ACTIVE) || !view_has_idle_cores(d, target->llc_index) || !target->llc.len)
		return CONTINUE;
	d->ready = false;
	prepare(d);
	d->mask = target->llc;
	flow = search_cores(d);
	d->ready = false;	/* its own walk over the LLC: the scans behind it start afresh */
	if (flow == CONTINUE)
		view_set_has_idle_cores(d, target->llc_index, false);
	return flow;
}

__global s32 step_idle_smt(struct decision *d __arg_nonnull)
{
	const struct cpu_facts *anchor = plan_facts(d->s.flags & STEP_ANCHOR_PREV ? d->prev : d->target);

	if (!anchor || !(d->flags & PLAN_SMT_ACTIVE))
		return CONTINUE;
	if (d->s.flags & STEP_NO_HIC && (d->hic || !shares(d, d->prev, false)))
		return CONTINUE;
	d->mask = anchor->smt;
	return search(d, 0);
}

__global s32 step_scan_cluster(struct decision *d __arg_nonnull)
{
	const struct cpu_facts *target = plan_facts(d->target);
	s32 flow;

	if (d->s.flags & STEP_NO_SMT ? d->flags & PLAN_SMT_ACTIVE : !(d->flags & PLAN_CLUSTER_ACTIVE))
		return CONTINUE;
	if (!target || d->s.source >= NR_SOURCES)
		return CONTINUE;
	d->mask = target->scan_cluster[d->s.source];
	prepare(d);
	if (d->s.flags & STEP_CORES && d->hic)
		flow = search_cores(d);
	else
		flow = search(d, d->target + !!(d->s.flags & STEP_AFTER_TARGET));
	if (flow == CONTINUE && d->s.flags & STEP_REMOVE)
		remove(d, &d->mask);
	return flow;
}

/* A signed number halved some times towards zero: BPF has no signed division. */
static __always_inline s64 halved(s64 number, u32 times)
{
	return (number + (number < 0 ? (1 << times) - 1 : 0)) >> times;
}

static __noinline s32 step_scan_llc(struct decision *d)
{
	const struct cpu_facts *target = plan_facts(d->target);
	u32 before[DISTANCES], i;
	u64 time, average;
	s32 flow;

	if (!target || !target->llc.len)
		return CONTINUE;
	d->mask = target->llc;
	prepare(d);
	if (d->s.flags & STEP_CORES && d->hic) {
		flow = search_cores(d);
		if (flow == CONTINUE)
			view_set_has_idle_cores(d, target->llc_index, false);
		return flow == CONTINUE ? d->candidate : flow;
	}
	for (i = 0; i < DISTANCES; i++) {	/* the time booked is that of this scan alone */
		before[i] = d->examined[i];
		d->examined[i] = 0;
	}
	flow = search(d, d->target + !!(d->s.flags & STEP_AFTER_TARGET));
	if (d->s.cost != COST_NONE && flow != LEAVE_SCANS) {
		time = view_scan_time(d);
		if (d->s.cost == COST_AGED)
			view_charge_aged_idle(d, d->this_cpu, time);
		average = view_avg_scan_cost(d, d->this_cpu);
		view_set_avg_scan_cost(d, d->this_cpu, average + halved(time - average, 3));
	}
	for (i = 0; i < DISTANCES; i++)
		d->examined[i] += before[i];
	return flow;
}

/* The budget in proportion to idle time over scan cost, at least 1. */
static __noinline u32 proportional(struct decision *d, const struct cpu_facts *target)
{
	u64 cost = view_avg_scan_cost(d, d->this_cpu) + 1, floor = d->s.floor, nr;
	u64 idle = d->s.method == METHOD_PROP_AGED ? view_aged_idle(d, d->this_cpu) : view_avg_idle(d, d->this_cpu);

	idle = idle / d->s.div * target->llc.weight;
	nr = idle > floor * cost ? idle / cost : floor;
	return nr < 1 ? 1 : nr > 0x7fffffff ? 0x7fffffff : nr;
}

/* wake_affine: which CPU is idle or alone, else less loaded, in the kernel's signed arithmetic. */
static __noinline u32 wake_affine(struct decision *d, u32 imbalance_pct, u32 entry)
{
	u64 here, there, wakee, waker;

	if (idle(d, d->this_cpu) && shares(d, d->this_cpu, false))
		return idle(d, d->prev) ? d->prev : d->this_cpu;
	if (d->sync) {
		u32 others = 1;

		if (plan_uses_entry(ENTRY_SYNC_MINUS_DELAYED) && entry & ENTRY_SYNC_MINUS_DELAYED)
			others += view_nr_delayed(d, d->this_cpu);
		if (view_nr_running(d, d->this_cpu) == others)
			return d->this_cpu;
	}
	if (entry & ENTRY_AFFINE_IDLE_PREV && idle(d, d->prev))
		return d->prev;
	here = view_cpu_load(d, d->this_cpu);
	there = view_cpu_load(d, d->prev);
	wakee = view_wakee_load(d);
	waker = d->sync ? view_waker_load(d) : 0;
	if (d->sync && (s64)waker > (s64)here)
		return d->this_cpu;
	here = (here - waker + wakee) * 100 * view_capacity(d, d->prev);
	there = (there - wakee) * (100 + halved((s64)imbalance_pct - 100, 1)) * view_capacity(d, d->this_cpu) + d->sync;
	return (s64)here < (s64)there ? d->this_cpu : d->prev;
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

		if (affine && has(mask_word(d, &affine->span, d->prev / 64), d->prev)) {
			imbalance_pct = affine->imbalance_pct;
			break;
		}
	}
	return imbalance_pct;
}

#endif
