//! A semaphore in shared memory over a futex, as the C library makes it: the count is changed in user mode, the kernel is entered
//! to sleep and to wake (`kernel/futex.c` up to 5.15, `kernel/futex/waitwake.c` later).

use crate::Observer;
use crate::report::Mechanism;
use crate::sim::Sim;
use crate::state::{NONE, Run, Stage, Wake};

impl<O: Observer> Sim<'_, O> {
    /// Begins an operation: the line of the count is pulled from the CPU that changed it last.
    pub(crate) fn semaphore_begin(&mut self, c: usize, t: usize) {
        let semaphore = &mut self.channels[self.tasks[t].channel as usize];
        let last = std::mem::replace(&mut semaphore.last_cpu, c as u32);
        let line = if last == NONE { 0 } else { self.costs.line[self.dist(c, last as usize)] };
        self.tasks[t].stage = Stage::Semaphore;
        self.segment(c, 0, Mechanism::Kernel, line);
    }

    /// The count's line is here: post or take; enter the kernel where somebody sleeps or must. True when a segment has begun.
    pub(crate) fn semaphore_change(&mut self, c: usize, t: usize) -> bool {
        let writes = self.tasks[t].writes;
        let semaphore = &mut self.channels[self.tasks[t].channel as usize];
        let stage = if writes {
            semaphore.len += 1;
            semaphore.sent += 1;
            if semaphore.readers.is_empty() { Stage::Next } else { Stage::SemaphorePost }
        } else if self.semaphore_take(t) {
            Stage::Next
        } else {
            Stage::SemaphoreWait
        };
        self.tasks[t].stage = stage;
        if stage == Stage::Next {
            return false;
        }
        let ns = self.jittered(self.costs.syscall);
        self.segment(c, ns, Mechanism::Kernel, 0);
        true
    }

    /// Takes one from the count if it is not 0.
    fn semaphore_take(&mut self, t: usize) -> bool {
        let semaphore = &mut self.channels[self.tasks[t].channel as usize];
        let takes = semaphore.len > 0;
        semaphore.len -= u32::from(takes);
        semaphore.received += u64::from(takes);
        takes
    }

    /// `futex_wake` of one waiter, after the hash bucket's lock has been let go (`wake_up_q`). True when a segment has begun.
    pub(crate) fn semaphore_wake(&mut self, c: usize, t: usize) -> bool {
        let task = &mut self.tasks[t];
        task.then = Stage::Next;
        task.wakes[0] = Some(Wake::Posted(task.channel));
        self.next_wake(c, t)
    }

    /// `futex_wait`, or the return from it: take, or sleep. True when the task goes on.
    pub(crate) fn semaphore_wait(&mut self, c: usize, t: usize) -> bool {
        if self.semaphore_take(t) {
            self.tasks[t].stage = Stage::Next;
            return true;
        }
        self.channels[self.tasks[t].channel as usize].readers.push_back(t as u32);
        self.block(c, Stage::SemaphoreWait, Run::Sleeping);
        false
    }
}
