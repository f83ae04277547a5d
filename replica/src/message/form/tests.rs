use super::*;
use alloc::format;
use alloc::string::String;
use alloc::vec;

const GROUP: GroupId = GroupId { set: SetId(2), pg: PgId(0x0304) };

fn drive(number: u8) -> DriveId {
    DriveId::from_bytes([number; 16])
}

fn version(sequence: u64) -> Version {
    Version { epoch: Epoch(7), sequence }
}

fn extent() -> ExtentId {
    ExtentId { volume: VolumeId::from_bytes([0x1f; 16]), extent: Extent(9) }
}

fn data(byte: u8) -> Bytes {
    Bytes::from(vec![byte; 4_096])
}

fn configuration() -> Configuration {
    Configuration {
        group: GROUP,
        epoch: Epoch(7),
        acting: vec![drive(0xa1), drive(0xa2)],
        primary: drive(0xa2),
        learners: vec![drive(0xa3)],
        min_copies: 2,
    }
}

fn difference() -> Difference {
    let zeroes = Run { offset: 0, content: Content::Zeroes(4_096) };
    let lost = Run { offset: 16_384, content: Content::Lost(vec![Some(0xabcd), None]) };
    Difference { version: version(5), runs: vec![zeroes, Run { offset: 8_192, content: Content::Data(data(1)) }, lost] }
}

/// One body of each kind, with the bytes of its head behind the first 34.
fn bodies() -> Vec<(Body, String)> {
    let ones = |byte: &str| byte.repeat(16);
    let (a1, a2, a3) = (ones("a1"), ones("a2"), ones("a3"));
    let config = format!("0000000000000007 02{a1}{a2} {a2} 01{a3} 02");
    let v = |sequence: u8| format!("0000000000000007 00000000000000{sequence:02x}");
    let at = format!("{} 0000000000000009", ones("1f"));
    let runs = "00000003 00000000 00001000 00 00002000 00001000 01 00004000 00002000 02 010000abcd 0000000000";
    let write = Entry::Write {
        version: version(4),
        generation: Generation(3),
        extent: extent(),
        run: Run { offset: 4_096, content: Content::Data(data(2)) },
    };
    let patch = Entry::Patch { version: version(5), extent: extent(), runs: difference().runs };
    let page = Page { entries: vec![(extent(), version(1))], has_more: true, newest: version(6) };
    let sums = vec![Checksum(1), Checksum(2)];
    let sum_bytes = "00000002 0000000000000001 0000000000000002";
    let standing = Standing { clean: version(1), newest: version(2), is_partial: true, room: Room::Low };
    vec![
        (Body::Adopt(configuration()), config.clone()),
        (Body::Adopted(standing), format!("{}{}01 01", v(1), v(2))),
        (Body::Newer(configuration()), config),
        (Body::Lease { nonce: 8, clean: version(1) }, format!("0000000000000008 {}", v(1))),
        (
            Body::Leased { nonce: 8, progress: Progress { received: 3, durable: 2 }, room: Room::Enough },
            "0000000000000008 0000000000000003 0000000000000002 00".into(),
        ),
        (
            Body::Apply { index: 8, clean: version(1), entry: write },
            format!("0000000000000008 {} 01 {} 0000000000000003 {at} 00001000 00001000 01", v(1), v(4)),
        ),
        (Body::Applied(Progress { received: 3, durable: 2 }), "0000000000000003 0000000000000002".into()),
        (Body::List { above: version(1), after: None }, format!("{} 00 {}", v(1), "00".repeat(24))),
        (Body::Listed { after: Some(extent()), page }, format!("01 {at} {} 01 00000001 {at} {}", v(6), v(1))),
        (Body::Inquire { extent: extent() }, at.clone()),
        (Body::Checksums { extent: extent(), sums: sums.clone() }, format!("{at} {sum_bytes}")),
        (Body::Fetch { extent: extent(), sums }, format!("{at} {sum_bytes}")),
        (Body::Fetched { extent: extent(), difference: difference() }, format!("{at} {} {runs}", v(5))),
        (Body::Failed(Fault::DriveFull), "04".into()),
        (Body::Damaged { extent: extent() }, at.clone()),
        (
            Body::Apply { index: 8, clean: version(1), entry: patch },
            format!("0000000000000008 {} 02 {} {at} {runs}", v(1), v(5)),
        ),
        (Body::Apply { index: 9, clean: version(1), entry: Entry::Whole }, format!("0000000000000009 {} 03", v(1))),
    ]
}

fn message(body: Body) -> Message {
    Message { group: GROUP, epoch: Epoch(7), from: Life::drawn(0x0a0b), to: Some(Life::drawn(0x0c0d)), body }
}

fn joined(encoded: &Encoded) -> Bytes {
    encoded.payload.concat().into()
}

#[test]
fn golden_bytes_of_every_kind() {
    for (body, expected) in bodies() {
        let message = message(body);
        let encoded = encode(&message);
        let hex: String = encoded.head.iter().map(|byte| format!("{byte:02x}")).collect();
        let lives = "0000000000000a0b 0000000000000c0d";
        let start = format!("02{:02x} 00000002 00000304 0000000000000007 {lives}", kind(&message.body));
        assert_eq!(hex, format!("{start}{expected}").replace(' ', ""), "{:?}", message.body);
        assert_eq!(decode(&encoded.head, joined(&encoded)), Ok(message));
    }
}

#[test]
fn a_message_has_a_life_of_its_sender_and_may_have_one_of_its_receiver() {
    let opening = Message { to: None, ..message(Body::Failed(Fault::Silent)) };
    let mut encoded = encode(&opening);
    assert_eq!(decode(&encoded.head, Bytes::new()), Ok(opening));
    encoded.head[18..26].fill(0);
    assert_eq!(decode(&encoded.head, Bytes::new()), Err(FormError::Malformed));
}

#[test]
fn data_are_shared_and_not_copied() {
    let payload = data(1);
    let run = Run { offset: 0, content: Content::Data(payload.clone()) };
    let fetched = Difference { version: version(1), runs: vec![run] };
    let encoded = encode(&message(Body::Fetched { extent: extent(), difference: fetched }));
    assert_eq!(encoded.payload[0].as_ptr(), payload.as_ptr());
    let decoded = decode(&encoded.head, payload.clone()).unwrap();
    let Body::Fetched { difference, .. } = decoded.body else { panic!("another body") };
    let Content::Data(shared) = &difference.runs[0].content else { panic!("no data") };
    assert_eq!(shared.as_ptr(), payload.as_ptr());
}

#[test]
fn cut_and_lengthened_messages_are_refused() {
    for (body, _) in bodies() {
        let encoded = encode(&message(body));
        let payload = joined(&encoded);
        for end in 0..encoded.head.len() {
            assert!(decode(&encoded.head[..end], payload.clone()).is_err(), "{end}");
        }
        let long = [&encoded.head[..], &[0]].concat();
        assert_eq!(decode(&long, payload.clone()), Err(FormError::Malformed));
        let more = Bytes::from([&payload[..], &[0]].concat());
        assert_eq!(decode(&encoded.head, more), Err(FormError::Malformed), "a payload that nothing names");
        let other = [&[1], &encoded.head[1..]].concat();
        assert_eq!(decode(&other, payload), Err(FormError::Version(1)));
    }
    assert_eq!(decode(&vec![2; HEAD_BYTES_MAX + 1], Bytes::new()), Err(FormError::Malformed));
}

#[test]
fn the_longest_messages_keep_the_limit() {
    let entries = (0..PAGE_MAX as u64)
        .map(|number| (ExtentId { extent: Extent(number), ..extent() }, version(number)))
        .collect::<Vec<_>>();
    let page = Page { entries, has_more: true, newest: version(1) };
    let runs = (0..256).map(|block| Run { offset: block * 4_096, content: Content::Zeroes(4_096) }).collect();
    let longest = [
        Body::Listed { after: Some(extent()), page },
        Body::Fetch { extent: extent(), sums: vec![Checksum(0); BLOCKS_MAX] },
        Body::Fetched { extent: extent(), difference: Difference { version: version(1), runs } },
    ];
    for body in longest {
        let message = message(body);
        let encoded = encode(&message);
        assert!(encoded.head.len() <= HEAD_BYTES_MAX, "{}", encoded.head.len());
        assert_eq!(decode(&encoded.head, Bytes::new()), Ok(message));
    }
}

#[test]
fn noise_is_an_error_or_a_message_that_is_written_the_same() {
    let good: Vec<Encoded> = bodies().into_iter().map(|(body, _)| encode(&message(body))).collect();
    arbtest::arbtest(|u| {
        let encoded = u.choose(&good)?;
        let (mut head, payload) = (encoded.head.clone(), joined(encoded));
        for _ in 0..u.int_in_range(1..=3)? {
            let at = u.choose_index(head.len())?;
            head[at] = u.arbitrary()?;
        }
        if let Ok(message) = decode(&head, payload.clone()) {
            let again = encode(&message);
            assert_eq!((&again.head, joined(&again)), (&head, payload));
        }
        Ok(())
    });
}
