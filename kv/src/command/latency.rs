//! `LATENCY`: how long commands take, and which events took long.

use super::call::{Call, Run};
use super::help;
use super::spec::table::{COMMANDS, Command, find_full};
use crate::error::Error;
use crate::statistics::CommandCounts;
use crate::statistics::histogram::Histogram;
use crate::statistics::latency::{Sample, Series};

pub(super) const RUNS: &[(&str, Run)] = &[
    ("latency|doctor", doctor),
    ("latency|graph", graph),
    ("latency|help", help_lines),
    ("latency|histogram", histogram),
    ("latency|history", history),
    ("latency|latest", latest),
    ("latency|reset", reset),
];

/// A graph's size, and the marks of heights between two rows.
const COLUMNS: usize = 80;
const ROWS: usize = 4;
const MARKS: [u8; 3] = [b'_', b'o', b'#'];

fn small(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn history(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let series = series(call).map(|(_, series)| series).unwrap_or_default();
    call.reply.array(series.samples.len());
    for Sample { at_s, ms } in series.samples {
        call.reply.array(2);
        call.reply.integer(at_s);
        call.reply.integer(small(ms));
    }
    Ok(())
}

/// The event that the call names.
fn series(call: &Call<'_, '_>) -> Option<(&'static str, Series)> {
    let all = call.engine.statistics.latency.all();
    let found = all.iter().find(|(name, _)| name.as_bytes() == &call.args[2])?;
    Some((found.0, found.1.clone()))
}

fn latest(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let all = call.engine.statistics.latency.all();
    call.reply.array(all.len());
    for (name, series) in &*all {
        let last = series.samples.back().copied().unwrap_or(Sample { at_s: 0, ms: 0 });
        call.reply.array(6);
        call.reply.bulk(name.as_bytes());
        call.reply.integer(last.at_s);
        call.reply.integer(small(last.ms));
        call.reply.integer(small(series.longest_ms));
        call.reply.integer(small(series.sum_ms));
        call.reply.integer(small(series.count));
    }
    Ok(())
}

fn reset(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let forgotten = call.engine.statistics.latency.forget(&call.args.from(2));
    call.reply.count(forgotten);
    Ok(())
}

fn histogram(call: &mut Call<'_, '_>) -> Result<(), Error> {
    call.client.meter.flush(call.engine, call.settings.logs.counts_latency);
    let counted = call.engine.statistics.commands();
    let spans = |command: &Command| -> Option<&Histogram> {
        let CommandCounts { spans, .. } = &counted[usize::from(command.number)];
        spans.as_deref()
    };
    let mut shown: Vec<&'static Command> = Vec::new();
    if call.args.len() == 2 {
        shown.extend(COMMANDS.iter());
    }
    for command in call.args.from(2).filter_map(find_full) {
        shown.push(command);
        shown.extend(command.subcommands());
    }
    shown.retain(|command| spans(command).is_some());
    call.reply.map(shown.len());
    for command in shown {
        let Some(spans) = spans(command) else { continue };
        call.reply.bulk(command.full_name().as_bytes());
        call.reply.map(2);
        call.reply.bulk(b"calls");
        call.reply.integer(small(spans.total()));
        call.reply.bulk(b"histogram_usec");
        let powers = spans.powers();
        call.reply.map(powers.len());
        for (micros, count) in powers {
            call.reply.integer(small(micros));
            call.reply.integer(small(count));
        }
    }
    Ok(())
}

fn graph(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let Some((name, series)) = series(call) else {
        let name = String::from_utf8_lossy(&call.args[2]);
        return Err(Error::text(format!("ERR No samples available for event '{name}'")));
    };
    let all = || series.samples.iter().map(|sample| sample.ms);
    let (high, low) = (all().max().unwrap_or(0), all().min().unwrap_or(0));
    let mut text = format!("{name} - high {high} ms, low {low} ms (all time high {} ms)\n", series.longest_ms);
    text += &format!("{}\n", "-".repeat(COLUMNS));
    let now_s = call.now.unix_us.div_euclid(1_000_000);
    let samples: Vec<Sample> = series.samples.iter().copied().collect();
    for (number, part) in samples.chunks(COLUMNS).enumerate() {
        if number > 0 {
            text.push('\n');
        }
        draw(part, low, high, now_s, &mut text);
    }
    call.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

/// Columns as high as their samples, and below each how long ago it was, written downwards.
fn draw(samples: &[Sample], low: u64, high: u64, now_s: i64, out: &mut String) {
    let steps = (MARKS.len() * ROWS) as u64;
    let height = |sample: &Sample| ((sample.ms - low) * steps / (high - low).max(1)).min(steps - 1);
    for row in 0..ROWS {
        let below = ((ROWS - row - 1) * MARKS.len()) as u64;
        let letter = |sample: &Sample| match height(sample).checked_sub(below) {
            None => ' ',
            Some(step) => {
                usize::try_from(step).ok().and_then(|step| MARKS.get(step)).map_or('|', |mark| char::from(*mark))
            }
        };
        out.extend(samples.iter().map(letter));
        out.push('\n');
    }
    out.extend(std::iter::repeat_n(' ', samples.len()));
    out.push('\n');
    let labels: Vec<Vec<u8>> = samples.iter().map(|sample| ago(now_s - sample.at_s).into_bytes()).collect();
    for row in 0..labels.iter().map(Vec::len).max().unwrap_or(0) {
        out.extend(labels.iter().map(|label| label.get(row).map_or(' ', |letter| char::from(*letter))));
        out.push('\n');
    }
}

fn ago(seconds: i64) -> String {
    match seconds {
        ..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// What is known of every event, in words, and what can be done about it.
fn doctor(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let all = call.engine.statistics.latency.all().clone();
    let text = if all.is_empty() && call.settings.logs.latency_ms == 0 {
        "I'm sorry, Dave, I can't do that. Latency monitoring is disabled in this Valkey instance. You may use \
         \"CONFIG SET latency-monitor-threshold <milliseconds>.\" in order to enable it.\n"
            .to_owned()
    } else if all.is_empty() {
        "No latency spike was observed during the lifetime of this Valkey instance, not in the slightest bit.\n"
            .to_owned()
    } else {
        let mut text = "Latency spikes are observed in this Valkey instance.\n\n".to_owned();
        for (number, (name, series)) in all.iter().enumerate() {
            text += &format!("{}. {name}: {}\n", number + 1, describe(series));
        }
        text + &advice(call, &all.keys().copied().collect::<Vec<_>>())
    };
    call.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

fn describe(series: &Series) -> String {
    let count = series.samples.len() as u64;
    let mean = series.samples.iter().map(|sample| sample.ms).sum::<u64>() / count.max(1);
    let deviation = series.samples.iter().map(|sample| sample.ms.abs_diff(mean)).sum::<u64>() / count.max(1);
    let span = series.samples.back().zip(series.samples.front()).map_or(0, |(last, first)| last.at_s - first.at_s);
    let hundredths = span.unsigned_abs() * 100 / count.max(1);
    format!(
        "{count} latency spikes (average {mean}ms, mean deviation {deviation}ms, period {}.{:02} sec). Worst all time event \
         {}ms.",
        hundredths / 100,
        hundredths % 100,
        series.longest_ms
    )
}

fn advice(call: &Call<'_, '_>, events: &[&str]) -> String {
    let logs = &call.settings.logs;
    let mut lines = Vec::new();
    if events.contains(&"command") {
        if logs.slower_than_us < 0 || logs.slow_max == 0 || logs.slower_than_us.unsigned_abs() / 1_000 > logs.latency_ms
        {
            let micros = logs.latency_ms * 1_000;
            lines.push(format!(
                "SLOWLOG misses commands that are slow here: CONFIG SET slowlog-log-slower-than {micros}."
            ));
        }
        lines.push("SLOWLOG GET shows which commands were slow.".to_owned());
    }
    if events.contains(&"fast-command") {
        lines.push("Commands that do little work were slow: the machine is busy with something else.".to_owned());
    }
    if events.contains(&"expire-cycle") || events.contains(&"command") {
        lines.push("Deleting one large value takes as long as it is large: keep several smaller ones.".to_owned());
    }
    let lines: String = lines.iter().map(|line| format!("- {line}\n")).collect();
    if lines.is_empty() { lines } else { format!("\nHere is some advice for you:\n\n{lines}") }
}

fn help_lines(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let lines = [
        ("DOCTOR", "Return a human readable latency analysis report."),
        ("GRAPH <event>", "Return an ASCII latency graph for the <event> class."),
        ("HISTORY <event>", "Return time-latency samples for the <event> class."),
        ("LATEST", "Return the latest latency samples for all events."),
        ("RESET [<event> ...]", "Reset latency data of one or more <event> classes, or of all."),
        (
            "HISTOGRAM [COMMAND ...]",
            "Return how the durations of commands are distributed, of all commands if none is named.",
        ),
    ];
    help::write(call, "LATENCY", &lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_is_drawn() {
        let samples = [(10, 0), (50, 60), (100, 7_300)].map(|(ms, at_s)| Sample { at_s, ms });
        let mut text = String::new();
        draw(&samples, 10, 100, 7_300, &mut text);
        assert_eq!(text, "  #\n  |\n #|\n_||\n   \n220\nhhs\n");
    }
}
