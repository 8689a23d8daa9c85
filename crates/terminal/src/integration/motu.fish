# Shell integration for fish, given by `fish -C`: says where a prompt, a command and its end
# are (OSC 133). The user's own files have been read before this one.

set -l __motu_key $MOTU_NONCE
set -l __motu_rc $MOTU_RC
set -e MOTU_NONCE
set -e MOTU_RC
set -e MOTU_LOGIN
if status is-interactive; and test -n "$__motu_key"
    # The nonce stays in this shell: what it starts must not be able to sign anything.
    set -g __motu_nonce $__motu_key
    set -g __motu_n 0
    set -g __motu_code 0

    if test "$__motu_rc" = none
        # Without its configuration fish lacks the keys for pasted text, which several lines need to be one command.
        fish_default_key_bindings
        function __motu_paste_on --on-event fish_prompt
            printf '\e[?2004h'
        end
        function __motu_paste_off --on-event fish_preexec
            printf '\e[?2004l'
        end
    end

    function __motu_preexec --on-event fish_preexec
        printf '\e]133;C;k=%s;n=%s\a' $__motu_nonce $__motu_n
    end

    function __motu_postexec --on-event fish_postexec
        set -l code $status
        printf '\e]133;D;%s;k=%s;n=%s\a' $code $__motu_nonce $__motu_n
        # A prompt drawn again belongs to the same turn; a command begins a new one.
        set -g __motu_n (math $__motu_n + 1)
    end

    functions -q fish_prompt; or function fish_prompt; echo -n '> '; end
    functions --copy fish_prompt __motu_user_prompt
    function fish_prompt
        set -l code $status
        printf '\e]133;A;k=%s;n=%s;cwd=%s\a' $__motu_nonce $__motu_n (string escape --style=url -- $PWD)
        __motu_status $code
        __motu_user_prompt
        printf '\e]133;B;k=%s;n=%s\a' $__motu_nonce $__motu_n
    end
    function __motu_status
        return $argv[1]
    end
end
