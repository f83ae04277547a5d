//! Temporary credentials, as clients get and use them.

use super::*;
use crate::s3::encoding::encode_component;
use crate::s3::signature::STS;

/// A session as the token service tells it.
pub(super) struct Temporary {
    access_key: String,
    secret_key: String,
    token: String,
}

/// A form to the token service, signed with this key and secret, with more headers.
fn form(server: &Server, by: (&str, &str), form: &str, headers: &[(&str, &str)]) -> Reply {
    let here = server.2.unwrap_or(IpAddr::from([127, 0, 0, 1]));
    Server(server.0.clone(), server.1, Some(here)).raw(head(by, form, headers), "/", form.as_bytes(), false)
}

fn head((access_key, secret): (&str, &str), form: &str, headers: &[(&str, &str)]) -> RequestHead {
    let scope = Scope { service: STS, ..scope() };
    let all =
        [("host", "h"), ("x-amz-date", DATE), ("content-type", "application/x-www-form-urlencoded; charset=utf-8")];
    let all = all.iter().chain(headers).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let mut head = RequestHead::new(Method::Post, "/", all).expect("a head");
    let names: Vec<String> = head.headers.iter().map(|(name, _)| name.clone()).collect();
    let signed: Vec<&str> = names.iter().map(String::as_str).collect();
    let canonical = canonical_request(&head, &signed, &crate::s3::encoding::to_hex(&sha256(form.as_bytes())));
    let signature = SigningKey::derive(secret, &scope).sign(&string_to_sign(DATE, &scope, &canonical)).to_hex();
    let (scope, signed) = (scope.text(), signed.join(";"));
    head.headers.push((
        "authorization".into(),
        format!("AWS4-HMAC-SHA256 Credential={access_key}/{scope}, SignedHeaders={signed}, Signature={signature}"),
    ));
    head
}

fn outcome(reply: &Reply) -> (u16, String) {
    let xml = reply.xml();
    let code = xml.child("Error").and_then(|error| error.text_of("Code")).unwrap_or_default();
    (reply.status, code.to_owned())
}

pub(super) fn assume(server: &Server, access_key: &str, policy: &str) -> Temporary {
    let policy = if policy.is_empty() { String::new() } else { format!("&Policy={}", encode_component(policy)) };
    let reply = form(
        server,
        (access_key, "secret"),
        &format!("Action=AssumeRole&Version=2011-06-15&RoleSessionName=name{policy}"),
        &[],
    );
    assert_eq!(outcome(&reply), code(200, ""));
    let xml = reply.xml();
    let told = xml.child("AssumeRoleResult").and_then(|result| result.child("Credentials")).expect("credentials");
    assert_eq!(told.text_of("Expiration"), Some("2013-05-24T01:00:00.000Z"));
    let text = |name: &str| told.text_of(name).expect("a field").to_owned();
    Temporary { access_key: text("AccessKeyId"), secret_key: text("SecretAccessKey"), token: text("SessionToken") }
}

impl Temporary {
    /// Asks with these credentials, at `now_ms`.
    fn ask_at(&self, server: &Server, now_ms: u64, method: &str, target: &str, body: &[u8]) -> Reply {
        self.ask_with(server, now_ms, (method, target, &[]), body)
    }

    pub(super) fn ask_with(
        &self,
        server: &Server,
        now_ms: u64,
        (method, target, headers): (&str, &str, &[(&str, &str)]),
        body: &[u8],
    ) -> Reply {
        let date = crate::s3::date::amz_date(now_ms);
        let scope = Scope { day: date[..8].to_owned(), ..scope() };
        let length = body.len().to_string();
        let all = [
            ("content-length", length.as_str()),
            ("host", "h"),
            ("x-amz-content-sha256", "UNSIGNED-PAYLOAD"),
            ("x-amz-date", &date),
            ("x-amz-security-token", &self.token),
        ];
        let all = all.iter().chain(headers).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let mut head = RequestHead::new(Method::named(method), target, all).expect("a head");
        let names: Vec<String> = head.headers.iter().map(|(name, _)| name.clone()).collect();
        let signed: Vec<&str> = names.iter().map(String::as_str).collect();
        let text = string_to_sign(&date, &scope, &canonical_request(&head, &signed, "UNSIGNED-PAYLOAD"));
        let signature = SigningKey::derive(&self.secret_key, &scope).sign(&text).to_hex();
        let (key, scope, signed) = (&self.access_key, scope.text(), signed.join(";"));
        head.headers.push((
            "authorization".into(),
            format!("AWS4-HMAC-SHA256 Credential={key}/{scope}, SignedHeaders={signed}, Signature={signature}"),
        ));
        server.raw_at(now_ms, head, target, body, false)
    }

    fn ask(&self, server: &Server, method: &str, target: &str, body: &[u8]) -> (u16, String) {
        self.ask_at(server, NOW, method, target, body).outcome()
    }
}

const READS: &str = "{\"Version\":\"2012-10-17\",\"Statement\":[{\"Effect\":\"Allow\",\"Action\":[\"s3:GetObject\",\"s3:ListBucket\"],\
    \"Resource\":[\"arn:aws:s3:::anns\",\"arn:aws:s3:::anns/${aws:userid}/*\"]}]}";

#[test]
fn a_session_may_do_what_its_maker_may() {
    let server = Server::new();
    assert_eq!(server.by(Some("ann")).ask("PUT", "/anns", &[], b"").status, 200);
    let session = assume(&server, "ann", "");
    assert_eq!(session.ask(&server, "PUT", "/anns/ann/key", b"x"), code(200, ""));
    assert_eq!(session.ask(&server, "GET", "/anns/ann/key", b""), code(200, ""));
    assert_eq!(session.ask(&server, "GET", "/bucket", b""), code(403, "AccessDenied"), "it is not Ann's");
    let hour = 3_600_000;
    let at = |now_ms| session.ask_at(&server, now_ms, "GET", "/anns/ann/key", b"").outcome();
    assert_eq!(at(NOW + hour - 1), code(200, ""));
    assert_eq!(at(NOW + hour), code(400, "ExpiredToken"));
    let wrong = Temporary { token: "AAAA".to_owned(), ..assume(&server, "ann", "") };
    assert_eq!(wrong.ask(&server, "GET", "/anns/ann/key", b""), code(400, "InvalidToken"));
    let wrong = Temporary { secret_key: "secret".to_owned(), ..assume(&server, "ann", "") };
    assert_eq!(wrong.ask(&server, "GET", "/anns/ann/key", b""), code(403, "SignatureDoesNotMatch"));
    let wrong = Temporary { access_key: "key".to_owned(), ..assume(&server, "ann", "") };
    assert_eq!(wrong.ask(&server, "GET", "/anns/ann/key", b""), code(403, "InvalidAccessKeyId"));
    // Its access key alone is nobody's.
    let without = server.by(Some("ASIA")).outcome("GET", "/anns/ann/key", &[], b"");
    assert_eq!(without, code(403, "InvalidAccessKeyId"));
}

#[test]
fn a_policy_narrows_a_session_of_anybody() {
    let server = Server::new();
    let ann = server.by(Some("ann"));
    assert_eq!(ann.ask("PUT", "/anns", &[], b"").status, 200);
    for key in ["ann/key", "ashlar/key", "other"] {
        ann.put(&format!("/anns/{key}"), b"x");
    }
    for (maker, id) in [("ann", "ann"), ("key", "ashlar")] {
        let session = assume(&server, maker, READS);
        let ask = |method: &str, target: &str| session.ask(&server, method, target, b"");
        assert_eq!(ask("GET", &format!("/anns/{id}/key")), code(200, ""), "{maker}");
        assert_eq!(ask("GET", "/anns"), code(200, ""));
        assert_eq!(ask("GET", &format!("/anns/{id}/none")), code(404, "NoSuchKey"), "it may list");
        for (method, target) in [
            ("GET", "/anns/other"),
            ("DELETE", "/anns/ann/key"),
            ("PUT", "/anns/ann/key"),
            ("GET", "/anns?versions"),
            ("GET", "/anns?acl"),
            ("PUT", "/new-bucket"),
            ("GET", "/"),
        ] {
            assert_eq!(ask(method, target), code(403, "AccessDenied"), "{maker}: {method} {target}");
        }
        let document = b"<Delete><Object><Key>ann/key</Key></Object></Delete>";
        let many = session.ask_at(&server, NOW, "POST", "/anns?delete", document);
        assert!(many.status != 200 || many.xml().child("Error").is_some(), "{maker}");
    }
    assert_eq!(ann.ask("GET", "/anns/ann/key", &[], b"").body, b"x", "nothing was deleted");
    let lists = "{\"Statement\":{\"Effect\":\"Allow\",\"Action\":\"s3:ListAllMyBuckets\",\"Resource\":\"*\"}}";
    let session = assume(&server, "key", lists);
    let list = session.ask_at(&server, NOW, "GET", "/", b"").xml();
    assert_eq!(list.child("Buckets").map(|buckets| buckets.children.len()), Some(0), "it may look into none");
}

#[test]
fn who_asks_and_what_is_refused() {
    let server = Server::new();
    let who = form(&server, ("ann", "secret"), "Action=GetCallerIdentity&Version=2011-06-15", &[]);
    let told = who.xml();
    let told = told.child("GetCallerIdentityResult").expect("a result");
    assert_eq!((told.text_of("Arn"), told.text_of("UserId")), (Some("arn:aws:iam:::user/ann"), Some("ann")));
    let asked = |text: &str| outcome(&form(&server, ("ann", "secret"), text, &[]));
    assert_eq!(asked("Action=GetSessionToken"), code(400, "InvalidAction"));
    assert_eq!(asked(""), code(400, "InvalidAction"));
    assert_eq!(asked("Action=%ff"), code(400, "ValidationError"));
    for seconds in ["899", "604801", "x", "-1", ""] {
        assert_eq!(asked(&format!("Action=AssumeRole&DurationSeconds={seconds}")), code(400, "ValidationError"));
    }
    for seconds in ["900", "604800"] {
        assert_eq!(asked(&format!("Action=AssumeRole&DurationSeconds={seconds}")), code(200, ""));
    }
    assert_eq!(asked("Action=AssumeRole&Policy=x"), code(400, "MalformedPolicyDocument"));
    let long = format!("Action=AssumeRole&Policy={}", encode_component(&READS.replace("anns", &"x".repeat(1_000))));
    assert_eq!(asked(&long), code(400, "MalformedPolicyDocument"));
    for (bytes, expected) in [(2_048, (200, "")), (2_049, (400, "MalformedPolicyDocument"))] {
        let policy = encode_component(&format!("{READS:bytes$}"));
        assert_eq!(asked(&format!("Action=AssumeRole&Policy={policy}")), code(expected.0, expected.1), "{bytes}");
    }
    assert_eq!(asked(&format!("Action=AssumeRole&RoleSessionName={}", "n".repeat(65))), code(400, "ValidationError"));
    assert_eq!(asked(&"x".repeat(16 << 10)), code(400, "InvalidAction"));
    assert_eq!(asked(&"x".repeat((16 << 10) + 1)), code(400, "MaxMessageLengthExceeded"));
    assert_eq!(
        outcome(&form(&server, ("nobody", "secret"), "Action=AssumeRole", &[])),
        code(403, "InvalidClientTokenId")
    );
    let session = assume(&server, "ann", "");
    // A session makes no other one, and its secret is not that of its maker.
    let token = [("x-amz-security-token", session.token.as_str())];
    let own = (session.access_key.as_str(), session.secret_key.as_str());
    assert_eq!(outcome(&form(&server, own, "Action=AssumeRole", &token)), code(403, "AccessDenied"));
    assert_eq!(outcome(&form(&server, own, "Action=GetCallerIdentity", &token)), code(200, ""));
    let signed_by_other = form(&server, (&session.access_key, "secret"), "Action=AssumeRole", &token);
    assert_eq!(outcome(&signed_by_other), code(403, "SignatureDoesNotMatch"));
    // A body that is not the one that was signed.
    let headers = [("host", "h"), ("content-type", "application/x-www-form-urlencoded")];
    let unsigned = server.by(None).ask("POST", "/", &headers, b"Action=AssumeRole");
    assert_eq!(outcome(&unsigned), code(403, "AccessDenied"));
    // A signature for objects is none for the token service.
    let for_s3 = server.by(Some("ann")).ask("POST", "/", &headers, b"Action=AssumeRole");
    assert_eq!(outcome(&for_s3), code(400, "AuthorizationHeaderMalformed"));
}

/// A policy of a session: it may do this where the condition holds, and more statements.
fn policy(action: &str, condition: &str, more: &str) -> String {
    let condition = if condition.is_empty() { String::new() } else { format!(",\"Condition\":{condition}") };
    format!("{{\"Statement\":[{{\"Effect\":\"Allow\",\"Action\":\"{action}\",\"Resource\":\"*\"{condition}}}{more}]}}")
}

#[test]
fn a_session_is_not_told_which_buckets_there_are_beside_those_of_its_policy() {
    let server = Server::new();
    let session = assume(&server, "ann", READS);
    for bucket in ["/bucket", "/none"] {
        assert_eq!(session.ask(&server, "GET", bucket, b""), code(403, "AccessDenied"), "{bucket}");
    }
    assert_eq!(session.ask(&server, "GET", "/anns", b""), code(404, "NoSuchBucket"));
}

#[test]
fn conditions_of_a_session_are_about_the_object_and_the_upload_that_are_there() {
    let server = Server::new();
    let ann = server.by(Some("ann"));
    assert_eq!(ann.ask("PUT", "/anns", &[], b"").status, 200);
    let upload_with = |headers: &[(&str, &str)]| {
        let begun = ann.ask("POST", "/anns/new?uploads", headers, b"").xml();
        format!("/anns/new?partNumber=1&uploadId={}", begun.text_of("UploadId").expect("an id"))
    };
    let encrypted = upload_with(&[("x-amz-server-side-encryption", "AES256")]);
    let plain = upload_with(&[]);
    ann.put("/anns/key", b"x");
    assert_eq!(ann.ask("PUT", "/anns/red", &[("x-amz-tagging", "team=red")], b"x").status, 200);
    let is_red = "{\"StringEquals\":{\"s3:ExistingObjectTag/team\":\"red\"}}";
    let is_encrypted = "{\"StringEquals\":{\"s3:x-amz-server-side-encryption\":\"AES256\"}}";
    let denies =
        format!(",{{\"Effect\":\"Deny\",\"Action\":\"s3:PutObjectAcl\",\"Resource\":\"*\",\"Condition\":{is_red}}}");
    for maker in ["ann", "key"] {
        let reads = assume(&server, maker, &policy("s3:GetObject", is_red, ""));
        assert_eq!(reads.ask(&server, "GET", "/anns/red", b""), code(200, ""), "{maker}");
        assert_eq!(reads.ask(&server, "GET", "/anns/key", b""), code(403, "AccessDenied"), "{maker}");
        let writes = assume(&server, maker, &policy("s3:PutObject", is_encrypted, ""));
        assert_eq!(writes.ask(&server, "PUT", &encrypted, b"x"), code(200, ""), "{maker}");
        assert_eq!(writes.ask(&server, "PUT", &plain, b"x"), code(403, "AccessDenied"), "{maker}");
        // A grant that needs no permission must not be denied.
        let writes = assume(&server, maker, &policy("s3:PutObject", "", &denies));
        let put = |target| writes.ask_with(&server, NOW, ("PUT", target, &[("x-amz-acl", "private")]), b"x").outcome();
        assert_eq!((put("/anns/red"), put("/anns/key")), (code(403, "AccessDenied"), code(200, "")), "{maker}");
    }
}

/// A body that cannot be read by the server's own fault.
struct Broken;

impl Content for Broken {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, Error>> {
        Box::pin(async { Err(Error::Damaged) })
    }
}

#[test]
fn an_error_says_whose_fault_it_is() {
    let server = Server::new();
    let text = "Action=GetCallerIdentity";
    let refused = form(&server, ("nobody", "secret"), text, &[]);
    let broken = server.handled(NOW, head(("ann", "secret"), text, &[]), "/", &mut Broken).0;
    for (reply, status, kind) in [(refused, 403, "Sender"), (broken, 500, "Receiver")] {
        let xml = reply.xml();
        let told = xml.child("Error").and_then(|error| error.text_of("Type"));
        assert_eq!((reply.status, told), (status, Some(kind)));
    }
}

#[test]
fn only_a_form_that_is_posted_to_the_root_is_for_the_token_service() {
    let server = Server::new();
    let kind = [("content-type", "application/x-www-form-urlencoded")];
    assert_eq!(server.outcome("POST", "/", &[], b"Action=AssumeRole"), code(405, "MethodNotAllowed"));
    assert_eq!(server.outcome("PUT", "/bucket/key", &kind, b"a=b"), code(200, ""));
    assert_eq!(server.ask("GET", "/bucket/key", &kind, b"").body, b"a=b");
    assert_eq!(server.ask("GET", "/", &kind, b"").xml().name, "ListAllMyBucketsResult");
    assert_eq!(server.outcome("POST", "/bucket", &kind, b"a=b"), code(400, "InvalidArgument"));
}

#[test]
fn what_could_narrow_a_session_is_not_passed_over() {
    let server = Server::new();
    let asked = |server: &Server, more: &str| {
        outcome(&form(server, ("ann", "secret"), &format!("Action=AssumeRole&Version=2011-06-15&{more}"), &[]))
    };
    for more in
        ["RoleArn=arn%3Aaws%3Aiam%3A%3A%3Arole%2Fany&RoleSessionName=a.b-c%2Bd%40e", "ExternalId=x&DurationSeconds=900"]
    {
        assert_eq!(asked(&server, more), code(200, ""), "{more}");
    }
    for more in [
        "PolicyArns.member.1.arn=arn%3Aaws%3Aiam%3A%3Aaws%3Apolicy%2FAmazonS3ReadOnlyAccess",
        "Tags.member.1.Key=a&Tags.member.1.Value=b",
        "SourceIdentity=ann",
        "TokenCode=123456&SerialNumber=x",
        "Policy=",
        "RoleSessionName=a",
        "RoleSessionName=%3Cscript%3E",
    ] {
        assert_eq!(asked(&server, more), code(400, "ValidationError"), "{more}");
    }
    let version = "Action=AssumeRole&Version=2010-05-08";
    assert_eq!(outcome(&form(&server, ("ann", "secret"), version, &[])), code(400, "ValidationError"));
    let elsewhere = Server(server.0.clone(), server.1, Some(IpAddr::from([10, 0, 0, 1])));
    assert_eq!(asked(&elsewhere, ""), code(400, "InvalidRequest"), "everybody on the way would have the secret");
}
