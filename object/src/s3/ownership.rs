//! Ownership of the objects in a bucket: whose an object is that somebody else has put, and whether access control lists count.

use super::acl::{ACL, Acl, INITIATOR, OWNER, Owners, Permission};
use super::document::decode;
use super::error::{Code, S3Error};
use super::head::RequestHead;
use super::public_access::PublicAccessBlock;
use super::service::Call;
use super::xml::XmlWriter;
use crate::api::{Attributes, Bucket, Upload};

/// The attribute of a bucket with its ownership of objects.
pub(super) const OWNERSHIP: &str = "ownership-controls";
/// The header of a new bucket.
const HEADER: &str = "x-amz-object-ownership";
/// The canned list that gives an object to the bucket's owner.
const TO_BUCKET_OWNER: &str = "bucket-owner-full-control";

/// Whose the objects in a bucket are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Ownership {
    /// Of whoever has put them.
    #[default]
    Writer,
    /// Of whoever has put them, but of the bucket's owner if they were put with the list `bucket-owner-full-control`.
    BucketOwnerPreferred,
    /// All of the bucket's owner. Access control lists of the bucket and its objects grant nothing, and none can be set.
    BucketOwnerEnforced,
}

impl Ownership {
    const ALL: [Self; 3] = [Self::Writer, Self::BucketOwnerPreferred, Self::BucketOwnerEnforced];

    const fn name(self) -> &'static str {
        match self {
            Self::Writer => "ObjectWriter",
            Self::BucketOwnerPreferred => "BucketOwnerPreferred",
            Self::BucketOwnerEnforced => "BucketOwnerEnforced",
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|ownership| ownership.name() == name)
    }

    /// That of a bucket. Where it is one of a later release, lists grant nothing.
    pub(super) fn of(bucket: &Bucket) -> Self {
        let text = bucket.attributes.get(OWNERSHIP);
        text.map_or(Self::default(), |text| Self::named(text).unwrap_or(Self::BucketOwnerEnforced))
    }

    /// The one that a new bucket is made with, if the request names one.
    pub(super) fn of_new_bucket(head: &RequestHead) -> Result<Option<Self>, S3Error> {
        let wrong = Code::InvalidArgument.because("Invalid x-amz-object-ownership header");
        head.header(HEADER).map(|name| Self::named(name).ok_or(wrong)).transpose()
    }

    /// Whether access control lists grant something.
    pub(super) fn has_lists(self) -> bool {
        self != Self::BucketOwnerEnforced
    }

    /// Lets the access control list of a bucket stand, or not.
    pub(super) fn check_list_of_bucket(self, acl: &Acl, owners: Owners<'_>) -> Result<(), S3Error> {
        let is_refused = !self.has_lists() && !acl.is_for_owners(owners);
        if is_refused { Err(Code::InvalidBucketAclWithObjectOwnership.into()) } else { Ok(()) }
    }

    /// The attribute that keeps it.
    pub(super) fn text(self) -> String {
        self.name().to_owned()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, S3Error> {
        let root = decode(bytes, "OwnershipControls")?;
        let [rule] = &root.children[..] else { return Err(Code::MalformedXML.into()) };
        let name = Some(rule).filter(|rule| rule.name == "Rule").and_then(|rule| rule.text_of("ObjectOwnership"));
        name.and_then(Self::named).ok_or(Code::MalformedXML.into())
    }

    pub(super) fn write(self) -> XmlWriter {
        let mut xml = XmlWriter::new("OwnershipControls");
        xml.element("Rule", |xml| xml.text("ObjectOwnership", self.name()));
        xml
    }
}

impl Call<'_> {
    /// The owner of something in a bucket: of an object, an upload, a mark of a deletion.
    pub(super) fn owner_in<'a>(&'a self, bucket: &'a Bucket, attributes: &'a Attributes) -> &'a str {
        let own = attributes.get(OWNER).filter(|_| Ownership::of(bucket).has_lists());
        own.unwrap_or_else(|| self.owner_of_bucket(bucket))
    }

    /// Who has begun an upload in a bucket.
    pub(super) fn initiator_in<'a>(&'a self, bucket: &'a Bucket, upload: &'a Upload) -> &'a str {
        let named = upload.attributes.get(INITIATOR).or_else(|| upload.attributes.get(OWNER));
        named.unwrap_or_else(|| self.owner_of_bucket(bucket))
    }

    /// Who begins an upload, for the attribute `INITIATOR`; nothing if it is the one whose the object will be.
    pub(super) fn new_initiator_in(&self, bucket: &Bucket) -> Option<String> {
        let user = self.user_id();
        let is_other = user != self.owner_of_bucket(bucket) && self.new_owner_in(bucket).is_none();
        is_other.then(|| user.to_owned())
    }

    /// The owner of something new in a bucket, for the attribute `OWNER`; nothing if it is the bucket's owner.
    pub(super) fn new_owner_in(&self, bucket: &Bucket) -> Option<String> {
        let is_given = match Ownership::of(bucket) {
            Ownership::Writer => false,
            Ownership::BucketOwnerPreferred => self.head.header("x-amz-acl") == Some(TO_BUCKET_OWNER),
            Ownership::BucketOwnerEnforced => true,
        };
        let is_other = !is_given && self.user_id() != self.owner_of_bucket(bucket);
        is_other.then(|| self.user_id().to_owned())
    }

    /// The attributes that say whose a new bucket is, who was granted it, and whose the objects in it are.
    pub(super) fn ownership_of_new_bucket(&self) -> Result<Attributes, S3Error> {
        let owner = self.user_id();
        let owners = Owners { owner, bucket_owner: owner };
        let acl = Acl::of_headers(self.head, owners, &*self.s3.credentials)?;
        let ownership = Ownership::of_new_bucket(self.head)?;
        ownership.unwrap_or_default().check_list_of_bucket(acl.as_ref().unwrap_or(&Acl::default()), owners)?;
        // What is the root user's says nothing, as what earlier builds wrote.
        let is_other = owner != self.s3.settings.owner_id;
        let attributes = Attributes::default()
            .with(OWNER, is_other.then(|| owner.to_owned()))
            .with(ACL, acl.map(|acl| acl.text()))
            .with(OWNERSHIP, ownership.map(Ownership::text));
        Ok(attributes)
    }

    /// The attributes that say whose something new in a bucket is, and who was granted it.
    pub(super) fn ownership(&self, bucket: &Bucket) -> Result<Vec<(String, String)>, S3Error> {
        let (bucket_owner, new_owner) = (self.owner_of_bucket(bucket), self.new_owner_in(bucket));
        let owners = Owners { owner: new_owner.as_deref().unwrap_or(bucket_owner), bucket_owner };
        let acl = Acl::of_headers(self.head, owners, &*self.s3.credentials)?;
        check_list(acl.as_ref(), bucket)?;
        let mut attributes = Vec::new();
        if Ownership::of(bucket).has_lists() {
            attributes.extend(acl.map(|acl| (ACL.to_owned(), acl.text())));
        } else if let Some(acl) = acl {
            let is_canned = self.head.header("x-amz-acl").is_none_or(|name| name == TO_BUCKET_OWNER);
            if !is_canned || !acl.is_one(Permission::FullControl, bucket_owner) {
                return Err(Code::AccessControlListNotSupported.into());
            }
        }
        attributes.extend(new_owner.map(|owner| (OWNER.to_owned(), owner)));
        Ok(attributes)
    }
}

/// Whether an access control list may be kept in a bucket where public ones may be blocked.
pub(super) fn check_list(acl: Option<&Acl>, bucket: &Bucket) -> Result<(), S3Error> {
    let blocks = PublicAccessBlock::of(&bucket.attributes).blocks_acls;
    if blocks && acl.is_some_and(Acl::is_public) { Err(Code::AccessDenied.into()) } else { Ok(()) }
}

/// Lets the access control list of a bucket, or of something in it, be set, or not.
pub(super) fn check_new_list(acl: &Acl, bucket: &Bucket) -> Result<(), S3Error> {
    if !Ownership::of(bucket).has_lists() {
        return Err(Code::AccessControlListNotSupported.into());
    }
    check_list(Some(acl), bucket)
}

/// The list of something in a bucket, or of the bucket itself; none where lists grant nothing.
pub(super) fn list_of(bucket: &Bucket, attributes: &Attributes) -> Acl {
    if Ownership::of(bucket).has_lists() { Acl::of(attributes) } else { Acl::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_and_attributes_say_the_same() {
        for ownership in Ownership::ALL {
            assert_eq!(Ownership::decode(ownership.write().finish().as_bytes()), Ok(ownership));
            assert_eq!(Ownership::named(&ownership.text()), Some(ownership));
        }
        let rule = "<Rule><ObjectOwnership>ObjectWriter</ObjectOwnership></Rule>";
        for inner in ["", "<Rule/>", "<Rule><ObjectOwnership>x</ObjectOwnership></Rule>", &rule.repeat(2)] {
            let text = format!("<OwnershipControls>{inner}</OwnershipControls>");
            assert_eq!(Ownership::decode(text.as_bytes()), Err(Code::MalformedXML.into()), "{inner}");
        }
        assert_eq!(Ownership::decode(rule.as_bytes()), Err(Code::MalformedXML.into()));
    }
}
