//! CPU sets in words that people read.

use huddle_machine::CpuSet;

/// CPUs at one step, other than 1, that are written as a progression.
const PROGRESSION: usize = 6;

/// The kernel's list format, `0-3,8`, with `0,2,…,86` for six or more CPUs at one step.
///
/// The list is its parts joined by commas.
pub fn parts(cpus: &CpuSet) -> Vec<String> {
    let ids: Vec<u32> = cpus.iter().map(|cpu| cpu.0).collect();
    let mut parts = Vec::new();
    let mut rest = ids.as_slice();
    while let [first, others @ ..] = rest {
        let step = others.first().map_or(0, |second| second - first);
        let length = 1 + rest.windows(2).take_while(|pair| pair[1] - pair[0] == step).count();
        let last = rest[length - 1];
        let taken = match step {
            1 => {
                parts.push(format!("{first}-{last}"));
                length
            }
            _ if length >= PROGRESSION => {
                parts.push(format!("{first},{},…,{last}", first + step));
                length
            }
            _ => {
                parts.push(first.to_string());
                1
            }
        };
        rest = &rest[taken..];
    }
    parts
}

/// The parts, each but the last with its comma: what stands together when a list is broken into lines.
pub fn with_commas(cpus: &CpuSet) -> Vec<String> {
    let mut parts = parts(cpus);
    let commas = parts.len().saturating_sub(1);
    parts.iter_mut().take(commas).for_each(|part| part.push(','));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(cpus: impl IntoIterator<Item = usize>) -> String {
        parts(&CpuSet::from_cpus(9000, cpus)).join(",")
    }

    #[test]
    fn ranges_singles_and_progressions() {
        assert_eq!(list([]), "");
        assert_eq!(list([7]), "7");
        assert_eq!(list([0, 1, 2, 3, 8]), "0-3,8");
        assert_eq!(list((0..44).map(|core| core * 2)), "0,2,…,86");
        assert_eq!(list((0..5).map(|core| core * 2)), "0,2,4,6,8");
    }

    #[test]
    fn second_threads_of_a_package_among_eight_are_a_progression_of_their_own() {
        let threads = (0..32).map(|core| core * 8).chain((0..32).map(|core| 4096 + core * 8));
        assert_eq!(list(threads), "0,8,…,248,4096,4104,…,4344");
    }

    #[test]
    fn a_range_is_not_eaten_by_the_step_before_it() {
        assert_eq!(list([0, 4, 8, 9, 10, 11]), "0,4,8-11");
    }
}
