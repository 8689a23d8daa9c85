//! One function per promise of the contract.

use crate::Broken;
use crate::asks::{Asks, argv, shell};
use futures_util::StreamExt as _;
use motu_core::exec::{ExecEvent, ExecRequest};
use motu_core::files::{
    ChangeMode, FileType, FindFiles, ListFiles, ListOptions, MoveFile, RemoveFile, StatFile,
};
use motu_core::report::Examine;
use motu_core::sandbox::State;
use motu_core::{Error, ErrorKind, Program, SandboxId};
use std::fmt::Debug;
use std::time::{Duration, Instant};

/// How long a health check may take.
const FAST: Duration = Duration::from_secs(15);

fn told(error: Error) -> String {
    error.to_string()
}

fn same<T: PartialEq + Debug>(what: &str, found: T, expected: T) -> Broken {
    match found == expected {
        true => Ok(()),
        false => Err(format!("{what} is {found:?}, not {expected:?}")),
    }
}

pub(crate) async fn spawned(asks: &Asks<'_>) -> Broken {
    let found = asks.service.get_sandbox(asks.id()).await.map_err(told)?;
    same("the state", found.state, State::Running)
}

pub(crate) async fn output_and_exit(asks: &Asks<'_>) -> Broken {
    let done = asks.exec(shell(&["echo conformance-ok"])).await?;
    same("the output", done.stdout.as_str(), "conformance-ok\n")?;
    same("the exit code", done.exit_code, 0)
}

pub(crate) async fn nonzero_exit(asks: &Asks<'_>) -> Broken {
    let done = asks.exec(shell(&["exit 7"])).await?;
    same("the exit code", done.exit_code, 7)
}

pub(crate) async fn channels(asks: &Asks<'_>) -> Broken {
    let done = asks.exec(shell(&["echo out; echo err >&2"])).await?;
    same("standard output", done.stdout.as_str(), "out\n")?;
    same("standard error", done.stderr.as_str(), "err\n")
}

pub(crate) async fn shell_mode(asks: &Asks<'_>) -> Broken {
    let words = ["echo first; echo", "a b", "it's", "$HOME", "; exit 9"];
    let done = asks.exec(shell(&words)).await?;
    same(
        "the output",
        done.stdout.as_str(),
        "first\na b it's $HOME ; exit 9\n",
    )
}

pub(crate) async fn argv_mode(asks: &Asks<'_>) -> Broken {
    let done = asks
        .exec(argv(&["echo", "$(id)", ";", "a  b", "*", "'"]))
        .await?;
    same("the output", done.stdout.as_str(), "$(id) ; a  b * '\n")
}

pub(crate) async fn surroundings(asks: &Asks<'_>) -> Broken {
    asks.write("some where/file", b"").await?;
    let directory = asks.place("some where");
    let request = ExecRequest::from(Program {
        env: [("WHO".to_string(), "it's $USER".to_string())].into(),
        workdir: Some(directory.clone()),
        ..shell(&["echo \"$WHO\"; pwd"]).program
    });
    let done = asks.exec(request).await?;
    same(
        "the output",
        done.stdout,
        format!("it's $USER\n{directory}\n"),
    )
}

pub(crate) async fn missing_program(asks: &Asks<'_>) -> Broken {
    let done = asks.exec(argv(&["no-such-program"])).await?;
    same("the exit code", done.exit_code, 127)
}

pub(crate) async fn time_limit(asks: &Asks<'_>) -> Broken {
    let request = ExecRequest::from(Program {
        timeout_seconds: Some(1),
        ..shell(&["sleep 30"]).program
    });
    let begun = Instant::now();
    match asks.service.exec(asks.id(), request).await {
        Ok(done) => same("timed_out", done.timed_out, true)?,
        Err(error) => same("the error", error.kind, ErrorKind::Timeout)?,
    }
    match begun.elapsed() {
        taken if taken < Duration::from_secs(25) => Ok(()),
        taken => Err(format!("a limit of 1 s took {} s", taken.as_secs())),
    }
}

pub(crate) async fn stream(asks: &Asks<'_>) -> Broken {
    let session = asks
        .service
        .exec_stream(asks.id(), shell(&["echo stream-ok; exit 3"]));
    let mut session = session.await.map_err(told)?;
    let (mut out, mut code) = (Vec::new(), None);
    while let Some(event) = session.events.next().await {
        match event.map_err(told)? {
            ExecEvent::Stdout(bytes) => out.extend_from_slice(&bytes),
            ExecEvent::Exited(exited) => code = Some(exited.exit_code),
            _ => {}
        }
    }
    same(
        "the output",
        String::from_utf8_lossy(&out).as_ref(),
        "stream-ok\n",
    )?;
    same("the exit code", code, Some(3))
}

pub(crate) async fn at_once(asks: &Asks<'_>) -> Broken {
    let runs = (0..4).map(|number| async move {
        let text = format!("number {number}");
        let done = asks.exec(argv(&["echo", &text])).await?;
        same("the output", done.stdout, format!("{text}\n"))
    });
    let all = futures_util::future::join_all(runs).await;
    all.into_iter().collect()
}

pub(crate) async fn write_and_read(asks: &Asks<'_>) -> Broken {
    for content in ["", "hello, wörld\n", "bye"] {
        asks.write("a/b/contract.txt", content.as_bytes()).await?;
        let read = asks.read("a/b/contract.txt").await?;
        same("the content", read, content.as_bytes().to_vec())?;
    }
    Ok(())
}

pub(crate) async fn large_file(asks: &Asks<'_>) -> Broken {
    let content: Vec<u8> = (0..1_000_000u32)
        .map(|at| b'a' + (at / 97 % 26) as u8)
        .collect();
    asks.write("large", &content).await?;
    let read = asks.read("large").await?;
    same("the number of bytes", read.len(), content.len())?;
    same("that the bytes are the same", read == content, true)
}

pub(crate) async fn same_tree(asks: &Asks<'_>) -> Broken {
    asks.write("from-outside", b"outside\n").await?;
    let done = asks
        .exec(argv(&["cat", &asks.place("from-outside")]))
        .await?;
    same("what a command reads", done.stdout.as_str(), "outside\n")?;
    let script = format!("echo inside > {}", asks.place("from-inside"));
    asks.exec(shell(&[&script])).await?;
    same(
        "what a command wrote",
        asks.read("from-inside").await?,
        b"inside\n".to_vec(),
    )
}

pub(crate) async fn stat(asks: &Asks<'_>) -> Broken {
    asks.write("dir/file", b"12345").await?;
    let stat = async |name: &str| {
        let path = asks.path(name)?;
        let stat = StatFile {
            path,
            follow: true,
            user: None,
        };
        asks.service.stat(asks.id(), stat).await.map_err(told)
    };
    let file = stat("dir/file").await?;
    same(
        "kind and size",
        (file.kind, file.size_bytes),
        (FileType::File, 5),
    )?;
    same("the name", file.name.as_str(), "file")?;
    same("the kind", stat("dir").await?.kind, FileType::Directory)
}

pub(crate) async fn list(asks: &Asks<'_>) -> Broken {
    for name in ["listed/b", "listed/a", "listed/c/d"] {
        asks.write(name, b"x").await?;
    }
    let list = ListFiles::new(asks.path("listed")?, ListOptions::default());
    let page = asks
        .service
        .list_files(asks.id(), list)
        .await
        .map_err(told)?;
    let mut names: Vec<String> = page.entries.into_iter().map(|entry| entry.name).collect();
    names.sort();
    same(
        "the list",
        names,
        ["a", "b", "c"].map(String::from).to_vec(),
    )
}

pub(crate) async fn glob(asks: &Asks<'_>) -> Broken {
    for name in [
        "found/contract-1.txt",
        "found/contract-2.txt",
        "found/other",
    ] {
        asks.write(name, b"x").await?;
    }
    let find = FindFiles::new(asks.place("found/contract*.txt"), None);
    let page = asks.service.glob(asks.id(), find).await.map_err(told)?;
    same("how many there are", page.entries.len(), 2)
}

pub(crate) async fn move_file(asks: &Asks<'_>) -> Broken {
    asks.write("moved-from", b"content").await?;
    let wanted = MoveFile {
        from: asks.path("moved-from")?,
        to: asks.path("moved-to")?,
        overwrite: true,
        user: None,
    };
    asks.service
        .move_file(asks.id(), wanted)
        .await
        .map_err(told)?;
    same(
        "the content",
        asks.read("moved-to").await?,
        b"content".to_vec(),
    )?;
    same(
        "that the old one is there",
        asks.exists("moved-from").await?,
        false,
    )
}

pub(crate) async fn chmod(asks: &Asks<'_>) -> Broken {
    asks.write("script", b"").await?;
    for mode in [0o755, 0o600] {
        let path = asks.path("script")?;
        let changed = asks
            .service
            .chmod(
                asks.id(),
                ChangeMode {
                    path,
                    mode,
                    user: None,
                },
            )
            .await;
        same("the mode", changed.map_err(told)?.mode, mode)?;
    }
    Ok(())
}

pub(crate) async fn delete(asks: &Asks<'_>) -> Broken {
    asks.write("gone/file", b"").await?;
    let remove = async |name: &str, recursive| {
        let path = asks.path(name)?;
        let remove = RemoveFile {
            path,
            recursive,
            user: None,
        };
        Ok::<_, String>(asks.service.remove_file(asks.id(), remove).await)
    };
    if remove("gone", false).await?.is_ok() {
        return Err("a directory with a file in it went without being told to".to_string());
    }
    same(
        "that the file is there",
        asks.exists("gone/file").await?,
        true,
    )?;
    remove("gone/file", false).await?.map_err(told)?;
    same(
        "that the file is there",
        asks.exists("gone/file").await?,
        false,
    )?;
    asks.write("gone/again", b"").await?;
    remove("gone", true).await?.map_err(told)?;
    same(
        "that the directory is there",
        asks.exists("gone").await?,
        false,
    )
}

pub(crate) async fn missing_file(asks: &Asks<'_>) -> Broken {
    if asks.read("no-such-file").await.is_ok() {
        return Err("reading it gives something".to_string());
    }
    same(
        "that it is there",
        asks.exists("no-such-file").await?,
        false,
    )?;
    let done = asks.exec(argv(&["true"])).await?;
    same("the exit code of a command after it", done.exit_code, 0)
}

pub(crate) async fn unknown_sandbox(asks: &Asks<'_>) -> Broken {
    let id = SandboxId::generate();
    match asks.service.exec(&id, argv(&["true"])).await {
        Ok(_) => Err("a command runs in it".to_string()),
        Err(error) => same("the error", error.kind, ErrorKind::NotFound),
    }
}

pub(crate) async fn health(asks: &Asks<'_>) -> Broken {
    let begun = Instant::now();
    let doctor = asks
        .service
        .doctor(Examine { deep: false })
        .await
        .map_err(told)?;
    let taken = begun.elapsed();
    let mut runtimes = doctor.runtimes.iter();
    // Runtimes that only tests use are in no report.
    if let Some(report) = runtimes.find(|report| report.name == asks.sandbox.runtime) {
        same("that it works", report.works, true)?;
    }
    match taken < FAST {
        true => Ok(()),
        false => Err(format!("it took {} s", taken.as_secs())),
    }
}

pub(crate) async fn destroy(asks: &Asks<'_>) -> Broken {
    for _ in 0..2 {
        let gone = asks
            .service
            .destroy_sandbox(asks.id())
            .await
            .map_err(told)?;
        same("the state", gone.state, State::Destroyed)?;
    }
    Ok(())
}

pub(crate) async fn after_destroy(asks: &Asks<'_>) -> Broken {
    match asks.service.exec(asks.id(), argv(&["true"])).await {
        Ok(_) => return Err("a command runs in it".to_string()),
        Err(error) => same("the error of a command", error.kind, ErrorKind::NotFound)?,
    }
    let path = asks.path("large")?;
    let stat = StatFile {
        path,
        follow: true,
        user: None,
    };
    match asks.service.stat(asks.id(), stat).await {
        Ok(_) => Err("its files are there".to_string()),
        Err(error) => same("the error of a file", error.kind, ErrorKind::NotFound),
    }
}
