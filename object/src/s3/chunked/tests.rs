//! Bodies in chunks: AWS's examples, cut anywhere; everything else is refused.

use super::*;
use crate::s3::signature::{SERVICE, Scope, SigningKey};

const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";

fn chain(seed: &str) -> ChunkChain {
    let scope = Scope { day: "20130524".to_owned(), region: "us-east-1".to_owned(), service: SERVICE };
    let key = SigningKey::derive(SECRET, &scope);
    ChunkChain::new(key, "20130524T000000Z".to_owned(), scope, Signature::from_hex(seed).expect("a signature"))
}

/// The body of AWS's example: 65,536 and 1,024 times `a`.
fn example() -> Vec<u8> {
    let chunk = |size: usize, signature: &str| {
        [format!("{size:x};chunk-signature={signature}\r\n").as_bytes(), &vec![b'a'; size], b"\r\n"].concat()
    };
    [
        chunk(65_536, "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648"),
        chunk(1_024, "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497"),
        chunk(0, "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9"),
    ]
    .concat()
}

const SEED: &str = "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9";

/// Decodes a body that comes in pieces of these lengths, over and over.
fn decode(chain: Option<ChunkChain>, body: &[u8], pieces: &[usize]) -> Result<(Vec<u8>, ChunkedDecoder), ChunkError> {
    let mut decoder = ChunkedDecoder::new(chain);
    let (mut content, mut rest) = (Vec::new(), body);
    for &piece in pieces.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (now, later) = rest.split_at(piece.clamp(1, rest.len()));
        decoder.handle_bytes(Bytes::copy_from_slice(now));
        while let Some(data) = decoder.poll_data()? {
            assert!(!data.is_empty());
            content.extend_from_slice(&data);
        }
        rest = later;
    }
    decoder.handle_end()?;
    Ok((content, decoder))
}

#[test]
fn the_example_in_pieces() {
    for pieces in [&[usize::MAX][..], &[1], &[7, 4_096], &[65_536], &[85, 1]] {
        let (content, _) = decode(Some(chain(SEED)), &example(), pieces).expect("the example");
        assert!(content.len() == 66_560 && content.iter().all(|&byte| byte == b'a'));
    }
}

#[test]
fn the_example_changed() {
    let body = example();
    for at in [90, 65_700, 66_700] {
        let mut changed = body.clone();
        assert_eq!(changed[at], b'a');
        changed[at] = b'b';
        let error = decode(Some(chain(SEED)), &changed, &[1_000]).expect_err("another content");
        assert_eq!(error, ChunkError::WrongSignature, "at {at}");
    }
    let unsigned = b"1\r\na\r\n0\r\n\r\n";
    assert_eq!(decode(Some(chain(SEED)), unsigned, &[5]).expect_err("unsigned"), ChunkError::MalformedChunk);
    let other_seed = "0".repeat(64);
    assert_eq!(decode(Some(chain(&other_seed)), &body, &[500]).expect_err("a seed"), ChunkError::WrongSignature);
    for len in [0, 10, 87, 70_000.min(body.len() - 1), body.len() - 2] {
        assert_eq!(decode(Some(chain(SEED)), &body[..len], &[500]).expect_err("cut"), ChunkError::WrongEnd, "{len}");
    }
}

#[test]
fn signed_trailers() {
    let seed = "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e";
    let mut body = Vec::new();
    for (size, signature) in [
        (65_536, "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2"),
        (1_024, "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7"),
    ] {
        body.extend_from_slice(format!("{size:x};chunk-signature={signature}\r\n").as_bytes());
        body.extend_from_slice(&vec![b'a'; size]);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"0;chunk-signature=2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992\r\n");
    let end = |trailer: &str, signature: &str| {
        let signature =
            if signature.is_empty() { String::new() } else { format!("x-amz-trailer-signature:{signature}\r\n") };
        [&body[..], format!("{trailer}\r\n{signature}\r\n").as_bytes()].concat()
    };
    let signature = "d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435";
    let right = end("x-amz-checksum-crc32c:sOO8/Q==", signature);
    let (_, decoder) = decode(Some(chain(seed)), &right, &[999]).expect("the example");
    assert_eq!(decoder.trailer("x-amz-checksum-crc32c"), Some("sOO8/Q=="));
    // As AWS's documentation writes it, and minio-go.
    let documented = end("x-amz-checksum-crc32c:sOO8/Q==\n", signature);
    assert!(documented.ends_with(format!("sOO8/Q==\n\r\nx-amz-trailer-signature:{signature}\r\n\r\n").as_bytes()));
    let (_, decoder) = decode(Some(chain(seed)), &documented, &[998]).expect("the example");
    assert_eq!(decoder.trailer("x-amz-checksum-crc32c"), Some("sOO8/Q=="));
    let table = [
        (end("x-amz-checksum-crc32c:sOO8/Q==\n\r\nx-amz-more:1", signature), ChunkError::MalformedTrailer),
        (end("x-amz-checksum-crc32c:sOO8/Q==\n\r\n", ""), ChunkError::MalformedTrailer),
        (end("x-amz-checksum-crc32c:sOO8/A==", signature), ChunkError::WrongSignature),
        (end("x-amz-checksum-crc32c:sOO8/Q==", ""), ChunkError::WrongEnd),
        (end("x-amz-checksum-crc32c", signature), ChunkError::MalformedTrailer),
    ];
    for (body, expected) in table {
        assert_eq!(decode(Some(chain(seed)), &body, &[999]).expect_err("a wrong trailer"), expected);
    }
}

#[test]
fn without_signatures() {
    let (content, decoder) =
        decode(None, b"3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nX-Amz-A: 1 \r\n\r\n", &[2]).expect("a body");
    assert_eq!((content.as_slice(), decoder.trailer("x-amz-a")), (&b"abc0123456789"[..], Some("1")));
    let (_, decoder) = decode(None, b"0\r\nx-amz-a:1\n\r\n\r\n", &[1]).expect("one more empty line");
    assert_eq!(decoder.trailer("x-amz-a"), Some("1"));
    let wrong: [(&[u8], ChunkError); 14] = [
        (b"0\r\n\r\n\r\n\r\n", ChunkError::WrongEnd),
        (b"0\r\n\r\n\r", ChunkError::WrongEnd),
        (b"0\r\n\r\n\n", ChunkError::WrongEnd),
        (b"0\r\n\n", ChunkError::MalformedTrailer),
        (b"\r\n", ChunkError::MalformedChunk),
        (b"g\r\n", ChunkError::MalformedChunk),
        (b"+1\r\na\r\n", ChunkError::MalformedChunk),
        (b"11111111111111111\r\n", ChunkError::MalformedChunk),
        (b"1\na\r\n0\r\n\r\n", ChunkError::MalformedChunk),
        (b"1\r\nab\r\n0\r\n\r\n", ChunkError::MalformedChunk),
        (b"0\r\nx-amz-trailer-signature:00\r\n\r\n", ChunkError::MalformedTrailer),
        (b"0\r\n\r\nmore", ChunkError::WrongEnd),
        (b"0\r\n\r\nmore\r\n", ChunkError::WrongEnd),
        (b"1\r\na\r\n", ChunkError::WrongEnd),
    ];
    for (body, expected) in wrong {
        assert_eq!(decode(None, body, &[3]).expect_err("malformed"), expected, "{body:?}");
    }
}

#[test]
fn limits() {
    let line = |len: usize| format!("1;{}\r\na\r\n0\r\n\r\n", "x".repeat(len - 2)).into_bytes();
    assert!(decode(None, &line(LINE_BYTES_MAX), &[100]).is_ok());
    assert!(decode(None, &line(LINE_BYTES_MAX + 1), &[100]).is_err());
    // A line that has no end is refused once it is longer than any line with its end.
    for (len, expected) in [(2, ChunkError::WrongEnd), (3, ChunkError::MalformedChunk)] {
        let endless = vec![b'1'; LINE_BYTES_MAX + len];
        assert_eq!(decode(None, &endless, &[1]).expect_err("a line without its end"), expected);
    }
    assert_eq!(ChunkError::WrongEnd.to_string(), "the body does not end with its last chunk");
    // However a trailer ends, it is as long.
    let trailer = |len: usize, end: &str| format!("0\r\na:{}{end}\r\n", "x".repeat(len - 2)).into_bytes();
    for end in ["\n", "\r\n"] {
        assert!(decode(None, &trailer(LINE_BYTES_MAX, end), &[100]).is_ok(), "{end:?}");
        assert!(decode(None, &trailer(LINE_BYTES_MAX + 1, end), &[100]).is_err(), "{end:?}");
    }
    let trailers = |count: usize| format!("0\r\n{}\r\n", "a:b\r\n".repeat(count)).into_bytes();
    assert!(decode(None, &trailers(TRAILERS_MAX), &[100]).is_ok());
    assert!(decode(None, &trailers(TRAILERS_MAX + 1), &[100]).is_err());
}

#[test]
fn any_content_in_any_chunks_comes_back_and_any_bytes_are_refused_or_read() {
    arbtest::arbtest(|u| {
        let chunks: Vec<Vec<u8>> = u.arbitrary()?;
        let mut body = Vec::new();
        for chunk in chunks.iter().filter(|chunk| !chunk.is_empty()) {
            body.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            body.extend_from_slice(chunk);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(b"0\r\n\r\n");
        let pieces = [u.int_in_range(1..=9)?, u.int_in_range(1..=9)?];
        let (content, _) = decode(None, &body, &pieces).expect("a body");
        assert_eq!(content, chunks.concat());
        let bytes: Vec<u8> = u.arbitrary()?;
        let whole = decode(None, &bytes, &[usize::MAX]).map(|(content, _)| content);
        assert_eq!(decode(None, &bytes, &pieces).map(|(content, _)| content), whole);
        Ok(())
    });
}
