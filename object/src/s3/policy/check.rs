//! What a policy is checked for when it is put, beyond its grammar: that each of its parts can be about something. One that could
//! not would be kept and passed over, and a statement that should deny would deny nothing.

use super::{Comparison, Condition, Pattern, Policy, S3Error, Statement, is_like, malformed};

/// S3's actions, in small letters and without `s3:`.
const ACTIONS: [&str; 91] = [
    "abortmultipartupload",
    "bypassgovernanceretention",
    "createbucket",
    "deletebucket",
    "deletebucketcors",
    "deletebucketownershipcontrols",
    "deletebucketpolicy",
    "deletebucketpublicaccessblock",
    "deletebucketreplication",
    "deletebuckettagging",
    "deletebucketwebsite",
    "deleteobject",
    "deleteobjecttagging",
    "deleteobjectversion",
    "deleteobjectversiontagging",
    "getaccelerateconfiguration",
    "getanalyticsconfiguration",
    "getbucketacl",
    "getbucketcors",
    "getbucketlocation",
    "getbucketlogging",
    "getbucketnotification",
    "getbucketobjectlockconfiguration",
    "getbucketownershipcontrols",
    "getbucketpolicy",
    "getbucketpolicystatus",
    "getbucketpublicaccessblock",
    "getbucketrequestpayment",
    "getbuckettagging",
    "getbucketversioning",
    "getbucketwebsite",
    "getencryptionconfiguration",
    "getintelligenttieringconfiguration",
    "getinventoryconfiguration",
    "getlifecycleconfiguration",
    "getmetricsconfiguration",
    "getobject",
    "getobjectacl",
    "getobjectattributes",
    "getobjectlegalhold",
    "getobjectretention",
    "getobjecttagging",
    "getobjecttorrent",
    "getobjectversion",
    "getobjectversionacl",
    "getobjectversionattributes",
    "getobjectversionforreplication",
    "getobjectversiontagging",
    "getobjectversiontorrent",
    "getreplicationconfiguration",
    "headbucket",
    "initiatereplication",
    "listallmybuckets",
    "listbucket",
    "listbucketmultipartuploads",
    "listbucketversions",
    "listmultipartuploadparts",
    "objectowneroverridetobucketowner",
    "pausereplication",
    "putaccelerateconfiguration",
    "putanalyticsconfiguration",
    "putbucketacl",
    "putbucketcors",
    "putbucketlogging",
    "putbucketnotification",
    "putbucketobjectlockconfiguration",
    "putbucketownershipcontrols",
    "putbucketpolicy",
    "putbucketpublicaccessblock",
    "putbucketrequestpayment",
    "putbuckettagging",
    "putbucketversioning",
    "putbucketwebsite",
    "putencryptionconfiguration",
    "putintelligenttieringconfiguration",
    "putinventoryconfiguration",
    "putlifecycleconfiguration",
    "putmetricsconfiguration",
    "putobject",
    "putobjectacl",
    "putobjectlegalhold",
    "putobjectretention",
    "putobjecttagging",
    "putobjectversionacl",
    "putobjectversiontagging",
    "putreplicationconfiguration",
    "replicatedelete",
    "replicateobject",
    "replicatetags",
    "restoreobject",
    "selectobjectcontent",
];

impl Policy {
    /// Checks that it can be the policy of this bucket.
    ///
    /// # Errors
    /// [`MalformedPolicy`](super::Code::MalformedPolicy): a part of it can be about nothing.
    pub fn check(&self, bucket: &str) -> Result<(), S3Error> {
        self.statements.iter().try_for_each(|statement| statement.check(Some(bucket)))
    }

    /// Checks that it can be the policy of a user, whose resources are of any bucket.
    ///
    /// # Errors
    /// As [`Policy::check`].
    pub fn check_of_user(&self) -> Result<(), S3Error> {
        self.statements.iter().try_for_each(|statement| statement.check(None))
    }
}

impl Statement {
    fn check(&self, bucket: Option<&str>) -> Result<(), S3Error> {
        let is_action = |pattern: &Pattern| {
            let name = pattern.text().strip_prefix("s3:").unwrap_or(pattern.text());
            ACTIONS.iter().any(|action| is_like(name, action))
        };
        if !self.actions.patterns.iter().all(is_action) {
            return Err(malformed("Policy has invalid action"));
        }
        // The name of a bucket has no slash.
        let is_here = |pattern: &Pattern| {
            bucket.is_none_or(|bucket| is_like(pattern.widest().split('/').next().unwrap_or_default(), bucket))
        };
        if !self.resources.patterns.iter().all(is_here) {
            return Err(malformed("Policy has invalid resource"));
        }
        if !self.principals.names.iter().all(|name| is_principal(name)) {
            return Err(malformed("Invalid principal in policy"));
        }
        self.conditions.iter().try_for_each(Condition::check)
    }
}

/// Whether a text can name a user: `*`, an id, or the ARN of a user. Elsewhere twelve digits are an account, and mean everybody in it:
/// taken for a user that there may be later, they would deny nothing to anybody.
fn is_principal(name: &str) -> bool {
    let is_account = |id: &str| id.len() == 12 && id.bytes().all(|byte| byte.is_ascii_digit());
    let is_name = |name: &str| !name.is_empty() && !name.contains(['*', '?', '$']);
    let is_id = |id: &str| is_name(id) && !is_account(id);
    match name.strip_prefix("arn:").map(|rest| rest.strip_prefix("aws:iam::").and_then(|rest| rest.split_once(':'))) {
        None => name == "*" || is_id(name),
        Some(Some((account, "root"))) => is_id(account),
        Some(Some((_, rest))) => rest.strip_prefix("user/").is_some_and(is_name),
        Some(None) => false,
    }
}

impl Condition {
    fn check(&self) -> Result<(), S3Error> {
        let is_good = |value: &Pattern| match self.comparison {
            Comparison::Bool | Comparison::Missing => {
                ["true", "false"].contains(&value.text().to_ascii_lowercase().as_str())
            }
            Comparison::NumberEqual
            | Comparison::NumberLess
            | Comparison::NumberLessOrEqual
            | Comparison::NumberGreater
            | Comparison::NumberGreaterOrEqual => value.text().parse::<i64>().is_ok(),
            Comparison::Equal | Comparison::EqualIgnoreCase | Comparison::Like | Comparison::Address => true,
        };
        if self.values.iter().all(is_good) { Ok(()) } else { Err(malformed("Policy has an invalid condition value")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::s3::error::Code;

    fn check(change: (&str, &str)) -> Result<(), Code> {
        let text = r#"{"Statement": [{"Effect": "Deny", "Principal": {"AWS": ["bob", "arn:aws:iam::1:user/eve"]},
            "Action": ["s3:GetObject*", "s3:PutObject"], "Resource": ["arn:aws:s3:::docs", "arn:aws:s3:::d*/x/*"],
            "Condition": {"Bool": {"aws:SecureTransport": "false"}, "NumericLessThan": {"s3:max-keys": "10"}}}]}"#;
        assert!(text.contains(change.0));
        let policy = Policy::decode(text.replace(change.0, change.1).as_bytes());
        policy.and_then(|policy| policy.check("docs")).map_err(|error| error.code)
    }

    #[test]
    fn every_part_can_be_about_something() {
        assert_eq!(check(("bob", "bob")), Ok(()));
        assert_eq!(check(("bob", "*")), Ok(()));
        assert_eq!(check((":user/eve", ":root")), Ok(()));
        assert_eq!(check((":user/eve", ":user/123456789012")), Ok(()));
        assert_eq!(check(("bob", "12345678901")), Ok(()));
        assert_eq!(check(("s3:PutObject", "s3:*")), Ok(()));
        for change in [
            ("s3:PutObject", "s3:PutObjekt"),
            ("s3:GetObject*", "s3:GetObjekt*"),
            ("s3:::docs", "s3:::other"),
            ("s3:::d*/x/*", "s3:::e*/x/*"),
            (":user/eve", ":role/eve"),
            (":user/eve", ":user/*"),
            ("bob", "123456789012"),
            ("1:user/eve", "123456789012:root"),
            (r#""false""#, r#""maybe""#),
            (r#""10""#, r#""ten""#),
        ] {
            assert_eq!(check(change), Err(Code::MalformedPolicy), "{change:?}");
        }
        for change in [("/x/*", "/${aws:username}/*"), ("bob", "${aws:username}"), (r#""10""#, r#""${s3:max-keys}""#)] {
            assert_eq!(check(change), Err(Code::MalformedPolicy), "without a version: {change:?}");
        }
        let version = r#"{"Version": "2012-10-17", "Statement""#;
        let text = |resource: &str| {
            let statement = r#"[{"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource""#;
            format!(r#"{version}: {statement}: "arn:aws:s3:::{resource}"}}]}}"#)
        };
        let check = |resource: &str| Policy::decode(text(resource).as_bytes()).and_then(|policy| policy.check("docs"));
        assert!(check("docs/${aws:username}/*").is_ok() && check("${aws:username}/x").is_ok());
        assert!(check("other/${aws:username}").is_err() && check("e${aws:username}/x").is_err());
    }
}
