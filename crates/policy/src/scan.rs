//! Scans over many CPUs, as operations on words of 64.

use huddle_machine::CpuId;

use crate::place::{Decision, Flow, UNLIMITED};
use crate::plan::{Mask, Plan, REACHES, nth_bit};
use crate::{Cost, Event, OnExhaust, Pred, Ranks, Start, Takes, Tracer, Undecidable, View};

/// What a scan comes to.
pub(crate) enum Scanned {
    Found(CpuId),
    Nothing,
    Exhausted,
}

#[inline]
pub(crate) fn cpu_at(word: usize, bit: u32) -> CpuId {
    CpuId::from(64 * word + bit as usize)
}

/// Bits up to and including `bit`.
#[inline]
pub(crate) fn through(bit: u32) -> u64 {
    u64::MAX >> (63 - bit)
}

impl<V: View, T: Tracer> Decision<'_, V, T> {
    /// CPUs of a word for which the predicate holds.
    #[inline]
    pub(crate) fn pred_word(&self, pred: Pred, word: usize) -> u64 {
        match pred {
            Pred::Idle | Pred::Avail => self.view.idle_word(word),
            _ => self.view.idle_word(word) | self.sched_idle_word(pred, word),
        }
    }

    /// CPUs of a word for which the predicate holds though they are not idle.
    #[inline]
    fn sched_idle_word(&self, pred: Pred, word: usize) -> u64 {
        match pred {
            Pred::Idle | Pred::Avail => 0,
            Pred::Ok59 => self.view.sched_idle_word(word),
            Pred::Ok72 if self.view.wakee_is_sched_idle() => 0,
            Pred::Ok72 => self.view.sched_idle_word(word),
        }
    }

    /// The CPU number at which a scan starts; one beyond the last wraps.
    pub(crate) fn start(&self, start: Start) -> u32 {
        match start {
            Start::Target => self.target.0,
            Start::AfterTarget => self.target.0 + 1,
            Start::NextCpu => self.view.next_cpu(self.target).unwrap_or(self.target).0,
            Start::Transposed => self.transposed().0,
        }
    }

    /// The CPU of the target's LLC at the position that prev has in its own; the target when both are in one LLC.
    fn transposed(&self) -> CpuId {
        let plan = self.plan;
        let (of_target, of_prev) = (plan.cpus[self.target.index()].llc, plan.cpus[self.prev.index()].llc);
        let (Some(to), Some(from)) = (of_target, of_prev) else { return self.target };
        if plan.share_llc(self.target, self.prev) {
            return self.target;
        }
        let (turn, bit) = (self.prev.index() / 64, self.prev.index() % 64);
        let below = |(word, bits): (usize, u64)| match word.cmp(&turn) {
            std::cmp::Ordering::Less => bits.count_ones(),
            std::cmp::Ordering::Equal => (bits & !(u64::MAX << bit)).count_ones(),
            std::cmp::Ordering::Greater => 0,
        };
        let mut position = plan.words(from).map(below).sum::<u32>() % to.weight;
        for (word, bits) in plan.words(to) {
            let ones = bits.count_ones();
            if position < ones {
                return cpu_at(word, nth_bit(bits, position));
            }
            position -= ones;
        }
        self.target
    }

    /// Fills the candidates that the scans share, once: the target's LLC within the wakee's affinity.
    #[inline]
    pub(crate) fn prepare(&mut self) {
        if !self.ready {
            self.fill(!self.plan.walk_disallowed);
            self.ready = true;
        }
    }

    #[inline]
    fn fill(&mut self, within_affinity: bool) {
        let plan = self.plan;
        let Some(llc) = plan.cpus[self.target.index()].llc else { return };
        for (slot, (word, bits)) in self.cpus.iter_mut().zip(plan.words(llc)) {
            *slot = if within_affinity { bits & self.view.allowed_word(word) } else { bits };
        }
    }

    /// The candidates of a word.
    #[inline]
    fn candidates(&self, word: usize) -> u64 {
        let Some(llc) = self.plan.cpus[self.target.index()].llc else { return 0 };
        let offset = word.wrapping_sub(llc.first as usize);
        if offset < llc.len as usize { self.cpus[offset] } else { 0 }
    }

    /// Takes CPUs out of the candidates.
    #[inline]
    pub(crate) fn remove(&mut self, gone: Mask) {
        let Some(llc) = self.plan.cpus[self.target.index()].llc else { return };
        for (word, bits) in self.plan.words(gone) {
            let offset = word.wrapping_sub(llc.first as usize);
            if offset < llc.len as usize {
                self.cpus[offset] &= !bits;
            }
        }
    }

    /// Counts examined CPUs by their distance from this CPU.
    #[inline]
    pub(crate) fn examine(&mut self, word: usize, bits: u64) {
        if bits == 0 {
            return;
        }
        self.trace.event(Event::Examined { word, bits });
        let total = bits.count_ones();
        let this = self.this.index();
        let mut within = if this / 64 == word { (bits >> (this % 64) & 1) as u32 } else { 0 };
        self.examined[0] += within;
        let reach: &[Mask; REACHES] = &self.plan.cpus[this].reach;
        for (index, &mask) in reach.iter().enumerate() {
            if within == total {
                return;
            }
            let nearer = within;
            within = (bits & self.plan.word(mask, word)).count_ones();
            self.examined[index + 1] += within - nearer;
        }
        self.examined[REACHES + 1] += total - within;
    }

    /// Looks for the first CPU of `span` for which the predicate holds: among the candidates, or (`raw`) in the affinity. A
    /// charged scan may examine what the budget has left.
    #[inline]
    pub(crate) fn scan(&mut self, span: Mask, raw: bool, start: u32, pred: Pred, charge: bool) -> Scanned {
        self.scan_visiting(span, raw, start, pred, charge, &mut |_| {})
    }

    /// The same, noting the last visited CPU as the start of the next scan for this target. A visit is noted before the budget is
    /// asked, so that the CPU at which it ran out is the start.
    #[inline]
    pub(crate) fn scan_remembering(&mut self, span: Mask, start: u32, pred: Pred, charge: bool) -> Scanned {
        let mut last = None;
        let scanned = self.scan_visiting(span, false, start, pred, charge, &mut |cpu| last = Some(cpu));
        if let Some(last) = last {
            self.view.set_next_cpu(self.target, last);
        }
        scanned
    }

    /// `visited` hears the last CPU visited of each word.
    #[inline(always)]
    fn scan_visiting(
        &mut self,
        span: Mask,
        raw: bool,
        start: u32,
        pred: Pred,
        charge: bool,
        visited: &mut impl FnMut(CpuId),
    ) -> Scanned {
        let plan = self.plan;
        for (word, part) in plan.parts(span, start) {
            let allowed = self.view.allowed_word(word);
            let walk = part & if raw { allowed } else { self.candidates(word) };
            if walk == 0 {
                continue;
            }
            let hits = walk & allowed & self.pred_word(pred, word);
            let found = (hits != 0).then(|| hits.trailing_zeros());
            let walk = found.map_or(walk, |bit| walk & through(bit));
            if charge && let Some(end) = self.charge(walk) {
                visited(cpu_at(word, end));
                self.examine(word, walk & allowed & !(u64::MAX << end));
                self.exhaust();
                return Scanned::Exhausted;
            }
            visited(cpu_at(word, 63 - walk.leading_zeros()));
            self.examine(word, walk & allowed);
            if let Some(bit) = found {
                return Scanned::Found(cpu_at(word, bit));
            }
        }
        Scanned::Nothing
    }

    /// Charges the CPUs of a walk to the budget: `None` when it covers them, else the bit at which it ran out.
    #[inline(always)]
    pub(crate) fn charge(&mut self, walk: u64) -> Option<u32> {
        if self.left == UNLIMITED {
            return None;
        }
        let count = walk.count_ones();
        if count > self.left {
            let end = nth_bit(walk, self.left);
            self.left = 0;
            return Some(end);
        }
        self.left -= count;
        None
    }

    /// The first thread of a core, ascending, for which the predicate holds, within the affinity and `filter`.
    #[inline]
    pub(crate) fn first_good(
        &mut self,
        threads: Mask,
        pred: Pred,
        filter: impl Fn(&Plan, usize) -> u64,
    ) -> Option<CpuId> {
        let plan = self.plan;
        for (word, bits) in plan.words(threads) {
            let bits = bits & filter(plan, word) & self.view.allowed_word(word);
            let hits = bits & self.pred_word(pred, word);
            if hits != 0 {
                let bit = hits.trailing_zeros();
                self.examine(word, bits & through(bit));
                return Some(cpu_at(word, bit));
            }
            self.examine(word, bits);
        }
        None
    }

    /// `select_idle_core` up to 5.12: the first CPU, from the start, whose core is idle as a whole.
    pub(crate) fn idle_core(&mut self, start: Start, pred: Pred) -> Result<Flow, Undecidable> {
        if !self.plan.smt_active {
            return Ok(self.skip("no SMT"));
        }
        if !self.hint()? {
            return Ok(self.skip("no idle core is hinted"));
        }
        let Some(llc) = self.plan.cpus[self.target.index()].llc else { return Ok(Flow::Continue) };
        // Its own walk over the LLC: the scans behind it start afresh.
        self.fill(true);
        self.ready = false;
        let start = self.start(start);
        let found = self.each_core(llc, start, |this, core| this.core_is_idle(core, pred).then_some(core));
        if found.is_none() {
            self.clear_hint();
        }
        Ok(Flow::found(found))
    }

    /// Visits the cores of the candidates in scan order, by the first CPU met of each, until `visit` returns one.
    #[inline]
    fn each_core(
        &mut self,
        span: Mask,
        start: u32,
        mut visit: impl FnMut(&mut Self, CpuId) -> Option<CpuId>,
    ) -> Option<CpuId> {
        let plan = self.plan;
        for (word, part) in plan.parts(span, start) {
            loop {
                let rest = part & self.candidates(word);
                if rest == 0 {
                    break;
                }
                let core = cpu_at(word, rest.trailing_zeros());
                if let Some(cpu) = visit(self, core) {
                    return Some(cpu);
                }
                self.remove(plan.cpus[core.index()].smt);
            }
        }
        None
    }

    /// Whether all threads of a core, allowed or not, satisfy the predicate. Looks no further than the first that does not.
    fn core_is_idle(&mut self, core: CpuId, pred: Pred) -> bool {
        let plan = self.plan;
        for (word, threads) in plan.words(plan.cpus[core.index()].smt) {
            let busy = threads & !self.pred_word(pred, word);
            if busy != 0 {
                self.examine(word, threads & through(busy.trailing_zeros()));
                return false;
            }
            self.examine(word, threads);
        }
        true
    }

    /// The core search of 5.13 on: the first whole idle core among the candidates of `span`. On its way it notes the first CPU that
    /// would do.
    pub(crate) fn scan_cores(&mut self, span: Mask, start: u32, pred: Pred) -> Option<CpuId> {
        self.each_core(span, start, |this, core| this.core_or_candidate(core, pred))
    }

    /// `select_idle_core(p, core, cpus, idle_cpu)` of 5.13 on.
    fn core_or_candidate(&mut self, core: CpuId, pred: Pred) -> Option<CpuId> {
        let plan = self.plan;
        let mut idle_core = true;
        'threads: for (word, threads) in plan.words(plan.cpus[core.index()].smt) {
            let mut rest = threads;
            let mut examined = 0;
            let (idle, candidates) = (self.view.idle_word(word), self.candidates(word));
            let sched_idle = self.sched_idle_word(pred, word);
            while rest != 0 {
                let bit = rest & rest.wrapping_neg();
                rest &= rest - 1;
                examined |= bit;
                let stop = if idle & bit == 0 {
                    idle_core = false;
                    let taken = self.candidate.is_none() && sched_idle & candidates & bit != 0;
                    let known = self.candidate.is_some();
                    if taken {
                        self.candidate = Some(cpu_at(word, bit.trailing_zeros()));
                    }
                    known || taken
                } else {
                    if self.candidate.is_none() && candidates & bit != 0 {
                        self.candidate = Some(cpu_at(word, bit.trailing_zeros()));
                    }
                    false
                };
                if stop {
                    self.examine(word, examined);
                    break 'threads;
                }
            }
            self.examine(word, examined);
        }
        idle_core.then_some(core)
    }

    /// The 2018 proposal to look for an idle core and an idle CPU in one pass: the first idle core, else the first idle thread of
    /// the core with the fewest busy threads (as first published, whichever thread of that core it met).
    pub(crate) fn scan_merged(
        &mut self,
        start: Start,
        pred: Pred,
        takes: Takes,
        on_exhaust: OnExhaust,
        cost: Cost,
    ) -> Result<Flow, Undecidable> {
        let Some(llc) = self.plan.cpus[self.target.index()].llc else { return Ok(Flow::Continue) };
        self.prepare();
        let from = self.start(start);
        let before = self.examined;
        let mut best: Option<(u32, CpuId)> = None;
        let mut exhausted = false;
        let mut last = None;
        let found = self.each_core(llc, from, |this, core| {
            last = Some(core);
            if this.left == 0 {
                exhausted = true;
                return Some(core);
            }
            if this.left != UNLIMITED {
                this.left -= 1;
            }
            let (busy, first_idle) = this.merged_core(core, pred);
            if busy == 0 {
                return Some(core);
            }
            if let Some(cpu) = first_idle
                && best.is_none_or(|(least, _)| busy < least)
            {
                best = Some((busy, if takes == Takes::Met { core } else { cpu }));
            }
            None
        });
        if let (Start::NextCpu, Some(last)) = (start, last) {
            self.view.set_next_cpu(self.target, last);
        }
        let best = best.map(|(_, cpu)| cpu);
        if exhausted {
            self.exhaust();
            return Ok(match (on_exhaust, best) {
                (OnExhaust::ReturnBest, Some(cpu)) => Flow::End(cpu),
                _ => Flow::LeaveScans,
            });
        }
        self.book(cost, &before)?;
        Ok(Flow::found(found.or(best)))
    }

    /// Busy threads of a core and its first idle allowed one.
    fn merged_core(&mut self, core: CpuId, pred: Pred) -> (u32, Option<CpuId>) {
        let plan = self.plan;
        let (mut busy, mut first_idle) = (0, None);
        for (word, threads) in plan.words(plan.cpus[core.index()].smt) {
            let good = threads & self.pred_word(pred, word);
            busy += (threads & !good).count_ones();
            let usable = good & self.view.allowed_word(word);
            if first_idle.is_none() && usable != 0 {
                first_idle = Some(cpu_at(word, usable.trailing_zeros()));
            }
            self.examine(word, threads);
        }
        (busy, first_idle)
    }

    /// `select_idle_capacity`: on a machine of different capacities the search ends here, with the first CPU that fits, else the
    /// best of those that do not, else the target.
    pub(crate) fn asym_scan(&mut self, ranks: Ranks) -> Result<Flow, Undecidable> {
        let plan = self.plan;
        if !plan.asym_active {
            return Ok(self.skip("all capacities are equal"));
        }
        let Some(span) = plan.cpus[self.target.index()].asym else {
            return Ok(self.skip("the target's domains have one capacity"));
        };
        let pred = if ranks == Ranks::V72 { Pred::Ok72 } else { Pred::Ok59 };
        let whole_cores = ranks == Ranks::V72 && plan.smt_active && self.hint()?;
        let mut left = UNLIMITED;
        if ranks == Ranks::V72 {
            let llc = plan.cpus[self.target.index()].llc_index;
            left = self.view.nr_idle_scan(llc).ok_or(Undecidable("nr_idle_scan of the LLC"))?;
            if left == 0 {
                self.exhaust();
                return Ok(Flow::End(self.target));
            }
        }
        let mut best: Option<(i32, u64, CpuId)> = None;
        for (word, part) in plan.parts(span, self.target.0) {
            let mut rest = part & self.view.allowed_word(word);
            while rest != 0 {
                let bit = rest.trailing_zeros();
                rest &= rest - 1;
                if !whole_cores && left != UNLIMITED {
                    if left == 0 {
                        self.exhaust();
                        return Ok(Flow::End(best.map_or(self.target, |(_, _, cpu)| cpu)));
                    }
                    left -= 1;
                }
                self.examine(word, 1 << bit);
                if self.pred_word(pred, word) >> bit & 1 == 0 {
                    continue;
                }
                let cpu = cpu_at(word, bit);
                let Some(rank) = self.rank(cpu, ranks, whole_cores)? else { return Ok(Flow::End(cpu)) };
                let capacity = self.view.capacity(cpu).ok_or(Undecidable("capacity of a CPU"))?;
                let better = best.is_none_or(|(least, most, _)| rank < least || (rank == least && capacity > most));
                if better {
                    best = Some((rank, capacity, cpu));
                }
            }
        }
        Ok(Flow::End(best.map_or(self.target, |(_, _, cpu)| cpu)))
    }

    /// How badly a CPU serves, lower is better; `None` when it serves at once.
    fn rank(&self, cpu: CpuId, ranks: Ranks, whole_cores: bool) -> Result<Option<i32>, Undecidable> {
        let fits = self.view.fits(cpu).ok_or(Undecidable("whether a CPU fits the wakee"))?;
        let only_clamp = |view: &V| view.misses_only_clamp(cpu).ok_or(Undecidable("the wakee's clamp"));
        if whole_cores {
            let core_idle = self.plan.words(self.plan.cpus[cpu.index()].smt).all(|(word, threads)| {
                let own = if cpu.index() / 64 == word { 1 << (cpu.index() % 64) } else { 0 };
                threads & !own & !self.view.idle_word(word) == 0
            });
            return Ok(match (core_idle, fits) {
                (true, true) => None,
                (true, false) => Some(if only_clamp(self.view)? { -4 } else { -3 }),
                (false, true) => Some(-2),
                (false, false) => Some(if only_clamp(self.view)? { -1 } else { 0 }),
            });
        }
        if fits {
            return Ok(None);
        }
        Ok(Some(if ranks != Ranks::V59 && only_clamp(self.view)? { -1 } else { 0 }))
    }
}
