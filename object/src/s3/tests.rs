//! The service as a whole, over the object service in memory.

use core::future::Future;
use core::net::IpAddr;
use core::pin::pin;
use core::sync::atomic::{AtomicU8, Ordering};
use core::task::{Context, Poll, Waker};
use std::sync::Arc;

use ashlar_wire::secret::Secret;
use bytes::Bytes;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha1::Sha1;

use super::authenticate::{Credentials, SecretKey, User};
use super::encoding::{encode_component, to_base64};
use super::encryption::{KeyName, KeyService, NoKey};
use super::head::{Method, RequestHead};
use super::response::ResponseBody;
use super::service::{IncomingRequest, S3Service, S3Settings};
use super::signature::{SERVICE, Scope, SigningKey, canonical_request, sha256, string_to_sign};
use super::subject::Subject;
use super::xml::{DOCUMENT_BYTES_MAX, Element};
use crate::api::{BoxFuture, Content, Error, PART_BYTES_MIN};
use crate::memory::Memory;

mod access;
mod buckets;
mod encryption;
mod forms;
mod lifecycle;
mod locks;
mod ownership;
mod parts;
mod replaced;
mod sessions;
mod subjects;
mod tags;
mod versions;

/// 2013-05-24T00:00:00Z.
const NOW: u64 = 1_369_353_600_000;
const DATE: &str = "20130524T000000Z";

fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("it waits"),
    }
}

/// A body that comes in two pieces, and breaks off behind them if it is cut.
struct Sent {
    pieces: Vec<Bytes>,
    is_cut: bool,
}

impl Content for Sent {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, Error>> {
        Box::pin(async {
            match self.pieces.pop() {
                None if self.is_cut => Err(Error::BodyLost),
                next => Ok(next),
            }
        })
    }
}

struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Reply {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn xml(&self) -> Element {
        Element::decode(&self.body).expect("a document")
    }

    /// The status, and the code of an error.
    fn outcome(&self) -> (u16, String) {
        let code = if self.status < 300 || self.body.is_empty() {
            None
        } else {
            self.xml().text_of("Code").map(str::to_owned)
        };
        (self.status, code.unwrap_or_default())
    }
}

fn scope() -> Scope {
    Scope { day: "20130524".to_owned(), region: "anywhere".to_owned(), service: SERVICE }
}

/// The root user with the access key `key`, and users whose access key is their id.
struct Users;

impl Credentials for Users {
    fn lookup(&self, access_key: &str) -> Option<(SecretKey, User)> {
        let user = if access_key == "key" { Some(User::root()) } else { self.user(access_key) };
        Some((SecretKey::new("secret".into()), user?))
    }

    fn user(&self, id: &str) -> Option<User> {
        match id {
            "ashlar" => Some(User::root()),
            "ann" | "bob" | "reader" | "writer" | "maker" | "guest" => {
                Some(User { id: id.to_owned(), name: id.to_uppercase(), is_root: false })
            }
            _ => None,
        }
    }

    fn session_secret(&self) -> Option<Secret> {
        Some(Secret::from_bytes([1; 32]))
    }

    fn user_policy(&self, id: &str) -> Option<String> {
        let statements = match id {
            "reader" => {
                "{\"Effect\":\"Allow\",\"Action\":[\"s3:GetObject\",\"s3:ListBucket\",\"s3:ListAllMyBuckets\"],\"Resource\":\"*\"},
                {\"Effect\":\"Deny\",\"Action\":\"s3:*\",\"Resource\":[\"arn:aws:s3:::secret\",\"arn:aws:s3:::secret/*\"]}"
            }
            "writer" => {
                "{\"Effect\":\"Allow\",\"Action\":\"s3:*\",\"Resource\":[\"arn:aws:s3:::w-*\",\"arn:aws:s3:::anns/in/*\"]}"
            }
            "maker" => "{\"Effect\":\"Allow\",\"Action\":\"s3:CreateBucket\",\"Resource\":\"*\"}",
            "guest" => {
                "{\"Effect\":\"Allow\",\"Action\":\"s3:*Object\",\"Resource\":\"arn:aws:s3:::anns/home/${aws:userid}/*\"},
                {\"Effect\":\"Allow\",\"Action\":\"s3:ListBucket\",\"Resource\":\"arn:aws:s3:::anns\",
                \"Condition\":{\"StringLike\":{\"s3:prefix\":\"home/${aws:userid}/*\"}}}"
            }
            _ => return None,
        };
        Some(format!("{{\"Version\":\"2012-10-17\",\"Statement\":[{statements}]}}"))
    }
}

/// A master key, a key called `payroll`, and numbers for what is drawn by chance.
#[derive(Default)]
struct Keys(AtomicU8);

impl KeyService for Keys {
    fn key(&self, name: &KeyName) -> Result<Secret, NoKey> {
        match name {
            KeyName::Master => Ok(Secret::from_bytes([1; 32])),
            KeyName::Kms(name) if name == "payroll" => Ok(Secret::from_bytes([2; 32])),
            KeyName::Kms(_) => Err(NoKey::Unknown),
        }
    }

    fn draw(&self) -> [u8; 32] {
        [self.0.fetch_add(1, Ordering::Relaxed); 32]
    }
}

/// The service, the access key with which requests are signed (none if they are not), and where they come from.
struct Server(S3Service, Option<&'static str>, Option<IpAddr>);

impl Server {
    fn new() -> Self {
        Self::over(&Memory::new(|| NOW))
    }

    fn over(memory: &Memory) -> Self {
        let server = Self(
            S3Service::new(memory.service(), Arc::new(Users), Arc::new(Keys::default()), S3Settings::default()),
            Some("key"),
            None,
        );
        assert_eq!(server.ask("PUT", "/bucket", &[], b"").status, 200);
        server
    }

    /// The same service, asked by another user; by nobody without an access key.
    fn by(&self, access_key: Option<&'static str>) -> Self {
        Self(self.0.clone(), access_key, None)
    }

    fn ask(&self, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        self.send(method, target, headers, body, false)
    }

    fn send(&self, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8], is_cut: bool) -> Reply {
        self.raw(self.head(method, target, headers, body.len()), target, body, is_cut)
    }

    /// The head of a request with a body of so many bytes, signed if there is an access key.
    fn head(&self, method: &str, target: &str, headers: &[(&str, &str)], bytes: usize) -> RequestHead {
        let mut all: Vec<(String, String)> =
            headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let payload = "UNSIGNED-PAYLOAD".to_owned();
        for (name, value) in [
            ("host", "h".to_owned()),
            ("x-amz-date", DATE.to_owned()),
            ("x-amz-content-sha256", payload),
            ("content-length", bytes.to_string()),
        ] {
            if !all.iter().any(|(known, _)| known == name) {
                all.push((name.to_owned(), value));
            }
        }
        let mut head = RequestHead::new(Method::named(method), target, all).expect("a head");
        let Some(access_key) = self.1 else { return head };
        let mut names: Vec<String> = head.headers.iter().map(|(name, _)| name.clone()).collect();
        names.sort();
        let signed: Vec<&str> = names.iter().map(String::as_str).collect();
        let payload = head.header("x-amz-content-sha256").expect("it was set");
        let text = string_to_sign(DATE, &scope(), &canonical_request(&head, &signed, payload));
        let signature = SigningKey::derive("secret", &scope()).sign(&text).to_hex();
        let signed = signed.join(";");
        let scope = scope().text();
        head.headers.push((
            "authorization".into(),
            format!("AWS4-HMAC-SHA256 Credential={access_key}/{scope}, SignedHeaders={signed}, Signature={signature}"),
        ));
        head
    }

    /// A request that comes from this address, without TLS.
    fn ask_from(&self, peer: IpAddr, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        Self(self.0.clone(), self.1, Some(peer)).ask(method, target, headers, body)
    }

    fn raw(&self, head: RequestHead, target: &str, body: &[u8], is_cut: bool) -> Reply {
        self.raw_at(NOW, head, target, body, is_cut)
    }

    fn raw_at(&self, now_ms: u64, head: RequestHead, target: &str, body: &[u8], is_cut: bool) -> Reply {
        let (first, second) = body.split_at(body.len() / 2);
        let pieces =
            [second, first].into_iter().filter(|piece| !piece.is_empty()).map(Bytes::copy_from_slice).collect();
        self.handled(now_ms, head, target, &mut Sent { pieces, is_cut }).0
    }

    /// The reply to a request with this body, and what it was about.
    fn handled(&self, now_ms: u64, head: RequestHead, target: &str, content: &mut dyn Content) -> (Reply, Subject) {
        let RequestHead { method, headers, .. } = head;
        let request = IncomingRequest {
            method,
            target: target.to_owned(),
            headers,
            peer: self.2,
            is_encrypted: false,
            now_ms,
            id: "ID".to_owned(),
        };
        let (response, subject) = now(self.0.handle(request, content));
        let mut body = Vec::new();
        match response.body {
            ResponseBody::Empty => {}
            ResponseBody::Whole(bytes) => body.extend_from_slice(&bytes),
            ResponseBody::Content(mut content, bytes) => {
                while let Some(piece) = now(content.next()).expect("the content") {
                    body.extend_from_slice(&piece);
                }
                assert_eq!(body.len() as u64, bytes);
            }
        }
        let headers = response.headers.into_iter().map(|(name, value)| (name.into_owned(), value)).collect();
        (Reply { status: response.status, headers, body }, subject)
    }

    fn put(&self, target: &str, body: &[u8]) -> Reply {
        let reply = self.ask("PUT", target, &[], body);
        assert_eq!(reply.outcome(), (200, String::new()), "{target}");
        reply
    }

    fn outcome(&self, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> (u16, String) {
        self.ask(method, target, headers, body).outcome()
    }
}

fn code(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

#[test]
fn what_cannot_be_read_at_all_is_refused_before_a_head_is_sent() {
    let memory = Memory::new(|| NOW);
    let server = Server::over(&memory);
    server.put("/bucket/key", b"content");
    assert_eq!(server.ask("GET", "/bucket/key", &[], b"").body, b"content");
    memory.lose("bucket", "key");
    assert_eq!(server.outcome("GET", "/bucket/key", &[], b""), code(500, "InternalError"));
    assert_eq!(server.outcome("GET", "/bucket/key", &[("range", "bytes=2-3")], b""), code(500, "InternalError"));
    assert_eq!(server.ask("HEAD", "/bucket/key", &[], b"").status, 200);
}

#[test]
fn a_checksum_of_an_algorithm_that_is_not_known_is_refused() {
    let server = Server::new();
    assert_eq!(server.ask("PUT", "/bucket", &[], b"").status, 200);
    let sum = [("x-amz-checksum-sha512", "AAAA")];
    assert_eq!(server.outcome("PUT", "/bucket/key", &sum, b"x"), code(400, "InvalidRequest"));
    assert_eq!(server.outcome("HEAD", "/bucket/key", &[], b"").0, 404);
    assert_eq!(server.outcome("POST", "/bucket/key?uploads", &[], b"").0, 200);
}

#[test]
fn an_object_and_what_it_says_about_itself() {
    let server = Server::new();
    let headers = [
        ("content-type", "text/plain"),
        ("x-amz-meta-color", "blue"),
        ("cache-control", "no-cache"),
        ("x-amz-tagging", "a=1&b=2"),
        ("x-amz-checksum-crc32", "y/Q5Jg=="),
    ];
    let put = server.ask("PUT", "/bucket/key", &headers, b"123456789");
    assert_eq!((put.status, put.header("etag")), (200, Some("\"25f9e794323b453885f5181f1b624d0b\"")));
    assert_eq!(
        (put.header("x-amz-checksum-crc32"), put.header("x-amz-checksum-type")),
        (Some("y/Q5Jg=="), Some("FULL_OBJECT"))
    );
    let get = server.ask("GET", "/bucket/key", &[("x-amz-checksum-mode", "ENABLED")], b"");
    assert_eq!(get.body, b"123456789");
    for (name, value) in &headers[..3] {
        assert_eq!(get.header(name), Some(*value));
    }
    assert_eq!((get.header("x-amz-tagging-count"), get.header("x-amz-tagging")), (Some("2"), None));
    assert_eq!((get.header("x-amz-checksum-crc32"), get.header("content-length")), (Some("y/Q5Jg=="), Some("9")));
    assert_eq!(
        (get.header("last-modified"), get.header("x-amz-request-id")),
        (Some("Fri, 24 May 2013 00:00:00 GMT"), Some("ID"))
    );
    let part = server.ask(
        "GET",
        "/bucket/key?response-content-type=a%2Fb",
        &[("range", "bytes=-3"), ("x-amz-checksum-mode", "ENABLED")],
        b"",
    );
    assert_eq!(
        (part.status, part.body.as_slice(), part.header("content-range")),
        (206, &b"789"[..], Some("bytes 6-8/9"))
    );
    assert_eq!((part.header("x-amz-checksum-crc32"), part.header("content-type")), (None, Some("a/b")));
    assert_eq!(server.ask("GET", "/bucket/key?partNumber=1", &[], b"").body, b"123456789");
    assert_eq!(server.outcome("GET", "/bucket/key?partNumber=2", &[], b""), code(400, "InvalidPart"));
    let head = server.ask("HEAD", "/bucket/key", &[("range", "bytes=2-")], b"");
    assert_eq!((head.status, head.header("content-length"), head.body.len()), (206, Some("7"), 0));
    for (validator, range, outcome) in [
        ("\"25f9e794323b453885f5181f1b624d0b\"", "bytes=7-", (206, "2")),
        ("Fri, 24 May 2013 00:00:00 GMT", "bytes=7-", (206, "2")),
        ("\"25f9e794323b453885f5181f1b624d0b\"", "bytes=9-", (416, "")),
        ("W/\"25f9e794323b453885f5181f1b624d0b\"", "bytes=7-", (200, "9")),
        ("\"other\"", "bytes=7-", (200, "9")),
        ("\"other\"", "bytes=9-", (200, "9")),
        ("Fri, 24 May 2013 00:00:01 GMT", "bytes=7-", (200, "9")),
    ] {
        for method in ["GET", "HEAD"] {
            let reply = server.ask(method, "/bucket/key", &[("range", range), ("if-range", validator)], b"");
            let length = reply.header("content-length").filter(|_| reply.status < 300).unwrap_or_default();
            assert_eq!((reply.status, length), outcome, "{method} {validator} {range}");
        }
    }
    let tags = server.ask("GET", "/bucket/key?tagging", &[], b"").xml();
    assert_eq!(tags.child("TagSet").map(|set| set.children[1].text_of("Value")), Some(Some("2")));
    let wanted = [("x-amz-object-attributes", "ETag,Checksum,ObjectSize,StorageClass,ObjectParts")];
    let attributes = server.ask("GET", "/bucket/key?attributes", &wanted, b"").xml();
    assert_eq!((attributes.text_of("ObjectSize"), attributes.text_of("StorageClass")), (Some("9"), Some("STANDARD")));
    assert_eq!(attributes.child("Checksum").and_then(|sum| sum.text_of("ChecksumCRC32")), Some("y/Q5Jg=="));
    assert!(attributes.child("ObjectParts").is_none());
    assert_eq!(server.ask("DELETE", "/bucket/key", &[], b"").status, 204);
    assert_eq!(server.outcome("GET", "/bucket/key", &[], b""), code(404, "NoSuchKey"));
    assert_eq!(server.outcome("GET", "/other/key", &[], b""), code(404, "NoSuchBucket"));
    assert_eq!(server.ask("HEAD", "/bucket/key", &[], b"").outcome(), code(404, ""));
    assert_eq!(server.ask("DELETE", "/bucket/key", &[], b"").status, 204);
}

#[test]
fn a_body_that_is_not_as_promised_stores_nothing() {
    let server = Server::new();
    server.put("/bucket/key", b"old");
    let cases = [
        (("content-md5", "JfnnlDI7RTiF9RgfG2JNCg=="), "BadDigest"),
        (("x-amz-checksum-crc32", "y/Q5Jw=="), "BadDigest"),
        (("x-amz-checksum-crc32", "bad"), "BadDigest"),
        (("content-length", "8"), "IncompleteBody"),
        (("content-length", "10"), "IncompleteBody"),
    ];
    for (header, expected) in &cases {
        assert_eq!(server.outcome("PUT", "/bucket/key", &[*header], b"123456789"), code(400, expected), "{header:?}");
    }
    let wrong = [("x-amz-content-sha256", "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb226")];
    assert_eq!(server.outcome("PUT", "/bucket/key", &wrong, b"123456789"), code(400, "XAmzContentSHA256Mismatch"));
    let cut = server.send("PUT", "/bucket/key", &[], b"123456789", true);
    assert_eq!(cut.outcome(), code(400, "RequestTimeout"));
    assert_eq!(server.ask("GET", "/bucket/key", &[], b"").body, b"old");
}

#[test]
fn conditions() {
    let server = Server::new();
    let etag = server.put("/bucket/key", b"old").header("etag").expect("an etag").to_owned();
    let later = "Sat, 25 May 2013 00:00:00 GMT";
    let reads: [(&[(&str, &str)], u16); 6] = [
        (&[("if-match", &etag)], 200),
        (&[("if-match", "\"other\"")], 412),
        (&[("if-none-match", &etag)], 304),
        (&[("if-none-match", "\"other\"")], 200),
        (&[("if-modified-since", later)], 304),
        (&[("if-unmodified-since", "Thu, 23 May 2013 00:00:00 GMT")], 412),
    ];
    for (headers, status) in reads {
        assert_eq!(server.ask("GET", "/bucket/key", headers, b"").status, status, "{headers:?}");
        assert_eq!(server.ask("HEAD", "/bucket/key", headers, b"").status, status, "{headers:?}");
    }
    let put = |target: &str, header: (&str, &str)| server.outcome("PUT", target, &[header], b"new");
    assert_eq!(put("/bucket/key", ("if-none-match", "*")), code(412, "PreconditionFailed"));
    assert_eq!(put("/bucket/key", ("if-match", "\"other\"")), code(412, "PreconditionFailed"));
    assert_eq!(put("/bucket/fresh", ("if-match", &etag)), code(404, "NoSuchKey"));
    assert_eq!(put("/bucket/fresh", ("if-none-match", "*")), code(200, ""));
    assert_eq!(put("/bucket/key", ("if-match", &etag)), code(200, ""));
    let delete = |value: &str| server.outcome("DELETE", "/bucket/key", &[("if-match", value)], b"");
    assert_eq!(delete(&etag), code(412, "PreconditionFailed"));
    assert_eq!(delete("*"), code(204, ""));
}

/// Keys and common prefixes of a list.
fn names(list: &Element) -> Vec<String> {
    let text = |child: &Element| match child.name.as_str() {
        "Contents" | "Version" | "Upload" => child.text_of("Key").map(str::to_owned),
        "CommonPrefixes" => child.text_of("Prefix").map(str::to_owned),
        _ => None,
    };
    list.children.iter().filter_map(text).collect()
}

#[test]
fn lists() {
    let server = Server::new();
    for key in ["a/1", "a/2", "b", "c%20%26/1", "d"] {
        server.put(&format!("/bucket/{key}"), b"x");
    }
    let list = |query: &str| server.ask("GET", &format!("/bucket?{query}"), &[], b"").xml();
    assert_eq!(names(&list("")), ["a/1", "a/2", "b", "c &/1", "d"]);
    assert_eq!(names(&list("list-type=2&delimiter=%2F")), ["b", "d", "a/", "c &/"]);
    assert_eq!(names(&list("list-type=2&prefix=a%2F&delimiter=%2F")), ["a/1", "a/2"]);
    assert_eq!(names(&list("versions&prefix=b")), ["b"]);
    let url = list("list-type=2&encoding-type=url&prefix=c%20");
    assert_eq!((names(&url), url.text_of("Prefix")), (vec!["c%20%26/1".to_owned()], Some("c%20")));
    // Page by page, each with one entry.
    let (mut token, mut seen) = (String::new(), Vec::new());
    loop {
        let page = list(&format!("list-type=2&delimiter=%2F&max-keys=1{token}"));
        seen.extend(names(&page));
        match page.text_of("NextContinuationToken") {
            Some(next) => token = format!("&continuation-token={}", encode_component(next)),
            None => break,
        }
    }
    assert_eq!(seen, ["a/", "b", "c &/", "d"]);
    let first = list("delimiter=%2F&max-keys=2");
    assert_eq!((first.text_of("IsTruncated"), first.text_of("NextMarker")), (Some("true"), Some("b")));
    assert_eq!(names(&list("delimiter=%2F&marker=a%2F")), ["b", "d", "c &/"]);
    assert_eq!(names(&list("list-type=2&start-after=b")), ["c &/1", "d"]);
    assert_eq!(names(&list("list-type=2&continuation-token=&start-after=b")), ["c &/1", "d"]);
    let none = list("max-keys=0");
    assert_eq!((names(&none).len(), none.text_of("IsTruncated")), (0, Some("false")));
    for query in ["max-keys=x", "max-keys=-1", "list-type=3", "list-type=2&continuation-token=x", "encoding-type=x"] {
        assert_eq!(
            server.outcome("GET", &format!("/bucket?{query}"), &[], b""),
            code(400, "InvalidArgument"),
            "{query}"
        );
    }
    assert_eq!(server.outcome("GET", "/other?max-keys=0", &[], b""), code(404, "NoSuchBucket"));
}

#[test]
fn what_lists_say_of_their_request_and_of_owners() {
    let server = Server::new();
    for key in ["a/1", "b"] {
        server.put(&format!("/bucket/{key}"), b"x");
    }
    for list in ["", "list-type=2&", "versions&"] {
        let ask = |query: &str| server.ask("GET", &format!("/bucket?{list}{query}"), &[], b"");
        let told = |query: &str| {
            let xml = ask(query).xml();
            let texts = ["Name", "Prefix", "Delimiter", "MaxKeys", "EncodingType"].map(|name| xml.text_of(name));
            texts.map(|text| text.unwrap_or("none").to_owned())
        };
        assert_eq!(told(""), ["bucket", "", "none", "1000", "none"], "{list}");
        let all = told("prefix=b&delimiter=%2F&max-keys=7&encoding-type=url");
        assert_eq!(all, ["bucket", "b", "/", "7", "url"], "{list}");
        // However many a client asks for, a page has 1,000 at most; what is no 31-bit number is refused.
        assert_eq!(told("max-keys=2147483647"), ["bucket", "", "none", "1000", "none"], "{list}");
        assert_eq!(ask("max-keys=2147483648").outcome(), code(400, "InvalidArgument"), "{list}");
    }
    let owners = |query: &str| {
        let list = server.ask("GET", &format!("/bucket?{query}"), &[], b"").xml();
        let entries = list.children.iter().filter(|child| matches!(child.name.as_str(), "Contents" | "Version"));
        let owners = entries.map(|entry| entry.child("Owner").and_then(|owner| owner.text_of("ID")).map(str::to_owned));
        owners.collect::<Vec<_>>()
    };
    let root = vec![Some("ashlar".to_owned()); 2];
    for query in ["", "versions", "list-type=2&fetch-owner=true"] {
        assert_eq!(owners(query), root, "{query}");
    }
    for query in ["list-type=2", "list-type=2&fetch-owner=false"] {
        assert_eq!(owners(query), [None, None], "{query}");
    }
}

#[test]
fn many_are_deleted_at_once() {
    let server = Server::new();
    ["a", "b"].iter().for_each(|key| drop(server.put(&format!("/bucket/{key}"), b"x")));
    let text = "<Delete><Object><Key>a</Key></Object><Object><Key>none</Key></Object>\
                <Object><Key>b</Key><ETag>other</ETag></Object></Delete>";
    assert_eq!(server.outcome("POST", "/bucket?delete", &[], text.as_bytes()), code(400, "InvalidRequest"));
    let digest = to_base64(&sha256(text.as_bytes()));
    let result = server.ask("POST", "/bucket?delete", &[("x-amz-checksum-sha256", &digest)], text.as_bytes()).xml();
    let deleted: Vec<_> = result.children.iter().filter(|child| child.name == "Deleted").collect();
    assert_eq!((deleted.len(), deleted[1].text_of("Key")), (2, Some("none")));
    assert_eq!(result.child("Error").and_then(|error| error.text_of("Code")), Some("PreconditionFailed"));
    assert_eq!(names(&server.ask("GET", "/bucket", &[], b"").xml()), ["b"]);
    // Whoever asks for it is told of failures only.
    server.put("/bucket/a", b"x");
    let quiet = text.replace("</Delete>", "<Quiet>true</Quiet></Delete>");
    let digest = to_base64(&sha256(quiet.as_bytes()));
    let result = server.ask("POST", "/bucket?delete", &[("x-amz-checksum-sha256", &digest)], quiet.as_bytes()).xml();
    let [failure] = &result.children[..] else { panic!("one result: {result:?}") };
    assert_eq!((failure.name.as_str(), failure.text_of("Key")), ("Error", Some("b")));
    assert_eq!(names(&server.ask("GET", "/bucket", &[], b"").xml()), ["b"]);
}

#[test]
fn an_upload_in_parts() {
    let server = Server::new();
    let begun = server.ask(
        "POST",
        "/bucket/key?uploads",
        &[("x-amz-meta-a", "1"), ("x-amz-checksum-algorithm", "CRC32"), ("x-amz-checksum-type", "FULL_OBJECT")],
        b"",
    );
    let upload = begun.xml().text_of("UploadId").expect("an id").to_owned();
    let part = |number: u32, body: &[u8]| {
        let reply = server.ask(
            "PUT",
            &format!("/bucket/key?partNumber={number}&uploadId={upload}"),
            &[("x-amz-checksum-crc32", &crc32(body))],
            body,
        );
        reply.header("etag").expect("an etag").to_owned()
    };
    let (one, two) = (vec![1; PART_BYTES_MIN as usize], b"the end".to_vec());
    let (first, second) = (part(1, &one), part(7, &two));
    let parts = server.ask("GET", &format!("/bucket/key?uploadId={upload}&max-parts=1"), &[], b"").xml();
    assert_eq!((parts.text_of("IsTruncated"), parts.text_of("NextPartNumberMarker")), (Some("true"), Some("1")));
    assert_eq!(names(&server.ask("GET", "/bucket?uploads", &[], b"").xml()), ["key"]);
    let target = format!("/bucket/key?uploadId={upload}");
    let complete =
        |headers: &[(&str, &str)], parts: &[(u32, &str)]| server.ask("POST", &target, headers, &completion(parts));
    let right = [(1, first.as_str()), (7, second.as_str())];
    assert_eq!(complete(&[], &[right[1], right[0]]).outcome(), code(400, "InvalidPartOrder"));
    assert_eq!(complete(&[], &[(1, &second)]).outcome(), code(400, "InvalidPart"));
    assert_eq!(complete(&[], &[(2, &first)]).outcome(), code(400, "InvalidPart"));
    assert_eq!(complete(&[("x-amz-checksum-crc32", "AAAAAA==")], &right).outcome(), code(400, "BadDigest"));
    let stale = "0".repeat(32);
    assert_eq!(complete(&[], &[right[0], (1, &stale), right[1]]).outcome(), code(400, "InvalidPart"));
    assert_eq!(complete(&[("x-amz-mp-object-size", "1")], &right).outcome(), code(400, "InvalidRequest"));
    let whole = [one, two].concat();
    // A part that was sent twice may be named by both of its entity tags: the last one counts.
    let twice = [(1, stale.as_str()), right[0], right[1]];
    let done = complete(&[("x-amz-checksum-crc32", &crc32(&whole)), ("if-none-match", "*")], &twice);
    assert_eq!(done.outcome(), code(200, ""));
    let etag = done.xml().text_of("ETag").expect("an etag").to_owned();
    assert!(etag.ends_with("-2\""), "{etag}");
    assert_eq!(done.xml().text_of("ChecksumCRC32"), Some(crc32(&whole).as_str()));
    let again = complete(&[], &right);
    assert_eq!((again.status, again.xml().text_of("ETag")), (200, Some(etag.as_str())));
    let get = server.ask("GET", "/bucket/key", &[("x-amz-checksum-mode", "ENABLED")], b"");
    assert!(
        get.body == whole
            && get.header("x-amz-meta-a") == Some("1")
            && get.header("x-amz-checksum-type") == Some("FULL_OBJECT")
    );
    let part = server.ask("GET", "/bucket/key?partNumber=2", &[], b"");
    assert_eq!(
        (part.status, part.body.as_slice(), part.header("x-amz-mp-parts-count")),
        (206, &b"the end"[..], Some("2"))
    );
    assert_eq!(server.outcome("GET", "/bucket/key?partNumber=3", &[], b""), code(416, "InvalidPartNumber"));
    let both = [("range", "bytes=0-1")];
    assert_eq!(server.outcome("GET", "/bucket/key?partNumber=1", &both, b""), code(400, "InvalidRequest"));
    assert_eq!(names(&server.ask("GET", "/bucket?uploads", &[], b"").xml()), [""; 0]);
}

#[test]
fn where_requests_are_sent_on_to_is_of_one_object() {
    let server = Server::new();
    let place = |key: &str| {
        let head = server.ask("HEAD", key, &[], b"");
        (head.status, head.header("x-amz-website-redirect-location").map(str::to_owned))
    };
    let sent_on = ("x-amz-website-redirect-location", "/there");
    server.ask("PUT", "/bucket/key", &[], b"a");
    let source = ("x-amz-copy-source", "/bucket/key");
    assert_eq!(server.outcome("PUT", "/bucket/key", &[source], b""), code(400, "InvalidRequest"));
    assert_eq!(server.outcome("PUT", "/bucket/key", &[source, sent_on], b""), code(200, ""));
    assert_eq!(place("/bucket/key"), (200, Some("/there".into())));
    assert_eq!(server.outcome("PUT", "/bucket/copy", &[source], b""), code(200, ""));
    assert_eq!(place("/bucket/copy"), (200, None));
}

#[test]
fn parts_have_the_checksum_of_their_upload() {
    let server = Server::new();
    server.ask("PUT", "/bucket/source", &[("x-amz-checksum-crc32", "y/Q5Jg==")], b"123456789");
    let chosen = [("x-amz-checksum-algorithm", "SHA256")];
    let begun = server.ask("POST", "/bucket/key?uploads", &chosen, b"").xml();
    let upload = begun.text_of("UploadId").expect("an id");
    let target = |number: u32| format!("/bucket/key?partNumber={number}&uploadId={upload}");
    let sha256 = "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU=";
    let other = server.outcome("PUT", &target(1), &[("x-amz-checksum-crc32", "y/Q5Jg==")], b"123456789");
    assert_eq!(other, code(400, "InvalidRequest"));
    let put = server.ask("PUT", &target(1), &[], b"123456789");
    assert_eq!((put.status, put.header("x-amz-checksum-sha256")), (200, Some(sha256)));
    let copied = server.ask("PUT", &target(1), &[("x-amz-copy-source", "/bucket/source")], b"").xml();
    assert_eq!((copied.text_of("ChecksumSHA256"), copied.text_of("ChecksumCRC32")), (Some(sha256), None));
    let etag = copied.text_of("ETag").expect("a tag").trim_matches('"').to_owned();
    let complete = |kind: &str| {
        let target = format!("/bucket/key?uploadId={upload}");
        server.ask("POST", &target, &[("x-amz-checksum-type", kind)], &completion(&[(1, &etag)]))
    };
    assert_eq!(complete("FULL_OBJECT").outcome(), code(400, "InvalidRequest"));
    let whole = complete("COMPOSITE");
    assert_eq!((whole.status, whole.xml().text_of("ChecksumType")), (200, Some("COMPOSITE")));
}

/// The document of a completion with these parts: numbers and entity tags.
fn completion(parts: &[(u32, &str)]) -> Vec<u8> {
    let part =
        |(number, etag): &(u32, &str)| format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>");
    let parts: String = parts.iter().map(part).collect();
    format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>").into_bytes()
}

#[test]
fn a_completion_names_each_part_once_and_is_repeated_with_the_same_parts() {
    let server = Server::new();
    let begun = server.ask("POST", "/bucket/key?uploads", &[], b"").xml();
    let upload = begun.text_of("UploadId").expect("an id");
    let target = format!("/bucket/key?uploadId={upload}");
    let part = |number: u32, body: &[u8]| {
        let reply = server.ask("PUT", &format!("{target}&partNumber={number}"), &[], body);
        reply.header("etag").expect("an etag").to_owned()
    };
    let (first, second) = (part(1, &vec![1; PART_BYTES_MIN as usize]), part(7, b"the end"));
    let (one, seven) = ((1, first.as_str()), (7, second.as_str()));
    let complete = |parts: &[(u32, &str)]| server.ask("POST", &target, &[], &completion(parts));
    let twice = [&[one, one][..], &[one, one, seven], &[one, seven, seven], &[one, seven, one]];
    for list in twice {
        assert_eq!(complete(list).outcome(), code(400, "InvalidPartOrder"), "{list:?}");
    }
    let done = complete(&[one, seven]);
    assert_eq!(done.outcome(), code(200, ""));
    assert_eq!(complete(&[one, seven]).body, done.body);
    // The upload is there no more for another list, also for one that makes the same entity tag.
    for list in [&[one][..], &[seven], &[one, (2, &second)], &[(2, &first), seven]] {
        assert_eq!(complete(list).outcome(), code(404, "NoSuchUpload"), "{list:?}");
    }
    for list in twice {
        assert_eq!(complete(list).outcome(), code(400, "InvalidPartOrder"), "{list:?}");
    }
}

fn crc32(bytes: &[u8]) -> String {
    let mut hasher = super::checksum::Hasher::new(super::checksum::Algorithm::Crc32);
    hasher.update(bytes);
    to_base64(&hasher.finish())
}

#[test]
fn uploads_that_are_refused_or_given_up() {
    let server = Server::new();
    let upload =
        server.ask("POST", "/bucket/a/key?uploads", &[], b"").xml().text_of("UploadId").expect("an id").to_owned();
    let part = |number: &str, id: &str| {
        server.outcome("PUT", &format!("/bucket/a/key?partNumber={number}&uploadId={id}"), &[], b"x")
    };
    assert_eq!(part("0", &upload), code(400, "InvalidArgument"));
    assert_eq!(part("10001", &upload), code(400, "InvalidArgument"));
    assert_eq!(part("1", "other"), code(404, "NoSuchUpload"));
    assert_eq!(part("1", &upload), code(200, ""));
    let uploads = server.ask("GET", "/bucket?uploads&delimiter=%2F", &[], b"").xml();
    assert_eq!((names(&uploads), uploads.text_of("Delimiter")), (vec!["a/".to_owned()], Some("/")));
    assert_eq!(server.ask("GET", "/bucket?uploads", &[], b"").xml().text_of("Delimiter"), None);
    let target = format!("/bucket/a/key?uploadId={upload}");
    assert_eq!(server.outcome("POST", &target, &[], b"<x/>"), code(400, "MalformedXML"));
    assert_eq!(server.ask("DELETE", &target, &[], b"").status, 204);
    assert_eq!(server.outcome("DELETE", &target, &[], b""), code(404, "NoSuchUpload"));
    let document = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{}</ETag></Part></CompleteMultipartUpload>",
        "0".repeat(32)
    );
    assert_eq!(server.outcome("POST", &target, &[], document.as_bytes()), code(404, "NoSuchUpload"));
    let nonsense = completion(&[(1, "1234")]);
    assert_eq!(server.outcome("POST", &target, &[], &nonsense), code(404, "NoSuchUpload"), "nor are there parts");
    let headers = [("x-amz-checksum-algorithm", "CRC64NVME"), ("x-amz-checksum-type", "COMPOSITE")];
    assert_eq!(server.outcome("POST", "/bucket/k?uploads", &headers, b""), code(400, "InvalidRequest"));
    assert_eq!(server.outcome("POST", "/bucket/k?uploads", &headers[1..], b""), code(400, "InvalidRequest"));
}

#[test]
fn copies() {
    let server = Server::new();
    let headers =
        [("x-amz-meta-a", "1"), ("x-amz-tagging", "t=1"), ("x-amz-checksum-sha1", "98O8HYCOBHMq32eZZczDTKeuNEE=")];
    let etag = server.ask("PUT", "/bucket/a%20b", &headers, b"123456789").header("etag").expect("an etag").to_owned();
    let copy = |target: &str, headers: &[(&str, &str)]| server.ask("PUT", target, headers, b"");
    let source = ("x-amz-copy-source", "/bucket/a%20b");
    let copied = copy("/bucket/copy", &[source]);
    assert_eq!((copied.outcome(), copied.xml().text_of("ETag")), (code(200, ""), Some(etag.as_str())));
    assert_eq!(copied.xml().text_of("ChecksumSHA1"), Some(headers[2].1));
    let head = server.ask("HEAD", "/bucket/copy", &[], b"");
    assert_eq!((head.header("x-amz-meta-a"), head.header("x-amz-tagging-count")), (Some("1"), Some("1")));
    let replaced = [
        source,
        ("x-amz-metadata-directive", "REPLACE"),
        ("x-amz-meta-b", "2"),
        ("x-amz-tagging-directive", "REPLACE"),
    ];
    assert_eq!(copy("/bucket/a%20b", &replaced).outcome(), code(200, ""));
    let head = server.ask("HEAD", "/bucket/a%20b", &[], b"");
    assert_eq!(
        (head.header("x-amz-meta-a"), head.header("x-amz-meta-b"), head.header("x-amz-tagging-count")),
        (None, Some("2"), None)
    );
    let refused = [
        ("/bucket/a%20b", vec![source], code(400, "InvalidRequest")),
        ("/bucket/c", vec![("x-amz-copy-source", "/bucket/none")], code(404, "NoSuchKey")),
        ("/bucket/c", vec![("x-amz-copy-source", "/other/none")], code(404, "NoSuchBucket")),
        ("/bucket/c", vec![("x-amz-copy-source", "bucket")], code(400, "InvalidArgument")),
        ("/bucket/c", vec![("x-amz-copy-source", "/bucket/")], code(400, "InvalidArgument")),
        ("/bucket/c", vec![("x-amz-copy-source", "/B/copy")], code(400, "InvalidArgument")),
        ("/bucket/c", vec![("x-amz-copy-source", "/bucket/copy?versionId=1")], code(400, "InvalidArgument")),
        ("/bucket/c", vec![source, ("x-amz-copy-source-if-match", "other")], code(412, "PreconditionFailed")),
        ("/bucket/c", vec![source, ("x-amz-copy-source-if-none-match", &etag)], code(412, "PreconditionFailed")),
        ("/bucket/c", vec![source, ("x-amz-metadata-directive", "X")], code(400, "InvalidArgument")),
    ];
    for (target, headers, expected) in refused {
        assert_eq!(copy(target, &headers).outcome(), expected, "{headers:?}");
    }
    let upload =
        server.ask("POST", "/bucket/big?uploads", &[], b"").xml().text_of("UploadId").expect("an id").to_owned();
    let target = format!("/bucket/big?partNumber=1&uploadId={upload}");
    let part = copy(&target, &[source, ("x-amz-copy-source-range", "bytes=2-4")]);
    assert_eq!((part.outcome(), part.xml().name.as_str()), (code(200, ""), "CopyPartResult"));
    assert_eq!(copy(&target, &[source, ("x-amz-copy-source-range", "bytes=2-9")]).outcome(), code(416, "InvalidRange"));
    assert_eq!(
        copy(&target, &[source, ("x-amz-copy-source-range", "bytes=2-")]).outcome(),
        code(400, "InvalidArgument")
    );
}

#[test]
fn buckets() {
    let server = Server::new();
    let region =
        "<CreateBucketConfiguration><LocationConstraint>eu-west-1</LocationConstraint></CreateBucketConfiguration>";
    assert_eq!(server.outcome("PUT", "/other", &[], region.as_bytes()), code(200, ""));
    assert_eq!(server.outcome("PUT", "/other", &[], b""), code(200, ""), "it is created again as it is");
    assert_eq!(
        server.outcome("PUT", "/third", &[("x-amz-server-side-encryption", "AES256")], b""),
        code(501, "NotImplemented")
    );
    let list = server.ask("GET", "/?max-buckets=1", &[], b"").xml();
    let found: Vec<_> =
        list.child("Buckets").expect("buckets").children.iter().filter_map(|one| one.text_of("Name")).collect();
    assert_eq!(found, vec!["bucket"]);
    let token = encode_component(list.text_of("ContinuationToken").expect("there are more"));
    let rest = server.ask("GET", &format!("/?continuation-token={token}"), &[], b"").xml();
    let found = rest.child("Buckets").expect("buckets").children.iter().filter_map(|one| one.text_of("Name"));
    assert_eq!(found.collect::<Vec<_>>(), ["other"]);
    assert_eq!(server.ask("GET", "/bucket?location", &[], b"").xml().text, "");
    assert_eq!(server.ask("GET", "/bucket?versioning", &[], b"").xml().children.len(), 0);
    let acl = server.ask("GET", "/bucket?acl", &[], b"").xml();
    assert_eq!(
        acl.child("AccessControlList").and_then(|list| list.children[0].text_of("Permission")),
        Some("FULL_CONTROL")
    );
    assert_eq!(server.ask("HEAD", "/bucket", &[], b"").status, 200);
    assert_eq!(server.ask("HEAD", "/none", &[], b"").outcome(), code(404, ""));
    assert_eq!(
        server.outcome("GET", "/bucket", &[("x-amz-expected-bucket-owner", "other")], b""),
        code(403, "AccessDenied")
    );
    assert_eq!(server.outcome("GET", "/bucket?policy", &[], b""), code(404, "NoSuchBucketPolicy"));
    assert_eq!(server.outcome("PUT", "/bucket?policy", &[], b"{}"), code(400, "MalformedPolicy"));
    assert_eq!(server.outcome("PUT", "/bucket?lifecycle", &[], b"<x/>"), code(400, "MalformedXML"));
    assert_eq!(server.outcome("GET", "/other?tagging", &[], b""), code(404, "NoSuchTagSet"));
    assert_eq!(server.outcome("DELETE", "/bucket?tagging", &[], b""), code(204, ""));
    let none = code(404, "OwnershipControlsNotFoundError");
    assert_eq!(server.outcome("GET", "/bucket?ownershipControls", &[], b""), none);
    assert_eq!(server.outcome("DELETE", "/none?policy", &[], b""), code(404, "NoSuchBucket"));
    assert_eq!(server.outcome("GET", "/none?tagging", &[], b""), code(404, "NoSuchBucket"));
    let payment = server.ask("GET", "/bucket?requestPayment", &[], b"").xml();
    assert_eq!(payment.text_of("Payer"), Some("BucketOwner"));
    // An object keeps a bucket, an upload does not.
    assert_eq!(server.ask("POST", "/other/key?uploads", &[], b"").status, 200);
    server.put("/other/key", b"x");
    assert_eq!(server.outcome("DELETE", "/other", &[], b""), code(409, "BucketNotEmpty"));
    assert_eq!(names(&server.ask("GET", "/other?uploads", &[], b"").xml()), ["key"]);
    assert_eq!(server.ask("DELETE", "/other/key", &[], b"").status, 204);
    assert_eq!(server.ask("DELETE", "/other", &[], b"").status, 204);
    assert_eq!(server.outcome("DELETE", "/other", &[], b""), code(404, "NoSuchBucket"));
}

#[test]
fn a_document_is_as_long_as_its_request_says() {
    let server = Server::new();
    for (length, expected) in
        [(DOCUMENT_BYTES_MAX, "IncompleteBody"), (DOCUMENT_BYTES_MAX + 1, "MaxMessageLengthExceeded")]
    {
        let said = [("content-length", &*length.to_string())];
        assert_eq!(server.outcome("PUT", "/bucket?tagging", &said, b"<Tagging/>"), code(400, expected), "{length}");
    }
    assert_eq!(server.outcome("PUT", "/new-bucket", &[("content-md5", "bad")], b""), code(400, "InvalidDigest"));
    assert_eq!(server.ask("HEAD", "/new-bucket", &[], b"").status, 404);
    // Who says no length has sent no document, and a new bucket needs none.
    let target = presigned_by_2("PUT", "/new-bucket", "key", "", "");
    let head = RequestHead::new(Method::Put, &target, vec![("host".to_owned(), "h".to_owned())]).expect("a head");
    assert_eq!(server.raw(head, &target, b"", false).outcome(), code(200, ""));
}

/// The users of a server that has just started.
pub(super) struct NotKnownYet;

impl Credentials for NotKnownYet {
    fn lookup(&self, _access_key: &str) -> Option<(SecretKey, User)> {
        None
    }

    fn user(&self, _id: &str) -> Option<User> {
        None
    }

    fn are_known(&self) -> bool {
        false
    }
}

#[test]
fn a_server_that_does_not_know_who_has_rights_refuses_everybody_and_says_so() {
    let known = Server::new();
    let service = Memory::new(|| NOW).service();
    let service = S3Service::new(service, Arc::new(NotKnownYet), Arc::new(Keys::default()), S3Settings::default());
    let server = Server(service, Some("key"), None);
    assert_eq!((known.0.are_rights_known(), server.0.are_rights_known()), (true, false));
    for server in [&server, &server.by(None)] {
        assert_eq!(server.outcome("GET", "/bucket", &[], b""), code(503, "ServiceUnavailable"));
    }
}

#[test]
fn a_presigned_request_carries_headers_in_its_query() {
    let server = Server::new();
    let target = format!(
        "/bucket/key?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={}&X-Amz-Date={DATE}&X-Amz-Expires=60\
         &X-Amz-SignedHeaders=host&cache-control=no-store&x-amz-meta-a=1",
        encode_component(&format!("key/{}", scope().text()))
    );
    let headers = || vec![("host".to_owned(), "h".to_owned()), ("content-length".to_owned(), "3".to_owned())];
    let head = RequestHead::new(Method::Put, &target, headers()).expect("a head");
    let text = string_to_sign(DATE, &scope(), &canonical_request(&head, &["host"], "UNSIGNED-PAYLOAD"));
    let target = format!("{target}&X-Amz-Signature={}", SigningKey::derive("secret", &scope()).sign(&text).to_hex());
    let head = || RequestHead::new(Method::Put, &target, headers()).expect("a head");
    assert_eq!(server.raw(head(), &target, b"abc", false).outcome(), code(200, ""));
    let kept = server.ask("HEAD", "/bucket/key", &[], b"");
    assert_eq!((kept.header("x-amz-meta-a"), kept.header("cache-control")), (Some("1"), None));
    let changed = target.replace("x-amz-meta-a=1", "x-amz-meta-a=2");
    assert_eq!(server.raw(head(), &changed, b"abc", false).outcome(), code(403, "SignatureDoesNotMatch"));
}

/// A target that is good until 60 s after [`NOW`] by Signature Version 2. `signed_headers` are lines of those in the query.
fn presigned_by_2(method: &str, path: &str, access_key: &str, headers_in_query: &str, signed_headers: &str) -> String {
    let until = NOW / 1_000 + 60;
    let mut mac = Hmac::<Sha1>::new_from_slice(b"secret").expect("a key");
    mac.update(format!("{method}\n\n\n{until}\n{signed_headers}{path}").as_bytes());
    let signature = encode_component(&to_base64(&mac.finalize().into_bytes()));
    format!("{path}?AWSAccessKeyId={access_key}&Expires={until}&Signature={signature}{headers_in_query}")
}

#[test]
fn a_request_presigned_by_version_2() {
    let server = Server::new();
    let head = |method: Method, target: &str| {
        let headers = [("host", "h"), ("content-length", "3")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        RequestHead::new(method, target, headers).expect("a head")
    };
    let put = presigned_by_2("PUT", "/bucket/key", "key", "&x-amz-meta-a=1", "x-amz-meta-a:1\n");
    assert_eq!(server.raw(head(Method::Put, &put), &put, b"abc", false).outcome(), code(200, ""));
    assert_eq!(server.ask("HEAD", "/bucket/key", &[], b"").header("x-amz-meta-a"), Some("1"));
    let changed = put.replace("meta-a=1", "meta-a=2");
    let refused = server.raw(head(Method::Put, &changed), &changed, b"abc", false);
    assert_eq!(refused.outcome(), code(403, "SignatureDoesNotMatch"));
    // A copy is signed, and not a put of other bytes.
    let signed = "x-amz-copy-source:bucket/key\nx-amz-metadata-directive:REPLACE\n";
    for (parameters, expected) in [
        ("&x-amz-copy-source=bucket/key&x-amz-metadata-directive=REPLACE", (200, "")),
        ("&x-amz-copy-source:bucket/key%0Ax-amz-metadata-directive=REPLACE", (400, "InvalidRequest")),
        ("&x-amz-copy-source=bucket/key%0Ax-amz-metadata-directive:REPLACE", (400, "InvalidRequest")),
    ] {
        let copy = presigned_by_2("PUT", "/bucket/copy", "key", parameters, signed);
        assert_eq!(server.raw(head(Method::Put, &copy), &copy, b"abc", false).outcome(), code(expected.0, expected.1));
    }
    // Policies can tell the versions, and where a signature stands, apart.
    let get = presigned_by_2("GET", "/bucket/key", "bob", "", "");
    let bob = server.by(Some("bob"));
    for (condition, by_header_4, by_query_2) in [
        ("s3:signatureversion\":\"AWS", 403, 200),
        ("s3:signatureversion\":\"AWS4-HMAC-SHA256", 200, 403),
        ("s3:authType\":\"REST-QUERY-STRING", 403, 200),
        ("s3:authType\":\"REST-HEADER", 200, 403),
    ] {
        let policy = format!(
            "{{\"Statement\":{{\"Effect\":\"Allow\",\"Principal\":{{\"AWS\":\"bob\"}},\"Action\":\"s3:GetObject\",\
             \"Resource\":\"arn:aws:s3:::bucket/*\",\"Condition\":{{\"StringEquals\":{{\"{condition}\"}}}}}}}}"
        );
        assert_eq!(server.outcome("PUT", "/bucket?policy", &[], policy.as_bytes()), code(204, ""), "{policy}");
        assert_eq!(bob.ask("GET", "/bucket/key", &[], b"").status, by_header_4, "{condition}");
        assert_eq!(server.raw(head(Method::Get, &get), &get, b"", false).status, by_query_2, "{condition}");
    }
}
