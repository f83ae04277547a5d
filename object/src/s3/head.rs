//! The head of an HTTP request as the edge hands it in: method, path, query, headers. Plain text, no HTTP library.

use super::encoding::{EncodingError, Query, decode_path, is_plain_path};
use super::error::{Code, S3Error};

/// What is asked for. Methods that S3 does not use are [`Method::Other`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// `GET`.
    Get,
    /// `HEAD`.
    Head,
    /// `PUT`.
    Put,
    /// `POST`.
    Post,
    /// `DELETE`.
    Delete,
    /// `OPTIONS`: a browser asks whether a page may ask.
    Options,
    /// Any other one.
    Other,
}

impl Method {
    /// The method of that name.
    #[must_use]
    pub fn named(name: &str) -> Self {
        match name {
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "PUT" => Self::Put,
            "POST" => Self::Post,
            "DELETE" => Self::Delete,
            "OPTIONS" => Self::Options,
            _ => Self::Other,
        }
    }

    /// Its name, as it is signed.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Put => "PUT",
            Self::Post => "POST",
            Self::Delete => "DELETE",
            Self::Options => "OPTIONS",
            Self::Other => "OTHER",
        }
    }
}

/// A request without its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHead {
    /// The method.
    pub method: Method,
    /// The path, decoded, with its leading slash.
    pub path: String,
    /// The path as it was sent, if a character of it is escaped or could be.
    pub sent_path: Option<String>,
    /// The query, decoded.
    pub query: Query,
    /// Lower-case names and values, in the order in which they came. No `x-amz-` header stands twice: several are one, with commas
    /// between their values, which is what a signature takes them for.
    pub headers: Vec<(String, String)>,
}

impl RequestHead {
    /// The head with a target as it stands in the request line, and headers with lower-case names.
    ///
    /// # Errors
    /// [`Code::InvalidURI`]: a broken escape, or bytes that are not UTF-8.
    pub fn new(method: Method, target: &str, headers: Vec<(String, String)>) -> Result<Self, S3Error> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let invalid = |_: EncodingError| Code::InvalidURI;
        let sent_path = (!is_plain_path(path)).then(|| path.to_owned());
        let (path, query) = (decode_path(path).map_err(invalid)?, Query::decode(query).map_err(invalid)?);
        let mut head = Self { method, path, sent_path, query, headers };
        head.join_headers();
        Ok(head)
    }

    /// Makes one of several `x-amz-` headers of a name.
    pub(super) fn join_headers(&mut self) {
        let mut at = 0;
        while let Some((name, _)) = self.headers.get(at) {
            let earlier = if name.starts_with("x-amz-") { &self.headers[..at] } else { &[] };
            match earlier.iter().position(|(known, _)| known == name) {
                Some(first) => {
                    let (_, value) = self.headers.remove(at);
                    let joined = &mut self.headers[first].1;
                    joined.push(',');
                    joined.push_str(&value);
                }
                None => at += 1,
            }
        }
    }

    /// The value of a header, by its lower-case name; the first one if it came more than once.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The value of a header that is a whole number.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: it is not one.
    pub fn header_number(&self, name: &str) -> Result<Option<u64>, S3Error> {
        let number = self.header(name).map(|value| value.trim().parse().map_err(|_| not_a_number()));
        number.transpose()
    }

    /// The value of a parameter that is a whole number.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: it is not one.
    pub fn query_number(&self, name: &str) -> Result<Option<u64>, S3Error> {
        self.query.get(name).map(|value| value.parse().map_err(|_| not_a_number())).transpose()
    }
}

/// Whether a header may have this name and value.
pub(super) fn is_header(name: &str, value: &str) -> bool {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    name.bytes().all(is_name) && !value.chars().any(|char| char.is_control() && char != '\t')
}

fn not_a_number() -> S3Error {
    Code::InvalidArgument.because("Provided argument is not an integer or not within the range of integers")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_one_name_are_one_as_a_signature_has_them() {
        let sent = [("x-amz-meta-a", "1"), ("cookie", "a"), ("x-amz-meta-a", "2"), ("x-amz-acl", "b"), ("cookie", "c")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let head = RequestHead::new(Method::Get, "/b/a%20b", sent.to_vec()).expect("a head");
        let told: Vec<_> = head.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(told, [("x-amz-meta-a", "1,2"), ("cookie", "a"), ("x-amz-acl", "b"), ("cookie", "c")]);
        assert_eq!((head.path.as_str(), head.sent_path.as_deref()), ("/b/a b", Some("/b/a%20b")));
        let plain = RequestHead::new(Method::Get, "/b/a~b?c=%20", Vec::new()).expect("a head");
        assert_eq!((plain.path.as_str(), plain.sent_path), ("/b/a~b", None));
        assert!(is_header("x-amz-meta-a", "b c\t") && !is_header("a:b", "") && !is_header("a", "b\n"));
    }

    #[test]
    fn methods_and_numbers() {
        for name in ["GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS"] {
            let method = Method::named(name);
            assert_eq!((method == Method::Other, method.name()), (false, name));
        }
        assert_eq!((Method::named("get"), Method::named("PATCH")), (Method::Other, Method::Other));
        let headers = vec![("a".to_owned(), " 7 ".to_owned()), ("b".to_owned(), "-1".to_owned())];
        let head = RequestHead::new(Method::Get, "/b?c=8&d=x", headers).expect("a head");
        let code = |result: Result<Option<u64>, S3Error>| result.map_err(|error| error.code);
        let headers = ["a", "b", "c"].map(|name| code(head.header_number(name)));
        assert_eq!(headers, [Ok(Some(7)), Err(Code::InvalidArgument), Ok(None)]);
        let parameters = ["c", "d", "a"].map(|name| code(head.query_number(name)));
        assert_eq!(parameters, [Ok(Some(8)), Err(Code::InvalidArgument), Ok(None)]);
    }
}
