use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const BOUNDS: Bounds = Bounds {
    file_bytes: 64 << 10,
    line_bytes: 8 << 10,
    instructions: 100,
};

fn file(text: &str) -> Dockerfile {
    parse(text, &BOUNDS).unwrap()
}

fn error(text: &str) -> ParseError {
    parse(text, &BOUNDS).unwrap_err()
}

fn only(text: &str) -> Instruction {
    let file = file(&format!("FROM x\n{text}\n"));
    file.stages[0].steps[0].instruction.clone()
}

fn value(word: &str) -> Result<String, ParseError> {
    let known = BTreeMap::from([("a", "1"), ("empty", ""), ("long_name", "x y")]);
    expand(word, '\\', 1, &|name| {
        known.get(name).map(|value| (*value).to_owned())
    })
}

#[test]
fn continuations_comments_and_blank_lines_are_one_instruction() {
    let file = file(
        "# hello\n\nFROM a AS One\nRUN one \\\n  # not a comment of the shell\n\n  two \\  \n  three\nCMD [\"x\"]\n",
    );
    assert_eq!(file.stages[0].name.as_deref(), Some("one"));
    let [run, cmd] = file.stages[0].steps.as_slice() else {
        panic!("{file:?}");
    };
    assert_eq!((run.line, run.text.as_str()), (4, "RUN one two three"));
    let Instruction::Run(found) = &run.instruction else {
        panic!("{run:?}");
    };
    assert_eq!(found.command, Command::Shell("one   two   three".into()));
    assert_eq!(cmd.line, 9);
    assert_eq!(
        cmd.instruction,
        Instruction::Cmd(Command::Exec(vec!["x".into()]))
    );
}

#[test]
fn the_escape_character_can_be_changed_at_the_top_only() {
    let file = file("# escape=`\nFROM a\nRUN dir `\n  c:\\\n");
    assert_eq!(file.escape, '`');
    assert_eq!(file.stages[0].steps[0].text, "RUN dir c:\\");
    assert_eq!(error("# escape=x\nFROM a\n").line, 1);
    let later = "FROM a\n# escape=`\nRUN x `\nCMD y\n";
    assert_eq!(parse(later, &BOUNDS).unwrap().stages[0].steps.len(), 2);
}

#[test]
fn here_documents_belong_to_their_instruction() {
    let Instruction::Run(run) = only("RUN <<EOF cat - <<-'END'\none\nEOF\n\ttwo $x\n\tEND") else {
        panic!();
    };
    let bodies: Vec<_> = run
        .heredocs
        .iter()
        .map(|doc| (doc.body.as_str(), doc.expand))
        .collect();
    assert_eq!(bodies, [("one\n", true), ("two $x\n", false)]);
    let Instruction::Copy(copy) = only("COPY <<config.txt /etc/\na=1\nconfig.txt") else {
        panic!();
    };
    assert_eq!(
        (copy.heredocs[0].name.as_str(), copy.sources.len()),
        ("config.txt", 0)
    );
    assert!(
        error("FROM a\nRUN cat <<EOF\nx\n")
            .message
            .contains("no end")
    );
    assert!(
        matches!(only("RUN echo $((1 << 2))"), Instruction::Run(run) if run.heredocs.is_empty())
    );
}

#[test]
fn environment_and_labels_in_both_forms() {
    let pairs = |text: &str| match only(text) {
        Instruction::Env(pairs) | Instruction::Label(pairs) => pairs,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        pairs("ENV a=1 b=\"x y\""),
        [("a".into(), "1".into()), ("b".into(), "\"x y\"".into())]
    );
    assert_eq!(
        pairs("ENV a some words"),
        [("a".into(), "some words".into())]
    );
    assert_eq!(pairs("LABEL \"a b\"=c"), [("\"a b\"".into(), "c".into())]);
    assert_eq!(error("FROM x\nENV a\n").line, 2);
    assert_eq!(error("FROM x\nENV a=1 b\n").line, 2);
}

#[test]
fn copy_and_its_flags() {
    let Instruction::Copy(copy) = only("COPY --from=build --chown=1:2 --chmod=755 a b* /to/")
    else {
        panic!();
    };
    assert_eq!(copy.from.as_deref(), Some("build"));
    assert_eq!((copy.sources.len(), copy.destination.as_str()), (2, "/to/"));
    for (text, part) in [
        ("ADD https://x.example/a /a", "does not fetch"),
        ("COPY a", "needs a source"),
        ("COPY --parents a /b", "--parents is not supported"),
        ("ADD --from=x a /b", "--from is not supported"),
        (
            "RUN --mount=type=bind,source=. make",
            "type=bind is not supported",
        ),
        ("RUN --mount=type=ssh make", "type=ssh is not supported"),
        ("RUN --mount=type=secret make", "needs an id"),
        (
            "RUN --security=insecure make",
            "--security is not supported",
        ),
        ("RUN --network=host make", "not supported"),
        ("HEALTHCHECK --interval=x CMD true", "not a duration"),
        ("ONBUILD FROM x", "not allowed"),
        ("FETCH x", "FETCH is not an instruction"),
        ("SHELL /bin/sh", "JSON array"),
    ] {
        let found = error(&format!("FROM x\n\n{text}\n"));
        assert_eq!(found.line, 3, "{text}");
        assert!(found.message.contains(part), "{text}: {found}");
    }
}

#[test]
fn mounts_of_run() {
    let Instruction::Run(run) = only(
        "RUN --mount=type=secret,id=key,required --mount=type=cache,target=/c,sharing=locked make",
    ) else {
        panic!();
    };
    let [Mount::Secret(secret), Mount::Cache(cache)] = run.mounts.as_slice() else {
        panic!("{run:?}");
    };
    assert_eq!(secret.target.as_deref(), Some("/run/secrets/key"));
    assert!(secret.required && secret.mode == 0o400);
    assert_eq!((cache.target.as_str(), cache.id.as_str()), ("/c", "/c"));
    assert_eq!((cache.sharing, cache.mode), (Sharing::Locked, 0o755));
    for wrong in [
        "sharing=often",
        "mode=999",
        "mode=70000",
        "uid=me",
        "size=1",
    ] {
        let text = format!("FROM x\nRUN --mount=type=cache,target=/c,{wrong} make\n");
        assert_eq!(error(&text).line, 2, "{wrong}");
    }
    let Instruction::Run(run) = only("RUN --mount=type=secret,id=key,env=KEY x") else {
        panic!();
    };
    let [Mount::Secret(secret)] = run.mounts.as_slice() else {
        panic!();
    };
    assert_eq!(
        (secret.target.as_deref(), secret.env.as_deref()),
        (None, Some("KEY"))
    );
}

#[test]
fn what_comes_first_is_from() {
    assert!(error("RUN x\nFROM a").message.contains("before FROM"));
    assert_eq!(error("# nothing\n").line, 0);
    assert_eq!(file("ARG v=1\nFROM a:$v\n").global.len(), 1);
    assert!(
        error("FROM a AS b\nFROM c AS B\n")
            .message
            .contains("two stages")
    );
    assert!(error("FROM a b\n").hint.is_some());
    assert!(
        error(&format!("FROM a\nRUN {}\n", "x".repeat(9000)))
            .message
            .contains("build_line_bytes")
    );
    assert!(
        error(&format!("FROM a\n{}", "RUN x\n".repeat(200)))
            .message
            .contains("build_instructions")
    );
    assert!(
        error(&"#\n".repeat(40_000))
            .message
            .contains("build_file_bytes")
    );
}

#[test]
fn health_checks_are_kept_as_images_keep_them() {
    let Instruction::Healthcheck(check) =
        only("HEALTHCHECK --interval=1m30s --retries=3 CMD curl x")
    else {
        panic!();
    };
    assert_eq!(check["Interval"], 90_000_000_000_u64);
    assert_eq!(check["Test"], serde_json::json!(["CMD-SHELL", "curl x"]));
    assert!(parse_trigger("RUN x", 3, &BOUNDS).is_ok());
    assert!(parse_trigger("ONBUILD RUN x", 3, &BOUNDS).is_err());
}

#[test]
fn variables_quotes_and_escapes() {
    for (word, expected) in [
        ("$a-${a}", "1-1"),
        ("${a}b$ab", "1b"),
        ("${none:-x}${empty:-y}${empty-z}", "xy"),
        ("${a:+set}${none:+set}${empty:+s}${empty+t}", "sett"),
        ("${none:-${a}}", "1"),
        ("'$a' \"$a\"", "$a 1"),
        ("\\$a \"\\$a\" \"\\x\"", "$a $a \\x"),
        ("$ 100$", "$ 100$"),
        ("$long_name", "x y"),
    ] {
        assert_eq!(value(word).unwrap(), expected, "{word}");
    }
    for word in ["${", "${a", "'x", "\"x", "${a#x}", "${none:?why}", "${:-x}"] {
        assert!(value(word).is_err(), "{word}");
    }
    assert!(value(&"${none:-".repeat(100)).is_err());
}

#[test]
fn patterns_of_paths() {
    for (pattern, path, fits) in [
        ("*.go", "a.go", true),
        ("*.go", "d/a.go", false),
        ("**/*.go", "a.go", true),
        ("**/*.go", "x/y/a.go", true),
        ("a/**", "a/b/c", true),
        ("a/**/z", "a/z", true),
        ("a?c", "abc", true),
        ("[a-c]x", "bx", true),
        ("[^a-c]x", "bx", false),
        ("\\*", "*", true),
        ("\\*", "x", false),
        ("[", "[", true),
        ("*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
    ] {
        assert_eq!(
            glob::matches(pattern.as_bytes(), path.as_bytes()),
            fits,
            "{pattern} {path}"
        );
    }
}

#[test]
fn the_last_pattern_that_fits_decides() {
    let ignore =
        Ignore::parse("# c\n/node_modules\n*.log\n!keep.log\ndocs\n!docs/README.md\n").unwrap();
    for (path, out) in [
        ("node_modules/x/y", true),
        ("a.log", true),
        ("keep.log", false),
        ("d/a.log", false),
        ("docs/a.md", true),
        ("docs/README.md", false),
        ("src", false),
    ] {
        assert_eq!(ignore.excludes(path.as_bytes()), out, "{path}");
    }
    assert!(!ignore.is_final());
    assert!(Ignore::parse("../x").is_err());
}

proptest! {
    #[test]
    fn any_text_is_understood_or_refused(text in any::<String>()) {
        let _ = parse(&text, &BOUNDS);
        let _ = parse(&format!("FROM x\n{text}"), &BOUNDS);
        let _ = Ignore::parse(&text);
        let _ = value(&text);
    }

    #[test]
    fn instructions_of_any_text_have_a_line_in_it(
        text in "(FROM|RUN|COPY|ENV|ARG|#|<<E|E|--mount=type=|\\\\|\n|\"|'|\\$\\{|\\[| |a){0,60}"
    ) {
        let lines = text.lines().count();
        match parse(&text, &BOUNDS) {
            Ok(file) => for stage in &file.stages {
                prop_assert!(stage.steps.iter().all(|step| (1..=lines).contains(&step.line)));
            },
            Err(error) => prop_assert!(error.line <= lines.max(1)),
        }
    }

    #[test]
    fn a_path_without_wildcards_fits_itself_alone(path in "[a-z]{1,4}(/[a-z]{1,4}){0,3}", other in "[a-z/]{1,8}") {
        prop_assert!(glob::matches(path.as_bytes(), path.as_bytes()));
        prop_assert_eq!(glob::matches(path.as_bytes(), other.as_bytes()), path == other);
    }
}
