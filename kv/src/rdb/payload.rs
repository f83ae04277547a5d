//! One value with its type, a version and a checksum: what DUMP gives and RESTORE takes. Libraries of functions the same way.

use super::code::{VERSION, VERSION_FOREIGN, VERSION_VALKEY, kind, opcode};
use super::crc::Crc;
use super::decode::{Decoded, Rules, decode};
use super::encode::{Encoder, Value};
use super::source::{Damage, Source};

/// Bytes of the version and the checksum.
const FOOT_BYTES: usize = 10;
const CHECKSUM_BYTES: usize = 8;

/// Which versions of payloads are taken: `rdb-version-check`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum VersionCheck {
    /// Those that Valkey writes or has written.
    #[default]
    Strict,
    /// Those of Redis 7.4 and later, and of what is to come, too.
    Relaxed,
}

impl VersionCheck {
    /// Its name in the configuration.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Relaxed => "relaxed",
        }
    }

    /// The one of this name.
    pub(crate) fn from_name(name: &[u8]) -> Option<Self> {
        [Self::Strict, Self::Relaxed].into_iter().find(|check| check.name().as_bytes().eq_ignore_ascii_case(name))
    }
}

/// What is asked of the foot of a payload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FootCheck {
    pub(crate) version: VersionCheck,
    /// Whatever the checksum is: for tests of what damage does (`DEBUG SET-SKIP-CHECKSUM-VALIDATION`).
    pub(crate) ignores_sum: bool,
}

/// Why a payload was not taken. The caller's fault; the same payload fails again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Its version is not taken, or the checksum is wrong.
    Foot,
    /// It is of Redis after it left the common format, and of a type that has two meanings since.
    Foreign(u8),
    /// What is in it is wrong.
    Damage(Damage),
}

impl From<Damage> for Refused {
    fn from(damage: Damage) -> Self {
        Self::Damage(damage)
    }
}

/// A value as a payload.
pub(crate) fn encode(encoder: &mut Encoder, value: Value<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    encoder.value(value, &mut out);
    end(&mut out, if value.needs_valkey() { VERSION_VALKEY } else { VERSION });
    out
}

/// Adds the version and the checksum.
fn end(out: &mut Vec<u8>, version: u16) {
    out.extend_from_slice(&version.to_le_bytes());
    let sum = Crc::of(out);
    out.extend_from_slice(&sum.to_le_bytes());
}

/// The value of a payload.
///
/// # Errors
/// [`Refused`]: the caller's fault; retrying fails again.
pub(crate) fn decode_value<'a>(payload: &'a [u8], check: FootCheck, rules: &Rules<'_>) -> Result<Decoded<'a>, Refused> {
    let (body, is_foreign) = body_of(payload, check).ok_or(Refused::Foot)?;
    let (number, rest) = body.split_first().ok_or(Damage::Short)?;
    if *number == kind::HASH_2 && is_foreign {
        return Err(Refused::Foreign(*number));
    }
    let mut source = Source::new(rest);
    let value = decode(*number, &mut source, rules)?;
    source.finish()?;
    Ok(value)
}

/// What is before the version and the checksum, and whether the version is one of Redis after it left the common format;
/// nothing if the version is not taken or the checksum is wrong.
fn body_of(payload: &[u8], check: FootCheck) -> Option<(&[u8], bool)> {
    let (body, foot) = payload.split_last_chunk::<FOOT_BYTES>()?;
    let version = u16::from_le_bytes([foot[0], foot[1]]);
    let is_foreign = (VERSION_FOREIGN..VERSION_VALKEY).contains(&version);
    let is_taken = check.version == VersionCheck::Relaxed || (!is_foreign && version <= VERSION_VALKEY);
    let is_whole = || foot[2..] == Crc::of(&payload[..payload.len() - CHECKSUM_BYTES]).to_le_bytes();
    (is_taken && (check.ignores_sum || is_whole())).then_some((body, is_foreign))
}

/// Libraries of functions as a payload: their texts.
pub(crate) fn encode_libraries<'t>(encoder: &mut Encoder, texts: impl Iterator<Item = &'t [u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    for text in texts {
        out.push(opcode::LIBRARY);
        encoder.text(text, &mut out);
    }
    end(&mut out, VERSION);
    out
}

/// The texts of a payload of libraries.
///
/// # Errors
/// What is wrong, in words. The caller's fault; the same payload fails again.
pub(crate) fn decode_libraries(payload: &[u8], check: FootCheck) -> Result<Vec<Vec<u8>>, &'static str> {
    let (mut rest, _) = body_of(payload, check).ok_or("DUMP payload version or checksum are wrong")?;
    let mut texts = Vec::new();
    while let Some((kind, behind)) = rest.split_first() {
        match *kind {
            opcode::LIBRARY => {}
            opcode::LIBRARY_PRE_RELEASE => return Err("Pre-GA function format not supported"),
            _ => return Err("given type is not a function"),
        }
        let mut source = Source::new(behind);
        let text = source.text_kept().map_err(|_| "Failed loading library payload")?;
        texts.push(text.into_owned());
        rest = source.rest();
    }
    Ok(texts)
}
