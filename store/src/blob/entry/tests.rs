use super::*;
use arbtest::arbtest;

fn put() -> LogEntry {
    LogEntry {
        blob: BlobId::from_bytes(*b"blob------------"),
        stamp: 0x0102_0304_0506_0708,
        len: 0x0009_0a0b,
        header_len: 0x0102,
        kind: EntryKind::Aligned,
        place: Place(0x0d0e_0f10),
    }
}

fn encode(entry: &LogEntry) -> [u8; ENTRY_LEN] {
    let mut bytes = [0; ENTRY_LEN];
    entry.encode(&mut FieldWriter::new(&mut bytes));
    bytes
}

#[test]
fn golden_bytes() {
    let golden =
        b"blob------------\x01\x02\x03\x04\x05\x06\x07\x08\x00\x09\x0a\x0b\x01\x02\x02\x00\x0d\x0e\x0f\x10\0\0\0\0";
    assert_eq!(&encode(&put()), golden);
    assert_eq!(LogEntry::decode(&mut FieldReader::new(golden)), Some(put()));
    let removal = LogEntry::removal(BlobId::from_bytes(*b"blob------------"));
    assert_eq!(&encode(&removal), b"blob------------\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\0\0");
    let packed = LogEntry { kind: EntryKind::Packed, ..put() };
    assert_eq!(encode(&packed)[30], 1);
}

#[test]
fn what_is_decoded_is_encoded_again() {
    arbtest(|u| {
        let mut bytes = encode(&put());
        for _ in 0..u.int_in_range(0..=6)? {
            bytes[u.int_in_range(0..=ENTRY_LEN - 1)?] = u.arbitrary()?;
        }
        if let Some(entry) = LogEntry::decode(&mut FieldReader::new(&bytes)) {
            assert_eq!(encode(&entry), bytes);
            assert!(usize::from(entry.header_len) <= HEADER_BYTES_MAX);
        }
        Ok(())
    });
    assert_eq!(LogEntry::decode(&mut FieldReader::new(&[1; ENTRY_LEN - 1])), None);
}

#[test]
fn records_lie_behind_each_other() {
    let entry = |kind, len| LogEntry { kind, len, header_len: 3, ..put() };
    let span = entry(EntryKind::Packed, 5_000).span_from(100);
    // A head of 48 bytes, 8 for the header, 16 for two checksums.
    assert_eq!(span, RecordSpan { head: 112, head_end: 184, data: 184, end: 5_184 });
    let span = entry(EntryKind::Aligned, 5_000).span_from(100);
    assert_eq!(span, RecordSpan { head: 112, head_end: 184, data: 4_096, end: 12_288 });
    assert_eq!(entry(EntryKind::Packed, 5_000).footprint(), 80 + 5_072);
    assert_eq!(LogEntry::removal(BlobId::default()).footprint(), 80);
}
