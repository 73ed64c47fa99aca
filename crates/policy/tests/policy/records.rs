//! Records: what ships, and what is refused in which words.

use huddle_policy::{Policy, PolicyError, Start, Step, Takes, policy_names};

use crate::machines::{Rng, policy};

#[test]
fn shipped_records_load_by_name_and_alias() {
    let names = policy_names();
    for name in [
        "huddle-gather",
        "huddle-spread",
        "linux-4.17",
        "linux-5.9",
        "linux-5.10",
        "linux-5.14",
        "linux-5.14-cluster",
        "linux-5.16",
        "linux-6.0",
        "linux-6.1",
        "linux-6.7",
        "linux-6.12",
        "linux-7.2",
        "linux-7.2-nocache",
        "merged-idle-search",
        "merged-idle-search-bug",
        "merged+next-cpu",
        "no-idle-core",
        "rfc2-cluster",
        "rfc2-no-select-idle-cluster",
        "rfc2-on-5.10",
        "scx-default-6.12",
        "scx-default-7.2",
        "subhra-full-2018",
        "transpose-offset",
        "v7-cluster-scan",
        "v7-scan-prev-llc",
        "v7-second-chance",
    ] {
        assert!(names.iter().any(|known| known == name), "{name} is not shipped");
        assert_eq!(Policy::load(name).unwrap().name, name, "the file is named as the policy");
    }
    for alias in ["linux-6.8", "linux-6.9", "linux-6.10", "linux-6.11"] {
        assert_eq!(Policy::load(alias).unwrap().name, "linux-6.7");
    }
    let mut called: Vec<String> =
        names.iter().map(|name| Policy::load(name).unwrap()).flat_map(|p| [vec![p.name], p.aliases].concat()).collect();
    let all = called.len();
    called.sort();
    called.dedup();
    assert_eq!(called.len(), all, "each name is one record's");
    for name in names {
        let kernel = Policy::load(&name).unwrap().kernel;
        assert!(huddle_domains::kernel_names().contains(&kernel), "{name} names the kernel {kernel}");
    }
}

#[test]
fn unknown_names_list_the_known_ones() {
    let error = Policy::load("linux-9.9").unwrap_err();
    assert!(error.is_usage());
    assert!(
        error
            .to_string()
            .starts_with("unknown policy `linux-9.9`; known are huddle-gather, huddle-spread, linux-4.17, linux-5.9,"),
        "{error}"
    );
    let error = Policy::load("./nowhere.toml").unwrap_err();
    assert!(matches!(&error, PolicyError::Read { file, .. } if file == "./nowhere.toml") && !error.is_usage());
}

#[test]
fn records_load_by_path() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/policy/records/merged-gives-up.toml");
    assert_eq!(Policy::load(path).unwrap(), policy("merged-gives-up"));
}

#[test]
fn records_that_share_their_steps_are_kept_alike() {
    let old = policy("linux-5.9");
    let bare = policy("rfc2-no-select-idle-cluster");
    assert_eq!((&old.entry, &old.steps), (&bare.entry, &bare.steps));
    let mut rfc = policy("rfc2-cluster").steps;
    rfc.retain(|step| step.kind() != "ScanCluster");
    assert_eq!(rfc, old.steps);
    for (one, other) in
        [("linux-5.14", "linux-5.14-cluster"), ("linux-6.0", "linux-6.1"), ("linux-7.2", "linux-7.2-nocache")]
    {
        let (one, other) = (policy(one), policy(other));
        assert_eq!((&one.entry, &one.steps), (&other.entry, &other.steps), "{}, {}", one.name, other.name);
    }
    assert_eq!(policy("linux-6.7").steps, policy("linux-6.12").steps);
    assert_eq!(without("rfc2-on-5.10", "ScanCluster"), policy("linux-5.10").steps);
    assert_eq!(without("linux-4.17", "IdleCore"), policy("no-idle-core").steps);
    assert_eq!(without("v7-scan-prev-llc", "ScanCluster"), policy("linux-6.0").steps);
    let second_chance = changed("v7-second-chance", |step| {
        if let Step::PrevIdle { keep, .. } = step {
            *keep = false;
        }
    });
    assert_eq!(second_chance[..second_chance.len() - 2], policy("v7-cluster-scan").steps[..second_chance.len() - 2]);
    let transposed = changed("transpose-offset", |step| {
        if let Step::ScanLlc { start, .. } = step {
            *start = Start::Target;
        }
    });
    assert_eq!(transposed, policy("linux-4.17").steps);
    for (name, change) in [
        ("merged+next-cpu", (|step| set_merged(step, Start::Target, Takes::FirstIdle)) as fn(&mut Step)),
        ("merged-idle-search-bug", |step| set_merged(step, Start::Target, Takes::FirstIdle)),
    ] {
        assert_eq!(changed(name, change), policy("merged-idle-search").steps, "{name}");
        assert_ne!(policy(name).steps, policy("merged-idle-search").steps, "{name}");
    }
}

fn set_merged(step: &mut Step, from: Start, which: Takes) {
    if let Step::ScanMerged { start, takes, .. } = step {
        (*start, *takes) = (from, which);
    }
}

fn without(name: &str, kind: &str) -> Vec<Step> {
    policy(name).steps.into_iter().filter(|step| step.kind() != kind).collect()
}

fn changed(name: &str, change: impl Fn(&mut Step)) -> Vec<Step> {
    let mut steps = policy(name).steps;
    steps.iter_mut().for_each(change);
    steps
}

const HEAD: &str = "name = \"x\"\ntitle = \"X\"\nkernel = \"6.7\"\nentry = {}\n";

/// The steps' error, without the file's name, which is checked.
fn refused(steps: &[&str]) -> String {
    let text =
        format!("{HEAD}steps = [\n{}\n]", steps.iter().map(|step| format!("{{ {step} }},\n")).collect::<String>());
    let error = Policy::parse("x.toml", &text).unwrap_err().to_string();
    assert!(!error.contains('\n'), "{error:?}");
    error.strip_prefix("x.toml: ").unwrap_or_else(|| panic!("no file in {error:?}")).to_owned()
}

const RETURN: &str = r#"kind = "ReturnTarget""#;
const NEED: &str = r#"kind = "NeedLlc""#;
const HIC: &str = r#"kind = "ReadHic""#;
const BUDGET: &str = r#"kind = "Budget", method = "util""#;
const SCAN: &str = r#"kind = "ScanLlc", start = "target", pred = "ok59", charge = true, cost = "none""#;

#[test]
fn a_wrong_step_is_named_with_what_would_be_right() {
    for (steps, error) in [
        (&[r#"kind = "Scan""#, RETURN][..], "step 1: Scan: unknown step; the kinds are TargetIdle, PrevIdle,"),
        (&[r#"pred = "idle""#, RETURN], "step 1: `kind` is missing, must be a text"),
        (
            &[r#"kind = "TargetIdle", pred = "ok60""#, RETURN],
            r#"step 1: TargetIdle: `pred` is "ok60", must be "idle" or "avail" or "ok59" or "ok72""#,
        ),
        (&[r#"kind = "TargetIdle""#, RETURN], "step 1: TargetIdle: `pred` is missing, must be \"idle\""),
        (
            &[NEED, r#"kind = "TargetIdle", pred = "idle", share = "llc""#, RETURN],
            "step 2: TargetIdle: unknown key `share`; this step takes pred, fits",
        ),
        (&[r#"kind = "NeedLlc", x = 1"#, RETURN], "step 1: NeedLlc: unknown key `x`; this step takes no keys"),
        (&[r#"kind = "KthreadStack", fits = 1"#, RETURN], "step 1: KthreadStack: `fits` is 1, must be true or false"),
        (
            &[NEED, r#"kind = "Budget", method = "prop", div = 0, floor = 4"#, SCAN, RETURN],
            "step 2: Budget: `div` is 0, must be a whole number, 1 or more",
        ),
        (
            &[NEED, r#"kind = "Budget", method = "util", floor = 4"#, SCAN, RETURN],
            "step 2: Budget: unknown key `floor`; this step takes method,",
        ),
        (
            &[NEED, r#"kind = "IdleCore", start = "next_cpu", pred = "idle""#, RETURN],
            r#"step 2: IdleCore: `start` is "next_cpu", must be "target" or "target+1""#,
        ),
    ] {
        let found = refused(steps);
        assert!(found.starts_with(error), "{found}\nwanted {error}");
    }
}

#[test]
fn an_order_that_makes_no_sense_is_refused() {
    let cluster = r#"kind = "ScanCluster", src = "llc_first_group", start = "target+1", pred = "ok59", charge = true, remove = true, only_if = "cluster_key""#;
    let cores = r#"kind = "ScanLlc", start = "target", pred = "ok59", charge = true, cores = true, cost = "none""#;
    let keep = r#"kind = "PrevIdle", share = "lowest", keep = true, pred = "ok59""#;
    for (steps, error) in [
        (&[NEED, SCAN, RETURN][..], "step 2: ScanLlc: needs a Budget, since it is charged, before it"),
        (&[NEED, cluster, BUDGET, SCAN, RETURN], "step 2: ScanCluster: needs a Budget, since it is charged, before it"),
        (&[NEED, BUDGET, RETURN], "step 2: Budget: no charged scan follows it"),
        (&[NEED, BUDGET, SCAN, BUDGET, SCAN, RETURN], "step 4: Budget: a second budget"),
        (&[BUDGET, SCAN, RETURN], "step 2: ScanLlc: needs NeedLlc before it"),
        (
            &[r#"kind = "Budget", method = "prop", div = 512, floor = 4"#, SCAN, RETURN],
            "step 1: Budget: needs NeedLlc before it",
        ),
        (&[HIC, RETURN], "step 1: ReadHic: needs NeedLlc before it"),
        (&[RETURN, NEED], "step 1: ReturnTarget: ends the search; the steps after it never run"),
        (
            &[r#"kind = "TakeKept", order = []"#, RETURN],
            r#"step 1: TakeKept: `order` is [], must be a list of one or more of "prev", "recent""#,
        ),
        (
            &[NEED],
            "step 1: NeedLlc cannot be the last step; end with { kind = \"ReturnTarget\" } or { kind = \"ReturnPrev\" }",
        ),
        (
            &[r#"kind = "TakeKept", order = ["prev"]"#, RETURN],
            "step 1: TakeKept: needs a PrevIdle with `keep` before it",
        ),
        (&[keep, RETURN], "step 1: PrevIdle: `keep` is true but no TakeKept takes it later"),
        (
            &[r#"kind = "PrevIdle", share = "llc", keep = true, pred = "ok59""#, RETURN],
            "step 1: PrevIdle: `keep` needs `share = \"lowest\"`",
        ),
        (&[NEED, BUDGET, cores, RETURN], "step 3: ScanLlc: needs ReadHic, since `cores` is true, before it"),
        (
            &[NEED, r#"kind = "Budget", method = "prop", div = 512, floor = 4"#, SCAN, RETURN],
            "step 3: ScanLlc: `cost` must be `avg_scan_cost` to fit the budget",
        ),
    ] {
        let found = refused(steps);
        assert!(found.starts_with(error), "{found}\nwanted {error}");
    }
}

#[test]
fn a_wrong_head_is_refused() {
    let steps = "steps = [{ kind = \"ReturnTarget\" }]\n";
    for (text, error) in [
        (format!("{HEAD}{steps}"), None),
        (
            format!("{HEAD}domains = \"D67\"\n{steps}"),
            Some("x.toml: unknown key `domains`; a policy, beside `steps` and `fork`, takes"),
        ),
        (format!("{HEAD}steps = []\n"), Some("x.toml: `steps` must be a list of one or more tables")),
        (HEAD.to_owned(), Some("x.toml: `steps` is missing")),
        (format!("{}{steps}", HEAD.replace("\"6.7\"", "6.7")), Some("x.toml: `kernel` is 6.7, must be a text")),
        (
            format!("{}{steps}", HEAD.replace("6.7", "6\\n7")),
            Some("x.toml: `kernel`: unknown kernel `6 7`: known are 4.17, 5.9, 5.9+rfc2, 5.10,"),
        ),
        (
            format!("{}{steps}", HEAD.replace("6.7", "no/such.toml")),
            Some("x.toml: `kernel`: cannot read the kernel record no/such.toml: "),
        ),
        (
            format!("{}{steps}", HEAD.replace("{}", "{ wid = true }")),
            Some("x.toml: unknown key `wid`; `entry` takes anchor, wide,"),
        ),
        (format!("{}{steps}", HEAD.replace("{}", "{ wide = 1 }")), Some("x.toml: `wide` is 1, must be true or false")),
        (format!("{HEAD}steps = ["), Some("x.toml: line 5: ")),
        ("\u{0}".to_owned(), Some("x.toml: line 1: ")),
    ] {
        match (Policy::parse("x.toml", &text), error) {
            (Ok(_), None) => {}
            (Err(found), Some(error)) => {
                let found = found.to_string();
                assert!(found.starts_with(error) && !found.contains('\n'), "{found}\nwanted {error}");
            }
            (found, _) => panic!("{text}: {found:?}"),
        }
    }
}

const CLAIM: &str = r#"kind = "ClaimAny", within = "llc""#;
const CHARGED: &str = r#"kind = "ClaimAny", within = "llc", charge = true"#;
const PREV: &str = r#"kind = "ReturnPrev""#;

#[test]
fn a_wrong_claim_is_refused() {
    for (steps, error) in [
        (
            &[r#"kind = "ClaimPrev", within = "node""#, PREV][..],
            r#"step 1: ClaimPrev: `within` is "node", must be "cluster" or "llc" or "all""#,
        ),
        (
            &[r#"kind = "ClaimIdlest", within = "cluster""#, PREV],
            r#"step 1: ClaimIdlest: `within` is "cluster", must be "llc" or "node" or "all""#,
        ),
        (
            &[r#"kind = "ClaimAny", within = "package""#, PREV],
            r#"step 1: ClaimAny: `within` is "package", must be "cluster" or "prev_cluster" or "llc" or "node" or "all""#,
        ),
        (
            &[r#"kind = "ClaimIdlest", within = "llc", charge = true"#, PREV],
            "step 1: ClaimIdlest: unknown key `charge`; this step takes within, core",
        ),
        (
            &[r#"kind = "SyncStack", spare = 1"#, PREV],
            "step 1: SyncStack: unknown key `spare`; this step takes no keys",
        ),
        (&[CHARGED, PREV], "step 1: ClaimAny: needs a Budget, since it is charged, before it"),
        (&[NEED, CHARGED, PREV], "step 2: ClaimAny: needs a Budget, since it is charged, before it"),
        (&[NEED, BUDGET, CLAIM, PREV], "step 2: Budget: no charged scan follows it"),
        (
            &[NEED, r#"kind = "Budget", method = "prop", div = 512, floor = 4"#, CHARGED, PREV],
            "step 3: ClaimAny: books no time, which a proportional budget needs; charge it to `util` or `none`",
        ),
        (&[PREV, CLAIM, PREV], "step 1: ReturnPrev: ends the search; the steps after it never run"),
        (
            &[r#"kind = "ClaimAny", within = "cluster", rotate = true"#, PREV],
            r#"step 1: ClaimAny: `within` is "cluster", must be "llc" or "node" or "all""#,
        ),
        (
            &[r#"kind = "ClaimAny", within = "llc", rotate = true, charge = true"#, PREV],
            "step 1: ClaimAny: `rotate` and `charge` exclude each other",
        ),
        (
            &[r#"kind = "SyncWaker", spare = 1"#, PREV],
            "step 1: SyncWaker: unknown key `spare`; this step takes no keys",
        ),
        (&[CLAIM], "step 1: ClaimAny cannot be the last step;"),
    ] {
        let found = refused(steps);
        assert!(found.starts_with(error), "{found}\nwanted {error}");
    }
}

/// What becomes of a record with this entry, a claim as its only search, and what follows.
fn read(entry: &str, rest: &str) -> Result<Policy, String> {
    let head = HEAD.replace("{}", &format!("{{ {entry} }}"));
    Policy::parse("x.toml", &format!("{head}steps = [{{ {CLAIM} }}, {{ {PREV} }}]\n{rest}"))
        .map_err(|error| error.to_string())
}

#[test]
fn a_fork_has_claims_only_and_ends_with_prev() {
    let policy = read("", &format!("fork = [{{ {CLAIM} }}, {{ {PREV} }}]")).unwrap();
    assert_eq!(policy.fork.as_ref(), Some(&policy.steps));
    assert_eq!(read("", "").unwrap().fork, None);
    for (fork, error) in [
        ("[]", "x.toml: `fork` must be a list of one or more tables"),
        (r#"[{ kind = "Claim" }]"#, "x.toml: fork step 1: Claim: unknown step; the kinds are"),
        (r#"[{ kind = "ClaimAny", within = "node" }]"#, "x.toml: fork step 1: ClaimAny cannot be the last step;"),
        (
            r#"[{ kind = "ClaimAny", within = "node" }, { kind = "ReturnTarget" }]"#,
            "x.toml: fork step 2: ReturnTarget is no step of a fork; those are ClaimPrev, ClaimAny, ClaimIdlest, ClaimSmt, ReturnPrev",
        ),
        (
            r#"[{ kind = "SyncStack" }, { kind = "ReturnPrev" }]"#,
            "x.toml: fork step 1: SyncStack is no step of a fork;",
        ),
        (
            r#"[{ kind = "ClaimAny", within = "llc", charge = true }, { kind = "ReturnPrev" }]"#,
            "x.toml: fork step 1: ClaimAny: needs a Budget, since it is charged,",
        ),
    ] {
        let found = read("", &format!("fork = {fork}")).unwrap_err();
        assert!(found.starts_with(error), "{found}\nwanted {error}");
    }
}

#[test]
fn an_entry_key_that_its_anchor_does_not_read_is_refused() {
    for (entry, wide) in
        [("", true), (r#"anchor = "load""#, true), (r#"anchor = "waker""#, true), (r#"anchor = "prev""#, false)]
    {
        assert_eq!(read(entry, "").unwrap().entry.wide, wide, "{entry}");
    }
    for (anchor, keys) in [
        ("waker", &["affine_idle_prev", "sync_minus_delayed"][..]),
        ("prev", &["wide", "affine_idle_prev", "sync_minus_delayed", "set_waker_recent"]),
    ] {
        for key in keys {
            let found = read(&format!("anchor = \"{anchor}\", {key} = true"), "").unwrap_err();
            assert_eq!(found, format!("x.toml: `{key}` is true but `anchor = \"{anchor}\"` does not read it"));
        }
    }
    assert!(read(r#"anchor = "waker", set_waker_recent = true"#, "").unwrap().entry.set_waker_recent);
    let found = read(r#"anchor = "this""#, "").unwrap_err();
    assert_eq!(found, r#"x.toml: `anchor` is "this", must be "load" or "waker" or "prev""#);
}

#[test]
fn damaged_records_are_refused_in_one_line_without_panic() {
    let mut rng = Rng(4);
    let records = [
        include_str!("../../../../policies/linux-7.2.toml"),
        include_str!("../../../../policies/subhra-full-2018.toml"),
        include_str!("records/claims-everywhere.toml"),
    ];
    let mut refused = 0;
    for _ in 0..3000 {
        let mut text: Vec<char> = rng.pick(&records).chars().collect();
        for _ in 0..1 + rng.below(3) {
            let at = rng.below(text.len());
            let until = (at + rng.below(30)).min(text.len());
            match rng.below(3) {
                0 => drop(text.drain(at..until)),
                1 => text.insert(at, rng.pick(&['"', '{', ']', '-', '9', '\n', '=', 'é'])),
                _ => text[at..until].reverse(),
            }
        }
        if let Err(error) = Policy::parse("x.toml", &String::from_iter(text)) {
            refused += 1;
            let line = error.to_string();
            assert!(line.starts_with("x.toml: ") && !line.contains('\n'), "{line:?}");
        }
    }
    assert!(refused > 2000, "{refused}");
}
