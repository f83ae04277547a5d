//! Quotas of buckets, and what buckets have.

use super::*;
use crate::api::Versions;
use crate::index::Usage;

fn usage(service: &ObjectService<Memory>) -> Usage {
    run(service.usage("bucket")).unwrap()
}

#[test]
fn a_bucket_has_at_most_its_quota() {
    let (memory, service) = Memory::with_drives(3);
    put(&service, "a", &pattern(5_000));
    run(service.set_quota("bucket", Some(8_000))).unwrap();
    let put_more = |key: &str, len: usize| put_if(&service, key, &pattern(len), Condition::default());
    put_more("b", 3_000).unwrap();
    assert_eq!(usage(&service), Usage { objects: 2, bytes: 8_000, ..Usage::default() });
    let shards = memory.shards();
    assert_eq!(put_more("c", 1).unwrap_err(), Error::OverQuota);
    assert_eq!(put_more("a", 5_001).unwrap_err(), Error::OverQuota);
    assert_eq!(memory.shards(), shards, "nothing is left of what was refused");
    put_more("c", 0).unwrap();
    put_more("a", 5_000).unwrap();
    // A quota below what is there: nothing goes, nothing more comes.
    run(service.set_quota("bucket", Some(10))).unwrap();
    assert!(read(&service, "a", None).unwrap() == pattern(5_000));
    put_more("a", 4_000).unwrap();
    assert_eq!(put_more("a", 4_001).unwrap_err(), Error::OverQuota);
    delete_if(&service, "a", None, &Condition::default()).unwrap();
    run(service.set_quota("bucket", None)).unwrap();
    put_more("d", 9_000).unwrap();
    assert_eq!(usage(&service), Usage { objects: 3, bytes: 12_000, ..Usage::default() });
    assert_eq!(run(service.usage("other")), Err(Error::NoSuchBucket));
}

#[test]
fn older_versions_and_parts_count_and_completing_an_upload_takes_no_room() {
    let (memory, service) = Memory::with_drives(3);
    run(service.set_state("bucket", Versioning::Enabled)).unwrap();
    put(&service, "old", &pattern(100));
    put(&service, "old", &pattern(200));
    delete_if(&service, "old", None, &Condition::default()).unwrap();
    let bytes_min = usize::try_from(PART_BYTES_MIN).unwrap();
    run(service.set_quota("bucket", Some(PART_BYTES_MIN + 1_000))).unwrap();
    let upload = run(service.begin("bucket", "key", Attributes::default(), Lock::default(), None)).unwrap();
    let one = put_part(&service, &upload, 1, &pattern(bytes_min));
    let two = put_part(&service, &upload, 2, &pattern(700));
    assert_eq!(usage(&service), Usage { objects: 0, versions: 3, parts: 2, bytes: PART_BYTES_MIN + 1_000 });
    let shards = memory.shards();
    let again = run(service.put_part("bucket", "key", &upload, 2, &unencrypted, &mut given(&pattern(701))));
    assert_eq!(again.unwrap_err(), Error::OverQuota);
    assert_eq!(memory.shards(), shards);
    run(service.complete("bucket", "key", &upload, completion(vec![one, two]))).unwrap();
    assert_eq!(usage(&service), Usage { objects: 1, versions: 3, parts: 0, bytes: PART_BYTES_MIN + 1_000 });
}
