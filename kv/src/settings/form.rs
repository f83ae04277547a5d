//! How the text of a parameter is read: what it may be, and what is told of it if it is not.

use crate::resp::number::parse_i64;

/// What a parameter's text may be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Form {
    /// `yes` or `no`.
    Flag,
    /// One of these.
    Words(&'static [&'static str]),
    /// Some of these; the first alone, for none of the others.
    Marks(&'static [&'static str]),
    /// A whole number from the one to the other.
    Integer(i64, u64),
    /// Bytes from the one to the other, with a unit if there is one.
    Bytes(u64, u64),
    /// Bytes with a unit if there is one, or a percentage.
    Share,
    /// A number of three digits up to 7 each, and no greater than this.
    Octal(u32),
    /// Any text.
    Text,
    /// What this makes of it, or says of it.
    Checked(fn(&str) -> Result<String, String>),
}

impl Form {
    /// The text in the way in which it is shown, or why it cannot be taken.
    pub(crate) fn read(self, text: &[u8]) -> Result<Vec<u8>, String> {
        let word = String::from_utf8_lossy(text);
        let shown = match self {
            Self::Text => return Ok(text.to_vec()),
            Self::Flag => one_of(&["yes", "no"], &word).ok_or("argument must be 'yes' or 'no'")?.to_owned(),
            Self::Words(words) => one_of(words, &word).ok_or_else(|| must_be(words))?.to_owned(),
            Self::Marks(words) => marks(words, &word)?,
            Self::Integer(min, max) => {
                let value = parse_i64(text).ok_or("argument couldn't be parsed into an integer")?;
                within(value.into(), min.into(), max)?
            }
            Self::Bytes(min, max) => {
                let value = bytes(&word).ok_or("argument must be a memory value")?;
                within(value.into(), min.into(), max)?
            }
            Self::Share => share(&word)?,
            Self::Octal(max) => {
                let value =
                    u32::from_str_radix(&word, 8).map_err(|_| "argument couldn't be parsed as an octal number")?;
                let is_fit = value <= max;
                is_fit
                    .then(|| format!("{value:o}"))
                    .ok_or(format!("argument must be between 0 and {max:o} inclusive"))?
            }
            Self::Checked(check) => check(&word)?,
        };
        Ok(shown.into_bytes())
    }
}

fn one_of(words: &[&'static str], word: &str) -> Option<&'static str> {
    words.iter().find(|known| known.eq_ignore_ascii_case(word)).copied()
}

fn must_be(words: &[&str]) -> String {
    format!("argument(s) must be one of the following: {}", words.join(", "))
}

fn marks(words: &'static [&'static str], text: &str) -> Result<String, String> {
    let given: Option<Vec<_>> = text.split(' ').map(|word| one_of(words, word)).collect();
    let given = given.ok_or_else(|| must_be(words))?;
    if given.contains(&"save") && given.contains(&"nosave") {
        return Err("shutdown options SAVE and NOSAVE can't be used simultaneously".to_owned());
    }
    let shown: Vec<&str> = words[1..].iter().copied().filter(|word| given.contains(word)).collect();
    Ok(if shown.is_empty() { words[0].to_owned() } else { shown.join(" ") })
}

fn within(value: i128, min: i128, max: u64) -> Result<String, String> {
    if value < min || value > i128::from(max) {
        return Err(format!("argument must be between {min} and {max} inclusive"));
    }
    Ok(value.to_string())
}

fn share(word: &str) -> Result<String, String> {
    const PERCENT_MAX: u64 = 100;
    if let Some(value) = bytes(word) {
        return Ok(value.to_string());
    }
    let percent = word.strip_suffix('%').and_then(|digits| digits.parse::<u64>().ok());
    match percent {
        None => Err("argument must be a memory or percent value".to_owned()),
        Some(percent) if percent > PERCENT_MAX => {
            Err(format!("percentage argument must be less or equal to {PERCENT_MAX}"))
        }
        Some(percent) => Ok(format!("{percent}%")),
    }
}

/// A number of bytes, with a unit if there is one.
pub(crate) fn bytes(text: &str) -> Option<u64> {
    const UNITS: [(&str, u64); 8] = [
        ("", 1),
        ("b", 1),
        ("k", 1_000),
        ("kb", 1 << 10),
        ("m", 1_000_000),
        ("mb", 1 << 20),
        ("g", 1_000_000_000),
        ("gb", 1 << 30),
    ];
    let (digits, unit) = text.split_at(text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len()));
    let (_, size) = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?;
    digits.parse::<u64>().ok()?.checked_mul(*size)
}

/// Checks a name of a file or a folder that lies in the working folder; `what` is the parameter.
pub(crate) fn plain_name(what: &str, name: &str, kind: &str) -> Result<String, String> {
    if name.is_empty() {
        return Err(format!("{what} can't be empty"));
    }
    if name.contains(['/', '\\']) {
        return Err(format!("{what} can't be a path, just a {kind}"));
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        for (text, expected) in [("0", 0), ("100mb", 100 << 20), ("3K", 3_000), ("2gB", 2 << 30), ("7b", 7)] {
            assert_eq!(bytes(text), Some(expected), "{text}");
        }
        for text in ["", "mb", "-1", "1tb", "1 mb", "18446744073709551615gb"] {
            assert_eq!(bytes(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_read_and_what_is_refused() {
        let words = Form::Words(&["one", "two"]);
        let marks = Form::Marks(&["default", "save", "nosave", "now"]);
        for (form, text, shown) in [
            (Form::Flag, "YES", "yes"),
            (words, "TWO", "two"),
            (marks, "now save", "save now"),
            (marks, "default", "default"),
            (Form::Integer(-2, 5), "-2", "-2"),
            (Form::Bytes(0, u64::MAX), "1kb", "1024"),
            (Form::Share, "100%", "100%"),
            (Form::Share, "1k", "1000"),
            (Form::Octal(0o777), "755", "755"),
        ] {
            assert_eq!(form.read(text.as_bytes()), Ok(shown.as_bytes().to_vec()), "{text}");
        }
        for (form, text, why) in [
            (Form::Flag, "1", "argument must be 'yes' or 'no'"),
            (words, "three", "argument(s) must be one of the following: one, two"),
            (marks, "save nosave", "shutdown options SAVE and NOSAVE can't be used simultaneously"),
            (Form::Integer(-2, 5), "6", "argument must be between -2 and 5 inclusive"),
            (Form::Integer(-2, 5), "x", "argument couldn't be parsed into an integer"),
            (Form::Bytes(1, 9), "10", "argument must be between 1 and 9 inclusive"),
            (Form::Bytes(1, 9), "x", "argument must be a memory value"),
            (Form::Share, "x", "argument must be a memory or percent value"),
            (Form::Share, "101%", "percentage argument must be less or equal to 100"),
            (Form::Octal(0o777), "9", "argument couldn't be parsed as an octal number"),
            (Form::Octal(0o777), "1000", "argument must be between 0 and 777 inclusive"),
        ] {
            assert_eq!(form.read(text.as_bytes()), Err(why.to_owned()), "{text}");
        }
    }
}
