//! Replacing the cluster's secret while the cluster runs.
//!
//! One server leads (`lead`). It reserves every member for itself (`holder`); then every server holds the new secret
//! beside the old one, durably; only when all do, each lets the old one go. So any two servers have a secret in common at
//! every moment, whoever stops wherever and whoever else wants to lead, and no connection is lost. What was left
//! unfinished is finished by the next rotation, led by a server that has the newer secret. `model` explores these rules
//! completely.
//!
//! The new secret travels over TLS, to members that have proved the old one, and nowhere else. So a rotation helps against
//! an old secret that was read, not against somebody who is a member by it.

mod holder;
mod lead;
#[cfg(test)]
mod model;

use core::fmt;
use core::time::Duration;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use ashlar_grid::CallOptions;
use ashlar_grid::handler::{HandlerId, Method, Packed};
use ashlar_grid::hello::Secrets;
use ashlar_grid::seam::{BoxFuture, Lane, Runtime};
use ashlar_wire::id::ServerId;
use ashlar_wire::secret::{KeyId, Secret};
use holder::{ATTEMPT_MAX, Action, Holder, RESERVATION_MAX, Reservation};
use lead::{Lead, Next};
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use super::membership::view::MemberState;
use super::promise::promise;
use super::{Node, together};

/// How long a server may take for one step, its drive included. A rotation has at most five, and their sum is shorter than
/// a reservation lasts.
const STEP_ANSWER_MAX: Duration = Duration::from_millis(2_500);

/// One step at one server.
pub(crate) struct TakeStep;

impl Method for TakeStep {
    const ID: HandlerId = HandlerId::new(11);
    const LANE: Lane = Lane::Small;
    // Not sent again by the grid: a step that comes twice ends a reservation that it did not mean.
    const IDEMPOTENT: bool = false;
    type Request = Packed<Step>;
    type Reply = Packed<Answer>;
}

/// What a server is asked to do.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) enum Step {
    /// Nothing: to tell what it holds.
    Look,
    /// Version 1, which knew no reservations: refused.
    Hold(String),
    /// Version 1, which knew no reservations: refused.
    Keep(u64),
    /// Version 2: something, under this reservation.
    Take(Reservation, Told),
}

/// [`Action`] as it travels: with the secret itself.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) enum Told {
    /// See [`Action::Reserve`].
    Reserve,
    /// See [`Action::Hold`]; 64 hexadecimal digits.
    Hold(String),
    /// See [`Action::Keep`].
    Keep(u64),
    /// See [`Action::TakeBack`].
    TakeBack(u64),
    /// See [`Action::Release`].
    Release,
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Look => f.write_str("Look"),
            Self::Hold(_) => f.write_str("Hold(***)"),
            Self::Keep(key) => write!(f, "Keep({key:016x})"),
            Self::Take(reservation, told) => write!(f, "{told:?} by {}", reservation.leader),
        }
    }
}

impl fmt::Debug for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reserve => f.write_str("Reserve"),
            Self::Hold(_) => f.write_str("Hold(***)"),
            Self::Keep(key) => write!(f, "Keep({key:016x})"),
            Self::TakeBack(key) => write!(f, "TakeBack({key:016x})"),
            Self::Release => f.write_str("Release"),
        }
    }
}

impl Told {
    /// `action`, which holds `secret` if it holds one.
    fn of(action: Action, secret: &Secret) -> Self {
        match action {
            Action::Reserve => Self::Reserve,
            Action::Hold(_) => Self::Hold(secret.to_hex().to_string()),
            Action::Keep(key) => Self::Keep(key),
            Action::TakeBack(key) => Self::TakeBack(key),
            Action::Release => Self::Release,
        }
    }

    /// The action, and the secret if there is one.
    fn action(&self) -> Result<(Action, Option<Secret>), String> {
        Ok(match self {
            Self::Reserve => (Action::Reserve, None),
            Self::Hold(text) => {
                let secret = Secret::from_hex(text).map_err(|error| error.to_string())?;
                (Action::Hold(secret.key_id().0), Some(secret))
            }
            Self::Keep(key) => (Action::Keep(*key), None),
            Self::TakeBack(key) => (Action::TakeBack(*key), None),
            Self::Release => (Action::Release, None),
        })
    }
}

/// What a server holds after a step: key ids, the newest first; or why it did not take it. Nothing has changed then.
pub(crate) type Answer = Result<Vec<u64>, String>;

/// What a rotation did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rotation {
    /// The key id of the secret that holds from now on, 16 hexadecimal digits.
    pub key: String,
    /// Servers that hold it alone, this one included.
    pub servers: usize,
    /// Whether this was the end of an earlier rotation, whose secret it is.
    pub is_resumed: bool,
    /// Servers that hold the earlier secret as well, and why: another rotation ends that.
    pub unfinished: Vec<String>,
    /// Members that were left out because they did not answer. They need the file before they can come back.
    pub absent: Vec<String>,
}

/// Why the secret was not replaced. Every server works on with the one that it has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RotateError {
    /// Connections between servers are not encrypted: everybody on the way could read the new secret.
    NeedsTls,
    /// This server leads a rotation already. Retry safe.
    Busy,
    /// These members do not answer. Retry safe once they do, or are forgotten, or by insisting.
    Absent(Vec<String>),
    /// This server has a newer secret from a rotation that was not finished: that one has to lead.
    Elsewhere(String),
    /// A server did not take the new secret; it says why. Retry safe once the cause is gone.
    Refused(String),
}

impl fmt::Display for RotateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeedsTls => f.write_str(
                "connections between these servers are not encrypted, so the new secret could be read on its way: turn tls on",
            ),
            Self::Busy => f.write_str("this server replaces the secret already, or stops"),
            Self::Absent(servers) => write!(
                f,
                "these members do not answer and would be locked out: {}; start them, forget them, or insist and give them the \
                 new cluster.secret by hand",
                servers.join(", ")
            ),
            Self::Elsewhere(server) => {
                write!(f, "server {server} has a newer secret from a rotation that was not finished: ask that server")
            }
            Self::Refused(reason) => write!(f, "nothing was replaced: {reason}"),
        }
    }
}

impl core::error::Error for RotateError {}

/// What goes on here.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    leads: AtomicBool,
    steps: AtomicBool,
    holder: Mutex<Holder>,
}

/// The only one of its kind until it is dropped.
struct Turn<'a>(&'a AtomicBool);

impl<'a> Turn<'a> {
    fn take(taken: &'a AtomicBool) -> Option<Self> {
        (!taken.swap(true, Ordering::AcqRel)).then_some(Self(taken))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// What `held` becomes when a server holds `keys`, of which one may be that of `secret`.
fn with_keys(held: &Secrets, keys: &[u64], secret: Option<&Secret>) -> Result<Secrets, String> {
    let of = |key: u64| {
        let known = held.get(KeyId(key)).or(secret.filter(|secret| secret.key_id() == KeyId(key)));
        known.cloned().ok_or_else(|| format!("it has no secret {key:016x}"))
    };
    match *keys {
        [only] => Ok(Secrets::new(of(only)?)),
        [newer, older] => Ok(Secrets::rotating(of(newer)?, of(older)?)),
        _ => Err("a server holds one secret or two".into()),
    }
}

fn key_ids(secrets: &Secrets) -> Vec<u64> {
    secrets.key_ids().iter().map(|key| key.0).collect()
}

impl<R: Runtime> Node<R> {
    /// Replaces the cluster's secret at all members, or finishes what an earlier call began. When this returns, every
    /// server that is not named otherwise holds the new secret alone, on its drive. Members that do not answer are left out
    /// only if `insists`. Goes on to its end if the future is dropped.
    ///
    /// # Errors
    /// See [`RotateError`].
    pub async fn rotate_secret(&self, insists: bool) -> Result<Rotation, RotateError> {
        let (answer, answered) = promise();
        let node = self.clone();
        self.runtime().spawn(Box::pin(async move {
            let result = node.lead_rotation(insists).await;
            match &result {
                Ok(rotation) => {
                    info!(key = rotation.key, servers = rotation.servers, "the cluster's secret was replaced");
                }
                Err(error) => warn!(%error, "the cluster's secret was not replaced"),
            }
            answer.keep(result);
        }));
        answered.await.unwrap_or(Err(RotateError::Busy))
    }

    async fn lead_rotation(&self, insists: bool) -> Result<Rotation, RotateError> {
        if !self.0.plan.is_tls {
            return Err(RotateError::NeedsTls);
        }
        let _turn = Turn::take(&self.0.turns.leads).ok_or(RotateError::Busy)?;
        let (present, absent) = self.look_round().await;
        if !absent.is_empty() && !insists {
            return Err(RotateError::Absent(absent));
        }
        let others: Vec<ServerId> = present.iter().map(|(server, _)| *server).collect();
        let (own, made) = (self.0.plan.grid.server, self.new_secret());
        let lasts_ms = super::status::millis(RESERVATION_MAX);
        let reservation = Reservation { leader: own, attempt: self.draw(), lasts_ms };
        let deadline = self.runtime().now() + ATTEMPT_MAX;
        let (mut lead, mut next) = Lead::begin(own, others.clone(), reservation, made.key_id().0);
        let outcome = loop {
            let (servers, action) = match next {
                Next::Tell(servers, action) => (servers, action),
                Next::Done(outcome) => break outcome?,
            };
            if self.runtime().now() >= deadline {
                let seconds = RESERVATION_MAX.as_secs();
                let reason =
                    format!("the servers took too long: run it again in {seconds} s, and it goes on from there");
                break Err(RotateError::Refused(reason))?;
            }
            // An earlier rotation is finished with its secret.
            let held = self.grid().secrets();
            let secret = held.get(KeyId(lead.key)).unwrap_or(&made);
            let step = Step::Take(reservation, Told::of(action, secret));
            next = lead.handle(self.tell(&servers, &step).await);
        };
        let servers = others.len() + 1 - outcome.unfinished.len();
        let (is_resumed, unfinished) = (outcome.is_resumed, outcome.unfinished);
        Ok(Rotation { key: format!("{:016x}", lead.key), servers, is_resumed, unfinished, absent })
    }

    /// What the other members hold, and who does not say.
    async fn look_round(&self) -> (Vec<(ServerId, Vec<u64>)>, Vec<String>) {
        let bus = self.bus().await;
        let own = self.0.plan.grid.server;
        let members = bus.members.iter().filter(|member| member.state != MemberState::Forgotten);
        let others: Vec<ServerId> =
            members.filter_map(|member| member.server.parse().ok()).filter(|server| *server != own).collect();
        let (mut present, mut absent) = (Vec::new(), Vec::new());
        for (server, answer) in self.tell(&others, &Step::Look).await {
            match answer {
                Ok(keys) => present.push((server, keys)),
                Err(_) => absent.push(server.to_string()),
            }
        }
        (present, absent)
    }

    /// Asks `servers` to take a step, all at once; this one, too, if it is among them.
    async fn tell(&self, servers: &[ServerId], step: &Step) -> Vec<(ServerId, Answer)> {
        let asked = servers.iter().map(|&server| -> BoxFuture<(ServerId, Answer)> {
            let (node, step) = (self.clone(), Packed(step.clone()));
            Box::pin(async move {
                if server == node.0.plan.grid.server {
                    return (server, node.take_step(server, step.0).await);
                }
                let options = CallOptions { fail_fast: true, ..CallOptions::within(STEP_ANSWER_MAX) };
                let reply = node.grid().call::<TakeStep>(server, &step, options).await;
                (server, reply.map_err(|error| error.to_string()).and_then(|Packed(answer)| answer))
            })
        });
        together::all(asked.collect()).await
    }

    /// Takes a step here, to its end even if nobody waits for it any more. `caller` is the server that asks, by its proof.
    pub(crate) async fn take_step(&self, caller: ServerId, step: Step) -> Answer {
        let (answer, answered) = promise();
        let node = self.clone();
        self.runtime().spawn(Box::pin(async move { answer.keep(node.step(caller, &step).await) }));
        answered.await.unwrap_or_else(|| Err("the server stops".into()))
    }

    async fn step(&self, caller: ServerId, step: &Step) -> Answer {
        let (reservation, told) = match step {
            Step::Look => return Ok(key_ids(&self.grid().secrets())),
            Step::Hold(_) | Step::Keep(_) => {
                let reason =
                    "the server that leads this rotation runs an earlier version: upgrade all servers, then rotate";
                return Err(reason.into());
            }
            Step::Take(reservation, told) => (*reservation, told),
        };
        self.check_caller(caller, reservation).await?;
        let Some(_turn) = Turn::take(&self.0.turns.steps) else {
            return Err("another step of a rotation goes on there: try again".into());
        };
        let held = self.grid().secrets();
        let (action, secret) = told.action()?;
        let now = self.runtime().now();
        let next = {
            let mut holder = self.0.turns.holder.lock().unwrap_or_else(PoisonError::into_inner);
            holder.handle(&key_ids(&held), reservation, action, now)?
        };
        if let Some(keys) = next {
            let next = with_keys(&held, &keys, secret.as_ref())?;
            let (stored, storing) = promise();
            self.memory().keep_secrets(self.0.plan.grid.cluster, &next, Box::new(|result| stored.keep(result)));
            storing.await.unwrap_or_else(|| Err("the server stops".into()))?;
            info!(
                ?step,
                newest = format!("{:016x}", next.newest().key_id().0),
                "other secrets of the cluster are held"
            );
            self.grid().rotate(next);
        }
        Ok(key_ids(&self.grid().secrets()))
    }

    /// Whether `caller` may change the secret here under `reservation`.
    async fn check_caller(&self, caller: ServerId, reservation: Reservation) -> Result<(), String> {
        let refused = |reason: &str| {
            warn!(server = %caller, reason, "a step of a rotation of the secret was refused");
            Err(reason.to_owned())
        };
        // Here as well as at the leader: who relays a hello where nothing is encrypted could be the leader.
        if !self.0.plan.is_tls {
            return refused("connections to it are not encrypted, so no secret is taken over them: turn tls on");
        }
        if reservation.leader != caller {
            return refused("the reservation is another server's");
        }
        if caller == self.0.plan.grid.server {
            return Ok(());
        }
        let name = caller.to_string();
        let bus = self.bus().await;
        let is_member =
            bus.members.iter().any(|member| member.server == name && member.state != MemberState::Forgotten);
        if is_member { Ok(()) } else { refused("the server that asks is no member here") }
    }

    fn new_secret(&self) -> Secret {
        let mut bytes = [0; 32];
        self.runtime().random(&mut bytes);
        Secret::from_bytes(bytes)
    }
}

fn refusal((server, answer): (ServerId, Answer)) -> Option<String> {
    answer.err().map(|reason| format!("server {server}: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ashlar_grid::handler::Payload as _;

    fn secret(byte: u8) -> Secret {
        Secret::from_bytes([byte; 32])
    }

    #[test]
    fn secrets_are_found_by_their_keys() {
        let (one, two) = (secret(1), secret(2));
        let key = |secret: &Secret| secret.key_id().0;
        let held = Secrets::new(one.clone());
        let both = with_keys(&held, &[key(&two), key(&one)], Some(&two)).expect("both are known");
        assert_eq!(key_ids(&both), [key(&two), key(&one)]);
        assert_eq!(with_keys(&both, &[key(&one)], None).map(|held| key_ids(&held)), Ok(vec![key(&one)]));
        assert!(with_keys(&held, &[key(&two)], None).is_err());
        assert!(
            with_keys(&held, &[key(&two)], Some(&secret(3))).is_err(),
            "another secret than the one that was named"
        );
        let told = Told::of(Action::Hold(key(&two)), &two);
        assert_eq!(told.action().map(|(action, _)| action), Ok(Action::Hold(key(&two))));
        let reservation = Reservation { leader: ServerId::from_bytes([7; 16]), attempt: 1, lasts_ms: 1 };
        let text = format!("{:?} {:?}", Step::Hold(two.to_hex().to_string()), Step::Take(reservation, told));
        assert!(text.starts_with("Hold(***) Hold(***) by 07"), "a secret is never printed: {text}");
        assert!(Told::Hold("x".into()).action().is_err_and(|reason| reason.contains("64 hexadecimal digits")));
    }

    #[test]
    fn golden_bytes() {
        let packed = |value: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = Vec::new();
            value(&mut bytes);
            bytes
        };
        assert_eq!(packed(&|out| Packed(Step::Look).encode(out)), b"\xa4Look");
        assert_eq!(packed(&|out| Packed(Step::Hold("ab".into())).encode(out)), b"\x81\xa4Hold\xa2ab");
        assert_eq!(packed(&|out| Packed(Step::Keep(7)).encode(out)), b"\x81\xa4Keep\x07");
        let reservation = Reservation { leader: ServerId::from_bytes(*b"0123456789abcdef"), attempt: 5, lasts_ms: 6 };
        let take = |told: Told| packed(&|out| Packed(Step::Take(reservation, told.clone())).encode(out));
        let head = b"\x81\xa4Take\x92\x93\xd9\x2030313233343536373839616263646566\x05\x06";
        let cases: [(Told, &[u8]); 5] = [
            (Told::Reserve, b"\xa7Reserve"),
            (Told::Hold("ab".into()), b"\x81\xa4Hold\xa2ab"),
            (Told::Keep(7), b"\x81\xa4Keep\x07"),
            (Told::TakeBack(7), b"\x81\xa8TakeBack\x07"),
            (Told::Release, b"\xa7Release"),
        ];
        for (told, tail) in cases {
            assert_eq!(take(told.clone()), [&head[..], tail].concat(), "{told:?}");
        }
        assert_eq!(packed(&|out| Packed(Answer::Ok(vec![1, 2])).encode(out)), b"\x81\xa2Ok\x92\x01\x02");
        assert_eq!(packed(&|out| Packed(Answer::Err("no".into())).encode(out)), b"\x81\xa3Err\xa2no");
    }
}
