//! Makes a life that shows a difference as short as can be found: fewer acts first, then fewer words.

use super::life::{Act, Life};

/// Lives that are tried.
const TRIES_MAX: usize = 3_000;

/// A shorter life that `fails` too.
pub(crate) fn shrink(life: &Life, fails: &mut dyn FnMut(&Life) -> bool) -> Life {
    let (mut best, mut tries) = (life.clone(), 0);
    let mut attempt = |best: &mut Life, candidate: Life| {
        tries += 1;
        let is_shorter = tries <= TRIES_MAX && fails(&candidate);
        if is_shorter {
            *best = candidate;
        }
        is_shorter
    };
    let mut size = best.acts.len().div_ceil(2);
    while size > 0 {
        let (mut at, mut has_changed) = (0, false);
        while at < best.acts.len() {
            let mut candidate = best.clone();
            candidate.acts.drain(at..(at + size).min(best.acts.len()));
            if attempt(&mut best, candidate) {
                has_changed = true;
            } else {
                at += size;
            }
        }
        if size > 1 || !has_changed {
            size /= 2;
        }
    }
    for at in 0..best.acts.len() {
        drop_words(&mut best, at, &mut attempt);
    }
    let mut candidate = best.clone();
    (candidate.settings, candidate.other_settings) = (Vec::new(), Vec::new());
    attempt(&mut best, candidate);
    best
}

/// Leaves out words of one request.
fn drop_words(best: &mut Life, act: usize, attempt: &mut dyn FnMut(&mut Life, Life) -> bool) {
    let mut at = 1;
    while let Act::Say(_, words) = &best.acts[act]
        && at < words.len()
    {
        let mut candidate = best.clone();
        if let Act::Say(_, words) = &mut candidate.acts[act] {
            words.remove(at);
        }
        if !attempt(best, candidate) {
            at += 1;
        }
    }
}
