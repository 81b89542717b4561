//! From an accepted socket to an authenticated client: TLS, startup packet, SCRAM.
//!
//! Invariants:
//! - Steps use up the previous one: socket → [`Greeted`] → (after `authenticate`) a link that may become a session.
//! - Bytes that were sent before TLS begins are never read as if they had come inside it (CVE-2021-23214).
//! - An unknown name and a wrong password get the same exchange and the same answer.
//! - Nothing here waits without the caller's time limit around it.

use std::{io, net::SocketAddr, sync::Arc};

use model::{Code, Error, Result};
use tokio::net::TcpStream;
use tracing::debug;

use super::{
    frame::{Fields, Next, SASL_BYTES_MAX, STARTUP_BYTES_MAX},
    stream::{Link, Stream},
};
use crate::{
    auth::{scram, tls::Tls},
    metrics::Metrics,
};

const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;
const CANCEL_REQUEST: u32 = 80_877_102;
const PROTOCOL_3_0: u32 = 196_608;
/// The first byte of a TLS record that holds a handshake.
const TLS_HANDSHAKE: u8 = 0x16;

/// What a client wants.
pub(super) enum Greeted {
    /// A session.
    Session(Box<Link>, Startup),
    /// To cancel what another session is doing.
    Cancel {
        /// Which session.
        process_id: i32,
        /// Its key.
        secret: u32,
    },
    /// Nothing: it went, or spoke no language we know.
    Gone,
}

/// The startup packet.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Startup {
    /// Who wants in.
    pub(super) user: String,
    /// Where to.
    pub(super) database: String,
    /// Other parameters: session settings.
    pub(super) settings: Vec<(String, String)>,
    /// `_pq_.` options that we do not know.
    unknown: Vec<String>,
    /// Whether the client speaks a later minor version than ours.
    is_later: bool,
}

/// Reads up to the startup packet. `Err` carries the link, so that the client can be told.
pub(super) async fn greet(
    socket: TcpStream,
    tls: Option<&Tls>,
    metrics: Arc<Metrics>,
) -> io::Result<Result<Greeted, (Box<Link>, Error)>> {
    let mut first = [0];
    if socket.peek(&mut first).await? == 0 {
        return Ok(Ok(Greeted::Gone));
    }
    if first[0] == TLS_HANDSHAKE {
        let Some(tls) = tls else { return Ok(Ok(Greeted::Gone)) };
        let stream = tls.acceptor().accept(socket).await?;
        if !Tls::is_direct_protocol(stream.get_ref().1.alpn_protocol()) {
            return Ok(Ok(Greeted::Gone));
        }
        let link = Link::new(Stream::Tls(Box::new(stream)), metrics);
        return packets(link, None).await;
    }
    packets(Link::new(Stream::Plain(socket), metrics), tls).await
}

async fn packets(mut link: Link, tls: Option<&Tls>) -> io::Result<Result<Greeted, (Box<Link>, Error)>> {
    let (mut asked_tls, mut asked_gss) = (link.is_tls(), false);
    loop {
        let body = loop {
            match link.input.startup() {
                Ok(Some(body)) => break body,
                Ok(None) => {}
                Err(error) => {
                    debug!(%error, "not a startup packet");
                    return Ok(Ok(Greeted::Gone));
                }
            }
            if link.fill(0).await? == 0 {
                return Ok(Ok(Greeted::Gone));
            }
        };
        let length = body.len() + 4;
        let code = body.first_chunk::<4>().map_or(0, |code| u32::from_be_bytes(*code));
        match code {
            SSL_REQUEST if !asked_tls => {
                asked_tls = true;
                link.input.skip(length);
                if !link.input.is_empty() {
                    return Ok(Err((Box::new(link), injected())));
                }
                link.output.bare(if tls.is_some() { b'S' } else { b'N' });
                link.flush().await?;
                if let Some(tls) = tls {
                    link = upgrade(link, tls).await?;
                }
            }
            GSS_REQUEST if !asked_gss => {
                asked_gss = true;
                link.input.skip(length);
                if !link.input.is_empty() {
                    return Ok(Err((Box::new(link), injected())));
                }
                link.output.bare(b'N');
                link.flush().await?;
            }
            CANCEL_REQUEST => {
                let mut fields = Fields::of(&body[4..]);
                return Ok(Ok(match (fields.int32(), fields.int32(), fields.end()) {
                    (Ok(process_id), Ok(secret), Ok(())) => {
                        Greeted::Cancel { process_id, secret: u32::from_ne_bytes(secret.to_ne_bytes()) }
                    }
                    _ => Greeted::Gone,
                }));
            }
            _ => {
                let startup = parse(body);
                link.input.skip(length);
                return Ok(match startup {
                    Ok(startup) => Ok(Greeted::Session(Box::new(link), startup)),
                    Err(error) => Err((Box::new(link), error)),
                });
            }
        }
    }
}

async fn upgrade(link: Link, tls: &Tls) -> io::Result<Link> {
    let metrics = link.metrics();
    match link.into_stream() {
        Stream::Plain(socket) => {
            let stream = tls.acceptor().accept(socket).await?;
            Ok(Link::new(Stream::Tls(Box::new(stream)), metrics))
        }
        inside @ Stream::Tls(_) => Ok(Link::new(inside, metrics)),
    }
}

/// Reads a startup packet's body: version, then names and values.
fn parse(body: &[u8]) -> Result<Startup> {
    debug_assert!(body.len() <= STARTUP_BYTES_MAX, "longer packets are refused at their header");
    let mut fields = Fields::of(body);
    let version = u32::from_ne_bytes(fields.int32()?.to_ne_bytes());
    let (major, minor) = (version >> 16, version & 0xffff);
    if major != PROTOCOL_3_0 >> 16 {
        return Err(Error::new(
            Code::FeatureNotSupported,
            format!("unsupported frontend protocol {major}.{minor}: server supports 3.0 to 3.0"),
        ));
    }
    let mut startup = Startup { is_later: minor > 0, ..Startup::default() };
    let malformed = || {
        Error::new(Code::ProtocolViolation, "invalid startup packet layout: expected terminator as last byte")
    };
    loop {
        let name = fields.text().map_err(|_| malformed())?;
        if name.is_empty() {
            break;
        }
        let value = fields.text().map_err(|_| malformed())?;
        match name {
            "user" => startup.user = value.to_owned(),
            "database" => startup.database = value.to_owned(),
            "replication" if !matches!(value, "false" | "off" | "no" | "0") => {
                return Err(Error::unsupported(
                    "physical and logical replication are not offered on this door",
                    "Follow a table with its change feed instead.",
                ));
            }
            "replication" => {}
            "options" => startup.settings.extend(options(value)?),
            name if name.starts_with("_pq_.") => startup.unknown.push(name.to_owned()),
            name => startup.settings.push((name.to_owned(), value.to_owned())),
        }
    }
    fields.end().map_err(|_| malformed())?;
    if startup.user.is_empty() {
        return Err(Error::new(
            Code::InvalidAuthorizationSpecification,
            "no PostgreSQL user name specified in startup packet",
        ));
    }
    if startup.database.is_empty() {
        startup.database.clone_from(&startup.user);
    }
    Ok(startup)
}

/// Reads `-c name=value`, `-cname=value` and `--name=value`; a backslash keeps the next character.
fn options(text: &str) -> Result<Vec<(String, String)>> {
    let mut words = Vec::new();
    let (mut word, mut is_open) = (String::new(), false);
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => {
                word.extend(characters.next());
                is_open = true;
            }
            space if space.is_ascii_whitespace() => {
                if std::mem::take(&mut is_open) {
                    words.push(std::mem::take(&mut word));
                }
            }
            other => {
                word.push(other);
                is_open = true;
            }
        }
    }
    if is_open {
        words.push(word);
    }
    let mut settings = Vec::new();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let pair = match (word.strip_prefix("--"), word.strip_prefix("-c")) {
            (Some(pair), _) => Some(pair.to_owned()),
            (None, Some("")) => words.next(),
            (None, Some(pair)) => Some(pair.to_owned()),
            (None, None) => None,
        };
        let pair = pair.and_then(|pair| {
            let (name, value) = pair.split_once('=')?;
            Some((name.replace('-', "_"), value.to_owned()))
        });
        settings.push(pair.ok_or_else(|| {
            Error::new(Code::SyntaxError, format!("invalid command-line argument for server process: {word}"))
        })?);
    }
    Ok(settings)
}

impl Startup {
    /// Tells a client of a later version what we speak.
    pub(super) fn negotiate(&self, link: &mut Link) {
        if self.is_later || !self.unknown.is_empty() {
            // PostgreSQL 15 answers with its whole version; from 18 on clients read major and minor alike.
            link.output.negotiate(PROTOCOL_3_0, &self.unknown);
        }
    }
}

/// Runs SCRAM. `false` says that the password was wrong, or the name unknown, or both.
pub(super) async fn authenticate(link: &mut Link, server: scram::Server) -> io::Result<Result<bool>> {
    link.output.sasl(server.mechanisms());
    link.flush().await?;
    let exchange = match read_initial(link).await? {
        Ok((mechanism, first)) => server.challenge(&mechanism, &first),
        Err(error) => Err(error),
    };
    let challenged = match exchange {
        Ok((challenged, server_first)) => {
            link.output.sasl_step(11, &server_first);
            challenged
        }
        Err(error) => return Ok(Err(error)),
    };
    link.flush().await?;
    let last = match read_response(link).await? {
        Ok(last) => last,
        Err(error) => return Ok(Err(error)),
    };
    Ok(challenged.prove(&last).map(|server_final| match server_final {
        Some(server_final) => {
            link.output.sasl_step(12, &server_final);
            true
        }
        None => false,
    }))
}

async fn read_initial(link: &mut Link) -> io::Result<Result<(String, String)>> {
    read_password(link, |mut fields| {
        let mechanism = fields.text()?.to_owned();
        let first = fields.value()?;
        fields.end()?;
        let first = first.ok_or_else(|| Error::new(Code::ProtocolViolation, "malformed SCRAM message"))?;
        Ok((mechanism, super::frame::valid_text(first)?.to_owned()))
    })
    .await
}

async fn read_response(link: &mut Link) -> io::Result<Result<String>> {
    read_password(link, |fields| super::frame::valid_text(fields.rest()).map(str::to_owned)).await
}

async fn read_password<T>(
    link: &mut Link,
    read: impl FnOnce(Fields<'_>) -> Result<T>,
) -> io::Result<Result<T>> {
    loop {
        match link.input.next(SASL_BYTES_MAX) {
            Ok(Next::Whole(frame)) if frame.tag == b'p' => {
                let answer = read(link.input.fields(frame));
                link.input.consume(frame);
                return Ok(answer);
            }
            Ok(Next::Whole(frame)) if frame.tag == b'X' => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(Next::Whole(frame)) => {
                return Ok(Err(Error::new(
                    Code::ProtocolViolation,
                    format!("expected SASL response, got message type {}", frame.tag),
                )));
            }
            Ok(Next::Missing(missing)) => {
                if link.fill(missing).await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            Err(error) => return Ok(Err(error)),
        }
    }
}

fn injected() -> Error {
    Error::new(Code::ProtocolViolation, "received unencrypted data after SSL request").with_detail(
        "This could be either a client-software bug or evidence of an attempted man-in-the-middle attack.",
    )
}

/// The answer to a wrong password, and to everything that must look like it.
pub(super) fn wrong_password(user: &str) -> Error {
    Error::new(Code::InvalidPassword, format!("password authentication failed for user \"{user}\""))
}

/// Where a client is, for the log.
pub(super) fn log_refusal(client: SocketAddr, error: &Error) {
    debug!(%client, code = error.code().sqlstate(), "login refused");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(version: u32, pairs: &[(&str, &str)]) -> Vec<u8> {
        let mut body = version.to_be_bytes().to_vec();
        for (name, value) in pairs {
            body.extend([name.as_bytes(), b"\0", value.as_bytes(), b"\0"].concat());
        }
        body.push(0);
        body
    }

    #[test]
    fn a_startup_packet_names_user_database_and_settings() {
        let body = packet(
            PROTOCOL_3_0,
            &[("user", "u"), ("application_name", "psql"), ("options", "-c a=b --c-d=e\\ f")],
        );
        let startup = parse(&body).expect("well formed");
        assert_eq!((startup.user.as_str(), startup.database.as_str()), ("u", "u"));
        let settings: Vec<_> = startup.settings.iter().map(|(n, v)| format!("{n}={v}")).collect();
        assert_eq!(settings, ["application_name=psql", "a=b", "c_d=e f"]);
        assert!(!startup.is_later);
    }

    #[test]
    fn other_versions_are_negotiated_or_refused() {
        let later = parse(&packet(196_610, &[("user", "u"), ("_pq_.x", "1")])).expect("3.2 is negotiated");
        assert!(later.is_later && later.unknown == ["_pq_.x"]);
        let refused = parse(&packet(131_072, &[("user", "u")])).expect_err("version 2");
        assert_eq!(refused.code(), Code::FeatureNotSupported);
    }

    #[test]
    fn malformed_packets_are_refused() {
        let whole = packet(PROTOCOL_3_0, &[("user", "u")]);
        for cut in 4..whole.len() {
            assert!(parse(&whole[..cut]).is_err(), "cut at {cut}");
        }
        let mut long = whole;
        long.push(1);
        assert!(parse(&long).is_err());
        let nobody = parse(&packet(PROTOCOL_3_0, &[])).expect_err("nobody");
        assert_eq!(nobody.code(), Code::InvalidAuthorizationSpecification);
        assert!(options("-x y").is_err() && options("-c").is_err() && options("-c novalue").is_err());
    }
}
