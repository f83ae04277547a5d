use super::*;

#[test]
fn rates_of_classes() {
    let of = |class, gib: u64| {
        Rates::of(class, gib << 30).map(|rates| (rates.requests.per_second, rates.bytes.per_second >> 20))
    };
    assert_eq!(of(Class::Ssd, 10), Some((1_500, 85)));
    assert_eq!(of(Class::Ssd, 100), Some((4_200, 130)));
    assert_eq!(of(Class::Ssd, 760), Some((24_000, 260)));
    assert_eq!(of(Class::Ssd, 32_768), Some((24_000, 260)));
    assert_eq!(of(Class::Standard, 500), Some((1_000, 100)));
    assert_eq!(of(Class::Ultra, 500), None);
    assert_eq!(Rates::of(Class::Ssd, 1).unwrap().requests.per_second, 1_230);
}

fn rates(requests: u64, burst: u64) -> Rates {
    let bytes = Rate { per_second: 1 << 40, burst: 1 << 40 };
    Rates { requests: Rate { per_second: requests, burst }, bytes }
}

/// Requests of so many bytes that pass until `end` when each is tried as soon as it may pass.
fn passed(throttle: &mut Throttle, start: Instant, end: Instant, bytes: u64) -> u64 {
    let (mut now, mut count) = (start, 0);
    loop {
        match throttle.take(now, bytes) {
            Ok(()) => count += 1,
            Err(at) if at > end => return count,
            Err(at) => now = at,
        }
    }
}

fn second(count: u64) -> Instant {
    Instant::from_nanos(count * 1_000_000_000)
}

#[test]
fn a_burst_and_then_the_rate() {
    let mut throttle = Throttle::new(second(0), rates(1_000, 500));
    assert_eq!(passed(&mut throttle, second(0), second(0), 1), 500);
    // What is owed is at most one request.
    let steady = passed(&mut throttle, second(0), second(10), 1);
    assert!((9_999..=10_001).contains(&steady), "{steady}");
    // Rest gathers no more than the burst.
    let after_rest = passed(&mut throttle, second(100), second(100), 1);
    assert_eq!(after_rest, 500);
}

#[test]
fn bytes_are_limited_even_when_one_request_exceeds_the_burst() {
    let requests = Rate { per_second: 1 << 30, burst: 1 << 30 };
    let bytes = Rate { per_second: 1_000_000, burst: 1_000_000 };
    let mut throttle = Throttle::new(second(0), Rates { requests, bytes });
    // The burst and the first debt pass three at once; then one every four seconds.
    let count = passed(&mut throttle, second(0), second(40), 4_000_000);
    assert!((10..=12).contains(&count), "{count}");
}

#[test]
fn limits_change_while_attached() {
    let mut throttle = Throttle::new(second(0), rates(10, 10));
    assert_eq!(passed(&mut throttle, second(0), second(0), 1), 10);
    throttle.change(second(0), rates(1_000, 1_000));
    let count = passed(&mut throttle, second(0), second(1), 1);
    assert!((999..=1_001).contains(&count), "a new rate does not fill the bucket: {count}");
    throttle.change(second(10), rates(10, 10));
    assert_eq!(passed(&mut throttle, second(10), second(10), 1), 10);
}

#[test]
fn time_that_goes_back_gives_nothing() {
    let mut throttle = Throttle::new(second(5), rates(1, 1));
    assert_eq!(throttle.take(second(5), 1), Ok(()));
    assert!(throttle.take(second(4), 1).is_err());
    assert!(throttle.take(second(5), 1).is_err());
    assert_eq!(throttle.take(second(7), 1), Ok(()));
}
