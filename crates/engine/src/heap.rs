//! The event queue: one pending time per slot, earliest first, ties by slot number.
//!
//! An indexed four-ary heap: a slot's time can be moved or taken back in place, which happens for nearly every interrupt.

/// "Not pending".
pub const NEVER: u64 = u64::MAX;

/// Pending times by slot.
pub struct EventHeap {
    /// (time, slot), a four-ary heap.
    heap: Vec<(u64, u32)>,
    position: Vec<u32>,
}

const ABSENT: u32 = u32::MAX;

impl EventHeap {
    /// A queue of `slots` slots, none pending.
    pub fn new(slots: usize) -> Self {
        EventHeap { heap: Vec::with_capacity(slots), position: vec![ABSENT; slots] }
    }

    /// The slot's pending time, [`NEVER`] when it has none.
    #[inline]
    pub fn time(&self, slot: usize) -> u64 {
        match self.position[slot] {
            ABSENT => NEVER,
            at => self.heap[at as usize].0,
        }
    }

    /// Sets the slot's time; [`NEVER`] takes it out.
    #[inline]
    pub fn set(&mut self, slot: usize, time: u64) {
        if time == NEVER {
            return self.clear(slot);
        }
        let entry = (time, slot as u32);
        match self.position[slot] {
            ABSENT => {
                self.heap.push(entry);
                self.up(self.heap.len() - 1, entry);
            }
            at if entry < self.heap[at as usize] => self.up(at as usize, entry),
            at => self.down(at as usize, entry),
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
        self.heap.first().map(|&(time, slot)| (time, slot as usize))
    }

    fn up(&mut self, mut at: usize, entry: (u64, u32)) {
        while at > 0 {
            let parent = (at - 1) / 4;
            if entry >= self.heap[parent] {
                break;
            }
            self.put(at, self.heap[parent]);
            at = parent;
        }
        self.put(at, entry);
    }

    fn down(&mut self, mut at: usize, entry: (u64, u32)) {
        loop {
            let first = 4 * at + 1;
            let Some(children) = self.heap.get(first..(first + 4).min(self.heap.len()).max(first)) else {
                break;
            };
            let Some((least, &child)) = children.iter().enumerate().min_by_key(|&(_, child)| child) else {
                break;
            };
            if child >= entry {
                break;
            }
            self.put(at, child);
            at = first + least;
        }
        self.put(at, entry);
    }

    #[inline]
    fn put(&mut self, at: usize, entry: (u64, u32)) {
        self.heap[at] = entry;
        self.position[entry.1 as usize] = at as u32;
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
