//! Which plans the interpreter in C takes, and what is said of the others.

#![allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking

use huddle_domains::{Kernel, build};
use huddle_machine::{Arch, Layout, Topology};
use huddle_policy::{Plan, Policy, policy_names};
use huddle_scx::image::SET_SD_LLC;
use huddle_scx::{Image, ImageError, PlanImage};

/// Packages, nodes, LLCs, clusters, cores, threads.
const KUNPENG_NODE: [usize; 6] = [1, 1, 1, 6, 4, 1];

fn plan(policy: &Policy, counts: [usize; 6], small_cores: bool) -> Plan {
    let mut topology = Topology::from_layout(Arch::Arm64, &Layout::new(counts)).unwrap();
    if small_cores {
        topology.capacity[4..].fill(512);
    }
    let tree = build(&topology, &Kernel::load(&policy.kernel).unwrap());
    policy.compile(&tree, &topology)
}

/// A record of these steps before ReturnTarget.
fn record(steps: &str) -> Policy {
    let entry = "affine_idle_prev = false, sync_minus_delayed = false, set_waker_recent = false, \
                 prefer_current_hint = false";
    let text = format!(
        "name = \"mine\"\ntitle = \"mine\"\nkernel = \"5.9\"\nentry = {{ {entry} }}\n\
         steps = [{steps} {{ kind = \"ReturnTarget\" }}]\n"
    );
    Policy::parse("mine.toml", &text).unwrap()
}

/// What is said of these steps on a Kunpeng node.
fn refusal(steps: &str) -> String {
    PlanImage::new(&plan(&record(steps), KUNPENG_NODE, false)).unwrap_err().to_string()
}

#[test]
fn policies_of_kernels_from_6_0_on_and_huddles_own_are_taken_and_all_others_refused() {
    let taken = ["huddle-", "linux-6", "linux-7", "v7-"];
    for name in policy_names() {
        let plan = plan(&Policy::load(&name).unwrap(), KUNPENG_NODE, false);
        let Ok(image) = PlanImage::new(&plan) else {
            assert!(!taken.iter().any(|taken| name.starts_with(taken)), "{name}");
            continue;
        };
        assert!(taken.iter().any(|taken| name.starts_with(taken)), "{name}");
        assert_eq!(image.nr_steps as usize, plan.nr_steps(), "{name}");
        let fork = PlanImage::fork(&plan).map(Result::unwrap);
        assert_eq!(fork.map(|fork| fork.nr_steps as usize), plan.fork_steps().map(<[_]>::len), "{name}");
    }
}

#[test]
fn kunpeng_node_has_six_clusters_of_four_in_one_llc() {
    let plan = plan(&Policy::load("huddle-gather").unwrap(), KUNPENG_NODE, false);
    let image = Image::new(&plan, &[]).unwrap();
    assert_eq!(image.facts.len(), 24);
    let clusters: Vec<u64> = image.clusters.iter().map(|mask| image.pool[mask.at as usize]).collect();
    assert_eq!(clusters, [0xf, 0xf0, 0xf00, 0xf000, 0xf_0000, 0xf0_0000]);
    let facts = &image.facts[9];
    assert_eq!((facts.cluster, facts.llc_from, facts.llc_len), (2, 0, 6));
    assert_eq!(image.pool[facts.sets[usize::from(SET_SD_LLC)].at as usize], 0xff_ffff);
    // All, node, LLC, cluster, those that share the LLC and the cluster's domain, itself, its threads, its siblings.
    assert_eq!(facts.sets.map(|mask| mask.weight)[..9], [24, 24, 24, 4, 24, 4, 1, 1, 0]);
    // The first CPU of its core, cluster, LLC, node, package.
    assert_eq!(facts.ids, [9, 8, 0, 0, 0]);
}

#[test]
fn searches_and_budgets_of_kernels_before_6_0_are_refused_by_step_and_kind() {
    let old = "the live interpreter has no searches and budgets of kernels before 6.0";
    let need = "{ kind = \"NeedLlc\" },";
    let budget = "{ kind = \"NeedLlc\" }, { kind = \"Budget\", method = \"util\" },";
    let merged =
        "{ kind = \"ScanMerged\", start = \"target\", pred = \"idle\", on_exhaust = \"none\", cost = \"none\" },";
    let disallowed = "{ kind = \"ScanLlc\", start = \"target\", pred = \"idle\", charge = true, \
                      charge_disallowed = true, cost = \"none\" },";
    let core = "{ kind = \"IdleCore\", start = \"target\", pred = \"idle\" },";
    for (steps, at, kind) in [
        (format!("{budget} {merged}"), 3, "ScanMerged"),
        (format!("{budget} {disallowed}"), 3, "ScanLlc"),
        (format!("{need} {core}"), 2, "IdleCore"),
    ] {
        assert_eq!(refusal(&steps), format!("policy mine: step {at}, {kind}: {old}"));
    }
    let next_cpu = "{ kind = \"ScanLlc\", start = \"next_cpu\", pred = \"idle\", charge = true, cost = \"none\" },";
    assert_eq!(
        refusal(&format!("{budget} {next_cpu}")),
        "policy mine: step 3, ScanLlc: `start` must be \"target\" or \"target+1\" for the live interpreter"
    );
    let prop = "{ kind = \"NeedLlc\" }, { kind = \"Budget\", method = \"prop\", div = 1, floor = 4 },";
    let scan = "{ kind = \"ScanLlc\", start = \"target\", pred = \"idle\", charge = true, cost = \"avg_scan_cost\" },";
    assert_eq!(refusal(&format!("{prop} {scan}")), format!("policy mine: step 2, Budget: {old}"));
}

#[test]
fn scans_whose_candidates_no_set_holds_are_refused() {
    let need = "{ kind = \"NeedLlc\" },";
    let cluster = |src: &str, keys: &str| {
        format!(
            "{{ kind = \"ScanCluster\", src = \"{src}\", start = \"target\", pred = \"idle\", only_if = \"no_smt\", {keys} }},"
        )
    };
    let removing = cluster("cluster_domain", "remove = true");
    let again = "the live interpreter has no scan of a cluster behind one that removes CPUs";
    assert_eq!(refusal(&format!("{need} {removing} {removing}")), format!("policy mine: step 3, ScanCluster: {again}"));
    let raw = "the live interpreter has no `remove` for \"raw_topology\", and no `cores` without `remove`";
    let raw_removing = cluster("raw_topology", "remove = true");
    assert_eq!(refusal(&format!("{need} {raw_removing}")), format!("policy mine: step 2, ScanCluster: {raw}"));
    let budget = "{ kind = \"Budget\", method = \"util\", fail_if_empty = true },";
    let scan = "{ kind = \"ScanLlc\", start = \"target\", pred = \"idle\", charge = true, cost = \"none\" },";
    assert_eq!(
        refusal(&format!("{need} {removing} {budget} {scan}")),
        "policy mine: step 3, Budget: the live interpreter has no `fail_if_empty` behind a scan that removes CPUs"
    );
    let kept = "{ kind = \"PrevIdle\", share = \"lowest\", keep = true, pred = \"idle\" }, \
                { kind = \"RecentIdle\", share = \"lowest\", keep = true, pred = \"idle\", update = \"always\" },";
    let take = |first: &str| format!("{{ kind = \"TakeKept\", order = [\"{first}\"] }},");
    assert_eq!(
        refusal(&format!("{kept} {} {}", take("prev"), take("recent"))),
        "policy mine: step 1, PrevIdle: the live interpreter has one `order` of what was kept"
    );
}

#[test]
fn sched_exts_own_choice_is_refused_by_step_and_kind() {
    let own = "the live interpreter has no steps of sched_ext's own choice";
    for (step, kind) in [
        ("kind = \"SyncWaker\"", "SyncWaker"),
        ("kind = \"SyncClaimPrev\"", "SyncClaimPrev"),
        ("kind = \"ClaimSmt\"", "ClaimSmt"),
        ("kind = \"ClaimAny\", within = \"all\", rotate = true", "ClaimAny"),
        ("kind = \"ClaimPrev\", within = \"all\", disallowed = true", "ClaimPrev"),
    ] {
        assert_eq!(refusal(&format!("{{ {step} }},")), format!("policy mine: step 1, {kind}: {own}"));
    }
}

#[test]
fn lists_of_more_steps_than_the_array_holds_are_refused() {
    let idle = "{ kind = \"TargetIdle\", pred = \"idle\" },";
    assert!(PlanImage::new(&plan(&record(&idle.repeat(31)), KUNPENG_NODE, false)).is_ok());
    assert_eq!(refusal(&idle.repeat(32)), "policy mine: 33 steps, the live interpreter takes 32 at most");
}

#[test]
fn machine_of_two_capacities_refuses_steps_that_read_them() {
    let fitting = Policy::load("linux-6.7").unwrap();
    assert_eq!(
        PlanImage::new(&plan(&fitting, KUNPENG_NODE, true)).unwrap_err().to_string(),
        "policy linux-6.7: step 1, TargetIdle: reads capacities, which differ on this machine; the live interpreter \
         does not"
    );
    let scanning = Policy::load("linux-5.9").unwrap();
    assert!(matches!(
        PlanImage::new(&plan(&scanning, KUNPENG_NODE, true)),
        Err(ImageError::Step { list: "step", step: 1, kind: "AsymScan", .. })
    ));
    let gather = Policy::load("huddle-gather").unwrap();
    assert!(PlanImage::new(&plan(&gather, KUNPENG_NODE, true)).is_ok());
}

#[test]
fn plans_for_different_machines_share_no_image() {
    let (gather, spread) = (Policy::load("huddle-gather").unwrap(), Policy::load("huddle-spread").unwrap());
    let here = plan(&gather, KUNPENG_NODE, false);
    assert!(Image::new(&here, &[&plan(&spread, KUNPENG_NODE, false)]).is_ok());
    assert_eq!(
        Image::new(&here, &[&plan(&spread, [1, 1, 1, 4, 4, 1], false)]).unwrap_err().to_string(),
        "policy huddle-spread: compiled for another machine or kernel than huddle-gather; compile all for the same domains"
    );
}
