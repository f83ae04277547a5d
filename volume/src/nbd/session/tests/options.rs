//! Options that are refused, and TLS.

use super::*;
use crate::nbd::protocol::option_reply;

/// The kind of the last answer to an option.
fn last_reply(received: &[u8]) -> u32 {
    let mut rest = received;
    loop {
        let len = u32::from_be_bytes(rest[16..20].try_into().unwrap()) as usize;
        if rest.len() == 20 + len {
            return u32::from_be_bytes(rest[12..16].try_into().unwrap());
        }
        rest = &rest[20 + len..];
    }
}

/// Sends an option to a fresh session that knows the export `x`, after structured replies if `structured`.
fn answer_of(structured: bool, option: u32, data: &[u8]) -> u32 {
    let mut pair = Pair::greeted(Limits::default(), TlsPolicy::Unsupported, 3);
    if structured {
        pair.send(&option_bytes(option::STRUCTURED_REPLY, &[]));
    }
    pair.send(&option_bytes(option, data));
    match pair.session.poll_request() {
        Some(Request::Lookup { name, .. }) => pair.session.handle_export((name == "x").then(export)),
        Some(Request::List) => pair.session.handle_exports(Some(&[])),
        _ => {}
    }
    last_reply(&pair.received())
}

#[test]
fn who_cannot_have_an_export_is_told_why() {
    let mut pair = Pair::greeted(Limits::default(), TlsPolicy::Unsupported, 3);
    pair.send(&option_bytes(option::GO, &info_data("x", &[])));
    assert!(matches!(pair.session.poll_request(), Some(Request::Lookup { .. })));
    pair.session.handle_refusal("it is attached elsewhere");
    let received = pair.received();
    assert_eq!(last_reply(&received), option_reply::ERR_POLICY);
    assert!(received.ends_with(b"it is attached elsewhere"));
}

#[test]
fn every_option_gets_the_answer_that_is_due() {
    use option_reply::{ACK, ERR_EXT_HEADER_REQD, ERR_INVALID, ERR_TOO_BIG, ERR_UNKNOWN, ERR_UNSUP};
    let long_name = "n".repeat(4_097);
    let cases: [(bool, u32, Vec<u8>, u32); 22] = [
        (false, 4, vec![], ERR_UNSUP),
        (false, 99, b"data".to_vec(), ERR_UNSUP),
        (false, option::STARTTLS, vec![], ERR_UNSUP),
        (false, option::LIST, vec![], ACK),
        (false, option::LIST, vec![0], ERR_INVALID),
        (false, option::STRUCTURED_REPLY, vec![0], ERR_INVALID),
        (false, option::EXTENDED_HEADERS, vec![0], ERR_INVALID),
        (true, option::STRUCTURED_REPLY, vec![], ACK),
        (false, option::INFO, info_data("x", &[]), ACK),
        (false, option::INFO, info_data("y", &[]), ERR_UNKNOWN),
        (false, option::GO, info_data("y", &[]), ERR_UNKNOWN),
        (false, option::GO, vec![], ERR_INVALID),
        (false, option::GO, hex("00000002 78 0000"), ERR_INVALID),
        (false, option::GO, hex("00000001 78 0001"), ERR_INVALID),
        (false, option::GO, hex("00000001 78 0000 00"), ERR_INVALID),
        (false, option::GO, hex("00000001 ff 0000"), ERR_INVALID),
        (false, option::GO, info_data(&long_name, &[]), ERR_INVALID),
        (false, option::GO, vec![0; 65_537], ERR_TOO_BIG),
        (false, option::SET_META_CONTEXT, context_data("x", &["base:allocation"]), ERR_INVALID),
        (true, option::SET_META_CONTEXT, context_data("y", &["base:allocation"]), ERR_UNKNOWN),
        (true, option::SET_META_CONTEXT, context_data("x", &["nonsense"]), ERR_INVALID),
        (true, option::LIST_META_CONTEXT, hex("00000001 78 ffffffff"), ERR_INVALID),
    ];
    for (structured, option, data, expected) in cases {
        let shown = &data[..data.len().min(20)];
        assert_eq!(answer_of(structured, option, &data), expected, "option {option}, {shown:?}");
    }
    let mut pair = Pair::greeted(Limits::default(), TlsPolicy::Unsupported, 3);
    pair.send(&option_bytes(option::EXTENDED_HEADERS, &[]));
    pair.send(&option_bytes(option::STRUCTURED_REPLY, &[]));
    assert_eq!(last_reply(&pair.received()), ERR_EXT_HEADER_REQD);
}

#[test]
fn contexts_that_match() {
    let contexts = |option, queries: &[&str]| {
        let mut pair = Pair::greeted(Limits::default(), TlsPolicy::Unsupported, 3);
        pair.send(&option_bytes(option::STRUCTURED_REPLY, &[]));
        pair.received();
        pair.send(&option_bytes(option, &context_data("x", queries)));
        pair.session.handle_export(Some(export()));
        pair.received().len() > 20
    };
    for (option, queries, is_found) in [
        (option::SET_META_CONTEXT, &["base:allocation"][..], true),
        (option::SET_META_CONTEXT, &["other:x", "base:allocation"], true),
        (option::SET_META_CONTEXT, &["base:"], false),
        (option::SET_META_CONTEXT, &[], false),
        (option::SET_META_CONTEXT, &["base:other"], false),
        (option::LIST_META_CONTEXT, &[], true),
        (option::LIST_META_CONTEXT, &["base:"], true),
        (option::LIST_META_CONTEXT, &["base:allocation"], true),
        (option::LIST_META_CONTEXT, &["other:"], false),
    ] {
        assert_eq!(contexts(option, queries), is_found, "option {option}, {queries:?}");
    }
}

/// Whether block status is allowed after these options and `GO` to `x`.
fn has_status(options: &[Vec<u8>]) -> bool {
    let mut pair = Pair::entered(Limits::default(), export(), options);
    pair.send(&request_bytes(0, command::BLOCK_STATUS, 1, 0, 512));
    matches!(pair.session.poll_request(), Some(Request::Io(_)))
}

#[test]
fn a_context_counts_for_the_export_that_is_chosen_and_until_the_next_choice() {
    let set = |name, queries: &[&str]| option_bytes(option::SET_META_CONTEXT, &context_data(name, queries));
    let structured = option_bytes(option::STRUCTURED_REPLY, &[]);
    let allocation = &["base:allocation"][..];
    assert!(has_status(&structured_options()));
    assert!(!has_status(std::slice::from_ref(&structured)));
    assert!(!has_status(&[structured.clone(), set("y", allocation)]));
    assert!(!has_status(&[structured.clone(), set("x", allocation), set("x", &[])]));
    assert!(!has_status(&[structured, set("x", allocation), set("x", &["broken"])]));
}

#[test]
fn tls_that_is_required_comes_first() {
    let mut pair = Pair::greeted(Limits::default(), TlsPolicy::Required, 3);
    for option in [option::LIST, option::GO, option::INFO, option::STRUCTURED_REPLY, 99] {
        pair.send(&option_bytes(option, &[]));
        assert_eq!(last_reply(&pair.received()), option_reply::ERR_TLS_REQD, "option {option}");
    }
    pair.send(&option_bytes(option::STARTTLS, &[1]));
    assert_eq!(last_reply(&pair.received()), option_reply::ERR_INVALID);
    pair.send(&option_bytes(option::STARTTLS, &[]));
    assert_eq!(last_reply(&pair.received()), option_reply::ACK);
    assert_eq!(pair.session.poll_request(), Some(Request::StartTls));
    // What a third party has put behind the option is not read as plain text.
    assert_eq!(pair.session.handle_bytes(&option_bytes(option::LIST, &[])), 0);
    pair.session.handle_tls();
    pair.send(&option_bytes(option::STARTTLS, &[]));
    assert_eq!(last_reply(&pair.received()), option_reply::ERR_INVALID);
    pair.send(&option_bytes(option::LIST, &[]));
    assert_eq!(pair.session.poll_request(), Some(Request::List));

    let mut pair = Pair::greeted(Limits::default(), TlsPolicy::Required, 3);
    pair.send(&option_bytes(option::EXPORT_NAME, b"x"));
    assert_eq!(pair.session.end(), Some(End::Refused));
    assert!(pair.session.is_finished());
}

#[test]
fn tls_forgets_what_was_negotiated_in_the_clear() {
    let mut pair = Pair::greeted(Limits::default(), TlsPolicy::Offered, 3);
    for option in structured_options() {
        pair.send(&option);
    }
    pair.session.poll_request();
    pair.session.handle_export(Some(export()));
    pair.send(&option_bytes(option::STARTTLS, &[]));
    pair.session.handle_tls();
    pair.received();
    pair.send(&option_bytes(option::GO, &info_data("x", &[])));
    pair.session.handle_export(Some(export()));
    // No DF: replies are simple again.
    let golden = "0003e889045565a9 00000007 00000003 0000000c 0000 0000000000100000 0d6d 0003e889045565a9 00000007 00000001 00000000";
    assert_eq!(pair.received(), hex(golden));
}

#[test]
fn handshakes_that_end() {
    let ended = |bytes: &[u8]| {
        let mut pair = Pair::new(Limits::default(), TlsPolicy::Unsupported);
        pair.session.handle_bytes(bytes);
        if let Some(Request::Lookup { .. }) = pair.session.poll_request() {
            pair.session.handle_export(None);
        }
        pair.session.end()
    };
    let after_flags = |bytes: &[u8]| ended(&[&hex("00000003")[..], bytes].concat());
    assert_eq!(ended(&hex("00000004")), Some(End::UnknownFlags));
    assert_eq!(after_flags(&hex("49484156454f5055 00000003 00000000")), Some(End::BadMagic));
    assert_eq!(after_flags(&option_bytes(option::EXPORT_NAME, b"y")), Some(End::Refused));
    assert_eq!(after_flags(&option_bytes(option::EXPORT_NAME, &[0xff])), Some(End::Refused));
    assert_eq!(after_flags(&option_bytes(option::ABORT, b"ignored")), Some(End::Aborted));
    assert_eq!(after_flags(&hex("49484156454f5054 00000003 ffffffff")), Some(End::TooLong));
}
