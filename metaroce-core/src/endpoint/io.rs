//! Datagrams, time and events: the loop of every driver.

use super::{Endpoint, Progress};
use crate::config::Config;
use crate::connection::{self, Sink, fill_snapshots, fill_turns, fill_urgent};
use crate::crc;
use crate::event::Event;
use crate::memory::Memory;
use crate::ring::Ring;
use crate::stats::DropReason;
use crate::storage::Storage;
use crate::table::{Idx, Table};
use crate::time::Instant;
use crate::transmit::{Datagram, Disposition, Transmit};
use crate::view::View;
use crate::wheel::{Expiry, Wheel};
use crate::wire::{BASE_BYTES, Base, Control, PacketType, WireError};

/// Timers that one call of `handle_timeout` looks at.
const TIMERS_PER_CALL: usize = 64;

impl<S: Storage> Endpoint<S> {
    /// Takes in a received datagram, whole. Network junk is no error: it is dropped, counted, and named in the
    /// answer.
    ///
    /// Cost: grows with the bytes of the datagram; an acknowledgement's with the packets in flight on the paths that it speaks
    /// of (MR-ACK-33); and where a packet completes, fails or ends something, with the requests, receives and messages that
    /// it was of one stream, or, with a CLOSE, of one connection. Never with the number of connections (MR-SEC-3). The worst
    /// datagrams known take 0.4 million instructions with [`Limits::SMALL`](crate::Limits::SMALL), 2.4 million with
    /// [`Limits::HOST`](crate::Limits::HOST), calls of `memory` included (`fuzz/tests/work.rs`).
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        datagram: Datagram<'_>,
        memory: &mut dyn Memory,
    ) -> Disposition {
        let Some(mut view) = self.view() else { return Disposition::Dropped(DropReason::NoRoom) };
        let disposition = dispatch(&mut view, now, &datagram, memory);
        let stats = &mut self.state.stats;
        match disposition {
            //= MR-WIRE-32
            Disposition::Dropped(reason) => {
                if let Some(count) = stats.dropped.get_mut(reason as usize) {
                    *count += 1;
                }
            }
            _ => stats.datagrams_received += 1,
        }
        disposition
    }

    /// Lets the timers fire that are due. Call when [`next_deadline`](Self::next_deadline) has come, until it says
    /// [`Progress::Done`].
    ///
    /// Cost: at most 64 timers a call, one for each connection that has something due. One costs O(paths), and on top of that
    /// what is in flight on paths that time out, or what is left on the streams of a connection that ends: in all no more than
    /// the tables hold. The worst calls known take 41,000 instructions with [`Limits::SMALL`](crate::Limits::SMALL); 12 million
    /// with [`Limits::HOST`](crate::Limits::HOST), where 64 connections at once send 15,000 packets again
    /// (`fuzz/tests/work.rs`).
    pub fn handle_timeout(&mut self, now: Instant) -> Progress {
        let Some(mut view) = self.view() else { return Progress::Done };
        // What waited for a line goes with the next `poll_transmit`.
        *view.line_opens_at = view.line_opens_at.filter(|opens_at| *opens_at > now);
        for _ in 0..TIMERS_PER_CALL {
            match view.wheel.poll_expired(now) {
                Expiry::Expired(node) => connection::on_timer(&mut view, now, Idx::new(node.raw())),
                Expiry::More => {}
                Expiry::Idle => return Progress::Done,
            }
        }
        Progress::More
    }

    /// Fills descriptors from the front; returns how many. Call again until it returns fewer than `out.len()`.
    ///
    /// A descriptor refers to registered memory: send it, or copy the payload, before the next call that may complete
    /// its work request.
    ///
    /// Cost: O(paths of the connection) for each descriptor filled, and O(1) for each connection that had news since the last
    /// call and turns out to have nothing to send. Refused packets whose request has failed meanwhile get their verdict here,
    /// once each. For 64 descriptors the worst calls known take 54,000 instructions with
    /// [`Limits::SMALL`](crate::Limits::SMALL), 0.18 million with [`Limits::HOST`](crate::Limits::HOST), and 1.4 million there
    /// with 8,192 packets refused and failed (`fuzz/tests/work.rs`).
    pub fn poll_transmit(&mut self, now: Instant, out: &mut [Transmit]) -> usize {
        let Some(mut view) = self.view() else { return 0 };
        let mut sink = Sink::new(out);
        view.replies.fill(now, &mut sink);
        fill_snapshots(&mut view, now, &mut sink);
        fill_urgent(&mut view, now, &mut sink);
        // Data waits for them to leave: a burst of them would else have it queue below, and later ones behind it.
        //= MR-SEC-13
        for urgent in sink.filled() {
            view.lines.on_sent(now, urgent.plane, urgent.datagram_length() as u64);
        }
        fill_turns(&mut view, now, &mut sink);
        let sent = sink.used();
        self.state.stats.datagrams_sent += sent as u64;
        sent
    }

    /// The oldest event that has not been taken. O(1).
    pub fn poll_event(&mut self) -> Option<Event> {
        // The one table that it needs: a view of all of them would cost more than the event.
        let event = Ring::new(self.storage.tables().events, &mut self.state.events).pop()?;
        if let Event::LimitReached { limit } = event {
            self.state.limits_told &= !(1 << limit as u8);
        }
        Some(event)
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called: a lower bound, `None` for never. Ask again
    /// after every other call. O(1).
    pub fn next_deadline(&mut self) -> Option<Instant> {
        let timers = Table::new(self.storage.tables().timers)?;
        let timer = Wheel::new(&mut self.state.wheel, timers).next_deadline();
        timer.into_iter().chain(self.state.line_opens_at).min()
    }
}

fn dispatch(
    view: &mut View<'_>,
    now: Instant,
    datagram: &Datagram<'_>,
    memory: &mut dyn Memory,
) -> Disposition {
    let (base, body) = match Base::parse(datagram.bytes) {
        Ok(parsed) => parsed,
        //= MR-WIRE-2, MR-WIRE-3
        Err(WireError::Version) => return Disposition::Dropped(DropReason::Version),
        //= MR-WIRE-4
        Err(_) => return Disposition::Dropped(DropReason::Malformed),
    };
    let control = base.kind == PacketType::Control;
    //= MR-WIRE-9, MR-WIRE-11
    if (control || view.config.checksum_wanted) && !checksum_is_right(view.config, datagram.bytes, &base) {
        return Disposition::Dropped(DropReason::Checksum);
    }
    if !control {
        return connection::on_packet(view, now, datagram, &base, body, memory);
    }
    match Control::parse(body) {
        Ok((control, _padding)) => connection::on_control(view, now, datagram, &base, &control),
        Err(_) => Disposition::Dropped(DropReason::Malformed),
    }
}

/// Whether the CRC32C over the whole datagram, its own field taken as zero, is the one in the field.
fn checksum_is_right(config: &Config, bytes: &[u8], base: &Base) -> bool {
    let Some((before, rest)) = bytes.split_at_checked(Base::CHECKSUM_FIELD.start) else { return false };
    let Some(after) = rest.get(BASE_BYTES - Base::CHECKSUM_FIELD.start..) else { return false };
    //= MR-WIRE-8
    let checksum = config.checksum;
    let state = checksum.update(crc::SEED, before);
    let state = checksum.update(state, &[0; 4]);
    crc::finish(checksum.update(state, after)) == base.checksum
}
