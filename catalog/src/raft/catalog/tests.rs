//! Spans of a catalog as Raft takes them, and what people read of an error.

use super::*;
use crate::error::{Refusal, Subject};

fn config() -> CatalogConfig {
    CatalogConfig {
        heartbeat: Duration::from_millis(110),
        election_min: Duration::from_millis(620),
        election_max: Duration::from_millis(1_230),
        snapshot_entries: 34,
        kept_entries: 5,
        ..CatalogConfig::default()
    }
}

#[test]
fn raft_is_told_all_spans_and_limits() {
    let raft = config().for_raft().unwrap();
    let spans = (raft.heartbeat_interval, raft.election_timeout_min, raft.election_timeout_max);
    assert_eq!(spans, (110, 620, 1_230));
    assert_eq!(raft.max_payload_entries, 256, "as many as a message may have");
    let SnapshotPolicy::LogsSinceLast(entries) = raft.snapshot_policy else { panic!("{:?}", raft.snapshot_policy) };
    assert_eq!((entries, raft.max_in_snapshot_log_to_keep), (34, 5));
    assert_eq!(raft.replication_lag_threshold, 39, "whoever lacks more than is kept needs a snapshot");
    assert_eq!((raft.enable_pre_vote, raft.enable_leader_restore), (Some(true), Some(false)));
    let endless = CatalogConfig { snapshot_entries: u64::MAX, ..config() };
    assert_eq!(endless.for_raft().unwrap().replication_lag_threshold, u64::MAX);
}

#[test]
fn spans_that_contradict_each_other_are_refused() {
    let (heartbeat, election_min, election_max) = (config().heartbeat, config().election_min, config().election_max);
    for wrong in [
        CatalogConfig { election_min: election_max, election_max: election_min, ..config() },
        CatalogConfig { heartbeat: election_min, election_min: heartbeat, ..config() },
    ] {
        assert_eq!(wrong.for_raft().err(), Some(Error::BadConfig));
    }
    assert!(CatalogConfig::default().for_raft().is_ok());
}

#[test]
fn errors_in_words() {
    let storage = StorageError("no drive".into());
    let refused = Refused::from(Refusal::Unknown(Subject::Feature));
    for (error, text) in [
        (Error::Refused(refused.clone()), refused.reason.clone()),
        (Error::BadConfig, "the catalog's spans of time contradict each other".into()),
        (Error::NotAllowed("none"), "not allowed: none".into()),
        (Error::Unknown, "no leader has answered: the change may or may not be applied".into()),
        (Error::from(storage.clone()), storage.to_string()),
        (Error::from(FormError::NotThis), format!("the catalog's log cannot be read: {}", FormError::NotThis)),
        (Error::from(Fatal::<Types>::Stopped), "the catalog has stopped".into()),
        (Error::from(Fatal::<Types>::Panicked), "the catalog has stopped".into()),
    ] {
        assert_eq!(error.to_string(), text);
    }
}
