//! Configuration as Valkey takes it: a file, and parameters on the command line, which stand above the file's.
//!
//! A program whose name ends in `valkey-server` or `redis-server` is this one, with that program's arguments. What the file says
//! of doors and threads becomes arguments of `ashlar kv`; everything else becomes settings of the engine.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use ashlar_kv::{Directive, read_config};

use super::words::{self, KvWords};
use crate::failure::Failure;
use crate::os::files;

/// How deep files may include each other.
const INCLUDES_MAX: usize = 16;
/// Names under which the program takes Valkey's own arguments.
const OTHER_NAMES: [&str; 2] = ["valkey-server", "redis-server"];
/// What `valkey-server --version` prints.
const VERSION: &str =
    concat!("Valkey server v=9.1.0 sha=00000000:0 malloc=libc bits=64 build=ashlar-", env!("CARGO_PKG_VERSION"));

/// What a configuration file says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Configuration {
    /// The file itself.
    pub(crate) file: Option<PathBuf>,
    /// Parameters, in the order in which they are set.
    pub(crate) settings: Vec<(String, String)>,
    /// Users, each as a name and rules.
    pub(crate) users: Vec<String>,
    /// Parameters of older versions that stand there and mean nothing.
    pub(crate) gone: Vec<String>,
}

/// What the command line wants.
#[derive(Debug)]
pub(crate) enum Wish {
    /// To run with these arguments, and what a file says.
    Run(Vec<OsString>, Configuration),
    /// To have this printed, and nothing else.
    Print(&'static str),
}

/// The arguments of `ashlar` that do what these do.
///
/// # Errors
/// A configuration file cannot be read, or makes no sense.
pub(crate) fn expand(arguments: Vec<OsString>) -> Result<Wish, Failure> {
    let program = arguments.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if OTHER_NAMES.iter().any(|name| program.ends_with(name)) {
        return as_valkey(&arguments);
    }
    let is_kv = arguments.get(1).is_some_and(|command| command == "kv");
    let split = if is_kv { words::split(&arguments[2..])? } else { None };
    let Some(KvWords { options, config, settings }) = split else {
        return Ok(Wish::Run(arguments, Configuration::default()));
    };
    let mut configuration = Configuration::default();
    if let Some(path) = config {
        configuration.include(&path, 0)?;
    }
    configuration.read_words(&settings)?;
    let mut words = arguments[..2].to_vec();
    words.extend(configuration.door_arguments(&options));
    words.extend(options);
    Ok(Wish::Run(words, configuration))
}

/// `valkey-server [FILE] [--NAME VALUE ...]`.
fn as_valkey(arguments: &[OsString]) -> Result<Wish, Failure> {
    let mut configuration = Configuration::default();
    let words: Vec<String> = arguments.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let mut rest = words.as_slice();
    match rest {
        [only] if matches!(only.as_str(), "-v" | "--version") => return Ok(Wish::Print(VERSION)),
        [only] if matches!(only.as_str(), "-h" | "--help") => {
            return Ok(Wish::Print("Usage: valkey-server [/path/to/valkey.conf] [--NAME VALUE ...]"));
        }
        [file, others @ ..] if !file.starts_with('-') => {
            configuration.include(Path::new(file), 0)?;
            rest = others;
        }
        _ => {}
    }
    let lines = lines_of(rest);
    configuration.read(&lines, Path::new("."), 0)?;
    let program = arguments.first().cloned().unwrap_or_default();
    let mut words = vec![program, OsString::from("kv")];
    words.extend(configuration.door_arguments(&[]));
    Ok(Wish::Run(words, configuration))
}

/// A line of a configuration file for each `--NAME` with the words that follow it.
fn lines_of(words: &[String]) -> String {
    let mut text = String::new();
    for word in words {
        match word.strip_prefix("--") {
            Some(name) => text += &format!("\n{name}"),
            None => text += &format!(" {}", quoted(word)),
        }
    }
    text
}

/// A word as it stands in a configuration file: quotes keep it together, and an empty one.
fn quoted(word: &str) -> String {
    let escaped = word.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").replace('\r', "\\r");
    format!("\"{escaped}\"")
}

impl Configuration {
    /// A file, or all whose names fit a pattern with `*` or `?`, by name; that may be none.
    fn include_all(&mut self, path: &Path, depth: usize) -> Result<(), Failure> {
        let pattern = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if !pattern.contains(['*', '?']) {
            return self.include(path, depth);
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let names = files::names_in(folder).map_err(|error| {
            let what = format!("Fatal error, can't open config file '{}': {error}", path.display());
            Failure::world(what, "give a directory that this user can read")
        })?;
        let fitting = names.iter().filter(|name| fits(pattern.as_bytes(), name.as_bytes()));
        fitting.into_iter().try_for_each(|name| self.include(&folder.join(name), depth))
    }

    fn include(&mut self, path: &Path, depth: usize) -> Result<(), Failure> {
        let failed = |why: &str| {
            let what = format!("Fatal error, can't open config file '{}': {why}", path.display());
            Failure::world(what, "give the path of a file that this user can read")
        };
        if depth > INCLUDES_MAX {
            return Err(failed("too many files include each other"));
        }
        let text = files::read_text(path).map_err(|error| failed(&error.to_string()))?;
        let text = text.ok_or_else(|| failed("No such file or directory"))?;
        if depth == 0 {
            let whole = path.canonicalize().map_err(|error| failed(&error.to_string()))?;
            self.file = Some(whole);
        }
        self.read(&text, path, depth)
    }

    fn read(&mut self, text: &str, path: &Path, depth: usize) -> Result<(), Failure> {
        let directives = read_config(text).map_err(|wrong| {
            let what = format!("\n*** FATAL CONFIG FILE ERROR (Version 9.1.0) ***\n{wrong}");
            Failure::usage(what, format!("correct {}; docs/kv-parameters.md has every parameter", path.display()))
        })?;
        self.take(directives, depth)
    }

    /// Settings of the command line: each a name, and the words behind it.
    fn read_words(&mut self, settings: &[(String, Vec<String>)]) -> Result<(), Failure> {
        let line = |(name, words): &(String, Vec<String>)| {
            // A name alone has an empty value.
            let values =
                if words.is_empty() { vec![quoted("")] } else { words.iter().map(|word| quoted(word)).collect() };
            format!("{} {}", quoted(name), values.join(" "))
        };
        let text = settings.iter().map(line).collect::<Vec<_>>().join("\n");
        let directives = read_config(&text).map_err(|wrong| {
            let (name, words) = &settings[wrong.number - 1];
            words::refused(name, words, &wrong.why)
        })?;
        self.take(directives, 0)
    }

    fn take(&mut self, directives: Vec<Directive>, depth: usize) -> Result<(), Failure> {
        for directive in directives {
            match directive {
                Directive::Set(name, value) => self.settings.push((name, value)),
                Directive::User(user) => self.users.push(user),
                Directive::Gone(name) => self.gone.push(name),
                Directive::Include(other) => self.include_all(Path::new(&other), depth + 1)?,
            }
        }
        Ok(())
    }

    fn last(&self, name: &str) -> Option<&str> {
        let found = self.settings.iter().rev().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// What the file says of doors and threads, as arguments of `ashlar kv` that stand before `options`, which override them.
    fn door_arguments(&self, options: &[OsString]) -> Vec<OsString> {
        let mut words: Vec<OsString> = Vec::new();
        let mut put = |name: &str, value: Option<&str>| {
            words.extend(value.into_iter().flat_map(|value| [OsString::from(name), value.into()]));
        };
        let addresses = self.last("bind").map(addresses);
        put("--bind", addresses.as_deref().filter(|addresses| !addresses.is_empty()));
        put("--unix", self.last("unixsocket"));
        put(
            "--unix-mode",
            self.last("unixsocket").and_then(|_| self.last("unixsocketperm")).filter(|mode| *mode != "0"),
        );
        put("--backlog", self.last("tcp-backlog").filter(|backlog| *backlog != "0"));
        put("--databases", self.last("databases"));
        put("--workers", self.last("io-threads"));
        let tls_port = self.last("tls-port").filter(|port| *port != "0");
        if tls_port.is_some() {
            put("--tls-port", tls_port);
            put("--tls-cert", self.last("tls-cert-file"));
            put("--tls-key", self.last("tls-key-file"));
            put("--tls-ca", self.last("tls-ca-cert-file"));
            put("--tls-auth-clients", self.last("tls-auth-clients"));
        }
        // `--port` and `--no-tcp` exclude each other: one that was typed replaces both of the file.
        let is_port = |word: &OsString| word == "--no-tcp" || word.as_encoded_bytes().starts_with(b"--port");
        match self.last("port").filter(|_| !options.iter().any(is_port)) {
            Some("0") => words.push("--no-tcp".into()),
            Some(port) => words.extend(["--port".into(), port.into()]),
            None => {}
        }
        words
    }
}

/// Whether a name fits a pattern, in which `*` is any parts and `?` is one.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern, name) {
        ([], []) => true,
        ([b'*', rest @ ..], _) => (0..=name.len()).any(|at| fits(rest, &name[at..])),
        ([b'?', rest @ ..], [_, others @ ..]) => fits(rest, others),
        ([message_part, rest @ ..], [same, others @ ..]) if message_part == same => fits(rest, others),
        _ => false,
    }
}

/// Addresses with commas between them. One with a dash before it may be missing on the machine; those of IPv6 are left out
/// then, because a machine without them refuses to listen there.
pub(super) fn addresses(text: &str) -> String {
    let address = |word: &str| match word {
        "*" => Some("0.0.0.0".to_owned()),
        optional if optional.starts_with('-') => None,
        other => Some(other.to_owned()),
    };
    text.split([' ', '\t', ',']).filter(|word| !word.is_empty()).filter_map(address).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    fn run(line: &str) -> (String, Configuration) {
        let Wish::Run(words, configuration) = expand(words(line)).unwrap() else { panic!("{line} prints something") };
        (words.join(" ".as_ref()).into_string().unwrap(), configuration)
    }

    #[test]
    fn the_arguments_of_valkey_become_ours() {
        let (line, configuration) = run(
            "/usr/bin/valkey-server --port 7000 --bind 127.0.0.1 -::1 --save 60 1 --io-threads 2 --requirepass a\"b",
        );
        assert_eq!(line, "/usr/bin/valkey-server kv --bind 127.0.0.1 --workers 2 --port 7000");
        let settings: Vec<_> =
            configuration.settings.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let expected = [
            ("port", "7000"),
            ("bind", "127.0.0.1 -::1"),
            ("io-threads", "2"),
            ("requirepass", "a\"b"),
            ("save", "60 1"),
        ];
        assert_eq!(settings, expected);
        assert!(matches!(expand(words("redis-server -v")), Ok(Wish::Print(VERSION))));
        assert!(expand(words("valkey-server --nosuch 1")).is_err());
        assert_eq!(run("ashlar server --config x").0, "ashlar server --config x");
    }

    #[test]
    fn settings_of_the_command_line_are_those_of_a_file() {
        let (line, configuration) =
            run("ashlar kv --save 60 1 --port 7000 --SAVE 300 10 --requirepass --slowlog-max-len=5");
        assert_eq!(line, "ashlar kv --port 7000");
        let settings = configuration.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let expected = [("requirepass", ""), ("commandlog-slow-execution-max-len", "5"), ("save", "60 1 300 10")];
        assert_eq!(settings.collect::<Vec<_>>(), expected);
        for (wrong, text) in [
            ("ashlar kv --appendonly yes --nosuch 1", "`--nosuch 1`: Bad directive"),
            ("ashlar kv --dir /a b --port 1", "`--dir /a b`: Bad directive or wrong number of arguments"),
            ("ashlar kv --prot 7000", "did you mean `--port`?"),
            ("ashlar kv --hz=x", "`--hz x`"),
        ] {
            let failure = expand(words(wrong)).unwrap_err().to_string();
            assert!(failure.contains(text) && failure.contains("ashlar kv --help"), "{wrong}: {failure}");
        }
        assert_eq!(run("ashlar kv status --json").0, "ashlar kv status --json");
    }

    #[test]
    fn files_are_read_with_what_they_include() {
        let folder = std::env::temp_dir().join(format!("ashlar-conf-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (main, other) = (folder.join("valkey.conf"), folder.join("other.conf"));
        std::fs::write(
            &main,
            format!("port 0\nunixsocket /x\nunixsocketperm 770\ninclude {}\nmaxmemory 1gb\n", other.display()),
        )
        .unwrap();
        std::fs::write(&other, "maxmemory 5mb\nuser a on\ntls-port 0\n").unwrap();
        let (line, configuration) = run(&format!("ashlar kv --config {} --import y", main.display()));
        assert_eq!(line, "ashlar kv --unix /x --unix-mode 770 --no-tcp --import y");
        assert_eq!((configuration.last("maxmemory"), configuration.users.len()), (Some("1gb"), 1));
        // What is typed stands above the file, wherever it stands.
        let typed = format!("ashlar kv --maxmemory 2gb --config {} --port 1 --user b on", main.display());
        let (line, configuration) = run(&typed);
        assert_eq!(line, "ashlar kv --unix /x --unix-mode 770 --port 1");
        assert_eq!((configuration.last("maxmemory"), configuration.users.len()), (Some("2gb"), 2));
        assert_eq!(configuration.file, Some(main.canonicalize().unwrap()));
        // Patterns name any number of files, in order; none is no mistake.
        std::fs::write(folder.join("b.part"), "maxmemory 7mb\n").unwrap();
        std::fs::write(folder.join("a.part"), "maxmemory 6mb\nio-threads-do-reads no\n").unwrap();
        let parts = format!("include {0}/?.part\ninclude {0}/none-*.part\n", folder.display());
        std::fs::write(&main, parts).unwrap();
        let (_, configuration) = run(&format!("valkey-server {}", main.display()));
        assert_eq!((configuration.last("maxmemory"), configuration.gone.len()), (Some("7mb"), 1));
        std::fs::write(&main, format!("include {}\n", other.display())).unwrap();
        std::fs::write(&other, format!("include {}\n", main.display())).unwrap();
        assert!(expand(words(&format!("valkey-server {}", main.display()))).is_err(), "a circle");
        std::fs::write(&main, "port 1\nnosuch\n").unwrap();
        let wrong = expand(words(&format!("valkey-server {}", main.display()))).unwrap_err().to_string();
        assert!(wrong.contains("FATAL CONFIG FILE ERROR") && wrong.contains("at line 2"), "{wrong}");
        assert!(expand(words("valkey-server /no/such/file")).is_err());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
