use super::*;
use crate::chance::Chance;
use alloc::format;
use alloc::string::String;
use alloc::vec;

const CLUSTER: ClusterId = ClusterId::from_bytes([0xc1; 16]);
const HEADER: Header = Header { incarnation: Incarnation(5), sequence: 300 };

fn id(number: u8) -> ServerId {
    ServerId::from_bytes([number; 16])
}

fn slots(ranges: &[(u16, u16)]) -> SlotSet {
    SlotSet::from_ranges(ranges.iter().map(|&(first, last)| SlotRange::new(first, last).unwrap()))
}

fn record() -> MemberRecord {
    let description = Description {
        incarnation: Incarnation(5),
        revision: 2,
        zone: Zone(7),
        address: "host:7000".into(),
        follows: vec![GroupId(1), GroupId(300)].into(),
        memory_since: Incarnation(3),
        interest: vec![0].into(),
        services: vec![9].into(),
    };
    MemberRecord { id: id(0x11), description, life: Life { refuted: 1, failed: true } }
}

fn claim() -> Claim {
    Claim { group: GroupId(300), owner: id(0x22), epoch: Epoch(8), slots: slots(&[(0, 9), (16_383, 16_383)]) }
}

fn voters() -> VoterSet {
    VoterSet {
        epoch: Epoch(3),
        origin: Origin::Told,
        after: Epoch(2),
        floor: Epoch(6),
        voters: vec![id(1), id(2), id(3)],
        previous: vec![id(4)],
        forgetful: vec![(id(2), Incarnation(3))],
        previous_forgetful: Vec::new(),
    }
}

fn request() -> VoteRequest {
    VoteRequest {
        group: GroupId(300),
        purpose: Purpose::Election,
        epoch: Epoch(10),
        base: Epoch(8),
        voters: 0xaa,
        offset: 1_000,
        failed: Some((id(0x22), 1)),
        slots: slots(&[(0, 9)]),
        taken: slots(&[(9, 9)]),
    }
}

/// One body of each kind with its golden bytes after the header.
fn bodies() -> Vec<(&'static str, Body, String)> {
    let ones = |number: u8| format!("{number:02x}").repeat(16);
    let beat = Beat { members: 0x0102_0304_0506_0708, claims: 9, voters: 10, quorum_age: 200, you_failed: Some(4) };
    let beat_bytes = "01020304050607080000000000000009 0000000a cc c80104".replace(' ', "");
    let silence = Silence { id: id(0x33), incarnation: Incarnation(5), refuted: 1, age_ms: 15_000 };
    let silence_bytes = format!("{}0501cd3a98", ones(0x33));
    let claim_bytes = format!("cd012c{}080200000009 3fff3fff", ones(0x22)).replace(' ', "");
    let record_bytes =
        format!("{}05020101 0703a9{} 0201cd012c c40100c40109", ones(0x11), "686f73743a37303030").replace(' ', "");
    let voters_bytes =
        format!("03010206 03{}{}{} 01{} 01{}0300", ones(1), ones(2), ones(3), ones(4), ones(2)).replace(' ', "");
    let request = request();
    let news = vec![
        News::Member(Box::new(record())),
        News::Life(id(0x44), Life { refuted: 2, failed: false }),
        News::Claim(claim()),
        News::Voters(Box::new(voters())),
        News::Forget(Forgetting { id: id(0x55), tag: 1, left_ms: 60_000 }),
    ];
    let news_bytes =
        format!("01{record_bytes}02{}020003{claim_bytes}04{voters_bytes}05{}01cdea60", ones(0x44), ones(0x55));
    vec![
        ("probe", Body::Probe(7, beat, Vec::new()), format!("07{beat_bytes}")),
        ("answer", Body::Answer(7, beat, vec![news[1].clone()]), format!("07{beat_bytes}02{}0200", ones(0x44))),
        ("ask", Body::Ask(1 << 20, id(0x66)), format!("ce00100000{}", ones(0x66))),
        ("heard", Body::Heard(7, id(0x66), Incarnation(5)), format!("07{}05", ones(0x66))),
        ("doubt", Body::Doubt { relayed: true, silent: vec![silence] }, format!("01{silence_bytes}")),
        ("report", Body::Report(vec![silence, silence]), silence_bytes.repeat(2)),
        ("news", Body::News(news.clone()), news_bytes.clone()),
        (
            "sync",
            Body::Sync(Sync { wants_answer: true, voters: 1, members: vec![1, 2], claims: vec![3] }),
            String::from("0100000000000000010200000001000000020100000003"),
        ),
        ("records", Body::Records(news), news_bytes),
        ("meet", Body::Meet(record()), record_bytes),
        ("stand", Body::Stand { group: GroupId(300), base: Epoch(8), offset: 1_000 }, String::from("cd012c08cd03e8")),
        (
            "request",
            Body::Request(request),
            format!("cd012c010a0800000000000000aacd03e801{}0101000000090100090009", ones(0x22)),
        ),
        (
            "vote",
            Body::Vote(Vote {
                group: GroupId(300),
                epoch: Epoch(10),
                refused: Some(Reason::PrimaryAlive),
                known: Epoch(9),
            }),
            String::from("cd012c0a0509"),
        ),
        (
            "adopted",
            Body::Adopted(Adoption { voters: 0xaa, epoch: Epoch(3), after: Epoch(1), from: Epoch(2), known: Epoch(9) }),
            String::from("00000000000000aa03010209"),
        ),
        ("handover ask", Body::HandoverAsk(GroupId(300)), String::from("cd012c")),
        ("handover offset", Body::HandoverOffset { group: GroupId(300), offset: Some(5) }, String::from("cd012c0105")),
        ("publish", Body::Publish { channel: b"ch"[..].into(), message: b"hi"[..].into() }, "c4026368c4026869".into()),
        (
            "forgotten",
            Body::Forgotten(Forgetting { id: id(0x55), tag: 1, left_ms: 60_000 }),
            format!("{}01cdea60", ones(0x55)),
        ),
        ("departure", Body::Departure(Departure::Left), String::from("02")),
        ("handover offer", Body::HandoverOffer { group: GroupId(300), offset: 5 }, String::from("cd012c05")),
    ]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn golden_bytes_of_every_kind() {
    let config = Config::default();
    for ((name, body, expected), kind) in bodies().into_iter().zip(1_u8..) {
        let bytes = encode(CLUSTER, HEADER, &body);
        let header = format!("02{kind:02x}{}05cd012c", "c1".repeat(16));
        assert_eq!(hex(&bytes), format!("{header}{expected}"), "{name}");
        assert_eq!(Circular::new(&body).encode(CLUSTER, HEADER), bytes, "{name}");
        assert_eq!(decode(&bytes, CLUSTER, &config), Ok((HEADER, body)), "{name}");
    }
    assert_eq!(bodies().len(), 20);
}

#[test]
fn a_probe_is_short() {
    let beat = Beat { members: u64::MAX, claims: u64::MAX, voters: 0, quorum_age: 500, you_failed: None };
    let header = Header { incarnation: Incarnation(100), sequence: 100_000 };
    let bytes = encode(CLUSTER, header, &Body::Probe(u32::MAX, beat, Vec::new()));
    assert!(bytes.len() <= 68, "{}", bytes.len());
}

#[test]
fn sets_of_slots_are_ranges_or_bits() {
    let config = Config::default();
    let scattered = |count: u16| slots(&(0..count).map(|number| (number * 2, number * 2)).collect::<Vec<_>>());
    for (count, bytes_max) in [(0, 1), (1, 5), (512, 2_051), (513, 2_051), (8_192, 2_051)] {
        let mut written = Vec::new();
        encode_slots(&mut written, &scattered(count));
        assert!(written.len() <= bytes_max, "{count}: {}", written.len());
        let mut input = Input::new(&written, &config);
        assert_eq!(input.slots(), Ok(scattered(count)), "{count}");
    }
    let mut written = Vec::new();
    encode_slots(&mut written, &scattered(513));
    assert!(written[3] & 0x80 != 0, "the first slot is the first bit");
    written[3] &= 0x7f;
    assert_eq!(Input::new(&written, &config).slots(), Err(PacketError::Malformed), "512 ranges are no bits");
    // Bits where ranges are due, ranges that touch, out of order, beyond the last slot.
    let mut bits = vec![0xcd, 0x03, 0xe8];
    bits.resize(3 + SLOT_BITMAP_BYTES, 0);
    for wrong in
        [&bits[..], &[2, 0, 0, 0, 1, 0, 2, 0, 3], &[2, 0, 9, 0, 9, 0, 1, 0, 1], &[1, 0, 0, 0x40, 0], &[1, 0, 0]]
    {
        assert_eq!(Input::new(wrong, &config).slots(), Err(PacketError::Malformed), "{wrong:?}");
    }
}

#[test]
fn what_is_cut_altered_or_too_long_is_refused() {
    let config = Config::default();
    for (name, body, _) in bodies() {
        let bytes = encode(CLUSTER, HEADER, &body);
        for end in 0..bytes.len() {
            // Lists end with the packet, so a packet may be cut between two of their pieces and still be one.
            let cut = decode(&bytes[..end], CLUSTER, &config);
            assert!(cut.is_err() || cut.is_ok_and(|(_, shorter)| shorter != body), "{name} cut at {end}");
        }
        let long = [&bytes[..], &[0xc1]].concat();
        assert_eq!(decode(&long, CLUSTER, &config), Err(PacketError::Malformed), "{name}");
    }
    let good = encode(CLUSTER, HEADER, &Body::HandoverAsk(GroupId(1)));
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        decode(&bytes, CLUSTER, &config)
    };
    assert_eq!(with(0, 1), Err(PacketError::Version(1)));
    assert_eq!(with(1, 21), Err(PacketError::Malformed));
    assert_eq!(with(2, 0), Err(PacketError::Cluster));
    assert_eq!(decode(&vec![1; config.packet_bytes_max + 1], CLUSTER, &config), Err(PacketError::Malformed));
}

#[test]
fn no_count_is_believed_before_its_limit() {
    let config = Config { follows_max: 1, address_bytes_max: 8, voters_max: 2, ..Config::default() };
    let over = [
        Body::Meet(record()),
        Body::News(vec![News::Voters(Box::new(voters()))]),
        Body::Publish { channel: vec![0; config.channel_bytes_max + 1].into(), message: Box::default() },
    ];
    for body in over {
        let bytes = encode(CLUSTER, HEADER, &body);
        assert_eq!(decode(&bytes, CLUSTER, &config), Err(PacketError::Malformed), "{body:?}");
    }
    let ages = [Epoch(EPOCH_MAX.0), Epoch(EPOCH_MAX.0 + 1)].map(|epoch| {
        let bytes = encode(CLUSTER, HEADER, &Body::News(vec![News::Claim(Claim { epoch, ..claim() })]));
        decode(&bytes, CLUSTER, &config).is_ok()
    });
    assert_eq!(ages, [true, false], "an epoch that large is damage");
}

#[test]
fn the_longest_news_fits_the_shortest_packet() {
    let config = Config::default();
    let scattered = slots(&(0..8_192).map(|number| (number * 2, number * 2)).collect::<Vec<_>>());
    let many = |from: u8| -> Vec<ServerId> {
        (0..u8::try_from(config.voters_max).unwrap()).map(|number| id(from + number)).collect()
    };
    let longest = [
        News::Claim(Claim { group: GroupId(u64::MAX - 1), owner: id(1), epoch: EPOCH_MAX, slots: scattered }),
        News::Voters(Box::new(VoterSet {
            voters: many(0),
            previous: many(100),
            floor: EPOCH_MAX,
            forgetful: many(0).into_iter().take(FORGETFUL_MAX).map(|id| (id, Incarnation(u64::MAX))).collect(),
            previous_forgetful: many(100).into_iter().take(FORGETFUL_MAX).map(|id| (id, Incarnation(9))).collect(),
            ..voters()
        })),
        News::Member(Box::new(MemberRecord {
            id: id(1),
            description: Description {
                incarnation: Incarnation(u64::MAX),
                revision: u32::MAX,
                zone: Zone(u32::MAX),
                address: "x".repeat(config.address_bytes_max).into(),
                follows: (0..config.follows_max as u64).map(|number| GroupId(u64::MAX - 64 + number)).collect(),
                memory_since: Incarnation(u64::MAX),
                interest: vec![2; INTEREST_BYTES_MAX].into(),
                services: vec![3; SERVICES_BYTES_MAX].into(),
            },
            life: Life { refuted: u64::MAX, failed: true },
        })),
    ];
    for news in longest {
        let bytes = encode(CLUSTER, HEADER, &Body::News(vec![news]));
        assert!(bytes.len() <= PACKET_BYTES_MIN - 128, "{}", bytes.len());
        assert!(decode(&bytes, CLUSTER, &config).is_ok());
    }
}

#[test]
fn noise_is_an_error_or_a_packet_that_is_written_the_same() {
    let (config, mut chance) = (Config::default(), Chance::new(1));
    let mut good: Vec<Vec<u8>> = bodies().iter().map(|(_, body, _)| encode(CLUSTER, HEADER, body)).collect();
    let mut taken = 0;
    for _ in 0..20_000 {
        let which = chance.below(good.len());
        let bytes = &mut good[which];
        let (at, before) = (18 + chance.below(bytes.len() - 18), bytes.clone());
        bytes[at] = u8::try_from(chance.below(256)).unwrap();
        if let Ok((header, body)) = decode(bytes, CLUSTER, &config) {
            taken += 1;
            let again = encode(CLUSTER, header, &body);
            assert_eq!(decode(&again, CLUSTER, &config), Ok((header, body)));
            assert!(again.len() <= bytes.len());
        }
        *bytes = before;
    }
    assert!(taken > 1_000, "{taken}");
}

#[test]
fn numbers_of_reasons_purposes_and_departures_stay_as_they_are() {
    let config = Config::default();
    let round = |body: &Body| decode(&encode(CLUSTER, HEADER, body), CLUSTER, &config).map(|(_, body)| body);
    let reasons = [
        Reason::NotVoter,
        Reason::OtherVoters,
        Reason::StaleEpoch,
        Reason::StaleClaim,
        Reason::PrimaryAlive,
        Reason::BetterCandidate,
        Reason::SlotTaken,
        Reason::NoMemory,
        Reason::NotReplica,
        Reason::NoRoom,
    ];
    for (number, refused) in (0_u8..).zip(core::iter::once(None).chain(reasons.map(Some))) {
        let body = Body::Vote(Vote { group: GroupId(3), epoch: Epoch(4), refused, known: Epoch(5) });
        assert!(encode(CLUSTER, HEADER, &body).ends_with(&[3, 4, number, 5]), "{refused:?}");
        assert_eq!(round(&body), Ok(body));
    }
    for (number, departure) in (0_u8..).zip([Departure::Stays, Departure::Leaves, Departure::Left]) {
        let body = Body::Departure(departure);
        assert!(encode(CLUSTER, HEADER, &body).ends_with(&[number]), "{departure:?}");
        assert_eq!(round(&body), Ok(body));
    }
    let purposes = [Purpose::Election, Purpose::ByHand, Purpose::Slots, Purpose::Voters];
    for (number, purpose) in (1_u8..).zip(purposes) {
        for group in [GroupId(3), CHOICE] {
            let request = VoteRequest { group, purpose, failed: None, ..request() };
            assert!(!request.takes_nothing(), "{purpose:?}");
            let keeps = VoteRequest { taken: SlotSet::EMPTY, ..request.clone() };
            assert_eq!(keeps.takes_nothing(), purpose == Purpose::Slots);
            let mut start = Vec::new();
            write_uint(&mut start, group.0);
            start.push(number);
            let (body, bytes) = (Body::Request(request.clone()), encode(CLUSTER, HEADER, &Body::Request(request)));
            assert!(bytes[22..].starts_with(&start), "{purpose:?}");
            let fits = (group == CHOICE) == (purpose == Purpose::Voters);
            assert_eq!(round(&body), if fits { Ok(body) } else { Err(PacketError::Malformed) }, "{purpose:?}");
        }
    }
}

#[test]
fn lists_name_nothing_twice_and_sets_have_voters_and_a_past() {
    let config = Config::default();
    let is_taken = |news: News| decode(&encode(CLUSTER, HEADER, &Body::News(vec![news])), CLUSTER, &config).is_ok();
    let set = |change: fn(&mut VoterSet)| {
        let mut set = voters();
        change(&mut set);
        News::Voters(Box::new(set))
    };
    assert!(is_taken(set(|_| ())));
    let wrong: [fn(&mut VoterSet); 7] = [
        |set| set.voters.clear(),
        |set| set.after = set.epoch,
        |set| set.voters = vec![id(1), id(1), id(2)],
        |set| set.voters = vec![id(2), id(1)],
        |set| set.previous = vec![id(4), id(4)],
        |set| set.forgetful = vec![(id(2), Incarnation(3)), (id(2), Incarnation(4))],
        |set| set.forgetful = vec![(id(2), Incarnation(3)); 4],
    ];
    for (number, change) in wrong.into_iter().enumerate() {
        assert!(!is_taken(set(change)), "{number}");
    }
    for (follows, expected) in [(&[1, 2][..], true), (&[2, 1], false), (&[2, 2], false), (&[], true)] {
        let mut record = record();
        record.description.follows = follows.iter().map(|number| GroupId(*number)).collect();
        assert_eq!(is_taken(News::Member(Box::new(record))), expected, "{follows:?}");
    }
}

#[test]
fn as_many_silences_fit_as_is_counted_with() {
    let longest = Silence { id: id(1), incarnation: Incarnation(u64::MAX), refuted: u64::MAX, age_ms: u64::MAX };
    let mut written = Vec::new();
    encode_silence(&mut written, &longest);
    assert_eq!(written.len(), SILENCE_BYTES_MAX);
}

#[test]
fn a_packet_may_be_as_long_as_its_limit_and_an_age_as_great() {
    let config = Config { packet_bytes_max: 7_000, message_bytes_max: 9_000, ..Config::default() };
    let with =
        |length| encode(CLUSTER, HEADER, &Body::Publish { channel: Box::default(), message: vec![1; length].into() });
    let rest = with(6_000).len() - 6_000;
    assert!(decode(&with(7_000 - rest), CLUSTER, &config).is_ok());
    assert_eq!(decode(&with(7_001 - rest), CLUSTER, &config), Err(PacketError::Malformed));
    for (age, told) in [(65_534, 65_534), (65_535, 65_535), (65_536, 65_535)] {
        let beat = Beat { quorum_age: age, ..Beat::default() };
        let bytes = encode(CLUSTER, HEADER, &Body::Probe(1, beat, Vec::new()));
        let expected = Body::Probe(1, Beat { quorum_age: told, ..beat }, Vec::new());
        assert_eq!(decode(&bytes, CLUSTER, &config), Ok((HEADER, expected)));
    }
}
