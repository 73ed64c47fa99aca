// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Huddle on a real kernel: a sched_ext scheduler that knows clusters (6.12 on).
 *
 *	select_cpu ── a plan (place.h) chooses ── claimed an idle CPU ── straight to that CPU's local queue
 *	                                      └─ none idle ── enqueue ── the queue of the chosen CPU's cluster, by virtual time
 *	dispatch   ── own CPU's pinned tasks or own cluster, by virtual time; LLC's other clusters; node's; farther; else go on; else idle
 *
 * Virtual time: each cluster has a clock. A task that does not wait in a cluster's queue keeps its lag: how far it is ahead of the clock
 * (positive) or behind, in nanoseconds of run time at nice 0. So it can move between clusters whose clocks differ.
 * Queues: one a cluster; one a CPU for tasks that may run nowhere else and for the task that a kernel thread pushed aside.
 * Invariants: a claimed CPU gets a task or a kick; a task that waits is seen by every CPU of its cluster that runs dry.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "plan.h"
#include "live.h"

char LICENSE[] SEC("license") = "GPL";

struct plan plans[NR_PLANS] SEC(".data.plans");
const volatile struct config config SEC(".rodata.config");
struct exit_record exit_record SEC(".data.exit");

#define ARRAY(map_name, value_type)					\
	struct {							\
		__uint(type, BPF_MAP_TYPE_ARRAY);			\
		__uint(max_entries, 1);					\
		__type(key, u32);					\
		__type(value, value_type);				\
	} map_name SEC(".maps")

/* The data of the plans, sized when it is loaded. */
ARRAY(facts, struct cpu_facts);
ARRAY(pool, u64);
ARRAY(clusters, struct mask);
ARRAY(affine, struct affine_span);
ARRAY(scratch, u64);			/* by CPU, two sets of words */

/* Which plan places wake-ups: PLAN_GATHER or PLAN_SPREAD. Written while running. */
ARRAY(mode, u32);
/* nr_idle_scan by LLC, from its utilisation, kept by the loader. */
ARRAY(idle_scans, u32);

struct cluster_state {
	u64 clock;
	u64 filled_at;			/* when a task last joined its queue */
	u64 unused[6];			/* alone on its cache line */
};
ARRAY(cluster_states, struct cluster_state);

/* A CPU's state: written by that CPU, but for kicked and pushed. */
struct cpu_state {
	u64 started;			/* its task's lag was lag at this time */
	s64 lag;
	u64 since;			/* its task has run without a break since then */
	u64 idle_since, avg_idle, avg_scan_cost;
	u32 weight;			/* 0: nothing of ours runs */
	u32 taken_from;			/* the cluster from whose queue its next task was taken */
	u32 next_cpu;			/* where the next scan starts, plus 1 */
	s32 exec;			/* the task that has just changed its program */
	bool hog, ran_long, pinned, own_turn, kicked, pushed, sched_idle;
	u8 vow;				/* 1: its task gave the sync hint; 2: and then woke another before it slept */
	u8 vows;
	struct counters n;
};
ARRAY(cpu_states, struct cpu_state);
/* CPUs whose tasks have run without a break for a while. */
ARRAY(hog_words, u64);
/* Clusters whose queues may hold tasks: a hint for the others. */
ARRAY(waiting_words, u64);
/* A start for sums that the verifier must not follow. */
u32 unknown_zero;

/* What a task carries where a plan needs it. */
struct task_state {
	s32 recent;			/* plus 1 */
	s32 last_wakee;
	u32 flips;
	u32 kept;			/* kept promises: sync wake-ups after which it slept at once */
	u64 decayed;
};
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_state);
} task_states SEC(".maps");

#include "view.h"
#include "place.h"

#define NOT_CLAIMED	(1 << 30)	/* beside a CPU: it may be busy */
#define CLOCK_ORIGIN	(1ULL << 62)	/* tells virtual times from lags */

static __noinline int insert(struct task_struct *p, u64 dsq, u64 slice, u64 flags)
{
	if (bpf_ksym_exists(scx_bpf_dsq_insert))
		scx_bpf_dsq_insert(p, dsq, slice, flags);
	else
		scx_bpf_dispatch(p, dsq, slice, flags);
	return 0;
}

static __noinline int insert_vtime(struct task_struct *p, u64 dsq, u64 slice, u64 vtime, u64 flags)
{
	if (bpf_ksym_exists(scx_bpf_dsq_insert_vtime))
		scx_bpf_dsq_insert_vtime(p, dsq, slice, vtime, flags);
	else
		scx_bpf_dispatch_vtime(p, dsq, slice, vtime, flags);
	return 0;
}

static __noinline bool move_to_local(u64 dsq)
{
	return bpf_ksym_exists(scx_bpf_dsq_move_to_local) ? scx_bpf_dsq_move_to_local(dsq) : scx_bpf_consume(dsq);
}

static __always_inline void set_slice(struct task_struct *p, u64 slice)
{
	if (bpf_ksym_exists(scx_bpf_task_set_slice))
		scx_bpf_task_set_slice(p, slice);
	else
		p->scx.slice = slice;
}

static __always_inline void set_vtime(struct task_struct *p, u64 vtime)
{
	if (bpf_ksym_exists(scx_bpf_task_set_dsq_vtime))
		scx_bpf_task_set_dsq_vtime(p, vtime);
	else
		p->scx.dsq_vtime = vtime;
}

/* The queue of tasks that only this CPU may take. */
static __always_inline u64 own_queue(s32 cpu)
{
	return (1ULL << 32) | cpu;
}

/* A task that slept long is owed no more than a slice; one that ran long alone waits no longer than two. */
static __always_inline s64 bounded_lag(s64 lag)
{
	s64 slice = config.slice_ns;

	return lag < -slice ? -slice : lag > 2 * slice ? 2 * slice : lag;
}

/* The lag of a task that does not wait in a queue; of one that was taken out of it before it ran, nothing is known. */
static __always_inline s64 lag_of(struct task_struct *p)
{
	s64 lag = p->scx.dsq_vtime;

	return lag >= (s64)(CLOCK_ORIGIN / 2) ? 0 : bounded_lag(lag);
}

static __noinline u64 set_word(const struct mask *set, u32 word)
{
	u32 offset = word - set->first;

	return offset < set->len ? plan_word(set->at + offset) : 0;
}

/* Their distance, from ids where those tell it. */
static __noinline u32 distance(u32 from, u32 to)
{
	const struct cpu_facts *a = plan_facts(from), *b = plan_facts(to);

	if (from == to || !a || !b)
		return 0;
	if (a->smt.weight > 1 && has(set_word(&a->smt, to / 64), to))
		return 1;
	return a->cluster == b->cluster ? 2 : a->llc_from == b->llc_from ? 3 : a->node_from == b->node_from ? 4 :
		has(set_word(&a->reach[4], to / 64), to) ? 5 : 6;
}

/* The log2 of us, rounded up, within the histogram. */
static __always_inline u32 bucket(u64 ns)
{
	u32 us = ns >> 10 > ~0U ? ~0U : ns >> 10, at = 0;

#define HALVE(by) if (us >> (by)) { us >>= (by); at += (by); }
	HALVE(16) HALVE(8) HALVE(4) HALVE(2) HALVE(1)
#undef HALVE
	return at + us < WAIT_BUCKETS ? at + us : WAIT_BUCKETS - 1;
}

/* Adds the time that the CPU's task has run since it was last asked, in virtual time to its lag. */
static __noinline void charge(struct cpu_state *c, u64 now)
{
	u64 ran = now - c->started;

	if (!c->weight || (s64)ran < 0)
		return;
	c->lag += c->weight == 100 ? ran : ran * 100 / c->weight;
	c->n.busy_ns += ran;
	c->started = now;
}

/* An idle CPU of a set that the task may use, claimed. */
static __noinline bool claim_in(struct task_struct *p, const struct mask *mask, s32 *cpu)
{
	u32 i, tries;

	PLAN_FOR(i, mask->len) {
		u32 word = mask->first + i;

		PLAN_FOR(tries, LOST_CLAIMS) {
			u64 free = set_word(mask, word) & view_idle_word(NULL, word) & kernel_word(p->cpus_ptr, word);

			if (!free)
				break;
			*cpu = first_cpu(word, free);
			if (view_claim(NULL, *cpu))
				return true;
		}
	}
	return false;
}

/* CPUs of a cluster that are not idle; with hogs_only those whose tasks have run without a break for a while. */
static __noinline u32 load_of(const struct mask *mask, bool hogs_only)
{
	u32 i, load = unknown_zero;

	PLAN_FOR(i, mask->len) {
		u32 word = mask->first + i;
		u64 *hogs = look_up(&hog_words, word);

		load += weight(set_word(mask, word) & (hogs_only ? (hogs ? *hogs : 0) : ~view_idle_word(NULL, word)));
	}
	return load;
}

static __always_inline void mark(void *map, u32 at, bool set)
{
	u64 *word = look_up(map, at / 64), bit = 1ULL << (at & 63);

	if (word && set && !(*word & bit))
		__sync_fetch_and_or(word, bit);
	else if (word && !set && *word & bit)
		__sync_fetch_and_and(word, ~bit);
}

/*
 * The cluster of the LLC with the fewest busy CPUs, if it has at least two fewer than the one given (`more` of whose CPUs are not counted); else
 * that one. A task that runs on without end, or has just changed its program, is better off there.
 */
static __noinline u32 idler_cluster(const struct cpu_facts *here, bool hogs_only, u32 more)
{
	const struct mask *mask = plan_cluster(here->cluster);
	u32 i, load, best = here->cluster, least = 0;

	if (mask && here->llc_len > 1)
		least = load_of(mask, hogs_only) + more;
	if (least < 2)
		return best;
	least--;
	PLAN_FOR(i, here->llc_len) {
		mask = plan_cluster(here->llc_from + i);
		if (!mask)
			continue;
		load = load_of(mask, hogs_only);
		if (load < least) {
			least = load;
			best = here->llc_from + i;
		}
	}
	return best;
}

/*
 * A task waits in the cluster of this CPU: an idle CPU of it shall come for it, or one that is about to be idle and may have looked before the task
 * joined; for a woken one, else, the CPU whose task is farthest ahead of it.
 */
static __noinline int call_cpu(struct task_struct *p, s32 cpu, const struct mask *cluster, s64 lag, bool woken)
{
	u64 now = now_ns();
	s64 most = lag + (s64)config.preempt_ns, ahead;
	u32 i, at = cpu, first = cluster->first * 64, end = first + cluster->len * 64;
	struct cpu_state *c;
	s32 victim = -1;

	if (claim_in(p, cluster, &victim))
		return scx_bpf_kick_cpu(victim, KICK_IDLE), 0;
	victim = -1;
	PLAN_FOR(i, 16) {
		c = has(set_word(cluster, at / 64), at) && has(kernel_word(p->cpus_ptr, at / 64), at) ? cpu_state(at) : NULL;
		if (c && !c->weight)
			scx_bpf_kick_cpu(at, KICK_IDLE);
		else if (c && woken && !c->kicked) {
			ahead = c->sched_idle ? 1LL << 62 : c->lag + (s64)((now - c->started) * 100 / c->weight);
			if (ahead > most) {
				most = ahead;
				victim = at;
			}
		}
		at = at + 1 < end && at + 1 < config.nr_cpus ? at + 1 : first;
	}
	c = victim >= 0 ? cpu_state(victim) : NULL;
	if (c) {
		c->kicked = true;
		c->n.preempted++;
		scx_bpf_kick_cpu(victim, KICK_PREEMPT);
	}
	return 0;
}

/* `record_wakee`: how often a waker changes its wakee. */
static __noinline void record_wakee(struct task_struct *p, u64 now)
{
	struct task_state *waker = task_state(bpf_get_current_task_btf());

	if (!waker)
		return;
	if (now > waker->decayed + 1000000000) {
		waker->flips /= 2;
		waker->decayed = now;
	}
	if (waker->last_wakee != p->pid) {
		waker->last_wakee = p->pid;
		waker->flips++;
	}
}

/*
 * What most wake-ups come to, without the way there: where this CPU and prev share a cluster, whichever is the target, and the plan's first step
 * that takes part is to claim prev in the target's cluster. Same CPU, same step as plan_place.
 */
static __always_inline bool near_prev(struct task_struct *p, struct cpu_state *c, u64 wake_flags, u32 this, u32 prev)
{
	const struct cpu_facts *here = plan_facts(this), *there = plan_facts(prev);
	u32 step = config.near_prev - 1;

	if (!here || !there || here->cluster != there->cluster || wake_flags & WAKE_CURRENT_CPU ||
	    (u32)p->nr_cpus_allowed < config.nr_cpus || !view_claim(NULL, prev))
		return false;
	if (step < MAX_STEPS)
		c->n.placed[PLAN_GATHER][step]++;
	c->n.wake_distance[this == prev ? 0 : 2]++;
	c->n.move_distance[0]++;
	return true;
}

static __noinline bool others_wait(u32 cpu)
{
	const struct cpu_facts *here = plan_facts(cpu);
	u64 *word = here ? look_up(&waiting_words, here->cluster / 64) : NULL;

	return word && *word >> (here->cluster & 63) & 1 && scx_bpf_dsq_nr_queued(here->cluster) > 0;
}

static __always_inline s32 place(struct task_struct *p, struct cpu_state *c, u64 wake_flags, u32 prev, u32 which)
{
	u32 this = bpf_get_smp_processor_id();
	struct placing placing = { .p = p, .wake_flags = wake_flags };
	s32 cpu;

	if (config.needs_flips && which != PLAN_FORK)
		record_wakee(p, now_ns());
	if (config.needs_idle_time)
		placing.begun = bpf_ktime_get_ns();
	placing.d.this_cpu = this;
	placing.d.prev = prev;
	placing.d.is_fork = which == PLAN_FORK;
	placing.d.sync = wake_flags & WAKE_SYNC && !(bpf_get_current_task_btf()->flags & PF_EXITING);
	cpu = plan_place(&plans[which < NR_PLANS ? which : 0], &placing.d);
	if (cpu < 0 || (u32)cpu >= config.nr_cpus)
		return -1;
	if (placing.d.step <= MAX_STEPS && which < NR_PLANS)
		c->n.placed[which][placing.d.step]++;
	if (which != PLAN_FORK) {
		c->n.wake_distance[distance(this, cpu) % DISTANCES]++;
		c->n.move_distance[distance(prev, cpu) % DISTANCES]++;
	}
	if (placing.d.claimed || view_claim(&placing.d, cpu))
		return cpu;
	/* Behind a waker that is about to sleep a task waits on the CPU itself, unless others wait in the cluster: two that wake each other in turn
	 * would keep them from the CPU for ever. */
	return placing.d.s.kind == KIND_SYNC_STACK && !others_wait(cpu) ? cpu : cpu | NOT_CLAIMED;
}

SEC("struct_ops/huddle_select_cpu")
s32 BPF_PROG(huddle_select_cpu, struct task_struct *p, s32 prev, u64 wake_flags)
{
	u32 this = bpf_get_smp_processor_id(), zero = 0, *chosen = bpf_map_lookup_elem(&mode, &zero);
	u32 which = wake_flags & WAKE_FORK ? PLAN_FORK : chosen && *chosen == PLAN_SPREAD ? PLAN_SPREAD : PLAN_GATHER;
	struct cpu_state *c = cpu_state(this);
	s32 cpu = prev;

	if (!c)
		return prev;
	/* One sync wake-up in eight is looked after: whether the waker then sleeps before it wakes another. */
	if (c->vow)
		c->vow = 2;
	else if (config.needs_task && wake_flags & WAKE_SYNC && !(++c->vows & 7))
		c->vow = 1;
	if (which != PLAN_GATHER || !config.near_prev || !near_prev(p, c, wake_flags, this, prev))
		cpu = place(p, c, wake_flags, prev, which);
	if (cpu < 0)
		return prev;
	if (cpu & NOT_CLAIMED)
		return cpu & ~NOT_CLAIMED;
	insert(p, DSQ_LOCAL, config.slice_ns, 0);
	c->n.claimed++;
	return cpu;
}

/*
 * A task for this CPU alone. A kernel thread that has woken runs at once: what others wait for is its work. The task that it takes the CPU from
 * comes back here rather than to its cluster, where a CPU that runs dry for a moment would take it away.
 */
static __noinline void enqueue_own(struct task_struct *p, s32 cpu, struct cpu_state *c, u64 flags)
{

	if (view_claim(NULL, cpu)) {
		insert(p, DSQ_LOCAL, config.slice_ns, flags);
	} else if (p->flags & PF_KTHREAD && flags & ENQ_WAKEUP) {
		c->pushed = c->weight > 0;
		insert(p, DSQ_LOCAL, config.slice_ns, flags | ENQ_PREEMPT);
	} else {
		struct cluster_state *cluster;
		const struct cpu_facts *here = plan_facts(cpu);
		s64 lag = lag_of(p);

		cluster = here ? look_up(&cluster_states, here->cluster) : NULL;
		if (!cluster) {
			insert(p, DSQ_LOCAL, config.slice_ns, flags);
			return;
		}
		c->pinned = true;
		insert_vtime(p, own_queue(cpu), config.least_slice_ns * 2, cluster->clock + lag, flags);
		if (flags & ENQ_WAKEUP && c->weight && !c->kicked &&
		    c->lag + (s64)((now_ns() - c->started) * 100 / c->weight) > lag + (s64)config.preempt_ns) {
			c->kicked = true;
			scx_bpf_kick_cpu(cpu, KICK_PREEMPT);
		} else {
			scx_bpf_kick_cpu(cpu, KICK_IDLE);
		}
	}
	c->n.pinned++;
}

/* The slice of a task that waits: shorter the more do. */
static __always_inline u64 slice_in(u32 cluster)
{
	s32 waiting = scx_bpf_dsq_nr_queued(cluster);
	u64 slice = config.slice_ns / (waiting > 0 ? waiting + 1 : 1);

	return slice < config.least_slice_ns ? config.least_slice_ns : slice;
}

/* A task that runs on without end, or has just changed its program, goes to an idler cluster if there is one. */
static __noinline bool move_away(struct task_struct *p, struct cpu_state *c, const struct cpu_facts *here, bool exec)
{
	u32 idler = idler_cluster(here, !exec, !exec);
	const struct mask *there = plan_cluster(idler);
	struct cpu_state *other;
	s32 to;

	c->exec = 0;
	if (idler == here->cluster || !there || !claim_in(p, there, &to))
		return false;
	other = cpu_state(to);
	/* Seen there at once, or others would follow. */
	if (other && !exec) {
		other->hog = true;
		mark(&hog_words, to, true);
	}
	*(exec ? &c->n.exec_moved : &c->n.balanced) += 1;
	insert(p, DSQ_LOCAL_ON | to, config.slice_ns, 0);
	scx_bpf_kick_cpu(to, KICK_IDLE);
	return true;
}

SEC("struct_ops/huddle_enqueue")
void BPF_PROG(huddle_enqueue, struct task_struct *p, u64 flags)
{
	s32 cpu = scx_bpf_task_cpu(p);
	const struct cpu_facts *here = plan_facts(cpu);
	struct cpu_state *c = cpu_state(cpu);
	struct cluster_state *cluster = here ? look_up(&cluster_states, here->cluster) : NULL;
	const struct mask *mask = here ? plan_cluster(here->cluster) : NULL;
	bool pushed, exec;
	s64 lag;

	if (!c || !cluster || !mask) {
		insert(p, DSQ_LOCAL, config.slice_ns, 0);
		return;
	}
	/* A wakee that was still leaving this CPU when it was woken: nobody asked for a placement, and the CPU has nothing else yet. */
	if (flags & ENQ_WAKEUP && !(flags & bpf_core_enum_value(enum scx_enq_flags, SCX_ENQ_CPU_SELECTED))) {
		c->n.unplaced++;
		if (view_claim(NULL, cpu) || !c->weight) {
			insert(p, DSQ_LOCAL, config.slice_ns, 0);
			return;
		}
	}
	pushed = c->pushed && !(flags & ENQ_WAKEUP);
	exec = c->exec && c->exec == p->pid;
	if (pushed)
		c->pushed = false;
	if (p->nr_cpus_allowed == 1 || pushed) {
		enqueue_own(p, cpu, c, flags & ENQ_WAKEUP);
		return;
	}
	if ((exec || flags & ENQ_LAST || (c->ran_long && !(flags & ENQ_WAKEUP))) && move_away(p, c, here, exec))
		return;
	if (flags & ENQ_LAST) {
		/* Nowhere better: on it goes, and the CPU has to look again. */
		insert(p, DSQ_LOCAL, config.slice_ns, 0);
		scx_bpf_kick_cpu(cpu, KICK_IDLE);
		return;
	}
	lag = lag_of(p);
	cluster->filled_at = now_ns();
	mark(&waiting_words, here->cluster, true);
	c->n.queued++;
	insert_vtime(p, here->cluster, slice_in(here->cluster), cluster->clock + lag, flags & ENQ_WAKEUP);
	call_cpu(p, cpu, mask, lag, flags & ENQ_WAKEUP);
}

/* Takes a waiting task of another cluster within a range, nearest number first; at least `least` must wait. */
static __noinline bool take_from(struct cpu_state *c, u32 own, u32 from, u32 len, s32 least)
{
	bool taken = false;
	u32 i;

	PLAN_FOR(i, len) {
		u32 at = own + 1 + i < from + len ? own + 1 + i : own + 1 + i - len;
		struct cluster_state *other = look_up(&cluster_states, at);

		u64 *word = look_up(&waiting_words, at / 64);

		if (!other || !word || !(*word >> (at & 63) & 1) || at == own)
			continue;
		if (scx_bpf_dsq_nr_queued(at) >= least && move_to_local(at)) {
			c->taken_from = at;
			taken = true;
			break;
		}
		/* The task that the mark was set for joins within the call that set it: in less than a second. */
		if (!scx_bpf_dsq_nr_queued(at) && now_ns() - other->filled_at > 1000000000)
			mark(&waiting_words, at, false);
	}
	return taken;
}

static __noinline bool take(s32 cpu, struct cpu_state *c, const struct cpu_facts *here, bool goes_on)
{
	u32 own = here->cluster, level = TAKEN_CLUSTER;
	u64 *word = look_up(&waiting_words, own / 64), waiting = word ? *word : 0, mine = 1ULL << (own & 63);

	c->taken_from = own;
	c->own_turn = c->pinned && !c->own_turn;
	if (c->own_turn && move_to_local(own_queue(cpu)))
		level = TAKEN_OWN_CPU;
	else if (waiting & mine && move_to_local(own))
		;
	else if (c->pinned && move_to_local(own_queue(cpu)))
		level = TAKEN_OWN_CPU;
	else if (goes_on || (config.nr_clusters <= 64 && !(waiting & ~mine)))
		return c->pinned = false;
	else if (here->llc_len > 1 && take_from(c, own, here->llc_from, here->llc_len, 1))
		level = TAKEN_LLC;
	else if (here->node_len > here->llc_len && take_from(c, own, here->node_from, here->node_len, 1))
		level = TAKEN_NODE;
	else if (config.nr_clusters > here->node_len && take_from(c, own, 0, config.nr_clusters, 2))
		level = TAKEN_FARTHER;
	else
		return c->pinned = false;
	c->n.taken[level % NR_TAKEN]++;
	return true;
}

SEC("struct_ops/huddle_dispatch")
void BPF_PROG(huddle_dispatch, s32 cpu, struct task_struct *prev)
{
	const struct cpu_facts *here = plan_facts(cpu);
	struct cpu_state *c = cpu_state(cpu);
	bool goes_on, exec;
	u64 now;

	if (!here || !c)
		return;
	goes_on = prev && prev->scx.flags & TASK_QUEUED;
	if (take(cpu, c, here, goes_on) || !goes_on)
		return;
	c->kicked = false;
	now = now_ns();
	charge(c, now);
	exec = c->exec == prev->pid;
	if (!c->hog && now - c->since > config.hog_ns) {
		c->hog = true;
		mark(&hog_words, cpu, true);
	}
	/* Without a slice it comes back through enqueue, which moves it. */
	if (prev->nr_cpus_allowed == 1 || (!exec && !c->hog) ||
	    idler_cluster(here, !exec, 0) == here->cluster)
		set_slice(prev, config.slice_ns);
}

SEC("struct_ops/huddle_running")
void BPF_PROG(huddle_running, struct task_struct *p)
{
	s32 cpu = scx_bpf_task_cpu(p);
	const struct cpu_facts *here = plan_facts(cpu);
	struct cpu_state *c = cpu_state(cpu);
	struct cluster_state *own, *from;
	u64 now = now_ns(), queued = p->sched_info.last_queued;
	s64 lag = p->scx.dsq_vtime;

	if (!c || !here)
		return;
	own = look_up(&cluster_states, here->cluster);
	from = look_up(&cluster_states, c->taken_from);
	if (!own || !from)
		return;
	if (lag >= (s64)(CLOCK_ORIGIN / 2))
		lag -= from->clock;
	lag = bounded_lag(lag);
	if (lag > 0)
		own->clock += lag;
	c->lag = lag > 0 ? 0 : lag;
	c->started = now;
	c->weight = p->scx.weight;
	c->sched_idle = p->policy == SCHED_IDLE_POLICY;
	c->kicked = false;
	c->since = now;
	if (queued && now > queued)
		c->n.wait_us[bucket(now - queued) % WAIT_BUCKETS]++;
}

SEC("struct_ops/huddle_stopping")
void BPF_PROG(huddle_stopping, struct task_struct *p, bool runnable)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct cpu_state *c = cpu_state(cpu);

	if (!c)
		return;
	charge(c, now_ns());
	c->weight = 0;
	c->ran_long = runnable && c->started - c->since > config.hog_ns;
	if (c->hog) {
		c->hog = false;
		mark(&hog_words, cpu, false);
	}
	if (c->vow) {
		struct task_state *task = task_state(p);

		if (task && c->vow == 1 && !runnable)
			task->kept += task->kept < 15;
		else if (task)
			task->kept /= 2;
		c->vow = 0;
	}
	set_vtime(p, c->lag);
}

SEC("struct_ops/huddle_update_idle")
void BPF_PROG(huddle_update_idle, s32 cpu, bool idle)
{
	struct cpu_state *c = cpu_state(cpu);
	u64 now;

	if (!c)
		return;
	now = now_ns();
	if (idle)
		c->idle_since = now;
	else if (c->idle_since)
		c->avg_idle = c->avg_idle - c->avg_idle / 8 + (now - c->idle_since) / 8;
}

/* A task begins with us: it is owed nothing. */
SEC("struct_ops/huddle_enable")
void BPF_PROG(huddle_enable, struct task_struct *p)
{
	set_vtime(p, 0);
}

SEC("struct_ops.s/huddle_init")
s32 BPF_PROG(huddle_init)
{
	s32 error = 0;
	u32 i;

	PLAN_FOR(i, config.nr_clusters) {
		struct cluster_state *cluster = look_up(&cluster_states, i);

		if (cluster)
			cluster->clock = CLOCK_ORIGIN;
		if (!error)
			error = scx_bpf_create_dsq(i, -1);
	}
	PLAN_FOR(i, config.nr_cpus)
		if (!error)
			error = scx_bpf_create_dsq(own_queue(i), -1);
	return error;
}

SEC("struct_ops/huddle_exit")
void BPF_PROG(huddle_exit, struct scx_exit_info *info)
{
	bpf_probe_read_kernel_str(exit_record.reason, sizeof(exit_record.reason), info->reason);
	bpf_probe_read_kernel_str(exit_record.message, sizeof(exit_record.message), info->msg);
	exit_record.code = info->exit_code;
	exit_record.kind = info->kind;
}

/* A program begins: its caches are cold, the cheapest moment to move it. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(huddle_exec, struct task_struct *p)
{
	s32 cpu = bpf_get_smp_processor_id();
	struct cpu_state *c = cpu_state(cpu);

	if (c && c->weight && p->scx.flags & TASK_QUEUED && p->nr_cpus_allowed > 1) {
		c->exec = p->pid;
		scx_bpf_kick_cpu(cpu, KICK_PREEMPT);
	}
	return 0;
}

SEC(".struct_ops.link")
struct sched_ext_ops huddle = {
	.select_cpu = (void *)huddle_select_cpu,
	.enqueue = (void *)huddle_enqueue,
	.dispatch = (void *)huddle_dispatch,
	.running = (void *)huddle_running,
	.stopping = (void *)huddle_stopping,
	.update_idle = (void *)huddle_update_idle,
	.enable = (void *)huddle_enable,
	.init = (void *)huddle_init,
	.exit = (void *)huddle_exit,
	.flags = OPS_KEEP_BUILTIN_IDLE | OPS_ENQ_LAST,
	.timeout_ms = 30000,
	.name = "huddle",
};
