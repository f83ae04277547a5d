//! Replacing the cluster's secret while the cluster runs.
//!
//! One server leads. First every server holds the new secret beside the old one, durably; only when all do, each lets the
//! old one go. So any two servers have a secret in common at every moment, whoever stops wherever, and no connection is
//! lost. What was left unfinished is finished by the next rotation, led by a server that has the newer secret.
//!
//! The new secret travels over TLS, to servers that have proved the old one, and nowhere else. So a rotation helps against
//! an old secret that was read, not against somebody who is a member by it: that one has to be forgotten first.

use core::fmt;
use core::time::Duration;
use std::sync::atomic::{AtomicBool, Ordering};

use ashlar_grid::CallOptions;
use ashlar_grid::handler::{HandlerId, Method, Packed};
use ashlar_grid::hello::Secrets;
use ashlar_grid::seam::{BoxFuture, Lane, Runtime};
use ashlar_wire::id::ServerId;
use ashlar_wire::secret::{KeyId, Secret};
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use super::membership::view::MemberState;
use super::promise::promise;
use super::{Node, together};

/// How long a server may take for one step, its drive included. A rotation has three.
const STEP_ANSWER_MAX: Duration = Duration::from_millis(2_500);

/// One step at one server.
pub(super) struct TakeStep;

impl Method for TakeStep {
    const ID: HandlerId = HandlerId::Secret;
    const LANE: Lane = Lane::Small;
    const IDEMPOTENT: bool = true;
    type Request = Packed<Step>;
    type Reply = Packed<Answer>;
}

/// What a server is asked to do.
#[derive(Clone, Serialize, Deserialize)]
pub(super) enum Step {
    /// Nothing: to tell what it holds.
    Look,
    /// To hold this secret too, before the one that it has; 64 hexadecimal digits.
    Hold(String),
    /// To hold the secret of this key id alone.
    Keep(u64),
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Look => f.write_str("Look"),
            Self::Hold(_) => f.write_str("Hold(***)"),
            Self::Keep(key) => write!(f, "Keep({key:016x})"),
        }
    }
}

/// What a server holds after a step: key ids, the newest first; or why it did not take it. Nothing has changed then.
pub(super) type Answer = Result<Vec<u64>, String>;

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
#[derive(Debug, Clone, PartialEq, Eq)]
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
pub(super) struct Turns {
    leads: AtomicBool,
    steps: AtomicBool,
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

/// What a server with `held` holds after `step`; `None` if that changes nothing.
fn after(held: &Secrets, step: &Step) -> Result<Option<Secrets>, String> {
    match step {
        Step::Look => Ok(None),
        Step::Hold(text) => {
            let secret = Secret::from_hex(text).map_err(|error| error.to_string())?;
            if held.holds(secret.key_id()) {
                return Ok(None);
            }
            if held.older().is_some() {
                return Err(
                    "it has a newer secret from a rotation that was not finished: ask that server to rotate".into()
                );
            }
            Ok(Some(Secrets::rotating(secret, held.newest().clone())))
        }
        Step::Keep(key) => {
            let kept = held.get(KeyId(*key)).ok_or_else(|| format!("it has no secret {key:016x}"))?;
            Ok(held.older().is_some().then(|| Secrets::new(kept.clone())))
        }
    }
}

/// Whether an earlier rotation has to be finished first.
fn is_unfinished(own: &[KeyId], others: &[(ServerId, Vec<u64>)]) -> Result<bool, RotateError> {
    let is_ahead = |keys: &[u64]| keys.first().is_some_and(|&key| !own.contains(&KeyId(key)));
    if let Some((server, _)) = others.iter().find(|(_, keys)| is_ahead(keys)) {
        return Err(RotateError::Elsewhere(server.to_string()));
    }
    Ok(own.len() > 1 || others.iter().any(|(_, keys)| keys.len() > 1))
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
        let held = self.grid().secrets();
        let is_resumed = is_unfinished(&held.key_ids(), &present)?;
        let others: Vec<ServerId> = present.iter().map(|(server, _)| *server).collect();
        let secret = if is_resumed { held.newest().clone() } else { self.new_secret() };
        self.hand_out(&secret, &others, (!is_resumed).then(|| held.newest().key_id())).await?;
        let key = secret.key_id();
        let keep = Step::Keep(key.0);
        let mut unfinished: Vec<String> = self.tell(&others, &keep).await.into_iter().filter_map(refusal).collect();
        unfinished.extend(self.take_step(keep).await.err());
        let servers = others.len() + 1 - unfinished.len();
        Ok(Rotation { key: format!("{:016x}", key.0), servers, is_resumed, unfinished, absent })
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

    /// Has this server and `others` hold `secret` too. If one cannot, those that could go back to the secret `before`.
    async fn hand_out(&self, secret: &Secret, others: &[ServerId], before: Option<KeyId>) -> Result<(), RotateError> {
        let hold = Step::Hold(secret.to_hex().to_string());
        // This server first: whoever has a newer secret than the others can finish what breaks off.
        self.take_step(hold.clone()).await.map_err(RotateError::Refused)?;
        let refused: Vec<String> = self.tell(others, &hold).await.into_iter().filter_map(refusal).collect();
        if refused.is_empty() {
            return Ok(());
        }
        if let Some(before) = before {
            let back = Step::Keep(before.0);
            // Whoever does not hear this, or refuses, is found by the next rotation.
            self.tell(others, &back).await;
            self.take_step(back).await.map_err(RotateError::Refused)?;
        }
        Err(RotateError::Refused(refused.join("; ")))
    }

    /// Asks `servers` to take a step, all at once.
    async fn tell(&self, servers: &[ServerId], step: &Step) -> Vec<(ServerId, Answer)> {
        let asked = servers.iter().map(|&server| -> BoxFuture<(ServerId, Answer)> {
            let (node, step) = (self.clone(), Packed(step.clone()));
            Box::pin(async move {
                let options = CallOptions { fail_fast: true, ..CallOptions::within(STEP_ANSWER_MAX) };
                let reply = node.grid().call::<TakeStep>(server, &step, options).await;
                (server, reply.map_err(|error| error.to_string()).and_then(|Packed(answer)| answer))
            })
        });
        together::all(asked.collect()).await
    }

    /// Takes a step here, to its end even if nobody waits for it any more.
    pub(super) async fn take_step(&self, step: Step) -> Answer {
        let (answer, answered) = promise();
        let node = self.clone();
        self.runtime().spawn(Box::pin(async move { answer.keep(node.step(&step).await) }));
        answered.await.unwrap_or_else(|| Err("the server stops".into()))
    }

    async fn step(&self, step: &Step) -> Answer {
        let Some(_turn) = Turn::take(&self.0.turns.steps) else {
            return Err("another step of a rotation goes on there: try again".into());
        };
        let held = self.grid().secrets();
        if let Some(next) = after(&held, step)? {
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
        Ok(self.grid().secrets().key_ids().iter().map(|key| key.0).collect())
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

    type Outcome = Result<Option<Vec<u64>>, &'static str>;

    fn secret(byte: u8) -> Secret {
        Secret::from_bytes([byte; 32])
    }

    fn key(byte: u8) -> u64 {
        secret(byte).key_id().0
    }

    fn hold(byte: u8) -> Step {
        Step::Hold(secret(byte).to_hex().to_string())
    }

    #[test]
    fn steps() {
        let one = Secrets::new(secret(1));
        let both = Secrets::rotating(secret(2), secret(1));
        // What is held, the step, and what is held then or why it is refused.
        let cases: [(&Secrets, Step, Outcome); 9] = [
            (&one, Step::Look, Ok(None)),
            (&one, hold(2), Ok(Some(vec![key(2), key(1)]))),
            (&one, hold(1), Ok(None)),
            (&both, hold(2), Ok(None)),
            (&both, hold(3), Err("was not finished")),
            (&both, Step::Keep(key(2)), Ok(Some(vec![key(2)]))),
            (&both, Step::Keep(key(1)), Ok(Some(vec![key(1)]))),
            (&one, Step::Keep(key(2)), Err("has no secret")),
            (&one, Step::Hold("x".into()), Err("64 hexadecimal digits")),
        ];
        for (held, step, expected) in cases {
            let keys = |secrets: Secrets| secrets.key_ids().iter().map(|key| key.0).collect::<Vec<u64>>();
            match (after(held, &step), expected) {
                (Ok(next), Ok(expected)) => assert_eq!(next.map(keys), expected, "{step:?}"),
                (Err(reason), Err(expected)) => assert!(reason.contains(expected), "{step:?}: {reason}"),
                (result, _) => panic!("{step:?}: {result:?}"),
            }
        }
        assert_eq!(format!("{:?}", hold(1)), "Hold(***)", "a secret is never printed");
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
        assert_eq!(packed(&|out| Packed(Answer::Ok(vec![1, 2])).encode(out)), b"\x81\xa2Ok\x92\x01\x02");
        assert_eq!(packed(&|out| Packed(Answer::Err("no".into())).encode(out)), b"\x81\xa3Err\xa2no");
    }

    #[test]
    fn who_has_the_newer_secret_finishes() {
        let server = ServerId::from_bytes([7; 16]);
        let other = |keys: &[u8]| [(server, keys.iter().map(|&byte| key(byte)).collect::<Vec<u64>>())];
        let own = |keys: &[u8]| keys.iter().map(|&byte| KeyId(key(byte))).collect::<Vec<KeyId>>();
        assert_eq!(is_unfinished(&own(&[1]), &other(&[1])), Ok(false));
        assert_eq!(is_unfinished(&own(&[2, 1]), &other(&[1])), Ok(true), "not handed out to all");
        assert_eq!(is_unfinished(&own(&[2]), &other(&[2, 1])), Ok(true), "one has not let the old one go");
        assert_eq!(is_unfinished(&own(&[1]), &other(&[2, 1])), Err(RotateError::Elsewhere(server.to_string())));
    }
}
