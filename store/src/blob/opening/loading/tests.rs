use super::*;
use crate::blob::mark::encode_summary;
use ashlar_wire::checksum::Salt;

fn free(life: u64) -> Option<Mark> {
    Some(Mark::Free { life })
}

fn used(life: u64) -> Option<Mark> {
    Some(Mark::Used { life })
}

fn sealed(life: u64) -> Option<Mark> {
    let salt = Salt::new(&[b"test"]);
    Mark::decode(salt, 0, &encode_summary(salt, 0, life, life, &[]))
}

#[test]
fn two_marks_say_what_a_segment_is() {
    let Some(Mark::Sealed(seal)) = sealed(5) else { panic!("a summary ends in its mark") };
    let scan = |erased, life| Verdict::Scan { erased, life };
    for (first, last, verdict) in [
        // As written, without damage.
        (free(0), free(0), Verdict::Free { life: 0 }),
        (free(5), free(5), Verdict::Free { life: 5 }),
        (used(5), free(0), scan(Some(0), Some(5))),
        (used(5), sealed(5), Verdict::Sealed(seal)),
        // One of two marks of an erasure is durable.
        (free(5), sealed(5), Verdict::HalfErased { life: 5 }),
        (used(5), free(5), Verdict::HalfErased { life: 5 }),
        // One mark is damaged.
        (None, free(5), scan(Some(5), None)),
        (None, sealed(5), Verdict::Sealed(seal)),
        (free(5), None, Verdict::HalfErased { life: 5 }),
        (used(5), None, scan(None, Some(5))),
        (None, None, scan(None, None)),
        // A write was lost, or went to the wrong place.
        (free(4), sealed(5), Verdict::Sealed(seal)),
        (free(4), free(5), Verdict::HalfErased { life: 5 }),
        (used(6), sealed(5), scan(None, Some(6))),
        (sealed(5), sealed(5), Verdict::Sealed(seal)),
        (used(5), used(5), scan(None, Some(5))),
        (sealed(5), used(5), scan(None, None)),
    ] {
        assert_eq!(judge(first, last), verdict, "{first:?} {last:?}");
    }
}
