//! Results of calls that were handed over by other threads, until they are handed back.

use super::calls::CallResult;

/// A call among those of its thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// Its slot there.
    pub slot: u32,
    /// Of those that had the slot, which.
    pub generation: u32,
}

/// What a call ended with.
#[derive(Debug)]
enum Returned {
    /// With an answer: the next so many bytes.
    Bytes(usize),
    /// With this.
    Result(CallResult),
}

/// Results for the callers of one thread, in order.
#[derive(Debug, Default)]
pub struct Returns {
    entries: Vec<(Key, Returned)>,
    /// The answers of all [`Returned::Bytes`], one behind the other.
    bytes: Vec<u8>,
}

impl Returns {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds an answer.
    #[inline]
    pub fn push_answer(&mut self, key: Key, answer: &[u8]) {
        self.bytes.extend_from_slice(answer);
        self.entries.push((key, Returned::Bytes(answer.len())));
    }

    /// Adds a result.
    pub fn push(&mut self, key: Key, result: CallResult) {
        self.entries.push((key, Returned::Result(result)));
    }

    /// Moves all of `other` behind these; room that neither needs is kept by `other`.
    pub fn append(&mut self, other: &mut Self) {
        if self.is_empty() {
            core::mem::swap(self, other);
        } else {
            self.entries.append(&mut other.entries);
            self.bytes.append(&mut other.bytes);
        }
    }

    /// Hands all results to `each`, in order: answers as bytes, others as they are. None are left.
    pub fn drain(&mut self, mut each: impl FnMut(Key, Result<&[u8], CallResult>)) {
        let mut rest = self.bytes.as_slice();
        for (key, returned) in self.entries.drain(..) {
            match returned {
                Returned::Bytes(len) => {
                    let (answer, behind) = rest.split_at(len);
                    rest = behind;
                    each(key, Ok(answer));
                }
                Returned::Result(result) => each(key, Err(result)),
            }
        }
        self.bytes.clear();
    }

    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<(Key, Returned)>() + self.bytes.capacity()
    }
}
