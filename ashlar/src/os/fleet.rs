//! Several servers as children of this process: `ashlar up`.
//!
//! Each child is waited for by a task of its own; the owner gets one stream of events, signals among them.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::ExitStatus;

use ashlar_wire::time::Instant;
use tokio::sync::mpsc;

use super::clock;
use super::process::Server;
use super::signals::Signals;

/// Servers of one fleet.
pub const SERVERS_MAX: usize = 64;

/// Something that the owner of a fleet has to know.
#[derive(Debug)]
pub enum Event {
    /// A server ended by itself, or as it was told.
    Ended {
        /// Which one, by place.
        place: usize,
        /// How.
        status: String,
    },
    /// Somebody wants this process to end.
    Signal(&'static str),
    /// The time that the owner asked for has come.
    Due,
}

#[derive(Debug, Clone, Copy)]
enum Order {
    Terminate,
    Kill,
}

/// The servers that run.
#[derive(Debug)]
pub struct Fleet {
    variables: Vec<(String, String)>,
    orders: Vec<Option<mpsc::Sender<Order>>>,
    ended: mpsc::Receiver<(usize, io::Result<ExitStatus>)>,
    ending: mpsc::Sender<(usize, io::Result<ExitStatus>)>,
    signals: Signals,
}

impl Fleet {
    /// An empty fleet with room for `count` servers, [`SERVERS_MAX`] at most, that all get these variables. Needs a runtime.
    ///
    /// # Errors
    /// The operating system refused the signals.
    pub fn new(count: usize, variables: Vec<(String, String)>) -> io::Result<Self> {
        let (ending, ended) = mpsc::channel(SERVERS_MAX);
        let count = count.min(SERVERS_MAX);
        Ok(Self { variables, orders: vec![None; count], ended, ending, signals: Signals::new()? })
    }

    /// Starts a server at a free place and returns its process id. It dies with this process.
    ///
    /// # Errors
    /// The operating system refused, or `log` cannot be written. Retry safe.
    pub fn start(&mut self, place: usize, arguments: &[OsString], log: &Path) -> io::Result<u32> {
        let server = Server::start(arguments, &self.variables, log)?;
        let pid = server.pid;
        // Two orders can be waiting: an orderly end and the one that follows if that takes too long.
        let (orders, inbox) = mpsc::channel(2);
        self.orders[place] = Some(orders);
        tokio::spawn(watch_over(place, server, inbox, self.ending.clone()));
        Ok(pid)
    }

    /// Servers that run.
    #[must_use]
    pub fn running(&self) -> usize {
        self.orders.iter().flatten().count()
    }

    /// Whether the server at a place runs.
    #[must_use]
    pub fn runs(&self, place: usize) -> bool {
        self.orders.get(place).is_some_and(Option::is_some)
    }

    /// Asks all to end in an orderly way.
    pub fn terminate_all(&self) {
        self.order(Order::Terminate);
    }

    /// Ends all at once.
    pub fn kill_all(&self) {
        self.order(Order::Kill);
    }

    fn order(&self, order: Order) {
        for orders in self.orders.iter().flatten() {
            // Full or closed: it was told already, or has ended.
            orders.try_send(order).ok();
        }
    }

    /// What `work` gives, or what has happened before it was done.
    ///
    /// # Errors
    /// The event; the work was dropped where it was.
    pub async fn beside<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Event> {
        tokio::select! {
            done = work => Ok(done),
            event = self.next(None) => Err(event),
        }
    }

    /// What happens next, or [`Event::Due`] at `due`. Cancel-safe.
    pub async fn next(&mut self, due: Option<Instant>) -> Event {
        let pause = clock::sleep_until(due.unwrap_or(Instant::NEVER));
        tokio::select! {
            Some((place, status)) = self.ended.recv() => {
                self.orders[place] = None;
                let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
                Event::Ended { place, status }
            }
            signal = self.signals.next() => Event::Signal(signal.name()),
            () = pause => Event::Due,
        }
    }
}

async fn watch_over(
    place: usize,
    mut server: Server,
    mut inbox: mpsc::Receiver<Order>,
    ending: mpsc::Sender<(usize, io::Result<ExitStatus>)>,
) {
    let status = loop {
        tokio::select! {
            status = server.ended() => break status,
            order = inbox.recv() => match order {
                Some(Order::Terminate) => server.terminate(),
                // The owner is gone: nobody would ever end this server.
                Some(Order::Kill) | None => server.kill(),
            },
        }
    };
    // An error means that the owner is gone.
    ending.send((place, status)).await.ok();
}
