//! Tags: what no client may set, in each way to set some.

use super::*;

/// The name of a tag that only S3 itself may set.
const OF_THE_SYSTEM: &str = "aws:a";

fn tagging(name: &str) -> String {
    format!("<Tagging><TagSet><Tag><Key>{name}</Key><Value>1</Value></Tag></TagSet></Tagging>")
}

fn form(tagging: &str) -> String {
    let field =
        |name: &str, value: &str| format!("--xx\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
    let file = "--xx\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\nx\r\n--xx--\r\n";
    [field("key", "form"), field("tagging", tagging), file.to_owned()].concat()
}

#[test]
fn tags_of_the_system_are_refused_in_every_way_to_set_some() {
    let server = Server::new();
    assert_eq!(server.ask("PUT", "/bucket?acl", &[("x-amz-acl", "public-read-write")], b"").status, 200);
    server.put("/bucket/key", b"x");
    let set = |name: &str| {
        let header = format!("{}=1", encode_component(name));
        let header = ("x-amz-tagging", header.as_str());
        let copy = [("x-amz-copy-source", "/bucket/key"), ("x-amz-tagging-directive", "REPLACE"), header];
        let of_a_form = [("content-type", "multipart/form-data; boundary=xx")];
        let document = tagging(name);
        [
            server.outcome("PUT", "/bucket/put", &[header], b"x"),
            server.outcome("PUT", "/bucket/copy", &copy, b""),
            server.outcome(
                "PUT",
                "/bucket/copy",
                &[&copy[..], &[("x-amz-metadata-directive", "REPLACE")]].concat(),
                b"",
            ),
            server.outcome("POST", "/bucket/upload?uploads", &[header], b""),
            server.outcome("PUT", "/bucket/key?tagging", &[], document.as_bytes()),
            server.outcome("PUT", "/bucket?tagging", &[], document.as_bytes()),
            server.by(None).outcome("POST", "/bucket", &of_a_form, form(&document).as_bytes()),
        ]
    };
    assert!(set("aws-a").iter().all(|(status, _)| (200..300).contains(status)), "{:?}", set("aws-a"));
    for outcome in set(OF_THE_SYSTEM) {
        assert_eq!(outcome, code(400, "InvalidTag"));
    }
    let kept = String::from_utf8(server.ask("GET", "/bucket/key?tagging", &[], b"").body).unwrap();
    assert!(kept.contains("<Key>aws-a</Key>"), "what was refused has changed nothing: {kept}");
}
