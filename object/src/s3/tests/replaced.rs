//! Objects that are replaced between the moment at which it is asked who may do something and that at which it is done.

use core::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};

use super::sessions::assume;
use super::*;
use crate::api::{
    Body, Condition, DeleteRequest, Deletion, ListRequest, Object, Objects, Opened, PART_BYTES_MAX, Page, PutRequest,
    Range, Service, Target,
};

type Then = Box<dyn FnOnce() + Send>;
/// Method, target, headers and body of a request.
type Asked<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], &'a [u8]);

/// The object service in memory, where something happens just after an object was looked at for the first time.
struct Watched {
    objects: Arc<dyn Objects>,
    then: Mutex<Option<Then>>,
    opens: Opens,
}

/// What becomes of an object that is opened.
#[derive(Clone)]
enum Opens {
    /// It is as it was put.
    AsItIs,
    /// It says that it has so many bytes.
    WithBytes(u64),
    /// It cannot be opened.
    Not(Error),
}

impl Objects for Watched {
    fn put<'a>(&'a self, request: PutRequest, body: &'a mut dyn Body) -> BoxFuture<'a, Result<Object, Error>> {
        self.objects.put(request, body)
    }

    fn get<'a>(
        &'a self,
        target: Target<'a>,
        range: Option<Range>,
        condition: &'a Condition,
    ) -> BoxFuture<'a, Result<Opened, Error>> {
        Box::pin(async move {
            if let Opens::Not(error) = &self.opens {
                return Err(error.clone());
            }
            let mut opened = self.objects.get(target, range, condition).await?;
            if let Opens::WithBytes(bytes) = self.opens {
                opened.range.1 = bytes;
            }
            Ok(opened)
        })
    }

    fn head<'a>(&'a self, target: Target<'a>) -> BoxFuture<'a, Result<Object, Error>> {
        Box::pin(async move {
            let found = self.objects.head(target).await;
            let then = self.then.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(then) = then {
                then();
            }
            found
        })
    }

    fn delete<'a>(&'a self, request: DeleteRequest<'a>) -> BoxFuture<'a, Result<Deletion, Error>> {
        self.objects.delete(request)
    }

    fn list<'a>(&'a self, bucket: &'a str, request: &'a ListRequest) -> BoxFuture<'a, Result<Page, Error>> {
        self.objects.list(bucket, request)
    }
}

/// The headers of an object that is open to everybody, and of one that is not.
const OPEN: [(&str, &str); 2] = [("x-amz-acl", "public-read-write"), ("x-amz-tagging", "level=open")];
const SHUT: [(&str, &str); 2] = [("x-amz-acl", "private"), ("x-amz-tagging", "level=shut")];
/// Bob may do everything with open objects, and put objects of his own. Nobody may do what only lists allow to others.
const POLICY: &str = "{\"Statement\":[
    {\"Effect\":\"Allow\",\"Principal\":{\"AWS\":\"bob\"},\"Action\":\"s3:*\",\"Resource\":\"arn:aws:s3:::anns/*\",
     \"Condition\":{\"StringEquals\":{\"s3:ExistingObjectTag/level\":\"open\"}}},
    {\"Effect\":\"Allow\",\"Principal\":{\"AWS\":\"bob\"},\"Action\":\"s3:*\",\"Resource\":[\"arn:aws:s3:::anns/to\", \"arn:aws:s3:::anns\"]}]}";

/// What is answered to a request for Ann's open object, which becomes a shut one as soon as it was looked at, or which stays open.
fn asked(
    (user, is_replaced, is_locked): (Option<&'static str>, bool, bool),
    (method, target, headers, body): Asked<'_>,
) -> (Reply, Server) {
    let memory = Memory::new(|| NOW);
    let plain = Server::over(&memory);
    let ann = plain.by(Some("ann"));
    let lock = [("x-amz-bucket-object-lock-enabled", "true")];
    assert_eq!(ann.ask("PUT", "/anns", if is_locked { &lock } else { &[] }, b"").status, 200);
    if user.is_some() {
        assert_eq!(ann.ask("PUT", "/anns?policy", &[], POLICY.as_bytes()).status, 204);
    }
    assert_eq!(ann.ask("PUT", "/anns/key", &OPEN, b"open").status, 200);
    let again = ann.by(Some("ann"));
    let shut = move || assert_eq!(again.ask("PUT", "/anns/key", &SHUT, b"shut").status, 200);
    let then: Option<Then> = if is_replaced { Some(Box::new(shut)) } else { None };
    (watched(&memory, user, then, Opens::AsItIs).ask(method, target, headers, body), ann)
}

/// The service over what is in memory, where this happens as soon as an object was looked at, and that becomes of those that are opened.
fn watched(memory: &Memory, user: Option<&'static str>, then: Option<Then>, opens: Opens) -> Server {
    let objects = Arc::new(Watched { objects: memory.service().objects, then: Mutex::new(then), opens });
    let service = Service { objects, ..memory.service() };
    let service = S3Service::new(service, Arc::new(Users), Arc::new(Keys::default()), S3Settings::default());
    Server(service, user, None)
}

#[test]
fn what_is_served_is_what_was_asked_for_and_not_what_was_put_meanwhile() {
    let copied = [("x-amz-copy-source", "/anns/key")];
    let attributes = [("x-amz-object-attributes", "ETag")];
    let range = [("range", "bytes=0-1")];
    let reads: [Asked<'_>; 8] = [
        ("GET", "/anns/key", &[], b""),
        ("GET", "/anns/key", &range, b""),
        ("GET", "/anns/key?partNumber=1", &[], b""),
        ("HEAD", "/anns/key", &[], b""),
        ("GET", "/anns/key?attributes", &attributes, b""),
        ("GET", "/anns/key?acl", &[], b""),
        ("GET", "/anns/key?tagging", &[], b""),
        ("PUT", "/anns/to", &copied, b""),
    ];
    for request in reads {
        let (method, target, ..) = request;
        assert!(asked((Some("bob"), false, false), request).0.status < 300, "{method} {target}");
        let (reply, _) = asked((Some("bob"), true, false), request);
        assert_eq!(reply.status, 403, "{method} {target}");
    }
    for (method, headers) in [("GET", &[][..]), ("GET", &range), ("HEAD", &[]), ("GET", &[("if-none-match", "*")])] {
        let request = (method, "/anns/key", headers, &b""[..]);
        assert!(asked((None, false, false), request).0.status < 400, "by the list: {method}");
        assert_eq!(asked((None, true, false), request).0.status, 403, "by the list: {method}");
    }
}

#[test]
fn what_was_put_meanwhile_is_not_changed() {
    let tagging =
        b"<Tagging><TagSet><Tag><Key>level</Key><Value>open</Value></Tag><Tag><Key>b</Key><Value>c</Value></Tag></TagSet></Tagging>";
    let many = b"<Delete><Object><Key>key</Key></Object></Delete>";
    let hold = b"<LegalHold><Status>ON</Status></LegalHold>";
    let public = [("x-amz-acl", "public-read")];
    let digest = [("content-md5", "VUxjCEXWiErKatrg6+J0xA==")];
    let changes: [Asked<'_>; 6] = [
        ("PUT", "/anns/key?acl", &public, b""),
        ("PUT", "/anns/key?tagging", &[], tagging),
        ("DELETE", "/anns/key?tagging", &[], b""),
        ("DELETE", "/anns/key", &[], b""),
        ("POST", "/anns?delete", &digest, many),
        ("PUT", "/anns/key?legal-hold", &[], hold),
    ];
    for change in changes {
        let (method, target, ..) = change;
        for is_locked in [false, true] {
            if !is_locked && target.ends_with("hold") {
                continue;
            }
            let (reply, _) = asked((Some("bob"), false, is_locked), change);
            let text = String::from_utf8_lossy(&reply.body).into_owned();
            assert!(reply.status < 300 && !text.contains("<Error>"), "{method} {target}: {text}");
            let (reply, ann) = asked((Some("bob"), true, is_locked), change);
            let text = String::from_utf8_lossy(&reply.body).into_owned();
            assert!(reply.status == 403 || text.contains("AccessDenied"), "{method} {target}: {} {text}", reply.status);
            assert_eq!(ann.ask("GET", "/anns/key", &[], b"").body, b"shut", "{method} {target}");
            assert_eq!(ann.by(None).ask("GET", "/anns/key", &[], b"").status, 403, "{method} {target}");
            let tags = ann.ask("GET", "/anns/key?tagging", &[], b"").body;
            assert!(String::from_utf8_lossy(&tags).contains("shut"), "{method} {target}");
            assert_eq!(ann.ask("GET", "/anns/key?legal-hold", &[], b"").status, if is_locked { 404 } else { 400 });
        }
    }
}

#[test]
fn a_source_of_a_copy_has_5_gib_at_most() {
    for (bytes, expected) in [(PART_BYTES_MAX, (200, "")), (PART_BYTES_MAX + 1, (400, "InvalidRequest"))] {
        let memory = Memory::new(|| NOW);
        Server::over(&memory).put("/bucket/key", b"x");
        let copied = [("x-amz-copy-source", "/bucket/key")];
        let outcome =
            watched(&memory, Some("key"), None, Opens::WithBytes(bytes)).outcome("PUT", "/bucket/to", &copied, b"");
        assert_eq!(outcome, code(expected.0, expected.1), "{bytes}");
    }
}

#[test]
fn an_object_is_looked_at_before_a_put_only_where_a_policy_asks_for_its_tags() {
    let memory = Memory::new(|| NOW);
    let ann = Server::over(&memory).by(Some("ann"));
    assert_eq!(ann.ask("PUT", "/anns", &[], b"").status, 200);
    let puts = r#"{"Effect": "Allow", "Action": "s3:PutObject", "Resource": "*"}"#;
    let session = assume(&ann, "ann", &format!(r#"{{"Statement": {puts}}}"#));
    let of_bob = puts.replace(r#""Action""#, r#""Principal": {"AWS": "bob"}, "Action""#);
    let open = r#""Resource": "*", "Condition": {"StringEquals": {"s3:ExistingObjectTag/level": "open"}}"#;
    let of_open = of_bob.replace(r#""Resource": "*""#, open);
    let headers = [("x-amz-acl", "private")];
    for (statement, is_session, is_looked_at) in
        [(&of_bob, false, false), (&of_bob, true, false), (&of_open, false, true)]
    {
        assert_eq!(ann.ask("PUT", "/anns/key", &OPEN, b"open").status, 200);
        let policy = format!(r#"{{"Statement": {statement}}}"#);
        assert_eq!(ann.outcome("PUT", "/anns?policy", &[], policy.as_bytes()), code(204, ""));
        let looked = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&looked);
        let server =
            watched(&memory, Some("bob"), Some(Box::new(move || seen.store(true, Ordering::Relaxed))), Opens::AsItIs);
        let reply = if is_session {
            session.ask_with(&server, NOW, ("PUT", "/anns/key", &headers), b"x")
        } else {
            server.ask("PUT", "/anns/key", &headers, b"x")
        };
        assert_eq!((reply.status, looked.load(Ordering::Relaxed)), (200, is_looked_at), "{statement}");
    }
}

#[test]
fn a_part_is_of_the_object_that_is_there_when_it_is_read() {
    let memory = Memory::new(|| NOW);
    let plain = Server::over(&memory);
    plain.put("/bucket/key", b"old");
    let again = plain.by(Some("key"));
    let then: Then = Box::new(move || drop(again.put("/bucket/key", b"longer")));
    let part =
        watched(&memory, Some("key"), Some(then), Opens::AsItIs).ask("GET", "/bucket/key?partNumber=1", &[], b"");
    assert_eq!((part.body.as_slice(), part.header("content-range")), (&b"longer"[..], Some("bytes 0-5/6")));
}

#[test]
fn a_part_that_cannot_be_opened_is_refused_as_the_whole_object_is() {
    let memory = Memory::new(|| NOW);
    Server::over(&memory).put("/bucket/key", b"old");
    let server = watched(&memory, Some("key"), None, Opens::Not(Error::Damaged));
    for target in ["/bucket/key", "/bucket/key?partNumber=1"] {
        assert_eq!(server.outcome("GET", target, &[], b""), code(500, "InternalError"), "{target}");
    }
}
