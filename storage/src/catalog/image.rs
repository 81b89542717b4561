//! Images of the control group's state: all of it at one moment, as a stream of bounded chunks, and back into a fresh generation.
//!
//! The manifest is: shard 0, applied log id and membership. The chunks are drawn in `chunk`.

use bytes::Bytes;

use super::{CONTROL, Control, key};
use crate::{
    chunk::{Pairs, Writer, open_manifest, refused},
    codec::{Put as _, Reader, state::Applied},
    engine::{self, Engine},
    error::Result,
    keyspace,
};

/// An image on its way out.
pub struct Image {
    pairs: engine::Iter,
    manifest: Option<Bytes>,
    writer: Writer,
    applied: Applied,
}

impl Control {
    /// An image of everything, consistent at this moment.
    pub fn image(&self) -> Result<Image> {
        let keyspace = self.keyspace();
        let snapshot = self.0.engine.snapshot();
        let applied = match snapshot.get(keyspace, key::APPLIED)? {
            Some(bytes) => Applied::decode(&bytes)?,
            None => Applied::default(),
        };
        let mut manifest = Vec::with_capacity(64);
        manifest.put_varint(CONTROL.0.into());
        manifest.put_blob(&applied.to_bytes());
        let pairs = snapshot.prefix(keyspace, &[]);
        Ok(Image { pairs, manifest: Some(manifest.into()), writer: Writer::default(), applied })
    }
}

impl Image {
    /// The applied log id and membership it has.
    pub fn applied(&self) -> &Applied {
        &self.applied
    }

    fn next_chunk(&mut self) -> Result<Option<Bytes>> {
        if let Some(manifest) = self.manifest.take() {
            return Ok(Some(self.writer.manifest(&manifest)));
        }
        let pairs = &mut self.pairs;
        self.writer.next(|| pairs.next().transpose())
    }
}

impl Iterator for Image {
    type Item = Result<Bytes>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_chunk().transpose()
    }
}

/// Makes a generation of the control group's state out of an image's chunks, or leaves nothing. What it answers is on disk.
pub fn install(
    engine: &Engine,
    generation: u64,
    chunks: impl Iterator<Item = Result<Bytes>>,
) -> Result<Control> {
    let name = keyspace::keyspace_name(CONTROL, generation);
    if engine.has_keyspace(&name) {
        return Err(refused("its generation is there already"));
    }
    let installed = fill(engine, &name, generation, chunks);
    if installed.is_err() {
        engine.delete_keyspace(engine.keyspace(&name)?)?;
    }
    installed
}

fn fill(
    engine: &Engine,
    name: &str,
    generation: u64,
    mut chunks: impl Iterator<Item = Result<Bytes>>,
) -> Result<Control> {
    let keyspace = engine.keyspace(name)?;
    let first = chunks.next().ok_or_else(|| refused("it is empty"))??;
    let manifest = open_manifest(&first)?;
    let mut reader = Reader::new(&manifest, "an image's manifest");
    let source = reader.u32()?;
    let applied = Applied::decode(&reader.blob()?)?;
    reader.end()?;
    if source != CONTROL.0 {
        return Err(refused("it is of another shard"));
    }
    engine.ingest(&keyspace, Pairs::new(chunks))?;
    let control = Control::open(engine, generation)?;
    if control.applied() != applied {
        return Err(refused("its manifest and its head differ"));
    }
    Ok(control)
}
