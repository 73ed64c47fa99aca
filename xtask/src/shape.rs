//! What of a machine QEMU can express: a regular nesting, nodes, and who shares which cache.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail, ensure};
use huddle_machine::{Arch, CpuId, CpuSet, NODE_RECLAIM_DISTANCE, Partition, Topology};

/// An emulated machine. Its CPUs are numbered from the outside in, whatever the numbering of the machine it is made after.
pub struct Shape {
    /// Debian's name of the architecture: `amd64`, `arm64`.
    pub arch: &'static str,
    packages: usize,
    llcs_per_package: usize,
    clusters_per_llc: usize,
    cores_per_cluster: usize,
    threads_per_core: usize,
    nodes: Vec<GuestNode>,
    /// Processors are AMD's, Zen.
    zen: bool,
}

struct GuestNode {
    /// CPU lists as `-numa` takes them: one range each.
    cpus: Vec<String>,
    distance: Vec<u32>,
}

/// Most CPUs of a guest: more need an interrupt controller that TCG guests do not get here.
const MAX_CPUS: usize = 255;
/// Memory of a guest for each node, MiB.
const NODE_MEMORY: usize = 1024;

impl Shape {
    /// The shape of a machine.
    ///
    /// # Errors
    /// What QEMU cannot express: parts of different size, more than 255 CPUs, an architecture that Debian has no
    /// cloud kernel for.
    pub fn of(name: &str, topology: &Topology) -> Result<Shape> {
        let arch = match topology.arch {
            Arch::X86_64 => "amd64",
            Arch::Arm64 => "arm64",
            _ => bail!("{name}: guests are x86-64 or arm64"),
        };
        ensure!(
            topology.online.len() <= MAX_CPUS,
            "{name} has {} CPUs; a guest holds at most {MAX_CPUS}",
            topology.online.len()
        );
        let size = |partition: &Partition, what: &str| {
            let sizes: BTreeSet<usize> = partition.sets().iter().map(|set| set.len()).collect();
            match (sizes.len(), sizes.first()) {
                (1, Some(&size)) => Ok(size),
                _ => bail!("{name}: its {what} differ in size; QEMU makes them all alike"),
            }
        };
        let threads = size(&topology.smt, "cores")?;
        let cluster = size(&topology.cluster, "clusters")?.max(threads);
        let package = size(&topology.package, "packages")?;
        let llc = match (arch, size(&topology.llc, "last-level caches")?) {
            // The arm64 guest is described by a device tree without caches.
            ("arm64", _) => package,
            (_, llc) if llc < cluster => bail!("{name}: its clusters are wider than its last-level cache"),
            (_, llc) => llc.min(package),
        };
        for (inner, outer, what) in [(threads, cluster, "clusters"), (cluster, llc, "LLCs"), (llc, package, "packages")]
        {
            ensure!(outer % inner == 0, "{name}: its {what} of {outer} CPUs do not divide into parts of {inner}");
        }
        Ok(Shape {
            arch,
            packages: topology.package.sets().len(),
            llcs_per_package: package / llc,
            clusters_per_llc: llc / cluster,
            cores_per_cluster: cluster / threads,
            threads_per_core: threads,
            zen: topology.node_reclaim_distance > NODE_RECLAIM_DISTANCE,
            nodes: nodes(topology).with_context(|| format!("{name}: its nodes cannot be given to QEMU"))?,
        })
    }

    fn cpus(&self) -> usize {
        self.packages * self.llcs_per_package * self.clusters_per_llc * self.cores_per_cluster * self.threads_per_core
    }

    /// QEMU's arguments: machine, processor, CPUs, memory and nodes.
    pub fn arguments(&self) -> Vec<String> {
        let cpus = self.cpus();
        let Shape { packages, llcs_per_package, clusters_per_llc, cores_per_cluster, threads_per_core, .. } = self;
        let mut arguments: Vec<String> = Vec::new();
        if self.arch == "arm64" {
            arguments.extend(["-machine", "virt,gic-version=3", "-cpu", "cortex-a72", "-smp"].map(str::to_owned));
            arguments.push(format!(
                "{cpus},sockets={packages},clusters={},cores={cores_per_cluster},threads={threads_per_core}",
                llcs_per_package * clusters_per_llc
            ));
        } else {
            // A module with a single core is no cluster: its L2 is the core's.
            let l2 = if *cores_per_cluster > 1 { "module" } else { "core" };
            arguments.push("-machine".to_owned());
            arguments.push(format!(
                "pc,smp-cache.0.cache=l2,smp-cache.0.topology={l2},smp-cache.1.cache=l3,smp-cache.1.topology=die"
            ));
            // Each maker states caches in its own way. With a higher level of Intel's QEMU 10.0 stops on an assertion. Its MWAIT spins,
            // and kernels before 6.0 would idle with it.
            let processor = match self.zen {
                true => "EPYC-Rome",
                false => "max,vendor=GenuineIntel,level=0x16,monitor=off",
            };
            arguments.extend(["-cpu", processor, "-smp"].map(str::to_owned));
            arguments.push(format!(
                "{cpus},sockets={packages},dies={llcs_per_package},modules={clusters_per_llc},\
                 cores={cores_per_cluster},threads={threads_per_core}"
            ));
        }
        let memory = NODE_MEMORY * self.nodes.len().max(2);
        arguments.extend(["-m".to_owned(), format!("{memory}M")]);
        if self.nodes.len() > 1 {
            for (id, node) in self.nodes.iter().enumerate() {
                let cpus: String = node.cpus.iter().map(|range| format!(",cpus={range}")).collect();
                arguments.extend(["-object".to_owned(), format!("memory-backend-ram,size={NODE_MEMORY}M,id=ram{id}")]);
                arguments.extend(["-numa".to_owned(), format!("node,nodeid={id},memdev=ram{id}{cpus}")]);
            }
            for (from, node) in self.nodes.iter().enumerate() {
                for (to, distance) in node.distance.iter().enumerate() {
                    arguments.extend(["-numa".to_owned(), format!("dist,src={from},dst={to},val={distance}")]);
                }
            }
        }
        arguments
    }

    /// The name of the first serial line.
    pub fn console(&self) -> &'static str {
        if self.arch == "arm64" { "ttyAMA0" } else { "ttyS0" }
    }
}

/// The nodes, by the numbers that the guest gives the CPUs.
fn nodes(topology: &Topology) -> Result<Vec<GuestNode>> {
    let narrow = topology
        .llc
        .sets()
        .iter()
        .all(|llc| llc.first().is_none_or(|first| llc.is_subset(topology.node.set_of(first))));
    let place = |cpu: CpuId| {
        let [package, node, llc, cluster, core] =
            [&topology.package, &topology.node, &topology.llc, &topology.cluster, &topology.smt]
                .map(|partition| partition.index_of(cpu));
        // Nodes hold whole LLCs, or an LLC holds whole nodes.
        if narrow { [package, node, llc, cluster, core, cpu.0] } else { [package, llc, node, cluster, core, cpu.0] }
    };
    let mut order: Vec<CpuId> = topology.online.iter().collect();
    order.sort_by_key(|&cpu| place(cpu));
    topology
        .nodes
        .iter()
        .map(|node| {
            let numbers =
                order.iter().enumerate().filter(|&(_, &cpu)| node.cpus.contains(cpu)).map(|(number, _)| number);
            let guests = CpuSet::from_cpus(order.len(), numbers).to_string();
            ensure!(node.distance.iter().all(|distance| (10..=254).contains(distance)), "a distance is outside 10-254");
            Ok(GuestNode {
                cpus: guests.split_terminator(',').map(str::to_owned).collect(),
                distance: node.distance.clone(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use huddle_machine::load_topology;

    use super::Shape;

    fn arguments(machine: &str) -> String {
        let (name, topology) = load_topology(Some(machine)).expect("a built-in machine");
        Shape::of(&name, &topology).expect("a shape").arguments().join(" ")
    }

    #[test]
    fn jacobsville_is_six_modules_under_one_cache() {
        let arguments = arguments("jacobsville");
        assert!(arguments.contains("smp-cache.0.cache=l2,smp-cache.0.topology=module"), "{arguments}");
        assert!(arguments.contains("-smp 24,sockets=1,dies=1,modules=6,cores=4,threads=1"), "{arguments}");
        assert!(!arguments.contains("-numa"), "{arguments}");
    }

    #[test]
    fn two_xeons_have_their_nodes_in_the_guests_numbering() {
        let arguments = arguments("xeon-2s44c88t");
        assert!(arguments.contains("smp-cache.0.cache=l2,smp-cache.0.topology=core"), "{arguments}");
        assert!(arguments.contains("-smp 88,sockets=2,dies=1,modules=22,cores=1,threads=2"), "{arguments}");
        assert!(arguments.contains("node,nodeid=1,memdev=ram1,cpus=44-87"), "{arguments}");
    }

    #[test]
    fn kunpeng_is_an_arm64_guest_with_clusters() {
        let arguments = arguments("kunpeng920:nodes=1");
        assert!(arguments.contains("-smp 24,sockets=1,clusters=6,cores=4,threads=1"), "{arguments}");
    }

    #[test]
    fn more_cpus_than_a_guest_holds_are_refused() {
        let layout = huddle_machine::Layout::new([1, 1, 1, 64, 4, 1]);
        let topology = huddle_machine::Topology::from_layout(huddle_machine::Arch::X86_64, &layout).expect("a layout");
        let error = Shape::of("big", &topology).err().expect("refused").to_string();
        assert!(error.contains("256 CPUs"), "{error}");
    }
}
