//! Reads kernel records: those built in, and files by path. A record says what differs from its `base`.

use std::fs;
use std::path::Path;

use include_dir::{Dir, include_dir};
use serde::Deserialize;
use toml::{Table, Value};

use crate::{BalanceProfile, DomainProfile, Kernel, PipeWriterWake, QueueProfile, WakeQueue};

static RECORDS: Dir = include_dir!("$CARGO_MANIFEST_DIR/../../kernels");

/// Why a kernel record cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// No built-in record has this name.
    #[error("unknown kernel `{name}`: known are {}, or give the path of a .toml file", kernel_names().join(", "))]
    Unknown {
        /// The name asked for.
        name: String,
    },
    /// The file cannot be read.
    #[error("cannot read the kernel record {file}: {source}")]
    Read {
        /// Its path.
        file: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// No built-in record is for so old a release, or it is no release.
    #[error("no kernel record for `{release}`: the oldest is {oldest}; name a record")]
    NoRelease {
        /// What the kernel calls itself.
        release: String,
        /// The oldest release with a record.
        oldest: String,
    },
    /// The record is not right.
    #[error("{file}: {message}")]
    Record {
        /// The record's file.
        file: String,
        /// The key, and what would be right.
        message: String,
    },
}

impl KernelError {
    /// Whether the caller asked for something that does not exist, as opposed to a record that is wrong.
    pub fn is_usage(&self) -> bool {
        matches!(self, KernelError::Unknown { .. } | KernelError::NoRelease { .. })
    }
}

/// Names of the built-in kernels, ascending by release.
pub fn kernel_names() -> Vec<String> {
    let mut names: Vec<String> =
        RECORDS.files().filter_map(|file| Some(file.path().to_str()?.strip_suffix(".toml")?.to_owned())).collect();
    names.sort_by_key(|name| (release(name), name.clone()));
    names
}

/// What ends the release in the name of a variant: `5.10+rfc2` has something more, `7.2-nocache` something less.
const VARIANT: [char; 2] = ['+', '-'];

/// `5.10+rfc2` as `[5, 10]`.
fn release(name: &str) -> Vec<u32> {
    let number = name.split(VARIANT).next().unwrap_or(name);
    number.split('.').map(|part| part.parse().unwrap_or(u32::MAX)).collect()
}

impl Kernel {
    /// A built-in kernel by name, or the record in a file: anything with a `/` or ending in `.toml` is a path.
    ///
    /// # Errors
    /// [`KernelError::Unknown`] for a name that is not built in; else one line naming file, key and what would be right.
    pub fn load(name_or_path: &str) -> Result<Kernel, KernelError> {
        if !name_or_path.contains('/') && !name_or_path.ends_with(".toml") {
            return read(name_or_path, &built_in_file(name_or_path), built_in(name_or_path)?);
        }
        let text = fs::read_to_string(name_or_path)
            .map_err(|source| KernelError::Read { file: name_or_path.to_owned(), source })?;
        Kernel::parse(name_or_path, &text)
    }

    /// Reads the text of a record; `file` is what errors call it, and its stem is the kernel's name.
    ///
    /// # Errors
    /// [`KernelError::Record`] for the first key that is unknown, missing or wrong.
    pub fn parse(file: &str, text: &str) -> Result<Kernel, KernelError> {
        let name = Path::new(file).file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into());
        read(&name, file, text)
    }
}

impl Kernel {
    /// The built-in record for a running kernel (`6.18.15-amd64`): the newest that is not newer than its release, and
    /// no variant (`5.14+cluster`). A record of three numbers is for back-ports and serves its stable series only.
    ///
    /// # Errors
    /// [`KernelError::NoRelease`] when all records are newer, or the text does not begin with a release.
    pub fn for_release(release: &str) -> Result<Kernel, KernelError> {
        let running = leading_numbers(release);
        let serves = |name: &String| match self::release(name).as_slice() {
            [.., stable] if name.matches('.').count() == 2 => {
                running.starts_with(&self::release(name)[..2]) && running.get(2) >= Some(stable)
            }
            numbers => !name.contains(VARIANT) && numbers <= &running[..running.len().min(2)],
        };
        match kernel_names().into_iter().rfind(serves) {
            Some(name) => Kernel::load(&name),
            None => Err(KernelError::NoRelease {
                release: release.to_owned(),
                oldest: kernel_names().into_iter().next().unwrap_or_default(),
            }),
        }
    }
}

impl Kernel {
    /// The kernel as its build configuration (the text of a `/boot/config-…`) makes it: the cluster level is an option, and Debian's
    /// arm64 kernels before 6.18 are built without it.
    #[must_use]
    pub fn built_with(mut self, config: &str) -> Kernel {
        let clusters = config.lines().any(|line| line.trim() == "CONFIG_SCHED_CLUSTER=y");
        if !clusters && self.domains.cluster.take().is_some() {
            self.name.push_str(" without SCHED_CLUSTER");
        }
        self
    }
}

/// `6.18.15+deb13` as `[6, 18, 15]`, `6.1-rc3` as `[6, 1]`; empty when it does not begin with a release.
fn leading_numbers(release: &str) -> Vec<u32> {
    let end = release.find(|char: char| !char.is_ascii_digit() && char != '.').unwrap_or(release.len());
    let numbers: Vec<u32> = release[..end].split('.').map_while(|part| part.parse().ok()).take(3).collect();
    if numbers.len() < 2 { Vec::new() } else { numbers }
}

fn built_in_file(name: &str) -> String {
    format!("kernels/{name}.toml")
}

fn built_in(name: &str) -> Result<&'static str, KernelError> {
    RECORDS
        .get_file(format!("{name}.toml"))
        .and_then(|file| file.contents_utf8())
        .ok_or_else(|| KernelError::Unknown { name: name.to_owned() })
}

/// A record with its bases filled in.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    title: String,
    wake_queue: WakeQueue,
    pipe_writer_wake: PipeWriterWake,
    domains: DomainProfile,
    balance: BalanceProfile,
    queue: QueueProfile,
}

fn read(name: &str, file: &str, text: &str) -> Result<Kernel, KernelError> {
    let wrong = |message: String| KernelError::Record { file: file.to_owned(), message };
    let table = with_bases(file, text, 0)?;
    let record: Record = serde_path_to_error::deserialize(table).map_err(|error| {
        let path = error.path().to_string();
        // toml ends some messages with a line of its own
        let message = error.inner().to_string().replace('\n', " ");
        wrong(if path == "." { message.trim().to_owned() } else { format!("`{path}`: {}", message.trim()) })
    })?;
    let least = [
        ("domains.busy_factor", u64::from(record.domains.busy_factor), 1),
        ("domains.default_imbalance_pct", u64::from(record.domains.default_imbalance_pct), 100),
        ("queue.latency_ns", record.queue.latency_ns, 1),
        ("queue.min_granularity_ns", record.queue.min_granularity_ns, 1),
        ("queue.nr_latency", u64::from(record.queue.nr_latency), 1),
    ];
    if let Some((key, value, least)) = least.into_iter().find(|&(_, value, least)| value < least) {
        return Err(wrong(format!("`{key}`: {value} is too small, the least is {least}")));
    }
    let Record { title, wake_queue, pipe_writer_wake, domains, balance, queue } = record;
    Ok(Kernel { name: name.to_owned(), title, domains, balance, queue, wake_queue, pipe_writer_wake })
}

/// The record's table over that of its base.
fn with_bases(file: &str, text: &str, depth: usize) -> Result<Table, KernelError> {
    let wrong = |message: String| KernelError::Record { file: file.to_owned(), message };
    let mut table: Table = text.parse().map_err(|error: toml::de::Error| {
        let line = error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        wrong(format!("line {line}: {}", error.message().replace('\n', " ")))
    })?;
    let Some(base) = table.remove("base") else { return Ok(table) };
    let Value::String(base) = base else {
        let base = base.to_string().replace('\n', " ");
        return Err(wrong(format!(
            "`base` is {base}, must be a built-in kernel: one of {}",
            kernel_names().join(", ")
        )));
    };
    if depth > kernel_names().len() {
        return Err(wrong(format!("`base` = `{base}`: the bases form a circle")));
    }
    let Ok(text) = built_in(&base) else {
        return Err(wrong(format!(
            "`base` is `{base}`, must be a built-in kernel: one of {}",
            kernel_names().join(", ")
        )));
    };
    let mut merged = with_bases(&built_in_file(&base), text, depth + 1)?;
    merge(&mut merged, table);
    Ok(merged)
}

fn merge(base: &mut Table, over: Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(Value::Table(below)), Value::Table(above)) => merge(below, above),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClusterLimits, QueueKind};

    fn message(text: &str) -> String {
        read("mine", "mine.toml", text).unwrap_err().to_string()
    }

    #[test]
    fn every_built_in_record_loads_and_the_names_ascend() {
        let names = kernel_names();
        let old =
            ["4.17", "5.9", "5.9+rfc2", "5.10", "5.10+rfc2", "5.14", "5.14+cluster", "5.16", "6.0", "6.0+v7", "6.1"];
        let new = ["6.6", "6.7", "6.9", "6.10", "6.12", "6.12+scx", "6.17", "6.18.33", "7.1", "7.1+huddle", "7.2"];
        let new = [&new[..], &["7.2+scx", "7.2-nocache"]].concat();
        assert_eq!(names, [&old[..], &new].concat());
        for name in names {
            let kernel = Kernel::load(&name).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(kernel.name, name);
            assert!(!kernel.title.is_empty(), "{name}");
        }
    }

    #[test]
    fn records_differ_from_their_bases_where_the_releases_do() {
        let load = |name| Kernel::load(name).unwrap();
        let (v5_9, rfc2, v5_10, v6_7) = (load("5.9"), load("5.9+rfc2"), load("5.10"), load("6.7"));
        assert_eq!((v5_9.domains.busy_factor, v5_9.domains.default_imbalance_pct), (32, 125));
        assert_eq!((v5_10.domains.busy_factor, v5_10.domains.default_imbalance_pct), (16, 117));
        assert_eq!((&rfc2.balance, &rfc2.queue), (&v5_9.balance, &v5_9.queue));
        let cl = rfc2.domains.cluster.clone().unwrap();
        assert_eq!((cl.name, cl.flag, cl.x86, cl.limits), ("CL", false, false, ClusterLimits::None));
        let cls = v6_7.domains.cluster.clone().unwrap();
        assert_eq!((cls.name, cls.flag, cls.x86, cls.limits), ("CLS", true, true, ClusterLimits::CutToSmt));
        assert_eq!((v6_7.domains.package_name, v6_7.queue.kind), ("PKG", QueueKind::Eevdf));
        let (plain, cluster) = (load("5.14"), load("5.14+cluster"));
        assert!(plain.domains.cluster.is_none() && cluster.domains.cluster.is_some());
        assert_eq!((&plain.balance, &plain.queue), (&cluster.balance, &cluster.queue));
    }

    #[test]
    fn a_kernel_built_without_cluster_scheduling_has_no_cluster_level() {
        let v6_1 = Kernel::load("6.1").unwrap();
        let with = v6_1.clone().built_with("CONFIG_SMP=y\nCONFIG_SCHED_CLUSTER=y\n");
        assert_eq!(with, v6_1);
        let without = v6_1.built_with("CONFIG_SMP=y\n# CONFIG_SCHED_CLUSTER is not set\n");
        assert_eq!((without.domains.cluster, without.name.as_str()), (None, "6.1 without SCHED_CLUSTER"));
        let v5_10 = Kernel::load("5.10").unwrap();
        assert_eq!(v5_10.clone().built_with("CONFIG_SMP=y\n"), v5_10);
    }

    #[test]
    fn a_release_gets_the_newest_record_that_is_not_newer() {
        for (release, record) in [
            ("4.19.300", "4.17"),
            ("5.9.0", "5.9"),
            ("5.10.0-32-cloud-amd64", "5.10"),
            ("5.15.148", "5.14"),
            ("6.1-rc3", "6.1"),
            ("6.5.13-arch1", "6.1"),
            ("6.8.0-51-generic", "6.7"),
            ("6.12.117+deb13-cloud-amd64", "6.12"),
            ("6.16.12", "6.12"),
            ("6.18.15+deb13-cloud-amd64", "6.17"),
            ("6.18.33", "6.18.33"),
            ("6.18.200-1", "6.18.33"),
            ("6.19.60", "6.17"),
            ("7.0.3", "6.17"),
            ("7.1.3", "7.1"),
            ("7.2.6", "7.2"),
            ("7.3.4+deb13", "7.2"),
            ("12.0.0", "7.2"),
        ] {
            assert_eq!(Kernel::for_release(release).unwrap().name, record, "{release}");
        }
        for release in ["4.9.300", "", "6", "linux-6.1", "v6.1"] {
            let error = Kernel::for_release(release).unwrap_err();
            let line = format!("no kernel record for `{release}`: the oldest is 4.17; name a record");
            assert_eq!(error.to_string(), line);
            assert!(error.is_usage());
        }
    }

    #[test]
    fn unknown_name_is_wrong_usage_and_lists_the_known_ones() {
        let error = Kernel::load("4.4").unwrap_err();
        assert!(error.is_usage());
        assert!(error.to_string().contains("5.9+rfc2, 5.10"), "{error}");
        assert!(!Kernel::load("no/such/record.toml").unwrap_err().is_usage());
    }

    #[test]
    fn unknown_base_is_not_offered_a_path() {
        let known = format!("one of {}", kernel_names().join(", "));
        assert!(
            known.contains("4.17, 5.9, 5.9+rfc2, 5.10, 5.10+rfc2, 5.14, 5.14+cluster, 5.16, 6.0, 6.0+v7, 6.1, "),
            "{known}"
        );
        for (base, found) in [("\"4.4\"", "`4.4`"), ("\"./mine.toml\"", "`./mine.toml`"), ("4.4", "4.4")] {
            let line = message(&format!("base = {base}\n"));
            assert_eq!(line, format!("mine.toml: `base` is {found}, must be a built-in kernel: {known}"));
        }
    }

    #[test]
    fn wrong_records_get_one_line_with_file_key_and_allowed_values() {
        for (text, parts) in [
            (
                "base = \"6.7\"\n[domains]\nbusy_facto = 1\n",
                &["mine.toml: `domains", "busy_facto", "`busy_factor`"][..],
            ),
            ("base = \"6.7\"\n[domains.cluster]\nlimits = \"some\"\n", &["`domains.cluster.limits", "`cut-to-smt`"]),
            ("base = \"6.7\"\n[domains]\npackage_name = \"P\"\n", &["`domains.package_name`", "`DIE` or `PKG`"]),
            ("base = \"6.7\"\nwake_queue = 3\n", &["`wake_queue"]),
            ("base = \"6.7\"\n[domains]\nbusy_factor = -1\n", &["`domains.busy_factor`", "-1"]),
            ("base = \"6.7\"\n[domains]\nbusy_factor = 0\n", &["`domains.busy_factor`", "least is 1"]),
            ("base = \"6.5\"\n", &["`base`", "6.5", "6.7"]),
            ("base = 6\n", &["`base`", "6.7"]),
            ("titel = \"x\"\n", &["titel", "`title`"]),
            ("title = \"x\"\n", &["wake_queue"]),
            ("title = \n", &["line 1"]),
        ] {
            let line = message(text);
            assert!(!line.contains('\n'), "{line:?}");
            for part in parts {
                assert!(line.contains(part), "{line:?} lacks {part:?}");
            }
        }
    }
}
