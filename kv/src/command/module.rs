//! `MODULE` of a server that takes none: there is no list to show, and nothing can be loaded.

use super::call::{Call, Run};
use super::config::is_allowed;
use super::help;
use crate::error::Error;

pub(super) const RUNS: &[(&str, Run)] = &[
    ("module|help", help_lines),
    ("module|list", list),
    ("module|load", load),
    ("module|loadex", load),
    ("module|unload", unload),
];

fn list(call: &mut Call<'_, '_>) -> Result<(), Error> {
    call.reply.array(0);
    Ok(())
}

fn load(call: &mut Call<'_, '_>) -> Result<(), Error> {
    admit(call)?;
    Err(Error::new("ERR Error loading the extension. Please check the server logs."))
}

fn unload(call: &mut Call<'_, '_>) -> Result<(), Error> {
    admit(call)?;
    Err(Error::new("ERR Error unloading module: no such module with that name"))
}

fn admit(call: &Call<'_, '_>) -> Result<(), Error> {
    if is_allowed(call.settings, call.client, "enable-module-command") {
        return Ok(());
    }
    Err(Error::new(
        "ERR MODULE command not allowed. If the enable-module-command option is set to \"local\", you can run it from a local \
         connection, otherwise you need to set this option in the configuration file, and then restart the server.",
    ))
}

fn help_lines(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let lines = [
        ("LIST", "Return the loaded modules: none."),
        ("LOAD <path> [<arg> ...]", "Refused: no module can be loaded."),
        ("LOADEX <path> [[CONFIG NAME VALUE] [CONFIG NAME VALUE]] [ARGS ...]", "Refused: no module can be loaded."),
        ("UNLOAD <name>", "Refused: no module is loaded."),
    ];
    help::write(call, "MODULE", &lines)
}
