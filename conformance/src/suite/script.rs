//! What a case says: sends, waits, commands, checks; and the record of all that was said.

use std::net::SocketAddr;

use metaroce_core::Ecn;
use metaroce_core::wire::PacketType;

use super::control::{Answer, Command, DeviceEvent, HexBytes, Request, Right, Settings, Stretch};
use super::link::{Link, Region, low};
use super::monitor::{Monitor, Sent};
use super::packet::{Packet, Terms};
use super::port::{Port, Source};
use super::stop::{Outcome, Stop};
use super::wire::{AckFields, BaseFields, ConnectFields, DataFields, confirm, control, kind, probe};
use crate::Random;

/// Nanoseconds of a microsecond.
pub const US: u64 = 1_000;
/// Nanoseconds of a millisecond.
pub const MS: u64 = 1_000_000;
/// Nanoseconds of a second.
pub const S: u64 = 1_000_000_000;

/// One line of the record.
#[derive(Clone, Debug)]
pub struct Entry {
    /// When, ns since the case began.
    pub at_ns: u64,
    /// Where from.
    pub from: SocketAddr,
    /// Where to.
    pub to: SocketAddr,
    /// ECN codepoint.
    pub ecn: Ecn,
    /// The UDP payload.
    pub bytes: Vec<u8>,
    /// Whether the suite sent it.
    pub ours: bool,
}

/// How the suite treats a packet of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treat {
    /// Enters it as accepted, and tells so.
    Accept,
    /// Enters it as refused, and tells so.
    Refuse,
    /// As if it had never come.
    Lose,
}

/// A transmission of the suite, and where it differs from the next in line.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shot {
    /// The path.
    pub path: u8,
    /// Another source than that of the path.
    pub source: Option<Source>,
    /// Another CSN than the next.
    pub csn: Option<u32>,
    /// Another PSN than the next.
    pub psn: Option<u32>,
    /// Marked with congestion.
    pub marked: bool,
}

impl Shot {
    /// The next in line on `path`.
    #[must_use]
    pub fn on(path: u8) -> Self {
        Self { path, ..Self::default() }
    }

    /// Under this CSN.
    #[must_use]
    pub fn csn(self, csn: u32) -> Self {
        Self { csn: Some(csn), ..self }
    }
}

/// What was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fired {
    /// The path.
    pub path: u8,
    /// The PSN.
    pub psn: u32,
    /// The CSN; that of a PROBE says nothing.
    pub csn: u32,
    /// The timestamp.
    pub timestamp: u32,
}

/// One run of one case.
pub struct Script<'a> {
    port: &'a mut dyn Port,
    start_ns: u64,
    /// All datagrams of both sides.
    pub record: Vec<Entry>,
    packets: Vec<Packet>,
    events: Vec<DeviceEvent>,
    /// Rules that always hold.
    pub monitor: Monitor,
    random: Random,
}

impl<'a> Script<'a> {
    /// Starts the device anew, with `settings`.
    ///
    /// # Errors
    /// If the device can't take the settings: the case is skipped.
    pub fn new(port: &'a mut dyn Port, settings: Settings, seed: u64) -> Outcome<Self> {
        let mut random = Random::new(seed);
        random.below(2);
        let peer_port = port.local(Source::Main).map(|address| address.port());
        let settings = Settings { peer_port: settings.peer_port.or(peer_port), ..settings };
        let device_port = port.device().port();
        let start_ns = port.now_ns();
        let mut script = Self {
            port,
            start_ns,
            record: Vec::new(),
            packets: Vec::new(),
            events: Vec::new(),
            monitor: Monitor::new(device_port),
            random,
        };
        match script.command(&Command::Restart { settings })? {
            Answer::Done => Ok(script),
            Answer::Unsupported { reason } | Answer::Refused { reason } => {
                Err(Stop::Skipped(format!("the device can't be set up for it: {reason}")))
            }
            other => Err(Stop::Broken(format!("restart is answered by {other:?}"))),
        }
    }

    /// Whether time is virtual.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.port.is_exact()
    }

    /// `exact` in virtual time, `real` on sockets.
    #[must_use]
    pub fn pick<T>(&self, exact: T, real: T) -> T {
        if self.is_exact() { exact } else { real }
    }

    /// Now, ns of the port's clock.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.port.now_ns()
    }

    /// Where the device receives.
    #[must_use]
    pub fn device(&self) -> SocketAddr {
        self.port.device()
    }

    /// An address of the suite.
    ///
    /// # Errors
    /// If there is none of this kind: the case is skipped.
    pub fn local(&self, source: Source) -> Outcome<SocketAddr> {
        self.port.local(source).ok_or_else(|| Stop::Skipped(format!("no source of kind {source:?} here")))
    }

    /// A random number.
    pub fn random(&mut self) -> u64 {
        self.random.below(1 << 32) << 32 | self.random.below(1 << 32)
    }

    /// Has the device carry out a command.
    ///
    /// # Errors
    /// If the control channel is gone.
    pub fn command(&mut self, command: &Command) -> Outcome<Answer> {
        let answer = self.port.command(command)?;
        if let Answer::Unsupported { reason } = &answer {
            return Err(Stop::Skipped(format!("the device does not know the command: {reason}")));
        }
        Ok(answer)
    }

    /// Has the device carry out a command that must succeed.
    ///
    /// # Errors
    /// If it is refused: [`Stop::Broken`].
    pub fn done(&mut self, command: &Command) -> Outcome {
        match self.command(command)? {
            Answer::Done => Ok(()),
            other => Err(Stop::Broken(format!("{command:?} is answered by {other:?}"))),
        }
    }

    /// Registers a region with all rights, in domain 0.
    ///
    /// # Errors
    /// As [`command`](Self::command).
    pub fn region(&mut self, length: u32) -> Outcome<Region> {
        self.region_with(length, 0, &Right::ALL, 0)
    }

    /// Registers a region.
    ///
    /// # Errors
    /// As [`command`](Self::command).
    pub fn region_with(&mut self, length: u32, base: u64, rights: &[Right], domain: u32) -> Outcome<Region> {
        let command = Command::Register { length, base, rights: rights.to_vec(), domain };
        match self.command(&command)? {
            Answer::Region { region, key } => Ok(Region { number: region, key, base, length }),
            other => Err(Stop::Broken(format!("{command:?} is answered by {other:?}"))),
        }
    }

    /// Bytes of a region.
    ///
    /// # Errors
    /// As [`command`](Self::command).
    pub fn memory(&mut self, region: &Region, offset: u32, length: u32) -> Outcome<Vec<u8>> {
        match self.command(&Command::Read { region: region.number, offset, length })? {
            Answer::Memory { bytes } => Ok(bytes.0),
            other => Err(Stop::Broken(format!("read is answered by {other:?}"))),
        }
    }

    /// Fills bytes of a region.
    ///
    /// # Errors
    /// As [`command`](Self::command).
    pub fn fill(&mut self, region: &Region, offset: u32, bytes: &[u8]) -> Outcome {
        self.done(&Command::Write { region: region.number, offset, bytes: HexBytes(bytes.to_vec()) })
    }

    /// Posts a request of one segment.
    ///
    /// # Errors
    /// As [`command`](Self::command).
    pub fn post(&mut self, link: &Link, stream: u16, id: u64, request: Request, local: Stretch) -> Outcome {
        self.done(&Command::Post {
            connection: link.number,
            stream,
            id,
            request,
            segments: vec![local],
            fence: false,
            solicited: false,
        })
    }

    /// Posts a receive of one segment.
    ///
    /// # Errors
    /// As [`command`](Self::command).
    pub fn post_receive(&mut self, link: &Link, stream: u16, id: u64, local: Stretch) -> Outcome {
        self.done(&Command::PostReceive {
            connection: link.number,
            stream,
            id,
            segments: vec![local],
            tag: None,
        })
    }

    /// How many datagrams of a kind the device dropped; none if it does not count.
    ///
    /// # Errors
    /// As [`command`](Self::command).
    pub fn dropped(&mut self, name: &str) -> Outcome<Option<u64>> {
        match self.port.command(&Command::Counters)? {
            Answer::Counters { dropped, .. } => Ok(dropped.get(name).copied()),
            _ => Ok(None),
        }
    }

    // Time and packets.

    /// The place in the record of the device's packets.
    #[must_use]
    pub fn mark(&self) -> usize {
        self.packets.len()
    }

    /// The device's packets since `mark`.
    #[must_use]
    pub fn since(&self, mark: usize) -> &[Packet] {
        self.packets.get(mark..).unwrap_or_default()
    }

    /// The next packet of the device that comes before `until_ns`.
    ///
    /// # Errors
    /// If it breaks a rule that always holds.
    pub fn next(&mut self, until_ns: u64) -> Outcome<Option<Packet>> {
        let Some(arrival) = self.port.receive(until_ns)? else { return Ok(None) };
        let to = match arrival.to {
            0 => Source::Main,
            255 => Source::Stranger,
            number => Source::Other(number),
        };
        self.record.push(Entry {
            at_ns: arrival.at_ns.saturating_sub(self.start_ns),
            from: arrival.from,
            to: self.port.local(to).unwrap_or(arrival.from),
            ecn: arrival.ecn,
            bytes: arrival.bytes.clone(),
            ours: false,
        });
        let base = self.monitor.check_bytes(&arrival.bytes)?;
        let packet = Packet {
            at_ns: arrival.at_ns,
            source_port: arrival.from.port(),
            to: arrival.to,
            ecn: arrival.ecn,
            base,
            bytes: arrival.bytes,
        };
        self.monitor.check(&packet, self.port.is_exact())?;
        self.packets.push(packet.clone());
        Ok(Some(packet))
    }

    /// Lets `span_ns` pass.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn run(&mut self, span_ns: u64) -> Outcome {
        let until = self.now() + span_ns;
        while self.now() < until {
            self.next(until)?;
        }
        Ok(())
    }

    /// Lets things settle that happen at once: some RTTs.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn settle(&mut self) -> Outcome {
        self.run(self.pick(2 * MS, 30 * MS))
    }

    /// The first packet since `mark` that fits, waited for.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn wait(
        &mut self,
        mark: usize,
        span_ns: u64,
        fits: impl Fn(&Packet) -> bool,
    ) -> Outcome<Option<Packet>> {
        if let Some(packet) = self.since(mark).iter().find(|packet| fits(packet)) {
            return Ok(Some(packet.clone()));
        }
        let until = self.now() + span_ns;
        loop {
            match self.next(until)? {
                Some(packet) if fits(&packet) => return Ok(Some(packet)),
                None if self.now() >= until => return Ok(None),
                _ => {}
            }
        }
    }

    /// The first packet since `mark` that fits, waited for; without one the requirement is broken.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn expect(
        &mut self,
        requirement: &str,
        mark: usize,
        what: &str,
        fits: impl Fn(&Packet) -> bool,
    ) -> Outcome<Packet> {
        let span = self.pick(S, 4 * S);
        let found = self.wait(mark, span, fits)?;
        found.ok_or_else(|| Stop::failed(requirement, format!("{what}: it never came")))
    }

    /// A condition that the requirement asks for.
    ///
    /// # Errors
    /// If it does not hold.
    pub fn check(&self, requirement: &str, holds: bool, text: impl FnOnce() -> String) -> Outcome {
        if holds { Ok(()) } else { Err(Stop::failed(requirement, text())) }
    }

    // Events of the device.

    /// The events of the device so far.
    ///
    /// # Errors
    /// As [`command`](Self::command).
    pub fn poll(&mut self) -> Outcome<&[DeviceEvent]> {
        match self.command(&Command::Poll)? {
            Answer::Events { events } => self.events.extend(events),
            other => return Err(Stop::Broken(format!("poll is answered by {other:?}"))),
        }
        Ok(&self.events)
    }

    /// The first event that fits, waited for.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn wait_event(
        &mut self,
        span_ns: u64,
        fits: impl Fn(&DeviceEvent) -> bool,
    ) -> Outcome<Option<DeviceEvent>> {
        let until = self.now() + span_ns;
        loop {
            if let Some(event) = self.poll()?.iter().find(|event| fits(event)) {
                return Ok(Some(event.clone()));
            }
            if self.now() >= until {
                return Ok(None);
            }
            self.run((until - self.now()).min(self.pick(100 * US, 3 * MS)))?;
        }
    }

    /// The first event that fits; without one the requirement is broken.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn expect_event(
        &mut self,
        requirement: &str,
        what: &str,
        fits: impl Fn(&DeviceEvent) -> bool,
    ) -> Outcome<DeviceEvent> {
        let span = self.pick(S, 4 * S);
        let found = self.wait_event(span, fits)?;
        found.ok_or_else(|| Stop::failed(requirement, format!("{what}: it was never reported")))
    }

    /// The completion with this id, if it has come.
    ///
    /// # Errors
    /// As [`command`](Self::command).
    pub fn completion(&mut self, id: u64) -> Outcome<Option<DeviceEvent>> {
        let fits = |event: &&DeviceEvent| matches!(event, DeviceEvent::Completion { id: of, .. } if *of == id);
        Ok(self.poll()?.iter().find(fits).cloned())
    }

    /// The status of the completion with this id; without one the requirement is broken.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn expect_completion(&mut self, requirement: &str, id: u64) -> Outcome<DeviceEvent> {
        self.expect_event(requirement, &format!("the completion of {id}"), |event| {
            matches!(event, DeviceEvent::Completion { id: of, .. } if *of == id)
        })
    }

    /// Ids of all completions, in their order.
    ///
    /// # Errors
    /// As [`command`](Self::command).
    pub fn completed_ids(&mut self) -> Outcome<Vec<u64>> {
        let id = |event: &DeviceEvent| match event {
            DeviceEvent::Completion { id, .. } => Some(*id),
            _ => None,
        };
        Ok(self.poll()?.iter().filter_map(id).collect())
    }

    // Sending.

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
        let base =
            BaseFields { path: shot.path, epoch, psn, ..self.base(kind::DATA, link.theirs()) };
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
        let source = shot.source.unwrap_or(Source::Other(1 + fired.path % super::port::SOURCES));
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
        let source = shot.source.unwrap_or(Source::Other(1 + fired.path % super::port::SOURCES));
        self.send_raw(source, &bytes)
    }

    /// Sends a PROBE that asks about a stream (0xffff: none); returns its token and numbers.
    ///
    /// # Errors
    /// As the port.
    pub fn send_probe(&mut self, link: &mut Link, path: u8, stream: u16) -> Outcome<(u64, Fired)> {
        let token = self.random();
        let psn = link.take_psn(path);
        let epoch = link.epochs.get(&path).copied().unwrap_or(0);
        let base = BaseFields { path, epoch, psn, ..self.base(kind::PROBE, link.theirs()) };
        let sent = Sent { csn: None, timestamp: base.timestamp, copies: 1 };
        self.monitor.on_sent(link, path, psn, sent);
        let bytes = base.datagram(&probe(stream, 0, token, 64));
        self.send_raw(Source::Other(1 + path % super::port::SOURCES), &bytes)?;
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
        self.serve(link, span, &mut |_| Treat::Accept, &mut |script, _| Ok(script.completion(id)?.is_some()))?;
        match self.completion(id)? {
            Some(DeviceEvent::Completion { status, .. }) => Ok(status),
            _ => Err(Stop::failed(requirement, format!("request {id} never completes"))),
        }
    }

    // Opening.

    /// Opens a connection to the device, which accepts into domain 0.
    ///
    /// # Errors
    /// If the handshake fails.
    pub fn connect(&mut self) -> Outcome<Link> {
        self.connect_with(|_| {}, 0)
    }

    /// Opens a connection to the device with other terms.
    ///
    /// # Errors
    /// If the handshake fails.
    pub fn connect_with(&mut self, change: impl FnOnce(&mut ConnectFields), domain: u32) -> Outcome<Link> {
        let mut asked = self.new_terms(control::CONNECT);
        change(&mut asked);
        let mark = self.mark();
        let before = self.incoming_numbers()?.len();
        self.send_connect(Source::Main, &asked)?;
        let number = self.incoming("MR-HS-1", before + 1)?;
        self.done(&Command::Accept { connection: number, domain, private: HexBytes::default() })?;
        let terms = self.expect_accept(mark, &asked)?;
        let link = Link::new(number, asked, terms);
        self.monitor.watch(&link);
        self.send_control(link.theirs(), &confirm(link.terms.nonce))?;
        self.expect_event("MR-HS-14", "the connection opens", |event| {
            *event == DeviceEvent::Connected { connection: number }
        })?;
        Ok(link)
    }

    /// Random identity and generous terms.
    pub fn new_terms(&mut self, kind: u8) -> ConnectFields {
        let (id, nonce) = (low(self.random()) | 1, self.random());
        ConnectFields::new(kind, id, nonce)
    }

    /// The name of the `count`th incoming connection, waited for.
    ///
    /// # Errors
    /// If it does not come.
    pub fn incoming(&mut self, requirement: &str, count: usize) -> Outcome<u32> {
        let span = self.pick(S, 4 * S);
        let until = self.now() + span;
        loop {
            let numbers = self.incoming_numbers()?;
            if let Some(number) = count.checked_sub(1).and_then(|index| numbers.get(index)) {
                return Ok(*number);
            }
            if self.now() >= until {
                return Err(Stop::failed(requirement, "a CONNECT is not reported"));
            }
            self.run(self.pick(50 * US, 3 * MS))?;
        }
    }

    /// The names of all incoming connections so far.
    ///
    /// # Errors
    /// As [`command`](Self::command).
    pub fn incoming_numbers(&mut self) -> Outcome<Vec<u32>> {
        let number = |event: &DeviceEvent| match event {
            DeviceEvent::Incoming { connection, .. } => Some(*connection),
            _ => None,
        };
        Ok(self.poll()?.iter().filter_map(number).collect())
    }

    /// The terms of the ACCEPT that answers `asked`.
    ///
    /// # Errors
    /// If it does not come.
    pub fn expect_accept(&mut self, mark: usize, asked: &ConnectFields) -> Outcome<Terms> {
        let id = asked.id;
        let accept = self.expect("MR-HS-11", mark, "an ACCEPT", |packet| {
            packet.base.connection.0 == id
                && matches!(packet.control(), Some(metaroce_core::wire::Control::Accept(_)))
        })?;
        let terms = accept.terms().ok_or_else(|| Stop::failed("MR-WIRE-28", "ACCEPT has no terms"))?;
        self.check("MR-HS-8", terms.echo == asked.nonce, || {
            format!("ACCEPT echoes {:016x}, CONNECT had {:016x}", terms.echo, asked.nonce)
        })?;
        Ok(terms)
    }

    /// Has the device open a connection to the suite.
    ///
    /// # Errors
    /// If the handshake fails.
    pub fn be_connected_to(&mut self, change: impl FnOnce(&mut ConnectFields)) -> Outcome<Link> {
        let mark = self.mark();
        let remote = self.local(Source::Main)?;
        let command = Command::Connect {
            remote,
            service: 0,
            implicit: false,
            domain: 0,
            private: HexBytes::default(),
        };
        let Answer::Connection { connection } = self.command(&command)? else {
            return Err(Stop::Broken("connect is not answered by a connection".to_owned()));
        };
        let connect = self.expect("MR-HS-10", mark, "a CONNECT", |packet| {
            matches!(packet.control(), Some(metaroce_core::wire::Control::Connect(_)))
        })?;
        let terms = connect.terms().ok_or_else(|| Stop::failed("MR-WIRE-28", "CONNECT has no terms"))?;
        let mut answer = ConnectFields { echo: terms.nonce, ..self.new_terms(control::ACCEPT) };
        change(&mut answer);
        self.send_control(terms.id, &answer.body())?;
        let link = Link::new(connection, answer, terms);
        self.monitor.watch(&link);
        self.expect_event("MR-HS-8", "the connection opens", |event| {
            *event == DeviceEvent::Connected { connection }
        })?;
        Ok(link)
    }
}
