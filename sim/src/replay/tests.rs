//! Faults that are planted in a log are found.

use super::choices::Choices;
use super::command::life_of;
use super::fault::Fault;
use super::life::Life;
use super::world::{finds, live, new_table};
use crate::rng::Rng;

/// Lives in which each kind of fault must be found.
const LIVES: u64 = 12;
/// Requests of each.
const REQUESTS: usize = 120;

fn found(fault: Fault) -> (usize, usize) {
    let table = new_table();
    let (mut planted, mut found) = (0, 0);
    for seed in 0..LIVES {
        let life = Life::draw(&table, Choices::Seed(Rng::new(seed)), REQUESTS);
        for at in [5, 20, 40] {
            if let Some(is_found) = finds(&life, fault, at).expect("the life itself shows no difference") {
                planted += 1;
                found += usize::from(is_found);
            }
        }
    }
    (planted, found)
}

#[test]
fn a_dropped_record_is_found() {
    let (planted, found) = found(Fault::Dropped);
    assert!(planted >= 20 && found * 4 >= planted, "{found} of {planted}");
}

#[test]
fn a_wrong_record_is_found() {
    let (planted, found) = found(Fault::Wrong);
    assert!(planted >= 20 && found * 4 >= planted, "{found} of {planted}");
}

#[test]
fn a_record_out_of_order_is_found() {
    let (planted, found) = found(Fault::OutOfOrder);
    assert!(planted >= 20 && found > 0, "{found} of {planted}");
}

#[test]
fn some_lives_show_no_difference() {
    let table = new_table();
    for seed in 0..4 {
        let life = Life::draw(&table, Choices::Seed(Rng::new(seed)), REQUESTS);
        assert_eq!(live(&life), Ok(()), "seed {seed}");
    }
}

#[test]
fn lives_follow_from_their_seed_and_from_bytes() {
    let table = new_table();
    let draw = |seed| Life::draw(&table, Choices::Seed(Rng::new(seed)), REQUESTS);
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(2));
    assert!(super::live_bytes(&table, &[]).is_ok());
    assert!(Life::draw(&table, Choices::Bytes(&[7; 300]), REQUESTS).requests() > 3);
}

#[test]
fn lives_that_once_ended_with_a_difference() {
    let table = new_table();
    for (seed, number) in
        [(2_101, 378), (2_103, 838), (2_104, 1_057), (2_103, 1_781), (2_105, 1_348), (2_106, 1_017), (2_203, 886)]
    {
        let life = life_of(&table, seed, number);
        assert_eq!(live(&life).map_err(|(_, why)| why), Ok(()), "seed {seed}, life {number}");
    }
}
