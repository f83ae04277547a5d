//! Public access block of a bucket: policies and access control lists that let everybody in are refused, or do not count.

use super::document::{check_flag, decode};
use super::error::S3Error;
use super::xml::XmlWriter;
use crate::api::Attributes;

/// The attribute of a bucket with its block: the names of the flags that are set.
pub(super) const PUBLIC_ACCESS_BLOCK: &str = "public-access-block";

/// What is blocked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct PublicAccessBlock {
    /// Public access control lists are refused.
    pub(super) blocks_acls: bool,
    /// Those that are there do not count.
    pub(super) ignores_acls: bool,
    /// Public policies are refused.
    pub(super) blocks_policy: bool,
    /// A public policy lets nobody in but the owner.
    pub(super) restricts_buckets: bool,
}

const NAMES: [&str; 4] = ["BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets"];

impl PublicAccessBlock {
    const fn of_flags([blocks_acls, ignores_acls, blocks_policy, restricts_buckets]: [bool; 4]) -> Self {
        Self { blocks_acls, ignores_acls, blocks_policy, restricts_buckets }
    }

    const fn flags(self) -> [bool; 4] {
        [self.blocks_acls, self.ignores_acls, self.blocks_policy, self.restricts_buckets]
    }

    /// The block that a bucket's attributes keep; none where there is none.
    pub(super) fn of(attributes: &Attributes) -> Self {
        let text = attributes.get(PUBLIC_ACCESS_BLOCK).unwrap_or_default();
        Self::of_flags(NAMES.map(|name| text.split(' ').any(|set| set == name)))
    }

    /// The attribute that keeps it.
    pub(super) fn text(self) -> String {
        let set = NAMES.into_iter().zip(self.flags()).filter(|(_, is_set)| *is_set).map(|(name, _)| name);
        set.collect::<Vec<_>>().join(" ")
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, S3Error> {
        let root = decode(bytes, "PublicAccessBlockConfiguration")?;
        let mut flags = [false; 4];
        for (flag, name) in flags.iter_mut().zip(NAMES) {
            *flag = root.text_of(name).map(check_flag).transpose()?.unwrap_or(false);
        }
        Ok(Self::of_flags(flags))
    }

    pub(super) fn write(self) -> XmlWriter {
        let mut xml = XmlWriter::new("PublicAccessBlockConfiguration");
        NAMES.into_iter().zip(self.flags()).for_each(|(name, flag)| xml.flag(name, flag));
        xml
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_kept() {
        for bits in 0..16_u8 {
            let block = PublicAccessBlock::of_flags([1, 2, 4, 8].map(|bit| bits & bit != 0));
            let kept = Attributes(vec![(PUBLIC_ACCESS_BLOCK.to_owned(), block.text())]);
            assert_eq!(PublicAccessBlock::of(&kept), block);
            assert_eq!(PublicAccessBlock::decode(block.write().finish().as_bytes()), Ok(block));
        }
        let text =
            "<PublicAccessBlockConfiguration><BlockPublicAcls>yes</BlockPublicAcls></PublicAccessBlockConfiguration>";
        assert!(PublicAccessBlock::decode(text.as_bytes()).is_err());
    }
}
