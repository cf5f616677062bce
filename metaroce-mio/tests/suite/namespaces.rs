//! Two network namespaces joined by a veth pair: what loopback cannot show. Full send buffers behind a slow device, and
//! a link whose MTU is below the configured one. Needs root and `ip`; says so where it has not.

use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use metaroce_core::CloseMode;
use metaroce_core::event::Event;
use metaroce_core::ids::{PathId, ProtectionDomain};
use metaroce_core::region::Access;
use metaroce_core::stats::ConnectionStats;
use metaroce_mio::{BlockingDriver, DriverConfig, DriverStats, HostDriver, RegionMemory};

use super::Tested;
use super::pair::Two;

const DOMAIN: ProtectionDomain = ProtectionDomain(0);
const PATIENCE: Duration = Duration::from_mins(1);

/// Namespaces A (10.77.0.1) and B (10.77.0.2), removed at the end.
pub struct Link {
    pub names: [String; 2],
}

impl Link {
    /// `None` where namespaces cannot be made.
    pub fn new(test: &str, mtu: u32) -> Option<Self> {
        let id = std::process::id();
        let link = Self { names: ["a", "b"].map(|side| format!("mr-{test}-{id}-{side}")) };
        let [a, b] = &link.names;
        let up = run(&format!("ip netns add {a}"))
            && run(&format!("ip netns add {b}"))
            && run(&format!(
                "ip -n {a} link add eth0 mtu {mtu} type veth peer name eth0 mtu {mtu} netns {b}"
            ))
            && run(&format!("ip -n {a} addr add 10.77.0.1/24 dev eth0"))
            && run(&format!("ip -n {b} addr add 10.77.0.2/24 dev eth0"))
            && [a, b].iter().all(|name| run(&format!("ip -n {name} link set dev eth0 up")));
        if !up {
            super::skip(test, "no network namespaces here (root and iproute2 are needed)");
        }
        up.then_some(link)
    }

    /// Writes `length` bytes from A to B and verifies them; the counters of A.
    fn write<B: Tested>(
        &self,
        length: usize,
        change: fn(&mut DriverConfig),
    ) -> (DriverStats, ConnectionStats) {
        let [a, b] = &self.names;
        let bytes: Vec<u8> = (0..length).map(|i| (i % 253).to_le_bytes()).map(|[low, ..]| low).collect();
        thread::scope(|scope| {
            let (tell, told) = mpsc::channel();
            let expected = &bytes;
            let server = scope.spawn(move || {
                enter(b);
                let mut server = handle::<B>("10.77.0.2:0", 2, change);
                let memory = RegionMemory::zeroed(length).expect("memory");
                let region =
                    server.driver_mut().register_region(memory, Access::ALL, DOMAIN).expect("registered");
                tell.send((server.driver().local_address(), region.remote(0))).expect("somebody listens");
                server.accept(DOMAIN, PATIENCE).expect("accepted");
                while !matches!(server.wait_event(PATIENCE).expect("waited"), Some(Event::Closed { .. })) {}
                let mut arrived = vec![0; length];
                server.driver().copy_out(region, 0, &mut arrived).expect("inside");
                assert!(arrived == *expected, "the bytes differ");
            });
            let client = scope.spawn(move || {
                enter(a);
                let (address, remote): (SocketAddr, _) = told.recv().expect("the server is up");
                let mut client = handle::<B>("10.77.0.1:0", 1, change);
                let memory = RegionMemory::copied_from(expected).expect("memory");
                let region =
                    client.driver_mut().register_region(memory, Access::ALL, DOMAIN).expect("registered");
                let connection = client.connect(address, PATIENCE).expect("connected");
                let stream = client.driver_mut().open_stream(connection).expect("a stream");
                let segments = [region.segment(0, u32::try_from(length).expect("fits"))];
                client.write(connection, stream, &segments, remote, PATIENCE).expect("written");
                let stats = client.driver_mut().endpoint_mut().connection_stats(connection).expect("open");
                client.close(connection, CloseMode::Drain, PATIENCE).expect("closed");
                (client.driver().stats(), stats)
            });
            server.join().expect("the server did not panic");
            client.join().expect("the client did not panic")
        })
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for name in &self.names {
            run(&format!("ip netns del {name}"));
        }
    }
}

/// Runs a command; whether it succeeded.
pub fn run(command: &str) -> bool {
    let mut words = command.split(' ');
    let program = words.next().unwrap_or("");
    Command::new(program).args(words).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Moves this thread into a namespace.
pub fn enter(name: &str) {
    let namespace = File::open(format!("/run/netns/{name}")).expect("the namespace");
    // SAFETY: the call takes no pointer, and moves only this thread.
    let outcome = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) };
    assert_eq!(outcome, 0, "cannot enter {name}");
}

fn handle<B: Tested>(address: &str, seed: u64, change: fn(&mut DriverConfig)) -> BlockingDriver<B> {
    let mut config = DriverConfig::with_seed(address.parse().expect("an address"), seed);
    change(&mut config);
    BlockingDriver::with_config(config).expect("a handle")
}

pub fn a_full_send_buffer_delays_datagrams_and_loses_none<B: Tested>() {
    let Some(link) = Link::new("full", 9000) else { return };
    let [a, _] = &link.names;
    // Single packets, a device of 400 Mbit/s with a queue longer than the send buffers.
    if !run(&format!("ip netns exec {a} tc qdisc add dev eth0 root tbf rate 400mbit burst 32kb limit 8mb")) {
        return super::skip("a full send buffer", "no tc here");
    }
    let (stats, connection) = link.write::<B>(8 << 20, |config| {
        config.sockets.gso = false;
        config.sockets.send_buffer_bytes = 16 << 10;
    });
    println!("{stats:?}\n{connection:?}");
    assert!(stats.send_errors.would_block > 0, "the buffers were never full");
    assert_eq!(connection.lost, 0, "what waited was sent");
}

pub fn a_link_with_a_smaller_mtu_costs_a_few_probes<B: Tested>() {
    let Some(link) = Link::new("mtu", 1500) else { return };
    let (stats, connection) = link.write::<B>(4 << 20, |_| {});
    println!("{stats:?}\n{connection:?}");
    assert!(stats.send_errors.too_large > 0, "no probe was too large");
    assert!(stats.gso_batches > 0 || stats.send_errors.gso_refused > 0);
}

pub fn marks_that_the_network_sets_reach_the_sender<B: Tested>() {
    let Some(link) = Link::new("ecn", 9000) else { return };
    let rule = "table inet marks { chain f { type filter hook prerouting priority mangle; policy accept\n\
                ip ecn { ect0, ect1 } ip ecn set ce\n}\n}";
    let [a, b] = &link.names;
    if !Command::new("ip")
        .args(["netns", "exec", b, "nft", rule])
        .status()
        .is_ok_and(|status| status.success())
    {
        return super::skip("marks that the network sets", "no nft here");
    }
    let driver = |namespace: &str, address: &str, seed| {
        enter(namespace);
        Box::new(HostDriver::<B>::new(super::pair::config(address, seed)).expect("a driver"))
    };
    let mut two = Two::join([driver(a, "10.77.0.1:0", 1), driver(b, "10.77.0.2:0", 2)]);
    assert!(two.drivers[1].capabilities().ecn);
    two.write_and_verify(1 << 20);
    let (connection, endpoint) = (two.connections[0], two.drivers[0].endpoint_mut());
    let paths: Vec<_> = (0..u8::MAX).map_while(|id| endpoint.path_stats(connection, PathId(id))).collect();
    let delivered: u64 = paths.iter().map(|path| path.packets_delivered).sum();
    let marked: u64 = paths.iter().map(|path| path.packets_marked).sum();
    assert!(marked > 0 && marked * 2 > delivered, "{marked} of {delivered} marked: {paths:#?}");
    two.close();
}
