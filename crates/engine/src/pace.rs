//! How fast CPUs work: the threads of a core share its units, the cores of a package its power.
//!
//! Costs are those of a core that works alone in its package. A CPU with company gets less done in the same time. How much
//! less is summed up per core and per package whenever the company changes; a CPU's work event looks what its segment has
//! lost and, if anything, works on for as long as it takes to make up for it. So nothing is touched while a segment runs,
//! whoever comes and goes beside it, and a machine without such figures pays one test per segment.

use huddle_domains::DomainTree;
use huddle_machine::{CostKey, CpuId, Machine};

use crate::Observer;
use crate::sim::Sim;
use crate::state::Phase;
use crate::without::{Part, Without};

/// Losses are in 1024ths of the time.
const SCALE: u64 = 1024;
/// A CPU never comes to a standstill.
const MOST_LOSS: u64 = 1000;

/// What the members of a core or package have lost so far.
#[derive(Clone, Debug, Default)]
struct Meter {
    /// Threads of the core, or cores of the package, that work.
    busy: usize,
    /// Up to when `lost` is summed.
    since: u64,
    /// Time × loss, in ns × [`SCALE`].
    lost: u64,
    /// Present loss of each member that works.
    loss: u64,
    /// Loss by number of members that work.
    table: Vec<u64>,
}

impl Meter {
    fn at(&self, now: u64) -> u64 {
        self.lost + self.loss * (now - self.since)
    }

    fn change(&mut self, now: u64, busy: usize) {
        self.lost = self.at(now);
        self.since = now;
        self.busy = busy;
        self.loss = self.table[busy];
    }
}

/// Where a CPU's present segment began.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    at: u64,
    core: u64,
    package: u64,
    /// Loss that the segment's length already allows for, ns.
    allowed: i64,
}

/// The speed of every CPU.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Some CPU can be slowed by others.
    pub on: bool,
    core_of: Vec<u32>,
    package_of: Vec<u32>,
    cores: Vec<Meter>,
    packages: Vec<Meter>,
    marks: Vec<Mark>,
}

/// Share of a core's time that each of `busy` threads loses: together they do twice what one does beside another.
fn thread_loss(share: f64, busy: usize) -> u64 {
    let speed = if busy < 2 { 1.0 } else { 2.0 * share / busy as f64 };
    to_loss(1.0 - speed)
}

/// The clock falls evenly from one active core to all of them.
fn clock_loss(all_cores: f64, busy: usize, cores: usize) -> u64 {
    if busy < 2 { 0 } else { to_loss((1.0 - all_cores) * (busy - 1) as f64 / (cores - 1) as f64) }
}

fn to_loss(share: f64) -> u64 {
    ((share * SCALE as f64 + 0.5) as u64).min(MOST_LOSS)
}

impl Pace {
    pub(crate) fn new(machine: &Machine, tree: &DomainTree, without: Without) -> Pace {
        let topology = &machine.topology;
        let figure = |key, part| if without.has(part) { 1.0 } else { machine.costs.scalar(key) };
        let share = figure(CostKey::SmtShare, Part::Smt);
        let all_cores = figure(CostKey::AllCoreClock, Part::Frequency);
        let on = (tree.smt_active && share < 1.0) || all_cores < 1.0;
        if !on {
            let (core_of, package_of, cores, packages, marks) = Default::default();
            return Pace { on, core_of, package_of, cores, packages, marks };
        }
        let online = |cpu: &usize| tree.online.contains(CpuId::from(*cpu));
        let index = |of: &dyn Fn(CpuId) -> u32| -> Vec<u32> {
            (0..tree.nr_cpus).map(|cpu| if online(&cpu) { of(CpuId::from(cpu)) } else { 0 }).collect()
        };
        let core_of = index(&|cpu| topology.smt.index_of(cpu));
        let package_of = index(&|cpu| topology.package.index_of(cpu));
        let count = |of: &[u32]| of.iter().max().map_or(0, |&most| most as usize + 1);
        let mut cores = vec![Meter::default(); count(&core_of)];
        let mut packages = vec![Meter::default(); count(&package_of)];
        for (core, meter) in cores.iter_mut().enumerate() {
            let threads = (0..tree.nr_cpus).filter(|&cpu| online(&cpu) && core_of[cpu] as usize == core);
            let threads: Vec<usize> = threads.collect();
            meter.table = (0..=threads.len()).map(|busy| thread_loss(share, busy)).collect();
            if let Some(&first) = threads.first() {
                // Counts the package's cores.
                packages[package_of[first] as usize].busy += 1;
            }
        }
        for meter in &mut packages {
            let all = std::mem::take(&mut meter.busy);
            meter.table = (0..=all).map(|busy| clock_loss(all_cores, busy, all)).collect();
        }
        Pace { on, core_of, package_of, cores, packages, marks: vec![Mark::default(); tree.nr_cpus] }
    }

    /// The CPU begins or ceases to work.
    fn change(&mut self, now: u64, c: usize, works: bool) {
        let core = &mut self.cores[self.core_of[c] as usize];
        let before = core.busy;
        core.change(now, if works { before + 1 } else { before - 1 });
        let active = core.busy > 0;
        if active != (before > 0) {
            let package = &mut self.packages[self.package_of[c] as usize];
            package.change(now, if active { package.busy + 1 } else { package.busy - 1 });
        }
    }

    /// The CPU's segment begins, its length allowing for a loss of `allowed` ns.
    fn begin(&mut self, now: u64, c: usize, allowed: i64) {
        self.marks[c] = Mark {
            at: now,
            core: self.cores[self.core_of[c] as usize].at(now),
            package: self.packages[self.package_of[c] as usize].at(now),
            allowed,
        };
    }

    /// What the CPU's segment has lost so far beyond what its length allows for, ns.
    fn owed(&self, now: u64, c: usize) -> i64 {
        let mark = &self.marks[c];
        let passed = now - mark.at;
        let core = self.cores[self.core_of[c] as usize].at(now) - mark.core;
        let package = self.packages[self.package_of[c] as usize].at(now) - mark.package;
        // Speeds multiply; what both take from the same time counts once.
        let both = u128::from(core) * u128::from(package) / u128::from((passed * SCALE).max(1));
        (u128::from(core + package).saturating_sub(both) / u128::from(SCALE)) as i64 - mark.allowed
    }

    /// Time that `ns` of work of the CPU takes as things stand.
    fn stretched(&self, c: usize, ns: u64) -> u64 {
        let core = SCALE - self.cores[self.core_of[c] as usize].loss;
        let package = SCALE - self.packages[self.package_of[c] as usize].loss;
        (u128::from(ns) * u128::from(SCALE * SCALE) / u128::from(core * package)) as u64
    }

    /// The same as a factor.
    pub(crate) fn stretch(&self, c: usize) -> f64 {
        if self.on { self.stretched(c, SCALE * SCALE) as f64 / (SCALE * SCALE) as f64 } else { 1.0 }
    }
}

impl<O: Observer> Sim<'_, O> {
    /// The CPU leaves idle or enters it. Memory-bound code beside it changes its speed at once.
    pub(crate) fn pace_changes(&mut self, c: usize, works: bool) {
        if !self.pace.on {
            return;
        }
        self.pace.change(self.now, c, works);
        let threads = self.span(self.setup.tree.smt[c]);
        if threads.iter().map(CpuId::index).any(|cpu| cpu != c && self.runs_memory(cpu)) {
            self.memory_changed();
        }
    }

    /// A segment of the CPU begins.
    #[inline]
    pub(crate) fn pace_begins(&mut self, c: usize) {
        if self.pace.on {
            self.pace.begin(self.now, c, 0);
        }
    }

    /// Whether the segment that should end now has been slowed; it then goes on. Memory-bound code sees to its own speed.
    pub(crate) fn falls_behind(&mut self, c: usize) -> bool {
        let works = match self.cpus[c].phase {
            Phase::Running => !self.runs_memory(c),
            Phase::Switching | Phase::IdleExit => true,
            Phase::Idle | Phase::Spinning => false,
        };
        let owed = if works { self.pace.owed(self.now, c) } else { 0 };
        if owed <= 0 {
            return false;
        }
        let longer = self.pace.stretched(c, owed as u64);
        self.pace.begin(self.now, c, longer as i64 - owed);
        self.heap.set(c, self.now + longer);
        true
    }

    /// What is left of the segment that ends at `end`, on a CPU of its own, ns.
    pub(crate) fn work_left(&self, c: usize, end: u64) -> u64 {
        let left = end - self.now;
        if self.pace.on { left.saturating_add_signed(self.pace.owed(self.now, c)) } else { left }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_what_two_do_and_clocks_fall_evenly() {
        // 0.625 each of two, 1.25 of four: 0.3125 each; losses in 1024ths.
        assert_eq!((0..=4).map(|busy| thread_loss(0.625, busy)).collect::<Vec<_>>(), [0, 0, 384, 597, 704]);
        assert_eq!((0..=3).map(|busy| clock_loss(0.75, busy, 3)).collect::<Vec<_>>(), [0, 0, 128, 256]);
        assert_eq!(clock_loss(0.75, 1, 1), 0);
    }
}
