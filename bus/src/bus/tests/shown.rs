//! How a member stands to the rest, what it shows of that, and who may speak to it.

use alloc::boxed::Box;

use super::scripted::{CLUSTER, Scripted, claim, identity, ms, quiet, record, replica};
use super::*;
use crate::bus::{Hearers, Outbound};
use crate::event::{ClusterState, Departure, Health, RestoreError};
use crate::member::{LIFE_MAX, Life, Opinion};
use crate::packet::{Beat, Body, Forgetting, Header, News, Silence};
use crate::probe::Cause;

/// The first and second member vote; nobody has answered yet.
fn two_voters() -> Scripted {
    let mut one = Scripted::new(quiet(), &[record(2), record(3)]);
    one.command(Command::SetVoters { epoch: Epoch(1), voters: [1, 2].map(id).to_vec() }).unwrap();
    one
}

/// The only voter.
fn alone(config: Config) -> Scripted {
    let mut one = Scripted::new(config, &[]);
    one.command(Command::SetVoters { epoch: Epoch(1), voters: std::vec![id(1)] }).unwrap();
    one
}

/// The token of a new probe of a member.
fn probe(one: &mut Scripted, target: u8) -> u32 {
    one.bus.probe(id(target), Cause::Turn, false, one.now).unwrap()
}

fn own_beat(one: &Scripted) -> Beat {
    let (members, claims) = one.bus.digests();
    Beat { members, claims, voters: one.bus.voters.short_fingerprint(), quorum_age: Beat::AGE_MAX, you_failed: None }
}

#[test]
fn a_timer_that_is_late_by_more_than_half_a_second_is_a_stall() {
    let mut one = Scripted::new(quiet(), &[record(2)]);
    let mut stalls = 0;
    for late in [ms(500), ms(500) + Duration::from_nanos(1), ms(0), ms(700), ms(499)] {
        stalls += u64::from(late > ms(500));
        one.now = one.bus.next_tick() + late;
        one.bus.handle_tick(one.now);
        one.drain();
        assert_eq!(one.bus.counters().stalls, stalls, "{late:?}");
    }
    assert_eq!(stalls, 2);
    one.now = one.bus.next_tick() + ms(600);
    one.hear(2, &Body::HandoverAsk(group(1)));
    assert_eq!(one.bus.counters().stalls, 3, "whatever comes first");
    one.now = one.bus.next_tick() + ms(600);
    one.command(Command::Publish { channel: std::vec![], message: std::vec![] }).unwrap();
    assert_eq!(one.bus.counters().stalls, 4);
}

#[test]
fn what_is_suspected_by_a_stopped_process_is_doubted_anew() {
    let mut one = two_voters();
    let is_suspected = |one: &Scripted| one.bus.member(id(3)).unwrap().health == Health::Suspected;
    one.hear(3, &Body::Departure(Departure::Left));
    assert!(is_suspected(&one));
    let now = one.now;
    one.bus.doubt_anew(now, std::vec![id(3), id(9)]);
    one.drain();
    assert_eq!(one.bus.member(id(3)).unwrap().health, Health::Doubted);
    assert!([3, 9].iter().all(|of| one.events.contains(&Event::Unsuspected { id: id(*of) })));
}

#[test]
fn writes_are_taken_a_second_after_a_majority_is_in_reach() {
    let confirmed = |confirmed| Event::ConfirmedChanged { confirmed };
    let mut one = alone(quiet());
    assert!(one.events.contains(&Event::QuorumChanged { held: true }));
    one.pass(ms(999));
    assert_eq!((&one.events[..], one.bus.cluster_state().is_confirmed), (&[][..], false));
    one.pass(ms(1));
    assert_eq!((&one.events[..], one.bus.cluster_state().is_confirmed), (&[confirmed(true)][..], true));
    one.command(Command::Depart(Departure::Leaves)).unwrap();
    assert_eq!(one.events, []);
    one.command(Command::Depart(Departure::Left)).unwrap();
    assert_eq!(one.events, [confirmed(false)]);
    // Where others live, they have to confirm what this one owns.
    let mut one = alone(quiet());
    one.hear(2, &Body::Meet(record(2)));
    one.bus.standing.matched = false;
    one.pass(ms(5_000));
    assert!(!one.bus.cluster_state().is_confirmed);
}

#[test]
fn the_standing_changes_by_time_alone_at_these_points() {
    let never = Instant::NEVER;
    let mut one = alone(quiet());
    let at = |one: &Scripted| one.bus.next_turning_point(one.now);
    assert_eq!(at(&one), one.now + ms(1_000));
    one.now = one.now + ms(400);
    assert_eq!(at(&one), one.now + ms(600));
    one.bus.standing.writable = true;
    assert_eq!(at(&one), never, "who votes alone always has a majority");
    one.bus.standing.writable = false;
    one.now = one.now + ms(600);
    assert_eq!(at(&one), never, "there is something else to wait for");
    let now = one.now;
    for (ago, left) in [(0, 30_000), (10_000, 20_000), (29_900, 100), (29_950, 100), (50_000, 100)] {
        one.now = now + ms(ago);
        one.bus.standing.accused_since = Some(now);
        assert_eq!(at(&one), one.now + ms(left), "{ago}: twice the member timeout");
    }
    assert_eq!(Scripted::new(quiet(), &[]).bus.next_turning_point(now), never);
    assert_eq!(alone(quiet()).bus.in_reach_until(now), never, "nobody else has a say");
}

#[test]
fn a_majority_counts_for_nine_tenths_of_the_timeout_after_it_was_asked() {
    let mut one = two_voters();
    assert!(!one.bus.cluster_state().has_quorum);
    assert_eq!(one.bus.in_reach_until(one.now), one.now);
    let token = probe(&mut one, 2);
    let until = one.now + ms(13_500);
    one.pass(ms(30));
    one.hear(3, &Body::Answer(token, own_beat(&one), Vec::new()));
    one.hear(2, &Body::Answer(token + 1_000, own_beat(&one), Vec::new()));
    assert_eq!((one.bus.counters().refused_unasked, one.bus.cluster_state().has_quorum), (2, false));
    one.hear(2, &Body::Answer(token, own_beat(&one), Vec::new()));
    assert_eq!(one.events, [Event::QuorumChanged { held: true }]);
    one.hear(2, &Body::Answer(token, own_beat(&one), Vec::new()));
    assert_eq!(one.bus.counters().refused_unasked, 3, "it came twice");
    assert_eq!(one.bus.in_reach_until(one.now), until);
    one.pass(ms(13_469));
    assert!(one.bus.cluster_state().has_quorum);
    one.pass(ms(1));
    assert_eq!((one.bus.in_reach_until(until), one.bus.in_reach_until(until + ms(1))), (until, until + ms(1)));
    assert!(one.events.contains(&Event::QuorumChanged { held: false }));
}

#[test]
fn claims_are_confirmed_by_answers_of_those_that_know_the_same_and_reach_a_majority() {
    let fits = |one: &Scripted| Beat { quorum_age: 3, ..own_beat(one) };
    for (case, is_answer, change, expected) in [
        ("all fits", true, (|_| ()) as fn(&mut Beat), true),
        ("it is a question", false, |_| (), false),
        ("other claims", true, |beat| beat.claims += 1, false),
        ("no majority in reach", true, |beat| beat.quorum_age = Beat::AGE_MAX, false),
        ("an old one", true, |beat| beat.quorum_age = Beat::AGE_MAX - 1, true),
        ("other members do not matter", true, |beat| beat.members += 1, true),
    ] {
        let mut one = two_voters();
        for _ in 0..2 {
            let token = probe(&mut one, 2);
            one.hear(2, &Body::Answer(token, own_beat(&one), Vec::new()));
        }
        assert!(one.bus.standing.held_since.is_some() && !one.bus.standing.matched, "{case}");
        let mut beat = fits(&one);
        change(&mut beat);
        let token = probe(&mut one, 2);
        one.hear(2, &if is_answer { Body::Answer(token, beat, Vec::new()) } else { Body::Probe(7, beat, Vec::new()) });
        assert_eq!(one.bus.standing.matched, expected, "{case}");
    }
    let mut one = two_voters();
    let (token, beat) = (probe(&mut one, 3), fits(&one));
    one.hear(3, &Body::Answer(token, Beat { voters: beat.voters + 1, ..beat }, Vec::new()));
    assert!(!one.bus.cluster_state().has_quorum, "it speaks of other voters");
    let token = probe(&mut one, 3);
    one.hear(3, &Body::Answer(token, beat, Vec::new()));
    assert!(one.bus.cluster_state().has_quorum, "it knows of a majority");
    assert!(!one.bus.standing.matched, "that was not so when it answered");
}

#[test]
fn what_is_served_follows_from_majority_confirmation_and_coverage() {
    // Whether a majority is in reach, claims are confirmed, every slot has a living owner; whether that is required, and whether
    // reads are served all the same; then what is served: writes, reads, and a group's writes.
    let cases = [
        (true, true, true, true, false, (true, true, true)),
        (true, true, false, true, false, (false, false, false)),
        (true, true, false, false, false, (true, true, true)),
        (true, true, false, true, true, (false, true, false)),
        (true, false, true, true, false, (false, true, false)),
        (true, false, false, false, false, (false, true, false)),
        (false, false, true, true, false, (false, false, false)),
        (false, true, true, true, false, (false, false, true)),
        (false, false, true, true, true, (false, true, false)),
    ];
    for (held, writable, covered, require_full_coverage, allow_reads_when_down, served) in cases {
        let config = Config { require_full_coverage, allow_reads_when_down, ..quiet() };
        let mut one = Scripted::new(config, &[record(2)]);
        one.command(Command::Claim { group: group(1), slots: std::vec![SlotRange::ALL] }).unwrap();
        let now = one.now;
        let standing = &mut one.bus.standing;
        (standing.held_since, standing.writable, standing.covered) = (held.then_some(now), writable, covered);
        let state = one.bus.cluster_state();
        let case = (held, writable, covered, require_full_coverage, allow_reads_when_down);
        assert_eq!((state.serves_writes, state.serves_reads, one.bus.may_write(group(1))), served, "{case:?}");
        assert_eq!((state.has_quorum, state.is_confirmed), (held, writable), "{case:?}");
        assert!(!one.bus.may_write(group(2)), "it has no part in that");
        one.command(Command::Follow { group: group(3) }).unwrap();
        assert!(!one.bus.may_write(group(3)), "a replica takes no writes");
    }
}

#[test]
fn slots_of_the_failed_and_forgotten_are_counted() {
    let mut one = Scripted::new(quiet(), &[record(2), record(3), record(4)]);
    one.news(2, claim(1, 2, 1, &[(0, 16_000)]));
    let state = |one: &Scripted| {
        let ClusterState { slots_assigned, slots_failed, .. } = one.bus.cluster_state();
        (slots_assigned, slots_failed, one.bus.standing.covered)
    };
    assert_eq!(state(&one), (16_001, 0, false), "some have no owner");
    one.news(3, claim(2, 3, 1, &[(16_001, 16_382)]));
    one.news(3, claim(3, 4, 1, &[(16_383, 16_383)]));
    assert_eq!(state(&one), (16_384, 0, true));
    one.news(2, News::Life(id(3), Life { refuted: 0, failed: true }));
    assert_eq!(state(&one), (16_384, 382, false));
    one.command(Command::Forget { id: id(4) }).unwrap();
    assert_eq!(state(&one), (16_384, 383, false));
    assert_eq!(one.bus.owner(Slot::LAST), None, "its owner was forgotten");
    one.news(2, News::Life(id(3), Life { refuted: 1, failed: false }));
    assert_eq!(state(&one), (16_384, 1, false));
    one.news(2, claim(1, 2, 3, &[(0, 16_000), (16_383, 16_383)]));
    assert_eq!(state(&one), (16_384, 0, true), "who owns nothing is missed by nobody");
    one.news(2, News::Life(id(2), Life { refuted: 0, failed: true }));
    assert_eq!(state(&one), (16_384, 16_002, false));
}

#[test]
fn a_member_is_shown_as_it_is_known() {
    let mut one = two_voters();
    let health = |one: &Scripted, of| one.bus.member(id(of)).unwrap().health;
    one.bus.standing.accused_since = Some(one.now);
    assert_eq!((health(&one, 1), health(&one, 2)), (Health::Failed, Health::Alive), "it thinks so of itself");
    assert_eq!([1, 2, 3].map(|of| one.bus.member(id(of)).unwrap().is_voter), [true, true, false]);
    for (opinion, expected) in
        [(Opinion::Fine, Health::Alive), (Opinion::Doubted, Health::Doubted), (Opinion::Suspected, Health::Suspected)]
    {
        one.bus.members.get_mut(id(3)).unwrap().opinion = opinion;
        assert_eq!(health(&one, 3), expected);
    }
    one.hear(3, &Body::Departure(Departure::Leaves));
    assert!(!one.bus.member(id(3)).unwrap().has_left);
    one.hear(3, &Body::Departure(Departure::Left));
    assert!(one.bus.member(id(3)).unwrap().has_left);
    one.news(2, claim(4, 2, 5, &[(0, 9)]));
    one.member(2, {
        let mut record = replica(3, &[4, 5]);
        record.description.revision = 1;
        record
    });
    let view = one.bus.groups().next().unwrap();
    assert_eq!((view.group, view.primary, view.epoch, view.replicas), (group(4), id(2), Epoch(5), std::vec![id(3)]));
    assert_eq!(one.bus.primary(group(4)), Some((id(2), Epoch(5))));
    assert_eq!((one.bus.current_epoch(), one.bus.voted_epoch(group(4))), (Epoch(5), Epoch::ZERO));
    assert_eq!((one.bus.identity(), one.bus.members().count()), (&identity(), 3));
    let voters = one.bus.voters();
    assert_eq!((voters.epoch, voters.voters, voters.previous), (Epoch(1), &[id(1), id(2)][..], &[][..]));
    assert!(!one.bus.abstains());
    one.bus.memory_since = Incarnation(2);
    assert!(one.bus.abstains(), "the set counts on an older memory");
}

#[test]
fn who_forgot_this_member_is_shown_while_nobody_else_is_heard() {
    let mut one = Scripted::new(quiet(), &[record(2), record(3)]);
    let wish = Forgetting { id: id(1), tag: 1, left_ms: 5_000 };
    let header = Header { incarnation: Incarnation(1), sequence: 0 };
    one.hear(2, &Body::HandoverAsk(group(1)));
    one.hear_with(2, header, &Body::Forgotten(wish));
    let heard = one.now;
    for (later, expected) in [(0, None), (14_999, None), (15_000, Some(id(2))), (15_001, Some(id(2)))] {
        assert_eq!(one.bus.forgotten_by(heard + ms(later)), expected, "{later}");
    }
    // Its own record and members that were never heard say nothing.
    one.bus.members.get_mut(id(1)).unwrap().heard_at = heard + ms(20_000);
    one.bus.members.get_mut(id(3)).unwrap().heard_at = Instant::ORIGIN;
    assert_eq!(one.bus.forgotten_by(heard + ms(20_000)), Some(id(2)));
    assert_eq!(one.bus.forgotten_by(Instant::ORIGIN + ms(1)), None, "the second member was heard, even if later");
    one.bus.members.get_mut(id(2)).unwrap().heard_at = Instant::ORIGIN;
    assert_eq!(one.bus.forgotten_by(Instant::ORIGIN + ms(1)), Some(id(2)));
    one.now = one.now + ms(200);
    let token = probe(&mut one, 3);
    one.hear(3, &Body::Answer(token, own_beat(&one), Vec::new()));
    assert_eq!(one.bus.forgotten_by(one.now + ms(60_000)), None, "somebody has answered since");
}

#[test]
fn packets_are_counted_and_numbered_by_receiver() {
    let mut one = Scripted::new(quiet(), &[record(2), record(3)]);
    let counters = |one: &Scripted| {
        let counters = one.bus.counters();
        [counters.packets_sent, counters.bytes_sent, counters.packets_received, counters.bytes_received]
    };
    let before = counters(&one);
    let numbers = |one: &Scripted| [2, 3, 9].map(|of| one.bus.members.get(id(of)).map(|member| member.sent));
    let [two, three, _] = numbers(&one);
    let body = Body::HandoverAsk(group(1));
    one.bus.send(id(2), &body);
    one.bus.send_to_all([id(2), id(3), id(9)], &body);
    assert_eq!(numbers(&one), [two.map(|sent| sent + 2), three.map(|sent| sent + 1), None]);
    let mut length = 0;
    while let Some(Output::Send { bytes, .. }) = one.bus.poll_output() {
        length += bytes.len() as u64;
        let (header, _) = crate::packet::decode(&bytes, CLUSTER, &one.bus.config).unwrap();
        assert_eq!(header.incarnation, Incarnation(1));
    }
    assert_eq!(one.bus.next_header(id(9)).sequence, 0, "a stranger gets no number");
    one.bus.handle_packet(one.now, id(9), &[1, 2, 3]);
    one.bus.handle_packet(one.now, id(9), &[1]);
    let after = counters(&one);
    assert_eq!([0, 1, 2, 3].map(|of| after[of] - before[of]), [4, length, 2, 4]);
}

#[test]
fn who_may_speak_to_this_member_and_in_which_life() {
    let ask = Body::HandoverAsk(group(1));
    let probe = Body::Probe(1, Beat::default(), Vec::new());
    let with = |incarnation, sequence| Header { incarnation: Incarnation(incarnation), sequence };
    let most = LIFE_MAX.0;
    let answer = Body::Answer(9, Beat::default(), Vec::new());
    let forgotten = Body::Forgotten(Forgetting { id: id(1), tag: 1, left_ms: 1 });
    // The header, the body, and how many were refused as unentitled, stale, replayed and unasked then.
    let steps = [
        (with(most + 1, 1), &ask, [1, 0, 0, 0]),
        (with(1, 7), &probe, [1, 0, 0, 0]),
        (with(1, 7), &probe, [1, 0, 1, 0]),
        (with(1, 7), &ask, [1, 0, 2, 0]),
        (with(1, 0), &answer, [1, 0, 2, 1]),
        (with(1, 0), &forgotten, [1, 0, 2, 1]),
        (with(1, 0), &Body::Meet(record(2)), [1, 0, 2, 1]),
        (with(1, 7), &forgotten, [1, 0, 3, 1]),
        (with(3, 7), &probe, [1, 0, 3, 1]),
        (with(2, 8), &probe, [1, 1, 3, 1]),
        (with(2, 9), &ask, [1, 2, 3, 1]),
        (with(most, 1), &probe, [1, 2, 3, 1]),
    ];
    let mut one = Scripted::new(quiet(), &[]);
    one.hear_with(2, with(1, 1), &Body::Meet(record(2)));
    for (number, (header, body, expected)) in steps.into_iter().enumerate() {
        one.now = one.now + ms(1);
        one.hear_with(2, header, body);
        let counters = one.bus.counters();
        let refused =
            [counters.refused_unentitled, counters.refused_stale, counters.refused_replayed, counters.refused_unasked];
        assert_eq!(refused, expected, "{number}");
        // Only what has a number and is taken is a sign of life.
        let is_heard = matches!(number, 1 | 8 | 11);
        assert_eq!(one.bus.member(id(2)).unwrap().heard_at == one.now, is_heard, "{number}");
        let told = one.sent.iter().any(|(_, body)| matches!(body, Body::News(_)));
        assert_eq!(told, number == 9, "{number}: whoever probes in an earlier life is told of the later one");
    }
    one.hear(1, &ask);
    one.hear(1, &ask);
    assert_eq!(one.bus.counters().refused_stranger, 2, "nobody speaks to itself");
}

#[test]
fn a_sign_of_life_ends_doubts_unless_the_member_has_left() {
    let ask = Body::HandoverAsk(group(1));
    for (opinion, departure, events, expected) in [
        (Opinion::Doubted, Departure::Stays, 0, Opinion::Fine),
        (Opinion::Suspected, Departure::Stays, 1, Opinion::Fine),
        (Opinion::Suspected, Departure::Leaves, 1, Opinion::Fine),
        (Opinion::Suspected, Departure::Left, 0, Opinion::Suspected),
        (Opinion::Fine, Departure::Stays, 0, Opinion::Fine),
    ] {
        let mut one = Scripted::new(quiet(), &[record(2), record(3)]);
        let member = one.bus.members.get_mut(id(3)).unwrap();
        (member.opinion, member.departure) = (opinion, departure);
        one.hear(3, &ask);
        assert_eq!(one.bus.members.get(id(3)).unwrap().opinion, expected, "{opinion:?} {departure:?}");
        assert_eq!(one.events, std::vec![Event::Unsuspected { id: id(3) }; events], "{opinion:?} {departure:?}");
        assert_eq!(one.bus.counters().doubts_cleared, 0, "no doubt was counted");
    }
    // A suspicion that voters were told of is withdrawn.
    let mut one = two_voters();
    one.hear(3, &Body::Departure(Departure::Left));
    one.pass(ms(50));
    one.hear(3, &Body::Departure(Departure::Stays));
    one.hear(3, &ask);
    assert_eq!((&one.events[..], one.bus.counters().doubts_cleared), (&[Event::Unsuspected { id: id(3) }][..], 1));
    one.pass(ms(50));
    let is_withdrawn = |body: &Body| matches!(body, Body::Report(silent) if silent.iter().any(|one| one.age_ms == 0));
    assert_eq!(one.receivers(is_withdrawn), [2]);
}

#[test]
fn an_answer_says_how_one_stands_and_news_only_to_whom_it_is_new() {
    let mut one = two_voters();
    one.news(2, News::Life(id(3), Life { refuted: 5, failed: true }));
    let own = own_beat(&one);
    for (beat, from, has_news) in [
        (own, 2, false),
        (Beat { members: 1, ..own }, 2, true),
        (Beat { claims: 1, ..own }, 2, true),
        (Beat { voters: 1, ..own }, 2, false),
        (own, 3, false),
    ] {
        one.hear(from, &Body::Probe(77, beat, Vec::new()));
        let answers = one.sent.iter().filter_map(|(to, body)| match body {
            Body::Answer(token, beat, news) => Some((*to, *token, *beat, !news.is_empty())),
            _ => None,
        });
        let you_failed = (from == 3).then_some(5);
        assert_eq!(answers.collect::<Vec<_>>(), [(from, 77, Beat { you_failed, ..own }, has_news)]);
    }
    one.hear(2, &Body::Probe(1, Beat { you_failed: Some(4), ..own }, Vec::new()));
    assert_eq!(one.bus.counters().refutations, 1, "it hears that it has failed");
}

#[test]
fn a_probe_on_behalf_of_another_is_answered_with_the_life_that_was_heard() {
    let mut one = Scripted::new(quiet(), &[record(2), record(3)]);
    one.hear(2, &Body::Ask(5, id(3)));
    let [(3, Body::Probe(token, ..))] = one.sent[..] else { panic!("{:?}", one.sent) };
    let header = Header { incarnation: Incarnation(4), sequence: 1 };
    one.hear_with(3, header, &Body::Answer(token, own_beat(&one), Vec::new()));
    assert!(one.sent.contains(&(2, Body::Heard(5, id(3), Incarnation(4)))), "{:?}", one.sent);
}

#[test]
fn what_waits_to_be_told_waits_for_nothing_else() {
    let silence = Silence { id: id(3), incarnation: Incarnation(1), refuted: 0, age_ms: 9 };
    let list = || std::vec![id(3)];
    assert!(Outbound::default().is_empty());
    for some in [
        Outbound { doubts: list(), ..Outbound::default() },
        Outbound { relayed: list(), ..Outbound::default() },
        Outbound { reports: std::vec![(silence, Hearers::All)], ..Outbound::default() },
        Outbound { declared: list(), ..Outbound::default() },
    ] {
        assert!(!some.is_empty(), "{some:?}");
    }
    let mut one = two_voters();
    one.pass(ms(1_000));
    one.bus.outbound.reports.push((silence, Hearers::All));
    one.bus.arm_flush(one.now);
    one.bus.next = one.now;
    one.pass(ms(10));
    assert!(one.sent.contains(&(2, Body::Report(std::vec![silence]))), "{:?}", one.sent);
}

#[test]
fn a_life_begins_with_what_its_identity_says() {
    let start = |length, seed| {
        let config = Config { address_bytes_max: 9, ..quiet() };
        let identity = Identity { address: "x".repeat(length), ..identity() };
        Bus::new(config, identity, None, seed, Instant::from_nanos(START_MS * 1_000_000))
    };
    assert_eq!(start(10, 1).err(), Some(RestoreError::AddressTooLong));
    assert_eq!((start(9, 1).err(), start(0, 1).err()), (None, None));
    let token = |seed| {
        let mut bus = start(9, seed).unwrap();
        let now = Instant::from_nanos(START_MS * 1_000_000);
        bus.members.merge(record(2), now);
        bus.probe(id(2), Cause::Turn, false, now).unwrap()
    };
    assert_ne!(token(1), token(2), "answers of an earlier life fit no question");
    let bus = start(9, 1).unwrap();
    assert_eq!((bus.memory_since, bus.life, bus.current), (Incarnation(1), Incarnation(1), Epoch::ZERO));
    // What it says of itself is numbered.
    let mut one = Scripted::new(quiet(), &[record(2)]);
    for revision in 1..=3_u8 {
        one.command(Command::Describe { services: std::vec![revision] }).unwrap();
        assert_eq!(one.bus.own_record().description.revision, revision.into());
        one.command(Command::Describe { services: std::vec![revision] }).unwrap();
        assert_eq!(one.bus.own_record().description.revision, revision.into(), "nothing has changed");
    }
    assert_eq!(one.bus.own_record().description.memory_since, Incarnation(1));
    let saved = crate::saved::Saved::decode(&one.saved, &identity(), &quiet()).unwrap();
    assert_eq!((saved.incarnation, saved.members), (Incarnation(1), std::vec![]), "before it met anybody");
}

#[test]
fn clones_with_other_seeds_go_other_ways() {
    let members: Vec<_> = (2..=60).map(record).collect();
    let one = Scripted::new(quiet(), &members);
    let chosen = |seed| {
        let mut bus = one.bus.clone();
        bus.reseed(seed);
        bus.choose_members(5, |_| true)
    };
    assert_eq!(chosen(1), chosen(1));
    assert_ne!(chosen(1), chosen(2));
}

#[test]
fn a_number_that_was_heard_before_it_was_forgotten_counts_in_the_same_life() {
    for (incarnation, expected) in [(1, 1), (2, 0)] {
        let config = Config { keep_out: Duration::from_secs(1), ..quiet() };
        let mut one = Scripted::new(config, &[record(2), record(3)]);
        let header = |sequence| Header { incarnation: Incarnation(incarnation), sequence };
        one.hear_with(3, Header { incarnation: Incarnation(1), sequence: 9 }, &Body::HandoverAsk(group(1)));
        one.command(Command::Forget { id: id(3) }).unwrap();
        one.pass(ms(1_000));
        let mut back = record(3);
        back.description.incarnation = Incarnation(incarnation);
        one.news(2, News::Member(Box::new(back)));
        one.hear_with(3, header(9), &Body::HandoverAsk(group(1)));
        assert_eq!(one.bus.counters().refused_replayed, expected, "{incarnation}");
        one.hear_with(3, header(10), &Body::HandoverAsk(group(1)));
        one.hear_with(3, header(9), &Body::HandoverAsk(group(1)));
        assert_eq!(one.bus.counters().refused_replayed, expected + 1, "{incarnation}: and what was heard since");
    }
}

#[test]
fn who_has_no_number_is_heard_only_with_what_needs_none() {
    let mut one = Scripted::new(quiet(), &[record(2)]);
    let header = Header { incarnation: Incarnation(1), sequence: 0 };
    for _ in 0..2 {
        let before = one.bus.counters().refused_replayed;
        one.hear_with(2, header, &Body::HandoverAsk(group(1)));
        assert_eq!(one.bus.counters().refused_replayed, before + 1);
        one.hear_with(2, header, &Body::Meet(record(2)));
        assert_eq!(one.bus.counters().refused_replayed, before + 1);
    }
}
