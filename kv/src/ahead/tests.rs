use std::cell::RefCell;
use std::sync::Arc;

use super::*;
use crate::resp::{Parser, RequestLimits};
use crate::tests::Talk;

thread_local! {
    static FETCHED: RefCell<Vec<(usize, usize)>> = const { RefCell::new(Vec::new()) };
}

fn note(from: *const u8, bytes: usize) {
    FETCHED.with_borrow_mut(|fetched| fetched.push((from.addr(), bytes)));
}

fn fetched() -> Vec<(usize, usize)> {
    FETCHED.take()
}

fn request(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    words.iter().for_each(|word| bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes()));
    bytes
}

#[test]
fn requests_are_cut_where_the_parser_cuts_them() {
    let long = "x".repeat(300);
    let batch: Vec<u8> = [
        &["GET", "one"][..],
        &["PING"],
        &["SET", "", "value\r\n$3\r\n"],
        &["MSET", "a", "1", "b", "2"],
        &["SET", &long, &long],
        &["zadd", "z", "1", "member"],
    ]
    .into_iter()
    .flat_map(request)
    .collect();
    let limits = RequestLimits { word_bytes_max: 1 << 20, is_known: true };
    let (mut parser, mut at) = (Parser::default(), 0);
    while at < batch.len() {
        let len = parser.parse(&batch[at..], limits).unwrap().unwrap();
        let args = parser.args(&batch[at..]);
        let member = args.get(if args.is(0, "ZADD") { 3 } else { 2 });
        let guess = Guess { key: args.get(1), member };
        assert_eq!(next_guess(&batch[at..]), Some((guess, len)), "at {at}");
        assert_eq!(next_guess(&batch[at..at + len]), Some((guess, len)), "alone, at {at}");
        for end in 0..len {
            assert_eq!(next_guess(&batch[at..at + end]), None, "{end} bytes at {at}");
        }
        at += len;
    }
}

#[test]
fn what_is_no_array_of_words_is_left_alone() {
    for odd in [
        "",
        "\r\n",
        "GET a\r\n",
        "*",
        "*\r\n",
        "*0\r\n",
        "*-1\r\n",
        "*x\r\n",
        "*1\r\n",
        "*1\r\n:3\r\n",
        "*1\r\n$-1\r\n",
        "*1\r\n$\r\n\r\n",
        "*2\r\n$3\r\nGET\r\n$9999999999\r\n",
        "*99999999999999999999\r\n",
        "*2\r\n$3\r\nGET\r\n$999999999\r\nabc\r\n",
    ] {
        assert_eq!(next_guess(odd.as_bytes()), None, "{odd:?}");
    }
}

#[test]
fn the_records_of_a_batch_are_brought_near() {
    let mut talk = Talk::new();
    let engine = talk.engine_shared();
    engine.fetch_ahead_with(note);
    for number in 0..100 {
        talk.raw(0, &request(&["SET", &format!("key:{number}"), &"v".repeat(200)]));
    }
    assert_eq!(fetched(), [], "new keys that come alone");
    talk.raw(0, &request(&["GET", "key:7"]));
    assert_eq!(fetched().len(), 1, "the record of one that comes alone");
    let keys: Vec<String> = (0..40).map(|number| format!("key:{}", number * 2)).collect();
    let batch: Vec<u8> = keys.iter().flat_map(|key| request(&["GET", key])).collect();
    talk.raw(0, &batch);
    let fetched = fetched();
    for name in &keys {
        let key = engine.keyspace.key(name.as_bytes());
        let shard = engine.keyspace.shard(engine.keyspace.shard_of(key.slot));
        let record = shard.record(shard.find(0, key).unwrap());
        let value = record.value().as_ptr_range();
        let is_covered =
            |(from, bytes): &(usize, usize)| *from <= record.key().as_ptr().addr() && value.end.addr() <= from + bytes;
        assert_eq!(fetched.iter().filter(|range| is_covered(range)).count(), 1, "{name}");
    }
    assert!(fetched.len() < keys.len() * 4, "three each, and a rare one in vain: {}", fetched.len());
}

#[test]
fn members_of_a_large_collection_are_brought_near() {
    for (add, ask) in [("HSET h M v", "HGET h M"), ("SADD s M", "SISMEMBER s M"), ("ZADD z 1 M", "ZSCORE z M")] {
        let mut talk = Talk::new();
        let engine = talk.engine_shared();
        engine.fetch_ahead_with(note);
        let say = |line: &str, number: u32| {
            let line = line.replace('M', &format!("member-{number}"));
            request(&line.split(' ').collect::<Vec<_>>())
        };
        for number in 0..1_000 {
            talk.raw(0, &say(add, number));
        }
        _ = fetched();
        talk.raw(0, &say(ask, 7));
        assert_eq!(fetched().len(), 1, "the record of one that comes alone: {ask}");
        let batch: Vec<u8> = (0..16).flat_map(|number| say(ask, number * 3)).collect();
        talk.raw(0, &batch);
        let fetched = fetched();
        let key = engine.keyspace.key(ask.split(' ').nth(1).unwrap().as_bytes());
        let shard = engine.keyspace.shard(engine.keyspace.shard_of(key.slot));
        let dict = shard.object(shard.find(0, key).unwrap()).dict().unwrap();
        for number in 0..16 {
            let name = format!("member-{}", number * 3);
            let entry = dict.get(engine.keyspace.hash_key(), name.as_bytes()).unwrap();
            let member = entry.member.as_ptr_range();
            let is_covered =
                |(from, bytes): &(usize, usize)| *from <= member.start.addr() && member.end.addr() <= from + bytes;
            assert_eq!(fetched.iter().filter(|range| is_covered(range)).count(), 1, "{name} of {ask}");
        }
    }
}

#[test]
fn each_request_gets_its_own_key() {
    let engine = Talk::new().engine_shared();
    let words: Vec<String> = (0..50).map(|number| format!("key:{number}")).collect();
    let mut batch: Vec<u8> = words[..40].iter().flat_map(|word| request(&["GET", word])).collect();
    batch.extend(b"GET inline\r\n");
    let odd = batch.len();
    batch.extend(request(&["GET", "behind"]));
    let (mut ahead, mut at) = (Ahead::default(), 0);
    for word in &words[..40] {
        let found = ahead.handle_request(&engine, 0, &batch, at).unwrap();
        assert_eq!(found, engine.keyspace.key(word.as_bytes()), "at {at}");
        at += next_guess(&batch[at..]).unwrap().1;
    }
    assert_eq!(ahead.handle_request(&engine, 0, &batch, at), None, "no array");
    assert_eq!(ahead.handle_request(&engine, 0, &batch, odd), None, "and nothing behind it");
}

#[test]
fn a_shard_that_is_held_is_passed_over() {
    let talk = Talk::new();
    let engine: Arc<Engine> = talk.engine_shared();
    let key = engine.keyspace.key(b"key");
    let held = engine.keyspace.shard(engine.keyspace.shard_of(key.slot));
    engine.keyspace.fetch_ahead(0, &[Some(key), None, Some(key)], note);
    assert_eq!(fetched(), []);
    drop(held);
}

/// What is looked at again with each piece that comes is bounded, however long the request becomes.
#[test]
fn requests_of_many_words_are_not_looked_at() {
    let request = |words: usize| [format!("*{words}\r\n"), "$1\r\nk\r\n".repeat(words)].concat();
    let most = request(WORDS_MAX);
    let (guess, len) = next_guess(most.as_bytes()).unwrap();
    assert_eq!((guess.key, len), (Some(&b"k"[..]), most.len()));
    assert_eq!(next_guess(request(WORDS_MAX + 1).as_bytes()), None);
}
