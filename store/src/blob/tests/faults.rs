//! Bad requests, limits, damage and failing drives.

use super::*;
use crate::io::IoError;

const EIO: IoError = IoError { errno: 5 };
