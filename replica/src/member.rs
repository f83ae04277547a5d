//! Member of a placement group: the machine that turns configurations into roles, and fences what is of other epochs.
//!
//! A member enters an epoch in three steps, and answers nothing of that epoch before the last one: the promise is
//! durable; the store has completed every change of earlier epochs; the greatest version of the copy is known. Requests
//! of clients that were under way end with [`Refusal::Unknown`] at that moment, and are repeated by the client.
//!
//! A drive without room for a change that was ordered takes its member out of the epoch: the change is at others, and not
//! here. That is kept rare: the caller says when room gets low ([`Member::handle_room`]), and primaries refuse what needs
//! more of it from then on, with [`Refusal::NoSpace`]. A member that leaves for want of room has everything that was
//! acknowledged. If it still acts in the next epoch it takes part again; else it returns as a learner, which is filled
//! when it has room. The last acting member asks for another epoch instead of its removal, and serves reads, discards and
//! rewrites in that.
//!
//! In its epoch a member listens to one life of each other member, and takes part in one life itself: see [`crate::life`].

use alloc::boxed::Box;

use ashlar_placement::map::GroupId;
use ashlar_placement::rule::ExtentId;
use core::time::Duration;

use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::{DriveId, VolumeId};
use ashlar_wire::time::Instant;
use ashlar_wire::version::Version;

use crate::backup::{Backup, Kind};
use crate::config::{Configuration, EPOCH_MAX, Role, Settings, Witnesses};
use crate::core_state::{Core, Pending, Purpose};
use crate::error::{Error, Refusal};
use crate::life::Life;
use crate::message::{Body, Fault, Message, Standing};
use crate::planted::Planted;
use crate::primary::Primary;
use crate::promise::Promise;
use crate::record::{BadRecord, Record};
use crate::request::{
    ClientRequest, ClientResult, Generation, RequestId, Room, SessionId, StoreError, StoreId, StoreReply, StoreRequest,
    StoreResult,
};

/// What a member asks the catalog for. Every report names the epoch on which the change is to be compared and set.
/// Reports come again until the epoch changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    /// Remove this member, acting or learner. If it is a learner, the epoch has to change as well: the primary may have
    /// reported it caught up.
    Lost {
        /// Epoch of the reporter.
        epoch: Epoch,
        /// Which member.
        member: DriveId,
        /// What is wrong with it.
        fault: Fault,
    },
    /// Add this learner to the acting members: it has everything, and counts already.
    CaughtUp {
        /// Epoch of the reporter.
        epoch: Epoch,
        /// Which learner.
        learner: DriveId,
    },
    /// Begin another epoch with the same members: one of them was restarted, or has taken part in this one in an earlier
    /// life.
    NewEpoch {
        /// Epoch of the reporter.
        epoch: Epoch,
    },
}

/// What a member wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Send this to another member.
    Send {
        /// Receiver.
        to: DriveId,
        /// The message.
        message: Message,
    },
    /// Ask the store of the member's drive, and hand the result to [`Member::handle_stored`].
    Store {
        /// Name of the request.
        id: StoreId,
        /// The request.
        request: StoreRequest,
    },
    /// Answer a client.
    Reply {
        /// Its session.
        session: SessionId,
        /// Its request.
        request: RequestId,
        /// The answer.
        result: ClientResult,
    },
    /// Ask the catalog for a change.
    Report(Report),
    /// Blocks of an extent cannot be read, and drives that may have them are away: they are waited for. To be told to people.
    Awaits {
        /// Which extent.
        extent: ExtentId,
    },
    /// Blocks of an extent are lost: no copy of them can be read. To be told to people.
    Lost {
        /// Which extent.
        extent: ExtentId,
    },
    /// No write of an earlier generation of this volume will take effect through this member any more.
    Fenced {
        /// Which volume.
        volume: VolumeId,
        /// Its generation.
        generation: Generation,
    },
}

/// What a member is doing.
#[derive(Debug)]
enum State {
    /// It is not in the configuration, or knows none.
    Absent,
    /// The epoch is one of an earlier life, or the copy is partial: another one was asked for.
    Benched,
    /// It enters the epoch.
    Entering(Entering),
    /// It orders writes and serves reads.
    Primary(Box<Primary>),
    /// It follows the primary.
    Backup(Box<Backup>),
    /// Its drive cannot be used.
    Failed(Fault),
}

#[derive(Debug, Clone, Copy, Default)]
struct Entering {
    is_promised: bool,
    is_listing: bool,
    is_adopted: bool,
}

/// The first moment after `now` at which the members of `drive` tick. They do so together, so that a drive with hundreds of members
/// wakes up once a period, and what they ask others leaves in one message each; drives tick at different moments.
fn tick_after(now: Instant, period: Duration, drive: DriveId) -> Instant {
    let period = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
    let [bytes @ .., _, _, _, _, _, _, _, _] = *drive.as_bytes();
    let phase = u64::from_le_bytes(bytes) % period;
    let nanos = now.as_nanos();
    let passed = (nanos % period + period - phase) % period;
    Instant::from_nanos(nanos.saturating_add(period - passed))
}

/// One drive's share of one placement group.
#[derive(Debug)]
pub struct Member {
    core: Core,
    state: State,
    /// It failed as blocks of its copy cannot be read, and everything else is there: it can act in another epoch.
    may_act_again: bool,
    configuration: Option<Configuration>,
    /// Epochs up to this one are those of an earlier life.
    bench: Epoch,
    /// The member has a record from an earlier life, or of an epoch that it has entered.
    has_record: bool,
    next_tick: Instant,
    saved_clean: Version,
    saved_at: Instant,
}

impl Member {
    /// A member with what its drive has kept: `saved` is the last record that was stored, if there is one. `life` is drawn
    /// by chance for this member and never used again.
    ///
    /// A damaged record counts as none: the copy is partial then, and the member returns as a learner.
    ///
    /// # Panics
    /// If the settings are not valid: the program's own constants.
    #[must_use]
    pub fn new(
        now: Instant,
        (group, drive, life): (GroupId, DriveId, Life),
        settings: Settings,
        saved: Option<&[u8]>,
    ) -> Self {
        assert!(settings.is_valid(), "time-outs that do not agree allow two primaries to serve");
        let record = saved.and_then(|bytes| Record::decode(bytes, group, drive).inspect_err(|BadRecord| ()).ok());
        let has_record = record.is_some();
        let record = record.unwrap_or(Record::NEW);
        let is_resuming = settings.bugs.has(Planted::ResumeEpoch);
        let bench = if is_resuming { Epoch::ZERO } else { record.promise.term };
        Self {
            core: Core::new((group, drive, life), settings, record, now),
            state: State::Absent,
            may_act_again: false,
            configuration: None,
            bench,
            has_record,
            next_tick: tick_after(now, settings.tick, drive),
            saved_clean: record.clean,
            saved_at: now,
        }
    }

    /// The catalog has decided. Older configurations than the present one change nothing.
    ///
    /// # Errors
    /// [`Error::OtherGroup`], [`Error::BadConfiguration`], the caller's; [`Error::EarlierEpoch`].
    pub fn handle_configuration(&mut self, now: Instant, configuration: &Configuration) -> Result<(), Error> {
        if configuration.group != self.core.group {
            return Err(Error::OtherGroup);
        }
        if !configuration.is_valid() {
            return Err(Error::BadConfiguration);
        }
        if configuration.epoch < self.core.epoch {
            return Err(Error::EarlierEpoch(self.core.epoch));
        }
        if configuration.epoch > self.core.epoch {
            self.leave(configuration);
            self.core.epoch = configuration.epoch;
            self.core.lives.clear();
            self.configuration = Some(configuration.clone());
            self.enter(now, configuration);
            self.advance_entering();
        }
        Ok(())
    }

    /// These drives may have something of the group at this epoch beside its members. In an epoch of which it has not been told
    /// them a member never takes a group in which no copy is whole for one that has not begun.
    pub fn handle_witnesses(&mut self, epoch: Epoch, witnesses: &Witnesses) {
        if epoch >= self.core.witnesses.0 {
            self.core.witnesses = (epoch, witnesses.clone());
        }
    }

    /// Ends what the former epoch had under way.
    fn leave(&mut self, next: &Configuration) {
        if let State::Primary(primary) = &mut self.state {
            primary.end(&mut self.core, &Refusal::Unknown(Box::new(next.clone())));
        }
    }

    fn enter(&mut self, now: Instant, configuration: &Configuration) {
        let role = configuration.role(self.core.drive);
        if let State::Failed(fault) = self.state
            && (fault == Fault::DriveFailed
                || fault != Fault::DriveFull && !self.may_act_again && matches!(role, Role::Primary | Role::Backup))
        {
            // A copy that lacks room has everything that was acknowledged; one that lacks a change has not.
            return;
        }
        if configuration.epoch <= self.bench {
            self.state = if role == Role::None { State::Absent } else { State::Benched };
            self.ask_for_new_epoch();
            return;
        }
        if role == Role::None {
            self.state = State::Absent;
            return;
        }
        let is_acting = role != Role::Learner;
        let ignores = self.core.settings.bugs.has(Planted::IgnoreBlank);
        if is_acting && !self.has_record && configuration.epoch > Epoch(1) && !ignores {
            return self.found_record(configuration);
        }
        if self.core.settings.bugs.has(Planted::WholeByEntering) {
            self.core.record.is_partial &= is_acting;
        } else {
            // Whatever was whole before, the epochs since then may lack here.
            self.core.record.is_partial |= !is_acting;
        }
        self.has_record = true;
        self.save_promise(configuration);
        self.saved_at = now;
        self.saved_clean = self.core.record.clean;
        self.state = State::Entering(Entering::default());
    }

    /// Begins the record of a drive that is to act and has none, although the group has had other epochs: it has lost its
    /// data, perhaps in this very epoch, or never heard of an earlier one. It takes part again in a later one: as a learner,
    /// or with the others that have nothing ([`Primary::handle_adoption`]).
    fn found_record(&mut self, configuration: &Configuration) {
        self.has_record = true;
        self.bench = configuration.epoch;
        self.core.record.is_partial = true;
        self.core.record.promise = Promise::none(configuration.epoch);
        self.core.save(Purpose::Watermark);
        self.state = State::Benched;
        self.ask_for_new_epoch();
    }

    fn save_promise(&mut self, configuration: &Configuration) {
        let before = self.core.record;
        let accepted = self.core.record.promise.accept(configuration.epoch, configuration.primary);
        let is_resuming = self.core.settings.bugs.has(Planted::ResumeEpoch);
        assert!(accepted.is_ok() || is_resuming, "an epoch above the promised one is always accepted");
        if self.core.settings.bugs.has(Planted::PromiseNotDurable) {
            let promised = core::mem::replace(&mut self.core.record, before);
            self.core.save(Purpose::Promise);
            self.core.record = promised;
        } else {
            self.core.save(Purpose::Promise);
        }
    }

    /// Goes on with entering an epoch, as far as the store has come.
    fn advance_entering(&mut self) {
        let State::Entering(entering) = &mut self.state else { return };
        if entering.is_promised && self.core.changes == 0 && !entering.is_listing {
            entering.is_listing = true;
            let above = Version { epoch: EPOCH_MAX, sequence: u64::MAX };
            self.core.store(StoreRequest::List { above, after: None }, Purpose::Newest);
        }
    }

    /// The last step of entering: the member takes its role.
    fn take_role(&mut self, now: Instant, newest: Version) {
        let State::Entering(entering) = self.state else { return };
        let configuration = self.configuration.clone().expect("an epoch is entered by its configuration");
        self.core.newest = newest;
        let record = &self.core.record;
        // Data that are older than their record are not what the record vouches for.
        let is_partial = record.is_partial || newest < record.clean;
        let is_partial = is_partial && !self.core.settings.bugs.has(Planted::IgnoreBlank);
        let standing = Standing { clean: record.clean, newest, is_partial, room: self.core.room };
        let kind = match configuration.role(self.core.drive) {
            Role::Primary => {
                let primary = Primary::new(&mut self.core, now, configuration, standing);
                self.state = State::Primary(Box::new(primary));
                return self.settle();
            }
            Role::Learner => Kind::Learner,
            Role::Backup | Role::None => Kind::Backup,
        };
        let backup = Backup::new(now, configuration.primary, kind, standing);
        if entering.is_adopted {
            backup.answer_adopt(&mut self.core);
        }
        self.state = State::Backup(Box::new(backup));
    }

    /// A client wants something of an extent. It is answered by [`Output::Reply`], sooner or later or, if the primary is
    /// lost, never: clients repeat their requests.
    pub fn handle_client(&mut self, now: Instant, request: &ClientRequest) {
        let is_stale = self.is_stale(request.epoch);
        let refusal = match (&mut self.state, &self.configuration) {
            (State::Failed(_), _) => Refusal::DriveFailed,
            (_, None) => Refusal::Behind(self.core.epoch),
            (_, Some(_)) if request.epoch > self.core.epoch => Refusal::Behind(self.core.epoch),
            (_, Some(configuration)) if is_stale => Refusal::Moved(Box::new(configuration.clone())),
            (State::Primary(primary), _) => {
                primary.handle_client(&mut self.core, now, request);
                return self.settle();
            }
            (State::Entering(_) | State::Benched, Some(configuration)) if configuration.primary == self.core.drive => {
                Refusal::NotServing
            }
            (_, Some(configuration)) => Refusal::Moved(Box::new(configuration.clone())),
        };
        self.core.reply(request.session, request.request, Err(refusal));
    }

    fn is_stale(&self, epoch: Epoch) -> bool {
        epoch < self.core.epoch && !self.core.settings.bugs.has(Planted::NoRouteCheck)
    }

    /// A message from another member, which the transport has authenticated.
    ///
    /// # Errors
    /// The sender's fault, see [`Error`]; the message has changed nothing. One of an earlier epoch is answered with the
    /// configuration of this one.
    pub fn handle_message(&mut self, now: Instant, from: DriveId, message: Message) -> Result<(), Error> {
        if message.group != self.core.group {
            return Err(Error::OtherGroup);
        }
        if let Body::Adopt(configuration) | Body::Newer(configuration) = &message.body
            && message.epoch > self.core.epoch
        {
            if configuration.epoch != message.epoch {
                return Err(Error::BadConfiguration);
            }
            self.handle_configuration(now, configuration)?;
        }
        if matches!(message.body, Body::Newer(_)) {
            return Ok(());
        }
        let is_checked = !self.core.settings.bugs.has(Planted::NoEpochCheck);
        if message.epoch < self.core.epoch && is_checked {
            if let Some(configuration) = &self.configuration {
                let newer = configuration.clone();
                self.core.send(from, Body::Newer(newer));
            }
            return Err(Error::EarlierEpoch(self.core.epoch));
        }
        if message.epoch > self.core.epoch {
            return Err(Error::LaterEpoch(message.epoch));
        }
        let is_of_primary = self.primary() == Some(from);
        if is_checked && message.body.is_from_primary() != is_of_primary {
            return Err(Error::NotForRole);
        }
        self.check_lives(from, &message)?;
        match &mut self.state {
            State::Primary(primary) => {
                primary.handle_message(&mut self.core, now, from, message.body)?;
                self.settle();
                Ok(())
            }
            State::Backup(backup) => backup.handle(&mut self.core, now, message.body),
            State::Entering(entering) => {
                entering.is_adopted |= matches!(message.body, Body::Adopt(_));
                Ok(())
            }
            State::Failed(fault) => {
                let body = Body::Failed(*fault);
                self.core.send(from, body);
                Ok(())
            }
            State::Absent | State::Benched => Ok(()),
        }
    }

    /// Whether a message of this epoch is for this life, and from the life of its sender that is listened to.
    fn check_lives(&mut self, from: DriveId, message: &Message) -> Result<(), Error> {
        let takes_part = !matches!(self.state, State::Absent | State::Benched);
        let is_member = self.configuration.as_ref().is_some_and(|known| known.role(from) != Role::None);
        if !takes_part || !is_member || self.core.settings.bugs.has(Planted::IgnoreLives) {
            return Ok(());
        }
        let is_mine = message.to.map_or(message.body.is_opening(), |to| to == self.core.life);
        if !is_mine {
            if message.to.is_some() {
                self.bench_itself();
            }
            return Err(Error::OtherLife);
        }
        if self.core.lives.hear(from, message.from) {
            return Ok(());
        }
        if let State::Backup(backup) = &self.state {
            // The primary is told that by a message for its earlier life, before it takes the others for silent.
            backup.answer_adopt(&mut self.core);
        }
        Err(Error::OtherLife)
    }

    /// Another member has heard an earlier life of this one in the present epoch, so this life takes no part in it.
    fn bench_itself(&mut self) {
        if matches!(self.state, State::Failed(_)) {
            return;
        }
        self.leave_with_unknown();
        self.bench = self.core.epoch;
        self.state = State::Benched;
        self.ask_for_new_epoch();
    }

    /// The store has completed a request.
    ///
    /// # Errors
    /// [`Error::UnknownCompletion`]: nothing of that name is under way, or the reply belongs to another request.
    pub fn handle_stored(&mut self, now: Instant, id: StoreId, result: StoreResult) -> Result<(), Error> {
        let pending = self.core.pending.remove(&id).ok_or(Error::UnknownCompletion)?;
        self.core.changes -= usize::from(pending.is_change);
        let is_full = result == Err(StoreError::Full);
        let reply = match result {
            Ok(reply) => reply,
            Err(_) if is_full && self.core.settings.bugs.has(Planted::FullCountsAsDone) => StoreReply::Done,
            Err(error) => {
                if error != StoreError::Damaged || !self.handle_unreadable(now, &pending) {
                    self.handle_store_error(error, pending.epoch);
                }
                // It may have been the last change of an earlier epoch, for which this one waits.
                self.advance_entering();
                return Ok(());
            }
        };
        if pending.epoch == self.core.epoch {
            self.handle_completion(now, pending.purpose, reply)?;
        }
        self.advance_entering();
        Ok(())
    }

    /// The store could not read what it was asked for. Says whether another copy of it makes up for that.
    fn handle_unreadable(&mut self, now: Instant, pending: &Pending) -> bool {
        if pending.epoch != self.core.epoch {
            return false;
        }
        match &mut self.state {
            State::Primary(primary) => {
                let is_taken = primary.handle_unreadable(&mut self.core, now, &pending.purpose);
                self.settle();
                is_taken
            }
            State::Backup(backup) => backup.handle_unreadable(&mut self.core, &pending.purpose),
            // Nothing is missing here by what was under way when damage ended this member's part: it can act again.
            State::Failed(_) => !pending.is_change || matches!(pending.purpose, Purpose::MendPatch(_)),
            _ => false,
        }
    }

    /// The drive has found damage in an extent, which is to be made whole from another copy. To be repeated until the extent is
    /// replaced: what is said here may be lost.
    pub fn handle_damage(&mut self, now: Instant, extent: ExtentId) {
        let drive = self.core.drive;
        match &mut self.state {
            State::Primary(primary) => primary.handle_damage(&mut self.core, now, drive, extent),
            State::Backup(backup) => backup.tell_damage(&mut self.core, extent),
            _ => {}
        }
        self.settle();
    }

    fn handle_completion(&mut self, now: Instant, purpose: Purpose, reply: StoreReply) -> Result<(), Error> {
        match (purpose, reply, &mut self.state) {
            (Purpose::Promise, StoreReply::Done, State::Entering(entering)) => entering.is_promised = true,
            (Purpose::Promise | Purpose::Watermark, StoreReply::Done, _) => {}
            (Purpose::Newest, StoreReply::List(page), State::Entering(_)) => self.take_role(now, page.newest),
            (purpose, reply, State::Primary(primary)) => {
                primary.handle_stored(&mut self.core, now, purpose, reply)?;
                self.settle();
            }
            (purpose, reply, State::Backup(backup)) => backup.handle_stored(&mut self.core, purpose, reply)?,
            (_, _, State::Failed(_) | State::Benched) => {}
            _ => return Err(Error::UnknownCompletion),
        }
        Ok(())
    }

    /// The store has refused. What it refused may be missing here and present elsewhere, so the member stops taking part.
    fn handle_store_error(&mut self, error: StoreError, epoch: Epoch) {
        let fault = match error {
            StoreError::Failed => Fault::DriveFailed,
            StoreError::Full => Fault::DriveFull,
            StoreError::Damaged => Fault::Damaged,
        };
        if error == StoreError::Failed || epoch == self.core.epoch {
            self.fail(fault);
        }
    }

    /// Ends what is under way before the epoch ends.
    fn leave_with_unknown(&mut self) {
        if let State::Primary(primary) = &mut self.state {
            let refusal = match &self.configuration {
                Some(configuration) => Refusal::Unknown(Box::new(configuration.clone())),
                None => Refusal::DriveFailed,
            };
            primary.end(&mut self.core, &refusal);
        }
    }

    /// Asks for the removal of this member, or for another epoch where none would be left.
    fn report_own_fault(&mut self, fault: Fault) {
        let Some(configuration) = &self.configuration else { return };
        let is_last = configuration.acting == [self.core.drive];
        if fault == Fault::DriveFull && is_last {
            self.core.report_new_epoch();
        } else if configuration.role(self.core.drive) != Role::None {
            self.core.report_lost(self.core.drive, fault);
        }
    }

    fn fail(&mut self, fault: Fault) {
        self.leave_with_unknown();
        self.state = State::Failed(fault);
        self.may_act_again = false;
        self.report_own_fault(fault);
        if let Some(primary) = self.primary()
            && primary != self.core.drive
        {
            self.core.send(primary, Body::Failed(fault));
        }
    }

    /// The primary of the present configuration.
    fn primary(&self) -> Option<DriveId> {
        self.configuration.as_ref().map(|configuration| configuration.primary)
    }

    /// Whether the primary has found out that its own copy cannot be relied upon.
    fn settle(&mut self) {
        if let State::Primary(primary) = &self.state
            && let Some(fault) = primary.own_fault()
        {
            self.fail(fault);
            self.may_act_again = fault == Fault::Damaged;
        }
    }

    /// Why this member takes no part, if something is wrong with its copy.
    #[must_use]
    pub const fn fault(&self) -> Option<Fault> {
        if let State::Failed(fault) = &self.state { Some(*fault) } else { None }
    }

    /// A volume has this attach generation, as the catalog says: requests of smaller ones are refused from now on.
    /// [`Output::Fenced`] follows once no earlier write is under way. The caller repeats this after a restart, before it
    /// hands the member a configuration. Nothing follows if the member has no room for the volume.
    pub fn handle_fence(&mut self, volume: VolumeId, generation: Generation) {
        let Some(known) = self.core.raise_fence(volume, generation) else { return };
        match &mut self.state {
            State::Primary(primary) => primary.handle_fence(&mut self.core, volume, known),
            _ => self.core.out.push_back(Output::Fenced { volume, generation: known }),
        }
    }

    /// Whether the drive has room for extents that have no space yet; enough of it, until the caller says otherwise. Low is
    /// to be told while what may be under way still finds room.
    pub const fn handle_room(&mut self, room: Room) {
        self.core.room = room;
    }

    /// Time has come: see [`poll_timeout`](Self::poll_timeout).
    pub fn handle_timeout(&mut self, now: Instant) {
        if now < self.next_tick {
            return;
        }
        self.next_tick = tick_after(now, self.core.settings.tick, self.core.drive);
        match &mut self.state {
            State::Primary(primary) => primary.tick(&mut self.core, now),
            State::Backup(backup) => backup.tick(&mut self.core, now),
            State::Benched => self.ask_for_new_epoch(),
            State::Failed(fault) => {
                let fault = *fault;
                self.report_own_fault(fault);
            }
            State::Absent | State::Entering(_) => {}
        }
        self.settle();
        self.save_watermark(now);
    }

    fn ask_for_new_epoch(&mut self) {
        if !matches!(self.state, State::Benched) {
            return;
        }
        let acts = |known: &Configuration| matches!(known.role(self.core.drive), Role::Primary | Role::Backup);
        if self.core.record.is_partial && self.configuration.as_ref().is_some_and(acts) {
            // Where none would be left, the catalog keeps it: another epoch shows whether anybody has anything.
            self.core.report_lost(self.core.drive, Fault::Blank);
        }
        self.core.report_new_epoch();
    }

    fn save_watermark(&mut self, now: Instant) {
        let is_in_role = matches!(self.state, State::Primary(_) | State::Backup(_));
        // The first watermark shows that this drive had data at all.
        let is_first = self.saved_clean == Version::ZERO;
        let is_due = is_first || now.saturating_since(self.saved_at) >= self.core.settings.save_every;
        if is_in_role && is_due && self.core.record.clean > self.saved_clean {
            self.saved_at = now;
            self.saved_clean = self.core.record.clean;
            if !self.core.settings.bugs.has(Planted::PromiseNotDurable) {
                self.core.save(Purpose::Watermark);
            }
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    #[must_use]
    pub const fn poll_timeout(&self) -> Instant {
        self.next_tick
    }

    /// The next thing to do. To be called until nothing comes after every other call.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.core.out.pop_front()
    }

    /// The configuration that this member goes by.
    #[must_use]
    pub const fn configuration(&self) -> Option<&Configuration> {
        self.configuration.as_ref()
    }

    /// Whether this member would serve a read now.
    #[must_use]
    pub fn is_serving(&self, now: Instant) -> bool {
        matches!(&self.state, State::Primary(primary) if primary.is_serving(&self.core, now))
    }
}

#[cfg(test)]
mod tests;
