//! Well-known credentials, and how each is recognized.
//!
//! A credential begins with a prefix that its issuer chose, or follows a name that says what it is.
//! From there it is read forward once; at most [`HOLD_BYTES`] are read before it is certain.

use crate::eat::{Class, Eat};

/// Most bytes read before it is decided whether something is a credential.
pub const HOLD_BYTES: usize = 1024;

/// Longest first part of a JSON web token.
const JWT_HEADER_BYTES: usize = 512;
/// Minimum length of each part.
const JWT_PART_BYTES: usize = 8;
/// Longest separator between a name and its value: quotes, blanks, `:`, `=`, `=>`.
const SEPARATOR_BYTES: usize = 8;
const AWS_SECRET_BYTES: usize = 40;
const HEADER_VALUE_BYTES: usize = 16;
const URL_USER_BYTES: usize = 128;
const URL_PASSWORD_BYTES: usize = 512;
/// Shorter ones are mostly examples of a format.
const URL_PASSWORD_LEAST: usize = 3;
const KEY_TITLE_BYTES: usize = 48;
/// Minimum body of a private key after its header, and letters and digits in it.
const KEY_BODY_BYTES: usize = 24;
const KEY_BODY_ALNUM: usize = 16;

/// What may precede a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    Anything,
    /// Nothing that could belong to the same word.
    Break,
    Dash,
}

impl Before {
    pub fn allows(self, byte: Option<u8>) -> bool {
        match self {
            Before::Anything => true,
            Before::Break => byte.is_none_or(|byte| !Class::Dotted.has(byte)),
            Before::Dash => byte == Some(b'-'),
        }
    }
}

/// What follows the prefix.
#[derive(Clone, Copy, Debug)]
enum Shape {
    /// At least this many of a class, then all that follow.
    AtLeast(Class, usize),
    /// Exactly this many of a class.
    Exactly(Class, usize),
    Jwt,
    PrivateKey,
    UrlPassword,
    AwsSecret,
    Header,
}

/// One rule to recognize a credential.
#[derive(Debug)]
pub struct Row {
    /// The name of its kind.
    pub kind: &'static str,
    pub beginnings: &'static [&'static str],
    pub before: Before,
    shape: Shape,
}

const fn token(
    kind: &'static str,
    beginnings: &'static [&'static str],
    class: Class,
    least: usize,
) -> Row {
    Row {
        kind,
        beginnings,
        before: Before::Break,
        shape: Shape::AtLeast(class, least),
    }
}

const fn exact(
    kind: &'static str,
    beginnings: &'static [&'static str],
    class: Class,
    count: usize,
) -> Row {
    Row {
        kind,
        beginnings,
        before: Before::Break,
        shape: Shape::Exactly(class, count),
    }
}

const fn special(
    kind: &'static str,
    beginnings: &'static [&'static str],
    before: Before,
    shape: Shape,
) -> Row {
    Row {
        kind,
        beginnings,
        before,
        shape,
    }
}

/// All rules. Prefixes have at least three bytes.
pub const ROWS: [Row; 28] = [
    exact(
        "aws-access-key",
        &["AKIA", "ASIA", "ABIA", "ACCA"],
        Class::Base32,
        16,
    ),
    special(
        "aws-secret-key",
        &[
            "aws_secret_access_key",
            "AWS_SECRET_ACCESS_KEY",
            "aws_secret_key",
            "SecretAccessKey",
            "secretAccessKey",
        ],
        Before::Anything,
        Shape::AwsSecret,
    ),
    token(
        "github-token",
        &["ghp_", "gho_", "ghu_", "ghs_", "ghr_"],
        Class::Alnum,
        36,
    ),
    token("github-token", &["github_pat_"], Class::Word, 36),
    token(
        "gitlab-token",
        &["glpat-", "gldt-", "glrt-", "glcbt-", "glptt-", "glsoat-"],
        Class::Token,
        20,
    ),
    token(
        "slack-token",
        &[
            "xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-", "xoxe-", "xapp-",
        ],
        Class::Token,
        20,
    ),
    special(
        "slack-webhook",
        &["hooks.slack.com/services/"],
        Before::Anything,
        Shape::AtLeast(Class::Path, 30),
    ),
    token(
        "stripe-key",
        &["sk_live_", "sk_test_", "rk_live_", "rk_test_"],
        Class::Alnum,
        16,
    ),
    token("stripe-key", &["whsec_"], Class::Alnum, 32),
    token(
        "openai-key",
        &["sk-proj-", "sk-svcacct-", "sk-admin-", "sk-None-"],
        Class::Token,
        24,
    ),
    exact("openai-key", &["sk-"], Class::Alnum, 48),
    token("anthropic-key", &["sk-ant-"], Class::Token, 24),
    exact("google-api-key", &["AIza"], Class::Token, 35),
    token("google-oauth", &["ya29."], Class::Token, 24),
    exact("google-oauth", &["GOCSPX-"], Class::Token, 28),
    special("jwt", &["eyJ"], Before::Break, Shape::Jwt),
    special("private-key", &["BEGIN "], Before::Dash, Shape::PrivateKey),
    exact("npm-token", &["npm_"], Class::Alnum, 36),
    token("pypi-token", &["pypi-AgE"], Class::Token, 50),
    exact("huggingface-token", &["hf_"], Class::Alnum, 34),
    token("sendgrid-key", &["SG."], Class::Dotted, 64),
    token(
        "digitalocean-token",
        &["dop_v1_", "doo_v1_", "dor_v1_"],
        Class::Alnum,
        64,
    ),
    token("docker-token", &["dckr_pat_"], Class::Token, 20),
    token("age-key", &["AGE-SECRET-KEY-1"], Class::Alnum, 58),
    token(
        "shopify-token",
        &["shpat_", "shpss_", "shpca_"],
        Class::Alnum,
        32,
    ),
    token("vault-token", &["hvs.", "hvb."], Class::Token, 24),
    special(
        "authorization",
        &["Authorization", "authorization", "AUTHORIZATION"],
        Before::Anything,
        Shape::Header,
    ),
    special(
        "url-password",
        &["://"],
        Before::Anything,
        Shape::UrlPassword,
    ),
];

/// The result of examining a text at a prefix.
#[derive(Clone, Copy, Debug)]
pub enum Verdict {
    No,
    /// Undecided until more has come. The first `safe` bytes would not be covered.
    More {
        safe: usize,
    },
    /// Cover this range, and what follows as long as `eat` takes it.
    Yes {
        from: usize,
        to: usize,
        eat: Option<Eat>,
    },
}

impl Row {
    /// Examines the text from a prefix on. Nothing follows a `whole` text. The answer never changes
    /// when more comes, unless it is [`Verdict::More`]. The prefix itself is shown: it tells what
    /// was covered.
    pub fn judge(&self, beginning: &str, text: &[u8], whole: bool) -> Verdict {
        let short = text.len().min(beginning.len());
        if text[..short] != beginning.as_bytes()[..short] {
            return Verdict::No;
        }
        let look = Look { text, whole };
        if short < beginning.len() {
            return look.more(short);
        }
        match self.shape {
            Shape::AtLeast(class, least) => look.at_least(short, class, least),
            Shape::Exactly(class, count) => look.exactly(short, class, count),
            Shape::Jwt => look.jwt(short),
            Shape::PrivateKey => look.private_key(short),
            Shape::UrlPassword => look.url_password(short),
            Shape::AwsSecret => match look.separator(short) {
                Ok(value) => look.exactly_aws(value),
                Err(verdict) => verdict,
            },
            Shape::Header => match look.separator(short) {
                Ok(value) => look.header(value),
                Err(verdict) => verdict,
            },
        }
    }
}

/// A text being examined.
#[derive(Clone, Copy)]
struct Look<'a> {
    text: &'a [u8],
    whole: bool,
}

impl Look<'_> {
    /// More is needed; at the end of the text it is no match.
    fn more(self, safe: usize) -> Verdict {
        match self.whole {
            true => Verdict::No,
            false => Verdict::More { safe },
        }
    }

    fn rest(&self, at: usize) -> &[u8] {
        self.text.get(at..).unwrap_or_default()
    }

    fn at_least(self, at: usize, class: Class, least: usize) -> Verdict {
        let body = self.rest(at);
        match class.run(&body[..body.len().min(least)]) {
            run if run == least => Verdict::Yes {
                from: at,
                to: at + least,
                eat: Some(Eat::all(class)),
            },
            run if run == body.len() => self.more(at),
            _ => Verdict::No,
        }
    }

    fn exactly(self, at: usize, class: Class, count: usize) -> Verdict {
        let body = self.rest(at);
        let run = class.run(&body[..body.len().min(count + 1)]);
        let yes = Verdict::Yes {
            from: at,
            to: at + count,
            eat: None,
        };
        match run {
            _ if run == count && (run < body.len() || self.whole) => yes,
            _ if run == body.len() && run <= count => self.more(at),
            _ => Verdict::No,
        }
    }

    fn jwt(self, at: usize) -> Verdict {
        let header = self.rest(at);
        let run = Class::Token.run(&header[..header.len().min(JWT_HEADER_BYTES)]);
        if run == header.len() {
            return self.more(at);
        }
        if run < JWT_PART_BYTES || header.get(run) != Some(&b'.') {
            return Verdict::No;
        }
        let payload = at + run + 1;
        let begins = b"eyJ";
        let rest = self.rest(payload);
        let short = rest.len().min(begins.len());
        if rest[..short] != begins[..short] {
            return Verdict::No;
        }
        match self.at_least(payload + begins.len(), Class::Token, JWT_PART_BYTES) {
            Verdict::Yes { to, .. } => Verdict::Yes {
                from: at,
                to,
                eat: Some(Eat::all(Class::Dotted)),
            },
            Verdict::More { .. } => self.more(at),
            Verdict::No => Verdict::No,
        }
    }

    fn private_key(self, at: usize) -> Verdict {
        let title = self.rest(at);
        let letters = |byte: &u8| byte.is_ascii_uppercase() || matches!(byte, b' ' | b'0'..=b'9');
        let most = title.len().min(KEY_TITLE_BYTES);
        let run = title[..most]
            .iter()
            .take_while(|byte| letters(byte))
            .count();
        if run == title.len() {
            return self.more(at);
        }
        if memchr::memmem::find(&title[..run], b"PRIVATE KEY").is_none() {
            return Verdict::No;
        }
        let dashes = b"-----";
        let after = &title[run..];
        let short = after.len().min(dashes.len());
        if after[..short] != dashes[..short] {
            return Verdict::No;
        }
        let body = after.get(dashes.len()..).unwrap_or_default();
        let body = &body[..body.len().min(KEY_BODY_BYTES)];
        if Class::Key.run(body) < body.len() {
            return Verdict::No;
        }
        if body.len() < KEY_BODY_BYTES {
            return self.more(at);
        }
        let letters = body.iter().filter(|byte| byte.is_ascii_alphanumeric());
        match letters.count() >= KEY_BODY_ALNUM {
            true => Verdict::Yes {
                from: at,
                to: at + run + dashes.len(),
                eat: Some(Eat::all(Class::Key)),
            },
            false => Verdict::No,
        }
    }

    /// The password of a URL: between the colon after the user and the `@`.
    fn url_password(self, at: usize) -> Verdict {
        let ends = |byte: u8| {
            byte.is_ascii_whitespace()
                || byte.is_ascii_control()
                || matches!(
                    byte,
                    b'/' | b'?' | b'#' | b'@' | b'"' | b'\'' | b'<' | b'>' | b'`'
                )
        };
        let part = |text: &[u8], most: usize, colon: bool| {
            let end = |byte: &u8| ends(*byte) || (colon && *byte == b':');
            let text = &text[..text.len().min(most)];
            text.iter().position(end).unwrap_or(text.len())
        };
        let user = self.rest(at);
        let run = part(user, URL_USER_BYTES, true);
        if run == user.len() {
            return self.more(self.text.len());
        }
        if user.get(run) != Some(&b':') {
            return Verdict::No;
        }
        let from = at + run + 1;
        let password = self.rest(from);
        // A variable, a placeholder, or something already redacted.
        if password
            .first()
            .is_some_and(|byte| b"$<{*[(".contains(byte))
        {
            return Verdict::No;
        }
        let run = part(password, URL_PASSWORD_BYTES, false);
        if run == password.len() {
            return self.more(from);
        }
        match run >= URL_PASSWORD_LEAST && password.get(run) == Some(&b'@') {
            true => Verdict::Yes {
                from,
                to: from + run,
                eat: None,
            },
            false => Verdict::No,
        }
    }

    /// Where the value after a name begins.
    fn separator(self, at: usize) -> Result<usize, Verdict> {
        let rest = self.rest(at);
        let between = |byte: &&u8| b" \t\"':=>,".contains(byte);
        let run = rest
            .iter()
            .take(SEPARATOR_BYTES)
            .take_while(between)
            .count();
        match run {
            _ if run == rest.len() => Err(self.more(self.text.len())),
            0 => Err(Verdict::No),
            _ => Ok(at + run),
        }
    }

    fn exactly_aws(self, at: usize) -> Verdict {
        let body = self.rest(at);
        let fine = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'+');
        let run = body
            .iter()
            .take(AWS_SECRET_BYTES + 1)
            .take_while(fine)
            .count();
        match run {
            _ if run == AWS_SECRET_BYTES && (run < body.len() || self.whole) => Verdict::Yes {
                from: at,
                to: at + run,
                eat: None,
            },
            _ if run == body.len() && run <= AWS_SECRET_BYTES => self.more(at),
            _ => Verdict::No,
        }
    }

    fn header(self, at: usize) -> Verdict {
        let rest = self.rest(at);
        let mut more = false;
        for scheme in ["bearer ", "basic ", "token "] {
            let short = rest.len().min(scheme.len());
            if !rest[..short].eq_ignore_ascii_case(&scheme.as_bytes()[..short]) {
                continue;
            }
            if short < scheme.len() {
                more = true;
                continue;
            }
            let value = at + scheme.len();
            let body = self.rest(value);
            let first = &body[..body.len().min(HEADER_VALUE_BYTES)];
            if Class::Header.run(first) < first.len() {
                return Verdict::No;
            }
            if first.len() < HEADER_VALUE_BYTES {
                return self.more(value);
            }
            // Words of a sentence have neither digits nor capitals.
            let random = |byte: &u8| byte.is_ascii_digit() || byte.is_ascii_uppercase();
            return match first.iter().any(random) {
                true => Verdict::Yes {
                    from: value,
                    to: value + HEADER_VALUE_BYTES,
                    eat: Some(Eat::all(Class::Header)),
                },
                false => Verdict::No,
            };
        }
        match more {
            true => self.more(self.text.len()),
            false => Verdict::No,
        }
    }
}

/// The names of all kinds, without duplicates.
pub fn names() -> impl Iterator<Item = &'static str> {
    let first = |at: &usize| *at == 0 || ROWS[at - 1].kind != ROWS[*at].kind;
    (0..ROWS.len()).filter(first).map(|at| ROWS[at].kind)
}
