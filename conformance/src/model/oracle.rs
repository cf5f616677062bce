//! What a program must lead to: the bytes of all memory, and every completion in its order.

use std::collections::{BTreeMap, VecDeque};

use metaroce_core::{
    Access, AtomicOperation, CompletionKind, Operation, RegionId, RegionKey, RemoteAddress, Segment, Status,
    Storage, TagEntry, request::INLINE_BYTES_MAX,
};

use super::memory::{GAP, MemoryModel, Spot, TAIL, WORDS, word_spot};
use super::program::{Place, Program, Step, Style, Work};
use crate::Network;

/// Bytes of a window.
const WINDOW_BYTES: usize = 4 << 10;

/// Names a stream of one side of a connection.
pub(super) type FlowKey = (usize, usize, u16);

/// What is to be posted.
#[derive(Clone, Debug)]
pub(super) struct Prepared {
    pub(super) segments: Vec<Segment>,
    pub(super) inline: Vec<u8>,
    /// `None` for what is no request of a stream.
    pub(super) operation: Option<Operation>,
}

/// The expected state of a whole run.
pub(super) struct Oracle {
    pub(super) memory: MemoryModel,
    pub(super) flows: BTreeMap<FlowKey, Flow>,
    pub(super) windows: BTreeMap<FlowKey, Window>,
    /// Receives of the shared queue of each host, and of its queue for datagrams.
    pub(super) shared: Vec<Vec<Posted>>,
    pub(super) datagram_receives: Vec<Vec<Posted>>,
    pub(super) datagrams: BTreeMap<u64, Datagram>,
    connections: Vec<[usize; 2]>,
    pub(super) styles: Vec<Style>,
    doomed: Option<(usize, u16)>,
    /// Whatever is there is right: results of atomics on the common words, and what a reset cut short.
    pub(super) free: Vec<Spot>,
    /// Connections are being closed.
    pub(super) closing: bool,
}

/// What is expected of one side of a stream, and of the receives of the other side that it uses.
#[derive(Default)]
pub(super) struct Flow {
    /// Whether it completes silently.
    pub(super) requests: VecDeque<(Expected, bool)>,
    pub(super) messages: Vec<(Expected, Option<Vec<u8>>)>,
    pub(super) receives: Vec<Posted>,
    pub(super) received: usize,
    /// How it may end early.
    pub(super) end: Option<End>,
    /// What each request of a stream that is to be reset writes.
    pub(super) effects: BTreeMap<u64, Vec<Spot>>,
    /// The newest WRITE outside of windows.
    written: Option<Spot>,
    /// All WRITEs, and how many are known to be placed.
    pub(super) writes: Vec<Spot>,
    pub(super) placed: usize,
    /// What may be seen in memory only after all that came before.
    pub(super) milestones: Vec<Milestone>,
}

/// How a stream may end before its connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// A side resets it.
    Reset,
    /// Its first request fails, with this status, and others are flushed.
    Failed(Status),
}

/// Something that a program that polls memory could see.
#[derive(Clone, Copy, Debug)]
pub(super) struct Milestone {
    pub(super) spot: Spot,
    /// The signal word with at least this value; or the byte of `spot` is no more 0.
    pub(super) at_least: u64,
    /// WRITEs of the flow that must be there by then.
    pub(super) writes: usize,
    /// Messages with receives that must have completed by then.
    pub(super) messages: usize,
}

/// A posted receive.
pub(super) struct Posted {
    pub(super) id: u64,
    pub(super) spots: Vec<Spot>,
    pub(super) entry: Option<TagEntry>,
    pub(super) used: bool,
}

/// A region whose key comes and goes.
pub(super) struct Window {
    region: usize,
    pub(super) id: RegionId,
    pub(super) key: Option<RegionKey>,
    /// The newest key that is no more.
    pub(super) dead: Option<RegionKey>,
}

/// A datagram, and what became of it.
pub(super) struct Datagram {
    pub(super) from: (usize, usize),
    pub(super) right: bool,
    pub(super) bytes: Vec<u8>,
    pub(super) immediate: Option<u32>,
    pub(super) sent: bool,
    pub(super) received: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Expected {
    pub(super) id: u64,
    pub(super) kind: CompletionKind,
    pub(super) bytes: u32,
    pub(super) immediate: Option<u32>,
    pub(super) solicited: bool,
    pub(super) invalidated: Option<RegionKey>,
    pub(super) tag: Option<u64>,
}

impl Oracle {
    pub(super) fn new<S: Storage>(program: &Program, net: &mut Network<S>, seed: u64) -> Self {
        let mut memory = MemoryModel::new(net, seed, room(program));
        let mut windows = BTreeMap::new();
        for step in &program.steps {
            let uses =
                matches!(step.work, Work::SendInvalidate { .. } | Work::Write { place: Place::Window, .. });
            let key = (step.connection, step.side, step.stream);
            if !uses || windows.contains_key(&key) {
                continue;
            }
            let sides = program.connections.get(step.connection);
            let host = sides.and_then(|sides| sides.get(1 - step.side)).copied().unwrap_or(0);
            let region = memory.register(net, host, vec![0; WINDOW_BYTES], Access::ALL);
            if let Some(registered) = memory.registered(host, region) {
                let window = Window { region, id: registered.id, key: Some(registered.key), dead: None };
                windows.insert(key, window);
            }
        }
        Self {
            memory,
            flows: BTreeMap::new(),
            windows,
            shared: net.hosts.iter().map(|_| Vec::new()).collect(),
            datagram_receives: net.hosts.iter().map(|_| Vec::new()).collect(),
            datagrams: BTreeMap::new(),
            connections: program.connections.clone(),
            styles: program.styles.clone(),
            doomed: program.doomed,
            free: Vec::new(),
            closing: false,
        }
    }

    /// The host of a side of a connection.
    pub(super) fn host_of(&self, connection: usize, side: usize) -> usize {
        self.connections.get(connection).and_then(|sides| sides.get(side)).copied().unwrap_or(0)
    }

    /// Works out what a step posts, and notes what it must lead to. `id` names it in its completion.
    pub(super) fn prepare(&mut self, step: &Step, id: u64) -> Prepared {
        if step.work.is_request() {
            return self.prepare_request(step, id);
        }
        let own = self.host_of(step.connection, step.side);
        let from = (step.connection, 1 - step.side, step.stream);
        let mut spots = Vec::new();
        let mut segments = Vec::new();
        let mut posted = |memory: &mut MemoryModel, capacity, entry| {
            spots = memory.scatter(own, capacity, step.segments);
            Posted { id, spots: spots.clone(), entry, used: false }
        };
        match step.work {
            Work::Receive { capacity } => {
                let receive = posted(&mut self.memory, capacity, None);
                self.flow(from).receives.push(receive);
            }
            Work::ReceiveTagged { capacity, entry } => {
                let receive = posted(&mut self.memory, capacity, Some(entry));
                self.flow(from).receives.push(receive);
            }
            Work::ReceiveShared { capacity } => {
                let receive = posted(&mut self.memory, capacity, None);
                if let Some(queue) = self.shared.get_mut(own) {
                    queue.push(receive);
                }
            }
            Work::ReceiveDatagram { capacity } => {
                let receive = posted(&mut self.memory, capacity, None);
                if let Some(queue) = self.datagram_receives.get_mut(own) {
                    queue.push(receive);
                }
            }
            Work::Datagram { length, immediate, right } => {
                let (parts, bytes) = self.memory.gather(own, length, step.segments);
                segments = parts;
                let from = (step.connection, step.side);
                let right = right == [true, true];
                let datagram = Datagram { from, right, bytes, immediate, sent: false, received: false };
                self.datagrams.insert(id, datagram);
            }
            _ => {}
        }
        segments.extend(self.memory.segments(&spots));
        Prepared { segments, inline: Vec::new(), operation: None }
    }

    fn prepare_request(&mut self, step: &Step, id: u64) -> Prepared {
        let own = self.host_of(step.connection, step.side);
        let peer = self.host_of(step.connection, 1 - step.side);
        let key = (step.connection, step.side, step.stream);
        let mut prepared = Prepared { segments: Vec::new(), inline: Vec::new(), operation: None };
        let (operation, kind, bytes, effects) = match step.work {
            Work::Send { length, immediate } => {
                let bytes = self.payload(step, own, length, &mut prepared);
                self.message(step, id, bytes, |_| {}, immediate);
                (Operation::Send { immediate }, CompletionKind::Send, length, Vec::new())
            }
            Work::SendInvalidate { length } => {
                let bytes = self.payload(step, own, length, &mut prepared);
                let taken = self.windows.get_mut(&key).and_then(|window| window.key.take());
                self.message(step, id, bytes, |message| message.invalidated = taken, None);
                let operation = match taken {
                    Some(key) => Operation::SendInvalidate { key },
                    None => Operation::Send { immediate: None },
                };
                (operation, CompletionKind::Send, length, Vec::new())
            }
            Work::SendTagged { length, bits, immediate } => {
                let bytes = self.payload(step, own, length, &mut prepared);
                self.message(step, id, bytes, |message| message.tag = Some(bits), immediate);
                (Operation::SendTagged { bits, immediate }, CompletionKind::Send, length, Vec::new())
            }
            Work::Write { length, immediate, place } => {
                let bytes = self.payload(step, own, length, &mut prepared);
                let (spot, remote) = self.destination(key, peer, length, place);
                self.memory.expect(&[spot], &bytes);
                if place == Place::Tail && bytes.last().is_some_and(|last| *last != 0) {
                    let last = Spot { offset: spot.offset + spot.length - 1, length: 1, ..spot };
                    let flow = self.flow(key);
                    let (writes, messages) = (flow.writes.len() + 1, flow.messages.len());
                    flow.milestones.push(Milestone { spot: last, at_least: 1, writes, messages });
                }
                self.flow(key).writes.push(spot);
                if immediate.is_some() {
                    let kind = CompletionKind::ReceiveWrite;
                    self.message(step, id, bytes, |message| message.kind = kind, immediate);
                }
                (Operation::Write { remote, immediate }, CompletionKind::Write, length, vec![spot])
            }
            Work::WriteSignal { length, addend } => {
                let bytes = self.payload(step, own, length, &mut prepared);
                let (spot, remote) = self.destination(key, peer, length, Place::Plain);
                self.memory.expect(&[spot], &bytes);
                let word = word_spot(peer, WORDS + word_of(key));
                let before = self.memory.apply(peer, WORDS + word_of(key), AtomicOperation::FetchAdd(addend));
                let flow = self.flow(key);
                flow.writes.push(spot);
                let (writes, messages) = (flow.writes.len(), flow.messages.len());
                let at_least = before + addend;
                flow.milestones.push(Milestone { spot: word, at_least, writes, messages });
                let signal = self.memory.remote(word);
                (Operation::WriteSignal { remote, signal, addend }, CompletionKind::Write, length, vec![spot])
            }
            Work::Read { .. } | Work::ReadBack => {
                let spot = match step.work {
                    Work::Read { length } => self.memory.source(peer, length),
                    _ => self.flow(key).written.unwrap_or_else(|| word_spot(peer, 2 * WORDS)),
                };
                let length = u32::try_from(spot.length).unwrap_or(0);
                let spots = self.memory.scatter(own, length, step.segments);
                let bytes = self.memory.bytes(spot).to_vec();
                self.memory.expect(&spots, &bytes);
                prepared.segments = self.memory.segments(&spots);
                (Operation::Read { remote: self.memory.remote(spot) }, CompletionKind::Read, length, spots)
            }
            _ => {
                let (operation, word) = match step.work {
                    Work::Atomic(operation) => (operation, word_of(key)),
                    Work::Count(add) => (AtomicOperation::FetchAdd(add), WORDS - 1),
                    _ => (AtomicOperation::Or(0), 0),
                };
                let old = self.memory.apply(peer, word, operation);
                let result = self.memory.target(own, 8);
                if word == WORDS - 1 {
                    self.free.push(result);
                } else {
                    self.memory.expect(&[result], &old.to_ne_bytes());
                }
                prepared.segments = vec![self.memory.segment(result)];
                let remote = self.memory.remote(word_spot(peer, word));
                (Operation::Atomic { remote, operation }, CompletionKind::Atomic, 8, vec![result])
            }
        };
        let doomed = self.doomed == Some((step.connection, step.stream));
        let flow = self.flow(key);
        if doomed {
            flow.end = Some(End::Reset);
            flow.effects.insert(id, effects);
        }
        flow.requests.push_back((Expected::new(id, kind, bytes), step.unsignalled));
        prepared.operation = Some(operation);
        prepared
    }

    /// The data of a request: inline if it is short and so wanted, otherwise of the host's source.
    fn payload(&mut self, step: &Step, own: usize, length: u32, prepared: &mut Prepared) -> Vec<u8> {
        if step.inline && length as usize <= INLINE_BYTES_MAX {
            prepared.inline = self.memory.inline(length);
            return prepared.inline.clone();
        }
        let (segments, bytes) = self.memory.gather(own, length, step.segments);
        prepared.segments = segments;
        bytes
    }

    /// Notes a message that consumes a receive.
    fn message(
        &mut self,
        step: &Step,
        id: u64,
        bytes: Vec<u8>,
        change: impl FnOnce(&mut Expected),
        immediate: Option<u32>,
    ) {
        let length = u32::try_from(bytes.len()).unwrap_or(0);
        let mut message = Expected::new(id, CompletionKind::Receive, length);
        message.immediate = immediate;
        message.solicited = step.solicited;
        change(&mut message);
        let data = (message.kind == CompletionKind::Receive).then_some(bytes);
        self.flow((step.connection, step.side, step.stream)).messages.push((message, data));
    }

    /// Where a WRITE goes. Without a key or room in the window: to the plain destinations.
    fn destination(&mut self, key: FlowKey, peer: usize, length: u32, place: Place) -> (Spot, RemoteAddress) {
        if place == Place::Window
            && let Some(Window { region, key: Some(key), .. }) = self.windows.get(&key)
            && let Some(spot) = self.memory.allocate(peer, *region, length)
        {
            return (spot, RemoteAddress { key: *key, address: spot.offset as u64 });
        }
        let tail = if place == Place::Tail { self.memory.allocate(peer, TAIL, length) } else { None };
        let spot = tail.unwrap_or_else(|| self.memory.target(peer, length));
        self.flow(key).written = Some(spot);
        (spot, self.memory.remote(spot))
    }

    pub(super) fn flow(&mut self, key: FlowKey) -> &mut Flow {
        self.flows.entry(key).or_default()
    }
}

impl Expected {
    pub(super) const fn new(id: u64, kind: CompletionKind, bytes: u32) -> Self {
        Self { id, kind, bytes, immediate: None, solicited: false, invalidated: None, tag: None }
    }
}

fn word_of((connection, side, stream): FlowKey) -> usize {
    ((connection * 2 + side) * 8 + usize::from(stream)) % (WORDS - 1)
}

/// Bytes that the destinations of a program take on one host at most.
fn room(program: &Program) -> usize {
    let bytes = |step: &Step| match step.work {
        Work::Write { length, .. } | Work::WriteSignal { length, .. } | Work::Read { length } => {
            length as usize
        }
        Work::Receive { capacity }
        | Work::ReceiveTagged { capacity, .. }
        | Work::ReceiveShared { capacity }
        | Work::ReceiveDatagram { capacity } => capacity as usize,
        Work::ReadBack => 64 << 10,
        _ => 8,
    };
    // Besides, the results of requests that fail.
    program.steps.iter().map(|step| bytes(step) + 4 * (GAP + 8)).sum::<usize>() + 1024
}
