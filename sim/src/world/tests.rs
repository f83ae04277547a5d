//! The world itself, shown with plain futures.

use core::future::poll_fn;
use core::time::Duration;
use std::collections::BTreeSet;
use std::io::IoSlice;
use std::sync::atomic::{AtomicU64, Ordering};

use ashlar_grid::seam::{Lane, Runtime, Threads as _, Wire, WireError};

use super::*;
use crate::net::{ConnId, Listener, Side, SimWire};

const ADDR: &str = "b:9000";

/// What tasks leave behind for the test to look at.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<(u64, String)>>>);

impl Log {
    fn say(&self, control: &Control, what: impl Into<String>) {
        self.0.lock().unwrap().push((control.now_ns(), what.into()));
    }

    fn words(&self) -> Vec<String> {
        self.0.lock().unwrap().iter().map(|(_, what)| what.clone()).collect()
    }

    fn times_ns(&self) -> Vec<u64> {
        self.0.lock().unwrap().iter().map(|(at_ns, _)| *at_ns).collect()
    }
}

async fn read(wire: &mut SimWire) -> Result<Vec<u8>, WireError> {
    let mut bytes = Vec::new();
    let len = poll_fn(|cx| wire.poll_read(cx, &mut |batch| bytes.extend_from_slice(batch))).await?;
    assert_eq!(len, bytes.len());
    Ok(bytes)
}

async fn write_all(wire: &mut SimWire, mut bytes: &[u8]) -> Result<(), WireError> {
    while !bytes.is_empty() {
        let (head, tail) = bytes.split_at(bytes.len() / 2);
        let len = poll_fn(|cx| wire.poll_write(cx, &[IoSlice::new(head), IoSlice::new(tail)])).await?;
        assert!(len > 0);
        bytes = &bytes[len..];
    }
    Ok(())
}

/// Reads to the end, orderly or not, and returns every byte and how it ended.
async fn read_to_end(wire: &mut SimWire) -> (Vec<u8>, Result<(), WireError>) {
    let mut all = Vec::new();
    loop {
        match read(wire).await {
            Ok(bytes) if bytes.is_empty() => return (all, Ok(())),
            Ok(bytes) => all.extend(bytes),
            Err(error) => return (all, Err(error)),
        }
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 % 251) as u8).collect()
}

fn exact_link() -> LinkOptions {
    LinkOptions { latency_ns: 1_000_000, jitter_ns: 0, bytes_per_s: 0, ..LinkOptions::default() }
}

/// Two servers: `a` dials, `b` listens.
struct Two {
    world: World,
    a: ServerNo,
    b: ServerNo,
    dialer: SimRuntime,
    acceptor: SimRuntime,
    log: Log,
}

fn two(options: WorldOptions) -> Two {
    let world = World::new(options);
    let (a, b) = (world.add_server("a"), world.add_server("b"));
    let (dialer, acceptor) = (world.start(a), world.start(b));
    Two { world, a, b, dialer, acceptor, log: Log::default() }
}

impl Two {
    /// Runs `dialing` on `a` with one end of a new connection, `accepting` on `b` with the other.
    fn connect<D, A>(
        &self,
        dialing: impl FnOnce(SimWire) -> D + Send + 'static,
        accepting: impl FnOnce(SimWire) -> A + Send + 'static,
    ) where
        D: Future<Output = ()> + Send + 'static,
        A: Future<Output = ()> + Send + 'static,
    {
        let listener = self.acceptor.listen(ADDR).unwrap();
        self.acceptor.spawn(Box::pin(async move { accepting(listener.accept().await.0).await }));
        let dial = self.dialer.dial(ADDR, Lane::Small);
        self.dialer.spawn(Box::pin(async move { dialing(dial.await.unwrap()).await }));
    }

    /// `a` writes `len` bytes and closes; `b` logs how many it got and how it ended.
    fn transfer(&self, len: usize) {
        let (control, log) = (self.world.control(), self.log.clone());
        self.connect(
            move |mut wire| async move {
                let _lost = write_all(&mut wire, &pattern(len)).await;
            },
            move |mut wire| async move {
                let (bytes, end) = read_to_end(&mut wire).await;
                assert_eq!(bytes, pattern(bytes.len()));
                log.say(&control, format!("{} {}", bytes.len(), end.is_ok()));
            },
        );
    }

    fn only_conn(&self) -> ConnId {
        let conns = self.world.connections();
        assert_eq!(conns.len(), 1);
        conns[0].id
    }
}

#[test]
fn timers_fire_in_order_and_never_early() {
    for drift_ppm in [-10_000, 0, 10_000] {
        let Two { mut world, a, dialer, log, .. } = two(WorldOptions::default());
        world.set_drift(a, drift_ppm);
        for ms in [30, 10, 20, 10] {
            let (runtime, control, log) = (dialer.clone(), world.control(), log.clone());
            dialer.spawn(Box::pin(async move {
                let at = runtime.now() + Duration::from_millis(ms);
                runtime.sleep_until(at).await;
                assert!(runtime.now() >= at);
                log.say(&control, ms.to_string());
            }));
        }
        assert_eq!(world.run(), Ok(Stop::Quiet));
        assert_eq!(log.words(), ["10", "10", "20", "30"]);
        let last_ns = *log.times_ns().last().unwrap();
        let expected_ns = 30_000_000 * 1_000_000 / u64::from(1_000_000_u32.wrapping_add_signed(drift_ppm));
        assert!(last_ns.abs_diff(expected_ns) <= 1, "{last_ns} {expected_ns}");
    }
}

#[test]
fn a_dropped_sleep_leaves_nothing() {
    let Two { mut world, dialer, .. } = two(WorldOptions::default());
    let sleep = dialer.sleep_until(dialer.now() + Duration::from_secs(5));
    dialer.spawn(Box::pin(async move {
        let mut sleep = sleep;
        poll_fn(|cx| {
            assert!(sleep.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
    }));
    assert_eq!(world.run(), Ok(Stop::Quiet));
    assert_eq!((world.now_ns(), world.counts()), (0, Counts::default()));
}

#[test]
fn bytes_arrive_whole_and_in_order() {
    for seed in 0..20 {
        let options = WorldOptions {
            seed,
            shuffle_tasks: true,
            shuffle_ties: true,
            short_reads_ppm: 500_000,
            short_writes_ppm: 500_000,
            send_bytes_max: 7_000,
            receive_bytes_max: 5_000,
            link: LinkOptions { jitter_ns: 300_000, segment_bytes_max: 1_448, loss_ppm: 50_000, ..exact_link() },
            ..WorldOptions::default()
        };
        let mut two = two(options);
        two.transfer(200_000);
        assert_eq!(two.world.run(), Ok(Stop::Quiet));
        assert_eq!(two.log.words(), ["200000 true"], "seed {seed}");
        assert_eq!(two.world.counts(), Counts::default());
    }
}

#[test]
fn both_ends_share_a_secret_that_no_other_connection_has() {
    let mut two = two(WorldOptions::default());
    let listener = two.acceptor.listen(ADDR).unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    for lane in [Lane::Small, Lane::Bulk] {
        let (dial, seen) = (two.dialer.dial(ADDR, lane), Arc::clone(&seen));
        two.dialer.spawn(Box::pin(async move {
            let wire = dial.await.unwrap();
            seen.lock().unwrap().push((lane, wire.channel_binding()));
        }));
    }
    let accepted = Arc::clone(&seen);
    two.acceptor.spawn(Box::pin(async move {
        for _ in 0..2 {
            let (wire, lane) = listener.accept().await;
            accepted.lock().unwrap().push((lane, wire.channel_binding()));
        }
    }));
    assert_eq!(two.world.run(), Ok(Stop::Quiet));
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 4);
    assert_eq!(seen.iter().copied().collect::<BTreeSet<_>>().len(), 2);
}

#[test]
fn a_slow_link_takes_its_time() {
    let link = LinkOptions { bytes_per_s: 1_000_000, ..exact_link() };
    let mut two = two(WorldOptions { link, ..WorldOptions::default() });
    two.transfer(3_000_000);
    assert_eq!(two.world.run(), Ok(Stop::Quiet));
    assert_eq!(two.log.words(), ["3000000 true"]);
    // Dialing takes 4 ms, the line 3 s, the last byte 1 ms of travel.
    let took_ns = two.log.times_ns()[0];
    assert!((3_005_000_000..3_006_000_000).contains(&took_ns), "{took_ns}");
}

#[test]
fn connections_share_a_link_in_turns() {
    let link = LinkOptions { bytes_per_s: 1_000_000, segment_bytes_max: 1_000, ..exact_link() };
    let mut two = two(WorldOptions { link, ..WorldOptions::default() });
    let listener = two.acceptor.listen(ADDR).unwrap();
    let (acceptor, control, log) = (two.acceptor.clone(), two.world.control(), two.log.clone());
    two.acceptor.spawn(Box::pin(async move {
        loop {
            let (mut wire, lane) = listener.accept().await;
            let (control, log) = (control.clone(), log.clone());
            acceptor.spawn(Box::pin(async move {
                read_to_end(&mut wire).await.1.unwrap();
                log.say(&control, format!("{lane:?}"));
            }));
        }
    }));
    for (lane, len) in [(Lane::Bulk, 1_000_000), (Lane::Small, 10_000)] {
        let dial = two.dialer.dial(ADDR, lane);
        two.dialer.spawn(Box::pin(async move { write_all(&mut dial.await.unwrap(), &pattern(len)).await.unwrap() }));
    }
    assert_eq!(two.world.run(), Ok(Stop::Quiet));
    assert_eq!(two.log.words(), ["Small", "Bulk"]);
    assert!(two.log.times_ns()[0] < 40_000_000);
}

#[test]
fn a_reader_that_does_not_read_stops_the_writer() {
    let options = WorldOptions {
        link: exact_link(),
        send_bytes_max: 10_000,
        receive_bytes_max: 6_000,
        ..WorldOptions::default()
    };
    let mut two = two(options);
    let (control, log) = (two.world.control(), two.log.clone());
    two.connect(
        move |mut wire| async move {
            let mut accepted = 0;
            while accepted < 50_000 {
                let bytes = pattern(50_000 - accepted);
                accepted += poll_fn(|cx| wire.poll_write(cx, &[IoSlice::new(&bytes)])).await.unwrap();
                log.say(&control, format!("{accepted} {}", wire.unacked_bytes().unwrap()));
            }
        },
        |mut wire| async move {
            core::future::pending::<()>().await;
            drop(read(&mut wire).await);
        },
    );
    assert_eq!(two.world.run(), Ok(Stop::Quiet));
    // 10,000 in the writer's kernel; 6,000 of them pass to the reader's; 6,000 more are accepted; then it stops.
    assert_eq!(two.log.words(), ["10000 10000", "16000 10000"]);
}

#[test]
fn unacknowledged_bytes_are_those_that_have_not_arrived() {
    let mut two = two(WorldOptions { link: exact_link(), ..WorldOptions::default() });
    let (control, log) = (two.world.control(), two.log.clone());
    two.connect(
        move |mut wire| async move {
            write_all(&mut wire, &pattern(1_000)).await.unwrap();
            for _ in 0..3 {
                log.say(&control, wire.unacked_bytes().unwrap().to_string());
                control.sleep(Duration::from_millis(1)).await;
            }
        },
        |mut wire| async move { drop(read_to_end(&mut wire).await) },
    );
    assert_eq!(two.world.run(), Ok(Stop::Quiet));
    assert_eq!(two.log.words().first().map(String::as_str), Some("1000"));
    assert_eq!(two.log.words().last().map(String::as_str), Some("0"));
}

#[test]
fn a_reset_leaves_a_prefix_and_an_error() {
    let mut lengths = BTreeSet::new();
    for seed in 0..30 {
        let link = LinkOptions { bytes_per_s: 1_000_000, segment_bytes_max: 1_000, ..exact_link() };
        let mut two = two(WorldOptions { seed, link, ..WorldOptions::default() });
        two.transfer(100_000);
        two.world.run_for(Duration::from_millis(50)).unwrap();
        two.world.reset(two.only_conn());
        assert_eq!(two.world.run(), Ok(Stop::Quiet));
        let words = two.log.words();
        let (len, orderly) = words[0].split_once(' ').unwrap();
        assert_eq!(orderly, "false");
        lengths.insert(len.parse::<u64>().unwrap());
        assert_eq!(two.world.counts(), Counts::default());
    }
    assert!(lengths.len() > 5 && *lengths.last().unwrap() < 100_000, "{lengths:?}");
}

#[test]
fn a_reset_can_hit_any_byte() {
    for bytes in [0, 1, 999, 1_000, 1_001, 54_321] {
        let mut arrived = BTreeSet::new();
        for seed in 0..8 {
            let mut two = two(WorldOptions { seed, link: exact_link(), ..WorldOptions::default() });
            two.transfer(100_000);
            two.world.run_until_ns(4_000_000).unwrap();
            two.world.reset_after(two.only_conn(), Side::Dialer, bytes);
            assert_eq!(two.world.run(), Ok(Stop::Quiet));
            arrived.extend(two.log.words());
        }
        // The reader's kernel loses what it had, or does not.
        assert_eq!(arrived, BTreeSet::from(["0 false".to_owned(), format!("{bytes} false")]), "{bytes}");
    }
}

#[test]
fn a_half_open_connection_says_nothing() {
    let mut two = two(WorldOptions { link: exact_link(), send_bytes_max: 10_000, ..WorldOptions::default() });
    two.transfer(50_000);
    two.world.run_until_ns(4_000_000).unwrap();
    let conn = two.only_conn();
    two.world.black_hole(conn, Side::Dialer);
    two.world.black_hole(conn, Side::Acceptor);
    assert_eq!(two.world.run_for(Duration::from_secs(3_600)), Ok(Stop::Quiet));
    assert_eq!(two.log.words(), Vec::<String>::new());
    assert!(two.world.connections()[0].whole);
    assert_eq!((two.world.tasks_of(two.a), two.world.tasks_of(two.b)), (1, 1));
}

#[test]
fn a_machine_without_power_is_silent_and_then_resets() {
    let mut two = two(WorldOptions { link: exact_link(), send_bytes_max: 10_000, ..WorldOptions::default() });
    let (control, log) = (two.world.control(), two.log.clone());
    two.connect(
        move |mut wire| async move {
            let end = write_all(&mut wire, &pattern(100_000)).await;
            log.say(&control, format!("{end:?}"));
        },
        |mut wire| async move { drop(read_to_end(&mut wire).await) },
    );
    two.world.run_until_ns(6_000_000).unwrap();
    two.world.kill(two.b, Kill::Machine);
    two.world.run_for(Duration::from_secs(60)).unwrap();
    assert_eq!(two.log.words(), Vec::<String>::new());
    let _next_life = two.world.start(two.b);
    two.world.run_for(Duration::from_secs(60)).unwrap();
    assert!(two.log.words()[0].contains("reset"), "{:?}", two.log.words());
}

#[test]
fn a_killed_process_drops_its_tasks_and_closes_its_connections() {
    struct Falls(Log, Control, u32);
    impl Drop for Falls {
        fn drop(&mut self) {
            self.0.say(&self.1, self.2.to_string());
        }
    }
    let mut two = two(WorldOptions { link: exact_link(), ..WorldOptions::default() });
    let ends = Log::default();
    let (control, said) = (two.world.control(), ends.clone());
    two.connect(
        move |mut wire| async move {
            let (bytes, end) = read_to_end(&mut wire).await;
            said.say(&control, format!("{} {}", bytes.len(), end.is_ok()));
        },
        |mut wire| async move {
            write_all(&mut wire, &pattern(5_000)).await.unwrap();
            core::future::pending::<()>().await;
        },
    );
    for number in 0..4 {
        let falls = Falls(two.log.clone(), two.world.control(), number);
        two.acceptor.spawn(Box::pin(async move {
            core::future::pending::<()>().await;
            drop(falls);
        }));
    }
    two.world.run_until_ns(3_500_000).unwrap();
    assert_eq!(two.world.tasks_of(two.b), 5);
    two.world.kill(two.b, Kill::Process);
    assert_eq!(two.log.words(), ["0", "1", "2", "3"]);
    // What the kernel had accepted still arrives, then the end.
    assert_eq!(two.world.run(), Ok(Stop::Quiet));
    assert_eq!(ends.words(), ["5000 true"]);
    assert_eq!(two.world.counts(), Counts::default());
    // The dead life can do nothing, the next one can.
    two.acceptor.spawn(Box::pin(core::future::pending()));
    assert!(two.acceptor.listen(ADDR).is_err());
    assert_eq!(two.world.counts().tasks, 0);
    assert!(two.world.start(two.b).listen(ADDR).is_ok());
}

#[test]
fn a_paused_server_receives_but_does_not_run() {
    let mut two = two(WorldOptions { link: exact_link(), ..WorldOptions::default() });
    two.transfer(10_000);
    two.world.run_until_ns(4_000_000).unwrap();
    two.world.pause(two.b);
    two.world.run_for(Duration::from_secs(9)).unwrap();
    let info = two.world.connections()[0];
    assert_eq!((info.unread_bytes, two.log.words().len()), (10_000, 0));
    two.world.resume(two.b);
    assert_eq!(two.world.run(), Ok(Stop::Quiet));
    assert_eq!(two.log.words(), ["10000 true"]);
}

/// Dials `b` once and logs how that ends; gives up after 10 s.
fn dial_and_log(two: &Two) {
    let (control, log) = (two.world.control(), two.log.clone());
    let mut dial = two.dialer.dial(ADDR, Lane::Small);
    let mut patience = two.world.sleep(Duration::from_secs(10));
    two.dialer.spawn(Box::pin(async move {
        let end = poll_fn(|cx| match dial.as_mut().poll(cx) {
            Poll::Ready(end) => Poll::Ready(end.map_or_else(|error| error.to_string(), |_| "connected".to_owned())),
            Poll::Pending => patience.as_mut().poll(cx).map(|()| "gave up".to_owned()),
        });
        let end = end.await;
        drop(dial);
        log.say(&control, end);
    }));
}

fn accept_for_ever(acceptor: &SimRuntime) {
    let listener: Listener = acceptor.listen(ADDR).unwrap();
    acceptor.spawn(Box::pin(async move {
        loop {
            drop(listener.accept().await);
        }
    }));
}

#[test]
fn dials_end_as_the_world_is() {
    type Prepare = fn(&Two);
    let cases: [(&str, u64, Prepare); 6] = [
        ("connected", 4_000_000, |two| accept_for_ever(&two.acceptor)),
        ("connection refused", 2_000_000, |_| {}),
        ("connection refused", 2_000_000, |two| two.world.kill(two.b, Kill::Process)),
        ("gave up", 10_000_000_000, |two| two.world.kill(two.b, Kill::Machine)),
        ("gave up", 10_000_000_000, |two| {
            accept_for_ever(&two.acceptor);
            two.world.cut(two.b, two.a);
        }),
        ("gave up", 10_000_000_000, |two| {
            accept_for_ever(&two.acceptor);
            two.world.pause(two.b);
        }),
    ];
    for (end, at_ns, prepare) in cases {
        let mut two = two(WorldOptions { link: exact_link(), ..WorldOptions::default() });
        prepare(&two);
        dial_and_log(&two);
        two.world.run_for(Duration::from_secs(60)).unwrap();
        assert_eq!((two.log.words(), two.log.times_ns()), (vec![end.to_owned()], vec![at_ns]));
        two.world.resume(two.b);
        two.world.heal(two.b, two.a);
        two.world.run_for(Duration::from_secs(60)).unwrap();
        assert_eq!((two.world.counts().dials, two.world.counts().conns), (0, 0), "{end}");
    }
}

#[test]
fn an_unknown_host_fails_at_once() {
    let mut two = two(WorldOptions::default());
    let (control, log) = (two.world.control(), two.log.clone());
    let dial = two.dialer.dial("nobody:1", Lane::Bulk);
    two.dialer.spawn(Box::pin(async move { log.say(&control, dial.await.unwrap_err().to_string()) }));
    assert_eq!(two.world.run(), Ok(Stop::Quiet));
    assert_eq!((two.log.words(), two.world.now_ns()), (vec!["nobody:1: no such host".to_owned()], 0));
}

#[test]
fn a_cut_holds_and_a_heal_releases() {
    for one_way in [true, false] {
        let mut two = two(WorldOptions { link: exact_link(), send_bytes_max: 4_000, ..WorldOptions::default() });
        two.transfer(40_000);
        two.world.run_until_ns(7_000_000).unwrap();
        two.world.cut(two.b, two.a);
        if !one_way {
            two.world.cut(two.a, two.b);
        }
        assert_eq!(two.world.run_for(Duration::from_secs(30)), Ok(Stop::Quiet));
        assert_eq!(two.log.words(), Vec::<String>::new());
        two.world.heal(two.b, two.a);
        two.world.heal(two.a, two.b);
        assert_eq!(two.world.run(), Ok(Stop::Quiet));
        assert_eq!(two.log.words(), ["40000 true"]);
    }
}

#[test]
fn a_clog_only_delays() {
    let mut two = two(WorldOptions { link: exact_link(), ..WorldOptions::default() });
    two.transfer(1_000);
    two.world.run_until_ns(4_000_000).unwrap();
    two.world.clog(two.a, two.b, Duration::from_secs(2));
    assert_eq!(two.world.run(), Ok(Stop::Quiet));
    assert_eq!((two.log.words(), two.log.times_ns()), (vec!["1000 true".to_owned()], vec![2_004_000_000]));
}

#[test]
fn a_corrupting_link_flips_bits_and_loses_none() {
    let link = LinkOptions { corrupt_ppm: 1_000_000, ..exact_link() };
    let mut two = two(WorldOptions { link, ..WorldOptions::default() });
    let (control, log) = (two.world.control(), two.log.clone());
    two.connect(
        |mut wire| async move { write_all(&mut wire, &pattern(1_000)).await.unwrap() },
        move |mut wire| async move {
            let (bytes, end) = read_to_end(&mut wire).await;
            let flipped: u32 = bytes.iter().zip(pattern(1_000)).map(|(got, sent)| (got ^ sent).count_ones()).sum();
            log.say(&control, format!("{} {} {flipped}", bytes.len(), end.is_ok()));
        },
    );
    assert_eq!(two.world.run(), Ok(Stop::Quiet));
    assert_eq!(two.log.words(), ["1000 true 1"]);
}

#[test]
fn closing_with_unread_bytes_resets() {
    let mut two = two(WorldOptions { link: exact_link(), ..WorldOptions::default() });
    let (control, log) = (two.world.control(), two.log.clone());
    two.connect(
        move |mut wire| async move {
            write_all(&mut wire, &pattern(1_000)).await.unwrap();
            log.say(&control, format!("{:?}", read_to_end(&mut wire).await.1.is_ok()));
        },
        {
            let control = two.world.control();
            move |wire| async move {
                control.sleep(Duration::from_millis(50)).await;
                drop(wire);
            }
        },
    );
    assert_eq!(two.world.run(), Ok(Stop::Quiet));
    assert_eq!(two.log.words(), ["false"]);
    assert_eq!(two.world.counts(), Counts::default());
}

#[test]
fn tasks_that_keep_waking_each_other_are_a_livelock() {
    let mut two = two(WorldOptions { polls_at_once_max: 1_000, ..WorldOptions::default() });
    two.dialer.spawn(Box::pin(poll_fn(|cx| {
        cx.waker().wake_by_ref();
        Poll::Pending
    })));
    assert_eq!(two.world.run(), Err(Halt::Livelock));
}

#[test]
fn a_run_has_an_end() {
    let mut two = two(WorldOptions { events_max: 1_000, ..WorldOptions::default() });
    let runtime = two.dialer.clone();
    two.dialer.spawn(Box::pin(async move {
        loop {
            runtime.sleep_until(runtime.now() + Duration::from_nanos(1)).await;
        }
    }));
    assert_eq!(two.world.run(), Err(Halt::Events));
}

/// Some traffic with faults; returns the hash and the number of events.
fn busy_run(seed: u64, wall_steps: bool) -> (u64, u64) {
    let options = WorldOptions {
        seed,
        shuffle_tasks: true,
        short_reads_ppm: 300_000,
        link: LinkOptions {
            segment_bytes_max: 2_000,
            loss_ppm: 10_000,
            bytes_per_s: 10_000_000,
            ..LinkOptions::default()
        },
        ..WorldOptions::default()
    };
    let mut two = two(options);
    accept_echo(&two.acceptor);
    let done = Arc::new(AtomicU64::new(0));
    for _ in 0..5 {
        let (dial, done) = (two.dialer.dial(ADDR, Lane::Small), Arc::clone(&done));
        two.dialer.spawn(Box::pin(async move {
            let mut wire = dial.await.unwrap();
            while write_all(&mut wire, &pattern(3_000)).await.is_ok() && read(&mut wire).await.is_ok() {
                done.fetch_add(1, Ordering::SeqCst);
            }
        }));
    }
    for step in 0..20 {
        two.world.run_for(Duration::from_millis(20)).unwrap();
        if step % 5 == 4 {
            let conn = two.world.connections()[0].id;
            two.world.reset(conn);
        }
        if wall_steps {
            let before_ns = two.world.wall_clock_ns(two.a);
            two.world.step_wall_clock(two.a, -3_600_000_000_000);
            assert_eq!(two.world.wall_clock_ns(two.a), before_ns - 3_600_000_000_000);
        }
    }
    assert!(done.load(Ordering::SeqCst) > 50);
    (two.world.event_hash(), two.world.events())
}

fn accept_echo(acceptor: &SimRuntime) {
    let (listener, runtime) = (acceptor.listen(ADDR).unwrap(), acceptor.clone());
    acceptor.spawn(Box::pin(async move {
        loop {
            let (mut wire, _) = listener.accept().await;
            runtime.spawn(Box::pin(async move {
                while let Ok(bytes) = read(&mut wire).await {
                    if bytes.is_empty() || write_all(&mut wire, &bytes).await.is_err() {
                        break;
                    }
                }
            }));
        }
    }));
}

#[test]
fn one_seed_has_one_history() {
    let hashes: BTreeSet<u64> = (0..10).map(|seed| busy_run(seed, false).0).collect();
    assert_eq!(hashes.len(), 10);
    for seed in 0..3 {
        assert_eq!(busy_run(seed, false), busy_run(seed, false));
        assert_eq!(busy_run(seed, false), busy_run(seed, true), "a step of a wall clock changed something");
    }
}
