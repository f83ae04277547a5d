//! Written form of a whole state: header, tables, checksum. Described in `docs/formats.md`.
//!
//! Equal states have equal bytes, and what is read is as consistent as what changes make.

use ashlar_wire::checksum::{Salt, checksum};
use ashlar_wire::id::{ClusterId, ServerId};

use super::{ProposalIdRow, State};
use crate::change::{CatalogVersion, VOTERS_CHANGING_MAX};
use crate::codec::pack::{PackSink, PackSource};
use crate::codec::{Sink, Source, read_list, read_server, write_list};
use crate::error::FormError;
use crate::table::{Row, Table};
use crate::volume::VolumeName;

const MAGIC: &str = "ashlar catalog";
/// Version of the form.
pub(super) const VERSION: u64 = 1;
/// Bytes of the checksum at the end.
const CHECKSUM_LEN: usize = 8;

/// Takes tables, one after the other.
pub(super) trait TableWriter {
    /// Takes the next table.
    fn table<R: Row>(&mut self, table: &Table<R>);
}

/// Fills tables, one after the other.
pub(super) trait TableReader {
    /// Fills the next table.
    fn table<R: Row>(&mut self, table: &mut Table<R>) -> Result<(), FormError>;
}

impl TableWriter for PackSink {
    fn table<R: Row>(&mut self, table: &Table<R>) {
        self.count(R::KIND, table.len());
        table.iter().for_each(|row| row.write(self));
    }
}

impl TableReader for PackSource<'_> {
    fn table<R: Row>(&mut self, table: &mut Table<R>) -> Result<(), FormError> {
        let count = self.count(R::KIND, R::ROWS_MAX)?;
        for _ in 0..count {
            append(table, R::read(self)?)?;
        }
        Ok(())
    }
}

/// Adds a row behind all others.
pub(super) fn append<R: Row>(table: &mut Table<R>, row: R) -> Result<(), FormError> {
    if table.last().is_some_and(|last| last.key() >= row.key()) {
        return Err(FormError::OutOfOrder(R::KIND));
    }
    table.insert(row);
    Ok(())
}

impl State {
    /// The written form of the whole state, with a checksum that binds it to its cluster.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = PackSink::default();
        out.text("magic", MAGIC);
        out.uint("form", VERSION);
        self.write_head(&mut out);
        self.write_tables(&mut out);
        let sum = checksum(salt(self.cluster), &out.0);
        out.0.extend_from_slice(&sum.0.to_be_bytes());
        out.0
    }

    /// Reads what [`State::encode`] wrote, all of it.
    ///
    /// # Errors
    /// The writer's: damaged, of another version, beyond a limit, or inconsistent. No retry helps.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormError> {
        let Some((body, sum)) = bytes.split_last_chunk::<CHECKSUM_LEN>() else { return Err(FormError::NotThis) };
        let mut from = PackSource::new(body);
        if from.text("magic", MAGIC.len()).is_ok_and(|magic| magic != MAGIC) {
            return Err(FormError::NotThis);
        }
        let version = from.uint("form")?;
        if version != VERSION {
            return Err(FormError::UnknownVersion(version));
        }
        let mut state = Self::read_head(&mut from)?;
        if checksum(salt(state.cluster), body).0.to_be_bytes() != *sum {
            return Err(FormError::Checksum);
        }
        state.read_tables(&mut from)?;
        from.finish()?;
        state.finished()
    }

    pub(super) fn write_head(&self, out: &mut impl Sink) {
        out.id("cluster", self.cluster.as_bytes());
        out.uint("version", self.version.0);
        write_list(out, "voters", &self.voters, |out, server| out.id("server", server.as_bytes()));
    }

    pub(super) fn read_head(from: &mut impl Source) -> Result<Self, FormError> {
        let mut state = Self::new(ClusterId::from_bytes(from.id("cluster")?));
        state.version = CatalogVersion(from.uint("version")?);
        let voters: Vec<ServerId> = read_list(from, "voters", VOTERS_CHANGING_MAX, |from| read_server(from, "server"))?;
        state.voters = voters;
        Ok(state)
    }

    pub(super) fn write_tables(&self, out: &mut impl TableWriter) {
        out.table(&self.servers);
        out.table(&self.drives);
        out.table(&self.sets);
        out.table(&self.pgs);
        out.table(&self.volumes);
        out.table(&self.deleted);
        out.table(&self.records);
        out.table(&self.features);
        out.table(&self.proposals);
    }

    pub(super) fn read_tables(&mut self, from: &mut impl TableReader) -> Result<(), FormError> {
        from.table(&mut self.servers)?;
        from.table(&mut self.drives)?;
        from.table(&mut self.sets)?;
        from.table(&mut self.pgs)?;
        from.table(&mut self.volumes)?;
        from.table(&mut self.deleted)?;
        from.table(&mut self.records)?;
        from.table(&mut self.features)?;
        from.table(&mut self.proposals)
    }

    /// Makes the indexes of a state whose tables have been read, and checks it.
    pub(super) fn finished(mut self) -> Result<Self, FormError> {
        for volume in self.volumes.iter() {
            self.volume_names.insert(VolumeName { name: volume.name.clone(), id: volume.id });
        }
        for row in self.proposals.iter() {
            self.proposal_ids.insert(ProposalIdRow { id: row.id, version: row.applied.version });
        }
        self.check()?;
        Ok(self)
    }
}

fn salt(cluster: ClusterId) -> Salt {
    Salt::new(&[b"catalog", cluster.as_bytes()])
}
