/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the scheduler and its loader share beside the plan: sizes and modes set before it is loaded, and what it counts. The twin of
 * crates/scx/src/live/shared.rs.
 */
#ifndef HUDDLE_LIVE_H
#define HUDDLE_LIVE_H

enum { PLAN_GATHER, PLAN_SPREAD, PLAN_FORK, NR_PLANS };

/* Levels at which a waiting task was taken. */
enum { TAKEN_OWN_CPU, TAKEN_CLUSTER, TAKEN_LLC, TAKEN_NODE, TAKEN_FARTHER, NR_TAKEN };

#define WAIT_BUCKETS	32	/* bucket i: below 2^i us, and not in a lower one */

/* Set before loading. */
struct config {
	u32 nr_cpus, nr_clusters;
	u32 used;			/* of all plans */
	u32 needs_task;			/* a plan asks for what is kept per task */
	u32 near_sync, near_prev;	/* steps of gathering that may be taken before all others, plus 1; 0: none */
	u64 slice_ns, least_slice_ns;
	u64 preempt_ns;			/* a waking task takes the CPU of one that is so far ahead of it */
	u64 hog_ns;			/* a CPU that was busy for so long runs a task that will not sleep soon */
};

/* Written when the scheduler ends. */
struct exit_record {
	u32 kind, unused;
	s64 code;
	char reason[128], message[1024];
};

/* Of one CPU, written by that CPU alone. */
struct counters {
	u64 placed[NR_PLANS][MAX_STEPS + 1];	/* by deciding step; the last one stands for the core's own rules */
	u64 wake_distance[DISTANCES];		/* waker to chosen CPU */
	u64 move_distance[DISTANCES];		/* previous to chosen CPU, of wake-ups */
	u64 wait_us[WAIT_BUCKETS];		/* from runnable to running */
	u64 taken[NR_TAKEN];			/* waiting tasks taken by a CPU with nothing to run */
	u64 direct;				/* placed tasks that went straight to a CPU */
	u64 queued;				/* tasks that had to wait in a cluster's queue */
	u64 unplaced;				/* wake-ups that the core did not ask to place */
	u64 pinned;				/* tasks with one CPU, queued there */
	u64 preempted;				/* CPUs taken from a task by a woken one */
	u64 balanced;				/* long-running tasks moved to an idler cluster */
	u64 exec_moved;				/* tasks moved there on exec */
	u64 busy_ns;				/* time that tasks ran */
};

#endif
