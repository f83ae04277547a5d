//! Large clusters at small size.

use core::time::Duration;

use ashlar_sim::bus::large::{Formed, Layout, SoakOptions, Victims, form, idle_traffic, kill, soak, split};

const SECOND_NS: u64 = 1_000_000_000;
const TIMEOUT: Duration = Duration::from_secs(5);

fn formed(members: u32, zones: u32) -> Formed {
    let layout = Layout { zones, voters: 15, ..Layout::new(members, TIMEOUT) };
    form(&layout, 1).expect("a cluster of members that are well is formed")
}

#[test]
fn half_of_the_primaries_die() {
    let formed = formed(40, 1);
    let report = kill(&formed, Victims::Primaries(500_000), 1).expect("all slots are served again");
    assert_eq!((report.killed, report.orphaned, report.false_failures), (10, 10, 0));
    assert!(report.elections >= 10 && report.voters_killed.1 == 15);
    let timeout_ns = TIMEOUT.as_nanos() as u64;
    assert!(report.suspected_first_ns >= timeout_ns / 100 * 98, "nobody is suspected before its time: {report:?}");
    assert!(report.recovery_ns() <= 2 * SECOND_NS, "{report:?}");
    assert!(report.served_ns <= timeout_ns + 4 * SECOND_NS, "{report:?}");
}

#[test]
fn a_zone_dies() {
    let formed = formed(42, 3);
    let report = kill(&formed, Victims::Zone(0), 1).expect("all slots are served again");
    assert_eq!((report.killed, report.orphaned), (14, 7));
    assert!(report.recovery_ns() <= 2 * SECOND_NS && report.false_failures == 0, "{report:?}");
}

#[test]
fn halves_part_and_meet() {
    let formed = formed(40, 1);
    let report = split(&formed, 30 * SECOND_NS, 1).expect("the halves come together again");
    assert_eq!(report.voters.iter().sum::<u32>(), 15);
    assert_eq!((report.served, report.served_twice), (20, 0), "the majority serves all: {report:?}");
    assert!(report.stopped_ns <= TIMEOUT.as_nanos() as u64 && report.elections > 0, "{report:?}");
}

#[test]
fn nobody_is_declared_failed_for_a_pause() {
    let formed = formed(30, 3);
    let options =
        SoakOptions { for_ns: 300 * SECOND_NS, loss_ppm: 10_000, pause_ns: SECOND_NS, pause_every_ns: 60 * SECOND_NS };
    let mut told = 0;
    let report = soak(&formed, options, 1, &|| false, &mut |_, _| told += 1).expect("nothing forbidden happens");
    assert!(report.pauses > 100 && told > 0, "{report:?}");
    assert_eq!(report.false_failures, 0);
}

#[test]
fn an_idle_member_says_little() {
    let mut means = Vec::new();
    for members in [20, 80] {
        let (report, known_ns) = idle_traffic(&formed(members, 3), 1).expect("the change becomes known");
        let bytes: u64 = report.traffic.iter().map(|one| one.bytes).sum();
        means.push(bytes / u64::from(members) / (report.lasted_ns / SECOND_NS));
        assert!(known_ns <= 2 * SECOND_NS && report.false_suspicions == 0, "{report:?}");
    }
    assert!(means.iter().all(|mean| *mean <= 5_000), "bytes a second: {means:?}");
}

#[test]
fn many_voters_say_no_more_than_few() {
    let layout = Layout { voters: 60, ..Layout::new(60, Duration::from_secs(15)) };
    let formed = form(&layout, 1).expect("a cluster of members that are well is formed");
    let (report, _) = idle_traffic(&formed, 1).expect("the change becomes known");
    let mut packets: Vec<u64> = report.traffic.iter().map(|one| one.packets / (report.lasted_ns / SECOND_NS)).collect();
    packets.sort_unstable();
    // Five probes and five answers, and what the three voters that ask all others ask this one.
    assert!(packets[0] >= 8 && packets[56] <= 13, "packets a second: {packets:?}");
    assert!(packets[57..].iter().all(|askers| (20..30).contains(askers)), "packets a second: {packets:?}");
}

#[test]
fn the_same_seed_has_the_same_death() {
    let formed = formed(20, 1);
    let [once, twice] = [0; 2].map(|_| kill(&formed, Victims::Primaries(300_000), 7).expect("served again"));
    assert_eq!(format!("{once:?}"), format!("{twice:?}"));
}
