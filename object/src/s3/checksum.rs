//! Checksums of objects and parts: five algorithms, of whole objects or composed of their parts' checksums.
//!
//! CRCs of parts are combined into the CRC of the object without reading it again. SHA-1 and SHA-256 of an object in parts
//! are those of the parts' digests.

use crc_fast::{CrcAlgorithm, Digest as CrcDigest, checksum_combine};
use sha1::Sha1;
use sha2::{Digest as _, Sha256};

use super::encoding::{from_base64, to_base64};
use super::error::{Code, S3Error};
use super::head::RequestHead;

/// How a checksum is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// CRC-32 of zlib and Ethernet.
    Crc32,
    /// CRC-32 with Castagnoli's polynomial.
    Crc32c,
    /// CRC-64 of NVMe. The default for objects that come without a checksum.
    Crc64Nvme,
    /// SHA-1.
    Sha1,
    /// SHA-256.
    Sha256,
}

/// What a checksum of an object in parts is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChecksumType {
    /// Its bytes.
    FullObject,
    /// The checksums of its parts.
    Composite,
}

impl ChecksumType {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FullObject => "FULL_OBJECT",
            Self::Composite => "COMPOSITE",
        }
    }

    /// The type of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::FullObject, Self::Composite].into_iter().find(|known| known.name() == name)
    }
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Crc32, Self::Crc32c, Self::Crc64Nvme, Self::Sha1, Self::Sha256];

    /// Its name in headers and XML.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Crc32 => "CRC32",
            Self::Crc32c => "CRC32C",
            Self::Crc64Nvme => "CRC64NVME",
            Self::Sha1 => "SHA1",
            Self::Sha256 => "SHA256",
        }
    }

    /// The algorithm of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name().eq_ignore_ascii_case(name))
    }

    /// The header, trailer and attribute of its checksums.
    #[must_use]
    pub const fn header(self) -> &'static str {
        match self {
            Self::Crc32 => "x-amz-checksum-crc32",
            Self::Crc32c => "x-amz-checksum-crc32c",
            Self::Crc64Nvme => "x-amz-checksum-crc64nvme",
            Self::Sha1 => "x-amz-checksum-sha1",
            Self::Sha256 => "x-amz-checksum-sha256",
        }
    }

    /// The element of its checksums in XML.
    #[must_use]
    pub const fn element(self) -> &'static str {
        match self {
            Self::Crc32 => "ChecksumCRC32",
            Self::Crc32c => "ChecksumCRC32C",
            Self::Crc64Nvme => "ChecksumCRC64NVME",
            Self::Sha1 => "ChecksumSHA1",
            Self::Sha256 => "ChecksumSHA256",
        }
    }

    /// Bytes of a checksum.
    #[must_use]
    pub const fn len_bytes(self) -> usize {
        match self {
            Self::Crc32 | Self::Crc32c => 4,
            Self::Crc64Nvme => 8,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }

    /// What its checksum of an object in parts is of, if nobody has said.
    #[must_use]
    pub const fn default_type(self) -> ChecksumType {
        match self {
            Self::Crc64Nvme => ChecksumType::FullObject,
            _ => ChecksumType::Composite,
        }
    }

    /// Whether there is such a checksum of an object in parts.
    #[must_use]
    pub const fn has_type(self, kind: ChecksumType) -> bool {
        match kind {
            ChecksumType::FullObject => self.crc().is_some(),
            ChecksumType::Composite => !matches!(self, Self::Crc64Nvme),
        }
    }

    const fn crc(self) -> Option<CrcAlgorithm> {
        match self {
            Self::Crc32 => Some(CrcAlgorithm::Crc32IsoHdlc),
            Self::Crc32c => Some(CrcAlgorithm::Crc32Iscsi),
            Self::Crc64Nvme => Some(CrcAlgorithm::Crc64Nvme),
            Self::Sha1 | Self::Sha256 => None,
        }
    }

    /// The bytes of a checksum in Base64.
    ///
    /// # Errors
    /// [`Code::BadDigest`]: it is not one of this algorithm, and so not that of any bytes.
    pub fn decode(self, text: &str) -> Result<Vec<u8>, S3Error> {
        let bytes = from_base64(text.trim()).filter(|bytes| bytes.len() == self.len_bytes());
        bytes.ok_or(Code::BadDigest.because("Value for the x-amz-checksum header is invalid."))
    }

    /// The checksum of an object whose parts have these checksums and lengths, in Base64.
    ///
    /// # Panics
    /// There is no such checksum ([`Algorithm::has_type`]), or a part's has another length.
    #[must_use]
    pub fn of_parts(self, kind: ChecksumType, parts: &[(Vec<u8>, u64)]) -> String {
        assert!(self.has_type(kind), "{} of {}", self.name(), kind.name());
        assert!(
            parts.iter().all(|(checksum, _)| checksum.len() == self.len_bytes()),
            "a checksum of another algorithm"
        );
        match (kind, self.crc()) {
            (ChecksumType::FullObject, Some(crc)) => {
                let combine = |sum: u64, part: &(Vec<u8>, u64)| checksum_combine(crc, sum, be(&part.0), part.1);
                let (first, rest) = parts.split_first().map_or((0, parts), |(first, rest)| (be(&first.0), rest));
                to_base64(&self.crc_bytes(rest.iter().fold(first, combine)))
            }
            _ => {
                let mut hasher = Hasher::new(self);
                parts.iter().for_each(|(checksum, _)| hasher.update(checksum));
                format!("{}-{}", to_base64(&hasher.finish()), parts.len())
            }
        }
    }

    fn crc_bytes(self, value: u64) -> Vec<u8> {
        value.to_be_bytes()[8 - self.len_bytes()..].to_vec()
    }
}

/// The number that up to eight big-endian bytes write.
fn be(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

/// A checksum in the making.
#[derive(Debug)]
pub struct Hasher {
    algorithm: Algorithm,
    state: State,
}

#[derive(Debug)]
enum State {
    Crc(CrcDigest),
    Sha1(Sha1),
    Sha256(Sha256),
}

impl Hasher {
    /// Of no bytes yet.
    #[must_use]
    pub fn new(algorithm: Algorithm) -> Self {
        let state = match (algorithm.crc(), algorithm) {
            (Some(crc), _) => State::Crc(CrcDigest::new(crc)),
            (None, Algorithm::Sha1) => State::Sha1(Sha1::new()),
            (None, _) => State::Sha256(Sha256::new()),
        };
        Self { algorithm, state }
    }

    /// How it is made.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.state {
            State::Crc(digest) => digest.update(bytes),
            State::Sha1(digest) => digest.update(bytes),
            State::Sha256(digest) => digest.update(bytes),
        }
    }

    /// The checksum of all bytes so far.
    #[must_use]
    pub fn finish(&self) -> Vec<u8> {
        match &self.state {
            State::Crc(digest) => self.algorithm.crc_bytes(digest.finalize()),
            State::Sha1(digest) => digest.clone().finalize().to_vec(),
            State::Sha256(digest) => digest.clone().finalize().to_vec(),
        }
    }
}

/// Where the checksum of a body stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Promised {
    /// In a header: this.
    Value(Vec<u8>),
    /// In a trailer.
    Trailer,
}

/// Refuses a checksum of an algorithm that is not known: whoever sent it relies on its being compared.
///
/// # Errors
/// [`Code::InvalidRequest`].
pub fn check_known(head: &RequestHead) -> Result<(), S3Error> {
    let is_about = |what: &str| matches!(what, "algorithm" | "type" | "mode");
    let mut names = head.headers.iter().map(|(name, _)| name.as_str());
    let is_unknown = |name: &str| {
        let what = name.strip_prefix("x-amz-checksum-");
        what.is_some_and(|what| !is_about(what) && !Algorithm::ALL.iter().any(|known| known.header() == name))
    };
    if names.any(is_unknown) {
        return Err(Code::InvalidRequest.because("The algorithm of an x-amz-checksum- header is not supported."));
    }
    Ok(())
}

/// The checksum that a request promises for its body, if any.
///
/// # Errors
/// [`Code::InvalidRequest`]: more than one, an algorithm that is not known, or one without its checksum. [`Code::BadDigest`]: a
/// malformed one.
pub fn promised(head: &RequestHead) -> Result<Option<(Algorithm, Promised)>, S3Error> {
    check_known(head)?;
    let in_headers =
        Algorithm::ALL.into_iter().filter_map(|algorithm| Some((algorithm, head.header(algorithm.header())?)));
    let mut found = Vec::new();
    for (algorithm, value) in in_headers {
        found.push((algorithm, Promised::Value(algorithm.decode(value)?)));
    }
    let announced = head.header("x-amz-trailer").unwrap_or_default().split(',').map(str::trim);
    for name in announced.filter(|name| !name.is_empty()) {
        let algorithm = Algorithm::ALL.into_iter().find(|algorithm| algorithm.header().eq_ignore_ascii_case(name));
        let unknown = Code::InvalidRequest.because("The value specified in the x-amz-trailer header is not supported");
        found.push((algorithm.ok_or(unknown)?, Promised::Trailer));
    }
    if found.len() > 1 {
        let message = "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.";
        return Err(Code::InvalidRequest.because(message));
    }
    let wanted = head.header("x-amz-sdk-checksum-algorithm");
    match (wanted.map(Algorithm::named), found.pop()) {
        (Some(None), _) => Err(Code::InvalidRequest.because("Checksum algorithm provided is unsupported.")),
        (Some(Some(_)), None) => Err(Code::InvalidRequest.because(
            "x-amz-sdk-checksum-algorithm specified, but no corresponding x-amz-checksum-* or x-amz-trailer headers were found.",
        )),
        (Some(Some(wanted)), Some((algorithm, _))) if wanted != algorithm => {
            Err(Code::InvalidRequest.because("Value for x-amz-sdk-checksum-algorithm header is invalid."))
        }
        (_, found) => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_of_nine_digits() {
        let expected = [
            (Algorithm::Crc32, "y/Q5Jg=="),
            (Algorithm::Crc32c, "4waSgw=="),
            (Algorithm::Crc64Nvme, "rosUhgp5mIg="),
            (Algorithm::Sha1, "98O8HYCOBHMq32eZZczDTKeuNEE="),
            (Algorithm::Sha256, "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU="),
        ];
        for (algorithm, base64) in expected {
            let mut hasher = Hasher::new(algorithm);
            hasher.update(b"1234");
            hasher.update(b"56789");
            let bytes = hasher.finish();
            assert_eq!(to_base64(&bytes), base64, "{algorithm:?}");
            assert_eq!(algorithm.decode(&to_base64(&bytes)), Ok(bytes), "{algorithm:?}");
        }
    }

    #[test]
    fn names_and_kinds() {
        let (full, composite) = (ChecksumType::FullObject, ChecksumType::Composite);
        let table = [
            (Algorithm::Crc32, "crc32", composite, true, true),
            (Algorithm::Crc32c, "crc32c", composite, true, true),
            (Algorithm::Crc64Nvme, "crc64nvme", full, true, false),
            (Algorithm::Sha1, "sha1", composite, false, true),
            (Algorithm::Sha256, "sha256", composite, false, true),
        ];
        for (algorithm, name, default, has_full, has_composite) in table {
            assert_eq!(algorithm.header(), format!("x-amz-checksum-{name}"));
            assert_eq!(algorithm.element(), format!("Checksum{}", name.to_uppercase()));
            assert_eq!((Algorithm::named(name), algorithm.name()), (Some(algorithm), name.to_uppercase().as_str()));
            assert_eq!(algorithm.default_type(), default, "{name}");
            assert_eq!((algorithm.has_type(full), algorithm.has_type(composite)), (has_full, has_composite), "{name}");
        }
        assert_eq!(Algorithm::named("MD5"), None);
        for (kind, name) in [(full, "FULL_OBJECT"), (composite, "COMPOSITE")] {
            assert_eq!((kind.name(), ChecksumType::named(name)), (name, Some(kind)));
        }
        assert_eq!(ChecksumType::named("composite"), None);
    }

    #[test]
    fn combined_parts_are_the_whole() {
        arbtest::arbtest(|u| {
            let pieces: Vec<Vec<u8>> = u.arbitrary()?;
            if pieces.is_empty() {
                return Ok(());
            }
            for algorithm in [Algorithm::Crc32, Algorithm::Crc32c, Algorithm::Crc64Nvme] {
                let of = |bytes: &[u8]| {
                    let mut hasher = Hasher::new(algorithm);
                    hasher.update(bytes);
                    hasher.finish()
                };
                let parts: Vec<_> = pieces.iter().map(|piece| (of(piece), piece.len() as u64)).collect();
                let combined = algorithm.of_parts(ChecksumType::FullObject, &parts);
                assert_eq!(combined, to_base64(&of(&pieces.concat())), "{algorithm:?}");
            }
            Ok(())
        });
    }

    #[test]
    fn composed_of_digests() {
        let part = |text: &[u8]| {
            let mut hasher = Hasher::new(Algorithm::Sha256);
            hasher.update(text);
            (hasher.finish(), text.len() as u64)
        };
        let composed = Algorithm::Sha256.of_parts(ChecksumType::Composite, &[part(b"a"), part(b"b")]);
        let whole = Sha256::digest([part(b"a").0, part(b"b").0].concat());
        assert_eq!(composed, format!("{}-2", to_base64(&whole)));
    }

    #[test]
    fn what_a_request_promises() {
        let promised = |headers: &[(&str, &str)]| {
            let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let head = RequestHead::new(super::super::head::Method::Put, "/b/k", headers).expect("a head");
            promised(&head).map_err(|error| error.code)
        };
        let crc = ("x-amz-checksum-crc32", "y/Q5Jg==");
        assert_eq!(promised(&[]), Ok(None));
        let value = Promised::Value(vec![0xcb, 0xf4, 0x39, 0x26]);
        assert_eq!(promised(&[crc]), Ok(Some((Algorithm::Crc32, value.clone()))));
        assert_eq!(promised(&[crc, ("x-amz-sdk-checksum-algorithm", "CRC32")]), Ok(Some((Algorithm::Crc32, value))));
        let trailer = ("x-amz-trailer", "x-amz-checksum-crc64nvme");
        assert_eq!(promised(&[trailer]), Ok(Some((Algorithm::Crc64Nvme, Promised::Trailer))));
        for value in ["y/Q5", "bad", "", "y/Q5Jg"] {
            assert_eq!(promised(&[("x-amz-checksum-crc32", value)]), Err(Code::BadDigest), "{value}");
        }
        let wrong: [&[(&str, &str)]; 6] = [
            &[crc, trailer],
            &[("x-amz-trailer", "x-amz-meta-a")],
            &[("x-amz-checksum-sha512", "AAAA")],
            &[("x-amz-sdk-checksum-algorithm", "CRC32")],
            &[crc, ("x-amz-sdk-checksum-algorithm", "SHA1")],
            &[crc, ("x-amz-sdk-checksum-algorithm", "MD5")],
        ];
        for headers in wrong {
            assert_eq!(promised(headers), Err(Code::InvalidRequest), "{headers:?}");
        }
    }
}
