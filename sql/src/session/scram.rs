//! SCRAM-SHA-256 verifiers (RFC 5802, RFC 5803) for `CREATE ROLE … PASSWORD`: the password itself is never kept.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use sha2::{Digest, Sha256};

/// How often the hash is iterated: PostgreSQL 15's default.
const ITERATIONS: u32 = 4_096;

/// The verifier of a password under a salt.
pub(crate) fn verifier(password: &str, salt: &[u8; 16]) -> String {
    let salted = salted_password(password.as_bytes(), salt);
    let client_key = hmac(&salted, b"Client Key");
    let stored_key: [u8; 32] = Sha256::digest(client_key).into();
    let server_key = hmac(&salted, b"Server Key");
    format!(
        "SCRAM-SHA-256${ITERATIONS}:{}${}:{}",
        STANDARD.encode(salt),
        STANDARD.encode(stored_key),
        STANDARD.encode(server_key)
    )
}

fn salted_password(password: &[u8], salt: &[u8]) -> [u8; 32] {
    let mut first = salt.to_vec();
    first.extend_from_slice(&1_u32.to_be_bytes());
    let mut block = hmac(password, &first);
    let mut result = block;
    for _ in 1..ITERATIONS {
        block = hmac(password, &block);
        for (all, byte) in result.iter_mut().zip(block) {
            *all ^= byte;
        }
    }
    result
}

/// HMAC (RFC 2104) over SHA-256.
fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut padded = [0_u8; 64];
    if key.len() > 64 {
        padded[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        padded[..key.len()].copy_from_slice(key);
    }
    let inner = Sha256::new().chain_update(padded.map(|byte| byte ^ 0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(padded.map(|byte| byte ^ 0x5c)).chain_update(inner).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_rfc_7677() {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").expect("base64");
        let salted = salted_password(b"pencil", &salt);
        let server_key = hmac(&salted, b"Server Key");
        // The server signature of RFC 7677 §3 is an HMAC with this key.
        let message = "n=user,r=rOprNGfwEbeRWgbNEkqO,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                       s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let signature = STANDARD.encode(hmac(&server_key, message.as_bytes()));
        assert_eq!(signature, "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
    }
}
