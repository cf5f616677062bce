//! What can go wrong between the driver and the kernel: queues and buffers that overflow, limits that are reached, sends
//! that never leave, threads that are not the right one.
#![cfg(target_os = "linux")]
#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "a test may panic")]

#[path = "../../metaroce-mio/tests/suite/mod.rs"]
#[allow(dead_code, unused_macros, reason = "a part of it is used here")]
mod suite;

#[path = "support/child.rs"]
mod child;

use std::time::{Duration, Instant};

use metaroce_core::region::Access;
use metaroce_mio::{DriverConfig, Faults, RegionMemory};
use metaroce_uring::{Driver, Uring, UringOptions, UringStats, ZeroCopy};

use suite::pair::{DOMAIN, Two, V4, V6, config, configs};

/// `true` where the backend works; else says why not.
fn possible(test: &str) -> bool {
    metaroce_uring::check().inspect_err(|error| suite::skip(test, &error.to_string())).is_ok()
}

fn pair(change: fn(&mut DriverConfig), options: UringOptions) -> Two<Uring> {
    let drivers =
        configs(V4, change).map(|config| Box::new(Driver::with_options(config, options).expect("a driver")));
    Two::join(drivers)
}

fn options(change: fn(&mut UringOptions)) -> UringOptions {
    let mut options = UringOptions::default();
    change(&mut options);
    options
}

fn counters(two: &Two<Uring>) -> [UringStats; 2] {
    [0, 1].map(|side| two.drivers[side].backend().counters())
}

fn single_datagrams(config: &mut DriverConfig) {
    (config.sockets.gso, config.sockets.gro) = (false, false);
}

#[test]
fn receive_buffers_that_run_out_stop_nothing() {
    if !possible("receive_buffers_that_run_out_stop_nothing") {
        return;
    }
    for change in [|_: &mut DriverConfig| {}, single_datagrams] {
        let mut two = pair(change, options(|options| options.receive_buffers = Some(2)));
        two.write_and_verify(8 << 20);
        let [_, receiver] = counters(&two);
        println!("{receiver:?}");
        assert!(receiver.buffers_exhausted > 10, "{receiver:?}");
        // Receiving is not started anew before there are buffers for it, or else it would end at once.
        let filled = two.drivers[1].stats().receive_calls;
        assert!(2 * receiver.buffers_exhausted <= filled + 2, "{receiver:?}, {filled} filled");
        two.close();
    }
}

#[test]
fn a_completion_queue_that_overflows_loses_nothing() {
    if !possible("a_completion_queue_that_overflows_loses_nothing") {
        return;
    }
    // Many more datagrams and sends at once than the 32 completions that there is room for.
    let tiny = options(|options| (options.entries, options.receive_buffers) = (8, Some(512)));
    let mut two = pair(single_datagrams, tiny);
    two.write_and_verify(8 << 20);
    let counters = counters(&two);
    println!("{counters:?}");
    assert!(counters.iter().any(|counters| counters.completion_overflows > 0), "{counters:?}");
    let connection = two.connections[0];
    let stats = two.drivers[0].endpoint_mut().connection_stats(connection).expect("open");
    if two.drivers[1].stats().receive_overflows == 0 {
        assert_eq!(stats.lost, 0, "{stats:?}");
    }
    two.close();
}

#[test]
fn few_descriptors_slow_sending_down_and_lose_nothing() {
    if !possible("few_descriptors_slow_sending_down_and_lose_nothing") {
        return;
    }
    let mut two = pair(|_| {}, options(|options| options.sends_max = 1));
    two.write_and_verify(8 << 20);
    two.close();
}

#[test]
fn a_thread_of_the_kernel_may_submit() {
    if !possible("a_thread_of_the_kernel_may_submit") {
        return;
    }
    let polled = options(|options| options.sq_poll_idle = Some(Duration::from_millis(5)));
    let mut two = pair(|config| config.faults = Faults::loss(0.01, 3), polled);
    two.write_and_verify(8 << 20);
    println!("{:?}", counters(&two));
    two.close();
}

#[test]
fn where_the_device_copies_sending_without_a_copy_stays_at_the_trial() {
    if !possible("where_the_device_copies_sending_without_a_copy_stays_at_the_trial") {
        return;
    }
    let few = |config: &mut DriverConfig| config.sockets.gso_segments_max = 4;
    let mut two = pair(few, UringOptions::default());
    two.write_and_verify(16 << 20);
    let [sender, _] = counters(&two);
    println!("{sender:?}");
    assert!(sender.zero_copy_sends <= 1, "loopback copies: {sender:?}");
    assert_eq!(sender.zero_copy_copied, sender.zero_copy_sends);
    two.close();
}

#[test]
fn sending_without_a_copy_delivers_the_same_bytes() {
    if !possible("sending_without_a_copy_delivers_the_same_bytes") {
        return;
    }
    // Few segments, so that the pieces of a send fit.
    let few = |config: &mut DriverConfig| config.sockets.gso_segments_max = 4;
    let mut two = pair(few, options(|options| options.zero_copy = ZeroCopy::From(1)));
    two.write_and_verify(16 << 20);
    let [sender, _] = counters(&two);
    println!("{sender:?} {:?}", two.drivers[0].stats());
    assert_eq!(two.drivers[0].stats().send_errors.gso_refused, 0, "no send had too many pieces");
    assert!(sender.zero_copy_sends > 100 || sender.zero_copy_refused > 0, "{sender:?}");
    two.close();
}

/// Whether the kernel knows sends that gather from a registered buffer (Linux 6.15).
fn sends_from_registered(test: &str, sender: &UringStats) -> bool {
    let refused = sender.registered_refused > 0 && sender.registered_sends == sender.registered_refused;
    if refused || sender.zero_copy_sends == 0 {
        suite::skip(test, "this kernel sends nothing from registered buffers");
    }
    !refused && sender.zero_copy_sends > 0
}

/// Whether regions can be registered whatever else runs: an ordinary user's room for locked memory is one for all of its
/// processes, so that tests which run side by side take it from each other.
fn room_is_ours(test: &str) -> bool {
    // SAFETY: the call takes nothing and cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        suite::skip(test, "an ordinary user's room for locked memory is shared by all that runs");
    }
    root
}

#[test]
fn sending_from_registered_regions_delivers_the_same_bytes() {
    let test = "sending_from_registered_regions_delivers_the_same_bytes";
    if !possible(test) || !room_is_ours(test) {
        return;
    }
    for segments_max in [1, 4, 8] {
        let drivers = configs(V4, |_| {}).map(|mut config| {
            config.sockets.gso_segments_max = segments_max;
            let options = options(|options| options.zero_copy = ZeroCopy::From(1));
            Box::new(Driver::with_options(config, options).expect("a driver"))
        });
        let mut two = Two::join(drivers);
        two.write_and_verify(16 << 20);
        let [sender, _] = counters(&two);
        println!("{segments_max} segments: {sender:?}");
        if !sends_from_registered(test, &sender) {
            return;
        }
        assert_eq!(sender.regions_refused, 0, "{sender:?}");
        assert!(sender.registered_sends > 100, "{sender:?}");
        assert!(sender.regions_registered <= 1, "what is given back is not registered any more: {sender:?}");
        assert_eq!(two.drivers[0].stats().send_errors.gso_refused, 0);
        two.close();
    }
}

/// Memory that the kernel does not keep in huge pages has more pieces than it seems.
#[test]
fn a_registered_send_of_too_many_pieces_goes_out_as_a_copy() {
    let test = "a_registered_send_of_too_many_pieces_goes_out_as_a_copy";
    if !possible(test) || !room_is_ours(test) {
        return;
    }
    let large = |config: &mut DriverConfig| {
        config.endpoint.mtu_bytes = 9_000;
        config.sockets.gso_segments_max = 6;
    };
    let mut two = pair(large, options(|options| options.zero_copy = ZeroCopy::From(1)));
    for _ in 0..4 {
        // Too small to be in huge pages.
        two.write_and_verify(3 << 20);
    }
    let [sender, _] = counters(&two);
    println!("{sender:?}");
    assert_eq!(two.drivers[0].stats().send_errors.gso_refused, 0, "{sender:?}");
    assert!(sender.regions_refused == 0 && sender.zero_copy_sends > 0, "{sender:?}");
    // Each region once, and what was under way then.
    assert!(10 * sender.registered_refused <= sender.requests, "{sender:?}");
    two.close();
}

#[test]
fn no_more_is_registered_than_allowed() {
    let test = "no_more_is_registered_than_allowed";
    if !possible(test) {
        return;
    }
    for (allowed, refused) in [(0, 0), (4 << 20, 1)] {
        let drivers = configs(V4, |config| config.sockets.gso_segments_max = 4).map(|config| {
            let mut options = options(|options| options.zero_copy = ZeroCopy::From(1));
            options.registered_bytes_max = allowed;
            Box::new(Driver::with_options(config, options).expect("a driver"))
        });
        let mut two = Two::join(drivers);
        two.write_and_verify(8 << 20);
        let [sender, _] = counters(&two);
        println!("{sender:?}");
        assert_eq!((sender.registered_sends, sender.regions_refused), (0, refused), "{sender:?}");
        assert!(sender.zero_copy_sends > 0, "{sender:?}");
        two.close();
    }
}

#[test]
fn an_ordinary_user_without_room_for_a_registered_region_sends_all_the_same() {
    let test = "an_ordinary_user_without_room_for_a_registered_region_sends_all_the_same";
    if !possible(test) {
        return;
    }
    let limits = child::Limits { locked_bytes: Some(4 << 20), open_files: None, ordinary_user: true };
    child::run(test, limits, || {
        let few = |config: &mut DriverConfig| config.sockets.gso_segments_max = 4;
        let mut two = pair(few, options(|options| options.zero_copy = ZeroCopy::From(1)));
        two.write_and_verify(8 << 20);
        let [sender, _] = counters(&two);
        assert!(sender.regions_refused > 0 && sender.registered_sends == 0, "{sender:?}");
        // A smaller one fits, as soon as others of this user leave room. The ring's own memory is not counted.
        let fits = (0..200).any(|_| {
            two.write_and_verify(2 << 20);
            counters(&two)[0].registered_sends > 0
        });
        assert!(fits, "{:?}", counters(&two));
        two.close();
    });
}

#[test]
fn without_locked_memory_and_privileges_everything_is_copied() {
    let test = "without_locked_memory_and_privileges_everything_is_copied";
    if !possible(test) {
        return;
    }
    child::run(test, child::Limits { locked_bytes: Some(0), open_files: None, ordinary_user: true }, || {
        let mut two = pair(|_| {}, options(|options| options.zero_copy = ZeroCopy::From(1)));
        two.write_and_verify(8 << 20);
        let [sender, _] = counters(&two);
        assert!(sender.zero_copy_refused > 0, "{sender:?}");
        two.close();
    });
}

#[test]
fn without_room_for_registered_sockets_descriptors_are_used() {
    let test = "without_room_for_registered_sockets_descriptors_are_used";
    if !possible(test) {
        return;
    }
    child::run(
        test,
        child::Limits { locked_bytes: None, open_files: Some(100), ordinary_user: false },
        || {
            // Evictions, too: no request may meet another socket under the same number.
            let mut two = pair(|config| config.sockets.path_sockets_max = 200, UringOptions::default());
            assert!(counters(&two).iter().all(|counters| !counters.registered_files));
            two.write_and_verify(8 << 20);
            two.close();
        },
    );
}

#[test]
fn a_driver_belongs_to_the_thread_that_first_ran_it() {
    if !possible("a_driver_belongs_to_the_thread_that_first_ran_it") {
        return;
    }
    let mut driver = Driver::new(config(V6, 1)).expect("a driver");
    let mut driver = std::thread::spawn(move || {
        driver.turn().expect("nobody's until now");
        driver
    })
    .join()
    .expect("no panic");
    if driver.backend().counters().deferred {
        let error = (0..3).find_map(|_| driver.wait(Some(Duration::from_millis(1))).err()).expect("refused");
        assert!(error.to_string().contains("belongs to the thread"), "{error}");
    }
    // Its requests can't be ended from here; it leaks what the kernel may touch, and nothing else happens.
    drop(driver);
}

#[test]
fn a_waker_ends_a_wait() {
    if !possible("a_waker_ends_a_wait") {
        return;
    }
    let mut driver = Driver::new(config(V4, 1)).expect("a driver");
    let waker = driver.waker().expect("a waker");
    for round in 0..3 {
        let other = waker.clone();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            other.wake().expect("the driver is there");
        });
        let start = Instant::now();
        driver.wait(Some(Duration::from_secs(20))).expect("waited");
        assert!(start.elapsed() < Duration::from_secs(15), "round {round}");
        thread.join().expect("no panic");
        driver.turn().expect("turned");
    }
    // Woken before it waits: the next wait ends at once.
    waker.wake().expect("the driver is there");
    driver.turn().expect("turned");
    let start = Instant::now();
    driver.wait(Some(Duration::from_secs(20))).expect("waited");
    assert!(start.elapsed() < Duration::from_secs(15));
}

#[test]
fn a_kernel_that_forbids_or_lacks_the_ring_is_named_with_the_way_out() {
    for (errno, words) in [
        (libc::EPERM, "kernel.io_uring_disabled"),
        (libc::ENOSYS, "no io_uring"),
        (libc::ENOMEM, "ulimit -l"),
    ] {
        let error = std::thread::spawn(move || {
            child::refuse_call(libc::SYS_io_uring_setup, None, errno);
            Driver::new(config(V4, 1)).expect_err("no ring").to_string()
        });
        let error = error.join().expect("no panic");
        assert!(error.contains(words) && error.contains("`--backend mio`"), "{error}");
    }
}

#[test]
fn a_kernel_without_provided_buffers_is_named_as_too_old() {
    if !possible("a_kernel_without_provided_buffers_is_named_as_too_old") {
        return;
    }
    let error = std::thread::spawn(|| {
        child::refuse_call(libc::SYS_io_uring_register, Some(REGISTER_PBUF_RING), libc::EINVAL);
        Driver::new(config(V4, 1)).expect_err("no buffers").to_string()
    });
    let error = error.join().expect("no panic");
    assert!(error.contains("receive buffers") && error.contains("5.19"), "{error}");
    assert!(error.contains("feature `mio`"), "{error}");
}

#[test]
fn a_region_without_sends_under_way_is_given_back_at_once() {
    if !possible("a_region_without_sends_under_way_is_given_back_at_once") {
        return;
    }
    let mut driver = Driver::new(config(V4, 1)).expect("a driver");
    let memory = RegionMemory::copied_from(b"bytes").expect("memory");
    let region = driver.register_region(memory, Access::ALL, DOMAIN).expect("registered");
    driver.turn().expect("turned");
    assert_eq!(driver.deregister_region(region).expect("given back").len(), 5);
}

/// `IORING_REGISTER_PBUF_RING`.
const REGISTER_PBUF_RING: u32 = 22;
