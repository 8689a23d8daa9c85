//! Programs that take the whole screen.

use crate::programs::desk::{Desk, state};
use motu_core::terminal::{End, Prompt, ScreenFormat, Status};

#[tokio::test]
async fn vim_is_an_editor_in_every_mode() {
    let Some(desk) = Desk::new().await else {
        return;
    };
    let started = desk.run("vim -u NONE note.txt").await;
    assert_eq!(
        state(&started),
        (Status::Editor, Prompt::None),
        "{started:#?}"
    );
    assert!(desk.screen(ScreenFormat::Text).await.modes.alternate_screen);
    desk.text("ihello from vim").await;
    desk.until("the text is on the screen", |screen| {
        screen.screen.contains("hello from vim")
    })
    .await;
    desk.is(Status::Editor, Prompt::None).await;
    desk.keys(&["Esc"]).await;
    desk.is(Status::Editor, Prompt::None).await;
    desk.text(":wq\r").await;
    desk.is_back().await;
    let screen = desk.screen(ScreenFormat::Text).await;
    assert!(!screen.modes.alternate_screen);
    assert!(
        !screen.screen.contains("hello from vim"),
        "{}",
        screen.screen
    );
    assert_eq!(desk.done("cat note.txt").await.trim(), "hello from vim");
}

#[tokio::test]
async fn nano_saves_what_was_typed() {
    let Some(desk) = Desk::new().await else {
        return;
    };
    let started = desk.run("nano note.txt").await;
    assert_eq!(
        state(&started),
        (Status::Editor, Prompt::None),
        "{started:#?}"
    );
    desk.text("hello from nano").await;
    desk.keys(&["Ctrl-X"]).await;
    desk.until("it asks", |screen| {
        screen.screen.contains("Save modified buffer")
    })
    .await;
    desk.text("y").await;
    desk.keys(&["Enter"]).await;
    desk.is_back().await;
    assert_eq!(desk.done("cat note.txt").await.trim(), "hello from nano");
}

#[tokio::test]
async fn pagers_show_pages() {
    let Some(desk) = Desk::new().await else {
        return;
    };
    let started = desk.run("seq 1 500 | less").await;
    assert_eq!(
        state(&started),
        (Status::Pager, Prompt::None),
        "{started:#?}"
    );
    desk.keys(&["PageDown"]).await;
    desk.until("the next page", |screen| screen.screen.contains("\n40\n"))
        .await;
    desk.text("G").await;
    desk.until("the last page", |screen| screen.screen.contains("500"))
        .await;
    desk.is(Status::Pager, Prompt::None).await;
    desk.text("q").await;
    desk.is_back().await;
    let manual = desk.run("man ls").await;
    assert_eq!(state(&manual), (Status::Pager, Prompt::None), "{manual:#?}");
    assert!(
        desk.text_on_screen()
            .await
            .contains("list directory contents")
    );
    desk.text("q").await;
    desk.is_back().await;
    desk.done("git init -q repo && cd repo && git config user.email a@b.c && git config user.name n && for n in $(seq 60); do git commit -q --allow-empty -m \"change $n\"; done").await;
    let log = desk.run("git log").await;
    assert_eq!(state(&log), (Status::Pager, Prompt::None), "{log:#?}");
    desk.text("q").await;
    desk.is_back().await;
}

#[tokio::test]
async fn process_viewers_redraw_and_leave() {
    let Some(desk) = Desk::new().await else {
        return;
    };
    for (program, quit) in [("htop", "F10"), ("top", "q")] {
        let started = desk.run_for(program, 3.0).await;
        assert_ne!(started.end, End::CommandEnded, "{program}: {started:#?}");
        let screen = desk
            .until("it shows processes", |screen| screen.screen.contains("PID"))
            .await;
        assert_eq!(
            screen.state.status,
            Status::Editor,
            "{program}: {:?}",
            screen.state
        );
        desk.keys(&[quit]).await;
        desk.is_back().await;
    }
}

#[tokio::test]
async fn a_terminal_in_a_terminal() {
    let Some(desk) = Desk::new().await else {
        return;
    };
    desk.run("tmux -f /dev/null new-session -s inner").await;
    desk.until("tmux is there", |screen| screen.screen.contains("[inner]"))
        .await;
    desk.text("echo $((20 + 22)) inside\r").await;
    desk.until("the command ran", |screen| {
        screen.screen.contains("42 inside")
    })
    .await;
    desk.text("exit\r").await;
    desk.until("tmux has left", |screen| screen.screen.contains("[exited]"))
        .await;
    desk.is_back().await;
}

#[tokio::test]
async fn a_rebase_asks_an_editor() {
    let Some(desk) = Desk::new().await else {
        return;
    };
    desk.done(
        "git init -q repo && cd repo && git config user.email a@b.c && git config user.name n",
    )
    .await;
    desk.done(
        "for n in 1 2 3; do echo $n > file$n; git add .; git commit -q -m \"change $n\"; done",
    )
    .await;
    let asked = desk
        .run("GIT_EDITOR='vim -u NONE' git rebase -i HEAD~2")
        .await;
    assert_eq!(state(&asked), (Status::Editor, Prompt::None), "{asked:#?}");
    assert!(
        desk.text_on_screen().await.contains("pick"),
        "{}",
        desk.text_on_screen().await
    );
    desk.text(":2s/pick/fixup/\r").await;
    desk.text(":wq\r").await;
    desk.is_back().await;
    assert_eq!(desk.done("git rev-list --count HEAD").await.trim(), "2");
}

#[tokio::test]
async fn a_resize_reaches_the_program() {
    let Some(desk) = Desk::new().await else {
        return;
    };
    use motu_core::exec::TtySize;
    use motu_core::terminal::{ConfigureTerminal, Terminals};
    let change = ConfigureTerminal {
        size: Some(TtySize {
            cols: 132,
            rows: 50,
        }),
        ..ConfigureTerminal::default()
    };
    let changed = desk
        .world
        .client()
        .configure_terminal(&desk.id, change)
        .await
        .unwrap();
    assert_eq!((changed.cols, changed.rows), (132, 50));
    assert_eq!(desk.done("stty size").await.trim(), "50 132");
    desk.run("vim -u NONE -c 'set ruler' big.txt").await;
    let screen = desk.screen(ScreenFormat::Text).await;
    assert_eq!(
        screen
            .screen
            .lines()
            .filter(|line| line.starts_with('~'))
            .count(),
        48
    );
    desk.text(":q\r").await;
    desk.is_back().await;
}

#[tokio::test]
async fn the_mouse_reaches_those_who_asked_for_it() {
    use motu_core::ErrorKind;
    use motu_core::terminal::{SendToTerminal, Terminals};
    let Some(desk) = Desk::new().await else {
        return;
    };
    let click = SendToTerminal {
        keys: Some(vec!["Click:1,1".to_string()]),
        ..SendToTerminal::default()
    };
    let sent = desk.world.client().send_to_terminal(&desk.id, click).await;
    let refused = sent.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Conflict, "{refused}");
    assert!(
        refused.message.contains("has not asked for the mouse"),
        "{refused}"
    );

    desk.done("seq -f 'line number %g' 1 200 > lines.txt").await;
    desk.run("vim -N -u NONE -c 'set mouse=a' lines.txt").await;
    desk.until("the lines are there", |screen| {
        screen.modes.mouse && screen.screen.contains("line number 20")
    })
    .await;
    desk.keys(&["Click:7,4"]).await;
    desk.until("the cursor is where it was clicked", |screen| {
        (screen.cursor_x, screen.cursor_y) == (7, 4)
    })
    .await;
    desk.keys(&["Press:0,2", "Drag:3,2", "Release:3,2"]).await;
    desk.until("what was dragged over is selected", |screen| {
        screen.screen.contains("VISUAL")
    })
    .await;
    desk.text("d").await;
    desk.until("and deleted", |screen| {
        screen.screen.lines().nth(2) == Some(" number 3")
    })
    .await;
    desk.keys(&["ScrollDown:5,5"]).await;
    desk.until("the wheel has turned", |screen| {
        !screen.screen.starts_with("line number 1\n")
    })
    .await;
    desk.text(":q!\r").await;
    desk.is_back().await;

    desk.run("less --mouse lines.txt").await;
    desk.until("the first page", |screen| {
        screen.modes.mouse && screen.screen.starts_with("line number 1\n")
    })
    .await;
    desk.keys(&["ScrollDown:5,5"]).await;
    desk.until("a page further down", |screen| {
        screen.screen.starts_with("line number ") && !screen.screen.starts_with("line number 1\n")
    })
    .await;
    desk.keys(&["ScrollUp:5,5"]).await;
    desk.until("the first page again", |screen| {
        screen.screen.starts_with("line number 1\n")
    })
    .await;
    desk.text("q").await;
    desk.is_back().await;
}
