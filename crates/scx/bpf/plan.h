/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A plan as data: the steps of a policy and what they look up of a machine. Written by crates/scx/src/image.rs,
 * whose structs have the same layout; read by place.h. Kinds, words and keys of steps are those of
 * crates/policy/src/record.rs.
 */
#ifndef HUDDLE_PLAN_H
#define HUDDLE_PLAN_H

#define MAX_STEPS	32
#define REACHES		5		/* SMT, cluster, LLC, node, package */
#define DISTANCES	(REACHES + 2)	/* beside them: the CPU itself, and beyond the package */

enum {
	KIND_ASYM_SCAN, KIND_TARGET_IDLE, KIND_PREV_IDLE, KIND_KTHREAD_STACK, KIND_RECENT_IDLE, KIND_NEED_LLC,
	KIND_IDLE_CORE, KIND_READ_HIC, KIND_IDLE_SMT, KIND_BUDGET, KIND_SCAN_CLUSTER, KIND_SCAN_LLC, KIND_TAKE_KEPT,
	KIND_RETURN_TARGET, KIND_RETURN_PREV,
	KIND_SYNC_STACK, KIND_CLAIM_PREV, KIND_CLAIM_ANY, KIND_CLAIM_IDLEST,	/* look for CPUs to claim */
	NR_KINDS,
};
enum { PRED_IDLE, PRED_AVAIL, PRED_OK59, PRED_OK72 };
enum { SOURCE_RAW_TOPOLOGY, SOURCE_CLUSTER_DOMAIN, SOURCE_LLC_FIRST_GROUP, NR_SOURCES };
enum { METHOD_NONE, METHOD_UTIL, METHOD_PROP, METHOD_PROP_AGED };
enum { COST_NONE, COST_AVG_SCAN_COST, COST_AGED };
enum { WITHIN_CLUSTER, WITHIN_PREV_CLUSTER, WITHIN_LLC, WITHIN_NODE, WITHIN_ALL, NR_WITHIN };
enum {	/* step.flags: keys that are true, or have the value named */
	STEP_LOWEST = 1 << 0, STEP_KEEP = 1 << 1, STEP_UPDATE_ALWAYS = 1 << 2, STEP_ANCHOR_PREV = 1 << 3,
	STEP_INCL_ANCHOR = 1 << 4, STEP_NO_HIC = 1 << 5, STEP_IN_LLC = 1 << 6, STEP_FAIL_IF_EMPTY = 1 << 7,
	STEP_CHARGE = 1 << 8, STEP_REMOVE = 1 << 9, STEP_CORES = 1 << 10, STEP_NO_SMT = 1 << 11,
	STEP_AFTER_TARGET = 1 << 12, STEP_NO_BUSIER = 1 << 13, STEP_TAKE_PREV = 1 << 14, STEP_TAKE_RECENT = 1 << 15,
	STEP_RECENT_FIRST = 1 << 16,
};
enum {	/* plan.entry; the anchor is "prev" where it is neither "load" nor "waker" */
	ENTRY_WIDE = 1 << 0, ENTRY_AFFINE_IDLE_PREV = 1 << 1, ENTRY_SYNC_MINUS_DELAYED = 1 << 2,
	ENTRY_SET_WAKER_RECENT = 1 << 3, ENTRY_PREFER_CURRENT_HINT = 1 << 4, ENTRY_ANCHOR_LOAD = 1 << 5,
	ENTRY_ANCHOR_WAKER = 1 << 6,
};
enum { PLAN_SMT_ACTIVE = 1 << 0, PLAN_CLUSTER_ACTIVE = 1 << 1 };	/* plan.flags */

struct step {
	u8 kind, pred, source, method, cost, within, unused[2];
	u32 flags, div, floor, spare;
};

/* A CPU set: words first .. first + len, in the pool from at on; weight CPUs. A set that does not exist has len 0. */
struct mask {
	u32 at, first, len, weight;
};

struct affine_span {			/* a domain that may pull wake-ups */
	struct mask span;
	u32 imbalance_pct;
};

struct cpu_facts {			/* what decisions look up of one CPU */
	struct mask llc, smt, node;	/* llc: sd_llc's span */
	struct mask scan_cluster[NR_SOURCES];	/* its cluster, as scans know it */
	struct mask reach[REACHES];	/* CPUs no farther than each */
	struct mask claim[NR_WITHIN];	/* where claims look; both of the first two are its cluster */
	u32 llc_size, llc_id, share_id, llc_index;
	u32 affine_from, affine_len;	/* its affine spans, narrowest first */
	u32 cluster;			/* in the list of clusters: its own, and the runs of its LLC, its node, all */
	u32 llc_from, llc_len, node_from, node_len, nr_clusters;
};

struct plan {
	u32 entry, flags, kinds;	/* kinds: 1 << KIND_… of every step */
	u32 nr_steps, after_scans;	/* after_scans: the first step behind the last scan */
	u32 nr_words;			/* of a set of all CPU ids */
	struct step steps[MAX_STEPS];
};

struct decision {			/* zeroed by the caller, but for this_cpu, prev, sync and is_fork */
	u32 this_cpu, prev;
	bool sync, is_fork;
	bool wide, exhausted, claimed;	/* claimed: a claim step took the CPU */
	bool hic, ready, is_sched_idle;	/* idle cores are hinted; the candidates of scans are prepared; the wakee is */
	u32 target, step, examined[DISTANCES];
	u32 left;			/* CPUs that charged scans may still examine */
	s32 candidate, kept_prev, kept_recent;
	u32 flags, nr_words, zero;	/* flags, nr_words: the plan's; zero: see opaque() */
	struct step s;			/* the step being taken, and what it walks over */
	struct mask mask;
};

#endif
