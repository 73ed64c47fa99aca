/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A plan as data: the steps of a policy and what they look up of a machine. Written by crates/scx/src/image.rs, whose structs have the
 * same layout; read by place.h. A step of a record (crates/policy/src/record.rs) is lowered to a kind that looks for a CPU in a set; what
 * never takes part on the machine is KIND_NONE.
 */
#ifndef HUDDLE_PLAN_H
#define HUDDLE_PLAN_H

#define MAX_STEPS	32
#define REACHES		5		/* SMT, cluster, LLC, node, package */
#define DISTANCES	(REACHES + 2)	/* beside them: the CPU itself, and beyond the package */

enum {
	KIND_NONE,
	KIND_TEST,	/* one CPU, if it lies in a set of the target's */
	KIND_SEARCH,	/* a set's CPUs in scan order */
	KIND_IDLEST,	/* the least busy cluster's */
	KIND_BUDGET, KIND_READ_HIC, KIND_NEED_LLC, KIND_TAKE_KEPT, KIND_SYNC_STACK, KIND_KTHREAD_STACK,
	KIND_RETURN,	/* the CPU that `of` names */
	NR_KINDS,
};
enum { OF_TARGET, OF_PREV, OF_RECENT };
enum {	/* of one CPU; SHARE_…: CPUs with its sd_llc_id and its sd_share_id; ONE: itself; OTHERS: its siblings */
	SET_ALL, SET_NODE, SET_LLC, SET_CLUSTER, SET_SHARE_LLC, SET_SHARE, SET_ONE, SET_SMT, SET_OTHERS,
	SET_SD_LLC, SET_RAW_CLUSTER, SET_CLUSTER_DOMAIN, SET_LLC_GROUP, SET_WHOLE_NODE, NR_SETS,
};
enum {	/* step.flags */
	STEP_CLAIM = 1 << 0,		/* claims the CPU that it finds */
	STEP_CORES = 1 << 1,		/* on cores that are idle as a whole; of a scan: if they are hinted */
	STEP_SCHED_IDLE = 1 << 2, STEP_NO_KIN = 1 << 3,	/* a CPU with SCHED_IDLE tasks will do; for others than those */
	STEP_OTHER = 1 << 4,		/* not the target */
	STEP_KEEP = 1 << 5,		/* kept for TAKE_KEPT unless in SET_SHARE */
	STEP_ALWAYS = 1 << 6,		/* the recent CPU is renewed even if it is not taken */
	STEP_NO_BUSIER = 1 << 7,	/* no cluster of the LLC is less busy than prev's */
	STEP_SCAN = 1 << 8,		/* looks among the candidates: CPUs of the target's sd_llc that no scan has removed */
	STEP_AFTER = 1 << 9, STEP_FROM_ZERO = 1 << 10,	/* where it starts, if not from the CPU itself */
	STEP_CHARGE = 1 << 11, STEP_REMOVE = 1 << 12, STEP_FAIL_IF_EMPTY = 1 << 13,
	STEP_NO_HIC = 1 << 14,		/* only if no idle core is hinted and prev shares the LLC */
	STEP_LAST = 1 << 15,		/* takes the CPU that a search for cores noted */
	STEP_TAKE_PREV = 1 << 16, STEP_TAKE_RECENT = 1 << 17, STEP_RECENT_FIRST = 1 << 18,
	STEP_HOGS = 1 << 19,		/* counts as busy the CPUs whose tasks run without end */
};
enum {	/* plan.entry; the target is prev where it is neither "load" nor "waker" */
	ENTRY_LOAD = 1 << 0, ENTRY_WAKER = 1 << 1, ENTRY_AFFINE_IDLE_PREV = 1 << 2, ENTRY_SET_WAKER_RECENT = 1 << 3,
	ENTRY_CURRENT_HINT = 1 << 4,
};

struct step {
	u8 kind, of, set, unused;
	u32 flags, spare;
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
	struct mask sets[NR_SETS];
	u32 ids[REACHES];		/* the first CPU no farther than SMT, cluster, … */
	u32 llc_index;
	u32 affine_from, affine_len;	/* its affine spans, narrowest first */
	u32 cluster;			/* in the list of clusters: its own, and the runs of its LLC and its node */
	u32 llc_from, llc_len, node_from, node_len;
};

struct plan {
	u32 entry, used;		/* used: 1 << KIND_… and, above, STEP_SCAN and STEP_CORES of a scan: USED_… */
	u32 nr_steps, after_scans;	/* after_scans: the first step behind the last scan */
	u32 nr_words, nr_clusters;	/* words of a set of all CPU ids; clusters with CPUs online */
	struct step steps[MAX_STEPS];
};
enum { USED_SCAN = 1 << 16, USED_CORES = 1 << 17, USED_LOAD = 1 << 18 };

struct decision {			/* zeroed by the caller, but for what comes before target */
	u32 this_cpu, prev;
	bool sync, is_fork, is_sched_idle, current_hint, kthread_waker, keeps_sync;
	s32 recent;			/* where the wakee ran before prev; the caller keeps what it becomes */
	u64 waker_load, wakee_load;
	u32 target, step;
	bool claimed, marks_waker;	/* the CPU was claimed; the waker's recent CPU becomes this one */
	bool hic;			/* idle cores are hinted */
	s32 candidate, kept_prev, kept_recent;
	u32 left;			/* CPUs that charged scans may still walk over */
	u32 nr_words, nr_clusters, zero;	/* zero: see opaque() */
	struct step s;			/* the step being taken, and what it walks over */
	struct mask mask;
};

#endif
