//! Ids from text: any text is an error or an id whose own text is the same.
#![no_main]

use ashlar_wire::id::{ClusterId, ServerId};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let server = text.parse::<ServerId>();
    assert_eq!(server.is_ok(), text.parse::<ClusterId>().is_ok(), "all ids share one written form");
    if let Ok(id) = server {
        assert_eq!(id.to_string(), text);
        assert_eq!(ServerId::from_bytes(*id.as_bytes()), id);
    }
});
