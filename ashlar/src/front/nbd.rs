//! NBD: volumes as network block devices, for clients on this machine.
//!
//! A connection is a value of `ashlar_volume::nbd`; here it gets bytes, and what it asks for is done: exports are volumes of the
//! catalog, entering one attaches the volume to this server, requests become reads and writes of the attachment. A client that
//! leaves gives its attachment back.
//!
//! NBD knows no passwords, so it listens on loopback addresses only; the configuration refuses others.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ashlar_node::volume::attachment::{Attachment, Ended, Failure};
use ashlar_node::volume::service::{AttachError, VolumeService};
use ashlar_volume::adapter::{Direction, Step, error_code_of, plan_request, reply_of};
use ashlar_volume::initiator;
use ashlar_volume::nbd::{
    BlockSizes, ErrorCode, Export, ExportName, Features, Io, IoRequest, Limits, Purpose, Reply, Request, RequestId,
    Session, TlsPolicy,
};
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::os::clock;
use crate::os::runtime::OsRuntime;
use crate::os::wakes::Gathered;

/// Connections of all clients.
const CONNECTIONS_MAX: usize = 1_024;
/// Bytes that are read at a time.
const READ_BYTES: usize = 256 << 10;
/// Slices of one write.
const SLICES_MAX: usize = 64;

/// How long a client may take to say which volume it wants. Connections are few, and whoever says nothing would keep others out.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

type Volumes = VolumeService<OsRuntime>;

/// Serves clients until `stopped`. Connections live on the worker that calls this.
///
/// # Errors
/// The listener cannot be used.
pub async fn serve(
    listener: std::net::TcpListener,
    volumes: Volumes,
    mut stopped: watch::Receiver<bool>,
) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let for_clients = stopped.clone();
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, from) = match accepted {
                    Ok(accepted) => accepted,
                    Err(error) => {
                        tracing::warn!(%error, "a connection to the NBD port cannot be accepted");
                        continue;
                    }
                };
                if connections.len() >= CONNECTIONS_MAX {
                    tracing::warn!(%from, "too many NBD connections: one is closed");
                    continue;
                }
                let (volumes, stopped) = (volumes.clone(), for_clients.clone());
                connections.spawn(Gathered::new(Box::pin(async move {
                    if let Err(error) = Connection::new(stream, volumes).run(stopped).await {
                        tracing::debug!(%from, %error, "an NBD connection has ended");
                    }
                })));
            }
            Some(_) = connections.join_next() => {}
            _ = stopped.wait_for(|stopped| *stopped) => break,
        }
    }
    // Each of them sees the same signal and answers what is in flight.
    while connections.join_next().await.is_some() {}
    Ok(())
}

/// What has become of something that the session asked for.
enum Done {
    Exports(Option<Vec<ExportName>>),
    Described(Result<Export, AttachError>),
    Entered(Result<Arc<Attachment>, AttachError>),
}

/// An IO request that the attachment has.
#[derive(Debug, Clone, Copy)]
struct Underway {
    id: initiator::RequestId,
    direction: Direction,
}

/// One client.
struct Connection {
    stream: TcpStream,
    volumes: Volumes,
    session: Session,
    /// What was read and not taken by the session yet.
    left: Vec<u8>,
    attachment: Option<Arc<Attachment>>,
    work: JoinSet<Done>,
    /// As many as the session lets in at most.
    underway: BTreeMap<RequestId, Underway>,
    /// Ends of those.
    ended: EndsChannel,
    /// A request has no answer that would be true: the client is to send it again, elsewhere or later.
    is_cut: bool,
}

/// Ends of requests, and which they are.
type EndsChannel = (mpsc::UnboundedSender<(RequestId, Ended)>, mpsc::UnboundedReceiver<(RequestId, Ended)>);

impl Connection {
    fn new(stream: TcpStream, volumes: Volumes) -> Self {
        // A refused option costs speed only.
        stream.set_nodelay(true).ok();
        let session = Session::new(Limits::default(), TlsPolicy::Unsupported);
        Self {
            stream,
            volumes,
            session,
            left: Vec::new(),
            attachment: None,
            work: JoinSet::new(),
            underway: BTreeMap::new(),
            ended: mpsc::unbounded_channel(),
            is_cut: false,
        }
    }

    async fn run(mut self, stopped: watch::Receiver<bool>) -> io::Result<()> {
        let result = self.talk(stopped).await;
        // What is in flight is done or not: nobody is there to be told.
        self.work.shutdown().await;
        if let Some(attachment) = self.attachment.take() {
            self.underway.values().for_each(|underway| attachment.cancel(underway.id));
            self.volumes.detach(&attachment).await;
        }
        result
    }

    async fn talk(&mut self, mut stopped: watch::Receiver<bool>) -> io::Result<()> {
        let mut room = vec![0; READ_BYTES];
        let mut is_stopping = false;
        let mut late = Box::pin(clock::sleep(HANDSHAKE_MAX));
        loop {
            // A server that stops takes no more requests of a volume, answers what it has taken, and closes. An error would go through to
            // whoever uses the disk; a client that is cut off connects again and repeats what was not answered.
            let is_leaving = is_stopping && self.attachment.is_some();
            if !is_leaving {
                self.take_left();
            }
            while let Some(request) = self.session.poll_request() {
                self.begin(request);
            }
            self.write()?;
            let has_output = self.session.poll_transmit().next().is_some();
            let has_left = is_leaving && self.underway.is_empty() && !has_output;
            if self.session.is_finished() || self.is_cut || has_left {
                return Ok(());
            }
            let wants_bytes = !is_leaving && self.session.wants_bytes() && self.left.is_empty();
            let interest = match (wants_bytes, has_output) {
                (true, true) => Some(Interest::READABLE | Interest::WRITABLE),
                (true, false) => Some(Interest::READABLE),
                (false, true) => Some(Interest::WRITABLE),
                (false, false) => None,
            };
            let ready = async {
                match interest {
                    Some(interest) => self.stream.ready(interest).await,
                    None => core::future::pending().await,
                }
            };
            tokio::select! {
                ready = ready => {
                    if wants_bytes && ready?.is_readable() && !self.read(&mut room)? {
                        return Ok(());
                    }
                }
                Some((id, ended)) = self.ended.1.recv() => self.end_io(id, ended),
                Some(done) = self.work.join_next(), if !self.work.is_empty() => self.end(done)?,
                () = &mut late, if self.attachment.is_none() && self.work.is_empty() => return Ok(()),
                _ = stopped.wait_for(|stopped| *stopped), if !is_stopping => {
                    is_stopping = true;
                    if self.attachment.is_none() {
                        self.session.shut_down();
                    }
                }
            }
        }
    }

    /// Whether the client is still there.
    fn read(&mut self, room: &mut [u8]) -> io::Result<bool> {
        match self.stream.try_read(room) {
            Ok(0) => Ok(false),
            Ok(count) => {
                let taken = self.session.handle_bytes(&room[..count]);
                self.left.extend_from_slice(&room[taken..count]);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
            Err(error) => Err(error),
        }
    }

    fn take_left(&mut self) {
        if !self.left.is_empty() && self.session.wants_bytes() {
            let taken = self.session.handle_bytes(&self.left);
            self.left.drain(..taken);
        }
    }

    fn write(&mut self) -> io::Result<()> {
        loop {
            let slices: Vec<IoSlice<'_>> = self.session.poll_transmit().take(SLICES_MAX).map(IoSlice::new).collect();
            if slices.is_empty() {
                return Ok(());
            }
            match self.stream.try_write_vectored(&slices) {
                Ok(count) => self.session.handle_transmitted(count as u64),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    fn begin(&mut self, request: Request) {
        let volumes = self.volumes.clone();
        match request {
            Request::List => drop(self.work.spawn(async move { Done::Exports(exports(&volumes).await) })),
            Request::Lookup { name, purpose: Purpose::Describe } => {
                self.work.spawn(async move { Done::Described(describe(&volumes, &name).await) });
            }
            Request::Lookup { name, purpose: Purpose::Enter } => {
                self.work.spawn(async move {
                    match named(&volumes, &name).await {
                        Ok(name) => Done::Entered(volumes.attach(&name).await),
                        Err(error) => Done::Entered(Err(error)),
                    }
                });
            }
            Request::Io(request) => self.begin_io(request),
            // Not offered, and the rest is answered.
            Request::StartTls | Request::Disconnect => {}
        }
    }

    fn end(&mut self, done: Result<Done, tokio::task::JoinError>) -> io::Result<()> {
        match done.map_err(io::Error::other)? {
            Done::Exports(exports) => self.session.handle_exports(exports.as_deref()),
            Done::Described(Ok(export)) => self.session.handle_export(Some(export)),
            Done::Described(Err(AttachError::Unknown)) => self.session.handle_export(None),
            Done::Described(Err(error)) => self.session.handle_refusal(&error.to_string()),
            Done::Entered(Ok(attachment)) => {
                let export = export(attachment.size());
                self.attachment = Some(attachment);
                self.session.handle_export(Some(export));
            }
            Done::Entered(Err(AttachError::Unknown)) => self.session.handle_export(None),
            Done::Entered(Err(error)) => {
                tracing::info!(%error, "an NBD client cannot have its volume");
                self.session.handle_refusal(&error.to_string());
            }
        }
        Ok(())
    }

    fn begin_io(&mut self, request: IoRequest) {
        let id = request.id;
        let direction = match request.io {
            Io::Read => Direction::Read,
            Io::Status => Direction::Status,
            _ => Direction::Other,
        };
        let op = match (plan_request(request), &self.attachment) {
            (Step::Submit(op), Some(_)) => op,
            (Step::Submit(_), None) => return self.session.handle_reply(id, Reply::failed(ErrorCode::Io)),
            (Step::Reply(reply), _) => return self.session.handle_reply(id, reply),
        };
        let attachment = self.attachment.as_ref().expect("it was there just now");
        let ended = self.ended.0.clone();
        // A connection that has ended hears nothing any more.
        let begun = attachment.begin(op, move |result| drop(ended.send((id, result))));
        self.underway.insert(id, Underway { id: begun, direction });
    }

    fn end_io(&mut self, id: RequestId, ended: Ended) {
        let Underway { direction, .. } = self.underway.remove(&id).expect("a request ends once");
        let reply = match ended {
            Ok(pieces) => reply_of(direction, Ok(pieces)),
            Err(Failure::Volume(error)) => Reply::failed(error_code_of(error)),
            Err(Failure::Stopping) => {
                self.is_cut = true;
                return;
            }
        };
        self.session.handle_reply(id, reply);
    }
}

/// What clients see of a volume of so many bytes.
fn export(size: u64) -> Export {
    Export {
        size,
        features: Features::ALL,
        blocks: BlockSizes::default(),
        tells_allocation: true,
        name: None,
        description: "volume with copies on several servers".into(),
    }
}

/// The names of all volumes; nothing if the catalog cannot be asked.
async fn exports(volumes: &Volumes) -> Option<Vec<ExportName>> {
    let state = volumes.catalog().state().await.ok()?;
    Some(state.volumes().map(|volume| ExportName { name: volume.name.clone(), description: String::new() }).collect())
}

/// The volume of that name. The empty name is the default export: the only volume, if there is one.
async fn named(volumes: &Volumes, name: &str) -> Result<String, AttachError> {
    if !name.is_empty() {
        return Ok(name.to_owned());
    }
    let state = volumes.catalog().state().await.map_err(AttachError::Catalog)?;
    let mut all = state.volumes();
    match (all.next(), all.next()) {
        (Some(only), None) => Ok(only.name.clone()),
        _ => Err(AttachError::Unknown),
    }
}

async fn describe(volumes: &Volumes, name: &str) -> Result<Export, AttachError> {
    let name = named(volumes, name).await?;
    Ok(export(volumes.named(&name).await?.size_bytes))
}

/// Whether clients may connect at this address without a password.
#[must_use]
pub fn is_allowed(address: SocketAddr) -> bool {
    address.ip().is_loopback()
}
