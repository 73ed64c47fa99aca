//! From events to placements: what each knew, read and chose.

use std::collections::BTreeMap;

use huddle_machine::{CpuId, CpuSet};

use crate::{Context, Event, Record};

/// Why a task is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It wakes up.
    Wakeup,
    /// It was forked.
    Fork,
    /// It executes another program.
    Exec,
}

/// A look at a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// The CPU.
    pub cpu: CpuId,
    /// Whether it was found idle.
    pub idle: bool,
}

/// A placement as it happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// When, microseconds.
    pub time_us: u64,
    /// Why.
    pub kind: Kind,
    /// The CPU that places.
    pub this: CpuId,
    /// The task's CPU before.
    pub prev: CpuId,
    /// The sync flag.
    pub sync: bool,
    /// The flag that asks for the waking CPU.
    pub current_cpu: bool,
    /// The task that wakes or forks, 0 when it is the idle one.
    pub waker: u32,
    /// A per-CPU kernel thread wakes in task context.
    pub by_per_cpu_kthread: bool,
    /// The task that is placed.
    pub wakee: u32,
    /// Its name, empty if no event told.
    pub wakee_comm: Box<str>,
    /// Its recent CPU, where a probe read it.
    pub recent: Option<CpuId>,
    /// Its switches of partner, where a probe read them.
    pub flips: Option<u32>,
    /// What it looked at, in order; the steps look at the target first.
    pub reads: Vec<Read>,
    /// The reads are those of the steps alone, not of the entry rule before them.
    pub steps_alone: bool,
    /// CPUs that the scheduler's events leave idle at the start.
    pub idle: CpuSet,
    /// Of these, CPUs for which a placement had chosen a task that was not yet seen to be queued, and all CPUs whose state changed
    /// between start and end or of which the trace has nothing so far: a look may have found either.
    pub unsure: CpuSet,
    /// Runnable tasks by CPU, as the events leave them.
    pub nr_running: Vec<u32>,
    /// The choice.
    pub cpu: CpuId,
}

/// The placements of a trace of a machine with `nr_cpus` CPUs, in the order of their ends. Events of CPUs beyond are left out.
pub fn decisions(records: &[Record], nr_cpus: usize) -> Vec<Decision> {
    let mut world = World::new(records, nr_cpus);
    for record in records.iter().filter(|record| record.cpu.index() < nr_cpus) {
        world.apply(record);
    }
    world.done
}

/// A task that no event names.
const UNKNOWN: u32 = u32::MAX;

/// Where a task is.
#[derive(Clone, Copy, Default)]
struct Place {
    cpu: usize,
    runnable: bool,
    /// Chosen but not yet queued.
    pending: bool,
}

/// The machine as the events leave it.
struct World {
    nr_cpus: usize,
    running: Vec<u32>,
    pending: Vec<u32>,
    current: Vec<u32>,
    /// CPUs without any event so far: what is under way there may have begun before the trace.
    silent: CpuSet,
    places: BTreeMap<u32, Place>,
    /// The last wake-up that began on each CPU.
    waking: Vec<(u32, Box<str>)>,
    open: Vec<Option<Decision>>,
    /// The CPU that is looked at, and whether only steps look so.
    reading: Vec<Option<(CpuId, bool)>>,
    done: Vec<Decision>,
}

impl World {
    /// Each CPU runs at the start what its first event finds there. One without any event runs one task from start to end if somebody
    /// looked and found it busy; what it does is else not known.
    fn new(records: &[Record], nr_cpus: usize) -> World {
        let mut world = World {
            nr_cpus,
            running: vec![0; nr_cpus],
            pending: vec![0; nr_cpus],
            current: vec![0; nr_cpus],
            silent: CpuSet::full(nr_cpus),
            places: BTreeMap::new(),
            waking: vec![(0, "".into()); nr_cpus],
            open: vec![None; nr_cpus],
            reading: vec![None; nr_cpus],
            done: Vec::new(),
        };
        let mut seen = CpuSet::new(nr_cpus);
        for record in records.iter().filter(|record| record.cpu.index() < nr_cpus) {
            if !seen.contains(record.cpu) {
                seen.insert(record.cpu);
                world.current[record.cpu.index()] = record.pid;
                world.put(record.pid, record.cpu.index(), true);
            }
        }
        let mut busy = found_busy(records, nr_cpus);
        busy.subtract(&seen);
        for cpu in busy.iter() {
            world.current[cpu.index()] = UNKNOWN;
            world.running[cpu.index()] = 1;
        }
        world.silent.subtract(&busy);
        world
    }

    /// Takes a task from where it is and leaves it on a CPU, runnable or asleep.
    fn put(&mut self, pid: u32, cpu: usize, runnable: bool) {
        if pid == 0 || cpu >= self.nr_cpus {
            return;
        }
        let place = self.places.entry(pid).or_default();
        self.running[place.cpu] -= u32::from(place.runnable);
        self.pending[place.cpu] -= u32::from(place.pending);
        *place = Place { cpu, runnable, pending: false };
        self.running[cpu] += u32::from(runnable);
        self.changed(cpu);
    }

    /// Nothing runs or is queued, as far as events tell.
    fn idle(&self, cpu: usize) -> bool {
        self.current[cpu] == 0 && self.running[cpu] == 0
    }

    /// Notes for the placements under way that this CPU is not what it was at their start.
    fn changed(&mut self, cpu: usize) {
        let idle = self.idle(cpu);
        for open in self.open.iter_mut().flatten() {
            if open.idle.contains(CpuId::from(cpu)) != idle {
                open.unsure.insert(CpuId::from(cpu));
            }
        }
    }

    fn apply(&mut self, record: &Record) {
        let this = record.cpu.index();
        self.silent.remove(record.cpu);
        match record.event {
            Event::Switch { prev, runnable, next } => {
                // A task that is queued elsewhere already left before its switch was written.
                if self.places.get(&prev).is_none_or(|place| place.cpu == this) {
                    self.put(prev, this, runnable);
                }
                self.put(next, this, true);
                self.current[this] = next;
                self.changed(this);
            }
            Event::Waking { pid, ref comm } => self.waking[this] = (pid, comm.clone()),
            Event::Queued { pid, cpu, .. } => self.put(pid, cpu.index(), true),
            Event::Migrate { pid, to, .. } => {
                if let Some(&Place { runnable, pending: false, .. }) = self.places.get(&pid) {
                    self.put(pid, to.index(), runnable);
                }
            }
            Event::Exit { .. } => {}
            Event::Select { .. } => self.open(record),
            Event::Look { cpu } => self.reading[this] = Some((cpu, false)),
            Event::Choose { cpu } => self.reading[this] = Some((cpu, true)),
            Event::Idle(idle) => {
                if let (Some((cpu, steps_alone)), Some(open)) = (self.reading[this].take(), &mut self.open[this]) {
                    open.reads.push(Read { cpu, idle });
                    open.steps_alone = steps_alone;
                }
            }
            Event::Selected { cpu } => self.close(this, cpu),
        }
    }

    fn open(&mut self, record: &Record) {
        let Event::Select { prev, kind, sync, current_cpu, pid, recent, flips } = record.event else { return };
        let this = record.cpu.index();
        let (waking, ref comm) = self.waking[this];
        let wakee = pid.unwrap_or(waking);
        let idle = (0..self.nr_cpus).filter(|&cpu| self.idle(cpu));
        let unsure = (0..self.nr_cpus)
            .filter(|&cpu| self.idle(cpu) && (self.pending[cpu] > 0 || self.silent.contains(CpuId::from(cpu))));
        self.open[this] = Some(Decision {
            time_us: record.time_us,
            kind,
            this: record.cpu,
            prev,
            sync,
            current_cpu,
            waker: record.pid,
            by_per_cpu_kthread: record.context == Context::Task && per_cpu_kthread(&record.comm, record.cpu),
            wakee,
            wakee_comm: if wakee == waking { comm.clone() } else { "".into() },
            recent,
            flips,
            reads: Vec::new(),
            steps_alone: false,
            idle: CpuSet::from_cpus(self.nr_cpus, idle),
            unsure: CpuSet::from_cpus(self.nr_cpus, unsure),
            nr_running: self.running.clone(),
            cpu: prev,
        });
        self.reading[this] = None;
    }

    fn close(&mut self, this: usize, cpu: CpuId) {
        let Some(mut decision) = self.open[this].take() else { return };
        let known = |cpu: CpuId| cpu.index() < self.nr_cpus;
        if !known(cpu) || !known(decision.prev) || !decision.reads.iter().all(|read| known(read.cpu)) {
            return;
        }
        decision.cpu = cpu;
        let wakee = decision.wakee;
        if wakee != 0 {
            self.put(wakee, cpu.index(), false);
            if let Some(place) = self.places.get_mut(&wakee) {
                place.pending = true;
                self.pending[cpu.index()] += 1;
                self.open.iter_mut().flatten().for_each(|open| open.unsure.insert(cpu));
            }
        }
        self.done.push(decision);
    }
}

/// CPUs that some placement looked at and did not find idle.
fn found_busy(records: &[Record], nr_cpus: usize) -> CpuSet {
    let mut busy = CpuSet::new(nr_cpus);
    let mut reading = vec![None; nr_cpus];
    for record in records.iter().filter(|record| record.cpu.index() < nr_cpus) {
        let this = record.cpu.index();
        match record.event {
            Event::Look { cpu } | Event::Choose { cpu } => reading[this] = Some(cpu),
            Event::Idle(idle) => {
                if let Some(cpu) = reading[this].take().filter(|cpu| !idle && cpu.index() < nr_cpus) {
                    busy.insert(cpu);
                }
            }
            _ => {}
        }
    }
    busy
}

/// Whether a name is that of a kernel thread bound to this CPU: `ksoftirqd/3`, `kworker/3:1`; `kworker/u48:2` is free.
fn per_cpu_kthread(comm: &str, cpu: CpuId) -> bool {
    let Some((name, rest)) = comm.split_once('/') else { return false };
    let number = rest.split([':', '-']).next().unwrap_or(rest);
    name != "swapper" && number.parse() == Ok(cpu.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ftrace;

    /// CPU 1 wakes task 9 of CPU 2 while CPU 3 runs a task; the steps look at 1, 2 and take 2.
    const WAKE: &str = "\
        b-5 [003] d..2. 1.000001: sched_waking: comm=x pid=99 prio=120 target_cpu=003\n\
        a-7 [001] d..2. 1.000002: sched_waking: comm=w pid=9 prio=120 target_cpu=002\n\
        a-7 [001] d..2. 1.000003: select: (f) prev=2 flags=8 pid=9 recent=3 flips=0\n\
        a-7 [001] d..2. 1.000006: choose: (f) cpu=1\n\
        a-7 [001] d..2. 1.000006: idle: (f <- f) idle=0\n\
        a-7 [001] d..2. 1.000007: choose: (f) cpu=2\n\
        a-7 [001] d..2. 1.000007: idle: (f <- f) idle=1\n\
        a-7 [001] d..2. 1.000008: selected: (f <- f) cpu=2\n";

    #[test]
    fn a_wakeup_knows_its_reads_and_the_busy_cpus() {
        let records = &ftrace::parse(WAKE).expect("lines")[0].records;
        let decisions = decisions(records, 4);
        let [decision] = decisions.as_slice() else { panic!("{decisions:?}") };
        assert_eq!((decision.wakee, decision.waker, &*decision.wakee_comm), (9, 7, "w"));
        assert_eq!((decision.steps_alone, decision.cpu), (true, CpuId(2)));
        let expected = [Read { cpu: CpuId(1), idle: false }, Read { cpu: CpuId(2), idle: true }];
        assert_eq!(decision.reads, expected);
        assert_eq!(decision.idle.to_string(), "0,2");
        assert_eq!(decision.nr_running, [0, 1, 0, 1]);
    }

    #[test]
    fn a_cpu_that_was_chosen_is_unsure_until_its_task_is_queued() {
        let text = format!(
            "{WAKE}{WAKE}\
            b-5 [003] d..2. 2.000001: sched_switch: prev_comm=b prev_pid=5 prev_prio=120 prev_state=S ==> next_comm=x next_pid=0 next_prio=1\n\
            c-0 [002] d..2. 2.000002: sched_wakeup: comm=w pid=9 prio=120 target_cpu=002\n\
            c-0 [002] d..2. 2.000003: sched_switch: prev_comm=c prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=w next_pid=9 next_prio=1\n\
            w-9 [002] d..2. 2.000004: sched_switch: prev_comm=w prev_pid=9 prev_prio=120 prev_state=S ==> next_comm=c next_pid=0 next_prio=1\n\
            {WAKE}"
        );
        let records = &ftrace::parse(&text).expect("lines")[0].records;
        let decisions = decisions(records, 4);
        let sets = |decision: &Decision| (decision.idle.to_string(), decision.unsure.to_string());
        let sets: Vec<(String, String)> = decisions.iter().map(sets).collect();
        // Nothing is heard of CPU 0, and of CPU 2 only when its task comes.
        let expected = [("0,2", "0,2"), ("0,2", "0,2"), ("0,2-3", "0")];
        assert_eq!(sets, expected.map(|(idle, unsure)| (idle.to_owned(), unsure.to_owned())));
    }

    #[test]
    fn a_cpu_without_events_that_was_found_busy_runs_a_hog() {
        let text = WAKE.replace("choose: (f) cpu=1", "choose: (f) cpu=0");
        let records = &ftrace::parse(&text).expect("lines")[0].records;
        let decision = &decisions(records, 4)[0];
        assert_eq!((decision.idle.to_string(), decision.nr_running[0]), ("2".to_owned(), 1));
    }

    #[test]
    fn threads_of_one_cpu_are_told_from_free_workers() {
        assert!(per_cpu_kthread("kworker/3:1-mm", CpuId(3)) && per_cpu_kthread("ksoftirqd/3", CpuId(3)));
        assert!(!per_cpu_kthread("kworker/u48:1", CpuId(3)) && !per_cpu_kthread("swapper/3", CpuId(3)));
        assert!(!per_cpu_kthread("pair", CpuId(3)));
    }
}
