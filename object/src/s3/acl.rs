//! Access control lists: who was granted what on a bucket or an object, as S3 had it before policies.
//!
//! A list is kept as the attribute `ACL` of what it is about: `PERMISSION grantee` with commas between. The owner is kept
//! beside it, as `OWNER`, and may do everything whatever the list says.

use super::authenticate::{Credentials, User};
use super::error::{Code, S3Error};
use super::head::RequestHead;
use super::xml::{Element, XmlWriter};
use crate::api::Attributes;

/// The attribute with the id of the owner. Without it the owner is the root user.
pub(super) const OWNER: &str = "x-ashlar-owner";
/// The attribute of an upload with the id of the user who has begun it, where that is not the owner.
pub(super) const INITIATOR: &str = "x-ashlar-initiator";
/// The attribute with the access control list. Without it nobody is granted anything.
pub(super) const ACL: &str = "x-ashlar-acl";
/// Grants of one list.
pub const GRANTS_MAX: usize = 100;

const EVERYBODY: &str = "http://acs.amazonaws.com/groups/global/AllUsers";
const SIGNED: &str = "http://acs.amazonaws.com/groups/global/AuthenticatedUsers";

/// What can be granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// To list a bucket, or to read an object.
    Read,
    /// To put objects into a bucket and delete them.
    Write,
    /// To read the access control list.
    ReadAcp,
    /// To change the access control list.
    WriteAcp,
    /// All of these.
    FullControl,
}

impl Permission {
    const ALL: [Self; 5] = [Self::Read, Self::Write, Self::ReadAcp, Self::WriteAcp, Self::FullControl];

    const fn name(self) -> &'static str {
        match self {
            Self::Read => "READ",
            Self::Write => "WRITE",
            Self::ReadAcp => "READ_ACP",
            Self::WriteAcp => "WRITE_ACP",
            Self::FullControl => "FULL_CONTROL",
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|permission| permission.name() == name)
    }
}

/// To whom something is granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Grantee {
    /// The user of this id.
    User(String),
    /// Whoever signs a request.
    Signed,
    /// Everybody.
    Everybody,
}

/// An access control list without its owner.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Acl(Vec<(Permission, Grantee)>);

/// What the list of something new can be about.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owners<'a> {
    /// Whose it is.
    pub(super) owner: &'a str,
    /// Whose the bucket is that it is in.
    pub(super) bucket_owner: &'a str,
}

impl Acl {
    /// The list that is kept in attributes.
    #[must_use]
    pub fn of(attributes: &Attributes) -> Self {
        let text = attributes.get(ACL).unwrap_or_default();
        let grant = |grant: &str| {
            let (permission, grantee) = grant.split_once(' ')?;
            let grantee = match grantee {
                "*" => Grantee::Everybody,
                "+" => Grantee::Signed,
                id => Grantee::User(id.to_owned()),
            };
            Some((Permission::named(permission)?, grantee))
        };
        // A grant that is not known grants nothing.
        Self(text.split(',').filter_map(grant).collect())
    }

    /// The attribute that keeps it.
    #[must_use]
    pub fn text(&self) -> String {
        let grant = |(permission, grantee): &(Permission, Grantee)| {
            let grantee = match grantee {
                Grantee::Everybody => "*",
                Grantee::Signed => "+",
                Grantee::User(id) => id,
            };
            format!("{} {grantee}", permission.name())
        };
        self.0.iter().map(grant).collect::<Vec<_>>().join(",")
    }

    /// Whether it grants this to a user, or to somebody who has not signed.
    #[must_use]
    pub fn grants(&self, user: Option<&str>, wanted: Permission, ignores_public: bool) -> bool {
        self.0.iter().any(|(permission, grantee)| {
            let is_meant = match grantee {
                Grantee::Everybody => !ignores_public,
                Grantee::Signed => !ignores_public && user.is_some(),
                Grantee::User(id) => user == Some(id.as_str()),
            };
            is_meant && (*permission == wanted || *permission == Permission::FullControl)
        })
    }

    /// Whether it grants anything to everybody, or to everybody who signs.
    #[must_use]
    pub fn is_public(&self) -> bool {
        self.0.iter().any(|(_, grantee)| matches!(grantee, Grantee::Everybody | Grantee::Signed))
    }

    /// Whether it grants nothing to anybody but these.
    pub(super) fn is_for_owners(&self, owners: Owners<'_>) -> bool {
        let is_owner = |grantee: &Grantee| matches!(grantee, Grantee::User(id) if [owners.owner, owners.bucket_owner].contains(&id.as_str()));
        self.0.iter().all(|(_, grantee)| is_owner(grantee))
    }

    /// Whether it grants this to this user and nothing else.
    pub(super) fn is_one(&self, permission: Permission, user: &str) -> bool {
        matches!(&self.0[..], [(granted, Grantee::User(id))] if *granted == permission && id == user)
    }

    fn canned(name: &str, owners: Owners<'_>) -> Option<Self> {
        let full = (Permission::FullControl, Grantee::User(owners.owner.to_owned()));
        let bucket_owner = || Grantee::User(owners.bucket_owner.to_owned());
        let is_same = owners.owner == owners.bucket_owner;
        let more = match name {
            "private" => vec![],
            "public-read" => vec![(Permission::Read, Grantee::Everybody)],
            "public-read-write" => {
                vec![(Permission::Read, Grantee::Everybody), (Permission::Write, Grantee::Everybody)]
            }
            "authenticated-read" => vec![(Permission::Read, Grantee::Signed)],
            "bucket-owner-read" | "bucket-owner-full-control" if is_same => vec![],
            "bucket-owner-read" => vec![(Permission::Read, bucket_owner())],
            "bucket-owner-full-control" => vec![(Permission::FullControl, bucket_owner())],
            _ => return None,
        };
        Some(Self([more, vec![full]].concat()))
    }

    /// The list that the headers of a request ask for, if they do.
    pub(super) fn of_headers(
        head: &RequestHead,
        owners: Owners<'_>,
        users: &dyn Credentials,
    ) -> Result<Option<Self>, S3Error> {
        const GRANTS: [(&str, Permission); 5] = [
            ("x-amz-grant-read", Permission::Read),
            ("x-amz-grant-write", Permission::Write),
            ("x-amz-grant-read-acp", Permission::ReadAcp),
            ("x-amz-grant-write-acp", Permission::WriteAcp),
            ("x-amz-grant-full-control", Permission::FullControl),
        ];
        let mut grants = Vec::new();
        for (name, permission) in GRANTS {
            for grantee in head.header(name).into_iter().flat_map(|value| value.split(',')) {
                let (kind, value) = grantee.trim().split_once('=').ok_or(Code::InvalidArgument)?;
                grants.push((permission, grantee_of(kind, value.trim_matches('"'), users)?));
            }
        }
        match (head.header("x-amz-acl"), grants.is_empty()) {
            (Some(_), false) => {
                Err(Code::InvalidRequest.because("Specifying both Canned ACLs and Header Grants is not allowed"))
            }
            (Some(name), true) => Self::canned(name, owners)
                .map(Some)
                .ok_or(Code::InvalidArgument.because("The value of x-amz-acl is no canned ACL.")),
            (None, true) => Ok(None),
            (None, false) if grants.len() > GRANTS_MAX => Err(Code::InvalidArgument.into()),
            (None, false) => Ok(Some(Self(grants))),
        }
    }

    /// The list of an `AccessControlPolicy`, whose owner must be the one that there is.
    pub(super) fn decode(bytes: &[u8], owner: &str, users: &dyn Credentials) -> Result<Self, S3Error> {
        let root = Element::decode(bytes).map_err(|_| Code::MalformedACLError)?;
        let list = root.child("AccessControlList").filter(|_| root.name == "AccessControlPolicy");
        let list = list.ok_or(Code::MalformedACLError)?;
        let named = root.child("Owner").and_then(|owner| owner.text_of("ID"));
        if named.is_some_and(|named| named != owner) {
            return Err(Code::AccessDenied.into());
        }
        let grant = |grant: &Element| -> Result<(Permission, Grantee), S3Error> {
            let permission = grant.text_of("Permission").and_then(Permission::named).ok_or(Code::MalformedACLError)?;
            let grantee = grant.child("Grantee").ok_or(Code::MalformedACLError)?;
            let known = [("ID", "id"), ("URI", "uri"), ("EmailAddress", "emailAddress")];
            let found = known.iter().find_map(|(element, kind)| Some((*kind, grantee.text_of(element)?)));
            let (kind, value) = found.ok_or(Code::MalformedACLError)?;
            Ok((permission, grantee_of(kind, value, users)?))
        };
        let grants: Vec<_> = list.children.iter().map(grant).collect::<Result<_, _>>()?;
        if grants.len() > GRANTS_MAX { Err(Code::MalformedACLError.into()) } else { Ok(Self(grants)) }
    }

    /// The document that tells it. A list that was never made is that of its owner alone.
    pub(super) fn write(&self, owner: &User, users: &dyn Credentials) -> XmlWriter {
        const XSI: &str = "xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\"";
        let mut xml = XmlWriter::new("AccessControlPolicy");
        write_user(&mut xml, "Owner", owner);
        let only_owner = [(Permission::FullControl, Grantee::User(owner.id.clone()))];
        xml.element("AccessControlList", |xml| {
            for (permission, grantee) in if self.0.is_empty() { &only_owner[..] } else { &self.0 } {
                xml.element("Grant", |xml| {
                    match grantee {
                        Grantee::User(id) => {
                            xml.element_with("Grantee", &format!("{XSI} xsi:type=\"CanonicalUser\""), |xml| {
                                xml.text("ID", id);
                                xml.text("DisplayName", &users.user(id).map_or_else(|| id.clone(), |user| user.name));
                            });
                        }
                        group => xml.element_with("Grantee", &format!("{XSI} xsi:type=\"Group\""), |xml| {
                            xml.text("URI", if *group == Grantee::Signed { SIGNED } else { EVERYBODY });
                        }),
                    }
                    xml.text("Permission", permission.name());
                });
            }
        });
        xml
    }
}

/// A user as documents tell it.
pub(super) fn write_user(xml: &mut XmlWriter, element: &'static str, user: &User) {
    xml.element(element, |xml| {
        xml.text("ID", &user.id);
        xml.text("DisplayName", &user.name);
    });
}

fn grantee_of(kind: &str, value: &str, users: &dyn Credentials) -> Result<Grantee, S3Error> {
    match (kind, value) {
        ("uri", EVERYBODY) => Ok(Grantee::Everybody),
        ("uri", SIGNED) => Ok(Grantee::Signed),
        ("id", id) if users.user(id).is_some() => Ok(Grantee::User(id.to_owned())),
        ("id", _) => Err(Code::InvalidArgument.because("Invalid id")),
        ("emailAddress", _) => Err(Code::UnresolvableGrantByEmailAddress.into()),
        _ => Err(Code::InvalidArgument.because("Invalid group uri")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::s3::{RootCredentials, SecretKey};

    #[test]
    fn lists_are_kept_and_grant() {
        let owners = Owners { owner: "ann", bucket_owner: "bob" };
        let canned = |name: &str| Acl::canned(name, owners).expect("a list");
        for name in ["private", "public-read-write", "authenticated-read", "bucket-owner-full-control"] {
            let acl = canned(name);
            assert_eq!(Acl::of(&Attributes(vec![(ACL.to_owned(), acl.text())])), acl);
        }
        assert_eq!(canned("authenticated-read").text(), "READ +,FULL_CONTROL ann");
        let table = [
            ("private", None, Permission::Read, false),
            ("private", Some("ann"), Permission::WriteAcp, true),
            ("private", Some("bob"), Permission::Read, false),
            ("public-read", None, Permission::Read, true),
            ("public-read", None, Permission::Write, false),
            ("public-read", None, Permission::ReadAcp, false),
            ("public-read-write", None, Permission::Write, true),
            ("authenticated-read", None, Permission::Read, false),
            ("authenticated-read", Some("eve"), Permission::Read, true),
            ("bucket-owner-read", Some("bob"), Permission::Read, true),
            ("bucket-owner-read", Some("bob"), Permission::WriteAcp, false),
            ("bucket-owner-full-control", Some("bob"), Permission::WriteAcp, true),
        ];
        for (name, user, permission, expected) in table {
            assert_eq!(canned(name).grants(user, permission, false), expected, "{name} {user:?} {permission:?}");
        }
        assert!(!canned("public-read").grants(None, Permission::Read, true));
        assert!(canned("public-read").is_public() && !canned("bucket-owner-read").is_public());
        assert!(Acl::canned("aws-exec-read", owners).is_none());
        let unknown = Attributes(vec![(ACL.to_owned(), "ALL *,READ".to_owned())]);
        assert_eq!(Acl::of(&unknown), Acl::default());
    }

    #[test]
    fn documents() {
        let users = RootCredentials::new("key".into(), SecretKey::new("secret".into()));
        let user = users.user("ashlar").expect("the root user");
        let owners = Owners { owner: "ashlar", bucket_owner: "ashlar" };
        let acl = Acl::canned("public-read", owners).expect("a list");
        let text = acl.write(&user, &users).finish();
        assert_eq!(Acl::decode(text.as_bytes(), "ashlar", &users), Ok(acl));
        let code = |text: &str| Acl::decode(text.as_bytes(), "ashlar", &users).map_err(|error| error.code);
        assert_eq!(code(&text.replace("<Owner><ID>ashlar", "<Owner><ID>eve")), Err(Code::AccessDenied));
        assert_eq!(code(&text.replace("READ", "RED")), Err(Code::MalformedACLError));
        assert_eq!(code("<x/>"), Err(Code::MalformedACLError));
        assert_eq!(code(&text.replace("AllUsers", "Some")), Err(Code::InvalidArgument));
        let email = "<AccessControlPolicy><AccessControlList><Grant><Grantee><EmailAddress>a@b</EmailAddress></Grantee>\
                     <Permission>READ</Permission></Grant></AccessControlList></AccessControlPolicy>";
        assert_eq!(code(email), Err(Code::UnresolvableGrantByEmailAddress));
        let head = |headers: &[(&str, &str)]| {
            let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            RequestHead::new(crate::s3::Method::Put, "/b", headers).expect("a head")
        };
        let of = |headers: &[(&str, &str)]| {
            Acl::of_headers(&head(headers), owners, &users)
                .map(|acl| acl.map(|acl| acl.text()))
                .map_err(|error| error.code)
        };
        assert_eq!(of(&[]), Ok(None));
        assert_eq!(of(&[("x-amz-acl", "private")]), Ok(Some("FULL_CONTROL ashlar".into())));
        assert_eq!(of(&[("x-amz-grant-read", "id=\"ashlar\"")]), Ok(Some("READ ashlar".into())));
        let groups = format!("uri=\"{SIGNED}\", uri=\"{EVERYBODY}\"");
        assert_eq!(of(&[("x-amz-grant-write-acp", &groups)]), Ok(Some("WRITE_ACP +,WRITE_ACP *".into())));
        assert_eq!(of(&[("x-amz-grant-read", "id=eve")]), Err(Code::InvalidArgument));
        let unknown = |kind| grantee_of(kind, "eve", &users).map_err(|error| error.message);
        assert_eq!((unknown("id"), unknown("uri")), (Err("Invalid id"), Err("Invalid group uri")));
        assert_eq!(of(&[("x-amz-grant-read", "id=ashlar"), ("x-amz-acl", "private")]), Err(Code::InvalidRequest));
        assert_eq!(of(&[("x-amz-acl", "log-delivery-write")]), Err(Code::InvalidArgument));
        let many = |count| vec!["id=ashlar"; count].join(",");
        assert_eq!(of(&[("x-amz-grant-read", &many(GRANTS_MAX))]), Ok(Some(["READ ashlar"; GRANTS_MAX].join(","))));
        assert_eq!(of(&[("x-amz-grant-read", &many(GRANTS_MAX + 1))]), Err(Code::InvalidArgument));
        let grant = "<Grant><Grantee><ID>ashlar</ID></Grantee><Permission>READ</Permission></Grant>";
        let many = |count| {
            let list = grant.repeat(count);
            code(&format!("<AccessControlPolicy><AccessControlList>{list}</AccessControlList></AccessControlPolicy>"))
        };
        assert_eq!(many(GRANTS_MAX).map(|acl| acl.0.len()), Ok(GRANTS_MAX));
        assert_eq!(many(GRANTS_MAX + 1), Err(Code::MalformedACLError));
    }
}
