//! Probes, doubts, suspicions and reports of one member, packet by packet.

use super::single::*;
use super::*;
use crate::event::{FailedBy, Health};
use crate::fingerprint::fingerprint;
use crate::member::Opinion;
use crate::packet::{Body, News, Silence};
use crate::probe::Cause;

const FIVE: [u8; 5] = [1, 2, 3, 4, 5];

fn is_ask(body: &Body) -> bool {
    matches!(body, Body::Ask(..))
}

fn doubt(single: &mut Single, numbers: &[u8], ms: u64) {
    let (now, since) = (single.now(), single.ago(ms));
    numbers.iter().for_each(|number| single.bus.raise_doubt(now, id(*number), since, true));
}

fn doubted(single: &Single) -> Vec<u8> {
    let members = single.bus.members.sorted().into_iter();
    members.filter(|member| member.opinion == Opinion::Doubted).map(|member| number(member.id)).collect()
}

/// Its turn comes for everybody but those that are watched already.
#[test]
fn who_is_silent_in_its_turn_is_asked_for_and_then_doubted() {
    let mut single = Single::setup(1, 8, &[6, 7, 8], &[]);
    single.life(3, 0, true);
    single.silent = [3, 4, 5].into();
    doubt(&mut single, &[4], 200);
    let before = *single.bus.counters();
    single.bus.next_turn = single.now();
    single.pass(2_800);
    let sent = single.take_sent();
    let probes: Vec<u8> = sent.iter().filter(|(_, body)| matches!(body, Body::Probe(..))).map(|(to, _)| *to).collect();
    assert_eq!(probes.iter().copied().collect::<BTreeSet<_>>(), [2, 3, 5, 6, 7, 8].into());
    let after = single.bus.counters();
    assert_eq!(after.probes_sent - before.probes_sent, u64::try_from(probes.len()).unwrap());
    let silent = probes.iter().filter(|to| [3, 5].contains(to)).count();
    assert_eq!(after.probes_silent - before.probes_silent, u64::try_from(silent).unwrap());
    let asked: Vec<u8> = sent.iter().filter(|(_, body)| is_ask(body)).map(|(to, _)| *to).collect();
    assert!(asked.len() == 3 && asked.iter().all(|to| [2, 6, 7, 8].contains(to)), "{asked:?}");
    assert!(sent.iter().all(|(_, body)| !matches!(body, Body::Ask(_, target) if *target != id(5))));
    assert_eq!((doubted(&single), after.doubts_raised - before.doubts_raised), ([4, 5].into(), 1));
    let told: BTreeSet<u8> =
        sent.iter().filter(|(_, body)| matches!(body, Body::Doubt { .. })).map(|(to, _)| *to).collect();
    assert_eq!(told, [6, 7, 8].into());
    // Who does not vote leaves the rest to voters.
    single.bus.next_turn = Instant::NEVER;
    single.pass(3_500);
    assert!(doubted(&single).is_empty() && single.bus.suspicion.len() == 0);
    assert_eq!(single.probed(), []);
}

#[test]
fn where_nobody_is_left_to_ask_a_silent_member_is_doubted_at_once() {
    let cases = [(2, None, &[2][..], 0), (3, None, &[], 1), (2, Some(50), &[], 0), (3, Some(50), &[], 0)];
    for (count, heard_ms, expected, asked) in cases {
        let mut single = Single::setup(1, count, &[], &[]);
        single.silent = [2].into();
        let now = single.now();
        single.bus.probe(id(2), Cause::Turn, false, now);
        if let Some(ms) = heard_ms {
            single.pass(ms);
            single.hear(2, &Body::News(Vec::new()));
        }
        single.pass(300 - heard_ms.unwrap_or(0));
        assert_eq!((doubted(&single), single.sent_to(is_ask).len()), (expected.into(), asked), "{count} {heard_ms:?}");
    }
}

/// Word that a member was heard ends the matter, if it was asked for and is about the member's present life.
#[test]
fn word_of_those_who_were_asked_counts_for_the_present_life() {
    for (life, other_token, is_silent) in [(1, false, false), (2, false, false), (0, false, true), (1, true, true)] {
        let mut single = Single::setup(1, 3, &[], &[]);
        single.silent = [2].into();
        let now = single.now();
        single.bus.probe(id(2), Cause::Turn, false, now);
        single.pass(200);
        let sent = single.take_sent();
        let token = sent.iter().find_map(|(_, body)| if let Body::Ask(token, _) = body { Some(*token) } else { None });
        let refused = single.bus.counters().refused_unasked;
        let token = token.expect("somebody was asked").wrapping_add(u32::from(other_token));
        single.hear(3, &Body::Heard(token, id(2), Incarnation(life)));
        let case = format!("{life} {other_token}");
        assert_eq!(single.bus.counters().refused_unasked - refused, u64::from(is_silent), "{case}");
        let heard_at = single.bus.members.get(id(2)).unwrap().heard_at;
        assert_eq!(heard_at == single.now(), !is_silent, "{case}");
        if life > 0 {
            single.pass(300);
            assert_eq!(doubted(&single).is_empty(), !is_silent, "{case}");
        }
    }
}

#[test]
fn who_is_asked_probes_and_tells_the_answer() {
    let mut single = Single::setup(1, 4, &[], &[]);
    single.silent = [4].into();
    for (target, expected) in [(3, 1), (4, 0), (1, 0), (9, 0)] {
        single.hear(2, &Body::Ask(7, id(target)));
        let sent = single.take_sent();
        let probed: Vec<u8> =
            sent.iter().filter(|(_, body)| matches!(body, Body::Probe(..))).map(|(to, _)| *to).collect();
        assert_eq!(probed, [target].into_iter().filter(|target| [3, 4].contains(target)).collect::<Vec<_>>());
        let heard = Body::Heard(7, id(target), Incarnation(1));
        assert_eq!(sent.iter().filter(|sent| **sent == (2, heard.clone())).count(), expected, "{target}");
    }
}

#[test]
fn voters_take_doubts_of_anybody_and_pass_them_on_once() {
    // (who tells, passed on already, in which life, silent for ms), then who is told.
    type Told = Option<&'static [u8]>;
    let cases: [(u8, bool, u64, u64, Told); 7] = [
        (8, false, 1, 300, Some(&[2, 3, 4, 5])),
        (2, false, 1, 300, Some(&[2, 3, 4, 5])),
        (2, true, 1, 300, Some(&[])),
        (8, true, 1, 300, None),
        (2, true, 0, 300, None),
        (2, true, 2, 300, Some(&[])),
        (2, true, 1, 50, None),
    ];
    for (from, relayed, life, age_ms, told) in cases {
        let mut single = Single::setup(1, 8, &FIVE, &[]);
        single.silent = [7].into();
        single.hear(from, &Body::Doubt { relayed, silent: [silence(7, life, age_ms)].into() });
        let case = format!("{from} {relayed} {life} {age_ms}");
        assert_eq!(!doubted(&single).is_empty(), told.is_some(), "{case}");
        single.pass(10);
        let heard =
            single.sent_to(|body| matches!(body, Body::Doubt { relayed: true, silent } if silent[0].age_ms == 310));
        assert_eq!(heard, told.unwrap_or_default(), "{case}");
    }
    let mut bystander = Single::setup(8, 8, &FIVE, &[]);
    bystander.hear(1, &Body::Doubt { relayed: false, silent: [silence(7, 1, 300)].into() });
    bystander.hear(1, &Body::Report([silence(7, 1, 300)].into()));
    assert_eq!(doubted(&bystander), [], "it does not vote");
}

#[test]
fn a_failure_takes_a_majority_of_suspicions_with_the_own_one() {
    let mut single = Single::setup(1, 8, &FIVE, &[7]);
    single.silent = [7].into();
    single.join(crate::member::MemberRecord { description: described(8, 7), ..record(8, &[]) });
    single.events.clear();
    single.hear(2, &Body::Doubt { relayed: true, silent: [silence(7, 1, 300)].into() });
    single.hear(3, &Body::Report([silence(7, 1, 300)].into()));
    single.hear(4, &Body::Report([silence(7, 0, 300)].into()));
    single.pass(4_699);
    assert_eq!(single.events, [], "two reports are no majority, and the own suspicion is missing");
    single.take_sent();
    single.pass(1);
    assert_eq!(single.events, [Event::Suspected { id: id(7) }]);
    assert_eq!(single.sent_to(|body| *body == Body::Report([silence(7, 1, 5_000)].into())), [2, 3, 4, 5]);
    single.pass(1_000);
    assert_eq!(single.bus.member(id(7)).unwrap().health, Health::Suspected);
    single.hear(5, &Body::Report([silence(7, 2, 300)].into()));
    assert!(single.has(&Event::Failed { id: id(7), by: FailedBy::Quorum { reports: 3, voters: 5 } }));
    assert!(
        single.has(&Event::SlotsChanged { group: group(7), primary: id(7), epoch: Epoch(2) })
            || single.events.len() == 2
    );
    let counters = single.bus.counters();
    assert_eq!((counters.suspicions, counters.failures, counters.recoveries), (1, 1, 0));
    assert_eq!((counters.time_to_suspicion.count, counters.time_to_failure.count), (1, 1));
    single.pass(0);
    let life = crate::member::Life { refuted: 0, failed: true };
    let told = single.sent_to(|body| *body == Body::News([News::Life(id(7), life)].into()));
    assert!(told.contains(&8), "its replica hears it whoever else does: {told:?}");
    // A report about one that has failed, and one that it has refuted since, are nothing.
    single.hear(2, &Body::Report([silence(7, 1, 300)].into()));
    assert_eq!(single.bus.suspicion.len(), 0);
    single.life(7, 1, false);
    assert_eq!(single.bus.counters().recoveries, 1);
    assert!(single.has(&Event::Recovered { id: id(7) }));
}

fn described(number: u8, follows: u64) -> crate::member::Description {
    crate::member::Description { revision: 1, ..record(number, &[follows]).description }
}

#[test]
fn whoever_is_heard_again_is_suspected_no_more_and_all_voters_hear_it() {
    let mut single = Single::setup(1, 8, &FIVE, &[]);
    single.silent = [6, 7].into();
    doubt(&mut single, &[6], 5_000);
    single.pass(4_000);
    assert_eq!(single.events, [Event::Suspected { id: id(6) }]);
    doubt(&mut single, &[7], 200);
    single.take_sent();
    for (from, expected) in [(6, &[2, 3, 4, 5][..]), (7, &[])] {
        single.hear(from, &Body::News(Vec::new()));
        single.pass(0);
        let withdrawn = Body::Report([Silence { age_ms: 0, ..silence(from, 1, 0) }].into());
        assert_eq!(single.sent_to(|body| *body == withdrawn), expected, "{from}");
        assert_eq!(single.bus.member(id(from)).unwrap().health, Health::Alive);
    }
    assert_eq!(single.bus.counters().doubts_cleared, 2);
}

#[test]
fn few_voters_ask_the_others_while_all_is_well() {
    const VOTERS: [u8; 5] = [1, 2, 3, 4, 9];
    type Change = fn(&mut Single);
    let cases: [(&str, u8, bool, Change); 9] = [
        ("the third", 3, true, |_| ()),
        ("the fourth", 4, false, |_| ()),
        ("the fifth", 9, false, |_| ()),
        ("one before it has failed", 9, false, |single| single.life(1, 0, true)),
        ("two before it have failed", 9, true, |single| {
            [1, 2].into_iter().for_each(|number| single.life(number, 0, true));
        }),
        ("somebody is doubted", 9, true, |single| {
            single.silent = [5].into();
            doubt(single, &[5], 500);
        }),
        ("somebody knows something else", 9, true, |single| {
            let now = single.now();
            single.bus.compare(now, id(2), (1, 2));
        }),
        ("its knowledge is as old as it may be", 9, false, |single| {
            single.bus.reach = crate::reach::Reach::default();
            let now = single.now();
            single.bus.reach.handle_voters_changed(&single.bus.voters, id(9), TIMEOUT, now);
            single.bus.reach.handle_age(single.ago(1_000), 16);
        }),
        ("its knowledge is older", 9, true, |single| {
            single.bus.reach = crate::reach::Reach::default();
            let now = single.now();
            single.bus.reach.handle_voters_changed(&single.bus.voters, id(9), TIMEOUT, now);
            single.bus.reach.handle_age(single.ago(1_000), 67);
        }),
    ];
    for (name, own, asks, change) in cases {
        let mut single = Single::setup(own, 9, &VOTERS, &[]);
        // It has learned a moment ago that a majority is in reach.
        single.bus.reach.handle_age(single.now(), 0);
        change(&mut single);
        single.take_sent();
        single.pass(500);
        let asked: Vec<u8> = single.probed().into_iter().filter(|to| *to != 5).collect();
        assert_eq!(!asked.is_empty(), asks, "{name}: {asked:?}");
        assert!(!asked.contains(&own), "{name}");
    }
}

#[test]
fn so_many_are_chosen_as_are_asked_for_if_so_many_fit() {
    // Few members are all looked at; of more some are drawn, and most of those that fit are found.
    for (count, fit, least) in [(12, 3, 600), (12, 11, 600), (13, 12, 600), (13, 3, 450), (12, 2, 400)] {
        let mut single = Single::setup(1, count, &[], &[]);
        let chosen: Vec<usize> =
            (0..200).map(|_| single.bus.choose_members(3, |id| number(id) <= fit + 1).len()).collect();
        let all: usize = chosen.iter().sum();
        assert!(chosen.iter().all(|chosen| *chosen <= 3) && all >= least, "{count} {fit}: {all}");
    }
}

/// When a voter among `count` members begins to sweep, ms after it doubted so many who have been silent for so long.
fn sweeps(count: u8, doubts: u8, silent_ms: u64, until: u64) -> Vec<u64> {
    let mut single = Single::setup(1, count, &[1, 2, 3], &[]);
    let doubts: Vec<u8> = (count - doubts + 1..=count).collect();
    single.silent = doubts.iter().copied().collect();
    single.pass(4_000);
    doubt(&mut single, &doubts, silent_ms);
    let start = single.ms;
    let (mut begun, mut known) = (Vec::new(), 0);
    while single.ms < start + until {
        if single.bus.counters().sweeps > known {
            begun.push(single.ms - start);
            known += 1;
        }
        assert_eq!(single.bus.counters().sweeps, known);
        single.pass(1);
    }
    begun
}

#[test]
fn several_doubts_begin_a_sweep() {
    assert_eq!(sweeps(9, 1, 3_000, 1_000), [], "one that is silent is none of many");
    assert_eq!(sweeps(9, 3, 200, 500), [1], "three at once");
    assert_eq!(sweeps(9, 2, 1_000, 400), [], "two are few, as long as it does not last");
    let lasting = sweeps(9, 2, 1_000, 1_000);
    assert!(lasting.len() == 1 && (500..=900).contains(&lasting[0]), "{lasting:?}");
    let begun = sweeps(9, 3, 200, 8_000);
    let gaps: BTreeSet<u64> = begun.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(begun.len() >= 4 && gaps.iter().all(|gap| (1_000..=1_400).contains(gap)), "{gaps:?}");
    assert!(*begun.last().unwrap() < 5_000, "those that are suspected begin none: {begun:?}");
    // Where members are many, a share of them must be doubted.
    assert_eq!((sweeps(250, 2, 200, 300), sweeps(250, 3, 200, 300)), ([].into(), [1].into()));
}

#[test]
fn a_sweep_asks_everybody_open_step_by_step() {
    let mut single = Single::setup(1, 40, &[1], &[]);
    single.silent = [37, 38, 39, 40].into();
    single.life(37, 0, true);
    single.pass(1_000);
    single.hear(3, &Body::News(Vec::new()));
    single.pass(20);
    single.hear(2, &Body::News(Vec::new()));
    doubt(&mut single, &[38, 39, 40], 200);
    let mut steps = Vec::new();
    for _ in 0..20 {
        single.pass(if steps.is_empty() { 1 } else { 20 });
        let probed: Vec<u8> = single.probed().into_iter().filter(|to| *to < 38).collect();
        steps.push(probed);
    }
    // Three at a time, in the order in which they became known; whoever was heard within the last step needs no question.
    let expected =
        (0..20_u8).map(|step| (step * 3 + 1..step * 3 + 4).filter(|to| (3..37).contains(to)).collect::<Vec<u8>>());
    assert_eq!(steps, expected.collect::<Vec<_>>());
    assert!(single.bus.sweep.is_none() && single.bus.counters().sweeps == 1);
}

/// The place of voter `place` of `count` among those that care for a member.
fn share(place: u8, count: u8, about: u8) -> u64 {
    let first = fingerprint(id(about).as_bytes()) % u64::from(count);
    (u64::from(place) + u64::from(count) - first) % u64::from(count)
}

#[test]
fn of_many_voters_some_sweep_a_member_and_some_hear_of_it_first() {
    let voters: Vec<u8> = (0..20).collect();
    let mut single = Single::setup(1, 100, &voters, &[]);
    single.join(record(0, &[]));
    single.silent = [98, 99, 100].into();
    single.pass(4_000);
    single.bus.reach = crate::reach::Reach::default();
    doubt(&mut single, &[98, 99, 100], 200);
    single.take_sent();
    single.pass(400);
    let swept: Vec<u8> = single.probed().into_iter().filter(|to| *to < 98).collect();
    assert_eq!(swept, (0..98).filter(|about| *about != 1 && share(1, 20, *about) < 16).collect::<Vec<_>>());

    // A suspicion goes to eight voters, then to the next eight, then to all.
    for (count, previous, expected) in
        [(17, &[][..], [Some(0), Some(1), None, None]), (16, &[], [None; 4]), (17, &[30, 31, 32], [None; 4])]
    {
        let voters: Vec<u8> = (1..=count).collect();
        let mut single = Single::setup(1, 40, &[], &[]);
        let now = single.now();
        single.bus.hear_voters(now, &told(&voters, previous), false);
        single.silent = [40].into();
        doubt(&mut single, &[40], 500);
        single.pass(4_500);
        single.take_sent();
        for (turn, round) in expected.into_iter().enumerate() {
            let mut to = Vec::new();
            for _ in 0..3_000 {
                single.pass(1);
                to = single.sent_to(|body| matches!(body, Body::Report(_)));
                if !to.is_empty() {
                    break;
                }
            }
            let fits = |voter: &u8| round.is_none_or(|round| share(*voter - 1, count, 40) / 8 == round);
            let hears: Vec<u8> = (2..=count).filter(fits).chain(previous.iter().copied()).collect();
            assert_eq!(to, hears, "{count}, {previous:?}, {turn}");
        }
    }
}

#[test]
fn what_is_for_all_voters_and_what_is_for_few_leave_together() {
    let voters: Vec<u8> = (1..=17).collect();
    let mut single = Single::setup(1, 40, &voters, &[]);
    single.silent = [39, 40].into();
    single.pass(4_000);
    doubt(&mut single, &[39, 40], 5_000);
    let now = single.now();
    single.bus.suspicion.handle_left(id(40), now);
    single.bus.withdraw(id(39), now);
    single.take_sent();
    single.pass(0);
    let mut heard: BTreeMap<u8, Vec<u8>> = BTreeMap::new();
    for (to, body) in single.take_sent() {
        if let Body::Report(silent) = body {
            heard.entry(to).or_default().extend(silent.iter().map(|silence| number(silence.id)));
        }
    }
    let expected = (2..=17).map(|to| (to, if share(to - 1, 17, 40) < 8 { std::vec![39, 40] } else { std::vec![39] }));
    assert_eq!(heard, expected.collect());
}

#[test]
fn many_doubts_leave_in_packets_of_the_greatest_length() {
    let mut single = Single::setup(1, 250, &[1, 2], &[]);
    single.silent = (3..=250).collect();
    let (now, since) = (single.now(), single.ago(500));
    (3..=250).for_each(|number| single.bus.raise_doubt(now, id(number), since, false));
    single.pass(20);
    let lengths: Vec<usize> = single
        .take_sent()
        .iter()
        .filter_map(|(_, body)| if let Body::Doubt { silent, .. } = body { Some(silent.len()) } else { None })
        .collect();
    let most = single.bus.packet_room() / crate::packet::SILENCE_BYTES_MAX;
    assert_eq!(lengths, [most, 248 - most]);
}

#[test]
fn replicas_of_those_that_failed_hear_it_first() {
    let mut single = Single::setup(1, 40, &[1], &[2, 3]);
    for (replica, of) in [(10, 2), (11, 3), (12, 2), (13, 2)] {
        single.join(crate::member::MemberRecord { description: described(replica, of), ..record(replica, &[]) });
    }
    single.command(Command::Follow { group: group(2) });
    single.life(13, 0, true);
    single.silent = [2].into();
    // Its news goes to nobody else at once.
    single.bus.config.news_fanout = 0;
    doubt(&mut single, &[2], 1_000);
    single.take_sent();
    single.pass(6_000);
    assert_eq!(single.bus.member(id(2)).unwrap().health, Health::Failed);
    assert_eq!(single.sent_to(|body| matches!(body, Body::News(..))), [10, 12]);
}

/// Whoever is said to have failed says that it lives as soon as it may.
#[test]
fn a_primary_with_a_replica_that_lives_is_silent_for_twice_the_timeout() {
    type Change = fn(&mut Single);
    let cases: [(&str, bool, Change); 4] = [
        ("its replica may take its place", true, |_| ()),
        ("its replica has failed", false, |single| single.life(5, 0, true)),
        ("its slots are gone", false, |single| {
            let claim = crate::claim::Claim { group: group(2), owner: id(2), epoch: Epoch(4), slots: slots(100, 299) };
            single.hear(2, &Body::News([News::Claim(claim)].into()));
        }),
        ("another one has its place", false, |single| single.claim(1, 2, 4)),
    ];
    for (name, waits, change) in cases {
        let mut single = Single::setup(1, 6, &[2, 3, 4], &[1]);
        single.join(crate::member::MemberRecord { description: described(5, 1), ..record(5, &[]) });
        change(&mut single);
        let life = crate::member::Life { refuted: 0, failed: true };
        single.hear(2, &Body::News([News::Life(id(1), life)].into()));
        if waits {
            single.pass(9_999);
            assert_eq!(single.bus.counters().refutations, 0, "{name}");
            single.pass(101);
        }
        assert_eq!(single.bus.counters().refutations, 1, "{name}");
        assert_eq!(single.bus.members.get(id(1)).unwrap().life, crate::member::Life { refuted: 1, failed: false });
    }
}
