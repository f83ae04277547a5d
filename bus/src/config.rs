//! Every limit and every span of time of the bus, in one place, and who this member is.

use alloc::string::String;
use core::time::Duration;

use ashlar_wire::id::{ClusterId, Incarnation, ServerId};

use crate::slot::Zone;

/// Who this member is, and in which of its lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Its cluster.
    pub cluster: ClusterId,
    /// Itself, for all its lives.
    pub server: ServerId,
    /// Its present life; greater than that of every earlier life. The first one is 1.
    pub incarnation: Incarnation,
    /// What it may be lost together with.
    pub zone: Zone,
    /// Where it is reached; up to [`Config::address_bytes_max`] bytes.
    pub address: String,
}

/// Every limit and span of time. All members of a cluster should have the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Silence after which a voter suspects a member, and without a majority of the voters after which a primary stops
    /// taking writes. From 500 ms.
    pub member_timeout: Duration,
    /// Each member probes one other member this often.
    pub probe_interval: Duration,
    /// An unanswered probe is believed lost no sooner than this, however quick answers usually are.
    pub probe_wait_min: Duration,
    /// An unanswered probe is believed lost after this, however slow answers usually are.
    pub probe_wait_max: Duration,
    /// Others that are asked to probe a member that was silent to a direct probe.
    pub indirect_probes: usize,
    /// News is gathered this long before it is sent on at once.
    pub news_delay: Duration,
    /// Members that each piece of news is sent on to at once, when it is heard for the first time.
    pub news_fanout: usize,
    /// Each piece of news is told this many times the binary logarithm of the number of members.
    pub news_tells_per_log2: u32,
    /// Bytes of news on a probe or its answer.
    pub piggyback_bytes_max: usize,
    /// At most one exchange of differences begins in this time.
    pub sync_interval: Duration,
    /// Writes are taken no sooner than this after a majority of the voters is heard again.
    pub rejoin_delay: Duration,
    /// Where nobody sets voters, up to this many are chosen.
    pub voters_chosen_max: usize,
    /// Longest set of voters that is accepted.
    pub voters_max: usize,
    /// Delay of the second-best replica behind the best, of the third behind the second, and so on.
    pub rank_delay: Duration,
    /// A ballot without a majority is given up after this and begun anew.
    pub ballot_wait: Duration,
    /// Greatest random delay before a new attempt.
    pub ballot_retry_max: Duration,
    /// Longest pause of a primary for an agreed failover.
    pub handover_max: Duration,
    /// A forgotten member is kept out this long.
    pub keep_out: Duration,
    /// Changes that need not be durable before they are acted upon are saved at most this often.
    pub save_interval: Duration,
    /// Replicas that a primary keeps before one of them may migrate to an orphaned primary.
    pub migration_barrier: usize,
    /// Whether this member's replicas migrate to orphaned primaries.
    pub migrates: bool,
    /// Whether this member stands for election.
    pub stands: bool,
    /// A replica whose copy was older than this and one `member_timeout` when its primary failed does not stand; `None` for any age.
    /// The default is ten times the default `member_timeout`, and a ping period of ten seconds, as in Valkey.
    pub copy_age_max: Option<Duration>,
    /// Whether this member chooses the first voters of its cluster. Of all its members one does, the one that the others join; they wait
    /// for its choice. Once there are voters, these choose their successors, whatever is said here.
    pub founds: bool,
    /// Whether a single slot without an owner stops all service.
    pub require_full_coverage: bool,
    /// Whether reads are served while the cluster is down.
    pub allow_reads_when_down: bool,
    /// Longest packet, bytes.
    pub packet_bytes_max: usize,
    /// Longest address, bytes.
    pub address_bytes_max: usize,
    /// Members that are known at once.
    pub members_max: usize,
    /// Replica groups that are known at once.
    pub groups_max: usize,
    /// Groups that one member follows.
    pub follows_max: usize,
    /// Members that are kept out at once.
    pub keep_outs_max: usize,
    /// Channels that this member subscribes to.
    pub channels_max: usize,
    /// Longest name of a channel, bytes.
    pub channel_bytes_max: usize,
    /// Longest published message, bytes.
    pub message_bytes_max: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            member_timeout: Duration::from_secs(15),
            probe_interval: Duration::from_millis(200),
            probe_wait_min: Duration::from_millis(100),
            probe_wait_max: Duration::from_millis(500),
            indirect_probes: 3,
            news_delay: Duration::from_millis(10),
            news_fanout: 4,
            news_tells_per_log2: 3,
            piggyback_bytes_max: 700,
            sync_interval: Duration::from_millis(300),
            rejoin_delay: Duration::from_millis(1_000),
            voters_chosen_max: 7,
            voters_max: 127,
            rank_delay: Duration::from_millis(200),
            ballot_wait: Duration::from_millis(500),
            ballot_retry_max: Duration::from_millis(150),
            handover_max: Duration::from_millis(5_000),
            keep_out: Duration::from_secs(60),
            save_interval: Duration::from_secs(5),
            migration_barrier: 1,
            migrates: true,
            stands: true,
            copy_age_max: Some(Duration::from_secs(10 * 15 + 10)),
            founds: true,
            require_full_coverage: true,
            allow_reads_when_down: false,
            packet_bytes_max: 8 * 1024,
            address_bytes_max: 256,
            members_max: 8_192,
            groups_max: 8_192,
            follows_max: 64,
            keep_outs_max: 1_024,
            channels_max: 4_096,
            channel_bytes_max: 1_024,
            message_bytes_max: 6 * 1024,
        }
    }
}
