//! Where `ashlar kv` listens: ports, TLS, a unix socket. Valkey's names of the same options are understood too.

use core::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::os::kv::doors::{self, Doors, TlsDoor, UnixDoor};
use crate::os::tls::clients::{ClientProof, Files};

#[derive(Debug, Args)]
pub(super) struct DoorArguments {
    /// Addresses to listen on, several with commas
    #[arg(long, default_value = "127.0.0.1", value_name = "IP", value_delimiter = ',', num_args = 1)]
    bind: Vec<IpAddr>,
    /// Port to listen on; 0 takes a free one
    #[arg(long, default_value_t = 6379)]
    port: u16,
    /// Do not listen on a plain TCP port
    #[arg(long, conflicts_with = "port")]
    no_tcp: bool,
    /// Listen on this unix socket too
    #[arg(long, value_name = "PATH", alias = "unixsocket")]
    unix: Option<PathBuf>,
    /// Permissions of the unix socket, octal, for instance 770 [default: by the process's mask]
    #[arg(long, value_name = "MODE", alias = "unixsocketperm", requires = "unix", value_parser = mode)]
    unix_mode: Option<u32>,
    /// Listen on this port under TLS too; 0 takes a free one
    #[arg(long, value_name = "PORT", requires_all = ["tls_cert", "tls_key"])]
    tls_port: Option<u16>,
    /// Certificate for TLS and those behind it, PEM
    #[arg(long, value_name = "FILE", alias = "tls-cert-file", requires = "tls_port")]
    tls_cert: Option<PathBuf>,
    /// Key of the certificate, PEM, not encrypted
    #[arg(long, value_name = "FILE", alias = "tls-key-file", requires = "tls_port")]
    tls_key: Option<PathBuf>,
    /// Authorities that sign clients' certificates, PEM
    #[arg(long, value_name = "FILE", alias = "tls-ca-cert-file", requires = "tls_port")]
    tls_ca: Option<PathBuf>,
    /// Whether clients have to show a certificate
    #[arg(long, value_name = "WHO", default_value = "yes")]
    tls_auth_clients: ProofArgument,
    /// Connections that wait in the kernel to be accepted
    #[arg(long, value_name = "COUNT", alias = "tcp-backlog", default_value_t = doors::BACKLOG, value_parser = clap::value_parser!(u16).range(1..))]
    backlog: u16,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ProofArgument {
    /// One of ours, or they are not let in
    Yes,
    /// One of ours, or none
    Optional,
    /// None is asked for
    No,
}

/// Permissions in octal digits.
fn mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err("three octal digits, for instance 770".into()),
    }
}

pub(super) fn plan(arguments: &DoorArguments) -> Doors {
    let files = match (&arguments.tls_cert, &arguments.tls_key) {
        (Some(certificate), Some(key)) => Some(Files {
            certificate: certificate.clone(),
            key: key.clone(),
            authorities: arguments.tls_ca.clone(),
            clients: match arguments.tls_auth_clients {
                ProofArgument::Yes => ClientProof::Required,
                ProofArgument::Optional => ClientProof::Optional,
                ProofArgument::No => ClientProof::None,
            },
            flags: "--tls-",
        }),
        _ => None,
    };
    Doors {
        addresses: arguments.bind.clone(),
        port: (!arguments.no_tcp).then_some(arguments.port),
        tls: arguments.tls_port.zip(files).map(|(port, files)| TlsDoor { port, files }),
        unix: arguments.unix.clone().map(|path| UnixDoor { path, mode: arguments.unix_mode }),
        backlog: arguments.backlog,
        port_flag: "--port",
        tls_port_flag: "--tls-port",
        address_flag: "--bind",
    }
}
