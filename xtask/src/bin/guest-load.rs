//! The load inside a guest: pairs of threads that wake each other, groups that write to each other, and hogs that never sleep.
//!
//! A group is hackbench's, over pipes: every sender writes 100 bytes to every receiver in turn.
//!
//! A pair is two threads and two pipes. Each thread waits in `read` for the other's message, which carries the sender's CPU, and
//! answers it. A hog spins and notes its CPU every millisecond. The first thread looks at the hogs and collects what the others
//! counted; it waits for none that does not come back.

use std::io::{self, ErrorKind, PipeReader, PipeWriter, Read, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use clap::{ArgGroup, Parser};
use huddle_machine::{CpuId, CpuSet, Partition, Topology, load_topology};
use nix::sched::{sched_getcpu, sched_setaffinity};
use nix::sys::resource::{UsageWho, getrusage};
use nix::unistd::Pid;

use xtask::load::{Load, Spread, Wakeups};

#[derive(Parser)]
#[command(about = "Pairs of threads that wake each other and hogs, and where the scheduler lets them run")]
#[command(group(ArgGroup::new("load").args(["pairs", "groups", "hogs", "offsets"]).required(true).multiple(true)))]
struct Asked {
    /// Pairs of threads that send a message back and forth
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pairs: Option<u64>,
    /// Groups of senders and receivers, as hackbench has them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    groups: Option<u64>,
    /// Senders of a group, and receivers
    #[arg(long, default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    fds: u64,
    /// Print where the kernel's task_struct has these members, bytes, and leave
    #[arg(long, value_name = "MEMBER", num_args = 1.., conflicts_with_all = ["pairs", "groups", "hogs"])]
    offsets: Vec<String>,
    /// Threads that never sleep
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    hogs: Option<u64>,
    /// How long to look at them
    #[arg(long, value_name = "SECONDS", value_parser = seconds, required_unless_present = "offsets")]
    seconds: Option<Duration>,
    /// How long they run before
    #[arg(long, default_value = "1", value_name = "SECONDS", value_parser = seconds)]
    warm_up: Duration,
    /// What each thread of a pair computes before it answers, microseconds
    #[arg(long, default_value_t = 0, value_name = "US")]
    work: u64,
    /// Start the hogs before the pairs
    #[arg(long)]
    hogs_first: bool,
    /// Bind a hog to each CPU of the cluster in which the first pair's answering thread starts
    #[arg(long, requires = "pairs")]
    fill_cluster: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How long threads may take to come back after the end.
const GRACE: Duration = Duration::from_secs(30);
/// How often a hog notes its CPU.
const NOTE: Duration = Duration::from_millis(1);
/// How often the hogs are looked at.
const LOOK: Duration = Duration::from_millis(10);
/// Turns of a spin between two looks at the clock.
const SPINS: u64 = 500;
/// The CPU of a hog that has not run.
const NOWHERE: usize = usize::MAX;

fn main() -> ExitCode {
    let asked = Asked::parse();
    // Threads that did not come back end with the process.
    let done = match asked.offsets.as_slice() {
        [] => run(&asked).and_then(|load| print(&load, asked.json)),
        members => print_offsets(members),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("guest-load: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if duration <= Duration::from_secs(86_400) => Ok(duration),
        _ => Err("give between 0 and 86400 seconds".to_owned()),
    }
}

fn print(load: &Load, json: bool) -> Result<()> {
    let line = if json { serde_json::to_string(load)? } else { load.to_string() };
    writeln!(io::stdout(), "{line}").context("cannot write the result")
}

/// A line of `MEMBER OFFSET` for each.
fn print_offsets(members: &[String]) -> Result<()> {
    let types = std::fs::read("/sys/kernel/btf/vmlinux").context("the kernel does not describe its types")?;
    for member in members {
        let offset = xtask::btf::offset(&types, "task_struct", member)?;
        writeln!(io::stdout(), "{member} {offset}").context("cannot write the result")?;
    }
    Ok(())
}

fn run(asked: &Asked) -> Result<Load> {
    let (_, topology) = load_topology(None)?;
    let shared = Arc::new(Shared::new(asked, &topology)?);
    let mut crew = Crew::new(Arc::clone(&shared));
    let [pairs, hogs] = [asked.pairs, asked.hogs].map(Option::unwrap_or_default);
    if asked.hogs_first {
        crew.start_hogs()?;
    }
    crew.start_pairs(pairs)?;
    let groups = asked.groups.unwrap_or_default();
    for _ in 0..groups {
        crew.start_group(asked.fds)?;
    }
    if asked.fill_cluster {
        crew.fill_cluster(&topology)?;
    }
    if !asked.hogs_first {
        crew.start_hogs()?;
    }
    let mut load = Load {
        pairs,
        groups,
        hogs,
        bound_hogs: shared.filled.get().map_or(0, |filled| filled.len() as u64),
        seconds: asked.seconds.unwrap_or_default().as_secs_f64(),
        clusters: shared.clusters.sets().len() as u64,
        spread: shared.look(),
        ..Load::default()
    };
    crew.collect(&mut load)?;
    Ok(load)
}

/// The kernel's clusters, which hold whole cores and reach no farther than the last-level cache:
/// (cluster mask | SMT mask) & LLC mask.
fn clusters(topology: &Topology) -> Result<Partition> {
    let mask = |cpu| {
        let inner = topology.cluster.set_of(cpu).union(topology.smt.set_of(cpu));
        inner.intersection(topology.llc.set_of(cpu))
    };
    Partition::from_masks(&topology.online, mask)
        .map_err(|cpu| anyhow!("CPU {cpu} is in two clusters; guest-load cannot tell its wake-ups apart"))
}

/// What all threads read.
struct Shared {
    started: Instant,
    /// When the warm-up ends and the end, since the start.
    from: Duration,
    until: Duration,
    work: Duration,
    online: CpuSet,
    clusters: Partition,
    llcs: Partition,
    /// CPUs with a bound hog.
    filled: OnceLock<CpuSet>,
    /// The CPU that each hog noted last.
    hogs: Vec<AtomicUsize>,
}

impl Shared {
    fn new(asked: &Asked, topology: &Topology) -> Result<Shared> {
        Ok(Shared {
            started: Instant::now(),
            from: asked.warm_up,
            until: asked.warm_up + asked.seconds.unwrap_or_default(),
            work: Duration::from_micros(asked.work),
            online: topology.online.clone(),
            clusters: clusters(topology)?,
            llcs: topology.llc.clone(),
            filled: OnceLock::new(),
            hogs: (0..asked.hogs.unwrap_or_default()).map(|_| AtomicUsize::new(NOWHERE)).collect(),
        })
    }

    /// Time since the start.
    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// The CPU that the caller runs on.
    fn cpu(&self) -> Result<CpuId> {
        let cpu = sched_getcpu().context("the kernel does not say on which CPU a thread runs")?;
        let known = cpu < self.online.capacity() && self.online.contains(CpuId::from(cpu));
        ensure!(known, "CPU {cpu} came online during the run; leave the CPUs as they are");
        Ok(CpuId::from(cpu))
    }

    /// Looks at the hogs until the end.
    fn look(&self) -> Spread {
        let mut spread = Spread::default();
        let mut sizes = vec![0; self.clusters.sets().len()];
        loop {
            let now = self.now();
            if now >= self.until {
                return spread;
            }
            let next = if self.hogs.is_empty() { self.until } else { (now + LOOK).min(self.until) };
            if now >= self.from && !self.hogs.is_empty() {
                let cpus = self.hogs.iter().map(|cpu| cpu.load(Ordering::Relaxed));
                count(cpus.filter(|&cpu| cpu != NOWHERE).map(CpuId::from), &self.clusters, &mut sizes, &mut spread);
            }
            thread::sleep(next.saturating_sub(now));
        }
    }
}

/// Adds a look at the hogs on these CPUs. `sizes` has a place for each cluster.
fn count(cpus: impl Iterator<Item = CpuId>, clusters: &Partition, sizes: &mut [u64], spread: &mut Spread) {
    sizes.fill(0);
    for cpu in cpus {
        sizes[clusters.index_of(cpu) as usize] += 1;
    }
    let (least, most) = sizes.iter().fold((u64::MAX, 0), |(least, most), &size| (least.min(size), most.max(size)));
    spread.samples += 1;
    spread.used += sizes.iter().filter(|&&size| size > 0).count() as u64;
    spread.shared += u64::from(most > 1);
    spread.uneven += u64::from(most > least + 1);
}

/// What a thread has counted when it ends.
enum Counted {
    Pair(Pair),
    /// Messages read.
    Receiver(u64),
    Sender,
    Hog {
        cpu_changes: u64,
        cluster_changes: u64,
    },
    Bound,
}

/// The threads.
struct Crew {
    shared: Arc<Shared>,
    number: usize,
    done: mpsc::Sender<Result<Counted>>,
    results: mpsc::Receiver<Result<Counted>>,
    /// Where the first pair starts.
    place: mpsc::Sender<CpuId>,
    places: mpsc::Receiver<CpuId>,
}

impl Crew {
    fn new(shared: Arc<Shared>) -> Crew {
        let (done, results) = mpsc::channel();
        let (place, places) = mpsc::channel();
        Crew { shared, number: 0, done, results, place, places }
    }

    /// Starts a thread; `what` it is for the error.
    fn start(&mut self, what: &str, body: impl FnOnce(&Shared) -> Result<Counted> + Send + 'static) -> Result<()> {
        let (shared, done) = (Arc::clone(&self.shared), self.done.clone());
        let thread = move || {
            // Nobody listens when the run has failed already.
            let _ = done.send(body(&shared));
        };
        let started = thread::Builder::new().name(what.to_owned()).spawn(thread);
        started.with_context(|| format!("cannot start a thread beside {}, a {what}", self.number))?;
        self.number += 1;
        Ok(())
    }

    /// The two threads of a pair one behind the other.
    fn start_pairs(&mut self, pairs: u64) -> Result<()> {
        for pair in 0..pairs {
            let pipes = || io::pipe().with_context(|| format!("no pipes for pair {}", pair + 1));
            let ((to_second, from_first), (to_first, from_second)) = (pipes()?, pipes()?);
            let place = (pair == 0).then(|| self.place.clone());
            self.start("pair", move |shared| End::new(shared, to_first, from_first, None)?.play(true))?;
            self.start("pair", move |shared| End::new(shared, to_second, from_second, place)?.play(false))?;
        }
        Ok(())
    }

    /// The receivers of a group, then its senders.
    fn start_group(&mut self, fds: u64) -> Result<()> {
        let mut writers = Vec::new();
        for _ in 0..fds {
            let (reader, writer) = io::pipe().context("no pipes for a group")?;
            writers.push(writer);
            self.start("receiver", move |shared| receive(shared, reader))?;
        }
        for _ in 0..fds {
            let writers: io::Result<Vec<PipeWriter>> = writers.iter().map(PipeWriter::try_clone).collect();
            let writers = writers.context("no files for the senders of a group")?;
            self.start("sender", move |shared| send_to_all(shared, writers))?;
        }
        Ok(())
    }

    fn start_hogs(&mut self) -> Result<()> {
        for hog in 0..self.shared.hogs.len() {
            self.start("hog", move |shared| run_hog(shared, hog))?;
        }
        Ok(())
    }

    /// A hog on each CPU of the cluster of the first pair.
    fn fill_cluster(&mut self, topology: &Topology) -> Result<()> {
        let left = self.shared.until.saturating_sub(self.shared.now());
        let cpu = self.places.recv_timeout(left).ok().context("the first pair did not start in time")?;
        let filled = self.shared.clusters.set_of(cpu).resized(topology.nr_cpus());
        for cpu in filled.iter() {
            self.start("bound hog", move |shared| run_bound_hog(shared, cpu))?;
        }
        ensure!(self.shared.filled.set(filled).is_ok(), "the cluster is filled twice");
        Ok(())
    }

    /// Adds up what the threads counted.
    fn collect(self, load: &mut Load) -> Result<()> {
        let mut delays = 0_u128;
        for back in 0..self.number {
            let left = (self.shared.until + GRACE).saturating_sub(self.shared.now());
            let counted = self.results.recv_timeout(left).ok().with_context(|| {
                let missing = self.number - back;
                format!("{missing} of {} threads did not come back {} s after the end", self.number, GRACE.as_secs())
            })?;
            match counted? {
                Counted::Pair(pair) => {
                    pair.add_to(load);
                    delays += pair.delays;
                }
                Counted::Hog { cpu_changes, cluster_changes } => {
                    load.spread.cpu_changes += cpu_changes;
                    load.spread.cluster_changes += cluster_changes;
                }
                Counted::Receiver(messages) => load.messages += messages,
                Counted::Sender | Counted::Bound => {}
            }
        }
        load.delay_mean_ns = u64::try_from(delays / u128::from(load.messages.max(1))).unwrap_or(u64::MAX);
        Ok(())
    }
}

/// Bytes of a message of a group.
const GROUP_MESSAGE: usize = 100;

/// Reads until the senders are gone; counts what came after the warm-up.
fn receive(shared: &Shared, mut from: PipeReader) -> Result<Counted> {
    let (mut bytes, mut messages) = ([0; GROUP_MESSAGE], 0);
    loop {
        match from.read_exact(&mut bytes) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(Counted::Receiver(messages)),
            Err(error) => return Err(error).context("a receiver cannot read"),
        }
        let now = shared.now();
        messages += u64::from(now >= shared.from && now < shared.until);
    }
}

/// Writes to each receiver in turn until the end.
fn send_to_all(shared: &Shared, mut to: Vec<PipeWriter>) -> Result<Counted> {
    while shared.now() < shared.until {
        for receiver in &mut to {
            receiver.write_all(&[0; GROUP_MESSAGE]).context("a sender cannot write")?;
        }
    }
    Ok(Counted::Sender)
}

/// What one thread of a pair counted.
#[derive(Default)]
struct Pair {
    messages: u64,
    wakeups: Wakeups,
    /// Added up, ns.
    delays: u128,
    longest: u64,
}

impl Pair {
    fn add_to(&self, load: &mut Load) {
        let (all, own) = (&mut load.wakeups, &self.wakeups);
        load.messages += self.messages;
        load.delay_max_ns = load.delay_max_ns.max(self.longest);
        all.same_cpu += own.same_cpu;
        all.cluster += own.cluster;
        all.llc += own.llc;
        all.farther += own.farther;
        all.moved += own.moved;
        all.on_bound_hogs += own.on_bound_hogs;
    }
}

/// The sender's CPU, and when it began to write, ns since the start.
struct Message {
    cpu: u32,
    sent: u64,
}

impl Message {
    const SIZE: usize = 12;

    fn to_bytes(&self) -> [u8; Message::SIZE] {
        let mut bytes = [0; Message::SIZE];
        bytes[..4].copy_from_slice(&self.cpu.to_ne_bytes());
        bytes[4..].copy_from_slice(&self.sent.to_ne_bytes());
        bytes
    }

    fn from_bytes(bytes: [u8; Message::SIZE]) -> Message {
        let [a, b, c, d, rest @ ..] = bytes;
        Message { cpu: u32::from_ne_bytes([a, b, c, d]), sent: u64::from_ne_bytes(rest) }
    }
}

/// One thread of a pair.
struct End<'a> {
    shared: &'a Shared,
    from: PipeReader,
    to: PipeWriter,
    /// Who wants to know where the first message is read.
    place: Option<mpsc::Sender<CpuId>>,
    /// Where it ran last.
    cpu: CpuId,
    /// How often it has slept.
    sleeps: i64,
    counted: Pair,
}

impl End<'_> {
    fn new(shared: &Shared, from: PipeReader, to: PipeWriter, place: Option<mpsc::Sender<CpuId>>) -> Result<End<'_>> {
        let (cpu, sleeps) = (shared.cpu()?, sleeps()?);
        Ok(End { shared, from, to, place, cpu, sleeps, counted: Pair::default() })
    }

    /// Sends and reads until the end. The pipes it leaves tell the other.
    fn play(mut self, first: bool) -> Result<Counted> {
        if first && !self.send()? {
            return Ok(Counted::Pair(self.counted));
        }
        while self.read()? && self.send()? {}
        Ok(Counted::Pair(self.counted))
    }

    /// Whether there was somebody to send to, and time.
    fn send(&mut self) -> Result<bool> {
        let mut now = self.shared.now();
        let ready = now + self.shared.work;
        while now < ready {
            spin();
            now = self.shared.now();
        }
        if now >= self.shared.until {
            return Ok(false);
        }
        self.cpu = self.shared.cpu()?;
        let message = Message { cpu: self.cpu.0, sent: nanoseconds(now) };
        match self.to.write_all(&message.to_bytes()) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(error).context("a pair cannot write"),
        }
    }

    /// Whether a message came.
    fn read(&mut self) -> Result<bool> {
        let mut bytes = [0; Message::SIZE];
        match self.from.read_exact(&mut bytes) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(false),
            Err(error) => return Err(error).context("a pair cannot read"),
        }
        let now = self.shared.now();
        let (cpu, sleeps) = (self.shared.cpu()?, sleeps()?);
        let message = Message::from_bytes(bytes);
        if let Some(place) = self.place.take() {
            // Nobody asks for it unless a cluster is to be filled.
            let _ = place.send(cpu);
        }
        if now >= self.shared.from && now < self.shared.until {
            let delay = nanoseconds(now).saturating_sub(message.sent);
            self.counted.messages += 1;
            self.counted.delays += u128::from(delay);
            self.counted.longest = self.counted.longest.max(delay);
            // Without a sleep nobody was woken.
            if sleeps != self.sleeps {
                self.count_wakeup(CpuId(message.cpu), cpu);
            }
        }
        (self.cpu, self.sleeps) = (cpu, sleeps);
        Ok(true)
    }

    fn count_wakeup(&mut self, waker: CpuId, cpu: CpuId) {
        let same = |partition: &Partition| partition.index_of(waker) == partition.index_of(cpu);
        let wakeups = &mut self.counted.wakeups;
        let class = if waker == cpu {
            &mut wakeups.same_cpu
        } else if same(&self.shared.clusters) {
            &mut wakeups.cluster
        } else if same(&self.shared.llcs) {
            &mut wakeups.llc
        } else {
            &mut wakeups.farther
        };
        *class += 1;
        wakeups.moved += u64::from(cpu != self.cpu);
        wakeups.on_bound_hogs += u64::from(self.shared.filled.get().is_some_and(|filled| filled.contains(cpu)));
    }
}

/// How often the caller has slept.
fn sleeps() -> Result<i64> {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).context("the kernel does not count a thread's switches")?;
    Ok(usage.voluntary_context_switches())
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Some hundred nanoseconds of computing. Not the processor's hint for spinning: an emulator leaves a CPU that gives it.
fn spin() {
    for turn in 0..SPINS {
        std::hint::black_box(turn);
    }
}

/// Spins until the end and notes its CPU.
fn run_hog(shared: &Shared, hog: usize) -> Result<Counted> {
    let (mut cpu_changes, mut cluster_changes) = (0, 0);
    let mut last = shared.cpu()?;
    loop {
        let now = shared.now();
        let cpu = shared.cpu()?;
        shared.hogs[hog].store(cpu.index(), Ordering::Relaxed);
        if now >= shared.until {
            return Ok(Counted::Hog { cpu_changes, cluster_changes });
        }
        if now >= shared.from && cpu != last {
            cpu_changes += 1;
            let cluster = |cpu| shared.clusters.index_of(cpu);
            cluster_changes += u64::from(cluster(cpu) != cluster(last));
        }
        last = cpu;
        while shared.now() < (now + NOTE).min(shared.until) {
            spin();
        }
    }
}

/// Spins on a CPU until the end.
fn run_bound_hog(shared: &Shared, cpu: CpuId) -> Result<Counted> {
    let mut only = nix::sched::CpuSet::new();
    let bound = only.set(cpu.index()).and_then(|()| sched_setaffinity(Pid::from_raw(0), &only));
    bound.with_context(|| format!("cannot bind a hog to CPU {cpu}"))?;
    while shared.now() < shared.until {
        spin();
    }
    Ok(Counted::Bound)
}

#[cfg(test)]
mod tests {
    use huddle_machine::{Arch, CpuId, CpuSet, Layout, Topology};

    use super::{Message, Spread, clusters, count, seconds};

    fn six_clusters() -> Topology {
        Topology::from_layout(Arch::X86_64, &Layout::new([1, 1, 1, 6, 4, 1])).expect("a layout")
    }

    fn look(cpus: &[u32]) -> Spread {
        let clusters = clusters(&six_clusters()).expect("clusters");
        let mut spread = Spread::default();
        count(cpus.iter().map(|&cpu| CpuId(cpu)), &clusters, &mut [0; 6], &mut spread);
        spread
    }

    fn seen(used: u64, shared: u64, uneven: u64) -> Spread {
        Spread { samples: 1, used, shared, uneven, ..Spread::default() }
    }

    #[test]
    fn six_hogs_in_six_clusters_are_even_and_two_in_one_are_not() {
        assert_eq!(look(&[0, 4, 8, 12, 16, 20]), seen(6, 0, 0));
        assert_eq!(look(&[0, 3, 8, 12, 16, 20]), seen(5, 1, 1));
    }

    #[test]
    fn twelve_hogs_are_even_two_by_two() {
        assert_eq!(look(&[0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21]), seen(6, 1, 0));
        assert_eq!(look(&[0, 1, 2, 5, 8, 9, 12, 13, 16, 17, 20, 21]), seen(6, 1, 1));
    }

    #[test]
    fn four_hogs_in_six_clusters_are_even_and_hogs_that_have_not_run_are_nowhere() {
        assert_eq!(look(&[1, 5, 9, 23]), seen(4, 0, 0));
        assert_eq!(look(&[]), seen(0, 0, 0));
    }

    #[test]
    fn a_cluster_holds_whole_cores_and_ends_at_the_llc() {
        // Cores of two threads without a wider cluster; four CPUs to a cluster that is the LLC.
        for (counts, size) in [([1, 1, 1, 8, 1, 2], 2), ([1, 1, 3, 1, 4, 1], 4), ([1, 1, 1, 4, 2, 2], 4)] {
            let topology = Topology::from_layout(Arch::X86_64, &Layout::new(counts)).expect("a layout");
            let clusters = clusters(&topology).expect("clusters");
            assert!(clusters.sets().iter().all(|set| set.len() == size), "{counts:?}");
        }
        // Stated wider than the LLC, narrower than the core.
        let mut topology = Topology::from_layout(Arch::X86_64, &Layout::new([1, 1, 2, 1, 2, 2])).expect("a layout");
        topology.cluster = topology.package.clone();
        assert_eq!(clusters(&topology).expect("clusters").set_of(CpuId(0)).to_string(), "0-3");
        topology.cluster = huddle_machine::Partition::singletons(&CpuSet::full(8));
        assert_eq!(clusters(&topology).expect("clusters").set_of(CpuId(0)).len(), 2);
    }

    #[test]
    fn a_message_comes_as_it_went() {
        let message = Message::from_bytes(Message { cpu: 300, sent: 1 << 40 }.to_bytes());
        assert_eq!((message.cpu, message.sent), (300, 1 << 40));
    }

    #[test]
    fn seconds_are_a_number_that_time_can_hold() {
        assert!(seconds("0.5").is_ok());
        for wrong in ["-1", "inf", "NaN", "1e9", "a minute"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
