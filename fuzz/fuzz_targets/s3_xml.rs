//! XML of S3: any bytes are read within the limits or refused; what is read, written again, is read as the same.
#![no_main]

use ashlar_object::s3::date::{iso8601, parse_iso8601};
use ashlar_object::s3::document::{check_bucket_configuration, decode_completion, decode_deletion};
use ashlar_object::s3::encryption::DefaultEncryption;
use ashlar_object::s3::lifecycle::{decode_lifecycle, write_lifecycle};
use ashlar_object::s3::xml::{DEPTH_MAX, ELEMENTS_MAX, Element, XmlWriter};
use libfuzzer_sys::fuzz_target;

/// Elements of a tree, and how deep it is.
fn measure(element: &Element) -> (usize, usize) {
    let inside = element.children.iter().map(measure);
    inside.fold((1, 1), |(count, depth), (more, below)| (count + more, depth.max(below + 1)))
}

/// The texts of a tree, in order, as far as they stand in leaves.
fn texts<'a>(element: &'a Element, found: &mut Vec<&'a str>) {
    if element.children.is_empty() {
        found.push(&element.text);
    }
    element.children.iter().for_each(|child| texts(child, found));
}

fuzz_target!(|bytes: &[u8]| {
    let _ = (decode_completion(bytes), decode_deletion(bytes), check_bucket_configuration(bytes));
    if let Ok(rules) = decode_lifecycle(bytes) {
        assert_eq!(decode_lifecycle(write_lifecycle(&rules).finish().as_bytes()), Ok(rules));
    }
    if let Ok(default) = DefaultEncryption::decode(bytes) {
        assert_eq!(DefaultEncryption::decode(default.write().finish().as_bytes()), Ok(default));
    }
    // A date of a document, in any spelling, is one that is written and read as the same.
    if let Some(ms) = core::str::from_utf8(bytes).ok().and_then(parse_iso8601) {
        assert_eq!(parse_iso8601(&iso8601(ms)), Some(ms));
    }
    let Ok(root) = Element::decode(bytes) else { return };
    let (count, depth) = measure(&root);
    assert!(count <= ELEMENTS_MAX && depth <= DEPTH_MAX);
    let mut found = Vec::new();
    texts(&root, &mut found);
    let mut xml = XmlWriter::new("Texts");
    found.iter().for_each(|text| xml.text("Text", text));
    let again = Element::decode(xml.finish().as_bytes()).expect("what is written is read");
    assert!(again.children.iter().map(|child| child.text.as_str()).eq(found));
});
