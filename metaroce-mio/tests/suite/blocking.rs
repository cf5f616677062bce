//! Two blocking handles on two threads, over real loopback sockets.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use metaroce_core::CloseMode;
use metaroce_core::event::{CloseReason, CompletionKind, Event, Status};
use metaroce_core::ids::{ProtectionDomain, StreamId};
use metaroce_core::region::Access;
use metaroce_core::request::RemoteAddress;
use metaroce_mio::{BlockingDriver, BlockingError, DriverConfig, Faults, RegionMemory};

use super::Tested;

const DOMAIN: ProtectionDomain = ProtectionDomain(0);
const PATIENCE: Duration = Duration::from_secs(20);
const LENGTH: usize = 1 << 20;

fn handle<B: Tested>(address: &str, seed: u64, loss: f64) -> BlockingDriver<B> {
    let mut config = DriverConfig::with_seed(address.parse().expect("an address"), seed);
    config.faults = Faults::loss(loss, seed);
    BlockingDriver::with_config(config).expect("a handle")
}

/// A peer that offers one region, answers one SEND, and stays until it is closed. Tells its address and region.
fn spawn_peer<B: Tested>(
    address: &'static str,
    loss: f64,
) -> (SocketAddr, RemoteAddress, thread::JoinHandle<CloseReason>) {
    let (tell, told) = mpsc::channel();
    let thread = thread::spawn(move || {
        let mut peer = handle::<B>(address, 2, loss);
        let memory = RegionMemory::zeroed(LENGTH).expect("memory");
        let region = peer.driver_mut().register_region(memory, Access::ALL, DOMAIN).expect("registered");
        tell.send((peer.driver().local_address(), region.remote(0))).expect("somebody listens");
        let connection = peer.accept(DOMAIN, PATIENCE).expect("accepted");
        let inbox = RegionMemory::zeroed(4096).expect("memory");
        let inbox = peer.driver_mut().register_region(inbox, Access::ALL, DOMAIN).expect("registered");
        let message =
            peer.receive(connection, StreamId(0), &[inbox.segment(0, 4096)], PATIENCE).expect("a message");
        assert_eq!((message.kind, message.bytes), (CompletionKind::Receive, 5));
        peer.send(connection, StreamId(0), &[inbox.segment(0, message.bytes)], PATIENCE).expect("answered");
        loop {
            if let Some(Event::Closed { reason, .. }) = peer.wait_event(PATIENCE).expect("waited") {
                return reason;
            }
        }
    });
    let (address, remote) = told.recv().expect("the peer is up");
    (address, remote, thread)
}

fn converse<B: Tested>(local: &'static str, loss: f64) {
    let (address, remote, peer) = spawn_peer::<B>(local, loss);
    let mut own = handle::<B>(local, 1, loss);
    let bytes: Vec<u8> = (0..LENGTH).map(|i| (i % 251).to_le_bytes()[0]).collect();
    let source = RegionMemory::copied_from(&bytes).expect("memory");
    let source = own.driver_mut().register_region(source, Access::ALL, DOMAIN).expect("registered");
    let sink = RegionMemory::zeroed(LENGTH).expect("memory");
    let sink = own.driver_mut().register_region(sink, Access::ALL, DOMAIN).expect("registered");
    let length = u32::try_from(LENGTH).expect("fits");

    let connection = own.connect(address, PATIENCE).expect("connected");
    let stream = own.driver_mut().open_stream(connection).expect("a stream");
    own.write(connection, stream, &[source.segment(0, length)], remote, PATIENCE).expect("written");
    let read = own.read(connection, stream, &[sink.segment(0, length)], remote, PATIENCE).expect("read");
    assert_eq!((read.kind, read.status), (CompletionKind::Read, Status::Success));
    let mut back = vec![0; LENGTH];
    own.driver().copy_out(sink, 0, &mut back).expect("inside");
    assert!(back == bytes, "the bytes differ");

    own.send(connection, stream, &[source.segment(0, 5)], PATIENCE).expect("sent");
    own.receive(connection, stream, &[sink.segment(8, 100)], PATIENCE).expect("answered");
    own.driver().copy_out(sink, 8, &mut back[..5]).expect("inside");
    assert_eq!(&back[..5], &bytes[..5]);

    let wrong = RemoteAddress { address: LENGTH as u64, ..remote };
    let error =
        own.write(connection, stream, &[source.segment(0, 8)], wrong, PATIENCE).expect_err("past the end");
    assert!(matches!(&error, BlockingError::Failed(c) if c.status == Status::RemoteAccess), "{error}");

    assert_eq!(own.close(connection, CloseMode::Drain, PATIENCE).expect("closed"), CloseReason::Local);
    assert_eq!(peer.join().expect("no panic"), CloseReason::Peer);
}

pub fn two_threads_write_read_and_send_over_ipv4<B: Tested>() {
    converse::<B>("127.0.0.1:0", 0.0);
}

pub fn two_threads_write_read_and_send_over_ipv6<B: Tested>() {
    converse::<B>("[::1]:0", 0.0);
}

pub fn two_threads_write_read_and_send_in_spite_of_loss<B: Tested>() {
    converse::<B>("127.0.0.1:0", 0.05);
}

pub fn an_ipv4_client_reaches_a_server_that_listens_on_any_ipv6_address<B: Tested>() {
    let mut server = handle::<B>("[::]:0", 2, 0.0);
    let port = server.driver().local_address().port();
    let server = thread::spawn(move || server.accept(DOMAIN, PATIENCE).map(|_| ()));
    let mut client = handle::<B>("127.0.0.1:0", 1, 0.0);
    client.connect(SocketAddr::from(([127, 0, 0, 1], port)), PATIENCE).expect("connected");
    server.join().expect("no panic").expect("accepted");
}

pub fn connecting_to_nobody_times_out_and_never_fails_on_icmp<B: Tested>() {
    let nobody = std::net::UdpSocket::bind("127.0.0.1:0").expect("bound").local_addr().expect("bound");
    let mut own = handle::<B>("127.0.0.1:0", 1, 0.0);
    let start = Instant::now();
    let error = own.connect(nobody, Duration::from_millis(300)).expect_err("nobody there");
    assert!(matches!(error, BlockingError::TimedOut), "{error}");
    assert!(start.elapsed() >= Duration::from_millis(300));
}

pub fn waiting_without_events_ends_in_time<B: Tested>() {
    let mut own = handle::<B>("127.0.0.1:0", 1, 0.0);
    let start = Instant::now();
    assert_eq!(own.wait_event(Duration::from_millis(30)).expect("waited"), None);
    assert!((30..10_000).contains(&start.elapsed().as_millis()));
    assert!(matches!(own.accept(DOMAIN, Duration::from_millis(10)), Err(BlockingError::TimedOut)));
}
