//! Forms of browsers, from the bytes of a request to the object.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha1::Sha1;

use super::*;
use crate::s3::signature::ALGORITHM;

const TYPE: (&str, &str) = ("content-type", "multipart/form-data; boundary=xx");

fn form(fields: &[(&str, &str)], file: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, value) in fields {
        body.extend_from_slice(
            format!("--xx\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n").as_bytes(),
        );
    }
    body.extend_from_slice(b"--xx\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\\b.txt\"\r\n\r\n");
    body.extend_from_slice(file);
    body.extend_from_slice(b"\r\n--xx--\r\n");
    body
}

/// A policy for the key "key" and these conditions, in Base64.
fn policy(conditions: &str) -> String {
    let text = format!(
        r#"{{"expiration": "2013-05-24T01:00:00Z", "conditions": [{{"bucket": "bucket"}}, {{"key": "key"}}{conditions}]}}"#
    );
    to_base64(text.as_bytes())
}

fn version_2(policy: &str) -> String {
    let mut mac = Hmac::<Sha1>::new_from_slice(b"secret").expect("a key");
    mac.update(policy.as_bytes());
    to_base64(&mac.finalize().into_bytes())
}

impl Server {
    fn post(&self, target: &str, fields: &[(&str, &str)], file: &[u8]) -> Reply {
        self.by(None).ask("POST", target, &[TYPE], &form(fields, file))
    }
}

#[test]
fn a_signed_form_puts_what_its_policy_allows() {
    let server = Server::new();
    let text =
        policy(r#", ["starts-with", "$x-amz-meta-a", ""], {"acl": "public-read"}, ["content-length-range", 3, 9]"#);
    let signature = version_2(&text);
    let with = |more: &[(&'static str, &'static str)]| {
        let signed = [("key", "key"), ("AWSAccessKeyId", "key"), ("Policy", text.as_str()), ("signature", &signature)];
        [&signed[..], &[("acl", "public-read")], more].concat()
    };
    let fields = with(&[("X-Amz-Meta-A", "1"), ("x-ignore-b", "2")]);
    for file in [&b"123"[..], b"123456789"] {
        assert_eq!(server.post("/bucket", &fields, file).status, 204, "its length is one that is allowed");
    }
    let put = server.post("/bucket", &fields, b"content");
    assert_eq!((put.status, put.header("location")), (204, Some("http://h/bucket/key")));
    let read = server.by(None).ask("GET", "/bucket/key", &[], b"");
    assert_eq!((read.body.as_slice(), read.header("x-amz-meta-a")), (&b"content"[..], Some("1")));
    for (file, expected) in [(&b"12"[..], "EntityTooSmall"), (b"1234567890", "EntityTooLarge")] {
        assert_eq!(server.post("/bucket", &fields, file).outcome(), code(400, expected));
    }
    let unnamed = with(&[("x-amz-meta-b", "1")]);
    assert_eq!(server.post("/bucket", &unnamed, b"content").outcome(), code(403, "AccessDenied"));
    // It is good for its bucket only, and for its signer's own rights.
    assert_eq!(server.ask("PUT", "/other", &[], b"").status, 200);
    assert_eq!(server.post("/other", &fields, b"content").outcome(), code(403, "AccessDenied"));
    let anns = [("key", "key"), ("awsaccesskeyid", "ann"), ("policy", &text), ("signature", &signature)];
    let anns = [&anns[..], &[("acl", "public-read")]].concat();
    assert_eq!(server.post("/bucket", &anns, b"content").outcome(), code(403, "AccessDenied"));
    let checked = with(&[("content-md5", "JfnnlDI7RTiF9RgfG2JNCg==")]);
    assert_eq!(server.post("/bucket", &checked, b"content").outcome(), code(403, "AccessDenied"), "it is a field");
    assert_eq!(server.ask("GET", "/bucket/key", &[], b"").body, b"content");
}

#[test]
fn a_form_of_version_4_and_what_it_says_of_its_answer() {
    let server = Server::new();
    let credential = format!("key/{}", scope().text());
    let text = policy(
        r#", ["starts-with", "$x-amz-credential", ""], ["starts-with", "$x-amz-algorithm", ""],
        ["starts-with", "$x-amz-date", ""], ["starts-with", "$success_action_status", ""],
        ["starts-with", "$success_action_redirect", ""], ["starts-with", "$x-amz-checksum-crc32", ""],
        ["starts-with", "$tagging", ""]"#,
    );
    let signature = SigningKey::derive("secret", &scope()).sign(&text).to_hex();
    let post = |more: &[(&'static str, &'static str)], file: &[u8]| {
        let signed = [
            ("key", "key"),
            ("x-amz-credential", credential.as_str()),
            ("x-amz-algorithm", ALGORITHM),
            ("x-amz-date", DATE),
            ("x-amz-signature", &signature),
            ("policy", &text),
        ];
        server.post("/bucket", &[&signed[..], more].concat(), file)
    };
    let created = post(&[("success_action_status", "201")], b"123456789");
    let etag = "\"25f9e794323b453885f5181f1b624d0b\"";
    assert_eq!((created.status, created.header("etag")), (201, Some(etag)));
    let told = created.xml();
    assert_eq!((told.text_of("Key"), told.text_of("ETag")), (Some("key"), Some(etag)));
    assert_eq!(post(&[("success_action_status", "404")], b"").status, 204);
    assert_eq!(post(&[("success_action_status", "200")], b"").status, 200);
    let sent = post(&[("success_action_redirect", "https://a/b?c=d")], b"123456789");
    let place = "https://a/b?c=d&bucket=bucket&key=key&etag=%2225f9e794323b453885f5181f1b624d0b%22";
    assert_eq!((sent.status, sent.header("location")), (303, Some(place)));
    for url in ["javascript:x", "http://a\r\nx: y"] {
        assert_eq!(post(&[("success_action_redirect", url)], b"").status, 204, "{url}");
    }
    assert_eq!(post(&[("x-amz-checksum-crc32", "y/Q5Jg==")], b"123456789").status, 204);
    assert_eq!(post(&[("x-amz-checksum-crc32", "y/Q5Jg==")], b"12345678").outcome(), code(400, "BadDigest"));
    assert_eq!(post(&[("x-amz-checksum-crc32", "y/Q5")], b"123456789").status, 400);
    let tags = "<Tagging><TagSet><Tag><Key>a</Key><Value>b c</Value></Tag></TagSet></Tagging>";
    assert_eq!(post(&[("tagging", tags)], b"123456789").status, 204);
    let kept = server.ask("GET", "/bucket/key?tagging", &[], b"").xml();
    assert_eq!(kept.child("TagSet").and_then(|set| set.children[0].text_of("Value")), Some("b c"));
}

/// A body that counts the pieces that are read of it.
struct Counted {
    pieces: Vec<Bytes>,
    read: usize,
}

impl Content for Counted {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, Error>> {
        let piece = self.pieces.get(self.read).cloned();
        self.read += usize::from(piece.is_some());
        Box::pin(async { Ok(piece) })
    }
}

#[test]
fn of_what_stands_behind_a_form_no_more_than_64_kib_are_read() {
    let server = Server::new();
    assert_eq!(server.ask("PUT", "/open", &[("x-amz-acl", "public-read-write")], b"").status, 200);
    let nobody = server.by(None);
    let whole = form(&[("key", "key")], b"content");
    for (behind, read) in [(0, 0), (10, 10), (64, 64), (100, 64)] {
        let pieces = vec![Bytes::from_static(&[b'x'; 1_024]); behind];
        let pieces = [vec![Bytes::copy_from_slice(&whole)], pieces].concat();
        let mut body = Counted { pieces, read: 0 };
        let head = nobody.head("POST", "/open", &[TYPE], whole.len() + behind * 1_024);
        let (reply, _) = nobody.handled(NOW, head, "/open", &mut body);
        assert_eq!((reply.status, body.read), (204, 1 + read), "{behind}");
    }
}

#[test]
fn a_field_stands_for_no_header_that_the_request_has_of_its_own_or_that_a_put_does_not_take() {
    let server = Server::new();
    assert_eq!(server.ask("PUT", "/open", &[("x-amz-acl", "public-read-write")], b"").status, 200);
    let expected = "x-amz-expected-bucket-owner";
    let send = |owner, field| {
        let body = form(&[("key", "key"), field], b"x");
        server.by(None).ask("POST", "/open", &[TYPE, (expected, owner)], &body).status
    };
    assert_eq!(send("ashlar", ("note", "two\r\nlines")), 204);
    assert_eq!((send("ashlar", (expected, "ann")), send("ann", (expected, "ashlar"))), (204, 403));
}

#[test]
fn forms_of_nobody_and_forms_that_are_none() {
    let server = Server::new();
    let key = [("key", "k/${filename}")];
    assert_eq!(server.post("/bucket", &key, b"x").outcome(), code(403, "AccessDenied"));
    assert_eq!(server.ask("PUT", "/open", &[("x-amz-acl", "public-read-write")], b"").status, 200);
    let put = server.post("/open", &key, b"x");
    assert_eq!((put.status, put.header("location")), (204, Some("http://h/open/k/b.txt")));
    assert_eq!(server.ask("GET", "/open/k/b.txt", &[], b"").body, b"x");
    let metadata = |value: &'static str| [("key", "key"), ("x-amz-meta-a", value)];
    assert_eq!(server.post("/open", &metadata("a\r\nb: c"), b"x").outcome(), code(400, "InvalidArgument"));
    assert_eq!(server.post("/open", &[], b"x").outcome(), code(400, "InvalidArgument"));
    let encrypted = [("key", "key"), ("x-amz-server-side-encryption", "aws:kms:dsse")];
    assert_eq!(server.post("/open", &encrypted, b"x").outcome(), code(501, "NotImplemented"));
    let nobody = server.by(None);
    let send = |headers: &[(&str, &str)], body: &[u8]| nobody.ask("POST", "/open", headers, body).outcome();
    assert_eq!(send(&[], b""), code(412, "PreconditionFailed"));
    assert_eq!(send(&[TYPE], b"--yy"), code(400, "MalformedPOSTRequest"));
    assert_eq!(send(&[TYPE], b"--xx--"), code(400, "InvalidArgument"));
    let whole = form(&metadata("b"), b"content");
    for cut in [whole.len() - 14, whole.len() - 40] {
        assert_ne!(send(&[TYPE], &whole[..cut]).0, 204, "{cut}");
    }
    assert_eq!(server.outcome("HEAD", "/open/key", &[], b"").0, 404, "nothing of a form that breaks off is stored");
    let long = form(&[("key", "key"), ("x-ignore-a", &"x".repeat(70_000))], b"x");
    assert_eq!(send(&[TYPE], &long), code(400, "MaxPostPreDataLengthExceededError"));
    assert_eq!(server.outcome("POST", "/open", &[TYPE], &whole), code(400, "InvalidArgument"), "signed twice");
}
