//! Sets of CPUs, sized when they are made.
//!
//! The set is a row of 64-bit words, lowest CPU in bit 0 of word 0, so that a scan over idle CPUs is a few word
//! operations. Nothing bounds the number of CPUs but memory.

use std::fmt;

use crate::CpuId;
use crate::error::one_line;

/// A set of CPUs over the ids `0..capacity`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct CpuSet {
    words: Box<[u64]>,
    capacity: u32,
}

/// Why a CPU list (`0-3,8`) or mask (`ff,0000000f`) cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseCpuSetError {
    /// A token is neither a number nor a range.
    #[error("`{0}` is not a CPU number or a range like 0-3")]
    NotANumber(String),
    /// A range runs backwards.
    #[error("the range `{0}` runs backwards")]
    Backwards(String),
    /// A CPU lies beyond the machine.
    #[error("CPU {cpu} is beyond the last id {last}")]
    BeyondLast {
        /// The CPU named.
        cpu: u64,
        /// The highest id that would be accepted.
        last: u64,
    },
    /// A mask holds something other than hexadecimal digits.
    #[error("`{0}` is not a hexadecimal mask")]
    NotAMask(String),
}

/// No list or mask may name a CPU above this id: it guards memory against garbage input.
pub const MAX_CPU_ID: u64 = 1 << 20;

impl CpuSet {
    /// The empty set over `capacity` ids.
    pub fn new(capacity: usize) -> Self {
        CpuSet { words: vec![0; capacity.div_ceil(64)].into_boxed_slice(), capacity: capacity as u32 }
    }

    /// All of `0..capacity`.
    pub fn full(capacity: usize) -> Self {
        let mut set = CpuSet::new(capacity);
        for cpu in 0..capacity {
            set.insert(CpuId::from(cpu));
        }
        set
    }

    /// The set of the given CPUs.
    ///
    /// # Panics
    /// When a CPU is beyond `capacity`.
    pub fn from_cpus(capacity: usize, cpus: impl IntoIterator<Item = usize>) -> Self {
        let mut set = CpuSet::new(capacity);
        for cpu in cpus {
            set.insert(CpuId::from(cpu));
        }
        set
    }

    /// Number of ids the set ranges over.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// The words, CPU `64 * w + b` in bit `b` of word `w`.
    #[inline]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// The words, writable. Bits at or above `capacity` must stay clear.
    #[inline]
    pub fn words_mut(&mut self) -> &mut [u64] {
        &mut self.words
    }

    /// Adds a CPU.
    ///
    /// # Panics
    /// When the CPU is beyond the capacity.
    #[inline]
    pub fn insert(&mut self, cpu: CpuId) {
        assert!(cpu.0 < self.capacity, "{cpu:?} beyond the set's capacity {}", self.capacity);
        self.words[cpu.index() / 64] |= 1 << (cpu.index() % 64);
    }

    /// Removes a CPU; one that is not there is no error.
    #[inline]
    pub fn remove(&mut self, cpu: CpuId) {
        if let Some(word) = self.words.get_mut(cpu.index() / 64) {
            *word &= !(1 << (cpu.index() % 64));
        }
    }

    /// Whether the CPU is in the set.
    #[inline]
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.words.get(cpu.index() / 64).is_some_and(|word| word >> (cpu.index() % 64) & 1 != 0)
    }

    /// Number of CPUs in the set.
    #[inline]
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether no CPU is in the set.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// The lowest CPU.
    pub fn first(&self) -> Option<CpuId> {
        self.iter().next()
    }

    /// The highest CPU.
    pub fn last(&self) -> Option<CpuId> {
        let (index, word) = self.words.iter().enumerate().rev().find(|&(_, &word)| word != 0)?;
        Some(CpuId::from(index * 64 + 63 - word.leading_zeros() as usize))
    }

    /// Whether every CPU here is in `other`.
    pub fn is_subset(&self, other: &CpuSet) -> bool {
        self.words.iter().enumerate().all(|(index, &word)| word & !other.words.get(index).copied().unwrap_or(0) == 0)
    }

    /// Whether the two sets share a CPU.
    pub fn intersects(&self, other: &CpuSet) -> bool {
        self.words.iter().zip(other.words.iter()).any(|(a, b)| a & b != 0)
    }

    /// Adds all of `other`, which must not reach beyond this set's capacity.
    pub fn union_with(&mut self, other: &CpuSet) {
        for (a, b) in self.words.iter_mut().zip(other.words.iter()) {
            *a |= b;
        }
    }

    /// Keeps only what is also in `other`.
    pub fn intersect_with(&mut self, other: &CpuSet) {
        for (index, word) in self.words.iter_mut().enumerate() {
            *word &= other.words.get(index).copied().unwrap_or(0);
        }
    }

    /// Removes all of `other`.
    pub fn subtract(&mut self, other: &CpuSet) {
        for (a, b) in self.words.iter_mut().zip(other.words.iter()) {
            *a &= !b;
        }
    }

    /// The union.
    #[must_use]
    pub fn union(&self, other: &CpuSet) -> CpuSet {
        let (mut big, small) =
            if self.capacity >= other.capacity { (self.clone(), other) } else { (other.clone(), self) };
        big.union_with(small);
        big
    }

    /// The intersection.
    #[must_use]
    pub fn intersection(&self, other: &CpuSet) -> CpuSet {
        let mut out = self.clone();
        out.intersect_with(other);
        out
    }

    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.words
            .iter()
            .enumerate()
            .flat_map(|(index, &word)| Bits(word).map(move |bit| CpuId::from(index * 64 + bit)))
    }

    /// The CPUs in ascending order from `start`, wrapping once, each once: the order of the kernel's
    /// `for_each_cpu_wrap`. A `start` that is not in the set begins at the next member.
    pub fn scan(&self, start: CpuId) -> impl Iterator<Item = CpuId> + '_ {
        self.iter().filter(move |&cpu| cpu >= start).chain(self.iter().take_while(move |&cpu| cpu < start))
    }

    /// Reads a list such as `0-3,8,10-11`. Surrounding white space and NUL padding are ignored; the empty list is the
    /// empty set. The capacity is one more than the highest CPU named.
    ///
    /// # Errors
    /// Names the token that cannot be read.
    pub fn parse_list(text: &str) -> Result<CpuSet, ParseCpuSetError> {
        let text = trim(text);
        let mut ranges = Vec::new();
        for token in text.split(',').map(str::trim).filter(|token| !token.is_empty()) {
            let (from, to) = match token.split_once('-') {
                Some((from, to)) => (number(from, token)?, number(to, token)?),
                None => {
                    let cpu = number(token, token)?;
                    (cpu, cpu)
                }
            };
            if to < from {
                return Err(ParseCpuSetError::Backwards(quoted(token)));
            }
            if to > MAX_CPU_ID {
                return Err(ParseCpuSetError::BeyondLast { cpu: to, last: MAX_CPU_ID });
            }
            ranges.push((from, to));
        }
        let mut set = CpuSet::new(ranges.iter().map(|&(_, to)| to + 1).max().unwrap_or(0) as usize);
        ranges.into_iter().for_each(|(from, to)| set.insert_range(from as usize, to as usize));
        Ok(set)
    }

    /// Adds the CPUs of a range, ends included, a word at a time: a list may name wide ranges many times over.
    fn insert_range(&mut self, from: usize, to: usize) {
        for (index, word) in self.words.iter_mut().enumerate().take(to / 64 + 1).skip(from / 64) {
            let low = if index == from / 64 { from % 64 } else { 0 };
            let high = if index == to / 64 { to % 64 } else { 63 };
            *word |= u64::MAX << low & u64::MAX >> (63 - high);
        }
    }

    /// Reads a mask such as `ff,0000000f`: hexadecimal digits, most significant first, with a comma between groups of 32
    /// bits or without any; `0x` may stand before a group.
    ///
    /// # Errors
    /// When a group is not hexadecimal or a CPU lies beyond [`MAX_CPU_ID`].
    pub fn parse_mask(text: &str) -> Result<CpuSet, ParseCpuSetError> {
        let text = trim(text);
        let not_a_mask = || ParseCpuSetError::NotAMask(quoted(text));
        let mut words: Vec<u64> = Vec::new();
        let mut bit = 0;
        for group in text.rsplit(',') {
            let group = group.trim();
            let digits = group.strip_prefix("0x").unwrap_or(group);
            if digits.is_empty() {
                return Err(not_a_mask());
            }
            // Most groups of a large machine's masks are empty.
            if digits == "00000000" {
                bit += 32;
                continue;
            }
            for digit in digits.bytes().rev() {
                let value = (digit as char).to_digit(16).ok_or_else(not_a_mask)?;
                if value != 0 {
                    let last = (bit + 31 - value.leading_zeros() as usize) as u64;
                    if last > MAX_CPU_ID {
                        return Err(ParseCpuSetError::BeyondLast { cpu: last, last: MAX_CPU_ID });
                    }
                    words.resize(words.len().max(bit / 64 + 1), 0);
                    words[bit / 64] |= u64::from(value) << (bit % 64);
                }
                bit += 4;
            }
            bit = bit.next_multiple_of(32);
        }
        let capacity = words.last().map_or(0, |word| words.len() * 64 - word.leading_zeros() as usize);
        Ok(CpuSet { words: words.into_boxed_slice(), capacity: capacity as u32 })
    }

    /// The same members over another number of ids; members beyond it are dropped.
    #[must_use]
    pub fn resized(&self, capacity: usize) -> CpuSet {
        CpuSet::from_cpus(capacity, self.iter().map(CpuId::index).filter(|&cpu| cpu < capacity))
    }
}

/// The positions of the set bits of a word, ascending.
pub(crate) struct Bits(pub u64);

impl Iterator for Bits {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let bit = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(bit)
    }
}

fn trim(text: &str) -> &str {
    text.trim_matches(|c: char| c == '\0' || c.is_whitespace())
}

/// The start of a text, on one line, for errors.
fn quoted(text: &str) -> String {
    one_line(&text.chars().take(40).collect::<String>())
}

fn number(digits: &str, token: &str) -> Result<u64, ParseCpuSetError> {
    digits.trim().parse().map_err(|_| ParseCpuSetError::NotANumber(quoted(token)))
}

/// Prints the kernel's list format, `0-3,8`.
impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().map(|cpu| cpu.0).peekable();
        let mut first = true;
        while let Some(from) = cpus.next() {
            let mut to = from;
            while cpus.next_if_eq(&(to + 1)).is_some() {
                to += 1;
            }
            if !first {
                f.write_str(",")?;
            }
            first = false;
            if from == to { write!(f, "{from}")? } else { write!(f, "{from}-{to}")? }
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}/{}", self.capacity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(iter: impl Iterator<Item = CpuId>) -> Vec<u32> {
        iter.map(|cpu| cpu.0).collect()
    }

    #[test]
    fn scan_starts_at_the_given_cpu_and_wraps_once() {
        let set = CpuSet::from_cpus(130, [4, 5, 6, 7, 70, 129]);
        assert_eq!(cpus(set.scan(CpuId(6))), [6, 7, 70, 129, 4, 5]);
        assert_eq!(cpus(set.scan(CpuId(8))), [70, 129, 4, 5, 6, 7]);
        assert_eq!(cpus(set.scan(CpuId(500))), [4, 5, 6, 7, 70, 129]);
    }

    #[test]
    fn lists_round_trip() {
        for text in ["", "0", "0-3", "0-3,8", "1,3,5-127,4000", "63-64", "64-127", "60-200"] {
            assert_eq!(CpuSet::parse_list(text).unwrap().to_string(), text);
        }
        assert_eq!(CpuSet::parse_list("0-3\n\0\0\0").unwrap().to_string(), "0-3");
    }

    #[test]
    fn bad_lists_name_the_token_on_one_line() {
        assert_eq!(CpuSet::parse_list("0\n1"), Err(ParseCpuSetError::NotANumber("0\\n1".into())));
        assert_eq!(CpuSet::parse_list(&"x".repeat(9000)), Err(ParseCpuSetError::NotANumber("x".repeat(40))));
        assert_eq!(CpuSet::parse_list("0-3,x"), Err(ParseCpuSetError::NotANumber("x".into())));
        assert_eq!(CpuSet::parse_list("7-3"), Err(ParseCpuSetError::Backwards("7-3".into())));
        assert!(matches!(CpuSet::parse_list("99999999999"), Err(ParseCpuSetError::BeyondLast { .. })));
    }

    #[test]
    fn masks_are_read_in_groups_of_32_bits() {
        assert_eq!(CpuSet::parse_mask("f\n").unwrap().to_string(), "0-3");
        assert_eq!(CpuSet::parse_mask("1,00000000,80000001").unwrap().to_string(), "0,31,64");
        assert_eq!(CpuSet::parse_mask("0x00000001,0x80000000").unwrap().to_string(), "31-32");
        assert_eq!(CpuSet::parse_mask("00000000,00000000").unwrap(), CpuSet::new(0));
        for bad in ["xyz", "", "f,", ",f", "0x", "f f", "-1", "+1", "ff,fg", "é"] {
            assert!(CpuSet::parse_mask(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn masks_without_commas_may_be_of_any_width() {
        assert_eq!(CpuSet::parse_mask("100000000000000080000001").unwrap().to_string(), "0,31,92");
        assert_eq!(CpuSet::parse_mask(&"f".repeat(75)).unwrap().to_string(), "0-299");
        assert_eq!(CpuSet::parse_mask("0000000000000001,8000000000000000").unwrap().to_string(), "63-64");
        let huge = format!("1{}", "0".repeat(1 << 20));
        assert!(matches!(CpuSet::parse_mask(&huge), Err(ParseCpuSetError::BeyondLast { .. })));
    }

    #[test]
    fn set_algebra() {
        let a = CpuSet::from_cpus(10, [1, 2, 9]);
        let b = CpuSet::from_cpus(200, [2, 9, 150]);
        assert_eq!(a.union(&b).to_string(), "1-2,9,150");
        assert_eq!(a.intersection(&b).to_string(), "2,9");
        assert!(a.intersection(&b).is_subset(&b) && !a.is_subset(&b) && a.intersects(&b));
        assert_eq!((b.first(), b.last(), b.len()), (Some(CpuId(2)), Some(CpuId(150)), 3));
    }
}
