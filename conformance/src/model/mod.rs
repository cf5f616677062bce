//! The model of the whole transport: random programs over faulty links, against an oracle.
//!
//! [`run`] plays the program of a seed. The oracle knows the final bytes of all memory (no two destinations overlap)
//! and every completion: each posted request and receive completes once, in the order of its stream, with its bytes
//! and immediate. The links first do harm, then heal, and from there everything must end within a bound.

mod oracle;
mod program;

use metaroce_core::{
    CloseMode, Completion, ConnectOptions, ConnectionHandle, Event, HeapStorage, PostError, ProtectionDomain,
    Storage, StreamId, WorkRequest,
};

pub use program::{Ending, Program, Step, Work, config};

use crate::{Faults, Network, Outage, Random, Traffic};
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
    let mut random = Random::new(seed);
    let program = Program::random(&mut random);
    let hosts: Vec<_> =
        (0..program.hosts).map(|_| (config(&mut random), HeapStorage::new(&program.limits))).collect();
    let mut net = Network::new(seed, program.faults, hosts);
    play(&program, &mut net, seed).map_err(|error| format!("{error}\n{program:?}"))?;
    Ok(net.traffic)
}

/// Plays a program on the hosts of `net`.
///
/// # Errors
/// What went wrong.
pub fn play<S: Storage>(program: &Program, net: &mut Network<S>, seed: u64) -> Result<(), String> {
    let oracle = Oracle::new(program, net, seed);
    let mut player = Player { net, program, oracle, handles: Vec::new(), closed: Vec::new() };
    player.connect()?;
    player.begin_outage();
    player.post_all()?;
    if !program.ending.early {
        player.run(HARM_NS, Oracle::is_complete)?;
        player.heal(program.ending.healed);
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
}

impl<S: Storage> Player<'_, S> {
    fn connect(&mut self) -> Result<(), String> {
        for (number, &[from, to]) in self.program.connections.iter().enumerate() {
            let now = self.net.now();
            let remote = self.net.hosts.get(to).map(|host| host.address).ok_or("no such host")?;
            let service = u32::try_from(number).unwrap_or(0);
            let options = ConnectOptions { service, ..ConnectOptions::to(remote) };
            let host = self.net.hosts.get_mut(from).ok_or("no such host")?;
            let handle = host.endpoint.connect(now, options).map_err(|error| error.to_string())?;
            self.handles.push([Some(handle), None]);
            let mut open = 0;
            let handles = &mut self.handles;
            let opened = self.net.run_until(PATIENCE_NS, |net| {
                let now = net.now();
                for host in &mut net.hosts {
                    for event in host.take_events() {
                        if let Event::Incoming { connection, service, .. } = event
                            && let Some(sides) = handles.get_mut(service as usize)
                        {
                            sides[1] = Some(connection);
                            let domain = ProtectionDomain(0);
                            let _ = host.endpoint.accept(now, connection, domain, b"");
                        }
                        open += usize::from(matches!(event, Event::Connected { .. }));
                    }
                }
                net.settle();
                open == 2
            });
            if !opened {
                return Err(format!("connection {number} does not open"));
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
            let prepared = self.oracle.prepare(step, id);
            let deadline = self.net.now().after(PATIENCE_NS);
            while !self.post(step, id, &prepared)? {
                self.run(100_000, |_| false)?;
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
        let host = self.oracle.host_of(step.connection, step.side);
        let handle = self.handles.get(step.connection).and_then(|sides| *sides.get(step.side)?);
        let (Some(host), Some(handle)) = (self.net.hosts.get_mut(host), handle) else {
            return Err("no such connection".into());
        };
        let stream = StreamId(step.stream);
        let posted = match prepared.operation {
            None => host.endpoint.post_recv(handle, stream, id, &prepared.segments),
            Some(operation) => {
                let request = WorkRequest {
                    fence: step.fence,
                    unsignalled: step.unsignalled,
                    ..WorkRequest::new(id, operation, &prepared.segments)
                };
                host.endpoint.post(now, handle, stream, request)
            }
        };
        match posted {
            Ok(()) => Ok(true),
            Err(PostError::Full) => Ok(false),
            Err(error) => Err(format!("step {id}: {error}")),
        }
    }

    /// Runs for a time, or until `done`, and checks what completes.
    fn run(&mut self, span_ns: u64, done: impl Fn(&Oracle) -> bool) -> Result<bool, String> {
        let (oracle, handles, closed) = (&mut self.oracle, &self.handles, &mut self.closed);
        let mut result = Ok(());
        let reached = self.net.run_until(span_ns, |net| {
            for (number, host) in net.hosts.iter_mut().enumerate() {
                for event in host.take_events() {
                    let checked = on_event(oracle, handles, closed, number, event);
                    result = std::mem::replace(&mut result, Ok(())).and(checked);
                }
            }
            result.is_err() || done(oracle)
        });
        result.map_err(|error| format!("at {:?}: {error}", self.net.now()))?;
        Ok(reached)
    }

    fn begin_outage(&mut self) {
        let now_ns = self.net.now().as_nanos();
        self.net.outage =
            self.program.outage.map(|outage| Outage { start_ns: now_ns + outage.start_ns, ..outage });
    }

    fn heal(&mut self, heal: bool) {
        if heal {
            self.net.outage = None;
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
        self.oracle.finish(self.net);
        self.oracle.check_memory(self.net)?;
        self.oracle.scribble(self.net);
        self.net.run_for(HEALED_NS);
        self.oracle.check_memory(self.net).map_err(|error| format!("after the end: {error}"))
    }
}

fn on_event(
    oracle: &mut Oracle,
    handles: &[[Option<ConnectionHandle>; 2]],
    closed: &mut Vec<(usize, ConnectionHandle)>,
    host: usize,
    event: Event,
) -> Result<(), String> {
    let of_host = |number: usize, side: usize| oracle.host_of(number, side) == host;
    let find = |handle: ConnectionHandle| {
        handles.iter().enumerate().find_map(|(number, sides)| {
            let side =
                (0..2).find(|&side| of_host(number, side) && sides.get(side) == Some(&Some(handle)))?;
            Some((number, side))
        })
    };
    match event {
        Event::Completion(done @ Completion { connection, .. }) => {
            let (number, side) = find(connection).ok_or_else(|| format!("host {host}: stray {done:?}"))?;
            oracle.check(number, side, &done)
        }
        Event::Closed { connection, reason } => {
            closed.push((host, connection));
            match reason {
                metaroce_core::CloseReason::Local | metaroce_core::CloseReason::Peer => Ok(()),
                other => Err(format!("host {host}: closed as {other:?}: {}", oracle.missing())),
            }
        }
        Event::StreamOpened { .. } | Event::LimitReached { .. } => Ok(()),
        other => Err(format!("host {host}: {other:?}")),
    }
}
