//! Random machines, policies and states, decided by both interpreters.

use huddle_domains::{Kernel, build, build_for, kernel_names};
use huddle_machine::{Arch, CpuId, CpuSet, Layout, Level, Partition, Topology};
use huddle_policy::{Frozen, Plan, Policy, Scratch, Step, View, Wakeup};
use huddle_scx::{Image, ImageError, PlanImage};
use huddle_scx_native::{Native, Placed};

use crate::machines::{Lab, Rng, all_policies, random_case};

/// Decisions on one machine by one policy before the next, and on one state of it.
const DECISIONS_PER_LAB: usize = 50;
const DECISIONS_PER_STATE: usize = 5;

/// What the two are compared by: where to, and the state left.
pub struct Outcome {
    pub placed: Placed,
    pub state: Frozen,
}

/// A machine, a policy compiled for it, and both interpreters of that.
struct Pair {
    lab: Lab,
    kernel: String,
    random: bool,
    scratch: Scratch,
    native: Native,
    wake: PlanImage,
    fork: Option<PlanImage>,
}

/// The stream of cases of one seed.
pub struct Cases {
    seed: u64,
    rng: Rng,
    policies: &'static [Policy],
    kernels: Vec<String>,
    made: usize,
    pair: Pair,
    case: (Frozen, Wakeup, bool),
}

impl Cases {
    pub fn new(seed: u64) -> Cases {
        let policies = all_policies();
        let kernels = kernel_names();
        let mut rng = Rng(seed);
        let pair = Pair::random(&mut rng, policies, &kernels);
        let case = pair.case(&mut rng);
        Cases { seed, rng, policies, kernels, made: 0, pair, case }
    }

    /// The next decision: by Rust, by C.
    pub fn decide(&mut self) -> (Outcome, Outcome) {
        if self.made > 0 && self.made.is_multiple_of(DECISIONS_PER_LAB) {
            self.pair = Pair::random(&mut self.rng, self.policies, &self.kernels);
        }
        if self.made.is_multiple_of(DECISIONS_PER_STATE) {
            self.case = self.pair.case(&mut self.rng);
        } else {
            self.case.1 = self.pair.wakeup(&mut self.rng);
        }
        self.made += 1;
        let (state, wakeup, fork) = &self.case;
        (self.pair.rust(state.clone(), wakeup, *fork), self.pair.c(state.clone(), wakeup, *fork))
    }

    pub fn describe(&self) -> String {
        let (state, wakeup, fork) = &self.case;
        let Pair { lab, kernel, .. } = &self.pair;
        format!(
            "seed {}, decision {}, {} CPUs under {kernel}, {wakeup:?}, fork {fork}\n{:?}\n{state:?}",
            self.seed,
            self.made,
            lab.topology.nr_cpus(),
            lab.policy,
        )
    }

    /// The kind of a step of the policy last asked.
    pub fn kind(&self, step: u32) -> &'static str {
        let plan = &self.pair.lab.plan;
        let steps = if self.case.2 { plan.fork_steps().unwrap() } else { plan.steps() };
        steps.get(step as usize).map_or("core", |step| step.kind())
    }

    pub fn is_fork(&self) -> bool {
        self.case.2
    }

    pub fn idle(&self) -> usize {
        self.case.0.idle.len()
    }

    pub fn nr_cpus(&self) -> usize {
        self.pair.lab.topology.nr_cpus()
    }

    pub fn has_holes(&self) -> bool {
        self.pair.lab.topology.online.len() < self.nr_cpus()
    }

    pub fn is_random(&self) -> bool {
        self.pair.random
    }
}

impl Pair {
    fn random(rng: &mut Rng, policies: &[Policy], kernels: &[String]) -> Pair {
        loop {
            let random = rng.chance(50);
            let policy = if random { random_policy(rng) } else { policies[rng.below(policies.len())].clone() };
            let kernel = if rng.chance(50) { policy.kernel.clone() } else { kernels[rng.below(kernels.len())].clone() };
            let topology = random_machine(rng);
            let partition = if rng.chance(20) { cores(rng, &topology) } else { topology.online.clone() };
            let profile = Kernel::load(&kernel).unwrap();
            let tree = match partition.is_empty() {
                true => build(&topology, &profile),
                false => build_for(&topology, &profile, &partition),
            };
            let plan = policy.compile(&tree, &topology);
            let Ok((wake, fork)) = images(&plan) else { continue };
            let native = Native::new(Image::new(&plan, &[]).unwrap(), &tree.online);
            let scratch = plan.scratch();
            let lab = Lab { policy, topology, tree, plan };
            return Pair { lab, kernel, random, scratch, native, wake, fork };
        }
    }

    fn case(&self, rng: &mut Rng) -> (Frozen, Wakeup, bool) {
        let (mut state, wakeup, _) = random_case(rng, &self.lab);
        // What sched_ext does not have: capacities, partner switches, delayed tasks.
        state.capacity.fill(1024);
        (state.waker_flips, state.wakee_flips) = (Some(0), Some(0));
        state.nr_delayed.fill(0);
        // Hints that are never stale, nor made so by a claim that is lost before they are read.
        let steps = self.lab.plan.steps();
        let read = steps.iter().position(|step| matches!(step, Step::ReadHic)).unwrap_or(0);
        if steps[..read].iter().any(Step::claims) {
            state.contested = CpuSet::new(self.lab.topology.nr_cpus());
        }
        for cpu in (0..self.lab.plan.nr_cpus()).map(CpuId::from) {
            let facts = self.lab.plan.facts(cpu).unwrap();
            let llc = self.lab.plan.set(&facts.llc.unwrap_or_default());
            let idle_cores = |word: usize| state.idle_core_word(word).unwrap() & llc.words()[word];
            let hint = (0..llc.words().len()).any(|word| idle_cores(word) != 0);
            if let Some(slot) = state.has_idle_cores.get_mut(facts.llc_index as usize).filter(|_| facts.llc.is_some()) {
                *slot = hint;
            }
        }
        if rng.chance(5) {
            // Where nothing has a load, one more on a side decides.
            state.load.fill(0);
            (state.waker_load, state.wakee_load) = (0, 0);
        }
        (state, wakeup, self.fork.is_some() && rng.chance(30))
    }

    fn wakeup(&self, rng: &mut Rng) -> Wakeup {
        let nr_cpus = self.lab.topology.nr_cpus();
        let this = rng.below(nr_cpus);
        let prev = if rng.chance(50) { (this + rng.below(6)) % nr_cpus } else { rng.below(nr_cpus) };
        Wakeup { this: CpuId::from(this), prev: CpuId::from(prev), sync: rng.chance(40) }
    }

    fn rust(&mut self, mut state: Frozen, wakeup: &Wakeup, fork: bool) -> Outcome {
        let plan = &self.lab.plan;
        let hints = state.has_idle_cores.clone();
        let placement = match fork {
            true => plan.place_fork(&mut state, wakeup, &mut self.scratch).unwrap(),
            false => plan.place(&mut state, wakeup, &mut self.scratch),
        };
        let placement = placement.unwrap();
        let steps = if fork { plan.fork_steps().unwrap() } else { plan.steps() };
        let placed = Placed {
            cpu: placement.cpu.0 as i32,
            target: placement.target.0,
            step: placement.step.into(),
            claimed: steps.get(usize::from(placement.step)).is_some_and(|step| step.claims()),
        };
        // Hints that C does not write: the kernel's own masks need none.
        state.has_idle_cores = hints;
        Outcome { placed, state }
    }

    fn c(&mut self, mut state: Frozen, wakeup: &Wakeup, fork: bool) -> Outcome {
        let plan = if fork { self.fork.as_ref().unwrap() } else { &self.wake };
        let placed = self.native.place(plan, &mut state, wakeup, fork).unwrap();
        Outcome { placed, state }
    }
}

fn images(plan: &Plan) -> Result<(PlanImage, Option<PlanImage>), ImageError> {
    Ok((PlanImage::new(plan)?, PlanImage::fork(plan).transpose()?))
}

fn subset(rng: &mut Rng, of: &CpuSet, percent: usize) -> CpuSet {
    CpuSet::from_cpus(of.capacity(), of.iter().map(CpuId::index).filter(|_| rng.chance(percent)))
}

/// Most cores, each whole: the kernel's idle cores do not know partitions.
fn cores(rng: &mut Rng, topology: &Topology) -> CpuSet {
    let mut cores = CpuSet::new(topology.nr_cpus());
    for cpu in topology.online.iter() {
        let threads = topology.smt.set_of(cpu);
        if threads.iter().next() == Some(cpu) && rng.chance(80) {
            cores = cores.union(threads);
        }
    }
    cores
}

/// A machine of up to some 300 CPUs: flat, with clusters, threads, several LLCs, nodes and packages, numbered either
/// way, LLCs wider than a node, offline CPUs.
fn random_machine(rng: &mut Rng) -> Topology {
    let counts = loop {
        let counts = [
            rng.pick(&[1, 1, 1, 2]),
            rng.pick(&[1, 1, 2]),
            rng.pick(&[1, 1, 2, 3]),
            rng.pick(&[1, 2, 3, 6, 11]),
            rng.pick(&[1, 1, 2, 4, 7]),
            rng.pick(&[1, 1, 2, 4]),
        ];
        if counts.iter().product::<usize>() <= 300 {
            break counts;
        }
    };
    let mut layout = Layout::new(counts);
    if rng.chance(40) {
        layout.numbering = [Level::Thread, Level::Node, Level::Llc, Level::Cluster, Level::Core, Level::Package];
    }
    let mut topology = Topology::from_layout(rng.pick(&[Arch::Arm64, Arch::X86_64]), &layout).unwrap();
    if rng.chance(15) {
        topology.llc = topology.package.clone();
    }
    if rng.chance(5) {
        for cpu in topology.online.iter().collect::<Vec<_>>() {
            topology.capacity[cpu.index()] = if topology.smt.index_of(cpu).is_multiple_of(2) { 1024 } else { 512 };
        }
    }
    if rng.chance(20) {
        let percent = rng.pick(&[50, 90]);
        let online = subset(rng, &topology.online, percent);
        if !online.is_empty() {
            take_offline(&mut topology, online);
        }
    }
    topology
}

/// Leaves only these CPUs online.
fn take_offline(topology: &mut Topology, online: CpuSet) {
    let cut = |old: &Partition| Partition::from_ids(&online, |cpu| old.index_of(cpu).into());
    topology.smt = cut(&topology.smt);
    topology.cluster = cut(&topology.cluster);
    topology.llc = cut(&topology.llc);
    topology.node = cut(&topology.node);
    topology.package = cut(&topology.package);
    for node in &mut topology.nodes {
        node.cpus.intersect_with(&online);
    }
    topology.offline = topology.online.clone();
    topology.offline.subtract(&online);
    topology.online = online;
}

const PRED: &[&str] = &["idle", "avail", "ok59", "ok72"];
const SHARE: &[&str] = &["llc", "lowest"];
const START: &[&str] = &["target", "target+1"];

/// A record of steps in any order that the reader accepts.
fn random_policy(rng: &mut Rng) -> Policy {
    loop {
        let text = random_record(rng);
        if let Ok(policy) = Policy::parse("random record", &text) {
            return policy;
        }
    }
}

fn random_record(rng: &mut Rng) -> String {
    let keeps = rng.chance(25);
    let mut steps: Vec<String> = (0..rng.below(if keeps { 2 } else { 5 })).map(|_| single(rng)).collect();
    if keeps {
        let kept = "share = \"lowest\", keep = true, pred = \"ok72\"";
        steps.push(format!("kind = \"PrevIdle\", {kept}"));
        steps.push(format!("kind = \"RecentIdle\", {kept}, update = \"always\""));
    }
    if rng.chance(85) {
        steps.push("kind = \"NeedLlc\"".into());
        if rng.chance(70) {
            steps.push("kind = \"ReadHic\"".into());
        }
        let method = rng.pick(&["none", "util"]);
        let budget = rng.chance(70).then(|| budget(rng, method));
        let (before, after) = (rng.below(3), 1 + rng.below(4));
        steps.extend((0..before).map(|_| scan(rng, false)));
        let charged = budget.is_some();
        steps.extend(budget);
        steps.extend((0..after).map(|_| scan(rng, charged)));
    }
    steps.extend((0..rng.below(3)).map(|_| single(rng)));
    if keeps || rng.chance(60) {
        let order = rng.pick(&["\"prev\"", "\"recent\"", "\"prev\", \"recent\"", "\"recent\", \"prev\""]);
        steps.push(format!("kind = \"TakeKept\", order = [{order}]"));
    }
    let last = rng.pick(&["ReturnTarget", "ReturnPrev"]);
    let list = |steps: &[String]| steps.iter().map(|step| format!("  {{ {step} }},\n")).collect::<String>();
    let fork: Vec<String> = (0..rng.below(4)).map(|_| claim(rng)).collect();
    format!(
        "name = \"random\"\ntitle = \"random\"\nkernel = \"{}\"\nentry = {{ {} }}\n\
         steps = [\n{}  {{ kind = \"{last}\" }}\n]\nfork = [\n{}  {{ kind = \"ReturnPrev\" }}\n]\n",
        rng.pick(&["5.9", "5.14+cluster", "6.7"]),
        entry(rng),
        list(&steps),
        list(&fork),
    )
}

fn entry(rng: &mut Rng) -> String {
    let anchor = rng.pick(&["load", "waker", "prev"]);
    let (load, prev) = (anchor == "load", anchor == "prev");
    let mut flag = |read: bool| read && rng.chance(50);
    format!(
        "anchor = \"{anchor}\", wide = {}, affine_idle_prev = {}, sync_minus_delayed = {}, set_waker_recent = {}, \
         prefer_current_hint = {}",
        flag(!prev),
        flag(load),
        flag(load),
        flag(!prev),
        flag(true),
    )
}

/// A step that needs none before it.
fn single(rng: &mut Rng) -> String {
    let pred = rng.pick(PRED);
    let share = rng.pick(SHARE);
    let keep = share == "lowest" && rng.chance(60);
    match rng.below(8) {
        0 => format!("kind = \"TargetIdle\", pred = \"{pred}\""),
        1 => format!("kind = \"PrevIdle\", share = \"{share}\", keep = {keep}, pred = \"{pred}\", fits = true"),
        2 => "kind = \"KthreadStack\"".into(),
        3 | 4 => format!(
            "kind = \"RecentIdle\", share = \"{share}\", keep = {keep}, pred = \"{pred}\", update = \"{}\"",
            rng.pick(&["on_hit", "always"]),
        ),
        5 => format!("kind = \"AsymScan\", ranks = \"{}\"", rng.pick(&["v5_9", "v6_1", "v7_2"])),
        6 => "kind = \"SyncStack\"".into(),
        _ => claim(rng),
    }
}

fn claim(rng: &mut Rng) -> String {
    let core = rng.chance(40);
    match rng.below(3) {
        0 => format!(
            "kind = \"ClaimPrev\", within = \"{}\", core = {core}, no_busier = {}",
            rng.pick(&["cluster", "llc", "all"]),
            rng.chance(40),
        ),
        1 => format!(
            "kind = \"ClaimAny\", within = \"{}\", core = {core}",
            rng.pick(&["cluster", "prev_cluster", "llc", "node", "all"]),
        ),
        _ => {
            format!("kind = \"ClaimIdlest\", within = \"{}\", core = {core}", rng.pick(&["llc", "node", "all"]))
        }
    }
}

fn budget(rng: &mut Rng, method: &str) -> String {
    format!("kind = \"Budget\", method = \"{method}\", fail_if_empty = {}", rng.chance(30))
}

/// A step that needs NeedLlc, and may need ReadHic, before it.
fn scan(rng: &mut Rng, charged: bool) -> String {
    let charge = charged && rng.chance(80);
    let (start, pred, cores) = (rng.pick(START), rng.pick(PRED), rng.chance(40));
    match rng.below(6) {
        0 => format!(
            "kind = \"IdleSmt\", anchor = \"prev\", incl_anchor = false, cond = \"no_hic_and_share_llc\", in_llc = true, \
             pred = \"{pred}\""
        ),
        1 | 2 => {
            let src = rng.pick(&["raw_topology", "cluster_domain", "llc_first_group"]);
            format!(
                "kind = \"ScanCluster\", src = \"{src}\", start = \"{start}\", pred = \"{pred}\", charge = {charge}, \
                 remove = {}, cores = {}, only_if = \"{}\"",
                rng.chance(50),
                cores && src != "raw_topology",
                rng.pick(&["no_smt", "cluster_key"]),
            )
        }
        3 | 4 => format!(
            "kind = \"ScanLlc\", start = \"{start}\", pred = \"{pred}\", cores = {cores}, charge = {charge}, cost = \"none\""
        ),
        _ => format!(
            "kind = \"ClaimAny\", within = \"{}\", core = {}, charge = {charge}",
            rng.pick(&["cluster", "llc", "node"]),
            rng.chance(40),
        ),
    }
}
