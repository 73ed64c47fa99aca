//! Sched domains replaced while tasks run: what a write to the cluster switch of "Make Cluster Scheduling Configurable" does
//! (Tim Chen, posted December 2021 for x86: boot parameter and sysctl `sched_cluster`), or any other call of
//! `rebuild_sched_domains`.
//!
//! `partition_sched_domains_locked` (`kernel/sched/topology.c`, 5.9 to 6.12) detaches every domain and builds anew: no domain,
//! group or LLC object keeps what balancing has learned. Queues, tasks, averages and the CPUs' own balancing dates stay.

use huddle_program::Op;

use crate::report::SimError;
use crate::sim::Sim;
use crate::state::{DomainState, LlcState};
use crate::{Observer, Rebuild, Setup};

/// Whether the domains can be replaced as asked: under sched_ext nothing reads them, and a policy must stay the same.
pub(crate) fn check(setup: &Setup, dsq: bool) -> Result<(), SimError> {
    let Some(rebuild) = &setup.conditions.rebuild else {
        return Ok(());
    };
    let refused = |what| Err(SimError::NotSimulated { kernel: setup.kernel.name.clone(), what });
    if dsq {
        return refused("a rebuild of the sched domains under a scheduler that does not read them");
    }
    if rebuild.plan.nr_steps() != setup.plan.nr_steps() || rebuild.tree.online != setup.tree.online {
        return refused("a rebuild of the sched domains that changes the policy or the CPUs");
    }
    Ok(())
}

/// Whether the program says where its measured stretch begins.
pub(crate) fn says_start(setup: &Setup) -> bool {
    setup.program.scripts.iter().any(|script| script.ops.contains(&Op::Start))
}

impl<O: Observer> Sim<'_, O> {
    /// Sets the date of the rebuild, if one is asked for, counted from now.
    pub(crate) fn await_rebuild(&mut self) {
        if let Some(Rebuild { after_ns, .. }) = self.setup.conditions.rebuild {
            let slot = self.rebuild_slot();
            self.heap.set(slot, (self.now.saturating_add(after_ns)).max(1));
        }
    }

    /// The domains change.
    pub(crate) fn rebuild_domains(&mut self) {
        let Some(Rebuild { tree, plan, .. }) = self.setup.conditions.rebuild.take() else {
            return;
        };
        (self.setup.tree, self.setup.plan) = (tree, plan);
        let jiffies = self.jiffies();
        // `sd_init`: due one interval from now, which is the least; nothing failed, no cost known.
        let fresh = |domain: &huddle_domains::Domain| DomainState {
            balance_interval: domain.min_interval,
            last_balance: jiffies,
            decayed: self.now,
            ..DomainState::default()
        };
        self.domains = tree.domains.iter().map(fresh).collect();
        self.imbalanced = vec![false; tree.nr_capacities];
        // A root domain of its own: nobody has seen a queue of two yet.
        self.overloaded = false;
        // `sd_init` counts every CPU of an LLC busy. One whose tick is stopped stays counted so until it has been busy at a tick
        // and idles again (`sd->nohz_idle` begins anew, `rq->nohz_tick_stopped` does not).
        self.llcs = vec![LlcState::default(); tree.nr_llcs];
        for cpu in tree.online.iter() {
            let cached = &tree.cached[cpu.index()];
            self.llcs[cached.llc_index as usize].nr_busy = cached.sd_llc_size as i32;
            self.cpus[cpu.index()].counted_idle = false;
        }
        self.scratch = plan.scratch();
        self.rebuilt = Some(self.now);
        self.observer.rebuilt(self.now, tree);
    }
}

#[cfg(test)]
mod tests {
    use huddle_machine::{CpuId, Machine};

    use crate::Rebuild;
    use crate::testing::still;

    #[test]
    fn kunpeng_a_rebuild_forgets_what_balancing_learned_and_counts_idle_cpus_busy_until_they_idle_anew() {
        let machine = Machine::load("kunpeng920:nodes=1").unwrap();
        still(
            (&machine, "linux-6.7"),
            (0, 0),
            |_| (),
            |sim| {
                let (tree, plan) = (sim.setup.tree, sim.setup.plan);
                let llc = tree.cached[0].llc_index as usize;
                // CPU 1 has been busy at a tick, the others idle: one of 24 is busy.
                sim.busy_again(1);
                assert_eq!(sim.llcs[llc].nr_busy, 1);
                (sim.overloaded, sim.llcs[llc].nr_idle_scan) = (true, 20);
                for domain in &mut sim.domains {
                    (domain.balance_interval, domain.nr_balance_failed, domain.max_newidle_lb_cost) = (48, 3, 9_000);
                }
                sim.imbalanced.fill(true);
                let base = tree.base[0].unwrap().0 as usize;
                sim.now = 70_000_000;
                sim.setup.conditions.rebuild = Some(Rebuild { after_ns: 0, tree, plan });
                sim.rebuild_domains();
                // The cluster of four: due 4 ms from now.
                let domain = &sim.domains[base];
                assert_eq!((domain.balance_interval, domain.last_balance), (4, sim.jiffies()));
                assert_eq!((domain.nr_balance_failed, domain.max_newidle_lb_cost), (0, 0));
                assert!(!sim.overloaded && !sim.imbalanced.contains(&true));
                assert_eq!((sim.llcs[llc].nr_busy, sim.llcs[llc].nr_idle_scan), (24, 0));
                // CPU 2's tick was stopped before: its first busy tick counts nothing, the idling after that does.
                sim.busy_again(2);
                assert_eq!(sim.llcs[llc].nr_busy, 24);
                sim.enter_idle(2);
                assert_eq!(sim.llcs[llc].nr_busy, 23);
                sim.enter_idle(1);
                assert_eq!((sim.llcs[llc].nr_busy, sim.rebuilt), (22, Some(70_000_000)));
                assert!(sim.nohz.contains(CpuId(1)));
                // Asked for once, done once.
                sim.rebuild_domains();
                assert_eq!(sim.llcs[llc].nr_busy, 22);
            },
        );
    }
}
