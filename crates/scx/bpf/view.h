/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The world as place.h sees it on a real kernel. Exact: idle state, affinity, claims, sync and current-CPU hints, recent CPUs, partner
 * switches, SCHED_IDLE. Estimated, since tasks of sched_ext have no fair load: load (1024 a runnable task), loads of tasks
 * (their weight), idle times, scan costs (the whole decision's time), nr_idle_scan (the loader's, from run time).
 */
#ifndef HUDDLE_VIEW_H
#define HUDDLE_VIEW_H

#define PLAN_FOR(i, n)		bpf_for(i, 0, n)
#define plan_uses(kind)		(config.used_kinds & (1U << (kind)))
#define plan_uses_entry(bit)	(config.used_entries & (bit))

struct decision;

static __always_inline void *look_up(void *map, u32 key)
{
	return bpf_map_lookup_elem(map, &key);
}

static __noinline struct cpu_state *cpu_state(u32 cpu)
{
	return look_up(&cpu_states, cpu);
}

static __noinline const struct cpu_facts *plan_facts(u32 cpu)
{
	return look_up(&facts, cpu);
}

static __always_inline const struct mask *plan_cluster(u32 index)
{
	return look_up(&clusters, index);
}

static __always_inline const struct affine_span *plan_affine(u32 index)
{
	return look_up(&affine, index);
}

static __noinline u64 plan_word(u32 at)
{
	u64 *word = look_up(&pool, at);

	return word ? *word : 0;
}

/* A decision about a task. */
struct placing {
	struct decision d;
	struct task_struct *p;
	u64 begun, wake_flags;
};

static __always_inline struct task_struct *wakee(struct decision *d)
{
	return ((struct placing *)d)->p;
}

static __always_inline struct task_state *task_state(struct task_struct *p)
{
	return config.needs_task ? bpf_task_storage_get(&task_states, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE) : NULL;
}

static __noinline u64 now_ns(void)
{
	return bpf_ksym_exists(scx_bpf_now) ? scx_bpf_now() : bpf_ktime_get_ns();
}

static __noinline u64 *scratch_word(struct decision *d, u32 word)
{
	return look_up(&scratch, 2 * bpf_get_smp_processor_id() * ((config.nr_cpus + 63) / 64) + word);
}

/* Word of a mask of the kernel's. The first is read in place; the verifier allows no variable offset for the others. */
static __always_inline u64 kernel_word(const struct cpumask *mask, u32 word)
{
	u64 bits = 0;

	if (!mask || word * 64 >= config.nr_cpus)
		return 0;
	if (config.nr_cpus <= 64)
		return mask->bits[0];
	bpf_probe_read_kernel(&bits, sizeof(bits), (void *)mask + word * 8);
	return bits;
}

static __noinline u64 view_idle_word(struct decision *d, u32 word)
{
	const struct cpumask *mask = scx_bpf_get_idle_cpumask();
	u64 bits = kernel_word(mask, word);

	scx_bpf_put_idle_cpumask(mask);
	return bits;
}

static __noinline u64 view_idle_core_word(struct decision *d, u32 word)
{
	const struct cpumask *mask = scx_bpf_get_idle_smtmask();
	u64 bits = kernel_word(mask, word);

	scx_bpf_put_idle_cpumask(mask);
	return bits;
}

static __noinline u64 view_allowed_word(struct decision *d, u32 word)
{
	struct task_struct *p = wakee(d);

	return p ? kernel_word(p->cpus_ptr, word) : 0;
}

/* CPUs that run a task of SCHED_IDLE. */
static __noinline u64 view_sched_idle_word(struct decision *d, u32 word)
{
	u64 bits = 0;
	u32 i;

	PLAN_FOR(i, 64) {
		struct cpu_state *c = cpu_state(word * 64 + i);

		if (c && c->weight && c->sched_idle)
			bits |= 1ULL << (i & 63);
	}
	return bits;
}

static __always_inline bool view_claim(struct decision *d, u32 cpu)
{
	return cpu < config.nr_cpus && scx_bpf_test_and_clear_cpu_idle(cpu);
}

/* The running task, those in the CPU's own queues. */
static __noinline u32 view_nr_running(struct decision *d, u32 cpu)
{
	struct cpu_state *c = cpu_state(cpu);
	s32 local;

	if (!c || cpu >= config.nr_cpus)
		return 0;
	local = scx_bpf_dsq_nr_queued(DSQ_LOCAL_ON | cpu);
	return !!c->weight + c->pinned + (local > 0 ? local : 0);
}

static __always_inline u32 view_nr_delayed(struct decision *d, u32 cpu)
{
	return 0;
}

static __always_inline u64 view_cpu_load(struct decision *d, u32 cpu)
{
	return view_nr_running(d, cpu) * 1024ULL;
}

static __always_inline u64 view_capacity(struct decision *d, u32 cpu)
{
	return 1024;
}

static __always_inline u64 view_waker_load(struct decision *d)
{
	struct cpu_state *c = cpu_state(d->this_cpu);

	return c ? c->weight * 1024ULL / 100 : 0;
}

static __always_inline u64 view_wakee_load(struct decision *d)
{
	struct task_struct *p = wakee(d);

	return p ? p->scx.weight * 1024ULL / 100 : 0;
}

static __always_inline u32 view_waker_flips(struct decision *d)
{
	struct task_state *task = task_state(bpf_get_current_task_btf());

	return task ? task->flips : 0;
}

static __always_inline u32 view_wakee_flips(struct decision *d)
{
	struct task_struct *p = wakee(d);
	struct task_state *task = p ? task_state(p) : NULL;

	return task ? task->flips : 0;
}

static __always_inline bool view_waker_is_per_cpu_kthread(struct decision *d)
{
	struct task_struct *waker = bpf_get_current_task_btf();

	return waker->flags & PF_KTHREAD && waker->nr_cpus_allowed == 1;
}

static __always_inline bool view_wakee_is_sched_idle(struct decision *d)
{
	struct task_struct *p = wakee(d);

	return p && p->policy == SCHED_IDLE_POLICY;
}

static __always_inline bool view_prefers_current_cpu(struct decision *d)
{
	return ((struct placing *)d)->wake_flags & WAKE_CURRENT_CPU;
}

static __always_inline s32 view_recent(struct decision *d)
{
	struct task_struct *p = wakee(d);
	struct task_state *task = p ? task_state(p) : NULL;

	return task ? task->recent - 1 : -1;
}

static __always_inline void set_recent(struct task_struct *p, u32 cpu)
{
	struct task_state *task = p ? task_state(p) : NULL;

	if (task)
		task->recent = cpu + 1;
}

static __always_inline void view_set_recent(struct decision *d, u32 cpu)
{
	set_recent(wakee(d), cpu);
}

static __always_inline void view_set_waker_recent(struct decision *d, u32 cpu)
{
	set_recent(bpf_get_current_task_btf(), cpu);
}

/* Whether the kernel knows an idle core in the target's LLC: its own state needs no hint. */
static __noinline bool view_has_idle_cores(struct decision *d, u32 llc)
{
	const struct cpu_facts *target = plan_facts(d->target);
	u64 found = 0;
	u32 i;

	if (!target)
		return false;
	PLAN_FOR(i, target->llc.len)
		found |= plan_word(target->llc.at + i) & view_idle_core_word(d, target->llc.first + i);
	return found;
}

static __always_inline void view_set_has_idle_cores(struct decision *d, u32 llc, bool value)
{
}

static __always_inline u64 view_avg_idle(struct decision *d, u32 cpu)
{
	struct cpu_state *c = cpu_state(cpu);

	return c ? c->avg_idle : 0;
}

static __always_inline u64 view_aged_idle(struct decision *d, u32 cpu)
{
	return view_avg_idle(d, cpu) / 2;
}

static __always_inline void view_charge_aged_idle(struct decision *d, u32 cpu, u64 ns)
{
}

static __always_inline u64 view_avg_scan_cost(struct decision *d, u32 cpu)
{
	struct cpu_state *c = cpu_state(cpu);

	return c ? c->avg_scan_cost : 0;
}

static __always_inline void view_set_avg_scan_cost(struct decision *d, u32 cpu, u64 ns)
{
	struct cpu_state *c = cpu_state(cpu);

	if (c)
		c->avg_scan_cost = ns;
}

static __always_inline u64 view_scan_time(struct decision *d)
{
	return bpf_ktime_get_ns() - ((struct placing *)d)->begun;
}

static __always_inline u32 view_nr_idle_scan(struct decision *d, u32 llc)
{
	u32 *limit = look_up(&idle_scans, llc);

	return limit ? *limit : 0;
}

static __always_inline s32 view_next_cpu(struct decision *d, u32 target)
{
	struct cpu_state *c = cpu_state(target);

	return c ? (s32)c->next_cpu - 1 : -1;
}

static __always_inline void view_set_next_cpu(struct decision *d, u32 target, u32 cpu)
{
	struct cpu_state *c = cpu_state(target);

	if (c)
		c->next_cpu = cpu + 1;
}

static __always_inline bool view_waker_keeps_sync(struct decision *d)
{
	struct task_state *task = task_state(bpf_get_current_task_btf());

	return task && task->kept >= 8;
}

#endif
