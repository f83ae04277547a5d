//! Routing of S3 requests: a route names what the request names and nothing else; a request with a subresource that is not
//! there never becomes a plain operation.
#![no_main]

use ashlar_object::api::KEY_BYTES_MAX;
use ashlar_object::s3::encoding::{encode_component, encode_path};
use ashlar_object::s3::head::{Method, RequestHead};
use ashlar_object::s3::route::{Operation, is_bucket_name, route};
use libfuzzer_sys::fuzz_target;

const METHODS: [&str; 6] = ["GET", "HEAD", "PUT", "POST", "DELETE", "PATCH"];

fuzz_target!(|input: (u8, &str, Option<&str>, Option<&str>)| {
    let (method, target, host, copy) = input;
    let method = Method::named(METHODS[usize::from(method) % METHODS.len()]);
    let headers = [("host", host), ("x-amz-copy-source", copy)];
    let headers: Vec<_> =
        headers.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned()))).collect();
    let domains = ["example.com".to_owned()];
    let Ok(head) = RequestHead::new(method, target, headers.clone()) else { return };
    // The same request in the canonical spelling has the same route.
    let canonical = format!("{}?{}", encode_path(&head.path), head.query.canonical());
    let routed = route(&head, &domains);
    let again = RequestHead::new(method, &canonical, headers).expect("the canonical spelling decodes");
    if head.query.iter().all(|(name, _)| name != "X-Amz-Signature") && head.query.iter().count() < 2 {
        assert_eq!(route(&again, &domains), routed);
    }
    let Ok(routed) = routed else { return };
    assert_eq!(routed.bucket.is_empty(), routed.operation == Operation::ListBuckets);
    assert!(routed.bucket.is_empty() || is_bucket_name(&routed.bucket));
    assert!(routed.key.len() <= KEY_BYTES_MAX && head.path.ends_with(&routed.key));
    // A plain write is none with a subresource, whether that is known or not.
    if routed.operation == Operation::PutObject {
        for name in ["retention", "legal-hold", "renameObject", "uploads"] {
            let separator = if target.contains('?') { '&' } else { '?' };
            let target = format!("{target}{separator}{}", encode_component(name));
            if let Ok(head) = RequestHead::new(method, &target, head.headers.clone()) {
                let is_plain = |operation| operation == Operation::PutObject;
                assert!(!route(&head, &domains).is_ok_and(|routed| is_plain(routed.operation)), "{name}");
            }
        }
    }
});
