//! Durable promise of a replica: the highest term it accepts, and who holds it (as in Paxos and Viewstamped Replication).
//!
//! A pure value. The caller writes a changed promise to stable storage before the first answer that depends on it. A
//! placement group uses epochs as terms and drives as holders; a key-value shard uses its own terms, and the pair of
//! node and process life as holder.

/// What one member has promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promise<T, H> {
    /// No earlier term is accepted.
    pub term: T,
    /// First of the terms that the present holder was promised without another holder in between. At most `term`.
    pub since: T,
    /// Who holds the term; nobody before the first promise.
    pub holder: Option<H>,
}

/// What accepting a term changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    /// Nothing: the promise covered it already.
    Unchanged,
    /// The promise is another one now. It must be durable before the answer is sent.
    Changed,
}

/// A later term was promised, or the same term to another holder. A retry needs a term greater than this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Superseded<T>(
    /// The promised term.
    pub T,
);

impl<T: Copy + Ord, H: Copy + Eq> Promise<T, H> {
    /// No promise yet; `first` is smaller than every term that is ever asked for.
    pub const fn none(first: T) -> Self {
        Self { term: first, since: first, holder: None }
    }

    /// Promises `term` to `holder`.
    ///
    /// An earlier term of the same holder is accepted as long as nobody else was promised one in between: the holder
    /// itself asked for both, and serves the earlier one until it goes on.
    ///
    /// # Errors
    /// [`Superseded`] if the promise stands against it. Nothing has changed then.
    pub fn accept(&mut self, term: T, holder: H) -> Result<Accepted, Superseded<T>> {
        let is_same_holder = self.holder == Some(holder);
        if is_same_holder && self.since <= term && term <= self.term {
            return Ok(Accepted::Unchanged);
        }
        if term <= self.term {
            return Err(Superseded(self.term));
        }
        let since = if is_same_holder { self.since } else { term };
        debug_assert!(since <= term && self.term < term, "promises go forward");
        *self = Self { term, since, holder: Some(holder) };
        Ok(Accepted::Changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_is_promised_once_and_only_forward() {
        let mut promise = Promise::none(0_u64);
        assert_eq!(promise.accept(0, 'a'), Err(Superseded(0)), "before the first term there is none");
        assert_eq!(promise.accept(3, 'a'), Ok(Accepted::Changed));
        assert_eq!(promise.accept(3, 'a'), Ok(Accepted::Unchanged));
        assert_eq!(promise.accept(3, 'b'), Err(Superseded(3)));
        assert_eq!(promise.accept(2, 'a'), Err(Superseded(3)), "never promised to it");
        assert_eq!(promise.accept(5, 'a'), Ok(Accepted::Changed));
        assert_eq!(promise.accept(4, 'a'), Ok(Accepted::Unchanged), "nobody else came in between");
        assert_eq!(promise.accept(6, 'b'), Ok(Accepted::Changed));
        assert_eq!(promise.accept(5, 'a'), Err(Superseded(6)));
        assert_eq!(promise.accept(7, 'a'), Ok(Accepted::Changed));
        assert_eq!(promise.accept(5, 'a'), Err(Superseded(7)), "its earlier terms are over");
        assert_eq!(promise, Promise { term: 7, since: 7, holder: Some('a') });
    }
}
