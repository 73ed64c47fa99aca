//! Machines, policies and random states for the tests.

use std::sync::LazyLock;

use huddle_domains::{DomainTree, Kernel, build, build_for};
use huddle_machine::{Arch, CpuId, CpuSet, Layout, Level, Topology};
use huddle_policy::{Frozen, Plan, Policy, Wakeup, policy_names};

/// Records that exist for the tests only.
const TEST_RECORDS: &[&str] = &[
    include_str!("records/merged-gives-up.toml"),
    include_str!("records/claims-before-scans.toml"),
    include_str!("records/claims-everywhere.toml"),
];

/// Read once: each record loads its kernel's chain of records.
static POLICIES: LazyLock<Vec<Policy>> = LazyLock::new(|| {
    let shipped = policy_names().into_iter().map(|name| Policy::load(&name).unwrap());
    let test = TEST_RECORDS.iter().map(|text| Policy::parse("a test record", text).unwrap());
    shipped.chain(test).collect()
});

/// Every shipped and every test record.
pub fn all_policies() -> &'static [Policy] {
    &POLICIES
}

pub fn policy(name: &str) -> Policy {
    all_policies().iter().find(|policy| policy.name == name).unwrap().clone()
}

/// A machine under a kernel with a policy compiled for it.
pub struct Lab {
    pub policy: Policy,
    pub topology: Topology,
    pub tree: DomainTree,
    pub plan: Plan,
}

/// Packages, nodes, LLCs, clusters, cores, threads.
pub fn regular(counts: [usize; 6]) -> Topology {
    Topology::from_layout(Arch::Arm64, &Layout::new(counts)).unwrap()
}

impl Lab {
    pub fn new(policy: &Policy, topology: Topology, kernel: &str) -> Lab {
        let tree = build(&topology, &Kernel::load(kernel).unwrap());
        Lab::with_tree(policy, topology, tree)
    }

    pub fn with_tree(policy: &Policy, topology: Topology, tree: DomainTree) -> Lab {
        Lab { plan: policy.compile(&tree, &topology), policy: policy.clone(), topology, tree }
    }

    /// One node of the Kunpeng 920: 24 CPUs, six clusters of four, one LLC. Policies of kernels without cluster domains run on
    /// those with them where the specification's table does.
    pub fn kunpeng_node(name: &str) -> Lab {
        let policy = policy(name);
        let kernel =
            if ["6.0", "6.1", "5.16"].contains(&&*policy.kernel) { "6.7".into() } else { policy.kernel.clone() };
        Lab::new(&policy, regular([1, 1, 1, 6, 4, 1]), &kernel)
    }

    /// All CPUs idle but these.
    pub fn state_with_busy(&self, busy: &str) -> Frozen {
        let mut state = Frozen::new(&self.tree);
        for cpu in CpuSet::parse_list(busy).unwrap().iter() {
            state.occupy(cpu);
        }
        state
    }

    /// All CPUs busy but these.
    pub fn state_with_idle(&self, idle: &str) -> Frozen {
        let idle = CpuSet::parse_list(idle).unwrap();
        let mut state = Frozen::new(&self.tree);
        for cpu in self.tree.online.iter().filter(|&cpu| !idle.contains(cpu)) {
            state.occupy(cpu);
        }
        state
    }

    /// The CPU that the steps choose for a target.
    pub fn select(&self, state: &mut Frozen, target: u32, prev: u32) -> u32 {
        let wakeup = Wakeup { this: CpuId(target), prev: CpuId(prev), sync: false };
        self.plan.select(state, &wakeup, CpuId(target), &mut self.plan.scratch()).unwrap().cpu.0
    }
}

/// A small portable generator (splitmix64).
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn subset(&mut self, of: &CpuSet, percent: usize) -> CpuSet {
        CpuSet::from_cpus(of.capacity(), of.iter().map(CpuId::index).filter(|_| self.chance(percent)))
    }
}

/// A random regular machine of up to some 200 CPUs, now and then with CPUs of two capacities, an LLC wider than a
/// node or CPUs outside the partition.
pub fn random_lab(rng: &mut Rng, policy: &Policy, kernel: &str) -> Lab {
    let counts = loop {
        let counts = [
            rng.pick(&[1, 1, 2]),
            rng.pick(&[1, 1, 2]),
            rng.pick(&[1, 1, 2, 3]),
            rng.pick(&[1, 2, 3, 6, 11]),
            rng.pick(&[1, 1, 2, 4, 7]),
            rng.pick(&[1, 1, 2, 4]),
        ];
        if (2..=200).contains(&counts.iter().product::<usize>()) {
            break counts;
        }
    };
    let mut layout = Layout::new(counts);
    if rng.chance(40) {
        layout.numbering = [Level::Thread, Level::Node, Level::Llc, Level::Cluster, Level::Core, Level::Package];
    }
    let mut topology = Topology::from_layout(rng.pick(&[Arch::Arm64, Arch::X86_64]), &layout).unwrap();
    if rng.chance(15) {
        for cpu in topology.online.iter().collect::<Vec<_>>() {
            let core = topology.smt.index_of(cpu);
            topology.capacity[cpu.index()] = if core.is_multiple_of(2) { 1024 } else { 512 };
        }
    }
    if rng.chance(15) {
        // A last-level cache wider than a node: sub-NUMA clustering.
        topology.llc = topology.package.clone();
    }
    let partition = if rng.chance(20) { rng.subset(&topology.online, 80) } else { topology.online.clone() };
    let partition = if partition.len() < 2 { topology.online.clone() } else { partition };
    let tree = build_for(&topology, &Kernel::load(kernel).unwrap(), &partition);
    Lab::with_tree(policy, topology, tree)
}

/// A random state, wake-up and target.
pub fn random_case(rng: &mut Rng, lab: &Lab) -> (Frozen, Wakeup, CpuId) {
    let tree = &lab.tree;
    let nr_cpus = tree.nr_cpus;
    let mut state = Frozen::new(tree);
    let idle_percent = rng.pick(&[0, 3, 10, 30, 70, 97]);
    let idle = rng.subset(&tree.online, idle_percent);
    for cpu in tree.online.iter().filter(|&cpu| !idle.contains(cpu)) {
        state.occupy(cpu);
        state.load[cpu.index()] = rng.below(2000) as u64;
        let running = 1 + rng.below(3) as u32;
        state.nr_running[cpu.index()] = running;
        state.nr_delayed[cpu.index()] = rng.below(running as usize) as u32;
        state.nr_local[cpu.index()] = rng.pick(&[0, 0, 1]);
    }
    let sched_idle_percent = rng.pick(&[0, 0, 5, 40]);
    state.sched_idle = rng.subset(&tree.online, sched_idle_percent);
    state.sched_idle.subtract(&idle);
    let any = |rng: &mut Rng| CpuId::from(rng.below(nr_cpus));
    let this = any(rng);
    let near = |rng: &mut Rng, to: CpuId| match rng.below(3) {
        0 => CpuId::from((to.index() + 1 + rng.below(4)) % nr_cpus),
        1 => to,
        _ => any(rng),
    };
    let prev = near(rng, this);
    if rng.chance(40) {
        let percent = rng.pick(&[10, 60, 90]);
        let mut allowed = rng.subset(&tree.online, percent);
        if rng.chance(80) && tree.online.contains(prev) {
            allowed.insert(prev);
        }
        if !allowed.is_empty() {
            state.allowed = allowed;
        }
    }
    state.recent = rng.chance(70).then(|| near(rng, prev));
    for hint in &mut state.has_idle_cores {
        *hint = rng.chance(50);
    }
    let size = tree.cached.iter().map(|cached| cached.sd_llc_size).max().unwrap();
    for limit in &mut state.nr_idle_scan {
        *limit = Some(rng.pick(&[0, 1, 2, 3, size, size, size / 2]));
    }
    for cpu in 0..nr_cpus {
        state.avg_idle[cpu] = rng.pick(&[0, 40_000, 200_000, 1_000_000]);
        state.aged_idle[cpu] = rng.pick(&[0, 300, 2_000, 1_000_000]);
        state.avg_scan_cost[cpu] = rng.pick(&[0, 90, 400, 3_000]);
        state.next_cpu[cpu] = rng.chance(50).then(|| any(rng));
        state.last_rotated[cpu] = any(rng);
        state.capacity[cpu] = u64::from(tree.capacity[cpu]) - rng.below(3) as u64;
    }
    state.fitting = rng.subset(&CpuSet::full(nr_cpus), 50);
    state.clamped = rng.subset(&CpuSet::full(nr_cpus), 50);
    state.clamped.subtract(&state.fitting);
    state.waker_load = rng.below(1500) as u64;
    state.wakee_load = rng.below(800) as u64;
    state.waker_flips = Some(rng.below(60) as u32);
    state.wakee_flips = Some(rng.pick(&[0, 1, 5, 40]));
    state.waker_is_per_cpu_kthread = rng.chance(15);
    state.wakee_is_sched_idle = rng.chance(15);
    state.waker_keeps_sync = Some(rng.chance(70));
    if rng.chance(40) {
        let percent = rng.pick(&[10, 50, 100]);
        state.contested = rng.subset(&tree.online, percent);
    }
    state.prefers_current_cpu = rng.chance(5);
    let wakeup = Wakeup { this, prev, sync: rng.chance(40) };
    let target = if rng.chance(50) { this } else { prev };
    (state, wakeup, target)
}
