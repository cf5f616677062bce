//! What a case sends, and how it plays a receiver.

use metaroce_core::Ecn;
use metaroce_core::wire::PacketType;

use super::super::control::DeviceEvent;
use super::super::link::{Link, low};
use super::super::monitor::Sent;
use super::super::packet::Packet;
use super::super::port::Source;
use super::super::stop::{Outcome, Stop};
use super::super::wire::{AckFields, BaseFields, ConnectFields, DataFields, kind, probe};
use super::{Entry, Fired, MS, S, Script, Shot, Treat, US};

impl Script<'_> {
    /// The timestamp of now.
    #[must_use]
    pub fn timestamp(&self) -> u32 {
        low(self.now() / 16)
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// As the port.
    pub fn send_raw(&mut self, source: Source, bytes: &[u8]) -> Outcome {
        self.send_marked(source, Ecn::Ect0, bytes)
    }

    /// Sends bytes with an ECN codepoint.
    ///
    /// # Errors
    /// As the port.
    pub fn send_marked(&mut self, source: Source, ecn: Ecn, bytes: &[u8]) -> Outcome {
        let from = self.local(source)?;
        self.port.send(source, ecn, bytes)?;
        self.record.push(Entry {
            at_ns: self.now().saturating_sub(self.start_ns),
            from,
            to: self.device(),
            ecn,
            bytes: bytes.to_vec(),
            ours: true,
        });
        Ok(())
    }

    /// Sends CONTROL from the receive port.
    ///
    /// # Errors
    /// As the port.
    pub fn send_control(&mut self, connection: u32, body: &[u8]) -> Outcome {
        let bytes = self.base(kind::CONTROL, connection).datagram(body);
        self.send_raw(Source::Main, &bytes)
    }

    /// Sends a CONNECT, padded.
    ///
    /// # Errors
    /// As the port.
    pub fn send_connect(&mut self, source: Source, fields: &ConnectFields) -> Outcome {
        let bytes = self.connect_bytes(fields, 640);
        self.send_raw(source, &bytes)
    }

    /// A CONNECT of so many bytes.
    #[must_use]
    pub fn connect_bytes(&self, fields: &ConnectFields, bytes: usize) -> Vec<u8> {
        let mut body = fields.body();
        body.resize(bytes.saturating_sub(20), 0);
        self.base(kind::CONTROL, 0).datagram(&body)
    }

    /// A base header with the time.
    #[must_use]
    pub fn base(&self, kind: u8, connection: u32) -> BaseFields {
        BaseFields { kind, connection, timestamp: self.timestamp(), ..BaseFields::default() }
    }

    /// The datagram of a DATA packet, and its numbers, taken from `link`.
    pub fn data_bytes(&self, link: &mut Link, shot: Shot, data: &DataFields) -> (Fired, Vec<u8>) {
        let csn = shot.csn.unwrap_or_else(|| link.take_csn());
        let psn = shot.psn.unwrap_or_else(|| link.take_psn(shot.path));
        let epoch = link.epochs.get(&shot.path).copied().unwrap_or(0);
        let base = BaseFields { path: shot.path, epoch, psn, ..self.base(kind::DATA, link.theirs()) };
        let bytes = base.datagram(&DataFields { csn, ..data.clone() }.body());
        (Fired { path: shot.path, psn, csn, timestamp: base.timestamp }, bytes)
    }

    /// Sends DATA on a path, under the next CSN.
    ///
    /// # Errors
    /// As the port.
    pub fn send(&mut self, link: &mut Link, path: u8, data: &DataFields) -> Outcome<Fired> {
        self.fire(link, Shot::on(path), data)
    }

    /// Sends DATA.
    ///
    /// # Errors
    /// As the port.
    pub fn fire(&mut self, link: &mut Link, shot: Shot, data: &DataFields) -> Outcome<Fired> {
        let (fired, bytes) = self.data_bytes(link, shot, data);
        let sent = Sent { csn: Some(fired.csn), timestamp: fired.timestamp, copies: 1 };
        self.monitor.on_sent(link, fired.path, fired.psn, sent);
        let source = shot.source.unwrap_or_else(|| link.source_of(fired.path));
        self.send_marked(source, if shot.marked { Ecn::Ce } else { Ecn::Ect0 }, &bytes)?;
        Ok(fired)
    }

    /// Sends DATA that must be dropped: nothing of it may be acknowledged. CSN and PSN are those of the shot, or the next
    /// ones, which are not used up.
    ///
    /// # Errors
    /// As the port.
    pub fn fire_in_vain(&mut self, link: &Link, shot: Shot, data: &DataFields) -> Outcome {
        let mut copy = link.clone();
        let (fired, bytes) = self.data_bytes(&mut copy, shot, data);
        let source = shot.source.unwrap_or_else(|| link.source_of(fired.path));
        self.send_raw(source, &bytes)
    }

    /// Sends a PROBE that asks about a stream (0xffff: none); returns its token and numbers.
    ///
    /// # Errors
    /// As the port.
    pub fn send_probe(&mut self, link: &mut Link, path: u8, stream: u16) -> Outcome<(u64, Fired)> {
        self.send_demand(link, path, stream, 0)
    }

    /// The same, with a demand in KiB.
    ///
    /// # Errors
    /// As the port.
    pub fn send_demand(
        &mut self,
        link: &mut Link,
        path: u8,
        stream: u16,
        demand_kib: u32,
    ) -> Outcome<(u64, Fired)> {
        let token = self.random();
        let psn = link.take_psn(path);
        let epoch = link.epochs.get(&path).copied().unwrap_or(0);
        let base = BaseFields { path, epoch, psn, ..self.base(kind::PROBE, link.theirs()) };
        let sent = Sent { csn: None, timestamp: base.timestamp, copies: 1 };
        self.monitor.on_sent(link, path, psn, sent);
        let bytes = base.datagram(&probe(stream, demand_kib, token, 64));
        self.send_raw(link.source_of(path), &bytes)?;
        Ok((token, Fired { path, psn, csn: 0, timestamp: base.timestamp }))
    }

    /// Sends an ACK of these blocks and frames.
    ///
    /// # Errors
    /// As the port.
    pub fn send_ack(&mut self, link: &Link, blocks: &[AckFields], frames: &[u8]) -> Outcome {
        let bytes = self.base(kind::ACK, link.theirs()).datagram(&AckFields::body(blocks, frames));
        self.send_raw(Source::Other(1), &bytes)
    }

    /// Tells the device what the suite received on these paths, at most four an ACK.
    ///
    /// # Errors
    /// As the port.
    pub fn acknowledge(&mut self, link: &Link, paths: &[u8]) -> Outcome {
        self.acknowledge_with(link, paths, &[])
    }

    /// The same, with frames.
    ///
    /// # Errors
    /// As the port.
    pub fn acknowledge_with(&mut self, link: &Link, paths: &[u8], frames: &[u8]) -> Outcome {
        self.monitor.on_told(link);
        let now = self.now();
        for paths in paths.chunks(4) {
            let blocks: Vec<AckFields> = paths.iter().map(|path| link.acknowledgement(*path, now)).collect();
            self.send_ack(link, &blocks, frames)?;
        }
        Ok(())
    }

    /// Answers a PROBE, which must have been entered.
    ///
    /// # Errors
    /// As the port.
    pub fn reply(&mut self, link: &Link, asked: &Packet, frames: &[u8]) -> Outcome {
        let Some(probe) = asked.probe() else { return Ok(()) };
        self.monitor.on_told(link);
        let (block, refused) = link.acknowledgement(asked.base.path.0, self.now()).block();
        let mut body = probe.token.to_be_bytes().to_vec();
        body.extend(block);
        body.extend(refused);
        body.extend_from_slice(frames);
        let bytes = self.base(kind::PROBE_REPLY, link.theirs()).datagram(&body);
        self.send_raw(Source::Other(1), &bytes)
    }

    /// Plays a receiver: enters what comes as `policy` says, and acknowledges each batch at once, until `done` or for
    /// `span_ns`. Returns whether it was done.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn serve(
        &mut self,
        link: &mut Link,
        span_ns: u64,
        policy: &mut dyn FnMut(&Packet) -> Treat,
        done: &mut dyn FnMut(&mut Self, &mut Link) -> Outcome<bool>,
    ) -> Outcome<bool> {
        let until = self.now() + span_ns;
        loop {
            if done(self, link)? {
                return Ok(true);
            }
            let step = (self.now() + self.pick(200 * US, 2 * MS)).min(until);
            let mut batch: Vec<Packet> = self.next(step)?.into_iter().collect();
            while let Some(packet) = self.next(self.now())? {
                batch.push(packet);
            }
            self.take_in(link, &batch, policy)?;
            if self.now() >= until {
                return Ok(false);
            }
        }
    }

    /// Enters a batch and answers it.
    ///
    /// # Errors
    /// As the port.
    pub fn take_in(
        &mut self,
        link: &mut Link,
        batch: &[Packet],
        policy: &mut dyn FnMut(&Packet) -> Treat,
    ) -> Outcome {
        let mut paths = Vec::new();
        let mut probes = Vec::new();
        let mine = link.mine();
        for packet in batch.iter().filter(|packet| packet.base.connection.0 == mine) {
            if !matches!(packet.base.kind, PacketType::Data | PacketType::Probe) {
                continue;
            }
            let treat = policy(packet);
            if treat == Treat::Lose {
                continue;
            }
            link.enter(packet, treat == Treat::Accept);
            if packet.is(PacketType::Probe) {
                probes.push(packet.clone());
            } else if !paths.contains(&packet.base.path.0) {
                paths.push(packet.base.path.0);
            }
        }
        if !paths.is_empty() {
            self.acknowledge(link, &paths)?;
        }
        probes.iter().try_for_each(|probe| self.reply(link, probe, &[]))
    }

    /// Plays a receiver that accepts everything until the request is complete; without completion the requirement is
    /// broken.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn serve_completion(&mut self, requirement: &str, link: &mut Link, id: u64) -> Outcome<String> {
        let span = self.pick(20 * S, 20 * S);
        self.serve(link, span, &mut |_| Treat::Accept, &mut |script, _| {
            Ok(script.completion(id)?.is_some())
        })?;
        match self.completion(id)? {
            Some(DeviceEvent::Completion { status, .. }) => Ok(status),
            _ => Err(Stop::failed(requirement, format!("request {id} never completes"))),
        }
    }
}
