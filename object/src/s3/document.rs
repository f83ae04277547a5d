//! Documents that clients send: completions, lists of keys to delete, the configuration of a bucket.

use super::checksum::Algorithm;
use super::error::{Code, S3Error};
use super::xml::Element;
use crate::api::{PAGE_MAX, PART_NUMBER_MAX, Versioning};

/// One part of a completion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompletedPart {
    /// Its number.
    pub number: u32,
    /// Its entity tag, without quotes.
    pub etag: String,
    /// The checksums that the client saw of it, in Base64.
    pub checksums: Vec<(Algorithm, String)>,
}

/// The parts of a `CompleteMultipartUpload`.
///
/// # Errors
/// [`Code::MalformedXML`]: it is not such a document, or has no part, too many parts or impossible ones.
pub fn decode_completion(bytes: &[u8]) -> Result<Vec<CompletedPart>, S3Error> {
    let root = decode(bytes, "CompleteMultipartUpload")?;
    let parts: Vec<_> =
        root.children.iter().filter(|child| child.name == "Part").map(decode_part).collect::<Result<_, _>>()?;
    if parts.is_empty() || parts.len() > PART_NUMBER_MAX as usize {
        return Err(Code::MalformedXML.into());
    }
    Ok(parts)
}

fn decode_part(part: &Element) -> Result<CompletedPart, S3Error> {
    let number = part.text_of("PartNumber").and_then(|text| text.trim().parse().ok());
    let number = number.filter(|number| (1..=PART_NUMBER_MAX).contains(number)).ok_or(Code::MalformedXML)?;
    let etag = part.text_of("ETag").ok_or(Code::MalformedXML)?;
    let checksum = |algorithm: Algorithm| Some((algorithm, part.text_of(algorithm.element())?.trim().to_owned()));
    Ok(CompletedPart {
        number,
        etag: unquoted(etag).to_owned(),
        checksums: Algorithm::ALL.into_iter().filter_map(checksum).collect(),
    })
}

/// An entity tag without the quotes around it.
#[must_use]
pub fn unquoted(etag: &str) -> &str {
    let etag = etag.trim();
    etag.strip_prefix('"').and_then(|etag| etag.strip_suffix('"')).unwrap_or(etag)
}

/// One object to delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoomedObject {
    /// Its key.
    pub key: String,
    /// The version that is meant, if one is named.
    pub version: Option<String>,
    /// Deleted only if it has this entity tag.
    pub etag: Option<String>,
}

/// Keys to delete, and whether only failures are answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deletion {
    /// The objects.
    pub objects: Vec<DoomedObject>,
    /// Only failures are answered.
    pub is_quiet: bool,
}

/// The content of a `DeleteObjects`.
///
/// # Errors
/// [`Code::MalformedXML`]: it is not such a document, or has no key or more than [`PAGE_MAX`];
/// [`Code::NotImplemented`]: a condition that is not there.
pub fn decode_deletion(bytes: &[u8]) -> Result<Deletion, S3Error> {
    let root = decode(bytes, "Delete")?;
    let objects = root.children.iter().filter(|child| child.name == "Object");
    let objects: Vec<_> = objects.map(decode_doomed).collect::<Result<_, _>>()?;
    if objects.is_empty() || objects.len() > PAGE_MAX {
        return Err(Code::MalformedXML.into());
    }
    Ok(Deletion { objects, is_quiet: root.text_of("Quiet").is_some_and(|text| text.trim() == "true") })
}

fn decode_doomed(object: &Element) -> Result<DoomedObject, S3Error> {
    if object.child("Size").is_some() || object.child("LastModifiedTime").is_some() {
        return Err(Code::NotImplemented.into());
    }
    Ok(DoomedObject {
        key: object.text_of("Key").filter(|key| !key.is_empty()).ok_or(Code::MalformedXML)?.to_owned(),
        version: object.text_of("VersionId").map(str::to_owned),
        etag: object.text_of("ETag").map(|etag| unquoted(etag).to_owned()),
    })
}

/// The state that a `PutBucketVersioning` asks for.
///
/// # Errors
/// [`Code::MalformedXML`], [`Code::NotImplemented`]: deletions that need a second factor.
pub fn decode_versioning(bytes: &[u8]) -> Result<Versioning, S3Error> {
    let root = decode(bytes, "VersioningConfiguration")?;
    let needs_factor = root.text_of("MfaDelete").or(root.text_of("MFADelete")).is_some_and(|text| text != "Disabled");
    if needs_factor {
        return Err(Code::NotImplemented.into());
    }
    match root.text_of("Status") {
        Some("Enabled") => Ok(Versioning::Enabled),
        Some("Suspended") => Ok(Versioning::Suspended),
        _ => Err(Code::MalformedXML.into()),
    }
}

/// The tags of a `PutObjectTagging` or `PutBucketTagging`: names and values.
///
/// # Errors
/// [`Code::MalformedXML`], [`Code::InvalidTag`]: too many, too long, or one name twice.
pub fn decode_tagging(bytes: &[u8], count_max: usize) -> Result<Vec<(String, String)>, S3Error> {
    let root = decode(bytes, "Tagging")?;
    let set = root.child("TagSet").ok_or(Code::MalformedXML)?;
    let tag = |tag: &Element| Some((tag.text_of("Key")?.to_owned(), tag.text_of("Value")?.to_owned()));
    let tags: Option<Vec<_>> = set.children.iter().map(tag).collect();
    let tags = tags.ok_or(Code::MalformedXML)?;
    check_tags(tags.iter().map(|(name, value)| (name.as_str(), value.as_str())), count_max)?;
    Ok(tags)
}

/// Whether tags keep the limits of S3: names of 1 to 128 characters, none twice, none that begins with `aws:`, values of up to 256.
///
/// # Errors
/// [`Code::InvalidTag`].
pub fn check_tags<'a>(tags: impl Iterator<Item = (&'a str, &'a str)>, count_max: usize) -> Result<(), S3Error> {
    let mut seen = Vec::new();
    for (name, value) in tags {
        if name.is_empty() || name.chars().count() > 128 || value.chars().count() > 256 {
            return Err(Code::InvalidTag.into());
        }
        if name.starts_with("aws:") {
            return Err(Code::InvalidTag.because("System tags cannot be added/updated by requester"));
        }
        if seen.contains(&name) {
            return Err(Code::InvalidTag.because("Cannot provide multiple Tags with the same key"));
        }
        if seen.len() == count_max {
            return Err(Code::InvalidTag.because("There are more tags than there may be"));
        }
        seen.push(name);
    }
    Ok(())
}

/// Checks the document of a `CreateBucket`, which may be empty. A location may be named, whichever it is: there is one.
///
/// # Errors
/// [`Code::MalformedXML`], [`Code::NotImplemented`] for a bucket of another type or with tags.
pub fn check_bucket_configuration(bytes: &[u8]) -> Result<(), S3Error> {
    if bytes.is_empty() {
        return Ok(());
    }
    let root = decode(bytes, "CreateBucketConfiguration")?;
    let is_known = |child: &Element| child.name == "LocationConstraint";
    if root.children.iter().all(is_known) { Ok(()) } else { Err(Code::NotImplemented.into()) }
}

/// The flag that a text writes.
///
/// # Errors
/// [`Code::MalformedXML`]: it is none.
pub(super) fn check_flag(text: &str) -> Result<bool, S3Error> {
    match text.trim() {
        "true" | "TRUE" => Ok(true),
        "false" | "FALSE" => Ok(false),
        _ => Err(Code::MalformedXML.into()),
    }
}

/// A document with this root.
pub(super) fn decode(bytes: &[u8], root: &str) -> Result<Element, S3Error> {
    let element = Element::decode(bytes).map_err(|_| Code::MalformedXML)?;
    if element.name == root { Ok(element) } else { Err(Code::MalformedXML.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions() {
        let text = "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
            <Part><ETag>&quot;aa&quot;</ETag><PartNumber>1</PartNumber><ChecksumCRC32>y/Q5Jg==</ChecksumCRC32></Part>\
            <Part><PartNumber>2</PartNumber><ETag>bb</ETag></Part></CompleteMultipartUpload>";
        let parts = decode_completion(text.as_bytes()).expect("a completion");
        assert_eq!((parts[0].number, parts[0].etag.as_str()), (1, "aa"));
        assert_eq!(parts[0].checksums, [(Algorithm::Crc32, "y/Q5Jg==".to_owned())]);
        assert_eq!((parts[1].number, parts[1].etag.as_str(), parts[1].checksums.len()), (2, "bb", 0));
        let wrong = ["<A/>", "<CompleteMultipartUpload/>", "x"].map(str::to_owned).into_iter().chain(
            ["<ETag>a</ETag>", "<PartNumber>1</PartNumber>", "<PartNumber>0</PartNumber><ETag>a</ETag>"]
                .map(|part| format!("<CompleteMultipartUpload><Part>{part}</Part></CompleteMultipartUpload>")),
        );
        for text in wrong {
            let result = decode_completion(text.as_bytes()).map_err(|error| error.code);
            assert_eq!(result, Err(Code::MalformedXML), "{text}");
        }
        let many = |count: u32| {
            let etag = "0".repeat(32);
            let part = |number| format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>");
            let parts: String = (0..count).map(|index| part(index % PART_NUMBER_MAX + 1)).collect();
            let text = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>");
            decode_completion(text.as_bytes()).map(|parts| parts.len()).map_err(|error| error.code)
        };
        assert_eq!((many(10_000), many(10_001)), (Ok(10_000), Err(Code::MalformedXML)));
        let numbered = |number: &str| {
            let part = format!("<Part><PartNumber>{number}</PartNumber><ETag>a</ETag></Part>");
            let text = format!("<CompleteMultipartUpload>{part}</CompleteMultipartUpload>");
            decode_completion(text.as_bytes()).map(|parts| parts[0].number).map_err(|error| error.code)
        };
        assert_eq!((numbered("10000"), numbered("10001")), (Ok(10_000), Err(Code::MalformedXML)));
    }

    #[test]
    fn deletions() {
        let text = "<Delete><Object><Key>a b</Key></Object><Object><Key>c</Key><VersionId>null</VersionId></Object><Quiet>true</Quiet></Delete>";
        let deletion = decode_deletion(text.as_bytes()).expect("a deletion");
        assert!(deletion.is_quiet && deletion.objects[0].key == "a b" && deletion.objects[0].version.is_none());
        assert_eq!(deletion.objects[1].version.as_deref(), Some("null"));
        let many = |count: usize| format!("<Delete>{}</Delete>", "<Object><Key>k</Key></Object>".repeat(count));
        assert!(decode_deletion(many(PAGE_MAX).as_bytes()).is_ok());
        for text in [many(PAGE_MAX + 1), many(0), "<Delete><Object/></Delete>".to_owned()] {
            assert_eq!(decode_deletion(text.as_bytes()).map_err(|error| error.code), Err(Code::MalformedXML));
        }
        for condition in ["Size", "LastModifiedTime"] {
            let text = format!("<Delete><Object><Key>k</Key><{condition}>1</{condition}></Object></Delete>");
            let code = decode_deletion(text.as_bytes()).map_err(|error| error.code);
            assert_eq!(code, Err(Code::NotImplemented), "nothing is deleted without its condition: {condition}");
        }
        assert!(!decode_deletion(many(1).as_bytes()).expect("a deletion").is_quiet);
    }

    #[test]
    fn states_of_versioning() {
        let state = |inside: &str| {
            let text = format!("<VersioningConfiguration>{inside}</VersioningConfiguration>");
            decode_versioning(text.as_bytes()).map_err(|error| error.code)
        };
        assert_eq!(state("<Status>Enabled</Status>"), Ok(Versioning::Enabled));
        assert_eq!(state("<Status>Suspended</Status><MfaDelete>Disabled</MfaDelete>"), Ok(Versioning::Suspended));
        assert_eq!(state("<Status>Enabled</Status><MfaDelete>Enabled</MfaDelete>"), Err(Code::NotImplemented));
        for inside in ["", "<Status/>", "<Status>Never</Status>", "<Status>enabled</Status>"] {
            assert_eq!(state(inside), Err(Code::MalformedXML), "{inside}");
        }
    }

    #[test]
    fn sets_of_tags() {
        let read = |tags: &[(&str, &str)]| {
            let tag = |(name, value): &(&str, &str)| format!("<Tag><Key>{name}</Key><Value>{value}</Value></Tag>");
            let tags: String = tags.iter().map(tag).collect();
            let text = format!("<Tagging><TagSet>{tags}</TagSet></Tagging>");
            decode_tagging(text.as_bytes(), 2).map_err(|error| error.code)
        };
        assert_eq!(read(&[]), Ok(vec![]));
        assert_eq!(read(&[("a", "1"), ("ä", "")]), Ok(vec![("a".into(), "1".into()), ("ä".into(), String::new())]));
        let (name, value) = ("ä".repeat(128), "v".repeat(256));
        assert!(read(&[(&name, &value)]).is_ok());
        let (long_name, long_value) = ("n".repeat(129), "v".repeat(257));
        for wrong in [
            &[("a", "1"), ("a", "2")][..],
            &[("a", "1"), ("b", "2"), ("c", "3")],
            &[("", "1")],
            &[(&long_name, "")],
            &[("a", &long_value)],
        ] {
            assert_eq!(read(wrong), Err(Code::InvalidTag));
        }
        for text in ["<Tagging/>", "<Tagging><TagSet><Tag><Key>a</Key></Tag></TagSet></Tagging>", "<X/>"] {
            assert_eq!(decode_tagging(text.as_bytes(), 2).map_err(|error| error.code), Err(Code::MalformedXML));
        }
    }

    #[test]
    fn bucket_configurations() {
        let region =
            "<CreateBucketConfiguration><LocationConstraint>eu-west-1</LocationConstraint></CreateBucketConfiguration>";
        assert_eq!(check_bucket_configuration(b""), Ok(()));
        assert_eq!(check_bucket_configuration(region.as_bytes()), Ok(()));
        let kind = "<CreateBucketConfiguration><Bucket><Type>Directory</Type></Bucket></CreateBucketConfiguration>";
        assert_eq!(check_bucket_configuration(kind.as_bytes()).map_err(|error| error.code), Err(Code::NotImplemented));
        assert_eq!(check_bucket_configuration(b"<X/>").map_err(|error| error.code), Err(Code::MalformedXML));
    }
}
