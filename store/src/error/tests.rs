use super::*;
use crate::blob::error::BlobError;

const EIO: IoError = IoError { errno: 5 };

#[test]
fn errors_say_what_a_person_needs() {
    let drive = DriveId::from_bytes([7; 16]);
    for (text, parts) in [
        (Error::StaleVersion { held: Version::ZERO }.to_string(), ["later version", "0"]),
        (Error::Full.to_string(), ["full", "delete"]),
        (Error::Poisoned(EIO).to_string(), ["errno 5", "replace"]),
        (BlobError::TooLong { bytes_max: 77 }.to_string(), ["at most", "77"]),
        (BlobError::ReadFailed(EIO).to_string(), ["errno 5", "repair"]),
        (OpenError::TooSmall { bytes: 11, bytes_min: 22 }.to_string(), ["11", "22"]),
        (OpenError::AlreadyFormatted(drive).to_string(), ["070707", "wipe"]),
        (OpenError::WrongSize { bytes: 11, formatted_bytes: 22 }.to_string(), ["11", "22"]),
        (OpenError::Io(EIO).to_string(), ["failed", "errno 5"]),
    ] {
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
}

#[test]
fn only_what_the_load_refuses_may_succeed_later() {
    for (is_safe, errors) in [
        (true, &[Error::Busy, Error::Expired, Error::Full, Error::TooManyRecords, Error::TooManyTombstones][..]),
        (
            false,
            &[Error::Misaligned, Error::VolumeDeleted, Error::Damaged, Error::ReadFailed(EIO), Error::Poisoned(EIO)],
        ),
    ] {
        assert!(errors.iter().all(|error| error.retry_is_safe() == is_safe), "{errors:?}");
    }
    for (is_safe, errors) in [
        (true, &[BlobError::Busy, BlobError::Expired, BlobError::Full, BlobError::TooManyBlobs][..]),
        (false, &[BlobError::NoSuchBlob, BlobError::Conflict, BlobError::Damaged, BlobError::Poisoned(EIO)]),
    ] {
        assert!(errors.iter().all(|error| error.retry_is_safe() == is_safe), "{errors:?}");
    }
}
