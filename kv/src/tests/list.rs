//! Lists, and commands that wait for one.

use super::{Talk, check_all};

#[test]
fn conversations() {
    check_all(include_str!("list.txt"));
}

#[test]
fn a_client_that_has_left_gets_nothing() {
    let mut talk = Talk::new();
    let (one, other) = (talk.join(), talk.join());
    assert_eq!((one, other), (1, 2));
    assert_eq!(talk.say(1, "BLPOP a 0"), "");
    assert_eq!(talk.say(2, "BLPOP a 0"), "");
    assert_eq!(talk.engine().waiting.clients(), 2);
    talk.leave(1);
    assert_eq!(talk.engine().waiting.clients(), 1);
    assert_eq!(talk.say(0, "RPUSH a 1 2"), "2");
    assert_eq!(super::readable(&talk.mail(1)), "[\"a\" \"1\"]");
    assert_eq!(talk.say(0, "LRANGE a 0 -1"), "[\"2\"]");
    assert_eq!(talk.engine().waiting.clients(), 0);
}

#[test]
fn long_lists_change_their_form() {
    let mut talk = Talk::new();
    let long = "x".repeat(3_000);
    for step in 1..=8 {
        assert_eq!(talk.say(0, &format!("RPUSH a {long}{step}")), step.to_string());
    }
    assert_eq!(talk.say(0, "OBJECT ENCODING a"), "\"quicklist\"");
    assert_eq!(talk.say(0, "LPOS a nosuch COUNT 0"), "[]");
    assert_eq!(talk.say(0, "LTRIM a 7 7"), "OK");
    assert_eq!(talk.say(0, "OBJECT ENCODING a"), "\"listpack\"");
    assert_eq!(talk.say(0, "RPOP a"), format!("\"{long}8\""));
    assert_eq!(talk.say(0, "EXISTS a"), "0");
}

/// Steps aside until something is so; too often is an error, not a wait without end.
fn until(mut is_so: impl FnMut() -> bool) {
    for _ in 0..3_000_000 {
        if is_so() {
            return;
        }
        std::thread::yield_now();
    }
    panic!("nobody is served");
}

#[test]
fn many_threads_lose_and_double_nothing() {
    const PUSHED: usize = 3_000;
    let talk = Talk::new();
    let engine = talk.engine_shared();
    let popped: Vec<String> = std::thread::scope(|scope| {
        let pusher = |name: &'static str| {
            let mut talk = Talk::with(std::sync::Arc::clone(&engine));
            scope.spawn(move || {
                for number in 0..PUSHED {
                    talk.say(0, &format!("LPUSH {name} {name}{number}"));
                    // Taken before the next one comes: those that take have to wait again and again.
                    until(|| talk.say(0, &format!("LLEN {name}")) == "0");
                }
            })
        };
        let popper = |names: &'static str| {
            let mut talk = Talk::with(std::sync::Arc::clone(&engine));
            scope.spawn(move || {
                let mut got = Vec::new();
                while got.len() < PUSHED {
                    let mut reply = talk.say(0, &format!("BRPOP {names} 0"));
                    until(|| {
                        if reply.is_empty() {
                            reply = super::readable(&talk.mail(0));
                        }
                        !reply.is_empty()
                    });
                    assert!(!reply.contains('\n'), "served twice: {reply}");
                    got.push(reply);
                }
                got
            })
        };
        let pushers = [pusher("a"), pusher("b")];
        let poppers = [popper("a b"), popper("b a")];
        pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
        poppers.into_iter().flat_map(|popper| popper.join().unwrap()).collect()
    });
    let distinct: std::collections::BTreeSet<&String> = popped.iter().collect();
    assert_eq!((popped.len(), distinct.len()), (2 * PUSHED, 2 * PUSHED));
    assert_eq!(engine.waiting.clients(), 0);
}
