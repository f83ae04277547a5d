//! Tables for people: columns as wide as their widest cell, two spaces between them.

/// The table as text, without a line end at its end. Each row has as many cells as the head.
#[must_use]
pub fn text(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).chain([head[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded: Vec<String> = cells.zip(&widths).map(|(cell, &width)| format!("{cell:width$}")).collect();
        padded.join("  ").trim_end().to_owned()
    };
    let mut lines = vec![line(&mut head.iter().copied())];
    lines.extend(rows.iter().map(|row| line(&mut row.iter().map(String::as_str))));
    lines.join("\n")
}

/// A number of bytes in the unit that fits.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "one digit after the point is shown")]
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = count as f64;
    if count < 1_024 {
        return format!("{count} B");
    }
    let mut unit = "";
    for name in UNITS {
        if value < 1_024.0 {
            break;
        }
        value /= 1_024.0;
        unit = name;
    }
    format!("{value:.1} {unit}")
}

/// A span in the unit that fits.
#[must_use]
pub fn span(millis: u64) -> String {
    let seconds = millis / 1_000;
    match seconds {
        0..60 => format!("{seconds}.{} s", millis % 1_000 / 100),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [vec!["1".to_owned(), "long cell".to_owned()], vec!["22".to_owned(), String::new()]];
        assert_eq!(text(&["a", "b"], &rows), "a   b\n1   long cell\n22");
    }

    #[test]
    fn units() {
        let cases =
            [(0, "0 B"), (1_023, "1023 B"), (1_024, "1.0 KiB"), (1_572_864, "1.5 MiB"), (u64::MAX, "16384.0 PiB")];
        for (count, expected) in cases {
            assert_eq!(bytes(count), expected);
        }
        for (millis, expected) in [(0, "0.0 s"), (59_999, "59.9 s"), (61_000, "1 min 1 s"), (90_000_000, "1 d 1 h")] {
            assert_eq!(span(millis), expected);
        }
    }
}
