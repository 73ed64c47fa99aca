//! One chain of domains per CPU, before groups are made and before anything degenerates.
//!
//! Mirrors `build_sched_domains`, `build_sched_domain` and `sd_init` (`kernel/sched/topology.c`, 5.9 to 7.3).

use huddle_machine::{Arch, CpuId, CpuSet, Topology};
use indexmap::{IndexMap, IndexSet};

use crate::levels::{Level, Levels, Mask};
use crate::{Domain, DomainId, DomainProfile, DomainTree, Flags, Group, GroupId, Kernel, SpanId};

/// The domains of all online CPUs of a machine.
pub fn build(topology: &Topology, kernel: &Kernel) -> DomainTree {
    build_for(topology, kernel, &topology.online)
}

/// The domains of a cpuset partition: the online CPUs of `partition`. CPUs outside it have none.
pub fn build_for(topology: &Topology, kernel: &Kernel, partition: &CpuSet) -> DomainTree {
    let mut builder = Builder::new(topology, kernel, topology.online.intersection(partition));
    builder.stack_domains();
    if kernel.domains.imb_numa_nr {
        builder.allow_numa_imbalance();
    }
    builder.make_groups();
    builder.attach();
    builder.finish()
}

/// Distinct CPU sets.
#[derive(Default)]
pub(crate) struct Spans {
    sets: IndexSet<CpuSet>,
}

impl Spans {
    pub fn intern(&mut self, set: &CpuSet) -> SpanId {
        let index = self.sets.get_index_of(set).unwrap_or_else(|| self.sets.insert_full(set.clone()).0);
        SpanId(index as u32)
    }

    pub fn get(&self, id: SpanId) -> &CpuSet {
        &self.sets[id.0 as usize]
    }

    pub fn into_vec(self) -> Vec<CpuSet> {
        self.sets.into_iter().collect()
    }
}

/// A tree under construction: domains of every level, the degenerate ones included.
pub(crate) struct Builder<'a> {
    pub topology: &'a Topology,
    pub profile: &'a DomainProfile,
    pub levels: Levels<'a>,
    pub partition: CpuSet,
    pub spans: Spans,
    pub domains: Vec<Domain>,
    /// By level, by CPU id; `None` above the level whose span is the partition.
    pub at: Vec<Vec<Option<DomainId>>>,
    pub groups: Vec<Group>,
    /// Groups that belong to one NUMA domain: equal ones are one entry.
    pub private_groups: IndexMap<Group, GroupId>,
    pub group_lists: IndexSet<Vec<GroupId>>,
    pub complaints: Vec<String>,
}

impl<'a> Builder<'a> {
    fn new(topology: &'a Topology, kernel: &'a Kernel, partition: CpuSet) -> Self {
        let levels = Levels::new(topology, kernel);
        let complaints = levels.complaint.clone().into_iter().collect();
        let at = vec![vec![None; topology.nr_cpus()]; levels.table.len()];
        Builder {
            topology,
            profile: &kernel.domains,
            levels,
            partition,
            spans: Spans::default(),
            domains: Vec::new(),
            at,
            groups: Vec::new(),
            private_groups: IndexMap::new(),
            group_lists: IndexSet::new(),
            complaints,
        }
    }

    pub fn cpus(&self) -> Vec<CpuId> {
        self.partition.iter().collect()
    }

    pub fn domain(&self, id: DomainId) -> &Domain {
        &self.domains[id.0 as usize]
    }

    pub fn domain_mut(&mut self, id: DomainId) -> &mut Domain {
        &mut self.domains[id.0 as usize]
    }

    /// Whether the level's domains have overlapping, private groups.
    pub fn overlaps(&self, level: u32) -> bool {
        self.levels.table[level as usize].flags.has(Flags::NUMA)
    }

    fn stack_domains(&mut self) {
        let whole = self.spans.intern(&self.partition.clone());
        let mut asym = AsymFlags::new(self.topology, &self.partition, self.profile);
        for cpu in self.cpus() {
            let mut child: Option<DomainId> = None;
            for level in 0..self.levels.table.len() {
                let id = self.stack_domain(level, cpu, child, &mut asym);
                if let Some(child) = child {
                    self.domain_mut(child).parent = Some(id);
                }
                self.at[level][cpu.index()] = Some(id);
                child = Some(id);
                if self.domain(id).span == whole {
                    break;
                }
            }
        }
    }

    fn stack_domain(
        &mut self,
        index: usize,
        cpu: CpuId,
        child: Option<DomainId>,
        asym: &mut AsymFlags<'_>,
    ) -> DomainId {
        let level = &self.levels.table[index];
        let mask = self.levels.mask(level, cpu);
        let mut span = mask.intersection(&self.partition);
        // Up to 6.12 the numbers follow the mask before the partition cuts it.
        let weight = if self.profile.interval_from_span { span.len() } else { mask.len() } as u32;
        let asym_flags = asym.of(self.spans.intern(&span), &span);
        let flags = level_flags(level, self.levels.is_far(level), self.profile).with(asym_flags);
        let (imbalance_pct, cache_nice_tries) = thresholds(flags, self.profile.default_imbalance_pct);
        let name = level.name;
        if let Some(child) = child {
            let below = &self.domains[child.0 as usize];
            let child_span = self.spans.get(below.span);
            if !child_span.is_subset(&span) {
                span.union_with(child_span);
                self.complaints
                    .push(format!("arch topology borken: the {} domain not a subset of the {name} domain", below.name));
            }
            // Misfit balancing pulls against spreading by numbers (`sd_init`, 4.20 on).
            if asym_flags.has(Flags::ASYM_CPUCAPACITY) {
                let below = &mut self.domains[child.0 as usize];
                below.flags = below.flags.without(Flags::PREFER_SIBLING);
            }
        }
        let id = DomainId(self.domains.len() as u32);
        self.domains.push(Domain {
            cpu,
            name,
            level: index as u32,
            span: self.spans.intern(&span),
            weight: span.len() as u32,
            flags,
            min_interval: weight,
            max_interval: 2 * weight,
            busy_factor: self.profile.busy_factor,
            imbalance_pct,
            cache_nice_tries,
            imb_numa_nr: 0,
            parent: None,
            child,
            group_list: 0,
            first_group: 0,
        });
        id
    }

    /// `imb_numa_nr`: how many tasks NUMA groups may differ by before it counts, on domains above the LLC
    /// (`build_sched_domains`, 5.18 on).
    fn allow_numa_imbalance(&mut self) {
        for cpu in self.cpus() {
            let chain: Vec<DomainId> = self.at.iter().map_while(|level| level[cpu.index()]).collect();
            let shares = |id: DomainId| self.domain(id).flags.has(Flags::SHARE_LLC);
            let Some(first) = (1..chain.len()).find(|&at| shares(chain[at - 1]) && !shares(chain[at])) else {
                continue;
            };
            let weight = |at: usize| self.domain(chain[at]).weight;
            let per_llc = match weight(first) / weight(first - 1) {
                1 => weight(first) / 8,
                llcs => llcs,
            };
            let allowed = per_llc.max(1);
            let is_numa = |at: &usize| self.domain(chain[*at]).flags.has(Flags::NUMA);
            let base = (first + 1..chain.len()).find(is_numa).map_or(weight(first), weight);
            let values: Vec<u32> = (first..chain.len())
                .map(|at| if at == first { allowed } else { allowed * (weight(at) / base).max(1) })
                .collect();
            for (&id, value) in chain[first..].iter().zip(values) {
                self.domain_mut(id).imb_numa_nr = value;
            }
        }
    }
}

/// The flags that `sd_init` gives a domain of the level, those by capacity excepted.
fn level_flags(level: &Level, far: bool, profile: &DomainProfile) -> Flags {
    let placed = Flags::BALANCE_EXEC.with(Flags::BALANCE_FORK).with(Flags::WAKE_AFFINE);
    let mut flags = level.flags.with(Flags::BALANCE_NEWIDLE);
    if !far {
        flags = flags.with(placed);
    }
    let prefers_sibling = match level.mask {
        _ if level.flags.has(Flags::NUMA) => false,
        Mask::Cluster | Mask::Core => profile.prefer_sibling_everywhere,
        Mask::Smt | Mask::Book | Mask::Drawer | Mask::Node | Mask::Within(_) => true,
    };
    if prefers_sibling { flags.with(Flags::PREFER_SIBLING) } else { flags }
}

/// imbalance_pct and cache_nice_tries, in `sd_init`'s order of tests. The cluster level has no numbers of its own.
fn thresholds(flags: Flags, default_imbalance_pct: u32) -> (u32, u32) {
    if flags.has(Flags::SHARE_CPUCAPACITY) {
        (110, 0)
    } else if flags.has(Flags::SHARE_LLC) {
        (117, 1)
    } else if flags.has(Flags::NUMA) {
        (default_imbalance_pct, 2)
    } else {
        (default_imbalance_pct, 1)
    }
}

/// Flags by the capacities found in a span (`asym_cpu_capacity_classify`).
struct AsymFlags<'a> {
    capacity: &'a [u32],
    /// Distinct capacities of the partition.
    distinct: usize,
    full: bool,
    known: Vec<Option<Flags>>,
}

impl<'a> AsymFlags<'a> {
    fn new(topology: &'a Topology, partition: &CpuSet, profile: &DomainProfile) -> Self {
        // x86 has capacities of CPUs only where intel_pstate states them, and not with threads.
        let threads = topology.smt.sets().iter().any(|core| core.len() > 1);
        let stated = topology.arch != Arch::X86_64 || profile.x86_capacity && !threads;
        let capacity = if stated { topology.capacity.as_slice() } else { &[] };
        let mut flags = AsymFlags { capacity, distinct: 0, full: profile.asym_full, known: Vec::new() };
        flags.distinct = flags.count(partition);
        flags
    }

    fn of(&mut self, id: SpanId, span: &CpuSet) -> Flags {
        if self.distinct < 2 {
            return Flags::default();
        }
        let index = id.0 as usize;
        if self.known.len() <= index {
            self.known.resize(index + 1, None);
        }
        if let Some(flags) = self.known[index] {
            return flags;
        }
        let flags = match self.count(span) {
            0 | 1 => Flags::default(),
            count if self.full && count == self.distinct => Flags::ASYM_CPUCAPACITY.with(Flags::ASYM_CPUCAPACITY_FULL),
            _ => Flags::ASYM_CPUCAPACITY,
        };
        self.known[index] = Some(flags);
        flags
    }

    fn count(&self, span: &CpuSet) -> usize {
        let mut seen = Vec::new();
        for cpu in span.iter() {
            let capacity = self.capacity.get(cpu.index()).copied().unwrap_or(1024);
            if !seen.contains(&capacity) {
                seen.push(capacity);
            }
        }
        seen.len()
    }
}
