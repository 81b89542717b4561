//! The load of the crash test: tables, statements, and what an answer means for the ledger.
//!
//! Invariants: transfers lock accounts in order of their key, so that connections wait for each other and never in a
//! circle. A connection stops at the first answer it cannot classify; that ends the run.

use std::{
    io,
    sync::atomic::{AtomicBool, AtomicI64, Ordering},
    time::Duration,
};

use rand::{SeedableRng as _, rngs::StdRng};

use super::ledger::{ACCOUNTS, BALANCE, Ledger, MANY, Operation};
use crate::cli::client::{Client, ClientError, Target};

/// A statement that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// What an error means.
enum Refusal {
    /// Nothing of the operation may be there.
    Whole,
    /// The slot is somebody else's.
    Taken,
    /// Only an audit can tell.
    Unknown,
    /// The server must not say this.
    Wrong,
}

fn classify(error: &ClientError) -> Refusal {
    match error {
        ClientError::Io(error)
            if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) =>
        {
            Refusal::Wrong
        }
        ClientError::Io(_) => Refusal::Unknown,
        ClientError::Protocol(_) => Refusal::Wrong,
        ClientError::Server(problem) => match problem.code.as_str() {
            "23505" => Refusal::Taken,
            "40003" | "08007" | "57P01" | "57P02" | "57P03" => Refusal::Unknown,
            "40001" | "40P01" | "55P03" | "57014" => Refusal::Whole,
            code if code.starts_with("53") => Refusal::Whole,
            _ => Refusal::Wrong,
        },
    }
}

/// Makes the tables anew.
pub(super) fn prepare(client: &mut Client, workers: u32) -> Result<(), ClientError> {
    let names = ["rows", "left", "right", "many", "counters", "accounts", "transfers", "claims"];
    let scratch = (0..workers).map(|worker| format!("scratch_{worker}"));
    for name in names.iter().map(|name| (*name).to_owned()).chain(scratch.clone()) {
        run(client, &format!("DROP TABLE IF EXISTS torture_{name}"))?;
    }
    for sql in [
        "CREATE TABLE torture_rows (w int, k bigint, v bigint, pad text, PRIMARY KEY (w, k))",
        "CREATE INDEX torture_rows_v ON torture_rows (v)",
        "CREATE TABLE torture_left (w int, k bigint, PRIMARY KEY (w, k))",
        "CREATE TABLE torture_right (w int, k bigint, PRIMARY KEY (w, k))",
        "CREATE TABLE torture_many (w int, batch bigint, n int, PRIMARY KEY (w, batch, n))",
        "CREATE TABLE torture_counters (w int PRIMARY KEY, n bigint)",
        "CREATE TABLE torture_accounts (id bigint PRIMARY KEY, balance bigint)",
        "CREATE TABLE torture_transfers (w int, id bigint, source bigint, target bigint, amount bigint, \
         PRIMARY KEY (w, id))",
        "CREATE TABLE torture_claims (slot bigint PRIMARY KEY, w int)",
    ] {
        run(client, sql)?;
    }
    let accounts: Vec<String> = (0..ACCOUNTS).map(|account| format!("({account}, {BALANCE})")).collect();
    run(client, &format!("INSERT INTO torture_accounts VALUES {}", accounts.join(", ")))?;
    let counters: Vec<String> = (0..workers).map(|worker| format!("({worker}, 0)")).collect();
    run(client, &format!("INSERT INTO torture_counters VALUES {}", counters.join(", ")))?;
    for worker in 0..workers {
        run(client, &format!("CREATE TABLE torture_scratch_{worker} (n bigint)"))?;
    }
    Ok(())
}

/// Writes until it is told to stop or the connection breaks. An error is a violation.
pub(super) fn work(
    ledger: &mut Ledger,
    target: &Target,
    seed: u64,
    stop: &AtomicBool,
    slots: &AtomicI64,
) -> Result<(), String> {
    let mut rng = StdRng::seed_from_u64(seed);
    // The server may be gone before this connection is made; nothing was told then.
    let Ok(mut client) = Client::connect(target) else { return Ok(()) };
    if client.set_patience(Some(PATIENCE)).is_err() {
        return Ok(());
    }
    while !stop.load(Ordering::Relaxed) {
        let operation = ledger.choose(&mut rng, slots.load(Ordering::Relaxed));
        match perform(&mut client, ledger, &operation) {
            Ok(()) => {
                ledger.acknowledge(&operation);
                if let Operation::Claim { slot } = operation {
                    slots.fetch_max(slot, Ordering::Relaxed);
                }
            }
            Err((statement, error)) => match (classify(&error), &operation) {
                (Refusal::Taken, Operation::Claim { slot }) => {
                    ledger.lose(*slot);
                    slots.fetch_max(slot + 1, Ordering::Relaxed);
                }
                (Refusal::Whole, _) => {
                    ledger.refuse();
                    if client.status != b'I' && run(&mut client, "ROLLBACK").is_err() {
                        return Ok(());
                    }
                }
                // If its last statement was not sent yet, it is in no doubt and must not be there.
                (Refusal::Unknown, _) => return Ok(()),
                (Refusal::Wrong | Refusal::Taken, _) => {
                    return Err(format!("unexpected answer to {statement}: {error}"));
                }
            },
        }
    }
    Ok(())
}

fn perform(
    client: &mut Client,
    ledger: &mut Ledger,
    operation: &Operation,
) -> Result<(), (String, ClientError)> {
    let mut statements = statements(ledger.worker(), operation);
    let last = statements.pop().expect("every operation has a statement");
    for statement in statements {
        run(client, &statement).map_err(|error| (statement, error))?;
    }
    ledger.doubt(operation);
    run(client, &last).map_err(|error| (last, error))
}

fn statements(w: u32, operation: &Operation) -> Vec<String> {
    match *operation {
        Operation::Insert { key, value } => {
            let pad = "x".repeat((value % 400) as usize);
            vec![format!("INSERT INTO torture_rows VALUES ({w}, {key}, {value}, '{pad}')")]
        }
        Operation::Update { key, value } => {
            vec![format!("UPDATE torture_rows SET v = {value} WHERE w = {w} AND k = {key}")]
        }
        Operation::Delete { key } => vec![format!("DELETE FROM torture_rows WHERE w = {w} AND k = {key}")],
        Operation::Pair { key } => vec![
            "BEGIN".to_owned(),
            format!("INSERT INTO torture_left VALUES ({w}, {key})"),
            format!("INSERT INTO torture_right VALUES ({w}, {key})"),
            "COMMIT".to_owned(),
        ],
        Operation::Many { batch } => {
            let rows: Vec<String> = (0..MANY).map(|n| format!("({w}, {batch}, {n})")).collect();
            vec![format!("INSERT INTO torture_many VALUES {}", rows.join(", "))]
        }
        Operation::Count => vec![format!("UPDATE torture_counters SET n = n + 1 WHERE w = {w}")],
        Operation::Transfer { id, from, to, amount } => {
            let mut moves = [(from, -amount), (to, amount)];
            moves.sort_unstable();
            let change = |(account, by): (i64, i64)| {
                format!("UPDATE torture_accounts SET balance = balance + ({by}) WHERE id = {account}")
            };
            vec![
                "BEGIN".to_owned(),
                change(moves[0]),
                change(moves[1]),
                format!("INSERT INTO torture_transfers VALUES ({w}, {id}, {from}, {to}, {amount})"),
                "COMMIT".to_owned(),
            ]
        }
        Operation::Claim { slot } => vec![format!("INSERT INTO torture_claims VALUES ({slot}, {w})")],
        Operation::Scratch => vec![format!("INSERT INTO torture_scratch_{w} VALUES (1)")],
        Operation::Truncate => vec![format!("TRUNCATE torture_scratch_{w}")],
    }
}

fn run(client: &mut Client, sql: &str) -> Result<(), ClientError> {
    client.query(sql, |_| {})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::client::Problem;

    #[test]
    fn a_lost_connection_leaves_doubt_and_a_conflict_does_not() {
        let server = |code: &str| {
            ClientError::Server(Box::new(Problem { code: code.to_owned(), ..Problem::default() }))
        };
        assert!(matches!(
            classify(&io::Error::from(io::ErrorKind::ConnectionReset).into()),
            Refusal::Unknown
        ));
        assert!(matches!(classify(&server("40003")), Refusal::Unknown));
        assert!(matches!(classify(&server("40001")), Refusal::Whole));
        assert!(matches!(classify(&server("53100")), Refusal::Whole));
        assert!(matches!(classify(&server("23505")), Refusal::Taken));
        assert!(matches!(classify(&server("XX000")), Refusal::Wrong));
        assert!(matches!(classify(&io::Error::from(io::ErrorKind::TimedOut).into()), Refusal::Wrong));
    }

    #[test]
    fn a_transfer_locks_the_smaller_account_first() {
        let statements = statements(0, &Operation::Transfer { id: 1, from: 9, to: 2, amount: 5 });
        assert!(statements[1].ends_with("balance + (5) WHERE id = 2"), "{statements:?}");
        assert!(statements[2].ends_with("balance + (-5) WHERE id = 9"), "{statements:?}");
    }
}
