//! The name that somebody probably meant: the nearest one by edit distance.

/// Names longer than this are not compared; nobody means a name of ours with so many letters.
const NAME_LEN_MAX: usize = 64;

/// Edits up to which a name is taken for a slip of the fingers.
const EDITS_MAX: usize = 3;

/// The name of `known` that needs the fewest edits (letters added, dropped, changed or two swapped) to become `name`;
/// `None` if none is near.
#[must_use]
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > NAME_LEN_MAX {
        return None;
    }
    let edits_max = EDITS_MAX.min(name.len().div_ceil(2));
    let ranked = known.into_iter().map(|other| (edits(name.as_bytes(), other.as_bytes()), other));
    ranked.filter(|&(edits, _)| edits <= edits_max).min_by_key(|&(edits, _)| edits).map(|(_, other)| other)
}

/// Optimal string alignment distance: three rows of the usual table.
fn edits(a: &[u8], b: &[u8]) -> usize {
    let mut before = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, &x) in a.iter().enumerate() {
        let mut row = vec![i + 1; b.len() + 1];
        for (j, &y) in b.iter().enumerate() {
            let changed = last[j] + usize::from(x != y);
            row[j + 1] = changed.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && x == b[j - 1] && a[i - 1] == y {
                row[j + 1] = row[j + 1].min(before[j - 1] + 1);
            }
        }
        before = last;
        last = row;
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_names() {
        let known = ["data", "listen", "advertise", "join", "port_base", "log"];
        let cases = [
            ("lsiten", Some("listen")),
            ("advertize", Some("advertise")),
            ("port-base", Some("port_base")),
            ("dat", Some("data")),
            ("colour", None),
            ("x", None),
            ("", None),
        ];
        for (name, expected) in cases {
            assert_eq!(nearest(name, known), expected, "{name}");
        }
        assert_eq!(nearest(&"l".repeat(NAME_LEN_MAX + 1), known), None);
    }

    #[test]
    fn edits_of_known_pairs() {
        for (a, b, expected) in
            [("", "abc", 3), ("abc", "", 3), ("kitten", "sitting", 3), ("ab", "ba", 1), ("a", "a", 0)]
        {
            assert_eq!(edits(a.as_bytes(), b.as_bytes()), expected, "{a} {b}");
        }
    }
}
