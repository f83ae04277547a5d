//! Buckets: lists of them, their regions, and access control lists as documents.

use super::*;

#[test]
fn lists_of_buckets() {
    let server = Server::new();
    for bucket in ["/one", "/other", "/outer"] {
        assert_eq!(server.ask("PUT", bucket, &[], b"").status, 200);
    }
    let token = encode_component(&to_base64(b"one"));
    for (query, expected, prefix, is_more) in [
        ("", &["bucket", "one", "other", "outer"][..], None, false),
        ("?prefix=o", &["one", "other", "outer"], Some("o"), false),
        ("?prefix=ou", &["outer"], Some("ou"), false),
        ("?prefix=o&max-buckets=3", &["one", "other", "outer"], Some("o"), false),
        ("?prefix=o&max-buckets=2", &["one", "other"], Some("o"), true),
        (&format!("?prefix=o&continuation-token={token}"), &["other", "outer"], Some("o"), false),
    ] {
        let list = server.ask("GET", &format!("/{query}"), &[], b"").xml();
        let buckets = &list.child("Buckets").expect("buckets").children;
        let names: Vec<_> = buckets.iter().filter_map(|bucket| bucket.text_of("Name")).collect();
        assert_eq!((names.as_slice(), list.text_of("Prefix")), (expected, prefix), "{query}");
        assert_eq!(list.text_of("ContinuationToken").is_some(), is_more, "{query}");
        assert_eq!(buckets[0].text_of("CreationDate"), Some("2013-05-24T00:00:00.000Z"));
        assert_eq!(buckets[0].text_of("BucketRegion"), Some("us-east-1"));
    }
    for query in ["max-buckets=0", "max-buckets=10001", "continuation-token=", "continuation-token=x"] {
        assert_eq!(server.outcome("GET", &format!("/?{query}"), &[], b""), code(400, "InvalidArgument"), "{query}");
    }
}

#[test]
fn outside_of_the_first_region_a_bucket_is_made_once_and_its_place_is_told() {
    let memory = Memory::new(|| NOW);
    let plain = Server::over(&memory);
    let settings = S3Settings { region: "eu-1".into(), ..S3Settings::default() };
    let service = S3Service::new(memory.service(), Arc::new(Users), Arc::new(Keys::default()), settings);
    let server = Server(service, Some("key"), None);
    assert_eq!(plain.outcome("PUT", "/bucket", &[], b""), code(200, ""));
    assert_eq!(server.outcome("PUT", "/bucket", &[], b""), code(409, "BucketAlreadyOwnedByYou"));
    assert_eq!(server.by(Some("ann")).outcome("PUT", "/bucket", &[], b""), code(409, "BucketAlreadyExists"));
    for (server, region, location) in [(plain, "us-east-1", ""), (server, "eu-1", "eu-1")] {
        assert_eq!(server.ask("HEAD", "/bucket", &[], b"").header("x-amz-bucket-region"), Some(region));
        assert_eq!(server.ask("GET", "/bucket?location", &[], b"").xml().text, location);
    }
}

#[test]
fn in_the_first_region_a_bucket_is_made_again_only_as_it_is() {
    let server = Server::new();
    let taken = code(409, "BucketAlreadyExists");
    for (header, expected) in [
        (("x-amz-acl", "public-read"), &taken),
        (("x-amz-object-ownership", "ObjectWriter"), &taken),
        (("x-amz-bucket-object-lock-enabled", "true"), &taken),
        (("x-amz-bucket-object-lock-enabled", "false"), &code(200, "")),
    ] {
        assert_eq!(&server.outcome("PUT", "/bucket", &[header], b""), expected, "{header:?}");
    }
}

#[test]
fn an_access_control_list_is_given_by_headers_or_by_a_document() {
    let server = Server::new();
    let nobody = server.by(None);
    server.put("/bucket/key", b"x");
    for (target, read) in [("/bucket?acl", "/bucket"), ("/bucket/key?acl", "/bucket/key")] {
        let private = server.ask("GET", target, &[], b"").body;
        let public = ("x-amz-acl", "public-read");
        assert_eq!(server.outcome("PUT", target, &[public], b""), code(200, ""));
        assert_eq!(nobody.ask("GET", read, &[], b"").status, 200, "{target}");
        assert_eq!(server.outcome("PUT", target, &[public], &private), code(400, "InvalidRequest"));
        assert_eq!(server.outcome("PUT", target, &[], b""), code(400, "MissingSecurityHeader"));
        assert_eq!(nobody.ask("GET", read, &[], b"").status, 200, "what was refused has changed nothing");
        assert_eq!(server.outcome("PUT", target, &[], &private), code(200, ""));
        assert_eq!(nobody.ask("GET", read, &[], b"").status, 403, "{target}");
    }
}

#[test]
fn an_error_names_the_resource_where_xml_can_tell_it() {
    let server = Server::new();
    for (target, resource) in [("/bucket/a%20b", Some("/bucket/a b")), ("/bucket/a%00b", None)] {
        let error = server.ask("GET", target, &[], b"");
        assert_eq!(error.outcome(), code(404, "NoSuchKey"), "{target}");
        assert_eq!((error.xml().text_of("Resource"), error.xml().text_of("RequestId")), (resource, Some("ID")));
    }
}
