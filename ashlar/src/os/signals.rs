//! SIGINT and SIGTERM: the first asks for an orderly end, the second ends the process at once.

use std::io;

use ashlar_kv::EndSignal;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a shell reports for a process that its user interrupted.
pub const INTERRUPTED_EXIT_CODE: i32 = 130;

/// Signals to this process, from the moment of its making.
#[derive(Debug)]
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Takes over both signals. Needs a runtime.
    ///
    /// # Errors
    /// The operating system refused.
    pub fn new() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// The next one. Cancel-safe.
    pub async fn next(&mut self) -> EndSignal {
        tokio::select! {
            _ = self.interrupt.recv() => EndSignal::Interrupt,
            _ = self.terminate.recv() => EndSignal::Terminate,
        }
    }

    /// Ends the process at the next signal, without waiting for anything.
    pub fn exit_at_next(mut self) {
        tokio::spawn(async move {
            exit_at_once(self.next().await);
        });
    }
}

/// Ends the process, without waiting for anything.
pub fn exit_at_once(signal: EndSignal) -> ! {
    tracing::warn!(signal = signal.name(), "second signal: ending at once");
    std::process::exit(INTERRUPTED_EXIT_CODE);
}
