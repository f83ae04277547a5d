//! Who may do what: owners, access control lists, policies, public access block.

use super::*;
use crate::s3::access::{Need, rule_of};
use crate::s3::route::Operation;

const DENIED: (u16, &str) = (403, "AccessDenied");

/// Ann's bucket `anns` with the object `key`; Ann, Bob, and nobody.
fn three() -> [Server; 3] {
    let server = Server::new();
    let all = [Some("ann"), Some("bob"), None].map(|user| server.by(user));
    assert_eq!(all[0].ask("PUT", "/anns", &[], b"").status, 200);
    all[0].put("/anns/key", b"x");
    all
}

#[test]
fn that_a_key_is_not_there_is_told_to_those_who_may_list() {
    let [ann, bob, nobody] = three();
    let policy = |action: &str| {
        let statement = |action: &str, resource: &str| {
            format!(
                "{{\"Effect\":\"Allow\",\"Principal\":\"*\",\"Action\":\"{action}\",\"Resource\":\"arn:aws:s3:::{resource}\"}}"
            )
        };
        let reads = statement("s3:GetObject*", "anns/*");
        format!("{{\"Statement\":[{reads},{}]}}", statement(action, "anns"))
    };
    let absent = |server: &Server, target: &str| {
        let get = server.outcome("GET", target, &[], b"");
        assert_eq!(server.ask("HEAD", target, &[], b"").status, get.0, "{target}");
        get
    };
    let version = "/anns/key?versionId=00000000000000010000000000000001";
    assert_eq!(absent(&ann, version), code(404, "NoSuchVersion"));
    for (action, key, of_version) in [
        ("s3:GetBucketLocation", DENIED, DENIED),
        ("s3:ListBucket", (404, "NoSuchKey"), DENIED),
        ("s3:ListBucketVersions", DENIED, (404, "NoSuchVersion")),
    ] {
        put_policy(&ann, &policy(action));
        for server in [&bob, &nobody] {
            assert_eq!(absent(server, "/anns/none"), code(key.0, key.1), "{action}");
            assert_eq!(server.outcome("GET", "/anns/none?tagging", &[], b""), code(key.0, key.1), "{action}");
            assert_eq!(absent(server, version), code(of_version.0, of_version.1), "{action}");
            assert_eq!(server.ask("GET", "/anns/key", &[], b"").status, 200);
        }
    }
    assert_eq!(absent(&ann, "/anns/none"), code(404, "NoSuchKey"));
}

#[test]
fn who_may_list_but_not_read_is_told_what_is_not_there_and_gets_nothing() {
    let [ann, bob, nobody] = three();
    put_policy(
        &ann,
        "{\"Statement\":{\"Effect\":\"Allow\",\"Principal\":\"*\",\"Action\":\"s3:ListBucket\",\"Resource\":\"arn:aws:s3:::anns\"}}",
    );
    for server in [&bob, &nobody] {
        for sub in ["", "?acl", "?tagging"] {
            let outcome = |key: &str| server.outcome("GET", &format!("/anns/{key}{sub}"), &[], b"");
            assert_eq!((outcome("none"), outcome("key")), (code(404, "NoSuchKey"), code(DENIED.0, DENIED.1)), "{sub}");
        }
    }
}

#[test]
fn a_copy_tells_of_its_source_to_those_who_may_list_that_bucket() {
    let [ann, bob, _] = three();
    assert_eq!(bob.ask("PUT", "/bobs", &[], b"").status, 200);
    let reads =
        "{\"Effect\":\"Allow\",\"Principal\":\"*\",\"Action\":\"s3:GetObject\",\"Resource\":\"arn:aws:s3:::anns/*\"}";
    put_policy(&ann, &format!("{{\"Statement\":[{reads}]}}"));
    let copy = |target: &str| bob.outcome("PUT", target, &[("x-amz-copy-source", "/anns/none")], b"");
    let begun = bob.ask("POST", "/bobs/copy?uploads", &[], b"").xml();
    let part = format!("/bobs/copy?partNumber=1&uploadId={}", begun.text_of("UploadId").expect("an id"));
    for target in ["/bobs/copy", &part] {
        assert_eq!(copy(target), code(DENIED.0, DENIED.1), "{target}");
    }
    let lists = reads.replace("GetObject", "ListBucket").replace("anns/*", "anns");
    put_policy(&ann, &format!("{{\"Statement\":[{reads},{lists}]}}"));
    for target in ["/bobs/copy", &part] {
        assert_eq!(copy(target), code(404, "NoSuchKey"), "{target}");
    }
    // Nor does it matter whether one may list the bucket that is copied to.
    put_policy(&ann, &for_bob("\"s3:PutObject\"", ""));
    let into_hers = |source| bob.outcome("PUT", "/anns/copy", &[("x-amz-copy-source", source)], b"");
    assert_eq!((into_hers("/bobs/none"), into_hers("/anns/none")), (code(404, "NoSuchKey"), code(DENIED.0, DENIED.1)));
}

#[test]
fn that_a_version_is_a_mark_of_a_deletion_is_told_to_those_who_may_list_or_read_versions() {
    let [ann, bob, _] = three();
    let enabled = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    assert_eq!(ann.ask("PUT", "/anns?versioning", &[], enabled).status, 200);
    let marked = ann.ask("DELETE", "/anns/key", &[], b"");
    let target = format!("/anns/key?versionId={}", marked.header("x-amz-version-id").expect("a version"));
    let is_mark = (405, "MethodNotAllowed");
    assert_eq!(ann.outcome("GET", &target, &[], b""), code(is_mark.0, is_mark.1));
    for (action, expected) in [
        ("s3:PutObject", DENIED),
        ("s3:ListBucket", DENIED),
        ("s3:ListBucketVersions", is_mark),
        ("s3:GetObjectVersion", is_mark),
    ] {
        put_policy(&ann, &for_bob(&format!("\"{action}\""), ""));
        assert_eq!(bob.outcome("GET", &target, &[], b""), code(expected.0, expected.1), "{action}");
        assert_eq!(bob.ask("HEAD", &target, &[], b"").status, expected.0, "{action}");
    }
}

/// A policy that allows Bob these actions, with more statements behind that.
fn for_bob(actions: &str, more: &str) -> String {
    let allow = r#"{"Effect": "Allow", "Principal": {"AWS": "bob"}, "Action": [ACTIONS], "Resource": "*"}"#;
    format!("{{\"Statement\":[{}{more}]}}", allow.replace("ACTIONS", actions))
}

fn put_policy(server: &Server, policy: &str) {
    assert_eq!(server.outcome("PUT", "/anns?policy", &[], policy.as_bytes()), code(204, ""), "{policy}");
}

#[test]
fn what_is_not_allowed_is_denied() {
    let [ann, bob, nobody] = three();
    let requests = [
        ("GET", "/anns"),
        ("GET", "/anns?list-type=2"),
        ("GET", "/anns?versions"),
        ("GET", "/anns?uploads"),
        ("GET", "/anns?acl"),
        ("PUT", "/anns?acl"),
        ("GET", "/anns?location"),
        ("GET", "/anns?versioning"),
        ("PUT", "/anns?versioning"),
        ("GET", "/anns?policy"),
        ("PUT", "/anns?policy"),
        ("DELETE", "/anns?policy"),
        ("GET", "/anns?cors"),
        ("PUT", "/anns?tagging"),
        ("DELETE", "/anns"),
        ("GET", "/anns/key"),
        ("GET", "/anns/none"),
        ("PUT", "/anns/key"),
        ("DELETE", "/anns/key"),
        ("GET", "/anns/key?acl"),
        ("PUT", "/anns/key?acl"),
        ("GET", "/anns/key?tagging"),
        ("PUT", "/anns/key?tagging"),
        ("GET", "/anns/key?attributes"),
        ("POST", "/anns/key?uploads"),
        ("PUT", "/anns/key?partNumber=1&uploadId=u"),
        ("POST", "/anns/key?uploadId=u"),
        ("GET", "/anns/key?uploadId=u"),
        ("DELETE", "/anns/key?uploadId=u"),
    ];
    for (method, target) in requests {
        for server in [&bob, &nobody] {
            assert_eq!(server.outcome(method, target, &[], b""), code(DENIED.0, DENIED.1), "{method} {target}");
        }
    }
    assert_eq!(bob.ask("HEAD", "/anns/key", &[], b"").status, 403);
    let copy = [("x-amz-copy-source", "/anns/key")];
    assert_eq!(bob.ask("PUT", "/bobs", &[], b"").status, 200);
    assert_eq!(bob.outcome("PUT", "/bobs/copy", &copy, b""), code(DENIED.0, DENIED.1));
    let text = "<Delete><Object><Key>key</Key></Object></Delete>";
    let digest = to_base64(&sha256(text.as_bytes()));
    let many = bob.ask("POST", "/anns?delete", &[("x-amz-checksum-sha256", &digest)], text.as_bytes()).xml();
    assert_eq!(many.child("Error").and_then(|error| error.text_of("Code")), Some("AccessDenied"));
    assert_eq!(ann.ask("GET", "/anns/key", &[], b"").body, b"x");
    assert_eq!(nobody.outcome("GET", "/", &[], b""), code(DENIED.0, DENIED.1));
    assert_eq!(nobody.outcome("PUT", "/other", &[], b""), code(DENIED.0, DENIED.1));
    assert_eq!(bob.outcome("PUT", "/anns", &[], b""), code(409, "BucketAlreadyExists"));
    let mine = |server: &Server| {
        let list = server.ask("GET", "/", &[], b"").xml();
        let names = list.child("Buckets").expect("buckets").children.iter().filter_map(|one| one.text_of("Name"));
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!((mine(&ann), mine(&bob)), (vec!["anns".to_owned()], vec!["bobs".to_owned()]));
    assert_eq!(mine(&ann.by(Some("key"))), ["anns", "bobs", "bucket"]);
    assert_eq!(ann.by(Some("eve")).outcome("GET", "/", &[], b""), code(403, "InvalidAccessKeyId"));
}

#[test]
fn only_a_signed_read_replaces_headers_of_its_reply() {
    let [ann, bob, nobody] = three();
    assert_eq!(ann.outcome("PUT", "/anns/key?acl", &[("x-amz-acl", "public-read")], b""), code(200, ""));
    for header in
        ["cache-control", "content-disposition", "content-encoding", "content-language", "content-type", "expires"]
    {
        for target in ["/anns/key", "/anns/none"].map(|object| format!("{object}?response-{header}=a/b")) {
            assert_eq!(nobody.outcome("GET", &target, &[], b""), code(400, "InvalidRequest"), "{header}");
            assert_eq!(nobody.ask("HEAD", &target, &[], b"").status, 400, "{header}");
        }
        let read = bob.ask("GET", &format!("/anns/key?response-{header}=a/b"), &[], b"");
        assert_eq!((read.status, read.header(header)), (200, Some("a/b")), "{header}");
    }
    assert_eq!(nobody.ask("GET", "/anns/key", &[], b"").status, 200);
}

#[test]
fn access_control_lists() {
    let [ann, bob, nobody] = three();
    let acl = |target: &str, name: &str| {
        assert_eq!(ann.outcome("PUT", target, &[("x-amz-acl", name)], b""), code(200, ""), "{name}");
    };
    acl("/anns/key?acl", "public-read");
    assert_eq!(nobody.ask("GET", "/anns/key", &[], b"").body, b"x");
    assert_eq!(nobody.outcome("GET", "/anns/key?tagging", &[], b""), code(DENIED.0, DENIED.1));
    acl("/anns/key?acl", "authenticated-read");
    assert_eq!(
        (nobody.ask("GET", "/anns/key", &[], b"").status, bob.ask("GET", "/anns/key", &[], b"").status),
        (403, 200)
    );
    acl("/anns?acl", "public-read");
    assert_eq!(names(&nobody.ask("GET", "/anns", &[], b"").xml()), ["key"]);
    assert_eq!(nobody.outcome("GET", "/anns/none", &[], b""), code(404, "NoSuchKey"), "who may list is told");
    let reads = "{\"Version\":\"2012-10-17\",\"Statement\":[{\"Effect\":\"Allow\",\"Principal\":\"*\",\"Action\":\"s3:GetObject\",\"Resource\":\"arn:aws:s3:::reads/*\"}]}";
    assert_eq!(ann.ask("PUT", "/reads", &[], b"").status, 200);
    assert_eq!(ann.outcome("PUT", "/reads?policy", &[], reads.as_bytes()), code(204, ""));
    for server in [&bob, &nobody] {
        assert_eq!(server.outcome("GET", "/reads/none", &[], b""), code(403, "AccessDenied"), "others are not");
    }
    assert_eq!(ann.outcome("GET", "/reads/none", &[], b""), code(404, "NoSuchKey"));
    assert_eq!(nobody.ask("PUT", "/anns/new", &[], b"y").status, 403);
    acl("/anns?acl", "public-read-write");
    assert_eq!(nobody.ask("PUT", "/anns/new", &[], b"y").status, 200);
    bob.put("/anns/bobs", b"z");
    // An object is its putter's, and of the owner of the bucket.
    assert_eq!(
        (bob.ask("GET", "/anns/bobs", &[], b"").status, ann.ask("GET", "/anns/bobs", &[], b"").status),
        (200, 200)
    );
    let told = bob.ask("GET", "/anns/bobs?acl", &[], b"").xml();
    assert_eq!(told.child("Owner").and_then(|owner| owner.text_of("DisplayName")), Some("BOB"));
    let grant = ann.ask("PUT", "/anns/key?acl", &[("x-amz-grant-full-control", "id=bob")], b"");
    assert_eq!((grant.status, bob.ask("GET", "/anns/key?acl", &[], b"").status), (200, 200));
    assert_eq!(ann.outcome("PUT", "/anns?acl", &[("x-amz-acl", "x")], b""), code(400, "InvalidArgument"));
    assert_eq!(ann.outcome("PUT", "/anns?acl", &[], b""), code(400, "MissingSecurityHeader"));
    // The block of public access outweighs lists, those that are there and new ones.
    let block = "<PublicAccessBlockConfiguration><IgnorePublicAcls>true</IgnorePublicAcls>\
                 <BlockPublicAcls>true</BlockPublicAcls></PublicAccessBlockConfiguration>";
    assert_eq!(ann.ask("PUT", "/anns?publicAccessBlock", &[], block.as_bytes()).status, 200);
    assert_eq!(nobody.ask("GET", "/anns", &[], b"").status, 403);
    assert_eq!(ann.outcome("PUT", "/anns/key", &[("x-amz-acl", "public-read")], b""), code(DENIED.0, DENIED.1));
    assert_eq!(ann.outcome("PUT", "/anns?acl", &[("x-amz-acl", "public-read")], b""), code(DENIED.0, DENIED.1));
    assert_eq!(ann.ask("DELETE", "/anns?publicAccessBlock", &[], b"").status, 204);
    assert_eq!(nobody.ask("GET", "/anns", &[], b"").status, 200);
}

#[test]
fn policies() {
    let [ann, bob, nobody] = three();
    put_policy(
        &ann,
        "{\"Statement\":[{\"Effect\":\"Allow\",\"Principal\":\"*\",\"Action\":\"s3:GetObject\",\"Resource\":\"arn:aws:s3:::anns/*\"},\
         {\"Effect\":\"Deny\",\"Principal\":{\"AWS\":\"arn:aws:iam:::user/bob\"},\"Action\":\"s3:*\",\"Resource\":\"*\"},\
         {\"Effect\":\"Allow\",\"Principal\":\"*\",\"Action\":\"s3:ListBucket\",\"Resource\":\"arn:aws:s3:::anns\",\
          \"Condition\":{\"StringEquals\":{\"s3:prefix\":\"k\"}}}]}",
    );
    assert!(ann.ask("GET", "/anns?policy", &[], b"").body.starts_with(b"{\"Statement\""));
    assert_eq!(ann.ask("GET", "/anns?policyStatus", &[], b"").xml().text_of("IsPublic"), Some("true"));
    assert_eq!(
        (nobody.ask("GET", "/anns/key", &[], b"").status, bob.ask("GET", "/anns/key", &[], b"").status),
        (200, 403)
    );
    assert_eq!(
        (nobody.ask("GET", "/anns?prefix=k", &[], b"").status, nobody.ask("GET", "/anns", &[], b"").status),
        (200, 403)
    );
    assert_eq!(nobody.ask("PUT", "/anns/key", &[], b"").status, 403);
    // Also the owner is denied, but for the way out.
    put_policy(
        &ann,
        "{\"Statement\":{\"Effect\":\"Deny\",\"Principal\":\"*\",\"Action\":\"s3:*\",\"Resource\":\"*\"}}",
    );
    assert_eq!(
        (ann.ask("GET", "/anns/key", &[], b"").status, ann.ask("GET", "/anns?policy", &[], b"").status),
        (403, 200)
    );
    assert_eq!(ann.by(Some("key")).ask("GET", "/anns/key", &[], b"").status, 200, "the root user may do everything");
    assert_eq!(ann.ask("DELETE", "/anns?policy", &[], b"").status, 204);
    assert_eq!(ann.outcome("GET", "/anns?policy", &[], b""), code(404, "NoSuchBucketPolicy"));
    let block =
        "<PublicAccessBlockConfiguration><BlockPublicPolicy>true</BlockPublicPolicy></PublicAccessBlockConfiguration>";
    assert_eq!(ann.ask("PUT", "/anns?publicAccessBlock", &[], block.as_bytes()).status, 200);
    let public = b"{\"Statement\":{\"Effect\":\"Allow\",\"Principal\":\"*\",\"Action\":\"s3:*\",\"Resource\":\"*\"}}";
    assert_eq!(ann.outcome("PUT", "/anns?policy", &[], public), code(DENIED.0, DENIED.1));
}

#[test]
fn conditions_on_tags_and_versions() {
    let [ann, bob, _] = three();
    put_policy(
        &ann,
        "{\"Statement\":[{\"Effect\":\"Allow\",\"Principal\":{\"AWS\":\"bob\"},\"Action\":\"s3:GetObject\",\"Resource\":\"*\",\
          \"Condition\":{\"StringEquals\":{\"s3:ExistingObjectTag/show\":\"yes\"}}},\
         {\"Effect\":\"Allow\",\"Principal\":{\"AWS\":\"bob\"},\"Action\":[\"s3:PutObject\",\"s3:PutObjectTagging\"],\"Resource\":\"*\",\
          \"Condition\":{\"StringLike\":{\"s3:RequestObjectTag/team\":\"a*\"}}}]}",
    );
    assert_eq!(bob.ask("GET", "/anns/key", &[], b"").status, 403);
    ann.ask("PUT", "/anns/shown", &[("x-amz-tagging", "show=yes")], b"x");
    assert_eq!(bob.ask("GET", "/anns/shown", &[], b"").status, 200);
    assert_eq!(bob.ask("GET", "/anns/shown?versionId=null", &[], b"").status, 403, "of a version it is another action");
    assert_eq!(bob.ask("PUT", "/anns/new", &[("x-amz-tagging", "team=b")], b"").status, 403);
    assert_eq!(bob.ask("PUT", "/anns/new", &[("x-amz-tagging", "team=ab")], b"").status, 200);
}

#[test]
fn attributes_are_told_to_those_who_may_read_the_object() {
    let [ann, bob, _] = three();
    let wanted = [("x-amz-object-attributes", "ETag")];
    let allow = |actions: &str| {
        put_policy(
            &ann,
            &format!(
                "{{\"Statement\":[{{\"Effect\":\"Allow\",\"Principal\":{{\"AWS\":\"bob\"}},\"Action\":[{actions}],\"Resource\":\"*\"}}]}}"
            ),
        );
    };
    allow("\"s3:GetObjectAttributes\"");
    assert_eq!(bob.ask("GET", "/anns/key?attributes", &wanted, b"").status, 403);
    allow("\"s3:GetObject\"");
    assert_eq!(bob.ask("GET", "/anns/key?attributes", &wanted, b"").status, 403);
    allow("\"s3:GetObject\",\"s3:GetObjectAttributes\"");
    assert_eq!(bob.ask("GET", "/anns/key?attributes", &wanted, b"").status, 200);
}

#[test]
fn a_public_access_block_refuses_policies_that_limit_nobody() {
    let [ann, bob, nobody] = three();
    let policy = |condition: &str| {
        format!(
            "{{\"Statement\":[{{\"Effect\":\"Allow\",\"Principal\":\"*\",\"Action\":\"s3:GetObject\",\"Resource\":\"*\",\"Condition\":{condition}}}]}}"
        )
    };
    let unsigned = policy("{\"Null\":{\"aws:userid\":\"true\"}}");
    put_policy(&ann, &unsigned);
    assert_eq!(nobody.ask("GET", "/anns/key", &[], b"").status, 200);
    let block = b"<PublicAccessBlockConfiguration><BlockPublicPolicy>true</BlockPublicPolicy>\
        <RestrictPublicBuckets>true</RestrictPublicBuckets></PublicAccessBlockConfiguration>";
    assert_eq!(ann.outcome("PUT", "/anns?publicAccessBlock", &[], block), code(200, ""));
    assert_eq!(nobody.ask("GET", "/anns/key", &[], b"").status, 403);
    assert_eq!(ann.outcome("PUT", "/anns?policy", &[], unsigned.as_bytes()), code(403, "AccessDenied"));
    // A policy that names somebody is none of those.
    put_policy(&ann, &for_bob("\"s3:GetObject\"", ""));
    assert_eq!(
        (bob.ask("GET", "/anns/key", &[], b"").status, nobody.ask("GET", "/anns/key", &[], b"").status),
        (200, 403)
    );
}

const TAGGED: &str = "<Tagging><TagSet><Tag><Key>team</Key><Value>VALUE</Value></Tag></TagSet></Tagging>";

#[test]
fn what_is_denied_by_its_operation_is_denied_as_a_header() {
    let [ann, bob, nobody] = three();
    assert_eq!(ann.ask("DELETE", "/anns?publicAccessBlock", &[], b"").status, 204);
    put_policy(
        &ann,
        "{\"Statement\":[{\"Effect\":\"Allow\",\"Principal\":{\"AWS\":\"bob\"},\"Action\":[\"s3:PutObject\",\"s3:GetObject\"],\"Resource\":\"*\"},\
          {\"Effect\":\"Deny\",\"Principal\":{\"AWS\":\"bob\"},\"Action\":[\"s3:PutObjectAcl\",\"s3:PutObjectTagging\"],\"Resource\":\"*\"}]}",
    );
    for header in HEADERS.into_iter().chain(TO_OWNERS) {
        for outcome in outcomes(&bob, header) {
            assert_eq!(outcome, code(DENIED.0, DENIED.1), "{header:?}");
        }
    }
    assert_eq!(bob.ask("PUT", "/anns/new", &[], b"x").status, 200);
    assert_eq!(nobody.ask("GET", "/anns/new", &[], b"").status, 403);
}

/// Headers of a put that do what is an operation of its own.
const HEADERS: [(&str, &str); 3] =
    [("x-amz-acl", "public-read"), ("x-amz-grant-read", "id=\"ashlar\""), ("x-amz-tagging", "a=b")];

/// Those that grant nothing to anybody but the owner of the bucket or of the object.
const TO_OWNERS: [(&str, &str); 4] = [
    ("x-amz-acl", "private"),
    ("x-amz-acl", "bucket-owner-full-control"),
    ("x-amz-grant-full-control", "id=ann"),
    ("x-amz-grant-read", "id=\"ann\""),
];

/// What a put, a copy and the beginning of an upload with this header are answered.
fn outcomes(server: &Server, header: (&str, &str)) -> [(u16, String); 3] {
    let copy = ("x-amz-copy-source", "/anns/key");
    [
        server.outcome("PUT", "/anns/new", &[header], b""),
        server.outcome("PUT", "/anns/new", &[copy, header], b""),
        server.outcome("POST", "/anns/new?uploads", &[header], b""),
    ]
}

#[test]
fn who_is_allowed_to_put_needs_more_for_grants_and_tags() {
    let [ann, bob, nobody] = three();
    let allow = |more: &str| {
        let policy = r#"{"Statement": {"Effect": "Allow", "Principal": "*", "Action": ["s3:PutObject", "s3:GetObject" MORE], "Resource": "*"}}"#;
        put_policy(&ann, &policy.replace("MORE", more));
    };
    for (more, acl, tags) in [
        ("", DENIED, DENIED),
        (r#", "s3:PutObjectAcl""#, (200, ""), DENIED),
        (r#", "s3:PutObjectTagging""#, DENIED, (200, "")),
        (r#", "s3:PutObject*""#, (200, ""), (200, "")),
    ] {
        allow(more);
        for server in [&bob, &nobody] {
            assert_eq!(server.ask("PUT", "/anns/new", &[], b"x").status, 200);
            for header in HEADERS {
                let (status, name) = if header.0 == "x-amz-tagging" { tags } else { acl };
                for outcome in outcomes(server, header) {
                    assert_eq!(outcome, code(status, name), "{more} {header:?}");
                }
            }
            for header in TO_OWNERS {
                assert!(outcomes(server, header).iter().all(|(status, _)| *status == 200), "{more} {header:?}");
            }
        }
        for header in HEADERS {
            assert!(outcomes(&ann, header).iter().all(|(status, _)| *status == 200), "the bucket is hers");
        }
    }
}

#[test]
fn who_may_write_by_a_list_may_grant_and_tag() {
    let [ann, bob, nobody] = three();
    assert_eq!(ann.outcome("PUT", "/anns?acl", &[("x-amz-acl", "public-read-write")], b""), code(200, ""));
    assert_eq!(ann.outcome("PUT", "/anns/key?acl", &[("x-amz-acl", "public-read")], b""), code(200, ""));
    for server in [&bob, &nobody] {
        for header in HEADERS {
            assert!(outcomes(server, header).iter().all(|(status, _)| *status == 200), "{header:?}");
        }
    }
}

#[test]
fn conditions_on_tags_that_a_body_sets() {
    let [ann, bob, _] = three();
    let tag = |value: &str| TAGGED.replace("VALUE", value).into_bytes();
    put_policy(
        &ann,
        "{\"Statement\":[{\"Effect\":\"Allow\",\"Principal\":{\"AWS\":\"bob\"},\"Action\":\"s3:PutObjectTagging\",\"Resource\":\"*\",\
          \"Condition\":{\"ForAllValues:StringEquals\":{\"s3:RequestObjectTagKeys\":[\"team\"]}}},\
          {\"Effect\":\"Deny\",\"Principal\":{\"AWS\":\"bob\"},\"Action\":\"s3:PutObjectTagging\",\"Resource\":\"*\",\
          \"Condition\":{\"StringEquals\":{\"s3:RequestObjectTag/team\":\"red\"}}}]}",
    );
    assert_eq!(bob.ask("PUT", "/anns/key?tagging", &[], &tag("blue")).status, 200);
    assert_eq!(bob.ask("PUT", "/anns/key?tagging", &[], &tag("red")).status, 403);
    let other = String::from_utf8(tag("blue")).unwrap().replace("team", "evil");
    assert_eq!(bob.ask("PUT", "/anns/key?tagging", &[], other.as_bytes()).status, 403);
    put_policy(
        &ann,
        "{\"Statement\":{\"Effect\":\"Allow\",\"Principal\":{\"AWS\":\"bob\"},\"Action\":\"s3:PutObjectTagging\",\"Resource\":\"*\",\
          \"Condition\":{\"StringEquals\":{\"s3:RequestObjectTag/team\":\"green\"}}}}",
    );
    assert_eq!(bob.ask("PUT", "/anns/key?tagging", &[], &tag("green")).status, 200, "the head does not say it");
    assert_eq!(bob.ask("PUT", "/anns/key?tagging", &[], &tag("blue")).status, 403);
}

#[test]
fn tags_of_a_source_are_copied_by_those_who_may_read_them() {
    let [ann, bob, _] = three();
    assert_eq!(ann.ask("PUT", "/anns/key?tagging", &[], TAGGED.as_bytes()).status, 200);
    put_policy(
        &ann,
        "{\"Statement\":{\"Effect\":\"Allow\",\"Principal\":{\"AWS\":\"bob\"},\"Action\":[\"s3:GetObject\",\"s3:PutObject\"],\"Resource\":\"*\"}}",
    );
    let copy = ("x-amz-copy-source", "/anns/key");
    assert_eq!(bob.ask("PUT", "/anns/copy", &[copy], b"").status, 403);
    assert_eq!(bob.ask("PUT", "/anns/copy", &[copy, ("x-amz-tagging-directive", "REPLACE")], b"").status, 200);
    let allow = |actions: &str, denied_team: &str| {
        let policy = r#"{"Statement": [{"Effect": "Allow", "Principal": {"AWS": "bob"}, "Action": ["s3:PutObject", ACTIONS], "Resource": "*"},
            {"Effect": "Deny", "Principal": "*", "Action": "s3:PutObjectTagging", "Resource": "*",
             "Condition": {"StringEquals": {"s3:RequestObjectTag/team": "TEAM"}}}]}"#;
        put_policy(&ann, &policy.replace("ACTIONS", actions).replace("TEAM", denied_team));
    };
    allow(r#""s3:GetObject*""#, "none");
    assert_eq!(bob.ask("PUT", "/anns/copy", &[copy], b"").status, 403, "who sets no tags copies none");
    allow(r#""s3:GetObject*", "s3:PutObjectTagging""#, "none");
    assert_eq!(bob.ask("PUT", "/anns/copy", &[copy], b"").status, 200);
    allow(r#""s3:GetObject*", "s3:PutObjectTagging""#, "VALUE");
    assert_eq!(bob.ask("PUT", "/anns/copy", &[copy], b"").status, 403, "a condition on tags sees those of the source");
}

#[test]
fn nobody_but_the_owner_changes_the_policy() {
    let [ann, bob, _] = three();
    put_policy(
        &ann,
        "{\"Statement\":{\"Effect\":\"Allow\",\"Principal\":{\"AWS\":\"bob\"},\"Action\":\"s3:*\",\"Resource\":\"*\"}}",
    );
    assert_eq!(bob.ask("GET", "/anns?policy", &[], b"").status, 200);
    assert_eq!(bob.ask("DELETE", "/anns?policy", &[], b"").status, 403);
    let policy = b"{\"Statement\":{\"Effect\":\"Deny\",\"Principal\":\"*\",\"Action\":\"s3:*\",\"Resource\":\"*\"}}";
    assert_eq!(bob.ask("PUT", "/anns?policy", &[], policy).status, 403);
}

#[test]
fn tags_have_letters_of_all_kinds() {
    let [ann, ..] = three();
    let body = TAGGED.replace("VALUE", "K\u{f6}ln \u{6771}");
    assert_eq!(ann.ask("PUT", "/anns/key?tagging", &[], body.as_bytes()).status, 200);
    let read = String::from_utf8(ann.ask("GET", "/anns/key?tagging", &[], b"").body).unwrap();
    assert!(read.contains("<Value>K\u{f6}ln \u{6771}</Value>"), "{read}");
}

#[test]
fn each_operation_has_a_rule() {
    assert_eq!(rule_of(Operation::GetObject).need, Need::Object(crate::s3::acl::Permission::Read));
    for operation in [Operation::DeleteBucket, Operation::PutBucketVersioning, Operation::GetBucketLocation] {
        assert_eq!(rule_of(operation).need, Need::Owner);
    }
    for operation in [Operation::ListBuckets, Operation::CreateBucket] {
        assert_eq!(rule_of(operation).need, Need::Signed);
    }
    // What is asked for each object by itself is asked there; a preflight tells only what pages are told anyway.
    assert_eq!((rule_of(Operation::DeleteObjects).need, rule_of(Operation::Preflight).need), (Need::Each, Need::Each));
}

/// The names in a list of buckets.
fn buckets(server: &Server) -> Vec<String> {
    let reply = server.ask("GET", "/", &[], b"");
    let text = String::from_utf8(reply.body).unwrap();
    text.split("<Name>").skip(1).map(|rest| rest.split('<').next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn a_user_with_a_policy_may_do_what_it_says_and_no_more() {
    let server = Server::new();
    let [ann, reader, writer] = ["ann", "reader", "writer"].map(|user| server.by(Some(user)));
    for bucket in ["/anns", "/secret"] {
        assert_eq!(ann.ask("PUT", bucket, &[], b"").status, 200);
        ann.put(&format!("{bucket}/key"), b"x");
    }
    let status = |server: &Server, method: &str, target: &str| server.ask(method, target, &[], b"").status;
    // Reads everything but what is denied, and writes nothing.
    for (target, expected) in [("/anns/key", 200), ("/anns?list-type=2", 200), ("/secret/key", 403), ("/secret", 403)] {
        assert_eq!(status(&reader, "GET", target), expected, "{target}");
    }
    for (method, target) in [("PUT", "/anns/new"), ("DELETE", "/anns/key"), ("PUT", "/readers"), ("GET", "/anns?acl")] {
        assert_eq!(reader.outcome(method, target, &[], b""), code(403, "AccessDenied"), "{method} {target}");
    }
    assert_eq!(reader.outcome("GET", "/anns/none", &[], b""), code(404, "NoSuchKey"), "who may list is told");
    assert_eq!(buckets(&reader), ["anns", "bucket"], "but not `secret`");
    // Does everything in buckets of its own names, and below one name of another's.
    for (method, target, expected) in [
        ("PUT", "/w-1", 200),
        ("PUT", "/w-1/key", 200),
        ("GET", "/w-1/key", 200),
        ("PUT", "/anns/in/key", 200),
        ("GET", "/anns/in/key", 200),
        ("GET", "/anns/key", 403),
        ("PUT", "/other", 403),
        ("GET", "/", 403),
    ] {
        assert_eq!(status(&writer, method, target), expected, "{method} {target}");
    }
    assert_eq!(status(&reader, "GET", "/w-1/key"), 200);
    // What was put there is the bucket owner's to read and to delete.
    assert_eq!(status(&ann, "GET", "/anns/in/key"), 200);
    assert_eq!(status(&ann, "DELETE", "/anns/in/key"), 204);
    // A bucket's policy denies whom the user's policy allows, and allows more.
    let statement = |effect: &str, user: &str, action: &str| {
        format!(
            "{{\"Effect\":\"{effect}\",\"Principal\":{{\"AWS\":\"{user}\"}},\"Action\":\"{action}\",\"Resource\":\"arn:aws:s3:::anns/*\"}}"
        )
    };
    let (deny, allow) = (statement("Deny", "reader", "s3:GetObject"), statement("Allow", "writer", "s3:GetObject"));
    put_policy(&ann, &format!("{{\"Statement\":[{deny},{allow}]}}"));
    assert_eq!((status(&reader, "GET", "/anns/key"), status(&writer, "GET", "/anns/key")), (403, 200));
    // And an object that is its own is nobody's right to read.
    put_policy(&ann, &format!("{{\"Statement\":[{}]}}", statement("Allow", "reader", "s3:PutObject")));
    assert_eq!(status(&reader, "PUT", "/anns/mine"), 200);
    assert_eq!(status(&reader, "DELETE", "/anns/mine"), 403);
}

#[test]
fn a_policy_with_a_variable_gives_each_user_a_part_of_a_bucket() {
    let [ann, ..] = three();
    ann.put("/anns/home/bob/key", b"x");
    let guest = ann.by(Some("guest"));
    assert_eq!(guest.outcome("PUT", "/anns/home/guest/key", &[], b"x"), code(200, ""));
    assert_eq!(guest.ask("GET", "/anns/home/guest/key", &[], b"").body, b"x");
    assert_eq!(guest.outcome("GET", "/anns?prefix=home/guest/", &[], b""), code(200, ""));
    for target in ["/anns/home/bob/key", "/anns/key", "/anns?prefix=home/bob/", "/anns?prefix=home/", "/anns"] {
        assert_eq!(guest.outcome("GET", target, &[], b""), code(DENIED.0, DENIED.1), "{target}");
    }
    assert_eq!(guest.outcome("PUT", "/anns/home/guest", &[], b"x"), code(DENIED.0, DENIED.1));
}

#[test]
fn who_may_only_make_buckets_gets_no_rights_in_them() {
    let maker = Server::new().by(Some("maker"));
    for (header, value) in [
        ("x-amz-acl", "public-read-write"),
        ("x-amz-grant-full-control", "id=maker"),
        ("x-amz-bucket-object-lock-enabled", "true"),
    ] {
        assert_eq!(maker.outcome("PUT", "/m-1", &[(header, value)], b""), code(403, "AccessDenied"), "{header}");
    }
    assert_eq!(maker.ask("PUT", "/m-1", &[], b"").status, 200);
    for (method, target) in [
        ("GET", "/m-1?list-type=2"),
        ("PUT", "/m-1/key"),
        ("PUT", "/m-1?acl"),
        ("GET", "/m-1?acl"),
        ("PUT", "/m-1?policy"),
        ("GET", "/m-1?policy"),
        ("DELETE", "/m-1"),
        ("GET", "/"),
    ] {
        assert_eq!(maker.outcome(method, target, &[], b""), code(403, "AccessDenied"), "{method} {target}");
    }
}

#[test]
fn who_may_only_write_does_not_learn_what_is_there_by_conditions() {
    let [ann, bob, _] = three();
    put_policy(
        &ann,
        "{\"Statement\":{\"Effect\":\"Allow\",\"Principal\":{\"AWS\":\"bob\"},\"Action\":[\"s3:PutObject\",\"s3:DeleteObject\"],\"Resource\":\"*\"}}",
    );
    let etag = "\"9dd4e461268c8034f5c8564e155c67a6\"";
    assert_eq!(ann.ask("HEAD", "/anns/key", &[], b"").header("etag"), Some(etag));
    for value in [etag, "\"11111111111111111111111111111111\""] {
        for (method, name) in [("PUT", "if-match"), ("PUT", "if-none-match"), ("DELETE", "if-match")] {
            let outcome = bob.outcome(method, "/anns/key", &[(name, value)], b"");
            assert_eq!(outcome, code(DENIED.0, DENIED.1), "{method} {name} {value}");
        }
    }
    assert_eq!(bob.ask("PUT", "/anns/key", &[("if-none-match", "*")], b"y").status, 412);
    assert_eq!(bob.ask("PUT", "/anns/key", &[("if-match", "*")], b"y").status, 200);
    assert_eq!(ann.ask("PUT", "/anns/key", &[("if-match", etag)], b"y").status, 412);
    assert_eq!(ann.ask("PUT", "/anns/none", &[("if-match", etag)], b"y").status, 404);
}

#[test]
fn a_condition_says_nothing_of_an_absent_object_that_who_may_list_does_not_know() {
    let [ann, bob, _] = three();
    put_policy(&ann, &for_bob("\"s3:PutObject\", \"s3:ListBucket\"", ""));
    let put = |key: &str, name| {
        let etag = "\"11111111111111111111111111111111\"";
        bob.outcome("PUT", &format!("/anns/{key}"), &[(name, etag)], b"y")
    };
    assert_eq!((put("none", "if-match"), put("none", "if-none-match")), (code(404, "NoSuchKey"), code(200, "")));
    for name in ["if-match", "if-none-match"] {
        assert_eq!(put("key", name), code(DENIED.0, DENIED.1), "{name}: it is there, and not his to read");
    }
}

#[test]
fn who_has_begun_an_upload_adds_to_it_as_long_as_that_is_allowed() {
    let [ann, bob, _] = three();
    put_policy(&ann, &for_bob("\"s3:PutObject\"", ""));
    let begun = bob.ask("POST", "/anns/new?uploads", &[], b"").xml();
    let upload = format!("/anns/new?uploadId={}", begun.text_of("UploadId").expect("an id"));
    let part = || bob.outcome("PUT", &format!("{upload}&partNumber=1"), &[], b"x");
    assert_eq!(part(), code(200, ""));
    assert_eq!(ann.ask("DELETE", "/anns?policy", &[], b"").status, 204);
    assert_eq!(part(), code(DENIED.0, DENIED.1));
    assert_eq!(bob.outcome("POST", &upload, &[], b""), code(DENIED.0, DENIED.1));
    assert_eq!(bob.outcome("DELETE", &upload, &[], b""), code(204, ""));
}

#[test]
fn a_denial_of_grants_by_tags_counts_for_the_headers_of_a_put() {
    let [ann, bob, _] = three();
    let deny = r#", {"Effect": "Deny", "Principal": {"AWS": "bob"}, "Action": "s3:PutObjectAcl", "Resource": "*",
        "Condition": {"StringEquals": {"s3:ExistingObjectTag/team": "red"}}}"#;
    put_policy(&ann, &for_bob("\"s3:PutObject\"", deny));
    for header in TO_OWNERS {
        for (team, expected) in [("red", DENIED), ("blue", (200, ""))] {
            let tags = ("x-amz-tagging", format!("team={team}"));
            assert_eq!(ann.ask("PUT", "/anns/key", &[(tags.0, &tags.1)], b"x").status, 200);
            let put = bob.outcome("PUT", "/anns/key", &[header], b"x");
            assert_eq!(put, code(expected.0, expected.1), "{team} {header:?}");
        }
    }
}

#[test]
fn a_source_is_copied_from_the_bucket_of_the_owner_who_is_meant() {
    let [ann, ..] = three();
    let copy = |owner| {
        let headers = [("x-amz-copy-source", "/anns/key"), ("x-amz-source-expected-bucket-owner", owner)];
        ann.ask("PUT", "/anns/to", &headers, b"").status
    };
    assert_eq!((copy("ann"), copy("bob")), (200, 403));
}
