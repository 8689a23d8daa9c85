//! What README and the guides say is so: their commands run, their links lead somewhere, and the
//! tests they name exist.
//!
//! A page is one story. Its blocks run one after another in one shell, in a state directory of
//! their own, on the container runtime:
//!
//! - in a `sh` block nothing may fail;
//! - in a `console` block each line after `$ ` runs, and what it prints is compared with what the
//!   page shows; `…` stands for anything, alone in a line for any lines;
//! - a block that begins with the comment `# needs …` is not run. Its reader sees why.

mod users;

use motu_needs::skip;
use motu_testkit::story::Story;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Requirements of blocks that tests cannot meet.
const NEEDS: [&str; 9] = [
    "# needs the network",
    "# needs a terminal",
    "# needs a registry",
    "# needs root",
    "# needs an ordinary user",
    "# needs another machine",
    "# needs virtual machines",
    "# needs the source tree",
    "# needs a client",
];
/// The longest time a page may take, on a busy machine.
const PATIENCE_SECONDS: &str = "300";
/// The files that pages assume in the reader's directory.
const PROJECT: [(&str, &str); 4] = [
    (
        "project/hello.py",
        "def greet(name):\n    return f\"hello {name}\"\n",
    ),
    (
        "project/test_hello.py",
        "import unittest\nfrom hello import greet\n\n\nclass Greeting(unittest.TestCase):\n    \
         def test_name(self):\n        self.assertEqual(greet(\"ann\"), \"Hello, ann\")\n\n\n\
         if __name__ == \"__main__\":\n    unittest.main()\n",
    ),
    (
        "fix.patch",
        "--- a/hello.py\n+++ b/hello.py\n@@ -1,2 +1,2 @@\n def greet(name):\n\
         -    return f\"hello {name}\"\n+    return f\"Hello, {name}\"\n",
    ),
    ("notes.txt", "one\ntwo\nthree\n"),
];

/// A fenced block of a page.
struct Block {
    line: usize,
    language: String,
    text: Vec<String>,
}

impl Block {
    fn needs(&self) -> Option<&str> {
        let first = self.text.first()?;
        first.starts_with("# needs ").then_some(first.as_str())
    }

    fn is_told(&self) -> bool {
        matches!(self.language.as_str(), "sh" | "console") && self.needs().is_none()
    }
}

/// One step of the shell: a block, or a command with its expected output.
struct Step {
    line: usize,
    commands: String,
    prints: Option<Vec<String>>,
}

fn root() -> PathBuf {
    let root = motu_testkit::root();
    root.canonicalize().unwrap()
}

fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (index, line) in text.lines().enumerate() {
        match (line.strip_prefix("```"), open.take()) {
            (Some(language), None) => {
                open = Some(Block {
                    line: index + 1,
                    language: language.trim().to_string(),
                    text: Vec::new(),
                });
            }
            (Some(_), Some(block)) => blocks.push(block),
            (None, Some(mut block)) => {
                block.text.push(line.to_string());
                open = Some(block);
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block is not closed");
    blocks
}

fn steps(block: &Block) -> Vec<Step> {
    if block.language == "sh" {
        return vec![Step {
            line: block.line,
            commands: block.text.join("\n"),
            prints: None,
        }];
    }
    let mut steps: Vec<Step> = Vec::new();
    for (index, line) in block.text.iter().enumerate() {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (Some(command), _) => steps.push(Step {
                line: block.line + index + 1,
                commands: command.to_string(),
                prints: Some(Vec::new()),
            }),
            (None, Some(step)) => step.prints.get_or_insert_default().push(line.clone()),
            (None, None) => panic!("line {}: a console begins with `$ `", block.line),
        }
    }
    steps
}

/// The steps as one script. The output of each step goes to a file with its number.
fn script(steps: &[Step], told: &Path) -> String {
    let told = told.display();
    let mut script = "set -eu\n".to_string();
    for (number, step) in steps.iter().enumerate() {
        let strict = match step.prints {
            Some(_) => "set +e",
            None => "set -e",
        };
        let (at, commands) = (format!("{told}/{number}"), &step.commands);
        writeln!(script, "exec >{at} 2>&1\n{strict}\n{commands}").unwrap();
    }
    script
}

/// A state directory with the environments that all tests share.
fn with_environments() -> Option<Story> {
    Story::with_debian("container")
}

/// A state directory with its own environments, because the page adds some.
fn with_its_own() -> Option<Story> {
    Story::with_machines()
}

/// A state directory next to a gRPC client and the file it is generated from.
fn with_grpc_client() -> Option<Story> {
    let client = root().join("target/clients/grpc");
    if !client.exists() {
        skip("guides: the client of gRPC is not installed; run tools/setup test");
        return None;
    }
    let story = with_environments()?;
    let proto = root().join("crates/grpc/proto");
    for (name, target) in [("client", client), ("proto", proto)] {
        std::os::unix::fs::symlink(target, story.path().join(name)).unwrap();
    }
    Some(story)
}

fn tell(page: &str, story: Option<Story>) {
    let Some(story) = story else { return };
    tell_in(page, story.path(), |script| shell(&story, script));
}

/// Tells a page to whoever runs scripts in that directory.
fn tell_in(page: &str, place: &Path, shell: impl FnOnce(&Path) -> Command) {
    let text = std::fs::read_to_string(root().join(page)).unwrap();
    let all = blocks(&text);
    let steps: Vec<Step> = all.iter().filter(|b| b.is_told()).flat_map(steps).collect();
    assert!(!steps.is_empty(), "{page} has no commands");
    for (name, text) in PROJECT {
        let path = place.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let told = place.join("told");
    std::fs::create_dir(&told).unwrap();
    let file = told.join("script");
    std::fs::write(&file, script(&steps, &told)).unwrap();
    let ended = shell(&file).status().unwrap();
    for (number, step) in steps.iter().enumerate() {
        let Ok(output) = std::fs::read(told.join(number.to_string())) else {
            break;
        };
        let output = String::from_utf8_lossy(&output).into_owned();
        let is_last = !told.join((number + 1).to_string()).exists();
        let place = format!("{page}, line {}:\n{}\n", step.line, step.commands);
        assert!(
            ended.success() || !is_last,
            "{place}ended the story ({ended}) and said:\n{output}"
        );
        if let Some(prints) = &step.prints {
            let lines: Vec<&str> = output.lines().map(str::trim_end).collect();
            let wanted: Vec<&str> = prints.iter().map(|line| line.trim_end()).collect();
            assert!(
                same_lines(&wanted, &lines),
                "{place}should say:\n{}\nand said:\n{output}",
                wanted.join("\n")
            );
        }
    }
    assert!(ended.success(), "{page}: {ended}");
}

fn shell(story: &Story, script: &Path) -> Command {
    let programs = Path::new(motu_testkit::program()).parent().unwrap();
    let usual = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let mut command = Command::new("timeout");
    command
        .args(["-k", "5", PATIENCE_SECONDS, "bash"])
        .arg(script)
        .current_dir(story.path())
        .env_clear()
        .env("PATH", format!("{}:{usual}", programs.display()))
        .env("HOME", story.path())
        .env("MOTU_HOME", story.home())
        .env("COLUMNS", "100")
        .stdin(Stdio::null());
    command
}

fn same_lines(wanted: &[&str], lines: &[&str]) -> bool {
    match wanted.split_first() {
        None => lines.is_empty(),
        Some((first, rest)) if first.trim() == "…" => {
            (0..=lines.len()).any(|skipped| same_lines(rest, &lines[skipped..]))
        }
        Some((first, rest)) => lines
            .split_first()
            .is_some_and(|(line, others)| same_line(first, line) && same_lines(rest, others)),
    }
}

fn same_line(wanted: &str, line: &str) -> bool {
    let mut pieces = wanted.split('…');
    let first = pieces.next().unwrap_or_default();
    let Some(mut left) = line.strip_prefix(first) else {
        return false;
    };
    let mut pieces = pieces.peekable();
    if pieces.peek().is_none() {
        return left.is_empty();
    }
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return left.ends_with(piece);
        }
        match left.find(piece) {
            Some(at) => left = &left[at + piece.len()..],
            None => return false,
        }
    }
    true
}

/// The pages whose commands run, one test each.
macro_rules! guides {
    ($($name:ident: $page:literal, $story:expr;)*) => {
        const TOLD: &[&str] = &[$($page),*];
        $(#[test] fn $name() { tell($page, $story); })*
    };
}

guides! {
    readme: "README.md", with_environments();
    api: "docs/api.md", with_environments();
    audit: "docs/audit.md", with_environments();
    calls: "docs/calls.md", with_environments();
    coming_from: "docs/coming-from.md", with_environments();
    building: "docs/building.md", with_its_own();
    environments: "docs/environments.md", with_its_own();
    events: "docs/events.md", with_environments();
    grpc: "docs/grpc.md", with_grpc_client();
    mcp: "docs/mcp.md", with_environments();
    network: "docs/network.md", with_environments();
    policies: "docs/policies.md", with_environments();
    production: "docs/production.md", with_environments();
    quickstarts: "docs/quickstarts.md", with_environments();
    recipes: "docs/recipes.md", with_environments();
    secrets: "docs/secrets.md", with_environments();
    service: "docs/service.md", with_environments();
    start: "docs/start.md", with_environments();
    templates: "docs/templates.md", with_its_own();
    terminals: "docs/terminals.md", with_environments();
    troubleshooting: "docs/troubleshooting.md", with_environments();
    workspaces: "docs/workspaces.md", with_environments();
}

/// All pages, by path from the root.
fn pages() -> Vec<String> {
    let mut pages = Vec::new();
    for (directory, prefix) in [("", ""), ("docs", "docs/")] {
        for entry in std::fs::read_dir(root().join(directory)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(".md") {
                pages.push(format!("{prefix}{name}"));
            }
        }
    }
    pages.sort();
    pages
}

fn read(page: &str) -> String {
    std::fs::read_to_string(root().join(page)).unwrap()
}

#[test]
fn every_page_with_commands_is_told() {
    for page in pages() {
        let all = blocks(&read(&page));
        let is_told = all.iter().any(Block::is_told);
        assert_eq!(
            is_told,
            TOLD.contains(&page.as_str()),
            "{page} is a guide of this test if it has commands, and only then"
        );
        for block in &all {
            if let Some(needs) = block.needs() {
                let known = NEEDS.iter().any(|need| needs.starts_with(need));
                assert!(known, "{page}, line {}: {needs:?} is no reason", block.line);
            }
        }
    }
}

/// The targets of the links in a text.
fn links(text: &str) -> Vec<String> {
    let mut links = Vec::new();
    let mut is_code = false;
    for line in text.lines() {
        if line.starts_with("```") {
            is_code = !is_code;
        }
        let mut rest = if is_code { "" } else { line };
        while let Some(at) = rest.find("](") {
            rest = &rest[at + 2..];
            let Some(end) = rest.find(')') else { break };
            links.push(rest[..end].to_string());
            rest = &rest[end..];
        }
    }
    links
}

/// The anchor of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading
        .trim()
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .collect::<String>();
    kept.replace(' ', "-")
}

fn anchors(text: &str) -> BTreeSet<String> {
    let mut is_code = false;
    let mut anchors = BTreeSet::new();
    for line in text.lines() {
        if line.starts_with("```") {
            is_code = !is_code;
        }
        if line.starts_with('#') && !is_code {
            anchors.insert(anchor(line.trim_start_matches('#')));
        }
    }
    anchors
}

#[test]
fn every_link_leads_somewhere() {
    let mut lost = Vec::new();
    for page in pages() {
        let path = root().join(&page);
        for link in links(&read(&page)) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (file, part) = link.split_once('#').unwrap_or((&link, ""));
            let target = match file {
                "" => path.clone(),
                file => path.parent().unwrap().join(file),
            };
            let is_there = match part {
                "" => target.exists(),
                part => {
                    std::fs::read_to_string(&target).is_ok_and(|text| anchors(&text).contains(part))
                }
            };
            if !is_there {
                lost.push(format!("{page}: {link}"));
            }
        }
    }
    assert!(
        lost.is_empty(),
        "links that lead nowhere:\n{}",
        lost.join("\n")
    );
}

/// README's index must link to every page of the documentation.
#[test]
fn every_page_is_in_the_index() {
    let index = links(&read("README.md"));
    let missing: Vec<String> = pages()
        .into_iter()
        .filter(|page| page != "README.md" && !index.contains(page))
        .collect();
    assert!(missing.is_empty(), "README.md does not link to {missing:?}");
}

/// Every source file, with its text.
fn sources(directory: &Path, found: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
            found.push((stem, std::fs::read_to_string(&path).unwrap()));
        }
    }
}

/// Tests are named as the test runner names them: `walls::no_system_call_opens_a_way_out`.
#[test]
fn tests_that_are_named_exist() {
    let mut found = Vec::new();
    sources(&root().join("crates"), &mut found);
    for page in ["docs/security.md", "docs/threat-model.md"] {
        let text = read(page);
        let spans = text.split('`').skip(1).step_by(2);
        let is_word = |word: &str| {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            !word.is_empty() && word.chars().all(plain)
        };
        let named: Vec<(&str, &str)> = spans
            .filter_map(|span| span.split_once("::"))
            .filter(|(module, name)| is_word(module) && is_word(name))
            .collect();
        assert!(!named.is_empty(), "{page} names no test");
        for (module, name) in named {
            let wanted = format!("fn {name}(");
            let is_there = found
                .iter()
                .any(|(stem, text)| stem == module && text.contains(&wanted));
            assert!(is_there, "{page} names {module}::{name}, which is no test");
        }
    }
}

#[test]
fn ellipses_stand_for_anything() {
    assert!(same_lines(&["a …", "…", "z"], &["a b", "c", "d", "z"]));
    assert!(same_lines(&["…", "z"], &["z"]));
    assert!(same_line("x…y…z", "x1y2z"));
    assert!(!same_line("x…y", "xyz"));
    assert!(!same_lines(&["a"], &["a", "b"]));
    assert_eq!(
        anchor("What an answer looks like"),
        "what-an-answer-looks-like"
    );
}
