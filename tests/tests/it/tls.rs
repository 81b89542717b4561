//! TLS from outside: certificates made here, psql as the client.

use std::fs;
use std::net::{IpAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;

use tests::Address;
use tests::keystead::Keystead;

/// A certificate authority, and a certificate of it for `localhost` and 127.0.0.1.
struct Authority {
    root: PathBuf,
    cert: PathBuf,
    key: PathBuf,
}

impl Authority {
    fn make(place: &Path, name: &str) -> Authority {
        let path = |what: &str| place.join(format!("{name}-{what}"));
        let openssl = |arguments: &str| {
            let output =
                Command::new("openssl").args(arguments.split(' ')).current_dir(place).output().unwrap();
            assert!(
                output.status.success(),
                "openssl {arguments}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        };
        let key = "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out";
        openssl(&format!("{key} {name}-root.key"));
        openssl(&format!(
            "req -x509 -new -key {name}-root.key -subj /CN={name} -days 30 -out {name}-root.pem"
        ));
        openssl(&format!("{key} {name}-server.key"));
        openssl(&format!("req -new -key {name}-server.key -subj /CN=localhost -out {name}-server.csr"));
        fs::write(path("names"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n").unwrap();
        openssl(&format!(
            "x509 -req -in {name}-server.csr -CA {name}-root.pem -CAkey {name}-root.key -set_serial 7 -days 30 \
             -extfile {name}-names -out {name}-server.pem"
        ));
        Authority { root: path("root.pem"), cert: path("server.pem"), key: path("server.key") }
    }
}

/// Asks through psql; what it printed, or what it complained about.
fn psql(address: &Address, options: &str, sql: &str) -> Result<String, String> {
    let target = format!("port={} user={} dbname={} {options}", address.port, address.user, address.database);
    let output = Command::new("psql")
        .args(["-X", "-A", "-t", &target, "-c", sql])
        .env("PGPASSWORD", &address.password)
        .env("PGCONNECT_TIMEOUT", "20")
        .output()
        .unwrap();
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

fn start(authority: &Authority, address: &str) -> Keystead {
    let arguments = [
        "--tls-cert",
        authority.cert.to_str().unwrap(),
        "--tls-key",
        authority.key.to_str().unwrap(),
        "--sql",
        address,
    ];
    Keystead::start_with(&arguments, &[]).unwrap()
}

#[test]
fn a_client_that_verifies_everything_gets_in_and_others_do_not() {
    let place = tempfile::tempdir().unwrap();
    let (ours, other) = (Authority::make(place.path(), "ours"), Authority::make(place.path(), "other"));
    let server = start(&ours, "127.0.0.1:0");
    let address = server.address().unwrap();
    let verify = |host: &str, root: &Path| {
        format!("host={host} hostaddr=127.0.0.1 sslmode=verify-full sslrootcert={}", root.display())
    };
    // SCRAM-SHA-256-PLUS binds the password's proof to this very connection.
    let good = format!("{} channel_binding=require", verify("localhost", &ours.root));
    assert_eq!(psql(&address, &good, "SELECT 40 + 2"), Ok("42".to_owned()));
    let shown = psql(&address, &good, "\\conninfo").unwrap();
    assert!(shown.contains("SSL connection (protocol: TLSv1.3"), "{shown}");
    let old = format!("{} ssl_max_protocol_version=TLSv1.2", verify("localhost", &ours.root));
    assert_eq!(psql(&address, &old, "SELECT 1"), Ok("1".to_owned()));
    let unbound = format!("{} channel_binding=disable", verify("localhost", &ours.root));
    assert_eq!(psql(&address, &unbound, "SELECT 1"), Ok("1".to_owned()));

    let refused = psql(&address, &verify("localhost", &other.root), "SELECT 1").unwrap_err();
    assert!(refused.contains("certificate verify failed"), "{refused}");
    let refused = psql(&address, &verify("elsewhere.example", &ours.root), "SELECT 1").unwrap_err();
    assert!(refused.contains("does not match host name"), "{refused}");
    let ancient =
        "host=127.0.0.1 sslmode=require ssl_min_protocol_version=TLSv1 ssl_max_protocol_version=TLSv1.1";
    assert!(psql(&address, ancient, "SELECT 1").is_err());
    let mut wrong = address.clone();
    wrong.password = "wrong".to_owned();
    let refused = psql(&wrong, &good, "SELECT 1").unwrap_err();
    assert!(refused.contains("password authentication failed"), "{refused}");
    // On this machine nobody listens in between.
    assert_eq!(psql(&address, "host=127.0.0.1 sslmode=disable", "SELECT 1"), Ok("1".to_owned()));
}

#[test]
fn from_other_machines_only_encrypted_connections_are_taken() {
    let place = tempfile::tempdir().unwrap();
    let ours = Authority::make(place.path(), "ours");
    let server = start(&ours, "0.0.0.0:0");
    let address = server.address().unwrap();
    assert_eq!(psql(&address, "host=127.0.0.1 sslmode=require", "SELECT 1"), Ok("1".to_owned()));
    // The address other machines would see, if this one has any.
    let Some(outer) = outer_address() else { return };
    assert_eq!(psql(&address, &format!("host={outer} sslmode=require"), "SELECT 1"), Ok("1".to_owned()));
    let refused = psql(&address, &format!("host={outer} sslmode=disable"), "SELECT 1").unwrap_err();
    assert!(refused.contains("must be encrypted"), "{refused}");
}

fn outer_address() -> Option<IpAddr> {
    // Nothing is sent: the system only looks up from where it would be.
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
}

#[test]
fn a_key_that_others_can_read_is_refused() {
    use std::os::unix::fs::PermissionsExt;

    let place = tempfile::tempdir().unwrap();
    let ours = Authority::make(place.path(), "ours");
    fs::set_permissions(&ours.key, fs::Permissions::from_mode(0o644)).unwrap();
    let data = place.path().join("data");
    let output = tests::keystead::run(&[
        "serve",
        "--data",
        data.to_str().unwrap(),
        "--sql",
        "127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
        "--grpc",
        "127.0.0.1:0",
        "--peer",
        "127.0.0.1:0",
        "--tls-cert",
        ours.cert.to_str().unwrap(),
        "--tls-key",
        ours.key.to_str().unwrap(),
    ])
    .unwrap();
    assert_eq!(output.status.code(), Some(78), "{}", String::from_utf8_lossy(&output.stderr));
}
