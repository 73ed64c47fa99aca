//! How a command fails: one line on stderr, exit status 1 when the work failed, 2 when it was asked wrongly.

use std::fmt::Display;
use std::process::ExitCode;

/// Why a command ends without having done its work.
pub struct Failure {
    status: u8,
    message: String,
}

impl Failure {
    /// The work failed (exit status 1).
    pub fn work(message: impl Display) -> Self {
        Failure { status: 1, message: message.to_string() }
    }

    /// The command was used wrongly: unknown name, number out of range (exit status 2).
    pub fn usage(message: impl Display) -> Self {
        Failure { status: 2, message: message.to_string() }
    }

    /// Prints the line and gives the exit status. A closed pipe on the other side of stdout is no failure.
    pub fn report(self) -> ExitCode {
        if self.status != 0 {
            eprintln!("huddle: {}", escaped(&self.message));
        }
        ExitCode::from(self.status)
    }
}

/// The text with control characters as Rust writes them (`\u{1b}`): input must not steer the terminal or add lines.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char.is_control() {
            true => out.extend(char.escape_default()),
            false => out.push(char),
        }
    }
    out
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Failure { status: 0, message: String::new() },
            _ => Failure::work(format!("cannot write the output: {error}")),
        }
    }
}
