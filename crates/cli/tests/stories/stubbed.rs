//! The program with a recorder in the place of its daemon: what is sent, and what is printed.

pub mod person;

use motu_core::verb::{Recorder, VersionOf};
use motu_gate::Gate;
use motu_server::{Activity, serve};
use motu_testkit::answers::{self, Sessions};
use motu_testkit::story::{Story, Told};
use serde_json::Value;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;

/// A state directory whose socket is served by this process.
pub struct World {
    pub story: Story,
    /// Knows live sessions; a test tells it the other verbs that it needs.
    pub recorder: Recorder,
    /// The command whose subcommands are called: `terminal`, `workspace`.
    family: &'static str,
    _runtime: tokio::runtime::Runtime,
}

/// Arguments as a list, or as one line of words.
pub trait Words {
    fn words(&self) -> Vec<&str>;
}

impl Words for str {
    fn words(&self) -> Vec<&str> {
        self.split_whitespace().collect()
    }
}

impl Words for String {
    fn words(&self) -> Vec<&str> {
        self.as_str().words()
    }
}

impl Words for Vec<&str> {
    fn words(&self) -> Vec<&str> {
        self.clone()
    }
}

impl Words for [&str] {
    fn words(&self) -> Vec<&str> {
        self.to_vec()
    }
}

impl<const LENGTH: usize> Words for [&str; LENGTH] {
    fn words(&self) -> Vec<&str> {
        self.to_vec()
    }
}

impl World {
    pub fn new(family: &'static str) -> World {
        let story = Story::new();
        std::fs::create_dir_all(story.home()).unwrap();
        let recorder = Recorder::default();
        recorder.always::<VersionOf>(answers::version());
        Sessions::default().tell(&recorder);
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let listener = {
            let _inside = runtime.enter();
            motu_api::socket::listen(&story.home().join("daemon.sock")).unwrap()
        };
        let never = std::future::pending();
        runtime.spawn(serve(
            Gate::new(Arc::new(recorder.clone())),
            listener,
            Activity::default(),
            never,
        ));
        World {
            story,
            recorder,
            family,
            _runtime: runtime,
        }
    }

    pub fn command(&self, args: &(impl Words + ?Sized)) -> Command {
        let mut command = self.story.command(&[self.family]);
        command.args(args.words());
        command
    }

    pub fn motu(&self, args: &(impl Words + ?Sized)) -> Told {
        self.story.told(self.command(args))
    }

    /// Runs a command with this standard input.
    pub fn fed(&self, args: &(impl Words + ?Sized), input: &str) -> Told {
        let mut command = self.command(args);
        command.stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).unwrap();
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        Told {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The call that reached the service.
    pub fn called(&self) -> (&'static str, Value) {
        answers::called(&self.recorder)
    }

    /// Runs a command that must succeed and returns the call that reached the service.
    pub fn sends(&self, args: &(impl Words + ?Sized)) -> (&'static str, Value) {
        let told = self.motu(args);
        assert_eq!(told.code, 0, "{:?}: {told}", args.words());
        self.called()
    }
}

impl Drop for World {
    /// `Story` stops the daemon it finds, which would be this very process; so remove the socket
    /// first.
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.story.home().join("daemon.sock"));
    }
}
