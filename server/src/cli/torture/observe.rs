//! Reads everything the crash test wrote, and checks what no single connection can know: that the accounts hold what
//! the transfers moved, and that index and table agree.

use std::collections::{BTreeMap, BTreeSet};

use super::ledger::{ACCOUNTS, BALANCE, Observed};
use crate::{
    cli::client::Client,
    exit::{Failure, Kind},
};

/// All that is there.
#[derive(Debug, Default)]
pub(super) struct Everything {
    parts: BTreeMap<i64, Observed>,
    taken: BTreeSet<i64>,
    accounts: BTreeMap<i64, i64>,
    /// Source, target, amount.
    moves: Vec<[i64; 3]>,
}

/// Reads all tables.
pub(super) fn read(client: &mut Client, workers: u32) -> Result<Everything, Failure> {
    let mut all = Everything::default();
    for [w, key, value] in numbers(client, "SELECT w, k, v FROM torture_rows")? {
        if all.part(w).rows.insert(key, value).is_some() {
            return Err(Failure::new(
                Kind::Answer,
                format!("VIOLATION: key ({w}, {key}) is in the table twice"),
            ));
        }
    }
    for [w, key] in numbers(client, "SELECT w, k FROM torture_left")? {
        all.part(w).left.insert(key);
    }
    for [w, key] in numbers(client, "SELECT w, k FROM torture_right")? {
        all.part(w).right.insert(key);
    }
    for [w, batch] in numbers(client, "SELECT w, batch FROM torture_many")? {
        *all.part(w).batches.entry(batch).or_default() += 1;
    }
    for [w, id, source, target, amount] in
        numbers(client, "SELECT w, id, source, target, amount FROM torture_transfers")?
    {
        all.part(w).transfers.insert(id);
        all.moves.push([source, target, amount]);
    }
    for [slot, w] in numbers(client, "SELECT slot, w FROM torture_claims")? {
        if !all.taken.insert(slot) {
            return Err(Failure::new(Kind::Answer, format!("VIOLATION: slot {slot} is held twice")));
        }
        all.part(w).claims.insert(slot);
    }
    for [w, n] in numbers(client, "SELECT w, n FROM torture_counters")? {
        all.part(w).counter = n;
    }
    for w in 0..workers {
        for [count] in numbers(client, &format!("SELECT count(*) FROM torture_scratch_{w}"))? {
            all.part(i64::from(w)).scratch = count;
        }
    }
    all.accounts = numbers(client, "SELECT id, balance FROM torture_accounts")?
        .into_iter()
        .map(|[id, balance]| (id, balance))
        .collect();
    Ok(all)
}

impl Everything {
    fn part(&mut self, worker: i64) -> &mut super::ledger::State {
        &mut self.parts.entry(worker).or_default().state
    }

    /// What is there of one connection.
    pub(super) fn of(&self, worker: u32) -> Observed {
        let part = self.parts.get(&i64::from(worker)).cloned().unwrap_or_default();
        Observed { taken: self.taken.clone(), ..part }
    }

    /// Each account holds what it had and what the noted transfers brought and took. Answers the facts looked at.
    pub(super) fn check_accounts(&self) -> Result<u64, String> {
        let mut due: BTreeMap<i64, i64> = (0..ACCOUNTS).map(|id| (id, BALANCE)).collect();
        for [source, target, amount] in &self.moves {
            *due.entry(*source).or_default() -= amount;
            *due.entry(*target).or_default() += amount;
        }
        let sum: i64 = self.accounts.values().sum();
        if sum != ACCOUNTS * BALANCE {
            return Err(format!("the accounts hold {sum} together instead of {}", ACCOUNTS * BALANCE));
        }
        match due.iter().find(|(id, due)| self.accounts.get(id) != Some(due)) {
            Some((id, due)) => {
                Err(format!("account {id} holds {:?}, by its transfers it is {due}", self.accounts.get(id)))
            }
            None if self.accounts.len() != due.len() => {
                Err(format!("there are {} accounts", self.accounts.len()))
            }
            None => Ok(due.len() as u64 + 1),
        }
    }
}

/// A walk over the index and the table's own count see the same rows.
pub(super) fn check_index(client: &mut Client) -> Result<u64, String> {
    let mut one = |sql: &str| -> Result<i64, String> {
        let rows: Vec<[i64; 1]> = numbers(client, sql).map_err(|failure| failure.to_string())?;
        rows.first().map(|[number]| *number).ok_or_else(|| format!("{sql}: no row"))
    };
    let indexed = one("SELECT count(*) FROM torture_rows WHERE v >= 0")?;
    let counted = one("SELECT count(*) FROM torture_rows")?;
    if indexed == counted {
        Ok(1)
    } else {
        Err(format!("the index has {indexed} rows, the table counts {counted}"))
    }
}

fn numbers<const COLUMNS: usize>(client: &mut Client, sql: &str) -> Result<Vec<[i64; COLUMNS]>, Failure> {
    let rows = client.rows(sql)?;
    let parse = |row: Vec<Option<String>>| -> Option<[i64; COLUMNS]> {
        let values: Option<Vec<i64>> = row.into_iter().map(|value| value?.parse().ok()).collect();
        values?.try_into().ok()
    };
    let wrong = || Failure::new(Kind::Software, format!("{sql}: a row that is not {COLUMNS} numbers"));
    rows.into_iter().map(|row| parse(row).ok_or_else(wrong)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bank() -> Everything {
        let mut accounts: BTreeMap<i64, i64> = (0..ACCOUNTS).map(|id| (id, BALANCE)).collect();
        accounts.insert(0, BALANCE - 5);
        accounts.insert(1, BALANCE + 5);
        Everything { accounts, moves: vec![[0, 1, 5]], ..Everything::default() }
    }

    #[test]
    fn accounts_that_follow_from_the_transfers_pass() {
        assert_eq!(bank().check_accounts(), Ok(ACCOUNTS as u64 + 1));
    }

    #[test]
    fn half_a_transfer_is_found_even_if_the_sum_is_right() {
        let mut lost_note = bank();
        lost_note.moves.clear();
        assert!(lost_note.check_accounts().is_err());
        let mut half = bank();
        half.accounts.insert(1, BALANCE);
        assert!(half.check_accounts().is_err());
        let mut gone = bank();
        gone.accounts.remove(&9);
        assert!(gone.check_accounts().is_err());
    }
}
