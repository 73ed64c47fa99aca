//! What each snapshot's files say, read from them by other means than this crate (a script that opens the files by its
//! own logic), and what a kernel on that machine would have made of them where they are doubtful.

use huddle_machine::Arch::{self, *};
use huddle_machine::ClusterSource::{self, *};

/// One machine. Sets are written as the kernel writes lists, in the order of their first CPU, with ` | ` between them.
/// `0-3 x6+4` stands for six sets, each 4 CPUs on from the one before (`0-3 | 4-7 | … | 20-23`), `0,4 x4+1 x12+8` for
/// twelve times four, `1-79/2` for every second CPU. A level's name stands for that level's sets.
pub struct Snapshot {
    pub file: &'static str,
    pub arch: Arch,
    pub hybrid: bool,
    pub online: &'static str,
    pub offline: &'static str,
    pub smt: &'static str,
    pub cluster: (ClusterSource, &'static str),
    pub llc: &'static str,
    pub package: &'static str,
    pub book: Option<&'static str>,
    pub drawer: Option<&'static str>,
    /// Level and kind, size, and its sets, by level, then kind (data, instructions, both), then first CPU.
    pub caches: &'static [&'static str],
    /// Numbers and CPUs; `none` for a node of memory only.
    pub nodes: (&'static str, &'static str),
    /// Rows by node number, a figure that is repeated as `22x3`; `*: 10 20` for all rows alike; the sum of all where
    /// not all rows are written.
    pub distances: &'static [&'static str],
    /// Capacity and the CPUs that have it; none where all have 1024.
    pub capacity: &'static [&'static str],
    /// Name, exit latency and residency in microseconds.
    pub idle: &'static str,
    /// Codes, in any order, with how often where it is not once.
    pub findings: &'static [&'static str],
}

const EMPTY: Snapshot = Snapshot {
    file: "",
    arch: Other,
    hybrid: false,
    online: "",
    offline: "",
    smt: "",
    cluster: (Smt, ""),
    llc: "",
    package: "",
    book: None,
    drawer: None,
    caches: &[],
    nodes: ("", ""),
    distances: &[],
    capacity: &[],
    idle: "",
    findings: &[],
};

#[rustfmt::skip]
pub const SNAPSHOTS: &[Snapshot] = &[
    // Threads whose siblings are offline are alone.
    Snapshot {
        file: "cadvisor--epyc7402.tar.gz",
        arch: X86_64,
        online: "0-23,27-40,42,44,46-47",
        offline: "24-26,41,43,45",
        smt: "0 x3+1 | 3,27 x14+1 | 17 | 18,42 | 19 | 20,44 | 21 | 22,46 | 23,47",
        cluster: (Smt, "smt"),
        llc: "smt",
        package: "0-23,27-40,42,44,46-47",
        findings: &["no-llc", "cluster-from-smt", "no-nodes", "arch-guessed"],
        ..EMPTY
    },
    // The list says that CPU 0 is offline, its topology folder and the siblings' masks say that CPU 2 is: the list counts,
    // and CPU 2 is in no package with the others because their masks leave it out.
    Snapshot {
        file: "cadvisor--graviton2.tar.gz",
        arch: Arm64,
        online: "1-3",
        offline: "0",
        smt: "1 x3+1",
        cluster: (Smt, "smt"),
        llc: "smt",
        package: "1,3 | 2",
        findings: &[
            "online-conflict", "smt-missing", "package-missing", "no-llc", "cluster-from-smt", "no-nodes",
            "arch-guessed",
        ],
        ..EMPTY
    },
    // Each core has a package number of its own; the nodes of its name are not in the tree.
    Snapshot {
        file: "cadvisor--single_socket_many_NUMAs.tar.gz",
        arch: X86_64,
        online: "0-31",
        smt: "0-1 x16+2",
        cluster: (Smt, "smt"),
        llc: "smt",
        package: "smt",
        findings: &["no-llc", "cluster-from-smt", "no-nodes", "arch-guessed"],
        ..EMPTY
    },
    // Package numbers tell the kinds of cores apart, as on arm64 before 6.0.
    Snapshot {
        file: "cpuinfo--galaxy-s9-us.tar.gz",
        arch: Arm64,
        online: "0-7",
        smt: "0 x8+1",
        cluster: (L2, "smt"),
        llc: "0-7",
        package: "0-3 | 4-7",
        caches: &[
            "L1d 32K: 0 x4+1", "L1d 64K: 4 x4+1", "L1i 32K: 0 x4+1", "L1i 64K: 4 x4+1", "L2 128K: 0 x4+1",
            "L2 256K: 4 x4+1", "L3 2048K: llc",
        ],
        findings: &["cluster-from-l2", "no-nodes"],
        ..EMPTY
    },
    Snapshot {
        file: "ghw--linux-amd64-i7-1270P.tar.gz",
        arch: X86_64,
        hybrid: true,
        online: "0-15",
        smt: "0-1 x4+2 | 8 x8+1",
        cluster: (Stated, "0-1 x4+2 | 8-11 | 12-15"),
        llc: "0-15",
        package: "llc",
        caches: &[
            "L1d 48K: 0-1 x4+2", "L1d 32K: 8 x8+1", "L1i 32K: 0-1 x4+2", "L1i 64K: 8 x8+1", "L2 1280K: 0-1 x4+2",
            "L2 2048K: 8-11 | 12-15", "L3 18432K: llc",
        ],
        nodes: ("0", "llc"),
        distances: &["*: 10"],
        findings: &["online-missing"],
        ..EMPTY
    },
    Snapshot {
        file: "ghw--linux-amd64-ryzen-1600.tar.gz",
        arch: X86_64,
        online: "0-11",
        smt: "0,6 x6+1",
        cluster: (L2, "smt"),
        llc: "0-2,6-8 | 3-5,9-11",
        package: "0-11",
        caches: &["L1d 32K: smt", "L1i 64K: smt", "L2 512K: smt", "L3 8192K: llc"],
        nodes: ("0", "package"),
        distances: &["*: 10"],
        findings: &["online-missing", "cluster-from-l2"],
        ..EMPTY
    },
    Snapshot {
        file: "ghw--linux-s390x-snapshot.tar.gz",
        arch: Other,
        online: "0-7",
        smt: "0-1 x4+2",
        cluster: (L2, "0-7"),
        llc: "cluster",
        package: "cluster",
        book: Some("cluster"),
        drawer: Some("cluster"),
        caches: &["L1d 128K: 0 x8+1", "L1i 128K: 0 x8+1", "L2 32768K: cluster"],
        nodes: ("0", "cluster"),
        distances: &["*: 10"],
        findings: &["online-missing", "cluster-from-l2"],
        ..EMPTY
    },
    Snapshot {
        file: "hwloc--128arm-2pa2n8cluster4co.tar.bz2",
        arch: Arm64,
        online: "0-127",
        smt: "0 x128+1",
        cluster: (Stated, "0-3 x32+4"),
        llc: "0-31 x4+32",
        package: "0-63 | 64-127",
        caches: &["L1d 64K: smt", "L1i 64K: smt", "L2 512K: smt", "L3 32768K: llc"],
        nodes: ("0-3", "llc"),
        distances: &["0: 10 16 32 33", "1: 16 10 25 32", "2: 32 25 10 16", "3: 33 32 16 10"],
        ..EMPTY
    },
    // The list of node 2 names the offline CPU 4 too.
    Snapshot {
        file: "hwloc--16amd64-8n2c-cpusets.tar.bz2",
        arch: X86_64,
        online: "0-3,5-15",
        offline: "4",
        smt: "0 x4+1 | 5 x11+1",
        cluster: (L2, "smt"),
        llc: "smt",
        package: "0-1 | 2-3 | 5 | 6-7 x5+2",
        caches: &["L1d 64K: smt", "L1i 64K: smt", "L2 1024K: smt"],
        nodes: ("0-7", "package"),
        distances: &["*: 10 20"],
        findings: &["cluster-from-l2"],
        ..EMPTY
    },
    Snapshot {
        file: "hwloc--20em64t-hybrid-1p6c2t+2ca4co1t.tar.bz2",
        arch: X86_64,
        hybrid: true,
        online: "0-19",
        smt: "0-1 x6+2 | 12 x8+1",
        cluster: (Stated, "0-1 x6+2 | 12-15 | 16-19"),
        llc: "0-19",
        package: "llc",
        caches: &[
            "L1d 48K: 0-1 x6+2", "L1d 32K: 12 x8+1", "L1i 32K: 0-1 x6+2", "L1i 64K: 12 x8+1", "L2 1280K: 0-1 x6+2",
            "L2 2048K: 12-15 | 16-19", "L3 24576K: llc",
        ],
        nodes: ("0", "llc"),
        distances: &["*: 10"],
        ..EMPTY
    },
    // No caches, and distances of five kinds.
    Snapshot {
        file: "hwloc--256ia64-64n2s2c.tar.bz2",
        arch: Other,
        online: "0-255",
        smt: "0 x256+1",
        cluster: (Smt, "smt"),
        llc: "smt",
        package: "0-1 x128+2",
        nodes: ("0-63", "0-3 x64+4"),
        distances: &[
            "0: 10 22x3 26x8 30x8 34x4 30x4 34x4 30x4 34x4 30x4 34x4 30x4 34x4 30x4 34x4",
            "5: 26x4 22 10 22 22 30x4 26x4 34x4 30x4 34x4 30x4 34x4 30x4 34x4 30x4 34x4 30x4 34x4 30x4",
            "63: 34x4 30x4 34x4 30x4 34x4 30x4 34x4 30x4 34x4 30x4 34x4 30x8 26x8 22x3 10", "sum: 124160",
        ],
        findings: &["online-missing", "no-llc", "cluster-from-smt"],
        ..EMPTY
    },
    Snapshot {
        file: "hwloc--256ppc-8n8s4t.tar.bz2",
        arch: Other,
        online: "0-255",
        smt: "0-3 x64+4",
        cluster: (L2, "smt"),
        llc: "smt",
        package: "smt",
        caches: &["L1d 32K: smt", "L1i 32K: smt", "L2 256K: smt", "L3 4096K: smt"],
        nodes: ("0-1,4-5,8-9,12-13", "0-31 x8+32"),
        distances: &[
            "0: 10 20 40 40 40 40 40 40", "1: 20 10 40 40 40 40 40 40", "4: 40 40 10 20 40 40 40 40",
            "5: 40 40 20 10 40 40 40 40", "8: 40 40 40 40 10 20 40 40", "9: 40 40 40 40 20 10 40 40",
            "12: 40 40 40 40 40 40 10 20", "13: 40 40 40 40 40 40 20 10",
        ],
        findings: &["online-missing", "cluster-from-l2"],
        ..EMPTY
    },
    Snapshot {
        file: "hwloc--2ps3-2t.tar.bz2",
        arch: Other,
        online: "0-1",
        smt: "0-1",
        cluster: (Smt, "smt"),
        llc: "smt",
        package: "smt",
        findings: &["package-missing", "no-llc", "cluster-from-smt", "no-nodes"],
        ..EMPTY
    },
    Snapshot {
        file: "hwloc--32amd64-4s2n4c-cgroup2.tar.bz2",
        arch: X86_64,
        online: "0-31",
        smt: "0 x32+1",
        cluster: (L2, "smt"),
        llc: "0-3 x8+4",
        package: "0-7 x4+8",
        caches: &["L1d 64K: smt", "L1i 64K: smt", "L2 512K: smt", "L3 5118K: llc"],
        nodes: ("0-7", "llc"),
        distances: &[
            "0: 10 16 16 22 16 22 16 22", "1: 16 10 22 16 22 16 22 16", "2: 16 22 10 16 16 22 16 22",
            "3: 22 16 16 10 22 16 22 16", "4: 16 22 16 22 10 16 16 22", "5: 22 16 22 16 16 10 22 16",
            "6: 16 22 16 22 16 22 10 16", "7: 22 16 22 16 22 16 16 10",
        ],
        findings: &["cluster-from-l2"],
        ..EMPTY
    },
    // Lists say that the level-1 instruction and level-2 caches are private, masks that the two cores of a module share
    // them. hwloc, which reads masks, expects the latter; a kernel would take the core for the cluster either way.
    Snapshot {
        file: "hwloc--64amd64-4s2n4ca2co.tar.bz2",
        arch: X86_64,
        online: "0-63",
        smt: "0-1 x32+2",
        cluster: (L2, "smt"),
        llc: "0-7 x8+8",
        package: "0-15 x4+16",
        caches: &["L1d 16K: 0 x64+1", "L1i 64K: smt", "L2 2048K: smt", "L3 6144K: llc"],
        nodes: ("0-7", "llc"),
        distances: &[
            "0: 10 16 16 22 16 22 16 22", "1: 16 10 22 16 16 22 22 16", "2: 16 22 10 16 16 16 16 16",
            "3: 22 16 16 10 16 16 22 22", "4: 16 16 16 16 10 16 16 22", "5: 22 22 16 16 16 10 22 16",
            "6: 16 22 16 22 16 22 10 16", "7: 22 16 16 22 22 16 16 10",
        ],
        findings: &["list-and-mask-disagree", "cluster-from-l2"],
        ..EMPTY
    },
    Snapshot {
        file: "hwloc--8em64t-2s2ca2c.tar.bz2",
        arch: X86_64,
        online: "0-7",
        smt: "0 x8+1",
        cluster: (L2, "0,4 x4+1"),
        llc: "cluster",
        package: "0,2,4,6 | 1,3,5,7",
        caches: &["L1d 32K: smt", "L1i 32K: smt", "L2 4096K: cluster"],
        nodes: ("0", "0-7"),
        distances: &["*: 10"],
        findings: &["cluster-from-l2"],
        ..EMPTY
    },
    Snapshot {
        file: "hwloc--96em64t-4no4pa3ca2co.tar.bz2",
        arch: X86_64,
        online: "0-95",
        smt: "0 x96+1",
        cluster: (L2, "0,4 x4+1 x12+8"),
        llc: "0-20/4 x4+1 x4+24",
        package: "llc",
        caches: &["L1d 32K: smt", "L1i 32K: smt", "L2 3072K: cluster", "L3 16384K: llc"],
        nodes: ("0-3", "0-23 x4+24"),
        distances: &["*: 10 26"],
        findings: &["online-missing", "cluster-from-l2"],
        ..EMPTY
    },
    // A guest with two dies a package and two nodes a die; dies are no level of the scheduler.
    Snapshot {
        file: "hwloc--fakecpuid1f-64intel64-2p4d2n2c2t.tar.bz2",
        arch: X86_64,
        online: "0-63",
        smt: "0-1 x32+2",
        cluster: (L2, "smt"),
        llc: "0-7 x8+8",
        package: "0-15 x4+16",
        caches: &["L1d 32K: 0 x64+1", "L1i 32K: 0 x64+1", "L2 4096K: smt", "L3 16384K: llc"],
        nodes: ("0-15", "0-3 x16+4"),
        distances: &["*: 10 20"],
        findings: &["cluster-from-l2"],
        ..EMPTY
    },
    // All four nodes have CPUs.
    Snapshot {
        file: "hwloc--memorysidecaches.tar.bz2",
        arch: X86_64,
        online: "0-79",
        smt: "0,40 x40+1",
        cluster: (L2, "smt"),
        llc: "0-78/2 | 1-79/2",
        package: "llc",
        caches: &["L1d 32K: smt", "L1i 32K: smt", "L2 1024K: smt", "L3 28160K: llc"],
        nodes: ("0-3", "0-76/4 x4+1"),
        distances: &["0: 10 21 11 21", "1: 21 10 21 11", "2: 11 21 10 21", "3: 21 11 21 10"],
        findings: &["cluster-from-l2"],
        ..EMPTY
    },
    // Node 0 has no folder, but the CPUs link to it, and node 1 still states the distance to it.
    Snapshot {
        file: "hwloc--offline-cpu0-node0.tar.bz2",
        arch: X86_64,
        online: "4-20",
        offline: "0-3,21-23",
        smt: "4 x17+1",
        cluster: (L2, "smt"),
        llc: "4-20/2 | 5-19/2",
        package: "llc",
        caches: &["L1d 32K: smt", "L1i 32K: smt", "L2 256K: smt", "L3 30720K: llc"],
        nodes: ("0-1", "llc"),
        distances: &["*: 10 21"],
        findings: &["cluster-from-l2", "node-from-link", "distance-missing"],
        ..EMPTY
    },
    // Sub-NUMA clustering: the last-level cache spans two nodes. The core types are made up.
    Snapshot {
        file: "nri--cpuallocator-sysfs.tar.bz2",
        arch: X86_64,
        hybrid: true,
        online: "0-79",
        smt: "0,40 x40+1",
        cluster: (L2, "smt"),
        llc: "0-19,40-59 x2+20",
        package: "llc",
        caches: &["L1d 32K: smt", "L1i 32K: smt", "L2 1024K: smt", "L3 28160K: llc"],
        nodes: ("0-3", "0-2,5-6,10-12,15-16,40-42,45-46,50-52,55-56 | 3-4,7-9,13-14,17-19,43-44,47-49,53-54,57-59 | \
            20-22,25-26,30-32,35-36,60-62,65-66,70-72,75-76 | 23-24,27-29,33-34,37-39,63-64,67-69,73-74,77-79"),
        distances: &["0: 10 11 21 21", "1: 11 10 21 21", "2: 21 21 10 11", "3: 21 21 11 10"],
        idle: "POLL 0 0 | C1 2 2 | C1E 10 20 | C6 133 600",
        findings: &["cluster-from-l2"],
        ..EMPTY
    },
    Snapshot {
        file: "pepc--adl0.tar.gz",
        arch: X86_64,
        hybrid: true,
        online: "0-15",
        smt: "0-1 x4+2 | 8 x8+1",
        cluster: (L2, "0-1 x4+2 | 8-11 | 12-15"),
        llc: "0-15",
        package: "llc",
        caches: &["L1d ?: smt", "L1i ?: smt", "L2 ?: cluster", "L3 ?: llc"],
        nodes: ("0", "llc"),
        distances: &["*: 10"],
        idle: "POLL 0 0 | C1E 2 4 | C6 170 500 | C8 200 600 | C10 230 700",
        findings: &["smt-from-ids", "package-from-ids", "cache-level-missing", "cluster-from-l2"],
        ..EMPTY
    },
    // The low-power cores have no level-3 cache: their level-2 cache is the last, as for the kernel.
    Snapshot {
        file: "pepc--arl-h-1.tar.gz",
        arch: X86_64,
        hybrid: true,
        online: "0-13",
        smt: "0 x14+1",
        cluster: (L2, "0 x4+1 | 4-7 | 8-11 | 12-13"),
        llc: "0-11 | 12-13",
        package: "0-13",
        caches: &["L1d ?: smt", "L1i ?: smt", "L2 ?: cluster", "L3 ?: 0-11"],
        nodes: ("0", "package"),
        distances: &["*: 10"],
        idle: "POLL 0 0 | C1_ACPI 1 1 | C2_ACPI 127 381 | C3_ACPI 1048 3144",
        findings: &["smt-from-ids", "package-from-ids", "cache-level-missing", "cluster-from-l2"],
        ..EMPTY
    },
    Snapshot {
        file: "pepc--bdw0.tar.gz",
        arch: X86_64,
        online: "0-87",
        smt: "0,44 x44+1",
        cluster: (L2, "smt"),
        llc: "0-86/2 | 1-87/2",
        package: "llc",
        caches: &["L1d ?: smt", "L1i ?: smt", "L2 ?: smt", "L3 ?: llc"],
        nodes: ("0-1", "llc"),
        distances: &["*: 10 20"],
        idle: "POLL 0 0 | C1 2 2 | C1E 10 20 | C3 40 100 | C6 133 400",
        findings: &["smt-from-ids", "package-from-ids", "cache-level-missing", "cluster-from-l2", "distance-missing"],
        ..EMPTY
    },
    Snapshot {
        file: "pepc--clxap1.tar.gz",
        arch: X86_64,
        online: "0-191",
        smt: "0,96 x96+1",
        cluster: (L2, "smt"),
        llc: "0-23,96-119 x4+24",
        package: "0-47,96-143 x2+48",
        caches: &["L1d ?: smt", "L1i ?: smt", "L2 ?: smt", "L3 ?: llc"],
        nodes: ("0-7", "0-3,7-9,13-15,19-20,96-99,103-105,109-111,115-116 | \
            4-6,10-12,16-18,21-23,100-102,106-108,112-114,117-119 | \
            24-27,31-33,37-39,43-44,120-123,127-129,133-135,139-140 | \
            28-30,34-36,40-42,45-47,124-126,130-132,136-138,141-143 | \
            48-51,55-56,60-62,66-68,144-147,151-152,156-158,162-164 | \
            52-54,57-59,63-65,69-71,148-150,153-155,159-161,165-167 | \
            72-75,79-81,85-87,91-92,168-171,175-177,181-183,187-188 | \
            76-78,82-84,88-90,93-95,172-174,178-180,184-186,189-191"),
        distances: &["*: 10 20"],
        idle: "POLL 0 0 | C1 2 2 | C1E 10 20 | C6 133 600",
        findings: &["smt-from-ids", "package-from-ids", "cache-level-missing", "cluster-from-l2", "distance-missing"],
        ..EMPTY
    },
    Snapshot {
        file: "pepc--dnv0.tar.gz",
        arch: X86_64,
        online: "0-11",
        smt: "0 x12+1",
        cluster: (L2, "0-1 x6+2"),
        llc: "cluster",
        package: "0-11",
        caches: &["L1d ?: smt", "L1i ?: smt", "L2 ?: cluster"],
        nodes: ("0", "package"),
        distances: &["*: 10"],
        idle: "POLL 0 0 | C1 2 2 | C1E 10 20 | C6 50 500",
        findings: &["smt-from-ids", "package-from-ids", "cache-level-missing", "cluster-from-l2"],
        ..EMPTY
    },
    Snapshot {
        file: "pepc--gnr0.tar.gz",
        arch: X86_64,
        online: "0-511",
        smt: "0,256 x256+1",
        cluster: (L2, "smt"),
        llc: "0-127,256-383 x2+128",
        package: "llc",
        caches: &["L1d ?: smt", "L1i ?: smt", "L2 ?: smt", "L3 ?: llc"],
        nodes: ("0-1", "llc"),
        distances: &["*: 10 20"],
        idle: "POLL 0 0 | C1 1 1 | C1E 4 4 | C6 170 650 | C6P 210 1000",
        findings: &["smt-from-ids", "package-from-ids", "cache-level-missing", "cluster-from-l2", "distance-missing"],
        ..EMPTY
    },
    Snapshot {
        file: "pepc--rome0.tar.gz",
        arch: X86_64,
        online: "0-255",
        smt: "0,128 x128+1",
        cluster: (L2, "smt"),
        llc: "0-3,128-131 x32+4",
        package: "0-63,128-191 x2+64",
        caches: &["L1d ?: smt", "L1i ?: smt", "L2 ?: smt", "L3 ?: llc"],
        nodes: ("0-1", "package"),
        distances: &["*: 10 20"],
        idle: "POLL 0 0 | C1 1 2 | C2 400 800",
        findings: &["smt-from-ids", "package-from-ids", "cache-level-missing", "cluster-from-l2", "distance-missing"],
        ..EMPTY
    },
    Snapshot {
        file: "pepc--snr0.tar.gz",
        arch: X86_64,
        online: "0-23",
        smt: "0 x24+1",
        cluster: (L2, "0-3 x6+4"),
        llc: "0-23",
        package: "llc",
        caches: &["L1d ?: smt", "L1i ?: smt", "L2 ?: cluster", "L3 ?: llc"],
        nodes: ("0", "llc"),
        distances: &["*: 10"],
        idle: "POLL 0 0 | C1 2 2 | C1E 15 25",
        findings: &["smt-from-ids", "package-from-ids", "cache-level-missing", "cluster-from-l2"],
        ..EMPTY
    },
    Snapshot {
        file: "pepc--srf2.tar.gz",
        arch: X86_64,
        online: "0-223",
        smt: "0 x224+1",
        cluster: (L2, "0-3 x56+4"),
        llc: "0-111 | 112-223",
        package: "llc",
        caches: &["L1d ?: smt", "L1i ?: smt", "L2 ?: cluster", "L3 ?: llc"],
        nodes: ("0-1", "llc"),
        distances: &["*: 10 20"],
        idle: "POLL 0 0 | C1 1 1 | C1E 2 10 | C6S 270 700 | C6SP 310 900",
        findings: &["smt-from-ids", "package-from-ids", "cache-level-missing", "cluster-from-l2", "distance-missing"],
        ..EMPTY
    },
    Snapshot {
        file: "pepc--turin0.tar.gz",
        arch: X86_64,
        online: "0-255",
        smt: "0,128 x128+1",
        cluster: (L2, "smt"),
        llc: "0-7,128-135 x16+8",
        package: "0-63,128-191 x2+64",
        caches: &["L1d ?: smt", "L1i ?: smt", "L2 ?: smt", "L3 ?: llc"],
        nodes: ("0-1", "package"),
        distances: &["*: 10 20"],
        idle: "POLL 0 0 | C1 1 2 | C2 100 200",
        findings: &["smt-from-ids", "package-from-ids", "cache-level-missing", "cluster-from-l2", "distance-missing"],
        ..EMPTY
    },
    Snapshot {
        file: "util-linux--arm-A510-A710-A715-X3.tar.gz",
        arch: Arm64,
        online: "0-7",
        smt: "0 x8+1",
        cluster: (L2, "0 | 1-2 | 3 x5+1"),
        llc: "0-7",
        package: "0-2 | 3-6 | 7",
        caches: &["L1d ?: smt", "L1i ?: smt", "L2 ?: cluster", "L3 ?: llc"],
        capacity: &["280: 0-2", "855: 3-6", "1024: 7"],
        idle: "WFI 1 1 | silver-c4 1300 6700",
        findings: &["cluster-from-l2", "no-nodes"],
        ..EMPTY
    },
    // The siblings of a package are one core; node 1 has no CPU.
    Snapshot {
        file: "util-linux--ppc64-POWER7-64cpu.tar.gz",
        arch: Other,
        online: "0-63",
        smt: "0-3 x16+4",
        cluster: (Smt, "smt"),
        llc: "smt",
        package: "smt",
        caches: &["L1d 32K: smt", "L1i 32K: smt"],
        nodes: ("0-1", "0-63 | none"),
        distances: &["*: 10 20"],
        findings: &["cluster-from-smt", "distance-missing"],
        ..EMPTY
    },
    Snapshot {
        file: "util-linux--rv64-visionfive2.tar.gz",
        arch: Riscv,
        online: "0-3",
        smt: "0 x4+1",
        cluster: (Stated, "0-3"),
        llc: "cluster",
        package: "cluster",
        caches: &["L1d 32K: smt", "L1i 32K: smt", "L2 2048K: cluster"],
        nodes: ("0", "cluster"),
        distances: &["*: 10"],
        ..EMPTY
    },
    // The node names CPUs up to 140, which do not exist.
    Snapshot {
        file: "util-linux--s390-lpar-drawer.tar.gz",
        arch: Other,
        online: "0-7",
        smt: "0 x8+1",
        cluster: (L2, "smt"),
        llc: "smt",
        package: "0-1 | 2-7",
        book: Some("0-7"),
        drawer: Some("book"),
        caches: &["L1d 128K: smt", "L1i 96K: smt", "L2d 2048K: smt", "L2i 2048K: smt"],
        nodes: ("0", "book"),
        distances: &["*: 10"],
        findings: &["cluster-from-l2"],
        ..EMPTY
    },
    // A guest: pairs share level-2 caches as the modules of the host do.
    Snapshot {
        file: "util-linux--vmware_fpe.tar.gz",
        arch: X86_64,
        online: "0-15",
        smt: "0-1 x8+2",
        cluster: (L2, "smt"),
        llc: "0-3 x4+4",
        package: "0-7 | 8-15",
        caches: &["L1d 16K: 0 x16+1", "L1i 64K: smt", "L2 2048K: smt", "L3 6144K: llc"],
        nodes: ("0-3", "llc"),
        distances: &["*: 10 20"],
        idle: "POLL 0 0 | C1 0 0 | C2 100 200",
        findings: &["cluster-from-l2", "distance-missing"],
        ..EMPTY
    },
    // The cluster is the core.
    Snapshot {
        file: "util-linux--x86_64-64cpu-linux6.2.tar.gz",
        arch: X86_64,
        online: "0-7",
        smt: "0,4 x4+1",
        cluster: (Stated, "smt"),
        llc: "0-7",
        package: "llc",
        caches: &["L1d 48K: smt", "L1i 32K: smt", "L2 1280K: smt", "L3 12288K: llc"],
        nodes: ("0", "llc"),
        distances: &["*: 10"],
        idle: "POLL 0 0 | C1_ACPI 1 1 | C2_ACPI 253 759 | C3_ACPI 1048 3144",
        ..EMPTY
    },
    Snapshot {
        file: "util-linux--x86_64-64cpu.tar.gz",
        arch: X86_64,
        online: "0-63",
        smt: "0,32 x32+1",
        cluster: (L2, "smt"),
        llc: "0-60/4 x4+1",
        package: "llc",
        caches: &["L1d 32K: smt", "L1i 32K: smt", "L2 256K: smt", "L3 18432K: llc"],
        nodes: ("0,2-3", "0-62/2 | 1-61/4 | 3-63/4"),
        distances: &["*: 10 20"],
        idle: "C0 0 0 | NHM-C1 3 6 | NHM-C3 20 40",
        findings: &["cluster-from-l2", "distance-missing", "idle-residency-missing x3"],
        ..EMPTY
    },
    Snapshot {
        file: "util-linux--x86_64-epyc_7451.tar.gz",
        arch: X86_64,
        online: "0-95",
        smt: "0,48 x48+1",
        cluster: (L2, "smt"),
        llc: "0-2,48-50 x16+3",
        package: "0-23,48-71 x2+24",
        caches: &["L1d 32K: smt", "L1i 64K: smt", "L2 512K: smt", "L3 8192K: llc"],
        nodes: ("0-7", "0-5,48-53 x8+6"),
        distances: &["*: 10 20"],
        idle: "POLL 0 0 | C1 0 0 | C2 100 200",
        findings: &["cluster-from-l2", "distance-missing"],
        ..EMPTY
    },
];
