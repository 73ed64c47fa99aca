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
//!
//! [`compare()`] holds the result against what a kernel shows of its own, which [`observe`] reads.

mod attach;
mod build;
mod compare;
mod groups;
mod kernel;
mod levels;
mod load;
mod observed;
mod tree;

#[cfg(test)]
mod tests;

pub use build::{build, build_for};
pub use compare::{Comparison, Difference, compare};
pub use kernel::{
    BalanceProfile, ClusterLevel, ClusterLimits, DomainProfile, Kernel, LagLimit, Name, NewidleDice, NumaImbalance,
    PipeWriterWake, QueueKind, QueueProfile, SliceRules, WakeQueue,
};
pub use load::{KernelError, kernel_names};
pub use observed::{Observed, ObservedDomain, ObservedError, ObservedGroup, View, ViewSource, kmsg_text, observe};
pub use tree::{Cached, Domain, DomainId, DomainTree, Flags, Group, GroupId, NO_LLC, SpanId};
