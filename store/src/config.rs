//! Limits and times of an open store.

use core::time::Duration;

/// Limits and times. None of them is a written form: they may change at every start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Most requests in progress; one more is refused as busy. Each may hold up to 1 MiB of data.
    pub requests_max: usize,
    /// Most IOs that the drive is given at a time.
    pub ios_max: usize,
    /// Most of them that write back, so that they do not fill the drive's queue.
    pub write_back_ios_max: usize,
    /// Pages of the extent table in memory, 3.3 KiB each. More are kept only while requests use them.
    pub pages_cached_max: usize,
    /// Most changed pages in memory. Write-back starts there and further changes wait for it.
    pub dirty_pages_max: usize,
    /// Writes of so many blocks and more go to their slot before the journal, where that overwrites nothing.
    pub direct_blocks_min: usize,
    /// Most entries of one reply to a list or scan.
    pub list_max: usize,
    /// Most extents of deleted volumes that are dropped at a time.
    pub drops_max: usize,
    /// How long a change stays in the journal before it is written to its place, if there is no reason to do so earlier.
    pub write_back_after: Duration,
    /// How long the journal is idle before an empty batch is written behind the last one. Only with a batch behind it can
    /// a damaged batch be told from one that was never completed.
    pub seal_after: Duration,
    /// Time between two extents of the scrub; none for no scrub.
    pub scrub_interval: Option<Duration>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            requests_max: 1_024,
            ios_max: 128,
            write_back_ios_max: 32,
            pages_cached_max: 32_768,
            dirty_pages_max: 16_384,
            direct_blocks_min: 16,
            list_max: 1_024,
            drops_max: 16,
            write_back_after: Duration::from_secs(1),
            seal_after: Duration::from_millis(20),
            scrub_interval: Some(Duration::from_millis(500)),
        }
    }
}
