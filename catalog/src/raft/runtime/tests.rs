//! A host as the runtime of openraft.

use std::sync::Mutex;

use ashlar_wire::id::ServerId;
use openraft::async_runtime::{
    Instant as _, Mpsc as _, MpscReceiver, MpscSender, MpscWeakSender, Oneshot as _, OneshotSender, TryRecvError,
    Watch as _, WatchReceiver, WatchSender,
};
use rand::TryRng as _;

use super::*;
use crate::raft::host::{StorageError, Unanswered};
use crate::raft::sample::{Still, at_once};

/// A host that is known by its random number.
struct Numbered(u64);

impl Host for Numbered {
    fn now(&self) -> Instant {
        Instant::ORIGIN
    }

    fn sleep_until(&self, _: Instant) -> BoxFuture<()> {
        Box::pin(std::future::pending())
    }

    fn spawn(&self, _: BoxFuture<()>) {}

    fn random(&self) -> u64 {
        self.0
    }

    fn call(&self, _: ServerId, _: Vec<u8>) -> BoxFuture<Result<Vec<u8>, Unanswered>> {
        Box::pin(std::future::pending())
    }
}

#[test]
fn a_host_is_the_current_one_inside_its_scope_alone() {
    let [outer, inner]: [Arc<dyn Host>; 2] = [Arc::new(Numbered(1)), Arc::new(Numbered(2))];
    within(&outer, || {
        assert_eq!(within(&inner, || HostRandom.try_next_u64()), Ok(2));
        assert_eq!(HostRandom.try_next_u64(), Ok(1), "again, once the other one's is over");
    });
    assert!(CURRENT.with(|current| current.borrow().is_none()));
}

#[test]
fn bytes_are_the_hosts_numbers_one_behind_the_other() {
    let host: Arc<dyn Host> = Arc::new(Numbered(0x0102_0304_0506_0708));
    let mut bytes = [0; 11];
    within(&host, || HostRandom.try_fill_bytes(&mut bytes)).unwrap();
    assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3]);
}

#[test]
fn random_numbers_are_the_hosts() {
    let host: Arc<dyn Host> = Arc::new(Numbered(0x0102_0304_0506_0708));
    within(&host, || {
        assert_eq!(HostRuntime::thread_rng().try_next_u32(), Ok(0x0102_0304));
        assert_eq!(HostRuntime::thread_rng().try_next_u64(), Ok(0x0102_0304_0506_0708));
    });
}

#[test]
fn instants_are_nanoseconds_that_stop_at_both_ends() {
    let span = Duration::from_nanos;
    for (at, by, later, earlier) in
        [(10, 0, 10, 10), (10, 3, 13, 7), (10, 12, 22, 0), (u64::MAX - 1, 3, u64::MAX, u64::MAX - 4)]
    {
        let instant = HostInstant(at);
        assert_eq!((instant + span(by), instant - span(by)), (HostInstant(later), HostInstant(earlier)));
        let (mut forth, mut back) = (instant, instant);
        forth += span(by);
        back -= span(by);
        assert_eq!((forth, back), (HostInstant(later), HostInstant(earlier)));
        assert_eq!((forth - instant, instant - forth), (span(later - at), Duration::ZERO));
    }
    assert_eq!(HostInstant(5) + Duration::MAX, HostInstant(u64::MAX), "further than there is time");
    let still = Still::new(70);
    let host: Arc<dyn Host> = still;
    assert_eq!(within(&host, HostInstant::now), HostInstant(70));
}

#[test]
fn tasks_sleep_by_the_clock_of_their_host() {
    let still = Still::new(70);
    let host: Arc<dyn Host> = still.clone();
    within(&host, || {
        drop(HostRuntime::sleep(Duration::from_nanos(5)));
        drop(HostRuntime::sleep_until(HostInstant(90)));
        drop(HostRuntime::timeout(Duration::from_nanos(30), std::future::pending::<()>()));
        assert_eq!(*still.sleeps.lock().unwrap(), [75, 90, 100].map(Instant::from_nanos));
        at_once(HostRuntime::sleep(Duration::ZERO));
        let at = |deadline| HostRuntime::timeout_at(HostInstant(deadline), std::future::ready(1));
        assert_eq!([at_once(at(80)), at_once(at(60))], [Ok(1), Ok(1)], "what is ready is not late");
        let late = HostRuntime::timeout_at(HostInstant(60), std::future::pending::<u8>());
        assert_eq!(at_once(late), Err(DeadlinePassed));
    });
}

#[test]
fn a_task_gives_its_result_or_was_dropped() {
    let host: Arc<dyn Host> = Still::new(0);
    let handle = within(&host, || HostRuntime::spawn(async { HostRandom.try_next_u64() }));
    assert_eq!(at_once(handle), Ok(Ok(host.random())), "it ran with its host");
    let drops: Arc<dyn Host> = Arc::new(Numbered(1));
    let handle = within(&drops, || HostRuntime::spawn(async { 1 }));
    assert_eq!(at_once(handle), Err(TaskDropped));
    assert!(!HostRuntime::is_panic(&TaskDropped));
}

/// Notes the host that is current while it is dropped.
struct NotesHost(Arc<Mutex<Vec<u64>>>);

impl Drop for NotesHost {
    fn drop(&mut self) {
        self.0.lock().unwrap().push(current().random());
    }
}

#[test]
fn a_future_is_dropped_with_its_host() {
    let seen: Arc<Mutex<Vec<u64>>> = Arc::default();
    let notes = NotesHost(seen.clone());
    let future = async move {
        let _notes = notes;
        std::future::pending::<()>().await;
    };
    drop(Scoped::new(Arc::new(Numbered(4)), future));
    assert_eq!(*seen.lock().unwrap(), [4]);
}

/// Openraft sees the channels through traits of its own.
#[test]
fn channels_of_raft_tell_who_is_gone() {
    let (sender, receiver) = HostOneshot::channel();
    assert_eq!(OneshotSender::send(sender, 1), Ok(()));
    assert_eq!(at_once(receiver), Ok(1));
    let (sender, receiver) = HostOneshot::channel();
    drop(receiver);
    assert_eq!(OneshotSender::send(sender, 1), Err(1));

    let (sender, mut receiver) = HostMpsc::channel(2);
    let weak = MpscSender::downgrade(&sender);
    at_once(MpscSender::send(&sender, 1)).unwrap();
    at_once(MpscSender::send(&weak.upgrade().unwrap(), 2)).unwrap();
    assert_eq!(at_once(MpscReceiver::recv(&mut receiver)), Some(1));
    assert_eq!(MpscReceiver::try_recv(&mut receiver), Ok(2));
    assert_eq!(MpscReceiver::try_recv(&mut receiver), Err(TryRecvError::Empty));
    drop(sender);
    assert_eq!(MpscReceiver::try_recv(&mut receiver), Err(TryRecvError::Disconnected));
    assert!(MpscWeakSender::upgrade(&weak).is_none());
    let (sender, receiver) = HostMpsc::channel(1);
    drop(receiver);
    assert_eq!(at_once(MpscSender::send(&sender, 5)).unwrap_err().0, 5);

    let (sender, mut receiver) = HostWatch::channel(1);
    WatchSender::send(&sender, 2).unwrap();
    assert_eq!(at_once(WatchReceiver::changed(&mut receiver)), Ok(()));
    assert_eq!((*receiver.borrow_watched(), *sender.borrow_watched()), (2, 2));
    let set = |to: i32, says: bool| {
        let modify = move |value: &mut i32| {
            *value = to;
            says
        };
        WatchSender::send_if_modified(&sender, modify)
    };
    assert_eq!([set(3, true), set(4, false)], [true, false]);
    assert_eq!(*WatchReceiver::borrow_and_update(&mut receiver), 4);
    drop(receiver);
    assert_eq!(WatchSender::send(&sender, 6).unwrap_err().0, 6);
    let mut late = WatchSender::subscribe(&sender);
    drop(sender);
    assert!(at_once(WatchReceiver::changed(&mut late)).is_err());
}

#[test]
fn what_people_read_when_something_is_gone() {
    let texts = [
        (TaskDropped.to_string(), "the task was dropped"),
        (DeadlinePassed.to_string(), "the deadline has passed"),
        (oneshot::Canceled.to_string(), "the sender is gone"),
        (Unanswered.to_string(), "the server did not answer"),
        (StorageError("no room".into()).to_string(), "the catalog's log cannot be written: no room"),
    ];
    for (text, expected) in texts {
        assert_eq!(text, expected);
    }
}
