//! What a case says: sends, waits, commands, checks; and the record of all that was said.

mod opening;
mod sending;

use std::net::SocketAddr;

use metaroce_core::Ecn;

use super::control::{Answer, Command, DeviceEvent, HexBytes, Request, Right, Settings, Stretch};
use super::link::{Link, Region};
use super::monitor::Monitor;
use super::packet::Packet;
use super::port::{Port, Source};
use super::stop::{Outcome, Stop};
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
        match self.port.command(&Command::Counters {})? {
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
        let to = Source::of_number(arrival.to);
        self.record.push(Entry {
            at_ns: arrival.at_ns.saturating_sub(self.start_ns),
            from: arrival.from,
            to: self.port.local(to).unwrap_or(arrival.from),
            ecn: arrival.ecn,
            bytes: arrival.bytes.clone(),
            ours: false,
        });
        let base = Monitor::check_bytes(&arrival.bytes)?;
        let packet = Packet {
            at_ns: arrival.at_ns,
            source_ip: arrival.from.ip(),
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
        match self.command(&Command::Poll {})? {
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
        let fits =
            |event: &&DeviceEvent| matches!(event, DeviceEvent::Completion { id: of, .. } if *of == id);
        Ok(self.poll()?.iter().find(fits).cloned())
    }

    /// The status of the completion with this id; without one the requirement is broken.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn expect_completion(&mut self, requirement: &str, id: u64) -> Outcome<DeviceEvent> {
        self.expect_event(
            requirement,
            &format!("the completion of {id}"),
            |event| matches!(event, DeviceEvent::Completion { id: of, .. } if *of == id),
        )
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
}
