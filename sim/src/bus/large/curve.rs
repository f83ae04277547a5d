//! Many kills: recovery against the share of primaries that died.

use super::form::Formed;
use super::kill::{KillReport, Victims, kill};

/// The shares of the anchor's curve, in parts of a million: 0.1, 10, 25, 33 and 50 %.
pub const SHARES: [u32; 5] = [1_000, 100_000, 250_000, 330_000, 500_000];

/// All runs with one share of the primaries killed.
#[derive(Debug, Clone)]
pub struct Point {
    /// The share, in parts of a million.
    pub ppm: u32,
    /// From the first suspicion until every slot was served, ascending.
    pub recovery_ns: Vec<u64>,
    /// From the death until every slot was served, ascending.
    pub served_ns: Vec<u64>,
    /// From the death until all agreed, ascending.
    pub agreed_ns: Vec<u64>,
    /// Failures of members that ran, in all runs together.
    pub false_failures: u64,
}

/// Runs each share with each of the seeds; `tell` hears of every run.
///
/// # Errors
/// The first run that did not recover: its share, its seed and why.
pub fn curve(
    formed: &Formed,
    shares: &[u32],
    seeds: core::ops::Range<u64>,
    tell: &mut dyn FnMut(u32, u64, &KillReport),
) -> Result<Vec<Point>, String> {
    let mut points = Vec::new();
    for ppm in shares.iter().copied() {
        let empty = Vec::new;
        let mut point = Point { ppm, recovery_ns: empty(), served_ns: empty(), agreed_ns: empty(), false_failures: 0 };
        for seed in seeds.clone() {
            let report = kill(formed, Victims::Primaries(ppm), seed)
                .map_err(|what| format!("{} ppm killed, seed {seed}: {what}", ppm))?;
            point.recovery_ns.push(report.recovery_ns());
            point.served_ns.push(report.served_ns);
            point.agreed_ns.push(report.agreed_ns);
            point.false_failures += report.false_failures;
            tell(ppm, seed, &report);
        }
        for times in [&mut point.recovery_ns, &mut point.served_ns, &mut point.agreed_ns] {
            times.sort_unstable();
        }
        points.push(point);
    }
    Ok(points)
}
