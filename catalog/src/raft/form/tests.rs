//! Golden bytes of Raft's values, and that they come back as they were.

use arbtest::arbtest;
use openraft::raft::AppendEntriesRequest;

use super::*;
use crate::change::{CatalogVersion, Change, ProposalId};
use crate::error::{RefusalKind, Refused};
use crate::raft::message::{Message, Reply};
use crate::sample::{id, server_id};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn members(voters: &[u32], learners: &[u32]) -> Membership {
    let voters: BTreeSet<ServerId> = voters.iter().copied().map(server_id).collect();
    let all = voters.iter().copied().chain(learners.iter().copied().map(server_id));
    let all: BTreeMap<ServerId, EmptyNode> = all.map(|server| (server, EmptyNode {})).collect();
    Membership::new(vec![voters], all).unwrap()
}

fn entries() -> [Entry; 3] {
    let command = Command { id: ProposalId(id(9)), seen: CatalogVersion(4), change: Change::JumpEpochs(1) };
    let entry = |index, payload| Entry { log_id: LogId::new_term_index(3, index), payload };
    [
        entry(7, Payload::Blank),
        entry(8, Payload::Normal(Logged(Arc::new(command)))),
        entry(9, Payload::Membership(members(&[1], &[2]))),
    ]
}

fn vote() -> Vote {
    Vote { leader_id: LeaderId { term: 3, voted_for: server_id(1) }, committed: true }
}

fn meta() -> SnapshotMeta {
    let at = LogId::new_term_index(3, 9);
    SnapshotMeta { last_log_id: Some(at), last_membership: StoredMembership::new(Some(at), members(&[1], &[2])) }
}

#[test]
fn golden_bytes() {
    let [blank, command, membership] = entries();
    let one = "c41000000000000000000000000000000001";
    let two = "c41000000000000000000000000000000002";
    let cases = [
        (encode_entry(&blank), "01030701".to_owned()),
        (encode_entry(&command), "0103080201c4100000000000000000000000000000000904".to_owned() + "1801"),
        (encode_entry(&membership), format!("010309030101{one}02{one}{two}")),
        (encode_vote(&vote()), format!("0103{one}01")),
        (encode_log_id(&LogId::new_term_index(3, 300)), "0103cd012c".to_owned()),
        (encode_snapshot(&meta(), b"ab"), format!("010103090103090101{one}02{one}{two}c4026162")),
    ];
    for (bytes, golden) in cases {
        assert_eq!(hex(&bytes), golden);
    }
    for entry in entries() {
        assert_eq!(decode_entry(&encode_entry(&entry)), Ok(entry));
    }
    assert_eq!(decode_vote(&encode_vote(&vote())), Ok(vote()));
    assert_eq!(decode_snapshot(&encode_snapshot(&meta(), b"ab")), Ok((meta(), b"ab".to_vec())));
}

#[test]
fn members_are_read_as_they_can_be() {
    let read = |members: &str| {
        let bytes = format!("01030903{members}");
        let bytes: Vec<u8> =
            (0..bytes.len()).step_by(2).map(|at| u8::from_str_radix(&bytes[at..at + 2], 16).unwrap()).collect();
        decode_entry(&bytes).map(|entry| match entry.payload {
            Payload::Membership(members) => members,
            other => panic!("{other:?}"),
        })
    };
    let (one, two) = ("c41000000000000000000000000000000001", "c41000000000000000000000000000000002");
    let learners = Membership::new(vec![], BTreeMap::from([(server_id(1), EmptyNode {})])).unwrap();
    assert_eq!(read("0000"), Ok(Membership::default()));
    assert_eq!(read(&format!("0001{one}")), Ok(learners), "nobody votes");
    assert_eq!(read(&format!("0101{one}02{one}{two}")), Ok(members(&[1], &[2])));
    for (bytes, error) in [
        (format!("0101{one}00"), FormError::NotThis),
        (format!("0101{one}01{two}"), FormError::NotThis),
        (format!("0101{one}02{two}{one}"), FormError::OutOfOrder("server")),
        (format!("0101{one}02{one}{one}"), FormError::OutOfOrder("server")),
        ("0300000000".to_owned(), FormError::TooMany { what: "configs", count: 3, max: 2 }),
    ] {
        assert_eq!(read(&bytes), Err(error), "{bytes}");
    }
}

#[test]
fn a_command_of_the_log_is_shown_by_what_its_proposer_had_seen() {
    let [_, command, _] = entries();
    let Payload::Normal(logged) = command.payload else { panic!("it is a command") };
    assert_eq!(logged.to_string(), "a command seen at version 4");
}

#[test]
fn messages_and_back() {
    let request = AppendEntriesRequest {
        vote: vote(),
        prev_log_id: Some(LogId::new_term_index(2, 6)),
        entries: entries().to_vec(),
        leader_commit: None,
    };
    let chunk = SnapshotChunk { vote: vote(), meta: meta(), len: 10, offset: 4, data: vec![1, 2] };
    let messages = [
        Message::Append(request),
        Message::Vote(VoteRequest::new(vote(), None)),
        Message::PreVote(VoteRequest::new(vote(), Some(LogId::new_term_index(1, 1)))),
        Message::Snapshot(chunk),
        Message::AddLearner(server_id(1)),
        Message::ChangeVoters(vec![server_id(1), server_id(2)]),
        Message::Remove(server_id(3)),
        Message::ReadIndex,
    ];
    for message in messages {
        let bytes = message.encode();
        assert_eq!(Message::decode(&bytes).unwrap().encode(), bytes, "{message:?}");
        assert!(Message::decode(&bytes[..bytes.len() - 1]).is_err());
    }
    for leadership_transfer in [false, true] {
        let asked = VoteRequest { leadership_transfer, ..VoteRequest::new(vote(), None) };
        let read = Message::decode(&Message::Vote(asked).encode()).unwrap();
        assert!(matches!(read, Message::Vote(read) if read.leadership_transfer == leadership_transfer));
    }
    let replies = [
        Reply::Appended(AppendEntriesResponse::PartialSuccess(Some(LogId::new_term_index(1, 2)))),
        Reply::Appended(AppendEntriesResponse::HigherVote(vote())),
        Reply::Voted(VoteResponse::new(vote(), None, true)),
        Reply::SnapshotTaken(vote()),
        Reply::Refused(Refused { kind: RefusalKind::Stale, reason: "later".into() }),
        Reply::NotLeader(Some(server_id(1))),
        Reply::NotLeader(None),
        Reply::ChunkTaken,
        Reply::Done,
        Reply::Index(7),
        Reply::Unavailable,
    ];
    for reply in replies {
        let bytes = reply.encode();
        assert_eq!(Reply::decode(&bytes).unwrap().encode(), bytes, "{reply:?}");
    }
}

#[test]
fn arbitrary_bytes_make_no_message_or_one_that_comes_back() {
    let good =
        Message::Snapshot(SnapshotChunk { vote: vote(), meta: meta(), len: 10, offset: 4, data: vec![1] }).encode();
    arbtest(|u| {
        let mut bytes = good.clone();
        for _ in 0..u.int_in_range(1..=5)? {
            let place = u.int_in_range(0..=bytes.len() - 1)?;
            bytes[place] = u.arbitrary()?;
        }
        bytes[1] = u.int_in_range(1..=8)?;
        if let Ok(message) = Message::decode(&bytes) {
            let again = message.encode();
            assert_eq!(Message::decode(&again).unwrap().encode(), again);
        }
        let _ = Reply::decode(&bytes);
        Ok(())
    });
}
