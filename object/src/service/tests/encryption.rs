//! Encrypted objects over drives: what lies on them is never the content, and what was changed there is never told.

use super::healing::heal;
use super::*;
use crate::api::Encryption;
use crate::cipher::{CHUNK_BYTES, PLAIN_BLOCK_BYTES};

const KEY: [u8; 32] = [7; 32];

fn encryption() -> Option<Encryption> {
    let envelope = KeyEnvelope(Bytes::from_static(b"envelope"));
    Some(Encryption { data_key: DataKey::from_bytes(KEY), envelope })
}

fn put_encrypted(service: &ObjectService<Memory>, key: &str, bytes: &[u8]) -> Object {
    let request =
        PutRequest { bucket: "bucket".into(), key: key.into(), encryption: encryption(), ..PutRequest::default() };
    run(service.put(request, &mut given(bytes))).unwrap()
}

fn read_with(
    service: &ObjectService<Memory>,
    name: &str,
    range: Option<Bytes_>,
    key: Option<[u8; 32]>,
) -> Result<Vec<u8>, Error> {
    run(async {
        let mut opened = Objects::get(service, Target::current("bucket", name), range, &Condition::default()).await?;
        assert_eq!(opened.object.envelope, encryption().map(|encryption| encryption.envelope));
        key.into_iter().for_each(|key| opened.content.decrypt_with(DataKey::from_bytes(key)));
        let mut bytes = Vec::new();
        while let Some(piece) = opened.content.next().await? {
            bytes.extend_from_slice(&piece);
        }
        assert_eq!(bytes.len() as u64, opened.range.1);
        Ok(bytes)
    })
}

#[test]
fn encrypted_objects_are_read_whole_and_in_ranges() {
    let (chunk, block) = (CHUNK_BYTES as usize, PLAIN_BLOCK_BYTES as usize);
    for drives in [1, 3, 5] {
        let (_, service) = Memory::with_drives(drives);
        for len in [0, 1, chunk - 1, chunk, chunk + 1, block - 1, block, block + 1, 2 * block, 2 * block + chunk + 7] {
            let bytes = pattern(len);
            let object = put_encrypted(&service, "key", &bytes);
            assert_eq!((object.bytes, object.parts.len()), (len as u64, 0));
            assert!(read_with(&service, "key", None, Some(KEY)).unwrap() == bytes, "{drives} {len}");
            let edges = [0, 1, chunk - 1, chunk, chunk + 1, block - 1, block, block + 1, 2 * block];
            for first in edges.into_iter().filter(|first| *first < len) {
                for count in [1, 2, chunk, chunk + 1, len] {
                    let last = (first + count - 1).min(len - 1);
                    let range = Some(Bytes_::Between(first as u64, last as u64));
                    let part = read_with(&service, "key", range, Some(KEY)).unwrap();
                    assert!(part == bytes[first..=last], "{drives} {len} {first} {count}");
                }
            }
        }
    }
}

#[test]
fn without_the_key_there_is_nothing() {
    let (memory, service) = Memory::with_drives(3);
    let bytes = vec![b'a'; 200_000];
    put_encrypted(&service, "key", &bytes);
    assert_eq!(read_with(&service, "key", None, None), Err(Error::Damaged));
    assert_eq!(read_with(&service, "key", None, Some([8; 32])), Err(Error::Damaged));
    let world = memory.world();
    let shards = world.drives.values().flat_map(BTreeMap::values);
    assert!(shards.into_iter().all(|shard| !shard.windows(8).any(|window| window == b"aaaaaaaa")));
}

#[test]
fn no_byte_on_a_drive_can_be_changed() {
    let (memory, service) = Memory::with_drives(1);
    put_encrypted(&service, "key", b"a small object");
    let blob = *memory.world().drives.values().next().unwrap().keys().next().unwrap();
    let drive = *memory.world().drives.keys().next().unwrap();
    let stored = memory.world().drives[&drive][&blob].clone();
    assert_eq!(stored.len(), 14 + 16);
    for at in 0..stored.len() {
        let mut changed = stored.to_vec();
        changed[at] ^= 0x40;
        memory.world().drives.get_mut(&drive).unwrap().insert(blob, Bytes::from(changed));
        assert_eq!(read_with(&service, "key", None, Some(KEY)), Err(Error::Damaged), "{at}");
    }
    memory.world().drives.get_mut(&drive).unwrap().insert(blob, stored);
    assert_eq!(read_with(&service, "key", None, Some(KEY)).unwrap(), b"a small object");
}

#[test]
fn blocks_of_objects_cannot_be_exchanged() {
    let (memory, service) = Memory::with_drives(1);
    let drive = *memory.world().drives.keys().next().unwrap();
    let bytes = pattern(2 * PLAIN_BLOCK_BYTES as usize);
    put_encrypted(&service, "one", &bytes);
    put_encrypted(&service, "two", &bytes);
    let blobs: Vec<(BlobId, Bytes)> =
        memory.world().drives[&drive].iter().map(|(blob, bytes)| (*blob, bytes.clone())).collect();
    assert_eq!(blobs.len(), 4);
    for (one, _) in &blobs {
        for (_, other) in blobs.iter().filter(|(other, _)| other != one) {
            memory.world().drives.get_mut(&drive).unwrap().insert(*one, other.clone());
            let reads = ["one", "two"].map(|name| read_with(&service, name, None, Some(KEY)));
            assert_eq!(reads.iter().filter(|read| **read == Err(Error::Damaged)).count(), 1);
            let own = blobs.iter().find(|(blob, _)| blob == one).unwrap().1.clone();
            memory.world().drives.get_mut(&drive).unwrap().insert(*one, own);
        }
    }
}

#[test]
fn parts_of_an_encrypted_upload() {
    let (_, service) = Memory::with_drives(3);
    let envelope = encryption().map(|encryption| encryption.envelope);
    let upload = run(service.begin("bucket", "key", Attributes::default(), Lock::default(), envelope.clone())).unwrap();
    let unwrap = |found: Option<&KeyEnvelope>| {
        assert_eq!(found, envelope.as_ref());
        Ok(Some(DataKey::from_bytes(KEY)))
    };
    let refused = run(service.put_part("bucket", "key", &upload, 1, &|_| Err(Error::WrongKey), &mut given(b"x")));
    assert_eq!(refused, Err(Error::WrongKey));
    let (long, short) = (pattern(PART_BYTES_MIN as usize + 1), pattern(9));
    let mut named = Vec::new();
    for (number, content) in (1..).zip([&long, &long, &short]) {
        let put = run(service.put_part("bucket", "key", &upload, number, &unwrap, &mut given(content))).unwrap();
        assert_eq!((put.bytes, put.envelope), (content.len() as u64, envelope.clone()));
        named.push((number, put.etag));
    }
    let listed = run(Uploads::list(&service, "bucket", Some(("key", &upload)))).unwrap();
    assert_eq!((listed[0].0.envelope.clone(), listed[0].1[0].bytes), (envelope, PART_BYTES_MIN + 1));
    let object = run(service.complete("bucket", "key", &upload, completion(named))).unwrap();
    assert_eq!(object.parts, [PART_BYTES_MIN + 1, PART_BYTES_MIN + 1, 9]);
    let whole = [&long[..], &long, &short].concat();
    assert!(read_with(&service, "key", None, Some(KEY)).unwrap() == whole);
    let edge = PART_BYTES_MIN + 1;
    let over = Some(Bytes_::Between(edge - 3, edge + 4));
    assert_eq!(read_with(&service, "key", over, Some(KEY)).unwrap(), whole[edge as usize - 3..=edge as usize + 4]);
}

#[test]
fn encrypted_objects_are_healed_without_their_key() {
    let (memory, service) = Memory::with_drives(3);
    let drives: Vec<DriveId> = memory.world().drives.keys().copied().collect();
    memory.world().down.insert(drives[2]);
    let bytes = pattern(PLAIN_BLOCK_BYTES as usize + 70_000);
    put_encrypted(&service, "key", &bytes);
    memory.world().down.clear();
    let (bucket, _) = run(service.bucket("bucket")).unwrap();
    assert_eq!(heal(&service, bucket, heal::HealDepth::Noted).healed, 1);
    memory.world().down.insert(drives[0]);
    assert!(read_with(&service, "key", None, Some(KEY)).unwrap() == bytes);
}
