//! Bodies of S3 in chunks: whatever bytes come in whatever pieces, the result is that of all of them at once; and what is read,
//! written again as one chunk, gives the same content and trailers. No bytes pass for signed ones.
#![no_main]

use ashlar_object::s3::chunked::{ChunkError, ChunkedDecoder};
use ashlar_object::s3::signature::{ChunkChain, SERVICE, Scope, Signature, SigningKey};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

type Trailer = (String, String);

fn decode(chain: Option<ChunkChain>, body: &[u8], piece: usize) -> Result<(Vec<u8>, Vec<Trailer>), ChunkError> {
    let mut decoder = ChunkedDecoder::new(chain);
    let mut content = Vec::new();
    for piece in body.chunks(piece.max(1)) {
        decoder.handle_bytes(Bytes::copy_from_slice(piece));
        while let Some(data) = decoder.poll_data()? {
            assert!(!data.is_empty());
            content.extend_from_slice(&data);
        }
    }
    decoder.handle_end()?;
    Ok((content, decoder.trailers().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()))
}

fn chain() -> ChunkChain {
    let scope = Scope { day: "20130524".to_owned(), region: "r".to_owned(), service: SERVICE };
    let key = SigningKey::derive("a secret that the fuzzer does not use", &scope);
    let seed = Signature::from_hex(&"0".repeat(64)).expect("64 digits");
    ChunkChain::new(key, "20130524T000000Z".to_owned(), scope, seed)
}

fuzz_target!(|input: (u8, &[u8])| {
    let (piece, body) = input;
    let whole = decode(None, body, body.len());
    assert_eq!(decode(None, body, usize::from(piece)), whole);
    if let Ok((content, trailers)) = whole {
        let mut again = Vec::new();
        if !content.is_empty() {
            again.extend_from_slice(format!("{:x}\r\n", content.len()).as_bytes());
            again.extend_from_slice(&content);
            again.extend_from_slice(b"\r\n");
        }
        again.extend_from_slice(b"0\r\n");
        trailers.iter().for_each(|(name, value)| again.extend_from_slice(format!("{name}:{value}\r\n").as_bytes()));
        again.extend_from_slice(b"\r\n");
        assert_eq!(decode(None, &again, usize::from(piece)), Ok((content, trailers)));
    }
    assert!(decode(Some(chain()), body, usize::from(piece)).is_err());
});
