//! The thread that moves slots to other nodes, and tidies up what moving leaves behind.
//!
//! What is to be done, the engine says ([`Step`]); here it is done: connecting, sending and reading. Nobody else waits for any of it.

use std::sync::Arc;
use std::time::Duration;

use ashlar_kv::Engine;
use ashlar_kv::cluster::migration::{Migrator, Step};
use ashlar_kv::network::{Broken, Line};
use tokio::sync::watch;

use crate::os::clock;

/// Bytes that are read at a time.
const READ_BYTES: usize = 4 << 10;
/// Bytes that are sent at a time, and how long the other side may take to take them.
const SEND_BYTES: usize = 64 << 10;
const SEND_SPAN: Duration = Duration::from_secs(5);
/// After how long it is looked whether the process ends.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Moves slots until the process ends.
pub(super) fn move_slots(engine: Arc<Engine>, stopped: &watch::Receiver<bool>) {
    let mut migrator = Migrator::new(engine);
    let (mut line, mut room) = (None, vec![0; READ_BYTES]);
    while !*stopped.borrow() {
        let step = migrator.next_step(clock::now_both());
        if let Err(why) = take(&mut migrator, &mut line, &mut room, step) {
            line = None;
            migrator.handle_broken(why, clock::now_both());
        }
    }
}

/// Does one thing.
fn take(
    migrator: &mut Migrator,
    line: &mut Option<Box<dyn Line>>,
    room: &mut [u8],
    step: Step,
) -> Result<(), &'static str> {
    const NO_LINE: &str = "there is no connection";
    match step {
        Step::Rest(span) => migrator.rest(span.min(LOOK_EVERY)),
        Step::Dial { target, span } => {
            *line = Some(migrator.dial(&target, span).map_err(|broken| match broken {
                Broken::TooLate => "it does not answer",
                Broken::Gone => "it cannot be reached",
            })?);
            migrator.handle_connected(clock::now_both());
        }
        Step::Send(bytes) => {
            let line = line.as_mut().ok_or(NO_LINE)?;
            let mut pieces = bytes.chunks(SEND_BYTES);
            pieces.try_for_each(|piece| line.write(piece, SEND_SPAN)).map_err(|_| "it takes nothing any more")?;
        }
        Step::Receive(span) => match line.as_mut().ok_or(NO_LINE)?.read(room, span) {
            Ok(count) => migrator.handle_bytes(&room[..count], clock::now_both()),
            Err(Broken::TooLate) => {}
            Err(Broken::Gone) => return Err("it has closed the connection"),
        },
        Step::HangUp => *line = None,
    }
    Ok(())
}
