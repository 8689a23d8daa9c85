//! Shell integration that is typed at the prompt of a nested shell: `sudo -i`, `su -`, a subshell,
//! a shell on another host. It needs no file there.
//!
//! It is two lines, each with a leading blank so that most shells do not add it to their history. The
//! first asks what reads there, and gives nothing away ([`Challenge`]). The second is for the shell that
//! has answered; its first output is a mark signed with a nonce of that shell alone: everything
//! before it is the line's own echo.

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
while [[ $(HISTTIMEFORMAT= history 1) == *__motu_* ]];do history -d -1 2>/dev/null||break;done
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

/// A question that only who runs it as a shell can answer: the halves of the answer stand the other
/// way round in the line, and what a terminal echoes of it has no control characters.
#[derive(Debug)]
pub struct Challenge {
    first: String,
    second: String,
}

impl Challenge {
    /// From random letters, which are used for nothing else.
    pub fn new(random: &Nonce) -> Challenge {
        let (first, second) = random.as_str().split_at(random.as_str().len() / 2);
        Challenge {
            first: first.to_owned(),
            second: second.to_owned(),
        }
    }

    /// The text to type, with the final key. bash, zsh, fish and plain shells read it alike.
    pub fn line(&self) -> String {
        format!(
            " printf '\\033]133;V;__motu_;%s%s;%s\\007\\r\\033[K' {} {} \
             \"$BASH_VERSION,$ZSH_VERSION,$FISH_VERSION\"\r",
            self.second, self.first
        )
    }

    /// The shell that a payload says has answered; nothing in the inner one if it is another kind.
    pub fn answer(&self, payload: &[u8]) -> Option<Option<Shell>> {
        let text = std::str::from_utf8(payload).ok()?;
        let text = text.strip_prefix("133;V;__motu_;")?;
        let text = text.strip_prefix(self.second.as_str())?;
        let versions = text.strip_prefix(self.first.as_str())?.strip_prefix(';')?;
        let mut versions = versions.splitn(3, ',').map(|version| !version.is_empty());
        let of = [Shell::Bash, Shell::Zsh, Shell::Fish];
        Some(versions.position(|has| has).map(|at| of[at]))
    }
}

/// The text to type into this shell, with the final key.
pub fn line(shell: Shell, nonce: &Nonce) -> String {
    let with = |code: &str| code.replace("NONCE", nonce.as_str());
    let line = match shell {
        Shell::Bash => format!("eval {}", quoted(&with(BASH))),
        Shell::Zsh => format!("eval {}", quoted(&with(ZSH))),
        Shell::Fish => with(FISH).replace('\n', "; "),
    };
    format!(" {line}\r")
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
        let challenge = Challenge::new(&nonce);
        let lines = Shell::ALL.map(|shell| line(shell, &nonce));
        for line in lines.into_iter().chain([challenge.line()]) {
            assert!(
                line.len() < crate::limits::CANONICAL_LINE_BYTES,
                "{}: {line}",
                line.len()
            );
            assert!(line.starts_with(' '), "{line}");
            let body = line.strip_suffix('\r').unwrap();
            assert!(!body.contains(char::is_control), "{body}");
        }
    }

    #[test]
    fn a_question_is_answered_by_a_shell_and_by_no_echo() {
        let challenge = Challenge::new(&Nonce::new("0123456789abcdef").unwrap());
        let answer = |text: &str| challenge.answer(text.as_bytes());
        let whole = "133;V;__motu_;89abcdef01234567;";
        for (versions, shell) in [
            ("5.2.15(1)-release,,", Some(Shell::Bash)),
            (",5.9,", Some(Shell::Zsh)),
            (",,3.6.0", Some(Shell::Fish)),
            (",,", None),
        ] {
            assert_eq!(answer(&format!("{whole}{versions}")), Some(shell));
        }
        for wrong in [
            "133;V;__motu_;0123456789abcdef;5,,",
            "133;V;__motu_;89abcdef 01234567;5,,",
            "133;V;__motu_;%s%s;%s",
            "133;A;k=0123456789abcdef;n=0",
            "",
        ] {
            assert_eq!(answer(wrong), None, "{wrong}");
        }
        assert_eq!(answer(&challenge.line()), None);
        // It says nothing that signs.
        assert!(!challenge.line().contains("0123456789abcdef"));
    }
}
