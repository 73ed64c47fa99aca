//! Debian's cloud kernels, by series.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::packages::{Apt, cached};

/// Series that Debian offers and that the matrix runs; `--kernel` takes any other that the archive has.
pub const SERIES: [&str; 7] = ["5.10", "6.1", "6.12", "6.16", "6.18", "7.2", "7.3"];

/// Drivers of the ports that a guest talks through. Kernels before 6.12 have them as modules; they go in in this order.
const MODULES: [&str; 6] =
    ["virtio", "virtio_ring", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci", "virtio_console"];

/// A kernel, unpacked.
pub struct Kernel {
    /// `6.18.15+deb13-cloud-amd64`.
    pub release: String,
    /// The bootable image.
    pub image: PathBuf,
    /// Its build configuration, where the archive has it.
    pub config: Option<PathBuf>,
    /// Modules that a guest loads, in this order.
    pub modules: Vec<PathBuf>,
}

impl Kernel {
    /// The newest kernel of a series (`6.18`), or the one of a release (`7.2.6`), for an architecture (Debian's name), out of the cache or, the first time, the archive.
    pub fn of(cache: &Path, series: &str, arch: &str) -> Result<Kernel> {
        if !series.split('.').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit())) {
            bail!("--kernel {series} is no kernel series; give one like {}", SERIES.join(", "));
        }
        let folder =
            cached(cache, &format!("kernels/{series}-{arch}"), |folder| download(cache, series, arch, folder))?;
        let release = fs::read_to_string(folder.join("release"))
            .with_context(|| format!("{} is not whole; remove it", folder.display()))?;
        let config = Some(folder.join("config")).filter(|path| path.exists());
        let modules = MODULES
            .iter()
            .flat_map(|name| [format!("{name}.ko"), format!("{name}.ko.xz")])
            .map(|name| folder.join(name))
            .filter(|path| path.exists())
            .collect();
        Ok(Kernel { release, image: folder.join("vmlinuz"), config, modules })
    }
}

fn download(cache: &Path, series: &str, arch: &str, folder: &Path) -> Result<()> {
    let apt = Apt::new(cache, arch)?;
    let suffix = format!("-cloud-{arch}");
    // Releases are followed by `+deb13`; the dot keeps series 6.1 from finding 6.12.
    let mut names = apt.names(&format!("linux-image-{series}."))?;
    names.extend(apt.names(&format!("linux-image-{series}+"))?);
    let newest = names
        .into_iter()
        .filter_map(|name| Some(name.strip_prefix("linux-image-")?.strip_suffix(&suffix)?.to_owned()))
        .max_by_key(|version| numbers(version));
    let Some(version) = newest else {
        bail!("Debian's archive has no cloud kernel {series} for {arch}; the matrix runs {}", SERIES.join(", "));
    };
    let release = format!("{version}{suffix}");
    // From 6.19 on the image is a package of its own; where the package of that name is empty the rest is in linux-base.
    let mut names = Vec::new();
    for part in ["linux-binary", "linux-base", "linux-image"] {
        let name = format!("{part}-{release}");
        if apt.names(&name)?.contains(&name) {
            names.push(name);
        }
    }
    let all = folder.join("all");
    fs::create_dir(&all)?;
    apt.unpack(&names.iter().map(String::as_str).collect::<Vec<_>>(), &all)?;
    // Only what a guest needs stays.
    let modules = [format!("usr/lib/modules/{release}"), format!("lib/modules/{release}")].map(|path| all.join(path));
    for name in ["vmlinuz", "config"] {
        let candidates = [all.join(format!("boot/{name}-{release}")), modules[0].join(name)];
        match candidates.iter().find(|path| path.exists()) {
            Some(found) => fs::rename(found, folder.join(name))?,
            // Where the configuration is in a package that the archive has no more, the guest goes without.
            None if name == "config" => {}
            None => bail!("the packages of {release} hold no {name}"),
        }
    }
    for root in &modules {
        for driver in ["virtio", "char"] {
            let Ok(entries) = fs::read_dir(root.join("kernel/drivers").join(driver)) else { continue };
            for entry in entries {
                let path = entry?.path();
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                if MODULES.iter().any(|module| name.split('.').next() == Some(module)) {
                    fs::rename(&path, folder.join(name))?;
                }
            }
        }
    }
    fs::remove_dir_all(&all)?;
    fs::write(folder.join("release"), release)?;
    Ok(())
}

/// The numbers in a version, for comparing: `6.12.90+deb12.1` → 6, 12, 90, 12, 1.
fn numbers(version: &str) -> Vec<u64> {
    version.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::numbers;

    #[test]
    fn the_later_point_release_is_newer_whatever_its_debian() {
        assert!(numbers("6.12.117+deb13") > numbers("6.12.95+deb12"));
        assert!(numbers("5.10.0-32") > numbers("5.10.0-9"));
        assert!(numbers("6.12.90+deb12.1") > numbers("6.12.90+deb12"));
    }
}
