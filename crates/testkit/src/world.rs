//! A state directory with a daemon, and short forms of the calls that tests use.

use crate::environments;
use crate::story::{Told, ids};
use crate::traces::{Traces, children, started};
use bytes::Bytes;
use futures_util::StreamExt;
use motu_api::Client;
use motu_api::client::SocketAt;
use motu_core::exec::{ExecEvent, ExecRequest, ExecResult, ExecSession, Exited};
use motu_core::files::{ByteStream, GuestPath, ReadFile, ReadRange, WriteFile, WriteOptions};
use motu_core::sandbox::{CreateSandbox, Sandbox};
use motu_core::{Error, ErrorKind, Program, Result, SandboxId, Service, Size};
use motu_environments::{Environments, Privilege, Progress};
use std::ffi::OsStr;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The longest wait for anything, on a busy machine.
pub const SOON: Duration = Duration::from_secs(20);
/// The polling interval for conditions without an event.
const LOOK: Duration = Duration::from_millis(10);
/// The environment of every sandbox here.
pub const ENVIRONMENT: &str = "busybox";

/// A state directory of one test. Its daemon and its machines end with it.
#[derive(Debug)]
pub struct World {
    pub traces: Traces,
    home: PathBuf,
    daemon: Option<Child>,
    /// Children of killed daemons, which must end too.
    orphans: Vec<(i32, String)>,
    // The last field, so that it is dropped last.
    dir: tempfile::TempDir,
}

impl World {
    /// A world without a daemon, or `None` if machines cannot be created here.
    pub fn bare() -> Option<World> {
        World::below("state")
    }

    /// The same, with the state directory at this path below the test's directory.
    pub fn below(name: impl AsRef<Path>) -> Option<World> {
        if let Err(reason) = possible() {
            motu_needs::skip(reason);
            return None;
        }
        let dir = temporary();
        let home = dir.path().join(name);
        std::fs::create_dir_all(&home).unwrap();
        std::os::unix::fs::symlink(environments(), home.join("environments")).unwrap();
        // Use one runtime everywhere: these tests are not about the choice of the strongest.
        std::fs::write(home.join("config.toml"), "runtime = \"container\"\n").unwrap();
        motu_needs::probes::warm(&home);
        motu_needs::probes::share_machines(&home);
        Some(World {
            traces: Traces::of(&home),
            home,
            daemon: None,
            orphans: Vec::new(),
            dir,
        })
    }

    /// A world whose daemon runs.
    pub fn new() -> Option<World> {
        let mut world = World::bare()?;
        world.start();
        Some(world)
    }

    pub fn home(&self) -> &Path {
        &self.home
    }

    /// A directory of the test, outside the state directory.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn socket(&self) -> PathBuf {
        self.home.join("daemon.sock")
    }

    pub fn client(&self) -> Client {
        Client::new(SocketAt(self.socket()))
    }

    pub fn daemon_pid(&self) -> u32 {
        self.daemon.as_ref().unwrap().id()
    }

    /// Starts a daemon in the foreground and waits until it accepts connections.
    pub fn start(&mut self) {
        self.start_by(self.command(&["serve"]));
    }

    /// The same, with a command that executes a daemon.
    pub fn start_by(&mut self, mut command: Command) {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.dir.path().join("log"))
            .unwrap();
        let child = command.stderr(log).spawn().unwrap();
        let daemon = self.daemon.insert(child);
        let socket = self.home.join("daemon.sock");
        let ours = rustix::process::Pid::from_child(daemon);
        let deadline = Instant::now() + SOON;
        // A process that a killed daemon was just starting may hold its socket for a moment longer.
        while connect(&socket).and_then(|stream| peer(&stream)) != Some(ours) {
            let ended = daemon.try_wait().unwrap();
            assert!(ended.is_none(), "the daemon ended: {ended:?}");
            assert!(Instant::now() < deadline, "the daemon does not come up");
            std::thread::sleep(LOOK);
        }
    }

    /// Kills the daemon as a crash would, and records its children, which must end too.
    pub fn kill(&mut self) {
        let mut daemon = self.daemon.take().unwrap();
        self.orphans.extend(children(daemon.id()));
        daemon.kill().unwrap();
        daemon.wait().unwrap();
    }

    pub fn restart(&mut self) {
        self.kill();
        self.start();
    }

    /// From now on the state directory is at this path.
    pub fn live_at(&mut self, home: &Path) {
        self.home = home.to_path_buf();
        // The kernel reports its resolved path.
        self.traces = Traces::of(&home.canonicalize().unwrap());
    }

    /// Stops the daemon cleanly; machines stay.
    pub fn stop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let pid = rustix::process::Pid::from_child(&daemon);
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            let deadline = Instant::now() + SOON;
            while daemon.try_wait().unwrap().is_none() {
                if Instant::now() > deadline {
                    let _ = daemon.kill();
                }
                std::thread::sleep(LOOK);
            }
        }
    }

    pub fn command(&self, args: &[impl AsRef<OsStr>]) -> Command {
        let mut command = Command::new(crate::program());
        command
            .args(args)
            .current_dir(self.dir.path())
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", self.dir.path())
            .env("MOTU_HOME", &self.home)
            .stdin(Stdio::null());
        command
    }

    pub fn motu(&self, args: &[impl AsRef<OsStr>]) -> Told {
        Told::of(self.command(args))
    }

    /// The output of a client whose daemon was killed. A client that connected after the kill
    /// started its own daemon, which is stopped here.
    pub fn outcome(&self, client: Child) -> Output {
        let output = client.wait_with_output().unwrap();
        let _ = self.motu(&["serve", "--stop"]);
        output
    }

    /// The daemon's log so far.
    pub fn log(&self) -> String {
        let own = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        own + &std::fs::read_to_string(self.home.join("daemon.log")).unwrap_or_default()
    }

    pub async fn create(&self) -> SandboxId {
        self.create_with(small()).await.sandbox_id
    }

    pub async fn create_with(&self, request: CreateSandbox) -> Sandbox {
        self.client().create_sandbox(request).await.unwrap()
    }

    /// Creates a sandbox and checks that all of its limits are enforced; hostile programs run only
    /// in such sandboxes.
    pub async fn bounded(&self, request: CreateSandbox) -> SandboxId {
        let sandbox = self.create_with(request).await;
        let open: Vec<_> = sandbox
            .limits
            .iter()
            .filter(|limit| !limit.enforced)
            .collect();
        assert!(open.is_empty(), "not enforced here: {open:?}");
        sandbox.sandbox_id
    }

    /// Runs a script to its end.
    pub async fn sh(&self, id: &SandboxId, script: &str) -> ExecResult {
        self.client().exec(id, shell(script)).await.unwrap()
    }

    /// Checks that the sandbox runs commands.
    pub async fn assert_works(&self, id: &SandboxId) {
        let said = self.client().exec(id, shell("echo works")).await;
        assert_eq!(said.map(|said| said.stdout), Ok("works\n".to_string()));
    }

    pub async fn write(&self, id: &SandboxId, path: &str, content: &[u8]) -> Result<()> {
        let client = self.client();
        let written = client.write_file(
            id,
            WriteFile::new(at(path), WriteOptions::default()),
            stream(content),
        );
        written.await.map(drop)
    }

    pub async fn read(&self, id: &SandboxId, path: &str) -> Result<Vec<u8>> {
        let (_, content) = self
            .client()
            .read_file(id, ReadFile::new(at(path), ReadRange::default()))
            .await?;
        collect(content).await
    }

    /// Destroys everything, stops the daemon and returns what is left.
    fn end(&mut self) -> Vec<String> {
        if self.home.join("motu.db").exists() {
            for id in ids(&self.motu(&["workspace", "list", "--json"]), "workspace_id") {
                let _ = self.motu(&["workspace", "delete", &id]);
            }
            for id in ids(&self.motu(&["ps", "--json"]), "sandbox_id") {
                let _ = self.motu(&["rm", &id]);
            }
        }
        // A daemon that was started on demand is not our child.
        let _ = self.motu(&["serve", "--stop"]);
        self.stop();
        let mut left = Vec::new();
        let deadline = Instant::now() + SOON;
        loop {
            left.clear();
            left.extend(self.traces.left());
            let alive = self
                .orphans
                .iter()
                .filter(|(pid, start)| started(*pid).as_ref() == Some(start));
            left.extend(alive.map(|(pid, _)| format!("process {pid} of a killed daemon")));
            if left.is_empty() || Instant::now() > deadline {
                return left;
            }
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let left = self.end();
        if std::thread::panicking() {
            eprintln!("left: {left:?}\nlog:\n{}", self.log());
        } else {
            assert!(left.is_empty(), "left: {left:?}\nlog:\n{}", self.log());
        }
    }
}

/// A directory whose name identifies it as a test's.
pub fn temporary() -> tempfile::TempDir {
    tempfile::Builder::new()
        .prefix("motu-test-")
        .tempdir_in("/var/tmp")
        .unwrap()
}

/// Whether machines can be created here, or the reason why not.
fn possible() -> &'static std::result::Result<(), String> {
    static POSSIBLE: OnceLock<std::result::Result<(), String>> = OnceLock::new();
    POSSIBLE.get_or_init(|| {
        if !rustix::process::geteuid().is_root() {
            return Err("faults: limits of disk and memory need root".to_string());
        }
        pull().map_err(|error| format!("faults: environment {ENVIRONMENT}: {error}"))?;
        crate::works("container").map_err(|reason| format!("faults: {reason}"))
    })
}

fn pull() -> std::result::Result<(), motu_environments::EnvironmentError> {
    let home = environments().parent().unwrap().to_path_buf();
    let pulling = async move {
        let environments = Environments::open(&home, Privilege::detect())?;
        environments.pull(ENVIRONMENT, Progress::new(|_| {})).await
    };
    // In a separate thread, because tests already run inside a runtime.
    let pulled = std::thread::spawn(move || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(pulling)
    });
    pulled.join().unwrap().map(drop)
}

pub fn connect(socket: &Path) -> Option<std::os::unix::net::UnixStream> {
    let short = motu_api::socket::ShortPath::new(socket).ok()?;
    std::os::unix::net::UnixStream::connect(short.as_path()).ok()
}

/// The process that listens at the other end.
fn peer(stream: &std::os::unix::net::UnixStream) -> Option<rustix::process::Pid> {
    let found = rustix::net::sockopt::socket_peercred(stream);
    found.ok().map(|found| found.pid)
}

/// A sandbox with limits that keep every test harmless.
pub fn small() -> CreateSandbox {
    CreateSandbox {
        environment: ENVIRONMENT.to_string(),
        runtime: Some("container".to_string()),
        size: Size::of(256, 64),
        pids_max: Some(64),
        ..CreateSandbox::default()
    }
}

/// A script for the sandbox's shell.
pub fn shell(script: &str) -> ExecRequest {
    ExecRequest::from(Program::shell(script))
}

pub fn at(path: impl AsRef<[u8]>) -> GuestPath {
    GuestPath::new(path.as_ref().to_vec()).unwrap()
}

/// Content as a stream of several chunks.
pub fn stream(content: &[u8]) -> ByteStream {
    let pieces: Vec<Result<Bytes>> = content
        .chunks(100_000)
        .map(|piece| Ok(Bytes::copy_from_slice(piece)))
        .collect();
    futures_util::stream::iter(pieces).boxed()
}

pub async fn collect(mut content: ByteStream) -> Result<Vec<u8>> {
    let mut whole = Vec::new();
    while let Some(piece) = content.next().await {
        whole.extend_from_slice(&piece?);
    }
    Ok(whole)
}

/// The output and the exit of a session that must lose nothing.
pub async fn hear(mut session: ExecSession) -> (Vec<u8>, Vec<u8>, Exited) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    while let Some(event) = session.events.next().await {
        match event.unwrap() {
            ExecEvent::Stdout(bytes) => out.extend_from_slice(&bytes),
            ExecEvent::Stderr(bytes) => err.extend_from_slice(&bytes),
            ExecEvent::Exited(exited) => {
                // A task closes its connection; let it run now.
                drop(session);
                tokio::task::yield_now().await;
                return (out, err, exited);
            }
            ExecEvent::Gap(gap) => panic!("output was lost: {gap:?}"),
            ExecEvent::Sandbox(_) | ExecEvent::Started(_) => {}
        }
    }
    panic!("the session ended before its command did")
}

/// How a session ends: with the exit of its command, or with an error.
pub async fn to_the_end(mut session: ExecSession) -> Result<()> {
    while let Some(event) = session.events.next().await {
        if let ExecEvent::Exited(_) = event? {
            return Ok(());
        }
    }
    Err(Error::transport("the session ended before its command did"))
}

/// Checks that a call was refused with this kind of error and a message, and returns the error.
#[track_caller]
pub fn refused<T: Debug>(kind: ErrorKind, result: Result<T>) -> Error {
    let error = result.unwrap_err();
    assert_eq!(error.kind, kind, "{error:?}");
    assert!(!error.message.is_empty());
    error
}

/// Polls until a condition holds.
pub async fn eventually<T: Debug>(what: &str, mut look: impl AsyncFnMut() -> (bool, T)) {
    let deadline = Instant::now() + SOON;
    loop {
        let (is_so, seen) = look().await;
        if is_so {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "{what} is still not so: {seen:?}"
        );
        tokio::time::sleep(LOOK).await;
    }
}

/// The answer, which must come within `SOON`.
pub async fn soon<T>(what: &str, answer: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, answer)
        .await
        .unwrap_or_else(|_| panic!("{what} did not come within {SOON:?}"))
}

/// Pseudorandom numbers that are the same in every run (xorshift).
#[derive(Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed | 1)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    /// A random delay of at most this many milliseconds.
    pub fn moment(&mut self, most_ms: u64) -> Duration {
        Duration::from_micros(self.below(most_ms * 1000))
    }
}

/// The kills of a test: as many as requested, and more until one interrupted a call, which takes
/// longer on a slow machine.
#[derive(Debug)]
pub struct Blows {
    dice: Dice,
    wanted: u64,
    given: u64,
    hits: usize,
}

impl Blows {
    /// `MOTU_TEST_BLOWS` multiplies the requested number.
    pub fn new(seed: u64, wanted: u64) -> Blows {
        let times = std::env::var("MOTU_TEST_BLOWS").ok();
        let times: u64 = times.map_or(1, |times| times.parse().expect("a number"));
        Blows {
            dice: Dice::new(seed),
            wanted: wanted * times,
            given: 0,
            hits: 0,
        }
    }

    /// The number of the next kill, if there is one.
    pub fn another(&mut self) -> Option<u64> {
        if self.given >= self.wanted && self.hits > 0 {
            println!("{} blows cut {} calls off", self.given, self.hits);
            return None;
        }
        let most = self.wanted * 20;
        assert!(self.given < most, "{most} blows, and none cut anything off");
        self.given += 1;
        Some(self.given - 1)
    }

    /// A random delay of at most this many milliseconds.
    pub fn moment(&mut self, most_ms: u64) -> Duration {
        self.dice.moment(most_ms)
    }

    /// Records how many calls the last kill interrupted.
    pub fn hit(&mut self, calls: usize) {
        self.hits += calls;
    }
}
