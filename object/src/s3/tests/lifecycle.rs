//! Lifecycle of objects: the configuration as clients see it, and rounds over the objects in memory.

use core::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};

use super::*;
use crate::api::{Edit, Object, Permit, Service, Target, Versioning, Versions, VersionsPage, VersionsRequest};
use crate::lock::{Bypass, LockChange};
use crate::s3::expire::{Expired, Round, expire_uploads};
use crate::s3::lifecycle::{DAY_MS, Day, Lifecycle};

fn document(rules: &str) -> Vec<u8> {
    format!("<LifecycleConfiguration>{rules}</LifecycleConfiguration>").into_bytes()
}

fn rule(inside: &str) -> Vec<u8> {
    document(&format!("<Rule><ID>one</ID><Status>Enabled</Status>{inside}</Rule>"))
}

fn set(server: &Server, inside: &str) {
    assert_eq!(server.outcome("PUT", "/bucket?lifecycle", &[], &rule(inside)), code(200, ""));
}

/// A whole round over the bucket, so many days later.
fn round(server: &Server, days: u64) -> Expired {
    let (service, now_ms) = (&server.0.service, NOW + days * DAY_MS);
    let bucket = now(service.buckets.get("bucket")).expect("a bucket");
    let rules = Lifecycle::of(&bucket.attributes, Day::default()).expect("rules");
    let (mut round, mut all) = (Round::default(), Expired::default());
    loop {
        let (expired, is_more) = now(round.page(service, "bucket", &rules, now_ms)).expect("a page");
        all = all.and(expired);
        if !is_more {
            return all.and(now(expire_uploads(service, "bucket", &rules, now_ms)).expect("uploads"));
        }
    }
}

fn ended(count: u64) -> Expired {
    Expired { ended: count, ..Expired::default() }
}

#[test]
fn the_configuration_is_kept_and_told_with_objects() {
    let server = Server::new();
    let missing = code(404, "NoSuchLifecycleConfiguration");
    assert_eq!(server.outcome("GET", "/bucket?lifecycle", &[], b""), missing);
    set(&server, "<Prefix>a/</Prefix><Expiration><Days>3</Days></Expiration>");
    let told = server.ask("GET", "/bucket?lifecycle", &[], b"").xml();
    assert_eq!(told.child("Rule").and_then(|rule| rule.text_of("Prefix")), Some("a/"));
    let expiry = "expiry-date=\"Mon, 27 May 2013 00:00:00 GMT\", rule-id=\"one\"";
    assert_eq!(server.put("/bucket/a/1", b"x").header("x-amz-expiration"), Some(expiry));
    for method in ["GET", "HEAD"] {
        assert_eq!(server.ask(method, "/bucket/a/1", &[], b"").header("x-amz-expiration"), Some(expiry));
    }
    assert_eq!(server.put("/bucket/b", b"x").header("x-amz-expiration"), None);
    assert_eq!(server.outcome("DELETE", "/bucket?lifecycle", &[], b""), code(204, ""));
    assert_eq!(server.outcome("GET", "/bucket?lifecycle", &[], b""), missing);
    assert_eq!(server.ask("HEAD", "/bucket/a/1", &[], b"").header("x-amz-expiration"), None);
}

#[test]
fn objects_end_when_their_days_are_over() {
    let server = Server::new();
    ["a/1", "a/2", "b"].iter().for_each(|key| drop(server.put(&format!("/bucket/{key}"), b"x")));
    set(&server, "<Prefix>a/</Prefix><Expiration><Days>3</Days></Expiration>");
    assert_eq!(round(&server, 2), ended(0));
    assert_eq!(round(&server, 3), ended(2));
    assert_eq!(names(&server.ask("GET", "/bucket", &[], b"").xml()), ["b"]);
    set(&server, "<Prefix/><Expiration><Date>2013-05-30T00:00:00Z</Date></Expiration>");
    assert_eq!(round(&server, 5), ended(0));
    assert_eq!(round(&server, 6), ended(1));
}

#[test]
fn many_objects_take_several_pages() {
    let server = Server::new();
    (0..1_203).for_each(|number| drop(server.put(&format!("/bucket/{number}"), b"x")));
    set(&server, "<Prefix/><Expiration><Days>1</Days></Expiration>");
    assert_eq!(round(&server, 1), ended(1_203));
    assert_eq!(round(&server, 1), ended(0));
}

#[test]
fn versions_and_marks_end_one_after_the_other() {
    let server = Server::new();
    let versioning = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    assert_eq!(server.ask("PUT", "/bucket?versioning", &[], versioning).status, 200);
    (0..4).for_each(|_| drop(server.put("/bucket/key", b"x")));
    let count = |name: &str| {
        let list = server.ask("GET", "/bucket?versions", &[], b"").xml();
        list.children.iter().filter(|child| child.name == name).count()
    };
    set(
        &server,
        "<Prefix/><NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays><NewerNoncurrentVersions>1</NewerNoncurrentVersions></NoncurrentVersionExpiration>",
    );
    assert_eq!(round(&server, 1), ended(2));
    assert_eq!(count("Version"), 2);
    // The current version ends: it gets a mark, and is not current from then on.
    set(&server, "<Prefix/><Expiration><Days>1</Days></Expiration>");
    assert_eq!(round(&server, 1), ended(1));
    assert_eq!((count("Version"), count("DeleteMarker")), (2, 1));
    assert_eq!(round(&server, 1), ended(0), "a mark with versions under it stays");
    set(
        &server,
        "<Prefix/><NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays></NoncurrentVersionExpiration>",
    );
    assert_eq!(round(&server, 1), ended(2));
    set(&server, "<Prefix/><Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>");
    assert_eq!(round(&server, 0), ended(1));
    assert_eq!((count("Version"), count("DeleteMarker")), (0, 0));
}

#[test]
fn locked_versions_stay() {
    let server = Server::new();
    assert_eq!(server.ask("DELETE", "/bucket", &[], b"").status, 204);
    assert_eq!(server.ask("PUT", "/bucket", &[("x-amz-bucket-object-lock-enabled", "true")], b"").status, 200);
    let hold = ("x-amz-object-lock-legal-hold", "ON");
    assert_eq!(server.ask("PUT", "/bucket/key", &[hold], b"x").status, 200);
    server.put("/bucket/key", b"y");
    set(
        &server,
        "<Prefix/><NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays></NoncurrentVersionExpiration>",
    );
    assert_eq!(round(&server, 1), Expired { locked: 1, ..Expired::default() });
}

#[test]
fn uploads_that_nobody_completes_are_given_up() {
    let server = Server::new();
    for key in ["a/1", "b"] {
        assert_eq!(server.ask("POST", &format!("/bucket/{key}?uploads"), &[], b"").status, 200);
    }
    set(
        &server,
        "<Prefix>a/</Prefix><AbortIncompleteMultipartUpload><DaysAfterInitiation>2</DaysAfterInitiation></AbortIncompleteMultipartUpload>",
    );
    assert_eq!(round(&server, 1), ended(0));
    assert_eq!(round(&server, 2), ended(1));
    assert_eq!(names(&server.ask("GET", "/bucket?uploads", &[], b"").xml()), ["b"]);
}

const ENABLED: &[u8] = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";

fn noncurrent(newer: u32) -> String {
    let newer = format!("<NewerNoncurrentVersions>{newer}</NewerNoncurrentVersions>");
    let days = "<NoncurrentDays>1</NoncurrentDays>";
    format!("<Prefix/><NoncurrentVersionExpiration>{days}{newer}</NoncurrentVersionExpiration>")
}

#[test]
fn versions_of_a_key_are_counted_over_pages_and_for_each_key_alone() {
    let server = Server::new();
    assert_eq!(server.ask("PUT", "/bucket?versioning", &[], ENABLED).status, 200);
    // The first page ends behind the first 50 versions of `a`.
    (0..950).for_each(|number| drop(server.put(&format!("/bucket/0/{number}"), b"x")));
    for (key, count) in [("a", 153), ("b", 2)] {
        (0..count).for_each(|_| drop(server.put(&format!("/bucket/{key}"), b"x")));
    }
    set(&server, &noncurrent(100));
    assert_eq!(round(&server, 1), ended(52));
    assert_eq!(round(&server, 1), ended(0));
    let left = names(&server.ask("GET", "/bucket?versions&key-marker=0/999", &[], b"").xml());
    assert_eq!(["a", "b"].map(|key| left.iter().filter(|name| *name == key).count()), [101, 2]);
}

#[test]
fn versions_behind_one_that_has_ended_with_a_page_are_looked_at_too() {
    let server = Server::new();
    assert_eq!(server.ask("PUT", "/bucket?versioning", &[], ENABLED).status, 200);
    for (key, count) in [("a", 1_002), ("b", 2)] {
        (0..count).for_each(|_| drop(server.put(&format!("/bucket/{key}"), b"x")));
    }
    set(&server, &noncurrent(100));
    assert_eq!(round(&server, 1), ended(901));
}

#[test]
fn a_mark_of_a_deletion_that_is_not_current_is_one_of_the_newer_versions() {
    let server = Server::new();
    assert_eq!(server.ask("PUT", "/bucket?versioning", &[], ENABLED).status, 200);
    server.put("/bucket/key", b"one");
    assert_eq!(server.ask("DELETE", "/bucket/key", &[], b"").status, 204);
    server.put("/bucket/key", b"two");
    set(&server, &noncurrent(2));
    assert_eq!(round(&server, 1), ended(0));
    set(&server, &noncurrent(1));
    assert_eq!(round(&server, 1), ended(1));
    assert_eq!(names(&server.ask("GET", "/bucket?versions", &[], b"").xml()), ["key"]);
    // A mark under which nothing is left ends also where another key follows.
    assert_eq!(server.ask("DELETE", "/bucket/gone", &[], b"").status, 204);
    set(&server, "<Prefix/><Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>");
    assert_eq!(round(&server, 0), ended(1));
}

/// The versions in memory, where something happens just after they were listed for the first time.
struct Watched {
    versions: Arc<dyn Versions>,
    then: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Versions for Watched {
    fn state<'a>(&'a self, bucket: &'a str) -> BoxFuture<'a, Result<Versioning, Error>> {
        self.versions.state(bucket)
    }

    fn set_state<'a>(&'a self, bucket: &'a str, state: Versioning) -> BoxFuture<'a, Result<(), Error>> {
        self.versions.set_state(bucket, state)
    }

    fn list<'a>(&'a self, bucket: &'a str, request: &'a VersionsRequest) -> BoxFuture<'a, Result<VersionsPage, Error>> {
        Box::pin(async move {
            let page = self.versions.list(bucket, request).await;
            let then = self.then.lock().unwrap_or_else(PoisonError::into_inner).take();
            then.into_iter().for_each(|then| then());
            page
        })
    }

    fn edit<'a>(&'a self, target: Target<'a>, edit: Edit<'a>) -> BoxFuture<'a, Result<Object, Error>> {
        self.versions.edit(target, edit)
    }

    fn relock<'a>(
        &'a self,
        target: Target<'a>,
        change: LockChange,
        bypass: Bypass,
        permit: Permit<'a>,
    ) -> BoxFuture<'a, Result<Object, Error>> {
        self.versions.relock(target, change, bypass, permit)
    }
}

#[test]
fn an_object_that_is_replaced_while_it_ends_stays() {
    for (later_ms, body, is_left) in [(0, None, false), (1, Some(&b"old"[..]), true), (0, Some(b"new"), true)] {
        let clock = Arc::new(AtomicU64::new(NOW));
        let time = Arc::clone(&clock);
        let memory = Memory::new(move || time.load(Ordering::Relaxed));
        let server = Server::over(&memory);
        server.put("/bucket/key", b"old");
        set(&server, "<Prefix/><Expiration><Days>1</Days></Expiration>");
        let again = server.by(Some("key"));
        let then = move || {
            clock.fetch_add(later_ms, Ordering::Relaxed);
            body.into_iter().for_each(|body| drop(again.put("/bucket/key", body)));
        };
        let watched = Watched { versions: memory.service().versions, then: Mutex::new(Some(Box::new(then))) };
        let service = Service { versions: Arc::new(watched), ..memory.service() };
        let service = S3Service::new(service, Arc::new(Users), Arc::new(Keys::default()), S3Settings::default());
        let expired = round(&Server(service, Some("key"), None), 2);
        assert_eq!(expired, ended(u64::from(!is_left)), "{later_ms} {body:?}");
        let read = server.ask("GET", "/bucket/key", &[], b"");
        assert_eq!((read.status == 200, read.body.as_slice()), (is_left, body.unwrap_or(&read.body)));
    }
}
