//! A terminal session in a machine that has every program of these tests.

use motu_core::sandbox::CreateSandbox;
use motu_core::terminal::{
    End, ExpectInTerminal, OpenTerminal, Prompt, RunInTerminal, ScreenFormat, SendToTerminal,
    Status, TerminalAnswer, TerminalPassword, TerminalScreen, Terminals, Wait,
};
use motu_core::{Result, Size, TerminalId};
use motu_environments::{Environments, Privilege, Progress};
use motu_testkit::environments;
use motu_testkit::world::World;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// The longest wait for anything, on a busy machine.
const PATIENCE: f64 = 30.0;

/// A session, its machine and its daemon.
pub struct Desk {
    pub world: World,
    pub id: TerminalId,
}

/// The environment's name; it is built and installed if it does not exist yet.
fn environment() -> &'static std::result::Result<String, String> {
    static NAME: OnceLock<std::result::Result<String, String>> = OnceLock::new();
    NAME.get_or_init(|| {
        let root = motu_testkit::root();
        let made = Command::new(root.join("tools/programs")).output();
        let made = made.map_err(|error| format!("programs: {error}"))?;
        if !made.status.success() {
            let said = String::from_utf8_lossy(&made.stderr);
            return Err(format!("programs: no environment: {said}"));
        }
        let tar = PathBuf::from(String::from_utf8_lossy(&made.stdout).trim());
        let name = format!("tar:{}", tar.display());
        let home = environments().parent().unwrap().to_path_buf();
        let pulled = name.clone();
        let pulling = async move {
            let environments = Environments::open(&home, Privilege::detect())?;
            environments.pull(&pulled, Progress::new(|_| {})).await
        };
        // In a separate thread, because tests already run inside a runtime.
        let installed = std::thread::spawn(move || {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap()
                .block_on(pulling)
        });
        let installed = installed.join().unwrap();
        installed.map_err(|error| format!("programs: {error}"))?;
        Ok(name)
    })
}

impl Desk {
    /// A session of root.
    pub async fn new() -> Option<Desk> {
        Desk::of("root").await
    }

    /// A session of this user.
    pub async fn of(user: &str) -> Option<Desk> {
        let name = match environment() {
            Ok(name) => name,
            Err(reason) => {
                motu_needs::skip(reason);
                return None;
            }
        };
        let world = World::new()?;
        let machine = world
            .create_with(CreateSandbox {
                environment: name.clone(),
                size: Size::of(512, 512),
                ..CreateSandbox::default()
            })
            .await
            .sandbox_id;
        let id = TerminalId::parse("desk").unwrap();
        let open = OpenTerminal {
            session_id: id.to_string(),
            sandbox_id: Some(machine),
            user: Some(user.to_string()),
            cwd: Some(
                if user == "root" {
                    "/root"
                } else {
                    "/home/person"
                }
                .to_string(),
            ),
            ..OpenTerminal::default()
        };
        let opened = world.client().open_terminal(open).await.unwrap();
        assert!(opened.created);
        Some(Desk { world, id })
    }

    /// Opens another session in the same machine, with its own command.
    pub async fn sit(&mut self, name: &str, command: &[&str]) {
        let client = self.world.client();
        let here = client.get_terminal(&self.id).await.unwrap();
        self.id = TerminalId::parse(name).unwrap();
        let open = OpenTerminal {
            session_id: name.to_string(),
            sandbox_id: Some(here.sandbox_id),
            command: command.iter().map(|word| (*word).to_string()).collect(),
            ..OpenTerminal::default()
        };
        let opened = client.open_terminal(open).await.unwrap();
        assert!(opened.created);
    }

    pub async fn run(&self, command: &str) -> TerminalAnswer {
        self.run_for(command, PATIENCE).await
    }

    pub async fn run_for(&self, command: &str, timeout: f64) -> TerminalAnswer {
        self.try_run(command, timeout).await.unwrap()
    }

    pub async fn try_run(&self, command: &str, timeout: f64) -> Result<TerminalAnswer> {
        self.try_to_run(command, timeout, false).await
    }

    /// Runs a command even where a secret is asked for.
    pub async fn run_anyway(&self, command: &str) -> TerminalAnswer {
        self.try_to_run(command, PATIENCE, true).await.unwrap()
    }

    async fn try_to_run(&self, command: &str, timeout: f64, force: bool) -> Result<TerminalAnswer> {
        let run = RunInTerminal {
            command: command.to_string(),
            force,
            wait: waiting(timeout),
        };
        let client = self.world.client();
        client.run_in_terminal(&self.id, run).await
    }

    /// Runs a command that must succeed.
    pub async fn done(&self, command: &str) -> String {
        let answer = self.run(command).await;
        assert_eq!(
            (answer.end, answer.exit_code),
            (End::CommandEnded, Some(0)),
            "{command}: {answer:#?}"
        );
        answer.output
    }

    async fn send(&self, mut send: SendToTerminal) -> TerminalAnswer {
        send.wait = waiting(PATIENCE);
        self.world
            .client()
            .send_to_terminal(&self.id, send)
            .await
            .unwrap()
    }

    pub async fn text(&self, text: &str) -> TerminalAnswer {
        self.send(SendToTerminal {
            text: Some(text.to_string()),
            ..SendToTerminal::default()
        })
        .await
    }

    pub async fn keys(&self, keys: &[&str]) -> TerminalAnswer {
        self.send(SendToTerminal {
            keys: Some(keys.iter().map(|key| (*key).to_string()).collect()),
            ..SendToTerminal::default()
        })
        .await
    }

    /// Sends Ctrl-C until the shell is back. A shell that is just starting the next command of a
    /// loop takes the first one as meant for that command, and continues.
    pub async fn interrupt(&self) {
        for _ in 0..10 {
            let answer = self
                .send(SendToTerminal {
                    control: Some("c".to_string()),
                    ..SendToTerminal::default()
                })
                .await;
            if answer.state.status == Status::Ready {
                return self.is_back().await;
            }
        }
        panic!("it goes on:\n{}", self.text_on_screen().await);
    }

    pub async fn password(&self, password: &str) -> TerminalAnswer {
        let password = TerminalPassword {
            password: password.to_string(),
            force: false,
            wait: waiting(PATIENCE),
        };
        self.world
            .client()
            .send_terminal_password(&self.id, password)
            .await
            .unwrap()
    }

    pub async fn expect(&self, pattern: &str) -> TerminalAnswer {
        let expect = ExpectInTerminal {
            patterns: vec![pattern.to_string()],
            wait: waiting(PATIENCE),
            ..ExpectInTerminal::default()
        };
        let answer = self
            .world
            .client()
            .expect_in_terminal(&self.id, expect)
            .await
            .unwrap();
        assert!(
            answer.found.is_some(),
            "no {pattern:?}: {answer:#?}\n{}",
            self.text_on_screen().await
        );
        answer
    }

    pub async fn prompt(&self) -> TerminalAnswer {
        let wait = waiting(PATIENCE);
        self.world
            .client()
            .expect_terminal_prompt(&self.id, wait)
            .await
            .unwrap()
    }

    pub async fn screen(&self, format: ScreenFormat) -> TerminalScreen {
        self.world
            .client()
            .terminal_screen(&self.id, format.into())
            .await
            .unwrap()
    }

    pub async fn text_on_screen(&self) -> String {
        self.screen(ScreenFormat::Text).await.screen
    }

    /// Polls until the screen matches: full-screen programs emit no marks.
    pub async fn until(&self, what: &str, so: impl Fn(&TerminalScreen) -> bool) -> TerminalScreen {
        motu_testkit::world::eventually(what, async || {
            let screen = self.screen(ScreenFormat::Text).await;
            (so(&screen), screen)
        })
        .await;
        self.screen(ScreenFormat::Text).await
    }

    /// Waits for a status and a prompt.
    pub async fn is(&self, status: Status, prompt: Prompt) {
        let what = format!("status {status:?}, prompt {prompt:?}");
        self.until(&what, |screen| {
            screen.state.status == status && screen.state.prompt == prompt
        })
        .await;
    }

    /// Checks that the shell is at its prompt again, and works.
    pub async fn is_back(&self) {
        self.is(Status::Ready, Prompt::Shell).await;
        assert_eq!(self.done("echo back").await.trim(), "back");
    }
}

fn waiting(timeout: f64) -> Wait {
    Wait {
        timeout: Some(timeout),
        ..Wait::default()
    }
}

/// The status and the prompt in an answer.
pub fn state(answer: &TerminalAnswer) -> (Status, Prompt) {
    (answer.state.status, answer.state.prompt)
}
