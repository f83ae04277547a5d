//! Decoder of `aws-chunked` bodies: chunks with or without signatures, and trailers behind the last one.
//!
//! Clients differ in how trailers end. AWS's SDKs end each line with CR LF, and the whole with an empty line. AWS's documentation, and
//! minio-go after it, end a trailer with LF alone, put an empty line before the signature of the trailers, and one more behind
//! trailers without one. Both forms are read; what is signed is the same.
//!
//! A value: bytes in, the content's bytes out as slices of what came in. Bytes of a chunk are handed out before its signature
//! is known; whoever takes them must not act on them before [`ChunkedDecoder::handle_end`] has succeeded.

use core::fmt;

use bytes::{Buf as _, Bytes};
use sha2::{Digest as _, Sha256};

use super::signature::{ChunkChain, Signature};

/// Longest line without its end: the head of a chunk, or a trailer.
pub const LINE_BYTES_MAX: usize = 1_024;
/// CR LF.
const LINE_END_BYTES_MAX: usize = 2;
/// Lines behind the last chunk.
pub const TRAILERS_MAX: usize = 16;

/// What is wrong with a body in chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkError {
    /// The head of a chunk, or the end of its line, is not as it should be.
    MalformedChunk,
    /// A trailer is not as it should be, or a signature is missing.
    MalformedTrailer,
    /// A signature is wrong.
    WrongSignature,
    /// The body ends before its last chunk, or goes on behind it.
    WrongEnd,
}

impl fmt::Display for ChunkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MalformedChunk => "the head of a chunk is malformed",
            Self::MalformedTrailer => "the trailers are malformed",
            Self::WrongSignature => "the signature of a chunk is wrong",
            Self::WrongEnd => "the body does not end with its last chunk",
        })
    }
}

impl core::error::Error for ChunkError {}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    ChunkHead,
    /// So many bytes of the chunk.
    Data(u64),
    /// The end of the line behind a chunk's bytes.
    DataEnd,
    /// Trailers, and the empty line behind them.
    Trailer,
    /// The end, or one more empty line.
    End,
    Nothing,
}

/// The decoder of one body.
#[derive(Debug)]
pub struct ChunkedDecoder {
    expected: Expected,
    input: Bytes,
    /// The line that has not come whole, up to [`LINE_BYTES_MAX`] and its end.
    line: Vec<u8>,
    chain: Option<ChunkChain>,
    /// Signature of the chunk that comes, and the hash of what has come of it. With a chain only.
    signature: Option<Signature>,
    digest: Sha256,
    trailers: Vec<(String, String)>,
    trailer_digest: Sha256,
    is_trailer_signed: bool,
    /// An empty line has parted the trailers from their signature.
    is_signature_due: bool,
}

impl ChunkedDecoder {
    /// The decoder of a body whose chunks are signed by this chain, if by any.
    #[must_use]
    pub fn new(chain: Option<ChunkChain>) -> Self {
        Self {
            expected: Expected::ChunkHead,
            input: Bytes::new(),
            line: Vec::new(),
            chain,
            signature: None,
            digest: Sha256::new(),
            trailers: Vec::new(),
            trailer_digest: Sha256::new(),
            is_trailer_signed: false,
            is_signature_due: false,
        }
    }

    /// Takes the next bytes of the body.
    ///
    /// # Panics
    /// [`ChunkedDecoder::poll_data`] has not taken all of the bytes before them.
    pub fn handle_bytes(&mut self, bytes: Bytes) {
        assert!(self.input.is_empty(), "the bytes before were not polled");
        self.input = bytes;
    }

    /// The next bytes of the content, none of them empty; nothing if more input is needed.
    ///
    /// # Errors
    /// The body is malformed, or a signature is wrong. The decoder must not be used any more.
    pub fn poll_data(&mut self) -> Result<Option<Bytes>, ChunkError> {
        while !self.input.is_empty() {
            match self.expected {
                Expected::Data(left) => {
                    let count = usize::try_from(left).unwrap_or(usize::MAX).min(self.input.len());
                    let data = self.input.split_to(count);
                    let left = left - count as u64;
                    self.expected = if left == 0 { Expected::DataEnd } else { Expected::Data(left) };
                    if self.chain.is_some() {
                        self.digest.update(&data);
                    }
                    return Ok(Some(data));
                }
                Expected::Nothing => return Err(ChunkError::WrongEnd),
                Expected::ChunkHead | Expected::DataEnd | Expected::Trailer | Expected::End => {
                    if let Some(line) = self.take_line()? {
                        self.handle_line(&line)?;
                    }
                }
            }
        }
        Ok(None)
    }

    /// The body has ended.
    ///
    /// # Errors
    /// It should not have.
    pub fn handle_end(&self) -> Result<(), ChunkError> {
        let is_end = matches!(self.expected, Expected::End | Expected::Nothing) && self.line.is_empty();
        if is_end { Ok(()) } else { Err(ChunkError::WrongEnd) }
    }

    /// The value of a trailer, by its lower-case name. Good once [`ChunkedDecoder::handle_end`] has succeeded.
    #[must_use]
    pub fn trailer(&self, name: &str) -> Option<&str> {
        self.trailers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Names and values of all trailers.
    pub fn trailers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.trailers.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The next line without its end (CR LF; a trailer's may be LF); nothing if it has not come whole.
    fn take_line(&mut self) -> Result<Option<String>, ChunkError> {
        let malformed = match self.expected {
            Expected::Trailer => ChunkError::MalformedTrailer,
            Expected::End => ChunkError::WrongEnd,
            _ => ChunkError::MalformedChunk,
        };
        let end = self.input.iter().position(|&byte| byte == b'\n');
        let count = end.map_or(self.input.len(), |end| end + 1);
        if self.line.len() + count > LINE_BYTES_MAX + LINE_END_BYTES_MAX {
            return Err(malformed);
        }
        self.line.extend_from_slice(&self.input[..count]);
        self.input.advance(count);
        if end.is_none() {
            return Ok(None);
        }
        let mut line = core::mem::take(&mut self.line);
        line.pop();
        let has_return = line.last() == Some(&b'\r');
        if has_return {
            line.pop();
        } else if self.expected != Expected::Trailer || line.is_empty() {
            return Err(malformed);
        }
        if line.len() > LINE_BYTES_MAX {
            return Err(malformed);
        }
        String::from_utf8(line).map(Some).map_err(|_| malformed)
    }

    fn handle_line(&mut self, line: &str) -> Result<(), ChunkError> {
        match self.expected {
            Expected::ChunkHead => self.handle_chunk_head(line),
            Expected::DataEnd if line.is_empty() => {
                self.check_chunk()?;
                self.expected = Expected::ChunkHead;
                Ok(())
            }
            Expected::DataEnd => Err(ChunkError::MalformedChunk),
            Expected::Trailer if line.is_empty() => self.handle_last_line(),
            Expected::Trailer => self.handle_trailer(line),
            Expected::End if line.is_empty() => {
                self.expected = Expected::Nothing;
                Ok(())
            }
            Expected::End => Err(ChunkError::WrongEnd),
            Expected::Data(_) | Expected::Nothing => {
                unreachable!("no line is taken where bytes or nothing are expected")
            }
        }
    }

    fn handle_chunk_head(&mut self, line: &str) -> Result<(), ChunkError> {
        let (size, extension) = line.split_once(';').unwrap_or((line, ""));
        let is_size = (1..=16).contains(&size.len()) && size.bytes().all(|byte| byte.is_ascii_hexdigit());
        let size = u64::from_str_radix(size, 16).ok().filter(|_| is_size).ok_or(ChunkError::MalformedChunk)?;
        if self.chain.is_some() {
            let signature = extension.strip_prefix("chunk-signature=").and_then(Signature::from_hex);
            self.signature = Some(signature.ok_or(ChunkError::MalformedChunk)?);
        }
        if size > 0 {
            self.expected = Expected::Data(size);
            return Ok(());
        }
        self.check_chunk()?;
        self.expected = Expected::Trailer;
        Ok(())
    }

    /// Compares the signature of the chunk that has come whole.
    fn check_chunk(&mut self) -> Result<(), ChunkError> {
        let Some(chain) = &mut self.chain else { return Ok(()) };
        let signature = self.signature.take().expect("the head of a signed chunk has set it");
        let digest = core::mem::replace(&mut self.digest, Sha256::new()).finalize().into();
        if chain.is_next(&digest, &signature) { Ok(()) } else { Err(ChunkError::WrongSignature) }
    }

    fn handle_trailer(&mut self, line: &str) -> Result<(), ChunkError> {
        let (name, value) = line.split_once(':').ok_or(ChunkError::MalformedTrailer)?;
        let (name, value) = (name.trim().to_ascii_lowercase(), value.trim());
        if self.is_trailer_signed || self.trailers.len() == TRAILERS_MAX || name.is_empty() {
            return Err(ChunkError::MalformedTrailer);
        }
        if name == "x-amz-trailer-signature" {
            let Some(chain) = &mut self.chain else { return Err(ChunkError::MalformedTrailer) };
            let signature = Signature::from_hex(value).ok_or(ChunkError::MalformedTrailer)?;
            let digest = self.trailer_digest.clone().finalize().into();
            if !chain.is_trailer(&digest, &signature) {
                return Err(ChunkError::WrongSignature);
            }
            self.is_trailer_signed = true;
            return Ok(());
        }
        if self.is_signature_due {
            return Err(ChunkError::MalformedTrailer);
        }
        self.trailer_digest.update(format!("{name}:{value}\n"));
        self.trailers.push((name, value.to_owned()));
        Ok(())
    }

    fn handle_last_line(&mut self) -> Result<(), ChunkError> {
        if self.chain.is_none() || self.trailers.is_empty() || self.is_trailer_signed {
            self.expected = Expected::End;
            return Ok(());
        }
        // The signature of the trailers must follow, behind this line at the latest.
        let is_first = !core::mem::replace(&mut self.is_signature_due, true);
        if is_first { Ok(()) } else { Err(ChunkError::MalformedTrailer) }
    }
}

#[cfg(test)]
mod tests;
