//! The queues of Huddle's own scheduler under sched_ext (spec 7; `crates/scx/bpf/main.bpf.c`): one for each cluster,
//! ordered by virtual time; for each CPU one by arrival, from which it runs (its local DSQ), and one for the tasks that
//! are bound to it.
//!
//! ```text
//! woken, forked ── claimed an idle CPU ──► that CPU's local queue
//!               └─ none idle ───────────► queue of the chosen CPU's cluster ◄── slice over, another waits
//! a CPU runs dry ── its bound tasks and its cluster in turn; LLC's other clusters; node's; farther
//!               └─ nothing waits ── its task goes on, or the CPU goes idle
//! slice over, the CPU has not idled for long ── its task moves to a cluster with two such CPUs fewer
//! ```
//!
//! Virtual time: each cluster has a clock. A task keeps its lag, how far it is ahead of the clock (positive) or behind,
//! in nanoseconds of run time at nice 0; a waiting task's virtual time is the clock at its arrival plus the lag. So
//! tasks move between clusters whose clocks differ. The fair class is empty: nothing is balanced.

use std::collections::VecDeque;

use huddle_domains::DomainTree;
use huddle_machine::{CpuId, CpuSet};
use huddle_policy::{Clusters, Placement, Plan, Step, Wakeup};

use crate::Observer;
use crate::balance::scan_budget;
use crate::heap::NEVER;
use crate::pelt::Pelt;
use crate::queue::before;
use crate::report::{Cause, Mechanism, SimError};
use crate::sim::Sim;
use crate::state::{NONE, Run, ipi};

/// A task's slice where nobody waits, ns.
const SLICE_NS: u64 = 5_000_000;
/// The least slice, however many wait, ns.
const LEAST_SLICE_NS: u64 = 500_000;
/// A woken task takes the CPU of one that is farther ahead of it than this, ns of virtual time.
const PREEMPT_NS: i64 = 1_000_000;
/// A CPU that has not idled for longer runs a task that does not end, ns.
const HOG_NS: u64 = 4_000_000;
/// A cluster is idler than another when it has so many busy CPUs fewer.
const IDLER_BY: usize = 2;
/// CPUs of a cluster that a woken task looks at for one to preempt.
const CPUS_LOOKED_AT: usize = 16;
/// Tasks that must wait in a cluster of another node before one of them is taken.
const LEAST_FARTHER: usize = 2;
/// One in so many wake-ups of a CPU is looked after: its promise to sleep if it is sync, and how long the CPU that it claims takes to come.
const LOOKED_AT: u8 = 8;
/// What a promise that is not kept counts for, ns.
const BROKEN_NS: u64 = 1_000_000;

/// All queues, and what the scheduler knows of CPUs and tasks.
pub(crate) struct Queues {
    clusters: Vec<Cluster>,
    cpus: Vec<CpuQueues>,
    accounts: Vec<Account>,
    /// CPUs claimed since they last went idle.
    claimed: CpuSet,
    /// Threads of the cores that are idle as a whole.
    idle_cores: CpuSet,
    /// The clusters of the machine.
    all: Clusters,
}

/// A cluster with its queue.
struct Cluster {
    cpus: CpuSet,
    /// Waiting tasks as (virtual time, task), greatest first.
    waiting: Vec<(u64, u32)>,
    clock: u64,
    /// The queue's lock is held until then.
    lock_free_at: u64,
    /// The CPU that last changed the queue.
    changed_by: u32,
    /// How often it was changed.
    version: u32,
}

/// What a CPU has beside its run queue.
struct CpuQueues {
    /// Its cluster, the clusters of its LLC and of its node.
    cluster: u32,
    llc: Clusters,
    node: Clusters,
    /// Tasks that it runs next, in order of arrival.
    local: VecDeque<u32>,
    /// What the last rotating choice made here fell on.
    rotated: u32,
    /// Waiting tasks that are bound to it as (virtual time, task), greatest first.
    bound: Vec<(u64, u32)>,
    /// The last task taken was one of those.
    bound_turn: bool,
    /// The task that ran last and still could, from the moment the scheduler is called until the switch is done.
    kept: u32,
    /// The CPU that was claimed for it, if it leaves for one, and why.
    kept_goes_to: Option<(usize, Cause)>,
    /// The task that has just changed its program.
    exec: u32,
    /// It was asked to leave its task for a woken one.
    kicked: bool,
    /// Since when it has not idled; [`NEVER`] while it idles.
    busy_since: u64,
    /// Tasks of the CPU that wait in the cluster's queue.
    waiting: u32,
    /// What its next switch owes for queues looked at and changed: lines, waiting for locks, ns.
    owed: (u64, u64),
    /// Its task has promised to sleep, or has broken that promise.
    promise: Promise,
    /// Wake-ups that it made, modulo [`LOOKED_AT`]: the last one is looked after when this is 0.
    wakeups: u8,
    /// When it was claimed for a wake-up that is looked after; [`NEVER`] otherwise.
    claimed_at: u64,
    /// How long a task waits for it to come out of idle, on average, ns; 0: not known.
    idle_wait: u64,
    /// The version of each cluster's queue that it has seen.
    seen: Vec<u32>,
}

/// What a waker's sync hint says: that it is about to sleep.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Promise {
    None,
    /// At this time.
    Given(u64),
    /// It has woken another since.
    Broken,
}

/// What the scheduler knows of a task.
#[derive(Clone)]
struct Account {
    lag: i64,
    /// What is left of its slice, ns.
    slice: u64,
    /// The CPU that it ran on last.
    ran_on: u32,
    /// When it last stopped running.
    stopped_at: u64,
    /// From its sync wake-ups to its sleep, on average, ns; 0: not known.
    sync_ns: u64,
    /// Its present wake-up was placed; it goes to the local queue; its waker has paid for the cluster's queue.
    placed: bool,
    goes_local: bool,
    paid: bool,
}

impl Queues {
    /// No queues: the kernel has the fair class.
    pub(crate) fn none() -> Queues {
        let none = CpuSet::new(0);
        Queues {
            clusters: Vec::new(),
            cpus: Vec::new(),
            accounts: Vec::new(),
            claimed: none.clone(),
            idle_cores: none,
            all: Clusters::default(),
        }
    }

    /// Empty queues for the clusters of a plan and for `tasks` tasks; all CPUs idle.
    pub(crate) fn new(plan: &Plan, tree: &DomainTree, tasks: usize) -> Queues {
        let clusters: Vec<Cluster> = plan.clusters().iter().map(|_| Cluster::new(tree.nr_cpus)).collect();
        let cpu_queues = |cpu: usize| {
            let sets = plan.facts(CpuId::from(cpu)).map(|facts| facts.claim).unwrap_or_default();
            CpuQueues {
                cluster: sets.index,
                llc: sets.llc_clusters,
                node: sets.node_clusters,
                local: VecDeque::new(),
                rotated: 0,
                bound: Vec::new(),
                bound_turn: false,
                kept: NONE,
                kept_goes_to: None,
                exec: NONE,
                kicked: false,
                busy_since: NEVER,
                waiting: 0,
                owed: (0, 0),
                promise: Promise::None,
                wakeups: 0,
                claimed_at: NEVER,
                idle_wait: 0,
                seen: vec![0; clusters.len()],
            }
        };
        let cpus: Vec<CpuQueues> = (0..tree.nr_cpus).map(cpu_queues).collect();
        let account = Account {
            lag: 0,
            slice: 0,
            ran_on: NONE,
            stopped_at: 0,
            sync_ns: 0,
            placed: false,
            goes_local: false,
            paid: false,
        };
        let mut queues = Queues {
            cpus,
            clusters,
            accounts: vec![account; tasks],
            claimed: CpuSet::new(tree.nr_cpus),
            idle_cores: tree.online.clone(),
            all: plan.online_clusters(),
        };
        for (cpu, queue) in queues.cpus.iter().enumerate() {
            queues.clusters[queue.cluster as usize].cpus.insert(CpuId::from(cpu));
        }
        queues
    }

    /// The running task has run for `ns`, `virtual_ns` in virtual time.
    #[inline]
    pub(crate) fn charge(&mut self, t: usize, ns: u64, virtual_ns: u64) {
        let account = &mut self.accounts[t];
        account.lag += virtual_ns as i64;
        account.slice = account.slice.saturating_sub(ns);
    }

    /// The running task has used its slice up.
    pub(crate) fn slice_is_over(&self, t: usize) -> bool {
        self.accounts[t].slice == 0
    }

    /// The CPU was claimed and has not been idle anew since.
    #[inline]
    pub(crate) fn is_claimed(&self, c: usize) -> bool {
        self.claimed.contains(CpuId::from(c))
    }

    /// Threads of wholly idle cores, by word.
    pub(crate) fn idle_core_word(&self, word: usize) -> u64 {
        self.idle_cores.words()[word]
    }

    /// Tasks that wait in the CPU's local queue.
    pub(crate) fn nr_local(&self, c: usize) -> u32 {
        self.cpus[c].local.len() as u32
    }

    /// What the last rotating choice made on CPU `c` fell on.
    pub(crate) fn last_rotated(&self, c: usize) -> CpuId {
        CpuId(self.cpus[c].rotated)
    }

    pub(crate) fn set_last_rotated(&mut self, c: usize, cpu: CpuId) {
        self.cpus[c].rotated = cpu.0;
    }

    /// Takes an idle CPU out of everybody's sight (`scx_idle_test_and_clear_cpu`). False when it is not idle.
    pub(crate) fn claim(&mut self, idle: &mut CpuSet, tree: &DomainTree, cpu: CpuId) -> bool {
        let free = idle.contains(cpu);
        if free {
            idle.remove(cpu);
            self.claimed.insert(cpu);
            self.note_core(idle, tree, cpu.index());
        }
        free
    }

    /// The idle state of a thread has changed: its core's follows.
    pub(crate) fn note_core(&mut self, idle: &CpuSet, tree: &DomainTree, c: usize) {
        let threads = tree.span(tree.smt[c]);
        let whole = threads.iter().all(|thread| idle.contains(thread) || !tree.online.contains(thread));
        for thread in threads.iter() {
            if whole { self.idle_cores.insert(thread) } else { self.idle_cores.remove(thread) }
        }
    }

    /// A wake-up by CPU `c` is about to be placed. Whether the CPU's task sleeps sooner after its sync wake-ups than an idle CPU comes;
    /// any wake-up breaks a promise that is still to be kept.
    pub(crate) fn note_waking(&mut self, c: usize, curr: u32, sync: bool, now: u64) -> bool {
        let queues = &mut self.cpus[c];
        queues.wakeups = (queues.wakeups + 1) % LOOKED_AT;
        if queues.promise != Promise::None {
            queues.promise = Promise::Broken;
        } else if sync && queues.wakeups == 0 {
            queues.promise = Promise::Given(now);
        }
        let waker = self.accounts.get(curr as usize);
        waker.is_some_and(|waker| waker.sync_ns != 0 && waker.sync_ns < queues.idle_wait)
    }

    /// The wake-up by CPU `c` goes straight to another.
    fn note_claim(&mut self, c: usize, cpu: usize, now: u64) {
        if self.cpus[c].wakeups == 0 && cpu != c {
            self.cpus[cpu].claimed_at = now;
        }
    }

    /// The task leaves the CPU, to sleep or preempted.
    pub(crate) fn note_stop(&mut self, c: usize, t: usize, sleeps: bool, now: u64) {
        let account = &mut self.accounts[t];
        account.stopped_at = now;
        match std::mem::replace(&mut self.cpus[c].promise, Promise::None) {
            Promise::None => {}
            Promise::Given(at) if sleeps => average(&mut account.sync_ns, now - at),
            Promise::Given(_) | Promise::Broken => average(&mut account.sync_ns, BROKEN_NS),
        }
    }

    /// The task's lag shrinks by the time that it slept, as far as its cluster's clock went on: the slower the more tasks wait for each of
    /// its CPUs.
    fn settle(&mut self, t: usize, now: u64, nr_cpus: usize, waiting: usize) {
        let account = &mut self.accounts[t];
        let slept = (now - account.stopped_at).min(4 * SLICE_NS);
        account.stopped_at = now;
        account.lag = bounded(account.lag - (slept * nr_cpus as u64 / (nr_cpus + waiting) as u64) as i64);
    }

    /// A task of the CPU waits in its cluster's queue.
    pub(crate) fn waits_for_cluster(&self, c: usize) -> bool {
        self.cpus[c].waiting > 0
    }

    /// A task leaves a queue that the clock of `cluster` orders: its lag now.
    fn take_lag(&mut self, t: u32, vtime: u64, cluster: usize) {
        self.accounts[t as usize].lag = vtime.wrapping_sub(self.clusters[cluster].clock) as i64;
    }

    fn cluster_of(&self, c: usize) -> usize {
        self.cpus[c].cluster as usize
    }
}

impl Cluster {
    fn new(nr_cpus: usize) -> Cluster {
        let cpus = CpuSet::new(nr_cpus);
        Cluster { cpus, waiting: Vec::new(), clock: 0, lock_free_at: 0, changed_by: NONE, version: 0 }
    }

    /// A CPU that comes at `at` changes the queue and holds its lock for `hold`: how long it waits for the lock, ns.
    fn change(&mut self, c: usize, at: u64, hold: u64) -> u64 {
        let wait = self.lock_free_at.saturating_sub(at);
        self.lock_free_at = at + wait + hold;
        self.changed_by = c as u32;
        self.version = self.version.wrapping_add(1);
        wait
    }
}

impl CpuQueues {
    /// The clusters in which the CPU looks for a waiting task, its own first, and how many tasks must wait there.
    fn search_order(&self, all: Clusters) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (own, llc, node) = (self.cluster, self.llc, self.node);
        let in_llc = behind(own, llc).map(|k| (k, 1));
        let in_node = behind(own, node).filter(move |&k| !is_in(k, llc)).map(|k| (k, 1));
        let farther = behind(own, all).filter(move |&k| !is_in(k, llc) && !is_in(k, node)).map(|k| (k, LEAST_FARTHER));
        std::iter::once((own as usize, 1)).chain(in_llc).chain(in_node).chain(farther)
    }
}

/// The clusters of a run behind one of them, with wrap, without it.
fn behind(own: u32, run: Clusters) -> impl Iterator<Item = usize> {
    let end = run.from + run.len;
    (1..run.len).map(move |n| if own + n < end { own + n } else { own + n - run.len } as usize)
}

fn is_in(k: usize, run: Clusters) -> bool {
    (run.from as usize..(run.from + run.len) as usize).contains(&k)
}

fn average(mean: &mut u64, ns: u64) {
    *mean = if *mean == 0 { ns + 1 } else { (3 * *mean + ns) / 4 + 1 };
}

/// A task that slept long is owed no more than a slice, one that ran long alone waits no longer than two.
fn bounded(lag: i64) -> i64 {
    lag.clamp(-(SLICE_NS as i64), 2 * SLICE_NS as i64)
}

/// Puts a task into a queue by virtual time; equal times keep the order of arrival.
fn insert(queue: &mut Vec<(u64, u32)>, vtime: u64, t: u32) {
    let at = queue.partition_point(|&(other, _)| before(vtime, other));
    queue.insert(at, (vtime, t));
}

impl<O: Observer> Sim<'_, O> {
    // ---- joining ---------------------------------------------------------------------------------------------------------

    /// The task will run on the CPU before any that waits in a cluster's queue.
    pub(crate) fn join_local(&mut self, t: usize, c: usize) {
        self.join_cpu(t, c);
        self.dsq.settle(t, self.now, 1, 0);
        self.dsq.accounts[t].slice = SLICE_NS;
        self.dsq.cpus[c].local.push_back(t as u32);
    }

    /// The task waits for the one CPU that it may use.
    fn join_bound(&mut self, t: usize, c: usize) {
        self.join_cpu(t, c);
        self.settle_in_cluster(t, c);
        self.dsq.accounts[t].slice = 2 * LEAST_SLICE_NS;
        let clock = self.dsq.clusters[self.dsq.cluster_of(c)].clock;
        let vtime = clock.wrapping_add_signed(self.dsq.accounts[t].lag);
        insert(&mut self.dsq.cpus[c].bound, vtime, t as u32);
    }

    fn settle_in_cluster(&mut self, t: usize, c: usize) {
        let cluster = &self.dsq.clusters[self.dsq.cluster_of(c)];
        let (nr_cpus, waiting) = (cluster.cpus.len(), cluster.waiting.len());
        self.dsq.settle(t, self.now, nr_cpus, waiting);
    }

    fn join_cpu(&mut self, t: usize, c: usize) {
        self.update_queue(c);
        self.update_task(t);
        self.tasks[t].run = Run::Queued;
        self.count(c, t);
        self.refresh_idle(c);
    }

    fn count(&mut self, c: usize, t: usize) {
        let weight = self.tasks[t].weight;
        let cpu = &mut self.cpus[c];
        cpu.nr_running += 1;
        cpu.load += weight;
    }

    /// The task waits in the queue of its CPU's cluster.
    fn join_cluster(&mut self, t: usize) {
        self.update_task(t);
        self.tasks[t].run = Run::Queued;
        let c = self.tasks[t].cpu as usize;
        self.dsq.cpus[c].waiting += 1;
        self.settle_in_cluster(t, c);
        let cluster = self.dsq.cluster_of(c);
        let cluster = &mut self.dsq.clusters[cluster];
        let account = &mut self.dsq.accounts[t];
        account.slice = (SLICE_NS / (cluster.waiting.len() as u64 + 1)).max(LEAST_SLICE_NS);
        insert(&mut cluster.waiting, cluster.clock.wrapping_add_signed(account.lag), t as u32);
    }

    /// The wake-up of `p` was placed. Whether its CPU was claimed: by the steps, or now, if it idles. Behind a waker
    /// that is about to sleep the task waits on the CPU itself.
    pub(crate) fn note_placed(&mut self, c: usize, p: usize, claimed: Option<CpuId>, placement: &Placement) -> bool {
        let step = self.setup.plan.steps().get(usize::from(placement.step));
        let claimed = self.claimed_or_claim(claimed, placement.cpu);
        if claimed {
            self.dsq.note_claim(c, placement.cpu.index(), self.now);
        }
        let account = &mut self.dsq.accounts[p];
        account.placed = true;
        account.goes_local = claimed || matches!(step, Some(Step::SyncStack | Step::SyncWaker));
        claimed
    }

    /// Whether the chosen CPU is claimed: by the steps, or now, if it idles.
    fn claimed_or_claim(&mut self, claimed: Option<CpuId>, chosen: CpuId) -> bool {
        claimed == Some(chosen) || self.dsq.claim(&mut self.idle, self.setup.tree, chosen)
    }

    /// A woken task joins a queue of `cpu` by the hand of CPU `from`. One that was not placed was still leaving the
    /// CPU: it stays there unless another task runs there.
    pub(crate) fn enqueue_woken(&mut self, p: usize, cpu: usize, from: usize) {
        self.tasks[p].chosen_idle = false;
        if self.tasks[p].cpu as usize != cpu {
            self.change_cpu(p, cpu, Cause::WakeUp);
        }
        self.sample_idle(cpu);
        if from != cpu {
            self.cpus[cpu].dirtied_by = from as u32;
        }
        let account = &mut self.dsq.accounts[p];
        let (placed, goes_local) = (std::mem::take(&mut account.placed), std::mem::take(&mut account.goes_local));
        let alone = !placed && self.cpus[cpu].curr == NONE;
        self.enqueue(p, cpu, from, goes_local || alone);
    }

    fn enqueue(&mut self, p: usize, cpu: usize, from: usize, goes_local: bool) {
        if goes_local {
            self.join_local(p, cpu);
            if self.cpus[cpu].curr == NONE {
                self.kick_idle(from, cpu);
            }
        } else if self.is_bound(p) {
            self.join_bound(p, cpu);
            match self.cpus[cpu].curr {
                NONE => self.kick_idle(from, cpu),
                _ => self.preempt_one_ahead(p, [cpu].into_iter(), from),
            }
        } else {
            if !std::mem::take(&mut self.dsq.accounts[p].paid) {
                self.owe_change(from, self.dsq.cluster_of(cpu));
            }
            self.join_cluster(p);
            if !self.call_idle(p, from) {
                let cluster = &self.dsq.clusters[self.dsq.cluster_of(cpu)];
                let cpus: Vec<usize> = cluster.cpus.scan(CpuId::from(cpu)).map(CpuId::index).collect();
                self.preempt_one_ahead(p, cpus.into_iter().take(CPUS_LOOKED_AT), from);
            }
        }
    }

    /// The task may use one CPU only.
    fn is_bound(&self, t: usize) -> bool {
        self.affinities[self.tasks[t].affinity as usize].len() == 1
    }

    /// An idle CPU of the cluster in which the task waits, if there is one, is to come for it, else one of the LLC.
    fn call_idle(&mut self, t: usize, from: usize) -> bool {
        let cpu = self.tasks[t].cpu as usize;
        let (cluster, llc) = (self.dsq.cluster_of(cpu), self.dsq.cpus[cpu].llc);
        let clusters = std::iter::once(cluster).chain(behind(cluster as u32, llc));
        let Some(cpu) = clusters.filter_map(|cluster| self.claim_in(cluster, t)).next() else { return false };
        self.kick_idle(from, cpu);
        true
    }

    /// Claims the first idle CPU of a cluster that the task may use.
    fn claim_in(&mut self, cluster: usize, t: usize) -> Option<usize> {
        let allowed = &self.affinities[self.tasks[t].affinity as usize];
        let cpus = &self.dsq.clusters[cluster].cpus;
        let behind = CpuId(self.tasks[t].cpu);
        let cpu = cpus.scan(behind).find(|&cpu| self.idle.contains(cpu) && allowed.contains(cpu))?;
        self.dsq.claim(&mut self.idle, self.setup.tree, cpu).then_some(cpu.index())
    }

    /// The CPU of these whose task is farthest ahead of the woken one has to leave it, if that is far enough.
    fn preempt_one_ahead(&mut self, p: usize, cpus: impl Iterator<Item = usize>, from: usize) {
        let mut most = bounded(self.dsq.accounts[p].lag) + PREEMPT_NS;
        let mut victim = None;
        for c in cpus {
            let curr = self.cpus[c].curr;
            let may = self.affinities[self.tasks[p].affinity as usize].contains(CpuId::from(c));
            if curr == NONE || self.dsq.cpus[c].kicked || !may {
                continue;
            }
            self.update_curr(c);
            if self.dsq.accounts[curr as usize].lag > most {
                most = self.dsq.accounts[curr as usize].lag;
                victim = Some((c, curr as usize));
            }
        }
        let Some((c, curr)) = victim else { return };
        self.dsq.cpus[c].kicked = true;
        self.dsq.accounts[curr].slice = 0;
        self.cpus[c].need_resched = true;
        if c != from {
            self.send_ipi(from, c, ipi::RESCHED);
        }
    }

    /// A task that does not run changes its CPU.
    fn change_cpu(&mut self, t: usize, to: usize, cause: Cause) {
        let from = self.tasks[t].cpu as usize;
        let distance = self.dist(from, to);
        self.tasks[t].cpu = to as u32;
        self.counts.migrations[cause as usize][distance] += 1;
        self.observer.migrate(self.now, t as u32, from, to, cause);
    }

    // ---- fork and exec ---------------------------------------------------------------------------------------------------

    /// The child of the task on `c` is placed by the record's fork steps, without any by those of a wake-up, and joins
    /// a queue.
    pub(crate) fn fork_under_scheduler(&mut self, c: usize, child: usize) {
        let task = &mut self.tasks[child];
        (task.cpu, task.recent, task.run) = (c as u32, c as u32, Run::Waking);
        task.pelt = Pelt::new_task(self.now, task.weight, &Pelt::default());
        self.dsq.accounts[child].stopped_at = self.now;
        let (cpu, claimed) = self.place_fork(c, child);
        if cpu != c {
            self.change_cpu(child, cpu, Cause::Fork);
        }
        self.enqueue(child, cpu, c, claimed);
    }

    /// Asks the policy for a CPU; whether it was claimed.
    fn place_fork(&mut self, c: usize, child: usize) -> (usize, bool) {
        let this = CpuId::from(c);
        let wakeup = Wakeup { this, prev: this, sync: false };
        let plan = self.setup.plan;
        let mut scratch = std::mem::take(&mut self.scratch);
        let parent = self.cpus[c].curr;
        let keeps_sync = self.dsq.note_waking(c, parent, false, self.now);
        let mut view = self.view(c, child, Some(parent as usize), keeps_sync);
        let placement = plan.place_fork(&mut view, &wakeup, &mut scratch);
        let placement = placement.unwrap_or_else(|| plan.place(&mut view, &wakeup, &mut scratch));
        let claimed = view.claimed;
        self.scratch = scratch;
        match placement {
            Ok(placement) => (placement.cpu.index(), self.claimed_or_claim(claimed, placement.cpu)),
            Err(undecidable) => {
                let kernel = self.setup.kernel.name.clone();
                self.error = Some(SimError::NotSimulated { kernel, what: undecidable.0 });
                (c, false)
            }
        }
    }

    /// The running task changes its program, its caches being worthless now: it gives its CPU to whoever waits, and
    /// goes where fewer CPUs are busy. False when it stays because it is bound.
    pub(crate) fn exec_under_scheduler(&mut self, c: usize, t: usize) -> bool {
        if self.is_bound(t) {
            return false;
        }
        self.dsq.cpus[c].exec = t as u32;
        self.dsq.accounts[t].slice = 0;
        self.schedule(c, 0);
        true
    }

    // ---- what a CPU runs next --------------------------------------------------------------------------------------------

    /// The running task stays at hand until something else is found.
    pub(crate) fn keep(&mut self, c: usize, t: usize) {
        self.update_queue(c);
        self.update_task(t);
        self.tasks[t].run = Run::Queued;
        self.dsq.cpus[c].kept = t as u32;
    }

    /// What the CPU runs next, and the time that it took to fetch it. A task with slice left goes on. Else the local
    /// queue is asked, then those that wait; the task joins a queue when the switch is done, moves to an idler cluster,
    /// or where nobody else wants the CPU goes on with a new slice.
    pub(crate) fn next_task(&mut self, c: usize) -> (u32, u64) {
        self.dsq.cpus[c].kicked = false;
        let kept = self.dsq.cpus[c].kept;
        if kept != NONE && !self.dsq.slice_is_over(kept as usize) {
            self.dsq.cpus[c].kept = NONE;
            return (kept, 0);
        }
        let (next, ns) = match self.dsq.cpus[c].local.pop_front() {
            Some(next) => (next, 0),
            None => self.take(c),
        };
        if kept == NONE {
            return (next, ns);
        }
        let exec = std::mem::replace(&mut self.dsq.cpus[c].exec, NONE) == kept;
        let idler = match exec || self.is_hogged(c) {
            true => self.claim_idler(c, kept as usize, !exec),
            false => None,
        };
        if next == NONE && idler.is_none() {
            self.dsq.cpus[c].kept = NONE;
            self.dsq.accounts[kept as usize].slice = SLICE_NS;
            return (kept, ns);
        }
        self.dsq.note_stop(c, kept as usize, false, self.now);
        self.forget_load(c, kept as usize);
        let cause = if exec { Cause::Exec } else { Cause::Active };
        self.dsq.cpus[c].kept_goes_to = idler.map(|cpu| (cpu, cause));
        if idler.is_none() && !self.is_bound(kept as usize) {
            self.owe_change(c, self.dsq.cluster_of(c));
        }
        (next, ns)
    }

    /// The switch is done: the task that was kept at hand and did not go on joins a queue.
    pub(crate) fn release_kept(&mut self, c: usize) {
        let kept = std::mem::replace(&mut self.dsq.cpus[c].kept, NONE);
        if kept == NONE {
            return;
        }
        let t = kept as usize;
        if let Some((cpu, cause)) = self.dsq.cpus[c].kept_goes_to.take() {
            self.change_cpu(t, cpu, cause);
            self.join_local(t, cpu);
            self.kick_idle(c, cpu);
        } else if self.is_bound(t) {
            self.join_bound(t, c);
        } else {
            self.join_cluster(t);
            self.call_idle(t, c);
        }
    }

    /// A task waits that the CPU would take if it had nothing to run.
    pub(crate) fn finds_waiting(&self, c: usize) -> bool {
        self.dsq.cpus[c].search_order(self.dsq.all).any(|(k, least)| self.first_for(c, k, least).is_some())
    }

    /// The first task of a cluster's queue that the CPU may run, if at least so many wait there: its place in the
    /// queue.
    fn first_for(&self, c: usize, cluster: usize, least: usize) -> Option<usize> {
        let waiting = &self.dsq.clusters[cluster].waiting;
        let allowed = |t: u32| &self.affinities[self.tasks[t as usize].affinity as usize];
        let first = waiting.iter().rposition(|&(_, t)| allowed(t).contains(CpuId::from(c)));
        first.filter(|_| waiting.len() >= least)
    }

    /// Takes a waiting task, and the time that it took to move it to this CPU; [`NONE`] when there is none. The tasks
    /// bound to the CPU and those of its cluster take turns.
    fn take(&mut self, c: usize) -> (u32, u64) {
        let queues = &mut self.dsq.cpus[c];
        queues.bound_turn = !queues.bound.is_empty() && !queues.bound_turn;
        if queues.bound_turn {
            return self.take_bound(c);
        }
        for (k, least) in self.dsq.cpus[c].search_order(self.dsq.all) {
            self.look(c, k);
            if let Some(at) = self.first_for(c, k, least) {
                return self.take_from(c, k, at);
            }
            if !self.dsq.cpus[c].bound.is_empty() {
                return self.take_bound(c);
            }
        }
        (NONE, 0)
    }

    fn take_bound(&mut self, c: usize) -> (u32, u64) {
        let Some((vtime, t)) = self.dsq.cpus[c].bound.pop() else { return (NONE, 0) };
        self.dsq.take_lag(t, vtime, self.dsq.cluster_of(c));
        (t, 0)
    }

    fn take_from(&mut self, c: usize, cluster: usize, at: usize) -> (u32, u64) {
        let (vtime, t) = self.dsq.clusters[cluster].waiting.remove(at);
        let waited_on = self.tasks[t as usize].cpu as usize;
        self.dsq.cpus[waited_on].waiting -= 1;
        self.dsq.take_lag(t, vtime, cluster);
        self.owe_change(c, cluster);
        self.update_queue(c);
        self.count(c, t as usize);
        if waited_on == c {
            return (t, 0);
        }
        self.change_cpu(t as usize, c, Cause::Queue);
        (t, self.costs.migrate)
    }

    /// For a task that runs on without end, or one that has just changed its program: an idle CPU, claimed, of the
    /// cluster of the LLC with the fewest busy CPUs, if those are fewer enough than its own has.
    fn claim_idler(&mut self, c: usize, t: usize, hogs_only: bool) -> Option<usize> {
        let (own, llc) = (self.dsq.cluster_of(c), self.dsq.cpus[c].llc);
        if self.is_bound(t) || llc.len < 2 {
            return None;
        }
        let is_busy = |cpu: CpuId| match hogs_only {
            true => self.is_hogged(cpu.index()),
            false => !self.idle.contains(cpu),
        };
        let busy = |cluster: usize| self.dsq.clusters[cluster].cpus.iter().filter(|&cpu| is_busy(cpu)).count();
        let here = busy(own);
        let clusters = llc.from as usize..(llc.from + llc.len) as usize;
        let (least, idler) = clusters.map(|cluster| (busy(cluster), cluster)).min()?;
        if least + IDLER_BY <= here { self.claim_in(idler, t) } else { None }
    }

    /// The CPU has run tasks without a break for long.
    fn is_hogged(&self, c: usize) -> bool {
        self.now.saturating_sub(self.dsq.cpus[c].busy_since) > HOG_NS
    }

    /// A task that was taken off the CPU or waited begins to run.
    pub(crate) fn begin_running(&mut self, c: usize, t: usize) {
        let cluster = self.dsq.cluster_of(c);
        let account = &mut self.dsq.accounts[t];
        let ran_on = std::mem::replace(&mut account.ran_on, c as u32);
        let lag = bounded(account.lag);
        account.lag = lag.min(0);
        // The clock never falls behind what it serves.
        let clock = &mut self.dsq.clusters[cluster].clock;
        *clock = clock.wrapping_add_signed(lag.max(0));
        let queues = &mut self.dsq.cpus[c];
        queues.busy_since = queues.busy_since.min(self.now);
        let claimed_at = std::mem::replace(&mut queues.claimed_at, NEVER);
        if claimed_at != NEVER {
            average(&mut queues.idle_wait, self.now - claimed_at);
        }
        if ran_on != NONE && ran_on as usize != c {
            self.tasks[t].refill = self.costs.refill[self.dist(ran_on as usize, c)];
        }
    }

    /// The CPU goes idle and can be claimed anew.
    pub(crate) fn idle_under_scheduler(&mut self, c: usize) {
        self.dsq.claimed.remove(CpuId::from(c));
        self.dsq.cpus[c].busy_since = NEVER;
        self.cpus[c].idle_stamp = self.now.max(1);
    }

    // ---- lines and locks of the clusters' queues -------------------------------------------------------------------------

    /// A CPU reads whether somebody waits in a cluster: a line, if another has changed the queue since.
    fn look(&mut self, c: usize, cluster: usize) {
        let lines = self.queue_line(c, cluster);
        self.dsq.cpus[c].owed.0 += lines;
    }

    /// The line of a cluster's lock and head, fetched by a CPU.
    fn queue_line(&mut self, c: usize, cluster: usize) -> u64 {
        let state = &self.dsq.clusters[cluster];
        let seen = std::mem::replace(&mut self.dsq.cpus[c].seen[cluster], state.version);
        if seen == state.version || state.changed_by == NONE {
            return 0;
        }
        self.costs.line[self.dist(c, state.changed_by as usize)]
    }

    /// A CPU changes a cluster's queue from the time `at` on: the line that it pulls, and the wait for the lock.
    fn change_queue(&mut self, c: usize, cluster: usize, at: u64) -> (u64, u64) {
        let lines = self.queue_line(c, cluster);
        let state = &mut self.dsq.clusters[cluster];
        let wait = state.change(c, at, lines + self.costs.enqueue);
        self.dsq.cpus[c].seen[cluster] = state.version;
        (lines, wait)
    }

    /// A CPU changes a cluster's queue and pays for it with its next switch.
    fn owe_change(&mut self, c: usize, cluster: usize) {
        let (lines, wait) = self.dsq.cpus[c].owed;
        let (more_lines, more_wait) = self.change_queue(c, cluster, self.now + lines + wait);
        self.dsq.cpus[c].owed = (lines + more_lines, wait + more_wait);
    }

    /// What a waker on `c` spends on the queue of the cluster of `cpu`, if the wakee is to wait there: a line, and the
    /// wait for the lock.
    pub(crate) fn pay_queue_of_wakee(&mut self, c: usize, p: usize, cpu: usize, at: u64) -> (u64, u64) {
        if self.dsq.accounts[p].goes_local || self.is_bound(p) {
            return (0, 0);
        }
        self.dsq.accounts[p].paid = true;
        self.change_queue(c, self.dsq.cluster_of(cpu), at)
    }

    /// Lengthens the switch that has just begun by what the CPU owes for queues.
    pub(crate) fn pay_for_queues(&mut self, c: usize) {
        let (lines, wait) = std::mem::take(&mut self.dsq.cpus[c].owed);
        self.prolong(c, Mechanism::SharedData, lines);
        self.prolong(c, Mechanism::LockSpin, wait);
    }

    // ---- the scan budget -------------------------------------------------------------------------------------------------

    /// The budget of searches from the utilisation of each LLC, as `update_idle_cpu_scan` reckons it: no balancing pass
    /// does it here.
    pub(crate) fn refresh_scan_budgets(&mut self) {
        let tree = self.setup.tree;
        let mut util = vec![0; tree.nr_llcs];
        for cpu in tree.online.iter() {
            self.update_queue(cpu.index());
            if let Some(sum) = util.get_mut(tree.cached[cpu.index()].llc_index as usize) {
                *sum += self.cpus[cpu.index()].pelt.util_avg;
            }
        }
        for cpu in tree.online.iter() {
            let cached = &tree.cached[cpu.index()];
            if let Some(id) = cached.sd_llc {
                let (llc, domain) = (cached.llc_index as usize, tree.domain(id));
                let (weight, pct) = (u64::from(domain.weight), u64::from(domain.imbalance_pct));
                self.llcs[llc].nr_idle_scan = scan_budget(util[llc], weight, pct);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use huddle_domains::Kernel;
    use huddle_machine::{Arch, Layout, Topology};
    use huddle_policy::Policy;

    use super::*;

    #[test]
    fn a_queue_by_virtual_time_gives_the_least_first_and_equals_in_the_order_of_arrival() {
        let mut queue = Vec::new();
        for (vtime, task) in [(5, 0), (u64::MAX - 3, 1), (5, 2), (3, 3)] {
            insert(&mut queue, vtime, task);
        }
        let order: Vec<u32> = std::iter::from_fn(|| queue.pop()).map(|(_, task)| task).collect();
        assert_eq!(order, [1, 3, 0, 2]);
    }

    #[test]
    fn a_sleeper_is_owed_a_slice_at_most_and_a_lonely_runner_waits_two() {
        assert_eq!([-6_000_000, -1, 9_999_999, 10_000_001].map(bounded), [-5_000_000, -1, 9_999_999, 10_000_000]);
    }

    #[test]
    fn a_queues_lock_is_waited_for() {
        let mut cluster = Cluster::new(8);
        assert_eq!([cluster.change(1, 100, 30), cluster.change(2, 110, 30), cluster.change(3, 200, 30)], [0, 20, 0]);
        assert_eq!((cluster.changed_by, cluster.version), (3, 3));
    }

    #[test]
    fn clusters_are_searched_from_behind_ones_own_with_wrap_those_of_the_llc_and_the_node_first() {
        // Two nodes of two LLCs of two clusters; the clusters of a node are 0-3 and 4-7.
        let topology = Topology::from_layout(Arch::X86_64, &Layout::new([1, 2, 2, 2, 2, 1])).unwrap();
        let queues = queues(&topology).0;
        let order = |cpu: usize| queues.cpus[cpu].search_order(queues.all).collect::<Vec<_>>();
        let farther = |clusters: [usize; 4]| clusters.map(|k| (k, LEAST_FARTHER));
        assert_eq!(order(6)[..4], [(3, 1), (2, 1), (0, 1), (1, 1)]);
        assert_eq!(order(6)[4..], farther([4, 5, 6, 7]));
        assert_eq!(order(8)[..4], [(4, 1), (5, 1), (6, 1), (7, 1)]);
        assert_eq!(order(8)[4..], farther([0, 1, 2, 3]));
    }

    #[test]
    fn a_claim_hides_a_cpu_and_its_core_from_whole_ones_and_wins_once() {
        // Two clusters of two cores of two threads: cores are 0-1, 2-3 …
        let topology = Topology::from_layout(Arch::X86_64, &Layout::new([1, 1, 1, 2, 2, 2])).unwrap();
        let (mut queues, tree) = queues(&topology);
        let mut idle = tree.online.clone();
        assert!(queues.claim(&mut idle, &tree, CpuId(3)) && !queues.claim(&mut idle, &tree, CpuId(3)));
        assert_eq!((idle.words()[0], queues.idle_core_word(0)), (0b1111_0111, 0b1111_0011));
        assert!(queues.is_claimed(3) && !queues.is_claimed(2));
        idle.insert(CpuId(3));
        queues.note_core(&idle, &tree, 3);
        assert_eq!(queues.idle_core_word(0), 0b1111_1111);
    }

    #[test]
    fn a_waker_keeps_sync_while_it_sleeps_sooner_than_an_idle_cpu_comes() {
        let topology = Topology::from_layout(Arch::X86_64, &Layout::new([1, 1, 1, 1, 2, 1])).unwrap();
        let mut queues = queues(&topology).0;
        // The waker is task 1 on CPU 0; one wake-up in eight is looked after. It sleeps 1 us after each.
        for round in 0..7 {
            assert!(!queues.note_waking(0, 1, true, 0), "round {round}");
            queues.note_stop(0, 1, true, 1_000);
        }
        assert_eq!(queues.accounts[1].sync_ns, 0, "none of seven was looked after");
        queues.note_waking(0, 1, true, 0);
        queues.note_stop(0, 1, true, 1_000);
        assert_eq!(queues.accounts[1].sync_ns, 1_001);
        // How long an idle CPU takes is not known yet; then it is longer, then as long.
        assert!(!queues.note_waking(0, 1, false, 0));
        queues.cpus[0].idle_wait = 1_002;
        assert!(queues.note_waking(0, 1, false, 0));
        queues.cpus[0].idle_wait = 1_001;
        assert!(!queues.note_waking(0, 1, false, 0));
        // A promise broken by another wake-up counts for a millisecond: (3 * 1001 + 1000000) / 4 + 1.
        queues.cpus[0].wakeups = 7;
        queues.note_waking(0, 1, true, 0);
        queues.note_waking(0, 1, true, 0);
        queues.note_stop(0, 1, true, 10);
        assert_eq!(queues.accounts[1].sync_ns, 250_751);
        // So does one that is preempted instead of sleeping: (3 * 250751 + 1000000) / 4 + 1.
        queues.cpus[0].wakeups = 7;
        queues.note_waking(0, 1, true, 0);
        queues.note_stop(0, 1, false, 10);
        assert_eq!(queues.accounts[1].sync_ns, 438_064);
    }

    #[test]
    fn a_sleepers_lag_shrinks_by_the_time_slept_the_less_the_more_wait() {
        let topology = Topology::from_layout(Arch::X86_64, &Layout::new([1, 1, 1, 1, 2, 1])).unwrap();
        let mut queues = queues(&topology).0;
        // Two CPUs, six waiting: its clock runs at a quarter of the time.
        for (waiting, lag) in [(0, 1_000_000), (6, 4_000_000)] {
            (queues.accounts[0].lag, queues.accounts[0].stopped_at) = (5_000_000, 1_000);
            queues.settle(0, 4_001_000, 2, waiting);
            assert_eq!(queues.accounts[0].lag, lag, "{waiting} waiting");
        }
        queues.settle(0, 1_000_000_000, 2, 0);
        assert_eq!(queues.accounts[0].lag, -5_000_000, "no more than a slice is owed");
    }

    fn queues(topology: &Topology) -> (Queues, DomainTree) {
        let tree = huddle_domains::build(topology, &Kernel::load("7.1+huddle").unwrap());
        let plan = Policy::load("huddle-spread").unwrap().compile(&tree, topology);
        (Queues::new(&plan, &tree, 2), tree)
    }
}
