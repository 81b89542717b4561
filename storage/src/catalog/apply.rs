//! Entries of the control group in order; one group is one engine batch.

use std::sync::{Arc, atomic::Ordering};

use bytes::Bytes;
use model::{
    Code,
    access::Grant,
    catalog::{Catalog, Change, Object, ObjectId},
    id::CatalogVersion,
};

use super::{
    ANSWERS_MAX, CONTROL, Control, Live, head_to_bytes, holder_key, key, object_to_bytes, view_to_bytes,
};
use crate::{
    codec::{
        catalog as object_codec,
        control::{self, Answer, Body, Request},
    },
    cut,
    engine::Batch,
    error::{Error, Result},
    log::LogId,
};

/// One entry of the control group's log.
#[derive(Clone, Copy, Debug)]
pub struct ControlEntry<'a> {
    /// Its place.
    pub log_id: LogId,
    /// What it carries.
    pub payload: ControlPayload<'a>,
}

/// What an entry of the control group's log carries.
#[derive(Clone, Copy, Debug)]
pub enum ControlPayload<'a> {
    /// Nothing: a leader's first entry.
    Blank,
    /// A membership, as the caller encodes it.
    Membership(&'a [u8]),
    /// The bytes of a [`Request`].
    Encoded(&'a Bytes),
    /// A request that was decoded before.
    Decoded(&'a Request),
}

impl Control {
    /// Applies entries that follow what was applied; one answer each, none for those that ask nothing.
    pub fn apply(&self, entries: &[ControlEntry<'_>]) -> Result<Vec<Option<Answer>>> {
        let control = &*self.0;
        let _applying = control.applying.lock();
        let live = control.live.read().clone();
        let mut group = Group { control: self, live, batch: Batch::new() };
        let mut answers = Vec::with_capacity(entries.len());
        for entry in entries {
            answers.push(group.apply(entry)?);
        }
        let after = group.commit()?;
        *control.published.write() = after.published.clone();
        let applied = after.applied.index();
        *control.live.write() = after;
        control.applied.store(applied.map_or(0, |index| index + 1), Ordering::Release);
        Ok(answers)
    }
}

struct Group<'a> {
    control: &'a Control,
    live: Live,
    batch: Batch,
}

impl Group<'_> {
    fn apply(&mut self, entry: &ControlEntry<'_>) -> Result<Option<Answer>> {
        let given = entry.log_id.index;
        if let Some(applied) = self.live.applied.index()
            && given != applied + 1
        {
            return Err(Error::OutOfOrder { shard: CONTROL, applied, given });
        }
        let answer = match entry.payload {
            ControlPayload::Blank => None,
            ControlPayload::Membership(membership) => {
                self.live.applied.membership = Bytes::copy_from_slice(membership);
                None
            }
            ControlPayload::Encoded(bytes) => Some(self.request(&control::decode(bytes)?)),
            ControlPayload::Decoded(request) => Some(self.request(request)),
        };
        self.live.applied.log_id = Some(entry.log_id);
        Ok(answer)
    }

    fn request(&mut self, request: &Request) -> Answer {
        if let Some(answer) = self.live.answers.get(&request.id) {
            return answer.clone();
        }
        let answer = match &request.body {
            Body::Bootstrap { admin, password, database } => {
                self.bootstrap(admin, password.clone(), database)
            }
            Body::AllocateIds(count) => self.allocate(*count),
            Body::Change(change) => self.change(change),
            Body::RegisterHolder { shard, table } => {
                match self.live.published.catalog.table(*table).map(|table| table.version) {
                    None => refused(Code::UndefinedTable, format!("table {table} does not exist")),
                    Some(version) => {
                        Arc::make_mut(&mut self.live.published.holders).insert((*table, *shard));
                        self.batch.put(&self.control.0.keyspace, holder_key(*table, *shard), Bytes::new());
                        Answer::Registered(version)
                    }
                }
            }
            Body::PutView { id, predecessor, view } => {
                let newest = self.live.published.view.as_ref().map(|(id, _)| *id);
                if newest != *predecessor || newest.is_some_and(|newest| newest >= *id) {
                    return refused(
                        Code::SerializationFailure,
                        "the view's predecessor is not the newest".to_owned(),
                    );
                }
                self.live.published.view = Some((*id, view.clone()));
                self.batch.put(&self.control.0.keyspace, key::VIEW, view_to_bytes(*id, view));
                Answer::Published
            }
        };
        self.remember(request.id, &answer);
        answer
    }

    fn bootstrap(&mut self, admin: &str, password: Option<String>, database: &str) -> Answer {
        if self.live.published.catalog.version() > CatalogVersion(0) {
            return refused(
                Code::ObjectNotInPrerequisiteState,
                "the cluster has its first catalog".to_owned(),
            );
        }
        let catalog = Catalog::bootstrap(admin, password, database);
        let objects = catalog.objects();
        self.put_objects(&objects, catalog.version());
        self.publish(catalog)
    }

    fn allocate(&mut self, count: u32) -> Answer {
        let catalog = Arc::make_mut(&mut self.live.published.catalog);
        if catalog.next_id().checked_add(count).is_none() {
            return refused(Code::ProgramLimitExceeded, "all object ids are used up".to_owned());
        }
        Answer::Ids(catalog.allocate(count))
    }

    fn change(&mut self, change: &Change) -> Answer {
        let before = self.live.published.catalog.clone();
        let after = match before.apply(change) {
            Ok(after) => after,
            Err(error) => return refused(error.code(), error.message().to_owned()),
        };
        for id in &change.drop {
            self.batch.delete(&self.control.0.keyspace, object_key(*id));
            if let ObjectId::Table(table) = id {
                Arc::make_mut(&mut self.live.published.changed).remove(table);
                let holders = Arc::make_mut(&mut self.live.published.holders);
                let gone: Vec<_> = holders.iter().filter(|(of, _)| of == table).copied().collect();
                for (table, shard) in gone {
                    holders.remove(&(table, shard));
                    self.batch.delete(&self.control.0.keyspace, holder_key(table, shard));
                }
            }
        }
        self.put_objects(&change.put, after.version());
        let held =
            |catalog: &Catalog| catalog.grants().copied().collect::<std::collections::BTreeSet<Grant>>();
        let (old, new) = (held(&before), held(&after));
        for grant in old.difference(&new) {
            self.batch.delete(&self.control.0.keyspace, grant_key(grant));
        }
        for grant in new.difference(&old) {
            self.batch.put(&self.control.0.keyspace, grant_key(grant), Bytes::new());
        }
        self.publish(after)
    }

    fn put_objects(&mut self, objects: &[Object], version: CatalogVersion) {
        for object in objects {
            if let Object::Table(table) = object {
                Arc::make_mut(&mut self.live.published.changed).insert(table.id, version);
            }
            let key = object_key(id_of(object));
            self.batch.put(&self.control.0.keyspace, key, object_to_bytes(version, object));
        }
    }

    fn publish(&mut self, catalog: Catalog) -> Answer {
        let version = catalog.version();
        self.live.published.catalog = Arc::new(catalog);
        Answer::Changed(version)
    }

    fn remember(&mut self, id: u128, answer: &Answer) {
        let place = self.live.answered % ANSWERS_MAX;
        let ring = Arc::make_mut(&mut self.live.ring);
        let answers = Arc::make_mut(&mut self.live.answers);
        match ring.get_mut(place as usize) {
            Some(old) => {
                answers.remove(old);
                *old = id;
            }
            None => ring.push(id),
        }
        answers.insert(id, answer.clone());
        self.live.answered += 1;
        let key = [&[key::ANSWER][..], &(place as u16).to_be_bytes()].concat();
        self.batch.put(&self.control.0.keyspace, key, control::answer_to_bytes(id, answer));
    }

    fn commit(mut self) -> Result<Live> {
        let keyspace = &self.control.0.keyspace;
        let catalog = &self.live.published.catalog;
        let head = head_to_bytes(catalog.version(), catalog.next_id(), self.live.answered);
        self.batch.put(keyspace, key::HEAD, head);
        self.batch.put(keyspace, key::APPLIED, self.live.applied.to_bytes());
        cut::point("catalog.before");
        self.control.0.engine.commit(self.batch)?;
        cut::point("catalog.committed");
        Ok(self.live)
    }
}

fn refused(code: Code, message: String) -> Answer {
    Answer::Refused { code, message }
}

fn id_of(object: &Object) -> ObjectId {
    match object {
        Object::Database(at) => ObjectId::Database(at.id),
        Object::Schema(at) => ObjectId::Schema(at.id),
        Object::Table(at) => ObjectId::Table(at.id),
        Object::View(at) => ObjectId::View(at.id),
        Object::Sequence(at) => ObjectId::Sequence(at.id),
        Object::Role(at) => ObjectId::Role(at.id),
    }
}

fn object_key(id: ObjectId) -> Vec<u8> {
    let mut out = vec![key::OBJECT];
    object_codec::put_object_id(&mut out, id);
    out
}

fn grant_key(grant: &Grant) -> Vec<u8> {
    [&[key::GRANT][..], &object_codec::grant_to_bytes(grant)].concat()
}
