//! The flags of a server, made from the table of keys.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use super::keys::{Fallback, KEYS, Key};

/// What stood on the command line, in the text form of the keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Flags {
    /// `--config FILE`.
    pub config: Option<String>,
    /// Keys that were given; a list's items have commas between them.
    pub given: Vec<(&'static Key, String)>,
}

impl Args for Flags {
    fn augment_args(command: Command) -> Command {
        let config = Arg::new("config").long("config").value_name("FILE").help("Configuration file (TOML)");
        KEYS.iter().fold(command.arg(config), |command, key| command.arg(argument(key)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.config = matches.get_one::<String>("config").cloned();
        self.given.clear();
        for key in KEYS {
            let texts: Vec<&str> =
                matches.get_many::<String>(key.name).into_iter().flatten().map(String::as_str).collect();
            if !texts.is_empty() {
                self.given.push((key, texts.join(",")));
            }
        }
        Ok(())
    }
}

fn argument(key: &Key) -> Arg {
    let fallback = match key.fallback {
        Fallback::Fixed(text) => format!(" [default: {text}]"),
        Fallback::Computed(text) => format!(" [default: {}]", text.replace('`', "")),
        Fallback::Required => String::new(),
    };
    let action = if key.kind.is_list() { ArgAction::Append } else { ArgAction::Set };
    let help = format!("{}{fallback} [environment: {}]", key.help, key.environment());
    Arg::new(key.name).long(key.flag()).value_name(key.kind.name()).help(help).action(action)
}
