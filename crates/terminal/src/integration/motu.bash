# Shell integration for bash: says where a prompt, a command and its end are (OSC 133).
# Read by `bash --rcfile`; the user's own files are sourced, not changed.

if [ "${MOTU_RC:-user}" = user ]; then
    if [ -n "${MOTU_LOGIN:-}" ]; then
        [ -r /etc/profile ] && . /etc/profile
        for __motu_rc in ~/.bash_profile ~/.bash_login ~/.profile; do
            if [ -r "$__motu_rc" ]; then . "$__motu_rc"; break; fi
        done
        unset __motu_rc
    elif [ -r ~/.bashrc ]; then
        . ~/.bashrc
    fi
fi
unset MOTU_RC MOTU_LOGIN

# The nonce stays in this shell: what it starts must not be able to sign anything.
__motu_nonce=${MOTU_NONCE:-}
unset MOTU_NONCE
__motu_n=0

__motu_escape() {
    local LC_ALL=C text=$1 out= at char
    case $text in
    *[!A-Za-z0-9/._~-]*)
        for ((at = 0; at < ${#text}; at++)); do
            char=${text:at:1}
            case $char in
            [A-Za-z0-9/._~-]) out+=$char ;;
            # A byte over 127 is negative for printf in the C locale of some versions.
            *) printf -v char '%%%02X' "$(($(printf '%d' "'$char") & 255))"; out+=$char ;;
            esac
        done
        text=$out
        ;;
    esac
    __motu_cwd=$text
}

# First of all prompt commands: the exit code is still there.
# What a traced shell (set -x) says of the hooks goes nowhere: see PROMPT_COMMAND below.
__motu_first() {
    local code=$? -
    set +x
    builtin printf '\e]133;D;%s;k=%s;n=%s\a' "$code" "$__motu_nonce" "$__motu_n"
    return "$code"
}

# Last of them: whatever they did to the prompt is done.
__motu_last() {
    local code=$? -
    set +x
    ((__motu_n++))
    [ "$PWD" = "${__motu_pwd-}" ] || { __motu_pwd=$PWD; __motu_escape "$PWD"; }
    builtin printf '\e]133;A;k=%s;n=%s;cwd=%s\a' "$__motu_nonce" "$__motu_n" "$__motu_cwd"
    __motu_b=$'\e]133;B;k='$__motu_nonce';n='$__motu_n$'\a'
    __motu_c=$'\e]133;C;k='$__motu_nonce';n='$__motu_n$'\a'
    __motu_p=$'\e]133;P;k='$__motu_nonce';n='$__motu_n$'\a'
    case $PS1 in *'${__motu_b}'*) ;; *) PS1+='\[${__motu_b}\]' ;; esac
    case ${PS2-} in *'${__motu_p}'*) ;; *) PS2="${PS2-}"'\[${__motu_p}\]' ;; esac
    case ${PS0-} in *'${__motu_c}'*) ;; *) PS0="${PS0-}"'${__motu_c}' ;; esac
    return "$code"
}

# PS0, which marks the start of a command, is there since bash 4.4.
if [[ -n $__motu_nonce && BASH_VERSINFO[0]*100+BASH_VERSINFO[1] -ge 404 ]]; then
    if ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 501)); then
        PROMPT_COMMAND=('{ __motu_first; } 2>/dev/null' "${PROMPT_COMMAND[@]}" '{ __motu_last; } 2>/dev/null')
    else
        PROMPT_COMMAND="{ __motu_first; } 2>/dev/null${PROMPT_COMMAND:+; $PROMPT_COMMAND}; { __motu_last; } 2>/dev/null"
    fi
fi
