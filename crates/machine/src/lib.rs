//! A machine: its topology, its cost figures, and where they come from.

mod costs;
mod cpuset;
mod distance;
mod finding;
mod ids;
mod topology;

pub use costs::{COST_KEYS, Confidence, CostError, CostKey, CostKeyInfo, Costs, Figure, Shape, Value};
pub use cpuset::{CpuSet, MAX_CPU_ID, ParseCpuSetError};
pub use distance::Distance;
pub use finding::{Finding, Severity};
pub use ids::CpuId;
pub use topology::{Arch, Cache, CacheKind, ClusterSource, IdleState, NO_SET, Node, Partition, Topology};

/// What is built into the kernel of a measured machine.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelConfig {
    /// Ticks per second.
    pub hz: u32,
    /// Whether a running kernel path can be preempted (CONFIG_PREEMPT) or only at its end (voluntary, none).
    pub preempt: bool,
    /// Where the two come from.
    pub source: String,
    /// How sure they are.
    pub confidence: Confidence,
}

/// A topology plus its cost figures.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Its name (`kunpeng920`).
    pub name: String,
    /// One sentence.
    pub title: String,
    /// Its topology.
    pub topology: Topology,
    /// Its figures.
    pub costs: Costs,
    /// Its kernel's build.
    pub config: KernelConfig,
}
