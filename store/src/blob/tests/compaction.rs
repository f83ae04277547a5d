//! Compaction.

use super::*;
