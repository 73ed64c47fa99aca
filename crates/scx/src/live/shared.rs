//! What the loader and the scheduler share beside the plans: the twins of `bpf/live.h` and of two structs of `bpf/main.bpf.c`.

use bytemuck::{Pod, Zeroable};
use huddle_machine::Distance;

use crate::image::MAX_STEPS;

/// Plans of a running scheduler: wake-ups while gathering, wake-ups while spreading, new tasks.
pub const NR_PLANS: usize = 3;
/// Rows of [`Counters::taken`]: own CPU's queue, own cluster's, the LLC's other clusters', the node's, farther.
pub const NR_TAKEN: usize = 5;
/// Buckets of [`Counters::wait_us`]: bucket i holds waits below 2^i us that are in no lower one; the last one all that are longer.
pub const WAIT_BUCKETS: usize = 32;

/// `struct config`: set before loading.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Config {
    /// CPU ids.
    pub nr_cpus: u32,
    /// Clusters of the machine.
    pub nr_clusters: u32,
    /// What all plans use.
    pub used: u32,
    /// A plan reads or writes what is kept per task.
    pub needs_task: u32,
    /// The steps of gathering that may be taken before all others, plus 1; 0: none. First to wait behind a waker,
    pub near_sync: u32,
    /// then to claim prev.
    pub near_prev: u32,
    /// Longest time that a task runs while others wait, ns.
    pub slice_ns: u64,
    /// Shortest, ns.
    pub least_slice_ns: u64,
    /// A waking task takes the CPU of one that is so far ahead of it, ns of virtual time.
    pub preempt_ns: u64,
    /// A CPU that was busy for so long runs a task that will not sleep soon, ns.
    pub hog_ns: u64,
}

/// `struct exit_record`: written when the scheduler ends.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct ExitRecord {
    /// `enum scx_exit_kind`.
    pub kind: u32,
    unused: u32,
    /// Reasons of the kernel's above bit 32.
    pub code: i64,
    reason: [u8; 128],
    message: [u8; 1024],
}

impl ExitRecord {
    /// The kernel's words: reason and message.
    pub fn words(&self) -> (String, String) {
        (text(&self.reason), text(&self.message))
    }
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// `struct counters`: since the scheduler was loaded, of one CPU or summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Counters {
    /// Placements by plan and deciding step; the step behind the plan's last stands for the core's own rules.
    pub placed: [[u64; MAX_STEPS + 1]; NR_PLANS],
    /// Wake-ups by distance from the waker's to the chosen CPU.
    pub wake_distance: [u64; Distance::COUNT],
    /// Wake-ups by distance from the previous to the chosen CPU.
    pub move_distance: [u64; Distance::COUNT],
    /// Times from runnable to running.
    pub wait_us: [u64; WAIT_BUCKETS],
    /// Waiting tasks taken by CPUs that had nothing to run.
    pub taken: [u64; NR_TAKEN],
    /// Placed tasks that went straight to a CPU: an idle one, or their waker's.
    pub direct: u64,
    /// Tasks that had to wait in a cluster's queue.
    pub queued: u64,
    /// Wake-ups of tasks that were still leaving their CPU, which the core does not ask to place.
    pub unplaced: u64,
    /// Tasks queued on the one CPU that they may use.
    pub pinned: u64,
    /// CPUs taken from a task by a woken one.
    pub preempted: u64,
    /// Long-running tasks moved to an idler cluster.
    pub balanced: u64,
    /// Tasks moved to one on exec.
    pub exec_moved: u64,
    /// Run time of tasks, ns.
    pub busy_ns: u64,
}

impl Counters {
    /// All zero.
    pub fn new() -> Counters {
        Counters::zeroed()
    }

    /// Adds another CPU's.
    pub fn add(&mut self, other: &Counters) {
        for (sum, one) in words_mut(self).iter_mut().zip(bytemuck::cast_slice::<u8, u64>(bytemuck::bytes_of(other))) {
            *sum = sum.wrapping_add(*one);
        }
    }
}

impl Default for Counters {
    fn default() -> Counters {
        Counters::new()
    }
}

/// The struct is u64 alone.
fn words_mut(counters: &mut Counters) -> &mut [u64] {
    bytemuck::cast_slice_mut(std::slice::from_mut(counters))
}

/// `struct cpu_state`, of which the loader reads the counters.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct CpuState {
    times: [u64; 6],
    words: [u32; 4],
    flags: [u8; 16],
    /// What this CPU counted.
    pub counters: Counters,
}

/// `struct cluster_state`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct ClusterState {
    words: [u64; 8],
}

/// `struct sched_ext_ops` as `bpf/kernel.h` declares it, of which the loader sets flags.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Ops {
    /// `select_cpu` … `exit`; 0: none.
    pub callbacks: [u64; 8],
    /// `SCX_OPS_…`.
    pub flags: u64,
    timeout_ms: u32,
    dispatch_max_batch: u32,
    /// The hot-plug count of when the topology was read: the kernel refuses the scheduler if CPUs came or went since.
    pub hotplug_seq: u64,
    name: [u8; 128],
}

/// `SCX_OPS_SWITCH_PARTIAL`: only tasks of SCHED_EXT.
pub const SWITCH_PARTIAL: u64 = 8;
/// `SCX_OPS_ALLOW_QUEUED_WAKEUP`: a wakee that still leaves its CPU is queued there, and wake-ups of idle CPUs go by interrupt.
pub const ALLOW_QUEUED_WAKEUP: u64 = 32;
