//! Removes the domains that add nothing, hands their flags over, and caches what the scheduler looks up most.
//!
//! Mirrors `cpu_attach_domain`, `sd_degenerate`, `sd_parent_degenerate` and `update_top_cache_domain`
//! (`kernel/sched/topology.c`, 5.9 to 7.3).

use huddle_machine::CpuId;
use indexmap::{IndexMap, IndexSet};

use crate::build::Builder;
use crate::{Cached, Domain, DomainId, DomainTree, Flags, GroupId, NO_LLC, SpanId};

impl Builder<'_> {
    /// Walks every CPU's chain bottom-up and drops degenerate domains. CPUs go in ascending order: groups are shared,
    /// the last CPU to touch a group's flags decides them.
    pub(crate) fn attach(&mut self) {
        for cpu in self.cpus() {
            let Some(base) = self.at.first().and_then(|lowest| lowest[cpu.index()]) else { continue };
            let mut at = base;
            while let Some(parent) = self.domain(at).parent {
                if self.parent_is_degenerate(at, parent) {
                    self.drop_parent(at, parent);
                } else {
                    at = parent;
                }
            }
            if self.is_degenerate(base) {
                self.drop_base(cpu, base);
            }
        }
    }

    fn drop_parent(&mut self, child: DomainId, parent: DomainId) {
        let grandparent = self.domain(parent).parent;
        self.domain_mut(child).parent = grandparent;
        if let Some(grandparent) = grandparent {
            self.domain_mut(grandparent).child = Some(child);
            if self.profile.group_flags_follow {
                self.set_first_group_flags(grandparent, self.domain(child).flags);
            }
        }
        // The spans are equal, so that what the parent wanted of its children's siblings holds for the child.
        if self.domain(parent).flags.has(Flags::PREFER_SIBLING) {
            let child = self.domain_mut(child);
            child.flags = child.flags.with(Flags::PREFER_SIBLING);
        }
    }

    fn drop_base(&mut self, cpu: CpuId, base: DomainId) {
        let parent = self.domain(base).parent;
        self.at[0][cpu.index()] = parent;
        if let Some(parent) = parent {
            self.domain_mut(parent).child = None;
            self.set_first_group_flags(parent, Flags::default());
        }
    }

    fn single_group(&self, id: DomainId) -> bool {
        self.group_lists[self.domain(id).group_list as usize].len() < 2
    }

    fn is_degenerate(&self, id: DomainId) -> bool {
        let domain = self.domain(id);
        let balances = domain.flags.without(Flags::WAKE_AFFINE) != Flags::default() && !self.single_group(id);
        domain.weight == 1 || !balances && !domain.flags.has(Flags::WAKE_AFFINE)
    }

    fn parent_is_degenerate(&self, child: DomainId, parent: DomainId) -> bool {
        if self.is_degenerate(parent) {
            return true;
        }
        let (below, above) = (self.domain(child), self.domain(parent));
        let useful = if self.single_group(parent) { Flags::WAKE_AFFINE } else { Flags(!0) };
        let needed = Flags(above.flags.0 & useful.0);
        below.span == above.span && below.flags.has(needed)
    }

    /// The tree of what is left.
    pub(crate) fn finish(mut self) -> DomainTree {
        let nr_cpus = self.topology.nr_cpus();
        let cluster_active = self.domains.iter().any(|domain| domain.flags.has(Flags::CLUSTER));
        let asym_active = self.domains.iter().any(|domain| domain.flags.has(Flags::ASYM_CPUCAPACITY));
        let empty = self.spans.intern(&huddle_machine::CpuSet::new(nr_cpus));
        let (mut smt, mut cluster_raw) = (vec![empty; nr_cpus], vec![empty; nr_cpus]);
        for cpu in self.topology.online.iter() {
            smt[cpu.index()] = self.spans.intern(self.topology.smt.set_of(cpu));
            cluster_raw[cpu.index()] = self.spans.intern(self.topology.cluster.set_of(cpu));
        }
        let smt_active = self.topology.smt.sets().iter().any(|core| core.len() > 1);

        let mut tree = DomainTree {
            nr_cpus,
            online: self.partition.clone(),
            domains: Vec::new(),
            groups: Vec::new(),
            group_lists: Vec::new(),
            nr_capacities: 0,
            spans: Vec::new(),
            base: vec![None; nr_cpus],
            cached: Vec::new(),
            nr_llcs: 0,
            smt,
            cluster_raw,
            smt_active,
            cluster_active,
            asym_active,
            capacity: self.topology.capacity.clone(),
            node_of: self.levels.node_of.clone(),
            complaints: std::mem::take(&mut self.complaints),
        };
        self.keep_domains(&mut tree);
        self.keep_groups(&mut tree);
        tree.spans = self.spans.into_vec();
        cache_pointers(&mut tree, self.profile.asym_full);
        tree
    }

    /// The domains still in a chain, by CPU and then narrowest first.
    fn keep_domains(&self, tree: &mut DomainTree) {
        for cpu in self.partition.iter() {
            let mut next = self.at.first().and_then(|lowest| lowest[cpu.index()]);
            let mut child: Option<DomainId> = None;
            while let Some(old) = next {
                let id = DomainId(tree.domains.len() as u32);
                next = self.domain(old).parent;
                let parent = next.map(|_| DomainId(id.0 + 1));
                tree.domains.push(Domain { parent, child, ..self.domain(old).clone() });
                tree.base[cpu.index()].get_or_insert(id);
                child = Some(id);
            }
        }
    }

    /// The groups that a kept domain lists.
    fn keep_groups(&self, tree: &mut DomainTree) {
        let mut lists: IndexSet<u32> = IndexSet::new();
        for domain in &mut tree.domains {
            domain.group_list = lists.insert_full(domain.group_list).0 as u32;
        }
        let mut groups: IndexSet<GroupId> = IndexSet::new();
        let mut capacities: IndexSet<u32> = IndexSet::new();
        for &list in &lists {
            let ids = self.group_lists[list as usize].iter();
            tree.group_lists.push(ids.map(|&group| GroupId(groups.insert_full(group).0 as u32)).collect());
        }
        for &GroupId(id) in &groups {
            let mut group = self.groups[id as usize].clone();
            group.capacity_id = capacities.insert_full(group.capacity_id).0 as u32;
            tree.groups.push(group);
        }
        tree.nr_capacities = capacities.len();
    }
}

/// What `update_top_cache_domain` stores per CPU.
fn cache_pointers(tree: &mut DomainTree, asym_full: bool) {
    let asym = if asym_full { Flags::ASYM_CPUCAPACITY_FULL } else { Flags::ASYM_CPUCAPACITY };
    let mut llcs: IndexMap<SpanId, u32> = IndexMap::new();
    let mut nr_llcs = 0;
    let mut next_llc = || {
        nr_llcs += 1;
        nr_llcs - 1
    };
    let mut cached = Vec::with_capacity(tree.nr_cpus);
    for cpu in (0..tree.nr_cpus).map(CpuId::from) {
        let first_cpu = |id: DomainId| tree.span(tree.domain(id).span).first().unwrap_or(cpu).0;
        let has = |id: &DomainId, flag| tree.domain(*id).flags.has(flag);
        let lowest = |flag| tree.chain(cpu).find(|id| has(id, flag));
        let sd_llc = tree.chain(cpu).filter(|id| has(id, Flags::SHARE_LLC)).last();
        let sd_llc_id = sd_llc.map_or(cpu.0, first_cpu);
        cached.push(Cached {
            sd_llc,
            sd_llc_size: sd_llc.map_or(1, |id| tree.domain(id).weight),
            sd_llc_id,
            sd_share_id: lowest(Flags::CLUSTER).map_or(sd_llc_id, first_cpu),
            llc_index: match sd_llc {
                Some(id) => *llcs.entry(tree.domain(id).span).or_insert_with(&mut next_llc),
                None if tree.online.contains(cpu) => next_llc(),
                None => NO_LLC,
            },
            sd_asym_cpucapacity: lowest(asym),
        });
    }
    tree.cached = cached;
    tree.nr_llcs = nr_llcs as usize;
}
