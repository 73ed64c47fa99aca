//! `__schedule` and what surrounds it: the switch from one task to the next, entering idle, blocking.

use huddle_machine::CpuId;

use crate::Observer;
use crate::report::{Mechanism, SimError};
use crate::sim::Sim;
use crate::state::{NONE, Phase, Run, Stage};

impl<O: Observer> Sim<'_, O> {
    /// `__schedule`: puts the current task back or lets it go, picks the next one, begins the switch. `balance` is time
    /// already spent on balancing for others.
    pub(crate) fn schedule(&mut self, c: usize, mut balance: u64) {
        self.charge(c);
        let prev = self.cpus[c].curr;
        if prev != NONE {
            self.update_curr(c);
            match self.tasks[prev as usize].run {
                Run::Running => self.put_back(c, prev as usize),
                Run::Delayed => self.insert(c, prev as usize),
                _ => {}
            }
            self.cpus[c].phase = Phase::Switching;
            if self.tasks[prev as usize].stage == Stage::Memory {
                self.memory_stops(c, prev as usize);
            }
        }
        self.cpus[c].need_resched = false;
        self.cpus[c].lazily = false;
        self.cpus[c].curr = NONE;
        // The stopper comes before all: it runs as if idle, then this is called again.
        let mut next = NONE;
        if self.cpus[c].push_to == NONE {
            if self.tuning.dsq {
                let (task, ns) = self.next_task(c);
                (next, balance) = (task, balance + ns);
            } else {
                let (task, ns) = self.pick_or_pull(c, prev);
                (next, balance) = (task, balance + ns);
            }
        }
        let mut ns = if prev == NONE { 0 } else { self.costs.switch_out };
        if next != NONE {
            self.check_next(c, prev, next);
            if self.tuning.dsq && next != prev {
                self.begin_running(c, next as usize);
            }
            self.set_next(c, next as usize);
            if next != prev {
                ns += self.costs.switch_in + self.load_mm(c, next as usize);
                if self.tuning.eevdf {
                    self.protect(c, next as usize);
                }
            }
            if prev == NONE && self.tuning.idle_sampled_at_exit {
                self.sample_idle(c);
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
        self.pace_begins(c);
        if self.tuning.dsq {
            self.pay_for_queues(c);
        }
        self.refresh_idle(c);
        if prev != NONE && prev != next && self.tasks[prev as usize].stage == Stage::PipeHold {
            let channel = self.tasks[prev as usize].channel as usize;
            self.spinners_to_sleep(channel);
        }
    }

    /// `switch_mm_irqs_off`: the address space changes only between tasks of different processes; the idle task and background
    /// tasks borrow the one that is there.
    #[inline]
    fn load_mm(&mut self, c: usize, next: usize) -> u64 {
        let (mm, loaded) = (self.tasks[next].mm, &mut self.cpus[c].mm);
        if mm == *loaded || mm == NONE {
            return 0;
        }
        *loaded = mm;
        self.costs.mm_switch
    }

    /// Picks a task, pulling one if there is none. What is queued may turn out to be asleep, its dequeue delayed, and so may what
    /// was pulled. Also the time that balancing took.
    #[inline]
    fn pick_or_pull(&mut self, c: usize, prev: u32) -> (u32, u64) {
        let mut balance = 0;
        loop {
            if self.cpus[c].nr_running > 0 {
                let next = self.pick(c, prev);
                if next != NONE {
                    return (next, balance);
                }
            }
            balance += self.newidle_balance(c);
            if self.cpus[c].nr_running == 0 {
                return (NONE, balance);
            }
        }
    }

    /// A law of every run: a task runs on one CPU at a time, and only where its affinity lets it.
    fn check_next(&mut self, c: usize, prev: u32, next: u32) {
        let task = &self.tasks[next as usize];
        let twice = task.on_cpu && next != prev;
        let outside = !self.affinities[task.affinity as usize].contains(CpuId::from(c));
        if twice || outside {
            let what = if twice { "while it is still on another" } else { "outside its affinity" };
            self.error = Some(SimError::Conservation(format!("task {next} is to run on CPU {c} {what}")));
        }
    }

    /// The switch is done: what left is off its CPU, what comes runs on from where it was.
    pub(crate) fn finish_switch(&mut self, c: usize) {
        self.charge(c);
        let leaving = std::mem::replace(&mut self.cpus[c].leaving, NONE);
        if leaving != NONE {
            self.tasks[leaving as usize].on_cpu = false;
            if self.tuning.dsq {
                self.release_kept(c);
            }
        }
        if self.cpus[c].push_to != NONE {
            self.push_running(c);
            return self.schedule(c, 0);
        }
        if self.cpus[c].curr == NONE {
            let waits = self.tuning.dsq && self.finds_waiting(c);
            if self.cpus[c].need_resched || self.cpus[c].nr_running > 0 || waits {
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

    pub(crate) fn enter_idle(&mut self, c: usize) {
        if self.tuning.dsq {
            self.idle_under_scheduler(c);
        }
        let cpu = &mut self.cpus[c];
        cpu.phase = Phase::Idle;
        cpu.mechanism = Mechanism::Idle;
        cpu.portions.clear();
        self.pace_changes(c, false);
        self.refresh_idle(c);
        let slot = self.tick_slot(c);
        self.heap.clear(slot);
        if !std::mem::replace(&mut self.cpus[c].tick_stopped, true) {
            self.nohz.insert(CpuId::from(c));
            if !std::mem::replace(&mut self.cpus[c].counted_idle, true) {
                let llc = self.setup.tree.cached[c].llc_index as usize;
                self.llcs[llc].nr_busy -= 1;
            }
        }
        self.note_idle_core(c);
    }

    /// `__update_idle_core`: a core whose other threads idle sets its LLC's hint.
    pub(crate) fn note_idle_core(&mut self, c: usize) {
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

    /// Keeps the idle bitmap: current is idle, nothing queued, nothing pending. A CPU that still takes its last task off
    /// is not idle yet.
    #[inline]
    pub(crate) fn refresh_idle(&mut self, c: usize) {
        let cpu = &self.cpus[c];
        let settled = cpu.phase != Phase::Switching;
        let mut idle =
            settled && cpu.curr == NONE && cpu.nr_running == 0 && cpu.wake_list.is_empty() && cpu.claims == 0;
        if self.tuning.dsq {
            idle &= !self.dsq.is_claimed(c);
        }
        let bit = 1u64 << (c % 64);
        let word = &mut self.idle.words_mut()[c / 64];
        let was = *word;
        *word = if idle { was | bit } else { was & !bit };
        if self.tuning.dsq && *word != was {
            self.dsq.note_core(&self.idle, self.setup.tree, c);
        }
    }

    /// The current task goes to sleep (or dies) and continues in `stage` when it is woken.
    pub(crate) fn block(&mut self, c: usize, stage: Stage, run: Run) {
        let t = self.cpus[c].curr as usize;
        self.tasks[t].stage = stage;
        self.update_curr(c);
        if self.tuning.dsq {
            self.dsq.note_stop(c, t, true, self.now);
        }
        self.tasks[t].run = run;
        if self.tuning.delay_dequeue && run == Run::Sleeping && !self.is_eligible(c, t) {
            self.delay_current(c, t);
        } else {
            self.dequeue_current(c, t);
        }
        self.schedule(c, 0);
    }
}

/// What a task's segment is, when it resumes one that was cut.
fn mechanism_of(stage: Stage) -> Mechanism {
    match stage {
        Stage::Compute | Stage::Memory | Stage::MutexTry | Stage::MutexRelease | Stage::NoiseSleep => {
            Mechanism::Compute
        }
        _ => Mechanism::Kernel,
    }
}

#[cfg(test)]
mod tests {
    use huddle_machine::{CostKey, Machine};

    use super::*;
    use crate::testing::still;

    #[test]
    fn the_address_space_is_loaded_when_a_task_of_another_process_comes() {
        let machine = Machine::load("kunpeng920:nodes=1").unwrap();
        let cost = machine.costs.scalar(CostKey::MmSwitch) as u64;
        assert!(cost > 0);
        still(
            (&machine, "linux-5.9"),
            (3, 7),
            |_| (),
            |sim| {
                // Task 1 is a thread of task 0, task 2 a process, task 3 of the kernel.
                (sim.tasks[1].mm, sim.tasks[2].mm, sim.tasks[3].mm) = (0, 2, NONE);
                let loads: Vec<u64> = [0, 1, 3, 2, 3, 2, 1].iter().map(|&task| sim.load_mm(7, task)).collect();
                assert_eq!(loads, [0, 0, 0, cost, 0, 0, cost]);
            },
        );
    }
}
