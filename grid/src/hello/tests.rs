//! Golden bytes, then everything that must not lead to a session.

use ashlar_wire::pack::PackError;

use super::*;

const CLUSTER: ClusterId = ClusterId::from_bytes(*b"a test's cluster");
const DIALER: ServerId = ServerId::from_bytes(*b"dialing server 1");
const ACCEPTOR: ServerId = ServerId::from_bytes(*b"accepting srv. 2");
const SESSION_ID: u64 = 0x0123_4567_89ab_cdef;

fn secret(byte: u8) -> Secret {
    Secret::from_bytes([byte; 32])
}

fn config(server: ServerId, incarnation: u64, address: &str) -> HelloConfig {
    HelloConfig {
        cluster: CLUSTER,
        server,
        incarnation: Incarnation(incarnation),
        address: address.to_owned(),
        secrets: Secrets::new(secret(1)),
        limits: PeerLimits {
            calls_in_flight_max: 65_536,
            streams_open_max: 300,
            chunk_max: 16_384,
            payload_max: 1 << 24,
            routes_max: 4_096,
        },
        always_checksum: false,
        lane: Lane::Small,
        expected_peer: None,
        channel_binding: [9; 32],
    }
}

fn dialing() -> HelloConfig {
    config(DIALER, 3, "one.example:7000")
}

fn accepting() -> HelloConfig {
    config(ACCEPTOR, 4, "two.example:7000")
}

/// The four messages of a hello, with what both sides made of it.
#[derive(Debug, PartialEq)]
struct Talk {
    messages: [Vec<u8>; 4],
    dialer: Session,
    acceptor: Session,
}

/// Where a hello failed: before which message of the four (counted from 0), at whom, and why.
type Failure = (usize, HelloError);

fn sent(step: Step) -> Vec<u8> {
    let Step::Send(bytes) = step else { panic!("a message was expected, not {step:?}") };
    bytes
}

/// A whole hello; `tamper` sees each message on its way and may change it.
fn talk_over(
    dialing: HelloConfig,
    accepting: HelloConfig,
    mut tamper: impl FnMut(usize, &mut Vec<u8>),
) -> Result<Talk, Failure> {
    let (mut dialer, mut hello) = Dialer::new(dialing, [0xd1; 32]);
    let mut acceptor = Acceptor::new(accepting, [0xac; 32]);
    tamper(0, &mut hello);
    let mut challenge = sent(acceptor.handle_message(&hello).map_err(|error| (0, error))?);
    tamper(1, &mut challenge);
    let mut proof = sent(dialer.handle_message(&challenge).map_err(|error| (1, error))?);
    let acceptor_seen = dialer.peer().cloned().expect("the acceptor has proved itself");
    tamper(2, &mut proof);
    let authenticated = acceptor.handle_message(&proof).map_err(|error| (2, error))?;
    let Step::Authenticated(dialer_seen) = authenticated else { panic!("not {authenticated:?}") };
    let (mut welcome, at_acceptor) = acceptor.welcome(SESSION_ID);
    tamper(3, &mut welcome);
    let done = dialer.handle_message(&welcome).map_err(|error| (3, error))?;
    let Step::Done(at_dialer) = done else { panic!("not {done:?}") };
    assert_eq!((dialer_seen.server, acceptor_seen.server), (at_acceptor.peer, at_dialer.peer));
    assert_eq!(dialer.handle_message(&welcome), Err(HelloError::OutOfOrder), "it is over");
    Ok(Talk { messages: [hello, challenge, proof, welcome], dialer: at_dialer, acceptor: at_acceptor })
}

fn talk(dialing: HelloConfig, accepting: HelloConfig) -> Result<Talk, Failure> {
    talk_over(dialing, accepting, |_, _| {})
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn golden_bytes() {
    let talk = talk(HelloConfig { expected_peer: Some(ACCEPTOR), ..dialing() }, accepting()).unwrap();
    let golden = [
        include_str!("golden/hello.hex"),
        include_str!("golden/challenge.hex"),
        include_str!("golden/proof.hex"),
        include_str!("golden/welcome.hex"),
    ];
    for (message, golden) in talk.messages.iter().zip(golden) {
        assert_eq!(hex(message), golden.trim());
    }
    let refusal = Refusal { code: RefusalCode::Draining, text: "later".to_owned() }.encode();
    assert_eq!(refusal, b"\x94\xa6ashlar\x05\x09\xa5later");
}

/// What the program before this one sends.
#[test]
fn messages_without_zeroes_at_their_end_are_read() {
    let bytes = |hex: &str| -> Vec<u8> {
        let digits = hex.trim().as_bytes().chunks_exact(2);
        digits.map(|pair| u8::from_str_radix(core::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
    };
    let hello = Form::decode(&bytes(include_str!("golden/hello_short.hex"))).unwrap();
    assert!(matches!(hello, Form::Hello(hello) if hello.server == DIALER && hello.address == "one.example:7000"));
    let challenge = Form::decode(&bytes(include_str!("golden/challenge_short.hex"))).unwrap();
    assert!(matches!(challenge, Form::Challenge(challenge) if challenge.server == ACCEPTOR));
}

#[test]
fn the_first_two_messages_fill_a_packet() {
    let long = "x".repeat(ADDRESS_LEN_MAX);
    let rotating = |config| HelloConfig { secrets: Secrets::rotating(secret(1), secret(2)), ..config };
    for address in ["", &long] {
        let (dialing, accepting) = (config(DIALER, 3, address), config(ACCEPTOR, 4, address));
        let talk = talk(rotating(dialing), rotating(accepting)).unwrap();
        for message in &talk.messages[..2] {
            assert!((1_600..=HELLO_LEN_MAX).contains(&message.len()), "{}", message.len());
        }
    }
}

#[test]
fn both_sides_agree() {
    let talk = talk(dialing(), accepting()).unwrap();
    let (dialer, acceptor) = (&talk.dialer, &talk.acceptor);
    assert_eq!(
        (dialer.peer, dialer.incarnation, &*dialer.peer_address),
        (ACCEPTOR, Incarnation(4), "two.example:7000")
    );
    assert_eq!(
        (acceptor.peer, acceptor.incarnation, &*acceptor.peer_address),
        (DIALER, Incarnation(3), "one.example:7000")
    );
    let shared = |session: &Session| {
        (session.id, session.version, session.features, session.key, session.lane, session.salt, session.peer_limits)
    };
    assert_eq!(shared(dialer), shared(acceptor));
    assert_eq!((dialer.id, dialer.version, dialer.salt), (SESSION_ID, 1, None));
    for message in &talk.messages {
        assert!(message.len() <= HELLO_LEN_MAX);
    }
}

#[test]
fn either_side_can_ask_for_checksums_and_no_tls_does() {
    let asking = |config: HelloConfig| HelloConfig { always_checksum: true, ..config };
    let plain = |config: HelloConfig| HelloConfig { channel_binding: [0; 32], ..config };
    let cases = [
        (dialing(), accepting(), false),
        (asking(dialing()), accepting(), true),
        (dialing(), asking(accepting()), true),
        (plain(dialing()), plain(accepting()), true),
    ];
    for (dialing, accepting, checksums) in cases {
        let talk = talk(dialing, accepting).unwrap();
        assert_eq!((talk.dialer.salt.is_some(), talk.acceptor.salt.is_some()), (checksums, checksums));
    }
}

#[test]
fn whoever_does_not_fit_is_refused() {
    use RefusalCode as Code;
    let other = ServerId::from_bytes([7; 16]);
    let cluster = ClusterId::from_bytes([7; 16]);
    // What is wrong, with whom, and who notices before which message.
    let cases: [(&str, HelloConfig, HelloConfig, Failure); 8] = [
        ("cluster", HelloConfig { cluster, ..dialing() }, accepting(), (0, HelloError::Refused(Code::WrongCluster))),
        (
            "secret",
            HelloConfig { secrets: Secrets::new(secret(7)), ..dialing() },
            accepting(),
            (0, HelloError::Refused(Code::UnknownKey)),
        ),
        (
            "expected peer",
            HelloConfig { expected_peer: Some(other), ..dialing() },
            accepting(),
            (0, HelloError::Refused(Code::WrongServer)),
        ),
        ("lane", HelloConfig { lane: Lane::Bulk, ..dialing() }, accepting(), (0, HelloError::Refused(Code::WrongLane))),
        (
            "channel: somebody between the two",
            HelloConfig { channel_binding: [8; 32], ..dialing() },
            accepting(),
            (1, HelloError::Refused(Code::BadProof)),
        ),
        (
            "channel: TLS taken away for one side",
            HelloConfig { channel_binding: [0; 32], ..dialing() },
            accepting(),
            (1, HelloError::Refused(Code::BadProof)),
        ),
        ("itself", dialing(), config(DIALER, 3, "one.example:7000"), (1, HelloError::Refused(Code::OwnEcho))),
        ("an earlier life of itself", dialing(), config(DIALER, 2, "a:1"), (1, HelloError::Refused(Code::OwnEcho))),
    ];
    for (what, dialing, accepting, failure) in cases {
        assert_eq!(talk(dialing, accepting), Err(failure), "{what}");
    }
}

/// The proof of a dialer that does not mind that it has dialed itself.
#[test]
fn a_server_never_welcomes_itself() {
    let mut acceptor = Acceptor::new(config(DIALER, 3, "a:1"), [0xac; 32]);
    let (_, hello) = Dialer::new(dialing(), [0xd1; 32]);
    let challenge = sent(acceptor.handle_message(&hello).unwrap());
    let proof = secret(1).mac(DIALER_CONTEXT, &[&hello, &challenge, &[9; 32]]);
    let own = acceptor.handle_message(&Proof { proof }.encode());
    assert_eq!(own, Err(HelloError::Refused(RefusalCode::OwnEcho)));
}

#[test]
fn the_newest_common_secret_is_used() {
    let [old, new, next] = [1, 2, 3].map(secret);
    let one = |secret: &Secret| Secrets::new(secret.clone());
    let two = |newer: &Secret, older: &Secret| Secrets::rotating(newer.clone(), older.clone());
    let cases = [
        (one(&old), two(&new, &old), Some(&old)),
        (two(&new, &old), one(&old), Some(&old)),
        (two(&new, &old), two(&new, &old), Some(&new)),
        (one(&new), two(&new, &old), Some(&new)),
        (two(&next, &new), two(&new, &old), Some(&new)),
        (one(&old), one(&new), None),
        (two(&next, &new), one(&old), None),
    ];
    for (dialer, acceptor, common) in cases {
        let talk = talk(HelloConfig { secrets: dialer, ..dialing() }, HelloConfig { secrets: acceptor, ..accepting() });
        let used = talk.as_ref().map(|talk| (talk.dialer.key, talk.acceptor.key)).map_err(Clone::clone);
        let refused = Err((0, HelloError::Refused(RefusalCode::UnknownKey)));
        assert_eq!(used, common.map_or(refused, |secret| Ok((secret.key_id(), secret.key_id()))));
    }
}

#[test]
fn no_altered_byte_leads_to_a_session() {
    let lens = talk(dialing(), accepting()).unwrap().messages.map(|message| message.len());
    for (message, len) in lens.into_iter().enumerate() {
        for (at, bits) in (0..len).flat_map(|at| [0x01, 0x04, 0x20, 0x80, 0xff].map(|bits| (at, bits))) {
            let altered = talk_over(dialing(), accepting(), |index, bytes| {
                if index == message {
                    bytes[at] ^= bits;
                }
            });
            let (noticed, _) = altered.expect_err("an altered message");
            // What the acceptor hears wrong shows in its challenge at the latest, and so on.
            assert!((message..=message + 1).contains(&noticed), "message {message}, byte {at}");
        }
    }
}

#[test]
fn no_cut_or_lengthened_message_leads_to_a_session() {
    let lens = talk(dialing(), accepting()).unwrap().messages.map(|message| message.len());
    for (message, len) in lens.into_iter().enumerate() {
        for cut in 0..len {
            let result = talk_over(dialing(), accepting(), |index, bytes| {
                if index == message {
                    bytes.truncate(cut);
                }
            });
            assert_eq!(result, Err((message, HelloError::Malformed(PackError::Truncated))), "{message} cut at {cut}");
        }
        for more in [1, HELLO_LEN_MAX - len, HELLO_LEN_MAX - len + 1] {
            let result = talk_over(dialing(), accepting(), |index, bytes| {
                if index == message {
                    bytes.resize(len + more, 0xc0);
                }
            });
            let too_long = HelloError::too_long();
            let error = if len + more > HELLO_LEN_MAX { too_long } else { HelloError::Malformed(PackError::Malformed) };
            assert_eq!(result, Err((message, error)));
        }
    }
}

#[test]
fn nobody_is_fooled_by_his_own_words() {
    let talk = talk(dialing(), accepting()).unwrap();
    let messages = &talk.messages;
    // Each message comes when only one is due; any other ends the hello.
    for (index, message) in messages.iter().enumerate() {
        let (mut dialer, _) = Dialer::new(dialing(), [0xd1; 32]);
        if index != 1 {
            assert_eq!(dialer.handle_message(message), Err(HelloError::OutOfOrder), "a dialer's first: {index}");
            assert_eq!(dialer.handle_message(&messages[1]), Err(HelloError::OutOfOrder), "a second chance");
        } else {
            sent(dialer.handle_message(message).unwrap());
            for wrong in &messages[..3] {
                let (mut dialer, _) = Dialer::new(dialing(), [0xd1; 32]);
                sent(dialer.handle_message(message).unwrap());
                assert_eq!(dialer.handle_message(wrong), Err(HelloError::OutOfOrder));
                assert_eq!(dialer.peer(), None);
            }
        }
        let mut acceptor = Acceptor::new(accepting(), [0xac; 32]);
        if index != 0 {
            assert_eq!(acceptor.handle_message(message), Err(HelloError::OutOfOrder), "an acceptor's first: {index}");
        } else {
            let challenge = sent(acceptor.handle_message(message).unwrap());
            assert_eq!(acceptor.handle_message(&challenge), Err(HelloError::OutOfOrder));
            assert_eq!(acceptor.handle_message(&messages[2]), Err(HelloError::OutOfOrder), "a second chance");
        }
    }
}

#[test]
fn a_recorded_hello_is_worth_nothing() {
    let recorded = talk(dialing(), accepting()).unwrap().messages;
    // To an acceptor, whose nonce is another one now.
    let mut acceptor = Acceptor::new(accepting(), [0xad; 32]);
    assert_ne!(sent(acceptor.handle_message(&recorded[0]).unwrap()), recorded[1]);
    let bad_proof = HelloError::Refused(RefusalCode::BadProof);
    assert_eq!(acceptor.handle_message(&recorded[2]), Err(bad_proof.clone()));
    // To a dialer, whose nonce is another one now.
    let (mut dialer, _) = Dialer::new(dialing(), [0xd2; 32]);
    assert_eq!(dialer.handle_message(&recorded[1]), Err(bad_proof.clone()));
    // The end of one hello in another.
    let mixed = talk_over(HelloConfig { incarnation: Incarnation(5), ..dialing() }, accepting(), |index, bytes| {
        if index == 3 {
            bytes.clone_from(&recorded[3]);
        }
    });
    assert_eq!(mixed, Err((3, bad_proof)));
}

/// Key ids travel openly: who repeats one without the secret gets no further than his first proof.
#[test]
fn knowing_the_name_of_a_secret_is_not_knowing_it() {
    let bad_proof = Err(HelloError::Refused(RefusalCode::BadProof));
    let mut acceptor = Acceptor::new(accepting(), [0xac; 32]);
    let (mut dialer, hello) = Dialer::new(dialing(), [0xd1; 32]);
    let challenge = sent(acceptor.handle_message(&hello).unwrap());
    let proof = secret(7).mac(DIALER_CONTEXT, &[&hello, &challenge, &[9; 32]]);
    assert_eq!(acceptor.handle_message(&Proof { proof }.encode()), bad_proof);
    let mut challenge = challenge[..challenge.len() - 34].to_vec();
    let proof = secret(7).mac(ACCEPTOR_CONTEXT, &[&hello, &challenge, &[9; 32]]);
    write_bin(&mut challenge, &proof);
    assert_eq!(dialer.handle_message(&challenge), bad_proof);
    assert_eq!(dialer.peer(), None);
}

#[test]
fn each_side_learns_the_limits_of_the_other() {
    let limits = |n: u32| PeerLimits {
        calls_in_flight_max: n,
        streams_open_max: n + 1,
        chunk_max: n + 2,
        payload_max: n + 3,
        routes_max: 4,
    };
    let dialing = HelloConfig { limits: limits(2_000), ..dialing() };
    let talk = talk(dialing, HelloConfig { limits: limits(3_000), ..accepting() }).unwrap();
    assert_eq!((talk.acceptor.peer_limits, talk.dialer.peer_limits), (limits(2_000), limits(3_000)));
}

#[test]
fn another_version_gets_a_clear_answer() {
    let wrong_version = HelloError::Refused(RefusalCode::WrongVersion);
    for versions in [[0, 0], [2, 2], [2, 9], [1, 0], [u64::from(u16::MAX); 2]] {
        // Of a later version we know the head only; its other elements are what they are.
        let mut hello = Vec::new();
        ashlar_wire::pack::write_array_len(&mut hello, 4);
        ashlar_wire::pack::write_str(&mut hello, "ashlar");
        ashlar_wire::pack::write_uint(&mut hello, 1);
        ashlar_wire::pack::write_array_len(&mut hello, 2);
        versions.iter().for_each(|version| ashlar_wire::pack::write_uint(&mut hello, *version));
        ashlar_wire::pack::write_str(&mut hello, "of the future");
        let mut acceptor = Acceptor::new(accepting(), [0xac; 32]);
        assert_eq!(acceptor.handle_message(&hello), Err(wrong_version.clone()), "{versions:?}");
        let refusal = wrong_version.refusal_to_send().expect("a refusal is told");
        let (mut dialer, _) = Dialer::new(dialing(), [0xd1; 32]);
        let told = dialer.handle_message(&refusal).expect_err("refused");
        assert_eq!(told.refusal_code(), Some(RefusalCode::WrongVersion));
        assert_eq!(told.refusal_to_send(), None, "a refusal is not answered");
    }
    let cases =
        [((1, 1), (1, 1), Some(1)), ((1, 3), (2, 9), Some(3)), ((1, 3), (3, 3), Some(3)), ((1, 2), (3, 4), None)];
    for (one, other, common) in cases {
        assert_eq!((common_version(one, other), common_version(other, one)), (common, common));
    }
}

#[test]
fn elements_of_a_later_version_are_passed_over() {
    let mut hello = talk(dialing(), accepting()).unwrap().messages[0].clone();
    assert_eq!(hello[0], 0x9f, "15 elements");
    let last = hello.windows(2).rposition(|two| two == [0x91, 0xc5]).expect("the zeroes, and what is added to them");
    hello[last] = 0x92;
    hello.extend_from_slice(b"\x92\xc4\x01x\x81\x01\xc3");
    let mut acceptor = Acceptor::new(accepting(), [0xac; 32]);
    let mut challenge = sent(acceptor.handle_message(&hello).unwrap());

    // An acceptor of a later version puts its new element before the proof, which covers it.
    let (mut dialer, hello) = Dialer::new(dialing(), [0xd1; 32]);
    challenge[0] += 1;
    challenge.truncate(challenge.len() - 34);
    challenge.extend_from_slice(b"\x92\xc4\x01x\x81\x01\xc3");
    let proof = secret(1).mac(ACCEPTOR_CONTEXT, &[&hello, &challenge, &[9; 32]]);
    write_bin(&mut challenge, &proof);
    sent(dialer.handle_message(&challenge).unwrap());

    let refusal = b"\x95\xa6ashlar\x05\xcd\x03\xe8\xa6la\nter\xc0";
    let told = Dialer::new(dialing(), [0xd1; 32]).0.handle_message(refusal);
    assert_eq!(told, Err(HelloError::RefusedByPeer(RefusalCode::Other, "la ter".to_owned())));
}

#[test]
fn refusals_are_told_and_understood() {
    for code in RefusalCode::ALL {
        let acceptor = Acceptor::new(accepting(), [0xac; 32]);
        let refusal = acceptor.refuse(*code);
        assert!(refusal.len() <= HELLO_LEN_MAX);
        let told = Err(HelloError::RefusedByPeer(*code, code.to_string()));
        let (mut dialer, _) = Dialer::new(dialing(), [0xd1; 32]);
        assert_eq!(dialer.handle_message(&refusal), told);
        let mut acceptor = acceptor;
        assert_eq!(acceptor.handle_message(&refusal), told, "a dialer may refuse as well");
    }
}

#[test]
fn long_addresses_are_cut_between_characters() {
    for address in ["ä".repeat(200), "x".repeat(257), "x".repeat(10_000), String::new()] {
        let talk = talk(HelloConfig { address: address.clone(), ..dialing() }, accepting()).unwrap();
        assert!(address.starts_with(&talk.acceptor.peer_address));
        assert!(talk.acceptor.peer_address.len() >= address.len().min(ADDRESS_LEN_MAX - 1));
    }
}

#[test]
fn limits_of_a_peer_are_applied_within_reason() {
    let own = Limits::for_lane(Lane::Small);
    let told = PeerLimits::of(own);
    assert_eq!(told.apply_to(own), own);
    let tiny = PeerLimits { chunk_max: 0, calls_in_flight_max: 1, ..told }.apply_to(own);
    assert_eq!((tiny.chunk_max, tiny.calls_in_flight_max), (CHUNK_MIN, 1));
}

#[test]
fn noise_never_panics() {
    let messages = talk(dialing(), accepting()).unwrap().messages;
    let mut state = 1_u64;
    let mut chance = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).expect("31 bits")
    };
    for _ in 0..20_000 {
        let mut bytes = messages[chance() % 4].clone();
        for _ in 0..=chance() % 3 {
            let at = chance() % bytes.len();
            bytes[at] = u8::try_from(chance() % 256).expect("a byte");
        }
        let _ = Form::decode(&bytes);
        let answer = Acceptor::new(accepting(), [0xac; 32]).handle_message(&bytes);
        assert!(!matches!(answer, Ok(Step::Authenticated(_) | Step::Done(_))));
    }
}

#[test]
fn errors_say_what_helps_and_what_is_told() {
    use RefusalCode::{Busy, Draining, Duplicate, Malformed, StaleIncarnation};
    for code in RefusalCode::ALL {
        let heals = [Duplicate, Draining, Busy, StaleIncarnation].contains(code);
        let (here, there) = (HelloError::Refused(*code), HelloError::RefusedByPeer(*code, "so".to_owned()));
        assert_eq!((here.will_heal(), there.will_heal()), (heals, heals), "{code:?}");
        assert_eq!((here.refusal_code(), there.refusal_code()), (Some(*code), Some(*code)));
        assert!(!here.is_malformed() && !there.is_malformed());
        assert_eq!(here.refusal_to_send(), Some(Refusal { code: *code, text: code.to_string() }.encode()));
        assert_eq!(there.refusal_to_send(), None, "a refusal is not answered");
        assert_eq!(
            (here.to_string(), there.to_string()),
            (format!("refused: {code}"), "refused by the peer: so".into())
        );
        assert_eq!(RefusalCode::from_number(*code as u64), *code);
    }
    let malformed = "the peer does not speak the grid's hello: ";
    let cases = [
        (HelloError::OutOfOrder, "the peer's hello is out of order".to_owned()),
        (PackError::Malformed.into(), format!("{malformed}{}", PackError::Malformed)),
        (HelloError::too_long(), format!("{malformed}{}", PackError::TooLong { len: 2_049, max: 2_048 })),
    ];
    for (error, text) in cases {
        assert_eq!((error.is_malformed(), error.will_heal(), error.refusal_code()), (true, false, None));
        assert_eq!(error.refusal_to_send(), HelloError::Refused(Malformed).refusal_to_send());
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn secrets_are_found_by_what_they_are_called() {
    let [newer, older, other] = [2, 1, 7].map(secret);
    let two = Secrets::rotating(newer.clone(), older.clone());
    assert_eq!(two.key_ids(), [newer.key_id(), older.key_id()]);
    assert_eq!(two.newest().key_id(), newer.key_id());
    assert_eq!(two.older().map(Secret::key_id), Some(older.key_id()));
    assert_eq!([&newer, &older, &other].map(|secret| two.holds(secret.key_id())), [true, true, false]);
    assert_eq!(two.get(older.key_id()).map(Secret::key_id), Some(older.key_id()));
    assert!(two.get(other.key_id()).is_none() && Secrets::new(newer).older().is_none());
}

#[test]
fn limits_beyond_what_can_be_told_are_cut() {
    let own = Limits { chunk_max: usize::MAX, payload_max: usize::MAX, ..Limits::for_lane(Lane::Small) };
    let told = PeerLimits::of(own);
    assert_eq!((told.chunk_max, told.payload_max), (u32::MAX, u32::MAX));
    let small = Limits::for_lane(Lane::Small);
    for (chunk, applied) in [(CHUNK_MIN, CHUNK_MIN), (CHUNK_MIN - 1, CHUNK_MIN), (CHUNK_MIN + 1, CHUNK_MIN + 1)] {
        let told = PeerLimits { chunk_max: u32::try_from(chunk).expect("small"), ..PeerLimits::of(small) };
        assert_eq!(told.apply_to(small), Limits { chunk_max: applied, ..small });
    }
}
