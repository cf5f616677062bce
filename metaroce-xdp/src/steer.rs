//! Several endpoints behind one address and port, one for each queue of an interface.
//!
//! Which queue a packet arrives on is the device's choice, by a hash over addresses and ports; which endpoint it is for stands
//! in its connection id, whose highest bits say so ([`IdPrefix`]). A packet that arrives elsewhere is copied over to the
//! endpoint whose it is, through a bounded queue; where that is full it is lost, as in any other queue. A packet without an
//! id opens a connection, and stays where it arrived.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use metaroce_core::IdPrefix;
use metaroce_core::time::Instant;
use metaroce_core::wire::Base;
use metaroce_mio::Host;
use metaroce_mio::sys::Received;

/// Counters of what arrived on another endpoint's queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SteeringStats {
    /// Datagrams that arrived here for another endpoint, and were handed over.
    pub handed_over: u64,
    /// Datagrams that arrived elsewhere for this endpoint.
    pub taken_over: u64,
    /// Datagrams lost since the other endpoint's queue was full.
    pub lost: u64,
}

/// One endpoint's part.
#[derive(Debug)]
pub(crate) struct Steering {
    prefix: IdPrefix,
    members: Vec<Member>,
    inbox: Receiver<Steered>,
    waiting: Arc<AtomicUsize>,
    /// Buffers of ours that the others are done with.
    returned: Receiver<Vec<u8>>,
    stats: SteeringStats,
}

/// How to reach an endpoint.
#[derive(Clone, Debug)]
struct Member {
    inbox: SyncSender<Steered>,
    waiting: Arc<AtomicUsize>,
    returns: SyncSender<Vec<u8>>,
    waker: Arc<mio::Waker>,
    /// It was given something since it was last woken.
    to_wake: bool,
}

/// A datagram on its way to another endpoint.
#[derive(Debug)]
struct Steered {
    plane: usize,
    message: Received,
    bytes: Vec<u8>,
    /// Whose buffer it is.
    home: usize,
}

impl Steering {
    /// One part for each endpoint, given what wakes them; 1 to 64.
    pub(crate) fn join(wakers: &[Arc<mio::Waker>]) -> Vec<Self> {
        let mut members = Vec::new();
        let mut ends = Vec::new();
        for waker in wakers {
            let (inbox, taken) = sync_channel(INBOX);
            let (returns, returned) = sync_channel(INBOX);
            let waiting = Arc::new(AtomicUsize::new(0));
            ends.push((taken, returned, Arc::clone(&waiting)));
            members.push(Member { inbox, waiting, returns, waker: Arc::clone(waker), to_wake: false });
        }
        let parts = ends.into_iter().enumerate().map(|(index, (inbox, returned, waiting))| Self {
            prefix: prefix(index, wakers.len()),
            members: members.clone(),
            inbox,
            waiting,
            returned,
            stats: SteeringStats::default(),
        });
        parts.collect()
    }

    /// What the connection ids of this endpoint begin with.
    pub(crate) fn prefix(&self) -> IdPrefix {
        self.prefix
    }

    /// What happened so far.
    pub(crate) fn stats(&self) -> SteeringStats {
        self.stats
    }

    /// Whether something waits for this endpoint.
    pub(crate) fn has_input(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    /// The member that a datagram is for, if that is another one.
    fn other(&self, bytes: &[u8]) -> Option<usize> {
        let (base, _) = Base::parse(bytes).ok()?;
        let id = base.connection.0;
        let value = self.prefix.value_in(id);
        let other = id != 0 && value != u32::from(self.prefix.value) && (value as usize) < self.members.len();
        other.then_some(value as usize)
    }

    /// Hands a datagram over if it is another endpoint's; says whether it was.
    fn hand_over(&mut self, plane: usize, message: &Received, bytes: &[u8]) -> bool {
        let Some(other) = self.other(bytes) else { return false };
        let Some(member) = self.members.get_mut(other) else { return false };
        let mut copy = self.returned.try_recv().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(bytes);
        let home = usize::from(self.prefix.value);
        // Counted first, so that the count is never below what is there.
        member.waiting.fetch_add(1, Ordering::AcqRel);
        match member.inbox.try_send(Steered { plane, message: *message, bytes: copy, home }) {
            Ok(()) => {
                member.to_wake = true;
                self.stats.handed_over += 1;
            }
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                member.waiting.fetch_sub(1, Ordering::AcqRel);
                self.stats.lost += 1;
            }
        }
        true
    }

    /// Hands what waits for this endpoint to the core, at most `limit` datagrams.
    pub(crate) fn take_over(&mut self, now: Instant, limit: usize, host: &mut Host) -> usize {
        let mut datagrams = 0;
        while datagrams < limit {
            let Ok(steered) = self.inbox.try_recv() else { break };
            self.waiting.fetch_sub(1, Ordering::AcqRel);
            datagrams += host.hand_in(now, steered.plane, &steered.message, &steered.bytes);
            self.stats.taken_over += 1;
            if let Some(member) = self.members.get(steered.home) {
                // Full means that its owner has enough of them.
                let _ = member.returns.try_send(steered.bytes);
            }
        }
        datagrams
    }

    /// Wakes those that were given something.
    pub(crate) fn wake_others(&mut self) {
        for member in &mut self.members {
            if std::mem::take(&mut member.to_wake) {
                // It is gone, or it will wake by itself.
                let _ = member.waker.wake();
            }
        }
    }
}

/// Takes datagrams in, for this endpoint or for another.
pub(crate) struct Inlet<'a> {
    pub(crate) now: Instant,
    pub(crate) plane: usize,
    pub(crate) host: &'a mut Host,
    pub(crate) steering: Option<&'a mut Steering>,
}

impl Inlet<'_> {
    /// Hands a datagram to the endpoint whose it is; returns how many datagrams there were.
    pub(crate) fn hand_in(&mut self, message: &Received, bytes: &[u8]) -> usize {
        if let Some(steering) = &mut self.steering
            && steering.hand_over(self.plane, message, bytes)
        {
            return 1;
        }
        self.host.hand_in(self.now, self.plane, message, bytes)
    }
}

/// The prefix of one of `count` endpoints.
pub(crate) fn prefix(index: usize, count: usize) -> IdPrefix {
    let bits = count.max(1).next_power_of_two().trailing_zeros();
    IdPrefix { bits: u8::try_from(bits).unwrap_or(u8::MAX), value: u8::try_from(index).unwrap_or(u8::MAX) }
}

/// Endpoints at most: as many as a prefix can tell apart.
pub(crate) const MEMBERS_MAX: usize = 64;

/// Datagrams that may wait for an endpoint.
const INBOX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_endpoint_has_a_prefix_of_its_own() {
        for count in 1..=MEMBERS_MAX {
            let mut seen = std::collections::BTreeSet::new();
            for index in 0..count {
                let prefix = prefix(index, count);
                assert!(prefix.bits <= 6 && u32::from(prefix.value) < 1 << prefix.bits);
                assert_eq!(prefix.value_in(prefix.put_into(0x1234_5678)) as usize, index);
                seen.insert(prefix.put_into(0));
            }
            assert_eq!(seen.len(), count);
        }
    }
}
