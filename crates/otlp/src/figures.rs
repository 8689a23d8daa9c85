//! The measurements of `/metrics` as metrics of OTLP, so that both say the same.

use crate::attributes::Attributes;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Totals since the start, not since the last time.
const CUMULATIVE: u8 = 2;

/// What a line of the text says: a name, labels and a number.
#[derive(Debug, PartialEq)]
struct Sample<'a> {
    name: &'a str,
    labels: Vec<(&'a str, String)>,
    value: &'a str,
}

/// One metric of the text: its kind and its samples.
#[derive(Debug, Default)]
struct Family<'a> {
    name: &'a str,
    kind: &'a str,
    help: &'a str,
    samples: Vec<Sample<'a>>,
}

/// Reads the text format that Prometheus reads, and writes metrics. Times are in nanoseconds.
pub fn metrics(text: &str, started: u64, now: u64) -> Vec<Value> {
    let times = json!({"startTimeUnixNano": started.to_string(), "timeUnixNano": now.to_string()});
    let families = families(text);
    let metrics = families.iter().filter_map(|family| {
        let (field, data) = match family.kind {
            "counter" => ("sum", counted(family, &times)),
            "gauge" => ("gauge", gauged(family, &times)),
            "histogram" => ("histogram", histogram(family, &times)),
            _ => return None,
        };
        // Nothing is told of what was never seen.
        let told = data["dataPoints"].as_array()?;
        (!told.is_empty()).then(|| {
            json!({
                "name": family.name, "description": family.help, "unit": unit(family.name), field: data,
            })
        })
    });
    metrics.collect()
}

fn unit(name: &str) -> &'static str {
    match name {
        _ if name.ends_with("_seconds") => "s",
        _ if name.ends_with("_bytes") => "By",
        _ => "1",
    }
}

fn families(text: &str) -> Vec<Family<'_>> {
    let mut all: Vec<Family<'_>> = Vec::new();
    for line in text.lines() {
        let mut words = line.splitn(4, ' ');
        let head = (words.next(), words.next(), words.next(), words.next());
        if let (Some("#"), Some(what @ ("HELP" | "TYPE")), Some(name), Some(rest)) = head {
            if all.last().is_none_or(|family| family.name != name) {
                all.push(Family {
                    name,
                    ..Family::default()
                });
            }
            if let Some(family) = all.last_mut() {
                match what {
                    "TYPE" => family.kind = rest,
                    _ => family.help = rest,
                }
            }
        } else if let (Some(sample), Some(family)) = (sample(line), all.last_mut()) {
            family.samples.push(sample);
        }
    }
    all
}

/// `name{label="value",…} number`, or the same without labels.
fn sample(line: &str) -> Option<Sample<'_>> {
    if line.starts_with('#') {
        return None;
    }
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (label, after) = rest.split_once("=\"")?;
            let (value, after) = quoted(after)?;
            labels.push((label, value));
            rest = after.strip_prefix(',').unwrap_or(after);
        }
        rest = rest.strip_prefix('}')?;
    }
    let value = rest.split_whitespace().next()?;
    Some(Sample {
        name,
        labels,
        value,
    })
}

/// A value up to its closing quote, and what follows.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match letters.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

fn point(labels: &[(&str, String)], times: &Value) -> Value {
    let attributes = labels
        .iter()
        .fold(Attributes::default(), |all, (name, value)| {
            all.text(name, value)
        });
    let mut point = times.clone();
    point["attributes"] = attributes.list().into();
    point
}

fn counted(family: &Family<'_>, times: &Value) -> Value {
    let totals = family.samples.iter();
    let points = totals.filter(|sample| sample.name.ends_with("_total"));
    let points = points.map(|sample| {
        let mut point = point(&sample.labels, times);
        point["asInt"] = sample.value.into();
        point
    });
    json!({
        "aggregationTemporality": CUMULATIVE, "isMonotonic": true,
        "dataPoints": points.collect::<Vec<Value>>(),
    })
}

fn gauged(family: &Family<'_>, times: &Value) -> Value {
    let points = family.samples.iter().map(|sample| {
        let mut point = point(&sample.labels, times);
        point["asInt"] = sample.value.into();
        point
    });
    json!({"dataPoints": points.collect::<Vec<Value>>()})
}

/// What the samples of one histogram say together.
#[derive(Default)]
struct Distribution<'a> {
    labels: Vec<(&'a str, String)>,
    sum: f64,
    count: &'a str,
    /// How many were at most so large, by bound; the last one has none.
    buckets: Vec<(Option<f64>, u64)>,
}

fn histogram(family: &Family<'_>, times: &Value) -> Value {
    let mut all: BTreeMap<String, Distribution<'_>> = BTreeMap::new();
    for sample in &family.samples {
        let (bounds, labels): (Vec<_>, Vec<_>) = sample
            .labels
            .iter()
            .cloned()
            .partition(|(name, _)| *name == "le");
        let one = all.entry(format!("{labels:?}")).or_default();
        one.labels = labels;
        match sample.name.rsplit_once('_').map(|(_, last)| last) {
            Some("sum") => one.sum = sample.value.parse().unwrap_or(0.0),
            Some("count") => one.count = sample.value,
            Some("bucket") => {
                let bound = bounds.first().and_then(|(_, bound)| bound.parse().ok());
                let bound = bound.filter(|bound: &f64| bound.is_finite());
                one.buckets.push((bound, sample.value.parse().unwrap_or(0)));
            }
            _ => {}
        }
    }
    let points = all.values().map(|one| {
        let mut point = point(&one.labels, times);
        point["sum"] = one.sum.into();
        point["count"] = one.count.into();
        let bounds = one.buckets.iter().filter_map(|(bound, _)| *bound);
        point["explicitBounds"] = bounds.collect::<Vec<f64>>().into();
        // Here each bucket counts its own, there all below it, too.
        let mut below = 0;
        let own = one.buckets.iter().map(|(_, upto)| {
            let own = upto.saturating_sub(below);
            below = *upto;
            own.to_string()
        });
        point["bucketCounts"] = own.collect::<Vec<String>>().into();
        point
    });
    json!({
        "aggregationTemporality": CUMULATIVE, "dataPoints": points.collect::<Vec<Value>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP motu_calls Calls by verb and outcome.\n# TYPE motu_calls counter\n\
        motu_calls_total{verb=\"exec\",outcome=\"ok\"} 2\n\
        # HELP motu_call_duration_seconds How long.\n# TYPE motu_call_duration_seconds histogram\n\
        motu_call_duration_seconds_sum{verb=\"exec\"} 0.5\nmotu_call_duration_seconds_count{verb=\"exec\"} 4\n\
        motu_call_duration_seconds_bucket{le=\"0.001\",verb=\"exec\"} 1\n\
        motu_call_duration_seconds_bucket{le=\"0.5\",verb=\"exec\"} 3\n\
        motu_call_duration_seconds_bucket{le=\"+Inf\",verb=\"exec\"} 4\n\
        # HELP motu_sandboxes Alive.\n# TYPE motu_sandboxes gauge\n\
        # HELP motu_connections Open.\n# TYPE motu_connections gauge\nmotu_connections 3\n# EOF\n";

    #[test]
    fn what_prometheus_reads_is_what_is_sent() {
        let all = metrics(TEXT, 1, 2);
        let names: Vec<&str> = all.iter().filter_map(|one| one["name"].as_str()).collect();
        let expected = [
            "motu_calls",
            "motu_call_duration_seconds",
            "motu_connections",
        ];
        assert_eq!(names, expected);
        let point = &all[0]["sum"]["dataPoints"][0];
        assert_eq!(point["asInt"], "2");
        assert_eq!(point["attributes"][1]["value"]["stringValue"], "ok");
        assert_eq!(point["timeUnixNano"], "2");
        let point = &all[1]["histogram"]["dataPoints"][0];
        assert_eq!(all[1]["unit"], "s");
        assert_eq!(point["explicitBounds"], json!([0.001, 0.5]));
        assert_eq!(point["bucketCounts"], json!(["1", "2", "1"]));
        assert_eq!((&point["count"], &point["sum"]), (&json!("4"), &json!(0.5)));
        assert_eq!(point["attributes"].as_array().unwrap().len(), 1);
        assert_eq!(all[2]["gauge"]["dataPoints"][0]["asInt"], "3");
    }

    #[test]
    fn labels_may_hold_anything() {
        let found = sample(r#"a{b="c,\"d}",e="\n"} 5"#).unwrap();
        assert_eq!(
            found.labels,
            [("b", "c,\"d}".to_string()), ("e", "\n".to_string())]
        );
        assert_eq!(found.value, "5");
        assert_eq!(sample("a{b=\"c"), None);
    }
}
