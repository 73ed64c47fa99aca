//! Wake-ups: whom, where to, by whose hand, and what the woken task does to the running one; the mutex's queue.
//!
//! `try_to_wake_up` of 5.9 and 5.10 (`kernel/sched/core.c`), `mutex_lock` and `mutex_unlock` (`kernel/locking/mutex.c`).

use huddle_domains::WakeQueue;
use huddle_machine::{CpuId, CpuSet, Distance};
use huddle_policy::{View, Wakeup};

use crate::Observer;
use crate::autogroup::Autogroup;
use crate::costs::Costs;
use crate::dsq::Queues;
use crate::report::{Cause, Mechanism, SimError};
use crate::sim::Sim;
use crate::state::{Cpu, DomainState, Flips, LlcState, NONE, Phase, Run, Stage, Task, Wake, ipi};

/// Wake-ups of one queue after which its lock is let go for a moment (`WAITQUEUE_WALK_BREAK_CNT`).
const BREAK_EVERY: usize = 64;

/// Index of a channel's wait-queue lock: of its readers, or of its writers.
pub(crate) fn wait_lock(channel: u32, writers: bool) -> u32 {
    2 * channel + u32::from(writers)
}

/// `wakee_flips` is halved once per this time.
const FLIPS_DECAY_NS: u64 = 1_000_000_000;

impl<O: Observer> Sim<'_, O> {
    /// Begins the task's next wake-up, or goes on with what comes after. True when a segment has begun or the task has
    /// left the CPU.
    pub(crate) fn next_wake(&mut self, c: usize, t: usize) -> bool {
        if self.kernel_gives_way(c) && self.may_pause(t) {
            self.tasks[t].stage = Stage::WakeNext;
            self.schedule(c, 0);
            return true;
        }
        self.tasks[t].wait_lock = NONE;
        while let Some((p, sync)) = self.next_wakee(t) {
            if !self.begins_waking(p) {
                continue;
            }
            self.tasks[t].sync = sync;
            self.tasks[t].stage = Stage::WakeSelect(p as u32);
            let lines = self.costs.task_lines[self.dist(c, self.tasks[p].cpu as usize)];
            self.segment(c, self.costs.wake_up, Mechanism::WakeUp, lines);
            if let Some(&free_at) = self.wait_locks.get(self.tasks[t].wait_lock as usize) {
                self.prolong(c, Mechanism::LockSpin, free_at.saturating_sub(self.now));
            }
            self.hold_wait_lock(c, t);
            return true;
        }
        self.tasks[t].stage = self.tasks[t].then;
        false
    }

    /// Marks a sleeping task as being woken; false if it does not sleep, or is being woken already.
    #[inline]
    pub(crate) fn begins_waking(&mut self, p: usize) -> bool {
        let task = &mut self.tasks[p];
        match task.run {
            Run::Sleeping => task.run = Run::Waking,
            Run::Delayed => return !std::mem::replace(&mut task.being_woken, true),
            _ => return false,
        }
        true
    }

    /// Between two wake-ups of one queue interrupts stay off; after every 64 the lock is let go for a moment.
    fn may_pause(&self, t: usize) -> bool {
        self.tasks[t].wakes.iter().flatten().all(|wake| match *wake {
            Wake::Gate(gate) => self.gates[gate as usize].waiters.len().is_multiple_of(BREAK_EVERY),
            Wake::Socket(_, _, left) => (left as usize).is_multiple_of(BREAK_EVERY),
            _ => true,
        })
    }

    /// A wait queue's lock is held over the whole wake-up, placement included: until the end of the present segment at least.
    fn hold_wait_lock(&mut self, c: usize, t: usize) {
        if self.tuning.no_locks {
            return;
        }
        let end = self.heap.time(c);
        if let Some(free_at) = self.wait_locks.get_mut(self.tasks[t].wait_lock as usize) {
            *free_at = end;
        }
    }

    /// The next task to wake and whether the hint is given.
    fn next_wakee(&mut self, t: usize) -> Option<(usize, bool)> {
        loop {
            let slot = self.tasks[t].wakes.iter().rposition(Option::is_some)?;
            let (wakee, sync, done) = match self.tasks[t].wakes[slot]? {
                Wake::Reader(channel) => {
                    self.tasks[t].wait_lock = wait_lock(channel, false);
                    (self.channels[channel as usize].readers.pop_front(), true, true)
                }
                Wake::Writer(channel) => {
                    self.tasks[t].wait_lock = wait_lock(channel, true);
                    (self.channels[channel as usize].writers.pop_front(), true, true)
                }
                Wake::Everybody(channel, left) => {
                    self.tasks[t].wait_lock = wait_lock(channel, false);
                    self.tasks[t].wakes[slot] = Some(Wake::Everybody(channel, left - 1));
                    (self.channels[channel as usize].readers.pop_back(), true, left <= 1)
                }
                Wake::Socket(channel, writers, left) => {
                    self.tasks[t].wait_lock = wait_lock(channel, writers);
                    let socket = &mut self.channels[channel as usize];
                    let waiters = if writers { &mut socket.writers } else { &mut socket.readers };
                    let left = (left as usize).min(waiters.len()).saturating_sub(1);
                    self.tasks[t].wakes[slot] = Some(Wake::Socket(channel, writers, left as u32));
                    (waiters.remove(left), true, left == 0)
                }
                Wake::Posted(channel) => (self.channels[channel as usize].readers.pop_front(), false, true),
                Wake::MutexSleeper(task, channel) => {
                    // Somebody else may have woken it since: it may sleep elsewhere by now.
                    let sleeper = &self.tasks[task as usize];
                    let still = sleeper.stage == Stage::PipeAcquireFirst && sleeper.channel == channel;
                    (still.then_some(task), false, true)
                }
                Wake::Joiner(task) => (Some(task), false, true),
                Wake::Gate(gate) => {
                    let waiters = &mut self.gates[gate as usize].waiters;
                    (waiters.pop(), true, waiters.is_empty())
                }
            };
            if done {
                self.tasks[t].wakes[slot] = None;
            }
            if let Some(wakee) = wakee {
                return Some((wakee as usize, sync));
            }
        }
    }

    fn same_llc(&self, a: usize, b: usize) -> bool {
        a == b || self.setup.tree.cached[a].sd_llc_id == self.setup.tree.cached[b].sd_llc_id
    }

    /// Whether the wake-up of a task still leaving `cpu` is put on that CPU's list without placement.
    fn queues_on_leaving_cpu(&self, this: usize, cpu: usize) -> bool {
        if self.tuning.no_wake_list {
            return false;
        }
        let rule = self.setup.kernel.wake_queue;
        if rule != WakeQueue::OtherLlc && !self.same_llc(this, cpu) {
            return true;
        }
        match rule {
            WakeQueue::OtherLlc => false,
            WakeQueue::OtherLlcOrOnCpuBehindOne => self.cpus[cpu].nr_running <= 1,
            WakeQueue::OtherLlcOrOnCpuEmpty => self.cpus[cpu].nr_running == 0,
            WakeQueue::OtherLlcOrEmpty => this != cpu && self.has_no_task(cpu),
        }
    }

    /// Whether a placed wake-up goes to the chosen CPU's list.
    fn queues_on_chosen_cpu(&self, this: usize, cpu: usize) -> bool {
        if self.tuning.no_wake_list {
            return false;
        }
        match self.setup.kernel.wake_queue {
            WakeQueue::OtherLlc | WakeQueue::OtherLlcOrOnCpuBehindOne | WakeQueue::OtherLlcOrOnCpuEmpty => {
                !self.same_llc(this, cpu)
            }
            WakeQueue::OtherLlcOrEmpty => !self.same_llc(this, cpu) || (this != cpu && self.has_no_task(cpu)),
        }
    }

    /// The CPU's `nr_running` is 0. It counts tasks of the CPU that wait in a cluster's queue.
    fn has_no_task(&self, cpu: usize) -> bool {
        self.cpus[cpu].nr_running == 0 && !(self.tuning.dsq && self.dsq.waits_for_cluster(cpu))
    }

    /// The waker has done its fixed part: wait for the wakee to leave its CPU, or choose one for it.
    pub(crate) fn wake_select(&mut self, c: usize, t: usize, p: usize) {
        let old = self.tasks[p].cpu as usize;
        if self.tasks[p].run == Run::Delayed && !self.tasks[p].on_cpu {
            return self.requeue_remotely(c, t, p);
        }
        if self.tasks[p].on_cpu {
            if self.tasks[p].run != Run::Delayed && self.queues_on_leaving_cpu(c, old) {
                self.counts.wakes.unplaced += 1;
                self.tasks[t].stage = Stage::WakeIpi(p as u32, old as u32);
                let lines = self.costs.line[self.dist(c, old)];
                self.segment(c, self.costs.ipi_send, Mechanism::WakeUp, lines);
                return self.hold_wait_lock(c, t);
            }
            // `smp_cond_load_acquire(&p->on_cpu, !VAL)`.
            let left = self.heap.time(old).saturating_sub(self.now).min(1_000_000);
            let lines = self.costs.line[self.dist(c, old)];
            self.segment(c, left + 1, Mechanism::LockSpin, lines);
            return self.hold_wait_lock(c, t);
        }
        let sync = self.tasks[t].sync && self.tasks[t].finished == 0;
        let (cpu, scan) = self.place(c, p, sync, Some(t));
        if self.queues_on_chosen_cpu(c, cpu) {
            self.tasks[t].stage = Stage::WakeIpi(p as u32, cpu as u32);
            let lines = self.costs.line[self.dist(c, cpu)];
            self.segment(c, self.costs.ipi_send, Mechanism::WakeUp, lines);
        } else {
            self.tasks[t].stage = Stage::WakeEnqueue(p as u32, cpu as u32);
            let interrupt = cpu != c && self.cpus[cpu].curr == NONE && !self.costs.idle_polling;
            let ns = self.costs.enqueue + if interrupt { self.costs.ipi_send } else { 0 };
            let mut lines = if cpu == c { 0 } else { self.costs.queue_lines[self.dist(c, cpu)] };
            let begin = self.now + scan;
            let mut wait = self.cpus[cpu].lock_free_at.saturating_sub(begin);
            if self.tuning.dsq {
                let (line, longer) = self.pay_queue_of_wakee(c, p, cpu, begin + wait + lines);
                (lines, wait) = (lines + line, wait + longer);
            }
            if !self.tuning.no_locks {
                self.cpus[cpu].lock_free_at = begin + wait + lines + self.costs.enqueue;
            }
            self.segment(c, ns, Mechanism::WakeUp, lines);
            self.prolong(c, Mechanism::LockSpin, wait);
        }
        self.prolong(c, Mechanism::Search, scan);
        self.hold_wait_lock(c, t);
    }

    /// `ttwu_runnable`: the wakee never left its queue. It becomes runnable there, by the waker's hand under the queue's lock,
    /// without placement.
    fn requeue_remotely(&mut self, c: usize, t: usize, p: usize) {
        let cpu = self.tasks[p].cpu as usize;
        let lines = if cpu == c { 0 } else { self.costs.queue_lines[self.dist(c, cpu)] };
        let wait = self.cpus[cpu].lock_free_at.saturating_sub(self.now);
        self.cpus[cpu].lock_free_at = self.now + wait + lines + self.costs.enqueue;
        self.tasks[t].stage = Stage::WakeRequeue(p as u32);
        self.segment(c, self.costs.enqueue, Mechanism::WakeUp, lines);
        self.prolong(c, Mechanism::LockSpin, wait);
        self.hold_wait_lock(c, t);
    }

    /// The waker has the lock of the wakee's queue. False if the wakee has left it in the meantime and must be placed.
    pub(crate) fn requeue_woken(&mut self, p: usize, from: usize) -> bool {
        if self.tasks[p].run != Run::Delayed {
            return false;
        }
        let cpu = self.tasks[p].cpu as usize;
        self.counts.wakes.requeued += 1;
        self.requeue_delayed(cpu, p);
        if from != cpu {
            self.cpus[cpu].dirtied_by = from as u32;
        }
        self.wakeup_preempt(cpu, p, from);
        true
    }

    /// Lengthens the segment that has just begun.
    pub(crate) fn prolong(&mut self, c: usize, mechanism: Mechanism, ns: u64) {
        if ns > 0 {
            self.cpus[c].portions.push(mechanism, ns);
            let end = self.heap.time(c);
            self.heap.set(c, end + ns);
        }
    }

    /// `record_wakee`: counts how often a waker changes its wakee.
    fn record_wakee(&mut self, waker: Option<usize>, c: usize, p: usize) {
        let now = self.now;
        let flips = match waker {
            Some(t) => &mut self.tasks[t].flips,
            None => &mut self.cpus[c].idle_flips,
        };
        if now > flips.decayed + FLIPS_DECAY_NS {
            flips.flips /= 2;
            flips.decayed = now;
        }
        if flips.last_wakee != p as u32 {
            flips.last_wakee = p as u32;
            flips.flips += 1;
        }
    }

    /// Asks the policy for a CPU. Returns it and the time that the search took.
    pub(crate) fn place(&mut self, c: usize, p: usize, sync: bool, waker: Option<usize>) -> (usize, u64) {
        let keeps_sync = self.tuning.dsq && self.dsq.note_waking(c, self.cpus[c].curr, sync, self.now);
        let waker = waker.or_else(|| (self.cpus[c].curr != NONE).then(|| self.cpus[c].curr as usize));
        self.record_wakee(waker, c, p);
        let prev = self.tasks[p].cpu as usize;
        let wakeup = Wakeup { this: CpuId::from(c), prev: CpuId::from(prev), sync };
        let mut scratch = std::mem::take(&mut self.scratch);
        let plan = self.setup.plan;
        let mut view = self.view(c, p, waker, keeps_sync);
        let placement = plan.place(&mut view, &wakeup, &mut scratch);
        let claimed = view.claimed;
        self.scratch = scratch;
        match placement {
            Ok(placement) => {
                let cpu = placement.cpu.index();
                self.observer.wakeup(self.now, &wakeup, p as u32, &placement);
                let distance = self.dist(prev, cpu);
                let wakes = &mut self.counts.wakes;
                wakes.placed[usize::from(placement.step)][distance] += 1;
                wakes.wide += u64::from(placement.wide);
                wakes.exhausted += u64::from(placement.exhausted);
                wakes.examined += placement.examined.iter().map(|&count| u64::from(count)).sum::<u64>();
                let distance = self.dist(c, cpu);
                self.counts.wakes.waker_to_chosen[distance] += 1;
                self.tasks[p].chosen_idle = match self.tuning.dsq {
                    true => self.note_placed(c, p, claimed, &placement),
                    false => self.idle.contains(placement.cpu),
                };
                if self.tuning.claims && self.tasks[p].chosen_idle {
                    self.claim_for(p, cpu);
                }
                (cpu, self.costs.scan_time(&placement.examined))
            }
            Err(undecidable) => {
                let kernel = self.setup.kernel.name.clone();
                self.error = Some(SimError::NotSimulated { kernel, what: undecidable.0 });
                (prev, 0)
            }
        }
    }

    /// Without collisions the CPU chosen for `p` is idle for nobody else until `p` has arrived.
    fn claim_for(&mut self, p: usize, cpu: usize) {
        self.tasks[p].claimed = cpu as u32;
        self.cpus[cpu].claims += 1;
        self.refresh_idle(cpu);
    }

    /// The wakee has arrived: what was claimed for it is free again, and busy.
    fn end_claim(&mut self, p: usize) {
        let cpu = std::mem::replace(&mut self.tasks[p].claimed, NONE);
        if cpu != NONE {
            self.cpus[cpu as usize].claims -= 1;
            self.refresh_idle(cpu as usize);
        }
    }

    /// What the policy sees when the task `p` is placed from the CPU `c`.
    pub(crate) fn view(&mut self, c: usize, p: usize, waker: Option<usize>, keeps_sync: bool) -> EngineView<'_> {
        EngineView {
            now: self.now,
            jiffy: self.tuning.jiffy,
            idle: &mut self.idle,
            allowed: &self.affinities[self.tasks[p].affinity as usize],
            cpus: &mut self.cpus,
            tasks: &mut self.tasks,
            domains: &mut self.domains,
            llcs: &mut self.llcs,
            tree: self.setup.tree,
            costs: &self.costs,
            autogroup: self.autogroup,
            waker,
            this: c,
            wakee: p,
            by_load: self.tuning.by_load,
            queues: self.tuning.dsq.then_some(&mut self.dsq),
            keeps_sync,
            claimed: None,
        }
    }

    /// The waker puts the wakee on the CPU's wake list and sends an interrupt if the list was empty.
    pub(crate) fn queue_wake(&mut self, p: u32, cpu: usize, from: usize) {
        let first = self.cpus[cpu].wake_list.is_empty();
        self.cpus[cpu].wake_list.push(p);
        self.refresh_idle(cpu);
        if !first {
            return;
        }
        if self.costs.idle_polling && self.cpus[cpu].phase == Phase::Idle {
            self.kick_idle(from, cpu);
        } else {
            self.send_ipi(from, cpu, ipi::WAKE_LIST);
        }
    }

    /// `ttwu_do_activate`: the wakee joins the CPU's queue and may preempt.
    pub(crate) fn activate_wakeup(&mut self, p: usize, cpu: usize, from: usize) {
        if self.cpus[cpu].nr_running > 0 {
            self.counts.wakes.stacked += 1;
            self.counts.wakes.collided += u64::from(self.tasks[p].chosen_idle);
        }
        if self.tuning.dsq {
            return self.enqueue_woken(p, cpu, from);
        }
        self.tasks[p].chosen_idle = false;
        if self.tuning.claims {
            self.end_claim(p);
        }
        if self.tasks[p].cpu as usize != cpu {
            self.move_asleep(p, cpu, Cause::WakeUp);
        }
        if !self.tuning.idle_sampled_at_exit {
            self.sample_idle(cpu);
        }
        self.activate(p, cpu, true);
        if from != cpu {
            self.cpus[cpu].dirtied_by = from as u32;
        }
        self.wakeup_preempt(cpu, p, from);
    }

    /// `check_preempt_curr`: an idle CPU is kicked, a running task may have to give way.
    pub(crate) fn wakeup_preempt(&mut self, cpu: usize, p: usize, from: usize) {
        if self.cpus[cpu].curr == NONE {
            return self.kick_idle(from, cpu);
        }
        if self.cpus[cpu].need_resched || !self.preempts(cpu, p) {
            return;
        }
        self.cpus[cpu].need_resched = true;
        self.cpus[cpu].lazily = self.tuning.lazy_preempt;
        if from != cpu && !self.tuning.lazy_preempt {
            self.send_ipi(from, cpu, ipi::RESCHED);
        }
    }

    /// Takes the time idled into the mean: at a wake-up (`ttwu_do_wakeup`, up to 6.12), or when the idle task gives way
    /// (`put_prev_task_idle`, 7.2).
    pub(crate) fn sample_idle(&mut self, c: usize) {
        let (now, jiffy) = (self.now, self.tuning.jiffy);
        let cpu = &mut self.cpus[c];
        if cpu.idle_stamp == 0 {
            return;
        }
        let delta = (now - cpu.idle_stamp) as i64;
        let average = cpu.avg_idle as i64;
        cpu.avg_idle = ((average + (delta - average) / 8).max(0) as u64).min(2 * cpu.max_idle_balance_cost);
        cpu.wake_stamp = now / jiffy;
        cpu.wake_avg_idle = cpu.avg_idle / 2;
        cpu.idle_stamp = 0;
    }
}

/// A policy's view of the simulated machine.
pub(crate) struct EngineView<'s> {
    now: u64,
    jiffy: u64,
    idle: &'s mut CpuSet,
    allowed: &'s CpuSet,
    cpus: &'s mut [Cpu],
    tasks: &'s mut [Task],
    domains: &'s mut [DomainState],
    llcs: &'s mut [LlcState],
    tree: &'s huddle_domains::DomainTree,
    costs: &'s Costs,
    autogroup: Autogroup,
    waker: Option<usize>,
    this: usize,
    wakee: usize,
    /// A CPU's load is that of its runnable tasks (before 5.5).
    by_load: bool,
    /// The scheduler's own queues, where claims are known.
    queues: Option<&'s mut Queues>,
    keeps_sync: bool,
    /// The CPU that the decision has claimed.
    pub(crate) claimed: Option<CpuId>,
}

impl EngineView<'_> {
    fn llc_domain(&self, cpu: CpuId) -> Option<usize> {
        self.tree.cached[cpu.index()].sd_llc.map(|id| id.0 as usize)
    }

    fn task_load(&self, t: usize) -> u64 {
        let task = &self.tasks[t];
        self.autogroup.task_load(task, &self.cpus[task.cpu as usize])
    }

    fn waker_flips_state(&self) -> &Flips {
        match self.waker {
            Some(t) => &self.tasks[t].flips,
            None => &self.cpus[self.this].idle_flips,
        }
    }
}

impl View for EngineView<'_> {
    #[inline]
    fn idle_word(&self, word: usize) -> u64 {
        self.idle.words()[word]
    }

    fn idle_core_word(&self, word: usize) -> Option<u64> {
        Some(self.queues.as_ref()?.idle_core_word(word))
    }

    /// Never lost: a decision is made at one moment.
    fn claim(&mut self, cpu: CpuId) -> Option<bool> {
        let won = self.queues.as_mut()?.claim(self.idle, self.tree, cpu);
        self.claimed = won.then_some(cpu);
        Some(won)
    }

    fn nr_local(&self, cpu: CpuId) -> Option<u32> {
        Some(self.queues.as_ref()?.nr_local(cpu.index()))
    }

    fn last_rotated(&self, this: CpuId) -> Option<CpuId> {
        Some(self.queues.as_ref()?.last_rotated(this.index()))
    }

    fn set_last_rotated(&mut self, this: CpuId, cpu: CpuId) {
        if let Some(queues) = self.queues.as_mut() {
            queues.set_last_rotated(this.index(), cpu);
        }
    }

    fn waker_keeps_sync(&self) -> Option<bool> {
        self.queues.as_ref().map(|_| self.keeps_sync)
    }

    #[inline]
    fn sched_idle_word(&self, _word: usize) -> u64 {
        0
    }

    #[inline]
    fn allowed_word(&self, word: usize) -> u64 {
        self.allowed.words()[word]
    }

    fn nr_running(&self, cpu: CpuId) -> Option<u32> {
        Some(self.cpus[cpu.index()].nr_running)
    }

    fn nr_delayed(&self, cpu: CpuId) -> Option<u32> {
        Some(self.cpus[cpu.index()].nr_delayed)
    }

    fn cpu_load(&self, cpu: CpuId) -> Option<u64> {
        let cpu = &self.cpus[cpu.index()];
        Some(if self.by_load { cpu.runnable_load(&*self.tasks) } else { self.autogroup.cpu_load(cpu) })
    }

    fn capacity(&self, cpu: CpuId) -> Option<u64> {
        Some(u64::from(self.tree.capacity[cpu.index()]))
    }

    fn waker_load(&self) -> Option<u64> {
        Some(self.waker.map_or(0, |t| self.task_load(t)))
    }

    fn wakee_load(&self) -> Option<u64> {
        Some(self.task_load(self.wakee))
    }

    fn waker_flips(&self) -> Option<u32> {
        Some(self.waker_flips_state().flips)
    }

    fn wakee_flips(&self) -> Option<u32> {
        Some(self.tasks[self.wakee].flips.flips)
    }

    fn waker_is_per_cpu_kthread(&self) -> bool {
        false
    }

    fn wakee_is_sched_idle(&self) -> bool {
        false
    }

    fn fits(&self, _cpu: CpuId) -> Option<bool> {
        None
    }

    fn recent(&self) -> Option<CpuId> {
        Some(CpuId(self.tasks[self.wakee].recent))
    }

    fn set_recent(&mut self, cpu: CpuId) {
        self.tasks[self.wakee].recent = cpu.0;
    }

    fn set_waker_recent(&mut self, cpu: CpuId) {
        if let Some(t) = self.waker {
            self.tasks[t].recent = cpu.0;
        }
    }

    fn has_idle_cores(&self, llc: u32) -> Option<bool> {
        Some(self.llcs[llc as usize].has_idle_cores)
    }

    fn set_has_idle_cores(&mut self, llc: u32, value: bool) {
        self.llcs[llc as usize].has_idle_cores = value;
    }

    fn avg_idle(&self, cpu: CpuId) -> Option<u64> {
        Some(self.cpus[cpu.index()].avg_idle)
    }

    fn avg_scan_cost(&self, cpu: CpuId) -> Option<u64> {
        Some(self.llc_domain(cpu).map_or(0, |domain| self.domains[domain].avg_scan_cost))
    }

    fn set_avg_scan_cost(&mut self, cpu: CpuId, ns: u64) {
        if let Some(domain) = self.llc_domain(cpu) {
            self.domains[domain].avg_scan_cost = ns;
        }
    }

    fn aged_idle(&mut self, cpu: CpuId) -> Option<u64> {
        let jiffies = self.now / self.jiffy;
        let cpu = &mut self.cpus[cpu.index()];
        let aged = jiffies.saturating_sub(cpu.wake_stamp);
        if aged > 0 {
            cpu.wake_avg_idle >>= aged.min(63);
            cpu.wake_stamp = jiffies;
        }
        Some(cpu.wake_avg_idle)
    }

    fn charge_aged_idle(&mut self, cpu: CpuId, ns: u64) {
        let cpu = &mut self.cpus[cpu.index()];
        cpu.wake_avg_idle = cpu.wake_avg_idle.saturating_sub(ns);
    }

    fn scan_time(&self, examined: &[u32; Distance::COUNT]) -> u64 {
        self.costs.scan_time(examined)
    }

    fn nr_idle_scan(&self, llc: u32) -> Option<u32> {
        Some(self.llcs[llc as usize].nr_idle_scan)
    }

    fn next_cpu(&self, target: CpuId) -> Option<CpuId> {
        let next = self.cpus[target.index()].next_scan;
        (next != NONE).then_some(CpuId(next))
    }

    fn set_next_cpu(&mut self, target: CpuId, cpu: CpuId) {
        self.cpus[target.index()].next_scan = cpu.0;
    }
}
