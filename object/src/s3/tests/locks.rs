//! Object lock, as clients see it.

use super::*;

const GOVERNED: [(&str, &str); 2] =
    [("x-amz-object-lock-mode", "GOVERNANCE"), ("x-amz-object-lock-retain-until-date", "2013-05-25T00:00:00Z")];
const BYPASS: (&str, &str) = ("x-amz-bypass-governance-retention", "true");

fn lockable() -> Server {
    let server = Server::new();
    let made = server.ask("PUT", "/locked", &[("x-amz-bucket-object-lock-enabled", "true")], b"");
    assert_eq!(made.status, 200);
    server
}

fn version(reply: &Reply) -> String {
    reply.header("x-amz-version-id").expect("a version").to_owned()
}

fn default_of(inside: &str) -> Vec<u8> {
    let rule = format!("<Rule><DefaultRetention>{inside}</DefaultRetention></Rule>");
    format!("<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled>{rule}</ObjectLockConfiguration>")
        .into_bytes()
}

fn retention(mode: &str, until: &str) -> Vec<u8> {
    format!("<Retention><Mode>{mode}</Mode><RetainUntilDate>{until}</RetainUntilDate></Retention>").into_bytes()
}

#[test]
fn locks_of_a_bucket() {
    let server = lockable();
    assert_eq!(server.ask("GET", "/locked?versioning", &[], b"").xml().text_of("Status"), Some("Enabled"));
    let suspended = b"<VersioningConfiguration><Status>Suspended</Status></VersioningConfiguration>";
    assert_eq!(server.outcome("PUT", "/locked?versioning", &[], suspended), code(409, "InvalidBucketState"));
    let empty = server.ask("GET", "/locked?object-lock", &[], b"").xml();
    assert_eq!((empty.text_of("ObjectLockEnabled"), empty.child("Rule").is_some()), (Some("Enabled"), false));
    let default = default_of("<Mode>COMPLIANCE</Mode><Years>1</Years>");
    assert_eq!(server.outcome("PUT", "/locked?object-lock", &[], &default), code(200, ""));
    let kept = server.ask("GET", "/locked?object-lock", &[], b"").xml();
    let rule = kept.child("Rule").and_then(|rule| rule.child("DefaultRetention")).expect("a default");
    assert_eq!((rule.text_of("Mode"), rule.text_of("Years")), (Some("COMPLIANCE"), Some("1")));
    let put = version(&server.put("/locked/key", b"x"));
    let told = server.ask("GET", "/locked/key?retention", &[], b"").xml();
    assert_eq!(told.text_of("RetainUntilDate"), Some("2014-05-24T00:00:00.000Z"));
    let gone = server.outcome("DELETE", &format!("/locked/key?versionId={put}"), &[BYPASS], b"");
    assert_eq!(gone, code(403, "AccessDenied"));
    // A bucket without locks gets them while it keeps versions, and not before.
    assert_eq!(server.outcome("PUT", "/bucket?object-lock", &[], &default), code(409, "InvalidBucketState"));
    let missing = code(404, "ObjectLockConfigurationNotFoundError");
    assert_eq!(server.outcome("GET", "/bucket?object-lock", &[], b""), missing);
    assert_eq!(server.outcome("PUT", "/bucket/key", &GOVERNED, b"x"), code(400, "InvalidRequest"));
    assert_eq!(server.outcome("POST", "/bucket/key?uploads", &GOVERNED, b""), code(400, "InvalidRequest"));
    server.put("/bucket/key", b"x");
    let hold = b"<LegalHold><Status>ON</Status></LegalHold>";
    assert_eq!(server.outcome("PUT", "/bucket/key?legal-hold", &[], hold), code(400, "InvalidRequest"));
    for name in ["legal-hold", "retention"] {
        let told = server.outcome("GET", &format!("/bucket/key?{name}"), &[], b"");
        assert_eq!(told, code(400, "InvalidRequest"));
    }
    let enabled = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    assert_eq!(server.outcome("PUT", "/bucket?versioning", &[], enabled), code(200, ""));
    assert_eq!(server.outcome("PUT", "/bucket?object-lock", &[], &default), code(200, ""));
    let again = [("x-amz-bucket-object-lock-enabled", "true")];
    assert_eq!(server.outcome("PUT", "/bucket", &again, b""), code(200, ""));
    assert_eq!(server.outcome("PUT", "/wrong", &[("x-amz-bucket-object-lock-enabled", "x")], b"").0, 400);
}

#[test]
fn locks_of_an_object() {
    let server = lockable();
    let headers = [GOVERNED[0], GOVERNED[1], ("x-amz-object-lock-legal-hold", "ON")];
    let put = server.ask("PUT", "/locked/key", &headers, b"x");
    let target = format!("/locked/key?versionId={}", version(&put));
    for method in ["GET", "HEAD"] {
        let told = server.ask(method, &target, &[], b"");
        let told = headers.map(|(name, _)| told.header(name).map(str::to_owned));
        let until = "2013-05-25T00:00:00.000Z";
        assert_eq!(told, [Some("GOVERNANCE".into()), Some(until.into()), Some("ON".into())]);
    }
    let delete = |headers: &[(&str, &str)]| server.outcome("DELETE", &target, headers, b"");
    assert_eq!(delete(&[BYPASS]), code(403, "AccessDenied"));
    let hold = |status: &str| {
        let text = format!("<LegalHold><Status>{status}</Status></LegalHold>");
        server.outcome("PUT", "/locked/key?legal-hold", &[], text.as_bytes())
    };
    assert_eq!((hold("abc"), hold("OFF")), (code(400, "MalformedXML"), code(200, "")));
    let told = server.ask("GET", "/locked/key?legal-hold", &[], b"").xml();
    assert_eq!(told.text_of("Status"), Some("OFF"));
    let relock = |mode: &str, until: &str, headers: &[(&str, &str)]| {
        server.outcome("PUT", "/locked/key?retention", headers, &retention(mode, until))
    };
    let (sooner, later) = ("2013-05-24T12:00:00Z", "2013-05-26T00:00:00Z");
    assert_eq!(relock("GOVERNANCE", sooner, &[]), code(403, "AccessDenied"));
    assert_eq!(relock("COMPLIANCE", later, &[]), code(403, "AccessDenied"));
    assert_eq!(relock("GOVERNANCE", later, &[]), code(200, ""));
    assert_eq!(relock("GOVERNANCE", "2013-05-23T00:00:00Z", &[BYPASS]), code(400, "InvalidArgument"));
    assert_eq!(relock("governance", later, &[]), code(400, "MalformedXML"));
    assert_eq!(relock("GOVERNANCE", sooner, &[BYPASS]), code(200, ""));
    assert_eq!(delete(&[]), code(403, "AccessDenied"));
    // A mark of a deletion hides it, and many at once are no way around.
    let marked = server.ask("DELETE", "/locked/key", &[], b"");
    assert_eq!((marked.status, marked.header("x-amz-delete-marker")), (204, Some("true")));
    let id = version(&put);
    let text = format!("<Delete><Object><Key>key</Key><VersionId>{id}</VersionId></Object></Delete>");
    let digest = to_base64(&sha256(text.as_bytes()));
    let many = |more: &[(&str, &str)]| {
        let headers = [&[("x-amz-checksum-sha256", digest.as_str())], more].concat();
        server.ask("POST", "/locked?delete", &headers, text.as_bytes()).xml()
    };
    let refused = many(&[]);
    assert_eq!(refused.child("Error").and_then(|error| error.text_of("Code")), Some("AccessDenied"));
    assert!(many(&[BYPASS]).child("Deleted").is_some());
    assert_eq!(server.outcome("GET", &target, &[], b""), code(404, "NoSuchVersion"));
    // What says nothing of locks has none to tell.
    server.put("/locked/plain", b"x");
    for name in ["legal-hold", "retention"] {
        let told = server.outcome("GET", &format!("/locked/plain?{name}"), &[], b"");
        assert_eq!(told, code(404, "NoSuchObjectLockConfiguration"));
    }
    let copy = [GOVERNED[0], GOVERNED[1], ("x-amz-copy-source", "/locked/plain")];
    assert_eq!(server.ask("PUT", "/locked/copy", &copy, b"").status, 200);
    let copied = server.ask("HEAD", "/locked/copy", &[], b"");
    assert_eq!(copied.header("x-amz-object-lock-mode"), Some("GOVERNANCE"));
}

#[test]
fn locks_take_permissions_of_their_own() {
    let root = lockable();
    let (ann, bob) = (root.by(Some("ann")), root.by(Some("bob")));
    let statement = |who: &str, actions: &str| {
        format!(
            r#"{{"Effect": "Allow", "Principal": {{"AWS": "{who}"}}, "Action": [{actions}],
            "Resource": "arn:aws:s3:::locked/*"}}"#
        )
    };
    let put = statement("ann", r#""s3:PutObject", "s3:GetObject", "s3:DeleteObject*", "s3:PutObjectRetention""#);
    let bypass = statement("bob", r#""s3:DeleteObject*", "s3:BypassGovernanceRetention""#);
    let policy = format!(r#"{{"Statement": [{put}, {bypass}]}}"#);
    assert_eq!(root.outcome("PUT", "/locked?policy", &[], policy.as_bytes()), code(204, ""));
    let held = [("x-amz-object-lock-legal-hold", "ON")];
    assert_eq!(ann.outcome("PUT", "/locked/key", &held, b"x"), code(403, "AccessDenied"));
    assert_eq!(bob.outcome("PUT", "/locked/key", &GOVERNED, b"x"), code(403, "AccessDenied"));
    root.put("/locked/key", b"x");
    let put = root.ask("PUT", "/locked/key", &GOVERNED, b"x");
    let longer = retention("GOVERNANCE", "2013-06-01T00:00:00Z");
    assert_eq!(bob.outcome("PUT", "/locked/key?retention", &[], &longer), code(403, "AccessDenied"));
    assert_eq!(ann.outcome("PUT", "/locked/key?retention", &[], &longer), code(200, ""));
    assert_eq!(ann.outcome("GET", "/locked/key?retention", &[], b""), code(403, "AccessDenied"));
    let read = ann.ask("GET", "/locked/key", &[], b"");
    assert_eq!((read.status, read.header("x-amz-object-lock-mode")), (200, None));
    let target = format!("/locked/key?versionId={}", version(&put));
    assert_eq!(ann.outcome("DELETE", &target, &[BYPASS], b""), code(403, "AccessDenied"));
    assert_eq!(bob.outcome("DELETE", &target, &[], b""), code(403, "AccessDenied"));
    assert_eq!(bob.outcome("DELETE", &target, &[BYPASS], b""), code(204, ""));
    // Who asks to pass over a retention without the permission still deletes what has none.
    let plain = version(&root.put("/locked/plain", b"x"));
    let outcome = ann.outcome("DELETE", &format!("/locked/plain?versionId={plain}"), &[BYPASS], b"");
    assert_eq!(outcome, code(204, ""));
}
