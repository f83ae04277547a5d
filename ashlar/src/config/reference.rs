//! The reference page of the configuration, made from the table of keys.

use core::fmt::Write as _;

use super::SECRET_VARIABLES;
use super::keys::{Fallback, KEYS, Key};

const HEAD: &str = "# Configuration\n\n\
    Made by `ashlar config reference`; do not edit.\n\n\
    A value comes from the file (`--config FILE`), the environment or a flag; the later one in this list wins. The file\n\
    is TOML without sections. Unknown keys are errors. `ashlar config check` says whether a configuration is right,\n\
    `ashlar config show` which value each key has and where it came from.\n";

/// The page, as Markdown.
#[must_use]
pub fn markdown() -> String {
    let mut page = HEAD.to_owned();
    for key in KEYS {
        describe(&mut page, key).expect("writing to a String cannot fail");
    }
    page.push_str("\n## Environment only\n\n");
    for (name, help) in SECRET_VARIABLES {
        writeln!(page, "- `{name}`: {help}").expect("writing to a String cannot fail");
    }
    page
}

fn describe(page: &mut String, key: &Key) -> core::fmt::Result {
    let fallback = match key.fallback {
        Fallback::Fixed(text) => format!("`{text}`"),
        Fallback::Computed(text) => text.to_owned(),
        Fallback::Required => "none, it must be given".to_owned(),
    };
    writeln!(page, "\n## `{}`\n\n{}.", key.name, key.help)?;
    if !key.details.is_empty() {
        writeln!(page, "{}", key.details)?;
    }
    writeln!(page, "\n- flag: `--{} {}`", key.flag(), key.kind.name())?;
    writeln!(page, "- environment: `{}`\n- default: {fallback}", key.environment())
}
