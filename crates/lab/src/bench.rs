//! What every run of an experiment shares: the machine, the CPUs it may use, and each policy made ready for it.

use huddle_domains::{DomainTree, Kernel, QueueKind, build};
use huddle_engine::{self as engine, Rebuild, Report, Setup, SimError, simulate};
use huddle_machine::{CpuSet, Machine};
use huddle_policy::{Plan, Policy};
use huddle_program::Program;

use crate::{Affinity, Conditions, Experiment, LabError};

/// Simulated time after which a run is given up, ns: an hour, far beyond any run that makes progress.
const LIMIT_NS: u64 = 3_600_000_000_000;

/// A machine with the policies to compare on it.
pub(crate) struct Bench {
    /// The machine.
    pub machine: Machine,
    /// CPUs that the benchmark may use.
    pub cpus: CpuSet,
    /// The policies, baseline first.
    pub contenders: Vec<Contender>,
    conditions: Conditions,
}

/// A policy with its kernel, compiled for the machine.
pub(crate) struct Contender {
    /// The policy.
    pub policy: Policy,
    /// The kernel that it was published with, or what an override makes of it.
    pub kernel: Kernel,
    /// The kernel has a cluster level that can be switched; under sched_ext none is read.
    pub has_cluster_level: bool,
    tree: DomainTree,
    plan: Plan,
    /// Domains and plan once the cluster level has been switched over.
    switched: Option<(DomainTree, Plan)>,
}

impl Bench {
    /// Loads what the experiment names.
    ///
    /// # Errors
    /// The machine, and as [`Bench::new`].
    pub(crate) fn load(experiment: &Experiment) -> Result<Bench, LabError> {
        Bench::new(Machine::load(&experiment.machine)?, experiment)
    }

    /// Loads what the experiment names beside its machine.
    ///
    /// # Errors
    /// The first node, CPU, policy or kernel that cannot be had.
    pub(crate) fn new(machine: Machine, experiment: &Experiment) -> Result<Bench, LabError> {
        let cpus = allowed(&machine, &experiment.affinity)?;
        let contender = |name: &String| {
            let policy = Policy::load(name)?;
            let kernel = Kernel::load(&policy.kernel)
                .map_err(|source| LabError::Kernel { policy: policy.name.clone(), source })?;
            let kernel = match &experiment.overrides {
                Some(overrides) => overrides.apply(kernel),
                None => kernel,
            };
            Ok(Contender::new(&machine, policy, kernel, experiment.conditions))
        };
        let contenders = experiment.policies.iter().map(contender).collect::<Result<Vec<_>, LabError>>()?;
        let Conditions { cluster_off, switch_cluster, .. } = experiment.conditions;
        if (cluster_off || switch_cluster.is_some()) && !contenders.iter().any(|contender| contender.has_cluster_level)
        {
            let kernels: Vec<&str> = contenders.iter().map(|contender| contender.kernel.name.as_str()).collect();
            return Err(LabError::NoClusterLevel { kernels: kernels.join(", ") });
        }
        for (index, Contender { policy, .. }) in contenders.iter().enumerate() {
            if let Some(earlier) = contenders[..index].iter().position(|earlier| earlier.policy.name == policy.name) {
                return Err(LabError::SamePolicy {
                    first: experiment.policies[earlier].clone(),
                    second: experiment.policies[index].clone(),
                    name: policy.name.clone(),
                });
            }
        }
        Ok(Bench { machine, cpus, contenders, conditions: experiment.conditions })
    }

    /// Runs a program under one of the contenders. The one place where the laboratory calls the engine.
    ///
    /// # Errors
    /// What the engine says.
    pub(crate) fn simulate(&self, contender: usize, program: &Program, seed: u64) -> Result<Report, SimError> {
        let Contender { kernel, tree, plan, switched, .. } = &self.contenders[contender];
        let (machine, cpus) = (&self.machine, &self.cpus);
        let after_ns = (self.conditions.switch_cluster.unwrap_or_default() * 1e9) as u64;
        let conditions = engine::Conditions {
            without: self.conditions.without,
            rebuild: switched.as_ref().map(|(tree, plan)| Rebuild { after_ns, tree, plan }),
        };
        simulate(&Setup { machine, tree, kernel, plan, program, cpus, pins: &[], seed, limit_ns: LIMIT_NS, conditions })
    }

    /// Number of NUMA nodes that the benchmark may use.
    pub(crate) fn nodes_used(&self) -> usize {
        self.machine.topology.node.sets().iter().filter(|set| set.intersects(&self.cpus)).count()
    }
}

impl Contender {
    /// The policy compiled for the machine's domains, with the cluster level as the conditions have it.
    fn new(machine: &Machine, policy: Policy, kernel: Kernel, conditions: Conditions) -> Contender {
        let has_cluster_level = kernel.domains.cluster.is_some() && kernel.queue.kind != QueueKind::ClusterDsq;
        let compiled = |cluster: bool| {
            let mut kernel = kernel.clone();
            if has_cluster_level && !cluster {
                kernel.domains.cluster = None;
            }
            let tree = build(&machine.topology, &kernel);
            let plan = policy.compile(&tree, &machine.topology);
            (tree, plan)
        };
        let (tree, plan) = compiled(!conditions.cluster_off);
        let switches = has_cluster_level && conditions.switch_cluster.is_some();
        let switched = switches.then(|| compiled(conditions.cluster_off));
        Contender { policy, kernel, has_cluster_level, tree, plan, switched }
    }
}

/// The CPUs that an affinity leaves on a machine.
fn allowed(machine: &Machine, affinity: &Affinity) -> Result<CpuSet, LabError> {
    let topology = &machine.topology;
    match affinity {
        Affinity::All => Ok(topology.online.clone()),
        Affinity::Nodes(nodes) => {
            let mut cpus = CpuSet::new(topology.nr_cpus());
            for &id in nodes {
                let node = topology.nodes.iter().find(|node| node.id == id && !node.cpus.is_empty());
                let Some(node) = node else {
                    let known = topology.nodes.iter().filter(|node| !node.cpus.is_empty());
                    let known: Vec<String> = known.map(|node| node.id.to_string()).collect();
                    return Err(LabError::NoNode {
                        machine: machine.name.clone(),
                        node: id,
                        known: if known.is_empty() { "none".to_owned() } else { known.join(", ") },
                    });
                };
                cpus.union_with(&node.cpus);
            }
            Ok(cpus)
        }
        Affinity::Cpus(list) => {
            let cpus = CpuSet::parse_list(list).map_err(|source| LabError::Cpus { list: list.clone(), source })?;
            match cpus.iter().find(|&cpu| !topology.online.contains(cpu)) {
                Some(cpu) => Err(LabError::NotOnline {
                    list: list.clone(),
                    cpu: cpu.0,
                    machine: machine.name.clone(),
                    online: topology.online.to_string(),
                }),
                None => Ok(cpus.resized(topology.nr_cpus())),
            }
        }
    }
}
