//! What one member was last heard to think of another, and how long it was frozen.

/// Something that holds or not, and when it last ceased to hold.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Spell {
    holds: bool,
    ended_ns: Option<u64>,
}

impl Spell {
    pub(super) fn set(&mut self, now_ns: u64, holds: bool) {
        if self.holds && !holds {
            self.ended_ns = Some(now_ns);
        }
        self.holds = holds;
    }

    /// Whether it holds now.
    pub(super) fn holds(&self) -> bool {
        self.holds
    }

    /// Whether it held at any time since `since_ns`.
    pub(super) fn held_since(&self, since_ns: u64) -> bool {
        self.holds || self.ended_ns.is_some_and(|ended_ns| ended_ns >= since_ns)
    }
}

/// What one member thinks of another.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct View {
    pub(super) suspected: Spell,
    /// It is said to have failed, or is no member.
    pub(super) gone: Spell,
    pub(super) failed: Spell,
    /// Since when it has failed or is no member.
    pub(super) gone_at_ns: u64,
    pub(super) is_known: bool,
    /// Until when it has to be kept out, by all that was heard, and since when that is known.
    pub(super) out_until_ns: u64,
    pub(super) out_since_ns: u64,
}

impl View {
    pub(super) fn set(&mut self, now_ns: u64, is_known: bool, has_failed: bool) {
        let is_gone = !is_known || has_failed;
        if is_gone && !(self.gone.holds()) {
            self.gone_at_ns = now_ns;
        }
        self.is_known = is_known;
        self.failed.set(now_ns, has_failed);
        self.gone.set(now_ns, is_gone);
    }
}

/// When a member was frozen; freezes that follow each other closely are one.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Freeze {
    began_ns: u64,
    ended_ns: u64,
}

impl Freeze {
    pub(super) fn begin(&mut self, now_ns: u64, closely_ns: u64) {
        if now_ns > self.ended_ns + closely_ns {
            self.began_ns = now_ns;
        }
        self.ended_ns = u64::MAX;
    }

    pub(super) fn end(&mut self, now_ns: u64) {
        self.ended_ns = now_ns;
    }

    /// The beginning of the last `span_ns` in which the member ran.
    pub(super) fn before(&self, now_ns: u64, span_ns: u64) -> u64 {
        let since_ns = now_ns.saturating_sub(span_ns);
        if self.ended_ns >= since_ns { self.began_ns.saturating_sub(span_ns).min(since_ns) } else { since_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spell_is_remembered() {
        let mut spell = Spell::default();
        spell.set(5, false);
        assert!(!spell.held_since(0));
        spell.set(10, true);
        assert!(spell.held_since(99));
        spell.set(20, false);
        assert!(spell.held_since(20) && !spell.held_since(21));
    }

    #[test]
    fn a_freeze_does_not_count() {
        let mut freeze = Freeze::default();
        assert_eq!(freeze.before(100, 30), 70);
        freeze.begin(100, 30);
        freeze.end(200);
        assert_eq!([freeze.before(231, 30), freeze.before(210, 30)], [201, 70]);
        freeze.begin(220, 30);
        freeze.end(300);
        assert_eq!(freeze.before(310, 30), 70);
    }
}
