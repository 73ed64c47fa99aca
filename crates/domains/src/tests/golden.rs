//! Domains that are known: published, or derived by hand from the kernel's rules.

use huddle_machine::{Arch, CpuId, CpuSet, Partition};

use super::*;
use crate::{NO_LLC, build, build_for};

const PLACED: &str = "NEWIDLE EXEC FORK WAKE_AFFINE";

#[test]
fn kunpeng_one_node_rfc2_has_cl_of_4_below_mc_of_24() {
    let tree = tree(&kunpeng_node(), "5.9+rfc2");
    assert_eq!(chain(&tree, 0), ["CL 0-3 4/8/32/117/1", "MC 0-23 24/48/32/117/1"]);
    assert_eq!(chain(&tree, 23), ["CL 20-23 4/8/32/117/1", "MC 0-23 24/48/32/117/1"]);
    for domain in domains(&tree, 0) {
        assert_eq!(flags(domain.flags), format!("{PLACED} SHARE_LLC PREFER_SIBLING"));
    }
    assert_eq!(group_spans(&tree, 5, 0), ["5", "6", "7", "4"]);
    assert_eq!(group_spans(&tree, 5, 1), ["4-7", "8-11", "12-15", "16-19", "20-23", "0-3"]);
    assert!(!tree.cluster_active && tree.complaints.is_empty());
    assert_eq!((tree.cached[5].sd_llc_id, tree.cached[5].sd_share_id, tree.cached[5].sd_llc_size), (0, 0, 24));
    assert_eq!(tree.span(tree.cluster_raw[5]).to_string(), "4-7");
}

#[test]
fn kunpeng_one_node_without_cluster_level_balances_between_cpus() {
    for (name, expected) in [("5.9", "MC 0-23 24/48/32/117/1"), ("5.10", "MC 0-23 24/48/16/117/1")] {
        let tree = tree(&kunpeng_node(), name);
        assert_eq!(chain(&tree, 7), [expected], "{name}");
        assert_eq!(group_spans(&tree, 7, 0)[..2], ["7", "8"]);
        assert_eq!(groups(&tree, 7, 0).len(), 24);
    }
}

#[test]
fn kunpeng_6_7_shows_what_debugfs_shows() {
    let (topology, kernel) = (kunpeng(), kernel("6.7"));
    let tree = build(&topology, &kernel);
    assert_eq!(
        chain(&tree, 0),
        [
            "CLS 0-3 4/8/16/117/1",
            "MC 0-23 24/48/16/117/1",
            "NUMA 0-47 48/96/16/117/2",
            "NUMA 0-71 72/144/16/117/2",
            "NUMA 0-95 96/192/16/117/2"
        ]
    );
    let seen: Vec<(u32, String, String)> = tree
        .chain(CpuId(0))
        .map(|id| (tree.domain(id).level, flags(tree.domain(id).flags), flags(tree.first_group(id).flags)))
        .collect();
    let cls = format!("{PLACED} CLUSTER SHARE_LLC PREFER_SIBLING");
    let mc = format!("{PLACED} SHARE_LLC PREFER_SIBLING");
    let near = format!("{PLACED} SERIALIZE OVERLAP NUMA");
    let far = "NEWIDLE SERIALIZE OVERLAP NUMA".to_owned();
    assert_eq!(
        seen,
        [
            (1, cls.clone(), String::new()),
            (2, mc.clone(), cls),
            (5, near.clone(), mc),
            // 25 spans what 16 spans on node 0 and is gone; its group's flags follow the one that stayed
            (7, far.clone(), near),
            (8, far.clone(), far)
        ]
    );
    // only the first group follows a removed child, the other keeps NODE's
    assert_eq!(flags(groups(&tree, 0, 2)[1].flags), format!("{PLACED} PREFER_SIBLING"));
    let printed = domains(&tree, 0)[0].flags.printed(&kernel).join(" ");
    assert_eq!(
        printed,
        "SD_BALANCE_NEWIDLE SD_BALANCE_EXEC SD_BALANCE_FORK SD_WAKE_AFFINE SD_CLUSTER SD_SHARE_PKG_RESOURCES \
         SD_PREFER_SIBLING"
    );
    assert!(tree.cluster_active && !tree.smt_active && !tree.asym_active && tree.complaints.is_empty());
    let cached = tree.cached[30];
    assert_eq!((cached.sd_llc_id, cached.sd_share_id, cached.sd_llc_size, cached.llc_index), (24, 28, 24, 1));
    assert_eq!((tree.nr_llcs, tree.node_of[30]), (4, 1));
}

#[test]
fn kunpeng_four_nodes_have_chains_by_their_row_of_distances() {
    let tree = tree(&kunpeng(), "6.7");
    let numa = |cpu| -> Vec<(u32, String)> {
        let domains = domains(&tree, cpu);
        domains[2..].iter().map(|domain| (domain.level, tree.span(domain.span).to_string())).collect()
    };
    let expected =
        |list: &[(u32, &str)]| list.iter().map(|&(level, span)| (level, span.to_owned())).collect::<Vec<_>>();
    assert_eq!(numa(0), expected(&[(5, "0-47"), (7, "0-71"), (8, "0-95")]));
    assert_eq!(numa(24), expected(&[(5, "0-47"), (6, "0-71"), (7, "0-95")]));
    assert_eq!(numa(48), expected(&[(5, "48-95"), (6, "24-95"), (7, "0-95")]));
    assert_eq!(numa(95), expected(&[(5, "48-95"), (7, "24-95"), (8, "0-95")]));
    // distance 25 is near, 32 and 33 are far
    assert!(domains(&tree, 24)[3].flags.has(Flags::WAKE_AFFINE));
    for domain in [domains(&tree, 24)[4], domains(&tree, 0)[3], domains(&tree, 0)[4]] {
        let placing = Flags::BALANCE_EXEC.with(Flags::BALANCE_FORK).with(Flags::WAKE_AFFINE);
        assert_eq!(Flags(domain.flags.0 & placing.0), Flags::default());
    }
    let allowed: Vec<u32> = domains(&tree, 0).iter().map(|domain| domain.imb_numa_nr).collect();
    assert_eq!(allowed, [0, 0, 3, 3, 6]);
}

#[test]
fn kunpeng_far_groups_descend_into_the_span_from_5_14_and_reach_out_before() {
    let topology = kunpeng();
    let (older, newer) = (tree(&topology, "5.10"), tree(&topology, "5.14"));
    // MC, then the levels 16, 32, 33; CPU 0 at 32 spans nodes 0 to 2
    assert_eq!(group_spans(&older, 0, 2), ["0-47", "24-95"]);
    assert_eq!(group_spans(&newer, 0, 2), ["0-47", "48-71"]);
    assert_eq!(older.span(groups(&older, 0, 2)[1].balance_mask).to_string(), "48-71");
    assert_eq!(newer.span(groups(&newer, 0, 2)[1].balance_mask).to_string(), "48-71");
    assert_eq!(group_spans(&newer, 0, 3), ["0-71", "24-95"]);
    assert_eq!(newer.span(groups(&newer, 0, 3)[1].balance_mask).to_string(), "72-95");
    // the group descended to level 16 shares its capacity with node 2's own group there
    let own = groups(&newer, 48, 1)[0];
    assert_eq!(
        (newer.span(own.span).to_string().as_str(), own.capacity_id),
        ("48-71", groups(&newer, 0, 2)[1].capacity_id)
    );
}

#[test]
fn kunpeng_with_32_cores_per_node_has_cls_4_mc_32() {
    let sizes = Sizes { smt: 1, cluster: 4, llc: 32, package: 64, node: 32 };
    let distances: [&[u32]; 4] = [&[10, 16, 32, 33], &[16, 10, 25, 32], &[32, 25, 10, 16], &[33, 32, 16, 10]];
    let tree = tree(&machine(Arch::Arm64, 128, &sizes, &distances, in_order), "6.7");
    assert_eq!(spans(&tree, 64)[..3], ["CLS 64-67", "MC 64-95", "NUMA 64-127"]);
}

#[test]
fn jacobsville_has_clusters_with_the_level_and_none_without() {
    let topology = jacobsville();
    assert_eq!(chain(&tree(&topology, "5.14"), 9), ["MC 0-23 24/48/16/117/1"]);
    // RFC v2 is arm64 only
    assert_eq!(chain(&tree(&topology, "5.9+rfc2"), 9), ["MC 0-23 24/48/32/117/1"]);
    for (name, own) in [("5.14+cluster", false), ("6.1", false), ("6.7", true)] {
        let tree = tree(&topology, name);
        assert_eq!(chain(&tree, 9), ["CLS 8-11 4/8/16/117/1", "MC 0-23 24/48/16/117/1"], "{name}");
        assert_eq!(domains(&tree, 9)[0].flags.has(Flags::CLUSTER), own, "{name}");
        assert_eq!((tree.cluster_active, tree.cached[9].sd_share_id), (own, if own { 8 } else { 0 }), "{name}");
    }
}

#[test]
fn xeon_88_threads_has_smt_mc_numa() {
    for (name, mc) in [("5.9", "MC 0-21,44-65 44/88/32/117/1"), ("6.7", "MC 0-21,44-65 44/88/16/117/1")] {
        let tree = tree(&skl(), name);
        let factor = if name == "5.9" { (32, 125) } else { (16, 117) };
        let smt = format!("SMT 1,45 2/4/{}/110/0", factor.0);
        let numa = format!("NUMA 0-87 88/176/{}/{}/2", factor.0, factor.1);
        assert_eq!(chain(&tree, 45), [&smt, mc, &numa], "{name}");
        // the list starts at the CPU's own core and wraps
        assert_eq!(group_spans(&tree, 45, 0), ["45", "1"]);
        assert_eq!(group_spans(&tree, 45, 1)[..2], ["1,45", "2,46"]);
        assert_eq!(group_spans(&tree, 45, 1)[21], "0,44");
        assert_eq!(groups(&tree, 45, 1)[0].cores, 1);
        assert_eq!(groups(&tree, 45, 2).iter().map(|group| group.cores).collect::<Vec<_>>(), [22, 22]);
        assert!(tree.smt_active);
        assert_eq!(tree.cached[45].sd_share_id, 0);
        assert_eq!(tree.cached[45].sd_llc_id, 0);
        assert_eq!(tree.cached[87].sd_llc_id, 22);
    }
}

#[test]
fn altra_clusters_wider_than_the_cache_by_release() {
    let topology = altra();
    // no cluster level: MC is a single CPU and goes
    let v5_10 = tree(&topology, "5.10");
    assert_eq!(spans(&v5_10, 0), ["DIE 0-79", "NUMA 0-159"]);
    assert_eq!((v5_10.cached[3].sd_llc, v5_10.cached[3].sd_llc_size, v5_10.cached[3].sd_llc_id), (None, 1, 3));
    assert_eq!(v5_10.nr_llcs, 160);
    // 5.16: the builder widens MC and complains for every CPU
    let v5_16 = tree(&topology, "5.16");
    assert_eq!(spans(&v5_16, 3), ["CLS 2-3", "DIE 0-79", "NUMA 0-159"]);
    assert_eq!(v5_16.complaints.len(), 160);
    assert_eq!(v5_16.complaints[0], "arch topology borken: the CLS domain not a subset of the MC domain");
    // 5.18's widening alone
    let mut v5_18 = kernel("5.16");
    v5_18.domains.cluster.as_mut().unwrap().limits = crate::ClusterLimits::WidenCore;
    let v5_18 = build(&topology, &v5_18);
    assert_eq!(spans(&v5_18, 3), ["CLS 2-3", "DIE 0-79", "NUMA 0-159"]);
    assert!(v5_18.complaints.is_empty());
    // 6.0 on: the cluster is not narrower than the widened MC, so that MC is the one that stays
    for name in ["6.0", "6.1", "6.7"] {
        let tree = tree(&topology, name);
        let package = if name == "6.7" { "PKG 0-79" } else { "DIE 0-79" };
        assert_eq!(spans(&tree, 3), ["MC 2-3", package, "NUMA 0-159"], "{name}");
        assert!(tree.complaints.is_empty(), "{name}");
        assert_eq!((tree.cached[3].sd_llc_id, tree.cached[3].sd_share_id), (2, 2), "{name}");
    }
}

#[test]
fn arm_machine_without_cache_information_has_mc_of_the_package() {
    let mut topology = altra();
    topology.caches.clear();
    assert_eq!(spans(&tree(&topology, "5.10"), 3), ["MC 0-79", "NUMA 0-159"]);
    assert_eq!(spans(&tree(&topology, "6.7"), 3), ["CLS 2-3", "MC 0-79", "NUMA 0-159"]);
}

#[test]
fn hybrid_has_clusters_of_small_cores_from_6_7() {
    let topology = hybrid();
    for name in ["5.14+cluster", "6.1"] {
        let tree = tree(&topology, name);
        assert_eq!(spans(&tree, 0), ["SMT 0-1", "MC 0-23"], "{name}");
        assert_eq!(spans(&tree, 20), ["MC 0-23"], "{name}");
    }
    let tree = tree(&topology, "6.7");
    assert_eq!(spans(&tree, 0), ["SMT 0-1", "MC 0-23"]);
    assert_eq!(spans(&tree, 20), ["CLS 20-23", "MC 0-23"]);
    let mc = groups(&tree, 20, 1);
    assert_eq!(mc.len(), 10);
    assert_eq!((mc[0].weight, mc[0].cores), (4, 4));
    assert_eq!((mc[1].weight, mc[1].cores), (2, 1));
    assert!(mc[0].flags.has(Flags::CLUSTER) && mc[1].flags.has(Flags::SHARE_CPUCAPACITY));
    // a large core shares its LLC's id
    assert_eq!((tree.cached[3].sd_share_id, tree.cached[17].sd_share_id, tree.cached[22].sd_share_id), (0, 16, 20));
}

#[test]
fn clusters_of_smt_cores_have_three_levels() {
    let sizes = Sizes { smt: 2, cluster: 8, llc: 32, package: 32, node: 32 };
    for arch in [Arch::Arm64, Arch::X86_64] {
        let tree = tree(&machine(arch, 32, &sizes, &[&[10]], in_order), "6.7");
        assert_eq!(spans(&tree, 13), ["SMT 12-13", "CLS 8-15", "MC 0-31"]);
        assert_eq!(group_spans(&tree, 13, 1), ["12-13", "14-15", "8-9", "10-11"]);
        assert_eq!((groups(&tree, 13, 2)[0].weight, groups(&tree, 13, 2)[0].cores), (8, 4));
    }
}

#[test]
fn cluster_as_wide_as_the_llc_leaves_one_of_the_two() {
    let sizes = Sizes { smt: 1, cluster: 8, llc: 8, package: 16, node: 16 };
    // x86: masks as they are; CLS stays, takes MC's preference and becomes the LLC domain
    let x86 = tree(&machine(Arch::X86_64, 16, &sizes, &[&[10]], in_order), "6.7");
    assert_eq!(spans(&x86, 9), ["CLS 8-15", "PKG 0-15"]);
    let cached = x86.cached[9];
    assert_eq!(x86.domain(cached.sd_llc.unwrap()).name, "CLS");
    assert_eq!((cached.sd_llc_id, cached.sd_share_id), (8, 8));
    assert!(!groups(&x86, 9, 0)[0].flags.has(Flags::CLUSTER));
    // arm64 from 6.1: the cluster mask is cut to the core
    let arm = machine(Arch::Arm64, 16, &sizes, &[&[10]], in_order);
    assert_eq!(spans(&tree(&arm, "6.7"), 9), ["MC 8-15", "PKG 0-15"]);
    assert_eq!(spans(&tree(&arm, "5.16"), 9), ["CLS 8-15", "DIE 0-15"]);
}

#[test]
fn cluster_equal_to_the_smt_core_goes() {
    let sizes = Sizes { smt: 2, cluster: 2, llc: 8, package: 8, node: 8 };
    let tree = tree(&machine(Arch::X86_64, 8, &sizes, &[&[10]], in_order), "6.7");
    assert_eq!(chain(&tree, 5), ["SMT 4-5 2/4/16/110/0", "MC 0-7 8/16/16/117/1"]);
    assert_eq!(flags(domains(&tree, 5)[0].flags), format!("{PLACED} SHARE_CPUCAPACITY SHARE_LLC PREFER_SIBLING"));
    // the key was switched on while the level existed; ids are those of the LLC
    assert!(tree.cluster_active);
    assert_eq!(tree.cached[5].sd_share_id, 0);
    assert!(!groups(&tree, 5, 1)[0].flags.has(Flags::CLUSTER));
}

#[test]
fn guest_of_48_cpus_without_intermediate_node_by_release() {
    let sizes = Sizes { smt: 2, cluster: 48, llc: 48, package: 48, node: 48 };
    let guest = machine(Arch::Arm64, 48, &sizes, &[&[10]], in_order);
    let v6_0 = tree(&guest, "6.0");
    assert_eq!(v6_0.complaints.len(), 48);
    assert_eq!(v6_0.complaints[0], "arch topology borken: the SMT domain not a subset of the CLS domain");
    for (name, tree) in [("6.0", &v6_0), ("6.1", &tree(&guest, "6.1")), ("6.7", &tree(&guest, "6.7"))] {
        assert_eq!(spans(tree, 3), ["SMT 2-3", "MC 0-47"], "{name}");
        assert_eq!(tree.complaints.is_empty(), name != "6.0", "{name}");
    }
}

#[test]
fn package_equal_to_the_llc_keeps_the_name_and_numbers_of_mc() {
    let tree = tree(&kunpeng(), "5.9");
    let domain = domains(&tree, 0)[0];
    assert_eq!((domain.name, domain.imbalance_pct, domain.level), ("MC", 117, 1));
    assert_eq!((domains(&tree, 0)[1].name, domains(&tree, 0)[1].level), ("NUMA", 4));
}

#[test]
fn preference_of_a_removed_package_level_is_handed_to_mc_before_4_20() {
    let mut kernel = kernel("5.9");
    kernel.domains.prefer_sibling_everywhere = false;
    let handed = build(&kunpeng(), &kernel);
    assert!(domains(&handed, 0)[0].flags.has(Flags::PREFER_SIBLING));
    // one node: MC spans the machine and no package level is ever made
    let single = build(&kunpeng_node(), &kernel);
    assert!(!domains(&single, 0)[0].flags.has(Flags::PREFER_SIBLING));
    // two LLCs in the package: the package level stays and keeps it
    let sizes = Sizes { smt: 1, cluster: 1, llc: 4, package: 8, node: 8 };
    let kept = build(&machine(Arch::X86_64, 8, &sizes, &[&[10]], in_order), &kernel);
    let prefers: Vec<bool> = domains(&kept, 0).iter().map(|domain| domain.flags.has(Flags::PREFER_SIBLING)).collect();
    assert_eq!((spans(&kept, 0), prefers), (vec!["MC 0-3".to_owned(), "DIE 0-7".to_owned()], vec![false, true]));
}

/// Level numbers of a CPU's domains.
fn levels(tree: &DomainTree, cpu: u32) -> Vec<u32> {
    domains(tree, cpu).iter().map(|domain| domain.level).collect()
}

#[test]
fn jacobsville_counts_its_levels_from_the_cluster_from_6_17() {
    let topology = jacobsville();
    assert_eq!(levels(&tree(&topology, "6.12"), 0), [1, 2]);
    for record in ["6.17", "7.1"] {
        let tree = tree(&topology, record);
        assert_eq!(levels(&tree, 0), [0, 1], "{record}");
        assert_eq!(chain(&tree, 0), ["CLS 0-3 4/8/16/117/1", "MC 0-23 24/48/16/117/1"], "{record}");
    }
    // cores with threads, and any arm64 machine, keep the level
    assert_eq!(levels(&tree(&skl(), "6.17"), 0), [0, 2, 5]);
    assert_eq!(levels(&tree(&kunpeng_node(), "6.17"), 0), [1, 2]);
}

#[test]
fn xeon_numa_groups_have_no_flag_of_their_own_from_6_17() {
    let numa = |record| flags(domains(&tree(&skl(), record), 0)[2].flags);
    assert_eq!(numa("6.12"), format!("{PLACED} SERIALIZE OVERLAP NUMA"));
    assert_eq!(numa("6.17"), format!("{PLACED} SERIALIZE NUMA"));
}

#[test]
fn s390_has_books_and_drawers_above_the_socket() {
    // Two threads a core, sockets of 4 CPUs, books of 8, drawers of 16, two drawers; caches of a core do not matter.
    let sizes = Sizes { smt: 2, cluster: 2, llc: 2, package: 4, node: 32 };
    let mut topology = machine(Arch::Other, 32, &sizes, &[&[10]], in_order);
    let every = |size: u32| Some(Partition::from_ids(&topology.online, |cpu| (cpu.0 / size).into()));
    (topology.book, topology.drawer) = (every(8), every(16));
    let shown = ["SMT 4-5 2/4/16/110/0", "MC 4-7 4/8/16/117/1", "BOOK 0-7 8/16/16/117/1", "DRAWER 0-15 16/32/16/117/1"];
    for (record, top) in [("5.10", "DIE"), ("6.7", "PKG")] {
        let tree = tree(&topology, record);
        let top = format!("{top} 0-31 32/64/16/117/1");
        assert_eq!(chain(&tree, 5), [&shown[..], &[top.as_str()]].concat(), "{record}");
        assert_eq!(flags(domains(&tree, 5)[2].flags), format!("{PLACED} PREFER_SIBLING"), "{record}");
        assert_eq!(group_spans(&tree, 5, 2), ["4-7", "0-3"], "{record}");
        assert_eq!(tree.cached[5].sd_llc_size, 4, "{record}");
    }
    topology.drawer = None;
    assert_eq!(spans(&tree(&topology, "6.7"), 5)[2..], ["BOOK 0-7", "PKG 0-31"]);
}

#[test]
fn x86_package_of_several_nodes_has_node_instead_of_the_package_level() {
    let sizes = Sizes { smt: 1, cluster: 1, llc: 8, package: 32, node: 16 };
    let build = |arch| tree(&machine(arch, 32, &sizes, &[&[10, 12], &[12, 10]], in_order), "6.7");
    assert_eq!(spans(&build(Arch::X86_64), 0), ["MC 0-7", "NODE 0-15", "NUMA 0-31"]);
    assert_eq!(spans(&build(Arch::Arm64), 0), ["MC 0-7", "PKG 0-15", "NUMA 0-31"]);
}

#[test]
fn x86_llc_of_two_nodes_is_split_by_node() {
    let sizes = Sizes { smt: 1, cluster: 1, llc: 16, package: 16, node: 8 };
    let tree = tree(&machine(Arch::X86_64, 16, &sizes, &[&[10, 11], &[11, 10]], in_order), "6.1");
    assert_eq!(spans(&tree, 12), ["MC 8-15", "NUMA 0-15"]);
    assert!(tree.complaints.is_empty());
}

#[test]
fn interleaved_nodes_have_groups_in_the_order_of_the_walk() {
    let sizes = Sizes { smt: 1, cluster: 1, llc: 4, package: 4, node: 4 };
    let odd_even = machine(Arch::X86_64, 8, &sizes, &[&[10, 21], &[21, 10]], |index| index % 4 * 2 + index / 4);
    let tree = tree(&odd_even, "6.7");
    assert_eq!(spans(&tree, 3), ["MC 1,3,5,7", "NUMA 0-7"]);
    assert_eq!(group_spans(&tree, 3, 0), ["3", "5", "7", "1"]);
    assert_eq!(group_spans(&tree, 3, 1), ["1,3,5,7", "0,2,4,6"]);
}

#[test]
fn ring_order_is_that_of_the_last_cpus_walk() {
    let mut topology =
        machine(Arch::Arm64, 6, &Sizes { smt: 1, cluster: 1, llc: 6, package: 6, node: 6 }, &[&[10]], in_order);
    let online = topology.online.clone();
    topology.cluster = Partition::from_ids(&online, |cpu| if cpu.0 == 5 { 2 } else { cpu.0.into() });
    let tree = tree(&topology, "6.7");
    // CPU 5 links last: its own group, then from 0 on; CPU 0's walk would have met the cluster between 1 and 3
    assert_eq!(group_spans(&tree, 2, 1), ["2,5", "0", "1", "3", "4"]);
    assert_eq!(group_spans(&tree, 0, 0), ["0", "1", "3", "4", "2,5"]);
}

#[test]
fn one_cpu_has_no_domains() {
    let sizes = Sizes { smt: 1, cluster: 1, llc: 1, package: 1, node: 1 };
    for name in crate::kernel_names() {
        let tree = tree(&machine(Arch::X86_64, 1, &sizes, &[], in_order), &name);
        assert_eq!((tree.base[0], tree.domains.len(), tree.groups.len()), (None, 0, 0), "{name}");
        assert_eq!((tree.cached[0].sd_llc_size, tree.cached[0].llc_index, tree.nr_llcs), (1, 0, 1), "{name}");
    }
}

#[test]
fn little_cores_make_capacity_flags() {
    let sizes = Sizes { smt: 1, cluster: 4, llc: 8, package: 8, node: 8 };
    let mut topology = machine(Arch::Arm64, 8, &sizes, &[&[10]], in_order);
    topology.capacity[..4].fill(400);
    let old = tree(&topology, "5.10");
    assert_eq!(flags(domains(&old, 0)[0].flags), format!("{PLACED} ASYM_CPUCAPACITY SHARE_LLC PREFER_SIBLING"));
    let new = tree(&topology, "6.7");
    assert!(new.asym_active && old.asym_active);
    assert_eq!(
        domains(&new, 5).iter().map(|domain| flags(domain.flags)).collect::<Vec<_>>(),
        [
            // no preference below a domain of several capacities
            format!("{PLACED} CLUSTER SHARE_LLC"),
            format!("{PLACED} ASYM_CPUCAPACITY ASYM_CPUCAPACITY_FULL SHARE_LLC PREFER_SIBLING")
        ]
    );
    assert_eq!(new.domain(new.cached[5].sd_asym_cpucapacity.unwrap()).name, "MC");
    assert_eq!(old.domain(old.cached[5].sd_asym_cpucapacity.unwrap()).name, "MC");
}

#[test]
fn capacity_full_needs_every_capacity_of_the_partition() {
    let sizes = Sizes { smt: 1, cluster: 4, llc: 4, package: 12, node: 12 };
    let mut topology = machine(Arch::Arm64, 12, &sizes, &[&[10]], in_order);
    topology.capacity = [[300, 300, 600, 600], [600; 4], [1024; 4]].concat();
    let tree = tree(&topology, "6.7");
    let asym = |cpu: u32| -> Vec<(bool, bool)> {
        let flags = domains(&tree, cpu).iter().map(|domain| domain.flags).collect::<Vec<_>>();
        let both = |f: &Flags| (f.has(Flags::ASYM_CPUCAPACITY), f.has(Flags::ASYM_CPUCAPACITY_FULL));
        flags.iter().map(both).collect()
    };
    assert_eq!(asym(0), [(true, false), (true, true)]);
    assert_eq!(asym(5), [(false, false), (true, true)]);
}

#[test]
fn partition_keeps_the_numbers_of_the_whole_mask_until_7_1() {
    let topology = kunpeng_node();
    let partition = CpuSet::from_cpus(24, [0, 4, 8, 12]);
    let tree = build_for(&topology, &kernel("6.17"), &partition);
    assert_eq!(chain(&tree, 8), ["MC 0,4,8,12 24/48/16/117/1"]);
    assert_eq!(domains(&tree, 8)[0].weight, 4);
    assert_eq!((tree.base[1], tree.cached[1].llc_index, tree.nr_llcs), (None, NO_LLC, 1));
    assert_eq!(tree.online, partition);
    for record in ["6.18.33", "7.1"] {
        let tree = build_for(&topology, &kernel(record), &partition);
        assert_eq!(chain(&tree, 8), ["MC 0,4,8,12 4/8/16/117/1"], "{record}");
    }
}

#[test]
fn partition_of_one_cluster_ends_at_the_cluster() {
    let tree = build_for(&kunpeng_node(), &kernel("6.7"), &CpuSet::from_cpus(24, 4..8));
    assert_eq!(spans(&tree, 6), ["CLS 4-7"]);
    assert_eq!((tree.cached[6].sd_llc_id, tree.cached[6].sd_llc_size), (4, 4));
}

#[test]
fn offline_cpus_are_in_no_domain() {
    let mut topology = kunpeng_node();
    topology.online = CpuSet::from_cpus(24, (0..24).filter(|cpu| ![1, 2, 3, 23].contains(cpu)));
    let online = topology.online.clone();
    topology.smt = Partition::singletons(&online);
    topology.cluster = Partition::from_ids(&online, |cpu| (cpu.0 / 4).into());
    for level in [&mut topology.llc, &mut topology.package, &mut topology.node] {
        *level = Partition::from_ids(&online, |_| 0);
    }
    topology.nodes[0].cpus = online;
    let tree = tree(&topology, "6.7");
    assert_eq!(spans(&tree, 0), ["MC 0,4-22"]);
    assert_eq!(spans(&tree, 22), ["CLS 20-22", "MC 0,4-22"]);
    assert_eq!(chain(&tree, 22)[0], "CLS 20-22 3/6/16/117/1");
    assert_eq!(tree.base[1], None);
    assert!(tree.span(tree.smt[1]).is_empty());
}

#[test]
fn distances_outside_the_allowed_range_leave_no_numa_levels() {
    let sizes = Sizes { smt: 1, cluster: 1, llc: 4, package: 4, node: 4 };
    let tree = tree(&machine(Arch::Arm64, 8, &sizes, &[&[10, 300], &[300, 10]], in_order), "6.7");
    assert_eq!(spans(&tree, 0), ["MC 0-3"]);
    assert_eq!(tree.complaints, ["NUMA distance 300 from node 0 to 1 is outside 10-255: no NUMA levels"]);
}

#[test]
fn nodes_of_a_star_skip_cpus_with_shallower_chains() {
    let sizes = Sizes { smt: 1, cluster: 1, llc: 2, package: 2, node: 2 };
    let star = machine(Arch::Arm64, 6, &sizes, &[&[10, 20, 30], &[20, 10, 20], &[30, 20, 10]], in_order);
    for name in ["5.10", "6.7"] {
        let tree = tree(&star, name);
        assert_eq!(spans(&tree, 2), ["MC 2-3", "NUMA 0-5"], "{name}");
        assert_eq!(spans(&tree, 0), ["MC 0-1", "NUMA 0-3", "NUMA 0-5"], "{name}");
        assert_eq!(group_spans(&tree, 0, 2), ["0-3", "2-5"], "{name}");
        assert_eq!(group_spans(&tree, 2, 1), ["2-3", "4-5", "0-1"], "{name}");
    }
    // 30 is the limit itself, and still near
    assert!(domains(&tree(&star, "6.7"), 0)[2].flags.has(Flags::WAKE_AFFINE));
}

#[test]
fn node_that_sees_all_others_nearer_than_they_see_it_adds_no_group_above() {
    let sizes = Sizes { smt: 1, cluster: 1, llc: 2, package: 2, node: 2 };
    let lopsided = machine(Arch::Arm64, 4, &sizes, &[&[10, 30], &[20, 10]], in_order);
    let tree = tree(&lopsided, "6.7");
    // node 1's chain ends at distance 20, node 0's only domain of both nodes lies above that
    assert_eq!(spans(&tree, 0), ["MC 0-1", "NUMA 0-3"]);
    assert_eq!(group_spans(&tree, 0, 1), ["0-1"]);
    assert_eq!(group_spans(&tree, 2, 1), ["2-3", "0-1"]);
}

#[test]
fn eight_thousand_cpus_share_spans_and_lists() {
    let sizes = Sizes { smt: 1, cluster: 4, llc: 32, package: 64, node: 32 };
    let rows: Vec<Vec<u32>> = (0..256)
        .map(|from: usize| {
            (0..256).map(|to: usize| if from == to { 10 } else { 20 + 10 * u32::from(from / 2 != to / 2) }).collect()
        })
        .collect();
    let rows: Vec<&[u32]> = rows.iter().map(Vec::as_slice).collect();
    let tree = tree(&machine(Arch::Arm64, 8192, &sizes, &rows, in_order), "6.7");
    assert_eq!(spans(&tree, 8191), ["CLS 8188-8191", "MC 8160-8191", "NUMA 8128-8191", "NUMA 0-8191"]);
    assert_eq!(tree.domains.len(), 4 * 8192);
    // clusters, nodes, pairs of nodes from either side, the whole seen from every pair
    assert_eq!(tree.group_lists.len(), 2048 + 256 + 256 + 128);
    assert!(tree.spans.len() < 11_000, "{}", tree.spans.len());
}
