//! Permits: the object that a change finds is asked, whatever was there before.

use super::*;
use crate::api::{Permit, Versions as _};
use crate::lock::LockChange;

/// The service with `bucket`, which keeps no versions, and `kept`, whose versions can be locked.
fn buckets() -> ObjectService<Memory> {
    let (_, service) = Memory::with_drives(3);
    run(service.create("kept", Attributes::default(), Versioning::Locked)).unwrap();
    service
}

fn put_level(service: &ObjectService<Memory>, bucket: &str, level: &str) -> Option<VersionId> {
    let attributes = Attributes(vec![("level".into(), level.into())]);
    let request = PutRequest { bucket: bucket.into(), key: "key".into(), attributes, ..PutRequest::default() };
    run(service.put(request, &mut given(level.as_bytes()))).unwrap().version
}

fn is_open(object: &Object) -> bool {
    object.attributes.get("level") == Some("open")
}

/// Deletes what is open.
fn delete_open(service: &ObjectService<Memory>, bucket: &str, version: Option<VersionId>) -> Result<Deletion, Error> {
    let target = Target { bucket, key: "key", version };
    let (condition, attributes) = (Condition::default(), Attributes::default());
    let (bypass, permit) = (Bypass::Denied, Permit::by(&is_open));
    run(Objects::delete(
        service,
        DeleteRequest { target, condition: &condition, attributes: &attributes, bypass, permit },
    ))
}

#[test]
fn a_deletion_asks_the_object_that_it_finds() {
    let service = buckets();
    for bucket in ["bucket", "kept"] {
        put_level(&service, bucket, "shut");
        assert_eq!(delete_open(&service, bucket, None), Err(Error::Denied), "{bucket}");
        assert!(run(service.head(Target::current(bucket, "key"))).is_ok(), "{bucket}: it is still there");
        put_level(&service, bucket, "open");
        assert_eq!(delete_open(&service, bucket, None).map(|deletion| deletion.is_marker), Ok(bucket == "kept"));
        assert!(run(service.head(Target::current(bucket, "key"))).is_err(), "{bucket}: it is gone");
        assert!(delete_open(&service, bucket, None).is_ok(), "{bucket}: there is nobody to ask");
    }
}

#[test]
fn a_deletion_of_a_version_asks_that_version() {
    let service = buckets();
    let (shut, open) = (put_level(&service, "kept", "shut"), put_level(&service, "kept", "open"));
    let shut_again = put_level(&service, "kept", "shut");
    let head = |version| run(service.head(Target { bucket: "kept", key: "key", version }));
    for version in [shut, shut_again] {
        assert_eq!(delete_open(&service, "kept", version), Err(Error::Denied), "an older one, the current one");
        assert!(head(version).is_ok());
    }
    assert!(delete_open(&service, "kept", open).is_ok());
    assert_eq!(head(open), Err(Error::NoSuchVersion));
}

#[test]
fn a_lock_is_changed_of_what_may_be() {
    let service = buckets();
    let hold = || {
        let target = Target::current("kept", "key");
        run(service.relock(target, LockChange::LegalHold(true), Bypass::Denied, Permit::by(&is_open)))
    };
    put_level(&service, "kept", "shut");
    assert_eq!(hold(), Err(Error::Denied));
    assert_eq!(run(service.head(Target::current("kept", "key"))).unwrap().lock.legal_hold, None);
    put_level(&service, "kept", "open");
    assert_eq!(hold().unwrap().lock.legal_hold, Some(true));
}
