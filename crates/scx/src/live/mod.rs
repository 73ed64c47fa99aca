//! The scheduler on the running kernel: what it needs, loading, modes, counters, the end.
//!
//! ```text
//! kernel     what this kernel lacks, before anything is loaded
//! load       plans and topology into the BPF object, attached; counters out
//! control    a socket for root: mode, status, stop
//! run        one thread that serves requests, signals and the end of the scheduler
//! ```

mod control;
mod kernel;
mod load;
mod run;
mod shared;

pub use control::{Answer, ClusterBusy, ControlError, Request, SOCKET, Status, ask};
pub use kernel::{Kernel, Missing};
pub use load::{Ending, LoadError, Mode, Plans, Scheduler, Timing};
pub use run::{Reason, Server};
pub use shared::{Counters, WAIT_BUCKETS};
