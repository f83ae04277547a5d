//! What a server needs to join: the cluster's id and its secret, as one word.
//!
//! ```text
//! SECRET                     64 hexadecimal digits; the cluster's id is derived from it
//! CLUSTER.SECRET             after the secret was replaced: 32 digits, a point, 64 digits
//! CLUSTER.SECRET.OLDER       while it is replaced: the newer secret first
//! ```

use ashlar_grid::hello::Secrets;
use ashlar_wire::id::ClusterId;
use ashlar_wire::secret::Secret;

/// The cluster and its secrets.
#[derive(Debug, Clone)]
pub struct Token {
    /// Which cluster.
    pub cluster: ClusterId,
    /// What proves that one belongs to it.
    pub secrets: Secrets,
}

/// The cluster that was founded with this secret.
#[must_use]
pub fn cluster_of(secret: &Secret) -> ClusterId {
    let code = secret.mac("ashlar cluster id v1", &[]);
    let mut id = [0; ClusterId::LEN];
    id.copy_from_slice(&code[..ClusterId::LEN]);
    ClusterId::from_bytes(id)
}

/// The secret that these words stand for, as it is written. As secret as the words are.
#[must_use]
pub fn secret_of(words: &str) -> String {
    blake3::derive_key("ashlar secret of words v1", words.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Token {
    /// The token that `text` writes, space around it passed over; `None` for other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.trim().splitn(4, '.').collect();
        let secret = |text: &str| Secret::from_hex(text).ok();
        Some(match words[..] {
            [only] => {
                let secret = secret(only)?;
                Self { cluster: cluster_of(&secret), secrets: Secrets::new(secret) }
            }
            [cluster, newest] => Self { cluster: cluster.parse().ok()?, secrets: Secrets::new(secret(newest)?) },
            [cluster, newer, older] => {
                Self { cluster: cluster.parse().ok()?, secrets: Secrets::rotating(secret(newer)?, secret(older)?) }
            }
            _ => return None,
        })
    }

    /// Its longer form.
    #[must_use]
    pub fn text(&self) -> String {
        let newest = format!("{}.{}", self.cluster, *self.secrets.newest().to_hex());
        self.secrets.older().map_or(newest.clone(), |older| format!("{newest}.{}", *older.to_hex()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: &str = "30313233343536373839616263646566";
    const SECRET: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

    #[test]
    fn golden_forms() {
        let older = "07".repeat(32);
        for text in [format!("{CLUSTER}.{SECRET}"), format!("{CLUSTER}.{SECRET}.{older}")] {
            let token = Token::parse(&format!(" {text}\n")).unwrap();
            assert_eq!((token.text() == text, token.cluster.to_string()), (true, CLUSTER.to_owned()));
            assert_eq!(token.secrets.key_ids().len(), text.matches('.').count());
        }
        let token = Token::parse(SECRET).unwrap();
        assert_eq!(token.cluster.to_string(), "adf8f1c42a7141ba23dc9fde7349d2e7");
        assert_eq!(token.text(), format!("{}.{SECRET}", token.cluster));
    }

    #[test]
    fn other_text_is_refused() {
        let texts = ["", ".", CLUSTER, &SECRET[1..], &format!("{SECRET}.{CLUSTER}"), &format!("{CLUSTER}.{SECRET}.")];
        for text in texts.into_iter().chain([&*format!("{CLUSTER}.{SECRET}.{SECRET}.{SECRET}")]) {
            assert!(Token::parse(text).is_none(), "{text}");
        }
    }
}
