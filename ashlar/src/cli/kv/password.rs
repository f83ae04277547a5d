//! `ashlar kv password`: one password for the default user of all engines of a cluster.
//!
//! The engines of servers tell each other of users, so the first one that takes the password is enough for all that are connected; a
//! server that is away takes it over when it comes back. Every engine is asked all the same, and whoever does not have it is named.

use core::time::Duration;
use std::path::{Path, PathBuf};

use ashlar_wire::time::Instant;

use super::picture::{ANSWER_MAX, Asker, Line, read_table};
use crate::cli::say;
use crate::failure::Failure;
use crate::os::kv::caller::{Caller, Reply};
use crate::os::{clock, files, terminal};

/// Bytes of a password.
const PASSWORD_BYTES_MAX: usize = 512;
/// How long servers may take to tell each other.
const SPREAD_MAX: Duration = Duration::from_secs(10);
/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(100);

/// What is asked for.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// File whose first line is the new password; `-` is standard input. Without it the password is asked for at the terminal
    #[arg(long, value_name = "FILE", conflicts_with = "remove")]
    file: Option<PathBuf>,
    /// Take the password away: the engines are open to whoever reaches them, as far as `protected-mode` lets them
    #[arg(long)]
    remove: bool,
}

/// Sets the password at all engines that `asker` knows, or takes it away.
///
/// # Errors
/// Nobody could be asked, or somebody did not get it. Safe to run again.
pub(super) async fn run(arguments: &Arguments, asker: &mut Asker) -> Result<(), Failure> {
    let new = if arguments.remove { None } else { Some(new_password(arguments.file.as_deref())?) };
    let (new, old) = (new.as_deref(), asker.password().map(str::to_owned));
    let (entry, lines) = table(asker, new).await?;
    let deadline = clock::now() + SPREAD_MAX;
    // It may be the only one that lets us in before others have told it: by the loopback, where protected mode holds.
    set(&entry, new, old.as_deref(), deadline).await.map_err(|why| refused(&entry, &why))?;
    let (mut done, mut missed) = (0, Vec::new());
    for line in &lines {
        let is_set = match line.has_failed {
            true => Err("its server has failed".to_owned()),
            false => set_listed(&entry, line, new, old.as_deref(), deadline).await,
        };
        match is_set {
            Ok(()) => done += 1,
            Err(why) => missed.push(format!("{}: {why}", line.shown_place())),
        }
    }
    let what = if new.is_some() { "the password holds" } else { "no password is needed" };
    say(&format!("{what} at {done} of {} engines", lines.len()));
    if missed.is_empty() {
        return Ok(());
    }
    Err(Failure::world(
        format!("{} of {} engines did not get it:\n  {}", missed.len(), lines.len(), missed.join("\n  ")),
        "a server that is away takes it over from the others when it is back; run this again then, to make sure. A server that is \
         lost for good has to be forgotten (`ashlar forget`)",
    ))
}

fn new_password(file: Option<&Path>) -> Result<String, Failure> {
    let failed = |what: &dyn core::fmt::Display| {
        Failure::usage(format!("no password was read: {what}"), "give it with --file FILE, or type it at the terminal")
    };
    let text = match file {
        Some(path) if path != Path::new("-") => {
            let text = files::read_text(path).map_err(|error| failed(&format!("{}: {error}", path.display())))?;
            text.ok_or_else(|| failed(&format!("{}: there is no such file", path.display())))?
        }
        None if terminal::is_typed() => {
            let first = terminal::ask_secret("New password: ").map_err(|error| failed(&error))?;
            let second = terminal::ask_secret("The same again: ").map_err(|error| failed(&error))?;
            if first != second {
                return Err(failed(&"the two are not the same"));
            }
            first
        }
        _ => terminal::read_secret().map_err(|error| failed(&error))?,
    };
    first_line(&text).map(str::to_owned).map_err(|why| failed(&why))
}

/// The password that a text holds.
///
/// # Errors
/// It is none.
pub(super) fn first_line(text: &str) -> Result<&str, String> {
    match text.lines().next().unwrap_or_default() {
        "" => Err("it is empty (to take the password away, give --remove)".to_owned()),
        long if long.len() > PASSWORD_BYTES_MAX => {
            Err(format!("it has {} bytes, {PASSWORD_BYTES_MAX} are the most", long.len()))
        }
        password => Ok(password),
    }
}

/// All engines, by the present password, or by the new one if that holds already.
async fn table(asker: &mut Asker, new: Option<&str>) -> Result<(String, Vec<Line>), Failure> {
    let mut why = String::new();
    for entry in asker.entries().to_vec() {
        for password in [asker.password(), new, None] {
            let told = match Caller::connect(&entry, password).await {
                Ok(mut caller) => caller.ask(&[b"CLUSTER", b"NODES"]).await.and_then(Reply::text),
                Err(error) => Err(error),
            };
            match told {
                Ok(text) => return Ok((entry, read_table(&text))),
                // What is told of the present password says most.
                Err(error) if why.is_empty() => why = format!("{entry}: {error}"),
                Err(_) => {}
            }
        }
    }
    Err(refused("", &why))
}

/// The engine that was named does not do it.
fn refused(place: &str, why: &str) -> Failure {
    let remedy = "name an engine of a cluster with --addr HOST:PORT; give the password that it has in ASHLAR_KV_PASSWORD or \
                  with --password-file FILE. One that has none yet takes this only from its own machine";
    Failure::world(format!("{place} {why}").trim_start(), remedy)
}

/// Sets it at an engine of the table, which is read again at `entry` until the engine's address is known.
async fn set_listed(
    entry: &str,
    line: &Line,
    new: Option<&str>,
    old: Option<&str>,
    deadline: Instant,
) -> Result<(), String> {
    let mut place = known_place(line);
    while place.is_err() && clock::now() < deadline {
        clock::sleep(LOOK).await;
        let table = clock::within(ANSWER_MAX, read_at(entry, new, old)).await;
        let table = table.unwrap_or_else(|| Err(format!("{entry} does not answer")));
        place = table.and_then(|table| match table.iter().find(|other| other.name == line.name) {
            Some(line) => known_place(line),
            None => Err(format!("{entry} does not know it any more")),
        });
    }
    set(&place?, new, old, deadline).await
}

fn known_place(line: &Line) -> Result<String, String> {
    line.unreachable().map_or_else(|| Ok(line.place.clone()), Err)
}

/// The table of nodes of one engine.
async fn read_at(place: &str, new: Option<&str>, old: Option<&str>) -> Result<Vec<Line>, String> {
    let text = connect(place, new, old).await?.ask(&[b"CLUSTER", b"NODES"]).await?.text()?;
    Ok(read_table(&text))
}

/// Sets it at one engine, which may have it from another one already, or soon.
async fn set(place: &str, new: Option<&str>, old: Option<&str>, deadline: Instant) -> Result<(), String> {
    loop {
        let tried = clock::within(ANSWER_MAX, try_set(place, new, old)).await;
        let why = match tried.unwrap_or_else(|| Err("it does not answer".to_owned())) {
            Ok(()) => return Ok(()),
            Err(why) => why,
        };
        // Who refuses may be told by another server before long, and who is slow may be quicker.
        if clock::now() >= deadline {
            return Err(why);
        }
        clock::sleep(LOOK).await;
    }
}

/// A connection as somebody who may set it: by the new password if that holds already, by the present one, or by none.
async fn connect(place: &str, new: Option<&str>, old: Option<&str>) -> Result<Caller, String> {
    if let Ok(mut caller) = Caller::connect(place, new).await
        && (new.is_some() || caller.ask(&[b"PING"]).await?.text().is_ok())
    {
        return Ok(caller);
    }
    match Caller::connect(place, old).await {
        // One that has none at all refuses any.
        Err(why) if why.starts_with("ERR AUTH") => Caller::connect(place, None).await,
        connected => connected,
    }
}

async fn try_set(place: &str, new: Option<&str>, old: Option<&str>) -> Result<(), String> {
    let mut caller = connect(place, new, old).await?;
    let new = new.unwrap_or_default().as_bytes();
    // What replicas of engines without servers say to their primaries is set first.
    for parameter in [&b"primaryauth"[..], b"requirepass"] {
        caller.ask(&[b"CONFIG", b"SET", parameter, new]).await?.text()?;
    }
    // Where nothing lasts by itself and there is no file, whoever started the engine says what holds after a restart.
    if let Reply::Refused(why) = caller.ask(&[b"CONFIG", b"REWRITE"]).await? {
        say(&format!("{place}: set until the restart only ({why})"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_the_first_line() {
        assert_eq!(first_line("a b \nrest"), Ok("a b "));
        assert_eq!(first_line("a\r\n"), Ok("a"));
        let long = "x".repeat(PASSWORD_BYTES_MAX + 1);
        for wrong in ["", "\n", "\nx", long.as_str()] {
            assert!(first_line(wrong).is_err(), "{wrong}");
        }
    }
}
