//! ACL: users, and what each may do.

use super::call::{Call, Run};
use super::help;
use super::spec::Categories;
use super::spec::table::{self, COMMANDS};
use crate::acl::{Selector, User, join_selectors};
use crate::error::Error;
use crate::resp::Request;
use crate::resp::number::parse_i64;
use crate::settings::kept::Change;
use crate::value::score::write_score;

pub(super) const RUNS: &[(&str, Run)] = &[
    ("acl|cat", cat),
    ("acl|deluser", deluser),
    ("acl|dryrun", dryrun),
    ("acl|genpass", genpass),
    ("acl|getuser", getuser),
    ("acl|help", |call| help::write(call, "ACL", HELP)),
    ("acl|list", list),
    ("acl|load", load),
    ("acl|log", log),
    ("acl|save", save),
    ("acl|setuser", setuser),
    ("acl|users", users),
    ("acl|whoami", whoami),
];

const HELP: &[(&str, &str)] = &[
    ("CAT [<category>]", "Name the categories, or the commands of one."),
    ("DELUSER <username> [<username> ...]", "Delete users and close their connections."),
    ("DRYRUN <username> <command> [<arg> ...]", "Tell whether a user may run a command, without running it."),
    ("GETUSER <username>", "Describe a user."),
    ("GENPASS [<bits>]", "Invent a password of 256 bits, or of so many."),
    ("LIST", "Show the rules of all users."),
    ("LOAD", "Read all users from the file."),
    ("LOG [<count> | RESET]", "Show what users were refused, or forget it."),
    ("SAVE", "Write all users to the file."),
    ("SETUSER <username> <attribute> [<attribute> ...]", "Create a user, or change one."),
    ("USERS", "Name all users."),
    ("WHOAMI", "Tell which user this connection is."),
];

/// Bits of an invented password.
const PASSWORD_BITS: i64 = 256;
const PASSWORD_BITS_MAX: i64 = 4_096;
/// Entries of the log that are shown unless more are asked for.
const LOG_SHOWN: i64 = 10;

const NO_FILE: Error = Error::new(
    "ERR This instance is not configured to use an ACL file. You may want to specify users via the ACL SETUSER command and then \
     issue a CONFIG REWRITE (assuming you have a configuration file set) in order to store users in the configuration.",
);

fn setuser(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let name = &call.args[2];
    if name.iter().any(|byte| byte.is_ascii_whitespace() || matches!(byte, 0 | 0x0b)) {
        return Err(Error::new("ERR Usernames can't contain spaces or null characters"));
    }
    let rules = join_selectors(call.args.from(3))
        .map_err(|at| Error::text(format!("ERR Unmatched parenthesis in acl selector starting at '{at}'.")))?;
    let known = call.engine.acl.user(name);
    let mut user = known.map_or_else(|| User::new(name, call.settings.acl_all_channels), |known| User::clone(&known));
    for rule in &rules {
        user.apply(rule).map_err(|wrong| {
            let rule = String::from_utf8_lossy(rule);
            Error::text(format!("ERR Error in ACL SETUSER modifier '{rule}': {}", wrong.text()))
        })?;
    }
    call.engine.keep(&[Change::User(user.name.clone(), Some(user.show()))])?;
    let losers = call.engine.replace_user(user);
    call.engine.dismiss_losers(&losers, call.client);
    call.reply.ok();
    Ok(())
}

fn deluser(call: &mut Call<'_, '_>) -> Result<(), Error> {
    if call.args.from(2).any(|name| name == crate::acl::DEFAULT) {
        return Err(Error::new("ERR The 'default' user cannot be removed"));
    }
    let known = call.args.from(2).filter(|name| call.engine.has_user(name));
    let changes: Vec<Change> = known.map(|name| Change::User(name.to_vec(), None)).collect();
    if !changes.is_empty() {
        call.engine.keep(&changes)?;
    }
    let (count, losers) = call.engine.delete_users(call.args.from(2));
    call.engine.dismiss_losers(&losers, call.client);
    call.reply.count(count);
    Ok(())
}

fn getuser(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let Some(user) = call.engine.acl.user(&call.args[2]) else {
        call.reply.null();
        return Ok(());
    };
    call.reply.map(7);
    call.reply.bulk(b"flags");
    let flags = user.flags();
    call.reply.set(flags.len());
    flags.iter().for_each(|flag| call.reply.bulk(flag.as_bytes()));
    call.reply.bulk(b"passwords");
    call.reply.array(user.passwords.len());
    user.passwords.iter().for_each(|hashed| call.reply.bulk(hashed.as_bytes()));
    write_selector(call, user.root());
    call.reply.bulk(b"selectors");
    call.reply.array(user.others().len());
    for selector in user.others() {
        call.reply.map(4);
        write_selector(call, selector);
    }
    Ok(())
}

/// Four fields.
fn write_selector(call: &mut Call<'_, '_>, selector: &Selector) {
    call.reply.bulk(b"commands");
    call.reply.bulk(selector.show_commands().as_bytes());
    call.reply.bulk(b"keys");
    call.reply.bulk(&selector.show_keys());
    call.reply.bulk(b"channels");
    call.reply.bulk(&selector.show_channels());
    call.reply.bulk(b"databases");
    call.reply.bulk(selector.show_databases().as_bytes());
}

fn list(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let users = call.engine.acl.all();
    call.reply.array(users.len());
    users.iter().for_each(|user| call.reply.bulk(&user.show()));
    Ok(())
}

fn users(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let users = call.engine.acl.all();
    call.reply.array(users.len());
    users.iter().for_each(|user| call.reply.bulk(&user.name));
    Ok(())
}

fn whoami(call: &mut Call<'_, '_>) -> Result<(), Error> {
    call.reply.bulk(&call.client.user.name);
    Ok(())
}

fn cat(call: &mut Call<'_, '_>) -> Result<(), Error> {
    match call.args.len() {
        2 => {
            call.reply.array(Categories::ALL.len());
            Categories::ALL.iter().for_each(|(_, name)| call.reply.bulk(name.as_bytes()));
        }
        3 => {
            let shown = String::from_utf8_lossy(&call.args[2]).chars().take(128).collect::<String>();
            let category = Categories::named(&call.args[2])
                .ok_or_else(|| Error::text(format!("ERR Unknown category '{shown}'")))?;
            let is_in = |command: &&table::Command| command.spec.categories().has(category);
            let commands: Vec<_> = COMMANDS.iter().filter(is_in).map(table::Command::full_name).collect();
            call.reply.array(commands.len());
            commands.iter().for_each(|name| call.reply.bulk(name.as_bytes()));
        }
        _ => return Err(Error::wrong_subcommand("ACL", &call.args[1])),
    }
    Ok(())
}

fn genpass(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let bits = match call.args.len() {
        2 => PASSWORD_BITS,
        3 => call.integer(2)?,
        _ => return Err(Error::wrong_subcommand("ACL", &call.args[1])),
    };
    if !(1..=PASSWORD_BITS_MAX).contains(&bits) {
        return Err(Error::text(format!(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to \
             {PASSWORD_BITS_MAX}"
        )));
    }
    let letters = usize::try_from(bits).unwrap_or_default().div_ceil(4);
    let password = call.engine.acl.invent_password(letters);
    call.reply.bulk(password.as_bytes());
    Ok(())
}

fn log(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let shown = match call.args.len() {
        2 => LOG_SHOWN,
        3 if call.args.is(2, "RESET") => {
            call.engine.acl.log().clear();
            call.reply.ok();
            return Ok(());
        }
        3 => parse_i64(&call.args[2]).ok_or(Error::NOT_INTEGER)?,
        _ => return Err(Error::wrong_subcommand("ACL", &call.args[1])),
    };
    let log = call.engine.acl.log();
    let shown = usize::try_from(shown).unwrap_or_default().min(log.entries().len());
    call.reply.array(shown);
    for entry in log.entries().take(shown) {
        #[expect(clippy::cast_precision_loss, reason = "an age in milliseconds has few digits")]
        let age_s = (call.now.unix_ms() - entry.updated_ms) as f64 / 1_000.0;
        let mut age = Vec::new();
        write_score(age_s, &mut age);
        call.reply.map(10);
        call.reply.bulk(b"count");
        call.reply.integer(entry.count);
        for (name, text) in [("reason", entry.reason.word()), ("context", entry.context.word())] {
            call.reply.bulk(name.as_bytes());
            call.reply.bulk(text.as_bytes());
        }
        for (name, text) in [("object", &entry.object), ("username", &entry.user)] {
            call.reply.bulk(name.as_bytes());
            call.reply.bulk(text);
        }
        call.reply.bulk(b"age-seconds");
        call.reply.double(&age);
        call.reply.bulk(b"client-info");
        call.reply.bulk(&entry.client);
        for (name, number) in [
            ("entry-id", entry.number),
            ("timestamp-created", entry.created_ms),
            ("timestamp-last-updated", entry.updated_ms),
        ] {
            call.reply.bulk(name.as_bytes());
            call.reply.integer(number);
        }
    }
    Ok(())
}

fn dryrun(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let shown = |at: usize| String::from_utf8_lossy(&call.args[at]).into_owned();
    let user =
        call.engine.acl.user(&call.args[2]).ok_or_else(|| Error::text(format!("ERR User '{}' not found", shown(2))))?;
    let request: Request = call.args.from(3).collect();
    let command =
        table::find_call(request.args()).ok_or_else(|| Error::text(format!("ERR Command '{}' not found", shown(3))))?;
    if !command.spec.takes(request.args().len()) {
        return Err(Error::wrong_number(&command.full_name()));
    }
    match user.check(command, request.args(), call.engine.databases_of(call.client)) {
        Ok(()) => call.reply.ok(),
        Err(denial) => call.reply.bulk(denial.full_text(&user.name, command, request.args()).as_bytes()),
    }
    Ok(())
}

fn load(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let file = call.engine.acl.file().ok_or(NO_FILE)?;
    let text = file
        .read()
        .map_err(|why| Error::text(format!("ERR Error loading ACLs, opening file '{}': {why}", file.name())))?;
    let losers = call.engine.load_users(&text, file.name()).map_err(|why| Error::text(format!("ERR {why}")))?;
    call.engine.dismiss_losers(&losers, call.client);
    call.reply.ok();
    Ok(())
}

fn save(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let file = call.engine.acl.file().ok_or(NO_FILE)?;
    let mut text = Vec::new();
    for user in call.engine.acl.all() {
        text.extend_from_slice(&user.show());
        text.push(b'\n');
    }
    file.write(&text).map_err(|_| {
        Error::new("ERR There was an error trying to save the ACLs. Please check the server logs for more information")
    })?;
    call.reply.ok();
    Ok(())
}
