//! Requests that have no answer yet, in both directions.

use rmcp::RoleServer;
use rmcp::model::{
    CancelledNotificationParam, ClientNotification, ClientRequest, JsonRpcMessage, RequestId,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// What remains after the end of the input.
#[derive(Debug, PartialEq)]
pub enum Left {
    /// A question that was sent to the client.
    Question(RequestId),
    Nothing,
}

#[derive(Debug, Default)]
struct Open {
    /// Requests of the client.
    theirs: HashSet<RequestId>,
    /// Questions to the client.
    ours: HashSet<RequestId>,
}

/// Filled by the transport as messages pass.
#[derive(Debug, Default)]
pub struct Unanswered {
    open: Mutex<Open>,
    changed: Notify,
}

impl Unanswered {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn received(&self, message: &RxJsonRpcMessage<RoleServer>) {
        let mut open = self.open();
        match message {
            // Answered only when the client cancels it.
            JsonRpcMessage::Request(asked)
                if matches!(asked.request, ClientRequest::SubscriptionsListenRequest(_)) => {}
            JsonRpcMessage::Request(asked) => {
                open.theirs.insert(asked.id.clone());
            }
            JsonRpcMessage::Response(answer) => {
                open.ours.remove(&answer.id);
            }
            JsonRpcMessage::Error(error) => {
                if let Some(id) = &error.id {
                    open.ours.remove(id);
                }
            }
            JsonRpcMessage::Notification(told) => {
                if let Some(id) = cancelled(&told.notification) {
                    // What was cancelled is not answered.
                    open.theirs.remove(id);
                }
            }
        }
    }

    pub fn sending(&self, message: &TxJsonRpcMessage<RoleServer>) {
        if let JsonRpcMessage::Request(asked) = message {
            self.open().ours.insert(asked.id.clone());
            self.changed.notify_waiters();
        }
    }

    /// After a message was written, or could not be.
    pub fn sent(&self, message: &TxJsonRpcMessage<RoleServer>) {
        let id = match message {
            JsonRpcMessage::Response(answer) => &answer.id,
            JsonRpcMessage::Error(error) => match &error.id {
                Some(id) => id,
                None => return,
            },
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => return,
        };
        self.open().theirs.remove(id);
        self.changed.notify_waiters();
    }

    /// Waits until all requests of the client are answered, or something was asked of it.
    pub async fn left(&self) -> Left {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // What changes after the look below must not be missed.
            changed.as_mut().enable();
            if let Some(left) = self.look() {
                return left;
            }
            changed.await;
        }
    }

    fn look(&self) -> Option<Left> {
        let mut open = self.open();
        if let Some(id) = open.ours.iter().next().cloned() {
            open.ours.remove(&id);
            return Some(Left::Question(id));
        }
        open.theirs.is_empty().then_some(Left::Nothing)
    }
}

fn cancelled(notification: &ClientNotification) -> Option<&RequestId> {
    let ClientNotification::CancelledNotification(cancelled) = notification else {
        return None;
    };
    let CancelledNotificationParam { request_id, .. } = &cancelled.params;
    request_id.as_ref()
}
