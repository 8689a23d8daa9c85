//! A busy machine: answers may be late, but never belong to another command.

use crate::programs::desk::Desk;
use motu_core::ErrorKind;
use motu_core::terminal::{End, Prompt, ScreenFormat, Status, TerminalAnswer, Terminals};

/// Busy loops for every core, within the machine's limits.
const BUSY: usize = 4;
const RUNS: u32 = 500;

impl Desk {
    async fn is_busy(&self) {
        for _ in 0..BUSY {
            self.done("while :; do :; done 2>/dev/null &").await;
        }
    }

    /// Runs a command; a previous one may still run, in which case this one is refused and retried.
    async fn run_in_turn(&self, command: &str, timeout: f64) -> TerminalAnswer {
        loop {
            match self.try_run(command, timeout).await {
                Err(error) if error.kind == ErrorKind::Conflict => self.prompt().await,
                answered => return answered.unwrap(),
            };
        }
    }

    async fn machine(&self) -> motu_core::SandboxId {
        let here = self.world.client().get_terminal(&self.id).await.unwrap();
        here.sandbox_id
    }
}

#[tokio::test]
async fn every_run_is_answered_by_its_own_end() {
    let Some(desk) = Desk::new().await else {
        return;
    };
    desk.is_busy().await;
    let mut cut_short = 0;
    for number in 0..RUNS {
        let code = (number % 97) as i32;
        let command = format!("echo number {number}; (exit {code})");
        // One in four has almost no time.
        let hasty = number % 4 == 3;
        let timeout = if hasty {
            f64::from(number % 50) / 1000.0
        } else {
            30.0
        };
        let answer = desk.run_in_turn(&command, timeout).await;
        if hasty && answer.timed_out {
            cut_short += 1;
            // The command has not ended, so the session is not ready; its end must not be taken for
            // the end of another.
            assert_eq!(
                answer.state.status,
                Status::Running,
                "{number}: {answer:#?}"
            );
            assert_eq!(answer.exit_code, None, "{number}: {answer:#?}");
            continue;
        }
        assert_eq!(
            (answer.end, answer.exit_code, answer.output.as_str()),
            (
                End::CommandEnded,
                Some(code),
                format!("number {number}\n").as_str()
            ),
            "{number}: {answer:#?}"
        );
    }
    assert!(cut_short > 0, "no wait was too short");
}

#[tokio::test]
async fn a_short_wait_is_never_answered_by_the_old_prompt() {
    let Some(desk) = Desk::new().await else {
        return;
    };
    for timeout in [0.0, 0.001, 0.005, 0.02, 0.05] {
        for _ in 0..4 {
            let answer = desk.run_in_turn("sleep 0.2", timeout).await;
            let seen = (answer.end, answer.state.status, answer.state.prompt);
            let running = (End::TimedOut, Status::Running, Prompt::None);
            assert_eq!(seen, running, "{timeout}: {answer:#?}");
            let screen = desk.screen(ScreenFormat::Text).await;
            assert_eq!(
                screen.state.status,
                Status::Running,
                "{timeout}: {screen:#?}"
            );
        }
        desk.is_back().await;
    }
}

#[tokio::test]
async fn a_screen_shows_what_was_written_before_it_was_asked_for() {
    let Some(desk) = Desk::new().await else {
        return;
    };
    let machine = desk.machine().await;
    desk.is_busy().await;
    // The script records each line after printing it: once in the foreground, once in the
    // background.
    for behind in ["", " &"] {
        let script = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); echo \"line $i\"; \
            echo $i >/tmp/printed.new; mv /tmp/printed.new /tmp/printed; done";
        desk.world.sh(&machine, "rm -f /tmp/printed").await;
        desk.run_for(&format!("sh -c '{script}'{behind}"), 0.5)
            .await;
        let mut stale = Vec::new();
        for _ in 0..80 {
            let before = desk
                .world
                .read(&machine, "/tmp/printed")
                .await
                .unwrap_or_default();
            let before = String::from_utf8(before).unwrap();
            let before: u64 = before.trim().parse().unwrap_or(0);
            let screen = desk.text_on_screen().await;
            let shown = screen
                .lines()
                .filter_map(|line| line.strip_prefix("line ")?.trim().parse::<u64>().ok());
            let shown = shown.max().unwrap_or(0);
            if shown < before {
                stale.push((before, shown));
            }
        }
        assert_eq!(stale, [], "written and shown");
        match behind {
            "" => desk.interrupt().await,
            _ => assert_eq!(desk.run("kill $!").await.exit_code, Some(0)),
        }
    }
}
