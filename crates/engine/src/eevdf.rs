//! Earliest eligible virtual deadline first: the fair queue of 6.6 to 7.2 (`kernel/sched/fair.c`; spec 6.3).
//!
//! A queue's tasks owe each other time: one is *eligible* while its virtual runtime is not beyond the mean V of all that are queued
//! or run, weighted by their weights. Among the eligible the earliest *deadline* wins, a slice after the virtual runtime at which the
//! slice began. Who leaves takes along its *lag*, what V was ahead of it, and is put back as far from the V that it finds.
//!
//! Only differences of virtual time count, so that a queue that was empty begins again at 0.
//!
//! From 6.12 on a task that falls asleep while it is not eligible stays in the queue and pays off what it has run too much by
//! waiting; whoever picks it lets it go. A waker that is faster makes it runnable where it is.

use crate::Observer;
use crate::queue::{before, delta_fair};
use crate::sim::Sim;
use crate::state::{NONE, Run, ipi};

/// Bounds of a task's own slice, ns.
const SHORTEST_SLICE: u64 = 100_000;
const LONGEST_SLICE: u64 = 100_000_000;

/// What a task adds to [`crate::state::Cpu::moment`]. Virtual runtimes may be a little below 0, as wrapped numbers. A queue's sum
/// is some 1024 × the time for which it has not been empty: 64 bits last for a hundred days.
#[inline]
pub(crate) fn moment(weight: u64, vruntime: u64) -> i64 {
    weight as i64 * vruntime as i64
}

/// The weighted mean of virtual runtimes as a fraction: comparing with it needs no division.
#[derive(Clone, Copy)]
struct Mean {
    moment: i64,
    weight: i64,
}

impl Mean {
    /// `entity_eligible`: a virtual runtime that is not beyond the mean.
    #[inline]
    fn reaches(self, vruntime: u64) -> bool {
        self.moment >= vruntime as i64 * self.weight
    }

    /// `avg_vruntime`: rounded down. 0 for an empty queue.
    fn rounded(self) -> i64 {
        if self.weight == 0 { 0 } else { self.moment.div_euclid(self.weight) }
    }
}

impl<O: Observer> Sim<'_, O> {
    /// The mean of a CPU's queued tasks and the running one.
    #[inline]
    fn mean(&self, c: usize) -> Mean {
        let cpu = &self.cpus[c];
        let running = match cpu.curr {
            NONE => 0,
            t => moment(self.tasks[t as usize].weight, self.tasks[t as usize].vruntime),
        };
        Mean { moment: cpu.moment + running, weight: cpu.load as i64 }
    }

    /// `entity_eligible` for a task on a CPU's queue or running there.
    #[inline]
    pub(crate) fn is_eligible(&self, c: usize, t: usize) -> bool {
        self.mean(c).reaches(self.tasks[t].vruntime)
    }

    /// `pick_eevdf`: the eligible task with the earliest deadline. The contender is the task that runs, or ran up to now; it goes on
    /// while it is protected, if protection is `honoured`. With the same deadline as the best of the others it goes on in 6.6 and
    /// 6.7 only. [`NONE`] if nothing is queued.
    pub(crate) fn earliest(&self, c: usize, contender: u32, honoured: bool) -> u32 {
        let mean = self.mean(c);
        let eligible = |t: u32| mean.reaches(self.tasks[t as usize].vruntime);
        let contends = contender != NONE && eligible(contender);
        if contends && honoured && self.is_protected(contender as usize) {
            return contender;
        }
        let leads = |deadline: u64| {
            let own = self.tasks[contender as usize].deadline;
            if self.tuning.running_wins_ties { !before(deadline, own) } else { before(own, deadline) }
        };
        let queue = &self.cpus[c].queue;
        match queue.iter().rev().find(|&&(_, t)| eligible(t)) {
            Some(&(deadline, _)) if contends && leads(deadline) => contender,
            Some(&(_, best)) => best,
            None => contender,
        }
    }

    /// `pick_next_entity`: the earliest that does not sleep. Those who do leave the queue for good when they are picked.
    #[inline]
    pub(crate) fn earliest_awake(&mut self, c: usize, contender: u32) -> u32 {
        loop {
            let best = self.earliest(c, contender, true);
            if best == NONE || self.tasks[best as usize].run != Run::Delayed {
                return best;
            }
            self.let_go(c, best as usize);
        }
    }

    /// `check_preempt_wakeup_fair`: the task just queued is the one to pick. From 6.12 on the running task is not protected against
    /// one with a shorter slice.
    pub(crate) fn preempts_by_deadline(&mut self, c: usize, curr: u32, p: usize) -> bool {
        if self.tuning.shortest_slice && self.tasks[p].run == Run::Delayed {
            return false;
        }
        let shorter = self.tuning.own_slices && self.tasks[p].slice < self.tasks[curr as usize].slice;
        if !shorter {
            return self.earliest(c, curr, true) == p as u32;
        }
        if !self.tuning.shortest_slice {
            if self.takes_short(c, curr as usize, p) {
                self.tasks[curr as usize].protected_until = self.tasks[curr as usize].vruntime;
            }
            return self.earliest(c, curr, true) == p as u32;
        }
        let preempts = self.earliest(c, curr, false) == p as u32;
        if !preempts {
            let shortest = self.shortest_slice(c);
            let task = &mut self.tasks[curr as usize];
            let until = task.vruntime.wrapping_add(delta_fair(shortest, task.weight));
            if before(until, task.protected_until) {
                task.protected_until = until;
            }
        }
        preempts
    }

    /// `do_preempt_short` of 6.12, for a task with a shorter slice than the running one's.
    fn takes_short(&self, c: usize, curr: usize, p: usize) -> bool {
        let earlier = before(self.tasks[p].deadline, self.tasks[curr].deadline);
        self.is_eligible(c, p) && (earlier || !self.is_eligible(c, curr))
    }

    /// `protect_slice`.
    #[inline]
    fn is_protected(&self, t: usize) -> bool {
        before(self.tasks[t].vruntime, self.tasks[t].protected_until)
    }

    /// `set_protect_slice`: the task just picked runs on until its deadline, or for the shortest slice queued.
    #[inline]
    pub(crate) fn protect(&mut self, c: usize, t: usize) {
        let mut until = self.tasks[t].deadline;
        if self.tuning.shortest_slice && self.custom_slices {
            let shortest = self.shortest_slice(c);
            let task = &self.tasks[t];
            let end = task.vruntime.wrapping_add(delta_fair(shortest, task.weight));
            if shortest < task.slice && before(end, until) {
                until = end;
            }
        }
        self.tasks[t].protected_until = until;
    }

    /// `cfs_rq_min_slice`: of the running task and all queued.
    fn shortest_slice(&self, c: usize) -> u64 {
        self.slices(c).min().unwrap_or(self.tuning.min_granularity)
    }

    /// `cfs_rq_max_slice`.
    fn longest_slice(&self, c: usize) -> u64 {
        if !self.custom_slices {
            return self.tuning.min_granularity;
        }
        self.slices(c).max().unwrap_or(self.tuning.min_granularity)
    }

    fn slices(&self, c: usize) -> impl Iterator<Item = u64> + '_ {
        let cpu = &self.cpus[c];
        let running = (cpu.curr != NONE).then_some(cpu.curr);
        cpu.queue.iter().map(|&(_, t)| t).chain(running).map(|t| self.tasks[t as usize].slice)
    }

    /// `update_deadline`, and what `update_curr` makes of it: a slice that is used up is followed by the next, and whoever else there
    /// is may run. From 6.12 on also when protection was taken from a task that is not eligible any more (`did_preempt_short`), from
    /// 6.17 on whenever protection is over.
    #[inline]
    pub(crate) fn renew_deadline(&mut self, c: usize, t: usize) {
        let task = &mut self.tasks[t];
        let renewed = !before(task.vruntime, task.deadline);
        if renewed {
            task.deadline = task.vruntime.wrapping_add(delta_fair(task.slice, task.weight));
        } else if !self.tuning.own_slices || before(task.vruntime, task.protected_until) {
            return;
        }
        let gives_way = renewed || self.tuning.shortest_slice || !self.is_eligible(c, t);
        if gives_way && self.cpus[c].nr_running > 1 {
            self.ask_to_reschedule(c);
        }
    }

    /// `resched_curr`, by the CPU whose event this is.
    fn ask_to_reschedule(&mut self, c: usize) {
        let asked = std::mem::replace(&mut self.cpus[c].need_resched, true);
        if asked {
            return;
        }
        self.cpus[c].lazily = self.tuning.lazy_preempt;
        if self.acting != c && !self.tuning.lazy_preempt {
            self.send_ipi(self.acting, c, ipi::RESCHED);
        }
    }

    /// `entity_lag`: what the queue owes a task on it, within the limit.
    #[inline]
    fn lag_of(&self, c: usize, t: usize) -> i64 {
        let task = &self.tasks[t];
        let most = match self.tuning.longest_lag {
            true => self.longest_slice(c) + self.tuning.jiffy,
            false => (2 * task.slice).max(self.tuning.jiffy),
        };
        let most = delta_fair(most, task.weight) as i64;
        self.mean(c).rounded().wrapping_sub(task.vruntime as i64).clamp(-most, most)
    }

    /// `update_entity_lag` of a task that is about to leave its queue. In 7.2 one that has slept there owes no more than when it
    /// fell asleep, and is owed nothing.
    pub(crate) fn keep_lag(&mut self, c: usize, t: usize) {
        let lag = self.lag_of(c, t);
        let task = &mut self.tasks[t];
        let asleep = self.tuning.delayed_lag_kept && task.run == Run::Delayed;
        task.lag = if asleep { lag.max(task.lag).min(0) } else { lag };
    }

    /// [`Sim::keep_lag`] of a task whose delay is over: it is owed nothing (DELAY_ZERO). True when its lag is not what its place in
    /// the queue says.
    fn settle_lag(&mut self, c: usize, t: usize) -> bool {
        let lag = self.lag_of(c, t);
        self.keep_lag(c, t);
        let task = &mut self.tasks[t];
        task.lag = task.lag.min(0);
        task.lag != lag
    }

    // ---- delayed dequeue -------------------------------------------------------------------------------------------------

    /// The running task falls asleep and stays queued (`dequeue_entity`, `set_delayed`). It counts as load, not as runnable.
    pub(crate) fn delay_current(&mut self, c: usize, t: usize) {
        self.update_queue(c);
        self.tasks[t].run = Run::Running;
        self.update_task(t);
        self.keep_lag(c, t);
        self.mark_delayed(c, t);
        self.estimate_util(t);
    }

    /// A queued task becomes one whose dequeue is delayed.
    pub(crate) fn mark_delayed(&mut self, c: usize, t: usize) {
        let util_est = self.tasks[t].util_est;
        let cpu = &mut self.cpus[c];
        cpu.util_est = cpu.util_est.saturating_sub(util_est);
        cpu.nr_delayed += 1;
        self.tasks[t].run = Run::Delayed;
        self.uncount_preference(c, t);
    }

    /// The contrary.
    pub(crate) fn unmark_delayed(&mut self, c: usize, t: usize) {
        let cpu = &mut self.cpus[c];
        cpu.util_est += self.tasks[t].util_est;
        cpu.nr_delayed -= 1;
        self.tasks[t].run = Run::Queued;
        self.count_preference(c, t);
    }

    /// A task that sleeps has been picked: it leaves the queue (`DEQUEUE_DELAYED`).
    fn let_go(&mut self, c: usize, t: usize) {
        self.update_queue(c);
        self.update_task(t);
        self.settle_lag(c, t);
        self.remove(c, t);
        self.unmark_delayed(c, t);
        self.forget_load(c, t);
        let task = &mut self.tasks[t];
        let woken = std::mem::take(&mut task.being_woken);
        task.run = if woken { Run::Waking } else { Run::Sleeping };
        self.refresh_idle(c);
    }

    /// `requeue_delayed_entity`: the task is awake again before it was let go. It stays where it is in the queue, unless that would
    /// leave it a lag that it may not have.
    pub(crate) fn requeue_delayed(&mut self, c: usize, t: usize) {
        self.update_curr(c);
        self.update_queue(c);
        self.update_task(t);
        if self.settle_lag(c, t) {
            let weight = self.tasks[t].weight;
            self.remove(c, t);
            self.cpus[c].load -= weight;
            self.place_by_lag(c, t);
            self.cpus[c].load += weight;
            self.insert(c, t);
        }
        self.unmark_delayed(c, t);
        self.tasks[t].being_woken = false;
    }

    // ---- slices ----------------------------------------------------------------------------------------------------------

    /// A task asks for slices of its own (`__setparam_fair`); its present deadline stands. Kernels before 6.12 do not listen.
    pub(crate) fn set_slice(&mut self, t: usize, ns: u64) {
        if self.tuning.own_slices {
            self.tasks[t].slice = ns.clamp(SHORTEST_SLICE, LONGEST_SLICE);
            self.custom_slices = true;
        }
    }

    // ---- placing ---------------------------------------------------------------------------------------------------------

    /// A task that leaves its queue without sleeping keeps its deadline, counted from its virtual runtime (PLACE_REL_DEADLINE).
    pub(crate) fn keep_deadline(&mut self, t: usize) {
        let task = &mut self.tasks[t];
        task.deadline = task.deadline.wrapping_sub(task.vruntime);
        task.keeps_deadline = true;
    }

    /// A new task's first slice is half a slice (PLACE_DEADLINE_INITIAL).
    pub(crate) fn halve_first_slice(&mut self, t: usize) {
        let task = &mut self.tasks[t];
        task.deadline = delta_fair(task.slice, task.weight) / 2;
        task.keeps_deadline = true;
    }

    /// `place_entity`: the lag kept, scaled up because the task's own arrival moves the mean towards it; a whole slice ahead, or as
    /// far ahead as it was.
    pub(crate) fn place_by_lag(&mut self, c: usize, t: usize) {
        let mean = self.mean(c);
        let task = &mut self.tasks[t];
        let lag = match mean.weight {
            0 => 0,
            others => task.lag * (others + task.weight as i64) / others,
        };
        task.vruntime = mean.rounded().wrapping_sub(lag) as u64;
        let ahead = match std::mem::take(&mut task.keeps_deadline) {
            true => task.deadline,
            false => delta_fair(task.slice, task.weight),
        };
        task.deadline = task.vruntime.wrapping_add(ahead);
    }
}

#[cfg(test)]
mod tests {
    use huddle_domains::Kernel;
    use huddle_machine::Machine;

    use super::*;
    use crate::Unobserved;
    use crate::heap::NEVER;
    use crate::state::Stage;
    use crate::testing::still;

    type Quiet<'a> = Sim<'a, Unobserved>;

    const US: i64 = 1_000;
    const MS: i64 = 1_000_000;
    /// The CPU of all tests, and who begins there.
    const CPU: usize = 7;
    const A: usize = 1;
    const B: usize = 2;
    const C: usize = 3;

    /// CPU 7 of a Kunpeng node under 6.7, with tasks A, B and C asleep there. Base slice 0.75 ms × 4 = 3 ms, tick 4 ms.
    fn queue(test: impl FnOnce(&mut Quiet)) {
        queue_of("6.7", test);
    }

    /// The same under another kernel. From 6.12 on a base slice is 0.7 ms × 4 = 2.8 ms.
    fn queue_of(kernel: &str, test: impl FnOnce(&mut Quiet)) {
        let machine = Machine::load("kunpeng920:nodes=1").unwrap();
        queue_on(&machine, kernel, test);
    }

    fn queue_on(machine: &Machine, name: &str, test: impl FnOnce(&mut Quiet)) {
        still(
            (machine, "linux-6.7"),
            (3, CPU as u32),
            |kernel| *kernel = Kernel::load(name).unwrap(),
            |sim| {
                sim.acting = CPU;
                test(sim);
            },
        );
    }

    /// Wakes a task by a waker on that CPU. True when it is to preempt the running one.
    fn wake_from(sim: &mut Quiet, t: usize, waker: usize) -> bool {
        sim.tasks[t].run = Run::Waking;
        sim.acting = waker;
        sim.activate_wakeup(t, CPU, waker);
        sim.cpus[CPU].need_resched
    }

    fn wake(sim: &mut Quiet, t: usize) -> bool {
        wake_from(sim, t, CPU)
    }

    /// Lets time pass; the running task uses it.
    fn pass(sim: &mut Quiet, ns: i64) {
        sim.now += ns as u64;
        sim.update_curr(CPU);
    }

    /// Picks again; who runs.
    fn reschedule(sim: &mut Quiet) -> usize {
        sim.schedule(CPU, 0);
        sim.cpus[CPU].curr as usize
    }

    /// The running task sleeps; who runs.
    fn sleep(sim: &mut Quiet) -> usize {
        sim.block(CPU, Stage::Next, Run::Sleeping);
        sim.cpus[CPU].curr as usize
    }

    /// Virtual runtime and deadline.
    fn times(sim: &Quiet, t: usize) -> (i64, i64) {
        (sim.tasks[t].vruntime as i64, sim.tasks[t].deadline as i64)
    }

    #[test]
    fn of_the_eligible_the_earliest_deadline_runs_next() {
        queue(|sim| {
            wake(sim, A);
            assert_eq!((reschedule(sim), times(sim, A)), (A, (0, 3 * MS)));
            pass(sim, MS);
            // V is 1 ms, A's own.
            assert!(!wake(sim, B));
            assert_eq!(times(sim, B), (MS, 4 * MS));
            pass(sim, MS);
            // A 2, B 1: V is 1.5. A is not eligible any more, but B and not C is the one to run.
            assert!(!wake(sim, C));
            assert_eq!(times(sim, C), (1500 * US, 4500 * US));
            assert_eq!(reschedule(sim), B);
            pass(sim, 3 * MS - 1);
            assert!(!sim.cpus[CPU].need_resched);
            pass(sim, 1);
            // A slice is over. A 2 (deadline 3), C 1.5 (4.5), B 4: V is 2.5, and A is first though C has had less.
            assert!(sim.cpus[CPU].need_resched);
            assert_eq!(times(sim, B), (4 * MS, 7 * MS));
            assert_eq!(reschedule(sim), A);
        });
    }

    #[test]
    fn a_task_that_has_run_too_much_is_as_far_behind_when_it_wakes() {
        queue(|sim| {
            wake(sim, A);
            wake(sim, B);
            assert_eq!(reschedule(sim), A);
            pass(sim, 2 * MS);
            // A 2, B 0.
            assert_eq!(sleep(sim), B);
            assert_eq!(sim.tasks[A].lag, -MS);
            pass(sim, 5 * MS);
            // V is B's 5. Were A put at 6, V would be 5.5 and A half a millisecond behind; it is put at 7.
            assert!(!wake(sim, A));
            assert_eq!(times(sim, A), (7 * MS, 10 * MS));
            assert_eq!(sim.mean(CPU).rounded() - 7 * MS, -MS);
        });
    }

    #[test]
    fn a_task_that_is_owed_time_preempts_when_it_wakes() {
        queue(|sim| {
            wake(sim, A);
            wake(sim, B);
            assert_eq!(reschedule(sim), A);
            pass(sim, 2 * MS);
            assert_eq!(reschedule(sim), B);
            // B sleeps at once: V is 1, B at 0.
            assert_eq!(sleep(sim), A);
            assert_eq!(sim.tasks[B].lag, MS);
            pass(sim, 500 * US);
            // A 2.5, B 0.5: V is 1.5 and A not eligible, in the midst of its slice.
            assert!(wake(sim, B));
            assert_eq!(times(sim, B), (500 * US, 3500 * US));
            assert_eq!(reschedule(sim), B);
        });
    }

    #[test]
    fn a_task_that_is_owed_nothing_waits_for_the_end_of_the_slice() {
        queue(|sim| {
            wake(sim, A);
            wake(sim, B);
            reschedule(sim);
            // All at 0 and eligible. Were A's deadline the later, A would still go on: it was picked for a slice.
            assert!(!wake(sim, C));
            sim.tasks[A].deadline += 1;
            assert_eq!(sim.earliest(CPU, A as u32, true), A as u32);
            assert_eq!(sim.earliest(CPU, A as u32, false), B as u32);
        });
    }

    #[test]
    fn who_goes_on_after_a_slice_is_protected_no_more() {
        queue(|sim| {
            wake(sim, A);
            reschedule(sim);
            pass(sim, 3 * MS);
            // Alone, so that nobody is asked to reschedule.
            assert!(!sim.cpus[CPU].need_resched && !sim.is_protected(A));
            assert_eq!(reschedule(sim), A);
            assert!(!sim.is_protected(A));
        });
    }

    #[test]
    fn of_equal_deadlines_the_running_task_keeps_the_cpu() {
        queue(|sim| {
            wake(sim, A);
            reschedule(sim);
            pass(sim, 3 * MS);
            // A at 3 with the deadline 6, not protected; B comes to the same place.
            assert!(!wake(sim, B));
            assert_eq!(times(sim, B), times(sim, A));
            assert_eq!(reschedule(sim), A);
        });
    }

    #[test]
    fn lag_is_kept_up_to_two_slices() {
        queue(|sim| {
            wake(sim, A);
            wake(sim, B);
            reschedule(sim);
            pass(sim, 40 * MS);
            assert_eq!(sleep(sim), B);
            assert_eq!(sim.tasks[A].lag, -6 * MS);
            // And in the other direction: with C at 0 and B at -40, V is -20 and B is owed 20.
            wake(sim, C);
            sim.tasks[B].vruntime = (-40 * MS) as u64;
            sim.keep_lag(CPU, B);
            assert_eq!(sim.tasks[B].lag, 6 * MS);
        });
    }

    #[test]
    fn an_empty_queue_has_forgotten_what_a_task_was_owed() {
        queue(|sim| {
            wake(sim, A);
            wake(sim, B);
            reschedule(sim);
            pass(sim, 2 * MS);
            assert_eq!(sleep(sim), B);
            sleep(sim);
            assert_eq!(sim.tasks[A].lag, -MS);
            assert_eq!((sim.cpus[CPU].curr, sim.cpus[CPU].moment), (NONE, 0));
            wake(sim, A);
            assert_eq!(times(sim, A), (0, 3 * MS));
        });
    }

    #[test]
    fn a_task_moved_between_queues_takes_its_lag_along() {
        queue(|sim| {
            wake(sim, A);
            wake(sim, B);
            reschedule(sim);
            pass(sim, 2 * MS);
            // B is at 0 and V at 1: 1 ms owed. On CPU 8 C has run for 10 ms.
            sim.tasks[C].cpu = 8;
            sim.tasks[C].run = Run::Waking;
            sim.activate_wakeup(C, 8, CPU);
            sim.schedule(8, 0);
            sim.now += 10 * MS as u64;
            sim.update_curr(8);
            sim.update_curr(CPU);
            // A has run too, to 12: V was 6 when B left, with a lag of 6.
            sim.move_queued(B, 8, crate::Cause::Periodic);
            assert_eq!(sim.tasks[B].lag, 6 * MS);
            assert_eq!(times(sim, B), (10 * MS - 12 * MS, -2 * MS + 3 * MS));
            assert_eq!(sim.cpus[CPU].moment, 0);
        });
    }

    #[test]
    fn tasks_of_nice_0_and_5_share_a_cpu_by_their_weights() {
        // Weights 1024 and 335: after 3 s 2260.5 and 739.5 ms, give or take two slices.
        queue(|sim| {
            sim.tasks[B].weight = 335;
            wake(sim, A);
            wake(sim, B);
            reschedule(sim);
            for _ in 0..3000 {
                pass(sim, MS);
                if sim.cpus[CPU].need_resched {
                    reschedule(sim);
                }
            }
            let ran = [A, B].map(|t| sim.tasks[t].sum_exec as i64);
            assert_eq!(ran[0] + ran[1], 3000 * MS);
            assert!((ran[0] - 2_260_500 * US).abs() < 6 * MS, "{ran:?}");
        });
    }

    #[test]
    fn a_slice_is_as_long_for_a_light_task_and_its_deadline_the_later() {
        // Weight 335, nice 5: 3 ms of its time are 3 × 1024 / 335 = 9.17 ms of virtual time, at the first slice and at the next.
        queue(|sim| {
            sim.tasks[A].weight = 335;
            wake(sim, A);
            reschedule(sim);
            assert_eq!(times(sim, A), (0, 9_170_149));
            pass(sim, 3 * MS);
            assert_eq!(times(sim, A), (9_170_149, 18_340_298));
        });
    }

    #[test]
    fn a_waker_elsewhere_that_ends_a_slice_sends_an_interrupt() {
        queue(|sim| {
            wake(sim, A);
            wake(sim, B);
            reschedule(sim);
            let slot = sim.ipi_slot(CPU);
            sim.heap.clear(slot);
            sim.cpus[CPU].ipi = 0;
            sim.now += 3 * MS as u64;
            assert!(wake_from(sim, C, 3));
            assert_eq!(sim.cpus[CPU].ipi & ipi::RESCHED, ipi::RESCHED);
            assert_ne!(sim.heap.time(slot), NEVER);
        });
    }

    /// A runs for 2 ms while B waits, and sleeps: A at 2 with the deadline 2.8, B at 0, V at 1. B runs.
    fn a_sleeps_too_early(sim: &mut Quiet) {
        wake(sim, A);
        wake(sim, B);
        assert_eq!(reschedule(sim), A);
        pass(sim, 2 * MS);
        assert_eq!(sleep(sim), B);
        assert_eq!(sim.tasks[A].run, Run::Delayed);
    }

    #[test]
    fn from_6_12_on_a_task_that_has_run_too_much_stays_queued_when_it_sleeps_and_is_woken_there() {
        for kernel in ["6.12", "7.2"] {
            queue_of(kernel, |sim| {
                a_sleeps_too_early(sim);
                let cpu = &sim.cpus[CPU];
                assert_eq!((cpu.nr_running, cpu.nr_delayed, cpu.load), (2, 1, 2048));
                pass(sim, 500 * US);
                // A second waker finds the first at work.
                assert!(sim.begins_waking(A) && !sim.begins_waking(A));
                assert!(sim.requeue_woken(A, CPU));
                assert_eq!((sim.tasks[A].run, times(sim, A)), (Run::Queued, (2 * MS, 2800 * US)));
                let cpu = &sim.cpus[CPU];
                assert_eq!((cpu.nr_running, cpu.nr_delayed, cpu.need_resched), (2, 0, false));
                assert_eq!(sim.counts.wakes.requeued, 1);
            });
        }
    }

    #[test]
    fn a_sleeper_that_is_picked_leaves_and_is_owed_nothing() {
        queue_of("6.12", |sim| {
            a_sleeps_too_early(sim);
            pass(sim, 2800 * US);
            // B 2.8: V is 2.4, and A the first whose deadline it is. It would be owed 0.4.
            assert_eq!(reschedule(sim), B);
            assert_eq!((sim.tasks[A].run, sim.tasks[A].lag), (Run::Sleeping, 0));
            assert_eq!((sim.cpus[CPU].nr_running, sim.cpus[CPU].nr_delayed, sim.cpus[CPU].load), (1, 0, 1024));
        });
    }

    #[test]
    fn a_sleeper_that_leaves_under_its_waker_s_hands_must_be_placed() {
        queue_of("6.12", |sim| {
            a_sleeps_too_early(sim);
            assert!(sim.begins_waking(A));
            pass(sim, 2800 * US);
            assert_eq!(reschedule(sim), B);
            assert_eq!(sim.tasks[A].run, Run::Waking);
            assert!(!sim.requeue_woken(A, CPU) && sim.counts.wakes.requeued == 0);
        });
    }

    #[test]
    fn a_sleeper_that_was_owed_time_begins_anew_when_it_wakes() {
        queue_of("6.12", |sim| {
            a_sleeps_too_early(sim);
            pass(sim, 2600 * US);
            // V is 2.3. Without lag A comes to where B is.
            sim.begins_waking(A);
            sim.requeue_woken(A, CPU);
            assert_eq!(times(sim, A), (2600 * US, 5400 * US));
            assert_eq!((sim.cpus[CPU].load, sim.cpus[CPU].queue.len()), (2048, 1));
        });
    }

    #[test]
    fn a_task_that_is_owed_time_leaves_at_once_and_sleepers_do_not_keep_a_cpu_busy() {
        queue_of("6.12", |sim| {
            a_sleeps_too_early(sim);
            // B is at 0 and V at 1.
            assert_eq!(sleep(sim), NONE as usize);
            assert_eq!((sim.tasks[B].run, sim.tasks[B].lag), (Run::Sleeping, MS));
            assert_eq!((sim.tasks[A].run, sim.tasks[A].lag), (Run::Sleeping, 0));
            let cpu = &sim.cpus[CPU];
            assert_eq!((cpu.nr_running, cpu.nr_delayed, cpu.load, cpu.moment), (0, 0, 0, 0));
        });
    }

    #[test]
    fn in_7_2_a_sleeper_owes_no_more_than_when_it_fell_asleep() {
        for (kernel, wanted) in [("6.12", (2 * MS, 2800 * US)), ("7.2", (-250 * US, 2550 * US))] {
            queue_of(kernel, |sim| {
                a_sleeps_too_early(sim);
                // C comes with 3 ms due to it: × 3/2, at 1 - 4.5. V is (2 + 0 - 3.5) / 3 = -0.5 and A, 1 ms behind before, 2.5.
                sim.tasks[C].lag = 3 * MS;
                wake(sim, C);
                assert_eq!(times(sim, C).0, -3500 * US);
                // 1 ms behind, × 3/2, from the mean of the others, -1.75.
                sim.begins_waking(A);
                sim.requeue_woken(A, CPU);
                assert_eq!(times(sim, A), wanted, "{kernel}");
            });
        }
    }

    #[test]
    fn a_sleeper_that_is_moved_sleeps_on_and_leaves_there() {
        queue_of("6.12", |sim| {
            a_sleeps_too_early(sim);
            sim.move_queued(A, 8, crate::Cause::Periodic);
            assert_eq!((sim.tasks[A].run, sim.tasks[A].cpu), (Run::Delayed, 8));
            assert_eq!((sim.cpus[CPU].nr_running, sim.cpus[CPU].nr_delayed), (1, 0));
            assert_eq!((sim.cpus[8].nr_running, sim.cpus[8].nr_delayed), (1, 1));
            sim.schedule(8, 0);
            assert_eq!((sim.tasks[A].run, sim.cpus[8].nr_running, sim.cpus[8].load), (Run::Sleeping, 0, 0));
        });
    }

    #[test]
    fn from_6_12_on_a_task_keeps_what_is_left_of_its_slice_when_it_is_moved() {
        for (kernel, left) in [("6.7", 3 * MS), ("6.12", 1800 * US)] {
            queue_of(kernel, |sim| {
                wake(sim, A);
                wake(sim, B);
                reschedule(sim);
                pass(sim, MS);
                sim.tasks[A].protected_until = 0;
                assert_eq!(reschedule(sim), B);
                sim.move_queued(A, 8, crate::Cause::Periodic);
                assert_eq!(times(sim, A), (0, left), "{kernel}");
            });
        }
    }

    #[test]
    fn from_6_12_on_a_new_task_s_first_slice_is_half() {
        for (kernel, slice) in [("6.7", 3 * MS), ("6.12", 1400 * US)] {
            queue_of(kernel, |sim| {
                wake(sim, A);
                reschedule(sim);
                pass(sim, MS);
                sim.place_child(CPU, A, B);
                sim.tasks[B].run = Run::Waking;
                sim.activate(B, CPU, false);
                assert_eq!(times(sim, B), (MS, MS + slice), "{kernel}");
                // And whole ever after.
                sim.move_queued(B, 8, crate::Cause::Periodic);
                sim.tasks[B].deadline = sim.tasks[B].vruntime;
                sim.renew_deadline(8, B);
                let (at, deadline) = times(sim, B);
                assert_eq!(deadline - at, if kernel == "6.7" { 3 * MS } else { 2800 * US });
            });
        }
    }

    #[test]
    fn from_6_12_on_a_shorter_slice_breaks_the_protection_of_a_longer_one() {
        for (kernel, slice, wanted) in [
            ("6.7", MS, false),
            ("6.12", MS, true),
            ("7.2", MS, true),
            // Its deadline, 0.5 + 2.7, is later than A's.
            ("6.12", 2700 * US, false),
            ("7.2", 2700 * US, false),
        ] {
            queue_of(kernel, |sim| {
                wake(sim, A);
                reschedule(sim);
                pass(sim, 500 * US);
                sim.set_slice(C, slice as u64);
                assert_eq!(wake(sim, C), wanted, "{kernel} {slice}");
                assert_eq!(times(sim, C).0, 500 * US);
            });
        }
    }

    #[test]
    fn slices_of_a_task_s_own_are_from_a_tenth_to_a_hundred_ms() {
        queue_of("6.12", |sim| {
            for (asked, given) in [(1, 100_000), (5_000_000, 5_000_000), (u64::MAX, 100_000_000)] {
                sim.set_slice(A, asked);
                assert_eq!(sim.tasks[A].slice, given);
            }
        });
    }

    #[test]
    fn from_6_17_on_a_task_is_protected_for_the_shortest_slice_queued() {
        for (kernel, asked) in [("6.12", false), ("6.17", true), ("7.2", true)] {
            queue_of(kernel, |sim| {
                sim.set_slice(C, MS as u64);
                wake(sim, A);
                wake(sim, C);
                assert_eq!(reschedule(sim), C);
                pass(sim, MS);
                // C at 1 with the deadline 2, A at 0 with 2.8: V is 0.5.
                assert_eq!(reschedule(sim), A);
                pass(sim, MS - 1);
                assert!(!sim.cpus[CPU].need_resched);
                pass(sim, 1);
                assert_eq!(sim.cpus[CPU].need_resched, asked, "{kernel}");
                assert_eq!(reschedule(sim), if asked { C } else { A }, "{kernel}");
            });
        }
    }

    #[test]
    fn from_6_8_on_the_running_task_gives_way_to_one_with_the_same_deadline() {
        queue_of("6.12", |sim| {
            wake(sim, A);
            reschedule(sim);
            pass(sim, 2800 * US);
            assert!(wake(sim, B));
            assert_eq!(times(sim, B), times(sim, A));
            assert_eq!(reschedule(sim), B);
        });
    }

    #[test]
    fn lag_is_kept_up_to_two_slices_or_in_7_2_a_slice_and_a_tick() {
        for (kernel, most) in [("6.12", 5600 * US), ("7.2", 6800 * US)] {
            queue_of(kernel, |sim| {
                wake(sim, A);
                wake(sim, B);
                reschedule(sim);
                pass(sim, 40 * MS);
                sim.keep_lag(CPU, B);
                assert_eq!(sim.tasks[B].lag, most, "{kernel}");
            });
        }
    }

    #[test]
    fn a_kernel_that_preempts_lazily_sends_no_interrupt_and_is_urged_by_the_next_tick() {
        let mut machine = Machine::load("kunpeng920:nodes=1").unwrap();
        for (preempt, lazily) in [(true, false), (false, true)] {
            machine.config.preempt = preempt;
            queue_on(&machine, "7.2", |sim| {
                wake(sim, A);
                reschedule(sim);
                pass(sim, 500 * US);
                sim.cpus[CPU].ipi = 0;
                sim.set_slice(C, MS as u64);
                assert!(wake_from(sim, C, 3));
                assert_eq!((sim.cpus[CPU].lazily, sim.cpus[CPU].ipi == 0), (lazily, lazily));
                assert_eq!(sim.kernel_gives_way(CPU), preempt);
                sim.cpus[CPU].lazily = false;
                assert!(sim.kernel_gives_way(CPU));
            });
        }
    }

    #[test]
    fn somebody_is_always_eligible_and_the_sum_is_that_of_the_queue() {
        for kernel in ["6.7", "6.12", "7.2"] {
            walk(kernel);
        }
    }

    /// Whatever happens: a walk of wake-ups, stretches and sleeps, weights from nice -20 to 19.
    fn walk(kernel: &str) {
        queue_of(kernel, |sim| {
            sim.tasks[A].weight = 88_761;
            sim.tasks[C].weight = 15;
            let mut state = 1u64;
            for _ in 0..20_000 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let (what, t) = ((state >> 40) % 4, 1 + (state >> 50) as usize % 3);
                match what {
                    0 if sim.tasks[t].run == Run::Sleeping => {
                        wake(sim, t);
                    }
                    0 if sim.tasks[t].run == Run::Delayed => {
                        assert!(sim.begins_waking(t) && sim.requeue_woken(t, CPU));
                    }
                    1 if sim.cpus[CPU].curr != NONE => {
                        sleep(sim);
                    }
                    _ => pass(sim, (state >> 44) as i64 % (5 * MS)),
                }
                let tasks = &sim.tasks;
                let of = |run: Run| [A, B, C].into_iter().filter(move |&t| tasks[t].run == run);
                let queued: Vec<usize> = of(Run::Queued).chain(of(Run::Delayed)).collect();
                assert_eq!(of(Run::Delayed).count(), sim.cpus[CPU].nr_delayed as usize);
                let sum: i64 = queued.iter().map(|&t| moment(sim.tasks[t].weight, sim.tasks[t].vruntime)).sum();
                assert_eq!(sim.cpus[CPU].moment, sum);
                let mean = sim.mean(CPU);
                let counted =
                    queued.iter().copied().chain((sim.cpus[CPU].curr != NONE).then(|| sim.cpus[CPU].curr as usize));
                let counted: Vec<usize> = counted.collect();
                assert!(counted.is_empty() || counted.iter().any(|&t| mean.reaches(sim.tasks[t].vruntime)));
                if sim.cpus[CPU].need_resched || sim.cpus[CPU].curr == NONE {
                    reschedule(sim);
                    let awake = counted.iter().any(|&t| matches!(sim.tasks[t].run, Run::Queued | Run::Running));
                    assert_eq!(sim.cpus[CPU].curr == NONE, !awake);
                }
            }
        });
    }
}
