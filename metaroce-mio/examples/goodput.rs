//! Goodput and latency of two drivers on two threads over loopback, with every byte verified.
//!
//! `cargo run --release -p metaroce-mio --example goodput -- [size=1024] [loss=0] [message=1024] [address=127.0.0.1:0]
//! [gso=true] [paths=8] [pings=2000]`: size in MiB, message length in KiB.
#![expect(clippy::expect_used, reason = "an example ends at the first thing that goes wrong")]

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use metaroce_core::CloseMode;
use metaroce_core::event::{Event, Status};
use metaroce_core::ids::{ConnectionHandle, ProtectionDomain, StreamId};
use metaroce_core::region::Access;
use metaroce_core::request::{Operation, RemoteAddress, WorkRequest};
use metaroce_mio::{Blocking, DriverConfig, Faults, Region, RegionMemory};

const DOMAIN: ProtectionDomain = ProtectionDomain(0);
const PATIENCE: Duration = Duration::from_mins(2);
const REGION_BYTES: u64 = REGION_LENGTH as u64;
const REGION_LENGTH: usize = 64 << 20;
const OUTSTANDING_MAX: u64 = 64;

fn main() {
    let options = Options::parse();
    let (tell, told) = mpsc::channel();
    let server = {
        let options = options.clone();
        thread::spawn(move || serve(&options, &tell))
    };
    let (address, remote) = told.recv().expect("the server is up");
    let mut handle = options.handle(1);
    let connection = handle.connect(address, PATIENCE).expect("connected");
    let stream = handle.driver_mut().open_stream(connection).expect("a stream");
    let bytes: Vec<u8> = (0..REGION_BYTES).map(|i| (i % 251).to_le_bytes()).map(|[low, ..]| low).collect();
    let source = region(&mut handle, RegionMemory::copied_from(&bytes).expect("memory"));
    let sink = region(&mut handle, RegionMemory::zeroed(REGION_LENGTH).expect("memory"));
    let mut client = Client { handle, connection, stream, remote, source, sink };
    client.write(&options);
    client.verify(&options, &bytes);
    client.ping(&options);
    client.handle.close(connection, CloseMode::Drain, PATIENCE).expect("closed");
    server.join().expect("no panic");
}

struct Client {
    handle: Blocking,
    connection: ConnectionHandle,
    stream: StreamId,
    remote: RemoteAddress,
    source: Region,
    sink: Region,
}

impl Client {
    /// Writes message after message, round and round through the region, with a number of them outstanding.
    fn write(&mut self, options: &Options) {
        let (message, round) = (options.message, options.round());
        let count = options.size.div_ceil(message);
        let (mut posted, mut completed) = (0, 0);
        let start = Instant::now();
        while completed < count {
            while posted < count && posted - completed < OUTSTANDING_MAX {
                let offset = posted * message % round;
                let segments = [self.source.segment(offset, u32::try_from(message).expect("below 4 GiB"))];
                let remote = RemoteAddress { address: self.remote.address + offset, ..self.remote };
                let request =
                    WorkRequest::new(posted, Operation::Write { remote, immediate: None }, &segments);
                self.handle.driver_mut().post(self.connection, self.stream, request).expect("posted");
                posted += 1;
            }
            if let Some(Event::Completion(completion)) = self.handle.wait_event(PATIENCE).expect("waited") {
                assert_eq!(completion.status, Status::Success);
                completed += 1;
            }
        }
        let elapsed = start.elapsed().as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a figure to look at")]
        let gigabits = (count * message) as f64 * 8e-9 / elapsed;
        println!("goodput {gigabits:.2} Gbit/s: {} MiB in {elapsed:.3} s", (count * message) >> 20);
        let driver = self.handle.driver_mut();
        println!("{:?}", driver.endpoint_mut().connection_stats(self.connection).expect("open"));
        println!("client {:?}", driver.stats());
    }

    /// Reads the peer's region back and compares it.
    fn verify(&mut self, options: &Options, bytes: &[u8]) {
        let segments = [self.sink.segment(0, u32::try_from(REGION_BYTES).expect("fits"))];
        self.handle.read(self.connection, self.stream, &segments, self.remote, PATIENCE).expect("read back");
        let written = usize::try_from(options.size.min(options.round())).expect("fits");
        let mut back = vec![0; written];
        self.handle.driver().copy_out(self.sink, 0, &mut back).expect("inside");
        println!("verified: {}", bytes.get(..written) == Some(&back[..]));
    }

    /// Sends 64 bytes to and fro.
    fn ping(&mut self, options: &Options) {
        let (outbox, inbox) = ([self.source.segment(0, 64)], [self.sink.segment(0, 64)]);
        let mut times = Vec::new();
        for _ in 0..options.pings {
            let start = Instant::now();
            self.handle.send(self.connection, StreamId(0), &outbox, PATIENCE).expect("sent");
            self.handle.receive(self.connection, StreamId(0), &inbox, PATIENCE).expect("answered");
            times.push(start.elapsed());
        }
        times.sort_unstable();
        let percentile = |percent: usize| times.get(times.len() * percent / 100).copied().unwrap_or_default();
        println!("64-byte SEND and answer: p50 {:?} p99 {:?}", percentile(50), percentile(99));
    }
}

fn region(handle: &mut Blocking, memory: RegionMemory) -> Region {
    handle.driver_mut().register_region(memory, Access::ALL, DOMAIN).expect("registered")
}

fn serve(options: &Options, tell: &mpsc::Sender<(SocketAddr, RemoteAddress)>) {
    let mut server = options.handle(2);
    let target = region(&mut server, RegionMemory::zeroed(REGION_LENGTH).expect("memory"));
    let inbox = region(&mut server, RegionMemory::zeroed(4096).expect("memory"));
    tell.send((server.driver().local_address(), target.remote(0))).expect("somebody listens");
    let connection = server.accept(DOMAIN, PATIENCE).expect("accepted");
    let segments = [inbox.segment(0, 64)];
    for id in 0..options.pings {
        server.driver_mut().post_recv(connection, StreamId(0), id, &segments).expect("posted");
        if server.wait_completion(connection, StreamId(0), id, PATIENCE).is_err() {
            break;
        }
        server.send(connection, StreamId(0), &segments, PATIENCE).expect("answered");
    }
    while !matches!(server.wait_event(PATIENCE).expect("waited"), Some(Event::Closed { .. })) {}
    println!("server {:?}", server.driver().stats());
}

#[derive(Clone)]
struct Options {
    size: u64,
    message: u64,
    pings: u64,
    loss: f64,
    gso: bool,
    paths: u8,
    address: SocketAddr,
}

impl Options {
    fn parse() -> Self {
        let given: HashMap<String, String> = std::env::args()
            .skip(1)
            .filter_map(|argument| argument.split_once('=').map(|(name, value)| (name.into(), value.into())))
            .collect();
        let text = |name: &str, default: &str| given.get(name).cloned().unwrap_or_else(|| default.into());
        let number = |name: &str, default: &str| text(name, default).parse::<u64>().expect("a number");
        Self {
            size: number("size", "1024") << 20,
            message: (number("message", "1024") << 10).min(REGION_BYTES),
            pings: number("pings", "2000"),
            loss: text("loss", "0").parse().expect("a probability"),
            gso: text("gso", "true") == "true",
            paths: text("paths", "8").parse().expect("1 to 64"),
            address: text("address", "127.0.0.1:0").parse().expect("an address"),
        }
    }

    /// Bytes of the region that whole messages fill.
    fn round(&self) -> u64 {
        REGION_BYTES / self.message * self.message
    }

    fn handle(&self, seed: u64) -> Blocking {
        let mut config = DriverConfig::with_seed(self.address, seed);
        config.faults = Faults::loss(self.loss, seed);
        config.sockets.gso = self.gso;
        config.sockets.gro = self.gso;
        config.endpoint.paths_per_plane = self.paths;
        Blocking::with_config(config).expect("a handle")
    }
}
