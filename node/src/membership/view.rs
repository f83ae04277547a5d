//! What is seen of the bus: the values in a server's status, behind `ashlar status`, `/metrics` and `/health`.
//!
//! They travel as JSON to people and packed, fields in order, between servers: new fields go to the end, with a default.

use core::time::Duration;
use std::collections::BTreeMap;

use ashlar_bus::event::{Health, Spans};
use ashlar_bus::{Bus, Counters};
use ashlar_wire::id::ServerId;
use ashlar_wire::time::Instant;
use serde::{Deserialize, Serialize};

use super::super::status::millis;

/// How a member stands, as one server sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemberState {
    /// Nothing speaks against it.
    Alive,
    /// It did not answer the server that says so, nor others for it, and is being watched. That ends in a sign of life or in
    /// a suspicion.
    Doubted,
    /// It has been silent for the member timeout, for the server that says so.
    Suspect,
    /// A majority of the voters has found it silent.
    Failed,
    /// It was removed by hand and is kept out for a while.
    Forgotten,
    /// It has stopped in order, and said so.
    Left,
}

impl MemberState {
    /// Every state, in order.
    pub const ALL: [Self; 6] = [Self::Alive, Self::Doubted, Self::Suspect, Self::Failed, Self::Forgotten, Self::Left];

    /// Its name in status and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Doubted => "doubted",
            Self::Suspect => "suspect",
            Self::Failed => "failed",
            Self::Forgotten => "forgotten",
            Self::Left => "left",
        }
    }
}

impl From<&ashlar_bus::event::MemberView<'_>> for MemberState {
    fn from(member: &ashlar_bus::event::MemberView<'_>) -> Self {
        match member.health {
            _ if member.has_left => Self::Left,
            Health::Alive => Self::Alive,
            Health::Doubted => Self::Doubted,
            Health::Suspected => Self::Suspect,
            Health::Failed => Self::Failed,
        }
    }
}

/// One member as one server sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberView {
    /// Who.
    pub server: String,
    /// Where it is reached.
    pub address: String,
    /// What it may be lost together with: the number that stands for the name, 0 for none.
    pub zone: u32,
    /// Its latest known life.
    pub incarnation: u64,
    /// How it stands.
    pub state: MemberState,
    /// For how long it has been seen so.
    pub since_ms: u64,
    /// Whether it votes.
    pub voter: bool,
}

/// How one server's bus stands.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BusStatus {
    /// Everybody, this server included, by id; those forgotten here at the end.
    pub members: Vec<MemberView>,
    /// The greatest epoch that it knows of.
    pub epoch: u64,
    /// Which set of voters stands; 0 before the first.
    pub voters_epoch: u64,
    /// Who votes, sorted.
    pub voters: Vec<String>,
    /// Who voted before, while a majority of those is needed too.
    pub voters_before: Vec<String>,
    /// Whether a majority of the voters is in reach.
    pub majority: bool,
    /// What it counted since its start.
    pub counters: BusCounters,
    /// How long it took until durable state was on the drive.
    pub persist: SpanView,
    /// Who told this server that it was forgotten, while it is kept out.
    #[serde(default)]
    pub forgotten_by: Option<String>,
}

impl BusStatus {
    /// Members in this state.
    #[must_use]
    pub fn count(&self, state: MemberState) -> usize {
        self.members.iter().filter(|member| member.state == state).count()
    }

    /// Members that live as far as is known: a doubt is a question and no finding.
    #[must_use]
    pub fn living(&self) -> usize {
        self.count(MemberState::Alive) + self.count(MemberState::Doubted)
    }

    /// Members that were not forgotten.
    #[must_use]
    pub fn known(&self) -> usize {
        self.members.len() - self.count(MemberState::Forgotten)
    }
}

/// Several spans of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SpanView {
    /// How many.
    pub count: u64,
    /// The last one.
    pub last_us: u64,
    /// The longest one.
    pub longest_us: u64,
    /// All together.
    pub sum_us: u64,
}

impl From<Spans> for SpanView {
    fn from(spans: Spans) -> Self {
        let Spans { count, last, longest, sum } = spans;
        Self { count, last_us: micros(last), longest_us: micros(longest), sum_us: micros(sum) }
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

macro_rules! bus_counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What a bus counted since its server's start.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
        pub struct BusCounters {
            $($(#[$doc])* pub $name: u64,)*
            /// Packets that were not sent: nobody was connected, or too much waited.
            pub packets_unsent: u64,
            /// Received packets that were dropped because too many waited for the bus.
            pub packets_dropped: u64,
            /// From silence to suspicion, here.
            pub to_suspicion: SpanView,
            /// From silence to a failure that was declared here.
            pub to_failure: SpanView,
            /// From a primary's failure to this server's election.
            pub to_ballot: SpanView,
            /// How long this server differed from those that it spoke with.
            pub to_convergence: SpanView,
        }

        impl From<&Counters> for BusCounters {
            fn from(counters: &Counters) -> Self {
                Self {
                    $($name: counters.$name,)*
                    packets_unsent: 0,
                    packets_dropped: 0,
                    to_suspicion: counters.time_to_suspicion.into(),
                    to_failure: counters.time_to_failure.into(),
                    to_ballot: counters.time_to_ballot.into(),
                    to_convergence: counters.time_to_convergence.into(),
                }
            }
        }
    };
}

bus_counters! {
    /// Packets that the bus wanted sent.
    packets_sent,
    /// Their bytes.
    bytes_sent,
    /// Packets that came.
    packets_received,
    /// Their bytes.
    bytes_received,
    /// Refused: not a packet, or against a limit.
    refused_malformed,
    /// Refused: a version that this program does not speak.
    refused_version,
    /// Refused: of another cluster.
    refused_cluster,
    /// Refused: from an earlier life of its sender.
    refused_stale,
    /// Refused: came twice, or too late to tell.
    refused_replayed,
    /// Refused: from a server that is no member.
    refused_stranger,
    /// Refused: from a server that was forgotten.
    refused_kept_out,
    /// Refused: an answer that nobody waits for.
    refused_unasked,
    /// Refused: said by someone who has no right to say it.
    refused_unentitled,
    /// Refused: a table is full.
    refused_full,
    /// Probes sent.
    probes_sent,
    /// Probes that were not answered in time.
    probes_silent,
    /// Members that were silent to others' probes too.
    doubts_raised,
    /// Doubts that ended with a sign of life.
    doubts_cleared,
    /// Suspicions of this server.
    suspicions,
    /// Failures that became known here.
    failures,
    /// Failed members that came back.
    recoveries,
    /// Failures of this server that it has refuted.
    refutations,
    /// Times that this process was found to have been stopped.
    stalls,
    /// Ballots begun.
    ballots_begun,
    /// Ballots won.
    ballots_won,
    /// Ballots given up.
    ballots_lost,
    /// Votes given.
    votes_given,
    /// Votes refused.
    votes_refused,
    /// Exchanges of differences begun.
    syncs_begun,
    /// Times that durable state was handed out.
    persists,
}

/// A member that was forgotten here.
#[derive(Debug, Clone)]
pub(super) struct Forgotten {
    pub(super) id: ServerId,
    pub(super) address: String,
    pub(super) at: Instant,
}

/// What the task knows beside the bus itself.
pub(super) struct Beside<'a> {
    pub(super) since: &'a BTreeMap<ServerId, (MemberState, Instant)>,
    pub(super) forgotten: &'a [Forgotten],
    pub(super) forgotten_by: Option<ServerId>,
    pub(super) persist: Spans,
    pub(super) packets_unsent: u64,
    pub(super) packets_dropped: u64,
}

/// How a bus stands at `now`.
pub(super) fn view(bus: &Bus, beside: &Beside<'_>, now: Instant) -> BusStatus {
    let texts = |ids: &[ServerId]| ids.iter().map(ToString::to_string).collect::<Vec<String>>();
    let voters = bus.voters();
    BusStatus {
        members: members(bus, beside, now),
        epoch: bus.current_epoch().0,
        voters_epoch: voters.epoch.0,
        voters: texts(voters.voters),
        voters_before: texts(voters.previous),
        majority: bus.cluster_state().has_quorum,
        counters: BusCounters {
            packets_unsent: beside.packets_unsent,
            packets_dropped: beside.packets_dropped,
            ..bus.counters().into()
        },
        persist: beside.persist.into(),
        forgotten_by: beside.forgotten_by.map(|by| by.to_string()),
    }
}

fn members(bus: &Bus, beside: &Beside<'_>, now: Instant) -> Vec<MemberView> {
    let since = |at: Instant| millis(now.saturating_since(at));
    let mut members: Vec<MemberView> = bus
        .members()
        .map(|member| MemberView {
            server: member.id.to_string(),
            address: member.address.to_owned(),
            zone: member.zone.0,
            incarnation: member.incarnation.0,
            state: (&member).into(),
            since_ms: beside.since.get(&member.id).map_or(0, |(_, at)| since(*at)),
            voter: member.is_voter,
        })
        .collect();
    members.sort_unstable_by(|one, other| one.server.cmp(&other.server));
    members.extend(beside.forgotten.iter().map(|forgotten| MemberView {
        server: forgotten.id.to_string(),
        address: forgotten.address.clone(),
        zone: 0,
        incarnation: 0,
        state: MemberState::Forgotten,
        since_ms: since(forgotten.at),
        voter: false,
    }));
    members
}
