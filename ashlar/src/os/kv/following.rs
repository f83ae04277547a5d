//! The thread that keeps the link to the primary which the key-value engine follows, if it follows one.
//!
//! What is to be done, the engine says ([`Step`]); here it is done: connecting, sending, reading, and keeping a dump in a file
//! without a name until it is whole. Nobody else waits for any of it.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ashlar_kv::network::{Broken, Line};
use ashlar_kv::replicate::{Follower, Step};
use ashlar_kv::{Engine, Link};
use tokio::sync::watch;

use crate::os::clock;
use crate::os::files::{self, Creation};

/// Bytes that are read at a time, of a connection and of the file.
const READ_BYTES: usize = 256 << 10;
/// How long a connection may take to take what is sent.
const SEND_SPAN: Duration = Duration::from_secs(5);
/// After how long it is looked whether the process ends.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What the thread has.
struct Work {
    engine: Arc<Engine>,
    follower: Follower,
    line: Option<Box<dyn Line>>,
    file: Option<File>,
    /// The file is read from its beginning.
    is_rewound: bool,
    room: Vec<u8>,
}

/// Keeps the link until the process ends.
pub(super) fn keep(engine: Arc<Engine>, stopped: &watch::Receiver<bool>) {
    let follower = Follower::new(Arc::clone(&engine));
    let mut work = Work { engine, follower, line: None, file: None, is_rewound: false, room: vec![0; READ_BYTES] };
    while !*stopped.borrow() {
        let step = work.follower.next_step(clock::now_both());
        if let Err(why) = work.take(step) {
            work.hang_up();
            work.follower.handle_broken(&why, clock::now_both());
        }
    }
}

impl Work {
    /// Does one thing.
    fn take(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Rest(span) => self.follower.rest(span.min(LOOK_EVERY)),
            Step::Dial { upstream, span } => {
                let (host, port) = upstream.place();
                let line = self.follower.dial(&upstream, span).map_err(|broken| match broken {
                    Broken::TooLate => format!("{host}:{port} does not answer"),
                    Broken::Gone => format!("{host}:{port} cannot be reached"),
                })?;
                let (peer, local) = line.ends();
                self.line = Some(line);
                let link = Link { peer, local, descriptor: -1, is_unix: false, is_tls: false, is_server: false };
                self.follower.handle_connected(link, clock::now_both());
            }
            Step::Send(bytes) => {
                // The primary is told only of what the death of this process does not undo.
                self.engine.write_log();
                let line = self.line.as_mut().ok_or("there is no connection")?;
                line.write(&bytes, SEND_SPAN).map_err(|_| "it takes nothing any more".to_owned())?;
            }
            Step::Receive(span) => self.receive(span)?,
            Step::Keep(bytes) => {
                self.keep(&bytes).map_err(|error| format!("the dump cannot be kept in a file: {error}"))?;
            }
            Step::Load => self.load().map_err(|error| format!("the dump cannot be read from its file: {error}"))?,
            Step::HangUp => self.hang_up(),
        }
        Ok(())
    }

    fn receive(&mut self, span: Duration) -> Result<(), String> {
        let line = self.line.as_mut().ok_or("there is no connection")?;
        match line.read(&mut self.room, span) {
            Ok(count) => self.follower.handle_bytes(&self.room[..count], clock::now_both()),
            Err(Broken::TooLate) => {}
            Err(Broken::Gone) => return Err("it has closed the connection".to_owned()),
        }
        Ok(())
    }

    /// Appends to the file, which nobody else sees.
    fn keep(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.file.is_none() || self.is_rewound {
            let folder = self.engine.files().directory;
            let path = Path::new(&folder).join(format!("primary-{}.rdb", clock::now_both().unix_us));
            let file = files::create(&path, Creation::New)?;
            fs::remove_file(&path)?;
            (self.file, self.is_rewound) = (Some(file), false);
        }
        self.file.as_mut().map_or(Ok(()), |file| file.write_all(bytes))
    }

    fn load(&mut self) -> io::Result<()> {
        let count = match &mut self.file {
            None => 0,
            Some(file) => {
                if !std::mem::replace(&mut self.is_rewound, true) {
                    file.rewind()?;
                }
                file.read(&mut self.room)?
            }
        };
        self.follower.handle_kept(&self.room[..count], clock::now_both());
        if count == 0 {
            self.file = None;
        }
        Ok(())
    }

    fn hang_up(&mut self) {
        (self.line, self.file, self.is_rewound) = (None, None, false);
    }
}
