//! Served handlers: where the futures of their calls lie.
//!
//! A call's future lies in a [`Place`]: memory that the next call of the same handler uses again, so that a call that does not
//! wait allocates nothing for it. Whoever runs calls takes a place from the handler and gives it back.

use core::fmt;
use core::future::Future;
use core::marker::PhantomData;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use std::sync::{Arc, Mutex, PoisonError};

use super::{Answered, CallContext, Method, Payload};
use crate::error::Refusal;

/// Places that a handler keeps for further calls.
const SPARE_MAX: usize = 32;
/// Bytes of an answer's buffer that are kept for the next request.
const ROOM_MAX: usize = 64 << 10;

/// The bytes of a request.
pub(crate) enum Request<'a> {
    /// They stay where they were read.
    Borrowed(&'a [u8]),
    /// They came in parts, and are the handler's.
    Owned(Vec<u8>),
}

/// The future of one call at a time.
pub(crate) trait Place: Send {
    /// Makes the future of a call; false, and there is none, where `request` is none of this handler.
    fn begin(&mut self, context: CallContext, request: Request<'_>) -> bool;

    /// Goes on with the call that was begun; its answer is appended to `answer`.
    ///
    /// # Panics
    /// No call was begun, or it has been answered.
    fn poll(&mut self, cx: &mut Context<'_>, answer: &mut Vec<u8>) -> Poll<Answered>;

    /// Drops what there is of a call.
    fn clear(&mut self);
}

type MakePlace = dyn Fn() -> Box<dyn Place> + Send + Sync;

/// A handler whose calls may wait.
pub struct Served {
    make: Box<MakePlace>,
    spare: Mutex<Vec<Box<dyn Place>>>,
}

impl Served {
    pub(super) fn new<M: Method, F>(handler: impl Fn(CallContext, M::Request) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<M::Reply, Refusal>> + Send + 'static,
    {
        let handler = Arc::new(handler);
        let make = move || -> Box<dyn Place> {
            Box::new(Typed::<M, _, F> {
                handler: handler.clone(),
                future: Box::pin(None),
                room: Vec::new(),
                method: PhantomData,
            })
        };
        Self { make: Box::new(make), spare: Mutex::new(Vec::new()) }
    }

    /// A place for one call, or for one after the other.
    pub(crate) fn take_place(&self) -> Box<dyn Place> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        spare.unwrap_or_else(|| (self.make)())
    }

    /// Takes a place back, without what may be left of a call.
    pub(crate) fn give_back(&self, mut place: Box<dyn Place>) {
        place.clear();
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < SPARE_MAX {
            spare.push(place);
        }
    }
}

impl fmt::Debug for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Served")
    }
}

/// The place of a handler of method `M`, with its types.
struct Typed<M, H, F> {
    handler: Arc<H>,
    future: Pin<Box<Option<F>>>,
    /// The buffer of the last answer, for the next request.
    room: Vec<u8>,
    method: PhantomData<fn() -> M>,
}

impl<M, H, F> Place for Typed<M, H, F>
where
    M: Method,
    H: Fn(CallContext, M::Request) -> F + Send + Sync,
    F: Future<Output = Result<M::Reply, Refusal>> + Send,
{
    fn begin(&mut self, context: CallContext, request: Request<'_>) -> bool {
        let request = match request {
            Request::Borrowed(bytes) => M::Request::decode_into(bytes, core::mem::take(&mut self.room)),
            Request::Owned(bytes) => M::Request::take(bytes),
        };
        let future = request.map(|request| (self.handler)(context, request));
        self.future.as_mut().set(future.ok());
        self.future.is_some()
    }

    fn poll(&mut self, cx: &mut Context<'_>, answer: &mut Vec<u8>) -> Poll<Answered> {
        let future = self.future.as_mut().as_pin_mut().expect("a call is polled between its beginning and its answer");
        let result = ready!(future.poll(cx));
        self.future.as_mut().set(None);
        Poll::Ready(match result {
            Ok(reply) => {
                self.room = reply.append_to(answer);
                if self.room.capacity() > ROOM_MAX {
                    self.room = Vec::new();
                }
                Answered::Ok
            }
            Err(refusal) => Answered::Refused(refusal),
        })
    }

    fn clear(&mut self) {
        self.future.as_mut().set(None);
    }
}

#[cfg(test)]
mod tests {
    use core::future::{poll_fn, ready};
    use core::task::Waker;

    use ashlar_wire::id::ServerId;
    use ashlar_wire::time::Instant;

    use super::*;
    use crate::cancel::Cancelled;
    use crate::handler::tests::Echo;

    fn context() -> CallContext {
        CallContext { caller: ServerId::from_bytes([1; 16]), deadline: Instant::NEVER, cancelled: Cancelled::default() }
    }

    fn poll(place: &mut dyn Place, answer: &mut Vec<u8>) -> Poll<Answered> {
        place.poll(&mut Context::from_waker(Waker::noop()), answer)
    }

    #[test]
    fn a_place_is_used_again_and_so_is_the_room_of_an_answer() {
        let served = Served::new::<Echo, _>(|_, request| ready(Ok(request)));
        let mut place = served.take_place();
        let mut answer = Vec::new();
        for round in 0..3_u8 {
            answer.clear();
            assert!(place.begin(context(), Request::Borrowed(&[round; 100])));
            assert_eq!(poll(&mut *place, &mut answer), Poll::Ready(Answered::Ok));
            assert_eq!(answer, [round; 100]);
        }
        let at: *const () = (&raw const *place).cast();
        served.give_back(place);
        assert_eq!((&raw const *served.take_place()).cast(), at, "the same");
    }

    #[test]
    fn large_payloads_are_moved() {
        let served = Served::new::<Echo, _>(|_, request| ready(Ok(request)));
        let mut place = served.take_place();
        let request = vec![7; 64 << 10];
        let (at, mut answer) = (request.as_ptr(), Vec::new());
        assert!(place.begin(context(), Request::Owned(request)));
        assert_eq!(poll(&mut *place, &mut answer), Poll::Ready(Answered::Ok));
        assert_eq!((answer.as_ptr(), answer.len()), (at, 64 << 10), "in and out without a copy");
        // Behind what is there already it is appended.
        assert!(place.begin(context(), Request::Owned(vec![8; 64 << 10])));
        assert_eq!(poll(&mut *place, &mut answer), Poll::Ready(Answered::Ok));
        assert_eq!((answer.len(), answer[0], answer[64 << 10]), (128 << 10, 7, 8));
    }

    #[test]
    fn what_is_left_of_a_call_goes_with_it() {
        let held = Arc::new(());
        let kept = held.clone();
        let served = Served::new::<Echo, _>(move |_, request: Vec<u8>| {
            let kept = kept.clone();
            async move {
                let _kept = kept;
                poll_fn(|_| Poll::<()>::Pending).await;
                Ok(request)
            }
        });
        let mut place = served.take_place();
        assert!(place.begin(context(), Request::Borrowed(b"wait")));
        assert!(poll(&mut *place, &mut Vec::new()).is_pending());
        assert_eq!(Arc::strong_count(&held), 3);
        served.give_back(place);
        assert_eq!(Arc::strong_count(&held), 2, "the future is dropped, its place is not");
    }

    #[test]
    fn no_more_places_are_kept_than_the_limit() {
        let served = Served::new::<Echo, _>(|_, request| ready(Ok(request)));
        let places: Vec<_> = (0..2 * SPARE_MAX).map(|_| served.take_place()).collect();
        places.into_iter().for_each(|place| served.give_back(place));
        assert_eq!(served.spare.lock().unwrap().len(), SPARE_MAX);
    }
}
