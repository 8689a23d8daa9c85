//! `motu demo ollama` with a model that follows a script.

use motu_testkit::story::Story;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

/// A server that gives scripted answers in sequence, and records the requests.
struct Scripted {
    url: String,
    serving: JoinHandle<Vec<Value>>,
}

fn scripted(answers: Vec<(u16, String)>) -> Scripted {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let serving = std::thread::spawn(move || {
        let answer = |(status, body): &(u16, String)| {
            let (stream, _) = listener.accept().unwrap();
            exchange(stream, *status, body)
        };
        answers.iter().map(answer).collect()
    });
    Scripted { url, serving }
}

fn exchange(stream: TcpStream, status: u16, body: &str) -> Value {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut first = String::new();
    reader.read_line(&mut first).unwrap();
    assert_eq!(first, "POST /v1/chat/completions HTTP/1.1\r\n");
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line == "\r\n" {
            break;
        }
        let (name, value) = line.split_once(':').unwrap();
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut asked = vec![0; length];
    reader.read_exact(&mut asked).unwrap();
    let head = format!(
        "HTTP/1.1 {status} Told\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = stream;
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    serde_json::from_slice(&asked).unwrap()
}

fn says(message: Value) -> (u16, String) {
    (200, json!({"choices": [{"message": message}]}).to_string())
}

fn calls(arguments: Value) -> (u16, String) {
    let call = json!({"id": "call_1", "type": "function",
        "function": {"name": "vm_run", "arguments": arguments}});
    says(json!({"role": "assistant", "content": "", "tool_calls": [call]}))
}

#[test]
fn a_model_uses_a_machine_and_answers() {
    let Some(story) = Story::with_machines() else {
        return;
    };
    let command = "echo $((12345 * 6789)) on $(uname -s)";
    let model = scripted(vec![
        // Arguments as Ollama encodes them, as other servers do, and invalid ones.
        calls(json!({"environment": "busybox", "command": command})),
        calls(
            json!({"environment": "busybox", "command": "exit 3"})
                .to_string()
                .into(),
        ),
        calls("no object".into()),
        calls(json!({"surely": "not"})),
        says(json!({"role": "assistant", "content": "It is 83810205,\non \u{1b}[31mLinux."})),
    ]);
    let told = story.motu(&[
        "demo",
        "ollama",
        "--base-url",
        &model.url,
        "--model",
        "scripted",
    ]);
    assert_eq!(told.code, 0, "{told}");
    let lines: Vec<&str> = told.stdout.lines().collect();
    assert_eq!(
        lines[0],
        format!("model scripted at {}, 1 tools", model.url),
        "{told}"
    );
    assert!(told.stdout.contains("call: vm_run {"), "{told}");
    assert!(told.stdout.contains("83810205 on Linux"), "{told}");
    assert!(
        told.stdout
            .contains("refused: the arguments are not a JSON object"),
        "{told}"
    );
    assert!(!told.stdout.contains('\u{1b}'), "{told}");
    assert_eq!(
        *lines.last().unwrap(),
        "summary: model=scripted rounds=5 tool_calls=4 failed_calls=2 \
         answer=\"It is 83810205, on \\u001b[31mLinux.\"",
        "{told}"
    );

    let asked = model.serving.join().unwrap();
    let tools = asked[0]["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 1);
    assert_eq!(tools[0]["function"]["name"], "vm_run");
    assert!(tools[0]["function"]["parameters"]["properties"]["command"].is_object());
    assert_eq!(asked[0]["messages"][0]["role"], "user");
    // The model receives its machine's output, and the reason of each refusal.
    let last = asked[4]["messages"].as_array().unwrap();
    let heard: Vec<&Value> = last.iter().filter(|said| said["role"] == "tool").collect();
    assert_eq!(heard.len(), 4);
    assert!(
        heard[0]["content"]
            .as_str()
            .unwrap()
            .contains("83810205 on Linux"),
        "{heard:?}"
    );
    assert!(
        heard[1]["content"].as_str().unwrap().contains('3'),
        "{heard:?}"
    );
    assert!(heard.iter().all(|said| said["tool_call_id"] == "call_1"));
    assert!(
        story.motu(&["ps", "--json"]).stdout.contains("[]"),
        "no machine stays"
    );
}

#[test]
fn a_model_that_cannot_use_tools_is_told_apart() {
    let story = Story::new();
    let model = scripted(vec![says(
        json!({"role": "assistant", "content": "About 84 million."}),
    )]);
    let told = story.motu(&["demo", "ollama", "--base-url", &model.url]);
    assert_ne!(told.code, 0, "{told}");
    let summary = told.stdout.lines().last().unwrap();
    assert!(
        summary.starts_with("summary: model=llama3.2:3b rounds=1 tool_calls=0"),
        "{told}"
    );
    assert!(
        told.stderr.contains("take a model that can call tools"),
        "{told}"
    );
    model.serving.join().unwrap();
}

#[test]
fn endpoints_that_are_none_are_named() {
    let story = Story::new();
    let closed = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}/v1", listener.local_addr().unwrap())
    };
    let told = story.motu(&["demo", "ollama", "--base-url", &closed]);
    assert!(told.stderr.contains("ollama serve"), "{told}");
    for (status, body, word) in [
        (404, r#"{"error": "model not found"}"#, "model not found"),
        (200, "<html>", "not JSON"),
        (200, "{}", "no message"),
    ] {
        let model = scripted(vec![(status, body.to_string())]);
        let told = story.motu(&["demo", "ollama", "--base-url", &model.url]);
        assert_ne!(told.code, 0, "{told}");
        assert!(told.stderr.contains(word), "{told}");
        model.serving.join().unwrap();
    }
    let told = story.motu(&["demo", "ollama", "--base-url", "https://model.test/v1"]);
    assert!(told.stderr.contains("plain HTTP"), "{told}");
}
