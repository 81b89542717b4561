//! Small disks that really fill, from outside: a burst that runs into the end, and a neighbour that takes the rest.
//!
//! Whoever writes hears 53100, whoever reads is answered, nothing acknowledged is lost, and the same process goes on when
//! there is room again.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use tests::Address;
use tests::disk::small::SmallDisk;
use tests::keystead::Keystead;
use tests::wire::Wire;

const MIB: u64 = 1 << 20;
const DISK_BYTES: u64 = 300 * MIB;
const WRITERS: u64 = 6;
const PATIENCE: Duration = Duration::from_secs(60);

/// The disk and a server on it; none where there are no loop devices.
fn start() -> Option<(SmallDisk, Keystead)> {
    match SmallDisk::mount(DISK_BYTES).unwrap() {
        Ok(disk) => {
            let server = Keystead::open(&disk.path().join("data")).unwrap();
            let mut wire = server.connect().unwrap();
            let made = wire.query("CREATE TABLE burst (id int8 PRIMARY KEY, body text NOT NULL)").unwrap();
            assert_eq!(made.code(), "");
            Some((disk, server))
        }
        Err(why) => {
            println!("left out: this machine mounts no small disk: {why}");
            None
        }
    }
}

/// Text that no compression makes smaller.
fn body(id: u64, bytes: usize) -> String {
    let mut state = id.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut text = String::with_capacity(bytes);
    while text.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        text.push(char::from(b'0' + (state % 64) as u8 % 10));
        text.push(char::from(b'a' + (state >> 32) as u8 % 26));
        text.push(char::from(b'A' + (state >> 48) as u8 % 26));
    }
    text
}

fn insert(id: u64) -> String {
    format!("INSERT INTO burst VALUES ({id}, '{}')", body(id, 8_000))
}

/// Inserts from several connections until each was refused often enough; answers what was acknowledged.
fn burst(address: &Address, first: u64, rows_max: u64) -> BTreeSet<u64> {
    let writer = |number: u64| {
        let mut wire = Wire::connect(address).unwrap();
        let mut acknowledged = Vec::new();
        let mut refused = 0;
        for n in 0..rows_max {
            let id = first + number * 1_000_000 + n;
            match wire.query(&insert(id)).unwrap().code() {
                "" => acknowledged.push(id),
                "53100" => refused += 1,
                other => panic!("an insert was answered with {other}"),
            }
            if refused == 100 {
                break;
            }
        }
        (acknowledged, refused)
    };
    let done: Vec<(Vec<u64>, u32)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..WRITERS).map(|number| scope.spawn(move || writer(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    println!(
        "{} rows acknowledged, {} refused",
        done.iter().map(|(ids, _)| ids.len()).sum::<usize>(),
        done.iter().map(|(_, refused)| refused).sum::<u32>()
    );
    done.into_iter().flat_map(|(ids, _)| ids).collect()
}

/// Says it again until it is answered with this code.
fn until(wire: &mut Wire, sql: &str, code: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let reply = wire.query(sql).unwrap();
        if reply.code() == code {
            return;
        }
        assert!(Instant::now() < deadline, "{sql:.80} is still answered with {:?}", reply.error);
    }
}

fn ids(wire: &mut Wire) -> BTreeSet<u64> {
    let reply = wire.query("SELECT id FROM burst").unwrap();
    assert_eq!(reply.code(), "", "{:?}", reply.error);
    let id = |row: &Vec<Option<String>>| row[0].as_deref().unwrap().parse().unwrap();
    reply.answers[0].rows.iter().map(id).collect()
}

/// Every acknowledged row is there, and no other, whole.
fn check(server: &Keystead, acknowledged: &BTreeSet<u64>) {
    let mut wire = server.connect().unwrap();
    let found = ids(&mut wire);
    let lost: Vec<_> = acknowledged.difference(&found).take(5).collect();
    let invented: Vec<_> = found.difference(acknowledged).take(5).collect();
    assert!(lost.is_empty() && invented.is_empty(), "lost {lost:?}, invented {invented:?}");
    for id in acknowledged.iter().step_by(500) {
        let reply = wire.query(&format!("SELECT body FROM burst WHERE id = {id}")).unwrap();
        assert_eq!(reply.scalar(), Some(&*body(*id, 8_000)), "row {id}");
    }
}

fn kill_and_check(server: &mut Keystead, acknowledged: &BTreeSet<u64>) {
    assert!(server.ended().unwrap().is_none(), "the process has ended");
    server.kill().unwrap();
    server.restart().unwrap();
    check(server, acknowledged);
}

#[test]
fn a_burst_that_fills_a_small_disk_hears_53100_and_deleting_makes_room() {
    let Some((disk, mut server)) = start() else { return };
    let pid = server.pid();
    let mut acknowledged = burst(&server.address().unwrap(), 0, 100_000);
    println!("{} MiB are free", disk.free_bytes().unwrap() / MIB);
    assert!(acknowledged.len() > 1_000, "{} rows fit", acknowledged.len());
    check(&server, &acknowledged);

    // What makes room is let through while the disk is full.
    let mut wire = server.connect().unwrap();
    let kept: BTreeSet<u64> = acknowledged.iter().copied().filter(|id| id % 10 == 0).collect();
    until(&mut wire, "DELETE FROM burst WHERE id % 10 <> 0", "");
    acknowledged = kept;
    until(&mut wire, &insert(u64::from(u32::MAX)), "");
    acknowledged.insert(u64::from(u32::MAX));
    assert_eq!(server.pid(), pid);
    check(&server, &acknowledged);
    kill_and_check(&mut server, &acknowledged);
}

#[test]
fn a_disk_that_a_neighbour_fills_to_the_last_byte_heals_when_he_goes() {
    let Some((disk, mut server)) = start() else { return };
    let mut acknowledged = burst(&server.address().unwrap(), 0, 200);
    let ballast = disk.fill().unwrap();
    println!("{} KiB are free", disk.free_bytes().unwrap() / 1024);
    let mut wire = server.connect().unwrap();
    acknowledged.extend(burst(&server.address().unwrap(), 10_000_000, 200));
    until(&mut wire, &insert(99_000_000), "53100");
    check(&server, &acknowledged);
    assert!(server.ended().unwrap().is_none(), "the process has ended");
    fs::remove_file(&ballast).unwrap();
    until(&mut wire, &insert(99_000_001), "");
    acknowledged.insert(99_000_001);
    acknowledged.extend(burst(&server.address().unwrap(), 20_000_000, 200));
    check(&server, &acknowledged);
    kill_and_check(&mut server, &acknowledged);
}
