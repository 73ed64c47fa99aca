//! Where a command's document goes: standard output, or a file that is written whole or not at all.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::failure::Failure;

/// The argument of an option like `--svg FILE`.
pub struct Output {
    /// What errors call it: `--svg machine.svg`.
    name: String,
    kind: Kind,
}

enum Kind {
    Stdout,
    /// The file that will be replaced.
    File(PathBuf),
    /// What is no regular file (a device, a pipe), written into.
    Open(File),
}

impl Output {
    /// Opens the path that was given with the flag, `-` for standard output. It fails before the work is done rather
    /// than after. Nothing is left behind, even by a command that is killed at its work, before [`Output::write`].
    ///
    /// # Errors
    /// A folder in place of a file (usage), or a file that cannot be written there.
    pub fn new(flag: &str, path: &Path) -> Result<Output, Failure> {
        let name = format!("{flag} {}", path.display());
        let unwritable = |error: io::Error| unwritable(&name, &error);
        let kind = match fs::metadata(path) {
            _ if path == Path::new("-") => Kind::Stdout,
            Ok(found) if found.is_dir() => {
                return Err(Failure::usage(format!("{name}: is a folder; give a file")));
            }
            Ok(found) if !found.is_file() => Kind::Open(OpenOptions::new().write(true).open(path).map_err(unwritable)?),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(unwritable(error)),
            _ => {
                let target = followed(path);
                if target.file_name().is_none() {
                    return Err(Failure::usage(format!("{name}: is no file name")));
                }
                temporary(&target).and_then(NamedTempFile::close).map_err(unwritable)?;
                Kind::File(target)
            }
        };
        Ok(Output { name, kind })
    }

    /// Whether the document takes standard output.
    pub fn is_stdout(&self) -> bool {
        matches!(self.kind, Kind::Stdout)
    }

    /// Writes the document and, for a file, puts it in its place.
    ///
    /// # Errors
    /// It cannot be written; a file that was there is as it was.
    pub fn write(self, document: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
        let written = match self.kind {
            Kind::Stdout => {
                let mut out = BufWriter::new(io::stdout().lock());
                return Ok(document(&mut out).and_then(|()| out.flush())?);
            }
            Kind::Open(file) => buffered(&file, document),
            Kind::File(target) => temporary(&target).and_then(|temporary| {
                buffered(temporary.as_file(), document)?;
                temporary.as_file().sync_all()?;
                temporary.persist(target).map(|_| ()).map_err(|error| plain(error.error))
            }),
        };
        written.map_err(|error| unwritable(&self.name, &error))
    }
}

/// A temporary file beside the file that it will replace.
fn temporary(target: &Path) -> io::Result<NamedTempFile> {
    let folder = target.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    // It tells a missing folder from a missing file.
    fs::metadata(folder)?;
    tempfile::Builder::new()
        .prefix(&format!(".{}.", target.file_name().unwrap_or_default().to_string_lossy()))
        .suffix(".part")
        // What the umask leaves, as for any file.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder)
        .map_err(plain)
}

fn buffered(file: &File, document: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::new(file);
    document(&mut out)?;
    out.flush()
}

/// The file that a path stands for once its symbolic links are followed; it need not exist.
fn followed(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    // As many as Linux follows.
    for _ in 0..40 {
        match (fs::read_link(&path), path.parent()) {
            (Ok(target), Some(folder)) => path = folder.join(target),
            _ => break,
        }
    }
    path
}

/// The error without the name of the temporary file, which means nothing to the user.
fn plain(error: io::Error) -> io::Error {
    error.kind().into()
}

fn unwritable(name: &str, error: &io::Error) -> Failure {
    Failure::work(format!("{name}: cannot be written: {error}"))
}
