//! What else goes on at the interface of an endpoint.
#![cfg(target_os = "linux")]
#![expect(clippy::expect_used, reason = "a test may panic")]

mod support;

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use metaroce_core::CloseMode;
use metaroce_core::event::Event;
use metaroce_core::ids::{ConnectionHandle, ProtectionDomain, RegionKey, StreamId};
use metaroce_core::region::Access;
use metaroce_core::request::RemoteAddress;
use metaroce_mio::{Backend, BlockingDriver, DriverConfig, Region, RegionMemory};
use metaroce_xdp::{Attach, OpenError, PortStats, Xdp, XdpOptions};
use socket2::{Domain, Protocol, Socket, Type};
use support::{Link, address, enter, options, output, run, skip};

const DOMAIN: ProtectionDomain = ProtectionDomain(0);
const PATIENCE: Duration = Duration::from_secs(30);
const LENGTH: usize = 1 << 20;
const PORT: u16 = 4795;

/// A server in namespace B that accepts one connection after another, in a thread of its own.
struct Server {
    remote: RemoteAddress,
    stop: Arc<AtomicBool>,
    thread: thread::JoinHandle<PortStats>,
}

impl Server {
    fn start(link: &Link, local: &str, options: XdpOptions) -> Self {
        Self::with(link, DriverConfig::with_seed(address(local), 2), vec![options])
    }

    fn with(link: &Link, config: DriverConfig, planes: Vec<XdpOptions>) -> Self {
        let (tell, told) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let (namespace, stopped) = (link.b.clone(), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            enter(&namespace);
            let mut server = BlockingDriver::<Xdp>::with_options(config, planes).expect("a server");
            let memory = RegionMemory::zeroed(LENGTH).expect("memory");
            let region =
                server.driver_mut().register_region(memory, Access::ALL, DOMAIN).expect("registered");
            tell.send(region.remote(0)).expect("somebody listens");
            while !stopped.load(Ordering::Relaxed) {
                // Accepts when somebody comes.
                let _ = server.accept(DOMAIN, Duration::from_millis(5));
            }
            server.driver().backend().planes().next().expect("one plane")
        });
        Self { remote: told.recv().expect("the server is up"), stop, thread }
    }

    fn stop(self) -> PortStats {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the server did not panic")
    }
}

/// An end that writes to the server.
struct Client<B: Backend> {
    handle: BlockingDriver<B>,
    connection: ConnectionHandle,
    stream: StreamId,
    region: Region,
    remote: RemoteAddress,
}

impl<B: Backend> Client<B> {
    fn connect(mut handle: BlockingDriver<B>, server: &str, remote: RemoteAddress) -> Self {
        let memory = RegionMemory::copied_from(&vec![7; LENGTH]).expect("memory");
        let region = handle.driver_mut().register_region(memory, Access::ALL, DOMAIN).expect("registered");
        let connection = handle.connect(address(server), PATIENCE).expect("connected");
        let stream = handle.driver_mut().open_stream(connection).expect("a stream");
        Self { handle, connection, stream, region, remote }
    }

    fn write(&mut self) {
        let segments = [self.region.segment(0, u32::try_from(LENGTH).expect("fits"))];
        self.handle.write(self.connection, self.stream, &segments, self.remote, PATIENCE).expect("written");
    }

    fn close(mut self) -> BlockingDriver<B> {
        self.handle.close(self.connection, CloseMode::Drain, PATIENCE).expect("closed");
        self.handle
    }
}

fn xdp(local: &str, options: XdpOptions) -> BlockingDriver<Xdp> {
    // A seed of its own each time: to the server they are different endpoints.
    let config = DriverConfig::new(address(local)).expect("entropy");
    BlockingDriver::with_options(config, vec![options]).expect("an xdp driver")
}

fn mio(local: &str, paths: u8) -> BlockingDriver<metaroce_mio::Polled> {
    let mut config = DriverConfig::new(address(local)).expect("entropy");
    config.endpoint.paths_per_plane = paths;
    config.limits.paths_per_connection = paths;
    BlockingDriver::with_config(config).expect("a mio driver")
}

fn link(test: &str, mtu: u32, queues: u32) -> Option<Link> {
    Link::with_xdp(mtu, queues).map_err(|reason| skip(test, &reason)).ok()
}

#[test]
fn ping_arp_tcp_and_other_ports_still_reach_the_kernel() {
    let Some(link) = link("ping_arp_tcp_and_other_ports_still_reach_the_kernel", 9000, 1) else { return };
    for attach in [Attach::Native, Attach::Generic] {
        let server = Server::start(&link, "[::]:4795", options(attach));
        let a = &link.a;
        assert!(run(&format!("ip -n {a} neigh flush all")), "ARP begins anew");
        for to in ["10.76.0.2", "fd76::2"] {
            assert!(run(&format!("ip netns exec {a} ping -c 3 -i 0.01 -W 2 {to}")), "no ping to {to}");
        }
        // A fragmented packet too.
        assert!(run(&format!("ip netns exec {a} ping -c 1 -W 2 -s 20000 10.76.0.2")), "no long ping");
        tcp_carries_bytes_both_ways(&link);
        other_ports_are_heard(&link);
        link.inside_a(|| {
            let mut client = Client::connect(mio("10.76.0.1:0", 4), "10.76.0.2:4795", server.remote);
            client.write();
            client.close();
        });
        let stats = server.stop();
        assert_eq!(stats.native, attach == Attach::Native);
        assert_eq!(stats.not_datagrams, 0, "only datagrams of ours came out of the filter: {stats:?}");
    }
}

/// As ssh does: both directions at once, on the port number that the endpoint has for UDP.
fn tcp_carries_bytes_both_ways(link: &Link) {
    let listener = link.inside_b(|| TcpListener::bind(("10.76.0.2", PORT)).expect("bound"));
    thread::scope(|scope| {
        scope.spawn(move || {
            let (mut stream, _) = listener.accept().expect("accepted");
            let mut bytes = vec![0; 1 << 20];
            stream.read_exact(&mut bytes).expect("read");
            stream.write_all(&bytes).expect("written");
        });
        link.inside_a(|| {
            let mut stream = TcpStream::connect(("10.76.0.2", PORT)).expect("connected");
            stream.set_read_timeout(Some(PATIENCE)).expect("set");
            let sent: Vec<u8> = (0..1 << 20).map(|i: u32| i.to_le_bytes()[1]).collect();
            stream.write_all(&sent).expect("written");
            let mut back = vec![0; sent.len()];
            stream.read_exact(&mut back).expect("read");
            assert!(back == sent, "the bytes differ");
        });
    });
}

fn other_ports_are_heard(link: &Link) {
    for (local, to) in [("10.76.0.1:0", "10.76.0.2:4796"), ("[fd76::1]:0", "[fd76::2]:4796")] {
        let receiver = link.inside_b(|| UdpSocket::bind(address(to)).expect("bound"));
        receiver.set_read_timeout(Some(PATIENCE)).expect("set");
        link.inside_a(|| {
            let sender = UdpSocket::bind(address(local)).expect("bound");
            assert_eq!(sender.send_to(b"hello", address(to)).expect("sent"), 5);
        });
        let mut bytes = [0; 16];
        assert_eq!(receiver.recv(&mut bytes).expect("received"), 5);
    }
}

#[test]
fn each_path_has_a_source_port_of_its_own_and_no_socket() {
    const PATHS: u8 = 16;
    let Some(link) = link("each_path_has_a_source_port_of_its_own_and_no_socket", 9000, 1) else { return };
    let (tell, told) = mpsc::channel();
    let ports = Arc::new(Mutex::new(BTreeSet::new()));
    let (namespace, seen) = (link.b.clone(), Arc::clone(&ports));
    // The other end is mio, whose tap sees each datagram as the kernel gave it.
    let server = thread::spawn(move || {
        enter(&namespace);
        let mut server = mio("10.76.0.2:0", PATHS);
        server.driver_mut().set_tap(Some(Box::new(move |tapped| {
            if !tapped.sent && tapped.bytes.len() > 1000 {
                seen.lock().expect("no panic").insert(tapped.source.port());
            }
        })));
        let memory = RegionMemory::zeroed(LENGTH).expect("memory");
        let region = server.driver_mut().register_region(memory, Access::ALL, DOMAIN).expect("registered");
        tell.send((server.driver().local_address(), region.remote(0))).expect("somebody listens");
        server.accept(DOMAIN, PATIENCE).expect("accepted");
        while !matches!(server.wait_event(PATIENCE).expect("waited"), Some(Event::Closed { .. })) {}
    });
    let (to, remote) = told.recv().expect("the server is up");
    let capture = Capture::start(&link.b);
    let sockets = link.inside_a(|| {
        let mut config = DriverConfig::with_seed(address("10.76.0.1:0"), 1);
        config.endpoint.paths_per_plane = PATHS;
        config.limits.paths_per_connection = PATHS;
        let handle = BlockingDriver::<Xdp>::with_options(config, vec![XdpOptions::new("eth0")]);
        let mut client = Client::connect(handle.expect("an xdp driver"), &to.to_string(), remote);
        for _ in 0..4 {
            client.write();
        }
        // The table of this thread's namespace.
        let table = std::fs::read_to_string("/proc/thread-self/net/udp").expect("a table");
        client.close();
        table.lines().count() - 1
    });
    server.join().expect("no panic");
    assert_eq!(sockets, 1, "the one that holds the port");
    let ports = ports.lock().expect("no panic");
    println!("source ports: {ports:?}");
    assert!(ports.len() >= usize::from(PATHS), "{ports:?}");
    let captured = capture.stop();
    println!("captured on the wire: {captured:?}");
    assert!(captured.is_superset(&ports), "{captured:?} on the wire, {ports:?} at the socket");
}

/// What crosses the interface of a namespace, as a packet socket shows it: no part of this project has touched it.
struct Capture {
    over: Arc<AtomicBool>,
    ports: thread::JoinHandle<BTreeSet<u16>>,
}

impl Capture {
    fn start(namespace: &str) -> Self {
        let (namespace, over) = (namespace.to_owned(), Arc::new(AtomicBool::new(false)));
        let (ready, started) = mpsc::channel();
        let ends = Arc::clone(&over);
        let ports = thread::spawn(move || {
            enter(&namespace);
            let every = Protocol::from(i32::from(u16::try_from(libc::ETH_P_ALL).expect("small").to_be()));
            let mut socket = Socket::new(Domain::PACKET, Type::RAW, Some(every)).expect("a packet socket");
            socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
            ready.send(()).expect("somebody waits");
            let mut frame = [0; 256];
            let mut ports = BTreeSet::new();
            while !ends.load(Ordering::Relaxed) {
                if let Ok(length) = socket.read(&mut frame) {
                    ports.extend(source_port(frame.get(..length).unwrap_or(&[])));
                }
            }
            ports
        });
        started.recv().expect("it listens");
        Self { over, ports }
    }

    fn stop(self) -> BTreeSet<u16> {
        self.over.store(true, Ordering::Relaxed);
        self.ports.join().expect("no panic")
    }
}

/// Of a large UDP datagram over IPv4 from namespace A.
fn source_port(frame: &[u8]) -> Option<u16> {
    const TOTAL: usize = 14 + 2;
    let field = |at: usize| frame.get(at..)?.first_chunk::<2>().map(|bytes| u16::from_be_bytes(*bytes));
    let from_a = frame.get(14 + 12..)?.starts_with(&[10, 76, 0, 1]);
    let udp = field(12)? == 0x0800 && *frame.get(14)? == 0x45 && *frame.get(14 + 9)? == 17;
    (from_a && udp && field(TOTAL)? > 1000).then(|| field(14 + 20)).flatten()
}

#[test]
fn packets_on_queues_without_a_socket_arrive_too() {
    let Some(link) = link("packets_on_queues_without_a_socket_arrive_too", 9000, 4) else { return };
    for attach in [Attach::Native, Attach::Generic] {
        let mut options = options(attach);
        options.queue = 1;
        let server = Server::start(&link, "10.76.0.2:4795", options);
        link.inside_a(|| {
            let mut client = Client::connect(mio("10.76.0.1:0", 16), "10.76.0.2:4795", server.remote);
            for _ in 0..4 {
                client.write();
            }
            client.close();
        });
        println!("{:?}", server.stop());
    }
}

#[test]
fn each_queue_has_an_endpoint_and_packets_find_theirs() {
    const QUEUES: [u32; 4] = [0, 1, 2, 3];
    let Some(link) = link("each_queue_has_an_endpoint_and_packets_find_theirs", 9000, 4) else { return };
    for attach in [Attach::Native, Attach::Generic] {
        let mut config = DriverConfig::with_seed(address("10.76.0.2:4795"), 2);
        config.endpoint.paths_per_plane = 16;
        config.limits.paths_per_connection = 16;
        let drivers = link
            .inside_b(|| metaroce_xdp::open_queues(&config, &options(attach), &QUEUES))
            .expect("a driver for each queue");
        let stop = AtomicBool::new(false);
        let stats = thread::scope(|scope| {
            let (tell, told) = mpsc::channel();
            let (stop, tell, told) = (&stop, &tell, Mutex::new(told));
            let servers: Vec<_> = drivers
                .into_iter()
                .map(|driver| {
                    let (mut server, tell) = (BlockingDriver::from(driver), tell.clone());
                    scope.spawn(move || {
                        let memory = RegionMemory::zeroed(LENGTH).expect("memory");
                        let driver = server.driver_mut();
                        let region = driver.register_region(memory, Access::ALL, DOMAIN).expect("registered");
                        while !stop.load(Ordering::Relaxed) {
                            let event = server.wait_event(Duration::from_millis(5)).expect("waited");
                            if let Some(Event::Incoming { connection, .. }) = event {
                                server.driver_mut().accept(connection, DOMAIN, &[]).expect("accepted");
                                // The client is told of the region of the endpoint that took it.
                                tell.send(region.remote(0)).expect("somebody listens");
                            }
                        }
                        server.driver().backend().steering().expect("there are others")
                    })
                })
                .collect();
            for _ in 0..6 {
                link.inside_a(|| {
                    let handle = mio("10.76.0.1:0", 16);
                    let nowhere = RemoteAddress { address: 0, key: RegionKey::default() };
                    let mut client = Client::connect(handle, "10.76.0.2:4795", nowhere);
                    client.remote = told.lock().expect("no panic").recv_timeout(PATIENCE).expect("accepted");
                    client.write();
                    client.write();
                    client.close();
                });
            }
            stop.store(true, Ordering::Relaxed);
            servers.into_iter().map(|server| server.join().expect("no panic")).collect::<Vec<_>>()
        });
        println!("{attach:?}: {stats:?}");
        let handed: u64 = stats.iter().map(|stats| stats.handed_over).sum();
        let taken: u64 = stats.iter().map(|stats| stats.taken_over).sum();
        assert!(handed > 0, "all packets arrived on the right queue: nothing was tested");
        assert!(taken <= handed);
    }
}

#[test]
fn each_plane_has_an_interface_and_all_carry_data() {
    let Some(link) = link("each_plane_has_an_interface_and_all_carry_data", 9000, 1) else { return };
    second_link(&link);
    let planes = || {
        let mut second = options(Attach::Automatic);
        "eth1".clone_into(&mut second.interface);
        vec![options(Attach::Automatic), second]
    };
    let config = |first: &str, second: &str| {
        let mut config = DriverConfig::new(address(first)).expect("entropy");
        config.local.push(address(second));
        config
    };
    let server = Server::with(&link, config("10.76.0.2:4795", "10.75.0.2:4795"), planes());
    link.inside_a(|| {
        let config = config("10.76.0.1:0", "10.75.0.1:0");
        let handle = BlockingDriver::<Xdp>::with_options(config, planes()).expect("an xdp driver");
        let mut client = Client::connect(handle, "10.76.0.2:4795", server.remote);
        for _ in 0..4 {
            client.write();
        }
        let handle = client.close();
        let sent: Vec<u64> = handle.driver().backend().planes().map(|port| port.sent).collect();
        assert!(sent.len() == 2 && sent.iter().all(|packets| *packets > 100), "{sent:?}");
    });
    server.stop();
}

/// A second link between the namespaces, 10.75.0.1 and 10.75.0.2 on `eth1`.
fn second_link(link: &Link) {
    let (a, b) = (&link.a, &link.b);
    for step in [
        format!("ip -n {a} link add eth1 mtu 9000 type veth peer name eth1 mtu 9000 netns {b}"),
        format!("ip -n {a} link set dev eth1 up"),
        format!("ip -n {b} link set dev eth1 up"),
        format!("ip -n {a} addr add 10.75.0.1/24 dev eth1"),
        format!("ip -n {b} addr add 10.75.0.2/24 dev eth1"),
    ] {
        assert!(run(&step), "{step}");
    }
}

#[test]
fn a_neighbour_that_changes_its_address_is_followed() {
    let Some(link) = link("a_neighbour_that_changes_its_address_is_followed", 9000, 1) else { return };
    let server = Server::start(&link, "10.76.0.2:4795", options(Attach::Automatic));
    link.inside_a(|| {
        let handle = xdp("10.76.0.1:0", options(Attach::Automatic));
        let mut client = Client::connect(handle, "10.76.0.2:4795", server.remote);
        client.write();
        let before = lookups(&client);
        // As when an address moves to another machine: its new owner announces it.
        assert!(run(&format!("ip -n {} link set dev eth0 address 02:00:00:00:00:77", link.b)));
        assert!(run(&format!("ip -n {} neigh replace 10.76.0.2 lladdr 02:00:00:00:00:77 dev eth0", link.a)));
        // The kernel's word of it takes its time on a busy machine.
        let start = Instant::now();
        while lookups(&client) == before {
            assert!(start.elapsed() < PATIENCE, "the way was not looked up again");
            client.write();
        }
        client.close();
    });
    server.stop();
}

fn lookups(client: &Client<Xdp>) -> u64 {
    client.handle.driver().backend().planes().next().map_or(0, |port| port.lookups)
}

#[test]
fn a_route_that_leads_elsewhere_is_taken_through_the_kernel() {
    let Some(link) = link("a_route_that_leads_elsewhere_is_taken_through_the_kernel", 9000, 1) else {
        return;
    };
    // The server's address lies behind a second link.
    second_link(&link);
    let mut on_eth1 = options(Attach::Automatic);
    "eth1".clone_into(&mut on_eth1.interface);
    let server = Server::start(&link, "10.75.0.2:4795", on_eth1);
    link.inside_a(|| {
        let handle = xdp("0.0.0.0:0", options(Attach::Automatic));
        let mut client = Client::connect(handle, "10.75.0.2:4795", server.remote);
        client.write();
        let handle = client.close();
        let port = handle.driver().backend().planes().next().expect("one plane");
        assert!(port.sent_through_kernel > 100, "{port:?}");
        assert_eq!(handle.driver().stats().path_sockets_opened, 0);
    });
    server.stop();
}

#[test]
fn a_program_that_is_attached_already_is_named_and_stays() {
    let Some(link) = link("a_program_that_is_attached_already_is_named_and_stays", 9000, 1) else { return };
    let server = Server::start(&link, "10.76.0.2:4795", options(Attach::Generic));
    let shown = || output(&format!("ip -n {} link show dev eth0", link.b));
    let before = shown();
    assert!(before.contains("prog/xdp id"), "{before}");
    for attach in [Attach::Automatic, Attach::Native, Attach::Generic] {
        let error = link.inside_b(|| {
            let config = DriverConfig::with_seed(address("10.76.0.2:0"), 3);
            metaroce_xdp::Driver::with_options(config, vec![options(attach)])
                .map(|_| ())
                .expect_err("refused")
        });
        assert!(error.to_string().contains("an XDP program metaroce_udp (id "), "{error}");
    }
    assert_eq!(shown(), before);
    server.stop();
    assert!(!shown().contains("prog/xdp"), "it went with its driver");
}

#[test]
fn zero_copy_is_refused_where_the_driver_has_none() {
    let Some(link) = link("zero_copy_is_refused_where_the_driver_has_none", 9000, 1) else { return };
    let error = link.inside_a(|| {
        let config = DriverConfig::with_seed(address("10.76.0.1:0"), 3);
        let mut options = options(Attach::Native);
        options.copy = metaroce_xdp::CopyMode::ZeroCopy;
        metaroce_xdp::Driver::with_options(config, vec![options]).map(|_| ()).expect_err("refused")
    });
    assert_eq!(error.to_string(), OpenError::NoZeroCopy("eth0".to_owned()).to_string());
}

#[test]
fn a_driver_can_be_opened_again_at_once() {
    let Some(link) = link("a_driver_can_be_opened_again_at_once", 9000, 1) else { return };
    let server = Server::start(&link, "10.76.0.2:4795", options(Attach::Automatic));
    let start = Instant::now();
    link.inside_a(|| {
        for attach in [Attach::Native, Attach::Generic].repeat(5) {
            let mut client =
                Client::connect(xdp("10.76.0.1:0", options(attach)), "10.76.0.2:4795", server.remote);
            client.write();
            // Gone with frames under way.
            drop(client);
        }
    });
    println!("ten times in {:?}", start.elapsed());
    server.stop();
}
