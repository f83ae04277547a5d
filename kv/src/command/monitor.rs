//! MONITOR.

use super::call::{Call, Run};
use crate::error::Error;

pub(super) const RUNS: &[(&str, Run)] = &[("monitor", monitor)];

fn monitor(call: &mut Call<'_, '_>) -> Result<(), Error> {
    if !call.may_wait {
        return Err(Error::new("ERR MONITOR isn't allowed for DENY BLOCKING client"));
    }
    call.client.is_monitor = true;
    call.engine.monitors.begin(call.client.id, &call.client.mailbox);
    call.reply.ok();
    Ok(())
}
