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
#define __global	static __attribute__((noinline))
#define __arg_nonnull

#include "plan.h"

struct world {
	const struct cpu_facts *facts;
	const u64 *pool;
	const struct mask *clusters;
	u64 *idle;
	const u64 *online, *sched_idle, *allowed, *contested;
	const u32 *nr_running;
	const u64 *load;
	const u32 *nr_idle_scan;
	u64 waker_load, wakee_load;
	u32 nr_cpus, nr_words, nr_pool, nr_clusters, nr_llcs;
	s32 recent, waker_recent;
	bool waker_is_per_cpu_kthread, wakee_is_sched_idle, prefers_current_cpu, waker_keeps_sync;
};

struct answer {
	s32 cpu;
	u32 target, step;
	bool claimed;
};

static _Thread_local struct world *world;

#define PLAN_FOR(i, n)		for (i = 0; i < (n); i++)
#define plan_uses(bit)		true

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

/* A word or number by index, 0 beyond the array. */
#define VIEW_AT(type, name, array, len) \
	static type view_##name(u32 at) { return at < world->len ? world->array[at] : 0; }

#define affinity_word(d, at)	((void)(d), (at) < world->nr_words ? world->allowed[at] : 0)

VIEW_AT(u64, idle_word, idle, nr_words)
VIEW_AT(u64, sched_idle_word, sched_idle, nr_words)
VIEW_AT(u32, nr_running, nr_running, nr_cpus)
VIEW_AT(u64, cpu_load, load, nr_cpus)
VIEW_AT(u32, nr_idle_scan, nr_idle_scan, nr_llcs)

static u64 view_hog_word(u32 word __unused)
{
	return 0;
}

/* A core is idle as a whole when all its threads of the partition are. */
static u64 view_idle_core_word(u32 word)
{
	u64 whole = view_idle_word(word);

	for (u32 bit = 0; bit < 64; bit++) {
		const struct cpu_facts *facts = plan_facts(64 * word + bit);

		for (u32 i = 0; facts && i < facts->sets[SET_CORE].len; i++) {
			u32 at = facts->sets[SET_CORE].first + i;
			u64 online = at < world->nr_words ? world->online[at] : 0;

			if (plan_word(facts->sets[SET_CORE].at + i) & online & ~view_idle_word(at))
				whole &= ~(1ULL << bit);
		}
	}
	return whole;
}

static bool view_claim(u32 cpu)
{
	u64 bit = 1ULL << (cpu % 64);

	if (!(view_idle_word(cpu / 64) & bit))
		return false;
	world->idle[cpu / 64] &= ~bit;
	return !(world->contested[cpu / 64] & bit);
}

#include "place.h"

void huddle_native_place(struct world *w, const struct plan *plan, u32 this_cpu, u32 prev, bool sync, bool is_fork,
			 struct answer *answer)
{
	struct decision d = { .this_cpu = this_cpu, .prev = prev, .sync = sync, .is_fork = is_fork };
	u32 nr_allowed = 0;

	world = w;
	d.is_sched_idle = w->wakee_is_sched_idle;
	d.current_hint = w->prefers_current_cpu;
	d.kthread_waker = w->waker_is_per_cpu_kthread;
	d.keeps_sync = w->waker_keeps_sync;
	d.recent = w->recent;
	d.waker_load = w->waker_load;
	d.wakee_load = w->wakee_load;
	for (u32 i = 0; i < w->nr_words; i++)
		nr_allowed += weight(w->allowed[i]);
	answer->cpu = plan_place(plan, &d, nr_allowed);
	answer->target = d.target;
	answer->step = d.step;
	answer->claimed = d.claimed;
	w->recent = d.recent;
	if (d.marks_waker)
		w->waker_recent = this_cpu;
}

/* Sizes and offsets of what src/ffi.rs has twins of, in the order of its list; ~0 behind the last. */
u32 huddle_native_layout(u32 at)
{
	static const u32 layout[] = {
		sizeof(struct world), offsetof(struct world, waker_load), offsetof(struct world, waker_keeps_sync),
		sizeof(struct answer), offsetof(struct answer, claimed), sizeof(struct plan), sizeof(struct cpu_facts),
	};

	return at < sizeof(layout) / sizeof(layout[0]) ? layout[at] : ~0U;
}
