//! A table does what a map of the standard library does.

use std::collections::BTreeMap;

use arbtest::arbtest;

use super::*;
use crate::codec::pack::encode;
use crate::sample::{server, server_id};
use crate::server::Server;

#[test]
fn a_table_is_a_sorted_map_with_copies_that_stay() {
    arbtest(|u| {
        let mut table: Table<Server> = Table::default();
        let mut model = BTreeMap::new();
        let mut copy = (table.clone(), model.clone());
        while !u.is_empty() {
            let number = u.int_in_range(0..=300)?;
            match u.int_in_range(0..=7)? {
                0..=4 => {
                    let row = Server { release: u.arbitrary()?, ..server(number) };
                    assert_eq!(table.insert(row.clone()), model.insert(row.id, row));
                }
                5..=6 => assert_eq!(table.remove(&server_id(number)), model.remove(&server_id(number))),
                _ => copy = (table.clone(), model.clone()),
            }
            assert_eq!(table.get(&server_id(number)), model.get(&server_id(number)));
            assert_eq!(table.first(), model.values().next());
            assert_eq!(table.last(), model.values().next_back());
            assert!(table.pages.iter().all(|page| (1..=PAGE_ROWS_MAX).contains(&page.len())));
        }
        check(&table, &model);
        check(&copy.0, &copy.1);
        Ok(())
    });
}

fn check(table: &Table<Server>, model: &BTreeMap<ashlar_wire::id::ServerId, Server>) {
    assert!(table.iter().eq(model.values()));
    assert_eq!(table.len(), model.len());
    assert_eq!(table.bytes(), model.values().map(|row| encode(row).len()).sum::<usize>());
    let from = server_id(150);
    assert!(table.iter_from(from).eq(model.range(from..).map(|(_, row)| row)));
}

#[test]
fn rows_from_a_key_on_begin_with_it_or_with_the_next_one() {
    let mut table: Table<Server> = Table::default();
    assert_eq!(table.iter_from(server_id(0)).count(), 0);
    (0..200).map(|number| 2 * number).for_each(|number| drop(table.insert(server(number))));
    for (from, first) in [(0, Some(0)), (1, Some(2)), (130, Some(130)), (131, Some(132)), (398, Some(398)), (399, None)]
    {
        let found = table.iter_from(server_id(from)).next().map(|row| row.id);
        assert_eq!(found, first.map(server_id), "{from}");
    }
}

#[test]
fn pages_are_cut_and_joined() {
    let mut table: Table<Server> = Table::default();
    for (rows, pages) in [(PAGE_ROWS_MAX, 1), (PAGE_ROWS_MAX + 1, 2)] {
        (0..rows).for_each(|number| drop(table.insert(server(u32::try_from(number).unwrap()))));
        assert_eq!(table.pages.len(), pages, "{rows}");
    }
    (0..1_000).for_each(|number| drop(table.insert(server(number))));
    let full = table.pages.len();
    assert!((16..=32).contains(&full), "{full}");
    (0..1_000).filter(|number| number % 16 != 0).for_each(|number| drop(table.remove(&server_id(number))));
    assert!(table.pages.len() <= 6, "{}", table.pages.len());
    assert_eq!(table.len(), 63);
    // Two pages are joined as soon as both fit half a page.
    let mut table: Table<Server> = Table::default();
    (0..65).for_each(|number| drop(table.insert(server(number))));
    (20..32).for_each(|number| drop(table.remove(&server_id(number))));
    for (rest, pages) in [(13, 2), (12, 1)] {
        (32 + rest..65).for_each(|number| drop(table.remove(&server_id(number))));
        assert_eq!((table.pages.len(), table.len()), (pages, 20 + rest as usize), "{rest}");
    }
}

#[test]
fn tables_are_equal_when_their_rows_are() {
    let table = |rows: &[Server]| {
        let mut table = Table::default();
        rows.iter().for_each(|row| drop(table.insert(row.clone())));
        table
    };
    let (one, two) = (server(1), Server { release: 9, ..server(1) });
    assert_eq!(table(&[one.clone(), server(2)]), table(&[server(2), one.clone()]));
    assert_ne!(table(core::slice::from_ref(&one)), table(&[two]), "as many, and others");
    assert_ne!(table(core::slice::from_ref(&one)), table(&[one, server(2)]));
}
