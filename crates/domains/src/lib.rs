//! Sched domains of a machine under a kernel generation.

mod kernel;
mod tree;

pub use kernel::{
    BalanceProfile, ClusterLevel, ClusterLimits, DomainProfile, Kernel, NumaImbalance, PipeWriterWake, QueueKind,
    QueueProfile, WakeQueue,
};
pub use tree::{Cached, Domain, DomainId, DomainTree, Flags, Group, GroupId, SpanId};
