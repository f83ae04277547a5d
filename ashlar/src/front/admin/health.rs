//! `/health/*`: few words for load balancers, orchestrators and people in a hurry.

use ashlar_kv::figures::ServiceFigures;
use ashlar_kv::keyspace::slot::SLOTS;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Response, StatusCode};
use serde::Serialize;

use super::routes::json;
use super::{Front, groups};
use ashlar_node::membership::view::BusStatus;

#[derive(Debug, Default, Serialize)]
struct Health {
    status: &'static str,
    /// Whether a majority of the voters is in reach.
    #[serde(skip_serializing_if = "Option::is_none")]
    majority: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    alive: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    known: Option<usize>,
    /// Slots that clients of the key-value cluster are served.
    #[serde(skip_serializing_if = "Option::is_none")]
    slots_served: Option<usize>,
    /// What clients are not served, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_served: Vec<String>,
    /// Placement groups with too few copies, or with copies that are being filled, as this server knows; see `/v1/groups`.
    #[serde(skip_serializing_if = "Option::is_none")]
    groups_degraded: Option<usize>,
}

/// The process answers.
pub(super) fn live() -> Response<Full<Bytes>> {
    json(StatusCode::OK, &Health { status: "live", ..Health::default() })
}

/// The server takes part, and its engines serve.
pub(super) async fn ready(front: &Front) -> Response<Full<Bytes>> {
    let bus = front.node.bus().await;
    let KeyValue { is_loading, slots_served, not_served } = key_value(&engines(front));
    let (code, status) = match (front.node.is_draining(), front.node.is_ready()) {
        (true, _) => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
        (false, _) if is_forgotten(&bus) => (StatusCode::SERVICE_UNAVAILABLE, "forgotten"),
        (false, false) => (StatusCode::SERVICE_UNAVAILABLE, "joining"),
        (false, true) if is_loading => (StatusCode::SERVICE_UNAVAILABLE, "loading"),
        (false, true) if slots_served == Some(0) => (StatusCode::SERVICE_UNAVAILABLE, "unserved"),
        (false, true) => (StatusCode::OK, "ready"),
    };
    json(code, &Health { status, majority: Some(bus.majority), slots_served, not_served, ..Health::default() })
}

/// How the cluster is, as this server sees it.
pub(super) async fn cluster(front: &Front) -> Response<Full<Bytes>> {
    let bus = front.node.bus().await;
    let KeyValue { slots_served, not_served, .. } = key_value(&engines(front));
    let state = front.drives.as_ref().and_then(|drives| drives.volumes.catalog().state_now());
    let groups_degraded = state.map(|state| groups::degraded(&groups::views(&state)));
    let (code, status) = judge(&bus, slots_served, groups_degraded);
    let (alive, known, majority) = (Some(bus.living()), Some(bus.known()), Some(bus.majority));
    json(code, &Health { status, majority, alive, known, slots_served, not_served, groups_degraded })
}

fn engines(front: &Front) -> Vec<(String, ServiceFigures)> {
    front.engines.as_ref().map(crate::os::kv::Observer::service).unwrap_or_default()
}

/// The key-value service, as the engines of this server see it.
#[derive(Debug, Default, PartialEq, Eq)]
struct KeyValue {
    /// An engine reads its data still.
    is_loading: bool,
    /// Slots of the cluster that clients are served; nothing where there is no cluster.
    slots_served: Option<usize>,
    /// What clients are not served, in words.
    not_served: Vec<String>,
}

fn key_value(engines: &[(String, ServiceFigures)]) -> KeyValue {
    // The first engine is a primary as a rule: it knows whether a majority is in reach.
    let cluster = engines.iter().find_map(|(_, service)| service.cluster);
    let mut not_served = Vec::new();
    if let Some(cluster) = cluster {
        let all = usize::from(SLOTS);
        let (free, failed) = (all - cluster.slots_assigned.min(all), cluster.slots_failed);
        if free > 0 {
            not_served.push(format!("{free} slots have no owner: run `ashlar kv rebalance`"));
        }
        if failed > 0 {
            not_served.push(format!("{failed} slots are of servers that have failed"));
        }
        if !cluster.is_up {
            not_served.push("this server's engines answer CLUSTERDOWN".to_owned());
        }
    }
    for (place, service) in engines {
        if service.is_loading {
            not_served.push(format!("{place} is loading its data"));
        }
        if service.is_log_refused {
            not_served.push(format!("{place} cannot write its log: it refuses writes"));
        }
    }
    KeyValue {
        is_loading: engines
            .iter()
            .any(|(_, service)| service.is_loading && service.cluster.is_none_or(|c| c.slots_owned > 0)),
        slots_served: cluster.map(|cluster| cluster.slots_served()),
        not_served,
    }
}

/// Whether the cluster has forgotten this server. The word of one member is nothing while it reaches a majority.
fn is_forgotten(bus: &BusStatus) -> bool {
    bus.forgotten_by.is_some() && !bus.majority
}

/// Healthy is where everybody is alive, every slot is served and every placement group has all its copies; nothing can be decided
/// without a majority of the voters.
fn judge(bus: &BusStatus, slots_served: Option<usize>, groups_degraded: Option<usize>) -> (StatusCode, &'static str) {
    match bus.majority {
        _ if is_forgotten(bus) => (StatusCode::SERVICE_UNAVAILABLE, "forgotten"),
        _ if bus.voters_epoch == 0 => (StatusCode::SERVICE_UNAVAILABLE, "forming"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "minority"),
        true if slots_served == Some(0) => (StatusCode::SERVICE_UNAVAILABLE, "unserved"),
        true if slots_served.is_some_and(|slots| slots < usize::from(SLOTS)) => (StatusCode::OK, "degraded"),
        true if bus.living() == bus.known() && groups_degraded.is_none_or(|groups| groups == 0) => {
            (StatusCode::OK, "healthy")
        }
        true => (StatusCode::OK, "degraded"),
    }
}

#[cfg(test)]
mod tests {
    use ashlar_kv::figures::ClusterFigures;

    use super::*;
    use ashlar_node::membership::view::{MemberState, MemberView};

    fn member(state: MemberState) -> MemberView {
        let (server, address) = (String::new(), String::new());
        MemberView { server, address, zone: 0, incarnation: 1, state, since_ms: 0, voter: false }
    }

    #[test]
    fn judgement() {
        use MemberState::{Alive, Doubted, Failed, Forgotten, Suspect};
        let cases: [(u64, bool, &[MemberState], &str); 7] = [
            (0, false, &[Alive], "forming"),
            (1, false, &[Alive, Failed], "minority"),
            (1, true, &[Alive, Alive], "healthy"),
            (1, true, &[Alive, Forgotten], "healthy"),
            (1, true, &[Alive, Doubted], "healthy"),
            (1, true, &[Alive, Suspect], "degraded"),
            (1, true, &[Alive, Alive, Failed], "degraded"),
        ];
        for (voters_epoch, majority, states, expected) in cases {
            let members = states.iter().copied().map(member).collect();
            let bus = BusStatus { voters_epoch, majority, members, ..BusStatus::default() };
            for slots in [None, Some(16_384)] {
                let (code, status) = judge(&bus, slots, None);
                assert_eq!((status, code == StatusCode::OK), (expected, majority && voters_epoch > 0), "{states:?}");
            }
            let (some, none) = (judge(&bus, Some(16_383), Some(0)), judge(&bus, Some(0), Some(0)));
            let is_decided = majority && voters_epoch > 0;
            assert_eq!((some.1, some.0.as_u16()), if is_decided { ("degraded", 200) } else { (expected, 503) });
            assert_eq!((none.1, none.0.as_u16()), if is_decided { ("unserved", 503) } else { (expected, 503) });
        }
    }

    #[test]
    fn a_server_that_was_forgotten_says_so_unless_it_reaches_a_majority() {
        let told =
            |majority| BusStatus { voters_epoch: 1, majority, forgotten_by: Some("1".into()), ..BusStatus::default() };
        assert_eq!(judge(&told(false), Some(0), None), (StatusCode::SERVICE_UNAVAILABLE, "forgotten"));
        assert_eq!(judge(&told(true), None, Some(0)), (StatusCode::OK, "healthy"));
    }

    #[test]
    fn a_cluster_whose_groups_lack_copies_is_degraded() {
        let bus = BusStatus { voters_epoch: 1, majority: true, ..BusStatus::default() };
        assert_eq!(judge(&bus, Some(16_384), Some(0)), (StatusCode::OK, "healthy"));
        assert_eq!(judge(&bus, Some(16_384), Some(1)), (StatusCode::OK, "degraded"));
    }

    #[test]
    fn what_is_not_served_is_told() {
        let up = ClusterFigures { is_up: true, slots_owned: 1, slots_assigned: 16_384, slots_failed: 0 };
        let told = |service| key_value(&[("h:1".to_owned(), service)]);
        let service = ServiceFigures { cluster: Some(up), ..ServiceFigures::default() };
        assert_eq!(told(service), KeyValue { slots_served: Some(16_384), ..KeyValue::default() });
        assert_eq!(key_value(&[]), KeyValue::default(), "no engine is nothing amiss");
        let down = ClusterFigures { is_up: false, slots_owned: 0, slots_assigned: 16_000, slots_failed: 5_461 };
        let amiss = told(ServiceFigures { is_loading: true, is_log_refused: true, cluster: Some(down) });
        assert_eq!(
            (amiss.slots_served, amiss.is_loading),
            (Some(0), false),
            "a replica that gets its copy is no reason"
        );
        let expected = [
            "384 slots have no owner: run `ashlar kv rebalance`",
            "5461 slots are of servers that have failed",
            "this server's engines answer CLUSTERDOWN",
            "h:1 is loading its data",
            "h:1 cannot write its log: it refuses writes",
        ];
        assert_eq!(amiss.not_served, expected);
    }
}
