use super::*;
use crate::lock::Lock;

/// 2013-05-24T00:00:00Z.
const NOON: u64 = 1_369_353_600_000 + DAY_MS / 2;

fn document(rules: &str) -> Result<Vec<LifecycleRule>, Code> {
    let text = format!("<LifecycleConfiguration>{rules}</LifecycleConfiguration>");
    decode_lifecycle(text.as_bytes()).map_err(|error| error.code)
}

fn rule(inside: &str) -> Result<Vec<LifecycleRule>, Code> {
    document(&format!("<Rule><Status>Enabled</Status>{inside}</Rule>"))
}

fn lifecycle(inside: &str) -> Lifecycle {
    let text = write_lifecycle(&rule(inside).expect("a rule")).finish();
    Lifecycle::of(&Attributes(vec![(LIFECYCLE.to_owned(), text)]), Day::default()).expect("rules")
}

fn object(key: &str, bytes: u64, tags: &str) -> Object {
    Object {
        key: key.into(),
        version: None,
        bytes,
        etag: "e".into(),
        modified_ms: NOON,
        attributes: Attributes(vec![("x-amz-tagging".into(), tags.into())]),
        lock: Lock::default(),
        parts: Vec::new(),
        envelope: None,
    }
}

const DAYS: &str = "<Expiration><Days>1</Days></Expiration>";

#[test]
fn documents_are_told_as_they_came() {
    let documents = [
        "<ID>a</ID><Prefix>p/</Prefix><Status>Enabled</Status><Expiration><Days>7</Days></Expiration>",
        "<ID>a</ID><Filter></Filter><Status>Disabled</Status><Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>",
        "<ID>a</ID><Filter><Tag><Key>k</Key><Value>v</Value></Tag></Filter><Status>Enabled</Status><Expiration><Date>2030-01-01T00:00:00.000Z</Date></Expiration>",
        "<ID>a</ID><Filter><And><Prefix>p</Prefix><Tag><Key>k</Key><Value>v</Value></Tag><ObjectSizeGreaterThan>1</ObjectSizeGreaterThan><ObjectSizeLessThan>9</ObjectSizeLessThan></And></Filter><Status>Enabled</Status><NoncurrentVersionExpiration><NoncurrentDays>3</NoncurrentDays><NewerNoncurrentVersions>2</NewerNoncurrentVersions></NoncurrentVersionExpiration>",
        "<ID>a</ID><Prefix></Prefix><Status>Enabled</Status><AbortIncompleteMultipartUpload><DaysAfterInitiation>3</DaysAfterInitiation></AbortIncompleteMultipartUpload>",
    ];
    for inside in documents {
        let rules = document(&format!("<Rule>{inside}</Rule>")).expect("a rule");
        assert!(
            write_lifecycle(&rules)
                .finish()
                .contains(&format!("<Rule>{}</Rule>", inside.replace("<Filter></Filter>", "<Filter/>")))
                || write_lifecycle(&rules).finish().contains(inside),
            "{inside}"
        );
        assert_eq!(decode_lifecycle(write_lifecycle(&rules).finish().as_bytes()), Ok(rules));
    }
    // Rules without a name get one.
    let one = format!("<Rule><Prefix>a</Prefix><Status>Enabled</Status>{DAYS}</Rule>");
    let named = format!("<Rule><ID>rule-1</ID><Prefix>b</Prefix><Status>Enabled</Status>{DAYS}</Rule>");
    let rules = document(&format!("{one}{one}{named}")).expect("rules");
    assert_eq!(rules.iter().map(|rule| rule.id.as_str()).collect::<Vec<_>>(), ["rule-2", "rule-3", "rule-1"]);
}

#[test]
fn rules_that_are_none() {
    let transition = |inside: &str| rule(&format!("<Prefix/>{DAYS}<Transition>{inside}</Transition>"));
    assert_eq!(transition("<Days>1</Days><StorageClass>GLACIER</StorageClass>"), Err(Code::NotImplemented));
    assert_eq!(transition("<Date>20220927</Date><StorageClass>GLACIER</StorageClass>"), Err(Code::MalformedXML));
    let long = format!("<ID>{}</ID><Prefix/>{DAYS}", "a".repeat(256));
    let cases = [
        ("<Prefix/>", Code::InvalidRequest),
        (DAYS, Code::MalformedXML),
        (&long, Code::InvalidArgument),
        ("<Prefix/><Expiration><Days>0</Days></Expiration>", Code::InvalidArgument),
        ("<Prefix/><Expiration><Days>-1</Days></Expiration>", Code::InvalidArgument),
        ("<Prefix/><Expiration><Days>x</Days></Expiration>", Code::MalformedXML),
        ("<Prefix/><Expiration/>", Code::MalformedXML),
        ("<Prefix/><Expiration><Days>1</Days><Date>2030-01-01T00:00:00Z</Date></Expiration>", Code::MalformedXML),
        ("<Prefix/><Expiration><Date>2030-01-01T00:00:01Z</Date></Expiration>", Code::InvalidArgument),
        ("<Prefix/><Filter/><Expiration><Days>1</Days></Expiration>", Code::MalformedXML),
        ("<Filter><Other/></Filter><Expiration><Days>1</Days></Expiration>", Code::MalformedXML),
        ("<Prefix/><NoncurrentVersionExpiration/>", Code::MalformedXML),
        (
            "<Filter><Tag><Key>k</Key><Value>v</Value></Tag></Filter><AbortIncompleteMultipartUpload><DaysAfterInitiation>1</DaysAfterInitiation></AbortIncompleteMultipartUpload>",
            Code::InvalidRequest,
        ),
        (
            "<Filter><And><ObjectSizeGreaterThan>9</ObjectSizeGreaterThan><ObjectSizeLessThan>9</ObjectSizeLessThan></And></Filter><Expiration><Days>1</Days></Expiration>",
            Code::InvalidArgument,
        ),
    ];
    for (inside, code) in cases {
        assert_eq!(rule(inside), Err(code), "{inside}");
    }
    assert_eq!(document(""), Err(Code::MalformedXML));
    let status = format!("<Rule><Prefix/><Status>enabled</Status>{DAYS}</Rule>");
    assert_eq!(document(&status), Err(Code::MalformedXML));
    let twice = format!("<Rule><ID>a</ID><Prefix/><Status>Enabled</Status>{DAYS}</Rule>").repeat(2);
    assert_eq!(document(&twice), Err(Code::InvalidArgument));
    let many = format!("<Rule><Prefix/><Status>Enabled</Status>{DAYS}</Rule>");
    assert!(document(&many.repeat(RULES_MAX)).is_ok());
    assert_eq!(document(&many.repeat(RULES_MAX + 1)), Err(Code::MalformedXML));
}

#[test]
fn a_day_ends_at_midnight() {
    let rules = lifecycle(&format!("<Prefix>p/</Prefix>{DAYS}"));
    let one = object("p/a", 1, "");
    // Put at noon of the 24th: a day later it is noon of the 25th, which ends with the 26th's midnight.
    let due = NOON + DAY_MS + DAY_MS / 2;
    assert!(rules.has_ended(&one, due) && !rules.has_ended(&one, due - 1));
    let told = "expiry-date=\"Sun, 26 May 2013 00:00:00 GMT\", rule-id=\"rule-1\"";
    assert_eq!(rules.header(&one).as_deref(), Some(told));
    assert_eq!(rules.header(&object("q/a", 1, "")), None);
    // A day of tests is not rounded.
    assert_eq!(Day { ms: 10 }.after(7, 2), 27);
    let disabled = document(&format!("<Rule><Prefix/><Status>Disabled</Status>{DAYS}</Rule>")).expect("a rule");
    let kept = Attributes(vec![(LIFECYCLE.to_owned(), write_lifecycle(&disabled).finish())]);
    assert_eq!(Lifecycle::of(&kept, Day::default()), None);
    assert_eq!(Lifecycle::of(&Attributes::default(), Day::default()), None);
}

#[test]
fn filters() {
    let far = NOON + 100 * DAY_MS;
    let and = "<Prefix>p</Prefix><Tag><Key>k</Key><Value>v</Value></Tag><Tag><Key>l</Key><Value>w</Value></Tag><ObjectSizeGreaterThan>1</ObjectSizeGreaterThan><ObjectSizeLessThan>9</ObjectSizeLessThan>";
    let rules = lifecycle(&format!("<Filter><And>{and}</And></Filter>{DAYS}"));
    assert!(rules.has_ended(&object("pa", 2, "k=v&l=w"), far));
    for other in [
        object("a", 2, "k=v&l=w"),
        object("pa", 1, "k=v&l=w"),
        object("pa", 9, "k=v&l=w"),
        object("pa", 2, "k=v"),
        object("pa", 2, "k=v&l=x"),
    ] {
        assert!(!rules.has_ended(&other, far), "{other:?}");
    }
}

#[test]
fn what_is_not_current() {
    let rules = lifecycle(
        "<Prefix/><NoncurrentVersionExpiration><NoncurrentDays>2</NoncurrentDays><NewerNoncurrentVersions>1</NewerNoncurrentVersions></NoncurrentVersionExpiration>",
    );
    let due = Day::default().after(NOON, 2);
    let ended = |newer, now_ms| rules.has_noncurrent_ended(&object("a", 1, ""), NOON, newer, now_ms);
    assert_eq!([ended(0, due), ended(1, due), ended(1, due - 1)], [false, true, false]);
    assert!(!rules.has_ended(&object("a", 1, ""), due));
    let markers = lifecycle(
        "<Prefix>a</Prefix><Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>",
    );
    assert!(markers.has_marker_ended("ab", NOON, NOON) && !markers.has_marker_ended("b", NOON, NOON));
    let days = lifecycle(&format!("<Prefix/>{DAYS}"));
    assert!(!days.has_marker_ended("a", NOON, NOON) && days.has_marker_ended("a", NOON, due));
    for filter in [
        "<Tag><Key>k</Key><Value>v</Value></Tag>",
        "<ObjectSizeGreaterThan>1</ObjectSizeGreaterThan>",
        "<ObjectSizeLessThan>9</ObjectSizeLessThan>",
    ] {
        let rules = lifecycle(&format!("<Filter>{filter}</Filter>{DAYS}"));
        assert!(!rules.has_marker_ended("a", NOON, due), "a mark has neither tags nor a size: {filter}");
    }
    let uploads = lifecycle(
        "<Prefix>a</Prefix><AbortIncompleteMultipartUpload><DaysAfterInitiation>2</DaysAfterInitiation></AbortIncompleteMultipartUpload>",
    );
    assert!(uploads.has_upload_ended("a", NOON, due) && !uploads.has_upload_ended("a", NOON, due - 1));
    assert!(!uploads.has_upload_ended("b", NOON, due) && uploads.is_about_uploads() && !days.is_about_uploads());
}

#[test]
fn a_date_ends_what_the_rule_is_about() {
    let rules = lifecycle("<Prefix>a</Prefix><Expiration><Date>2013-05-26T00:00:00Z</Date></Expiration>");
    let due = NOON + DAY_MS + DAY_MS / 2;
    for (key, now_ms, has_ended) in [("ab", due, true), ("ab", due - 1, false), ("b", due, false)] {
        assert_eq!(rules.has_ended(&object(key, 1, ""), now_ms), has_ended, "{key} {now_ms}");
        assert_eq!(rules.has_marker_ended(key, NOON, now_ms), has_ended, "{key} {now_ms}");
    }
    assert!(
        !rules.has_noncurrent_ended(&object("ab", 1, ""), NOON, 0, due) && !rules.has_upload_ended("ab", NOON, due)
    );
}

#[test]
fn bounds_of_rules() {
    let id = |chars: usize| format!("<ID>{}</ID><Prefix/>{DAYS}", "ä".repeat(chars));
    let days = |days: u32| format!("<Prefix/><Expiration><Days>{days}</Days></Expiration>");
    let newer = |newer: u32| {
        let newer = format!("<NewerNoncurrentVersions>{newer}</NewerNoncurrentVersions>");
        let days = "<NoncurrentDays>1</NoncurrentDays>";
        format!("<Prefix/><NoncurrentVersionExpiration>{days}{newer}</NoncurrentVersionExpiration>")
    };
    let sizes = |greater: u64, less: u64| {
        let greater = format!("<ObjectSizeGreaterThan>{greater}</ObjectSizeGreaterThan>");
        format!("<Filter><And>{greater}<ObjectSizeLessThan>{less}</ObjectSizeLessThan></And></Filter>{DAYS}")
    };
    for inside in [id(255), days(1), days(DAYS_MAX), newer(1), newer(100), sizes(0, 1)] {
        assert!(rule(&inside).is_ok(), "{inside}");
    }
    for inside in [id(256), days(0), days(DAYS_MAX + 1), newer(0), newer(101), sizes(1, 1), sizes(2, 1)] {
        assert_eq!(rule(&inside), Err(Code::InvalidArgument), "{inside}");
    }
    let beside = "<And><Prefix>p</Prefix></And>";
    for filter in [format!("{beside}<Prefix>q</Prefix>"), beside.repeat(2)] {
        assert_eq!(rule(&format!("<Filter>{filter}</Filter>{DAYS}")), Err(Code::MalformedXML), "{filter}");
    }
    let markers = "<Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>";
    let tagged = format!("<Filter><Tag><Key>k</Key><Value>v</Value></Tag></Filter>{markers}");
    assert_eq!(rule(&tagged), Err(Code::InvalidRequest), "a mark of a deletion has no tags");
}
