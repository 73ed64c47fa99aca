//! The socket through which root changes the mode, asks for the status, or stops the scheduler. One JSON line each way.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use serde::{Deserialize, Serialize};

use super::shared::Counters;

/// Where the running scheduler listens.
pub const SOCKET: &str = "/run/huddle.sock";
/// Longest request and answer.
const LIMIT: u64 = 1 << 20;
/// How long either side waits for the other.
const PATIENCE: Duration = Duration::from_secs(5);

/// What may be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case")]
pub enum Request {
    /// Change the mode.
    Mode {
        /// `gather`, `spread`.
        mode: String,
    },
    /// Tell the status.
    Status,
    /// Give the CPUs back to the kernel's scheduler and leave.
    Stop,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// Done.
    Done,
    /// The status.
    Status(Box<Status>),
    /// Not done; why.
    Refused {
        /// One line.
        message: String,
    },
}

/// What the running scheduler tells of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Of the process.
    pub pid: u32,
    /// The mode.
    pub mode: String,
    /// The policies: gathering, spreading, new tasks.
    pub policies: [String; 3],
    /// Kinds of the steps of each, in order.
    pub steps: [Vec<String>; 3],
    /// Seconds since it was attached.
    pub seconds: f64,
    /// Only tasks of SCHED_EXT.
    pub partial: bool,
    /// Times that it was loaded again because CPUs came or went.
    pub reloads: u32,
    /// Busy CPUs by cluster.
    pub busy: Vec<ClusterBusy>,
    /// Placements by plan and step; the last of each is the core's own rules.
    pub placed: [Vec<u64>; 3],
    /// Wake-ups by distance, waker to chosen CPU: same CPU, SMT, cluster, LLC, node, package, beyond.
    pub wake_distance: Vec<u64>,
    /// Wake-ups by distance, previous to chosen CPU.
    pub move_distance: Vec<u64>,
    /// Waits by log2 of microseconds.
    pub wait_us: Vec<u64>,
    /// Waiting tasks taken: own CPU's queue, own cluster's, LLC's other clusters', node's, farther.
    pub taken: Vec<u64>,
    /// Placed tasks that went straight to a CPU: an idle one, or their waker's.
    pub direct: u64,
    /// Tasks that had to wait in a cluster's queue.
    pub queued: u64,
    /// Wake-ups of tasks that were still leaving their CPU: queued there without a placement.
    pub unplaced: u64,
    /// Tasks queued on their only CPU.
    pub pinned: u64,
    /// CPUs taken from a task by a woken one.
    pub preempted: u64,
    /// Long-running tasks moved to an idler cluster.
    pub balanced: u64,
    /// Tasks moved there on exec.
    pub exec_moved: u64,
}

/// A cluster and how busy it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterBusy {
    /// Its CPUs as a list.
    pub cpus: String,
    /// Share of their time that was used since the last status, per mille.
    pub busy_per_mille: u32,
}

impl Status {
    /// Takes over the counters; `placed` is cut to each plan's steps and the core's rules.
    pub fn set_counters(&mut self, counters: &Counters) {
        let last = counters.placed[0].len() - 1;
        for (index, row) in counters.placed.iter().enumerate() {
            let steps = self.steps[index].len().min(last);
            // The interpreter counts the core's rules behind the plan's last step.
            self.placed[index] = row[..=steps].to_vec();
        }
        self.wake_distance = counters.wake_distance.to_vec();
        self.move_distance = counters.move_distance.to_vec();
        self.wait_us = counters.wait_us.to_vec();
        self.taken = counters.taken.to_vec();
        self.direct = counters.direct;
        self.queued = counters.queued;
        self.unplaced = counters.unplaced;
        self.pinned = counters.pinned;
        self.preempted = counters.preempted;
        self.balanced = counters.balanced;
        self.exec_moved = counters.exec_moved;
    }
}

/// Why the running scheduler could not be reached.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Nobody listens.
    #[error("no huddle scheduler runs here (nobody listens on {0}); start one with `huddle run`")]
    Nobody(String),
    /// The other side says nothing.
    #[error("{0}: no answer within 5 s; the scheduler may still be loading: try again")]
    Silent(String),
    /// Not root.
    #[error("{0}: only root may ask; run as root")]
    Denied(String),
    /// Another is already there.
    #[error("a huddle scheduler runs already (process {0}); stop it with `huddle stop`")]
    Running(u32),
    /// The socket failed.
    #[error("{socket}: {error}")]
    Socket {
        /// Its path.
        socket: String,
        /// The system's word.
        error: io::Error,
    },
    /// The other side speaks otherwise.
    #[error("{0}: no answer that this version understands")]
    Foreign(String),
}

fn failed(socket: &Path, error: io::Error) -> ControlError {
    let socket = socket.display().to_string();
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => ControlError::Nobody(socket),
        io::ErrorKind::PermissionDenied => ControlError::Denied(socket),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ControlError::Silent(socket),
        _ => ControlError::Socket { socket, error },
    }
}

/// Asks the scheduler that listens on the socket.
///
/// # Errors
/// When nobody listens, the caller may not ask, or the answer makes no sense.
pub fn ask(socket: &Path, request: &Request) -> Result<Answer, ControlError> {
    let mut stream = UnixStream::connect(socket).map_err(|error| failed(socket, error))?;
    let exchange = |stream: &mut UnixStream| {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        write_line(stream, request)?;
        read_line(stream)
    };
    let line = exchange(&mut stream).map_err(|error| failed(socket, error))?;
    serde_json::from_str(&line).map_err(|_| ControlError::Foreign(socket.display().to_string()))
}

/// Listens. A socket that a dead scheduler left behind is replaced.
///
/// # Errors
/// When a scheduler listens there, or the socket cannot be made.
pub(super) fn listen(socket: &Path) -> Result<UnixListener, ControlError> {
    if let Ok(Answer::Status(status)) = ask(socket, &Request::Status) {
        return Err(ControlError::Running(status.pid));
    }
    match fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(socket, error)),
        _ => {}
    }
    let listener = UnixListener::bind(socket).map_err(|error| failed(socket, error))?;
    // Only the owner, which is root, may connect.
    fs::set_permissions(socket, fs::Permissions::from_mode(0o600)).map_err(|error| failed(socket, error))?;
    Ok(listener)
}

/// Serves one connection: reads its request, lets `answer` answer.
pub(super) fn serve_one(mut stream: UnixStream, answer: impl FnOnce(Request) -> Answer) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let line = read_line(&mut stream)?;
    let answer = match serde_json::from_str(&line) {
        Ok(request) => answer(request),
        Err(error) => Answer::Refused { message: format!("not a request: {error}") },
    };
    write_line(&mut stream, &answer)
}

fn read_line(stream: &mut UnixStream) -> io::Result<String> {
    let mut line = String::new();
    BufReader::new(stream.take(LIMIT)).read_line(&mut line)?;
    Ok(line)
}

fn write_line(stream: &mut UnixStream, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_string(value)?;
    line.push('\n');
    stream.write_all(line.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_answered_and_nonsense_refused() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        let listener = listen(&socket).unwrap();
        assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
        let server = std::thread::spawn(move || {
            for _ in 0..2 {
                let (stream, _) = listener.accept().unwrap();
                serve_one(stream, |request| {
                    assert_eq!(request, Request::Mode { mode: "spread".to_owned() });
                    Answer::Done
                })
                .unwrap();
            }
        });
        assert_eq!(ask(&socket, &Request::Mode { mode: "spread".to_owned() }).unwrap(), Answer::Done);
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.write_all(b"{}\n").unwrap();
        let answer: Answer = serde_json::from_str(&read_line(&mut stream).unwrap()).unwrap();
        assert!(matches!(answer, Answer::Refused { .. }));
        server.join().unwrap();
    }

    #[test]
    fn silence_is_told_as_such() {
        let error = io::Error::from(io::ErrorKind::WouldBlock);
        let said = failed(Path::new("/run/s"), error).to_string();
        assert_eq!(said, "/run/s: no answer within 5 s; the scheduler may still be loading: try again");
    }

    #[test]
    fn a_socket_without_a_scheduler_is_nobody_and_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        assert!(matches!(ask(&socket, &Request::Stop), Err(ControlError::Nobody(_))));
        drop(listen(&socket).unwrap());
        assert!(matches!(ask(&socket, &Request::Stop), Err(ControlError::Nobody(_))));
        listen(&socket).unwrap();
    }
}
