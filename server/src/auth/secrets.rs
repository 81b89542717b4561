//! Secrets of the directory: the admin's of the first start, the tokens that are known, and the server's pepper.
//!
//! Invariants:
//! - `admin.json` is written once, at the first start, readable by its owner only; the server reads it again only
//!   to finish a first start that was cut off.
//! - `secrets.json` holds the pepper and keyed hashes of tokens; a token cannot be computed from them. A token has 256
//!   random bits, so a fast hash is enough.
//! - Nothing is built in: without a file there is no token and no password that works.

use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use model::{Code, Error, Result};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;

use super::scram::{random, sign};

/// `DIR/admin.json`: how tools on this machine log in.
#[derive(Clone, Serialize, Deserialize)]
pub struct Admin {
    /// Role.
    pub user: String,
    /// Its password.
    pub password: String,
    /// A token of that role for MCP and gRPC.
    pub token: String,
}

/// `DIR/secrets.json`.
#[derive(Serialize, Deserialize)]
struct Stored {
    pepper: String,
    tokens: Vec<StoredToken>,
}

#[derive(Serialize, Deserialize)]
struct StoredToken {
    user: String,
    hash: String,
}

/// What the running server knows of secrets.
pub struct Secrets {
    pepper: Vec<u8>,
    tokens: Vec<(String, [u8; 32])>,
}

impl Admin {
    /// A new admin: random password (192 bits) and token (256 bits), unless a password was given.
    pub fn new(user: &str, password: Option<String>) -> Result<Self> {
        let password = match password {
            Some(given) if given.is_empty() => {
                return Err(Error::new(Code::InvalidPassword, "the given password is empty"));
            }
            Some(given) => given,
            None => BASE64.encode(random_bytes::<24>()?),
        };
        let token = format!("ks_{}", BASE64.encode(random_bytes::<32>()?));
        Ok(Self { user: user.to_owned(), password, token })
    }

    /// Writes `DIR/admin.json`.
    pub fn write(&self, data: &Path) -> io::Result<()> {
        write_private(&data.join("admin.json"), &serde_json::to_vec_pretty(self)?)
    }

    /// Reads `DIR/admin.json`.
    pub fn read(data: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&fs::read(data.join("admin.json"))?)?)
    }
}

impl Secrets {
    /// Makes `DIR/secrets.json` with a new pepper and the admin's token.
    pub fn create(data: &Path, admin: &Admin) -> Result<Self> {
        let pepper = random_bytes::<32>()?.to_vec();
        let hash = sign(&pepper, &[admin.token.as_bytes()]);
        let stored = Stored {
            pepper: BASE64.encode(&pepper),
            tokens: vec![StoredToken { user: admin.user.clone(), hash: BASE64.encode(hash) }],
        };
        let bytes =
            serde_json::to_vec_pretty(&stored).map_err(|error| unreadable(data).with_source(error))?;
        write_private(&data.join("secrets.json"), &bytes).map_err(|error| {
            Error::new(Code::IoError, "secrets.json cannot be written").with_source(error)
        })?;
        Ok(Self { pepper, tokens: vec![(admin.user.clone(), hash)] })
    }

    /// Reads `DIR/secrets.json`. Without it the server does not start: it would accept nobody's token.
    pub fn open(data: &Path) -> Result<Self> {
        let bytes =
            fs::read(data.join("secrets.json")).map_err(|error| unreadable(data).with_source(error))?;
        let stored: Stored =
            serde_json::from_slice(&bytes).map_err(|error| unreadable(data).with_source(error))?;
        let decode = |text: &str| BASE64.decode(text).ok();
        let pepper =
            decode(&stored.pepper).filter(|pepper| pepper.len() == 32).ok_or_else(|| unreadable(data))?;
        let mut tokens = Vec::new();
        for token in stored.tokens {
            let hash = decode(&token.hash).and_then(|hash| hash.try_into().ok());
            tokens.push((token.user, hash.ok_or_else(|| unreadable(data))?));
        }
        Ok(Self { pepper, tokens })
    }

    /// What names without a verifier are salted with.
    pub fn pepper(&self) -> &[u8] {
        &self.pepper
    }

    /// Whose token it is. Every known hash is compared, so that time tells nothing.
    pub fn find_user_of_token(&self, token: &str) -> Option<&str> {
        let hash = sign(&self.pepper, &[token.as_bytes()]);
        let mut found = None;
        for (user, known) in &self.tokens {
            if known.ct_eq(&hash).into() {
                found = Some(user.as_str());
            }
        }
        found
    }
}

/// Writes a file that only its owner can read: whole, synced, or not at all.
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let unfinished = path.with_extension("new");
    match fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
    file.write_all(bytes)?;
    file.write_all(b"\n")?;
    file.sync_all()?;
    fs::rename(&unfinished, path)?;
    match path.parent() {
        Some(folder) => fs::File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

fn random_bytes<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    random(&mut bytes)?;
    Ok(bytes)
}

fn unreadable(data: &Path) -> Error {
    Error::new(Code::ConfigFileError, format!("{} is not readable", data.join("secrets.json").display()))
        .with_hint("The directory was made by a server that keeps it there; restore the file from a backup.")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn secrets_are_private_and_a_token_is_known_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let admin = Admin::new("admin", None).unwrap();
        admin.write(folder.path()).unwrap();
        drop(Secrets::create(folder.path(), &admin).unwrap());
        let secrets = Secrets::open(folder.path()).unwrap();
        assert_eq!(secrets.find_user_of_token(&admin.token), Some("admin"));
        assert_eq!(secrets.find_user_of_token(""), None);
        assert_eq!(secrets.find_user_of_token("ks_x"), None);
        for name in ["admin.json", "secrets.json"] {
            let mode = fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
        let text = fs::read_to_string(folder.path().join("secrets.json")).unwrap();
        assert!(!text.contains(&admin.token) && !text.contains(&admin.password));
        assert_eq!(Admin::read(folder.path()).unwrap().password, admin.password);
    }

    #[test]
    fn an_empty_password_is_refused_and_missing_secrets_are_an_error() {
        assert!(Admin::new("admin", Some(String::new())).is_err());
        let folder = tempfile::tempdir().unwrap();
        assert!(Secrets::open(folder.path()).is_err());
        fs::write(folder.path().join("secrets.json"), "{}").unwrap();
        assert!(Secrets::open(folder.path()).is_err());
    }
}
