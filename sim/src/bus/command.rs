//! `ashlar sim bus`: runs what the command line asks for, and prints what came of it.
//!
//! Progress, failures and time lines go to standard error, figures to standard output.

use std::io::Write;

use super::journal::Seconds;
use super::large::{Formed, KillReport, SHARES, SoakOptions, SoakReport, curve, form, idle_traffic, kill, soak, split};
use super::options::{HELP, Options};
use super::picture::{Curve, VALKEY, draw};
use crate::command::{CommandFailure, Outside, QUICK_S_MAX, is_help};
use crate::report::Rows;

/// Runs the words after `bus`.
///
/// # Errors
/// The words make no sense, a seed failed, or a cluster did not do what it must.
pub fn command(words: impl Iterator<Item = String>, outside: &mut Outside<'_>) -> Result<(), CommandFailure> {
    let words: Vec<String> = words.collect();
    if words.iter().any(|word| is_help(word)) {
        return Ok(outside.out.write_all(HELP.as_bytes())?);
    }
    let options = Options::parse(words.into_iter()).map_err(CommandFailure::Usage)?;
    let mut rows = Rows::default();
    let done = match &options {
        Options { planted: Some(name), .. } => super::planted::command(&options, name, outside, &mut rows),
        options if options.is_large() => large(options, outside, &mut rows),
        options => super::sweep::command(options, outside, &mut rows),
    };
    if options.svg {
        rows.print(outside.err, "bus", false)?;
    } else {
        rows.print(outside.out, "bus", options.json)?;
    }
    done
}

fn large(options: &Options, outside: &mut Outside<'_>, rows: &mut Rows) -> Result<(), CommandFailure> {
    let layout = options.layout();
    let (members, groups, voters) = (layout.members, layout.groups(), layout.voters);
    writeln!(
        outside.err,
        "{members} members, {groups} groups with {} replicas each, {} zones; {voters} voters spread over all members: \
         were every primary a voter, no majority would survive the loss of half of them",
        layout.replicas, layout.zones
    )?;
    let formed = form(&layout, options.from)?;
    writeln!(outside.err, "formed in {:.1} s of this machine's time", (outside.elapsed_s)())?;
    if options.curve {
        return draw_curve(options, &formed, outside, rows);
    }
    let seeds = options.seeds.unwrap_or(1);
    let mut kills = Vec::new();
    for seed in options.from..options.from + seeds {
        if let Some(victims) = options.kill {
            let report = kill(&formed, victims, seed)?;
            tell_kill(&report, outside.err)?;
            if seeds == 1 {
                add_kill(&report, rows);
            }
            kills.push(report);
        } else if options.partition {
            add_split(&formed, seed, rows)?;
        } else if let Some(hours) = options.hours {
            add_soak(options, &formed, (hours, seed), outside, rows)?;
        } else {
            let (report, known_ns) = idle_traffic(&formed, seed)?;
            rows.add_traffic("idle", &report.traffic, report.lasted_ns);
            rows.add("idle/false_suspicions", report.false_suspicions as f64, "count");
            rows.add("idle/false_failures", report.false_failures as f64, "count");
            rows.add_ns("change/known_to_all", known_ns);
        }
        writeln!(outside.err, "seed {seed}: {:.1} s of this machine's time so far", (outside.elapsed_s)())?;
        if options.is_over(outside) {
            break;
        }
    }
    if seeds > 1 && !kills.is_empty() {
        add_kills(&kills, rows);
    }
    Ok(())
}

/// Several kills: the middle and the worst of each figure.
fn add_kills(reports: &[KillReport], rows: &mut Rows) {
    let mut add = |case: &str, of: &dyn Fn(&KillReport) -> u64| {
        let mut times: Vec<u64> = reports.iter().map(of).collect();
        times.sort_unstable();
        rows.add_ns(format!("kill/{case}/median"), median(&times));
        rows.add_ns(format!("kill/{case}/worst"), times.last().copied().unwrap_or(0));
    };
    add("first_suspicion", &|report| report.suspected_first_ns);
    add("last_failure", &|report| report.declared_ns.1);
    add("last_election", &|report| report.elected_ns.1);
    add("recovery", &|report| report.recovery_ns());
    add("all_served", &|report| report.served_ns);
    add("known_to_all", &|report| report.known_ns);
    add("agreed", &|report| report.agreed_ns);
    rows.add("kill/seeds", reports.len() as f64, "seeds");
    rows.add("kill/members", f64::from(reports[0].killed), "members");
    rows.add("kill/false_failures", reports.iter().map(|report| report.false_failures).sum::<u64>() as f64, "count");
    let burst = reports.iter().map(|report| report.burst_bytes).max().unwrap_or(0);
    rows.add("kill/burst/worst", burst as f64, "B in a second");
}

fn tell_kill(report: &KillReport, err: &mut dyn Write) -> std::io::Result<()> {
    let (voters, of) = report.voters_killed;
    writeln!(
        err,
        "\n{} die at one instant, {} of the {of} voters among them; {} groups lose their primary",
        report.killed, voters, report.orphaned
    )?;
    let lines = [
        (report.suspected_first_ns, "first suspicion"),
        (report.declared_ns.0, "first failure declared by a majority of the voters"),
        (report.elected_ns.0, "first election"),
        (report.declared_ns.1, "last failure declared"),
        (report.elected_ns.1, "last election"),
        (report.served_ns, "every slot is served"),
        (report.known_ns, "the last member knows the last failure"),
        (report.agreed_ns, "all agree on members and claims"),
    ];
    let mut lines = lines.to_vec();
    lines.sort_by_key(|(at_ns, _)| *at_ns);
    lines.iter().try_for_each(|(at_ns, what)| writeln!(err, "{}  {what}", Seconds(*at_ns)))
}

fn add_kill(report: &KillReport, rows: &mut Rows) {
    rows.add("kill/members", f64::from(report.killed), "members");
    rows.add("kill/groups_orphaned", f64::from(report.orphaned), "groups");
    rows.add_ns("kill/first_suspicion", report.suspected_first_ns);
    rows.add_ns("kill/recovery", report.recovery_ns());
    rows.add_ns("kill/all_served", report.served_ns);
    rows.add_ns("kill/known_to_all", report.known_ns);
    rows.add_ns("kill/agreed", report.agreed_ns);
    rows.add("kill/elections", report.elections as f64, "count");
    rows.add("kill/false_failures", report.false_failures as f64, "count");
    rows.add_traffic("kill", &report.traffic, report.agreed_ns);
    rows.add("kill/burst/worst", report.burst_bytes as f64, "B in a second");
}

fn add_split(formed: &Formed, seed: u64, rows: &mut Rows) -> Result<(), CommandFailure> {
    let timeout_ns = formed.layout.config.member_timeout.as_nanos() as u64;
    let report = split(formed, 4 * timeout_ns, seed)?;
    rows.add("split/voters/one", f64::from(report.voters[0]), "voters");
    rows.add("split/voters/other", f64::from(report.voters[1]), "voters");
    rows.add_ns("split/minority_stopped", report.stopped_ns);
    rows.add("split/elections", report.elections as f64, "count");
    rows.add("split/served", f64::from(report.served), "groups");
    rows.add("split/served_twice", f64::from(report.served_twice), "groups");
    rows.add_ns("split/healed", report.healed_ns);
    Ok(())
}

fn add_soak(
    options: &Options,
    formed: &Formed,
    (hours, seed): (f64, u64),
    outside: &mut Outside<'_>,
    rows: &mut Rows,
) -> Result<(), CommandFailure> {
    let hour_ns = 3_600e9;
    let soak_options = SoakOptions {
        for_ns: (hours * hour_ns) as u64,
        loss_ppm: options.loss_ppm,
        pause_ns: options.pauses.as_nanos() as u64,
        pause_every_ns: hour_ns as u64,
    };
    let is_over = || options.quick && (outside.elapsed_s)() > QUICK_S_MAX;
    let report = soak(formed, soak_options, seed, &is_over, &mut |at_ns, report: &SoakReport| {
        let (failures, suspicions) = (report.false_failures, report.false_suspicions);
        let _unheard = writeln!(
            outside.err,
            "{:.1} h: {failures} false failures, {suspicions} false suspicions, {} pauses, {:.0} M steps, {:.0} s",
            at_ns as f64 / hour_ns,
            report.pauses,
            report.events as f64 / 1e6,
            (outside.elapsed_s)()
        );
    })?;
    rows.add("soak/hours", report.lasted_ns as f64 / hour_ns, "h");
    rows.add("soak/false_failures", report.false_failures as f64, "count");
    rows.add("soak/false_suspicions", report.false_suspicions as f64, "count");
    rows.add("soak/pauses", report.pauses as f64, "count");
    rows.add("soak/steps", report.events as f64, "steps");
    rows.add_traffic("soak", &report.traffic, report.lasted_ns);
    if report.false_failures > 0 {
        return Err(CommandFailure::Wrong(format!("{} false failures", report.false_failures)));
    }
    Ok(())
}

fn draw_curve(
    options: &Options,
    formed: &Formed,
    outside: &mut Outside<'_>,
    rows: &mut Rows,
) -> Result<(), CommandFailure> {
    let seeds = options.from..options.from + options.curve_seeds();
    let points = curve(formed, &SHARES, seeds, &mut |ppm, seed, report| {
        let (recovery, served) = (Seconds(report.recovery_ns()), Seconds(report.served_ns));
        let percent = f64::from(ppm) / 1e4;
        let _unheard = writeln!(
            outside.err,
            "{percent} % killed, seed {seed}: recovery {recovery}, served after {served}, {:.0} s",
            (outside.elapsed_s)()
        );
    })?;
    // The median would lie on the worst: they differ by hundredths of a second.
    let mut worst = Curve { name: "Ashlar, simulated".into(), colour: "#1a7f37", points: Vec::new() };
    for point in &points {
        let percent = f64::from(point.ppm) / 1e4;
        for (what, times) in
            [("recovery", &point.recovery_ns), ("all_served", &point.served_ns), ("agreed", &point.agreed_ns)]
        {
            rows.add_ns(format!("kill_{percent}%/{what}/median"), median(times));
            rows.add_ns(format!("kill_{percent}%/{what}/worst"), times.last().copied().unwrap_or(0));
        }
        rows.add(format!("kill_{percent}%/false_failures"), point.false_failures as f64, "count");
        worst.points.push((percent, point.recovery_ns.last().copied().unwrap_or(0) as f64 / 1e9));
    }
    if options.svg {
        let valkey = Curve { name: "Valkey 9, published".into(), colour: "#cf222e", points: VALKEY.to_vec() };
        let layout = &formed.layout;
        let title = format!(
            "{} primaries and {} replicas, timeout {:?}: Ashlar in virtual time, worst of {} seeds; Valkey as published",
            layout.groups(),
            layout.members - layout.groups(),
            layout.config.member_timeout,
            options.curve_seeds()
        );
        outside.out.write_all(draw(&title, &[valkey, worst]).as_bytes())?;
    }
    Ok(())
}

/// The middle of an ascending list; 0 of an empty one.
pub(super) fn median(sorted: &[u64]) -> u64 {
    sorted.get(sorted.len() / 2).copied().unwrap_or(0)
}
