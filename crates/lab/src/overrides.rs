//! Parts of a kernel generation put in place of those of each policy's own kernel, so that wake-up variants of different releases
//! are compared on equal ground.

use std::fmt;

use huddle_domains::Kernel;

use crate::{LabError, Named};

/// The parts, in the order in which they are told.
const PARTS: [&str; 4] = ["kernel", "domains", "balance", "queue"];

/// What is replaced, by which kernel record. `kernel` is the whole record, with its rules of remote wake-ups and of pipes; the
/// others replace that part of it, or of the policy's own kernel where `kernel` is not given.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Override {
    /// By part, in the order of [`PARTS`]: the record as it was named, and what it holds.
    parts: [Option<(String, Kernel)>; PARTS.len()],
}

impl Override {
    /// Reads `kernel=5.10,queue=6.6`: any of the parts, each with a built-in kernel record or the path of one.
    ///
    /// # Errors
    /// A part that does not exist or is given twice, or a record that cannot be had.
    pub fn parse(text: &str) -> Result<Override, LabError> {
        let mut parts: [Option<(String, Kernel)>; PARTS.len()] = Default::default();
        for token in text.split(',').map(str::trim) {
            let wrong = |message: String| LabError::Override { token: token.to_owned(), message };
            let (part, name) = token.split_once('=').map_or((token, ""), |(part, name)| (part.trim(), name.trim()));
            let Some(index) = PARTS.iter().position(|&known| known == part) else {
                return Err(wrong(format!("there is no part `{part}`; write {}", forms())));
            };
            if name.is_empty() {
                return Err(wrong(format!("names no kernel record; write {}", forms())));
            }
            if parts[index].is_some() {
                return Err(wrong(format!("`{part}` is given twice; give it once")));
            }
            let kernel = Kernel::load(name).map_err(|error| wrong(error.to_string()))?;
            parts[index] = Some((name.to_owned(), kernel));
        }
        Ok(Override { parts })
    }

    /// The kernel that a policy runs on in place of its own. Its name says what was replaced.
    pub(crate) fn apply(&self, own: Kernel) -> Kernel {
        let [whole, domains, balance, queue] = &self.parts;
        let mut kernel = whole.as_ref().map_or(own, |(_, kernel)| kernel.clone());
        let mut replaced = Vec::new();
        if let Some((name, from)) = domains {
            kernel.domains = from.domains.clone();
            replaced.push(format!("domains={name}"));
        }
        if let Some((name, from)) = balance {
            kernel.balance = from.balance.clone();
            replaced.push(format!("balance={name}"));
        }
        if let Some((name, from)) = queue {
            kernel.queue = from.queue.clone();
            replaced.push(format!("queue={name}"));
        }
        if !replaced.is_empty() {
            kernel.name = format!("{} with {}", kernel.name, replaced.join(","));
        }
        kernel
    }

    /// The record that each part is taken from.
    pub(crate) fn named(&self) -> Named<String> {
        let given = PARTS.iter().zip(&self.parts);
        Named(given.filter_map(|(part, from)| Some(((*part).to_owned(), from.as_ref()?.0.clone()))).collect())
    }
}

/// `kernel=RECORD, domains=RECORD …`.
fn forms() -> String {
    PARTS.map(|part| format!("{part}=RECORD")).join(", ")
}

impl fmt::Display for Override {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.named().0.iter().map(|(part, name)| format!("{part}={name}")).collect();
        f.write_str(&parts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(name: &str) -> Kernel {
        Kernel::load(name).unwrap()
    }

    #[test]
    fn a_whole_kernel_takes_the_place_of_the_policys_own() {
        assert_eq!(Override::parse("kernel=5.10").unwrap().apply(kernel("5.9")), kernel("5.10"));
    }

    #[test]
    fn parts_are_taken_from_the_records_named_and_the_rest_stays() {
        let over = Override::parse("queue = 6.6, domains=5.16").unwrap();
        let (made, own) = (over.apply(kernel("5.9")), kernel("5.9"));
        assert_eq!((&made.domains, &made.queue), (&kernel("5.16").domains, &kernel("6.6").queue));
        assert_eq!(
            (&made.balance, made.wake_queue, made.pipe_writer_wake),
            (&own.balance, own.wake_queue, own.pipe_writer_wake)
        );
        assert_eq!(made.name, "5.9 with domains=5.16,queue=6.6");
        assert_eq!(over.to_string(), "domains=5.16,queue=6.6");
        let made = Override::parse("kernel=6.7,balance=5.9").unwrap().apply(kernel("5.10"));
        assert_eq!((&made.domains, &made.balance), (&kernel("6.7").domains, &own.balance));
        assert_eq!(made.name, "6.7 with balance=5.9");
    }

    #[test]
    fn what_does_not_exist_is_refused_in_one_line() {
        let line = |text: &str| Override::parse(text).unwrap_err().to_string();
        let forms = "write kernel=RECORD, domains=RECORD, balance=RECORD, queue=RECORD";
        assert_eq!(line("kernl=5.9"), format!("override `kernl=5.9`: there is no part `kernl`; {forms}"));
        assert_eq!(line("queue"), format!("override `queue`: names no kernel record; {forms}"));
        assert_eq!(line("queue=5.9,queue=5.10"), "override `queue=5.10`: `queue` is given twice; give it once");
        let unknown = line("domains=5.99");
        assert!(
            unknown.starts_with("override `domains=5.99`: unknown kernel `5.99`: known are 4.17, 5.9,"),
            "{unknown}"
        );
        assert!(!unknown.contains('\n'));
    }
}
