//! A body on its way into the object service: unwrapped, counted, hashed, and compared with what its sender promised.
//!
//! The service stores what it is given, and nothing if the last call of [`api::Body::next`] is an error. So every promise
//! is checked at the end of the body, before the service is told that it has ended.

use bytes::Bytes;
use md5::Md5;
use sha2::{Digest as _, Sha256};

use super::authenticate::{Authenticated, Payload, Trailers};
use super::checksum::{Algorithm, Hasher, Promised, check_known, promised};
use super::chunked::{ChunkError, ChunkedDecoder};
use super::encoding::{from_base64, to_base64, to_hex};
use super::error::{Code, S3Error};
use super::head::RequestHead;
use super::metadata::algorithm_of_upload;
use crate::api::{self, Attributes, BodyDigest, BoxFuture, Content, PART_BYTES_MAX};

/// What the checksum in a request's head is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChecksumAbout {
    /// The body of the request.
    Body,
    /// The object that a completion makes, and not the document that asks for it.
    CompletedObject,
}

/// How long a body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Length {
    /// So many bytes.
    Exact(u64),
    /// So many bytes at least and at most.
    Between(u64, u64),
}

impl Length {
    const fn max(self) -> u64 {
        match self {
            Self::Exact(bytes) | Self::Between(_, bytes) => bytes,
        }
    }
}

/// What a sender promised about a body.
#[derive(Debug)]
pub struct Promises {
    /// Its length, without the framing of chunks.
    length: Length,
    md5: Option<[u8; 16]>,
    sha256: Option<[u8; 32]>,
    checksum: Option<(Algorithm, Promised)>,
    chunks: Option<ChunkedDecoder>,
}

impl Promises {
    /// What the head of a request promises.
    ///
    /// # Errors
    /// Promises that are malformed, contradict each other or are too large; no length.
    pub fn of(head: &RequestHead, authenticated: &Authenticated, about: ChecksumAbout) -> Result<Self, S3Error> {
        check_known(head)?;
        let checksum = if about == ChecksumAbout::Body { promised(head)? } else { None };
        let payload = authenticated.payload();
        let chunks = match payload {
            Payload::SignedChunks(chain, _) => Some(ChunkedDecoder::new(Some(chain.clone()))),
            Payload::UnsignedChunks => Some(ChunkedDecoder::new(None)),
            Payload::Exact(_) | Payload::Unsigned => None,
        };
        let has_trailers = matches!(payload, Payload::UnsignedChunks | Payload::SignedChunks(_, Trailers::Present));
        if matches!(checksum, Some((_, Promised::Trailer))) && !has_trailers {
            let message = "x-amz-trailer needs an x-amz-content-sha256 that ends with -TRAILER";
            return Err(Code::InvalidRequest.because(message));
        }
        let length = if chunks.is_some() { "x-amz-decoded-content-length" } else { "content-length" };
        let bytes = head.header_number(length)?.ok_or(Code::MissingContentLength)?;
        if bytes > PART_BYTES_MAX {
            return Err(Code::EntityTooLarge.into());
        }
        let sha256 = if let Payload::Exact(digest) = payload { Some(*digest) } else { None };
        Ok(Self { length: Length::Exact(bytes), md5: md5_of(head)?, sha256, checksum, chunks })
    }

    /// What the fields of a form promise about its file, which has so many bytes at least and at most.
    ///
    /// # Errors
    /// Promises that are malformed or contradict each other.
    pub fn of_file(head: &RequestHead, (least, most): (u64, u64)) -> Result<Self, S3Error> {
        let checksum = promised(head)?;
        if matches!(checksum, Some((_, Promised::Trailer))) {
            return Err(Code::InvalidRequest.because("The file of a form has no trailers"));
        }
        Ok(Self { length: Length::Between(least, most), md5: md5_of(head)?, sha256: None, checksum, chunks: None })
    }

    /// Greatest length of the body.
    #[must_use]
    pub const fn bytes_max(&self) -> u64 {
        self.length.max()
    }

    /// Length of the body, if it is known.
    #[must_use]
    pub const fn exact_bytes(&self) -> Option<u64> {
        match self.length {
            Length::Exact(bytes) => Some(bytes),
            Length::Between(..) => None,
        }
    }

    /// Whether the body's bytes are bound by more than the connection.
    #[must_use]
    pub const fn has_digest(&self) -> bool {
        self.md5.is_some() || self.checksum.is_some()
    }
}

fn md5_of(head: &RequestHead) -> Result<Option<[u8; 16]>, S3Error> {
    let Some(text) = head.header("content-md5") else { return Ok(None) };
    let bytes = from_base64(text.trim()).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
    Ok(Some(bytes.ok_or(Code::InvalidDigest)?))
}

/// Which checksum is kept of a body that came without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unasked {
    /// The default of S3.
    Crc64Nvme,
    /// None: the bytes do not become an object.
    Nothing,
}

/// A body that verifies what was promised about it.
pub struct VerifiedBody<'a> {
    source: &'a mut dyn Content,
    bytes_left: u64,
    promises: Promises,
    md5: Md5,
    sha256: Option<Sha256>,
    checksum: Option<Hasher>,
    failure: Option<S3Error>,
    is_complete: bool,
}

impl<'a> VerifiedBody<'a> {
    /// The body that comes out of `source` and should keep these promises.
    #[must_use]
    pub fn new(source: &'a mut dyn Content, promises: Promises, unasked: Unasked) -> Self {
        let algorithm = promises.checksum.as_ref().map(|(algorithm, _)| *algorithm);
        let algorithm = algorithm.or((unasked == Unasked::Crc64Nvme).then_some(Algorithm::Crc64Nvme));
        Self {
            source,
            bytes_left: promises.bytes_max(),
            md5: Md5::new(),
            sha256: promises.sha256.map(|_| Sha256::new()),
            checksum: algorithm.map(Hasher::new),
            promises,
            failure: None,
            is_complete: false,
        }
    }

    /// Why the body is refused, if it is.
    #[must_use]
    pub const fn failure(&self) -> Option<S3Error> {
        self.failure
    }

    fn fail(&mut self, error: impl Into<S3Error>) -> api::Error {
        self.failure = Some(error.into());
        api::Error::BadBody
    }

    async fn next_data(&mut self) -> Result<Option<Bytes>, api::Error> {
        loop {
            if let Some(decoder) = &mut self.promises.chunks {
                match decoder.poll_data() {
                    Ok(Some(data)) => return Ok(Some(data)),
                    Ok(None) => {}
                    Err(error) => return Err(self.fail(of_chunks(error))),
                }
            }
            let Some(bytes) = self.source.next().await? else {
                let ended = self.promises.chunks.as_ref().map_or(Ok(()), ChunkedDecoder::handle_end);
                return ended.map(|()| None).map_err(|error| self.fail(of_chunks(error)));
            };
            match &mut self.promises.chunks {
                Some(decoder) => decoder.handle_bytes(bytes),
                None => return Ok(Some(bytes)),
            }
        }
    }

    async fn next_verified(&mut self) -> Result<Option<Bytes>, api::Error> {
        let Some(data) = self.next_data().await? else {
            self.check_end().map_err(|error| self.fail(error))?;
            self.is_complete = true;
            return Ok(None);
        };
        let Some(left) = self.bytes_left.checked_sub(data.len() as u64) else {
            return Err(self.fail(match self.promises.length {
                Length::Exact(_) => Code::IncompleteBody,
                Length::Between(..) => Code::EntityTooLarge,
            }));
        };
        self.bytes_left = left;
        self.md5.update(&data);
        if let Some(digest) = &mut self.sha256 {
            digest.update(&data);
        }
        if let Some(hasher) = &mut self.checksum {
            hasher.update(&data);
        }
        Ok(Some(data))
    }

    fn check_end(&self) -> Result<(), S3Error> {
        match self.promises.length {
            Length::Exact(_) if self.bytes_left > 0 => return Err(Code::IncompleteBody.into()),
            Length::Between(least, most) if most - self.bytes_left < least => return Err(Code::EntityTooSmall.into()),
            _ => {}
        }
        let sha256 = self.sha256.clone().map(|digest| <[u8; 32]>::from(digest.finalize()));
        if sha256 != self.promises.sha256 {
            return Err(Code::XAmzContentSHA256Mismatch.into());
        }
        if self.promises.md5.is_some_and(|promised| promised != <[u8; 16]>::from(self.md5.clone().finalize())) {
            return Err(Code::BadDigest.because("The Content-MD5 you specified did not match what we received."));
        }
        self.check_checksum()
    }

    fn check_checksum(&self) -> Result<(), S3Error> {
        let trailers = self.promises.chunks.iter().flat_map(ChunkedDecoder::trailers);
        let announced = match &self.promises.checksum {
            Some((algorithm, Promised::Trailer)) => Some(algorithm.header()),
            _ => None,
        };
        if trailers.map(|(name, _)| name).any(|name| Some(name) != announced) {
            return Err(Code::MalformedTrailerError.into());
        }
        let Some((algorithm, promised)) = &self.promises.checksum else { return Ok(()) };
        let promised = match promised {
            Promised::Value(value) => value.clone(),
            Promised::Trailer => {
                let decoder = self.promises.chunks.as_ref();
                let value = decoder.and_then(|decoder| decoder.trailer(algorithm.header()));
                algorithm.decode(value.ok_or(Code::MalformedTrailerError)?)?
            }
        };
        let found = self.checksum.as_ref().map(Hasher::finish);
        if found.as_ref() != Some(&promised) {
            return Err(Code::BadDigest.because("The checksum you specified did not match the calculated checksum."));
        }
        Ok(())
    }
}

impl api::Body for VerifiedBody<'_> {
    /// A part has the checksum that was chosen for its upload: its sender's, or, where that sends none, one that is made here.
    fn join_upload(&mut self, upload: &Attributes) -> Result<(), api::Error> {
        let Some(chosen) = algorithm_of_upload(upload) else { return Ok(()) };
        if self.promises.checksum.as_ref().is_some_and(|(algorithm, _)| *algorithm != chosen) {
            let message =
                "The checksum of the part is of another algorithm than the one that was chosen for the upload.";
            return Err(self.fail(Code::InvalidRequest.because(message)));
        }
        self.checksum = Some(Hasher::new(chosen));
        Ok(())
    }

    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, api::Error>> {
        Box::pin(async {
            if let Some(error) = self.failure {
                return Err(self.fail(error));
            }
            if self.is_complete {
                return Ok(None);
            }
            self.next_verified().await
        })
    }

    fn digest(&mut self) -> BodyDigest {
        assert!(self.is_complete, "a digest is asked for before the end of the body");
        let checksum =
            self.checksum.as_ref().map(|hasher| (hasher.algorithm().header().to_owned(), to_base64(&hasher.finish())));
        let etag = to_hex(&<[u8; 16]>::from(self.md5.clone().finalize()));
        BodyDigest { etag, attributes: Attributes(checksum.into_iter().collect()) }
    }
}

fn of_chunks(error: ChunkError) -> S3Error {
    match error {
        ChunkError::MalformedChunk => Code::InvalidRequest.because("The body is not a valid aws-chunked body"),
        ChunkError::MalformedTrailer => Code::MalformedTrailerError.into(),
        ChunkError::WrongSignature => Code::SignatureDoesNotMatch.into(),
        ChunkError::WrongEnd => Code::IncompleteBody.into(),
    }
}

#[cfg(test)]
mod tests;
