//! The simulation: events, the run queue's life cycle, and time keeping.
//!
//! Each CPU has at most one *work* event: the end of its present segment (a stretch of a task, a context switch, leaving
//! idle). Ticks and interrupts have their own slots; they lengthen the segment they hit. A task is a small state machine
//! (`Stage`) that [`Sim::advance`] drives: "the segment of this stage is over, act on it and begin the next".

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use huddle_domains::{PipeWriterWake, QueueKind};
use huddle_machine::{CpuId, CpuSet, Distance};
use huddle_policy::Scratch;
use huddle_program::Op;
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::costs::Costs;
use crate::heap::{EventHeap, NEVER};
use crate::memory::MemorySystem;
use crate::pelt::Pelt;
use crate::report::{ByDistance, Cause, Mechanism, Report, SimError, WakeCounts};
use crate::state::{Cpu, DomainState, Flips, Gate, LlcState, NONE, Phase, Pipe, Portions, Run, Stage, Task, Wake, ipi};
use crate::{Observer, Setup};

/// Weight of a task of nice 0.
pub(crate) const NICE_0: u64 = 1024;

/// Queue constants of the kernel, scaled by the number of CPUs (spec 6.1).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tuning {
    pub latency: u64,
    pub min_granularity: u64,
    pub wakeup_granularity: u64,
    pub nr_latency: u32,
    pub migration_cost: u64,
    /// One tick, ns.
    pub jiffy: u64,
    /// A running kernel path can be preempted.
    pub preempt: bool,
}

/// What is counted in the measured stretch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub wakes: WakeCounts,
    pub migrations: [ByDistance; Cause::COUNT],
    pub switches: u64,
    purity_sum: f64,
    purity_samples: u64,
}

pub(crate) struct Sim<'a, O: Observer> {
    pub setup: &'a Setup<'a>,
    pub observer: &'a mut O,
    pub costs: Costs,
    pub tuning: Tuning,
    pub now: u64,
    pub heap: EventHeap,
    pub cpus: Vec<Cpu>,
    pub tasks: Vec<Task>,
    pub pipes: Vec<Pipe>,
    pub gates: Vec<Gate>,
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
    /// Some queue has two tasks (`root_domain.overload`).
    pub overloaded: bool,
    pub distance: Vec<Distance>,
    pub scratch: Scratch,
    pub memory: MemorySystem,
    pub rng: Pcg64Mcg,
    jitter: Vec<f64>,
    timers: BinaryHeap<Reverse<(u64, u32)>>,
    /// Tasks of the program; the rest is background.
    program_tasks: usize,
    alive: usize,
    started: Option<u64>,
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
/// Background tasks: one for so many CPUs.
const CPUS_PER_BACKGROUND_TASK: usize = 4;

impl<'a, O: Observer> Sim<'a, O> {
    pub fn new(setup: &'a Setup<'a>, observer: &'a mut O) -> Result<Self, SimError> {
        setup.program.validate()?;
        let tree = setup.tree;
        let nr_cpus = tree.nr_cpus;
        let allowed = setup.cpus.resized(nr_cpus).intersection(&tree.online);
        if allowed.is_empty() {
            return Err(SimError::NoCpu { cpus: setup.cpus.to_string() });
        }
        let not_simulated = |what| SimError::NotSimulated { kernel: setup.kernel.name.clone(), what };
        if setup.kernel.queue.kind != QueueKind::Cfs {
            return Err(not_simulated("the EEVDF queue"));
        }
        if setup.kernel.balance.sibling_by_cores {
            return Err(not_simulated("balancing by cores (6.6 on)"));
        }
        if tree.asym_active {
            return Err(not_simulated("a machine whose CPUs differ in capacity"));
        }
        let costs = Costs::compile(&setup.machine.costs);
        let mut rng = Pcg64Mcg::seed_from_u64(setup.seed);
        let online = tree.online.len();
        let scale = 1 + u64::from((online.min(8) as u32).ilog2());
        let queue = &setup.kernel.queue;
        let tuning = Tuning {
            latency: queue.latency_ns * scale,
            min_granularity: queue.min_granularity_ns * scale,
            wakeup_granularity: queue.wakeup_granularity_ns * scale,
            nr_latency: queue.nr_latency,
            migration_cost: queue.migration_cost_ns,
            jiffy: 1_000_000_000 / u64::from(setup.machine.config.hz),
            preempt: setup.machine.config.preempt,
        };
        let cpus: Vec<Cpu> = (0..nr_cpus).map(|_| new_cpu(&tuning, &mut rng)).collect();
        let topology = &setup.machine.topology;
        let distance = all_distances(topology, nr_cpus);
        let domains = tree
            .domains
            .iter()
            .map(|domain| DomainState { balance_interval: domain.min_interval, ..DomainState::default() })
            .collect();
        let jitter = jitter_table(costs.jitter);
        let mut sim = Sim {
            setup,
            observer,
            costs,
            tuning,
            now: 0,
            heap: EventHeap::new(3 * nr_cpus + 2),
            cpus,
            tasks: Vec::new(),
            pipes: setup.program.channels.iter().map(|&spec| Pipe::new(spec)).collect(),
            gates: vec![Gate::default(); setup.program.gates as usize],
            idle: tree.online.clone(),
            nohz: tree.online.clone(),
            nohz_next_balance: 0,
            affinities: vec![allowed, tree.online.clone()],
            domains,
            llcs: vec![LlcState::default(); tree.nr_llcs],
            imbalanced: vec![false; tree.nr_capacities],
            overloaded: false,
            distance,
            scratch: setup.plan.scratch(),
            memory: MemorySystem::new(setup.machine, tree),
            rng,
            jitter,
            timers: BinaryHeap::new(),
            program_tasks: setup.program.tasks.len(),
            alive: setup.program.tasks.len(),
            started: None,
            stopped: None,
            counts: Counts::default(),
            events: 0,
            error: None,
        };
        sim.counts.wakes.placed = vec![[0; Distance::COUNT]; setup.plan.nr_steps() + 1];
        sim.make_tasks();
        Ok(sim)
    }

    /// Creates the program's tasks (not started but for the first) and the background tasks (asleep).
    fn make_tasks(&mut self) {
        for spec in &self.setup.program.tasks {
            self.tasks.push(new_task(spec.script.0, PROGRAM));
        }
        for &(task, cpu) in self.setup.pins {
            if let Some(task) = self.tasks.get_mut(task.index()) {
                task.affinity = self.affinities.len() as u32;
                self.affinities.push(CpuSet::from_cpus(self.cpus.len(), [cpu.index()]));
            }
        }
        let online: Vec<CpuId> = self.setup.tree.online.iter().collect();
        if self.costs.noise_interval > 0 {
            for index in 0..online.len().div_ceil(CPUS_PER_BACKGROUND_TASK) {
                let mut task = new_task(NONE, BACKGROUND);
                task.stage = Stage::NoiseRun;
                task.run = Run::Sleeping;
                task.cpu = online[index * CPUS_PER_BACKGROUND_TASK].0;
                task.recent = task.cpu;
                self.tasks.push(task);
                let wake = self.noise_interval();
                self.timers.push(Reverse((wake, self.tasks.len() as u32 - 1)));
            }
        }
        let starts = self.affinities[0].len() as u64;
        let nth = self.below(starts) as usize;
        let start = self.affinities[0].iter().nth(nth);
        if let Some(cpu) = start {
            let main = &mut self.tasks[0];
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
            if let Some(error) = self.error.take() {
                return Err(error);
            }
        }
        self.report()
    }

    fn dispatch(&mut self, slot: usize, time: u64) {
        let nr_cpus = self.cpus.len();
        if slot < nr_cpus {
            self.work(slot);
        } else if slot < 2 * nr_cpus {
            self.tick(slot - nr_cpus);
        } else if slot < 3 * nr_cpus {
            self.interrupt(slot - 2 * nr_cpus);
        } else if slot == 3 * nr_cpus {
            self.expire_timers();
        } else {
            self.sample();
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
    fn jittered(&mut self, ns: u64) -> u64 {
        let factor = self.jitter[(self.rng.next_u64() >> 56) as usize];
        (ns as f64 * factor) as u64
    }

    /// An exponential draw with that mean.
    fn exponential(&mut self, mean: u64) -> u64 {
        let uniform = ((self.rng.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        (-libm::log(uniform) * mean as f64) as u64
    }

    fn noise_interval(&mut self) -> u64 {
        let tasks = self.cpus.len().div_ceil(CPUS_PER_BACKGROUND_TASK) as u64;
        self.now + 1 + self.exponential(self.costs.noise_interval * tasks)
    }

    // ---- time keeping ------------------------------------------------------------------------------------------------

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

    // ---- work events -------------------------------------------------------------------------------------------------

    fn work(&mut self, c: usize) {
        match self.cpus[c].phase {
            Phase::Running => self.advance(c),
            Phase::Switching => self.finish_switch(c),
            Phase::IdleExit => {
                self.charge(c);
                let slot = self.ipi_slot(c);
                self.heap.clear(slot);
                let flags = std::mem::take(&mut self.cpus[c].ipi);
                self.take_wake_list(c);
                let balance = if flags & ipi::NOHZ != 0 { self.nohz_balance(c) } else { 0 };
                self.schedule(c, balance);
            }
            Phase::Idle | Phase::Spinning => {}
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

    fn set_timer(&mut self) {
        let time = self.timers.peek().map_or(NEVER, |&Reverse((time, _))| time);
        let slot = 3 * self.cpus.len();
        self.heap.set(slot, time);
    }

    /// A background task's timer interrupt on the CPU where it sleeps.
    fn wake_from_timer(&mut self, p: usize) {
        let c = self.tasks[p].cpu as usize;
        if self.tasks[p].on_cpu {
            let retry = self.now + self.costs.switch_out + self.costs.switch_in;
            self.timers.push(Reverse((retry, p as u32)));
            return;
        }
        self.tasks[p].run = Run::Waking;
        let chosen = self.place(c, p, false, None).0;
        self.activate_wakeup(p, chosen, c);
        if self.cpus[c].phase == Phase::Idle {
            self.leave_idle(c, 0);
        } else {
            let ns = self.costs.irq + self.costs.wake_up;
            self.steal(c, Mechanism::Interrupt, ns);
            self.preempt_if_asked(c);
        }
    }

    /// Samples group purity; the measured stretch only.
    fn sample(&mut self) {
        let (slot, jiffy) = (self.sample_slot(), self.tuning.jiffy);
        self.heap.set(slot, self.now + jiffy);
        if self.started.is_none() || self.stopped.is_some() {
            return;
        }
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

    // ---- interrupts --------------------------------------------------------------------------------------------------

    /// Sends an interrupt for `flag` from one CPU to another.
    pub fn send_ipi(&mut self, from: usize, to: usize, flag: u8) {
        self.cpus[to].ipi |= flag;
        let arrival = self.now + self.costs.ipi_latency[self.dist(from, to)];
        let slot = self.ipi_slot(to);
        self.heap.set_min(slot, arrival.max(self.now + 1));
    }

    fn interrupt(&mut self, c: usize) {
        match self.cpus[c].phase {
            Phase::Idle => self.leave_idle(c, 0),
            // Interrupts are off until the switch is done; the end of idle exit handles them itself.
            Phase::Switching | Phase::IdleExit => {
                let (slot, end) = (self.ipi_slot(c), self.heap.time(c));
                self.heap.set(slot, end + 1);
            }
            Phase::Running | Phase::Spinning => {
                let flags = std::mem::take(&mut self.cpus[c].ipi);
                let queued = self.cpus[c].wake_list.len() as u64;
                let ns = self.costs.irq + queued * self.costs.enqueue;
                self.steal(c, Mechanism::Interrupt, ns);
                self.take_wake_list(c);
                if flags & ipi::PUSH != 0 {
                    self.cpus[c].need_resched = true;
                }
                self.preempt_if_asked(c);
            }
        }
    }

    /// Begins to leave the idle state.
    fn leave_idle(&mut self, c: usize, lines: u64) {
        if self.cpus[c].phase != Phase::Idle {
            return;
        }
        self.charge(c);
        let exit = if lines > 0 { lines } else { self.costs.idle_exit };
        let cpu = &mut self.cpus[c];
        cpu.phase = Phase::IdleExit;
        cpu.mechanism = Mechanism::Interrupt;
        self.heap.set(c, self.now + exit.max(1));
    }

    /// Makes an idle CPU look at its queue: through its flag if it polls, else by interrupt.
    pub fn kick_idle(&mut self, from: usize, c: usize) {
        self.cpus[c].need_resched = true;
        if self.cpus[c].phase != Phase::Idle {
            return;
        }
        if self.costs.idle_polling {
            let lines = self.costs.line[self.dist(from, c)] + self.costs.irq;
            self.leave_idle(c, lines);
        } else {
            self.send_ipi(from, c, ipi::RESCHED);
        }
    }

    /// Enqueues what others have put on the CPU's wake list.
    fn take_wake_list(&mut self, c: usize) {
        if self.cpus[c].wake_list.is_empty() {
            return;
        }
        let list = std::mem::take(&mut self.cpus[c].wake_list);
        for &p in &list {
            self.activate_wakeup(p as usize, c, c);
        }
        let mut list = list;
        list.clear();
        self.cpus[c].wake_list = list;
        self.refresh_idle(c);
    }

    /// `preempt_schedule_irq`, or what a return to user mode does: leave the CPU if asked and if the place allows it.
    fn preempt_if_asked(&mut self, c: usize) {
        if !self.cpus[c].need_resched || self.cpus[c].curr == NONE {
            return;
        }
        match self.cpus[c].phase {
            Phase::Spinning => self.stop_spinning(c),
            Phase::Running => {
                let user = matches!(
                    self.tasks[self.cpus[c].curr as usize].stage,
                    Stage::Compute | Stage::Memory | Stage::NoiseSleep
                );
                let atomic = matches!(
                    self.tasks[self.cpus[c].curr as usize].stage,
                    Stage::WakeSelect(_) | Stage::WakeEnqueue(..) | Stage::WakeIpi(..) | Stage::WakeNext
                );
                if user || (self.tuning.preempt && !atomic) {
                    self.preempt(c);
                }
            }
            _ => {}
        }
    }

    /// Takes the running task off in the middle of its segment.
    fn preempt(&mut self, c: usize) {
        let t = self.cpus[c].curr as usize;
        let end = self.heap.time(c);
        if end != NEVER && end > self.now && self.tasks[t].stage != Stage::Memory {
            self.charge(c);
            self.tasks[t].remaining = end - self.now;
        }
        self.schedule(c, 0);
    }

    // ---- ticks -------------------------------------------------------------------------------------------------------

    fn start_tick(&mut self, c: usize) {
        let slot = self.tick_slot(c);
        if self.heap.time(slot) == NEVER {
            let (jiffy, offset) = (self.tuning.jiffy, self.cpus[c].tick_offset);
            let since = (self.now + jiffy - offset) % jiffy;
            self.heap.set(slot, self.now + jiffy - since);
        }
    }

    fn tick(&mut self, c: usize) {
        if self.cpus[c].curr == NONE && self.cpus[c].nr_running == 0 {
            return;
        }
        let slot = self.tick_slot(c);
        self.heap.set(slot, self.now + self.tuning.jiffy);
        self.busy_again(c);
        let tick = self.costs.tick;
        self.steal(c, Mechanism::Tick, tick);
        if self.cpus[c].curr != NONE {
            self.update_curr(c);
            self.tick_preempt(c);
        }
        self.balance_tick(c);
        self.preempt_if_asked(c);
    }

    /// The first busy tick after idling (`nohz_balance_exit_idle`).
    fn busy_again(&mut self, c: usize) {
        if std::mem::take(&mut self.cpus[c].tick_stopped) {
            self.nohz.remove(CpuId::from(c));
            let llc = self.setup.tree.cached[c].llc_index as usize;
            self.llcs[llc].nr_busy += 1;
        }
    }

    // ---- the scheduler -----------------------------------------------------------------------------------------------

    /// `__schedule`: puts the current task back or lets it go, picks the next one, begins the switch. `balance` is time
    /// already spent on balancing for others.
    pub fn schedule(&mut self, c: usize, mut balance: u64) {
        self.charge(c);
        let prev = self.cpus[c].curr;
        if prev != NONE {
            self.update_curr(c);
            if self.tasks[prev as usize].run == Run::Running {
                self.put_back(c, prev as usize);
            }
            self.cpus[c].phase = Phase::Switching;
            if self.tasks[prev as usize].stage == Stage::Memory {
                self.memory_stops(c, prev as usize);
            }
        }
        self.cpus[c].need_resched = false;
        self.cpus[c].curr = NONE;
        // The stopper comes before all: it runs as if idle, then this is called again.
        let mut next = NONE;
        if self.cpus[c].push_to == NONE {
            if self.cpus[c].nr_running == 0 {
                balance += self.newidle_balance(c);
            }
            next = self.pick(c);
        }
        let mut ns = if prev == NONE { 0 } else { self.costs.switch_out };
        if next != NONE {
            self.set_next(c, next as usize);
            if next != prev {
                ns += self.costs.switch_in;
            }
        }
        if next != prev {
            self.counts.switches += 1;
            self.observer.switch(self.now, CpuId::from(c), prev, next);
        }
        let cpu = &mut self.cpus[c];
        cpu.leaving = if prev == next { NONE } else { prev };
        cpu.phase = Phase::Switching;
        cpu.mechanism = Mechanism::Switch;
        cpu.portions.clear();
        cpu.portions.push(Mechanism::Balance, balance);
        cpu.accounted = self.now;
        self.heap.set(c, self.now + (ns + balance).max(1));
        self.refresh_idle(c);
        if prev != NONE && prev != next && self.tasks[prev as usize].stage == Stage::PipeHold {
            let channel = self.tasks[prev as usize].channel as usize;
            self.spinners_to_sleep(channel);
        }
    }

    fn finish_switch(&mut self, c: usize) {
        self.charge(c);
        let leaving = std::mem::replace(&mut self.cpus[c].leaving, NONE);
        if leaving != NONE {
            self.tasks[leaving as usize].on_cpu = false;
        }
        if self.cpus[c].push_to != NONE {
            self.push_running(c);
            return self.schedule(c, 0);
        }
        if self.cpus[c].curr == NONE {
            if self.cpus[c].need_resched || self.cpus[c].nr_running > 0 {
                return self.schedule(c, 0);
            }
            return self.enter_idle(c);
        }
        if self.cpus[c].need_resched {
            return self.schedule(c, 0);
        }
        self.start_tick(c);
        let t = self.cpus[c].curr as usize;
        self.cpus[c].phase = Phase::Running;
        match std::mem::take(&mut self.tasks[t].remaining) {
            0 => self.advance(c),
            remaining => {
                let mechanism = mechanism_of(self.tasks[t].stage);
                self.segment(c, remaining, mechanism, 0);
            }
        }
    }

    fn enter_idle(&mut self, c: usize) {
        let cpu = &mut self.cpus[c];
        cpu.phase = Phase::Idle;
        cpu.mechanism = Mechanism::Idle;
        cpu.portions.clear();
        let slot = self.tick_slot(c);
        self.heap.clear(slot);
        if !std::mem::replace(&mut self.cpus[c].tick_stopped, true) {
            self.nohz.insert(CpuId::from(c));
            let llc = self.setup.tree.cached[c].llc_index as usize;
            self.llcs[llc].nr_busy -= 1;
        }
        self.note_idle_core(c);
    }

    /// `__update_idle_core`: a core whose other threads idle sets its LLC's hint.
    fn note_idle_core(&mut self, c: usize) {
        let tree = self.setup.tree;
        if !tree.smt_active {
            return;
        }
        let llc = tree.cached[c].llc_index as usize;
        if self.llcs[llc].has_idle_cores {
            return;
        }
        let others_idle = tree.span(tree.smt[c]).iter().all(|cpu| cpu.index() == c || self.idle.contains(cpu));
        self.llcs[llc].has_idle_cores = others_idle;
    }

    /// Keeps the idle bitmap: current is idle, nothing queued, nothing pending.
    #[inline]
    pub fn refresh_idle(&mut self, c: usize) {
        let cpu = &self.cpus[c];
        let idle = cpu.curr == NONE && cpu.nr_running == 0 && cpu.wake_list.is_empty();
        let bit = 1u64 << (c % 64);
        let word = &mut self.idle.words_mut()[c / 64];
        if idle { *word |= bit } else { *word &= !bit }
    }

    /// The current task goes to sleep (or dies) and continues in `stage` when it is woken.
    pub(crate) fn block(&mut self, c: usize, stage: Stage, run: Run) {
        let t = self.cpus[c].curr as usize;
        self.tasks[t].stage = stage;
        self.update_curr(c);
        self.tasks[t].run = run;
        self.dequeue_current(c, t);
        self.schedule(c, 0);
    }

    // ---- tasks -------------------------------------------------------------------------------------------------------

    /// The current task's segment is over: act on it, until the next segment has begun or the task has left the CPU.
    fn advance(&mut self, c: usize) {
        let t = self.cpus[c].curr as usize;
        loop {
            match self.tasks[t].stage {
                Stage::Next => {
                    if self.cpus[c].need_resched {
                        return self.schedule(c, 0);
                    }
                    if self.fetch(c, t) {
                        return;
                    }
                }
                Stage::Compute => self.tasks[t].stage = Stage::Next,
                Stage::Memory => {
                    if self.memory_continues(c, t) {
                        return;
                    }
                    self.tasks[t].stage = Stage::Next;
                }
                Stage::PipeEnter => self.tasks[t].stage = Stage::PipeAcquire,
                Stage::PipeAcquire | Stage::PipeAcquireSlow | Stage::PipeAcquireFirst => return self.acquire(c, t),
                Stage::PipeHold => {
                    if self.pipe_done(c, t) {
                        return;
                    }
                }
                Stage::PipeWait | Stage::PipeWoken => {
                    self.tasks[t].woken = true;
                    let pipe = &self.pipes[self.tasks[t].channel as usize];
                    if if self.tasks[t].writes { !pipe.ring_full() } else { pipe.len > 0 } {
                        self.tasks[t].stage = Stage::PipeAcquire;
                    } else {
                        return self.pipe_sleep(c, t);
                    }
                }
                Stage::WakeSelect(p) => return self.wake_select(c, t, p as usize),
                Stage::WakeEnqueue(p, cpu) => {
                    self.activate_wakeup(p as usize, cpu as usize, c);
                    if self.next_wake(c, t) {
                        return;
                    }
                }
                Stage::WakeNext => {
                    if self.next_wake(c, t) {
                        return;
                    }
                }
                Stage::WakeIpi(p, cpu) => {
                    self.queue_wake(p, cpu as usize, c);
                    if self.next_wake(c, t) {
                        return;
                    }
                }
                Stage::GateWait(gate) => {
                    if self.gates[gate as usize].open {
                        self.tasks[t].stage = Stage::Next;
                    } else {
                        self.gates[gate as usize].waiters.push(t as u32);
                        return self.block(c, Stage::GateWait(gate), Run::Sleeping);
                    }
                }
                Stage::GateOpen(gate) => {
                    self.gates[gate as usize].open = true;
                    self.tasks[t].wakes[0] = Some(Wake::Gate(gate));
                    self.tasks[t].then = Stage::Next;
                    if self.next_wake(c, t) {
                        return;
                    }
                }
                Stage::Spawn(child) => {
                    self.fork(c, t, child as usize);
                    self.tasks[t].stage = Stage::Next;
                }
                Stage::Exec => {
                    self.tasks[t].stage = Stage::Next;
                    if self.exec(c, t) {
                        return;
                    }
                }
                Stage::Join(child) => {
                    if self.tasks[child as usize].finished != 0 {
                        self.tasks[t].stage = Stage::Next;
                    } else {
                        self.tasks[child as usize].joiner = t as u32;
                        return self.block(c, Stage::Join(child), Run::Sleeping);
                    }
                }
                Stage::Exit => {
                    self.tasks[t].finished = self.now;
                    let joiner = self.tasks[t].joiner;
                    self.tasks[t].wakes[0] = (joiner != NONE).then_some(Wake::Joiner(joiner));
                    self.tasks[t].then = Stage::Gone;
                    if self.next_wake(c, t) {
                        return;
                    }
                }
                Stage::Gone => {
                    if t < self.program_tasks {
                        self.alive -= 1;
                    }
                    return self.block(c, Stage::Gone, Run::Dead);
                }
                Stage::NoiseSleep => {
                    let wake = self.noise_interval();
                    self.timers.push(Reverse((wake, t as u32)));
                    self.set_timer();
                    return self.block(c, Stage::NoiseRun, Run::Sleeping);
                }
                Stage::NoiseRun => {
                    let ns = 1 + self.exponential(self.costs.noise_time);
                    self.tasks[t].stage = Stage::NoiseSleep;
                    return self.segment(c, ns, Mechanism::Compute, 0);
                }
            }
        }
    }

    /// Takes the next op. True when a segment has begun.
    #[inline]
    fn fetch(&mut self, c: usize, t: usize) -> bool {
        let task = &mut self.tasks[t];
        let script = &self.setup.program.scripts[task.script as usize].ops;
        let Some(&op) = script.get(task.op as usize) else {
            task.stage = Stage::Exit;
            let ns = self.costs.exit;
            self.segment(c, ns, Mechanism::Kernel, 0);
            return true;
        };
        task.op += 1;
        let (stage, ns, mechanism) = match op {
            Op::Send { channel } => {
                task.channel = channel.0;
                task.writes = true;
                task.woken = false;
                (Stage::PipeEnter, self.costs.write_outside, Mechanism::Kernel)
            }
            Op::Receive { channel } => {
                task.channel = channel.0;
                task.writes = false;
                task.woken = false;
                (Stage::PipeEnter, self.costs.read_outside, Mechanism::Kernel)
            }
            Op::Repeat { to, times, counter } => {
                let count = &mut task.counters[usize::from(counter)];
                *count += 1;
                if *count < times {
                    task.op = to;
                } else {
                    *count = 0;
                }
                return false;
            }
            Op::Compute { ns } => (Stage::Compute, ns, Mechanism::Compute),
            Op::Memory { profile, kilo_instructions } => {
                task.stage = Stage::Memory;
                task.profile = profile.0;
                task.memory_left = kilo_instructions as f64;
                return self.memory_continues(c, t);
            }
            Op::Wait { gate } => (Stage::GateWait(gate.0), self.costs.syscall, Mechanism::Kernel),
            Op::Open { gate } => (Stage::GateOpen(gate.0), self.costs.syscall, Mechanism::Kernel),
            Op::Spawn { task: child } => (Stage::Spawn(child.0), self.costs.fork, Mechanism::Kernel),
            Op::Exec => (Stage::Exec, self.costs.fork, Mechanism::Kernel),
            Op::Join { task: child } => (Stage::Join(child.0), self.costs.syscall, Mechanism::Kernel),
            Op::Start => {
                self.start_measuring();
                return false;
            }
            Op::Stop => {
                self.stop_measuring();
                return false;
            }
        };
        self.tasks[t].stage = stage;
        let ns = self.jittered(ns);
        self.segment(c, ns, mechanism, 0);
        true
    }

    // ---- pipes -------------------------------------------------------------------------------------------------------

    /// The task's operation can go on without sleeping.
    #[inline]
    fn pipe_ready(&self, t: usize) -> bool {
        let task = &self.tasks[t];
        let pipe = &self.pipes[task.channel as usize];
        if task.writes { pipe.has_room() } else { pipe.len > 0 }
    }

    fn pipe_sleep(&mut self, c: usize, t: usize) {
        let (channel, writes) = (self.tasks[t].channel as usize, self.tasks[t].writes);
        let pipe = &mut self.pipes[channel];
        let waiters = if writes { &mut pipe.writers } else { &mut pipe.readers };
        waiters.push_back(t as u32);
        self.block(c, Stage::PipeWoken, Run::Sleeping);
    }

    /// `mutex_lock`: take it, spin on a running owner, or sleep.
    fn acquire(&mut self, c: usize, t: usize) {
        let channel = self.tasks[t].channel as usize;
        let stage = self.tasks[t].stage;
        let first = stage == Stage::PipeAcquireFirst;
        let mutex = &mut self.pipes[channel].mutex;
        if mutex.owner == t as u32 {
            return self.begin_hold(c, t, 0);
        }
        if mutex.owner == NONE {
            mutex.owner = t as u32;
            if first {
                mutex.sleepers.retain(|&sleeper| sleeper != t as u32);
                mutex.handoff = false;
            }
            return self.begin_hold(c, t, 0);
        }
        let owner = mutex.owner as usize;
        let spin =
            stage != Stage::PipeAcquireSlow && !self.cpus[c].need_resched && self.tasks[owner].run == Run::Running;
        let mutex = &mut self.pipes[channel].mutex;
        if first {
            mutex.handoff = true;
        }
        if spin {
            if first {
                mutex.spinners.push_front(t as u32)
            } else {
                mutex.spinners.push_back(t as u32)
            }
            self.charge(c);
            let cpu = &mut self.cpus[c];
            cpu.phase = Phase::Spinning;
            cpu.mechanism = Mechanism::LockSpin;
            self.heap.clear(c);
            return;
        }
        if !first {
            mutex.sleepers.push_back(t as u32);
        }
        self.block(c, Stage::PipeAcquireFirst, Run::Sleeping);
    }

    /// The mutex is ours: look at the ring and do the locked part.
    #[inline]
    pub(crate) fn begin_hold(&mut self, c: usize, t: usize, lines: u64) {
        let (channel, writes) = (self.tasks[t].channel as usize, self.tasks[t].writes);
        let pipe = &mut self.pipes[channel];
        let last = std::mem::replace(&mut pipe.last_cpu, c as u32);
        let (edge, ready) = if writes { (pipe.len == 0, pipe.has_room()) } else { (pipe.ring_full(), pipe.len > 0) };
        let transfer = if last == NONE { 0 } else { self.costs.pipe_lines[self.dist(c, last as usize)] };
        let ns = match (ready, writes) {
            (false, _) => self.costs.probe,
            (true, true) => self.costs.write_locked,
            (true, false) => self.costs.read_locked,
        };
        self.tasks[t].edge = edge;
        self.tasks[t].stage = Stage::PipeHold;
        let ns = self.jittered(ns);
        self.segment(c, ns, Mechanism::Kernel, transfer + lines);
    }

    /// The locked part is done: the message moves, the mutex is released, whoever must be woken is noted. True when a
    /// segment has begun.
    #[inline]
    fn pipe_done(&mut self, c: usize, t: usize) -> bool {
        let (channel, writes, edge, woken) = {
            let task = &self.tasks[t];
            (task.channel as usize, task.writes, task.edge, task.woken)
        };
        let ready = self.pipe_ready(t);
        let pipe = &mut self.pipes[channel];
        let (mut reader, mut writer) = (false, false);
        if writes {
            if ready {
                pipe.push();
                writer = woken && !pipe.ring_full();
            }
            reader = edge;
        } else if ready {
            let emptied = pipe.pop();
            writer = match self.setup.kernel.pipe_writer_wake {
                PipeWriterWake::EveryFullRead => edge,
                PipeWriterWake::FreedSlot => edge && emptied,
            };
        }
        let reader = (reader && !pipe.readers.is_empty()).then_some(Wake::Reader(channel as u32));
        let writer = (writer && !pipe.writers.is_empty()).then_some(Wake::Writer(channel as u32));
        let sleeper = self.release(c, channel);
        let task = &mut self.tasks[t];
        task.then = if ready { Stage::Next } else { Stage::PipeWait };
        if sleeper.is_none() && reader.is_none() && writer.is_none() {
            task.stage = task.then;
            return false;
        }
        task.wakes = [writer, reader, sleeper, None];
        self.next_wake(c, t)
    }

    // ---- measuring ---------------------------------------------------------------------------------------------------

    fn charge_all(&mut self) {
        for c in 0..self.cpus.len() {
            self.charge(c);
        }
    }

    fn start_measuring(&mut self) {
        self.charge_all();
        self.cpus.iter_mut().for_each(|cpu| cpu.totals = [0; Mechanism::COUNT]);
        let placed = vec![[0; Distance::COUNT]; self.counts.wakes.placed.len()];
        self.counts = Counts { wakes: WakeCounts { placed, ..WakeCounts::default() }, ..Counts::default() };
        self.started = Some(self.now);
    }

    fn stop_measuring(&mut self) {
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
        let (sent, received) = self.pipes.iter().fold((0, 0), |sum, pipe| (sum.0 + pipe.sent, sum.1 + pipe.received));
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
            purity: (counts.purity_samples > 0).then(|| counts.purity_sum / counts.purity_samples as f64),
            finished_ns: self.tasks[..self.program_tasks]
                .iter()
                .map(|task| task.finished.saturating_sub(start))
                .collect(),
            events: self.events,
        })
    }
}

/// What a task's segment is, when it resumes one that was cut.
fn mechanism_of(stage: Stage) -> Mechanism {
    match stage {
        Stage::Compute | Stage::Memory | Stage::NoiseSleep => Mechanism::Compute,
        _ => Mechanism::Kernel,
    }
}

fn new_cpu(tuning: &Tuning, rng: &mut Pcg64Mcg) -> Cpu {
    Cpu {
        phase: Phase::Idle,
        curr: NONE,
        leaving: NONE,
        need_resched: false,
        ipi: 0,
        push_to: NONE,
        push_task: NONE,
        active_balance: false,
        mechanism: Mechanism::Idle,
        portions: Portions::default(),
        accounted: 0,
        totals: [0; Mechanism::COUNT],
        queue: Vec::with_capacity(16),
        nr_running: 0,
        load: 0,
        min_vruntime: 0,
        next: NONE,
        last: NONE,
        pelt: Pelt::starting_at(0),
        util_est: 0,
        lock_free_at: 0,
        dirtied_by: NONE,
        wake_list: Vec::new(),
        idle_stamp: 1,
        avg_idle: 2 * tuning.migration_cost,
        wake_avg_idle: 2 * tuning.migration_cost,
        wake_stamp: 0,
        max_idle_balance_cost: tuning.migration_cost,
        next_balance: tuning.jiffy,
        tick_stopped: true,
        tick_offset: rng.next_u64() % tuning.jiffy,
        idle_flips: Flips::default(),
        next_scan: NONE,
        stamp: 0,
        memory_since: 0,
    }
}

fn new_task(script: u32, affinity: u32) -> Task {
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
        sync: false,
        wakes: [None; 4],
        remaining: 0,
        refill: 0,
        channel: 0,
        writes: false,
        edge: false,
        woken: false,
        joiner: NONE,
        memory_left: 0.0,
        memory_cost: 0.0,
        cache_cpu: NONE,
        profile: 0,
        weight: NICE_0,
        vruntime: 0,
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
