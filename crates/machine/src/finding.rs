//! Repairs and doubts met while reading a machine.

use crate::CpuId;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// The input was repaired or is doubtful.
    Warning,
}

/// One repair or doubt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Short stable name (`cluster-from-l2`).
    pub code: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// The CPU concerned, if one is.
    pub cpu: Option<CpuId>,
    /// The file or key concerned, empty if none is.
    pub file: String,
    /// One sentence.
    pub message: String,
    /// How many findings of the same code are only counted in this one; 0 when it is a finding itself.
    pub counted: usize,
}
