//! Object lock: how a version is kept from deletion, and what may change of that. Values only.
//!
//! A retention keeps a version until a moment, a legal hold for as long as it is on. Both are part of the version's record, so
//! whoever deletes decides from them and commits by the record's version: a deletion and a lock that meet come one after the
//! other, whichever servers they were asked of.
//!
//! The clock is that of the server that is asked.

use crate::api::Error;
use crate::cursor::{Cursor, Malformed, Put as _};

/// Who may end a retention early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetentionMode {
    /// Whoever is allowed to bypass it and says so.
    Governance,
    /// Nobody.
    Compliance,
}

/// A version is kept until a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Who may end it early.
    pub mode: RetentionMode,
    /// From then on it keeps nothing, in milliseconds since 1970 (UTC).
    pub until_ms: u64,
}

/// What keeps a version from deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lock {
    /// Its retention, over or not.
    pub retention: Option<Retention>,
    /// Whether it is held; nothing if nobody has ever said.
    pub legal_hold: Option<bool>,
}

/// A change of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockChange {
    /// Another retention, or none.
    Retention(Option<Retention>),
    /// The legal hold is on or off.
    LegalHold(bool),
}

/// Whether a request may end a retention in governance mode, and says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Bypass {
    /// It may not, or does not say so.
    #[default]
    Denied,
    /// It may and does.
    Granted,
}

impl Lock {
    /// Whether nobody has ever locked the version.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the version may be deleted at this moment.
    ///
    /// # Errors
    /// [`Error::Locked`].
    pub fn check_deletion(&self, now_ms: u64, bypass: Bypass) -> Result<(), Error> {
        let is_retained = match self.retention_at(now_ms).map(|retention| retention.mode) {
            None => false,
            Some(RetentionMode::Governance) => bypass == Bypass::Denied,
            Some(RetentionMode::Compliance) => true,
        };
        if is_retained || self.legal_hold == Some(true) { Err(Error::Locked) } else { Ok(()) }
    }

    /// The lock after a change. A retention that is not over may be made longer by everybody, in governance mode also anything
    /// else with a bypass.
    ///
    /// # Errors
    /// [`Error::Locked`].
    pub fn changed(self, change: LockChange, now_ms: u64, bypass: Bypass) -> Result<Self, Error> {
        let wanted = match change {
            LockChange::LegalHold(is_on) => return Ok(Self { legal_hold: Some(is_on), ..self }),
            LockChange::Retention(wanted) => wanted,
        };
        let is_allowed = self.retention_at(now_ms).is_none_or(|now| {
            let is_longer = wanted.is_some_and(|new| new.mode == now.mode && new.until_ms >= now.until_ms);
            is_longer || now.mode == RetentionMode::Governance && bypass == Bypass::Granted
        });
        if is_allowed { Ok(Self { retention: wanted, ..self }) } else { Err(Error::Locked) }
    }

    /// The retention, if it is not over.
    fn retention_at(&self, now_ms: u64) -> Option<Retention> {
        self.retention.filter(|retention| now_ms < retention.until_ms)
    }

    /// Writes it: the mode (0 none, 1 governance, 2 compliance), with a mode the end in milliseconds; the legal hold (0 never
    /// said, 1 off, 2 on).
    pub(crate) fn encode_into(&self, out: &mut Vec<u8>) {
        match self.retention {
            None => out.put_u8(0),
            Some(Retention { mode, until_ms }) => {
                out.put_u8(match mode {
                    RetentionMode::Governance => 1,
                    RetentionMode::Compliance => 2,
                });
                out.put_u64(until_ms);
            }
        }
        out.put_u8(match self.legal_hold {
            None => 0,
            Some(false) => 1,
            Some(true) => 2,
        });
    }

    /// Reads what [`Self::encode_into`] wrote.
    pub(crate) fn decode_from(from: &mut Cursor) -> Result<Self, Malformed> {
        let mode = match from.u8()? {
            0 => None,
            1 => Some(RetentionMode::Governance),
            2 => Some(RetentionMode::Compliance),
            _ => return Err(Malformed),
        };
        let retention = match mode {
            None => None,
            Some(mode) => Some(Retention { mode, until_ms: from.u64()? }),
        };
        let legal_hold = match from.u8()? {
            0 => None,
            1 => Some(false),
            2 => Some(true),
            _ => return Err(Malformed),
        };
        Ok(Self { retention, legal_hold })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    const GOVERNANCE: Retention = Retention { mode: RetentionMode::Governance, until_ms: 100 };
    const COMPLIANCE: Retention = Retention { mode: RetentionMode::Compliance, until_ms: 100 };

    fn lock(retention: Retention) -> Lock {
        Lock { retention: Some(retention), legal_hold: None }
    }

    #[test]
    fn what_may_be_deleted() {
        let held = |legal_hold| Lock { retention: None, legal_hold };
        let cases = [
            (Lock::default(), 0, Bypass::Denied, true),
            (held(Some(false)), 0, Bypass::Denied, true),
            (held(Some(true)), u64::MAX, Bypass::Granted, false),
            (lock(GOVERNANCE), 99, Bypass::Denied, false),
            (lock(GOVERNANCE), 99, Bypass::Granted, true),
            (lock(GOVERNANCE), 100, Bypass::Denied, true),
            (lock(COMPLIANCE), 99, Bypass::Granted, false),
            (lock(COMPLIANCE), 100, Bypass::Denied, true),
            (Lock { legal_hold: Some(true), ..lock(GOVERNANCE) }, 99, Bypass::Granted, false),
        ];
        for (lock, now_ms, bypass, expected) in cases {
            assert_eq!(lock.check_deletion(now_ms, bypass).is_ok(), expected, "{lock:?} {now_ms} {bypass:?}");
        }
    }

    #[test]
    fn what_may_change() {
        let until = |retention: Retention, until_ms| Some(Retention { until_ms, ..retention });
        let cases = [
            // Without a retention, or behind its end, everything.
            (Lock::default(), until(COMPLIANCE, 1), 0, Bypass::Denied, true),
            (lock(COMPLIANCE), None, 100, Bypass::Denied, true),
            (lock(COMPLIANCE), until(GOVERNANCE, 101), 100, Bypass::Denied, true),
            // Longer, or the same.
            (lock(COMPLIANCE), until(COMPLIANCE, 100), 0, Bypass::Denied, true),
            (lock(COMPLIANCE), until(COMPLIANCE, 101), 0, Bypass::Denied, true),
            (lock(GOVERNANCE), until(GOVERNANCE, 101), 0, Bypass::Denied, true),
            // Shorter, of another mode, or none.
            (lock(COMPLIANCE), until(COMPLIANCE, 99), 0, Bypass::Granted, false),
            (lock(COMPLIANCE), until(GOVERNANCE, 200), 0, Bypass::Granted, false),
            (lock(COMPLIANCE), None, 0, Bypass::Granted, false),
            (lock(GOVERNANCE), until(GOVERNANCE, 99), 0, Bypass::Denied, false),
            (lock(GOVERNANCE), until(COMPLIANCE, 200), 0, Bypass::Denied, false),
            (lock(GOVERNANCE), None, 0, Bypass::Denied, false),
            (lock(GOVERNANCE), until(GOVERNANCE, 99), 0, Bypass::Granted, true),
            (lock(GOVERNANCE), until(COMPLIANCE, 99), 0, Bypass::Granted, true),
            (lock(GOVERNANCE), None, 0, Bypass::Granted, true),
        ];
        for (lock, wanted, now_ms, bypass, expected) in cases {
            let changed = lock.changed(LockChange::Retention(wanted), now_ms, bypass);
            let expected = if expected { Ok(Lock { retention: wanted, ..lock }) } else { Err(Error::Locked) };
            assert_eq!(changed, expected, "{lock:?} {wanted:?} {now_ms} {bypass:?}");
        }
        let held = lock(COMPLIANCE).changed(LockChange::LegalHold(true), 0, Bypass::Denied);
        assert_eq!(held, Ok(Lock { legal_hold: Some(true), ..lock(COMPLIANCE) }));
    }

    #[test]
    fn golden_bytes() {
        let cases: [(Lock, &[u8]); 4] = [
            (Lock::default(), &[0, 0]),
            (lock(GOVERNANCE), &[1, 0, 0, 0, 0, 0, 0, 0, 100, 0]),
            (Lock { legal_hold: Some(false), ..lock(COMPLIANCE) }, &[2, 0, 0, 0, 0, 0, 0, 0, 100, 1]),
            (Lock { retention: None, legal_hold: Some(true) }, &[0, 2]),
        ];
        for (lock, expected) in cases {
            let mut form = Vec::new();
            lock.encode_into(&mut form);
            assert_eq!(form, expected);
            assert_eq!(Lock::decode_from(&mut Cursor(Bytes::from(form))), Ok(lock));
        }
        for wrong in [&[][..], &[0], &[3, 0], &[0, 3], &[1, 0, 0]] {
            assert_eq!(Lock::decode_from(&mut Cursor(Bytes::copy_from_slice(wrong))), Err(Malformed));
        }
    }
}
