//! What the servers of `ashlar up` inherit of its environment.
//!
//! A variable reaches them if it means the same at each of them. What differs from server to server (ports, directories, addresses) comes
//! from the options of `up`: a variable for it would give all servers the same. Such variables are told, so that nobody waits for
//! an effect that does not come.

use std::collections::BTreeMap;

use super::keys::{self, KEYS, Key};
use super::{Problem, SECRET_VARIABLES, Source, take_text, unknown_variable};

/// Keys whose variables are passed on.
const PASSED_ON: [&str; 7] =
    ["join_timeout_s", "kv_password_file", "lifecycle_day_s", "log", "log_format", "member_timeout_ms", "voters_max"];

/// Variables beside those of keys that a server would use, and the servers of `up` do not get.
const KEPT_BACK: [&str; 2] = ["ASHLAR_CONFIG", "ASHLAR_SECRET"];

/// The variables of `ashlar up` that are about servers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Inherited {
    /// Names and values of those that each server gets.
    pub variables: Vec<(String, String)>,
    /// Names of those that no server gets.
    pub unused: Vec<String>,
}

impl Inherited {
    /// Sorts an environment.
    ///
    /// # Errors
    /// Every wrong value of a variable that is passed on, and every name that is nearly one of ours; a retry fails in the same way.
    pub fn of(environment: &[(String, String)]) -> Result<Self, Vec<Problem>> {
        let (mut inherited, mut problems) = (Self::default(), Vec::new());
        let sorted: BTreeMap<&String, &String> = environment.iter().map(|(name, text)| (name, text)).collect();
        for (name, text) in sorted.into_iter().filter(|(name, _)| name.starts_with("ASHLAR_")) {
            match KEYS.iter().find(|key| key.environment() == *name) {
                Some(key) if PASSED_ON.contains(&key.name) => {
                    take_text(key, text, Source::Environment(name.clone()), &mut BTreeMap::new(), &mut problems);
                    inherited.variables.push((name.clone(), text.clone()));
                }
                Some(_) => inherited.unused.push(name.clone()),
                None if KEPT_BACK.contains(&name.as_str()) => inherited.unused.push(name.clone()),
                None if SECRET_VARIABLES.iter().any(|(known, _)| known == name) => {}
                None => problems.extend(unknown_variable(name)),
            }
        }
        if problems.is_empty() { Ok(inherited) } else { Err(problems) }
    }

    /// The value of a key, if it is passed on.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        let name = keys::find(key).map(Key::environment)?;
        self.variables.iter().find(|(known, _)| *known == name).map(|(_, text)| text.as_str())
    }

    /// What a person is told of variables that no server gets; nothing if there are none.
    #[must_use]
    pub fn remark(&self) -> Option<String> {
        let names = self.unused.join(", ");
        let remark = format!(
            "the servers of `ashlar up` do not get {names}\n  what to do: give options of `ashlar up` instead (`ashlar up --help`), \
             or start each server with `ashlar server`"
        );
        (!self.unused.is_empty()).then_some(remark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inherited(pairs: &[(&str, &str)]) -> Result<Inherited, Vec<String>> {
        let environment: Vec<_> = pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        Inherited::of(&environment).map_err(|problems| problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn what_means_the_same_everywhere_is_passed_on_and_the_rest_is_told() {
        assert!(PASSED_ON.iter().all(|name| keys::find(name).is_some()));
        let of = |pairs| inherited(pairs).expect("right");
        let some = of(&[("ASHLAR_WORKERS", "2"), ("ASHLAR_VOTERS_MAX", "3"), ("ASHLAR_DATA", "d"), ("HOME", "h")]);
        assert_eq!(some.variables, [("ASHLAR_VOTERS_MAX".to_owned(), "3".to_owned())]);
        assert_eq!((some.get("voters_max"), some.get("log")), (Some("3"), None));
        let remark = some.remark().expect("two are not used");
        assert!(remark.contains("do not get ASHLAR_DATA, ASHLAR_WORKERS\n"), "{remark}");
        let secrets = of(&[("ASHLAR_SECRET", "s"), ("ASHLAR_CONFIG", "c"), ("ASHLAR_KV_PASSWORD", "p")]);
        assert_eq!((secrets.variables.len(), secrets.unused.join(" ")), (0, "ASHLAR_CONFIG ASHLAR_SECRET".to_owned()));
        // Those of other commands, and of others' programs.
        let others =
            of(&[("ASHLAR_ADMIN_TOKEN", "t"), ("ASHLAR_SERVICE_HOST", "h"), ("ASHLAR_ERASURE_KERNEL", "avx2")]);
        assert_eq!((others.remark(), others), (None, Inherited::default()));
    }

    #[test]
    fn slips_are_refused_as_a_server_refuses_them() {
        let wrong = inherited(&[("ASHLAR_VOTERS_MAX", "many"), ("ASHLAR_VOTER_MAX", "3"), ("ASHLAR_WORKERS", "many")]);
        let [value, slip] = wrong.expect_err("two are wrong").try_into().expect("and the third one is not used");
        assert_eq!(slip, "environment variable ASHLAR_VOTER_MAX: unknown; did you mean ASHLAR_VOTERS_MAX?");
        assert!(value.starts_with("environment variable ASHLAR_VOTERS_MAX: `many` is not what is expected"), "{value}");
    }
}
