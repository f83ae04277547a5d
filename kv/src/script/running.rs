//! The script that runs now, as others see it.
//!
//! A script holds all keys. Others must neither wait for one that does not end, nor be turned away by one that is about to. So
//! the interpreter calls a hook every so many instructions: after some of them the script counts as slow, and from then on no
//! one waits for its locks with a thread. Whoever comes with a time that is later than the script's begin by more than
//! `busy-reply-threshold` is told that the server is busy; before that its request is held back and read again.
//!
//! There is no clock here: the script's begin is the time of the command that runs it.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ashlar_wire::time::Instant;
use mlua::debug::Debug;
use mlua::{HookTriggers, Lua, VmState};

use super::machine::Purpose;
use super::thrown;
use crate::error::Error;
use crate::resp::{Args, Request};

/// Instructions between two calls of the hook, as Valkey has it.
const HOOK_INSTRUCTIONS: u32 = 100_000;
/// Calls of the hook until a script is slow: some milliseconds.
const SLOW_HOOKS: u32 = 5;
/// Calls of the hook until a library that is loaded must have registered its functions: about half a second.
const LOADING_HOOKS_MAX: u32 = 1_500;

/// What the hook sees and leaves.
#[derive(Default)]
pub(crate) struct Watch {
    hooks: AtomicU32,
    is_slow: AtomicBool,
    is_killed: AtomicBool,
    has_written: AtomicBool,
    /// Lets others use the thread's worker. Called once by a script that is slow.
    give_way: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// A script while it runs.
#[derive(Debug)]
struct Present {
    began: Instant,
    purpose: Purpose,
    name: String,
    command: Request,
}

/// The script that runs now, if one does.
#[derive(Debug, Default)]
pub(crate) struct Running {
    watch: Arc<Watch>,
    present: Mutex<Option<Present>>,
}

/// What is shown of a function that runs.
#[derive(Debug, Clone)]
pub(crate) struct Shown {
    pub(crate) name: String,
    pub(crate) command: Request,
    /// Milliseconds since it began.
    pub(crate) duration_ms: u64,
}

impl Running {
    /// What interpreters are watched with.
    pub(crate) fn watch(&self) -> &Arc<Watch> {
        &self.watch
    }

    /// What a slow script calls, once, so that others get on with the worker of its thread.
    pub(crate) fn set_give_way(&self, give_way: Box<dyn Fn() + Send + Sync>) {
        // The second time in one process: the same workers.
        drop(self.watch.give_way.set(give_way));
    }

    /// A script begins; it holds all keys. It ends when what this returns is dropped.
    pub(crate) fn begin(&self, purpose: Purpose, name: &str, args: Args<'_>, now: Instant) -> Turn<'_> {
        self.watch.reset();
        // Of a script nobody asks.
        let (name, command) = match purpose {
            Purpose::Scripts => Default::default(),
            Purpose::Functions => (name.to_owned(), Request::copy(args)),
        };
        *self.present() = Some(Present { began: now, purpose, name, command });
        Turn { running: self }
    }

    /// A library begins to register its functions. It ends when what this returns is dropped.
    pub(crate) fn begin_loading(&self) -> Turn<'_> {
        self.watch.reset();
        Turn { running: self }
    }

    /// Whether a script runs. A command that holds all keys is its command then.
    pub(crate) fn is_on(&self) -> bool {
        self.present().is_some()
    }

    /// Whether what runs is slow. Nobody waits for its locks with a thread.
    #[inline]
    pub(crate) fn is_slow(&self) -> bool {
        self.watch.is_slow.load(Ordering::Acquire)
    }

    /// The same, for those who look while they wait.
    #[inline]
    pub(crate) fn slow(&self) -> &AtomicBool {
        &self.watch.is_slow
    }

    /// The script is about to run a command that writes.
    pub(crate) fn wrote(&self) {
        self.watch.has_written.store(true, Ordering::Relaxed);
    }

    /// What others are told if the script has run for longer than so many milliseconds; 0 is no limit.
    pub(crate) fn refusal(&self, now: Instant, limit_ms: u64) -> Option<Error> {
        if !self.is_slow() || limit_ms == 0 {
            return None;
        }
        let present = self.present();
        let present = present.as_ref()?;
        (present.duration_ms(now) >= limit_ms).then(|| busy(present.purpose))
    }

    /// Ends the script.
    ///
    /// # Errors
    /// There is none, it has written, or it is of another kind.
    pub(crate) fn kill(&self, purpose: Purpose) -> Result<(), Error> {
        const WRITTEN: &str = "UNKILLABLE Sorry the script already executed write commands against the dataset. You can \
                               either wait the script termination or kill the server in a hard way using the SHUTDOWN NOSAVE \
                               command.";
        let present = self.present();
        let Some(present) = present.as_ref() else {
            return Err(Error::new("NOTBUSY No scripts in execution right now."));
        };
        if self.watch.has_written.load(Ordering::Relaxed) {
            return Err(Error::new(WRITTEN));
        }
        if present.purpose != purpose {
            return Err(busy(present.purpose));
        }
        self.watch.is_killed.store(true, Ordering::Release);
        Ok(())
    }

    /// What runs, for `FUNCTION STATS`.
    ///
    /// # Errors
    /// It is no function.
    pub(crate) fn shown(&self, now: Instant) -> Result<Option<Shown>, Error> {
        let present = self.present();
        let Some(present) = present.as_ref() else { return Ok(None) };
        if present.purpose == Purpose::Scripts {
            return Err(busy(Purpose::Scripts));
        }
        let (name, command) = (present.name.clone(), present.command.clone());
        Ok(Some(Shown { name, command, duration_ms: present.duration_ms(now) }))
    }

    fn present(&self) -> MutexGuard<'_, Option<Present>> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Present {
    fn duration_ms(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_since(self.began).as_millis()).unwrap_or(u64::MAX)
    }
}

fn busy(purpose: Purpose) -> Error {
    match purpose {
        Purpose::Scripts => {
            Error::new("BUSY Valkey is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.")
        }
        Purpose::Functions => {
            Error::new("BUSY Valkey is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.")
        }
    }
}

/// The time in which a script runs.
#[derive(Debug)]
pub(crate) struct Turn<'r> {
    running: &'r Running,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.running.present() = None;
        self.running.watch.is_slow.store(false, Ordering::Release);
    }
}

impl Watch {
    fn reset(&self) {
        self.hooks.store(0, Ordering::Relaxed);
        for flag in [&self.is_slow, &self.is_killed, &self.has_written] {
            flag.store(false, Ordering::Relaxed);
        }
    }

    /// Whether the script is to end, or has ended because of that.
    pub(crate) fn is_killed(&self) -> bool {
        self.is_killed.load(Ordering::Acquire)
    }

    /// Watches an interpreter while it runs what `purpose` says; `is_loading` while it loads a library.
    ///
    /// # Errors
    /// It has no memory left.
    pub(crate) fn attach(self: &Arc<Self>, lua: &Lua, purpose: Purpose, is_loading: bool) -> mlua::Result<()> {
        let watch = Arc::clone(self);
        lua.set_global_hook(HookTriggers::new().every_nth_instruction(HOOK_INSTRUCTIONS), move |lua, _: &Debug<'_>| {
            watch.handle_hook(lua, purpose, is_loading)
        })
    }

    fn handle_hook(&self, lua: &Lua, purpose: Purpose, is_loading: bool) -> mlua::Result<VmState> {
        let hooks = self.hooks.fetch_add(1, Ordering::Relaxed) + 1;
        if hooks == SLOW_HOOKS {
            self.is_slow.store(true, Ordering::Release);
            if let Some(give_way) = self.give_way.get() {
                give_way();
            }
        }
        if is_loading && hooks > LOADING_HOOKS_MAX {
            // A library has no `pcall`.
            return Err(thrown::reply("FUNCTION LOAD timeout"));
        }
        let why = match purpose {
            _ if !self.is_killed() => return Ok(VmState::Continue),
            Purpose::Scripts => "Script killed by user with SCRIPT KILL.",
            Purpose::Functions => "Script killed by user with FUNCTION KILL.",
        };
        // From now on at every line, so that no `pcall` goes on.
        lua.set_global_hook(HookTriggers::EVERY_LINE, move |_, _: &Debug<'_>| Err(thrown::reply(why)))?;
        Err(thrown::reply(why))
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("hooks", &self.hooks).field("is_slow", &self.is_slow).finish_non_exhaustive()
    }
}
