//! Expiration: what the rules of a bucket's lifecycle have ended is deleted, page by page.
//!
//! Runs over the seam [`crate::api`], beside requests: a deletion names what was seen (entity tag and time), so that an object that
//! was replaced meanwhile stays. Versions that are locked stay too, and are looked at again in the next round.
//!
//! The caller decides when a page is looked at and how long it pauses before the next one.

use super::lifecycle::Lifecycle;
use crate::api::{
    Attributes, Condition, DeleteMarker, DeleteRequest, Error, ListedVersion, Object, PAGE_MAX, Permit, Service,
    Target, VersionId, VersionsRequest,
};
use crate::lock::Bypass;

/// What a page has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Expired {
    /// Objects and versions that were deleted, or put under a mark of deletion; marks that were removed; uploads that were given up.
    pub ended: u64,
    /// Versions that have ended and are locked.
    pub locked: u64,
    /// What was not deleted for another reason.
    pub failed: u64,
}

impl Expired {
    /// Both together.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self { ended: self.ended + other.ended, locked: self.locked + other.locked, failed: self.failed + other.failed }
    }

    fn note(&mut self, result: &Result<(), Error>) {
        match result {
            Ok(()) => self.ended += 1,
            Err(Error::Locked) => self.locked += 1,
            // It was replaced or deleted meanwhile.
            Err(Error::ConditionFailed | Error::NoSuchKey | Error::NoSuchUpload | Error::Deleted(_)) => {}
            Err(_) => self.failed += 1,
        }
    }
}

/// A round over a bucket: where the next page begins, and what is known of the key there.
#[derive(Debug, Default)]
pub struct Round {
    after: Option<(String, Option<VersionId>)>,
    key: String,
    /// When the version before this one of the key was put: since then this one is not current.
    replaced_ms: u64,
    /// Versions of the key that were met and are not current.
    noncurrent: u32,
    /// A mark of a deletion that is the only version of the key, as far as is known.
    marker: Option<DeleteMarker>,
}

impl Round {
    /// Looks at one page of versions and deletes what has ended. Whether there is more.
    ///
    /// # Errors
    /// The page could not be read: the round can go on later.
    pub async fn page(
        &mut self,
        service: &Service,
        bucket: &str,
        rules: &Lifecycle,
        now_ms: u64,
    ) -> Result<(Expired, bool), Error> {
        let (after, after_version) = self.after.clone().unwrap_or_default();
        let request = VersionsRequest { after, after_version, limit: PAGE_MAX, ..VersionsRequest::default() };
        let page = service.versions.list(bucket, &request).await?;
        let at = Looking { service, bucket, rules, now_ms };
        let mut expired = Expired::default();
        for line in &page.entries {
            match line {
                ListedVersion::Object(object, is_current) => self.object(&at, object, *is_current, &mut expired).await,
                ListedVersion::Marker(marker, is_current) => {
                    self.begin(&at, &marker.key, &mut expired).await;
                    if *is_current {
                        self.marker = Some(marker.clone());
                    } else {
                        self.marker = None;
                        self.noncurrent += 1;
                    }
                    self.replaced_ms = marker.modified_ms;
                }
                ListedVersion::Prefix(_) => {}
            }
        }
        let is_more = page.next.is_some();
        if !is_more {
            self.begin(&at, "", &mut expired).await;
        }
        self.after = page.next;
        Ok((expired, is_more))
    }

    /// A line of this key follows: what is known of another key ends.
    async fn begin(&mut self, at: &Looking<'_>, key: &str, expired: &mut Expired) {
        if self.key == key {
            return;
        }
        if let Some(marker) = self.marker.take()
            && at.rules.has_marker_ended(&marker.key, marker.modified_ms, at.now_ms)
        {
            expired.note(&at.delete(&marker.key, Some(marker.version), &Condition::default()).await);
        }
        *self = Self { after: self.after.take(), key: key.to_owned(), ..Self::default() };
    }

    async fn object(&mut self, at: &Looking<'_>, object: &Object, is_current: bool, expired: &mut Expired) {
        self.begin(at, &object.key, expired).await;
        self.marker = None;
        let seen = Condition {
            etag_is: Some(vec![object.etag.clone()]),
            put_at_ms: Some(object.modified_ms),
            ..Condition::default()
        };
        if is_current {
            if at.rules.has_ended(object, at.now_ms) {
                expired.note(&at.delete(&object.key, None, &seen).await);
            }
        } else {
            if at.rules.has_noncurrent_ended(object, self.replaced_ms, self.noncurrent, at.now_ms) {
                expired.note(&at.delete(&object.key, object.version, &seen).await);
            }
            self.noncurrent += 1;
        }
        self.replaced_ms = object.modified_ms;
    }
}

/// What is looked at, and when.
struct Looking<'a> {
    service: &'a Service,
    bucket: &'a str,
    rules: &'a Lifecycle,
    now_ms: u64,
}

impl Looking<'_> {
    async fn delete(&self, key: &str, version: Option<VersionId>, condition: &Condition) -> Result<(), Error> {
        let target = Target { bucket: self.bucket, key, version };
        let attributes = Attributes::default();
        let request = DeleteRequest {
            target,
            condition,
            attributes: &attributes,
            bypass: Bypass::Denied,
            permit: Permit::ALWAYS,
        };
        self.service.objects.delete(request).await.map(drop)
    }
}

/// Gives up uploads of a bucket that have ended.
///
/// # Errors
/// The uploads could not be listed.
pub async fn expire_uploads(service: &Service, bucket: &str, rules: &Lifecycle, now_ms: u64) -> Result<Expired, Error> {
    let mut expired = Expired::default();
    if !rules.is_about_uploads() {
        return Ok(expired);
    }
    for (upload, _) in service.uploads.list(bucket, None).await? {
        if rules.has_upload_ended(&upload.key, upload.begun_ms, now_ms) {
            expired.note(&service.uploads.abort(bucket, &upload.key, &upload.id).await);
        }
    }
    Ok(expired)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_replaced_meanwhile_counts_as_nothing_and_sums_are_of_each_kind() {
        let mut expired = Expired::default();
        let meanwhile = [Error::ConditionFailed, Error::NoSuchKey, Error::NoSuchUpload];
        let failures = [Error::Unavailable, Error::NoSuchBucket, Error::Denied];
        expired.note(&Ok(()));
        for error in meanwhile.into_iter().chain(failures).chain([Error::Locked, Error::Locked]) {
            expired.note(&Err(error));
        }
        assert_eq!(expired, Expired { ended: 1, locked: 2, failed: 3 });
        let other = Expired { ended: 10, locked: 20, failed: 40 };
        assert_eq!(expired.and(other), Expired { ended: 11, locked: 22, failed: 43 });
    }
}
