//! An S3 server over the object service in memory, for trying clients: `s3_memory PORT`. Keys are `access` and `secret12`.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;

use ashlar::front::s3::S3Front;
use ashlar::os::clock;
use ashlar_object::memory::Memory;
use ashlar_object::s3::{Gateway, GatewaySettings, RootCredentials, SecretKey};

fn main() {
    let port = std::env::args().nth(1).and_then(|port| port.parse().ok()).unwrap_or(9_000);
    let now_ms = || u64::try_from(clock::now_both().unix_us / 1_000).unwrap_or_default();
    let credentials = RootCredentials::new("access".into(), SecretKey::new("secret12".into()));
    let settings = GatewaySettings { domains: vec!["localhost".into()], ..GatewaySettings::default() };
    let gateway = Gateway::new(Memory::new(now_ms).service(), Arc::new(credentials), settings);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("the port is free");
    listener.set_nonblocking(true).expect("a socket");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (_stop, stopped) = tokio::sync::watch::channel(false);
    runtime.block_on(Arc::new(S3Front::new(gateway, None)).serve(listener, stopped)).expect("the listener works");
}
