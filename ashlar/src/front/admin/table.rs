//! The table of what the listener answers: method, path, what a client needs for it, and who answers.

use hyper::Method;

/// What a request wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// Health or metrics.
    Page,
    /// To read from the admin API.
    Api,
    /// To change something, or to read what opens everything.
    Change,
}

/// Who answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Endpoint {
    Live,
    Ready,
    Cluster,
    Metrics,
    Status,
    Mesh,
    Forget,
    RotateSecret,
    Drives,
    RemoveDrive,
    Groups,
    Catalog,
    ExportCatalog,
    Volumes,
    Volume,
    CreateVolume,
    ResizeVolume,
    DeleteVolume,
    DetachVolume,
    RootKey,
    ReplaceRootKey,
    UserKeys,
    CreateUserKey,
    DeleteUserKey,
    UserPolicy,
    SetUserPolicy,
    RemoveUserPolicy,
    KmsKeys,
    CreateKmsKey,
    Buckets,
    SetQuota,
    RemoveQuota,
    Healing,
    BeginHealing,
    StopHealing,
}

/// A line of the table.
#[derive(Debug)]
pub(super) struct Route {
    method: Method,
    /// A part in capitals stands for any one, and is given to whoever answers.
    path: &'static str,
    pub(super) asked: Asked,
    pub(super) endpoint: Endpoint,
}

const fn route(method: Method, path: &'static str, asked: Asked, endpoint: Endpoint) -> Route {
    Route { method, path, asked, endpoint }
}

/// The table. What changes something has a method that a page in somebody's browser cannot use without asking this machine first.
static ROUTES: [Route; 35] = [
    route(Method::GET, "/health/live", Asked::Page, Endpoint::Live),
    route(Method::GET, "/health/ready", Asked::Page, Endpoint::Ready),
    route(Method::GET, "/health/cluster", Asked::Page, Endpoint::Cluster),
    route(Method::GET, "/metrics", Asked::Page, Endpoint::Metrics),
    route(Method::GET, "/v1/status", Asked::Api, Endpoint::Status),
    route(Method::GET, "/v1/mesh", Asked::Api, Endpoint::Mesh),
    route(Method::DELETE, "/v1/members/ID", Asked::Change, Endpoint::Forget),
    route(Method::PUT, "/v1/secret", Asked::Change, Endpoint::RotateSecret),
    route(Method::GET, "/v1/drives", Asked::Api, Endpoint::Drives),
    route(Method::DELETE, "/v1/drives/ID", Asked::Change, Endpoint::RemoveDrive),
    route(Method::GET, "/v1/groups", Asked::Api, Endpoint::Groups),
    route(Method::GET, "/v1/catalog", Asked::Api, Endpoint::Catalog),
    route(Method::GET, "/v1/catalog/export", Asked::Change, Endpoint::ExportCatalog),
    route(Method::GET, "/v1/volumes", Asked::Api, Endpoint::Volumes),
    route(Method::GET, "/v1/volumes/NAME", Asked::Api, Endpoint::Volume),
    route(Method::PUT, "/v1/volumes/NAME", Asked::Change, Endpoint::CreateVolume),
    route(Method::DELETE, "/v1/volumes/NAME", Asked::Change, Endpoint::DeleteVolume),
    route(Method::PUT, "/v1/volumes/NAME/size", Asked::Change, Endpoint::ResizeVolume),
    route(Method::DELETE, "/v1/volumes/NAME/attachment", Asked::Change, Endpoint::DetachVolume),
    route(Method::GET, "/v1/s3/key", Asked::Change, Endpoint::RootKey),
    route(Method::PUT, "/v1/s3/key", Asked::Change, Endpoint::ReplaceRootKey),
    route(Method::GET, "/v1/s3/keys", Asked::Api, Endpoint::UserKeys),
    route(Method::PUT, "/v1/s3/users/USER", Asked::Change, Endpoint::CreateUserKey),
    route(Method::DELETE, "/v1/s3/keys/KEY", Asked::Change, Endpoint::DeleteUserKey),
    route(Method::GET, "/v1/s3/users/USER/policy", Asked::Api, Endpoint::UserPolicy),
    route(Method::PUT, "/v1/s3/users/USER/policy", Asked::Change, Endpoint::SetUserPolicy),
    route(Method::DELETE, "/v1/s3/users/USER/policy", Asked::Change, Endpoint::RemoveUserPolicy),
    route(Method::GET, "/v1/s3/kms-keys", Asked::Api, Endpoint::KmsKeys),
    route(Method::PUT, "/v1/s3/kms-keys/NAME", Asked::Change, Endpoint::CreateKmsKey),
    route(Method::GET, "/v1/buckets", Asked::Api, Endpoint::Buckets),
    route(Method::PUT, "/v1/buckets/NAME/quota", Asked::Change, Endpoint::SetQuota),
    route(Method::DELETE, "/v1/buckets/NAME/quota", Asked::Change, Endpoint::RemoveQuota),
    route(Method::GET, "/v1/buckets/NAME/healing", Asked::Api, Endpoint::Healing),
    route(Method::PUT, "/v1/buckets/NAME/healing", Asked::Change, Endpoint::BeginHealing),
    route(Method::DELETE, "/v1/buckets/NAME/healing", Asked::Change, Endpoint::StopHealing),
];

/// What the table says of a request.
#[derive(Debug)]
pub(super) enum Found<'a> {
    /// The line, and the part of the path that a part in capitals stands for.
    Here(&'static Route, &'a str),
    /// The path is there for these methods.
    OtherMethods(Vec<&'static Method>),
    /// Nothing has this path.
    Nothing,
}

/// Looks a request up.
pub(super) fn find<'a>(method: &Method, path: &'a str) -> Found<'a> {
    // Whoever answers GET answers HEAD with the same, and hyper leaves the body out.
    let method = if *method == Method::HEAD { &Method::GET } else { method };
    let mut methods = Vec::new();
    for route in &ROUTES {
        let Some(part) = part_in(route.path, path) else { continue };
        if route.method == *method {
            return Found::Here(route, part);
        }
        methods.push(&route.method);
    }
    if methods.is_empty() { Found::Nothing } else { Found::OtherMethods(methods) }
}

/// All paths, each once.
pub(super) fn paths() -> Vec<&'static str> {
    let mut paths: Vec<&'static str> = ROUTES.iter().map(|route| route.path).collect();
    paths.dedup();
    paths
}

/// Whether `path` is one of a pattern; then the part that stands for the one in capitals, or nothing.
fn part_in<'a>(pattern: &str, path: &'a str) -> Option<&'a str> {
    let mut found = "";
    let (mut patterns, mut parts) = (pattern.split('/'), path.split('/'));
    loop {
        match (patterns.next(), parts.next()) {
            (None, None) => return Some(found),
            (Some(wanted), Some(part)) if is_any(wanted) => found = part,
            (Some(wanted), Some(part)) if wanted == part => {}
            _ => return None,
        }
    }
}

fn is_any(part: &str) -> bool {
    !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_looked_up() {
        let found = |method: Method, path| match find(&method, path) {
            Found::Here(route, part) => Ok((route.endpoint, part)),
            Found::OtherMethods(methods) => Err(methods),
            Found::Nothing => Err(Vec::new()),
        };
        for (method, path, expected) in [
            (Method::GET, "/metrics", Ok((Endpoint::Metrics, ""))),
            (Method::HEAD, "/health/live", Ok((Endpoint::Live, ""))),
            (Method::GET, "/v1/volumes/a", Ok((Endpoint::Volume, "a"))),
            (Method::PUT, "/v1/volumes/a/size", Ok((Endpoint::ResizeVolume, "a"))),
            (Method::PUT, "/v1/volumes/", Ok((Endpoint::CreateVolume, ""))),
            (Method::DELETE, "/v1/volumes/size/attachment", Ok((Endpoint::DetachVolume, "size"))),
            (Method::DELETE, "/v1/s3/keys/K", Ok((Endpoint::DeleteUserKey, "K"))),
            (Method::PUT, "/v1/s3/users/ann/policy", Ok((Endpoint::SetUserPolicy, "ann"))),
            (Method::PUT, "/v1/s3/kms-keys/payroll", Ok((Endpoint::CreateKmsKey, "payroll"))),
            (Method::PUT, "/v1/buckets/photos/quota", Ok((Endpoint::SetQuota, "photos"))),
            (Method::GET, "/v1/s3/key", Ok((Endpoint::RootKey, ""))),
            (Method::POST, "/metrics", Err(vec![&Method::GET])),
            (Method::POST, "/v1/volumes/a", Err(vec![&Method::GET, &Method::PUT, &Method::DELETE])),
            (Method::GET, "/v1/volumes/a/size", Err(vec![&Method::PUT])),
            (Method::GET, "/v1/volumes/a/other", Err(vec![])),
            (Method::GET, "/v1/volumes/a/size/b", Err(vec![])),
            (Method::GET, "/v1/volumesa", Err(vec![])),
            (Method::GET, "/v1/status/", Err(vec![])),
            (Method::GET, "metrics", Err(vec![])),
            (Method::GET, "", Err(vec![])),
        ] {
            assert_eq!(found(method, path), expected, "{path}");
        }
    }

    #[test]
    fn what_changes_something_is_no_get() {
        let is_safe = |route: &Route| route.asked == Asked::Change || route.method == Method::GET;
        assert!(ROUTES.iter().all(is_safe));
        let secret = |route: &&Route| route.asked == Asked::Change && route.method == Method::GET;
        let secrets: Vec<_> = ROUTES.iter().filter(secret).map(|route| route.path).collect();
        assert_eq!(secrets, ["/v1/catalog/export", "/v1/s3/key"]);
    }

    #[test]
    fn every_path_is_documented() {
        let pages = [
            include_str!("../../../../docs/operating/monitoring.md"),
            include_str!("../../../../docs/operating/volumes.md"),
            include_str!("../../../../docs/operating/objects.md"),
        ];
        for path in paths() {
            assert!(pages.iter().any(|page| page.contains(path)), "{path} stands on no page of docs/operating");
        }
    }
}
