//! Runs seeds of the simulator of placement groups: `cargo run --release -p ashlar-replica --features proof --example
//! replica_seeds -- FIRST COUNT [BUG]`. Prints every seed that breaks a rule, and the sums; BUG is the place of a planted
//! bug in `Planted::ALL`. A seed that fails, fails again; the exit code is 1 then, else 0.
#![expect(clippy::print_stdout, reason = "this program is there to print")]

use std::process::ExitCode;

use ashlar_replica::planted::Planted;
use ashlar_replica::proof::run;

fn main() -> ExitCode {
    let mut numbers = std::env::args().skip(1).filter_map(|text| text.parse::<u64>().ok());
    let (first, count) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(100));
    let planted = numbers.next().and_then(|place| Planted::ALL.get(usize::try_from(place).ok()?)).copied();
    let (mut no_space, mut damages, mut lost, mut drops, mut deletions) = (0, 0, 0, 0, 0);
    let (mut failed, mut writes, mut reads, mut epochs, mut crashes, mut recovery_ms) = (0, 0, 0, 0, 0, 0);
    for seed in first..first + count {
        let outcome = run(seed, planted);
        if let Some(violation) = &outcome.violation {
            println!("seed {seed}: {violation}");
            failed += 1;
        }
        writes += outcome.writes;
        no_space += outcome.no_space;
        damages += outcome.damages;
        lost += outcome.lost;
        drops += outcome.drops;
        deletions += outcome.deletions;
        reads += outcome.reads;
        epochs += outcome.epochs;
        crashes += outcome.crashes;
        recovery_ms = recovery_ms.max(outcome.recovery_ms);
    }
    println!(
        "{count} seeds, {failed} failed: {writes} writes, {reads} reads, {epochs} epochs, {crashes} crashes, \
         {damages} copies of extents damaged, {lost} reads refused for that, {no_space} refused for want of room, \
         {drops} extents without blocks dropped, {deletions} volumes deleted, longest recovery {recovery_ms} ms"
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
