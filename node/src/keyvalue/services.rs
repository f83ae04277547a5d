//! What a server tells the others of its engines: the written form of a member's services. Version 1, at most
//! [`SERVICES_BYTES_MAX`] bytes.
//!
//! Numbers are MessagePack unsigned integers, texts MessagePack strings: version, port of the bus, zone, count of engines, and of each
//! engine its tag, its group, flags (bit 0: it stands in no ballot; bit 1: it has data), port, port with TLS, host, name of the machine,
//! nickname. What is longer than its limit is left out.

use ashlar_bus::member::SERVICES_BYTES_MAX;
use ashlar_bus::slot::GroupId;
use ashlar_kv::cluster::Announcement;
use ashlar_wire::pack::{PackError, Reader, write_str, write_uint};

use super::assignment::EngineInfo;

/// The version of the written form.
const VERSION: u64 = 1;
/// Engines of one server.
pub const ENGINES_MAX: usize = 2;
/// Bytes of a text.
const TEXT_BYTES_MAX: usize = 120;
/// It stands in no ballot.
const NEVER_STANDS: u64 = 1;
/// It has data.
const HAS_DATA: u64 = 2;

// The texts of all engines, and thirty bytes of numbers for each.
const _: () = assert!(ENGINES_MAX * (3 * (TEXT_BYTES_MAX + 3) + 30) + TEXT_BYTES_MAX + 20 <= SERVICES_BYTES_MAX);

/// A server's engines, as it tells of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Services {
    /// Where servers reach it.
    pub bus_port: u16,
    /// What it may be lost together with.
    pub zone: String,
    /// Its engines.
    pub engines: Vec<EngineInfo>,
}

/// A text that is not too long, or nothing.
fn bounded(text: &str) -> &str {
    if text.len() <= TEXT_BYTES_MAX { text } else { "" }
}

impl Services {
    /// The written form.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        write_uint(&mut out, VERSION);
        write_uint(&mut out, self.bus_port.into());
        write_str(&mut out, bounded(&self.zone));
        let engines = &self.engines[..self.engines.len().min(ENGINES_MAX)];
        write_uint(&mut out, engines.len() as u64);
        for EngineInfo { tag, group, told, has_data } in engines {
            write_uint(&mut out, (*tag).into());
            write_uint(&mut out, group.0);
            let flags = if told.never_stands { NEVER_STANDS } else { 0 } | if *has_data { HAS_DATA } else { 0 };
            write_uint(&mut out, flags);
            write_uint(&mut out, told.port.into());
            write_uint(&mut out, told.tls_port.into());
            [&told.host, &told.hostname, &told.nickname]
                .into_iter()
                .for_each(|text| write_str(&mut out, bounded(text)));
        }
        out
    }

    /// What people call its engines, if they have names.
    #[must_use]
    pub fn nicknames(&self) -> Option<String> {
        let names =
            self.engines.iter().map(|engine_info| engine_info.told.nickname.as_str()).filter(|name| !name.is_empty());
        Some(names.collect::<Vec<&str>>().join(",")).filter(|names| !names.is_empty())
    }

    /// What these bytes say; nothing if they are no written form that this program knows.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        read(bytes).ok().flatten()
    }
}

fn read(bytes: &[u8]) -> Result<Option<Services>, PackError> {
    let mut reader = Reader::new(bytes);
    if reader.read_uint()? != VERSION {
        return Ok(None);
    }
    let port = |number: u64| u16::try_from(number).ok();
    let text = |reader: &mut Reader<'_>| reader.read_str(TEXT_BYTES_MAX).map(str::to_owned);
    let Some(bus_port) = port(reader.read_uint()?) else { return Ok(None) };
    let zone = text(&mut reader)?;
    let count = reader.read_uint()?;
    if count > ENGINES_MAX as u64 {
        return Ok(None);
    }
    let mut engines = Vec::new();
    for _ in 0..count {
        let (tag, group, flags) = (reader.read_uint()?, GroupId(reader.read_uint()?), reader.read_uint()?);
        let (plain, tls) = (port(reader.read_uint()?), port(reader.read_uint()?));
        let (host, hostname, nickname) = (text(&mut reader)?, text(&mut reader)?, text(&mut reader)?);
        let (Some(port), Some(tls_port), Ok(tag)) = (plain, tls, u32::try_from(tag)) else { return Ok(None) };
        let (never_stands, has_data) = (flags & NEVER_STANDS != 0, flags & HAS_DATA != 0);
        let told = Announcement { host, hostname, nickname, port, tls_port, never_stands };
        engines.push(EngineInfo { tag, group, told, has_data });
    }
    Ok(reader.remaining().is_empty().then_some(Services { bus_port, zone, engines }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn services() -> Services {
        let told = Announcement {
            host: "10.0.0.1".into(),
            hostname: "one".into(),
            nickname: String::new(),
            port: 6_379,
            tls_port: 0,
            never_stands: true,
        };
        let engine_info = EngineInfo { tag: 7, group: GroupId(300), told, has_data: true };
        Services { bus_port: 16_379, zone: "a".into(), engines: vec![engine_info] }
    }

    #[test]
    fn golden_bytes() {
        let hex: String = services().encode().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "01cd3ffba1610107cd012c03cd18eb00a831302e302e302e31a36f6e65a0");
        assert_eq!(Services::decode(&services().encode()), Some(services()));
    }

    #[test]
    fn what_is_cut_or_has_too_much_is_nothing() {
        let good = services().encode();
        (0..good.len()).for_each(|end| assert_eq!(Services::decode(&good[..end]), None, "cut at {end}"));
        assert_eq!(Services::decode(&[&good[..], &[0]].concat()), None);
        assert_eq!(Services::decode(&[&[2], &good[1..]].concat()), None, "a later version");
    }

    #[test]
    fn the_longest_fits() {
        let long = "x".repeat(TEXT_BYTES_MAX);
        let told = Announcement {
            host: long.clone(),
            hostname: long.clone(),
            nickname: long.clone(),
            port: u16::MAX,
            ..Announcement::default()
        };
        let engines = vec![EngineInfo { tag: u32::MAX, group: GroupId(u64::MAX), told, has_data: false }; ENGINES_MAX];
        let whole = Services { bus_port: u16::MAX, zone: long, engines };
        assert!(whole.encode().len() <= SERVICES_BYTES_MAX);
        assert_eq!(Services::decode(&whole.encode()), Some(whole));
    }
}
