//! The examples of AWS's documentation, to the last digit.

use super::*;
use crate::s3::head::Method;

const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

fn scope() -> Scope {
    Scope { day: "20130524".to_owned(), region: "us-east-1".to_owned(), service: SERVICE }
}

fn head(method: Method, target: &str, headers: &[(&str, &str)]) -> RequestHead {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    RequestHead::new(method, target, headers).expect("a head")
}

/// The signature of a request of the documentation, all of whose headers are signed.
fn signed(method: Method, target: &str, headers: &[(&str, &str)], payload: &str) -> String {
    let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
    let canonical = canonical_request(&head(method, target, headers), &names, payload);
    SigningKey::derive(SECRET, &scope()).sign(&string_to_sign("20130524T000000Z", &scope(), &canonical)).to_hex()
}

const HOST: (&str, &str) = ("host", "examplebucket.s3.amazonaws.com");
const DATE: (&str, &str) = ("x-amz-date", "20130524T000000Z");

#[test]
fn get_object() {
    let headers = [HOST, ("range", "bytes=0-9"), ("x-amz-content-sha256", EMPTY), DATE];
    let canonical = canonical_request(
        &head(Method::Get, "/test.txt", &headers),
        &["host", "range", "x-amz-content-sha256", "x-amz-date"],
        EMPTY,
    );
    let text = string_to_sign("20130524T000000Z", &scope(), &canonical);
    assert!(text.ends_with("7344ae5b7ee6c3e7e6b0fe0640412a37625d1fbfff95c48bbb2dc43964946972"), "{text}");
    assert_eq!(
        signed(Method::Get, "/test.txt", &headers, EMPTY),
        "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    );
}

#[test]
fn put_object() {
    let payload = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072";
    assert_eq!(to_hex(&sha256(b"Welcome to Amazon S3.")), payload);
    let headers = [
        ("date", "Fri, 24 May 2013 00:00:00 GMT"),
        HOST,
        ("x-amz-content-sha256", payload),
        DATE,
        ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
    ];
    assert_eq!(
        signed(Method::Put, "/test$file.text", &headers, payload),
        "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"
    );
}

#[test]
fn queries() {
    let headers = [HOST, ("x-amz-content-sha256", EMPTY), DATE];
    assert_eq!(
        signed(Method::Get, "/?lifecycle", &headers, EMPTY),
        "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"
    );
    assert_eq!(
        signed(Method::Get, "/?max-keys=2&prefix=J", &headers, EMPTY),
        "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
    );
}

#[test]
fn presigned() {
    let target = "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2F\
                  aws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host\
                  &X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";
    assert_eq!(
        signed(Method::Get, target, &[HOST], "UNSIGNED-PAYLOAD"),
        "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
    );
}

fn chain(seed: &str) -> ChunkChain {
    let key = SigningKey::derive(SECRET, &scope());
    let seed = Signature::from_hex(seed).expect("a signature");
    ChunkChain::new(key, "20130524T000000Z".to_owned(), scope(), seed)
}

fn is_next(chain: &mut ChunkChain, bytes: &[u8], signature: &str) -> bool {
    chain.is_next(&sha256(bytes), &Signature::from_hex(signature).expect("a signature"))
}

#[test]
fn chunks() {
    let payload = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD";
    let headers = [
        ("content-encoding", "aws-chunked"),
        ("content-length", "66824"),
        ("host", "s3.amazonaws.com"),
        ("x-amz-content-sha256", payload),
        DATE,
        ("x-amz-decoded-content-length", "66560"),
        ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
    ];
    let seed = "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9";
    assert_eq!(signed(Method::Put, "/examplebucket/chunkObject.txt", &headers, payload), seed);
    let mut chain = chain(seed);
    let content = [b'a'; 65_536];
    let steps: [(&[u8], &str); 3] = [
        (&content, "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648"),
        (&content[..1_024], "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497"),
        (&[], "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9"),
    ];
    for (bytes, signature) in steps {
        assert!(is_next(&mut chain.clone(), bytes, signature), "{signature}");
        assert!(!is_next(&mut chain.clone(), b"other", signature), "{signature}");
        assert!(is_next(&mut chain, bytes, signature));
    }
}

#[test]
fn chunks_with_a_trailer() {
    let payload = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER";
    let headers = [
        ("content-encoding", "aws-chunked"),
        ("host", "s3.amazonaws.com"),
        ("x-amz-content-sha256", payload),
        DATE,
        ("x-amz-decoded-content-length", "66560"),
        ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
        ("x-amz-trailer", "x-amz-checksum-crc32c"),
    ];
    let seed = "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e";
    assert_eq!(signed(Method::Put, "/examplebucket/chunkObject.txt", &headers, payload), seed);
    let mut chain = chain(seed);
    let content = [b'a'; 65_536];
    assert!(is_next(&mut chain, &content, "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2"));
    assert!(is_next(&mut chain, &content[..1_024], "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7"));
    assert!(is_next(&mut chain, &[], "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992"));
    let trailer = Signature::from_hex("d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435");
    let trailer = trailer.expect("a signature");
    assert!(!chain.clone().is_trailer(&sha256(b"x-amz-checksum-crc32c:other\n"), &trailer));
    assert!(chain.is_trailer(&sha256(b"x-amz-checksum-crc32c:sOO8/Q==\n"), &trailer));
}

#[test]
fn a_chain_is_printed_without_its_key() {
    let printed = format!("{:?}", chain(&"0".repeat(64)));
    let scope = "Scope { day: \"20130524\", region: \"us-east-1\", service: \"s3\" }";
    assert_eq!(printed, format!("ChunkChain {{ date: \"20130524T000000Z\", scope: {scope}, .. }}"));
}

#[test]
fn values_are_collapsed_and_joined() {
    let head = head(Method::Get, "/a%20b?x=%2f", &[("a", "  1   2 "), ("host", "h"), ("a", "3")]);
    assert_eq!(canonical_request(&head, &["a", "host"], "P"), "GET\n/a%20b\nx=%2F\na:1 2,3\nhost:h\n\na;host\nP");
}
