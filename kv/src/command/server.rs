//! Commands about the server: its settings, its commands, its state.

use super::call::{Call, Run};
use super::help;
use super::introspect::{self, Filter};
use crate::error::Error;
use crate::glob;
use crate::resp::Request;

pub(super) const RUNS: &[(&str, Run)] = &[
    ("command", command),
    ("command|count", command_count),
    ("command|info", command_info),
    ("command|list", command_list),
    ("command|docs", command_docs),
    ("command|help", command_help),
    ("command|getkeys", |call| command_keys(call, false)),
    ("command|getkeysandflags", |call| command_keys(call, true)),
    ("time", time),
];

fn command(call: &mut Call<'_, '_>) -> Result<(), Error> {
    introspect::write_all(call.reply);
    Ok(())
}

fn command_count(call: &mut Call<'_, '_>) -> Result<(), Error> {
    introspect::write_count(call.reply);
    Ok(())
}

fn command_info(call: &mut Call<'_, '_>) -> Result<(), Error> {
    if call.args.len() == 2 {
        introspect::write_all(call.reply);
    } else {
        introspect::write_info(call.reply, call.args.from(2));
    }
    Ok(())
}

fn command_list(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let matches = |pattern: &[u8], name: &[u8]| glob::matches(pattern, name, true);
    let filter = Filter::read(call.args, matches).ok_or(Error::SYNTAX)?;
    introspect::write_list(call.reply, filter);
    Ok(())
}

fn command_docs(call: &mut Call<'_, '_>) -> Result<(), Error> {
    if call.args.len() == 2 {
        introspect::write_all_docs(call.reply);
    } else {
        introspect::write_docs(call.reply, call.args.from(2));
    }
    Ok(())
}

fn command_help(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let lines = [
        ("(no subcommand)", "Return details about all commands."),
        ("COUNT", "Return the total number of commands in this server."),
        ("LIST", "Return a list of all commands in this server."),
        ("INFO [<command-name> ...]", "Return details about multiple commands, or all if none is named."),
        ("DOCS [<command-name> ...]", "Return documentation details about multiple commands, or all if none is named."),
        ("GETKEYS <full-command>", "Return the keys from a full command."),
        ("GETKEYSANDFLAGS <full-command>", "Return the keys and the access flags from a full command."),
    ];
    help::write(call, "COMMAND", &lines)
}

fn command_keys(call: &mut Call<'_, '_>, with_flags: bool) -> Result<(), Error> {
    let request: Request = call.args.from(2).collect();
    introspect::write_keys(call.reply, request.args(), with_flags).map_err(|error| Error::new(error.text()))
}

fn time(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let unix_us = call.now.unix_us;
    call.reply.array(2);
    call.reply.bulk_integer(unix_us.div_euclid(1_000_000));
    call.reply.bulk_integer(unix_us.rem_euclid(1_000_000));
    Ok(())
}
