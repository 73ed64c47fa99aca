//! Memory-bound code: its speed follows from cache size, miss curve, latencies and bandwidth of the machine, and from who
//! else runs such code under the same caches.

use huddle_domains::DomainTree;
use huddle_machine::{CacheKind, CostKey, CpuId, Machine};
use huddle_program::{MemoryProfile, MissCurve};

use crate::Observer;
use crate::report::Mechanism;
use crate::sim::Sim;
use crate::state::{NONE, Phase, Stage};
use crate::without::{Part, Without};

/// The machine's memory system, by CPU.
pub(crate) struct MemorySystem {
    /// Index of the level-2 cache and of the last-level cache.
    l2_of: Vec<u32>,
    llc_of: Vec<u32>,
    node_of: Vec<u32>,
    l2_bytes: Vec<f64>,
    llc_bytes: Vec<f64>,
    l2_ns: f64,
    llc_ns: f64,
    dram_ns: f64,
    /// GB/s are bytes per ns.
    cluster_bandwidth: f64,
    node_bandwidth: f64,
    cluster_of: Vec<u32>,
    nr_clusters: usize,
    nr_nodes: usize,
    /// What an access costs more than a local one, ns, by node of the CPU, then of the memory.
    farther_ns: Vec<f64>,
}

/// A copy of memory-bound code that runs.
pub(crate) struct Running<'p> {
    /// Where.
    pub cpu: usize,
    /// The node of its memory.
    pub home: u32,
    /// How it behaves.
    pub profile: &'p MemoryProfile,
}

/// Distance of a node from itself (`LOCAL_DISTANCE`).
const LOCAL_DISTANCE: u32 = 10;
/// A memory bus is never taken to be fuller than this: the queue in front of it grows without bound there.
const FULL: f64 = 0.95;
/// Rounds in which speeds and bus loads are brought to agree.
const ROUNDS: usize = 20;

impl MemorySystem {
    pub(crate) fn new(machine: &Machine, tree: &DomainTree, without: Without) -> MemorySystem {
        let topology = &machine.topology;
        let caches = |level: u32| {
            topology.caches.iter().filter(move |cache| cache.level == level && cache.kind != CacheKind::Instruction)
        };
        let last = topology.caches.iter().map(|cache| cache.level).max().unwrap_or(0);
        let index = |level: u32| {
            let mut of = vec![NONE; tree.nr_cpus];
            let mut bytes = Vec::new();
            for cache in caches(level) {
                cache.cpus.iter().for_each(|cpu| of[cpu.index()] = bytes.len() as u32);
                bytes.push(cache.size.unwrap_or(0) as f64);
            }
            (of, bytes)
        };
        let ((l2_of, l2_bytes), (llc_of, llc_bytes)) = (index(2), index(last.max(3)));
        let figure = |key| if without.has(Part::Memory) { 0.0 } else { machine.costs.scalar(key) };
        let limit = |key| if without.has(Part::Bandwidth) { 0.0 } else { figure(key) };
        let cluster_of = (0..tree.nr_cpus)
            .map(|cpu| match topology.online.contains(CpuId::from(cpu)) {
                true => topology.cluster.index_of(CpuId::from(cpu)),
                false => NONE,
            })
            .collect();
        let nr_nodes = topology.nodes.len().max(1);
        let step = match without.has(Part::RemoteMemory) {
            true => 0.0,
            false => figure(CostKey::RemoteMemory),
        };
        let farther = |from: usize, to: usize| {
            let distance = topology.nodes.get(from).and_then(|node| node.distance.get(to)).copied();
            f64::from(distance.unwrap_or(LOCAL_DISTANCE).saturating_sub(LOCAL_DISTANCE)) * step
        };
        let farther_ns = (0..nr_nodes * nr_nodes).map(|pair| farther(pair / nr_nodes, pair % nr_nodes)).collect();
        MemorySystem {
            nr_clusters: topology.cluster.sets().len(),
            nr_nodes,
            farther_ns,
            l2_of,
            llc_of,
            node_of: tree.node_of.clone(),
            l2_bytes,
            llc_bytes,
            l2_ns: figure(CostKey::L2Latency),
            llc_ns: figure(CostKey::L3Latency),
            dram_ns: figure(CostKey::DramLatency),
            cluster_bandwidth: limit(CostKey::ClusterBandwidth),
            node_bandwidth: limit(CostKey::NodeBandwidth),
            cluster_of,
        }
    }

    /// Bytes of a cache for each of the `sharers` that run; nothing where there is no such cache.
    fn share(of: &[u32], bytes: &[f64], cpu: usize, running: &[usize]) -> f64 {
        if of[cpu] == NONE {
            return 0.0;
        }
        let sharers = running.iter().filter(|&&other| of[other] == of[cpu]).count();
        bytes[of[cpu] as usize] / sharers.max(1) as f64
    }

    /// Nanoseconds per thousand instructions of each running copy, in the order of `running`.
    pub(crate) fn speeds(&self, running: &[Running]) -> Vec<f64> {
        let cpus = || running.iter().map(|copy| copy.cpu);
        let shares = |of: &[u32], bytes: &[f64]| -> Vec<f64> {
            let sharers = totals(bytes.len(), cpus().map(|cpu| (of[cpu], 1.0)));
            let share = |cpu: usize| of[cpu] as usize;
            cpus().map(|cpu| bytes.get(share(cpu)).map_or(0.0, |bytes| bytes / sharers[share(cpu)])).collect()
        };
        let (l2, llc) = (shares(&self.l2_of, &self.l2_bytes), shares(&self.llc_of, &self.llc_bytes));
        let of_copy = |(index, copy): (usize, &Running)| {
            let l2 = misses(&copy.profile.l2_misses, l2[index]);
            (l2, misses(&copy.profile.llc_misses, llc[index]).min(l2))
        };
        let misses: Vec<(f64, f64)> = running.iter().enumerate().map(of_copy).collect();
        let mut speeds = vec![0.0; running.len()];
        let mut wait = vec![1.0; running.len()];
        for _ in 0..ROUNDS {
            for (index, copy) in running.iter().enumerate() {
                let ((l2, llc), profile) = (misses[index], copy.profile);
                let stalls = (profile.l2_accesses - l2).max(0.0) * self.l2_ns
                    + (l2 - llc) * self.llc_ns
                    + llc * (self.dram_ns * wait[index] + self.farther(copy.cpu, copy.home));
                speeds[index] = profile.base_ns + stalls / profile.overlap;
            }
            let traffic = |index: usize| misses[index].1 * running[index].profile.bytes_per_miss / speeds[index];
            let drawn = |of: &dyn Fn(&Running) -> u32, count: usize| {
                totals(count, running.iter().enumerate().map(|(index, copy)| (of(copy), traffic(index))))
            };
            let by_cluster = drawn(&|copy| self.cluster_of[copy.cpu], self.nr_clusters);
            let by_node = drawn(&|copy| copy.home, self.nr_nodes);
            for (index, copy) in running.iter().enumerate() {
                let load = |bytes_per_ns: f64, limit: f64| if limit > 0.0 { bytes_per_ns / limit } else { 0.0 };
                let busiest = load(by_cluster[self.cluster_of[copy.cpu] as usize], self.cluster_bandwidth)
                    .max(load(by_node[copy.home as usize], self.node_bandwidth));
                let target = 1.0 / (1.0 - busiest.min(FULL));
                wait[index] = (wait[index] + target) / 2.0;
            }
        }
        speeds
    }

    /// What an access to the memory of node `home` costs a CPU more than one to its own, ns.
    fn farther(&self, cpu: usize, home: u32) -> f64 {
        self.farther_ns[self.node_of[cpu] as usize * self.nr_nodes + home as usize]
    }
}

/// Sums by index.
fn totals(count: usize, values: impl Iterator<Item = (u32, f64)>) -> Vec<f64> {
    let mut sums = vec![0.0; count];
    for (index, value) in values {
        if let Some(sum) = sums.get_mut(index as usize) {
            *sum += value;
        }
    }
    sums
}

/// Misses per thousand instructions with a cache of that size.
fn misses(curve: &MissCurve, bytes: f64) -> f64 {
    curve.min + (curve.max - curve.min) * libm::pow(1.0 + bytes / curve.scale, -curve.exponent)
}

impl<O: Observer> Sim<'_, O> {
    /// The task on `c` begins or resumes memory-bound code. False when it has done all of it.
    pub(crate) fn memory_continues(&mut self, c: usize, t: usize) -> bool {
        self.charge(c);
        self.settle(c);
        if self.tasks[t].memory_left <= 0.0 {
            self.memory_changed();
            return false;
        }
        if self.tasks[t].home == NONE {
            // First touch.
            self.tasks[t].home = self.memory.node_of[c];
        }
        let refill = std::mem::take(&mut self.tasks[t].refill);
        let back = self.refill_of(c, t);
        let cpu = &mut self.cpus[c];
        cpu.phase = Phase::Running;
        cpu.mechanism = Mechanism::Compute;
        cpu.portions.clear();
        cpu.portions.push(Mechanism::Refill, refill + back);
        cpu.memory_since = self.now + refill + back;
        self.tasks[t].memory_cost = 0.0;
        self.memory_changed();
        true
    }

    /// A moved task finds its private share of the level-2 cache empty: each line is fetched once from the last level.
    fn refill_of(&mut self, c: usize, t: usize) -> u64 {
        let moved = std::mem::replace(&mut self.tasks[t].cache_cpu, c as u32);
        let memory = &self.memory;
        if moved == NONE || memory.l2_of[c] == NONE || memory.l2_of[moved as usize] == memory.l2_of[c] {
            return 0;
        }
        let profile = &self.setup.program.profiles[self.tasks[t].profile as usize];
        let running = self.memory_cpus();
        let bytes = MemorySystem::share(&memory.l2_of, &memory.l2_bytes, c, &running).min(profile.l2_misses.scale);
        (bytes / 64.0 * memory.llc_ns / profile.overlap) as u64
    }

    /// The task on `c` leaves in the middle of memory-bound code.
    pub(crate) fn memory_stops(&mut self, c: usize, t: usize) {
        if self.tasks[t].memory_cost > 0.0 {
            let cost = self.tasks[t].memory_cost;
            let ran = self.now.saturating_sub(self.cpus[c].memory_since) as f64;
            self.tasks[t].memory_left = (self.tasks[t].memory_left - ran / cost).max(0.001);
            self.tasks[t].memory_cost = 0.0;
        }
        self.memory_changed();
    }

    /// Takes what the task on `c` has done since its speed was last set off what is left.
    fn settle(&mut self, c: usize) {
        let t = self.cpus[c].curr as usize;
        let task = &mut self.tasks[t];
        if task.memory_cost > 0.0 {
            let ran = self.now.saturating_sub(self.cpus[c].memory_since) as f64;
            task.memory_left -= ran / task.memory_cost;
            // Less than a nanosecond's work is none.
            if task.memory_left * task.memory_cost < 1.0 {
                task.memory_left = 0.0;
            }
        }
        self.cpus[c].memory_since = self.cpus[c].memory_since.max(self.now);
    }

    pub(crate) fn runs_memory(&self, c: usize) -> bool {
        let cpu = &self.cpus[c];
        cpu.curr != NONE && cpu.phase == Phase::Running && self.tasks[cpu.curr as usize].stage == Stage::Memory
    }

    fn memory_cpus(&self) -> Vec<usize> {
        (0..self.cpus.len()).filter(|&cpu| self.runs_memory(cpu)).collect()
    }

    /// The set of running memory-bound tasks has changed: all their speeds and ends follow. Those of other nodes may draw on the
    /// same memory.
    pub(crate) fn memory_changed(&mut self) {
        let cpus = self.memory_cpus();
        let profiles = &self.setup.program.profiles;
        for &cpu in &cpus {
            self.settle(cpu);
        }
        let task_of = |cpu: usize| &self.tasks[self.cpus[cpu].curr as usize];
        let running: Vec<Running> = cpus
            .into_iter()
            .filter(|&cpu| task_of(cpu).memory_left > 0.0)
            .map(|cpu| {
                let task = task_of(cpu);
                Running { cpu, home: task.home, profile: &profiles[task.profile as usize] }
            })
            .collect();
        let speeds = self.memory.speeds(&running);
        for (&Running { cpu, profile, .. }, speed) in running.iter().zip(speeds) {
            // Company slows the computing; it runs in the time of the stalls.
            let speed = speed + profile.base_ns * (self.pace.stretch(cpu) - 1.0);
            let t = self.cpus[cpu].curr as usize;
            self.tasks[t].memory_cost = speed;
            let left = (self.tasks[t].memory_left * speed) as u64;
            let begin = self.cpus[cpu].memory_since;
            self.heap.set(cpu, (begin + left).max(self.now + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misses_fall_from_max_to_min_as_the_cache_grows() {
        let curve = MissCurve { min: 5.0, max: 70.0, scale: 1e6, exponent: 0.7 };
        assert_eq!(misses(&curve, 0.0), 70.0);
        assert!(misses(&curve, 1e6) < 70.0 && misses(&curve, 1e6) > misses(&curve, 4e6));
        assert!((misses(&curve, 1e18) - 5.0).abs() < 0.1);
    }

    fn profile() -> MemoryProfile {
        let curve = |max| MissCurve { min: 0.0, max, scale: 1e6, exponent: 0.0 };
        MemoryProfile {
            base_ns: 100.0,
            l2_accesses: 80.0,
            l2_misses: curve(40.0),
            llc_misses: curve(10.0),
            overlap: 2.0,
            bytes_per_miss: 100.0,
        }
    }

    /// Speed of copies on these CPUs of a Kunpeng, each with the node of its memory.
    fn speeds(copies: &[(usize, u32)], without: &[&str]) -> Vec<f64> {
        let machine = Machine::load("kunpeng920").unwrap();
        let tree = huddle_domains::build(&machine.topology, &huddle_domains::Kernel::load("6.7").unwrap());
        let memory = MemorySystem::new(&machine, &tree, Without::parse(without.iter().copied()).unwrap());
        let profile = profile();
        let running: Vec<Running> =
            copies.iter().map(|&(cpu, home)| Running { cpu, home, profile: &profile }).collect();
        memory.speeds(&running)
    }

    #[test]
    fn kunpeng_misses_to_other_nodes_cost_their_distance() {
        // 100 + (40 × 4 + 30 × 35 + 10 × 100) / 2 = 1205; distances 16, 32 and 33 are 30, 110 and 115 ns more for each of ten
        // misses, two at a time.
        let of = |home| speeds(&[(0, home)], &["bandwidth"])[0];
        for (home, wanted) in [(0, 1205.0), (1, 1355.0), (2, 1755.0), (3, 1780.0)] {
            assert!((of(home) - wanted).abs() < 1e-6, "node {home}: {}", of(home));
        }
        assert_eq!(speeds(&[(0, 2)], &["bandwidth", "remote-memory"]), speeds(&[(0, 0)], &["bandwidth"]));
    }

    #[test]
    fn kunpeng_copies_crowd_the_bus_of_the_node_that_has_their_memory() {
        // A CPU of each cluster of two nodes: all memory on one, or half on each.
        let cpus = || (0..12).map(|cluster| 4 * cluster);
        let one: Vec<_> = cpus().map(|cpu| (cpu, 0)).collect();
        let own: Vec<_> = cpus().map(|cpu| (cpu, (cpu >= 24).into())).collect();
        let (one, own) = (speeds(&one, &["remote-memory"]), speeds(&own, &["remote-memory"]));
        assert!(one.iter().zip(&own).all(|(one, own)| one > own), "{one:?} {own:?}");
        // Nothing else differs, and on their own nodes all are alike.
        assert!(own.iter().all(|speed| (speed - own[0]).abs() < 1e-6));
    }
}
