//! Golden bytes, agreement with `rmp` both ways, and every cut and every marker.

use super::*;
use alloc::string::String;
use alloc::{format, vec};

/// A small generator, the same on every run (splitmix64).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number of any magnitude: small ones are as likely as large ones.
    fn number(&mut self) -> u64 {
        let shift = self.next() % 64;
        self.next() >> shift
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

const LENS: [usize; 11] = [0, 1, 15, 31, 32, 255, 256, 65_535, 65_536, 65_537, 1 << 17];

fn numbers() -> Vec<u64> {
    let edges = (0..64).map(|bit| 1_u64 << bit).flat_map(|edge| [edge - 1, edge, edge + 1]);
    let mut chance = Chance(1);
    edges.chain([u64::MAX]).chain((0..1000).map(|_| chance.number())).collect()
}

fn packed(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

/// Reads `bytes` whole; every cut of them must read as truncated.
fn read_whole<T>(bytes: &[u8], mut read: impl FnMut(&mut Reader<'_>) -> Result<T, PackError>) -> T {
    for cut in (0..bytes.len()).take(40) {
        let mut reader = Reader::new(&bytes[..cut]);
        assert!(matches!(read(&mut reader), Err(PackError::Truncated)), "cut at {cut}");
    }
    let mut reader = Reader::new(bytes);
    let value = read(&mut reader).unwrap();
    assert!(reader.remaining().is_empty());
    value
}

#[test]
fn golden_bytes() {
    let bytes = packed(|out| {
        write_array_len(out, 8);
        [0, 127, 128, 256, 65_536, 1 << 32].into_iter().for_each(|n| write_uint(out, n));
        write_bin(out, b"bin");
        write_str(out, "text");
    });
    let golden = b"\x98\x00\x7f\xcc\x80\xcd\x01\x00\xce\x00\x01\x00\x00\xcf\x00\x00\x00\x01\x00\x00\x00\x00\
        \xc4\x03bin\xa4text";
    assert_eq!(bytes, golden);
    assert_eq!(packed(|out| write_bin(out, &[7; 256]))[..4], [0xc5, 1, 0, 7]);
    assert_eq!(packed(|out| write_bin(out, &[7; 65_536]))[..6], [0xc6, 0, 1, 0, 0, 7]);
    assert_eq!(packed(|out| write_str(out, &"x".repeat(32)))[..3], [0xd9, 32, b'x']);
}

#[test]
fn numbers_agree_with_rmp() {
    for number in numbers() {
        let ours = packed(|out| write_uint(out, number));
        let theirs = packed(|out| drop(rmp::encode::write_uint(out, number)));
        assert_eq!(ours, theirs, "{number}: both write the shortest form");
        assert_eq!(rmp::decode::read_int::<u64, _>(&mut ours.as_slice()).unwrap(), number);
        assert_eq!(read_whole(&ours, |r| r.read_uint()), number);
    }
}

#[test]
fn numbers_are_read_in_longer_forms_too() {
    for number in numbers() {
        let forms = [
            (0xff, packed(|out| drop(rmp::encode::write_u8(out, number as u8)))),
            (0xffff, packed(|out| drop(rmp::encode::write_u16(out, number as u16)))),
            (0xffff_ffff, packed(|out| drop(rmp::encode::write_u32(out, number as u32)))),
            (u64::MAX, packed(|out| drop(rmp::encode::write_u64(out, number)))),
        ];
        for (max, form) in forms.iter().filter(|(max, _)| number <= *max) {
            assert_eq!(read_whole(form, |r| r.read_uint()), number, "{max:x}");
        }
    }
}

#[test]
fn byte_strings_agree_with_rmp() {
    for len in LENS {
        let bytes = Chance(2).bytes(len);
        let ours = packed(|out| write_bin(out, &bytes));
        assert_eq!(ours, packed(|out| drop(rmp::encode::write_bin(out, &bytes))));
        assert_eq!(rmp::decode::read_bin_len(&mut ours.as_slice()).unwrap() as usize, len);
        assert_eq!(read_whole(&ours, |r| r.read_bin(len).map(<[u8]>::to_vec)), bytes);
        assert_eq!(Reader::new(&ours).read_bin_len(len), Ok(len));
    }
}

#[test]
fn texts_agree_with_rmp() {
    for len in LENS {
        let text: String = "ä".repeat(len / 2) + &"x".repeat(len % 2);
        let ours = packed(|out| write_str(out, &text));
        assert_eq!(ours, packed(|out| drop(rmp::encode::write_str(out, &text))));
        assert_eq!(rmp::decode::read_str_len(&mut ours.as_slice()).unwrap() as usize, len);
        assert_eq!(read_whole(&ours, |r| r.read_str(len).map(String::from)), text);
    }
    assert_eq!(Reader::new(b"\xa1\xff").read_str(9), Err(PackError::Malformed));
}

#[test]
fn arrays_agree_with_rmp() {
    for len in 0..16 {
        let ours = packed(|out| write_array_len(out, len));
        assert_eq!(ours, packed(|out| drop(rmp::encode::write_array_len(out, u32::from(len)))));
        assert_eq!(read_whole(&ours, |r| r.read_array_len()), len);
    }
    let longer = packed(|out| drop(rmp::encode::write_array_len(out, 16)));
    assert_eq!(Reader::new(&longer).read_array_len(), Err(PackError::Malformed));
}

#[test]
fn announced_lengths_are_not_trusted() {
    // Whatever is announced, the answer comes from the header alone.
    let len = u32::MAX as usize;
    let too_long = PackError::TooLong { len, max: 1 << 20 };
    assert_eq!(Reader::new(b"\xc6\xff\xff\xff\xff").read_bin(1 << 20), Err(too_long));
    assert_eq!(Reader::new(b"\xdb\xff\xff\xff\xff").read_str(1 << 20), Err(too_long));
    assert_eq!(Reader::new(b"\xc6\xff\xff\xff\xff").read_bin(len), Err(PackError::Truncated));
    assert_eq!(Reader::new(b"\xdd\xff\xff\xff\xff").skip_value(), Err(PackError::Truncated));
    assert_eq!(Reader::new(b"\xc4\x05hello").read_bin(4), Err(PackError::TooLong { len: 5, max: 4 }));
    assert_eq!(Reader::new(b"\xa5hello").read_str(4), Err(PackError::TooLong { len: 5, max: 4 }));
}

#[test]
fn arrays_of_bytes_have_exactly_their_length() {
    assert_eq!(read_whole(b"\xc4\x03abc", |r| r.read_bin_array::<3>()), *b"abc");
    assert_eq!(read_whole(b"\xc6\x00\x00\x00\x03abc", |r| r.read_bin_array::<3>()), *b"abc");
    assert_eq!(Reader::new(b"\xc4\x02ab").read_bin_array::<3>(), Err(PackError::Malformed));
    assert_eq!(Reader::new(b"\xc4\x04abcd").read_bin_array::<3>(), Err(PackError::TooLong { len: 4, max: 3 }));
}

#[test]
fn each_marker_is_read_by_one_reader_at_most() {
    for marker in 0..=u8::MAX {
        let bytes = [&[marker][..], &[0; 16]].concat();
        let reader = || Reader::new(&bytes);
        let accepted = [
            reader().read_uint().is_ok(),
            reader().read_bin(99).is_ok(),
            reader().read_str(99).is_ok(),
            reader().read_array_len().is_ok(),
        ];
        let count = accepted.iter().filter(|accepted| **accepted).count();
        let expected = match marker {
            0..=0x7f | 0x90..=0xbf | 0xc4..=0xc6 | 0xcc..=0xcf | 0xd9..=0xdb => 1,
            _ => 0,
        };
        // A text of 17 zeros and more is cut off here.
        let cut = (0xb1..=0xbf).contains(&marker);
        assert_eq!(count, if cut { 0 } else { expected }, "{marker:x}");
    }
}

#[test]
fn any_value_is_passed_over() {
    use rmp::encode as e;
    let mut values: Vec<Vec<u8>> = vec![
        packed(|o| drop(e::write_nil(o))),
        packed(|o| drop(e::write_bool(o, true))),
        packed(|o| drop(e::write_f32(o, 1.5))),
        packed(|o| drop(e::write_f64(o, 1.5))),
    ];
    values.extend(numbers().into_iter().map(|n| packed(|o| drop(e::write_sint(o, n as i64)))));
    values.extend([1, 2, 4, 8, 16, 3, 300, 70_000].map(|len| {
        packed(|o| {
            e::write_ext_meta(o, len, 7).unwrap();
            o.resize(o.len() + len as usize, 0xc1);
        })
    }));
    values.extend(LENS.map(|len| packed(|o| drop(e::write_bin(o, &vec![0xc1; len])))));
    values.extend(LENS.map(|len| packed(|o| drop(e::write_str(o, &"x".repeat(len))))));
    for count in [3_usize, 20, 66_000] {
        let map = packed(|o| drop(e::write_map_len(o, count as u32)));
        let array = packed(|o| drop(e::write_array_len(o, 2 * count as u32)));
        values.extend([[&map[..], &vec![1; 2 * count]].concat(), [&array[..], &vec![1; 2 * count]].concat()]);
    }
    values.push([&[0x91; 100_000][..], &[0xc0]].concat());
    for value in values {
        read_whole(&value, |r| r.skip_value());
    }
    assert_eq!(Reader::new(&[0xc1]).skip_value(), Err(PackError::Malformed));
}

#[test]
fn random_headers_come_back() {
    let mut chance = Chance(3);
    for _ in 0..500 {
        let (number, len) = (chance.number(), chance.next() as usize % 600);
        let (bytes, text) = (chance.bytes(len), format!("{:x}", chance.number()));
        let out = packed(|out| {
            write_array_len(out, 3);
            write_uint(out, number);
            write_bin(out, &bytes);
            write_str(out, &text);
        });
        let mut reader = Reader::new(&out);
        assert_eq!(reader.read_array_len(), Ok(3));
        assert_eq!(reader.read_uint(), Ok(number));
        assert_eq!(reader.read_bin(600), Ok(&bytes[..]));
        assert_eq!(reader.read_str(16), Ok(&text[..]));
        assert_eq!(reader.remaining(), b"");
    }
}

#[test]
fn noise_never_panics() {
    let mut chance = Chance(4);
    for _ in 0..20_000 {
        let len = chance.next() as usize % 24;
        let bytes = chance.bytes(len);
        let mut reader = Reader::new(&bytes);
        while reader.skip_value().is_ok() {}
        assert!(reader.remaining().len() <= bytes.len());
        if let Ok(value) = Reader::new(&bytes).read_bin(8) {
            assert!(value.len() <= 8);
        }
        if let Ok(value) = Reader::new(&bytes).read_str(8) {
            assert!(value.len() <= 8);
        }
    }
}

#[test]
#[should_panic(expected = "fewer than 16 elements")]
fn long_arrays_are_not_written() {
    write_array_len(&mut Vec::new(), 16);
}
