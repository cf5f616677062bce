//! Sends that find no room: the kernel keeps them until the device takes them, which this one does not. Regions and
//! drivers must go all the same, and nothing of theirs be touched afterwards. Needs root and `ip`.
#![cfg(target_os = "linux")]
#![expect(clippy::expect_used, reason = "a test may panic")]

#[path = "../../metaroce-mio/tests/suite/mod.rs"]
#[allow(dead_code, unused_macros, reason = "a part of it is used here")]
mod suite;

use std::time::{Duration, Instant};

use metaroce_core::region::Access;
use metaroce_core::request::{Operation, WorkRequest};
use metaroce_core::{CloseMode, RegionError};
use metaroce_mio::{DriverConfig, Region, RegionMemory};
use metaroce_uring::{Driver, Uring, UringOptions, ZeroCopy};

use suite::namespaces::{Link, enter, run};
use suite::pair::{DOMAIN, Two};

/// Two drivers in two namespaces, of which the first has sends stuck in the kernel; and the region that they are of.
struct Stuck {
    two: Two<Uring>,
    region: Region,
    // Last, so that the namespaces go after the drivers.
    link: Link,
}

const LENGTH: usize = 1 << 20;
const PORTS: std::ops::RangeInclusive<u16> = 50_800..=50_803;

impl Stuck {
    fn new(test: &str, zero_copy: ZeroCopy) -> Option<Self> {
        if let Err(error) = metaroce_uring::check() {
            suite::skip(test, &error.to_string());
            return None;
        }
        let link = Link::new(test, 9000)?;
        let [a, b] = &link.names;
        let driver = |namespace: &str, address: &str, seed| {
            enter(namespace);
            let mut options = UringOptions::default();
            options.zero_copy = zero_copy;
            Box::new(Driver::with_options(config(address, seed), options).expect("a driver"))
        };
        let mut two = Two::join([driver(a, "10.77.0.1:0", 1), driver(b, "10.77.0.2:0", 2)]);
        // From now on next to nothing leaves, and the queue of the device is longer than the send buffers.
        let slow =
            format!("ip netns exec {a} tc qdisc add dev eth0 root tbf rate 200bit burst 10kb limit 32mb");
        if !run(&slow) {
            suite::skip(test, "no tc here");
            return None;
        }
        let region = two.region(0, RegionMemory::zeroed(LENGTH).expect("memory"));
        let target = two.region(1, RegionMemory::zeroed(LENGTH).expect("memory"));
        let stream = two.drivers[0].open_stream(two.connections[0]).expect("a stream");
        let segments = [region.segment(0, u32::try_from(LENGTH).expect("fits"))];
        let operation = Operation::Write { remote: target.remote(0), immediate: None };
        let request = WorkRequest::new(1, operation, &segments);
        two.drivers[0].post(two.connections[0], stream, request).expect("posted");
        let start = Instant::now();
        while two.drivers[0].backend().counters().sends_under_way == 0
            || two.drivers[0].stats().send_errors.would_block == 0
        {
            two.drivers[0].turn().expect("turned");
            assert!(start.elapsed() < Duration::from_secs(20), "nothing is stuck: {:?}", two.drivers[0]);
        }
        println!("{:?}", two.drivers[0]);
        Some(Self { two, region, link })
    }
}

fn config(address: &str, seed: u64) -> DriverConfig {
    let mut config = DriverConfig::with_seed(address.parse().expect("an address"), seed);
    config.sockets.gso = false;
    config.sockets.send_buffer_bytes = 16 << 10;
    config.endpoint.source_ports = PORTS.into();
    config
}

/// Closes the connection, and asks for the region as soon as the endpoint has no use for it.
fn ask_back(stuck: &mut Stuck) -> Result<RegionMemory, RegionError> {
    let driver = &mut stuck.two.drivers[0];
    driver.close(stuck.two.connections[0], CloseMode::Flush).expect("closing");
    let start = Instant::now();
    loop {
        driver.turn().expect("turned");
        while driver.poll_event().is_some() {}
        match driver.deregister_region(stuck.region) {
            Err(RegionError::InUse) => {}
            outcome => return outcome,
        }
        assert!(start.elapsed() < Duration::from_mins(1), "in use for ever");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_region_is_given_back_after_its_stuck_sends_were_cancelled() {
    let Some(mut stuck) = Stuck::new("cancel", ZeroCopy::Never) else { return };
    let memory = ask_back(&mut stuck).expect("given back");
    assert_eq!(memory.len(), LENGTH);
    let driver = &mut stuck.two.drivers[0];
    let counters = driver.backend().counters();
    assert!(counters.cancelled > 0 && counters.sends_under_way == 0, "{counters:?}");
    // The driver goes on working.
    driver.turn().expect("turned");
    let again = driver.register_region(memory, Access::ALL, DOMAIN).expect("registered");
    driver.deregister_region(again).expect("given back");
}

/// What waits in a device without having been copied can't be called back.
#[test]
fn a_region_that_a_device_still_reads_stays_with_the_driver() {
    let Some(mut stuck) = Stuck::new("direct", ZeroCopy::From(1)) else { return };
    let counters = stuck.two.drivers[0].backend().counters();
    if counters.zero_copy_sends == 0 || counters.zero_copy_copied == counters.zero_copy_sends {
        return suite::skip("a_region_that_a_device_still_reads", "this kernel copies on veth at once");
    }
    println!("{counters:?}");
    assert_eq!(ask_back(&mut stuck).err(), Some(RegionError::NoRegion));
    let driver = &mut stuck.two.drivers[0];
    let after = driver.backend().counters();
    assert!(after.sends_under_way > 0);
    assert_eq!(after.regions_registered, counters.regions_registered, "its buffer stays too: {after:?}");
    assert!(driver.copy_out(stuck.region, 0, &mut [0]).is_err(), "it is no region any more");
    driver.turn().expect("turned");
    let start = Instant::now();
    drop(stuck);
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[test]
fn dropping_a_driver_ends_its_stuck_sends() {
    let Some(stuck) = Stuck::new("drop", ZeroCopy::Never) else { return };
    let Stuck { two, link, .. } = stuck;
    let local = two.drivers[0].local_address().to_string();
    assert!(two.drivers[0].backend().counters().sends_under_way > 0);
    let start = Instant::now();
    drop(two);
    assert!(start.elapsed() < Duration::from_secs(10));
    // A request that is not over would keep its socket, and the socket its port.
    enter(&link.names[0]);
    let again = Driver::new(config(&local, 3)).expect("the port is free");
    assert_eq!(again.local_address().to_string(), local);
    for port in PORTS {
        std::net::UdpSocket::bind(("10.77.0.1", port)).expect("the ports of the paths are free");
    }
}
