/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the scheduler uses of the kernel's types and functions: the fields alone, found by name in the running kernel's BTF (CO-RE).
 * Sources of names and values: Linux 6.12 to 7.3, include/linux/{sched.h,sched/ext.h}, kernel/sched/ext*.
 */
#ifndef HUDDLE_KERNEL_H
#define HUDDLE_KERNEL_H

/* With __ the names that libbpf's headers want. */
typedef unsigned char u8, __u8;
typedef unsigned short __u16, __be16;
typedef unsigned int u32, __u32, __be32, __wsum;
typedef unsigned long long u64, __u64;
typedef short __s16;
typedef int s32, __s32;
typedef long long s64, __s64;
#define NULL	((void *)0)

enum { BPF_MAP_TYPE_ARRAY = 2, BPF_MAP_TYPE_TASK_STORAGE = 29, BPF_F_NO_PREALLOC = 1, BPF_LOCAL_STORAGE_GET_F_CREATE = 1 };

struct bpf_iter_num { u64 opaque[1]; };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct cpumask { unsigned long bits[1]; } cpumask_t;
struct sched_ext_entity { u32 weight, flags; u64 slice, dsq_vtime; };
struct sched_info { unsigned long long last_queued; };

struct task_struct {
	u32 flags, policy;
	s32 pid, nr_cpus_allowed;
	const cpumask_t *cpus_ptr;
	struct sched_ext_entity scx;
	struct sched_info sched_info;
};

enum scx_exit_kind { SCX_EXIT_NONE };
enum scx_enq_flags { SCX_ENQ_CPU_SELECTED = 1 };

struct scx_exit_info { enum scx_exit_kind kind; s64 exit_code; const char *reason; char *msg; };

#pragma clang attribute pop

enum {
	PF_KTHREAD = 0x00200000, PF_EXITING = 0x00000004, SCHED_IDLE_POLICY = 5, TASK_QUEUED = 1, /* SCX_TASK_QUEUED */
	WAKE_FORK = 0x04, WAKE_SYNC = 0x10, WAKE_CURRENT_CPU = 0x40, KICK_IDLE = 1, KICK_PREEMPT = 2,
	OPS_KEEP_BUILTIN_IDLE = 1, OPS_ENQ_LAST = 2,
};
#define ENQ_WAKEUP	0x1ULL
#define ENQ_PREEMPT	(1ULL << 32)
#define ENQ_LAST	(1ULL << 41)
#define DSQ_LOCAL	((1ULL << 63) | 2)
#define DSQ_LOCAL_ON	((1ULL << 63) | (1ULL << 62))

#define KFUNC		extern __attribute__((section(".ksyms")))
#define KFUNC_WEAK	extern __attribute__((section(".ksyms"), weak))

KFUNC s32 scx_bpf_create_dsq(u64 dsq, s32 node);
KFUNC void scx_bpf_kick_cpu(s32 cpu, u64 flags);
KFUNC s32 scx_bpf_dsq_nr_queued(u64 dsq);
KFUNC s32 scx_bpf_task_cpu(const struct task_struct *p);
KFUNC const struct cpumask *scx_bpf_get_idle_smtmask(void);
KFUNC const struct cpumask *scx_bpf_get_idle_cpumask(void);
KFUNC void scx_bpf_put_idle_cpumask(const struct cpumask *mask);
KFUNC bool scx_bpf_test_and_clear_cpu_idle(s32 cpu);
/* 6.13 on; before, under the names below. */
KFUNC_WEAK void scx_bpf_dsq_insert(struct task_struct *p, u64 dsq, u64 slice, u64 flags);
KFUNC_WEAK void scx_bpf_dsq_insert_vtime(struct task_struct *p, u64 dsq, u64 slice, u64 vtime, u64 flags);
KFUNC_WEAK bool scx_bpf_dsq_move_to_local(u64 dsq);
KFUNC_WEAK void scx_bpf_dispatch(struct task_struct *p, u64 dsq, u64 slice, u64 flags);
KFUNC_WEAK void scx_bpf_dispatch_vtime(struct task_struct *p, u64 dsq, u64 slice, u64 vtime, u64 flags);
KFUNC_WEAK bool scx_bpf_consume(u64 dsq);
/* 6.14 on. */
KFUNC_WEAK u64 scx_bpf_now(void);
/* 6.19 on; before, the fields are written. */
KFUNC_WEAK bool scx_bpf_task_set_slice(struct task_struct *p, u64 slice);
KFUNC_WEAK bool scx_bpf_task_set_dsq_vtime(struct task_struct *p, u64 vtime);

#endif
