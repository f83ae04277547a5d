//! Scripts and functions: Lua 5.1 in a sandbox, with Valkey's behaviour.
//!
//! In reading order: `thrown`, `arguments`, `number` (what passes between Lua and Rust), `pattern` (Lua's patterns), `convert` (replies as values and back),
//! `api` (what scripts call), `machine` with `sandbox.lua` (an interpreter), `flags` (what scripts say about themselves), `cache`
//! (scripts by their digest), `library` (functions and their libraries), `running` (what others see of the script that runs),
//! `run` (one script while it runs), `lib` (the libraries that scripts find).
//!
//! A script runs with all keys locked, as one command. What it calls runs as the commands of a transaction do. So there is one at
//! a time, and one interpreter for scripts and one for functions are enough.

#![allow(dead_code, reason = "what INFO tells of scripts uses the rest")]

mod api;
mod arguments;
pub(crate) mod cache;
mod convert;
pub(crate) mod flags;
mod lib;
pub(crate) mod library;
pub(crate) mod machine;
mod number;
pub mod pattern;
pub(crate) mod run;
pub(crate) mod running;
mod thrown;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cache::{Cache, Sha};
use flags::{ScriptFlags, read_head};
use library::Libraries;
use running::Running;

use crate::resp::Args;
use crate::waiting::Place;

/// All scripts and functions of an engine, and what runs them.
#[derive(Debug)]
pub(crate) struct Scripts {
    evals: Mutex<Cache>,
    libraries: Mutex<Libraries>,
    /// Libraries and functions, for those who must not wait for a function.
    counts: [AtomicUsize; 2],
    /// Bytes of the interpreter of scripts, bytes of scripts, and scripts, as last seen.
    seen: [AtomicUsize; 3],
    /// Bytes of the interpreter of libraries, and of libraries, as last seen.
    seen_libraries: [AtomicUsize; 2],
    pub(crate) running: Running,
    /// Keys that commands wait for, to be served when the script that runs has ended.
    deferred: Mutex<Vec<Place>>,
}

impl Default for Scripts {
    fn default() -> Self {
        let running = Running::default();
        Self {
            evals: Mutex::new(Cache::new(Arc::clone(running.watch()))),
            libraries: Mutex::new(Libraries::new(Arc::clone(running.watch()))),
            counts: Default::default(),
            seen: Default::default(),
            seen_libraries: Default::default(),
            running,
            deferred: Mutex::default(),
        }
    }
}

impl Scripts {
    /// Scripts by digest. Who takes it holds all keys: a script that runs has both.
    pub(crate) fn evals(&self) -> MutexGuard<'_, Cache> {
        self.evals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same unless somebody has it.
    pub(crate) fn try_evals(&self) -> Option<MutexGuard<'_, Cache>> {
        self.evals.try_lock().ok()
    }

    /// Libraries of functions. Who takes it holds all keys, or is alone.
    pub(crate) fn libraries(&self) -> MutexGuard<'_, Libraries> {
        self.libraries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same unless somebody has it.
    pub(crate) fn try_libraries(&self) -> Option<MutexGuard<'_, Libraries>> {
        self.libraries.try_lock().ok()
    }

    /// What the script or function that a command runs says about itself, if it says anything.
    pub(crate) fn flags_of(&self, command: &str, args: Args<'_>) -> Option<ScriptFlags> {
        let word = args.get(1)?;
        match command {
            "eval" | "eval_ro" => read_head(word).ok()?.flags,
            "evalsha" | "evalsha_ro" => self.try_evals()?.get(Sha::parse(word)?)?.flags,
            "fcall" | "fcall_ro" => self.try_libraries()?.function(word).map(|function| function.flags),
            _ => None,
        }
    }

    /// Libraries have changed.
    pub(crate) fn count(&self, libraries: &Libraries) {
        let [count, functions] = &self.counts;
        count.store(libraries.len(), Ordering::Relaxed);
        functions.store(libraries.functions(), Ordering::Relaxed);
    }

    /// How many libraries there are, and how many functions in them.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let [libraries, functions] = &self.counts;
        (libraries.load(Ordering::Relaxed), functions.load(Ordering::Relaxed))
    }

    /// Bytes of the interpreter of scripts, bytes of scripts, and scripts; while one runs, as they were before.
    pub(crate) fn eval_figures(&self) -> [usize; 3] {
        if let Some(evals) = self.try_evals() {
            let figures = [evals.machine_bytes(), evals.script_bytes(), evals.len()];
            self.seen.iter().zip(figures).for_each(|(seen, figure)| seen.store(figure, Ordering::Relaxed));
        }
        [0, 1, 2].map(|at| self.seen[at].load(Ordering::Relaxed))
    }

    /// Bytes of the interpreter of libraries, and of libraries; while a function runs, as they were before.
    pub(crate) fn library_figures(&self) -> [usize; 2] {
        if let Some(libraries) = self.try_libraries() {
            let figures = [libraries.machine_bytes(), libraries.iter().map(|library| library.text.len()).sum()];
            self.seen_libraries.iter().zip(figures).for_each(|(seen, figure)| seen.store(figure, Ordering::Relaxed));
        }
        [0, 1].map(|at| self.seen_libraries[at].load(Ordering::Relaxed))
    }

    /// Keys that nobody can serve now, because a script holds them.
    pub(crate) fn defer(&self, places: Vec<Place>) {
        self.deferred.lock().unwrap_or_else(PoisonError::into_inner).extend(places);
    }

    /// Those that were left for after the script.
    pub(crate) fn take_deferred(&self) -> Vec<Place> {
        std::mem::take(&mut *self.deferred.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
