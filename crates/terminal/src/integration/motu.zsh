# Shell integration for zsh, read as .zshenv of a directory of ours: says where a prompt,
# a command and its end are (OSC 133). The user's own files are read from their own place.

if [[ -n ${MOTU_ZDOTDIR+x} ]]; then
    ZDOTDIR=$MOTU_ZDOTDIR
    unset MOTU_ZDOTDIR
else
    unset ZDOTDIR
fi
if [[ ${MOTU_RC:-user} == user ]]; then
    [[ -r ${ZDOTDIR:-$HOME}/.zshenv ]] && builtin source ${ZDOTDIR:-$HOME}/.zshenv
else
    # Nothing else is to be read.
    builtin setopt no_rcs no_global_rcs
fi
unset MOTU_RC MOTU_LOGIN

if [[ -o interactive && -n ${MOTU_NONCE:-} ]]; then
    # The nonce stays in this shell: what it starts must not be able to sign anything.
    typeset -g __motu_nonce=$MOTU_NONCE __motu_cwd= __motu_b= __motu_p= __motu_eol=
    typeset -gi __motu_n=0

    __motu_escape() {
        emulate -L zsh
        setopt no_multibyte extended_glob
        local text=$1 out= char
        if [[ $text == [A-Za-z0-9/._~-]# ]]; then
            __motu_cwd=$text
            return
        fi
        for char in ${(s::)text}; do
            if [[ $char == [A-Za-z0-9/._~-] ]]; then
                out+=$char
            else
                out+=%${(l:2::0:)$(( [##16] #char ))}
            fi
        done
        __motu_cwd=$out
    }

    # What a traced shell (set -x) says of the hooks goes nowhere.
    __motu_precmd() {
        { local code=$?; setopt local_options no_xtrace } 2>/dev/null
        builtin print -rn -- $'\e]133;D;'"$code;k=$__motu_nonce;n=$__motu_n"$'\a'
        # What zsh would have shown for an unfinished line, had it not been told to wait for the mark.
        if [[ -n $__motu_eol ]]; then
            builtin print -Pn -- "${PROMPT_EOL_MARK-%B%S%#%s%b}"
            builtin print -rn -- "${(l:COLUMNS-1:: :)}"$'\r \r'
        fi
    }

    # Last of the hooks: whatever they did to the prompt is done.
    __motu_prompt() {
        # Not local_options: one of the options below is to stay.
        { local code=$? traced=; [[ -o xtrace ]] && traced=1; unsetopt xtrace } 2>/dev/null
        (( __motu_n++ ))
        __motu_escape $PWD
        builtin print -rn -- $'\e]133;A;k='"$__motu_nonce;n=$__motu_n;cwd=$__motu_cwd"$'\a'
        PS1=${PS1//"$__motu_b"/}
        __motu_b=$'%{\e]133;B;k='"$__motu_nonce;n=$__motu_n"$'\a%}'
        PS1+=$__motu_b
        PS2=${PS2//"$__motu_p"/}
        __motu_p=$'%{\e]133;P;k='"$__motu_nonce;n=$__motu_n"$'\a%}'
        PS2+=$__motu_p
        # Files read after this one may have put hooks around ours.
        precmd_functions=(__motu_precmd ${precmd_functions:#__motu_*} __motu_prompt)
        preexec_functions=(${preexec_functions:#__motu_*} __motu_preexec)
        if [[ -o promptsp ]]; then
            builtin setopt no_prompt_sp
            __motu_eol=1
        fi
        [[ -n $traced ]] && setopt xtrace
        { return code } 2>/dev/null
    }

    __motu_preexec() {
        { setopt local_options no_xtrace } 2>/dev/null
        builtin print -rn -- $'\e]133;C;k='"$__motu_nonce;n=$__motu_n"$'\a'
    }

    typeset -ga precmd_functions preexec_functions
    precmd_functions=(__motu_precmd $precmd_functions __motu_prompt)
    preexec_functions+=(__motu_preexec)
fi
unset MOTU_NONCE
