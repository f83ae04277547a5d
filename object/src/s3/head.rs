//! The head of an HTTP request as the edge hands it in: method, path, query, headers. Plain text, no HTTP library.

use super::encoding::{EncodingError, Query, decode_path};
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
    /// The query, decoded.
    pub query: Query,
    /// Lower-case names and values, in the order in which they came.
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
        let (path, query) = (decode_path(path).map_err(invalid)?, Query::decode(query).map_err(invalid)?);
        Ok(Self { method, path, query, headers })
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

fn not_a_number() -> S3Error {
    Code::InvalidArgument.because("Provided argument is not an integer or not within the range of integers")
}
