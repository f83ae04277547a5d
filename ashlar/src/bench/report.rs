//! Rows of figures, as a table or as JSON.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::os::process;

/// One figure of one case, with further columns.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Name of the case; stays from release to release.
    pub case: String,
    /// The figure.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
    /// Further columns: name with unit, figure.
    pub columns: Vec<(&'static str, f64)>,
}

impl Row {
    /// A row without further columns.
    #[must_use]
    pub fn new(case: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self { case: case.into(), value, unit, columns: Vec::new() }
    }

    /// The same with one more column.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: f64) -> Self {
        self.columns.push((name, value));
        self
    }
}

/// All rows as the one object that `--json` prints; `facts` are what else matters about the machine.
#[must_use]
pub fn json(bench: &str, facts: &[(&str, Value)], rows: &[Row]) -> String {
    let machine = process::machine();
    let rows: Vec<Value> = rows.iter().map(row_json).collect();
    let mut machine = json!({
        "cpu": machine.cpu,
        "cores": machine.cores,
        "memory_bytes": machine.memory_bytes,
        "kernel": machine.kernel,
    });
    facts.iter().for_each(|(name, value)| machine[*name] = value.clone());
    json!({ "bench": bench, "machine": machine, "rows": rows }).to_string()
}

fn row_json(row: &Row) -> Value {
    let mut object = Map::new();
    object.insert("case".into(), json!(row.case));
    object.insert("value".into(), json!(row.value));
    object.insert("unit".into(), json!(row.unit));
    for (name, value) in &row.columns {
        object.insert((*name).into(), json!(value));
    }
    Value::Object(object)
}

/// One line for people.
#[must_use]
pub fn line(row: &Row) -> String {
    let mut text = format!("{:<34} {:>14} {:<8}", row.case, digits(row.value), row.unit);
    for (name, value) in &row.columns {
        write!(text, "  {name} {}", digits(*value)).expect("memory takes text");
    }
    text
}

/// The machine in one line.
#[must_use]
pub fn machine_line() -> String {
    let machine = process::machine();
    let gib = machine.memory_bytes / (1 << 30);
    format!("{} | {} cores | {gib} GiB | Linux {}", machine.cpu, machine.cores, machine.kernel)
}

/// A figure with as many digits as mean something.
fn digits(value: f64) -> String {
    match value.abs() {
        large if large >= 1_000.0 => {
            let digits = format!("{:.0}", value.abs());
            let mut text = String::new();
            for (at, digit) in digits.chars().enumerate() {
                if at > 0 && (digits.len() - at).is_multiple_of(3) {
                    text.push('_');
                }
                text.push(digit);
            }
            if value < 0.0 { format!("-{text}") } else { text }
        }
        medium if medium >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped_and_few() {
        let cases =
            [(1_234_567.8, "1_234_568"), (999.94, "999.9"), (12.34, "12.3"), (0.5, "0.50"), (-1_000.0, "-1_000")];
        for (value, text) in cases {
            assert_eq!(digits(value), text);
        }
    }

    #[test]
    fn json_is_one_object_with_the_agreed_keys() {
        let row = Row::new("calls/2x32", 1.5, "ops/s").with("p50_us", 2.0);
        let value: Value = serde_json::from_str(&json("grid", &[("huge", json!(true))], &[row])).expect("JSON");
        assert_eq!(value["bench"], "grid");
        assert_eq!(value["rows"][0], json!({"case": "calls/2x32", "value": 1.5, "unit": "ops/s", "p50_us": 2.0}));
        assert_eq!(value["machine"]["huge"], true);
        assert!(value["machine"]["cores"].as_u64().is_some_and(|cores| cores >= 1));
    }
}
