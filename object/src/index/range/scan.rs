//! Pages of neighbouring keys, with common beginnings told once.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::index::request::{Entry, LINES_MAX, Line, PAGE_BYTES_MAX, Reply, Scan};

/// The page that a scan asks for.
pub(super) fn page(map: &BTreeMap<Vec<u8>, Entry>, scan: &Scan) -> Reply {
    let lines_max = usize::try_from(scan.lines_max).unwrap_or(usize::MAX).min(LINES_MAX);
    let mut lines = Vec::new();
    let mut bytes = 0;
    let mut from = Bound::Included(scan.from.clone());
    loop {
        let is_empty = match &from {
            Bound::Included(from) | Bound::Excluded(from) => *from >= scan.to,
            Bound::Unbounded => false,
        };
        // Folding skips from one beginning to the next: a page costs its lines, not all keys behind them.
        let found = if is_empty { None } else { map.range((from, Bound::Excluded(scan.to.clone()))).next() };
        let Some((key, entry)) = found else { return Reply::Page { lines, next: None } };
        let folded = folded(key, scan);
        let more = 64 + folded.map_or(key.len() + entry.value.len(), <[u8]>::len);
        if lines.len() >= lines_max || (bytes + more > PAGE_BYTES_MAX && !lines.is_empty()) {
            return Reply::Page { lines, next: Some(key.clone()) };
        }
        bytes += more;
        match folded {
            None => {
                lines.push(Line::Entry(key.clone(), entry.clone()));
                from = Bound::Excluded(key.clone());
            }
            Some(beginning) => {
                lines.push(Line::Folded(beginning.to_vec()));
                match behind(beginning) {
                    Some(next) => from = Bound::Included(next),
                    None => return Reply::Page { lines, next: None },
                }
            }
        }
    }
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
