//! What `guest-load`, the load inside a guest, reports.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A load and what was seen of it after its warm-up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Pairs of threads that wake each other.
    pub pairs: u64,
    /// Groups of senders and receivers.
    #[serde(default)]
    pub groups: u64,
    /// Hogs that may run anywhere.
    pub hogs: u64,
    /// Hogs that are bound to a CPU each, together to a cluster.
    pub bound_hogs: u64,
    /// How long it was looked at.
    pub seconds: f64,
    /// Clusters of the machine.
    pub clusters: u64,
    /// Messages of the pairs that were read.
    pub messages: u64,
    /// The messages whose reader slept.
    pub wakeups: Wakeups,
    /// From before the write to the return of the read: the mean of all messages, ns.
    pub delay_mean_ns: u64,
    /// The longest of them, ns.
    pub delay_max_ns: u64,
    /// Where the hogs ran that may run anywhere.
    pub spread: Spread,
}

/// Wake-ups by what the CPU of the waker and the one on which the wakee ran next share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Wakeups {
    /// They are one CPU.
    pub same_cpu: u64,
    /// A cluster.
    pub cluster: u64,
    /// A last-level cache.
    pub llc: u64,
    /// Less.
    pub farther: u64,
    /// Of all of these: the wakee ran on another CPU than before its sleep.
    pub moved: u64,
    /// Of all of these: it ran on the CPU of a bound hog.
    pub on_bound_hogs: u64,
}

impl Wakeups {
    /// All of them.
    pub fn all(&self) -> u64 {
        self.same_cpu + self.cluster + self.llc + self.farther
    }

    /// The share whose waker and wakee share a cluster, or a CPU; `None` without wake-ups, as for the other two.
    pub fn near(&self) -> Option<f64> {
        self.share(self.same_cpu + self.cluster)
    }

    /// The share whose wakee moved.
    pub fn moves(&self) -> Option<f64> {
        self.share(self.moved)
    }

    /// The share whose wakee ran on the CPU of a bound hog.
    pub fn beside_hogs(&self) -> Option<f64> {
        self.share(self.on_bound_hogs)
    }

    fn share(&self, part: u64) -> Option<f64> {
        (self.all() > 0).then(|| part as f64 / self.all() as f64)
    }
}

/// Where hogs ran, looked at every 10 ms. A hog that waits counts where it ran last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Number of looks.
    pub samples: u64,
    /// Clusters with a hog, added up over the samples.
    pub used: u64,
    /// Samples in which two hogs were in one cluster.
    pub shared: u64,
    /// Samples in which a cluster had at least two hogs more than another.
    pub uneven: u64,
    /// How often a hog was on another CPU than a millisecond before.
    pub cpu_changes: u64,
    /// How often in another cluster.
    pub cluster_changes: u64,
}

impl Spread {
    /// Clusters with a hog, on average; `None` without samples, as for [`Spread::unevenness`].
    pub fn mean_used(&self) -> Option<f64> {
        (self.samples > 0).then(|| self.used as f64 / self.samples as f64)
    }

    /// The share of uneven samples.
    pub fn unevenness(&self) -> Option<f64> {
        (self.samples > 0).then(|| self.uneven as f64 / self.samples as f64)
    }
}

/// One line.
impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pairs, {} hogs, {} bound hogs, {} s", self.pairs, self.hogs, self.bound_hogs, self.seconds)?;
        if self.groups > 0 {
            write!(f, "; {} groups, {} messages", self.groups, self.messages)?;
        }
        let wakeups = &self.wakeups;
        if let (Some(near), Some(moves)) = (wakeups.near(), wakeups.moves()) {
            let (near, moves) = (100.0 * near, 100.0 * moves);
            write!(f, "; {} wake-ups in {} messages: {near:.1} % in the cluster", wakeups.all(), self.messages)?;
            write!(f, " ({} same CPU, {} cluster, ", wakeups.same_cpu, wakeups.cluster)?;
            write!(f, "{} LLC, {} farther), {moves:.1} % moved", wakeups.llc, wakeups.farther)?;
            if self.bound_hogs > 0 {
                write!(f, ", {} on a bound hog's CPU", wakeups.on_bound_hogs)?;
            }
        }
        if self.pairs > 0 && self.messages > 0 {
            write!(f, "; delay {} ns, longest {} ns", self.delay_mean_ns, self.delay_max_ns)?;
        }
        if let Some(used) = self.spread.mean_used() {
            let Spread { samples, shared, uneven, cpu_changes, cluster_changes, .. } = self.spread;
            write!(f, "; hogs in {used:.2} of {} clusters, {shared} of {samples} samples shared, ", self.clusters)?;
            write!(f, "{uneven} uneven, {cpu_changes} changes of CPU, {cluster_changes} of cluster")?;
        }
        Ok(())
    }
}
