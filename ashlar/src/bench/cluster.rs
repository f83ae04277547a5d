//! Servers for a benchmark: many grids in one process, each at home on one worker, all connected over loopback.

use std::sync::Arc;
use std::time::Duration;

use ashlar_grid::config::GridConfig;
use ashlar_grid::error::Refusal;
use ashlar_grid::handler::{HandlerId, Handlers, Method, RegisteredTwice};
use ashlar_grid::hello::Secrets;
use ashlar_grid::seam::Lane;
use ashlar_grid::status::PeerState;
use ashlar_grid::{Grid, PeerHandle};
use ashlar_wire::id::{ClusterId, Incarnation, ServerId};
use ashlar_wire::secret::Secret;

use crate::failure::Failure;
use crate::front::bench::{self, Listening, Socket};
use crate::os::clock;
use crate::os::runtime::OsRuntime;
use crate::os::throttle::Throttle;
use crate::os::workers::Workers;

/// Answers with the request, on the connection's own task.
pub(super) const ECHO_INLINE: HandlerId = HandlerId::new(1);
/// Answers with the request, as handlers of the product do.
pub(super) const ECHO: HandlerId = HandlerId::new(6);
/// A stream that answers its initial payload a number of times.
pub(super) const ECHO_STREAM: HandlerId = HandlerId::new(4);
/// Takes a payload and answers its length.
pub(super) const SINK: HandlerId = HandlerId::new(5);
/// A stream that is read to its end and answers nothing.
pub(super) const SINK_STREAM: HandlerId = HandlerId::new(9);

struct Echo;

impl Method for Echo {
    const ID: HandlerId = ECHO;
    type Request = Vec<u8>;
    type Reply = Vec<u8>;
}

/// One server of a benchmark.
pub struct Server {
    /// Its grid.
    pub grid: Grid<OsRuntime>,
    /// Its address.
    pub address: String,
    /// Number of the worker that is its home.
    pub home: usize,
    listening: Listening,
}

/// Connected servers.
pub struct Cluster {
    /// All of them.
    pub servers: Vec<Server>,
    /// For each server, all others.
    pub peers: Vec<Vec<PeerHandle<OsRuntime>>>,
}

/// How long a mesh may take to form.
const FORMING_MAX: Duration = Duration::from_secs(60);
/// How often that is looked at.
const FORMING_LOOK: Duration = Duration::from_millis(10);
/// Replies of one benchmark stream, unless its initial payload says otherwise.
pub const STREAM_REPLIES: u32 = 10;
/// Payload of a benchmark call or message, bytes.
pub const PAYLOAD_BYTES: usize = 512;

impl Cluster {
    /// Starts `count` servers on `workers` and waits until all are connected.
    ///
    /// # Errors
    /// Loopback or descriptors are not to be had, or the mesh does not form.
    pub async fn start(workers: &Workers, count: usize) -> Result<Self, Failure> {
        let mut servers = Vec::with_capacity(count);
        for number in 0..count {
            let socket = bench::bind()?;
            let address = socket.address.clone();
            servers.push(start_server(workers, number, socket, address)?);
        }
        for (number, server) in servers.iter().enumerate() {
            let earlier: Vec<String> = servers[..number].iter().map(|earlier| earlier.address.clone()).collect();
            let grid = server.grid.clone();
            workers.handles[server.home]
                .spawn(async move { earlier.iter().for_each(|address| grid.add_peer(address)) });
        }
        Self::formed(servers).await
    }

    async fn formed(servers: Vec<Server>) -> Result<Self, Failure> {
        let (began, count) = (clock::now(), servers.len());
        while !servers.iter().all(|server| connected(&server.grid) == count - 1) {
            if clock::now() > began + FORMING_MAX {
                return Err(Failure::world("the servers did not connect within 60 s", "run with less other load"));
            }
            clock::sleep(FORMING_LOOK).await;
        }
        let peers = servers.iter().map(handles).collect();
        Ok(Self { servers, peers })
    }

    /// Two servers that reach each other only through links of `bytes_per_s`.
    ///
    /// # Errors
    /// As [`Cluster::start`].
    pub async fn start_slow(workers: &Workers, bytes_per_s: u64) -> Result<(Self, Vec<Throttle>), Failure> {
        let mut servers = Vec::new();
        let mut links = Vec::new();
        for number in 0..2 {
            let socket = bench::bind()?;
            let link =
                Throttle::start(&workers.handles[number % workers.handles.len()], socket.address.clone(), bytes_per_s)?;
            servers.push(start_server(workers, number, socket, link.address.clone())?);
            links.push(link);
        }
        let (grid, address) = (servers[1].grid.clone(), servers[0].address.clone());
        workers.handles[servers[1].home].spawn(async move { grid.add_peer(&address) });
        let cluster = Self::formed(servers).await?;
        Ok((cluster, links))
    }

    /// Ends all servers.
    pub async fn stop(self) {
        for server in &self.servers {
            server.grid.stop();
            server.listening.stop();
        }
        while self.servers.iter().any(|server| server.grid.tasks() > 0) {
            clock::sleep(FORMING_LOOK).await;
        }
    }
}

fn connected(grid: &Grid<OsRuntime>) -> usize {
    grid.peers().iter().filter(|peer| peer.state == PeerState::Connected).count()
}

fn handles(server: &Server) -> Vec<PeerHandle<OsRuntime>> {
    let ids = server.grid.peers().into_iter().filter_map(|peer| peer.id);
    ids.filter_map(|id| server.grid.peer(id).ok()).collect()
}

/// Server `number` on `socket`, which tells its peers that it is reached at `address`.
fn start_server(workers: &Workers, number: usize, socket: Socket, address: String) -> Result<Server, Failure> {
    let home = number % workers.handles.len();
    let handle = &workers.handles[home];
    let runtime = Arc::new(OsRuntime::new(Lane::Small, vec![handle.clone()], false));
    let bulk = Arc::new(OsRuntime::new(Lane::Bulk, vec![workers.bulk[home].clone()], false));
    let mut id = [0; 16];
    id[..8].copy_from_slice(&(number as u64 + 1).to_be_bytes());
    let secrets = Secrets::new(Secret::from_bytes([7; 32]));
    let cluster = ClusterId::from_bytes([1; 16]);
    let config = GridConfig::new(cluster, ServerId::from_bytes(id), Incarnation(1), address.clone(), secrets);
    let handlers = handlers().map_err(|error| Failure::world(error.to_string(), ""))?;
    let grid = Grid::with_bulk(runtime, bulk, config, handlers, |_| {});
    let accepting = grid.clone();
    let listening = bench::listen(handle, socket, Arc::new(move |wire, lane| accepting.accept(wire, lane)));
    Ok(Server { grid, address, home, listening })
}

/// Echoes, a stream of them, and sinks.
fn handlers() -> Result<Handlers, RegisteredTwice> {
    Handlers::new()
        .serve::<Echo, _>(|_, request| async move { Ok(request) })?
        .inline_bytes(ECHO_INLINE, |_, request, answer| {
            answer.extend_from_slice(request);
            Ok(())
        })?
        .inline_bytes(SINK, |_, request, answer| {
            answer.extend_from_slice(&(request.len() as u64).to_be_bytes());
            Ok(())
        })?
        .stream(SINK_STREAM, |_, _, mut stream| async move {
            // However it ends, there is nobody to tell but its sender, who knows.
            while let Ok(Some(_)) = stream.receiver.receive().await {}
            Ok(())
        })?
        .stream(ECHO_STREAM, |_, initial, mut stream| async move {
            let (message, count) = match initial.split_at_checked(PAYLOAD_BYTES) {
                Some((message, count)) => (message, count.try_into().map_or(STREAM_REPLIES, u32::from_be_bytes)),
                None => (initial.as_slice(), STREAM_REPLIES),
            };
            for _ in 0..count {
                let sent = stream.sender.send(message).await;
                sent.map_err(|error| Refusal::new(1, error.to_string()))?;
            }
            Ok(())
        })
}
