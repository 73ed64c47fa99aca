//! Runs an experiment's cells: policy × load × run.
//!
//! The work of a load is chosen by pilot runs and is the same for all policies and runs, so that their times compare. Run k
//! of a load has one seed for all policies (paired). Results land by index: the number of worker threads changes nothing.

use std::sync::atomic::{AtomicUsize, Ordering};

use huddle_engine::{Report, SimError};
use huddle_program::Program;
use huddle_workload::Workload;
use rayon::prelude::*;

use crate::{Experiment, LabError};

/// Runs a program under the policy of that index with a seed.
pub(crate) type Simulate<'a> = dyn Fn(usize, &Program, u64) -> Result<Report, SimError> + Sync + 'a;

/// How far the cells are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What runs: `pilots` or `runs`.
    pub stage: &'static str,
    /// Finished of this stage.
    pub done: usize,
    /// All of this stage.
    pub total: usize,
}

/// The runs of one load.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LoadRuns {
    /// The load.
    pub load: u32,
    /// The work of every run: loops, millions of instructions.
    pub work: u64,
    /// Seed of each run.
    pub seeds: Vec<u64>,
    /// Reports by policy, then run.
    pub reports: Vec<Vec<Report>>,
}

/// Work of the first pilot: a few milliseconds of simulated time.
const FIRST_PILOT: u64 = 20;
/// A pilot that lasts this share of the wanted stretch is long enough to extrapolate from.
const PILOT_SHARE: f64 = 0.2;
/// Most by which a pilot grows at once: the first ones are mostly start-up.
const PILOT_GROWTH: f64 = 50.0;
/// Most work of a run, as much as a workload may state.
const MAX_WORK: u64 = 100_000_000;
/// Work above what the pilots ask for, since a run may go faster than its pilot.
const MARGIN: f64 = 1.15;

/// Runs every cell of an experiment on `jobs` worker threads (0: one per core). `progress` is called from them.
///
/// # Errors
/// The first cell, in the order of loads, policies and runs, that fails; the same one for any number of jobs.
pub(crate) fn run_cells(
    experiment: &Experiment,
    seed: u64,
    jobs: usize,
    simulate: &Simulate,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Vec<LoadRuns>, LabError> {
    // More threads than cells would only cost their stacks.
    let jobs = jobs.min(experiment.loads.len() * experiment.policies.len() * experiment.runs as usize);
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(jobs)
        .build()
        .map_err(|error| LabError::Threads { jobs, message: error.to_string() })?;
    pool.install(|| {
        let (policies, runs) = (experiment.policies.len(), experiment.runs as usize);
        let works = works(experiment, seed, simulate, progress)?;
        let programs = experiment
            .loads
            .iter()
            .zip(&works)
            .map(|(&load, &work)| Ok(experiment.workload.with_work(work).program(load)?))
            .collect::<Result<Vec<Program>, LabError>>()?;
        let reports = in_order("runs", experiment.loads.len() * policies * runs, progress, |index| {
            let (load, policy, run) = (index / (policies * runs), index / runs % policies, index % runs);
            simulate(policy, &programs[load], seed_of(seed, experiment.loads[load], run as u32 + 1))
                .map_err(|source| failed(experiment, load, policy, format!("run {}", run + 1), source))
        })?;
        let mut reports = reports.into_iter();
        let mut load_runs = |(&load, &work): (&u32, &u64)| LoadRuns {
            load,
            work,
            seeds: (1..=experiment.runs).map(|run| seed_of(seed, load, run)).collect(),
            reports: (0..policies).map(|_| reports.by_ref().take(runs).collect()).collect(),
        };
        Ok(experiment.loads.iter().zip(&works).map(&mut load_runs).collect())
    })
}

/// The work of each load: enough for the fastest policy's measured stretch to last the experiment's seconds.
fn works(
    experiment: &Experiment,
    seed: u64,
    simulate: &Simulate,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Vec<u64>, LabError> {
    if experiment.fixed_work {
        return Ok(vec![experiment.workload.work(); experiment.loads.len()]);
    }
    let policies = experiment.policies.len();
    let works = in_order("pilots", experiment.loads.len() * policies, progress, |index| {
        let (load, policy) = (index / policies, index % policies);
        let seed = seed_of(seed, experiment.loads[load], 0);
        let measure = |workload: Workload| {
            let program = workload.program(experiment.loads[load])?;
            let report = simulate(policy, &program, seed)
                .map_err(|source| failed(experiment, load, policy, "pilot run".to_owned(), source))?;
            Ok(report.measured_ns)
        };
        let give_up = |message| LabError::Pilot {
            policy: experiment.policies[policy].clone(),
            load: experiment.loads[load],
            message,
        };
        pilot(&experiment.workload, experiment.seconds, measure, give_up)
    })?;
    Ok(works.chunks(policies).map(|works| works.iter().copied().max().unwrap_or(FIRST_PILOT)).collect())
}

/// The work that makes a measured stretch of `seconds`, from pilots that grow until they are long enough to tell.
fn pilot(
    workload: &Workload,
    seconds: f64,
    measure: impl Fn(Workload) -> Result<u64, LabError>,
    give_up: impl Fn(String) -> LabError,
) -> Result<u64, LabError> {
    let wanted = seconds * 1e9;
    let mut work = FIRST_PILOT;
    loop {
        let measured = measure(workload.with_work(work))? as f64;
        if measured == 0.0 {
            return Err(give_up("no simulated time passes; check the machine's cost figures".to_owned()));
        }
        let grown = |by: f64| (work as f64 * by).ceil() as u64;
        let needed = grown(MARGIN * wanted / measured);
        // The first pilot is too short to judge by.
        if work > FIRST_PILOT && needed > MAX_WORK {
            return Err(give_up(format!(
                "{seconds} s of simulated time would take {needed} {}; at most {MAX_WORK} are run: ask \
                 for fewer seconds or check the machine's cost figures",
                workload.work_unit()
            )));
        }
        if measured >= PILOT_SHARE * wanted {
            return Ok(needed.max(1));
        }
        work = grown((1.5 * PILOT_SHARE * wanted / measured).min(PILOT_GROWTH)).min(MAX_WORK);
    }
}

/// Does `count` jobs on the current pool; their results in order, or the error of the lowest that fails.
fn in_order<T: Send>(
    stage: &'static str,
    total: usize,
    progress: &(dyn Fn(Progress) + Sync),
    job: impl Fn(usize) -> Result<T, LabError> + Sync,
) -> Result<Vec<T>, LabError> {
    let done = AtomicUsize::new(0);
    // Jobs above the lowest failure are skipped; those below still run, so which error is told does not depend on timing.
    let lowest_failure = AtomicUsize::new(usize::MAX);
    progress(Progress { stage, done: 0, total });
    let results: Vec<Option<Result<T, LabError>>> = (0..total)
        .into_par_iter()
        .with_max_len(1)
        .map(|index| {
            if index > lowest_failure.load(Ordering::Relaxed) {
                return None;
            }
            let result = job(index);
            if result.is_err() {
                lowest_failure.fetch_min(index, Ordering::Relaxed);
            }
            progress(Progress { stage, done: done.fetch_add(1, Ordering::Relaxed) + 1, total });
            Some(result)
        })
        .collect();
    results.into_iter().flatten().collect()
}

fn failed(experiment: &Experiment, load: usize, policy: usize, run: String, source: SimError) -> LabError {
    LabError::Run { policy: experiment.policies[policy].clone(), load: experiment.loads[load], run, source }
}

/// The seed of run `run` of a load (pilots are run 0), the same for every policy: the experiment's seed, load and run
/// through the output mixing of SplitMix64, so that neighbouring seeds share nothing.
fn seed_of(seed: u64, load: u32, run: u32) -> u64 {
    let mut mixed = seed;
    for word in [u64::from(load), u64::from(run)] {
        mixed = mixed.wrapping_add(word.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
    }
    mixed
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::summary::tests::{report, small};

    /// A machine that takes 1 ms to start and then `ns` per message, policy 1 half as long.
    fn steady(ns: u64) -> impl Fn(usize, &Program, u64) -> Result<Report, SimError> + Sync {
        move |policy, program, seed| {
            let per_message = if policy == 1 { ns / 2 } else { ns };
            Ok(report(1_000_000 + program.messages() * per_message + seed % 1000))
        }
    }

    fn quiet(_: Progress) {}

    #[test]
    fn the_fastest_policy_lasts_the_seconds_asked_for() {
        let experiment = Experiment { seconds: 0.5, ..small() };
        let runs = run_cells(&experiment, 1, 1, &steady(100), &quiet).unwrap();
        for load in &runs {
            let shortest = load.reports.iter().flatten().map(|report| report.measured_ns).min().unwrap();
            assert!((500_000_000..650_000_000).contains(&shortest), "load {}: {shortest} ns", load.load);
        }
        // Twice the groups send twice the messages a loop: half the loops for the same time.
        assert!(runs[0].work.abs_diff(2 * runs[1].work) * 100 < runs[0].work);
    }

    #[test]
    fn pilots_give_up_when_no_work_would_last_the_seconds() {
        let give_up = |measured_ns: u64| {
            let pilots = AtomicUsize::new(0);
            let simulate = |_: usize, _: &Program, _: u64| {
                pilots.fetch_add(1, Ordering::Relaxed);
                Ok(report(measured_ns))
            };
            let line = run_cells(&small(), 1, 1, &simulate, &quiet).unwrap_err().to_string();
            (line, pilots.into_inner())
        };
        let head = "policy `linux-5.9`, load 1, pilot run: ";
        let (line, pilots) = give_up(0);
        assert!(line.starts_with(&format!("{head}no simulated time passes")), "{line}");
        assert_eq!(pilots, 1);
        let (line, pilots) = give_up(1);
        assert!(line.starts_with(&format!("{head}0.01 s of simulated time would take 11500000000 loops")), "{line}");
        assert_eq!(pilots, 2);
    }

    #[test]
    fn stated_work_is_run_as_it_is() {
        let workload = Workload::parse("hackbench/threads-pipe,loops=7").unwrap();
        let experiment = Experiment { workload, fixed_work: true, ..small() };
        let runs = run_cells(&experiment, 1, 1, &steady(100), &quiet).unwrap();
        assert_eq!(runs.iter().map(|load| load.work).collect::<Vec<_>>(), [7, 7]);
        assert_eq!(runs[1].reports[0][0].measured_ns / 1000, 1000 + (2 * 400 * 7 + 80) / 10);
    }

    #[test]
    fn run_k_has_one_seed_for_all_policies_and_none_twice() {
        let seen = Mutex::new(Vec::new());
        let experiment = Experiment { fixed_work: true, ..small() };
        let note = |policy: usize, program: &Program, seed: u64| {
            seen.lock().unwrap().push((policy, program.tasks.len(), seed));
            Ok(report(1))
        };
        let runs = run_cells(&experiment, 5, 2, &note, &quiet).unwrap();
        let mut seen = seen.into_inner().unwrap();
        seen.sort_unstable();
        let of = |policy: usize| seen.iter().filter(move |cell| cell.0 == policy).map(|cell| (cell.1, cell.2));
        assert!(of(0).eq(of(1)));
        let mut seeds: Vec<u64> = runs.iter().flat_map(|load| load.seeds.clone()).collect();
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!(seeds.len(), 2 * 3);
    }

    #[test]
    fn another_seed_gives_other_runs() {
        assert_ne!(seed_of(1, 1, 1), seed_of(2, 1, 1));
        assert_ne!(seed_of(1, 2, 1), seed_of(1, 1, 2));
    }

    #[test]
    fn any_number_of_jobs_gives_the_same_runs() {
        let alone = run_cells(&small(), 3, 1, &steady(100), &quiet).unwrap();
        assert_eq!(run_cells(&small(), 3, 4, &steady(100), &quiet).unwrap(), alone);
    }

    #[test]
    fn the_first_failing_cell_is_named_for_any_number_of_jobs() {
        let experiment = Experiment { fixed_work: true, ..small() };
        let fail = |policy: usize, program: &Program, seed: u64| match (policy, program.tasks.len() > 41) {
            (0, false) => Ok(report(1)),
            (_, false) if seed == seed_of(9, 1, 1) => Ok(report(1)),
            _ => Err(SimError::Deadlock { waiting: 3, at_ms: 12 }),
        };
        for jobs in [1, 3] {
            let error = run_cells(&experiment, 9, jobs, &fail, &quiet).unwrap_err();
            assert_eq!(
                error.to_string(),
                "policy `rfc2-cluster`, load 1, run 2: deadlock: 3 tasks wait for ever after 12 ms of simulated time"
            );
        }
    }

    #[test]
    fn progress_counts_up_to_every_cell() {
        let seen = Mutex::new(Vec::new());
        run_cells(&small(), 1, 2, &steady(100), &|progress| seen.lock().unwrap().push(progress)).unwrap();
        let seen = seen.into_inner().unwrap();
        let most = |stage| seen.iter().filter(|progress| progress.stage == stage).map(|progress| progress.done).max();
        assert_eq!((most("pilots"), most("runs")), (Some(4), Some(12)));
        assert!(seen.iter().all(|progress| progress.total == if progress.stage == "runs" { 12 } else { 4 }));
    }
}
