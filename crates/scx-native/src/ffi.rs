//! The calls into `native.c`, the only unsafe code of the workspace.

use huddle_machine::{CpuId, CpuSet};
use huddle_policy::{Frozen, Wakeup};
use huddle_scx::image::{FactsImage, Image, MaskImage, PlanImage};

/// `struct world`: borrowed for the time of one call.
#[repr(C)]
struct World {
    facts: *const FactsImage,
    pool: *const u64,
    clusters: *const MaskImage,
    idle: *mut u64,
    online: *const u64,
    sched_idle: *const u64,
    allowed: *const u64,
    contested: *const u64,
    nr_running: *const u32,
    load: *const u64,
    nr_idle_scan: *const u32,
    waker_load: u64,
    wakee_load: u64,
    nr_cpus: u32,
    nr_words: u32,
    nr_pool: u32,
    nr_clusters: u32,
    nr_llcs: u32,
    recent: i32,
    waker_recent: i32,
    waker_is_per_cpu_kthread: bool,
    wakee_is_sched_idle: bool,
    prefers_current_cpu: bool,
    waker_keeps_sync: bool,
}

/// `struct answer`: where a wake-up goes and how that came about, as in [`huddle_policy::Placement`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Placed {
    /// The CPU; -1 when one of the wake-up's is beyond the machine.
    pub cpu: i32,
    /// The target that the entry rule chose.
    pub target: u32,
    /// Index of the deciding step; the number of steps for the core's own rules.
    pub step: u32,
    /// The CPU was claimed.
    pub claimed: bool,
}

unsafe extern "C" {
    fn huddle_native_place(
        world: *mut World,
        plan: *const PlanImage,
        this_cpu: u32,
        prev: u32,
        sync: bool,
        is_fork: bool,
        answer: *mut Placed,
    );
    fn huddle_native_layout(at: u32) -> u32;
}

/// The C side's sizes and offsets, in the order of its list.
pub fn layout() -> Vec<u32> {
    // SAFETY: the function reads a table of its own and bounds the index.
    (0..).map(|at| unsafe { huddle_native_layout(at) }).take_while(|&value| value != u32::MAX).collect()
}

/// This side's.
pub fn own_layout() -> [usize; 7] {
    use std::mem::{offset_of, size_of};
    [
        size_of::<World>(),
        offset_of!(World, waker_load),
        offset_of!(World, waker_keeps_sync),
        size_of::<Placed>(),
        offset_of!(Placed, claimed),
        size_of::<PlanImage>(),
        size_of::<FactsImage>(),
    ]
}

/// The interpreter in C over one machine's image.
#[derive(Clone, Debug)]
pub struct Native {
    image: Image,
    online: CpuSet,
    nr_idle_scan: Vec<u32>,
}

impl Native {
    /// The interpreter for plans that look up `image`; `online` are the CPUs of their partition.
    pub fn new(image: Image, online: &CpuSet) -> Native {
        Native { online: online.resized(image.facts.len()), image, nr_idle_scan: Vec::new() }
    }

    /// Places a wake-up by `plan`, or a new task by a plan of fork steps, and writes to the state what it writes. C takes all capacities
    /// for equal, no wake-up for wide, no task for delayed, and reads which LLCs have idle cores from the cores.
    ///
    /// `None` when the state is of another machine or does not know all that C may ask.
    pub fn place(&mut self, plan: &PlanImage, state: &mut Frozen, wakeup: &Wakeup, fork: bool) -> Option<Placed> {
        self.nr_idle_scan.clear();
        for limit in &state.nr_idle_scan {
            self.nr_idle_scan.push((*limit)?);
        }
        let mut world = self.world(state)?;
        let mut placed = Placed::default();
        let CpuId(this) = wakeup.this;
        // SAFETY: every pointer of the world is to an array of the length that stands beside it, or of nr_words or
        // nr_cpus as `world` has checked; `self` and `state` are borrowed exclusively and outlive the call, which
        // keeps none of them. C bounds what it reads by these lengths, and steps by MAX_STEPS.
        unsafe { huddle_native_place(&mut world, plan, this, wakeup.prev.0, wakeup.sync, fork, &mut placed) };
        state.recent = cpu_of(world.recent);
        state.waker_recent = cpu_of(world.waker_recent);
        Some(placed)
    }

    fn world(&mut self, state: &mut Frozen) -> Option<World> {
        let (image, nr_cpus) = (&self.image, self.image.facts.len());
        let nr_words = nr_cpus.div_ceil(64);
        let words = [&state.idle, &state.sched_idle, &state.allowed, &state.contested, &self.online];
        let fits = words.iter().all(|set| set.words().len() == nr_words)
            && state.load.len() == nr_cpus
            && state.nr_running.len() == nr_cpus
            && state.has_idle_cores.len() == self.nr_idle_scan.len();
        if !fits {
            return None;
        }
        Some(World {
            facts: image.facts.as_ptr(),
            pool: image.pool.as_ptr(),
            clusters: image.clusters.as_ptr(),
            idle: state.idle.words_mut().as_mut_ptr(),
            online: self.online.words().as_ptr(),
            sched_idle: state.sched_idle.words().as_ptr(),
            allowed: state.allowed.words().as_ptr(),
            contested: state.contested.words().as_ptr(),
            nr_running: state.nr_running.as_ptr(),
            load: state.load.as_ptr(),
            nr_idle_scan: self.nr_idle_scan.as_ptr(),
            waker_load: state.waker_load,
            wakee_load: state.wakee_load,
            nr_cpus: nr_cpus as u32,
            nr_words: nr_words as u32,
            nr_pool: image.pool.len() as u32,
            nr_clusters: image.clusters.len() as u32,
            nr_llcs: self.nr_idle_scan.len() as u32,
            recent: number_of(state.recent),
            waker_recent: number_of(state.waker_recent),
            waker_is_per_cpu_kthread: state.waker_is_per_cpu_kthread,
            wakee_is_sched_idle: state.wakee_is_sched_idle,
            prefers_current_cpu: state.prefers_current_cpu,
            waker_keeps_sync: state.waker_keeps_sync?,
        })
    }
}

fn number_of(cpu: Option<CpuId>) -> i32 {
    cpu.map_or(-1, |cpu| cpu.0 as i32)
}

fn cpu_of(number: i32) -> Option<CpuId> {
    u32::try_from(number).ok().map(CpuId)
}
