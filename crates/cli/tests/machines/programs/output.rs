//! Output: progress bars, spinners, wide characters, colours.

use crate::programs::desk::Desk;
use motu_core::terminal::{End, ScreenFormat, Status};

#[tokio::test]
async fn a_command_is_answered_once_when_it_ends() {
    let Some(desk) = Desk::new().await else {
        return;
    };
    let begun = std::time::Instant::now();
    let answer = desk.run("sleep 2; echo done; false").await;
    assert_eq!(
        (answer.output.as_str(), answer.exit_code),
        ("done\n", Some(1)),
        "{answer:#?}"
    );
    assert_eq!(answer.end, End::CommandEnded);
    // The shell and the host round a millisecond differently.
    assert!(begun.elapsed().as_millis() >= 1990);
    assert!((1990..4000).contains(&answer.duration_ms), "{answer:#?}");
    let quiet = desk.run("true").await;
    assert_eq!((quiet.output.as_str(), quiet.exit_code), ("", Some(0)));
}

#[tokio::test]
async fn a_progress_bar_has_become_its_last_state() {
    let Some(desk) = Desk::new().await else {
        return;
    };
    let bar = "for n in $(seq 0 20 100); do printf '\\r[%-10s] %d%%' $(head -c $((n/10)) /dev/zero | tr '\\0' '#') $n; done; echo";
    let answer = desk.run(bar).await;
    assert_eq!(answer.output.trim_end(), "[##########] 100%", "{answer:#?}");
    let spinner = "while :; do for c in '|' / - '\\'; do printf '\\rworking %s' \"$c\"; sleep 0.05; done; done";
    let answer = desk.run_for(spinner, 1.0).await;
    assert_eq!(
        (answer.end, answer.state.status),
        (End::TimedOut, Status::Running),
        "{answer:#?}"
    );
    assert!(answer.output.starts_with("working "), "{answer:#?}");
    assert_eq!(answer.output.lines().count(), 1, "{answer:#?}");
    desk.interrupt().await;
}

#[tokio::test]
async fn wide_characters_take_two_columns() {
    let Some(desk) = Desk::new().await else {
        return;
    };
    let answer = desk.run("printf '日本語|é|👩‍🚀|🏝️|\\n'").await;
    assert_eq!(answer.output.trim_end(), "日本語|é|👩‍🚀|🏝️|", "{answer:#?}");
    desk.run_for("printf '\\033[2J\\033[H日本'; sleep 30", 0.5)
        .await;
    let screen = desk
        .until("it is drawn", |screen| screen.screen.starts_with("日本"))
        .await;
    assert_eq!((screen.cursor_x, screen.cursor_y), (4, 0), "{screen:#?}");
    desk.interrupt().await;
}

#[tokio::test]
async fn colours_are_there_for_those_who_ask() {
    let Some(desk) = Desk::new().await else {
        return;
    };
    let colour = "printf '\\033[38;2;255;100;0mamber\\033[0m \\033[1;4mloud\\033[0m\\n'";
    assert_eq!(desk.run(colour).await.output.trim_end(), "amber loud");
    let ansi = desk.screen(ScreenFormat::Ansi).await.screen;
    assert!(ansi.contains("38;2;255;100;0"), "{ansi:?}");
    let html = desk.screen(ScreenFormat::Html).await.screen;
    assert!(html.to_lowercase().contains("#ff6400"), "{html}");
    let svg = desk.screen(ScreenFormat::Svg).await.screen;
    assert!(svg.starts_with("<svg") && svg.contains("amber"), "{svg}");
    let png = desk.screen(ScreenFormat::Png).await.screen;
    assert!(png.starts_with("iVBORw0KGgo"), "not a PNG in base64");
}

#[tokio::test]
async fn a_picture_with_letters_that_no_font_has_says_what_helps() {
    let Some(desk) = Desk::new().await else {
        return;
    };
    desk.run("printf 'plain\\n'").await;
    assert_eq!(desk.screen(ScreenFormat::Png).await.hint, None);
    // For private use: no font of a distribution has it.
    desk.run("printf '\\U0010fff0\\n'").await;
    let hint = desk.screen(ScreenFormat::Png).await.hint;
    let hint = hint.unwrap_or_default();
    assert!(
        hint.starts_with("no font of the host has U+10FFF0: install fonts there"),
        "{hint:?}"
    );
    let text = desk.screen(ScreenFormat::Text).await;
    assert_eq!(text.hint, None, "text needs no font");
}

#[tokio::test]
async fn a_flood_is_read_to_its_end_and_cut_to_its_budget() {
    let Some(desk) = Desk::new().await else {
        return;
    };
    let answer = desk.run("seq 1 200000").await;
    assert_eq!(answer.exit_code, Some(0));
    assert!(
        answer.output_truncated && answer.dropped_bytes > 1_000_000,
        "{answer:#?}"
    );
    assert!(answer.output.starts_with("1\n2\n"), "{answer:#?}");
    assert!(answer.output.trim_end().ends_with("200000"), "{answer:#?}");
    assert!(answer.rest_from.is_some());
}
