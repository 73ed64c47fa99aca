//! Load balancing of 5.9 … 7.2: periodic, for idle CPUs whose tick is stopped (nohz), and when a CPU is about to idle; with
//! active balance (spec 5; `kernel/sched/fair.c`).

use huddle_domains::{Domain, DomainId, Flags, GroupId, NewidleDice, NumaImbalance};
use huddle_machine::{CpuId, CpuSet};
use rand_core::Rng;

use crate::Observer;
use crate::groups::{GroupKind, GroupStats, adjust_numa_imbalance};
use crate::report::{Cause, Mechanism};
use crate::sim::{FIRST_JIFFY, Sim};
use crate::state::{NONE, Run, ipi};

/// Why a CPU balances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Idle {
    Busy,
    Tickless,
    Newly,
}

/// What is moved, and how much of it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Imbalance {
    Load(u64),
    Util(u64),
    Tasks(u64),
    /// Tasks that prefer the LLC of the CPU that balances (`migrate_llc_task`, 7.2).
    Drawn(u64),
}

impl Imbalance {
    fn amount(self) -> u64 {
        match self {
            Imbalance::Load(amount) | Imbalance::Util(amount) | Imbalance::Tasks(amount) | Imbalance::Drawn(amount) => {
                amount
            }
        }
    }
}

/// One attempt.
pub(crate) struct Attempt {
    domain: DomainId,
    idle: Idle,
    dst: usize,
    pub src: usize,
    pub imbalance: Imbalance,
    /// A task could not move because of its affinity; all could not; another CPU of the local group would do.
    some_pinned: bool,
    all_pinned: bool,
    /// A task stayed for the sake of its cache (7.2).
    kept_for_cache: bool,
    new_dst: Option<usize>,
    /// CPUs still in play.
    cpus: CpuSet,
    examined: u64,
}

impl Attempt {
    /// A source is found, nothing is moved yet.
    pub(crate) fn new(
        domain: DomainId,
        idle: Idle,
        (src, dst): (usize, usize),
        imbalance: Imbalance,
        cpus: &CpuSet,
    ) -> Attempt {
        Attempt {
            domain,
            idle,
            dst,
            src,
            imbalance,
            some_pinned: false,
            all_pinned: false,
            kept_for_cache: false,
            new_dst: None,
            cpus: cpus.clone(),
            examined: 0,
        }
    }
}

/// How an attempt ended.
#[derive(Clone, Copy, Default)]
struct Outcome {
    moved: u64,
    /// Higher domains may be tried.
    go_on: bool,
    ns: u64,
}

/// Tasks moved at most in one attempt (`sysctl_sched_nr_migrate`).
const NR_MIGRATE: u64 = 32;
/// Costs decay by 253/256 once per second.
const COST_DECAY_NS: u64 = 1_000_000_000;
/// An interval never grows beyond this while everything is pinned, ms (`MAX_PINNED_INTERVAL`).
const MAX_PINNED_INTERVAL: u32 = 512;

impl<O: Observer> Sim<'_, O> {
    pub(crate) fn jiffies(&self) -> u64 {
        FIRST_JIFFY + self.now / self.tuning.jiffy
    }

    /// A domain's balance interval in jiffies.
    fn interval(&self, id: DomainId, busy: bool) -> u64 {
        let domain = self.setup.tree.domain(id);
        let mut ms = u64::from(self.domains[id.0 as usize].balance_interval);
        if busy {
            ms *= u64::from(domain.busy_factor);
        }
        let mut jiffies = (ms * 1_000_000).div_ceil(self.tuning.jiffy);
        if busy && self.setup.kernel.balance.busy_minus_jiffy {
            jiffies = jiffies.saturating_sub(1);
        }
        let hz = 1_000_000_000 / self.tuning.jiffy;
        jiffies.clamp(1, (hz * self.setup.tree.online.len() as u64 / 10).max(1))
    }

    // ---- triggers --------------------------------------------------------------------------------------------------------

    /// `trigger_load_balance`: from the tick.
    pub(crate) fn balance_tick(&mut self, c: usize) {
        let jiffies = self.jiffies();
        if self.setup.tree.base[c].is_none() || self.tuning.no_balancing {
            return;
        }
        if jiffies >= self.cpus[c].next_balance {
            let idle = if self.cpus[c].curr == NONE { Idle::Tickless } else { Idle::Busy };
            let ns = self.periodic(c, idle, c);
            self.steal(c, Mechanism::Balance, ns);
        }
        self.nohz_kick(c, jiffies);
    }

    /// `nohz_balancer_kick`: a busy CPU asks an idle one to balance for the idle.
    fn nohz_kick(&mut self, c: usize, jiffies: u64) {
        if jiffies < self.nohz_next_balance || self.cpus[c].curr == NONE {
            return;
        }
        let llc = self.setup.tree.cached[c].llc_index as usize;
        if self.cpus[c].nr_running < 2 && self.llcs[llc].nr_busy <= 1 {
            return;
        }
        let idle = self.nohz.iter().find(|&cpu| cpu.index() != c && self.idle.contains(cpu));
        if let Some(idle) = idle {
            self.nohz_next_balance = jiffies + 1;
            self.send_ipi(c, idle.index(), ipi::NOHZ);
        }
    }

    /// `nohz_idle_balance`: the kicked CPU balances for every idle CPU that is due, itself last. Returns the time.
    pub(crate) fn nohz_balance(&mut self, c: usize) -> u64 {
        let jiffies = self.jiffies();
        let mut next = jiffies + 60 * (1_000_000_000 / self.tuning.jiffy);
        let mut ns = 0;
        let others: Vec<CpuId> = self.nohz.scan(CpuId::from(c + 1)).collect();
        for cpu in others.into_iter().filter(|cpu| cpu.index() != c).chain([CpuId::from(c)]) {
            let other = cpu.index();
            if other != c && !self.idle.contains(cpu) {
                continue;
            }
            if self.cpus[c].nr_running > 0 {
                // `need_resched`: the rest is left to the next kick.
                self.nohz_next_balance = jiffies;
                return ns;
            }
            if jiffies >= self.cpus[other].next_balance {
                ns += self.periodic(other, Idle::Tickless, c);
            }
            next = next.min(self.cpus[other].next_balance);
        }
        self.nohz_next_balance = next;
        ns
    }

    /// `rebalance_domains`: tries every domain that is due. Returns the time spent.
    fn periodic(&mut self, c: usize, idle: Idle, by: usize) -> u64 {
        let jiffies = self.jiffies();
        let hz = 1_000_000_000 / self.tuning.jiffy;
        let mut busy = idle == Idle::Busy;
        let (mut next, mut go_on, mut idle) = (jiffies + 60 * hz, true, idle);
        let (mut max_cost, mut decayed, mut ns) = (0, false, 0);
        let chain: Vec<DomainId> = self.setup.tree.chain(CpuId::from(c)).collect();
        for id in chain {
            let now = self.now;
            let state = &mut self.domains[id.0 as usize];
            let decays = now > state.decayed + COST_DECAY_NS;
            if decays {
                state.max_newidle_lb_cost = state.max_newidle_lb_cost * 253 / 256;
                state.decayed = now;
            }
            decayed = decays || (decayed && !self.setup.kernel.balance.newidle_cost_waits);
            max_cost += state.max_newidle_lb_cost;
            if !go_on {
                if decayed {
                    continue;
                }
                break;
            }
            if jiffies >= self.domains[id.0 as usize].last_balance + self.interval(id, busy) {
                let outcome = self.balance(c, id, idle, by);
                ns += outcome.ns;
                go_on = outcome.go_on;
                if outcome.moved > 0 {
                    idle = if self.cpus[c].nr_running == 0 { Idle::Tickless } else { Idle::Busy };
                    busy = idle == Idle::Busy;
                }
                self.domains[id.0 as usize].last_balance = jiffies;
            }
            next = next.min(self.domains[id.0 as usize].last_balance + self.interval(id, busy));
        }
        if decayed {
            self.cpus[c].max_idle_balance_cost = self.tuning.migration_cost.max(max_cost);
        }
        self.cpus[c].next_balance = next;
        ns
    }

    /// `newidle_balance`: the CPU has nothing to run. Returns the time spent; what was pulled is queued.
    pub(crate) fn newidle_balance(&mut self, c: usize) -> u64 {
        let tree = self.setup.tree;
        let bails = self.setup.kernel.balance.newidle_bails_on_pending;
        if bails && !self.cpus[c].wake_list.is_empty() {
            return 0;
        }
        self.cpus[c].idle_stamp = self.now.max(1);
        let Some(lowest) = tree.base[c].filter(|_| !self.tuning.no_balancing) else {
            return 0;
        };
        let average = self.cpus[c].avg_idle;
        let gate = match self.setup.kernel.balance.newidle_fixed_gate {
            true => self.tuning.migration_cost,
            false => self.domains[lowest.0 as usize].max_newidle_lb_cost,
        };
        if !self.overloaded || average < gate {
            self.pull_in_next_balance(c, lowest);
            return 0;
        }
        let (mut cost, mut pulled) = (0, 0);
        let chain: Vec<DomainId> = tree.chain(CpuId::from(c)).collect();
        for id in chain {
            let state = self.domains[id.0 as usize];
            if average < cost + state.max_newidle_lb_cost {
                self.pull_in_next_balance(c, id);
                break;
            }
            if tree.domain(id).flags.has(Flags::BALANCE_NEWIDLE) {
                let Some(weight) = self.throw_dice(id) else {
                    self.pull_in_next_balance(c, id);
                    continue;
                };
                let outcome = self.balance(c, id, Idle::Newly, c);
                self.note_newidle_cost(id, outcome.ns);
                cost += outcome.ns;
                pulled = outcome.moved;
                self.rate_newidle(id, if pulled > 0 { weight } else { 0 });
            }
            self.pull_in_next_balance(c, id);
            if pulled > 0 || self.cpus[c].nr_running > 0 {
                break;
            }
        }
        let cpu = &mut self.cpus[c];
        cpu.max_idle_balance_cost = cpu.max_idle_balance_cost.max(cost);
        if cpu.nr_running > 0 {
            cpu.idle_stamp = 0;
        }
        cost
    }

    /// Whether a new-idle attempt at a level is made, and how much it counts then: as many as were left out for it (NI_RANDOM).
    fn throw_dice(&mut self, id: DomainId) -> Option<u32> {
        let dice = self.setup.kernel.balance.newidle_dice;
        let ratio = self.domains[id.0 as usize].newidle_ratio;
        if dice == NewidleDice::Never || (dice == NewidleDice::BySuccessAndRate && ratio >= 1024) {
            return Some(1);
        }
        let weight = 1 + ratio;
        if (self.rng.next_u64() % 1024) as u32 > weight {
            self.rate_newidle(id, 0);
            return None;
        }
        Some((1024 + weight / 2) / weight)
    }

    /// `update_newidle_stats`: the share of attempts that pull, and with NI_RATE the more the rarer they are.
    fn rate_newidle(&mut self, id: DomainId, success: u32) {
        let dice = self.setup.kernel.balance.newidle_dice;
        if dice == NewidleDice::Never {
            return;
        }
        let now = self.now;
        let state = &mut self.domains[id.0 as usize];
        state.newidle_calls += 1;
        state.newidle_success += success;
        if state.newidle_calls < 1024 {
            return;
        }
        let rare = if dice == NewidleDice::BySuccessAndRate { (now - state.newidle_rated) >> 22 } else { 0 };
        state.newidle_rated = now;
        state.newidle_ratio = (rare + u64::from(state.newidle_success)).min(1024) as u32;
        state.newidle_calls /= 2;
        state.newidle_success /= 2;
    }

    /// `update_newidle_cost`: the greatest cost of a new-idle attempt at a level.
    fn note_newidle_cost(&mut self, id: DomainId, ns: u64) {
        let now = self.now;
        let state = &mut self.domains[id.0 as usize];
        if ns > state.max_newidle_lb_cost {
            state.max_newidle_lb_cost = ns;
            if self.setup.kernel.balance.newidle_cost_waits {
                state.decayed = now;
            }
        }
    }

    /// `update_next_balance`: an idling CPU balances by its idle interval, not its busy one.
    fn pull_in_next_balance(&mut self, c: usize, id: DomainId) {
        let next = self.domains[id.0 as usize].last_balance + self.interval(id, false);
        let cpu = &mut self.cpus[c];
        cpu.next_balance = cpu.next_balance.min(next);
    }

    // ---- one attempt -----------------------------------------------------------------------------------------------------

    /// `load_balance`: pulls from the busiest queue of the busiest group of a domain of `c`, by the hand of CPU `by`.
    fn balance(&mut self, c: usize, id: DomainId, idle: Idle, by: usize) -> Outcome {
        let tree = self.setup.tree;
        let domain = tree.domain(id);
        let mut outcome = Outcome { go_on: true, ns: self.costs.balance_pass, ..Outcome::default() };
        if !self.should_balance(c, domain, idle) {
            outcome.go_on = false;
            self.balanced(id, idle, false);
            return outcome;
        }
        let mut cpus = tree.span(domain.span).clone();
        let mut dst = c;
        loop {
            let attempt = self.find_work(c, dst, id, idle, &cpus);
            outcome.ns += self.costs.balance_cpu * u64::from(domain.weight);
            let Some(mut attempt) = attempt else {
                self.balanced(id, idle, false);
                return outcome;
            };
            if self.cpus[attempt.src].nr_running > 1 {
                attempt.all_pinned = true;
                outcome.moved += self.detach(&mut attempt, by);
                outcome.ns += attempt.examined * self.costs.balance_cpu + outcome.moved * self.costs.migrate;
                if let Some(new) = attempt.new_dst.filter(|_| attempt.imbalance.amount() > 0) {
                    // DST_PINNED: another CPU of the local group takes over, this one is out.
                    cpus.remove(CpuId::from(dst));
                    dst = new;
                    continue;
                }
                if attempt.some_pinned && attempt.imbalance.amount() > 0 {
                    self.mark_parent(id, true);
                }
                if attempt.all_pinned {
                    cpus.remove(CpuId::from(attempt.src));
                    let local = self.span(tree.first_group(id).span);
                    if !cpus.is_subset(local) {
                        continue;
                    }
                    self.balanced(id, idle, true);
                    return outcome;
                }
            }
            self.after_attempt(&attempt, &mut outcome);
            return outcome;
        }
    }

    /// Bookkeeping once a source queue was tried: counters, interval, active balance.
    fn after_attempt(&mut self, attempt: &Attempt, outcome: &mut Outcome) {
        let domain = self.setup.tree.domain(attempt.domain);
        let profile = &self.setup.kernel.balance;
        let index = attempt.domain.0 as usize;
        let mut active = false;
        if outcome.moved > 0 {
            self.domains[index].nr_balance_failed = 0;
        } else {
            if attempt.idle != Idle::Newly && !attempt.kept_for_cache {
                self.domains[index].nr_balance_failed += 1;
            }
            if self.needs_active_balance(attempt) {
                let running = self.cpus[attempt.src].curr;
                if running == NONE || !self.allowed(running as usize, attempt.dst) {
                    return self.double_interval(attempt.domain, attempt.idle, MAX_PINNED_INTERVAL);
                }
                if !self.cpus[attempt.src].active_balance && self.cpus[attempt.src].push_to == NONE {
                    self.cpus[attempt.src].active_balance = true;
                    self.cpus[attempt.src].push_to = attempt.dst as u32;
                    self.cpus[attempt.src].push_preferring = matches!(attempt.imbalance, Imbalance::Drawn(_));
                    self.send_ipi(attempt.dst, attempt.src, ipi::PUSH);
                    active = true;
                }
                if !profile.active_flag {
                    self.domains[index].nr_balance_failed = domain.cache_nice_tries + 1;
                }
            }
        }
        if active && !profile.active_flag {
            self.double_interval(attempt.domain, attempt.idle, domain.max_interval);
        } else {
            self.domains[index].balance_interval = domain.min_interval;
        }
    }

    /// `need_active_balance`: nothing moved, so the running task is to be pushed.
    fn needs_active_balance(&self, attempt: &Attempt) -> bool {
        if self.tuning.cache_aware && self.stays_for_cache(attempt.src, attempt.dst) {
            return false;
        }
        let tries = self.setup.tree.domain(attempt.domain).cache_nice_tries;
        let tired = self.domains[attempt.domain.0 as usize].nr_balance_failed > tries + 2;
        match attempt.imbalance {
            Imbalance::Drawn(_) => true,
            Imbalance::Tasks(_) => tired,
            _ => tired && !self.setup.kernel.balance.active_only_for_task,
        }
    }

    /// The end of an attempt that found nothing to do.
    fn balanced(&mut self, id: DomainId, idle: Idle, all_pinned: bool) {
        if !all_pinned {
            self.mark_parent(id, false);
        }
        self.domains[id.0 as usize].nr_balance_failed = 0;
        let domain = self.setup.tree.domain(id);
        let limit = if all_pinned { MAX_PINNED_INTERVAL } else { domain.max_interval };
        self.double_interval(id, idle, limit);
    }

    fn double_interval(&mut self, id: DomainId, idle: Idle, limit: u32) {
        let state = &mut self.domains[id.0 as usize];
        if idle != Idle::Newly && state.balance_interval < limit {
            state.balance_interval *= 2;
        }
    }

    /// Sets or clears the mark of the parent's first group that affinity kept tasks from moving.
    fn mark_parent(&mut self, id: DomainId, imbalanced: bool) {
        let tree = self.setup.tree;
        if let Some(parent) = tree.domain(id).parent
            && let Some(group) = tree.groups_of(parent).next()
        {
            self.imbalanced[tree.group(group).capacity_id as usize] = imbalanced;
        }
    }

    /// `should_we_balance`: one CPU of the local group does the work, the first idle one. From 6.6 on the first whose core idles as
    /// a whole goes before it.
    fn should_balance(&self, c: usize, domain: &Domain, idle: Idle) -> bool {
        if idle == Idle::Newly {
            let pending = self.cpus[c].nr_running > 0 || !self.cpus[c].wake_list.is_empty();
            return !(self.setup.kernel.balance.newidle_bails_on_pending && pending);
        }
        let tree = self.setup.tree;
        let list = &tree.group_lists[domain.group_list as usize];
        let mask = tree.span(tree.group(list[domain.first_group as usize]).balance_mask);
        let idle = |cpu: &CpuId| self.idle.contains(*cpu);
        let whole_core_idle = |cpu: &CpuId| idle(cpu) && tree.span(tree.smt[cpu.index()]).is_subset(&self.idle);
        let elected = if self.setup.kernel.balance.smt_balance { mask.iter().find(whole_core_idle) } else { None };
        elected.or_else(|| mask.iter().find(idle)).or_else(|| mask.first()) == Some(CpuId::from(c))
    }

    /// `find_busiest_group` and `find_busiest_queue`.
    fn find_work(&mut self, c: usize, dst: usize, id: DomainId, idle: Idle, cpus: &CpuSet) -> Option<Attempt> {
        if self.tuning.by_load {
            return self.find_work_by_load(c, dst, id, idle, cpus);
        }
        let tree = self.setup.tree;
        let domain = tree.domain(id);
        let pct = u64::from(domain.imbalance_pct);
        let mut local: Option<GroupStats> = None;
        let mut busiest: Option<GroupStats> = None;
        let (mut total_load, mut total_capacity, mut total_util) = (0, 0, 0);
        let mut overload = false;
        let groups: Vec<GroupId> = tree.groups_of(id).collect();
        for group in groups {
            let mut stats = self.group_stats(group, Some(cpus), pct, None, idle != Idle::Newly);
            total_load += stats.load;
            total_capacity += stats.capacity;
            total_util += stats.util;
            if self.tuning.cache_aware && idle != Idle::Newly {
                self.note_llc(domain, &stats);
            }
            let span = self.span(tree.group(group).span);
            overload |= stats.nr > 1 && span.iter().any(|cpu| self.cpus[cpu.index()].nr_running > 1);
            if span.contains(CpuId::from(c)) {
                local = Some(stats);
                continue;
            }
            if self.tuning.cache_aware && stats.kind < GroupKind::Drawn && self.is_drawn(id, &stats, cpus, dst) {
                stats.kind = GroupKind::Drawn;
            }
            if idle != Idle::Busy && self.crowds_a_core(&stats) {
                stats.kind = stats.kind.max(GroupKind::SmtBalance);
            }
            if self.busier(&stats, busiest.as_ref(), cpus, dst) {
                busiest = Some(stats);
            }
        }
        if domain.parent.is_none() {
            self.overloaded = overload;
        }
        self.update_scan_budget(c, domain, idle, total_util);
        let (mut local, busiest) = (local?, busiest?);
        let average = total_load * 1024 / total_capacity.max(1);
        let prefer_sibling = match self.setup.kernel.balance.sibling_by_cores {
            true => tree.group(busiest.group).flags.has(Flags::PREFER_SIBLING),
            false => domain.child.is_some_and(|child| tree.domain(child).flags.has(Flags::PREFER_SIBLING)),
        };
        if !self.worth_it(&local, &busiest, average, pct, prefer_sibling, idle) {
            return None;
        }
        let imbalance = self.amount(&mut local, &busiest, average, domain, prefer_sibling, idle);
        if imbalance.amount() == 0 {
            return None;
        }
        let src = self.busiest_queue(&busiest, imbalance, cpus, dst)?;
        Some(Attempt::new(id, idle, (src, dst), imbalance, cpus))
    }

    /// `update_idle_cpu_scan` (6.0 on): the budget of the next idle searches.
    fn update_scan_budget(&mut self, c: usize, domain: &Domain, idle: Idle, util: u64) {
        let cached = &self.setup.tree.cached[c];
        if idle == Idle::Newly || domain.weight != cached.sd_llc_size || !domain.flags.has(Flags::SHARE_LLC) {
            return;
        }
        let (weight, pct) = (u64::from(domain.weight), u64::from(domain.imbalance_pct));
        self.llcs[cached.llc_index as usize].nr_idle_scan = scan_budget(util, weight, pct);
    }

    /// `update_sd_pick_busiest`.
    fn busier(&self, stats: &GroupStats, best: Option<&GroupStats>, cpus: &CpuSet, dst: usize) -> bool {
        if stats.runnable_nr == 0 {
            return false;
        }
        let Some(best) = best else {
            return true;
        };
        if stats.kind != best.kind {
            return stats.kind > best.kind;
        }
        match stats.kind {
            GroupKind::Overloaded => stats.avg_load > best.avg_load,
            GroupKind::Imbalanced => false,
            GroupKind::Drawn => self.nr_preferring(stats.group, cpus, dst) > self.nr_preferring(best.group, cpus, dst),
            GroupKind::SmtBalance if stats.idle > 0 || best.idle > 0 => self.less_spare(stats, best),
            GroupKind::SmtBalance | GroupKind::FullyBusy if !self.setup.kernel.balance.smt_balance => {
                stats.avg_load > best.avg_load
            }
            // Of equal groups the last, but none in place of the threads of a core.
            GroupKind::SmtBalance | GroupKind::FullyBusy => {
                stats.avg_load > best.avg_load || (stats.avg_load == best.avg_load && !self.is_core(best))
            }
            GroupKind::HasSpare => self.less_spare(stats, best),
        }
    }

    /// Which of two groups with idle CPUs is the busier. From 6.6 on a group of other than threads goes before the threads of a core,
    /// unless these are more than one task.
    fn less_spare(&self, stats: &GroupStats, best: &GroupStats) -> bool {
        if self.setup.kernel.balance.smt_balance && self.is_core(stats) != self.is_core(best) {
            return !self.is_core(stats) || stats.runnable_nr > 1;
        }
        stats.idle < best.idle || (stats.idle == best.idle && stats.nr > best.nr)
    }

    /// The group is the threads of one core.
    fn is_core(&self, stats: &GroupStats) -> bool {
        self.setup.tree.group(stats.group).flags.has(Flags::SHARE_CPUCAPACITY)
    }

    /// `smt_balance` (6.6 on): a core whose threads have several tasks, for an idle CPU to relieve.
    fn crowds_a_core(&self, stats: &GroupStats) -> bool {
        self.setup.kernel.balance.smt_balance && stats.runnable_nr > 1 && self.is_core(stats)
    }

    /// `sibling_imbalance`: tasks that the busiest group has more than the local one. From 6.6 on only an idle CPU asks, and tasks
    /// are counted by core.
    fn sibling_imbalance(&self, local: &GroupStats, busiest: &GroupStats, idle: Idle) -> u64 {
        let (busiest_nr, local_nr) = (u64::from(busiest.nr), u64::from(local.nr));
        if !self.setup.kernel.balance.sibling_by_cores {
            return busiest_nr.saturating_sub(local_nr);
        }
        if idle == Idle::Busy {
            return 0;
        }
        let cores = |stats: &GroupStats| u64::from(self.setup.tree.group(stats.group).cores);
        imbalance_by_cores((busiest_nr, cores(busiest)), (local_nr, cores(local)))
    }

    /// The decisions of `find_busiest_group`.
    fn worth_it(
        &self,
        local: &GroupStats,
        busiest: &GroupStats,
        average: u64,
        pct: u64,
        prefer_sibling: bool,
        idle: Idle,
    ) -> bool {
        if busiest.kind == GroupKind::Imbalanced {
            return true;
        }
        if local.kind > busiest.kind {
            return false;
        }
        if local.kind == GroupKind::Overloaded {
            if local.avg_load >= busiest.avg_load || local.avg_load >= average {
                return false;
            }
            if 100 * busiest.avg_load <= pct * local.avg_load {
                return false;
            }
        }
        let drawn = busiest.kind == GroupKind::Drawn;
        if prefer_sibling
            && local.kind == GroupKind::HasSpare
            && (drawn || self.sibling_imbalance(local, busiest, idle) > 1)
        {
            return true;
        }
        if busiest.kind != GroupKind::Overloaded {
            if idle == Idle::Busy {
                return false;
            }
            if busiest.kind == GroupKind::SmtBalance && self.is_core(local) != self.is_core(busiest) {
                return true;
            }
            if busiest.weight > 1 && local.idle <= busiest.idle + 1 {
                return false;
            }
            if busiest.runnable_nr == 1 {
                return false;
            }
        }
        true
    }

    /// `calculate_imbalance`.
    fn amount(
        &self,
        local: &mut GroupStats,
        busiest: &GroupStats,
        average: u64,
        domain: &Domain,
        prefer_sibling: bool,
        idle: Idle,
    ) -> Imbalance {
        match busiest.kind {
            GroupKind::SmtBalance | GroupKind::Imbalanced => return Imbalance::Tasks(1),
            GroupKind::Drawn => return Imbalance::Drawn(1),
            _ => {}
        }
        if local.kind == GroupKind::HasSpare {
            if busiest.kind > GroupKind::FullyBusy && !domain.flags.has(Flags::SHARE_LLC) {
                let spare = local.capacity.max(local.util) - local.util;
                return match spare {
                    0 if idle != Idle::Busy => Imbalance::Tasks(1),
                    spare => Imbalance::Util(spare),
                };
            }
            let difference = if busiest.weight == 1 || prefer_sibling {
                self.sibling_imbalance(local, busiest, idle)
            } else {
                u64::from(local.idle.saturating_sub(busiest.idle))
            };
            return Imbalance::Tasks(self.numa_adjusted(difference, local, busiest, domain));
        }
        if local.kind != GroupKind::Overloaded {
            local.avg_load = local.average();
            if local.avg_load >= busiest.avg_load || local.avg_load >= average {
                return Imbalance::Load(0);
            }
        }
        let from_busiest = busiest.avg_load.saturating_sub(average) * busiest.capacity;
        let to_local = average.saturating_sub(local.avg_load) * local.capacity;
        Imbalance::Load(from_busiest.min(to_local) / 1024)
    }

    /// Half the difference, less what NUMA groups may keep.
    fn numa_adjusted(&self, difference: u64, local: &GroupStats, busiest: &GroupStats, domain: &Domain) -> u64 {
        if !domain.flags.has(Flags::NUMA) {
            return difference / 2;
        }
        match self.setup.kernel.balance.numa {
            NumaImbalance::AnyIdle if busiest.nr <= 2 => 0,
            NumaImbalance::AnyIdle => difference / 2,
            NumaImbalance::Quarter if busiest.nr < busiest.weight / 4 && difference / 2 <= 2 => 0,
            NumaImbalance::Quarter => difference / 2,
            NumaImbalance::ImbNumaNr => adjust_numa_imbalance(difference, local.nr + 1, domain.imb_numa_nr) / 2,
        }
    }

    /// `find_busiest_queue`.
    fn busiest_queue(&self, group: &GroupStats, imbalance: Imbalance, cpus: &CpuSet, dst: usize) -> Option<usize> {
        let tree = self.setup.tree;
        let mut best: Option<(u64, u64, usize)> = None;
        for cpu in self.span(tree.group(group.group).span).iter().filter(|&cpu| cpus.contains(cpu)) {
            let c = cpu.index();
            let queue = &self.cpus[c];
            let runnable = queue.nr_running - queue.nr_delayed;
            if c == dst || (runnable == 0 && self.setup.kernel.balance.skip_idle_source) {
                continue;
            }
            // Compared as fractions: load over capacity; the others over 1.
            let (value, over) = match imbalance {
                Imbalance::Load(amount) => {
                    let load = self.cpu_load(c);
                    if runnable == 1 && load > amount {
                        continue;
                    }
                    (load, u64::from(tree.capacity[c]))
                }
                Imbalance::Util(_) if runnable <= 1 => continue,
                Imbalance::Util(_) => (self.cpu_util(c), 1),
                Imbalance::Tasks(_) => (u64::from(runnable), 1),
                Imbalance::Drawn(_) => (u64::from(self.nr_preferring_on(c, dst)), 1),
            };
            if value > 0 && best.is_none_or(|(most, most_over, _)| value * most_over > most * over) {
                best = Some((value, over, c));
            }
        }
        best.map(|(_, _, c)| c)
    }

    // ---- moving tasks ----------------------------------------------------------------------------------------------------

    fn allowed(&self, t: usize, cpu: usize) -> bool {
        self.affinities[self.tasks[t].affinity as usize].contains(CpuId::from(cpu))
    }

    /// `detach_tasks` and `attach_tasks`: oldest first. Returns how many moved.
    fn detach(&mut self, attempt: &mut Attempt, by: usize) -> u64 {
        let (src, dst) = (attempt.src, attempt.dst);
        let failed = self.domains[attempt.domain.0 as usize].nr_balance_failed;
        let tries = self.setup.tree.domain(attempt.domain).cache_nice_tries;
        let profile = &self.setup.kernel.balance;
        let limit = NR_MIGRATE.min(u64::from(self.cpus[src].nr_running));
        let mut moved = 0;
        for t in self.oldest_first(src) {
            if attempt.imbalance.amount() == 0 || attempt.examined >= limit {
                break;
            }
            if attempt.idle != Idle::Busy && self.cpus[src].nr_running <= 1 {
                break;
            }
            attempt.examined += 1;
            if !self.can_migrate(t, attempt, failed > tries) {
                self.cpus[src].stamp += 1;
                self.tasks[t].stamp = self.cpus[src].stamp;
                continue;
            }
            self.update_task(t);
            let left = match attempt.imbalance {
                Imbalance::Load(amount) => {
                    let load = self.task_load(t).max(1);
                    let too_big = if profile.load_shift_by_failed {
                        (load >> failed.min(63)) > amount
                    } else {
                        load / 2 > amount && (failed <= tries || self.tuning.by_load)
                    };
                    if too_big {
                        continue;
                    }
                    Imbalance::Load(amount.saturating_sub(load))
                }
                Imbalance::Util(amount) => {
                    let util = self.tasks[t].util_est.max(self.tasks[t].pelt.util_avg);
                    let shift = if profile.util_shift_by_failed { failed.min(63) } else { 0 };
                    if (util >> shift) > amount {
                        continue;
                    }
                    Imbalance::Util(amount.saturating_sub(util))
                }
                Imbalance::Tasks(amount) => Imbalance::Tasks(amount - 1),
                Imbalance::Drawn(amount) => Imbalance::Drawn(amount - 1),
            };
            attempt.imbalance = left;
            let cause = if attempt.idle == Idle::Newly { Cause::NewIdle } else { Cause::Periodic };
            self.move_queued(t, dst, cause);
            moved += 1;
            if attempt.idle != Idle::Newly {
                self.wakeup_preempt(dst, t, by);
            } else if self.tuning.preempt {
                break;
            }
        }
        moved
    }

    /// `can_migrate_task`.
    fn can_migrate(&self, t: usize, attempt: &mut Attempt, tired: bool) -> bool {
        let profile = &self.setup.kernel.balance;
        let asleep = self.tasks[t].run == Run::Delayed;
        if asleep && profile.delayed_by_load_only && !matches!(attempt.imbalance, Imbalance::Load(_)) {
            return false;
        }
        let fresh = self.domains[attempt.domain.0 as usize].nr_balance_failed == 0;
        if profile.spares_ineligible && fresh && self.is_ineligible_there(t, attempt.src, attempt.dst) {
            return false;
        }
        if !self.allowed(t, attempt.dst) {
            attempt.some_pinned = true;
            if attempt.idle != Idle::Newly && attempt.new_dst.is_none() {
                let local = self.span(self.setup.tree.first_group(attempt.domain).span);
                attempt.new_dst = local
                    .iter()
                    .filter(|&cpu| attempt.cpus.contains(cpu))
                    .map(CpuId::index)
                    .find(|&cpu| self.allowed(t, cpu));
            }
            return false;
        }
        attempt.all_pinned = false;
        let task = &self.tasks[t];
        if task.on_cpu || !matches!(task.run, Run::Queued | Run::Delayed) {
            return false;
        }
        if self.tuning.cache_aware && !self.overrules_caches(attempt.domain) {
            let drawn = matches!(attempt.imbalance, Imbalance::Drawn(_));
            if self.keeps_for_cache(t, attempt.src, attempt.dst, drawn) {
                attempt.kept_for_cache |= !drawn;
                return false;
            }
        }
        tired || !self.is_hot(t, attempt.src, attempt.dst, attempt.domain)
    }

    /// `task_is_ineligible_on_dst_cpu`: it has run too much where it is and would have to wait elsewhere, too.
    fn is_ineligible_there(&self, t: usize, src: usize, dst: usize) -> bool {
        self.tuning.eevdf && self.cpus[dst].nr_running > 0 && !self.is_eligible(src, t)
    }

    /// `task_hot`: ran less than half a millisecond ago, or is about to run as a buddy.
    fn is_hot(&self, t: usize, src: usize, dst: usize, domain: DomainId) -> bool {
        if self.setup.tree.domain(domain).flags.has(Flags::SHARE_CPUCAPACITY) {
            return false;
        }
        let queue = &self.cpus[src];
        if self.cpus[dst].nr_running > 0 && (queue.next == t as u32 || queue.last == t as u32) {
            return true;
        }
        self.now.saturating_sub(self.tasks[t].exec_start) < self.tuning.migration_cost
    }

    /// The stopper on the source CPU, its running task put back: `active_load_balance_cpu_stop` for active balance, or the
    /// move of a task that execs.
    pub(crate) fn push_running(&mut self, c: usize) {
        let dst = std::mem::replace(&mut self.cpus[c].push_to, NONE) as usize;
        let task = std::mem::replace(&mut self.cpus[c].push_task, NONE);
        let preferring = std::mem::take(&mut self.cpus[c].push_preferring);
        if task != NONE {
            self.move_queued(task as usize, dst, Cause::Exec);
            return self.wakeup_preempt(dst, task as usize, c);
        }
        self.cpus[c].active_balance = false;
        let tree = self.setup.tree;
        let domain = tree.chain(CpuId::from(dst)).find(|&id| tree.span(tree.domain(id).span).contains(CpuId::from(c)));
        let Some(domain) = domain else {
            return;
        };
        let tired = self.setup.kernel.balance.active_flag
            || self.domains[domain.0 as usize].nr_balance_failed > tree.domain(domain).cache_nice_tries;
        for t in self.oldest_first(c) {
            let fits = self.allowed(t, dst) && (!preferring || self.prefers(t, dst));
            if fits && (tired || !self.is_hot(t, c, dst, domain)) {
                self.move_queued(t, dst, Cause::Active);
                self.wakeup_preempt(dst, t, c);
                self.domains[domain.0 as usize].nr_balance_failed = 0;
                return;
            }
        }
    }

    /// The queued tasks of a CPU from the tail of its list (`cfs_tasks`): those that have not run for longest.
    fn oldest_first(&self, c: usize) -> Vec<usize> {
        let mut order: Vec<(u64, usize)> =
            self.cpus[c].queue.iter().map(|&(_, t)| (self.tasks[t as usize].stamp, t as usize)).collect();
        order.sort_unstable();
        order.into_iter().map(|(_, t)| t).collect()
    }
}

/// Tasks that a group of `busiest.1` cores and `busiest.0` tasks has more than one of `local`, per core if they differ in cores;
/// two when the local group is empty and the other has several.
fn imbalance_by_cores(busiest: (u64, u64), local: (u64, u64)) -> u64 {
    if busiest.1 == local.1 {
        return busiest.0.saturating_sub(local.0);
    }
    let cores = local.1 + busiest.1;
    let difference = (local.1 * busiest.0).saturating_sub(busiest.1 * local.0);
    let rounded = (2 * difference + cores) / cores;
    if rounded <= 1 && local.0 == 0 && busiest.0 > 1 { 2 } else { rounded }
}

/// Scan budget of an LLC of `weight` CPUs whose utilisations sum to `util` (spec 3.8).
pub(crate) fn scan_budget(util: u64, weight: u64, pct: u64) -> u32 {
    let x = util / weight.max(1);
    let used = (x * x * pct * pct / (10_000 * 1024)).min(1024);
    ((1024 - used) * weight / 1024) as u32
}

#[cfg(test)]
mod tests {
    use huddle_domains::Kernel;
    use huddle_machine::Machine;

    use super::*;
    use crate::Unobserved;
    use crate::testing::still;

    fn xeon() -> Machine {
        Machine::load("xeon-2s44c88t").unwrap()
    }

    /// The first domain of a CPU with that name.
    fn domain(sim: &Sim<Unobserved>, cpu: u32, name: &str) -> DomainId {
        let tree = sim.setup.tree;
        tree.chain(CpuId(cpu)).find(|&id| tree.domain(id).name == name).unwrap()
    }

    /// Which of these CPUs is elected to balance for the idle ones of its group at a level.
    fn elected(sim: &Sim<Unobserved>, cpus: &[u32], name: &str) -> Vec<u32> {
        let elects = |&cpu: &u32| {
            let id = domain(sim, cpu, name);
            sim.should_balance(cpu as usize, sim.setup.tree.domain(id), Idle::Tickless)
        };
        cpus.iter().copied().filter(elects).collect()
    }

    fn occupy(sim: &mut Sim<Unobserved>, cpus: &[u32]) {
        for &cpu in cpus {
            sim.idle.remove(CpuId(cpu));
            sim.cpus[cpu as usize].nr_running = 1;
        }
    }

    #[test]
    fn imbalance_by_cores_is_the_difference_only_where_cores_are_as_many() {
        // (tasks, cores) of the busiest and the local group. Of groups with 4 and 1 cores, per 5 cores and rounded:
        // (2 × (4 × 2 - 1 × 3) + 5) / 5 = 3; the other way round (2 × (1 × 2 - 4 × 0) + 5) / 5 = 1, but the local is empty.
        for (busiest, local, wanted) in [
            ((4, 4), (2, 4), 2),
            ((2, 4), (3, 4), 0),
            ((2, 1), (3, 4), 3),
            ((2, 1), (4, 4), 2),
            ((2, 4), (0, 1), 2),
            ((1, 4), (0, 1), 1),
            ((4, 4), (1, 1), 1),
            ((8, 4), (1, 1), 2),
        ] {
            assert_eq!(imbalance_by_cores(busiest, local), wanted, "{busiest:?} {local:?}");
        }
    }

    #[test]
    fn xeon_a_cpu_whose_core_idles_balances_between_packages_before_one_beside_a_busy_thread() {
        // Package 0 has the even CPUs; 0 and 44, 2 and 46 are threads of a core. 0 is idle, its sibling is not.
        still(
            (&xeon(), "linux-6.7"),
            (0, 0),
            |_| (),
            |sim| {
                occupy(sim, &[44]);
                assert_eq!(elected(sim, &[0, 2, 4, 46], "NUMA"), [2]);
                // Once no core idles as a whole, the first idle thread is.
                let seconds: Vec<u32> = (44..88).filter(|cpu| cpu % 2 == 0).collect();
                occupy(sim, &seconds);
                assert_eq!(elected(sim, &[0, 2, 4, 46], "NUMA"), [0]);
            },
        );
    }

    #[test]
    fn xeon_before_6_6_the_first_idle_cpu_balances_whatever_its_core_does() {
        still((&xeon(), "linux-6.7"), (0, 0), before_6_6, |sim| {
            occupy(sim, &[44]);
            assert_eq!(elected(sim, &[0, 2, 4, 46], "NUMA"), [0]);
        });
    }

    /// An Alder Lake whose CPUs are equal: P cores 0-1, 2-3, 4-5 and 6-7, modules 8-11 and 12-15, all groups of one LLC.
    fn equal_hybrid() -> Machine {
        let mut machine = Machine::load("alder-lake").unwrap();
        machine.topology.capacity.fill(1024);
        machine
    }

    /// What a CPU finds in its LLC: the source, and how many tasks to move.
    fn found(sim: &mut Sim<Unobserved>, dst: u32, idle: Idle) -> Option<(usize, u64)> {
        let (id, cpus) = (domain(sim, dst, "MC"), sim.setup.tree.online.clone());
        let attempt = sim.find_work(dst as usize, dst as usize, id, idle, &cpus)?;
        Some((attempt.src, attempt.imbalance.amount()))
    }

    fn before_6_6(kernel: &mut Kernel) {
        (kernel.balance.smt_balance, kernel.balance.sibling_by_cores) = (false, false);
    }

    #[test]
    fn hybrid_the_last_idle_cpu_of_a_module_relieves_a_core_with_two_tasks_from_6_6_on() {
        // Two tasks on one core, three on four: (2 × (4 × 2 - 1 × 3) + 5) / 5 = 3. Before, the module had the more tasks.
        let busy = [0, 1, 8, 9, 10, 12, 13, 14, 15];
        still(
            (&equal_hybrid(), "linux-6.7"),
            (0, 0),
            |_| (),
            |sim| {
                occupy(sim, &busy);
                assert_eq!(found(sim, 11, Idle::Tickless), Some((0, 1)));
                assert_eq!(found(sim, 11, Idle::Newly), Some((0, 1)));
                assert_eq!(found(sim, 10, Idle::Busy), None);
            },
        );
        still((&equal_hybrid(), "linux-6.7"), (0, 0), before_6_6, |sim| {
            occupy(sim, &busy);
            assert_eq!(found(sim, 11, Idle::Tickless), None);
        });
    }

    #[test]
    fn hybrid_a_module_of_two_tasks_is_busier_than_a_core_of_one_from_6_6_on() {
        // The core has the fewer idle CPUs, but its one task keeps its CPU's neighbour company.
        let busy = [2, 12, 15];
        still(
            (&equal_hybrid(), "linux-6.7"),
            (0, 0),
            |_| (),
            |sim| {
                occupy(sim, &busy);
                assert_eq!(found(sim, 8, Idle::Tickless), Some((12, 1)));
            },
        );
        still((&equal_hybrid(), "linux-6.7"), (0, 0), before_6_6, |sim| {
            occupy(sim, &busy);
            assert_eq!(found(sim, 8, Idle::Tickless), None);
        });
    }

    #[test]
    fn hybrid_a_core_with_two_tasks_is_relieved_before_a_module_with_three_and_of_one_task_only() {
        // By cores an empty module would be due four of the core's tasks, halved, and between modules one of three.
        still(
            (&equal_hybrid(), "linux-6.7"),
            (0, 0),
            |_| (),
            |sim| {
                occupy(sim, &[0, 1, 12, 13, 15]);
                assert_eq!(found(sim, 8, Idle::Tickless), Some((0, 1)));
            },
        );
    }

    #[test]
    fn hybrid_a_core_with_two_tasks_is_relieved_by_the_idle_cpu_of_a_module_with_six() {
        // (2 × (4 × 2 - 1 × 6) + 5) / 5 = 1: even by cores, and the module has no more idle CPUs than one.
        still(
            (&equal_hybrid(), "linux-6.7"),
            (0, 0),
            |_| (),
            |sim| {
                occupy(sim, &[0, 1, 8, 9, 10, 12, 13, 14, 15]);
                (8..11).for_each(|cpu| sim.cpus[cpu].nr_running = 2);
                assert_eq!(found(sim, 11, Idle::Tickless), Some((0, 1)));
            },
        );
    }

    #[test]
    fn jacobsville_a_cluster_with_few_idle_cpus_less_still_takes_of_the_tasks_it_has_less() {
        // Four tasks on two CPUs against one: 4 - 1, halved. By idle CPUs, 2 against 3, there would be nothing to do.
        let machine = Machine::load("jacobsville").unwrap();
        still(
            (&machine, "linux-6.7"),
            (0, 0),
            |_| (),
            |sim| {
                occupy(sim, &[0, 1, 4]);
                (0..2).for_each(|cpu| sim.cpus[cpu].nr_running = 2);
                assert_eq!(found(sim, 5, Idle::Tickless), Some((0, 1)));
            },
        );
    }

    #[test]
    fn jacobsville_of_two_full_clusters_the_last_is_the_busiest_from_6_6_on() {
        let full = |sim: &mut Sim<Unobserved>| {
            occupy(sim, &[4, 5, 6, 7, 8, 9, 10, 11]);
            (4..12).for_each(|cpu| sim.cpus[cpu].pelt.util_avg = 1024);
            found(sim, 0, Idle::Tickless)
        };
        let machine = Machine::load("jacobsville").unwrap();
        still((&machine, "linux-6.7"), (0, 0), |_| (), |sim| assert_eq!(full(sim), Some((8, 2))));
        still((&machine, "linux-6.7"), (0, 0), before_6_6, |sim| assert_eq!(full(sim), Some((4, 2))));
    }

    #[test]
    fn xeon_a_core_with_two_tasks_keeps_them_when_a_thread_of_a_core_with_one_idles() {
        // Two against one: no imbalance between groups of one core each.
        still(
            (&xeon(), "linux-6.7"),
            (0, 0),
            |_| (),
            |sim| {
                let but_one: Vec<u32> = (0..88).filter(|&cpu| cpu != 44).collect();
                occupy(sim, &but_one);
                assert_eq!(found(sim, 44, Idle::Tickless), None);
                // Both threads idle: two against none.
                sim.idle.insert(CpuId(0));
                sim.cpus[0].nr_running = 0;
                assert_eq!(found(sim, 0, Idle::Tickless), Some((2, 1)));
            },
        );
    }

    /// A quiet Jacobsville under a kernel, tasks 1 to 3 asleep on CPU 4.
    fn jacobsville(kernel: &str, test: impl FnOnce(&mut Sim<Unobserved>)) {
        let machine = Machine::load("jacobsville").unwrap();
        still((&machine, "linux-6.7"), (3, 4), |record| *record = Kernel::load(kernel).unwrap(), test);
    }

    #[test]
    fn new_idle_attempts_are_rated_by_their_success_and_in_7_1_by_how_rare_they_are() {
        // 300 of 1024, and 8 × 4.19 ms for the 1024.
        for (kernel, ratio) in [("6.17", 512), ("6.12", 300), ("7.1", 308)] {
            jacobsville(kernel, |sim| {
                let id = domain(sim, 0, "MC");
                let state = &mut sim.domains[id.0 as usize];
                (state.newidle_calls, state.newidle_success) = (1023, 300);
                sim.now = 8 << 22;
                sim.rate_newidle(id, 0);
                let state = &sim.domains[id.0 as usize];
                assert_eq!(state.newidle_ratio, ratio, "{kernel}");
                let counts = (state.newidle_calls, state.newidle_success);
                assert_eq!(counts, if kernel == "6.17" { (1023, 300) } else { (512, 150) });
            });
        }
    }

    #[test]
    fn new_idle_attempts_that_never_pull_are_mostly_left_out_and_count_for_many_when_made() {
        let made = |kernel: &str, ratio: u32| {
            let mut made = (0, 0);
            jacobsville(kernel, |sim| {
                let id = domain(sim, 0, "MC");
                for _ in 0..1024 {
                    sim.domains[id.0 as usize].newidle_ratio = ratio;
                    if let Some(weight) = sim.throw_dice(id) {
                        made = (made.0 + 1, weight);
                    }
                }
            });
            made
        };
        // Numbers of 0 to 1023 that are not above 1 + ratio: 2, 257 and all of 1024; weight 1024 over 1 + ratio.
        assert!(made("6.12", 0).0 < 12);
        let (some, weight) = made("6.12", 255);
        assert!((200..320).contains(&some) && weight == 4, "{some} {weight}");
        assert_eq!(made("7.1", 1024), (1024, 1));
        assert_eq!(made("6.17", 0), (1024, 1));
    }

    #[test]
    fn from_5_16_on_a_cost_decays_a_second_after_it_was_raised() {
        for (kernel, decayed) in [("5.14+cluster", 0), ("5.16", 700)] {
            jacobsville(kernel, |sim| {
                let id = domain(sim, 0, "CLS");
                sim.now = 700;
                sim.note_newidle_cost(id, 2000);
                sim.now = 900;
                sim.note_newidle_cost(id, 1999);
                let state = &sim.domains[id.0 as usize];
                assert_eq!((state.max_newidle_lb_cost, state.decayed), (2000, decayed), "{kernel}");
            });
        }
    }

    /// Tasks 1 and 2 are queued on CPU 4 beside the running 3, and CPU 8 asks whether it may have task `t`, which ran long ago.
    fn may_move(sim: &mut Sim<Unobserved>, t: usize, imbalance: Imbalance) -> bool {
        sim.tasks[t].exec_start = 0;
        sim.now += 1_000_000_000;
        let (id, cpus) = (domain(sim, 8, "MC"), sim.setup.tree.online.clone());
        let mut attempt = Attempt::new(id, Idle::Busy, (4, 8), imbalance, &cpus);
        sim.can_migrate(t, &mut attempt, false)
    }

    #[test]
    fn from_6_18_on_a_task_that_ran_too_much_is_not_pulled_to_a_cpu_with_tasks_at_the_first_attempt() {
        for (kernel, wanted) in [("6.17", true), ("6.18.33", false), ("7.2", false)] {
            jacobsville(kernel, |sim| {
                for t in [3, 1, 2] {
                    sim.tasks[t].run = Run::Waking;
                    sim.activate_wakeup(t, 4, 4);
                }
                sim.schedule(4, 0);
                let [ahead, behind] = [1, 2];
                sim.remove(4, ahead);
                sim.tasks[ahead].vruntime += 1_000_000;
                sim.insert(4, ahead);
                assert!(may_move(sim, ahead, Imbalance::Tasks(1)), "{kernel}, an empty CPU");
                sim.cpus[8].nr_running = 1;
                assert_eq!(may_move(sim, ahead, Imbalance::Tasks(1)), wanted, "{kernel}");
                assert!(may_move(sim, behind, Imbalance::Tasks(1)));
                let id = domain(sim, 8, "MC");
                sim.domains[id.0 as usize].nr_balance_failed = 1;
                assert!(may_move(sim, ahead, Imbalance::Tasks(1)), "{kernel}, after a failure");
            });
        }
    }

    #[test]
    fn from_6_14_on_a_sleeper_is_moved_for_its_load_only_and_counts_for_no_task_before() {
        for (kernel, wanted) in [("6.12", true), ("6.17", false)] {
            jacobsville(kernel, |sim| {
                for t in [1, 2, 3] {
                    sim.tasks[t].run = Run::Waking;
                    sim.activate_wakeup(t, 4, 4);
                }
                sim.schedule(4, 0);
                sim.now += 2_000_000;
                sim.block(4, crate::state::Stage::Next, Run::Sleeping);
                assert_eq!(sim.tasks[1].run, Run::Delayed);
                sim.tasks[1].on_cpu = false;
                assert_eq!(may_move(sim, 1, Imbalance::Tasks(1)), wanted, "{kernel}");
                assert!(may_move(sim, 1, Imbalance::Load(1)));
                let group = sim.setup.tree.groups_of(domain(sim, 4, "MC")).next().unwrap();
                let stats = sim.group_stats(group, None, 117, None, false);
                assert_eq!((stats.nr, stats.runnable_nr), (3, 2));
            });
        }
    }

    #[test]
    fn scan_budgets_of_the_specification() {
        let columns = [0, 128, 256, 512, 640, 768, 850, 870];
        for (weight, row) in [
            (24, [24, 23, 21, 15, 11, 5, 1, 0]),
            (32, [32, 31, 29, 21, 14, 7, 1, 0]),
            (44, [44, 43, 40, 28, 20, 10, 2, 0]),
        ] {
            for (x, wanted) in columns.into_iter().zip(row) {
                assert_eq!(scan_budget(x * weight, weight, 117), wanted, "weight {weight}, x {x}");
            }
        }
    }
}
