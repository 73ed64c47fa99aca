//! The event queue: one pending time per slot, earliest first, ties by slot number.
//!
//! An indexed four-ary heap: a slot's time can be moved or taken back in place, which happens for nearly every interrupt.

/// "Not pending".
pub const NEVER: u64 = u64::MAX;

/// Pending times by slot.
pub struct EventHeap {
    /// A four-ary heap of keys: a time with the slot in its lowest bits, so that a comparison is one of numbers and four
    /// children lie in half a cache line.
    heap: Vec<u64>,
    position: Vec<u32>,
    slot_bits: u32,
}

const ABSENT: u32 = u32::MAX;

impl EventHeap {
    /// A queue of `slots` slots, none pending.
    pub fn new(slots: usize) -> Self {
        let slot_bits = usize::BITS - slots.leading_zeros();
        EventHeap { heap: Vec::with_capacity(slots), position: vec![ABSENT; slots], slot_bits }
    }

    /// The last time that fits, ns: hours for a million slots.
    #[inline]
    fn last(&self) -> u64 {
        u64::MAX >> self.slot_bits
    }

    #[inline]
    fn time_of(&self, key: u64) -> u64 {
        key >> self.slot_bits
    }

    #[inline]
    fn slot_of(&self, key: u64) -> usize {
        (key & ((1 << self.slot_bits) - 1)) as usize
    }

    /// The slot's pending time, [`NEVER`] when it has none.
    #[inline]
    pub fn time(&self, slot: usize) -> u64 {
        match self.position[slot] {
            ABSENT => NEVER,
            at => self.time_of(self.heap[at as usize]),
        }
    }

    /// Sets the slot's time; [`NEVER`] takes it out. A time that does not fit is the last one that does.
    #[inline]
    pub fn set(&mut self, slot: usize, time: u64) {
        if time == NEVER {
            return self.clear(slot);
        }
        let key = time.min(self.last()) << self.slot_bits | slot as u64;
        match self.position[slot] {
            ABSENT => {
                self.heap.push(key);
                self.up(self.heap.len() - 1, key);
            }
            at if key < self.heap[at as usize] => self.up(at as usize, key),
            at => self.down(at as usize, key),
        }
    }

    /// Sets the slot's time if it is earlier than the pending one.
    #[inline]
    pub fn set_min(&mut self, slot: usize, time: u64) {
        if time < self.time(slot) {
            self.set(slot, time);
        }
    }

    /// Takes the slot out.
    pub fn clear(&mut self, slot: usize) {
        let at = std::mem::replace(&mut self.position[slot], ABSENT);
        if at == ABSENT {
            return;
        }
        let at = at as usize;
        let Some(last) = self.heap.pop() else {
            return;
        };
        if at < self.heap.len() {
            if last < self.heap[at] { self.up(at, last) } else { self.down(at, last) }
        }
    }

    /// The earliest slot, left in place.
    #[inline]
    pub fn peek(&self) -> Option<(u64, usize)> {
        self.heap.first().map(|&key| (self.time_of(key), self.slot_of(key)))
    }

    fn up(&mut self, mut at: usize, key: u64) {
        while at > 0 {
            let parent = (at - 1) / 4;
            if key >= self.heap[parent] {
                break;
            }
            self.put(at, self.heap[parent]);
            at = parent;
        }
        self.put(at, key);
    }

    fn down(&mut self, mut at: usize, key: u64) {
        loop {
            let first = 4 * at + 1;
            let (least, child) = match self.heap.get(first..) {
                // Without a branch on what cannot be foreseen.
                Some(&[a, b, c, d, ..]) => {
                    let (left, right) = (a.min(b), c.min(d));
                    let child = left.min(right);
                    let least = if right < left { 2 + usize::from(d < c) } else { usize::from(b < a) };
                    (least, child)
                }
                Some(few) => match few.iter().enumerate().min_by_key(|&(_, key)| key) {
                    Some((least, &child)) => (least, child),
                    None => break,
                },
                None => break,
            };
            if child >= key {
                break;
            }
            self.put(at, child);
            at = first + least;
        }
        self.put(at, key);
    }

    #[inline]
    fn put(&mut self, at: usize, key: u64) {
        self.heap[at] = key;
        let slot = self.slot_of(key);
        self.position[slot] = at as u32;
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
        let mut heap = EventHeap::new(100);
        let mut model = vec![NEVER; 100];
        let mut state = 1u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (slot, time) = ((state >> 33) as usize % 100, (state >> 40) % 50);
            let time = if time == 49 { NEVER } else { time };
            heap.set(slot, time);
            model[slot] = time;
            let least = (0..100).filter(|&slot| model[slot] != NEVER).map(|slot| (model[slot], slot)).min();
            assert_eq!(heap.peek(), least);
        }
    }
}
