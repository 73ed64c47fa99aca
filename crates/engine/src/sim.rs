//! The simulation: events, the run queue's life cycle, and time keeping.
//!
//! Each CPU has at most one *work* event: the end of its present segment (a stretch of a task, a context switch, leaving
//! idle). Ticks and interrupts have their own slots; they lengthen the segment they hit. A task is a small state machine
//! (`Stage`) that [`Sim::advance`] drives: "the segment of this stage is over, act on it and begin the next".

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use huddle_domains::{Domain, LagLimit, PipeWriterWake, QueueKind, SliceRules};
use huddle_machine::{CpuId, CpuSet, Distance};
use huddle_policy::Scratch;
use huddle_program::Op;
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::autogroup::Autogroup;
use crate::cache::CacheAware;
use crate::costs::Costs;
use crate::dsq::Queues;
use crate::heap::{EventHeap, NEVER};
use crate::memory::{Crowd, MemorySystem};
use crate::pace::Pace;
use crate::pelt::Pelt;
use crate::report::{ByDistance, Cause, Mechanism, Report, SimError, WakeCounts};
use crate::state::{
    Channel, Cpu, DomainState, Flips, Gate, LlcState, LoadHistory, NONE, Phase, Portions, Run, Stage, Task, ipi,
};
use crate::without::Part;
use crate::{Observer, Setup, rebuild};

/// Weight of a task of nice 0.
pub(crate) const NICE_0: u64 = 1024;

/// Queue constants of the kernel, scaled by the number of CPUs (spec 6.1).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tuning {
    pub latency: u64,
    pub min_granularity: u64,
    pub wakeup_granularity: u64,
    pub nr_latency: u32,
    /// EEVDF in place of CFS: `min_granularity` is the base slice.
    pub eevdf: bool,
    /// Slices of tasks' own, and what came with them (EEVDF of 6.12 on).
    pub own_slices: bool,
    /// Protection for the shortest slice queued at most (EEVDF of 6.17 on).
    pub shortest_slice: bool,
    /// Tasks that are not eligible stay queued when they fall asleep (EEVDF of 6.12 on).
    pub delay_dequeue: bool,
    pub running_wins_ties: bool,
    pub fork_preempts: bool,
    pub lazy_preempt: bool,
    /// Lag is limited by the longest slice queued and a tick.
    pub longest_lag: bool,
    pub delayed_lag_kept: bool,
    pub idle_sampled_at_exit: bool,
    pub by_load: bool,
    /// There are LLCs to choose from, and the kernel does.
    pub cache_aware: bool,
    /// Readers and writers of a pipe sleep on one queue.
    pub shared_pipes: bool,
    /// Huddle's scheduler in place of the fair class.
    pub dsq: bool,
    pub migration_cost: u64,
    /// One tick, ns.
    pub jiffy: u64,
    /// A running kernel path can be preempted.
    pub preempt: bool,
    /// Locks of run queues and wait queues are never waited for.
    pub no_locks: bool,
    /// A pipe's mutex keeps nobody out.
    pub open_pipes: bool,
    /// Wakers enqueue wakees themselves.
    pub no_wake_list: bool,
    /// A chosen idle CPU is claimed.
    pub claims: bool,
    /// Nobody balances.
    pub no_balancing: bool,
}

/// What is counted in the measured stretch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub wakes: WakeCounts,
    pub migrations: [ByDistance; Cause::COUNT],
    pub switches: u64,
    purity_sum: f64,
    purity_samples: u64,
    clusters_sum: u64,
    cluster_samples: u64,
}

pub(crate) struct Sim<'a, O: Observer> {
    pub setup: Setup<'a>,
    pub observer: &'a mut O,
    pub costs: Costs,
    pub tuning: Tuning,
    pub now: u64,
    /// The CPU whose event this is: it sends the interrupts.
    pub acting: usize,
    pub heap: EventHeap,
    pub cpus: Vec<Cpu>,
    pub tasks: Vec<Task>,
    /// The scheduler's own queues, where it replaces the fair class.
    pub dsq: Queues,
    pub channels: Vec<Channel>,
    pub gates: Vec<Gate>,
    /// When each wait queue's lock is free again: readers and writers of each channel.
    pub wait_locks: Vec<u64>,
    /// Threads and the LLCs that they prefer (7.2).
    pub cache: CacheAware,
    /// Load of the last ticks by CPU (before 5.3).
    pub load_history: Vec<LoadHistory>,
    /// Idle CPUs as placement sees them.
    pub idle: CpuSet,
    /// CPUs whose tick is stopped.
    pub nohz: CpuSet,
    pub nohz_next_balance: u64,
    /// Affinities: of the program, of background tasks, of bound tasks.
    pub affinities: Vec<CpuSet>,
    pub domains: Vec<DomainState>,
    pub llcs: Vec<LlcState>,
    /// By shared group capacity: a lower level could not move pinned tasks.
    pub imbalanced: Vec<bool>,
    /// Some task has a slice of its own.
    pub custom_slices: bool,
    /// Some queue has two tasks (`root_domain.overload`).
    pub overloaded: bool,
    pub distance: Vec<Distance>,
    pub scratch: Scratch,
    pub memory: MemorySystem,
    /// The running memory-bound tasks.
    pub crowd: Crowd,
    /// The session's group.
    pub autogroup: Autogroup,
    /// How fast each CPU works.
    pub pace: Pace,
    pub rng: Pcg64Mcg,
    jitter: Vec<f64>,
    pub timers: BinaryHeap<Reverse<(u64, u32)>>,
    /// Tasks of the program; the rest is background.
    pub program_tasks: usize,
    pub alive: usize,
    started: Option<u64>,
    /// When the domains were rebuilt.
    pub rebuilt: Option<u64>,
    stopped: Option<Stopped>,
    pub counts: Counts,
    events: u64,
    pub error: Option<SimError>,
}

struct Stopped {
    at: u64,
    cpu_ns: [u64; Mechanism::COUNT],
    counts: Counts,
}

const PROGRAM: u32 = 0;
const BACKGROUND: u32 = 1;
/// Jiffies at the start: the machine has run for a while, so that balancing dates can lie in the past.
pub(crate) const FIRST_JIFFY: u64 = 1 << 32;
/// Background tasks: one for so many CPUs.
const CPUS_PER_BACKGROUND_TASK: usize = 4;

impl<'a, O: Observer> Sim<'a, O> {
    pub fn new(setup: &Setup<'a>, observer: &'a mut O) -> Result<Self, SimError> {
        setup.program.validate()?;
        let tree = setup.tree;
        let nr_cpus = tree.nr_cpus;
        let allowed = setup.cpus.resized(nr_cpus).intersection(&tree.online);
        if allowed.is_empty() {
            return Err(SimError::NoCpu { cpus: setup.cpus.to_string() });
        }
        for &(task, cpu) in setup.pins {
            if task.index() >= setup.program.tasks.len() || !allowed.contains(cpu) {
                return Err(SimError::BadPin { task: task.0, cpu: cpu.0, cpus: allowed.to_string() });
            }
        }
        let not_simulated = |what| SimError::NotSimulated { kernel: setup.kernel.name.clone(), what };
        // Whatever the kernel makes of it: x86 takes hybrid CPUs for equal.
        let capacity = &setup.machine.topology.capacity;
        if tree.online.iter().any(|cpu| capacity[cpu.index()] != capacity[0]) {
            return Err(not_simulated("a machine whose CPUs differ in capacity"));
        }
        let without = setup.conditions.without;
        let costs = Costs::compile(&setup.machine.costs, without);
        let mut rng = Pcg64Mcg::seed_from_u64(setup.seed);
        let online = tree.online.len();
        let scale = 1 + u64::from((online.min(8) as u32).ilog2());
        let queue = &setup.kernel.queue;
        let eevdf = queue.kind == QueueKind::Eevdf;
        let tuning = Tuning {
            latency: queue.latency_ns * scale,
            min_granularity: queue.min_granularity_ns * scale,
            wakeup_granularity: queue.wakeup_granularity_ns * scale,
            nr_latency: queue.nr_latency,
            eevdf,
            own_slices: eevdf && queue.slices != SliceRules::Base,
            shortest_slice: eevdf && queue.slices == SliceRules::Shortest,
            delay_dequeue: eevdf && queue.delay_dequeue,
            running_wins_ties: queue.running_wins_ties,
            fork_preempts: !eevdf || queue.fork_preempts,
            lazy_preempt: eevdf && queue.lazy_preempt && !setup.machine.config.preempt,
            longest_lag: queue.lag_limit == LagLimit::LongestSliceAndTick,
            delayed_lag_kept: queue.delayed_lag_kept,
            idle_sampled_at_exit: setup.kernel.balance.idle_sampled_at_exit,
            by_load: setup.kernel.balance.by_load,
            cache_aware: false,
            shared_pipes: setup.kernel.pipe_writer_wake == PipeWriterWake::SharedQueue,
            dsq: queue.kind == QueueKind::ClusterDsq,
            migration_cost: queue.migration_cost_ns,
            jiffy: 1_000_000_000 / u64::from(setup.machine.config.hz),
            preempt: setup.machine.config.preempt,
            no_locks: without.has(Part::Locks),
            open_pipes: without.has(Part::PipeMutex),
            no_wake_list: without.has(Part::WakeList),
            claims: without.has(Part::Collisions) && queue.kind != QueueKind::ClusterDsq,
            no_balancing: without.has(Part::Balancing),
        };
        rebuild::check(setup, tuning.dsq)?;
        let cpus: Vec<Cpu> = (0..nr_cpus).map(|_| new_cpu(&tuning, &mut rng)).collect();
        let topology = &setup.machine.topology;
        let distance = all_distances(topology, nr_cpus);
        let domains = tree
            .domains
            .iter()
            .map(|domain| DomainState {
                balance_interval: domain.min_interval,
                last_balance: FIRST_JIFFY - balance_phase(setup.seed, domain, &tuning),
                newidle_calls: 512,
                newidle_success: 256,
                newidle_ratio: 512,
                ..DomainState::default()
            })
            .collect();
        let jitter = jitter_table(costs.jitter);
        let channels = setup.program.channels.iter().map(|&spec| Channel::new(spec, &costs)).collect();
        let mut sim = Sim {
            setup: *setup,
            observer,
            costs,
            tuning,
            now: 0,
            acting: 0,
            heap: EventHeap::new(3 * nr_cpus + 3),
            cpus,
            tasks: Vec::new(),
            dsq: Queues::none(),
            channels,
            wait_locks: vec![0; 2 * setup.program.channels.len()],
            gates: vec![Gate::default(); setup.program.gates as usize],
            cache: CacheAware::default(),
            load_history: if tuning.by_load { vec![LoadHistory::default(); nr_cpus] } else { Vec::new() },
            idle: tree.online.clone(),
            nohz: tree.online.clone(),
            nohz_next_balance: FIRST_JIFFY,
            affinities: vec![allowed, tree.online.clone()],
            domains,
            llcs: vec![LlcState::default(); tree.nr_llcs],
            imbalanced: vec![false; tree.nr_capacities],
            custom_slices: false,
            overloaded: false,
            distance,
            scratch: setup.plan.scratch(),
            memory: MemorySystem::new(setup.machine, tree, without),
            crowd: Crowd::default(),
            autogroup: Autogroup { on: !without.has(Part::Autogroup) && !tuning.dsq && !tuning.by_load, load: 0 },
            pace: Pace::new(setup.machine, tree, without),
            rng,
            jitter,
            timers: BinaryHeap::new(),
            program_tasks: setup.program.tasks.len(),
            alive: setup.program.tasks.len(),
            started: None,
            rebuilt: None,
            stopped: None,
            counts: Counts::default(),
            events: 0,
            error: None,
        };
        sim.counts.wakes.placed = vec![[0; Distance::COUNT]; setup.plan.nr_steps() + 1];
        sim.make_tasks();
        if !rebuild::says_start(setup) {
            sim.await_rebuild();
        }
        Ok(sim)
    }

    /// Creates the program's tasks (not started but for the first) and the background tasks (asleep).
    fn make_tasks(&mut self) {
        for spec in &self.setup.program.tasks {
            self.tasks.push(new_task(spec.script.0, PROGRAM, &self.tuning));
        }
        for &(task, cpu) in self.setup.pins {
            self.tasks[task.index()].affinity = self.affinities.len() as u32;
            self.affinities.push(CpuSet::from_cpus(self.cpus.len(), [cpu.index()]));
        }
        let online: Vec<CpuId> = self.setup.tree.online.iter().collect();
        if self.costs.noise_interval > 0 {
            for index in 0..online.len().div_ceil(CPUS_PER_BACKGROUND_TASK) {
                let mut task = new_task(NONE, BACKGROUND, &self.tuning);
                task.stage = Stage::NoiseRun;
                task.run = Run::Sleeping;
                task.cpu = online[index * CPUS_PER_BACKGROUND_TASK].0;
                task.recent = task.cpu;
                self.tasks.push(task);
                let wake = self.noise_interval();
                self.timers.push(Reverse((wake, self.tasks.len() as u32 - 1)));
            }
        }
        if self.tuning.dsq {
            self.dsq = Queues::new(self.setup.plan, self.setup.tree, self.tasks.len());
            self.refresh_scan_budgets();
        }
        if self.tuning.eevdf && self.setup.kernel.balance.cache_aware {
            let cache = CacheAware::new(self.setup.tree, self.tasks.len(), self.tuning.jiffy);
            self.tuning.cache_aware = cache.is_some();
            self.cache = cache.unwrap_or_default();
        }
        let affinity = self.tasks[0].affinity as usize;
        let starts = self.affinities[affinity].len() as u64;
        let nth = self.below(starts) as usize;
        let start = self.affinities[affinity].iter().nth(nth);
        if let Some(cpu) = start {
            let main = &mut self.tasks[0];
            main.mm = 0;
            main.cpu = cpu.0;
            main.recent = cpu.0;
            main.run = Run::Waking;
            main.pelt = Pelt::new_task(0, NICE_0, &Pelt::default());
            self.activate(0, cpu.index(), false);
            self.kick_idle(cpu.index(), cpu.index());
        }
        self.set_timer();
        let (slot, jiffy) = (self.sample_slot(), self.tuning.jiffy);
        self.heap.set(slot, jiffy);
    }

    /// Runs the program to its end.
    pub fn run(mut self) -> Result<Report, SimError> {
        while self.alive > 0 {
            let Some((time, slot)) = self.heap.peek() else {
                return Err(SimError::Deadlock { waiting: self.alive, at_ms: self.now / 1_000_000 });
            };
            debug_assert!(time >= self.now);
            self.now = time;
            self.events += 1;
            if time > self.setup.limit_ns {
                let (waiting, tasks) = (self.alive, self.program_tasks);
                return Err(SimError::TimeLimit { waiting, tasks, limit_ms: self.setup.limit_ns / 1_000_000 });
            }
            self.dispatch(slot, time);
            if self.error.is_some() {
                break;
            }
        }
        match self.error.take() {
            Some(error) => Err(error),
            None => self.report(),
        }
    }

    fn dispatch(&mut self, slot: usize, time: u64) {
        let nr_cpus = self.cpus.len();
        if slot < nr_cpus {
            self.acting = slot;
            self.work(slot);
        } else if slot < 2 * nr_cpus {
            self.acting = slot - nr_cpus;
            self.tick(self.acting);
        } else if slot < 3 * nr_cpus {
            self.acting = slot - 2 * nr_cpus;
            self.interrupt(self.acting);
        } else if slot == 3 * nr_cpus {
            self.expire_timers();
        } else if slot == self.sample_slot() {
            self.sample();
        } else {
            self.rebuild_domains();
        }
        // Whoever began something new moved its slot into the future; a slot that still shows this time is done.
        if self.heap.time(slot) == time {
            self.heap.clear(slot);
        }
    }

    pub fn tick_slot(&self, cpu: usize) -> usize {
        self.cpus.len() + cpu
    }

    pub fn ipi_slot(&self, cpu: usize) -> usize {
        2 * self.cpus.len() + cpu
    }

    fn sample_slot(&self) -> usize {
        3 * self.cpus.len() + 1
    }

    pub(crate) fn rebuild_slot(&self) -> usize {
        3 * self.cpus.len() + 2
    }

    #[inline]
    pub fn dist(&self, a: usize, b: usize) -> usize {
        self.distance[a * self.cpus.len() + b] as usize
    }

    /// A number below `bound` (at least 1).
    fn below(&mut self, bound: u64) -> u64 {
        self.rng.next_u64() % bound.max(1)
    }

    /// `ns` with the machine's jitter.
    #[inline]
    pub(crate) fn jittered(&mut self, ns: u64) -> u64 {
        let factor = self.jitter[(self.rng.next_u64() >> 56) as usize];
        // Signed numbers convert in one instruction; no segment lasts three centuries.
        (ns.min(i64::MAX as u64) as i64 as f64 * factor) as i64 as u64
    }

    /// An exponential draw with that mean.
    pub(crate) fn exponential(&mut self, mean: u64) -> u64 {
        let uniform = ((self.rng.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        (-libm::log(uniform) * mean as f64) as u64
    }

    pub(crate) fn noise_interval(&mut self) -> u64 {
        let tasks = self.cpus.len().div_ceil(CPUS_PER_BACKGROUND_TASK) as u64;
        self.now + 1 + self.exponential(self.costs.noise_interval * tasks)
    }

    // ---- time keeping ----------------------------------------------------------------------------------------------------

    /// Accounts the CPU's time up to now.
    #[inline]
    pub fn charge(&mut self, c: usize) {
        let now = self.now;
        let cpu = &mut self.cpus[c];
        let ns = now - cpu.accounted;
        cpu.accounted = now;
        cpu.portions.spend(ns, cpu.mechanism, &mut cpu.totals);
    }

    /// Begins a segment of the current task: `ns` of `mechanism` after `lines` of transfers, and whatever the task owes
    /// for having moved.
    #[inline]
    pub(crate) fn segment(&mut self, c: usize, ns: u64, mechanism: Mechanism, lines: u64) {
        self.charge(c);
        let task = self.cpus[c].curr as usize;
        let refill = std::mem::take(&mut self.tasks[task].refill);
        let back = self.pull_back(c);
        let cpu = &mut self.cpus[c];
        cpu.phase = Phase::Running;
        cpu.mechanism = mechanism;
        cpu.portions.clear();
        cpu.portions.push(Mechanism::SharedData, lines + back);
        cpu.portions.push(Mechanism::Refill, refill);
        self.heap.set(c, self.now + (ns + lines + back + refill).max(1));
        self.pace_begins(c);
    }

    /// The lines of its own queue that a CPU pulls back after another has enqueued there.
    #[inline]
    fn pull_back(&mut self, c: usize) -> u64 {
        let by = std::mem::replace(&mut self.cpus[c].dirtied_by, NONE);
        if by == NONE { 0 } else { self.costs.queue_lines[self.dist(c, by as usize)] }
    }

    /// Time that an interrupt takes from whatever the CPU does.
    pub fn steal(&mut self, c: usize, mechanism: Mechanism, ns: u64) {
        self.charge(c);
        let cpu = &mut self.cpus[c];
        cpu.portions.push(mechanism, ns);
        match cpu.phase {
            Phase::Running | Phase::Switching | Phase::IdleExit => {
                let end = self.heap.time(c);
                if end != NEVER {
                    self.heap.set(c, end + ns);
                }
                cpu.memory_since += ns;
            }
            Phase::Idle | Phase::Spinning => {}
        }
    }

    // ---- work events -----------------------------------------------------------------------------------------------------

    fn work(&mut self, c: usize) {
        if self.pace.on && self.falls_behind(c) {
            return;
        }
        // By far the most frequent, and foreseen better than one of five.
        if self.cpus[c].phase == Phase::Running {
            return self.advance(c);
        }
        match self.cpus[c].phase {
            Phase::Switching => self.finish_switch(c),
            Phase::IdleExit => {
                self.charge(c);
                let slot = self.ipi_slot(c);
                self.heap.clear(slot);
                let flags = std::mem::take(&mut self.cpus[c].ipi);
                let queued = self.cpus[c].wake_list.len() as u64;
                self.take_wake_list(c);
                let balance = if flags & ipi::NOHZ != 0 { self.nohz_balance(c) } else { 0 };
                self.schedule(c, balance);
                self.prolong(c, Mechanism::WakeUp, queued * self.costs.enqueue);
            }
            Phase::Running | Phase::Idle | Phase::Spinning => {}
        }
    }

    fn expire_timers(&mut self) {
        while let Some(&Reverse((time, task))) = self.timers.peek() {
            if time > self.now {
                break;
            }
            self.timers.pop();
            self.wake_from_timer(task as usize);
        }
        self.set_timer();
    }

    pub(crate) fn set_timer(&mut self) {
        let time = self.timers.peek().map_or(NEVER, |&Reverse((time, _))| time);
        let slot = 3 * self.cpus.len();
        self.heap.set(slot, time);
    }

    /// A background task's timer interrupt on the CPU where it sleeps.
    fn wake_from_timer(&mut self, p: usize) {
        let c = self.tasks[p].cpu as usize;
        self.acting = c;
        if self.tasks[p].on_cpu {
            let retry = self.now + self.costs.switch_out + self.costs.switch_in;
            self.timers.push(Reverse((retry, p as u32)));
            return;
        }
        self.begins_waking(p);
        if !self.requeue_woken(p, c) {
            let chosen = self.place(c, p, false, None).0;
            self.activate_wakeup(p, chosen, c);
        }
        if self.cpus[c].phase == Phase::Idle {
            self.leave_idle(c, 0);
        } else {
            let ns = self.costs.irq + self.costs.wake_up;
            self.steal(c, Mechanism::Interrupt, ns);
            self.preempt_if_asked(c);
        }
    }

    /// Samples group purity (in the measured stretch), and sees whether the program can still go on: its tasks have no timers,
    /// so once all sleep only each other could wake them.
    fn sample(&mut self) {
        let (slot, jiffy) = (self.sample_slot(), self.tuning.jiffy);
        self.heap.set(slot, self.now + jiffy);
        if self.tuning.dsq {
            self.refresh_scan_budgets();
        }
        self.refresh_autogroup();
        let program = &self.tasks[..self.program_tasks];
        if program.iter().all(|task| matches!(task.run, Run::New | Run::Sleeping | Run::Delayed | Run::Dead)) {
            self.error = Some(SimError::Deadlock { waiting: self.alive, at_ms: self.now / 1_000_000 });
            return;
        }
        if self.started.is_none() || self.stopped.is_some() {
            return;
        }
        self.sample_clusters();
        let nodes = &self.setup.tree.node_of;
        let nr_nodes = nodes.iter().max().map_or(1, |&node| node as usize + 1);
        let groups =
            self.setup.program.tasks.iter().filter_map(|task| task.group).max().map_or(0, |group| group as usize + 1);
        let mut on_node = vec![0u32; groups * nr_nodes];
        for (task, spec) in self.tasks.iter().zip(&self.setup.program.tasks) {
            if let Some(group) = spec.group.filter(|_| !matches!(task.run, Run::New | Run::Dead)) {
                on_node[group as usize * nr_nodes + nodes[task.cpu as usize] as usize] += 1;
            }
        }
        for group in on_node.chunks(nr_nodes) {
            let all: u32 = group.iter().sum();
            if all > 1 {
                let most = group.iter().max().copied().unwrap_or(0);
                self.counts.purity_sum += f64::from(most) / f64::from(all);
                self.counts.purity_samples += 1;
            }
        }
    }

    /// Counts the clusters on which a task of the program runs.
    fn sample_clusters(&mut self) {
        let cluster = &self.setup.machine.topology.cluster;
        let mut used = vec![false; cluster.sets().len()];
        for (c, cpu) in self.cpus.iter().enumerate() {
            if (cpu.curr as usize) < self.program_tasks {
                used[cluster.index_of(CpuId::from(c)) as usize] = true;
            }
        }
        self.counts.clusters_sum += used.iter().filter(|&&used| used).count() as u64;
        self.counts.cluster_samples += 1;
    }

    // ---- measuring -------------------------------------------------------------------------------------------------------

    fn charge_all(&mut self) {
        for c in 0..self.cpus.len() {
            self.charge(c);
        }
    }

    pub(crate) fn start_measuring(&mut self) {
        self.charge_all();
        self.cpus.iter_mut().for_each(|cpu| cpu.totals = [0; Mechanism::COUNT]);
        let placed = vec![[0; Distance::COUNT]; self.counts.wakes.placed.len()];
        self.counts = Counts { wakes: WakeCounts { placed, ..WakeCounts::default() }, ..Counts::default() };
        self.started = Some(self.now);
        self.await_rebuild();
    }

    pub(crate) fn stop_measuring(&mut self) {
        self.charge_all();
        let mut cpu_ns = [0; Mechanism::COUNT];
        for cpu in self.affinities[0].iter() {
            for (sum, ns) in cpu_ns.iter_mut().zip(self.cpus[cpu.index()].totals) {
                *sum += ns;
            }
        }
        self.stopped = Some(Stopped { at: self.now, cpu_ns, counts: self.counts.clone() });
    }

    /// Checks the conservation laws and hands the results over.
    fn report(mut self) -> Result<Report, SimError> {
        if self.started.is_none() {
            self.started = Some(0);
        }
        if self.stopped.is_none() {
            self.stop_measuring();
        }
        let (Some(start), Some(stopped)) = (self.started, self.stopped.take()) else {
            return Err(SimError::Conservation("the measured stretch has no end".to_owned()));
        };
        let measured_ns = stopped.at - start;
        let cpus = self.affinities[0].len() as u32;
        let accounted: u64 = stopped.cpu_ns.iter().sum();
        if accounted != u64::from(cpus) * measured_ns {
            let wanted = u64::from(cpus) * measured_ns;
            return Err(SimError::Conservation(format!("{accounted} ns of CPU time accounted, {wanted} ns passed")));
        }
        let (sent, received) =
            self.channels.iter().fold((0, 0), |sum, channel| (sum.0 + channel.sent, sum.1 + channel.received));
        if sent != received || sent != self.setup.program.messages() {
            return Err(SimError::Conservation(format!("{sent} messages sent, {received} received")));
        }
        let counts = stopped.counts;
        Ok(Report {
            measured_ns,
            simulated_ns: self.now,
            cpus,
            cpu_ns: stopped.cpu_ns,
            messages: sent,
            wakes: counts.wakes,
            migrations: counts.migrations,
            switches: counts.switches,
            rebuilt_ns: self.rebuilt.map(|at| at.saturating_sub(start)),
            purity: (counts.purity_samples > 0).then(|| counts.purity_sum / counts.purity_samples as f64),
            clusters_used: (counts.cluster_samples > 0)
                .then(|| counts.clusters_sum as f64 / counts.cluster_samples as f64),
            finished_ns: self.tasks[..self.program_tasks]
                .iter()
                .map(|task| task.finished.saturating_sub(start))
                .collect(),
            events: self.events,
        })
    }
}

/// How long ago, in jiffies, a domain was last balanced when the simulation begins: anything up to its busy interval. Drawn
/// by CPU and level, so that policies whose domains differ have the others' phases in common.
fn balance_phase(seed: u64, domain: &Domain, tuning: &Tuning) -> u64 {
    let level = domain.name.bytes().fold(0, |hash, byte| hash * 31 + u64::from(byte));
    let mut rng = Pcg64Mcg::seed_from_u64(seed ^ (u64::from(domain.cpu.0) << 40) ^ (level << 8));
    let interval = u64::from(domain.min_interval * domain.busy_factor) * 1_000_000 / tuning.jiffy;
    rng.next_u64() % interval.max(1)
}

fn new_cpu(tuning: &Tuning, rng: &mut Pcg64Mcg) -> Cpu {
    Cpu {
        phase: Phase::Idle,
        curr: NONE,
        leaving: NONE,
        need_resched: false,
        lazily: false,
        ipi: 0,
        push_to: NONE,
        push_task: NONE,
        push_preferring: false,
        claims: 0,
        active_balance: false,
        mechanism: Mechanism::Idle,
        portions: Portions::default(),
        accounted: 0,
        totals: [0; Mechanism::COUNT],
        queue: Vec::with_capacity(16),
        nr_running: 0,
        nr_delayed: 0,
        load: 0,
        min_vruntime: 0,
        moment: 0,
        next: NONE,
        last: NONE,
        pelt: Pelt::starting_at(0),
        util_est: 0,
        lock_free_at: 0,
        mm: 0,
        dirtied_by: NONE,
        wake_list: Vec::new(),
        idle_stamp: 1,
        avg_idle: 2 * tuning.migration_cost,
        wake_avg_idle: 2 * tuning.migration_cost,
        wake_stamp: 0,
        max_idle_balance_cost: tuning.migration_cost,
        next_balance: FIRST_JIFFY,
        tick_stopped: true,
        counted_idle: true,
        tick_offset: rng.next_u64() % tuning.jiffy,
        idle_flips: Flips::default(),
        next_scan: NONE,
        stamp: 0,
        memory_since: 0,
    }
}

fn new_task(script: u32, affinity: u32, tuning: &Tuning) -> Task {
    Task {
        run: Run::New,
        cpu: 0,
        on_cpu: false,
        affinity,
        script,
        op: 0,
        counters: [0; Op::LOOPS],
        stage: Stage::Next,
        then: Stage::Next,
        chosen_idle: false,
        claimed: NONE,
        wait_lock: NONE,
        sync: false,
        wakes: [None; 4],
        remaining: 0,
        refill: 0,
        channel: 0,
        writes: false,
        edge: false,
        woken: false,
        joiner: NONE,
        parent: NONE,
        exited_children: 0,
        mm: NONE,
        memory_left: 0.0,
        memory_cost: 0.0,
        cache_cpu: NONE,
        home: NONE,
        profile: 0,
        weight: NICE_0,
        vruntime: 0,
        deadline: 0,
        lag: 0,
        slice: tuning.min_granularity,
        protected_until: 0,
        keeps_deadline: false,
        being_woken: false,
        exec_start: 0,
        sum_exec: 0,
        picked_at: 0,
        pelt: Pelt::default(),
        util_est: 0,
        recent: 0,
        flips: Flips::default(),
        stamp: 0,
        finished: 0,
    }
}

fn all_distances(topology: &huddle_machine::Topology, nr_cpus: usize) -> Vec<Distance> {
    let mut table = vec![Distance::Beyond; nr_cpus * nr_cpus];
    for a in topology.online.iter() {
        for b in topology.online.iter() {
            table[a.index() * nr_cpus + b.index()] = topology.distance(a, b);
        }
    }
    table
}

/// 256 factors of mean 1 and the given relative deviation: the quantiles of a normal distribution, cut at three deviations.
fn jitter_table(deviation: f64) -> Vec<f64> {
    (0..256)
        .map(|index| {
            let p = (f64::from(index) + 0.5) / 256.0;
            // Logistic approximation of the normal quantile, exact enough for a disturbance.
            let z = libm::log(p / (1.0 - p)) / 1.702;
            (1.0 + deviation * z.clamp(-3.0, 3.0)).max(0.0)
        })
        .collect()
}
