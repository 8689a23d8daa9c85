//! Interpreters and debuggers.

use crate::programs::desk::{Desk, state};
use motu_core::terminal::{Confidence, End, Prompt, Status};

#[tokio::test]
async fn python_answers_line_by_line() {
    let Some(desk) = Desk::new().await else {
        return;
    };
    let started = desk.run("python3 -q").await;
    assert_eq!(
        state(&started),
        (Status::Repl, Prompt::Python),
        "{started:#?}"
    );
    assert_eq!(started.end, End::WaitsForInput);
    let sum = desk.run("20 + 22").await;
    assert_eq!(sum.output.trim(), "42", "{sum:#?}");
    assert_eq!(state(&sum), (Status::Repl, Prompt::Python));
    let open = desk.run("for n in range(2):").await;
    assert_eq!(state(&open), (Status::Repl, Prompt::Python), "{open:#?}");
    desk.run("    print('n', n)").await;
    let closed = desk.run("").await;
    assert!(closed.output.contains("n 0\nn 1"), "{closed:#?}");
    let asked = desk.run("input('Name? ')").await;
    assert_eq!(asked.end, End::WaitsForInput, "{asked:#?}");
    let named = desk.run("Ada").await;
    assert!(named.output.contains("'Ada'"), "{named:#?}");
    let slow = desk.run("import time; time.sleep(1); print('slept')").await;
    assert_eq!(slow.output.trim(), "slept", "{slow:#?}");
    let left = desk.run("exit(3)").await;
    assert_eq!(
        (left.end, left.exit_code),
        (End::CommandEnded, Some(3)),
        "{left:#?}"
    );
    desk.is_back().await;
}

#[tokio::test]
async fn a_debugger_stops_and_goes_on() {
    let Some(desk) = Desk::new().await else {
        return;
    };
    desk.done("printf 'a = 1\\nb = a + 41\\nprint(\"sum\", b)\\n' > sum.py")
        .await;
    let started = desk.run("python3 -m pdb sum.py").await;
    assert_eq!(state(&started), (Status::Repl, Prompt::Pdb), "{started:#?}");
    desk.run("next").await;
    desk.run("next").await;
    let value = desk.run("p b").await;
    assert_eq!(value.output.trim(), "42", "{value:#?}");
    assert_eq!(state(&value), (Status::Repl, Prompt::Pdb));
    let went_on = desk.run("continue").await;
    assert!(went_on.output.contains("sum 42"), "{went_on:#?}");
    desk.run("quit").await;
    desk.is_back().await;
}

#[tokio::test]
async fn node_answers_line_by_line() {
    let Some(desk) = Desk::new().await else {
        return;
    };
    let started = desk.run("node").await;
    assert_eq!(
        state(&started),
        (Status::Repl, Prompt::Node),
        "{started:#?}"
    );
    let doubled = desk.run("[1, 2].map(n => n * 2)").await;
    assert!(doubled.output.contains("[ 2, 4 ]"), "{doubled:#?}");
    assert_eq!(state(&doubled), (Status::Repl, Prompt::Node));
    desk.run(".exit").await;
    desk.is_back().await;
}

#[tokio::test]
async fn psql_knows_its_prompt_in_every_database() {
    let Some(desk) = Desk::new().await else {
        return;
    };
    desk.done("pg_ctlcluster 15 main start").await;
    desk.done("runuser -u postgres -- createdb mydb").await;
    let started = desk.run("runuser -u postgres -- psql mydb").await;
    assert_eq!(
        state(&started),
        (Status::Repl, Prompt::Psql),
        "{started:#?}"
    );
    assert!(desk.text_on_screen().await.contains("mydb=#"));
    let sum = desk.run("select 20 + 22 as answer;").await;
    assert!(sum.output.contains("42"), "{sum:#?}");
    assert_eq!(state(&sum), (Status::Repl, Prompt::Psql));
    let open = desk.run("select").await;
    assert_eq!(state(&open), (Status::Repl, Prompt::Psql), "{open:#?}");
    let closed = desk.run("1;").await;
    assert!(closed.output.contains("(1 row)"), "{closed:#?}");
    let left = desk.run("\\q").await;
    assert_eq!(left.exit_code, Some(0), "{left:#?}");
    desk.done("pg_ctlcluster 15 main stop").await;
}

#[tokio::test]
async fn sqlite_and_a_shell_in_a_shell() {
    let Some(desk) = Desk::new().await else {
        return;
    };
    let started = desk.run("sqlite3").await;
    assert_eq!(
        state(&started),
        (Status::Repl, Prompt::Sqlite),
        "{started:#?}"
    );
    let sum = desk.run("select 20 + 22;").await;
    assert_eq!(sum.output.trim(), "42", "{sum:#?}");
    desk.run(".quit").await;
    desk.is_back().await;
    for shell in ["sh", "zsh -f", "fish --no-config"] {
        let inner = desk.run(shell).await;
        assert_eq!(
            state(&inner),
            (Status::Ready, Prompt::Shell),
            "{shell}: {inner:#?}"
        );
        let said = desk.run("echo inner; false").await;
        assert!(said.output.contains("inner"), "{shell}: {said:#?}");
        desk.run("exit 0").await;
        desk.is_back().await;
    }
}

#[tokio::test]
async fn zsh_and_fish_say_what_they_do() {
    let Some(mut desk) = Desk::new().await else {
        return;
    };
    for shell in ["zsh", "fish"] {
        desk.sit(shell, &[shell]).await;
        let said = desk.run("cd /tmp; echo one; echo two").await;
        assert_eq!(
            (said.output.as_str(), said.exit_code, said.cwd.as_deref()),
            ("one\ntwo\n", Some(0), Some("/tmp")),
            "{shell}: {said:#?}"
        );
        assert_eq!(said.end, End::CommandEnded, "{shell}: {said:#?}");
        assert_eq!(said.state.confidence, Confidence::Certain, "{shell}");
        // A pause in the output is not its end, and no newline is added to it.
        let failed = desk.run("sleep 0.5; printf no; sh -c 'exit 7'").await;
        assert_eq!(
            (failed.output.as_str(), failed.exit_code),
            ("no", Some(7)),
            "{shell}: {failed:#?}"
        );
        let missing = desk.run("no-such-program").await;
        assert_eq!(missing.exit_code, Some(127), "{shell}: {missing:#?}");
        let nothing = desk.run("cd /var/log").await;
        assert_eq!(
            (nothing.output.as_str(), nothing.cwd.as_deref()),
            ("", Some("/var/log")),
            "{shell}: {nothing:#?}"
        );
        let many = desk.run("seq 1 200").await;
        let expected: String = (1..=200).map(|number| format!("{number}\n")).collect();
        assert_eq!(many.output, expected, "{shell}");
        assert_eq!(state(&many), (Status::Ready, Prompt::Shell), "{shell}");
        let left = desk.run("exit 4").await;
        assert_eq!(
            (left.end, left.exit_code),
            (End::SessionEnded, Some(4)),
            "{shell}: {left:#?}"
        );
    }
}
