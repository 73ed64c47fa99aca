//! Statistics of sched groups and the slow path that fork and exec take (spec 4 and 5.3; `find_idlest_group`,
//! `group_classify`, `kernel/sched/fair.c` 5.9 … 6.11).

use huddle_domains::{Domain, DomainId, Flags, GroupId, NumaImbalance, SpanId};
use huddle_machine::{CpuId, CpuSet};

use crate::Observer;
use crate::pelt::Pelt;
use crate::report::Cause;
use crate::sim::Sim;
use crate::state::{NONE, Run};

/// What a group is, mildest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum GroupKind {
    HasSpare,
    FullyBusy,
    /// Several tasks on the threads of a core (6.6 on; only for an idle CPU that balances).
    SmtBalance,
    Imbalanced,
    /// Tasks prefer the LLC of the CPU that balances (7.2).
    Drawn,
    Overloaded,
}

/// A group's sums.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupStats {
    pub group: GroupId,
    pub kind: GroupKind,
    pub load: u64,
    pub util: u64,
    pub runnable: u64,
    pub nr: u32,
    /// Of those, runnable (`sum_h_nr_running`): without tasks whose dequeue is delayed.
    pub runnable_nr: u32,
    pub idle: u32,
    pub capacity: u64,
    pub weight: u32,
    /// Load per capacity; 0 unless asked for or overloaded.
    pub avg_load: u64,
}

impl GroupStats {
    pub fn average(&self) -> u64 {
        self.load * 1024 / self.capacity.max(1)
    }

    fn is_overloaded(&self, pct: u64) -> bool {
        self.nr > self.weight && (100 * self.capacity < self.util * pct || self.capacity * pct < 100 * self.runnable)
    }

    fn has_capacity(&self, pct: u64) -> bool {
        self.nr < self.weight || (self.capacity * pct >= 100 * self.runnable && 100 * self.capacity > self.util * pct)
    }
}

impl<O: Observer> Sim<'_, O> {
    /// Sums over the group's CPUs among `cpus`; `without` is a task to leave out (exec). Averages are read as they
    /// stand, but for those of idle CPUs, which nobody else brings up to date, when `refresh` is set.
    pub(crate) fn group_stats(
        &mut self,
        group: GroupId,
        cpus: Option<&CpuSet>,
        pct: u64,
        without: Option<usize>,
        refresh: bool,
    ) -> GroupStats {
        let tree = self.setup.tree;
        let record = tree.group(group);
        let mut stats = GroupStats {
            group,
            kind: GroupKind::HasSpare,
            load: 0,
            util: 0,
            runnable: 0,
            nr: 0,
            runnable_nr: 0,
            idle: 0,
            capacity: 0,
            weight: record.weight,
            avg_load: 0,
        };
        for cpu in tree.span(record.span).iter() {
            let c = cpu.index();
            stats.capacity += u64::from(tree.capacity[c]);
            if cpus.is_some_and(|cpus| !cpus.contains(cpu)) {
                continue;
            }
            if refresh && self.cpus[c].nr_running == 0 {
                self.update_queue(c);
            }
            let state = &self.cpus[c];
            let mut nr = state.nr_running;
            let (mut load, mut util, mut runnable) = (self.cpu_load(c), self.cpu_util(c), state.pelt.runnable_avg);
            if let Some(task) = without.map(|t| &self.tasks[t]).filter(|task| task.cpu as usize == c) {
                nr -= u32::from(matches!(task.run, Run::Queued | Run::Running));
                load = load.saturating_sub(self.autogroup.task_load(task, state));
                util = util.saturating_sub(task.pelt.util_avg);
                runnable = runnable.saturating_sub(task.pelt.runnable_avg);
            }
            stats.load += load;
            stats.util += util;
            stats.runnable += runnable;
            stats.nr += nr;
            stats.runnable_nr += nr - state.nr_delayed.min(nr);
            let idle = nr == 0 && (self.idle.contains(cpu) || without.is_some_and(|t| state.curr == t as u32));
            stats.idle += u32::from(idle);
        }
        stats.kind = if stats.is_overloaded(pct) {
            GroupKind::Overloaded
        } else if self.imbalanced[record.capacity_id as usize] {
            GroupKind::Imbalanced
        } else if !stats.has_capacity(pct) {
            GroupKind::FullyBusy
        } else {
            GroupKind::HasSpare
        };
        if stats.kind == GroupKind::Overloaded {
            stats.avg_load = stats.average();
        }
        stats
    }

    // ---- fork and exec ---------------------------------------------------------------------------------------------------

    /// `wake_up_new_task`: the child of the task on `c` gets a CPU and joins its queue.
    pub(crate) fn fork(&mut self, c: usize, parent: usize, child: usize) {
        if self.tuning.dsq {
            return self.fork_under_scheduler(c, child);
        }
        self.tasks[child].cpu = c as u32;
        self.tasks[child].recent = c as u32;
        self.tasks[child].run = Run::Waking;
        self.place_child(c, parent, child);
        let cpu = self.slow_path(child, c, Flags::BALANCE_FORK);
        let weight = self.tasks[child].weight;
        self.update_queue(cpu);
        self.tasks[child].pelt = Pelt::new_task(self.now, weight, &self.cpus[cpu].pelt);
        self.cpus[cpu].pelt.attach(&mut self.tasks[child].pelt, weight);
        if cpu != c {
            self.update_curr(cpu);
            let shift = self.cpus[cpu].min_vruntime.wrapping_sub(self.cpus[c].min_vruntime);
            let distance = self.dist(c, cpu);
            self.tasks[child].vruntime = self.tasks[child].vruntime.wrapping_add(shift);
            self.tasks[child].cpu = cpu as u32;
            self.counts.migrations[Cause::Fork as usize][distance] += 1;
            self.observer.migrate(self.now, child as u32, c, cpu, Cause::Fork);
        }
        self.cache.spawned(parent, child);
        self.activate(child, cpu, false);
        if self.tuning.fork_preempts || self.cpus[cpu].curr == NONE {
            self.wakeup_preempt(cpu, child, c);
        }
    }

    /// `sched_exec`: the running task may move, its caches being worthless now. True when it has left the CPU.
    pub(crate) fn exec(&mut self, c: usize, t: usize) -> bool {
        if self.tuning.dsq {
            return self.exec_under_scheduler(c, t);
        }
        let cpu = self.slow_path(t, c, Flags::BALANCE_EXEC);
        if cpu == c || self.cpus[c].push_to != NONE {
            return false;
        }
        self.cpus[c].push_to = cpu as u32;
        self.cpus[c].push_task = t as u32;
        self.schedule(c, 0);
        true
    }

    /// `find_idlest_cpu`: descends from the highest domain with the flag, each time into the idlest group.
    pub(crate) fn slow_path(&mut self, p: usize, this: usize, flag: Flags) -> usize {
        let tree = self.setup.tree;
        let highest = |cpu: usize, below: u32| {
            let mut found = None;
            for id in tree.chain(CpuId::from(cpu)) {
                let domain = tree.domain(id);
                if below != 0 && domain.weight >= below {
                    break;
                }
                if domain.flags.has(flag) {
                    found = Some(id);
                } else if below == 0 {
                    break;
                }
            }
            found
        };
        let prev = self.tasks[p].cpu as usize;
        let affinity = self.affinities[self.tasks[p].affinity as usize].clone();
        let without = (flag == Flags::BALANCE_EXEC).then_some(p);
        let mut domain = highest(this, 0);
        if let Some(id) = domain
            && !tree.span(tree.domain(id).span).intersects(&affinity)
        {
            return self.allowed_cpu(prev, &affinity);
        }
        let (mut cpu, mut new) = (this, this);
        while let Some(id) = domain {
            let record = tree.domain(id);
            let idlest = match record.flags.has(flag) {
                true => self.idlest_group(p, id, &affinity, without),
                false => None,
            };
            let Some(group) = idlest else {
                domain = record.child;
                continue;
            };
            new = self.idlest_cpu_in(group, &affinity, cpu);
            if new == cpu {
                domain = record.child;
                continue;
            }
            cpu = new;
            domain = highest(cpu, record.weight);
        }
        self.allowed_cpu(new, &affinity)
    }

    /// The CPU if the task may run there, else one of its node, else any (`select_fallback_rq`).
    fn allowed_cpu(&self, cpu: usize, affinity: &CpuSet) -> usize {
        if affinity.contains(CpuId::from(cpu)) {
            return cpu;
        }
        let node = self.setup.machine.topology.node.set_of(CpuId::from(cpu));
        let near = affinity.iter().find(|&other| node.contains(other));
        near.or_else(|| affinity.first()).map_or(cpu, CpuId::index)
    }

    /// `find_idlest_group` of 5.5 on: `None` to stay in the local group.
    fn idlest_group(&mut self, p: usize, id: DomainId, affinity: &CpuSet, without: Option<usize>) -> Option<GroupId> {
        if self.tuning.by_load {
            return self.idlest_group_by_load(id, affinity, (p, without.is_some()));
        }
        let tree = self.setup.tree;
        let domain = tree.domain(id);
        let pct = u64::from(domain.imbalance_pct);
        let numa = domain.flags.has(Flags::NUMA);
        let this = domain.cpu;
        let mut local: Option<GroupStats> = None;
        let mut idlest: Option<GroupStats> = None;
        for group in tree.groups_of(id) {
            let span = tree.span(tree.group(group).span);
            if !span.intersects(affinity) {
                continue;
            }
            let mut stats = self.group_stats(group, Some(affinity), pct, without, false);
            if stats.kind == GroupKind::FullyBusy {
                stats.avg_load = stats.average();
            }
            if span.contains(this) {
                local = Some(stats);
                continue;
            }
            let better = match &idlest {
                None => true,
                Some(best) if stats.kind != best.kind => stats.kind < best.kind,
                Some(best) => match stats.kind {
                    GroupKind::Overloaded | GroupKind::FullyBusy => stats.avg_load < best.avg_load,
                    GroupKind::SmtBalance | GroupKind::Imbalanced | GroupKind::Drawn => false,
                    GroupKind::HasSpare => {
                        stats.idle > best.idle || (stats.idle == best.idle && stats.util < best.util)
                    }
                },
            };
            if better {
                idlest = Some(stats);
            }
        }
        let idlest = idlest?;
        let Some(local) = local else {
            return Some(idlest.group);
        };
        if local.kind != idlest.kind {
            return (local.kind > idlest.kind).then_some(idlest.group);
        }
        let stay = match local.kind {
            GroupKind::Overloaded | GroupKind::FullyBusy => {
                let margin = 1024 * (pct - 100) / 100;
                (numa && idlest.avg_load + margin >= local.avg_load)
                    || idlest.avg_load >= local.avg_load + margin
                    || 100 * local.avg_load <= pct * idlest.avg_load
            }
            GroupKind::SmtBalance | GroupKind::Imbalanced | GroupKind::Drawn => true,
            GroupKind::HasSpare => {
                (numa && self.numa_keeps(&local, &idlest, domain, affinity)) || local.idle >= idlest.idle
            }
        };
        (!stay).then_some(idlest.group)
    }

    /// Whether fork stays on its node although another has more idle CPUs.
    fn numa_keeps(&self, local: &GroupStats, idlest: &GroupStats, domain: &Domain, affinity: &CpuSet) -> bool {
        match self.setup.kernel.balance.numa {
            NumaImbalance::AnyIdle => local.idle > 0,
            NumaImbalance::Quarter => local.nr < domain.weight / 4,
            NumaImbalance::ImbNumaNr => {
                let imbalance = u64::from(local.idle.abs_diff(idlest.idle));
                let span = self.span(self.setup.tree.group(local.group).span);
                let usable = span.iter().filter(|&cpu| affinity.contains(cpu)).count() as u32;
                adjust_numa_imbalance(imbalance, local.nr + 1, domain.imb_numa_nr.min(usable)) == 0
            }
        }
    }

    /// `find_idlest_group_cpu`: the most recently idled CPU, else the least loaded.
    fn idlest_cpu_in(&mut self, group: GroupId, affinity: &CpuSet, this: usize) -> usize {
        let tree = self.setup.tree;
        let record = tree.group(group);
        let span = tree.span(record.span);
        if record.weight == 1 {
            return span.first().map_or(this, CpuId::index);
        }
        let (mut latest, mut idle) = (0, None);
        let (mut least, mut loaded) = (u64::MAX, this);
        for cpu in span.iter().filter(|&cpu| affinity.contains(cpu)) {
            let c = cpu.index();
            if self.idle.contains(cpu) {
                if self.cpus[c].idle_stamp > latest {
                    latest = self.cpus[c].idle_stamp;
                    idle = Some(c);
                }
            } else if idle.is_none() {
                let by_load = self.tuning.by_load;
                let load = if by_load { self.runnable_load(c) } else { self.cpu_load(c) };
                if load < least || (by_load && load == least && c == this) {
                    least = load;
                    loaded = c;
                }
            }
        }
        idle.unwrap_or(loaded)
    }

    pub(crate) fn span(&self, id: SpanId) -> &CpuSet {
        self.setup.tree.span(id)
    }
}

/// `adjust_numa_imbalance`, 5.18 on: a small imbalance is allowed while few tasks run.
pub(crate) fn adjust_numa_imbalance(imbalance: u64, running: u32, imb_numa_nr: u32) -> u64 {
    if running > imb_numa_nr {
        imbalance
    } else if imbalance <= 2 {
        0
    } else {
        imbalance
    }
}

#[cfg(test)]
mod tests {
    use huddle_machine::Machine;

    use super::*;
    use crate::testing::still;

    #[test]
    fn xeon_a_fork_leaves_a_package_that_has_fewer_cpus_for_it_than_imbalance_is_allowed() {
        // One of two CPUs idle here, three there: an imbalance of 2 is kept while at most `imb_numa_nr` tasks run, 2 with this one.
        let machine = Machine::load("xeon-2s44c88t").unwrap();
        still(
            (&machine, "linux-6.7"),
            (0, 0),
            |_| (),
            |sim| {
                let tree = sim.setup.tree;
                let id = tree.chain(CpuId(0)).last().unwrap();
                let domain = tree.domain(id);
                assert!(domain.flags.has(Flags::NUMA) && domain.imb_numa_nr >= 2, "{domain:?}");
                let groups: Vec<GroupId> = tree.groups_of(id).collect();
                let stats = |sim: &mut Sim<_>, group, nr, idle| GroupStats {
                    nr,
                    idle,
                    ..sim.group_stats(group, None, 125, None, false)
                };
                let (local, other) = (stats(sim, groups[0], 1, 1), stats(sim, groups[1], 0, 3));
                let few = |cpus: &[usize]| CpuSet::from_cpus(88, cpus.iter().copied());
                assert!(sim.numa_keeps(&local, &other, domain, &few(&[0, 2, 1, 3, 5])));
                assert!(!sim.numa_keeps(&local, &other, domain, &few(&[0, 1, 3, 5])));
            },
        );
    }
}
