//! `GET /v1/s3/key`: the root key of the object service. It needs the admin token, from this machine too. `PUT` replaces it by a new one.
//!
//! `PUT /v1/s3/users/USER?name=NAME` makes a key for a user, `GET /v1/s3/keys` lists the keys of users without their secrets,
//! `DELETE /v1/s3/keys/ACCESS` deletes one. `GET`, `PUT ?document=JSON` and `DELETE /v1/s3/users/USER/policy` are about what a user may do.
//!
//! `PUT /v1/s3/kms-keys/NAME` makes a key under which those of objects are wrapped, `GET /v1/s3/kms-keys` lists their names.

use ashlar_node::object::keys::{KmsKeyError, ReplaceError};
use ashlar_node::object::users::{UserKey, UserKeyError, UserPolicyError};
use ashlar_object::s3::encoding::Query;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Response, StatusCode};
use serde::{Deserialize, Serialize};

use super::Front;
use super::routes::{json, refuse};

/// A key of the object service, as the admin API shows it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyView {
    /// What a client is called.
    pub access_key: String,
    /// With what it signs.
    pub secret_key: String,
}

/// A key of a user, as the admin API shows it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserKeyView {
    /// The id of the user.
    pub user: String,
    /// What a client is called.
    pub access_key: String,
    /// With what it signs; told once, when the key is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key: Option<String>,
}

pub(super) fn no_objects() -> Response<Full<Bytes>> {
    let text = "this server keeps no objects: start it with --drive-mib and --object-mib";
    refuse(StatusCode::CONFLICT, "no_objects", text)
}

fn refused(error: &UserKeyError) -> Response<Full<Bytes>> {
    match error {
        UserKeyError::Refused(why) => refuse(StatusCode::BAD_REQUEST, "refused", why),
        UserKeyError::Unavailable => refuse(
            StatusCode::SERVICE_UNAVAILABLE,
            "no_catalog",
            "the catalog has not answered: see the list, and ask again",
        ),
    }
}

/// Makes a key for a user.
pub(super) async fn create(front: &Front, user: &str, query: Option<&str>) -> Response<Full<Bytes>> {
    let Some(objects) = front.drives.as_ref().and_then(|drives| drives.objects.as_ref()) else { return no_objects() };
    let name = match query {
        None | Some("") => user.to_owned(),
        Some(query) => match Query::decode(query) {
            Ok(query) if query.iter().all(|(name, _)| name == "name") => query.get("name").unwrap_or(user).to_owned(),
            _ => return refuse(StatusCode::BAD_REQUEST, "malformed_query", "the only query here is ?name=NAME"),
        },
    };
    match objects.make_user_key(user, &name).await {
        Ok(UserKey { key, user }) => {
            let secret_key = Some(key.secret_key);
            json(StatusCode::OK, &UserKeyView { user, access_key: key.access_key, secret_key })
        }
        Err(error) => refused(&error),
    }
}

/// Deletes a key of a user.
pub(super) async fn delete(front: &Front, access_key: &str) -> Response<Full<Bytes>> {
    let Some(objects) = front.drives.as_ref().and_then(|drives| drives.objects.as_ref()) else { return no_objects() };
    match objects.delete_user_key(access_key).await {
        Ok(()) => json(StatusCode::OK, &serde_json::json!({})),
        Err(error) => refused(&error),
    }
}

/// Keys of users, without their secrets.
pub(super) fn list(front: &Front) -> Response<Full<Bytes>> {
    let Some(objects) = front.drives.as_ref().and_then(|drives| drives.objects.as_ref()) else { return no_objects() };
    let view = |UserKey { key, user }: UserKey| UserKeyView { user, access_key: key.access_key, secret_key: None };
    json(StatusCode::OK, &objects.user_keys().into_iter().map(view).collect::<Vec<_>>())
}

/// The root key.
pub(super) fn key(front: &Front) -> Response<Full<Bytes>> {
    let Some(objects) = front.drives.as_ref().and_then(|drives| drives.objects.as_ref()) else {
        return no_objects();
    };
    match objects.lasting_root_key() {
        Some(root) => json(StatusCode::OK, &KeyView { access_key: root.access_key, secret_key: root.secret_key }),
        None => refuse(StatusCode::SERVICE_UNAVAILABLE, "no_key", "the catalog has no key yet: ask again"),
    }
}

/// Replaces the root key.
pub(super) async fn replace_key(front: &Front) -> Response<Full<Bytes>> {
    let Some(objects) = front.drives.as_ref().and_then(|drives| drives.objects.as_ref()) else { return no_objects() };
    match objects.replace_root_key().await {
        Ok(root) => json(StatusCode::OK, &KeyView { access_key: root.access_key, secret_key: root.secret_key }),
        Err(ReplaceError::Given) => {
            let text = "this server was given its root key by MINIO_ROOT_USER: change that at all servers, and start them again";
            refuse(StatusCode::CONFLICT, "given_key", text)
        }
        Err(ReplaceError::Unavailable) => {
            let text = "the catalog has not answered, and the key may have been replaced: ask again, or print the key";
            refuse(StatusCode::SERVICE_UNAVAILABLE, "no_catalog", text)
        }
    }
}

/// A key under which those of objects are wrapped, as the admin API shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KmsKeyView {
    /// What clients name it by.
    pub name: String,
}

/// The names of keys under which those of objects are wrapped.
pub(super) fn kms_keys(front: &Front) -> Response<Full<Bytes>> {
    let Some(objects) = front.drives.as_ref().and_then(|drives| drives.objects.as_ref()) else { return no_objects() };
    json(StatusCode::OK, &objects.kms_keys().into_iter().map(|name| KmsKeyView { name }).collect::<Vec<_>>())
}

/// Makes a key under which those of objects are wrapped.
pub(super) async fn create_kms_key(front: &Front, name: &str) -> Response<Full<Bytes>> {
    let Some(objects) = front.drives.as_ref().and_then(|drives| drives.objects.as_ref()) else { return no_objects() };
    match objects.make_kms_key(name).await {
        Ok(()) => json(StatusCode::OK, &KmsKeyView { name: name.to_owned() }),
        Err(KmsKeyError::Refused(why)) => refuse(StatusCode::BAD_REQUEST, "refused", why),
        Err(KmsKeyError::Unavailable) => {
            let text = "the catalog has not answered: see the list, and ask again";
            refuse(StatusCode::SERVICE_UNAVAILABLE, "no_catalog", text)
        }
    }
}

/// The policy of a user, as the admin API shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserPolicyView {
    /// The id of the user.
    pub user: String,
    /// The document, as it was put; nothing if the user has none.
    pub document: Option<String>,
}

/// The policy of a user.
pub(super) fn policy(front: &Front, user: &str) -> Response<Full<Bytes>> {
    let Some(objects) = front.drives.as_ref().and_then(|drives| drives.objects.as_ref()) else { return no_objects() };
    if objects.user(user).is_none() {
        return policy_refused(&UserPolicyError::UnknownUser);
    }
    json(StatusCode::OK, &UserPolicyView { user: user.to_owned(), document: objects.user_policy(user) })
}

/// Gives a user a policy.
pub(super) async fn set_policy(front: &Front, user: &str, query: Option<&str>) -> Response<Full<Bytes>> {
    let query = query.and_then(|query| Query::decode(query).ok());
    let document = query.as_ref().filter(|query| query.iter().count() == 1).and_then(|query| query.get("document"));
    let Some(document) = document else {
        return refuse(StatusCode::BAD_REQUEST, "malformed_query", "the query here is ?document=JSON");
    };
    change_policy(front, user, Some(document)).await
}

/// Takes the policy of a user away.
pub(super) async fn remove_policy(front: &Front, user: &str) -> Response<Full<Bytes>> {
    change_policy(front, user, None).await
}

async fn change_policy(front: &Front, user: &str, document: Option<&str>) -> Response<Full<Bytes>> {
    let Some(objects) = front.drives.as_ref().and_then(|drives| drives.objects.as_ref()) else { return no_objects() };
    match objects.set_user_policy(user, document).await {
        Ok(()) => {
            let document = document.map(str::to_owned);
            json(StatusCode::OK, &UserPolicyView { user: user.to_owned(), document })
        }
        Err(error) => policy_refused(&error),
    }
}

fn policy_refused(error: &UserPolicyError) -> Response<Full<Bytes>> {
    match error {
        UserPolicyError::UnknownUser => {
            refuse(StatusCode::NOT_FOUND, "unknown_user", "no user is called so: make a key for the user first")
        }
        UserPolicyError::Refused(why) => refuse(StatusCode::BAD_REQUEST, "refused", why),
        UserPolicyError::Unavailable => {
            refuse(StatusCode::SERVICE_UNAVAILABLE, "no_catalog", "the catalog has not answered: ask again")
        }
    }
}
