//! `/health/*`: few words for load balancers, orchestrators and people in a hurry.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Response, StatusCode};
use serde::Serialize;

use super::Front;
use super::routes::json;
use crate::node::membership::view::BusStatus;

#[derive(Serialize)]
struct Health {
    status: &'static str,
    /// Whether a majority of the voters is in reach.
    #[serde(skip_serializing_if = "Option::is_none")]
    majority: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    alive: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    known: Option<usize>,
}

/// The process answers.
pub(super) fn live() -> Response<Full<Bytes>> {
    json(StatusCode::OK, &Health { status: "live", majority: None, alive: None, known: None })
}

/// The server takes part.
pub(super) async fn ready(front: &Front) -> Response<Full<Bytes>> {
    let bus = front.node.bus().await;
    let (code, status) = match (front.node.is_draining(), front.node.is_ready()) {
        (true, _) => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
        (false, true) => (StatusCode::OK, "ready"),
        (false, false) => (StatusCode::SERVICE_UNAVAILABLE, "joining"),
    };
    json(code, &Health { status, majority: Some(bus.majority), alive: None, known: None })
}

/// How the cluster is, as this server sees it.
pub(super) async fn cluster(front: &Front) -> Response<Full<Bytes>> {
    let bus = front.node.bus().await;
    let (code, status) = judge(&bus);
    let (alive, known) = (bus.living(), bus.known());
    json(code, &Health { status, majority: Some(bus.majority), alive: Some(alive), known: Some(known) })
}

/// Healthy is where everybody is alive; nothing can be decided without a majority of the voters.
fn judge(bus: &BusStatus) -> (StatusCode, &'static str) {
    match bus.majority {
        _ if bus.voters_epoch == 0 => (StatusCode::SERVICE_UNAVAILABLE, "forming"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "minority"),
        true if bus.living() == bus.known() => (StatusCode::OK, "healthy"),
        true => (StatusCode::OK, "degraded"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::membership::view::{MemberState, MemberView};

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
            let (code, status) = judge(&BusStatus { voters_epoch, majority, members, ..BusStatus::default() });
            assert_eq!((status, code == StatusCode::OK), (expected, majority && voters_epoch > 0), "{states:?}");
        }
    }
}
