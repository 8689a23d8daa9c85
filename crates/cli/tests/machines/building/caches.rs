//! Cache mounts: their content is available to the next build, and is in no tree.

use motu_testkit::builds::{able, build, built, project, says, world_of_its_own};
use std::fs;
use std::process::Stdio;

/// Adds a line to a cache and records the cache's content.
const GROWING: &str = "FROM busybox\n\
    RUN mkdir -p /tools && echo tree > /tools/of-the-tree\n\
    ARG N\n\
    RUN --mount=type=cache,id=tools,target=/tools,uid=7,gid=8,mode=0750 \
        test ! -e /tools/of-the-tree && stat -c %u:%g:%a /tools > /seen && \
        mkdir -p -m 0700 /tools/deep && echo line $N >> /tools/deep/log && chown 5:6 /tools/deep/log && \
        ln -sf deep/log /tools/link && cat /tools/link >> /seen && stat -c %u:%g /tools/deep/log >> /seen && \
        touch /tools/made-by-$N\n";

#[test]
fn a_cache_keeps_its_contents_from_build_to_build() {
    let Some(story) = world_of_its_own() else {
        return;
    };
    let dir = project(&story, "growing", &[("Dockerfile", GROWING)]);
    let mut seen = "7:8:750\n".to_string();
    for number in ["1", "2", "3"] {
        let argument = format!("N={number}");
        built(&build(
            &story,
            &dir,
            &["-t", "growing:1", "--build-arg", &argument],
        ));
        seen.push_str(&format!("line {number}\n"));
        let expected = format!("{seen}5:6");
        says(
            &story,
            &["run", "growing:1", "--", "cat", "/seen"],
            &expected,
        );
    }
    // The tree has nothing of the cache, and keeps what was at that path before.
    says(
        &story,
        &["run", "growing:1", "--", "ls", "/tools"],
        "of-the-tree",
    );
    // Another id is another cache; the same id at another path is the same cache.
    let other = GROWING.replace("id=tools", "id=others");
    let dir = project(&story, "other", &[("Dockerfile", &other)]);
    built(&build(
        &story,
        &dir,
        &["-t", "other:1", "--build-arg", "N=1"],
    ));
    says(
        &story,
        &["run", "other:1", "--", "cat", "/seen"],
        "7:8:750\nline 1\n5:6",
    );
    let moved = "FROM busybox\nRUN --mount=type=cache,id=tools,target=here ls here > /seen\n";
    let dir = project(&story, "moved", &[("Dockerfile", moved)]);
    built(&build(&story, &dir, &["-t", "moved:1"]));
    says(
        &story,
        &["run", "moved:1", "--", "cat", "/seen"],
        "deep\nlink\nmade-by-1\nmade-by-2\nmade-by-3",
    );
    // `prune --all` removes caches.
    assert_eq!(fs::read_dir(mounts(&story)).unwrap().count(), 2);
    motu_needs::probes::own_machines(&story.home());
    assert_eq!(story.motu(&["env", "prune", "--all"]).code, 0);
    assert!(!mounts(&story).exists());
}

fn mounts(story: &motu_testkit::story::Story) -> std::path::PathBuf {
    story.home().join("cache/build/mounts")
}

#[test]
fn what_a_step_that_fails_has_put_into_a_cache_stays() {
    let Some(story) = world_of_its_own() else {
        return;
    };
    let text = |end: &str| {
        format!(
            "FROM busybox\nRUN --mount=type=cache,target=/c cat /c/kept > /seen; echo x > /c/kept; {end}\n"
        )
    };
    let dir = project(&story, "failing", &[("Dockerfile", &text("exit 3"))]);
    let told = build(&story, &dir, &["-t", "failing:1"]);
    assert_eq!(told.code, 102, "{told}");
    assert!(told.stdout.contains("exit code 3"), "{told}");
    let dir = project(&story, "failing", &[("Dockerfile", &text("true"))]);
    built(&build(&story, &dir, &["-t", "failing:1"]));
    says(&story, &["run", "failing:1", "--", "cat", "/seen"], "x");
    // A step can empty the cache.
    let empty = "FROM busybox\nRUN --mount=type=cache,target=/c rm -r /c\n\
        RUN --mount=type=cache,target=/c ls -A /c > /seen\n";
    let dir = project(&story, "empty", &[("Dockerfile", empty)]);
    built(&build(&story, &dir, &["-t", "empty:1"]));
    says(&story, &["run", "empty:1", "--", "cat", "/seen"], "");
}

#[test]
fn builds_at_the_same_time_lose_nothing_of_a_cache() {
    let Some(story) = world_of_its_own() else {
        return;
    };
    let text = "FROM busybox\nARG N\nRUN --mount=type=cache,id=log,target=/c,sharing=locked \
        echo $N >> /c/log && cp /c/log /seen\n";
    let dir = project(&story, "locked", &[("Dockerfile", text)]);
    assert_eq!(story.motu(&["ps"]).code, 0);
    let building: Vec<_> = (0..4)
        .map(|number| {
            let (name, argument) = (format!("locked:{number}"), format!("N={number}"));
            let args = ["env", "build", "-t", &name, "--build-arg", &argument];
            let mut command = story.command(&args);
            command
                .arg(&dir)
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            command.spawn().unwrap()
        })
        .collect();
    for mut one in building {
        assert!(one.wait().unwrap().success());
    }
    let last = "FROM busybox\nRUN --mount=type=cache,id=log,target=/c sort /c/log > /seen\n";
    let dir = project(&story, "last", &[("Dockerfile", last)]);
    built(&build(&story, &dir, &["-t", "last:1"]));
    says(
        &story,
        &["run", "last:1", "--", "cat", "/seen"],
        "0\n1\n2\n3",
    );
}

#[test]
fn every_runtime_that_builds_keeps_caches() {
    let Some(story) = world_of_its_own() else {
        return;
    };
    let text = "FROM busybox\nARG N\nRUN --mount=type=cache,id=all,target=/workspace/c \
        --mount=type=cache,target=/var/c echo $N >> /workspace/c/log && \
        echo $N >> /var/c/log && cat /workspace/c/log /var/c/log > /seen\n";
    let dir = project(&story, "all", &[("Dockerfile", text)]);
    let mut lines = String::new();
    for runtime in able() {
        let argument = format!("N={runtime}");
        let more = [
            "-t",
            "all:1",
            "--runtime",
            &runtime,
            "--build-arg",
            &argument,
        ];
        built(&build(&story, &dir, &more));
        lines.push_str(&format!("{runtime}\n"));
        let expected = lines.repeat(2);
        says(
            &story,
            &["run", "all:1", "--", "cat", "/seen"],
            expected.trim(),
        );
        let left = "! test -e /workspace/c && ! test -e /var/c/log";
        says(&story, &["run", "all:1", "--", "sh", "-c", left], "");
    }
    assert!(!lines.is_empty());
}

#[test]
fn places_that_cannot_be_caches_are_refused() {
    let Some(story) = world_of_its_own() else {
        return;
    };
    for (mounts, part) in [
        ("--mount=type=cache,target=/", "/ cannot be a cache"),
        (
            "--mount=type=cache,target=/workspace",
            "/workspace cannot be a cache",
        ),
        (
            "--mount=type=cache,target=/proc/x",
            "/proc/x cannot be a cache",
        ),
        ("--mount=type=cache,target=/../x", "leads out of the root"),
        (
            "--mount=type=cache,target=/etc/passwd",
            "/etc/passwd is not a directory",
        ),
        (
            "--mount=type=cache,id=a,target=/x --mount=type=cache,id=a,target=/y",
            "the cache a is in this step twice",
        ),
        (
            "--mount=type=cache,target=/x,sharing=never",
            "sharing=never is not known",
        ),
    ] {
        let text = format!("FROM busybox\nRUN {mounts} true\n");
        let dir = project(&story, "refused", &[("Dockerfile", &text)]);
        let told = build(&story, &dir, &["-t", "refused:1"]);
        assert_ne!(told.code, 0, "{mounts}: {told}");
        assert!(told.stdout.contains(part), "{mounts}: {told}");
    }
}

#[test]
fn a_secret_belongs_to_whom_the_step_says() {
    let Some(story) = world_of_its_own() else {
        return;
    };
    let text = "FROM busybox\nUSER 7:8\nRUN --mount=type=secret,id=token,uid=7,gid=8,mode=0440 \
        stat -L -c %u:%g:%a /run/secrets/token > /tmp/seen && test \"$(cat /run/secrets/token)\" = value-of-a-token\n";
    let dir = project(&story, "owned", &[("Dockerfile", text)]);
    let file = story.path().join("token");
    fs::write(&file, "value-of-a-token").unwrap();
    let token = format!("id=token,src={}", file.display());
    built(&build(&story, &dir, &["-t", "owned:1", "--secret", &token]));
    says(
        &story,
        &["run", "owned:1", "--", "cat", "/tmp/seen"],
        "7:8:440",
    );
}
