//! What each domain balances between.
//!
//! Mirrors `build_sched_groups`, `get_group`, `build_overlap_sched_groups`, `find_descended_sibling` and
//! `build_balance_mask` (`kernel/sched/topology.c`, 5.9 to 7.3).

use std::collections::HashMap;

use huddle_machine::{CpuId, CpuSet};

use crate::build::Builder;
use crate::{DomainId, Flags, Group, GroupId, SpanId};

/// What has been made so far. The maps are only looked up, never walked.
#[derive(Default)]
struct Made {
    /// Shared groups by level and span.
    shared: HashMap<(u32, SpanId), GroupId>,
    /// Shared lists by level and domain span: the list's index, and each group's position in it.
    rings: HashMap<(u32, SpanId), (usize, HashMap<GroupId, u32>)>,
    /// `sched_group_capacity` by level and balance CPU.
    capacities: HashMap<(u32, CpuId), u32>,
    /// Balance masks by level and group span.
    masks: HashMap<(u32, SpanId), SpanId>,
    cores: HashMap<SpanId, u32>,
}

impl Builder<'_> {
    /// Gives every domain its list of groups.
    pub(crate) fn make_groups(&mut self) {
        let mut made = Made::default();
        let cpus = self.cpus();
        for level in 0..self.at.len() as u32 {
            for &cpu in &cpus {
                let Some(domain) = self.at[level as usize][cpu.index()] else { continue };
                let (list, first) = if self.overlaps(level) {
                    (self.overlapping_list(&mut made, domain, cpu), 0)
                } else {
                    self.shared_list(&mut made, domain, level, cpu)
                };
                let domain = self.domain_mut(domain);
                domain.group_list = list as u32;
                domain.first_group = first;
            }
        }
    }

    /// The list of the domain's span and the position of the CPU's group in it.
    fn shared_list(&mut self, made: &mut Made, domain: DomainId, level: u32, cpu: CpuId) -> (usize, u32) {
        let key = (level, self.domain(domain).span);
        let own = self.shared_group(made, level, cpu);
        if !made.rings.contains_key(&key) {
            // All CPUs link the same group objects in turn, so the order that stays is that of the last one's walk.
            let span = self.spans.get(key.1).clone();
            let mut ring = Vec::new();
            let mut walk = Walk::new(&span, span.last().unwrap_or(cpu));
            while let Some(next) = walk.next() {
                let group = self.shared_group(made, level, next);
                walk.cover(self.spans.get(self.groups[group.0 as usize].span));
                ring.push(group);
            }
            let lowest = span.first().unwrap_or(cpu);
            let start = self.position(&ring, lowest);
            ring.rotate_left(start);
            let positions = ring.iter().enumerate().map(|(at, &group)| (group, at as u32)).collect();
            made.rings.insert(key, (self.group_lists.insert_full(ring).0, positions));
        }
        let (list, positions) = &made.rings[&key];
        // On a contradictory topology the list may hold another CPU's idea of this CPU's group.
        let first = positions.get(&own).copied();
        (*list, first.unwrap_or_else(|| self.position(&self.group_lists[*list], cpu) as u32))
    }

    fn position(&self, ring: &[GroupId], cpu: CpuId) -> usize {
        let holds = |group: &GroupId| self.spans.get(self.groups[group.0 as usize].span).contains(cpu);
        ring.iter().position(holds).unwrap_or(0)
    }

    /// The group that the CPU brings to its domain at the level: its child domain's CPUs, or itself.
    fn shared_group(&mut self, made: &mut Made, level: u32, cpu: CpuId) -> GroupId {
        let child = self.at[level as usize][cpu.index()].and_then(|domain| self.domain(domain).child);
        let (span, flags) = match child.map(|child| self.domain(child)) {
            Some(child) => (child.span, child.flags),
            None => (self.spans.intern(&CpuSet::from_cpus(self.topology.nr_cpus(), [cpu.index()])), Flags::default()),
        };
        if let Some(&group) = made.shared.get(&(level, span)) {
            return group;
        }
        let balance_cpu = self.spans.get(span).first().unwrap_or(cpu);
        let group = self.group(made, level, span, span, balance_cpu, flags);
        let id = GroupId(self.groups.len() as u32);
        self.groups.push(group);
        made.shared.insert((level, span), id);
        id
    }

    /// The list of one CPU's NUMA domain, its own group first.
    fn overlapping_list(&mut self, made: &mut Made, domain: DomainId, cpu: CpuId) -> usize {
        let (level, span_id) = (self.domain(domain).level as usize, self.domain(domain).span);
        let mut list = Vec::new();
        let mut walk = Walk::new(self.spans.get(span_id), cpu);
        while let Some(next) = walk.next() {
            // A CPU whose chain ended below this level adds no group.
            let Some(mut sibling) = self.at[level][next.index()] else { continue };
            if self.profile.numa_descend {
                sibling = self.descend(sibling, span_id);
            }
            let (span, flags) = match self.domain(sibling).child {
                Some(child) => (self.domain(child).span, self.domain(child).flags),
                None => (self.domain(sibling).span, Flags::default()),
            };
            walk.cover(self.spans.get(span));
            let found_at = self.domain(sibling).level;
            let balance_mask = self.balance_mask(made, found_at, span);
            let balance_cpu = self.spans.get(balance_mask).first().unwrap_or(next);
            let group = self.group(made, found_at, span, balance_mask, balance_cpu, flags);
            list.push(self.private_group(group));
        }
        self.group_lists.insert_full(list).0
    }

    /// Goes down from a sibling whose child reaches out of the span to one whose child stays inside. The kernel then also
    /// skips children of equal span; there are none here, since the domain still reaches out and its child does not.
    fn descend(&self, sibling: DomainId, span: SpanId) -> DomainId {
        let span = self.spans.get(span);
        let reaches_out = |&id: &DomainId| !self.spans.get(self.domain(id).span).is_subset(span);
        let mut at = sibling;
        while let Some(child) = self.domain(at).child.filter(reaches_out) {
            at = child;
        }
        at
    }

    /// The group's CPUs that see the group from their own domain at the level.
    fn balance_mask(&mut self, made: &mut Made, level: u32, span: SpanId) -> SpanId {
        if let Some(&mask) = made.masks.get(&(level, span)) {
            return mask;
        }
        let sees = |&cpu: &CpuId| {
            let child = self.at[level as usize][cpu.index()].and_then(|domain| self.domain(domain).child);
            child.is_some_and(|child| self.domain(child).span == span)
        };
        let cpus = self.spans.get(span).iter().filter(sees).map(CpuId::index);
        let mask = CpuSet::from_cpus(self.topology.nr_cpus(), cpus);
        let mask = self.spans.intern(&mask);
        made.masks.insert((level, span), mask);
        mask
    }

    fn group(
        &mut self,
        made: &mut Made,
        level: u32,
        span: SpanId,
        balance_mask: SpanId,
        balance_cpu: CpuId,
        flags: Flags,
    ) -> Group {
        let next = made.capacities.len() as u32;
        let capacity_id = *made.capacities.entry((level, balance_cpu)).or_insert(next);
        let cores = *made.cores.entry(span).or_insert_with(|| self.count_cores(span));
        let weight = self.spans.get(span).len() as u32;
        Group { span, balance_mask, flags, weight, cores, capacity_id }
    }

    fn count_cores(&self, span: SpanId) -> u32 {
        let mut cores: Vec<u32> = self.spans.get(span).iter().map(|cpu| self.topology.smt.index_of(cpu)).collect();
        cores.sort_unstable();
        cores.dedup();
        cores.len() as u32
    }

    /// Groups of NUMA domains never change under another domain's eyes: equal ones are one entry.
    fn private_group(&mut self, group: Group) -> GroupId {
        if let Some(&id) = self.private_groups.get(&group) {
            return id;
        }
        let id = GroupId(self.groups.len() as u32);
        self.groups.push(group.clone());
        self.private_groups.insert(group, id);
        id
    }

    /// Sets the flags of the domain's first group: for all that share the group, or for this NUMA domain alone.
    pub(crate) fn set_first_group_flags(&mut self, domain: DomainId, flags: Flags) {
        let (list, first) = {
            let domain = self.domain(domain);
            (domain.group_list as usize, domain.first_group as usize)
        };
        let id = self.group_lists[list][first];
        if !self.overlaps(self.domain(domain).level) {
            self.groups[id.0 as usize].flags = flags;
            return;
        }
        let group = Group { flags, ..self.groups[id.0 as usize].clone() };
        let mut ids = self.group_lists[list].clone();
        ids[first] = self.private_group(group);
        let list = self.group_lists.insert_full(ids).0;
        self.domain_mut(domain).group_list = list as u32;
    }
}

/// The CPUs of a span that no group covers yet, ascending from a start and wrapping once.
struct Walk {
    left: CpuSet,
    at: CpuId,
}

impl Walk {
    fn new(span: &CpuSet, start: CpuId) -> Self {
        Walk { left: span.clone(), at: start }
    }

    fn next(&mut self) -> Option<CpuId> {
        let next = self.first_from(self.at).or_else(|| self.left.first())?;
        self.left.remove(next);
        self.at = next;
        Some(next)
    }

    fn first_from(&self, start: CpuId) -> Option<CpuId> {
        let first_word = start.index() / 64;
        let above = |(index, &word): (usize, &u64)| {
            let word = if index == first_word { word & (!0 << (start.index() % 64)) } else { word };
            (word != 0).then(|| CpuId::from(index * 64 + word.trailing_zeros() as usize))
        };
        self.left.words().iter().enumerate().skip(first_word).find_map(above)
    }

    fn cover(&mut self, span: &CpuSet) {
        self.left.subtract(span);
    }
}
