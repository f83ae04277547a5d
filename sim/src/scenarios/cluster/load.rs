//! What uses the servers of a world: it comes with every life of a server, and goes with it.

use ashlar_node::service::Service;
use ashlar_node::volume::service::VolumeService;
use ashlar_wire::id::DriveId;

use super::device::Wrongs;
use crate::world::{Control, ServerNo, SimRuntime};

/// A life that begins.
pub(in crate::scenarios) struct Birth {
    pub(in crate::scenarios) control: Control,
    pub(in crate::scenarios) runtime: SimRuntime,
    /// The drive that the server has now.
    pub(in crate::scenarios) drive: DriveId,
    pub(in crate::scenarios) volumes: VolumeService<SimRuntime>,
}

/// See the head of this file. Rounds are asked for after the healing: in each of them everything is used once more, and what was
/// ever written is read.
pub(in crate::scenarios) trait Load {
    /// What the server offers beside the catalog and volumes.
    ///
    /// # Errors
    /// What was lost over a crash, in words.
    fn services(&mut self, _birth: &Birth) -> Result<Vec<Box<dyn Service<SimRuntime>>>, String> {
        Ok(Vec::new())
    }

    /// The life has begun.
    fn begin(&mut self, birth: &Birth);

    /// It has ended.
    fn killed(&mut self, control: &Control, runtime: &SimRuntime);

    /// Whether it can do without one of the servers, as far as it depends on the load.
    fn can_lose_one(&self) -> bool {
        true
    }

    /// Nothing goes wrong any more.
    fn healed(&mut self) {}

    /// Whether a drive of a server has failed in this life, beside that of extents.
    fn has_failed(&self, _server: ServerNo) -> bool {
        false
    }

    /// One more round is asked for. Whether every copy has to be there at its end.
    fn ask_for_a_round(&mut self, is_whole: bool);

    /// Whether all rounds are done by those that run.
    ///
    /// # Errors
    /// What is not.
    fn check_round(&self, lives: &[&SimRuntime]) -> Result<(), String>;

    /// What must never be, and was.
    fn wrong(&self) -> Option<String>;

    /// Whether everything that was told can be.
    ///
    /// # Errors
    /// The first thing whose history cannot.
    fn check_histories(&self) -> Result<(), String>;

    /// What it counted.
    fn counters(&self) -> Vec<(&'static str, u64)>;

    /// What its own devices did wrong.
    fn wrongs(&self) -> Wrongs {
        Wrongs::default()
    }
}
