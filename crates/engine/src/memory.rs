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

/// A copy of memory-bound code that runs, and what its speed is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Running {
    /// Where.
    pub cpu: usize,
    /// The node of its memory.
    pub home: u32,
    /// How it behaves: index of its profile.
    pub profile: u32,
    /// Of a thousand instructions: ns that no bus lengthens, ns in an empty memory bus, bytes over it.
    fixed: f64,
    bus: f64,
    bytes: f64,
    /// The full share of the bus that it waits for, 0..1.
    full: f64,
}

impl Running {
    pub(crate) fn new(cpu: usize, home: u32, profile: u32) -> Running {
        Running { cpu, home, profile, fixed: 0.0, bus: 0.0, bytes: 0.0, full: 0.0 }
    }

    /// Nanoseconds per thousand instructions.
    pub(crate) fn speed(&self) -> f64 {
        self.fixed + self.bus / (1.0 - self.full)
    }

    /// Bytes per ns that it draws from a bus that is full to that share, and how fast that falls with the share.
    fn draws(&self, full: f64) -> (f64, f64) {
        let free = 1.0 - full;
        let time = self.fixed * free + self.bus;
        (self.bytes * free / time, self.bytes * self.bus / (time * time))
    }
}

/// The copies that run, and room to work out their speeds in; kept from one time to the next.
#[derive(Default)]
pub(crate) struct Crowd {
    /// The copies.
    pub copies: Vec<Running>,
    l2_sharers: Vec<u32>,
    llc_sharers: Vec<u32>,
    clusters: Vec<Bus>,
    nodes: Vec<Bus>,
}

/// A memory bus, that of a cluster or that of a node.
#[derive(Clone, Copy, Debug)]
struct Bus {
    /// A cluster's: the node of its copies' memory.
    home: u32,
    /// The share of its bandwidth that is drawn, 0..1.
    full: f64,
    /// That share one turn ago.
    was: f64,
    /// Bytes per ns drawn at that share, and how fast that falls with the share.
    drawn: f64,
    falls: f64,
}

/// Distance of a node from itself (`LOCAL_DISTANCE`).
const LOCAL_DISTANCE: u32 = 10;
/// Steps towards the share of a bus; they converge quadratically, six are common.
const STEPS: usize = 40;
/// A share is found when a step moves it by less.
const EXACT: f64 = 1e-10;
/// Turns between clusters and nodes; one settles all unless copies of one cluster have their memory on different nodes.
const TURNS: usize = 50;

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

    /// Works out the speed of each copy: every bus is as full as the copies that share it draw at the speed that its fullness
    /// leaves them, and a copy waits for the fuller of its cluster's and its memory's node. What is drawn falls as a bus fills, so
    /// that there is one such state.
    pub(crate) fn work_out(&self, crowd: &mut Crowd, profiles: &[MemoryProfile]) {
        let Crowd { copies, l2_sharers, llc_sharers, clusters, nodes } = crowd;
        count(l2_sharers, self.l2_bytes.len(), copies.iter().map(|copy| self.l2_of[copy.cpu]));
        count(llc_sharers, self.llc_bytes.len(), copies.iter().map(|copy| self.llc_of[copy.cpu]));
        for copy in copies.iter_mut() {
            let share = |cache: u32, bytes: &[f64], sharers: &[u32]| match bytes.get(cache as usize) {
                Some(bytes) => bytes / f64::from(sharers[cache as usize]),
                None => 0.0,
            };
            let profile = &profiles[copy.profile as usize];
            let l2 = misses(&profile.l2_misses, share(self.l2_of[copy.cpu], &self.l2_bytes, l2_sharers));
            let llc = misses(&profile.llc_misses, share(self.llc_of[copy.cpu], &self.llc_bytes, llc_sharers)).min(l2);
            let hits = (profile.l2_accesses - l2).max(0.0) * self.l2_ns + (l2 - llc) * self.llc_ns;
            copy.fixed = profile.base_ns + (hits + llc * self.farther(copy.cpu, copy.home)) / profile.overlap;
            copy.bus = llc * self.dram_ns / profile.overlap;
            // An access that takes no time waits for nothing.
            copy.bytes = if copy.bus > 0.0 { llc * profile.bytes_per_miss } else { 0.0 };
            copy.full = 0.0;
        }
        reset(clusters, self.nr_clusters);
        reset(nodes, self.nr_nodes);
        let cluster = |copy: &Running| self.cluster_of[copy.cpu] as usize;
        let node = |copy: &Running| copy.home as usize;
        // When no cluster has copies of several homes one turn is exact: for all of its copies either its own bus counts or the
        // node's does.
        let turns = if self.homes_mix(copies, clusters) { TURNS } else { 1 };
        for _ in 0..turns {
            let by_cluster = fill(clusters, self.cluster_bandwidth, copies, cluster, |copy| nodes[node(copy)].full);
            let by_node = fill(nodes, self.node_bandwidth, copies, node, |copy| clusters[cluster(copy)].full);
            if by_cluster.max(by_node) < EXACT {
                break;
            }
        }
        for copy in copies {
            copy.full = clusters[cluster(copy)].full.max(nodes[node(copy)].full);
        }
    }

    /// Whether some cluster runs copies whose memory is on different nodes.
    fn homes_mix(&self, copies: &[Running], clusters: &mut [Bus]) -> bool {
        copies.iter().any(|copy| {
            let bus = &mut clusters[self.cluster_of[copy.cpu] as usize];
            let home = if bus.home == NONE { copy.home } else { bus.home };
            bus.home = copy.home;
            home != copy.home
        })
    }

    /// What an access to the memory of node `home` costs a CPU more than one to its own, ns.
    fn farther(&self, cpu: usize, home: u32) -> f64 {
        self.farther_ns[self.node_of[cpu] as usize * self.nr_nodes + home as usize]
    }
}

/// How many of the indices are each.
fn count(sums: &mut Vec<u32>, len: usize, indices: impl Iterator<Item = u32>) {
    sums.clear();
    sums.resize(len, 0);
    for index in indices {
        if let Some(sum) = sums.get_mut(index as usize) {
            *sum += 1;
        }
    }
}

fn reset(buses: &mut Vec<Bus>, len: usize) {
    buses.clear();
    buses.resize(len, Bus { home: NONE, full: 0.0, was: 0.0, drawn: 0.0, falls: 0.0 });
}

/// Finds how full each bus of a kind is while the `other` bus that a copy waits for is as full as it is; the greatest change. By
/// Newton's method from a full bus down: what is drawn less what the share stands for falls with the share and is concave, so
/// that no step goes past the answer.
fn fill(
    buses: &mut [Bus],
    bandwidth: f64,
    copies: &[Running],
    bus_of: impl Fn(&Running) -> usize,
    other: impl Fn(&Running) -> f64,
) -> f64 {
    if bandwidth <= 0.0 {
        return 0.0;
    }
    buses.iter_mut().for_each(|bus| (bus.was, bus.full) = (bus.full, 1.0));
    for _ in 0..STEPS {
        buses.iter_mut().for_each(|bus| (bus.drawn, bus.falls) = (0.0, 0.0));
        for copy in copies.iter().filter(|copy| copy.bytes > 0.0) {
            let (bus, other) = (&mut buses[bus_of(copy)], other(copy));
            let (drawn, falls) = copy.draws(bus.full.max(other));
            bus.drawn += drawn;
            bus.falls += if bus.full >= other { falls } else { 0.0 };
        }
        let mut step: f64 = 0.0;
        for bus in buses.iter_mut() {
            let down = (bandwidth * bus.full - bus.drawn) / (bandwidth + bus.falls);
            bus.full -= down;
            step = step.max(down);
        }
        if step < EXACT {
            break;
        }
    }
    buses.iter().map(|bus| (bus.full - bus.was).abs()).fold(0.0, f64::max)
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
        let here = |cpu: &usize| memory.l2_of[*cpu] == memory.l2_of[c] && self.runs_memory(*cpu);
        let sharers = (0..self.cpus.len()).filter(here).count().max(1);
        let bytes = (memory.l2_bytes[memory.l2_of[c] as usize] / sharers as f64).min(profile.l2_misses.scale);
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

    /// The set of running memory-bound tasks has changed: all their speeds and ends follow. Those of other nodes may draw on the
    /// same memory.
    pub(crate) fn memory_changed(&mut self) {
        let mut crowd = std::mem::take(&mut self.crowd);
        crowd.copies.clear();
        for cpu in 0..self.cpus.len() {
            if !self.runs_memory(cpu) {
                continue;
            }
            self.settle(cpu);
            let task = &self.tasks[self.cpus[cpu].curr as usize];
            if task.memory_left > 0.0 {
                crowd.copies.push(Running::new(cpu, task.home, task.profile));
            }
        }
        let profiles = &self.setup.program.profiles;
        self.memory.work_out(&mut crowd, profiles);
        for copy in &crowd.copies {
            // Company slows the computing; it runs in the time of the stalls.
            let slowed = profiles[copy.profile as usize].base_ns * (self.pace.stretch(copy.cpu) - 1.0);
            let (cpu, speed) = (copy.cpu, copy.speed() + slowed);
            let t = self.cpus[cpu].curr as usize;
            self.tasks[t].memory_cost = speed;
            let left = (self.tasks[t].memory_left * speed) as u64;
            let begin = self.cpus[cpu].memory_since;
            self.heap.set(cpu, (begin + left).max(self.now + 1));
        }
        self.crowd = crowd;
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

    /// A copy that misses every cache with each access, and `in_flight` of them at a time.
    fn streaming(in_flight: f64) -> MemoryProfile {
        let all = MissCurve { min: 1.0, max: 1.0, scale: 1.0, exponent: 1.0 };
        MemoryProfile {
            base_ns: 6.0,
            l2_accesses: 1.0,
            l2_misses: all,
            llc_misses: all,
            overlap: in_flight,
            bytes_per_miss: 128.0,
        }
    }

    fn kunpeng(without: &[&str]) -> MemorySystem {
        let machine = Machine::load("kunpeng920").unwrap();
        let tree = huddle_domains::build(&machine.topology, &huddle_domains::Kernel::load("6.7").unwrap());
        MemorySystem::new(&machine, &tree, Without::parse(without.iter().copied()).unwrap())
    }

    fn crowd(memory: &MemorySystem, copies: &[(usize, u32)], profile: MemoryProfile) -> Crowd {
        let copies = copies.iter().map(|&(cpu, home)| Running::new(cpu, home, 0)).collect();
        let mut crowd = Crowd { copies, ..Crowd::default() };
        memory.work_out(&mut crowd, &[profile]);
        crowd
    }

    /// Speed of copies on these CPUs of a Kunpeng, each with the node of its memory.
    fn speeds(copies: &[(usize, u32)], without: &[&str]) -> Vec<f64> {
        let crowd = crowd(&kunpeng(without), copies, profile());
        crowd.copies.iter().map(Running::speed).collect()
    }

    /// Bytes per ns of the copies that `which` takes.
    fn drawn(crowd: &Crowd, which: impl Fn(&Running) -> bool) -> f64 {
        crowd.copies.iter().filter(|copy| which(copy)).map(|copy| copy.bytes / copy.speed()).sum()
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

    #[test]
    fn kunpeng_no_bus_carries_more_than_it_can_and_equal_copies_are_equally_fast() {
        let memory = kunpeng(&[]);
        // All of a node, and a crowd with as many misses in flight as no core has.
        for in_flight in [1.0, 39.1, 1000.0] {
            let all: Vec<_> = (0..24).map(|cpu| (cpu, 0)).collect();
            let crowd = crowd(&memory, &all, streaming(in_flight));
            let (node, cluster) = (drawn(&crowd, |_| true), drawn(&crowd, |copy| copy.cpu < 4));
            assert!(node <= memory.node_bandwidth && cluster <= memory.cluster_bandwidth, "{node} {cluster}");
            assert!(crowd.copies.iter().all(|copy| (copy.speed() / crowd.copies[0].speed() - 1.0).abs() < 1e-9));
            // The state is the one asked for: a copy waits as the fuller of its buses has it.
            let full = (node / memory.node_bandwidth).max(cluster / memory.cluster_bandwidth);
            assert!(crowd.copies.iter().all(|copy| (copy.full - full).abs() < 1e-6), "{full} {:?}", crowd.copies[0]);
        }
    }

    #[test]
    fn kunpeng_more_copies_draw_more_in_all_and_less_each() {
        let memory = kunpeng(&[]);
        let mut before = (0.0, f64::MAX);
        for copies in 1..=24 {
            let some: Vec<_> = (0..copies).map(|cpu| (cpu, 0)).collect();
            let crowd = crowd(&memory, &some, streaming(39.1));
            let all = drawn(&crowd, |_| true);
            let first = drawn(&crowd, |copy| copy.cpu == 0);
            assert!(all > before.0 && first <= before.1, "{copies} copies: {all} {first}, before {before:?}");
            before = (all, first);
        }
    }

    #[test]
    fn kunpeng_clusters_whose_copies_have_memory_on_several_nodes_settle_too() {
        let memory = kunpeng(&["remote-memory"]);
        // Node 0 is crowded, node 1 is not; the first cluster draws on both.
        let mixed: Vec<_> = (0..24).map(|cpu| (cpu, u32::from(cpu < 2))).collect();
        let crowd = crowd(&memory, &mixed, streaming(39.1));
        for copy in &crowd.copies {
            let node = drawn(&crowd, |other| other.home == copy.home) / memory.node_bandwidth;
            let cluster = drawn(&crowd, |other| other.cpu / 4 == copy.cpu / 4) / memory.cluster_bandwidth;
            assert!((copy.full - node.max(cluster)).abs() < 1e-6, "{node} {cluster} {copy:?}");
        }
        assert!(crowd.copies[0].speed() < crowd.copies[2].speed());
    }
}
