//! The host's access to Debian packages.
//!
//! Reads the host's apt configuration: its mirrors for a suite, and the settings needed to reach
//! them. Signatures are always verified: an entry marked as trusted is copied without the mark. The
//! host's configuration is never changed.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use crate::process::{self, Cancel};

/// Longest answer taken from apt's own tools.
const MAX_ANSWER_BYTES: u64 = 16 << 20;

/// Settings for reaching a mirror. None of them weakens the verification of signatures.
const CARRIED_TREES: [&str; 3] = ["Acquire::http::", "Acquire::https::", "Acquire::ftp::"];
const CARRIED_KEYS: [&str; 6] = [
    "Acquire::Check-Valid-Until",
    "Acquire::Max-FutureTime",
    "Acquire::Retries",
    "Acquire::ForceIPv4",
    "Acquire::ForceIPv6",
    "Acquire::Send-User-Agent",
];

/// The host's sources for one suite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sources {
    /// In the format of `.sources` files.
    pub text: String,
    /// Whether the host has downloaded all their package lists.
    pub listed: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct Target {
    uri: String,
    release: String,
    signed_by: Option<String>,
    listed: bool,
}

/// The host's apt files.
trait HostFiles {
    /// The `Signed-By` value of an entry, which apt names `file:number`.
    fn signed_by(&self, entry: &str) -> Option<String>;
    /// A signed Release file, by its name in the lists.
    fn release_file(&self, name: &str) -> Option<String>;
    /// Whether a package list was downloaded, compressed or not.
    fn has_list(&self, name: &str) -> bool;
}

/// Asks apt which of its sources serve `suite`. `None` when it has none.
pub(crate) fn host_sources(
    suite: &str,
    cancel: &Cancel,
    scratch: &Path,
) -> io::Result<Option<Sources>> {
    // With the real lists apt would parse all packages first, which takes half a second.
    let mut command = Command::new("apt-get");
    command
        .args(["--no-release-info", "-o"])
        .arg(format!(
            "Dir::State::lists={}",
            scratch.join("no-lists").display()
        ))
        .args(["indextargets", "Created-By: Packages"]);
    let (exit, out) = process::output(command, cancel, scratch, MAX_ANSWER_BYTES)?;
    if !exit.status.success() {
        tracing::debug!(tail = exit.tail, "apt could not list its sources");
        return Ok(None);
    }
    let host = Lists {
        directory: lists_directory(cancel, scratch)?,
    };
    let targets = targets(&String::from_utf8_lossy(&out), suite, &host);
    if !targets.iter().any(|target| target.release == suite) {
        return Ok(None);
    }
    Ok(Some(Sources {
        text: render(&targets),
        listed: targets.iter().all(|target| target.listed),
    }))
}

/// Where the host keeps downloaded package lists.
fn lists_directory(cancel: &Cancel, scratch: &Path) -> io::Result<PathBuf> {
    let mut command = Command::new("apt-config");
    command.args(["shell", "LISTS", "Dir::State::lists/d"]);
    let (_, out) = process::output(command, cancel, scratch, MAX_ANSWER_BYTES)?;
    let text = String::from_utf8_lossy(&out);
    let path = text.trim().trim_start_matches("LISTS=").trim_matches('\'');
    Ok(PathBuf::from(path))
}

struct Lists {
    directory: PathBuf,
}

impl HostFiles for Lists {
    fn signed_by(&self, entry: &str) -> Option<String> {
        let (file, number) = entry.rsplit_once(':')?;
        let text = fs::read_to_string(file).ok()?;
        signed_by(&text, number.parse().ok()?, file.ends_with(".sources"))
    }

    fn release_file(&self, name: &str) -> Option<String> {
        let read = |kind| fs::read_to_string(self.directory.join(format!("{name}_{kind}"))).ok();
        read("InRelease").or_else(|| read("Release"))
    }

    fn has_list(&self, name: &str) -> bool {
        let endings = ["", ".lz4", ".zst", ".xz", ".gz", ".bz2", ".lzma"];
        endings
            .iter()
            .any(|ending| self.directory.join(format!("{name}{ending}")).exists())
    }
}

/// The host's settings for reaching mirrors, as lines of an `apt.conf`.
pub(crate) fn host_settings(cancel: &Cancel, scratch: &Path) -> io::Result<Vec<String>> {
    let mut command = Command::new("apt-config");
    command.arg("dump");
    let (_, out) = process::output(command, cancel, scratch, MAX_ANSWER_BYTES)?;
    let mut lines = carried(&String::from_utf8_lossy(&out));
    let has_ca = lines.iter().any(|line| {
        line.to_ascii_lowercase()
            .starts_with("acquire::https::cainfo ")
    });
    // apt itself does not read this variable.
    if let Ok(bundle) = env::var("SSL_CERT_FILE")
        && !has_ca
        && !bundle.contains('"')
        && Path::new(&bundle).is_file()
    {
        lines.push(format!("Acquire::https::CaInfo \"{bundle}\";"));
    }
    for (key, path) in [("netrc", "auth.conf"), ("netrcparts", "auth.conf.d")] {
        let path = Path::new("/etc/apt").join(path);
        let readable = fs::File::open(&path).is_ok() || fs::read_dir(&path).is_ok();
        if readable {
            lines.push(format!("Dir::Etc::{key} \"{}\";", path.display()));
        }
    }
    Ok(lines)
}

fn carried(dump: &str) -> Vec<String> {
    let is_carried = |line: &&str| {
        let key = line.split(' ').next().unwrap_or_default();
        let lower = key.to_ascii_lowercase();
        CARRIED_KEYS
            .iter()
            .any(|known| known.eq_ignore_ascii_case(key))
            || CARRIED_TREES
                .iter()
                .any(|tree| lower.starts_with(&tree.to_ascii_lowercase()))
    };
    dump.lines().filter(is_carried).map(str::to_owned).collect()
}

/// One mirror for the suite, one for its updates, one for its security fixes.
fn targets(answer: &str, suite: &str, host: &impl HostFiles) -> Vec<Target> {
    let mut seen = BTreeSet::new();
    answer
        .split("\n\n")
        .filter_map(|stanza| target(stanza, suite, host))
        .filter(|target| seen.insert(target.release.clone()))
        .collect()
}

fn target(stanza: &str, suite: &str, host: &impl HostFiles) -> Option<Target> {
    let fields = fields(stanza);
    let field = |key| fields.get(key).copied().unwrap_or_default();
    if field("Component") != "main" || field("Repo-URI").is_empty() {
        return None;
    }
    let list = Path::new(field("Filename")).file_name()?.to_str()?;
    let suffix = format!("_{}", field("MetaKey").replace('/', "_"));
    let release_name = list.strip_suffix(suffix.as_str())?;
    // Before the first `apt update` the origin and codename are unknown.
    let description = host.release_file(release_name).unwrap_or_default();
    let known = self::fields(&description);
    if *known.get("Origin").unwrap_or(&"Debian") != "Debian" {
        return None;
    }
    let wanted = |name: &&str| {
        let rest = name.strip_prefix(suite);
        matches!(rest, Some("" | "-updates" | "-security"))
    };
    let release = [Some(field("Release")), known.get("Codename").copied()]
        .into_iter()
        .flatten()
        .find(wanted)?;
    Some(Target {
        uri: field("Repo-URI").to_owned(),
        release: release.to_owned(),
        signed_by: host.signed_by(field("Sourcesentry")),
        listed: host.has_list(list),
    })
}

fn fields(stanza: &str) -> BTreeMap<&str, &str> {
    let pairs = stanza.lines().filter_map(|line| line.split_once(": "));
    pairs.collect()
}

fn render(targets: &[Target]) -> String {
    let mut text = String::new();
    for target in targets {
        let Target { uri, release, .. } = target;
        let written = write!(
            text,
            "Types: deb\nURIs: {uri}\nSuites: {release}\nComponents: main\n"
        );
        written.expect("writing to a string cannot fail");
        if let Some(keys) = &target.signed_by {
            text.push_str("Signed-By:");
            text.push_str(keys);
            text.push('\n');
        }
        text.push('\n');
    }
    text
}

/// `number` counts stanzas in `.sources` files, and lines in `.list` files.
fn signed_by(text: &str, number: usize, is_stanzas: bool) -> Option<String> {
    let index = number.checked_sub(1)?;
    if !is_stanzas {
        let line = text.lines().nth(index)?;
        let options = line.split_once('[')?.1.split_once(']')?.0;
        let keys = options
            .split_whitespace()
            .find_map(|option| option.strip_prefix("signed-by="))?;
        return Some(format!(" {}", keys.replace(',', " ")));
    }
    let mut lines = stanzas(text).nth(index)?.into_iter();
    let first = lines.find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case("signed-by").then_some(value)
    })?;
    let mut value = first.to_owned();
    for line in lines.take_while(|line| line.starts_with([' ', '\t'])) {
        value.push('\n');
        value.push_str(line);
    }
    Some(value)
}

fn stanzas(text: &str) -> impl Iterator<Item = Vec<&str>> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let split = lines.split(|line| line.trim().is_empty());
    let stanzas: Vec<Vec<&str>> = split
        .filter(|stanza| !stanza.is_empty())
        .map(<[&str]>::to_vec)
        .collect();
    stanzas.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = "\
MetaKey: main/binary-amd64/Packages\nFilename: /l/base_main_binary-amd64_Packages\n\
Component: main\nRelease: bookworm\nRepo-URI: http://mirror.test/debian/\nSourcesentry: /x:1\n\n\
MetaKey: main/binary-amd64/Packages\nFilename: /l/vendor_main_binary-amd64_Packages\n\
Component: main\nRelease: bookworm-updates\nRepo-URI: http://vendor.test/\nSourcesentry: /y:1\n\n\
MetaKey: contrib/binary-amd64/Packages\nFilename: /l/base_contrib_binary-amd64_Packages\n\
Component: contrib\nRelease: bookworm\nRepo-URI: http://mirror.test/debian/\n\n\
MetaKey: main/binary-amd64/Packages\nFilename: /l/sec_main_binary-amd64_Packages\n\
Component: main\nRelease: oldstable-security\nRepo-URI: http://mirror.test/security/\n\n\
MetaKey: main/binary-all/Packages\nFilename: /l/base_main_binary-all_Packages\n\
Component: main\nRelease: bookworm\nRepo-URI: http://mirror.test/debian/\nSourcesentry: /x:1\n";

    struct Fixture;

    impl HostFiles for Fixture {
        fn signed_by(&self, entry: &str) -> Option<String> {
            (entry == "/x:1").then(|| " /keys.gpg".to_owned())
        }

        fn release_file(&self, name: &str) -> Option<String> {
            let text = match name {
                "vendor" => "Origin: Vendor\nCodename: bookworm-updates\n",
                "sec" => "-----BEGIN\nHash: x\n\nOrigin: Debian\nCodename: bookworm-security\n",
                _ => return None,
            };
            Some(text.to_owned())
        }

        fn has_list(&self, name: &str) -> bool {
            name == "base_main_binary-amd64_Packages"
        }
    }

    #[test]
    fn only_debian_sources_of_the_suite_are_taken() {
        let targets = targets(ANSWER, "bookworm", &Fixture);
        let listed: Vec<bool> = targets.iter().map(|target| target.listed).collect();
        assert_eq!(listed, [true, false]);
        assert_eq!(
            render(&targets),
            "Types: deb\nURIs: http://mirror.test/debian/\nSuites: bookworm\nComponents: main\n\
             Signed-By: /keys.gpg\n\nTypes: deb\nURIs: http://mirror.test/security/\n\
             Suites: bookworm-security\nComponents: main\n\n"
        );
    }

    #[test]
    fn settings_that_weaken_signatures_are_left_behind() {
        let dump = "Acquire \"\";\nAcquire::AllowInsecureRepositories \"1\";\n\
                    Acquire::http::Proxy \"http://p:3128\";\nAcquire::Retries \"3\";\n\
                    APT::Get::AllowUnauthenticated \"1\";\nacquire::https::CaInfo \"/ca\";\n";
        assert_eq!(
            carried(dump),
            [
                "Acquire::http::Proxy \"http://p:3128\";",
                "Acquire::Retries \"3\";",
                "acquire::https::CaInfo \"/ca\";"
            ]
        );
    }

    #[test]
    fn keys_are_found_in_both_formats() {
        let list =
            "# c\ndeb [arch=amd64 signed-by=/a.gpg,/b.gpg] http://m x main\ndeb http://m x main\n";
        assert_eq!(signed_by(list, 2, false).as_deref(), Some(" /a.gpg /b.gpg"));
        assert_eq!(signed_by(list, 3, false), None);
        let sources = "Types: deb\n# comment\nSigned-By:\n -----BEGIN\n key\nSuites: x\n\n\nTypes: deb\nSigned-By: /k.gpg\n";
        assert_eq!(
            signed_by(sources, 1, true).as_deref(),
            Some("\n -----BEGIN\n key")
        );
        assert_eq!(signed_by(sources, 2, true).as_deref(), Some(" /k.gpg"));
        assert_eq!(signed_by(sources, 3, true), None);
    }
}
