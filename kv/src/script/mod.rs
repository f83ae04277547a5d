//! Scripts and functions: Lua 5.1 in a sandbox, with Valkey's behaviour.
//!
//! In reading order: `thrown`, `arguments`, `number` (what passes between Lua and Rust), `convert` (replies as values and back),
//! `api` (what scripts call), `machine` with `sandbox.lua` (an interpreter), `flags` (what scripts say about themselves), `cache`
//! (scripts by their digest), `run` (one script while it runs), `lib` (the libraries that scripts find).
//!
//! A script runs with all keys locked, as one command. What it calls runs as the commands of a transaction do.

#![allow(dead_code, reason = "functions and what INFO tells of scripts use the rest")]

mod api;
mod arguments;
pub(crate) mod cache;
mod convert;
pub(crate) mod flags;
mod lib;
pub(crate) mod machine;
mod number;
pub(crate) mod run;
mod thrown;

use std::sync::{Mutex, MutexGuard, PoisonError};

use cache::Cache;

/// All scripts of an engine, and what runs them.
#[derive(Debug, Default)]
pub(crate) struct Scripts {
    evals: Mutex<Cache>,
}

impl Scripts {
    /// Scripts by digest. A command that holds keys may take it; who holds it takes no keys.
    pub(crate) fn evals(&self) -> MutexGuard<'_, Cache> {
        self.evals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
