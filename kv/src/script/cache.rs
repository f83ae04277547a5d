//! Scripts that were seen, by the SHA-1 of their text.
//!
//! Those that came with SCRIPT LOAD stay until SCRIPT FLUSH, because clients count on them. Those that came with EVAL are for the
//! most part never seen again: of them only so many are kept, and whichever was not run for the longest time goes first.

use std::collections::BTreeMap;
use std::sync::Arc;

use mlua::RegistryKey;
use sha1::{Digest, Sha1};

use super::flags::{ScriptFlags, read_head};
use super::machine::{Machine, Purpose};
use super::running::Watch;
use crate::error::Error;

/// Scripts of EVAL that are kept.
const EVALS_MAX: usize = 500;
/// Bytes that a script takes beside its text, about.
const SCRIPT_BYTES: usize = 160;

/// The SHA-1 of a script's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sha([u8; 20]);

impl Sha {
    /// That of a text.
    pub(crate) fn of(text: &[u8]) -> Self {
        Self(Sha1::digest(text).into())
    }

    /// From forty hexadecimal digits of any case.
    pub(crate) fn parse(digits: &[u8]) -> Option<Self> {
        let mut sha = [0; 20];
        if digits.len() != 2 * sha.len() {
            return None;
        }
        for (byte, pair) in sha.iter_mut().zip(digits.chunks(2)) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16);
            *byte = u8::try_from(digit(0)? << 4 | digit(1)?).ok()?;
        }
        Some(Self(sha))
    }

    /// As forty hexadecimal digits.
    pub(crate) fn hex(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// A script that was compiled.
#[derive(Debug)]
pub(crate) struct Script {
    /// The text as it came.
    pub(crate) text: Box<[u8]>,
    /// What its first line says, if it has one.
    pub(crate) flags: Option<ScriptFlags>,
    function: RegistryKey,
    /// When it was last run, if it came with EVAL.
    rank: Option<u64>,
}

/// How a script came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// With EVAL.
    Eval,
    /// With SCRIPT LOAD.
    Load,
}

/// All scripts, and the interpreter that they were compiled for.
#[derive(Debug)]
pub(crate) struct Cache {
    watch: Arc<Watch>,
    machine: Option<Machine>,
    scripts: BTreeMap<Sha, Script>,
    /// Those that came with EVAL, by when they were run.
    ranks: BTreeMap<u64, Sha>,
    last_rank: u64,
    /// Scripts of EVAL that had to go.
    pub(crate) evicted: u64,
    text_bytes: usize,
}

impl Cache {
    /// No scripts; those that run are watched.
    pub(crate) fn new(watch: Arc<Watch>) -> Self {
        Self {
            watch,
            machine: None,
            scripts: BTreeMap::new(),
            ranks: BTreeMap::new(),
            last_rank: 0,
            evicted: 0,
            text_bytes: 0,
        }
    }

    /// A script.
    pub(crate) fn get(&self, sha: Sha) -> Option<&Script> {
        self.scripts.get(&sha)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.scripts.len()
    }

    /// Bytes that all of them take, without the interpreter.
    pub(crate) fn script_bytes(&self) -> usize {
        self.text_bytes + self.scripts.len() * SCRIPT_BYTES
    }

    /// Bytes that the interpreter takes.
    pub(crate) fn machine_bytes(&self) -> usize {
        self.machine.as_ref().map_or(0, Machine::memory_bytes)
    }

    /// Compiles a script unless it is there. One that came with EVAL before stays for good once it is loaded.
    ///
    /// # Errors
    /// It is no Lua, or its first line makes no sense.
    pub(crate) fn add(&mut self, text: &[u8], origin: Origin) -> Result<Sha, Error> {
        let sha = Sha::of(text);
        if let Some(script) = self.scripts.get_mut(&sha) {
            if origin == Origin::Load
                && let Some(rank) = script.rank.take()
            {
                self.ranks.remove(&rank);
            }
            return Ok(sha);
        }
        let head = read_head(text).map_err(|what| Error::text(format!("ERR {what}")))?;
        let machine = self.machine.get_or_insert_with(|| Machine::new(Purpose::Scripts, &self.watch));
        let function = machine.compile(head.text, "@user_script");
        let function =
            function.map_err(|what| Error::text(format!("ERR Error compiling script (new function): {what}")))?;
        let rank = match origin {
            Origin::Load => None,
            Origin::Eval => {
                self.make_room();
                Some(self.next_rank(sha))
            }
        };
        self.text_bytes += text.len();
        self.scripts.insert(sha, Script { text: text.into(), flags: head.flags, function, rank });
        Ok(sha)
    }

    /// The interpreter and the function of a script that is there; it counts as run now.
    pub(crate) fn start(&mut self, sha: Sha) -> Option<(&mut Machine, &RegistryKey)> {
        if let Some(rank) = self.scripts.get(&sha)?.rank {
            self.ranks.remove(&rank);
            let rank = self.next_rank(sha);
            self.scripts.get_mut(&sha)?.rank = Some(rank);
        }
        Some((self.machine.as_mut()?, &self.scripts.get(&sha)?.function))
    }

    /// Forgets all of them, and all that they have left in the interpreter.
    pub(crate) fn clear(&mut self) {
        let evicted = self.evicted;
        *self = Self { evicted, ..Self::new(Arc::clone(&self.watch)) };
    }

    fn next_rank(&mut self, sha: Sha) -> u64 {
        self.last_rank += 1;
        self.ranks.insert(self.last_rank, sha);
        self.last_rank
    }

    /// Forgets what came with EVAL and was not run for the longest time, where there are too many.
    fn make_room(&mut self) {
        while self.ranks.len() >= EVALS_MAX
            && let Some((_, sha)) = self.ranks.pop_first()
            && let Some(script) = self.scripts.remove(&sha)
        {
            self.text_bytes -= script.text.len();
            self.evicted += 1;
            if let Some(machine) = &self.machine {
                machine.forget(script.function);
            }
        }
    }
}
