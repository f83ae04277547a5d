//! An area of blobs with any bytes in it, with and without right checksums: it is opened or refused; every request is
//! answered; what is read was put under that id; puts, removals and compaction go on, and a second opening finds it so.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ashlar_store::blob::proof::open_any(bytes));
