//! What can be configured about memory that is full, and about giving it back.

/// A number of bytes, or a share of the memory for data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Share {
    Bytes(u64),
    Percent(u64),
}

impl Share {
    /// From a number of bytes with its unit, which `bytes` reads, or a number of percent.
    pub(crate) fn read(text: &[u8], bytes: impl Fn(&[u8]) -> Option<u64>) -> Option<Self> {
        let Some(percent) = text.strip_suffix(b"%") else { return bytes(text).map(Self::Bytes) };
        let percent = std::str::from_utf8(percent).ok()?.parse().ok()?;
        (percent <= 100).then_some(Self::Percent(percent))
    }

    /// As it is written.
    pub(crate) fn show(self) -> String {
        match self {
            Self::Bytes(bytes) => bytes.to_string(),
            Self::Percent(percent) => format!("{percent}%"),
        }
    }
}

/// How keys and clients are chosen that go when memory is full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemorySettings {
    /// Keys that are drawn at a time (`maxmemory-samples`).
    pub(crate) samples: usize,
    /// How much is done before a command, 0 to 100 (`maxmemory-eviction-tenacity`).
    pub(crate) tenacity: u32,
    /// Whether keys that expire are told to others as UNLINK and not as DEL (`lazyfree-lazy-expire`); those that make room
    /// (`lazyfree-lazy-eviction`); those that a command takes out beside its work (`lazyfree-lazy-server-del`).
    pub(crate) expires_later: bool,
    pub(crate) evicts_later: bool,
    pub(crate) replaces_later: bool,
    /// Whether DEL gives large values back later, as UNLINK does (`lazyfree-lazy-user-del`).
    pub(crate) deletes_later: bool,
    /// Whether FLUSHALL and FLUSHDB give everything back later unless they are told otherwise (`lazyfree-lazy-user-flush`).
    pub(crate) flushes_later: bool,
    /// What all clients may take together; 0 for any (`maxmemory-clients`).
    pub(crate) clients: Share,
}

impl Default for MemorySettings {
    fn default() -> Self {
        Self {
            samples: 5,
            tenacity: 10,
            expires_later: true,
            evicts_later: true,
            replaces_later: true,
            deletes_later: true,
            flushes_later: true,
            clients: Share::Bytes(0),
        }
    }
}

impl MemorySettings {
    /// What all clients may take together, bytes, where data may take so many.
    pub(crate) fn clients_bytes_max(&self, memory_bytes_max: u64) -> Option<u64> {
        let bytes = match self.clients {
            Share::Bytes(bytes) => bytes,
            Share::Percent(percent) => {
                let bytes = u128::from(memory_bytes_max) * u128::from(percent) / 100;
                u64::try_from(bytes).unwrap_or(u64::MAX)
            }
        };
        (bytes > 0).then_some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_memory() {
        let read = |text: &str| {
            Share::read(text.as_bytes(), |text| std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()))
        };
        for (text, bytes) in [("0", None), ("700", Some(700)), ("7%", Some(70)), ("0%", None), ("100%", Some(1_000))] {
            let clients = read(text).unwrap();
            assert_eq!(clients.show(), text);
            assert_eq!(MemorySettings { clients, ..MemorySettings::default() }.clients_bytes_max(1_000), bytes);
        }
        for text in ["", "%", "101%", "-1%", "x"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
