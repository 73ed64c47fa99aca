//! One direction of a Unix stream socketpair (`net/unix/af_unix.c`, 5.9 to 7.1): a queue of buffers under a spinlock. Each buffer is
//! charged to the writers' socket until it has been read, and writers that found the socket full sleep until the charge has
//! fallen to a quarter; then all of them wake.

use crate::Observer;
use crate::costs::PAYLOAD_UNIT;
use crate::report::Mechanism;
use crate::sim::Sim;
use crate::state::{NONE, Run, Stage, Wake};
use crate::wake::wait_lock;

impl<O: Observer> Sim<'_, O> {
    /// The task's operation can go on without sleeping: there is room, or a message.
    #[inline]
    fn socket_ready(&self, t: usize) -> bool {
        let task = &self.tasks[t];
        let socket = &self.channels[task.channel as usize];
        if task.writes { socket.has_room() } else { socket.len > 0 }
    }

    /// The part before the lock is done: a writer charges its buffer to the socket (`sock_alloc_send_pskb`,
    /// `net/core/sock.c`), then either takes the lock. True when a segment has begun.
    pub(crate) fn socket_enter(&mut self, c: usize, t: usize) -> bool {
        let (channel, writes) = (self.tasks[t].channel as usize, self.tasks[t].writes);
        let ready = self.socket_ready(t);
        if writes {
            if !ready {
                self.tasks[t].stage = Stage::SocketWait;
                return false;
            }
            let socket = &mut self.channels[channel];
            socket.charged += socket.charge;
        }
        self.socket_hold(c, t, ready);
        true
    }

    /// Waits for the queue's spinlock and holds it (`unix_state_lock`, `skb_queue_tail`, `skb_unlink`).
    fn socket_hold(&mut self, c: usize, t: usize, ready: bool) {
        let (channel, writes) = (self.tasks[t].channel as usize, self.tasks[t].writes);
        let last = std::mem::replace(&mut self.channels[channel].last_cpu, c as u32);
        let locked = if writes { self.costs.socket_write_locked } else { self.costs.socket_read_locked };
        let locked = self.jittered(locked);
        let lock_lines = if last == NONE { 0 } else { self.costs.socket_lock_lines[self.dist(c, last as usize)] };
        // What is read comes from the CPU that wrote it; what is written to has been used by whoever was there last.
        let from = if writes { Some(last) } else { self.channels[channel].sources.front().copied() };
        let mut lines = 0;
        if let Some(from) = from.filter(|&from| from != NONE) {
            let distance = self.dist(c, from as usize);
            lines = self.costs.socket_lines[distance]
                + self.costs.line[distance] * u64::from(self.channels[channel].payload) / PAYLOAD_UNIT;
        }
        let socket = &mut self.channels[channel];
        let wait = socket.lock_free_at.saturating_sub(self.now);
        socket.lock_free_at = self.now + wait + lock_lines + locked;
        let copy = u64::from(socket.copy);
        self.tasks[t].stage = Stage::SocketHold;
        match ready {
            true => self.segment(c, locked + copy, Mechanism::Kernel, lock_lines + lines),
            false => self.segment(c, locked, Mechanism::Kernel, lock_lines),
        }
        self.prolong(c, Mechanism::LockSpin, wait);
    }

    /// The message is on the queue or off it: whoever must be woken is noted. Every write calls `sock_def_readable`
    /// (`net/core/sock.c`), every read that leaves the charge low `unix_write_space`. True when a segment has begun.
    pub(crate) fn socket_done(&mut self, c: usize, t: usize) -> bool {
        let (channel, writes) = (self.tasks[t].channel, self.tasks[t].writes);
        let socket = &mut self.channels[channel as usize];
        let sleepers = if writes {
            socket.put_on_socket(c as u32);
            socket.readers.len()
        } else if socket.len == 0 {
            self.tasks[t].stage = Stage::SocketWait;
            return false;
        } else if socket.take_from_socket() {
            socket.writers.len()
        } else {
            0
        };
        let task = &mut self.tasks[t];
        if sleepers == 0 {
            task.stage = Stage::Next;
            return false;
        }
        task.then = Stage::Next;
        task.wakes[0] = Some(Wake::Socket(channel, !writes, sleepers as u32));
        self.next_wake(c, t)
    }

    /// Sleeps until there is room or a message, unless that is so by now (`sock_wait_for_wmem`, `unix_stream_data_wait`). True when
    /// the task goes on.
    pub(crate) fn socket_wait(&mut self, c: usize, t: usize) -> bool {
        if self.socket_ready(t) {
            self.tasks[t].stage = Stage::SocketEnter;
            return true;
        }
        let (channel, writes) = (self.tasks[t].channel, self.tasks[t].writes);
        let held = self.wait_locks[wait_lock(channel, writes) as usize].saturating_sub(self.now);
        if held > 0 {
            // A waker holds the wait queue's lock; whether to sleep is looked at again after that.
            self.segment(c, held, Mechanism::LockSpin, 0);
            return false;
        }
        let socket = &mut self.channels[channel as usize];
        let waiters = if writes { &mut socket.writers } else { &mut socket.readers };
        waiters.push_back(t as u32);
        self.block(c, Stage::SocketWait, Run::Sleeping);
        false
    }
}
