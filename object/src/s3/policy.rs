//! Policies of buckets and of users: JSON documents that say who may do what, and what they say about one request.
//!
//! A statement that denies outweighs all that allow. What is not known here (operators, condition keys, elements) is refused
//! when the policy is put, so that no part of a policy that is kept is passed over.
//!
//! Follows the grammar of IAM policies. Deliberately absent: dates, numbers of ARNs.

use core::net::IpAddr;

use serde_json::{Map, Value};

use super::encryption::{KMS_KEY, short_name};
use super::error::{Code, S3Error};

mod check;
mod pattern;

pub use self::pattern::is_like;
use self::pattern::{Pattern, Values};

/// Longest policy, bytes.
pub const POLICY_BYTES_MAX: usize = 20 << 10;
/// Longest policy of a user, bytes.
pub const USER_POLICY_BYTES_MAX: usize = 4 << 10;
/// Statements of a policy.
pub const STATEMENTS_MAX: usize = 256;
/// Patterns of one element of a statement.
pub const PATTERNS_MAX: usize = 512;

/// What a policy says about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyVerdict {
    /// A statement denies it.
    Deny,
    /// A statement allows it, and none denies it.
    Allow,
    /// No statement is about it.
    Silent,
}

/// Who asks, as far as policies can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Principal<'a> {
    /// A user of this id and name.
    User(&'a str, &'a str),
    /// Nobody has signed the request.
    Anonymous,
}

/// One request, as policies see it.
pub struct PolicyRequest<'a> {
    /// Who asks.
    pub principal: Principal<'a>,
    /// The action, such as `s3:GetObject`.
    pub action: &'a str,
    /// The bucket, or bucket, slash and key.
    pub resource: &'a str,
    /// The values of a condition key; none if the request has none.
    pub values: &'a dyn Fn(&str) -> Vec<String>,
}

/// A policy of a bucket or of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    statements: Vec<Statement>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Statement {
    is_allowing: bool,
    principals: Principals,
    actions: Patterns,
    resources: Patterns,
    conditions: Vec<Condition>,
}

/// Patterns, and whether they are those that do not count.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Patterns {
    is_negated: bool,
    patterns: Vec<Pattern>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Principals {
    is_negated: bool,
    /// `*`, or what users may be called.
    names: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    EqualIgnoreCase,
    Like,
    Address,
    Bool,
    NumberEqual,
    NumberLess,
    NumberLessOrEqual,
    NumberGreater,
    NumberGreaterOrEqual,
    Missing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Set {
    /// The key has one value.
    One,
    Any,
    All,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Condition {
    comparison: Comparison,
    is_negated: bool,
    set: Set,
    /// A request without the key fulfils it.
    is_if_exists: bool,
    key: String,
    values: Vec<Pattern>,
}

/// Condition keys that a request may have. Those that end with a slash have a name behind it.
const KEYS: [&str; 26] = [
    "aws:Referer",
    "aws:SecureTransport",
    "aws:SourceIp",
    "aws:UserAgent",
    "aws:userid",
    "aws:username",
    "s3:ExistingObjectTag/",
    "s3:RequestObjectTag/",
    "s3:RequestObjectTagKeys",
    "s3:VersionId",
    "s3:authType",
    "s3:delimiter",
    "s3:max-keys",
    "s3:prefix",
    "s3:signatureversion",
    "s3:x-amz-acl",
    "s3:x-amz-content-sha256",
    "s3:x-amz-copy-source",
    "s3:x-amz-grant-full-control",
    "s3:x-amz-grant-read",
    "s3:x-amz-grant-write",
    "s3:x-amz-metadata-directive",
    "s3:x-amz-server-side-encryption",
    "s3:x-amz-server-side-encryption-aws-kms-key-id",
    "s3:x-amz-server-side-encryption-customer-algorithm",
    "s3:x-amz-storage-class",
];

const fn malformed(why: &'static str) -> S3Error {
    Code::MalformedPolicy.because(why)
}

fn unknown() -> S3Error {
    Code::NotImplemented.because("The policy has an element, an operator or a condition key that is not implemented")
}

impl Policy {
    /// Reads a policy.
    ///
    /// # Errors
    /// [`Code::MalformedPolicy`]: it is none; [`Code::NotImplemented`]: it is one, and has what is not known here.
    pub fn decode(bytes: &[u8]) -> Result<Self, S3Error> {
        Self::decode_as(bytes, decode_statement)
    }

    /// Reads the policy of a user: its statements have no principals, as they are about whoever has it.
    ///
    /// # Errors
    /// As [`Policy::decode`].
    pub fn decode_of_user(bytes: &[u8]) -> Result<Self, S3Error> {
        Self::decode_as(bytes, |value, knows_variables| {
            let mut value = value.clone();
            if let Some(statement) = value.as_object_mut() {
                if ["Principal", "NotPrincipal"].iter().any(|name| statement.contains_key(*name)) {
                    return Err(malformed("A policy of a user has no principals"));
                }
                statement.insert("Principal".to_owned(), Value::from("*"));
            }
            decode_statement(&value, knows_variables)
        })
    }

    fn decode_as(bytes: &[u8], decode: impl Fn(&Value, bool) -> Result<Statement, S3Error>) -> Result<Self, S3Error> {
        if bytes.len() > POLICY_BYTES_MAX {
            return Err(malformed("Policies are limited to 20 KB"));
        }
        let value: Value = serde_json::from_slice(bytes).map_err(|_| malformed("Policies must be valid JSON"))?;
        if has_name_twice(bytes, &value) {
            return Err(malformed("A name comes twice in an object of the policy"));
        }
        let root = value.as_object().ok_or(malformed("Policies must be valid JSON and the first byte must be '{'"))?;
        if root.keys().any(|key| !matches!(key.as_str(), "Version" | "Id" | "Statement")) {
            return Err(unknown());
        }
        let knows_variables = match root.get("Version").map(Value::as_str) {
            Some(Some("2012-10-17")) => true,
            None | Some(Some("2008-10-17")) => false,
            Some(_) => return Err(malformed("The policy must contain a valid version string")),
        };
        let decode = |statement: &Value| decode(statement, knows_variables);
        let statements = match root.get("Statement") {
            Some(Value::Array(all)) => all.iter().map(decode).collect::<Result<Vec<_>, _>>()?,
            Some(one @ Value::Object(_)) => vec![decode(one)?],
            _ => return Err(malformed("Missing required field Statement")),
        };
        if statements.is_empty() || statements.len() > STATEMENTS_MAX {
            return Err(malformed("A policy has 1 to 256 statements"));
        }
        Ok(Self { statements })
    }

    /// What it says about a request.
    #[must_use]
    pub fn judge(&self, request: &PolicyRequest<'_>) -> PolicyVerdict {
        let mut verdict = PolicyVerdict::Silent;
        for statement in self.statements.iter().filter(|statement| statement.is_about(request)) {
            if !statement.is_allowing {
                return PolicyVerdict::Deny;
            }
            verdict = PolicyVerdict::Allow;
        }
        verdict
    }

    /// Whether a condition is about tags of the object that is there.
    #[must_use]
    pub fn needs_tags(&self) -> bool {
        let mut conditions = self.statements.iter().flat_map(|statement| &statement.conditions);
        conditions.any(|condition| condition.key.starts_with("s3:ExistingObjectTag/"))
    }

    /// Whether a condition is about what is said of an object when an upload of it is begun: its encryption, its tags.
    #[must_use]
    pub fn needs_upload(&self) -> bool {
        let mut conditions = self.statements.iter().flat_map(|statement| &statement.conditions);
        conditions.any(|condition| {
            let names = ["s3:x-amz-server-side-encryption", "s3:RequestObjectTag"];
            names.iter().any(|name| condition.key.starts_with(name))
        })
    }

    /// Whether a condition is about tags that a request sets.
    #[must_use]
    pub fn needs_new_tags(&self) -> bool {
        let mut conditions = self.statements.iter().flat_map(|statement| &statement.conditions);
        conditions.any(|condition| condition.key.starts_with("s3:RequestObjectTag"))
    }

    /// Whether it lets everybody in: a statement allows all principals without a condition on where or who they are.
    #[must_use]
    pub fn is_public(&self) -> bool {
        self.statements.iter().any(|statement| {
            let is_everybody =
                statement.principals.is_negated || statement.principals.names.iter().any(|name| name == "*");
            statement.is_allowing && is_everybody && !statement.conditions.iter().any(Condition::is_limit)
        })
    }
}

impl Statement {
    fn is_about(&self, request: &PolicyRequest<'_>) -> bool {
        let values = request.values;
        self.principals.has(request.principal)
            && self.actions.has(&request.action.to_ascii_lowercase(), values)
            && self.resources.has(request.resource, values)
            && self.conditions.iter().all(|condition| condition.holds(values))
            // A negation would grant everything where there is no value. A statement that denies may.
            && (!self.is_allowing || self.texts().all(|text| text.is_resolved(values)))
    }

    /// All texts that may have variables.
    fn texts(&self) -> impl Iterator<Item = &Pattern> {
        self.resources.patterns.iter().chain(self.conditions.iter().flat_map(|condition| &condition.values))
    }
}

impl Patterns {
    fn has(&self, text: &str, values: Values<'_>) -> bool {
        self.patterns.iter().any(|pattern| pattern.is_like(text, values)) != self.is_negated
    }
}

impl Principals {
    fn has(&self, principal: Principal<'_>) -> bool {
        let is_one = |name: &String| match principal {
            _ if name == "*" => true,
            Principal::User(id, user) => {
                let arn = name.strip_prefix("arn:aws:iam::").and_then(|rest| rest.split_once(':'));
                match arn {
                    Some((account, "root")) => account == id,
                    Some((_, rest)) => rest
                        .strip_prefix("user/")
                        .and_then(|path| path.rsplit('/').next())
                        .is_some_and(|last| last == id || last == user),
                    None => name == id,
                }
            }
            Principal::Anonymous => false,
        };
        self.names.iter().any(is_one) != self.is_negated
    }
}

/// Whether a network is one of those that somebody may call theirs: at most a 256th of all addresses.
fn is_narrow(network: &str) -> bool {
    let (address, bits) = match network.split_once('/') {
        Some((address, bits)) => (address, bits.parse().ok()),
        None => (network, Some(u8::MAX)),
    };
    let bits_min = if address.contains(':') { 32 } else { 8 };
    bits.is_some_and(|bits: u8| bits >= bits_min)
}

impl Condition {
    /// Whether it holds only for some who are named, or where they are. What holds without a value of its key names nobody: a
    /// negation, `...IfExists`, `ForAllValues:`, `Null`.
    fn is_limit(&self) -> bool {
        if self.is_negated || self.is_if_exists || self.set == Set::All {
            return false;
        }
        // What is compared with the request itself names nobody.
        if self.values.iter().any(Pattern::has_variables) {
            return false;
        }
        match (self.key.as_str(), self.comparison) {
            ("aws:SourceIp", Comparison::Address) => self.values.iter().all(|network| is_narrow(network.text())),
            ("aws:userid" | "aws:username", Comparison::Equal | Comparison::EqualIgnoreCase) => true,
            ("aws:userid" | "aws:username", Comparison::Like) => {
                self.values.iter().all(|value| !value.text().contains(['*', '?']))
            }
            _ => false,
        }
    }

    fn holds(&self, values: Values<'_>) -> bool {
        let found = values(&self.key);
        if self.comparison == Comparison::Missing {
            return self.values.iter().any(|value| (value.text() == "true") == found.is_empty());
        }
        if found.is_empty() {
            return self.is_if_exists || self.is_negated || self.set == Set::All;
        }
        let fits = |found: &String| {
            self.values.iter().any(|wanted| compare(self.comparison, wanted, found, values)) != self.is_negated
        };
        match self.set {
            Set::One | Set::All => found.iter().all(fits),
            Set::Any => found.iter().any(fits),
        }
    }
}

fn compare(comparison: Comparison, wanted: &Pattern, found: &str, values: Values<'_>) -> bool {
    let numbers = || Some((found.parse::<i64>().ok()?, wanted.text().parse::<i64>().ok()?));
    let number = |fits: fn(i64, i64) -> bool| numbers().is_some_and(|(found, wanted)| fits(found, wanted));
    match comparison {
        Comparison::Equal => wanted.is(values, |wanted| wanted == found),
        Comparison::EqualIgnoreCase | Comparison::Bool => {
            wanted.is(values, |wanted| wanted.eq_ignore_ascii_case(found))
        }
        Comparison::Like => wanted.is_like(found, values),
        Comparison::Address => is_within(wanted.text(), found),
        Comparison::NumberEqual => number(|found, wanted| found == wanted),
        Comparison::NumberLess => number(|found, wanted| found < wanted),
        Comparison::NumberLessOrEqual => number(|found, wanted| found <= wanted),
        Comparison::NumberGreater => number(|found, wanted| found > wanted),
        Comparison::NumberGreaterOrEqual => number(|found, wanted| found >= wanted),
        Comparison::Missing => unreachable!("it compares nothing"),
    }
}

/// Whether an address is in a network, such as `10.0.0.0/8`.
fn is_within(network: &str, address: &str) -> bool {
    let Ok(address) = address.parse::<IpAddr>().map(|address| address.to_canonical()) else { return false };
    let Some((network, bits)) = decode_network(network) else { return false };
    let same = |one: u128, other: u128, length: u32| bits == 0 || (one ^ other) >> (length - bits) == 0;
    match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => same(network.to_bits().into(), address.to_bits().into(), 32),
        (IpAddr::V6(network), IpAddr::V6(address)) => same(network.to_bits(), address.to_bits(), 128),
        _ => false,
    }
}

fn decode_network(text: &str) -> Option<(IpAddr, u32)> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address.parse().ok()?, Some(bits.parse::<u32>().ok()?)),
        None => (text.parse().ok()?, None),
    };
    let length = if matches!(address, IpAddr::V4(_)) { 32 } else { 128 };
    let bits = bits.unwrap_or(length);
    (bits <= length).then_some((address, bits))
}

fn decode_statement(value: &Value, knows_variables: bool) -> Result<Statement, S3Error> {
    const KNOWN: [&str; 9] =
        ["Sid", "Effect", "Principal", "NotPrincipal", "Action", "NotAction", "Resource", "NotResource", "Condition"];
    let statement = value.as_object().ok_or(malformed("A statement is an object"))?;
    if statement.keys().any(|key| !KNOWN.contains(&key.as_str())) {
        return Err(unknown());
    }
    let is_allowing = match statement.get("Effect").and_then(Value::as_str) {
        Some("Allow") => true,
        Some("Deny") => false,
        _ => return Err(malformed("Invalid effect")),
    };
    let (principals, is_negated) = one_of(statement, "Principal", "NotPrincipal")?;
    if is_negated && is_allowing {
        return Err(malformed("NotPrincipal is for statements that deny"));
    }
    let principals = Principals { is_negated, names: decode_principals(principals)? };
    let (actions, is_negated) = one_of(statement, "Action", "NotAction")?;
    let patterns: Vec<String> = texts(actions)?.into_iter().map(|action| action.to_ascii_lowercase()).collect();
    if patterns.iter().any(|action| action != "*" && !action.starts_with("s3:")) {
        return Err(malformed("Policy has invalid action"));
    }
    let actions = Patterns { is_negated, patterns: patterns.into_iter().map(Pattern::plain).collect() };
    let (resources, is_negated) = one_of(statement, "Resource", "NotResource")?;
    let resource = |text: String| match text.as_str() {
        "*" => Ok(Pattern::plain(text)),
        arn => {
            let name = arn.strip_prefix("arn:aws:s3:").and_then(|rest| rest.splitn(3, ':').nth(2));
            let name = name.filter(|name| !name.is_empty()).ok_or(malformed("Policy has invalid resource"))?;
            Pattern::decode(name.to_owned(), knows_variables)
        }
    };
    let patterns = texts(resources)?.into_iter().map(resource).collect::<Result<_, _>>()?;
    let resources = Patterns { is_negated, patterns };
    let conditions = statement
        .get("Condition")
        .map(|value| decode_conditions(value, knows_variables))
        .transpose()?
        .unwrap_or_default();
    Ok(Statement { is_allowing, principals, actions, resources, conditions })
}

/// Whether an object of a text of JSON has a name twice. Of two of one name the reader keeps the last one.
pub(super) fn has_name_twice(json: &[u8], read: &Value) -> bool {
    members_in(json) != members_of(read)
}

/// Members of all objects in a text of JSON: each has one colon outside of texts.
fn members_in(json: &[u8]) -> usize {
    let (mut members, mut is_text, mut is_escaped) = (0, false, false);
    for byte in json {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            b':' if !is_text => members += 1,
            _ => {}
        }
    }
    members
}

/// Members of all objects that were read. Of two of one name the reader keeps the last one.
fn members_of(value: &Value) -> usize {
    match value {
        Value::Object(members) => members.values().map(|value| 1 + members_of(value)).sum(),
        Value::Array(values) => values.iter().map(members_of).sum(),
        _ => 0,
    }
}

/// One of two elements, of which a statement has exactly one.
fn one_of<'a>(statement: &'a Map<String, Value>, name: &str, negated: &str) -> Result<(&'a Value, bool), S3Error> {
    match (statement.get(name), statement.get(negated)) {
        (Some(value), None) => Ok((value, false)),
        (None, Some(value)) => Ok((value, true)),
        _ => Err(malformed("A statement needs a principal, an action and a resource, each once")),
    }
}

/// A text or a list of texts; one at least.
fn texts(value: &Value) -> Result<Vec<String>, S3Error> {
    let text = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Bool(flag) => Ok(flag.to_string()),
        Value::Number(number) => Ok(number.to_string()),
        _ => Err(malformed("A text or a list of texts is expected")),
    };
    let all = match value {
        Value::Array(all) => all.iter().map(text).collect::<Result<Vec<_>, _>>()?,
        one => vec![text(one)?],
    };
    if all.is_empty() || all.len() > PATTERNS_MAX {
        return Err(malformed("A list has 1 to 512 texts"));
    }
    Ok(all)
}

fn decode_principals(value: &Value) -> Result<Vec<String>, S3Error> {
    match value {
        Value::String(text) if text == "*" => Ok(vec![text.clone()]),
        Value::Object(kinds) if !kinds.is_empty() => {
            let mut names = Vec::new();
            for (kind, value) in kinds {
                match kind.as_str() {
                    "AWS" | "CanonicalUser" => names.extend(texts(value)?),
                    _ => return Err(unknown()),
                }
            }
            Ok(names)
        }
        _ => Err(malformed("Invalid principal in policy")),
    }
}

fn decode_conditions(value: &Value, knows_variables: bool) -> Result<Vec<Condition>, S3Error> {
    let operators = value.as_object().ok_or(malformed("A condition is an object"))?;
    let mut conditions = Vec::new();
    for (operator, keys) in operators {
        let keys = keys.as_object().ok_or(malformed("An operator of a condition has an object"))?;
        for (key, values) in keys {
            conditions.push(decode_condition((operator, key), texts(values)?, knows_variables)?);
        }
    }
    if conditions.len() > PATTERNS_MAX { Err(malformed("A statement has too many conditions")) } else { Ok(conditions) }
}

fn decode_condition(
    (operator, key): (&str, &str),
    values: Vec<String>,
    knows_variables: bool,
) -> Result<Condition, S3Error> {
    let (set, operator) = match operator.split_once(':') {
        Some(("ForAnyValue", operator)) => (Set::Any, operator),
        Some(("ForAllValues", operator)) => (Set::All, operator),
        Some(_) => return Err(unknown()),
        None => (Set::One, operator),
    };
    let (operator, is_if_exists) = match operator.strip_suffix("IfExists") {
        Some(operator) => (operator, true),
        None => (operator, false),
    };
    let (comparison, is_negated) = match operator {
        "StringEquals" | "ArnEquals" => (Comparison::Equal, false),
        "StringNotEquals" | "ArnNotEquals" => (Comparison::Equal, true),
        "StringEqualsIgnoreCase" => (Comparison::EqualIgnoreCase, false),
        "StringNotEqualsIgnoreCase" => (Comparison::EqualIgnoreCase, true),
        "StringLike" | "ArnLike" => (Comparison::Like, false),
        "StringNotLike" | "ArnNotLike" => (Comparison::Like, true),
        "IpAddress" => (Comparison::Address, false),
        "NotIpAddress" => (Comparison::Address, true),
        "Bool" => (Comparison::Bool, false),
        "NumericEquals" => (Comparison::NumberEqual, false),
        "NumericNotEquals" => (Comparison::NumberEqual, true),
        "NumericLessThan" => (Comparison::NumberLess, false),
        "NumericLessThanEquals" => (Comparison::NumberLessOrEqual, false),
        "NumericGreaterThan" => (Comparison::NumberGreater, false),
        "NumericGreaterThanEquals" => (Comparison::NumberGreaterOrEqual, false),
        "Null" if !is_if_exists => (Comparison::Missing, false),
        _ => return Err(unknown()),
    };
    let known = KEYS.iter().find(|known| match known.strip_suffix('/') {
        Some(prefix) => {
            key.split_once('/').is_some_and(|(head, name)| head.eq_ignore_ascii_case(prefix) && !name.is_empty())
        }
        None => key.eq_ignore_ascii_case(known),
    });
    let known = known.ok_or_else(unknown)?;
    // Keys are the same in any case of their letters, but for the name of a tag.
    let name = if known.ends_with('/') { key.split_once('/').map_or("", |(_, name)| name) } else { "" };
    if comparison == Comparison::Address && values.iter().any(|value| decode_network(value).is_none()) {
        return Err(malformed("A network of a condition is none"));
    }
    let is_text = matches!(comparison, Comparison::Equal | Comparison::EqualIgnoreCase | Comparison::Like);
    let is_key = *known == format!("s3:{KMS_KEY}");
    let value_of = |value: String| if is_key { short_name(&value).to_owned() } else { value };
    let pattern = |value: String| match value.contains("${") && !is_text {
        true => Err(malformed("Policy variables stand in resources and in conditions about texts")),
        false => Pattern::decode(value, knows_variables),
    };
    let values = values.into_iter().map(value_of).map(pattern).collect::<Result<_, _>>()?;
    Ok(Condition { comparison, is_negated, set, is_if_exists, key: format!("{known}{name}"), values })
}

#[cfg(test)]
mod tests;
