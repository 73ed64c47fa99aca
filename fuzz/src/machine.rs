//! What the targets of `huddle-machine` run on each input, and what must hold of whatever is read.

use huddle_machine::{CpuId, CpuSet, Machine, MachineError, Partition, Topology};

/// The name that errors call the input.
const FILE: &str = "input";

/// A list and a mask of CPUs: what is read is written and read again.
pub fn cpu_set(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for parsed in [CpuSet::parse_list(&text), CpuSet::parse_mask(&text)] {
        match parsed {
            Ok(set) => {
                assert_eq!(CpuSet::parse_list(&set.to_string()).as_ref(), Ok(&set));
                assert_eq!(CpuSet::parse_mask(&mask(&set)).as_ref(), Ok(&set));
            }
            Err(error) => assert_one_line(&error.to_string()),
        }
    }
}

/// The mask as `/sys` writes it.
fn mask(set: &CpuSet) -> String {
    let groups = set.words().iter().flat_map(|word| [*word as u32, (word >> 32) as u32]);
    let groups: Vec<String> = groups.map(|group| format!("{group:08x}")).collect();
    if groups.is_empty() { "0".to_owned() } else { groups.into_iter().rev().collect::<Vec<_>>().join(",") }
}

/// hwloc's XML.
pub fn hwloc_xml(data: &[u8]) {
    check(Topology::parse_hwloc(FILE, data));
}

/// A machine file.
pub fn machine_toml(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    check(Machine::parse(FILE, text).map(|machine| machine.topology));
}

/// An archive as it is.
pub fn sys_archive(data: &[u8]) {
    check(Topology::parse_archive(FILE, data));
}

/// A `/sys` tree, written as lines: `devices/system/cpu/online=0-3` is a file below `sys`, `a/b->../c` a link, and a
/// path that ends in `/` a folder. A path that begins with `/` is from the top, as `/proc/cpuinfo=…`. In what a file
/// holds, `|` stands for a new line.
pub fn sys_tree(data: &[u8]) {
    if let Ok(archive) = tar_of(&String::from_utf8_lossy(data)) {
        check(Topology::parse_archive(FILE, &archive));
    }
}

fn tar_of(lines: &str) -> std::io::Result<Vec<u8>> {
    let mut tar = tar::Builder::new(Vec::new());
    for line in lines.lines() {
        let mut header = tar::Header::new_gnu();
        header.set_size(0);
        let split = line.find('=').into_iter().chain(line.find("->")).min();
        let (path, rest) = line.split_at(split.unwrap_or(line.len()));
        let path = path.strip_prefix('/').map_or_else(|| format!("sys/{path}"), str::to_owned);
        if let Some(target) = rest.strip_prefix("->") {
            header.set_entry_type(tar::EntryType::Symlink);
            tar.append_link(&mut header, path, target)?;
        } else if let Some(content) = rest.strip_prefix('=') {
            let content = content.replace('|', "\n");
            header.set_size(content.len() as u64);
            tar.append_data(&mut header, path, content.as_bytes())?;
        } else {
            header.set_entry_type(tar::EntryType::Directory);
            tar.append_data(&mut header, path, std::io::empty())?;
        }
    }
    tar.into_inner()
}

fn check(read: Result<Topology, MachineError>) {
    match read {
        Ok(topology) => assert_sound(&topology),
        Err(error) => assert_one_line(&error.to_string()),
    }
}

fn assert_one_line(message: &str) {
    assert!(!message.contains(['\n', '\r']) && !message.is_empty(), "{message:?}");
}

/// What every topology keeps to, whatever it was read from.
pub fn assert_sound(topology: &Topology) {
    let online = &topology.online;
    assert!(!online.is_empty() && !online.intersects(&topology.offline));
    for partition in [&topology.smt, &topology.cluster, &topology.llc, &topology.package, &topology.node]
        .into_iter()
        .chain(&topology.book)
        .chain(&topology.drawer)
    {
        assert_partition(partition, online);
    }
    assert_eq!(topology.capacity.len(), topology.nr_cpus());
    assert!(online.iter().all(|cpu| (1..=1024).contains(&topology.capacity[cpu.index()])));
    assert!(topology.nodes.windows(2).all(|pair| pair[0].id < pair[1].id));
    for (row, node) in topology.nodes.iter().enumerate() {
        assert!(node.cpus.is_subset(online) && node.distance.len() == topology.nodes.len());
        assert!(node.distance[row] == 10 && node.distance.iter().all(|distance| (10..256).contains(distance)));
    }
    assert!(topology.caches.iter().all(|cache| !cache.cpus.is_empty() && cache.cpus.is_subset(online)));
    topology.findings.iter().for_each(|finding| assert_one_line(&finding.message));
    if topology.nr_cpus() <= 256 {
        let first = online.first().unwrap_or(CpuId(0));
        assert!(online.iter().all(|cpu| topology.distances()[topology.distance(first, cpu) as usize]));
        assert!(online.iter().all(|cpu| topology.numa_distance(first, cpu) >= 10));
    }
    if let Some(part) = topology.first_nodes(topology.nodes.len() / 2).filter(|_| topology.nodes.len() > 1) {
        assert_sound(&part);
    }
}

fn assert_partition(partition: &Partition, online: &CpuSet) {
    let mut seen = CpuSet::new(online.capacity());
    for (index, set) in partition.sets().iter().enumerate() {
        assert!(!set.is_empty() && !set.intersects(&seen) && set.capacity() == online.capacity());
        assert!(set.iter().all(|cpu| partition.index_of(cpu) as usize == index));
        seen.union_with(set);
    }
    assert_eq!(&seen, online);
}
