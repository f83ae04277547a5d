//! Limits and times of open blobs.

use core::time::Duration;

/// Limits and times. None of them is a written form: they may change at every start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobConfig {
    /// Most requests in progress; one more is refused as busy.
    pub requests_max: usize,
    /// Most bytes of data of puts in progress; a put beyond them is refused as busy, unless it is alone.
    pub put_bytes_max: usize,
    /// Most IOs that the drive is given at a time.
    pub ios_max: usize,
    /// Most blobs and tombstones together: bounds the memory of the index, at about 65 bytes each.
    pub blobs_max: usize,
    /// Most blobs of one reply to a list.
    pub list_max: usize,
    /// Most blobs of one reply to a list with headers. Each costs a read.
    pub list_headers_max: usize,
    /// Blobs of up to so many bytes are copied and packed, without regard to blocks. Larger ones start at a block and are
    /// written from the caller's buffer, which wastes up to two blocks each.
    pub packed_bytes_max: u32,
    /// How long the log is idle before an empty batch is written behind the last one. Only with a batch behind it can a
    /// damaged batch be told from one that was never completed.
    pub seal_after: Duration,
    /// Compaction of a segment begins when so many hundredths of it are dead. Where space runs short, any gain counts.
    pub compaction_dead_percent_min: u64,
    /// Bytes that compaction reads, and mostly writes, at a time.
    pub compaction_step_bytes: u32,
    /// Pace of compaction, except where space runs short.
    pub compaction_bytes_per_s: u64,
    /// Time between two blobs of the scrub; none for no scrub.
    pub scrub_interval: Option<Duration>,
}

impl Default for BlobConfig {
    fn default() -> Self {
        Self {
            requests_max: 1_024,
            put_bytes_max: 128 << 20,
            ios_max: 64,
            blobs_max: 1 << 24,
            list_max: 1_024,
            list_headers_max: 64,
            packed_bytes_max: 32 << 10,
            seal_after: Duration::from_millis(20),
            compaction_dead_percent_min: 25,
            compaction_step_bytes: 1 << 20,
            compaction_bytes_per_s: 32 << 20,
            scrub_interval: Some(Duration::from_millis(500)),
        }
    }
}
