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
ARRAY(affine_spans, struct affine_span);
ARRAY(scratches, u64);			/* by CPU, two sets of words */

ARRAY(mode, u32);			/* which plan places wake-ups: PLAN_GATHER or PLAN_SPREAD; written while running */
ARRAY(idle_scans, u32);			/* nr_idle_scan by LLC, from its utilisation, kept by the loader */

/* Sets by words. */
ARRAY(hog_words, u64);			/* CPUs whose tasks have run without a break for a while */
ARRAY(sched_idle_words, u64);		/* CPUs whose last task was of SCHED_IDLE */
ARRAY(waiting_words, u64);		/* clusters whose queues may hold tasks: a hint for the others */

struct cluster_state {
	u64 clock;
	u64 filled_at;			/* when a task last joined its queue */
	u64 called_at;			/* when an idle CPU of it was last called for one that waits */
	u64 unused[5];			/* alone on its cache line */
};
ARRAY(cluster_states, struct cluster_state);

/* A CPU's state: written by that CPU, but for claimed_at, kicked and pushed. */
struct cpu_state {
	u64 started;			/* its task's lag was lag at this time */
	s64 lag;
	u64 since;			/* its task has run without a break since then */
	u64 vowed_at;			/* when its task gave the sync hint that is looked after */
	u64 claimed_at;			/* when it was claimed, for a wake-up that is looked after */
	u64 idle_wait;			/* how long a task waits for it to come out of idle, on average; 0: not known */
	u32 weight;			/* 0: nothing of ours runs */
	u32 taken_from;			/* the cluster from whose queue its next task was taken */
	s32 task;			/* which ran last */
	s32 exec;			/* the task that has just changed its program */
	bool hog, ran_long, pinned, own_turn, kicked, pushed, sched_idle;
	u8 vow, wakeups;		/* VOW_…; wake-ups that it has made */
	u8 unused[7];
	struct counters n;
};
ARRAY(cpu_states, struct cpu_state);

/* What a waker's sync hint says, that it is about to sleep. One wake-up in LOOKED_AT of a CPU is looked after. */
enum { VOW_NONE, VOW_GIVEN, VOW_BROKEN, LOOKED_AT = 8, BROKEN_NS = 1000000 };

/* What a task carries where a plan needs it. */
struct task_state {
	s32 recent;			/* plus 1 */
	u32 unused;
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

#define QUEUE		(1 << 30)	/* beside a CPU: it was not claimed */
#define NOBODY		(-(1LL << 62))	/* beside a lag */
#define CALL_NS		1000000		/* a CPU that was called has come by then */
#define CLOCK_ORIGIN	(1ULL << 62)	/* tells virtual times from what parked() makes */

#define insert(p, dsq, slice, flags)		(bpf_ksym_exists(scx_bpf_dsq_insert) ?				\
	scx_bpf_dsq_insert(p, dsq, slice, flags) : scx_bpf_dispatch(p, dsq, slice, flags))
#define insert_vtime(p, dsq, slice, time, flags)	(bpf_ksym_exists(scx_bpf_dsq_insert_vtime) ?		\
	scx_bpf_dsq_insert_vtime(p, dsq, slice, time, flags) : scx_bpf_dispatch_vtime(p, dsq, slice, time, flags))
#define move_to_local(dsq)			(bpf_ksym_exists(scx_bpf_dsq_move_to_local) ?			\
	scx_bpf_dsq_move_to_local(dsq) : scx_bpf_consume(dsq))
#define set_slice(p, ns)	do { if (bpf_ksym_exists(scx_bpf_task_set_slice)) scx_bpf_task_set_slice(p, ns);	\
	else (p)->scx.slice = (ns); } while (0)
#define set_vtime(p, time)	do { if (bpf_ksym_exists(scx_bpf_task_set_dsq_vtime)) scx_bpf_task_set_dsq_vtime(p, time); \
	else (p)->scx.dsq_vtime = (time); } while (0)
#define own_queue(cpu)	((1ULL << 32) | (cpu))		/* of tasks that only this CPU may take */

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

/*
 * The lag of a task that was parked; of one that was taken out of a queue before it ran, nothing is known. While it slept its cluster's clock went
 * on, the slower the more tasks wait for each of its CPUs.
 */
static __noinline s64 parked_lag(u64 vtime, u64 now, u32 nr_cpus, u32 waiting)
{
	u64 slept = ((now >> 12) - (vtime >> 26)) << 29 >> 17;

	if (vtime >= CLOCK_ORIGIN / 2)
		return 0;
	if (slept > 4 * config.slice_ns)
		slept = 4 * config.slice_ns;
	return bounded_lag(((s64)(vtime & ((1 << 26) - 1)) - (1 << 25)) * 64 - slept * nr_cpus / (nr_cpus + waiting));
}

static __always_inline void average(u64 *mean, u64 ns)
{
	*mean = *mean ? (3 * *mean + ns) / 4 + 1 : ns + 1;
}

static __always_inline struct task_state *task_state(struct task_struct *p)
{
	return config.needs_task ? bpf_task_storage_get(&task_states, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE) : NULL;
}

static __always_inline void mark(void *map, u32 at, bool set)
{
	u64 *word = look_up(map, at / 64), bit = 1ULL << (at & 63);

	if (word && set && !(*word & bit))
		__sync_fetch_and_or(word, bit);
	else if (word && !set && *word & bit)
		__sync_fetch_and_and(word, ~bit);
}

/* Whether the CPU's task runs on without end. */
static __always_inline void set_hog(struct cpu_state *c, u32 cpu, bool hog)
{
	if (c->hog != hog)
		mark(&hog_words, cpu, hog);
	c->hog = hog;
}

static __noinline u32 distance(u32 from, u32 to)
{
	const struct cpu_facts *a = plan_facts(from), *b = plan_facts(to);

	if (from == to || !a || !b)
		return 0;
#pragma unroll
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

/* The log2 of us, rounded up, within the histogram. */
static __always_inline u32 bucket(u64 ns)
{
	u32 us = ns >> 10 > ~0U ? ~0U : ns >> 10, at = 0;

#define HALVE(by) if (us >> (by)) { us >>= (by); at += (by); }
	HALVE(16) HALVE(8) HALVE(4) HALVE(2) HALVE(1)
#undef HALVE
	return at + us < WAIT_BUCKETS ? at + us : WAIT_BUCKETS - 1;
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

/* Copies the task's affinity to the scratch. The number of CPUs in it. */
static __noinline u32 copy_affinity(struct task_struct *p)
{
	u32 nr_words = (config.nr_cpus + 63) / 64, nr = 0, word;

	bpf_for(word, 0, nr_words) {
		u64 *copy = scratch_word(nr_words + word), bits = kernel_word(p->cpus_ptr, word);

		nr += weight(bits);
		if (copy)
			*copy = bits;
	}
	return nr;
}

/* Takes the CPU from its task if that is so far ahead of one that has woken. */
static __always_inline bool preempt(struct cpu_state *c, u32 cpu, s64 ahead, s64 lag)
{
	if (c->kicked || ahead <= lag + (s64)config.preempt_ns)
		return false;
	c->kicked = true;
	c->n.preempted++;
	scx_bpf_kick_cpu(cpu, KICK_PREEMPT);
	return true;
}

/*
 * How far the task of a CPU is ahead, if that is in the cluster and in the affinity in the scratch and may be preempted; else NOBODY. If nothing runs
 * there, it is about to be idle and may have looked at the queue before a task joined: it looks again.
 */
__global s64 looked_at(u32 cpu, u32 cluster)
{
	u64 *word = scratch_word((config.nr_cpus + 63) / 64 + cpu / 64);
	const struct mask *mask = plan_cluster(cluster);
	struct cpu_state *c = cpu_state(cpu);

	if (!word || !mask || !c || !has(*word & mask_word(mask, cpu / 64), cpu))
		return NOBODY;
	if (!c->weight)
		scx_bpf_kick_cpu(cpu, KICK_IDLE);
	return !c->weight || c->kicked ? NOBODY : c->sched_idle ? 1LL << 62 : lag_now(c, now_ns());
}

/*
 * A task, its affinity in the scratch, waits in the cluster of this CPU: an idle CPU of it shall come for it, else one of the LLC; for a woken one,
 * else, the CPU whose task is farthest ahead of it.
 */
__global int call_cpu(u32 cpu, u32 cluster, s64 lag, bool woken)
{
	struct decision d = { .nr_words = (config.nr_cpus + 63) / 64, .left = NO_LIMIT, .s.flags = STEP_CLAIM };
	struct cluster_state *state = look_up(&cluster_states, cluster);
	const struct mask *mask = plan_cluster(cluster);
	const struct cpu_facts *here = plan_facts(cpu);
	u32 first, end, victim = cpu, i;
	s64 most = NOBODY, ahead;
	struct cpu_state *c;
	s32 idle;

	if (!mask || !here || !state)
		return 0;
	d.mask = *mask;
	idle = search(&d, cpu);
	if (idle >= 0)
		state->called_at = now_ns();
	d.mask = here->sets[SET_LLC];
	if (idle < 0)
		idle = search(&d, cpu);
	if (idle >= 0)
		return scx_bpf_kick_cpu(idle, KICK_IDLE), 0;
	first = mask->first * 64;
	end = first + mask->len * 64;
	bpf_for(i, 0, 16) {
		ahead = looked_at(cpu, cluster);
		if (ahead > most) {
			most = ahead;
			victim = cpu;
		}
		cpu = cpu + 1 < end && cpu + 1 < config.nr_cpus ? cpu + 1 : first;
	}
	c = cpu_state(victim);
	if (c && woken)
		preempt(c, victim, most, lag);
	return 0;
}

/* An idle CPU of the LLC's cluster with the fewest busy CPUs, of which hogs are those counted, if that has at least two fewer; claimed. */
__global s32 idler_cpu(u32 cpu, bool hogs_only)
{
	const struct cpu_facts *here = plan_facts(cpu);
	const struct mask *own = here ? plan_cluster(here->cluster) : NULL, *other;
	struct decision d = { .prev = cpu, .nr_words = (config.nr_cpus + 63) / 64, .left = NO_LIMIT };
	u32 mine;

	if (!own || here->llc_len < 2)
		return -1;
	d.s.flags = STEP_CLAIM | (hogs_only ? STEP_HOGS : 0);
	d.mask = *own;
	mine = count_cpus(&d);
	other = mine < 2 ? NULL : plan_cluster(idlest(&d, SET_LLC));
	if (!other || other == own)
		return -1;
	d.mask = *other;
	return (u32)count_cpus(&d) + 2 <= mine ? search(&d, cpu) : -1;
}

static __always_inline bool others_wait(u32 cluster)
{
	u64 *word = look_up(&waiting_words, cluster / 64);

	return word && has(*word, cluster) && scx_bpf_dsq_nr_queued(cluster) > 0;
}

/* Whether the current task sleeps sooner after its sync wake-ups than an idle CPU comes. */
static __always_inline bool keeps_sync(struct cpu_state *c)
{
	struct task_state *waker = task_state(bpf_get_current_task_btf());

	return waker && waker->sync_ns && waker->sync_ns < c->idle_wait;
}

/*
 * What most wake-ups come to, without the way there: where this CPU and prev share a cluster, whichever is the target, and the plan's first
 * steps that take part are to wait behind a waker and to claim prev in the target's cluster. Same CPU, same step as plan_place; -1.
 */
static __always_inline s32 near(struct task_struct *p, struct cpu_state *c, u64 wake_flags, bool sync, u32 this, u32 prev)
{
	const struct cpu_facts *here = plan_facts(this), *there = plan_facts(prev);

	if (!here || !there || here->cluster != there->cluster || !here->sets[SET_CLUSTER].len ||
	    wake_flags & WAKE_CURRENT_CPU || (u32)p->nr_cpus_allowed < config.nr_cpus)
		return -1;
	if (config.near_sync && sync && keeps_sync(c) && view_nr_running(this) == 1) {
		count(c, PLAN_GATHER, config.near_sync - 1, prev, this);
		return others_wait(here->cluster) ? this | QUEUE : this;
	}
	if (!config.near_prev || !view_claim(prev))
		return -1;
	count(c, PLAN_GATHER, config.near_prev - 1, prev, prev);
	return prev;
}

static __always_inline s32 place(struct task_struct *p, struct cpu_state *c, u64 wake_flags, bool sync, u32 prev, u32 which)
{
	u32 this = bpf_get_smp_processor_id();
	struct task_struct *waker = bpf_get_current_task_btf();
	struct task_state *task = config.needs_task ? task_state(p) : NULL;
	struct decision d = { .this_cpu = this, .prev = prev, .sync = sync, .is_fork = which == PLAN_FORK };
	const struct cpu_facts *here;
	s32 cpu;

	d.is_sched_idle = p->policy == SCHED_IDLE_POLICY;
	d.current_hint = wake_flags & WAKE_CURRENT_CPU;
	d.kthread_waker = waker->flags & PF_KTHREAD && waker->nr_cpus_allowed == 1;
	d.keeps_sync = sync && keeps_sync(c);
	d.recent = task ? task->recent - 1 : -1;
	d.waker_load = c->weight * 1024ULL / 100;
	d.wakee_load = p->scx.weight * 1024ULL / 100;
	cpu = plan_place(&plans[which < NR_PLANS ? which : 0], &d, copy_affinity(p));
	if (cpu < 0 || (u32)cpu >= config.nr_cpus)
		return -1;
	if (task)
		task->recent = d.recent + 1;
	task = d.marks_waker && config.needs_task ? task_state(waker) : NULL;
	if (task)
		task->recent = this + 1;
	count(c, which, d.step, prev, cpu);
	if (d.claimed || view_claim(cpu))
		return cpu;
	/* Behind a waker that is about to sleep a task waits on the CPU itself, unless others wait in the cluster: two that wake each other in turn
	 * would keep them from the CPU for ever. */
	here = plan_facts(cpu);
	return here && d.s.kind == KIND_SYNC_STACK && !others_wait(here->cluster) ? cpu : cpu | QUEUE;
}

SEC("struct_ops/huddle_select_cpu")
s32 BPF_PROG(huddle_select_cpu, struct task_struct *p, s32 prev, u64 wake_flags)
{
	u32 this = bpf_get_smp_processor_id(), *chosen = look_up(&mode, 0);
	u32 which = wake_flags & WAKE_FORK ? PLAN_FORK : chosen && *chosen == PLAN_SPREAD ? PLAN_SPREAD : PLAN_GATHER;
	bool sync = wake_flags & WAKE_SYNC && !(bpf_get_current_task_btf()->flags & PF_EXITING), looked_at;
	struct cpu_state *c = cpu_state(this), *other;
	s32 cpu = -1;

	if (!c)
		return prev;
	looked_at = config.needs_task && !(++c->wakeups % LOOKED_AT);
	c->vow = c->vow ? VOW_BROKEN : looked_at && sync ? VOW_GIVEN : VOW_NONE;
	if (c->vow == VOW_GIVEN)
		c->vowed_at = now_ns();
	if (which == PLAN_GATHER)
		cpu = near(p, c, wake_flags, sync, this, prev);
	if (cpu < 0)
		cpu = place(p, c, wake_flags, sync, prev, which);
	if (cpu < 0)
		return prev;
	if (cpu & QUEUE)
		return cpu & ~QUEUE;
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
static __always_inline void enqueue_own(struct task_struct *p, s32 cpu, struct cpu_state *c, u64 vtime, s64 lag, u64 flags)
{
	c->n.pinned++;
	if (view_claim(cpu) || (p->flags & PF_KTHREAD && flags)) {
		c->pushed |= c->weight > 0;
		insert(p, DSQ_LOCAL, config.slice_ns, flags | ENQ_PREEMPT);
		return;
	}
	c->pinned = true;
	insert_vtime(p, own_queue(cpu), config.least_slice_ns * 2, vtime, flags);
	if (!flags || !c->weight || !preempt(c, cpu, lag_now(c, now_ns()), lag))
		scx_bpf_kick_cpu(cpu, KICK_IDLE);
}

/* A task that runs on without end, or has just changed its program, goes to an idler cluster if there is one. */
static __noinline bool move_away(struct task_struct *p, struct cpu_state *c, u32 cpu, bool exec)
{
	struct cpu_state *other;
	s32 to;

	c->exec = 0;
	copy_affinity(p);
	to = idler_cpu(cpu, !exec);
	if (to < 0)
		return false;
	other = cpu_state(to);
	/* Seen there at once, or others would follow. */
	if (other && !exec) {
		other->task = p->pid;
		other->since = c->since;
		other->hog = other->ran_long = true;
		mark(&hog_words, to, true);
		set_hog(c, cpu, false);
	}
	*(exec ? &c->n.exec_moved : &c->n.balanced) += 1;
	insert(p, DSQ_LOCAL_ON | to, config.slice_ns, 0);
	scx_bpf_kick_cpu(to, KICK_IDLE);
	return true;
}

SEC("struct_ops/huddle_enqueue")
void BPF_PROG(huddle_enqueue, struct task_struct *p, u64 flags)
{
	s32 cpu = scx_bpf_task_cpu(p), waiting;
	const struct cpu_facts *here = plan_facts(cpu);
	const struct mask *mask = here ? plan_cluster(here->cluster) : NULL;
	struct cluster_state *cluster = here ? look_up(&cluster_states, here->cluster) : NULL;
	struct cpu_state *c = cpu_state(cpu);
	u64 woken = flags & ENQ_WAKEUP, slice = config.slice_ns, now = now_ns();
	bool pushed, exec;
	s64 lag;

	if (!c || !cluster || !mask) {
		insert(p, DSQ_LOCAL, slice, 0);
		return;
	}
	/* A wakee that was still leaving this CPU when it was woken: nobody asked for a placement, and the CPU has nothing else yet. */
	if (woken && !(flags & bpf_core_enum_value(enum scx_enq_flags, SCX_ENQ_CPU_SELECTED))) {
		c->n.unplaced++;
		if (view_claim(cpu) || !c->weight) {
			insert(p, DSQ_LOCAL, slice, 0);
			return;
		}
	}
	waiting = scx_bpf_dsq_nr_queued(here->cluster);
	waiting = waiting > 0 ? waiting : 0;
	lag = parked_lag(p->scx.dsq_vtime, now, mask->weight, waiting);
	pushed = c->pushed && !woken;
	if (pushed)
		c->pushed = false;
	if (p->nr_cpus_allowed == 1 || pushed) {
		enqueue_own(p, cpu, c, cluster->clock + lag, lag, woken);
		return;
	}
	exec = c->exec && c->exec == p->pid;
	if ((exec || flags & ENQ_LAST || (c->ran_long && !woken)) && move_away(p, c, cpu, exec))
		return;
	if (flags & ENQ_LAST) {
		/* Nowhere better: on it goes, and the CPU has to look again. */
		insert(p, DSQ_LOCAL, slice, 0);
		scx_bpf_kick_cpu(cpu, KICK_IDLE);
		return;
	}
	cluster->filled_at = now;
	mark(&waiting_words, here->cluster, true);
	c->n.queued++;
	/* The more wait, the shorter the slice. */
	slice /= waiting + 1;
	slice = slice < config.least_slice_ns ? config.least_slice_ns : slice;
	insert_vtime(p, here->cluster, slice, cluster->clock + lag, woken);
	copy_affinity(p);
	call_cpu(cpu, here->cluster, lag, woken);
}

/* Takes a waiting task of another cluster within a run, nearest number first; at least `least` must wait. */
static __noinline bool take_from(struct cpu_state *c, u32 own, u32 from, u32 len, s32 least)
{
	u64 now = now_ns();
	bool taken = false;
	s32 waiting;
	u32 i;

	bpf_for(i, 0, len) {
		u32 at = own + 1 + i < from + len ? own + 1 + i : own + 1 + i - len;
		struct cluster_state *other = look_up(&cluster_states, at);
		u64 *word = look_up(&waiting_words, at / 64);

		if (!other || !word || !has(*word, at) || at == own)
			continue;
		waiting = scx_bpf_dsq_nr_queued(at);
		/* For the only one a CPU of its own cluster is on the way. */
		if (waiting == 1 && now - other->called_at < CALL_NS)
			continue;
		if (waiting >= least && move_to_local(at)) {
			c->taken_from = at;
			taken = true;
			break;
		}
		/* The task that the mark was set for joins within the call that set it: in less than a second. */
		if (!waiting && now - other->filled_at > 1000000000)
			mark(&waiting_words, at, false);
	}
	return taken;
}

static __noinline bool take(s32 cpu, struct cpu_state *c, const struct cpu_facts *here, bool goes_on)
{
	u32 own = here->cluster, level = TAKEN_CLUSTER;
	u64 *word = look_up(&waiting_words, own / 64), waiting = word ? *word : 0;

	c->taken_from = own;
	c->own_turn = c->pinned && !c->own_turn;
	if (c->own_turn && move_to_local(own_queue(cpu)))
		level = TAKEN_OWN_CPU;
	else if (has(waiting, own) && move_to_local(own))
		;
	else if (c->pinned && move_to_local(own_queue(cpu)))
		level = TAKEN_OWN_CPU;
	else if (goes_on || (config.nr_clusters <= 64 && !(waiting & ~(1ULL << (own & 63)))))
		return c->pinned = false;
	else if (here->llc_len > 1 && take_from(c, own, here->llc_from, here->llc_len, 1))
		level = TAKEN_LLC;
	else if (here->node_len > here->llc_len && take_from(c, own, here->node_from, here->node_len, 1))
		level = TAKEN_NODE;
	else if (config.nr_clusters > here->node_len && take_from(c, own, 0, config.nr_clusters, 2))
		level = TAKEN_FARTHER;
	else
		return c->pinned = false;
	if (level < NR_TAKEN)
		c->n.taken[level]++;
	return true;
}

SEC("struct_ops/huddle_dispatch")
void BPF_PROG(huddle_dispatch, s32 cpu, struct task_struct *prev)
{
	const struct cpu_facts *here = plan_facts(cpu);
	struct cpu_state *c = cpu_state(cpu);
	bool goes_on = prev && prev->scx.flags & TASK_QUEUED;
	u64 now;

	if (!here || !c || take(cpu, c, here, goes_on))
		return;
	if (!goes_on) {
		set_hog(c, cpu, false);
		return;
	}
	c->kicked = false;
	now = now_ns();
	charge(c, now);
	set_hog(c, cpu, now - c->since > config.hog_ns);
	/* Without a slice it comes back through enqueue, which may move it. */
	if (prev->nr_cpus_allowed == 1 || (c->exec != prev->pid && !c->hog))
		set_slice(prev, config.slice_ns);
}

SEC("struct_ops/huddle_running")
void BPF_PROG(huddle_running, struct task_struct *p)
{
	s32 cpu = scx_bpf_task_cpu(p);
	const struct cpu_facts *here = plan_facts(cpu);
	struct cluster_state *own = here ? look_up(&cluster_states, here->cluster) : NULL, *from;
	struct cpu_state *c = cpu_state(cpu);
	u64 now = now_ns(), queued = p->sched_info.last_queued, vtime = p->scx.dsq_vtime;
	bool sched_idle = p->policy == SCHED_IDLE_POLICY;
	s64 lag;

	from = c ? look_up(&cluster_states, c->taken_from) : NULL;
	if (!c || !own || !from)
		return;
	lag = vtime >= CLOCK_ORIGIN / 2 ? bounded_lag(vtime - from->clock) : parked_lag(vtime, now, 1, 0);
	if (lag > 0)
		own->clock += lag;
	c->lag = lag > 0 ? 0 : lag;
	c->started = now;
	c->weight = p->scx.weight;
	if (!c->ran_long || c->task != p->pid) {
		c->since = now;
		set_hog(c, cpu, false);
	}
	c->task = p->pid;
	c->kicked = false;
	if (sched_idle != c->sched_idle)
		mark(&sched_idle_words, cpu, sched_idle);
	c->sched_idle = sched_idle;
	if (c->claimed_at)
		average(&c->idle_wait, now - c->claimed_at);
	c->claimed_at = 0;
	if (queued && now > queued)
		c->n.wait_us[bucket(now - queued) % WAIT_BUCKETS]++;
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
	c->ran_long = runnable && now - c->since > config.hog_ns;
	if (!c->ran_long)
		set_hog(c, cpu, false);
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
	struct cluster_state *cluster;
	s32 error = 0;
	u32 i;

	bpf_for(i, 0, config.nr_clusters) {
		cluster = look_up(&cluster_states, i);
		if (cluster)
			cluster->clock = CLOCK_ORIGIN;
		error = error ?: scx_bpf_create_dsq(i, -1);
	}
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
	.enable = (void *)huddle_enable,
	.init = (void *)huddle_init,
	.exit = (void *)huddle_exit,
	.flags = OPS_KEEP_BUILTIN_IDLE | OPS_ENQ_LAST,
	.timeout_ms = 30000,
	.name = "huddle",
};
