/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The world as place.h sees it on a real kernel. Exact: idle state, claims, affinity, CPUs that run SCHED_IDLE. Estimated, since tasks of
 * sched_ext have no fair load: the load of CPUs (1024 a runnable task), nr_running (the running task, those in the CPU's own queues),
 * nr_idle_scan (the loader's, from run time).
 */
#ifndef HUDDLE_VIEW_H
#define HUDDLE_VIEW_H

#define __global		__attribute__((noinline))
#define PLAN_FOR(i, n)		bpf_for(i, 0, n)
#define plan_uses(bit)		(config.used & (bit))
#define cpu_state(cpu)		((struct cpu_state *)look_up(&cpu_states, cpu))
#define plan_facts(cpu)		((const struct cpu_facts *)look_up(&all_facts, cpu))
#define plan_cluster(index)	((const struct mask *)look_up(&clusters, index))
#define view_claim(cpu)		((u32)(cpu) < config.nr_cpus && scx_bpf_test_and_clear_cpu_idle(cpu))
#define view_cpu_load(cpu)	((s64)view_nr_running(cpu) * 1024)
#define affinity_word(d, word)	((word) ? far_word((d)->affinity, word) : (d)->affinity_0)

static __always_inline void *look_up(void *map, u32 key)
{
	return bpf_map_lookup_elem(map, &key);
}

static __noinline u64 map_word(void *map, u32 at)
{
	u64 *word = look_up(map, at);

	return word ? *word : 0;
}
#define plan_word(at)			map_word(&pool, at)
#define view_sched_idle_word(word)	map_word(&sched_idle_words, word)
#define view_hog_word(word)		map_word(&hog_words, word)
#define view_nr_idle_scan(llc)		map_word(&idle_scans, llc)

static __noinline u64 now_ns(void)
{
	return bpf_ksym_exists(scx_bpf_now) ? scx_bpf_now() : bpf_ktime_get_ns();
}

/* Word of a mask of the kernel's, for which the verifier allows no variable offset. */
static __noinline u64 far_word(u64 mask, u32 word)
{
	u64 bits = 0;

	if (mask && word * 64 < config.nr_cpus)
		bpf_probe_read_kernel(&bits, sizeof(bits), (void *)mask + word * 8);
	return bits;
}

/* The first word is read in place. */
#define IDLE_WORD(name, get)							\
static __noinline u64 view_##name(u32 word)					\
{										\
	const struct cpumask *mask = get();					\
	u64 bits = !mask ? 0 : word ? far_word((u64)mask, word) : mask->bits[0];	\
										\
	scx_bpf_put_idle_cpumask(mask);						\
	return bits;								\
}
IDLE_WORD(idle_word, scx_bpf_get_idle_cpumask)
IDLE_WORD(idle_core_word, scx_bpf_get_idle_smtmask)

static __noinline u32 view_nr_running(u32 cpu)
{
	struct cpu_state *c = cpu_state(cpu);
	s32 local;

	if (!c || cpu >= config.nr_cpus)
		return 0;
	local = scx_bpf_dsq_nr_queued(DSQ_LOCAL_ON | cpu);
	return !!c->weight + !!c->pinned + (local > 0 ? local : 0);
}

#endif
