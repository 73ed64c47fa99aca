//! A world that stands still: plain data as a [`View`], for explaining one decision, for tests and for benches.

use std::sync::Arc;

use huddle_domains::DomainTree;
use huddle_machine::{CpuId, CpuSet, Distance};

use crate::View;

/// The state of a machine at the moment of one decision. Every field may be set freely.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frozen {
    /// CPUs with nothing to run.
    pub idle: CpuSet,
    /// Threads of each CPU's core within the tree's online CPUs, by CPU: with [`Frozen::idle`] they say which cores are idle as a
    /// whole.
    pub smt: Arc<[CpuSet]>,
    /// CPUs that another wake-up claims first.
    pub contested: CpuSet,
    /// CPUs that run only SCHED_IDLE tasks.
    pub sched_idle: CpuSet,
    /// The wakee's affinity within the online CPUs.
    pub allowed: CpuSet,
    /// Tasks by CPU.
    pub nr_running: Vec<u32>,
    /// Of the tasks by CPU those that sleep, their dequeue delayed.
    pub nr_delayed: Vec<u32>,
    /// Tasks in the CPUs' own queues by CPU.
    pub nr_local: Vec<u32>,
    /// Load by CPU.
    pub load: Vec<u64>,
    /// Capacity by CPU.
    pub capacity: Vec<u64>,
    /// The waker's load.
    pub waker_load: u64,
    /// The wakee's load.
    pub wakee_load: u64,
    /// The waker's switches of partner, if known.
    pub waker_flips: Option<u32>,
    /// The wakee's switches of partner, if known.
    pub wakee_flips: Option<u32>,
    /// The waker is a per-CPU kernel thread.
    pub waker_is_per_cpu_kthread: bool,
    /// The waker sleeps soon after its sync wake-ups, if known.
    pub waker_keeps_sync: Option<bool>,
    /// The wakee has policy SCHED_IDLE.
    pub wakee_is_sched_idle: bool,
    /// The wake-up asks for this CPU.
    pub prefers_current_cpu: bool,
    /// CPUs whose capacity fits the wakee.
    pub fitting: CpuSet,
    /// Of the others those that miss only the wakee's minimum utilisation clamp.
    pub clamped: CpuSet,
    /// The wakee's recent CPU.
    pub recent: Option<CpuId>,
    /// The waker's recent CPU.
    pub waker_recent: Option<CpuId>,
    /// The idle-core hint by LLC.
    pub has_idle_cores: Vec<bool>,
    /// Average idle time by CPU, ns.
    pub avg_idle: Vec<u64>,
    /// Average scan cost by CPU, ns.
    pub avg_scan_cost: Vec<u64>,
    /// Aged idle time by CPU, ns.
    pub aged_idle: Vec<u64>,
    /// Scan limit by LLC, where known.
    pub nr_idle_scan: Vec<Option<u32>>,
    /// Start of the next scan by target.
    pub next_cpu: Vec<Option<CpuId>>,
    /// What the last rotating choice fell on, by CPU that chose.
    pub last_rotated: Vec<CpuId>,
    /// Time of a scan before its first CPU, ns.
    pub scan_fixed: u64,
    /// Time per CPU examined, ns.
    pub scan_per_cpu: [u64; Distance::COUNT],
}

impl Frozen {
    /// A scan limit that no record's scans reach together.
    pub const AMPLE: u32 = 1_000_000_000;

    /// All CPUs idle and allowed, no claim contested, no recent CPU, no idle-core hint, a waker that keeps no sync promise, budgets
    /// that no scan exhausts: average idle times of 1 s, scan costs of 0, scan limits of [`Frozen::AMPLE`] CPUs.
    pub fn new(tree: &DomainTree) -> Frozen {
        let nr_cpus = tree.nr_cpus;
        let threads = tree.smt.iter().map(|&core| tree.span(core).intersection(&tree.online));
        Frozen {
            idle: tree.online.clone(),
            smt: threads.collect(),
            contested: CpuSet::new(nr_cpus),
            sched_idle: CpuSet::new(nr_cpus),
            allowed: tree.online.clone(),
            nr_running: vec![0; nr_cpus],
            nr_delayed: vec![0; nr_cpus],
            nr_local: vec![0; nr_cpus],
            load: vec![0; nr_cpus],
            capacity: tree.capacity.iter().map(|&capacity| u64::from(capacity)).collect(),
            waker_load: 0,
            wakee_load: 0,
            waker_flips: Some(0),
            wakee_flips: Some(0),
            waker_is_per_cpu_kthread: false,
            waker_keeps_sync: Some(false),
            wakee_is_sched_idle: false,
            prefers_current_cpu: false,
            fitting: CpuSet::full(nr_cpus),
            clamped: CpuSet::new(nr_cpus),
            recent: None,
            waker_recent: None,
            has_idle_cores: vec![false; tree.nr_llcs],
            avg_idle: vec![1_000_000_000; nr_cpus],
            avg_scan_cost: vec![0; nr_cpus],
            aged_idle: vec![1_000_000_000; nr_cpus],
            nr_idle_scan: vec![Some(Frozen::AMPLE); tree.nr_llcs],
            next_cpu: vec![None; nr_cpus],
            last_rotated: vec![CpuId(0); nr_cpus],
            scan_fixed: 100,
            scan_per_cpu: [75; Distance::COUNT],
        }
    }

    /// Lets a CPU run one task of load 1024; no effect on a CPU beyond the machine.
    pub fn occupy(&mut self, cpu: CpuId) {
        self.idle.remove(cpu);
        if let (Some(running), Some(load)) = (self.nr_running.get_mut(cpu.index()), self.load.get_mut(cpu.index())) {
            *running = 1;
            *load = 1024;
        }
    }
}

#[inline]
fn word(set: &CpuSet, word: usize) -> u64 {
    set.words().get(word).copied().unwrap_or(0)
}

impl View for Frozen {
    #[inline]
    fn idle_word(&self, index: usize) -> u64 {
        word(&self.idle, index)
    }
    fn idle_core_word(&self, index: usize) -> Option<u64> {
        let mut whole = word(&self.idle, index);
        let mut rest = whole;
        while rest != 0 {
            let bit = rest.trailing_zeros();
            rest &= rest - 1;
            let threads = self.smt.get(64 * index + bit as usize);
            if threads.is_some_and(|threads| !threads.is_subset(&self.idle)) {
                whole &= !(1 << bit);
            }
        }
        Some(whole)
    }
    fn claim(&mut self, cpu: CpuId) -> Option<bool> {
        let won = self.idle.contains(cpu) && !self.contested.contains(cpu);
        self.idle.remove(cpu);
        Some(won)
    }
    #[inline]
    fn sched_idle_word(&self, index: usize) -> u64 {
        word(&self.sched_idle, index)
    }
    #[inline]
    fn allowed_word(&self, index: usize) -> u64 {
        word(&self.allowed, index)
    }
    fn nr_running(&self, cpu: CpuId) -> Option<u32> {
        self.nr_running.get(cpu.index()).copied()
    }
    fn nr_delayed(&self, cpu: CpuId) -> Option<u32> {
        self.nr_delayed.get(cpu.index()).copied()
    }
    fn nr_local(&self, cpu: CpuId) -> Option<u32> {
        self.nr_local.get(cpu.index()).copied()
    }
    fn last_rotated(&self, this: CpuId) -> Option<CpuId> {
        self.last_rotated.get(this.index()).copied()
    }
    fn set_last_rotated(&mut self, this: CpuId, cpu: CpuId) {
        if let Some(last) = self.last_rotated.get_mut(this.index()) {
            *last = cpu;
        }
    }
    fn cpu_load(&self, cpu: CpuId) -> Option<u64> {
        self.load.get(cpu.index()).copied()
    }
    fn capacity(&self, cpu: CpuId) -> Option<u64> {
        self.capacity.get(cpu.index()).copied()
    }
    fn waker_load(&self) -> Option<u64> {
        Some(self.waker_load)
    }
    fn wakee_load(&self) -> Option<u64> {
        Some(self.wakee_load)
    }
    fn waker_flips(&self) -> Option<u32> {
        self.waker_flips
    }
    fn wakee_flips(&self) -> Option<u32> {
        self.wakee_flips
    }
    fn waker_is_per_cpu_kthread(&self) -> bool {
        self.waker_is_per_cpu_kthread
    }
    fn prefers_current_cpu(&self) -> bool {
        self.prefers_current_cpu
    }
    fn waker_keeps_sync(&self) -> Option<bool> {
        self.waker_keeps_sync
    }
    fn wakee_is_sched_idle(&self) -> bool {
        self.wakee_is_sched_idle
    }
    fn fits(&self, cpu: CpuId) -> Option<bool> {
        Some(self.fitting.contains(cpu))
    }
    fn misses_only_clamp(&self, cpu: CpuId) -> Option<bool> {
        Some(self.clamped.contains(cpu))
    }
    fn recent(&self) -> Option<CpuId> {
        self.recent
    }
    fn set_recent(&mut self, cpu: CpuId) {
        self.recent = Some(cpu);
    }
    fn set_waker_recent(&mut self, cpu: CpuId) {
        self.waker_recent = Some(cpu);
    }
    fn has_idle_cores(&self, llc: u32) -> Option<bool> {
        self.has_idle_cores.get(llc as usize).copied()
    }
    fn set_has_idle_cores(&mut self, llc: u32, value: bool) {
        if let Some(hint) = self.has_idle_cores.get_mut(llc as usize) {
            *hint = value;
        }
    }
    fn avg_idle(&self, cpu: CpuId) -> Option<u64> {
        self.avg_idle.get(cpu.index()).copied()
    }
    fn avg_scan_cost(&self, cpu: CpuId) -> Option<u64> {
        self.avg_scan_cost.get(cpu.index()).copied()
    }
    fn set_avg_scan_cost(&mut self, cpu: CpuId, ns: u64) {
        if let Some(cost) = self.avg_scan_cost.get_mut(cpu.index()) {
            *cost = ns;
        }
    }
    fn aged_idle(&mut self, cpu: CpuId) -> Option<u64> {
        self.aged_idle.get(cpu.index()).copied()
    }
    fn charge_aged_idle(&mut self, cpu: CpuId, ns: u64) {
        if let Some(idle) = self.aged_idle.get_mut(cpu.index()) {
            *idle = idle.saturating_sub(ns);
        }
    }
    fn scan_time(&self, examined: &[u32; Distance::COUNT]) -> u64 {
        let per_cpu: u64 = examined.iter().zip(&self.scan_per_cpu).map(|(&count, &time)| u64::from(count) * time).sum();
        self.scan_fixed + per_cpu
    }
    fn nr_idle_scan(&self, llc: u32) -> Option<u32> {
        self.nr_idle_scan.get(llc as usize).copied().flatten()
    }
    fn next_cpu(&self, target: CpuId) -> Option<CpuId> {
        self.next_cpu.get(target.index()).copied().flatten()
    }
    fn set_next_cpu(&mut self, target: CpuId, cpu: CpuId) {
        if let Some(next) = self.next_cpu.get_mut(target.index()) {
            *next = Some(cpu);
        }
    }
}
