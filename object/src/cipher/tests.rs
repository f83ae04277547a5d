use super::*;

const CHUNK: usize = CHUNK_BYTES as usize;
const STORED_CHUNK: usize = STORED_CHUNK_BYTES as usize;
const BLOCK: usize = PLAIN_BLOCK_BYTES as usize;

fn identity() -> PartIdentity<'static> {
    PartIdentity { bucket: BucketId([1; 16]), key: "key", upload: Some(([2; 16], 3)), part: PartId([4; 12]) }
}

fn cipher() -> PartCipher {
    DataKey::from_bytes([7; 32]).part(&identity())
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from(at % 251).expect("less than 251")).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A part as it is stored, block after block.
fn encrypt(cipher: &PartCipher, plain: &[u8]) -> Vec<u8> {
    let blocks = plain.len().div_ceil(BLOCK);
    let position = |number: usize| if number + 1 == blocks { Position::Last } else { Position::Inner };
    let numbered = plain.chunks(BLOCK).enumerate();
    let stored = numbered.map(|(number, block)| {
        cipher.encrypt_block(u32::try_from(number).expect("few blocks"), block, position(number))
    });
    stored.collect::<Vec<_>>().concat()
}

fn decrypt(cipher: &PartCipher, first: u32, stored: &[u8], bytes: usize) -> Result<Vec<u8>, NotAuthentic> {
    Ok(cipher.decrypt_chunks(first, stored.to_vec(), bytes as u64)?.concat())
}

/// Calculated by other implementations of BLAKE3 and AES-GCM.
#[test]
fn golden_bytes() {
    let stored = cipher().encrypt_block(0, b"content", Position::Last);
    assert_eq!(hex(&stored), "0a6cb2727ee6fde8cfe5652a31796e453d01d53dec3616");
    let inner = cipher().encrypt_block(1, &vec![0; BLOCK], Position::Inner);
    assert_eq!(inner.len(), BLOCK_BYTES as usize);
    assert_eq!(hex(&inner[..16]), "4a415f900f43542809bcd2a8fa4151ac");
    assert_eq!(hex(&inner[STORED_CHUNK - 16..STORED_CHUNK]), "a60d9a9ea18472b65b61884bc2811380");
    let secret = Secret::from_bytes([9; 32]);
    let wrapped = WrappingKey::derive(&secret, &[b"object"]).wrap(&DataKey::from_bytes([7; 32]));
    assert_eq!(
        hex(&wrapped),
        "8f2829de1b7e10d0a5ac6638b850c6921cb9133b79fb78d9fc407350bb9556e6b5f2ab5f93408fd663302030d7a5ba81"
    );
}

#[test]
fn parts_of_all_lengths_are_read_back() {
    let cipher = cipher();
    for len in [1, 15, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + CHUNK + 5] {
        let plain = pattern(len);
        let stored = encrypt(&cipher, &plain);
        assert_eq!(stored.len(), len + len.div_ceil(CHUNK) * TAG_BYTES as usize, "{len}");
        assert_eq!(decrypt(&cipher, 0, &stored, len).as_ref(), Ok(&plain), "{len}");
        // Each chunk alone.
        for (number, (chunk, expected)) in stored.chunks(STORED_CHUNK).zip(plain.chunks(CHUNK)).enumerate() {
            let number = u32::try_from(number).expect("few chunks");
            assert_eq!(decrypt(&cipher, number, chunk, len).as_deref(), Ok(expected), "{len} {number}");
        }
    }
}

#[test]
fn no_byte_can_be_changed() {
    let cipher = cipher();
    let stored = encrypt(&cipher, b"a small object");
    for at in 0..stored.len() {
        for bit in 0..8 {
            let mut changed = stored.clone();
            changed[at] ^= 1 << bit;
            assert_eq!(decrypt(&cipher, 0, &changed, 14), Err(NotAuthentic), "{at} {bit}");
        }
    }
    for len in 0..stored.len() {
        assert!(decrypt(&cipher, 0, &stored[..len], 14).is_ok_and(|plain| plain.is_empty()) == (len == 0), "{len}");
    }
    // Of a longer one, bytes in all of its chunks.
    let plain = pattern(2 * CHUNK + 9);
    let stored = encrypt(&cipher, &plain);
    for at in (0..stored.len()).step_by(4_099).chain([stored.len() - 1]) {
        let mut changed = stored.clone();
        changed[at] ^= 1;
        assert_eq!(decrypt(&cipher, 0, &changed, plain.len()), Err(NotAuthentic), "{at}");
    }
}

#[test]
fn a_chunk_opens_in_its_place_only() {
    let cipher = cipher();
    let plain = pattern(3 * CHUNK);
    let stored = encrypt(&cipher, &plain);
    let chunk = |number: usize| &stored[number * STORED_CHUNK..(number + 1) * STORED_CHUNK];
    assert!(decrypt(&cipher, 1, chunk(1), plain.len()).is_ok());
    for place in [0, 2, 3, 17] {
        assert_eq!(decrypt(&cipher, place, chunk(1), plain.len()), Err(NotAuthentic), "{place}");
    }
    let exchanged = [chunk(1), chunk(0), chunk(2)].concat();
    assert_eq!(decrypt(&cipher, 0, &exchanged, plain.len()), Err(NotAuthentic));
    // A part that claims to end earlier or later does not: its last chunk says so.
    for bytes in [CHUNK, 2 * CHUNK, 3 * CHUNK + 1, 4 * CHUNK] {
        let chunks = bytes.div_ceil(CHUNK).min(3);
        assert_eq!(decrypt(&cipher, 0, &stored[..chunks * STORED_CHUNK], bytes), Err(NotAuthentic), "{bytes}");
    }
    assert_eq!(decrypt(&cipher, 0, chunk(0), 0), Err(NotAuthentic));
}

#[test]
fn a_part_opens_as_itself_only() {
    let stored = encrypt(&cipher(), b"content");
    let others = [
        PartIdentity { bucket: BucketId([9; 16]), ..identity() },
        PartIdentity { key: "other", ..identity() },
        PartIdentity { upload: Some(([2; 16], 4)), ..identity() },
        PartIdentity { upload: Some(([9; 16], 3)), ..identity() },
        PartIdentity { upload: None, ..identity() },
        PartIdentity { part: PartId([5; 12]), ..identity() },
    ];
    for other in others {
        let cipher = DataKey::from_bytes([7; 32]).part(&other);
        assert_eq!(decrypt(&cipher, 0, &stored, 7), Err(NotAuthentic), "{other:?}");
    }
    let cipher = DataKey::from_bytes([8; 32]).part(&identity());
    assert_eq!(decrypt(&cipher, 0, &stored, 7), Err(NotAuthentic));
}

#[test]
fn wrapped_keys_open_for_their_object_only() {
    let (secret, key) = (Secret::from_bytes([9; 32]), DataKey::from_bytes([7; 32]));
    let wrapped = WrappingKey::derive(&secret, &[b"ab", b"c"]).wrap(&key);
    assert_eq!(WrappingKey::derive(&secret, &[b"ab", b"c"]).unwrap(&wrapped), Ok(key.clone()));
    assert_eq!(WrappingKey::derive(&secret, &[b"a", b"bc"]).unwrap(&wrapped), Err(NotAuthentic));
    let other = Secret::from_bytes([8; 32]);
    assert_eq!(WrappingKey::derive(&other, &[b"ab", b"c"]).unwrap(&wrapped), Err(NotAuthentic));
    for at in 0..WRAPPED_BYTES {
        let mut changed = wrapped;
        changed[at] ^= 1;
        assert_eq!(WrappingKey::derive(&secret, &[b"ab", b"c"]).unwrap(&changed), Err(NotAuthentic), "{at}");
    }
    assert_eq!(format!("{key:?}"), "DataKey(***)");
}
