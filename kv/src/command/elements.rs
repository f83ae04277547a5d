//! What the commands of several collection types have in common: how elements are replied, how many are wanted at random,
//! how a collection is gone through.

use super::call::Call;
use crate::error::Error;
use crate::glob;
use crate::memory::packed::Digits;
use crate::resp::Reply;
use crate::value::text::Text;

/// Elements that one step of a scan looks at unless COUNT says otherwise.
const COUNT_DEFAULT: usize = 10;
/// The most elements that are drawn with repetition: what they take is not bounded by what the collection holds.
const REPEATED_MAX: usize = 1 << 27;

/// Replies an element as a byte string.
pub(super) fn bulk(reply: &mut Reply, text: Text<'_>) {
    reply.bulk(text.bytes(&mut Digits::default()));
}

/// How many elements are wanted at random.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// So many, none twice.
    Distinct(usize),
    /// So many, each any of all.
    Repeated(usize),
}

impl Wanted {
    /// Reads word `at`: below zero, elements may come again.
    ///
    /// # Errors
    /// It is no number, or one that has no negative.
    pub(super) fn read(call: &Call<'_, '_>, at: usize) -> Result<Self, Error> {
        let count = call.integer(at)?;
        let many = || usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
        match count {
            i64::MIN => {
                Err(Error::text(format!("ERR value is out of range, value must between -{0} and {0}", i64::MAX)))
            }
            0.. => Ok(Self::Distinct(many())),
            _ => Ok(Self::Repeated(many())),
        }
    }

    /// The same, if a reply can hold so many.
    ///
    /// # Errors
    /// It cannot.
    pub(super) fn bounded(self) -> Result<Self, Error> {
        match self {
            Self::Repeated(count) if count > REPEATED_MAX => Err(Error::OUT_OF_RANGE),
            _ => Ok(self),
        }
    }
}

/// A cursor, which stands in word 2.
///
/// # Errors
/// It is none.
pub(super) fn cursor_of(call: &Call<'_, '_>) -> Result<u64, Error> {
    let text = std::str::from_utf8(&call.args[2]).ok();
    text.and_then(|text| text.parse().ok()).ok_or(Error::new("ERR invalid cursor"))
}

/// `NOVALUES` stands where nothing has values.
pub(super) const NOT_OF_VALUES: Error = Error::new("ERR NOVALUES option can only be used in HSCAN");
/// `NOSCORES` stands where nothing has scores.
pub(super) const NOT_OF_SCORES: Error = Error::new("ERR NOSCORES option can only be used in ZSCAN");

/// What a scan of a collection shows, and how far it goes in one step.
#[derive(Debug)]
pub(super) struct Scan<'a> {
    pattern: Option<&'a [u8]>,
    pub(super) count: usize,
    /// Names without values; of hashes only.
    pub(super) names_only: bool,
}

impl<'a> Scan<'a> {
    /// Reads the options behind the cursor.
    ///
    /// # Errors
    /// One is unknown, or wrong.
    pub(super) fn read(call: &Call<'a, '_>, is_hash: bool) -> Result<Self, Error> {
        let mut scan = Self { pattern: None, count: COUNT_DEFAULT, names_only: false };
        let mut at = 3;
        while at < call.args.len() {
            let value = call.args.get(at + 1);
            at += match value {
                Some(_) if call.args.is(at, "COUNT") => {
                    let count = call.integer(at + 1)?;
                    scan.count = usize::try_from(count).ok().filter(|count| *count > 0).ok_or(Error::SYNTAX)?;
                    2
                }
                Some(pattern) if call.args.is(at, "MATCH") => {
                    scan.pattern = Some(pattern);
                    2
                }
                _ if call.args.is(at, "NOVALUES") && !is_hash => {
                    return Err(NOT_OF_VALUES);
                }
                _ if call.args.is(at, "NOVALUES") => {
                    scan.names_only = true;
                    1
                }
                _ if call.args.is(at, "NOSCORES") => return Err(NOT_OF_SCORES),
                _ => return Err(Error::SYNTAX),
            };
        }
        Ok(scan)
    }

    /// Whether an element is shown.
    pub(super) fn shows(&self, name: Text<'_>) -> bool {
        self.pattern.is_none_or(|pattern| glob::matches(pattern, name.bytes(&mut Digits::default()), false))
    }
}

/// Where a scan goes on in a collection whose places have 32 bits; nowhere if the cursor is none of its own.
pub(super) fn place_of(cursor: u64) -> Option<u32> {
    u32::try_from(cursor).ok()
}

/// The reply to a scan of nothing.
pub(super) fn scanned_nothing(reply: &mut Reply) {
    reply.array(2);
    reply.bulk(b"0");
    reply.array(0);
}
