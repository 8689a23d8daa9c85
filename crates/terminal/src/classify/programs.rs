//! Knowledge about programs by their names.

use super::{Process, Prompt};

/// The kind of a program, for a user at the keyboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nature {
    Shell,
    Repl(Prompt),
    Editor,
    Pager,
    FullScreen,
    /// Carries another terminal: its output comes from elsewhere.
    Remote,
    Other,
}

impl Nature {
    /// Whether it draws its own screen, so that disabled echo means nothing.
    pub fn draws_itself(self) -> bool {
        matches!(self, Nature::Editor | Nature::Pager | Nature::FullScreen)
    }
}

/// The process to judge by: the one that reads, or the leader. Wrappers such as sudo come after
/// what they started. A shell that may be reading comes before what its startup files left running
/// in its group: fish starts a Python there.
pub(super) fn front(foreground: &[Process]) -> &Process {
    let reader = foreground
        .iter()
        .rev()
        .find(|process| process.reads_tty == Some(true));
    let inner = foreground
        .iter()
        .rev()
        .find(|process| !is_wrapper(&process.name));
    let shell = foreground.iter().find(|process| {
        process.reads_tty.is_none() && edits_lines(process) && !runs_a_script(process)
    });
    reader.or(shell).or(inner).unwrap_or(&foreground[0])
}

fn is_wrapper(name: &str) -> bool {
    matches!(
        name,
        "sudo"
            | "doas"
            | "su"
            | "env"
            | "nice"
            | "time"
            | "timeout"
            | "script"
            | "stdbuf"
            | "setsid"
            | "xargs"
            | "man"
            | "git"
    )
}

pub(super) fn nature(process: &Process, foreground: &[Process]) -> Nature {
    let name = process.name.trim_start_matches('-');
    let known = by_name(base(name));
    if let Nature::Repl(Prompt::Python) = known {
        return python(process);
    }
    if known == Nature::Other {
        // `node_thread` and scripts: argv[0] tells more than a thread's name.
        let by_argv = process
            .argv
            .first()
            .map(|program| by_name(base(program.rsplit('/').next().unwrap_or(program))));
        if let Some(found) = by_argv.filter(|found| *found != Nature::Other) {
            return found;
        }
    }
    // `man` and `git log` have a pager in the same group.
    let pager = foreground
        .iter()
        .any(|other| by_name(base(&other.name)) == Nature::Pager);
    if known == Nature::Other && pager && process.reads_tty != Some(true) {
        return Nature::Pager;
    }
    known
}

/// `python3.11` is `python`, `vim.basic` is `vim`.
fn base(name: &str) -> &str {
    let name = name.trim_start_matches('-');
    let end = name
        .find(|char: char| char.is_ascii_digit() || char == '.')
        .unwrap_or(name.len());
    // `7z` and `w3m` keep their digit: without it the name would be empty or a single letter.
    if end < 2 {
        name
    } else {
        name[..end].trim_end_matches('-')
    }
}

fn python(process: &Process) -> Nature {
    let has = |word: &str| {
        process
            .argv
            .iter()
            .any(|arg| arg == word || arg.ends_with(&format!("/{word}")))
    };
    if has("pdb") {
        Nature::Repl(Prompt::Pdb)
    } else if has("ipython") || has("ipython3") || has("IPython") {
        Nature::Repl(Prompt::Ipython)
    } else {
        Nature::Repl(Prompt::Python)
    }
}

/// Whether an interpreter or shell was started to run a script, not interactively.
pub(super) fn runs_a_script(process: &Process) -> bool {
    let name = base(&process.name);
    if matches!(name, "irb" | "pry" | "ipython") {
        return false;
    }
    let shell = by_name(name) == Nature::Shell;
    let known = shell || matches!(by_name(name), Nature::Repl(prompt) if takes_scripts(prompt));
    let mut words = process.argv.iter().skip(1).map(String::as_str);
    let mut script = false;
    while let Some(word) = words.next() {
        match word {
            "-i" => return false,
            "--rcfile" | "--init-file" | "-o" | "-O" | "-X" | "-W" | "-C" => {
                words.next();
            }
            "-e" | "--eval" | "-p" | "--print" if !shell => script = true,
            "-m" if !shell => script = true,
            "-c" => script = true,
            _ if word.starts_with(['-', '+']) => {
                script |= shell && !word.starts_with("--") && word.contains('c');
            }
            _ => {
                script = true;
                break;
            }
        }
    }
    known && script
}

fn takes_scripts(prompt: Prompt) -> bool {
    use Prompt::{Lua, Node, Perl, Php, Python, R, Ruby};
    matches!(prompt, Python | Node | Ruby | Perl | Php | Lua | R)
}

/// Whether a shell has its own line editor.
pub(super) fn edits_lines(process: &Process) -> bool {
    matches!(
        base(&process.name),
        "bash" | "zsh" | "fish" | "rbash" | "nu" | "xonsh" | "pwsh"
    )
}

/// Programs that read input without asking for it.
pub(super) fn is_filter(name: &str) -> bool {
    matches!(
        name,
        "cat"
            | "tee"
            | "grep"
            | "sed"
            | "awk"
            | "gawk"
            | "mawk"
            | "sort"
            | "uniq"
            | "head"
            | "tail"
            | "wc"
            | "tr"
            | "cut"
            | "dd"
            | "xargs"
            | "od"
            | "hexdump"
            | "xxd"
            | "base64"
    )
}

fn by_name(name: &str) -> Nature {
    use Nature::{Editor, FullScreen, Pager, Remote, Repl, Shell};
    match name {
        "sh" | "bash" | "zsh" | "fish" | "dash" | "ash" | "ksh" | "mksh" | "tcsh" | "csh"
        | "nu" | "xonsh" | "pwsh" | "busybox" | "rbash" => Shell,
        "vi" | "vim" | "nvim" | "view" | "vimdiff" | "nano" | "pico" | "emacs" | "micro"
        | "helix" | "hx" | "joe" | "ne" | "mcedit" | "kak" | "ed" => Editor,
        "less" | "more" | "most" | "lv" | "bat" | "batcat" | "pager" | "w3m" => Pager,
        "top" | "htop" | "btop" | "atop" | "iotop" | "nmtui" | "mc" | "ranger" | "tig"
        | "lazygit" | "k" | "watch" | "dialog" | "whiptail" | "ncdu" | "mutt" | "irssi"
        | "aptitude" | "debconf-show" | "cmatrix" | "glances" | "nvtop" => FullScreen,
        "ssh" | "mosh-client" | "telnet" | "docker" | "podman" | "kubectl" | "lxc"
        | "lxc-attach" | "nsenter" | "screen" | "tmux" | "tmux: client" | "machinectl"
        | "virsh" | "minicom" | "picocom" | "socat" | "nc" | "ncat" | "adb" | "vagrant"
        | "incus" | "crictl" => Remote,
        "python" | "pypy" | "py" => Repl(Prompt::Python),
        "ipython" => Repl(Prompt::Ipython),
        "pdb" => Repl(Prompt::Pdb),
        "node" | "nodejs" | "deno" | "bun" | "node-MainThread" | "MainThread" => Repl(Prompt::Node),
        "irb" | "pry" | "ruby" => Repl(Prompt::Ruby),
        "psql" => Repl(Prompt::Psql),
        "mysql" | "mariadb" => Repl(Prompt::Mysql),
        "sqlite" | "sqlite3" | "litecli" => Repl(Prompt::Sqlite),
        "redis-cli" => Repl(Prompt::Redis),
        "gdb" | "rust-gdb" => Repl(Prompt::Gdb),
        "lldb" | "rust-lldb" => Repl(Prompt::Lldb),
        "lua" | "luajit" => Repl(Prompt::Lua),
        "R" | "Rterm" => Repl(Prompt::R),
        "julia" => Repl(Prompt::Julia),
        "php" | "psysh" => Repl(Prompt::Php),
        "perl" => Repl(Prompt::Perl),
        "ghc" | "ghci" => Repl(Prompt::Ghci),
        "scala" => Repl(Prompt::Scala),
        "jshell" => Repl(Prompt::Java),
        "erl" | "beam" => Repl(Prompt::Erlang),
        "iex" => Repl(Prompt::Elixir),
        "mongo" | "mongosh" => Repl(Prompt::Mongo),
        "bc" | "dc" => Repl(Prompt::Bc),
        "ftp" | "sftp" | "lftp" | "gnuplot" | "octave" | "maxima" | "tclsh" | "guile" | "clj"
        | "sbcl" | "racket" | "nix" | "bluetoothctl" | "dlv" | "jdb" | "cqlsh" | "duckdb"
        | "clickhouse-clie" | "vault" | "nslookup" | "telnetd" | "parted" | "fdisk" | "gdisk" => {
            Repl(Prompt::Other)
        }
        _ => Nature::Other,
    }
}
