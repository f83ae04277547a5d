//! Key-value as a service of the node: its calls and streams, and the tasks that run beside its engines.

use std::sync::Arc;

use ashlar_grid::error::Refusal;
use ashlar_grid::handler::{Handlers, RegisteredTwice};
use ashlar_grid::seam::Runtime;

use super::promise_call::{self, AnswerForm, PromiseCall, RequestForm};
use super::relay::{GridRelay, MESSAGES, receive};
use super::replication_streams::{FOLLOW, ReplicationStreams};
use super::{Part, users};
use crate::service::{Agent, Service};
use crate::{Node, WeakNode, no_member, stopped};

impl<R: Runtime> Service<R> for Part {
    fn register(&self, node: &WeakNode<R>, handlers: Handlers) -> Result<Handlers, RegisteredTwice> {
        let messages = Arc::clone(self.mailboxes.messages());
        let handlers =
            handlers.stream(MESSAGES, move |_, version, stream| receive(Arc::clone(&messages), version, stream))?;
        let handlers = register_follow(self.replication_streams.clone(), node, handlers)?;
        let known = self.users.clone();
        let mailboxes = Arc::clone(&self.mailboxes);
        let handlers = handlers.serve::<PromiseCall, _>(move |context, RequestForm(request)| {
            let mailboxes = Arc::clone(&mailboxes);
            async move { promise_call::receive(&mailboxes, context.caller, request).await.map(AnswerForm) }
        })?;
        handlers.serve::<users::Exchange, _>(move |context, request| {
            let known = known.clone();
            async move {
                let known = known.ok_or_else(|| Refusal::new(2, "there are no users here"))?;
                Ok(users::answer(&*known, context.caller, &request))
            }
        })
    }

    fn start(&self, node: &Node<R>) -> Box<dyn Agent> {
        if let Some(replication_streams) = &self.replication_streams {
            replication_streams.open_on(node.downgrade());
        }
        if let Some(users) = &self.users {
            node.runtime().spawn(Box::pin(users::tell(node.clone(), Arc::clone(users))));
        }
        self.mailboxes.call_promises_by(promise_call::caller(node.downgrade()));
        let controller = self.clone().controller();
        let (waker, relay) =
            (node.downgrade(), GridRelay { node: node.downgrade(), messages: Arc::downgrade(controller.messages()) });
        let wake = move || waker.upgrade().iter().for_each(Node::wake_agents);
        controller.open(Box::new(wake), Box::new(relay));
        Box::new(controller)
    }

    fn close(&self) {
        // Streams between engines have no end of their own that could be waited for.
        self.mailboxes.messages().close();
        if let Some(replication_streams) = &self.replication_streams {
            replication_streams.close();
        }
    }
}

fn register_follow<R: Runtime>(
    replication_streams: Option<Arc<ReplicationStreams>>,
    node: &WeakNode<R>,
    handlers: Handlers,
) -> Result<Handlers, RegisteredTwice> {
    let node = node.clone();
    handlers.stream(FOLLOW, move |context, initial, stream| {
        let (node, replication_streams) = (node.upgrade(), replication_streams.clone());
        async move {
            let (node, replication_streams) = node.zip(replication_streams).ok_or_else(stopped)?;
            // A server that was forgotten while it was away may still know where its primary is.
            if !node.is_met(context.caller) {
                return Err(no_member());
            }
            let from = node.address_of(context.caller);
            // A stream may outlast everything else that its server does.
            drop(node);
            replication_streams.take(&from, &initial, stream).await
        }
    })
}
