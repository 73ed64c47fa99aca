//! NUMA nodes: `devices/system/node`, and the link to its node in each CPU's folder.

use std::collections::BTreeMap;

use super::{CPU, NODE, Reader, read_text};
use crate::archive::numbered;
use crate::assemble::{self, MAX_NODES, check_distances, default_distance, is_distance};
use crate::{CpuId, CpuSet, MAX_CPUS, MachineError, Node, Partition};

/// A node's row of distances as its file states it; `None` without a file, or for what is no number.
type Row = Option<Vec<Option<u32>>>;

impl Reader<'_> {
    /// The node of each CPU and the nodes; CPUs in no node form a set of their own.
    pub(super) fn nodes(&mut self, name: &str) -> Result<(Partition, Vec<Node>), MachineError> {
        let mut stated: BTreeMap<u32, CpuSet> = BTreeMap::new();
        for id in self.tree.list(NODE).iter().filter_map(|name| numbered(name, "node")) {
            // Beyond the limit they are only counted.
            let cpus = if stated.len() < MAX_NODES { self.node_cpus(id) } else { CpuSet::new(0) };
            stated.insert(id, cpus);
        }
        self.add_links(&mut stated);
        if stated.len() > MAX_NODES {
            let message = format!("holds {} nodes; machines of up to {MAX_NODES} are supported", stated.len());
            return Err(MachineError::source(format!("{name}: sys/{NODE}"), message));
        }
        let ids: Vec<u32> = stated.keys().copied().collect();
        let (mut nodes, node_of) = assemble::nodes(
            self.online,
            stated.into_iter().collect(),
            |id| format!("{NODE}/node{id}"),
            &mut self.findings,
        );
        let distances = self.distances(&ids);
        for (node, distances) in nodes.iter_mut().zip(distances) {
            node.distance = distances;
        }
        check_distances(&nodes, |id| format!("{NODE}/node{id}/distance"), &mut self.findings);
        let files = [NODE, "node/nodeN/cpulist"];
        let node = assemble::by_node(self.online, &nodes, &node_of, files, &mut self.findings);
        Ok((node, nodes))
    }

    /// A node's CPUs: its list, or its mask where the list is missing or contradicted by it, else the CPU links in its
    /// folder.
    fn node_cpus(&mut self, id: u32) -> CpuSet {
        let folder = format!("{NODE}/node{id}");
        let list = self.node_file(&folder, "cpulist", CpuSet::parse_list).filter(|cpus| !cpus.is_empty());
        let mask = self.node_file(&folder, "cpumap", CpuSet::parse_mask).filter(|cpus| !cpus.is_empty());
        if let (Some(list), Some(mask)) = (&list, &mask)
            && list != mask
        {
            let message = format!("says {list} but cpumap says {mask}; the mask is taken");
            self.findings.warn("list-and-mask-disagree", None, format!("{folder}/cpulist"), message);
        }
        mask.or(list).unwrap_or_else(|| {
            let links = self.tree.list(&folder);
            let cpus = links.iter().filter_map(|name| numbered(name, "cpu")).map(|cpu| cpu as usize);
            self.online_of(&CpuSet::from_cpus(MAX_CPUS, cpus.filter(|&cpu| cpu < MAX_CPUS)))
        })
    }

    /// The online CPUs that a node's file names; `None` when it is missing or cannot be read.
    fn node_file<E: std::fmt::Display>(
        &mut self,
        folder: &str,
        file: &str,
        parse: impl Fn(&str) -> Result<CpuSet, E>,
    ) -> Option<CpuSet> {
        let path = format!("{folder}/{file}");
        let text = read_text(self.tree, &path)?;
        match parse(&text) {
            Ok(cpus) => Some(self.online_of(&cpus)),
            // A mask has a digit even when no CPU is in it.
            Err(_) if text.is_empty() => None,
            Err(error) => {
                self.findings.warn("mask-unreadable", None, path, format!("{error}; the file is ignored"));
                None
            }
        }
    }

    fn online_of(&self, cpus: &CpuSet) -> CpuSet {
        let mut cpus = cpus.resized(self.online.capacity());
        cpus.intersect_with(self.online);
        cpus
    }

    /// Puts CPUs that no node lists into the node that their own folder links to.
    fn add_links(&mut self, stated: &mut BTreeMap<u32, CpuSet>) {
        let mut homeless = self.online.clone();
        stated.values().for_each(|cpus| homeless.subtract(cpus));
        let mut linked: Vec<CpuId> = Vec::new();
        for cpu in homeless.iter() {
            let names = self.tree.list(&format!("{CPU}/cpu{cpu}"));
            if let Some(id) = names.iter().find_map(|name| numbered(name, "node")) {
                stated.entry(id).or_insert_with(|| CpuSet::new(self.online.capacity())).insert(cpu);
                linked.push(cpu);
            }
        }
        self.findings.missing("node-from-link", "node/nodeN/cpulist", &linked, "the link in the CPU's folder is used");
    }

    /// All rows of distances, in the order of `ids`. What a node's file does not say is the distance of the way back,
    /// else 10 for the node itself and 20 for others.
    fn distances(&mut self, ids: &[u32]) -> Vec<Vec<u32>> {
        let rows: Vec<Row> = ids.iter().map(|&id| self.row(id, ids)).collect();
        let silent = rows.iter().filter(|row| row.is_none()).count();
        if silent > 0 && ids.len() > 1 {
            let message = match rows.len() - silent {
                0 => "10 in the node and 20 outside are taken",
                _ => "the ways back are taken",
            };
            let message = format!("missing for {silent} of {} nodes; {message}", ids.len());
            self.findings.warn("distance-missing", None, format!("{NODE}/nodeN/distance"), message);
        }
        let stated = |from: usize, to: usize| rows[from].as_ref().and_then(|row| row[to]);
        let mut out = vec![vec![0; ids.len()]; ids.len()];
        for from in 0..ids.len() {
            for to in 0..ids.len() {
                out[from][to] = stated(from, to).unwrap_or_else(|| {
                    let taken = stated(to, from).unwrap_or(default_distance(from == to));
                    if rows[from].is_some() {
                        let message = format!("has no valid distance to node{}; {taken} is taken", ids[to]);
                        let path = format!("{NODE}/node{}/distance", ids[from]);
                        self.findings.warn("distance-invalid", None, path, message);
                    }
                    taken
                });
            }
        }
        out
    }

    fn row(&mut self, id: u32, ids: &[u32]) -> Row {
        let path = format!("{NODE}/node{id}/distance");
        let text = read_text(self.tree, &path)?;
        let row: Vec<Option<u32>> = text.split_whitespace().map(|number| number.parse().ok()).collect();
        let by_id = row.len() != ids.len();
        if by_id {
            let message = format!("has {} entries for {} nodes; they are taken by node number", row.len(), ids.len());
            self.findings.warn("distance-length", None, path, message);
        }
        let entry = |(position, &other): (usize, &u32)| {
            let entry = row.get(if by_id { other as usize } else { position }).copied().flatten();
            entry.filter(|&distance| is_distance(distance, other == id))
        };
        Some(ids.iter().enumerate().map(entry).collect())
    }
}
