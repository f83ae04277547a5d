//! Chance that nobody can foresee, from the operating system.

/// Fills `bytes`.
///
/// # Panics
/// When the operating system gives no randomness: nothing safe can be done without.
pub fn fill(bytes: &mut [u8]) {
    let provider = rustls::crypto::ring::default_provider();
    provider.secure_random.fill(bytes).expect("the operating system has a random source");
}

/// `N` fresh bytes.
#[must_use]
pub fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    fill(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    #[test]
    fn is_not_constant() {
        assert_ne!(super::bytes::<32>(), super::bytes::<32>());
    }
}
