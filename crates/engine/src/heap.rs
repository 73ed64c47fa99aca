//! The event queue: one pending time per slot, earliest first, ties by slot number.
//!
//! A heap of four children to a node in which every slot keeps its leaf and every node repeats the least of its children. A
//! slot's time is moved or taken back in place, as happens for nearly every interrupt, and read without a search; the way up
//! is as long for any time, so that no branch depends on how times compare but the one that ends where nothing changes.

/// "Not pending".
pub const NEVER: u64 = u64::MAX;

/// Pending times by slot.
pub struct EventHeap {
    /// Siblings, half a cache line: the root's children first, then those of each entry in order. An entry is a key: a time
    /// with the slot in its lowest bits, so that a comparison is one of numbers; [`NEVER`] where nothing is pending.
    siblings: Vec<[u64; 4]>,
    /// The entry of slot 0; the others follow.
    leaves: usize,
    /// The least key of all.
    least: u64,
    slot_bits: u32,
}

impl EventHeap {
    /// A queue of `slots` slots, none pending.
    pub fn new(slots: usize) -> Self {
        let slot_bits = usize::BITS - slots.leading_zeros();
        // Every inner entry has four children, and so has the root, which is none.
        let leaves = slots.saturating_sub(4).div_ceil(3);
        let siblings = vec![[NEVER; 4]; (leaves + slots).div_ceil(4)];
        EventHeap { siblings, leaves, least: NEVER, slot_bits }
    }

    /// The last time that fits, ns: hours for a million slots.
    #[inline]
    fn last(&self) -> u64 {
        u64::MAX >> self.slot_bits
    }

    /// The slot's pending time, [`NEVER`] when it has none.
    #[inline]
    pub fn time(&self, slot: usize) -> u64 {
        let at = self.leaves + slot;
        match self.siblings[at / 4][at % 4] {
            NEVER => NEVER,
            key => key >> self.slot_bits,
        }
    }

    /// Sets the slot's time; [`NEVER`] takes it out. A time that does not fit is the last one that does.
    #[inline]
    pub fn set(&mut self, slot: usize, time: u64) {
        let key = if time == NEVER { NEVER } else { time.min(self.last()) << self.slot_bits | slot as u64 };
        self.put(slot, key);
    }

    /// Sets the slot's time if it is earlier than the pending one.
    #[inline]
    pub fn set_min(&mut self, slot: usize, time: u64) {
        if time < self.time(slot) {
            self.set(slot, time);
        }
    }

    /// Takes the slot out.
    #[inline]
    pub fn clear(&mut self, slot: usize) {
        self.put(slot, NEVER);
    }

    /// The earliest slot, left in place.
    #[inline]
    pub fn peek(&self) -> Option<(u64, usize)> {
        let key = self.least;
        (key != NEVER).then(|| (key >> self.slot_bits, (key & ((1 << self.slot_bits) - 1)) as usize))
    }

    fn put(&mut self, slot: usize, mut key: u64) {
        let mut at = self.leaves + slot;
        loop {
            let entries = &mut self.siblings[at / 4];
            if std::mem::replace(&mut entries[at % 4], key) == key {
                return;
            }
            // The others first: what is least of them does not wait for what comes up.
            let others = entries[(at ^ 1) % 4].min(entries[(at ^ 2) % 4]).min(entries[(at ^ 3) % 4]);
            key = key.min(others);
            if at < 4 {
                self.least = key;
                return;
            }
            at = at / 4 - 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_beyond_all_is_the_last_of_all() {
        let mut heap = EventHeap::new(1000);
        heap.set(3, NEVER - 1);
        heap.set(999, 5);
        assert_eq!((heap.peek(), heap.time(3)), (Some((5, 999)), (1 << 54) - 1));
    }

    #[test]
    fn earliest_first_ties_by_slot_whatever_is_moved_or_cleared() {
        for slots in (1..24).chain([100]) {
            let mut heap = EventHeap::new(slots);
            let mut model = vec![NEVER; slots];
            let mut state = 1u64;
            for _ in 0..200 * slots {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let (slot, time) = ((state >> 33) as usize % slots, (state >> 40) % 50);
                let time = if time == 49 { NEVER } else { time };
                heap.set(slot, time);
                model[slot] = time;
                let least = (0..slots).filter(|&slot| model[slot] != NEVER).map(|slot| (model[slot], slot)).min();
                assert_eq!(heap.peek(), least, "{slots}");
                assert!((0..slots).all(|slot| heap.time(slot) == model[slot]), "{slots}");
            }
        }
    }
}
