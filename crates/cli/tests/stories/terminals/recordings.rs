//! Recordings as files.

use super::*;
use futures_util::{StreamExt, stream};
use std::io::{Read, Write};
use std::process::Stdio;
use std::time::Instant;

/// A recording of 0.3 seconds.
const CAST: &str = "{\"version\":3,\"term\":{\"cols\":80,\"rows\":24},\"timestamp\":1700000000}\n\
    [0.1, \"o\", \"$ make\\r\\n\"]\n[0.1, \"o\", \"\\u001b[32mdone\\u001b[0m\\r\\n\"]\n[0.1, \"x\", \"0\"]\n";

pub fn tell_of_recordings(world: &World) {
    world.recorder.on(|call: verb::TerminalRecording| {
        known(&call.terminal)?;
        let pieces = [&CAST[..50], &CAST[50..]].map(|piece| Ok(piece.into()));
        Ok(stream::iter(pieces).boxed())
    });
}

#[test]
fn a_recording_is_written_as_it_is() {
    let world = World::new("terminal");
    tell_of_recordings(&world);
    let printed = world.motu(&["record", "build"]);
    assert_eq!((printed.code, printed.stdout.as_str()), (0, CAST));
    told!(world.motu(&["record", "build", "-o", "b.cast"]), @"");
    let written = std::fs::read_to_string(world.story.path().join("b.cast")).unwrap();
    assert_eq!(written, CAST);
    told!(world.motu(&["record", "missing", "-o", "m.cast"]), @r#"
    ------- stderr -------
    error: there is no session "missing"
    hint: `motu terminal list` shows them
    [exit code: 104]
    "#);
    // A failed download leaves no file.
    assert!(!world.story.path().join("m.cast").exists());
}

#[test]
fn a_recording_is_followed_to_its_end() {
    let world = World::new("terminal");
    tell_of_transcripts(&world);
    let path = world.story.path().join("session.cast");
    let (first, rest) = CAST.split_at(CAST.len() - 40);
    std::fs::write(&path, first).unwrap();
    let mut command = world.story.command(&["terminal", "record", "build", "-f"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut seen = vec![0; first.len()];
    stdout.read_exact(&mut seen).unwrap();
    let mut file = std::fs::File::options().append(true).open(&path).unwrap();
    file.write_all(rest.as_bytes()).unwrap();
    stdout.read_to_end(&mut seen).unwrap();
    assert_eq!(String::from_utf8(seen).unwrap(), CAST);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_recording_keeps_its_time() {
    let world = World::new("terminal");
    tell_of_recordings(&world);
    std::fs::write(world.story.path().join("b.cast"), CAST).unwrap();
    let begun = Instant::now();
    let played = world.motu(&["replay", "b.cast"]);
    let took = begun.elapsed().as_millis();
    assert_eq!(played.stdout, "$ make\r\n\u{1b}[32mdone\u{1b}[0m\r\n");
    assert!(took >= 300, "{took} ms");
    // If there is no such file, the name is taken as a session.
    let played = world.motu(&["replay", "build", "--max-idle", "1ms"]);
    assert_eq!((played.code, played.stdout.len()), (0, 23), "{played}");
    assert_eq!(world.called().0, "terminal_recording");
}

#[test]
fn what_is_no_recording_is_refused() {
    let world = World::new("terminal");
    tell_of_recordings(&world);
    tell_of_transcripts(&world);
    let header = "{\"version\":3,\"term\":{\"cols\":80,\"rows\":24}}\n";
    for (name, text) in [
        ("empty", String::new()),
        ("old", header.replace('3', "2")),
        (
            "bad",
            format!("{header}[1, \"o\", \"a\"]\n[-1, \"o\", \"b\"]\n"),
        ),
    ] {
        std::fs::write(world.story.path().join(name), text).unwrap();
    }
    told!(world.motu(&["replay", "empty"]), @r#"
    ------- stderr -------
    error: empty: line 1: there is no header
    hint: recordings are asciicast v3 files, as `motu terminal record` writes them
    [exit code: 102]
    "#);
    told!(world.motu(&["replay", "old"]), @r#"
    ------- stderr -------
    error: old: line 1: version 2 is not read here, only 3
    hint: recordings are asciicast v3 files, as `motu terminal record` writes them
    [exit code: 102]
    "#);
    told!(world.motu(&["replay", "bad"]), @r#"
    ------- stderr -------
    error: bad: line 3: not an interval: cannot convert float seconds to Duration: value is negative
    hint: recordings are asciicast v3 files, as `motu terminal record` writes them
    [exit code: 102]
    "#);
    told!(world.motu(&["replay", "none.cast"]), @r#"
    ------- stderr -------
    error: none.cast: no such file
    [exit code: 104]
    "#);
    told!(world.motu(&["replay", "missing"]), @r#"
    ------- stderr -------
    error: there is no session "missing"
    hint: `motu terminal list` shows them
    [exit code: 104]
    "#);
    told!(world.motu(&["replay", "bad", "--speed", "0"]), @r#"
    ------- stderr -------
    error: invalid value '0' for '--speed <N>': a number from 0.01 to 1000

    For more information, try '--help'.
    [exit code: 102]
    "#);
    told!(world.motu(&["replay", "--json", "bad"]), @r#"
    {
      "error": {
        "kind": "unsupported",
        "message": "there is no JSON of what is played",
        "hint": "the recording itself is JSON, a line per event"
      }
    }
    [exit code: 108]
    "#);
    told!(world.motu(&["record", "build", "--follow"]), @r#"
    ------- stderr -------
    error: read $HOME/session.cast: the recording is not on this host
    hint: leave --follow out
    [exit code: 104]
    "#);
}
