//! The event queue: one pending time per slot, earliest first, ties by slot number.
//!
//! An indexed four-ary heap: a slot's time can be moved or taken back in place, which happens for nearly every interrupt.

/// "Not pending".
pub const NEVER: u64 = u64::MAX;

/// Pending times by slot.
pub struct EventHeap {
    time: Vec<u64>,
    heap: Vec<u32>,
    position: Vec<u32>,
}

const ABSENT: u32 = u32::MAX;

impl EventHeap {
    /// A queue of `slots` slots, none pending.
    pub fn new(slots: usize) -> Self {
        EventHeap { time: vec![NEVER; slots], heap: Vec::with_capacity(slots), position: vec![ABSENT; slots] }
    }

    /// The slot's pending time, [`NEVER`] when it has none.
    #[inline]
    pub fn time(&self, slot: usize) -> u64 {
        self.time[slot]
    }

    /// Sets the slot's time; [`NEVER`] takes it out.
    #[inline]
    pub fn set(&mut self, slot: usize, time: u64) {
        if time == NEVER {
            return self.clear(slot);
        }
        let old = self.time[slot];
        self.time[slot] = time;
        if self.position[slot] == ABSENT {
            self.position[slot] = self.heap.len() as u32;
            self.heap.push(slot as u32);
            self.up(self.heap.len() - 1);
        } else if time < old {
            self.up(self.position[slot] as usize);
        } else {
            self.down(self.position[slot] as usize);
        }
    }

    /// Sets the slot's time if it is earlier than the pending one.
    #[inline]
    pub fn set_min(&mut self, slot: usize, time: u64) {
        if time < self.time[slot] {
            self.set(slot, time);
        }
    }

    /// Takes the slot out.
    pub fn clear(&mut self, slot: usize) {
        let position = self.position[slot];
        if position == ABSENT {
            return;
        }
        self.time[slot] = NEVER;
        self.position[slot] = ABSENT;
        let last = self.heap.len() - 1;
        self.heap.swap_remove(position as usize);
        if (position as usize) < last {
            let moved = self.heap[position as usize];
            self.position[moved as usize] = position;
            self.up(position as usize);
            self.down(self.position[moved as usize] as usize);
        }
    }

    /// The earliest slot, left in place.
    #[inline]
    pub fn peek(&self) -> Option<(u64, usize)> {
        let slot = *self.heap.first()? as usize;
        Some((self.time[slot], slot))
    }

    #[inline]
    fn before(&self, a: u32, b: u32) -> bool {
        (self.time[a as usize], a) < (self.time[b as usize], b)
    }

    fn up(&mut self, mut at: usize) {
        let slot = self.heap[at];
        while at > 0 {
            let parent = (at - 1) / 4;
            if !self.before(slot, self.heap[parent]) {
                break;
            }
            self.put(at, self.heap[parent]);
            at = parent;
        }
        self.put(at, slot);
    }

    fn down(&mut self, mut at: usize) {
        let slot = self.heap[at];
        loop {
            let first = 4 * at + 1;
            if first >= self.heap.len() {
                break;
            }
            let mut least = first;
            for child in first + 1..(first + 4).min(self.heap.len()) {
                if self.before(self.heap[child], self.heap[least]) {
                    least = child;
                }
            }
            if !self.before(self.heap[least], slot) {
                break;
            }
            self.put(at, self.heap[least]);
            at = least;
        }
        self.put(at, slot);
    }

    #[inline]
    fn put(&mut self, at: usize, slot: u32) {
        self.heap[at] = slot;
        self.position[slot as usize] = at as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
