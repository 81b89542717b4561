//! What a configuration may not be, beyond single values.

use std::net::SocketAddr;

use super::Config;

/// Everything that is wrong with a configuration as a whole.
pub fn check(config: &Config) -> Vec<String> {
    let mut problems = Vec::new();
    if config.tls.cert.is_some() != config.tls.key.is_some() {
        problems.push("tls.cert and tls.key go together".to_owned());
    }
    let has_tls = config.tls.cert.is_some() && config.tls.key.is_some();
    let doors = [
        ("sql.listen", config.sql.listen, has_tls),
        ("http.listen", config.http_listen, false),
        ("grpc.listen", config.grpc_listen, false),
        ("peer.listen", config.peer_listen, false),
    ];
    for (name, address, is_safe) in doors {
        if !is_loopback(address) && !is_safe && !config.tls.insecure_no_tls {
            problems.push(format!(
                "{name} = {address} is reachable from other machines without TLS; give tls.cert and tls.key (SQL \
                 door), listen on 127.0.0.1, or say --insecure-no-tls"
            ));
        }
    }
    for (at, (name, address, _)) in doors.iter().enumerate() {
        let taken = doors[..at].iter().find(|(_, other, _)| address.port() != 0 && other == address);
        if let Some((other, _, _)) = taken {
            problems.push(format!("{name} and {other} are both {address}"));
        }
    }
    problems
}

fn is_loopback(address: SocketAddr) -> bool {
    address.ip().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn off_loopback_without_tls_is_refused_unless_asked_for_by_name() {
        let mut config = Config::default();
        assert!(check(&config).is_empty());
        config.sql.listen = SocketAddr::from(([0, 0, 0, 0], 7432));
        assert_eq!(check(&config).len(), 1);
        config.tls.insecure_no_tls = true;
        assert!(check(&config).is_empty());
        config.tls.insecure_no_tls = false;
        config.tls.cert = Some("c".into());
        assert_eq!(check(&config).len(), 2);
        config.tls.key = Some("k".into());
        assert!(check(&config).is_empty());
    }

    #[test]
    fn two_doors_do_not_share_an_address() {
        let config = Config { grpc_listen: Config::default().http_listen, ..Config::default() };
        assert_eq!(check(&config).len(), 1);
    }
}
