//! Pipes (`fs/pipe.c`; before 5.5 with one wait queue for both ends) and the mutex that guards each (`kernel/locking/mutex.c`): it is spun on while its owner
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

    /// Before 5.5: readers and writers of a pipe sleep on one queue, that of the readers here.
    #[inline]
    pub(crate) fn pipes_share_a_queue(&self) -> bool {
        self.tuning.shared_pipes
    }

    pub(crate) fn pipe_sleep(&mut self, c: usize, t: usize) {
        let (channel, writes) = (self.tasks[t].channel as usize, self.tasks[t].writes && !self.pipes_share_a_queue());
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
        if mutex.owner == NONE || self.tuning.open_pipes {
            mutex.owner = t as u32;
            if first {
                mutex.sleepers.retain(|&sleeper| sleeper != t as u32);
                mutex.handoff = false;
            }
            return self.begin_hold(c, t, 0);
        }
        let owner = mutex.owner as usize;
        let urged = self.cpus[c].need_resched && !self.cpus[c].lazily;
        let spin = stage != Stage::PipeAcquireSlow && !urged && self.tasks[owner].run == Run::Running;
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
        // Without the mutex others have been here since: who must be woken is known only now.
        let edge = match self.tuning.open_pipes {
            true if writes => pipe.len == 0,
            true => pipe.ring_full(),
            false => edge,
        };
        let (mut reader, mut writer, mut emptied) = (false, false, false);
        if writes {
            if ready {
                pipe.push(woken);
                writer = woken && !pipe.ring_full();
            }
            reader = edge;
        } else if ready {
            emptied = pipe.pop();
            writer = match self.setup.kernel.pipe_writer_wake {
                PipeWriterWake::EveryFullRead => edge,
                PipeWriterWake::FreedSlot | PipeWriterWake::SharedQueue => edge && emptied,
            };
        }
        if self.tuning.shared_pipes {
            return self.pipe_done_on_a_shared_queue(c, t, ready, emptied || (writes && ready));
        }
        let pipe = &self.channels[channel];
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

    /// The same before 5.5: whoever sleeps on the pipe is woken, if `all` are to be. True when a segment has begun.
    fn pipe_done_on_a_shared_queue(&mut self, c: usize, t: usize, ready: bool, all: bool) -> bool {
        let channel = self.tasks[t].channel as usize;
        let sleepers = if all { self.channels[channel].readers.len() as u32 } else { 0 };
        let first = self.release(c, channel);
        let task = &mut self.tasks[t];
        task.then = if ready { Stage::Next } else { Stage::PipeWait };
        if first.is_none() && sleepers == 0 {
            task.stage = task.then;
            return false;
        }
        let everybody = (sleepers > 0).then_some(Wake::Everybody(channel as u32, sleepers));
        task.wakes = [everybody, first, None, None];
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
        let line = self.costs.hand_over[self.dist(from, c)];
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
        if self.tasks[t].stage == Stage::Spinlock {
            return;
        }
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
    use huddle_domains::Kernel;
    use huddle_machine::Machine;

    use super::*;
    use crate::testing::still;

    /// Task 3, on CPU 8, is about to finish a write or read of a pipe that holds `len` messages; tasks 1 and 2 sleep on it. Who is
    /// woken first, if anybody, and how many go on sleeping.
    fn finishes(kernel: &str, writes: bool, len: u32) -> (Option<u32>, usize) {
        let machine = Machine::load("kunpeng920:nodes=1").unwrap();
        let mut result = (None, 0);
        still(
            (&machine, "linux-5.10"),
            (3, 7),
            |record| *record = Kernel::load(kernel).unwrap(),
            |sim| {
                (sim.cpus[8].curr, sim.cpus[8].phase) = (3, Phase::Running);
                let task = &mut sim.tasks[3];
                (task.cpu, task.run, task.stage, task.writes) = (8, Run::Running, Stage::PipeHold, writes);
                let pipe = &mut sim.channels[0];
                (0..len).for_each(|_| pipe.push(false));
                task.edge = if writes { len == 0 } else { pipe.ring_full() };
                pipe.mutex.owner = 3;
                pipe.readers.extend([1, 2]);
                sim.pipe_done(8, 3);
                let woken = match sim.tasks[3].stage {
                    Stage::WakeSelect(p) => Some(p),
                    _ => None,
                };
                result = (woken, sim.channels[0].readers.len());
            },
        );
        result
    }

    #[test]
    fn before_5_5_every_write_wakes_all_who_sleep_on_a_pipe_the_latest_first() {
        for len in [0, 1, 500] {
            assert_eq!(finishes("4.17", true, len), (Some(2), 1), "{len}");
        }
        assert_eq!(finishes("5.10", true, 0), (Some(1), 1));
        assert_eq!(finishes("5.10", true, 1), (None, 2));
    }

    #[test]
    fn before_5_5_a_read_wakes_all_who_sleep_on_a_pipe_if_it_empties_a_slot() {
        // 40 messages fill a slot.
        for (len, woken) in [(1, Some(2)), (2, None), (41, None), (640, None)] {
            assert_eq!(finishes("4.17", false, len).0, woken, "{len}");
        }
    }

    #[test]
    fn before_5_5_a_woken_writer_goes_for_the_mutex_though_the_pipe_is_full_again() {
        let machine = Machine::load("kunpeng920:nodes=1").unwrap();
        for (kernel, wanted) in [("4.17", Stage::PipeHold), ("5.10", Stage::PipeWoken)] {
            still(
                (&machine, "linux-5.10"),
                (3, 7),
                |record| *record = Kernel::load(kernel).unwrap(),
                |sim| {
                    (0..640).for_each(|_| sim.channels[0].push(false));
                    sim.tasks[1].run = Run::Waking;
                    sim.activate_wakeup(1, 7, 7);
                    sim.schedule(7, 0);
                    let task = &mut sim.tasks[1];
                    (task.stage, task.writes) = (Stage::PipeWoken, true);
                    sim.advance(7);
                    assert_eq!(sim.tasks[1].stage, wanted, "{kernel}");
                },
            );
        }
    }

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
