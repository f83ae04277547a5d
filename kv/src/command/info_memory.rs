//! The section of INFO about memory, and what of the statistics is about eviction.

use std::sync::atomic::Ordering;

use super::call::Call;
use crate::engine::Engine;
use crate::evict::report::{Report, ratio};
use crate::time::Now;

/// The section, with its head.
pub(super) fn section(call: &Call<'_, '_>) -> String {
    let report = call.engine.report_memory(call.keys);
    let mut lines = vec!["# Memory".to_owned()];
    usage(&report, &mut lines);
    limits(call, &mut lines);
    overheads(&report, &mut lines);
    let (pending, freed) = call.engine.memory.trash.counts();
    lines.extend([format!("lazyfree_pending_objects:{pending}"), format!("lazyfreed_objects:{freed}")]);
    lines.iter().map(|line| format!("{line}\r\n")).collect()
}

fn both(name: &str, bytes: u64, lines: &mut Vec<String>) {
    lines.push(format!("{name}:{bytes}"));
    lines.push(format!("{name}_human:{}", human(bytes)));
}

fn usage(report: &Report, lines: &mut Vec<String>) {
    both("used_memory", report.used, lines);
    both("used_memory_rss", report.resident, lines);
    both("used_memory_peak", report.peak, lines);
    lines.extend([
        format!("used_memory_peak_perc:{:.2}%", report.peak_percent()),
        format!("used_memory_overhead:{}", report.overhead()),
        format!("used_memory_startup:{}", report.start),
        format!("used_memory_dataset:{}", report.dataset()),
        format!("used_memory_dataset_perc:{:.2}%", report.dataset_percent()),
        format!("allocator_allocated:{}", report.used),
        format!("allocator_active:{}", report.allocated),
        format!("allocator_resident:{}", report.resident),
        "allocator_muzzy:0".to_owned(),
    ]);
}

fn limits(call: &Call<'_, '_>, lines: &mut Vec<String>) {
    both("maxmemory", call.settings.memory_bytes_max, lines);
    lines.push(format!("maxmemory_policy:{}", call.settings.policy.name()));
}

/// Tables are never made anew as a whole here, and nothing is moved to save memory.
fn overheads(report: &Report, lines: &mut Vec<String>) {
    let [used, allocated, resident] = [report.used, report.allocated, report.resident];
    lines.extend([
        format!("allocator_frag_ratio:{:.2}", ratio(allocated, used)),
        format!("allocator_frag_bytes:{}", allocated.saturating_sub(used)),
        format!("allocator_rss_ratio:{:.2}", ratio(resident, allocated)),
        format!("allocator_rss_bytes:{}", resident.saturating_sub(allocated)),
        "rss_overhead_ratio:1.00".to_owned(),
        "rss_overhead_bytes:0".to_owned(),
        format!("mem_fragmentation_ratio:{:.2}", ratio(resident, used)),
        format!("mem_fragmentation_bytes:{}", resident.saturating_sub(used)),
        format!("mem_not_counted_for_evict:{}", report.log),
        format!("mem_replication_backlog:{}", report.backlog.min(report.backlog_max)),
        format!("mem_total_replication_buffers:{}", report.backlog),
        format!("mem_clients_slaves:{}", report.replicas),
        format!("mem_clients_normal:{}", report.clients),
        "mem_cluster_links:0".to_owned(),
        format!("mem_aof_buffer:{}", report.log),
        "mem_allocator:libc".to_owned(),
        "mem_overhead_db_hashtable_rehashing:0".to_owned(),
        "active_defrag_running:0".to_owned(),
    ]);
}

/// What of the statistics is about eviction.
pub(super) fn stats(engine: &Engine, now: Now) -> String {
    let (all, present) = engine.memory.times_full(now);
    let counts = &engine.memory.counts;
    format!(
        "evicted_keys:{}\r\nevicted_clients:{}\r\ntotal_eviction_exceeded_time:{}\r\ncurrent_eviction_exceeded_time:{}\r\n",
        counts.keys.load(Ordering::Relaxed),
        counts.clients.load(Ordering::Relaxed),
        all.as_millis(),
        present.as_millis(),
    )
}

/// A number of bytes with its unit.
pub(super) fn human(bytes: u64) -> String {
    const UNITS: [char; 6] = ['K', 'M', 'G', 'T', 'P', 'E'];
    let unit = bytes.checked_ilog2().unwrap_or(0) / 10;
    let Some(letter) = unit.checked_sub(1).and_then(|unit| UNITS.get(unit as usize)) else {
        return format!("{bytes}B");
    };
    format!("{:.2}{letter}", ratio(bytes, 1 << (10 * unit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_for_people() {
        for (bytes, shown) in [
            (0, "0B"),
            (1_023, "1023B"),
            (1_024, "1.00K"),
            (1_500_000, "1.43M"),
            (5 << 30, "5.00G"),
            (1 << 60, "1.00E"),
        ] {
            assert_eq!(human(bytes), shown);
        }
    }
}
