//! Plans into the BPF object, the object into the kernel, counters out of it.

use std::io;
use std::mem::offset_of;
use std::sync::Mutex;

use bytemuck::{Pod, Zeroable};
use huddle_policy::{Plan, Step};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, OpenMapMut, OpenObject, PrintLevel};

use super::kernel::Kernel;
use super::shared::{ALLOW_QUEUED_WAKEUP, ClusterState, Config, Counters, CpuState, ExitRecord, Ops, SWITCH_PARTIAL};
use crate::image::{CLOCK_ORIGIN, FactsImage, Image, ImageError, MaskImage, NR_PLANS, PlanImage, SET_SD_LLC};

/// The scheduler as clang made it of `bpf/main.bpf.c`.
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/huddle.bpf.o"));

/// Which plan places wake-ups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Waker and wakee near each other.
    Gather,
    /// Tasks far apart.
    Spread,
}

impl Mode {
    /// `gather`, `spread`.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Gather => "gather",
            Mode::Spread => "spread",
        }
    }

    /// The mode of that name.
    pub fn of(name: &str) -> Option<Mode> {
        [Mode::Gather, Mode::Spread].into_iter().find(|mode| mode.name() == name)
    }
}

/// What places tasks, compiled for one machine.
#[derive(Clone, Copy, Debug)]
pub struct Plans<'a> {
    /// Wake-ups while gathering.
    pub gather: &'a Plan,
    /// Wake-ups while spreading.
    pub spread: &'a Plan,
    /// New tasks: its `fork` steps.
    pub fork: &'a Plan,
}

/// Times of the queues, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Longest time that a task runs while others wait.
    pub slice_ns: u64,
    /// Shortest.
    pub least_slice_ns: u64,
    /// A waking task takes the CPU of one that is so far ahead of it.
    pub preempt_ns: u64,
    /// A CPU that was busy for so long runs a task that will not sleep soon.
    pub hog_ns: u64,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing { slice_ns: 5_000_000, least_slice_ns: 500_000, preempt_ns: 1_000_000, hog_ns: 4_000_000 }
    }
}

/// Why the scheduler could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A record cannot be expressed in C.
    #[error("{0}")]
    Image(#[from] ImageError),
    /// The plan for new tasks has no fork steps.
    #[error("policy {0} has no `fork` steps; new tasks need some")]
    NoFork(String),
    /// The kernel's type information lacks what the verifier needs for a function.
    #[error(
        "Linux {release} cannot call {function}: its type information (BTF) lacks {function}_impl, a fault of that kernel's build; \
         boot another build"
    )]
    BrokenTypes {
        /// The kernel.
        release: String,
        /// The function.
        function: String,
    },
    /// A function of the kernel that the scheduler needs is not there.
    #[error("Linux {release} has no {function}, which the scheduler needs; boot Linux 6.12 or later with sched_ext")]
    MissingFunction {
        /// The kernel.
        release: String,
        /// The function.
        function: String,
    },
    /// The kernel refused the scheduler for another reason.
    #[error("Linux {release} refuses the scheduler while {what}: {message}")]
    Refused {
        /// The kernel.
        release: String,
        /// `it is loaded`, …
        what: &'static str,
        /// libbpf's or the verifier's last words.
        message: String,
    },
}

/// How a scheduler ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// `enum scx_exit_kind`: 64 … 68 asked for, from 1024 on errors.
    pub kind: u32,
    /// The kernel's reason.
    pub reason: String,
    /// The kernel's message; may be empty.
    pub message: String,
    /// The kernel wants the scheduler to be loaded again: CPUs came or went.
    pub restart: bool,
}

impl Ending {
    /// The kernel ejected the scheduler.
    pub fn is_error(&self) -> bool {
        self.kind >= 1024
    }
}

/// A scheduler in the kernel. Dropping it gives the CPUs back to the kernel's own.
pub struct Scheduler {
    // Before the object: links go first.
    _links: Vec<Link>,
    object: Object,
    release: String,
    nr_cpus: usize,
    mode: Mode,
    /// The LLC's number by CPU, and CPUs by LLC.
    llc_of: Vec<u32>,
    llc_sizes: Vec<u32>,
    keeps_idle_scans: bool,
    busy_before: Vec<u64>,
}

impl Scheduler {
    /// Loads and attaches. `partial`: only tasks of policy SCHED_EXT.
    ///
    /// # Errors
    /// When a record cannot be expressed, and everything for which the kernel may refuse.
    pub fn start(
        kernel: &Kernel,
        plans: &Plans<'_>,
        mode: Mode,
        timing: &Timing,
        partial: bool,
    ) -> Result<Scheduler, LoadError> {
        let release = &kernel.release;
        let image = Image::new(plans.gather, &[plans.spread, plans.fork])?;
        let plan_images = plan_images(plans)?;
        let config = config(plans, &plan_images, &image, timing);
        let refused = |what, error: libbpf_rs::Error| refusal(release, what, &error);
        LAST_WORDS.lock().map(|mut words| words.clear()).ok();
        libbpf_rs::set_print(Some((PrintLevel::Info, keep_words)));
        let mut open = ObjectBuilder::default().open_memory(OBJECT).map_err(|error| refused("it is opened", error))?;
        size(&mut open, &image, &plan_images, &config, kernel, partial)
            .map_err(|error| refused("it is sized", error))?;
        let mut object = open.load().map_err(|error| refused("it is loaded", error))?;
        fill(&object, &image, mode).map_err(|error| refused("its plans are written", error))?;
        let mut links = Vec::new();
        let attach = "it is attached";
        for program in object.progs_mut() {
            if program.name() == "huddle_exec" {
                links.push(program.attach().map_err(|error| refused(attach, error))?);
            }
        }
        for mut map in object.maps_mut() {
            if map.name() == "huddle" {
                links.push(map.attach_struct_ops().map_err(|error| refused(attach, error))?);
            }
        }
        let nr_cpus = image.facts.len();
        let llc_of: Vec<u32> = image.facts.iter().map(|facts| facts.llc_index).collect();
        let mut scheduler = Scheduler {
            _links: links,
            object,
            release: release.clone(),
            nr_cpus,
            mode,
            llc_sizes: llc_sizes(&image),
            llc_of,
            keeps_idle_scans: needs(plans, "nr_idle_scan"),
            busy_before: vec![0; nr_cpus],
        };
        scheduler.set_idle_scans(0)?;
        Ok(scheduler)
    }

    /// The mode.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Changes the mode; wake-ups from here on are placed by it.
    ///
    /// # Errors
    /// When the kernel does not take it.
    pub fn set_mode(&mut self, mode: Mode) -> Result<(), LoadError> {
        write(&self.object, "mode", 0, &(mode as u32)).map_err(|error| self.refused(&error))?;
        self.mode = mode;
        Ok(())
    }

    /// What all CPUs counted since the start.
    ///
    /// # Errors
    /// When the kernel does not show it.
    pub fn counters(&self) -> Result<Counters, LoadError> {
        let mut sum = Counters::new();
        for cpu in 0..self.nr_cpus {
            let state: CpuState = read(&self.object, "cpu_states", cpu as u32).map_err(|error| self.refused(&error))?;
            sum.add(&state.n);
        }
        Ok(sum)
    }

    /// Run time of tasks by CPU, ns.
    ///
    /// # Errors
    /// When the kernel does not show it.
    pub fn busy_ns(&self) -> Result<Vec<u64>, LoadError> {
        let state = |cpu| read::<CpuState>(&self.object, "cpu_states", cpu as u32);
        (0..self.nr_cpus).map(|cpu| Ok(state(cpu).map_err(|error| self.refused(&error))?.n.busy_ns)).collect()
    }

    /// How the scheduler ended, once it has.
    ///
    /// # Errors
    /// When the kernel does not show it.
    pub fn ending(&self) -> Result<Option<Ending>, LoadError> {
        const RESTART: i64 = 1 << 48;
        let record: ExitRecord = read(&self.object, ".data.exit", 0).map_err(|error| self.refused(&error))?;
        if record.kind == 0 {
            return Ok(None);
        }
        let (reason, message) = record.words();
        Ok(Some(Ending { kind: record.kind, reason, message, restart: record.code & RESTART != 0 }))
    }

    /// Renews what the plans' budgets read, after `elapsed_ns` since the last time: `nr_idle_scan` of each LLC from its CPUs' run time.
    ///
    /// # Errors
    /// When the kernel does not take it.
    pub fn set_idle_scans(&mut self, elapsed_ns: u64) -> Result<(), LoadError> {
        if !self.keeps_idle_scans {
            return Ok(());
        }
        let mut busy = vec![0; self.llc_sizes.len()];
        for (cpu, ran) in self.busy_ns()?.into_iter().enumerate() {
            if let Some(sum) = busy.get_mut(self.llc_of[cpu] as usize) {
                *sum += ran.saturating_sub(self.busy_before[cpu]).min(elapsed_ns);
            }
            self.busy_before[cpu] = ran;
        }
        for (llc, (&busy, &size)) in busy.iter().zip(&self.llc_sizes).enumerate() {
            let limit = u64::from(idle_scan(busy, elapsed_ns, size));
            write(&self.object, "idle_scans", llc as u32, &limit).map_err(|error| self.refused(&error))?;
        }
        Ok(())
    }

    fn refused(&self, error: &libbpf_rs::Error) -> LoadError {
        refusal(&self.release, "its state is read or written", error)
    }
}

/// `update_idle_cpu_scan`: how many CPUs of an LLC a search may examine, from their mean utilisation; 117 is the LLC's imbalance_pct.
fn idle_scan(busy_ns: u64, elapsed_ns: u64, size: u32) -> u32 {
    if elapsed_ns == 0 || size == 0 {
        return size;
    }
    let x = (1024 * busy_ns / elapsed_ns / u64::from(size)).min(1024);
    let used = (x * x * 117 * 117 / (10_000 * 1024)).min(1024);
    ((1024 - used) * u64::from(size) / 1024) as u32
}

fn llc_sizes(image: &Image) -> Vec<u32> {
    let mut sizes = Vec::new();
    for facts in &image.facts {
        let llc = facts.llc_index as usize;
        if llc < image.facts.len() {
            sizes.resize(sizes.len().max(llc + 1), 0);
            sizes[llc] = facts.sets[usize::from(SET_SD_LLC)].weight.max(1);
        }
    }
    sizes
}

/// Whether a plan's steps read something of the world.
fn needs(plans: &Plans<'_>, what: &str) -> bool {
    let steps = plans.gather.steps().iter().chain(plans.spread.steps());
    steps.flat_map(Step::inputs).any(|input| input == what)
}

fn plan_images(plans: &Plans<'_>) -> Result<[PlanImage; NR_PLANS], LoadError> {
    let fork = PlanImage::fork(plans.fork).ok_or_else(|| LoadError::NoFork(plans.fork.policy().to_owned()))??;
    Ok([PlanImage::new(plans.gather)?, PlanImage::new(plans.spread)?, fork])
}

fn config(plans: &Plans<'_>, plan_images: &[PlanImage], image: &Image, timing: &Timing) -> Config {
    Config {
        nr_cpus: image.facts.len() as u32,
        nr_clusters: image.clusters.len() as u32,
        used: plan_images.iter().fold(0, |all, plan| all | plan.used),
        needs_task: u32::from(["recent", "waker_keeps_sync"].iter().any(|input| needs(plans, input))),
        slice_ns: timing.slice_ns,
        least_slice_ns: timing.least_slice_ns,
        preempt_ns: timing.preempt_ns,
        hog_ns: timing.hog_ns,
    }
}

/// Gives every map its size, and the constants their values.
fn size(
    open: &mut OpenObject,
    image: &Image,
    plans: &[PlanImage; NR_PLANS],
    config: &Config,
    kernel: &Kernel,
    partial: bool,
) -> libbpf_rs::Result<()> {
    let words = image.facts.len().div_ceil(64);
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        let expected = match name.as_str() {
            "cpu_states" => size_of::<CpuState>(),
            "cluster_states" => size_of::<ClusterState>(),
            "all_facts" => size_of::<FactsImage>(),
            "clusters" => size_of::<MaskImage>(),
            ".data.exit" => size_of::<ExitRecord>(),
            ".rodata.config" => size_of::<Config>(),
            ".data.plans" => size_of::<[PlanImage; NR_PLANS]>(),
            _ => map.value_size() as usize,
        };
        if map.value_size() as usize != expected {
            let message = format!("map {name} has values of {} bytes, not {expected}", map.value_size());
            return Err(libbpf_rs::Error::from(io::Error::other(message)));
        }
        let entries = match name.as_str() {
            "all_facts" | "cpu_states" => image.facts.len(),
            "pool" => image.pool.len(),
            "clusters" | "cluster_states" => image.clusters.len(),
            "idle_scans" => image.facts.len(),
            "waiting_words" => image.clusters.len().div_ceil(64),
            "hog_words" | "sched_idle_words" => words,
            ".rodata.config" => {
                map.set_initial_value(bytemuck::bytes_of(config))?;
                continue;
            }
            ".data.plans" => {
                map.set_initial_value(bytemuck::cast_slice(plans))?;
                continue;
            }
            "huddle" => {
                set_ops(&mut map, kernel, partial)?;
                continue;
            }
            _ => continue,
        };
        map.set_max_entries(entries.max(1) as u32)?;
    }
    Ok(())
}

fn set_ops(map: &mut OpenMapMut<'_>, kernel: &Kernel, partial: bool) -> libbpf_rs::Result<()> {
    let wrong = || libbpf_rs::Error::from(io::Error::other("sched_ext_ops has another size than expected"));
    let value = map.initial_value_mut().ok_or_else(wrong)?;
    if value.len() != size_of::<Ops>() {
        return Err(wrong());
    }
    let mut flags = 0;
    if partial {
        flags |= SWITCH_PARTIAL;
    }
    if kernel.is_at_least(6, 16) {
        flags |= ALLOW_QUEUED_WAKEUP;
    }
    for (byte, more) in value[offset_of!(Ops, flags)..].iter_mut().zip(u64::to_ne_bytes(flags)) {
        *byte |= more;
    }
    value[offset_of!(Ops, hotplug_seq)..][..8].copy_from_slice(&kernel.hotplug_seq.to_ne_bytes());
    Ok(())
}

fn fill(object: &Object, image: &Image, mode: Mode) -> libbpf_rs::Result<()> {
    write_all(object, "all_facts", &image.facts)?;
    write_all(object, "pool", &image.pool)?;
    write_all(object, "clusters", &image.clusters)?;
    let mut begun = ClusterState::zeroed();
    begun.clock = CLOCK_ORIGIN;
    write_all(object, "cluster_states", &vec![begun; image.clusters.len()])?;
    write(object, "mode", 0, &(mode as u32))
}

fn map(object: &Object, name: &str) -> libbpf_rs::Result<MapHandle> {
    let found = object.maps().find(|map| map.name() == name);
    let missing = || libbpf_rs::Error::from(io::Error::other(format!("the scheduler has no map {name}")));
    MapHandle::try_from(&found.ok_or_else(missing)?)
}

fn write_all<T: Pod>(object: &Object, name: &str, values: &[T]) -> libbpf_rs::Result<()> {
    let map = map(object, name)?;
    for (index, value) in values.iter().enumerate() {
        map.update(&(index as u32).to_ne_bytes(), bytemuck::bytes_of(value), MapFlags::ANY)?;
    }
    Ok(())
}

fn write<T: Pod>(object: &Object, name: &str, index: u32, value: &T) -> libbpf_rs::Result<()> {
    map(object, name)?.update(&index.to_ne_bytes(), bytemuck::bytes_of(value), MapFlags::ANY)
}

fn read<T: Pod + Zeroable>(object: &Object, name: &str, index: u32) -> libbpf_rs::Result<T> {
    let bytes = map(object, name)?.lookup(&index.to_ne_bytes(), MapFlags::ANY)?.unwrap_or_default();
    let mut value = T::zeroed();
    let length = bytes.len().min(size_of::<T>());
    bytemuck::bytes_of_mut(&mut value)[..length].copy_from_slice(&bytes[..length]);
    Ok(value)
}

/// What libbpf and the verifier said while a scheduler was loaded, for the reason of a refusal.
static LAST_WORDS: Mutex<String> = Mutex::new(String::new());

fn keep_words(_level: PrintLevel, text: String) {
    if let Ok(mut words) = LAST_WORDS.lock() {
        words.push_str(&text);
    }
}

fn refusal(release: &str, what: &'static str, error: &libbpf_rs::Error) -> LoadError {
    let words = LAST_WORDS.lock().map(|words| words.clone()).unwrap_or_default();
    let between = |from: &str, to: &str| {
        let rest = &words[words.find(from)? + from.len()..];
        Some(rest[..rest.find(to)?].to_owned())
    };
    let release = release.to_owned();
    if let Some(function) = between("cannot find function ", "_impl in BTF") {
        return LoadError::BrokenTypes { release, function };
    }
    if let Some(function) = between("extern (func ksym) '", "': not found") {
        return LoadError::MissingFunction { release, function };
    }
    if let Some(function) = between("extern (func ksym) '", "': func_proto") {
        return LoadError::BrokenTypes { release, function };
    }
    // The verifier's reason stands before its closing lines.
    let closing = ["processed ", "-- END PROG LOAD LOG", "failed to load"];
    let last = words.lines().rev().find(|line| !line.trim().is_empty() && !closing.iter().any(|c| line.contains(c)));
    let message = format!("{error}{}", last.map_or_else(String::new, |line| format!(" ({})", line.trim())));
    LoadError::Refused { release, what, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_scan_follows_the_kernel_on_24_cpus() {
        for (utilisation, limit) in [(0, 24), (128, 23), (256, 21), (512, 15), (640, 11), (768, 5), (850, 1), (870, 0)]
        {
            assert_eq!(idle_scan(24 * utilisation, 1024, 24), limit, "{utilisation}");
        }
    }
}
