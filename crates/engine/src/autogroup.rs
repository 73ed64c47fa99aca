//! The session's group (`kernel/sched/autogroup.c`): the benchmark runs in one, whose weight is that of one task on all CPUs
//! together. Loads that wake-ups and balancing compare are shares of that weight (`calc_group_shares`, `task_h_load`,
//! `kernel/sched/fair.c`, 5.9 to 6.12).
//!
//! DEVIATION: background tasks are counted as the session's, and the entity's average follows weight and queue at once
//! (docs/model.md 3.3).
//!
//! Who runs when does not change: all tasks are in the group. Loads do, by two orders of magnitude on a busy machine, and
//! with them what rounds to the same and what exceeds a fixed margin.

use crate::Observer;
use crate::sim::{NICE_0, Sim};
use crate::state::{Cpu, Task};

/// `MIN_SHARES`.
const MIN_SHARES: u64 = 2;

/// The group as a whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Autogroup {
    /// There is one.
    pub on: bool,
    /// Load of all its queues (`task_group.load_avg`), brought up to date every jiffy; a kernel does so when a queue's has changed
    /// by a 64th.
    pub load: u64,
}

impl Autogroup {
    /// A CPU's load: the average of the group's entity there, its share of the weight for the time in which it has something
    /// to run.
    #[inline]
    pub fn cpu_load(&self, cpu: &Cpu) -> u64 {
        if !self.on {
            return cpu.pelt.load_avg;
        }
        let own = cpu.load.max(cpu.pelt.load_avg);
        let all = self.load.saturating_sub(cpu.pelt.load_avg) + own;
        let share = (NICE_0 * own / all.max(1)).clamp(MIN_SHARES, NICE_0);
        share * cpu.pelt.util_avg / NICE_0
    }

    /// A task's part of its CPU's load (`task_h_load`).
    #[inline]
    pub fn task_load(&self, task: &Task, cpu: &Cpu) -> u64 {
        if self.on { task.pelt.load_avg * self.cpu_load(cpu) / (cpu.pelt.load_avg + 1) } else { task.pelt.load_avg }
    }
}

impl<O: Observer> Sim<'_, O> {
    /// The load of a CPU.
    pub(crate) fn cpu_load(&self, c: usize) -> u64 {
        self.autogroup.cpu_load(&self.cpus[c])
    }

    /// A task's part of the load of its CPU.
    pub(crate) fn task_load(&self, t: usize) -> u64 {
        let task = &self.tasks[t];
        self.autogroup.task_load(task, &self.cpus[task.cpu as usize])
    }

    /// Sums the group's load.
    pub(crate) fn refresh_autogroup(&mut self) {
        if self.autogroup.on {
            self.autogroup.load = self.cpus.iter().map(|cpu| cpu.pelt.load_avg).sum();
        }
    }
}

#[cfg(test)]
mod tests {
    use huddle_machine::Machine;

    use crate::autogroup::Autogroup;
    use crate::testing::still;

    #[test]
    fn kunpeng_a_session_that_fills_a_node_weighs_on_each_cpu_a_24th_of_a_task() {
        let machine = Machine::load("kunpeng920:nodes=1").unwrap();
        still(
            (&machine, "linux-5.10"),
            (2, 7),
            |_| (),
            |sim| {
                for cpu in &mut sim.cpus {
                    (cpu.load, cpu.pelt.load_avg, cpu.pelt.util_avg) = (2048, 2048, 1024);
                }
                (sim.tasks[1].pelt.load_avg, sim.tasks[2].pelt.load_avg) = (1024, 1024);
                // Without a group two tasks weigh two tasks.
                assert_eq!((sim.cpu_load(7), sim.task_load(1)), (2048, 1024));
                sim.autogroup = Autogroup { on: true, load: 0 };
                sim.refresh_autogroup();
                // 1024 / 24 = 42, and half of it for each of the two: 1024 × 42 / 2049 = 20.
                assert_eq!((sim.autogroup.load, sim.cpu_load(7), sim.task_load(1)), (24 * 2048, 42, 20));
                // A CPU that is half as loaded and runs a quarter of the time: 1024 × 1024 / 48128 = 21, a quarter of it 5.
                (sim.cpus[3].load, sim.cpus[3].pelt.load_avg, sim.cpus[3].pelt.util_avg) = (0, 1024, 256);
                sim.refresh_autogroup();
                assert_eq!(sim.cpu_load(3), 5);
                // The only CPU with tasks has the whole weight; one that the others dwarf has the least, 2.
                let one = Autogroup { on: true, load: 2048 };
                assert_eq!(one.cpu_load(&sim.cpus[7]), 1024);
                let many = Autogroup { on: true, load: 10_000_000 };
                assert_eq!(many.cpu_load(&sim.cpus[7]), 2);
            },
        );
    }
}
