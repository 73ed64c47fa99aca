/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The interpreter of bpf/place.h over a world of plain arrays, for src/ffi.rs, which has the twins of struct world and
 * struct answer.
 */
#include <stdbool.h>
#include <stddef.h>

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;
typedef long long s64;

#define __noinline	__attribute__((noinline))
#define __always_inline	inline __attribute__((always_inline))
#define __unused	__attribute__((unused))

#include "plan.h"

struct world {
	const struct cpu_facts *facts;
	const u64 *pool;
	const struct mask *clusters;
	const struct affine_span *affine;
	u64 *scratch, *idle;
	const u64 *online, *sched_idle, *allowed, *contested;
	const u32 *nr_running;
	const u64 *load, *capacity, *avg_idle;
	u64 *avg_scan_cost, *aged_idle;
	bool *has_idle_cores;
	const u32 *nr_idle_scan;
	u64 scan_per_cpu[DISTANCES], scan_fixed, waker_load, wakee_load;
	u32 nr_cpus, nr_words, nr_pool, nr_clusters, nr_affine, nr_llcs;
	u32 waker_flips, wakee_flips;
	s32 recent, waker_recent;
	bool waker_is_per_cpu_kthread, wakee_is_sched_idle, prefers_current_cpu, waker_keeps_sync;
};

struct answer {
	s32 cpu;
	u32 target, step, examined[DISTANCES];
	bool wide, exhausted, claimed;
};

static _Thread_local struct world *world;

#define PLAN_FOR(i, n)		for (i = 0; i < (n); i++)
#define plan_uses(kind)		true
#define plan_uses_entry(bit)	true

static const struct cpu_facts *plan_facts(u32 cpu)
{
	return cpu < world->nr_cpus ? &world->facts[cpu] : NULL;
}

static u64 plan_word(u32 at)
{
	return at < world->nr_pool ? world->pool[at] : 0;
}

static const struct mask *plan_cluster(u32 at)
{
	return at < world->nr_clusters ? &world->clusters[at] : NULL;
}

static const struct affine_span *plan_affine(u32 at)
{
	return at < world->nr_affine ? &world->affine[at] : NULL;
}

static u64 *scratch_word(struct decision *d __unused, u32 word)
{
	return word < 2 * world->nr_words ? &world->scratch[word] : NULL;
}

/* A word or number by index, 0 beyond the array; and numbers of the waker and the wakee. */
#define VIEW_AT(type, name, array, len) \
	static type view_##name(struct decision *d __unused, u32 at) { return at < world->len ? world->array[at] : 0; }
#define VIEW(type, name) \
	static type view_##name(struct decision *d __unused) { return world->name; }

VIEW_AT(u64, idle_word, idle, nr_words)
VIEW_AT(u64, sched_idle_word, sched_idle, nr_words)
VIEW_AT(u64, allowed_word, allowed, nr_words)
VIEW_AT(u32, nr_running, nr_running, nr_cpus)
VIEW_AT(u64, cpu_load, load, nr_cpus)
VIEW_AT(u64, capacity, capacity, nr_cpus)
VIEW_AT(u64, avg_idle, avg_idle, nr_cpus)
VIEW_AT(u64, avg_scan_cost, avg_scan_cost, nr_cpus)
VIEW_AT(u64, aged_idle, aged_idle, nr_cpus)
VIEW_AT(bool, has_idle_cores, has_idle_cores, nr_llcs)
VIEW_AT(u32, nr_idle_scan, nr_idle_scan, nr_llcs)
VIEW(u64, waker_load)
VIEW(u64, wakee_load)
VIEW(u32, waker_flips)
VIEW(u32, wakee_flips)
VIEW(bool, waker_is_per_cpu_kthread)
VIEW(bool, wakee_is_sched_idle)
VIEW(bool, prefers_current_cpu)
VIEW(bool, waker_keeps_sync)
VIEW(s32, recent)

static u32 view_nr_delayed(struct decision *d __unused, u32 cpu __unused)
{
	return 0;
}

/* A core is idle as a whole when all its threads of the partition are. */
static u64 view_idle_core_word(struct decision *d, u32 word)
{
	u64 whole = view_idle_word(d, word);

	for (u32 bit = 0; bit < 64; bit++) {
		const struct cpu_facts *facts = plan_facts(64 * word + bit);

		for (u32 i = 0; facts && i < facts->smt.len; i++) {
			u32 at = facts->smt.first + i;
			u64 online = at < world->nr_words ? world->online[at] : 0;

			if (plan_word(facts->smt.at + i) & online & ~view_idle_word(d, at))
				whole &= ~(1ULL << bit);
		}
	}
	return whole;
}

static bool view_claim(struct decision *d, u32 cpu)
{
	u64 bit = 1ULL << (cpu % 64);

	if (!(view_idle_word(d, cpu / 64) & bit))
		return false;
	world->idle[cpu / 64] &= ~bit;
	return !(world->contested[cpu / 64] & bit);
}

static void view_set_recent(struct decision *d __unused, u32 cpu)
{
	world->recent = cpu;
}

static void view_set_waker_recent(struct decision *d __unused, u32 cpu)
{
	world->waker_recent = cpu;
}

static void view_set_has_idle_cores(struct decision *d __unused, u32 llc, bool value)
{
	if (llc < world->nr_llcs)
		world->has_idle_cores[llc] = value;
}

static void view_set_avg_scan_cost(struct decision *d __unused, u32 cpu, u64 ns)
{
	if (cpu < world->nr_cpus)
		world->avg_scan_cost[cpu] = ns;
}

static void view_charge_aged_idle(struct decision *d __unused, u32 cpu, u64 ns)
{
	if (cpu < world->nr_cpus)
		world->aged_idle[cpu] -= ns < world->aged_idle[cpu] ? ns : world->aged_idle[cpu];
}

static u64 view_scan_time(struct decision *d)
{
	u64 time = world->scan_fixed;

	for (u32 i = 0; i < DISTANCES; i++)
		time += d->examined[i] * world->scan_per_cpu[i];
	return time;
}

#include "place.h"

void huddle_native_place(struct world *w, const struct plan *plan, u32 this_cpu, u32 prev, bool sync, bool is_fork,
			 struct answer *answer)
{
	struct decision d = { .this_cpu = this_cpu, .prev = prev, .sync = sync, .is_fork = is_fork };

	world = w;
	answer->cpu = plan_place(plan, &d);
	answer->target = d.target;
	answer->step = d.step;
	for (u32 i = 0; i < DISTANCES; i++)
		answer->examined[i] = d.examined[i];
	answer->wide = d.wide;
	answer->exhausted = d.exhausted;
	answer->claimed = d.claimed;
}

/* Sizes and offsets, in the order of the list in tests/layout.rs; ~0 behind the last. */
u32 huddle_native_layout(u32 at)
{
#define AT(type, field) offsetof(struct type, field)
	static const u32 layout[] = {
		MAX_STEPS, NR_KINDS, sizeof(struct world), AT(world, scan_fixed), AT(world, waker_keeps_sync),
		sizeof(struct answer), AT(answer, claimed),
		sizeof(struct mask), AT(mask, at), AT(mask, first), AT(mask, len), AT(mask, weight),
		sizeof(struct affine_span), AT(affine_span, span), AT(affine_span, imbalance_pct),
		sizeof(struct step), AT(step, kind), AT(step, pred), AT(step, source), AT(step, method), AT(step, cost),
		AT(step, within), AT(step, flags), AT(step, div), AT(step, floor), AT(step, spare),
		sizeof(struct plan), AT(plan, entry), AT(plan, flags), AT(plan, kinds), AT(plan, nr_steps),
		AT(plan, after_scans), AT(plan, nr_words), AT(plan, steps),
		sizeof(struct cpu_facts), AT(cpu_facts, llc), AT(cpu_facts, smt), AT(cpu_facts, node),
		AT(cpu_facts, scan_cluster), AT(cpu_facts, reach), AT(cpu_facts, claim),
		AT(cpu_facts, llc_size), AT(cpu_facts, llc_id), AT(cpu_facts, share_id),
		AT(cpu_facts, llc_index), AT(cpu_facts, affine_from), AT(cpu_facts, affine_len),
		AT(cpu_facts, cluster), AT(cpu_facts, llc_from), AT(cpu_facts, llc_len),
		AT(cpu_facts, node_from), AT(cpu_facts, node_len), AT(cpu_facts, nr_clusters),
	};

	return at < sizeof(layout) / sizeof(layout[0]) ? layout[at] : ~0U;
}
