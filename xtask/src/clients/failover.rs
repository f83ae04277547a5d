//! Faults of real processes while clients write: no acknowledged write is lost, and all slots are served again within a failover's time.
//!
//! Three scenarios are played on one shard of three nodes whose writes a majority acknowledges, one on servers whose shards have two copies.
//! Each round draws its scenario and its delays. A round that fails keeps its folders, and the next one begins with a new cluster.

mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::writer::{Keys, Writers};
use super::cluster::{NODE_PORTS, Node};
use super::plan::Plan;
use super::server::{Server, Shape, free_ports, kv, make, page, until_whole};
use super::worker::{now, pause, until, until_within};
use crate::dice::Dice;
use crate::failure::Failure;
use crate::process::{output, timed};
use crate::terminal::{complain, say};
use crate::workspace::Workspace;

/// Nodes of the shard whose writes a majority acknowledges: it goes on without any one of them.
const NODES: u16 = 3;
/// Servers of which just under half are killed at once.
const SERVERS: u16 = 7;
/// Whose slots are not served again after this has failed.
const SERVED_MAX: Duration = Duration::from_secs(30);
/// If it takes longer than this, what clients meet then is shown.
const SLOW: Duration = Duration::from_secs(5);
/// A node that is asked how it is may be stopped.
const PATIENCE: Duration = Duration::from_secs(2);
/// Clusters that fail so often tell nothing new.
const FAILURES_MAX: usize = 5;
/// The folders below `clients` in cargo's target directory.
const FOLDERS: [&str; 2] = ["failover-nodes", "failover-servers"];

/// What is done to a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scenario {
    /// The primary is stopped and continued, then its successor is killed.
    Pause,
    /// The primary is killed and started again at once.
    Restart,
    /// A node is lost, comes back, and another one is killed as soon as the first has all data again.
    Return,
    /// Just under half of the servers are killed at once.
    Half,
}

const SCENARIOS: [Scenario; 4] = [Scenario::Pause, Scenario::Restart, Scenario::Return, Scenario::Half];

impl Scenario {
    /// As it is asked for.
    const fn word(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Restart => "restart",
            Self::Return => "return",
            Self::Half => "half",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Pause => "stop the primary, continue it, kill its successor",
            Self::Restart => "kill the primary and start it again at once",
            Self::Return => "a node is lost and comes back, another one is killed",
            Self::Half => "kill three of seven servers at once",
        }
    }
}

/// How long it took until all slots were served, by what was done.
type Spans = BTreeMap<&'static str, Vec<Duration>>;

/// The shard of nodes, and what its keys must hold.
struct Shard {
    nodes: Vec<Node>,
    keys: Arc<Keys>,
}

/// The servers, and what their keys must hold.
struct Servers {
    servers: Vec<Server>,
    keys: Arc<Keys>,
}

/// One run.
struct Run<'a> {
    workspace: &'a Workspace,
    dice: Dice,
    spans: Spans,
    shard: Option<Shard>,
    servers: Option<Servers>,
    /// Clusters made so far.
    made: usize,
}

/// Reads what a person asks for.
pub(super) fn read(rounds: u32, options: &[String]) -> Result<Plan<Scenario>, Failure> {
    Plan::read("--failover", rounds, options, &SCENARIOS.map(|fault| (fault.word(), fault)))
}

/// Plays so many rounds.
pub(super) fn run(workspace: &Workspace, plan: Plan<Scenario>) -> Result<(), Failure> {
    let Plan { rounds, seed, only } = plan;
    say(&format!("failover: seed {seed}"));
    let mut run = Run { workspace, dice: Dice::new(seed), spans: Spans::new(), shard: None, servers: None, made: 0 };
    let mut failed = Vec::new();
    for round in 1..=rounds {
        let drawn = SCENARIOS[run.below(SCENARIOS.len())];
        let scenario = only.unwrap_or(drawn);
        let (outcome, span) = timed(|| run.play(scenario));
        let told = format!("round {round} of {rounds}, {}: {:.1} s", scenario.name(), span.as_secs_f64());
        match outcome {
            Ok(came_to) => say(&format!("{told}, {came_to}")),
            Err(Failure::Failed(what) | Failure::Usage(what)) => {
                complain(&format!("{told}, FAILED: {what}"));
                failed.push(round.to_string());
                // Its processes end, its folders stay.
                (run.shard, run.servers) = (None, None);
            }
        }
        if failed.len() >= FAILURES_MAX {
            break;
        }
    }
    run.spans.iter().for_each(|(what, spans)| say(&summary(what, spans)));
    if failed.is_empty() {
        Ok(())
    } else {
        Err(Failure::Failed(format!("failover: rounds {} of seed {seed} failed", failed.join(", "))))
    }
}

/// Median, maximum, and how many took up to so many seconds.
fn summary(what: &str, spans: &[Duration]) -> String {
    let mut spans = spans.to_vec();
    spans.sort();
    let (median, longest) = (spans.get(spans.len() / 2), spans.last());
    let seconds = |span: Option<&Duration>| span.map_or(0.0, Duration::as_secs_f64);
    let mut counts = BTreeMap::<u64, usize>::new();
    spans.iter().for_each(|span| *counts.entry(span.as_secs() + 1).or_default() += 1);
    let counts: Vec<String> = counts.iter().map(|(below, count)| format!("<{below} s: {count}")).collect();
    let (median, longest) = (seconds(median), seconds(longest));
    format!("{what}: served after {median:.1} s (median), {longest:.1} s (longest); {}", counts.join(", "))
}

impl Run<'_> {
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.dice.below(end as u64)).unwrap_or(0)
    }

    fn span_below(&mut self, max_ms: u64) -> Duration {
        Duration::from_millis(self.dice.below(max_ms))
    }

    fn play(&mut self, scenario: Scenario) -> Result<String, Failure> {
        if scenario == Scenario::Half {
            let mut servers = match self.servers.take() {
                Some(servers) => servers,
                None => self.make_servers()?,
            };
            let outcome =
                self.lose_half(&mut servers).map_err(|failure| with(failure, &servers.keys, &servers.states()));
            self.servers = Some(servers);
            return outcome;
        }
        let mut shard = match self.shard.take() {
            Some(shard) => shard,
            None => self.make_shard()?,
        };
        let outcome = self.play_on_shard(scenario, &mut shard);
        let outcome = outcome.map_err(|failure| with(failure, &shard.keys, &shard.states()));
        self.shard = Some(shard);
        outcome
    }

    fn folder(&mut self, name: &str) -> PathBuf {
        let folder = self.workspace.target.join("clients").join(name);
        if self.made == 0 {
            // What an earlier run has left would be another cluster's.
            FOLDERS.iter().for_each(|name| drop(std::fs::remove_dir_all(folder.with_file_name(name))));
        }
        self.made += 1;
        folder.join(self.made.to_string())
    }

    /// Three nodes of one shard that has all slots.
    fn make_shard(&mut self) -> Result<Shard, Failure> {
        let folder = self.folder(FOLDERS[0]);
        let first = free_ports(NODE_PORTS * NODES)?;
        let start = |place: u16| {
            let folder = folder.join(place.to_string());
            Node::start(self.workspace, folder, first + NODE_PORTS * place, &["--replication-quorum", "yes"])
        };
        let nodes = (0..NODES).map(start).collect::<Result<Vec<Node>, Failure>>()?;
        nodes[0].order(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"])?;
        for other in &nodes[1..] {
            let (port, bus_port) = (other.port.to_string(), (other.port + 1).to_string());
            nodes[0].order(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus_port])?;
        }
        until("all nodes to know each other", || {
            let texts = ["cluster_slots_ok:16384", "cluster_known_nodes:3"];
            nodes.iter().all(|node| node.says(&["CLUSTER", "INFO"], &texts))
        })?;
        let primary = nodes[0].name()?;
        nodes[1..].iter().try_for_each(|node| node.order(&["CLUSTER", "REPLICATE", &primary]))?;
        let addresses = nodes.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect();
        let shard = Shard { nodes, keys: Keys::new(addresses, false) };
        shard.until_whole().map_err(|failure| with(failure, &shard.keys, &shard.states()))?;
        Ok(shard)
    }

    fn make_servers(&mut self) -> Result<Servers, Failure> {
        let folder = self.folder(FOLDERS[1]);
        let options = &["--member-timeout-ms", "2000"];
        let servers = make(self.workspace, &Shape { folder, servers: SERVERS, options })?;
        let addresses = servers.iter().flat_map(|server| server.engines()).collect();
        let servers = Servers { servers, keys: Keys::new(addresses, true) };
        servers.until_whole().map_err(|failure| with(failure, &servers.keys, &servers.states()))?;
        Ok(servers)
    }

    /// Waits until all slots are served again after a fault that began at `at`, and remembers how long that took.
    fn until_served(&mut self, what: &'static str, keys: &Keys, at: Instant) -> Result<Duration, Failure> {
        let mut is_told = false;
        until_within(SERVED_MAX, &format!("all slots to be served ({what})"), || {
            if !is_told && now().duration_since(at) > SLOW {
                is_told = true;
                say(&format!("after {} s ({what}): {}", SLOW.as_secs(), keys.troubles()));
            }
            keys.served_after(at).is_some()
        })?;
        let span = keys.served_after(at).unwrap_or_default();
        self.spans.entry(what).or_default().push(span);
        Ok(span)
    }

    fn play_on_shard(&mut self, scenario: Scenario, shard: &mut Shard) -> Result<String, Failure> {
        let writers = Writers::start(&shard.keys);
        let keys = Arc::clone(&shard.keys);
        self.until_served("nothing has happened", &keys, now())?;
        let spans = match scenario {
            Scenario::Pause => self.stop_and_kill(shard)?,
            Scenario::Restart => vec![self.kill_and_restart(shard)?],
            Scenario::Return => self.lose_and_return(shard)?,
            Scenario::Half => Vec::new(),
        };
        shard.until_whole()?;
        let acknowledged = writers.finish()?;
        Ok(told(&spans, acknowledged))
    }

    fn stop_and_kill(&mut self, shard: &mut Shard) -> Result<Vec<Duration>, Failure> {
        let keys = Arc::clone(&shard.keys);
        let first = shard.primary()?;
        let at = now();
        shard.signal(first, "-STOP")?;
        keys.note_fault(at);
        let stopped = self.until_served("the primary is stopped", &keys, at)?;
        pause(self.span_below(2_000));
        shard.signal(first, "-CONT")?;
        pause(self.span_below(2_000));
        let second = shard.primary_but(first)?;
        let at = now();
        shard.nodes[second].kill();
        keys.note_fault(at);
        let killed = self.until_served("its successor is killed", &keys, at)?;
        shard.nodes[second].start_again()?;
        Ok(vec![stopped, killed])
    }

    fn kill_and_restart(&mut self, shard: &mut Shard) -> Result<Duration, Failure> {
        let keys = Arc::clone(&shard.keys);
        let first = shard.primary()?;
        let at = now();
        shard.nodes[first].kill();
        keys.note_fault(at);
        pause(self.span_below(1_500));
        shard.nodes[first].start_again()?;
        self.until_served("the primary is killed and started again", &keys, at)
    }

    fn lose_and_return(&mut self, shard: &mut Shard) -> Result<Vec<Duration>, Failure> {
        let keys = Arc::clone(&shard.keys);
        let lost = self.below(usize::from(NODES));
        let at = now();
        shard.nodes[lost].kill();
        keys.note_fault(at);
        let first = self.until_served("one of three nodes is killed", &keys, at)?;
        // It is found that it failed, and whoever votes may change.
        pause(Duration::from_secs(3) + self.span_below(5_000));
        shard.nodes[lost].start_again()?;
        until("the node that came back to have all data", || shard.has_all(lost))?;
        let other = (lost + 1 + self.below(usize::from(NODES) - 1)) % usize::from(NODES);
        let at = now();
        shard.nodes[other].kill();
        keys.note_fault(at);
        let second = self.until_served("another one is killed when it is back", &keys, at)?;
        shard.nodes[other].start_again()?;
        Ok(vec![first, second])
    }

    fn lose_half(&mut self, servers: &mut Servers) -> Result<String, Failure> {
        let writers = Writers::start(&servers.keys);
        let keys = Arc::clone(&servers.keys);
        self.until_served("nothing has happened", &keys, now())?;
        let groups = servers.groups()?;
        let mut lost = BTreeSet::new();
        let order = self.below(usize::from(SERVERS));
        // Just under half, and of each shard one copy at most.
        let mut candidates: Vec<usize> = (0..usize::from(SERVERS)).collect();
        candidates.rotate_left(order);
        // The loss of one that has no primary would leave nothing unserved.
        candidates.sort_by_key(|number| groups.iter().all(|group| group.primary != Some(*number)));
        for number in candidates {
            let stays = |group: &Group| group.members.iter().any(|member| !lost.contains(member) && *member != number);
            if 2 * (lost.len() + 1) < usize::from(SERVERS) && groups.iter().all(stays) {
                lost.insert(number);
            }
        }
        let at = now();
        lost.iter().try_for_each(|number| servers.servers[*number].signal("-KILL"))?;
        lost.iter().for_each(|number| servers.servers[*number].kill());
        keys.note_fault(at);
        let span = self.until_served("just under half of the servers are killed at once", &keys, at)?;
        lost.iter().try_for_each(|number| servers.servers[*number].start_again())?;
        servers.until_whole()?;
        let acknowledged = writers.finish()?;
        Ok(format!("{} servers killed, {}", lost.len(), told(&[span], acknowledged)))
    }
}

fn told(spans: &[Duration], acknowledged: u64) -> String {
    let spans: Vec<String> = spans.iter().map(|span| format!("{:.1} s", span.as_secs_f64())).collect();
    format!("served after {}; numbers acknowledged add up to {acknowledged}", spans.join(" and "))
}

/// A failure with all that may explain it.
fn with(failure: Failure, keys: &Keys, states: &str) -> Failure {
    let (Failure::Failed(what) | Failure::Usage(what)) = failure;
    Failure::Failed(format!("{what}\n{}\n{states}", keys.troubles()))
}

impl Shard {
    fn info(&self, number: usize) -> BTreeMap<String, String> {
        let text = self.nodes[number].ask_within(PATIENCE, &["INFO", "replication"]).unwrap_or_default();
        let pairs = text.lines().filter_map(|line| line.trim().split_once(':'));
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    fn is(&self, number: usize, wanted: &[(&str, &str)]) -> bool {
        let info = self.info(number);
        wanted.iter().all(|(name, value)| info.get(*name).is_some_and(|has| has == value))
    }

    fn serves(&self, number: usize) -> bool {
        self.is(number, &[("role", "master"), ("quorum_serving", "1"), ("quorum_majority_present", "1")])
    }

    fn has_all(&self, number: usize) -> bool {
        self.is(number, &[("quorum_data_whole", "1")])
    }

    /// Which node serves; all of them may be asked.
    fn primary(&self) -> Result<usize, Failure> {
        self.primary_but(self.nodes.len())
    }

    /// The same, but for one.
    fn primary_but(&self, but: usize) -> Result<usize, Failure> {
        let mut found = None;
        until("a node to serve", || {
            found = (0..self.nodes.len()).find(|number| *number != but && self.serves(*number));
            found.is_some()
        })?;
        found.ok_or_else(|| Failure::Failed("no node serves".into()))
    }

    fn is_whole(&self) -> bool {
        let infos: Vec<_> = (0..self.nodes.len()).map(|number| self.info(number)).collect();
        let has = |name: &str, value: &str| {
            infos.iter().filter(|info| info.get(name).is_some_and(|has| has == value)).count()
        };
        let members = |info: &BTreeMap<String, String>| {
            info.get("quorum_members")
                .is_some_and(|members| !members.contains('>') && members.split(',').count() == infos.len())
        };
        has("role", "master") == 1
            && has("quorum_serving", "1") == 1
            && has("quorum_majority_present", "1") == 1
            && has("quorum_data_whole", "1") == infos.len()
            && has("master_link_status", "up") == infos.len() - 1
            && infos.iter().all(members)
            && self
                .nodes
                .iter()
                .all(|node| node.says(&["CLUSTER", "INFO"], &["cluster_state:ok", "cluster_slots_ok:16384"]))
    }

    fn until_whole(&self) -> Result<(), Failure> {
        until("the shard to be whole", || self.is_whole())
    }

    fn signal(&self, number: usize, signal: &str) -> Result<(), Failure> {
        output(Command::new("kill").args([signal, &self.nodes[number].pid().to_string()])).map(drop)
    }

    fn states(&self) -> String {
        let mut text = String::new();
        for (number, node) in self.nodes.iter().enumerate() {
            let info = self.info(number);
            let info: Vec<String> = info.iter().map(|(name, value)| format!("{name}:{value}")).collect();
            let health = page(node.port + 1, "/health/cluster").unwrap_or_else(|error| error.to_string());
            let voters = page(node.port + 1, "/v1/status").ok().and_then(|page| voters(&page)).unwrap_or_default();
            text += &format!("node {number}, port {}, log {}\n", node.port, node.log().display());
            text += &format!("  {}\n  health: {health}\n  voters: {voters}\n", info.join(" "));
        }
        let program = self.nodes[0].program();
        let status = self.nodes.iter().find_map(|node| kv(program, node.port, &["status", "--json"]).ok());
        text + &status.unwrap_or_default()
    }
}

/// Who votes, and how the members are, of a page about a node.
fn voters(page: &str) -> Option<String> {
    let page = serde_json::from_str::<serde_json::Value>(page).ok()?;
    let bus = page.get("bus")?;
    Some(format!(
        "{} before {} majority {} members {}",
        bus["voters"], bus["voters_before"], bus["majority"], bus["members"]
    ))
}

/// The servers that have a copy of a group's data, as their numbers.
struct Group {
    primary: Option<usize>,
    members: Vec<usize>,
}

/// Whether the page about a node names all servers as voters, and none that is to become one.
fn vote_all(page: &str) -> bool {
    let page = serde_json::from_str::<serde_json::Value>(page).unwrap_or_default();
    let voters = page["bus"]["voters"].as_array().map_or(0, Vec::len);
    voters == usize::from(SERVERS) && page["bus"]["voters_before"].as_array().is_some_and(Vec::is_empty)
}

impl Servers {
    /// Where the copies of all data are.
    fn groups(&self) -> Result<Vec<Group>, Failure> {
        let status = self.servers[0].kv(&["status", "--json"])?;
        let status: serde_json::Value =
            serde_json::from_str(&status).map_err(|error| Failure::Failed(format!("`kv status --json`: {error}")))?;
        let number = |member: &serde_json::Value| {
            let address = member["address"].as_str()?;
            self.servers.iter().position(|server| server.engines().iter().any(|engine| engine == address))
        };
        let groups = status["groups"].as_array().map(Vec::as_slice).unwrap_or_default();
        let group = |group: &serde_json::Value| {
            let replicas = group["replicas"].as_array().map(Vec::as_slice).unwrap_or_default();
            let primary = number(&group["primary"]);
            Group { primary, members: replicas.iter().filter_map(number).chain(primary).collect() }
        };
        Ok(groups.iter().map(group).collect())
    }

    /// Waits until no server knows another that does not vote, too: who fails next may be any of them.
    fn until_whole(&self) -> Result<(), Failure> {
        until_whole(&self.servers)?;
        until("all servers to vote", || {
            self.servers.iter().all(|server| server.get("/v1/status").is_ok_and(|page| vote_all(&page)))
        })
    }

    fn states(&self) -> String {
        let mut text = String::new();
        for server in &self.servers {
            let health = server.get("/health/cluster").unwrap_or_else(|error| error.to_string());
            let voters = server.get("/v1/status").ok().and_then(|page| voters(&page)).unwrap_or_default();
            text += &format!("{}\n  health: {health}\n  voters: {voters}\n", server.name());
        }
        let status = self.servers.iter().find_map(|server| server.kv(&["status", "--json"]).ok());
        text + &status.unwrap_or_default()
    }
}
