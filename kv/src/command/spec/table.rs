//! All commands, and the way from a name to one of them.
//!
//! Model: a hash table with open addressing, filled when the program is compiled, so that a name is found with one hash, one
//! probe on average and one comparison. Names are compared in any case without being copied. A subcommand is found by its own
//! word and its container's number.

use super::Spec;
use crate::resp::Args;

/// Every group of commands, each sorted by name.
pub(crate) static GROUPS: [&[Spec]; 16] = [
    super::bitmap::COMMANDS,
    super::cluster::COMMANDS,
    super::connection::COMMANDS,
    super::generic::COMMANDS,
    super::geo::COMMANDS,
    super::hash::COMMANDS,
    super::hyperloglog::COMMANDS,
    super::list::COMMANDS,
    super::pubsub::COMMANDS,
    super::scripting::COMMANDS,
    super::server::COMMANDS,
    super::set::COMMANDS,
    super::sorted_set::COMMANDS,
    super::stream::COMMANDS,
    super::string::COMMANDS,
    super::transactions::COMMANDS,
];

/// How many commands there are, subcommands included.
pub(crate) const COMMANDS_COUNT: usize = {
    let (mut group, mut count) = (0, 0);
    while group < GROUPS.len() {
        let mut at = 0;
        while at < GROUPS[group].len() {
            count += 1 + GROUPS[group][at].subcommands.len();
            at += 1;
        }
        group += 1;
    }
    count
};

/// Every command, each followed by its subcommands.
pub(crate) static COMMANDS: [Command; COMMANDS_COUNT] = flatten();

/// A command or a subcommand with its place in the table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Command {
    /// That of `spec`, one step nearer.
    name: &'static str,
    pub(crate) spec: &'static Spec,
    /// Its index in [`COMMANDS`]: what statistics and ACL rules call it.
    pub(crate) number: u16,
    /// The number of what a subcommand belongs to, or [`NO_CONTAINER`].
    container: u16,
}

impl Command {
    const fn new(spec: &'static Spec, number: u16, container: u16) -> Self {
        Self { name: spec.name, spec, number, container }
    }

    /// What a subcommand belongs to.
    pub(crate) fn container(&self) -> Option<&'static Self> {
        COMMANDS.get(usize::from(self.container))
    }

    /// Its name as replies show it: `get`, `config|set`.
    pub(crate) fn full_name(&self) -> String {
        match self.container() {
            Some(container) => format!("{}|{}", container.spec.name, self.spec.name),
            None => self.spec.name.into(),
        }
    }

    /// Its subcommands.
    pub(crate) fn subcommands(&self) -> &'static [Self] {
        let next = usize::from(self.number) + 1;
        &COMMANDS[next..next + self.spec.subcommands.len()]
    }

    /// Its subcommand of that name.
    pub(crate) fn subcommand(&self, word: &[u8]) -> Option<&'static Self> {
        if self.spec.subcommands.is_empty() { None } else { probe(self.number, word) }
    }
}

/// All plain commands and containers.
pub(crate) fn plain() -> impl Iterator<Item = &'static Command> {
    COMMANDS.iter().filter(|command| command.container == NO_CONTAINER)
}

/// The command of that name, in any case.
pub(crate) fn find(name: &[u8]) -> Option<&'static Command> {
    probe(NO_CONTAINER, name)
}

/// The command of a name such as `get` or `config|set`.
pub(crate) fn find_full(name: &[u8]) -> Option<&'static Command> {
    match name.iter().position(|byte| *byte == b'|') {
        Some(bar) => find(&name[..bar])?.subcommand(&name[bar + 1..]),
        None => find(name),
    }
}

/// What a call runs: the subcommand if its command has any and there is a second word. `None` if either does not exist.
pub(crate) fn find_call(args: Args<'_>) -> Option<&'static Command> {
    let command = find(args.get(0)?)?;
    match args.get(1) {
        Some(word) if !command.spec.subcommands.is_empty() => command.subcommand(word),
        _ => Some(command),
    }
}

/// Stands for the container of a plain command, and for an empty place of [`PLACES`].
const NO_CONTAINER: u16 = u16::MAX;

/// Numbers of commands by hash: less than a quarter full.
static PLACES: [u16; 1 << PLACES_BITS] = fill();
const PLACES_BITS: u32 = 11;
const _: () = assert!(COMMANDS_COUNT * 4 < 1 << PLACES_BITS);

fn probe(container: u16, word: &[u8]) -> Option<&'static Command> {
    let mut place = place_of(container, word);
    loop {
        let command = COMMANDS.get(usize::from(PLACES[place]))?;
        if command.container == container && command.name.as_bytes().eq_ignore_ascii_case(word) {
            return Some(command);
        }
        place = (place + 1) % PLACES.len();
    }
}

/// Mixes the length and up to eight bytes at both ends, without regard to their case.
const fn place_of(container: u16, word: &[u8]) -> usize {
    const NO_CASE: u64 = 0x2020_2020_2020_2020;
    const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
    let (head, tail) = if let (Some(head), Some(tail)) = (word.first_chunk(), word.last_chunk()) {
        (u64::from_le_bytes(*head), u64::from_le_bytes(*tail))
    } else if let (Some(head), Some(tail)) = (word.first_chunk(), word.last_chunk()) {
        (u32::from_le_bytes(*head) as u64, u32::from_le_bytes(*tail) as u64)
    } else if let (Some(head), Some(tail)) = (word.first_chunk(), word.last_chunk()) {
        (u16::from_le_bytes(*head) as u64, u16::from_le_bytes(*tail) as u64)
    } else {
        (0, 0)
    };
    let length = (word.len() as u64) << 60;
    let mixed = ((head | NO_CASE) ^ (tail | NO_CASE).rotate_left(29) ^ length ^ container as u64).wrapping_mul(GOLDEN);
    ((mixed ^ (mixed >> 32)).wrapping_mul(GOLDEN) >> (64 - PLACES_BITS)) as usize
}

const fn fill() -> [u16; 1 << PLACES_BITS] {
    let (mut places, mut at) = ([NO_CONTAINER; 1 << PLACES_BITS], 0);
    while at < COMMANDS_COUNT {
        let command = COMMANDS[at];
        let mut place = place_of(command.container, command.spec.name.as_bytes());
        while places[place] != NO_CONTAINER {
            place = (place + 1) % places.len();
        }
        places[place] = command.number;
        at += 1;
    }
    places
}

#[expect(clippy::cast_possible_truncation, reason = "the commands are fewer than the places")]
const fn flatten() -> [Command; COMMANDS_COUNT] {
    let (mut all, mut next, mut group) = ([Command::new(&GROUPS[0][0], 0, NO_CONTAINER); COMMANDS_COUNT], 0, 0);
    while group < GROUPS.len() {
        let mut at = 0;
        while at < GROUPS[group].len() {
            let (spec, number) = (&GROUPS[group][at], next as u16);
            all[next] = Command::new(spec, number, NO_CONTAINER);
            next += 1;
            let mut inner = 0;
            while inner < spec.subcommands.len() {
                all[next] = Command::new(&spec.subcommands[inner], next as u16, number);
                next += 1;
                inner += 1;
            }
            at += 1;
        }
        group += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::Request;

    #[test]
    fn every_name_leads_to_its_command() {
        for (at, command) in COMMANDS.iter().enumerate() {
            assert_eq!(usize::from(command.number), at);
            let name = command.full_name();
            for name in [name.clone(), name.to_ascii_uppercase(), name[..1].to_ascii_uppercase() + &name[1..]] {
                assert_eq!(find_full(name.as_bytes()).unwrap().number, command.number, "{name}");
                let call: Request = name.split('|').map(str::as_bytes).chain([b"x".as_slice()]).collect();
                let found = find_call(call.args()).map(|command| command.number);
                assert_eq!(found, command.spec.subcommands.is_empty().then_some(command.number), "{name}");
            }
            assert_eq!(command.subcommands().len(), command.spec.subcommands.len());
            for subcommand in command.subcommands() {
                assert_eq!(subcommand.container().unwrap().number, command.number);
            }
        }
    }

    #[test]
    fn other_names_lead_nowhere() {
        for name in
            ["", " ", "ge", "get ", "gett", "g\u{0}t", "|", "config|", "|get", "config|set|x", "get|x", "sentinel"]
        {
            assert!(find_full(name.as_bytes()).is_none(), "{name}");
        }
        // A subcommand is no command, and an unknown one is not its container.
        assert!(find(b"encoding").is_none());
        for (call, is_known) in [("config nope", false), ("config", true), ("", false)] {
            let call: Request = call.split(' ').map(str::as_bytes).collect();
            assert_eq!(find_call(call.args()).is_some(), is_known);
        }
        assert!(find_call(Request::default().args()).is_none());
        // Bytes that differ in the bit of the case only, but are no letters.
        assert!(find(b"restore\rasking").is_none());
        assert!(find(b"eval\x7fro").is_none());
    }

    #[test]
    fn every_container_knows_its_own_only() {
        let containers = || COMMANDS.iter().filter(|command| !command.spec.subcommands.is_empty());
        for (container, name) in containers().flat_map(|one| COMMANDS.iter().map(move |other| (one, other.spec.name))) {
            let expected = container.spec.subcommands.iter().any(|subcommand| subcommand.name == name);
            assert_eq!(container.subcommand(name.as_bytes()).is_some(), expected, "{} {name}", container.spec.name);
        }
        for name in COMMANDS.iter().map(|command| command.spec.name) {
            assert_eq!(find(name.as_bytes()).is_some(), plain().any(|command| command.spec.name == name), "{name}");
        }
    }

    #[test]
    fn names_spread_well() {
        let probes = |command: &Command| {
            let start = place_of(command.container, command.spec.name.as_bytes());
            let place = PLACES.iter().position(|number| *number == command.number).unwrap();
            (place + PLACES.len() - start) % PLACES.len()
        };
        let (longest, sum) =
            COMMANDS.iter().map(probes).fold((0, 0), |(longest, sum), next| (longest.max(next), sum + next));
        assert!(longest <= 8 && sum <= COMMANDS_COUNT / 2, "at most {longest} places away, {sum} in all");
    }
}
