//! `ashlar server`: one server in the foreground.

use std::path::Path;

use crate::config::flags::Flags;
use crate::config::root_key::GivenKey;
use crate::config::{self, Config, Texts, Values};
use crate::failure::Failure;
use crate::os::server::{self, Secrets};
use crate::os::{files, logs};

/// Run one server in the foreground. The first server of a cluster starts without --join; each other one needs --join
/// and the cluster's secret.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    pub(super) flags: Flags,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let config = resolve(&arguments.flags)?;
    logs::start(&config.log, config.log_json);
    let variable = |name: &str| std::env::var(name).ok();
    let read = |path: &str| text_of(path, "name a file that can be read");
    let root_key = config.s3.map(|address| GivenKey::of(variable, read, address)).transpose()?.flatten();
    server::run(&config, Secrets { cluster: variable("ASHLAR_SECRET").as_deref(), root_key })
}

/// The configuration from file, environment and these flags.
pub(super) fn resolve(flags: &Flags) -> Result<Config, Failure> {
    with_texts(flags, config::resolve)
}

/// All values and where they come from.
pub(super) fn collect(flags: &Flags) -> Result<Values, Failure> {
    with_texts(flags, config::collect)
}

fn with_texts<T>(flags: &Flags, read: impl FnOnce(Texts<'_>) -> Result<T, Vec<config::Problem>>) -> Result<T, Failure> {
    let environment = environment();
    let variable = environment.iter().find(|(name, _)| name == "ASHLAR_CONFIG").map(|(_, path)| path.clone());
    let file = match flags.config.clone().or(variable) {
        None => None,
        Some(path) => {
            Some((path.clone(), text_of(&path, "give a file that can be read with --config or ASHLAR_CONFIG")?))
        }
    };
    let file = file.as_ref().map(|(path, text)| (path.as_str(), text.as_str()));
    read(Texts { file, environment: &environment, flags }).map_err(|problems| config::failure(&problems))
}

/// Our variables of the environment.
pub(super) fn environment() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(name, text)| Some((name.into_string().ok()?, text.into_string().ok()?)))
        .filter(|(name, _)| name.starts_with("ASHLAR_"))
        .collect()
}

fn text_of(path: &str, remedy: &str) -> Result<String, Failure> {
    match files::read_text(Path::new(path)) {
        Ok(Some(text)) => Ok(text),
        Ok(None) => Err(Failure::usage(format!("there is no file {path}"), remedy)),
        Err(error) => Err(Failure::usage(format!("cannot read the file {path}: {error}"), remedy)),
    }
}
