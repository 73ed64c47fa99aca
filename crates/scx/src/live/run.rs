//! One thread that serves requests and signals and watches over the scheduler until one of them ends it.

use std::io;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use huddle_machine::CpuSet;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::control::{Answer, ClusterBusy, ControlError, Request, Status, listen, serve_one};
use super::load::{Ending, LoadError, Mode, Scheduler};

/// How often the end of the scheduler is looked for and budgets are renewed.
const TURN: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// Over what time the status tells how busy clusters are.
const BUSY_WINDOW: Duration = Duration::from_secs(1);

/// Why serving ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Somebody asked (`huddle stop`).
    Stopped,
    /// A signal.
    Signal(i32),
    /// The kernel ended the scheduler.
    Ended(Ending),
}

/// Listens for requests and signals, over all loadings of a scheduler.
pub struct Server {
    socket: PathBuf,
    listener: UnixListener,
    signal: Arc<AtomicI32>,
}

impl Server {
    /// Listens on the socket and takes over SIGINT, SIGTERM and SIGHUP.
    ///
    /// # Errors
    /// When a scheduler listens there already, or the socket cannot be made.
    pub fn new(socket: &Path) -> Result<Server, ControlError> {
        let failed = |error| ControlError::Socket { socket: socket.display().to_string(), error };
        let listener = listen(socket)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let signal = Arc::new(AtomicI32::new(0));
        for number in [SIGINT, SIGTERM, SIGHUP] {
            let raised = Arc::clone(&signal);
            let caught = signal_hook::iterator::Signals::new([number]).map_err(failed)?;
            let mut caught = caught;
            std::thread::spawn(move || {
                for number in caught.forever() {
                    raised.store(number, Ordering::Relaxed);
                }
            });
        }
        Ok(Server { socket: socket.to_owned(), listener, signal })
    }

    /// Serves until the scheduler ends. `status` is what a status tells beside counters; `clusters` the CPUs of each.
    ///
    /// # Errors
    /// When the kernel no longer shows or takes the scheduler's state.
    pub fn serve(
        &self,
        scheduler: &mut Scheduler,
        status: &mut Status,
        clusters: &[CpuSet],
    ) -> Result<Reason, LoadError> {
        let begun = Instant::now();
        let mut window = Window::new(scheduler)?;
        let mut renewed = Instant::now();
        loop {
            let mut stopped = false;
            self.wait();
            while let Ok((stream, _)) = self.listener.accept() {
                status.seconds = begun.elapsed().as_secs_f64();
                // A client that went away is its own loss.
                let _ = stream.set_nonblocking(false);
                let _ = serve_one(stream, |request| match request {
                    Request::Stop => {
                        stopped = true;
                        Answer::Done
                    }
                    request => answer(scheduler, status, &request),
                });
            }
            if stopped {
                return Ok(Reason::Stopped);
            }
            match self.signal.load(Ordering::Relaxed) {
                0 => {}
                number => return Ok(Reason::Signal(number)),
            }
            if let Some(ending) = scheduler.ending()? {
                return Ok(Reason::Ended(ending));
            }
            let elapsed = renewed.elapsed();
            renewed = Instant::now();
            scheduler.set_idle_scans(elapsed.as_nanos() as u64)?;
            if window.begun.elapsed() >= BUSY_WINDOW {
                status.busy = window.turn(scheduler, clusters)?;
            }
        }
    }

    fn wait(&self) {
        let mut ready = [PollFd::new(&self.listener, PollFlags::IN)];
        // Interrupted by a signal: the loop looks at it.
        let _ = poll(&mut ready, Some(&TURN));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        match std::fs::remove_file(&self.socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                eprintln!("huddle: {}: cannot be removed: {error}", self.socket.display());
            }
            _ => {}
        }
    }
}

fn answer(scheduler: &mut Scheduler, status: &mut Status, request: &Request) -> Answer {
    let refused = |error: LoadError| Answer::Refused { message: error.to_string() };
    match request {
        Request::Mode { mode: name } => match Mode::of(name) {
            None => Answer::Refused { message: format!("unknown mode `{name}`; the modes are gather, spread") },
            Some(_) if status.policies[0] == status.policies[1] => {
                Answer::Refused { message: format!("one policy runs ({}), which has no modes", status.policies[0]) }
            }
            Some(mode) => match scheduler.set_mode(mode) {
                Ok(()) => {
                    status.mode = mode.name().to_owned();
                    Answer::Done
                }
                Err(error) => refused(error),
            },
        },
        _ => match scheduler.counters() {
            Ok(counters) => {
                status.set_counters(&counters);
                Answer::Status(Box::new(status.clone()))
            }
            Err(error) => refused(error),
        },
    }
}

/// Run times at the beginning of a window.
struct Window {
    begun: Instant,
    busy_ns: Vec<u64>,
}

impl Window {
    fn new(scheduler: &Scheduler) -> Result<Window, LoadError> {
        Ok(Window { begun: Instant::now(), busy_ns: scheduler.busy_ns()? })
    }

    /// How busy each cluster was in the window that ends here; begins the next one.
    fn turn(&mut self, scheduler: &Scheduler, clusters: &[CpuSet]) -> Result<Vec<ClusterBusy>, LoadError> {
        let next = Window::new(scheduler)?;
        let elapsed = (next.begun - self.begun).as_nanos().max(1) as u64;
        let busy = |cpus: &CpuSet| {
            let ran: u64 = cpus
                .iter()
                .map(|cpu| next.busy_ns[cpu.index()].saturating_sub(self.busy_ns[cpu.index()]).min(elapsed))
                .sum();
            (1000 * ran / elapsed / cpus.len().max(1) as u64) as u32
        };
        let rows =
            clusters.iter().map(|cpus| ClusterBusy { cpus: cpus.to_string(), busy_per_mille: busy(cpus) }).collect();
        *self = next;
        Ok(rows)
    }
}
