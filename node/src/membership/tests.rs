//! What is left for the bus: limits, waking, the end.

use core::pin::pin;
use core::task::Context;
use std::task::Wake;

use super::*;

struct Woken(Mutex<u32>);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        *self.0.lock().unwrap() += 1;
    }
}

fn id(number: u8) -> ServerId {
    ServerId::from_bytes([number; 16])
}

#[test]
fn packets_beyond_the_limit_are_dropped_and_counted() {
    let membership = Membership::default();
    for number in 0..PACKETS_MAX + 3 {
        membership.handle_packet(id(1), &number.to_le_bytes());
    }
    let post = membership.take();
    assert_eq!((post.packets.len(), post.packets_dropped), (PACKETS_MAX, 3));
    assert_eq!(post.packets[0], (id(1), 0_usize.to_le_bytes().to_vec()), "the first to come is the first");
    membership.handle_packet(id(1), b"x");
    let post = membership.take();
    assert_eq!((post.packets.len(), post.packets_dropped), (1, 3), "there is room again");
}

#[test]
fn whatever_comes_wakes_the_bus_once() {
    let membership = Membership::default();
    let woken = Arc::new(Woken(Mutex::new(0)));
    let waker = woken.clone().into();
    let cx = Context::from_waker(&waker);
    assert!(membership.poll_post(&cx).is_pending());
    membership.handle_connected(id(1), "host1:7800");
    membership.handle_stored(0, Ticket(3), Duration::ZERO);
    assert_eq!(*woken.0.lock().unwrap(), 1);
    assert!(membership.poll_post(&cx).is_ready());
    let post = membership.take();
    assert_eq!((post.connected.len(), post.stored), (1, Some((0, Ticket(3), Duration::ZERO))));
    assert!(membership.poll_post(&cx).is_pending());
}

#[test]
fn nobody_waits_for_a_bus_that_has_ended() {
    let membership = Membership::default();
    let mut cx = Context::from_waker(Waker::noop());
    let shown = Arc::new(BusStatus { epoch: 7, ..BusStatus::default() });
    membership.show(shown.clone());
    {
        let mut asking = pin!(membership.status());
        let mut wishing = pin!(membership.forget(id(1), false));
        assert!(asking.as_mut().poll(&mut cx).is_pending() && wishing.as_mut().poll(&mut cx).is_pending());
        membership.close();
        assert_eq!(asking.as_mut().poll(&mut cx), Poll::Ready(shown.clone()));
        assert_eq!(wishing.as_mut().poll(&mut cx), Poll::Ready(Err(ForgetError::Busy)));
    }
    assert_eq!(pin!(membership.status()).poll(&mut cx), Poll::Ready(shown));
    membership.handle_packet(id(1), b"x");
    assert!(membership.take().packets.is_empty());
}

#[test]
fn wishes_beyond_the_limit_are_told_to_come_again() {
    let membership = Membership::default();
    let mut cx = Context::from_waker(Waker::noop());
    let mut wishes: Vec<_> = (0..=WISHES_MAX).map(|_| Box::pin(membership.forget(id(1), false))).collect();
    let ready = wishes.iter_mut().filter_map(|wish| match wish.as_mut().poll(&mut cx) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    });
    assert_eq!(ready.collect::<Vec<_>>(), [Err(ForgetError::Busy)]);
}
