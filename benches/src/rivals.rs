//! Rivals: Docker's engine on its own socket, runc, crun, bubblewrap.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

/// The name of the imported root.
pub const IMAGE: &str = "motu-bench:latest";

/// A Docker engine of our own: data, state and socket in a temporary directory.
#[derive(Debug)]
pub struct Docker {
    dir: TempDir,
    engine: Child,
}

impl Docker {
    /// Starts the engine and imports the same root motu uses.
    pub fn start(root: &Path) -> Fallible<Docker> {
        let dir = TempDir::with_prefix("bench-docker-")?;
        let at = |name: &str| dir.path().join(name);
        let engine = Command::new("dockerd")
            .arg("--data-root")
            .arg(at("data"))
            .arg("--exec-root")
            .arg(at("exec"))
            .arg("--pidfile")
            .arg(at("pid"))
            .arg("-H")
            .arg(format!("unix://{}", at("docker.sock").display()))
            .args(["--iptables=false", "--ip6tables=false", "--bridge=none"])
            .args(["--exec-opt", "native.cgroupdriver=cgroupfs"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let docker = Docker { dir, engine };
        let begun = Instant::now();
        while !docker.command(&["version"]).output()?.status.success() {
            if begun.elapsed() > Duration::from_secs(20) {
                return Err("dockerd did not come up".into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let mut tar = Command::new("tar")
            .arg("-C")
            .arg(root)
            .args(["-c", "."])
            .stdout(Stdio::piped())
            .spawn()?;
        let archive = tar.stdout.take().ok_or("tar has no output")?;
        let import = docker
            .command(&["import", "-", IMAGE])
            .stdin(archive)
            .output()?;
        tar.wait()?;
        if !import.status.success() {
            return Err(String::from_utf8_lossy(&import.stderr).into_owned().into());
        }
        Ok(docker)
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("docker.sock")
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("docker");
        command
            .args(args)
            .env("DOCKER_HOST", format!("unix://{}", self.socket().display()))
            .stdin(Stdio::null());
        command
    }

    /// `docker run --rm --network none IMAGE …`, as a command to time.
    pub fn run(&self, program: &[&str]) -> Command {
        let mut command = self.command(&["run", "--rm", "--network", "none", IMAGE]);
        command.args(program);
        command
    }

    /// Starts a container that stays and returns its name.
    pub fn keep(&self) -> Fallible<String> {
        let name = "bench".to_string();
        let args = [
            "run",
            "-d",
            "--rm",
            "--name",
            &name,
            "--network",
            "none",
            IMAGE,
            "sleep",
            "3600",
        ];
        quiet(self.command(&args))?;
        Ok(name)
    }

    pub fn remove(&self, name: &str) -> Fallible<()> {
        quiet(self.command(&["rm", "-f", name]))
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        // SIGTERM lets it unmount its file systems.
        let _ = Command::new("kill")
            .arg(self.engine.id().to_string())
            .status();
        let _ = self.engine.wait();
    }
}

/// Runs a command that must succeed, and ignores its output.
pub fn quiet(mut command: Command) -> Fallible<()> {
    let output = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)).into())
}

/// Whether all these programs are installed; missing ones are reported.
pub fn present(report: &crate::report::Report, programs: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let missing: Vec<&str> = programs
        .iter()
        .filter(|program| !std::env::split_paths(&path).any(|dir| dir.join(program).exists()))
        .copied()
        .collect();
    if !missing.is_empty() {
        report.note("left out", format!("{} missing", missing.join(", ")));
    }
    missing.is_empty()
}

/// An OCI bundle over a root, for runc and crun.
pub fn bundle(root: &Path) -> Fallible<TempDir> {
    let dir = TempDir::with_prefix("bench-bundle-")?;
    let status = Command::new("runc")
        .arg("spec")
        .current_dir(dir.path())
        .status()?;
    if !status.success() {
        return Err("runc spec failed".into());
    }
    let path: PathBuf = dir.path().join("config.json");
    let mut config: serde_json::Value = serde_json::from_slice(&std::fs::read(&path)?)?;
    config["process"]["args"] = serde_json::json!(["true"]);
    config["process"]["terminal"] = serde_json::json!(false);
    config["root"] = serde_json::json!({ "path": root, "readonly": true });
    // The bench may lack the privilege to raise limits.
    if let Some(process) = config["process"].as_object_mut() {
        process.remove("rlimits");
    }
    std::fs::write(&path, config.to_string())?;
    Ok(dir)
}
