//! A machine: its topology, its cost figures, and where they come from.

mod archive;
mod assemble;
mod capture;
mod costs;
mod cpuset;
mod distance;
mod error;
mod file;
mod finding;
mod hwloc;
mod ids;
mod layout;
mod source;
mod sysfs;
mod topology;
mod tree;

pub use capture::{Absence, Capture};
pub use costs::{COST_KEYS, Confidence, CostError, CostKey, CostKeyInfo, Costs, Figure, Shape, Value};
pub use cpuset::{CpuSet, MAX_CPU_ID, ParseCpuSetError};
pub use distance::Distance;
pub use error::MachineError;
pub use finding::{Finding, Severity};
pub use ids::CpuId;
pub use layout::{Layout, Level};
pub use source::{builtin_names, load_topology};
pub use topology::{
    Arch, Cache, CacheKind, ClusterSource, IdleState, NO_SET, NODE_RECLAIM_DISTANCE, Node, Partition, Topology,
};

/// Most CPU ids that are read: twice what any Linux configuration allows. It guards memory against garbage input, since
/// a set takes a bit for every id.
pub const MAX_CPUS: usize = 1 << 14;

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
