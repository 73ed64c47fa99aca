//! `/proc/schedstat`: the spans of every online CPU's domains (`kernel/sched/stats.c:show_schedstat()`).

use std::collections::BTreeMap;

use huddle_machine::CpuSet;

use super::{ObservedDomain, cpu_number, cpu_set};

/// The version from which a domain's line has its name before the mask.
const NAMED_FROM: u32 = 17;

/// The domains by CPU.
///
/// # Errors
/// The line that a kernel would not write.
pub(super) fn parse(text: &str) -> Result<BTreeMap<u32, Vec<ObservedDomain>>, String> {
    let mut cpus: BTreeMap<u32, Vec<ObservedDomain>> = BTreeMap::new();
    let mut version: Option<u32> = None;
    let mut cpu = None;
    for (index, line) in text.lines().enumerate() {
        let wrong = |what: &str| format!("line {}: {what}", index + 1);
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { continue };
        if first == "version" {
            let number = words.next().and_then(|number| number.parse().ok());
            version = Some(number.ok_or_else(|| wrong("`version` is followed by no number"))?);
        } else if let Some(number) = first.strip_prefix("cpu") {
            let number = cpu_number(number).map_err(|what| wrong(&what))?;
            cpus.insert(number, Vec::new());
            cpu = Some(number);
        } else if first.starts_with("domain") {
            let version = version.ok_or_else(|| wrong("a domain before the line with the version"))?;
            let domains = cpu.and_then(|cpu| cpus.get_mut(&cpu)).ok_or_else(|| wrong("a domain before any CPU"))?;
            let name = if version >= NAMED_FROM { words.next().map(str::to_owned) } else { None };
            let mask = words.next().ok_or_else(|| wrong("the line ends before the domain's mask"))?;
            let span = cpu_set(CpuSet::parse_mask(mask)).map_err(|what| wrong(&what))?;
            domains.push(ObservedDomain { name, span: Some(span), ..ObservedDomain::default() });
        }
    }
    match version {
        Some(_) => Ok(cpus),
        None => Err("has no line `version N`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `cpu: name span, name span` per CPU.
    fn spans(text: &str) -> Vec<String> {
        let shown = |domain: &ObservedDomain| {
            format!("{} {}", domain.name.as_deref().unwrap_or("-"), domain.span.as_ref().unwrap())
        };
        let cpu = |(cpu, domains): (u32, Vec<ObservedDomain>)| {
            format!("{cpu}: {}", domains.iter().map(shown).collect::<Vec<_>>().join(", "))
        };
        parse(text).unwrap().into_iter().map(cpu).collect()
    }

    #[test]
    fn version_15_has_masks_in_words_of_32_bits_and_no_names() {
        let text = "version 15\ntimestamp 4294905842\ncpu0 0 0 0 0 0 0 1 2 3\n\
                    domain0 00000000,0000000f 0 0 0\ndomain1 0000ffff,ffffffff 0 0 0\ncpu40 0 0 0 0 0 0 1 2 3\n";
        assert_eq!(spans(text), ["0: - 0-3, - 0-47", "40: "]);
    }

    #[test]
    fn version_17_names_its_domains() {
        let text = "version 17\ntimestamp 1\ncpu2 0 0\ndomain0 CLS 00000f 0 0\n";
        assert_eq!(spans(text), ["2: CLS 0-3"]);
    }

    #[test]
    fn what_is_no_schedstat_is_refused_with_its_line() {
        for (text, message) in [
            ("", "has no line `version N`"),
            ("version x\n", "line 1: `version` is followed by no number"),
            ("version 15\ndomain0 f 0\n", "line 2: a domain before any CPU"),
            ("cpu0 0\ndomain0 f 0\n", "line 2: a domain before the line with the version"),
            ("version 15\ncpuX 0\n", "line 2: `X` is not a CPU number"),
            ("version 15\ncpu16384 0\n", "line 2: CPU 16384 is named; machines of up to 16384 CPUs are supported"),
            ("version 17\ncpu0 0\ndomain0 CLS\n", "line 3: the line ends before the domain's mask"),
            ("version 17\ncpu0 0\ndomain0 CLS 0-3 0\n", "line 3: `0-3` is not a hexadecimal mask"),
        ] {
            assert_eq!(parse(text).unwrap_err(), message);
        }
    }
}
