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
