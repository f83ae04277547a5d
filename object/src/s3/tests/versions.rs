//! Versions, tags, and configurations of buckets, as clients see them.

use super::*;

fn versioned() -> Server {
    let server = Server::new();
    let state = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    assert_eq!(server.ask("PUT", "/bucket?versioning", &[], state).status, 200);
    server
}

fn version(reply: &Reply) -> String {
    reply.header("x-amz-version-id").expect("a version").to_owned()
}

#[test]
fn versions_of_a_key() {
    let server = versioned();
    assert_eq!(server.ask("GET", "/bucket?versioning", &[], b"").xml().text_of("Status"), Some("Enabled"));
    let (one, two) = (version(&server.put("/bucket/key", b"one")), version(&server.put("/bucket/key", b"two")));
    let get = |version: &str| server.ask("GET", &format!("/bucket/key?versionId={version}"), &[], b"");
    assert_eq!((get(&one).body, version(&get(&one))), (b"one".to_vec(), one.clone()));
    let gone = server.ask("DELETE", "/bucket/key", &[], b"");
    assert_eq!((gone.status, gone.header("x-amz-delete-marker")), (204, Some("true")));
    let marker = version(&gone);
    let missing = server.ask("GET", "/bucket/key", &[], b"");
    assert_eq!((missing.outcome(), missing.header("x-amz-delete-marker")), (code(404, "NoSuchKey"), Some("true")));
    let head = server.ask("HEAD", "/bucket/key", &[], b"");
    assert_eq!((head.status, version(&head)), (404, marker.clone()));
    assert_eq!((get(&marker).outcome(), get(&marker).header("allow")), (code(405, "MethodNotAllowed"), Some("DELETE")));
    assert_eq!(get("null").outcome(), code(404, "NoSuchVersion"));
    assert_eq!(get("7").outcome(), code(400, "InvalidArgument"));
    let list = |query: &str| server.ask("GET", &format!("/bucket?versions{query}"), &[], b"").xml();
    let told = |list: &Element| -> Vec<(String, String, String)> {
        let of = |child: &Element, name: &str| child.text_of(name).unwrap_or_default().to_owned();
        let lines = list.children.iter().filter(|child| matches!(child.name.as_str(), "Version" | "DeleteMarker"));
        lines.map(|line| (line.name.clone(), of(line, "VersionId"), of(line, "IsLatest"))).collect()
    };
    let line = |kind: &str, version: &str, latest: bool| (kind.to_owned(), version.to_owned(), latest.to_string());
    let all = [line("DeleteMarker", &marker, true), line("Version", &two, false), line("Version", &one, false)];
    assert_eq!(told(&list("")), all);
    let first = list("&max-keys=1");
    assert_eq!(
        (first.text_of("NextKeyMarker"), first.text_of("NextVersionIdMarker")),
        (Some("key"), Some(marker.as_str()))
    );
    assert_eq!(told(&list(&format!("&key-marker=key&version-id-marker={marker}"))), all[1..]);
    assert_eq!(
        server.outcome("GET", "/bucket?versions&version-id-marker=null", &[], b""),
        code(400, "InvalidArgument")
    );
    let copy = [("x-amz-copy-source", format!("/bucket/key?versionId={one}"))];
    let copy = copy.each_ref().map(|(name, value)| (*name, value.as_str()));
    let copied = server.ask("PUT", "/bucket/key", &copy, b"");
    assert_eq!((copied.status, copied.header("x-amz-copy-source-version-id")), (200, Some(one.as_str())));
    assert_eq!(server.ask("GET", "/bucket/key", &[], b"").body, b"one");
    let of_marker = [("x-amz-copy-source", format!("/bucket/key?versionId={marker}"))];
    let of_marker = of_marker.each_ref().map(|(name, value)| (*name, value.as_str()));
    assert_eq!(server.outcome("PUT", "/bucket/key", &of_marker, b""), code(400, "InvalidRequest"));
}

#[test]
fn many_versions_are_deleted_at_once() {
    let server = versioned();
    let (one, two) = (version(&server.put("/bucket/key", b"one")), version(&server.put("/bucket/key", b"two")));
    let text = format!(
        "<Delete><Object><Key>key</Key><VersionId>{one}</VersionId></Object><Object><Key>key</Key></Object>\
         <Object><Key>key</Key><VersionId>x</VersionId></Object></Delete>"
    );
    let digest = to_base64(&sha256(text.as_bytes()));
    let reply = server.ask("POST", "/bucket?delete", &[("x-amz-checksum-sha256", &digest)], text.as_bytes()).xml();
    let [first, second, third] = &reply.children[..] else { panic!("three results: {reply:?}") };
    assert_eq!((first.text_of("VersionId"), first.text_of("DeleteMarker")), (Some(one.as_str()), None));
    assert_eq!(second.text_of("DeleteMarker"), Some("true"));
    assert_eq!(third.text_of("Code"), Some("NoSuchVersion"));
    let marker = second.text_of("DeleteMarkerVersionId").expect("a version").to_owned();
    let removed = server.ask("DELETE", &format!("/bucket/key?versionId={marker}"), &[], b"");
    assert_eq!((removed.header("x-amz-delete-marker"), version(&removed)), (Some("true"), marker));
    assert_eq!(version(&server.ask("HEAD", "/bucket/key", &[], b"")), two);
    assert_eq!(server.outcome("DELETE", "/bucket", &[], b""), code(409, "BucketNotEmpty"));
    assert_eq!(server.ask("DELETE", &format!("/bucket/key?versionId={two}"), &[], b"").status, 204);
    assert_eq!(server.ask("DELETE", "/bucket", &[], b"").status, 204);
}

#[test]
fn tags_of_versions_and_buckets() {
    let server = versioned();
    let one = version(&server.put("/bucket/key", b"one"));
    server.put("/bucket/key", b"two");
    let tags = |pairs: &[(&str, &str)]| {
        let tag = |(name, value): &(&str, &str)| format!("<Tag><Key>{name}</Key><Value>{value}</Value></Tag>");
        format!("<Tagging><TagSet>{}</TagSet></Tagging>", pairs.iter().map(tag).collect::<String>()).into_bytes()
    };
    let of_one = format!("/bucket/key?tagging&versionId={one}");
    assert_eq!(server.outcome("PUT", &of_one, &[], &tags(&[("b", "1 &amp; 2"), ("a", "+=%")])), code(200, ""));
    let read = |target: &str| -> Vec<(String, String)> {
        let xml = server.ask("GET", target, &[], b"").xml();
        let text = |tag: &Element, name: &str| tag.text_of(name).unwrap_or_default().to_owned();
        let set = xml.child("TagSet").expect("a set");
        set.children.iter().map(|tag| (text(tag, "Key"), text(tag, "Value"))).collect()
    };
    assert_eq!(read(&of_one), [("a".to_owned(), "+=%".to_owned()), ("b".to_owned(), "1 & 2".to_owned())]);
    assert_eq!(read("/bucket/key?tagging"), []);
    let head = server.ask("HEAD", &format!("/bucket/key?versionId={one}"), &[], b"");
    assert_eq!(head.header("x-amz-tagging-count"), Some("2"));
    assert_eq!(server.outcome("DELETE", &of_one, &[], b""), code(204, ""));
    assert_eq!(read(&of_one), []);
    let many: Vec<(String, &str)> = (0..11).map(|number| (format!("n{number}"), "v")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    assert_eq!(server.outcome("PUT", "/bucket/key?tagging", &[], &tags(&many)), code(400, "InvalidTag"));
    assert_eq!(server.outcome("PUT", "/bucket/none?tagging", &[], &tags(&many[..1])), code(404, "NoSuchKey"));
    assert_eq!(server.outcome("GET", "/bucket?tagging", &[], b""), code(404, "NoSuchTagSet"));
    assert_eq!(server.ask("PUT", "/bucket?tagging", &[], &tags(&many)).status, 204);
    assert_eq!(read("/bucket?tagging").len(), 11);
    assert_eq!(server.ask("DELETE", "/bucket?tagging", &[], b"").status, 204);
    assert_eq!(server.outcome("GET", "/bucket?tagging", &[], b""), code(404, "NoSuchTagSet"));
}

#[test]
fn pages_of_other_origins() {
    let server = Server::new();
    let rules = b"<CORSConfiguration><CORSRule><AllowedOrigin>http://*.example</AllowedOrigin><AllowedMethod>GET</AllowedMethod>\
        <ExposeHeader>ETag</ExposeHeader></CORSRule></CORSConfiguration>";
    let asks = [("origin", "http://a.example"), ("access-control-request-method", "GET")];
    let nobody = server.by(None);
    assert_eq!(nobody.outcome("OPTIONS", "/bucket/key", &asks, b""), code(403, "AccessForbidden"));
    assert_eq!(server.ask("PUT", "/bucket?cors", &[], rules).status, 200);
    assert_eq!(server.ask("GET", "/bucket?cors", &[], b"").xml().children.len(), 1);
    let told = nobody.ask("OPTIONS", "/bucket/key", &asks, b"");
    assert_eq!((told.status, told.header("access-control-allow-origin")), (200, Some("http://a.example")));
    assert_eq!(nobody.outcome("OPTIONS", "/bucket/key", &asks[1..], b""), code(400, "BadRequest"));
    // Also an error is told to the page.
    let missing = server.ask("GET", "/bucket/none", &asks[..1], b"");
    assert_eq!((missing.status, missing.header("access-control-expose-headers")), (404, Some("ETag")));
    assert_eq!(server.ask("GET", "/bucket", &[], b"").header("access-control-allow-origin"), None);
    assert_eq!(server.ask("DELETE", "/bucket?cors", &[], b"").status, 204);
    assert_eq!(server.outcome("GET", "/bucket?cors", &[], b""), code(404, "NoSuchCORSConfiguration"));
}
