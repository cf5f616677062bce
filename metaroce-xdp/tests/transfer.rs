//! Data between namespaces over a veth pair, with this backend at one end or at both.
#![cfg(target_os = "linux")]
#![expect(clippy::expect_used, reason = "a test may panic")]

mod support;

use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use metaroce_core::CloseMode;
use metaroce_core::event::Event;
use metaroce_core::ids::ProtectionDomain;
use metaroce_core::region::Access;
use metaroce_core::stats::ConnectionStats;
use metaroce_mio::{Backend, BlockingDriver, DriverConfig, DriverStats, Faults, RegionMemory};
use metaroce_xdp::{Attach, PortStats, XdpOptions};
use support::{Link, address, enter, options, skip};

const DOMAIN: ProtectionDomain = ProtectionDomain(0);
const PATIENCE: Duration = Duration::from_mins(1);

/// What an end uses.
#[derive(Clone, Debug)]
enum End {
    Mio,
    Xdp(XdpOptions),
}

/// What an end counted.
#[derive(Debug)]
struct Counted {
    driver: DriverStats,
    port: Option<PortStats>,
    connection: Option<ConnectionStats>,
}

fn change_nothing(_: &mut DriverConfig) {}

/// Writes `length` bytes from A to B, reads them back, and verifies both; what A and B counted.
fn transfer(
    link: &Link,
    ends: [End; 2],
    addresses: [&str; 2],
    length: usize,
    change: fn(&mut DriverConfig),
) -> [Counted; 2] {
    let bytes: Vec<u8> = (0..length).map(|i| (i % 253).to_le_bytes()[0]).collect();
    let [end_a, end_b] = ends;
    let [local_a, local_b] = addresses.map(address);
    thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        let bytes = &bytes;
        let server = scope.spawn(move || {
            enter(&link.b);
            let config = config(local_b, 2, change);
            match end_b {
                End::Mio => serve(BlockingDriver::from(mio(config)), bytes, &tell, |_| None),
                End::Xdp(options) => serve(BlockingDriver::from(xdp(config, options)), bytes, &tell, |xdp| {
                    metaroce_xdp::Xdp::planes(xdp).next()
                }),
            }
        });
        let client = scope.spawn(move || {
            enter(&link.a);
            let config = config(local_a, 1, change);
            match end_a {
                End::Mio => request(BlockingDriver::from(mio(config)), bytes, &told, |_| None),
                End::Xdp(options) => {
                    request(BlockingDriver::from(xdp(config, options)), bytes, &told, |xdp| {
                        metaroce_xdp::Xdp::planes(xdp).next()
                    })
                }
            }
        });
        let counted = [client.join(), server.join()];
        counted.map(|counted| counted.expect("no end panicked"))
    })
}

fn config(local: SocketAddr, seed: u64, change: fn(&mut DriverConfig)) -> DriverConfig {
    let mut config = DriverConfig::with_seed(local, seed);
    change(&mut config);
    config
}

fn mio(config: DriverConfig) -> metaroce_mio::Driver {
    metaroce_mio::Driver::new(config).expect("a mio driver")
}

fn xdp(config: DriverConfig, options: XdpOptions) -> metaroce_xdp::Driver {
    metaroce_xdp::Driver::with_options(config, vec![options]).expect("an xdp driver")
}

type Told = (SocketAddr, metaroce_core::request::RemoteAddress);

fn serve<B: Backend>(
    mut server: BlockingDriver<B>,
    bytes: &[u8],
    tell: &mpsc::Sender<Told>,
    port: fn(&B) -> Option<PortStats>,
) -> Counted {
    let memory = RegionMemory::zeroed(bytes.len()).expect("memory");
    let region = server.driver_mut().register_region(memory, Access::ALL, DOMAIN).expect("registered");
    tell.send((server.driver().local_address(), region.remote(0))).expect("somebody listens");
    server.accept(DOMAIN, PATIENCE).expect("accepted");
    while !matches!(server.wait_event(PATIENCE).expect("waited"), Some(Event::Closed { .. })) {}
    let mut arrived = vec![0; bytes.len()];
    server.driver().copy_out(region, 0, &mut arrived).expect("inside");
    assert!(arrived == *bytes, "the bytes differ");
    let port = port(server.driver().backend());
    Counted { driver: server.driver().stats(), port, connection: None }
}

fn request<B: Backend>(
    mut client: BlockingDriver<B>,
    bytes: &[u8],
    told: &mpsc::Receiver<Told>,
    port: fn(&B) -> Option<PortStats>,
) -> Counted {
    let (server, remote) = told.recv().expect("the server is up");
    let memory = RegionMemory::copied_from(bytes).expect("memory");
    let region = client.driver_mut().register_region(memory, Access::ALL, DOMAIN).expect("registered");
    let memory = RegionMemory::zeroed(bytes.len()).expect("memory");
    let back = client.driver_mut().register_region(memory, Access::ALL, DOMAIN).expect("registered");
    let connection = client.connect(server, PATIENCE).expect("connected");
    let stream = client.driver_mut().open_stream(connection).expect("a stream");
    let length = u32::try_from(bytes.len()).expect("fits");
    client.write(connection, stream, &[region.segment(0, length)], remote, PATIENCE).expect("written");
    client.read(connection, stream, &[back.segment(0, length)], remote, PATIENCE).expect("read");
    let mut arrived = vec![0; bytes.len()];
    client.driver().copy_out(back, 0, &mut arrived).expect("inside");
    assert!(arrived == *bytes, "the bytes read back differ");
    let stats = client.driver_mut().endpoint_mut().connection_stats(connection).expect("open");
    client.close(connection, CloseMode::Drain, PATIENCE).expect("closed");
    let port = port(client.driver().backend());
    Counted { driver: client.driver().stats(), port, connection: Some(stats) }
}

const V4: [&str; 2] = ["10.76.0.1:0", "10.76.0.2:0"];
const V6: [&str; 2] = ["[fd76::1]:0", "[fd76::2]:0"];

/// That nearly everything went past the kernel's UDP.
fn assert_fast(counted: &Counted) {
    let port = counted.port.expect("an xdp end");
    assert!(port.sent_through_kernel < counted.driver.datagrams_sent / 10, "{counted:?}");
    assert_eq!(counted.driver.path_sockets_opened, 0, "no path has a socket");
    assert_eq!((port.queue.strays, port.refused), (0, 0), "{counted:?}");
    assert!(counted.driver.datagrams_sent > 100, "{counted:?}");
}

#[test]
fn data_goes_both_ways_between_two_xdp_ends_in_every_mode() {
    const TEST: &str = "data_goes_both_ways_between_two_xdp_ends_in_every_mode";
    for attach in [Attach::Native, Attach::Generic] {
        for addresses in [V4, V6] {
            let link = match Link::with_xdp(1500, 1) {
                Ok(link) => link,
                Err(reason) => return skip(TEST, &reason),
            };
            let end = || End::Xdp(options(attach));
            let counted = transfer(&link, [end(), end()], addresses, 8 << 20, change_nothing);
            println!("{attach:?} {addresses:?}: {counted:?}");
            let connection = counted[0].connection.expect("the client's");
            assert_eq!(connection.bytes_placed, 8 << 20);
            for counted in &counted {
                assert_fast(counted);
                assert_eq!(counted.port.map(|port| port.native), Some(attach == Attach::Native));
            }
        }
    }
}

#[test]
fn each_end_may_be_mio() {
    const TEST: &str = "each_end_may_be_mio";
    for attach in [Attach::Native, Attach::Generic] {
        for (addresses, xdp_first) in [(V4, true), (V4, false), (V6, true), (V6, false)] {
            let link = match Link::with_xdp(9000, 1) {
                Ok(link) => link,
                Err(reason) => return skip(TEST, &reason),
            };
            let mut ends = [End::Xdp(options(attach)), End::Mio];
            if !xdp_first {
                ends.reverse();
            }
            let counted = transfer(&link, ends, addresses, 8 << 20, change_nothing);
            println!("{attach:?} {addresses:?} {xdp_first}: {counted:?}");
            assert_fast(&counted[usize::from(!xdp_first)]);
        }
    }
}

#[test]
fn datagrams_of_several_chunks_arrive() {
    const TEST: &str = "datagrams_of_several_chunks_arrive";
    for attach in [Attach::Native, Attach::Generic] {
        for (addresses, chunk_bytes) in [(V4, 4096), (V6, 4096), (V4, 2048)] {
            let link = match Link::with_xdp(9000, 1) {
                Ok(link) => link,
                Err(reason) => return skip(TEST, &reason),
            };
            let end = || {
                let mut options = options(attach);
                (options.multi_buffer, options.chunk_bytes) = (true, chunk_bytes);
                End::Xdp(options)
            };
            let large = |config: &mut DriverConfig| config.endpoint.mtu_bytes = 8000;
            let ends = if chunk_bytes == 2048 { [End::Mio, end()] } else { [end(), end()] };
            let [client, server] = transfer(&link, ends, addresses, 8 << 20, large);
            let parts = server.port.expect("an xdp end");
            if !parts.multi_buffer {
                return skip(TEST, "the kernel has no packets of several chunks (Linux 6.6 has)");
            }
            println!("{attach:?} {addresses:?}: {client:?} {server:?}");
            // Probes and acknowledgements fit one chunk; nearly all data does not.
            assert!(parts.sent_in_parts > 500, "{parts:?}");
            let from_mio = client.port.is_none() && attach == Attach::Generic;
            assert!(from_mio || parts.received_in_parts > 500, "{parts:?}");
        }
    }
}

#[test]
fn faults_between_core_and_frames_are_survived() {
    const TEST: &str = "faults_between_core_and_frames_are_survived";
    let link = match Link::with_xdp(9000, 1) {
        Ok(link) => link,
        Err(reason) => return skip(TEST, &reason),
    };
    let end = || End::Xdp(options(Attach::Automatic));
    let [client, _] = transfer(&link, [end(), end()], V4, 8 << 20, |config| {
        let mut faults = Faults::loss(0.02, 7);
        (faults.reorder, faults.duplicate, faults.corrupt) = (0.02, 0.02, 0.01);
        config.faults = faults;
    });
    let injected = client.driver.injected;
    println!("{client:?}");
    assert!(injected.lost > 0 && injected.reordered > 0 && injected.duplicated > 0 && injected.corrupted > 0);
}
