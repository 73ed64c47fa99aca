//! Steps that claim: what they choose is out of everybody's sight before anybody else can choose it too.
//!
//! An idle CPU is claimed by a test-and-clear of its idle bit, as `kernel/sched/ext_idle.c` does (`scx_idle_test_and_clear_cpu`,
//! 6.12 on). Who loses looks on, a bounded number of times.

use huddle_machine::CpuId;

use crate::place::{Decision, Flow, allowed, bit};
use crate::plan::Mask;
use crate::scan::{cpu_at, through};
use crate::{Clusters, Event, Tracer, Undecidable, View, Within};

/// A step that has lost this many claims to others is left.
pub const LOST_CLAIMS: u32 = 8;

/// How busy a cluster is.
#[derive(Clone, Copy)]
struct ClusterBusy {
    mask: Mask,
    /// CPUs that are not idle.
    busy: u32,
    /// It has a CPU that may be claimed.
    candidate: bool,
}

impl ClusterBusy {
    /// A smaller part of its CPUs is busy.
    fn is_below(&self, other: &ClusterBusy) -> bool {
        u64::from(self.busy) * u64::from(other.mask.weight) < u64::from(other.busy) * u64::from(self.mask.weight)
    }
}

impl<V: View, T: Tracer> Decision<'_, V, T> {
    /// Claims prev where it is near enough to the target and, with `no_busier`, no other cluster of its LLC is less busy. Its place in
    /// the affinity is not asked for where the step may be `disallowed`.
    pub(crate) fn claim_prev(
        &mut self,
        within: Within,
        core: bool,
        no_busier: bool,
        disallowed: bool,
    ) -> Result<Flow, Undecidable> {
        let prev = self.prev;
        if core && !self.plan.smt_active {
            return Ok(self.skip("no SMT"));
        }
        if within != Within::All && !self.plan.contains(self.span(within, self.target), prev) {
            return Ok(self.skip("prev shares too little with the target"));
        }
        if !disallowed && !allowed(self.view, prev) {
            return Ok(self.skip("prev is outside the affinity"));
        }
        let good = bit(self.claimable(core, prev.index() / 64)?, prev);
        self.trace.event(Event::Tested { cpu: prev, good });
        if !good {
            return Ok(Flow::Continue);
        }
        if no_busier && self.is_busier_than_another(core)? {
            return Ok(self.skip("a cluster of prev's LLC is less busy"));
        }
        Ok(Flow::found(self.claim(prev)?.then_some(prev)))
    }

    /// Claims the first idle CPU of a set, in scan order from behind the target (of prev's cluster: from behind prev). A choice that
    /// rotates looks at prev's sets, from behind what this CPU's last one fell on (`cpumask_any_and_distribute`), and not in sets that
    /// say nothing there. DEVIATION: sched_ext's own gives up only when no CPU is left (docs/model.md 3.7).
    pub(crate) fn claim_any(
        &mut self,
        within: Within,
        core: bool,
        charge: bool,
        rotate: bool,
    ) -> Result<Flow, Undecidable> {
        if core && !self.plan.smt_active {
            return Ok(self.skip("no SMT"));
        }
        let anchor = match (rotate, within) {
            (true, Within::Llc) if !self.knows_llcs() => return Ok(self.skip("one LLC has all CPUs, or prev has none")),
            (true, Within::Node) if !self.plan.node_first => {
                return Ok(self.skip("there is one node, or nodes are the LLCs"));
            }
            (true, _) => self.view.last_rotated(self.this).ok_or(Undecidable("where the last rotating choice fell"))?,
            (false, Within::PrevCluster) => self.prev,
            (false, _) => self.target,
        };
        let (plan, span) = (self.plan, self.span(within, if rotate { self.prev } else { self.target }));
        let mut lost = 0;
        for (word, part) in plan.parts(span, anchor.0 + 1) {
            let mut rest = part & self.view.allowed_word(word);
            while rest != 0 {
                // A lost claim hides its CPU, and its core from whole ones: each look is a new one.
                let hits = rest & self.claimable(core, word)?;
                let walk = if hits == 0 { rest } else { rest & through(hits.trailing_zeros()) };
                if charge && let Some(end) = self.charge(walk) {
                    self.examine(word, walk & !(u64::MAX << end));
                    self.exhaust();
                    return Ok(Flow::LeaveScans);
                }
                self.examine(word, walk);
                rest &= !walk;
                if hits == 0 {
                    break;
                }
                let cpu = cpu_at(word, hits.trailing_zeros());
                if rotate {
                    self.view.set_last_rotated(self.this, cpu);
                }
                if self.claim(cpu)? {
                    return Ok(Flow::End(cpu));
                }
                lost += 1;
                if lost == LOST_CLAIMS {
                    return Ok(Flow::Continue);
                }
            }
        }
        Ok(Flow::Continue)
    }

    /// sched_ext's own choice looks in prev's LLC first: there are several, and prev has one.
    fn knows_llcs(&self) -> bool {
        self.plan.llc_first && self.plan.cpus[self.prev.index()].llc.is_some()
    }

    /// Claims the first idle thread of prev's core, ascending, but prev (`scx_select_cpu_dfl`, `kernel/sched/ext/idle.c`, 7.1 on).
    pub(crate) fn claim_smt(&mut self) -> Result<Flow, Undecidable> {
        if !self.plan.smt_active {
            return Ok(self.skip("no SMT"));
        }
        let (plan, prev) = (self.plan, self.prev);
        for (word, threads) in plan.words(plan.cpus[prev.index()].smt) {
            let own = if prev.index() / 64 == word { 1 << (prev.index() % 64) } else { 0 };
            let mut rest = threads & !own & self.view.allowed_word(word);
            while rest != 0 {
                let bit = rest & rest.wrapping_neg();
                rest &= !bit;
                self.examine(word, bit);
                if self.view.idle_word(word) & bit != 0 {
                    let cpu = cpu_at(word, bit.trailing_zeros());
                    if self.claim(cpu)? {
                        return Ok(Flow::End(cpu));
                    }
                }
            }
        }
        Ok(Flow::Continue)
    }

    /// Claims prev in a sync wake-up by a waker under the same LLC (`scx_select_cpu_dfl`, 6.13 on). DEVIATION: the kernel does so for a
    /// waker that exits, too (docs/model.md 3.7).
    pub(crate) fn sync_claim_prev(&mut self) -> Result<Flow, Undecidable> {
        if !self.sync {
            return Ok(self.skip("no sync wake-up"));
        }
        if !self.plan.share_llc(self.this, self.prev) {
            return Ok(self.skip("this CPU shares no LLC with prev"));
        }
        self.claim_prev(Within::All, false, false, false)
    }

    /// This CPU in a sync wake-up, while any CPU is idle and nobody waits in this CPU's own queue (`scx_select_cpu_dfl`, 6.12 on). It is
    /// not claimed: the waker runs there.
    pub(crate) fn sync_waker(&mut self) -> Result<Flow, Undecidable> {
        let this = self.this;
        if !self.sync {
            return Ok(self.skip("no sync wake-up"));
        }
        if !allowed(self.view, this) {
            return Ok(self.skip("this CPU is outside the affinity"));
        }
        if (0..self.plan.nr_words).all(|word| self.view.idle_word(word) == 0) {
            return Ok(self.skip("no CPU is idle"));
        }
        if self.view.nr_local(this).ok_or(Undecidable("tasks in this CPU's own queue"))? != 0 {
            return Ok(self.skip("a task waits in this CPU's own queue"));
        }
        Ok(Flow::End(this))
    }

    /// Claims a CPU of the least busy cluster that has an idle one; prev's cluster, and in it prev, before its equals.
    pub(crate) fn claim_idlest(&mut self, within: Within, core: bool) -> Result<Flow, Undecidable> {
        if core && !self.plan.smt_active {
            return Ok(self.skip("no SMT"));
        }
        let Some(idlest) = self.idlest(self.clusters(within), core)? else { return Ok(Flow::Continue) };
        self.tell(&idlest);
        let mut lost = 0;
        for (word, part) in self.plan.parts(idlest.mask, self.prev.0) {
            let mut rest = part & self.view.allowed_word(word);
            loop {
                let hits = rest & self.claimable(core, word)?;
                if hits == 0 {
                    break;
                }
                let cpu = cpu_at(word, hits.trailing_zeros());
                if self.claim(cpu)? {
                    return Ok(Flow::End(cpu));
                }
                lost += 1;
                if lost == LOST_CLAIMS {
                    return Ok(Flow::Continue);
                }
                rest &= !through(hits.trailing_zeros());
            }
        }
        Ok(Flow::Continue)
    }

    /// A waker that is about to sleep and alone here makes room for the wakee.
    pub(crate) fn sync_stack(&mut self) -> Result<Flow, Undecidable> {
        let this = self.this;
        if self.target != this {
            return Ok(self.skip("this CPU is not the target"));
        }
        if !self.sync {
            return Ok(self.skip("no sync wake-up"));
        }
        if !allowed(self.view, this) {
            return Ok(self.skip("this CPU is outside the affinity"));
        }
        if self.view.nr_running(this).ok_or(Undecidable("nr_running of this CPU"))? != 1 {
            return Ok(self.skip("the waker is not alone on this CPU"));
        }
        if !self.view.waker_keeps_sync().ok_or(Undecidable("whether the waker sleeps after its sync wake-ups"))? {
            return Ok(self.skip("the waker does not sleep soon after its sync wake-ups"));
        }
        Ok(Flow::End(this))
    }

    /// The CPUs among which a claim looks, seen from a CPU.
    fn span(&self, within: Within, from: CpuId) -> Mask {
        let sets = &self.plan.cpus[from.index()].claim;
        match within {
            Within::Cluster => sets.cluster,
            Within::PrevCluster => self.plan.cpus[self.prev.index()].claim.cluster,
            Within::Llc => sets.llc,
            Within::Node => sets.node,
            Within::All => self.plan.online,
        }
    }

    /// The clusters among which the idlest is sought.
    fn clusters(&self, within: Within) -> Clusters {
        let prev = &self.plan.cpus[self.prev.index()].claim;
        match within {
            Within::Cluster | Within::PrevCluster => Clusters { from: prev.index, len: 1 },
            Within::Llc => prev.llc_clusters,
            Within::Node => prev.node_clusters,
            Within::All => self.plan.online_clusters,
        }
    }

    /// CPUs of a word that are idle, `core`: on cores that are idle as a whole.
    #[inline]
    fn claimable(&self, core: bool, word: usize) -> Result<u64, Undecidable> {
        let idle = self.view.idle_word(word);
        match core {
            false => Ok(idle),
            true => Ok(idle & self.view.idle_core_word(word).ok_or(Undecidable("which cores are idle as a whole"))?),
        }
    }

    /// Takes an idle CPU, if nobody was faster.
    fn claim(&mut self, cpu: CpuId) -> Result<bool, Undecidable> {
        let won = self.view.claim(cpu).ok_or(Undecidable("whether an idle CPU is claimed"))?;
        self.trace.event(Event::Claimed { cpu, won });
        Ok(won)
    }

    fn cluster_busy(&self, index: u32, core: bool) -> Result<ClusterBusy, Undecidable> {
        let mask = self.plan.clusters[index as usize];
        let mut cluster = ClusterBusy { mask, busy: 0, candidate: false };
        for (word, bits) in self.plan.words(mask) {
            cluster.busy += (bits & !self.view.idle_word(word)).count_ones();
            cluster.candidate |= bits & self.view.allowed_word(word) & self.claimable(core, word)? != 0;
        }
        Ok(cluster)
    }

    /// Whether another cluster of prev's LLC that has a CPU to claim is less busy than prev's.
    fn is_busier_than_another(&mut self, core: bool) -> Result<bool, Undecidable> {
        let prev = &self.plan.cpus[self.prev.index()].claim;
        let own = self.cluster_busy(prev.index, core)?;
        let Clusters { from, len } = prev.llc_clusters;
        for cluster in (from..from + len).filter(|&cluster| cluster != prev.index) {
            let other = self.cluster_busy(cluster, core)?;
            if other.candidate && other.is_below(&own) {
                self.tell(&other);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The least busy cluster of a run that has a CPU to claim. Of equals the first, counted from prev's cluster with wrap; from the
    /// run's beginning where that is outside it.
    fn idlest(&self, Clusters { from, len }: Clusters, core: bool) -> Result<Option<ClusterBusy>, Undecidable> {
        let (end, prev) = (from + len, self.plan.cpus[self.prev.index()].claim.index);
        let turn = if (from..end).contains(&prev) { prev } else { from };
        let mut idlest: Option<ClusterBusy> = None;
        for cluster in (turn..end).chain(from..turn) {
            let cluster = self.cluster_busy(cluster, core)?;
            if cluster.candidate && idlest.is_none_or(|least| cluster.is_below(&least)) {
                idlest = Some(cluster);
            }
        }
        Ok(idlest)
    }

    fn tell(&mut self, cluster: &ClusterBusy) {
        if let Some((word, bits)) = self.plan.words(cluster.mask).next() {
            let first = cpu_at(word, bits.trailing_zeros());
            self.trace.event(Event::Cluster { first, busy: cluster.busy, size: cluster.mask.weight });
        }
    }
}
