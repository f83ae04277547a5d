//! What WAIT and WAITAOF wait for: that so many replicas have what their client wrote, and perhaps the log.

use std::sync::atomic::Ordering;

use super::{Phase, Replication};
use crate::resp::{Protocol, Reply};

/// What replicas, and perhaps logs, must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Copied {
    /// Position of the stream that replicas must have.
    pub(crate) position: u64,
    /// How many of them.
    pub(crate) replicas: i64,
    /// It is about logs: theirs and ours.
    pub(crate) log: Option<LogGoal>,
}

/// What is waited for of our own log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogGoal {
    /// It must be durable up to here.
    pub(crate) position: u64,
    /// Whether that is waited for at all.
    pub(crate) is_wanted: bool,
    /// Whether there is a log.
    pub(crate) is_on: bool,
}

impl Copied {
    /// Replicas that have the stream up to the position, or whose logs have it.
    fn replicas(&self, replication: &Replication) -> i64 {
        let has = |replica: &super::Replica| {
            let position = if self.log.is_some() { replica.logged() } else { replica.acknowledged() };
            replica.phase() == Phase::Online && position >= self.position
        };
        let count = replication.stream().replicas.values().filter(|replica| has(replica)).count();
        i64::try_from(count).unwrap_or(i64::MAX)
    }

    /// Whether our own log has what it must.
    fn is_logged(&self, replication: &Replication) -> bool {
        let is_durable = |log: &LogGoal| log.is_on && replication.durable.load(Ordering::Acquire) >= log.position;
        self.log.as_ref().is_some_and(is_durable)
    }

    /// Whether it is reached.
    pub(crate) fn is_reached(&self, replication: &Replication) -> bool {
        let wants_log = self.log.is_some_and(|log| log.is_wanted);
        self.replicas(replication) >= self.replicas && (!wants_log || self.is_logged(replication))
    }

    /// How far it is reached now.
    pub(crate) fn reply(&self, replication: &Replication) -> Vec<u8> {
        let mut reply = Reply::new(Protocol::Resp2);
        if self.log.is_some() {
            reply.array(2);
            reply.integer(i64::from(self.is_logged(replication)));
        }
        reply.integer(self.replicas(replication));
        reply.bytes().to_vec()
    }
}
