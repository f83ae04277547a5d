//! How many clients there may be, and how much each may take.

use super::card::ClientClass;

/// Limits of a connection's replies that have not left (`client-output-buffer-limit`); 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct OutputLimit {
    /// Bytes at which it ends at once.
    pub(crate) hard_bytes: u64,
    /// Bytes at which it ends if they stay so many for `soft_s`.
    pub(crate) soft_bytes: u64,
    pub(crate) soft_s: u64,
}

/// The limits of every class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutputLimits {
    pub(crate) normal: OutputLimit,
    pub(crate) replica: OutputLimit,
    pub(crate) pubsub: OutputLimit,
}

impl Default for OutputLimits {
    fn default() -> Self {
        let limit = |hard_bytes, soft_bytes, soft_s| OutputLimit { hard_bytes, soft_bytes, soft_s };
        Self {
            normal: OutputLimit::default(),
            replica: limit(256 << 20, 64 << 20, 60),
            pubsub: limit(32 << 20, 8 << 20, 60),
        }
    }
}

impl OutputLimits {
    /// What holds for a class. A primary is treated like any client.
    pub(crate) const fn of(&self, class: ClientClass) -> OutputLimit {
        match class {
            ClientClass::Normal | ClientClass::Primary => self.normal,
            ClientClass::Replica => self.replica,
            ClientClass::PubSub => self.pubsub,
        }
    }

    /// As the setting is written: `normal 0 0 0 slave ...`.
    pub(crate) fn show(&self) -> String {
        let one = |name: &str, limit: OutputLimit| {
            format!("{name} {} {} {}", limit.hard_bytes, limit.soft_bytes, limit.soft_s)
        };
        [one("normal", self.normal), one("slave", self.replica), one("pubsub", self.pubsub)].join(" ")
    }

    /// Changes the classes that `text` names, or tells why not. `bytes` reads a size with its unit.
    pub(crate) fn read(&mut self, text: &[u8], bytes: impl Fn(&[u8]) -> Option<u64>) -> Result<(), String> {
        let words: Vec<&[u8]> = text.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).collect();
        if !words.len().is_multiple_of(4) {
            return Err("Wrong number of arguments in buffer limit configuration.".into());
        }
        let mut changed = *self;
        for four in words.chunks_exact(4) {
            let class = ClientClass::named(four[0]).filter(|class| *class != ClientClass::Primary);
            let class = class.ok_or("Invalid client class specified in buffer limit configuration.")?;
            let failed = |what: &str| format!("Error in {what} setting in buffer limit configuration.");
            let seconds = std::str::from_utf8(four[3]).ok().and_then(|text| text.parse().ok());
            let limit = OutputLimit {
                hard_bytes: bytes(four[1]).ok_or_else(|| failed("hard limit"))?,
                soft_bytes: bytes(four[2]).ok_or_else(|| failed("soft limit"))?,
                soft_s: seconds.ok_or_else(|| failed("soft_seconds"))?,
            };
            match class {
                ClientClass::Replica => changed.replica = limit,
                ClientClass::PubSub => changed.pubsub = limit,
                ClientClass::Normal | ClientClass::Primary => changed.normal = limit,
            }
        }
        *self = changed;
        Ok(())
    }
}

/// What can be configured about clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientLimits {
    /// Connections at a time (`maxclients`).
    pub(crate) clients_max: usize,
    /// Seconds after which an idle one ends; 0 for never (`timeout`).
    pub(crate) idle_s_max: u64,
    /// Seconds between two looks whether its peer is there; 0 for never (`tcp-keepalive`).
    pub(crate) keepalive_s: u32,
    /// Bytes of requests that have not been run (`client-query-buffer-limit`).
    pub(crate) input_bytes_max: usize,
    /// `client-output-buffer-limit`.
    pub(crate) output: OutputLimits,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            clients_max: 10_000,
            idle_s_max: 0,
            keepalive_s: 300,
            input_bytes_max: 1 << 30,
            output: OutputLimits::default(),
        }
    }
}
