//! Text form of a whole state, for `catalog export` and `catalog import`: one record a line.
//!
//! The first line says what it is, the second holds the header, the last one the number of records between. A line that
//! is missing, doubled or out of order is an error. People may change values: there is no checksum.

use super::State;
use super::snapshot::{TableReader, TableWriter, VERSION, append};
use crate::codec::text::{TextSink, TextSource};
use crate::error::FormError;
use crate::table::{Row, Table};

const HEAD: &str = "ashlar catalog";

#[derive(Debug, Default)]
struct TextWriter {
    out: TextSink,
    records: usize,
}

impl TableWriter for TextWriter {
    fn table<R: Row>(&mut self, table: &Table<R>) {
        for row in table.iter() {
            self.out.0.push_str(R::KIND);
            row.write(&mut self.out);
            self.out.0.push('\n');
            self.records += 1;
        }
    }
}

/// Reads lines that are not empty, with their numbers.
struct TextReader<'a, I: Iterator<Item = (usize, &'a str)>> {
    lines: core::iter::Peekable<I>,
    records: usize,
}

impl<'a, I: Iterator<Item = (usize, &'a str)>> TextReader<'a, I> {
    fn next_line(&mut self, what: &'static str) -> Result<TextSource<'a>, FormError> {
        let (line, text) = self.lines.next().ok_or(FormError::BadText { line: 0, what })?;
        Ok(TextSource::new(text, line))
    }
}

impl<'a, I: Iterator<Item = (usize, &'a str)>> TableReader for TextReader<'a, I> {
    fn table<R: Row>(&mut self, table: &mut Table<R>) -> Result<(), FormError> {
        let is_next = |(_, text): &(usize, &str)| text.split_ascii_whitespace().next() == Some(R::KIND);
        while let Some((line, text)) = self.lines.next_if(is_next) {
            let mut words = TextSource::new(text, line);
            words.kind()?;
            let row = R::read(&mut words)?;
            words.finish()?;
            if table.len() == R::ROWS_MAX {
                let count = u64::try_from(table.len() + 1).expect("a size of this machine fits 64 bits");
                return Err(FormError::TooMany { what: R::KIND, count, max: R::ROWS_MAX });
            }
            append(table, row)?;
            self.records += 1;
        }
        Ok(())
    }
}

impl State {
    /// The text form of the whole state.
    #[must_use]
    pub fn export(&self) -> String {
        let mut writer = TextWriter::default();
        writer.out.0 = format!("{HEAD} {VERSION}\ncatalog");
        self.write_head(&mut writer.out);
        writer.out.0.push('\n');
        self.write_tables(&mut writer);
        let TextWriter { out: TextSink(mut text), records } = writer;
        text.push_str(&format!("end records={records}\n"));
        text
    }

    /// Reads what [`State::export`] wrote, perhaps with other values. Empty lines and lines that begin with `#` are
    /// passed over.
    ///
    /// # Errors
    /// The writer's, with the number of the line where that helps. No retry helps.
    pub fn import(text: &str) -> Result<Self, FormError> {
        let lines = text.lines().enumerate().map(|(place, line)| (place + 1, line.trim()));
        let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let mut reader = TextReader { lines: lines.peekable(), records: 0 };
        let (_, head) = reader.lines.next().ok_or(FormError::NotThis)?;
        let version = head.strip_prefix(HEAD).ok_or(FormError::NotThis)?.trim();
        if version != VERSION.to_string() {
            return Err(version.parse().map_or(FormError::NotThis, FormError::UnknownVersion));
        }
        let mut words = reader.next_line("catalog")?;
        if words.kind()? != "catalog" {
            return Err(words.bad("catalog"));
        }
        let mut state = Self::read_head(&mut words)?;
        words.finish()?;
        state.read_tables(&mut reader)?;
        let mut words = reader.next_line("end")?;
        let records = u64::try_from(reader.records).expect("a size of this machine fits 64 bits");
        if words.kind()? != "end" || crate::codec::Source::uint(&mut words, "records")? != records {
            return Err(words.bad("end after the last record"));
        }
        words.finish()?;
        if reader.lines.next().is_some() { Err(FormError::TrailingBytes) } else { state.finished() }
    }
}
