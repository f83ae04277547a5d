//! Calls of the peer whose handlers may wait.

use super::*;
use crate::handler::tests::Echo;

/// Bytes written after two turns, and tasks made, for `calls` calls whose handler waits if `waits`.
fn serve(calls: u32, waits: bool, step: Duration) -> (usize, u32, Setup) {
    let handlers = Handlers::new().serve::<Echo, _>(move |_, request| async move {
        if waits {
            core::future::pending::<()>().await;
        }
        Ok(request)
    });
    let mut setup = Setup::with(Still { step, ..Still::default() }, handlers.expect("the first"), calls);
    setup.turn();
    let (written, _) = setup.turn();
    let tasks = *setup.runtime.tasks.lock().expect("nobody panics with it");
    (written, tasks, setup)
}

#[test]
fn one_that_does_not_wait_is_answered_where_it_was_read() {
    let (written, tasks, setup) = serve(20, false, Duration::ZERO);
    assert!(written > 20 * PAYLOAD.len() && tasks == 0, "{written} bytes, {tasks} tasks");
    assert_eq!(setup.link.lock().counters().calls_in, 20);
    // The answer to this side's own call, and twenty calls.
    assert_eq!(setup.link.lock().counters().messages_in, 21);
}

#[test]
fn one_that_waits_is_a_task() {
    let (written, tasks, setup) = serve(20, true, Duration::ZERO);
    // A task that is dropped says that its handler failed.
    assert!(written < 20 * 100 && tasks == 20, "{written} bytes, {tasks} tasks");
    let mux = setup.link.lock();
    assert_eq!((mux.counters().calls_in, mux.in_flight().1), (20, 0));
}

#[test]
fn beyond_the_budget_of_a_batch_calls_begin_as_tasks() {
    let (_, tasks, _) = serve(20, false, Duration::from_micros(60));
    assert_eq!(tasks, 12, "the clock is looked at after four calls and after eight");
}

/// How many calls begin of one whose cancel comes so many batches behind it, where each look at the clock takes so long.
fn begun(batches: usize, step: Duration) -> u32 {
    let begun = Arc::new(Mutex::new(0));
    let counting = begun.clone();
    let handlers = Handlers::new().serve::<Echo, _>(move |_, _| {
        *counting.lock().expect("nobody panics with it") += 1;
        core::future::pending()
    });
    let mut setup = Setup::with(Still { step, ..Still::default() }, handlers.expect("the first"), 0);
    setup.turn();
    setup.turn();
    for at in 0..=batches {
        let op = if at == 0 { Op::Call } else { Op::Cancel };
        let slot = if at == 0 || at == batches { 1 } else { 100 };
        let mut segment = Segment::new(Vec::new());
        let header = Header { handler: 1, ..Header::new(op, MuxId { slot, generation: 1 }, 0) };
        encode(segment.payload_mut(), &header, &[], None);
        segment.seal(Side::Acceptor);
        setup.driver.wire.incoming.push_back(segment.as_bytes().to_vec());
    }
    for _ in 0..4 {
        setup.turn();
    }
    *begun.lock().expect("nobody panics with it")
}

/// What was given up while the connection's task did not run is given up before it begins.
#[test]
fn who_was_away_for_long_reads_on_before_anything_is_served() {
    let (short, long) = (Duration::from_micros(1), Duration::from_millis(60));
    for (batches, step, expected) in [(1, short, 1), (1, long, 0), (7, long, 0), (8, long, 1)] {
        assert_eq!(begun(batches, step), expected, "{batches} batches behind, {step:?}");
    }
}
