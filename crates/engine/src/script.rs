//! A task's walk through its script: each stage's segment over, what comes next.

use std::cmp::Reverse;

use huddle_program::Op;

use crate::Observer;
use crate::report::Mechanism;
use crate::sim::Sim;
use crate::state::{Kind, NONE, Run, Stage, Wake};

impl<O: Observer> Sim<'_, O> {
    /// The current task's segment is over: act on it, until the next segment has begun or the task has left the CPU.
    pub(crate) fn advance(&mut self, c: usize) {
        let t = self.cpus[c].curr as usize;
        loop {
            match self.tasks[t].stage {
                Stage::Next => {
                    if self.cpus[c].need_resched {
                        return self.schedule(c, 0);
                    }
                    if self.fetch(c, t) {
                        return;
                    }
                }
                Stage::Compute => self.tasks[t].stage = Stage::Next,
                Stage::Memory => {
                    if self.memory_continues(c, t) {
                        return;
                    }
                    self.tasks[t].stage = Stage::Next;
                }
                Stage::PipeEnter => {
                    self.tasks[t].stage = Stage::PipeAcquire;
                    return self.acquire(c, t);
                }
                Stage::PipeAcquire | Stage::PipeAcquireSlow | Stage::PipeAcquireFirst => return self.acquire(c, t),
                Stage::PipeHold => {
                    if self.pipe_done(c, t) {
                        return;
                    }
                }
                Stage::PipeWait | Stage::PipeWoken => {
                    self.tasks[t].woken = true;
                    let must_look = self.tasks[t].stage == Stage::PipeWoken && self.pipes_share_a_queue();
                    if must_look || self.pipe_ready(t) {
                        self.tasks[t].stage = Stage::PipeAcquire;
                    } else {
                        return self.pipe_sleep(c, t);
                    }
                }
                Stage::SocketEnter => {
                    if self.socket_enter(c, t) {
                        return;
                    }
                }
                Stage::SocketHold => {
                    if self.socket_done(c, t) {
                        return;
                    }
                }
                Stage::SocketWait => {
                    if !self.socket_wait(c, t) {
                        return;
                    }
                }
                Stage::Semaphore => {
                    if self.semaphore_change(c, t) {
                        return;
                    }
                }
                Stage::SemaphorePost => {
                    if self.semaphore_wake(c, t) {
                        return;
                    }
                }
                Stage::SemaphoreWait => {
                    if !self.semaphore_wait(c, t) {
                        return;
                    }
                }
                Stage::Spinlock => return self.spinlock_take(c, t),
                Stage::MutexTry => {
                    if self.mutex_try(c, t) {
                        return;
                    }
                }
                Stage::MutexSleep => return self.mutex_sleep(c, t),
                Stage::MutexWoken => return self.line_begin(c, t, Stage::MutexTry),
                Stage::MutexRelease => {
                    if self.mutex_release(c, t) {
                        return;
                    }
                }
                Stage::WakeSelect(p) => return self.wake_select(c, t, p as usize),
                Stage::WakeEnqueue(p, cpu) => {
                    self.activate_wakeup(p as usize, cpu as usize, c);
                    if self.next_wake(c, t) {
                        return;
                    }
                }
                Stage::WakeRequeue(p) => {
                    if !self.requeue_woken(p as usize, c) {
                        return self.wake_select(c, t, p as usize);
                    }
                    if self.next_wake(c, t) {
                        return;
                    }
                }
                Stage::WakeNext => {
                    if self.next_wake(c, t) {
                        return;
                    }
                }
                Stage::WakeIpi(p, cpu) => {
                    self.queue_wake(p, cpu as usize, c);
                    if self.next_wake(c, t) {
                        return;
                    }
                }
                Stage::GateWait(gate) => {
                    if self.gates[gate as usize].open {
                        self.tasks[t].stage = Stage::Next;
                    } else {
                        self.gates[gate as usize].waiters.push(t as u32);
                        return self.block(c, Stage::GateWait(gate), Run::Sleeping);
                    }
                }
                Stage::GateOpen(gate) => {
                    self.gates[gate as usize].open = true;
                    self.tasks[t].wakes[0] = Some(Wake::Gate(gate));
                    self.tasks[t].then = Stage::Next;
                    if self.next_wake(c, t) {
                        return;
                    }
                }
                Stage::Spawn(child) => {
                    self.fork(c, t, child as usize);
                    self.tasks[t].stage = Stage::Next;
                }
                Stage::Exec => {
                    self.tasks[t].stage = Stage::Next;
                    self.cache.executed(t);
                    if self.exec(c, t) {
                        return;
                    }
                }
                Stage::Join(child) => {
                    if self.tasks[child as usize].finished != 0 {
                        self.tasks[t].stage = Stage::Next;
                    } else {
                        self.tasks[child as usize].joiner = t as u32;
                        return self.block(c, Stage::Join(child), Run::Sleeping);
                    }
                }
                Stage::Reap => {
                    let task = &mut self.tasks[t];
                    if task.exited_children == 0 {
                        return self.block(c, Stage::Reap, Run::Sleeping);
                    }
                    task.exited_children -= 1;
                    task.stage = Stage::Next;
                }
                Stage::Exit => {
                    self.tasks[t].finished = self.now;
                    let joiner = self.tasks[t].joiner;
                    self.tasks[t].wakes[0] = (joiner != NONE).then_some(Wake::Joiner(joiner));
                    self.tasks[t].wakes[1] = self.tell_parent(t);
                    self.tasks[t].then = Stage::Gone;
                    if self.next_wake(c, t) {
                        return;
                    }
                }
                Stage::Gone => {
                    if t < self.program_tasks {
                        self.alive -= 1;
                    }
                    self.cache.left(t);
                    return self.block(c, Stage::Gone, Run::Dead);
                }
                Stage::NoiseSleep => {
                    let wake = self.noise_interval();
                    self.timers.push(Reverse((wake, t as u32)));
                    self.set_timer();
                    return self.block(c, Stage::NoiseRun, Run::Sleeping);
                }
                Stage::NoiseRun => {
                    let ns = 1 + self.exponential(self.costs.noise_time);
                    self.tasks[t].stage = Stage::NoiseSleep;
                    return self.segment(c, ns, Mechanism::Compute, 0);
                }
            }
        }
    }

    /// Counts an exit with the task's creator. The wake-up of one that sleeps until any of those that it created has exited.
    fn tell_parent(&mut self, t: usize) -> Option<Wake> {
        let parent = self.tasks[t].parent;
        let task = self.tasks.get_mut(parent as usize)?;
        task.exited_children += 1;
        (task.stage == Stage::Reap && task.run == Run::Sleeping).then_some(Wake::Joiner(parent))
    }

    /// Takes the next op. True when a segment has begun.
    #[inline]
    pub(crate) fn fetch(&mut self, c: usize, t: usize) -> bool {
        let task = &mut self.tasks[t];
        let script = &self.setup.program.scripts[task.script as usize].ops;
        let op = loop {
            let Some(&op) = script.get(task.op as usize) else {
                task.stage = Stage::Exit;
                let ns = if task.mm == t as u32 { self.costs.process_exit } else { self.costs.exit };
                self.segment(c, ns, Mechanism::Kernel, 0);
                return true;
            };
            task.op += 1;
            let Op::Repeat { to, times, counter } = op else {
                break op;
            };
            let count = &mut task.counters[usize::from(counter)];
            *count += 1;
            if *count < times {
                task.op = to;
            } else {
                *count = 0;
            }
        };
        let (stage, ns, mechanism) = match op {
            Op::Send { channel } => {
                task.channel = channel.0;
                task.writes = true;
                task.woken = false;
                match self.channels[channel.index()].kind {
                    Kind::Pipe => (Stage::PipeEnter, self.costs.write_outside, Mechanism::Kernel),
                    Kind::Socket => (Stage::SocketEnter, self.costs.socket_write_outside, Mechanism::Kernel),
                    Kind::Semaphore => {
                        self.semaphore_begin(c, t);
                        return true;
                    }
                    Kind::Spinlock | Kind::Mutex | Kind::Line => return self.shared_begin(c, t),
                }
            }
            Op::Write { line } => {
                task.channel = line.0;
                self.line_begin(c, t, Stage::Next);
                return true;
            }
            Op::Receive { channel } => {
                task.channel = channel.0;
                task.writes = false;
                task.woken = false;
                match self.channels[channel.index()].kind {
                    Kind::Pipe => (Stage::PipeEnter, self.costs.read_outside, Mechanism::Kernel),
                    Kind::Socket => (Stage::SocketEnter, self.costs.socket_read_outside, Mechanism::Kernel),
                    Kind::Semaphore => {
                        self.semaphore_begin(c, t);
                        return true;
                    }
                    Kind::Spinlock | Kind::Mutex | Kind::Line => return self.shared_begin(c, t),
                }
            }
            // Followed above.
            Op::Repeat { .. } => return false,
            Op::Compute { ns } => (Stage::Compute, ns, Mechanism::Compute),
            Op::Memory { profile, kilo_instructions } => {
                task.stage = Stage::Memory;
                task.profile = profile.0;
                task.memory_left = kilo_instructions as f64;
                return self.memory_continues(c, t);
            }
            Op::SetSlice { ns } => {
                self.set_slice(t, ns);
                (Stage::Compute, self.costs.syscall, Mechanism::Kernel)
            }
            Op::Wait { gate } => (Stage::GateWait(gate.0), self.costs.syscall, Mechanism::Kernel),
            Op::Open { gate } => (Stage::GateOpen(gate.0), self.costs.syscall, Mechanism::Kernel),
            Op::Spawn { task: child } => {
                let mm = task.mm;
                let child_task = &mut self.tasks[child.index()];
                (child_task.mm, child_task.parent) = (mm, t as u32);
                (Stage::Spawn(child.0), self.costs.fork, Mechanism::Kernel)
            }
            Op::Fork { task: child } => {
                let child_task = &mut self.tasks[child.index()];
                (child_task.mm, child_task.parent) = (child.0, t as u32);
                (Stage::Spawn(child.0), self.costs.process_fork, Mechanism::Kernel)
            }
            Op::Exec => {
                task.mm = t as u32;
                self.cpus[c].mm = t as u32;
                (Stage::Exec, self.costs.fork, Mechanism::Kernel)
            }
            Op::Reap => (Stage::Reap, self.costs.syscall, Mechanism::Kernel),
            Op::Join { task: child } => (Stage::Join(child.0), self.costs.syscall, Mechanism::Kernel),
            Op::Start => {
                self.start_measuring();
                return false;
            }
            Op::Stop => {
                self.stop_measuring();
                return false;
            }
        };
        self.tasks[t].stage = stage;
        let ns = self.jittered(ns);
        self.segment(c, ns, mechanism, 0);
        true
    }
}
