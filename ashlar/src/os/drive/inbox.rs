//! Inbox of a drive's thread: inputs of others, bounded, and completed IOs, bounded by what the drive has under way.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use ashlar_store::io::{IoError, IoId, IoOutput};
use ashlar_wire::time::Instant;

use super::DriveRefusal;
use crate::os::clock;

/// Inputs that wait; one more is refused. Each may hold 1 MiB.
pub(super) const INPUTS_MAX: usize = 1_024;

/// An IO that was executed.
#[derive(Debug)]
pub(super) struct Completion {
    pub(super) id: IoId,
    pub(super) result: Result<IoOutput, IoError>,
}

/// Everything that had come.
#[derive(Debug)]
pub(super) struct Batch<T> {
    pub(super) inputs: Vec<T>,
    pub(super) completions: Vec<Completion>,
}

impl<T> Default for Batch<T> {
    fn default() -> Self {
        Self { inputs: Vec::new(), completions: Vec::new() }
    }
}

#[derive(Debug)]
struct State<T> {
    batch: Batch<T>,
    is_stopped: bool,
    /// The drive's thread sleeps, and nobody has woken it yet. Else it looks at the batch by itself: a wake-up is a system call.
    is_asleep: bool,
}

/// The inbox, for inputs of one kind.
#[derive(Debug)]
pub(super) struct Inbox<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

impl<T> Default for Inbox<T> {
    fn default() -> Self {
        Self {
            state: Mutex::new(State { batch: Batch::default(), is_stopped: false, is_asleep: false }),
            changed: Condvar::new(),
        }
    }
}

impl<T> Inbox<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves an input for the drive's thread.
    pub(super) fn send(&self, input: T) -> Result<(), DriveRefusal> {
        let mut state = self.lock();
        if state.is_stopped {
            return Err(DriveRefusal::Stopped);
        }
        if state.batch.inputs.len() >= INPUTS_MAX {
            return Err(DriveRefusal::Busy);
        }
        state.batch.inputs.push(input);
        self.wake(state);
        Ok(())
    }

    /// Leaves several inputs for the drive's thread, and wakes it once. Those for which there is no room are lost.
    pub(super) fn send_all(&self, inputs: Vec<T>) {
        let mut state = self.lock();
        if state.is_stopped {
            return;
        }
        let room = INPUTS_MAX.saturating_sub(state.batch.inputs.len());
        state.batch.inputs.extend(inputs.into_iter().take(room));
        self.wake(state);
    }

    /// Leaves a completed IO.
    pub(super) fn complete(&self, completion: Completion) {
        let mut state = self.lock();
        state.batch.completions.push(completion);
        self.wake(state);
    }

    /// Wakes the drive's thread if it sleeps.
    fn wake(&self, mut state: MutexGuard<'_, State<T>>) {
        let is_asleep = core::mem::take(&mut state.is_asleep);
        drop(state);
        if is_asleep {
            self.changed.notify_one();
        }
    }

    /// Ends the drive's thread.
    pub(super) fn stop(&self) {
        let mut state = self.lock();
        state.is_stopped = true;
        self.wake(state);
    }

    /// Waits for something, or until `due`, and takes all of it; nothing if the drive is to stop.
    pub(super) fn wait(&self, due: Option<Instant>) -> Option<Batch<T>> {
        let mut state = self.lock();
        loop {
            if state.is_stopped {
                return None;
            }
            let is_empty = state.batch.inputs.is_empty() && state.batch.completions.is_empty();
            let span = due.map(|due| due.saturating_since(clock::now()));
            if !is_empty || span.is_some_and(|span| span.is_zero()) {
                return Some(core::mem::take(&mut state.batch));
            }
            state.is_asleep = true;
            state = match span {
                Some(span) => self.changed.wait_timeout(state, span).unwrap_or_else(PoisonError::into_inner).0,
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
            state.is_asleep = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ashlar_node::volume::drive_port::DriveInput;
    use ashlar_wire::id::VolumeId;

    fn input() -> DriveInput {
        DriveInput::DeleteVolume(VolumeId::from_bytes([1; 16]))
    }

    #[test]
    fn a_full_inbox_refuses_and_an_emptied_one_takes_again() {
        let inbox = Inbox::default();
        (0..INPUTS_MAX).for_each(|_| inbox.send(input()).unwrap());
        assert_eq!(inbox.send(input()), Err(DriveRefusal::Busy));
        inbox.send_all(vec![input()]);
        // A completion is never refused: the drive's store bounds them.
        inbox.complete(Completion { id: IoId(1), result: Ok(IoOutput::Done) });
        let batch = inbox.wait(None).unwrap();
        assert_eq!((batch.inputs.len(), batch.completions.len()), (INPUTS_MAX, 1));
        inbox.send(input()).unwrap();
        inbox.stop();
        assert_eq!(inbox.send(input()), Err(DriveRefusal::Stopped));
        assert!(inbox.wait(None).is_none());
    }
}
