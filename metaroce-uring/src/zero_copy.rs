//! When to send without a copy.
//!
//! Not copying has a price: pages are pinned, and a second completion tells when they are free. And many a device
//! copies all the same (loopback, veth: whatever hands the packet to a socket of this host), so that it costs without
//! any gain. So each destination is tried with one send, and if that was not copied, the price is measured once.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use crate::options::ZeroCopy;
use crate::sys::price::{LARGE_BYTES, Prices, SMALL_BYTES, measure};

/// Decides for each send.
#[derive(Debug)]
pub(crate) struct Policy {
    mode: ZeroCopy,
    /// Measured when first needed.
    pays_from: Option<PaysFrom>,
    destinations: Vec<(u8, IpAddr, Verdict)>,
}

/// The sizes from which not copying pays, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PaysFrom {
    /// From where the bytes are.
    pub(crate) direct: usize,
    /// The same, from a registered buffer.
    pub(crate) registered: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// One send is under way.
    Trying,
    /// The device copies.
    Copies,
    /// The device sends from where the bytes are.
    Direct,
}

impl Policy {
    pub(crate) fn new(mode: ZeroCopy, supported: bool) -> Self {
        let mode = if supported { mode } else { ZeroCopy::Never };
        Self { mode, pays_from: None, destinations: Vec::new() }
    }

    /// Whether a send of `bytes` is to go out without a copy.
    pub(crate) fn wants(&mut self, plane: u8, to: IpAddr, bytes: usize) -> bool {
        match self.mode {
            ZeroCopy::Never => false,
            ZeroCopy::From(least) => bytes >= least,
            ZeroCopy::Auto if bytes < TRIAL_BYTES_MIN => false,
            ZeroCopy::Auto => {
                let known = self.destinations.iter().find(|(p, ip, _)| (*p, *ip) == (plane, to));
                match known.map(|(_, _, verdict)| *verdict) {
                    Some(Verdict::Direct) => bytes >= self.pays_from().direct,
                    Some(Verdict::Trying | Verdict::Copies) => false,
                    None if self.destinations.len() >= DESTINATIONS_MAX => false,
                    None => {
                        self.destinations.push((plane, to, Verdict::Trying));
                        true
                    }
                }
            }
        }
    }

    /// Whether a send of `bytes` is to go out from a registered buffer, if it can.
    pub(crate) fn wants_registered(&mut self, plane: u8, to: IpAddr, bytes: usize) -> bool {
        match self.mode {
            ZeroCopy::Never => false,
            ZeroCopy::From(least) => bytes >= least,
            ZeroCopy::Auto => {
                self.destinations.contains(&(plane, to, Verdict::Direct))
                    && bytes >= self.pays_from().registered
            }
        }
    }

    fn pays_from(&mut self) -> PaysFrom {
        let never = PaysFrom { direct: usize::MAX, registered: usize::MAX };
        *self.pays_from.get_or_insert_with(|| pays_from().unwrap_or(never))
    }

    /// A send was reported as copied, or not.
    pub(crate) fn on_report(&mut self, plane: u8, to: IpAddr, copied: bool) {
        if let Some((_, _, verdict)) =
            self.destinations.iter_mut().find(|(p, ip, _)| (*p, *ip) == (plane, to))
        {
            *verdict = if copied { Verdict::Copies } else { Verdict::Direct };
        }
    }

    /// The system refused: no more.
    pub(crate) fn give_up(&mut self) {
        self.mode = ZeroCopy::Never;
    }
}

/// Measures the sizes from which not copying pays.
fn pays_from() -> io::Result<PaysFrom> {
    let prices = measure()?;
    let registered = prices.small_registered.map_or(usize::MAX, |price| crossing(prices, price));
    Ok(PaysFrom { direct: crossing(prices, prices.small_direct), registered })
}

/// Where the saved copy outweighs the price. Loopback copies in both cases, so the difference between the two is the
/// price; the slope over sizes is what a copied byte costs. `small` is the time of a small send that is not to be copied.
fn crossing(prices: Prices, small: Duration) -> usize {
    let price_ns = small.saturating_sub(prices.small).as_nanos();
    let slope_ns = prices.large.saturating_sub(prices.small).as_nanos();
    let span = (LARGE_BYTES - SMALL_BYTES) as u128;
    if slope_ns == 0 {
        return usize::MAX;
    }
    usize::try_from(price_ns * span / slope_ns).unwrap_or(usize::MAX).max(SMALL_BYTES)
}

/// Sends below this size are never worth it.
const TRIAL_BYTES_MIN: usize = 16 << 10;

/// Destinations that are remembered; more than that are copied to.
const DESTINATIONS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const THERE: IpAddr = IpAddr::V6(std::net::Ipv6Addr::LOCALHOST);

    #[test]
    fn a_destination_is_tried_once_and_never_again_if_it_copies() {
        let mut policy = Policy::new(ZeroCopy::Auto, true);
        assert!(!policy.wants(0, HERE, 1000), "too small to try");
        assert!(policy.wants(0, HERE, 60_000));
        assert!(!policy.wants(0, HERE, 60_000), "one trial at a time");
        policy.on_report(0, HERE, true);
        assert!(!policy.wants(0, HERE, 60_000));
        assert!(policy.wants(0, THERE, 60_000), "another destination");
        assert!(policy.wants(1, HERE, 60_000), "another plane");
    }

    #[test]
    fn a_device_that_does_not_copy_gets_what_is_large_enough() {
        let mut policy = Policy::new(ZeroCopy::Auto, true);
        policy.pays_from = Some(PaysFrom { direct: 40_000, registered: 10_000 });
        assert!(!policy.wants_registered(0, HERE, 20_000), "not before it was tried");
        assert!(policy.wants(0, HERE, 20_000), "the trial");
        policy.on_report(0, HERE, false);
        assert!(!policy.wants(0, HERE, 39_999));
        assert!(policy.wants(0, HERE, 40_000));
        assert!(!policy.wants_registered(0, HERE, 9_999));
        assert!(policy.wants_registered(0, HERE, 10_000));
        policy.give_up();
        assert!(!policy.wants(0, HERE, 40_000) && !policy.wants_registered(0, HERE, 40_000));
    }

    #[test]
    fn without_support_nothing_is_asked_for() {
        assert!(!Policy::new(ZeroCopy::From(0), false).wants(0, HERE, 60_000));
        assert!(!Policy::new(ZeroCopy::Never, true).wants(0, HERE, 60_000));
        assert!(Policy::new(ZeroCopy::From(100), true).wants(0, HERE, 100));
    }

    #[test]
    fn the_crossing_is_where_the_price_is_saved() {
        let prices = |small, large, small_direct| {
            let [small, large, small_direct] = [small, large, small_direct].map(Duration::from_micros);
            (Prices { small, large, small_direct, small_registered: None }, small_direct)
        };
        let crossing = |(prices, small)| crossing(prices, small);
        // 56 KiB more cost 14 us: 4 KiB each us. A price of 5 us is saved by 20 KiB.
        assert_eq!(crossing(prices(6, 20, 11)), 20 << 10);
        assert_eq!(crossing(prices(6, 20, 6)), SMALL_BYTES, "no price");
        assert_eq!(crossing(prices(6, 6, 9)), usize::MAX, "copies cost nothing");
    }

    #[test]
    fn measuring_gives_a_size() {
        match crate::check() {
            Ok(()) => {
                let sizes = pays_from().expect("measured");
                println!("{sizes:?}");
                assert!(sizes.direct >= SMALL_BYTES && sizes.registered >= SMALL_BYTES);
            }
            Err(error) => eprintln!("skipped: measuring_gives_a_size: {error}"),
        }
    }
}
