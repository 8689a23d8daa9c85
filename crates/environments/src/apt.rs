//! How this host reaches its Debian packages.
//!
//! Owns reading the host's apt configuration: which mirrors it has for a suite
//! and the settings needed to reach them. Signatures are always verified: an
//! entry marked as trusted is written down without the mark. It never changes
//! the host's configuration.

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

/// Settings that say how to reach a mirror. None of them weakens the check of
/// signatures.
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
    /// The host has downloaded the package lists of all of them.
    pub listed: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct Target {
    uri: String,
    release: String,
    signed_by: Option<String>,
    list: PathBuf,
}

/// Asks apt which of its sources serve `suite`. `None` when it has none.
pub(crate) fn host_sources(
    suite: &str,
    cancel: &Cancel,
    scratch: &Path,
) -> io::Result<Option<Sources>> {
    let mut command = Command::new("apt-get");
    command.args(["indextargets", "Created-By: Packages"]);
    let (exit, out) = process::output(command, cancel, scratch, MAX_ANSWER_BYTES)?;
    if !exit.status.success() {
        tracing::debug!(tail = exit.tail, "apt could not list its sources");
        return Ok(None);
    }
    let targets = targets(&String::from_utf8_lossy(&out), suite, signed_by_of_entry);
    if !targets.iter().any(|target| target.release == suite) {
        return Ok(None);
    }
    Ok(Some(Sources {
        text: render(&targets),
        listed: targets.iter().all(|target| target.list.exists()),
    }))
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
    // apt does not read this variable by itself.
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
fn targets(answer: &str, suite: &str, signed_by: impl Fn(&str) -> Option<String>) -> Vec<Target> {
    let wanted = [
        suite.to_owned(),
        format!("{suite}-updates"),
        format!("{suite}-security"),
    ];
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for stanza in answer.split("\n\n") {
        let fields: BTreeMap<&str, &str> = stanza
            .lines()
            .filter_map(|line| line.split_once(": "))
            .collect();
        let field = |key| fields.get(key).copied().unwrap_or_default();
        // Before the first update apt does not know origin or codename yet.
        let from_debian = matches!(field("Origin"), "" | "Debian");
        let release = [field("Release"), field("Codename")]
            .into_iter()
            .find(|name| wanted.iter().any(|known| known == name));
        let Some(release) = release else { continue };
        if !from_debian || field("Component") != "main" || field("Repo-URI").is_empty() {
            continue;
        }
        if seen.insert(release.to_owned()) {
            found.push(Target {
                uri: field("Repo-URI").to_owned(),
                release: release.to_owned(),
                signed_by: signed_by(field("Sourcesentry")),
                list: PathBuf::from(field("Filename")),
            });
        }
    }
    found
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

/// Reads which keys an entry, named `file:number` by apt, asks for.
fn signed_by_of_entry(entry: &str) -> Option<String> {
    let (file, number) = entry.rsplit_once(':')?;
    let number: usize = number.parse().ok()?;
    let text = fs::read_to_string(file).ok()?;
    signed_by(&text, number, file.ends_with(".sources"))
}

/// In `.sources` files the number counts stanzas, in `.list` files lines.
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
Filename: /lists/base\nCodename: bookworm\nOrigin: Debian\nComponent: main\nRelease: bookworm\n\
Repo-URI: http://mirror.test/debian/\nSourcesentry: /x.sources:1\n\n\
Filename: /lists/third\nOrigin: Vendor\nComponent: main\nRelease: bookworm\n\
Repo-URI: http://vendor.test/\nSourcesentry: /y.list:1\n\n\
Filename: /lists/other\nComponent: contrib\nRelease: bookworm\nRepo-URI: http://mirror.test/debian/\n\n\
Filename: /lists/sec\nCodename: bookworm-security\nComponent: main\nRelease: stable-security\n\
Repo-URI: http://mirror.test/security/\nSourcesentry: /x.sources:2\n";

    #[test]
    fn only_debian_sources_of_the_suite_are_taken() {
        let keys = |entry: &str| (entry == "/x.sources:1").then(|| " /keys.gpg".to_owned());
        let targets = targets(ANSWER, "bookworm", keys);
        let lists: Vec<_> = targets.iter().map(|t| t.list.to_str().unwrap()).collect();
        assert_eq!(lists, ["/lists/base", "/lists/sec"]);
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
