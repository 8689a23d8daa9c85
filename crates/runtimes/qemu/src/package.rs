//! The package of a kernel: from apt where the host is Debian, else by an address and a digest.
//!
//! Apt checks signatures, and gives the newest kernel. Every other host gets the one whose digest
//! stands below: nothing about the mirror it comes from is believed.

use crate::board::Board;
use crate::error::QemuError;
use crate::{distribution, tool};
use motu_environments::{EnvironmentError, Pinned};
use std::path::{Path, PathBuf};

/// What always means the newest kernel for clouds, to the apt of a host.
const NEWEST: &str = match Board::HERE {
    Board::Q35 => "linux-image-cloud-amd64",
    Board::Virt => "linux-image-cloud-arm64",
};

/// The kernel for hosts without Debian's apt.
pub(crate) const fn pinned_for(board: Board) -> Package {
    match board {
        Board::Q35 => Package {
            path: "pool/updates/main/l/linux-signed-amd64/\
                   linux-image-6.1.0-56-cloud-amd64_6.1.192-2_amd64.deb",
            sha256: "e7d02b943971edcb8790e256c02cfab3bca6c3d37c1bf25392a57c71300615ee",
            bytes: 26_713_492,
        },
        Board::Virt => Package {
            path: "pool/updates/main/l/linux-signed-arm64/\
                   linux-image-6.1.0-56-cloud-arm64_6.1.192-2_arm64.deb",
            sha256: "481ab54a27246579aadeb372315c56de02f2fe0cba4e09b387946269fff2f415",
            bytes: 21_347_940,
        },
    }
}
/// Where it is: on every mirror until Debian replaces it, and then in Debian's museum.
const MIRRORS: [&str; 2] = [
    "https://deb.debian.org/debian-security",
    "https://snapshot.debian.org/archive/debian-security/20261118T000000Z",
];

/// A package that is known before it is downloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Package {
    /// Below a mirror.
    pub(crate) path: &'static str,
    pub(crate) sha256: &'static str,
    pub(crate) bytes: u64,
}

/// Downloads a package with a kernel; returns where it is. Blocks, for as long as that takes.
pub(crate) fn obtain(
    mirror: Option<&str>,
    board: Board,
    scratch: &Path,
) -> Result<PathBuf, QemuError> {
    let apt = distribution::is_debian_here() && tool::find("apt-get").is_ok();
    // The host's apt has packages of the host's architecture.
    let by_apt = match mirror {
        None if apt && board == Board::HERE => Some(newest(scratch)),
        _ => None,
    };
    let failed = match by_apt {
        Some(Ok(package)) => return Ok(package),
        Some(Err(error)) => {
            tracing::warn!(%error, "apt gives no kernel; a mirror is asked");
            format!("{error}; ")
        }
        None => String::new(),
    };
    let mirrors = mirror.map_or(MIRRORS.to_vec(), |one| vec![one]);
    pinned(&mirrors, pinned_for(board), scratch).map_err(|error| match error {
        QemuError::Kernel { reason } => QemuError::Kernel {
            reason: format!("{failed}{reason}"),
        },
        other => other,
    })
}

/// Downloads a known package from the first of some mirrors that has it.
pub(crate) fn pinned(
    mirrors: &[&str],
    package: Package,
    scratch: &Path,
) -> Result<PathBuf, QemuError> {
    let to = scratch.join("kernel.deb");
    let mut reasons = Vec::new();
    for mirror in mirrors {
        let address = format!("{}/{}", mirror.trim_end_matches('/'), package.path);
        let pinned = Pinned {
            what: "the package of the kernel",
            sha256: package.sha256,
            bytes: package.bytes,
        };
        let download = motu_environments::download(&address, pinned, &to);
        match tokio::runtime::Handle::current().block_on(download) {
            Ok(()) => return Ok(to),
            Err(error) => reasons.push(reason(&error, package)),
        }
    }
    Err(QemuError::Kernel {
        reason: reasons.join("; "),
    })
}

/// Why a mirror did not give a package.
fn reason(error: &EnvironmentError, package: Package) -> String {
    if let EnvironmentError::Registry {
        registry,
        status: 404,
        ..
    } = error
    {
        let name = package.path.rsplit('/').next().unwrap_or_default();
        return format!(
            "{registry} does not have {name}: mirrors drop a package when Debian replaces it"
        );
    }
    let said = error.to_string();
    // It is a mirror, where others have registries.
    said.strip_prefix("registry ").unwrap_or(&said).to_string()
}

/// Downloads the package that is the one file of an artifact.
pub(crate) fn artifact(name: &str, scratch: &Path) -> Result<PathBuf, QemuError> {
    let to = scratch.join("kernel.deb");
    let download = motu_environments::artifact(name, "the package of the kernel", &to);
    match tokio::runtime::Handle::current().block_on(download) {
        Ok(()) => Ok(to),
        Err(error) => Err(QemuError::Kernel {
            reason: error.to_string(),
        }),
    }
}

/// Downloads the newest kernel package apt knows of.
fn newest(scratch: &Path) -> Result<PathBuf, QemuError> {
    let no_kernel = |error: QemuError| match error {
        QemuError::Failed { tail, .. } => QemuError::Kernel { reason: tail },
        other => other,
    };
    let mut options: Vec<String> = vec!["-o".into(), "APT::Sandbox::User=root".into()];
    let name = match concrete(&options) {
        Ok(name) => name,
        Err(_) => {
            // The host has no package lists, or old ones: fetch our own and leave the host's alone.
            for (key, place) in [("Dir::State::lists", "lists"), ("Dir::Cache", "cache")] {
                let place = scratch.join(place);
                std::fs::create_dir_all(place.join("partial"))
                    .map_err(QemuError::io("cannot stage package lists"))?;
                options.extend(["-o".into(), format!("{key}={}", place.display())]);
            }
            let mut update = tool::command("apt-get")?;
            update.args(&options).args(["-qq", "update"]);
            tool::run(update).map_err(no_kernel)?;
            concrete(&options).map_err(no_kernel)?
        }
    };
    let mut download = tool::command("apt-get")?;
    download
        .args(&options)
        .args(["-qq", "download", &name])
        .current_dir(scratch);
    tool::run(download).map_err(no_kernel)?;
    let entries = std::fs::read_dir(scratch).into_iter().flatten().flatten();
    let mut packages = entries.map(|entry| entry.path());
    let found = packages.find(|path| path.extension().is_some_and(|ending| ending == "deb"));
    found.ok_or_else(|| QemuError::Kernel {
        reason: format!("apt downloaded nothing for {name}"),
    })
}

/// The package behind the name that always means the newest one.
fn concrete(options: &[String]) -> Result<String, QemuError> {
    let mut ask = tool::command("apt-cache")?;
    ask.args(options).args(["depends", NEWEST]);
    let said = tool::run(ask)?;
    let found = said
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .find(|name| name.starts_with("linux-image-"));
    found.map(str::to_string).ok_or_else(|| QemuError::Kernel {
        reason: format!("apt does not know {NEWEST}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocking::blocking;
    use sha2::{Digest, Sha256};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const CONTENT: &[u8] = b"a package, for all a mirror knows";
    const PATH: &str = "pool/l/linux.deb";

    /// A mirror on the loopback; answers everything with the same, if it has it.
    async fn mirror(content: &'static [u8], asked: Arc<AtomicUsize>) -> String {
        answering(asked, move |path| match path == format!("/debian/{PATH}") {
            true => (
                format!("200 OK\r\ncontent-length: {}", content.len()),
                content,
            ),
            false => ("404 Not Found\r\ncontent-length: 0".to_string(), b""),
        })
        .await
    }

    /// A server on the loopback: the status, headers and content for each path, and then it hangs up.
    async fn answering(
        asked: Arc<AtomicUsize>,
        answer: impl Fn(&str) -> (String, &'static [u8]) + Send + 'static,
    ) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                asked.fetch_add(1, Ordering::SeqCst);
                let mut request = vec![0; 4096];
                let got = stream.read(&mut request).await.unwrap();
                let request = String::from_utf8_lossy(&request[..got]).into_owned();
                let path = request.split(' ').nth(1).unwrap_or_default();
                let (head, content) = answer(path);
                let head = format!("HTTP/1.1 {head}\r\n\r\n");
                stream.write_all(head.as_bytes()).await.unwrap();
                stream.write_all(content).await.unwrap();
            }
        });
        format!("http://{address}/debian/")
    }

    fn package() -> Package {
        let digest = Sha256::digest(CONTENT);
        let text: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        Package {
            path: PATH,
            sha256: text.leak(),
            bytes: CONTENT.len() as u64,
        }
    }

    async fn fetch(mirrors: Vec<String>, package: Package) -> Result<Vec<u8>, QemuError> {
        blocking(move || {
            let scratch = tempfile::tempdir().unwrap();
            let mirrors: Vec<&str> = mirrors.iter().map(String::as_str).collect();
            let fetched = pinned(&mirrors, package, scratch.path());
            let left = std::fs::read_dir(scratch.path()).unwrap().count();
            assert_eq!(left, usize::from(fetched.is_ok()), "nothing half is left");
            Ok(std::fs::read(fetched?).unwrap())
        })
        .await
    }

    #[tokio::test]
    async fn a_package_comes_from_the_first_mirror_that_has_it() {
        let asked = Arc::new(AtomicUsize::new(0));
        let good = mirror(CONTENT, asked.clone()).await;
        assert_eq!(fetch(vec![good.clone()], package()).await.unwrap(), CONTENT);
        // A mirror without it, one that nobody runs, and then the good one.
        let without = format!("{good}elsewhere");
        let mirrors = vec![without, "http://127.0.0.1:1/debian".into(), good];
        assert_eq!(fetch(mirrors, package()).await.unwrap(), CONTENT);
        assert_eq!(asked.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn another_content_is_refused_whatever_its_size() {
        let asked = Arc::new(AtomicUsize::new(0));
        let altered: &[u8] = b"A package, for all a mirror knows";
        assert_eq!(altered.len(), CONTENT.len());
        for content in [
            altered,
            b"short",
            b"a package, for all a mirror knows and more",
        ] {
            let bad = mirror(content, asked.clone()).await;
            let error = fetch(vec![bad], package()).await.unwrap_err();
            assert!(matches!(error, QemuError::Kernel { .. }));
            assert!(error.to_string().contains("has digest"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_mirror_that_hangs_up_is_left_for_the_next_one() {
        let asked = Arc::new(AtomicUsize::new(0));
        let cut = answering(asked.clone(), |_| {
            let head = format!("200 OK\r\ncontent-length: {}", CONTENT.len());
            (head, &CONTENT[..10])
        })
        .await;
        let error = fetch(vec![cut.clone()], package()).await.unwrap_err();
        assert!(matches!(error, QemuError::Kernel { .. }), "{error}");
        assert!(error.to_string().contains("cannot be reached"), "{error}");
        let good = mirror(CONTENT, asked).await;
        assert_eq!(fetch(vec![cut, good], package()).await.unwrap(), CONTENT);
    }

    #[tokio::test]
    async fn a_mirror_may_lead_to_another_place_and_its_content_is_judged_all_the_same() {
        let asked = Arc::new(AtomicUsize::new(0));
        let good = mirror(CONTENT, asked.clone()).await;
        let bad = mirror(b"A package, for all a mirror knows", asked.clone()).await;
        for (there, comes) in [(good, true), (bad, false)] {
            let leads = answering(asked.clone(), move |_| {
                let head = format!("302 Found\r\nlocation: {there}{PATH}\r\ncontent-length: 0");
                (head, b"")
            })
            .await;
            let fetched = fetch(vec![leads], package()).await;
            assert_eq!(fetched.is_ok(), comes, "{fetched:?}");
        }
        let circle = answering(asked, |path| {
            let head = format!("302 Found\r\nlocation: {path}\r\ncontent-length: 0");
            (head, b"")
        })
        .await;
        let error = fetch(vec![circle], package()).await.unwrap_err();
        assert!(error.to_string().contains("in a circle"), "{error}");
    }

    #[tokio::test]
    async fn a_package_that_debian_has_replaced_is_told_from_other_faults() {
        let asked = Arc::new(AtomicUsize::new(0));
        let gone = mirror(CONTENT, asked).await + "elsewhere";
        let error = fetch(vec![gone], package()).await.unwrap_err().to_string();
        assert!(error.contains("does not have linux.deb"), "{error}");
        assert!(error.contains("when Debian replaces it"), "{error}");
    }

    #[test]
    fn what_is_pinned_is_whole() {
        for (board, ending) in [(Board::Q35, "_amd64.deb"), (Board::Virt, "_arm64.deb")] {
            let package = pinned_for(board);
            assert_eq!(package.sha256.len(), 64);
            assert!(package.path.ends_with(ending) && !package.path.contains(' '));
        }
        assert!(MIRRORS.iter().all(|mirror| mirror.starts_with("https://")));
    }
}
