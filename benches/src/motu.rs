//! The motu under measurement: a release build with its own state directory.

use crate::ENVIRONMENT;
use crate::api::Api;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

/// A daemon that is stopped on drop.
#[derive(Debug)]
pub struct Motu {
    pub binary: PathBuf,
    pub home: PathBuf,
    daemon: Child,
}

impl Motu {
    pub fn start() -> Fallible<Motu> {
        let target = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../target")
            .canonicalize()?;
        let binary = target.join("release/motu");
        if !binary.exists() {
            return Err("target/release/motu is missing: cargo build --release -p motu".into());
        }
        let home = target.join("bench-home");
        let quiet = |args: &[&str]| -> Fallible<()> {
            let status = Command::new(&binary)
                .args(args)
                .env("MOTU_HOME", &home)
                .status()?;
            if status.success() {
                Ok(())
            } else {
                Err(format!("motu {args:?} failed").into())
            }
        };
        quiet(&["env", "pull", ENVIRONMENT])?;
        // The pull started a daemon on demand; stop it, because ours is measured.
        quiet(&["serve", "--stop"])?;
        Motu::serve(&binary, &home)
    }

    /// Starts a daemon on a state directory.
    pub fn serve(binary: &Path, home: &Path) -> Fallible<Motu> {
        Ok(Motu {
            daemon: daemon(binary, home)?,
            binary: binary.to_path_buf(),
            home: home.to_path_buf(),
        })
    }

    /// Restarts the daemon with other settings; `None` means the defaults.
    pub fn configure(&mut self, settings: Option<&str>) -> Fallible<()> {
        let file = self.home.join("config.toml");
        self.command(&["serve", "--stop"]).output()?;
        self.daemon.wait()?;
        match settings {
            Some(text) => std::fs::write(&file, text)?,
            None => std::fs::remove_file(&file)?,
        }
        self.daemon = daemon(&self.binary, &self.home)?;
        Ok(())
    }

    /// Runs a command that must succeed and returns its JSON output.
    pub fn json(&self, args: &[&str]) -> Fallible<serde_json::Value> {
        let output = self.command(args).output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("motu {args:?}: {said}").into());
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    pub fn api(&self) -> Fallible<Api> {
        Api::connect(&self.home.join("daemon.sock"))
    }

    pub fn pid(&self) -> u32 {
        self.daemon.id()
    }

    /// A `motu` command against this daemon.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command
            .args(args)
            .env("MOTU_HOME", &self.home)
            .stdin(Stdio::null());
        command
    }

    /// The unpacked root of the environment, for rivals.
    pub fn environment_root(&self) -> Fallible<PathBuf> {
        self.root_of(ENVIRONMENT)
    }

    /// The same for any environment that was pulled.
    pub fn root_of(&self, environment: &str) -> Fallible<PathBuf> {
        let found = self.json(&["env", "inspect", environment, "--json"])?;
        let digest = found["digest"]
            .as_str()
            .ok_or("the environment has no digest")?;
        let root = self
            .home
            .join("environments/blobs")
            .join(digest.replace(':', "-"))
            .join("root");
        Ok(root)
    }
}

/// Starts a daemon and waits until it answers.
fn daemon(binary: &Path, home: &Path) -> Fallible<Child> {
    let mut daemon = Command::new(binary)
        .arg("serve")
        .env("MOTU_HOME", home)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    for _ in 0..1500 {
        if Api::connect(&home.join("daemon.sock")).is_ok() {
            return Ok(daemon);
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    daemon.kill()?;
    daemon.wait()?;
    Err("the daemon did not come up".into())
}

impl Drop for Motu {
    fn drop(&mut self) {
        let _ = self.command(&["serve", "--stop"]).output();
        let _ = self.daemon.wait();
    }
}
