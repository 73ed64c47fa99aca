//! Placement policies: records, their compiled plans and the interpreter.
//!
//! A [`Policy`] is data: how a wake-up's target is chosen, and steps that then look for a CPU. [`Policy::compile`] turns it into
//! a [`Plan`] for one machine's domains; [`Plan::place`] decides one wake-up on what a [`View`] shows.
//!
//! ```text
//! place  select_task_rq ── entry rule: this CPU or prev? ── target
//!          └─ select     ── step 1, step 2 … : Found → that CPU │ Stop → its value │ Continue
//!                           budget exhausted → the first step behind the scans
//! place_fork             ── target prev ── fork step 1, fork step 2 …
//! ```
//!
//! The kernel's own steps only look: two wake-ups may find the same CPU. Steps that claim take it out of everybody's sight.
//!
//! Idle state comes as words of 64 CPUs and scans are word operations; a decision allocates nothing. [`Tracer`] shows a decision
//! step by step and costs nothing where it is not used.

mod claim;
mod clusters;
mod describe;
mod frozen;
mod place;
mod plan;
mod record;
mod scan;
mod trace;
mod view;

pub use claim::LOST_CLAIMS;
pub use clusters::Clusters;
pub use frozen::Frozen;
pub use plan::{AffineSpan, ClaimSets, Mask, Plan, PlanCpu, Scratch};
pub use record::{
    Anchor, ClusterCondition, ClusterSrc, Cost, Entry, EntryAnchor, Kept, Method, OnExhaust, Policy, PolicyError, Pred,
    Ranks, Share, SmtCondition, Start, Step, Takes, Update, Within, policy_names,
};
pub use trace::{AffineRule, Event, NoTrace, Tracer};
pub use view::{Placement, Undecidable, View, Wakeup};
