//! What one seed's world is like.

use core::fmt;

use super::{MILLI_NS, SECOND_NS};
use crate::net::LinkOptions;
use crate::rng::Rng;
use crate::world::WorldOptions;

/// A class of fault; a seed knows some of them and not the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// A connection is reset, now or at a certain byte.
    Reset,
    /// A connection loses one or both directions silently.
    HalfOpen,
    /// A link becomes slow.
    Slow,
    /// A link delivers nothing for a while.
    Clog,
    /// A link, both directions of it, or everything around one server is cut.
    Cut,
    /// A server stops running for a while.
    Pause,
    /// A process is killed and started again.
    Kill,
    /// A machine loses power and gets it back.
    Crash,
    /// A server is asked to leave and started again.
    Drain,
    /// A monotonic clock changes its rate.
    Drift,
    /// A wall clock steps.
    WallStep,
    /// A link flips bits; only where nothing but the program's own checksums would notice.
    Corrupt,
}

impl Class {
    /// All that TCP leaves to a program.
    pub const OF_TCP: &[Self] = &[
        Self::Reset,
        Self::HalfOpen,
        Self::Slow,
        Self::Clog,
        Self::Cut,
        Self::Pause,
        Self::Kill,
        Self::Crash,
        Self::Drain,
        Self::Drift,
        Self::WallStep,
    ];

    /// All of them.
    pub const ALL: &[Self] = &[
        Self::Reset,
        Self::HalfOpen,
        Self::Slow,
        Self::Clog,
        Self::Cut,
        Self::Pause,
        Self::Kill,
        Self::Crash,
        Self::Drain,
        Self::Drift,
        Self::WallStep,
        Self::Corrupt,
    ];
}

/// What one seed drew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Params {
    /// Where it all comes from.
    pub seed: u64,
    /// How many servers there are.
    pub servers: u32,
    /// The world, its network and its limits.
    pub world: WorldOptions,
    /// The classes of fault of this seed.
    pub classes: Vec<Class>,
    /// How long nothing strikes at first, so that servers become what faults are to find.
    pub calm_ns: u64,
    /// How long faults strike.
    pub faults_ns: u64,
    /// The mean time from one fault to the next.
    pub gap_ns: u64,
    /// The longest that a fault lasts.
    pub fault_ns_max: u64,
    /// Links that are cut when the faults end stay so until their time is over, with every server up.
    pub cuts_heal_last: bool,
    /// One server never comes back, where the case can do without it: nothing that it would say when it is back helps the others.
    pub loses_one: bool,
}

impl Params {
    /// What `seed` draws, with faults of `classes`, and 3 to `servers_max` servers.
    #[must_use]
    pub fn draw(seed: u64, classes: &[Class], servers_max: u32) -> Self {
        let mut rng = Rng::new(seed).fork("params", 0);
        let mut params = Self {
            seed,
            servers: rng.within(3..=u64::from(servers_max)) as u32,
            world: draw_world(seed, &mut rng),
            classes: classes.iter().copied().filter(|_| rng.chance(400_000)).collect(),
            calm_ns: 0,
            faults_ns: rng.within(SECOND_NS..=12 * SECOND_NS),
            gap_ns: rng.magnitude(30 * MILLI_NS..=5 * SECOND_NS),
            fault_ns_max: rng.magnitude(10 * MILLI_NS..=12 * SECOND_NS),
            cuts_heal_last: rng.chance(500_000),
            loses_one: rng.chance(500_000),
        };
        if params.world.binds_channels {
            params.classes.retain(|class| *class != Class::Corrupt);
        }
        params
    }

    /// Whether none but these classes strike.
    #[must_use]
    pub fn only(&self, classes: &[Class]) -> bool {
        self.classes.iter().all(|class| classes.contains(class))
    }
}

fn draw_world(seed: u64, rng: &mut Rng) -> WorldOptions {
    let usual = WorldOptions::default();
    let buffer = |rng: &mut Rng| if rng.chance(500_000) { 256 << 10 } else { rng.magnitude(2 << 10..=1 << 20) };
    WorldOptions {
        seed,
        shuffle_tasks: rng.chance(500_000),
        shuffle_ties: rng.chance(500_000),
        send_bytes_max: buffer(rng),
        receive_bytes_max: buffer(rng),
        short_reads_ppm: sometimes(rng, 1_000_000),
        short_writes_ppm: sometimes(rng, 1_000_000),
        lines_ppm: sometimes(rng, 1_000_000),
        shows_unacked: rng.chance(800_000),
        binds_channels: rng.chance(500_000),
        link: draw_link(rng),
        ..usual
    }
}

fn draw_link(rng: &mut Rng) -> LinkOptions {
    let latency_ns = rng.magnitude(1_000..=20 * MILLI_NS);
    LinkOptions {
        latency_ns,
        jitter_ns: rng.magnitude(0..=2 * latency_ns),
        bytes_per_s: if rng.chance(500_000) { 1_250_000_000 } else { rng.magnitude(500_000..=1_250_000_000) },
        segment_bytes_max: rng.pick(&[536, 1_448, 8_960, 64 << 10]),
        loss_ppm: sometimes(rng, 20_000),
        corrupt_ppm: 0,
    }
}

/// Zero for half of all seeds, else up to `ppm_max`.
fn sometimes(rng: &mut Rng, ppm_max: u64) -> u32 {
    if rng.chance(500_000) { 0 } else { rng.within(1..=ppm_max) as u32 }
}

impl fmt::Display for Params {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (world, link) = (&self.world, &self.world.link);
        writeln!(f, "  servers {}, classes {:?}", self.servers, self.classes)?;
        let millis = |nanos: u64| nanos as f64 / MILLI_NS as f64;
        let (phase, gap, longest) = (millis(self.faults_ns), millis(self.gap_ns), millis(self.fault_ns_max));
        writeln!(f, "  faults for {phase} ms, one in {gap} ms, up to {longest} ms each")?;
        let (latency, jitter) = (millis(link.latency_ns), millis(link.jitter_ns));
        writeln!(
            f,
            "  link: {latency} ms + {jitter} ms, {} bytes/s, {} bytes a segment",
            link.bytes_per_s, link.segment_bytes_max
        )?;
        let buffers = [world.send_bytes_max, world.receive_bytes_max];
        let chances = [world.short_reads_ppm, world.short_writes_ppm, world.lines_ppm, link.loss_ppm];
        writeln!(f, "  buffers {buffers:?} bytes, short reads, short writes, lines, loss {chances:?} ppm")?;
        let order = [world.shuffle_tasks, world.shuffle_ties];
        writeln!(f, "  channels bound as by TLS: {}", world.binds_channels)?;
        writeln!(f, "  cuts heal last: {}, one server never comes back: {}", self.cuts_heal_last, self.loses_one)?;
        write!(f, "  shuffled tasks, ties {order:?}, unacknowledged bytes known: {}", world.shows_unacked)
    }
}
