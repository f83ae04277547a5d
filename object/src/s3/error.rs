//! Errors as S3 tells them: a closed list of codes, each with its HTTP status and its usual message.

use core::fmt;

use crate::api;

macro_rules! codes {
    (@text $name:ident) => { stringify!($name) };
    (@text $name:ident $text:literal) => { $text };
    ($($name:ident $(= $text:literal)? $status:literal $message:literal;)*) => {
        /// Error code of a response. The name of a variant is the code that clients read, unless that is no name in Rust.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Code {
            $(#[doc = concat!("HTTP status ", $status, ". ", $message)] $name,)*
        }

        impl Code {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// What stands in the element `Code`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => codes!(@text $name $($text)?),)* }
            }

            /// The HTTP status.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self { $(Self::$name => $status,)* }
            }

            /// What stands in the element `Message` if nothing more precise is known.
            #[must_use]
            pub const fn message(self) -> &'static str {
                match self { $(Self::$name => $message,)* }
            }
        }
    };
}

codes! {
    AccessControlListNotSupported 400 "The bucket does not allow ACLs";
    AccessDenied 403 "Access Denied";
    AccessForbidden 403 "CORSResponse: This CORS request is not allowed.";
    AuthorizationHeaderMalformed 400 "The authorization header that you provided is not valid.";
    AuthorizationQueryParametersError 400 "The authorization query parameters that you provided are not valid.";
    BadDigest 400 "The Content-MD5 or checksum value that you specified did not match what the server received.";
    BadRequest 400 "Bad Request";
    BucketAlreadyExists 409 "The requested bucket name is not available. The bucket namespace is shared by all users of the system.";
    BucketAlreadyOwnedByYou 409 "Your previous request to create the named bucket succeeded and you already own it.";
    BucketNotEmpty 409 "The bucket you tried to delete is not empty.";
    EntityTooLarge 400 "Your proposed upload exceeds the maximum allowed object size.";
    EntityTooSmall 400 "Your proposed upload is smaller than the minimum allowed object size.";
    ExpiredToken 400 "The provided token has expired.";
    IncompleteBody 400 "You did not provide the number of bytes specified by the Content-Length HTTP header.";
    InvalidBucketAclWithObjectOwnership 400 "Bucket cannot have ACLs set with ObjectOwnership's BucketOwnerEnforced setting";
    QuotaExceeded 403 "The bucket would have more bytes than its quota. Deleting objects still works.";
    InsufficientStorage 507 "The drives have no room for this request. Deleting objects still works.";
    InternalError 500 "An internal error occurred. Try again.";
    InvalidAccessKeyId 403 "The AWS access key ID that you provided does not exist in our records.";
    InvalidArgument 400 "Invalid Argument";
    InvalidBucketName 400 "The specified bucket is not valid.";
    InvalidBucketState 409 "The request is not valid with the current state of the bucket.";
    InvalidDigest 400 "The Content-MD5 or checksum value that you specified is not valid.";
    InvalidEncryptionAlgorithmError 400 "The encryption request that you specified is not valid. The valid value is AES256.";
    InvalidPart 400 "One or more of the specified parts could not be found. The part might not have been uploaded, or the specified entity tag might not have matched the part's entity tag.";
    InvalidPartNumber 416 "The requested partnumber is not satisfiable";
    InvalidPartOrder 400 "The list of parts was not in ascending order. The parts list must be specified in order by part number.";
    InvalidPolicyDocument 400 "The content of the form does not meet the conditions specified in the policy document.";
    InvalidRange 416 "The requested range is not satisfiable";
    InvalidRequest 400 "Invalid Request";
    InvalidRetentionPeriod 400 "The retention period is not valid.";
    InvalidStorageClass 400 "The storage class that you specified is not valid.";
    InvalidTag 400 "Your request contains tag input that is not valid.";
    InvalidToken 400 "The provided token is malformed or otherwise not valid.";
    InvalidURI 400 "The specified URI couldn't be parsed.";
    KmsNotFound = "KMS.NotFoundException" 400 "The key that the request names, or the default of the bucket, is not there.";
    KeyTooLongError 400 "Your key is too long.";
    MalformedACLError 400 "The ACL that you provided was not well formed or did not validate against our published schema.";
    MalformedPOSTRequest 400 "The body of your POST request is not well-formed multipart/form-data.";
    MalformedPolicy 400 "The policy is not in a valid format.";
    MalformedTrailerError 400 "The request contained trailing data that was not well-formed or did not conform to our published schema.";
    MalformedXML 400 "The XML that you provided was not well formed or did not validate against our published schema.";
    MaxMessageLengthExceeded 400 "Your request was too large.";
    MaxPostPreDataLengthExceededError 400 "Your POST request fields preceding the upload file were too large.";
    MetadataTooLarge 400 "Your metadata headers exceed the maximum allowed metadata size.";
    MethodNotAllowed 405 "The specified method is not allowed against this resource.";
    MissingContentLength 411 "You must provide the Content-Length HTTP header.";
    MissingSecurityHeader 400 "Your request was missing a required header.";
    NoSuchBucket 404 "The specified bucket does not exist";
    NoSuchBucketPolicy 404 "The bucket policy does not exist";
    NoSuchCORSConfiguration 404 "The CORS configuration does not exist";
    NoSuchKey 404 "The specified key does not exist.";
    NoSuchLifecycleConfiguration 404 "The lifecycle configuration does not exist";
    NoSuchObjectLockConfiguration 404 "The specified object does not have an ObjectLock configuration";
    NoSuchPublicAccessBlockConfiguration 404 "The public access block configuration was not found";
    NoSuchTagSet 404 "The TagSet does not exist";
    NoSuchUpload 404 "The specified multipart upload does not exist. The upload ID might not be valid, or the multipart upload might have been aborted or completed.";
    NoSuchVersion 404 "The specified version does not exist.";
    NoSuchWebsiteConfiguration 404 "The specified bucket does not have a website configuration";
    NotImplemented 501 "A header or query you provided requested a function that is not implemented.";
    NotModified 304 "Not Modified";
    ObjectLockConfigurationNotFoundError 404 "Object Lock configuration does not exist for this bucket";
    OwnershipControlsNotFoundError 404 "The bucket ownership controls were not found";
    PreconditionFailed 412 "At least one of the preconditions that you specified did not hold.";
    ReplicationConfigurationNotFoundError 404 "The replication configuration was not found";
    RequestTimeTooSkewed 403 "The difference between the request time and the server's time is too large.";
    RequestTimeout 400 "Your socket connection to the server was not read from or written to within the timeout period.";
    ServerSideEncryptionConfigurationNotFoundError 404 "The server side encryption configuration was not found";
    ServiceUnavailable 503 "Service is unable to handle request. Please reduce your request rate or try again.";
    SignatureDoesNotMatch 403 "The request signature that the server calculated does not match the signature that you provided. Check your secret access key and signing method.";
    UnresolvableGrantByEmailAddress 400 "The email address that you provided does not match any account on record.";
    XAmzContentSHA256Mismatch 400 "The provided 'x-amz-content-sha256' header does not match what was computed.";
}

impl Code {
    /// The error with a message that says more than the usual one.
    #[must_use]
    pub const fn because(self, message: &'static str) -> S3Error {
        S3Error { code: self, message, marker: None }
    }
}

/// Why a request fails, as its client is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct S3Error {
    /// The code: what programs read.
    pub code: Code,
    /// The message: for people.
    pub message: &'static str,
    /// The mark of a deletion because of which it fails.
    pub marker: Option<Marker>,
}

/// What an error tells of a mark of a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marker {
    /// Which version it is.
    pub version: api::VersionId,
    /// When it was put, in milliseconds since 1970 (UTC).
    pub modified_ms: u64,
}

impl S3Error {
    fn of_marker(self, marker: &api::DeleteMarker) -> Self {
        let marker = Marker { version: marker.version, modified_ms: marker.modified_ms };
        Self { marker: Some(marker), ..self }
    }
}

impl From<Code> for S3Error {
    fn from(code: Code) -> Self {
        code.because(code.message())
    }
}

impl From<api::Error> for S3Error {
    fn from(error: api::Error) -> Self {
        use api::Error;
        match error {
            Error::NoSuchBucket => Code::NoSuchBucket,
            Error::BucketExists => Code::BucketAlreadyOwnedByYou,
            Error::BucketNotEmpty => Code::BucketNotEmpty,
            Error::BadBucketName => Code::InvalidBucketName,
            Error::NoSuchKey => Code::NoSuchKey,
            Error::NoSuchVersion => Code::NoSuchVersion,
            Error::Deleted(marker) => return Self::from(Code::NoSuchKey).of_marker(&marker),
            Error::IsMarker(marker) => return Self::from(Code::MethodNotAllowed).of_marker(&marker),
            Error::NoSuchUpload => Code::NoSuchUpload,
            Error::BadPart(_) => Code::InvalidPart,
            Error::PartTooSmall(_) => Code::EntityTooSmall,
            Error::BadPartOrder => Code::InvalidPartOrder,
            Error::BadRequest(why) => return Code::InvalidArgument.because(why),
            Error::TooLarge => Code::EntityTooLarge,
            Error::ConditionFailed => Code::PreconditionFailed,
            Error::NotModified(_) => Code::NotModified,
            Error::BadRange(_) => Code::InvalidRange,
            Error::Locked => {
                return Code::AccessDenied.because("Access Denied because object protected by object lock.");
            }
            Error::Denied => Code::AccessDenied,
            Error::NotLockable => {
                return Code::InvalidRequest.because("Bucket is missing Object Lock Configuration");
            }
            Error::KeyMissing => {
                let message = "The object was stored using a form of Server Side Encryption. The correct parameters must be provided to retrieve the object.";
                return Code::InvalidRequest.because(message);
            }
            Error::WrongKey => {
                let message = "The provided encryption parameters did not match the ones used originally.";
                return Code::InvalidRequest.because(message);
            }
            Error::KeyNotNeeded => {
                return Code::InvalidRequest.because("The encryption parameters are not applicable to this object.");
            }
            Error::BadState => {
                let message =
                    "Object Lock needs versioning to be enabled on the bucket, and it cannot be suspended then";
                return Code::InvalidBucketState.because(message);
            }
            Error::BadBody => Code::IncompleteBody,
            Error::BodyLost => Code::RequestTimeout,
            Error::Unavailable => Code::ServiceUnavailable,
            Error::Full => Code::InsufficientStorage,
            Error::OverQuota => Code::QuotaExceeded,
            Error::Damaged => Code::InternalError,
        }
        .into()
    }
}

impl fmt::Display for S3Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.name(), self.message)
    }
}

impl core::error::Error for S3Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_named_as_clients_read_them() {
        assert_eq!((Code::NoSuchKey.name(), Code::NoSuchKey.status()), ("NoSuchKey", 404));
        assert_eq!(Code::XAmzContentSHA256Mismatch.name(), "XAmzContentSHA256Mismatch");
        assert_eq!(Code::KmsNotFound.name(), "KMS.NotFoundException");
        assert_eq!(Code::AccessDenied.because("why").to_string(), "AccessDenied: why");
        assert!(Code::ALL.iter().all(|code| (300..600).contains(&code.status()) && !code.message().is_empty()));
    }
}
