//! Deterministic changes to seeds: the same bytes on every host, and no fuzzer needed.

/// Numbers and fragments that readers trip over.
const TOKENS: [&str; 24] = [
    "0",
    "1",
    "-1",
    "9",
    "255",
    "256",
    "1023",
    "1024",
    "16383",
    "16384",
    "4294967295",
    "4294967296",
    "18446744073709551616",
    "1e9",
    "0-4294967295",
    "ffffffff,",
    "0x",
    "\"",
    "=",
    "\n",
    ",",
    "<",
    ">",
    "\u{feff}",
];

/// A seeded generator (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, count: usize) -> usize {
        (self.next() % count.max(1) as u64) as usize
    }
}

/// Runs an entry on every seed and on `count` mutations of each. The seeds are the files of a folder, by name.
pub fn run(folder: &std::path::Path, count: u64, entry: impl Fn(&[u8])) {
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "no seeds in {}", folder.display());
    let seeds: Vec<Vec<u8>> = files.iter().map(|file| std::fs::read(file).unwrap()).collect();
    for (index, seed) in seeds.iter().enumerate() {
        entry(seed);
        for run in 0..count {
            let mut random = Random(run ^ (index as u64) << 32);
            let other = &seeds[random.below(seeds.len())];
            let input = mutated(seed, other, &mut random);
            // Shown when the entry panics.
            let input = Shown { file: &files[index], input };
            entry(&input.input);
        }
    }
}

/// Prints the input that a panic came of.
struct Shown<'a> {
    file: &'a std::path::Path,
    input: Vec<u8>,
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("a mutation of {}:\n{}", self.file.display(), String::from_utf8_lossy(&self.input));
        }
    }
}

fn mutated(seed: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let mut data = seed.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(data.len() + 1);
        let end = (at + random.below(24)).min(data.len());
        match random.below(8) {
            0 => data[at..end].iter_mut().take(1).for_each(|byte| *byte ^= 1 << (random.next() % 8)),
            1 => drop(data.drain(at..end)),
            2 => insert(&mut data, at, TOKENS[random.below(TOKENS.len())].as_bytes()),
            3 => replace_number(&mut data, at, TOKENS[random.below(TOKENS.len())].as_bytes()),
            4 => swap_lines(&mut data, random),
            5 => {
                let chunk = data[at..end].to_vec();
                insert(&mut data, at, &chunk);
            }
            6 => {
                let from = random.below(other.len() + 1);
                insert(&mut data, at, &other[from..(from + 64).min(other.len())]);
            }
            _ => data.truncate(at.max(data.len() / 2)),
        }
    }
    data
}

fn insert(data: &mut Vec<u8>, at: usize, chunk: &[u8]) {
    data.splice(at..at, chunk.iter().copied());
}

/// Replaces the first run of digits at or after a place.
fn replace_number(data: &mut Vec<u8>, at: usize, token: &[u8]) {
    let Some(from) = data[at..].iter().position(u8::is_ascii_digit).map(|found| at + found) else { return };
    let length = data[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    data.splice(from..from + length, token.iter().copied());
}

fn swap_lines(data: &mut Vec<u8>, random: &mut Random) {
    let mut lines: Vec<&[u8]> = data.split(|&byte| byte == b'\n').collect();
    let (a, b) = (random.below(lines.len()), random.below(lines.len()));
    lines.swap(a, b);
    *data = lines.join(&b'\n');
}
