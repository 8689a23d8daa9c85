//! The table of results.

/// One result and its target.
struct Line {
    what: String,
    found: String,
    must: String,
    met: Option<bool>,
}

/// Prints results as they come and a summary at the end.
#[derive(Debug, Default)]
pub struct Report {
    missed: Vec<String>,
    counted: usize,
}

impl Report {
    /// A group's heading.
    pub fn group(&self, title: &str) {
        println!("\n{title}");
    }

    /// A result without a target: a rival's, or a detail.
    pub fn note(&self, what: &str, found: String) {
        print(&Line {
            what: what.to_string(),
            found,
            must: String::new(),
            met: None,
        });
    }

    /// A result with an upper limit.
    pub fn at_most(&mut self, what: &str, value: f64, limit: f64, unit: &str) {
        self.judge(what, value, limit, unit, "<=", value <= limit);
    }

    /// A result with a lower limit.
    pub fn at_least(&mut self, what: &str, value: f64, limit: f64, unit: &str) {
        self.judge(what, value, limit, unit, ">=", value >= limit);
    }

    fn judge(&mut self, what: &str, value: f64, limit: f64, unit: &str, sign: &str, met: bool) {
        self.counted += 1;
        if !met {
            self.missed.push(what.to_string());
        }
        print(&Line {
            what: what.to_string(),
            found: format!("{} {unit}", number(value)),
            must: format!("{sign} {} {unit}", number(limit)),
            met: Some(met),
        });
    }

    /// Prints the summary.
    pub fn finish(&self) {
        println!(
            "\n{} of {} figures met",
            self.counted - self.missed.len(),
            self.counted
        );
        for what in &self.missed {
            println!("missed: {what}");
        }
    }
}

fn number(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.3}")
    }
}

fn print(line: &Line) {
    let verdict = match line.met {
        Some(true) => "met",
        Some(false) => "MISSED",
        None => "",
    };
    println!(
        "  {:<52} {:>16}  {:<16} {verdict}",
        line.what, line.found, line.must
    );
}
