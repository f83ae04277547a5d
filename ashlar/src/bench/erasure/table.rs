//! The rows as a table for people, and as CSV.

use super::figures::COLUMNS;
use crate::bench::report::Row;

/// Heads of the table for people; after the first two, as [`COLUMNS`].
pub const HEAD: [&str; 10] =
    ["case", "GB/s", "best", "Gbit/s", "of 25G", "of 100G", "of 400G", "cores for 400G", "of copy", "of xor"];

/// One row of the table for people: as many cells as [`HEAD`].
#[must_use]
pub fn cells(row: &Row) -> Vec<String> {
    let figure = |name: &str| row.columns.iter().find(|(column, _)| *column == name).map(|(_, value)| *value);
    let mut cells = vec![row.case.clone(), format!("{:.2}", row.value)];
    cells.extend(COLUMNS.iter().map(|name| match (figure(name), *name) {
        (None, _) => "-".to_owned(),
        (Some(value), "gbit_per_s") => format!("{value:.0}"),
        (Some(value), "cores_for_400gbit") => format!("{value:.1}"),
        (Some(value), _) => format!("{value:.2}"),
    }));
    cells
}

/// All rows as CSV (RFC 4180): a head, then one line a row; a field is empty where a row has no such figure.
#[must_use]
pub fn csv(rows: &[Row]) -> String {
    let mut lines = vec![["case", "value", "unit"].into_iter().chain(COLUMNS).collect::<Vec<_>>().join(",")];
    for row in rows {
        let mut fields = vec![row.case.clone(), row.value.to_string(), row.unit.to_owned()];
        fields.extend(COLUMNS.iter().map(|name| {
            let figure = row.columns.iter().find(|(column, _)| column == name);
            figure.map(|(_, value)| value.to_string()).unwrap_or_default()
        }));
        // Names of cases and units hold no comma, quote or line end.
        lines.push(fields.join(","));
    }
    lines.iter().map(|line| format!("{line}\r\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{figures, run, tests::small};
    use super::*;

    #[test]
    fn cells_fit_the_head() {
        let row = Row::new("encode/cold/12+4/t1", 31.256, "GB/s").with("best", 32.0).with("gbit_per_s", 250.05);
        let expected = ["encode/cold/12+4/t1", "31.26", "32.00", "250", "-", "-", "-", "-", "-", "-"];
        assert_eq!(cells(&row), expected);
    }

    #[test]
    fn csv_is_well_formed() {
        let results = run(&small(), |_| {}).unwrap();
        let rows = figures::rows(&figures::complete(&results.figures), 2);
        let text = csv(&rows);
        let lines: Vec<Vec<&str>> = text.split_terminator("\r\n").map(|line| line.split(',').collect()).collect();
        assert_eq!(lines.len(), rows.len() + 1);
        assert!(text.ends_with("\r\n") && !text.contains('"'));
        for (line, row) in lines[1..].iter().zip(&rows) {
            assert_eq!((line.len(), line[0], line[2]), (lines[0].len(), row.case.as_str(), "GB/s"));
            assert_eq!(line[1].parse(), Ok(row.value));
            let figures = line[3..].iter().filter(|field| !field.is_empty());
            assert!(figures.map(|field| field.parse::<f64>()).all(|figure| figure.is_ok_and(f64::is_finite)));
        }
    }
}
