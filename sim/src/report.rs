//! Figures as rows: a table for people, one JSON object for programs.

use std::io::{Result, Write};

use crate::bus::Traffic;

/// One figure.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) case: String,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
}

/// All figures of one command.
#[derive(Debug, Default)]
pub(crate) struct Rows(pub(crate) Vec<Row>);

impl Rows {
    pub(crate) fn add(&mut self, case: impl Into<String>, value: f64, unit: &'static str) {
        self.0.push(Row { case: case.into(), value, unit });
    }

    /// A span of time, in seconds.
    pub(crate) fn add_ns(&mut self, case: impl Into<String>, span_ns: u64) {
        self.add(case, span_ns as f64 / 1e9, "s");
    }

    /// What members sent in a span: mean and worst.
    pub(crate) fn add_traffic(&mut self, case: &str, traffic: &[Traffic], span_ns: u64) {
        let (seconds, members) = (span_ns as f64 / 1e9, traffic.len().max(1) as f64);
        let [bytes, packets] = [|one: &Traffic| one.bytes, |one: &Traffic| one.packets].map(|of| {
            let sum: u64 = traffic.iter().map(of).sum();
            (sum as f64 / members / seconds, traffic.iter().map(of).max().unwrap_or(0) as f64 / seconds)
        });
        self.add(format!("{case}/sent/mean"), bytes.0, "B/s");
        self.add(format!("{case}/sent/worst"), bytes.1, "B/s");
        self.add(format!("{case}/packets/mean"), packets.0, "packets/s");
        self.add(format!("{case}/packets/worst"), packets.1, "packets/s");
    }

    /// Prints all of them; `name` is the simulation's.
    pub(crate) fn print(&self, out: &mut dyn Write, name: &str, json: bool) -> Result<()> {
        if json {
            let machine = format!("{{\"arch\": \"{}\", \"os\": \"{}\"}}", std::env::consts::ARCH, std::env::consts::OS);
            let row = |Row { case, value, unit }: &Row| {
                format!("{{\"case\": \"{case}\", \"value\": {value:.3}, \"unit\": \"{unit}\"}}")
            };
            let rows: Vec<String> = self.0.iter().map(row).collect();
            return writeln!(
                out,
                "{{\"bench\": \"sim {name}\", \"machine\": {machine}, \"rows\": [{}]}}",
                rows.join(", ")
            );
        }
        self.0.iter().try_for_each(|Row { case, value, unit }| writeln!(out, "{case:<36} {value:>16.3} {unit}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_for_people_and_programs() {
        let mut rows = Rows::default();
        rows.add_ns("kill/served", 1_500_000_000);
        let sent = [1_000, 3_000].map(|bytes| Traffic::new(bytes / 100, bytes));
        rows.add_traffic("idle", &sent, 2_000_000_000);
        let values: Vec<f64> = rows.0.iter().map(|row| row.value).collect();
        assert_eq!(values, [1.5, 1_000.0, 1_500.0, 10.0, 15.0]);
        let print = |json| {
            let mut out = Vec::new();
            rows.print(&mut out, "bus", json).expect("a vector takes it");
            String::from_utf8(out).expect("rows are text")
        };
        assert!(print(true).contains("{\"case\": \"kill/served\", \"value\": 1.500, \"unit\": \"s\"}"));
        assert_eq!((print(false).lines().count(), print(true).lines().count()), (5, 1));
    }
}
