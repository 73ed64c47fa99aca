//! Where a structure of the running kernel has its members, from the types that the kernel describes (BTF).

use anyhow::{Context, Result, bail, ensure};

const MAGIC: u16 = 0xeb9f;
/// Bytes of a type before what its kind adds.
const TYPE: usize = 12;
const STRUCT: u32 = 4;

/// The offset in bytes of a member of a structure; a member of an anonymous part of it is not found.
///
/// # Errors
/// Text that is no BTF of this byte order, no such structure, no such member, or one that does not begin at a byte.
pub fn offset(btf: &[u8], structure: &str, member: &str) -> Result<u32> {
    let header = Header::read(btf)?;
    let mut at = header.types;
    while at < header.types_end {
        let (name, info, _) = (word(btf, at)?, word(btf, at + 4)?, word(btf, at + 8)?);
        let (kind, count, flagged) = (info >> 24 & 0x1f, (info & 0xffff) as usize, info >> 31 != 0);
        if kind == STRUCT && header.name(btf, name)? == structure.as_bytes() {
            return of_member(btf, &header, at + TYPE, count, flagged, member)
                .with_context(|| format!("{structure}.{member}"));
        }
        at += TYPE + extra(kind, count)?;
    }
    bail!("the kernel describes no {structure}")
}

fn of_member(btf: &[u8], header: &Header, from: usize, count: usize, flagged: bool, member: &str) -> Result<u32> {
    for at in (0..count).map(|index| from + 12 * index) {
        if header.name(btf, word(btf, at)?)? == member.as_bytes() {
            // With bit fields the upper byte is the width.
            let bits = word(btf, at + 8)? & if flagged { 0x00ff_ffff } else { u32::MAX };
            ensure!(bits % 8 == 0, "begins inside a byte");
            return Ok(bits / 8);
        }
    }
    bail!("no such member")
}

/// Bytes behind a type's fixed part (`Documentation/bpf/btf.rst`, type encoding).
fn extra(kind: u32, count: usize) -> Result<usize> {
    Ok(match kind {
        // Pointer, forward, typedef, volatile, const, restrict, function, float, type tag.
        2 | 7..=12 | 16 | 18 => 0,
        // Integer, variable, declaration tag.
        1 | 14 | 17 => 4,
        // Array.
        3 => 12,
        // Structure, union, data section, 64-bit enumeration.
        STRUCT | 5 | 15 | 19 => 12 * count,
        // Enumeration, function prototype.
        6 | 13 => 8 * count,
        _ => bail!("a type of the unknown kind {kind}"),
    })
}

struct Header {
    types: usize,
    types_end: usize,
    strings: usize,
}

impl Header {
    fn read(btf: &[u8]) -> Result<Header> {
        ensure!(word(btf, 0)? as u16 == MAGIC, "not the kernel's description of its types");
        let length = word(btf, 4)? as usize;
        let types = length + word(btf, 8)? as usize;
        let strings = length + word(btf, 16)? as usize;
        Ok(Header { types, types_end: types + word(btf, 12)? as usize, strings })
    }

    fn name<'a>(&self, btf: &'a [u8], at: u32) -> Result<&'a [u8]> {
        let rest = btf.get(self.strings + at as usize..).context("a name beyond the end")?;
        rest.split(|&byte| byte == 0).next().context("a name without an end")
    }
}

fn word(btf: &[u8], at: usize) -> Result<u32> {
    let bytes = btf.get(at..at + 4).context("the description of the types is cut short")?;
    Ok(u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

#[cfg(test)]
mod tests {
    use super::offset;

    /// A pointer, then a structure `ab` of `a` at bit 0 and `b` at bit 96.
    fn small() -> Vec<u8> {
        let strings = b"\0ab\0a\0b\0";
        let types: [u32; 12] = [0, 2 << 24, 0, 1, 4 << 24 | 2, 16, 4, 1, 0, 6, 1, 96];
        let header: [u32; 6] = [0x0001_eb9f, 24, 0, 48, 48, strings.len() as u32];
        let words = header.iter().chain(&types).flat_map(|word| word.to_ne_bytes());
        words.chain(strings.iter().copied()).collect()
    }

    #[test]
    fn a_member_is_found_behind_another_type() {
        assert_eq!(offset(&small(), "ab", "a").expect("a"), 0);
        assert_eq!(offset(&small(), "ab", "b").expect("b"), 12);
    }

    #[test]
    fn what_is_not_there_is_named() {
        assert!(format!("{:#}", offset(&small(), "ab", "c").expect_err("no c")).contains("ab.c"));
        assert!(offset(&small(), "cd", "a").expect_err("no cd").to_string().contains("no cd"));
        assert!(offset(&small()[..60], "ab", "b").is_err());
    }
}
