//! Cache-aware balancing of 7.2 (SCHED_CACHE; `kernel/sched/fair.c`, `kernel/sched/topology.c`; spec 8): threads of one process share
//! data, so balancing draws them to one LLC, their *preferred* one, while it has room. Wake-ups, fork and exec know nothing of it.
//!
//! A *space* is an address space: a spawned task shares its parent's, exec gives a task one of its own. Per CPU it remembers how long
//! its threads ran lately, by epochs of 10 ms whose weight halves with each. The LLC with the most of that, in shares of its CPUs'
//! time, is preferred.

use huddle_domains::{Domain, DomainId, DomainTree, Flags, GroupId};
use huddle_machine::{CpuId, CpuSet};

use crate::Observer;
use crate::groups::GroupStats;
use crate::report::Mechanism;
use crate::sim::Sim;
use crate::state::{NONE, Run};

/// Epochs after which a preference that nobody has renewed is void (`epoch_affinity_timeout`).
const EPOCHS_VALID: u64 = 5;
/// An LLC is filled up to so many percent of its capacity (`overaggr_pct`); half as much more without SMT.
const FILL_PERCENT: u64 = 50;
/// Percent by which one LLC must be the busier to count as such (`imb_pct`).
const BUSIER_PERCENT: u64 = 20;
/// A CPU's whole time, in shares of it.
const WHOLE: u64 = 1 << 20;

/// Whether a move between LLCs is one that caches ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No opinion.
    Unrestricted,
    /// Against it.
    Forbid,
    /// For it.
    Wanted,
}

/// An address space.
#[derive(Clone, Debug, Default)]
struct Space {
    threads: u32,
    /// By CPU: time that its threads ran, aged up to the epoch beside it. Empty while there is one thread.
    ran: Vec<(u64, u64)>,
    /// The busiest CPU of the preferred LLC.
    cpu: Option<usize>,
    /// When the preference was last looked into, in epochs of the CPU that did.
    epoch: u64,
    /// Not looked into again before that, ns.
    next_scan: u64,
    /// CPUs that run its threads, on average.
    nr_running: i64,
}

/// What a CPU's queue knows.
#[derive(Clone, Copy, Debug, Default)]
struct CpuShare {
    epoch: u64,
    epoch_ends: u64,
    ran: u64,
    /// Queued tasks that are on their preferred LLC.
    nr_preferring: u32,
}

/// State of cache-aware balancing; empty on machines with one LLC, and in kernels without it.
#[derive(Debug, Default)]
pub(crate) struct CacheAware {
    /// Length of an epoch, ns.
    period: u64,
    fill_percent: u64,
    spaces: Vec<Space>,
    cpus: Vec<CpuShare>,
    /// By task: its space, its preferred LLC ([`NONE`] for none), and whether it is counted on its queue.
    space_of: Vec<u32>,
    preferred: Vec<u32>,
    counted: Vec<bool>,
    /// By CPU, by LLC: queued tasks that prefer it (`llc_counts`).
    counts: Vec<u32>,
    nr_llcs: usize,
}

impl CacheAware {
    /// For a machine whose domains hold several LLCs; `None` where there is nothing to choose.
    pub fn new(tree: &DomainTree, tasks: usize, jiffy: u64) -> Option<CacheAware> {
        let several = |cpu: CpuId| {
            let llc = tree.cached[cpu.index()].sd_llc?;
            let above = tree.chain(cpu).any(|id| tree.domain(id).weight > tree.domain(llc).weight);
            (tree.domain(llc).weight > 1 && above).then_some(())
        };
        tree.online.iter().find_map(several)?;
        let mut space_of = vec![NONE; tasks];
        // The first task begins in the first space.
        space_of[..tasks.min(1)].fill(0);
        Some(CacheAware {
            // HZ / 100 jiffies, one at least.
            period: jiffy * (10_000_000 / jiffy).max(1),
            fill_percent: if tree.smt_active { FILL_PERCENT } else { FILL_PERCENT * 3 / 2 },
            spaces: vec![Space { threads: 1, ..Space::default() }],
            cpus: vec![CpuShare::default(); tree.nr_cpus],
            space_of,
            preferred: vec![NONE; tasks],
            counted: vec![false; tasks],
            counts: vec![0; tree.nr_cpus * tree.nr_llcs],
            nr_llcs: tree.nr_llcs,
        })
    }

    fn space(&mut self, task: usize) -> Option<&mut Space> {
        self.spaces.get_mut(*self.space_of.get(task)? as usize)
    }

    /// A thread begins in its parent's space.
    pub fn spawned(&mut self, parent: usize, child: usize) {
        if self.spaces.is_empty() {
            return;
        }
        self.space_of[child] = self.space_of[parent];
        let nr_cpus = self.cpus.len();
        if let Some(space) = self.space(child) {
            space.threads += 1;
            space.ran.resize(nr_cpus, (0, 0));
        }
    }

    /// A task leaves its space.
    pub fn left(&mut self, task: usize) {
        if let Some(space) = self.space(task).filter(|space| space.threads > 0) {
            space.threads -= 1;
        }
    }

    /// A task has a new image, and so a space of its own.
    pub fn executed(&mut self, task: usize) {
        if self.spaces.is_empty() {
            return;
        }
        self.left(task);
        self.space_of[task] = self.spaces.len() as u32;
        self.spaces.push(Space { threads: 1, ..Space::default() });
    }

    fn count(&mut self, c: usize, task: usize, llc: u32) {
        let preferred = self.preferred[task];
        if preferred == NONE || self.counted[task] {
            return;
        }
        self.counted[task] = true;
        self.counts[c * self.nr_llcs + preferred as usize] += 1;
        self.cpus[c].nr_preferring += u32::from(preferred == llc);
    }

    fn uncount(&mut self, c: usize, task: usize, llc: u32) {
        if !std::mem::take(&mut self.counted[task]) {
            return;
        }
        let preferred = self.preferred[task];
        self.counts[c * self.nr_llcs + preferred as usize] -= 1;
        self.cpus[c].nr_preferring -= u32::from(preferred == llc);
    }

    /// Brings a CPU's epoch up to `now` (`__update_mm_sched`).
    fn age_cpu(&mut self, c: usize, now: u64) {
        let cpu = &mut self.cpus[c];
        if now > cpu.epoch_ends {
            let epochs = (now - cpu.epoch_ends).div_ceil(self.period);
            cpu.epoch += epochs;
            cpu.epoch_ends += epochs * self.period;
            cpu.ran = if epochs < 64 { cpu.ran >> epochs } else { 0 };
        }
    }

    /// What a space ran on a CPU lately, that CPU's epoch being up to date.
    fn aged(&mut self, space: usize, c: usize) -> u64 {
        let epoch = self.cpus[c].epoch;
        let Some((ran, at)) = self.spaces[space].ran.get_mut(c) else {
            return 0;
        };
        let epochs = epoch - *at;
        *at = epoch;
        *ran = if epochs < 64 { *ran >> epochs } else { 0 };
        *ran
    }
}

impl<O: Observer> Sim<'_, O> {
    fn llc_of(&self, c: usize) -> u32 {
        self.setup.tree.cached[c].llc_index
    }

    /// A task is queued or runnable again (`account_llc_enqueue`).
    #[inline]
    pub(crate) fn count_preference(&mut self, c: usize, t: usize) {
        if self.tuning.cache_aware {
            let llc = self.llc_of(c);
            self.cache.count(c, t, llc);
        }
    }

    /// A task leaves its queue or falls asleep on it (`account_llc_dequeue`).
    #[inline]
    pub(crate) fn uncount_preference(&mut self, c: usize, t: usize) {
        if self.tuning.cache_aware {
            let llc = self.llc_of(c);
            self.cache.uncount(c, t, llc);
        }
    }

    /// `account_mm_sched`: the running task's time, and what it prefers now.
    pub(crate) fn account_space(&mut self, c: usize, t: usize, ran: u64) {
        let index = self.cache.space_of[t];
        if index == NONE {
            return;
        }
        let space = index as usize;
        self.cache.age_cpu(c, self.now);
        self.cache.aged(space, c);
        if let Some((sum, _)) = self.cache.spaces[space].ran.get_mut(c) {
            *sum += ran;
        }
        self.cache.cpus[c].ran += ran;
        let late = self.cache.cpus[c].epoch.saturating_sub(self.cache.spaces[space].epoch) > EPOCHS_VALID;
        if late || self.crowds_an_llc(space, c) {
            self.cache.spaces[space].cpu = None;
        }
        let preferred = self.cache.spaces[space].cpu.map_or(NONE, |cpu| self.llc_of(cpu));
        if preferred != self.cache.preferred[t] {
            let counted = self.cache.counted[t] || matches!(self.tasks[t].run, Run::Running | Run::Queued);
            self.uncount_preference(c, t);
            self.cache.preferred[t] = preferred;
            if counted {
                self.count_preference(c, t);
            }
        }
    }

    /// `exceed_llc_nr`: one thread has nobody to be with, and more than four fifths of the LLC's cores are too many.
    fn crowds_an_llc(&self, space: usize, c: usize) -> bool {
        let tree = self.setup.tree;
        let space = &self.cache.spaces[space];
        let threads_per_core = tree.span(tree.smt[c]).len() as i64;
        space.threads <= 1 || space.nr_running * threads_per_core * 1280 >= i64::from(tree.cached[c].sd_llc_size) * 1024
    }

    /// `task_tick_cache` and `task_cache_work`: once an epoch a space looks where its threads ran lately.
    pub(crate) fn tick_space(&mut self, c: usize, t: usize) {
        let Some(epoch) = self.cache.cpus.get(c).map(|cpu| cpu.epoch) else {
            return;
        };
        let (now, period) = (self.now, self.cache.period);
        let index = self.cache.space_of[t] as usize;
        let Some(space) = self.cache.spaces.get_mut(index).filter(|space| space.epoch < epoch) else {
            return;
        };
        space.epoch = epoch;
        if now < space.next_scan {
            return;
        }
        space.next_scan = now + period;
        if self.crowds_an_llc(index, c) {
            self.cache.spaces[index].cpu = None;
            return;
        }
        self.choose_llc(index, c);
        let ns = self.costs.balance_cpu * self.setup.tree.online.len() as u64;
        self.steal(c, Mechanism::Balance, ns);
    }

    /// The LLC in which a space's threads had the most of the CPUs' time becomes preferred, if that is more than twice what they had
    /// in the present one.
    fn choose_llc(&mut self, space: usize, c: usize) {
        let tree = self.setup.tree;
        // By LLC: the sum of shares, the greatest of them, and whose it is.
        let mut sums = vec![(0u64, 0u64, 0usize); tree.nr_llcs];
        let mut nr_running = 0;
        for cpu in tree.online.iter().map(CpuId::index) {
            self.cache.age_cpu(cpu, self.now);
            let share = WHOLE * self.cache.aged(space, cpu) / (self.cache.cpus[cpu].ran + 1);
            let (sum, most, at) = &mut sums[tree.cached[cpu].llc_index as usize];
            *sum += share;
            if share > *most {
                (*most, *at) = (share, cpu);
            }
            let curr = self.cpus[cpu].curr;
            nr_running += i64::from(curr != NONE && self.cache.space_of[curr as usize] as usize == space);
        }
        let present = self.cache.spaces[space].cpu.map_or(0, |cpu| sums[self.llc_of(cpu) as usize].0);
        let mut best = (0, 0, 0);
        for &sum in &sums {
            if sum.0 > best.0 {
                best = sum;
            }
        }
        let divisor = i64::from((tree.cached[c].sd_llc_size / 4).clamp(2, 8));
        let space = &mut self.cache.spaces[space];
        if best.0 > 2 * present {
            space.cpu = Some(best.2);
        }
        space.nr_running += (nr_running - space.nr_running) / divisor;
    }

    // ---- what balancing asks ---------------------------------------------------------------------------------------------

    /// `record_sg_llc_stats`: a periodic pass above the LLCs notes how busy each is.
    pub(crate) fn note_llc(&mut self, domain: &Domain, stats: &GroupStats) {
        let tree = self.setup.tree;
        let above = !domain.flags.has(Flags::SHARE_LLC)
            && domain.child.is_some_and(|child| tree.domain(child).flags.has(Flags::SHARE_LLC));
        if let Some(first) = tree.span(tree.group(stats.group).span).first().filter(|_| above) {
            let llc = &mut self.llcs[tree.cached[first.index()].llc_index as usize];
            (llc.util, llc.capacity) = (stats.util, stats.capacity);
        }
    }

    /// Tasks on a group's CPUs in other LLCs that prefer the LLC of `dst`.
    pub(crate) fn nr_preferring(&self, group: GroupId, cpus: &CpuSet, dst: usize) -> u32 {
        let tree = self.setup.tree;
        let others = tree.span(tree.group(group).span).iter().filter(|&cpu| cpus.contains(cpu));
        others.map(|cpu| self.nr_preferring_on(cpu.index(), dst)).sum()
    }

    /// Tasks on a CPU in another LLC that prefer the LLC of `dst`.
    pub(crate) fn nr_preferring_on(&self, c: usize, dst: usize) -> u32 {
        let llc = self.llc_of(dst);
        if self.llc_of(c) == llc { 0 } else { self.cache.counts[c * self.cache.nr_llcs + llc as usize] }
    }

    /// `llc_balance`: a group's tasks would rather be in the LLC of `dst`, and there is room.
    pub(crate) fn is_drawn(&self, id: DomainId, stats: &GroupStats, cpus: &CpuSet, dst: usize) -> bool {
        let tree = self.setup.tree;
        let domain = tree.domain(id);
        if domain.flags.has(Flags::SHARE_LLC) || self.overrules_caches(id) {
            return false;
        }
        let first = tree.span(tree.group(stats.group).span).first().map_or(dst, CpuId::index);
        self.nr_preferring(stats.group, cpus, dst) > 0 && self.llc_verdict(first, dst, 0, true) == Verdict::Wanted
    }

    /// After so many failed attempts caches have no say.
    pub(crate) fn overrules_caches(&self, id: DomainId) -> bool {
        self.domains[id.0 as usize].nr_balance_failed > self.setup.tree.domain(id).cache_nice_tries
    }

    /// `can_migrate_llc`: what moving so much utilisation to, or away from, a preferred LLC would do to both.
    fn llc_verdict(&self, src: usize, dst: usize, util: u64, to_preferred: bool) -> Verdict {
        let (from, to) = (self.llcs[self.llc_of(src) as usize], self.llcs[self.llc_of(dst) as usize]);
        if from.capacity == 0 || to.capacity == 0 {
            return Verdict::Unrestricted;
        }
        let fits = |util: u64, capacity: u64| util * 100 < capacity * self.cache.fill_percent;
        let busier = |a: u64, b: u64| a * 100 > b * (100 + BUSIER_PERCENT);
        let (left, arrived) = (from.util.saturating_sub(util), to.util + util);
        let (source_fits, target_fits) = (fits(left, from.capacity), fits(arrived, to.capacity));
        if !target_fits && !source_fits {
            return Verdict::Unrestricted;
        }
        let forbidden = match to_preferred {
            true => !target_fits && busier(arrived, left),
            false => source_fits || !busier(left, arrived),
        };
        if forbidden { Verdict::Forbid } else { Verdict::Wanted }
    }

    /// `can_migrate_llc_task`.
    fn task_verdict(&self, t: usize, src: usize, dst: usize) -> Verdict {
        let space = self.cache.space_of[t] as usize;
        let Some(cpu) = self.cache.spaces.get(space).and_then(|space| space.cpu) else {
            return Verdict::Unrestricted;
        };
        let (from, to, preferred) = (self.llc_of(src), self.llc_of(dst), self.llc_of(cpu));
        if from == to || (to != preferred && from != preferred) || self.crowds_an_llc(space, dst) {
            return Verdict::Unrestricted;
        }
        self.llc_verdict(src, dst, self.tasks[t].pelt.util_avg, to == preferred)
    }

    /// Whether caches keep a queued task from being moved. A pass that moves tasks to their preferred LLC moves no others.
    pub(crate) fn keeps_for_cache(&self, t: usize, src: usize, dst: usize, drawn: bool) -> bool {
        (drawn && !self.prefers(t, dst)) || self.task_verdict(t, src, dst) == Verdict::Forbid
    }

    /// The LLC of a CPU is the one that a task prefers.
    pub(crate) fn prefers(&self, t: usize, c: usize) -> bool {
        self.cache.preferred[t] == self.llc_of(c)
    }

    /// `alb_break_llc`: the running task is not pushed to another LLC if all tasks of its CPU are where they prefer to be, and it is
    /// alone or caches forbid it.
    pub(crate) fn stays_for_cache(&self, src: usize, dst: usize) -> bool {
        let cpu = &self.cpus[src];
        let runnable = cpu.nr_running - cpu.nr_delayed;
        let preferring = self.cache.cpus[src].nr_preferring;
        if self.llc_of(src) == self.llc_of(dst) || preferring == 0 || preferring != runnable {
            return false;
        }
        let util = if cpu.curr == NONE { 0 } else { self.tasks[cpu.curr as usize].pelt.util_avg };
        runnable <= 1 || self.llc_verdict(src, dst, util, false) == Verdict::Forbid
    }
}

#[cfg(test)]
mod tests {
    use huddle_domains::Kernel;
    use huddle_machine::Machine;

    use super::*;
    use crate::Unobserved;
    use crate::testing::still;

    const MS: u64 = 1_000_000;

    /// Tasks 1 to 3 asleep on CPU 0 of a Kunpeng 920 with four nodes of 24 CPUs, each an LLC, under 7.2.
    fn kunpeng(kernel: &str, source: &str, test: impl FnOnce(&mut Sim<Unobserved>)) {
        let machine = Machine::load(source).unwrap();
        still((&machine, "linux-6.7"), (3, 0), |record| *record = Kernel::load(kernel).unwrap(), test);
    }

    #[test]
    fn kunpeng_has_a_choice_of_llcs_only_with_several_nodes_and_the_feature() {
        for (kernel, source, wanted) in [
            ("7.2", "kunpeng920", true),
            ("7.2", "kunpeng920:nodes=1", false),
            ("7.2-nocache", "kunpeng920", false),
            ("7.1", "kunpeng920", false),
        ] {
            kunpeng(kernel, source, |sim| assert_eq!(sim.tuning.cache_aware, wanted, "{kernel} {source}"));
        }
    }

    #[test]
    fn an_llc_takes_its_tasks_back_while_it_has_room_and_keeps_them_until_it_is_crowded() {
        // Percent of the capacity of the source and the destination, which is full at 75 for want of SMT.
        kunpeng("7.2", "kunpeng920", |sim| {
            for (source, target, to_preferred, wanted) in [
                (10, 60, true, Verdict::Wanted),
                (50, 80, true, Verdict::Forbid),
                (70, 80, true, Verdict::Wanted),
                (80, 90, true, Verdict::Unrestricted),
                (70, 10, false, Verdict::Forbid),
                (90, 50, false, Verdict::Wanted),
                (80, 70, false, Verdict::Forbid),
                (80, 80, false, Verdict::Unrestricted),
            ] {
                (sim.llcs[0].util, sim.llcs[0].capacity) = (source * 10, 1000);
                (sim.llcs[1].util, sim.llcs[1].capacity) = (target * 10, 1000);
                let verdict = sim.llc_verdict(0, 24, 0, to_preferred);
                assert_eq!(verdict, wanted, "{source} {target} {to_preferred}");
            }
            // The task itself counts: 76 and 60 would be 66 and 70.
            (sim.llcs[0].util, sim.llcs[1].util) = (760, 600);
            assert_eq!(sim.llc_verdict(0, 24, 0, false), Verdict::Wanted);
            assert_eq!(sim.llc_verdict(0, 24, 100, false), Verdict::Forbid);
            sim.llcs[1].capacity = 0;
            assert_eq!(sim.llc_verdict(0, 24, 0, false), Verdict::Unrestricted);
        });
    }

    /// Makes tasks 1 to 3 threads of one process.
    fn threads(sim: &mut Sim<Unobserved>) {
        for t in 1..=3 {
            sim.cache.spawned(0, t);
        }
    }

    #[test]
    fn what_threads_ran_counts_half_after_every_epoch() {
        kunpeng("7.2", "kunpeng920", |sim| {
            threads(sim);
            // At 250 Hz an epoch of 10 ms is two jiffies.
            sim.now = 8 * MS;
            sim.account_space(0, 1, 4096);
            assert_eq!(sim.cache.aged(0, 0), 4096);
            sim.now = 8 * MS + 1;
            sim.cache.age_cpu(0, sim.now);
            assert_eq!((sim.cache.aged(0, 0), sim.cache.cpus[0].ran), (2048, 2048));
            sim.now = 32 * MS;
            sim.cache.age_cpu(0, sim.now);
            assert_eq!((sim.cache.aged(0, 0), sim.cache.cpus[0].epoch), (512, 4));
        });
    }

    #[test]
    fn an_llc_is_preferred_when_threads_had_more_than_twice_as_much_of_it() {
        kunpeng("7.2", "kunpeng920", |sim| {
            threads(sim);
            let run = |sim: &mut Sim<Unobserved>, c: usize, own: u64, others: u64| {
                sim.cache.age_cpu(c, sim.now);
                sim.cache.aged(0, c);
                sim.cache.spaces[0].ran[c].0 = own;
                sim.cache.cpus[c].ran = own + others;
            };
            sim.now = 8 * MS;
            run(sim, 0, 1000, 0);
            run(sim, 30, 1000, 1000);
            sim.choose_llc(0, 0);
            assert_eq!(sim.cache.spaces[0].cpu, Some(0));
            // A whole CPU against half of two is even; against two and a half it is too little.
            run(sim, 31, 1000, 1000);
            sim.choose_llc(0, 0);
            assert_eq!(sim.cache.spaces[0].cpu, Some(0));
            run(sim, 32, 4000, 0);
            run(sim, 33, 1000, 0);
            sim.choose_llc(0, 0);
            assert_eq!(sim.cache.spaces[0].cpu, Some(32));
        });
    }

    #[test]
    fn a_lone_thread_and_too_many_threads_prefer_nothing() {
        kunpeng("7.2", "kunpeng920", |sim| {
            assert!(sim.crowds_an_llc(0, 0));
            threads(sim);
            assert!(!sim.crowds_an_llc(0, 0));
            // 19 × 1280 is less than 24 × 1024, 20 × 1280 is not.
            sim.cache.spaces[0].nr_running = 19;
            assert!(!sim.crowds_an_llc(0, 0));
            sim.cache.spaces[0].nr_running = 20;
            assert!(sim.crowds_an_llc(0, 0));
        });
    }

    #[test]
    fn a_preference_is_counted_where_the_task_is_queued_and_void_after_five_epochs() {
        kunpeng("7.2", "kunpeng920", |sim| {
            threads(sim);
            sim.now = 8 * MS;
            sim.cache.spaces[0].cpu = Some(30);
            sim.tasks[1].run = Run::Waking;
            sim.activate_wakeup(1, 0, 0);
            sim.schedule(0, 0);
            sim.account_space(0, 1, 1);
            assert_eq!((sim.nr_preferring_on(0, 24), sim.nr_preferring_on(0, 48)), (1, 0));
            assert!(sim.prefers(1, 47) && !sim.prefers(1, 0) && !sim.stays_for_cache(0, 24));
            sim.now = 60 * MS;
            sim.account_space(0, 1, 1);
            assert_eq!((sim.cache.spaces[0].cpu, sim.nr_preferring_on(0, 24)), (None, 0));
        });
    }

    #[test]
    fn exec_gives_a_task_a_space_of_its_own() {
        kunpeng("7.2", "kunpeng920", |sim| {
            threads(sim);
            assert_eq!(sim.cache.spaces[0].threads, 4);
            sim.cache.executed(2);
            assert_eq!((sim.cache.spaces[0].threads, sim.cache.spaces[1].threads), (3, 1));
            assert!(sim.cache.space_of[2] == 1 && sim.cache.space_of[3] == 0);
        });
    }
}
