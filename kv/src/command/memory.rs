//! MEMORY: what memory is used for.

use super::call::{Call, Run};
use super::help;
use crate::error::Error;
use crate::evict::report::{Report, ratio};

pub(super) const RUNS: &[(&str, Run)] = &[
    ("memory|doctor", doctor),
    ("memory|help", |call| help::write(call, "MEMORY", HELP)),
    ("memory|malloc-stats", malloc_stats),
    ("memory|purge", purge),
    ("memory|stats", stats),
    ("memory|usage", usage),
];

const HELP: &[(&str, &str)] = &[
    ("DOCTOR", "Say in plain words what is wrong with memory."),
    ("MALLOC-STATS", "Show statistics of the allocator."),
    ("PURGE", "Ask the allocator to give memory back."),
    ("STATS", "Tell what memory is used for."),
    ("USAGE <key> [SAMPLES <count>]", "Tell how many bytes a key and its value take."),
];

/// Less than this is nothing to judge, bytes.
const JUDGED_BYTES_MIN: u64 = 5 << 20;
/// Overhead below this is none worth a word, bytes.
const TOLD_BYTES_MIN: u64 = 10 << 20;
/// What a client takes on average before it is worth a word, bytes.
const CLIENT_BYTES_MAX: u64 = 200 << 10;

/// The sizes of collections are known, so that nothing is sampled.
fn usage(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let mut at = 3;
    while at < call.args.len() {
        if !call.args.is(at, "SAMPLES") || at + 1 == call.args.len() {
            return Err(Error::SYNTAX);
        }
        if call.integer(at + 1)? < 0 {
            return Err(Error::SYNTAX);
        }
        at += 2;
    }
    let key = call.key(2);
    match call.keys.peek(key).map(|found| found.bytes()) {
        Some(bytes) => call.reply.count(bytes),
        None => call.reply.null(),
    }
    Ok(())
}

fn malloc_stats(call: &mut Call<'_, '_>) -> Result<(), Error> {
    call.reply.bulk(b"Stats not supported for the current allocator");
    Ok(())
}

fn purge(call: &mut Call<'_, '_>) -> Result<(), Error> {
    if let Some(allocator) = call.engine.memory.allocator() {
        (allocator.purge)();
    }
    call.reply.ok();
    Ok(())
}

/// One line of what STATS replies.
enum Line {
    Count(u64),
    Ratio(f64),
}

fn stats(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let report = call.engine.report_memory(call.keys);
    let (before, behind) = (lines_before(&report), lines_behind(&report));
    call.reply.map(before.len() + report.databases.len() + behind.len());
    write(call, &before);
    for tables in &report.databases {
        call.reply.bulk(format!("db.{}", tables.database).as_bytes());
        call.reply.map(2);
        let lines = [
            ("overhead.hashtable.main", Line::Count(tables.main)),
            ("overhead.hashtable.expires", Line::Count(tables.expires)),
        ];
        write(call, &lines);
    }
    write(call, &behind);
    Ok(())
}

fn write(call: &mut Call<'_, '_>, lines: &[(&str, Line)]) {
    for (name, line) in lines {
        call.reply.bulk(name.as_bytes());
        match line {
            Line::Count(count) => call.reply.integer(i64::try_from(*count).unwrap_or(i64::MAX)),
            Line::Ratio(ratio) => call.reply.double(format!("{ratio}").as_bytes()),
        }
    }
}

fn lines_before(report: &Report) -> [(&'static str, Line); 10] {
    [
        ("peak.allocated", Line::Count(report.peak)),
        ("total.allocated", Line::Count(report.used)),
        ("startup.allocated", Line::Count(report.start)),
        ("replication.backlog", Line::Count(report.backlog)),
        ("clients.slaves", Line::Count(report.replicas)),
        ("clients.normal", Line::Count(report.clients)),
        ("cluster.links", Line::Count(0)),
        ("aof.buffer", Line::Count(report.log)),
        ("lua.caches", Line::Count(report.scripts)),
        ("functions.caches", Line::Count(0)),
    ]
}

/// Tables are never made anew as a whole here, so that nothing is ever said about that.
fn lines_behind(report: &Report) -> [(&'static str, Line); 21] {
    let tables = report.databases.iter().map(|tables| tables.main + tables.expires).sum();
    let [used, allocated, resident] = [report.used, report.allocated, report.resident];
    [
        ("overhead.db.hashtable.lut", Line::Count(tables)),
        ("overhead.db.hashtable.rehashing", Line::Count(0)),
        ("overhead.total", Line::Count(report.overhead())),
        ("db.dict.rehashing.count", Line::Count(0)),
        ("keys.count", Line::Count(report.keys)),
        ("keys.bytes-per-key", Line::Count(report.bytes_per_key())),
        ("dataset.bytes", Line::Count(report.dataset())),
        ("dataset.percentage", Line::Ratio(report.dataset_percent())),
        ("peak.percentage", Line::Ratio(report.peak_percent())),
        ("allocator.allocated", Line::Count(used)),
        ("allocator.active", Line::Count(allocated)),
        ("allocator.resident", Line::Count(resident)),
        ("allocator.muzzy", Line::Count(0)),
        ("allocator-fragmentation.ratio", Line::Ratio(ratio(allocated, used))),
        ("allocator-fragmentation.bytes", Line::Count(allocated.saturating_sub(used))),
        ("allocator-rss.ratio", Line::Ratio(ratio(resident, allocated))),
        ("allocator-rss.bytes", Line::Count(resident.saturating_sub(allocated))),
        ("rss-overhead.ratio", Line::Ratio(1.0)),
        ("rss-overhead.bytes", Line::Count(0)),
        ("fragmentation", Line::Ratio(ratio(resident, used))),
        ("fragmentation.bytes", Line::Count(resident.saturating_sub(used))),
    ]
}

fn doctor(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let report = call.engine.report_memory(call.keys);
    let clients = call.engine.clients.count();
    call.reply.verbatim("txt", judge(&report, clients as u64).as_bytes());
    Ok(())
}

/// What is wrong with memory, in words.
fn judge(report: &Report, clients: u64) -> String {
    let Report { used, allocated, resident, peak, .. } = *report;
    if used < JUDGED_BYTES_MIN {
        return "There is too little data here to tell whether memory is used well.\n".into();
    }
    let is_wasted = |more: u64, less: u64, tenths: u64| more > less / 10 * tenths && more - less > TOLD_BYTES_MIN;
    let findings = [
        (
            peak > used / 2 * 3,
            "Peak: more than one and a half times of what is used now was used before. What was given back by the data may \
             still belong to the process; it is used again when data grows. MEMORY PURGE gives some of it back.",
        ),
        (
            is_wasted(resident, used, 14),
            "Resident memory: the process takes more than 1.4 times of what is used. That is what a peak leaves behind, or \
             records of many sizes that come and go.",
        ),
        (
            is_wasted(allocated, used, 11),
            "Free cells: more than a tenth of what was allocated for records holds none, and waits for records of the same \
             sizes.",
        ),
        (
            is_wasted(resident, allocated, 11),
            "Allocator: the process holds more than 1.1 times of what it has allocated. MEMORY PURGE gives some of it back.",
        ),
        (
            report.clients / clients.max(1) > CLIENT_BYTES_MAX,
            "Clients: their requests and replies take more than 200 KiB each on average. CLIENT LIST shows which do not \
             fetch what they have asked for.",
        ),
    ];
    let found: Vec<&str> = findings.iter().filter(|(is_so, _)| *is_so).map(|(_, text)| *text).collect();
    if found.is_empty() {
        return "No problem of memory was found.\n".into();
    }
    found.iter().map(|text| format!("* {text}\n\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_told() {
        let well = Report {
            used: 100 << 20,
            allocated: 101 << 20,
            resident: 105 << 20,
            peak: 110 << 20,
            start: 1 << 20,
            clients: 1 << 10,
            replicas: 0,
            backlog: 0,
            backlog_max: 0,
            log: 0,
            scripts: 0,
            databases: Vec::new(),
            keys: 0,
        };
        assert!(judge(&Report { used: 1 << 20, ..well.clone() }, 1).starts_with("There is too little data"));
        assert!(judge(&well, 1).starts_with("No problem"));
        for (report, told) in [
            (Report { peak: 160 << 20, ..well.clone() }, "* Peak:"),
            (Report { resident: 150 << 20, ..well.clone() }, "* Resident memory:"),
            (Report { allocated: 120 << 20, resident: 121 << 20, ..well.clone() }, "* Free cells:"),
            (Report { resident: 120 << 20, ..well.clone() }, "* Allocator:"),
            (Report { clients: 300 << 10, ..well.clone() }, "* Clients:"),
        ] {
            assert!(judge(&report, 1).starts_with(told), "{told}");
        }
    }
}
