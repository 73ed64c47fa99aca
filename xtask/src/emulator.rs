//! QEMU, unpacked beside the system's own: bookworm's 7.2 crashes guests with several CPUs and knows neither modules nor
//! where caches are shared.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use crate::packages::{Apt, cached};

/// An emulator that brings all its libraries, the C library and its loader included.
pub struct Emulator {
    root: PathBuf,
    program: &'static str,
}

impl Emulator {
    /// The emulator for guests of an architecture (Debian's name), out of the cache or, the first time, the archive.
    pub fn of(cache: &Path, arch: &str) -> Result<Emulator> {
        ensure!(
            cfg!(all(target_arch = "x86_64", target_os = "linux")),
            "guests need an x86-64 Linux host: the emulator is Debian's for amd64"
        );
        let (package, program) = match arch {
            "arm64" => ("qemu-system-arm", "qemu-system-aarch64"),
            _ => ("qemu-system-x86", "qemu-system-x86_64"),
        };
        let root = cached(cache, package, |folder| {
            Apt::new(cache, "amd64")?.unpack_closure(package, "bookworm-backports", folder)
        })?;
        Ok(Emulator { root, program })
    }

    /// A command that starts it; its firmware is found, nothing else is set.
    ///
    /// It dies with the process that started it, where util-linux can arrange that.
    pub fn command(&self) -> Command {
        let loader = self.root.join("usr/lib64/ld-linux-x86-64.so.2");
        let mut command = match Path::new("/usr/bin/setpriv").exists() {
            true => {
                let mut command = Command::new("/usr/bin/setpriv");
                command.args(["--pdeathsig", "KILL", "--"]).arg(&loader);
                command
            }
            false => Command::new(&loader),
        };
        let libraries = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"]
            .map(|folder| self.root.join(folder).display().to_string())
            .join(":");
        command.args(["--library-path", &libraries]).arg(self.root.join("usr/bin").join(self.program));
        for firmware in ["usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu"] {
            command.arg("-L").arg(self.root.join(firmware));
        }
        command
    }
}
