//! Conditional headers and ranges of requests.

use super::date::parse_http_date;
use super::document::unquoted;
use super::error::{Code, S3Error};
use super::head::RequestHead;
use crate::api::{Condition, Object, Range};

/// What stands before the names of conditional headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    /// The object of the request: `If-Match`.
    Target,
    /// The source of a copy: `x-amz-copy-source-if-match`.
    CopySource,
}

/// All conditions of a read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReadCondition {
    /// Those on entity tags.
    pub etags: Condition,
    /// `If-Modified-Since`, in seconds since 1970.
    pub modified_since: Option<u64>,
    /// `If-Unmodified-Since`, in seconds since 1970.
    pub unmodified_since: Option<u64>,
}

/// What conditions of a read say about an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is read.
    Read,
    /// The reader has it.
    NotModified,
    /// A condition does not hold.
    Failed,
}

impl ReadCondition {
    /// The conditions of a request. A date that cannot be read is no condition, as in HTTP.
    #[must_use]
    pub fn of(head: &RequestHead, about: About) -> Self {
        let header = |name: &str| match about {
            About::Target => head.header(name),
            About::CopySource => head.header(&format!("x-amz-copy-source-{name}")),
        };
        Self {
            etags: Condition {
                etag_is: header("if-match").map(etags),
                etag_is_not: header("if-none-match").map(etags),
                put_at_ms: None,
            },
            modified_since: header("if-modified-since").and_then(parse_http_date),
            unmodified_since: header("if-unmodified-since").and_then(parse_http_date),
        }
    }

    /// Judges an object. A condition on entity tags outweighs the one on dates beside it (RFC 9110, 13.2.2).
    #[must_use]
    pub fn judge(&self, object: &Object) -> Verdict {
        let has_one = |etags: &[String]| etags.iter().any(|etag| etag == "*" || *etag == object.etag);
        let modified = object.modified_ms / 1_000;
        let (is, is_not) = (self.etags.etag_is.as_deref(), self.etags.etag_is_not.as_deref());
        let is_match = match (is, self.unmodified_since) {
            (Some(etags), _) => has_one(etags),
            (None, Some(since)) => modified <= since,
            (None, None) => true,
        };
        let is_new = match (is_not, self.modified_since) {
            (Some(etags), _) => !has_one(etags),
            (None, Some(since)) => modified > since,
            (None, None) => true,
        };
        match (is_match, is_new) {
            (false, _) => Verdict::Failed,
            (true, false) => Verdict::NotModified,
            (true, true) => Verdict::Read,
        }
    }
}

/// Whether an object is the one that `If-Range` names: by its entity tag, or by the second in which it was made (RFC 9110, 13.1.5).
#[must_use]
pub fn is_same(validator: &str, object: &Object) -> bool {
    match parse_http_date(validator) {
        Some(date) => date == object.modified_ms / 1_000,
        None => validator.trim().strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) == Some(&object.etag),
    }
}

/// The entity tags of a conditional header, without quotes.
fn etags(value: &str) -> Vec<String> {
    let strong = |etag: &str| {
        let etag = etag.trim();
        unquoted(etag.strip_prefix("W/").unwrap_or(etag)).to_owned()
    };
    value.split(',').map(strong).collect()
}

/// The condition of a write.
///
/// # Errors
/// [`Code::NotImplemented`]: a condition of directory buckets.
pub fn write_condition(head: &RequestHead) -> Result<Condition, S3Error> {
    if ["x-amz-if-match-size", "x-amz-if-match-last-modified-time"].iter().any(|name| head.header(name).is_some()) {
        return Err(Code::NotImplemented.into());
    }
    Ok(ReadCondition::of(head, About::Target).etags)
}

/// The range of a `Range` header. One that is not of bytes, malformed or of several ranges asks for the whole object.
#[must_use]
pub fn decode_range(value: &str) -> Option<Range> {
    let (first, last) = value.trim().strip_prefix("bytes=")?.split_once('-')?;
    // What has more digits than a u64 lies behind every object.
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = |text: &str| is_number(text).then(|| text.parse::<u64>().unwrap_or(u64::MAX));
    match (first.trim(), last.trim()) {
        ("", count) => Some(Range::Last(number(count)?)),
        (first, "") => Some(Range::From(number(first)?)),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then_some(Range::Between(first, last))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::s3::head::Method;

    fn head(headers: &[(&str, &str)]) -> RequestHead {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        RequestHead::new(Method::Get, "/bucket/key", headers).expect("a head")
    }

    #[test]
    fn verdicts() {
        let object = Object {
            key: "k".into(),
            version: None,
            bytes: 1,
            etag: "aa".into(),
            modified_ms: 1_369_353_600_500,
            lock: crate::lock::Lock::default(),
            attributes: crate::api::Attributes::default(),
            parts: Vec::new(),
            envelope: None,
        };
        let same = "Fri, 24 May 2013 00:00:00 GMT";
        let before = "Thu, 23 May 2013 00:00:00 GMT";
        let table: [(&[(&str, &str)], Verdict); 13] = [
            (&[], Verdict::Read),
            (&[("if-match", "\"aa\"")], Verdict::Read),
            (&[("if-match", "\"bb\", aa")], Verdict::Read),
            (&[("if-match", "*")], Verdict::Read),
            (&[("if-match", "\"bb\"")], Verdict::Failed),
            (&[("if-none-match", "W/\"aa\"")], Verdict::NotModified),
            (&[("if-none-match", "\"bb\"")], Verdict::Read),
            (&[("if-modified-since", same)], Verdict::NotModified),
            (&[("if-modified-since", before)], Verdict::Read),
            (&[("if-unmodified-since", before)], Verdict::Failed),
            (&[("if-match", "aa"), ("if-unmodified-since", before)], Verdict::Read),
            (&[("if-none-match", "bb"), ("if-modified-since", same)], Verdict::Read),
            (&[("if-modified-since", "yesterday")], Verdict::Read),
        ];
        for (headers, verdict) in table {
            assert_eq!(ReadCondition::of(&head(headers), About::Target).judge(&object), verdict, "{headers:?}");
        }
        let source = head(&[("x-amz-copy-source-if-match", "bb"), ("if-match", "aa")]);
        assert_eq!(ReadCondition::of(&source, About::CopySource).judge(&object), Verdict::Failed);
    }

    #[test]
    fn ranges() {
        assert_eq!(decode_range("bytes=0-9"), Some(Range::Between(0, 9)));
        assert_eq!(decode_range("bytes=5-"), Some(Range::From(5)));
        assert_eq!(decode_range("bytes=-5"), Some(Range::Last(5)));
        assert_eq!(decode_range("bytes=99999999999999999999-"), Some(Range::From(u64::MAX)));
        assert_eq!(decode_range("bytes=3-99999999999999999999"), Some(Range::Between(3, u64::MAX)));
        assert_eq!(decode_range("bytes=-99999999999999999999"), Some(Range::Last(u64::MAX)));
        for whole in ["bytes=9-0", "bytes=", "bytes=-", "bytes=a-b", "items=0-1", "bytes=0-1,3-4", "bytes=+1-2", "0-9"]
        {
            assert_eq!(decode_range(whole), None, "{whole}");
        }
    }

    #[test]
    fn any_header_is_read() {
        arbtest::arbtest(|u| {
            let value: String = u.arbitrary()?;
            assert!(decode_range(&value).is_none() || value.trim().starts_with("bytes="));
            if let Some(Range::Between(first, last)) = decode_range(&format!("bytes={value}")) {
                assert!(first <= last);
            }
            let condition = ReadCondition::of(&head(&[("if-match", &value)]), About::Target);
            assert!(condition.etags.etag_is.is_some_and(|etags| !etags.is_empty()));
            Ok(())
        });
    }
}
