//! The machines whose sched domains real kernels judge.

use huddle_machine::{Arch, Layout, NODE_RECLAIM_DISTANCE, Topology};

/// A machine of the matrix.
pub struct Machine {
    /// Its name; `./x vm --machine` takes it as well.
    pub name: &'static str,
    /// What it is there for.
    pub title: &'static str,
    arch: Arch,
    /// Packages, nodes of a package, LLCs of a node, clusters of an LLC, cores of a cluster, threads of a core.
    counts: [usize; 6],
    /// Node distances, row by row; 20 between any two nodes when empty.
    distances: &'static [&'static [u32]],
    /// See [`Topology::node_reclaim_distance`]: 32 asks for AMD's processors.
    node_reclaim_distance: u32,
    /// CPUs that go offline after the boot.
    pub offline: &'static [usize],
    /// Words for the kernel's command line.
    pub append: &'static str,
}

impl Machine {
    const fn x86(name: &'static str, title: &'static str, counts: [usize; 6]) -> Machine {
        Machine {
            name,
            title,
            arch: Arch::X86_64,
            counts,
            distances: &[],
            node_reclaim_distance: NODE_RECLAIM_DISTANCE,
            offline: &[],
            append: "",
        }
    }

    const fn arm64(name: &'static str, title: &'static str, counts: [usize; 6]) -> Machine {
        Machine { arch: Arch::Arm64, ..Machine::x86(name, title, counts) }
    }

    /// Its topology, as it is asked of the emulator.
    pub fn topology(&self) -> Option<Topology> {
        let mut topology = Topology::from_layout(self.arch, &Layout::new(self.counts))?;
        for (node, row) in topology.nodes.iter_mut().zip(self.distances) {
            node.distance = row.to_vec();
        }
        topology.node_reclaim_distance = self.node_reclaim_distance;
        Some(topology)
    }
}

/// Kunpeng 920: a near and a far node in the other package, five distances.
const KUNPENG: &[&[u32]] = &[&[10, 12, 20, 22], &[12, 10, 22, 24], &[20, 22, 10, 12], &[22, 24, 12, 10]];
/// A line of four nodes: groups that reach out of their domain.
const LINE: &[&[u32]] = &[&[10, 20, 30, 40], &[20, 10, 20, 30], &[30, 20, 10, 20], &[40, 30, 20, 10]];
/// Two packages of four nodes each, as EPYC states them.
const EIGHT: &[&[u32]] = &[
    &[10, 12, 12, 12, 32, 32, 32, 32],
    &[12, 10, 12, 12, 32, 32, 32, 32],
    &[12, 12, 10, 12, 32, 32, 32, 32],
    &[12, 12, 12, 10, 32, 32, 32, 32],
    &[32, 32, 32, 32, 10, 12, 12, 12],
    &[32, 32, 32, 32, 12, 10, 12, 12],
    &[32, 32, 32, 32, 12, 12, 10, 12],
    &[32, 32, 32, 32, 12, 12, 12, 10],
];

/// All of them; the first seven are the shapes that matter most, the rest what the builder may get wrong.
pub const MACHINES: &[Machine] = &[
    Machine::x86("clusters", "24 CPUs in 6 clusters", [1, 1, 1, 6, 4, 1]),
    Machine::x86("two-nodes", "2 nodes of 24 CPUs in 6 clusters", [2, 1, 1, 6, 4, 1]),
    Machine::x86("smt", "8 cores of 2 threads, cluster = core", [1, 1, 1, 8, 1, 2]),
    Machine::x86("cluster-llc", "3 LLCs of 4 CPUs, cluster = LLC", [1, 1, 3, 1, 4, 1]),
    Machine::x86("flat", "8 CPUs, no cluster", [1, 1, 1, 8, 1, 1]),
    Machine::x86("one", "1 CPU", [1, 1, 1, 1, 1, 1]),
    Machine {
        offline: &[3, 8, 9, 10, 11, 20],
        ..Machine::x86("offline", "24 CPUs in 6 clusters, CPUs 3, 8-11 and 20 offline", [1, 1, 1, 6, 4, 1])
    },
    Machine {
        append: "isolcpus=2,8-11",
        ..Machine::x86("isolated", "16 CPUs in 4 clusters, CPUs 2 and 8-11 isolated", [1, 1, 1, 4, 4, 1])
    },
    Machine::x86("smt-clusters", "4 clusters of 2 cores of 2 threads", [1, 1, 1, 4, 2, 2]),
    Machine::x86("two-llcs", "2 packages of 2 LLCs of 2 clusters, one node each", [2, 1, 2, 2, 2, 1]),
    Machine {
        distances: KUNPENG,
        ..Machine::x86("four-nodes", "2 packages of 2 nodes of 2 clusters, distances as Kunpeng's", [2, 2, 1, 2, 2, 1])
    },
    Machine { distances: LINE, ..Machine::x86("line", "4 packages, nodes in a line", [4, 1, 1, 2, 2, 1]) },
    Machine {
        distances: EIGHT,
        ..Machine::x86("eight-nodes", "2 packages of 4 nodes, far ones at 32", [2, 4, 1, 1, 2, 1])
    },
    Machine {
        distances: EIGHT,
        node_reclaim_distance: 32,
        ..Machine::x86("zen", "AMD: 2 packages of 4 nodes of 2 cores of 2 threads, far ones at 32", [2, 4, 1, 2, 1, 2])
    },
    Machine::arm64("arm64-clusters", "arm64: 24 CPUs in 6 clusters, no cache stated", [1, 1, 1, 6, 4, 1]),
    Machine {
        distances: KUNPENG,
        ..Machine::arm64("arm64-four-nodes", "arm64: 2 packages of 2 nodes of 2 clusters of 4", [2, 2, 1, 2, 4, 1])
    },
    Machine::arm64("arm64-smt", "arm64: 4 clusters of 2 cores of 2 threads", [1, 1, 1, 4, 2, 2]),
    Machine::arm64("arm64-package", "arm64: 8 CPUs, the cluster is the package", [1, 1, 1, 1, 8, 1]),
];

/// The machine of that name.
pub fn find(name: &str) -> Option<&'static Machine> {
    MACHINES.iter().find(|machine| machine.name == name)
}

#[cfg(test)]
mod tests {
    use super::MACHINES;
    use crate::shape::Shape;

    #[test]
    fn every_machine_of_the_matrix_can_be_asked_of_the_emulator() {
        for machine in MACHINES {
            let topology = machine.topology().expect(machine.name);
            assert!(Shape::of(machine.name, &topology).is_ok(), "{}", machine.name);
            assert!(machine.offline.iter().all(|&cpu| cpu != 0 && cpu < topology.nr_cpus()), "{}", machine.name);
        }
    }
}
