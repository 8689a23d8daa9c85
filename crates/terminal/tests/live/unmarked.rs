//! Shells that give no marks: their exit codes are not known, and the answers say so.

use crate::local::{Local, installed, shell, skip};
use motu_terminal::classify::Status;
use motu_terminal::integration::{Shell, Startup};
use motu_terminal::session::{Config, End, Outcome};

#[track_caller]
fn is_said(outcome: &Outcome, warning: &str) {
    let said = format!("{outcome:#?}");
    assert_eq!(outcome.exit_code, None, "{said}");
    assert_eq!(outcome.warnings.len(), 1, "{said}");
    assert!(outcome.warnings[0].contains(warning), "{said}");
}

#[test]
fn a_session_of_a_plain_shell_says_it_with_every_answer() {
    let home = tempfile::tempdir().unwrap();
    let mut local = Local::spawn(&["sh".to_owned()], &[], home, Config::default());
    for command in ["(exit 3)", "true", "echo hi"] {
        let outcome = local.run(command);
        assert_eq!(outcome.end, End::WaitsForInput, "{outcome:#?}");
        is_said(&outcome, "this shell is not bash");
    }
    // A program that asks has not ended: it has no exit code yet.
    let asking = local.run("printf 'Overwrite? (y/N) '; read answer");
    assert_eq!(asking.state.status, Status::Confirm, "{asking:#?}");
    assert!(asking.warnings.is_empty(), "{asking:#?}");
}

#[test]
fn a_shell_inside_says_it_if_it_takes_no_integration() {
    let mut local = shell(Shell::Bash, Startup::Bare, &[]).unwrap();
    assert!(local.run("sh").warnings.is_empty());
    is_said(&local.run("(exit 3)"), "this shell is not bash");
    let left = local.run("exit 4");
    assert_eq!((left.exit_code, left.warnings), (Some(4), vec![]));
    // A bash without start files takes it.
    assert!(local.run("bash --norc").warnings.is_empty());
    let inside = local.run("(exit 3)");
    assert_eq!((inside.exit_code, inside.warnings), (Some(3), vec![]));
}

/// A program by the name of `ssh` that carries another terminal, as ssh does: nothing here tells who
/// reads there.
#[test]
fn a_shell_far_away_says_it_whatever_its_prompt() {
    if !installed("python3") {
        return skip("terminal: python3 is not installed");
    }
    let mut local = shell(Shell::Bash, Startup::Bare, &[]).unwrap();
    local.run(
        "printf '#!%s\\nimport pty; pty.spawn(\"sh\")\\n' \"$(readlink -f \"$(command -v python3)\")\" >ssh",
    );
    local.run("chmod +x ssh");
    for (prompt, warning) in [
        ("$ ", "this shell is not bash"),
        ("host:~$ ", "this shell is not bash"),
        ("what now: ", "neither the command's end nor its exit code"),
    ] {
        let start = format!("PS1='{prompt}' ./ssh");
        local
            .try_run(&start, std::time::Duration::from_secs(4))
            .unwrap();
        is_said(&local.run("(exit 3)"), warning);
        let left = local.run("exit 4");
        assert_eq!(left.end, End::CommandEnded, "{prompt}: {left:#?}");
        assert!(left.warnings.is_empty(), "{prompt}: {left:#?}");
    }
}

/// What a far program is told is all that it could pass on.
#[test]
fn a_program_far_away_that_prints_a_prompt_is_told_no_key() {
    if !installed("python3") {
        return skip("terminal: python3 is not installed");
    }
    let mut local = shell(Shell::Bash, Startup::Bare, &[]).unwrap();
    let program = r#"#!%s
heard = open("heard", "w")
while True:
    print("person@far:~$ ", end="", flush=True)
    line = input()
    print(line, file=heard, flush=True)
    if line == "exit":
        break
    print("what?")
"#;
    let program = program.replace('\n', "\\n");
    local.run(&format!(
        "printf '{program}' \"$(readlink -f \"$(command -v python3)\")\" >ssh; chmod +x ssh"
    ));
    local
        .try_run("./ssh", std::time::Duration::from_secs(4))
        .unwrap();
    is_said(&local.run("do something"), "this shell is not bash");
    local.run("exit");
    let heard = local.run("cat heard").output.text;
    assert!(heard.contains("do something"), "{heard}");
    for word in ["k=", "__motu_k", "eval"] {
        assert!(!heard.contains(word), "{word}: {heard}");
    }
}
