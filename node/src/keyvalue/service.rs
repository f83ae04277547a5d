//! Key-value as a service of the node: its calls and streams, and the tasks that run beside its engines.

use std::sync::Arc;

use ashlar_grid::error::Refusal;
use ashlar_grid::handler::{Handlers, RegisteredTwice};
use ashlar_grid::seam::Runtime;

use super::carry::{GridCarrier, MESSAGES, receive};
use super::roads::{FOLLOW, Roads};
use super::{Part, users};
use crate::service::{Agent, Service};
use crate::{Node, WeakNode, no_member, stopped};

impl<R: Runtime> Service<R> for Part {
    fn register(&self, node: &WeakNode<R>, handlers: Handlers) -> Result<Handlers, RegisteredTwice> {
        let messages = Arc::clone(self.desk.messages());
        let handlers =
            handlers.stream(MESSAGES, move |_, version, stream| receive(Arc::clone(&messages), version, stream))?;
        let handlers = register_follow(self.roads.clone(), node, handlers)?;
        let known = self.users.clone();
        handlers.serve::<users::Exchange, _>(move |context, request| {
            let known = known.clone();
            async move {
                let known = known.ok_or_else(|| Refusal::new(2, "there are no users here"))?;
                Ok(users::answer(&*known, context.caller, &request))
            }
        })
    }

    fn start(&self, node: &Node<R>) -> Box<dyn Agent> {
        if let Some(roads) = &self.roads {
            roads.open_on(node.grid().clone());
        }
        if let Some(users) = &self.users {
            node.runtime().spawn(Box::pin(users::tell(node.clone(), Arc::clone(users))));
        }
        let office = self.clone().office();
        let (waker, carrier) =
            (node.clone(), GridCarrier { node: node.clone(), messages: Arc::clone(office.messages()) });
        office.open(Box::new(move || waker.wake_agents()), Box::new(carrier));
        Box::new(office)
    }

    fn close(&self) {
        // Streams between engines have no end of their own that could be waited for.
        if let Some(roads) = &self.roads {
            roads.close();
        }
    }
}

fn register_follow<R: Runtime>(
    roads: Option<Arc<Roads>>,
    node: &WeakNode<R>,
    handlers: Handlers,
) -> Result<Handlers, RegisteredTwice> {
    let node = node.clone();
    handlers.stream(FOLLOW, move |context, initial, stream| {
        let (node, roads) = (node.upgrade(), roads.clone());
        async move {
            let (node, roads) = node.zip(roads).ok_or_else(stopped)?;
            // A server that was forgotten while it was away may still know where its primary is.
            if !node.is_met(context.caller) {
                return Err(no_member());
            }
            let from = node.address_of(context.caller);
            // A stream may outlast everything else that its server does.
            drop(node);
            roads.take(&from, &initial, stream).await
        }
    })
}
