//! An observer that keeps its own account of who runs where and compares every event with it.

use huddle_engine::{Cause, Observer, Report};
use huddle_machine::{CpuId, CpuSet};
use huddle_policy::{Placement, Wakeup};
use huddle_program::Program;

use crate::world::World;

/// The idle task.
pub const IDLE: u32 = u32::MAX;

/// A task on a CPU, from one switch to the next.
#[derive(Clone, Copy, Debug)]
pub struct Stretch {
    pub cpu: usize,
    pub task: u32,
    pub from: u64,
    pub to: u64,
}

/// A change of CPU.
#[derive(Clone, Copy, Debug)]
pub struct Move {
    pub at: u64,
    pub task: u32,
    pub from: usize,
    pub to: usize,
    pub cause: Cause,
}

/// A placed wake-up.
#[derive(Clone, Copy, Debug)]
pub struct Woken {
    pub at: u64,
    pub waker: u32,
    pub wakee: u32,
    pub sync: bool,
    pub chosen: usize,
}

pub struct Watch {
    now: u64,
    /// Tasks of the program; greater numbers are background tasks.
    tasks: usize,
    program: CpuSet,
    online: CpuSet,
    /// By task, the one CPU it is bound to.
    bound: Vec<Option<usize>>,
    /// What runs on each CPU and since when.
    running: Vec<(u32, u64)>,
    /// Where each task was last seen.
    at: Vec<Option<usize>>,
    switches: u64,
    pub stretches: Vec<Stretch>,
    pub moves: Vec<Move>,
    pub wakes: Vec<Woken>,
}

impl Watch {
    pub fn new(world: &World, program: &Program, cpus: &str, pins: &[(u32, u32)]) -> Watch {
        let tasks = program.tasks.len();
        let mut bound = vec![None; tasks];
        pins.iter().for_each(|&(task, cpu)| bound[task as usize] = Some(cpu as usize));
        Watch {
            now: 0,
            tasks,
            program: CpuSet::parse_list(cpus).unwrap(),
            online: world.tree.online.clone(),
            bound,
            running: vec![(IDLE, 0); world.tree.nr_cpus],
            // Room for the background tasks: never more than CPUs.
            at: vec![None; tasks + world.tree.nr_cpus],
            switches: 0,
            stretches: Vec::new(),
            moves: Vec::new(),
            wakes: Vec::new(),
        }
    }

    fn clock(&mut self, now: u64) {
        assert!(now >= self.now, "time runs backwards: {now} after {}", self.now);
        self.now = now;
    }

    /// The task may use the CPU.
    fn affinity(&self, task: u32, cpu: usize) {
        let task = task as usize;
        let allowed = match self.bound.get(task) {
            Some(Some(bound)) => *bound == cpu,
            Some(None) => self.program.contains(CpuId::from(cpu)),
            None => self.online.contains(CpuId::from(cpu)),
        };
        assert!(allowed, "{} ns: task {task} of {} is outside its affinity on CPU {cpu}", self.now, self.tasks);
    }

    /// Where a task was last seen.
    pub fn place(&self, task: u32) -> usize {
        self.at[task as usize].unwrap_or_else(|| panic!("task {task} was never seen"))
    }

    /// The CPU that a task ran on first.
    pub fn first_cpu(&self, task: u32) -> usize {
        self.stretches.iter().find(|stretch| stretch.task == task).unwrap().cpu
    }

    /// Time that a task had a CPU before `until`, ns.
    pub fn ran(&self, task: u32, until: u64) -> u64 {
        let mine = self.stretches.iter().filter(|stretch| stretch.task == task && stretch.from < until);
        mine.map(|stretch| stretch.to.min(until) - stretch.from).sum()
    }

    /// Wake-ups of a task that were placed.
    pub fn wakes_of(&self, task: u32) -> usize {
        self.wakes.iter().filter(|wake| wake.wakee == task).count()
    }

    /// Moves for that reason.
    pub fn moves_by(&self, cause: Cause) -> impl Iterator<Item = &Move> {
        self.moves.iter().filter(move |moved| moved.cause == cause)
    }

    /// What the report says must agree with what was seen and with itself.
    pub fn check(&self, report: &Report) {
        let accounted: u64 = report.cpu_ns.iter().sum();
        assert_eq!(accounted, u64::from(report.cpus) * report.measured_ns, "CPU time accounted");
        assert!((0.0..=1.0).contains(&report.utilisation()));
        assert!(report.simulated_ns >= report.measured_ns && self.now <= report.simulated_ns);
        if let Some(purity) = report.purity {
            assert!(purity > 0.0 && purity <= 1.0, "purity {purity}");
        }
        assert_eq!(report.finished_ns.len(), self.tasks);
        for task in 0..self.tasks {
            assert!(self.running.iter().all(|&(running, _)| running != task as u32), "task {task} still runs");
            assert!(report.finished_ns[task] <= report.simulated_ns);
        }

        let wakes = &report.wakes;
        let placed: u64 = wakes.placed.iter().flatten().sum();
        assert_eq!(wakes.total(), placed + wakes.unplaced + wakes.requeued);
        assert_eq!(wakes.waker_to_chosen.iter().sum::<u64>(), placed, "every placed wake-up has a distance");
        assert!(placed <= self.wakes.len() as u64, "{placed} wake-ups reported, {} seen", self.wakes.len());
        assert!(wakes.wide <= placed && wakes.exhausted <= placed);
        assert!(wakes.collided <= wakes.stacked && wakes.stacked <= wakes.total());
        for (cause, counts) in Cause::ALL.into_iter().zip(report.migrations) {
            assert_eq!(counts[0], 0, "a migration to the same CPU, by {}", cause.name());
            let seen = self.moves_by(cause).count() as u64;
            assert!(counts.iter().sum::<u64>() <= seen, "{seen} moves by {} seen, {counts:?}", cause.name());
        }
        assert!(report.switches <= self.switches, "{} switches reported, {} seen", report.switches, self.switches);
    }
}

impl Observer for Watch {
    fn wakeup(&mut self, now: u64, wakeup: &Wakeup, wakee: u32, placement: &Placement) {
        self.clock(now);
        self.affinity(wakee, placement.cpu.index());
        let running = self.running.iter().position(|&(running, _)| running == wakee);
        assert_eq!(running, None, "{now} ns: task {wakee} is woken while it runs");
        if let Some(at) = self.at[wakee as usize] {
            assert_eq!(wakeup.prev.index(), at, "{now} ns: task {wakee} is woken from a CPU it was not on");
        }
        self.wakes.push(Woken {
            at: now,
            waker: self.running[wakeup.this.index()].0,
            wakee,
            sync: wakeup.sync,
            chosen: placement.cpu.index(),
        });
    }

    fn switch(&mut self, now: u64, cpu: CpuId, prev: u32, next: u32) {
        self.clock(now);
        let c = cpu.index();
        let (running, from) = self.running[c];
        assert_eq!(running, prev, "{now} ns, CPU {c}: another task was running");
        assert_ne!(prev, next, "{now} ns, CPU {c}: a switch from a task to itself");
        self.switches += 1;
        if prev != IDLE {
            self.stretches.push(Stretch { cpu: c, task: prev, from, to: now });
        }
        if next != IDLE {
            let elsewhere = self.running.iter().position(|&(running, _)| running == next);
            assert_eq!(elsewhere, None, "{now} ns, CPU {c}: task {next} runs twice");
            self.affinity(next, c);
            assert_eq!(*self.at[next as usize].get_or_insert(c), c, "{now} ns: task {next} ran without having moved");
        }
        self.running[c] = (next, now);
    }

    fn migrate(&mut self, now: u64, task: u32, from: usize, to: usize, cause: Cause) {
        self.clock(now);
        assert_ne!(from, to, "{now} ns: task {task} moves to where it is");
        self.affinity(task, to);
        let running = self.running.iter().position(|&(running, _)| running == task);
        assert_eq!(running, None, "{now} ns: task {task} moves while it runs");
        let at = &mut self.at[task as usize];
        assert_eq!(*at.get_or_insert(from), from, "{now} ns: task {task} moves from a CPU it was not on");
        *at = Some(to);
        self.moves.push(Move { at: now, task, from, to, cause });
    }
}
