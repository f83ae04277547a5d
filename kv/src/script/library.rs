//! Libraries of functions.
//!
//! A library is a text that begins with `#!lua name=..` and registers its functions when it is run, once, as it is loaded. Names of
//! libraries are told apart by case, those of functions are not. A change is whole or does not happen: what a library that
//! cannot be loaded would replace stays.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mlua::{RegistryKey, Table, Value};

use super::arguments::{Arguments, text_of};
use super::flags::ScriptFlags;
use super::machine::{Machine, Purpose};
use super::running::Watch;
use super::thrown;
use crate::resp::parse::words_of_line;

/// The engine that there is, as replies call it.
pub(crate) const ENGINE: &str = "LUA";
/// Functions of one library.
const FUNCTIONS_MAX: usize = 1 << 16;
/// What names of libraries may be.
const BAD_NAME: &str =
    "Library names can only contain letters, numbers, or underscores(_) and must be at least one character long";
/// What names of functions may be.
const BAD_FUNCTION_NAME: &str =
    "Function names can only contain letters, numbers, or underscores(_) and must be at least one character long";

/// A function that a library has registered.
#[derive(Debug)]
pub(crate) struct Registered {
    pub(crate) name: String,
    pub(crate) description: Option<Vec<u8>>,
    pub(crate) flags: ScriptFlags,
    function: RegistryKey,
}

/// Where a library that is loaded puts its functions; nothing if none is loaded.
#[derive(Debug, Clone, Default)]
pub(crate) struct Registering(Arc<Mutex<Option<Vec<Registered>>>>);

impl Registering {
    /// A library is loaded from now on.
    pub(crate) fn begin(&self) {
        *self.lock() = Some(Vec::new());
    }

    /// It has ended: what it registered.
    pub(crate) fn end(&self) -> Vec<Registered> {
        self.lock().take().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<Registered>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `register_function`.
    pub(crate) fn register(&self, arguments: &Arguments<'_>) -> mlua::Result<()> {
        let mut registering = self.lock();
        let Some(registered) = registering.as_mut() else {
            return Err(thrown::reply("server.register_function can only be called on FUNCTION LOAD command"));
        };
        let new = match (arguments.len(), arguments.get(1)) {
            (1, Value::Table(table)) => named(arguments, table),
            (1, _) => Err(thrown::reply(
                "calling server.register_function with a single argument is only applicable to Lua table (representing \
                 named arguments).",
            )),
            (2, _) => positional(arguments),
            _ => Err(thrown::reply("wrong number of arguments to server.register_function")),
        }?;
        if registered.iter().any(|other| other.name == new.name) {
            return Err(thrown::reply("Function already exists in the library"));
        }
        if registered.len() == FUNCTIONS_MAX {
            return Err(thrown::reply("Too many functions in the library"));
        }
        registered.push(new);
        Ok(())
    }
}

fn positional(arguments: &Arguments<'_>) -> mlua::Result<Registered> {
    let name = text_of(arguments.get(1));
    let name = name.ok_or_else(|| thrown::reply("first argument to server.register_function must be a string"))?;
    let Value::Function(function) = arguments.get(2) else {
        return Err(thrown::reply("second argument to server.register_function must be a function"));
    };
    let function = arguments.lua.create_registry_value(function)?;
    Ok(Registered { name: function_name(name)?, description: None, flags: ScriptFlags::default(), function })
}

fn named(arguments: &Arguments<'_>, table: &Table) -> mlua::Result<Registered> {
    let (mut name, mut description, mut function, mut flags) = (None, None, None, ScriptFlags::default());
    let must_be = |what: &str| thrown::reply(what);
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        let Some(key) = text_of(&key) else {
            return Err(must_be("named argument key given to server.register_function is not a string"));
        };
        match key.to_ascii_lowercase().as_slice() {
            b"function_name" => {
                let text = text_of(&value);
                name = Some(text.ok_or_else(|| {
                    must_be("function_name argument given to server.register_function must be a string")
                })?);
            }
            b"description" => {
                let text = text_of(&value);
                description = Some(text.ok_or_else(|| {
                    must_be("description argument given to server.register_function must be a string")
                })?);
            }
            b"callback" => {
                let Value::Function(callback) = value else {
                    return Err(must_be("callback argument given to server.register_function must be a function"));
                };
                function = Some(arguments.lua.create_registry_value(callback)?);
            }
            b"flags" => {
                let Value::Table(names) = value else {
                    return Err(must_be(
                        "flags argument to server.register_function must be a table representing function flags",
                    ));
                };
                flags = flags_of(&names)?;
            }
            _ => return Err(must_be("unknown argument given to server.register_function")),
        }
    }
    let name = name.ok_or_else(|| must_be("server.register_function must get a function name argument"))?;
    let function = function.ok_or_else(|| must_be("server.register_function must get a callback argument"))?;
    Ok(Registered { name: function_name(name)?, description, flags, function })
}

fn flags_of(names: &Table) -> mlua::Result<ScriptFlags> {
    let mut flags = ScriptFlags::default();
    for at in 1.. {
        let name: Value = names.get(at)?;
        if name.is_nil() {
            break;
        }
        let flag = text_of(&name).and_then(|name| ScriptFlags::named(&name, true));
        flags = flags.with(flag.ok_or_else(|| thrown::reply("unknown flag given"))?);
    }
    Ok(flags)
}

fn function_name(name: Vec<u8>) -> mlua::Result<String> {
    checked_name(name).ok_or_else(|| thrown::reply(BAD_FUNCTION_NAME))
}

fn checked_name(name: Vec<u8>) -> Option<String> {
    let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let is_name = !name.is_empty() && name.iter().all(is_allowed);
    String::from_utf8(name).ok().filter(|_| is_name)
}

/// A library.
#[derive(Debug)]
pub(crate) struct Library {
    pub(crate) name: String,
    /// The whole text, as it came.
    pub(crate) text: Box<[u8]>,
    /// Its functions, in the order of their names.
    pub(crate) functions: Vec<Arc<Registered>>,
}

/// Libraries by name, and functions by their names in small letters.
#[derive(Debug, Default)]
struct Shelf {
    libraries: BTreeMap<String, Library>,
    functions: BTreeMap<String, Arc<Registered>>,
}

impl Shelf {
    /// The function of a library whose name is taken already.
    fn collision(&self, library: &Library) -> Option<String> {
        let is_taken = |function: &&Arc<Registered>| self.functions.contains_key(&function.name.to_ascii_lowercase());
        let taken = library.functions.iter().find(is_taken)?;
        Some(format!("Function {} already exists", taken.name))
    }

    fn put(&mut self, library: Library) {
        for function in &library.functions {
            self.functions.insert(function.name.to_ascii_lowercase(), Arc::clone(function));
        }
        self.libraries.insert(library.name.clone(), library);
    }

    fn take(&mut self, name: &str) -> Option<Library> {
        let library = self.libraries.remove(name)?;
        for function in &library.functions {
            self.functions.remove(&function.name.to_ascii_lowercase());
        }
        Some(library)
    }
}

/// What becomes of libraries that are there when others are restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Restore {
    /// They go.
    Flush,
    /// They stay; one of the same name is an error.
    Append,
    /// They stay unless one of the same name comes.
    Replace,
}

/// All libraries, and the interpreter that has their functions.
#[derive(Debug)]
pub(crate) struct Libraries {
    watch: Arc<Watch>,
    machine: Option<Machine>,
    shelf: Shelf,
}

impl Libraries {
    /// None; functions that run are watched.
    pub(crate) fn new(watch: Arc<Watch>) -> Self {
        Self { watch, machine: None, shelf: Shelf::default() }
    }

    /// How many libraries there are.
    pub(crate) fn len(&self) -> usize {
        self.shelf.libraries.len()
    }

    /// How many functions they have.
    pub(crate) fn functions(&self) -> usize {
        self.shelf.functions.len()
    }

    /// All of them, by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Library> {
        self.shelf.libraries.values()
    }

    /// Bytes that the interpreter takes.
    pub(crate) fn machine_bytes(&self) -> usize {
        self.machine.as_ref().map_or(0, Machine::memory_bytes)
    }

    /// Adds a library; its name.
    ///
    /// # Errors
    /// What is wrong with it, or there is one of its name and `replaces` is false. Nothing has changed then.
    pub(crate) fn load(&mut self, text: &[u8], replaces: bool) -> Result<String, String> {
        let mut shelf = std::mem::take(&mut self.shelf);
        let loaded = self.load_to(&mut shelf, text, replaces);
        self.shelf = shelf;
        loaded
    }

    fn load_to(&mut self, shelf: &mut Shelf, text: &[u8], replaces: bool) -> Result<String, String> {
        let (name, code) = read_head(text)?;
        if !replaces && shelf.libraries.contains_key(&name) {
            return Err(format!("Library '{name}' already exists"));
        }
        let library = self.make(&name, text, code)?;
        let before = shelf.take(&name);
        if let Some(collision) = shelf.collision(&library) {
            before.into_iter().for_each(|before| shelf.put(before));
            return Err(collision);
        }
        shelf.put(library);
        Ok(name)
    }

    /// Compiles a library and runs it once.
    fn make(&mut self, name: &str, text: &[u8], code: &[u8]) -> Result<Library, String> {
        let machine = self.machine.get_or_insert_with(|| Machine::new(Purpose::Functions, &self.watch));
        let compiled = machine.compile(code, "@user_function");
        let compiled = compiled.map_err(|what| format!("Error compiling function: {what}"))?;
        let ended = machine.load(&compiled);
        machine.forget(compiled);
        let failed = |what: &[u8]| format!("Error registering functions: {}", String::from_utf8_lossy(what));
        let mut functions: Vec<Arc<Registered>> = match ended {
            Ok(Ok(registered)) => registered.into_iter().map(Arc::new).collect(),
            Ok(Err(Value::Table(error))) => {
                let what = error.raw_get::<Value>("err").ok().and_then(|what| text_of(&what));
                return Err(failed(&what.unwrap_or_default()));
            }
            Ok(Err(error)) => return Err(failed(&[b"ERR ", text_of(&error).unwrap_or_default().as_slice()].concat())),
            Err(_) => return Err(failed(b"ERR not enough memory")),
        };
        if functions.is_empty() {
            return Err("No functions registered".into());
        }
        functions.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(Library { name: name.to_owned(), text: text.into(), functions })
    }

    /// Adds several libraries.
    ///
    /// # Errors
    /// What is wrong with one of them, or why they cannot be beside those that are there. Nothing has changed then.
    pub(crate) fn restore(&mut self, texts: &[Vec<u8>], how: Restore) -> Result<(), String> {
        let mut new = Shelf::default();
        for text in texts {
            self.load_to(&mut new, text, false)?;
        }
        if how == Restore::Flush {
            self.shelf = new;
            return Ok(());
        }
        let taken = new.libraries.keys().find(|name| self.shelf.libraries.contains_key(*name));
        if let (Restore::Append, Some(name)) = (how, taken) {
            return Err(format!("Library {name} already exists"));
        }
        let replaced: Vec<Library> = new.libraries.keys().filter_map(|name| self.shelf.take(name)).collect();
        if let Some(collision) = new.libraries.values().find_map(|library| self.shelf.collision(library)) {
            replaced.into_iter().for_each(|library| self.shelf.put(library));
            return Err(collision);
        }
        new.libraries.into_values().for_each(|library| self.shelf.put(library));
        Ok(())
    }

    /// Deletes a library. Says whether it was there.
    pub(crate) fn delete(&mut self, name: &[u8]) -> bool {
        std::str::from_utf8(name).is_ok_and(|name| self.shelf.take(name).is_some())
    }

    /// Deletes all of them, and all that they have left in the interpreter.
    pub(crate) fn clear(&mut self) {
        (self.shelf, self.machine) = (Shelf::default(), None);
    }

    /// A function by its name in any case.
    pub(crate) fn function(&self, name: &[u8]) -> Option<&Arc<Registered>> {
        self.shelf.functions.get(std::str::from_utf8(name).ok()?.to_ascii_lowercase().as_str())
    }

    /// The interpreter, to run a function that is there.
    pub(crate) fn machine(&mut self) -> Option<&mut Machine> {
        self.machine.as_mut()
    }
}

impl Registered {
    /// What the interpreter runs.
    pub(crate) fn function(&self) -> &RegistryKey {
        &self.function
    }
}

/// Reads the first line of a library: its name, and the text behind the line; the line's end is still there, so that lines keep
/// their numbers.
fn read_head(text: &[u8]) -> Result<(String, &[u8]), String> {
    if !text.starts_with(b"#!") {
        return Err("Missing library metadata".into());
    }
    let end = text.iter().position(|byte| *byte == b'\n').ok_or("Invalid library metadata")?;
    let (line, code) = text.split_at(end);
    let words = words_of_line(line).filter(|words| !words.is_empty()).ok_or("Invalid library metadata")?;
    let shown = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    let (engine, options) = words.split_first().ok_or("Invalid library metadata")?;
    let mut name = None;
    for option in options {
        let Some(value) = option.get(5..).filter(|_| option[..5].eq_ignore_ascii_case(b"name=")) else {
            return Err(format!("Invalid metadata value given: {}", shown(option)));
        };
        if name.replace(value.to_vec()).is_some() {
            return Err("Invalid metadata value, name argument was given multiple times".into());
        }
    }
    let name = checked_name(name.ok_or("Library name was not given")?).ok_or(BAD_NAME)?;
    let engine = &engine[2..];
    if !engine.eq_ignore_ascii_case(ENGINE.as_bytes()) {
        return Err(format!("Engine '{}' not found", shown(engine)));
    }
    Ok((name, code))
}
