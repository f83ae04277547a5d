//! The membership in metrics.

use super::{Kind, Page};
use ashlar_node::membership::view::{BusCounters, BusStatus, MemberState, SpanView};

/// All metrics of the bus.
pub(super) fn bus(page: &mut Page, bus: &BusStatus) {
    members(page, bus);
    traffic(page, &bus.counters);
    watching(page, &bus.counters);
    elections(page, &bus.counters);
    spans(page, bus);
}

fn members(page: &mut Page, bus: &BusStatus) {
    let name = "ashlar_bus_members";
    page.metric(name, Kind::Gauge, "Members by state, this server included.");
    for state in MemberState::ALL {
        page.sample(name, &[("state", state.name())], bus.count(state));
    }
    page.single("ashlar_bus_voters", Kind::Gauge, "Servers that vote on failures.", bus.voters.len());
    page.single("ashlar_bus_voters_epoch", Kind::Gauge, "Which set of voters stands.", bus.voters_epoch);
    page.single("ashlar_bus_epoch", Kind::Gauge, "The greatest epoch that is known.", bus.epoch);
    let help = "1 if a majority of the voters is in reach.";
    page.single("ashlar_bus_majority", Kind::Gauge, help, u8::from(bus.majority));
}

fn traffic(page: &mut Page, counted: &BusCounters) {
    for (name, help, value) in [
        ("ashlar_bus_sent_packets_total", "Packets handed out for sending.", counted.packets_sent),
        ("ashlar_bus_sent_bytes_total", "Their bytes.", counted.bytes_sent),
        ("ashlar_bus_received_packets_total", "Packets that came.", counted.packets_received),
        ("ashlar_bus_received_bytes_total", "Their bytes.", counted.bytes_received),
        ("ashlar_bus_unsent_packets_total", "Packets to servers that were not connected.", counted.packets_unsent),
        ("ashlar_bus_dropped_packets_total", "Packets that came and found no room.", counted.packets_dropped),
    ] {
        page.single(name, Kind::Counter, help, value);
    }
    let name = "ashlar_bus_refused_packets_total";
    page.metric(name, Kind::Counter, "Packets that were refused, in whole or in part, and moved no state.");
    for (cause, count) in [
        ("malformed", counted.refused_malformed),
        ("version", counted.refused_version),
        ("cluster", counted.refused_cluster),
        ("stale", counted.refused_stale),
        ("replayed", counted.refused_replayed),
        ("stranger", counted.refused_stranger),
        ("kept_out", counted.refused_kept_out),
        ("unasked", counted.refused_unasked),
        ("unentitled", counted.refused_unentitled),
        ("full", counted.refused_full),
    ] {
        page.sample(name, &[("cause", cause)], count);
    }
}

fn watching(page: &mut Page, counted: &BusCounters) {
    for (name, help, value) in [
        ("ashlar_bus_probes_total", "Probes sent.", counted.probes_sent),
        ("ashlar_bus_silent_probes_total", "Probes without an answer in time.", counted.probes_silent),
        ("ashlar_bus_doubts_total", "Members that were silent to others' probes too.", counted.doubts_raised),
        ("ashlar_bus_cleared_doubts_total", "Doubts that ended with a sign of life.", counted.doubts_cleared),
        ("ashlar_bus_suspicions_total", "Suspicions of this server.", counted.suspicions),
        ("ashlar_bus_failures_total", "Failures that became known here.", counted.failures),
        ("ashlar_bus_recoveries_total", "Failed members that came back.", counted.recoveries),
        ("ashlar_bus_refutations_total", "Failures of this server that it refuted.", counted.refutations),
        ("ashlar_bus_stalls_total", "Times that this process was stopped for a while.", counted.stalls),
        ("ashlar_bus_syncs_total", "Exchanges of differences begun.", counted.syncs_begun),
    ] {
        page.single(name, Kind::Counter, help, value);
    }
}

fn elections(page: &mut Page, counted: &BusCounters) {
    let name = "ashlar_bus_ballots_total";
    page.metric(name, Kind::Counter, "Ballots in which this server stood.");
    let outcomes = [("begun", counted.ballots_begun), ("won", counted.ballots_won), ("lost", counted.ballots_lost)];
    for (outcome, count) in outcomes {
        page.sample(name, &[("outcome", outcome)], count);
    }
    let name = "ashlar_bus_votes_total";
    page.metric(name, Kind::Counter, "Votes that others asked of this server.");
    for (answer, count) in [("given", counted.votes_given), ("refused", counted.votes_refused)] {
        page.sample(name, &[("answer", answer)], count);
    }
}

fn spans(page: &mut Page, bus: &BusStatus) {
    let counted = &bus.counters;
    for (name, help, spans) in [
        ("ashlar_bus_suspicion_seconds", "From silence to suspicion, here.", counted.to_suspicion),
        ("ashlar_bus_failure_seconds", "From silence to a failure declared here.", counted.to_failure),
        ("ashlar_bus_ballot_seconds", "From a primary's failure to this server's election.", counted.to_ballot),
        ("ashlar_bus_convergence_seconds", "How long this server differed from others.", counted.to_convergence),
        ("ashlar_bus_persist_seconds", "From durable state to its place on the drive.", bus.persist),
    ] {
        span(page, name, help, spans);
    }
}

/// A summary without quantiles, and beside it the longest and the last one.
#[allow(clippy::cast_precision_loss, reason = "a span needs no 53 bits")]
fn span(page: &mut Page, name: &str, help: &str, spans: SpanView) {
    let seconds = |micros: u64| micros as f64 / 1e6;
    page.metric(name, Kind::Summary, help);
    page.sample(&format!("{name}_sum"), &[], seconds(spans.sum_us));
    page.sample(&format!("{name}_count"), &[], spans.count);
    page.single(&format!("{name}_longest"), Kind::Gauge, "The longest of these.", seconds(spans.longest_us));
    page.single(&format!("{name}_last"), Kind::Gauge, "The last of these.", seconds(spans.last_us));
}
