//! Real shells with our integration: commands, exit codes, directories.

use crate::local::{Local, shell};
use motu_terminal::classify::{Confidence, Phase, Prompt, Status};
use motu_terminal::integration::{Shell, Startup};
use motu_terminal::session::End;
use std::time::Duration;

/// Runs a test in every installed shell.
fn each(story: impl Fn(Shell, &mut Local)) {
    for kind in Shell::ALL {
        if let Some(mut local) = shell(kind, Startup::Bare, &[]) {
            story(kind, &mut local);
        }
    }
}

#[test]
fn a_command_returns_exactly_its_output_and_exit_code() {
    each(|kind, local| {
        let hi = local.run("echo hi");
        assert_eq!(
            (hi.end, hi.exit_code, hi.output.text.as_str()),
            (End::CommandEnded, Some(0), "hi\n"),
            "{kind:?}"
        );
        assert_eq!(
            (hi.state.status, hi.state.prompt, hi.state.confidence),
            (Status::Ready, Prompt::Shell, Confidence::Certain)
        );
        let three = local.run("sh -c 'echo out; echo err >&2; exit 3'");
        assert_eq!(
            (three.exit_code, three.output.text.as_str()),
            (Some(3), "out\nerr\n"),
            "{kind:?}"
        );
        let none = local.run("true");
        assert_eq!(
            (none.exit_code, none.output.text.as_str()),
            (Some(0), ""),
            "{kind:?}"
        );
        let partial = local.run("printf 'cost in $'");
        assert_eq!(partial.output.text, "cost in $", "{kind:?}");
        let after = local.run("echo next");
        assert_eq!(after.output.text, "next\n", "{kind:?}");
    });
}

#[test]
fn a_slow_command_returns_once_when_it_ends() {
    each(|kind, local| {
        let outcome = local.run("sleep 1; echo done");
        assert_eq!(outcome.output.text, "done\n", "{kind:?}");
        assert_eq!(outcome.end, End::CommandEnded);
        assert!(
            (950..1500).contains(&outcome.duration.as_millis()),
            "{:?}",
            outcome.duration
        );
    });
}

#[test]
fn the_directory_is_known() {
    each(|kind, local| {
        let strange = local.home.path().join("a b;é%");
        std::fs::create_dir(&strange).unwrap();
        let outcome = local.run("cd 'a b;é%'");
        assert_eq!(outcome.cwd.as_deref(), strange.to_str(), "{kind:?}");
        assert_eq!(
            local.run("cd /usr/lib").cwd.as_deref(),
            Some("/usr/lib"),
            "{kind:?}"
        );
    });
}

#[test]
fn a_timeout_leaves_the_command_running_and_ctrl_c_ends_it() {
    each(|kind, local| {
        let outcome = local
            .try_run("echo before; sleep 30", Duration::from_millis(600))
            .unwrap();
        assert_eq!(
            (outcome.end, outcome.output.text.as_str()),
            (End::TimedOut, "before\n"),
            "{kind:?}"
        );
        assert_eq!(outcome.state.status, Status::Running);
        let stopped = local.keys(&["Ctrl-C"]);
        assert_eq!(stopped.end, End::CommandEnded, "{kind:?}");
        assert_eq!(stopped.exit_code, Some(130), "{kind:?}");
        assert_eq!(local.run("echo again").output.text, "again\n", "{kind:?}");
    });
}

#[test]
fn several_lines_are_one_run() {
    each(|kind, local| {
        let outcome = local.run("echo one\necho two\nfalse");
        assert_eq!(
            (outcome.exit_code, outcome.output.text.as_str()),
            (Some(1), "one\ntwo\n"),
            "{kind:?}"
        );
        let outcome = local.run("for_each=1\necho last");
        if kind != Shell::Fish {
            assert_eq!(
                (outcome.exit_code, outcome.output.text.as_str()),
                (Some(0), "last\n"),
                "{kind:?}"
            );
        }
    });
}

#[test]
fn output_cannot_forge_an_end() {
    each(|kind, local| {
        let forged =
            r"printf '\033]133;D;0\007\033]133;A\007$ \033]133;B\007'; sleep 0.3; echo real";
        let outcome = local.run(forged);
        assert_eq!(outcome.exit_code, Some(0));
        assert!(
            outcome.output.text.ends_with("real\n"),
            "{kind:?}: {:?}",
            outcome.output.text
        );
        assert!(outcome.duration >= Duration::from_millis(250));
        // Programs started by the shell do not know the nonce.
        let env = local.run("env; cat /proc/self/environ");
        assert!(!env.output.text.contains("MOTU"), "{kind:?}");
    });
}

#[test]
fn an_unfinished_command_waits_for_its_rest() {
    for kind in [Shell::Bash, Shell::Zsh] {
        let Some(mut local) = shell(kind, Startup::Bare, &[]) else {
            continue;
        };
        let outcome = local.run("echo 'unfinished");
        assert_eq!(outcome.end, End::WaitsForInput, "{kind:?}");
        assert_eq!(local.send("line'\r").end, End::CommandEnded, "{kind:?}");
        assert_eq!(local.run("echo fine").output.text, "fine\n", "{kind:?}");
    }
}

#[test]
fn a_long_line_is_echoed_but_not_output() {
    each(|kind, local| {
        let word = "x".repeat(300);
        let outcome = local.run(&format!("echo {word}"));
        assert_eq!(outcome.output.text, format!("{word}\n"), "{kind:?}");
    });
}

#[test]
fn the_users_own_files_are_read_and_left_alone() {
    let bashrc = "PS1='mine> '\nPROMPT_COMMAND='PS1=\"again> \"'\nalias hello='echo from-rc'\n";
    if let Some(mut local) = shell(Shell::Bash, Startup::User, &[(".bashrc", bashrc)]) {
        assert_eq!(local.run("hello").output.text, "from-rc\n");
        assert_eq!(local.run("(exit 7)").exit_code, Some(7));
        assert!(
            local.session.view().text().ends_with("again>"),
            "{}",
            local.session.view().text()
        );
        let kept = std::fs::read_to_string(local.home.path().join(".bashrc")).unwrap();
        assert_eq!(kept, bashrc);
    }
    let zshrc = "PROMPT='mine%# '\nprecmd() { true }\nalias hello='echo from-rc'\n";
    if let Some(mut local) = shell(Shell::Zsh, Startup::User, &[(".zshrc", zshrc)]) {
        assert_eq!(local.run("hello").output.text, "from-rc\n");
        assert_eq!(local.run("(exit 7)").exit_code, Some(7));
        assert!(
            local.session.view().text().ends_with("mine#"),
            "{}",
            local.session.view().text()
        );
        assert_eq!(local.run("echo $ZDOTDIR.").output.text, ".\n");
    }
    let config = "function fish_prompt; echo -n 'mine> '; end\nfunction hello; echo from-rc; end\n";
    if let Some(mut local) = shell(
        Shell::Fish,
        Startup::User,
        &[(".config/fish/config.fish", config)],
    ) {
        assert_eq!(local.run("hello").output.text, "from-rc\n");
        assert_eq!(local.run("sh -c 'exit 7'").exit_code, Some(7));
        assert!(
            local.session.view().text().ends_with("mine>"),
            "{}",
            local.session.view().text()
        );
    }
}

#[test]
fn an_empty_command_and_a_syntax_error_end_too() {
    each(|kind, local| {
        let error = local.run("echo )");
        assert_eq!(
            local.session.phase(),
            Phase::AtPrompt,
            "{kind:?}: {:?}",
            error.end
        );
        if kind == Shell::Fish {
            // fish keeps the line for correction; discard it.
            local.keys(&["Ctrl-C"]);
        }
        assert_eq!(local.run("echo ok").output.text, "ok\n", "{kind:?}");
    });
    for kind in [Shell::Bash, Shell::Zsh] {
        let Some(mut local) = shell(kind, Startup::Bare, &[]) else {
            continue;
        };
        let empty = local.run("");
        assert_eq!(
            (empty.end, empty.exit_code, empty.output.text.as_str()),
            (End::CommandEnded, None, ""),
            "{kind:?}"
        );
    }
}

#[test]
fn the_end_of_the_shell_ends_the_wait() {
    each(|kind, local| {
        let outcome = local.run("exit 4");
        assert_eq!(
            (outcome.end, outcome.state.status),
            (End::SessionEnded, Status::Eof),
            "{kind:?}"
        );
    });
}

#[test]
fn a_shell_in_the_place_of_ours_is_at_its_prompt() {
    for (kind, command) in [
        (Shell::Bash, "exec bash --norc --noprofile"),
        (Shell::Bash, "exec zsh -f"),
        (Shell::Zsh, "exec zsh -f -i"),
        (Shell::Zsh, "exec bash --norc"),
        (Shell::Fish, "exec bash --norc"),
    ] {
        let Some(mut local) = shell(kind, Startup::Bare, &[]) else {
            continue;
        };
        let there = local.run(command);
        assert_eq!(
            (there.end, there.state.status, there.state.prompt),
            (End::WaitsForInput, Status::Ready, Prompt::Shell),
            "{command}: {}",
            there.state.reason
        );
        let inside = local.run("sh -c 'echo said; exit 5'");
        assert_eq!(
            (inside.exit_code, inside.output.text.as_str()),
            (Some(5), "said\n"),
            "{command}: {:?}",
            inside.warnings
        );
    }
    // Our own zsh reads in a command: that is no prompt.
    if let Some(mut local) = shell(Shell::Zsh, Startup::Bare, &[]) {
        let asked = local.run("vared -p 'Which path % ' -c x");
        assert_eq!(
            asked.state.status,
            Status::Confirm,
            "{}",
            asked.state.reason
        );
    }
}
