//! The interpreter: where a wake-up goes.
//!
//! Mirrors `kernel/sched/fair.c` (`select_task_rq_fair`, `wake_wide`, `wake_affine*`, `select_idle_sibling`) and the part of
//! `kernel/sched/core.c` around it (`select_task_rq`), 4.17 … 7.2, as the record says.

use huddle_machine::{CpuId, Distance};

use crate::plan::{Plan, Scratch};
use crate::scan::Scanned;
use crate::{
    AffineRule, Anchor, ClusterCondition, ClusterSrc, Cost, EntryAnchor, Event, Kept, Method, NoTrace, Placement, Pred,
    Share, SmtCondition, Start, Step, Tracer, Undecidable, Update, View, Wakeup,
};

/// No limit on the CPUs that scans may examine.
pub(crate) const UNLIMITED: u32 = u32::MAX;

/// What a step comes to.
pub(crate) enum Flow {
    /// The next step.
    Continue,
    /// The search ends here.
    End(CpuId),
    /// The scans that remain are left out.
    LeaveScans,
}

impl Flow {
    #[inline]
    pub(crate) fn found(cpu: Option<CpuId>) -> Flow {
        cpu.map_or(Flow::Continue, Flow::End)
    }
}

/// One decision in the making.
pub(crate) struct Decision<'a, V, T> {
    pub(crate) plan: &'a Plan,
    pub(crate) view: &'a mut V,
    pub(crate) trace: &'a mut T,
    /// Candidates of the scans by word of the target's LLC span.
    pub(crate) cpus: &'a mut Vec<u64>,
    pub(crate) this: CpuId,
    pub(crate) prev: CpuId,
    pub(crate) target: CpuId,
    pub(crate) sync: bool,
    /// `cpus` holds the candidates that the scans share.
    pub(crate) ready: bool,
    /// Idle cores are hinted: look for a whole one.
    pub(crate) hic: bool,
    /// CPUs that charged scans may still examine.
    pub(crate) left: u32,
    /// The first CPU that would do, met while looking for a whole core.
    pub(crate) candidate: Option<CpuId>,
    kept_prev: Option<CpuId>,
    kept_recent: Option<CpuId>,
    pub(crate) exhausted: bool,
    pub(crate) examined: [u32; Distance::COUNT],
}

impl Plan {
    /// Places a wake-up: `select_task_rq` with the entry rule, the steps and the core's rules around them. A plain wake-up never
    /// takes the slow path, since no domain has SD_BALANCE_WAKE.
    ///
    /// # Errors
    /// When a step needs what the view does not know, or a CPU of the wake-up is beyond the machine.
    #[inline]
    pub fn place<V: View>(
        &self,
        view: &mut V,
        wakeup: &Wakeup,
        scratch: &mut Scratch,
    ) -> Result<Placement, Undecidable> {
        self.place_traced(view, wakeup, scratch, &mut NoTrace)
    }

    /// [`Plan::place`], told to a tracer.
    ///
    /// # Errors
    /// As [`Plan::place`].
    pub fn place_traced<V: View, T: Tracer>(
        &self,
        view: &mut V,
        wakeup: &Wakeup,
        scratch: &mut Scratch,
        trace: &mut T,
    ) -> Result<Placement, Undecidable> {
        self.check(wakeup, wakeup.prev)?;
        if let Some(only) = self.only_allowed(view) {
            trace.event(Event::Overruled(only));
            return Ok(by_core(only, self.steps.len()));
        }
        let (target, wide, asked) = self.target(view, wakeup, trace)?;
        if asked {
            return Ok(by_core(target, self.steps.len()));
        }
        let placement = self.place_on_target_traced(view, wakeup, target, scratch, trace)?;
        Ok(Placement { wide, ..placement })
    }

    /// [`Plan::place_traced`] without the entry rule, for a target that is already chosen: the steps, and the core's choice when
    /// theirs is outside the affinity.
    ///
    /// # Errors
    /// As [`Plan::place`].
    pub fn place_on_target_traced<V: View, T: Tracer>(
        &self,
        view: &mut V,
        wakeup: &Wakeup,
        target: CpuId,
        scratch: &mut Scratch,
        trace: &mut T,
    ) -> Result<Placement, Undecidable> {
        let placement = self.select_traced(view, wakeup, target, scratch, trace)?;
        Ok(self.held_to_affinity(view, wakeup.prev, placement, self.steps.len(), trace))
    }

    /// Places a forked task, or one that execs, by the record's fork steps: `this` and `prev` are the CPU that forks, `sync` is not
    /// read, the target is prev. `None` when the record has no such steps. [`Placement::step`] counts the fork steps.
    ///
    /// # Errors
    /// As [`Plan::place`].
    #[inline]
    pub fn place_fork<V: View>(
        &self,
        view: &mut V,
        wakeup: &Wakeup,
        scratch: &mut Scratch,
    ) -> Option<Result<Placement, Undecidable>> {
        self.place_fork_traced(view, wakeup, scratch, &mut NoTrace)
    }

    /// [`Plan::place_fork`], told to a tracer.
    ///
    /// # Errors
    /// As [`Plan::place`].
    pub fn place_fork_traced<V: View, T: Tracer>(
        &self,
        view: &mut V,
        wakeup: &Wakeup,
        scratch: &mut Scratch,
        trace: &mut T,
    ) -> Option<Result<Placement, Undecidable>> {
        let steps = self.fork.as_deref()?;
        Some(self.check(wakeup, wakeup.prev).and_then(|()| {
            if let Some(only) = self.only_allowed(view) {
                trace.event(Event::Overruled(only));
                return Ok(by_core(only, steps.len()));
            }
            let placement = self.run(steps, view, wakeup, wakeup.prev, scratch, trace)?;
            Ok(self.held_to_affinity(view, wakeup.prev, placement, steps.len(), trace))
        }))
    }

    /// The placement, or the core's choice when it is outside the affinity (`select_task_rq`).
    fn held_to_affinity<V: View, T: Tracer>(
        &self,
        view: &V,
        prev: CpuId,
        mut placement: Placement,
        nr_steps: usize,
        trace: &mut T,
    ) -> Placement {
        if !allowed(view, placement.cpu)
            && let Some(cpu) = self.fallback(view, prev)
        {
            trace.event(Event::Overruled(cpu));
            placement.cpu = cpu;
            placement.step = nr_steps as u8;
        }
        placement
    }

    /// The steps alone, for a target that is already chosen (`select_idle_sibling`).
    ///
    /// # Errors
    /// As [`Plan::place`].
    #[inline]
    pub fn select<V: View>(
        &self,
        view: &mut V,
        wakeup: &Wakeup,
        target: CpuId,
        scratch: &mut Scratch,
    ) -> Result<Placement, Undecidable> {
        self.select_traced(view, wakeup, target, scratch, &mut NoTrace)
    }

    /// [`Plan::select`], told to a tracer.
    ///
    /// # Errors
    /// As [`Plan::place`].
    pub fn select_traced<V: View, T: Tracer>(
        &self,
        view: &mut V,
        wakeup: &Wakeup,
        target: CpuId,
        scratch: &mut Scratch,
        trace: &mut T,
    ) -> Result<Placement, Undecidable> {
        self.check(wakeup, target)?;
        self.run(&self.steps, view, wakeup, target, scratch, trace)
    }

    /// Runs a list of steps.
    fn run<V: View, T: Tracer>(
        &self,
        steps: &[Step],
        view: &mut V,
        wakeup: &Wakeup,
        target: CpuId,
        scratch: &mut Scratch,
        trace: &mut T,
    ) -> Result<Placement, Undecidable> {
        if scratch.cpus.len() < self.nr_words {
            scratch.cpus.resize(self.nr_words, 0);
        }
        let mut decision = Decision {
            plan: self,
            view,
            trace,
            cpus: &mut scratch.cpus,
            this: wakeup.this,
            prev: wakeup.prev,
            target,
            sync: wakeup.sync,
            ready: false,
            hic: false,
            left: UNLIMITED,
            candidate: None,
            kept_prev: None,
            kept_recent: None,
            exhausted: false,
            examined: [0; Distance::COUNT],
        };
        let (step, cpu) = decision.run(steps)?;
        let (exhausted, examined) = (decision.exhausted, decision.examined);
        Ok(Placement { cpu, target, step: step as u8, wide: false, exhausted, examined })
    }

    fn check(&self, wakeup: &Wakeup, target: CpuId) -> Result<(), Undecidable> {
        let last = self.cpus.len();
        match wakeup.this.index() < last && wakeup.prev.index() < last && target.index() < last {
            true => Ok(()),
            false => Err(Undecidable("a CPU beyond the machine")),
        }
    }

    /// The entry rule: the target, whether the wake-up is wide, and whether it asked for this CPU and gets it.
    fn target<V: View, T: Tracer>(
        &self,
        view: &mut V,
        &Wakeup { this, prev, sync }: &Wakeup,
        trace: &mut T,
    ) -> Result<(CpuId, bool, bool), Undecidable> {
        let this_allowed = allowed(view, this);
        if self.entry.prefer_current_hint && view.prefers_current_cpu() && this_allowed {
            trace.event(Event::Target { rule: AffineRule::CurrentCpu, target: this });
            return Ok((this, false, true));
        }
        if self.entry.anchor == EntryAnchor::Prev {
            trace.event(Event::Target { rule: AffineRule::AlwaysPrev, target: prev });
            return Ok((prev, false, false));
        }
        if self.entry.wide {
            let waker_flips = view.waker_flips().ok_or(Undecidable("wakee_flips of the waker"))?;
            let wakee_flips = view.wakee_flips().ok_or(Undecidable("wakee_flips of the wakee"))?;
            let factor = self.cpus[this.index()].llc_size;
            let wide = wake_wide(waker_flips, wakee_flips, factor);
            trace.event(Event::Wide { waker_flips, wakee_flips, factor, wide });
            if wide {
                trace.event(Event::Target { rule: AffineRule::Wide, target: prev });
                return Ok((prev, true, false));
            }
        }
        let mut choose = |rule, target| {
            trace.event(Event::Target { rule, target });
            Ok((target, false, false))
        };
        if !this_allowed {
            return choose(AffineRule::ThisNotAllowed, prev);
        }
        if self.entry.set_waker_recent {
            view.set_waker_recent(this);
        }
        if self.entry.anchor == EntryAnchor::Waker {
            let (rule, target) = self.near_waker(view, this, prev, sync)?;
            return choose(rule, target);
        }
        match self.affine(this).iter().find(|domain| self.contains(domain.span, prev)) {
            None => choose(AffineRule::NoDomain, prev),
            Some(_) if this == prev => choose(AffineRule::SameCpu, prev),
            Some(domain) => {
                let (rule, target) = self.wake_affine(view, this, prev, sync, domain.imbalance_pct)?;
                choose(rule, target)
            }
        }
    }

    /// The rule of a policy that gathers: this CPU unless that would pull the wakee to another LLC for a waker that stays.
    fn near_waker<V: View>(
        &self,
        view: &V,
        this: CpuId,
        prev: CpuId,
        sync: bool,
    ) -> Result<(AffineRule, CpuId), Undecidable> {
        if this == prev {
            return Ok((AffineRule::SameCpu, prev));
        }
        if self.share_llc(this, prev) {
            return Ok((AffineRule::ThisNear, this));
        }
        if sync && view.nr_running(this).ok_or(Undecidable("nr_running of this CPU"))? == 1 {
            return Ok((AffineRule::SyncAlone, this));
        }
        Ok((AffineRule::PrevFar, prev))
    }

    /// `wake_affine`: this CPU or the previous one.
    fn wake_affine<V: View>(
        &self,
        view: &V,
        this: CpuId,
        prev: CpuId,
        sync: bool,
        imbalance_pct: u32,
    ) -> Result<(AffineRule, CpuId), Undecidable> {
        if idle(view, this) && self.share_llc(this, prev) {
            return Ok(if idle(view, prev) { (AffineRule::BothIdle, prev) } else { (AffineRule::ThisIdle, this) });
        }
        if sync {
            let mut running = view.nr_running(this).ok_or(Undecidable("nr_running of this CPU"))?;
            if self.entry.sync_minus_delayed {
                let delayed = view.nr_delayed(this).ok_or(Undecidable("delayed tasks of this CPU"))?;
                running = running.saturating_sub(delayed);
            }
            if running == 1 {
                return Ok((AffineRule::SyncAlone, this));
            }
        }
        if self.entry.affine_idle_prev && idle(view, prev) {
            return Ok((AffineRule::PrevIdle, prev));
        }
        wake_affine_weight(view, this, prev, sync, imbalance_pct)
    }

    /// The only CPU of the wakee, if it has no more: then no policy is asked.
    #[inline]
    fn only_allowed<V: View>(&self, view: &V) -> Option<CpuId> {
        let mut only = None;
        for word in 0..self.nr_words {
            let bits = view.allowed_word(word);
            if bits != 0 {
                if only.is_some() || bits & (bits - 1) != 0 {
                    return None;
                }
                only = Some(CpuId::from(64 * word + bits.trailing_zeros() as usize));
            }
        }
        only
    }

    /// `select_fallback_rq`: the first allowed CPU of the previous CPU's node, else of all.
    fn fallback<V: View>(&self, view: &V, prev: CpuId) -> Option<CpuId> {
        let first = |words: &mut dyn Iterator<Item = (usize, u64)>| {
            words
                .map(|(word, bits)| (word, bits & view.allowed_word(word)))
                .find(|&(_, bits)| bits != 0)
                .map(|(word, bits)| CpuId::from(64 * word + bits.trailing_zeros() as usize))
        };
        first(&mut self.words(self.cpus[prev.index()].node))
            .or_else(|| first(&mut (0..self.nr_words).map(|word| (word, u64::MAX))))
    }
}

/// A placement by the core's own rules around `nr_steps` steps.
fn by_core(cpu: CpuId, nr_steps: usize) -> Placement {
    Placement { cpu, target: cpu, step: nr_steps as u8, wide: false, exhausted: false, examined: [0; Distance::COUNT] }
}

/// `wake_wide`: waker and wakee both switch partners so often that gathering would crowd an LLC of `factor` CPUs.
fn wake_wide(waker_flips: u32, wakee_flips: u32, factor: u32) -> bool {
    let (slave, master) = (waker_flips.min(wakee_flips), waker_flips.max(wakee_flips));
    slave >= factor && u64::from(master) >= u64::from(slave) * u64::from(factor)
}

/// `wake_affine_weight`, in the kernel's signed 64-bit arithmetic. DEVIATION: 4.17 compares `target_load`, docs/model.md 3.7.
fn wake_affine_weight<V: View>(
    view: &V,
    this: CpuId,
    prev: CpuId,
    sync: bool,
    imbalance_pct: u32,
) -> Result<(AffineRule, CpuId), Undecidable> {
    let load = |cpu| Ok(view.cpu_load(cpu).ok_or(Undecidable("load of a CPU"))? as i64);
    let capacity = |cpu| Ok(view.capacity(cpu).ok_or(Undecidable("capacity of a CPU"))? as i64);
    let wakee = view.wakee_load().ok_or(Undecidable("load of the wakee"))? as i64;
    let mut this_load = load(this)?;
    if sync {
        let waker = view.waker_load().ok_or(Undecidable("load of the waker"))? as i64;
        if waker > this_load {
            return Ok((AffineRule::SyncLoad, this));
        }
        this_load -= waker;
    }
    let margin = 100 + (i64::from(imbalance_pct) - 100) / 2;
    let this_eff = this_load.wrapping_add(wakee).wrapping_mul(100).wrapping_mul(capacity(prev)?);
    let prev_eff = load(prev)?.wrapping_sub(wakee).wrapping_mul(margin).wrapping_mul(capacity(this)?);
    let prev_eff = prev_eff.wrapping_add(i64::from(sync));
    let rule = AffineRule::Weight { this: this_eff, prev: prev_eff };
    Ok((rule, if this_eff < prev_eff { this } else { prev }))
}

#[inline]
pub(crate) fn bit(word: u64, cpu: CpuId) -> bool {
    word >> (cpu.index() % 64) & 1 != 0
}

#[inline]
fn idle<V: View>(view: &V, cpu: CpuId) -> bool {
    bit(view.idle_word(cpu.index() / 64), cpu)
}

#[inline]
pub(crate) fn allowed<V: View>(view: &V, cpu: CpuId) -> bool {
    bit(view.allowed_word(cpu.index() / 64), cpu)
}

impl<V: View, T: Tracer> Decision<'_, V, T> {
    /// Runs the steps: the deciding one and its CPU.
    fn run(&mut self, steps: &[Step]) -> Result<(usize, CpuId), Undecidable> {
        let mut index = 0;
        while let Some(step) = steps.get(index) {
            self.trace.event(Event::Step(index));
            let before = self.left;
            let flow = self.step(step)?;
            if step.is_scan() && self.left != before {
                self.trace.event(Event::Left(self.left));
            }
            match flow {
                Flow::Continue => index += 1,
                Flow::LeaveScans => index = self.plan.after_scans,
                Flow::End(cpu) => {
                    self.trace.event(Event::Decided(cpu));
                    return Ok((index, cpu));
                }
            }
        }
        // The reader refuses records that do not end with ReturnTarget or ReturnPrev; one built in code ends with the target.
        Ok((steps.len().saturating_sub(1), self.target))
    }

    #[inline]
    fn step(&mut self, step: &Step) -> Result<Flow, Undecidable> {
        match *step {
            Step::TargetIdle { pred, fits } => {
                let good = self.tested(self.target, pred, fits)?;
                Ok(Flow::found(good.then_some(self.target)))
            }
            Step::PrevIdle { share, keep, pred, fits } => self.prev_idle(share, keep, pred, fits),
            Step::KthreadStack { fits } => self.kthread_stack(fits),
            Step::RecentIdle { share, keep, update, pred, fits } => self.recent_idle(share, keep, update, pred, fits),
            Step::AsymScan { ranks } => self.asym_scan(ranks),
            Step::NeedLlc => match self.plan.cpus[self.target.index()].llc {
                Some(_) => Ok(Flow::Continue),
                None => Ok(Flow::End(self.target)),
            },
            Step::IdleCore { start, pred } => self.idle_core(start, pred),
            Step::ReadHic => {
                self.hic = self.plan.smt_active && self.hint()?;
                self.trace.event(Event::Hint(self.hic));
                Ok(Flow::Continue)
            }
            Step::IdleSmt { anchor, incl_anchor, cond, in_llc, pred } => {
                Ok(self.idle_smt(anchor, incl_anchor, cond, in_llc, pred))
            }
            Step::Budget { method, div, floor, floor_threads, cap_floors, fail_if_empty } => {
                let floor = match floor_threads {
                    true => floor.max(self.plan.cpus[self.target.index()].smt.weight),
                    false => floor,
                };
                let limits = Limits { div, floor, cap: cap_floors.saturating_mul(floor) };
                self.budget(method, limits, fail_if_empty)
            }
            Step::ScanCluster { src, start, pred, charge, remove, cores, only_if } => {
                self.scan_cluster(src, start, pred, charge, remove, cores, only_if)
            }
            Step::ScanLlc { start, pred, cores, charge, charge_disallowed: _, cost } => {
                self.scan_llc(start, pred, cores, charge, cost)
            }
            Step::ScanMerged { start, pred, takes, on_exhaust, cost } => {
                self.scan_merged(start, pred, takes, on_exhaust, cost)
            }
            Step::TakeKept { ref order } => {
                let kept = order.iter().find_map(|kept| match kept {
                    Kept::Prev => self.kept_prev,
                    Kept::Recent => self.kept_recent,
                });
                Ok(Flow::found(kept))
            }
            Step::ClaimPrev { within, core, no_busier, disallowed } => {
                self.claim_prev(within, core, no_busier, disallowed)
            }
            Step::ClaimAny { within, core, charge, rotate } => self.claim_any(within, core, charge, rotate),
            Step::ClaimSmt => self.claim_smt(),
            Step::SyncClaimPrev => self.sync_claim_prev(),
            Step::SyncWaker => self.sync_waker(),
            Step::ClaimIdlest { within, core } => self.claim_idlest(within, core),
            Step::SyncStack => self.sync_stack(),
            Step::ReturnTarget => Ok(Flow::End(self.target)),
            Step::ReturnPrev => Ok(Flow::End(self.prev)),
        }
    }

    fn prev_idle(&mut self, share: Share, keep: bool, pred: Pred, fits: bool) -> Result<Flow, Undecidable> {
        let (target, prev) = (self.target, self.prev);
        if prev == target {
            return Ok(self.skip("prev is the target"));
        }
        if !self.shares(prev, share, keep) {
            return Ok(self.skip("prev shares too little with the target"));
        }
        if !self.tested(prev, pred, fits)? {
            return Ok(Flow::Continue);
        }
        if share == Share::Lowest && !self.plan.share_lowest(prev, target) {
            self.kept_prev = Some(prev);
            self.trace.event(Event::Kept(prev));
            return Ok(Flow::Continue);
        }
        Ok(Flow::End(prev))
    }

    /// Whether the CPU is near enough to the target to be tested at all.
    fn shares(&self, cpu: CpuId, share: Share, keep: bool) -> bool {
        match share {
            Share::Lowest if !keep => self.plan.share_lowest(cpu, self.target),
            Share::Lowest | Share::Llc => self.plan.share_llc(cpu, self.target),
        }
    }

    /// A per-CPU kernel thread wakes what it has just finished work for: stay with it.
    fn kthread_stack(&mut self, fits: bool) -> Result<Flow, Undecidable> {
        if !self.view.waker_is_per_cpu_kthread() {
            return Ok(self.skip("the waker is no per-CPU kernel thread"));
        }
        if self.prev != self.this {
            return Ok(self.skip("prev is not this CPU"));
        }
        let running = self.view.nr_running(self.prev).ok_or(Undecidable("nr_running of this CPU"))?;
        let good = running <= 1 && self.fits(self.prev, fits)?;
        self.trace.event(Event::Tested { cpu: self.prev, good });
        Ok(Flow::found(good.then_some(self.prev)))
    }

    fn recent_idle(
        &mut self,
        share: Share,
        keep: bool,
        update: Update,
        pred: Pred,
        fits: bool,
    ) -> Result<Flow, Undecidable> {
        let recent = self.view.recent().filter(|recent| recent.index() < self.plan.cpus.len());
        if update == Update::Always {
            self.view.set_recent(self.prev);
        }
        let Some(recent) = recent else { return Ok(self.skip("no recent CPU")) };
        if recent == self.prev || recent == self.target {
            return Ok(self.skip("recent is prev or the target"));
        }
        if !self.shares(recent, share, keep) {
            return Ok(self.skip("recent shares too little with the target"));
        }
        if !allowed(self.view, recent) {
            return Ok(self.skip("recent is outside the affinity"));
        }
        if !self.tested(recent, pred, fits)? {
            return Ok(Flow::Continue);
        }
        if share == Share::Lowest && !self.plan.share_lowest(recent, self.target) {
            self.kept_recent = Some(recent);
            self.trace.event(Event::Kept(recent));
            return Ok(Flow::Continue);
        }
        if update == Update::OnHit {
            self.view.set_recent(self.prev);
        }
        Ok(Flow::End(recent))
    }

    fn idle_smt(&mut self, anchor: Anchor, incl_anchor: bool, cond: SmtCondition, in_llc: bool, pred: Pred) -> Flow {
        if !self.plan.smt_active {
            return self.skip("no SMT");
        }
        if cond == SmtCondition::NoHicAndShareLlc {
            if self.hic {
                return self.skip("idle cores are hinted");
            }
            if !self.plan.share_llc(self.prev, self.target) {
                return self.skip("prev is in another LLC");
            }
        }
        let anchor = match anchor {
            Anchor::Target => self.target,
            Anchor::Prev => self.prev,
        };
        let threads = self.plan.cpus[anchor.index()].smt;
        let within = self.plan.cpus[self.target.index()].llc.filter(|_| in_llc);
        let found = self.first_good(threads, pred, |plan, word| {
            let llc = within.map_or(u64::MAX, |llc| plan.word(llc, word));
            let own = if !incl_anchor && anchor.index() / 64 == word { 1 << (anchor.index() % 64) } else { 0 };
            llc & !own
        });
        Flow::found(found)
    }

    /// Sets what charged scans may examine. A budget of `nr` is counted down before each CPU and ends the scan at zero: it
    /// examines `nr - 1`.
    fn budget(&mut self, method: Method, limits: Limits, fail_if_empty: bool) -> Result<Flow, Undecidable> {
        let target = &self.plan.cpus[self.target.index()];
        let Some(llc) = target.llc else { return Ok(Flow::Continue) };
        let llc_index = target.llc_index;
        match method {
            Method::None => {}
            Method::Util => {
                let nr = self.view.nr_idle_scan(llc_index).ok_or(Undecidable("nr_idle_scan of the LLC"))?;
                self.left = nr.min(UNLIMITED - 1);
                if nr == 0 {
                    self.trace.event(Event::Budget(Some(0)));
                    self.exhaust();
                    return Ok(Flow::LeaveScans);
                }
            }
            Method::Prop | Method::PropLimit | Method::PropAged => {
                // The scan's cost is kept in this CPU's LLC domain, not the target's; without one there is no scan.
                if self.plan.cpus[self.this.index()].llc.is_none() {
                    self.skip("this CPU has no LLC domain: no scans");
                    return Ok(Flow::LeaveScans);
                }
                if !self.hic {
                    self.left = self.proportional(method, limits, llc.weight)? - 1;
                }
            }
        }
        self.trace.event(Event::Budget((self.left != UNLIMITED).then_some(self.left)));
        if fail_if_empty {
            self.prepare();
            if self.cpus[..llc.len as usize].iter().all(|&word| word == 0) {
                self.skip("no CPU of the LLC is in the affinity: no scans");
                return Ok(Flow::LeaveScans);
            }
        }
        Ok(Flow::Continue)
    }

    /// `SIS_PROP`: the idle time expected of the LLC's CPUs over what examining one costs. At least 1.
    fn proportional(&mut self, method: Method, limits: Limits, weight: u32) -> Result<u32, Undecidable> {
        let idle_time = match method {
            Method::PropAged => self.view.aged_idle(self.this).ok_or(Undecidable("aged idle time of this CPU"))?,
            _ => self.view.avg_idle(self.this).ok_or(Undecidable("avg_idle of this CPU"))?,
        };
        let cost = self.view.avg_scan_cost(self.this).ok_or(Undecidable("avg_scan_cost of this CPU's LLC"))?;
        let cost = cost.saturating_add(1);
        let span_avg = u64::from(weight).saturating_mul(idle_time / u64::from(limits.div));
        let floor = u64::from(limits.floor);
        let mut nr = if span_avg > floor.saturating_mul(cost) { span_avg / cost } else { floor };
        if method == Method::PropLimit {
            nr = nr.min(u64::from(limits.cap));
        }
        // The kernel keeps the quotient in an int; above that no machine has CPUs.
        Ok(nr.clamp(1, u64::from(i32::MAX as u32)) as u32)
    }

    #[allow(clippy::too_many_arguments)] // the step's parameters
    fn scan_cluster(
        &mut self,
        src: ClusterSrc,
        start: Start,
        pred: Pred,
        charge: bool,
        remove: bool,
        cores: bool,
        only_if: ClusterCondition,
    ) -> Result<Flow, Undecidable> {
        match only_if {
            ClusterCondition::NoSmt if self.plan.smt_active => return Ok(self.skip("SMT is on")),
            ClusterCondition::ClusterKey if !self.plan.cluster_active => return Ok(self.skip("no cluster domains")),
            _ => {}
        }
        let target = &self.plan.cpus[self.target.index()];
        let (cluster, raw) = match src {
            ClusterSrc::RawTopology => (Some(target.cluster_raw), true),
            ClusterSrc::ClusterDomain => (target.cluster_domain, false),
            ClusterSrc::LlcFirstGroup => (target.llc_first_group, false),
        };
        let Some(cluster) = cluster else { return Ok(self.skip("the target has no cluster")) };
        if !raw || remove || cores {
            self.prepare();
        }
        let start = self.start(start);
        if cores && self.hic {
            if let Some(core) = self.scan_cores(cluster, start, pred) {
                return Ok(Flow::End(core));
            }
        } else {
            match self.scan(cluster, raw, start, pred, charge) {
                Scanned::Found(cpu) => return Ok(Flow::End(cpu)),
                Scanned::Exhausted => return Ok(Flow::LeaveScans),
                Scanned::Nothing => {}
            }
        }
        if remove {
            self.remove(cluster);
        }
        Ok(Flow::Continue)
    }

    fn scan_llc(
        &mut self,
        start: Start,
        pred: Pred,
        cores: bool,
        charge: bool,
        cost: Cost,
    ) -> Result<Flow, Undecidable> {
        let Some(llc) = self.plan.cpus[self.target.index()].llc else { return Ok(Flow::Continue) };
        self.prepare();
        let from = self.start(start);
        if cores && self.hic {
            if let Some(core) = self.scan_cores(llc, from, pred) {
                return Ok(Flow::End(core));
            }
            self.clear_hint();
            return Ok(Flow::found(self.candidate));
        }
        let before = self.examined;
        let scanned = match start {
            Start::NextCpu => self.scan_remembering(llc, from, pred, charge),
            _ => self.scan(llc, false, from, pred, charge),
        };
        match scanned {
            // An exhausted scan leaves before its time is booked.
            Scanned::Exhausted => Ok(Flow::LeaveScans),
            Scanned::Found(cpu) => {
                self.book(cost, &before)?;
                Ok(Flow::End(cpu))
            }
            Scanned::Nothing => {
                self.book(cost, &before)?;
                // A candidate can only come from a core search, which sets it where this step looks for cores too.
                Ok(Flow::Continue)
            }
        }
    }

    /// Books the time of the CPUs examined since `before`.
    pub(crate) fn book(&mut self, cost: Cost, before: &[u32; Distance::COUNT]) -> Result<(), Undecidable> {
        if cost == Cost::None {
            return Ok(());
        }
        let mut examined = self.examined;
        for (count, before) in examined.iter_mut().zip(before) {
            *count -= before;
        }
        let time = self.view.scan_time(&examined);
        if cost == Cost::Aged {
            self.view.charge_aged_idle(self.this, time);
        }
        let average = self.view.avg_scan_cost(self.this).ok_or(Undecidable("avg_scan_cost of this CPU's LLC"))?;
        // `update_avg`: a signed difference, divided by 8 towards zero.
        let change = (time as i64).wrapping_sub(average as i64) / 8;
        self.view.set_avg_scan_cost(self.this, average.wrapping_add_signed(change));
        Ok(())
    }

    pub(crate) fn clear_hint(&mut self) {
        self.view.set_has_idle_cores(self.plan.cpus[self.target.index()].llc_index, false);
        self.trace.event(Event::HintCleared);
    }

    /// The hint word of the target's LLC.
    pub(crate) fn hint(&self) -> Result<bool, Undecidable> {
        let llc = self.plan.cpus[self.target.index()].llc_index;
        self.view.has_idle_cores(llc).ok_or(Undecidable("the idle-core hint of the LLC"))
    }

    /// The budget has run out.
    pub(crate) fn exhaust(&mut self) {
        self.trace.event(Event::Exhausted);
        self.exhausted = true;
    }

    pub(crate) fn skip(&mut self, why: &'static str) -> Flow {
        self.trace.event(Event::Skipped(why));
        Flow::Continue
    }

    /// Tests a single CPU.
    fn tested(&mut self, cpu: CpuId, pred: Pred, fits: bool) -> Result<bool, Undecidable> {
        let good = bit(self.pred_word(pred, cpu.index() / 64), cpu) && self.fits(cpu, fits)?;
        self.trace.event(Event::Tested { cpu, good });
        Ok(good)
    }

    /// Whether the CPU's capacity fits the wakee, where capacities differ and the step asks.
    fn fits(&self, cpu: CpuId, asked: bool) -> Result<bool, Undecidable> {
        if !asked || !self.plan.asym_active {
            return Ok(true);
        }
        self.view.fits(cpu).ok_or(Undecidable("whether a CPU fits the wakee"))
    }
}

/// The numbers of a proportional budget.
struct Limits {
    div: u32,
    floor: u32,
    cap: u32,
}
