//! The grammar of the small shell: simple commands, quotes, variables, redirections.
//!
//! ```text
//!   script  = item { (";" | newline | "&&" | "||" | "&") item }
//!   item    = { word | ">" word | ">>" word | ">&2" | "2>&1" }
//! ```
//!
//! Pure: it parses a script into items; [`crate::program`] runs them.

/// A piece of a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    Text(String),
    /// `$NAME`, `${NAME}` or `$?`.
    Variable(String),
}

/// Pieces that become one argument.
pub type Word = Vec<Part>;

/// The operator after an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    Always,
    IfOk,
    IfFailed,
    /// The item runs in the background.
    Background,
}

/// Where a command's output goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Redirect {
    OutToErr,
    ErrToOut,
    OutToFile { path: Word, append: bool },
}

/// One simple command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    pub words: Vec<Word>,
    pub redirects: Vec<Redirect>,
    pub then: Then,
}

/// Parses a script, or returns an error message.
pub fn parse(script: &str) -> Result<Vec<Item>, String> {
    let mut reader = Reader {
        rest: script.chars().collect(),
        at: 0,
    };
    let mut items = Vec::new();
    let mut words = Vec::new();
    let mut redirects = Vec::new();
    while let Some(token) = reader.token()? {
        match token {
            Token::Word(word) => words.push(word),
            Token::Redirect(redirect) => redirects.push(redirect),
            Token::Then(then) => {
                if !words.is_empty() {
                    items.push(Item {
                        words: std::mem::take(&mut words),
                        redirects: std::mem::take(&mut redirects),
                        then,
                    });
                }
            }
        }
    }
    if !words.is_empty() {
        items.push(Item {
            words,
            redirects,
            then: Then::Always,
        });
    }
    Ok(items)
}

enum Token {
    Word(Word),
    Redirect(Redirect),
    Then(Then),
}

struct Reader {
    rest: Vec<char>,
    at: usize,
}

impl Reader {
    fn peek(&self) -> Option<char> {
        self.rest.get(self.at).copied()
    }

    /// Takes `text` if it comes next.
    fn eat(&mut self, text: &str) -> bool {
        let wanted: Vec<char> = text.chars().collect();
        let found = self.rest[self.at..].starts_with(&wanted);
        if found {
            self.at += wanted.len();
        }
        found
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(' ' | '\t')) {
            self.at += 1;
        }
    }

    fn token(&mut self) -> Result<Option<Token>, String> {
        self.blanks();
        // Longer operators first: `&&` is not two `&`.
        for (text, then) in [
            ("&&", Then::IfOk),
            ("||", Then::IfFailed),
            (";", Then::Always),
            ("\n", Then::Always),
            ("&", Then::Background),
        ] {
            if self.eat(text) {
                return Ok(Some(Token::Then(then)));
            }
        }
        if self.eat("2>&1") {
            return Ok(Some(Token::Redirect(Redirect::ErrToOut)));
        }
        if self.eat(">&2") || self.eat("1>&2") {
            return Ok(Some(Token::Redirect(Redirect::OutToErr)));
        }
        if self.eat(">") {
            let append = self.eat(">");
            self.blanks();
            let path = self.word()?;
            return Ok(Some(Token::Redirect(Redirect::OutToFile { path, append })));
        }
        match self.peek() {
            None => Ok(None),
            Some(c) if "|()<`".contains(c) => Err(format!("{c:?} is more than a fake shell knows")),
            Some(_) => self.word().map(|word| Some(Token::Word(word))),
        }
    }

    fn word(&mut self) -> Result<Word, String> {
        let mut word = Word::new();
        while let Some(c) = self.peek() {
            match c {
                ' ' | '\t' | '\n' | ';' | '&' | '|' | '>' | '<' | '(' | ')' => break,
                '\'' => self.single_quoted(&mut word)?,
                '"' => self.double_quoted(&mut word)?,
                '$' => self.variable(&mut word)?,
                '\\' => {
                    self.at += 1;
                    if let Some(c) = self.peek() {
                        self.at += 1;
                        push(&mut word, c);
                    }
                }
                c => {
                    self.at += 1;
                    push(&mut word, c);
                }
            }
        }
        Ok(word)
    }

    fn single_quoted(&mut self, word: &mut Word) -> Result<(), String> {
        self.at += 1;
        // An empty pair of quotes is a word, too.
        word.push(Part::Text(String::new()));
        loop {
            match self.peek() {
                None => return Err("an unfinished quote".to_string()),
                Some('\'') => break,
                Some(c) => push(word, c),
            }
            self.at += 1;
        }
        self.at += 1;
        Ok(())
    }

    fn double_quoted(&mut self, word: &mut Word) -> Result<(), String> {
        self.at += 1;
        word.push(Part::Text(String::new()));
        loop {
            match self.peek() {
                None => return Err("an unfinished quote".to_string()),
                Some('"') => break,
                Some('$') => {
                    self.variable(word)?;
                    continue;
                }
                Some('\\')
                    if matches!(self.rest.get(self.at + 1), Some('"' | '\\' | '$' | '`')) =>
                {
                    self.at += 1;
                    push(word, self.rest[self.at]);
                }
                Some(c) => push(word, c),
            }
            self.at += 1;
        }
        self.at += 1;
        Ok(())
    }

    fn variable(&mut self, word: &mut Word) -> Result<(), String> {
        self.at += 1;
        let braced = self.eat("{");
        let mut name = String::new();
        if self.eat("?") {
            name.push('?');
        }
        while let Some(c) = self
            .peek()
            .filter(|c| c.is_ascii_alphanumeric() || *c == '_')
        {
            name.push(c);
            self.at += 1;
        }
        if braced && !self.eat("}") {
            return Err("a bad substitution".to_string());
        }
        match name.is_empty() {
            true if self.peek() == Some('(') => {
                Err("no command substitution in a fake shell".into())
            }
            true => {
                push(word, '$');
                Ok(())
            }
            false => {
                word.push(Part::Variable(name));
                Ok(())
            }
        }
    }
}

fn push(word: &mut Word, c: char) {
    match word.last_mut() {
        Some(Part::Text(text)) => text.push(c),
        _ => word.push(Part::Text(c.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Part {
        Part::Text(text.to_string())
    }

    #[test]
    fn quotes_variables_and_operators() {
        let items = parse("echo 'a $b' \"c $D e\" >&2; exit 3 && true & false").unwrap();
        assert_eq!(items.len(), 4);
        assert_eq!(items[0].words[1], vec![text("a $b")]);
        assert_eq!(
            items[0].words[2],
            vec![text("c "), Part::Variable("D".into()), text(" e")]
        );
        assert_eq!(items[0].redirects, [Redirect::OutToErr]);
        assert_eq!(items[1].then, Then::IfOk);
        assert_eq!(items[2].then, Then::Background);
    }

    #[test]
    fn an_escaped_quote_inside_quotes() {
        let items = parse(r"echo 'it'\''s' ''").unwrap();
        let joined = |word: &Word| {
            word.iter()
                .map(|part| match part {
                    Part::Text(text) => text.clone(),
                    Part::Variable(name) => name.clone(),
                })
                .collect::<String>()
        };
        assert_eq!(joined(&items[0].words[1]), "it's");
        assert_eq!(joined(&items[0].words[2]), "");
    }

    #[test]
    fn what_it_does_not_know_it_refuses() {
        for script in ["a | b", "(a)", "echo $(id)", "echo 'x"] {
            assert!(parse(script).is_err(), "{script}");
        }
    }
}
