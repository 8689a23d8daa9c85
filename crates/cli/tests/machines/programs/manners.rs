//! Privacy, search and names of sessions.

use crate::programs::desk::Desk;
use crate::programs::prompts::holds;
use motu_core::TerminalId;
use motu_core::terminal::{End, OpenTerminal, Prompt, Status, Terminals};

#[tokio::test]
async fn a_traced_shell_shows_no_hook_and_no_key() {
    let Some(mut desk) = Desk::new().await else {
        return;
    };
    for (name, shell) in [("desk", None), ("zsh", Some("zsh"))] {
        if let Some(shell) = shell {
            desk.sit(name, &[shell]).await;
        }
        desk.run("set -x").await;
        for _ in 0..3 {
            let answer = desk.run("echo traced; (exit 3)").await;
            assert_eq!(answer.exit_code, Some(3), "{name}: {answer:#?}");
            assert!(
                answer.output.contains("echo traced\n"),
                "{name}: {answer:#?}"
            );
        }
        let screen = desk.text_on_screen().await;
        let hook = screen
            .lines()
            .find(|line| line.contains("__motu") || line.contains("printf"));
        assert_eq!(hook, None, "{name}: {screen}");
        desk.run("set +x").await;
    }
    let terminals = desk.world.home().join("terminals");
    assert_eq!(holds(&terminals, "__motu"), None);
    assert_eq!(holds(&terminals, ";k="), None);
}

#[tokio::test]
async fn a_secret_stays_one_however_it_is_sent_and_printed_back() {
    let Some(desk) = Desk::new().await else {
        return;
    };
    let slowly = "read -sp 'Secret: ' P; echo; for ((i = 0; i < ${#P}; i++)); do \
        printf %s \"${P:$i:1}\"; sleep 0.15; done; echo .";
    for (secret, way) in [
        ("blue-whale-1", "run"),
        ("grey-whale-2", "send"),
        ("pink-whale-3", "parts"),
    ] {
        let asked = desk.run(slowly).await;
        assert_eq!(asked.state.status, Status::Password, "{asked:#?}");
        let answer = match way {
            "run" => desk.run_anyway(secret).await,
            "send" => desk.text(&format!("{secret}\r")).await,
            _ => {
                desk.text(&secret[..5]).await;
                desk.text(&format!("{}\r", &secret[5..])).await
            }
        };
        desk.is_back().await;
        let screen = desk.text_on_screen().await;
        for text in [&answer.output, &screen] {
            assert!(!text.contains(&secret[4..]), "{way}: {text}");
        }
        assert!(screen.contains("[redacted]"), "{way}: {screen}");
        assert_eq!(
            holds(&desk.world.home().join("terminals"), &secret[3..]),
            None,
            "{way}"
        );
    }
}

#[tokio::test]
async fn what_is_on_the_screen_is_expected_but_for_the_echo() {
    let Some(desk) = Desk::new().await else {
        return;
    };
    desk.done("printf 'port %s\\n' 8080").await;
    desk.done("true").await;
    for _ in 0..2 {
        let answer = desk.expect(r"^port (\d+)$").await;
        assert_eq!(answer.end, End::Matched, "{answer:#?}");
    }
    // Typed text that was not printed is not found.
    let typed = motu_core::terminal::ExpectInTerminal {
        patterns: vec!["printf".to_string()],
        wait: motu_core::terminal::Wait {
            timeout: Some(0.3),
            ..Default::default()
        },
        ..Default::default()
    };
    let client = desk.world.client();
    let answer = client
        .expect_in_terminal(&desk.id, typed.clone())
        .await
        .unwrap();
    assert_eq!(answer.end, End::TimedOut, "{answer:#?}");
    // Cleared text is not found either.
    desk.done("clear").await;
    let gone = motu_core::terminal::ExpectInTerminal {
        patterns: vec!["port".to_string()],
        ..typed
    };
    let answer = client.expect_in_terminal(&desk.id, gone).await.unwrap();
    assert_eq!(answer.end, End::TimedOut, "{answer:#?}");
    // For a full-screen program the visible screen is searched.
    desk.run("vim -u NONE -c 'set ruler' /etc/hostname").await;
    desk.expect(r"1,1 +All").await;
}

#[tokio::test]
async fn a_session_is_open_when_it_is_ready_and_its_name_is_free_when_it_is_over() {
    let Some(desk) = Desk::new().await else {
        return;
    };
    let client = desk.world.client();
    let place = client.get_terminal(&desk.id).await.unwrap().sandbox_id;
    let id = TerminalId::parse("again").unwrap();
    let open = |command: &[&str]| OpenTerminal {
        session_id: id.to_string(),
        sandbox_id: Some(place.clone()),
        command: command.iter().map(|word| (*word).to_string()).collect(),
        ..OpenTerminal::default()
    };
    for (command, told) in [
        (&["bash"][..], (Status::Ready, Prompt::Shell)),
        (&["zsh"], (Status::Ready, Prompt::Shell)),
        (&["fish"], (Status::Ready, Prompt::Shell)),
        (&["python3", "-q"], (Status::Repl, Prompt::Python)),
        (&["sh"], (Status::Ready, Prompt::Shell)),
    ] {
        let opened = client.open_terminal(open(command)).await.unwrap();
        let state = &opened.terminal.state;
        assert!(opened.created, "{command:?}");
        assert_eq!(
            (state.status, state.prompt),
            told,
            "{command:?}: {opened:#?}"
        );
        let front = opened.terminal.foreground.clone().unwrap_or_default();
        assert_eq!(front, command[0], "{opened:#?}");
        let ended = client.terminate_terminal(&id).await.unwrap();
        assert_eq!(ended.state.status, Status::Terminated);
        // Until it is reopened, the name refers to the terminated session.
        let looked = client.get_terminal(&id).await.unwrap();
        assert_eq!(looked.state.status, Status::Terminated);
    }
}
