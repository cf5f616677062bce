//! The model of the whole transport: random programs over faulty links, against an oracle.
//!
//! [`run`] plays the program of a seed. The oracle knows the final bytes of all memory (no two destinations overlap)
//! and every completion: each posted request and receive completes once, in the order of its stream, with its bytes,
//! immediate, tag and key. At every step it looks for signals and ordered tails that came before what they wait for.
//! The links first do harm, then heal, and from there everything must end within a bound.

mod check;
mod events;
mod flows;
mod memory;
mod oracle;
mod program;
mod setting;
mod trouble;

use metaroce_core::{
    CloseMode, ConnectOptions, ConnectionHandle, DatagramAddress, DatagramRequest, Event, HeapStorage,
    Instant, PostError, ProtectionDomain, QueueId, QueueOptions, Storage, StreamId, StreamOptions,
    WorkRequest,
};

pub use program::{Ending, Place, Program, Step, Style, Work};
pub use setting::config;

use crate::{Faults, Network, Random, Traffic, further_planes};
use oracle::{Oracle, Prepared};

/// Virtual time for which the links do harm at most after the last post, ns.
const HARM_NS: u64 = 100_000_000;
/// Virtual time in which everything must be over once the links are healed, ns.
const HEALED_NS: u64 = 2_000_000_000;
/// Virtual time in which a connection must open, or take one more request, ns.
const PATIENCE_NS: u64 = 20_000_000_000;

/// Plays the program of a seed, on heap storage.
///
/// # Errors
/// What went wrong, with the program.
pub fn run(seed: u64) -> Result<Traffic, String> {
    run_on(seed, |_| {})
}

/// The same on a network that `prepare` has changed: it may add an observer.
///
/// # Errors
/// What went wrong, with the program.
pub fn run_on(seed: u64, prepare: impl FnOnce(&mut Network<HeapStorage>)) -> Result<Traffic, String> {
    run_from(Random::new(seed), seed, prepare)
}

/// Plays the program and the settings that are drawn from `random`, with what the links do drawn from `seed`.
///
/// # Errors
/// What went wrong, with the program.
pub fn run_from(
    mut random: Random,
    seed: u64,
    prepare: impl FnOnce(&mut Network<HeapStorage>),
) -> Result<Traffic, String> {
    let program = Program::random(&mut random);
    let mut seeds = Vec::new();
    let hosts: Vec<_> = (0u8..)
        .take(program.hosts)
        .map(|number| {
            let mut config = config(&mut random);
            // A tape may give two hosts one seed, and each would then take the other for itself.
            while seeds.contains(&config.seed) {
                config.seed = config.seed.wrapping_add(4);
            }
            seeds.push(config.seed);
            // In a third of all programs every host has one plane, else each has as many as chance will have it.
            if !seed.is_multiple_of(3) {
                config.planes = further_planes(number, 1 << (config.seed % 4));
            }
            (config, HeapStorage::new(&program.limits))
        })
        .collect();
    let mut net = Network::new(seed, program.faults, hosts);
    prepare(&mut net);
    play(&program, &mut net, seed).map_err(|error| format!("{error}\n{program:?}"))?;
    Ok(net.traffic)
}

/// Plays a program on the hosts of `net`.
///
/// # Errors
/// What went wrong.
pub fn play<S: Storage>(program: &Program, net: &mut Network<S>, seed: u64) -> Result<(), String> {
    let oracle = Oracle::new(program, net, seed);
    // Not drawn from what the program was drawn from: programs of old seeds stay what they were.
    let mut trouble = Random::new(!seed);
    let steps = u64::try_from(program.steps.len()).unwrap_or(0);
    let mut player = Player {
        net,
        program,
        oracle,
        handles: Vec::new(),
        closed: Vec::new(),
        queues: Vec::new(),
        outage_at: trouble.chance(300_000).then(|| trouble.below(steps.max(1))),
        silent_until: None,
        trouble,
        openings: Random::new(seed ^ 0x6f70_656e),
    };
    player.create_queues()?;
    player.connect()?;
    player.configure()?;
    player.post_all()?;
    player.run_outage()?;
    if !program.ending.early {
        player.run(HARM_NS, Oracle::is_complete)?;
        player.heal(program.ending.healed);
        player.finish(Oracle::is_complete)?;
        player.use_dead_keys()?;
        player.post_failing()?;
        player.finish(Oracle::is_complete)?;
    }
    player.close();
    player.heal(program.ending.early && program.ending.healed);
    player.run(HARM_NS, |_| false)?;
    player.heal(true);
    player.finish(|oracle| oracle.is_complete() && oracle.is_flushed())?;
    player.check_end()
}

struct Player<'a, S: Storage> {
    net: &'a mut Network<S>,
    program: &'a Program,
    oracle: Oracle,
    /// The handles of each connection, at its two sides.
    handles: Vec<[Option<ConnectionHandle>; 2]>,
    closed: Vec<(usize, ConnectionHandle)>,
    /// Of each host: the shared one, and the one that takes datagrams.
    queues: Vec<[QueueId; 2]>,
    /// Chance of its own, for outages and requests that fail.
    trouble: Random,
    /// The same, for how connections open.
    openings: Random,
    /// The step before which an outage begins.
    outage_at: Option<u64>,
    /// When the present outage ends.
    silent_until: Option<Instant>,
}

/// How a connection opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opening {
    /// One side connects.
    Explicit,
    /// One side connects; there is one such connection for peer and service.
    Implicit,
    /// So does the other, a little later.
    Crossing { after_ns: u64 },
}

impl Opening {
    fn random(random: &mut Random) -> Self {
        match random.below(4) {
            0 => Self::Implicit,
            1 => Self::Crossing { after_ns: random.below(200_000) },
            2 => Self::Crossing { after_ns: 0 },
            _ => Self::Explicit,
        }
    }
}

/// What the queue for datagrams of a host answers to.
fn datagram_address(host: usize) -> DatagramAddress {
    let number = u32::try_from(host).unwrap_or(0);
    DatagramAddress { number: 100 + number, key: 0xbeef_0000 | number }
}

impl<S: Storage> Player<'_, S> {
    fn create_queues(&mut self) -> Result<(), String> {
        for (number, host) in self.net.hosts.iter_mut().enumerate() {
            let mut create = |datagrams| {
                let options = QueueOptions { datagrams, ..QueueOptions::default() };
                host.endpoint.create_queue(options).map_err(|error| error.to_string())
            };
            self.queues.push([create(None)?, create(Some(datagram_address(number)))?]);
        }
        Ok(())
    }

    /// Sets what the streams draw on, at both sides.
    fn configure(&mut self) -> Result<(), String> {
        for (number, sides) in self.handles.iter().enumerate() {
            for (side, handle) in sides.iter().enumerate() {
                let host = self.oracle.host_of(number, side);
                let (Some(handle), Some(real), Some([shared, _])) =
                    (*handle, self.net.hosts.get_mut(host), self.queues.get(host))
                else {
                    return Err("no such connection".into());
                };
                for (stream, style) in (0..).zip(&self.program.styles) {
                    let options = match style {
                        Style::Own => continue,
                        Style::Unordered => {
                            StreamOptions { unordered_match: true, ..StreamOptions::default() }
                        }
                        Style::Shared => {
                            StreamOptions { shared_queue: Some(*shared), ..StreamOptions::default() }
                        }
                    };
                    let configured = real.endpoint.configure_stream(handle, StreamId(stream), options);
                    configured.map_err(|error| format!("stream {stream}: {error}"))?;
                }
            }
        }
        Ok(())
    }

    fn connect(&mut self) -> Result<(), String> {
        for (number, &[from, to]) in self.program.connections.iter().enumerate() {
            let now = self.net.now();
            let remote = self.net.hosts.get(to).map(|host| host.address).ok_or("no such host")?;
            let service = u32::try_from(number).unwrap_or(0);
            let opening = Opening::random(&mut self.openings);
            let implicit = opening != Opening::Explicit;
            let options = ConnectOptions { service, implicit, ..ConnectOptions::to(remote) };
            let host = self.net.hosts.get_mut(from).ok_or("no such host")?;
            let address = host.address;
            let handle = host.endpoint.connect(now, options).map_err(|error| error.to_string())?;
            self.handles.push([Some(handle), None]);
            let back = ConnectOptions { service, implicit, ..ConnectOptions::to(address) };
            if let Opening::Crossing { after_ns } = opening {
                // Whether it meets the other's CONNECT under way, at the peer, or answered, is left to chance.
                self.net.run_for(after_ns);
                let (now, host) = (self.net.now(), self.net.hosts.get_mut(to).ok_or("no such host")?);
                let handle = host.endpoint.connect(now, back).map_err(|error| error.to_string())?;
                self.handles.last_mut().ok_or("no connection")?[1] = Some(handle);
            }
            self.wait_for(number, [from, to])?;
            if implicit {
                self.find_again(number, [(from, options), (to, back)])?;
            }
        }
        Ok(())
    }

    /// Accepts a connection, and waits until both sides say that it is open.
    fn wait_for(&mut self, number: usize, [from, to]: [usize; 2]) -> Result<(), String> {
        let mut open = [None; 2];
        let handles = self.handles.get_mut(number).ok_or("no connection")?;
        let opened = self.net.run_until(PATIENCE_NS, |net| {
            let now = net.now();
            for (side, at) in [from, to].into_iter().enumerate() {
                let Some(host) = net.hosts.get_mut(at) else { continue };
                for event in host.take_events() {
                    match event {
                        Event::Incoming { connection, .. } if side == 1 => {
                            handles[1] = Some(connection);
                            let _ = host.endpoint.accept(now, connection, ProtectionDomain(0), b"");
                        }
                        Event::Connected { connection } => {
                            open.get_mut(side).map(|open| open.replace(connection));
                        }
                        _ => {}
                    }
                }
            }
            net.settle();
            open.iter().all(Option::is_some)
        });
        if !opened {
            return Err(format!("connection {number} does not open"));
        }
        if *handles != open {
            return Err(format!("connection {number} is {handles:?}, but {open:?} opened"));
        }
        Ok(())
    }

    /// Whoever asks for an implicit connection that is there gets that one.
    fn find_again(&mut self, number: usize, asked: [(usize, ConnectOptions<'_>); 2]) -> Result<(), String> {
        let now = self.net.now();
        for (side, (host, options)) in asked.into_iter().enumerate() {
            let host = self.net.hosts.get_mut(host).ok_or("no such host")?;
            let found = host.endpoint.connect(now, options).ok();
            if found != self.handles.get(number).and_then(|sides| *sides.get(side)?) {
                let all = self.handles.get(number);
                return Err(format!(
                    "side {side} of connection {number} finds {found:?}, not what is open: {all:?}"
                ));
            }
        }
        Ok(())
    }

    /// Posts all steps: the requests of each host in their order, and so its receives.
    fn post_all(&mut self) -> Result<(), String> {
        for (id, step) in (0..).zip(&self.program.steps) {
            if step.wait_ns > 0 {
                self.run(step.wait_ns, |_| false)?;
            }
            self.before_step(id);
            let prepared = self.oracle.prepare(step, id);
            let deadline = self.net.now().after(PATIENCE_NS);
            while !self.post(step, id, &prepared)? {
                self.run(100_000, |_| false)?;
                self.before_step(u64::MAX);
                if self.net.now() > deadline {
                    return Err(format!("step {id} is never taken: {}", self.oracle.missing()));
                }
            }
        }
        Ok(())
    }

    /// Whether there was room.
    fn post(&mut self, step: &Step, id: u64, prepared: &Prepared) -> Result<bool, String> {
        let now = self.net.now();
        let number = self.oracle.host_of(step.connection, step.side);
        let peer = self.oracle.host_of(step.connection, 1 - step.side);
        let handle = self.handles.get(step.connection).and_then(|sides| *sides.get(step.side)?);
        let queues = self.queues.get(number);
        let (Some(host), Some(handle), Some(queues)) = (self.net.hosts.get_mut(number), handle, queues)
        else {
            return Err("no such connection".into());
        };
        let stream = StreamId(step.stream);
        let (endpoint, segments) = (&mut host.endpoint, &prepared.segments[..]);
        let posted = match step.work {
            Work::Receive { .. } => endpoint.post_recv(handle, stream, id, segments),
            Work::ReceiveTagged { entry, .. } => {
                endpoint.post_tagged_recv(handle, stream, id, entry, segments)
            }
            Work::ReceiveShared { .. } => endpoint.post_queue_recv(queues[0], id, segments),
            Work::ReceiveDatagram { .. } => endpoint.post_queue_recv(queues[1], id, segments),
            Work::Datagram { immediate, right, .. } => {
                let DatagramAddress { number, key } = datagram_address(peer);
                let request = DatagramRequest {
                    id,
                    source_queue: u32::try_from(id).unwrap_or(0),
                    destination_queue: if right[0] { number } else { number + 50 },
                    key: if right[1] { key } else { !key },
                    immediate,
                    segments,
                };
                endpoint.post_datagram(handle, request)
            }
            Work::Reset => {
                // Nothing of it may have come so far: opened, it can be reset.
                if endpoint.stream_stats(handle, stream).is_none() {
                    let opened = endpoint.configure_stream(handle, stream, StreamOptions::default());
                    opened.map_err(|error| format!("step {id}: {error}"))?;
                }
                endpoint.reset_stream(now, handle, stream)
            }
            _ => {
                let operation = prepared.operation.ok_or("no request")?;
                let request = WorkRequest {
                    inline: &prepared.inline,
                    fence: step.fence,
                    solicited: step.solicited,
                    unsignalled: step.unsignalled,
                    ..WorkRequest::new(id, operation, segments)
                };
                endpoint.post(now, handle, stream, request)
            }
        };
        match posted {
            Ok(()) => Ok(true),
            Err(PostError::Full) => Ok(false),
            Err(error) => Err(format!("step {id}: {error}")),
        }
    }

    fn heal(&mut self, heal: bool) {
        if heal {
            let Faults { delay_ns, byte_ps, .. } = self.program.faults;
            self.net.faults = Faults { delay_ns, byte_ps, ..Faults::NONE };
        }
    }

    /// Everything must be as `done` says within a bound, the links being what they are.
    fn finish(&mut self, done: impl Fn(&Oracle) -> bool) -> Result<(), String> {
        if self.run(HEALED_NS, done)? {
            return Ok(());
        }
        Err(format!("not over at {:?}: {}", self.net.now(), self.oracle.missing()))
    }

    fn close(&mut self) {
        self.oracle.closing = true;
        let now = self.net.now();
        for (number, sides) in self.handles.iter().enumerate() {
            for (side, (handle, closes)) in sides.iter().zip(self.program.ending.by).enumerate() {
                let host = self.oracle.host_of(number, side);
                if let (true, Some(handle), Some(host)) = (closes, *handle, self.net.hosts.get_mut(host)) {
                    // The peer's close may have come first.
                    let _ = host.endpoint.close(now, handle, CloseMode::Drain);
                }
            }
        }
    }

    /// Every connection is over, and whatever is still under way leaves memory alone.
    fn check_end(&mut self) -> Result<(), String> {
        let all = 2 * self.handles.len();
        self.run(HEALED_NS, |_| false)?;
        if self.closed.len() != all {
            return Err(format!("{} of {all} ends are closed", self.closed.len()));
        }
        for (host, queues) in self.net.hosts.iter_mut().zip(&self.queues) {
            for queue in queues {
                host.endpoint.destroy_queue(*queue).map_err(|error| error.to_string())?;
            }
        }
        if !self.run(HEALED_NS, Oracle::are_queues_flushed)? {
            return Err("a queue ended, but not all of its receives".into());
        }
        self.oracle.finish(self.net);
        self.oracle.memory.check(self.net)?;
        self.oracle.memory.scribble(self.net);
        self.net.run_for(HEALED_NS);
        self.oracle.memory.check(self.net).map_err(|error| format!("after the end: {error}"))
    }
}
