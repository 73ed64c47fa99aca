//! What a guest finds at its start: busybox, the first process, programs with their libraries.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
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

    /// A program as `bin/NAME` and the libraries that it is linked with, at the paths where its loader looks for them; or a
    /// folder's files, each at its path in it.
    pub fn program(&mut self, from: &Path) -> Result<()> {
        if from.is_dir() {
            return self.tree(from, from);
        }
        let name = from.file_name().context("a program needs a name")?.to_string_lossy();
        self.copy(&format!("bin/{name}"), from, true);
        for library in libraries(from)? {
            let path = library.trim_start_matches('/').to_owned();
            self.copy(&path, Path::new(&library), true);
        }
        Ok(())
    }

    /// The files below a folder at their paths below the root.
    fn tree(&mut self, root: &Path, folder: &Path) -> Result<()> {
        for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
            let from = entry?.path();
            if from.is_dir() {
                self.tree(root, &from)?;
            } else {
                let executable = fs::metadata(&from)?.permissions().mode() & 0o111 != 0;
                self.copy(&from.strip_prefix(root)?.to_string_lossy(), &from, executable);
            }
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

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use tempfile::TempDir;

    use super::{Content, Initramfs};

    #[test]
    fn a_folders_files_lie_at_their_paths_and_keep_being_executable() {
        let folder = TempDir::new().expect("a folder");
        for (path, mode) in [("bin/tool", 0o755), ("opt/tool/library", 0o644)] {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            fs::write(&path, "").expect("written");
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("set");
        }
        let mut files = Initramfs::default();
        files.program(folder.path()).expect("a folder of files");
        let seen: Vec<(&str, Option<bool>)> = files
            .files
            .iter()
            .map(|(path, content)| match content {
                Content::Copy { executable, .. } => (path.as_str(), Some(*executable)),
                _ => (path.as_str(), None),
            })
            .collect();
        let expected = [
            ("bin", None),
            ("bin/tool", Some(true)),
            ("opt", None),
            ("opt/tool", None),
            ("opt/tool/library", Some(false)),
        ];
        assert_eq!(seen, expected);
    }
}
