//! The page about three hosts, literally: its commands are run as they are typed there, on three hosts that are network namespaces.
//!
//! Each host has an address of its own on one bridge, and a `/srv` of its own. `ashlar` is the program under test; `scp` copies between
//! these hosts' files.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use super::process::{Running, Scratch, until};

const PAGE: &str = include_str!("../../../docs/operating/three-hosts.md");
const HOSTS: usize = 3;
/// Keys that are asked for at a rolling restart, each in a slot of its own.
const KEYS: usize = 12;

/// A command of the page: on which host, and what is typed there.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Typed {
    host: usize,
    words: String,
}

/// The commands of a page, block by block: lines `hostN$ COMMAND` within fences.
fn typed(page: &str) -> Vec<Vec<Typed>> {
    let line = |line: &str| {
        let (host, words) = line.strip_prefix("host")?.split_once("$ ")?;
        Some(Typed { host: host.parse().ok()?, words: words.to_owned() })
    };
    let blocks = page.split("\n```").skip(1).step_by(2);
    blocks
        .map(|block| block.lines().filter_map(line).collect())
        .filter(|block: &Vec<Typed>| !block.is_empty())
        .collect()
}

fn ip(words: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(words).output().map_err(|error| format!("ip: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() { Ok(()) } else { Err(format!("ip {}: {said}", words.join(" "))) }
}

/// Three hosts on one network, gone afterwards.
struct Hosts {
    /// What the namespaces' names begin with; that of the network has nothing behind it.
    name: String,
    scratch: Scratch,
}

impl Hosts {
    fn new() -> Result<Self, String> {
        let name = format!("operate-{:08x}", u32::from_le_bytes(ashlar::os::random::bytes()));
        let hosts = Self { name, scratch: Scratch::new() };
        let network = hosts.name.as_str();
        for program in ["redis-cli", "unshare"] {
            let found = Command::new(program).arg("--version").output();
            found.map_err(|error| format!("the page calls {program}, which is not there: {error}"))?;
        }
        ip(&["netns", "add", network])?;
        ip(&["-n", network, "link", "add", "bridge", "type", "bridge"])?;
        ip(&["-n", network, "link", "set", "bridge", "up"])?;
        for number in 1..=HOSTS {
            let (host, port) = (hosts.namespace(number), format!("port{number}"));
            ip(&["netns", "add", &host])?;
            ip(&["-n", network, "link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &host])?;
            ip(&["-n", network, "link", "set", &port, "master", "bridge", "up"])?;
            ip(&["-n", &host, "addr", "add", &format!("10.77.0.{number}/24"), "dev", "eth0"])?;
            ip(&["-n", &host, "link", "set", "eth0", "up"])?;
            ip(&["-n", &host, "link", "set", "lo", "up"])?;
            std::fs::create_dir_all(hosts.files(number)).map_err(|error| error.to_string())?;
        }
        hosts.install();
        Ok(hosts)
    }

    fn namespace(&self, host: usize) -> String {
        format!("{}-{host}", self.name)
    }

    /// What is `/srv` on a host.
    fn files(&self, host: usize) -> PathBuf {
        self.scratch.path(&format!("host{host}")).into()
    }

    /// The programs that the page calls.
    fn install(&self) {
        let programs = PathBuf::from(self.scratch.path("bin"));
        std::fs::create_dir_all(&programs).expect("the scratch directory can be written");
        let link = std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_ashlar"), programs.join("ashlar"));
        link.expect("the scratch directory can be written");
        // FROM 10.77.0.N:TO, to the files of that host.
        let hosts = self.scratch.path("host");
        let copy =
            format!("#!/bin/sh\nset -e\nhost=${{2%%:*}}\nexec cp -p \"$1\" \"{hosts}${{host##*.}}/${{2#*:/srv/}}\"\n");
        self.scratch.write("bin/scp", &copy);
        let made = Command::new("chmod").args(["+x", &self.scratch.path("bin/scp")]).status();
        assert!(made.expect("chmod is there").success());
    }

    /// What runs a command on a host: this program and its arguments.
    fn arguments(&self, typed: &Typed) -> Vec<String> {
        // A server takes the place of its shell, so that signals reach it.
        let exec = if typed.words.starts_with("ashlar server") { "exec " } else { "" };
        let (files, programs) = (self.files(typed.host), self.scratch.path("bin"));
        let script =
            format!("mount --bind {} /srv && export PATH={programs}:$PATH && {exec}{}", files.display(), typed.words);
        let words = ["netns", "exec", &self.namespace(typed.host), "unshare", "-m", "sh", "-c", &script];
        words.map(str::to_owned).to_vec()
    }

    /// Starts a server as it is typed, and waits until it has.
    fn start(&self, typed: &Typed) -> Running {
        let server = Running::start_other("ip", &self.arguments(typed));
        Running::line(&server.err, "server started");
        server
    }

    /// What a command on a host says.
    fn say(&self, host: usize, words: &str) -> String {
        let output = self.run(&Typed { host, words: words.to_owned() });
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Asks for some keys all over the slots, at this host, and says what the first wrong answer is.
    fn ask_all(&self, host: usize, words: impl Fn(usize) -> (String, String)) -> Result<(), String> {
        let server = format!("redis-cli -c -h 10.77.0.{host} -a change-me --no-auth-warning");
        (0..KEYS).map(words).try_for_each(|(words, expected)| {
            let said = self.say(host, &format!("{server} {words}"));
            if said == expected { Ok(()) } else { Err(format!("{words}: {said} instead of {expected}")) }
        })
    }

    /// Whether all slots are served, every group has a replica that follows, and all members are alive.
    fn is_whole(&self, host: usize) -> bool {
        let status = self.say(host, "ASHLAR_KV_PASSWORD=change-me ashlar kv status --json");
        let status = serde_json::from_str::<serde_json::Value>(&status).unwrap_or_default();
        let is_online = |member: &serde_json::Value| member["state"] == "online";
        let has_copy = |group: &serde_json::Value| {
            let replicas = group["replicas"].as_array().map(Vec::as_slice).unwrap_or_default();
            is_online(&group["primary"]) && !replicas.is_empty() && replicas.iter().all(is_online)
        };
        let groups = status["groups"].as_array().map(Vec::as_slice).unwrap_or_default();
        status["slots_served"] == 16_384
            && groups.len() == HOSTS
            && groups.iter().all(has_copy)
            && self.say(host, "ashlar status").contains("3 alive")
    }

    fn run(&self, typed: &Typed) -> Output {
        let mut command = Command::new("ip");
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("ASHLAR_")) {
            command.env_remove(name);
        }
        command.args(self.arguments(typed)).stdin(Stdio::null()).output().expect("ip is there")
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for number in 1..=HOSTS {
            ip(&["netns", "del", &self.namespace(number)]).ok();
        }
        ip(&["netns", "del", &self.name]).ok();
    }
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|output| output.stdout == b"0\n")
}

#[test]
fn commands_are_those_of_the_page() {
    let page = "text\n```\nhost1$ a b\nsays\nhost2$ c\n```\nmore\n```\nno command\n```\n```\nhost3$ d\n```\n";
    let command = |host, words: &str| Typed { host, words: words.to_owned() };
    assert_eq!(typed(page), [vec![command(1, "a b"), command(2, "c")], vec![command(3, "d")]]);
    let all: Vec<Typed> = typed(PAGE).into_iter().flatten().collect();
    let servers = all.iter().filter(|typed| typed.words.starts_with("ashlar server")).count();
    assert_eq!(servers, HOSTS, "{all:?}");
}

#[test]
fn three_hosts_make_a_cluster_by_the_page() {
    let hosts = match Hosts::new() {
        Ok(hosts) => hosts,
        Err(why) => {
            let must_run = std::env::var_os("ASHLAR_VERIFY_COMPLETE").is_some() && is_root();
            assert!(!must_run, "network namespaces cannot be made: {why}");
            eprintln!("SKIPPED: three hosts: network namespaces cannot be made here: {why}");
            return;
        }
    };
    let (mut servers, mut said) = (Vec::new(), Vec::new());
    for typed in typed(PAGE).into_iter().flatten() {
        if typed.words.starts_with("ashlar server") {
            servers.push((hosts.start(&typed), typed));
            continue;
        }
        let mut output = hosts.run(&typed);
        if typed.words == "ashlar status" {
            // Whoever follows the page goes on when it shows what the page says it does.
            until("three members that are alive", || {
                output = hosts.run(&typed);
                String::from_utf8_lossy(&output.stdout).contains("3 alive")
            });
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{typed:?}: {text}{err}");
        said.push((typed.words, text));
    }
    let told = |command: &str| {
        let found = said.iter().rfind(|(words, _)| words.contains(command));
        found.map(|(_, text)| text.clone()).unwrap_or_else(|| panic!("the page has no `{command}`"))
    };
    let status = told("ashlar kv status");
    assert!(status.starts_with("16384 of 16384 slots are served"), "{status}");
    for number in 1..=HOSTS {
        assert!(status.contains(&format!("10.77.0.{number}:6379")), "{status}");
        assert!(status.contains(&format!("10.77.0.{number}:6479")), "{status}");
    }
    assert!(!status.contains("no second copy"), "{status}");
    assert_eq!(told("set greeting").trim(), "OK");
    assert_eq!(told("get greeting").trim(), "hello");
    assert!(told("ashlar kv password").contains("6 of 6 engines"), "{}", told("ashlar kv password"));
    restart_one_after_another(&hosts, &mut servers);
    for (mut server, _) in servers {
        server.signal("TERM");
        assert_eq!(server.wait(), Some(0));
    }
}

/// The rolling restart of the page about operating: while one server is away the others serve every slot, at once.
fn restart_one_after_another(hosts: &Hosts, servers: &mut [(Running, Typed)]) {
    for (server, typed) in servers.iter_mut() {
        let (away, other) = (typed.host, typed.host % HOSTS + 1);
        until("all slots to be served and followed", || (1..=HOSTS).all(|host| hosts.is_whole(host)));
        server.signal("TERM");
        assert_eq!(server.wait(), Some(0));
        let set = |number: usize| (format!("set key:{number} {away}"), "OK".to_owned());
        assert_eq!(hosts.ask_all(other, set), Ok(()), "host{away} is away");
        *server = hosts.start(typed);
        let get = |number: usize| (format!("get key:{number}"), away.to_string());
        assert_eq!(hosts.ask_all(other, get), Ok(()), "host{away} has just started");
    }
}
