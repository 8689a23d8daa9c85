//! Shell integration that is typed at the prompt of a nested shell: `sudo -i`, `su -`, a subshell,
//! a shell on another host. It needs no file there.
//!
//! It is one line, with a leading blank so that most shells do not add it to their history. Its
//! first output is a mark signed with a nonce of that shell alone: everything before it is the
//! line's own echo.

use super::Shell;
use crate::osc::Nonce;

/// The code for bash; NONCE is replaced.
const BASH: &str = r#"__motu_k=NONCE;__motu_n=0
__motu_first(){ local c=$? -;set +x;printf '\033]133;D;%s;k=%s;n=%s\007' $c $__motu_k $__motu_n;return $c;}
__motu_last(){ local c=$? - p;set +x;((__motu_n++));p=${PWD//%/%25};p=${p//;/%3B}
printf '\033]133;A;k=%s;n=%s;cwd=%s\007' $__motu_k $__motu_n "${p//[[:cntrl:]]/}"
__motu_b=$'\033]133;B;k='$__motu_k';n='$__motu_n$'\007';__motu_c=${__motu_b/;B;/;C;};__motu_p=${__motu_b/;B;/;P;}
case $PS1 in *'${__motu_b}'*);;*)PS1+='\[${__motu_b}\]';;esac
case ${PS2-} in *'${__motu_p}'*);;*)PS2+='\[${__motu_p}\]';;esac
case ${PS0-} in *'${__motu_c}'*);;*)PS0+='${__motu_c}';;esac
return $c;}
if((BASH_VERSINFO[0]*100+BASH_VERSINFO[1]>=501));then PROMPT_COMMAND=('{ __motu_first; } 2>/dev/null' "${PROMPT_COMMAND[@]}" '{ __motu_last; } 2>/dev/null')
else PROMPT_COMMAND="{ __motu_first; } 2>/dev/null${PROMPT_COMMAND:+; $PROMPT_COMMAND}; { __motu_last; } 2>/dev/null";fi
[[ $(HISTTIMEFORMAT= history 1) == *__motu_* ]]&&history -d -1 2>/dev/null
printf '\033]133;A;k=NONCE;n=0\007\r\033[K'"#;

const ZSH: &str = r#"typeset -g __motu_k=NONCE __motu_b= __motu_p=;typeset -gi __motu_n=0
__motu_precmd(){ { local c=$?;setopt local_options no_xtrace } 2>/dev/null;print -rn -- $'\e]133;D;'"$c;k=$__motu_k;n=$__motu_n"$'\a';}
__motu_prompt(){ { local c=$? p;setopt local_options no_xtrace } 2>/dev/null;((__motu_n++));p=${PWD//\%/%25};p=${p//;/%3B}
print -rn -- $'\e]133;A;k='"$__motu_k;n=$__motu_n;cwd=${p//[[:cntrl:]]/}"$'\a'
PS1=${PS1//"$__motu_b"/};PS2=${PS2//"$__motu_p"/}
__motu_b=$'%{\e]133;B;k='"$__motu_k;n=$__motu_n"$'\a%}';__motu_p=${__motu_b/;B;/;P;};PS1+=$__motu_b;PS2+=$__motu_p;return c;}
__motu_preexec(){ { setopt local_options no_xtrace } 2>/dev/null;print -rn -- $'\e]133;C;k='"$__motu_k;n=$__motu_n"$'\a';}
typeset -ga precmd_functions preexec_functions;precmd_functions=(__motu_precmd $precmd_functions __motu_prompt);preexec_functions+=(__motu_preexec)
unsetopt prompt_sp
printf '\033]133;A;k=NONCE;n=0\007\r\033[K'"#;

const FISH: &str = r#"set -g __motu_nonce NONCE; set -g __motu_n 0
function __motu_preexec --on-event fish_preexec; printf '\e]133;C;k=%s;n=%s\a' $__motu_nonce $__motu_n; end
function __motu_postexec --on-event fish_postexec; set -l code $status; printf '\e]133;D;%s;k=%s;n=%s\a' $code $__motu_nonce $__motu_n; set -g __motu_n (math $__motu_n + 1); end
functions -q __motu_user_prompt; or functions --copy fish_prompt __motu_user_prompt
function __motu_status; return $argv[1]; end
function fish_prompt; set -l code $status; printf '\e]133;A;k=%s;n=%s;cwd=%s\a' $__motu_nonce $__motu_n (string escape --style=url -- $PWD); __motu_status $code; __motu_user_prompt; printf '\e]133;B;k=%s;n=%s\a' $__motu_nonce $__motu_n; end
printf '\e]133;A;k=NONCE;n=0\a\r\e[K'"#;

/// The text to type, with the final key. For an unknown shell the line itself detects whether it is
/// supported, and reports if it is not ([`crate::osc::MarkKind::Refused`]).
pub fn line(shell: Option<Shell>, nonce: &Nonce) -> String {
    let with = |code: &str| code.replace("NONCE", nonce.as_str());
    let line = match shell {
        Some(Shell::Bash) => format!("eval {}", quoted(&with(BASH))),
        Some(Shell::Zsh) => format!("eval {}", quoted(&with(ZSH))),
        Some(Shell::Fish) => with(FISH).replace('\n', "; "),
        None => anywhere(nonce),
    };
    format!(" {line}\r")
}

/// A line that bash, zsh, fish and plain shells can all parse. Each evaluates its own part from
/// single quotes, which mean the same to all of them as long as they contain no quote and no double
/// backslash.
fn anywhere(nonce: &Nonce) -> String {
    let mut line = String::new();
    for (variable, code) in [
        ("BASH_VERSION", BASH),
        ("ZSH_VERSION", ZSH),
        ("FISH_VERSION", FISH),
    ] {
        let code = encoded(&code.replace("NONCE", nonce.as_str()));
        line.push_str(&format!(
            "test -n \"${variable}\" && eval \"$(printf %b '{code}')\"; "
        ));
    }
    line.push_str(&format!(
        "test -z \"$BASH_VERSION$ZSH_VERSION$FISH_VERSION\" && printf '\\033]133;N;k={};n=0\\007\\r\\033[K'",
        nonce.as_str(),
    ));
    line
}

/// Encodes for `printf %b`: characters that quoting or history expansion would change become octal.
fn encoded(code: &str) -> String {
    let mut out = String::new();
    for char in code.chars() {
        match char {
            '\n' => out.push_str("\\n"),
            '\\' | '\'' | '!' => out.push_str(&format!("\\0{:03o}", u32::from(char))),
            other => out.push(other),
        }
    }
    out
}

/// Quotes without a single quote inside, so that a shell that does not know `$'…'` is not left
/// inside a string.
fn quoted(code: &str) -> String {
    let mut out = String::from("$'");
    for char in code.chars() {
        match char {
            '\\' => out.push_str("\\\\"),
            '\'' => out.push_str("\\x27"),
            '\n' => out.push_str("\\n"),
            '!' => out.push_str("\\x21"),
            other => out.push(other),
        }
    }
    out.push('\'');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_line_that_a_terminal_can_take() {
        let nonce = Nonce::new("0123456789abcdef").unwrap();
        for shell in [Some(Shell::Bash), Some(Shell::Zsh), Some(Shell::Fish), None] {
            let line = line(shell, &nonce);
            assert!(
                line.len() < crate::limits::CANONICAL_LINE_BYTES,
                "{shell:?}: {}",
                line.len()
            );
            assert!(line.starts_with(' '), "{shell:?}");
            let body = line.strip_suffix('\r').unwrap();
            assert!(!body.contains(char::is_control), "{shell:?}: {body}");
        }
    }
}
