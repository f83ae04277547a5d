//! Any bytes in any pieces: nothing panics, limits hold, and cuts change nothing.

use arbtest::arbitrary::{Result, Unstructured};
use arbtest::arbtest;

use super::*;

/// Numbers near which something changes.
const NUMBERS: [u64; 10] = [0, 1, 511, 512, 4_096, 65_536, SIZE - 1, SIZE, SIZE + 1, u64::MAX];

fn number(u: &mut Unstructured<'_>) -> Result<u64> {
    Ok(if u.ratio(1, 4)? { u.int_in_range(0..=SIZE)? } else { *u.choose(&NUMBERS)? })
}

/// An option, valid or nearly so.
fn any_option(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let option = u.int_in_range(0..=12)?;
    let name = *u.choose(&["", "x", "y"])?;
    let mut data = match option {
        option::EXPORT_NAME => name.as_bytes().to_vec(),
        option::INFO | option::GO => info_data(name, &[3, 1]),
        option::LIST_META_CONTEXT | option::SET_META_CONTEXT => context_data(name, &["base:allocation"]),
        _ => Vec::new(),
    };
    if u.ratio(1, 8)? {
        data.push(u.arbitrary()?);
    }
    if u.ratio(1, 8)? && !data.is_empty() {
        let at = u.choose_index(data.len())?;
        data[at] = u.arbitrary()?;
    }
    Ok(option_bytes(option, &data))
}

/// A request, valid or nearly so, with as much payload as a write should have.
fn any_request(u: &mut Unstructured<'_>, extended: bool) -> Result<Vec<u8>> {
    let command = u.int_in_range(0..=8)?;
    let flags = if u.ratio(1, 2)? { 0 } else { 1 << u.int_in_range(0..=6)? };
    let (offset, len) = (number(u)?, number(u)?.min(70_000));
    let short = u32::try_from(len).unwrap();
    let compact = request_bytes(flags, command, u.int_in_range(0..=3)?, offset, short);
    let has_payload = if extended { flags & 32 != 0 } else { command == command::WRITE };
    let mut bytes = match extended {
        true => [&hex("21e41c71")[..], &compact[4..24], &len.to_be_bytes()].concat(),
        false => compact,
    };
    if has_payload {
        bytes.resize(bytes.len() + len as usize, 7);
    }
    Ok(bytes)
}

/// A whole conversation of a client.
fn any_input(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut input = vec![0, 0, 0, u.int_in_range(0..=3)?];
    for _ in 0..u.int_in_range(0..=4)? {
        input.extend(any_option(u)?);
    }
    let extended = u.ratio(1, 3)?;
    let framing = if extended { option::EXTENDED_HEADERS } else { option::STRUCTURED_REPLY };
    if extended || u.ratio(1, 2)? {
        input.extend(option_bytes(framing, &[]));
        input.extend(option_bytes(option::SET_META_CONTEXT, &context_data("x", &["base:allocation"])));
    }
    input.extend(option_bytes(option::GO, &info_data("x", &[3])));
    for _ in 0..u.int_in_range(0..=12)? {
        input.extend(any_request(u, extended)?);
    }
    if u.ratio(1, 4)? && !input.is_empty() {
        let at = u.choose_index(input.len())?;
        input[at] = u.arbitrary()?;
    }
    Ok(input)
}

/// All that a session has said.
#[derive(Debug, PartialEq, Eq, Default)]
struct Outcome {
    requests: Vec<Request>,
    sent: Vec<u8>,
    end: Option<End>,
    consumed: usize,
}

fn answer(io: &IoRequest) -> Reply {
    match &io.io {
        Io::Read => {
            let half = io.len / 2;
            let data = Piece::Data(Bytes::from(vec![9; usize::try_from(io.len - half).unwrap()]));
            Reply::Data(if half > 0 { vec![Piece::Zeroes(half), data] } else { vec![data] })
        }
        Io::Status => Reply::Status(vec![Span { len: io.len, is_hole: true, is_zero: true }]),
        _ => Reply::Done,
    }
}

/// Gives a session the input in pieces; the owner answers only when the session wants no more, so that answers come at
/// the same places however the input is cut.
fn run(input: &[u8], limits: Limits, tls: TlsPolicy, mut cut: impl FnMut() -> usize) -> Outcome {
    let mut session = Session::new(limits, tls);
    let mut outcome = Outcome::default();
    let mut rest = input;
    loop {
        while !rest.is_empty() && session.wants_bytes() {
            let piece = &rest[..cut().clamp(1, rest.len())];
            rest = &rest[session.handle_bytes(piece)..];
            assert!(session.in_flight() <= limits.in_flight_max);
            assert!(session.held_bytes <= limits.held_bytes_max.max(u64::from(limits.payload_bytes_max)));
        }
        let mut has_answered = false;
        while let Some(request) = session.poll_request() {
            has_answered = true;
            match &request {
                Request::List => session.handle_exports(Some(&[])),
                Request::Lookup { name, .. } => session.handle_export((name == "x").then(export)),
                Request::StartTls => session.handle_tls(),
                Request::Io(io) if session.end().is_none_or(End::is_soft) => session.handle_reply(io.id, answer(io)),
                Request::Io(_) | Request::Disconnect => {}
            }
            outcome.requests.push(request);
        }
        let sent: Vec<u8> = session.poll_transmit().flatten().copied().collect();
        session.handle_transmitted(sent.len() as u64);
        outcome.sent.extend_from_slice(&sent);
        if !has_answered && sent.is_empty() && (rest.is_empty() || !session.wants_bytes()) {
            outcome.end = session.end();
            outcome.consumed = input.len() - rest.len();
            return outcome;
        }
    }
}

fn small_limits() -> Limits {
    let (held_bytes_max, output_bytes_max) = (100_000, 50_000);
    Limits { in_flight_max: 3, held_bytes_max, output_bytes_max, payload_bytes_max: 65_536, ..Limits::default() }
}

#[test]
fn cuts_change_nothing() {
    let mut entered = 0;
    arbtest(|u| {
        let tls = *u.choose(&[TlsPolicy::Unsupported, TlsPolicy::Offered, TlsPolicy::Required])?;
        let limits = if u.arbitrary()? { small_limits() } else { Limits::default() };
        let input = any_input(u)?;
        let whole = run(&input, limits, tls, || usize::MAX);
        let step = u.int_in_range(1..=40)?;
        assert_eq!(whole, run(&input, limits, tls, || step));
        let cuts: Vec<usize> = (0..16).map(|_| u.int_in_range(1..=2_000)).collect::<Result<_>>()?;
        let mut cuts = cuts.iter().cycle();
        assert_eq!(whole, run(&input, limits, tls, || *cuts.next().unwrap()));
        assert!(whole.end.is_some() || whole.consumed == input.len(), "all is read while nothing ends the session");
        entered += usize::from(whole.requests.iter().any(|request| matches!(request, Request::Io(_))));
        Ok(())
    })
    .budget_ms(3_000);
    assert!(entered > 0, "some conversations reach IO");
}

#[test]
fn any_bytes_do_no_harm() {
    arbtest(|u| {
        let garbage: Vec<u8> = u.arbitrary()?;
        let valid = any_input(u)?;
        let keep = u.int_in_range(0..=valid.len())?;
        let input = [&valid[..keep], &garbage].concat();
        run(&input, small_limits(), TlsPolicy::Unsupported, || usize::MAX);
        run(&garbage, small_limits(), TlsPolicy::Required, || 3);
        Ok(())
    })
    .budget_ms(1_000);
}
