//! The text of tracefs' `trace` file.
//!
//! Lines that begin with `##` are ours: `## kernel=RELEASE load=NAME …` begins a load's part, `## lost …` and `## missed …` say what is
//! not in it, other lines of the kind mean nothing. Lines with one `#` are the tracer's own heading.

use huddle_machine::CpuId;

use crate::{Context, Event, Kind, Record, Section};

/// Why a text is no trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// A line that is none of the tracer's.
    #[error("line {0}: not a line of tracefs' `trace` file: {1}")]
    Line(usize, String),
    /// A known event without a field.
    #[error("line {line}: {event} has no readable `{field}`")]
    Field {
        /// Counted from 1.
        line: usize,
        /// The event.
        event: String,
        /// The field.
        field: &'static str,
    },
    /// Nothing to work on.
    #[error(
        "the trace holds no event of the scheduler; record sched_switch, sched_wakeup and probes of select_task_rq_fair"
    )]
    Empty,
}

/// Most characters of a line that an error shows.
const SHOWN: usize = 80;
/// Flags of `select_task_rq_fair` from 5.11 on (`kernel/sched/sched.h`, `WF_*`): a fork, a wake-up, sync, this CPU.
const WF: [u32; 4] = [0x04, 0x08, 0x10, 0x40];
/// The sync flag up to 5.10.
const WF_SYNC_5_10: u32 = 0x01;

/// Reads a trace: its parts in the order of the text, a text without our headings as one part.
///
/// # Errors
/// A line that the tracer does not write, or no event at all.
pub fn parse(text: &str) -> Result<Vec<Section>, TraceError> {
    let mut sections: Vec<Section> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(ours) = line.strip_prefix("##") {
            heading(ours.trim(), &mut sections);
            continue;
        }
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if sections.is_empty() {
            sections.push(Section::default());
        }
        let Some(section) = sections.last_mut() else { continue };
        if line.starts_with("CPU:") && line.contains("LOST") {
            section.lost.push(line.to_owned());
            continue;
        }
        if let Some(record) = record(number + 1, line)? {
            section.records.push(record);
        }
    }
    sections.retain(|section| !section.records.is_empty());
    if sections.is_empty() { Err(TraceError::Empty) } else { Ok(sections) }
}

fn heading(line: &str, sections: &mut Vec<Section>) {
    let value = |key: &str| line.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('=')).unwrap_or("");
    if line.starts_with("kernel=") {
        let (kernel, load) = (value("kernel").to_owned(), value("load").to_owned());
        sections.push(Section { kernel, load, ..Section::default() });
    } else if (line.starts_with("lost") || line.starts_with("missed"))
        && let Some(section) = sections.last_mut()
    {
        section.lost.push(line.to_owned());
    }
}

/// A line: `COMM-PID [CPU] FLAGS SECONDS: EVENT: FIELDS`; `None` for an event that says nothing here.
fn record(number: usize, line: &str) -> Result<Option<Record>, TraceError> {
    let wrong = || TraceError::Line(number, line.chars().take(SHOWN).collect());
    let head = Head::read(line).ok_or_else(wrong)?;
    let fields = Fields { line: number, event: head.event, text: head.rest };
    let event = match event(&fields)? {
        Some(event) => event,
        None => return Ok(None),
    };
    let Head { time_us, cpu, pid, comm, context, .. } = head;
    Ok(Some(Record { time_us, cpu, pid, comm: comm.into(), context, event }))
}

/// What every line has.
struct Head<'a> {
    comm: &'a str,
    pid: u32,
    cpu: CpuId,
    context: Context,
    time_us: u64,
    event: &'a str,
    rest: &'a str,
}

impl<'a> Head<'a> {
    fn read(line: &'a str) -> Option<Head<'a>> {
        // A name may hold blanks and brackets; the CPU is the first bracket of digits alone.
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let (at, end) = line.match_indices('[').find_map(|(at, _)| {
            let end = at + line[at..].find(']')?;
            digits(&line[at + 1..end]).then_some((at, end))
        })?;
        let (comm, pid) = line[..at].trim().rsplit_once('-')?;
        let (flags, rest) = line[end + 1..].trim_start().split_once(' ')?;
        let (time, rest) = rest.trim_start().split_once(": ")?;
        let (event, rest) = rest.split_once(':')?;
        let (seconds, fraction) = time.split_once('.')?;
        let fraction: u64 = format!("{fraction:0<6}").get(..6)?.parse().ok()?;
        let context = match flags.as_bytes().get(2)? {
            b'.' => Context::Task,
            b's' => Context::Softirq,
            _ => Context::Hardirq,
        };
        let seconds: u64 = seconds.parse().ok()?;
        let time_us = seconds.checked_mul(1_000_000)?.checked_add(fraction)?;
        let (pid, cpu) = (pid.parse().ok()?, CpuId(line[at + 1..end].parse().ok()?));
        Some(Head { comm: comm.trim(), pid, cpu, context, time_us, event: event.trim(), rest: rest.trim() })
    }
}

/// The fields of an event.
struct Fields<'a> {
    line: usize,
    event: &'a str,
    text: &'a str,
}

impl<'a> Fields<'a> {
    /// The text from behind `KEY=` on; a key begins the text or follows a blank.
    fn after(&self, key: &str) -> Option<&'a str> {
        let found = self.text.match_indices(key).find(|&(at, _)| {
            (at == 0 || self.text.as_bytes()[at - 1] == b' ') && self.text[at + key.len()..].starts_with('=')
        });
        found.map(|(at, _)| &self.text[at + key.len() + 1..])
    }

    fn word(&self, key: &str) -> Option<&'a str> {
        self.after(key).map(|text| text.split(' ').next().unwrap_or(text))
    }

    fn missing(&self, field: &'static str) -> TraceError {
        TraceError::Field { line: self.line, event: self.event.to_owned(), field }
    }

    fn number(&self, key: &'static str) -> Result<u32, TraceError> {
        self.optional(key)?.ok_or_else(|| self.missing(key))
    }

    /// A number, decimal or with 0x; `None` when there is none or it is negative.
    fn optional(&self, key: &'static str) -> Result<Option<u32>, TraceError> {
        let Some(word) = self.word(key) else { return Ok(None) };
        let parsed = match word.strip_prefix("0x") {
            Some(digits) => i64::from_str_radix(digits, 16),
            None => word.parse(),
        };
        let number = parsed.map_err(|_| self.missing(key))?;
        Ok(u32::try_from(number).ok())
    }

    fn cpu(&self, key: &'static str) -> Result<CpuId, TraceError> {
        self.number(key).map(CpuId)
    }

    /// The name of a task, which may hold blanks: it ends where ` pid=` begins.
    fn comm(&self) -> Result<Box<str>, TraceError> {
        let text = self.after("comm").ok_or_else(|| self.missing("comm"))?;
        Ok(text.split(" pid=").next().unwrap_or(text).into())
    }
}

fn event(fields: &Fields) -> Result<Option<Event>, TraceError> {
    Ok(Some(match fields.event {
        "sched_switch" => Event::Switch {
            prev: fields.number("prev_pid")?,
            runnable: fields.word("prev_state").is_some_and(|state| state.starts_with('R')),
            next: fields.number("next_pid")?,
        },
        "sched_waking" => Event::Waking { pid: fields.number("pid")?, comm: fields.comm()? },
        event @ ("sched_wakeup" | "sched_wakeup_new") => Event::Queued {
            pid: fields.number("pid")?,
            comm: fields.comm()?,
            cpu: fields.cpu("target_cpu")?,
            new: event == "sched_wakeup_new",
        },
        "sched_migrate_task" => {
            Event::Migrate { pid: fields.number("pid")?, comm: fields.comm()?, to: fields.cpu("dest_cpu")? }
        }
        "sched_process_exit" => Event::Exit { pid: fields.number("pid")? },
        "select" => select(fields)?,
        "selected" => Event::Selected { cpu: fields.cpu("cpu")? },
        "look" => Event::Look { cpu: fields.cpu("cpu")? },
        "choose" => Event::Choose { cpu: fields.cpu("cpu")? },
        "idle" => Event::Idle(fields.number("idle")? != 0),
        _ => return Ok(None),
    }))
}

/// The probe on `select_task_rq_fair`; with `kind` it is that of a kernel up to 5.10, whose domain flags have the bits that
/// later kernels give `WF_FORK` and `WF_TTWU`.
fn select(fields: &Fields) -> Result<Event, TraceError> {
    let flags = fields.number("flags")?;
    let [fork, wake, sync, current] = WF;
    let older = fields.optional("kind")?;
    let kinds = older.unwrap_or(flags);
    let kind = match (kinds & wake != 0, kinds & fork != 0) {
        (true, _) => Kind::Wakeup,
        (false, true) => Kind::Fork,
        (false, false) => Kind::Exec,
    };
    Ok(Event::Select {
        prev: fields.cpu("prev")?,
        kind,
        sync: flags & if older.is_some() { WF_SYNC_5_10 } else { sync } != 0,
        current_cpu: older.is_none() && flags & current != 0,
        pid: fields.optional("pid")?,
        recent: fields.optional("recent")?.map(CpuId),
        flips: fields.optional("flips")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SELECT: &str = "bound hog-77 [003] d.s2. 12.345678: select: (select_task_rq_fair+0x0/0x1d0) prev=3 flags=24 pid=9 \
        recent=-1 flips=5";

    #[test]
    fn a_probe_of_7_2_gives_flags_and_context() {
        let sections = parse(SELECT).expect("a line");
        let record = &sections[0].records[0];
        assert_eq!((record.pid, &*record.comm, record.cpu, record.time_us), (77, "bound hog", CpuId(3), 12_345_678));
        assert_eq!(record.context, Context::Softirq);
        let expected = Event::Select {
            prev: CpuId(3),
            kind: Kind::Wakeup,
            sync: true,
            current_cpu: false,
            pid: Some(9),
            recent: None,
            flips: Some(5),
        };
        assert_eq!(record.event, expected);
    }

    #[test]
    fn a_probe_of_5_10_has_the_sync_flag_in_bit_0() {
        let text = "a-1 [000] d..2 1.0: select: (select_task_rq_fair+0x0/0x1) prev=3 kind=8 flags=1 pid=9";
        let Event::Select { kind, sync, .. } = parse(text).expect("a line")[0].records[0].event else {
            panic!("a select")
        };
        assert_eq!((kind, sync), (Kind::Wakeup, true));
    }

    #[test]
    fn a_switch_of_a_task_with_blanks_is_read() {
        let text = "## kernel=6.1.0 load=x\n## lost overrun: 5\nx-1 [010] d..2. 1.5: sched_switch: prev_comm=bound hog prev_pid=4 \
            prev_prio=120 prev_state=R+ ==> next_comm=swapper/10 next_pid=0 next_prio=120";
        let section = &parse(text).expect("a line")[0];
        assert_eq!((&*section.kernel, &*section.load, section.lost.len()), ("6.1.0", "x", 1));
        assert_eq!(section.records[0].event, Event::Switch { prev: 4, runnable: true, next: 0 });
    }

    #[test]
    fn other_text_is_refused_with_its_line() {
        assert_eq!(parse("").expect_err("empty"), TraceError::Empty);
        assert!(parse("# x\nhello").expect_err("no trace").to_string().starts_with("line 2: "));
        let error = parse("a-1 [000] d..2 1.0: sched_waking: comm=b").expect_err("no pid");
        assert_eq!(error.to_string(), "line 1: sched_waking has no readable `pid`");
    }
}
