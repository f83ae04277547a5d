//! One effect, one truth: the life that follows from any bytes ends with the same content in the live engine, after a restart from its
//! log, and in its replicas.
#![no_main]

use std::sync::OnceLock;

use ashlar_sim::replay::{Table, live_bytes, table};
use libfuzzer_sys::fuzz_target;

static TABLE: OnceLock<Table> = OnceLock::new();

fuzz_target!(|input: &[u8]| {
    if let Err(why) = live_bytes(TABLE.get_or_init(table), input) {
        panic!("{why}");
    }
});
