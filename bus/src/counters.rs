//! What a bus counts and measures about itself.

use crate::event::Spans;

/// Counts since the start of this life. Packets that were refused moved no state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Packets handed out for sending.
    pub packets_sent: u64,
    /// Their bytes.
    pub bytes_sent: u64,
    /// Packets handed in.
    pub packets_received: u64,
    /// Their bytes.
    pub bytes_received: u64,
    /// Refused: not a packet, or against a limit.
    pub refused_malformed: u64,
    /// Refused: a version that this program does not speak.
    pub refused_version: u64,
    /// Refused: of another cluster.
    pub refused_cluster: u64,
    /// Refused: from an earlier life of its sender.
    pub refused_stale: u64,
    /// Refused: came twice, or too late to tell.
    pub refused_replayed: u64,
    /// Refused: from a server that is no member.
    pub refused_stranger: u64,
    /// Refused: from a server that was forgotten.
    pub refused_kept_out: u64,
    /// Refused: an answer that nobody waits for, or one that came twice.
    pub refused_unasked: u64,
    /// Refused: said by someone who has no right to say it.
    pub refused_unentitled: u64,
    /// Refused: a table is full.
    pub refused_full: u64,
    /// Direct probes sent.
    pub probes_sent: u64,
    /// Direct probes that were not answered in time.
    pub probes_silent: u64,
    /// Members that were silent to indirect probes too.
    pub doubts_raised: u64,
    /// Doubts that ended with a sign of life.
    pub doubts_cleared: u64,
    /// Suspicions (PFAIL) of this member.
    pub suspicions: u64,
    /// Failures (FAIL) that became known.
    pub failures: u64,
    /// Failed members that came back.
    pub recoveries: u64,
    /// Failures of this member that it has refuted.
    pub refutations: u64,
    /// Sweeps over all members after several doubts at once.
    pub sweeps: u64,
    /// Times that this process was found to have been stopped for a while.
    pub stalls: u64,
    /// Ballots begun.
    pub ballots_begun: u64,
    /// Ballots won.
    pub ballots_won: u64,
    /// Ballots given up.
    pub ballots_lost: u64,
    /// Votes given.
    pub votes_given: u64,
    /// Votes refused.
    pub votes_refused: u64,
    /// Claims that a greater one has replaced.
    pub claims_replaced: u64,
    /// Stale owners that were told of a greater claim.
    pub updates_sent: u64,
    /// Exchanges of differences begun.
    pub syncs_begun: u64,
    /// Times that the durable state was handed out.
    pub persists: u64,
    /// From the beginning of silence to suspicion, at this member.
    pub time_to_suspicion: Spans,
    /// From the beginning of silence to a failure declared at this member.
    pub time_to_failure: Spans,
    /// From a primary's failure to this member's election.
    pub time_to_ballot: Spans,
    /// How long this member differed from those that it spoke with.
    pub time_to_convergence: Spans,
}
