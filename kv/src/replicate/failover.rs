//! `FAILOVER`: a primary hands its role to a replica that has everything.
//!
//! Writes are held back until a replica has acknowledged the whole stream. Then this server follows that one, and asks it, when it
//! asks for the stream, to be the primary. Whoever was held back finds a replica.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ashlar_wire::time::Instant;

use super::role::Upstream;
use super::{Phase, Replica};
use crate::engine::Engine;
use crate::time::Now;

/// How far it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
enum State {
    #[default]
    None,
    /// A replica is to have everything.
    Waits(Order),
    /// The replica is to be told that it is the primary.
    Hands,
    /// It said no.
    Refused(String),
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Order {
    /// To whom; to any that has everything otherwise.
    pub(crate) target: Option<(String, i64)>,
    /// Until when it is waited for.
    pub(crate) until: Option<Instant>,
    /// Then it is the primary although it lacks something.
    pub(crate) is_forced: bool,
}

/// A failover, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Failover(Mutex<State>);

impl Failover {
    /// As INFO tells it.
    pub(crate) fn name(&self) -> &'static str {
        match &*self.state() {
            State::None => "no-failover",
            State::Waits(_) => "waiting-for-sync",
            State::Hands | State::Refused(_) => "failover-in-progress",
        }
    }

    /// Whether there is one.
    pub(crate) fn is_on(&self) -> bool {
        *self.state() != State::None
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a replica is at an address.
pub(crate) fn is_at(replica: &Replica, host: &str, port: i64) -> bool {
    replica.introduction.port == port && replica.host().eq_ignore_ascii_case(host)
}

impl Engine {
    /// Writes are held back from now on, and the role goes to a replica.
    pub(crate) fn begin_failover(&self, order: Order) {
        *self.failover.state() = State::Waits(order);
        self.pause.set_failover(true);
    }

    /// Whether the server that is followed is to be told that it is a primary.
    pub(super) fn is_handing_over(&self) -> bool {
        *self.failover.state() == State::Hands
    }

    /// The other is the primary now.
    pub(super) fn failover_done(&self, now: Now) {
        let mut state = self.failover.state();
        if *state == State::Hands {
            *state = State::None;
            drop(state);
            tracing::info!(at_ms = now.unix_ms(), "the failover is done: the other is the primary");
            self.waiting.release_all(self);
            self.pause.set_failover(false);
        }
    }

    /// The other does not want to be.
    pub(super) fn failover_refused(&self, why: &str) {
        let mut state = self.failover.state();
        if *state == State::Hands {
            *state = State::Refused(why.to_owned());
        }
    }

    /// Gives it up, if there is one, now or with the next tick. Says whether there was.
    pub(crate) fn call_off_failover(&self) -> bool {
        let mut state = self.failover.state();
        match *state {
            State::None => return false,
            State::Waits(_) => {
                *state = State::None;
                self.pause.set_failover(false);
            }
            State::Hands | State::Refused(_) => *state = State::Refused("somebody called it off".to_owned()),
        }
        true
    }

    /// Gives it up, if there is one: this server is a primary as before. No shard is held.
    fn abort_failover(&self, why: &str, now: Now) {
        let before = std::mem::take(&mut *self.failover.state());
        if before == State::None {
            return;
        }
        tracing::warn!(why, "the failover is given up");
        if !matches!(before, State::Waits(_)) {
            self.follow(None, now);
        }
        self.pause.set_failover(false);
    }

    /// Goes on with it. To be called with every tick, with no shard held.
    pub(crate) fn tend_failover(&self, now: Now) {
        let order = match &*self.failover.state() {
            State::None | State::Hands => return,
            State::Refused(why) => Err(why.clone()),
            State::Waits(order) => Ok(order.clone()),
        };
        let order = match order {
            Ok(order) => order,
            Err(why) => {
                self.abort_failover(&why, now);
                return;
            }
        };
        if order.until.is_some_and(|until| until <= now.instant) {
            match order.target {
                Some((host, port)) if order.is_forced => self.hand_over(host, port, now),
                _ => self.abort_failover("no replica had everything in time", now),
            }
            return;
        }
        let end = self.replication.end();
        let has_all = |replica: &Replica| replica.phase() == Phase::Online && replica.acknowledged() == end;
        let is_meant = |replica: &Replica| match &order.target {
            Some((host, port)) => is_at(replica, host, *port),
            None => true,
        };
        let replicas = self.replication.replicas();
        if let Some(replica) = replicas.iter().find(|replica| is_meant(replica) && has_all(replica)) {
            self.hand_over(replica.host(), replica.introduction.port, now);
        } else {
            self.replication.ask();
        }
    }

    fn hand_over(&self, host: String, port: i64, now: Now) {
        *self.failover.state() = State::Hands;
        let port = u16::try_from(port).unwrap_or_default();
        self.follow(Some(Upstream::Address { host, port }), now);
    }
}
