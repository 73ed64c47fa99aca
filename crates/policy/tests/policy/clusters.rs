//! The clusters of a plan: which CPUs, in which order, and whose are together.

use huddle_domains::{Kernel, build_for};
use huddle_machine::{Arch, CpuId, CpuSet, Layout, Level, Partition, Topology};
use huddle_policy::{Clusters, Mask, Plan};

use crate::machines::{Lab, policy, regular};

/// A machine's clusters with a partition of these CPUs.
fn lab(topology: Topology, partition: &str) -> Lab {
    let policy = policy("huddle-gather");
    let kernel = Kernel::load(&policy.kernel).unwrap();
    let partition = CpuSet::parse_list(partition).unwrap().resized(topology.nr_cpus());
    let tree = build_for(&topology, &kernel, &partition);
    Lab::with_tree(&policy, topology, tree)
}

/// On x86 no domain reaches beyond a last-level cache but the package's.
fn intel(counts: [usize; 6]) -> Topology {
    Topology::from_layout(Arch::X86_64, &Layout::new(counts)).unwrap()
}

/// A mask's CPUs, read as a second interpreter does.
fn cpus(plan: &Plan, mask: Mask) -> String {
    let mut set = CpuSet::new(plan.nr_cpus());
    for (word, bits) in (mask.first..).zip(&plan.pool()[mask.at as usize..][..mask.len as usize]) {
        set.words_mut()[word as usize] = *bits;
    }
    assert_eq!(set.len(), mask.weight as usize);
    set.to_string()
}

fn listed(plan: &Plan) -> Vec<String> {
    plan.clusters().iter().map(|&mask| cpus(plan, mask)).collect()
}

/// Index, then from and length of the run of the LLC and of the node.
fn runs(plan: &Plan, cpu: u32) -> (u32, [u32; 2], [u32; 2]) {
    let sets = plan.facts(CpuId(cpu)).unwrap().claim;
    let run = |clusters: Clusters| [clusters.from, clusters.len];
    (sets.index, run(sets.llc_clusters), run(sets.node_clusters))
}

#[test]
fn two_nodes_of_two_llcs_the_clusters_of_each_are_runs() {
    // Nodes of 8 CPUs, LLCs of 4, clusters of 2; CPUs 1 and 6 are isolated.
    let Lab { plan, .. } = lab(regular([1, 2, 2, 2, 2, 1]), "0,2-5,7-15");
    assert_eq!(listed(&plan), ["0", "2-3", "4-5", "7", "8-9", "10-11", "12-13", "14-15", "1", "6"]);
    assert_eq!(plan.online_clusters(), Clusters { from: 0, len: 8 });
    assert_eq!(cpus(&plan, plan.online()), "0,2-5,7-15");
    assert_eq!(runs(&plan, 0), (0, [0, 2], [0, 4]));
    assert_eq!(runs(&plan, 7), (3, [2, 2], [0, 4]));
    assert_eq!(runs(&plan, 9), (4, [4, 2], [4, 4]));
    // An isolated CPU is alone, in its cluster and in its LLC; its node is what the partition has of it.
    assert_eq!(runs(&plan, 6), (9, [9, 1], [0, 4]));
    let sets = plan.facts(CpuId(6)).unwrap().claim;
    assert_eq!([sets.cluster, sets.llc, sets.node].map(|mask| cpus(&plan, mask)), ["6", "6", "0,2-5,7"]);
    assert!(plan.facts(CpuId(16)).is_none());
}

#[test]
fn two_nodes_numbered_by_turns_are_listed_node_by_node() {
    let mut layout = Layout::new([1, 2, 1, 2, 2, 1]);
    layout.numbering = [Level::Thread, Level::Core, Level::Cluster, Level::Llc, Level::Package, Level::Node];
    let Lab { plan, .. } = lab(Topology::from_layout(Arch::Arm64, &layout).unwrap(), "0-7");
    // Node 0 has the even CPUs.
    assert_eq!(listed(&plan), ["0,4", "2,6", "1,5", "3,7"]);
    assert_eq!(runs(&plan, 3), (3, [2, 2], [2, 2]));
}

#[test]
fn a_cluster_is_at_least_a_core_and_at_most_an_llc() {
    // No clusters stated: each core of two threads is one.
    let mut topology = regular([1, 1, 1, 1, 3, 2]);
    topology.cluster = Partition::singletons(&topology.online);
    assert_eq!(listed(&lab(topology, "0-5").plan), ["0-1", "2-3", "4-5"]);
    // Clusters wider than the LLC are cut to it, where no cluster domain widens sd_llc.
    let mut topology = intel([1, 1, 2, 1, 4, 1]);
    topology.cluster = topology.node.clone();
    assert_eq!(listed(&Lab::new(&policy("huddle-gather"), topology, "5.9").plan), ["0-3", "4-7"]);
}

#[test]
fn llcs_of_one_cpu_have_no_domain_and_are_clusters() {
    let Lab { plan, .. } = lab(intel([1, 1, 4, 1, 1, 1]), "0-3");
    assert!(plan.facts(CpuId(2)).unwrap().llc.is_none());
    assert_eq!(listed(&plan), ["0", "1", "2", "3"]);
    assert_eq!(runs(&plan, 2), (2, [2, 1], [0, 4]));
}

#[test]
fn an_llc_wider_than_its_nodes_of_one_cpu_stays_together() {
    let mut topology = regular([1, 2, 1, 1, 1, 1]);
    topology.llc = topology.package.clone();
    let Lab { plan, .. } = lab(topology, "0-1");
    assert_eq!(listed(&plan), ["0", "1"]);
    assert_eq!(runs(&plan, 1), (1, [0, 2], [0, 2]));
}

#[test]
fn four_hundred_cpus_clusters_across_words_are_whole() {
    // Clusters of 40 CPUs: the second has CPUs of two words.
    let Lab { plan, .. } = lab(regular([1, 1, 2, 5, 40, 1]), "0-399");
    assert_eq!(listed(&plan)[1], "40-79");
    assert_eq!(runs(&plan, 215), (5, [5, 5], [0, 10]));
}
