//! What the loader and the scheduler share beside the plans. The build script puts it into `plan.h`, for `bpf/main.bpf.c`.

use std::ffi::c_char;

use bytemuck::{Pod, Zeroable};

use crate::image::{DISTANCES, NR_PLACED, NR_PLANS, NR_TAKEN};

/// Buckets of [`Counters::wait_us`]: bucket i holds waits below 2^i us that are in no lower one; the last one all that are longer.
pub const WAIT_BUCKETS: usize = 32;

/// Set before loading.
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
    /// Longest time that a task runs while others wait, ns.
    pub slice_ns: u64,
    /// Shortest, ns.
    pub least_slice_ns: u64,
    /// A waking task takes the CPU of one that is so far ahead of it, ns of virtual time.
    pub preempt_ns: u64,
    /// A CPU that was busy for so long runs a task that will not sleep soon, ns.
    pub hog_ns: u64,
}

/// Written when the scheduler ends.
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

/// Since the scheduler was loaded, of one CPU or summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Counters {
    /// Placements by plan and deciding step; the step behind the plan's last stands for the core's own rules.
    pub placed: [[u64; NR_PLACED]; NR_PLANS],
    /// Wake-ups by distance from the waker's to the chosen CPU.
    pub wake_distance: [u64; DISTANCES],
    /// Wake-ups by distance from the previous to the chosen CPU.
    pub move_distance: [u64; DISTANCES],
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

/// A CPU's state: written by that CPU, but for `claimed_at`, `kicked` and `pushed`.
#[allow(dead_code)] // C's
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct CpuState {
    /// Its task's lag was `lag` at this time.
    started: u64,
    lag: i64,
    /// Its task has run without a break since then.
    since: u64,
    /// When its task gave the sync hint that is looked after.
    vowed_at: u64,
    /// When it was claimed, for a wake-up that is looked after.
    claimed_at: u64,
    /// How long a task waits for it to come out of idle, on average; 0: not known.
    idle_wait: u64,
    /// Of its task; 0: nothing of ours runs.
    weight: u32,
    /// The cluster from whose queue its next task was taken.
    taken_from: u32,
    /// The task that ran last.
    task: i32,
    /// The task that has just changed its program.
    exec: i32,
    /// Where its task goes when it gives the CPU up, plus 1.
    moves_to: i32,
    /// Tasks may wait in its own queue.
    pinned: u32,
    /// Its task ran on without end when it was last stopped.
    ran_long: u8,
    /// The last task was taken from its own queue.
    own_turn: u8,
    /// It was kicked off its task.
    kicked: u8,
    /// A kernel thread has taken it from its task.
    pushed: u8,
    /// Its task is of `SCHED_IDLE`.
    sched_idle: u8,
    /// `VOW_…`
    vow: u8,
    /// Wake-ups that it has made.
    wakeups: u8,
    unused: [u8; 1],
    /// What it counted.
    pub n: Counters,
}

/// A cluster's state, alone on its cache line.
#[allow(dead_code)] // C's
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct ClusterState {
    /// Virtual time, from [`CLOCK_ORIGIN`](crate::image::CLOCK_ORIGIN) on.
    pub clock: u64,
    /// When a task last joined its queue.
    filled_at: u64,
    /// When an idle CPU of it was last called for one that waits.
    called_at: u64,
    /// The task that joined last, until it runs.
    joining: u64,
    unused: [u64; 4],
}

/// What the scheduler sets of the kernel's `struct sched_ext_ops`; libbpf finds the fields there by their names.
#[allow(dead_code)] // C's
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Ops {
    select_cpu: Option<extern "C" fn()>,
    enqueue: Option<extern "C" fn()>,
    dispatch: Option<extern "C" fn()>,
    running: Option<extern "C" fn()>,
    stopping: Option<extern "C" fn()>,
    enable: Option<extern "C" fn()>,
    init: Option<extern "C" fn()>,
    exit: Option<extern "C" fn()>,
    /// `SCX_OPS_…`.
    pub flags: u64,
    /// The hot-plug count of when the topology was read: the kernel refuses the scheduler if CPUs came or went since.
    pub hotplug_seq: u64,
    timeout_ms: u32,
    name: [c_char; 128],
}

/// `SCX_OPS_SWITCH_PARTIAL`: only tasks of SCHED_EXT.
pub const SWITCH_PARTIAL: u64 = 8;
/// `SCX_OPS_ALLOW_QUEUED_WAKEUP`: a wakee that still leaves its CPU is queued there, and wake-ups of idle CPUs go by interrupt.
pub const ALLOW_QUEUED_WAKEUP: u64 = 32;
