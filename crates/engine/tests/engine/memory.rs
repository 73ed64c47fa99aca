//! Memory-bound copies: what they cost each other follows from cache sizes and bandwidth.

use huddle_machine::{CostKey, Machine};
use huddle_program::MissCurve;
use huddle_workload::{Mcf, Workload};

use crate::world::{World, machine, scaled, undisturbed};

/// Elapsed ms of so many copies on these CPUs.
fn copies(machine: &Machine, policy: &str, count: u32, cpus: &str) -> f64 {
    let program = Workload::parse("mcf/copies,minstr=100").unwrap().program(count).unwrap();
    let world = World::new(machine, policy);
    world.run(&program, cpus, &[], 1).0.measured_ns as f64 / 1e6
}

/// The machine with all caches of a level grown by a factor.
fn with_cache(machine: &Machine, level: u32, factor: f64) -> Machine {
    let mut grown = machine.clone();
    for cache in grown.topology.caches.iter_mut().filter(|cache| cache.level == level) {
        cache.size = cache.size.map(|size| (size as f64 * factor) as u64);
    }
    grown
}

/// Without any limit on bandwidth.
fn endless_bandwidth(machine: &Machine) -> Machine {
    scaled(&scaled(machine, CostKey::ClusterBandwidth, 0.0), CostKey::NodeBandwidth, 0.0)
}

#[test]
fn jacobsville_a_lone_copy_takes_the_time_that_its_misses_cost() {
    let machine = endless_bandwidth(&undisturbed("jacobsville"));
    let Workload::Mcf(Mcf { million_instructions }) = Workload::parse("mcf/copies,minstr=100").unwrap() else {
        panic!("mcf/copies is mcf");
    };
    let program = Mcf { million_instructions }.program(1);
    let profile = program.profiles[0];
    let misses = |curve: MissCurve, bytes: f64| {
        curve.min + (curve.max - curve.min) * (1.0 + bytes / curve.scale).powf(-curve.exponent)
    };
    // 4.5 MiB of L2 and 15 MiB of L3, all its own.
    let (l2, l3) = (misses(profile.l2_misses, 4608.0 * 1024.0), misses(profile.llc_misses, 15.0 * 1024.0 * 1024.0));
    let l3 = l3.min(l2);
    let figure = |key| machine.costs.scalar(key);
    let stalls = (profile.l2_accesses - l2) * figure(CostKey::L2Latency)
        + (l2 - l3) * figure(CostKey::L3Latency)
        + l3 * figure(CostKey::DramLatency);
    let expected = million_instructions as f64 * 1000.0 * (profile.base_ns + stalls / profile.overlap) / 1e6;
    let elapsed = copies(&machine, "linux-5.14", 1, "0-23");
    assert!((elapsed / expected - 1.0).abs() < 0.01, "{elapsed} ms, {expected} ms expected");
}

#[test]
fn jacobsville_a_copy_alone_is_faster_than_among_three_in_its_cluster() {
    let machine = machine("jacobsville");
    let (alone, four) = (copies(&machine, "linux-5.14", 1, "0-3"), copies(&machine, "linux-5.14", 4, "0-3"));
    assert!(four > 1.15 * alone, "{alone} ms alone, {four} ms with three others");
}

#[test]
fn jacobsville_four_copies_are_faster_on_four_clusters_than_on_one() {
    let machine = endless_bandwidth(&machine("jacobsville"));
    let (one, four) = (copies(&machine, "linux-5.14", 4, "0-3"), copies(&machine, "linux-5.14", 4, "0,4,8,12"));
    assert!(one > 1.1 * four, "{one} ms on one cluster, {four} ms on four");
}

#[test]
fn jacobsville_more_cache_makes_a_copy_faster() {
    let machine = machine("jacobsville");
    for level in [2, 3] {
        let elapsed =
            [0.25, 1.0, 4.0].map(|factor| copies(&with_cache(&machine, level, factor), "linux-5.14", 1, "0-23"));
        assert!(elapsed[0] > elapsed[1] && elapsed[1] > elapsed[2], "level {level}: {elapsed:?} ms");
    }
}

#[test]
fn kunpeng_private_l2_makes_cluster_mates_no_slower_while_bandwidth_is_endless() {
    // Only the L3 of the node is shared, so it does not matter on which clusters four copies are.
    let machine = endless_bandwidth(&undisturbed("kunpeng920:nodes=1"));
    let (one, four) = (copies(&machine, "linux-5.14", 4, "0-3"), copies(&machine, "linux-5.14", 4, "0,4,8,12"));
    assert!((one / four - 1.0).abs() < 0.01, "{one} ms on one cluster, {four} ms on four");
}

#[test]
fn jacobsville_little_bandwidth_makes_copies_slower() {
    let machine = undisturbed("jacobsville");
    for key in [CostKey::ClusterBandwidth, CostKey::NodeBandwidth] {
        let elapsed = [1.0, 0.25, 0.1]
            .map(|factor| copies(&scaled(&endless_or(&machine, key), key, factor), "linux-5.14", 4, "0-3"));
        assert!(elapsed[0] < elapsed[1] && elapsed[1] < elapsed[2], "{key:?}: {elapsed:?} ms");
    }
}

/// The machine with only the limit of `key`.
fn endless_or(machine: &Machine, key: CostKey) -> Machine {
    let other = if key == CostKey::ClusterBandwidth { CostKey::NodeBandwidth } else { CostKey::ClusterBandwidth };
    scaled(machine, other, 0.0)
}

#[test]
fn jacobsville_six_copies_gain_by_the_cluster_level_and_one_and_24_do_not() {
    let machine = machine("jacobsville");
    let change = |count| {
        let elapsed = |policy| copies(&machine, policy, count, "0-23");
        elapsed("linux-5.14") / elapsed("linux-5.14-cluster") - 1.0
    };
    assert!(change(6) > 0.05, "six copies: {}", change(6));
    assert!(change(1).abs() < 0.02, "one copy: {}", change(1));
    assert!(change(24).abs() < 0.05, "24 copies: {}", change(24));
}
