//! What one seed's world is like.

use core::fmt;
use core::time::Duration;

use ashlar_bus::Config;

use crate::bus::clock::RATE_PPM_MAX;
use crate::bus::net::Links;
use crate::rng::Rng;

pub(crate) const MILLI_NS: u64 = 1_000_000;
pub(crate) const SECOND_NS: u64 = 1_000_000_000;

/// A class of fault or of commands; a seed knows some of them and not the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// A direction between two members is cut, or both.
    Cut,
    /// Some members are cut from all others, in both directions or one.
    Split,
    /// A member is frozen.
    Pause,
    /// A member dies and comes back with what it had written.
    Crash,
    /// A member dies and comes back with nothing.
    Wipe,
    /// A whole zone dies at once.
    ZoneLoss,
    /// Every link loses and delays packets.
    Storm,
    /// The link between two members is cut for long, in both directions.
    LongCut,
    /// Replicas are told to take over.
    Failover,
    /// Slots change hands.
    Claim,
    /// Members are forgotten and introduced again.
    Forget,
    /// Messages are published.
    Publish,
    /// The voters are chosen anew.
    SetVoters,
    /// A record on a disk is damaged.
    Rot,
    /// A server of another cluster and a member are introduced to each other.
    Stranger,
    /// A member stops in order, as at a rolling restart, and comes back with what it had written.
    Depart,
}

impl Class {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::Cut,
        Self::Split,
        Self::Pause,
        Self::Crash,
        Self::Wipe,
        Self::ZoneLoss,
        Self::Storm,
        Self::LongCut,
        Self::Failover,
        Self::Claim,
        Self::Forget,
        Self::Publish,
        Self::SetVoters,
        Self::Rot,
        Self::Stranger,
        Self::Depart,
    ];
}

/// What one seed drew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Params {
    /// Where it all comes from.
    pub seed: u64,
    /// How many members there are.
    pub members: u32,
    /// Zones that they are dealt to.
    pub zones: u32,
    /// Replica groups; the first members are their primaries in turn.
    pub groups: u32,
    /// Replicas of each group.
    pub replicas: u32,
    /// What the links are like before anything strikes.
    pub links: Links,
    /// The longest that a write takes.
    pub persist_ns_max: u64,
    /// How far clocks' rates may be off.
    pub rate_ppm_max: i32,
    /// How the bus of every member is set up.
    pub config: Config,
    /// Whether faults strike while the cluster is being formed.
    pub rough_start: bool,
    /// The classes of fault of this seed.
    pub classes: Vec<Class>,
    /// How long faults strike.
    pub faults_ns: u64,
    /// The mean time from one fault to the next.
    pub gap_ns: u64,
    /// The longest that a fault lasts.
    pub fault_ns_max: u64,
}

/// Members of one world.
pub(super) const MEMBERS: core::ops::RangeInclusive<u32> = 3..=9;

impl Params {
    /// What `seed` draws, with faults of `classes`; `members` overrules what it draws for them.
    #[must_use]
    pub fn draw(seed: u64, classes: &[Class], members: Option<u32>) -> Self {
        let mut rng = Rng::new(seed).fork("params", 0);
        let drawn = rng.within(u64::from(*MEMBERS.start())..=u64::from(*MEMBERS.end())) as u32;
        let members = members.unwrap_or(drawn);
        let config = draw_config(&mut rng);
        let timeout_ns = config.member_timeout.as_nanos() as u64;
        Self {
            seed,
            members,
            zones: rng.within(1..=3) as u32,
            groups: rng.within(1..=u64::from(members.min(4))) as u32,
            replicas: rng.within(0..=u64::from(members - 1).min(3)) as u32,
            links: draw_links(timeout_ns, &mut rng),
            persist_ns_max: if rng.chance(300_000) {
                rng.magnitude(0..=timeout_ns / 4)
            } else {
                rng.magnitude(0..=MILLI_NS)
            },
            rate_ppm_max: if rng.chance(500_000) { 0 } else { rng.within(1..=RATE_PPM_MAX as u64) as i32 },
            config,
            rough_start: rng.chance(250_000),
            classes: classes.iter().copied().filter(|_| rng.chance(350_000)).collect(),
            faults_ns: rng.within(2 * timeout_ns..=8 * timeout_ns),
            gap_ns: rng.magnitude(timeout_ns / 32..=2 * timeout_ns),
            fault_ns_max: rng.magnitude(timeout_ns / 16..=4 * timeout_ns),
        }
    }
}

/// The usual settings, faster or slower as a whole, with fewer probes in a timeout, so that a seed is soon over.
fn draw_config(rng: &mut Rng) -> Config {
    let usual = Config::default();
    // Some of the bus's waits are the same whatever the timeout: where it is two to six seconds, the least time goes by
    // idle. Half of the seeds have such a one, the others any.
    let any = rng.magnitude(500 * MILLI_NS..=15 * SECOND_NS);
    let usual_one = rng.within(2 * SECOND_NS..=6 * SECOND_NS);
    let timeout = Duration::from_nanos(if rng.chance(500_000) { usual_one } else { any });
    let scaled = |span: Duration| span.mul_f64(timeout.as_secs_f64() / 5.0);
    Config {
        member_timeout: timeout,
        probe_interval: timeout / rng.within(5..=12) as u32,
        probe_wait_min: scaled(usual.probe_wait_min),
        probe_wait_max: scaled(usual.probe_wait_max),
        news_delay: scaled(usual.news_delay),
        sync_interval: scaled(usual.sync_interval),
        rejoin_delay: scaled(usual.rejoin_delay),
        rank_delay: scaled(usual.rank_delay),
        ballot_wait: scaled(usual.ballot_wait),
        ballot_retry_max: scaled(usual.ballot_retry_max),
        handover_max: scaled(usual.handover_max),
        save_interval: scaled(usual.save_interval),
        keep_out: timeout * rng.within(1..=4) as u32,
        indirect_probes: rng.within(1..=3) as usize,
        voters_chosen_max: rng.pick(&[3, 5, 7]),
        copy_age_max: rng.chance(800_000).then(|| timeout.mul_f64(rng.within(10..=40) as f64 / 10.0)),
        migration_barrier: rng.within(0..=2) as usize,
        migrates: rng.chance(700_000),
        require_full_coverage: rng.chance(500_000),
        piggyback_bytes_max: if rng.chance(700_000) {
            usual.piggyback_bytes_max
        } else {
            rng.within(200..=700) as usize
        },
        ..usual
    }
}

/// Links whose latency leaves a probe and its answer well within the time between two probes.
fn draw_links(timeout_ns: u64, rng: &mut Rng) -> Links {
    let latency_ns = rng.magnitude(10_000..=timeout_ns / 100);
    Links {
        latency_ns,
        jitter_ns: rng.magnitude(0..=latency_ns),
        loss_ppm: sometimes(rng, 50_000),
        double_ppm: sometimes(rng, 100_000),
        late_ppm: sometimes(rng, 20_000),
        late_ns: rng.magnitude(0..=timeout_ns),
    }
}

/// Zero for half of all seeds, else up to `ppm_max`.
fn sometimes(rng: &mut Rng, ppm_max: u64) -> u32 {
    if rng.chance(500_000) { 0 } else { rng.within(1..=ppm_max) as u32 }
}

impl fmt::Display for Params {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = |nanos: u64| nanos as f64 / MILLI_NS as f64;
        let [members, zones, groups, replicas] = [self.members, self.zones, self.groups, self.replicas];
        writeln!(f, "  members {members}, zones {zones}, groups {groups} with {replicas} replicas each")?;
        writeln!(f, "  classes {:?}", self.classes)?;
        let [phase, gap, longest] = [self.faults_ns, self.gap_ns, self.fault_ns_max].map(millis);
        writeln!(f, "  faults for {phase} ms, one in {gap} ms, up to {longest} ms each")?;
        let (persist, rate, rough) = (millis(self.persist_ns_max), self.rate_ppm_max, self.rough_start);
        writeln!(f, "  writes up to {persist} ms, clocks {rate} ppm, faults from the start: {rough}")?;
        let usual = &self.config;
        let (timeout, probe) = (usual.member_timeout, usual.probe_interval);
        let voters = usual.voters_chosen_max;
        writeln!(
            f,
            "  timeout {timeout:?}, a probe in {probe:?}, up to {voters} voters, migrates: {}",
            usual.migrates
        )?;
        let links = &self.links;
        let [latency, jitter, late] = [links.latency_ns, links.jitter_ns, links.late_ns].map(millis);
        let chances = [links.loss_ppm, links.double_ppm, links.late_ppm];
        write!(f, "  links {latency} ms + {jitter} ms, lost, doubled, late {chances:?} ppm, late by up to {late} ms")
    }
}
