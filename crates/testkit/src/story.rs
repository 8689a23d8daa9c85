//! A directory in which `motu` is isolated from the configuration of the host.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A state directory of one test, and a daemon that ends with it.
#[derive(Debug)]
pub struct Story {
    home: tempfile::TempDir,
}

/// The result of a command, as text to compare.
#[derive(Debug)]
#[must_use = "a story looks at what happened"]
pub struct Told {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl std::fmt::Display for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.stdout)?;
        if !self.stderr.is_empty() {
            write!(f, "------- stderr -------\n{}", self.stderr)?;
        }
        match self.code {
            0 => Ok(()),
            code => write!(f, "[exit code: {code}]"),
        }
    }
}

impl Told {
    /// Runs a command to its end.
    pub fn of(mut command: Command) -> Told {
        let output = command.output().unwrap();
        Told {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// The error of a command that was called with `--json`.
    pub fn error(&self) -> motu_core::Error {
        let answer: serde_json::Value =
            serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        serde_json::from_value(answer["error"].clone())
            .unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl Default for Story {
    fn default() -> Story {
        Story::new()
    }
}

impl Story {
    pub fn new() -> Story {
        let home = tempfile::tempdir().unwrap();
        Story { home }
    }

    /// A story with an environment, on a host where machines can be created.
    pub fn with_machines() -> Option<Story> {
        let story = Story::new();
        // Use one runtime everywhere: these tests are not about the choice of the strongest.
        story.configure("runtime = \"container\"\n");
        if !story.has_busybox() {
            motu_needs::skip(
                "busybox is not pulled into target/test-home; tools/environments does",
            );
            return None;
        }
        if let Err(reason) = crate::works("container") {
            motu_needs::skip(&reason);
            return None;
        }
        motu_needs::probes::warm(&story.home());
        Some(story)
    }

    /// A story with debian:12, which all tests share, and a usual runtime that works here.
    pub fn with_debian(runtime: &str) -> Option<Story> {
        if let Err(reason) = crate::works(runtime) {
            motu_needs::skip(&reason);
            return None;
        }
        Story::with_debian_for(runtime)
    }

    /// The same for a runtime that the test itself makes work.
    pub fn with_debian_for(runtime: &str) -> Option<Story> {
        let shared = crate::environments();
        if !shared.join("names/debian%3A12.json").exists() {
            motu_needs::skip(
                "debian:12 is not pulled into target/test-home; tools/environments does",
            );
            return None;
        }
        let story = Story::new();
        story.configure(&format!("runtime = \"{runtime}\"\n"));
        std::os::unix::fs::symlink(shared, story.home().join("environments")).unwrap();
        motu_needs::probes::warm(&story.home());
        motu_needs::probes::share_machines(&story.home());
        Some(story)
    }

    /// Copies busybox from the environments that all tests share: `env pull` would ask the host's package sources again,
    /// for seconds.
    pub fn has_busybox(&self) -> bool {
        let (shared, own) = (crate::environments(), self.home().join("environments"));
        let Ok(name) = std::fs::read_to_string(shared.join("names/busybox.json")) else {
            return false;
        };
        let known: serde_json::Value = serde_json::from_str(&name).unwrap();
        let blob = known["digest"].as_str().unwrap().replace(':', "-");
        for dir in ["names", "blobs"] {
            std::fs::create_dir_all(own.join(dir)).unwrap();
        }
        let copied = motu_needs::command("cp")
            .arg("--archive")
            .arg(shared.join("blobs").join(blob))
            .arg(own.join("blobs"))
            .status();
        assert!(copied.unwrap().success());
        std::fs::write(own.join("names/busybox.json"), name).unwrap();
        true
    }

    pub fn home(&self) -> PathBuf {
        self.home.path().join("state")
    }

    /// Writes the configuration file.
    pub fn configure(&self, text: &str) {
        std::fs::create_dir_all(self.home()).unwrap();
        std::fs::write(self.home().join("config.toml"), text).unwrap();
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(crate::program());
        command
            .args(args)
            .current_dir(self.home.path())
            .env_clear()
            .env(
                "PATH",
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            )
            .env("HOME", self.home.path())
            .env("MOTU_HOME", self.home())
            .env("COLUMNS", "100")
            .stdin(Stdio::null());
        command
    }

    pub fn motu(&self, args: &[&str]) -> Told {
        self.told(self.command(args))
    }

    /// Runs a command to its end; its output is without the paths that differ between runs.
    pub fn told(&self, command: Command) -> Told {
        let told = Told::of(command);
        Told {
            stdout: self.plain(&told.stdout),
            stderr: self.plain(&told.stderr),
            ..told
        }
    }

    fn plain(&self, text: &str) -> String {
        text.replace(&*self.home().to_string_lossy(), "$MOTU_HOME")
            .replace(&*self.home.path().to_string_lossy(), "$HOME")
    }

    pub fn path(&self) -> &Path {
        self.home.path()
    }
}

impl Drop for Story {
    /// Machines outlive their daemon, so they are removed first, even if the test failed.
    fn drop(&mut self) {
        if self.home().join("motu.db").exists() {
            let workspaces = self.motu(&["workspace", "list", "--json"]);
            for id in ids(&workspaces, "workspace_id") {
                let _ = self.command(&["workspace", "delete", &id]).output();
            }
            let sandboxes = self.motu(&["ps", "--json"]);
            for id in ids(&sandboxes, "sandbox_id") {
                let _ = self.command(&["rm", &id]).output();
            }
        }
        let _ = self.command(&["serve", "--stop"]).output();
    }
}

/// The ids in a listing.
pub fn ids(listed: &Told, field: &str) -> Vec<String> {
    let all: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap_or_default();
    let all = all.as_object().into_iter().flat_map(|list| list.values());
    let all = all.filter_map(|items| items.as_array()).flatten();
    all.filter_map(|one| one[field].as_str().map(String::from))
        .collect()
}

/// Patterns for ids and times, which differ between runs.
pub fn filters() -> Vec<(&'static str, &'static str)> {
    vec![
        (r"sb-[0-9a-z]{12}", "sb-ID"),
        (r"ws-[0-9a-z]{12}", "ws-ID"),
        (r"sh-[0-9a-z]{8}", "sh-ID"),
        (r"run_[0-9a-f]{32}", "run_ID"),
        (r"\d+(\.\d+)? ms", "N ms"),
        (r"pid \d+", "pid N"),
        (r#""pid": \d+"#, r#""pid": "N""#),
        (r#""duration_ms": \d+"#, r#""duration_ms": "N""#),
    ]
}
