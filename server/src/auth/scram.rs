//! SCRAM-SHA-256 and SCRAM-SHA-256-PLUS (RFC 5802, RFC 7677, channel binding RFC 5929), both sides of it.
//!
//! Invariants:
//! - The server keeps a [`Verifier`] (salt, iterations, StoredKey, ServerKey), in PostgreSQL's text form; a password
//!   cannot be computed from it.
//! - Steps use up the previous one: [`Server`] → [`Challenged`] → done.
//! - Proofs are compared in constant time. A name without a verifier is given one made from the name and the server's
//!   pepper, so that its exchange looks like any other and fails at its end.
//! - A client that supports channel binding and says the server does not (`y`) is refused where the server does: someone
//!   in between has cut the offer.
//!
//! Not here: the frames the texts travel in (`pg::startup`), where verifiers are kept (the catalog).

use std::num::NonZeroU32;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use model::{Code, Error, Result};
use ring::{
    digest, hmac, pbkdf2,
    rand::{SecureRandom, SystemRandom},
};
use subtle::ConstantTimeEq;

/// The mechanism without channel binding.
pub const MECHANISM: &str = "SCRAM-SHA-256";
/// The mechanism bound to the server's certificate.
pub const MECHANISM_PLUS: &str = "SCRAM-SHA-256-PLUS";

/// Iterations of new verifiers: PostgreSQL 15's number, the same for roles that SQL makes, so that names without a
/// verifier do not stand out. Fewer are not accepted (RFC 7677).
pub const ITERATIONS: u32 = 4_096;
const ITERATIONS_MAX: u32 = 10_000_000;
const SALT_BYTES: usize = 16;

/// What the server keeps instead of a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    salt: Vec<u8>,
    iterations: u32,
    stored_key: [u8; 32],
    server_key: [u8; 32],
}

impl Verifier {
    /// The verifier of a password, with a new salt.
    pub fn of_password(password: &str) -> Result<Self> {
        let mut salt = vec![0; SALT_BYTES];
        random(&mut salt)?;
        Ok(Self::with_salt(password, salt, ITERATIONS))
    }

    fn with_salt(password: &str, salt: Vec<u8>, iterations: u32) -> Self {
        let salted = salted_password(password, &salt, iterations);
        let client_key = sign(&salted, &[b"Client Key"]);
        Self {
            salt,
            iterations,
            stored_key: sha256(&client_key),
            server_key: sign(&salted, &[b"Server Key"]),
        }
    }

    /// A verifier that no password has, always the same for one name.
    pub fn imaginary(name: &str, pepper: &[u8]) -> Self {
        let seed = sign(pepper, &[b"salt of ", name.as_bytes()]);
        Self {
            salt: seed[..SALT_BYTES].to_vec(),
            iterations: ITERATIONS,
            stored_key: sign(pepper, &[b"stored key of ", name.as_bytes()]),
            server_key: sign(pepper, &[b"server key of ", name.as_bytes()]),
        }
    }

    /// Reads `SCRAM-SHA-256$iterations:salt$stored key:server key`.
    pub fn parse(text: &str) -> Option<Self> {
        let (head, keys) = text.strip_prefix("SCRAM-SHA-256$")?.split_once('$')?;
        let (iterations, salt) = head.split_once(':')?;
        let (stored, server) = keys.split_once(':')?;
        let iterations: u32 = iterations.parse().ok()?;
        if !(ITERATIONS..=ITERATIONS_MAX).contains(&iterations) {
            return None;
        }
        let key = |text: &str| <[u8; 32]>::try_from(BASE64.decode(text).ok()?).ok();
        Some(Self {
            salt: BASE64.decode(salt).ok().filter(|salt| !salt.is_empty())?,
            iterations,
            stored_key: key(stored)?,
            server_key: key(server)?,
        })
    }

    /// PostgreSQL's text form (`pg_authid.rolpassword`).
    pub fn to_text(&self) -> String {
        format!(
            "SCRAM-SHA-256${}:{}${}:{}",
            self.iterations,
            BASE64.encode(&self.salt),
            BASE64.encode(self.stored_key),
            BASE64.encode(self.server_key)
        )
    }

    /// Whether a password sent in clear is the one.
    pub fn accepts(&self, password: &str) -> bool {
        let other = Self::with_salt(password, self.salt.clone(), self.iterations);
        other.stored_key.ct_eq(&self.stored_key).into()
    }
}

/// The server before it has heard from the client.
pub struct Server {
    verifier: Verifier,
    is_real: bool,
    /// SHA-256 of the certificate, where TLS is on.
    binding: Option<Vec<u8>>,
}

/// The server that has sent its challenge.
pub struct Challenged {
    verifier: Verifier,
    is_real: bool,
    /// What the client must repeat as `c=`: header and, for PLUS, the certificate's digest.
    channel: Vec<u8>,
    nonce: String,
    first_bare: String,
    server_first: String,
}

impl Server {
    /// Prepares an exchange. A name without a verifier gets an imaginary one and fails at the end.
    pub fn new(name: &str, verifier: Option<Verifier>, pepper: &[u8], binding: Option<Vec<u8>>) -> Self {
        let is_real = verifier.is_some();
        let imaginary = Verifier::imaginary(name, pepper);
        Self { verifier: verifier.unwrap_or(imaginary), is_real, binding }
    }

    /// What is offered, best first.
    pub fn mechanisms(&self) -> &'static [&'static str] {
        if self.binding.is_some() { &[MECHANISM_PLUS, MECHANISM] } else { &[MECHANISM] }
    }

    /// Takes client-first, answers server-first.
    pub fn challenge(self, mechanism: &str, client_first: &str) -> Result<(Challenged, String)> {
        let mut nonce = [0; 18];
        random(&mut nonce)?;
        self.challenge_with(mechanism, client_first, &BASE64.encode(nonce))
    }

    fn challenge_with(
        self,
        mechanism: &str,
        client_first: &str,
        nonce: &str,
    ) -> Result<(Challenged, String)> {
        let is_plus = match mechanism {
            MECHANISM => false,
            MECHANISM_PLUS if self.binding.is_some() => true,
            _ => return Err(malformed("client selected an invalid SASL authentication mechanism")),
        };
        let mut fields = client_first.splitn(3, ',');
        let mut field = || fields.next().ok_or_else(|| malformed("malformed SCRAM message"));
        let (flag, identity, bare) = (field()?, field()?, field()?);
        match (is_plus, flag) {
            (false, "n") | (true, "p=tls-server-end-point") => {}
            (false, "y") if self.binding.is_none() => {}
            (false, "y") => {
                return Err(Error::new(
                    Code::InvalidAuthorizationSpecification,
                    "SCRAM channel binding negotiation error",
                )
                .with_detail(
                    "The client supports SCRAM channel binding but thinks the server does not. However, this server \
                     does support channel binding.",
                ));
            }
            (true, _) if flag.starts_with("p=") => {
                return Err(malformed("unsupported SCRAM channel-binding type"));
            }
            _ => return Err(malformed("malformed SCRAM message")),
        }
        // The user is the one of the startup packet, as in PostgreSQL; an authorization identity is not supported.
        if !identity.is_empty() {
            return Err(malformed("client uses authorization identity, but it is not supported"));
        }
        let mut attributes = bare.split(',');
        if !attributes.next().is_some_and(|user| user.starts_with("n=")) {
            return Err(malformed("malformed SCRAM message"));
        }
        let client_nonce = attributes.next().and_then(|attribute| attribute.strip_prefix("r="));
        let client_nonce = client_nonce.filter(|nonce| is_nonce(nonce));
        let client_nonce = client_nonce.ok_or_else(|| malformed("invalid SCRAM nonce"))?;
        let nonce = format!("{client_nonce}{nonce}");
        let server_first =
            format!("r={nonce},s={},i={}", BASE64.encode(&self.verifier.salt), self.verifier.iterations);
        let mut channel = format!("{flag},,").into_bytes();
        if is_plus {
            channel.extend(self.binding.as_deref().unwrap_or_default());
        }
        let challenged = Challenged {
            verifier: self.verifier,
            is_real: self.is_real,
            channel,
            nonce,
            first_bare: bare.to_owned(),
            server_first: server_first.clone(),
        };
        Ok((challenged, server_first))
    }
}

impl Challenged {
    /// Takes client-final; answers server-final if the proof holds, nothing if it does not.
    pub fn prove(self, client_final: &str) -> Result<Option<String>> {
        let (without_proof, proof) =
            client_final.rsplit_once(",p=").ok_or_else(|| malformed("malformed SCRAM message"))?;
        let mut attributes = without_proof.split(',');
        let mut attribute = |name| attributes.next().and_then(|text| text.strip_prefix(name));
        let channel = attribute("c=").ok_or_else(|| malformed("malformed SCRAM message"))?;
        let nonce = attribute("r=").ok_or_else(|| malformed("malformed SCRAM message"))?;
        if channel != BASE64.encode(&self.channel) {
            return Err(malformed("SCRAM channel binding check failed"));
        }
        if nonce != self.nonce {
            return Err(malformed("invalid SCRAM response"));
        }
        let proof = BASE64.decode(proof).ok().and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
        let proof = proof.ok_or_else(|| malformed("malformed SCRAM message"))?;
        let conversation =
            [self.first_bare.as_bytes(), b",", self.server_first.as_bytes(), b",", without_proof.as_bytes()];
        let signature = sign(&self.verifier.stored_key, &conversation);
        let client_key = xor(&proof, &signature);
        let holds: bool = sha256(&client_key).ct_eq(&self.verifier.stored_key).into();
        let server_signature = sign(&self.verifier.server_key, &conversation);
        Ok((holds && self.is_real).then(|| format!("v={}", BASE64.encode(server_signature))))
    }
}

/// The client's side, for our own tools; without channel binding.
pub struct Client {
    password: String,
    first_bare: String,
    nonce: String,
}

/// The client that has answered the challenge.
pub struct Answered {
    server_signature: [u8; 32],
}

impl Client {
    /// Prepares an exchange; answers it and client-first.
    pub fn new(password: &str) -> Result<(Self, String)> {
        let mut nonce = [0; 18];
        random(&mut nonce)?;
        Ok(Self::with_nonce(password, "", &BASE64.encode(nonce)))
    }

    fn with_nonce(password: &str, user: &str, nonce: &str) -> (Self, String) {
        let first_bare = format!("n={user},r={nonce}");
        let first = format!("n,,{first_bare}");
        (Self { password: password.to_owned(), first_bare, nonce: nonce.to_owned() }, first)
    }

    /// Takes server-first, answers client-final.
    pub fn answer(self, server_first: &str) -> Result<(Answered, String)> {
        let mut fields = server_first.split(',');
        let mut field = |name| {
            let field = fields.next().and_then(|text| text.strip_prefix(name));
            field.ok_or_else(|| malformed("malformed SCRAM challenge"))
        };
        let (nonce, salt, iterations) = (field("r=")?, field("s=")?, field("i=")?);
        let salt = BASE64.decode(salt).map_err(|_| malformed("malformed SCRAM challenge"))?;
        let iterations: u32 = iterations.parse().map_err(|_| malformed("malformed SCRAM challenge"))?;
        if !nonce.starts_with(&self.nonce) || !(1..=ITERATIONS_MAX).contains(&iterations) {
            return Err(malformed("malformed SCRAM challenge"));
        }
        let salted = salted_password(&self.password, &salt, iterations);
        let client_key = sign(&salted, &[b"Client Key"]);
        let without_proof = format!("c=biws,r={nonce}");
        let conversation =
            [self.first_bare.as_bytes(), b",", server_first.as_bytes(), b",", without_proof.as_bytes()];
        let proof = xor(&client_key, &sign(&sha256(&client_key), &conversation));
        let server_signature = sign(&sign(&salted, &[b"Server Key"]), &conversation);
        Ok((Answered { server_signature }, format!("{without_proof},p={}", BASE64.encode(proof))))
    }
}

impl Answered {
    /// Whether server-final proves that the server knows the verifier.
    pub fn accepts(&self, server_final: &str) -> bool {
        server_final == format!("v={}", BASE64.encode(self.server_signature))
    }
}

/// Fills with random bytes of the system.
pub fn random(bytes: &mut [u8]) -> Result<()> {
    let filled = SystemRandom::new().fill(bytes);
    filled.map_err(|_| Error::new(Code::SystemError, "the system gives no random numbers"))
}

fn salted_password(password: &str, salt: &[u8], iterations: u32) -> [u8; 32] {
    // PostgreSQL: what SASLprep (RFC 4013) refuses is used as it is.
    let prepared = stringprep::saslprep(password).unwrap_or(password.into());
    let mut salted = [0; 32];
    let rounds = NonZeroU32::new(iterations).unwrap_or(NonZeroU32::MIN);
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, rounds, salt, prepared.as_bytes(), &mut salted);
    salted
}

/// HMAC-SHA-256 over parts.
pub(super) fn sign(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    parts.iter().for_each(|part| context.update(part));
    context.sign().as_ref().try_into().expect("HMAC-SHA-256 has 32 bytes")
}

/// SHA-256.
pub(super) fn sha256(bytes: &[u8]) -> [u8; 32] {
    digest::digest(&digest::SHA256, bytes).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

fn xor(a: &[u8; 32], b: &[u8; 32]) -> [u8; 32] {
    std::array::from_fn(|at| a[at] ^ b[at])
}

fn is_nonce(text: &str) -> bool {
    (1..=1024).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, 0x21..=0x7e) && byte != b',')
}

fn malformed(message: &str) -> Error {
    Error::new(Code::ProtocolViolation, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exchange of RFC 7677, section 3.
    const CLIENT_NONCE: &str = "rOprNGfwEbeRWgbNEkqO";
    const SERVER_NONCE: &str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";

    fn verifier() -> Verifier {
        let salt = BASE64.decode("W22ZaJ0SNY7soEsUEjb6gQ==").expect("the RFC's salt");
        Verifier::with_salt("pencil", salt, 4096)
    }

    #[test]
    fn both_sides_say_what_rfc_7677_says() {
        let (client, first) = Client::with_nonce("pencil", "user", CLIENT_NONCE);
        assert_eq!(first, "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        let server = Server::new("user", Some(verifier()), b"pepper", None);
        let (challenged, server_first) =
            server.challenge_with(MECHANISM, &first, SERVER_NONCE).expect("well formed");
        assert_eq!(
            server_first,
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
        );
        let (answered, client_final) = client.answer(&server_first).expect("well formed");
        assert!(client_final.ends_with(",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="), "{client_final}");
        let server_final =
            challenged.prove(&client_final).expect("well formed").expect("the password is right");
        assert_eq!(server_final, "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
        assert!(answered.accepts(&server_final));
    }

    #[test]
    fn a_wrong_password_and_an_unknown_name_fail_at_the_same_place() {
        for (known, password) in [(true, "pen"), (false, "pencil")] {
            let (client, first) = Client::new(password).expect("random numbers");
            let server = Server::new("u", known.then(verifier), b"pepper", None);
            let (challenged, server_first) = server.challenge(MECHANISM, &first).expect("well formed");
            let (_, client_final) = client.answer(&server_first).expect("well formed");
            assert_eq!(challenged.prove(&client_final).expect("well formed"), None);
        }
    }

    #[test]
    fn an_unknown_name_has_the_same_salt_each_time() {
        let salt = |name: &str| {
            let server = Server::new(name, None, b"pepper", None);
            server.challenge_with(MECHANISM, "n,,n=,r=abc", "x").expect("well formed").1
        };
        assert_eq!(salt("a"), salt("a"));
        assert_ne!(salt("a"), salt("b"));
    }

    #[test]
    fn a_cut_offer_of_channel_binding_is_noticed() {
        let server = Server::new("u", Some(verifier()), b"pepper", Some(vec![1; 32]));
        assert_eq!(server.mechanisms(), [MECHANISM_PLUS, MECHANISM]);
        let refused = server.challenge(MECHANISM, "y,,n=,r=abc").err().expect("a downgrade");
        assert_eq!(refused.code(), Code::InvalidAuthorizationSpecification);
        let server = Server::new("u", Some(verifier()), b"pepper", None);
        assert!(server.challenge(MECHANISM, "y,,n=,r=abc").is_ok());
    }

    #[test]
    fn channel_binding_is_to_this_certificate() {
        for (certificate, binds) in [(vec![1; 32], true), (vec![2; 32], false)] {
            let server = Server::new("u", Some(verifier()), b"pepper", Some(vec![1; 32]));
            let first = "p=tls-server-end-point,,n=,r=abc";
            let (challenged, _) = server.challenge_with(MECHANISM_PLUS, first, "def").expect("well formed");
            let mut channel = b"p=tls-server-end-point,,".to_vec();
            channel.extend(certificate);
            let proof = BASE64.encode([0; 32]);
            let answer = challenged.prove(&format!("c={},r=abcdef,p={proof}", BASE64.encode(channel)));
            assert_eq!(answer.is_ok(), binds);
        }
    }

    #[test]
    fn malformed_messages_are_refused_not_panicked_on() {
        for first in
            ["", "n", "n,,", "n,,n=u", "n,,n=u,r=", "n,a=x,n=u,r=a", "p=tls-unique,,n=,r=a", "n,,m=x,n=,r=a"]
        {
            let server = Server::new("u", Some(verifier()), b"pepper", None);
            assert!(server.challenge(MECHANISM, first).is_err(), "{first}");
        }
        for last in ["", "c=biws", "c=biws,r=ab,p=", "c=biws,r=zz,p=AAAA", "c=eSws,r=ab,p=AAAA", ",p="] {
            let server = Server::new("u", Some(verifier()), b"pepper", None);
            let (challenged, _) = server.challenge_with(MECHANISM, "n,,n=,r=a", "b").expect("well formed");
            assert!(challenged.prove(last).is_err(), "{last}");
        }
    }

    #[test]
    fn a_verifier_survives_its_text() {
        let text = verifier().to_text();
        assert!(Verifier::parse(&text).is_some_and(|again| again == verifier() && again.accepts("pencil")));
        assert!(Verifier::parse("SCRAM-SHA-256$1:AAAA$AAAA:AAAA").is_none());
        assert!(Verifier::parse("md5abc").is_none());
    }
}
