//! A directory in which `motu` is isolated from the configuration of the host.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A state directory of one test, and a daemon that ends with it.
pub struct Story {
    home: tempfile::TempDir,
}

/// The result of a command, as text to compare.
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
        let pulled = story.motu(&["env", "pull", "busybox"]);
        if pulled.code != 0 {
            eprintln!("skipped: busybox cannot be pulled here: {pulled}");
            return None;
        }
        let healthy = story.motu(&["doctor"]);
        if healthy.code != 0 {
            eprintln!("skipped: no runtime works here: {healthy}");
            return None;
        }
        Some(story)
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
        let mut command = Command::new(env!("CARGO_BIN_EXE_motu"));
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

    pub fn told(&self, mut command: Command) -> Told {
        let output = command.output().unwrap();
        Told {
            code: output.status.code().unwrap_or(-1),
            stdout: self.plain(&output.stdout),
            stderr: self.plain(&output.stderr),
        }
    }

    /// Text without the parts that differ between runs.
    fn plain(&self, bytes: &[u8]) -> String {
        String::from_utf8_lossy(bytes)
            .replace(&*self.home().to_string_lossy(), "$MOTU_HOME")
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
