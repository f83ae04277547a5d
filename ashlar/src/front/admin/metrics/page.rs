//! A page in Prometheus' text format, and who writes on it.

use core::fmt::Write as _;
use core::pin::Pin;
use core::time::Duration;

/// Metrics that are being written.
pub type Telling<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// What has metrics to tell. A service brings one, and writes its metrics with their names, kinds and help.
pub trait Source: Send + Sync {
    /// Writes them as of now.
    fn tell<'a>(&'a self, page: &'a mut Page) -> Telling<'a>;
}

/// One page of metrics.
#[derive(Default)]
pub struct Page(String);

/// How a metric behaves.
#[derive(Clone, Copy)]
pub(in super::super) enum Kind {
    /// Rises only, until the process ends.
    Counter,
    /// Goes up and down.
    Gauge,
    /// A sum and a count of spans, both rise only.
    Summary,
    /// The same, with counts of spans up to each of some bounds.
    Histogram,
}

impl Page {
    /// Starts a metric: all its samples follow.
    pub(in super::super) fn metric(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Summary => "summary",
            Kind::Histogram => "histogram",
        };
        writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}").expect("writing to a String cannot fail");
    }

    pub(in super::super) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl core::fmt::Display) {
        self.0.push_str(name);
        for (index, (label, text)) in labels.iter().enumerate() {
            self.0.push(if index == 0 { '{' } else { ',' });
            write!(self.0, "{label}=\"").expect("writing to a String cannot fail");
            self.escaped(text);
            self.0.push('"');
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        writeln!(self.0, " {value}").expect("writing to a String cannot fail");
    }

    fn escaped(&mut self, text: &str) {
        for message_part in text.chars() {
            match message_part {
                '\\' => self.0.push_str("\\\\"),
                '"' => self.0.push_str("\\\""),
                '\n' => self.0.push_str("\\n"),
                other => self.0.push(other),
            }
        }
    }

    pub(super) fn single(&mut self, name: &str, kind: Kind, help: &str, value: impl core::fmt::Display) {
        self.metric(name, kind, help);
        self.sample(name, &[], value);
    }

    /// The samples of a histogram: `within` counts what took no longer than each of `bounds`, and `all` what there was.
    pub(super) fn spans(&mut self, name: &str, labels: &[(&str, &str)], spans: &Spans<'_>) {
        let (bucket, bounds) =
            (format!("{name}_bucket"), spans.bounds.iter().map(|bound| bound.as_secs_f64().to_string()));
        let counts = spans.within.iter().chain([&spans.count]);
        for (bound, count) in bounds.chain(["+Inf".to_owned()]).zip(counts) {
            let labels: Vec<(&str, &str)> = labels.iter().copied().chain([("le", bound.as_str())]).collect();
            self.sample(&bucket, &labels, count);
        }
        self.sample(&format!("{name}_sum"), labels, spans.sum.as_secs_f64());
        self.sample(&format!("{name}_count"), labels, spans.count);
    }

    /// The page.
    #[must_use]
    pub fn into_text(self) -> String {
        self.0
    }
}

/// What a histogram is made of.
pub(super) struct Spans<'a> {
    pub(super) bounds: &'a [Duration],
    pub(super) within: &'a [u64],
    pub(super) sum: Duration,
    pub(super) count: u64,
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    #[test]
    fn what_departs_from_the_conventions_is_seen() {
        let planted = "# HELP a_ms h\n# TYPE a_ms gauge\n# HELP b h\n# TYPE b counter\nc 1\nb 1\nb 1\n";
        assert_eq!(lint(planted).len(), 4, "{:?}", lint(planted));
    }

    #[test]
    fn labels_are_escaped() {
        let mut page = Page::default();
        page.metric("a", Kind::Counter, "Help.");
        page.sample("a", &[("x", "q\"b\\n\n"), ("y", "z")], 1.5);
        page.sample("a", &[], 2);
        assert_eq!(page.0, "# HELP a Help.\n# TYPE a counter\na{x=\"q\\\"b\\\\n\\n\",y=\"z\"} 1.5\na 2\n");
    }

    /// What is wrong with a page by Prometheus' conventions, as `promtool check metrics` has them.
    pub(in super::super) fn lint(page: &str) -> Vec<String> {
        let (mut wrong, mut kinds, mut helps) = (Vec::new(), BTreeMap::new(), BTreeSet::new());
        let mut seen = BTreeSet::new();
        for line in page.lines() {
            let words: Vec<&str> = line.splitn(4, ' ').collect();
            match words[..] {
                ["#", "HELP", name, help] if !help.is_empty() => drop(helps.insert(name)),
                ["#", "TYPE", name, kind] => {
                    if kinds.insert(name, kind).is_some() {
                        wrong.push(format!("{name} begins twice"));
                    }
                    let is_plain = name.chars().all(|letter| matches!(letter, 'a'..='z' | '0'..='9' | '_'));
                    let units = ["_ms", "_us", "_kb", "_mb", "_milliseconds", "_minutes", "_percent"];
                    let suffixes: &[&str] = if kind == "counter" { &[] } else { &["_total"] };
                    let reserved = ["_count", "_sum", "_bucket", "_info_total", "_counter", "_gauge", "_histogram"];
                    if !is_plain || units.iter().chain(suffixes).chain(&reserved).any(|end| name.ends_with(end)) {
                        wrong.push(format!("{name} is no name of a {kind}"));
                    }
                    if kind == "counter" && !name.ends_with("_total") {
                        wrong.push(format!("{name} does not end in _total"));
                    }
                }
                _ => {
                    let name = line.split(['{', ' ']).next().unwrap_or_default();
                    let series = line.rsplit_once(' ').map_or(line, |(series, _)| series);
                    if !seen.insert(series) {
                        wrong.push(format!("{series} is there twice"));
                    }
                    let ends = ["_bucket", "_sum", "_count"];
                    let base =
                        ends.iter().find_map(|end| name.strip_suffix(end)).filter(|base| kinds.contains_key(base));
                    if base.is_none() && !kinds.contains_key(name) || !helps.contains(base.unwrap_or(name)) {
                        wrong.push(format!("{name} has no type or no help"));
                    }
                }
            }
        }
        wrong
    }
}
