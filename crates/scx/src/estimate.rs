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

/// Tasks of sched_ext have no fair load, and the kernel keeps no scan costs for them.
const ESTIMATES: [Estimate; 11] = [
    Estimate { input: "cpu_load", by: "1024 for each task that runs or waits on the CPU" },
    Estimate { input: "waker_load", by: "the waker's weight" },
    Estimate { input: "wakee_load", by: "the wakee's weight" },
    Estimate { input: "capacity", by: "1024 for every CPU" },
    Estimate {
        input: "nr_running",
        by: "the running task and those in the CPU's own queues; tasks of other classes are not seen",
    },
    Estimate { input: "has_idle_cores", by: "the kernel's mask of idle cores, which is never stale" },
    Estimate { input: "avg_idle", by: "an average of the times between idle and busy as sched_ext reports them" },
    Estimate { input: "aged_idle", by: "half the average idle time, not aged by jiffies" },
    Estimate { input: "avg_scan_cost", by: "the whole decision's time, averaged per CPU" },
    Estimate { input: "scan_time", by: "the whole decision's time" },
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
    ESTIMATES.into_iter().filter(|estimate| inputs.contains(&estimate.input)).collect()
}
