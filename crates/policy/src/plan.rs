//! A policy compiled for one machine's domains: all that a decision looks up, as words.

use std::collections::BTreeMap;

use huddle_domains::{DomainTree, Flags};
use huddle_machine::{CpuId, CpuSet, NO_SET, Partition, Topology};

use crate::{Clusters, Entry, Policy, Step, clusters};

/// A policy for one machine and kernel generation.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) entry: Entry,
    pub(crate) steps: Box<[Step]>,
    /// What places a forked task, where the record says so.
    pub(crate) fork: Option<Box<[Step]>>,
    pub(crate) after_scans: usize,
    pub(crate) walk_disallowed: bool,
    pub(crate) smt_active: bool,
    pub(crate) cluster_active: bool,
    pub(crate) asym_active: bool,
    /// sched_ext's own choice looks in prev's LLC, and in its node, before all CPUs.
    pub(crate) llc_first: bool,
    pub(crate) node_first: bool,
    pub(crate) nr_words: usize,
    pub(crate) cpus: Box<[PlanCpu]>,
    /// The tree's online CPUs.
    pub(crate) online: Mask,
    pub(crate) clusters: Box<[Mask]>,
    pub(crate) online_clusters: Clusters,
    affine: Box<[AffineSpan]>,
    pool: Box<[u64]>,
    policy: String,
}

/// Working memory of decisions, reused from one to the next.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    /// Candidates by word of the target's LLC span.
    pub(crate) cpus: Vec<u64>,
}

/// A CPU set: words `first..first + len` of it are in [`Plan::pool`] from `at` on, all others are 0. Equal sets of one plan are equal
/// masks. The empty set has no words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mask {
    /// Index of its first word in the pool.
    pub at: u32,
    /// Index of that word in the set: its CPUs are `64 * first..`.
    pub first: u32,
    /// Number of words.
    pub len: u32,
    /// Number of CPUs.
    pub weight: u32,
}

/// Number of distances that a mask bounds: SMT, cluster, LLC, node, package.
pub(crate) const REACHES: usize = 5;

/// What decisions look up of one CPU. One outside the partition has the sets and ids of a CPU alone; its core, a node and reaches
/// if it is online.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlanCpu {
    /// sd_llc's span; `None` without that domain.
    pub llc: Option<Mask>,
    /// Number of CPUs of sd_llc, 1 without it.
    pub llc_size: u32,
    /// First CPU of sd_llc, the CPU itself without it (`sd_llc_id`).
    pub llc_id: u32,
    /// First CPU of the lowest cluster domain, else of sd_llc, else the CPU itself (`sd_share_id`).
    pub share_id: u32,
    /// Index of the LLC's shared state (`huddle_domains::Cached::llc_index`).
    pub llc_index: u32,
    /// Threads of its core, those outside the partition too.
    pub smt: Mask,
    /// The firmware's cluster mask.
    pub cluster_raw: Mask,
    /// The lowest domain that is a cluster.
    pub cluster_domain: Option<Mask>,
    /// The first group of sd_llc, where that group is a cluster.
    pub llc_first_group: Option<Mask>,
    /// The lowest domain with CPUs of different capacity.
    pub asym: Option<Mask>,
    /// CPUs of its node, those outside the partition too.
    pub node: Mask,
    /// CPUs no farther than SMT, cluster, LLC, node, package.
    pub reach: [Mask; 5],
    /// Where claims look for a CPU.
    pub claim: ClaimSets,
    /// Index in [`Plan::affine_spans`] of its narrowest domain that may pull wake-ups; the wider ones follow.
    pub affine_from: u32,
    /// Number of those domains.
    pub affine_len: u32,
}

/// The sets of one CPU that claims know. Cluster ⊆ LLC; a CPU outside the partition is alone in both.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClaimSets {
    /// Its cluster: the firmware's cluster and the core's threads, cut to the LLC below and the partition. Empty where that is one core: a
    /// core is no cluster to gather in.
    pub cluster: Mask,
    pub(crate) is_one_core: bool,
    /// sd_llc's span, without that domain the CPUs of the partition that share its last-level cache.
    pub llc: Mask,
    /// CPUs of the partition in its node.
    pub node: Mask,
    /// Index of its cluster, one core wide or wider, in [`Plan::clusters`].
    pub index: u32,
    /// The clusters of its LLC.
    pub llc_clusters: Clusters,
    /// The clusters of its node.
    pub node_clusters: Clusters,
}

/// A domain that may pull wake-ups (`SD_WAKE_AFFINE`).
#[derive(Clone, Copy, Debug)]
pub struct AffineSpan {
    /// Its CPUs.
    pub span: Mask,
    /// Its imbalance threshold in percent.
    pub imbalance_pct: u32,
}

impl Policy {
    /// Compiles the policy for a machine's domains. The topology gives the distances by which examined CPUs are counted.
    pub fn compile(&self, tree: &DomainTree, topology: &Topology) -> Plan {
        let mut pool = Pool::default();
        let mut reaches = Reaches::default();
        let mut affine = Vec::new();
        let mut cpus: Box<[PlanCpu]> = (0..tree.nr_cpus)
            .map(|cpu| compile_cpu(CpuId::from(cpu), tree, topology, &mut pool, &mut reaches, &mut affine))
            .collect();
        let (clusters, online_clusters) = clusters::group(&mut cpus, tree);
        let (llc_first, node_first) = sets_before_all(&cpus, &tree.online);
        Plan {
            entry: self.entry,
            steps: self.steps.clone().into_boxed_slice(),
            fork: self.fork.clone().map(Vec::into_boxed_slice),
            after_scans: self.steps.iter().rposition(Step::is_scan).map_or(0, |last| last + 1),
            walk_disallowed: self.steps.iter().any(|s| matches!(s, Step::ScanLlc { charge_disallowed: true, .. })),
            smt_active: tree.smt_active,
            cluster_active: tree.cluster_active,
            asym_active: tree.asym_active,
            llc_first,
            node_first,
            nr_words: tree.nr_cpus.div_ceil(64),
            cpus,
            online: pool.mask(&tree.online),
            clusters,
            online_clusters,
            affine: affine.into_boxed_slice(),
            pool: pool.words.into_boxed_slice(),
            policy: self.name.clone(),
        }
    }
}

/// Whether sched_ext's own choice looks in LLCs and in nodes before all CPUs: several LLCs, and several nodes that are not the LLCs
/// (`scx_idle_update_selcpu_topology`, `kernel/sched/ext/idle.c`, 7.2).
fn sets_before_all(cpus: &[PlanCpu], online: &CpuSet) -> (bool, bool) {
    let all = online.len() as u32;
    let llc = |cpu: CpuId| cpus[cpu.index()].llc.map_or(0, |llc| llc.weight);
    // Without a NUMA domain the kernel takes a node to have no CPUs.
    let node = |cpu: CpuId| Some(cpus[cpu.index()].claim.node.weight).filter(|&weight| weight < all).unwrap_or(0);
    let Some(first) = online.iter().next() else { return (false, false) };
    let differ = || online.iter().any(|cpu| llc(cpu) != node(cpu));
    ((1..all).contains(&llc(first)), (1..all).contains(&node(first)) && differ())
}

fn compile_cpu(
    cpu: CpuId,
    tree: &DomainTree,
    topology: &Topology,
    pool: &mut Pool,
    reaches: &mut Reaches,
    affine: &mut Vec<AffineSpan>,
) -> PlanCpu {
    let mut alone = PlanCpu { llc_size: 1, llc_id: cpu.0, share_id: cpu.0, ..PlanCpu::default() };
    alone.claim = clusters::claim_sets(cpu, tree, topology, pool);
    if !topology.online.contains(cpu) {
        return alone;
    }
    alone.smt = pool.mask(tree.span(tree.smt[cpu.index()]));
    alone.node = pool.mask(topology.node.set_of(cpu));
    alone.reach = reaches.of(cpu, topology, pool);
    if !tree.online.contains(cpu) {
        return alone;
    }
    let cached = &tree.cached[cpu.index()];
    let affine_from = affine.len() as u32;
    affine.extend(
        tree.chain(cpu)
            .map(|id| tree.domain(id))
            .filter(|domain| domain.flags.has(Flags::WAKE_AFFINE))
            .map(|domain| AffineSpan { span: pool.mask(tree.span(domain.span)), imbalance_pct: domain.imbalance_pct }),
    );
    let span_of = |id, pool: &mut Pool| pool.mask(tree.span(tree.domain(id).span));
    let cluster_domain = tree.chain(cpu).find(|&id| tree.domain(id).flags.has(Flags::CLUSTER));
    let first_group = cached.sd_llc.map(|id| tree.first_group(id)).filter(|group| group.flags.has(Flags::CLUSTER));
    PlanCpu {
        llc: cached.sd_llc.map(|id| span_of(id, pool)),
        llc_size: cached.sd_llc_size,
        llc_id: cached.sd_llc_id,
        share_id: cached.sd_share_id,
        llc_index: cached.llc_index,
        cluster_raw: pool.mask(tree.span(tree.cluster_raw[cpu.index()])),
        cluster_domain: cluster_domain.map(|id| span_of(id, pool)),
        llc_first_group: first_group.map(|group| pool.mask(tree.span(group.span))),
        asym: cached.sd_asym_cpucapacity.map(|id| span_of(id, pool)),
        affine_from,
        affine_len: affine.len() as u32 - affine_from,
        ..alone
    }
}

/// The words of all masks, equal ones once.
#[derive(Default)]
pub(crate) struct Pool {
    words: Vec<u64>,
    known: BTreeMap<(u32, Box<[u64]>), Mask>,
}

impl Pool {
    pub(crate) fn mask(&mut self, set: &CpuSet) -> Mask {
        let words = set.words();
        let Some(first) = words.iter().position(|&word| word != 0) else { return Mask::default() };
        let last = words.iter().rposition(|&word| word != 0).unwrap_or(first);
        let words = &words[first..=last];
        *self.known.entry((first as u32, words.into())).or_insert_with(|| {
            let at = self.words.len() as u32;
            self.words.extend_from_slice(words);
            Mask { at, first: first as u32, len: words.len() as u32, weight: set.len() as u32 }
        })
    }
}

/// The sets within each distance, made once for CPUs that are in the same partitions.
#[derive(Default)]
struct Reaches {
    known: BTreeMap<[u32; REACHES], [Mask; REACHES]>,
}

impl Reaches {
    /// Mirrors [`Topology::distance`], where the nearest shared set counts: each reach includes the nearer ones.
    fn of(&mut self, cpu: CpuId, topology: &Topology, pool: &mut Pool) -> [Mask; REACHES] {
        let partitions: [&Partition; REACHES] =
            [&topology.smt, &topology.cluster, &topology.llc, &topology.node, &topology.package];
        let mut key = partitions.map(|partition| partition.index_of(cpu));
        let (cluster, llc) = (topology.cluster.set_of(cpu), topology.llc.set_of(cpu));
        let narrow = llc.len() == 1 || !llc.is_subset(cluster);
        if !narrow {
            key[1] = NO_SET;
        }
        *self.known.entry(key).or_insert_with(|| {
            let mut reach = CpuSet::new(topology.nr_cpus());
            let mut masks = [Mask::default(); REACHES];
            for (mask, (partition, &index)) in masks.iter_mut().zip(partitions.iter().zip(&key)) {
                if index != NO_SET {
                    reach.union_with(partition.set_of(cpu));
                }
                *mask = pool.mask(&reach);
            }
            masks
        })
    }
}

impl Plan {
    /// The policy's name.
    pub fn policy(&self) -> &str {
        &self.policy
    }

    /// Number of the record's steps. [`crate::Placement::step`] is below it, or equal for the core's own rules.
    pub fn nr_steps(&self) -> usize {
        self.steps.len()
    }

    /// The steps.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The steps for fork and exec, where the record has them.
    pub fn fork_steps(&self) -> Option<&[Step]> {
        self.fork.as_deref()
    }

    /// How the target is chosen.
    pub fn entry(&self) -> Entry {
        self.entry
    }

    /// Index of the first step behind the last scan, where the steps go on when the budget runs out; 0 without scans.
    pub fn after_scans(&self) -> usize {
        self.after_scans
    }

    /// Scans walk over CPUs that the wakee may not use, at a charge (4.17).
    pub fn walk_disallowed(&self) -> bool {
        self.walk_disallowed
    }

    /// Whether any core has more than one thread (`sched_smt_active`).
    pub fn smt_active(&self) -> bool {
        self.smt_active
    }

    /// Whether cluster domains exist (`sched_cluster_active`).
    pub fn cluster_active(&self) -> bool {
        self.cluster_active
    }

    /// Whether CPUs differ in capacity (`sched_asym_cpucap_active`).
    pub fn asym_active(&self) -> bool {
        self.asym_active
    }

    /// Number of CPU ids.
    pub fn nr_cpus(&self) -> usize {
        self.cpus.len()
    }

    /// Number of words of a set of all CPU ids.
    pub fn nr_words(&self) -> usize {
        self.nr_words
    }

    /// What decisions look up of a CPU; `None` for one beyond the machine.
    pub fn facts(&self, cpu: CpuId) -> Option<&PlanCpu> {
        self.cpus.get(cpu.index())
    }

    /// The words of all masks.
    pub fn pool(&self) -> &[u64] {
        &self.pool
    }

    /// Every CPU's domains that may pull wake-ups; [`PlanCpu::affine_from`] says which are whose.
    pub fn affine_spans(&self) -> &[AffineSpan] {
        &self.affine
    }

    /// The CPUs of the partition.
    pub fn online(&self) -> Mask {
        self.online
    }

    /// The clusters by ascending first CPU, those of one LLC together and the LLCs of one node together; then each CPU outside the
    /// partition as a cluster of its own.
    pub fn clusters(&self) -> &[Mask] {
        &self.clusters
    }

    /// The clusters of the partition: all but those behind them of CPUs outside it.
    pub fn online_clusters(&self) -> Clusters {
        self.online_clusters
    }

    /// Working memory for decisions of this plan.
    pub fn scratch(&self) -> Scratch {
        Scratch { cpus: vec![0; self.nr_words] }
    }

    /// The CPUs of a mask of this plan.
    pub fn set(&self, mask: &Mask) -> CpuSet {
        let mut set = CpuSet::new(self.cpus.len());
        for (word, bits) in self.words(*mask) {
            (0..64).filter(|bit| bits >> bit & 1 != 0).for_each(|bit| set.insert(CpuId::from(64 * word + bit)));
        }
        set
    }

    /// The mask's word `word`, 0 outside it.
    #[inline]
    pub(crate) fn word(&self, mask: Mask, word: usize) -> u64 {
        let offset = word.wrapping_sub(mask.first as usize);
        if offset < mask.len as usize { self.pool[mask.at as usize + offset] } else { 0 }
    }

    #[inline]
    pub(crate) fn contains(&self, mask: Mask, cpu: CpuId) -> bool {
        self.word(mask, cpu.index() / 64) >> (cpu.index() % 64) & 1 != 0
    }

    /// The words of a mask with their indices.
    #[inline]
    pub(crate) fn words(&self, mask: Mask) -> impl Iterator<Item = (usize, u64)> + '_ {
        let at = mask.at as usize;
        self.pool[at..at + mask.len as usize].iter().enumerate().map(move |(i, &word)| (mask.first as usize + i, word))
    }

    /// The CPU's domains that may pull wake-ups, narrowest first.
    #[inline]
    pub(crate) fn affine(&self, cpu: CpuId) -> &[AffineSpan] {
        let PlanCpu { affine_from, affine_len, .. } = self.cpus[cpu.index()];
        &self.affine[affine_from as usize..][..affine_len as usize]
    }

    /// `cpus_share_cache`.
    #[inline]
    pub(crate) fn share_llc(&self, a: CpuId, b: CpuId) -> bool {
        a == b || self.cpus[a.index()].llc_id == self.cpus[b.index()].llc_id
    }

    /// `cpus_share_resources`. The ids are first CPUs of clusters and of LLCs in one number space, so that a CPU without a cluster
    /// domain shares with the cluster that has its LLC's first CPU: the kernel's quirk, kept.
    #[inline]
    pub(crate) fn share_lowest(&self, a: CpuId, b: CpuId) -> bool {
        a == b || self.cpus[a.index()].share_id == self.cpus[b.index()].share_id
    }

    /// The mask's word parts in scan order: words from `start` up, then from the mask's first word to just below `start`.
    #[inline(always)]
    pub(crate) fn parts(&self, mask: Mask, start: u32) -> impl Iterator<Item = (usize, u64)> + '_ {
        let (first, end) = (mask.first as usize, (mask.first + mask.len) as usize);
        let (turn, bit) = (start as usize / 64, start % 64);
        let above =
            (turn.max(first)..end).map(move |word| (word, if word == turn { u64::MAX << bit } else { u64::MAX }));
        let below = (first..end.min(turn + 1))
            .map(move |word| (word, if word == turn { !(u64::MAX << bit) } else { u64::MAX }));
        above.chain(below).map(move |(word, part)| (word, part & self.word(mask, word)))
    }
}

/// The CPU at position `n` (from 0) among the set bits, which must be more than `n`.
#[inline]
pub(crate) fn nth_bit(word: u64, mut n: u32) -> u32 {
    let mut at = 0;
    for half in [32, 16, 8, 4, 2, 1] {
        let ones = (word >> at & ((1 << half) - 1)).count_ones();
        if n >= ones {
            n -= ones;
            at += half;
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::nth_bit;

    #[test]
    fn nth_bit_counts_from_the_lowest() {
        for word in [1, 0x8000_0000_0000_0001, 0xf0f0_1234_5678_9abc, u64::MAX] {
            let bits: Vec<u32> = (0..64).filter(|bit| word >> bit & 1 != 0).collect();
            for (n, &bit) in bits.iter().enumerate() {
                assert_eq!(nth_bit(word, n as u32), bit);
            }
        }
    }
}
