//! What a kernel needs for a sched_ext scheduler, and what this one lacks.

use std::fs;
use std::path::Path;

/// Why no sched_ext scheduler can run here: what is missing and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// Only root may load schedulers.
    #[error("a scheduler can only be loaded by root (CAP_SYS_ADMIN, CAP_BPF, CAP_PERFMON); run as root")]
    Privilege,
    /// The kernel came before sched_ext.
    #[error("Linux {0} has no sched_ext; it needs 6.12 or later, built with CONFIG_SCHED_CLASS_EXT=y")]
    TooOld(String),
    /// The kernel is new enough but built without.
    #[error("Linux {0} is built without sched_ext; it needs CONFIG_SCHED_CLASS_EXT=y")]
    NotBuilt(String),
    /// Types of the kernel cannot be looked up.
    #[error("Linux {0} shows no type information (/sys/kernel/btf/vmlinux); it needs CONFIG_DEBUG_INFO_BTF=y")]
    NoTypes(String),
    /// sched_ext takes no machine whose CPUs are isolated from balancing (`scx_enable`, kernel/sched/ext.c).
    #[error("CPUs {0} are isolated (isolcpus=), with which sched_ext does not run; boot without")]
    Isolated(String),
    /// Another scheduler is attached.
    #[error("the sched_ext scheduler `{name}` is attached ({state}); stop it first")]
    Busy {
        /// As it calls itself.
        name: String,
        /// `enabled`, `enabling`, `disabling`.
        state: String,
    },
}

/// The running kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// `7.2.6-amd64`.
    pub release: String,
    /// Changes of CPUs since boot (`hotplug_seq`); the kernel refuses a scheduler that was made before the last.
    pub hotplug_seq: u64,
}

const FOLDER: &str = "sys/kernel/sched_ext";

impl Kernel {
    /// The kernel of this machine.
    ///
    /// # Errors
    /// What it lacks, the first thing that it lacks.
    pub fn running() -> Result<Kernel, Missing> {
        let root = fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
        Kernel::at(Path::new("/"), root)
    }

    /// Whether the release is that one or later.
    pub fn is_at_least(&self, major: u32, minor: u32) -> bool {
        numbers(&self.release).is_some_and(|release| release >= (major, minor))
    }

    /// The kernel that a tree with `proc` and `sys` shows.
    ///
    /// # Errors
    /// As [`Kernel::running`].
    pub fn at(root: &Path, privileged: bool) -> Result<Kernel, Missing> {
        let read = |path: &str| fs::read_to_string(root.join(path)).map(|text| text.trim().to_owned());
        let release = read("proc/sys/kernel/osrelease").unwrap_or_else(|_| "of unknown release".to_owned());
        if !root.join(FOLDER).exists() {
            return Err(if before_sched_ext(&release) { Missing::TooOld(release) } else { Missing::NotBuilt(release) });
        }
        if !root.join("sys/kernel/btf/vmlinux").exists() {
            return Err(Missing::NoTypes(release));
        }
        if !privileged {
            return Err(Missing::Privilege);
        }
        let isolated = read("sys/devices/system/cpu/isolated").unwrap_or_default();
        if !isolated.is_empty() {
            return Err(Missing::Isolated(isolated));
        }
        let state = read(&format!("{FOLDER}/state")).unwrap_or_default();
        if state != "disabled" && !state.is_empty() {
            let name = read(&format!("{FOLDER}/root/ops")).unwrap_or_else(|_| "unknown".to_owned());
            return Err(Missing::Busy { name, state });
        }
        let hotplug_seq = read(&format!("{FOLDER}/hotplug_seq")).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
        Ok(Kernel { release, hotplug_seq })
    }
}

/// sched_ext came with 6.12.
fn before_sched_ext(release: &str) -> bool {
    numbers(release).is_some_and(|release| release < (6, 12))
}

/// `7.2.6-amd64` as 7 and 2.
fn numbers(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|char: char| !char.is_ascii_digit()).map_while(|part| part.parse().ok());
    Some((numbers.next()?, numbers.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    const OLD: (&str, &str) = ("proc/sys/kernel/osrelease", "6.6.30-amd64\n");
    const NEW: (&str, &str) = ("proc/sys/kernel/osrelease", "7.2.6-amd64\n");
    const NONE: (&str, &str) = ("sys/devices/system/cpu/isolated", "\n");
    const TYPES: (&str, &str) = ("sys/kernel/btf/vmlinux", "");

    #[test]
    fn each_lack_is_named() {
        let state = |text| ("sys/kernel/sched_ext/state", text);
        let at = |files: &[_], privileged| Kernel::at(tree(files).path(), privileged).unwrap_err().to_string();
        assert!(at(&[OLD], true).starts_with("Linux 6.6.30-amd64 has no sched_ext"));
        assert!(at(&[NEW], true).starts_with("Linux 7.2.6-amd64 is built without sched_ext"));
        assert!(at(&[NEW, state("disabled\n")], true).contains("CONFIG_DEBUG_INFO_BTF=y"));
        assert!(at(&[NEW, TYPES, state("disabled\n")], false).contains("run as root"));
        let isolated = ("sys/devices/system/cpu/isolated", "2,8-11\n");
        let line = at(&[NEW, TYPES, state("disabled\n"), isolated], true);
        assert_eq!(line, "CPUs 2,8-11 are isolated (isolcpus=), with which sched_ext does not run; boot without");
        let ops = ("sys/kernel/sched_ext/root/ops", "other\n");
        assert!(at(&[NEW, TYPES, state("enabled\n"), ops], true).contains("`other` is attached (enabled)"));
        let folder = tree(&[NEW, TYPES, state("disabled\n"), ("sys/kernel/sched_ext/hotplug_seq", "7\n"), NONE]);
        let kernel = Kernel { release: "7.2.6-amd64".to_owned(), hotplug_seq: 7 };
        assert_eq!(Kernel::at(folder.path(), true), Ok(kernel));
    }
}
