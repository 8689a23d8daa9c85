//! `motu completions`: scripts for shells, and what they ask.

use crate::context::Context;
use crate::{complete, show};
use clap_complete::Shell;
use std::process::ExitCode;

/// Print a script that completes commands in a shell
///
/// In bash, zsh and fish it also completes what there is: sandboxes, workspaces, sessions,
/// environments, snapshots, services. For that it asks the daemon, if one runs; it starts none.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu completions bash > /etc/bash_completion.d/motu
  motu completions zsh > ~/.zfunc/_motu
  motu completions fish > ~/.config/fish/completions/motu.fish")]
pub struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

impl Args {
    pub fn run(self, context: &Context) -> ExitCode {
        let mut script = Vec::new();
        match self.shell {
            Shell::Bash => script.extend_from_slice(BASH.as_bytes()),
            Shell::Zsh => script.extend_from_slice(ZSH.as_bytes()),
            Shell::Fish => script.extend_from_slice(FISH.as_bytes()),
            shell => clap_complete::generate(shell, &mut (context.grammar)(), "motu", &mut script),
        }
        show::exact(&String::from_utf8_lossy(&script));
        ExitCode::SUCCESS
    }
}

/// What may stand at the end of a line: one a line. Nothing means a file, or nobody knows.
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub struct CompleteArgs {
    /// The line as far as the cursor
    #[arg(value_name = "LINE", allow_hyphen_values = true)]
    line: String,
}

impl CompleteArgs {
    pub async fn run(self, context: &Context) -> motu_core::Result<ExitCode> {
        let mut root = (context.grammar)();
        root.build();
        for candidate in complete::line(&root, &self.line, &context.place).await {
            show::exact(&format!("{candidate}\n"));
        }
        Ok(ExitCode::SUCCESS)
    }
}

// Bash splits words at `:`, so the part before it must be removed from each candidate.
const BASH: &str = r#"_motu() {
    local line=${COMP_LINE:0:COMP_POINT} word prefix="" candidate
    word=${line##* }
    if [[ $word == *:* && $COMP_WORDBREAKS == *:* ]]; then
        prefix=${word%"${word##*:}"}
    fi
    COMPREPLY=()
    while IFS= read -r candidate; do
        COMPREPLY+=("${candidate#"$prefix"}")
    done < <(motu __complete -- "$line" 2>/dev/null)
}
complete -o default -F _motu motu
"#;

const ZSH: &str = r#"#compdef motu
_motu() {
    local -a found
    found=(${(f)"$(motu __complete -- "${(j: :)words[1,CURRENT]}" 2>/dev/null)"})
    if (( ${#found} )); then
        compadd -a found
    else
        _files
    fi
}
if [ "$funcstack[1]" = "_motu" ]; then
    _motu "$@"
else
    compdef _motu motu
fi
"#;

const FISH: &str = r#"function __motu_complete
    set -l found (motu __complete -- (commandline -cp) 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c motu -f -a '(__motu_complete)'
"#;
