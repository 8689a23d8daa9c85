//! A table of situations: the command, and the state that must be reported for it.

use crate::programs::desk::Desk;
use motu_core::terminal::{End, Prompt, Status, Terminals};

/// The command, the expected state, the foreground program, and the keys that leave it.
type Situation = (
    &'static str,
    (Status, Prompt),
    &'static str,
    &'static [&'static str],
);

const READY: (Status, Prompt) = (Status::Ready, Prompt::Shell);
const ASKS: (Status, Prompt) = (Status::Confirm, Prompt::None);
const READS: (Status, Prompt) = (Status::Unknown, Prompt::Unknown);
const RUNS: (Status, Prompt) = (Status::Running, Prompt::None);
const SECRET: (Status, Prompt) = (Status::Password, Prompt::None);
const PAGES: (Status, Prompt) = (Status::Pager, Prompt::None);
const EDITS: (Status, Prompt) = (Status::Editor, Prompt::None);

const fn repl(prompt: Prompt) -> (Status, Prompt) {
    (Status::Repl, prompt)
}

const STOP: &[&str] = &["Ctrl-C"];
const END: &[&str] = &["Ctrl-D"];
const QUIT: &[&str] = &["q"];
const LEAVE: &[&str] = &["Ctrl-D"];

/// Shells started by other programs.
const SHELLS: &[Situation] = &[
    ("sudo -i", READY, "bash", LEAVE),
    ("sudo su -", READY, "bash", LEAVE),
    ("su - person", READY, "bash", LEAVE),
    ("sudo -u person bash", READY, "bash", LEAVE),
    ("bash --norc", READY, "bash", LEAVE),
    ("PS1='go ' bash --norc", READY, "bash", LEAVE),
    ("zsh -f", READY, "zsh", LEAVE),
    ("fish --no-config", READY, "fish", LEAVE),
    ("sh", READY, "sh", LEAVE),
    ("PS1='go ' sh", READY, "sh", LEAVE),
    ("env -i /bin/bash --norc", READY, "bash", LEAVE),
    ("script -q /dev/null", READY, "bash", LEAVE),
    ("sudo script -q /dev/null", READY, "bash", LEAVE),
    (
        r#"python3 -c 'import pty; pty.spawn(["/bin/bash","--norc"])'"#,
        READY,
        "bash",
        LEAVE,
    ),
    ("tmux -f /dev/null new-session", READY, "bash", LEAVE),
    ("setsid -w bash --norc", READY, "bash", LEAVE),
];

/// Programs that prompt, or only read.
const QUESTIONS: &[Situation] = &[
    ("read -p 'Your name: ' x", ASKS, "bash", STOP),
    ("read -n1 -p 'A key? ' x", ASKS, "bash", STOP),
    ("read -e -p 'Which path $ ' x", ASKS, "bash", STOP),
    ("read -e x", READS, "bash", STOP),
    ("select x in a b c; do break; done", ASKS, "bash", STOP),
    ("read -p 'Choose [1-3]: ' x", ASKS, "bash", STOP),
    ("bash -c 'read -p \"Who are you \" x'", ASKS, "bash", STOP),
    ("sh -c 'printf \"Name? \"; read x'", ASKS, "sh", STOP),
    ("python3 -c \"input('Name? ')\"", ASKS, "python3", STOP),
    (
        "python3 -c \"input('Choose [1-3]: ')\"",
        ASKS,
        "python3",
        STOP,
    ),
    ("perl -e 'print \"Name: \"; <STDIN>'", ASKS, "perl", STOP),
    (
        "python3 -c \"import threading as t; w = t.Thread(target=lambda: input('Name? ')); w.start(); w.join()\"",
        ASKS,
        "python3",
        &["Enter"],
    ),
    ("ssh-keygen -t ed25519", ASKS, "ssh-keygen", STOP),
    ("rm -i /etc/hostname", ASKS, "rm", STOP),
    (
        "su -c 'read -p \"Name? \" x' person",
        ASKS,
        "bash",
        &["Enter"],
    ),
    ("su -c cat person", READS, "cat", END),
    ("setsid -w cat", READS, "cat", END),
    ("script -qc cat /dev/null", READS, "cat", END),
    ("sudo cat", READS, "cat", END),
    ("cat", READS, "cat", END),
    ("timeout --foreground 100 cat", READS, "cat", END),
    (
        "node -e \"require('readline').createInterface({input:process.stdin,output:process.stdout}).question('Name? ',()=>process.exit())\"",
        ASKS,
        "node",
        STOP,
    ),
    (
        "node -e \"process.stdin.setRawMode(true); process.stdin.resume(); process.stdin.on('data',()=>process.exit()); process.stdout.write('? Pick one (Use arrow keys)\\n\\u276f one\\n  two\\n\\x1b[?25l')\"",
        ASKS,
        "node",
        &["Enter"],
    ),
    ("python3 /root/loop.py", ASKS, "python3", STOP),
    ("python3 /root/loop.py silent", READS, "python3", STOP),
];

/// Interpreters, password prompts, and full-screen programs.
const PROGRAMS: &[Situation] = &[
    ("python3 -q", repl(Prompt::Python), "python3", END),
    (
        "python3 -q -i -c \"import sys; sys.ps1 = 'my own '\"",
        repl(Prompt::Python),
        "python3",
        END,
    ),
    (
        "python3 -c 'import cmd; cmd.Cmd().cmdloop()'",
        repl(Prompt::Other),
        "python3",
        STOP,
    ),
    (
        "python3 -m pdb /root/loop.py",
        repl(Prompt::Pdb),
        "python3",
        END,
    ),
    ("node", repl(Prompt::Node), "node", END),
    ("sqlite3", repl(Prompt::Sqlite), "sqlite3", END),
    (
        "script -qc 'python3 -q' /dev/null",
        repl(Prompt::Python),
        "python3",
        END,
    ),
    ("setsid -w python3 -q", repl(Prompt::Python), "python3", END),
    ("sudo python3 -q", repl(Prompt::Python), "python3", END),
    (
        "su -c 'python3 -q' person",
        repl(Prompt::Python),
        "python3",
        END,
    ),
    ("passwd person", SECRET, "passwd", &["Enter"]),
    ("read -sp 'Secret: ' x", SECRET, "bash", STOP),
    (
        "python3 -c 'import getpass; getpass.getpass()'",
        SECRET,
        "python3",
        STOP,
    ),
    ("sudo -u person sudo id", SECRET, "sudo", STOP),
    ("less /etc/passwd", PAGES, "less", QUIT),
    ("sudo less /etc/passwd", PAGES, "less", QUIT),
    ("man ls", PAGES, "pager", QUIT),
    (
        "vim -u NONE",
        EDITS,
        "vim",
        &["Escape", ":", "q", "!", "Enter"],
    ),
    ("nano", EDITS, "nano", &["Ctrl-X"]),
    ("top", EDITS, "top", QUIT),
];

/// Programs that do not wait for input, whatever they print.
const BUSY: &[Situation] = &[
    ("sleep 100", RUNS, "sleep", STOP),
    ("sudo sleep 100", RUNS, "sleep", STOP),
    ("su -c 'sleep 100' person", RUNS, "su", STOP),
    ("script -qc 'sleep 100' /dev/null", RUNS, "sleep", STOP),
    ("setsid -w sleep 3", RUNS, "setsid", &[]),
    ("printf 'Name? '; sleep 100", RUNS, "sleep", STOP),
    ("tail -f /dev/null", RUNS, "tail", STOP),
    ("node -e 'setTimeout(() => {}, 100000)'", RUNS, "node", STOP),
    ("python3 -c 'while True: pass'", RUNS, "python3", STOP),
];

/// A program that reads the terminal in an event loop.
const LOOP: &str = "import asyncio, sys
async def main():
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    if len(sys.argv) < 2:
        print('Name? ', end='', flush=True)
    await reader.readline()
asyncio.run(main())
";

impl Desk {
    async fn with_the_loop() -> Option<Desk> {
        let desk = Desk::new().await?;
        let here = desk.world.client().get_terminal(&desk.id).await.unwrap();
        let place = here.sandbox_id;
        let written = desk.world.write(&place, "/root/loop.py", LOOP.as_bytes());
        written.await.unwrap();
        Some(desk)
    }

    /// Returns every situation that is reported wrongly.
    async fn told_wrongly(&self, situations: &[Situation]) -> Vec<String> {
        let mut wrong = Vec::new();
        for (command, told, front, leave) in situations {
            let timeout = if *told == RUNS { 0.6 } else { 8.0 };
            let answer = self.run_for(command, timeout).await;
            let here = self.world.client().get_terminal(&self.id).await.unwrap();
            let state = (answer.state.status, answer.state.prompt);
            let said = (here.state.status, here.state.prompt);
            let name = here.foreground.clone().unwrap_or_default();
            let name = name.trim_start_matches('-');
            if state != *told || said != *told || !name.starts_with(front) {
                wrong.push(format!(
                    "{command}: {state:?} ({}), then {said:?} ({}), {name:?} in front\n{}",
                    answer.state.state_reason,
                    here.state.state_reason,
                    self.text_on_screen().await
                ));
            }
            self.leave(leave).await;
        }
        wrong
    }

    async fn leave(&self, keys: &[&str]) {
        for _ in 0..6 {
            if !keys.is_empty() {
                self.keys(keys).await;
            }
            let back = self.world.client();
            let wait = motu_core::terminal::Wait {
                timeout: Some(4.0),
                ..Default::default()
            };
            let answer = back.expect_terminal_prompt(&self.id, wait).await.unwrap();
            let ours = answer.state.state_reason.contains("(mark)");
            if answer.state.status == Status::Ready && ours {
                assert_eq!(self.run("true").await.exit_code, Some(0));
                return;
            }
        }
        panic!("it stays:\n{}", self.text_on_screen().await);
    }
}

macro_rules! told {
    ($($name:ident: $situations:ident,)*) => {$(
        #[tokio::test]
        async fn $name() {
            let Some(desk) = Desk::with_the_loop().await else {
                return;
            };
            let wrong = desk.told_wrongly($situations).await;
            assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
        }
    )*};
}

told! {
    shells_behind_others_are_ready: SHELLS,
    questions_of_every_kind_are_questions: QUESTIONS,
    interpreters_secrets_and_screens_are_known: PROGRAMS,
    what_waits_for_nobody_is_running: BUSY,
}

#[tokio::test]
async fn a_debugger_that_interacts_is_python() {
    let Some(desk) = Desk::with_the_loop().await else {
        return;
    };
    desk.run("python3 -m pdb /root/loop.py").await;
    let python = desk.run("interact").await;
    let state = (python.state.status, python.state.prompt);
    assert_eq!(state, repl(Prompt::Python), "{python:#?}");
    let back = desk.keys(&["Ctrl-D"]).await;
    let state = (back.state.status, back.state.prompt);
    assert_eq!(state, repl(Prompt::Pdb), "{back:#?}");
}

#[tokio::test]
async fn exit_codes_are_facts_in_shells_within_shells() {
    let Some(desk) = Desk::new().await else {
        return;
    };
    let spawn = r#"python3 -c 'import pty; pty.spawn(["/bin/bash","--norc"])'"#;
    for start in [
        "bash --norc",
        "zsh -f",
        "fish --no-config",
        "sudo -i",
        "su - person",
        "sudo su -",
        "script -q /dev/null",
        spawn,
    ] {
        let inside = desk.run(start).await;
        assert_eq!(inside.end, End::WaitsForInput, "{start}: {inside:#?}");
        for code in [0, 7, 42] {
            let answer = desk.run(&format!("sh -c 'echo said; exit {code}'")).await;
            assert_eq!(
                (answer.end, answer.exit_code, answer.output.as_str()),
                (End::CommandEnded, Some(code), "said\n"),
                "{start}: {answer:#?}\n{}",
                desk.text_on_screen().await
            );
            assert!(answer.warnings.is_empty(), "{start}: {answer:#?}");
        }
        let moved = desk.run("cd /usr/share").await;
        assert_eq!(
            moved.cwd.as_deref(),
            Some("/usr/share"),
            "{start}: {moved:#?}"
        );
        let screen = desk.text_on_screen().await;
        assert!(!screen.contains("__motu"), "{start}: {screen}");
        let left = desk.run("exit 3").await;
        assert_eq!(left.end, End::CommandEnded, "{start}: {left:#?}");
        desk.is_back().await;
    }
    // A shell without command marks: the answer says so.
    desk.run("sh").await;
    let plain = desk.run("echo plain").await;
    assert_eq!((plain.output.as_str(), plain.exit_code), ("plain\n", None));
    assert!(
        plain.warnings.iter().any(|said| said.contains("exit code")),
        "{plain:#?}"
    );
    assert_eq!(desk.run("exit 4").await.exit_code, Some(4));
}

#[tokio::test]
async fn a_shell_in_the_place_of_ours_is_at_its_prompt() {
    let Some(mut desk) = Desk::new().await else {
        return;
    };
    for (number, (shell, command, marked)) in [
        ("bash", "exec bash --norc --noprofile", true),
        ("bash", "exec zsh -f", true),
        ("zsh", "exec zsh -f -i", true),
        ("fish", "exec bash --norc", true),
        ("bash", "exec sh", false),
    ]
    .into_iter()
    .enumerate()
    {
        desk.sit(&format!("exec-{number}"), &[shell]).await;
        let there = desk.run(command).await;
        let state = (there.end, there.state.status, there.state.prompt);
        let prompt = (End::WaitsForInput, Status::Ready, Prompt::Shell);
        assert_eq!(state, prompt, "{command}: {there:#?}");
        let answer = desk.run("sh -c 'echo said; exit 5'").await;
        assert_eq!(
            (answer.exit_code, answer.output.as_str()),
            (marked.then_some(5), "said\n"),
            "{command}: {answer:#?}"
        );
    }
}

#[tokio::test]
async fn the_first_answer_of_a_fish_is_its_prompt() {
    let Some(desk) = Desk::new().await else {
        return;
    };
    // Without files of its own it starts a Python beside itself, which makes them.
    for round in 0..4 {
        let there = desk.run("HOME=$(mktemp -d) fish").await;
        assert_eq!(
            (there.state.status, there.state.prompt),
            READY,
            "{round}: {there:#?}\n{}",
            desk.text_on_screen().await
        );
        assert_eq!(desk.run("exit 7").await.exit_code, Some(7), "{round}");
        desk.is_back().await;
    }
}

#[tokio::test]
async fn the_directory_of_a_shell_without_marks_is_what_the_kernel_says() {
    let Some(desk) = Desk::new().await else {
        return;
    };
    desk.run("cd /etc").await;
    desk.run("sh").await;
    desk.run("cd /usr/share; PWD=/made/up").await;
    let here = desk.world.client().get_terminal(&desk.id).await.unwrap();
    assert_eq!(here.cwd.as_deref(), Some("/usr/share"), "{here:#?}");
    desk.keys(&["Ctrl-D"]).await;
    desk.is_back().await;
    let back = desk.run("pwd").await;
    assert_eq!(back.cwd.as_deref(), Some("/etc"), "{back:#?}");
}

#[tokio::test]
async fn a_shell_that_a_multiplexer_draws_has_no_exit_codes_and_that_is_said() {
    let Some(desk) = Desk::new().await else {
        return;
    };
    desk.run("tmux -f /dev/null new-session").await;
    for command in ["echo inside", "false"] {
        let answer = desk.run(command).await;
        assert_eq!(answer.exit_code, None, "{answer:#?}");
        let said = |said: &String| said.contains("terminal multiplexer draws");
        assert!(answer.warnings.iter().any(said), "{answer:#?}");
    }
    desk.keys(&["Ctrl-D"]).await;
    desk.is_back().await;
    assert_eq!(desk.run("true").await.exit_code, Some(0));
}

#[tokio::test]
async fn a_shell_on_another_host_says_what_its_commands_return() {
    let Some(desk) = Desk::new().await else {
        return;
    };
    desk.done("mkdir -p /run/sshd ~/.ssh && ssh-keygen -A -q && ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519")
        .await;
    desk.done("install -d -o person -m 700 /home/person/.ssh && install -o person -m 600 ~/.ssh/id_ed25519.pub /home/person/.ssh/authorized_keys")
        .await;
    desk.done("/usr/sbin/sshd -p 2222 -o ListenAddress=127.0.0.1")
        .await;
    let ssh = "ssh -q -p 2222 -o StrictHostKeyChecking=no person@127.0.0.1";
    // Without a startup file zsh asks what to write there.
    desk.done("install -o person -m 600 /dev/null /home/person/.zshrc")
        .await;
    for shell in ["bash", "zsh", "fish"] {
        desk.done(&format!("usermod -s $(command -v {shell}) person"))
            .await;
        let there = desk.run(ssh).await;
        assert_eq!(there.state.status, Status::Ready, "{shell}: {there:#?}");
        for code in [5, 0] {
            let answer = desk.run(&format!("echo far; sh -c 'exit {code}'")).await;
            assert_eq!(
                (answer.end, answer.exit_code, answer.output.as_str()),
                (End::CommandEnded, Some(code), "far\n"),
                "{shell}: {answer:#?}\n{}",
                desk.text_on_screen().await
            );
        }
        let moved = desk.run("cd /tmp").await;
        assert_eq!(moved.exit_code, Some(0), "{shell}: {moved:#?}");
        assert_eq!(desk.run("exit 9").await.exit_code, Some(9), "{shell}");
        desk.is_back().await;
    }
    // If the exit code is unknown, none is reported.
    desk.done("usermod -s /bin/sh person").await;
    desk.run(ssh).await;
    for round in 0..2 {
        let plain = desk.run("echo plain").await;
        assert_eq!((plain.output.as_str(), plain.exit_code), ("plain\n", None));
        assert_eq!(plain.warnings.len(), 1, "{round}: {plain:#?}");
        assert!(plain.warnings[0].contains("exit code"), "{plain:#?}");
    }
    let screen = desk.text_on_screen().await;
    assert!(!screen.contains("__motu"), "{screen}");
    let left = desk.run("exit 4").await;
    assert_eq!(left.exit_code, Some(4), "{left:#?}");
    assert!(left.warnings.is_empty(), "{left:#?}");
    desk.is_back().await;
    let pager = desk.run(&format!("{ssh} -t less /etc/passwd")).await;
    assert_eq!(pager.state.status, Status::Pager, "{pager:#?}");
    desk.text("q").await;
    desk.is_back().await;
    desk.done("kill $(cat /run/sshd.pid)").await;
}
