//! What a person sees. A closed terminal is not an error of the chore, so failed writes are let go.

use std::io::{self, Write as _};

/// One line on standard output.
pub(crate) fn say(line: &str) {
    let mut out = io::stdout().lock();
    let _closed = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// One line on standard error.
pub(crate) fn complain(line: &str) {
    let _closed = writeln!(io::stderr().lock(), "{line}");
}
