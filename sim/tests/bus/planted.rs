//! Bugs to order are caught: the proof of the checkers. `ashlar-sim bus --planted all` does it for every one.

use ashlar_bus::planted::Planted;
use ashlar_sim::bus::planted::catch;
use ashlar_sim::bus::swarm::Class;

/// Seeds within which these must show.
const SEEDS_MAX: u64 = 300;

#[test]
fn some_bugs_are_caught_at_once() {
    for bug in
        [Planted::FailWithoutQuorum, Planted::IgnoreCluster, Planted::WriteWithoutQuorum, Planted::NeverClearFailure]
    {
        let caught = catch(bug, Class::ALL, 0, SEEDS_MAX);
        assert!(caught.seeds.is_some(), "{bug:?} was not caught");
    }
}
