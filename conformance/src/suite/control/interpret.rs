//! Carries out commands on an endpoint of the core, whatever drives it.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use metaroce_core::request::StreamOptions;
use metaroce_core::wire::{Opcode, RejectReason};
use metaroce_core::{
    Access, AtomicOperation, CloseMode, CloseReason, Completion, CompletionKind, Config, ConnectOptions,
    ConnectionHandle, DatagramAddress, DatagramRequest, DropReason, Endpoint, Event, HeapStorage, Instant,
    Limits, Operation, PathId, PathState, ProtectionDomain, QueueId, QueueOptions, RegionId, RegionKey,
    RegisteredRegion, RemoteAddress, Segment, Status, StreamId, TagEntry, WorkRequest,
};

use super::{
    Answer, Command, DeviceEvent, HexBytes, PROTOCOL, Place, Request, Right, Settings, Stretch, Tag,
};

/// What drives the endpoint: sockets, or the suite itself in virtual time.
pub trait Backend {
    /// Name and version of the implementation.
    fn name(&self) -> String;
    /// Where it receives.
    fn address(&self) -> SocketAddr;
    /// Forgets everything and starts anew at the same address.
    ///
    /// # Errors
    /// Why that is not possible.
    fn restart(&mut self, settings: &Settings) -> Result<(), String>;
    /// The endpoint.
    ///
    /// # Errors
    /// If a restart failed, so that there is none.
    fn endpoint(&mut self) -> Result<&mut Endpoint<HeapStorage>, String>;
    /// The time in its terms.
    fn now(&self) -> Instant;
    /// The next event.
    fn poll_event(&mut self) -> Option<Event>;
    /// Registers `length` bytes of zeros.
    ///
    /// # Errors
    /// Why that is not possible.
    fn register(
        &mut self,
        length: u32,
        base: u64,
        access: Access,
        domain: ProtectionDomain,
    ) -> Result<RegisteredRegion, String>;
    /// Ends a registration.
    ///
    /// # Errors
    /// Why that is not possible.
    fn deregister(&mut self, region: RegionId) -> Result<(), String>;
    /// Bytes of a region.
    ///
    /// # Errors
    /// If they pass its end.
    fn read(&self, region: RegionId, offset: u64, length: usize) -> Result<Vec<u8>, String>;
    /// Changes bytes of a region.
    ///
    /// # Errors
    /// If they pass its end.
    fn write(&mut self, region: RegionId, offset: u64, bytes: &[u8]) -> Result<(), String>;
}

impl Settings {
    /// What is not larger than any test needs: tables are made at once, and whoever asks could ask for all memory.
    ///
    /// # Errors
    /// Which is too large.
    fn check(&self) -> Result<(), String> {
        let sizes = [
            ("connections", self.connections, 4096),
            ("streams", self.streams, 65_535),
            ("messages", self.messages, 65_536),
            ("csn-window", self.csn_window, 1 << 21),
            ("planes", self.planes.map(u32::from), 8),
        ];
        match sizes.into_iter().find(|(_, value, most)| value.is_some_and(|value| value > *most)) {
            Some((name, _, most)) => Err(format!("{name} is at most {most}")),
            None => Ok(()),
        }
    }

    /// Lays them over a configuration. Where the further planes are is left to the backend.
    pub fn apply(&self, config: &mut Config, limits: &mut Limits) {
        fn set<T: Copy>(to: &mut T, from: Option<T>) {
            if let Some(value) = from {
                *to = value;
            }
        }
        set(&mut limits.connections, self.connections);
        set(&mut limits.streams, self.streams);
        set(&mut limits.messages, self.messages);
        set(&mut limits.csn_window, self.csn_window);
        set(&mut limits.paths_per_connection, self.paths);
        set(&mut config.paths_per_plane, self.paths);
        set(&mut config.message_window, self.message_window);
        set(&mut config.initial_credits, self.initial_credits);
        set(&mut config.reads_granted, self.reads_granted);
        set(&mut config.inbound_rate_kbps, self.inbound_rate_kbps);
        set(&mut config.mtu_bytes, self.mtu_bytes);
        set(&mut config.window_bytes_max, self.window_bytes_max);
        set(&mut config.half_open_per_address, self.half_open_per_address);
        set(&mut config.reorder_tolerance, self.reorder_tolerance);
        set(&mut config.peer_port, self.peer_port);
        set(&mut config.checksum_wanted, self.checksum_wanted);
        set(&mut config.ack_delay_ns_max, self.ack_delay_us.map(|us| u64::from(us) * 1_000));
        set(&mut config.fail_after_ns, self.fail_after_ms.map(|ms| u64::from(ms) * 1_000_000));
        set(&mut config.keepalive_ns, self.keepalive_ms.map(|ms| u64::from(ms) * 1_000_000));
        if self.rnr_retries.is_some() {
            config.rnr_retries = self.rnr_retries;
        }
    }
}

/// The names that the control channel gives to regions, connections and queues.
#[derive(Debug, Default)]
pub struct Interpreter {
    regions: Vec<Option<RegisteredRegion>>,
    connections: Vec<ConnectionHandle>,
    queues: Vec<QueueId>,
}

impl Interpreter {
    /// Carries out one command.
    pub fn execute(&mut self, backend: &mut dyn Backend, command: &Command) -> Answer {
        self.try_execute(backend, command).unwrap_or_else(|reason| Answer::Refused { reason })
    }

    fn try_execute(&mut self, backend: &mut dyn Backend, command: &Command) -> Result<Answer, String> {
        match command {
            Command::Hello {} => Ok(Answer::Hello {
                protocol: PROTOCOL,
                name: backend.name(),
                address: backend.address(),
                profiles: ["multipath", "atomics", "datagram"].map(str::to_owned).to_vec(),
            }),
            Command::Restart { settings } => {
                settings.check()?;
                *self = Self::default();
                backend.restart(settings).map(|()| Answer::Done)
            }
            Command::Poll {} => Ok(Answer::Events { events: self.events(backend)? }),
            Command::Counters {} => counters(backend),
            Command::Register { .. }
            | Command::Rekey { .. }
            | Command::Deregister { .. }
            | Command::Read { .. }
            | Command::Write { .. } => self.on_memory(backend, command),
            Command::Connect { .. }
            | Command::Accept { .. }
            | Command::Reject { .. }
            | Command::Close { .. }
            | Command::Repath { .. }
            | Command::Path { .. } => self.on_connection(backend, command),
            _ => self.on_work(backend, command),
        }
    }

    fn on_memory(&mut self, backend: &mut dyn Backend, command: &Command) -> Result<Answer, String> {
        match command {
            Command::Register { length, base, rights, domain } => {
                if *length > REGION_BYTES_MAX {
                    return Err(format!("a region has at most {REGION_BYTES_MAX} bytes"));
                }
                let access = rights.iter().fold(Access::LOCAL_READ, |all, right| all.and(access_of(*right)));
                let region = backend.register(*length, *base, access, ProtectionDomain(*domain))?;
                self.regions.push(Some(region));
                Ok(Answer::Region { region: number(self.regions.len() - 1), key: region.key.0 })
            }
            Command::Rekey { region } => {
                let id = self.region(*region)?;
                let key = backend.endpoint()?.rekey_region(id).map_err(|error| error.to_string())?;
                Ok(Answer::Region { region: *region, key: key.0 })
            }
            Command::Deregister { region } => {
                backend.deregister(self.region(*region)?)?;
                if let Some(slot) = self.regions.get_mut(*region as usize) {
                    *slot = None;
                }
                Ok(Answer::Done)
            }
            Command::Read { region, offset, length } => {
                if *length > READ_BYTES_MAX {
                    return Err(format!("one answer holds at most {READ_BYTES_MAX} bytes"));
                }
                let bytes = backend.read(self.region(*region)?, u64::from(*offset), *length as usize)?;
                Ok(Answer::Memory { bytes: HexBytes(bytes) })
            }
            Command::Write { region, offset, bytes } => {
                backend.write(self.region(*region)?, u64::from(*offset), &bytes.0)?;
                Ok(Answer::Done)
            }
            _ => Err(NOT_HERE.to_owned()),
        }
    }

    fn on_connection(&mut self, backend: &mut dyn Backend, command: &Command) -> Result<Answer, String> {
        let now = backend.now();
        match command {
            Command::Connect { remote, service, implicit, domain, private } => {
                let options = ConnectOptions {
                    service: *service,
                    implicit: *implicit,
                    domain: ProtectionDomain(*domain),
                    private_data: &private.0,
                    ..ConnectOptions::to(*remote)
                };
                let connection = backend.endpoint()?.connect(now, options).map_err(text)?;
                Ok(Answer::Connection { connection: self.connection_number(connection) })
            }
            Command::Accept { connection, domain, private } => {
                let connection = self.connection(*connection)?;
                let domain = ProtectionDomain(*domain);
                backend.endpoint()?.accept(now, connection, domain, &private.0).map_err(text)?;
                Ok(Answer::Done)
            }
            Command::Reject { connection, reason, private } => {
                let connection = self.connection(*connection)?;
                let reason = RejectReason::from_code(*reason).map_err(|_| "no such reason".to_owned())?;
                backend.endpoint()?.reject(now, connection, reason, &private.0).map_err(text)?;
                Ok(Answer::Done)
            }
            Command::Close { connection, flush } => {
                let mode = if *flush { CloseMode::Flush } else { CloseMode::Drain };
                backend.endpoint()?.close(now, self.connection(*connection)?, mode).map_err(text)?;
                Ok(Answer::Done)
            }
            Command::Repath { connection, path } => {
                let connection = self.connection(*connection)?;
                backend.endpoint()?.repath(connection, PathId(*path)).map_err(text)?;
                Ok(Answer::Done)
            }
            Command::Path { connection, path } => {
                let connection = self.connection(*connection)?;
                let stats = backend.endpoint()?.path_stats(connection, PathId(*path));
                let stats = stats.ok_or_else(|| "no such path".to_owned())?;
                let state = match stats.state {
                    // To the suite it is a path that is asked after, and not in use.
                    PathState::Unverified => PathState::Probing.name(),
                    state => state.name(),
                };
                Ok(Answer::Path {
                    state: state.to_owned(),
                    epoch: stats.epoch,
                    window_bytes: stats.window_bytes,
                    inflight_bytes: stats.inflight_bytes,
                    rtt_ns: stats.rtt_ns_smoothed,
                    source_port: stats.source_port,
                    packets_sent: stats.packets_sent,
                    packets_lost: stats.packets_lost,
                    packets_marked: stats.packets_marked,
                })
            }
            _ => Err(NOT_HERE.to_owned()),
        }
    }

    fn on_work(&mut self, backend: &mut dyn Backend, command: &Command) -> Result<Answer, String> {
        let now = backend.now();
        let endpoint = backend.endpoint()?;
        match command {
            Command::OpenStream { connection } => {
                let stream = endpoint.open_stream(self.connection(*connection)?).map_err(text)?;
                return Ok(Answer::Stream { stream: stream.0 });
            }
            Command::ConfigureStream { connection, stream, queue } => {
                let options =
                    StreamOptions { shared_queue: Some(self.queue(*queue)?), ..StreamOptions::default() };
                let connection = self.connection(*connection)?;
                endpoint.configure_stream(connection, StreamId(*stream), options).map_err(text)?;
            }
            Command::ResetStream { connection, stream } => {
                let connection = self.connection(*connection)?;
                endpoint.reset_stream(now, connection, StreamId(*stream)).map_err(text)?;
            }
            Command::Post { connection, stream, id, request, segments, fence, solicited } => {
                let (connection, segments) = (self.connection(*connection)?, self.segments(segments)?);
                let work = WorkRequest {
                    fence: *fence,
                    solicited: *solicited,
                    ..WorkRequest::new(*id, operation(*request)?, &segments)
                };
                endpoint.post(now, connection, StreamId(*stream), work).map_err(text)?;
            }
            Command::PostReceive { connection, stream, id, segments, tag } => {
                let (connection, segments) = (self.connection(*connection)?, self.segments(segments)?);
                let stream = StreamId(*stream);
                match *tag {
                    None => endpoint.post_recv(connection, stream, *id, &segments),
                    Some(Tag { bits, ignored }) => {
                        let entry = TagEntry { bits, mask: !ignored };
                        endpoint.post_tagged_recv(connection, stream, *id, entry, &segments)
                    }
                }
                .map_err(text)?;
            }
            Command::CreateQueue { domain, datagrams } => {
                let datagrams = datagrams.map(|(number, key)| DatagramAddress { number, key });
                let options = QueueOptions { domain: ProtectionDomain(*domain), datagrams };
                self.queues.push(endpoint.create_queue(options).map_err(text)?);
                return Ok(Answer::Queue { queue: number(self.queues.len() - 1) });
            }
            Command::PostQueueReceive { queue, id, segments } => {
                let (queue, segments) = (self.queue(*queue)?, self.segments(segments)?);
                endpoint.post_queue_recv(queue, *id, &segments).map_err(text)?;
            }
            Command::PostDatagram { connection, id, queue, key, segments } => {
                let (connection, segments) = (self.connection(*connection)?, self.segments(segments)?);
                let request = DatagramRequest {
                    id: *id,
                    source_queue: 0,
                    destination_queue: *queue,
                    key: *key,
                    immediate: None,
                    segments: &segments,
                };
                endpoint.post_datagram(connection, request).map_err(text)?;
            }
            _ => return Err(NOT_HERE.to_owned()),
        }
        Ok(Answer::Done)
    }

    fn events(&mut self, backend: &mut dyn Backend) -> Result<Vec<DeviceEvent>, String> {
        let mut events = Vec::new();
        while events.len() < EVENTS_MAX
            && let Some(event) = backend.poll_event()
        {
            let private = match event {
                Event::Incoming { connection, .. } => backend.endpoint()?.private_data(connection),
                _ => None,
            };
            let private = HexBytes::from(private.unwrap_or_default());
            events.push(self.event(event, private));
        }
        Ok(events)
    }

    fn event(&mut self, event: Event, private: HexBytes) -> DeviceEvent {
        match event {
            Event::Incoming { connection, remote, service, implicit } => {
                let connection = self.connection_number(connection);
                DeviceEvent::Incoming { connection, remote, service, implicit, private }
            }
            Event::Connected { connection } => {
                DeviceEvent::Connected { connection: self.connection_number(connection) }
            }
            Event::Closed { connection, reason, .. } => {
                let reason = match reason {
                    CloseReason::Local => "local",
                    CloseReason::Peer => "peer",
                    CloseReason::Rejected(_) => "rejected",
                    CloseReason::Reset => "reset",
                    _ => "timed-out",
                };
                let connection = self.connection_number(connection);
                DeviceEvent::Closed { connection, reason: reason.to_owned() }
            }
            Event::StreamEnded { connection, stream, status } => DeviceEvent::StreamEnded {
                connection: self.connection_number(connection),
                stream: stream.0,
                status: status_name(status),
            },
            Event::Completion(done) => self.completion(&done),
            Event::DatagramReceived(done) if done.status == Status::Success => DeviceEvent::Datagram {
                queue: number(
                    self.queues.iter().position(|queue| *queue == done.queue).unwrap_or(usize::MAX),
                ),
                id: done.id,
                bytes: done.bytes,
                source_queue: done.source_queue,
            },
            other => DeviceEvent::Other { text: format!("{other:?}") },
        }
    }

    fn completion(&mut self, done: &Completion) -> DeviceEvent {
        DeviceEvent::Completion {
            connection: self.connection_number(done.connection),
            stream: done.stream.0,
            id: done.id,
            receive: matches!(done.kind, CompletionKind::Receive | CompletionKind::ReceiveWrite),
            status: status_name(done.status),
            bytes: done.bytes,
            immediate: done.immediate,
            solicited: done.solicited,
            invalidated: done.invalidated.map(|key| key.0),
        }
    }

    fn connection_number(&mut self, connection: ConnectionHandle) -> u32 {
        let known = self.connections.iter().position(|known| *known == connection);
        number(known.unwrap_or_else(|| {
            self.connections.push(connection);
            self.connections.len() - 1
        }))
    }

    fn connection(&self, number: u32) -> Result<ConnectionHandle, String> {
        self.connections.get(number as usize).copied().ok_or_else(|| "no such connection".to_owned())
    }

    fn region(&self, number: u32) -> Result<RegionId, String> {
        let region = self.regions.get(number as usize).copied().flatten();
        region.map(|region| region.id).ok_or_else(|| "no such region".to_owned())
    }

    fn queue(&self, number: u32) -> Result<QueueId, String> {
        self.queues.get(number as usize).copied().ok_or_else(|| "no such queue".to_owned())
    }

    fn segments(&self, stretches: &[Stretch]) -> Result<Vec<Segment>, String> {
        let segment = |stretch: &Stretch| {
            let region = self.region(stretch.region)?;
            Ok(Segment { region, offset: u64::from(stretch.offset), length: stretch.length })
        };
        stretches.iter().map(segment).collect()
    }
}

fn counters(backend: &mut dyn Backend) -> Result<Answer, String> {
    let stats = backend.endpoint()?.stats();
    let dropped: BTreeMap<String, u64> = DropReason::ALL
        .iter()
        .zip(stats.dropped)
        .map(|(reason, count)| (kebab(reason.name()), count))
        .collect();
    Ok(Answer::Counters { dropped, access_faults: stats.access_faults })
}

/// `AckOfUnsent` as `ack-of-unsent`.
fn kebab(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !text.is_empty() {
            text.push('-');
        }
        text.extend(letter.to_lowercase());
    }
    text
}

fn operation(request: Request) -> Result<Operation, String> {
    let remote = |place: Place| RemoteAddress { key: RegionKey(place.key), address: place.address };
    Ok(match request {
        Request::Send { immediate } => Operation::Send { immediate },
        Request::SendInvalidate { key } => Operation::SendInvalidate { key: RegionKey(key) },
        Request::SendTagged { bits } => Operation::SendTagged { bits, immediate: None },
        Request::Write { to, immediate } => Operation::Write { remote: remote(to), immediate },
        Request::WriteSignal { to, signal, addend } => {
            Operation::WriteSignal { remote: remote(to), signal: remote(signal), addend }
        }
        Request::Read { from } => Operation::Read { remote: remote(from) },
        Request::Atomic { word, opcode, operands: (first, second) } => {
            let operation = match Opcode::from_code(opcode) {
                Ok(Opcode::FetchAdd) => AtomicOperation::FetchAdd(first),
                Ok(Opcode::CompareSwap) => AtomicOperation::CompareSwap { compare: first, swap: second },
                Ok(Opcode::Swap) => AtomicOperation::Swap(first),
                Ok(Opcode::Min) => AtomicOperation::Min(first),
                Ok(Opcode::Max) => AtomicOperation::Max(first),
                Ok(Opcode::And) => AtomicOperation::And(first),
                Ok(Opcode::Or) => AtomicOperation::Or(first),
                Ok(Opcode::Xor) => AtomicOperation::Xor(first),
                _ => return Err("no opcode of an atomic".to_owned()),
            };
            Operation::Atomic { remote: remote(word), operation }
        }
    })
}

const fn access_of(right: Right) -> Access {
    match right {
        Right::LocalWrite => Access::LOCAL_WRITE,
        Right::RemoteWrite => Access::REMOTE_WRITE,
        Right::RemoteRead => Access::REMOTE_READ,
        Right::RemoteAtomic => Access::REMOTE_ATOMIC,
        Right::OrderedTails => Access::ORDERED_TAILS,
    }
}

fn status_name(status: Status) -> String {
    kebab(&format!("{status:?}"))
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

const NOT_HERE: &str = "the command is not of this kind";

const REGION_BYTES_MAX: u32 = 1 << 20;

/// Two digits each, in a line of 1 MiB.
const READ_BYTES_MAX: u32 = 1 << 18;

/// Events of one answer: each takes less than a kilobyte of a line of 1 MiB.
const EVENTS_MAX: usize = 1000;
