//! What `/proc/cpuinfo` adds: the architecture, the CPUs that are online, and the ids of packages and cores.
//!
//! Read only when something asks for it: on a running machine of thousands of CPUs it is slow.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use crate::topology::ZEN_FAMILY;
use crate::tree::Tree;
use crate::{Arch, CpuId};

/// Package and core of a CPU.
#[derive(Clone, Copy, Default)]
pub(super) struct Ids {
    pub(super) package: Option<i64>,
    pub(super) core: Option<i64>,
}

pub(super) struct CpuInfo<'a> {
    tree: &'a Tree,
    text: OnceCell<String>,
    cpus: OnceCell<BTreeMap<u32, Ids>>,
}

impl<'a> CpuInfo<'a> {
    pub(super) fn new(tree: &'a Tree) -> CpuInfo<'a> {
        CpuInfo { tree, text: OnceCell::new(), cpus: OnceCell::new() }
    }

    fn lines(&self) -> impl Iterator<Item = (&str, &str)> {
        let text = self.text.get_or_init(|| self.tree.cpuinfo().unwrap_or_default());
        text.lines().filter_map(|line| {
            let (key, value) = line.split_once(':')?;
            Some((key.trim(), value.trim_matches(|c: char| c == '\0' || c.is_whitespace())))
        })
    }

    /// The architecture; `None` when there is no such file or it does not tell.
    pub(super) fn arch(&self) -> Option<Arch> {
        self.lines().find_map(|(key, value)| match key {
            // s390 writes `IBM/S390`.
            "vendor_id" => Some(if value.contains('/') { Arch::Other } else { Arch::X86_64 }),
            "CPU implementer" => Some(Arch::Arm64),
            "hart" => Some(Arch::Riscv),
            "isa" if value.starts_with("rv") => Some(Arch::Riscv),
            // powerpc, sparc and alpha; IA-64; mips and LoongArch.
            "cpu" | "arch" | "cpu model" | "CPU Family" => Some(Arch::Other),
            _ => None,
        })
    }

    /// Whether the processors are AMD's or Hygon's, Zen or later.
    pub(super) fn is_zen(&self) -> bool {
        let first = |key| self.lines().find(|line| line.0 == key).map(|line| line.1);
        let family: u32 = first("cpu family").and_then(|family| family.parse().ok()).unwrap_or(0);
        matches!(first("vendor_id"), Some("AuthenticAMD" | "HygonGenuine")) && family >= ZEN_FAMILY
    }

    /// The online CPUs by number, with their ids as far as they are stated.
    pub(super) fn cpus(&self) -> &BTreeMap<u32, Ids> {
        self.cpus.get_or_init(|| {
            let mut cpus: BTreeMap<u32, Ids> = BTreeMap::new();
            let mut current: Option<u32> = None;
            for (key, value) in self.lines() {
                // s390 lists `processor 0: version = …` first, then each CPU after `cpu number`.
                let number = match key {
                    "processor" | "cpu number" => value,
                    _ => key.strip_prefix("processor ").unwrap_or(""),
                };
                if let Ok(cpu) = number.parse() {
                    cpus.entry(cpu).or_default();
                    current = Some(cpu);
                }
                match key {
                    "physical id" | "core id" => {
                        let Some(ids) = current.and_then(|cpu| cpus.get_mut(&cpu)) else { continue };
                        let id = value.parse().ok();
                        *if key == "core id" { &mut ids.core } else { &mut ids.package } = id;
                    }
                    _ => {}
                }
            }
            cpus
        })
    }

    pub(super) fn of(&self, cpu: CpuId) -> Ids {
        self.cpus().get(&cpu.0).copied().unwrap_or_default()
    }
}
