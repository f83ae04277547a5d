//! The root key of S3 that a person gives, by the variables that MinIO has for it.

use core::net::SocketAddr;

use crate::failure::Failure;

/// A name, and what it is signed with.
#[derive(Clone, PartialEq, Eq)]
pub struct GivenKey {
    /// `MINIO_ROOT_USER`: what a client is called.
    pub access_key: String,
    /// `MINIO_ROOT_PASSWORD`: with what it signs.
    pub secret_key: String,
}

impl core::fmt::Debug for GivenKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("GivenKey").field("access_key", &self.access_key).field("secret_key", &"***").finish()
    }
}

const USER: &str = "MINIO_ROOT_USER";
const PASSWORD: &str = "MINIO_ROOT_PASSWORD";
/// Longest name or secret.
const BYTES_MAX: usize = 128;
/// MinIO's own bounds.
const USER_BYTES_MIN: usize = 3;
const PASSWORD_BYTES_MIN: usize = 8;
/// What MinIO takes where nobody has given anything: everybody knows it.
const KNOWN_TO_ALL: &str = "minioadmin";

impl GivenKey {
    /// The key that variables give, or the files that `MINIO_ROOT_USER_FILE` and `MINIO_ROOT_PASSWORD_FILE` name; nothing if none does.
    /// `s3` is where clients are served.
    ///
    /// # Errors
    /// One of two is missing, a file cannot be read, a text cannot be a name or a secret, or everybody could guess it and reach this server.
    pub fn of(
        variable: impl Fn(&str) -> Option<String>,
        read: impl Fn(&str) -> Result<String, Failure>,
        s3: SocketAddr,
    ) -> Result<Option<Self>, Failure> {
        let remedy = "give both MINIO_ROOT_USER and MINIO_ROOT_PASSWORD (or both with _FILE), or none of them";
        let given = |name: &str| -> Result<Option<String>, Failure> {
            let text = variable(name).filter(|text| !text.is_empty());
            let file = variable(&format!("{name}_FILE")).filter(|path| !path.is_empty());
            match (text, file) {
                (Some(_), Some(_)) => Err(Failure::usage(format!("{name} and {name}_FILE are both set"), remedy)),
                (None, Some(path)) => read(&path).map(|text| Some(text.trim_end_matches(['\r', '\n']).to_owned())),
                (text, None) => Ok(text),
            }
        };
        let (access_key, secret_key) = match (given(USER)?, given(PASSWORD)?) {
            (None, None) => return Ok(None),
            (Some(access_key), Some(secret_key)) => (access_key, secret_key),
            (Some(_), None) => return Err(Failure::usage(format!("{USER} is set, and {PASSWORD} is not"), remedy)),
            (None, Some(_)) => return Err(Failure::usage(format!("{PASSWORD} is set, and {USER} is not"), remedy)),
        };
        if access_key.starts_with("ASIA") {
            let what = format!("{USER} begins with ASIA, as the names of temporary keys do");
            return Err(Failure::usage(what, "give another name"));
        }
        let is_name = |byte: u8| byte.is_ascii_graphic() && !b"/,=".contains(&byte);
        if !(USER_BYTES_MIN..=BYTES_MAX).contains(&access_key.len()) || !access_key.bytes().all(is_name) {
            let remedy = "give 3 to 128 ASCII characters: no blanks, '/', ',' and '='";
            return Err(Failure::usage(format!("{USER} cannot be the name of a key"), remedy));
        }
        if !(PASSWORD_BYTES_MIN..=BYTES_MAX).contains(&secret_key.len()) || secret_key.contains(char::is_control) {
            return Err(Failure::usage(
                format!("{PASSWORD} cannot be the secret of a key"),
                "give 8 to 128 characters",
            ));
        }
        if secret_key == KNOWN_TO_ALL && !s3.ip().is_loopback() {
            let what = format!(
                "{PASSWORD} is {KNOWN_TO_ALL}, which everybody knows, and other machines can reach this server"
            );
            return Err(Failure::usage(what, "give another one, or let S3 listen at a loopback address"));
        }
        Ok(Some(Self { access_key, secret_key }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)], s3: &str) -> Result<Option<(String, String)>, String> {
        let variable = |name: &str| pairs.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned());
        let read = |path: &str| match path {
            "/none" => Err(Failure::usage("there is no file /none".to_owned(), "give one")),
            path => Ok(format!("{}\r\n", path.trim_start_matches('/'))),
        };
        let given = GivenKey::of(variable, read, s3.parse().unwrap());
        given.map(|key| key.map(|key| (key.access_key, key.secret_key))).map_err(|failure| failure.what)
    }

    #[test]
    fn a_key_is_given_by_both_variables_or_files() {
        let key = Ok(Some(("admin".to_owned(), "12345678".to_owned())));
        let local = "127.0.0.1:9000";
        assert_eq!(of(&[], local), Ok(None));
        assert_eq!(of(&[(USER, ""), (PASSWORD, "")], local), Ok(None));
        assert_eq!(of(&[(USER, "admin"), (PASSWORD, "12345678")], local), key);
        let files = [("MINIO_ROOT_USER_FILE", "/admin"), ("MINIO_ROOT_PASSWORD_FILE", "/12345678")];
        assert_eq!(of(&files, local), key);
        assert_eq!(of(&[(USER, "admin"), files[1]], local), key);
        for wrong in [
            &[(USER, "admin")][..],
            &[(PASSWORD, "12345678")],
            &[(USER, "admin"), files[0], (PASSWORD, "12345678")],
            &[(USER, "admin"), ("MINIO_ROOT_PASSWORD_FILE", "/none")],
            &[(USER, "ab"), (PASSWORD, "12345678")],
            &[(USER, "a/b"), (PASSWORD, "12345678")],
            &[(USER, "ASIA23"), (PASSWORD, "12345678")],
            &[(USER, "admin"), (PASSWORD, "1234567")],
            &[(USER, "admin"), (PASSWORD, "1234567\n8")],
        ] {
            assert!(of(wrong, local).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn what_everybody_knows_opens_nothing_to_other_machines() {
        let key = [(USER, "minioadmin"), (PASSWORD, "minioadmin")];
        assert!(of(&key, "127.0.0.1:9000").is_ok() && of(&key, "[::1]:9000").is_ok());
        assert!(of(&key, "0.0.0.0:9000").unwrap_err().contains("everybody knows"));
    }
}
