//! `ashlar-sim`: what `ashlar sim` runs, alone: built sooner, with planted bugs, and in a profile in which a panic is a
//! failure of its seed and not the end.

use std::process::ExitCode;

fn main() -> ExitCode {
    ashlar_sim::command::run(std::env::args().skip(1))
}
