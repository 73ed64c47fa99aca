//! What threads share in user space: a spinlock (`pthread_spin_lock`: an atomic exchange, then a loop that watches the word), a mutex
//! on a futex (`pthread_mutex_lock`: 0 free, 1 taken, 2 taken and somebody may sleep) and a plain line that they write.

use rand_core::Rng;

use crate::Observer;
use crate::report::Mechanism;
use crate::sim::Sim;
use crate::state::{Kind, NONE, Phase, Run, Stage};

/// A waiter whose line comes in a nanosecond has this weight in the race for a spinlock.
const RACE: u64 = 1 << 20;

impl<O: Observer> Sim<'_, O> {
    /// The line of a channel comes to `c`, after those who asked for it before: how long that takes.
    fn pull_line(&mut self, c: usize, channel: usize) -> u64 {
        let last = std::mem::replace(&mut self.channels[channel].last_cpu, c as u32);
        let line = if last == NONE { 0 } else { self.costs.line[self.dist(c, last as usize)] };
        let channel = &mut self.channels[channel];
        let arrives = self.now.max(channel.lock_free_at) + line;
        channel.lock_free_at = arrives;
        arrives - self.now
    }

    /// Begins `stage`'s segment: the task's line is pulled.
    pub(crate) fn line_begin(&mut self, c: usize, t: usize, stage: Stage) {
        let channel = self.tasks[t].channel as usize;
        let lines = self.pull_line(c, channel);
        self.tasks[t].stage = stage;
        self.segment(c, 0, Mechanism::Compute, lines);
    }

    // ---- the spinlock ----------------------------------------------------------------------------------------------------

    /// Takes the lock, or spins until it is granted.
    pub(crate) fn spinlock_take(&mut self, c: usize, t: usize) {
        let lock = &mut self.channels[self.tasks[t].channel as usize];
        if lock.mutex.owner == NONE {
            lock.mutex.owner = t as u32;
            lock.received += 1;
            return self.line_begin(c, t, Stage::Next);
        }
        lock.mutex.spinners.push_back(t as u32);
        self.tasks[t].stage = Stage::Spinlock;
        self.charge(c);
        let cpu = &mut self.cpus[c];
        cpu.phase = Phase::Spinning;
        cpu.mechanism = Mechanism::LockSpin;
        self.heap.clear(c);
    }

    /// Lets the lock go. The spinners race for it: the nearer the line, the likelier.
    pub(crate) fn spinlock_release(&mut self, c: usize, t: usize) {
        let channel = self.tasks[t].channel as usize;
        self.channels[channel].sent += 1;
        self.channels[channel].mutex.owner = NONE;
        let weight = |sim: &Self, spinner: u32| {
            let line = sim.costs.line[sim.dist(c, sim.tasks[spinner as usize].cpu as usize)];
            RACE / line.max(1)
        };
        let all: u64 = self.channels[channel].mutex.spinners.iter().map(|&spinner| weight(self, spinner)).sum();
        if all == 0 {
            return;
        }
        let mut drawn = self.rng.next_u64() % all;
        let first = |&spinner: &u32| {
            let weight = weight(self, spinner);
            let wins = drawn < weight;
            drawn = drawn.saturating_sub(weight);
            wins
        };
        let winner = self.channels[channel].mutex.spinners.iter().position(first);
        let lock = &mut self.channels[channel];
        if let Some(next) = winner.and_then(|at| lock.mutex.spinners.remove(at)) {
            lock.mutex.owner = next;
            lock.received += 1;
            let at = self.tasks[next as usize].cpu as usize;
            self.line_begin(at, next as usize, Stage::Next);
        }
    }

    // ---- the mutex -------------------------------------------------------------------------------------------------------

    /// The word is here: take the mutex, or mark it and enter the kernel. One that has slept marks it too: others may sleep still.
    /// True when a segment has begun.
    pub(crate) fn mutex_try(&mut self, c: usize, t: usize) -> bool {
        let woken = self.tasks[t].woken;
        let lock = &mut self.channels[self.tasks[t].channel as usize];
        if lock.mutex.owner == NONE {
            lock.mutex.owner = t as u32;
            lock.mutex.handoff = woken;
            lock.received += 1;
            self.tasks[t].stage = Stage::Next;
            return false;
        }
        lock.mutex.handoff = true;
        self.tasks[t].stage = Stage::MutexSleep;
        let ns = self.jittered(self.costs.syscall);
        self.segment(c, ns, Mechanism::Kernel, 0);
        true
    }

    /// `futex_wait`: sleeps while the word is marked; the way on is to try again.
    pub(crate) fn mutex_sleep(&mut self, c: usize, t: usize) {
        self.tasks[t].woken = true;
        let lock = &mut self.channels[self.tasks[t].channel as usize];
        if lock.mutex.owner == NONE || !lock.mutex.handoff {
            return self.line_begin(c, t, Stage::MutexTry);
        }
        lock.readers.push_back(t as u32);
        self.block(c, Stage::MutexWoken, Run::Sleeping);
    }

    /// The word is here: let the mutex go; if it was marked, enter the kernel to wake one who sleeps. True when a segment has begun.
    pub(crate) fn mutex_release(&mut self, c: usize, t: usize) -> bool {
        let lock = &mut self.channels[self.tasks[t].channel as usize];
        lock.sent += 1;
        lock.mutex.owner = NONE;
        if !std::mem::take(&mut lock.mutex.handoff) {
            self.tasks[t].stage = Stage::Next;
            return false;
        }
        self.tasks[t].stage = Stage::SemaphorePost;
        let ns = self.jittered(self.costs.syscall);
        self.segment(c, ns, Mechanism::Kernel, 0);
        true
    }

    /// Begins an operation on a lock, or the write of a line. True when a segment has begun.
    pub(crate) fn shared_begin(&mut self, c: usize, t: usize) -> bool {
        let (takes, kind) = (!self.tasks[t].writes, self.channels[self.tasks[t].channel as usize].kind);
        match (kind, takes) {
            (Kind::Spinlock, true) => self.spinlock_take(c, t),
            (Kind::Spinlock, false) => {
                self.tasks[t].stage = Stage::Next;
                self.spinlock_release(c, t);
                return false;
            }
            (Kind::Mutex, true) => self.line_begin(c, t, Stage::MutexTry),
            (Kind::Mutex, false) => self.line_begin(c, t, Stage::MutexRelease),
            _ => self.line_begin(c, t, Stage::Next),
        }
        true
    }
}
