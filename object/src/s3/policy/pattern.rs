//! Texts of policies: patterns with `*` and `?`, and variables that stand for a value of the request.
//!
//! Follows "IAM policy elements: Variables and tags": `${aws:username}`, `${s3:prefix, 'default'}`, and `${*}`, `${?}` and `${$}` for the
//! characters themselves. The value of a variable is taken as it is: a star in it is no pattern.
//!
//! Deliberately absent: variables for tags, and for what no request here has; they are refused.

use super::{KEYS, S3Error, malformed, unknown};

/// One place of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Symbol {
    /// Any text.
    Star,
    /// Any character.
    Any,
    Char(char),
}

impl Symbol {
    const fn of(char: char) -> Self {
        match char {
            '*' => Self::Star,
            '?' => Self::Any,
            char => Self::Char(char),
        }
    }

    const fn char(self) -> char {
        match self {
            Self::Star => '*',
            Self::Any => '?',
            Self::Char(char) => char,
        }
    }
}

/// The values of a condition key of a request; none if the request has none.
pub(super) type Values<'a> = &'a dyn Fn(&str) -> Vec<String>;

/// A part of a text with variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    Symbols(Vec<Symbol>),
    /// A condition key, and what stands for it in a request without one.
    Variable(&'static str, Option<String>),
}

/// A text of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Pattern {
    /// One without variables.
    Plain(String),
    /// One with them, and the text as it was put.
    Variables(Vec<Piece>, String),
}

impl Pattern {
    /// A text in which nothing is a variable.
    pub(super) const fn plain(text: String) -> Self {
        Self::Plain(text)
    }

    /// Reads a text that may have variables, if the version of its policy knows them.
    ///
    /// # Errors
    /// `MalformedPolicy`, `NotImplemented`: it has what looks like a variable and is none, or one that is not known here.
    pub(super) fn decode(text: String, knows_variables: bool) -> Result<Self, S3Error> {
        if !text.contains("${") {
            return Ok(Self::Plain(text));
        }
        if !knows_variables {
            return Err(malformed("Policy variables need the policy's version to be 2012-10-17"));
        }
        let mut pieces = Vec::new();
        let mut rest = text.as_str();
        while let Some((before, behind)) = rest.split_once("${") {
            pieces.push(Piece::Symbols(before.chars().map(Symbol::of).collect()));
            let (name, after) = behind.split_once('}').ok_or(malformed("A policy variable has no end"))?;
            pieces.push(decode_variable(name.trim())?);
            rest = after;
        }
        pieces.push(Piece::Symbols(rest.chars().map(Symbol::of).collect()));
        Ok(Self::Variables(pieces, text))
    }

    /// The text as it was put.
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Plain(text) | Self::Variables(_, text) => text,
        }
    }

    pub(super) const fn has_variables(&self) -> bool {
        matches!(self, Self::Variables(..))
    }

    /// Whether a request has a value for each variable.
    pub(super) fn is_resolved(&self, values: Values<'_>) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Variables(pieces, _) => resolve(pieces, values).is_some(),
        }
    }

    /// Whether a text is like it. None is where a variable has no value.
    pub(super) fn is_like(&self, text: &str, values: Values<'_>) -> bool {
        match self {
            Self::Plain(pattern) => is_like(pattern, text),
            Self::Variables(pieces, _) => {
                resolve(pieces, values).is_some_and(|pattern| fits(pattern.iter().copied(), text))
            }
        }
    }

    /// Whether the text, taken as it is, is the one for which `same` says so. None is where a variable has no value.
    pub(super) fn is(&self, values: Values<'_>, same: impl FnOnce(&str) -> bool) -> bool {
        match self {
            Self::Plain(text) => same(text),
            Self::Variables(pieces, _) => resolve(pieces, values)
                .is_some_and(|text| same(&text.into_iter().map(Symbol::char).collect::<String>())),
        }
    }

    /// A pattern without variables that every text is like that this one can be like.
    pub(super) fn widest(&self) -> String {
        match self {
            Self::Plain(text) => text.clone(),
            Self::Variables(pieces, _) => {
                let chars = |piece: &Piece| match piece {
                    Piece::Symbols(symbols) => symbols.iter().map(|symbol| widest_char(*symbol)).collect(),
                    Piece::Variable(..) => vec!['*'],
                };
                pieces.iter().flat_map(chars).collect()
            }
        }
    }
}

/// A star that is meant as such is one of any characters.
const fn widest_char(symbol: Symbol) -> char {
    match symbol {
        Symbol::Char('*' | '?') => '?',
        symbol => symbol.char(),
    }
}

/// What stands between the braces.
fn decode_variable(text: &str) -> Result<Piece, S3Error> {
    if let "*" | "?" | "$" = text {
        return Ok(Piece::Symbols(text.chars().map(Symbol::Char).collect()));
    }
    let (name, default) = match text.split_once(',') {
        Some((name, default)) => {
            let quoted = default.trim().strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
            (
                name.trim_end(),
                Some(quoted.ok_or(malformed("The default of a policy variable stands in single quotes"))?),
            )
        }
        None => (text, None),
    };
    let has_one_value = |key: &&&str| !key.ends_with('/') && **key != "s3:RequestObjectTagKeys";
    let known = KEYS.iter().filter(has_one_value).find(|key| key.eq_ignore_ascii_case(name));
    Ok(Piece::Variable(known.ok_or_else(unknown)?, default.map(str::to_owned)))
}

/// The pattern with the values of a request; nothing if the request has none for a variable, or several.
fn resolve(pieces: &[Piece], values: Values<'_>) -> Option<Vec<Symbol>> {
    let mut all = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Symbols(symbols) => all.extend_from_slice(symbols),
            Piece::Variable(key, default) => {
                let found = values(key);
                let value = match found.as_slice() {
                    [value] => value,
                    [] => default.as_ref()?,
                    _ => return None,
                };
                all.extend(value.chars().map(Symbol::Char));
            }
        }
    }
    Some(all)
}

/// Whether a text is like a pattern in which `*` is any text and `?` any character. Takes as many steps as both are long
/// multiplied, at most.
#[must_use]
pub fn is_like(pattern: &str, text: &str) -> bool {
    fits(pattern.chars().map(Symbol::of), text)
}

fn fits(pattern: impl Iterator<Item = Symbol> + Clone, text: &str) -> bool {
    let (mut at, mut of) = (pattern, text);
    let mut star = None;
    loop {
        let mut rest = at.clone();
        match (rest.next(), of.chars().next()) {
            (Some(Symbol::Star), _) => {
                star = Some((rest.clone(), of));
                at = rest;
                continue;
            }
            (None, None) => return true,
            (Some(wanted), Some(char)) if wanted == Symbol::Any || wanted == Symbol::Char(char) => {
                at = rest;
                of = &of[char.len_utf8()..];
                continue;
            }
            _ => {}
        }
        // The last star takes one character more.
        let Some((behind, from)) = star else { return false };
        let Some(char) = from.chars().next() else { return false };
        let from = &from[char.len_utf8()..];
        star = Some((behind.clone(), from));
        (at, of) = (behind, from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::s3::error::Code;

    fn values(key: &str) -> Vec<String> {
        match key {
            "aws:username" => vec!["a*n".to_owned()],
            "s3:prefix" => vec!["home/ann".to_owned()],
            "aws:SourceIp" => vec!["192.0.2.1".to_owned(), "192.0.2.2".to_owned()],
            _ => Vec::new(),
        }
    }

    fn like(pattern: &str, text: &str) -> bool {
        Pattern::decode(pattern.to_owned(), true).unwrap().is_like(text, &values)
    }

    #[test]
    fn values_stand_for_variables() {
        assert!(like("home/${aws:username}/*", "home/a*n/x"));
        assert!(!like("home/${aws:username}/*", "home/aan/x"), "a star in a value is no pattern");
        assert!(like("${ AWS:UserName }", "a*n"), "names have any case");
        assert!(like("${s3:prefix}?${aws:username}", "home/ann/a*n"));
        assert!(like("${*}${?}${$}{x}", "*?${x}") && !like("${*}", "x") && !like("${?}", "x"));
        assert!(like("a${s3:delimiter, '/*'}b", "a/*b") && !like("a${s3:delimiter, '/*'}b", "a/xb"));
        assert!(like("${s3:prefix,'none'}", "home/ann"), "a value comes before the default");
        assert!(!like("*${s3:delimiter}*", "x"), "nothing is like a pattern without a value");
        assert!(!like("${aws:SourceIp}", "192.0.2.1"), "several values are none");
        let is = |text: &str, wanted: &str| {
            Pattern::decode(text.to_owned(), true).unwrap().is(&values, |found| found == wanted)
        };
        assert!(is("${aws:username}-*", "a*n-*") && !is("${aws:username}", "ann") && !is("${s3:delimiter}", ""));
        assert!(is("x", "x"));
    }

    #[test]
    fn the_widest_pattern_has_room_for_every_value() {
        let widest = |text: &str| Pattern::decode(text.to_owned(), true).unwrap().widest();
        assert_eq!(widest("docs/${aws:username}/?${*}x"), "docs/*/??x");
        assert_eq!(widest("docs/*"), "docs/*");
    }

    #[test]
    fn what_is_no_variable_is_refused() {
        let decode = |text: &str| Pattern::decode(text.to_owned(), true).map_err(|error| error.code);
        for text in ["${aws:username", "${aws:username, x}", "${aws:username, 'x}"] {
            assert_eq!(decode(text), Err(Code::MalformedPolicy), "{text}");
        }
        for text in ["${}", "${aws:nobody}", "${s3:ExistingObjectTag/a}", "${s3:RequestObjectTagKeys}", "${**}"] {
            assert_eq!(decode(text), Err(Code::NotImplemented), "{text}");
        }
        let before = Pattern::decode("${aws:username}".to_owned(), false).map_err(|error| error.code);
        assert_eq!(before, Err(Code::MalformedPolicy), "texts of the first version have no variables");
        assert_eq!(decode("$x{y}"), Ok(Pattern::Plain("$x{y}".to_owned())));
    }
}
