//! Full areas.

use super::*;
