//! The specification's text, CPU by CPU, with no thought for speed. It shares nothing with the interpreter but the record.

use std::collections::{BTreeMap, BTreeSet};

use huddle_domains::{DomainTree, Flags};
use huddle_machine::{CpuId, CpuSet, Distance, Topology};
use huddle_policy::{
    Anchor, ClusterCondition, ClusterSrc, Cost, EntryAnchor, Frozen, Kept, Method, OnExhaust, Policy, Pred, Ranks,
    Share, SmtCondition, Start, Step, Takes, Update, View, Wakeup, Within,
};

/// What the two interpreters are compared by, beside the state they leave.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    pub cpu: u32,
    pub target: u32,
    pub step: usize,
    pub wide: bool,
    pub exhausted: bool,
    pub examined: [u32; Distance::COUNT],
}

type Cpus = BTreeSet<u32>;

enum End {
    Found(u32),
    Stop(u32),
    Continue,
    FailPhase,
}

pub struct Reference<'a> {
    pub policy: &'a Policy,
    pub tree: &'a DomainTree,
    pub topology: &'a Topology,
    pub state: &'a mut Frozen,
}

struct Wake {
    this: u32,
    p: u32,
    t: u32,
    sync: bool,
    hic: bool,
    nr: i64,
    cpus: Option<Cpus>,
    cand: Option<u32>,
    kept_prev: Option<u32>,
    kept_recent: Option<u32>,
    examined: [u32; Distance::COUNT],
    exhausted: bool,
}

/// CPUs of a set in increasing number from `start`, wrapping once.
fn scan(set: &Cpus, start: u32) -> Vec<u32> {
    set.range(start..).chain(set.range(..start)).copied().collect()
}

impl Reference<'_> {
    pub fn place(&mut self, wakeup: &Wakeup) -> Outcome {
        let (this, prev) = (wakeup.this.0, wakeup.prev.0);
        let none = [0; Distance::COUNT];
        let by_core = self.policy.steps.len();
        let all: Vec<u32> = self.state.allowed.iter().map(|cpu| cpu.0).collect();
        if let [only] = all[..] {
            return Outcome { cpu: only, target: only, step: by_core, wide: false, exhausted: false, examined: none };
        }
        let entry = self.policy.entry;
        if entry.prefer_current_hint && self.state.prefers_current_cpu && self.allowed(this) {
            return Outcome { cpu: this, target: this, step: by_core, wide: false, exhausted: false, examined: none };
        }
        let wide = entry.wide && entry.anchor != EntryAnchor::Prev && self.wake_wide(this);
        let want_affine = !wide && self.allowed(this) && entry.anchor != EntryAnchor::Prev;
        let mut target = prev;
        if want_affine && entry.anchor == EntryAnchor::Waker {
            let alone = wakeup.sync && self.state.nr_running[this as usize] == 1;
            target = if self.share_cache(this, prev) || alone { this } else { prev };
            if entry.set_waker_recent {
                self.state.waker_recent = Some(CpuId(this));
            }
        } else if want_affine {
            let domain = self.tree.chain(CpuId(this)).map(|id| self.tree.domain(id)).find(|domain| {
                domain.flags.has(Flags::WAKE_AFFINE) && self.tree.span(domain.span).contains(CpuId(prev))
            });
            if let Some(domain) = domain
                && this != prev
            {
                target = self.wake_affine(i64::from(domain.imbalance_pct), this, prev, wakeup.sync);
            }
            if entry.set_waker_recent {
                self.state.waker_recent = Some(CpuId(this));
            }
        }
        let mut outcome = self.select(wakeup, target);
        outcome.wide = wide;
        self.fall_back(prev, by_core, &mut outcome);
        outcome
    }

    /// Fork and exec.
    pub fn place_fork(&mut self, wakeup: &Wakeup) -> Outcome {
        let fork = self.policy.fork.clone().unwrap();
        let all: Vec<u32> = self.state.allowed.iter().map(|cpu| cpu.0).collect();
        if let [only] = all[..] {
            let (step, examined) = (fork.len(), [0; Distance::COUNT]);
            return Outcome { cpu: only, target: only, step, wide: false, exhausted: false, examined };
        }
        let mut outcome = self.run(&fork, wakeup, wakeup.prev.0);
        self.fall_back(wakeup.prev.0, fork.len(), &mut outcome);
        outcome
    }

    fn fall_back(&self, prev: u32, by_core: usize, outcome: &mut Outcome) {
        let all: Vec<u32> = self.state.allowed.iter().map(|cpu| cpu.0).collect();
        if !self.allowed(outcome.cpu) {
            let node = |cpu: u32| match self.topology.online.contains(CpuId(cpu)) {
                true => Some(self.topology.node.index_of(CpuId(cpu))),
                false => None,
            };
            let near = all.iter().copied().find(|&cpu| node(cpu) == node(prev));
            if let Some(cpu) = near.or(all.first().copied()) {
                outcome.cpu = cpu;
                outcome.step = by_core;
            }
        }
    }

    fn wake_wide(&self, this: u32) -> bool {
        let (mut master, mut slave) =
            (u64::from(self.state.waker_flips.unwrap()), u64::from(self.state.wakee_flips.unwrap()));
        if master < slave {
            (master, slave) = (slave, master);
        }
        let factor = u64::from(self.tree.cached[this as usize].sd_llc_size);
        !(slave < factor || master < slave * factor)
    }

    fn wake_affine(&self, pct: i64, this: u32, prev: u32, sync: bool) -> u32 {
        let s = &self.state;
        let entry = self.policy.entry;
        if self.avail(this) && self.share_cache(this, prev) {
            return if self.avail(prev) { prev } else { this };
        }
        let delayed = if entry.sync_minus_delayed { s.nr_delayed[this as usize] } else { 0 };
        if sync && s.nr_running[this as usize] == 1 + delayed {
            return this;
        }
        if entry.affine_idle_prev && self.avail(prev) {
            return prev;
        }
        let (load, capacity) = (|c: u32| s.load[c as usize] as i64, |c: u32| s.capacity[c as usize] as i64);
        let mut this_load = load(this);
        if sync {
            if s.waker_load as i64 > this_load {
                return this;
            }
            this_load -= s.waker_load as i64;
        }
        let this_eff = (this_load + s.wakee_load as i64) * 100 * capacity(prev);
        let mut prev_eff = (load(prev) - s.wakee_load as i64) * (100 + (pct - 100) / 2) * capacity(this);
        if sync {
            prev_eff += 1;
        }
        if this_eff < prev_eff { this } else { prev }
    }

    pub fn select(&mut self, wakeup: &Wakeup, target: u32) -> Outcome {
        let steps = self.policy.steps.clone();
        self.run(&steps, wakeup, target)
    }

    fn run(&mut self, steps: &[Step], wakeup: &Wakeup, target: u32) -> Outcome {
        let mut wake = Wake {
            this: wakeup.this.0,
            p: wakeup.prev.0,
            t: target,
            sync: wakeup.sync,
            hic: false,
            nr: i64::MAX,
            cpus: None,
            cand: None,
            kept_prev: None,
            kept_recent: None,
            examined: [0; Distance::COUNT],
            exhausted: false,
        };
        let is_scan = |step: &Step| match step {
            Step::ClaimAny { charge, .. } => *charge,
            _ => step.kind().starts_with("Scan"),
        };
        let after_scans = steps.iter().rposition(is_scan).map_or(0, |at| at + 1);
        let mut at = 0;
        loop {
            match self.step(&steps[at], &mut wake) {
                End::Continue => at += 1,
                End::FailPhase => at = after_scans,
                End::Found(cpu) | End::Stop(cpu) => {
                    return Outcome {
                        cpu,
                        target,
                        step: at,
                        wide: false,
                        exhausted: wake.exhausted,
                        examined: wake.examined,
                    };
                }
            }
        }
    }

    fn step(&mut self, step: &Step, w: &mut Wake) -> End {
        let (t, p) = (w.t, w.p);
        match *step {
            Step::TargetIdle { pred, fits } if self.good(pred, t) && self.fits(fits, t) => End::Found(t),
            Step::PrevIdle { share, keep, pred, fits } => {
                if p == t || !self.share_cache(p, t) || (share == Share::Lowest && !keep && !self.share_lowest(p, t)) {
                    return End::Continue;
                }
                if !self.good(pred, p) || !self.fits(fits, p) {
                    return End::Continue;
                }
                if share == Share::Llc || self.share_lowest(p, t) {
                    return End::Found(p);
                }
                w.kept_prev = Some(p);
                End::Continue
            }
            Step::KthreadStack { fits } => {
                let stack =
                    self.state.waker_is_per_cpu_kthread && p == w.this && self.state.nr_running[p as usize] <= 1;
                if stack && self.fits(fits, p) { End::Found(p) } else { End::Continue }
            }
            Step::RecentIdle { share, keep, update, pred, fits } => {
                let old = self.state.recent;
                if update == Update::Always {
                    self.state.recent = Some(CpuId(p));
                }
                let Some(CpuId(r)) = old else { return End::Continue };
                let lowest = self.share_lowest(r, t);
                if r == p || r == t || !self.share_cache(r, t) || (share == Share::Lowest && !keep && !lowest) {
                    return End::Continue;
                }
                if !self.good(pred, r) || !self.allowed(r) || !self.fits(fits, r) {
                    return End::Continue;
                }
                if share == Share::Llc || lowest {
                    if update == Update::OnHit {
                        self.state.recent = Some(CpuId(p));
                    }
                    return End::Found(r);
                }
                w.kept_recent = Some(r);
                End::Continue
            }
            Step::AsymScan { ranks } => self.asym(ranks, w),
            Step::NeedLlc if self.llc(t).is_none() => End::Stop(t),
            Step::IdleCore { start, pred } => {
                if !self.tree.smt_active || !self.hint(t) {
                    return End::Continue;
                }
                let mut cpus = self.llc_allowed(t);
                for core in scan(&cpus.clone(), self.start(start, w)) {
                    if !cpus.contains(&core) {
                        continue;
                    }
                    let mut all_idle = true;
                    for thread in self.smt(core) {
                        self.examine(thread, w);
                        if !self.good(pred, thread) {
                            all_idle = false;
                            break;
                        }
                    }
                    if all_idle {
                        return End::Found(core);
                    }
                    cpus.retain(|cpu| !self.smt(core).contains(cpu));
                }
                self.clear_hint(t);
                End::Continue
            }
            Step::ReadHic => {
                w.hic = self.tree.smt_active && self.hint(t);
                End::Continue
            }
            Step::IdleSmt { anchor, incl_anchor, cond, in_llc, pred } => {
                if !self.tree.smt_active {
                    return End::Continue;
                }
                if cond == SmtCondition::NoHicAndShareLlc && (w.hic || !self.share_cache(p, t)) {
                    return End::Continue;
                }
                let anchor = if anchor == Anchor::Target { t } else { p };
                for c in self.smt(anchor) {
                    if !self.allowed(c) || (c == anchor && !incl_anchor) {
                        continue;
                    }
                    if in_llc && !self.llc(t).unwrap().contains(&c) {
                        continue;
                    }
                    self.examine(c, w);
                    if self.good(pred, c) {
                        return End::Found(c);
                    }
                }
                End::Continue
            }
            Step::Budget { method, div, floor, floor_threads, cap_floors, fail_if_empty } => {
                if self.llc(t).is_none() {
                    return End::Continue;
                }
                match method {
                    Method::None => {}
                    Method::Util => {
                        let llc = self.tree.cached[t as usize].llc_index as usize;
                        w.nr = i64::from(self.state.nr_idle_scan[llc].unwrap()) + 1;
                        if w.nr == 1 {
                            w.exhausted = true;
                            return End::FailPhase;
                        }
                    }
                    Method::Prop | Method::PropLimit | Method::PropAged => {
                        if self.llc(w.this).is_none() {
                            return End::FailPhase;
                        }
                        if !w.hic {
                            w.nr = self.prop(method, w, [div, floor, cap_floors], floor_threads);
                        }
                    }
                }
                let empty = self.llc_allowed(t).is_empty();
                if fail_if_empty && empty { End::FailPhase } else { End::Continue }
            }
            Step::ScanCluster { src, start, pred, charge, remove, cores, only_if } => {
                let skip = match only_if {
                    ClusterCondition::NoSmt => self.tree.smt_active,
                    ClusterCondition::ClusterKey => !self.tree.cluster_active,
                };
                let Some(cluster) = self.cluster(src, t).filter(|_| !skip) else { return End::Continue };
                self.fill(w);
                for c in scan(&cluster, self.start(start, w)) {
                    let candidate = match src {
                        ClusterSrc::RawTopology => self.allowed(c),
                        _ => w.cpus.as_ref().unwrap().contains(&c),
                    };
                    if !candidate {
                        continue;
                    }
                    if cores && w.hic {
                        if self.examine_core(c, pred, w) {
                            return End::Found(c);
                        }
                        continue;
                    }
                    if charge && self.charge(w) {
                        return End::FailPhase;
                    }
                    self.examine(c, w);
                    if self.good(pred, c) {
                        return End::Found(c);
                    }
                }
                if remove {
                    w.cpus.as_mut().unwrap().retain(|cpu| !cluster.contains(cpu));
                }
                End::Continue
            }
            Step::ScanLlc { start, pred, cores, charge, charge_disallowed, cost } => {
                self.fill(w);
                let before = w.examined;
                let from = self.start(start, w);
                let mut walk = w.cpus.clone().unwrap();
                if charge_disallowed {
                    walk = self.llc(t).unwrap();
                }
                for c in scan(&walk, from) {
                    if cores && w.hic {
                        if w.cpus.as_ref().unwrap().contains(&c) && self.examine_core(c, pred, w) {
                            return End::Found(c);
                        }
                        continue;
                    }
                    if start == Start::NextCpu {
                        self.state.next_cpu[t as usize] = Some(CpuId(c));
                    }
                    if charge && self.charge(w) {
                        return End::FailPhase;
                    }
                    if !self.allowed(c) {
                        continue;
                    }
                    self.examine(c, w);
                    if self.good(pred, c) {
                        self.book(cost, before, w);
                        return End::Found(c);
                    }
                }
                if cores && w.hic {
                    self.clear_hint(t);
                    return w.cand.map_or(End::Continue, End::Found);
                }
                self.book(cost, before, w);
                End::Continue
            }
            Step::ScanMerged { start, pred, takes, on_exhaust, cost } => {
                self.merged(start, pred, takes, on_exhaust, cost, w)
            }
            Step::TakeKept { ref order } => {
                for kept in order {
                    let kept = if *kept == Kept::Prev { w.kept_prev } else { w.kept_recent };
                    if let Some(cpu) = kept {
                        return End::Found(cpu);
                    }
                }
                End::Continue
            }
            Step::ClaimPrev { within, core, no_busier, disallowed } => {
                let near = match within {
                    Within::Cluster => self.wide_cluster(t).contains(&p),
                    Within::Llc => self.claim_llc(t).contains(&p),
                    _ => true,
                };
                if (core && !self.tree.smt_active) || !near {
                    return End::Continue;
                }
                if !(disallowed || self.allowed(p)) || !self.idle_for_claim(p, core) {
                    return End::Continue;
                }
                let own = self.claim_cluster(p);
                let others = self.clusters(Within::Llc, p).into_iter().filter(|cluster| *cluster != own);
                let idler = |cluster: &Cpus| {
                    cluster.iter().any(|&c| self.claimable(c, core)) && self.busy_part(cluster) < self.busy_part(&own)
                };
                if no_busier && others.into_iter().any(|cluster| idler(&cluster)) {
                    return End::Continue;
                }
                if self.claim(p) { End::Found(p) } else { End::Continue }
            }
            Step::ClaimAny { within, core, charge: _, rotate: true } => self.pick_idle_cpu(within, core, w),
            Step::ClaimAny { within, core, charge, rotate: false } => self.claim_any(within, core, charge, w),
            Step::ClaimSmt => {
                for c in self.smt(p) {
                    if !self.tree.smt_active || c == p || !self.allowed(c) {
                        continue;
                    }
                    self.examine(c, w);
                    if self.avail(c) && self.claim(c) {
                        return End::Found(c);
                    }
                }
                End::Continue
            }
            Step::SyncClaimPrev => {
                let near = w.sync && self.share_cache(w.this, p);
                if near && self.claimable(p, false) && self.claim(p) { End::Found(p) } else { End::Continue }
            }
            Step::SyncWaker => {
                let direct = w.sync && self.allowed(w.this) && self.state.nr_local[w.this as usize] == 0;
                if direct && !self.state.idle.is_empty() { End::Found(w.this) } else { End::Continue }
            }
            Step::ClaimIdlest { within, core } => {
                if core && !self.tree.smt_active {
                    return End::Continue;
                }
                let mut clusters = self.clusters(within, p);
                let own = self.claim_cluster(p);
                if let Some(at) = clusters.iter().position(|cluster| *cluster == own) {
                    clusters.rotate_left(at);
                }
                let usable = clusters.iter().filter(|cluster| cluster.iter().any(|&c| self.claimable(c, core)));
                // `min_by` keeps the first of equals.
                let idlest = usable.min_by(|one, other| self.busy_part(one).total_cmp(&self.busy_part(other)));
                let Some(idlest) = idlest else { return End::Continue };
                let mut lost = 0;
                for cpu in scan(idlest, p) {
                    if lost < 8 && self.claimable(cpu, core) {
                        if self.claim(cpu) {
                            return End::Found(cpu);
                        }
                        lost += 1;
                    }
                }
                End::Continue
            }
            Step::SyncStack => {
                let this = w.this;
                let promises = w.sync && self.state.waker_keeps_sync.unwrap();
                if t != this || !promises || !self.allowed(this) || self.state.nr_running[this as usize] != 1 {
                    return End::Continue;
                }
                End::Stop(this)
            }
            Step::ReturnTarget => End::Stop(t),
            Step::ReturnPrev => End::Stop(p),
            _ => End::Continue,
        }
    }

    fn claim_any(&mut self, within: Within, core: bool, charge: bool, w: &mut Wake) -> End {
        if core && !self.tree.smt_active {
            return End::Continue;
        }
        let (set, behind) = match within {
            Within::Cluster => (self.wide_cluster(w.t), w.t),
            Within::PrevCluster => (self.wide_cluster(w.p), w.p),
            Within::Llc => (self.claim_llc(w.t), w.t),
            Within::Node => (self.claim_node(w.t), w.t),
            Within::All => (self.tree.online.iter().map(|cpu| cpu.0).collect(), w.t),
        };
        let mut lost = 0;
        for c in scan(&set, behind + 1) {
            if !self.allowed(c) {
                continue;
            }
            if charge && self.charge(w) {
                return End::FailPhase;
            }
            self.examine(c, w);
            if !self.claimable(c, core) {
                continue;
            }
            if self.claim(c) {
                return End::Found(c);
            }
            lost += 1;
            if lost == 8 {
                break;
            }
        }
        End::Continue
    }

    /// `pick_idle_cpu_in_node` of `kernel/sched/ext/idle.c`: ever the next CPU of the mask behind the last choice, until one is won.
    fn pick_idle_cpu(&mut self, within: Within, core: bool, w: &mut Wake) -> End {
        let p = w.p;
        let online = || self.tree.online.iter().map(|cpu| cpu.0);
        let llc_weight = |c: u32| self.llc(c).map_or(0, |llc| llc.len());
        let node_weight = |c: u32| match self.claim_node(c).len() {
            all if all == self.tree.online.len() => 0,
            some => some,
        };
        let below_all = |weight: usize| weight > 0 && weight < self.tree.online.len();
        let first = online().next().unwrap();
        let set = match within {
            Within::Llc if below_all(llc_weight(first)) => self.llc(p),
            Within::Node if below_all(node_weight(first)) && online().any(|c| llc_weight(c) != node_weight(c)) => {
                Some(self.claim_node(p))
            }
            Within::All => Some(online().collect()),
            _ => None,
        };
        let Some(set) = set.filter(|_| !core || self.tree.smt_active) else { return End::Continue };
        let last = self.state.last_rotated[w.this as usize].0;
        let mut lost = 0;
        for c in scan(&set, last + 1) {
            if lost == 8 || !self.allowed(c) {
                continue;
            }
            self.examine(c, w);
            if self.claimable(c, core) {
                self.state.last_rotated[w.this as usize] = CpuId(c);
                if self.claim(c) {
                    return End::Found(c);
                }
                lost += 1;
            }
        }
        End::Continue
    }

    /// Idle, allowed, and where asked with all threads of its core idle.
    fn claimable(&self, c: u32, core: bool) -> bool {
        self.allowed(c) && self.idle_for_claim(c, core)
    }

    fn idle_for_claim(&self, c: u32, core: bool) -> bool {
        let threads = self.smt(c).into_iter().filter(|&thread| self.tree.online.contains(CpuId(thread)));
        self.avail(c) && (!core || threads.into_iter().all(|thread| self.avail(thread)))
    }

    /// Won unless contested; gone for all in any case.
    fn claim(&mut self, c: u32) -> bool {
        self.state.idle.remove(CpuId(c));
        !self.state.contested.contains(CpuId(c))
    }

    /// Exact for equal quotients of small numbers: divided alike, they round alike.
    fn busy_part(&self, cluster: &Cpus) -> f64 {
        cluster.iter().filter(|&&c| !self.avail(c)).count() as f64 / cluster.len() as f64
    }

    fn online(&self, set: &CpuSet) -> Cpus {
        set.iter().filter(|&cpu| self.tree.online.contains(cpu)).map(|cpu| cpu.0).collect()
    }

    fn claim_llc(&self, c: u32) -> Cpus {
        if !self.tree.online.contains(CpuId(c)) {
            return Cpus::from([c]);
        }
        self.llc(c).unwrap_or_else(|| self.online(self.topology.llc.set_of(CpuId(c))))
    }

    fn claim_node(&self, c: u32) -> Cpus {
        self.online(self.topology.node.set_of(CpuId(c)))
    }

    fn claim_cluster(&self, c: u32) -> Cpus {
        let llc = self.claim_llc(c);
        let raw = self.tree.span(self.tree.cluster_raw[c as usize]);
        let wide = raw.iter().map(|cpu| cpu.0).chain(self.smt(c)).filter(|cpu| llc.contains(cpu)).collect();
        if self.tree.online.contains(CpuId(c)) { wide } else { Cpus::from([c]) }
    }

    /// None where the cluster is one core.
    fn wide_cluster(&self, c: u32) -> Cpus {
        let cluster = self.claim_cluster(c);
        if self.tree.online.contains(CpuId(c)) && cluster.iter().all(|other| self.smt(c).contains(other)) {
            return Cpus::default();
        }
        cluster
    }

    /// The clusters of prev's LLC, of its node or of all, in the order of their first CPUs, LLC by LLC and node by node.
    fn clusters(&self, within: Within, p: u32) -> Vec<Cpus> {
        let online = || self.tree.online.iter().map(|cpu| cpu.0);
        // The first CPU with the same set, by CPU.
        let firsts = |of: &dyn Fn(u32) -> Cpus| -> BTreeMap<u32, u32> {
            let mut known = BTreeMap::new();
            online().map(|c| (c, *known.entry(of(c)).or_insert(c))).collect()
        };
        let (clusters, llcs) = (firsts(&|c| self.claim_cluster(c)), firsts(&|c| self.claim_llc(c)));
        let nodes = firsts(&|c| self.claim_node(c));
        let of_llc = |c: u32| llcs[&clusters[&c]];
        let of_node = |c: u32| nodes[&of_llc(c)];
        let (isolated, near) = (!self.tree.online.contains(CpuId(p)), within == Within::Llc);
        if isolated && near {
            return vec![Cpus::from([p])];
        }
        let node = match isolated {
            true => self.claim_node(p).first().copied(),
            false => Some(of_node(p)),
        };
        let wanted = |&c: &u32| match within {
            Within::Llc => of_llc(c) == of_llc(p),
            Within::Node => Some(of_node(c)) == node,
            _ => true,
        };
        let mut listed: Vec<_> = online()
            .filter(|c| clusters[c] == *c)
            .filter(wanted)
            .map(|c| ((of_node(c), of_llc(c), c), self.claim_cluster(c)))
            .collect();
        listed.sort();
        listed.into_iter().map(|(_, cluster)| cluster).collect()
    }

    fn prop(&self, method: Method, w: &Wake, [div, floor, cap_floors]: [u32; 3], floor_threads: bool) -> i64 {
        let this = w.this as usize;
        let idle = if method == Method::PropAged { self.state.aged_idle[this] } else { self.state.avg_idle[this] };
        let avg_idle = idle / u64::from(div);
        let avg_cost = self.state.avg_scan_cost[this] + 1;
        let span_avg = self.llc(w.t).unwrap().len() as u64 * avg_idle;
        let mut floor = u64::from(floor);
        if floor_threads {
            floor = floor.max(self.smt(w.t).len() as u64);
        }
        let mut nr = if span_avg > floor * avg_cost { span_avg / avg_cost } else { floor };
        if method == Method::PropLimit {
            nr = nr.min(u64::from(cap_floors) * floor);
        }
        nr as i64
    }

    /// Pre-decrement; true when the budget has run out.
    fn charge(&self, w: &mut Wake) -> bool {
        if w.nr != i64::MAX {
            w.nr -= 1;
        }
        w.exhausted |= w.nr <= 0;
        w.nr <= 0
    }

    fn examine_core(&mut self, core: u32, pred: Pred, w: &mut Wake) -> bool {
        let mut idle = true;
        for c in self.smt(core) {
            self.examine(c, w);
            let in_cpus = w.cpus.as_ref().unwrap().contains(&c);
            if !self.avail(c) {
                idle = false;
                if w.cand.is_none() {
                    if self.sched_idle(pred, c) && in_cpus {
                        w.cand = Some(c);
                        break;
                    }
                    continue;
                }
                break;
            }
            if w.cand.is_none() && in_cpus {
                w.cand = Some(c);
            }
        }
        if !idle {
            let threads = self.smt(core);
            w.cpus.as_mut().unwrap().retain(|cpu| !threads.contains(cpu));
        }
        idle
    }

    fn merged(
        &mut self,
        start: Start,
        pred: Pred,
        takes: Takes,
        on_exhaust: OnExhaust,
        cost: Cost,
        w: &mut Wake,
    ) -> End {
        self.fill(w);
        let before = w.examined;
        let mut cpus = w.cpus.clone().unwrap();
        let mut best: Option<(usize, u32)> = None;
        for core in scan(&cpus.clone(), self.start(start, w)) {
            if !cpus.contains(&core) {
                continue;
            }
            if start == Start::NextCpu {
                self.state.next_cpu[w.t as usize] = Some(CpuId(core));
            }
            if self.charge(w) {
                return match (on_exhaust, best) {
                    (OnExhaust::ReturnBest, Some((_, cpu))) => End::Found(cpu),
                    _ => End::FailPhase,
                };
            }
            let threads = self.smt(core);
            for &thread in &threads {
                self.examine(thread, w);
            }
            let busy = threads.iter().filter(|&&thread| !self.good(pred, thread)).count();
            let first_idle = threads.iter().copied().find(|&thread| self.good(pred, thread) && self.allowed(thread));
            cpus.retain(|cpu| !threads.contains(cpu));
            if busy == 0 {
                self.book(cost, before, w);
                return End::Found(core);
            }
            if let Some(cpu) = first_idle
                && best.is_none_or(|(best_busy, _)| busy < best_busy)
            {
                best = Some((busy, if takes == Takes::FirstIdle { cpu } else { core }));
            }
        }
        self.book(cost, before, w);
        best.map_or(End::Continue, |(_, cpu)| End::Found(cpu))
    }

    fn asym(&mut self, ranks: Ranks, w: &mut Wake) -> End {
        let t = w.t;
        let Some(domain) = self.tree.cached[t as usize].sd_asym_cpucapacity.filter(|_| self.tree.asym_active) else {
            return End::Continue;
        };
        let span: Cpus = self.tree.span(self.tree.domain(domain).span).iter().map(|cpu| cpu.0).collect();
        let v72 = ranks == Ranks::V72;
        let cores = v72 && self.tree.smt_active && self.hint(t);
        let mut nr = i64::MAX;
        if v72 {
            nr = i64::from(self.state.nr_idle_scan[self.tree.cached[t as usize].llc_index as usize].unwrap()) + 1;
            if nr == 1 {
                w.exhausted = true;
                return End::Stop(t);
            }
        }
        let mut best: Option<((i64, i64), u32)> = None;
        for c in scan(&span, t) {
            if !self.allowed(c) {
                continue;
            }
            if !cores {
                nr -= 1;
                if nr == 0 {
                    w.exhausted = true;
                    break;
                }
            }
            self.examine(c, w);
            if !self.good(if v72 { Pred::Ok72 } else { Pred::Ok59 }, c) {
                continue;
            }
            let fits = self.state.fitting.contains(CpuId(c));
            let core_idle = self.smt(c).iter().all(|&thread| thread == c || self.avail(thread));
            let clamp = self.state.clamped.contains(CpuId(c));
            let rank = match (cores, core_idle, fits) {
                (true, true, true) | (false, _, true) => return End::Stop(c),
                (true, true, false) if clamp => -4,
                (true, true, false) => -3,
                (true, false, true) => -2,
                _ if clamp && ranks != Ranks::V59 => -1,
                _ => 0,
            };
            let key = (rank, -(self.state.capacity[c as usize] as i64));
            if best.is_none_or(|(least, _)| key < least) {
                best = Some((key, c));
            }
        }
        End::Stop(best.map_or(t, |(_, cpu)| cpu))
    }

    fn book(&mut self, cost: Cost, before: [u32; Distance::COUNT], w: &Wake) {
        if cost == Cost::None {
            return;
        }
        let this = w.this as usize;
        let examined: Vec<u32> = w.examined.iter().zip(before).map(|(now, before)| now - before).collect();
        let time = self.state.scan_time(&examined.try_into().unwrap());
        if cost == Cost::Aged {
            self.state.aged_idle[this] = self.state.aged_idle[this].saturating_sub(time);
        }
        let average = self.state.avg_scan_cost[this] as i64;
        self.state.avg_scan_cost[this] = (average + (time as i64 - average) / 8) as u64;
    }

    fn examine(&self, c: u32, w: &mut Wake) {
        w.examined[self.topology.distance(CpuId(w.this), CpuId(c)) as usize] += 1;
    }

    fn fill(&self, w: &mut Wake) {
        if w.cpus.is_none() {
            w.cpus = Some(self.llc_allowed(w.t));
        }
    }

    fn start(&self, start: Start, w: &Wake) -> u32 {
        match start {
            Start::Target => w.t,
            Start::AfterTarget => w.t + 1,
            Start::NextCpu => self.state.next_cpu[w.t as usize].map_or(w.t, |cpu| cpu.0),
            Start::Transposed => match (self.llc(w.t), self.llc(w.p)) {
                (Some(to), Some(from)) if !self.share_cache(w.t, w.p) => {
                    let index = from.iter().position(|&cpu| cpu == w.p).unwrap();
                    *to.iter().nth(index % to.len()).unwrap()
                }
                _ => w.t,
            },
        }
    }

    fn llc(&self, c: u32) -> Option<Cpus> {
        let id = self.tree.cached[c as usize].sd_llc?;
        Some(self.tree.span(self.tree.domain(id).span).iter().map(|cpu| cpu.0).collect())
    }

    fn llc_allowed(&self, t: u32) -> Cpus {
        self.llc(t).unwrap().into_iter().filter(|&cpu| self.allowed(cpu)).collect()
    }

    fn cluster(&self, src: ClusterSrc, t: u32) -> Option<Cpus> {
        let tree = self.tree;
        let span = match src {
            ClusterSrc::RawTopology => tree.cluster_raw[t as usize],
            ClusterSrc::ClusterDomain => {
                tree.chain(CpuId(t)).map(|id| tree.domain(id)).find(|domain| domain.flags.has(Flags::CLUSTER))?.span
            }
            ClusterSrc::LlcFirstGroup => {
                let group = tree.first_group(tree.cached[t as usize].sd_llc?);
                if !group.flags.has(Flags::CLUSTER) {
                    return None;
                }
                group.span
            }
        };
        Some(tree.span(span).iter().map(|cpu| cpu.0).collect())
    }

    fn smt(&self, c: u32) -> Cpus {
        self.tree.span(self.tree.smt[c as usize]).iter().map(|cpu| cpu.0).collect()
    }

    fn hint(&self, t: u32) -> bool {
        self.state.has_idle_cores[self.tree.cached[t as usize].llc_index as usize]
    }

    fn clear_hint(&mut self, t: u32) {
        self.state.has_idle_cores[self.tree.cached[t as usize].llc_index as usize] = false;
    }

    fn share_cache(&self, a: u32, b: u32) -> bool {
        a == b || self.tree.cached[a as usize].sd_llc_id == self.tree.cached[b as usize].sd_llc_id
    }

    fn share_lowest(&self, a: u32, b: u32) -> bool {
        a == b || self.tree.cached[a as usize].sd_share_id == self.tree.cached[b as usize].sd_share_id
    }

    fn allowed(&self, c: u32) -> bool {
        self.state.allowed.contains(CpuId(c))
    }

    fn avail(&self, c: u32) -> bool {
        self.state.idle.contains(CpuId(c))
    }

    fn sched_idle(&self, pred: Pred, c: u32) -> bool {
        match pred {
            Pred::Idle | Pred::Avail => false,
            Pred::Ok59 => self.state.sched_idle.contains(CpuId(c)),
            Pred::Ok72 => self.state.sched_idle.contains(CpuId(c)) && !self.state.wakee_is_sched_idle,
        }
    }

    fn good(&self, pred: Pred, c: u32) -> bool {
        self.avail(c) || self.sched_idle(pred, c)
    }

    fn fits(&self, asked: bool, c: u32) -> bool {
        !asked || !self.tree.asym_active || self.state.fitting.contains(CpuId(c))
    }
}
