//! Lifecycle of a bucket's objects: rules, as documents and as what they say about one version.
//!
//! A rule is about objects under a prefix, with tags, within sizes. It ends current versions (after days, or on a date), older ones
//! (days after they were replaced, beyond a number of newer ones), marks of deletions under which nothing is left, and uploads that
//! nobody completes. A day is one of UTC: what is due within it ends when it is over.
//!
//! Deliberately absent: transitions to other storage classes, which are refused.

use super::date::{http_date, iso8601, parse_iso8601};
use super::document::{check_flag, check_tags, decode};
use super::error::{Code, S3Error};
use super::metadata::{Header, tags};
use super::service::Call;
use super::xml::{Element, XmlWriter};
use crate::api::{Attributes, Object};

/// The attribute of a bucket with its rules, as a document.
pub(super) const LIFECYCLE: &str = "lifecycle";
/// Rules of a bucket.
pub const RULES_MAX: usize = 1_000;
/// Characters of a rule's name.
const ID_MAX: usize = 255;
/// Newer versions that can be kept beside the current one.
const NEWER_MAX: u32 = 100;
/// Days of a rule: a thousand years, so that no date overflows.
const DAYS_MAX: u32 = 365_000;
/// Milliseconds of a day.
pub const DAY_MS: u64 = 86_400_000;

/// When the current version of an object ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expiration {
    /// So many days after it was put.
    Days(u32),
    /// On this date, in milliseconds since 1970 (UTC).
    Date(u64),
    /// It does not; a mark of a deletion does under which there is nothing (or, if false, does not).
    Markers(bool),
}

/// When versions end that are not current.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Noncurrent {
    /// So many days after the next newer one was put.
    days: u32,
    /// So many of them stay whatever their age.
    newer: Option<u32>,
}

/// Which objects a rule is about: those for which all of this holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Filter {
    prefix: Option<String>,
    tags: Vec<(String, String)>,
    greater: Option<u64>,
    less: Option<u64>,
}

/// How a rule's document says which objects it is about. It is told again as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FilterForm {
    /// A prefix, outside of a filter.
    Prefix,
    /// One condition, or none.
    Filter,
    /// Several conditions.
    And,
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LifecycleRule {
    id: String,
    is_enabled: bool,
    filter: Filter,
    form: FilterForm,
    expiration: Option<Expiration>,
    noncurrent: Option<Noncurrent>,
    /// Uploads are given up so many days after they were begun.
    abort_days: Option<u32>,
}

/// How long a day is, and what a rule's days are rounded up to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Day {
    /// Milliseconds. Another length than that of a day is for tests.
    pub ms: u64,
}

impl Default for Day {
    fn default() -> Self {
        Self { ms: DAY_MS }
    }
}

impl Day {
    /// The moment that comes so many days after another one: the end of that day.
    fn after(self, ms: u64, days: u32) -> u64 {
        let due = ms + u64::from(days) * self.ms;
        if self.ms == DAY_MS { due.next_multiple_of(DAY_MS) } else { due }
    }
}

const fn invalid(why: &'static str) -> S3Error {
    Code::InvalidArgument.because(why)
}

/// Reads a `LifecycleConfiguration`.
///
/// # Errors
/// [`Code::MalformedXML`], [`Code::InvalidArgument`], [`Code::InvalidRequest`]: rules that contradict themselves;
/// [`Code::NotImplemented`]: transitions.
pub fn decode_lifecycle(bytes: &[u8]) -> Result<Vec<LifecycleRule>, S3Error> {
    let root = decode(bytes, "LifecycleConfiguration")?;
    if root.children.is_empty() || root.children.len() > RULES_MAX {
        return Err(Code::MalformedXML.into());
    }
    let mut rules = root.children.iter().map(decode_rule).collect::<Result<Vec<_>, _>>()?;
    for at in 0..rules.len() {
        if rules[at].id.is_empty() {
            let is_free = |id: &String| rules.iter().all(|rule| rule.id != *id);
            let id = (at + 1..).map(|number| format!("rule-{number}")).find(is_free);
            rules[at].id = id.expect("there are more numbers than rules");
        }
    }
    let mut ids: Vec<&str> = rules.iter().map(|rule| rule.id.as_str()).collect();
    ids.sort_unstable();
    if ids.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(invalid("Rule ID must be unique. Found same ID for more than one rule"));
    }
    Ok(rules)
}

fn number<T: core::str::FromStr>(element: &Element, name: &str) -> Result<Option<T>, S3Error> {
    element.text_of(name).map(|text| text.trim().parse().map_err(|_| Code::MalformedXML.into())).transpose()
}

fn days(element: &Element, name: &str) -> Result<Option<u32>, S3Error> {
    let days: Option<i64> = number(element, name)?;
    let wrong = invalid("'Days' must be a positive integer");
    let days = days.map(|days| u32::try_from(days).ok().filter(|days| (1..=DAYS_MAX).contains(days)).ok_or(wrong));
    days.transpose()
}

fn date(text: &str) -> Result<u64, S3Error> {
    let ms = parse_iso8601(text.trim()).ok_or(Code::MalformedXML)?;
    if ms.is_multiple_of(DAY_MS) { Ok(ms) } else { Err(invalid("'Date' must be at midnight GMT")) }
}

fn decode_rule(rule: &Element) -> Result<LifecycleRule, S3Error> {
    if rule.name != "Rule" {
        return Err(Code::MalformedXML.into());
    }
    let id = rule.text_of("ID").unwrap_or_default();
    if id.chars().count() > ID_MAX {
        return Err(invalid("ID length should not exceed allowed limit of 255"));
    }
    let is_enabled = match rule.text_of("Status") {
        Some("Enabled") => true,
        Some("Disabled") => false,
        _ => return Err(Code::MalformedXML.into()),
    };
    let (filter, form) = decode_filter(rule)?;
    let expiration = rule.child("Expiration").map(decode_expiration).transpose()?;
    let noncurrent = rule.child("NoncurrentVersionExpiration").map(decode_noncurrent).transpose()?;
    let abort = rule.child("AbortIncompleteMultipartUpload");
    let abort_days = abort.map(|abort| days(abort, "DaysAfterInitiation")?.ok_or(S3Error::from(Code::MalformedXML)));
    let abort_days = abort_days.transpose()?;
    check_transitions(rule)?;
    if expiration.is_none() && noncurrent.is_none() && abort_days.is_none() {
        return Err(Code::InvalidRequest.because("At least one action needs to be specified in a rule."));
    }
    let is_of_all = filter.tags.is_empty() && filter.greater.is_none() && filter.less.is_none();
    let is_of_markers = matches!(expiration, Some(Expiration::Markers(_)));
    if abort_days.is_some() && !is_of_all || is_of_markers && !filter.tags.is_empty() {
        let message =
            "A rule for uploads or for marks of deletions can only be about a prefix, not about tags or sizes.";
        return Err(Code::InvalidRequest.because(message));
    }
    Ok(LifecycleRule { id: id.to_owned(), is_enabled, filter, form, expiration, noncurrent, abort_days })
}

/// There is one place for all objects. What is malformed is told before that.
fn check_transitions(rule: &Element) -> Result<(), S3Error> {
    let is_one = |child: &&Element| matches!(child.name.as_str(), "Transition" | "NoncurrentVersionTransition");
    let mut transitions = rule.children.iter().filter(is_one).peekable();
    if transitions.peek().is_none() {
        return Ok(());
    }
    for transition in transitions {
        transition.text_of("Date").map(date).transpose()?;
    }
    Err(Code::NotImplemented.because("Transitions to other storage classes are not implemented: there are none"))
}

fn decode_expiration(element: &Element) -> Result<Expiration, S3Error> {
    let days = days(element, "Days")?.map(Expiration::Days);
    let date = element.text_of("Date").map(date).transpose()?.map(Expiration::Date);
    let markers = element.text_of("ExpiredObjectDeleteMarker").map(check_flag).transpose()?.map(Expiration::Markers);
    match (days, date, markers) {
        (Some(one), None, None) | (None, Some(one), None) | (None, None, Some(one)) => Ok(one),
        _ => Err(Code::MalformedXML.into()),
    }
}

fn decode_noncurrent(element: &Element) -> Result<Noncurrent, S3Error> {
    let days = days(element, "NoncurrentDays")?.ok_or(Code::MalformedXML)?;
    let newer: Option<u32> = number(element, "NewerNoncurrentVersions")?;
    if newer.is_some_and(|newer| !(1..=NEWER_MAX).contains(&newer)) {
        return Err(invalid("'NewerNoncurrentVersions' must be 1 to 100"));
    }
    Ok(Noncurrent { days, newer })
}

fn decode_filter(rule: &Element) -> Result<(Filter, FilterForm), S3Error> {
    let (filter, form) = match (rule.child("Filter"), rule.text_of("Prefix")) {
        (None, Some(prefix)) => {
            return Ok((Filter { prefix: Some(prefix.to_owned()), ..Filter::default() }, FilterForm::Prefix));
        }
        (Some(filter), None) => match filter.child("And") {
            Some(all) if filter.children.len() == 1 => (all, FilterForm::And),
            None => (filter, FilterForm::Filter),
            Some(_) => return Err(Code::MalformedXML.into()),
        },
        _ => return Err(Code::MalformedXML.into()),
    };
    let is_tag = |child: &&Element| child.name == "Tag";
    let tag = |tag: &Element| Some((tag.text_of("Key")?.to_owned(), tag.text_of("Value")?.to_owned()));
    let tags: Option<Vec<_>> = filter.children.iter().filter(is_tag).map(tag).collect();
    let tags = tags.ok_or(Code::MalformedXML)?;
    check_tags(tags.iter().map(|(name, value)| (name.as_str(), value.as_str())), TAGS_MAX)?;
    let (greater, less) = (number(filter, "ObjectSizeGreaterThan")?, number(filter, "ObjectSizeLessThan")?);
    let known = ["Prefix", "Tag", "ObjectSizeGreaterThan", "ObjectSizeLessThan"];
    if filter.children.iter().any(|child| !known.contains(&child.name.as_str())) {
        return Err(Code::MalformedXML.into());
    }
    if greater.zip(less).is_some_and(|(greater, less): (u64, u64)| greater >= less) {
        return Err(invalid("'ObjectSizeGreaterThan' must be less than 'ObjectSizeLessThan'"));
    }
    Ok((Filter { prefix: filter.text_of("Prefix").map(str::to_owned), tags, greater, less }, form))
}

/// Tags of a filter.
const TAGS_MAX: usize = 10;

/// The document of rules.
#[must_use]
pub fn write_lifecycle(rules: &[LifecycleRule]) -> XmlWriter {
    let mut xml = XmlWriter::new("LifecycleConfiguration");
    for rule in rules {
        xml.element("Rule", |xml| rule.write(xml));
    }
    xml
}

impl Filter {
    fn write(&self, xml: &mut XmlWriter) {
        if let Some(prefix) = &self.prefix {
            xml.text("Prefix", prefix);
        }
        for (name, value) in &self.tags {
            xml.element("Tag", |xml| {
                xml.text("Key", name);
                xml.text("Value", value);
            });
        }
        self.greater.into_iter().for_each(|bytes| xml.number("ObjectSizeGreaterThan", bytes));
        self.less.into_iter().for_each(|bytes| xml.number("ObjectSizeLessThan", bytes));
    }

    fn has_key(&self, key: &str) -> bool {
        self.prefix.as_ref().is_none_or(|prefix| key.starts_with(prefix.as_str()))
    }

    fn has(&self, object: &Object) -> bool {
        let has_tags = || {
            let found = tags(&object.attributes);
            self.tags.iter().all(|(name, value)| found.get(name) == Some(value))
        };
        self.has_key(&object.key)
            && self.greater.is_none_or(|greater| object.bytes > greater)
            && self.less.is_none_or(|less| object.bytes < less)
            && (self.tags.is_empty() || has_tags())
    }
}

impl LifecycleRule {
    fn write(&self, xml: &mut XmlWriter) {
        xml.text("ID", &self.id);
        match self.form {
            FilterForm::Prefix => self.filter.write(xml),
            FilterForm::Filter => xml.element("Filter", |xml| self.filter.write(xml)),
            FilterForm::And => xml.element("Filter", |xml| xml.element("And", |xml| self.filter.write(xml))),
        }
        xml.text("Status", if self.is_enabled { "Enabled" } else { "Disabled" });
        if let Some(expiration) = self.expiration {
            xml.element("Expiration", |xml| match expiration {
                Expiration::Days(days) => xml.number("Days", days.into()),
                Expiration::Date(ms) => xml.text("Date", &iso8601(ms)),
                Expiration::Markers(flag) => xml.flag("ExpiredObjectDeleteMarker", flag),
            });
        }
        if let Some(Noncurrent { days, newer }) = self.noncurrent {
            xml.element("NoncurrentVersionExpiration", |xml| {
                xml.number("NoncurrentDays", days.into());
                newer.into_iter().for_each(|newer| xml.number("NewerNoncurrentVersions", newer.into()));
            });
        }
        if let Some(days) = self.abort_days {
            xml.element("AbortIncompleteMultipartUpload", |xml| xml.number("DaysAfterInitiation", days.into()));
        }
    }

    /// When the current version of an object ends by this rule.
    fn end_of_current(&self, object: &Object, day: Day) -> Option<u64> {
        match self.expiration {
            Some(Expiration::Days(days)) if self.filter.has(object) => Some(day.after(object.modified_ms, days)),
            Some(Expiration::Date(ms)) if self.filter.has(object) => Some(ms),
            _ => None,
        }
    }
}

/// The rules of a bucket that count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lifecycle {
    rules: Vec<LifecycleRule>,
    day: Day,
}

impl Lifecycle {
    /// The rules that a bucket's attributes keep; nothing if none of them counts.
    #[must_use]
    pub fn of(attributes: &Attributes, day: Day) -> Option<Self> {
        let mut rules = attributes.get(LIFECYCLE).and_then(|text| decode_lifecycle(text.as_bytes()).ok())?;
        rules.retain(|rule| rule.is_enabled);
        (!rules.is_empty()).then_some(Self { rules, day })
    }

    /// When the current version of an object ends, in milliseconds since 1970 (UTC), and by which rule; the first one.
    fn end_of_current(&self, object: &Object) -> Option<(u64, &str)> {
        let ends =
            self.rules.iter().filter_map(|rule| Some((rule.end_of_current(object, self.day)?, rule.id.as_str())));
        ends.min_by_key(|(ms, _)| *ms)
    }

    /// What a client is told about the end of the object.
    #[must_use]
    pub fn header(&self, object: &Object) -> Option<String> {
        let (ms, id) = self.end_of_current(object)?;
        Some(format!("expiry-date=\"{}\", rule-id=\"{id}\"", http_date(ms)))
    }

    /// Whether the current version of an object has ended.
    #[must_use]
    pub fn has_ended(&self, object: &Object, now_ms: u64) -> bool {
        self.end_of_current(object).is_some_and(|(ms, _)| ms <= now_ms)
    }

    /// Whether a version has ended that was replaced at that time, and is followed by so many newer ones that are not current.
    #[must_use]
    pub fn has_noncurrent_ended(&self, object: &Object, replaced_ms: u64, newer: u32, now_ms: u64) -> bool {
        self.rules.iter().any(|rule| {
            let is_due = |ends: &Noncurrent| {
                self.day.after(replaced_ms, ends.days) <= now_ms && ends.newer.is_none_or(|kept| newer >= kept)
            };
            rule.noncurrent.as_ref().is_some_and(is_due) && rule.filter.has(object)
        })
    }

    /// Whether a mark of a deletion that was put at that time has ended, as the only version of its key.
    #[must_use]
    pub fn has_marker_ended(&self, key: &str, modified_ms: u64, now_ms: u64) -> bool {
        self.rules.iter().any(|rule| {
            let is_due = match rule.expiration {
                Some(Expiration::Markers(is_wanted)) => is_wanted,
                Some(Expiration::Days(days)) => self.day.after(modified_ms, days) <= now_ms,
                Some(Expiration::Date(ms)) => ms <= now_ms,
                None => false,
            };
            // A mark has neither tags nor a size.
            let is_of_all = rule.filter.tags.is_empty() && rule.filter.greater.is_none() && rule.filter.less.is_none();
            is_due && is_of_all && rule.filter.has_key(key)
        })
    }

    /// Whether an upload for a key that was begun at that time has ended.
    #[must_use]
    pub fn has_upload_ended(&self, key: &str, begun_ms: u64, now_ms: u64) -> bool {
        self.rules.iter().any(|rule| {
            let is_due = |days: u32| self.day.after(begun_ms, days) <= now_ms;
            rule.abort_days.is_some_and(is_due) && rule.filter.has_key(key)
        })
    }

    /// Whether a rule is about uploads.
    #[must_use]
    pub fn is_about_uploads(&self) -> bool {
        self.rules.iter().any(|rule| rule.abort_days.is_some())
    }
}

impl Call<'_> {
    /// The header that tells when an object ends, if its bucket has rules about it. Days are those of the calendar.
    pub(super) async fn expiration_header(&self, object: &Object) -> Result<Option<Header>, S3Error> {
        if self.target().version.is_some() {
            // It may be an older one, and rules for these are others.
            return Ok(None);
        }
        let bucket = self.s3.service.buckets.get(&self.route.bucket).await?;
        let rules = Lifecycle::of(&bucket.attributes, Day::default());
        Ok(rules.and_then(|rules| Some(("x-amz-expiration".into(), rules.header(object)?))))
    }
}

#[cfg(test)]
mod tests;
