//! Bulk connections: as many as are needed up to the limit, and gone when they are not used.

use core::future::pending;

use super::*;

/// Never answers.
const WAIT: HandlerId = HandlerId::new(1);

struct Wait;

impl Method for Wait {
    const ID: HandlerId = WAIT;
    type Request = Vec<u8>;
    type Reply = Vec<u8>;
}

/// Answers at once.
struct Quick;

impl Method for Quick {
    const ID: HandlerId = HandlerId::new(2);
    const LANE: Lane = Lane::Bulk;
    type Request = Vec<u8>;
    type Reply = Vec<u8>;
}

fn setup(pool: usize) -> Setup {
    let handlers = |handlers: Handlers| {
        let handlers = handlers.serve::<Wait, _>(|_, _| pending()).expect("the first");
        handlers.serve::<Quick, _>(|_, request| core::future::ready(Ok(request))).expect("the first")
    };
    Setup::with(|config| config.bulk_pool_max = pool, handlers).connected()
}

fn bulk_connections(setup: &Setup) -> [usize; 2] {
    setup.servers.each_ref().map(|server| server.status().bulk_connections)
}

/// Starts a call that takes long.
fn start(setup: &Setup) -> Pin<Box<dyn Future<Output = Result<Vec<u8>, CallError>>>> {
    let peer = setup.handle();
    let mut call = Box::pin(async move {
        let request = Arc::new(vec![7; BULK_THRESHOLD]);
        peer.call_large(WAIT, request, CallOptions::default()).await
    });
    assert_eq!(setup.world.within(10, call.as_mut()), None);
    call
}

#[test]
fn calls_at_once_share_no_connection_up_to_the_limit() {
    let setup = setup(3);
    let quick = || setup.world.now(setup.handle().call::<Quick>(&vec![1], CallOptions::default()));
    for _ in 0..5 {
        assert_eq!(quick(), Ok(vec![1]));
        assert_eq!(bulk_connections(&setup), [1, 1], "one after the other needs one");
    }
    let mut calls = Vec::new();
    for (started, expected) in [1, 2, 3, 3, 3, 3].into_iter().enumerate() {
        calls.push(start(&setup));
        assert_eq!(bulk_connections(&setup), [expected; 2], "{started}");
    }
    let handled = |setup: &Setup| {
        setup.servers[1].grid.0.links().iter().map(|link| link.lock().in_flight().1).collect::<Vec<_>>()
    };
    assert_eq!(handled(&setup), [0, 2, 2, 2], "in turn; none of them is the small one");
    calls.clear();
    setup.world.run();
    assert_eq!((handled(&setup), bulk_connections(&setup)), (vec![0; 4], [3, 3]));
    assert_eq!(setup.servers.each_ref().map(|server| server.grid.counters().connects), [1, 1], "of the small lane");
}

#[test]
fn an_unused_one_is_closed_and_a_used_one_is_not() {
    let setup = setup(2);
    let call = start(&setup);
    let second = start(&setup);
    assert_eq!(bulk_connections(&setup), [2, 2]);
    drop(second);
    // The call ends with its deadline of 30 s, and so long nothing closes the connection under it.
    setup.world.pass(29_900);
    assert_eq!(setup.servers[1].grid.0.links().iter().map(|link| link.lock().in_flight().1).sum::<usize>(), 1);
    drop(call);
    setup.world.pass(65_000);
    assert_eq!(bulk_connections(&setup), [0, 0]);
    assert_eq!(setup.servers.each_ref().map(Server::connected), [1, 1], "the small one stays");
    assert_eq!(setup.servers.each_ref().map(|server| server.events().len()), [0, 0], "nothing to report");
    assert_eq!(setup.servers.each_ref().map(|server| server.grid.counters().losses), [0, 0]);
    let quick = |setup: &Setup| setup.world.now(setup.handle().call::<Quick>(&vec![1], CallOptions::default()));
    for _ in 0..10 {
        assert_eq!(quick(&setup), Ok(vec![1]));
        setup.world.pass(20_000);
        assert_eq!(bulk_connections(&setup), [1, 1], "it is used every now and then");
    }
}

#[test]
fn where_none_can_be_had_the_small_one_serves() {
    let setup = setup(0);
    let call = start(&setup);
    assert_eq!((bulk_connections(&setup), setup.servers[1].status().calls_handled), ([0, 0], 1));
    drop(call);
    // Nobody listens: the dial fails, and the call goes on.
    let setup = self::setup(2);
    let listeners = core::mem::take(&mut *locked(&setup.world.listeners));
    let quick = setup.world.within(1_000, setup.handle().call::<Quick>(&vec![1], CallOptions::default()));
    assert_eq!(quick, Some(Ok(vec![1])));
    assert_eq!((bulk_connections(&setup), setup.servers[0].grid.counters().dials_failed), ([0, 0], 1));
    assert_eq!(setup.servers[0].status().last_error.as_deref(), Some("nobody there"));
    *locked(&setup.world.listeners) = listeners;
    let quick = setup.world.within(1_000, setup.handle().call::<Quick>(&vec![1], CallOptions::default()));
    assert_eq!((quick, bulk_connections(&setup)), (Some(Ok(vec![1])), [1, 1]), "the next one tries again");
}

/// A server accepts twice as many as it opens itself: both sides may have as many.
#[test]
fn more_than_both_sides_may_open_are_refused() {
    let world = Arc::new(World::default());
    let handlers = || Handlers::new().serve::<Wait, _>(|_, _| pending()).expect("the first");
    let servers = [(0, 9), (1, 3)].map(|(number, pool)| {
        let config = GridConfig { bulk_pool_max: pool, ..config(number) };
        Setup::server(&world, config, handlers())
    });
    let setup = Setup { world, servers }.connected();
    let calls: Vec<_> = (0..8).map(|_| start(&setup)).collect();
    assert_eq!(bulk_connections(&setup), [6, 6]);
    let rejected = setup.servers[1].grid.counters().rejected.other;
    assert_eq!((rejected, setup.servers[0].grid.counters().dials_failed), (2, 2));
    let busy = format!("refused by the peer: {}", crate::hello::RefusalCode::Busy);
    assert_eq!(setup.servers[0].status().last_error, Some(busy), "it is told why");
    drop(calls);
}

#[test]
fn those_that_are_being_opened_count() {
    let setup = setup(2);
    setup.servers[1].host.is_stopped.store(true, Ordering::Relaxed);
    let calls: Vec<_> = (0..4).map(|_| start(&setup)).collect();
    let dials = locked(&setup.world.dials).iter().filter(|(.., lane)| *lane == Lane::Bulk).count();
    assert_eq!(dials, 2);
    setup.servers[1].host.is_stopped.store(false, Ordering::Relaxed);
    setup.world.pass(100);
    assert_eq!(bulk_connections(&setup), [2, 2]);
    drop(calls);
}

#[test]
fn they_outlive_the_small_one_and_each_other() {
    let setup = setup(2);
    let calls = [start(&setup), start(&setup)];
    let links = setup.servers[0].grid.0.links();
    links[0].lock().close(Lost::Broken);
    setup.world.run();
    assert_eq!(setup.servers[0].status().bulk_connections, 2, "the small one is gone, or another one");
    links[1].lock().close(Lost::Broken);
    setup.world.run();
    assert_eq!(setup.servers[0].status().bulk_connections, 1);
    drop(calls);
}

#[test]
fn stopping_ends_them_too() {
    let setup = setup(2);
    let calls = [start(&setup), start(&setup)];
    setup.servers[0].grid.stop();
    setup.world.pass(100);
    for call in calls {
        let lost = CallError::Unknown(Reason::Disconnected(Lost::Shutdown));
        assert_eq!(setup.world.within(100, call), Some(Err(lost)));
    }
    assert_eq!(setup.servers[0].grid.tasks(), 0);
}
