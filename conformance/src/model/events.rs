//! Runs the hosts, and hands what they report to the oracle.

use metaroce_core::{CloseReason, Completion, ConnectionHandle, Event, Storage};

use super::Player;
use super::oracle::Oracle;
use super::trouble::FAILING_STREAMS;
use crate::network::Host;

impl<S: Storage> Player<'_, S> {
    /// Runs for a time, or until `done`, and checks what completes and what memory shows.
    pub(super) fn run(&mut self, span_ns: u64, done: impl Fn(&Oracle) -> bool) -> Result<bool, String> {
        let doomed = self.program.doomed;
        let (oracle, handles, closed) = (&mut self.oracle, &self.handles, &mut self.closed);
        let mut result = Ok(());
        let reached = self.net.run_until(span_ns, |net| {
            for (number, host) in net.hosts.iter_mut().enumerate() {
                let mut reported = Reported { oracle, handles, closed, doomed, number };
                for event in host.take_events() {
                    let checked = reported.on_event(host, event);
                    result = std::mem::replace(&mut result, Ok(())).and(checked);
                }
            }
            let checked = oracle.check_milestones(net);
            result = std::mem::replace(&mut result, Ok(())).and(checked);
            result.is_err() || done(oracle)
        });
        result.map_err(|error| format!("at {:?}: {error}", self.net.now()))?;
        Ok(reached)
    }
}

struct Reported<'a> {
    oracle: &'a mut Oracle,
    handles: &'a [[Option<ConnectionHandle>; 2]],
    closed: &'a mut Vec<(usize, ConnectionHandle)>,
    doomed: Option<(usize, u16)>,
    /// The host.
    number: usize,
}

impl Reported<'_> {
    /// The connection and side that a handle names.
    fn find(&self, handle: ConnectionHandle) -> Option<(usize, usize)> {
        self.handles.iter().enumerate().find_map(|(number, sides)| {
            let is_here = |side: usize| self.oracle.host_of(number, side) == self.number;
            let side = (0..2).find(|&side| is_here(side) && sides.get(side) == Some(&Some(handle)))?;
            Some((number, side))
        })
    }

    fn on_event<S: Storage>(&mut self, host: &mut Host<S>, event: Event) -> Result<(), String> {
        let stray = || format!("host {}: stray {event:?}", self.number);
        match event {
            Event::Completion(done @ Completion { connection, stream, .. }) => {
                let (number, side) = self.find(connection).ok_or_else(stray)?;
                self.oracle.check(number, side, &done)?;
                let Some(old) = done.invalidated else { return Ok(()) };
                let rekey = |region| host.endpoint.rekey_region(region).ok();
                self.oracle.rekey((number, 1 - side, stream.0), rekey, old)
            }
            Event::DatagramSent { id, status, .. } => self.oracle.check_datagram_sent(id, status),
            Event::DatagramReceived(done) => {
                let from = done.connection.and_then(|handle| self.find(handle));
                self.oracle.check_datagram_received(self.number, from, &done)
            }
            Event::Closed { connection, reason, .. } => {
                self.closed.push((self.number, connection));
                match reason {
                    CloseReason::Local | CloseReason::Peer => Ok(()),
                    other => {
                        let missing = self.oracle.missing();
                        Err(format!("host {}: closed as {other:?}: {missing}", self.number))
                    }
                }
            }
            Event::StreamEnded { connection, stream, .. } => {
                let (number, _) = self.find(connection).ok_or_else(stray)?;
                let right = self.doomed == Some((number, stream.0)) || FAILING_STREAMS.contains(&stream);
                if right { Ok(()) } else { Err(stray()) }
            }
            Event::StreamOpened { .. } | Event::LimitReached { .. } => Ok(()),
            _ => Err(stray()),
        }
    }
}
