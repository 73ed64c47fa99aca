//! The domains of every CPU, after degeneration: what the scheduler walks.
//!
//! A kernel keeps one domain object per CPU and level. Here the parts that are equal between CPUs (spans, group lists) are
//! shared by index, so that a machine of thousands of CPUs fits.

use huddle_machine::{CpuId, CpuSet};

use crate::Kernel;

/// Flags of a domain or group, `include/linux/sched/sd_flags.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Flags(pub u32);

/// Declares the flags with the names that debugfs prints.
macro_rules! flags {
    ($($name:ident, $bit:literal, $doc:literal;)*) => {
        impl Flags {
            $(#[doc = $doc] pub const $name: Flags = Flags(1 << $bit);)*
            /// Every flag with its printed name (without `SD_`), in the kernel's order.
            pub const NAMES: &[(Flags, &'static str)] = &[$((Flags::$name, stringify!($name)),)*];
        }
    };
}

flags! {
    BALANCE_NEWIDLE, 0, "Balance when a CPU is about to idle.";
    BALANCE_EXEC, 1, "Slow-path placement on exec.";
    BALANCE_FORK, 2, "Slow-path placement on fork.";
    BALANCE_WAKE, 3, "Slow-path placement on wake-up.";
    WAKE_AFFINE, 4, "The waker's CPU may become the target.";
    ASYM_CPUCAPACITY, 5, "The span has CPUs of different capacity.";
    ASYM_CPUCAPACITY_FULL, 6, "The span has every capacity of the machine.";
    SHARE_CPUCAPACITY, 7, "Threads of one core.";
    CLUSTER, 8, "The span is a cluster.";
    SHARE_LLC, 9, "The span shares a cache (SD_SHARE_PKG_RESOURCES before 6.9).";
    SERIALIZE, 10, "One balancer at a time.";
    ASYM_PACKING, 11, "Prefer CPUs of high priority.";
    PREFER_SIBLING, 12, "Spread tasks over the child domains of the parent.";
    OVERLAP, 13, "Groups may overlap.";
    NUMA, 14, "Spans NUMA nodes.";
}

impl Flags {
    /// Whether all of `other` are set.
    #[inline]
    pub fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets of flags.
    #[must_use]
    pub fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// Without `other`.
    #[must_use]
    pub fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }

    /// The names that the kernel's debugfs prints, in its order (`sd_flags_show`, `kernel/sched/debug.c`).
    pub fn printed(self, kernel: &Kernel) -> Vec<String> {
        let name = |flag, name| if flag == Flags::SHARE_LLC { kernel.domains.share_llc_name } else { name };
        Flags::NAMES
            .iter()
            .filter(|&&(flag, _)| self.has(flag))
            .map(|&(flag, n)| format!("SD_{}", name(flag, n)))
            .collect()
    }
}

/// Index of a [`Domain`] in [`DomainTree::domains`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DomainId(pub u32);

/// Index of a [`Group`] in [`DomainTree::groups`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupId(pub u32);

/// Index of a span in [`DomainTree::spans`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpanId(pub u32);

/// A sched group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    /// Its CPUs.
    pub span: SpanId,
    /// CPUs that may balance for it (`group_balance_mask`).
    pub balance_mask: SpanId,
    /// The child domain's flags.
    pub flags: Flags,
    /// Number of CPUs.
    pub weight: u32,
    /// Number of cores (6.6 on).
    pub cores: u32,
    /// Index of its `sched_group_capacity`, `0..DomainTree::nr_capacities`: capacity, next update and imbalance mark. Groups
    /// of one level and one balance CPU share it, also where their flags differ.
    pub capacity_id: u32,
}

/// One CPU's domain at one level.
#[derive(Clone, Debug)]
pub struct Domain {
    /// Whose domain it is.
    pub cpu: CpuId,
    /// `SMT`, `CLS`, `CL`, `MC`, `DIE`, `PKG`, `NODE`, `NUMA`.
    pub name: &'static str,
    /// Index in the level table, gaps show degenerated levels.
    pub level: u32,
    /// Its CPUs.
    pub span: SpanId,
    /// Number of its CPUs.
    pub weight: u32,
    /// Its flags.
    pub flags: Flags,
    /// Least balance interval, ms.
    pub min_interval: u32,
    /// Longest balance interval, ms.
    pub max_interval: u32,
    /// Factor on the interval of a busy CPU.
    pub busy_factor: u32,
    /// Imbalance threshold in percent.
    pub imbalance_pct: u32,
    /// Failed attempts before hot tasks move.
    pub cache_nice_tries: u32,
    /// Allowed imbalance between NUMA groups (5.18 on), 0 below.
    pub imb_numa_nr: u32,
    /// The next wider domain.
    pub parent: Option<DomainId>,
    /// The next narrower domain.
    pub child: Option<DomainId>,
    /// The groups, shared between CPUs: index in [`DomainTree::group_lists`].
    pub group_list: u32,
    /// Position in that list of the group that contains the CPU: where the kernel's circular list starts for it.
    pub first_group: u32,
}

/// The scheduler's cached pointers of one CPU (`update_top_cache_domain`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cached {
    /// Highest domain with [`Flags::SHARE_LLC`].
    pub sd_llc: Option<DomainId>,
    /// Its weight, 1 when there is none.
    pub sd_llc_size: u32,
    /// First CPU of sd_llc, or the CPU itself.
    pub sd_llc_id: u32,
    /// As sd_llc_id, but the first CPU of the lowest domain with [`Flags::CLUSTER`] where there is one.
    pub sd_share_id: u32,
    /// Dense index of the CPU's shared LLC object, `0..DomainTree::nr_llcs`. A CPU without sd_llc has one of its own, a CPU
    /// outside the partition [`NO_LLC`].
    pub llc_index: u32,
    /// Lowest domain with [`Flags::ASYM_CPUCAPACITY_FULL`] (before 5.14: [`Flags::ASYM_CPUCAPACITY`]).
    pub sd_asym_cpucapacity: Option<DomainId>,
}

/// [`Cached::llc_index`] of a CPU outside the partition.
pub const NO_LLC: u32 = u32::MAX;

/// The domains of all online CPUs of a machine under a kernel.
#[derive(Clone, Debug)]
pub struct DomainTree {
    /// Number of CPU ids.
    pub nr_cpus: usize,
    /// Online CPUs: the partition the domains were built for.
    pub online: CpuSet,
    /// Every domain.
    pub domains: Vec<Domain>,
    /// Every group.
    pub groups: Vec<Group>,
    /// Lists of groups in the order of the kernel's circular list: starting at the group of the lowest CPU where CPUs share
    /// the list, at the CPU's own group on NUMA levels, whose lists are private.
    pub group_lists: Vec<Vec<GroupId>>,
    /// Number of distinct `sched_group_capacity` objects.
    pub nr_capacities: usize,
    /// Spans.
    pub spans: Vec<CpuSet>,
    /// The lowest domain by CPU id; `None` for a CPU without domains.
    pub base: Vec<Option<DomainId>>,
    /// Cached pointers by CPU id.
    pub cached: Vec<Cached>,
    /// Number of distinct LLC objects.
    pub nr_llcs: usize,
    /// Threads of each CPU's core (`cpu_smt_mask`), by CPU id; empty for an offline CPU.
    pub smt: Vec<SpanId>,
    /// Raw cluster mask of each CPU (`topology_cluster_cpumask`), by CPU id, empty for an offline CPU: RFC v2
    /// reads it past the domains.
    pub cluster_raw: Vec<SpanId>,
    /// Whether any core has more than one thread (`sched_smt_present`).
    pub smt_active: bool,
    /// Whether the wake-up path's cluster key is on (`sched_cluster_active`).
    pub cluster_active: bool,
    /// Whether CPUs differ in capacity (`sched_asym_cpucapacity`).
    pub asym_active: bool,
    /// CPU capacity 1..=1024 by CPU id.
    pub capacity: Vec<u32>,
    /// NUMA node index (position in `Topology::nodes`, 0 without nodes) by CPU id.
    pub node_of: Vec<u32>,
    /// Complaints of the builder (`arch topology borken …`), once per CPU and level pair.
    pub complaints: Vec<String>,
}

impl DomainTree {
    /// A domain.
    #[inline]
    pub fn domain(&self, id: DomainId) -> &Domain {
        &self.domains[id.0 as usize]
    }

    /// A group.
    #[inline]
    pub fn group(&self, id: GroupId) -> &Group {
        &self.groups[id.0 as usize]
    }

    /// A span.
    #[inline]
    pub fn span(&self, id: SpanId) -> &CpuSet {
        &self.spans[id.0 as usize]
    }

    /// The CPU's domains, narrowest first.
    pub fn chain(&self, cpu: CpuId) -> impl Iterator<Item = DomainId> + '_ {
        std::iter::successors(self.base[cpu.index()], |&id| self.domain(id).parent)
    }

    /// The domain's groups in the kernel's order for its CPU: the first contains the CPU.
    pub fn groups_of(&self, id: DomainId) -> impl Iterator<Item = GroupId> + '_ {
        let domain = self.domain(id);
        let list = &self.group_lists[domain.group_list as usize];
        let (tail, head) = list.split_at(domain.first_group as usize);
        head.iter().chain(tail).copied()
    }

    /// The first group of a domain: the one that contains its CPU.
    pub fn first_group(&self, id: DomainId) -> &Group {
        let domain = self.domain(id);
        self.group(self.group_lists[domain.group_list as usize][domain.first_group as usize])
    }
}
