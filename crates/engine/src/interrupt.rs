//! Interrupts between CPUs, leaving idle, and the timer tick.

use huddle_machine::CpuId;

use crate::Observer;
use crate::heap::NEVER;
use crate::report::Mechanism;
use crate::sim::Sim;
use crate::state::{NONE, Phase, Stage, ipi};

impl<O: Observer> Sim<'_, O> {
    /// Sends an interrupt for `flag` from one CPU to another.
    pub(crate) fn send_ipi(&mut self, from: usize, to: usize, flag: u8) {
        self.cpus[to].ipi |= flag;
        let arrival = self.now + self.costs.ipi_latency[self.dist(from, to)];
        let slot = self.ipi_slot(to);
        self.heap.set_min(slot, arrival.max(self.now + 1));
    }

    pub(crate) fn interrupt(&mut self, c: usize) {
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
                    self.cpus[c].lazily = false;
                }
                self.preempt_if_asked(c);
            }
        }
    }

    /// Begins to leave the idle state, `lines` being the transfer that tells a watching CPU of it.
    pub(crate) fn leave_idle(&mut self, c: usize, lines: u64) {
        if self.cpus[c].phase != Phase::Idle {
            return;
        }
        self.charge(c);
        let exit = self.costs.idle_exit + lines;
        let cpu = &mut self.cpus[c];
        cpu.phase = Phase::IdleExit;
        cpu.mechanism = Mechanism::Interrupt;
        self.heap.set(c, self.now + exit.max(1));
        self.pace_changes(c, true);
        self.pace_begins(c);
    }

    /// Makes an idle CPU look at its queue: through its flag if it polls, else by interrupt.
    pub(crate) fn kick_idle(&mut self, from: usize, c: usize) {
        self.cpus[c].need_resched = true;
        if self.cpus[c].phase != Phase::Idle {
            return;
        }
        if self.costs.idle_polling {
            let lines = self.costs.line[self.dist(from, c)];
            self.leave_idle(c, lines);
        } else {
            self.send_ipi(from, c, ipi::RESCHED);
        }
    }

    /// Enqueues what others have put on the CPU's wake list.
    pub(crate) fn take_wake_list(&mut self, c: usize) {
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
    pub(crate) fn preempt_if_asked(&mut self, c: usize) {
        if !self.cpus[c].need_resched || self.cpus[c].curr == NONE {
            return;
        }
        match self.cpus[c].phase {
            Phase::Spinning
                if self.cpus[c].lazily && self.tasks[self.cpus[c].curr as usize].stage != Stage::Spinlock => {}
            Phase::Spinning => self.stop_spinning(c),
            Phase::Running => {
                let user = matches!(
                    self.tasks[self.cpus[c].curr as usize].stage,
                    Stage::Compute | Stage::Memory | Stage::MutexTry | Stage::MutexRelease | Stage::NoiseSleep
                );
                let atomic = matches!(
                    self.tasks[self.cpus[c].curr as usize].stage,
                    Stage::SocketHold
                        | Stage::WakeSelect(_)
                        | Stage::WakeEnqueue(..)
                        | Stage::WakeIpi(..)
                        | Stage::WakeRequeue(_)
                        | Stage::WakeNext
                );
                if user || (self.kernel_gives_way(c) && !atomic) {
                    self.preempt(c);
                }
            }
            _ => {}
        }
    }

    /// The CPU is to be given up in the midst of kernel code. A lazily preemptible kernel does so from the tick after the request
    /// on, and for requests that are not of the fair class.
    pub(crate) fn kernel_gives_way(&self, c: usize) -> bool {
        let cpu = &self.cpus[c];
        cpu.need_resched && (self.tuning.preempt || (self.tuning.lazy_preempt && !cpu.lazily))
    }

    /// Takes the running task off in the middle of its segment.
    pub(crate) fn preempt(&mut self, c: usize) {
        let t = self.cpus[c].curr as usize;
        let end = self.heap.time(c);
        if end != NEVER && end > self.now && self.tasks[t].stage != Stage::Memory {
            self.charge(c);
            self.tasks[t].remaining = self.work_left(c, end);
        }
        self.schedule(c, 0);
    }

    pub(crate) fn start_tick(&mut self, c: usize) {
        let slot = self.tick_slot(c);
        if self.heap.time(slot) == NEVER {
            let (jiffy, offset) = (self.tuning.jiffy, self.cpus[c].tick_offset);
            let since = (self.now + jiffy - offset) % jiffy;
            self.heap.set(slot, self.now + jiffy - since);
        }
    }

    pub(crate) fn tick(&mut self, c: usize) {
        if self.cpus[c].curr == NONE && self.cpus[c].nr_running == 0 {
            return;
        }
        let slot = self.tick_slot(c);
        self.heap.set(slot, self.now + self.tuning.jiffy);
        self.busy_again(c);
        let tick = self.costs.tick;
        self.steal(c, Mechanism::Tick, tick);
        self.cpus[c].lazily = false;
        if self.cpus[c].curr != NONE {
            self.update_curr(c);
            self.tick_preempt(c);
            if self.tuning.cache_aware {
                self.tick_space(c, self.cpus[c].curr as usize);
            }
        }
        if !self.tuning.dsq {
            if self.tuning.by_load {
                self.note_load(c);
            }
            self.balance_tick(c);
        }
        self.preempt_if_asked(c);
    }

    /// The first busy tick after idling (`nohz_balance_exit_idle`).
    pub(crate) fn busy_again(&mut self, c: usize) {
        if std::mem::take(&mut self.cpus[c].tick_stopped) {
            self.nohz.remove(CpuId::from(c));
            if std::mem::take(&mut self.cpus[c].counted_idle) {
                let llc = self.setup.tree.cached[c].llc_index as usize;
                self.llcs[llc].nr_busy += 1;
            }
        }
    }
}
