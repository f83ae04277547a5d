//! The configuration file: flat TOML, every problem with its line.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{KEYS, Key, Kind, Value, find};
use super::nearest::nearest;
use super::{Problem, Source, Values, wrong};

/// Reads the file's text into `values`; `name` is what people call the file.
pub fn read(name: &str, text: &str, values: &mut Values, problems: &mut Vec<Problem>) {
    let place = |at: usize| format!("{name}:{}", line_of(text, at));
    let table = match DeTable::parse(text) {
        Ok(table) => table,
        Err(error) => {
            let at = error.span().map_or(0, |span| span.start);
            problems.push(Problem { place: place(at), what: format!("not TOML: {}", error.message()) });
            return;
        }
    };
    for (written, value) in table.get_ref() {
        let Some(key) = find(written.get_ref()) else {
            problems.push(Problem { place: place(written.span().start), what: unknown(written.get_ref()) });
            continue;
        };
        match right(key, value) {
            Ok(value) => {
                values.insert(key.name, (value, Source::File(place(written.span().start))));
            }
            Err(what) => {
                problems.push(Problem { place: place(value.span().start), what: format!("{}: {what}", key.name) });
            }
        }
    }
}

fn unknown(name: &str) -> String {
    match nearest(name, KEYS.iter().map(|key| key.name)) {
        Some(near) => format!("unknown key `{name}`; did you mean `{near}`?"),
        None => format!("unknown key `{name}`; `ashlar config reference` describes every key"),
    }
}

/// The value, of the right type and within its bounds.
fn right(key: &Key, value: &Spanned<DeValue<'_>>) -> Result<Value, String> {
    let value = typed(key, value)?;
    key.validate(&value).map_err(|expected| wrong(&value.to_string(), &expected))?;
    Ok(value)
}

fn typed(key: &Key, value: &Spanned<DeValue<'_>>) -> Result<Value, String> {
    let value = value.get_ref();
    let expected = || format!("{} was given where {} is expected", value.type_str(), expected_type(key.kind));
    match (key.kind, value) {
        (Kind::Number { .. }, DeValue::Integer(number)) => u64::from_str_radix(number.as_str(), number.radix())
            .map(Value::Number)
            .map_err(|_| wrong(&number.to_string(), &key.kind.name())),
        (Kind::Switch, DeValue::Boolean(is_on)) => Ok(Value::Switch(*is_on)),
        (Kind::Switch, DeValue::String(text)) => key.parse(text).map_err(|e| wrong(text, &e)),
        (Kind::Peers | Kind::Paths, DeValue::Array(items)) => {
            let texts = items.iter().map(|item| match item.get_ref() {
                DeValue::String(text) => Ok(text.clone().into_owned()),
                other => Err(format!("{} was given in a list where texts are expected", other.type_str())),
            });
            texts.collect::<Result<_, _>>().map(Value::Texts)
        }
        (Kind::Number { .. } | Kind::Peers | Kind::Paths, _) => Err(expected()),
        (_, DeValue::String(text)) => Ok(Value::Text(text.clone().into_owned())),
        _ => Err(expected()),
    }
}

const fn expected_type(kind: Kind) -> &'static str {
    match kind {
        Kind::Number { .. } => "integer",
        Kind::Switch => "true, false, \"on\" or \"off\"",
        Kind::Peers | Kind::Paths => "array of strings",
        _ => "string",
    }
}

fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|&byte| byte == b'\n').count() + 1
}
