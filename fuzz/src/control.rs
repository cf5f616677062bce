//! The control channel of a device under test: its lines, and the device behind them.
//!
//! An input that begins with `{` is text, a command a line, as a client sends it. Any other input is instructions: commands
//! whose numbers are likely to name something, packets of a peer, and time between them. What is understood is carried out
//! on a device that has a connection open to the suite. Every answer must be one that a client can read, nothing that a
//! device sends may break a rule that always holds, and after all that it can be started anew.

use arbitrary::{Arbitrary, Unstructured};
use metaroce_conformance::suite::control::{
    Answer, Command, HexBytes, LINE_BYTES_MAX, Place, Request, Right, Settings, Stretch, Tag, parse_answer,
    parse_command, to_line,
};
use metaroce_conformance::suite::wire::op;
use metaroce_conformance::suite::{InProcess, Link, Outcome, Region, Script, Shot, Source, Stop, Treat};

const STEPS_MAX: usize = 80;
const LINES_MAX: usize = 80;
const REGION_BYTES: u32 = 4096;
const US: u64 = 1_000;

/// Reads the bytes as lines of a client, or as instructions.
pub fn run(bytes: &[u8]) {
    let mut port = InProcess::new(1).expect("the device starts");
    let outcome =
        if bytes.first() == Some(&b'{') { lines(&mut port, bytes) } else { steps(&mut port, bytes) };
    match outcome {
        Ok(()) | Err(Stop::Skipped(_) | Stop::NotApplicable(_)) => {}
        Err(Stop::Failed { requirement, text }) => panic!("{requirement}: {text}"),
        Err(Stop::Broken(reason)) => panic!("{reason}"),
    }
}

/// A device with a region and an open connection, both number 0.
fn begin(port: &mut InProcess) -> Outcome<(Script<'_>, Scene)> {
    let mut script = Script::new(port, Settings::NONE, 1)?;
    let region = script.region(REGION_BYTES)?;
    let link = script.connect()?;
    Ok((script, Scene { region, link, alive: true }))
}

struct Scene {
    region: Region,
    link: Link,
    /// Whether the device has not been started anew since the connection opened.
    alive: bool,
}

fn lines(port: &mut InProcess, bytes: &[u8]) -> Outcome {
    let (mut script, mut scene) = begin(port)?;
    for line in bytes.split(|byte| *byte == b'\n').take(LINES_MAX) {
        if let Ok(command) = parse_command(line.trim_ascii_end()) {
            scene.ask(&mut script, &command)?;
            script.run(200 * US)?;
        }
    }
    end(&mut script)
}

fn steps(port: &mut InProcess, bytes: &[u8]) -> Outcome {
    let (mut script, mut scene) = begin(port)?;
    let mut input = Unstructured::new(bytes);
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        let Ok(step) = Step::arbitrary(&mut input) else { break };
        scene.play(&mut script, step)?;
    }
    end(&mut script)
}

/// The device still serves.
fn end(script: &mut Script<'_>) -> Outcome {
    script.done(&Command::Restart { settings: Settings::NONE })?;
    let answer = script.command(&Command::Hello {})?;
    assert!(matches!(answer, Answer::Hello { .. }), "{answer:?}");
    Ok(())
}

#[derive(Clone, Debug, Arbitrary)]
enum Step {
    Ask(Ask),
    /// A packet of the peer.
    Send {
        opcode: u8,
        flags: u8,
        stream: u8,
        msn: u8,
        length: u8,
        offset: u16,
    },
    /// The peer asks after a path.
    Probe {
        path: u8,
        stream: u8,
    },
    /// The peer acknowledges what came for a while, but for the packets whose bits are set.
    Serve {
        us: u16,
        lost: u8,
    },
    Wait {
        us: u16,
    },
}

#[derive(Clone, Debug, Arbitrary)]
enum Ask {
    Restart { settings: [Option<u32>; 6] },
    Register { length: u16, base: Number64, rights: u8, domain: u8 },
    OnRegion { region: u8, what: u8, offset: u16, length: u16 },
    Connect { service: u8, implicit: bool },
    OnConnection { connection: u8, what: u8, argument: u8 },
    OnStream { connection: u8, stream: u8, what: u8, queue: u8 },
    Post { connection: u8, stream: u8, request: Asked, segments: Segments, fence: bool, solicited: bool },
    Receive { connection: u8, stream: u8, segments: Segments, tag: Option<(u8, u8)> },
    Queue { domain: u8, datagrams: Option<(u8, u8)> },
    QueueReceive { queue: u8, segments: Segments },
    Datagram { connection: u8, queue: u8, key: u8, segments: Segments },
    Poll,
    Counters,
}

#[derive(Clone, Copy, Debug, Arbitrary)]
enum Asked {
    Send { immediate: Option<u32> },
    SendInvalidate { key: u32 },
    SendTagged { bits: u8 },
    Write { to: Number64, immediate: Option<u32> },
    WriteSignal { to: Number64, signal: Number64 },
    Read { from: Number64 },
    Atomic { word: Number64, opcode: u8 },
}

/// A number that is most often small.
#[derive(Clone, Copy, Debug, Arbitrary)]
enum Number64 {
    Small(u8),
    Any(u64),
}

impl Number64 {
    fn get(self) -> u64 {
        match self {
            Self::Small(number) => u64::from(number) * 8,
            Self::Any(number) => number,
        }
    }
}

#[derive(Clone, Debug, Arbitrary)]
struct Segments {
    count: u8,
    region: u8,
    offset: u16,
    length: u16,
}

impl Segments {
    fn list(&self) -> Vec<Stretch> {
        let one = Stretch {
            region: small(self.region),
            offset: u32::from(self.offset),
            length: u32::from(self.length % 5_000),
        };
        vec![one; usize::from(self.count % 6)]
    }
}

/// A number that most often names one of the first few.
fn small(number: u8) -> u32 {
    if number < 240 { u32::from(number % 3) } else { u32::from(number) << 24 }
}

fn stream(number: u8) -> u16 {
    u16::from(number % 4)
}

impl Scene {
    fn play(&mut self, script: &mut Script<'_>, step: Step) -> Outcome {
        match step {
            Step::Ask(ask) => {
                let command = ask.command(script.local(Source::Main)?);
                self.ask(script, &command)
            }
            Step::Send { opcode, flags, stream: number, msn, length, offset } if self.alive => {
                let data = metaroce_conformance::suite::wire::DataFields {
                    opcode: if opcode < 200 {
                        [op::SEND, op::WRITE][usize::from(opcode % 2)]
                    } else {
                        opcode % 32
                    },
                    flags: 1 | flags,
                    stream: stream(number),
                    msn: u32::from(msn % 16),
                    receive_index: u32::from(msn % 16),
                    length: u32::from(length),
                    key: self.region.key,
                    address: u64::from(offset % 5_000),
                    payload: vec![length; usize::from(length)],
                    ..Default::default()
                };
                // What is malformed is dropped, and its numbers were never used.
                script.monitor.lenient_acks = true;
                script.fire(&mut self.link, Shot::on(0), &data).map(drop)
            }
            Step::Probe { path, stream: number } if self.alive => {
                let path = path % self.link.paths().max(1);
                script.send_probe(&mut self.link, path, stream(number)).map(drop)
            }
            Step::Serve { us, lost } if self.alive => {
                let mut number = 0;
                let mut policy = |_: &_| {
                    number = (number + 1) % 8;
                    if lost >> number & 1 == 1 { Treat::Lose } else { Treat::Accept }
                };
                script
                    .serve(&mut self.link, u64::from(us % 2_000) * US, &mut policy, &mut |_, _| Ok(false))?;
                Ok(())
            }
            Step::Wait { us } => script.run(u64::from(us) * US),
            _ => Ok(()),
        }
    }

    fn ask(&mut self, script: &mut Script<'_>, command: &Command) -> Outcome {
        let line = to_line(command);
        assert!(
            line.len() > LINE_BYTES_MAX || parse_command(line.trim_end().as_bytes()).as_ref() == Ok(command),
            "{line}"
        );
        let answer = match script.command(command) {
            // Of a command, or of a value in it.
            Err(Stop::Skipped(_)) => return Ok(()),
            answer => answer?,
        };
        self.alive &= !matches!((command, &answer), (Command::Restart { .. }, Answer::Done));
        let line = to_line(&answer);
        let read = parse_answer(line.trim_end().as_bytes());
        assert_eq!(read.as_ref(), Ok(&answer), "a client can't read the answer to {command:?}");
        if let (Command::Read { length, .. }, Answer::Memory { bytes }) = (command, &answer) {
            assert_eq!(bytes.0.len(), *length as usize);
        }
        Ok(())
    }
}

impl Ask {
    fn command(self, remote: std::net::SocketAddr) -> Command {
        match self {
            Self::Restart { settings: [connections, streams, messages, window, ms, credits] } => {
                Command::Restart {
                    settings: Settings {
                        connections,
                        streams,
                        messages,
                        csn_window: window,
                        fail_after_ms: ms,
                        initial_credits: credits,
                        ..Settings::NONE
                    },
                }
            }
            Self::Register { length, base, rights, domain } => Command::Register {
                length: u32::from(length) << (rights >> 4),
                base: base.get(),
                rights: (0..4).filter(|bit| rights >> bit & 1 == 1).map(|bit| Right::ALL[bit]).collect(),
                domain: u32::from(domain % 3),
            },
            Self::OnRegion { region, what, offset, length } => on_region(small(region), what, offset, length),
            Self::Connect { service, implicit } => Command::Connect {
                remote,
                service: u32::from(service % 4),
                implicit,
                domain: 0,
                private: HexBytes(vec![service; usize::from(service)]),
            },
            Self::OnConnection { connection, what, argument } => {
                on_connection(small(connection), what, argument)
            }
            Self::OnStream { connection, stream: number, what, queue } => {
                let (connection, stream) = (small(connection), stream(number));
                match what % 3 {
                    0 => Command::OpenStream { connection },
                    1 => Command::ConfigureStream { connection, stream, queue: small(queue) },
                    _ => Command::ResetStream { connection, stream },
                }
            }
            Self::Post { connection, stream: number, request, segments, fence, solicited } => Command::Post {
                connection: small(connection),
                stream: stream(number),
                id: u64::from(number),
                request: request.request(),
                segments: segments.list(),
                fence,
                solicited,
            },
            Self::Receive { connection, stream: number, segments, tag } => Command::PostReceive {
                connection: small(connection),
                stream: stream(number),
                id: u64::from(number),
                segments: segments.list(),
                tag: tag.map(|(bits, ignored)| Tag { bits: u64::from(bits), ignored: u64::from(ignored) }),
            },
            Self::Queue { domain, datagrams } => Command::CreateQueue {
                domain: u32::from(domain % 3),
                datagrams: datagrams.map(|(number, key)| (u32::from(number), u32::from(key))),
            },
            Self::QueueReceive { queue, segments } => {
                Command::PostQueueReceive { queue: small(queue), id: 1, segments: segments.list() }
            }
            Self::Datagram { connection, queue, key, segments } => Command::PostDatagram {
                connection: small(connection),
                id: 2,
                queue: u32::from(queue),
                key: u32::from(key),
                segments: segments.list(),
            },
            Self::Poll => Command::Poll {},
            Self::Counters => Command::Counters {},
        }
    }
}

fn on_region(region: u32, what: u8, offset: u16, length: u16) -> Command {
    let offset = u32::from(offset % 5_000);
    match what % 8 {
        0 => Command::Rekey { region },
        1 => Command::Deregister { region },
        2..=4 => Command::Read { region, offset, length: u32::from(length) << (what >> 4) },
        _ => Command::Write { region, offset, bytes: HexBytes(vec![what; usize::from(length % 5_000)]) },
    }
}

fn on_connection(connection: u32, what: u8, argument: u8) -> Command {
    let private = HexBytes(vec![argument; usize::from(what)]);
    match what % 5 {
        0 => Command::Accept { connection, domain: u32::from(argument % 3), private },
        1 => Command::Reject { connection, reason: u16::from(argument) << (argument % 8), private },
        2 => Command::Close { connection, flush: argument % 2 == 1 },
        3 => Command::Repath { connection, path: argument % 10 },
        _ => Command::Path { connection, path: argument % 10 },
    }
}

impl Asked {
    fn request(self) -> Request {
        let place = |address: Number64| Place { key: 5, address: address.get() };
        match self {
            Self::Send { immediate } => Request::Send { immediate },
            Self::SendInvalidate { key } => Request::SendInvalidate { key },
            Self::SendTagged { bits } => Request::SendTagged { bits: u64::from(bits) },
            Self::Write { to, immediate } => Request::Write { to: place(to), immediate },
            Self::WriteSignal { to, signal } => {
                Request::WriteSignal { to: place(to), signal: place(signal), addend: 1 }
            }
            Self::Read { from } => Request::Read { from: place(from) },
            Self::Atomic { word, opcode } => {
                Request::Atomic { word: place(word), opcode: 0x0f + opcode % 10, operands: (1, 2) }
            }
        }
    }
}
