//! Packet rates of this backend and of mio over the same veth pair, in one run.
//!
//! `cargo run --release -p metaroce-xdp --example rates -- [rounds=5] [millis=500] [json=FILE]`, as root: it makes two network
//! namespaces and removes them. One thread in each: A writes into B's memory, every message one packet. In each round
//! every backend has its turn at every size, so that a machine that is busy at times is so for all of them. The time is
//! what the process spent on processors, both ends together, kernel included.
#![expect(clippy::expect_used, clippy::panic, reason = "an example ends at the first thing that goes wrong")]

#[cfg(target_os = "linux")]
#[path = "../tests/support/mod.rs"]
mod support;

#[cfg(target_os = "linux")]
fn main() {
    rates::main();
}

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("AF_XDP is a part of Linux");
}

#[cfg(target_os = "linux")]
mod rates {
    use std::collections::BTreeMap;
    use std::fmt::Write as _;
    use std::net::SocketAddr;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;
    use std::thread;
    use std::time::{Duration, Instant};

    use metaroce_core::CloseMode;
    use metaroce_core::event::{Event, Status};
    use metaroce_core::ids::ProtectionDomain;
    use metaroce_core::region::Access;
    use metaroce_core::request::{Operation, PostError, RemoteAddress, WorkRequest};
    use metaroce_mio::{Backend, BlockingDriver, DriverConfig, RegionMemory};
    use metaroce_xdp::Attach;

    use super::support::{Link, address, enter, options};

    const DOMAIN: ProtectionDomain = ProtectionDomain(0);
    const PATIENCE: Duration = Duration::from_secs(30);
    const REGION_BYTES: usize = 4 << 20;
    const STREAMS: usize = 4;
    /// Enough that both ends always have something to do.
    const OUTSTANDING_MAX: u64 = 2048;
    const SIZES: [u32; 3] = [64, 1024, 3400];

    /// What both ends use.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    enum Kind {
        MioSingle,
        MioSegmented,
        Generic,
        Native,
    }

    impl Kind {
        const ALL: [Self; 4] = [Self::MioSingle, Self::MioSegmented, Self::Generic, Self::Native];

        const fn name(self) -> &'static str {
            match self {
                Self::MioSingle => "mio, no GSO",
                Self::MioSegmented => "mio, GSO",
                Self::Generic => "xdp, generic",
                Self::Native => "xdp, native",
            }
        }
    }

    /// One turn of one backend.
    #[derive(Clone, Copy, Debug)]
    struct Sample {
        packets_per_second: f64,
        micros_per_packet: f64,
        retransmitted: u64,
    }

    pub fn main() {
        let given: BTreeMap<String, String> = std::env::args()
            .skip(1)
            .filter_map(|argument| argument.split_once('=').map(|(name, value)| (name.into(), value.into())))
            .collect();
        let number = |name: &str, default: u64| {
            given.get(name).map_or(default, |text| text.parse().expect("a number"))
        };
        let link = match Link::with_xdp(9000, 1) {
            Ok(link) => link,
            Err(reason) => return println!("skipped: {reason}"),
        };
        let mut samples: BTreeMap<(u32, Kind), Vec<Sample>> = BTreeMap::new();
        for _ in 0..number("rounds", 5) {
            for size in SIZES {
                for kind in Kind::ALL {
                    let sample = measure(&link, kind, size, Duration::from_millis(number("millis", 500)));
                    samples.entry((size, kind)).or_default().push(sample);
                }
            }
        }
        let (table, json) = report(&samples);
        print!("{table}");
        if let Some(path) = given.get("json") {
            std::fs::write(path, json).expect("the file can be written");
        }
    }

    /// Median, least and most.
    fn spread(samples: &[Sample], value: fn(&Sample) -> f64) -> [f64; 3] {
        let mut values: Vec<f64> = samples.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
        [at(values.len() / 2), at(0), at(values.len().saturating_sub(1))]
    }

    fn report(samples: &BTreeMap<(u32, Kind), Vec<Sample>>) -> (String, String) {
        let mut table = String::from(
            "| payload | backend | thousand packets/s: median [least..most] | CPU µs per packet | packets/s against mio without GSO |\n\
             |---|---|---|---|---|\n",
        );
        let mut rows = Vec::new();
        for (&(size, kind), taken) in samples {
            let base = samples.get(&(size, Kind::MioSingle)).expect("measured");
            // Round by round: both had the same machine then.
            let mut ratios: Vec<f64> =
                taken.iter().zip(base).map(|(a, b)| a.packets_per_second / b.packets_per_second).collect();
            ratios.sort_by(f64::total_cmp);
            let ratio = ratios.get(ratios.len() / 2).copied().unwrap_or(f64::NAN);
            let [rate, least, most] = spread(taken, |sample| sample.packets_per_second / 1e3);
            let [micros, ..] = spread(taken, |sample| sample.micros_per_packet);
            let retransmitted: u64 = taken.iter().map(|sample| sample.retransmitted).sum();
            let name = kind.name();
            let _ = writeln!(
                table,
                "| {size} | {name} | {rate:.0} [{least:.0}..{most:.0}] | {micros:.2} | {ratio:.2} |"
            );
            rows.push(format!(
                "{{\"payload\":{size},\"backend\":\"{name}\",\"kpps\":{rate:.1},\"kpps_least\":{least:.1},\
                 \"kpps_most\":{most:.1},\"cpu_us_per_packet\":{micros:.3},\"ratio\":{ratio:.3},\
                 \"retransmitted\":{retransmitted},\"rounds\":{}}}",
                taken.len()
            ));
        }
        (table, format!("[{}]\n", rows.join(",\n")))
    }

    fn measure(link: &Link, kind: Kind, size: u32, span: Duration) -> Sample {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let (tell, told) = mpsc::channel();
            let stop = &stop;
            scope.spawn(move || {
                enter(&link.b);
                match kind {
                    Kind::MioSingle | Kind::MioSegmented => serve(mio(kind, "10.76.0.2:0", 2), &tell, stop),
                    Kind::Generic | Kind::Native => serve(xdp(kind, "10.76.0.2:0", 2), &tell, stop),
                }
            });
            let client = scope.spawn(move || {
                enter(&link.a);
                match kind {
                    Kind::MioSingle | Kind::MioSegmented => {
                        write(mio(kind, "10.76.0.1:0", 1), &told, stop, size, span)
                    }
                    Kind::Generic | Kind::Native => {
                        write(xdp(kind, "10.76.0.1:0", 1), &told, stop, size, span)
                    }
                }
            });
            client.join().expect("no panic")
        })
    }

    fn mio(kind: Kind, local: &str, seed: u64) -> BlockingDriver<metaroce_mio::Polled> {
        let mut config = DriverConfig::with_seed(address(local), seed);
        config.sockets.gso = kind == Kind::MioSegmented;
        config.sockets.gro = kind == Kind::MioSegmented;
        BlockingDriver::with_config(config).expect("a mio driver")
    }

    fn xdp(kind: Kind, local: &str, seed: u64) -> BlockingDriver<metaroce_xdp::Xdp> {
        let attach = if kind == Kind::Native { Attach::Native } else { Attach::Generic };
        let config = DriverConfig::with_seed(address(local), seed);
        BlockingDriver::with_options(config, vec![options(attach)]).expect("an xdp driver")
    }

    type Told = (SocketAddr, RemoteAddress);

    fn serve<B: Backend>(mut server: BlockingDriver<B>, tell: &mpsc::Sender<Told>, stop: &AtomicBool) {
        let memory = RegionMemory::zeroed(REGION_BYTES).expect("memory");
        let region = server.driver_mut().register_region(memory, Access::ALL, DOMAIN).expect("registered");
        tell.send((server.driver().local_address(), region.remote(0))).expect("somebody listens");
        server.accept(DOMAIN, PATIENCE).expect("accepted");
        while !stop.load(Ordering::Relaxed) {
            let _ = server.wait_event(Duration::from_millis(5)).expect("waited");
        }
    }

    fn write<B: Backend>(
        mut client: BlockingDriver<B>,
        told: &mpsc::Receiver<Told>,
        stop: &AtomicBool,
        size: u32,
        span: Duration,
    ) -> Sample {
        let (server, remote) = told.recv().expect("the server is up");
        let memory = RegionMemory::copied_from(&vec![7; REGION_BYTES]).expect("memory");
        let region = client.driver_mut().register_region(memory, Access::ALL, DOMAIN).expect("registered");
        let connection = client.connect(server, PATIENCE).expect("connected");
        let streams: Vec<_> =
            (0..STREAMS).map(|_| client.driver_mut().open_stream(connection).expect("a stream")).collect();
        let mut next_stream = streams.iter().cycle().copied();
        let places = REGION_BYTES as u64 / u64::from(size);
        let (mut posted, mut completed) = (0u64, 0u64);
        let mut measured: Option<(Instant, f64, u64)> = None;
        let begin = Instant::now();
        let (seconds, cpu, packets) = loop {
            while posted - completed < OUTSTANDING_MAX {
                let offset = posted % places * u64::from(size);
                let to = RemoteAddress { address: remote.address + offset, ..remote };
                let segments = [region.segment(offset, size)];
                let write = Operation::Write { remote: to, immediate: None };
                let request = WorkRequest::new(posted, write, &segments);
                let stream = next_stream.next().expect("it is endless");
                match client.driver_mut().post(connection, stream, request) {
                    Ok(()) => posted += 1,
                    Err(PostError::Full) => break,
                    Err(error) => panic!("{error}"),
                }
            }
            let mut next = client.wait_event(PATIENCE).expect("waited");
            // All that are there, so that posting goes in batches too.
            while let Some(event) = next {
                if let Event::Completion(completion) = event {
                    assert_eq!(completion.status, Status::Success);
                    completed += 1;
                }
                next = client.driver_mut().poll_event();
            }
            // The first fifth warms up.
            match measured {
                None if begin.elapsed() >= span / 5 => {
                    measured = Some((Instant::now(), processor_seconds(), completed));
                }
                Some((start, cpu, before)) if start.elapsed() >= span => {
                    break (start.elapsed().as_secs_f64(), processor_seconds() - cpu, completed - before);
                }
                _ => {}
            }
        };
        let stats = client.driver_mut().endpoint_mut().connection_stats(connection).expect("open");
        let _ = client.driver_mut().close(connection, CloseMode::Flush);
        stop.store(true, Ordering::Relaxed);
        #[expect(clippy::cast_precision_loss, reason = "a figure to look at")]
        let packets = packets as f64;
        Sample {
            packets_per_second: packets / seconds,
            micros_per_packet: cpu * 1e6 / packets,
            retransmitted: stats.retransmitted + stats.retransmitted_by_timeout,
        }
    }

    /// What this process has spent on processors, its kernel time included.
    fn processor_seconds() -> f64 {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: `usage` is as long as the call writes, and zeros are a value of it.
        let usage = unsafe {
            libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
            usage.assume_init()
        };
        #[expect(clippy::cast_precision_loss, reason = "a figure to look at")]
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
        seconds(usage.ru_utime) + seconds(usage.ru_stime)
    }
}
