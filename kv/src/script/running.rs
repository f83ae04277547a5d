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
use super::pattern::STEPS_PER_CALL;
use super::thrown;
use crate::error::Error;
use crate::resp::{Args, Request};

/// Instructions between two calls of the hook. Calls of C functions delay it, and each coroutine counts for itself, so that there are
/// as many in a coroutine, for each instruction of who resumes it, without a hook.
const HOOK_INSTRUCTIONS: u32 = 10_000;
/// The same for a script that has much memory, in which one instruction may copy all of it.
const HOOK_INSTRUCTIONS_MIN: u32 = 100;
/// Bytes that all instructions between two calls may copy, if each copies all that the interpreter has: about a second.
const HOOK_BYTES: usize = (1 << 20) * HOOK_INSTRUCTIONS as usize;
/// Work until a script is slow: some milliseconds.
const SLOW_WORK: u32 = 50;
/// Work until a library that is loaded must have registered its functions: about half a second.
const LOADING_WORK_MAX: u32 = 15_000;
/// Work that a call of the hook stands for.
const HOOK_WORK: u32 = 1;
/// The same if it is called more often, because instructions may be slow.
const HEAVY_HOOK_WORK: u32 = 10;

const _: () = assert!(STEPS_PER_CALL == HOOK_INSTRUCTIONS as usize, "a step is as much work as an instruction");

/// What the hook sees and leaves.
#[derive(Default)]
pub(crate) struct Watch {
    /// What the script has done: one for each call of the hook, or as much in functions of the engine.
    work: AtomicU32,
    is_slow: AtomicBool,
    is_killed: AtomicBool,
    has_written: AtomicBool,
    /// What runs is a library that registers its functions.
    is_loading: AtomicBool,
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
        self.work.store(0, Ordering::Relaxed);
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
        self.is_loading.store(is_loading, Ordering::Relaxed);
        self.hook_every(lua, purpose, HOOK_INSTRUCTIONS)
    }

    fn hook_every(self: &Arc<Self>, lua: &Lua, purpose: Purpose, instructions: u32) -> mlua::Result<()> {
        let watch = Arc::clone(self);
        let triggers = HookTriggers::new().every_nth_instruction(instructions);
        lua.set_global_hook(triggers, move |lua, _: &Debug<'_>| {
            watch.add_work(lua, purpose, if instructions < HOOK_INSTRUCTIONS { HEAVY_HOOK_WORK } else { HOOK_WORK })?;
            let wanted = instructions_between(lua.used_memory());
            if wanted <= instructions / 2 || wanted / 2 >= instructions {
                watch.hook_every(lua, purpose, wanted)?;
            }
            Ok(VmState::Continue)
        })
    }

    /// A function of the engine has done as much for a script as the script does between two calls of the hook.
    ///
    /// # Errors
    /// The script is to end.
    pub(crate) fn handle_work(&self, lua: &Lua, purpose: Purpose) -> mlua::Result<()> {
        self.add_work(lua, purpose, HOOK_WORK)
    }

    fn add_work(&self, lua: &Lua, purpose: Purpose, work: u32) -> mlua::Result<()> {
        let before = self.work.fetch_add(work, Ordering::Relaxed);
        if before < SLOW_WORK && before.saturating_add(work) >= SLOW_WORK {
            self.is_slow.store(true, Ordering::Release);
            if let Some(give_way) = self.give_way.get() {
                give_way();
            }
        }
        if self.is_loading.load(Ordering::Relaxed) && before >= LOADING_WORK_MAX {
            // A library has no `pcall`.
            return Err(thrown::reply("FUNCTION LOAD timeout"));
        }
        let why = match purpose {
            _ if !self.is_killed() => return Ok(()),
            Purpose::Scripts => "Script killed by user with SCRIPT KILL.",
            Purpose::Functions => "Script killed by user with FUNCTION KILL.",
        };
        // From now on at every line, so that no `pcall` goes on.
        lua.set_global_hook(HookTriggers::EVERY_LINE, move |_, _: &Debug<'_>| Err(thrown::reply(why)))?;
        Err(thrown::reply(why))
    }
}

/// Instructions between two calls of the hook, for an interpreter that has so many bytes.
fn instructions_between(bytes: usize) -> u32 {
    let instructions = u32::try_from(HOOK_BYTES / bytes.max(1)).unwrap_or(HOOK_INSTRUCTIONS);
    instructions.clamp(HOOK_INSTRUCTIONS_MIN, HOOK_INSTRUCTIONS)
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("work", &self.work).field("is_slow", &self.is_slow).finish_non_exhaustive()
    }
}
