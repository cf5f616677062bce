//! Questions to the kernel's tables of interfaces, routes and neighbours, and word of their changes (rtnetlink).

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};

use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_REQUEST};
use netlink_packet_core::{NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::link::{LinkAttribute, LinkMessage, LinkXdp};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

use crate::headers::Mac;

/// What the kernel says of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) index: u32,
    pub(crate) mac: Mac,
    pub(crate) mtu_bytes: u32,
    /// Receive queues that the device may have; at least 1.
    pub(crate) queues: u32,
    /// Id of the XDP program that is attached.
    pub(crate) program: Option<u32>,
}

/// The way to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// Interface through which it leads.
    pub(crate) interface: u32,
    /// The next hop: a router, or the address itself.
    pub(crate) next_hop: IpAddr,
    /// The source address that the kernel would take.
    pub(crate) source: Option<IpAddr>,
    /// Whether it leads to another machine, as opposed to this one, a group, or nowhere.
    pub(crate) unicast: bool,
}

/// What the kernel knows of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Neighbour {
    /// Nothing, or nothing good.
    Unknown,
    /// It is being asked for.
    Pending,
    /// There; confirmed not long ago, or permanent.
    Fresh(Mac),
    /// There, but nobody has heard from it for a while.
    Stale(Mac),
}

/// Asks, one question at a time.
#[derive(Debug)]
pub(crate) struct Netlink {
    socket: Socket,
    buffer: Vec<u8>,
    sequence: u32,
}

impl Netlink {
    /// # Errors
    /// What the system says.
    pub(crate) fn new() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // Without it the kernel takes requests of old whose filters it does not check; it is there since 4.20.
        let _ = socket.set_netlink_get_strict_chk(true);
        Ok(Self { socket, buffer: vec![0; BUFFER_BYTES], sequence: 0 })
    }

    /// The interface with this name; `None` if there is none.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn interface(&mut self, name: &str) -> io::Result<Option<Interface>> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        match self.ask(Message::GetLink(message), 0) {
            Ok(Some(Message::NewLink(link))) => Ok(Some(read_link(&link))),
            Ok(_) => Ok(None),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The route to an address through an interface.
    ///
    /// # Errors
    /// What the system says: `ENETUNREACH` and the like if there is none.
    pub(crate) fn route(&mut self, to: IpAddr, interface: u32) -> io::Result<Option<Route>> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(to);
        message.header.destination_prefix_length = if to.is_ipv4() { 32 } else { 128 };
        message.attributes.push(RouteAttribute::Destination(to.into()));
        message.attributes.push(RouteAttribute::Oif(interface));
        match self.ask(Message::GetRoute(message), 0)? {
            Some(Message::NewRoute(route)) => Ok(read_route(&route, to)),
            _ => Ok(None),
        }
    }

    /// What is known of a neighbour.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn neighbour(&mut self, address: IpAddr, interface: u32) -> io::Result<Neighbour> {
        match self.ask(Message::GetNeighbour(neighbour_message(address, interface)), 0) {
            Ok(Some(Message::NewNeighbour(neighbour))) => Ok(read_neighbour(&neighbour)),
            Ok(_) => Ok(Neighbour::Unknown),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(Neighbour::Unknown),
            Err(error) => Err(error),
        }
    }

    /// Has the kernel ask for a neighbour, or ask again for one that is stale, as if it had a packet for it.
    ///
    /// # Errors
    /// What the system says: `EPERM` without `CAP_NET_ADMIN`.
    pub(crate) fn use_neighbour(&mut self, address: IpAddr, interface: u32) -> io::Result<()> {
        let mut message = neighbour_message(address, interface);
        message.header.flags = NeighbourFlags::Use;
        self.ask(Message::NewNeighbour(message), NLM_F_ACK | NLM_F_CREATE).map(|_| ())
    }

    /// Sends a question and waits for its answer; `None` for an acknowledgement.
    fn ask(&mut self, message: Message, flags: u16) -> io::Result<Option<Message>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut request = NetlinkMessage::new(header, NetlinkPayload::from(message));
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        loop {
            let length = self.socket.recv(&mut &mut self.buffer[..], 0)?;
            let bytes = self.buffer.get(..length).unwrap_or(&self.buffer);
            let answer = NetlinkMessage::<Message>::deserialize(bytes).map_err(garbled)?;
            if answer.header.sequence_number != self.sequence {
                continue;
            }
            return match answer.payload {
                NetlinkPayload::InnerMessage(message) => Ok(Some(message)),
                NetlinkPayload::Error(error) => match error.code {
                    Some(_) => Err(error.to_io()),
                    None => Ok(None),
                },
                _ => Ok(None),
            };
        }
    }
}

/// A change in the kernel's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Of a neighbour on an interface.
    Neighbour(u32, IpAddr),
    /// Of routes, addresses or interfaces; or so many changes that some were lost.
    Anything,
}

/// Listens for changes.
#[derive(Debug)]
pub(crate) struct Monitor {
    socket: Socket,
    buffer: Vec<u8>,
}

impl Monitor {
    /// # Errors
    /// What the system says.
    pub(crate) fn new() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.set_non_blocking(true)?;
        for group in [
            libc::RTNLGRP_LINK,
            libc::RTNLGRP_NEIGH,
            libc::RTNLGRP_IPV4_IFADDR,
            libc::RTNLGRP_IPV6_IFADDR,
            libc::RTNLGRP_IPV4_ROUTE,
            libc::RTNLGRP_IPV6_ROUTE,
        ] {
            socket.add_membership(group)?;
        }
        Ok(Self { socket, buffer: vec![0; BUFFER_BYTES] })
    }

    /// Hands each change that has happened since to `changed`, at most some hundreds a call. Costs one system call when
    /// there is none.
    pub(crate) fn poll(&mut self, mut changed: impl FnMut(Change)) {
        for _ in 0..DATAGRAMS_PER_POLL {
            match self.socket.recv(&mut &mut self.buffer[..], 0) {
                Ok(length) => read_changes(self.buffer.get(..length).unwrap_or(&[]), &mut changed),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // ENOBUFS: some were lost.
                Err(_) => changed(Change::Anything),
            }
        }
    }
}

impl AsRawFd for Monitor {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

fn read_changes(mut bytes: &[u8], changed: &mut impl FnMut(Change)) {
    while !bytes.is_empty() {
        let Ok(message) = NetlinkMessage::<Message>::deserialize(bytes) else {
            return changed(Change::Anything);
        };
        match &message.payload {
            NetlinkPayload::InnerMessage(
                Message::NewNeighbour(neighbour) | Message::DelNeighbour(neighbour),
            ) => {
                let address = neighbour.attributes.iter().find_map(|attribute| match attribute {
                    NeighbourAttribute::Destination(NeighbourAddress::Inet(ip)) => Some(IpAddr::V4(*ip)),
                    NeighbourAttribute::Destination(NeighbourAddress::Inet6(ip)) => Some(IpAddr::V6(*ip)),
                    _ => None,
                });
                if let Some(address) = address {
                    changed(Change::Neighbour(neighbour.header.ifindex, address));
                }
            }
            _ => changed(Change::Anything),
        }
        // Messages are aligned to four bytes.
        let length = (message.header.length as usize).next_multiple_of(4).max(16);
        bytes = bytes.get(length..).unwrap_or(&[]);
    }
}

fn read_link(link: &LinkMessage) -> Interface {
    let mut interface = Interface {
        index: link.header.index,
        mac: Mac::default(),
        mtu_bytes: 1500,
        queues: 1,
        program: None,
    };
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::Address(bytes) => interface.mac = read_mac(bytes).unwrap_or_default(),
            LinkAttribute::Mtu(bytes) => interface.mtu_bytes = *bytes,
            LinkAttribute::NumRxQueues(queues) => interface.queues = (*queues).max(1),
            LinkAttribute::Xdp(parts) => {
                interface.program = parts.iter().find_map(|part| match part {
                    LinkXdp::ProgId(id)
                    | LinkXdp::DrvProgId(id)
                    | LinkXdp::SkbProgId(id)
                    | LinkXdp::HwProgId(id)
                        if *id != 0 =>
                    {
                        Some(*id)
                    }
                    _ => None,
                });
            }
            _ => {}
        }
    }
    interface
}

fn read_route(route: &RouteMessage, to: IpAddr) -> Option<Route> {
    let mut interface = None;
    let mut next_hop = to;
    let mut source = None;
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Oif(index) => interface = Some(*index),
            RouteAttribute::Gateway(address) => next_hop = ip(address)?,
            // An IPv4 route over an IPv6 router.
            RouteAttribute::Via(netlink_packet_route::route::RouteVia::Inet6(address)) => {
                next_hop = (*address).into();
            }
            RouteAttribute::PrefSource(address) => source = ip(address),
            _ => {}
        }
    }
    let unicast = route.header.kind == RouteType::Unicast;
    Some(Route { interface: interface?, next_hop, source, unicast })
}

fn read_neighbour(message: &NeighbourMessage) -> Neighbour {
    let mac = message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(bytes) => read_mac(bytes),
        _ => None,
    });
    match (message.header.state, mac) {
        (
            NeighbourState::Reachable
            | NeighbourState::Permanent
            | NeighbourState::Noarp
            | NeighbourState::Delay
            | NeighbourState::Probe,
            Some(mac),
        ) => Neighbour::Fresh(mac),
        (NeighbourState::Stale, Some(mac)) => Neighbour::Stale(mac),
        (NeighbourState::Incomplete, _) => Neighbour::Pending,
        _ => Neighbour::Unknown,
    }
}

fn neighbour_message(address: IpAddr, interface: u32) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = family(address);
    message.header.ifindex = interface;
    message.attributes.push(NeighbourAttribute::Destination(match address {
        IpAddr::V4(address) => NeighbourAddress::Inet(address),
        IpAddr::V6(address) => NeighbourAddress::Inet6(address),
    }));
    message
}

fn read_mac(bytes: &[u8]) -> Option<Mac> {
    bytes.try_into().ok().map(Mac)
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn garbled(error: netlink_packet_core::DecodeError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// More than the kernel puts into one datagram (32 KiB for those that are no dump).
const BUFFER_BYTES: usize = 64 << 10;

/// Bounds the time of [`Monitor::poll`].
const DATAGRAMS_PER_POLL: usize = 256;
