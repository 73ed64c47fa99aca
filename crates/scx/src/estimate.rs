//! Which inputs of a policy a sched_ext scheduler does not have, and what stands in for them.

use huddle_policy::{EntryAnchor, Plan, Step};

/// An input of a policy that is estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// The input, as [`huddle_policy::View`] names it.
    pub input: &'static str,
    /// What stands in for it.
    pub by: &'static str,
}

/// Tasks of sched_ext have no fair load.
const ESTIMATES: [Estimate; 9] = [
    Estimate { input: "cpu_load", by: "1024 for each task that runs or waits on the CPU" },
    Estimate { input: "waker_load", by: "the waker's weight" },
    Estimate { input: "wakee_load", by: "the wakee's weight" },
    Estimate { input: "capacity", by: "1024 for every CPU" },
    Estimate {
        input: "nr_running",
        by: "the running task and those in the CPU's own queues; tasks of other classes are not seen",
    },
    Estimate { input: "has_idle_cores", by: "the kernel's mask of idle cores, which is never stale" },
    Estimate { input: "flips", by: "none: no wake-up is wide" },
    Estimate { input: "nr_delayed", by: "0: no task of sched_ext stays queued in its sleep" },
    Estimate { input: "nr_idle_scan", by: "the kernel's formula on the LLC's run time over the last 100 ms" },
];

/// What is estimated of a plan's inputs; empty: it decides on exactly what its record asks.
pub fn estimates(plan: &Plan) -> Vec<Estimate> {
    let mut inputs: Vec<&str> = plan.steps().iter().flat_map(Step::inputs).collect();
    let entry = plan.entry();
    match entry.anchor {
        EntryAnchor::Load => inputs.extend(["cpu_load", "waker_load", "wakee_load", "capacity", "nr_running"]),
        EntryAnchor::Waker => inputs.push("nr_running"),
        EntryAnchor::Prev => {}
    }
    if entry.anchor != EntryAnchor::Prev && entry.wide {
        inputs.push("flips");
    }
    if entry.sync_minus_delayed {
        inputs.push("nr_delayed");
    }
    ESTIMATES.into_iter().filter(|estimate| inputs.contains(&estimate.input)).collect()
}
