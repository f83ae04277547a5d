//! What a script says about itself in its first line: `#!lua flags=no-writes,allow-stale`.
//!
//! A script without such a line runs as scripts always did: it may write unless the command forbids it, and each command that it
//! calls is judged by itself.

use crate::resp::parse::words_of_line;

/// Promises and permissions of a script or function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ScriptFlags(u8);

impl ScriptFlags {
    /// It changes nothing.
    pub(crate) const NO_WRITES: Self = Self(1);
    /// It may run although memory is full.
    pub(crate) const ALLOW_OOM: Self = Self(1 << 1);
    /// It may run on a replica that has lost its primary.
    pub(crate) const ALLOW_STALE: Self = Self(1 << 2);
    /// It may not run in a cluster.
    pub(crate) const NO_CLUSTER: Self = Self(1 << 3);
    /// Its keys may be in several slots.
    pub(crate) const ALLOW_CROSS_SLOT_KEYS: Self = Self(1 << 4);

    const NAMES: [(Self, &'static str); 5] = [
        (Self::NO_WRITES, "no-writes"),
        (Self::ALLOW_OOM, "allow-oom"),
        (Self::ALLOW_STALE, "allow-stale"),
        (Self::NO_CLUSTER, "no-cluster"),
        (Self::ALLOW_CROSS_SLOT_KEYS, "allow-cross-slot-keys"),
    ];

    /// Whether all of `other` is in it.
    pub(crate) const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both together.
    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The flag of a name.
    pub(crate) fn named(name: &[u8], any_case: bool) -> Option<Self> {
        let is_it = |known: &str| match any_case {
            true => known.as_bytes().eq_ignore_ascii_case(name),
            false => known.as_bytes() == name,
        };
        Self::NAMES.iter().find(|(_, known)| is_it(known)).map(|(flag, _)| *flag)
    }

    /// The names of what is in it.
    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.iter().filter(move |(flag, _)| self.has(*flag)).map(|(_, name)| *name)
    }
}

/// A script, and what its first line says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Headed<'a> {
    /// Nothing if it has no such line.
    pub(crate) flags: Option<ScriptFlags>,
    /// The text behind the line; the line's end is still there, so that lines keep their numbers.
    pub(crate) text: &'a [u8],
}

/// Reads the first line of a script.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn read_head(script: &[u8]) -> Result<Headed<'_>, String> {
    if !script.starts_with(b"#!") {
        return Ok(Headed { flags: None, text: script });
    }
    let end = script.iter().position(|byte| *byte == b'\n').ok_or("Invalid script shebang")?;
    let (line, text) = script.split_at(end);
    let words = words_of_line(line).ok_or("Invalid engine in script shebang")?;
    let shown = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    let mut words = words.iter();
    let engine = words.next().ok_or("Invalid engine in script shebang")?;
    if engine != b"#!lua" {
        return Err(format!(
            "Could not find scripting engine '{}'",
            shown(engine.strip_prefix(b"#!").unwrap_or(engine))
        ));
    }
    let mut flags = ScriptFlags::default();
    for word in words {
        let Some(names) = word.strip_prefix(b"flags=") else {
            return Err(format!("Unknown lua shebang option: {}", shown(word)));
        };
        for name in names.split(|byte| *byte == b',').filter(|_| !names.is_empty()) {
            let flag = ScriptFlags::named(name, false);
            flags = flags.with(flag.ok_or_else(|| format!("Unexpected flag in script shebang: {}", shown(name)))?);
        }
    }
    Ok(Headed { flags: Some(flags), text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_lines() {
        let no_writes = ScriptFlags::NO_WRITES;
        type Read<'a> = Result<(Option<ScriptFlags>, &'a str), &'a str>;
        let cases: [(&str, Read<'_>); 10] = [
            ("return 1", Ok((None, "return 1"))),
            ("#!lua\nreturn 1", Ok((Some(ScriptFlags::default()), "\nreturn 1"))),
            ("#!lua flags=no-writes\nx", Ok((Some(no_writes), "\nx"))),
            (
                "#!lua flags=no-writes,allow-oom flags=allow-stale\nx",
                Ok((Some(no_writes.with(ScriptFlags::ALLOW_OOM).with(ScriptFlags::ALLOW_STALE)), "\nx")),
            ),
            ("#!lua flags=\nx", Ok((Some(ScriptFlags::default()), "\nx"))),
            ("#!lua", Err("Invalid script shebang")),
            ("#!lua \"\n", Err("Invalid engine in script shebang")),
            ("#!not-lua\n", Err("Could not find scripting engine 'not-lua'")),
            ("#!lua badger=data\n", Err("Unknown lua shebang option: badger=data")),
            ("#!lua flags=allow-what,\n", Err("Unexpected flag in script shebang: allow-what")),
        ];
        for (script, expected) in cases {
            let read = read_head(script.as_bytes());
            let read = read.as_ref().map(|head| (head.flags, std::str::from_utf8(head.text).unwrap()));
            assert_eq!(read.map_err(String::as_str), expected, "{script:?}");
        }
    }
}
