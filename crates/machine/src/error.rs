//! What can go wrong when a machine is read.

use crate::CostError;

/// Why a machine cannot be read. Each prints as one line: what, where, what to do.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The name is neither a built-in machine nor a file or folder.
    #[error("no machine `{name}`: it is neither a file, nor a folder, nor a built-in machine ({builtin})")]
    UnknownName {
        /// The name given.
        name: String,
        /// The built-in names, comma-separated.
        builtin: String,
    },
    /// The part after the colon of `NAME:nodes=2` is not understood.
    #[error("`{machine}`: {message}")]
    BadOption {
        /// The whole source given.
        machine: String,
        /// What is wrong and what would be right.
        message: String,
    },
    /// A file, folder or archive that cannot be read or holds no machine.
    #[error("{file}: {message}")]
    Source {
        /// The file or folder, for a file inside a tree `SOURCE: path`.
        file: String,
        /// What is wrong and what would be right.
        message: String,
    },
    /// A key of a machine file.
    #[error("{file}: {key}: {message}")]
    Key {
        /// The machine file.
        file: String,
        /// The key, as `table.key`.
        key: String,
        /// What is wrong and what would be right.
        message: String,
    },
    /// The cost figures of a machine file.
    #[error("{file}: [costs]: {error}")]
    Costs {
        /// The machine file.
        file: String,
        /// What is wrong with which figure.
        error: CostError,
    },
}

impl MachineError {
    /// Whether the machine was asked for wrongly (exit status 2), rather than unreadable (exit status 1).
    pub fn is_usage(&self) -> bool {
        matches!(self, MachineError::UnknownName { .. } | MachineError::BadOption { .. })
    }

    pub(crate) fn source(file: impl Into<String>, message: impl Into<String>) -> MachineError {
        MachineError::Source { file: one_line(&file.into()), message: one_line(&message.into()) }
    }
}

/// Longest text of an error or a finding, in characters: more than any of ours, less than an input can be.
const LONGEST: usize = 2000;

/// The text with control characters as Rust writes them (`\n`), cut where nobody would read on: what is quoted of an input
/// must not add lines, nor fill the screen.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::new();
    let mut chars = text.chars();
    for char in chars.by_ref().take(LONGEST) {
        match char.is_control() {
            true => line.extend(char.escape_default()),
            false => line.push(char),
        }
    }
    line.extend(chars.next().map(|_| '…'));
    line
}
