//! What people and callers read of an error.

use core::error::Error as _;

use super::*;
use crate::sample::{drive_id, group, server_id, volume_id};

#[test]
fn refusals_say_what_kind_they_are_and_why() {
    use RefusalKind::{BadState, BadValue, Exists, InUse, Stale, TooMany, Unknown};
    let (group, drive) = (group(1, 2), drive_id(1));
    let (drive_text, server_text) = (drive.to_string(), server_id(3).to_string());
    let placement = ashlar_placement::Error::Missing("drive");
    let current = Epoch(5);
    let cases = [
        (Refusal::StaleEpoch { group, current }, Stale, "placement group 1.2 is at epoch 5".to_owned()),
        (Refusal::StaleGeneration { current: Generation(6) }, Stale, "the volume is at generation 6".into()),
        (Refusal::StaleRevision { current: Some(CatalogVersion(7)) }, Stale, "the record is at revision 7".into()),
        (Refusal::StaleRevision { current: None }, Stale, "there is no such record".into()),
        (Refusal::StaleMap { current }, Stale, "the map does not follow that of epoch 5".into()),
        (Refusal::Expired, Stale, "the proposal is too old to be told from a repeated one".into()),
        (Refusal::Attached(server_id(3)), Stale, format!("the volume is attached to server {server_text}")),
        (Refusal::Unknown(Subject::Set(SetId(4))), Unknown, "set 4 is not known".into()),
        (Refusal::Exists(Subject::Name), Exists, "the name exists already".into()),
        (Refusal::InUse(Subject::Drive(drive)), InUse, format!("drive {drive_text} is in use")),
        (
            Refusal::BadState(Subject::Server(server_id(3))),
            BadState,
            format!("the state of server {server_text} does not allow this"),
        ),
        (
            Refusal::NotCertified { group, drive },
            BadState,
            format!("drive {drive_text} is no certified learner of placement group 1.2"),
        ),
        (
            Refusal::TooOld(server_id(3)),
            BadState,
            format!("server {server_text} runs a release that does not know the feature"),
        ),
        (Refusal::BadActing(group), BadValue, "no acting list for placement group 1.2".into()),
        (
            Refusal::Conflict { group, drive },
            BadValue,
            format!("drive {drive_text} conflicts with another member of placement group 1.2"),
        ),
        (Refusal::Placement(placement), BadValue, placement.to_string()),
        (Refusal::BadValue("address"), BadValue, "not a good value: address".into()),
        (Refusal::TooMany { what: "steps", max: 8 }, TooMany, "at most 8 steps are allowed".into()),
    ];
    for (refusal, kind, text) in cases {
        assert_eq!((refusal.kind(), refusal.is_stale()), (kind, kind == Stale), "{text}");
        let refused = Refused::from(refusal);
        assert_eq!((refused.kind, refused.to_string()), (kind, text.clone()));
        assert_eq!(refusal.to_string(), text);
        let source = refusal.source().map(ToString::to_string);
        assert_eq!(source, Some(text).filter(|_| refusal == Refusal::Placement(placement)));
    }
    assert_eq!(Refusal::from(placement), Refusal::Placement(placement));
}

#[test]
fn what_a_change_names_is_named_in_words() {
    for (subject, text) in [
        (Subject::Server(server_id(1)), format!("server {}", server_id(1))),
        (Subject::Drive(drive_id(1)), format!("drive {}", drive_id(1))),
        (Subject::Volume(volume_id(1)), format!("volume {}", volume_id(1))),
        (Subject::Group(group(3, 4)), "placement group 3.4".into()),
        (Subject::Feature, "the feature".into()),
    ] {
        assert_eq!(subject.to_string(), text);
    }
}

#[test]
fn errors_of_forms_say_what_is_wrong_and_what_lies_behind() {
    let placement = ashlar_placement::Error::Missing("drive");
    let refusal = Refusal::BadValue("version");
    let pack = PackError::Truncated;
    let cases = [
        (FormError::from(pack), pack.to_string(), Some(pack.to_string())),
        (FormError::Map(placement), placement.to_string(), Some(placement.to_string())),
        (
            FormError::from(refusal),
            "records contradict each other: not a good value: version".into(),
            Some(refusal.to_string()),
        ),
        (FormError::NotThis, "these are not the bytes that are due".into(), None),
        (FormError::UnknownVersion(3), "version 3 of this form is not known".into(), None),
        (FormError::BadNumber { what: "flag", value: 2 }, "2 is no flag".into(), None),
        (
            FormError::TooMany { what: "servers", count: 9, max: 7 },
            "9 servers where at most 7 are allowed".into(),
            None,
        ),
        (FormError::OutOfOrder("drive"), "the records of kind drive are not in ascending order".into(), None),
        (FormError::BadText { line: 4, what: "zone" }, "line 4: no good zone".into(), None),
        (FormError::Checksum, "the checksum is wrong: damaged, or of another cluster".into(), None),
        (FormError::TrailingBytes, "something follows the end".into(), None),
    ];
    for (error, text, source) in cases {
        assert_eq!((error.to_string(), error.source().map(ToString::to_string)), (text, source));
    }
}
