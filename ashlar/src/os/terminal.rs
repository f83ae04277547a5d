//! A secret typed at the terminal without being shown, or read from standard input.
#![allow(unsafe_code, reason = "std does not offer to switch a terminal's echo off")]

use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::os::fd::AsRawFd as _;

/// Bytes of a secret that are read.
const SECRET_BYTES_MAX: u64 = 4 << 10;

/// Whether somebody types what comes by standard input.
#[must_use]
pub fn is_typed() -> bool {
    io::stdin().is_terminal()
}

/// Asks for a secret at the terminal, which does not show it.
///
/// # Errors
/// The terminal cannot be used.
pub fn ask_secret(prompt: &str) -> io::Result<String> {
    let mut shown = io::stderr();
    write!(shown, "{prompt}").and_then(|()| shown.flush())?;
    let hidden = Hidden::begin()?;
    let mut line = String::new();
    let read = io::stdin().read_line(&mut line);
    drop(hidden);
    writeln!(shown)?;
    read.map(|_| line)
}

/// All of standard input.
///
/// # Errors
/// It cannot be read, is too long or no text.
pub fn read_secret() -> io::Result<String> {
    let mut text = String::new();
    io::stdin().lock().take(SECRET_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// The terminal shows nothing of what is typed as long as this lives.
struct Hidden(libc::termios);

impl Hidden {
    fn begin() -> io::Result<Self> {
        let mut before = core::mem::MaybeUninit::<libc::termios>::uninit();
        // SAFETY: the pointer is to room for one `termios`, which the call fills.
        if unsafe { libc::tcgetattr(io::stdin().as_raw_fd(), before.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call above has succeeded, so all of it was written.
        let before = unsafe { before.assume_init() };
        let mut silent = before;
        silent.c_lflag &= !libc::ECHO;
        // SAFETY: the pointer is to a whole `termios`, which is only read.
        if unsafe { libc::tcsetattr(io::stdin().as_raw_fd(), libc::TCSAFLUSH, &raw const silent) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self(before))
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        // SAFETY: the pointer is to a whole `termios`, which is only read. If it fails, the terminal is gone.
        let _ = unsafe { libc::tcsetattr(io::stdin().as_raw_fd(), libc::TCSAFLUSH, &raw const self.0) };
    }
}
