//! The program from outside: real processes, real sockets, ports and directories of their own.
//!
//! Nothing here sleeps for something to happen: outputs are read as they come, states are asked for a bounded number of
//! times, and a process that takes too long is ended.

mod admin;
mod alone;
mod bench_kv;
mod closing;
mod cluster;
mod commands;
mod disk;
mod diverged;
mod doors;
mod drives;
mod following;
mod forgotten;
mod interop;
mod keeping;
mod keyvalue;
mod membership;
mod mesh;
mod permissions;
mod process;
mod quorum;
mod replicas;
mod rotation;
mod stopping;
mod strangers;
mod three_hosts;
mod up;
mod upkv;
