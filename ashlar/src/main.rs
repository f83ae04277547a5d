//! The one program: hands its arguments to [`ashlar::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    ashlar::cli::run(std::env::args_os().collect())
}
