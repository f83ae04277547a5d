//! Server-side encryption, as clients see it.

use super::*;

const ALGORITHM: (&str, &str) = ("x-amz-server-side-encryption-customer-algorithm", "AES256");
const KEY: [(&str, &str); 3] = [
    ALGORITHM,
    ("x-amz-server-side-encryption-customer-key", "pO3upElrwuEXSoFwCfnZPdSsmt/xWeFa0N9KgDijwVs="),
    ("x-amz-server-side-encryption-customer-key-md5", "DWygnHRtgiJ77HCm+1rvHw=="),
];
const OTHER: [(&str, &str); 3] = [
    ALGORITHM,
    ("x-amz-server-side-encryption-customer-key", "6b+WOZ1T3cqZMxgThRcXAQBrS5mXKdDUphvpxptl9/4="),
    ("x-amz-server-side-encryption-customer-key-md5", "arxBvwY2V4SiOne6yppVPQ=="),
];
const BY_CLUSTER: (&str, &str) = ("x-amz-server-side-encryption", "AES256");
const KMS_KEY: &str = "x-amz-server-side-encryption-aws-kms-key-id";
const HERE: IpAddr = IpAddr::V4(core::net::Ipv4Addr::LOCALHOST);

/// The same key for the source of a copy.
fn of_source(key: [(&'static str, &'static str); 3]) -> [(&'static str, &'static str); 3] {
    let names = [
        "x-amz-copy-source-server-side-encryption-customer-algorithm",
        "x-amz-copy-source-server-side-encryption-customer-key",
        "x-amz-copy-source-server-side-encryption-customer-key-md5",
    ];
    [(names[0], key[0].1), (names[1], key[1].1), (names[2], key[2].1)]
}

fn here() -> Server {
    let server = Server::new();
    Server(server.0.clone(), server.1, Some(HERE))
}

fn default_of(algorithm: &str) -> Vec<u8> {
    document_of(&format!("<SSEAlgorithm>{algorithm}</SSEAlgorithm>"))
}

fn default_of_key(name: &str) -> Vec<u8> {
    document_of(&format!("<SSEAlgorithm>aws:kms</SSEAlgorithm><KMSMasterKeyID>{name}</KMSMasterKeyID>"))
}

fn document_of(default: &str) -> Vec<u8> {
    let default = format!("<ApplyServerSideEncryptionByDefault>{default}</ApplyServerSideEncryptionByDefault>");
    format!("<ServerSideEncryptionConfiguration><Rule>{default}</Rule></ServerSideEncryptionConfiguration>")
        .into_bytes()
}

#[test]
fn an_object_with_a_key_of_its_client() {
    let server = here();
    let put = server.ask("PUT", "/bucket/key", &KEY, b"content");
    assert_eq!(
        (put.outcome(), put.header(KEY[2].0), put.header(ALGORITHM.0)),
        (code(200, ""), Some(KEY[2].1), Some("AES256"))
    );
    let got = server.ask("GET", "/bucket/key", &KEY, b"");
    assert_eq!((got.status, &got.body[..], got.header(KEY[2].0)), (200, &b"content"[..], Some(KEY[2].1)));
    assert_eq!(got.header("etag"), put.header("etag"));
    assert!(got.headers.iter().all(|(_, value)| value != KEY[1].1), "the key is told to nobody");
    let range = server.ask("GET", "/bucket/key", &[&KEY[..], &[("range", "bytes=2-4")]].concat(), b"");
    assert_eq!((range.status, &range.body[..], range.header("content-range")), (206, &b"nte"[..], Some("bytes 2-4/7")));
    let head = server.ask("HEAD", "/bucket/key", &KEY, b"");
    assert_eq!((head.status, head.header("content-length"), head.header(BY_CLUSTER.0)), (200, Some("7"), None));
    let list = server.ask("GET", "/bucket", &[], b"").xml();
    assert_eq!(list.child("Contents").and_then(|object| object.text_of("Size")), Some("7"));
    let attributes = ("x-amz-object-attributes", "ObjectSize");
    let told = server.ask("GET", "/bucket/key?attributes", &[&KEY[..], &[attributes]].concat(), b"");
    assert_eq!(told.xml().text_of("ObjectSize"), Some("7"));
    let refused: [&[(&str, &str)]; 4] = [&[], &OTHER, &KEY[..2], &[BY_CLUSTER]];
    for headers in refused {
        for target in ["/bucket/key", "/bucket/key?partNumber=1"] {
            assert_eq!(server.ask("GET", target, headers, b"").status, 400, "{headers:?}");
            assert_eq!(server.ask("HEAD", target, headers, b"").status, 400, "{headers:?}");
        }
        let headers = [headers, &[attributes]].concat();
        assert_eq!(server.ask("GET", "/bucket/key?attributes", &headers, b"").status, 400, "{headers:?}");
    }
    assert_eq!(server.outcome("GET", "/bucket/key", &[], b""), code(400, "InvalidRequest"));
    assert_eq!(server.outcome("GET", "/bucket/key", &OTHER, b""), code(400, "InvalidRequest"));
    let known = ("if-none-match", put.header("etag").expect("an etag"));
    assert_eq!(server.ask("GET", "/bucket/key", &[&KEY[..], &[known]].concat(), b"").status, 304);
    assert_eq!(server.ask("GET", "/bucket/key", &[known], b"").status, 400);
    // An object without a key needs none, and takes none. Nor does an empty one with a key do without.
    server.put("/bucket/plain", b"x");
    assert_eq!(server.outcome("GET", "/bucket/plain", &KEY, b""), code(400, "InvalidRequest"));
    assert_eq!(server.ask("PUT", "/bucket/empty", &KEY, b"").status, 200);
    assert_eq!(server.outcome("GET", "/bucket/empty", &OTHER, b""), code(400, "InvalidRequest"));
    assert_eq!(server.ask("GET", "/bucket/empty", &KEY, b"").outcome(), code(200, ""));
}

#[test]
fn keys_travel_where_nobody_reads_them() {
    let server = here();
    let stranger = "192.0.2.1".parse().expect("an address");
    let put = |server: &Server| server.ask_from(stranger, "PUT", "/bucket/key", &KEY, b"x").outcome();
    assert_eq!(put(&server), code(400, "InvalidRequest"));
    assert_eq!(server.outcome("HEAD", "/bucket/key", &[], b""), code(404, ""), "nothing was stored");
    // What the cluster encrypts by itself needs no such way.
    let by_cluster = server.ask_from(stranger, "PUT", "/bucket/key", &[BY_CLUSTER], b"x");
    assert_eq!((by_cluster.status, by_cluster.header(BY_CLUSTER.0)), (200, Some("AES256")));
    assert_eq!(Server::new().ask("PUT", "/bucket/key", &KEY, b"x").status, 400, "nobody knows where it comes from");
}

#[test]
fn requests_that_ask_for_two_things_or_for_what_is_not_there() {
    let server = here();
    let kms = ("x-amz-server-side-encryption", "aws:kms");
    let id = (KMS_KEY, "id");
    type Case<'a> = (&'a [(&'a str, &'a str)], (u16, String));
    let context = ("x-amz-server-side-encryption-context", "e30=");
    let cases: [Case<'_>; 12] = [
        (&[kms], code(400, "InvalidArgument")),
        (&[kms, id], code(400, "KMS.NotFoundException")),
        (&[kms, (id.0, "no/name")], code(400, "KMS.NotFoundException")),
        (&[kms, (id.0, "payroll"), context], code(501, "NotImplemented")),
        (&[context], code(400, "InvalidArgument")),
        (&[("x-amz-server-side-encryption", "aws:kms:dsse")], code(501, "NotImplemented")),
        (&[BY_CLUSTER, ("x-amz-server-side-encryption-bucket-key-enabled", "true")], code(501, "NotImplemented")),
        (&[BY_CLUSTER, id], code(400, "InvalidArgument")),
        (&[BY_CLUSTER, KEY[0], KEY[1], KEY[2]], code(400, "InvalidArgument")),
        (&[kms, KEY[0], KEY[1], KEY[2]], code(400, "InvalidArgument")),
        (&[("x-amz-server-side-encryption", "aes:kms")], code(400, "InvalidArgument")),
        (&[id], code(400, "InvalidArgument")),
    ];
    for (headers, expected) in cases {
        assert_eq!(server.outcome("PUT", "/bucket/key", headers, b"x"), expected, "{headers:?}");
        assert_eq!(server.outcome("POST", "/bucket/key?uploads", headers, b""), expected, "{headers:?}");
        assert_eq!(server.ask("HEAD", "/bucket/key", &[], b"").status, 404, "nothing was stored: {headers:?}");
    }
    let set = |default: &[u8]| server.outcome("PUT", "/bucket?encryption", &[], default);
    assert_eq!(set(&default_of("aws:kms")), code(400, "InvalidArgument"));
    assert_eq!(set(&default_of_key("id")), code(400, "KMS.NotFoundException"));
    assert_eq!(set(&default_of("aws:kms:dsse")), code(501, "NotImplemented"));
}

#[test]
fn an_object_with_a_named_key_of_the_cluster() {
    let server = here();
    let kms = |name: &'static str| [(BY_CLUSTER.0, "aws:kms"), (KMS_KEY, name)];
    let told = |response: &Reply| [BY_CLUSTER.0, KMS_KEY].map(|name| response.header(name).map(str::to_owned));
    let payroll = [Some("aws:kms".to_owned()), Some("payroll".to_owned())];
    for name in ["payroll", "arn:aws:kms:payroll", "arn:aws:kms:us-east-1:1234:key/payroll"] {
        let put = server.ask("PUT", "/bucket/key", &kms(name), b"content");
        assert_eq!((put.outcome(), told(&put)), (code(200, ""), payroll.clone()), "{name}");
    }
    for method in ["GET", "HEAD"] {
        assert_eq!(told(&server.ask(method, "/bucket/key", &[], b"")), payroll);
        assert_eq!(server.ask(method, "/bucket/key", &kms("payroll"), b"").status, 400, "reads name no key");
        assert_eq!(server.ask(method, "/bucket/key", &KEY, b"").status, 400);
    }
    assert_eq!(server.ask("GET", "/bucket/key", &[], b"").body, b"content");
    // An upload keeps the key that it began with, whatever its parts name.
    let begun = server.ask("POST", "/bucket/parts?uploads", &kms("payroll"), b"");
    assert_eq!(told(&begun), payroll);
    let upload = begun.xml().text_of("UploadId").expect("an id").to_owned();
    let target = format!("/bucket/parts?partNumber=1&uploadId={upload}");
    assert_eq!(server.outcome("PUT", &target, &[BY_CLUSTER], b"x"), code(400, "InvalidRequest"));
    assert_eq!(server.outcome("PUT", &target, &[(BY_CLUSTER.0, "aws:kms:dsse")], b"x"), code(400, "InvalidArgument"));
    let part = server.ask("PUT", &target, &kms("other"), b"part");
    assert_eq!((part.status, told(&part)), (200, payroll.clone()));
    let etag = part.header("etag").expect("an etag");
    let document = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part></CompleteMultipartUpload>"
    );
    let done = server.ask("POST", &format!("/bucket/parts?uploadId={upload}"), &[], document.as_bytes());
    assert_eq!((done.outcome(), told(&done)), (code(200, ""), payroll.clone()));
    assert_eq!(server.ask("GET", "/bucket/parts", &[], b"").body, b"part");
    // A bucket's default is what `aws:kms` without a key means, too.
    assert_eq!(server.outcome("PUT", "/bucket?encryption", &[], &default_of_key("payroll")), code(200, ""));
    let default = server.ask("GET", "/bucket?encryption", &[], b"").xml();
    let default = default.child("Rule").and_then(|rule| rule.child("ApplyServerSideEncryptionByDefault"));
    assert_eq!(default.and_then(|default| default.text_of("KMSMasterKeyID")), Some("payroll"));
    assert_eq!(told(&server.put("/bucket/by-default", b"x")), payroll);
    assert_eq!(told(&server.ask("PUT", "/bucket/unnamed", &[(BY_CLUSTER.0, "aws:kms")], b"x")), payroll);
    let by_master = server.ask("PUT", "/bucket/master", &[BY_CLUSTER], b"x");
    assert_eq!(told(&by_master), [Some("AES256".to_owned()), None]);
    let copied = server.ask("PUT", "/bucket/copy", &[("x-amz-copy-source", "/bucket/master"), BY_CLUSTER], b"");
    assert_eq!(told(&copied), [Some("AES256".to_owned()), None]);
    let copied = server.ask("PUT", "/bucket/copy", &[("x-amz-copy-source", "/bucket/master")], b"");
    assert_eq!(told(&copied), payroll);
    assert_eq!(server.ask("GET", "/bucket/copy", &[], b"").body, b"x");
}

#[test]
fn a_bucket_encrypts_what_comes_from_now_on() {
    let server = here();
    let missing = code(404, "ServerSideEncryptionConfigurationNotFoundError");
    assert_eq!(server.outcome("GET", "/bucket?encryption", &[], b""), missing);
    server.put("/bucket/before", b"before");
    assert_eq!(server.outcome("PUT", "/bucket?encryption", &[], &default_of("AES256")), code(200, ""));
    let told = server.ask("GET", "/bucket?encryption", &[], b"").xml();
    let default = told.child("Rule").and_then(|rule| rule.child("ApplyServerSideEncryptionByDefault"));
    assert_eq!(default.and_then(|default| default.text_of("SSEAlgorithm")), Some("AES256"));
    let put = server.put("/bucket/key", b"content");
    assert_eq!(put.header(BY_CLUSTER.0), Some("AES256"));
    let got = server.ask("GET", "/bucket/key", &[], b"");
    assert_eq!((&got.body[..], got.header(BY_CLUSTER.0)), (&b"content"[..], Some("AES256")));
    let before = server.ask("GET", "/bucket/before", &[], b"");
    assert_eq!((&before.body[..], before.header(BY_CLUSTER.0)), (&b"before"[..], None));
    // A client's own key comes before the default.
    assert_eq!(server.ask("PUT", "/bucket/own", &KEY, b"own").header(BY_CLUSTER.0), None);
    assert_eq!(server.ask("GET", "/bucket/own", &[], b"").status, 400);
    assert_eq!(server.outcome("GET", "/bucket/key", &KEY, b""), code(400, "InvalidRequest"));
    assert_eq!(server.outcome("GET", "/bucket/key", &[BY_CLUSTER], b""), code(400, "InvalidArgument"));
    assert_eq!(server.outcome("DELETE", "/bucket?encryption", &[], b""), code(204, ""));
    assert_eq!(server.outcome("GET", "/bucket?encryption", &[], b""), missing);
    assert_eq!(server.put("/bucket/after", b"x").header(BY_CLUSTER.0), None);
    assert_eq!(server.ask("GET", "/bucket/key", &[], b"").body, b"content");
}

#[test]
fn copies_between_kinds() {
    let server = here();
    server.put("/bucket/plain", b"content");
    assert_eq!(server.ask("PUT", "/bucket/own", &KEY, b"content").status, 200);
    assert_eq!(server.ask("PUT", "/bucket/cluster", &[BY_CLUSTER], b"content").status, 200);
    let reads = [("plain", &[][..]), ("own", &KEY[..]), ("cluster", &[])];
    let with_key = of_source(KEY);
    for (from, with) in [("plain", &[][..]), ("own", &with_key[..]), ("cluster", &[])] {
        for (to, wanted) in [("plain", &[][..]), ("own", &OTHER[..]), ("cluster", &[BY_CLUSTER][..])] {
            let source = format!("/bucket/{from}");
            let headers = [&[("x-amz-copy-source", source.as_str())], with, wanted].concat();
            let copied = server.ask("PUT", "/bucket/copy", &headers, b"");
            assert_eq!(copied.outcome(), code(200, ""), "{from} {to}");
            assert_eq!(copied.header(BY_CLUSTER.0).is_some(), to == "cluster");
            assert_eq!(copied.header(KEY[2].0), (to == "own").then_some(OTHER[2].1));
            let reading = if to == "own" { &OTHER[..] } else { &[] };
            assert_eq!(server.ask("GET", "/bucket/copy", reading, b"").body, b"content", "{from} {to}");
        }
    }
    for (name, key) in reads {
        assert_eq!(server.ask("GET", &format!("/bucket/{name}"), key, b"").body, b"content");
    }
    let source = ("x-amz-copy-source", "/bucket/own");
    assert_eq!(server.outcome("PUT", "/bucket/copy", &[source], b""), code(400, "InvalidRequest"));
    let wrong = of_source(OTHER);
    assert_eq!(
        server.outcome("PUT", "/bucket/copy", &[&[source], &wrong[..]].concat(), b""),
        code(400, "InvalidRequest")
    );
    // Onto itself with another key.
    let turned = [&[source], &with_key[..], &OTHER[..]].concat();
    assert_eq!(server.outcome("PUT", "/bucket/own", &turned, b""), code(200, ""));
    assert_eq!(server.outcome("GET", "/bucket/own", &KEY, b""), code(400, "InvalidRequest"));
    assert_eq!(server.ask("GET", "/bucket/own", &OTHER, b"").body, b"content");
    assert_eq!(server.ask("GET", "/bucket/copy", &[BY_CLUSTER], b"").status, 400);
}

#[test]
fn an_upload_with_a_key_of_its_client() {
    let server = here();
    let begun = server.ask("POST", "/bucket/key?uploads", &KEY, b"");
    assert_eq!((begun.status, begun.header(KEY[2].0)), (200, Some(KEY[2].1)));
    let upload = begun.xml().text_of("UploadId").expect("an id").to_owned();
    let target = format!("/bucket/key?partNumber=1&uploadId={upload}");
    for headers in [&[][..], &OTHER, &[BY_CLUSTER]] {
        assert_eq!(server.outcome("PUT", &target, headers, b"x"), code(400, "InvalidRequest"), "{headers:?}");
    }
    let part = server.ask("PUT", &target, &KEY, b"part");
    assert_eq!((part.status, part.header(KEY[2].0)), (200, Some(KEY[2].1)));
    let copied = format!("/bucket/key?partNumber=2&uploadId={upload}");
    server.put("/bucket/source", b"x");
    let source = ("x-amz-copy-source", "/bucket/source");
    assert_eq!(server.outcome("PUT", &copied, &[source], b""), code(400, "InvalidRequest"));
    let copied = server.ask("PUT", &copied, &[&KEY[..], &[source]].concat(), b"");
    assert_eq!((copied.status, copied.header(KEY[2].0)), (200, Some(KEY[2].1)));
    let etag = part.header("etag").expect("an etag");
    let document = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part></CompleteMultipartUpload>"
    );
    let target = format!("/bucket/key?uploadId={upload}");
    assert_eq!(server.outcome("POST", &target, &OTHER, document.as_bytes()), code(400, "InvalidRequest"));
    let done = server.ask("POST", &target, &[], document.as_bytes());
    assert_eq!((done.outcome(), done.header(ALGORITHM.0)), (code(200, ""), Some("AES256")));
    // Once more the same list is the same answer; another one is not.
    assert_eq!(server.outcome("POST", &target, &[], document.as_bytes()), code(200, ""));
    let other = document.replace(etag, "&quot;00000000000000000000000000000000&quot;");
    assert_eq!(server.outcome("POST", &target, &[], other.as_bytes()), code(404, "NoSuchUpload"));
    assert_eq!(server.ask("GET", "/bucket/key?partNumber=1", &KEY, b"").body, b"part");
    assert_eq!(server.outcome("GET", "/bucket/key", &[], b""), code(400, "InvalidRequest"));
    // With a checksum the key is needed at the end too.
    let checksum = ("x-amz-checksum-algorithm", "CRC32");
    let begun = server.ask("POST", "/bucket/key?uploads", &[&KEY[..], &[checksum]].concat(), b"");
    let upload = begun.xml().text_of("UploadId").expect("an id").to_owned();
    let target = format!("/bucket/key?uploadId={upload}");
    assert_eq!(server.outcome("POST", &target, &[], document.as_bytes()), code(400, "InvalidRequest"));
}

#[test]
fn policies_that_ask_for_encryption() {
    let server = here();
    assert_eq!(server.by(Some("ann")).ask("PUT", "/anns", &[], b"").status, 200);
    let ann = server.by(Some("ann"));
    let policy = |condition: &str| {
        format!(
            "{{\"Version\":\"2012-10-17\",\"Statement\":[{{\"Effect\":\"Deny\",\"Principal\":\"*\",\"Action\":\"s3:PutObject\",\"Resource\":\"arn:aws:s3:::anns/*\",\"Condition\":{condition}}}]}}"
        )
    };
    let null = policy("{\"Null\":{\"s3:x-amz-server-side-encryption\":\"true\"}}");
    assert_eq!(ann.outcome("PUT", "/anns?policy", &[], null.as_bytes()), code(204, ""));
    assert_eq!(ann.outcome("PUT", "/anns/key", &[], b"x"), code(403, "AccessDenied"));
    assert_eq!(ann.outcome("PUT", "/anns/key", &[BY_CLUSTER], b"x"), code(200, ""));
    let other = policy("{\"StringNotEquals\":{\"s3:x-amz-server-side-encryption-customer-algorithm\":\"AES256\"}}");
    assert_eq!(ann.outcome("PUT", "/anns?policy", &[], other.as_bytes()), code(204, ""));
    assert_eq!(ann.outcome("PUT", "/anns/key", &[(ALGORITHM.0, "AES192")], b"x"), code(403, "AccessDenied"));
}

#[test]
fn a_policy_about_a_key_is_about_it_however_it_is_called() {
    let long = "arn:aws:kms:us-east-1:1:key/payroll";
    for named in ["payroll", "arn:aws:kms:*:*:key/payroll"] {
        let server = Server::new();
        let policy = format!(
            "{{\"Statement\":{{\"Effect\":\"Deny\",\"Principal\":\"*\",\"Action\":\"s3:PutObject\",\"Resource\":\"arn:aws:s3:::anns/*\",\
             \"Condition\":{{\"StringLike\":{{\"s3:{KMS_KEY}\":\"{named}\"}}}}}}}}"
        );
        let ann = server.by(Some("ann"));
        assert_eq!(ann.ask("PUT", "/anns", &[], b"").status, 200);
        let put = |key| {
            let headers = [("x-amz-server-side-encryption", "aws:kms"), (KMS_KEY, key)];
            ann.ask("PUT", "/anns/x", &headers, b"x").status
        };
        assert_eq!((put("payroll"), put(long)), (200, 200));
        assert_eq!(ann.ask("PUT", "/anns?policy", &[], policy.as_bytes()).status, 204);
        assert_eq!((put("payroll"), put(long)), (403, 403), "{named}");
        let of_another = policy.replace("payroll", "other");
        assert_eq!(ann.ask("PUT", "/anns?policy", &[], of_another.as_bytes()).status, 204);
        assert_eq!((put("payroll"), put(long)), (200, 200), "{named}");
    }
}

#[test]
fn parts_are_judged_by_what_was_said_when_their_upload_was_begun() {
    let server = Server::new();
    let [ann, bob] = ["ann", "bob"].map(|user| server.by(Some(user)));
    assert_eq!(ann.ask("PUT", "/anns", &[], b"").status, 200);
    let statement = |effect: &str, condition: &str| {
        format!(
            "{{\"Effect\":\"{effect}\",\"Principal\":{{\"AWS\":\"bob\"}},\"Action\":\"s3:PutObject*\",\"Resource\":\"arn:aws:s3:::anns/*\",\
             \"Condition\":{condition}}}"
        )
    };
    let policy = format!(
        "{{\"Statement\":[{},{}]}}",
        statement("Allow", "{\"StringEquals\":{\"s3:RequestObjectTag/level\":\"open\"}}"),
        statement("Deny", "{\"StringNotEquals\":{\"s3:x-amz-server-side-encryption\":\"aws:kms\"}}"),
    );
    assert_eq!(ann.ask("PUT", "/anns?policy", &[], policy.as_bytes()).status, 204);
    let kms = [("x-amz-server-side-encryption", "aws:kms"), (KMS_KEY, "payroll"), ("x-amz-tagging", "level=open")];
    let begin = |server: &Server, headers: &[(&str, &str)]| {
        let reply = server.ask("POST", "/anns/key?uploads", headers, b"");
        let id = if reply.status == 200 { reply.xml().text_of("UploadId").map(str::to_owned) } else { None };
        id.ok_or(reply.status)
    };
    let put = |id: &str| bob.ask("PUT", &format!("/anns/key?partNumber=1&uploadId={id}"), &[], b"part");
    assert_eq!((begin(&bob, &kms[..2]), begin(&bob, &kms[2..])), (Err(403), Err(403)));
    for headers in [&[][..], &kms[..2], &kms[2..]] {
        assert_eq!(put(&begin(&ann, headers).unwrap()).status, 403, "{headers:?}");
    }
    let id = begin(&bob, &kms).unwrap();
    let part = put(&id);
    assert_eq!(part.status, 200);
    let etag = part.header("etag").expect("an entity tag");
    let document = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part></CompleteMultipartUpload>"
    );
    let complete = || bob.ask("POST", &format!("/anns/key?uploadId={id}"), &[], document.as_bytes()).status;
    assert_eq!((complete(), complete()), (200, 200), "repeated it is answered the same");
    assert_eq!(put("none").status, 403);
}

#[test]
fn a_policy_about_a_key_holds_for_every_name_that_opens_it() {
    let ann = Server::new().by(Some("ann"));
    assert_eq!(ann.ask("PUT", "/anns", &[], b"").status, 200);
    let policy = format!(
        "{{\"Statement\":{{\"Effect\":\"Deny\",\"Principal\":\"*\",\"Action\":\"s3:PutObject\",\
         \"Resource\":\"arn:aws:s3:::anns/*\",\"Condition\":{{\"StringEquals\":{{\"s3:{KMS_KEY}\":\"payroll\"}}}}}}}}"
    );
    assert_eq!(ann.ask("PUT", "/anns?policy", &[], policy.as_bytes()).status, 204);
    for name in [
        "payroll",
        "arn:aws:kms:payroll",
        "arn:aws:kms:key/payroll",
        "arn:aws:kms:r:1:key/payroll",
        "arn:aws:kms:r:1:xkey/payroll",
        "arn:aws:kms:r:1:key/x/key/payroll",
        "arn:aws:kms:r:1:key/a:key/payroll",
    ] {
        let headers = [("x-amz-server-side-encryption", "aws:kms"), (KMS_KEY, name)];
        assert_eq!(ann.ask("PUT", "/anns/x", &headers, b"x").status, 403, "{name}");
    }
}

#[test]
fn the_source_of_a_part_is_not_judged_by_what_was_said_of_the_upload() {
    let server = Server::new();
    let [ann, bob] = ["ann", "bob"].map(|user| server.by(Some(user)));
    assert_eq!(ann.ask("PUT", "/anns", &[], b"").status, 200);
    ann.put("/anns/source", b"x");
    let policy = r#"{"Statement": [
        {"Effect": "Allow", "Principal": {"AWS": "bob"}, "Action": "s3:*Object", "Resource": "*"},
        {"Effect": "Deny", "Principal": {"AWS": "bob"}, "Action": "s3:GetObject", "Resource": "*",
         "Condition": {"StringEquals": {"s3:x-amz-server-side-encryption": "AES256"}}}]}"#;
    assert_eq!(ann.outcome("PUT", "/anns?policy", &[], policy.as_bytes()), code(204, ""));
    let begun = bob.ask("POST", "/anns/key?uploads", &[BY_CLUSTER], b"").xml();
    let target = format!("/anns/key?partNumber=1&uploadId={}", begun.text_of("UploadId").expect("an id"));
    assert_eq!(bob.outcome("PUT", &target, &[("x-amz-copy-source", "/anns/source")], b""), code(200, ""));
    assert_eq!(bob.outcome("GET", "/anns/source", &[BY_CLUSTER], b""), code(403, "AccessDenied"));
}
