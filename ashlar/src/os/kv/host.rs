//! What the key-value engine is told of this process and its machine.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ashlar_kv::{Facts, Host};
use ashlar_wire::time::Instant;

use crate::os::files::{self, Readers};
use crate::os::{clock, process};

/// This process.
#[derive(Debug)]
pub(super) struct ProcessHost {
    /// What does not change.
    facts: Facts,
    config_file: Option<PathBuf>,
}

impl ProcessHost {
    /// A process with so many threads that serve clients, and this configuration file.
    #[must_use]
    pub(super) fn new(workers: usize, config_file: Option<PathBuf>) -> Self {
        let machine = process::machine();
        let shown = |path: Option<PathBuf>| path.map(|path| path.display().to_string()).unwrap_or_default();
        let facts = Facts {
            process: std::process::id(),
            executable: shown(std::env::current_exe().ok()),
            config_file: shown(config_file.clone()),
            system: format!("{} {}", system_name(), machine.kernel),
            machine: std::env::consts::ARCH.to_owned(),
            memory_bytes: machine.memory_bytes,
            workers,
            ..Facts::default()
        };
        Self { facts, config_file }
    }
}

/// As `uname` writes it.
fn system_name() -> String {
    let mut name = std::env::consts::OS.to_owned();
    if let Some(first) = name.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    name
}

/// The words of an error without the operating system's number for it.
fn words(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

impl Host for ProcessHost {
    fn facts(&self) -> Facts {
        let resident_bytes = process::facts().resident_bytes;
        let (cpu, cpu_children) = (process::cpu_times_of_process(), process::cpu_times_of_children());
        Facts { resident_bytes, cpu, cpu_children, ..self.facts.clone() }
    }

    fn now(&self) -> Instant {
        clock::now()
    }

    fn sleep(&self, span: Duration) {
        #[allow(clippy::disallowed_methods, reason = "a test has asked this thread to serve nobody for a while")]
        std::thread::sleep(span);
    }

    fn folder(&self, from: &str, path: &str) -> Result<String, String> {
        let whole = Path::new(from).join(path).canonicalize().map_err(|error| words(&error))?;
        // Listing it needs the same permissions as working in it.
        std::fs::read_dir(&whole).map_err(|error| words(&error))?;
        Ok(whole.display().to_string())
    }

    fn rewrite(&self, edit: &dyn Fn(&str) -> String) -> Result<(), String> {
        let path = self.config_file.as_deref().ok_or("there is no file")?;
        let old = files::read_text(path).map_err(|error| words(&error))?.unwrap_or_default();
        files::write_whole(path, edit(&old).as_bytes(), Readers::Owner).map_err(|error| words(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_those_of_this_process() {
        let facts = ProcessHost::new(3, None).facts();
        assert_eq!((facts.process, facts.workers), (std::process::id(), 3));
        assert!(facts.resident_bytes > 0 && facts.memory_bytes >= facts.resident_bytes, "{facts:?}");
        assert!(facts.system.starts_with("Linux "), "{facts:?}");
    }

    #[test]
    fn folders_are_told_whole_and_files_are_replaced() {
        let folder = std::env::temp_dir().join(format!("ashlar-host-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("sub")).unwrap();
        let file = folder.join("valkey.conf");
        let host = ProcessHost::new(1, Some(file.clone()));
        let whole = folder.canonicalize().unwrap().display().to_string();
        assert_eq!(host.folder(&whole, "sub/.."), Ok(whole.clone()));
        assert_eq!(host.folder(&whole, "nosuch"), Err("No such file or directory".to_owned()));
        host.rewrite(&|old| format!("{old}port 1\n")).unwrap();
        host.rewrite(&|old| format!("{old}port 2\n")).unwrap();
        assert_eq!(std::fs::read_to_string(file).unwrap(), "port 1\nport 2\n");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
