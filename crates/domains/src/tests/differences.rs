//! Each kind of difference between a kernel and Huddle, made by changing one thing in a faithful view.

use std::collections::BTreeMap;

use huddle_machine::{CpuSet, Topology};

use super::*;
use crate::{Comparison, Observed, ObservedDomain, ObservedGroup, View, ViewSource, build, build_for, compare};

type Change = fn(&mut ObservedDomain);

/// What a kernel would show that thinks as Huddle does.
fn mirror(tree: &DomainTree, kernel: &Kernel) -> Observed {
    let cpus = |shown: &dyn Fn(&Domain, crate::DomainId) -> ObservedDomain| -> BTreeMap<u32, Vec<ObservedDomain>> {
        let chain = |cpu: CpuId| tree.chain(cpu).map(|id| shown(tree.domain(id), id)).collect();
        tree.online.iter().map(|cpu| (cpu.0, chain(cpu))).collect()
    };
    let files = |domain: &Domain, id| ObservedDomain {
        name: Some(domain.name.to_owned()),
        level: kernel.domains.shows_level.then_some(domain.level.into()),
        flags: Some(domain.flags.printed(kernel)),
        groups_flags: kernel.domains.shows_groups_flags.then(|| tree.first_group(id).flags.printed(kernel)),
        min_interval: Some(domain.min_interval.into()),
        max_interval: Some(domain.max_interval.into()),
        busy_factor: Some(domain.busy_factor.into()),
        imbalance_pct: Some(domain.imbalance_pct.into()),
        cache_nice_tries: Some(domain.cache_nice_tries.into()),
        ..ObservedDomain::default()
    };
    let schedstat = |domain: &Domain, _| ObservedDomain {
        name: Some(domain.name.to_owned()),
        span: Some(tree.span(domain.span).clone()),
        ..ObservedDomain::default()
    };
    let log = |domain: &Domain, id| {
        let group = |id| {
            let group = tree.group(id);
            let mask = tree.span(group.balance_mask);
            let balance_mask = (mask != tree.span(group.span)).then(|| mask.clone());
            ObservedGroup { id: mask.first().unwrap().0, span: tree.span(group.span).clone(), balance_mask }
        };
        ObservedDomain { groups: Some(tree.groups_of(id).map(group).collect()), ..schedstat(domain, id) }
    };
    Observed {
        views: vec![
            View { source: ViewSource::Debugfs, cpus: cpus(&files) },
            View { source: ViewSource::Schedstat, cpus: cpus(&schedstat) },
            View { source: ViewSource::Log, cpus: cpus(&log) },
        ],
        root_domains: vec![tree.online.clone()],
        complaints: Some(Vec::new()),
        ..Observed::default()
    }
}

fn lines(comparison: &Comparison) -> Vec<String> {
    comparison.differences.iter().map(ToString::to_string).collect()
}

/// The differences after a change to the faithful view.
fn changed(topology: &Topology, record: &str, change: impl FnOnce(&mut Observed)) -> Vec<String> {
    let (kernel, tree) = (kernel(record), tree(topology, record));
    let mut observed = mirror(&tree, &kernel);
    assert_eq!(compare(&tree, &topology.offline, &kernel, &observed), Comparison::default());
    change(&mut observed);
    lines(&compare(&tree, &topology.offline, &kernel, &observed))
}

/// One domain of every CPU in one view.
fn each(observed: &mut Observed, view: usize, domain: usize, change: impl Fn(&mut ObservedDomain)) {
    observed.views[view].cpus.values_mut().for_each(|domains| change(&mut domains[domain]));
}

#[test]
fn jacobsville_with_another_number_is_one_line_for_all_cpus() {
    let changes: [(&str, Change); 7] = [
        ("level 9, Huddle says 1", |domain| domain.level = Some(9)),
        ("min_interval 9, Huddle says 24", |domain| domain.min_interval = Some(9)),
        ("max_interval 96, Huddle says 48", |domain| domain.max_interval = Some(96)),
        ("busy_factor 32, Huddle says 16", |domain| domain.busy_factor = Some(32)),
        ("imbalance_pct 110, Huddle says 117", |domain| domain.imbalance_pct = Some(110)),
        ("cache_nice_tries 2, Huddle says 1", |domain| domain.cache_nice_tries = Some(2)),
        ("name L3, Huddle says MC", |domain| domain.name = Some("L3".to_owned())),
    ];
    for (field, change) in changes {
        let found = changed(&jacobsville(), "6.17", |observed| each(observed, 0, 1, change));
        assert_eq!(found, [format!("cpu0-23 domain1 MC: kernel says {field}")]);
    }
}

#[test]
fn flags_that_one_side_lacks_are_a_line_each() {
    let found = changed(&jacobsville(), "6.17", |observed| {
        each(observed, 0, 0, |domain| {
            let flags = domain.flags.as_mut().unwrap();
            flags.retain(|flag| flag != "SD_CLUSTER");
            flags.push("SD_NEW".to_owned());
        });
        each(observed, 0, 1, |domain| domain.groups_flags.as_mut().unwrap().swap(0, 1));
    });
    let order = "SD_BALANCE_FORK SD_WAKE_AFFINE SD_CLUSTER SD_SHARE_LLC SD_PREFER_SIBLING";
    assert_eq!(
        found,
        [
            "cpu0-23 domain0 CLS: kernel has flags SD_NEW, Huddle does not".to_owned(),
            "cpu0-23 domain0 CLS: Huddle has flags SD_CLUSTER, the kernel does not".to_owned(),
            format!(
                "cpu0-23 domain1 MC: kernel says groups_flags SD_BALANCE_EXEC SD_BALANCE_NEWIDLE {order}, \
                 Huddle says SD_BALANCE_NEWIDLE SD_BALANCE_EXEC {order}"
            ),
        ]
    );
}

#[test]
fn files_that_the_record_does_not_know_are_told() {
    let found = changed(&jacobsville(), "6.7", |observed| each(observed, 0, 0, |domain| domain.level = Some(1)));
    assert_eq!(found, ["cpu0-23 domain0 CLS: kernel has a file level, Huddle does not"]);
    let found = changed(&jacobsville(), "6.7", |observed| each(observed, 0, 1, |domain| domain.groups_flags = None));
    assert_eq!(found, ["cpu0-23 domain1 MC: Huddle has a file groups_flags, the kernel does not"]);
}

#[test]
fn spans_groups_and_masks_are_compared_in_order() {
    let found = changed(&jacobsville(), "6.17", |observed| {
        observed.views[1].cpus.get_mut(&5).unwrap()[0].span = Some(CpuSet::from_cpus(8, [4, 5]));
        let log = &mut observed.views[2].cpus;
        log.get_mut(&9).unwrap()[0].groups.as_mut().unwrap().swap(1, 2);
        log.get_mut(&10).unwrap()[1].groups.as_mut().unwrap()[0].balance_mask = Some(CpuSet::from_cpus(11, [9, 10]));
        log.get_mut(&11).unwrap()[1].groups.as_mut().unwrap()[1].id = 13;
    });
    let all = "{16-19} {20-23} {0-3} {4-7}";
    assert_eq!(
        found,
        [
            "cpu5 domain0 CLS: kernel says span 4-5, Huddle says 4-7".to_owned(),
            "cpu9 domain0 CLS: kernel says groups {9} {11} {10} {8}, Huddle says {9} {10} {11} {8}".to_owned(),
            format!(
                "cpu10 domain1 MC: kernel says groups {{8-11 mask 9-10 id 8}} {{12-15}} {all}, \
                 Huddle says {{8-11}} {{12-15}} {all}"
            ),
            format!(
                "cpu11 domain1 MC: kernel says groups {{8-11}} {{12-15 id 13}} {all}, \
                 Huddle says {{8-11}} {{12-15}} {all}"
            ),
        ]
    );
}

#[test]
fn domains_and_cpus_that_one_side_lacks_are_told_with_their_spans() {
    let found = changed(&jacobsville(), "6.17", |observed| {
        for view in &mut observed.views {
            for domains in view.cpus.values_mut().skip(20) {
                domains.remove(0);
            }
            view.cpus.insert(24, Vec::new());
        }
        let extra = ObservedDomain { name: Some("PKG".to_owned()), ..observed.views[0].cpus[&0][1].clone() };
        observed.views[0].cpus.get_mut(&0).unwrap().push(extra);
        observed.views[1].cpus.remove(&3);
        observed.views[2].cpus.remove(&3);
        observed.views[0].cpus.remove(&3);
    });
    assert_eq!(
        found,
        [
            "cpu0 domain2: kernel has domain PKG, Huddle does not".to_owned(),
            "cpu3 domain0: Huddle has domain CLS 0-3, the kernel does not".to_owned(),
            "cpu3 domain1: Huddle has domain MC 0-23, the kernel does not".to_owned(),
            "cpu20-23 domain0: Huddle has domain CLS 20-23, the kernel does not".to_owned(),
        ]
    );
}

#[test]
fn root_domains_and_complaints_are_no_cpus() {
    let found = changed(&jacobsville(), "6.17", |observed| {
        observed.root_domains = vec![CpuSet::from_cpus(24, 0..12), CpuSet::from_cpus(24, 12..24)];
        let complaint = "arch topology borken: the CLS domain not a subset of the MC domain";
        observed.complaints = Some(vec![complaint.to_owned()]);
    });
    assert_eq!(
        found,
        [
            "kernel says root domains {0-11} {12-23}, Huddle says {0-23}",
            "kernel has the complaint `arch topology borken: the CLS domain not a subset of the MC domain`, \
             Huddle does not",
        ]
    );
}

#[test]
fn altra_s_complaint_under_5_16_is_looked_for_in_the_log() {
    let (topology, kernel) = (altra(), kernel("5.16"));
    let tree = build(&topology, &kernel);
    let mut observed = mirror(&tree, &kernel);
    let complaint = "`arch topology borken: the CLS domain not a subset of the MC domain`";
    let lines_of = |observed: &Observed| lines(&compare(&tree, &topology.offline, &kernel, observed));
    assert_eq!(lines_of(&observed), [format!("Huddle has the complaint {complaint}, the kernel does not")]);
    observed.complaints = Some(vec![complaint.trim_matches('`').to_owned()]);
    assert!(lines_of(&observed).is_empty());
    observed.complaints = None;
    let comparison = compare(&tree, &topology.offline, &kernel, &observed);
    assert_eq!(comparison.not_compared, ["complaints: there is no log to look for Huddle's in"]);
}

#[test]
fn what_depends_on_priorities_or_the_command_line_is_not_compared() {
    let (topology, kernel) = (jacobsville(), kernel("6.17"));
    let tree = build(&topology, &kernel);
    let mut observed = mirror(&tree, &kernel);
    each(&mut observed, 0, 1, |domain| {
        let flags = domain.flags.as_mut().unwrap();
        flags.retain(|flag| flag != "SD_BALANCE_NEWIDLE");
        flags.insert(0, "SD_ASYM_PACKING".to_owned());
    });
    observed.command_line = Some("quiet relax_domain_level=1 sched_verbose\n".to_owned());
    let comparison = compare(&tree, &topology.offline, &kernel, &observed);
    assert_eq!(lines(&comparison), [""; 0]);
    let [packing, relaxed] = comparison.not_compared.as_slice() else { panic!("{:?}", comparison.not_compared) };
    assert!(packing.starts_with("SD_ASYM_PACKING: "), "{packing}");
    assert!(
        relaxed.starts_with("SD_BALANCE_NEWIDLE, SD_BALANCE_WAKE: the kernel was booted with relax_domain_level=1")
    );
    observed.command_line = Some("quiet".to_owned());
    let found = lines(&compare(&tree, &topology.offline, &kernel, &observed));
    assert_eq!(found, ["cpu0-23 domain1 MC: Huddle has flags SD_BALANCE_NEWIDLE, the kernel does not"]);
}

#[test]
fn a_log_of_former_domains_is_set_aside() {
    let (topology, kernel) = (jacobsville(), kernel("6.17"));
    let tree = build(&topology, &kernel);
    let mut observed = mirror(&tree, &kernel);
    let log = &mut observed.views[2].cpus;
    log.get_mut(&4).unwrap()[1].span = Some(CpuSet::from_cpus(24, 0..20));
    log.get_mut(&5).unwrap().clear();
    log.remove(&6);
    observed.root_domains = vec![CpuSet::from_cpus(24, 0..20)];
    let comparison = compare(&tree, &topology.offline, &kernel, &observed);
    assert_eq!(lines(&comparison), [""; 0]);
    assert_eq!(
        comparison.not_compared,
        [
            "groups of cpu4-5: the log tells of other domains than /proc/schedstat shows; sched_verbose was off since",
            "groups of cpu6: the log does not tell of them; sched_verbose was off, or the log begins too late",
        ]
    );
}

#[test]
fn intervals_may_count_a_cpu_that_was_leaving_until_7_1() {
    let mut topology = jacobsville();
    topology.online.remove(CpuId(20));
    topology.offline.insert(CpuId(20));
    let partition = topology.online.clone();
    for (record, counted) in [("6.17", true), ("7.1", false)] {
        let kernel = kernel(record);
        let tree = build_for(&topology, &kernel, &partition);
        let mut observed = mirror(&tree, &kernel);
        each(&mut observed, 0, 1, |domain| {
            domain.min_interval = domain.min_interval.map(|interval| interval + 1);
            domain.max_interval = domain.max_interval.map(|interval| interval + 2);
        });
        let comparison = compare(&tree, &topology.offline, &kernel, &observed);
        assert_eq!(comparison.differences.is_empty(), counted, "{record}: {:?}", lines(&comparison));
        assert_eq!(comparison.not_compared.len(), usize::from(counted), "{record}");
        // With all CPUs online nothing was leaving.
        let none = CpuSet::new(topology.nr_cpus());
        assert_eq!(compare(&tree, &none, &kernel, &observed).differences.len(), 2, "{record}");
    }
}
