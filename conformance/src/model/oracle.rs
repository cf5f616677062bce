//! What a program must lead to: the bytes of all memory, and every completion in its order.

use std::collections::{BTreeMap, VecDeque};

use metaroce_core::{
    AtomicOperation, Completion, CompletionKind, Operation, RegisteredRegion, RemoteAddress, Segment, Status,
    Storage,
};

use super::program::{Program, Step, Work};
use crate::{Network, Random};

/// Bytes of the region that a host sends from and that peers read; it never changes.
const SOURCE_BYTES: u32 = 256 << 10;
/// Bytes kept free after each destination, to see what spills over.
const GAP: usize = 3;
/// Words of a host: one for each connection, side and stream, and a last one that all use.
const WORDS: usize = 64;

/// Names a stream of one side of a connection.
pub(super) type FlowKey = (usize, usize, u16);

/// A request or receive as it is to be posted.
#[derive(Clone, Debug)]
pub(super) struct Prepared {
    pub(super) segments: Vec<Segment>,
    /// `None` for a receive.
    pub(super) operation: Option<Operation>,
}

/// The expected state of a whole run.
pub(super) struct Oracle {
    hosts: Vec<HostModel>,
    flows: BTreeMap<FlowKey, Flow>,
    connections: Vec<[usize; 2]>,
    random: Random,
    /// Results of atomics on the common words: any order of them is right.
    free_results: Vec<(usize, usize)>,
}

/// The memory of one host, as it must become.
struct HostModel {
    source: RegisteredRegion,
    source_bytes: Vec<u8>,
    target: RegisteredRegion,
    target_bytes: Vec<u8>,
    used: usize,
    words: RegisteredRegion,
    word_values: Vec<u64>,
}

/// What is expected of one side of a stream, and of the receives of the other side that it uses.
#[derive(Default)]
struct Flow {
    requests: VecDeque<Expected>,
    messages: Vec<(Expected, Option<Vec<u8>>)>,
    receives: Vec<(u64, Vec<Segment>)>,
    received: usize,
    /// Address and bytes of the newest WRITE.
    written: (usize, Vec<u8>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Expected {
    id: u64,
    kind: CompletionKind,
    bytes: u32,
    immediate: Option<u32>,
}

impl Oracle {
    pub(super) fn new<S: Storage>(program: &Program, net: &mut Network<S>, seed: u64) -> Self {
        let mut random = Random::new(!seed);
        let room = room(program);
        let mut hosts = Vec::new();
        for host in &mut net.hosts {
            let source_bytes: Vec<u8> =
                (0..SOURCE_BYTES / 8).flat_map(|_| random.next_u64().to_le_bytes()).collect();
            hosts.push(HostModel {
                source: host.register(source_bytes.clone()),
                source_bytes,
                target: host.register(vec![0; room]),
                target_bytes: vec![0; room],
                used: 0,
                words: host.register(vec![0; WORDS * 8]),
                word_values: vec![0; WORDS],
            });
        }
        let connections = program.connections.clone();
        Self { hosts, flows: BTreeMap::new(), connections, random, free_results: Vec::new() }
    }

    /// The host of a side of a connection.
    pub(super) fn host_of(&self, connection: usize, side: usize) -> usize {
        self.connections.get(connection).and_then(|sides| sides.get(side)).copied().unwrap_or(0)
    }

    /// Works out what a step posts, and notes what it must lead to. `id` names it in its completion.
    pub(super) fn prepare(&mut self, step: &Step, id: u64) -> Prepared {
        let own = self.host_of(step.connection, step.side);
        let peer = self.host_of(step.connection, 1 - step.side);
        let key = (step.connection, step.side, step.stream);
        let expected = |kind, bytes| Expected { id, kind, bytes, immediate: None };
        let (segments, operation, request) = match step.work {
            Work::Send { length, immediate } => {
                let (segments, bytes) = self.gather(own, length, step.segments);
                let message = Expected { immediate, ..expected(CompletionKind::Receive, length) };
                self.flow(key).messages.push((message, Some(bytes)));
                (segments, Operation::Send { immediate }, expected(CompletionKind::Send, length))
            }
            Work::Write { length, immediate } => {
                let (segments, bytes) = self.gather(own, length, step.segments);
                let address = self.allocate(peer, length);
                self.expect_bytes(peer, address, &bytes);
                if immediate.is_some() {
                    let message = Expected { immediate, ..expected(CompletionKind::ReceiveWrite, length) };
                    self.flow(key).messages.push((message, None));
                }
                self.flow(key).written = (address, bytes);
                let remote = self.remote(peer, |host| host.target, address);
                (segments, Operation::Write { remote, immediate }, expected(CompletionKind::Write, length))
            }
            Work::Read { length } => {
                let offset = self.source_offset(length);
                let bytes = self.source(peer, offset, length);
                let remote = self.remote(peer, |host| host.source, offset);
                let segments = self.scatter(own, length, step.segments);
                self.expect_scattered(own, &segments, &bytes);
                (segments, Operation::Read { remote }, expected(CompletionKind::Read, length))
            }
            Work::ReadBack => {
                let (address, bytes) = self.flow(key).written.clone();
                let length = u32::try_from(bytes.len()).unwrap_or(0);
                let remote = self.remote(peer, |host| host.target, address);
                let segments = self.scatter(own, length, step.segments);
                self.expect_scattered(own, &segments, &bytes);
                (segments, Operation::Read { remote }, expected(CompletionKind::Read, length))
            }
            Work::Atomic(_) | Work::Count(_) => {
                let (operation, word) = match step.work {
                    Work::Atomic(operation) => (operation, word_of(key)),
                    Work::Count(add) => (AtomicOperation::FetchAdd(add), WORDS - 1),
                    _ => (AtomicOperation::Or(0), 0),
                };
                let old = self.apply(peer, word, operation);
                let result = self.allocate(own, 8);
                if word == WORDS - 1 {
                    self.free_results.push((own, result));
                } else {
                    self.expect_bytes(own, result, &old.to_ne_bytes());
                }
                let remote = self.remote(peer, |host| host.words, word * 8);
                let segments = vec![self.segment(own, result, 8)];
                (segments, Operation::Atomic { remote, operation }, expected(CompletionKind::Atomic, 8))
            }
            Work::Receive { capacity } => {
                let segments = self.scatter(own, capacity, step.segments);
                let from = (step.connection, 1 - step.side, step.stream);
                self.flow(from).receives.push((id, segments.clone()));
                return Prepared { segments, operation: None };
            }
        };
        if !step.unsignalled {
            self.flow(key).requests.push_back(request);
        }
        Prepared { segments, operation: Some(operation) }
    }

    /// Checks a completion against what is expected next on its stream.
    pub(super) fn check(&mut self, connection: usize, side: usize, done: &Completion) -> Result<(), String> {
        let seen = Expected { id: done.id, kind: done.kind, bytes: done.bytes, immediate: done.immediate };
        let stream = done.stream.0;
        let receive = matches!(done.kind, CompletionKind::Receive | CompletionKind::ReceiveWrite);
        if !receive {
            let next = self.flow((connection, side, stream)).requests.pop_front();
            if next == Some(seen) && done.status == Status::Success {
                return Ok(());
            }
            return Err(format!("connection {connection} side {side}: {done:?}, expected {next:?}"));
        }
        let flow = self.flow((connection, 1 - side, stream));
        let number = flow.received;
        flow.received += 1;
        let posted = flow.receives.get(number).map(|(id, _)| *id);
        let message = flow.messages.get(number).map(|(message, _)| *message);
        let right = match message {
            Some(message) => {
                done.status == Status::Success && posted.map(|id| Expected { id, ..message }) == Some(seen)
            }
            // More were posted than used.
            None => matches!(done.status, Status::Flushed | Status::PeerClosed) && posted == Some(done.id),
        };
        if right {
            return Ok(());
        }
        Err(format!("connection {connection} side {side}: {done:?}, expected {posted:?} with {message:?}"))
    }

    /// Whether every message has completed at both sides; receives that nothing uses are left.
    pub(super) fn is_complete(&self) -> bool {
        self.flows.values().all(|flow| flow.requests.is_empty() && flow.received >= flow.messages.len())
    }

    /// What is missing, for a person to read.
    pub(super) fn missing(&self) -> String {
        let mut text = String::new();
        for (key, flow) in &self.flows {
            let open = flow.requests.len();
            let (received, messages) = (flow.received, flow.messages.len());
            if open > 0 || received < messages {
                let line = format!("flow {key:?}: {open} requests, {received} of {messages} received; ");
                text.push_str(&line);
            }
        }
        text
    }

    /// Whether receives that nothing used are reported, too.
    pub(super) fn is_flushed(&self) -> bool {
        self.flows.values().all(|flow| flow.received == flow.receives.len())
    }

    /// The memory as it must be when everything is complete.
    pub(super) fn finish<S: Storage>(&mut self, net: &Network<S>) {
        let mut placed = Vec::new();
        for ((connection, side, _), flow) in &self.flows {
            let host = self.host_of(*connection, 1 - side);
            for ((_, bytes), (_, segments)) in flow.messages.iter().zip(&flow.receives) {
                if let Some(bytes) = bytes {
                    placed.push((host, segments.clone(), bytes.clone()));
                }
            }
        }
        for (host, segments, bytes) in placed {
            self.expect_scattered(host, &segments, &bytes);
        }
        for (host, offset) in self.free_results.clone() {
            let bytes: Vec<u8> = match (net.hosts.get(host), self.hosts.get(host)) {
                (Some(real), Some(model)) => {
                    real.memory.bytes(model.target.id).iter().skip(offset).take(8).copied().collect()
                }
                _ => Vec::new(),
            };
            self.expect_bytes(host, offset, &bytes);
        }
    }

    /// Compares all memory.
    pub(super) fn check_memory<S: Storage>(&self, net: &Network<S>) -> Result<(), String> {
        for (number, (real, model)) in net.hosts.iter().zip(&self.hosts).enumerate() {
            let compare = |name: &str, region: RegisteredRegion, want: &[u8]| {
                let bytes = real.memory.bytes(region.id);
                match bytes.iter().zip(want).position(|(is, want)| is != want) {
                    None => Ok(()),
                    Some(at) => Err(format!("host {number}: {name} differs at {at} of {}", want.len())),
                }
            };
            compare("source", model.source, &model.source_bytes)?;
            compare("target", model.target, &model.target_bytes)?;
            let words: Vec<u8> = model.word_values.iter().flat_map(|word| word.to_ne_bytes()).collect();
            compare("words", model.words, &words)?;
        }
        Ok(())
    }

    /// The applications use the memory for something else: whatever still arrives must leave it alone.
    pub(super) fn scribble<S: Storage>(&mut self, net: &mut Network<S>) {
        for (real, model) in net.hosts.iter_mut().zip(&mut self.hosts) {
            for bytes in [real.memory.bytes_mut(model.target.id), &mut model.target_bytes] {
                for byte in bytes {
                    *byte = !*byte;
                }
            }
        }
    }

    fn flow(&mut self, key: FlowKey) -> &mut Flow {
        self.flows.entry(key).or_default()
    }

    fn apply(&mut self, host: usize, word: usize, operation: AtomicOperation) -> u64 {
        let values = self.hosts.get_mut(host).map(|host| &mut host.word_values);
        let Some(value) = values.and_then(|values| values.get_mut(word)) else { return 0 };
        std::mem::replace(value, operation.apply(*value))
    }

    fn remote(
        &self,
        host: usize,
        region: impl Fn(&HostModel) -> RegisteredRegion,
        address: usize,
    ) -> RemoteAddress {
        let key = self.hosts.get(host).map(|host| region(host).key).unwrap_or_default();
        RemoteAddress { key, address: address as u64 }
    }

    fn segment(&self, host: usize, offset: usize, length: u32) -> Segment {
        let region = self.hosts.get(host).map(|host| host.target.id).unwrap_or_default();
        Segment { region, offset: offset as u64, length }
    }

    /// Takes `length` bytes of a host's target region that nothing else uses.
    fn allocate(&mut self, host: usize, length: u32) -> usize {
        let Some(model) = self.hosts.get_mut(host) else { return 0 };
        let start = model.used.next_multiple_of(8);
        model.used = start + length as usize + GAP;
        start
    }

    fn source_offset(&mut self, length: u32) -> usize {
        let room = u64::from(SOURCE_BYTES - length.min(SOURCE_BYTES));
        usize::try_from(self.random.below(room + 1)).unwrap_or(0)
    }

    fn source(&self, host: usize, offset: usize, length: u32) -> Vec<u8> {
        let bytes = self.hosts.get(host).map_or(&[][..], |host| &host.source_bytes);
        bytes.iter().skip(offset).take(length as usize).copied().collect()
    }

    /// Segments of a host's source region, and the bytes that they hold together.
    fn gather(&mut self, host: usize, length: u32, count: u32) -> (Vec<Segment>, Vec<u8>) {
        let region = self.hosts.get(host).map(|host| host.source.id).unwrap_or_default();
        let mut all = Vec::new();
        let mut segments = Vec::new();
        for length in pieces(&mut self.random, length, count) {
            let offset = self.source_offset(length);
            all.extend(self.source(host, offset, length));
            segments.push(Segment { region, offset: offset as u64, length });
        }
        (segments, all)
    }

    /// Segments of a host's target region that nothing else uses.
    fn scatter(&mut self, host: usize, length: u32, count: u32) -> Vec<Segment> {
        let pieces = pieces(&mut self.random, length, count);
        let place = |length| {
            let offset = self.allocate(host, length);
            self.segment(host, offset, length)
        };
        pieces.into_iter().map(place).collect()
    }

    fn expect_bytes(&mut self, host: usize, offset: usize, bytes: &[u8]) {
        let target = self.hosts.get_mut(host).map(|host| &mut host.target_bytes);
        let place = target.and_then(|target| target.get_mut(offset..)?.get_mut(..bytes.len()));
        if let Some(place) = place {
            place.copy_from_slice(bytes);
        }
    }

    fn expect_scattered(&mut self, host: usize, segments: &[Segment], bytes: &[u8]) {
        let mut rest = bytes;
        for segment in segments {
            let (now, later) = rest.split_at(rest.len().min(segment.length as usize));
            self.expect_bytes(host, usize::try_from(segment.offset).unwrap_or(usize::MAX), now);
            rest = later;
        }
    }
}

/// Cuts `length` into `count` pieces, some of them empty.
fn pieces(random: &mut Random, length: u32, count: u32) -> Vec<u32> {
    let mut left = length;
    let mut pieces = Vec::new();
    for number in 1..=count {
        let part = if number == count {
            left
        } else {
            u32::try_from(random.below(u64::from(left) + 1)).unwrap_or(0)
        };
        pieces.push(part);
        left -= part;
    }
    pieces
}

fn word_of((connection, side, stream): FlowKey) -> usize {
    ((connection * 2 + side) * 8 + usize::from(stream)) % (WORDS - 1)
}

/// Bytes that the destinations of a program take on one host at most.
fn room(program: &Program) -> usize {
    let bytes = |step: &Step| match step.work {
        Work::Send { length, .. } | Work::Write { length, .. } | Work::Read { length } => length as usize,
        Work::Receive { capacity } => capacity as usize,
        Work::ReadBack => 64 << 10,
        Work::Atomic(_) | Work::Count(_) => 8,
    };
    program.steps.iter().map(|step| bytes(step) + 4 * (GAP + 8)).sum()
}
