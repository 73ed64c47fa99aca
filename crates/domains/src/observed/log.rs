//! The kernel log of a boot with `sched_verbose` (before 5.13 `sched_debug`), as `dmesg` or a journal prints it:
//! `kernel/sched/topology.c`, `sched_domain_debug()` and `build_sched_domain()`.

use std::collections::BTreeMap;

use huddle_machine::CpuSet;

use super::{ObservedDomain, ObservedGroup, cpu_number, cpu_set};

/// What the log says of domains, as of its last line.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct KernelLog {
    /// The domains that each CPU was given last; empty after it was detached.
    pub cpus: BTreeMap<u32, Vec<ObservedDomain>>,
    /// Spans of the root domains that stand.
    pub root_domains: Vec<CpuSet>,
    /// Each complaint once.
    pub complaints: Vec<String>,
    /// Each error once.
    pub errors: Vec<String>,
}

/// Reads a log.
///
/// # Errors
/// The line that a kernel would not write.
pub(super) fn parse(text: &str) -> Result<KernelLog, String> {
    let mut reader = Reader::default();
    for (index, line) in text.lines().enumerate() {
        reader.line(message_of(line), index + 1)?;
    }
    reader.end_groups()?;
    Ok(reader.log)
}

/// The messages of a text read from `/dev/kmsg`, one line each, as `dmesg` prints them without time stamps.
pub fn kmsg_text(records: &str) -> String {
    // A record is `priority,sequence,time,flags;text`, with lines of properties after it that begin with a space.
    let message = |line: &str| line.split_once(';').map(|(_, text)| unescaped(text) + "\n");
    records.lines().filter(|line| !line.starts_with(' ')).filter_map(message).collect()
}

/// `\x09` as the character it stands for.
fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("\\x") {
        out.push_str(&rest[..at]);
        match rest.get(at + 2..at + 4).and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                out.push(byte.into());
                rest = &rest[at + 4..];
            }
            None => {
                out.push_str("\\x");
                rest = &rest[at + 2..];
            }
        }
    }
    out + rest
}

/// The message without what `dmesg` or a journal puts before it: host, level, time, caller. None that is read here
/// begins with a bracket.
fn message_of(line: &str) -> &str {
    let mut message = line.split_once(" kernel: ").map_or(line, |(_, message)| message).trim();
    for (open, close) in [('<', '>'), ('[', ']'), ('[', ']')] {
        message = message.strip_prefix(open).and_then(|rest| rest.split_once(close)).map_or(message, |(_, rest)| rest);
        message = message.trim_start();
    }
    message
}

#[derive(Default)]
struct Reader {
    log: KernelLog,
    /// The CPU whose domains are being listed.
    cpu: Option<u32>,
    /// The list of groups so far: the kernel writes it in pieces and the log may break it between them.
    groups: String,
    groups_line: usize,
}

impl Reader {
    fn line(&mut self, message: &str, number: usize) -> Result<(), String> {
        if !self.groups.is_empty() && is_groups_piece(message) {
            self.groups.push_str(message);
            return Ok(());
        }
        let wrong = |what: String| format!("line {number}: {what}");
        if let Some((cpu, rest)) = cpu_attaching(message) {
            self.end_groups()?;
            let cpu = cpu_number(cpu).map_err(wrong)?;
            self.cpu = (!rest.starts_with("NULL")).then_some(cpu);
            self.log.cpus.insert(cpu, Vec::new());
        } else if let Some(list) = root_domain(message) {
            self.end_groups()?;
            self.cpu = None;
            let span = cpu_set(CpuSet::parse_list(list)).map_err(wrong)?;
            self.log.root_domains.retain(|other| !other.intersects(&span));
            self.log.root_domains.push(span);
        } else if let Some(rest) = message.strip_prefix("domain-") {
            self.end_groups()?;
            let Some(cpu) = self.cpu else { return Ok(()) };
            let rest = rest.split_once(':').map_or("", |(_, rest)| rest);
            self.domains(cpu).push(ObservedDomain::default());
            self.span(cpu, rest.trim()).map_err(wrong)?;
        } else if let (Some(cpu), true) = (self.cpu, message.starts_with("span=")) {
            // The line broke after `domain-0:`.
            self.span(cpu, message).map_err(wrong)?;
        } else if let (Some(_), Some(list)) = (self.cpu, message.strip_prefix("groups:")) {
            self.end_groups()?;
            self.groups_line = number;
            self.groups = format!("{list} ");
        } else if message.contains(" domain not a subset of the ") {
            add_once(&mut self.log.complaints, format!("arch topology borken: {message}"));
        } else if let (Some(_), true) = (self.cpu, message.starts_with("ERROR: ")) {
            add_once(&mut self.log.errors, message.to_owned());
        }
        Ok(())
    }

    fn domains(&mut self, cpu: u32) -> &mut Vec<ObservedDomain> {
        self.log.cpus.entry(cpu).or_default()
    }

    /// `span=0-3 level=CLS` of the last domain.
    fn span(&mut self, cpu: u32, text: &str) -> Result<(), String> {
        let Some(list) = text.strip_prefix("span=") else { return Ok(()) };
        let (list, level) = list.split_once(' ').unwrap_or((list, ""));
        let span = cpu_set(CpuSet::parse_list(list))?;
        let name = level.strip_prefix("level=").filter(|name| !name.is_empty()).map(str::to_owned);
        if let Some(domain) = self.domains(cpu).last_mut() {
            domain.span = Some(span);
            domain.name = name;
        }
        Ok(())
    }

    /// Takes over the list of groups that has been collected.
    fn end_groups(&mut self) -> Result<(), String> {
        let text = std::mem::take(&mut self.groups);
        let (Some(cpu), false) = (self.cpu, text.is_empty()) else { return Ok(()) };
        let groups = groups(&text).map_err(|what| format!("line {}: {what}", self.groups_line))?;
        if let Some(domain) = self.domains(cpu).last_mut() {
            domain.groups = Some(groups);
        }
        Ok(())
    }
}

/// `CPU3 attaching …` as `3` and the rest.
fn cpu_attaching(message: &str) -> Option<(&str, &str)> {
    message.strip_prefix("CPU")?.split_once(" attaching ").filter(|(cpu, _)| cpu.bytes().all(|b| b.is_ascii_digit()))
}

/// The span in `root domain span: 0-23 …`.
fn root_domain(message: &str) -> Option<&str> {
    message.strip_prefix("root domain span: ")?.split_whitespace().next()
}

/// Whether the line goes on with a list of groups: ` 4:{ span=4-7`, ` cap=4096`, ` }`, `,`.
fn is_groups_piece(message: &str) -> bool {
    let digits = message.bytes().take_while(u8::is_ascii_digit).count();
    digits > 0 && message[digits..].starts_with(":{")
        || ["span=", "mask=", "cap=", "}", ","].iter().any(|piece| message.starts_with(piece))
}

/// ` 0:{ span=0-3 cap=4081 }, 4:{ span=4-7 mask=4 }` as groups.
fn groups(text: &str) -> Result<Vec<ObservedGroup>, String> {
    text.split('}').map(|group| group.trim_matches([' ', ','])).filter(|group| !group.is_empty()).map(group).collect()
}

fn group(text: &str) -> Result<ObservedGroup, String> {
    let wrong = || format!("`{text}` is no group like `0:{{ span=0-3`");
    let (id, fields) = text.split_once(":{").ok_or_else(wrong)?;
    let set = |name: &str| {
        // `span=` must be found also where a broken line left no space before it.
        let list = fields.split_once(name)?.1;
        let end = list.find(|char: char| !char.is_ascii_digit() && char != '-' && char != ',').unwrap_or(list.len());
        cpu_set(CpuSet::parse_list(&list[..end])).ok()
    };
    Ok(ObservedGroup {
        id: cpu_number(id.trim()).map_err(|_| wrong())?,
        span: set("span=").ok_or_else(wrong)?,
        balance_mask: set("mask="),
    })
}

fn add_once(list: &mut Vec<String>, text: String) {
    if !list.contains(&text) {
        list.push(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ATTACH: &str = "\
[    6.407909] CPU0 attaching sched-domain(s):
[    6.408445]  domain-0: span=0-3 level=CLS
[    6.409139]   groups: 0:{ span=0 cap=1009 }, 1:{ span=1 }
[    6.415945]   domain-1: span=0-47 level=NUMA
[    6.416229]    groups: 0:{ span=0-23 mask=0-3,8 cap=4081 }, 24:{ span=24-47 }
[    6.450000] root domain span: 0-47
";

    /// `name span: groups` of a CPU's domains.
    fn shown(log: &KernelLog, cpu: u32) -> Vec<String> {
        let group = |group: &ObservedGroup| match &group.balance_mask {
            Some(mask) => format!("{}:{} mask {mask}", group.id, group.span),
            None => format!("{}:{}", group.id, group.span),
        };
        let domain = |domain: &ObservedDomain| {
            let groups: Vec<String> = domain.groups.iter().flatten().map(group).collect();
            let name = domain.name.as_deref().unwrap_or("?");
            format!("{name} {}: {}", domain.span.as_ref().unwrap(), groups.join("; "))
        };
        log.cpus[&cpu].iter().map(domain).collect()
    }

    fn expected() -> [&'static str; 2] {
        ["CLS 0-3: 0:0; 1:1", "NUMA 0-47: 0:0-23 mask 0-3,8; 24:24-47"]
    }

    #[test]
    fn attach_lines_become_domains_with_groups_in_order() {
        let log = parse(ATTACH).unwrap();
        assert_eq!(shown(&log, 0), expected());
        assert_eq!(log.root_domains.iter().map(CpuSet::to_string).collect::<Vec<_>>(), ["0-47"]);
        assert!(log.complaints.is_empty() && log.errors.is_empty());
    }

    #[test]
    fn prefixes_of_dmesg_raw_and_journal_are_left_out() {
        let bare: String = ATTACH.lines().map(|line| line[15..].to_owned() + "\n").collect();
        let raw: String = ATTACH.lines().map(|line| format!("<7>{line}\n")).collect();
        let journal: String = bare.lines().map(|line| format!("Nov 30 19:51:40 box kernel: {line}\n")).collect();
        let caller = ATTACH.replace("] ", "][    T1] ");
        let clock = bare.lines().map(|line| format!("[Mon Nov 30 19:51:40 2026] {line}\n")).collect();
        for text in [bare, raw, journal, caller, clock] {
            assert_eq!(shown(&parse(&text).unwrap(), 0), expected(), "{text}");
        }
    }

    #[test]
    fn other_messages_between_the_lines_are_passed_over() {
        let noisy = ATTACH.replace('\n', "\n[    6.400000] rcu: stall, span=7 of nothing\n");
        assert_eq!(shown(&parse(&noisy).unwrap(), 0), expected());
    }

    #[test]
    fn broken_lines_are_joined() {
        let broken = ATTACH
            .replace("domain-0: span", "domain-0: \n[    6.408446] span")
            .replace(" cap=4081 }, 24", "\n[    6.416230]  cap=4081 }, 24")
            .replace(", 1:{ span", ",\n 1:{ span");
        assert_eq!(shown(&parse(&broken).unwrap(), 0), expected());
    }

    #[test]
    fn last_attach_counts_and_a_detached_cpu_has_none() {
        let text = format!(
            "{ATTACH}CPU0 attaching NULL sched-domain.\nCPU1 attaching NULL sched-domain.\n\
             CPU0 attaching sched-domain(s):\n domain-0: span=0-1 level=MC\n  groups: 0:{{ span=0 }}, 1:{{ span=1 }}\n\
             root domain span: 0-1\n"
        );
        let log = parse(&text).unwrap();
        assert_eq!(shown(&log, 0), ["MC 0-1: 0:0; 1:1"]);
        assert!(log.cpus[&1].is_empty());
        assert_eq!(log.root_domains.iter().map(CpuSet::to_string).collect::<Vec<_>>(), ["0-1"]);
    }

    #[test]
    fn complaints_and_errors_are_kept_once() {
        let complaint = "BUG: arch topology borken\n     the CLS domain not a subset of the MC domain\n";
        let text = format!("{complaint}{complaint}{ATTACH}").replace(
            "[    6.450000]",
            "ERROR: groups don't span domain->span\nERROR: groups don't span domain->span\n",
        );
        let log = parse(&text).unwrap();
        assert_eq!(log.complaints, ["arch topology borken: the CLS domain not a subset of the MC domain"]);
        assert_eq!(log.errors, ["ERROR: groups don't span domain->span"]);
    }

    #[test]
    fn wrong_lines_are_refused_with_their_number() {
        for (from, to, message) in [
            ("span=0-3 l", "span=0-x l", "line 2: `0-x` is not a CPU number or a range like 0-3"),
            ("0:{ span=0 ", "0:{ spam=0 ", "line 3: `0:{ spam=0 cap=1009` is no group like `0:{ span=0-3`"),
            ("1:{ span=1 }", "one:{ span=1 }", "line 3: `one:{ span=1` is no group like `0:{ span=0-3`"),
            ("CPU0 a", "CPU99999 a", "line 1: CPU 99999 is named; machines of up to 16384 CPUs are supported"),
            ("span: 0-47", "span: 0-16384", "line 6: CPU 16384 is named; machines of up to 16384 CPUs are supported"),
            ("span: 0-47", "span: all", "line 6: `all` is not a CPU number or a range like 0-3"),
        ] {
            assert_eq!(parse(&ATTACH.replace(from, to)).unwrap_err(), message);
        }
    }

    #[test]
    fn records_of_kmsg_are_read_as_lines() {
        let records = "7,339,6407909,-;CPU0 attaching sched-domain(s):\n SUBSYSTEM=cpu\n\
                       7,340,6408445,-; domain-0: span=0-1 level=MC\n6,341,6409139,-;a\\x09b; c\\x5c\n";
        assert_eq!(kmsg_text(records), "CPU0 attaching sched-domain(s):\n domain-0: span=0-1 level=MC\na\tb; c\\\n");
    }
}
