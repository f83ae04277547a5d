//! Faults that are planted in a log to prove that the comparison finds them. The log itself stays well formed.

/// What is wrong with the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A command is missing.
    Dropped,
    /// A word of a command is another.
    Wrong,
    /// Two commands are in the wrong order.
    OutOfOrder,
}

/// Bytes before the commands of a unit: its time, its database, how many bytes follow. See `docs/formats.md`.
const HEAD_BYTES: usize = 16;

/// A command with the first twelve bytes of its unit's head.
type Command = (Vec<u8>, Vec<u8>);

/// The bytes of the first command.
fn first_command(bytes: &[u8]) -> Option<usize> {
    let line = |from: usize| bytes[from..].windows(2).position(|two| two == b"\r\n").map(|len| from + len + 2);
    let number = |from: usize, to: usize| std::str::from_utf8(&bytes[from + 1..to - 2]).ok()?.parse::<usize>().ok();
    let mut at = line(0)?;
    for _ in 0..number(0, at)? {
        let end = line(at)?;
        at = end + number(at, end)? + 2;
    }
    Some(at)
}

fn commands_of(mut batch: &[u8]) -> Option<Vec<Command>> {
    let mut commands = Vec::new();
    while !batch.is_empty() {
        let (head, rest) = batch.split_at_checked(HEAD_BYTES)?;
        let len = u32::from_le_bytes(*head.last_chunk()?) as usize;
        let (mut unit, rest) = rest.split_at_checked(len)?;
        while !unit.is_empty() {
            let (command, more) = unit.split_at(first_command(unit)?);
            commands.push((head[..12].to_vec(), command.to_vec()));
            unit = more;
        }
        batch = rest;
    }
    Some(commands)
}

/// The same batch with a fault at a command; nothing if there is no such place.
pub(super) fn plant(batch: &[u8], fault: Fault, at: usize) -> Option<Vec<u8>> {
    let mut commands = commands_of(batch)?;
    if at + 1 >= commands.len() {
        return None;
    }
    match fault {
        Fault::Dropped => drop(commands.remove(at)),
        Fault::Wrong => {
            let command = &mut commands[at].1;
            let last = command.len().checked_sub(3)?;
            command[last] = if command[last] == b'1' { b'2' } else { b'1' };
        }
        Fault::OutOfOrder => commands.swap(at, at + 1),
    }
    let mut changed = Vec::new();
    for (head, command) in commands {
        changed.extend_from_slice(&head);
        changed.extend_from_slice(&u32::try_from(command.len()).ok()?.to_le_bytes());
        changed.extend_from_slice(&command);
    }
    Some(changed)
}
