//! A bug planted to prove the fuzzer: six bytes, each behind its own branch, then a panic.
//!
//! Guided by coverage, libFuzzer goes one branch deeper at a time and is there within a second. Blind, it would need
//! about 2^48 inputs. `cargo xtask fuzz planted` therefore succeeds only if a crash is found.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if data.len() == 6
        && data[0] == b'a'
        && data[1] == b's'
        && data[2] == b'h'
        && data[3] == b'l'
        && data[4] == b'a'
        && data[5] == b'r'
    {
        panic!("the planted bug was reached");
    }
});
