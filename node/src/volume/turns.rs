//! Turns of those who attach a volume at this server: one at a time for each volume.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ashlar_wire::id::VolumeId;

use crate::promise::{Promise, promise};

/// Volumes whose turn is taken, and who waits for it. Callers bound how many wait.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<BTreeMap<VolumeId, Vec<Promise<()>>>>);

impl Turns {
    /// Waits until nobody has the volume's turn, and takes it until the result is dropped.
    pub(super) async fn take(&self, volume: VolumeId) -> Turn<'_> {
        loop {
            let ended = {
                let mut taken = self.lock();
                let Some(waiting) = taken.get_mut(&volume) else {
                    taken.insert(volume, Vec::new());
                    return Turn { turns: self, volume };
                };
                let (kept, ended) = promise();
                waiting.push(kept);
                ended
            };
            ended.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<VolumeId, Vec<Promise<()>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A turn that is taken.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    volume: VolumeId,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let waiting = self.turns.lock().remove(&self.volume);
        for promise in waiting.into_iter().flatten() {
            promise.keep(());
        }
    }
}

#[cfg(test)]
mod tests {
    use core::pin::pin;
    use core::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn one_at_a_time_for_each_volume() {
        let (turns, one, other) = (Turns::default(), VolumeId::from_bytes([1; 16]), VolumeId::from_bytes([2; 16]));
        let mut cx = Context::from_waker(Waker::noop());
        let Poll::Ready(first) = pin!(turns.take(one)).poll(&mut cx) else { panic!("nobody has it") };
        let (mut second, mut third) = (pin!(turns.take(one)), pin!(turns.take(one)));
        assert!(second.as_mut().poll(&mut cx).is_pending() && third.as_mut().poll(&mut cx).is_pending());
        assert!(pin!(turns.take(other)).poll(&mut cx).is_ready(), "another volume's turn is free");
        drop(first);
        let Poll::Ready(second) = second.as_mut().poll(&mut cx) else { panic!("the first has ended") };
        assert!(third.as_mut().poll(&mut cx).is_pending(), "the second has it");
        drop(second);
        assert!(third.as_mut().poll(&mut cx).is_ready());
        assert!(turns.lock().is_empty());
    }
}
