/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The world as place.h sees it on a real kernel. Exact: idle state, claims, CPUs that run SCHED_IDLE. Estimated, since tasks of sched_ext have
 * no fair load: the load of CPUs (1024 a runnable task), nr_running (the running task, those in the CPU's own queues), nr_idle_scan (the
 * loader's, from run time).
 */
#ifndef HUDDLE_VIEW_H
#define HUDDLE_VIEW_H

#define PLAN_FOR(i, n)		bpf_for(i, 0, n)
#define plan_uses(bit)		(config.used & (bit))
#define plan_cluster(index)	((const struct mask *)look_up(&clusters, index))
#define plan_affine(index)	((const struct affine_span *)look_up(&affine_spans, index))
#define view_cpu_load(cpu)	((s64)view_nr_running(cpu) * 1024)

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

static __noinline u64 plan_word(u32 at)
{
	u64 *word = look_up(&pool, at);

	return word ? *word : 0;
}

static __noinline u64 *scratch_word(u32 word)
{
	return look_up(&scratches, 2 * bpf_get_smp_processor_id() * ((config.nr_cpus + 63) / 64) + word);
}

static __noinline u64 now_ns(void)
{
	return bpf_ksym_exists(scx_bpf_now) ? scx_bpf_now() : bpf_ktime_get_ns();
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

#define IDLE_WORD(name, get)							\
static __noinline u64 view_##name(u32 word)					\
{										\
	const struct cpumask *mask = get();					\
	u64 bits = kernel_word(mask, word);					\
										\
	scx_bpf_put_idle_cpumask(mask);						\
	return bits;								\
}
IDLE_WORD(idle_word, scx_bpf_get_idle_cpumask)
IDLE_WORD(idle_core_word, scx_bpf_get_idle_smtmask)

static __noinline u64 kept_word(void *map, u32 word)
{
	u64 *bits = look_up(map, word);

	return bits ? *bits : 0;
}
#define view_sched_idle_word(word)	kept_word(&sched_idle_words, word)
#define view_hog_word(word)		kept_word(&hog_words, word)

static __always_inline bool view_claim(u32 cpu)
{
	return cpu < config.nr_cpus && scx_bpf_test_and_clear_cpu_idle(cpu);
}

static __noinline u32 view_nr_running(u32 cpu)
{
	struct cpu_state *c = cpu_state(cpu);
	s32 local;

	if (!c || cpu >= config.nr_cpus)
		return 0;
	local = scx_bpf_dsq_nr_queued(DSQ_LOCAL_ON | cpu);
	return !!c->weight + c->pinned + (local > 0 ? local : 0);
}

static __always_inline u32 view_nr_idle_scan(u32 llc)
{
	u32 *limit = look_up(&idle_scans, llc);

	return limit ? *limit : 0;
}

/* Whether the kernel knows an idle core in the target's LLC: its own state needs no hint. */
static __noinline bool view_has_idle_cores(struct decision *d)
{
	const struct cpu_facts *target = plan_facts(d->target);
	u64 found = 0;
	u32 i;

	if (!target)
		return false;
	PLAN_FOR(i, target->sets[SET_SD_LLC].len)
		found |= plan_word(target->sets[SET_SD_LLC].at + i) & view_idle_core_word(target->sets[SET_SD_LLC].first + i);
	return found;
}

#endif
