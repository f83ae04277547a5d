//! What is refused, and that it moves nothing.

use alloc::boxed::Box;

use super::*;
use crate::event::Health;
use crate::packet::{Body, Header, News, decode, encode};

/// State that a refused packet must leave alone.
fn state(net: &Net, at: u8) -> ((u64, u64), Epoch, usize, Vec<Health>) {
    let bus = net.bus(at);
    (bus.digests(), bus.current_epoch(), bus.members().count(), bus.members().map(|member| member.health).collect())
}

fn settled() -> Net {
    let mut net = Net::new(4);
    net.introduce();
    net.share_slots(&[1, 2, 3], &[1, 2, 3]);
    net.run(5_000);
    net
}

#[test]
fn refused_packets_are_counted_by_cause_and_move_nothing() {
    let mut net = settled();
    let cluster = ClusterId::from_bytes([9; 16]);
    let header = Header { incarnation: Incarnation(1), sequence: 1_000_000 };
    let life = crate::member::Life { refuted: 7, failed: true };
    let body = Body::News(std::vec![News::Life(id(3), life)]);
    let good = encode(cluster, header, &body);
    let mut newer = good.clone();
    newer[0] = crate::packet::VERSION + 1;
    let stale = encode(cluster, Header { incarnation: Incarnation(0), ..header }, &body);
    let foreign = encode(ClusterId::from_bytes([8; 16]), header, &body);
    type Count = fn(&crate::Counters) -> u64;
    let cases: [(&str, u8, &[u8], Count); 8] = [
        ("cut", 2, &good[..good.len() - 1], |counters| counters.refused_malformed),
        ("empty", 2, &[], |counters| counters.refused_version + counters.refused_malformed),
        ("newer", 2, &newer, |counters| counters.refused_version),
        ("foreign", 2, &foreign, |counters| counters.refused_cluster),
        ("earlier life", 2, &stale, |counters| counters.refused_stale),
        ("stranger", 99, &good, |counters| counters.refused_stranger),
        ("oneself", 1, &good, |counters| counters.refused_stranger),
        ("long", 2, &[1; 9_000], |counters| counters.refused_malformed),
    ];
    for (name, from, bytes, count) in cases {
        let (before, counted) = (state(&net, 1), count(net.bus(1).counters()));
        let now = net.now();
        net.servers.get_mut(&1).unwrap().bus.as_mut().unwrap().handle_packet(now, id(from), bytes);
        assert_eq!(state(&net, 1), before, "{name}");
        assert_eq!(count(net.bus(1).counters()), counted + 1, "{name}");
    }
    // The same news is taken when it comes as it should, so the test could have failed.
    let (before, now) = (state(&net, 1), net.now());
    net.servers.get_mut(&1).unwrap().bus.as_mut().unwrap().handle_packet(now, id(2), &good);
    assert_ne!(state(&net, 1), before);
}

#[test]
fn packets_that_come_again_move_nothing() {
    let mut net = Net::new(4);
    net.record = Some(Vec::new());
    net.introduce();
    net.share_slots(&[1, 2, 3], &[1, 2, 3]);
    net.kill(3);
    net.run(9_000);
    net.start(3);
    net.run(9_000);
    let record = net.record.take().unwrap();
    let before: Vec<_> = (1..=2).map(|at| state(&net, at)).collect();
    let now = net.now();
    let refused = |net: &Net| net.bus(1).counters().refused_replayed;
    let counted = refused(&net);
    for (to, from, bytes) in record.iter().filter(|(to, _, _)| *to <= 2) {
        net.servers.get_mut(to).unwrap().bus.as_mut().unwrap().handle_packet(now, id(*from), bytes);
    }
    assert!(refused(&net) > counted + 100);
    assert_eq!((1..=2).map(|at| state(&net, at)).collect::<Vec<_>>(), before);
}

#[test]
fn packets_of_a_member_that_was_forgotten_and_is_back_move_nothing_again() {
    let mut net = Net::with(4, Config { keep_out: Duration::from_secs(3), ..Net::new(1).config });
    net.introduce();
    net.run(5_000);
    net.record = Some(Vec::new());
    net.run(3_000);
    let record = net.record.take().unwrap();
    net.command(2, Command::Forget { id: id(4) });
    net.run(4_000);
    net.command(2, Command::Meet { id: id(4), address: "server-4".into() });
    net.run_until(3_000, "it is back", |net| net.bus(1).member(id(4)).is_some());
    let again: Vec<_> = record.iter().filter(|(to, from, _)| (*to, *from) == (1, 4)).collect();
    let refused = |net: &Net| net.bus(1).counters().refused_replayed;
    let (now, counted) = (net.now(), refused(&net));
    for (_, from, bytes) in &again {
        net.servers.get_mut(&1).unwrap().bus.as_mut().unwrap().handle_packet(now, id(*from), bytes);
    }
    assert!(again.len() > 5);
    assert_eq!(refused(&net), counted + u64::try_from(again.len()).unwrap());
}

#[test]
fn who_does_not_vote_can_neither_report_nor_vote() {
    let mut net = settled();
    let cluster = ClusterId::from_bytes([9; 16]);
    let silence = crate::packet::Silence { id: id(3), incarnation: Incarnation(1), refuted: 0, age_ms: 60_000 };
    let before = state(&net, 1);
    for body in [
        Body::Report(std::vec![silence]),
        Body::Doubt { relayed: true, silent: std::vec![silence] },
        Body::Adopted(crate::voters::Adoption {
            voters: net.bus(1).voters.fingerprint(),
            epoch: Epoch(1),
            after: Epoch::ZERO,
            from: Epoch::ZERO,
            known: Epoch(9),
        }),
    ] {
        let counted = net.bus(1).counters().refused_unentitled;
        let header = Header { incarnation: Incarnation(1), sequence: 2_000_000 + u32::try_from(counted).unwrap() };
        let bytes = encode(cluster, header, &body);
        assert!(decode(&bytes, cluster, &net.config).is_ok());
        let now = net.now();
        net.servers.get_mut(&1).unwrap().bus.as_mut().unwrap().handle_packet(now, id(4), &bytes);
        assert_eq!(net.bus(1).counters().refused_unentitled, counted + 1, "{body:?}");
        assert_eq!(state(&net, 1), before, "{body:?}");
    }
}

#[test]
fn word_of_being_forgotten_moves_nothing() {
    let mut net = settled();
    let cluster = ClusterId::from_bytes([9; 16]);
    let told = |net: &Net| net.has_event(1, |event| matches!(event, Event::ForgottenHere { .. }));
    let wish = |number| crate::packet::Forgetting { id: id(number), tag: 7, left_ms: 9_000 };
    for (from, about, incarnation, expected) in [(9, 1, 1, false), (2, 3, 1, false), (2, 1, 0, false), (2, 1, 1, true)]
    {
        let before = state(&net, 1);
        let header = Header { incarnation: Incarnation(incarnation), sequence: 0 };
        let bytes = encode(cluster, header, &Body::Forgotten(wish(about)));
        let now = net.now();
        net.servers.get_mut(&1).unwrap().bus.as_mut().unwrap().handle_packet(now, id(from), &bytes);
        net.drain(1);
        assert_eq!((told(&net), state(&net, 1)), (expected, before), "{from} {about}");
    }
    net.run(20_000);
    assert!(net.agrees() && net.bus(2).member(id(1)).is_some());
}

/// One member tells others this about another one, as its next packet.
fn tell(net: &mut Net, from: u8, to: &[u8], news: &News) {
    for to in to {
        let sequence = net.bus(*to).members.get(id(from)).map_or(0, |member| member.seen.greatest()) + 1;
        let header = Header { incarnation: Incarnation(1), sequence };
        let bytes = encode(ClusterId::from_bytes([9; 16]), header, &Body::News(std::vec![news.clone()]));
        assert!(decode(&bytes, ClusterId::from_bytes([9; 16]), &net.config).is_ok());
        let now = net.now();
        net.servers.get_mut(to).unwrap().bus.as_mut().unwrap().handle_packet(now, id(from), &bytes);
        net.drain(*to);
    }
}

/// What is known of the third member, but in this life, with this revision and so many refutations.
fn made_up(net: &Net, life: u64, revision: u32, refuted: u64, failed: bool) -> News {
    let mut record = net.bus(1).members.get(id(3)).unwrap().record();
    (record.description.incarnation, record.description.revision) = (Incarnation(life), revision);
    record.life = crate::member::Life { refuted, failed };
    News::Member(Box::new(record))
}

#[test]
fn a_life_that_somebody_made_up_locks_nobody_out() {
    let lives =
        [(u64::MAX, 0), (1 << 62, 0), (1 << 32, 7), (1 << 20, 0), (9, 0), (2, u32::MAX), (1, u32::MAX), (1, 1_000)];
    for (life, revision) in lives {
        for everybody in [&[1, 2][..], &[1, 2, 3]] {
            let mut net = settled();
            let news = made_up(&net, life, revision, 0, false);
            tell(&mut net, 4, everybody, &news);
            net.run(20_000);
            let case = format!("life {life}, revision {revision}, told to {everybody:?}");
            for at in [1, 2, 4] {
                let member = net.bus(at).member(id(3)).unwrap();
                assert_eq!(member.health, Health::Alive, "{case}");
                assert!(
                    net.now().saturating_since(member.heard_at) < Duration::from_secs(2),
                    "{case}: {at} refuses it"
                );
                assert!(!net.has_event(at, |event| matches!(event, Event::Failed { .. })), "{case}");
            }
            assert!(net.agrees(), "{case}");
            // What it says of itself is taken again.
            net.command(3, Command::Describe { services: std::vec![7] });
            net.run_until(5_000, "its description", |net| net.bus(1).member(id(3)).unwrap().services == [7]);

            // Its next lives count on from its file.
            net.kill(3);
            net.run(1_000);
            net.start(3);
            net.run_until(9_000, "it is back", |net| {
                net.agrees() && net.bus(1).member(id(3)).unwrap().services.is_empty()
            });
            assert_eq!(net.bus(2).member(id(3)).unwrap().health, Health::Alive, "{case}");
        }
    }
}

#[test]
fn refutations_that_somebody_made_up_keep_nobody_from_refuting() {
    for refuted in [u64::MAX, 1 << 62, 1 << 32, 1 << 20, 9] {
        for failed in [true, false] {
            let mut net = settled();
            let news = made_up(&net, 1, 0, refuted, failed);
            tell(&mut net, 4, &[1, 2, 3], &news);
            net.run(20_000);
            net.kill(3);
            net.run_until(12_000, "its failure", |net| net.bus(1).member(id(3)).unwrap().health == Health::Failed);
            net.start(3);
            let is_alive = |net: &Net| {
                let alive = |at| net.bus(at).member(id(3)).unwrap().health == Health::Alive;
                [1, 2, 3, 4].into_iter().all(alive) && net.agrees()
            };
            net.run_until(20_000, &format!("it lives, after {refuted}, {failed}"), is_alive);
        }
    }
}

#[test]
fn nobody_is_driven_to_the_end_of_the_numbers() {
    let mut net = settled();
    let news = made_up(&net, u64::MAX, 0, u64::MAX, true);
    for _ in 0..1_000 {
        tell(&mut net, 4, &[1, 2, 3], &news);
    }
    let own = net.bus(3).members.get(id(3)).unwrap();
    assert!(own.incarnation.0 < 1 << 43 && own.life.refuted < 1 << 43, "{own:?}");
    let known = net.bus(1).members.get(id(3)).unwrap();
    assert!(known.incarnation.0 <= own.incarnation.0 && known.life.refuted <= own.life.refuted, "{known:?}");
    net.run_until(20_000, "it lives", |net| net.agrees() && net.bus(1).member(id(3)).unwrap().health == Health::Alive);
}

#[test]
fn nobody_gets_a_vote_of_one_epoch_twice() {
    let mut net = settled();
    let cluster = ClusterId::from_bytes([9; 16]);
    let bus = net.bus(2);
    let (base, voters) = (bus.primary(group(1)).unwrap().1, bus.voters.fingerprint());
    let slots = bus.claims.get(group(1)).unwrap().slots.clone();
    for (sequence, epoch, votes) in [(1, 100, 1), (2, 100, 1), (3, 102, 2)] {
        let request = crate::packet::VoteRequest {
            group: group(1),
            purpose: crate::packet::Purpose::Slots,
            epoch: Epoch(epoch),
            base,
            voters,
            offset: 0,
            failed: None,
            slots: slots.clone(),
            taken: crate::slot::SlotSet::EMPTY,
        };
        let header = Header { incarnation: Incarnation(1), sequence: 1_000_000 + sequence };
        let bytes = encode(cluster, header, &Body::Request(request));
        let now = net.now();
        net.servers.get_mut(&2).unwrap().bus.as_mut().unwrap().handle_packet(now, id(1), &bytes);
        net.drain(2);
        net.run(20);
        let voted = |event: &&(u64, Event)| matches!(event.1, Event::Voted { epoch, .. } if epoch.0 >= 100);
        assert_eq!(net.servers[&2].events.iter().filter(voted).count(), votes, "{epoch}");
    }
}
