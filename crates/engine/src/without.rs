//! Mechanisms that can be left out, for counterfactuals: what would the table be if this cost nothing, or did not exist?
//!
//! Most are costs: the figures are compiled to zero (`costs.rs`) and the engine's paths stay as they are. The others are
//! rules that a flag of `Tuning` switches.

/// Declares the mechanisms in the order in which they are listed.
macro_rules! parts {
    ($($part:ident, $name:literal, $doc:literal;)*) => {
        /// A mechanism that can be left out.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Part { $(#[doc = $doc] $part,)* }

        impl Part {
            /// All of them, in order.
            pub const ALL: &[Part] = &[$(Part::$part,)*];

            /// The word for it on the command line, in experiments and in results.
            pub fn name(self) -> &'static str {
                match self { $(Part::$part => $name,)* }
            }

            /// What is different without it, in words.
            pub fn meaning(self) -> &'static str {
                match self { $(Part::$part => $doc,)* }
            }
        }
    };
}

parts! {
    Jitter, "jitter", "Every stretch of computing takes exactly its time.";
    Noise, "noise", "No background tasks wake.";
    Smt, "smt", "A thread is not slowed by the other threads of its core.";
    Frequency, "frequency", "The clock does not fall as more cores of a package are active.";
    Memory, "memory", "Memory-bound code never misses a cache: neither latencies nor bandwidths slow it.";
    Bandwidth, "bandwidth", "Clusters and nodes draw any amount from memory.";
    RemoteMemory, "remote-memory", "Memory of another node is as near as one's own; its bus still is that node's.";
    SharedData, "shared-data", "Lines that another CPU wrote last are pulled in no time.";
    Locks, "locks", "Nobody waits for the lock of a run queue or of a wait queue.";
    PipeMutex, "pipe-mutex", "Several tasks may be inside one pipe at once.";
    HandOver, "hand-over", "A mutex passes from its owner to a spinner in no time.";
    WakeUp, "wake-up", "The waker's own work and the enqueue take no time.";
    WakeList, "wake-list", "The waker always enqueues the wakee itself, in other LLCs too, and waits for one still on its CPU.";
    Ipi, "ipi", "Interrupts between CPUs are sent, travel and are handled in no time.";
    IdleExit, "idle-exit", "A CPU leaves its idle state in no time.";
    ScanCost, "scan-cost", "Examining CPUs in an idle search takes no time.";
    Collisions, "collisions", "An idle CPU chosen for a wakee is idle for no other waker: choosing is a claim.";
    Switch, "switch", "Context switches take no time.";
    Tick, "tick", "The tick's handler takes no time; what it decides stays.";
    BalanceCost, "balance-cost", "Balancing takes no time, so nothing but a wake-up gates new-idle passes.";
    Balancing, "balancing", "No CPU balances, neither at ticks nor when it goes idle.";
    Autogroup, "autogroup", "The benchmark's session has no group: loads are those of its tasks.";
    Refill, "refill", "A migrated task finds its caches warm.";
}

/// A set of mechanisms to leave out; empty by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Without(u32);

impl Without {
    /// Leaves one more out.
    #[must_use]
    pub fn and(self, part: Part) -> Without {
        Without(self.0 | 1 << part as u8)
    }

    /// Whether a mechanism is left out.
    #[inline]
    pub fn has(self, part: Part) -> bool {
        self.0 & (1 << part as u8) != 0
    }

    /// The mechanisms left out, in order.
    pub fn parts(self) -> impl Iterator<Item = Part> {
        Part::ALL.iter().copied().filter(move |&part| self.has(part))
    }

    /// The set of the mechanisms named, in any order.
    ///
    /// # Errors
    /// The first name that is none.
    pub fn parse<'n>(names: impl IntoIterator<Item = &'n str>) -> Result<Without, UnknownPart> {
        names.into_iter().try_fold(Without::default(), |set, name| {
            let part = Part::ALL.iter().find(|part| part.name() == name);
            part.map(|&part| set.and(part)).ok_or_else(|| UnknownPart(name.to_owned()))
        })
    }
}

/// A name that no mechanism has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no mechanism `{0}`; there are {known}", known = names())]
pub struct UnknownPart(String);

fn names() -> String {
    Part::ALL.iter().map(|part| part.name()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_named_in_the_order_of_the_list_and_nothing_else() {
        let set = Without::parse(["scan-cost", "hand-over", "scan-cost"]).unwrap();
        assert_eq!(set.parts().map(Part::name).collect::<Vec<_>>(), ["hand-over", "scan-cost"]);
        assert!(!set.has(Part::Switch) && set != Without::default());
    }

    #[test]
    fn an_unknown_name_is_told_with_all_that_there_are() {
        let line = Without::parse(["switch", "hand-off"]).unwrap_err().to_string();
        assert!(line.starts_with("there is no mechanism `hand-off`; there are jitter, noise"), "{line}");
        assert!(Part::ALL.iter().all(|part| line.contains(part.name())) && !line.contains('\n'));
    }
}
