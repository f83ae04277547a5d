//! The way to a drive: what its owner is given, and the inbox as the node sees it.
//!
//! One owner has the [`DriveHost`]: a thread in the program, a task in the simulator. Everything else puts a [`DriveInput`] into its
//! inbox and never waits for it.

use ashlar_placement::map::GroupId;
use ashlar_replica::config::Witnesses;
use ashlar_replica::request::{ClientRequest, Generation};
use ashlar_replica::{Configuration, Message};
use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::{DriveId, VolumeId};
use ashlar_wire::time::Instant;

use super::drive_host::{ClientToken, DriveHost};

/// What a drive's thread is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DriveInput {
    /// A decision of the catalog about a placement group.
    Configuration {
        /// The decision.
        configuration: Configuration,
        /// The drives that may have something of the group beside its members.
        witnesses: Witnesses,
    },
    /// A message of another member.
    Message {
        /// The drive of its sender.
        from: DriveId,
        /// The message.
        message: Message,
    },
    /// A request of a client.
    Client {
        /// Names it in the reply.
        token: ClientToken,
        /// The placement group.
        group: GroupId,
        /// The request.
        request: ClientRequest,
    },
    /// A volume has this attach generation.
    Fence {
        /// Which volume.
        volume: VolumeId,
        /// Its generation.
        generation: Generation,
    },
    /// A volume was deleted.
    DeleteVolume(VolumeId),
    /// A placement group is whole without the drive, and its extents there may go.
    Left {
        /// The placement group.
        group: GroupId,
        /// The epoch at which it is so.
        epoch: Epoch,
    },
}

/// A drive's thread, as the node sees it.
pub trait DrivePort: Send + Sync + 'static {
    /// Puts it into the drive's inbox; false where that is full, or the drive has stopped: then nothing is done.
    fn send(&self, input: DriveInput) -> bool;

    /// Puts several into the inbox at once, so that the drive is woken once. Where it is full, the last ones are lost.
    fn send_all(&self, inputs: Vec<DriveInput>) {
        for input in inputs {
            self.send(input);
        }
    }
}

impl DriveHost {
    /// Takes what came into the drive's inbox. What the host refuses has changed nothing: its sender says it again.
    pub fn handle_input(&mut self, now: Instant, input: DriveInput) {
        match input {
            DriveInput::Configuration { configuration, witnesses } => {
                if let Err(error) = self.handle_configuration(now, &configuration, &witnesses) {
                    let (set, group) = (configuration.group.set.0, configuration.group.pg.0);
                    tracing::debug!(drive = %self.drive(), set, group, %error, "configuration not taken");
                }
            }
            DriveInput::Message { from, message } => {
                if let Err(error) = self.handle_message(now, from, message) {
                    tracing::debug!(drive = %self.drive(), %from, %error, "message not taken");
                }
            }
            DriveInput::Client { token, group, request } => self.handle_client(now, token, group, &request),
            DriveInput::Fence { volume, generation } => self.handle_fence(now, volume, generation),
            DriveInput::Left { group, epoch } => self.handle_left(now, group, epoch),
            DriveInput::DeleteVolume(volume) => self.handle_delete_volume(now, volume),
        }
    }
}
