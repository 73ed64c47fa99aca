//! Debian packages without installing them: a private root for apt, from which packages are downloaded, checked against
//! the archive's signatures and unpacked into the user's cache.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

/// Suites that hold the kernels, the emulator and busybox. Suites that Debian drops make apt complain, not fail.
const SUITES: [&str; 5] = ["bullseye", "bookworm", "bookworm-backports", "trixie", "trixie-backports"];
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
const ARCHIVE: &str = "http://deb.debian.org/debian";

/// The user's cache folder of ours, created: `HUDDLE_CACHE`, or `huddle` in `XDG_CACHE_HOME` or `~/.cache`.
pub fn cache() -> Result<PathBuf> {
    let var = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = var("HUDDLE_CACHE")
        .or_else(|| var("XDG_CACHE_HOME").map(|folder| folder.join("huddle")))
        .or_else(|| var("HOME").map(|home| home.join(".cache/huddle")))
        .context("no place for downloads: set HUDDLE_CACHE to a folder")?;
    let folder = std::path::absolute(&folder)?;
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

/// Downloads into `cache/name` once: `fill` puts its files into an empty folder, which then takes that name. Another process that
/// wants the same waits.
pub fn cached(cache: &Path, name: &str, fill: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let folder = cache.join(name);
    let lock = File::create(cache.join("lock"))?;
    lock.lock()?;
    if !folder.is_dir() {
        let fresh = TempDir::new_in(cache)?;
        fill(fresh.path())?;
        if let Some(parent) = folder.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::rename(fresh.keep(), &folder)?;
    }
    Ok(folder)
}

/// A private root for apt, with the lists of the suites as they are at this moment.
pub struct Apt {
    root: TempDir,
}

impl Apt {
    /// Makes the root and fetches the lists of packages for an architecture (Debian's name: `amd64`).
    pub fn new(cache: &Path, arch: &str) -> Result<Apt> {
        ensure!(
            Path::new(KEYRING).exists(),
            "guests need Debian's keys in {KEYRING}: install the package debian-archive-keyring"
        );
        let apt = Apt { root: TempDir::new_in(cache)? };
        let root = apt.root.path();
        for folder in ["etc/apt/preferences.d", "lists/partial", "archives/partial", "downloads"] {
            fs::create_dir_all(root.join(folder))?;
        }
        fs::write(root.join("status"), "")?;
        let line = |suite: &&str| format!("deb [arch={arch} signed-by={KEYRING}] {ARCHIVE} {suite} main\n");
        fs::write(root.join("etc/apt/sources.list"), SUITES.iter().map(line).collect::<String>())?;
        let settings = [
            ("Dir", root.to_path_buf()),
            ("Dir::Etc", root.join("etc/apt")),
            ("Dir::State", root.to_path_buf()),
            ("Dir::State::status", root.join("status")),
            ("Dir::State::lists", root.join("lists")),
            ("Dir::Cache", root.to_path_buf()),
            ("Dir::Cache::archives", root.join("archives")),
        ];
        let mut text: String = settings.iter().map(|(key, path)| format!("{key} \"{}\";\n", path.display())).collect();
        text.push_str(&format!("APT::Architecture \"{arch}\";\nAPT::Architectures {{ \"{arch}\"; }};\n"));
        // The folder belongs to whoever runs this: apt's own user could not write there.
        text.push_str("Acquire::Languages \"none\";\nAcquire::Retries \"3\";\nAPT::Sandbox::User \"root\";\n");
        text.push_str("APT::Get::AllowUnauthenticated \"false\";\n");
        fs::write(root.join("apt.conf"), text)?;
        eprintln!("xtask: reading Debian's lists of packages for {arch}");
        apt.run("apt-get", &["-q", "update"])?;
        Ok(apt)
    }

    /// Names of all packages that start so.
    pub fn names(&self, prefix: &str) -> Result<Vec<String>> {
        Ok(self.run("apt-cache", &["pkgnames", prefix])?.lines().map(str::to_owned).collect())
    }

    /// Downloads the newest versions of these packages and unpacks them into a folder.
    pub fn unpack(&self, packages: &[&str], into: &Path) -> Result<()> {
        eprintln!("xtask: downloading {}", packages.join(", "));
        self.run("apt-get", &[&["-q", "download"], packages].concat())?;
        self.unpack_all("downloads", into)
    }

    /// Downloads a package of a suite and all that it depends on, whatever this machine has, and unpacks them into a folder.
    pub fn unpack_closure(&self, package: &str, suite: &str, into: &Path) -> Result<()> {
        eprintln!("xtask: downloading {package} and what it needs");
        let fixed = ["-q", "-y", "--no-install-recommends", "--download-only", "-t", suite, "install", package];
        self.run("apt-get", &fixed)?;
        self.unpack_all("archives", into)
    }

    fn unpack_all(&self, folder: &str, into: &Path) -> Result<()> {
        let folder = self.root.path().join(folder);
        let mut some = false;
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "deb") {
                checked(Command::new("dpkg-deb").arg("-x").arg(&path).arg(into))?;
                fs::remove_file(&path)?;
                some = true;
            }
        }
        ensure!(some, "apt-get left no package in {}", folder.display());
        Ok(())
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let root = self.root.path();
        checked(
            Command::new(program)
                .args(arguments)
                .env("APT_CONFIG", root.join("apt.conf"))
                .env("LC_ALL", "C.UTF-8")
                .current_dir(root.join("downloads")),
        )
    }
}

/// Runs a program to its end and gives its output; its last complaint when it fails.
pub fn checked(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = match command.output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!("{name} is not here; guests are made of Debian's packages and need apt and dpkg")
        }
        Err(error) => return Err(error).with_context(|| format!("cannot run {name}")),
    };
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let why = errors.lines().rev().find(|line| line.starts_with("E:")).or_else(|| errors.lines().last());
        bail!("{name} failed ({}): {}", output.status, why.unwrap_or("it does not say why"));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
