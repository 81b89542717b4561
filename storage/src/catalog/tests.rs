//! Tests of the control group's state.

use bytes::Bytes;
use model::{
    access::{Grant, Grantee, Object as AccessObject, Privilege},
    catalog::{ADMIN, Change, Object, ObjectId},
    id::{SchemaId, ShardId, TableId, ViewId},
    schema::Schema,
};

use super::{
    Control,
    apply::{ControlEntry, ControlPayload},
    install,
};
use crate::{
    codec::control::{Answer, Body, Request},
    engine::Engine,
    log::LogId,
};

fn ask(control: &Control, id: u128, body: Body) -> Answer {
    let request = Request { id, body };
    let index = control.applied_index().map_or(1, |index| index + 1);
    let log_id = LogId { term: 1, node: 1, index };
    let entry = ControlEntry { log_id, payload: ControlPayload::Decoded(&request) };
    control.apply(&[entry]).expect("in memory").remove(0).expect("a request is answered")
}

fn bootstrap(control: &Control) {
    let body = Body::Bootstrap { admin: "admin".into(), password: None, database: "keystead".into() };
    assert!(matches!(ask(control, 1, body), Answer::Changed(_)));
}

#[test]
fn a_catalog_comes_back_as_it_was_changed() {
    let engine = Engine::in_memory();
    let control = Control::open(&engine, 0).expect("in memory");
    bootstrap(&control);
    let Answer::Ids(first) = ask(&control, 2, Body::AllocateIds(2)) else { panic!("ids are given out") };
    let database = control.catalog().find_database("keystead").expect("made by bootstrap").id;
    let schema = |id, name: &str| {
        Object::Schema(Schema { id: SchemaId(id), database, name: name.into(), owner: ADMIN, comment: None })
    };
    let grant = Grant {
        object: AccessObject::Schema(SchemaId(first)),
        grantee: Grantee::Public,
        privilege: Privilege::Usage,
        grantor: ADMIN,
        grantable: false,
    };
    let change = Change {
        put: vec![schema(first, "a"), schema(first + 1, "b")],
        grant: vec![grant],
        ..Change::default()
    };
    assert!(matches!(ask(&control, 3, Body::Change(change)), Answer::Changed(_)));
    let change = Change { drop: vec![ObjectId::Schema(SchemaId(first + 1))], ..Change::default() };
    assert!(matches!(ask(&control, 4, Body::Change(change)), Answer::Changed(_)));
    let again = Control::open(&engine, 0).expect("in memory");
    let (before, after) = (control.catalog(), again.catalog());
    assert_eq!(after.objects(), before.objects());
    assert_eq!(after.version(), before.version());
    assert_eq!(after.next_id(), before.next_id());
    assert_eq!(after.grants().collect::<Vec<_>>(), [&grant]);
    assert_eq!(again.applied(), control.applied());
}

#[test]
fn a_request_is_answered_once_and_a_refusal_changes_nothing() {
    let engine = Engine::in_memory();
    let control = Control::open(&engine, 0).expect("in memory");
    bootstrap(&control);
    let first = ask(&control, 7, Body::AllocateIds(5));
    assert_eq!(ask(&control, 7, Body::AllocateIds(5)), first);
    let again = Control::open(&engine, 0).expect("in memory");
    assert_eq!(ask(&again, 7, Body::AllocateIds(5)), first, "remembered over a restart");
    let version = again.catalog().version();
    let body = Body::Bootstrap { admin: "eve".into(), password: None, database: "other".into() };
    assert!(matches!(ask(&again, 8, body), Answer::Refused { .. }));
    let holder = Body::RegisterHolder { shard: ShardId(1), table: TableId(99) };
    assert!(matches!(ask(&again, 9, holder), Answer::Refused { .. }));
    assert_eq!(again.catalog().version(), version);
}

#[test]
fn a_view_follows_its_predecessor() {
    let control = Control::open(&Engine::in_memory(), 0).expect("in memory");
    let put = |id, predecessor, request| {
        let view = Bytes::from_static(b"view");
        ask(&control, request, Body::PutView { id: ViewId(id), predecessor, view })
    };
    assert_eq!(put(1, None, 1), Answer::Published);
    assert!(matches!(put(2, None, 2), Answer::Refused { .. }));
    assert_eq!(put(2, Some(ViewId(1)), 3), Answer::Published);
    assert!(matches!(put(2, Some(ViewId(2)), 4), Answer::Refused { .. }));
    assert_eq!(control.view().map(|(id, _)| id), Some(ViewId(2)));
}

#[test]
fn an_image_becomes_an_equal_state_and_a_damaged_one_leaves_nothing() {
    let from = Control::open(&Engine::in_memory(), 0).expect("in memory");
    bootstrap(&from);
    assert!(matches!(ask(&from, 2, Body::AllocateIds(5)), Answer::Ids(_)));
    let image = from.image().expect("an image");
    assert_eq!(image.applied(), &from.applied());
    let chunks: Vec<Bytes> = image.collect::<Result<_, _>>().expect("chunks");

    let engine = Engine::in_memory();
    for at in 0..chunks.len() {
        let mut without = chunks.clone();
        without.remove(at);
        assert!(install(&engine, 1, without.into_iter().map(Ok)).is_err(), "without {at}");
        let mut flipped = chunks.clone();
        let mut bytes = flipped[at].to_vec();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x10;
        flipped[at] = bytes.into();
        assert!(install(&engine, 1, flipped.into_iter().map(Ok)).is_err(), "damaged {at}");
        assert_eq!(engine.keyspace_names(), Vec::<String>::new());
    }
    let to = install(&engine, 1, chunks.into_iter().map(Ok)).expect("a whole image");
    assert_eq!(to.applied(), from.applied());
    assert_eq!(to.catalog().objects(), from.catalog().objects());
    assert_eq!(ask(&to, 2, Body::AllocateIds(5)), ask(&from, 2, Body::AllocateIds(5)), "remembered");
}
