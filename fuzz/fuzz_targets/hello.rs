//! The grid's hello, both sides, against a peer without the secret: whatever he sends, and however he alters what the
//! two say to each other, nobody panics and nobody gets a session out of words that were not said.
#![no_main]

use ashlar_grid::hello::{Acceptor, Dialer, HelloConfig, HelloError, PeerLimits, Secrets, Step};
use ashlar_grid::seam::Lane;
use ashlar_wire::id::{ClusterId, Incarnation, ServerId};
use ashlar_wire::secret::Secret;
use libfuzzer_sys::arbitrary::{self, Arbitrary};

/// What the man in the middle does with one of the four messages.
#[derive(Debug, Arbitrary)]
enum Deed {
    Pass,
    Replace(Vec<u8>),
    Alter { at: u16, bits: u8 },
    Insert { at: u16, bytes: Vec<u8> },
    Cut(u16),
}

impl Deed {
    fn apply(&self, message: &mut Vec<u8>) {
        let index = |at: u16, len: usize| usize::from(at) % len;
        match self {
            Self::Pass => {}
            Self::Replace(bytes) => message.clone_from(bytes),
            Self::Alter { at, bits } => {
                let at = index(*at, message.len());
                message[at] ^= bits;
            }
            Self::Insert { at, bytes } => {
                let at = index(*at, message.len() + 1);
                message.splice(at..at, bytes.iter().copied());
            }
            Self::Cut(len) => message.truncate(usize::from(*len)),
        }
    }
}

fn config(server: u8) -> HelloConfig {
    HelloConfig {
        cluster: ClusterId::from_bytes([1; 16]),
        server: ServerId::from_bytes([server; 16]),
        incarnation: Incarnation(1),
        address: "server.example:7000".to_owned(),
        secrets: Secrets::rotating(Secret::from_bytes([3; 32]), Secret::from_bytes([2; 32])),
        limits: PeerLimits {
            calls_in_flight_max: 1,
            streams_open_max: 1,
            chunk_max: 16_384,
            payload_max: 1 << 24,
            routes_max: 1,
        },
        always_checksum: true,
        lane: Lane::Small,
        expected_peer: None,
        channel_binding: [9; 32],
    }
}

fn sent(step: Step) -> Vec<u8> {
    let Step::Send(bytes) = step else { panic!("a message was expected, not {step:?}") };
    bytes
}

/// Whether each message reached the other side as it was said.
fn talk(deeds: &[Deed; 4], heard: &mut [bool; 4]) -> Result<(), HelloError> {
    let mut pass = |index: usize, message: &mut Vec<u8>| {
        let said = message.clone();
        deeds[index].apply(message);
        heard[index] = *message == said;
    };
    let (mut dialer, mut hello) = Dialer::new(config(1), [1; 32]);
    let mut acceptor = Acceptor::new(config(2), [2; 32]);
    pass(0, &mut hello);
    let mut challenge = sent(acceptor.handle_message(&hello)?);
    pass(1, &mut challenge);
    let mut proof = sent(dialer.handle_message(&challenge)?);
    pass(2, &mut proof);
    let Step::Authenticated(_) = acceptor.handle_message(&proof)? else { panic!("a proof is decided on") };
    let (mut welcome, at_acceptor) = acceptor.welcome(7);
    pass(3, &mut welcome);
    let Step::Done(at_dialer) = dialer.handle_message(&welcome)? else { panic!("a welcome is the end") };
    assert_eq!((at_dialer.id, at_dialer.key, at_dialer.salt), (at_acceptor.id, at_acceptor.key, at_acceptor.salt));
    Ok(())
}

libfuzzer_sys::fuzz_target!(|deeds: [Deed; 4]| {
    let mut heard = [false; 4];
    let result = talk(&deeds, &mut heard);
    assert_eq!(result.is_ok(), heard == [true; 4], "{result:?} after {heard:?}");
    if let Err(error) = result {
        assert!(error.refusal_to_send().is_none_or(|refusal| refusal.len() <= ashlar_grid::hello::HELLO_LEN_MAX));
    }
});
