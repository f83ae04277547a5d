//! Users of the object service and their keys: named records of the catalog, the same at every server.
//!
//! Written forms, version 1. A user is the record `object/user`, its id: version, what people are shown. A key is the record
//! `object/user-key`, the access key: version, length and text of the user's id, length and text of the secret key. The policy of a
//! user is the record `object/user-policy`, the user's id: version, its text.

use ashlar_catalog::change::Change;
use ashlar_catalog::error::RefusalKind;
use ashlar_catalog::raft::catalog::Error;
use ashlar_catalog::record::{Expected, NamedRecord, RecordKey};
use ashlar_grid::seam::Runtime;
use ashlar_object::s3::User;
use ashlar_object::s3::policy::{Policy, USER_POLICY_BYTES_MAX};

use super::keys::{RootKey, draw_key, take};
use super::service::ObjectNode;

const USERS: &str = "object/user";
const KEYS: &str = "object/user-key";
const POLICIES: &str = "object/user-policy";
const VERSION: u8 = 1;
/// Whose an object is that nobody has signed for: no user's.
const ANONYMOUS: &str = "anonymous";
/// Keys of all users.
pub const KEYS_MAX: usize = 10_000;

/// A key of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserKey {
    /// What a client is called, and with what it signs.
    pub key: RootKey,
    /// The id of the user.
    pub user: String,
}

/// Why a key was not made or deleted.
#[derive(Debug)]
pub enum UserKeyError {
    /// The caller's fault: no user may be called so, there are too many keys, or there is no such key.
    Refused(&'static str),
    /// The catalog has not answered. A retry is safe; a key that was made without an answer can be found in the list.
    Unavailable,
}

/// Why a policy of a user was not set.
#[derive(Debug)]
pub enum UserPolicyError {
    /// The caller's fault: there is no such user. Make a key for the user first.
    UnknownUser,
    /// The caller's fault: it is no policy of a user, for this reason.
    Refused(String),
    /// The catalog has not answered. A retry is safe.
    Unavailable,
}

/// Refuses what is no policy of a user.
fn check_policy(text: &str) -> Result<(), UserPolicyError> {
    if text.len() > USER_POLICY_BYTES_MAX {
        let what = format!("a policy of a user has {USER_POLICY_BYTES_MAX} bytes at most");
        return Err(UserPolicyError::Refused(what));
    }
    let checked = Policy::decode_of_user(text.as_bytes()).and_then(|policy| policy.check_of_user());
    checked.map_err(|error| UserPolicyError::Refused(error.to_string()))
}

fn encode_key(user: &str, secret_key: &str) -> Vec<u8> {
    let mut out = vec![VERSION];
    for text in [user, secret_key] {
        out.push(u8::try_from(text.len()).expect("ids and keys are short"));
        out.extend_from_slice(text.as_bytes());
    }
    out
}

fn decode_key(record: &NamedRecord) -> Option<UserKey> {
    let (version, rest) = record.value.split_first()?;
    let (user, rest) = take(rest)?;
    let (secret_key, rest) = take(rest)?;
    let key = RootKey { access_key: record.key.name.clone(), secret_key };
    (*version == VERSION && rest.is_empty()).then_some(UserKey { key, user })
}

fn encode_user(name: &str) -> Vec<u8> {
    [&[VERSION], name.as_bytes()].concat()
}

fn decode_user(record: &NamedRecord) -> Option<User> {
    let (version, name) = record.value.split_first()?;
    let name = core::str::from_utf8(name).ok()?.to_owned();
    (*version == VERSION).then(|| User { id: record.key.name.clone(), name, is_root: false })
}

fn encode_policy(text: &str) -> Vec<u8> {
    [&[VERSION], text.as_bytes()].concat()
}

/// What cannot be read is no policy that anybody has: it is kept as text that no policy is, and denies everything.
fn decode_policy(record: &NamedRecord) -> String {
    let text = record.value.split_first().filter(|(version, _)| **version == VERSION);
    text.and_then(|(_, text)| core::str::from_utf8(text).ok()).unwrap_or_default().to_owned()
}

fn record_key(space: &str, name: &str) -> RecordKey {
    RecordKey { space: space.into(), name: name.into() }
}

impl<R: Runtime> ObjectNode<R> {
    /// The key of that access key, if a user has it.
    #[must_use]
    pub fn user_key(&self, access_key: &str) -> Option<UserKey> {
        self.catalog().state_now()?.record(&record_key(KEYS, access_key)).and_then(decode_key)
    }

    /// The user of that id.
    #[must_use]
    pub fn user(&self, id: &str) -> Option<User> {
        self.catalog().state_now()?.record(&record_key(USERS, id)).and_then(decode_user)
    }

    /// The policy of a user; nothing if the user has none.
    #[must_use]
    pub fn user_policy(&self, id: &str) -> Option<String> {
        self.catalog().state_now()?.record(&record_key(POLICIES, id)).map(decode_policy)
    }

    /// Gives a user a policy in the place of the one before, or takes it away. It counts at every server as soon as that server's copy
    /// of the catalog has it.
    ///
    /// # Errors
    /// See [`UserPolicyError`].
    pub async fn set_user_policy(&self, id: &str, policy: Option<&str>) -> Result<(), UserPolicyError> {
        let state = self.catalog().state().await.map_err(|_| UserPolicyError::Unavailable)?;
        if state.record(&record_key(USERS, id)).is_none() {
            return Err(UserPolicyError::UnknownUser);
        }
        let key = record_key(POLICIES, id);
        let change = match policy {
            Some(text) => {
                check_policy(text)?;
                Change::PutRecord { key, expected: Expected::Anything, value: encode_policy(text) }
            }
            None => Change::RemoveRecord { key, expected: Expected::Anything },
        };
        match self.catalog().propose(change).await {
            Ok(_) => Ok(()),
            Err(Error::Refused(refused)) if policy.is_none() && refused.kind == RefusalKind::Unknown => Ok(()),
            Err(_) => Err(UserPolicyError::Unavailable),
        }
    }

    /// All keys of users, by their access keys.
    #[must_use]
    pub fn user_keys(&self) -> Vec<UserKey> {
        let state = self.catalog().state_now();
        state.map_or_else(Vec::new, |state| state.records_of(KEYS).filter_map(decode_key).collect())
    }

    /// Makes a key for a user, who is made with the first one. It opens everything that is the user's at every server as
    /// soon as that server's copy of the catalog has it.
    ///
    /// # Errors
    /// See [`UserKeyError`].
    pub async fn make_user_key(&self, id: &str, name: &str) -> Result<UserKey, UserKeyError> {
        if !User::is_id(id) || id == User::root().id || id == ANONYMOUS {
            let why = "a user is called by 1 to 64 letters, digits, '-', '_' and '.', and not ashlar or anonymous";
            return Err(UserKeyError::Refused(why));
        }
        if name.is_empty() || name.len() > User::NAME_BYTES_MAX || name.contains(char::is_control) {
            return Err(UserKeyError::Refused("what people are shown of a user has 1 to 64 bytes"));
        }
        let node = self.node().ok_or(UserKeyError::Unavailable)?;
        if self.user_keys().len() >= KEYS_MAX {
            return Err(UserKeyError::Refused("there are 10,000 keys already: delete some"));
        }
        let (key, expected) = (record_key(USERS, id), Expected::Absent);
        match self.catalog().propose(Change::PutRecord { key, expected, value: encode_user(name) }).await {
            Ok(_) => {}
            Err(Error::Refused(refused)) if refused.kind == RefusalKind::Stale => {}
            Err(_) => return Err(UserKeyError::Unavailable),
        }
        let key = draw_key(&node);
        let change = Change::PutRecord {
            key: record_key(KEYS, &key.access_key),
            expected: Expected::Absent,
            value: encode_key(id, &key.secret_key),
        };
        match self.catalog().propose(change).await {
            Ok(_) => Ok(UserKey { key, user: id.to_owned() }),
            Err(_) => Err(UserKeyError::Unavailable),
        }
    }

    /// Deletes a key: a server refuses what it signs as soon as its copy of the catalog has this.
    ///
    /// # Errors
    /// See [`UserKeyError`].
    pub async fn delete_user_key(&self, access_key: &str) -> Result<(), UserKeyError> {
        let state = self.catalog().state().await.map_err(|_| UserKeyError::Unavailable)?;
        let key = record_key(KEYS, access_key);
        let record = state.record(&key).ok_or(UserKeyError::Refused("no user has this access key"))?;
        let expected = Expected::Revision(record.revision);
        match self.catalog().propose(Change::RemoveRecord { key, expected }).await {
            Ok(_) => Ok(()),
            Err(_) => Err(UserKeyError::Unavailable),
        }
    }
}

#[cfg(test)]
mod tests {
    use ashlar_catalog::change::CatalogVersion;

    use super::*;

    #[test]
    fn what_is_no_policy_of_a_user_is_refused() {
        let policy = |action: &str| {
            format!("{{\"Statement\":[{{\"Effect\":\"Allow\",\"Action\":\"{action}\",\"Resource\":\"*\"}}]}}")
        };
        assert!(check_policy(&policy("s3:GetObject")).is_ok());
        for wrong in [policy("s3:GetObjekt"), "{}".to_owned(), String::new(), policy(&"x".repeat(5_000))] {
            assert!(matches!(check_policy(&wrong), Err(UserPolicyError::Refused(_))), "{wrong:.80}");
        }
    }

    #[test]
    fn golden_bytes() {
        let record = |space: &str, name: &str, value: Vec<u8>| NamedRecord {
            key: record_key(space, name),
            revision: CatalogVersion(1),
            value,
        };
        let form = encode_key("ann", "xyz");
        assert_eq!(form, [1, 3, b'a', b'n', b'n', 3, b'x', b'y', b'z']);
        let key = decode_key(&record(KEYS, "AB", form.clone())).unwrap();
        assert_eq!((key.user.as_str(), key.key.access_key.as_str(), key.key.secret_key.as_str()), ("ann", "AB", "xyz"));
        assert_eq!(decode_key(&record(KEYS, "AB", form[..8].to_vec())), None);
        assert_eq!(decode_key(&record(KEYS, "AB", [&[2], &form[1..]].concat())), None);
        assert!(!format!("{key:?}").contains("xyz"));
        let form = encode_user("Ann");
        assert_eq!(form, [1, b'A', b'n', b'n']);
        let user = decode_user(&record(USERS, "ann", form)).unwrap();
        assert_eq!((user.id.as_str(), user.name.as_str(), user.is_root), ("ann", "Ann", false));
        assert_eq!(decode_user(&record(USERS, "ann", vec![2, b'A'])), None);
        let form = encode_policy("{}");
        assert_eq!(form, [1, b'{', b'}']);
        assert_eq!(decode_policy(&record(POLICIES, "ann", form)), "{}");
        let newer = decode_policy(&record(POLICIES, "ann", vec![2, b'{', b'}']));
        assert!(Policy::decode_of_user(newer.as_bytes()).is_err(), "it denies everything");
    }
}
