//! Wakers that remember whether they were woken.

use core::sync::atomic::{AtomicBool, Ordering};
use core::task::Waker;
use std::sync::Arc;
use std::task::Wake;

#[derive(Debug, Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One task: whoever is told to wait must be woken before he would not have to.
#[derive(Debug)]
pub struct Watch<Kind> {
    flag: Arc<Flag>,
    waits_for: Option<Kind>,
}

impl<Kind> Default for Watch<Kind> {
    fn default() -> Self {
        Self { flag: Arc::default(), waits_for: None }
    }
}

impl<Kind: Copy + PartialEq> Watch<Kind> {
    pub fn waker(&self) -> Waker {
        self.flag.clone().into()
    }

    pub fn is_woken(&self) -> bool {
        self.flag.0.load(Ordering::Relaxed)
    }

    /// Notes what a poll came to.
    pub fn note(&mut self, kind: Kind, ready: bool) {
        assert!(!ready || self.waits_for != Some(kind) || self.is_woken(), "nobody woke the one who waits");
        self.waits_for = (!ready).then_some(kind);
        self.flag.0.store(false, Ordering::Relaxed);
    }
}
