//! What zsh offers, asked of a real zsh at a terminal.

use motu_testkit::story::Story;
use std::fs;

/// Presses Tab in a zsh at a terminal of its own, and prints what it then shows. zsh's own
/// completion system runs, as in a shell that somebody sits at.
const PRESS_TAB: &str = r#"
zmodload zsh/zpty || exit 3
zpty shell 'zsh -f -i'
zpty -w shell 'PROMPT=; unsetopt zle_bracketed_paste; autoload -Uz compinit; compinit -u -D; source $HOME/_motu; zstyle ":completion:*" list-prompt ""; setopt no_list_beep; LISTMAX=0; print ready-$((40+2))'
zpty -m -r shell text '*ready-42*' || exit 4
zpty -w -n shell "$LINE"$'\t\t'
seen=
for look in {1..200}; do
    while zpty -r -t shell piece; do seen+=$piece; done
    [[ $seen == *$WANTED* ]] && break
    zselect -t 10
done
print -r -- "$seen"
zpty -d shell
"#;

/// What is on the screen after Tab at the end of a line, when the wanted word is or after 20 s.
fn shown(story: &Story, line: &str, wanted: &str) -> String {
    let script = story.motu(&["completions", "zsh"]);
    assert_eq!(script.code, 0, "{script}");
    fs::write(story.path().join("_motu"), script.stdout).unwrap();
    let bin = story.path().join("bin");
    fs::create_dir_all(&bin).unwrap();
    let _ = std::os::unix::fs::symlink(motu_testkit::program(), bin.join("motu"));
    let asked = motu_needs::command("zsh")
        .args(["-f", "-c", &format!("zmodload zsh/zselect; {PRESS_TAB}")])
        .current_dir(story.path())
        .env_clear()
        .env("PATH", format!("{}:/usr/bin:/bin", bin.display()))
        .env("HOME", story.path())
        .env("MOTU_HOME", story.home())
        .env("TERM", "xterm")
        .env("LINE", line)
        .env("WANTED", wanted)
        .output()
        .unwrap();
    let (text, said) = (
        String::from_utf8_lossy(&asked.stdout).into_owned(),
        String::from_utf8_lossy(&asked.stderr),
    );
    assert!(asked.status.success(), "{text}{said}");
    text
}

#[test]
fn zsh_completes_commands_and_what_there_is() {
    let Some(story) = Story::with_machines() else {
        return;
    };
    assert_eq!(story.motu(&["create", "busybox", "--id", "boxes"]).code, 0);
    assert_eq!(story.motu(&["create", "busybox", "--id", "boxed"]).code, 0);
    for (line, wanted) in [
        ("motu works", "workspace"),
        ("motu run --isol", "--isolation"),
        ("motu exec box", "boxed"),
        ("motu run busy", "busybox"),
    ] {
        let text = shown(&story, line, wanted);
        assert!(text.contains(wanted), "{line}: {text:?}");
    }
}
