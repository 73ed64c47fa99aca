//! Sched domains of a machine under a kernel generation.
//!
//! [`build()`] makes of a `Topology` and a [`Kernel`] what `kernel/sched/topology.c` makes of firmware's tables at boot:
//!
//! ```text
//! levels   which masks are stacked, bottom-up: SMT, cluster, MC, package, NODE, NUMA …
//! build    one chain of domains per CPU, their flags and numbers
//! groups   what each domain balances between
//! attach   domains that add nothing are removed, their flags handed over; cached pointers
//! ```

mod attach;
mod build;
mod groups;
mod kernel;
mod levels;
mod load;
mod tree;

#[cfg(test)]
mod tests;

pub use build::{build, build_for};
pub use kernel::{
    BalanceProfile, ClusterLevel, ClusterLimits, DomainProfile, Kernel, Name, NumaImbalance, PipeWriterWake, QueueKind,
    QueueProfile, WakeQueue,
};
pub use load::{KernelError, kernel_names};
pub use tree::{Cached, Domain, DomainId, DomainTree, Flags, Group, GroupId, NO_LLC, SpanId};
