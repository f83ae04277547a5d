//! Policy of a form: until when, and which fields it may have with which values. Signed by whoever made the form.
//!
//! Every field must be under a condition, so that nobody adds one. The bucket must be, too, though it stands in the address
//! and not in the form: otherwise a form for one bucket would do for all buckets of its maker.

use serde_json::Value;

use super::date::parse_iso8601;
use super::error::{Code, S3Error};
use super::policy::has_name_twice;

/// Conditions of a policy.
pub const CONDITIONS_MAX: usize = 256;

/// A policy of a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormPolicy {
    expiration_ms: u64,
    conditions: Vec<Condition>,
    /// Least and greatest length of the file.
    length: (u64, u64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Condition {
    is_exact: bool,
    /// In lower case.
    field: String,
    value: String,
}

/// Fields that need no condition.
const FREE: [&str; 6] = ["awsaccesskeyid", "signature", "policy", "file", "x-amz-signature", "submit"];

const fn invalid(why: &'static str) -> S3Error {
    Code::InvalidPolicyDocument.because(why)
}

const fn denied(why: &'static str) -> S3Error {
    Code::AccessDenied.because(why)
}

impl FormPolicy {
    /// Reads a policy.
    ///
    /// # Errors
    /// [`Code::InvalidPolicyDocument`].
    pub fn decode(json: &[u8]) -> Result<Self, S3Error> {
        let value: Value = serde_json::from_slice(json).map_err(|_| invalid("Invalid Policy: Invalid JSON."))?;
        if has_name_twice(json, &value) {
            return Err(invalid("Invalid Policy: A name comes twice in an object."));
        }
        let expiration = value.get("expiration").ok_or(invalid("Policy missing expiration."))?;
        let expiration_ms = expiration.as_str().and_then(parse_iso8601);
        let expiration_ms = expiration_ms.ok_or(invalid("Invalid Policy: Invalid 'expiration' value."))?;
        let conditions = value.get("conditions").ok_or(invalid("Invalid Policy: Missing conditions."))?;
        let conditions =
            conditions.as_array().ok_or(invalid("Invalid Policy: Invalid 'conditions' value: must be a List."))?;
        if conditions.len() > CONDITIONS_MAX {
            return Err(invalid("Invalid Policy: Too many conditions."));
        }
        let mut policy = Self { expiration_ms, conditions: Vec::new(), length: (0, u64::MAX) };
        conditions.iter().try_for_each(|condition| policy.add(condition))?;
        Ok(policy)
    }

    fn add(&mut self, condition: &Value) -> Result<(), S3Error> {
        let simple =
            "Invalid Policy: Invalid Simple-Condition: Simple-Conditions must have exactly one property specified.";
        let wrong = invalid("Invalid Policy: Invalid Condition.");
        let (is_exact, field, value) = match condition {
            Value::Object(pairs) => {
                let mut pairs = pairs.iter();
                match (pairs.next(), pairs.next()) {
                    (Some((field, Value::String(value))), None) => (true, field.as_str(), value),
                    _ => return Err(invalid(simple)),
                }
            }
            Value::Array(parts) => match parts.as_slice() {
                [Value::String(kind), least, most] if kind.eq_ignore_ascii_case("content-length-range") => {
                    let (least, most) = (number(least).ok_or(wrong)?, number(most).ok_or(wrong)?);
                    self.length = (self.length.0.max(least), self.length.1.min(most));
                    return Ok(());
                }
                [Value::String(kind), Value::String(field), Value::String(value)] => {
                    let field = field.strip_prefix('$').ok_or(wrong)?;
                    match kind.to_ascii_lowercase().as_str() {
                        "eq" => (true, field, value),
                        "starts-with" => (false, field, value),
                        _ => return Err(wrong),
                    }
                }
                _ => return Err(wrong),
            },
            _ => return Err(wrong),
        };
        self.conditions.push(Condition { is_exact, field: field.to_ascii_lowercase(), value: value.clone() });
        Ok(())
    }

    /// Least and greatest length of the file.
    #[must_use]
    pub const fn length(&self) -> (u64, u64) {
        self.length
    }

    /// Whether a form for this bucket may have these fields now: names in lower case, and values.
    ///
    /// # Errors
    /// [`Code::AccessDenied`].
    pub fn check<'a>(
        &self,
        bucket: &'a str,
        fields: impl Iterator<Item = (&'a str, &'a str)> + Clone,
        now_ms: u64,
    ) -> Result<(), S3Error> {
        if self.expiration_ms <= now_ms {
            return Err(denied("Invalid according to Policy: Policy expired."));
        }
        // The bucket of the address, whatever a field of that name says.
        let fields = fields.filter(|(name, _)| *name != "bucket").chain([("bucket", bucket)]);
        let is_met = |condition: &Condition| {
            let mut values = fields.clone().filter(|(name, _)| *name == condition.field).map(|(_, value)| value);
            let fits = |value: &str| {
                if condition.is_exact { value == condition.value } else { value.starts_with(&condition.value) }
            };
            // A field that is not there is empty.
            fits(values.next().unwrap_or_default()) && values.all(fits)
        };
        if !self.conditions.iter().all(is_met) {
            return Err(denied("Invalid according to Policy: Policy Condition failed."));
        }
        let is_free = |name: &str| FREE.contains(&name) || name.starts_with("x-ignore-");
        let is_known = |name: &str| is_free(name) || self.conditions.iter().any(|condition| condition.field == name);
        if !fields.clone().all(|(name, _)| is_known(name)) {
            return Err(denied("Invalid according to Policy: Extra input fields."));
        }
        Ok(())
    }
}

/// A length, as a number or as text.
fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(conditions: &str) -> Result<FormPolicy, Code> {
        let text = format!(r#"{{"expiration": "2013-05-24T00:00:00Z", "conditions": [{conditions}]}}"#);
        FormPolicy::decode(text.as_bytes()).map_err(|error| error.code)
    }

    fn check(conditions: &str, fields: &[(&str, &str)]) -> Result<(), Code> {
        let policy = policy(&format!(r#"{{"bucket": "b"}}, {conditions}"#)).expect("a policy");
        policy.check("b", fields.iter().copied(), 1_369_353_599_999).map_err(|error| error.code)
    }

    /// Conditions, fields, and whether these are allowed.
    type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], bool);

    #[test]
    fn conditions() {
        let key = ("key", "foo.txt");
        let cases: [Case<'_>; 12] = [
            (r#"["eq", "$key", "foo.txt"]"#, &[key], true),
            (r#"["eq", "$key", "foo"]"#, &[key], false),
            (r#"["StArTs-WiTh", "$KeY", "foo"]"#, &[key], true),
            (r#"["starts-with", "$key", ""], ["starts-with", "$acl", ""]"#, &[key], true),
            (r#"["starts-with", "$key", ""], ["eq", "$acl", "private"]"#, &[key], false),
            (r#"{"KEY": "foo.txt"}"#, &[key, ("x-ignore-a", "1"), ("signature", "s")], true),
            (r#"{"key": "foo.txt"}"#, &[key, ("acl", "private")], false),
            (r#"{"key": "foo.txt"}"#, &[key, ("x-amz-meta-a", "1")], false),
            (r#"{"key": "foo.txt"}"#, &[key, ("key", "other")], false),
            (r#"{"key": "foo.txt"}"#, &[key, ("bucket", "other")], true),
            (r#"{"key": "foo.txt"}, {"bucket": "other"}"#, &[key, ("bucket", "other")], false),
            (r#"["eq", "$key", "foo.txt"], ["starts-with", "$key", "bar"]"#, &[key], false),
        ];
        for (conditions, fields, is_allowed) in cases {
            let expected = if is_allowed { Ok(()) } else { Err(Code::AccessDenied) };
            assert_eq!(check(conditions, fields), expected, "{conditions} {fields:?}");
        }
        let without_bucket = policy(r#"{"key": "foo.txt"}"#).expect("a policy");
        assert!(without_bucket.check("b", [key].into_iter(), 0).is_err(), "it would do for every bucket");
        let expired = policy(r#"{"bucket": "b"}"#).expect("a policy");
        assert!(expired.check("b", core::iter::empty(), 1_369_353_600_000).is_err());
    }

    #[test]
    fn lengths() {
        let range = |text: &str| policy(text).map(|policy| policy.length());
        assert_eq!(range(""), Ok((0, u64::MAX)));
        assert_eq!(range(r#"["content-length-range", 1, "10"], ["content-length-range", 0, 5]"#), Ok((1, 5)));
        for wrong in [r#"["content-length-range", 0]"#, r#"["content-length-range", -1, 0]"#] {
            assert_eq!(range(wrong), Err(Code::InvalidPolicyDocument), "{wrong}");
        }
    }

    #[test]
    fn refused() {
        for conditions in
            ["{}", r#"{"a": "1", "b": "2"}"#, r#"["eq", "key", "a"]"#, r#"["ne", "$key", "a"]"#, "1", r#"{"a": 1}"#]
        {
            assert_eq!(policy(conditions), Err(Code::InvalidPolicyDocument), "{conditions}");
        }
        let texts = [
            "",
            "[]",
            r#"{"conditions": []}"#,
            r#"{"expiration": "2013-05-24T00:00:00Z"}"#,
            r#"{"expiration": "2013-05-24T00:00:00Z", "CONDITIONS": []}"#,
            r#"{"expiration": "2013-05-24 00:00:00", "conditions": []}"#,
            r#"{"expiration": "2013-05-24T00:00:00Z", "conditions": [], "conditions": []}"#,
        ];
        for text in texts {
            let code = FormPolicy::decode(text.as_bytes()).map_err(|error| error.code);
            assert_eq!(code, Err(Code::InvalidPolicyDocument), "{text}");
        }
        let many =
            |count: usize| policy(&vec![r#"{"key": "a"}"#; count].join(",")).map(|policy| policy.conditions.len());
        assert_eq!((many(256), many(257)), (Ok(256), Err(Code::InvalidPolicyDocument)));
    }
}
