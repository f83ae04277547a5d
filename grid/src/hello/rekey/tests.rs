//! Both sides prove the new secret; nothing else passes for a proof.

use super::*;
use crate::hello::PeerLimits;
use crate::seam::Lane;
use ashlar_wire::id::Incarnation;

const A: ServerId = ServerId::from_bytes(*b"server a........");
const B: ServerId = ServerId::from_bytes(*b"server b........");

fn secret(byte: u8) -> Secret {
    Secret::from_bytes([byte; 32])
}

fn rotating() -> Secrets {
    Secrets::rotating(secret(2), secret(1))
}

fn rekey(own: ServerId, peer: ServerId, session: u64, binding: u8) -> Rekey {
    let session = Session {
        peer,
        incarnation: Incarnation(1),
        peer_address: "peer:1".to_owned(),
        lane: Lane::Small,
        peer_limits: PeerLimits {
            calls_in_flight_max: 1,
            streams_open_max: 1,
            chunk_max: 1,
            payload_max: 1,
            routes_max: 1,
        },
        version: 1,
        features: 0,
        key: secret(1).key_id(),
        id: session,
        salt: None,
    };
    Rekey::new(own, &session, [binding; 32])
}

#[test]
fn golden_bytes() {
    let (a, b) = (rekey(A, B, 5, 9), rekey(B, A, 5, 9));
    let (_, challenge) = a.challenge(&rotating(), [3; 32]);
    let answer = b.answer(&rotating(), &challenge).unwrap();
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(hex(&challenge), include_str!("../golden/rekey_challenge.hex").trim());
    assert_eq!(hex(&answer), include_str!("../golden/rekey_answer.hex").trim());
    assert!(challenge.len() <= REKEY_LEN_MAX && answer.len() <= REKEY_LEN_MAX);
}

#[test]
fn both_sides_prove_the_newest_secret() {
    for (asker, prover) in [(rekey(A, B, 5, 9), rekey(B, A, 5, 9)), (rekey(B, A, 5, 9), rekey(A, B, 5, 9))] {
        let (pending, challenge) = asker.challenge(&rotating(), [3; 32]);
        let answer = prover.answer(&rotating(), &challenge).unwrap();
        assert_eq!(asker.verify(&pending, &answer), Ok(secret(2).key_id()));
    }
}

#[test]
fn whoever_lacks_the_newest_secret_says_so() {
    let (_, challenge) = rekey(A, B, 5, 9).challenge(&rotating(), [3; 32]);
    let answer = rekey(B, A, 5, 9).answer(&Secrets::new(secret(1)), &challenge);
    assert_eq!(answer, Err(RekeyError::UnknownKey(secret(2).key_id())));
}

#[test]
fn an_answer_counts_only_where_it_was_asked_for() {
    let asker = rekey(A, B, 5, 9);
    // Who answers what; only the first is right.
    let cases = [
        ("right", rekey(B, A, 5, 9), [3; 32], Ok(secret(2).key_id())),
        ("another session", rekey(B, A, 6, 9), [3; 32], Err(RekeyError::BadProof)),
        ("another channel", rekey(B, A, 5, 8), [3; 32], Err(RekeyError::BadProof)),
        ("an earlier nonce", rekey(B, A, 5, 9), [4; 32], Err(RekeyError::BadProof)),
        ("the asker's own answer", rekey(A, B, 5, 9), [3; 32], Err(RekeyError::BadProof)),
        ("a third server", rekey(ServerId::from_bytes([7; 16]), A, 5, 9), [3; 32], Err(RekeyError::BadProof)),
    ];
    for (what, prover, nonce, expected) in cases {
        let (pending, _) = asker.challenge(&rotating(), [3; 32]);
        let (_, challenge) = asker.challenge(&rotating(), nonce);
        let answer = prover.answer(&rotating(), &challenge).unwrap();
        assert_eq!(asker.verify(&pending, &answer), expected, "{what}");
    }
}

#[test]
fn altered_and_cut_messages_prove_nothing() {
    let (asker, prover) = (rekey(A, B, 5, 9), rekey(B, A, 5, 9));
    let (_, challenge) = asker.challenge(&rotating(), [3; 32]);
    let answer = prover.answer(&rotating(), &challenge).unwrap();
    let passes = |challenge: &[u8], alter: &dyn Fn(&mut Vec<u8>)| {
        let mut answer = prover.answer(&rotating(), challenge)?;
        alter(&mut answer);
        asker.verify(&asker.challenge(&rotating(), [3; 32]).0, &answer)
    };
    assert!(passes(&challenge, &|_| {}).is_ok());
    for at in 0..challenge.len() {
        let mut altered = challenge.clone();
        altered[at] ^= 1;
        assert!(passes(&altered, &|_| {}).is_err(), "challenge, byte {at}");
        assert!(passes(&challenge[..at], &|_| {}).is_err(), "challenge, cut at {at}");
    }
    for at in 0..answer.len() {
        assert!(passes(&challenge, &|answer| answer[at] ^= 1).is_err(), "answer, byte {at}");
        assert!(passes(&challenge, &|answer| answer.truncate(at)).is_err(), "answer, cut at {at}");
    }
    for more in [1, REKEY_LEN_MAX] {
        assert!(passes(&challenge, &|answer| answer.resize(answer.len() + more, 0)).is_err());
        assert!(passes(&[&challenge[..], &vec![0; more]].concat(), &|_| {}).is_err());
    }
}

#[test]
fn errors_say_what_to_do() {
    let key = KeyId(0xab);
    let cases = [
        (
            RekeyError::UnknownKey(key),
            "the peer asks for the cluster secret 00000000000000ab, which is not held here: copy it",
        ),
        (RekeyError::BadProof, "the peer did not prove the newest cluster secret"),
    ];
    for (error, text) in cases {
        assert_eq!(error.to_string(), text);
    }
    let malformed = format!("the peer's rekey message is malformed: {}", PackError::Malformed);
    assert_eq!(RekeyError::from(PackError::Malformed).to_string(), malformed);
}
