use super::*;

fn policy(statements: &str) -> Policy {
    Policy::decode(format!("{{\"Version\":\"2012-10-17\",\"Statement\":[{statements}]}}").as_bytes()).expect("a policy")
}

fn statement(effect: &str, principal: &str, action: &str, resource: &str, condition: &str) -> String {
    let condition = if condition.is_empty() { String::new() } else { format!(",\"Condition\":{condition}") };
    format!(
        "{{\"Effect\":\"{effect}\",\"Principal\":{principal},\"Action\":{action},\"Resource\":{resource}{condition}}}"
    )
}

fn judge_with(policy: &Policy, who: &str, action: &str, resource: &str, values: &[(&str, &str)]) -> PolicyVerdict {
    let principal = if who.is_empty() { Principal::Anonymous } else { Principal::User(who, "name") };
    let values = |key: &str| {
        let found = values.iter().filter(|(known, _)| *known == key);
        found.map(|(_, value)| (*value).to_owned()).collect::<Vec<_>>()
    };
    policy.judge(&PolicyRequest { principal, action, resource, values: &values })
}

fn judge(policy: &Policy, who: &str, action: &str, resource: &str) -> PolicyVerdict {
    judge_with(policy, who, action, resource, &[])
}

const EVERY: &str = "\"arn:aws:s3:::b/*\"";

#[test]
fn a_denial_outweighs_and_what_is_not_named_is_not_meant() {
    let one = policy(
        &[
            statement("Allow", "\"*\"", "\"s3:Get*\"", EVERY, ""),
            statement(
                "Deny",
                "{\"AWS\":\"arn:aws:iam:::user/eve\"}",
                "\"s3:GetObject\"",
                "\"arn:aws:s3:::b/secret?\"",
                "",
            ),
            statement("Allow", "{\"AWS\":[\"bob\",\"arn:aws:iam::ann:root\"]}", "[\"s3:PutObject\"]", EVERY, ""),
        ]
        .join(","),
    );
    use PolicyVerdict::{Allow, Deny, Silent};
    let table = [
        ("", "s3:GetObject", "b/secret1", Allow),
        ("eve", "s3:GetObject", "b/secret1", Deny),
        ("eve", "s3:GetObject", "b/secret", Allow),
        ("eve", "s3:GetObjectAcl", "b/secret1", Allow),
        ("eve", "s3:PutObject", "b/x", Silent),
        ("bob", "s3:PutObject", "b/x", Allow),
        ("ann", "s3:PutObject", "b/x/y", Allow),
        ("", "s3:PutObject", "b/x", Silent),
        ("", "s3:GetObject", "b", Silent),
        ("", "s3:GetObject", "bb/x", Silent),
        ("", "S3:GETOBJECT", "b/x", Allow),
        ("bob", "s3:GetObject", "b/secret1", Allow),
    ];
    for (who, action, resource, verdict) in table {
        assert_eq!(judge(&one, who, action, resource), verdict, "{who} {action} {resource}");
    }
    // Users are meant by their name as by their id, and an account by its id.
    for (principal, expected) in [
        ("arn:aws:iam:::user/eve", true),
        ("arn:aws:iam::1:user/team/eve", true),
        ("arn:aws:iam:::user/name", true),
        ("arn:aws:iam:::user/eve/x", false),
        ("arn:aws:iam::eve:root", true),
        ("arn:aws:iam::name:root", false),
        ("eve", true),
        ("ev", false),
    ] {
        let one = policy(&statement("Allow", &format!("{{\"AWS\":\"{principal}\"}}"), "\"s3:*\"", EVERY, ""));
        assert_eq!(judge(&one, "eve", "s3:GetObject", "b/x") == Allow, expected, "{principal}");
        assert_eq!(judge(&one, "", "s3:GetObject", "b/x"), Silent, "{principal}");
    }
    let not = policy(
        "{\"Effect\":\"Deny\",\"NotPrincipal\":{\"AWS\":\"bob\"},\"NotAction\":\"s3:GetObject\",\"NotResource\":\"arn:aws:s3:::b/a*\"}",
    );
    assert_eq!(judge(&not, "eve", "s3:PutObject", "b/b"), Deny);
    assert_eq!(judge(&not, "bob", "s3:PutObject", "b/b"), Silent);
    assert_eq!(judge(&not, "eve", "s3:GetObject", "b/b"), Silent);
    assert_eq!(judge(&not, "eve", "s3:PutObject", "b/a"), Silent);
}

#[test]
fn conditions() {
    let holds = |condition: &str, values: &[(&str, &str)]| {
        let one = policy(&statement("Allow", "\"*\"", "\"s3:*\"", "\"*\"", condition));
        judge_with(&one, "", "s3:ListBucket", "b", values) == PolicyVerdict::Allow
    };
    let prefix = "{\"StringEquals\":{\"s3:prefix\":[\"a\",\"b\"]}}";
    assert!(holds(prefix, &[("s3:prefix", "b")]) && !holds(prefix, &[("s3:prefix", "c")]) && !holds(prefix, &[]));
    assert!(holds("{\"StringNotEquals\":{\"S3:Prefix\":\"a\"}}", &[]));
    assert!(!holds("{\"StringNotEquals\":{\"s3:prefix\":\"a\"}}", &[("s3:prefix", "a")]));
    assert!(holds("{\"StringLike\":{\"s3:prefix\":\"a*\"}}", &[("s3:prefix", "ab")]));
    assert!(!holds("{\"StringLikeIfExists\":{\"s3:prefix\":\"a*\"}}", &[("s3:prefix", "b")]));
    assert!(holds("{\"StringLikeIfExists\":{\"s3:prefix\":\"a*\"}}", &[]));
    assert!(holds("{\"StringEqualsIgnoreCase\":{\"aws:UserAgent\":\"AB\"}}", &[("aws:UserAgent", "aB")]));
    assert!(holds("{\"Null\":{\"s3:prefix\":\"true\"}}", &[]) && !holds("{\"Null\":{\"s3:prefix\":false}}", &[]));
    assert!(holds("{\"Bool\":{\"aws:SecureTransport\":true}}", &[("aws:SecureTransport", "true")]));
    let other = "{\"StringNotEqualsIgnoreCase\":{\"aws:UserAgent\":\"AB\"}}";
    assert!(!holds(other, &[("aws:UserAgent", "aB")]) && holds(other, &[("aws:UserAgent", "b")]));
    for (operator, expected) in [
        ("NumericEquals", [false, true, false]),
        ("NumericNotEquals", [true, false, true]),
        ("NumericLessThan", [true, false, false]),
        ("NumericLessThanEquals", [true, true, false]),
        ("NumericGreaterThan", [false, false, true]),
        ("NumericGreaterThanEquals", [false, true, true]),
    ] {
        let condition = format!("{{\"{operator}\":{{\"s3:max-keys\":10}}}}");
        let found = ["9", "10", "11"].map(|keys| holds(&condition, &[("s3:max-keys", keys)]));
        assert_eq!(found, expected, "{operator}");
        let is_negated = operator == "NumericNotEquals";
        assert_eq!(holds(&condition, &[("s3:max-keys", "x")]), is_negated, "what is no number is equal to none");
    }
    let tag = "{\"StringEquals\":{\"s3:ExistingObjectTag/Team\":\"a\"}}";
    assert!(holds(tag, &[("s3:ExistingObjectTag/Team", "a")]) && !holds(tag, &[("s3:ExistingObjectTag/team", "a")]));
    let all = "{\"ForAllValues:StringEquals\":{\"s3:RequestObjectTagKeys\":[\"a\",\"b\"]}}";
    let found = [("s3:RequestObjectTagKeys", "a"), ("s3:RequestObjectTagKeys", "c")];
    assert!(holds(all, &found[..1]) && !holds(all, &found) && holds(all, &[]));
    assert!(holds(&all.replace("ForAllValues", "ForAnyValue"), &found));
    for (network, address, expected) in [
        ("10.0.0.0/8", "10.1.2.3", true),
        ("10.0.0.0/8", "11.0.0.1", false),
        ("10.0.0.0/8", "::ffff:10.0.0.1", true),
        ("10.0.0.1", "10.0.0.1", true),
        ("0.0.0.0/0", "1.2.3.4", true),
        ("2001:db8::/32", "2001:db8::1", true),
        ("2001:db8::/32", "10.0.0.1", false),
    ] {
        let condition = format!("{{\"IpAddress\":{{\"aws:SourceIp\":\"{network}\"}}}}");
        assert_eq!(holds(&condition, &[("aws:SourceIp", address)]), expected, "{network} {address}");
        let condition = condition.replace("IpAddress", "NotIpAddress");
        assert_eq!(holds(&condition, &[("aws:SourceIp", address)]), !expected, "not {network} {address}");
    }
}

#[test]
fn what_is_no_policy_or_not_known_is_refused() {
    let code = |text: &str| Policy::decode(text.as_bytes()).map_err(|error| error.code);
    let of = |statement: &str| code(&format!("{{\"Statement\":{statement}}}"));
    let good = statement("Allow", "\"*\"", "\"s3:*\"", "\"*\"", "");
    assert!(of(&good).is_ok() && of(&format!("[{good}]")).is_ok());
    for wrong in ["", "[]", "{}", "x", "{\"Statement\":[]}", "{\"Version\":\"2020-01-01\",\"Statement\":[]}"] {
        assert_eq!(code(wrong), Err(Code::MalformedPolicy), "{wrong}");
    }
    let twice = format!("{{\"Statement\":{good},\"Id\":\"a:\\\":\",\"Statement\":{good}}}");
    assert_eq!(code(&twice), Err(Code::MalformedPolicy), "the first one would be passed over");
    assert!(code(&twice.replacen("Statement", "Version", 1).replacen(&good, "\"2012-10-17\"", 1)).is_ok());
    let malformed = [
        good.replace("Allow", "allow"),
        good.replace("\"Principal\":\"*\",", ""),
        good.replace("s3:*", "ec2:*"),
        good.replace("\"Resource\":\"*\"", "\"Resource\":\"b\""),
        good.replace("\"Resource\":\"*\"", "\"Resource\":[]"),
        good.replace("\"Principal\"", "\"NotPrincipal\""),
        good.replace("\"Principal\":\"*\"", "\"Principal\":{}"),
        good.replace("\"Principal\":\"*\"", "\"Principal\":\"bob\""),
        statement("Allow", "\"*\"", "\"s3:*\"", "\"*\"", "{\"IpAddress\":{\"aws:SourceIp\":\"10.0.0.0/33\"}}"),
    ];
    for wrong in malformed {
        assert_eq!(of(&wrong), Err(Code::MalformedPolicy), "{wrong}");
    }
    let with = |condition: &str| statement("Allow", "\"*\"", "\"s3:*\"", "\"*\"", condition);
    for unknown in [
        with("{\"StringFits\":{\"s3:prefix\":\"a\"}}"),
        with("{\"StringEquals\":{\"s3:unknown\":\"a\"}}"),
        with("{\"StringEquals\":{\"s3:ExistingObjectTag/\":\"a\"}}"),
        with("{\"StringEquals\":{\"s3:OtherTag/a\":\"a\"}}"),
        with("{\"NullIfExists\":{\"s3:prefix\":\"true\"}}"),
        good.replace("{\"Effect", "{\"Else\":1,\"Effect"),
        good.replace("\"*\",\"Action", "{\"Service\":\"a\"},\"Action"),
    ] {
        assert_eq!(of(&unknown), Err(Code::NotImplemented), "{unknown}");
    }
    let many = |count: usize| of(&format!("[{}]", vec![good.as_str(); count].join(",")));
    assert!(many(STATEMENTS_MAX).is_ok());
    assert_eq!(many(STATEMENTS_MAX + 1), Err(Code::MalformedPolicy));
    let long = |len: usize| {
        let rest = format!("{{\"Id\":\"\",\"Statement\":{good}}}").len();
        code(&format!("{{\"Id\":\"{}\",\"Statement\":{good}}}", "x".repeat(len - rest)))
    };
    let actions = |count: usize| {
        let all = vec!["\"s3:*\""; count].join(",");
        of(&good.replace("\"s3:*\"", &format!("[{all}]")))
    };
    assert!(actions(PATTERNS_MAX).is_ok());
    assert_eq!(actions(PATTERNS_MAX + 1), Err(Code::MalformedPolicy));
    let conditions = |count: usize| {
        let all = (0..count).map(|tag| format!("\"s3:RequestObjectTag/{tag}\":\"\"")).collect::<Vec<_>>().join(",");
        of(&with(&format!("{{\"StringEquals\":{{{all}}}}}")))
    };
    assert!(conditions(PATTERNS_MAX).is_ok());
    assert_eq!(conditions(PATTERNS_MAX + 1), Err(Code::MalformedPolicy));
    assert!(long(POLICY_BYTES_MAX).is_ok());
    assert_eq!(long(POLICY_BYTES_MAX + 1), Err(Code::MalformedPolicy));
}

#[test]
fn which_policies_are_public() {
    let is = |text: String| policy(&text).is_public();
    assert!(is(statement("Allow", "\"*\"", "\"s3:*\"", "\"*\"", "")));
    assert!(is(statement("Allow", "{\"AWS\":\"*\"}", "\"s3:*\"", "\"*\"", "{\"StringLike\":{\"s3:prefix\":\"a\"}}")));
    assert!(!is(statement("Allow", "{\"AWS\":\"bob\"}", "\"s3:*\"", "\"*\"", "")));
    assert!(!is(statement("Deny", "\"*\"", "\"s3:*\"", "\"*\"", "")));
    let from = |network: &str| format!("{{\"IpAddress\":{{\"aws:SourceIp\":\"{network}\"}}}}");
    assert!(!is(statement("Allow", "\"*\"", "\"s3:*\"", "\"*\"", &from("10.0.0.0/8"))));
    assert!(is(statement("Allow", "\"*\"", "\"s3:*\"", "\"*\"", &from("0.0.0.0/0"))));
    // Only what somebody is called, or a network that is not half of the world, limits a policy.
    let with = |condition: &str| is(statement("Allow", "\"*\"", "\"s3:GetObject\"", "\"*\"", condition));
    for limited in [
        r#"{"StringEquals":{"aws:userid":["bob","ann"]}}"#,
        r#"{"StringLike":{"aws:username":"bob"}}"#,
        r#"{"IpAddress":{"aws:SourceIp":["127.0.0.0/8","10.1.2.3","2001:db8::/32"]}}"#,
        r#"{"Null":{"aws:userid":"true"},"StringEquals":{"aws:username":"bob"}}"#,
    ] {
        assert!(!with(limited), "{limited}");
    }
    for public in [
        r#"{"Null":{"aws:userid":"true"}}"#,
        r#"{"Null":{"aws:SourceIp":"false"}}"#,
        r#"{"ForAllValues:StringEquals":{"aws:userid":["bob"]}}"#,
        r#"{"ForAllValues:StringLike":{"aws:username":"zz"}}"#,
        r#"{"StringLike":{"aws:username":"?*"}}"#,
        r#"{"StringNotLike":{"aws:username":"bob"}}"#,
        r#"{"StringEqualsIfExists":{"aws:username":"bob"}}"#,
        r#"{"NotIpAddress":{"aws:SourceIp":"10.0.0.0/8"}}"#,
        r#"{"IpAddress":{"aws:SourceIp":["0.0.0.0/1","128.0.0.0/1"]}}"#,
        r#"{"IpAddress":{"aws:SourceIp":["127.0.0.0/8","::/1"]}}"#,
        r#"{"IpAddress":{"aws:SourceIp":"126.0.0.0/7"}}"#,
    ] {
        assert!(with(public), "{public}");
    }
}

#[test]
fn likeness() {
    let slow = |pattern: &str, text: &str| -> bool {
        fn like(pattern: &[char], text: &[char]) -> bool {
            match (pattern.split_first(), text.split_first()) {
                (None, None) => true,
                (Some(('*', rest)), _) => {
                    like(rest, text) || text.split_first().is_some_and(|(_, text)| like(pattern, text))
                }
                (Some((wanted, rest)), Some((char, text))) if *wanted == '?' || wanted == char => like(rest, text),
                _ => false,
            }
        }
        like(&pattern.chars().collect::<Vec<_>>(), &text.chars().collect::<Vec<_>>())
    };
    arbtest::arbtest(|u| {
        let mut text = |max: u8| -> arbitrary_text::Result {
            let len = u.int_in_range(0..=max)?;
            (0..len).map(|_| u.choose(&['a', 'b', 'ä', '*', '?']).copied()).collect()
        };
        let (pattern, text) = (text(6)?, text(8)?);
        assert_eq!(is_like(&pattern, &text), slow(&pattern, &text), "{pattern} {text}");
        Ok(())
    });
    let long = "a".repeat(2_000);
    assert!(!is_like(&"a*".repeat(500), &format!("{}b", &long[..100])));
}

mod arbitrary_text {
    pub(super) type Result = arbtest::arbitrary::Result<String>;
}

#[test]
fn a_policy_of_a_user_has_no_principals() {
    let text = r#"{"Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::docs/*"}]}"#;
    let policy = Policy::decode_of_user(text.as_bytes()).unwrap();
    policy.check_of_user().unwrap();
    let request = |resource| PolicyRequest {
        principal: Principal::User("ann", "Ann"),
        action: "s3:GetObject",
        resource,
        values: &|_| Vec::new(),
    };
    assert_eq!(policy.judge(&request("docs/a")), PolicyVerdict::Allow);
    assert_eq!(policy.judge(&request("other/a")), PolicyVerdict::Silent);
    for principal in [r#""Principal": "*","#, r#""NotPrincipal": {"AWS": "ann"},"#] {
        let with = text.replace(r#""Action""#, &format!(r#"{principal} "Action""#));
        assert_eq!(Policy::decode_of_user(with.as_bytes()).unwrap_err().code, Code::MalformedPolicy);
    }
    assert_eq!(Policy::decode(text.as_bytes()).unwrap_err().code, Code::MalformedPolicy, "one of a bucket has some");
    let wrong = text.replace("s3:GetObject", "s3:GetObjekt");
    let checked = Policy::decode_of_user(wrong.as_bytes()).unwrap().check_of_user();
    assert_eq!(checked.unwrap_err().code, Code::MalformedPolicy);
}

#[test]
fn what_has_to_be_known_for_a_condition() {
    let with = |condition: &str| policy(&statement("Allow", "\"*\"", "\"s3:*\"", EVERY, condition));
    // The tags of the object that is there, what was said when an upload was begun, the tags that a body sets.
    for (key, expected) in [
        ("s3:ExistingObjectTag/a", [true, false, false]),
        ("s3:RequestObjectTag/a", [false, true, true]),
        ("s3:RequestObjectTagKeys", [false, true, true]),
        ("s3:x-amz-server-side-encryption", [false, true, false]),
        ("s3:x-amz-acl", [false; 3]),
        ("s3:prefix", [false; 3]),
    ] {
        let one = with(&format!("{{\"StringEquals\":{{\"{key}\":\"b\"}}}}"));
        assert_eq!([one.needs_tags(), one.needs_upload(), one.needs_new_tags()], expected, "{key}");
    }
    let one = with("");
    assert_eq!([one.needs_tags(), one.needs_upload(), one.needs_new_tags()], [false; 3]);
}

#[test]
fn policies_are_as_long_as_the_documentation_says() {
    assert_eq!((POLICY_BYTES_MAX, USER_POLICY_BYTES_MAX), (20_480, 4_096));
}

#[test]
fn variables_stand_for_values_of_the_request() {
    use PolicyVerdict::{Allow, Deny, Silent};
    let home = "\"arn:aws:s3:::b/home/${aws:username}/*\"";
    let own = policy(&statement("Allow", "\"*\"", "\"s3:*\"", home, ""));
    let ann: &[(&str, &str)] = &[("aws:username", "ann")];
    assert_eq!(judge_with(&own, "ann", "s3:PutObject", "b/home/ann/x", ann), Allow);
    assert_eq!(judge_with(&own, "ann", "s3:PutObject", "b/home/bob/x", ann), Silent);
    assert_eq!(judge(&own, "", "s3:PutObject", "b/home//x"), Silent, "nobody has no home");
    let prefix = |operator: &str| format!("{{\"{operator}\":{{\"s3:prefix\":[\"home/${{aws:username}}/*\"]}}}}");
    let list = |effect: &str, operator: &str| {
        policy(&statement(effect, "\"*\"", "\"s3:ListBucket\"", "\"arn:aws:s3:::b\"", &prefix(operator)))
    };
    let at = |prefix: &'static str| [("aws:username", "ann"), ("s3:prefix", prefix)];
    let asked = |policy: &Policy, values: &[(&str, &str)]| judge_with(policy, "ann", "s3:ListBucket", "b", values);
    assert_eq!(asked(&list("Allow", "StringLike"), &at("home/ann/a")), Allow);
    assert_eq!(asked(&list("Allow", "StringLike"), &at("home/bob/a")), Silent);
    assert_eq!(asked(&list("Allow", "StringEquals"), &at("home/ann/*")), Allow, "a star is a star there");
    // Without a value nothing is granted, whatever way round it is said; a denial with a negation denies.
    let unnamed = [("s3:prefix", "home/ann/a")];
    assert_eq!(asked(&list("Allow", "StringNotLike"), &at("home/bob/a")), Allow);
    assert_eq!(asked(&list("Allow", "StringNotLike"), &unnamed), Silent);
    assert_eq!(asked(&list("Deny", "StringNotLike"), &unnamed), Deny);
    let others = policy(&statement("Allow", "\"*\"", "\"s3:*\"", home, "").replace("Resource", "NotResource"));
    assert_eq!(judge_with(&others, "ann", "s3:PutObject", "b/x", ann), Allow);
    assert_eq!(judge(&others, "", "s3:PutObject", "b/x"), Silent);
    // It names everybody, and so does a condition that compares a request with itself.
    assert!(own.is_public());
    let itself = "{\"StringEquals\":{\"aws:username\":\"${aws:username}\"}}";
    assert!(policy(&statement("Allow", "\"*\"", "\"s3:*\"", EVERY, itself)).is_public());
    assert!(
        !policy(&statement("Allow", "\"*\"", "\"s3:*\"", EVERY, &itself.replace("${aws:username}", "ann"))).is_public()
    );
    let number = "{\"NumericEquals\":{\"s3:max-keys\":\"${s3:max-keys}\"}}";
    let text = format!(
        "{{\"Version\":\"2012-10-17\",\"Statement\":{}}}",
        statement("Allow", "\"*\"", "\"s3:*\"", EVERY, number)
    );
    assert_eq!(Policy::decode(text.as_bytes()).map_err(|error| error.code), Err(Code::MalformedPolicy));
}
