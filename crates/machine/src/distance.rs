//! How far two CPUs are apart: the one classification that costs, counters, traces and reports share.

/// The closest thing that two CPUs share, nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Distance {
    /// The same CPU.
    SameCpu,
    /// Threads of one core.
    Smt,
    /// Cores of one cluster.
    Cluster,
    /// Cores under one last-level cache.
    Llc,
    /// CPUs of one NUMA node.
    Node,
    /// CPUs of one package.
    Package,
    /// Nothing of the above.
    Beyond,
}

impl Distance {
    /// Number of classes, for dense tables.
    pub const COUNT: usize = 7;

    /// All classes, nearest first.
    pub const ALL: [Distance; Distance::COUNT] = [
        Distance::SameCpu,
        Distance::Smt,
        Distance::Cluster,
        Distance::Llc,
        Distance::Node,
        Distance::Package,
        Distance::Beyond,
    ];

    /// The word used in files, tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Distance::SameCpu => "same-cpu",
            Distance::Smt => "smt",
            Distance::Cluster => "cluster",
            Distance::Llc => "llc",
            Distance::Node => "node",
            Distance::Package => "package",
            Distance::Beyond => "beyond",
        }
    }
}
