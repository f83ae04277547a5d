//! Which faults strike when.

use super::{Class, MILLI_NS, Params};
use crate::net::Side;
use crate::rng::Rng;
use crate::world::ServerNo;

/// Faults of one plan.
const FAULTS_MAX: usize = 300;

/// One fault; times are nanoseconds. A connection is chosen by counting through those that exist when it strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A connection is reset at once.
    Reset { nth: u64 },
    /// A connection is reset when so many more bytes have arrived.
    ResetAfter { nth: u64, writer: Side, bytes: u64 },
    /// A connection loses one direction or both.
    HalfOpen { nth: u64, writer: Side, both: bool },
    /// A link becomes slow.
    Slow { from: ServerNo, to: ServerNo, bytes_per_s: u64, latency_ns: u64, for_ns: u64 },
    /// A link delivers nothing.
    Clog { from: ServerNo, to: ServerNo, for_ns: u64 },
    /// A link is cut, or both directions.
    Cut { from: ServerNo, to: ServerNo, both: bool, for_ns: u64 },
    /// A server is cut off from all others.
    Isolate { server: ServerNo, for_ns: u64 },
    /// A server stops running.
    Pause { server: ServerNo, for_ns: u64 },
    /// A process dies and is started again.
    Kill { server: ServerNo, down_ns: u64 },
    /// A machine loses power and is started again.
    Crash { server: ServerNo, down_ns: u64 },
    /// A server is asked to leave, and started again.
    Drain { server: ServerNo, down_ns: u64 },
    /// A monotonic clock changes its rate.
    Drift { server: ServerNo, ppm: i32 },
    /// A link flips bits.
    Corrupt { from: ServerNo, to: ServerNo, ppm: u32, for_ns: u64 },
    /// A wall clock steps.
    WallStep { server: ServerNo, step_ns: i64 },
}

/// All faults of a run with their times, earliest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// World time and fault.
    pub(crate) entries: Vec<(u64, Fault)>,
}

impl Plan {
    /// How many faults there are.
    #[must_use]
    pub fn faults(&self) -> usize {
        self.entries.len()
    }

    /// What the seed of `params` draws.
    #[must_use]
    pub fn draw(params: &Params) -> Self {
        let mut rng = Rng::new(params.seed).fork("plan", 0);
        let mut entries = Vec::new();
        let mut at_ns = rng.within(0..=params.gap_ns);
        while at_ns < params.faults_ns && entries.len() < FAULTS_MAX && !params.classes.is_empty() {
            let class = rng.pick(&params.classes);
            entries.push((at_ns, draw_fault(class, params, &mut rng)));
            at_ns += rng.within(0..=2 * params.gap_ns);
        }
        Self { entries }
    }
}

fn draw_fault(class: Class, params: &Params, rng: &mut Rng) -> Fault {
    let server = ServerNo(rng.below(u64::from(params.servers)) as u32);
    let step = 1 + rng.below(u64::from(params.servers - 1)) as u32;
    let (from, to) = (server, ServerNo((server.0 + step) % params.servers));
    let for_ns = rng.magnitude(MILLI_NS..=params.fault_ns_max);
    let nth = rng.below(1 << 16);
    let writer = rng.pick(&[Side::Dialer, Side::Acceptor]);
    match class {
        Class::Reset if rng.chance(500_000) => Fault::Reset { nth },
        Class::Reset => Fault::ResetAfter { nth, writer, bytes: rng.magnitude(0..=64 << 10) },
        Class::HalfOpen => Fault::HalfOpen { nth, writer, both: rng.chance(500_000) },
        Class::Slow => {
            let (bytes_per_s, latency_ns) =
                (rng.magnitude(20_000..=2_000_000), rng.magnitude(MILLI_NS..=300 * MILLI_NS));
            Fault::Slow { from, to, bytes_per_s, latency_ns, for_ns }
        }
        Class::Clog => Fault::Clog { from, to, for_ns },
        Class::Cut if rng.chance(250_000) => Fault::Isolate { server, for_ns },
        Class::Cut => Fault::Cut { from, to, both: rng.chance(500_000), for_ns },
        Class::Pause => Fault::Pause { server, for_ns },
        Class::Kill => Fault::Kill { server, down_ns: for_ns },
        Class::Crash => Fault::Crash { server, down_ns: for_ns },
        Class::Drain => Fault::Drain { server, down_ns: for_ns },
        Class::Drift => Fault::Drift { server, ppm: rng.within(0..=20_000) as i32 - 10_000 },
        Class::Corrupt => Fault::Corrupt { from, to, ppm: rng.magnitude(1..=100_000) as u32, for_ns },
        Class::WallStep => {
            Fault::WallStep { server, step_ns: (rng.magnitude(1..=1 << 50) as i64) * rng.pick(&[-1, 1]) }
        }
    }
}
