//! Load balancing of 5.9 … 5.16: periodic, for idle CPUs whose tick is stopped (nohz), and when a CPU is about to idle; with
//! active balance (spec 5; `kernel/sched/fair.c`).

use huddle_domains::{Domain, DomainId, Flags, GroupId, NumaImbalance};
use huddle_machine::{CpuId, CpuSet};

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
enum Imbalance {
    Load(u64),
    Util(u64),
    Tasks(u64),
}

impl Imbalance {
    fn amount(self) -> u64 {
        match self {
            Imbalance::Load(amount) | Imbalance::Util(amount) | Imbalance::Tasks(amount) => amount,
        }
    }
}

/// One attempt.
struct Attempt {
    domain: DomainId,
    idle: Idle,
    dst: usize,
    src: usize,
    imbalance: Imbalance,
    /// A task could not move because of its affinity; all could not; another CPU of the local group would do.
    some_pinned: bool,
    all_pinned: bool,
    new_dst: Option<usize>,
    /// CPUs still in play.
    cpus: CpuSet,
    examined: u64,
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
        if self.setup.tree.base[c].is_none() {
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
            if now > state.decayed + COST_DECAY_NS {
                state.max_newidle_lb_cost = state.max_newidle_lb_cost * 253 / 256;
                state.decayed = now;
                decayed = true;
            }
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
        self.cpus[c].idle_stamp = self.now.max(1);
        let Some(lowest) = tree.base[c] else {
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
                let outcome = self.balance(c, id, Idle::Newly, c);
                let state = &mut self.domains[id.0 as usize];
                state.max_newidle_lb_cost = state.max_newidle_lb_cost.max(outcome.ns);
                cost += outcome.ns;
                pulled = outcome.moved;
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
            if attempt.idle != Idle::Newly {
                self.domains[index].nr_balance_failed += 1;
            }
            let tasks = matches!(attempt.imbalance, Imbalance::Tasks(_));
            let tired = self.domains[index].nr_balance_failed > domain.cache_nice_tries + 2;
            if tired && (tasks || !profile.active_only_for_task) {
                let running = self.cpus[attempt.src].curr;
                if running == NONE || !self.allowed(running as usize, attempt.dst) {
                    return self.double_interval(attempt.domain, attempt.idle, MAX_PINNED_INTERVAL);
                }
                if !self.cpus[attempt.src].active_balance && self.cpus[attempt.src].push_to == NONE {
                    self.cpus[attempt.src].active_balance = true;
                    self.cpus[attempt.src].push_to = attempt.dst as u32;
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

    /// `should_we_balance`: one CPU of the local group does the work.
    fn should_balance(&self, c: usize, domain: &Domain, idle: Idle) -> bool {
        if idle == Idle::Newly {
            let pending = self.cpus[c].nr_running > 0 || !self.cpus[c].wake_list.is_empty();
            return !(self.setup.kernel.balance.newidle_bails_on_pending && pending);
        }
        let tree = self.setup.tree;
        let list = &tree.group_lists[domain.group_list as usize];
        let mask = tree.span(tree.group(list[domain.first_group as usize]).balance_mask);
        let elected = mask.iter().find(|&cpu| self.idle.contains(cpu)).or_else(|| mask.first());
        elected == Some(CpuId::from(c))
    }

    /// `find_busiest_group` and `find_busiest_queue`.
    fn find_work(&mut self, c: usize, dst: usize, id: DomainId, idle: Idle, cpus: &CpuSet) -> Option<Attempt> {
        let tree = self.setup.tree;
        let domain = tree.domain(id);
        let pct = u64::from(domain.imbalance_pct);
        let mut local: Option<GroupStats> = None;
        let mut busiest: Option<GroupStats> = None;
        let (mut total_load, mut total_capacity, mut total_util) = (0, 0, 0);
        let mut overload = false;
        let groups: Vec<GroupId> = tree.groups_of(id).collect();
        for group in groups {
            let stats = self.group_stats(group, Some(cpus), pct, None, idle != Idle::Newly);
            total_load += stats.load;
            total_capacity += stats.capacity;
            total_util += stats.util;
            let span = self.span(tree.group(group).span);
            overload |= stats.nr > 1 && span.iter().any(|cpu| self.cpus[cpu.index()].nr_running > 1);
            if span.contains(CpuId::from(c)) {
                local = Some(stats);
            } else if self.busier(&stats, busiest.as_ref()) {
                busiest = Some(stats);
            }
        }
        if domain.parent.is_none() {
            self.overloaded = overload;
        }
        self.update_scan_budget(c, domain, idle, total_util);
        let (mut local, busiest) = (local?, busiest?);
        let average = total_load * 1024 / total_capacity.max(1);
        let prefer_sibling = domain.child.is_some_and(|child| tree.domain(child).flags.has(Flags::PREFER_SIBLING));
        if !self.worth_it(&local, &busiest, average, pct, prefer_sibling, idle) {
            return None;
        }
        let imbalance = self.amount(&mut local, &busiest, average, domain, prefer_sibling, idle);
        if imbalance.amount() == 0 {
            return None;
        }
        let src = self.busiest_queue(&busiest, imbalance, cpus, dst)?;
        Some(Attempt {
            domain: id,
            idle,
            dst,
            src,
            imbalance,
            some_pinned: false,
            all_pinned: false,
            new_dst: None,
            cpus: cpus.clone(),
            examined: 0,
        })
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
    fn busier(&self, stats: &GroupStats, best: Option<&GroupStats>) -> bool {
        if stats.nr == 0 {
            return false;
        }
        let Some(best) = best else {
            return true;
        };
        if stats.kind != best.kind {
            return stats.kind > best.kind;
        }
        match stats.kind {
            GroupKind::Overloaded | GroupKind::FullyBusy => stats.avg_load > best.avg_load,
            GroupKind::Imbalanced => false,
            GroupKind::HasSpare => stats.idle < best.idle || (stats.idle == best.idle && stats.nr > best.nr),
        }
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
        if prefer_sibling && local.kind == GroupKind::HasSpare && busiest.nr > local.nr + 1 {
            return true;
        }
        if busiest.kind != GroupKind::Overloaded {
            if idle == Idle::Busy {
                return false;
            }
            if busiest.weight > 1 && local.idle <= busiest.idle + 1 {
                return false;
            }
            if busiest.nr == 1 {
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
        if busiest.kind == GroupKind::Imbalanced {
            return Imbalance::Tasks(1);
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
                u64::from(busiest.nr.saturating_sub(local.nr))
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
            if c == dst || (queue.nr_running == 0 && self.setup.kernel.balance.skip_idle_source) {
                continue;
            }
            // Compared as fractions: load over capacity; the others over 1.
            let (value, over) = match imbalance {
                Imbalance::Load(amount) => {
                    let load = queue.pelt.load_avg;
                    if queue.nr_running == 1 && load > amount {
                        continue;
                    }
                    (load, u64::from(tree.capacity[c]))
                }
                Imbalance::Util(_) if queue.nr_running <= 1 => continue,
                Imbalance::Util(_) => (self.cpu_util(c), 1),
                Imbalance::Tasks(_) => (u64::from(queue.nr_running), 1),
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
                    let load = self.tasks[t].pelt.load_avg.max(1);
                    let too_big = if profile.load_shift_by_failed {
                        (load >> failed.min(63)) > amount
                    } else {
                        load / 2 > amount && failed <= tries
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
        if task.on_cpu || task.run != Run::Queued {
            return false;
        }
        tired || !self.is_hot(t, attempt.src, attempt.dst, attempt.domain)
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
            if self.allowed(t, dst) && (tired || !self.is_hot(t, c, dst, domain)) {
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

/// Scan budget of an LLC of `weight` CPUs whose utilisations sum to `util` (spec 3.8).
fn scan_budget(util: u64, weight: u64, pct: u64) -> u32 {
    let x = util / weight.max(1);
    let used = (x * x * pct * pct / (10_000 * 1024)).min(1024);
    ((1024 - used) * weight / 1024) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

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
