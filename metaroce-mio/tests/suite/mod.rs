//! Tests that every backend on UDP sockets must pass, each generic over the backend: [`backend_tests`] makes them tests
//! of one. Other crates of the workspace include this module by its path.
#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "a test may panic")]

pub mod blocking;
pub mod driver;
#[cfg(target_os = "linux")]
pub mod namespaces;
pub mod pair;

use metaroce_mio::OpenBackend;
use metaroce_mio::socket::Sockets;

/// A backend under test.
pub trait Tested: OpenBackend + 'static {
    /// Why it can't work on this machine; then its tests are skipped.
    fn missing() -> Option<String>;

    /// Its sockets.
    fn sockets_mut(&mut self) -> &mut Sockets;
}

/// All tests of this module, for one backend.
#[macro_export]
macro_rules! backend_tests {
    ($backend:ty) => {
        $crate::backend_tests! { @modules $backend;
            driver {
                sixty_four_mebibytes_arrive_over_a_clean_link
                sixty_four_mebibytes_arrive_in_spite_of_loss
                every_kind_of_fault_at_once_is_survived
                portable_and_native_drivers_understand_each_other
                without_offloads_everything_goes_in_single_datagrams
                #[cfg(target_os = "linux")]
                a_segmented_send_that_is_refused_goes_out_singly_and_is_not_tried_again
                two_planes_both_carry_data
                a_further_plane_needs_an_address_that_peers_can_be_told
                more_paths_than_path_sockets_still_work
                a_region_gives_its_memory_back_and_a_stale_handle_finds_nothing
                memory_mapped_for_reading_gets_no_rights_to_write
                a_port_that_is_taken_is_reported
                an_idle_driver_has_nothing_more_to_do
                a_driver_can_move_to_another_thread
            }
            blocking {
                two_threads_write_read_and_send_over_ipv4
                two_threads_write_read_and_send_over_ipv6
                two_threads_write_read_and_send_in_spite_of_loss
                an_ipv4_client_reaches_a_server_that_listens_on_any_ipv6_address
                connecting_to_nobody_times_out_and_never_fails_on_icmp
                waiting_without_events_ends_in_time
            }
            #[cfg(target_os = "linux")]
            namespaces {
                a_full_send_buffer_delays_datagrams_and_loses_none
                a_link_with_a_smaller_mtu_costs_a_few_probes
                marks_that_the_network_sets_reach_the_sender
            }
        }
    };
    (@modules $backend:ty; $($(#[$attribute:meta])* $module:ident { $($(#[$cfg:meta])* $name:ident)+ })+) => {
        $(
            $(#[$attribute])*
            mod $module {
                #[allow(unused_imports, reason = "a backend of the including file")]
                use super::*;
                $(
                    $(#[$cfg])*
                    #[test]
                    fn $name() {
                        match <$backend as $crate::suite::Tested>::missing() {
                            None => $crate::suite::$module::$name::<$backend>(),
                            Some(reason) => $crate::suite::skip(stringify!($name), &reason),
                        }
                    }
                )+
            }
        )+
    };
}

/// Says why a test is not run, also where the output of tests is captured.
pub fn skip(test: &str, reason: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "\nskipped: {test}: {reason}");
}
