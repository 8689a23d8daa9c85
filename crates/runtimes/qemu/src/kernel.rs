//! The kernel of every machine, and the initial file system around our guest.
//!
//! The kernel is Debian's own for clouds (`package` says where it comes from), or one that the
//! operator names, and is kept by digest. Only the few modules a machine needs
//! to find its disks and ports are kept with it. The kernel inside the package
//! is compressed; unpacked once here, it starts sooner.

use crate::board::Board;
use crate::cache::{Shelf, freeze};
use crate::cpio::Archive;
use crate::error::QemuError;
use crate::modules::{Lacking, Modules};
use crate::{deb, identity, package, packing};
use motu_core::config::QemuConfig;
use motu_pages::lz4;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// The names under which the kernels in use are found.
const CURRENT: &str = "current-v4";
const CURRENT_VIRT: &str = "current-v4-virt";
const KERNEL: &str = "vmlinux";
const MODULES: &str = "modules";
const KEPT_MODULES: &str = "modules-kept";
const NETWORK_MODULES: &str = "modules-network";
/// What an unpacked kernel may weigh.
const MAX_KERNEL: usize = 512 << 20;

/// Which modules are where, with what they need themselves; see `modules`. A kernel that has one of
/// them built in needs no file for it. Those for machines whose disks are kept, and for machines
/// with a network, come after those of all machines.
const SETS: [(&str, &[&str]); 3] = [
    (
        MODULES,
        &["virtio_pci", "virtio_blk", "virtio_console", "ext4"],
    ),
    (KEPT_MODULES, &["overlay"]),
    (NETWORK_MODULES, &["virtio_net"]),
];

/// Loaded where a kernel has them: they tell QEMU of a kernel that gives up.
fn welcome(board: Board) -> [&'static str; 2] {
    match board {
        Board::Q35 => ["pvpanic", "pvpanic-mmio"],
        Board::Virt => ["pvpanic", "pvpanic-pci"],
    }
}

/// Where a kernel comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    /// A kernel of the operator's, and the directory of its modules.
    Files { kernel: PathBuf, modules: PathBuf },
    /// A package of the operator's.
    Package(PathBuf),
    /// The same in a registry, by digest.
    Artifact(String),
    /// Debian, by apt or by a mirror.
    Debian {
        mirror: Option<String>,
        board: Board,
    },
}

impl Source {
    fn of(config: &QemuConfig, board: Board) -> Source {
        if let Some(artifact) = &config.kernel_artifact {
            return Source::Artifact(artifact.clone());
        }
        match (&config.kernel, &config.modules, &config.kernel_package) {
            (Some(kernel), Some(modules), _) => Source::Files {
                kernel: kernel.clone(),
                modules: modules.clone(),
            },
            (_, _, Some(package)) => Source::Package(package.clone()),
            _ => Source::Debian {
                mirror: config.mirror.clone(),
                board,
            },
        }
    }

    /// The name under which the kernel from here is found. Another file has another one.
    fn current(&self) -> String {
        let files = match self {
            Source::Debian {
                board: Board::Q35, ..
            } => return CURRENT.to_string(),
            Source::Debian {
                board: Board::Virt, ..
            } => return CURRENT_VIRT.to_string(),
            Source::Artifact(name) => {
                return format!("{CURRENT}-{}", hex(&Sha256::new().chain_update(name)));
            }
            Source::Files { kernel, modules } => vec![kernel, modules],
            Source::Package(package) => vec![package],
        };
        let mut digest = Sha256::new();
        for file in files {
            digest.update(identity::file_identity(file));
        }
        format!("{CURRENT}-{}", hex(&digest))
    }

    /// What there is to say before a kernel is there.
    fn describe(&self) -> String {
        match self {
            Source::Files { kernel, .. } => format!("{}, as configured", kernel.display()),
            Source::Package(package) => format!("{}, as configured", package.display()),
            Source::Artifact(name) => format!("{name}, as configured"),
            Source::Debian { mirror, board } => format!(
                "will be downloaded from {} with the first machine ({} MB)",
                mirror.as_deref().unwrap_or("Debian"),
                package::pinned_for(*board).bytes / 1_000_000
            ),
        }
    }

    /// A file the operator named and that is not there.
    fn missing(&self) -> Option<&Path> {
        match self {
            Source::Files { kernel, modules } => [kernel, modules].into_iter(),
            Source::Package(package) => [package, package].into_iter(),
            Source::Debian { .. } | Source::Artifact(_) => return None,
        }
        .map(PathBuf::as_path)
        .find(|path| !path.exists())
    }
}

/// What a machine boots.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    pub(crate) image: PathBuf,
    pub(crate) initramfs: PathBuf,
    /// Of the kernel, its modules and the guest.
    pub(crate) digest: String,
}

/// Where kernels and initial file systems are kept.
#[derive(Clone, Debug)]
pub(crate) struct Kernels {
    shelf: Shelf,
    initial: Shelf,
    source: Source,
    board: Board,
}

impl Kernels {
    pub(crate) fn open(
        home: &Path,
        config: &QemuConfig,
        board: Board,
    ) -> Result<Kernels, QemuError> {
        Ok(Kernels {
            shelf: Shelf::open(home, "kernels")?,
            initial: Shelf::open(home, "initramfs")?,
            source: Source::of(config, board),
            board,
        })
    }

    /// Whether a kernel is there already.
    pub(crate) fn is_ready(&self) -> bool {
        self.current().join(KERNEL).exists()
    }

    fn current(&self) -> PathBuf {
        self.shelf.path(&self.source.current())
    }

    /// Where the kernel comes from, or the file that is missing for it.
    pub(crate) fn describe(&self) -> Result<String, QemuError> {
        match self.source.missing() {
            Some(path) => Err(QemuError::Kernel {
                reason: format!("{} is not there", path.display()),
            }),
            None => Ok(self.source.describe()),
        }
    }

    /// The kernel with this guest in its initial file system. Blocks; the first time for long.
    pub(crate) fn get(&self, guest: &[u8]) -> Result<Kernel, QemuError> {
        let current = self.current();
        if !self.is_ready() {
            self.fetch()?;
        }
        let place = current
            .canonicalize()
            .map_err(QemuError::io("cannot find the kernel"))?;
        let base = place.file_name().unwrap_or_default().to_string_lossy();
        let digest = hex(&Sha256::new()
            .chain_update(base.as_bytes())
            .chain_update(Sha256::digest(guest)));
        let name = format!("{digest}.cpio");
        let initramfs = self.initial.path(&name);
        if !initramfs.exists()
            && let Some(claim) = self.initial.claim(&name)?
        {
            let archive = initial(&place, guest)?;
            let staged = claim.staging.join("cpio");
            write_frozen(&staged, &archive)?;
            claim.publish_file("cpio", &name)?;
        }
        Ok(Kernel {
            image: place.join(KERNEL),
            initramfs,
            digest,
        })
    }

    fn fetch(&self) -> Result<(), QemuError> {
        self.describe()?;
        let name = self.source.current();
        let Some(claim) = self.shelf.claim(&name)? else {
            return Ok(());
        };
        let scratch = claim.staging.join("scratch");
        std::fs::create_dir(&scratch).map_err(QemuError::io("cannot stage a kernel"))?;
        let to = (claim.staging.as_path(), self.board);
        let digest = match &self.source {
            Source::Files { kernel, modules } => arrange(kernel, modules, to)?,
            Source::Package(package) => arrange_package(package, &scratch, to)?,
            Source::Artifact(name) => {
                let package = package::artifact(name, &scratch)?;
                arrange_package(&package, &scratch, to)?
            }
            Source::Debian { mirror, board } => {
                let package = package::obtain(mirror.as_deref(), *board, &scratch)?;
                arrange_package(&package, &scratch, to)?
            }
        };
        crate::cache::remove(&scratch)?;
        let link = self.shelf.path(".current-new");
        crate::cache::remove(&link)?;
        std::os::unix::fs::symlink(&digest, &link)
            .map_err(QemuError::io("cannot name the kernel"))?;
        claim.publish(&digest)?;
        std::fs::rename(link, self.shelf.path(&name))
            .map_err(QemuError::io("cannot name the kernel"))
    }
}

/// The kernel and the modules of a package.
fn arrange_package(
    package: &Path,
    scratch: &Path,
    to: (&Path, Board),
) -> Result<String, QemuError> {
    let tree = scratch.join("tree");
    let wanted = ["boot", "lib/modules", "usr/lib/modules"];
    deb::unpack(package, &tree, |path| {
        wanted.iter().any(|place| path.starts_with(place))
    })?;
    let kernel = first_with(&tree.join("boot"), |name| name.starts_with("vmlinuz-"));
    let kernel = kernel.ok_or_else(|| QemuError::Kernel {
        reason: "the package has no kernel".into(),
    })?;
    // Debian 13 has its modules below /usr.
    let places = ["lib/modules", "usr/lib/modules"].map(|place| tree.join(place));
    let modules = places.iter().find(|place| place.is_dir());
    arrange(&kernel, modules.unwrap_or(&places[0]), to)
}

/// Puts the kernel and its modules where machines of a board find them; returns their digest.
fn arrange(
    kernel: &Path,
    modules: &Path,
    (staging, board): (&Path, Board),
) -> Result<String, QemuError> {
    let missing = |what: &str| QemuError::Kernel {
        reason: format!("{} has no {what}", modules.display()),
    };
    let packed = std::fs::read(kernel).map_err(QemuError::io("cannot read the kernel"))?;
    // A kernel that is packed in another way boots as it is, a little later.
    let image = unpack(&packed).unwrap_or(packed);
    write_frozen(&staging.join(KERNEL), &image)?;
    let mut digest = Sha256::new().chain_update(&image);
    let found = modules_of(modules);
    let welcome = welcome(board).into_iter().filter(|name| found.has(name));
    let mut loaded = Vec::new();
    for (directory, wanted) in SETS {
        let mut wanted = wanted.to_vec();
        if directory == MODULES {
            wanted.extend(welcome.clone());
        }
        let modules = staging.join(directory);
        std::fs::create_dir(&modules).map_err(QemuError::io("cannot stage a kernel"))?;
        // Those of the first set are there in every machine.
        let order = found
            .in_order(&wanted, &loaded)
            .map_err(|error| match error {
                Lacking::Module(name) => missing(&format!("module {name}")),
                Lacking::Reading(error) => QemuError::io("cannot read a module")(error),
            })?;
        for (number, module) in order.iter().enumerate() {
            let name = module
                .file
                .file_name()
                .unwrap_or_default()
                .to_string_lossy();
            let name = packing::plain_name(&name);
            write_frozen(
                &modules.join(format!("{number:02}-{name}")),
                &module.content,
            )?;
            digest.update(&module.content);
        }
        if directory == MODULES {
            loaded = order;
        }
    }
    Ok(hex(&digest))
}

/// Every module of a kernel, and the names of those it has built in.
fn modules_of(tree: &Path) -> Modules {
    let mut modules = Modules::default();
    for path in module_files(tree) {
        if let Some(name) = module_name(&path) {
            modules.add(name, path.clone());
        }
    }
    let versions = std::fs::read_dir(tree).into_iter().flatten().flatten();
    let places = versions.map(|version| version.path());
    // The directory of one version, or of several.
    for place in places.chain([tree.to_path_buf()]) {
        if let Ok(list) = std::fs::read_to_string(place.join("modules.builtin")) {
            modules.built_in(&list);
        }
    }
    modules
}

/// The ELF image inside a bootable kernel, if it is packed with LZ4.
fn unpack(packed: &[u8]) -> Option<Vec<u8>> {
    // Offsets of the boot protocol: sectors before the payload, its place and its length.
    let sectors = usize::from(*packed.get(0x1f1)?) + 1;
    let number = |at: usize| -> Option<usize> {
        let bytes = packed.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_le_bytes(bytes) as usize)
    };
    let start = sectors * 512 + number(0x248)?;
    let payload = packed.get(start..start + number(0x24c)?)?;
    // The last four bytes say how large the result is.
    let (stream, size) = payload.split_last_chunk::<4>()?;
    let size = u32::from_le_bytes(*size) as usize;
    let image = lz4::unpack(stream, size.min(MAX_KERNEL)).ok()?;
    (image.len() == size && image.starts_with(b"\x7fELF")).then_some(image)
}

fn initial(kernel: &Path, guest: &[u8]) -> Result<Vec<u8>, QemuError> {
    let mut archive = Archive::default();
    let sets = SETS.map(|(directory, _)| directory);
    for directory in ["dev", "proc", "sys", "root"].into_iter().chain(sets) {
        archive.directory(directory);
    }
    archive.device("dev/console", 5, 1);
    archive.program("init", guest);
    for directory in sets {
        for path in module_files(&kernel.join(directory)) {
            let content = std::fs::read(&path).map_err(QemuError::io("cannot read a module"))?;
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            archive.program(&format!("{directory}/{name}"), &content);
        }
    }
    Ok(archive.finish())
}

/// Every module below a directory, in order.
fn module_files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut rest = vec![directory.to_path_buf()];
    while let Some(directory) = rest.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => rest.push(entry.path()),
                Ok(kind) if kind.is_file() && module_name(&entry.path()).is_some() => {
                    found.push(entry.path());
                }
                _ => {}
            }
        }
    }
    found.sort();
    found
}

/// `virtio` of `virtio.ko` or `virtio.ko.xz`.
fn module_name(path: &Path) -> Option<&str> {
    let name = path.file_name()?.to_str()?;
    let (name, ending) = name.split_once(".ko")?;
    matches!(ending, "" | ".xz" | ".zst" | ".gz").then_some(name)
}

fn first_with(directory: &Path, wanted: impl Fn(&str) -> bool) -> Option<PathBuf> {
    let entries = std::fs::read_dir(directory).ok()?.flatten();
    let mut found: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_str().is_some_and(&wanted))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found.pop()
}

fn write_frozen(path: &Path, content: &[u8]) -> Result<(), QemuError> {
    std::fs::write(path, content).map_err(QemuError::io("cannot write to the cache"))?;
    freeze(path)
}

pub(crate) fn hex(digest: &Sha256) -> String {
    digest
        .clone()
        .finalize()
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
