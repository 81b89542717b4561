//! Images: out of one generation, into another.

use bytes::Bytes;
use model::id::{Point, ShardId};

use super::fixture::*;
use crate::{
    Error,
    engine::Engine,
    shard::{Install, Points, Shard},
};

fn filled(engine: &Engine) -> Shard {
    let shard = shard_in(engine, 0);
    for name in ["acme", "beta", "gamma", "delta"] {
        let mut command = command((0..20).map(|id| insert(id, &format!("{name}{id}"), id)).collect());
        command.partition = partition_of(name);
        command.identity = slot(shard.revision().0 + 1);
        run(&shard, command);
    }
    shard
}

fn install(engine: &Engine, chunks: Vec<Bytes>) -> crate::Result<Shard> {
    let install = Install { source: SHARD, target: SHARD, generation: 1 };
    install.run(engine, chunks.into_iter().map(Ok))
}

#[test]
fn an_image_becomes_an_equal_state() {
    let (from, to) = (Engine::in_memory(), Engine::in_memory());
    let shard = filled(&from);
    let mut image = shard.image(Points::ALL).expect("an image");
    // What comes later is not in it.
    let hash = shard.hash(Points::ALL).expect("read");
    let applied = shard.applied();
    run(&shard, command(vec![insert(1, "late", 1)]));
    let chunks: Vec<Bytes> = image.by_ref().collect::<Result<_, _>>().expect("chunks");
    let copy = install(&to, chunks).expect("a whole image");
    assert_eq!(copy.hash(Points::ALL).expect("read"), hash);
    assert_eq!(copy.applied(), applied);
    assert_sound(&copy);
    let mut command = command(vec![insert(99, "next", 1)]);
    command.identity = slot(5);
    assert_eq!(run(&copy, command), applied_at(5));
}

#[test]
fn an_installed_image_is_on_disk_and_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = || Engine::open(folder.path(), &crate::engine::Options::default()).expect("opened");
    let shard = filled(&Engine::in_memory());
    let large = "x".repeat(12_000);
    run(&shard, command(vec![insert(77, &large, 1)]));
    let hash = shard.hash(Points::ALL).expect("read");
    {
        let engine = open();
        let chunks: Vec<Bytes> =
            shard.image(Points::ALL).expect("an image").collect::<Result<_, _>>().expect("chunks");
        let copy = install(&engine, chunks).expect("a whole image");
        assert_eq!(copy.hash(Points::ALL).expect("read"), hash);
    }
    let engine = open();
    let again = Shard::open(&engine, SHARD, 1).expect("it is there");
    assert_eq!(again.hash(Points::ALL).expect("read"), hash);
    run(&again, command(vec![put(77, "small", 2)]));
    assert_eq!(show(&again), "77:small:2");
    engine.flush(again.keyspace()).expect("flushed");
    assert_eq!(show(&again), "77:small:2");
    assert_sound(&again);
}

fn applied_at(revision: u64) -> model::command::Outcome {
    applied(revision, &[1])
}

#[test]
fn a_range_of_points_goes_alone() {
    let (from, to) = (Engine::in_memory(), Engine::in_memory());
    let shard = filled(&from);
    let point = partition_of("beta").point();
    let points = Points::new(point, point).expect("one point");
    let chunks: Vec<Bytes> =
        shard.image(points).expect("an image").collect::<Result<_, _>>().expect("chunks");
    let install = Install { source: SHARD, target: ShardId(9), generation: 0 };
    let part = install.run(&to, chunks.into_iter().map(Ok)).expect("a whole image");
    assert_eq!(part.snapshot().partitions(TABLE).expect("read"), [partition_of("beta")]);
    assert_eq!(part.hash(points).expect("read"), shard.hash(points).expect("read"));
    assert_eq!(part.snapshot().count(&partition_of("beta"), TABLE).expect("read"), 20);
    assert!(Points::new(Point(2), Point(1)).is_none());
    assert_sound(&part);
}

#[test]
fn a_damaged_missing_or_foreign_chunk_leaves_nothing() {
    let (from, to) = (Engine::in_memory(), Engine::in_memory());
    let shard = filled(&from);
    let chunks: Vec<Bytes> =
        shard.image(Points::ALL).expect("an image").collect::<Result<_, _>>().expect("chunks");
    assert!(chunks.len() >= 3);
    let refuse = |chunks: Vec<Bytes>, what: &str| {
        assert!(matches!(install(&to, chunks), Err(Error::Image { .. })), "{what}");
        assert_eq!(to.keyspace_names(), Vec::<String>::new(), "{what}");
    };
    for at in 0..chunks.len() {
        let mut without = chunks.clone();
        without.remove(at);
        refuse(without, "a chunk is missing");
        for byte in [0, 5, 9, chunks[at].len() / 2, chunks[at].len() - 1] {
            let mut flipped = chunks.clone();
            let mut bytes = flipped[at].to_vec();
            bytes[byte] ^= 0x10;
            flipped[at] = bytes.into();
            refuse(flipped, "a bit is flipped");
        }
    }
    refuse(vec![], "nothing");
    let foreign = Install { source: ShardId(3), target: ShardId(3), generation: 0 };
    assert!(foreign.run(&to, chunks.into_iter().map(Ok)).is_err());
}
