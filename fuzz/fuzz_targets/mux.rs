//! Two muxes back to back under any order of calls, streams, bytes, time, drains and closes, and optionally a peer that
//! says whatever it likes. Always: nobody panics, every call ends exactly once, nothing is left after a close, and
//! whoever waits is woken. Among honest peers also: what was said not to run has not run, answers are the handler's,
//! a stream gives a prefix of what was sent, and its end only after all of it.
#![no_main]

#[path = "mux/deeds.rs"]
mod deeds;
#[path = "mux/rig.rs"]
mod rig;
#[path = "mux/watch.rs"]
mod watch;

use deeds::Input;
use rig::Rig;

libfuzzer_sys::fuzz_target!(|input: Input| {
    let mut rig = Rig::new(&input);
    for deed in input.deeds.iter().take(deeds::DEEDS_MAX) {
        rig.run(deed);
        rig.check();
    }
    rig.calm_down();
    rig.close_all();
});
