//! Balancing and fork placement before 5.5: groups are compared by load alone, averaged over the last ticks (`find_busiest_group`,
//! `calculate_imbalance`, `fix_small_imbalance`, `find_idlest_group`, `kernel/sched/fair.c` 4.17; spec 4.5 and 5.12).
//!
//! A CPU's load is that of its runnable tasks. A busy CPU judges others by the lesser of that and its history, itself by the
//! greater, so that short peaks move nothing (LB_BIAS).

use huddle_domains::{Domain, DomainId, Flags, GroupId};
use huddle_machine::{CpuId, CpuSet};

use crate::Observer;
use crate::balance::{Attempt, Idle, Imbalance};
use crate::groups::GroupKind;
use crate::sim::{NICE_0, Sim};
use crate::state::NONE;

/// A group's sums.
#[derive(Clone, Copy, Debug)]
struct Loads {
    group: GroupId,
    /// `HasSpare` stands for `group_other`.
    kind: GroupKind,
    load: u64,
    /// Load per capacity.
    avg_load: u64,
    /// Load of the runnable tasks over their number.
    per_task: u64,
    util: u64,
    nr: u32,
    idle: u32,
    capacity: u64,
    weight: u32,
    /// More tasks than CPUs, and these are used up (`group_no_capacity`).
    full: bool,
}

impl Loads {
    /// `group_has_capacity`.
    fn has_capacity(&self, pct: u64) -> bool {
        self.nr < self.weight || self.capacity * 100 > self.util * pct
    }

    /// `group_is_overloaded`.
    fn is_overloaded(&self, pct: u64) -> bool {
        self.nr > self.weight && self.capacity * 100 < self.util * pct
    }
}

/// The averages over ticks that a level looks at (`busy_idx`, `idle_idx`): 0 for the present load.
fn load_index(domain: &Domain, idle: Idle) -> usize {
    match idle {
        Idle::Newly => 0,
        _ if domain.flags.has(Flags::SHARE_CPUCAPACITY) => 0,
        Idle::Busy if domain.flags.has(Flags::NUMA) => 3,
        Idle::Busy => 2,
        Idle::Tickless if domain.flags.has(Flags::NUMA) => 2,
        Idle::Tickless if domain.flags.has(Flags::SHARE_LLC) => 0,
        Idle::Tickless => 1,
    }
}

impl<O: Observer> Sim<'_, O> {
    /// `weighted_cpuload`: the load of the tasks on a CPU's queue, the running one included.
    pub(crate) fn runnable_load(&self, c: usize) -> u64 {
        self.cpus[c].runnable_load(&self.tasks)
    }

    /// `cpu_load_update`: at each tick the averages over 1, 2 and 4 ticks take the present load in. Ticks in which the CPU idled
    /// count as without load.
    pub(crate) fn note_load(&mut self, c: usize) {
        let ticks = self.now / self.tuning.jiffy;
        let load = self.runnable_load(c);
        let history = &mut self.load_history[c];
        let missed = ticks.saturating_sub(history.tick).saturating_sub(1).min(64);
        history.tick = ticks;
        for (shift, average) in history.loads.iter_mut().enumerate() {
            for _ in 0..missed {
                *average -= *average >> shift;
            }
            // Rounded up while it rises.
            let rounding = if load > *average { (1 << shift) - 1 } else { 0 };
            *average = (*average * ((1 << shift) - 1) + load + rounding) >> shift;
        }
    }

    /// `source_load` of another group's CPU, `target_load` of one's own.
    fn biased_load(&self, c: usize, index: usize, own: bool) -> u64 {
        let load = self.runnable_load(c);
        let Some(past) = index.checked_sub(1).map(|index| self.load_history[c].loads[index]) else {
            return load;
        };
        if own { load.max(past) } else { load.min(past) }
    }

    /// `update_sg_lb_stats`.
    fn loads(&self, group: GroupId, cpus: &CpuSet, (index, own): (usize, bool), pct: u64) -> Loads {
        let tree = self.setup.tree;
        let record = tree.group(group);
        let (mut load, mut runnable, mut util, mut nr, mut idle, mut capacity) = (0, 0, 0, 0, 0, 0);
        for cpu in tree.span(record.span).iter() {
            let c = cpu.index();
            capacity += u64::from(tree.capacity[c]);
            if cpus.contains(cpu) {
                load += self.biased_load(c, index, own);
                runnable += self.runnable_load(c);
                util += self.cpu_util(c);
                nr += self.cpus[c].nr_running;
                idle += u32::from(self.cpus[c].nr_running == 0 && self.idle.contains(cpu));
            }
        }
        let mut loads = Loads {
            group,
            kind: GroupKind::HasSpare,
            load,
            avg_load: load * 1024 / u64::max(capacity, 1),
            per_task: if nr == 0 { 0 } else { runnable / u64::from(nr) },
            util,
            nr,
            idle,
            capacity,
            weight: record.weight,
            full: false,
        };
        loads.full = loads.is_overloaded(pct);
        if loads.full {
            loads.kind = GroupKind::Overloaded;
        } else if self.imbalanced[record.capacity_id as usize] {
            loads.kind = GroupKind::Imbalanced;
        }
        loads
    }

    /// `find_busiest_group` and `find_busiest_queue`.
    pub(crate) fn find_work_by_load(
        &mut self,
        c: usize,
        dst: usize,
        id: DomainId,
        idle: Idle,
        cpus: &CpuSet,
    ) -> Option<Attempt> {
        let tree = self.setup.tree;
        let domain = tree.domain(id);
        let pct = u64::from(domain.imbalance_pct);
        let index = load_index(domain, idle);
        let prefer_sibling = domain.child.is_some_and(|child| tree.domain(child).flags.has(Flags::PREFER_SIBLING));
        let (mut local, mut busiest): (Option<Loads>, Option<Loads>) = (None, None);
        let (mut total_load, mut total_capacity, mut overload) = (0, 0, false);
        // The local group is the first.
        for group in tree.groups_of(id) {
            let span = tree.span(tree.group(group).span);
            let own = span.contains(CpuId::from(c));
            let mut loads = self.loads(group, cpus, (index, own), pct);
            total_load += loads.load;
            total_capacity += loads.capacity;
            overload |= span.iter().any(|cpu| self.cpus[cpu.index()].nr_running > 1);
            if own {
                local = Some(loads);
                continue;
            }
            let spreads = local.is_some_and(|local| local.has_capacity(pct) && loads.nr > local.nr + 1);
            if prefer_sibling && spreads {
                (loads.full, loads.kind) = (true, GroupKind::Overloaded);
            }
            let most = busiest.map_or((GroupKind::HasSpare, 0), |best| (best.kind, best.avg_load));
            if (loads.kind, loads.avg_load) > most {
                busiest = Some(loads);
            }
        }
        if domain.parent.is_none() {
            self.overloaded = overload;
        }
        let (local, busiest) = (local?, busiest.filter(|busiest| busiest.nr > 0)?);
        let average = total_load * 1024 / u64::max(total_capacity, 1);
        if !load_is_worth_it(&local, &busiest, average, pct, idle) {
            return None;
        }
        let amount = self.load_to_move(local, busiest, average, dst);
        if amount == 0 {
            return None;
        }
        let imbalance = Imbalance::Load(amount);
        let src = self.heaviest_queue(busiest.group, amount, cpus, dst)?;
        Some(Attempt::new(id, idle, (src, dst), imbalance, cpus))
    }

    /// `calculate_imbalance`.
    fn load_to_move(&self, local: Loads, mut busiest: Loads, average: u64, dst: usize) -> u64 {
        if busiest.kind == GroupKind::Imbalanced {
            busiest.per_task = busiest.per_task.min(average);
        }
        if busiest.avg_load <= average || local.avg_load >= average {
            return self.small_load_to_move(local, busiest, 0, dst);
        }
        let mut pull = busiest.avg_load - average;
        if (local.kind, busiest.kind) == (GroupKind::Overloaded, GroupKind::Overloaded) {
            // No CPU there is to become idle.
            let above = (u64::from(busiest.nr) * 1024).saturating_sub(busiest.capacity);
            if above > 0 {
                pull = pull.min(above * NICE_0 / busiest.capacity.max(1));
            }
        }
        let amount = (pull * busiest.capacity).min((average - local.avg_load) * local.capacity) / 1024;
        if amount < busiest.per_task { self.small_load_to_move(local, busiest, amount, dst) } else { amount }
    }

    /// `fix_small_imbalance`: one task, if that makes more of the CPUs.
    fn small_load_to_move(&self, mut local: Loads, busiest: Loads, amount: u64, dst: usize) -> u64 {
        let mut tasks = 2;
        if local.nr == 0 {
            local.per_task = self.runnable_load(dst) / u64::from(self.cpus[dst].nr_running.max(1));
        } else if busiest.per_task > local.per_task {
            tasks = 1;
        }
        let scaled = busiest.per_task * 1024 / busiest.capacity.max(1);
        if busiest.avg_load + scaled >= local.avg_load + scaled * tasks {
            return busiest.per_task;
        }
        let used = |loads: &Loads, load: u64| loads.capacity * loads.per_task.min(load);
        let now = (used(&busiest, busiest.avg_load) + used(&local, local.avg_load)) / 1024;
        let left = if busiest.avg_load > scaled { used(&busiest, busiest.avg_load - scaled) } else { 0 };
        let moved = (busiest.avg_load * busiest.capacity).min(busiest.per_task * 1024) / local.capacity.max(1);
        let then = (left + used(&local, local.avg_load + moved)) / 1024;
        if then > now { busiest.per_task } else { amount }
    }

    /// `find_busiest_queue`.
    fn heaviest_queue(&self, group: GroupId, amount: u64, cpus: &CpuSet, dst: usize) -> Option<usize> {
        let tree = self.setup.tree;
        let mut heaviest: Option<(u64, usize)> = None;
        for cpu in tree.span(tree.group(group).span).iter().filter(|&cpu| cpus.contains(cpu)) {
            let c = cpu.index();
            let load = self.runnable_load(c);
            let alone = self.cpus[c].nr_running == 1 && load > amount;
            if c != dst && !alone && load > heaviest.map_or(0, |(most, _)| most) {
                heaviest = Some((load, c));
            }
        }
        heaviest.map(|(_, c)| c)
    }

    /// `find_idlest_group` for a task that forks or execs on `this`: `None` to stay in the local group.
    pub(crate) fn idlest_group_by_load(
        &self,
        id: DomainId,
        affinity: &CpuSet,
        (task, without): (usize, bool),
    ) -> Option<GroupId> {
        let tree = self.setup.tree;
        let domain = tree.domain(id);
        let pct = u64::from(domain.imbalance_pct);
        let (scale, margin) = (100 + (pct - 100) / 2, 1024 * (pct - 100) / 100);
        // Runnable load, average load, greatest spare capacity of the local group and the best of the others.
        let mut own = (u64::MAX, u64::MAX, 0);
        let mut best = (u64::MAX, u64::MAX, None);
        let mut spare: (u64, Option<GroupId>) = (0, None);
        for group in tree.groups_of(id) {
            let span = tree.span(tree.group(group).span);
            if !span.intersects(affinity) {
                continue;
            }
            let (runnable, average, most) = self.idleness(span, without.then_some(task));
            if span.contains(domain.cpu) {
                own = (runnable, average, most);
                continue;
            }
            if best.0 > runnable.saturating_add(margin) {
                best = (runnable, average, Some(group));
            } else if runnable < best.0.saturating_add(margin) && best.1.saturating_mul(100) > scale * average {
                (best.1, best.2) = (average, Some(group));
            }
            if most > spare.0 {
                spare = (most, Some(group));
            }
        }
        if without {
            let needed = self.tasks[task].pelt.util_avg / 2;
            if own.2 > needed && scale * own.2 > 100 * spare.0 {
                return None;
            }
            if spare.0 > needed {
                return spare.1;
            }
        }
        let idlest = best.2?;
        let stay = (domain.flags.has(Flags::NUMA) && best.0 + margin >= own.0)
            || best.0 > own.0.saturating_add(margin)
            || (own.0 < best.0 + margin && own.1.saturating_mul(100) < scale * best.1);
        (!stay).then_some(idlest)
    }

    /// Runnable and average load per capacity of some CPUs, and the greatest capacity that one of them has to spare, a task left out.
    fn idleness(&self, span: &CpuSet, without: Option<usize>) -> (u64, u64, u64) {
        let tree = self.setup.tree;
        let (mut runnable, mut average, mut capacity, mut most) = (0, 0, 0, 0);
        for c in span.iter().map(CpuId::index) {
            let own = u64::from(tree.capacity[c]);
            capacity += own;
            runnable += self.runnable_load(c);
            average += self.cpus[c].pelt.load_avg;
            let here = without.map(|t| &self.tasks[t]).filter(|task| task.cpu as usize == c);
            let util = self.cpu_util(c).saturating_sub(here.map_or(0, |task| task.pelt.util_avg));
            most = u64::max(most, own.saturating_sub(util));
        }
        (runnable * 1024 / u64::max(capacity, 1), average * 1024 / u64::max(capacity, 1), most)
    }
}

/// The decisions of `find_busiest_group`.
fn load_is_worth_it(local: &Loads, busiest: &Loads, average: u64, pct: u64, idle: Idle) -> bool {
    if busiest.kind == GroupKind::Imbalanced {
        return true;
    }
    if idle != Idle::Busy && local.has_capacity(pct) && busiest.full {
        return true;
    }
    if local.avg_load >= busiest.avg_load || local.avg_load >= average {
        return false;
    }
    match idle {
        Idle::Tickless => busiest.kind == GroupKind::Overloaded || local.idle > busiest.idle + 1,
        Idle::Busy | Idle::Newly => 100 * busiest.avg_load > pct * local.avg_load,
    }
}

impl crate::state::Cpu {
    /// The load of the queued tasks and the running one.
    pub(crate) fn runnable_load(&self, tasks: &[crate::state::Task]) -> u64 {
        let running = (self.curr != NONE).then_some(self.curr);
        self.queue.iter().map(|&(_, t)| t).chain(running).map(|t| tasks[t as usize].pelt.load_avg).sum()
    }
}

#[cfg(test)]
mod tests {
    use huddle_domains::Kernel;
    use huddle_machine::Machine;

    use super::*;
    use crate::Unobserved;
    use crate::state::Run;
    use crate::testing::still;

    /// A machine under 4.17, tasks 1 to 3 asleep on CPU 4.
    fn quiet(machine: &str, test: impl FnOnce(&mut Sim<Unobserved>)) {
        let machine = Machine::load(machine).unwrap();
        still((&machine, "linux-5.9"), (3, 4), |record| *record = Kernel::load("4.17").unwrap(), test);
    }

    /// Queues a task of full load on a CPU.
    fn load(sim: &mut Sim<Unobserved>, t: usize, c: usize) {
        sim.tasks[t].cpu = c as u32;
        sim.tasks[t].run = Run::Waking;
        sim.activate(t, c, true);
        sim.tasks[t].pelt.load_avg = 1024;
    }

    fn top(sim: &Sim<Unobserved>, c: u32) -> DomainId {
        sim.setup.tree.chain(CpuId(c)).last().unwrap()
    }

    /// What CPU 8 finds to pull.
    fn found(sim: &mut Sim<Unobserved>, idle: Idle) -> Option<(usize, u64)> {
        let (id, cpus) = (top(sim, 8), sim.setup.tree.online.clone());
        let attempt = sim.find_work_by_load(8, 8, id, idle, &cpus)?;
        let Imbalance::Load(amount) = attempt.imbalance else { panic!("{:?}", attempt.imbalance) };
        Some((attempt.src, amount))
    }

    #[test]
    fn jacobsville_an_idle_cpu_takes_one_of_two_busy_tasks_and_not_the_only_one() {
        quiet("jacobsville", |sim| {
            load(sim, 1, 4);
            sim.cpus[4].pelt.util_avg = 1024;
            // As idle as the busy CPU but for one.
            assert_eq!(found(sim, Idle::Tickless), None);
            load(sim, 2, 4);
            // 2048 against 0, 85 on average: 85 would even that out, which is less than a task.
            assert_eq!(found(sim, Idle::Tickless), Some((4, 1024)));
        });
    }

    #[test]
    fn jacobsville_two_tasks_that_use_little_are_left_to_a_cpu_that_is_about_to_idle() {
        quiet("jacobsville", |sim| {
            load(sim, 1, 4);
            load(sim, 2, 4);
            assert_eq!(found(sim, Idle::Tickless), None);
            assert_eq!(found(sim, Idle::Newly), Some((4, 1024)));
        });
    }

    #[test]
    fn jacobsville_a_busy_cpu_believes_in_load_that_has_lasted_two_ticks() {
        quiet("jacobsville", |sim| {
            load(sim, 3, 8);
            sim.tasks[3].pelt.load_avg = 50;
            load(sim, 1, 4);
            load(sim, 2, 4);
            // The history of CPU 4 is empty: no load at all.
            assert_eq!(found(sim, Idle::Busy), None);
            for (tick, averages) in [(1, [2048, 1024, 512]), (2, [2048, 1536, 896]), (3, [2048, 1792, 1184])] {
                sim.now = tick * sim.tuning.jiffy;
                sim.note_load(4);
                assert_eq!(sim.load_history[4].loads, averages, "tick {tick}");
            }
            // 1792 against 50 with 76 on average: 26 would even that out, which is less than a task.
            assert_eq!(found(sim, Idle::Busy), Some((4, 1024)));
        });
    }

    #[test]
    fn load_is_forgotten_in_ticks_that_did_not_come() {
        quiet("jacobsville", |sim| {
            sim.load_history[4].loads = [1024; 3];
            sim.now = 3 * sim.tuning.jiffy;
            sim.note_load(4);
            // Two ticks missed and one without load: an eighth, and 27/64.
            assert_eq!(sim.load_history[4].loads, [0, 128, 432]);
        });
    }

    #[test]
    fn xeon_a_fork_leaves_its_package_at_a_quarter_of_its_load() {
        quiet("xeon-2s44c88t", |sim| {
            let everywhere = sim.setup.tree.online.clone();
            load(sim, 1, 0);
            // The first task is on the other package, 1024 over 44 CPUs: 23. The margin at 125 percent is 256, together 279;
            // 12 × 1024 over 44 CPUs are 279, 13 are 302.
            for (tasks, leaves) in [(1, false), (12, false), (13, true)] {
                sim.tasks[1].pelt.load_avg = tasks * 1024;
                let group = sim.idlest_group_by_load(top(sim, 0), &everywhere, (2, false));
                assert_eq!(group.is_some(), leaves, "{tasks}");
            }
        });
    }

    #[test]
    fn the_load_of_a_cpu_is_that_of_its_runnable_tasks() {
        quiet("jacobsville", |sim| {
            load(sim, 1, 4);
            load(sim, 2, 4);
            sim.cpus[4].pelt.load_avg = 5000;
            assert_eq!((sim.runnable_load(4), sim.runnable_load(5)), (2048, 0));
            sim.schedule(4, 0);
            assert_eq!(sim.runnable_load(4), 2048);
        });
    }
}
