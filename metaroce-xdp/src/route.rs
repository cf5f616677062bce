//! Where a datagram goes: source address, next hop and its Ethernet address, kept until the kernel's tables change.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};

use metaroce_core::time::Instant;

use crate::headers::{Mac, Template};
use crate::netlink::{Change, Interface, Monitor, Neighbour, Netlink};

/// How a datagram leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// In a frame with these headers.
    Frame(Template),
    /// Through the kernel, which asks for the neighbour on the way, or knows a route that does not lead through the
    /// interface, or says why there is none.
    Kernel,
}

/// Ways by destination.
///
/// Each is looked up in the kernel's tables when it is first needed, kept until word comes that the tables changed, and
/// looked up again after some seconds, at which time the kernel is asked to confirm a neighbour that it has not heard from:
/// it does not see the packets that pass it by, and would forget.
#[derive(Debug)]
pub(crate) struct Ways {
    netlink: Netlink,
    monitor: Monitor,
    interface: u32,
    mac: Mac,
    /// The address to send from; the route's own if not given.
    source: Option<IpAddr>,
    known: HashMap<SocketAddr, Known>,
    /// The destination asked for last: mostly the next one too.
    last: Option<(SocketAddr, Way, Instant)>,
    /// Lookups in the kernel's tables so far.
    lookups: u64,
}

/// A way and what it depends on.
#[derive(Clone, Copy, Debug)]
struct Known {
    way: Way,
    next_hop: Option<IpAddr>,
    until: Instant,
}

impl Ways {
    /// Ways through an interface, which has the address `mac`.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn new(interface: u32, mac: Mac, source: Option<IpAddr>) -> io::Result<Self> {
        Ok(Self {
            netlink: Netlink::new()?,
            monitor: Monitor::new()?,
            interface,
            mac,
            source,
            known: HashMap::new(),
            last: None,
            lookups: 0,
        })
    }

    /// The way to a destination. O(1), but for what is not known: some system calls.
    pub(crate) fn to(&mut self, now: Instant, destination: SocketAddr) -> Way {
        if let Some((last, way, until)) = &self.last
            && *last == destination
            && now < *until
        {
            return *way;
        }
        let known = match self.known.get(&destination) {
            Some(known) if now < known.until => *known,
            _ => self.look_up(now, destination),
        };
        self.last = Some((destination, known.way, known.until));
        known.way
    }

    /// Takes note of changes in the kernel's tables; says whether the interface itself may have changed.
    pub(crate) fn refresh(&mut self) -> bool {
        let mut anything = false;
        let (known, last, own) = (&mut self.known, &mut self.last, self.interface);
        self.monitor.poll(|change| match change {
            Change::Neighbour(interface, _) if interface != own => {}
            Change::Neighbour(_, address) => {
                known.retain(|_, known| known.next_hop != Some(address));
                *last = None;
            }
            Change::Anything => {
                known.clear();
                *last = None;
                anything = true;
            }
        });
        anything
    }

    /// What the kernel says of the interface with this name now; new ways leave from its address.
    pub(crate) fn interface(&mut self, name: &str) -> Option<Interface> {
        let interface = self.netlink.interface(name).ok()??;
        self.mac = interface.mac;
        Some(interface)
    }

    /// Lookups in the kernel's tables so far.
    pub(crate) fn lookups(&self) -> u64 {
        self.lookups
    }

    fn look_up(&mut self, now: Instant, destination: SocketAddr) -> Known {
        self.lookups += 1;
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        let known = self.resolve(now, destination).unwrap_or(Known {
            way: Way::Kernel,
            next_hop: None,
            until: now.after(ELSEWHERE_NS),
        });
        self.known.insert(destination, known);
        known
    }

    /// `None` if there is no way through the interface, as far as the kernel says.
    fn resolve(&mut self, now: Instant, destination: SocketAddr) -> Option<Known> {
        let route = self.netlink.route(destination.ip(), self.interface).ok()??;
        if !route.unicast || route.interface != self.interface {
            return None;
        }
        let source = self.source.or(route.source)?;
        let neighbour = self.netlink.neighbour(route.next_hop, self.interface).ok()?;
        let mac = match neighbour {
            Neighbour::Fresh(mac) => Some(mac),
            Neighbour::Stale(mac) => {
                // Without leave to ask, it stays stale until somebody else has a packet for it.
                let _ = self.netlink.use_neighbour(route.next_hop, self.interface);
                Some(mac)
            }
            // The datagram that goes through the kernel has it ask; word of the answer ends the entry.
            Neighbour::Pending | Neighbour::Unknown => None,
        };
        let template = mac.and_then(|mac| Template::new(self.mac, mac, source, destination));
        Some(Known {
            way: template.map_or(Way::Kernel, Way::Frame),
            next_hop: Some(route.next_hop),
            until: now.after(if template.is_some() { FRESH_NS } else { PENDING_NS }),
        })
    }
}

impl AsRawFd for Ways {
    fn as_raw_fd(&self) -> RawFd {
        self.monitor.as_raw_fd()
    }
}

/// A way is looked up again after this time: well within that in which the kernel drops a stale neighbour (60 s).
const FRESH_NS: u64 = 10_000_000_000;

/// A destination whose neighbour is being asked for is looked up again after this time: an answer takes less on a LAN.
const PENDING_NS: u64 = 1_000_000;

/// A destination without a way through the interface is looked up again after this time, even if nothing is heard.
const ELSEWHERE_NS: u64 = 1_000_000_000;

/// Destinations kept. More begin anew.
const KNOWN_MAX: usize = 65_536;
