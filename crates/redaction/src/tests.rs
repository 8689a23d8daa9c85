use crate::{Forms, Known, Patterns, Redactor, kinds};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use proptest::prelude::*;

fn known<'a>(name: &'a str, value: &'a str) -> Known<'a> {
    Known {
        name: Some(name),
        value: value.as_bytes(),
        forms: Forms::All,
    }
}

fn values(values: &[(&str, &str)]) -> Redactor {
    let all = values.iter().map(|(name, value)| known(name, value));
    Redactor::new(all, &Patterns::none())
}

fn everything() -> Redactor {
    Redactor::new([], &Patterns::all())
}

fn pushed(stream: &mut crate::Stream, text: &str) -> String {
    let mut out = Vec::new();
    stream.push(text.as_bytes(), &mut |piece| out.extend_from_slice(piece));
    String::from_utf8(out).unwrap()
}

fn finished(stream: crate::Stream) -> String {
    let mut out = Vec::new();
    stream.finish(&mut |piece| out.extend_from_slice(piece));
    String::from_utf8(out).unwrap()
}

#[test]
fn values_are_taken_out_in_every_form() {
    let value = "s3cr3t/p@ss word\u{e9}";
    let redactor = values(&[("TOKEN", value)]);
    let text = |text: &str| redactor.text(text);
    assert_eq!(text(&format!("a {value} b")), "a [redacted TOKEN] b");
    for before in ["", "a", "ab", "user:", "user:x"] {
        let encoded = STANDARD.encode(format!("{before}{value}after"));
        let shown = text(&encoded);
        assert!(shown.contains("[redacted TOKEN]"), "{before}: {shown}");
        // A few characters on either side depend on both.
        let kept = shown.replace("[redacted TOKEN]", "");
        assert!(
            kept.len() <= (before.len() + 5) * 4 / 3 + 6,
            "{before}: {shown}"
        );
    }
    let reversed: Vec<u8> = value.bytes().rev().collect();
    assert_eq!(redactor.redact(&reversed), b"[redacted TOKEN]");
    let lower: String = value.bytes().map(|byte| format!("{byte:02x}")).collect();
    for encoded in [
        "s3cr3t%2Fp%40ss%20word%C3%A9",
        "s3cr3t%2fp%40ss%20word%c3%a9",
        "s3cr3t%2Fp%40ss+word%C3%A9",
        &lower,
        &lower.to_uppercase(),
    ] {
        assert_eq!(text(encoded), "[redacted TOKEN]");
    }
    let key = "-----BEGIN KEY-----\nabcdefghijklmnop\nqrstuvwxyz012345\n-----END KEY-----\n";
    let keys = values(&[("KEY", key)]);
    assert_eq!(keys.text(&key.replace('\n', "\r\n")), "[redacted KEY]\r\n");
    assert_eq!(keys.text("2: qrstuvwxyz012345\n"), "2: [redacted KEY]\n");
    assert_eq!(
        keys.text(&serde_json::to_string(key).unwrap()),
        "\"[redacted KEY]\\n\""
    );
}

#[test]
fn short_values_are_left_alone_and_plain_output_is_not_held() {
    let redactor = values(&[("S", "abc"), ("L", "longer value")]);
    let mut stream = redactor.stream();
    assert_eq!(pushed(&mut stream, "abc $ "), "abc $ ");
    assert_eq!(pushed(&mut stream, "a lon"), "a ");
    assert_eq!(pushed(&mut stream, "gitude "), "longitude ");
    assert_eq!(pushed(&mut stream, "longer val"), "");
    assert_eq!(pushed(&mut stream, "ue"), "[redacted L]");
    assert_eq!(pushed(&mut stream, "longer"), "");
    assert_eq!(finished(stream), "longer");
}

#[test]
fn a_value_of_any_length_is_covered_where_that_is_asked_for() {
    let short = Known {
        name: None,
        value: b"42",
        forms: Forms::Plain,
    };
    let redactor = Redactor::new([short], &Patterns::none());
    let mut stream = redactor.stream();
    assert_eq!(pushed(&mut stream, "pin 4"), "pin ");
    assert_eq!(
        pushed(&mut stream, "2 and 424 and 4"),
        "[redacted] and [redacted]4 and "
    );
    assert_eq!(finished(stream), "4");
}

#[test]
fn overlapping_values_are_covered_whole() {
    let redactor = values(&[("A", "abcdef"), ("B", "efghij"), ("C", "cdef")]);
    for split in 0..12 {
        let mut stream = redactor.stream();
        let (first, rest) = "-abcdefghij+".split_at(split);
        let shown = pushed(&mut stream, first) + &pushed(&mut stream, rest) + &finished(stream);
        assert_eq!(shown, "-[redacted A]+", "{split}");
    }
}

#[test]
fn what_was_shown_too_early_is_covered_from_there_on() {
    let mut stream = values(&[("A", "hunter22")]).stream();
    assert_eq!(pushed(&mut stream, "it is hunt"), "it is ");
    let mut out = Vec::new();
    stream.lapse(&mut |piece| out.extend_from_slice(piece));
    assert_eq!(out, b"hunt");
    assert_eq!(stream.held(), 0);
    assert_eq!(pushed(&mut stream, "er22 and hunt"), "[redacted A] and ");
    stream.lapse(&mut |_| {});
    assert_eq!(pushed(&mut stream, "ing"), "ing");
}

#[test]
fn what_could_be_longer_is_covered_when_nobody_waits_any_longer() {
    // A value that is a prefix of another, and a token whose next letter would make it a word.
    let redactor = Redactor::new(
        [known("A", "hunter22"), known("B", "hunter22-and-more")],
        &Patterns::all(),
    );
    let token = format!("AKIA{}", "ABCDEFGH234567QR");
    for (text, shown) in [
        ("hunter22-and", "[redacted A]-and"),
        (token.as_str(), "[redacted aws-access-key]"),
    ] {
        let mut stream = redactor.stream();
        pushed(&mut stream, text);
        let mut out = Vec::new();
        stream.lapse(&mut |piece| out.extend_from_slice(piece));
        assert_eq!(String::from_utf8_lossy(&out), shown);
        assert_eq!(pushed(&mut stream, " ok"), " ok");
    }
}

#[test]
fn hostile_output_costs_no_more() {
    let value = format!("{}b", "a".repeat(60_000));
    let redactor = values(&[("A", &value)]);
    let mut stream = redactor.stream();
    let flood = "a".repeat(1 << 20);
    let began = std::time::Instant::now();
    let mut shown = pushed(&mut stream, &flood).len();
    for _ in 0..16 {
        shown += pushed(&mut stream, &flood[..4096]).len();
    }
    assert_eq!(shown + stream.held(), flood.len() + 16 * 4096);
    assert!(stream.held() <= value.len());
    assert_eq!(pushed(&mut stream, "b"), format!("[redacted A]"));
    // Quadratic work would take minutes.
    assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
}

/// One of each kind, split in two so that scanners do not report this file.
fn samples() -> Vec<(&'static str, String)> {
    let letters = "aB3dE5gH7jK9mN1pQ2rS4tU6vW8xY0zAbCdEfGhIjKlMnOpQrStUvWxYz0123456789";
    let of = |count: usize| letters.chars().cycle().take(count).collect::<String>();
    let jwt = [
        "eyJhbGciOiJIUzI1NiJ9",
        "eyJzdWIiOiIxMjM0NTYifQ",
        "c2lnbmF0dXJl",
    ]
    .join(".");
    vec![
        ("aws-access-key", format!("AKIA{}", "ABCDEFGH234567QR")),
        ("github-token", format!("ghp_{}", of(36))),
        ("github-token", format!("github_pat_{}", of(60))),
        ("gitlab-token", format!("glpat-{}", of(20))),
        ("slack-token", format!("xoxb-{}", of(40))),
        ("stripe-key", format!("sk_live_{}", of(24))),
        ("openai-key", format!("sk-proj-{}", of(48))),
        ("openai-key", format!("sk-{}", of(48))),
        ("anthropic-key", format!("sk-ant-api03-{}", of(80))),
        ("google-api-key", format!("AIza{}", of(35))),
        ("google-oauth", format!("ya29.{}", of(60))),
        ("jwt", jwt),
        ("npm-token", format!("npm_{}", of(36))),
        ("pypi-token", format!("pypi-AgE{}", of(80))),
        ("huggingface-token", format!("hf_{}", of(34))),
        ("sendgrid-key", format!("SG.{}.{}", of(22), of(43))),
        (
            "digitalocean-token",
            format!("dop_v1_{}", "ab12".repeat(16)),
        ),
        ("docker-token", format!("dckr_pat_{}", of(27))),
        ("age-key", format!("AGE-SECRET-KEY-1{}", "QZ7X".repeat(15))),
        ("shopify-token", format!("shpat_{}", "0f1e".repeat(8))),
        ("vault-token", format!("hvs.{}", of(90))),
    ]
}

#[test]
fn every_kind_is_recognised_alone_and_in_its_surroundings() {
    let redactor = everything();
    for (kind, sample) in samples() {
        let rows = kinds::ROWS.iter().filter(|row| row.kind == kind);
        let beginnings = rows.flat_map(|row| row.beginnings);
        let beginning = beginnings.filter(|one| sample.starts_with(**one));
        let beginning = beginning.max_by_key(|one| one.len()).unwrap();
        let marker = format!("{beginning}[redacted {kind}]");
        assert_eq!(redactor.text(&sample), marker, "{sample}");
        for (before, after) in [
            ("KEY=", "\n"),
            ("\"", "\","),
            ("key: ", " # it"),
            ("(", ")"),
        ] {
            let text = format!("{before}{sample}{after}");
            assert_eq!(redactor.text(&text), format!("{before}{marker}{after}"));
        }
        // Inside a longer word it is something else.
        let inside = format!("x{sample}");
        assert_eq!(redactor.text(&inside), inside, "{kind}");
    }
}

#[test]
fn what_stands_behind_a_name_is_recognised() {
    let redactor = everything();
    let secret = format!("wJalrXUtnFEMI/K7MDENG+bPxRfiCY{}", "0123456789");
    for (before, after) in [
        ("aws_secret_access_key = ", "\n"),
        ("export AWS_SECRET_ACCESS_KEY=", " "),
        ("{\"SecretAccessKey\": \"", "\"}"),
    ] {
        assert_eq!(
            redactor.text(&format!("{before}{secret}{after}")),
            format!("{before}[redacted aws-secret-key]{after}")
        );
    }
    for (text, shown) in [
        (
            "curl -H 'Authorization: Bearer abcdef0123456789abcdef' x",
            "curl -H 'Authorization: Bearer [redacted authorization]' x",
        ),
        (
            "authorization: Basic dXNlcjpwYXNzd29yZA==\r\n",
            "authorization: Basic [redacted authorization]\r\n",
        ),
        (
            "postgres://app:s3cret@db:5432/app",
            "postgres://app:[redacted url-password]@db:5432/app",
        ),
        (
            "redis://:hunter22@cache",
            "redis://:[redacted url-password]@cache",
        ),
        (
            "https://hooks.slack.com/services/T00000000/B00000000/abcdefghijklmnopqrstuvwx ok",
            "https://hooks.slack.com/services/[redacted slack-webhook] ok",
        ),
    ] {
        assert_eq!(redactor.text(text), shown);
    }
}

fn private_key(title: &str, body: &str) -> String {
    let dashes = "-".repeat(5);
    format!("{dashes}BEGIN {title}{dashes}\n{body}\n{dashes}END {title}{dashes}\n")
}

#[test]
fn private_keys_are_covered_to_their_last_line() {
    let redactor = everything();
    let body = "MIIEpAIBAAKCAQEA7bq3zXf0\n".repeat(20);
    for title in [
        "RSA PRIVATE KEY",
        "OPENSSH PRIVATE KEY",
        "PRIVATE KEY",
        "PGP PRIVATE KEY BLOCK",
    ] {
        let key = private_key(title, body.trim_end());
        let text = format!("before\n{key}after it\n");
        let shown = "before\n-----BEGIN [redacted private-key]\nafter it\n";
        assert_eq!(redactor.text(&text), shown);
        // In one line of JSON.
        let line = format!("{{\"key\": {}}}", serde_json::to_string(&key).unwrap());
        assert_eq!(
            redactor.text(&line),
            "{\"key\": \"-----BEGIN [redacted private-key]\\n\"}"
        );
    }
    let old = format!("Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0A1B2C\n\n{body}");
    assert_eq!(
        redactor.text(&private_key("RSA PRIVATE KEY", &old)),
        "-----BEGIN [redacted private-key]\n"
    );
    // Programs that mention keys, and public keys.
    for text in [
        format!(
            "if text.startswith(\"{}BEGIN PRIVATE KEY{}\"):",
            "-----", "-----"
        ),
        private_key("PUBLIC KEY", &body),
        private_key("CERTIFICATE", &body),
        private_key("RSA PRIVATE KEY", "..."),
    ] {
        assert_eq!(redactor.text(&text), text);
    }
}

#[test]
fn ordinary_text_is_left_alone() {
    let redactor = everything();
    let picture = STANDARD.encode(
        (0..60_000_u32)
            .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
            .collect::<Vec<_>>(),
    );
    let texts = [
        include_str!("kinds.rs"),
        include_str!("index.rs"),
        include_str!("../../../Cargo.lock"),
        include_str!("../../../docs/security.md"),
        include_str!("../../../docs/configuration.md"),
        picture.as_str(),
        "commit 8042283f3b1c2d4e5f60718293a4b5c6d7e8f901\nAuthor: A <a@example.com>\n",
        "550e8400-e29b-41d4-a716-446655440000 018f3b1c-2d4e-7f60-8182-93a4b5c6d7e8",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "GET http://localhost:8080/a/b?x=1&y=a@b 200 12ms\nsee https://example.com:443/\n",
        "ssh://git@github.com/a/b.git git@github.com:a/b.git mailto:a@b",
        "postgres://$USER:$PASSWORD@db http://user:<password>@host https://u:{pw}@h",
        "2026-08-21T10:00:00Z INFO task-runner: ask-me disk-usage sk-12 AKIA eyJ npm_ ghp_",
        "Authorization: Bearer <token>\nauthorization: required for this endpoint\n",
        "aws_secret_access_key = <your key>\nSecretAccessKey: String,\n",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk",
        "{\"header\":\"eyJhbGciOiJIUzI1NiJ9\",\"v\":\"eyJub3QiOiJhIHRva2VuIn0\"}",
        "npm_config_registry npm_package_version npm_lifecycle_event hf_hub_download",
    ];
    for text in texts {
        assert_eq!(redactor.text(text), text);
    }
}

#[test]
fn what_is_typed_is_shown_until_it_is_a_credential() {
    let mut stream = everything().stream();
    let mut typed = |text: &str| -> String {
        let one = |byte: char| pushed(&mut stream, &byte.to_string());
        text.chars().map(one).collect()
    };
    for text in [
        "ls -la ask eyJ",
        " curl http://localhost:",
        "/ sk-",
        " AKIA",
    ] {
        assert_eq!(typed(text), text);
    }
    assert_eq!(typed("ABCDEFGH234567QR"), "");
    assert_eq!(typed(" "), "[redacted aws-access-key] ");
}

#[test]
fn kinds_can_be_turned_off_and_are_counted() {
    let (url, token) = ("x://u:secret@h", format!("npm_{}", "a1".repeat(18)));
    let patterns = Patterns::without(&["url-password"]).unwrap();
    let redactor = Redactor::new([known("V", "hunter22")], &patterns);
    let text = format!("{url} {token} hunter22 {token}");
    assert_eq!(
        redactor.text(&text),
        format!("{url} npm_[redacted npm-token] [redacted V] npm_[redacted npm-token]")
    );
    assert_eq!(patterns.found(), [("npm-token", 2)]);
    assert_eq!(patterns.values_found(), 1);
    assert_eq!(patterns.kinds() + 1, kinds::names().count());
    assert!(Patterns::without(&["nothing"]).is_err());
    assert!(kinds::names().count() >= 17);
}

/// The bytes that the values cover, found naively.
fn covered(text: &[u8], values: &[&str]) -> Vec<bool> {
    let mut covered = vec![false; text.len()];
    for value in values.iter().filter(|value| value.len() >= 4) {
        for at in 0..(text.len() + 1).saturating_sub(value.len()) {
            if text[at..].starts_with(value.as_bytes()) {
                covered[at..at + value.len()].fill(true);
            }
        }
    }
    covered
}

proptest! {
    #[test]
    fn exactly_the_values_are_covered(
        text in "[ab]{0,60}",
        values in prop::collection::vec("[ab]{3,7}", 1..4),
        cuts in prop::collection::vec(0_usize..60, 0..5),
    ) {
        let plain = values.iter().filter(|value| value.len() >= 4).map(|value| Known {
            name: Some("N"), value: value.as_bytes(), forms: Forms::Plain,
        });
        let redactor = Redactor::new(plain, &Patterns::none());
        let shown = cut(&redactor, text.as_bytes(), &cuts);
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        let covered = covered(text.as_bytes(), &values);
        let kept: Vec<u8> = text.bytes().zip(&covered).filter(|(_, hidden)| !**hidden).map(|(byte, _)| byte).collect();
        let shown = String::from_utf8(shown).unwrap();
        prop_assert_eq!(shown.replace("[redacted N]", "").into_bytes(), kept);
        prop_assert_eq!(shown.contains("redacted"), covered.contains(&true));
    }

    #[test]
    fn how_a_stream_is_cut_changes_nothing(
        parts in prop::collection::vec((0_usize..40, "[ -~]{0,6}"), 0..6),
        cuts in prop::collection::vec(0_usize..400, 0..8),
    ) {
        let mut all: Vec<String> = samples().into_iter().map(|(_, sample)| sample).collect();
        all.extend(["hunter22", "hunter2", "sk-hun", "x://u:hunter22@h ", "Authorization: Bearer "].map(String::from));
        all.push(private_key("RSA PRIVATE KEY", &"MIIEpAIBAAKCAQEA7bq3zXf0\n".repeat(3)));
        let text: String = parts.iter().map(|(at, between)| all.get(*at).cloned().unwrap_or_default() + between).collect();
        // One value begins inside a credential and continues after it.
        let values = [known("V", "hunter22"), known("W", "sk-hunter"), known("X", "\"KEY gl")];
        let redactor = Redactor::new(values, &Patterns::all());
        prop_assert_eq!(cut(&redactor, text.as_bytes(), &cuts), redactor.redact(text.as_bytes()));
    }

    #[test]
    fn any_bytes_are_fine(bytes in prop::collection::vec(any::<u8>(), 0..600), cuts in prop::collection::vec(0_usize..600, 0..4)) {
        let redactor = Redactor::new([known("V", "hunter22")], &Patterns::all());
        prop_assert_eq!(cut(&redactor, &bytes, &cuts), redactor.redact(&bytes));
    }
}

/// The text in pieces.
fn cut(redactor: &Redactor, text: &[u8], cuts: &[usize]) -> Vec<u8> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| (*cut).min(text.len())).collect();
    cuts.push(text.len());
    cuts.sort_unstable();
    let (mut stream, mut out, mut from) = (redactor.stream(), Vec::new(), 0);
    for cut in cuts {
        stream.push(&text[from..cut], &mut |piece| out.extend_from_slice(piece));
        from = cut;
    }
    stream.finish(&mut |piece| out.extend_from_slice(piece));
    out
}
