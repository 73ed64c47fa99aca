//! Pipes (`fs/pipe.c`, 5.6 on) and the mutex that guards each (`kernel/locking/mutex.c`): it is spun on while its owner
//! runs and slept on otherwise; a woken sleeper that finds it taken has it handed over at the next release.

use huddle_domains::PipeWriterWake;

use crate::Observer;
use crate::costs::PAYLOAD_UNIT;
use crate::report::Mechanism;
use crate::sim::Sim;
use crate::state::{NONE, Phase, Run, Stage, Wake};
use crate::wake::wait_lock;

impl<O: Observer> Sim<'_, O> {
    /// The task's operation can go on without sleeping.
    #[inline]
    pub(crate) fn pipe_ready(&self, t: usize) -> bool {
        let task = &self.tasks[t];
        let pipe = &self.channels[task.channel as usize];
        if task.writes { pipe.can_write(task.woken) } else { pipe.len > 0 }
    }

    pub(crate) fn pipe_sleep(&mut self, c: usize, t: usize) {
        let (channel, writes) = (self.tasks[t].channel as usize, self.tasks[t].writes);
        let held = self.wait_locks[wait_lock(channel as u32, writes) as usize].saturating_sub(self.now);
        if held > 0 {
            // A waker holds the queue's lock; whether to sleep is looked at again after that.
            return self.segment(c, held, Mechanism::LockSpin, 0);
        }
        let pipe = &mut self.channels[channel];
        let waiters = if writes { &mut pipe.writers } else { &mut pipe.readers };
        waiters.push_back(t as u32);
        self.block(c, Stage::PipeWoken, Run::Sleeping);
    }

    /// `mutex_lock`: take it, spin on a running owner, or sleep.
    pub(crate) fn acquire(&mut self, c: usize, t: usize) {
        let channel = self.tasks[t].channel as usize;
        let stage = self.tasks[t].stage;
        let first = stage == Stage::PipeAcquireFirst;
        let mutex = &mut self.channels[channel].mutex;
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
        let mutex = &mut self.channels[channel].mutex;
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
        let ready = self.pipe_ready(t);
        let pipe = &mut self.channels[channel];
        let last = std::mem::replace(&mut pipe.last_cpu, c as u32);
        let edge = if writes { pipe.len == 0 } else { pipe.ring_full() };
        let (copy, payload) = (u64::from(pipe.copy), u64::from(pipe.payload));
        let (mut transfer, mut line) = (0, 0);
        if last != NONE {
            let distance = self.dist(c, last as usize);
            (transfer, line) = (self.costs.pipe_lines[distance], self.costs.line[distance]);
        }
        let ns = match (ready, writes) {
            (false, _) => self.costs.probe,
            (true, true) => self.costs.write_locked + copy,
            (true, false) => self.costs.read_locked + copy,
        };
        if ready {
            transfer += line * payload / PAYLOAD_UNIT;
        }
        self.tasks[t].edge = edge;
        self.tasks[t].stage = Stage::PipeHold;
        let ns = self.jittered(ns);
        self.segment(c, ns, Mechanism::Kernel, transfer + lines);
    }

    /// The locked part is done: the message moves, the mutex is released, whoever must be woken is noted. True when a
    /// segment has begun.
    #[inline]
    pub(crate) fn pipe_done(&mut self, c: usize, t: usize) -> bool {
        let (channel, writes, edge, woken) = {
            let task = &self.tasks[t];
            (task.channel as usize, task.writes, task.edge, task.woken)
        };
        let ready = self.pipe_ready(t);
        let pipe = &mut self.channels[channel];
        let (mut reader, mut writer) = (false, false);
        if writes {
            if ready {
                pipe.push(woken);
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

    // ---- the mutex -------------------------------------------------------------------------------------------------------

    /// `mutex_unlock` by the task on `c`: hands over if asked to, lets the first spinner have it, and tells whom to wake.
    pub(crate) fn release(&mut self, c: usize, channel: usize) -> Option<Wake> {
        let mutex = &mut self.channels[channel].mutex;
        mutex.owner = NONE;
        let first = mutex.sleepers.front().copied();
        if let Some(first) = first.filter(|_| mutex.handoff) {
            mutex.sleepers.pop_front();
            mutex.handoff = false;
            mutex.owner = first;
            if let Some(at) = mutex.spinners.iter().position(|&spinner| spinner == first) {
                mutex.spinners.remove(at);
                self.grant(c, first as usize);
                return None;
            }
            if self.tasks[first as usize].run != Run::Running {
                self.spinners_to_sleep(channel);
            }
            return Some(Wake::MutexSleeper(first, channel as u32));
        }
        if let Some(next) = mutex.spinners.pop_front() {
            mutex.owner = next;
            mutex.sleepers.retain(|&sleeper| sleeper != next);
            self.grant(c, next as usize);
        }
        first.map(|first| Wake::MutexSleeper(first, channel as u32))
    }

    /// A spinner sees that the mutex is its own: one line later it goes on.
    pub(crate) fn grant(&mut self, from: usize, t: usize) {
        let c = self.tasks[t].cpu as usize;
        let line = self.costs.line[self.dist(from, c)];
        self.begin_hold(c, t, line);
    }

    /// A spinner must leave its CPU: it will queue for the mutex without spinning again.
    pub(crate) fn stop_spinning(&mut self, c: usize) {
        let t = self.cpus[c].curr as usize;
        self.leave_spinners(t);
        self.schedule(c, 0);
    }

    pub(crate) fn leave_spinners(&mut self, t: usize) {
        let mutex = &mut self.channels[self.tasks[t].channel as usize].mutex;
        mutex.spinners.retain(|&spinner| spinner != t as u32);
        let first = mutex.sleepers.contains(&(t as u32));
        self.tasks[t].stage = if first { Stage::PipeAcquireFirst } else { Stage::PipeAcquireSlow };
    }

    /// The owner has left its CPU: its spinners queue up and sleep.
    pub(crate) fn spinners_to_sleep(&mut self, channel: usize) {
        while let Some(&t) = self.channels[channel].mutex.spinners.front() {
            let c = self.tasks[t as usize].cpu as usize;
            self.charge(c);
            self.leave_spinners(t as usize);
            if self.tasks[t as usize].stage == Stage::PipeAcquireSlow {
                self.channels[channel].mutex.sleepers.push_back(t);
            }
            self.block(c, Stage::PipeAcquireFirst, Run::Sleeping);
        }
    }
}

#[cfg(test)]
mod tests {
    use huddle_machine::Machine;

    use super::*;
    use crate::testing::still;

    #[test]
    fn a_mutex_is_handed_to_the_first_in_line_that_spins_behind_another() {
        // Task 3 lets go of the pipe's mutex on CPU 8. Tasks 1 and 2 have slept for it and both been woken, the second by a waker that
        // was late with an earlier sleep of it.
        let machine = Machine::load("kunpeng920:nodes=1").unwrap();
        still(
            (&machine, "linux-5.10"),
            (3, 7),
            |_| (),
            |sim| {
                for (t, c) in [(1, 7), (2, 9)] {
                    (sim.tasks[t].cpu, sim.tasks[t].stage, sim.tasks[t].run) =
                        (c, Stage::PipeAcquireFirst, Run::Running);
                    (sim.cpus[c as usize].curr, sim.cpus[c as usize].phase) = (t as u32, Phase::Spinning);
                }
                let mutex = &mut sim.channels[0].mutex;
                (mutex.owner, mutex.handoff) = (3, true);
                mutex.sleepers.extend([1, 2]);
                mutex.spinners.extend([2, 1]);
                assert_eq!(sim.release(8, 0), None);
                let mutex = &sim.channels[0].mutex;
                assert_eq!((mutex.owner, sim.cpus[7].phase, sim.tasks[1].stage), (1, Phase::Running, Stage::PipeHold));
                assert_eq!((&mutex.spinners, &mutex.sleepers), (&[2].into(), &[2].into()));
            },
        );
    }
}
