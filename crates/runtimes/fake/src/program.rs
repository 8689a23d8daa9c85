//! The programs of a fake machine.
//!
//! | command | does |
//! |---|---|
//! | `true`, `false` | exit 0, exit 1 |
//! | `echo [-n] WORD…` | prints its words |
//! | `cat [FILE…]` | copies files, or standard input |
//! | `sleep SECONDS` | waits; fractions are fine |
//! | `env`, `pwd` | prints the environment, the working directory |
//! | `flood BYTES` | prints that many bytes |
//! | `sh -c SCRIPT` | simple commands joined by `;`, `&&`, `\|\|`, `&`; quotes; `$NAME`; `>&2`, `2>&1`, `> FILE`, `>> FILE`; `cd`, `exit`, `export` |

use crate::files::{Put, normal};
use crate::machine::Machine;
use crate::process::{Process, Variables};
use crate::script::{self, Item, Part, Redirect, Then, Word};
use bytes::Bytes;
use motu_link::frame::{CHANNEL_ERR, CHANNEL_OUT};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

const PROGRAMS: [&str; 9] = [
    "true", "false", "echo", "cat", "sleep", "env", "pwd", "flood", "sh",
];
/// Bytes a flood writes before it yields.
const FLOOD_CHUNK: usize = 64 * 1024;

/// Where output goes.
#[derive(Clone, Debug)]
enum Sink {
    Channel(u8),
    File(Vec<u8>),
}

/// The context of a program.
#[derive(Clone, Debug)]
pub struct Context {
    machine: Arc<Machine>,
    process: Arc<Process>,
    env: Variables,
    cwd: Vec<u8>,
    out: Sink,
    err: Sink,
}

impl Context {
    pub(crate) fn new(
        machine: Arc<Machine>,
        process: Arc<Process>,
        env: Variables,
        cwd: Vec<u8>,
    ) -> Context {
        Context {
            machine,
            process,
            env,
            cwd,
            out: Sink::Channel(CHANNEL_OUT),
            err: Sink::Channel(CHANNEL_ERR),
        }
    }

    async fn write(&self, sink: &Sink, bytes: &[u8]) {
        self.machine.not_paused().await;
        match sink {
            Sink::Channel(channel) => self.process.write(*channel, bytes),
            Sink::File(path) => {
                let how = Put {
                    append: true,
                    ..Put::default()
                };
                // The file was created when the output was redirected to it.
                let _ = self
                    .machine
                    .tree()
                    .put(path, Bytes::copy_from_slice(bytes), how);
            }
        }
    }

    async fn print(&self, text: &str) {
        self.write(&self.out, text.as_bytes()).await;
    }

    async fn complain(&self, text: &str) {
        self.write(&self.err, text.as_bytes()).await;
    }

    /// Resolves a path relative to the working directory.
    fn resolve(&self, path: &str) -> Vec<u8> {
        match path.starts_with('/') {
            true => normal(path.as_bytes()),
            false => normal(&[&self.cwd[..], b"/", path.as_bytes()].concat()),
        }
    }
}

/// The program's name without a usual directory.
fn base(name: &str) -> &str {
    ["/bin/", "/usr/bin/"]
        .iter()
        .find_map(|directory| name.strip_prefix(directory))
        .unwrap_or(name)
}

/// Whether there is such a program.
pub fn known(name: &str) -> bool {
    PROGRAMS.contains(&base(name))
}

/// Runs a command to its end.
pub(crate) fn run(
    context: Context,
    argv: Vec<String>,
) -> Pin<Box<dyn Future<Output = i32> + Send>> {
    Box::pin(async move {
        let words: Vec<&str> = argv.iter().map(String::as_str).collect();
        let Some((name, arguments)) = words.split_first() else {
            return 0;
        };
        match base(name) {
            "true" => 0,
            "false" => 1,
            "echo" => echo(&context, arguments).await,
            "cat" => cat(&context, arguments).await,
            "sleep" => sleep(&context, arguments).await,
            "env" => env(&context).await,
            "pwd" => {
                context
                    .print(&format!("{}\n", String::from_utf8_lossy(&context.cwd)))
                    .await;
                0
            }
            "flood" => flood(&context, arguments).await,
            "sh" => shell(context, arguments).await,
            _ => {
                context.complain(&format!("sh: {name}: not found\n")).await;
                127
            }
        }
    })
}

async fn echo(context: &Context, arguments: &[&str]) -> i32 {
    let (words, end) = match arguments.split_first() {
        Some((&"-n", words)) => (words, ""),
        _ => (arguments, "\n"),
    };
    context.print(&format!("{}{end}", words.join(" "))).await;
    0
}

async fn cat(context: &Context, files: &[&str]) -> i32 {
    if files.is_empty() {
        while let Some(bytes) = context.process.read_input().await {
            context.write(&context.out, &bytes).await;
        }
        return 0;
    }
    let mut code = 0;
    for file in files {
        let found = context.machine.tree().read(&context.resolve(file));
        match found {
            Ok((_, content)) => context.write(&context.out, &content).await,
            Err(failed) => {
                context
                    .complain(&format!("cat: {}\n", failed.message))
                    .await;
                code = 1;
            }
        }
    }
    code
}

async fn sleep(context: &Context, arguments: &[&str]) -> i32 {
    let seconds = arguments.first().and_then(|text| text.parse::<f64>().ok());
    match seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
        Some(time) => {
            tokio::time::sleep(time).await;
            context.machine.not_paused().await;
            0
        }
        None => {
            context.complain("sleep: not a number of seconds\n").await;
            1
        }
    }
}

async fn env(context: &Context) -> i32 {
    let lines: String = context
        .env
        .iter()
        .map(|(name, value)| format!("{name}={value}\n"))
        .collect();
    context.print(&lines).await;
    0
}

async fn flood(context: &Context, arguments: &[&str]) -> i32 {
    let Some(mut left) = arguments
        .first()
        .and_then(|text| text.parse::<usize>().ok())
    else {
        context.complain("flood: not a number of bytes\n").await;
        return 1;
    };
    let chunk = b"y\n".repeat(FLOOD_CHUNK / 2);
    while left > 0 {
        let size = left.min(chunk.len());
        context.write(&context.out, &chunk[..size]).await;
        left -= size;
        tokio::task::yield_now().await;
    }
    0
}

async fn shell(mut context: Context, arguments: &[&str]) -> i32 {
    let [flag, script, ..] = arguments else {
        context.complain("sh: only sh -c SCRIPT\n").await;
        return 2;
    };
    let items = match script::parse(script) {
        Ok(items) if *flag == "-c" => items,
        Ok(_) => {
            context.complain("sh: only sh -c SCRIPT\n").await;
            return 2;
        }
        Err(error) => {
            context.complain(&format!("sh: {error}\n")).await;
            return 2;
        }
    };
    let mut status = 0;
    let mut skip = false;
    for item in items {
        if !skip {
            match step(&mut context, &item, status).await {
                Step::Next(code) => status = code,
                Step::Exit(code) => return code,
            }
        }
        skip = match item.then {
            Then::IfOk => status != 0,
            Then::IfFailed => status == 0,
            Then::Always | Then::Background => false,
        };
    }
    status
}

enum Step {
    Next(i32),
    Exit(i32),
}

async fn step(shell: &mut Context, item: &Item, status: i32) -> Step {
    let argv: Vec<String> = item
        .words
        .iter()
        .map(|word| expand(shell, word, status))
        .collect();
    let words: Vec<&str> = argv.iter().map(String::as_str).collect();
    match words[..] {
        ["exit"] => return Step::Exit(status),
        ["exit", code] => return Step::Exit(code.parse().unwrap_or(2)),
        ["cd", path] => {
            let path = shell.resolve(path);
            if !shell.machine.tree().is_directory(&path) {
                shell.complain("sh: cd: no such directory\n").await;
                return Step::Next(2);
            }
            shell.cwd = path;
            return Step::Next(0);
        }
        ["export", assignment] => {
            if let Some((name, value)) = assignment.split_once('=') {
                shell.env.insert(name.to_string(), value.to_string());
            }
            return Step::Next(0);
        }
        _ => {}
    }
    let mut context = shell.clone();
    if let Err(message) = redirect(&mut context, item, status) {
        shell.complain(&format!("sh: {message}\n")).await;
        return Step::Next(2);
    }
    if item.then == Then::Background {
        let process = context.process.clone();
        process.spawn(async move {
            // A background command's exit code is not used.
            let _ = run(context, argv).await;
        });
        return Step::Next(0);
    }
    Step::Next(run(context, argv).await)
}

fn expand(context: &Context, word: &Word, status: i32) -> String {
    word.iter()
        .map(|part| match part {
            Part::Text(text) => text.clone(),
            Part::Variable(name) if name == "?" => status.to_string(),
            Part::Variable(name) => context.env.get(name).cloned().unwrap_or_default(),
        })
        .collect()
}

fn redirect(context: &mut Context, item: &Item, status: i32) -> Result<(), String> {
    for redirect in &item.redirects {
        match redirect {
            Redirect::OutToErr => context.out = context.err.clone(),
            Redirect::ErrToOut => context.err = context.out.clone(),
            Redirect::OutToFile { path, append } => {
                let path = context.resolve(&expand(context, path, status));
                let how = Put {
                    append: *append,
                    ..Put::default()
                };
                let made = context.machine.tree().put(&path, Bytes::new(), how);
                made.map_err(|failed| failed.message)?;
                context.out = Sink::File(path);
            }
        }
    }
    Ok(())
}
