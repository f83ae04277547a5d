//! Majorities, promises, and what is written of both. How nodes keep to them is shown in the simulator (`ashlar sim quorum`).

use std::sync::{Arc, Mutex};

use super::oath::Bound;
use super::{Members, Oaths, Term, readers, writers};
use crate::cluster::map::Name;

fn name(number: u8) -> Name {
    Name::new([number; 20])
}

fn members(names: &[u8]) -> Members {
    Members { now: names.iter().map(|number| name(*number)).collect(), next: None }
}

fn term(epoch: u64, life: u64) -> Term {
    Term { epoch, life }
}

#[test]
fn writers_and_readers_always_meet() {
    for count in 1..=super::MEMBERS_MAX {
        assert!(writers(count) * 2 > count, "two groups of writers meet");
        assert_eq!(writers(count) + readers(count), count + 1, "the fewest readers that meet each group of writers");
    }
}

#[test]
fn committed_is_what_a_majority_has() {
    let has = |name: Name| u64::from(name.bytes()[0]) * 10;
    assert_eq!(members(&[5]).committed(has), 50);
    assert_eq!(members(&[1, 5]).committed(has), 10);
    assert_eq!(members(&[1, 2, 5]).committed(has), 20);
    assert_eq!(members(&[1, 2, 4, 5]).committed(has), 20);
    assert_eq!(members(&[1, 5]).towards(vec![name(5)]).committed(has), 10, "both have to agree");
    assert_eq!(members(&[5]).towards(vec![name(1), name(2), name(5)]).committed(has), 20);
}

#[test]
fn sealed_is_what_no_majority_avoids() {
    let by = |sworn: &'static [u8]| move |name: Name| sworn.contains(&name.bytes()[0]);
    assert!(members(&[1, 2]).is_sealed_by(by(&[2])), "two write together, so one is enough");
    assert!(!members(&[1, 2, 3]).is_sealed_by(by(&[2])));
    assert!(members(&[1, 2, 3]).is_sealed_by(by(&[2, 3])));
    let changing = members(&[1, 2, 3]).towards(vec![name(3), name(4), name(5)]);
    assert!(!changing.is_sealed_by(by(&[1, 2, 3])));
    assert!(changing.is_sealed_by(by(&[1, 3, 4])));
    assert_eq!(changing.settled(), Some(members(&[3, 4, 5])));
}

#[test]
fn what_is_written_is_read() {
    for one in [Members::default(), members(&[1]), members(&[1, 2]), members(&[1]).towards(vec![name(1), name(9)])] {
        assert_eq!(Members::read(&one.to_string()), Some(one.clone()), "{one}");
    }
    assert_eq!(members(&[1, 2]).to_string(), format!("{},{}", "01".repeat(20), "02".repeat(20)));
    assert_eq!(Term::read(&term(7, 3).to_string()), Some(term(7, 3)));
    for wrong in ["", "x", "01", &format!("{0},{0},{0},{0},{0},{0},{0},{0}", "01".repeat(20))] {
        assert_eq!(Members::read(wrong), None, "{wrong}");
    }
    for wrong in ["", "1", "1.", ".1", "1.x", "-1.1"] {
        assert_eq!(Term::read(wrong), None, "{wrong}");
    }
}

#[test]
fn promises_hold_and_outlive_the_process() {
    let (shard, drive) = (name(7), Arc::new(Mutex::new(String::new())));
    let open = || {
        let (oaths, kept) = (Oaths::default(), drive.lock().unwrap().clone());
        let drive = Arc::clone(&drive);
        let keep = move |text: &str| {
            text.clone_into(&mut drive.lock().unwrap());
            true
        };
        oaths.open(&kept, Box::new(keep)).unwrap();
        oaths
    };
    let oaths = open();
    assert_eq!(oaths.swear(shard, term(3, 1), name(1)), Ok(()));
    assert_eq!(oaths.swear(shard, term(3, 1), name(1)), Ok(()), "it may ask again");
    assert_eq!(oaths.swear(shard, term(3, 1), name(2)), Err(Bound(term(3, 1))), "one term has one holder");
    assert!(oaths.note_members(shard, &members(&[1, 2])));
    let oaths = open();
    assert_eq!(oaths.swear(shard, term(2, 9), name(2)), Err(Bound(term(3, 1))));
    assert_eq!(oaths.swear(shard, term(3, 2), name(1)), Ok(()), "a later life of the same");
    assert_eq!(oaths.swear(name(8), term(1, 1), name(2)), Ok(()), "another shard");
    let oath = open().of(shard).expect("it was kept");
    assert_eq!((oath.term, oath.holder, oath.members), (term(3, 2), name(1), members(&[1, 2])));
    assert_eq!(Oaths::default().open("nonsense\n", Box::new(|_| true)), Err(1));
    let kept = drive.lock().unwrap().clone();
    for at in 0..kept.len() {
        let mut damaged = kept.clone().into_bytes();
        damaged[at] ^= 1;
        let damaged = String::from_utf8(damaged).expect("one bit of a letter makes another");
        assert!(Oaths::default().open(&damaged, Box::new(|_| true)).is_err(), "{at}");
        assert!(Oaths::default().open(&kept[..at], Box::new(|_| true)).is_err() || at == 0, "cut at {at}");
    }
    assert_eq!(kept.lines().last(), Some("check 006ad967bfc3bf6d"));
}

#[test]
fn who_is_promised_a_later_term_may_serve_its_earlier_one_unless_another_came_between() {
    let (oaths, shard) = (Oaths::default(), name(7));
    assert_eq!(oaths.swear(shard, term(14, 2), name(1)), Ok(()));
    assert_eq!(oaths.swear(shard, term(15, 2), name(1)), Ok(()));
    assert_eq!(oaths.swear(shard, term(14, 2), name(1)), Ok(()), "it makes sure of the later one meanwhile");
    assert_eq!(oaths.swear(shard, term(21, 1), name(3)), Ok(()));
    assert_eq!(oaths.swear(shard, term(22, 2), name(1)), Ok(()));
    assert_eq!(oaths.swear(shard, term(15, 2), name(1)), Err(Bound(term(22, 2))), "21.1 may have committed since");
    assert_eq!(oaths.swear(shard, term(22, 2), name(1)), Ok(()));
}

#[test]
fn what_cannot_be_kept_is_not_promised() {
    let oaths = Oaths::default();
    oaths.open("", Box::new(|_| false)).unwrap();
    assert_eq!(oaths.swear(name(7), term(3, 1), name(1)), Err(Bound(Term::default())));
    assert!(oaths.of(name(7)).is_none() && !oaths.note_members(name(7), &members(&[1])));
}
