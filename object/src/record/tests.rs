use arbtest::arbtest;

use super::*;
use crate::lock::{Retention, RetentionMode};

fn content(number: u8, bytes: u64) -> PartContent {
    let drives = [1, 2, 3].map(|drive| DriveId::from_bytes([drive; 16]));
    PartContent {
        id: PartId([number; 12]),
        bytes,
        is_encrypted: false,
        spread: Spread { parity: 1, drives: drives.to_vec() },
        number: 0,
        names: ShardNames::OfBlock,
        missing: vec![],
    }
}

fn object() -> ObjectRecord {
    ObjectRecord {
        version: VersionId::Null,
        sequence: 0x0102,
        put_id: [9; 16],
        etag: "e".into(),
        modified_ms: 0x0102,
        attributes: Attributes(vec![("n".into(), "v".into())]),
        lock: Lock::default(),
        is_multipart: true,
        envelope: None,
        parts: vec![content(4, 7), PartContent { number: 3, missing: vec![2], ..content(5, 8) }],
    }
}

fn lock() -> Lock {
    let retention = Some(Retention { mode: RetentionMode::Compliance, until_ms: 7 });
    Lock { retention, legal_hold: Some(true) }
}

fn envelope() -> Option<KeyEnvelope> {
    Some(KeyEnvelope(Bytes::from_static(&[8, 9])))
}

fn encrypted() -> ObjectRecord {
    let mut record = ObjectRecord { sequence: 0x0304, envelope: envelope(), ..object() };
    record.parts.iter_mut().for_each(|part| part.is_encrypted = true);
    record
}

fn marker_record(version: VersionId) -> MarkerRecord {
    MarkerRecord { version, sequence: 0x0304, modified_ms: 6, attributes: Attributes::default() }
}

#[test]
fn golden_bytes() {
    let mut expected = vec![1, 0];
    expected.extend([9; 16]);
    expected.extend([0, 1, b'e', 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 1, 0, 1, b'n', 0, 1, b'v', 1]);
    // One list of drives for both parts.
    expected.extend([0, 0, 0, 1, 1, 3]);
    expected.extend([[1; 16], [2; 16], [3; 16]].concat());
    expected.extend([0, 0, 0, 2]);
    expected.extend([4; 12]);
    expected.extend([0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0]);
    expected.extend([5; 12]);
    expected.extend([0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 3, 0, 1, 2]);
    assert_eq!(object().encode(), expected);
    // A version: the same behind what says which one it is.
    let version = VersionId::Named { sequence: 0x0304, drawn: 5 };
    let head = [2, 0, 0, 0, 0, 0, 0, 0, 3, 4, 1, 0, 0, 0, 0, 0, 0, 0, 5];
    assert_eq!(ObjectRecord { version, sequence: 0x0304, ..object() }.encode(), [&head, &expected[2..]].concat());
    let head = [2, 0, 0, 0, 0, 0, 0, 0, 3, 4, 0];
    assert_eq!(ObjectRecord { sequence: 0x0304, ..object() }.encode(), [&head, &expected[2..]].concat());
    let marker = [1, 3, 0, 0, 0, 0, 0, 0, 3, 4, 1, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0];
    assert_eq!(marker_record(version).encode(), marker);
    // A version that is kept from deletion: the same behind what keeps it.
    let head = [3, 0, 0, 0, 0, 0, 0, 0, 3, 4, 0, 2, 0, 0, 0, 0, 0, 0, 0, 7, 2];
    let kept = ObjectRecord { sequence: 0x0304, lock: lock(), ..object() };
    assert_eq!(kept.encode(), [&head, &expected[2..]].concat());
    // One that is encrypted: the same behind its wrapped key.
    let head = [4, 0, 0, 0, 0, 0, 0, 0, 3, 4, 0, 0, 0, 0, 2, 8, 9];
    assert_eq!(encrypted().encode(), [&head, &expected[2..]].concat());
    let upload = UploadRecord {
        key: "k".into(),
        begun_ms: 3,
        attributes: Attributes::default(),
        lock: Lock::default(),
        envelope: None,
    };
    let form = [1, 1, 0, 1, b'k', 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0];
    assert_eq!(upload.encode(), form);
    let head = [2, 1, 2, 0, 0, 0, 0, 0, 0, 0, 7, 2];
    assert_eq!(UploadRecord { lock: lock(), ..upload.clone() }.encode(), [&head, &form[2..]].concat());
    let head = [3, 1, 0, 0, 0, 2, 8, 9];
    assert_eq!(UploadRecord { envelope: envelope(), ..upload }.encode(), [&head, &form[2..]].concat());
    let part =
        PartRecord { etag: "e".into(), modified_ms: 3, attributes: Attributes::default(), content: content(4, 7) };
    let form = part.encode();
    assert_eq!(form[..2], [1, 2]);
    let content = PartContent { is_encrypted: true, ..content(4, 7) };
    assert_eq!(PartRecord { content, ..part }.encode(), [&[2, 2], &form[2..]].concat());
    let header = ShardHeader {
        bucket: [7; 16],
        key: "key",
        upload: Some(([8; 16], 2)),
        part: PartId([4; 12]),
        geometry: (2, 1),
    };
    let mut expected = vec![1];
    expected.extend([7; 16]);
    expected.extend([4; 12]);
    expected.extend([0, 0, 0, 5, 0, 0, 1, 0, 2, 2, 1]);
    expected.extend([8; 16]);
    expected.extend([0, 2, 0, 3, b'k', b'e', b'y']);
    assert_eq!(header.encode(5, 256, 2), expected);
    let long = "k".repeat(KEY_BYTES_MAX);
    assert!(ShardHeader { key: &long, ..header }.encode(u32::MAX, BLOCK_BYTES, 31).len() <= 512);
}

#[test]
fn forms_are_read_back_or_refused() {
    let record = object();
    assert_eq!(ObjectRecord::decode(&Bytes::from(record.encode())), Ok(record.clone()));
    let part =
        PartRecord { etag: "e".into(), modified_ms: 1, attributes: Attributes::default(), content: content(1, 9) };
    assert_eq!(PartRecord::decode(&Bytes::from(part.encode())), Ok(part.clone()));
    let named = PartContent { number: 10_000, names: ShardNames::OfShard, ..content(1, 9) };
    let named_part = PartRecord { content: named, ..part.clone() };
    assert_eq!(PartRecord::decode(&Bytes::from(named_part.encode())), Ok(named_part));
    let encrypted_part = PartRecord { content: PartContent { is_encrypted: true, ..content(1, 9) }, ..part.clone() };
    assert_eq!(PartRecord::decode(&Bytes::from(encrypted_part.encode())), Ok(encrypted_part.clone()));
    let upload = UploadRecord {
        key: "ä".into(),
        begun_ms: 1,
        attributes: record.attributes.clone(),
        lock: Lock::default(),
        envelope: None,
    };
    let locked_upload = UploadRecord { lock: lock(), ..upload.clone() };
    let encrypted_upload = UploadRecord { envelope: envelope(), ..locked_upload.clone() };
    for upload in [&upload, &locked_upload, &encrypted_upload] {
        assert_eq!(UploadRecord::decode(&Bytes::from(upload.encode())), Ok(upload.clone()));
    }
    let version = VersionId::Named { sequence: 0x0304, drawn: 5 };
    let (kept, marker) = (ObjectRecord { version, sequence: 0x0304, ..object() }, marker_record(VersionId::Null));
    let read = |form: Vec<u8>| VersionRecord::decode(&Bytes::from(form));
    assert_eq!(read(kept.encode()), Ok(VersionRecord::Object(kept.clone())));
    assert_eq!(read(marker.encode()), Ok(VersionRecord::Marker(marker.clone())));
    let locked = ObjectRecord { lock: lock(), ..object() };
    assert_eq!(read(locked.encode()), Ok(VersionRecord::Object(locked.clone())));
    let encrypted = ObjectRecord { lock: lock(), ..encrypted() };
    assert_eq!(read(encrypted.encode()), Ok(VersionRecord::Object(encrypted.clone())));
    let forms = [record.encode(), part.encode(), upload.encode(), kept.encode(), marker.encode()];
    let newer = [locked.encode(), locked_upload.encode(), encrypted.encode(), encrypted_upload.encode()];
    for form in forms.into_iter().chain(newer).chain([encrypted_part.encode()]) {
        for len in 0..form.len() {
            let cut = Bytes::copy_from_slice(&form[..len]);
            assert!(ObjectRecord::decode(&cut).is_err() && PartRecord::decode(&cut).is_err());
            assert!(UploadRecord::decode(&cut).is_err() && VersionRecord::decode(&cut).is_err());
        }
    }
    arbtest(|u| {
        let bytes = Bytes::from(u.arbitrary::<Vec<u8>>()?);
        match VersionRecord::decode(&bytes) {
            Ok(VersionRecord::Object(record)) => {
                assert_eq!(ObjectRecord::decode(&Bytes::from(record.encode())), Ok(record));
            }
            Ok(VersionRecord::Marker(record)) => assert_eq!(record.encode(), bytes),
            Err(_) => {}
        }
        Ok(())
    });
}

#[test]
fn the_record_of_the_longest_upload_fits_into_the_index() {
    let parts: Vec<PartContent> = (0..PART_NUMBER_MAX)
        .map(|number| {
            let mut id = [0; 12];
            id[..4].copy_from_slice(&number.to_be_bytes());
            PartContent { id: PartId(id), ..content(0, 5 << 20) }
        })
        .collect();
    let record = ObjectRecord { parts, ..object() }.encode();
    assert!(record.len() + ATTRIBUTES_BYTES_MAX <= crate::index::request::VALUE_BYTES_MAX, "{}", record.len());
}

#[test]
fn blocks_and_shards_of_a_part() {
    let part = content(1, (2 << 20) + 5);
    assert_eq!((part.blocks(), part.block_bytes(1), part.block_bytes(2)), (3, 1 << 20, 5));
    assert_eq!((part.shard_bytes(0), part.shard_bytes(2)), (1 << 19, 3));
    // Encrypted, a block has a little less, so that it is not longer on drives.
    let part = PartContent { is_encrypted: true, ..content(1, u64::from(PLAIN_BLOCK_BYTES) + 5) };
    assert_eq!((part.blocks(), part.plain_bytes(0), part.plain_bytes(1)), (2, PLAIN_BLOCK_BYTES, 5));
    assert_eq!((part.block_bytes(0), part.block_bytes(1), part.shard_bytes(1)), (BLOCK_BYTES, 21, 11));
    assert_eq!(part.blob(258, 3).as_bytes()[12..], [0, 0, 1, 2], "from before");
    let named = PartContent { names: ShardNames::OfShard, ..part };
    assert_eq!(named.blob(258, 3).as_bytes()[12..], [3, 0, 1, 2]);
    assert_eq!(content(1, 0).blocks(), 0);
}

#[test]
fn a_version_tells_which_one_it_is() {
    let version = VersionId::Named { sequence: 0x0304, drawn: 5 };
    let kept = ObjectRecord { version, sequence: 0x0304, ..object() };
    for record in [VersionRecord::Object(kept), VersionRecord::Marker(marker_record(version))] {
        assert_eq!((record.version(), record.sequence()), (version, 0x0304));
    }
}

#[test]
fn more_drives_and_bytes_than_there_can_be_are_refused() {
    let drives_of = |drives: usize, parity: u8| {
        let form = [vec![parity, u8::try_from(drives).unwrap()], vec![7; 16 * drives]].concat();
        take_spread(&mut Cursor(Bytes::from(form))).map(|spread| (spread.drives.len(), spread.parity))
    };
    for (drives, parity) in [(1, 0), (2, 1), (SHARDS_MAX, 0), (SHARDS_MAX, 31)] {
        assert_eq!(drives_of(drives, parity), Ok((drives, parity)));
    }
    for (drives, parity) in [(0, 0), (1, 1), (2, 3), (SHARDS_MAX, 32), (SHARDS_MAX + 1, 0)] {
        assert_eq!(drives_of(drives, parity), Err(Malformed), "{drives} drives, {parity} of parity");
    }
    let read = |bytes: u64| {
        let (attributes, content) = (Attributes::default(), content(1, bytes));
        let part = PartRecord { etag: "e".into(), modified_ms: 1, attributes, content };
        PartRecord::decode(&Bytes::from(part.encode())).map(|part| part.content.bytes)
    };
    let longest = crate::api::PART_BYTES_MAX;
    assert_eq!([longest - 1, longest, longest + 1].map(read), [Ok(longest - 1), Ok(longest), Err(Malformed)]);
}
