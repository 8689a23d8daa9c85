//! Processes through the real guest: output, exit, input, signals and limits.

use crate::support::*;
use motu_link::frame::CHANNEL_OUT;
use motu_link::message::*;
use std::time::{Duration, Instant};

#[tokio::test]
async fn output_and_exit_code_come_back() {
    let machine = Machine::start().await;
    let said = machine
        .shell("printf out; printf err >&2; exit 3")
        .await
        .ok();
    assert_eq!((&said.out[..], &said.err[..]), (&b"out"[..], &b"err"[..]));
    let exited = said.exited();
    assert_eq!(
        (exited.code, exited.signal, exited.timed_out),
        (3, 0, false)
    );
    assert_eq!((exited.out_total, exited.err_total), (3, 3));
    assert!(exited.usage.unwrap().max_rss_bytes > 0);
    assert!(said.started().pid > 1);
}

#[tokio::test]
async fn a_signal_is_the_end_it_was() {
    let machine = Machine::start().await;
    let exited = machine.shell("kill -SEGV $$").await.ok().exited();
    assert_eq!((exited.code, exited.signal), (128 + 11, 11));
}

#[tokio::test]
async fn two_hundred_megabytes_without_a_newline_arrive_exactly() {
    let machine = Machine::start().await;
    let mut stream = machine
        .open(Verb::Start(sh("head -c 200000000 /dev/zero | tr '\\0' x")))
        .await;
    let mut total = 0u64;
    loop {
        match next(&mut stream).await {
            Next::Data(CHANNEL_OUT, bytes) => {
                assert!(bytes.iter().all(|byte| *byte == b'x'));
                total += bytes.len() as u64;
            }
            Next::Note(Said::Exited(exited)) => assert_eq!(exited.out_total, 200_000_000),
            Next::End(_) => break,
            Next::Note(Said::Gap(gap)) => panic!("lost {gap:?}"),
            _ => {}
        }
    }
    assert_eq!(total, 200_000_000);
}

#[tokio::test]
async fn every_byte_value_survives() {
    let machine = Machine::start().await;
    let all: Vec<u8> = (0..=255).collect();
    std::fs::write(machine.file("all"), &all).unwrap();
    let said = machine
        .shell(&format!("cat {}", machine.file("all").display()))
        .await
        .ok();
    assert_eq!(said.out, all);
}

#[tokio::test]
async fn a_program_that_closes_its_output_runs_on() {
    let machine = Machine::start().await;
    let flag = machine.file("flag");
    let script = format!(
        "echo before; exec >&- 2>&-; while [ ! -e {} ]; do sleep 0.01; done; exit 7",
        flag.display()
    );
    let mut stream = machine.open(Verb::Start(sh(&script))).await;
    read_until(&mut stream, "before").await;
    std::fs::write(&flag, "").unwrap();
    assert_eq!(finish(stream).await.ok().exited().code, 7);
}

#[tokio::test]
async fn a_daemon_that_keeps_the_pipe_does_not_hold_the_exit() {
    let machine = Machine::start().await;
    let flag = machine.file("flag");
    let script = format!(
        "(while [ ! -e {0} ]; do sleep 0.01; done; echo late; rm {0}) & echo early",
        flag.display()
    );
    let said = machine.shell(&script).await.ok();
    assert_eq!(said.out, b"early\n");
    let pid = said.started().pid;
    let found = machine
        .processes()
        .await
        .into_iter()
        .find(|process| process.pid == pid)
        .unwrap();
    assert!(found.alive >= 1 && found.exited.is_some());
    std::fs::write(&flag, "").unwrap();
    eventually("the late line is kept", async || {
        let attach = Attach {
            process: by_pid(pid),
            from_oldest: true,
            ..Attach::default()
        };
        machine.call(Verb::Attach(attach)).await.out == b"early\nlate\n"
    })
    .await;
}

#[tokio::test]
async fn a_tree_kill_leaves_nothing() {
    let machine = Machine::start().await;
    let mark = "motu_test_survivor";
    let script = format!(
        "trap '' TERM; (trap '' TERM HUP; setsid sh -c 'trap \"\" TERM; (sleep 1000; : {mark}) & sleep 1000; : {mark}' & ) ; echo ready; sleep 1000; : {mark}"
    );
    let mut stream = machine.open(Verb::Start(sh(&script))).await;
    let pid = match next(&mut stream).await {
        Next::Note(Said::Started(started)) => started.pid,
        other => panic!("{other:?}"),
    };
    read_until(&mut stream, "ready").await;
    let alive = async || {
        let all = machine.processes().await;
        all.into_iter()
            .find(|process| process.pid == pid)
            .unwrap()
            .alive
    };
    eventually("the tree has grown", async || alive().await >= 4).await;
    let signal = |signal, tree| {
        Verb::Signal(Signal {
            process: by_pid(pid),
            signal,
            tree,
        })
    };
    machine.call(signal(15, true)).await.ok();
    assert!(alive().await >= 4, "everything ignores SIGTERM");
    machine.call(signal(9, true)).await.ok();
    assert_eq!(alive().await, 0);
    assert_eq!(finish(stream).await.ok().exited().code, 137);
    machine.call(signal(9, true)).await.fails(Failure::NotFound);
}

#[tokio::test]
async fn a_timeout_kills_the_tree_and_returns_what_was_written() {
    let machine = Machine::start().await;
    let start = Start {
        timeout_ms: 300,
        ..sh("printf captured; setsid sleep 1000 & sleep 1000")
    };
    let said = machine.call(Verb::Start(start)).await.ok();
    assert_eq!(said.out, b"captured");
    let exited = said.exited();
    assert_eq!(
        (exited.timed_out, exited.signal, exited.code),
        (true, 9, 137)
    );
    let pid = said.started().pid;
    let found = machine
        .processes()
        .await
        .into_iter()
        .find(|process| process.pid == pid);
    assert_eq!(found.unwrap().alive, 0);
}

#[tokio::test]
async fn a_fork_bomb_is_ended_by_its_timeout() {
    let machine = Machine::start().await;
    let script = "f() { (sleep 0.05; f) & (sleep 0.05; f) & sleep 0.1; }; ulimit -u 300 2>/dev/null; n=0; while [ $n -lt 40 ]; do (sleep 1000 &) ; n=$((n+1)); done; while :; do (sleep 0.01 &); done";
    let start = Start {
        timeout_ms: 500,
        ..sh(script)
    };
    let said = machine.call(Verb::Start(start)).await.ok();
    assert!(said.exited().timed_out);
    assert!(
        machine
            .processes()
            .await
            .iter()
            .all(|process| process.alive == 0)
    );
}

/// Each process forks the next and ends at once: whoever is looked for by a list is gone already.
#[tokio::test]
async fn processes_that_run_from_their_killer_are_caught() {
    const CHAINS: u32 = 12;
    let Some(machine) = Machine::start_as_init().await else {
        eprintln!("skipped: no pid namespaces here");
        return;
    };
    let mut beside = machine.open(Verb::Start(sh("echo up; cat"))).await;
    read_until(&mut beside, "up").await;
    let resting = sh("sleep 1000 & kill -STOP $!; echo $!; wait");
    let mut resting = machine.open(Verb::Start(resting)).await;
    let rests = read_until(&mut resting, "\n").await;
    let hop = "import os\n\
        for _ in range(int(os.sys.argv[1])):\n  if os.fork() == 0: break\n\
        else: os.sys.exit()\n\
        os.setsid()\n\
        while True:\n  if os.fork(): os._exit(0)";
    let script = format!("python3 -c '{hop}' {CHAINS}; sleep 1000");
    let start = Start {
        timeout_ms: 700,
        ..sh(&script)
    };
    let begin = Instant::now();
    let said = machine.call(Verb::Start(start)).await.ok();
    assert!(said.exited().timed_out);
    let pid = said.started().pid;
    eventually("the chains are gone", async || {
        let all = machine.processes().await;
        all.iter()
            .all(|process| process.pid != pid || process.alive == 0)
    })
    .await;
    assert!(
        begin.elapsed() < Duration::from_secs(5),
        "{:?}",
        begin.elapsed()
    );
    // What stood still for a moment goes on, and what rested before rests.
    let state = format!("cut -d' ' -f3 /proc/{}/stat", rests.trim());
    let said = machine.shell(&state).await.ok();
    assert_eq!(said.out, b"T\n");
    beside.tx.eof().await.unwrap();
    assert_eq!(finish(beside).await.ok().exited().code, 0);
    end(machine).await;
}

/// `unshare`, around a guest that is init, does not listen to signals.
async fn end(machine: Machine) {
    let shutdown = Shutdown { grace_ms: 10 };
    machine.call(Verb::Shutdown(shutdown)).await.ok();
    machine.link.closed().await;
}

/// Privileged inside, it takes the guest its descriptors, without which no process is found.
#[tokio::test]
async fn a_guest_without_open_files_ends_what_is_overdue() {
    let Some(machine) = Machine::start_as_init().await else {
        eprintln!("skipped: no pid namespaces here");
        return;
    };
    let take = "import os, resource\n\
        for thread in os.listdir(\"/proc/1/task\"):\n  \
        resource.prlimit(int(thread), resource.RLIMIT_NOFILE, (0, 4096))";
    let start = Start {
        timeout_ms: 500,
        ..sh(&format!(
            "setsid sleep 1000 & python3 -c '{take}'; sleep 1000"
        ))
    };
    let said = machine.call(Verb::Start(start)).await.ok();
    assert!(said.exited().timed_out);
    let left = machine
        .shell("grep -sl '^sleep$' /proc/[0-9]*/comm")
        .await
        .ok();
    assert_eq!(
        left.exited().code,
        1,
        "{}",
        String::from_utf8_lossy(&left.out)
    );
    end(machine).await;
}

#[tokio::test]
async fn a_missing_program_is_named() {
    let machine = Machine::start().await;
    let said = machine
        .call(Verb::Start(argv(&["no-such-program-here"])))
        .await;
    assert_eq!(said.outcome.errno, 2);
    assert!(
        said.fails(Failure::CannotRun)
            .contains("no-such-program-here")
    );
    let said = machine.call(Verb::Start(argv(&["/no/such"]))).await;
    assert_eq!(said.outcome.errno, 2);
    assert!(said.fails(Failure::CannotRun).contains("/no/such"));
    std::fs::write(machine.file("plain"), "text").unwrap();
    let said = machine
        .call(Verb::Start(argv(&[machine
            .file("plain")
            .to_str()
            .unwrap()])))
        .await;
    assert_eq!(said.outcome.errno, 13);
    said.fails(Failure::CannotRun);
    machine
        .call(Verb::Start(Start::default()))
        .await
        .fails(Failure::Invalid);
    assert!(machine.processes().await.is_empty());
}

#[tokio::test]
async fn a_missing_directory_is_an_error_only_when_asked_for() {
    let machine = Machine::start().await;
    let start = Start {
        cwd: path("/no/such/dir"),
        ..sh("pwd")
    };
    let message = machine
        .call(Verb::Start(start))
        .await
        .fails(Failure::NoDirectory);
    assert!(message.contains("/no/such/dir"));
    let init = Init {
        default_cwd: path("/no/such/default"),
        file_root: bytes_of(&machine.root()),
        env: [("FROM_INIT".to_string(), "yes".to_string())].into(),
        ..Init::default()
    };
    machine.call(Verb::Init(init)).await.ok();
    let said = machine
        .shell("pwd; echo $FROM_INIT $LANG $EXTRA")
        .await
        .ok();
    assert_eq!(said.out, b"/\nyes C.UTF-8\n");
    let start = Start {
        env: [("EXTRA".to_string(), "more".to_string())].into(),
        clear_env: true,
        ..sh("echo $FROM_INIT$EXTRA")
    };
    assert_eq!(machine.call(Verb::Start(start)).await.ok().out, b"more\n");
}

#[tokio::test]
async fn shell_arguments_are_appended_as_words() {
    let machine = Machine::start().await;
    let mut start = sh("printf '%s|'");
    start
        .argv
        .extend([path("a b"), path("it's"), path("$HOME")]);
    assert_eq!(
        machine.call(Verb::Start(start)).await.ok().out,
        b"a b|it's|$HOME|"
    );
}

#[tokio::test]
async fn tags_are_unique_among_the_living_and_checked() {
    let machine = Machine::start().await;
    let start = |script: &str| Start {
        tag: "one".into(),
        follow: false,
        lossless: false,
        ..sh(script)
    };
    machine.call(Verb::Start(start("sleep 1000"))).await.ok();
    machine
        .call(Verb::Start(start("true")))
        .await
        .fails(Failure::Exists);
    for bad in ["a b", "ä", "x/y", &"x".repeat(65)] {
        let start = Start {
            tag: bad.to_string(),
            ..start("true")
        };
        machine
            .call(Verb::Start(start))
            .await
            .fails(Failure::Invalid);
    }
    machine
        .call(Verb::Forget(by_tag("one").unwrap()))
        .await
        .fails(Failure::Invalid);
    machine
        .call(Verb::Signal(Signal {
            process: by_tag("one"),
            signal: 99,
            tree: false,
        }))
        .await
        .fails(Failure::Invalid);
    machine
        .call(Verb::Signal(Signal {
            process: by_tag("one"),
            signal: 15,
            tree: false,
        }))
        .await
        .ok();
    let said = machine
        .call(Verb::Attach(Attach {
            process: by_tag("one"),
            ..Attach::default()
        }))
        .await
        .ok();
    assert_eq!(said.exited().signal, 15);
    machine.call(Verb::Start(start("true"))).await.ok();
    machine
        .call(Verb::Signal(Signal {
            process: by_tag("two"),
            signal: 15,
            tree: false,
        }))
        .await
        .fails(Failure::NotFound);
    machine
        .call(Verb::Signal(Signal::default()))
        .await
        .fails(Failure::Invalid);
}

#[tokio::test]
async fn records_are_kept_until_forgotten() {
    let machine = Machine::start().await;
    let pid = machine.shell("echo kept").await.ok().started().pid;
    let attach = || {
        Verb::Attach(Attach {
            process: by_pid(pid),
            ..Attach::default()
        })
    };
    assert_eq!(machine.call(attach()).await.ok().out, b"kept\n");
    eventually("the shim is gone", async || {
        machine.call(Verb::Forget(by_pid(pid).unwrap())).await;
        machine.call(attach()).await.failure() == Failure::NotFound
    })
    .await;
    let start = Start {
        forget: true,
        ..sh("true")
    };
    machine.call(Verb::Start(start)).await.ok();
    eventually("nothing is listed", async || {
        machine.processes().await.is_empty()
    })
    .await;
}

#[tokio::test]
async fn ended_records_are_bounded() {
    let machine = Machine::start().await;
    for _ in 0..300 {
        machine.call(Verb::Start(argv(&["/bin/true"]))).await.ok();
    }
    eventually("old records go", async || {
        machine.processes().await.len() <= 257
    })
    .await;
}

#[tokio::test]
async fn another_user_runs_it() {
    if !is_root() {
        eprintln!("skipped: only root can become another user");
        return;
    }
    let machine = Machine::start().await;
    let start = Start {
        user: "12345:12346".into(),
        ..sh("id -u; id -g; id -G; echo $HOME; kill -0 1 2>/dev/null || echo weak")
    };
    let said = machine.call(Verb::Start(start)).await.ok();
    assert_eq!(
        String::from_utf8_lossy(&said.out),
        "12345\n12346\n12346\n/\nweak\n"
    );
    let start = Start {
        user: "no-such-user".into(),
        ..sh("id")
    };
    machine
        .call(Verb::Start(start))
        .await
        .fails(Failure::NoUser);
}

#[tokio::test]
async fn children_start_with_clean_signals_and_descriptors() {
    let machine = Machine::start().await;
    let said = machine
        .shell("grep -E 'Sig(Blk|Ign)' /proc/self/status; ls /proc/self/fd")
        .await
        .ok();
    let text = String::from_utf8_lossy(&said.out).replace('\t', "");
    assert!(
        text.contains("SigBlk:0000000000000000") && text.contains("SigIgn:0000000000000000"),
        "{text}"
    );
    // 0, 1, 2 and the directory being listed.
    assert_eq!(text.lines().skip(2).count(), 4, "{text}");
}

#[tokio::test]
async fn a_killed_shim_does_not_lose_the_program() {
    let machine = Machine::start().await;
    let mut stream = machine.open(Verb::Start(sh("echo up; sleep 1000"))).await;
    let pid = match next(&mut stream).await {
        Next::Note(Said::Started(started)) => started.pid,
        other => panic!("{other:?}"),
    };
    read_until(&mut stream, "up").await;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let shim: i32 = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    assert_ne!(shim as u32, machine.pid());
    let kill = |pid: i32| {
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    };
    kill(shim);
    eventually("the guest adopted it", async || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit(')').next().unwrap().split_whitespace().nth(1)
            == Some(&machine.pid().to_string())
    })
    .await;
    machine
        .call(Verb::Signal(Signal {
            process: by_pid(pid),
            signal: 9,
            tree: true,
        }))
        .await
        .ok();
    assert_eq!(finish(stream).await.ok().exited().code, 137);
}

#[tokio::test]
async fn numbers_without_sense_do_no_harm() {
    let machine = Machine::start().await;
    let start = Start {
        timeout_ms: u64::MAX,
        ring_bytes: u32::MAX,
        pty: Some(PtySize {
            cols: u32::MAX,
            rows: u32::MAX,
        }),
        ..sh("echo fine")
    };
    assert_eq!(machine.call(Verb::Start(start)).await.ok().out, b"fine\r\n");
    let attach = Attach {
        process: by_pid(u32::MAX),
        ..Attach::default()
    };
    machine
        .call(Verb::Attach(attach))
        .await
        .fails(Failure::NotFound);
    let read = Read {
        path: path("/"),
        offset: u64::MAX,
        length: u64::MAX,
        ..Default::default()
    };
    machine.call(Verb::Read(read)).await.fails(Failure::Invalid);
    machine.call(Verb::Ping(Ping {})).await.ok();
}
