//! For tests: counters that start near their wrap. Not part of the interface.

use super::Endpoint;
use super::api::find;
use crate::ids::{ConnectionHandle, Msn, ReceiveIndex, StreamId};
use crate::storage::Storage;
use crate::stream;

impl<S: Storage> Endpoint<S> {
    /// Gives the next connection this nonce, from which its CSNs and PSNs start.
    #[doc(hidden)]
    pub fn use_nonce(&mut self, nonce: u64) {
        self.state.next_nonce = Some(nonce);
    }

    /// Has a stream on which nothing happened yet go on as after this many messages and receives. Both ends must do
    /// so alike. Returns whether there is such a stream.
    #[doc(hidden)]
    pub fn start_counters_at(
        &mut self,
        connection: ConnectionHandle,
        stream: StreamId,
        messages: u32,
        receives: u32,
    ) -> bool {
        let Some(mut view) = self.view() else { return false };
        let Some(slot) = find(&view, connection) else { return false };
        let Some(at) = stream::find_or_open(&mut view, slot, stream) else { return false };
        let credits = view.connections.at(slot).terms.initial_credits;
        let entry = view.streams.at_mut(at);
        let (msn, index) = (Msn::new(messages), ReceiveIndex::new(receives));
        entry.requester.start_at(msn, index, credits);
        entry.responder.start_at(msn, index);
        true
    }
}
