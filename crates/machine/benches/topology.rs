//! What reading a machine costs: a whole `/sys` tree of 1024 and of 8192 CPUs, as a folder and as a packed archive. The
//! trees have what a kernel shows of each CPU's topology and caches, lists and masks, and take a while to write.

#![allow(missing_docs)] // criterion_group! makes public functions

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use huddle_machine::{CpuSet, load_topology};
use tempfile::TempDir;

const SYSTEM: &str = "sys/devices/system";
const NODES: usize = 16;
/// CPUs of a core, cluster and last-level cache; threads of a core are neighbours.
const SMT: usize = 2;
const CLUSTER: usize = 8;
const LLC: usize = 64;

/// A set as the kernel writes it: a list, and a mask of all CPUs in groups of 32 bits.
struct Texts {
    list: String,
    mask: String,
}

impl Texts {
    fn of(cpus: usize, size: usize) -> Vec<Texts> {
        let texts = |first: usize| {
            let set = CpuSet::from_cpus(cpus, first..first + size);
            let halves = set.words().iter().flat_map(|&word| [word as u32, (word >> 32) as u32]);
            let groups: Vec<String> = halves.map(|half| format!("{half:08x}")).collect();
            let mask: Vec<&str> = groups.iter().rev().map(String::as_str).collect();
            Texts { list: format!("{set}\n"), mask: format!("{}\n", mask.join(",")) }
        };
        (0..cpus).step_by(size).map(texts).collect()
    }
}

fn write(folder: &Path, files: &[(&str, &str)]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    files.iter().try_for_each(|(file, content)| fs::write(folder.join(file), content))
}

fn write_cpus(cpu: &Path, cpus: usize) -> io::Result<()> {
    let sizes = [SMT, CLUSTER, LLC, cpus / 2];
    let [smt, cluster, llc, package] = sizes.map(|size| Texts::of(cpus, size));
    for id in 0..cpus {
        let folder = cpu.join(format!("cpu{id}"));
        write(&folder, &[("online", "1\n")])?;
        let [core_id, cluster_id, package_id] = [SMT, CLUSTER, cpus / 2].map(|size| format!("{}\n", id / size));
        let (smt, cluster, llc, package) =
            (&smt[id / SMT], &cluster[id / CLUSTER], &llc[id / LLC], &package[id / (cpus / 2)]);
        let topology = [
            ("core_id", core_id.as_str()),
            ("cluster_id", &cluster_id),
            ("physical_package_id", &package_id),
            ("die_id", "0\n"),
            ("core_cpus_list", &smt.list),
            ("core_cpus", &smt.mask),
            ("cluster_cpus_list", &cluster.list),
            ("cluster_cpus", &cluster.mask),
            ("package_cpus_list", &package.list),
            ("package_cpus", &package.mask),
        ];
        write(&folder.join("topology"), &topology)?;
        let caches = [
            ("1\n", "Data\n", "32K\n", smt),
            ("1\n", "Instruction\n", "32K\n", smt),
            ("2\n", "Unified\n", "2048K\n", cluster),
            ("3\n", "Unified\n", "32768K\n", llc),
        ];
        for (index, (level, kind, size, sharers)) in caches.into_iter().enumerate() {
            let files = [
                ("level", level),
                ("type", kind),
                ("size", size),
                ("shared_cpu_list", &sharers.list),
                ("shared_cpu_map", &sharers.mask),
            ];
            write(&folder.join(format!("cache/index{index}")), &files)?;
        }
    }
    Ok(())
}

/// A folder with the tree.
fn tree(cpus: usize) -> io::Result<TempDir> {
    let folder = tempfile::tempdir()?;
    let system = folder.path().join(SYSTEM);
    let all = format!("0-{}\n", cpus - 1);
    write(&system.join("cpu"), &[("online", &all), ("present", &all), ("possible", &all)])?;
    write_cpus(&system.join("cpu"), cpus)?;
    for (id, node) in Texts::of(cpus, cpus / NODES).iter().enumerate() {
        let distance: Vec<&str> = (0..NODES).map(|other| if other == id { "10" } else { "20" }).collect();
        let distance = format!("{}\n", distance.join(" "));
        let files = [("cpulist", node.list.as_str()), ("cpumap", &node.mask), ("distance", &distance)];
        write(&system.join(format!("node/node{id}")), &files)?;
    }
    write(&folder.path().join("proc"), &[("cpuinfo", "processor\t: 0\nvendor_id\t: GenuineIntel\n")])?;
    Ok(folder)
}

fn archive(folder: &Path) -> io::Result<PathBuf> {
    let path = folder.join("machine.tar.gz");
    let packed = flate2::write::GzEncoder::new(File::create(&path)?, flate2::Compression::default());
    let mut builder = tar::Builder::new(packed);
    for part in ["sys", "proc"] {
        builder.append_dir_all(part, folder.join(part))?;
    }
    builder.into_inner()?.finish()?;
    Ok(path)
}

fn read(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("topology");
    group.sample_size(10);
    for cpus in [1024, 8192] {
        let Ok(folder) = tree(cpus) else { continue };
        let Ok(archive) = archive(folder.path()) else { continue };
        for (form, path) in [("folder", folder.path().to_owned()), ("tar.gz", archive)] {
            group.bench_function(BenchmarkId::new(form, cpus), |bencher| {
                bencher.iter(|| load_topology(path.to_str()).map(|(_, topology)| topology.nr_cpus()));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, read);
criterion_main!(benches);
