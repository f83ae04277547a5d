//! `cargo xtask differ`: the same random commands for Redis and for our engine, every reply compared byte for byte.
//!
//! The commands follow from a seed. Where two replies differ and nothing explains it ([`exceptions`]), both servers are emptied
//! and the run goes on, so that one run tells of many differences. Keys live for some hundred commands; then all that they hold is
//! compared as well.

mod exceptions;
mod grammar;

use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use self::exceptions::{EXCEPTIONS, are_equal, explained, how};
use self::grammar::{Form, KINDS, garble};
use crate::asks_for_help;
use crate::clients::KvServer;
use crate::dice::Dice;
use crate::failure::Failure;
use crate::process::{cargo, run};
use crate::requirements::{Outcome, is_there, skip};
use crate::talk::{PATIENCE, Reply, Talk};
use crate::terminal::say;
use crate::workspace::Workspace;

const HELP: &str = "\
Sends the same random commands to redis-server and to our engine and compares every reply byte for byte.

Usage: cargo xtask differ [--commands N] [--seed S] [--ours HOST:PORT]

  --commands N      how many commands [default: 20000]
  --seed S          which ones [default: 1]
  --ours HOST:PORT  an engine that runs already; all its data is deleted";

/// What is sent.
const FORMS: &str = include_str!("differ/commands.txt");
/// Commands that are sent before their replies are read.
const BATCH: usize = 50;
/// Batches between two comparisons of all keys, after which both servers are emptied.
const LIFE: u64 = 12;
/// Differences that are shown.
const SHOWN_MAX: usize = 40;
/// Earlier commands on the same key that are shown with a difference.
const HISTORY_MAX: usize = 12;
/// Commands that a merge passes.
const SMOKE_COMMANDS: u64 = 20_000;
/// Looks whether Redis has started.
const LOOKS_MAX: u32 = 500;

struct Arguments {
    commands: u64,
    seed: u64,
    ours: Option<String>,
}

/// Runs the chore.
pub(crate) fn command(arguments: &[String]) -> Result<(), Failure> {
    if asks_for_help(arguments) {
        say(HELP);
        return Ok(());
    }
    let arguments = read(arguments)?;
    differ(&Workspace::load()?, &arguments).map(drop)
}

/// A short run, where Redis is installed.
pub(crate) fn smoke(workspace: &Workspace) -> Result<Outcome, Failure> {
    differ(workspace, &Arguments { commands: SMOKE_COMMANDS, seed: 1, ours: None })
}

fn read(words: &[String]) -> Result<Arguments, Failure> {
    let mut arguments = Arguments { commands: SMOKE_COMMANDS, seed: 1, ours: None };
    for pair in words.chunks(2) {
        let wrong = || Failure::Usage(format!("`differ` does not understand `{}`", pair.join(" ")));
        let [flag, value] = pair else { return Err(wrong()) };
        match flag.as_str() {
            "--commands" => arguments.commands = value.parse().map_err(|_| wrong())?,
            "--seed" => arguments.seed = value.parse().map_err(|_| wrong())?,
            "--ours" => arguments.ours = Some(value.clone()),
            _ => return Err(wrong()),
        }
    }
    Ok(arguments)
}

fn differ(workspace: &Workspace, arguments: &Arguments) -> Result<Outcome, Failure> {
    if !is_there("redis-server") {
        let why = "the differential test needs redis-server (Debian: redis-server)";
        return skip(why.to_owned()).map(Outcome::Skipped);
    }
    let own = match &arguments.ours {
        Some(_) => None,
        None => {
            run(&mut cargo(&workspace.root, &["build", "--package", "ashlar", "--locked"]))?;
            Some(KvServer::start(workspace)?)
        }
    };
    let ours = arguments.ours.clone().or_else(|| own.as_ref().map(|own| own.address.clone())).unwrap_or_default();
    let redis = Redis::start()?;
    let io = |error: io::Error| Failure::io("a server of the differential test", &error);
    let (theirs, ours) = (Talk::new(&redis.address, PATIENCE).map_err(io)?, Talk::new(&ours, PATIENCE).map_err(io)?);
    let mut pair = Pair { theirs, ours, life: Vec::new(), report: Report::default() };
    let forms = pair.known_forms().map_err(io)?;
    pair.run(&forms, arguments).map_err(io)?;
    pair.report.conclude(arguments).map(Outcome::passed)
}

/// Redis on a free port, killed at the end.
struct Redis {
    child: Child,
    address: String,
}

impl Redis {
    fn start() -> Result<Self, Failure> {
        let io = |error: io::Error| Failure::io("redis-server", &error);
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).map_err(io)?;
        let port = free.port().to_string();
        let mut command = Command::new("redis-server");
        command.args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().map_err(io)?;
        let redis = Self { child, address: free.to_string() };
        let (_keep, pause) = std::sync::mpsc::channel::<()>();
        for _ in 0..LOOKS_MAX {
            if Talk::new(&redis.address, PATIENCE).and_then(|mut talk| talk.ask(&["PING"])).is_ok() {
                return Ok(redis);
            }
            pause.recv_timeout(std::time::Duration::from_millis(20)).ok();
        }
        Err(Failure::Failed("redis-server does not answer".into()))
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // The only error is that it has ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The two servers.
struct Pair {
    theirs: Talk,
    ours: Talk,
    /// What both were sent since they were emptied.
    life: Vec<Vec<Vec<u8>>>,
    report: Report,
}

#[derive(Default)]
struct Report {
    commands: u64,
    differences: u64,
    /// The first of each command.
    shown: BTreeMap<String, String>,
    explained: BTreeMap<usize, u64>,
    unknown: Vec<String>,
}

impl Pair {
    fn ask(&mut self, words: &[&str]) -> io::Result<(Reply, Reply)> {
        Ok((self.theirs.ask(words)?, self.ours.ask(words)?))
    }

    /// The forms of commands that both know.
    fn known_forms(&mut self) -> io::Result<Vec<Form>> {
        let lines = FORMS.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        let mut forms = Vec::new();
        for form in lines.map(Form::read) {
            let (theirs, ours) = self.ask(&[form.name()])?;
            let is_known = |reply: &Reply| !reply.shown().contains("unknown command");
            if form.name() == "NOSUCHCOMMAND" || is_known(&theirs) && is_known(&ours) {
                forms.push(form);
            } else if !self.report.unknown.iter().any(|name| name == form.name()) {
                self.report.unknown.push(form.name().to_owned());
            }
        }
        Ok(forms)
    }

    fn run(&mut self, forms: &[Form], arguments: &Arguments) -> io::Result<()> {
        let mut dice = Dice::new(arguments.seed);
        self.empty(&mut dice)?;
        let mut batches = 0;
        while self.report.commands < arguments.commands {
            let commands: Vec<Vec<Vec<u8>>> = (0..BATCH).map(|_| choose(forms, &mut dice)).collect();
            let is_equal = self.batch(&commands)?;
            batches += 1;
            if !is_equal || batches % LIFE == 0 {
                if is_equal {
                    self.compare_keys()?;
                }
                self.empty(&mut dice)?;
            }
        }
        Ok(())
    }

    /// Both servers as new, and one of the two protocols.
    fn empty(&mut self, dice: &mut Dice) -> io::Result<()> {
        self.life.clear();
        let protocol = if dice.below(2) == 0 { "2" } else { "3" };
        for words in [&["RESET"][..], &["HELLO", protocol], &["FLUSHALL"], &["SELECT", "0"]] {
            self.ask(words)?;
        }
        Ok(())
    }

    /// Sends the same to both; whether every reply was equal.
    fn batch(&mut self, commands: &[Vec<Vec<u8>>]) -> io::Result<bool> {
        self.theirs.send(commands)?;
        self.ours.send(commands)?;
        let mut is_equal = true;
        for words in commands {
            let (theirs, ours) = (self.theirs.read()?, self.ours.read()?);
            // Behind a difference, the two hold different data.
            if is_equal {
                self.report.commands += 1;
                is_equal = self.report.judge(words, &self.life, &theirs, &ours);
                self.life.push(words.clone());
            }
        }
        Ok(is_equal)
    }

    /// What all keys hold.
    fn compare_keys(&mut self) -> io::Result<()> {
        let mut commands = Vec::new();
        for kind in KINDS {
            for number in 0..5 {
                let key = format!("{kind}{number}");
                let read: &[&[&str]] = &[
                    &["TYPE", &key],
                    &["GET", &key],
                    &["LRANGE", &key, "0", "-1"],
                    &["HGETALL", &key],
                    &["SMEMBERS", &key],
                    &["ZRANGE", &key, "0", "-1", "WITHSCORES"],
                    &["XRANGE", &key, "-", "+"],
                    &["EXPIRETIME", &key],
                ];
                let words = |words: &&[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
                commands.extend(read.iter().map(words));
            }
        }
        self.batch(&commands).map(drop)
    }
}

fn choose(forms: &[Form], dice: &mut Dice) -> Vec<Vec<u8>> {
    let form = &forms[usize::try_from(dice.below(forms.len() as u64)).unwrap_or(0)];
    let mut words = form.command(dice);
    garble(&mut words, dice);
    words
}

impl Report {
    /// Whether the two replies are equal or explained.
    fn judge(&mut self, words: &[Vec<u8>], before: &[Vec<Vec<u8>>], theirs: &Reply, ours: &Reply) -> bool {
        let name = String::from_utf8_lossy(&words[0]).to_ascii_uppercase();
        if are_equal(how(&name), theirs, ours) {
            return true;
        }
        if let Some(index) = explained(&name, theirs, ours) {
            *self.explained.entry(index).or_default() += 1;
            // The reply is explained; what the two hold from now on may differ.
            return false;
        }
        self.differences += 1;
        let key = words.get(1);
        let history = before.iter().filter(|earlier| earlier.iter().skip(1).any(|word| Some(word) == key));
        let history: Vec<String> = history.map(|words| format!("    after  {}", line(words))).collect();
        let from = history.len().saturating_sub(HISTORY_MAX);
        self.shown.entry(name).or_insert_with(|| {
            let history = history[from..].join("\n");
            format!("{history}\n  {}\n    Redis  {}\n    ours   {}", line(words), theirs.shown(), ours.shown())
        });
        false
    }

    fn conclude(&self, arguments: &Arguments) -> Result<(), Failure> {
        for shown in self.shown.values().take(SHOWN_MAX) {
            say(shown);
        }
        for (index, count) in &self.explained {
            say(&format!("{count} times: {}", EXCEPTIONS[*index].why));
        }
        if !self.unknown.is_empty() {
            say(&format!("not sent, because one of the two does not know them: {}", self.unknown.join(" ")));
        }
        let (commands, seed) = (self.commands, arguments.seed);
        say(&format!("{commands} commands of seed {seed}, {} differences", self.differences));
        if self.differences == 0 { Ok(()) } else { Err(Failure::Failed(format!("{} differences", self.differences))) }
    }
}

fn line(words: &[Vec<u8>]) -> String {
    words.iter().map(|word| format!("\"{}\"", word.escape_ascii())).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_found_and_shown_with_what_was_before() {
        let words = |text: &str| text.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
        let mut report = Report::default();
        let (one, other) = (Reply::One(b":1\r\n".to_vec()), Reply::One(b":2\r\n".to_vec()));
        let before = [words("SET a 1"), words("SET b 1")];
        assert!(report.judge(&words("GET a"), &before, &one, &one));
        assert!(!report.judge(&words("GET a"), &before, &one, &other));
        assert!(report.shown["GET"].contains("\"SET\" \"a\"") && !report.shown["GET"].contains("\"SET\" \"b\""));
        let arguments = Arguments { commands: 2, seed: 1, ours: None };
        assert!(report.conclude(&arguments).is_err() && Report::default().conclude(&arguments).is_ok());
    }
}
