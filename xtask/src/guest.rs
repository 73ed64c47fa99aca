//! A guest: a kernel under the emulator that runs one command and powers off.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{fs, io};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::emulator::Emulator;
use crate::initramfs::Initramfs;
use crate::kernel::Kernel;
use crate::packages::{Apt, cached};
use crate::shape::Shape;

/// What to boot and run.
pub struct Guest<'a> {
    /// The machine.
    pub shape: &'a Shape,
    /// The kernel's series (`6.18`).
    pub series: &'a str,
    /// What to run, as a shell command.
    pub command: String,
    /// Programs that the guest has besides busybox, with their libraries, or folders whose files it gets; they must be of the
    /// guest's architecture.
    pub programs: Vec<PathBuf>,
    /// CPUs that go offline before the command starts.
    pub offline: Vec<usize>,
    /// Words for the kernel's command line.
    pub append: String,
    /// Start to end, the boot included.
    pub timeout: Duration,
    /// Where the console's text goes as well.
    pub console: Option<PathBuf>,
}

/// Where a guest's two streams go.
pub struct Streams {
    /// What the command writes to its standard output.
    pub out: Box<dyn Write + Send>,
    /// What it writes to its standard error.
    pub err: Box<dyn Write + Send>,
}

/// Shows the scheduler's domains in the kernel's log (`sched_verbose`, before 5.13 `sched_debug`); spares what is dear under emulation
/// and protects nobody there; does not take a host that is busy for a broken timer.
const APPEND: &str =
    "sched_verbose sched_debug log_buf_len=8M panic=-1 mitigations=off nokaslr audit=0 no_timer_check tsc=reliable";
/// Lines of the console that an error shows.
const TAIL: usize = 15;

impl Guest<'_> {
    /// Boots, runs the command, and gives its exit status.
    ///
    /// # Errors
    /// Something is missing on this machine or in Debian's archive, or the guest ended, or was killed at the time-out, without
    /// a status.
    pub fn run(&self, cache: &Path, streams: Streams) -> Result<u8> {
        let arch = self.shape.arch;
        let kernel = Kernel::of(cache, self.series, arch)?;
        let emulator = Emulator::of(cache, arch)?;
        let work = TempDir::with_prefix("huddle-guest-")?;
        let initramfs = work.path().join("initramfs");
        self.initramfs(cache, &kernel)?.write(&initramfs)?;

        let console = work.path().join("console");
        let ports = Ports::listen(work.path())?;
        let mut command = emulator.command();
        command
            .args(["-nodefaults", "-no-reboot", "-display", "none", "-accel", "tcg,thread=multi"])
            .args(self.shape.arguments())
            .arg("-kernel")
            .arg(&kernel.image)
            .arg("-initrd")
            .arg(&initramfs)
            .args(["-append", &format!("console={} {APPEND} {}", self.shape.console(), self.append)])
            .args(["-chardev", &format!("file,id=console,path={}", console.display())])
            .args(["-serial", "chardev:console", "-device", "virtio-serial-pci"]);
        for (name, path) in ports.paths() {
            command.args(["-chardev", &format!("socket,id={name},path={}", path.display())]);
            command.args(["-device", &format!("virtserialport,chardev={name},name={name}")]);
        }
        let errors = work.path().join("qemu");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(&errors)?);
        let child = command.spawn().context("cannot start the emulator")?;
        let ended = Running { child, deadline: Instant::now() + self.timeout }.wait(ports, streams);
        if let Some(to) = &self.console {
            fs::copy(&console, to).with_context(|| format!("cannot write {}", to.display()))?;
        }
        match ended? {
            Ended::Status(status) => Ok(status),
            Ended::Killed => bail!(
                "the guest was killed after {} s; its console ends so:\n{}",
                self.timeout.as_secs(),
                tail(&console)
            ),
            Ended::Silent => {
                let errors = fs::read_to_string(&errors).unwrap_or_default();
                bail!("the guest ended without a status; {}its console ends so:\n{}", errors, tail(&console))
            }
        }
    }

    fn initramfs(&self, cache: &Path, kernel: &Kernel) -> Result<Initramfs> {
        let busybox = cached(cache, &format!("busybox-{}", self.shape.arch), |folder| {
            Apt::new(cache, self.shape.arch)?.unpack(&["busybox-static"], folder)
        })?;
        let busybox = ["usr/bin/busybox", "bin/busybox"].map(|path| busybox.join(path));
        let busybox =
            busybox.iter().find(|path| path.exists()).context("the package busybox-static holds no busybox")?;
        let mut files = Initramfs::default();
        files.copy("bin/busybox", busybox, true);
        files.text("init", include_str!("init.sh"), true);
        files.text("guest/command", format!("{}\n", self.command), false);
        files.text("guest/capture", include_str!("capture.sh"), true);
        let offline: String = self.offline.iter().map(|cpu| format!("{cpu}\n")).collect();
        files.text("guest/offline", offline, false);
        let mut modules = String::new();
        for path in &kernel.modules {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            modules.push_str(&format!("{name}\n"));
            files.copy(&format!("guest/{name}"), path, false);
        }
        files.text("guest/modules", modules, false);
        if let Some(config) = &kernel.config {
            files.copy(&format!("boot/config-{}", kernel.release), config, false);
        }
        for folder in ["dev", "proc", "sys", "tmp", "run", "root", "etc"] {
            files.folder(folder);
        }
        for program in &self.programs {
            files.program(program)?;
        }
        Ok(files)
    }
}

/// How a guest ended.
enum Ended {
    Status(u8),
    Killed,
    Silent,
}

/// The ports that a guest writes to: out, err, status.
struct Ports {
    listeners: Vec<(&'static str, PathBuf, UnixListener)>,
}

impl Ports {
    fn listen(folder: &Path) -> Result<Ports> {
        let listen = |name| {
            let path = folder.join(name);
            let listener = UnixListener::bind(&path)?;
            listener.set_nonblocking(true)?;
            Ok((name, path, listener))
        };
        Ok(Ports { listeners: ["out", "err", "status"].into_iter().map(listen).collect::<Result<_>>()? })
    }

    fn paths(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        self.listeners.iter().map(|(name, path, _)| (*name, path.as_path()))
    }
}

struct Running {
    child: Child,
    deadline: Instant,
}

impl Running {
    fn wait(mut self, ports: Ports, streams: Streams) -> Result<Ended> {
        let status = Kept::default();
        let writers: [Box<dyn Write + Send>; 3] = [streams.out, streams.err, Box::new(status.clone())];
        let mut copies: Vec<JoinHandle<io::Result<()>>> = Vec::new();
        for ((_, _, listener), writer) in ports.listeners.iter().zip(writers) {
            let Some(stream) = self.accept(listener)? else { return self.kill() };
            copies.push(thread::spawn(move || copy(stream, writer)));
        }
        while self.child.try_wait()?.is_none() {
            if Instant::now() > self.deadline {
                return self.kill();
            }
            thread::sleep(Duration::from_millis(50));
        }
        for copy in copies {
            // A reader of ours that closed early is no fault of the guest's.
            if let Ok(Err(error)) = copy.join()
                && error.kind() != io::ErrorKind::BrokenPipe
            {
                return Err(error).context("cannot pass on the guest's output");
            }
        }
        Ok(match String::from_utf8_lossy(&status.take()).trim().parse() {
            Ok(status) => Ended::Status(status),
            Err(_) => Ended::Silent,
        })
    }

    /// The emulator's connection; `None` when it has ended or time is up.
    fn accept(&mut self, listener: &UnixListener) -> Result<Option<UnixStream>> {
        while Instant::now() < self.deadline && self.child.try_wait()?.is_none() {
            match listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false)?;
                    return Ok(Some(stream));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(Duration::from_millis(20)),
                Err(error) => return Err(error).context("cannot reach the emulator"),
            }
        }
        Ok(None)
    }

    fn kill(mut self) -> Result<Ended> {
        if self.child.try_wait()?.is_some() {
            return Ok(Ended::Silent);
        }
        self.child.kill()?;
        self.child.wait()?;
        Ok(Ended::Killed)
    }
}

/// No way out leaves an emulator behind.
impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // It may end by itself between the two.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Passes on bytes as they come.
fn copy(mut from: UnixStream, mut to: Box<dyn Write + Send>) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok(()),
            count => {
                to.write_all(&buffer[..count])?;
                to.flush()?;
            }
        }
    }
}

/// A stream that is kept in memory.
#[derive(Clone, Default)]
pub struct Kept(Arc<Mutex<Vec<u8>>>);

impl Kept {
    /// What has been written.
    pub fn take(&self) -> Vec<u8> {
        self.0.lock().map(|mut bytes| std::mem::take(&mut *bytes)).unwrap_or_default()
    }
}

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.lock() {
            Ok(mut kept) => kept.extend_from_slice(bytes),
            Err(_) => return Err(io::Error::other("the reader of a guest's output is gone")),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn tail(console: &Path) -> String {
    let text = fs::read(console).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(TAIL)..].join("\n")
}
