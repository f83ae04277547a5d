//! Secret of a cluster bus that was given none (`ASHLAR_SECRET`): derived from the password of replication by Argon2id.
//!
//! Whoever has seen a handshake of the bus, or the cluster's id, which is derived from the secret and shown in metrics, can try passwords
//! without asking a node. So each try has to cost memory and time. All nodes derive the same before they have met, so the salt is
//! fixed: tables of the passwords of all clusters can be made in advance. A secret made by chance has none of this (decision 0022).

use argon2::{Algorithm, Argon2, Params, Version};
use ashlar_wire::id::ClusterId;

use crate::os::datadir::{self, Token};

/// The second recommended option of RFC 9106: 64 MiB, three passes, four lanes. It takes about a third of a second.
const MEMORY_KIB: u32 = 1 << 16;
const PASSES: u32 = 3;
const LANES: u32 = 4;
/// Another derivation gets another salt, and its nodes do not meet those with this one.
const SALT: &[u8; 16] = b"ashlar kv bus v1";
const SECRET_LEN: usize = 32;

/// The secret for this password, as it is written. Without a password it is one that everybody knows. Takes long: to be called once.
///
/// # Panics
/// Never: the parameters are constants that Argon2id takes.
#[must_use]
pub(super) fn of_password(password: &str) -> String {
    if password.is_empty() {
        return fast(password);
    }
    let params =
        Params::new(MEMORY_KIB, PASSES, LANES, Some(SECRET_LEN)).expect("constants within the bounds of Argon2");
    let mut secret = [0; SECRET_LEN];
    let derived = Argon2::new(Algorithm::Argon2id, Version::V0x13, params).hash_password_into(
        password.as_bytes(),
        SALT,
        &mut secret,
    );
    derived.expect("a password shorter than 4 GiB, and a salt of 16 bytes");
    secret.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The cluster of nodes whose secret an earlier version derived from this password, by a fast hash.
#[must_use]
pub(super) fn earlier_cluster(password: &str) -> Option<ClusterId> {
    Token::parse(&fast(password)).map(|token| token.cluster).filter(|_| !password.is_empty())
}

fn fast(password: &str) -> String {
    datadir::secret_of(&format!("ashlar kv cluster without a secret, primaryauth {password}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_derivation_is_fixed() {
        // Computed by another implementation of Argon2id: nodes of all versions have to agree.
        assert_eq!(of_password("password"), "609e31026c481673b42299489ed2d80e82455419711a62423d7684cc8793746f");
        assert_ne!(of_password("passwore"), of_password("password"));
        // Clusters without a password are open, and stay what they are.
        assert_eq!(of_password(""), fast(""));
        assert_eq!((earlier_cluster(""), earlier_cluster("a").is_some()), (None, true));
    }
}
