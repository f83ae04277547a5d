//! Pages of neighbouring keys, with common beginnings told once.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::index::request::{Entry, LINES_MAX, Line, PAGE_BYTES_MAX, Reply, Scan, Span};

/// A page that is being filled.
struct Page {
    lines: Vec<Line>,
    bytes: usize,
    lines_max: usize,
}

impl Page {
    fn new(lines_max: usize) -> Self {
        Self { lines: Vec::new(), bytes: 0, lines_max: lines_max.min(LINES_MAX) }
    }

    /// Takes the lines of a scan, as far as there is room. The key with which it goes on if there is more.
    fn fill(&mut self, map: &BTreeMap<Vec<u8>, Entry>, scan: &Scan) -> Option<Vec<u8>> {
        let mut from = Bound::Included(scan.from.clone());
        loop {
            let is_empty = match &from {
                Bound::Included(from) | Bound::Excluded(from) => *from >= scan.to,
                Bound::Unbounded => false,
            };
            // Folding skips from one beginning to the next: a page costs its lines, not all keys behind them.
            let found = if is_empty { None } else { map.range((from, Bound::Excluded(scan.to.clone()))).next() };
            let (key, entry) = found?;
            let folded = folded(key, scan);
            let more = 64 + folded.map_or(key.len() + entry.value.len(), <[u8]>::len);
            let is_long = self.bytes + more > PAGE_BYTES_MAX && !self.lines.is_empty();
            if self.lines.len() >= self.lines_max || is_long {
                return Some(key.clone());
            }
            self.bytes += more;
            match folded {
                None => {
                    self.lines.push(Line::Entry(key.clone(), entry.clone()));
                    from = Bound::Excluded(key.clone());
                }
                Some(beginning) => {
                    self.lines.push(Line::Folded(beginning.to_vec()));
                    from = Bound::Included(behind(beginning)?);
                }
            }
        }
    }
}

/// The page that a scan asks for.
pub(super) fn page(map: &BTreeMap<Vec<u8>, Entry>, scan: &Scan) -> Reply {
    let mut page = Page::new(usize::try_from(scan.lines_max).unwrap_or(usize::MAX));
    let next = page.fill(map, scan);
    Reply::Page { lines: page.lines, next }
}

/// The page of several spans.
pub(super) fn page_of_spans(map: &BTreeMap<Vec<u8>, Entry>, spans: &[Span]) -> Reply {
    let mut page = Page::new(LINES_MAX);
    let next = spans.iter().find_map(|(from, to)| {
        let scan = Scan { from: from.clone(), to: to.clone(), fold: Vec::new(), fold_after: 0, lines_max: u32::MAX };
        page.fill(map, &scan)
    });
    Reply::Page { lines: page.lines, next }
}

/// The beginning under which a key is told, if it is folded.
fn folded<'a>(key: &'a [u8], scan: &Scan) -> Option<&'a [u8]> {
    let skipped = usize::try_from(scan.fold_after).ok()?;
    let rest = key.get(skipped..)?;
    if scan.fold.is_empty() {
        return None;
    }
    let at = rest.windows(scan.fold.len()).position(|window| window == scan.fold)?;
    Some(&key[..skipped + at + scan.fold.len()])
}

/// The first key behind all that begin so.
fn behind(beginning: &[u8]) -> Option<Vec<u8>> {
    let last = beginning.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut behind = beginning[..=last].to_vec();
    behind[last] += 1;
    Some(behind)
}
