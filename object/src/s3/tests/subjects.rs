//! What requests were about, as metrics and the audit log are told.

use super::*;

/// Operation, bucket, key, user, access key and error.
type Told<'a> = (&'a str, &'a str, &'a str, Option<&'a str>, Option<&'a str>, Option<&'a str>);

fn check(server: &Server, (method, target): (&str, &str), expected: Told<'_>) {
    let head = server.head(method, target, &[], 1);
    let mut body = Sent { pieces: vec![Bytes::from_static(b"x")], is_cut: false };
    let (_, subject) = server.handled(NOW, head, target, &mut body);
    let Subject { bucket, key, user, access_key, error, .. } = &subject;
    let told = (subject.api(), bucket.as_str(), key.as_str(), user.as_deref(), access_key.as_deref(), *error);
    assert_eq!(told, expected, "{method} {target}");
}

#[test]
fn a_request_is_told_by_operation_object_sender_and_error() {
    let root = Server::new();
    let [ann, stranger, nobody] = [Some("ann"), Some("eve"), None].map(|user| root.by(user));
    let (key, denied) = (Some("key"), Some("AccessDenied"));
    let of_root = |api, bucket, object, error| (api, bucket, object, Some("ashlar"), key, error);
    let table = [
        (&root, ("GET", "/"), of_root("ListBuckets", "", "", None)),
        (&root, ("PUT", "/bucket/a%2Fb"), of_root("PutObject", "bucket", "a/b", None)),
        (&root, ("GET", "/bucket/none"), of_root("GetObject", "bucket", "none", Some("NoSuchKey"))),
        (&root, ("GET", "/bucket?cors"), of_root("GetBucketCors", "bucket", "", Some("NoSuchCORSConfiguration"))),
        (&root, ("PUT", "/bucket?policy"), of_root("PutBucketPolicy", "bucket", "", Some("MalformedPolicy"))),
        (&root, ("DELETE", "/bucket?lifecycle"), of_root("DeleteBucketLifecycle", "bucket", "", None)),
        (&ann, ("GET", "/bucket?list-type=2"), ("ListObjectsV2", "bucket", "", Some("ann"), Some("ann"), denied)),
        (&nobody, ("DELETE", "/bucket/a%2Fb"), ("DeleteObject", "bucket", "a/b", None, None, denied)),
        (&stranger, ("HEAD", "/bucket"), ("HeadBucket", "bucket", "", None, Some("eve"), Some("InvalidAccessKeyId"))),
        (&root, ("PATCH", "/bucket/a"), ("Unknown", "", "", None, None, Some("MethodNotAllowed"))),
    ];
    for (server, request, expected) in table {
        check(server, request, expected);
    }
}
