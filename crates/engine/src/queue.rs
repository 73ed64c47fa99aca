//! The fair queue (`kernel/sched/fair.c`): joining, leaving, running, and the averages that go with it; CFS's own rules, those
//! of 5.9 and 5.10 (spec 6.2). Those of EEVDF are in `eevdf.rs`.

use crate::Observer;
use crate::eevdf::moment;
use crate::pelt::Activity;
use crate::report::Cause;
use crate::sim::{NICE_0, Sim};
use crate::state::{NONE, Run};

/// `calc_delta_fair`: nanoseconds in the virtual time of a weight.
#[inline]
pub(crate) fn delta_fair(ns: u64, weight: u64) -> u64 {
    if weight == NICE_0 { ns } else { (u128::from(ns) * u128::from(NICE_0) / u128::from(weight)) as u64 }
}

/// Whether `a` is before `b` in wrapping virtual time.
#[inline]
pub(crate) fn before(a: u64, b: u64) -> bool {
    (a.wrapping_sub(b) as i64) < 0
}

#[inline]
fn later(a: u64, b: u64) -> u64 {
    if before(a, b) { b } else { a }
}

impl<O: Observer> Sim<'_, O> {
    // ---- averages --------------------------------------------------------------------------------------------------------

    /// Brings the queue's averages up to now. Before anything about it changes.
    #[inline]
    pub(crate) fn update_queue(&mut self, c: usize) {
        let cpu = &mut self.cpus[c];
        let running = cpu.curr != NONE;
        let runnable = u64::from(cpu.nr_running - cpu.nr_delayed);
        let activity = Activity { load: cpu.load, runnable, running, weight: 1 };
        cpu.pelt.update(self.now, activity);
    }

    /// Brings a task's averages up to now. Before its state changes.
    #[inline]
    pub(crate) fn update_task(&mut self, t: usize) {
        let task = &mut self.tasks[t];
        let (runnable, running) = (matches!(task.run, Run::Queued | Run::Running), task.run == Run::Running);
        let queued = runnable || task.run == Run::Delayed;
        let activity = Activity { load: queued.into(), runnable: runnable.into(), running, weight: task.weight };
        task.pelt.update(self.now, activity);
    }

    /// `cpu_util`: the greater of the average and the estimate, at most the capacity.
    pub(crate) fn cpu_util(&self, c: usize) -> u64 {
        let cpu = &self.cpus[c];
        cpu.pelt.util_avg.max(cpu.util_est).min(u64::from(self.setup.tree.capacity[c]))
    }

    // ---- running ---------------------------------------------------------------------------------------------------------

    /// Accounts the running task's time.
    #[inline]
    pub(crate) fn update_curr(&mut self, c: usize) {
        let t = self.cpus[c].curr;
        if t == NONE {
            return;
        }
        let task = &mut self.tasks[t as usize];
        let ran = self.now.saturating_sub(task.exec_start);
        task.exec_start = self.now;
        task.sum_exec += ran;
        let virtual_ns = delta_fair(ran, task.weight);
        if self.tuning.dsq {
            return self.dsq.charge(t as usize, ran, virtual_ns);
        }
        task.vruntime = task.vruntime.wrapping_add(virtual_ns);
        if self.tuning.eevdf {
            self.renew_deadline(c, t as usize);
            if self.tuning.cache_aware && ran > 0 {
                self.account_space(c, t as usize, ran);
            }
            return;
        }
        self.update_min_vruntime(c);
    }

    /// Where sleepers and new tasks are placed by. EEVDF places by its mean.
    fn update_min_vruntime(&mut self, c: usize) {
        if self.tuning.eevdf {
            return;
        }
        let cpu = &self.cpus[c];
        let curr = (cpu.curr != NONE && self.tasks[cpu.curr as usize].run == Run::Running)
            .then(|| self.tasks[cpu.curr as usize].vruntime);
        let left = cpu.queue.last().map(|&(vruntime, _)| vruntime);
        let least = match (curr, left) {
            (Some(curr), Some(left)) => {
                if before(left, curr) {
                    left
                } else {
                    curr
                }
            }
            (Some(only), None) | (None, Some(only)) => only,
            (None, None) => return,
        };
        let cpu = &mut self.cpus[c];
        cpu.min_vruntime = later(cpu.min_vruntime, least);
    }

    /// A task's share of a scheduling period in which `nr` tasks of weight `load` run (`sched_slice`).
    fn slice(&self, nr: u32, weight: u64, load: u64) -> u64 {
        let period =
            if nr > self.tuning.nr_latency { u64::from(nr) * self.tuning.min_granularity } else { self.tuning.latency };
        period * weight / load.max(1)
    }

    /// `check_preempt_tick`; under EEVDF slices end wherever time is accounted.
    pub(crate) fn tick_preempt(&mut self, c: usize) {
        self.update_queue(c);
        let t = self.cpus[c].curr as usize;
        self.update_task(t);
        if self.tuning.dsq {
            self.cpus[c].need_resched |= self.dsq.slice_is_over(t);
            return;
        }
        let cpu = &self.cpus[c];
        if self.tuning.eevdf || cpu.nr_running < 2 {
            return;
        }
        let task = &self.tasks[t];
        let slice = self.slice(cpu.nr_running, task.weight, cpu.load);
        let ran = task.sum_exec - task.picked_at;
        if ran > slice {
            self.clear_buddies(c, t as u32);
            self.cpus[c].need_resched = true;
        } else if ran >= self.tuning.min_granularity
            && let Some(&(left, _)) = cpu.queue.last()
        {
            let ahead = task.vruntime.wrapping_sub(left) as i64;
            if ahead > 0 && ahead as u64 > slice {
                self.cpus[c].need_resched = true;
            }
        }
    }

    /// `wakeup_preempt_entity`: -1 when `b` is not ahead of `a`, 0 when it is within the granularity, 1 beyond.
    fn ahead(&self, a: u64, b: u64, weight: u64) -> i32 {
        let difference = a.wrapping_sub(b) as i64;
        if difference <= 0 {
            -1
        } else {
            i32::from(difference as u64 > delta_fair(self.tuning.wakeup_granularity, weight))
        }
    }

    /// `check_preempt_wakeup`: whether a task just queued takes the CPU from the running one.
    pub(crate) fn preempts(&mut self, c: usize, p: usize) -> bool {
        self.update_curr(c);
        let curr = self.cpus[c].curr;
        if self.tuning.eevdf {
            return self.preempts_by_deadline(c, curr, p);
        }
        let (running, woken) = (&self.tasks[curr as usize], &self.tasks[p]);
        if self.ahead(running.vruntime, woken.vruntime, woken.weight) < 1 {
            return false;
        }
        let cpu = &mut self.cpus[c];
        cpu.next = p as u32;
        if cpu.nr_running >= self.tuning.nr_latency {
            cpu.last = curr;
        }
        true
    }

    fn clear_buddies(&mut self, c: usize, t: u32) {
        let cpu = &mut self.cpus[c];
        if cpu.next == t {
            cpu.next = NONE;
        }
        if cpu.last == t {
            cpu.last = NONE;
        }
    }

    /// `pick_next_entity`: the leftmost task, or a buddy that is not too far behind it. `prev` ran last, or [`NONE`].
    pub(crate) fn pick(&mut self, c: usize, prev: u32) -> u32 {
        if self.tuning.eevdf {
            let contender = prev != NONE && self.tasks[prev as usize].run == Run::Queued;
            return self.earliest_awake(c, if contender { prev } else { NONE });
        }
        let cpu = &self.cpus[c];
        let Some(&(left, leftmost)) = cpu.queue.last() else {
            return NONE;
        };
        let fair_enough = |buddy: u32| {
            buddy != NONE && {
                let task = &self.tasks[buddy as usize];
                self.ahead(task.vruntime, left, self.tasks[leftmost as usize].weight) < 1
            }
        };
        let picked = if fair_enough(cpu.next) {
            cpu.next
        } else if fair_enough(cpu.last) {
            cpu.last
        } else {
            leftmost
        };
        self.clear_buddies(c, picked);
        picked
    }

    /// `set_next_entity`: the task leaves the tree and runs.
    pub(crate) fn set_next(&mut self, c: usize, t: usize) {
        debug_assert!(self.tasks[t].cpu as usize == c && self.tasks[t].run == Run::Queued);
        self.update_queue(c);
        self.update_task(t);
        self.remove(c, t);
        let cpu = &mut self.cpus[c];
        cpu.curr = t as u32;
        cpu.stamp += 1;
        let task = &mut self.tasks[t];
        task.run = Run::Running;
        task.on_cpu = true;
        task.stamp = cpu.stamp;
        task.exec_start = self.now;
        task.picked_at = task.sum_exec;
    }

    /// `put_prev_entity` of a task that can still run.
    pub(crate) fn put_back(&mut self, c: usize, t: usize) {
        if self.tuning.dsq {
            return self.keep(c, t);
        }
        self.update_queue(c);
        self.update_task(t);
        self.tasks[t].run = Run::Queued;
        self.insert(c, t);
    }

    /// The running task, already marked asleep or dead, leaves the queue (`dequeue_task_fair`).
    pub(crate) fn dequeue_current(&mut self, c: usize, t: usize) {
        self.update_queue(c);
        let asleep = std::mem::replace(&mut self.tasks[t].run, Run::Running);
        self.update_task(t);
        self.tasks[t].run = asleep;
        self.clear_buddies(c, t as u32);
        if self.tuning.eevdf {
            self.keep_lag(c, t);
        }
        self.forget_load(c, t);
        self.estimate_util(t);
        if asleep == Run::Dead && !self.tuning.dsq {
            let pelt = self.tasks[t].pelt;
            self.cpus[c].pelt.detach(&pelt);
        }
        self.update_min_vruntime(c);
    }

    /// `util_est_update`: what a task used when it went to sleep.
    pub(crate) fn estimate_util(&mut self, t: usize) {
        let task = &mut self.tasks[t];
        let used = task.pelt.util_avg;
        if used >= task.util_est {
            task.util_est = used;
        } else if task.util_est - used >= 10 {
            task.util_est -= (task.util_est - used) / 4;
        }
    }

    pub(crate) fn forget_load(&mut self, c: usize, t: usize) {
        self.uncount_preference(c, t);
        let (weight, util_est) = (self.tasks[t].weight, self.tasks[t].util_est);
        let cpu = &mut self.cpus[c];
        cpu.nr_running -= 1;
        cpu.load -= weight;
        cpu.util_est = cpu.util_est.saturating_sub(util_est);
    }

    // ---- the tree --------------------------------------------------------------------------------------------------------

    /// Equal keys keep the order of arrival.
    pub(crate) fn insert(&mut self, c: usize, t: usize) {
        let task = &self.tasks[t];
        let cpu = &mut self.cpus[c];
        let key = if self.tuning.eevdf { task.deadline } else { task.vruntime };
        let at = cpu.queue.partition_point(|&(other, _)| before(key, other));
        cpu.queue.insert(at, (key, t as u32));
        if self.tuning.eevdf {
            cpu.moment += moment(task.weight, task.vruntime);
        }
    }

    pub(crate) fn remove(&mut self, c: usize, t: usize) {
        let cpu = &mut self.cpus[c];
        if let Some(at) = cpu.queue.iter().rposition(|&(_, task)| task == t as u32) {
            cpu.queue.remove(at);
            if self.tuning.eevdf {
                let task = &self.tasks[t];
                cpu.moment -= moment(task.weight, task.vruntime);
            }
        }
    }

    // ---- joining and leaving ---------------------------------------------------------------------------------------------

    /// `enqueue_task_fair` for a task that was asleep, is new, or comes from another queue. Under CFS a woken task's virtual time
    /// is pulled forward (`place_entity`): a sleeper gets half a latency of credit. EEVDF places whoever comes.
    pub(crate) fn activate(&mut self, t: usize, c: usize, woken: bool) {
        if self.tuning.dsq {
            return self.join_local(t, c);
        }
        self.update_curr(c);
        self.update_queue(c);
        self.update_task(t);
        if self.tuning.eevdf {
            self.place_by_lag(c, t);
        } else if woken {
            let credit = self.tuning.latency / 2;
            let placed = self.cpus[c].min_vruntime.wrapping_sub(credit);
            self.tasks[t].vruntime = later(self.tasks[t].vruntime, placed);
        }
        let task = &mut self.tasks[t];
        task.run = Run::Queued;
        let cpu = &mut self.cpus[c];
        cpu.stamp += 1;
        task.stamp = cpu.stamp;
        cpu.nr_running += 1;
        cpu.load += task.weight;
        cpu.util_est += task.util_est;
        self.overloaded |= cpu.nr_running >= 2;
        self.insert(c, t);
        self.count_preference(c, t);
        self.refresh_idle(c);
    }

    /// A task that is not queued changes its CPU (`set_task_cpu`, `migrate_task_rq_fair`): virtual time and averages move.
    pub(crate) fn move_asleep(&mut self, t: usize, to: usize, cause: Cause) {
        let from = self.tasks[t].cpu as usize;
        self.update_curr(to);
        self.update_queue(from);
        self.update_queue(to);
        self.update_task(t);
        let pelt = self.tasks[t].pelt;
        self.cpus[from].pelt.detach(&pelt);
        let weight = self.tasks[t].weight;
        self.cpus[to].pelt.attach(&mut self.tasks[t].pelt, weight);
        let shift = self.cpus[to].min_vruntime.wrapping_sub(self.cpus[from].min_vruntime);
        let distance = self.dist(from, to);
        let task = &mut self.tasks[t];
        task.vruntime = task.vruntime.wrapping_add(shift);
        task.cpu = to as u32;
        // No longer hot (`migrate_task_rq_fair`).
        task.exec_start = 0;
        task.refill = task.refill.max(self.costs.refill[distance]);
        self.counts.migrations[cause as usize][distance] += 1;
        self.observer.migrate(self.now, t as u32, from, to, cause);
    }

    /// Takes a queued task off its queue for another CPU (`detach_task`, `attach_task` without the preemption test).
    pub(crate) fn move_queued(&mut self, t: usize, to: usize, cause: Cause) {
        let from = self.tasks[t].cpu as usize;
        self.update_curr(from);
        self.update_queue(from);
        self.update_task(t);
        if self.tuning.eevdf {
            self.keep_lag(from, t);
        }
        self.remove(from, t);
        self.clear_buddies(from, t as u32);
        if self.tuning.own_slices {
            self.keep_deadline(t);
        }
        let delayed = self.tasks[t].run == Run::Delayed;
        if delayed {
            self.unmark_delayed(from, t);
        }
        self.forget_load(from, t);
        self.tasks[t].run = Run::Waking;
        self.refresh_idle(from);
        self.move_asleep(t, to, cause);
        self.update_min_vruntime(from);
        self.activate(t, to, false);
        if delayed {
            self.mark_delayed(to, t);
        }
    }

    /// A new task's virtual time: not before its parent's, and a slice late (`task_fork_fair`, `place_entity`). Under EEVDF of 6.6
    /// to 6.11 what fork does here (half a first slice) is lost when the task is queued, which places it again, without lag.
    pub(crate) fn place_child(&mut self, c: usize, parent: usize, child: usize) {
        self.update_curr(c);
        if self.tuning.own_slices {
            self.tasks[child].slice = self.tasks[parent].slice;
            return self.halve_first_slice(child);
        }
        if self.tuning.eevdf {
            return;
        }
        let (weight, vruntime) = (self.tasks[child].weight, self.tasks[parent].vruntime);
        let cpu = &self.cpus[c];
        let slice = self.slice(cpu.nr_running + 1, weight, cpu.load + weight);
        let late = cpu.min_vruntime.wrapping_add(delta_fair(slice, weight));
        self.tasks[child].vruntime = later(vruntime, late);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_time_wraps() {
        assert!(before(u64::MAX - 5, 3) && !before(3, u64::MAX - 5));
        assert_eq!(later(u64::MAX - 5, 3), 3);
    }

    #[test]
    fn a_heavier_task_ages_slower() {
        assert_eq!(delta_fair(1000, 1024), 1000);
        assert_eq!(delta_fair(1000, 2048), 500);
    }
}
