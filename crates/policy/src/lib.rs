//! Placement policies: records, their compiled plans and the interpreter.

mod view;

pub use view::{Placement, Undecidable, View, Wakeup};
