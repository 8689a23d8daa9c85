//! Situations and their classification. The first group is what PiloTY gets wrong.

use super::*;
use crate::screen::{Screen, Size};

fn view(bytes: &str) -> View {
    let mut screen = Screen::new(Size::default());
    screen.write(bytes.as_bytes());
    screen.view()
}

/// A process in front: its name, and whether it reads the terminal.
fn front(name: &str, reads: bool) -> KernelFacts {
    KernelFacts {
        foreground: vec![Process {
            pid: 7,
            name: name.into(),
            argv: vec![name.into()],
            reads_tty: Some(reads),
        }],
        shell_in_front: false,
        echo: true,
        canonical: true,
        ..KernelFacts::default()
    }
}

/// The same in a line editor: raw mode, no echo.
fn editing(name: &str) -> KernelFacts {
    KernelFacts {
        echo: false,
        canonical: false,
        ..front(name, true)
    }
}

fn judged(phase: Phase, facts: Option<&KernelFacts>, bytes: &str) -> State {
    classify(&Evidence {
        phase,
        facts,
        view: &view(bytes),
        prompt_regex: None,
        quiet: true,
        foreign_prompt: false,
        unanswered: false,
        ended: None,
    })
}

fn by_text_only(bytes: &str) -> (Status, Prompt) {
    let state = judged(Phase::Unmarked, None, bytes);
    (state.status, state.prompt)
}

#[track_caller]
fn is(state: State, status: Status, prompt: Prompt) {
    assert_eq!(
        (state.status, state.prompt),
        (status, prompt),
        "{}",
        state.reason
    );
}

const PROMPTS: [&str; 9] = [
    "[root@vm dir]# ",
    "❯ ",
    "➜  dir git:(main) ✗ ",
    "~/x [main] $ ",
    "100% > ",
    "bash-5.2# ",
    "user@host:~/src$ ",
    "user@host ~> ",
    "host% ",
];

#[test]
fn idle_prompts_of_any_look_are_ready() {
    for prompt in PROMPTS {
        let marked = judged(Phase::AtPrompt, None, prompt);
        assert_eq!(marked.confidence, Confidence::Certain);
        is(marked, Status::Ready, Prompt::Shell);
        is(
            judged(Phase::Unmarked, Some(&editing("bash")), prompt),
            Status::Ready,
            Prompt::Shell,
        );
        assert_eq!(
            by_text_only(prompt),
            (Status::Ready, Prompt::Shell),
            "{prompt}"
        );
    }
}

#[test]
fn a_running_command_may_print_what_it_likes() {
    for text in [
        "cost in $",
        "cost in $ ",
        "Loading... please wait",
        "error: retrying",
        "user@host:~$ ",
        ">>> ",
        "Password: ",
    ] {
        is(
            judged(Phase::InCommand, Some(&front("make", false)), text),
            Status::Running,
            Prompt::None,
        );
    }
    // Without the kernel's view the marks still tell that a command runs.
    for text in [
        "cost in $",
        "cost in $ ",
        "Loading... please wait",
        "error: retrying",
        "user@host:~$ ",
    ] {
        is(
            judged(Phase::InCommand, None, text),
            Status::Running,
            Prompt::None,
        );
    }
    // Text alone is not misled by words in the middle.
    for text in [
        "cost in $",
        "Loading... please wait",
        "error: retrying",
        "50% ",
        "see >>> here",
    ] {
        assert_eq!(
            by_text_only(text),
            (Status::Running, Prompt::None),
            "{text}"
        );
    }
}

#[test]
fn background_output_does_not_hide_an_idle_shell() {
    let screen = "bash-5.2# bgout\r\n";
    is(
        judged(Phase::AtPrompt, None, screen),
        Status::Ready,
        Prompt::Shell,
    );
    is(
        judged(Phase::Unmarked, Some(&editing("bash")), screen),
        Status::Ready,
        Prompt::Shell,
    );
}

#[test]
fn vim_in_normal_mode_is_an_editor() {
    let screen = "\x1b[?1049h\x1b[2J\x1b[1;1Hhello\r\n~\r\n~\x1b[24;1H\"file\" 1L, 6B\x1b[1;1H";
    is(
        judged(Phase::InCommand, Some(&editing("vim.basic")), screen),
        Status::Editor,
        Prompt::None,
    );
    is(
        judged(Phase::InCommand, Some(&editing("vim")), screen),
        Status::Editor,
        Prompt::None,
    );
    assert_eq!(by_text_only(screen), (Status::Editor, Prompt::None));
}

#[test]
fn psql_of_any_database_is_psql() {
    for prompt in ["mydb=# ", "mydb=> ", "mydb-# ", "postgres=# ", "mydb'# "] {
        is(
            judged(Phase::InCommand, Some(&editing("psql")), prompt),
            Status::Repl,
            Prompt::Psql,
        );
        assert_eq!(
            by_text_only(prompt),
            (Status::Repl, Prompt::Psql),
            "{prompt}"
        );
    }
}

#[test]
fn questions_are_questions() {
    for text in [
        "Overwrite? (y/N) ",
        "Do you want to continue? [Y/n] ",
        "Proceed? [y/N]: ",
        "Are you sure you want to continue connecting (yes/no/[fingerprint])? ",
    ] {
        is(
            judged(Phase::InCommand, Some(&front("installer", true)), text),
            Status::Confirm,
            Prompt::None,
        );
        assert_eq!(
            by_text_only(text),
            (Status::Confirm, Prompt::None),
            "{text}"
        );
    }
}

#[test]
fn secrets_are_known_by_the_echo_or_by_the_words() {
    let silent = KernelFacts {
        echo: false,
        ..front("ssh-add", true)
    };
    for text in [
        "Enter PIN: ",
        "Password: ",
        "Enter passphrase for /root/.ssh/id: ",
        "[sudo] password for user: ",
        "anything ",
    ] {
        is(
            judged(Phase::InCommand, Some(&silent), text),
            Status::Password,
            Prompt::None,
        );
    }
    for text in [
        "Enter PIN: ",
        "Password: ",
        "Enter passphrase for key '/k': ",
        "[sudo] password for user: ",
        "user@host's password: ",
    ] {
        assert_eq!(
            by_text_only(text),
            (Status::Password, Prompt::None),
            "{text}"
        );
    }
}

#[test]
fn a_shell_that_reads_a_secret_itself_is_no_prompt() {
    let facts = KernelFacts {
        echo: false,
        canonical: true,
        shell_in_front: true,
        ..front("bash", true)
    };
    is(
        judged(Phase::InCommand, Some(&facts), "Password: "),
        Status::Password,
        Prompt::None,
    );
}

#[test]
fn top_has_the_screen() {
    let facts = editing("top");
    is(
        judged(
            Phase::InCommand,
            Some(&facts),
            "top - 05:00:00 up\r\nTasks: 1\r\n",
        ),
        Status::Editor,
        Prompt::None,
    );
}

#[test]
fn interpreters_by_name_and_prompt() {
    for (name, screen, prompt) in [
        ("python3.11", ">>> ", Prompt::Python),
        ("python3", "... ", Prompt::Python),
        (
            "python3",
            "> /x/a.py(1)<module>()\r\n-> a = 1\r\n(Pdb) ",
            Prompt::Pdb,
        ),
        ("python3", "In [1]: ", Prompt::Ipython),
        ("node", "> ", Prompt::Node),
        ("sqlite3", "sqlite> ", Prompt::Sqlite),
        ("gdb", "(gdb) ", Prompt::Gdb),
        ("irb", "irb(main):001:0> ", Prompt::Ruby),
        ("redis-cli", "127.0.0.1:6379> ", Prompt::Redis),
        ("mariadb", "MariaDB [test]> ", Prompt::Mysql),
    ] {
        is(
            judged(Phase::InCommand, Some(&editing(name)), screen),
            Status::Repl,
            prompt,
        );
    }
    for (screen, prompt) in [
        (">>> ", Prompt::Python),
        ("(Pdb) ", Prompt::Pdb),
        ("sqlite> ", Prompt::Sqlite),
        ("(gdb) ", Prompt::Gdb),
        ("mysql> ", Prompt::Mysql),
    ] {
        assert_eq!(by_text_only(screen), (Status::Repl, prompt), "{screen}");
    }
}

#[test]
fn an_interpreter_that_computes_or_runs_a_script_is_not_at_its_prompt() {
    is(
        judged(
            Phase::InCommand,
            Some(&front("python3", false)),
            ">>> while True: pass\r\n",
        ),
        Status::Running,
        Prompt::None,
    );
    // `input()` of a script asks, whatever its words.
    let mut facts = front("python3", true);
    facts.foreground[0].argv.push("ask.py".into());
    for question in ["Your name: ", "Choose [1-3]: ", "Name? "] {
        is(
            judged(Phase::InCommand, Some(&facts), question),
            Status::Confirm,
            Prompt::None,
        );
    }
    // A script without a question only reads.
    let state = judged(Phase::InCommand, Some(&facts), "done\r\n");
    assert_eq!(state.status, Status::Unknown);
    assert!(
        state.reason.contains("waits for a line"),
        "{}",
        state.reason
    );
}

#[test]
fn pagers() {
    is(
        judged(
            Phase::InCommand,
            Some(&editing("less")),
            "\x1b[?1049htext\r\n:",
        ),
        Status::Pager,
        Prompt::None,
    );
    assert_eq!(
        by_text_only("some text\r\n(END)"),
        (Status::Pager, Prompt::None)
    );
    assert_eq!(
        by_text_only("some text\r\n:"),
        (Status::Pager, Prompt::None)
    );
    // `git log` and `man` have a pager in their group.
    let mut facts = editing("less");
    facts.foreground.insert(
        0,
        Process {
            pid: 6,
            name: "man".into(),
            argv: vec![],
            reads_tty: Some(false),
        },
    );
    is(
        judged(
            Phase::InCommand,
            Some(&facts),
            "\x1b[?1049hLS(1)\r\n Manual page ls(1) line 1 (press h for help or q to quit)",
        ),
        Status::Pager,
        Prompt::None,
    );
}

#[test]
fn ssh_is_what_it_shows() {
    let ssh = editing("ssh");
    is(
        judged(Phase::InCommand, Some(&ssh), "Welcome\r\nuser@far:~$ "),
        Status::Ready,
        Prompt::Shell,
    );
    is(
        judged(Phase::InCommand, Some(&ssh), "Welcome to a slow banner\r\n"),
        Status::Running,
        Prompt::None,
    );
    is(
        judged(
            Phase::InCommand,
            Some(&ssh),
            "Are you sure you want to continue connecting (yes/no)? ",
        ),
        Status::Confirm,
        Prompt::None,
    );
    let asking = KernelFacts {
        canonical: true,
        ..editing("ssh")
    };
    is(
        judged(Phase::InCommand, Some(&asking), "user@far's password: "),
        Status::Password,
        Prompt::None,
    );
}

#[test]
fn the_callers_own_regex_counts() {
    let regex = Regex::new(r"^READY>>$").unwrap();
    let state = classify(&Evidence {
        phase: Phase::Unmarked,
        facts: None,
        view: &view("READY>>"),
        prompt_regex: Some(&regex),
        quiet: true,
        foreign_prompt: false,
        unanswered: false,
        ended: None,
    });
    is(state, Status::Ready, Prompt::Shell);
}

#[test]
fn ends_are_certain() {
    let screen = view("$ ");
    let mut evidence = Evidence {
        phase: Phase::AtPrompt,
        facts: None,
        view: &screen,
        prompt_regex: None,
        quiet: true,
        foreign_prompt: false,
        unanswered: false,
        ended: Some(Ended::Eof),
    };
    assert_eq!(classify(&evidence).status, Status::Eof);
    evidence.ended = Some(Ended::Terminated);
    assert_eq!(classify(&evidence).status, Status::Terminated);
}

#[test]
fn output_that_still_comes_is_running() {
    let screen = view("user@host:~$ ");
    let evidence = Evidence {
        phase: Phase::Unmarked,
        facts: None,
        view: &screen,
        prompt_regex: None,
        quiet: false,
        foreign_prompt: false,
        unanswered: false,
        ended: None,
    };
    assert_eq!(classify(&evidence).status, Status::Running);
}

#[test]
fn a_reader_with_something_to_read_is_running() {
    let facts = KernelFacts {
        unread_input: Some(4),
        ..editing("vim")
    };
    is(
        judged(Phase::InCommand, Some(&facts), ""),
        Status::Running,
        Prompt::None,
    );
}
