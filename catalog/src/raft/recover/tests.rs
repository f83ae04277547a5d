//! What one server goes on with alone, and what then stands in its log.

use super::super::form::{decode_log_id, decode_vote, encode_entry};
use super::super::host::StoredLog;
use super::super::sample::{Memory, at_once};
use super::super::types::{Entry, Logged};
use super::*;
use crate::change::CatalogVersion;
use crate::error::FormError;
use crate::record::Expected;
use crate::sample::{id, key, server_id};

const CLUSTER: ClusterId = ClusterId::from_bytes([7; 16]);

fn at(term: u64, index: u64) -> LogId {
    LogId::new_term_index(term, index)
}

/// An entry that writes a record of the entry's index.
fn entry(term: u64, index: u64) -> Entry {
    let number = u32::try_from(index).unwrap();
    let change = Change::PutRecord { key: key(&index.to_string()), expected: Expected::Absent, value: vec![1] };
    let command = Command { id: ProposalId(id(number)), seen: CatalogVersion(0), change };
    Entry { log_id: at(term, index), payload: Payload::Normal(Logged(Arc::new(command))) }
}

fn members_of(voters: &[u32]) -> Membership {
    let all: std::collections::BTreeMap<_, _> =
        voters.iter().map(|number| (server_id(*number), EmptyNode {})).collect();
    Membership::new(vec![all.keys().copied().collect()], all).unwrap()
}

/// A snapshot that has the entries 1 to 3, as a storage holds it.
fn snapshot() -> Vec<u8> {
    let mut state = State::new(CLUSTER);
    for index in 1..=3 {
        let Payload::Normal(logged) = entry(2, index).payload else { unreachable!("a command was asked for") };
        state.apply(&logged.0).unwrap();
    }
    let last_membership = StoredMembership::new(Some(at(1, 0)), members_of(&[1, 2, 3]));
    encode_snapshot(&SnapshotMeta { last_log_id: Some(at(2, 3)), last_membership }, &state.encode())
}

fn stored(entries: &[Entry], vote: Option<u64>, committed: Option<LogId>) -> StoredLog {
    let vote = vote.map(|term| Vote { leader_id: LeaderId { term, voted_for: server_id(2) }, committed: true });
    StoredLog {
        vote: vote.as_ref().map(encode_vote),
        committed: committed.as_ref().map(encode_log_id),
        entries: entries.iter().map(|entry| (entry.log_id.index(), encode_entry(entry))).collect(),
        ..StoredLog::default()
    }
}

fn names(state: &State) -> Vec<&str> {
    state.records_of("object/bucket").map(|record| record.key.name.as_str()).collect()
}

/// The log has nothing but a snapshot of a group of server 1 alone, at this position.
fn check_alone(memory: &Memory, state: &State, last: LogId) {
    let stored = memory.stored();
    assert_eq!(stored.entries, [], "the old log is gone");
    for position in [&stored.purged, &stored.committed] {
        assert_eq!(position.as_deref().map(decode_log_id), Some(Ok(last)));
    }
    let vote = decode_vote(stored.vote.as_deref().unwrap()).unwrap();
    assert_eq!((vote.leader_id.term, vote.leader_id.voted_for), (last.committed_leader_id().term, server_id(1)));
    assert!(!vote.committed, "it has yet to be elected");
    let (meta, data) = decode_snapshot(stored.snapshot.as_deref().unwrap()).unwrap();
    assert_eq!(meta.last_log_id, Some(last));
    assert_eq!(meta.last_membership, StoredMembership::new(Some(last), members_of(&[1])));
    assert_eq!(State::decode(&data).as_ref(), Ok(state));
    assert_eq!(state.voters(), [server_id(1)]);
}

#[test]
fn every_entry_that_the_server_has_is_applied() {
    let log = [entry(2, 2), entry(2, 3), entry(3, 4), entry(3, 5)];
    let with_snapshot = |committed| StoredLog { snapshot: Some(snapshot()), ..stored(&log, Some(3), committed) };
    for (stored, expected, uncommitted) in [
        (with_snapshot(Some(at(3, 5))), &["1", "2", "3", "4", "5"][..], 0),
        (with_snapshot(Some(at(3, 4))), &["1", "2", "3", "4", "5"], 1),
        (with_snapshot(None), &["1", "2", "3", "4", "5"], 2),
        (stored(&log, Some(3), Some(at(2, 3))), &["2", "3", "4", "5"], 2),
    ] {
        let memory = Memory::new(stored);
        let recovered = at_once(recover(Arc::new(memory.clone()), CLUSTER, server_id(1), 1_000)).unwrap();
        assert_eq!((names(&recovered.state), recovered.uncommitted), (expected.to_vec(), uncommitted));
        // One version for each record, the jump with its own command, and the voters.
        assert_eq!(recovered.state.version().0, expected.len() as u64 + 1_000 + 2);
        check_alone(&memory, &recovered.state, at(3 + (1 << 32), 5 + (1 << 32)));
    }
}

#[test]
fn the_voters_of_the_log_are_known_before_they_are_replaced() {
    let members = Entry { log_id: at(3, 3), payload: Payload::Membership(members_of(&[1, 2, 3])) };
    let blank = Entry { log_id: at(3, 4), payload: Payload::Blank };
    let memory = Memory::new(stored(&[entry(2, 2), members, blank], None, None));
    let recovered = at_once(recover(Arc::new(memory.clone()), CLUSTER, server_id(1), 0)).unwrap();
    assert_eq!((recovered.state.version().0, recovered.uncommitted), (4, 3), "a blank entry makes no version");
    check_alone(&memory, &recovered.state, at(3 + (1 << 32), 4 + (1 << 32)));
}

#[test]
fn terms_and_indexes_jump_past_whatever_the_server_knows() {
    let log = [entry(5, 8), entry(6, 9)];
    let state = State::new(CLUSTER);
    for (vote, snapshot, (term, index)) in
        [(None, None, (6, 9)), (Some(4), None, (6, 9)), (Some(7), None, (7, 9)), (Some(7), Some(snapshot()), (7, 9))]
    {
        let last = at(term + (1 << 32), index + (1 << 32));
        let memory = Memory::new(StoredLog { snapshot, ..stored(&log, vote, None) });
        let installed = at_once(install(Arc::new(memory.clone()), state.clone(), server_id(1), 3)).unwrap();
        assert_eq!((names(&installed), installed.version().0), (vec![], 3 + 2), "nothing of the log is applied");
        check_alone(&memory, &installed, last);
    }
    // Of a server that has a snapshot alone, what it covers counts; of one that has nothing, nothing does.
    for (stored, last) in [
        (StoredLog { snapshot: Some(snapshot()), ..StoredLog::default() }, at(2 + (1 << 32), 3 + (1 << 32))),
        (StoredLog::default(), at(1 << 32, 1 << 32)),
    ] {
        let memory = Memory::new(stored);
        let recovered = at_once(recover(Arc::new(memory.clone()), CLUSTER, server_id(1), 1)).unwrap();
        check_alone(&memory, &recovered.state, last);
    }
}

#[test]
fn what_cannot_be_read_or_written_is_left_as_it_is() {
    let good = stored(&[entry(2, 2)], None, None);
    for (damaged, error) in [
        (StoredLog { vote: Some(vec![2]), ..good.clone() }, FormError::UnknownVersion(2)),
        (StoredLog { snapshot: Some(vec![2]), ..good.clone() }, FormError::UnknownVersion(2)),
        (stored(&[entry(2, 2), entry(2, 4)], None, None), FormError::OutOfOrder("log entry")),
    ] {
        let memory = Memory::new(damaged.clone());
        let done = at_once(recover(Arc::new(memory.clone()), CLUSTER, server_id(1), 1));
        assert_eq!((done, memory.stored()), (Err(Error::Damaged(error)), damaged));
    }
    let memory = Memory::new(good.clone());
    memory.fail();
    let done = at_once(recover(Arc::new(memory.clone()), CLUSTER, server_id(1), 1));
    assert!(matches!(done, Err(Error::Storage(_))), "{done:?}");
    assert_eq!(memory.stored(), good);
}
