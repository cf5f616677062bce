//! The sockets as the ring knows them, and the order of the sends of each.
//!
//! The protocol takes a packet that is overtaken on its own path for lost, so the sends of a socket must go out in the
//! order in which they were asked for. The kernel keeps that order as long as each send finds room in the socket's
//! buffer; one that does not is put aside, and a later one may pass it. So a send that might not find room is only
//! handed over while no other of its socket is under way. How much room there is follows from the size of the buffer
//! and a look, now and then, at what waits in it. The same goes for a segmented send that might be refused, and go out
//! singly after others: the first with segments of a size travels alone.

use std::io;
use std::os::fd::AsRawFd as _;

use metaroce_core::config::PLANES_MAX;
use metaroce_mio::socket::Outlet;
use metaroce_mio::sys::linux::send_queue_bytes;
use socket2::SockRef;

use crate::sys::ring::{File, Ring};

/// All sockets, by their place.
#[derive(Debug)]
pub(crate) struct Files {
    registered: bool,
    sockets: Vec<Socket>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Socket {
    /// The serial number of the socket in this place.
    serial: Option<u64>,
    buffer_bytes: usize,
    /// Bytes of the buffer that are certainly free.
    free_bytes: usize,
    /// Sends under way.
    under_way: usize,
    /// The largest segments that a segmented send from it got through with.
    proven_bytes: u16,
}

/// Whether a send may be handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Yes.
    Now,
    /// Not before those under way are complete.
    After,
}

impl Files {
    /// Makes a table in the ring for the receive sockets and `paths_max` path sockets; without one, if the system has
    /// no room, requests name descriptors.
    pub(crate) fn new(ring: &Ring, paths_max: usize) -> Self {
        let count = PLANES_MAX + paths_max.max(1);
        let places = u32::try_from(count).unwrap_or(u32::MAX);
        let registered = ring.submitter().register_files_sparse(places).is_ok();
        Self { registered, sockets: vec![Socket::default(); count] }
    }

    pub(crate) fn is_registered(&self) -> bool {
        self.registered
    }

    /// How requests name a socket, which is entered in the table if it is not yet.
    pub(crate) fn file(&mut self, ring: &mut Ring, outlet: &Outlet<'_>) -> io::Result<File> {
        let raw = outlet.socket.as_raw_fd();
        let place = u32::try_from(outlet.slot).unwrap_or(u32::MAX);
        let known = self.sockets.get_mut(outlet.slot).ok_or(io::ErrorKind::NotFound)?;
        if known.serial != Some(outlet.serial) {
            let buffer_bytes = SockRef::from(outlet.socket).send_buffer_size()?;
            if self.registered {
                // Requests that name this place mean the socket that was there.
                if ring.unsubmitted() > 0 {
                    ring.submit_all()?;
                }
                ring.submitter().register_files_update(place, &[raw])?;
            }
            let serial = Some(outlet.serial);
            let under_way = known.under_way;
            *known = Socket { serial, buffer_bytes, free_bytes: buffer_bytes, under_way, proven_bytes: 0 };
        }
        Ok(if self.registered { File::Fixed(place) } else { File::Descriptor(raw) })
    }

    /// Asks whether a send of so many bytes, in segments of that size if it is segmented, may be handed over. `calls`
    /// counts system calls.
    pub(crate) fn admit(
        &mut self,
        outlet: &Outlet<'_>,
        bytes: usize,
        segment_bytes: Option<u16>,
        calls: &mut u64,
    ) -> Admission {
        let Some(socket) = self.sockets.get_mut(outlet.slot) else { return Admission::Now };
        let need = room_bytes(bytes);
        if socket.free_bytes < need && socket.under_way == 0 {
            *calls += 1;
            let waiting = send_queue_bytes(outlet.socket).unwrap_or(socket.buffer_bytes);
            socket.free_bytes = socket.buffer_bytes.saturating_sub(waiting);
        }
        let certain =
            socket.free_bytes >= need && segment_bytes.is_none_or(|size| size <= socket.proven_bytes);
        if certain || socket.under_way == 0 { Admission::Now } else { Admission::After }
    }

    /// A send was handed over.
    pub(crate) fn on_sent(&mut self, slot: usize, bytes: usize, segment_bytes: Option<u16>) {
        let Some(socket) = self.sockets.get_mut(slot) else { return };
        let proven = segment_bytes.is_none_or(|size| size <= socket.proven_bytes);
        socket.free_bytes = if proven { socket.free_bytes.saturating_sub(room_bytes(bytes)) } else { 0 };
        socket.under_way += 1;
    }

    /// A segmented send got through.
    pub(crate) fn prove(&mut self, slot: usize, segment_bytes: usize) {
        if let Some(socket) = self.sockets.get_mut(slot) {
            let size = u16::try_from(segment_bytes).unwrap_or(u16::MAX);
            socket.proven_bytes = socket.proven_bytes.max(size);
        }
    }

    /// A send is complete.
    pub(crate) fn on_complete(&mut self, slot: usize) {
        if let Some(socket) = self.sockets.get_mut(slot) {
            socket.under_way = socket.under_way.saturating_sub(1);
        }
    }

    /// A send is to be repeated: no other of its socket may pass it.
    pub(crate) fn hold(&mut self, slot: usize) {
        if let Some(socket) = self.sockets.get_mut(slot) {
            socket.free_bytes = 0;
        }
    }
}

/// What the kernel charges to a socket's buffer for a send, at most: pages that are only partly used, and its own
/// bookkeeping.
fn room_bytes(bytes: usize) -> usize {
    2 * bytes + 8192
}

#[cfg(test)]
mod tests {
    use metaroce_core::transmit::SourcePort;
    use metaroce_mio::SocketOptions;
    use metaroce_mio::socket::Sockets;

    use super::*;

    /// A table of one socket with a buffer of a megabyte.
    fn table() -> (Sockets, Files) {
        let local = "127.0.0.1:0".parse().expect("an address");
        let sockets = Sockets::bind(&[local], SocketOptions::default()).expect("bound");
        let known =
            Socket { serial: Some(0), buffer_bytes: 1 << 20, free_bytes: 1 << 20, ..Socket::default() };
        (sockets, Files { registered: false, sockets: vec![known] })
    }

    #[test]
    fn sends_follow_each_other_as_long_as_there_is_certainly_room() {
        let (mut sockets, mut files) = table();
        let mut calls = 0;
        let outlet = sockets.outlet(0, SourcePort::Receive).expect("a socket");
        let mut handed = 0;
        while files.admit(&outlet, 60_000, None, &mut calls) == Admission::Now {
            files.on_sent(0, 60_000, None);
            handed += 1;
        }
        assert_eq!(handed, (1 << 20) / room_bytes(60_000));
        for _ in 0..handed {
            assert_eq!(files.admit(&outlet, 60_000, None, &mut calls), Admission::After);
            files.on_complete(0);
        }
        assert_eq!(calls, 0);
        assert_eq!(files.admit(&outlet, 60_000, None, &mut calls), Admission::Now, "nothing waits any more");
        assert_eq!(calls, 1);
        files.on_sent(0, 60_000, None);
        assert_eq!(files.admit(&outlet, 60_000, None, &mut calls), Admission::Now, "there is room again");
    }

    #[test]
    fn a_send_to_be_repeated_is_passed_by_none() {
        let (mut sockets, mut files) = table();
        let outlet = sockets.outlet(0, SourcePort::Receive).expect("a socket");
        files.on_sent(0, 100, None);
        files.hold(0);
        assert_eq!(files.admit(&outlet, 100, None, &mut 0), Admission::After);
        files.on_complete(0);
        assert_eq!(files.admit(&outlet, 100, None, &mut 0), Admission::Now);
    }

    #[test]
    fn the_first_segmented_send_of_a_size_travels_alone() {
        let (mut sockets, mut files) = table();
        let outlet = sockets.outlet(0, SourcePort::Receive).expect("a socket");
        files.on_sent(0, 100, None);
        assert_eq!(files.admit(&outlet, 9000, Some(3000), &mut 0), Admission::After);
        files.on_complete(0);
        assert_eq!(files.admit(&outlet, 9000, Some(3000), &mut 0), Admission::Now);
        files.on_sent(0, 9000, Some(3000));
        assert_eq!(files.admit(&outlet, 100, None, &mut 0), Admission::After, "it may yet be refused");
        files.prove(0, 3000);
        files.on_complete(0);
        files.admit(&outlet, 9000, Some(3000), &mut 0);
        files.on_sent(0, 9000, Some(3000));
        assert_eq!(files.admit(&outlet, 9000, Some(3000), &mut 0), Admission::Now);
        assert_eq!(files.admit(&outlet, 9000, Some(3001), &mut 0), Admission::After);
    }
}
