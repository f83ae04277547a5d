//! Arguments of `ashlar kv`: the program's own options and Valkey's settings, told apart before they are parsed.
//!
//! A name that the program knows (also by an alias, such as `--unixsocket`) is an option, whatever Valkey means by it; every other
//! name is a setting and takes the words up to the next name, as on Valkey's command line. Both may stand in any order. clap cannot
//! do this: it stops to look for options at the first word that it does not know.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::Args as _;

use super::Arguments;
use crate::config::nearest::nearest;
use crate::failure::Failure;

/// The option that takes as many words as there are: `--bind 127.0.0.1 ::1`.
const MANY: &str = "bind";

/// The arguments of `ashlar kv`, told apart.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct KvWords {
    /// What clap parses, in the order in which it stands there.
    pub(super) options: Vec<OsString>,
    /// The file of `--config`.
    pub(super) config: Option<PathBuf>,
    /// Settings of Valkey, in the order in which they stand there: a name and its words.
    pub(super) settings: Vec<(String, Vec<String>)>,
}

/// What the program's parser knows of its options.
struct Known {
    parser: clap::Command,
}

impl Known {
    fn new() -> Self {
        Self { parser: Arguments::augment_args(clap::Command::new("kv")) }
    }

    fn is_command(&self, word: &OsStr) -> bool {
        self.parser.get_subcommands().any(|command| command.get_name() == word)
    }

    /// Whether an option of this name takes a value; `None` if there is no such option.
    fn takes_value(&self, name: &str) -> Option<bool> {
        if name == "help" {
            return Some(false);
        }
        let option = self.parser.get_arguments().find(|option| names_of(option).any(|known| known == name))?;
        Some(option.get_action().takes_values())
    }

    fn nearest(&self, name: &str) -> Option<&str> {
        nearest(name, self.parser.get_arguments().flat_map(names_of))
    }
}

fn names_of(option: &clap::Arg) -> impl Iterator<Item = &str> {
    option.get_long().into_iter().chain(option.get_all_aliases().into_iter().flatten())
}

/// Tells the words behind `ashlar kv` apart; `None` if a command stands first, such as `status`.
///
/// # Errors
/// A word belongs to no name; a retry fails in the same way.
pub(super) fn split(words: &[OsString]) -> Result<Option<KvWords>, Failure> {
    let known = Known::new();
    if words.first().is_some_and(|first| known.is_command(first)) {
        return Ok(None);
    }
    let mut split = KvWords::default();
    let mut rest = words;
    while let [word, behind @ ..] = rest {
        let text = word.to_str().filter(|text| text.starts_with('-') && *text != "-" && *text != "--");
        let Some(text) = text else { return Err(stray(&known, words, words.len() - rest.len())) };
        rest = behind;
        let Some(name) = text.strip_prefix("--") else {
            // `-h`, or a mistake of which clap tells.
            split.options.push(word.clone());
            continue;
        };
        let (name, value) = name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value)));
        let count = match (value, known.takes_value(name)) {
            (Some(_), _) | (_, Some(false)) => 0,
            (None, Some(true)) if name != MANY => values(rest).min(1),
            (None, _) => values(rest),
        };
        let taken;
        (taken, rest) = rest.split_at(count);
        match (known.takes_value(name), value) {
            (Some(_), value) => split.take_option(word, name, value, taken)?,
            (None, Some(value)) => split.settings.push((name.to_owned(), vec![value.to_owned()])),
            (None, None) => {
                let taken = taken.iter().map(|word| word.to_string_lossy().into_owned());
                split.settings.push((name.to_owned(), taken.collect()));
            }
        }
    }
    Ok(Some(split))
}

/// How many words stand before the next name.
fn values(words: &[OsString]) -> usize {
    words.iter().position(|word| word.as_encoded_bytes().starts_with(b"--")).unwrap_or(words.len())
}

impl KvWords {
    fn take_option(
        &mut self,
        word: &OsString,
        name: &str,
        value: Option<&str>,
        taken: &[OsString],
    ) -> Result<(), Failure> {
        let file = value.map(OsString::from).or_else(|| taken.first().cloned());
        match (name, file) {
            ("config", Some(file)) => {
                if self.config.replace(file.into()).is_some() {
                    let remedy = "give one, and name the other in it: `include FILE`";
                    return Err(Failure::usage("--config stands there twice", remedy));
                }
            }
            (MANY, Some(file)) => {
                let words = taken.iter().map(|word| word.to_string_lossy());
                let given = if value.is_some() {
                    file.to_string_lossy().into_owned()
                } else {
                    words.collect::<Vec<_>>().join(" ")
                };
                self.options.push(format!("--{MANY}={}", super::valkey::addresses(&given)).into());
            }
            _ => {
                self.options.push(word.clone());
                self.options.extend(taken.iter().cloned());
            }
        }
        Ok(())
    }
}

/// A word that belongs to no name.
fn stray(known: &Known, words: &[OsString], at: usize) -> Failure {
    let word = words[at].to_string_lossy();
    let before = words[..at].iter().rposition(|word| word.as_encoded_bytes().starts_with(b"--"));
    let remedy = match before.map(|before| (words[before].to_string_lossy(), &words[before])) {
        _ if known.is_command(&words[at]) => format!("commands stand first: `ashlar kv {word}`"),
        Some((name, _)) if name.contains('=') => {
            let (name, value) = name.split_once('=').unwrap_or_default();
            format!("all words of a setting stand behind its name: `{name} {value} {word}`")
        }
        _ => "give options and settings as --NAME VALUE, and a configuration file as --config FILE".to_owned(),
    };
    let what = match before {
        Some(before) => format!("`{word}` belongs to nothing: `{}` has its value already", lossy(&words[before..at])),
        None => format!("`{word}` is no option, no setting and no command"),
    };
    Failure::usage(what, remedy)
}

fn lossy(words: &[OsString]) -> String {
    words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// A setting that Valkey's table does not know, or with a value that it does not take.
pub(super) fn refused(name: &str, words: &[String], why: &str) -> Failure {
    let line = [&[format!("--{name}")][..], words].concat().join(" ");
    let near = Known::new().nearest(name).map(|near| format!("did you mean `--{near}`? ")).unwrap_or_default();
    let remedy = format!("{near}`ashlar kv --help` shows all options, docs/kv-parameters.md all settings");
    Failure::usage(format!("`{line}`: {why}"), remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').filter(|word| !word.is_empty()).map(|word| OsString::from(word.replace('_', " "))).collect()
    }

    /// Options, the file, and settings, as a text.
    fn told(line: &str) -> String {
        match split(&words(line)) {
            Ok(Some(KvWords { options, config, settings })) => {
                let settings = settings.iter().map(|(name, words)| format!("{name}{words:?}"));
                let config = config.map(|file| file.display().to_string()).unwrap_or_default();
                format!("{} | {config} | {}", lossy(&options), settings.collect::<Vec<_>>().join(" "))
            }
            Ok(None) => "a command".to_owned(),
            Err(failure) => failure.to_string(),
        }
    }

    #[test]
    fn options_and_settings_stand_in_any_order() {
        for (line, expected) in [
            ("", " |  | "),
            ("--dir D --bind 127.0.0.1 --port 7001", r#"--bind=127.0.0.1 --port 7001 |  | dir["D"]"#),
            ("--port 7001 --dir D --unix S", r#"--port 7001 --unix S |  | dir["D"]"#),
            ("--save 60 1 --no-tcp --save 300 10", r#"--no-tcp |  | save["60", "1"] save["300", "10"]"#),
            ("--appendonly yes --help", r#"--help |  | appendonly["yes"]"#),
            ("-h", "-h |  | "),
            ("--save --config F --port 1", "--port 1 | F | save[]"),
            ("--config=F --workers=2", "--workers=2 | F | "),
            // A name that both have is the option.
            ("--tls-port 0 --databases 4 --io-threads 2", "--tls-port 0 --databases 4 --io-threads 2 |  | "),
            ("--unixsocket S --unixsocketperm 770", "--unixsocket S --unixsocketperm 770 |  | "),
            ("--bind 127.0.0.1 -::1 10.0.0.1,10.0.0.2 --x", "--bind=127.0.0.1,10.0.0.1,10.0.0.2 |  | x[]"),
            ("--bind=*", "--bind=0.0.0.0 |  | "),
            // Values that look like something else.
            ("--requirepass=--port --maxmemory= --dir=a=b", r#" |  | requirepass["--port"] maxmemory[""] dir["a=b"]"#),
            ("--hz -5 --unixsocketgroup two_words", r#" |  | hz["-5"] unixsocketgroup["two words"]"#),
            ("status --addr 127.0.0.1:1", "a command"),
        ] {
            assert_eq!(told(line), expected, "{line}");
        }
    }

    #[test]
    fn a_word_that_belongs_to_nothing_is_named() {
        for (line, what, remedy) in [
            ("yes", "`yes` is no option", "--NAME VALUE"),
            ("valkey.conf --port 1", "`valkey.conf` is no option", "--config FILE"),
            ("--port 7001 7002 --dir D", "`7002` belongs to nothing: `--port 7001` has", "--NAME VALUE"),
            ("--no-tcp S", "`S` belongs to nothing: `--no-tcp` has", "--NAME VALUE"),
            ("--save=3600 1", "`1` belongs to nothing: `--save=3600` has", "`--save 3600 1`"),
            ("--port 1 status", "`status` belongs to nothing", "`ashlar kv status`"),
            ("--config F G", "`G` belongs to nothing", "--NAME VALUE"),
            ("--config F --config G", "--config stands there twice", "`include FILE`"),
            ("-- --port 1", "`--` is no option", "--NAME VALUE"),
        ] {
            let failure = split(&words(line)).unwrap_err();
            assert!(failure.what.contains(what) && failure.remedy.contains(remedy), "{line}: {failure}");
        }
        let failure = refused("prot", &["7000".into()], "no").to_string();
        assert!(failure.contains("`--prot 7000`: no") && failure.contains("did you mean `--port`?"), "{failure}");
    }

    #[test]
    fn a_missing_value_takes_no_name() {
        // clap says that a value is missing.
        assert_eq!(told("--port --dir D"), r#"--port |  | dir["D"]"#);
        assert_eq!(told("--config --dir D"), r#"--config |  | dir["D"]"#);
        assert_eq!(told("--bind --dir D"), r#"--bind |  | dir["D"]"#);
    }
}
