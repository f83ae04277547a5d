//! An interpreter in its sandbox.
//!
//! There are two in an engine: one for scripts (`EVAL`), one for libraries of functions. Each is made when it is first needed,
//! with what `sandbox.lua` makes of Lua's libraries, and runs one script at a time.
//!
//! A script reaches the command that runs it through an [`Exchange`]: `redis.call` is there as long as the interpreter, the
//! command only as long as the script runs. So `redis.call` leaves its words in the exchange and calls whatever function the
//! present run has put into its slot; that one runs the command and leaves the reply.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mlua::chunk::ChunkMode;
use mlua::{Function, Lua, LuaOptions, RegistryKey, StdLib, Table, Value};

use super::api;
use super::library::{Registered, Registering};
use super::running::Watch;
use super::thrown;
use crate::resp::{Protocol, Reply, Request};

/// Bytes that an interpreter takes at most. A script that wants more fails. Tests reach it.
pub(crate) const MEMORY_BYTES_MAX: usize = if cfg!(test) { 128 << 20 } else { 1 << 30 };
/// Bytes that a script may leave behind; from there on all garbage is collected when it ends.
const LEFT_BYTES_MAX: usize = MEMORY_BYTES_MAX / 8;
/// Runs between two helpings of garbage collection, as Valkey does.
const RUNS_PER_COLLECTION: u32 = 50;
/// The name of the sandbox's own code. Messages show it as that of a script; [`is_sandbox`] tells them apart.
const SANDBOX_NAME: &str = "=user_script";

/// What an interpreter is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// `EVAL` and its kin.
    Scripts,
    /// `FUNCTION` and `FCALL`.
    Functions,
}

/// What a script wants of the command that runs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Wish {
    /// That a command runs.
    #[default]
    Run,
    /// To know whether its client may run a command.
    Check,
}

/// What lies between a script and the command that runs it.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    /// What to do with the words.
    pub(crate) wish: Wish,
    /// The words of a command.
    pub(crate) request: Request,
    /// Its reply.
    pub(crate) reply: Reply,
    /// Which version replies are written in for the script.
    pub(crate) protocol: Protocol,
    /// Where changes go, as the script wishes: bit 0 the log, bit 1 replicas.
    pub(crate) replication: u8,
}

/// The same, shared by both sides. It is held for moments only.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shared(Arc<Mutex<Exchange>>);

impl Shared {
    /// Looks into it.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Exchange> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An interpreter in its sandbox.
pub(crate) struct Machine {
    lua: Lua,
    exchange: Shared,
    /// What the sandbox shows as globals.
    globals: Table,
    /// Runs a function protected.
    run: Function,
    /// Runs a library protected.
    load: Function,
    clean: Function,
    /// The function of the present run stands at 1.
    slot: Table,
    /// Where a library that is loaded puts its functions.
    registering: Registering,
    watch: Arc<Watch>,
    purpose: Purpose,
    next: Function,
    runs: u32,
}

/// How a script ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// It came to its end.
    pub(crate) is_ok: bool,
    /// What it returned or threw.
    pub(crate) value: Value,
}

impl Machine {
    /// An interpreter that has run nothing yet.
    ///
    /// # Panics
    /// There is no memory for it.
    pub(crate) fn new(purpose: Purpose, watch: &Arc<Watch>) -> Self {
        Self::try_new(purpose, Arc::clone(watch)).expect("the sandbox is a program without errors")
    }

    fn try_new(purpose: Purpose, watch: Arc<Watch>) -> mlua::Result<Self> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH | StdLib::OS;
        let lua = Lua::new_with(libraries, LuaOptions::new())?;
        let (exchange, slot) = (Shared::default(), lua.create_table()?);
        let next = lua.globals().raw_get("next")?;
        let tables = lua.create_table()?;
        tables.raw_set("server", api::server(&lua, purpose, &exchange, &slot)?)?;
        super::lib::register(&lua, &tables)?;
        let registering = Registering::default();
        let loading = match purpose {
            Purpose::Scripts => Value::Nil,
            Purpose::Functions => Value::Table(api::loading(&lua, &registering)?),
        };
        let sandbox = lua.load(include_str!("sandbox.lua")).set_name(SANDBOX_NAME).set_mode(ChunkMode::Text);
        let native = api::native(&lua)?;
        native.raw_set("search", super::lib::search::table(&lua, &watch, purpose)?)?;
        let made: Table = sandbox.call((native, tables, loading))?;
        lua.set_memory_limit(MEMORY_BYTES_MAX)?;
        let (globals, run, load, clean) =
            (made.raw_get("globals")?, made.raw_get("run")?, made.raw_get("load")?, made.raw_get("clean")?);
        watch.attach(&lua, purpose, false)?;
        Ok(Self { lua, exchange, globals, run, load, clean, slot, registering, watch, purpose, next, runs: 0 })
    }

    /// The interpreter.
    pub(crate) fn lua(&self) -> &Lua {
        &self.lua
    }

    /// What lies between a script and whoever runs it.
    pub(crate) fn exchange(&self) -> &Shared {
        &self.exchange
    }

    /// Lua's own `next`, which goes on behind a key of a table.
    pub(crate) fn next(&self) -> &Function {
        &self.next
    }

    /// Bytes that it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.lua.used_memory()
    }

    /// Compiles text and keeps the function. The text of an error says what is wrong.
    pub(crate) fn compile(&self, text: &[u8], name: &str) -> Result<RegistryKey, String> {
        let message = |error: mlua::Error| match error {
            mlua::Error::SyntaxError { message, .. } => message,
            other => other.to_string(),
        };
        // What looks compiled is no program: it could be made to do anything.
        let text = if text.first() == Some(&27) { [b" ", text].concat() } else { text.to_vec() };
        let chunk = self.lua.load(text).set_name(name).set_mode(ChunkMode::Text);
        let function = chunk.into_function().map_err(message)?;
        self.lua.create_registry_value(function).map_err(message)
    }

    /// Forgets a function.
    pub(crate) fn forget(&self, function: RegistryKey) {
        // It is of this interpreter, which is all that could be wrong.
        self.lua.remove_registry_value(function).ok();
    }

    /// Runs a function. `obey` does what it wishes; `keys` and `arguments` become globals if `are_global`, and are what it is
    /// called with.
    ///
    /// # Errors
    /// The interpreter has no memory left.
    pub(crate) fn run<'a>(
        &mut self,
        function: &RegistryKey,
        (keys, arguments): (impl Iterator<Item = &'a [u8]>, impl Iterator<Item = &'a [u8]>),
        are_global: bool,
        obey: impl FnMut(&mut Exchange),
    ) -> mlua::Result<Ended> {
        {
            let mut exchange = self.exchange.lock();
            (exchange.protocol, exchange.replication) = (Protocol::Resp2, api::REPLICATE_ALL);
        }
        let ended = self.run_with(function, keys, arguments, are_global, obey);
        self.collect(ended.is_err())?;
        if self.watch.is_killed() {
            self.watch.attach(&self.lua, self.purpose, false)?;
        }
        self.slot.raw_set(1, Value::Nil)?;
        self.clean.call::<()>(())?;
        ended
    }

    /// Collects garbage now and then, and always after a script that left so much that the next one could be short of memory: it may
    /// have stopped the collection.
    fn collect(&mut self, is_short: bool) -> mlua::Result<()> {
        self.runs = self.runs.wrapping_add(1);
        if is_short || self.lua.used_memory() > LEFT_BYTES_MAX {
            self.lua.gc_restart();
            self.lua.gc_collect()
        } else if self.runs.is_multiple_of(RUNS_PER_COLLECTION) {
            self.lua.gc_restart();
            self.lua.gc_step().map(drop)
        } else {
            Ok(())
        }
    }

    fn run_with<'a>(
        &self,
        function: &RegistryKey,
        keys: impl Iterator<Item = &'a [u8]>,
        arguments: impl Iterator<Item = &'a [u8]>,
        are_global: bool,
        mut obey: impl FnMut(&mut Exchange),
    ) -> mlua::Result<Ended> {
        let (keys, arguments) = (self.sequence(keys)?, self.sequence(arguments)?);
        if are_global {
            self.globals.raw_set("KEYS", &keys)?;
            self.globals.raw_set("ARGV", &arguments)?;
        }
        let function: Function = self.lua.registry_value(function)?;
        self.lua.scope(|scope| {
            let exchange = self.exchange.clone();
            let present = scope.create_function_mut(move |_, ()| {
                // The command must not find it locked: it may be a script's that looks at itself.
                let mut taken = std::mem::take(&mut *exchange.lock());
                obey(&mut taken);
                *exchange.lock() = taken;
                Ok(())
            })?;
            self.slot.raw_set(1, present)?;
            let (is_ok, value): (bool, Value) = self.run.call((function, keys, arguments))?;
            Ok(Ended { is_ok, value: thrown::plain(&self.lua, value)? })
        })
    }

    fn sequence<'a>(&self, words: impl Iterator<Item = &'a [u8]>) -> mlua::Result<Table> {
        let table = self.lua.create_table_with_capacity(words.size_hint().0, 0)?;
        for (at, word) in words.enumerate() {
            table.raw_set(at + 1, self.lua.create_string(word)?)?;
        }
        Ok(table)
    }

    /// Runs a library that registers its functions. What it registered, or what it threw.
    ///
    /// # Errors
    /// The interpreter has no memory left.
    pub(crate) fn load(&mut self, library: &RegistryKey) -> mlua::Result<Result<Vec<Registered>, Value>> {
        let library: Function = self.lua.registry_value(library)?;
        self.registering.begin();
        self.watch.attach(&self.lua, self.purpose, true)?;
        let ended = self.load.call::<(bool, Value)>(library);
        self.watch.attach(&self.lua, self.purpose, false)?;
        let registered = self.registering.end();
        self.collect(ended.is_err())?;
        let (is_ok, value) = ended?;
        self.clean.call::<()>(())?;
        // What earlier libraries have left.
        self.lua.expire_registry_values();
        Ok(if is_ok { Ok(registered) } else { Err(thrown::plain(&self.lua, value)?) })
    }
}

/// Whether a function belongs to the sandbox, by the source that the interpreter tells of it.
pub(crate) fn is_sandbox(source: &str) -> bool {
    source == SANDBOX_NAME
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine").field("exchange", &self.exchange).field("runs", &self.runs).finish_non_exhaustive()
    }
}
