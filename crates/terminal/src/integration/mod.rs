//! Starts a shell with our integration, without touching the user's files.
//!
//! - bash: `--rcfile` with a file that first sources what bash would have read;
//! - zsh: a `ZDOTDIR` whose `.zshenv` puts the user's own back at once;
//! - fish: `-C`, after the user's configuration.
//!
//! The engine places [`Injection::files`] in the machine and starts
//! [`Injection::argv`] with [`Injection::env`] added to the environment.

pub mod typed;

use crate::osc::Nonce;
use std::path::{Path, PathBuf};

/// A shell that can be integrated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

impl Shell {
    pub const ALL: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

    /// The shell for a program's path or name, if it is supported.
    pub fn of(program: &str) -> Option<Shell> {
        match program.rsplit('/').next()? {
            "bash" => Some(Shell::Bash),
            "zsh" => Some(Shell::Zsh),
            "fish" => Some(Shell::Fish),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Shell::Bash => "bash",
            Shell::Zsh => "zsh",
            Shell::Fish => "fish",
        }
    }
}

/// The user's files that the shell reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Startup {
    /// None: the same shell everywhere.
    #[default]
    Bare,
    /// What an interactive shell reads.
    User,
    /// What a login shell reads.
    Login,
}

/// The last arguments of our zsh. Its line editor is on anyway: naming it tells this shell from one
/// that was started by hand.
const ZSH_ARGUMENTS: [&str; 3] = ["-i", "-o", "zle"];

/// Whether these are the arguments of a shell that was started with the integration.
pub fn started(argv: &[String]) -> bool {
    let Some(shell) = argv.first().and_then(|program| Shell::of(program)) else {
        return false;
    };
    match shell {
        Shell::Bash => argv.iter().any(|word| word.ends_with(BASH_FILE)),
        Shell::Zsh => argv.ends_with(&ZSH_ARGUMENTS.map(String::from)),
        Shell::Fish => argv.iter().any(|word| {
            word.strip_suffix('\'')
                .is_some_and(|word| word.ends_with(FISH_FILE))
        }),
    }
}

const BASH_FILE: &str = "motu.bash";
const FISH_FILE: &str = "motu.fish";

/// A file of the integration, readable by the shell's user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InjectedFile {
    pub path: PathBuf,
    pub contents: &'static str,
}

/// How to start an integrated shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Injection {
    pub files: Vec<InjectedFile>,
    pub argv: Vec<String>,
    /// Added to the environment. The nonce in it is unset by the shell before anything runs.
    pub env: Vec<(String, String)>,
}

/// A shell, its program, and how it is to start.
#[derive(Clone, Debug)]
pub struct ShellRequest<'a> {
    pub shell: Shell,
    /// The program, as a name or a path in the machine.
    pub program: &'a str,
    pub startup: Startup,
    /// A directory of ours in the machine, readable by the shell's user.
    pub dir: &'a Path,
    /// The user's own `ZDOTDIR`, if there is one.
    pub zdotdir: Option<&'a str>,
}

impl Injection {
    pub fn new(request: &ShellRequest<'_>, nonce: &Nonce) -> Injection {
        let place = request.dir.join(request.shell.name());
        let mut env = vec![("MOTU_NONCE".to_owned(), nonce.as_str().to_owned())];
        let rc = if request.startup == Startup::Bare {
            "none"
        } else {
            "user"
        };
        env.push(("MOTU_RC".into(), rc.into()));
        if request.startup == Startup::Login {
            env.push(("MOTU_LOGIN".into(), "1".into()));
        }
        let mut argv = vec![request.program.to_owned()];
        let (path, contents) = match request.shell {
            Shell::Bash => {
                let path = place.join(BASH_FILE);
                argv.extend([
                    "--noprofile".into(),
                    "--rcfile".into(),
                    text(&path),
                    "-i".into(),
                ]);
                (path, include_str!("motu.bash"))
            }
            Shell::Zsh => {
                if request.startup == Startup::Login {
                    argv.push("-l".into());
                }
                argv.extend(ZSH_ARGUMENTS.map(String::from));
                env.push(("ZDOTDIR".into(), text(&place)));
                if let Some(own) = request.zdotdir {
                    env.push(("MOTU_ZDOTDIR".into(), own.into()));
                }
                (place.join(".zshenv"), include_str!("motu.zsh"))
            }
            Shell::Fish => {
                let path = place.join(FISH_FILE);
                match request.startup {
                    Startup::Bare => argv.push("--no-config".into()),
                    Startup::User => {}
                    Startup::Login => argv.push("--login".into()),
                }
                let quoted = text(&path).replace('\\', "\\\\").replace('\'', "\\'");
                argv.extend(["-i".into(), "-C".into(), format!("source '{quoted}'")]);
                (path, include_str!("motu.fish"))
            }
        };
        Injection {
            files: vec![InjectedFile { path, contents }],
            argv,
            env,
        }
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
