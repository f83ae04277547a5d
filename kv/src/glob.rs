//! Patterns as KEYS, SCAN and PSUBSCRIBE take them: `*`, `?`, `[abc]`, `[^a-z]`, and `\` before a byte that is meant itself.
//!
//! A pattern that goes on behind more than a thousand stars matches nothing, as in Valkey. Only the last star is ever gone back to, so a match takes time in proportion to pattern times text at most.

/// Stars that a pattern may go on behind.
const STARS_MAX: usize = 1_000;

/// Whether all of `text` matches `pattern`. `any_case` compares ASCII letters in any case.
pub(crate) fn matches(pattern: &[u8], text: &[u8], any_case: bool) -> bool {
    let (mut at, mut here) = (0, 0);
    // Where the last star is, and what it has taken so far ends.
    let (mut star, mut stars): (Option<(usize, usize)>, usize) = (None, 0);
    while here < text.len() {
        if pattern.get(at) == Some(&b'*') {
            let is_run = at > 0 && pattern[at - 1] == b'*';
            stars += usize::from(!is_run);
            star = Some((at, here));
            at += 1;
            if stars > STARS_MAX && at < pattern.len() {
                return false;
            }
            continue;
        }
        if let Some(next) = one(&pattern[at..], text[here], any_case) {
            at += next;
            here += 1;
            continue;
        }
        let Some((star_at, taken)) = star else { return false };
        star = Some((star_at, taken + 1));
        (at, here) = (star_at + 1, taken + 1);
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// Whether the first element of a pattern matches a byte: how long the element is if so.
fn one(pattern: &[u8], byte: u8, any_case: bool) -> Option<usize> {
    let same = |left: u8, right: u8| left == right || any_case && left.eq_ignore_ascii_case(&right);
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'[', class @ ..] => {
            let (is_in, len) = class_has(class, byte, any_case);
            is_in.then_some(len + 1)
        }
        [b'\\', escaped, ..] => same(*escaped, byte).then_some(2),
        [plain, ..] => same(*plain, byte).then_some(1),
    }
}

/// Whether a class, which begins behind its bracket, has a byte; and how long it is, its end included.
fn class_has(class: &[u8], byte: u8, any_case: bool) -> (bool, usize) {
    let fold = |byte: u8| if any_case { byte.to_ascii_lowercase() } else { byte };
    let is_negated = class.first() == Some(&b'^');
    let (mut at, mut found) = (usize::from(is_negated), false);
    loop {
        match &class[at.min(class.len())..] {
            // A class without an end goes as far as the pattern.
            [] => break,
            [b']', ..] => {
                at += 1;
                break;
            }
            [b'\\', escaped, ..] => {
                found |= fold(*escaped) == fold(byte);
                at += 2;
            }
            [from, b'-', to, ..] => {
                let (low, high) = (fold(*from).min(fold(*to)), fold(*from).max(fold(*to)));
                found |= (low..=high).contains(&fold(byte));
                at += 3;
            }
            [plain, ..] => {
                found |= fold(*plain) == fold(byte);
                at += 1;
            }
        }
    }
    (found != is_negated, at)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_thousand_stars_are_enough() {
        let text = vec![b'a'; 5_000];
        for (stars, is_match) in [(1_000, true), (1_001, false)] {
            assert_eq!(matches(&b"*?".repeat(stars), &text, false), is_match, "{stars}");
        }
        let runs = [b"a".repeat(10), b"*".repeat(5_000)].concat();
        assert!(matches(&runs, &text, false), "stars side by side are one");
    }

    #[test]
    fn patterns() {
        let cases = [
            ("", "", true),
            ("*", "", true),
            ("*", "anything", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h*llo", "heeeello", true),
            ("h*l*o*", "hello world", true),
            ("*a*b*c", "xxaxxbxxbxc", true),
            ("*a*b*c", "xxaxxbxxbx", false),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hallo", true),
            ("h[a-b]llo", "hcllo", false),
            ("a\\*b", "a*b", true),
            ("a\\*b", "axb", false),
            ("[\\]]", "]", true),
            ("a[", "a", false),
            ("a[b", "ab", true),
            ("a\\", "a\\", true),
            ("abc", "abcd", false),
            ("abc*", "abc", true),
            ("ABC", "abc", false),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes(), false), expected, "{pattern} {text}");
        }
        assert!(matches(b"A[x-Z]C", b"ayc", true));
    }

    #[test]
    fn many_stars_do_not_take_for_ever() {
        let pattern = "a*".repeat(200) + "b";
        assert!(!matches(pattern.as_bytes(), "a".repeat(5_000).as_bytes(), false));
    }
}
