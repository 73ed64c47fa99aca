//! What a guest finds at its start: busybox, the first process, programs with their libraries.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use cpio::newc::{self, ModeFileType};

use crate::packages::checked;

/// Files by the path they get, without its leading `/`.
#[derive(Default)]
pub struct Initramfs {
    files: BTreeMap<String, Content>,
}

enum Content {
    Folder,
    Text { text: String, executable: bool },
    Copy { from: PathBuf, executable: bool },
}

impl Initramfs {
    /// A text file.
    pub fn text(&mut self, path: &str, text: impl Into<String>, executable: bool) {
        self.add(path, Content::Text { text: text.into(), executable });
    }

    /// A copy of a file.
    pub fn copy(&mut self, path: &str, from: &Path, executable: bool) {
        self.add(path, Content::Copy { from: from.to_path_buf(), executable });
    }

    /// An empty folder.
    pub fn folder(&mut self, path: &str) {
        self.add(path, Content::Folder);
    }

    /// A program as `bin/NAME` and the libraries that it is linked with, at the paths where its loader looks for them.
    pub fn program(&mut self, from: &Path) -> Result<()> {
        let name = from.file_name().context("a program needs a name")?.to_string_lossy();
        self.copy(&format!("bin/{name}"), from, true);
        for library in libraries(from)? {
            let path = library.trim_start_matches('/').to_owned();
            self.copy(&path, Path::new(&library), true);
        }
        Ok(())
    }

    fn add(&mut self, path: &str, content: Content) {
        let mut folder = Path::new(path);
        while let Some(parent) = folder.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            self.files.entry(parent.to_string_lossy().into_owned()).or_insert(Content::Folder);
            folder = parent;
        }
        self.files.insert(path.to_owned(), content);
    }

    /// Writes the archive that a kernel unpacks. Folders come before what they hold, as paths sort.
    pub fn write(&self, to: &Path) -> Result<()> {
        let mut out = BufWriter::new(File::create(to).with_context(|| format!("cannot write {}", to.display()))?);
        for (inode, (path, content)) in (1..).zip(&self.files) {
            let (bytes, mode, kind) = match content {
                Content::Folder => (Vec::new(), 0o755, ModeFileType::Directory),
                Content::Text { text, executable } => {
                    (text.clone().into_bytes(), mode(*executable), ModeFileType::Regular)
                }
                Content::Copy { from, executable } => {
                    let bytes = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
                    (bytes, mode(*executable), ModeFileType::Regular)
                }
            };
            let size = u32::try_from(bytes.len()).with_context(|| format!("{path} is too big for a guest"))?;
            let entry = newc::Builder::new(path).ino(inode).nlink(1).mode(mode).set_mode_file_type(kind);
            let mut entry = entry.write(&mut out, size);
            entry.write_all(&bytes)?;
            entry.finish()?;
        }
        newc::trailer(&mut out)?;
        out.flush()?;
        Ok(())
    }
}

fn mode(executable: bool) -> u32 {
    if executable { 0o755 } else { 0o644 }
}

/// What a dynamically linked program is linked with, its loader included; nothing for a static one.
fn libraries(program: &Path) -> Result<Vec<String>> {
    ensure!(program.is_file(), "no program at {}", program.display());
    let listed = match checked(Command::new("ldd").arg(program).env("LC_ALL", "C.UTF-8")) {
        Ok(listed) => listed,
        // ldd fails for a static program and for a script.
        Err(_) => return Ok(Vec::new()),
    };
    let mut found = Vec::new();
    for line in listed.lines() {
        if line.contains("not found") {
            bail!("{}: {}", program.display(), line.trim());
        }
        let path = line.split("=> ").last().unwrap_or(line).trim().split(" (").next().unwrap_or_default();
        if path.starts_with('/') {
            found.push(path.to_owned());
        }
    }
    Ok(found)
}
