//! What the hosts report and what their memory shows, against the oracle.

use std::fmt::Write;

use metaroce_core::{Completion, CompletionKind, DatagramReceived, RegionId, RegionKey, Status, Storage};

use super::flows::matches;
use super::oracle::{End, Expected, FlowKey, Oracle, Posted};
use super::program::Style;
use crate::Network;

impl Oracle {
    /// Checks a completion against what is expected next on its stream.
    pub(super) fn check(&mut self, connection: usize, side: usize, done: &Completion) -> Result<(), String> {
        let receive = matches!(done.kind, CompletionKind::Receive | CompletionKind::ReceiveWrite);
        let checked = if receive {
            self.check_receive((connection, 1 - side, done.stream.0), done)
        } else {
            self.check_request((connection, side, done.stream.0), done)
        };
        checked.map_err(|error| format!("connection {connection} side {side}: {done:?}, {error}"))
    }

    fn check_request(&mut self, key: FlowKey, done: &Completion) -> Result<(), String> {
        let flow = self.flow(key);
        let silent = flow.requests.iter().take_while(|(next, silent)| *silent && next.id != done.id).count();
        flow.requests.drain(..silent);
        let next = flow.requests.pop_front();
        let Some((next, unsignalled)) = next else { return Err("expected nothing".into()) };
        let right = match (done.status, flow.end) {
            (Status::Success, None | Some(End::Reset)) => next == Expected::of(done) && !unsignalled,
            (status, Some(End::Failed(first))) => {
                let expected = if next.id & 1 == 0 { first } else { Status::Flushed };
                next.id == done.id && status == expected
            }
            (Status::Flushed | Status::PeerClosed, Some(End::Reset)) => {
                (next.id, next.kind) == (done.id, done.kind)
            }
            _ => false,
        };
        if done.status == Status::Success {
            flow.effects.remove(&done.id);
        }
        if right { Ok(()) } else { Err(format!("expected {next:?}")) }
    }

    fn check_receive(&mut self, key: FlowKey, done: &Completion) -> Result<(), String> {
        let host = self.host_of(key.0, 1 - key.1);
        let style = self.styles.get(usize::from(key.2)).copied().unwrap_or(Style::Own);
        let flow = self.flows.entry(key).or_default();
        let message = flow.messages.get(flow.received);
        let none = &mut Vec::new();
        let posted = if style == Style::Shared {
            self.shared.get_mut(host).unwrap_or(none)
        } else {
            &mut flow.receives
        };
        if done.status != Status::Success {
            // More were posted than used.
            let over = message.is_none() || flow.end == Some(End::Reset);
            let short =
                done.status == Status::LocalLength && flow.end == Some(End::Failed(Status::RemoteInvalid));
            let flushed = short || matches!(done.status, Status::Flushed | Status::PeerClosed);
            let taken = take(posted, |receive| receive.id == done.id).filter(|_| over && flushed);
            let taken = taken.ok_or_else(|| format!("expected {message:?}"))?;
            if flow.end == Some(End::Reset) {
                self.free.extend_from_slice(&taken.spots);
            }
            return Ok(());
        }
        let Some((message, data)) = message else { return Err("expected no message".into()) };
        let seen = Expected { id: message.id, ..Expected::of(done) };
        let taken = match (message.tag, style) {
            // Any that matches, or any of the queue.
            (Some(bits), Style::Unordered) => take(posted, |receive| {
                receive.id == done.id && receive.entry.is_some_and(|entry| matches(entry, bits))
            }),
            (_, Style::Shared) => take(posted, |receive| receive.id == done.id),
            (Some(bits), _) => {
                take(posted, |receive| receive.entry.is_some_and(|entry| matches(entry, bits)))
            }
            (None, _) => take(posted, |receive| receive.entry.is_none()),
        };
        let right = seen == *message && taken.as_ref().is_some_and(|taken| taken.id == done.id);
        let (true, Some(taken)) = (right, taken) else {
            return Err(format!("expected {message:?}"));
        };
        if let Some(data) = data {
            self.memory.expect(&taken.spots, data);
        }
        flow.received += 1;
        Ok(())
    }

    pub(super) fn check_datagram_sent(&mut self, id: u64, status: Status) -> Result<(), String> {
        let closing = self.closing;
        let datagram = self.datagrams.get_mut(&id).filter(|datagram| !datagram.sent);
        let datagram = datagram.ok_or_else(|| format!("datagram {id} was sent already, or never posted"))?;
        datagram.sent = true;
        match status {
            Status::Success => Ok(()),
            Status::Flushed | Status::PeerClosed if closing => Ok(()),
            _ => Err(format!("datagram {id}: {status:?}")),
        }
    }

    /// `from` is the receiving connection and side; `None` for the flush of a queue, that of datagrams or the shared.
    pub(super) fn check_datagram_received(
        &mut self,
        host: usize,
        from: Option<(usize, usize)>,
        done: &DatagramReceived,
    ) -> Result<(), String> {
        let error = |text: &str| Err(format!("host {host}: {done:?}: {text}"));
        let queues = [&mut self.datagram_receives, &mut self.shared];
        if done.status == Status::Flushed && self.closing {
            let mut queues = queues.into_iter().filter_map(|queues| queues.get_mut(host));
            let taken = queues.find_map(|queue| take(queue, |receive| receive.id == done.id));
            return if taken.is_some() { Ok(()) } else { error("no such receive is left") };
        }
        let [queue, _] = queues;
        let Some(taken) = queue.get_mut(host).and_then(|queue| take(queue, |_| true)) else {
            return error("no receive is left");
        };
        if taken.id != done.id || done.status != Status::Success {
            return error("not the next receive");
        }
        let datagram = self.datagrams.get_mut(&u64::from(done.source_queue));
        let Some(datagram) = datagram.filter(|datagram| datagram.right && !datagram.received) else {
            return error("a datagram that came before, or should not");
        };
        datagram.received = true;
        let (connection, side) = datagram.from;
        let right = from == Some((connection, 1 - side))
            && done.bytes as usize == datagram.bytes.len()
            && done.immediate == datagram.immediate;
        self.memory.expect(&taken.spots, &datagram.bytes);
        if right { Ok(()) } else { error("not what was sent") }
    }

    /// The window whose key a message took away; it gets the key that `rekey` makes.
    pub(super) fn rekey(
        &mut self,
        key: FlowKey,
        rekey: impl FnOnce(RegionId) -> Option<RegionKey>,
        old: RegionKey,
    ) -> Result<(), String> {
        let window = self.windows.get_mut(&key).ok_or("no such window")?;
        window.dead = Some(old);
        window.key = rekey(window.id);
        if window.key.is_some() { Ok(()) } else { Err("no new key".into()) }
    }

    /// What memory shows by now must have waited for all that came before it.
    pub(super) fn check_milestones<S: Storage>(&mut self, net: &Network<S>) -> Result<(), String> {
        for (key, flow) in &mut self.flows {
            let memory = &self.memory;
            let (received, writes, placed) = (flow.received, &flow.writes, &mut flow.placed);
            let mut result = Ok(());
            flow.milestones.retain(|milestone| {
                let seen = match *memory.real(net, milestone.spot) {
                    [byte] => u64::from(byte),
                    ref word => word.try_into().map_or(0, u64::from_ne_bytes),
                };
                if seen < milestone.at_least {
                    return true;
                }
                while let Some(spot) = writes.get(*placed).filter(|_| *placed < milestone.writes) {
                    if !memory.is_placed(net, *spot) {
                        result = Err(format!("flow {key:?}: {milestone:?} was seen before {spot:?}"));
                        return false;
                    }
                    *placed += 1;
                }
                if received < milestone.messages {
                    result = Err(format!("flow {key:?}: {milestone:?} was seen after {received} messages"));
                }
                false
            });
            result?;
        }
        Ok(())
    }

    /// Whether every message has completed at both sides; receives that nothing uses are left.
    pub(super) fn is_complete(&self) -> bool {
        self.flows.values().all(|flow| {
            flow.requests.iter().all(|(_, silent)| *silent)
                && (flow.received >= flow.messages.len() || flow.end.is_some())
        }) && self.datagrams.values().all(|datagram| datagram.sent)
    }

    /// What is missing, for a person to read.
    pub(super) fn missing(&self) -> String {
        let mut text = String::new();
        for (key, flow) in &self.flows {
            let open = flow.requests.iter().filter(|(_, silent)| !silent).count();
            let (received, messages) = (flow.received, flow.messages.len());
            if open > 0 || received < messages {
                let _ = write!(text, "flow {key:?}: {open} requests, {received} of {messages} received; ");
            }
        }
        for (id, _) in self.datagrams.iter().filter(|(_, datagram)| !datagram.sent) {
            let _ = write!(text, "datagram {id}; ");
        }
        text
    }

    /// Whether receives that nothing used are reported, too.
    pub(super) fn is_flushed(&self) -> bool {
        self.flows.values().all(|flow| flow.receives.iter().all(|receive| receive.used))
    }

    /// Whether those of the queues are.
    pub(super) fn are_queues_flushed(&self) -> bool {
        self.shared.iter().chain(&self.datagram_receives).flatten().all(|receive| receive.used)
    }

    /// What no oracle can know is taken as it is.
    pub(super) fn finish<S: Storage>(&mut self, net: &Network<S>) {
        let unknown = self.flows.values().flat_map(|flow| flow.effects.values().flatten());
        for spot in self.free.iter().chain(unknown) {
            self.memory.take_over(net, *spot);
        }
    }
}

impl Expected {
    const fn of(done: &Completion) -> Self {
        let Completion { id, kind, bytes, immediate, solicited, invalidated, tag, .. } = *done;
        Self { id, kind, bytes, immediate, solicited, invalidated, tag }
    }
}

/// Takes the first receive that is left and as wanted.
fn take(posted: &mut [Posted], wanted: impl Fn(&Posted) -> bool) -> Option<&Posted> {
    let receive = posted.iter_mut().find(|receive| !receive.used && wanted(receive))?;
    receive.used = true;
    Some(receive)
}
