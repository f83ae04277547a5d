//! Ownership of objects: whose they are, and whether access control lists count.

use super::*;

const ENFORCED: &[u8] =
    b"<OwnershipControls><Rule><ObjectOwnership>BucketOwnerEnforced</ObjectOwnership></Rule></OwnershipControls>";
const ENABLED: &[u8] = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
const UNSUPPORTED: (u16, &str) = (400, "AccessControlListNotSupported");
const OF_BUCKET: (u16, &str) = (400, "InvalidBucketAclWithObjectOwnership");

/// Ann, Bob, nobody; in Ann's bucket `anns` Bob may do everything with objects, and she may see and change her own.
fn three(ownership: &[(&str, &str)]) -> [Server; 3] {
    let server = Server::new();
    let all = [Some("ann"), Some("bob"), None].map(|user| server.by(user));
    assert_eq!(all[0].ask("PUT", "/anns", ownership, b"").status, 200);
    let policy = "{\"Statement\":{\"Effect\":\"Allow\",\"Principal\":{\"AWS\":\"arn:aws:iam:::user/bob\"},\
        \"Action\":\"s3:*Object*\",\"Resource\":\"arn:aws:s3:::anns/*\"}}";
    assert_eq!(all[0].outcome("PUT", "/anns?policy", &[], policy.as_bytes()), code(204, ""));
    all
}

fn owner_of(server: &Server, target: &str) -> String {
    let acl = server.ask("GET", target, &[], b"").xml();
    let owner = acl.child("Owner").and_then(|owner| owner.text_of("ID")).expect("an owner");
    let grants = acl.child("AccessControlList").expect("a list");
    format!("{owner} {}", grants.children.len())
}

#[test]
fn a_bucket_tells_whose_objects_are() {
    let [ann, bob, _] = three(&[]);
    let target = "/anns?ownershipControls";
    assert_eq!(ann.outcome("GET", target, &[], b""), code(404, "OwnershipControlsNotFoundError"));
    for bad in [b"".as_slice(), b"<OwnershipControls/>", b"<x/>"] {
        assert_eq!(ann.outcome("PUT", target, &[], bad), code(400, "MalformedXML"));
    }
    assert_eq!(ann.outcome("PUT", target, &[], ENFORCED), code(200, ""));
    let told = ann.ask("GET", target, &[], b"").xml();
    let name = told.child("Rule").and_then(|rule| rule.text_of("ObjectOwnership"));
    assert_eq!(name, Some("BucketOwnerEnforced"));
    for method in ["GET", "PUT", "DELETE"] {
        assert_eq!(bob.outcome(method, target, &[], ENFORCED), code(403, "AccessDenied"), "{method}");
    }
    assert_eq!(ann.outcome("DELETE", target, &[], b""), code(204, ""));
    assert_eq!(ann.outcome("GET", target, &[], b""), code(404, "OwnershipControlsNotFoundError"));
}

#[test]
fn where_the_bucket_owner_is_enforced_lists_grant_nothing_and_cannot_be_set() {
    let [ann, bob, nobody] = three(&[]);
    // A list of an object that is public, and an object that is Bob's.
    for (key, list) in [("open", "public-read"), ("private", "private")] {
        assert_eq!(bob.ask("PUT", &format!("/anns/{key}"), &[("x-amz-acl", list)], b"x").status, 200);
    }
    assert_eq!(
        (owner_of(&bob, "/anns/open?acl"), owner_of(&bob, "/anns/private?acl")),
        ("bob 2".into(), "bob 1".into())
    );
    assert_eq!(nobody.ask("GET", "/anns/open", &[], b"").status, 200);
    // A list of the bucket that grants something must go first.
    assert_eq!(ann.outcome("PUT", "/anns?acl", &[("x-amz-acl", "public-read")], b""), code(200, ""));
    assert_eq!(ann.outcome("PUT", "/anns?ownershipControls", &[], ENFORCED), code(OF_BUCKET.0, OF_BUCKET.1));
    assert_eq!(nobody.ask("GET", "/anns", &[], b"").status, 200);
    assert_eq!(ann.outcome("PUT", "/anns?acl", &[("x-amz-acl", "private")], b""), code(200, ""));
    assert_eq!(ann.outcome("PUT", "/anns?ownershipControls", &[], ENFORCED), code(200, ""));
    // What was granted is not, and all is Ann's.
    assert_eq!(nobody.ask("GET", "/anns/open", &[], b"").status, 403);
    assert_eq!((owner_of(&ann, "/anns/open?acl"), owner_of(&ann, "/anns?acl")), ("ann 1".into(), "ann 1".into()));
    let listed = ann.ask("GET", "/anns", &[], b"").xml();
    let owners = listed.children.iter().filter_map(|entry| entry.child("Owner")?.text_of("ID"));
    assert_eq!(owners.collect::<Vec<_>>(), ["ann", "ann"]);
    let unsupported = code(UNSUPPORTED.0, UNSUPPORTED.1);
    for target in ["/anns?acl", "/anns/open?acl"] {
        for list in ["private", "public-read", "bucket-owner-full-control"] {
            assert_eq!(ann.outcome("PUT", target, &[("x-amz-acl", list)], b""), unsupported, "{target} {list}");
        }
    }
    for header in [("x-amz-acl", "private"), ("x-amz-acl", "public-read"), ("x-amz-grant-full-control", "id=bob")] {
        assert_eq!(bob.outcome("PUT", "/anns/new", &[header], b"x"), unsupported, "{header:?}");
        assert_eq!(bob.outcome("POST", "/anns/new?uploads", &[header], b""), unsupported, "{header:?}");
        let copy = [("x-amz-copy-source", "/anns/open"), header];
        assert_eq!(bob.outcome("PUT", "/anns/new", &copy, b""), unsupported, "{header:?}");
    }
    assert_eq!(ann.outcome("GET", "/anns/new", &[], b""), code(404, "NoSuchKey"));
    let headers = [("x-amz-acl", "bucket-owner-full-control"), ("x-amz-grant-full-control", "id=ann")];
    for header in headers.map(|header| [header]).iter().map(|header| &header[..]).chain([&[][..]]) {
        assert_eq!(bob.outcome("PUT", "/anns/new", header, b"x"), code(200, ""), "{header:?}");
    }
    // What was put meanwhile stays Ann's, what was Bob's before is his again.
    assert_eq!(ann.outcome("DELETE", "/anns?ownershipControls", &[], b""), code(204, ""));
    assert_eq!((owner_of(&ann, "/anns/new?acl"), owner_of(&bob, "/anns/open?acl")), ("ann 1".into(), "bob 2".into()));
    assert_eq!(nobody.ask("GET", "/anns/open", &[], b"").status, 200);
}

#[test]
fn marks_of_deletions_and_uploads_follow_the_bucket() {
    for (ownership, owner) in [("BucketOwnerEnforced", "ann"), ("ObjectWriter", "bob")] {
        let [ann, bob, _] = three(&[("x-amz-object-ownership", ownership)]);
        assert_eq!(ann.ask("PUT", "/anns?versioning", &[], ENABLED).status, 200);
        assert_eq!(bob.ask("DELETE", "/anns/gone", &[], b"").status, 204);
        let versions = ann.ask("GET", "/anns?versions", &[], b"").xml();
        let mark = versions.child("DeleteMarker").and_then(|mark| mark.child("Owner")?.text_of("ID"));
        assert_eq!(mark, Some(owner), "{ownership}");
        assert_eq!(bob.ask("POST", "/anns/new?uploads", &[], b"").status, 200);
        let uploads = ann.ask("GET", "/anns?uploads", &[], b"").xml();
        let upload = uploads.child("Upload").and_then(|upload| upload.child("Owner")?.text_of("ID"));
        assert_eq!(upload, Some(owner), "{ownership}");
    }
}

/// Bob may put objects, and the policy says nothing of uploads that are listed or given up.
#[test]
fn whoever_has_begun_an_upload_may_list_its_parts_and_give_it_up() {
    for ownership in ["BucketOwnerEnforced", "BucketOwnerPreferred", "ObjectWriter"] {
        let [ann, bob, nobody] = three(&[("x-amz-object-ownership", ownership)]);
        let begin = |server: &Server| {
            let begun = server.ask("POST", "/anns/new?uploads", &[], b"").xml();
            format!("/anns/new?uploadId={}", begun.text_of("UploadId").expect("an upload"))
        };
        let (his, hers) = (begin(&bob), begin(&ann));
        let told = bob.ask("GET", &his, &[], b"").xml();
        assert_eq!(told.child("Initiator").and_then(|user| user.text_of("ID")), Some("bob"), "{ownership}");
        assert_eq!(ann.ask("GET", &his, &[], b"").status, 200, "{ownership}");
        for (server, target) in [(&bob, &hers), (&nobody, &his), (&nobody, &hers)] {
            for method in ["GET", "DELETE"] {
                assert_eq!(server.outcome(method, target, &[], b""), code(403, "AccessDenied"), "{ownership} {method}");
            }
        }
        let denied = "{\"Statement\":{\"Effect\":\"Deny\",\"Principal\":\"*\",\"Action\":\"s3:AbortMultipartUpload\",\
            \"Resource\":\"arn:aws:s3:::anns/*\"}}";
        assert_eq!(ann.outcome("PUT", "/anns?policy", &[], denied.as_bytes()), code(204, ""));
        assert_eq!(bob.outcome("DELETE", &his, &[], b""), code(403, "AccessDenied"), "{ownership}");
        assert_eq!(ann.outcome("DELETE", "/anns?policy", &[], b""), code(204, ""));
        assert_eq!(bob.outcome("DELETE", &his, &[], b""), code(204, ""), "{ownership}");
        assert_eq!(ann.outcome("GET", &his, &[], b""), code(404, "NoSuchUpload"), "{ownership}");
    }
}

#[test]
fn what_is_given_to_a_preferred_bucket_owner_is_theirs() {
    for (ownership, owner) in [("BucketOwnerPreferred", "ann 1"), ("ObjectWriter", "bob 2")] {
        let [_, bob, nobody] = three(&[("x-amz-object-ownership", ownership)]);
        assert_eq!(bob.ask("PUT", "/anns/given", &[("x-amz-acl", "bucket-owner-full-control")], b"x").status, 200);
        assert_eq!(bob.ask("PUT", "/anns/kept", &[("x-amz-acl", "public-read")], b"x").status, 200);
        assert_eq!(owner_of(&bob, "/anns/given?acl"), owner, "{ownership}");
        assert_eq!(owner_of(&bob, "/anns/kept?acl"), "bob 2", "{ownership}");
        assert_eq!(nobody.ask("GET", "/anns/kept", &[], b"").status, 200, "{ownership}: lists count");
    }
}

#[test]
fn a_new_bucket_is_made_with_an_ownership() {
    let server = Server::new();
    let make = |headers: &[(&str, &str)]| server.outcome("PUT", "/new-bucket", headers, b"");
    let named = |name| ("x-amz-object-ownership", name);
    assert_eq!(make(&[named("x")]), code(400, "InvalidArgument"));
    let open = [named("BucketOwnerEnforced"), ("x-amz-acl", "public-read")];
    assert_eq!(make(&open), code(OF_BUCKET.0, OF_BUCKET.1));
    assert_eq!(server.ask("HEAD", "/new-bucket", &[], b"").status, 404);
    assert_eq!(make(&[named("BucketOwnerEnforced"), ("x-amz-acl", "private")]), code(200, ""));
    assert_eq!(make(&[named("BucketOwnerEnforced"), ("x-amz-acl", "private")]), code(200, ""), "again, as it is");
    assert_eq!(make(&[named("ObjectWriter"), ("x-amz-acl", "private")]), code(409, "BucketAlreadyExists"));
    assert_eq!(owner_of(&server, "/new-bucket?acl"), "ashlar 1");
}
