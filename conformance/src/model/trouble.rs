//! Trouble that is not the links': hosts and paths that are silent for a while, and requests that must fail.

use std::collections::BTreeMap;

use metaroce_core::wire::{Base, PacketType};
use metaroce_core::{
    AtomicOperation, CompletionKind, Operation, RegionKey, RemoteAddress, Status, Storage, StreamId,
    WorkRequest,
};

use super::Player;
use super::flows::pick;
use super::memory::word_spot;
use super::oracle::{End, Expected, Posted};

/// The streams on which requests fail: for a key that was taken away, and for other reasons.
pub(super) const FAILING_STREAMS: [StreamId; 2] = [StreamId(40), StreamId(41)];
/// The request that fails; the next number is flushed, and one more is a receive.
const FAILING_ID: u64 = 1 << 32;

impl<S: Storage> Player<'_, S> {
    /// Before a step is posted: an outage begins, once in some programs, or ends. What one host sends is lost, or what all
    /// others send, on all paths or on one.
    pub(super) fn before_step(&mut self, step: u64) {
        let now = self.net.now();
        if self.silent_until.is_some_and(|until| until <= now) {
            self.end_outage();
        }
        if self.outage_at != Some(step) || self.net.filter.is_some() {
            return;
        }
        let host = pick(&mut self.trouble, self.net.hosts.len());
        let sends = self.trouble.chance(500_000);
        let path = self.trouble.chance(500_000).then(|| self.trouble.below(2));
        self.silent_until = Some(now.after(1 << (18 + self.trouble.below(8))));
        self.net.filter = Some(Box::new(move |from, transmit| {
            let on_path = path.is_none_or(|path| {
                Base::parse(transmit.header())
                    .is_ok_and(|(base, _)| base.kind != PacketType::Control && u64::from(base.path.0) == path)
            });
            (from == host) == sends && on_path
        }));
    }

    /// What is left of an outage, then its end.
    pub(super) fn run_outage(&mut self) -> Result<(), String> {
        if let Some(until) = self.silent_until {
            self.run(until.since(self.net.now()), |_| false)?;
            self.end_outage();
        }
        Ok(())
    }

    /// Everybody is heard again.
    pub(super) fn end_outage(&mut self) {
        if self.silent_until.take().is_some() {
            self.net.filter = None;
        }
    }

    /// Some connections get a request that must fail, and one behind it that must be flushed.
    pub(super) fn post_failing(&mut self) -> Result<(), String> {
        for connection in 0..self.handles.len() {
            if self.trouble.chance(300_000) {
                continue;
            }
            let side = pick(&mut self.trouble, 2);
            let peer = self.oracle.host_of(connection, 1 - side);
            let good = self.oracle.memory.remote(word_spot(peer, 0));
            let write = |remote| Operation::Write { remote, immediate: None };
            let beyond = RemoteAddress { address: u64::MAX - self.trouble.below(1 << 40), ..good };
            let (operation, status) = match self.trouble.below(4) {
                0 => {
                    let key = RegionKey(good.key.0 ^ (1 << 31));
                    (write(RemoteAddress { key, ..good }), Status::RemoteAccess)
                }
                1 => (write(beyond), Status::RemoteAccess),
                2 => {
                    let remote = RemoteAddress { address: good.address + 1, ..good };
                    let operation = AtomicOperation::FetchAdd(1);
                    (Operation::Atomic { remote, operation }, Status::RemoteInvalid)
                }
                _ => {
                    self.post_short_receive(connection, side)?;
                    (Operation::Send { immediate: None }, Status::RemoteInvalid)
                }
            };
            let stream = FAILING_STREAMS[1];
            self.post_one(connection, side, stream, FAILING_ID, operation)?;
            // No bytes: what is behind a request that fails may be in place before it fails.
            self.post_one(connection, side, stream, FAILING_ID + 1, write(good))?;
            self.oracle.flow((connection, side, stream.0)).end = Some(End::Failed(status));
        }
        Ok(())
    }

    /// A key that a message took away is dead: whoever uses it is refused. One for each connection.
    pub(super) fn use_dead_keys(&mut self) -> Result<(), String> {
        let mut dead = BTreeMap::new();
        for ((connection, side, _), window) in &self.oracle.windows {
            if let Some(key) = window.dead {
                dead.entry(*connection).or_insert((*side, key));
            }
        }
        for (connection, (side, key)) in dead {
            let remote = RemoteAddress { key, address: 0 };
            let write = Operation::Write { remote, immediate: None };
            let stream = FAILING_STREAMS[0];
            self.post_one(connection, side, stream, FAILING_ID, write)?;
            let flow = self.oracle.flow((connection, side, stream.0));
            flow.end = Some(End::Failed(Status::RemoteAccess));
        }
        Ok(())
    }

    /// A receive of 4 bytes at the other side, for a SEND of 16.
    fn post_short_receive(&mut self, connection: usize, side: usize) -> Result<(), String> {
        let stream = FAILING_STREAMS[1];
        let peer = self.oracle.host_of(connection, 1 - side);
        let spots = self.oracle.memory.scatter(peer, 4, 1);
        let segments = self.oracle.memory.segments(&spots);
        let handle = self.handles.get(connection).and_then(|sides| *sides.get(1 - side)?);
        let host = self.net.hosts.get_mut(peer).ok_or("no such host")?;
        let posted =
            host.endpoint.post_recv(handle.ok_or("no such connection")?, stream, FAILING_ID + 2, &segments);
        posted.map_err(|error| format!("a receive that is too short: {error}"))?;
        let receive = Posted { id: FAILING_ID + 2, spots, entry: None, used: false };
        self.oracle.flow((connection, side, stream.0)).receives.push(receive);
        Ok(())
    }

    fn post_one(
        &mut self,
        connection: usize,
        side: usize,
        stream: StreamId,
        id: u64,
        operation: Operation,
    ) -> Result<(), String> {
        let now = self.net.now();
        let number = self.oracle.host_of(connection, side);
        let handle = self.handles.get(connection).and_then(|sides| *sides.get(side)?);
        let result = self.oracle.memory.scatter(number, 8, 1);
        let (inline, segments, kind) = match operation {
            Operation::Atomic { .. } => {
                (&[][..], self.oracle.memory.segments(&result), CompletionKind::Atomic)
            }
            Operation::Send { .. } => (&[0x55; 16][..], Vec::new(), CompletionKind::Send),
            _ if id == FAILING_ID => (&[0x55; 16][..], Vec::new(), CompletionKind::Write),
            _ => (&[][..], Vec::new(), CompletionKind::Write),
        };
        let host = self.net.hosts.get_mut(number).ok_or("no such host")?;
        let request = WorkRequest { inline, ..WorkRequest::new(id, operation, &segments) };
        let posted = host.endpoint.post(now, handle.ok_or("no such connection")?, stream, request);
        posted.map_err(|error| format!("a request that must fail: {error}"))?;
        let expected = Expected::new(id, kind, 16);
        self.oracle.flow((connection, side, stream.0)).requests.push_back((expected, false));
        Ok(())
    }
}
