//! Parts of objects and of uploads, and lists of uploads.

use super::*;

/// Begins an upload and gives its id.
fn begin(server: &Server, key: &str, headers: &[(&str, &str)]) -> String {
    let begun = server.ask("POST", &format!("/bucket/{key}?uploads"), headers, b"");
    begun.xml().text_of("UploadId").expect("an id").to_owned()
}

/// Puts a part and gives its entity tag.
fn put_part(server: &Server, target: &str, number: u32, body: &[u8]) -> String {
    let part = server.ask("PUT", &format!("{target}&partNumber={number}"), &[], body);
    part.header("etag").expect("an etag").trim_matches('"').to_owned()
}

/// A server with an object of two parts, of 5 MiB and of 7 bytes.
fn setup() -> Server {
    let server = Server::new();
    let target = format!("/bucket/key?uploadId={}", begin(&server, "key", &[]));
    let one = put_part(&server, &target, 1, &vec![1; PART_BYTES_MIN as usize]);
    let two = put_part(&server, &target, 2, b"the end");
    let done = server.ask("POST", &target, &[], &completion(&[(1, &one), (2, &two)]));
    assert_eq!(done.outcome(), code(200, ""));
    server
}

#[test]
fn parts_of_an_object_are_read_as_they_were_put() {
    let server = setup();
    server.put("/bucket/empty", b"");
    server.put("/bucket/one", b"123456789");
    for (target, range, status, length, told, parts) in [
        ("key", None, 200, "5242887", None, None),
        ("key?partNumber=1", None, 206, "5242880", Some("bytes 0-5242879/5242887"), Some("2")),
        ("key?partNumber=2", None, 206, "7", Some("bytes 5242880-5242886/5242887"), Some("2")),
        ("one", None, 200, "9", None, None),
        ("one", Some("bytes=2-"), 206, "7", Some("bytes 2-8/9"), None),
        ("one", Some("bytes=2-4"), 206, "3", Some("bytes 2-4/9"), None),
        ("one?partNumber=1", None, 206, "9", Some("bytes 0-8/9"), None),
        ("empty", None, 200, "0", None, None),
        ("empty?partNumber=1", None, 200, "0", None, None),
    ] {
        let headers: Vec<_> = range.map(|range| ("range", range)).into_iter().collect();
        for method in ["GET", "HEAD"] {
            let reply = server.ask(method, &format!("/bucket/{target}"), &headers, b"");
            let header = |name| reply.header(name);
            assert_eq!((reply.status, header("content-length")), (status, Some(length)), "{method} {target} {range:?}");
            assert_eq!(header("content-range"), told, "{method} {target} {range:?}");
            assert_eq!(header("x-amz-mp-parts-count"), parts, "{method} {target} {range:?}");
        }
    }
    assert_eq!(server.ask("GET", "/bucket/key?partNumber=2", &[], b"").body, b"the end");
}

#[test]
fn checksums_are_told_of_whole_objects_to_whoever_asks() {
    let server = Server::new();
    server.ask("PUT", "/bucket/key", &[("x-amz-checksum-crc32", "y/Q5Jg==")], b"123456789");
    let (mode, range) = (("x-amz-checksum-mode", "ENABLED"), ("range", "bytes=2-"));
    for (headers, expected) in [
        (&[mode][..], Some("y/Q5Jg==")),
        (&[], None),
        (&[mode, range], None),
        (&[range], None),
        (&[mode, ("range", "bytes=0-")], Some("y/Q5Jg==")),
    ] {
        for method in ["GET", "HEAD"] {
            let reply = server.ask(method, "/bucket/key", headers, b"");
            assert_eq!(reply.header("x-amz-checksum-crc32"), expected, "{method} {headers:?}");
        }
    }
}

#[test]
fn attributes_tell_the_parts_in_pages() {
    let server = setup();
    let (max, marker) = ("x-amz-max-parts", "x-amz-part-number-marker");
    for (headers, expected, numbers) in [
        (&[][..], ["2", "0", "2", "1000", "false"], &[("1", "5242880"), ("2", "7")][..]),
        (&[(max, "1")], ["2", "0", "1", "1", "true"], &[("1", "5242880")]),
        (&[(max, "2000")], ["2", "0", "2", "1000", "false"], &[("1", "5242880"), ("2", "7")]),
        (&[(marker, "1")], ["2", "1", "2", "1000", "false"], &[("2", "7")]),
        (&[(marker, "2")], ["2", "2", "2", "1000", "false"], &[]),
    ] {
        let headers = [&[("x-amz-object-attributes", "ObjectParts")], headers].concat();
        let told = server.ask("GET", "/bucket/key?attributes", &headers, b"").xml();
        let names = ["PartsCount", "PartNumberMarker", "NextPartNumberMarker", "MaxParts", "IsTruncated"];
        let parts = told.child("ObjectParts").expect("parts");
        assert_eq!(names.map(|name| parts.text_of(name).unwrap_or_default()), expected, "{headers:?}");
        let lines = parts.children.iter().filter(|child| child.name == "Part");
        let lines: Vec<_> = lines.filter_map(|part| part.text_of("PartNumber").zip(part.text_of("Size"))).collect();
        assert_eq!(lines, numbers, "{headers:?}");
    }
    let one = [("x-amz-object-attributes", "ObjectSize")];
    let told = server.ask("GET", "/bucket/key?attributes", &one, b"").xml();
    let names: Vec<_> = told.children.iter().map(|child| child.name.as_str()).collect();
    assert_eq!(names, ["ObjectSize"], "only what was asked for is told");
    for wanted in ["", " , ", "ObjectSize,Color"] {
        let outcome = server.outcome("GET", "/bucket/key?attributes", &[("x-amz-object-attributes", wanted)], b"");
        assert_eq!(outcome, code(400, "InvalidArgument"), "{wanted:?}");
    }
}

#[test]
fn parts_of_an_upload_are_listed_in_pages() {
    let server = Server::new();
    let target = format!("/bucket/key?uploadId={}", begin(&server, "key", &[("x-amz-checksum-algorithm", "CRC32")]));
    (1..=3).for_each(|number| drop(put_part(&server, &target, number, b"x")));
    for (query, numbers, next, is_truncated) in [
        ("", &["1", "2", "3"][..], "3", "false"),
        ("&max-parts=3", &["1", "2", "3"], "3", "false"),
        ("&max-parts=2", &["1", "2"], "2", "true"),
        ("&part-number-marker=1", &["2", "3"], "3", "false"),
        ("&part-number-marker=1&max-parts=1", &["2"], "2", "true"),
        ("&part-number-marker=3", &[], "0", "false"),
    ] {
        let list = server.ask("GET", &format!("{target}{query}"), &[], b"").xml();
        let parts = list.children.iter().filter(|child| child.name == "Part");
        assert_eq!(parts.filter_map(|part| part.text_of("PartNumber")).collect::<Vec<_>>(), numbers, "{query}");
        let told = (list.text_of("NextPartNumberMarker"), list.text_of("IsTruncated"));
        assert_eq!(told, (Some(next), Some(is_truncated)), "{query}");
        let chosen = (list.text_of("ChecksumAlgorithm"), list.text_of("ChecksumType"));
        assert_eq!(chosen, (Some("CRC32"), Some("COMPOSITE")));
    }
}

#[test]
fn a_completion_is_of_parts_that_are_long_enough_and_have_the_checksums_it_names() {
    let server = Server::new();
    let target = format!("/bucket/key?uploadId={}", begin(&server, "key", &[("x-amz-checksum-algorithm", "CRC32")]));
    let (one, two) = (put_part(&server, &target, 1, b"123456789"), put_part(&server, &target, 2, b"x"));
    let both = completion(&[(1, &one), (2, &two)]);
    assert_eq!(server.outcome("POST", &target, &[], &both), code(400, "EntityTooSmall"));
    let complete = |checksum: &str| {
        let part = format!("<PartNumber>1</PartNumber><ETag>{one}</ETag><ChecksumCRC32>{checksum}</ChecksumCRC32>");
        let text = format!("<CompleteMultipartUpload><Part>{part}</Part></CompleteMultipartUpload>");
        server.outcome("POST", &target, &[], text.as_bytes())
    };
    assert_eq!((complete("AAAAAA=="), complete("y/Q5Jg==")), (code(400, "InvalidPart"), code(200, "")));
}

#[test]
fn uploads_are_listed_by_prefixes_delimiters_and_markers() {
    let server = Server::new();
    let keys = ["a/1", "a/x/2", "b", "b", "c/1", "c/2"];
    let ids: Vec<String> = keys.iter().map(|key| begin(&server, key, &[])).collect();
    let list = |query: &str| server.ask("GET", &format!("/bucket?uploads{query}"), &[], b"").xml();
    let behind = format!("&key-marker=b&upload-id-marker={}", ids[2]);
    for (query, expected, is_truncated) in [
        ("", &keys[..], "false"),
        ("&prefix=a", &keys[..2], "false"),
        ("&delimiter=%2F", &["a/", "b", "b", "c/"], "false"),
        ("&delimiter=%2F&prefix=a%2F", &["a/1", "a/x/"], "false"),
        ("&delimiter=%2F&key-marker=a%2F", &["b", "b", "c/"], "false"),
        ("&key-marker=a%2F1", &keys[1..], "false"),
        ("&key-marker=b", &keys[4..], "false"),
        (&behind, &keys[3..], "false"),
        ("&key-marker=a%2F1&prefix=c", &keys[4..], "false"),
        ("&max-uploads=6", &keys[..], "false"),
        ("&max-uploads=5", &keys[..5], "true"),
        ("&max-uploads=0", &[], "false"),
    ] {
        let page = list(query);
        assert_eq!((names(&page), page.text_of("IsTruncated")), (owned(expected), Some(is_truncated)), "{query}");
    }
    // Page by page.
    for (query, expected) in [("", &keys[..]), ("&delimiter=%2F", &["a/", "b", "b", "c/"])] {
        for limit in 1..=3 {
            let (mut markers, mut seen) = (String::new(), Vec::new());
            while seen.len() < expected.len() {
                let page = list(&format!("{query}&max-uploads={limit}{markers}"));
                seen.extend(names(&page));
                let Some(key) = page.text_of("NextKeyMarker") else { break };
                let upload = page.text_of("NextUploadIdMarker").unwrap_or_default();
                markers = format!("&key-marker={}&upload-id-marker={upload}", encode_component(key));
            }
            assert_eq!(seen, expected, "{query} {limit}");
        }
    }
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn versions_are_listed_by_prefixes_and_delimiters() {
    let server = Server::new();
    ["a/1", "a/2", "b", "c/1", "d/1"].iter().for_each(|key| drop(server.put(&format!("/bucket/{key}"), b"x")));
    for (query, expected) in [
        ("", &["a/1", "a/2", "b", "c/1", "d/1"][..]),
        ("&delimiter=%2F", &["b", "a/", "c/", "d/"]),
        ("&delimiter=%2F&prefix=a%2F", &["a/1", "a/2"]),
        ("&delimiter=%2F&key-marker=a%2F", &["b", "c/", "d/"]),
        ("&delimiter=%2F&key-marker=b", &["c/", "d/"]),
    ] {
        let page = server.ask("GET", &format!("/bucket?versions{query}"), &[], b"").xml();
        assert_eq!(names(&page), owned(expected), "{query}");
    }
}
