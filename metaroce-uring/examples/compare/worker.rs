//! One measurement.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use metaroce_core::CloseMode;
use metaroce_core::event::{Event, Status};
use metaroce_core::ids::{ConnectionHandle, ProtectionDomain, StreamId};
use metaroce_core::region::Access;
use metaroce_core::request::{Operation, PostError, RemoteAddress, WorkRequest};
use metaroce_mio::{
    BlockingDriver, DriverConfig, DriverStats, Faults, HostDriver, OpenBackend, Polled, Region, RegionMemory,
};
use metaroce_uring::{Uring, UringOptions};
use serde_json::{Value, json};

use crate::Options;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scenario {
    /// WRITEs of so many KiB, one after another.
    Bulk { kib: u64 },
    /// WRITEs of 64 bytes, many outstanding.
    Small,
    /// A SEND of 64 bytes and its answer, one at a time.
    Latency,
}

impl Scenario {
    pub(crate) const ALL: [Self; 5] = [
        Self::Bulk { kib: 64 },
        Self::Bulk { kib: 1024 },
        Self::Bulk { kib: 16 << 10 },
        Self::Small,
        Self::Latency,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Bulk { kib: 64 } => "bulk-64k",
            Self::Bulk { kib: 1024 } => "bulk-1m",
            Self::Bulk { .. } => "bulk-16m",
            Self::Small => "small",
            Self::Latency => "latency",
        }
    }
}

/// Runs on a backend, and tells what came out as JSON.
pub(crate) fn run(backend: &str, options: &Options) -> Value {
    match backend {
        "mio" => run_on::<Polled>(options, || ()),
        "uring" => run_on::<Uring>(options, || {
            let mut uring = UringOptions::default();
            let idle_ms = options.number("sqpoll", 0);
            uring.sq_poll_idle = (idle_ms > 0).then(|| Duration::from_millis(idle_ms));
            uring.receive_buffers =
                u16::try_from(options.number("buffers", 0)).ok().filter(|count| *count > 0);
            uring.submit_bytes = usize::try_from(options.number("submit", 128 << 10)).expect("fits");
            uring
        }),
        other => panic!("no backend {other}"),
    }
}

fn run_on<B: OpenBackend + 'static>(options: &Options, backend: impl Fn() -> B::Options) -> Value {
    let scenario = options.text("scenario", "bulk-1m");
    let scenario = Scenario::ALL.into_iter().find(|known| known.name() == scenario).expect("a scenario");
    let amount = options.number("amount", 0);
    let [a, b] = [1, 2].map(|seed| {
        let driver = HostDriver::<B>::with_options(config(options, seed), backend()).expect("a driver");
        let mut handle = BlockingDriver::from(driver);
        handle.set_spin(Duration::from_micros(options.number("spin", 20)));
        handle
    });
    let (tell, told) = mpsc::channel();
    let pings = if scenario == Scenario::Latency { amount } else { 0 };
    let server = thread::spawn(move || serve(b, pings, &tell));
    let (address, remote) = told.recv().expect("the server is up");
    let mut client = Client::connect(a, address, remote);
    let before = client.handle.driver().stats();
    let (start, cpu_start) = (Instant::now(), processor_time());
    let mut times = Vec::new();
    let bytes = match scenario {
        Scenario::Bulk { kib } => client.write(amount * 1024 / kib, kib << 10, BULK_OUTSTANDING),
        Scenario::Small => client.write(amount, SMALL_BYTES, SMALL_OUTSTANDING),
        Scenario::Latency => client.ping(amount, &mut times),
    };
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), processor_time().saturating_sub(cpu_start));
    let after = client.handle.driver().stats();
    client.handle.close(client.connection, CloseMode::Drain, PATIENCE).expect("closed");
    let served = server.join().expect("no panic");
    let calls = after.system_calls - before.system_calls + served.system_calls;
    times.sort_unstable();
    let percentile = |percent: usize| {
        times.get(times.len() * percent / 100).copied().unwrap_or_default().as_secs_f64() * 1e6
    };
    json!({
        "seconds": seconds, "cpu_seconds": cpu.as_secs_f64(), "bytes": bytes, "amount": amount,
        "system_calls": calls,
        "datagrams": after.datagrams_sent - before.datagrams_sent + served.datagrams_sent,
        "p50_us": percentile(50), "p99_us": percentile(99),
    })
}

fn config(options: &Options, seed: u64) -> DriverConfig {
    let mut config = DriverConfig::with_seed("127.0.0.1:0".parse().expect("an address"), seed);
    config.faults = Faults::loss(options.text("loss", "0").parse().expect("a probability"), seed);
    config.endpoint.paths_per_plane = u8::try_from(options.number("paths", 8)).expect("1 to 64");
    config
}

struct Client<B: OpenBackend> {
    handle: BlockingDriver<B>,
    connection: ConnectionHandle,
    stream: StreamId,
    remote: RemoteAddress,
    source: Region,
    sink: Region,
}

impl<B: OpenBackend> Client<B> {
    fn connect(mut handle: BlockingDriver<B>, address: SocketAddr, remote: RemoteAddress) -> Self {
        let connection = handle.connect(address, PATIENCE).expect("connected");
        let stream = handle.driver_mut().open_stream(connection).expect("a stream");
        let source = region(&mut handle, REGION_BYTES);
        let sink = region(&mut handle, 4096);
        // Touch all pages, and grow the windows.
        let mut client = Self { handle, connection, stream, remote, source, sink };
        client.write(REGION_BYTES as u64 >> 20, 1 << 20, BULK_OUTSTANDING);
        client
    }

    /// Writes messages round and round through the region; says how many bytes.
    fn write(&mut self, count: u64, message: u64, outstanding_max: u64) -> u64 {
        let round = REGION_BYTES as u64 / message * message;
        let (mut posted, mut completed) = (0, 0);
        while completed < count {
            while posted < count && posted - completed < outstanding_max {
                let offset = posted * message % round;
                let segments = [self.source.segment(offset, u32::try_from(message).expect("below 4 GiB"))];
                let remote = RemoteAddress { address: self.remote.address + offset, ..self.remote };
                let request =
                    WorkRequest::new(posted, Operation::Write { remote, immediate: None }, &segments);
                match self.handle.driver_mut().post(self.connection, self.stream, request) {
                    Ok(()) => posted += 1,
                    Err(PostError::Full) => break,
                    Err(error) => panic!("{error}"),
                }
            }
            let mut next = self.handle.wait_event(PATIENCE).expect("waited");
            // All that are there, so that posting goes in batches too.
            while let Some(event) = next {
                if let Event::Completion(completion) = event {
                    assert_eq!(completion.status, Status::Success);
                    completed += 1;
                }
                next = self.handle.driver_mut().poll_event();
            }
        }
        count * message
    }

    /// Sends 64 bytes to and fro; each time is that of a round trip.
    fn ping(&mut self, count: u64, times: &mut Vec<Duration>) -> u64 {
        let (outbox, inbox) = ([self.source.segment(0, 64)], [self.sink.segment(0, 64)]);
        for _ in 0..count {
            let start = Instant::now();
            self.handle.send(self.connection, StreamId(0), &outbox, PATIENCE).expect("sent");
            self.handle.receive(self.connection, StreamId(0), &inbox, PATIENCE).expect("answered");
            times.push(start.elapsed());
        }
        count * 128
    }
}

/// Offers a region, answers so many SENDs, and stays until the client goes. Its counters, without those of setting up.
fn serve<B: OpenBackend>(
    mut server: BlockingDriver<B>,
    pings: u64,
    tell: &mpsc::Sender<(SocketAddr, RemoteAddress)>,
) -> DriverStats {
    let target = region(&mut server, REGION_BYTES);
    let inbox = region(&mut server, 4096);
    tell.send((server.driver().local_address(), target.remote(0))).expect("somebody listens");
    let connection = server.accept(ProtectionDomain(0), PATIENCE).expect("accepted");
    let segments = [inbox.segment(0, 64)];
    for id in 0..pings {
        server.driver_mut().post_recv(connection, StreamId(0), id, &segments).expect("posted");
        if server.wait_completion(connection, StreamId(0), id, PATIENCE).is_err() {
            break;
        }
        server.send(connection, StreamId(0), &segments, PATIENCE).expect("answered");
    }
    while !matches!(server.wait_event(PATIENCE).expect("waited"), Some(Event::Closed { .. })) {}
    server.driver().stats()
}

fn region<B: OpenBackend>(handle: &mut BlockingDriver<B>, length: usize) -> Region {
    let memory = RegionMemory::zeroed(length).expect("memory");
    handle.driver_mut().register_region(memory, Access::ALL, ProtectionDomain(0)).expect("registered")
}

/// Processor time of all threads of this process.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes the time, which is alive.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    let nanos = u32::try_from(time.tv_nsec).expect("below a second");
    Duration::new(u64::try_from(time.tv_sec).expect("not negative"), nanos)
}

const PATIENCE: Duration = Duration::from_mins(2);
const REGION_BYTES: usize = 64 << 20;
const BULK_OUTSTANDING: u64 = 64;
const SMALL_BYTES: u64 = 64;
const SMALL_OUTSTANDING: u64 = 128;
