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
ARRAY(all_facts, struct cpu_facts);
ARRAY(pool, u64);
ARRAY(clusters, struct mask);

ARRAY(mode, u32);			/* which plan places wake-ups: PLAN_GATHER or PLAN_SPREAD; written while running */
ARRAY(idle_scans, u64);			/* nr_idle_scan by LLC, from its utilisation, kept by the loader */

/* Sets by words. */
ARRAY(hog_words, u64);			/* CPUs whose tasks have run without a break for a while */
ARRAY(sched_idle_words, u64);		/* CPUs whose last task was of SCHED_IDLE */
ARRAY(waiting_words, u64);		/* clusters whose queues may hold tasks: a hint for the others */

ARRAY(cluster_states, struct cluster_state);
ARRAY(cpu_states, struct cpu_state);

/* What a waker's sync hint says, that it is about to sleep. One wake-up in LOOKED_AT of a CPU is looked after. */
enum { VOW_NONE, VOW_GIVEN, VOW_BROKEN, LOOKED_AT = 8, BROKEN_NS = 1000000 };

/* What a task carries where a plan needs it. */
struct task_state {
	s32 recent;			/* plus 1 */
	u64 sync_ns;			/* from a sync wake-up to its sleep, on average; 0: not known */
};
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_state);
} task_states SEC(".maps");

#include "view.h"
#include "place.h"

#define NOBODY		(-(1LL << 62))	/* beside a lag */
#define CALL_NS		1000000		/* a CPU that was called has come by then, */
#define JOIN_NS		10000000	/* a task has joined a queue */

/* The kernel's functions by their names since 6.13 and before. */
#define EITHER(name, old_name, ...)	(bpf_ksym_exists(name) ? name(__VA_ARGS__) : old_name(__VA_ARGS__))
#define insert(...)		EITHER(scx_bpf_dsq_insert, scx_bpf_dispatch, __VA_ARGS__)
#define insert_vtime(...)	EITHER(scx_bpf_dsq_insert_vtime, scx_bpf_dispatch_vtime, __VA_ARGS__)
#define move_to_local(dsq)	EITHER(scx_bpf_dsq_move_to_local, scx_bpf_consume, dsq)
#define set_slice(p, ns)	do { if (bpf_ksym_exists(scx_bpf_task_set_slice)) scx_bpf_task_set_slice(p, ns);	\
	else (p)->scx.slice = (ns); } while (0)
#define set_vtime(p, time)	do { if (bpf_ksym_exists(scx_bpf_task_set_dsq_vtime)) scx_bpf_task_set_dsq_vtime(p, time); \
	else (p)->scx.dsq_vtime = (time); } while (0)
#define bound_kthread(p)	((p)->flags & PF_KTHREAD && (p)->nr_cpus_allowed == 1)
#define own_queue(cpu)	((1ULL << 32) | (cpu))		/* of tasks that only this CPU may take */
#define task_state(p)	((struct task_state *)(config.needs_task ?						\
	bpf_task_storage_get(&task_states, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE) : NULL))

/* A task that slept long is owed no more than a slice; one that ran long alone waits no longer than two. */
static __always_inline s64 bounded_lag(s64 lag)
{
	s64 slice = config.slice_ns;

	return lag < -slice ? -slice : lag > 2 * slice ? 2 * slice : lag;
}

/* A lag and when it was: 35 bits of 4096 ns, 26 bits of 64 ns. */
static __always_inline u64 parked(s64 lag, u64 now)
{
	return (now >> 12 & ((1ULL << 35) - 1)) << 26 | ((lag >> 6) + (1 << 25));
}

#define since_parked(vtime, now)	((((now) >> 12) - ((vtime) >> 26)) << 29 >> 17)

/*
 * The lag of a task that was parked; of one that was taken out of a queue before it ran, nothing is known. While it slept its cluster's clock went
 * on, the slower the more tasks wait for each of its CPUs.
 */
static __noinline s64 parked_lag(u64 vtime, u64 now, u32 nr_cpus, u32 waiting)
{
	u64 slept = since_parked(vtime, now);

	if (vtime >= CLOCK_ORIGIN / 2)
		return 0;
	slept = slept > 4 * config.slice_ns ? 4 * config.slice_ns : slept;
	return bounded_lag(((s64)(vtime & ((1 << 26) - 1)) - (1 << 25)) * 64 - slept * nr_cpus / (nr_cpus + waiting));
}

static __always_inline void average(u64 *mean, u64 ns)
{
	*mean = *mean ? (3 * *mean + ns) / 4 + 1 : ns + 1;
}

static __always_inline void mark(void *map, u32 at, bool set)
{
	u64 *word = look_up(map, at / 64), bit = 1ULL << (at & 63);

	if (word && set && !(*word & bit))
		__sync_fetch_and_or(word, bit);
	else if (word && !set && *word & bit)
		__sync_fetch_and_and(word, ~bit);
}

static __noinline u32 distance(u32 from, u32 to)
{
	const struct cpu_facts *a = plan_facts(from), *b = plan_facts(to);

	if (from == to || !a || !b)
		return 0;
	for (u32 i = 0; i < REACHES; i++)
		if (a->ids[i] == b->ids[i])
			return i + 1;
	return REACHES + 1;
}

static __noinline void count(struct cpu_state *c, u32 which, u32 step, u32 prev, u32 cpu)
{
	u32 woken = distance(bpf_get_smp_processor_id(), cpu), moved = distance(prev, cpu);

	if (which >= NR_PLANS || step > MAX_STEPS || woken >= DISTANCES || moved >= DISTANCES)
		return;
	c->n.placed[which][step]++;
	c->n.wake_distance[woken] += which != PLAN_FORK;
	c->n.move_distance[moved] += which != PLAN_FORK;
}

/* How far the CPU's task is ahead of its cluster's clock. */
static __always_inline s64 lag_now(struct cpu_state *c, u64 now)
{
	s64 ran = now - c->started;

	return c->lag + (ran < 0 || !c->weight ? 0 : c->weight == 100 ? ran : (u64)ran * 100 / c->weight);
}

/* Adds the time that the CPU's task has run since it was last asked, in virtual time to its lag. */
static __noinline void charge(struct cpu_state *c, u64 now)
{
	if (!c->weight || (s64)(now - c->started) < 0)
		return;
	c->lag = lag_now(c, now);
	c->n.busy_ns += now - c->started;
	c->started = now;
}

/* How far the task of a CPU is ahead, if it may be preempted; else NOBODY. Where nothing runs the CPU is about to be idle and may have looked at
 * the queue before a task joined: it looks again. */
__global s64 ahead_on(u32 cpu)
{
	struct cpu_state *c = cpu_state(cpu);

	if (c && !c->weight)
		scx_bpf_kick_cpu(cpu, KICK_IDLE);
	return !c || !c->weight || c->kicked ? NOBODY : c->sched_idle ? 1LL << 62 : lag_now(c, now_ns());
}

static __noinline void preempt(struct cpu_state *c, u32 cpu)
{
	c->kicked = true;
	c->n.preempted++;
	scx_bpf_kick_cpu(cpu, KICK_PREEMPT);
}

/*
 * A task waits in the cluster of prev: an idle CPU of it shall come for it, else one of the LLC; for a woken one, else, the CPU whose task is farthest
 * ahead of it.
 */
__global int call_cpu(struct decision *d __arg_nonnull, s64 lag, bool woken)
{
	const struct cpu_facts *here = plan_facts(d->prev);
	const struct mask *mask = here ? plan_cluster(here->cluster) : NULL;
	struct cluster_state *state = here ? look_up(&cluster_states, here->cluster) : NULL;
	s64 most = lag + config.preempt_ns, ahead;
	u32 victim = NO_LIMIT, word, cpu, i, j;
	struct cpu_state *c;
	s32 idle;

	if (!mask || !state)
		return 0;
	d->mask = *mask;
	idle = search(d, d->prev);
	if (idle >= 0)
		state->called_at = now_ns();
	d->mask = here->sets[SET_LLC];
	if (idle < 0)
		idle = search(d, d->prev);
	if (idle >= 0)
		return scx_bpf_kick_cpu(idle, KICK_IDLE), 0;
	d->mask = *mask;
	bpf_for(i, 0, d->mask.len + 1) {
		u64 rest = walk(d, d->prev, i, &word);

		bpf_for(j, 0, 64) {
			if (!rest)
				break;
			cpu = first_cpu(word, rest);
			rest = opaque(d, rest & (rest - 1));
			ahead = ahead_on(cpu);
			victim = ahead > most ? cpu : victim;
			most = ahead > most ? ahead : most;
		}
	}
	c = cpu_state(victim);
	if (woken && c)
		preempt(c, victim);
	return 0;
}

/* An idle CPU of the cluster of prev's LLC with the fewest busy CPUs, if that has at least two fewer; claimed. */
__global s32 idler_cpu(struct decision *d __arg_nonnull)
{
	const struct cpu_facts *here = plan_facts(d->prev);
	const struct mask *own = here ? plan_cluster(here->cluster) : NULL, *other = plan_cluster(idlest(d, SET_LLC));
	u32 theirs;

	if (!own || !other)
		return -1;
	d->mask = *other;
	theirs = count_cpus(d);
	d->mask = *own;
	if (theirs + 2 > (u32)count_cpus(d))
		return -1;
	d->mask = *other;
	return search(d, d->prev);
}

SEC("struct_ops/huddle_select_cpu")
s32 BPF_PROG(huddle_select_cpu, struct task_struct *p, s32 prev, u64 wake_flags)
{
	u32 this = bpf_get_smp_processor_id(), *chosen = look_up(&mode, 0);
	u32 which = wake_flags & WAKE_FORK ? PLAN_FORK : chosen && *chosen == PLAN_SPREAD ? PLAN_SPREAD : PLAN_GATHER;
	struct task_struct *waker = bpf_get_current_task_btf();
	struct task_state *task = task_state(p), *own = task_state(waker);
	bool sync = wake_flags & WAKE_SYNC && !(waker->flags & PF_EXITING), looked_at;
	const struct cpu_facts *here = plan_facts(this);
	struct cpu_state *c = cpu_state(this), *other;
	s32 cpu;

	if (!c || !here)
		return prev;
	looked_at = own && !(++c->wakeups % LOOKED_AT);
	c->vow = c->vow ? VOW_BROKEN : looked_at && sync ? VOW_GIVEN : VOW_NONE;
	if (c->vow == VOW_GIVEN)
		c->vowed_at = now_ns();
	struct decision d = {
		.this_cpu = this, .prev = prev, .sync = sync, .is_fork = which == PLAN_FORK, .recent = task ? task->recent - 1 : -1,
		.is_sched_idle = p->policy == SCHED_IDLE_POLICY, .current_hint = wake_flags & WAKE_CURRENT_CPU,
		.kthread_waker = bound_kthread(waker),
		/* It sleeps sooner after its sync wake-ups than an idle CPU comes. While others wait in the cluster, two that wake each other in turn
		 * would keep them from the CPU for ever. */
		.keeps_sync = sync && own && own->sync_ns && own->sync_ns < c->idle_wait && !scx_bpf_dsq_nr_queued(here->cluster),
		.waker_load = c->weight * 1024ULL / 100, .wakee_load = p->scx.weight * 1024ULL / 100,
		.affinity = (u64)p->cpus_ptr, .affinity_0 = p->cpus_ptr->bits[0],
	};
	cpu = plan_place(&plans[which], &d, p->nr_cpus_allowed);
	if (cpu < 0 || (u32)cpu >= config.nr_cpus)
		return prev;
	if (task)
		task->recent = d.recent + 1;
	if (own && d.marks_waker)
		own->recent = this + 1;
	count(c, which, d.step, prev, cpu);
	if (!d.claimed && !view_claim(cpu) && d.s.kind != KIND_SYNC_STACK)
		return cpu;
	other = looked_at && (u32)cpu != this ? cpu_state(cpu) : NULL;
	if (other)
		other->claimed_at = now_ns();
	insert(p, DSQ_LOCAL, config.slice_ns, 0);
	c->n.direct++;
	return cpu;
}

/*
 * A task for this CPU alone. A kernel thread that has woken runs at once: what others wait for is its work. The task that it takes the CPU from
 * comes back here rather than to its cluster, where a CPU that runs dry for a moment would take it away.
 */
static __always_inline void enqueue_own(struct task_struct *p, s32 cpu, struct cpu_state *c, u64 vtime, s64 lag, u64 woken)
{
	c->n.pinned++;
	if (view_claim(cpu) || (p->flags & PF_KTHREAD && woken)) {
		c->pushed |= c->weight > 0;
		insert(p, DSQ_LOCAL, config.slice_ns, woken | ENQ_PREEMPT);
		return;
	}
	insert_vtime(p, own_queue(cpu), config.least_slice_ns * 2, vtime, woken);
	c->pinned = 1;
	if (ahead_on(cpu) > lag + (s64)config.preempt_ns && woken)
		preempt(c, cpu);
}

/*
 * Claims an idle CPU of an idler cluster for the CPU's task, which runs on without end or has just changed its program: when it gives the CPU up it
 * goes there. The claimed CPU is kicked, whether the task comes or not.
 */
static __noinline bool send_away(struct task_struct *p, struct cpu_state *c, u32 cpu, u32 flags)
{
	struct decision d = {
		.prev = cpu, .left = NO_LIMIT, .s.flags = STEP_CLAIM | flags,
		.affinity = (u64)p->cpus_ptr, .affinity_0 = p->cpus_ptr->bits[0],
	};

	if (!c->moves_to && p->nr_cpus_allowed > 1)
		c->moves_to = idler_cpu(&d) + 1;
	if (c->moves_to)
		scx_bpf_kick_cpu(c->moves_to - 1, KICK_IDLE);
	return c->moves_to;
}

static __always_inline void move(struct task_struct *p, struct cpu_state *c, u32 cpu, s32 to)
{
	struct cpu_state *other = cpu_state(to);
	bool exec = c->exec == p->pid;

	if (other && !exec) {	/* Seen there at once, or others would follow. */
		other->task = p->pid;
		other->since = c->since;
		other->ran_long = true;
		mark(&hog_words, to, true);
		mark(&hog_words, cpu, false);
	}
	*(exec ? &c->n.exec_moved : &c->n.balanced) += 1;
	insert(p, DSQ_LOCAL_ON | to, config.slice_ns, 0);
}

SEC("struct_ops/huddle_enqueue")
void BPF_PROG(huddle_enqueue, struct task_struct *p, u64 flags)
{
	s32 cpu = scx_bpf_task_cpu(p);
	const struct cpu_facts *here = plan_facts(cpu);
	const struct mask *mask = here ? plan_cluster(here->cluster) : NULL;
	struct cluster_state *cluster = here ? look_up(&cluster_states, here->cluster) : NULL;
	struct cpu_state *c = cpu_state(cpu);
	u64 woken = flags & ENQ_WAKEUP, slice = config.slice_ns, now = now_ns();
	struct decision d = {
		.prev = cpu, .left = NO_LIMIT, .s.flags = STEP_CLAIM,
		.affinity = (u64)p->cpus_ptr, .affinity_0 = p->cpus_ptr->bits[0],
	};
	bool pushed = c && c->pushed && !woken;
	u32 waiting;
	s64 lag;

	if (!c || !cluster || !mask)
		goto local;
	/* A wakee that was still leaving this CPU when it was woken: nobody asked for a placement, and the CPU has nothing else yet. */
	if (woken && !(flags & bpf_core_enum_value(enum scx_enq_flags, SCX_ENQ_CPU_SELECTED))) {
		c->n.unplaced++;
		if (view_claim(cpu) || !c->weight)
			goto local;
	}
	waiting = scx_bpf_dsq_nr_queued(here->cluster);
	lag = parked_lag(p->scx.dsq_vtime, now, mask->weight, waiting);
	c->pushed &= !pushed;
	if (p->nr_cpus_allowed == 1 || pushed) {
		enqueue_own(p, cpu, c, cluster->clock + lag, lag, woken);
		return;
	}
	if (!woken && c->task == p->pid && (c->moves_to || (c->ran_long && send_away(p, c, cpu, STEP_HOGS))) &&
	    allowed(&d, c->moves_to - 1)) {
		move(p, c, cpu, c->moves_to - 1);
		return;
	}
	if (flags & ENQ_LAST)
		goto local;
	cluster->filled_at = now;
	cluster->joining = p->pid;
	mark(&waiting_words, here->cluster, true);
	c->n.queued++;
	/* The more wait, the shorter the slice. */
	slice /= waiting + 1;
	insert_vtime(p, here->cluster, slice < config.least_slice_ns ? config.least_slice_ns : slice, cluster->clock + lag, woken);
	call_cpu(&d, lag, woken);
	return;
local:
	insert(p, DSQ_LOCAL, slice, 0);
}

/* Takes a waiting task of another cluster within a run, nearest number first; at least `least` must wait. */
static __noinline bool take_from(struct cpu_state *c, u32 own, u32 from, u32 len, s32 least)
{
	u64 now = now_ns();
	s32 waiting;
	u32 i;

	bpf_for(i, 0, len) {
		u32 at = own + 1 + i < from + len ? own + 1 + i : own + 1 + i - len;
		struct cluster_state *other = look_up(&cluster_states, at);

		if (!other || at == own || !has(map_word(&waiting_words, at / 64), at))
			continue;
		waiting = scx_bpf_dsq_nr_queued(at);
		/* For the only one a CPU of its own cluster is on the way. */
		if (waiting == 1 && now - other->called_at < CALL_NS)
			continue;
		if (waiting >= least && move_to_local(at)) {
			c->taken_from = at;
			return true;
		}
		/* The task that the mark was set for joins within the call that set it: in less than a second. */
		if (!waiting && (s64)(now - other->filled_at) > 1000000000)
			mark(&waiting_words, at, false);
	}
	return false;
}

static __noinline bool take(s32 cpu, struct cpu_state *c, const struct cpu_facts *here, bool goes_on)
{
	u32 own = here->cluster, level = TAKEN_OWN_CPU;
	u64 waiting = map_word(&waiting_words, own / 64);
	/* Cleared before the queue is looked at: set behind the look it stays. */
	u32 pinned = c->pinned ? __sync_lock_test_and_set(&c->pinned, 0) : 0;

	c->taken_from = own;
	c->own_turn = pinned && !c->own_turn;
	if (c->own_turn && move_to_local(own_queue(cpu)))
		;
	else if (has(waiting, own) && move_to_local(own))
		level = TAKEN_CLUSTER;
	else if (pinned && move_to_local(own_queue(cpu)))
		;
	else if (goes_on || (config.nr_clusters <= 64 && !(waiting & ~(1ULL << (own & 63)))))
		return false;
	else if (here->llc_len > 1 && take_from(c, own, here->llc_from, here->llc_len, 1))
		level = TAKEN_LLC;
	else if (here->node_len > here->llc_len && take_from(c, own, here->node_from, here->node_len, 1))
		level = TAKEN_NODE;
	else if (config.nr_clusters > here->node_len && take_from(c, own, 0, config.nr_clusters, 2))
		level = TAKEN_FARTHER;
	else
		return false;
	if (pinned)
		c->pinned = 1;
	c->n.taken[level]++;
	return true;
}

SEC("struct_ops/huddle_dispatch")
void BPF_PROG(huddle_dispatch, s32 cpu, struct task_struct *prev)
{
	const struct cpu_facts *here = plan_facts(cpu);
	struct cpu_state *c = cpu_state(cpu);
	struct cluster_state *cluster = here ? look_up(&cluster_states, here->cluster) : NULL;
	bool goes_on = prev && prev->scx.flags & TASK_QUEUED, hog;
	u64 now = now_ns();

	if (!cluster || !c || take(cpu, c, here, goes_on))
		return;
	/* A task that is being queued joins behind its enqueue, in which this CPU may have passed for busy: it looks again. */
	if (!goes_on && cluster->joining && (s64)(now - cluster->filled_at) < JOIN_NS)
		scx_bpf_kick_cpu(cpu, KICK_IDLE);
	hog = goes_on && now - c->since > config.hog_ns;
	mark(&hog_words, cpu, hog);
	c->kicked = false;
	charge(c, now);
	/* Without a slice it comes back through enqueue, which moves it. */
	if (goes_on && !(hog && send_away(prev, c, cpu, STEP_HOGS)) && !c->moves_to)
		set_slice(prev, config.slice_ns);
}

SEC("struct_ops/huddle_running")
void BPF_PROG(huddle_running, struct task_struct *p)
{
	s32 cpu = scx_bpf_task_cpu(p), pid = p->pid;
	const struct cpu_facts *here = plan_facts(cpu);
	struct cpu_state *c = cpu_state(cpu);
	struct cluster_state *own = here ? look_up(&cluster_states, here->cluster) : NULL;
	struct cluster_state *from = c ? look_up(&cluster_states, c->taken_from) : NULL;
	u64 now = now_ns(), vtime = p->scx.dsq_vtime, wait = now - p->sched_info.last_queued, us;
	s64 lag;

	if (!c || !own || !from)
		return;
	lag = vtime >= CLOCK_ORIGIN / 2 ? bounded_lag(vtime - from->clock) : parked_lag(vtime, now, 1, 0);
	own->clock += lag > 0 ? lag : 0;
	c->lag = lag > 0 ? 0 : lag;
	if (from->joining == (u64)pid)
		from->joining = 0;
	c->started = now;
	c->moves_to = 0;
	c->weight = p->scx.weight;
	/* A task that runs on and makes room for a bound kernel thread still does. */
	if (!bound_kthread(p) && (!c->ran_long || c->task != pid)) {
		c->since = now;
		mark(&hog_words, cpu, false);
	}
	c->task = bound_kthread(p) ? c->task : pid;
	c->kicked = false;
	c->sched_idle = p->policy == SCHED_IDLE_POLICY;
	mark(&sched_idle_words, cpu, c->sched_idle);
	if (c->claimed_at)
		average(&c->idle_wait, now - c->claimed_at);
	c->claimed_at = 0;
	/* The kernel's time is older where the task was woken before it had left the CPU. */
	us = (vtime < CLOCK_ORIGIN / 2 && since_parked(vtime, now) < wait ? since_parked(vtime, now) : wait) >> 10;
	us = us ? 64 - __builtin_clzll(us) : 0;
	if (p->sched_info.last_queued)
		c->n.wait_us[us < WAIT_BUCKETS ? us : 0]++;
}

SEC("struct_ops/huddle_stopping")
void BPF_PROG(huddle_stopping, struct task_struct *p, bool runnable)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct cpu_state *c = cpu_state(cpu);
	struct task_state *task;
	u64 now = now_ns();

	if (!c)
		return;
	charge(c, now);
	c->weight = 0;
	c->ran_long = bound_kthread(p) ? c->ran_long : runnable && now - c->since > config.hog_ns;
	if (!c->ran_long)
		mark(&hog_words, cpu, false);
	task = c->vow ? task_state(p) : NULL;
	if (task)
		average(&task->sync_ns, c->vow == VOW_GIVEN && !runnable ? now - c->vowed_at : BROKEN_NS);
	c->vow = VOW_NONE;
	set_vtime(p, parked(c->lag, now));
}

/* A task begins with us: it is owed nothing. */
SEC("struct_ops/huddle_enable")
void BPF_PROG(huddle_enable, struct task_struct *p)
{
	set_vtime(p, parked(0, now_ns()));
}

SEC("struct_ops.s/huddle_init")
s32 BPF_PROG(huddle_init)
{
	s32 error = 0;
	u32 i;

	bpf_for(i, 0, config.nr_clusters)
		error = error ?: scx_bpf_create_dsq(i, -1);
	bpf_for(i, 0, config.nr_cpus)
		error = error ?: scx_bpf_create_dsq(own_queue(i), -1);
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
	u32 cpu = bpf_get_smp_processor_id();
	struct cpu_state *c = cpu_state(cpu);

	if (c && c->weight && c->task == p->pid && send_away(p, c, cpu, 0)) {
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
	.enable = (void *)huddle_enable,
	.init = (void *)huddle_init,
	.exit = (void *)huddle_exit,
	.flags = OPS_KEEP_BUILTIN_IDLE | OPS_ENQ_LAST,
	.timeout_ms = 30000,
	.name = "huddle",
};
