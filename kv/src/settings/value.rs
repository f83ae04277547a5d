//! Values of settings as the texts of their parameters.

use super::memory::Share;
use super::{DisklessLoad, Events, LogSync};
use crate::keyspace::Policy;
use crate::persist::SavePoint;
use crate::rdb::VersionCheck;
use crate::value::list::Fill;

/// What a parameter sets. The text has been read by the parameter's form before.
pub(crate) trait Value: Sized {
    /// As `CONFIG GET` shows it.
    fn show(&self) -> Vec<u8>;

    /// From the text that a form made, or why not.
    fn read(text: &[u8]) -> Result<Self, String>;
}

macro_rules! number {
    ($($kind:ty),+) => {
        $(impl Value for $kind {
            fn show(&self) -> Vec<u8> {
                self.to_string().into_bytes()
            }

            fn read(text: &[u8]) -> Result<Self, String> {
                let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
                number.ok_or_else(|| "argument is too large".to_owned())
            }
        })+
    };
}

number!(i32, i64, u16, u32, u64, usize);

impl Value for bool {
    fn show(&self) -> Vec<u8> {
        if *self { "yes" } else { "no" }.into()
    }

    fn read(text: &[u8]) -> Result<Self, String> {
        Ok(text == b"yes")
    }
}

impl Value for Vec<u8> {
    fn show(&self) -> Vec<u8> {
        self.clone()
    }

    fn read(text: &[u8]) -> Result<Self, String> {
        Ok(text.to_vec())
    }
}

impl Value for String {
    fn show(&self) -> Vec<u8> {
        self.clone().into_bytes()
    }

    fn read(text: &[u8]) -> Result<Self, String> {
        Ok(String::from_utf8_lossy(text).into_owned())
    }
}

/// A type that has names for its values, which the parameter's form has checked.
macro_rules! named {
    ($($kind:ty),+) => {
        $(impl Value for $kind {
            fn show(&self) -> Vec<u8> {
                self.name().into()
            }

            fn read(text: &[u8]) -> Result<Self, String> {
                Self::from_name(text).ok_or_else(|| "argument has no meaning".to_owned())
            }
        })+
    };
}

named!(Policy, LogSync, VersionCheck, DisklessLoad);

impl Value for Events {
    fn show(&self) -> Vec<u8> {
        self.letters().into_bytes()
    }

    fn read(text: &[u8]) -> Result<Self, String> {
        Self::from_letters(text).ok_or_else(|| "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.".to_owned())
    }
}

impl Value for Share {
    fn show(&self) -> Vec<u8> {
        (*self).show().into_bytes()
    }

    fn read(text: &[u8]) -> Result<Self, String> {
        let share = Self::read(text, |text| u64::read(text).ok());
        share.ok_or_else(|| "argument must be a memory or percent value".to_owned())
    }
}

impl Value for Fill {
    fn show(&self) -> Vec<u8> {
        self.0.show()
    }

    fn read(text: &[u8]) -> Result<Self, String> {
        i32::read(text).map(Self)
    }
}

impl Value for Vec<SavePoint> {
    fn show(&self) -> Vec<u8> {
        SavePoint::show(self).into_bytes()
    }

    fn read(text: &[u8]) -> Result<Self, String> {
        SavePoint::read(&String::from_utf8_lossy(text)).ok_or_else(|| "Invalid save parameters".to_owned())
    }
}

/// Percentiles.
impl Value for Vec<f64> {
    fn show(&self) -> Vec<u8> {
        self.iter().map(f64::to_string).collect::<Vec<_>>().join(" ").into_bytes()
    }

    fn read(text: &[u8]) -> Result<Self, String> {
        let text = String::from_utf8_lossy(text);
        let numbers: Result<_, _> = text.split_ascii_whitespace().map(str::parse).collect();
        numbers.map_err(|_| "Invalid latency-tracking-info-percentiles parameters".to_owned())
    }
}
