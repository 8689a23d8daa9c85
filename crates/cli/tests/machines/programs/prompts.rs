//! Prompts: passwords, confirmations, host keys, and output that only looks like a prompt.

use crate::programs::desk::{Desk, state};
use motu_core::terminal::{End, Prompt, ScreenFormat, Status, Terminals};
use std::path::Path;

/// The first file below a directory that contains these bytes.
pub fn holds(dir: &Path, secret: &str) -> Option<std::path::PathBuf> {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            if let Some(found) = holds(&path, secret) {
                return Some(found);
            }
        } else if kind.is_file() {
            let bytes = std::fs::read(&path).unwrap_or_default();
            if bytes
                .windows(secret.len())
                .any(|window| window == secret.as_bytes())
            {
                return Some(path);
            }
        }
    }
    None
}

#[tokio::test]
async fn sudo_asks_and_the_answer_is_nowhere() {
    let Some(desk) = Desk::of("person").await else {
        return;
    };
    let asked = desk.run("sudo id -u").await;
    assert_eq!(
        state(&asked),
        (Status::Password, Prompt::None),
        "{asked:#?}"
    );
    let wrong = desk.password("not-the-island-42").await;
    assert_eq!(
        state(&wrong),
        (Status::Password, Prompt::None),
        "{wrong:#?}"
    );
    let right = desk.password("island").await;
    assert!(right.output.contains('0'), "{right:#?}");
    desk.is_back().await;
    let screen = desk.text_on_screen().await;
    assert!(!screen.contains("island"), "{screen}");
    let terminals = desk.world.home().join("terminals");
    assert!(terminals.is_dir());
    assert_eq!(holds(&terminals, "not-the-island-42"), None);
    assert!(!desk.world.log().contains("not-the-island-42"));
    // At a shell prompt it would be echoed, and saved in the shell's history.
    let refused = desk
        .world
        .client()
        .send_terminal_password(
            &desk.id,
            motu_core::terminal::TerminalPassword {
                password: "not-the-island-42".to_string(),
                ..Default::default()
            },
        )
        .await
        .unwrap_err();
    assert_eq!(refused.kind, motu_core::ErrorKind::Denied, "{refused:?}");
}

#[tokio::test]
async fn ssh_asks_everything_ssh_asks() {
    let Some(desk) = Desk::new().await else {
        return;
    };
    desk.done(
        "mkdir -p /run/sshd && ssh-keygen -A -q && echo 'ONE MOMENT PLEASE' > /etc/issue.net",
    )
    .await;
    desk.done("printf 'sleep 1\\necho a slow greeting\\nsleep 1\\n' > /home/person/.bash_profile")
        .await;
    desk.done("/usr/sbin/sshd -p 2222 -o ListenAddress=127.0.0.1 -o Banner=/etc/issue.net")
        .await;
    let asked = desk.run("ssh -p 2222 person@127.0.0.1").await;
    assert_eq!(state(&asked), (Status::Confirm, Prompt::None), "{asked:#?}");
    let asked = desk.run("yes").await;
    assert_eq!(
        state(&asked),
        (Status::Password, Prompt::None),
        "{asked:#?}"
    );
    // The answer is what comes after the password, however slowly.
    let ready = desk.password("island").await;
    assert_eq!(state(&ready), (Status::Ready, Prompt::Shell), "{ready:#?}");
    assert!(ready.output.contains("a slow greeting"), "{ready:#?}");
    // What asks there has asked nobody before.
    for _ in 0..3 {
        let asked = desk.run("read -sp 'Secret: ' secret").await;
        assert_eq!(
            state(&asked),
            (Status::Password, Prompt::None),
            "{asked:#?}"
        );
        let taken = desk.password("open-sesame").await;
        assert_eq!(state(&taken), (Status::Ready, Prompt::Shell), "{taken:#?}");
    }
    assert_eq!(desk.run("echo ${#secret}").await.output, "11\n");
    let said = desk.run("whoami; hostname >/dev/null; echo $SSH_TTY").await;
    assert!(said.output.contains("person\n/dev/pts/"), "{said:#?}");
    let left = desk.run("exit 7").await;
    assert_eq!(
        (left.end, left.exit_code),
        (End::CommandEnded, Some(7)),
        "{left:#?}"
    );
    desk.is_back().await;
    desk.done("kill $(cat /run/sshd.pid)").await;
}

#[tokio::test]
async fn a_command_is_not_taken_for_a_password() {
    let Some(desk) = Desk::of("person").await else {
        return;
    };
    let secret = (Status::Password, Prompt::None);
    let asked = desk.run("passwd").await;
    assert_eq!(state(&asked), secret, "{asked:#?}");
    // passwd ignores Ctrl-C, and goes on waiting.
    let still = desk.keys(&["Ctrl-C"]).await;
    assert_eq!(state(&still), secret, "{still:#?}");
    let said = |said: &String| said.contains("ignores this key");
    assert!(still.warnings.iter().any(said), "{still:#?}");
    let refused = desk.try_run("echo hi there", 5.0).await.unwrap_err();
    assert_eq!(refused.kind, motu_core::ErrorKind::Conflict, "{refused:?}");
    for _ in 0..3 {
        let left = desk.keys(&["Enter"]).await;
        if state(&left) != secret {
            break;
        }
    }
    desk.is_back().await;
    assert_eq!(desk.run("echo hi there").await.output, "hi there\n");
    // One that obeys it is left at once.
    desk.run("sudo true").await;
    let left = desk.keys(&["Ctrl-C"]).await;
    assert!(left.warnings.is_empty(), "{left:#?}");
    desk.is_back().await;
}

#[tokio::test]
async fn apt_wants_to_be_told() {
    let Some(desk) = Desk::new().await else {
        return;
    };
    let asked = desk.run("apt-get remove htop").await;
    assert_eq!(state(&asked), (Status::Confirm, Prompt::None), "{asked:#?}");
    let refused = desk.run("n").await;
    assert!(refused.output.contains("Abort"), "{refused:#?}");
    assert_eq!(refused.exit_code, Some(1));
    let asked = desk.run("apt-get remove htop").await;
    assert_eq!(asked.end, End::WaitsForInput);
    let removed = desk.run("y").await;
    assert_eq!(
        (removed.end, removed.exit_code),
        (End::CommandEnded, Some(0)),
        "{removed:#?}"
    );
    assert_ne!(desk.run("command -v htop").await.exit_code, Some(0));
}

#[tokio::test]
async fn questions_are_questions() {
    let Some(desk) = Desk::new().await else {
        return;
    };
    for (script, status) in [
        ("read -p 'Overwrite? (y/N) ' x", Status::Confirm),
        ("read -p 'Proceed [Y/n] ' x", Status::Confirm),
        ("read -sp 'Enter PIN: ' x", Status::Password),
        ("read -sp 'Passphrase for key: ' x", Status::Password),
    ] {
        let asked = desk.run(script).await;
        assert_eq!(
            state(&asked),
            (status, Prompt::None),
            "{script}: {asked:#?}"
        );
        match status {
            Status::Password => desk.password("12345678").await,
            _ => desk.run("n").await,
        };
        desk.is_back().await;
    }
}

#[tokio::test]
async fn what_a_running_program_prints_is_no_prompt() {
    let Some(desk) = Desk::new().await else {
        return;
    };
    for printed in [
        "cost in $",
        "Loading... please wait",
        "error: retrying",
        ">>> ",
        "password: ",
        "root@vm:~# ",
    ] {
        let script = format!("printf '%s' '{printed}'; sleep 30");
        let answer = desk.run_for(&script, 0.8).await;
        assert_eq!(
            state(&answer),
            (Status::Running, Prompt::None),
            "{printed}: {answer:#?}"
        );
        assert!(answer.timed_out);
        desk.interrupt().await;
    }
}

#[tokio::test]
async fn prompts_of_every_shape_are_prompts() {
    let Some(desk) = Desk::new().await else {
        return;
    };
    for prompt in [
        "[root@vm dir]# ",
        "❯ ",
        "➜  dir git:(main) ✗ ",
        "~/x [main] $ ",
        "100% > ",
    ] {
        desk.done(&format!("PS1='{prompt}'")).await;
        let screen = desk.screen(ScreenFormat::Text).await;
        assert_eq!(
            (screen.state.status, screen.state.prompt),
            (Status::Ready, Prompt::Shell),
            "{prompt}: {:?}",
            screen.state
        );
    }
    // Later output of a background job does not make the shell busy.
    desk.done("(sleep 0.3; echo from behind) &").await;
    desk.expect("from behind").await;
    desk.is(Status::Ready, Prompt::Shell).await;
}
