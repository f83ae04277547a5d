//! Object lock: the default retention of a bucket, retention and legal hold of objects, and the headers that ask for both.
//!
//! What a lock forbids is decided in the service, from the record of the version ([`crate::lock`]). Here are documents, headers
//! and permissions.

use super::access::{BYPASS_GOVERNANCE, Wish, rule_of};
use super::body::ChecksumAbout;
use super::date::{iso8601, parse_iso8601};
use super::document::decode;
use super::error::{Code, S3Error};
use super::head::RequestHead;
use super::metadata::{Header, version_header};
use super::response::Response;
use super::route::Operation;
use super::service::{Call, Integrity};
use super::xml::{Element, XmlWriter};
use crate::api::{Attributes, Bucket, Content, Object, Permit, Target, Versioning};
use crate::lock::{Bypass, Lock, LockChange, Retention, RetentionMode};

/// The attribute of a bucket with its default retention: mode, unit and number, parted by spaces.
const DEFAULT: &str = "object-lock";
/// The header that asks for a bucket whose versions can be locked.
const OF_BUCKET: &str = "x-amz-bucket-object-lock-enabled";
const MODE: &str = "x-amz-object-lock-mode";
const UNTIL: &str = "x-amz-object-lock-retain-until-date";
const LEGAL_HOLD: &str = "x-amz-object-lock-legal-hold";
const BYPASS: &str = "x-amz-bypass-governance-retention";

/// Longest default retention: a hundred years.
const DAYS_MAX: u64 = 36_500;
const YEARS_MAX: u64 = 100;
const DAY_MS: u64 = 24 * 3_600 * 1_000;

/// How long the versions of a bucket are kept that say nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DefaultRetention {
    mode: RetentionMode,
    unit: Unit,
    count: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Days,
    Years,
}

impl Unit {
    const fn name(self) -> &'static str {
        match self {
            Self::Days => "Days",
            Self::Years => "Years",
        }
    }

    const fn max(self) -> u64 {
        match self {
            Self::Days => DAYS_MAX,
            Self::Years => YEARS_MAX,
        }
    }
}

const fn name_of(mode: RetentionMode) -> &'static str {
    match mode {
        RetentionMode::Governance => "GOVERNANCE",
        RetentionMode::Compliance => "COMPLIANCE",
    }
}

fn mode_named(name: &str) -> Option<RetentionMode> {
    [RetentionMode::Governance, RetentionMode::Compliance].into_iter().find(|mode| name_of(*mode) == name)
}

impl DefaultRetention {
    /// The default retention of a bucket, if it has one.
    fn of(attributes: &Attributes) -> Option<Self> {
        let mut words = attributes.get(DEFAULT)?.split(' ');
        let mode = mode_named(words.next()?)?;
        let name = words.next()?;
        let unit = [Unit::Days, Unit::Years].into_iter().find(|unit| unit.name() == name)?;
        Some(Self { mode, unit, count: words.next()?.parse().ok()? })
    }

    fn text(self) -> String {
        format!("{} {} {}", name_of(self.mode), self.unit.name(), self.count)
    }

    /// The retention of a version that is put now. A year has 365 days.
    fn of_a_put(self, now_ms: u64) -> Retention {
        let days = if self.unit == Unit::Years { self.count * 365 } else { self.count };
        Retention { mode: self.mode, until_ms: now_ms + days * DAY_MS }
    }

    fn decode(rule: &Element) -> Result<Self, S3Error> {
        let retention = rule.child("DefaultRetention").ok_or(Code::MalformedXML)?;
        let mode = retention.text_of("Mode").and_then(mode_named).ok_or(Code::MalformedXML)?;
        let (unit, count) = match (retention.text_of("Days"), retention.text_of("Years")) {
            (Some(days), None) => (Unit::Days, days),
            (None, Some(years)) => (Unit::Years, years),
            _ => return Err(Code::MalformedXML.into()),
        };
        let count: i64 = count.trim().parse().map_err(|_| Code::MalformedXML)?;
        let count = u64::try_from(count).ok().filter(|count| (1..=unit.max()).contains(count));
        let wrong =
            Code::InvalidRetentionPeriod.because("Default retention period must be 1 to 36500 days or 100 years");
        Ok(Self { mode, unit, count: count.ok_or(wrong)? })
    }
}

/// The default retention that a document asks for.
fn decode_configuration(document: &[u8]) -> Result<Option<DefaultRetention>, S3Error> {
    let root = decode(document, "ObjectLockConfiguration")?;
    if root.text_of("ObjectLockEnabled") != Some("Enabled") {
        return Err(Code::MalformedXML.into());
    }
    root.child("Rule").map(DefaultRetention::decode).transpose()
}

/// The retention that a document asks for; nothing if it is empty.
fn decode_retention(document: &[u8]) -> Result<Option<Retention>, S3Error> {
    let root = decode(document, "Retention")?;
    match (root.text_of("Mode"), root.text_of("RetainUntilDate")) {
        (None, None) => Ok(None),
        (Some(mode), Some(until)) => {
            let mode = mode_named(mode).ok_or(Code::MalformedXML)?;
            Ok(Some(Retention { mode, until_ms: parse_iso8601(until.trim()).ok_or(Code::MalformedXML)? }))
        }
        _ => Err(Code::MalformedXML.into()),
    }
}

fn decode_legal_hold(document: &[u8]) -> Result<bool, S3Error> {
    let root = decode(document, "LegalHold")?;
    root.text_of("Status").and_then(switch).ok_or(Code::MalformedXML.into())
}

fn switch(text: &str) -> Option<bool> {
    match text {
        "ON" => Some(true),
        "OFF" => Some(false),
        _ => None,
    }
}

fn check_future(retention: Option<Retention>, now_ms: u64) -> Result<(), S3Error> {
    let is_over = retention.is_some_and(|retention| retention.until_ms <= now_ms);
    let wrong = Code::InvalidArgument.because("The retain until date must be in the future!");
    if is_over { Err(wrong) } else { Ok(()) }
}

/// The lock that the headers of a request ask for.
fn lock_of_headers(head: &RequestHead, now_ms: u64) -> Result<Lock, S3Error> {
    let invalid = |why| Code::InvalidArgument.because(why);
    let retention = match (head.header(MODE), head.header(UNTIL)) {
        (None, None) => None,
        (Some(mode), Some(until)) => {
            let mode = mode_named(mode).ok_or(invalid("Unknown wormMode directive."))?;
            let until_ms = parse_iso8601(until.trim());
            let until_ms = until_ms.ok_or(invalid("The retain until date must be provided in ISO 8601 format"))?;
            Some(Retention { mode, until_ms })
        }
        _ => {
            let both = "x-amz-object-lock-retain-until-date and x-amz-object-lock-mode must both be supplied";
            return Err(invalid(both));
        }
    };
    check_future(retention, now_ms)?;
    let legal_hold = match head.header(LEGAL_HOLD) {
        None => None,
        Some(text) => Some(switch(text).ok_or(invalid("Legal Hold must be either of 'ON' or 'OFF'"))?),
    };
    Ok(Lock { retention, legal_hold })
}

/// How a bucket that a request makes keeps versions.
pub(super) fn versioning_of_new_bucket(head: &RequestHead) -> Result<Versioning, S3Error> {
    match head.header(OF_BUCKET).map(str::to_ascii_lowercase).as_deref() {
        None | Some("false") => Ok(Versioning::Never),
        Some("true") => Ok(Versioning::Locked),
        Some(_) => Err(Code::InvalidArgument.because("x-amz-bucket-object-lock-enabled must be true or false")),
    }
}

impl Call<'_> {
    /// The lock of the version that a request puts: what its headers ask for, which takes permissions of its own, and the
    /// bucket's default retention where they ask for none.
    pub(super) async fn lock_of_new(&self, bucket: &Bucket) -> Result<Lock, S3Error> {
        let mut lock = lock_of_headers(self.head, self.from.now_ms)?;
        let target = Target::current(&self.route.bucket, &self.route.key);
        if lock.retention.is_some() {
            self.allow(&Wish::new(rule_of(Operation::PutObjectRetention), target)).await?;
        }
        if lock.legal_hold.is_some() {
            self.allow(&Wish::new(rule_of(Operation::PutObjectLegalHold), target)).await?;
        }
        if lock.retention.is_none() {
            lock.retention = DefaultRetention::of(&bucket.attributes).map(|default| default.of_a_put(self.from.now_ms));
        }
        Ok(lock)
    }

    /// Whether the request may pass over the retention of a version in governance mode, and says so.
    pub(super) async fn bypass(&self, target: Target<'_>) -> Result<Bypass, S3Error> {
        if !self.head.header(BYPASS).is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Ok(Bypass::Denied);
        }
        match self.allow(&Wish::new(BYPASS_GOVERNANCE, target)).await {
            Ok(_) => Ok(Bypass::Granted),
            // It may be that there is nothing to pass over.
            Err(error) if error.code == Code::AccessDenied => Ok(Bypass::Denied),
            Err(error) => Err(error),
        }
    }

    /// What a request wants to do to an object, and beside it.
    pub(super) fn wishes<'b>(&self, target: Target<'b>, bypass: Bypass) -> Vec<Wish<'b>> {
        let rule = match self.route.operation {
            Operation::DeleteObjects => rule_of(Operation::DeleteObject),
            operation => rule_of(operation),
        };
        let bypassing = (bypass == Bypass::Granted).then_some(BYPASS_GOVERNANCE);
        [rule].into_iter().chain(bypassing).map(|rule| Wish::new(rule, target)).collect()
    }

    /// The headers that tell a reader what keeps the object from deletion, as far as the reader may know.
    pub(super) async fn lock_headers(&self, object: &Object) -> Result<Vec<Header>, S3Error> {
        let mut headers: Vec<Header> = Vec::new();
        if let Some(retention) = object.lock.retention
            && self.may(Operation::GetObjectRetention, object).await?
        {
            headers.push((MODE.into(), name_of(retention.mode).to_owned()));
            headers.push((UNTIL.into(), iso8601(retention.until_ms)));
        }
        if let Some(is_on) = object.lock.legal_hold
            && self.may(Operation::GetObjectLegalHold, object).await?
        {
            headers.push((LEGAL_HOLD.into(), status(is_on).to_owned()));
        }
        Ok(headers)
    }

    /// Whether the sender may do this with the object of the request, as it was found.
    async fn may(&self, operation: Operation, found: &Object) -> Result<bool, S3Error> {
        let law = self.law(&self.route.bucket).await?;
        Ok(law.check(&Wish::new(rule_of(operation), self.target()), found).is_ok())
    }

    /// The object of the request, in a bucket whose versions can be locked.
    async fn lockable_object(&self) -> Result<Object, S3Error> {
        let service = &self.s3.service;
        if service.versions.state(&self.route.bucket).await? != Versioning::Locked {
            return Err(crate::api::Error::NotLockable.into());
        }
        let object = service.objects.head(self.target()).await?;
        self.allow_own_found(&object).await?;
        Ok(object)
    }
}

const fn status(is_on: bool) -> &'static str {
    if is_on { "ON" } else { "OFF" }
}

pub(super) async fn get_configuration(call: &Call<'_>, bucket: &Bucket) -> Result<XmlWriter, S3Error> {
    if call.s3.service.versions.state(&call.route.bucket).await? != Versioning::Locked {
        return Err(Code::ObjectLockConfigurationNotFoundError.into());
    }
    let mut xml = XmlWriter::new("ObjectLockConfiguration");
    xml.text("ObjectLockEnabled", "Enabled");
    if let Some(default) = DefaultRetention::of(&bucket.attributes) {
        xml.element("Rule", |xml| {
            xml.element("DefaultRetention", |xml| {
                xml.text("Mode", name_of(default.mode));
                xml.number(default.unit.name(), default.count);
            });
        });
    }
    Ok(xml)
}

pub(super) async fn put_configuration(call: Call<'_>, body: &mut dyn Content) -> Result<Response, S3Error> {
    let document = call.document(body, Integrity::Optional, ChecksumAbout::Body).await?;
    let default = decode_configuration(&document)?;
    let (service, bucket) = (&call.s3.service, &call.route.bucket);
    service.versions.set_state(bucket, Versioning::Locked).await?;
    let edit = |bucket: &Bucket| Ok(bucket.attributes.with(DEFAULT, default.map(DefaultRetention::text)));
    service.buckets.edit(bucket, &edit).await?;
    Ok(Response::empty(200))
}

pub(super) async fn get_retention(call: Call<'_>) -> Result<Response, S3Error> {
    let object = call.lockable_object().await?;
    let retention = object.lock.retention.ok_or(Code::NoSuchObjectLockConfiguration)?;
    let mut xml = XmlWriter::new("Retention");
    xml.text("Mode", name_of(retention.mode));
    xml.text("RetainUntilDate", &iso8601(retention.until_ms));
    Ok(Response::xml(xml).with_all(version_header(&object)))
}

pub(super) async fn put_retention(call: Call<'_>, body: &mut dyn Content) -> Result<Response, S3Error> {
    let document = call.document(body, Integrity::Optional, ChecksumAbout::Body).await?;
    let retention = decode_retention(&document)?;
    check_future(retention, call.from.now_ms)?;
    let bypass = call.bypass(call.target()).await?;
    relock(call, LockChange::Retention(retention), bypass).await
}

pub(super) async fn get_legal_hold(call: Call<'_>) -> Result<Response, S3Error> {
    let object = call.lockable_object().await?;
    let is_on = object.lock.legal_hold.ok_or(Code::NoSuchObjectLockConfiguration)?;
    let mut xml = XmlWriter::new("LegalHold");
    xml.text("Status", status(is_on));
    Ok(Response::xml(xml).with_all(version_header(&object)))
}

pub(super) async fn put_legal_hold(call: Call<'_>, body: &mut dyn Content) -> Result<Response, S3Error> {
    let document = call.document(body, Integrity::Optional, ChecksumAbout::Body).await?;
    relock(call, LockChange::LegalHold(decode_legal_hold(&document)?), Bypass::Denied).await
}

async fn relock(call: Call<'_>, change: LockChange, bypass: Bypass) -> Result<Response, S3Error> {
    let (law, wishes) = (call.law(&call.route.bucket).await?, call.wishes(call.target(), bypass));
    let decide = law.decides(&wishes);
    let object = call.s3.service.versions.relock(call.target(), change, bypass, Permit::by(&decide)).await?;
    Ok(Response::empty(200).with_all(version_header(&object)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::s3::head::Method;

    fn configuration(inside: &str) -> Result<Option<DefaultRetention>, Code> {
        let text = format!("<ObjectLockConfiguration>{inside}</ObjectLockConfiguration>");
        decode_configuration(text.as_bytes()).map_err(|error| error.code)
    }

    #[test]
    fn configurations() {
        let rule = |inside: &str| {
            let retention = format!("<Rule><DefaultRetention>{inside}</DefaultRetention></Rule>");
            configuration(&format!("<ObjectLockEnabled>Enabled</ObjectLockEnabled>{retention}"))
        };
        assert_eq!(configuration("<ObjectLockEnabled>Enabled</ObjectLockEnabled>"), Ok(None));
        for (inside, unit, count) in [
            ("<Mode>GOVERNANCE</Mode><Days>36500</Days>", Unit::Days, 36_500),
            ("<Mode>GOVERNANCE</Mode><Years>100</Years>", Unit::Years, 100),
        ] {
            let default = DefaultRetention { mode: RetentionMode::Governance, unit, count };
            assert_eq!(rule(inside), Ok(Some(default)));
            let kept = Attributes::default().with(DEFAULT, Some(default.text()));
            assert_eq!(DefaultRetention::of(&kept), Some(default));
            let until_ms = 5 + 36_500 * DAY_MS;
            assert_eq!(default.of_a_put(5), Retention { mode: RetentionMode::Governance, until_ms });
        }
        let wrong = [
            ("<Mode>GOVERNANCE</Mode><Days>1</Days><Years>1</Years>", Code::MalformedXML),
            ("<Mode>GOVERNANCE</Mode>", Code::MalformedXML),
            ("<Mode>governance</Mode><Days>1</Days>", Code::MalformedXML),
            ("<Days>1</Days>", Code::MalformedXML),
            ("<Mode>COMPLIANCE</Mode><Days>one</Days>", Code::MalformedXML),
            ("<Mode>COMPLIANCE</Mode><Days>0</Days>", Code::InvalidRetentionPeriod),
            ("<Mode>COMPLIANCE</Mode><Days>36501</Days>", Code::InvalidRetentionPeriod),
            ("<Mode>COMPLIANCE</Mode><Years>-1</Years>", Code::InvalidRetentionPeriod),
        ];
        for (inside, code) in wrong {
            assert_eq!(rule(inside), Err(code), "{inside}");
        }
        for inside in ["", "<ObjectLockEnabled>Disabled</ObjectLockEnabled>"] {
            assert_eq!(configuration(inside), Err(Code::MalformedXML), "{inside}");
        }
    }

    #[test]
    fn documents_of_objects() {
        let retention = |inside: &str| {
            decode_retention(format!("<Retention>{inside}</Retention>").as_bytes()).map_err(|error| error.code)
        };
        let until = "<RetainUntilDate>2013-05-24T00:00:00Z</RetainUntilDate>";
        let expected = Retention { mode: RetentionMode::Compliance, until_ms: 1_369_353_600_000 };
        assert_eq!(retention(&format!("<Mode>COMPLIANCE</Mode>{until}")), Ok(Some(expected)));
        assert_eq!(retention(""), Ok(None));
        for inside in [until, "<Mode>COMPLIANCE</Mode>", &format!("<Mode>abc</Mode>{until}")] {
            assert_eq!(retention(inside), Err(Code::MalformedXML), "{inside}");
        }
        let hold = |text: &str| {
            let text = format!("<LegalHold><Status>{text}</Status></LegalHold>");
            decode_legal_hold(text.as_bytes()).map_err(|error| error.code)
        };
        assert_eq!((hold("ON"), hold("OFF"), hold("on")), (Ok(true), Ok(false), Err(Code::MalformedXML)));
    }

    #[test]
    fn headers() {
        let lock = |headers: &[(&str, &str)]| {
            let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let head = RequestHead::new(Method::Put, "/bucket/key", headers).expect("a head");
            lock_of_headers(&head, 1_369_353_600_000).map_err(|error| error.code)
        };
        let (mode, until) = ((MODE, "GOVERNANCE"), (UNTIL, "2013-05-24T00:00:00.001Z"));
        let retention = Some(Retention { mode: RetentionMode::Governance, until_ms: 1_369_353_600_001 });
        assert_eq!(lock(&[]), Ok(Lock::default()));
        assert_eq!(lock(&[mode, until, (LEGAL_HOLD, "OFF")]), Ok(Lock { retention, legal_hold: Some(false) }));
        let wrong: [&[(&str, &str)]; 6] = [
            &[mode],
            &[until],
            &[(MODE, "governance"), until],
            &[mode, (UNTIL, "2013-05-24T00:00:00Z")],
            &[mode, (UNTIL, "tomorrow")],
            &[(LEGAL_HOLD, "on")],
        ];
        for headers in wrong {
            assert_eq!(lock(headers), Err(Code::InvalidArgument), "{headers:?}");
        }
    }
}
