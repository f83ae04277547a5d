//! Written forms of commands.

use arbtest::arbtest;

use super::*;
use crate::error::FormError;
use crate::sample::{Sample, any_change, id, server};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn golden_bytes() {
    let command = Command { id: ProposalId(id(1)), seen: CatalogVersion(300), change: Change::AddServer(server(2)) };
    let golden = "01c41000000000000000000000000000000001cd012c01c41000000000000000000000000000000002ad7365727665722d32\
         3a3739343601010102";
    assert_eq!(hex(&command.encode()), golden);
    assert_eq!(Command::decode(&command.encode()), Ok(command));
}

#[test]
fn commands_and_back() {
    arbtest(|u| {
        let mut sample = if u.arbitrary()? { Sample::with_set(4, 4) } else { Sample::new() };
        while !u.is_empty() {
            let change = any_change(u, &sample.state)?;
            let command = sample.command(change.clone());
            let bytes = command.encode();
            assert!(bytes.len() <= COMMAND_BYTES_MAX);
            assert_eq!(Command::decode(&bytes).as_ref(), Ok(&command));
            assert!(!change.touches().is_empty());
            let cut = u.int_in_range(0..=bytes.len() - 1)?;
            assert!(Command::decode(&bytes[..cut]).is_err());
            assert_eq!(Command::decode(&[&bytes[..], &[0]].concat()), Err(FormError::TrailingBytes));
            let _ = sample.apply(change);
        }
        Ok(())
    });
}

#[test]
fn arbitrary_bytes() {
    arbtest(|u| {
        let mut bytes = vec![1, 0xc4, 16];
        bytes.extend_from_slice(&u.arbitrary::<[u8; 16]>()?);
        bytes.extend_from_slice(u.bytes(u.len())?);
        if let Ok(command) = Command::decode(&bytes) {
            assert_eq!(Command::decode(&command.encode()), Ok(command));
        }
        Ok(())
    });
    assert_eq!(Command::decode(&[2]), Err(FormError::UnknownVersion(2)));
}
