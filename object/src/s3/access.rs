//! The second gate in front of every operation: whether the sender of a request may do it.
//!
//! [`rule_of`] says for each operation which action of policies it is, and which grant of access control lists it takes.
//! In this order: the root user may do everything; what the user's policy or the bucket's denies is denied; what one of them allows is
//! allowed; the owner of the bucket may do everything in it; the owner of an object, and who was granted it, may do it. Everything else
//! is denied, to those who have signed as to those who have not. A user with a policy may not do more for being an owner: else who may
//! only read could make buckets to write to. What temporary credentials have a policy for, it has to allow before all this, also to the
//! root user.

use super::acl::{Acl, OWNER, Owners, Permission};
use super::authenticate::{Place, User, Version};
use super::condition::write_condition;
use super::encoding::Query;
use super::encryption::{KMS_KEY, short_name};
use super::error::{Code, S3Error};
use super::metadata::tags;
use super::ownership::list_of;
use super::policy::{Policy, PolicyRequest, PolicyVerdict, Principal};
use super::public_access::PublicAccessBlock;
use super::route::{BucketConfiguration as Kind, Operation};
use super::service::Call;
use super::upload;
use crate::api::{Bucket, Condition, Error, Object, Target, Upload};

/// The attribute of a bucket with its policy.
pub(super) const POLICY: &str = "policy";

/// Who may do an operation without a policy that allows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// Whoever has signed.
    Signed,
    /// The owner of the bucket.
    Owner,
    /// Who was granted this on the bucket.
    Bucket(Permission),
    /// Who was granted this on the object; its owner.
    Object(Permission),
    /// It is asked for each object that the request names.
    Each,
}

/// What an operation takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rule {
    /// The action of policies.
    pub(super) action: &'static str,
    /// The action where a version is named, if it is another.
    versioned: &'static str,
    pub(super) need: Need,
}

const fn rule(action: &'static str, need: Need) -> Rule {
    Rule { action, versioned: action, need }
}

const fn versioned(action: &'static str, versioned: &'static str, need: Need) -> Rule {
    Rule { action, versioned, need }
}

/// The rule of passing over a retention in governance mode.
pub(super) const BYPASS_GOVERNANCE: Rule = rule("s3:BypassGovernanceRetention", Need::Owner);

/// The rule of each operation.
pub(super) const fn rule_of(operation: Operation) -> Rule {
    use Operation as Op;
    use Permission::{FullControl, Read, ReadAcp, Write, WriteAcp};
    match operation {
        Op::ListBuckets => rule("s3:ListAllMyBuckets", Need::Signed),
        Op::CreateBucket => rule("s3:CreateBucket", Need::Signed),
        Op::DeleteBucket => rule("s3:DeleteBucket", Need::Owner),
        Op::HeadBucket | Op::ListObjects | Op::ListObjectsV2 => rule("s3:ListBucket", Need::Bucket(Read)),
        Op::ListObjectVersions => rule("s3:ListBucketVersions", Need::Bucket(Read)),
        Op::ListMultipartUploads => rule("s3:ListBucketMultipartUploads", Need::Bucket(Read)),
        Op::GetBucketAcl => rule("s3:GetBucketAcl", Need::Bucket(ReadAcp)),
        Op::PutBucketAcl => rule("s3:PutBucketAcl", Need::Bucket(WriteAcp)),
        Op::GetBucketLocation => rule("s3:GetBucketLocation", Need::Owner),
        Op::GetBucketVersioning => rule("s3:GetBucketVersioning", Need::Owner),
        Op::PutBucketVersioning => rule("s3:PutBucketVersioning", Need::Owner),
        Op::GetBucketConfiguration(kind) => rule(action_of_configuration(kind).0, Need::Owner),
        Op::PutBucketConfiguration(kind) => rule(action_of_configuration(kind).1, Need::Owner),
        Op::DeleteBucketConfiguration(Kind::Policy) => rule("s3:DeleteBucketPolicy", Need::Owner),
        Op::DeleteBucketConfiguration(kind) => rule(action_of_configuration(kind).1, Need::Owner),
        Op::DeleteObjects => rule("s3:DeleteObject", Need::Each),
        Op::GetObject | Op::HeadObject => versioned("s3:GetObject", "s3:GetObjectVersion", Need::Object(Read)),
        Op::GetObjectAttributes => {
            versioned("s3:GetObjectAttributes", "s3:GetObjectVersionAttributes", Need::Object(Read))
        }
        Op::GetObjectAcl => versioned("s3:GetObjectAcl", "s3:GetObjectVersionAcl", Need::Object(ReadAcp)),
        Op::PutObjectAcl => versioned("s3:PutObjectAcl", "s3:PutObjectVersionAcl", Need::Object(WriteAcp)),
        Op::GetObjectTagging => {
            versioned("s3:GetObjectTagging", "s3:GetObjectVersionTagging", Need::Object(FullControl))
        }
        Op::PutObjectTagging => {
            versioned("s3:PutObjectTagging", "s3:PutObjectVersionTagging", Need::Object(FullControl))
        }
        Op::DeleteObjectTagging => {
            versioned("s3:DeleteObjectTagging", "s3:DeleteObjectVersionTagging", Need::Object(FullControl))
        }
        Op::GetObjectRetention => rule("s3:GetObjectRetention", Need::Object(FullControl)),
        Op::GetObjectLegalHold => rule("s3:GetObjectLegalHold", Need::Object(FullControl)),
        Op::PutObjectRetention => rule("s3:PutObjectRetention", Need::Owner),
        Op::PutObjectLegalHold => rule("s3:PutObjectLegalHold", Need::Owner),
        Op::PutObject
        | Op::CopyObject
        | Op::CreateMultipartUpload
        | Op::UploadPart
        | Op::UploadPartCopy
        | Op::CompleteMultipartUpload => rule("s3:PutObject", Need::Bucket(Write)),
        Op::DeleteObject => versioned("s3:DeleteObject", "s3:DeleteObjectVersion", Need::Bucket(Write)),
        Op::AbortMultipartUpload => rule("s3:AbortMultipartUpload", Need::Bucket(Write)),
        Op::ListParts => rule("s3:ListMultipartUploadParts", Need::Bucket(Write)),
        // Its fields say who asks and for what: it is asked for as a put when they are read.
        Op::PostObject => rule("s3:PutObject", Need::Each),
        // It tells what the bucket tells every page of another origin, before such a page may sign.
        // What the token service is asked for is about no object.
        Op::Preflight | Op::AssumeRole | Op::GetCallerIdentity => rule("", Need::Each),
    }
}

/// The actions that read and change a configuration.
const fn action_of_configuration(kind: Kind) -> (&'static str, &'static str) {
    match kind {
        Kind::Accelerate => ("s3:GetAccelerateConfiguration", "s3:PutAccelerateConfiguration"),
        Kind::Cors => ("s3:GetBucketCORS", "s3:PutBucketCORS"),
        Kind::Encryption => ("s3:GetEncryptionConfiguration", "s3:PutEncryptionConfiguration"),
        Kind::Lifecycle => ("s3:GetLifecycleConfiguration", "s3:PutLifecycleConfiguration"),
        Kind::Logging => ("s3:GetBucketLogging", "s3:PutBucketLogging"),
        Kind::Notification => ("s3:GetBucketNotification", "s3:PutBucketNotification"),
        Kind::ObjectLock => ("s3:GetBucketObjectLockConfiguration", "s3:PutBucketObjectLockConfiguration"),
        Kind::OwnershipControls => ("s3:GetBucketOwnershipControls", "s3:PutBucketOwnershipControls"),
        Kind::Policy => ("s3:GetBucketPolicy", "s3:PutBucketPolicy"),
        Kind::PolicyStatus => ("s3:GetBucketPolicyStatus", "s3:PutBucketPolicy"),
        Kind::PublicAccessBlock => ("s3:GetBucketPublicAccessBlock", "s3:PutBucketPublicAccessBlock"),
        Kind::Replication => ("s3:GetReplicationConfiguration", "s3:PutReplicationConfiguration"),
        Kind::RequestPayment => ("s3:GetBucketRequestPayment", "s3:PutBucketRequestPayment"),
        Kind::Tagging => ("s3:GetBucketTagging", "s3:PutBucketTagging"),
        Kind::Website => ("s3:GetBucketWebsite", "s3:PutBucketWebsite"),
    }
}

/// One thing that a request wants to do.
#[derive(Clone, Copy)]
pub(super) struct Wish<'a> {
    pub(super) rule: Rule,
    pub(super) target: Target<'a>,
    /// The tags that it sets, where the head does not say them.
    pub(super) tags: Option<&'a [(String, String)]>,
    /// The upload that it is about, where a policy asks for what was said when that was begun.
    pub(super) upload: Option<&'a Upload>,
    /// The upload that it lists or gives up, which whoever has begun it may.
    pub(super) begun: Option<&'a Upload>,
}

impl<'a> Wish<'a> {
    pub(super) const fn new(rule: Rule, target: Target<'a>) -> Self {
        Self { rule, target, tags: None, upload: None, begun: None }
    }
}

impl Call<'_> {
    /// Lets the request's own operation pass, or not; what that rests on.
    pub(super) async fn authorize(&self) -> Result<Grounds, S3Error> {
        let rule = rule_of(self.route.operation);
        match rule.need {
            Need::Each => Ok(Grounds::Apart),
            Need::Signed if self.user().is_none() => Err(Code::AccessDenied.into()),
            Need::Signed => self.allow_by_own_policy().map(|()| Grounds::Apart),
            // It is asked for when the tags have been read.
            _ if self.route.operation == Operation::PutObjectTagging && self.is_up_to_tags().await? => {
                Ok(Grounds::Apart)
            }
            _ => {
                let grounds = self.allow(&Wish::new(rule, self.target())).await?;
                self.check_headers().await?;
                Ok(grounds)
            }
        }
    }

    /// Lets an operation pass that is about no bucket which is there, or not: who has a policy needs its word. Grants and a lock that
    /// come with a new bucket are asked for too, as for one that is there.
    fn allow_by_own_policy(&self) -> Result<(), S3Error> {
        let own = self.own_policy()?;
        let policies: Vec<&Policy> = own.iter().chain(self.who.session_policy()).collect();
        if policies.is_empty() {
            return Ok(());
        }
        let has = |prefix: &str| self.head.headers.iter().any(|(name, _)| name.starts_with(prefix));
        let wants_grants = has("x-amz-acl") || has("x-amz-grant-");
        let wants_lock = has("x-amz-bucket-object-lock-enabled");
        let beside = [
            (wants_grants, Operation::PutBucketAcl),
            (wants_lock, Operation::PutBucketConfiguration(Kind::ObjectLock)),
            (wants_lock, Operation::PutBucketVersioning),
            (has("x-amz-object-ownership"), Operation::PutBucketConfiguration(Kind::OwnershipControls)),
        ];
        let wanted = beside.into_iter().filter(|(is_wanted, _)| *is_wanted).map(|(_, operation)| operation);
        let is_allowed = |operation| {
            let wish = Wish::new(rule_of(operation), self.target());
            policies.iter().all(|policy| self.judge(policy, &wish, None) == PolicyVerdict::Allow)
        };
        let are_allowed = core::iter::once(self.route.operation).chain(wanted).all(is_allowed);
        if are_allowed { Ok(()) } else { Err(Code::AccessDenied.into()) }
    }

    /// Whether the bucket's policy, or the user's, has conditions on tags that a request sets.
    async fn is_up_to_tags(&self) -> Result<bool, S3Error> {
        let bucket = self.s3.service.buckets.get(&self.route.bucket).await?;
        let policy = bucket.attributes.get(POLICY).and_then(|text| Policy::decode(text.as_bytes()).ok());
        let own = self.own_policy()?;
        Ok(policy.iter().chain(&own).chain(self.who.session_policy()).any(Policy::needs_new_tags))
    }

    /// The policy of the user who asks; nothing for the root user. It was read when it was put. One that cannot be read any more may have
    /// denied what is asked.
    pub(super) fn own_policy(&self) -> Result<Option<Policy>, S3Error> {
        let user = self.user().filter(|user| !user.is_root);
        let text = user.and_then(|user| self.s3.credentials.user_policy(&user.id));
        text.map(|text| Policy::decode_of_user(text.as_bytes()).map_err(|_| Code::AccessDenied.into())).transpose()
    }

    /// Lets headers pass that grant something or set tags, or not.
    async fn check_headers(&self) -> Result<(), S3Error> {
        use Operation as Op;
        if !matches!(self.route.operation, Op::PutObject | Op::CopyObject | Op::CreateMultipartUpload) {
            return Ok(());
        }
        let is_grant = |name: &str| name == "x-amz-acl" || name.starts_with("x-amz-grant-");
        if self.head.headers.iter().any(|(name, _)| is_grant(name)) {
            self.allow_grants().await?;
        }
        let has_tags = self.head.header("x-amz-tagging").is_some();
        if has_tags { self.allow_beside_put(Op::PutObjectTagging, None).await } else { Ok(()) }
    }

    /// Lets grants of a put pass, or not. Those to the owners need no permission of their own: AWS's examples of policies allow
    /// `s3:PutObject` alone and demand that the bucket's owner is granted full control. They must not be denied.
    async fn allow_grants(&self) -> Result<(), S3Error> {
        let bucket = self.s3.service.buckets.get(&self.route.bucket).await?;
        let owners = Owners { owner: self.user_id(), bucket_owner: self.owner_of_bucket(&bucket) };
        // What cannot be read is refused by the put itself.
        let acl = Acl::of_headers(self.head, owners, &*self.s3.credentials).unwrap_or_default().unwrap_or_default();
        if !acl.is_for_owners(owners) {
            return self.allow_beside_put(Operation::PutObjectAcl, None).await;
        }
        let is_root = self.user().is_some_and(|user| user.is_root);
        let wish = Wish::new(rule_of(Operation::PutObjectAcl), self.target());
        self.deny_by_session(&wish).await?;
        if is_root { Ok(()) } else { self.is_allowed(&bucket, &wish).await.map(drop) }
    }

    /// Lets pass what a put does beside the put, or not. Whom the policy allows `s3:PutObject` has to be allowed this too, as AWS has
    /// it. Who may put by the bucket's access control list may do it: such a list has no other word for it, and ceph/s3-tests has
    /// forms without a signature that set tags (`test_post_object_tags_anonymous_request`).
    pub(super) async fn allow_beside_put(
        &self,
        operation: Operation,
        tags: Option<&[(String, String)]>,
    ) -> Result<(), S3Error> {
        let rule = Rule { need: rule_of(Operation::PutObject).need, ..rule_of(operation) };
        self.allow(&Wish { tags, ..Wish::new(rule, self.target()) }).await.map(drop)
    }

    /// The condition of a write. One that names entity tags tells whether the object has them: it takes the right to read it.
    pub(super) async fn write_condition(&self) -> Result<Condition, S3Error> {
        let condition = write_condition(self.head)?;
        self.allow_condition(&condition, self.target()).await?;
        Ok(condition)
    }

    /// Lets a condition of a write pass, or not.
    pub(super) async fn allow_condition(&self, condition: &Condition, target: Target<'_>) -> Result<(), S3Error> {
        let names_one = |etags: &Option<Vec<String>>| etags.iter().flatten().any(|etag| etag != "*");
        if !names_one(&condition.etag_is) && !names_one(&condition.etag_is_not) {
            return Ok(());
        }
        match self.allow(&Wish::new(rule_of(Operation::GetObject), target)).await {
            Err(error) if error.code != Code::AccessDenied => Ok(()),
            other => other.map(drop),
        }
    }

    /// Who has sent the request; nothing if nobody has signed it.
    pub(super) fn user(&self) -> Option<&User> {
        self.who.user()
    }

    /// The owner of something new.
    pub(super) fn user_id(&self) -> &str {
        self.user().map_or("anonymous", |user| user.id.as_str())
    }

    /// The owner of a bucket.
    pub(super) fn owner_of_bucket<'a>(&'a self, bucket: &'a Bucket) -> &'a str {
        bucket.attributes.get(OWNER).unwrap_or(&self.s3.settings.owner_id)
    }

    /// The user of an id, as documents tell it.
    pub(super) fn user_of(&self, id: &str) -> User {
        let unknown = || User { id: id.to_owned(), name: id.to_owned(), is_root: false };
        self.s3.credentials.user(id).unwrap_or_else(unknown)
    }

    /// Lets a wish pass, or not; what that rests on. Nothing passes on an object that is not there, unless the bucket's policy or owner
    /// says so: it could be put before the operation runs.
    pub(super) async fn allow(&self, wish: &Wish<'_>) -> Result<Grounds, S3Error> {
        if !self.who.session_policy().is_some_and(|policy| policy.needs_tags() || policy.needs_upload()) {
            self.allow_by_session(wish).await?;
        }
        let law = self.law(wish.target.bucket).await?;
        let upload = if law.needs_upload() { self.upload(wish).await? } else { None };
        let begun = self.begun(wish).await?;
        let wish = &Wish { upload: upload.as_ref(), begun: begun.as_ref(), ..*wish };
        let grounds = if law.needs_tags() && !wish.target.key.is_empty() { Grounds::Object } else { Grounds::Apart };
        let object = if grounds == Grounds::Object { self.object(wish.target).await? } else { None };
        let Some(permission) = law.lacks(wish, object.as_ref())? else { return Ok(grounds) };
        let object = match object {
            Some(object) => object,
            None => match self.s3.service.objects.head(wish.target).await {
                Ok(object) => object,
                Err(error) => return Err(self.told_of_absence(error.into(), wish.target).await),
            },
        };
        if law.grants(permission, &object) { Ok(Grounds::Object) } else { Err(Code::AccessDenied.into()) }
    }

    /// Asks again about the object that an operation has found, if what the wish passed for was one that had its key when the request
    /// came: an object that was put meanwhile may be open to others.
    pub(super) async fn allow_found(&self, grounds: Grounds, wish: &Wish<'_>, found: &Object) -> Result<(), S3Error> {
        match grounds {
            Grounds::Apart => Ok(()),
            Grounds::Object => self.law(wish.target.bucket).await?.check(wish, found),
        }
    }

    /// The same for the request's own operation.
    pub(super) async fn allow_own_found(&self, found: &Object) -> Result<(), S3Error> {
        self.allow_found(self.grounds, &Wish::new(rule_of(self.route.operation), self.target()), found).await
    }

    /// What wishes in a bucket are judged by.
    pub(super) async fn law(&self, bucket: &str) -> Result<Law<'_>, S3Error> {
        let is_root = self.user().is_some_and(|user| user.is_root);
        let bucket = if is_root { None } else { Some(self.s3.service.buckets.get(bucket).await?) };
        let own = if is_root { None } else { self.own_policy()? };
        let of_bucket = bucket.as_ref().map(policy_of).transpose()?.flatten();
        Ok(Law { call: self, bucket, own, of_bucket })
    }

    /// What the policy of temporary credentials says of a wish; that it is allowed if there is none.
    async fn judge_by_session(&self, wish: &Wish<'_>) -> Result<PolicyVerdict, S3Error> {
        let Some(policy) = self.who.session_policy() else { return Ok(PolicyVerdict::Allow) };
        let needs_object = policy.needs_tags() && !wish.target.key.is_empty();
        let object = if needs_object { self.object(wish.target).await? } else { None };
        Ok(self.judge(policy, wish, object.as_ref()))
    }

    /// Lets a wish pass as far as temporary credentials go, or not: their policy has to allow it, to the root user too.
    async fn allow_by_session(&self, wish: &Wish<'_>) -> Result<(), S3Error> {
        match self.judge_by_session(wish).await? {
            PolicyVerdict::Allow => Ok(()),
            PolicyVerdict::Deny | PolicyVerdict::Silent => Err(Code::AccessDenied.into()),
        }
    }

    /// Lets a wish pass that no policy has to allow, unless that of temporary credentials denies it.
    async fn deny_by_session(&self, wish: &Wish<'_>) -> Result<(), S3Error> {
        match self.judge_by_session(wish).await? {
            PolicyVerdict::Deny => Err(Code::AccessDenied.into()),
            PolicyVerdict::Allow | PolicyVerdict::Silent => Ok(()),
        }
    }

    /// Whether the policy of temporary credentials lets them list what is in a bucket, in that way.
    fn session_may_list(&self, bucket: &str, list: Operation) -> bool {
        let wish = Wish::new(rule_of(list), Target { bucket, key: "", version: None });
        self.who.session_policy().is_none_or(|policy| self.judge(policy, &wish, None) == PolicyVerdict::Allow)
    }

    /// Whether policies and the bucket let a wish pass, and the object of the wish if that had to be looked at.
    ///
    /// # Errors
    /// [`Code::AccessDenied`]: a policy denies it.
    async fn is_allowed(&self, bucket: &Bucket, wish: &Wish<'_>) -> Result<(bool, Option<Object>), S3Error> {
        let (own, of_bucket) = (self.own_policy()?, policy_of(bucket)?);
        let policies = Policies { own: own.as_ref(), of_bucket: of_bucket.as_ref() };
        let object =
            if policies.need_tags() && !wish.target.key.is_empty() { self.object(wish.target).await? } else { None };
        Ok((self.is_allowed_by(bucket, &policies, wish, object.as_ref())?, object))
    }

    /// Whether these let a wish pass: the user's policy, the bucket's, its owner, its access control list.
    ///
    /// # Errors
    /// [`Code::AccessDenied`]: a policy denies it.
    fn is_allowed_by(
        &self,
        bucket: &Bucket,
        policies: &Policies<'_>,
        wish: &Wish<'_>,
        object: Option<&Object>,
    ) -> Result<bool, S3Error> {
        let block = PublicAccessBlock::of(&bucket.attributes);
        let own = policies.own.map(|own| self.judge(own, wish, object));
        if own == Some(PolicyVerdict::Deny) {
            return Err(Code::AccessDenied.into());
        }
        let is_owner = own.is_none() && self.user().is_some_and(|user| user.id == self.owner_of_bucket(bucket));
        if let Some(policy) = policies.of_bucket {
            match self.judge(policy, wish, object) {
                PolicyVerdict::Deny if is_owner && is_way_out(wish.rule.action) => {}
                PolicyVerdict::Deny => return Err(Code::AccessDenied.into()),
                // Whoever changes the policy has every right in the bucket, so nobody can be given that.
                PolicyVerdict::Allow if is_change_of_policy(wish.rule.action) && !is_owner => {}
                PolicyVerdict::Allow if !block.restricts_buckets || !policy.is_public() || is_owner => return Ok(true),
                PolicyVerdict::Allow | PolicyVerdict::Silent => {}
            }
        }
        if own == Some(PolicyVerdict::Allow) {
            return Ok(true);
        }
        let user = self.user().map(|user| user.id.as_str());
        let is_granted = |permission| list_of(bucket, &bucket.attributes).grants(user, permission, block.ignores_acls);
        let has_begun = wish.begun.is_some_and(|upload| user == Some(self.initiator_in(bucket, upload)));
        Ok(is_owner || has_begun || matches!(wish.rule.need, Need::Bucket(permission) if is_granted(permission)))
    }

    /// The error that the sender is told. That there is no such object, or version, is told to those who may list what is there;
    /// others are denied, and do not learn which keys there are.
    pub(super) async fn told_of_absence(&self, error: S3Error, target: Target<'_>) -> S3Error {
        let list = match error.code {
            Code::NoSuchVersion => Operation::ListObjectVersions,
            Code::NoSuchKey => Operation::ListObjects,
            // The version that was asked for is a mark of a deletion.
            Code::MethodNotAllowed if error.marker.is_some() => Operation::ListObjectVersions,
            _ => return error,
        };
        if self.may_list(target.bucket, list).await { error } else { Code::AccessDenied.into() }
    }

    async fn may_list(&self, bucket: &str, list: Operation) -> bool {
        if !self.session_may_list(bucket, list) {
            return false;
        }
        if self.user().is_some_and(|user| user.is_root) {
            return true;
        }
        let Ok(found) = self.s3.service.buckets.get(bucket).await else { return false };
        self.own_policy().is_ok_and(|own| self.may_list_in(&found, own.as_ref(), list))
    }

    /// Whether the sender of the request may list what is in a bucket, in that way.
    fn may_list_in(&self, bucket: &Bucket, own: Option<&Policy>, list: Operation) -> bool {
        let Ok(of_bucket) = policy_of(bucket) else { return false };
        let wish = Wish::new(rule_of(list), Target { bucket: &bucket.name, key: "", version: None });
        let policies = Policies { own, of_bucket: of_bucket.as_ref() };
        self.is_allowed_by(bucket, &policies, &wish, None).unwrap_or(false)
    }

    /// Whether a bucket is in the list of buckets of the sender, who has this policy: one of its own, or one that the policy lets it look
    /// into.
    pub(super) fn is_listed(&self, bucket: &Bucket, own: Option<&Policy>) -> bool {
        self.user().is_some_and(|user| match own {
            _ if !self.session_may_list(&bucket.name, Operation::ListObjectsV2) => false,
            _ if user.is_root => true,
            None => user.id == self.owner_of_bucket(bucket),
            Some(_) => self.may_list_in(bucket, own, Operation::ListObjectsV2),
        })
    }

    /// The object of a wish, if there is one.
    async fn object(&self, target: Target<'_>) -> Result<Option<Object>, S3Error> {
        match self.s3.service.objects.head(target).await {
            Ok(object) => Ok(Some(object)),
            Err(Error::NoSuchKey | Error::NoSuchVersion | Error::Deleted(_) | Error::IsMarker(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The upload that the request adds to or completes, if there is one.
    async fn upload(&self, wish: &Wish<'_>) -> Result<Option<Upload>, S3Error> {
        use Operation as Op;
        let is_part = matches!(self.route.operation, Op::UploadPart | Op::UploadPartCopy | Op::CompleteMultipartUpload);
        if !is_part || wish.rule != rule_of(self.route.operation) {
            return Ok(None);
        }
        match upload::find(self, &upload::upload_of(self)).await {
            Ok((upload, _)) => Ok(Some(upload)),
            // It may be completed already: a repeated completion is judged by the object, which says the same.
            Err(Error::NoSuchUpload) if self.route.operation == Op::CompleteMultipartUpload => {
                let object = self.object(wish.target).await?;
                let of = |object: Object| {
                    let Object { key, modified_ms: begun_ms, attributes, envelope, .. } = object;
                    Upload { id: upload::upload_of(self), key, begun_ms, attributes, envelope }
                };
                Ok(object.map(of))
            }
            Err(Error::NoSuchUpload) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The upload that a signed request lists or gives up, if there is one.
    async fn begun(&self, wish: &Wish<'_>) -> Result<Option<Upload>, S3Error> {
        let operation = self.route.operation;
        let is_about_one = matches!(operation, Operation::ListParts | Operation::AbortMultipartUpload);
        if !is_about_one || self.user().is_none() || wish.rule != rule_of(operation) {
            return Ok(None);
        }
        match upload::find(self, &upload::upload_of(self)).await {
            Ok((upload, _)) => Ok(Some(upload)),
            Err(Error::NoSuchUpload) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn judge(&self, policy: &Policy, wish: &Wish<'_>, object: Option<&Object>) -> PolicyVerdict {
        let Target { bucket, key, version } = wish.target;
        let principal = match self.user() {
            Some(user) => Principal::User(&user.id, &user.name),
            None => Principal::Anonymous,
        };
        let resource = if key.is_empty() { bucket.to_owned() } else { format!("{bucket}/{key}") };
        let action = if version.is_some() { wish.rule.versioned } else { wish.rule.action };
        let values = |name: &str| self.condition_values(name, wish, object);
        policy.judge(&PolicyRequest { principal, action, resource: &resource, values: &values })
    }

    /// The values of a condition key of policies.
    fn condition_values(&self, name: &str, wish: &Wish<'_>, object: Option<&Object>) -> Vec<String> {
        let (head, one) = (self.head, |text: Option<&str>| text.map(str::to_owned).into_iter().collect());
        let in_head = || match wish.upload {
            Some(upload) => tags(&upload.attributes),
            None => head.header("x-amz-tagging").and_then(|text| Query::decode(text).ok()).unwrap_or_default(),
        };
        let owned = |tags: Query| tags.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let tagging = || wish.tags.map_or_else(|| owned(in_head()), <[_]>::to_vec);
        if let Some(tag) = name.strip_prefix("s3:ExistingObjectTag/") {
            return one(object.map(|object| tags(&object.attributes)).as_ref().and_then(|tags| tags.get(tag)));
        }
        if let Some(tag) = name.strip_prefix("s3:RequestObjectTag/") {
            return tagging().into_iter().filter(|(name, _)| name == tag).map(|(_, value)| value).collect();
        }
        if let Some(header) = name.strip_prefix("s3:").filter(|name| name.starts_with("x-amz-")) {
            let begun = wish.upload.map(|upload| self.encryption_headers(upload.envelope.as_ref())).unwrap_or_default();
            let begun = begun.iter().find(|(name, _)| name == header).map(|(_, value)| value.as_str());
            let value = head.header(header).or(begun);
            return one(value.map(|value| if header == KMS_KEY { short_name(value) } else { value }));
        }
        match name {
            "aws:SourceIp" => self.from.peer.map(|peer| peer.to_string()).into_iter().collect(),
            "aws:SecureTransport" => vec![self.from.is_encrypted.to_string()],
            "aws:UserAgent" => one(head.header("user-agent")),
            "aws:Referer" => one(head.header("referer")),
            "aws:userid" => one(self.user().map(|user| user.id.as_str())),
            "aws:username" => one(self.user().map(|user| user.name.as_str())),
            "s3:RequestObjectTagKeys" => tagging().into_iter().map(|(name, _)| name).collect(),
            "s3:VersionId" => wish.target.version.map(|version| version.to_string()).into_iter().collect(),
            "s3:authType" => one(self.who.mechanism().map(|mechanism| match mechanism.place {
                Place::Header => "REST-HEADER",
                Place::Query => "REST-QUERY-STRING",
                Place::Form => "POST",
            })),
            "s3:signatureversion" => one(self.who.mechanism().map(|mechanism| match mechanism.version {
                Version::Two => "AWS",
                Version::Four => "AWS4-HMAC-SHA256",
            })),
            name => one(name.strip_prefix("s3:").and_then(|name| head.query.get(name))),
        }
    }
}

/// What a wish was let pass for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Grounds {
    /// It may be done to any object that the key has.
    Apart,
    /// The object that had the key: its tags, its owner, its access control list.
    Object,
}

/// What wishes in one bucket are judged by, as it is at one moment.
pub(super) struct Law<'a> {
    call: &'a Call<'a>,
    /// Nothing for the root user, who may do everything.
    bucket: Option<Bucket>,
    own: Option<Policy>,
    of_bucket: Option<Policy>,
}

impl Law<'_> {
    fn policies(&self) -> Policies<'_> {
        Policies { own: self.own.as_ref(), of_bucket: self.of_bucket.as_ref() }
    }

    /// Whether a policy has conditions on tags of the object that is there.
    fn needs_tags(&self) -> bool {
        self.policies().need_tags() || self.call.who.session_policy().is_some_and(Policy::needs_tags)
    }

    /// Whether a policy has conditions on what is said when an upload is begun.
    fn needs_upload(&self) -> bool {
        let policies = [self.own.as_ref(), self.of_bucket.as_ref(), self.call.who.session_policy()];
        policies.into_iter().flatten().any(Policy::needs_upload)
    }

    /// What the object has to grant for a wish to pass; nothing if it passes without.
    ///
    /// # Errors
    /// [`Code::AccessDenied`]: it does not pass whatever the object grants.
    fn lacks(&self, wish: &Wish<'_>, object: Option<&Object>) -> Result<Option<Permission>, S3Error> {
        let session = self.call.who.session_policy();
        if session.is_some_and(|policy| self.call.judge(policy, wish, object) != PolicyVerdict::Allow) {
            return Err(Code::AccessDenied.into());
        }
        let Some(bucket) = &self.bucket else { return Ok(None) };
        if self.call.is_allowed_by(bucket, &self.policies(), wish, object)? {
            return Ok(None);
        }
        match wish.rule.need {
            Need::Object(permission) => Ok(Some(permission)),
            _ => Err(Code::AccessDenied.into()),
        }
    }

    /// Whether an object grants this to the sender: who owns it, or is in its list.
    fn grants(&self, permission: Permission, object: &Object) -> bool {
        let Some(bucket) = &self.bucket else { return true };
        let user = self.call.user().map(|user| user.id.as_str());
        let is_owner = user == Some(self.call.owner_in(bucket, &object.attributes)) && self.own.is_none();
        let ignores = PublicAccessBlock::of(&bucket.attributes).ignores_acls;
        is_owner || list_of(bucket, &object.attributes).grants(user, permission, ignores)
    }

    /// Decides whether all of these wishes pass with an object, for a change that finds one later.
    pub(super) fn decides<'b>(&'b self, wishes: &'b [Wish<'b>]) -> impl Fn(&Object) -> bool + Send + Sync + 'b {
        move |found| wishes.iter().all(|wish| self.check(wish, found).is_ok())
    }

    /// Lets a wish pass with this object, or not.
    pub(super) fn check(&self, wish: &Wish<'_>, object: &Object) -> Result<(), S3Error> {
        match self.lacks(wish, Some(object))? {
            Some(permission) if !self.grants(permission, object) => Err(Code::AccessDenied.into()),
            _ => Ok(()),
        }
    }
}

/// The policies that are asked about one wish.
struct Policies<'a> {
    /// That of the user, if there is one.
    own: Option<&'a Policy>,
    of_bucket: Option<&'a Policy>,
}

impl Policies<'_> {
    /// Whether one has conditions on tags of the object that is there.
    fn need_tags(&self) -> bool {
        [self.own, self.of_bucket].into_iter().flatten().any(Policy::needs_tags)
    }
}

/// The policy of a bucket. It was read when it was put. One that cannot be read any more may have denied what is asked.
fn policy_of(bucket: &Bucket) -> Result<Option<Policy>, S3Error> {
    let text = bucket.attributes.get(POLICY);
    text.map(|text| Policy::decode(text.as_bytes()).map_err(|_| Code::AccessDenied.into())).transpose()
}

/// What an owner may do whatever the policy says, so that nobody locks a bucket for good.
fn is_way_out(action: &str) -> bool {
    action == "s3:GetBucketPolicy" || is_change_of_policy(action)
}

fn is_change_of_policy(action: &str) -> bool {
    matches!(action, "s3:PutBucketPolicy" | "s3:DeleteBucketPolicy")
}
