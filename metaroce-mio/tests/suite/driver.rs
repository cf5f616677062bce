//! Two drivers that take turns on one thread, over real loopback sockets.

use std::io;

use metaroce_core::RegionError;
use metaroce_core::config::ConfigError;
use metaroce_core::ids::PathId;
use metaroce_core::region::Access;
use metaroce_core::transmit::SourcePort;
use metaroce_mio::{Backend, BuildError, Faults, HostDriver, Polled, RegionMemory, RegisterError, Turn};

use super::Tested;
use super::pair::{DOMAIN, Two, V4, V6, config, configs};

pub fn sixty_four_mebibytes_arrive_over_a_clean_link<B: Tested>() {
    for address in [V4, V6] {
        let mut two = Two::<B>::connect(configs(address, |_| {}));
        two.write_and_verify(64 << 20);
        let capabilities = two.drivers[0].capabilities();
        let [sender, receiver] = [0, 1].map(|side| two.drivers[side].stats());
        println!("{address}: {capabilities:?}\n{sender:?}\n{receiver:?}");
        println!("{:?}", two.drivers[0].endpoint_mut().connection_stats(two.connections[0]));
        assert_eq!(sender.gso_batches > 0, capabilities.gso);
        assert_eq!(receiver.gro_batches > 0, capabilities.gro && capabilities.gso);
        assert!(sender.path_sockets_opened > 1, "more than one path");
        two.close();
    }
}

pub fn sixty_four_mebibytes_arrive_in_spite_of_loss<B: Tested>() {
    for address in [V4, V6] {
        let mut two = Two::<B>::connect(configs(address, |config| config.faults = Faults::loss(0.02, 5)));
        two.write_and_verify(64 << 20);
        let stats = two.drivers[0].stats();
        let connection = two.drivers[0].endpoint_mut().connection_stats(two.connections[0]).expect("open");
        println!("{address}: {:?} {connection:?}", stats.injected);
        assert!(stats.injected.lost > 100);
        assert!(connection.retransmitted + connection.retransmitted_by_timeout > 100);
        two.close();
    }
}

pub fn every_kind_of_fault_at_once_is_survived<B: Tested>() {
    for address in [V4, V6] {
        let mut faults = Faults::loss(0.02, 3);
        (faults.reorder, faults.duplicate, faults.corrupt) = (0.02, 0.02, 0.02);
        let mut two = Two::<B>::connect(configs(address, |config| config.faults = faults));
        two.write_and_verify(8 << 20);
        let injected = two.drivers[0].stats().injected;
        println!("{address}: {injected:?}");
        for count in [injected.lost, injected.reordered, injected.duplicated, injected.corrupted] {
            assert!(count > 0, "{injected:?}");
        }
        two.close();
    }
}

pub fn portable_and_native_drivers_understand_each_other<B: Tested>() {
    for portable in [[true, true], [true, false], [false, true]] {
        for address in [V4, V6] {
            let mut configs = configs(address, |config| config.faults = Faults::loss(0.01, 9));
            for (config, portable) in configs.iter_mut().zip(portable) {
                config.sockets.portable = portable;
            }
            let mut two = Two::join(configs.map(|config| {
                let driver: Box<HostDriver<dyn Backend>> = if config.sockets.portable {
                    Box::new(HostDriver::<Polled>::new(config).expect("a driver"))
                } else {
                    Box::new(HostDriver::<B>::new(config).expect("a driver"))
                };
                driver
            }));
            two.write_and_verify(4 << 20);
            if portable[0] {
                let stats = two.drivers[0].stats();
                assert_eq!((stats.gso_batches, stats.gro_batches), (0, 0));
            }
            two.close();
        }
    }
}

pub fn without_offloads_everything_goes_in_single_datagrams<B: Tested>() {
    let mut two = Two::<B>::connect(configs(V4, |config| {
        (config.sockets.gso, config.sockets.gro) = (false, false);
    }));
    two.write_and_verify(8 << 20);
    for driver in &two.drivers {
        assert_eq!((driver.stats().gso_batches, driver.stats().gro_batches), (0, 0));
        assert_eq!(driver.endpoint().config().burst_packets, 1);
    }
    two.close();
}

/// The kernel refuses segmented sends (EINVAL) from a socket that sends without UDP checksum: like a device that cannot
/// do it.
#[cfg(target_os = "linux")]
pub fn a_segmented_send_that_is_refused_goes_out_singly_and_is_not_tried_again<B: Tested>() {
    let mut configs = configs(V4, |config| config.endpoint.source_ports = (50_700..=50_707).into());
    configs[0].endpoint.source_ports = (50_600..=50_607).into();
    let mut two = Two::<B>::connect(configs);
    if !two.drivers[0].capabilities().gso {
        return super::skip("a segmented send is refused", "no segmentation offload on this system");
    }
    for port in 50_600..=50_607 {
        let (socket, _) =
            two.drivers[0].backend_mut().sockets_mut().sending(0, SourcePort::Path(port)).expect("a socket");
        set_no_udp_checksum(socket);
    }
    two.write_and_verify(8 << 20);
    let stats = two.drivers[0].stats();
    println!("{stats:?}");
    assert!(stats.send_errors.gso_refused > 0);
    assert!(!two.drivers[0].capabilities().gso);
    assert_eq!(stats.gso_batches, 0);
    two.close();
}

pub fn two_planes_both_carry_data<B: Tested>() {
    let mut two = Two::<B>::connect(configs(V4, |config| {
        config.local.push("127.0.0.2:0".parse().expect("an address"));
    }));
    assert_eq!(two.drivers[0].local_addresses().len(), 2);
    two.write_and_verify(16 << 20);
    let connection = two.connections[0];
    let endpoint = two.drivers[0].endpoint_mut();
    let planes: Vec<_> = (0..3).map_while(|plane| endpoint.plane_stats(connection, plane)).collect();
    assert_eq!(planes.len(), 2, "{planes:?}");
    let mut sent = [0; 2];
    for path in (0..u8::MAX).map_while(|id| endpoint.path_stats(connection, PathId(id))) {
        sent[usize::from(path.plane)] += path.packets_sent;
    }
    assert!(sent.iter().all(|packets| *packets > 100), "{sent:?}");
    two.close();
}

pub fn a_further_plane_needs_an_address_that_peers_can_be_told<B: Tested>() {
    let mut config = config(V4, 1);
    config.local.push("0.0.0.0:0".parse().expect("an address"));
    let error = HostDriver::<B>::new(config).expect_err("refused");
    assert!(matches!(error, BuildError::Config(ConfigError::Config("planes"))), "{error}");
}

pub fn more_paths_than_path_sockets_still_work<B: Tested>() {
    let mut two = Two::<B>::connect(configs(V4, |config| config.sockets.path_sockets_max = 2));
    two.write_and_verify(4 << 20);
    assert!(two.drivers[0].stats().path_sockets_evicted > 0);
    two.close();
}

pub fn a_region_gives_its_memory_back_and_a_stale_handle_finds_nothing<B: Tested>() {
    let mut driver = HostDriver::<B>::new(config(V4, 1)).expect("a driver");
    let memory = RegionMemory::copied_from(b"twelve bytes").expect("memory");
    let region = driver.register_region_at(memory, 0x1000, Access::REMOTE_READ, DOMAIN).expect("registered");
    assert_eq!((region.len(), region.base_address(), region.remote(4).address), (12, 0x1000, 0x1004));
    driver.copy_in(region, 7, b"BYTES").expect("inside");
    assert!(driver.copy_in(region, 8, b"BYTES").is_err());
    let memory = driver.deregister_region(region).expect("registered");
    let mut bytes = [0; 12];
    memory.copy_to(0, &mut bytes).expect("inside");
    assert_eq!(&bytes, b"twelve BYTES");

    let again = driver.register_region(memory, Access::ALL, DOMAIN).expect("registered");
    assert!(driver.copy_out(region, 0, &mut bytes).is_err());
    assert!(driver.copy_out(again, 0, &mut bytes).is_ok());
    assert_eq!(driver.deregister_region(region).err(), Some(RegionError::NoRegion));
}

pub fn memory_mapped_for_reading_gets_no_rights_to_write<B: Tested>() {
    let mut driver = HostDriver::<B>::new(config(V4, 1)).expect("a driver");
    let file = std::fs::File::open(std::env::current_exe().expect("a path")).expect("this program");
    for access in [Access::LOCAL_WRITE, Access::REMOTE_WRITE, Access::REMOTE_ATOMIC, Access::ALL] {
        let memory = RegionMemory::file_read_only(&file, 0, 4096).expect("mapped");
        assert_eq!(driver.register_region(memory, access, DOMAIN), Err(RegisterError::ReadOnly));
    }
    let memory = RegionMemory::file_read_only(&file, 0, 4096).expect("mapped");
    driver.register_region(memory, Access::REMOTE_READ, DOMAIN).expect("registered");
}

pub fn a_port_that_is_taken_is_reported<B: Tested>() {
    let first = HostDriver::<B>::new(config(V4, 1)).expect("a driver");
    let error = HostDriver::<B>::new(config(&first.local_address().to_string(), 2)).expect_err("taken");
    assert!(matches!(&error, BuildError::Io(error) if error.kind() == io::ErrorKind::AddrInUse), "{error}");
}

pub fn an_idle_driver_has_nothing_more_to_do<B: Tested>() {
    let mut driver = HostDriver::<B>::new(config(V4, 1)).expect("a driver");
    assert_eq!(driver.turn().expect("turned"), Turn::default());
}

pub fn a_driver_can_move_to_another_thread<B: Tested>() {
    fn is_send<T: Send>(_: &T) {}
    is_send(&HostDriver::<B>::new(config(V4, 1)).expect("a driver"));
}

/// Makes a socket send without UDP checksum, which the kernel does not do together with segmentation.
#[cfg(target_os = "linux")]
fn set_no_udp_checksum(socket: &mio::net::UdpSocket) {
    let value: libc::c_int = 1;
    let length = libc::socklen_t::try_from(size_of_val(&value)).expect("small");
    // SAFETY: the value is alive during the call and has the length that is given.
    let outcome = unsafe {
        let (level, name) = (libc::SOL_SOCKET, libc::SO_NO_CHECK);
        libc::setsockopt(
            std::os::fd::AsRawFd::as_raw_fd(socket),
            level,
            name,
            (&raw const value).cast(),
            length,
        )
    };
    assert_eq!(outcome, 0, "{}", io::Error::last_os_error());
}
