//! Locks of versions: what they keep, also when a deletion and a lock meet.

use super::*;
use crate::api::{Permit, Versions as _, VersionsRequest};
use crate::lock::{LockChange, Retention, RetentionMode};

const FOREVER: u64 = u64::MAX;

fn lockable() -> (Memory, ObjectService<Memory>) {
    let (memory, service) = Memory::with_drives(3);
    run(service.create("locked", Attributes::default(), Versioning::Locked)).unwrap();
    (memory, service)
}

/// Another server over the same cluster.
fn other(memory: &Memory) -> ObjectService<Memory> {
    ObjectService::new(Arc::new(memory.clone()), Arc::new(memory.clone()))
}

fn retained(mode: RetentionMode, until_ms: u64) -> Lock {
    Lock { retention: Some(Retention { mode, until_ms }), legal_hold: None }
}

fn put_locked(service: &ObjectService<Memory>, bucket: &str, lock: Lock) -> Result<Object, Error> {
    let request = PutRequest { bucket: bucket.into(), key: "key".into(), lock, ..PutRequest::default() };
    run(service.put(request, &mut given(b"kept")))
}

async fn remove(
    service: &ObjectService<Memory>,
    version: Option<VersionId>,
    bypass: Bypass,
) -> Result<Deletion, Error> {
    let target = Target { bucket: "locked", key: "key", version };
    let (condition, attributes) = (Condition::default(), Attributes::default());
    Objects::delete(
        service,
        DeleteRequest { target, condition: &condition, attributes: &attributes, bypass, permit: Permit::ALWAYS },
    )
    .await
}

async fn hold(service: &ObjectService<Memory>, version: Option<VersionId>, is_on: bool) -> Result<Object, Error> {
    let target = Target { bucket: "locked", key: "key", version };
    service.relock(target, LockChange::LegalHold(is_on), Bypass::Denied, Permit::ALWAYS).await
}

#[test]
fn a_locked_version_is_kept_and_its_key_can_be_deleted() {
    let (_, service) = lockable();
    let held = Lock { legal_hold: Some(true), ..retained(RetentionMode::Governance, FOREVER) };
    let kept = put_locked(&service, "locked", held).unwrap();
    assert_eq!((kept.lock, kept.version.is_some()), (held, true));
    // The current version, and an older one behind a mark and behind another version.
    for step in 0..3 {
        for bypass in [Bypass::Denied, Bypass::Granted] {
            assert_eq!(run(remove(&service, kept.version, bypass)), Err(Error::Locked), "{step}");
        }
        match step {
            0 => assert!(run(remove(&service, None, Bypass::Denied)).unwrap().is_marker),
            _ => drop(put_locked(&service, "locked", Lock::default()).unwrap()),
        }
    }
    let target = Target { bucket: "locked", key: "key", version: kept.version };
    assert_eq!(run(service.head(target)).unwrap().lock, held);
    let edited = run(service.edit_object(target, &|_| Ok(Attributes(vec![("n".into(), "v".into())])))).unwrap();
    assert_eq!(edited.lock, held);
    run(hold(&service, kept.version, false)).unwrap();
    assert_eq!(run(remove(&service, kept.version, Bypass::Denied)), Err(Error::Locked));
    run(remove(&service, kept.version, Bypass::Granted)).unwrap();
    assert_eq!(run(service.head(target)), Err(Error::NoSuchVersion));
}

#[test]
fn nobody_ends_a_retention_in_compliance_mode_but_time() {
    let (memory, service) = lockable();
    let until_ms = memory.world().drawn + 1_000;
    let kept = put_locked(&service, "locked", retained(RetentionMode::Compliance, until_ms)).unwrap();
    let target = Target { bucket: "locked", key: "key", version: kept.version };
    let relock = |mode, until_ms| {
        let change = LockChange::Retention(Some(Retention { mode, until_ms }));
        run(service.relock(target, change, Bypass::Granted, Permit::ALWAYS)).map(|object| object.lock)
    };
    assert_eq!(relock(RetentionMode::Governance, until_ms + 1), Err(Error::Locked));
    assert_eq!(relock(RetentionMode::Compliance, until_ms - 1), Err(Error::Locked));
    let longer = retained(RetentionMode::Compliance, until_ms + 1);
    assert_eq!(relock(RetentionMode::Compliance, until_ms + 1), Ok(longer));
    assert_eq!(run(remove(&service, kept.version, Bypass::Granted)), Err(Error::Locked));
    memory.world().drawn = until_ms + 1;
    run(remove(&service, kept.version, Bypass::Denied)).unwrap();
}

#[test]
fn an_upload_keeps_its_lock() {
    let (_, service) = lockable();
    let lock = retained(RetentionMode::Compliance, FOREVER);
    let upload = run(service.begin("locked", "key", Attributes::default(), lock, None)).unwrap();
    let part = run(service.put_part("locked", "key", &upload, 1, &unencrypted, &mut given(b"part"))).unwrap();
    let done = run(service.complete("locked", "key", &upload, completion(vec![(1, part.etag)]))).unwrap();
    assert_eq!(done.lock, lock);
    assert_eq!(run(remove(&service, done.version, Bypass::Granted)), Err(Error::Locked));
}

#[test]
fn which_buckets_can_have_locks() {
    let (memory, service) = lockable();
    assert_eq!(run(service.state("locked")), Ok(Versioning::Locked));
    assert_eq!(run(service.set_state("locked", Versioning::Suspended)), Err(Error::BadState));
    assert_eq!(run(service.set_state("locked", Versioning::Enabled)), Ok(()));
    assert_eq!(run(service.set_state("locked", Versioning::Locked)), Ok(()));
    assert_eq!(run(service.state("locked")), Ok(Versioning::Locked));
    let lock = retained(RetentionMode::Governance, FOREVER);
    let late = other(&memory);
    for state in [Versioning::Suspended, Versioning::Enabled] {
        assert_eq!(put_locked(&late, "bucket", lock), Err(Error::NotLockable));
        let begun = run(late.begin("bucket", "key", Attributes::default(), lock, None));
        assert_eq!(begun, Err(Error::NotLockable));
        put(&late, "key", b"plain");
        let change = LockChange::LegalHold(true);
        let relocked = run(late.relock(Target::current("bucket", "key"), change, Bypass::Denied, Permit::ALWAYS));
        assert_eq!(relocked, Err(Error::NotLockable));
        assert_eq!(run(service.set_state("bucket", Versioning::Locked)), Err(Error::BadState));
        run(service.set_state("bucket", state)).unwrap();
    }
    // What was put before has a version without a name; it can be kept, too.
    run(service.set_state("bucket", Versioning::Locked)).unwrap();
    assert_eq!(put_locked(&late, "bucket", lock).map(|object| object.lock), Ok(lock));
    let null = Target { version: Some(VersionId::Null), ..Target::current("bucket", "key") };
    run(late.relock(null, LockChange::LegalHold(true), Bypass::Denied, Permit::ALWAYS)).unwrap();
    assert_eq!(delete_if(&service, "key", null.version, &Condition::default()), Err(Error::Locked));
    // A bucket that exists already is not made again, and stays as it is.
    assert_eq!(run(service.create("locked", Attributes::default(), Versioning::Locked)), Err(Error::BucketExists));
}

/// A deletion at one server has come so far when a legal hold is put at another, for every "so far".
#[test]
fn a_deletion_and_a_lock_that_meet_come_one_after_the_other() {
    let mut outcomes = [0, 0];
    for is_current in [true, false] {
        for polls in 0..64 {
            let (memory, service) = lockable();
            let kept = put_locked(&service, "locked", Lock::default()).unwrap();
            if !is_current {
                put_locked(&service, "locked", Lock::default()).unwrap();
            }
            let twin = other(&memory);
            let mut deletion = pin!(remove(&twin, kept.version, Bypass::Granted));
            let mut cx = Context::from_waker(Waker::noop());
            let early = (0..polls).find_map(|_| match deletion.as_mut().poll(&mut cx) {
                Poll::Ready(done) => Some(done),
                Poll::Pending => None,
            });
            let held = run(hold(&service, kept.version, true));
            let deleted = early.unwrap_or_else(|| run(deletion));
            let target = Target { bucket: "locked", key: "key", version: kept.version };
            match held {
                Ok(_) => {
                    assert_eq!(deleted, Err(Error::Locked), "{polls}");
                    assert_eq!(run(service.head(target)).unwrap().lock.legal_hold, Some(true));
                    outcomes[0] += 1;
                }
                Err(error) => {
                    assert_eq!((error, deleted.is_ok()), (Error::NoSuchVersion, true), "{polls}");
                    let page = VersionsRequest { limit: 9, ..VersionsRequest::default() };
                    let left = run(service.versions_page("locked", &page)).unwrap().entries.len();
                    assert_eq!(left, usize::from(!is_current));
                    outcomes[1] += 1;
                }
            }
        }
    }
    assert!(outcomes.iter().all(|outcome| *outcome > 2), "both orders: {outcomes:?}");
}
