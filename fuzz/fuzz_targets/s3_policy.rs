//! Bucket policies: any bytes are read within the limits or refused; a statement that denies everything outweighs every policy,
//! and one that allows everything changes no denial.
#![no_main]

use ashlar_object::s3::policy::{POLICY_BYTES_MAX, Policy, PolicyRequest, PolicyVerdict, Principal, is_like};
use libfuzzer_sys::fuzz_target;

/// The policy with one more statement in front of its own; nothing if its text has another form than most.
fn with(text: &str, effect: &str) -> Option<Policy> {
    let more = format!("{{\"Effect\":\"{effect}\",\"Principal\":\"*\",\"Action\":\"*\",\"Resource\":\"*\"}},");
    let at = text.find("\"Statement\":[")? + "\"Statement\":[".len();
    Policy::decode(format!("{}{more}{}", &text[..at], &text[at..]).as_bytes()).ok()
}

fn verdict(policy: &Policy, (user, action, resource, value): (&str, &str, &str, &str)) -> PolicyVerdict {
    let principal = if user.is_empty() { Principal::Anonymous } else { Principal::User(user, "name") };
    let values = |_: &str| if value.is_empty() { Vec::new() } else { vec![value.to_owned()] };
    policy.judge(&PolicyRequest { principal, action, resource, values: &values })
}

fuzz_target!(|input: (&str, &str, &str, &str, &str)| {
    let (text, user, action, resource, value) = input;
    assert!(is_like("*", resource));
    assert!(is_like(resource, resource));
    let Ok(policy) = Policy::decode(text.as_bytes()) else { return };
    assert!(text.len() <= POLICY_BYTES_MAX);
    let _ = (policy.is_public(), policy.needs_tags());
    let request = (user, action, resource, value);
    let judged = verdict(&policy, request);
    if let Some(denied) = with(text, "Deny") {
        assert_eq!(verdict(&denied, request), PolicyVerdict::Deny);
    }
    if let Some(allowed) = with(text, "Allow") {
        let expected = if judged == PolicyVerdict::Deny { PolicyVerdict::Deny } else { PolicyVerdict::Allow };
        assert_eq!(verdict(&allowed, request), expected);
    }
});
