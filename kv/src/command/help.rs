//! What `HELP` replies.

use super::call::Call;
use crate::error::Error;

/// Replies how a command is used: for each of its subcommands how it is written, and what it does.
pub(crate) fn write(call: &mut Call<'_, '_>, command: &str, lines: &[(&str, &str)]) -> Result<(), Error> {
    call.reply.array(lines.len() * 2 + 3);
    call.reply.status(&format!("{command} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    for (usage, meaning) in lines.iter().chain(&[("HELP", "Print this help.")]) {
        call.reply.status(usage);
        call.reply.status(&format!("    {meaning}"));
    }
    Ok(())
}
