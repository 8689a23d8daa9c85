//! `motu mcp config` and the arguments of `motu mcp serve`.

use insta::assert_snapshot;
use motu_testkit::screen;
use motu_testkit::story::{Story, Told};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;

/// The output, with the program's path replaced.
fn plain(told: &Told) -> String {
    told.to_string().replace(motu_testkit::program(), "$MOTU")
}

fn config(story: &Story, line: &str) -> String {
    let mut command = story.command(&["mcp", "config"]);
    command.args(line.split_whitespace());
    plain(&story.told(command))
}

fn read(story: &Story, file: &str) -> String {
    std::fs::read_to_string(story.path().join(file)).unwrap()
}

fn write(story: &Story, file: &str, text: &str) {
    let path = story.path().join(file);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

#[test]
fn each_client_has_its_own_words() {
    let story = Story::new();
    assert_snapshot!("claude-code", config(&story, "claude-code"));
    assert_snapshot!(
        "codex",
        config(
            &story,
            "codex --profile terminal --sandbox ws-1 --name shells"
        )
    );
    assert_snapshot!("zed", config(&story, "zed"));
    assert_snapshot!("opencode", config(&story, "opencode --profile vm-run"));
    assert_snapshot!("unknown-client", config(&story, "nothing"));
    for client in [
        "claude-desktop",
        "cursor",
        "vscode",
        "windsurf",
        "gemini-cli",
        "lm-studio",
    ] {
        assert!(config(&story, client).contains("\"mcp\",\n"), "{client}");
    }
}

#[test]
fn installing_changes_one_entry_and_nothing_else() {
    let story = Story::new();
    assert_snapshot!("installed", config(&story, "cursor --install"));
    assert_snapshot!("installed-already", config(&story, "cursor --install"));
    let made: serde_json::Value = serde_json::from_str(&read(&story, ".cursor/mcp.json")).unwrap();
    assert_eq!(made["mcpServers"]["motu"]["args"][0], "mcp");
    let mode = std::fs::metadata(story.path().join(".cursor/mcp.json")).unwrap();
    assert_eq!(mode.permissions().mode() & 0o777, 0o600);

    let settings = "// my settings\n{\n  \"theme\": \"dark\", // at night\n  \"context_servers\": {\n    \"other\": {\"command\": \"o\"},\n  },\n}\n";
    write(&story, ".config/zed/settings.json", settings);
    assert!(config(&story, "zed --install").starts_with("put motu into"));
    let changed = read(&story, ".config/zed/settings.json");
    assert!(
        changed.starts_with("// my settings\n{\n  \"theme\": \"dark\", // at night\n"),
        "{changed}"
    );
    assert!(
        changed.contains("\"other\": {\"command\": \"o\"},"),
        "{changed}"
    );
    assert!(changed.contains("\"motu\": {"), "{changed}");

    let settings = "# mine\nmodel = \"x\"\n\n[mcp_servers.other]\ncommand = \"o\"\n";
    write(&story, ".codex/config.toml", settings);
    assert!(config(&story, "codex --install").starts_with("put motu into"));
    let first = read(&story, ".codex/config.toml");
    assert!(
        first.starts_with(settings) && first.contains("[mcp_servers.motu]"),
        "{first}"
    );
    config(&story, "codex --install --profile terminal");
    let second = read(&story, ".codex/config.toml");
    assert_eq!(second.matches("[mcp_servers.motu]").count(), 1, "{second}");
    assert!(
        second.contains("\"terminal\"") && second.starts_with(settings),
        "{second}"
    );
}

/// The arguments of the server in the settings of a client.
fn arguments(story: &Story, file: &str, key: &str) -> String {
    let settings: serde_json::Value = serde_json::from_str(&read(story, file)).unwrap();
    settings[key]["motu"]["args"].to_string()
}

#[test]
fn which_approvals_the_user_wants_is_asked_once_and_kept() {
    let story = Story::new();
    let command = || story.command(&["mcp", "config", "gemini-cli", "--install"]);
    let (mut child, mut shown) = screen::typed(command(), 100);
    screen::until(&mut shown, "always, auto or never [always]: ");
    shown.write_all(b"sometimes\n").unwrap();
    screen::until(&mut shown, "always, auto or never [always]: ");
    shown.write_all(b"auto\n").unwrap();
    screen::until(&mut shown, "put motu into");
    assert!(child.wait().unwrap().success());
    let file = ".gemini/settings.json";
    let asked = r#""--approvals","auto""#;
    assert!(arguments(&story, file, "mcpServers").contains(asked));

    // It is in the settings now, and stays there when something else is changed.
    let mut again = command();
    again.args(["--profile", "vm-run"]);
    let (mut child, mut shown) = screen::typed(again, 100);
    let told = screen::all(&mut shown);
    assert!(child.wait().unwrap().success());
    assert!(!told.contains("never"), "{told}");
    let kept = arguments(&story, file, "mcpServers");
    assert!(kept.contains(asked) && kept.contains("vm-run"), "{kept}");

    // A flag answers it, in every form of settings; a program is not asked.
    for client in ["gemini-cli", "codex", "opencode"] {
        config(&story, &format!("{client} --install --approvals never"));
        let told = config(&story, &format!("{client} --install"));
        assert!(told.contains("already"), "{told}");
    }
    assert!(read(&story, ".codex/config.toml").contains(r#""--approvals", "never""#));
    assert!(!config(&story, "zed").contains("--approvals"));
}

#[test]
fn broken_settings_are_left_alone() {
    let story = Story::new();
    for (client, file, text) in [
        ("cursor", ".cursor/mcp.json", "{\"mcpServers\": {"),
        (
            "gemini-cli",
            ".gemini/settings.json",
            "{\"mcpServers\": []}",
        ),
        ("codex", ".codex/config.toml", "a = [\n"),
    ] {
        write(&story, file, text);
        let told = config(&story, &format!("{client} --install"));
        assert!(told.contains("[exit code: 102]"), "{told}");
        assert_eq!(read(&story, file), text);
        let directory = story.path().join(file);
        let beside = std::fs::read_dir(directory.parent().unwrap())
            .unwrap()
            .count();
        assert_eq!(beside, 1, "a draft was left behind");
    }
}

#[test]
fn a_linked_file_stays_linked() {
    let story = Story::new();
    write(&story, "dotfiles/mcp.json", "{}\n");
    std::fs::create_dir(story.path().join(".cursor")).unwrap();
    let link = story.path().join(".cursor/mcp.json");
    std::os::unix::fs::symlink(story.path().join("dotfiles/mcp.json"), &link).unwrap();
    config(&story, "cursor --install");
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(read(&story, "dotfiles/mcp.json").contains("motu"));
}

#[test]
fn wrong_arguments_are_said() {
    let story = Story::new();
    let serve = |line: &str| {
        let mut command = story.command(&["mcp", "serve"]);
        command.args(line.split_whitespace());
        plain(&story.told(command))
    };
    assert_snapshot!("unknown-profile", serve("--profile everything"));
    assert_snapshot!("host-without-terminals", serve("--host"));
    assert_snapshot!("short-token", serve("--http 0.0.0.0:0 --token short"));
}

#[test]
fn a_client_that_says_nothing_leaves_nothing() {
    let story = Story::new();
    // Its standard input is empty.
    let told = story.motu(&["mcp", "serve"]);
    assert_eq!(
        (told.code, told.stdout.as_str(), told.stderr.as_str()),
        (0, "", "")
    );
}
