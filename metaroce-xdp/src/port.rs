//! One plane: an interface, its queue, and the ways that lead out of it.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use metaroce_core::crc::Checksum;
use metaroce_core::time::Instant;
use metaroce_core::transmit::{Ecn, SourcePort, Transmit};
use metaroce_mio::backend::{DATAGRAMS_PER_ROUND, Packet as Datagram};
use metaroce_mio::sys::Received;
use metaroce_mio::{DriverStats, RegionTable};

use crate::assemble::{AssembleError, FRAMES_MAX, Frames, Output as _, assemble};
use crate::attach::Attachment;
use crate::error::OpenError;
use crate::headers::checksum::InternetSum;
use crate::headers::{self, Packet, Template, V6_BYTES};
use crate::memory::FilledFrame;
use crate::options::XdpOptions;
use crate::route::{Way, Ways};
use crate::socket::{Flushed, QueueSocket};
use crate::stats::PortStats;
use crate::steer::Inlet;

/// A plane of an endpoint.
#[derive(Debug)]
pub(crate) struct Port {
    socket: QueueSocket,
    attachment: Arc<Attachment>,
    ways: Ways,
    local: SocketAddr,
    /// Of the interface.
    name: String,
    /// Largest IP packet.
    mtu_bytes: usize,
    /// A packet of several buffers, as far as it has arrived.
    parts: Vec<u8>,
    stats: PortStats,
}

/// What became of a datagram that was to go out in frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// It is on its way, or lost for good.
    Gone,
    /// There is no room.
    Later,
    /// The kernel has to send it.
    ThroughKernel,
}

impl Port {
    /// Opens a queue behind a filter, which takes the datagrams to `local`.
    ///
    /// # Errors
    /// [`OpenError`].
    pub(crate) fn open(
        options: &XdpOptions,
        attachment: Arc<Attachment>,
        local: SocketAddr,
    ) -> Result<Self, OpenError> {
        let interface = attachment.interface();
        if options.queue >= interface.queues {
            return Err(OpenError::NoQueue { queue: options.queue, queues: interface.queues });
        }
        let native = attachment.is_native();
        let socket = QueueSocket::open(options, interface.index, native, attachment.takes_fragments())?;
        attachment.steer_to(&socket).map_err(OpenError::io("put the socket into the filter's map"))?;
        let source = Some(local.ip()).filter(|ip| !ip.is_unspecified());
        let ways = Ways::new(interface.index, interface.mac, source)
            .map_err(OpenError::io("open a netlink socket"))?;
        let mtu_bytes = interface.mtu_bytes as usize;
        let name = options.interface.clone();
        Ok(Self {
            socket,
            attachment,
            ways,
            local,
            name,
            mtu_bytes,
            parts: Vec::new(),
            stats: PortStats::default(),
        })
    }

    /// Descriptors to poll: the socket's, and that of the changes in the kernel's tables.
    pub(crate) fn descriptors(&self) -> (RawFd, RawFd) {
        (self.socket.as_raw_fd(), self.ways.as_raw_fd())
    }

    /// The address on which it receives.
    pub(crate) fn local(&self) -> SocketAddr {
        self.local
    }

    /// The largest UDP payload that can be sent and received: by the interface, and by the chunks that a packet may take, of
    /// which the kernel leaves a part empty when it receives.
    pub(crate) fn datagram_bytes_max(&self) -> usize {
        let headers = if self.local.is_ipv4() { headers::V4_BYTES } else { V6_BYTES };
        let frame = if self.socket.is_multi_buffer() {
            self.socket.chunk_bytes() * FRAMES_MAX
        } else {
            self.socket.chunk_bytes().saturating_sub(HEADROOM_BYTES)
        };
        frame.min(self.mtu_bytes + headers::ETHERNET_BYTES).saturating_sub(headers).max(DATAGRAM_BYTES_LEAST)
    }

    /// Whether there is nothing to receive.
    pub(crate) fn is_idle(&self) -> bool {
        self.socket.is_idle()
    }

    /// Polls the device, if asked to.
    pub(crate) fn poll_device(&mut self) {
        self.socket.poll_device();
    }

    /// Takes note of changes in the kernel's tables.
    pub(crate) fn refresh(&mut self) {
        if self.ways.refresh()
            && let Some(interface) = self.ways.interface(&self.name)
        {
            self.mtu_bytes = interface.mtu_bytes as usize;
        }
    }

    /// What happened so far.
    pub(crate) fn stats(&self) -> PortStats {
        let mut stats = self.stats;
        stats.queue = self.socket.counters();
        stats.lookups = self.ways.lookups();
        stats.native = self.attachment.is_native();
        stats.zero_copy = self.socket.is_zero_copy();
        stats.multi_buffer = self.socket.is_multi_buffer();
        if let Ok(kernel) = self.socket.kernel_statistics() {
            stats.dropped = kernel.rx_dropped.saturating_add(kernel.rx_ring_full);
            stats.refused = kernel.tx_invalid_descs;
        }
        stats
    }

    /// Hands what has arrived to the core; returns whether all was taken.
    pub(crate) fn receive(&mut self, datagrams: &mut usize, inlet: &mut Inlet<'_>) -> bool {
        let mut frames = 0;
        let drained = loop {
            if *datagrams >= DATAGRAMS_PER_ROUND || frames >= FRAMES_PER_ROUND {
                break false;
            }
            let Some(frame) = self.socket.next_received() else { break true };
            frames += 1;
            let bytes = self.socket.bytes(&frame);
            if frame.continues() || !self.parts.is_empty() {
                // What does not fit a datagram can't be one.
                if self.parts.len() < PACKET_BYTES_MAX {
                    self.parts.extend_from_slice(bytes);
                }
                if !frame.continues() {
                    *datagrams += hand_in(self.local, &self.parts, inlet, &mut self.stats);
                    self.parts.clear();
                    self.stats.received_in_parts += 1;
                }
            } else {
                *datagrams += hand_in(self.local, bytes, inlet, &mut self.stats);
            }
            self.socket.recycle(frame);
        };
        if frames > 0 {
            self.socket.replenish();
        }
        drained
    }

    /// Puts a datagram of the core into frames.
    pub(crate) fn send(
        &mut self,
        now: Instant,
        transmit: &Transmit,
        checksum: &dyn Checksum,
        regions: &RegionTable,
        stats: &mut DriverStats,
    ) -> Sent {
        let bytes = transmit.datagram_length();
        let leaving = Leaving { to: transmit.destination, source: transmit.source, ecn: transmit.ecn, bytes };
        self.put(now, leaving, stats, |out| assemble(transmit, regions, checksum, out))
    }

    /// Puts a datagram, given as bytes, into frames.
    pub(crate) fn send_bytes(
        &mut self,
        now: Instant,
        datagram: &Datagram<'_>,
        stats: &mut DriverStats,
    ) -> Sent {
        let &Datagram { destination: to, source, ecn, bytes, .. } = datagram;
        self.put(now, Leaving { to, source, ecn, bytes: bytes.len() }, stats, |out| {
            let mut rest = bytes;
            while !rest.is_empty() {
                let space = out.space();
                let step = space.len().min(rest.len());
                let (Some(place), Some((piece, later))) =
                    (space.get_mut(..step), rest.split_at_checked(step))
                else {
                    return Err(AssembleError::Full);
                };
                if step == 0 {
                    return Err(AssembleError::Full);
                }
                place.copy_from_slice(piece);
                out.advance(step);
                rest = later;
            }
            Ok(())
        })
    }

    /// Has the kernel send what was put into frames; `false` if it takes no more for now.
    pub(crate) fn flush(&mut self, stats: &mut DriverStats) -> bool {
        let before = self.socket.counters().kicks;
        let flushed = self.socket.flush();
        let kicks = self.socket.counters().kicks - before;
        stats.send_calls += kicks;
        stats.system_calls += kicks;
        flushed == Flushed::All
    }

    fn put(
        &mut self,
        now: Instant,
        leaving: Leaving,
        stats: &mut DriverStats,
        write: impl FnOnce(&mut Frames<'_>) -> Result<(), AssembleError>,
    ) -> Sent {
        let Way::Frame(template) = self.ways.to(now, leaving.to) else {
            self.stats.sent_through_kernel += 1;
            return Sent::ThroughKernel;
        };
        let headers = template.length();
        let too_large = !self.carries(headers + leaving.bytes);
        if too_large {
            stats.send_errors.too_large += 1;
            return Sent::Gone;
        }
        let chunks = (headers + leaving.bytes).div_ceil(self.socket.chunk_bytes().max(1));
        if self.socket.free(chunks) < chunks {
            // Frames come back when the kernel has sent them, which it does when told to.
            let _ = self.flush(stats);
        }
        let Some(mut frames) = Frames::take(&mut self.socket, headers, leaving.bytes) else {
            stats.send_errors.would_block += 1;
            return Sent::Later;
        };
        if let Err(error) = write(&mut frames) {
            frames.abandon();
            match error {
                AssembleError::Stale => stats.stale_payloads += 1,
                AssembleError::Full => stats.send_errors.other += 1,
            }
            return Sent::Gone;
        }
        let source_port = match leaving.source {
            SourcePort::Receive => self.local.port(),
            SourcePort::Path(port) => port,
        };
        let packet = Packet { source_port, ecn: leaving.ecn, payload_bytes: leaving.bytes };
        frames.send(|socket, filled| head(socket, filled, &template, packet));
        self.stats.sent += 1;
        self.stats.sent_in_parts += u64::from(chunks > 1);
        stats.datagrams_sent += 1;
        stats.bytes_sent += leaving.bytes as u64;
        Sent::Gone
    }

    /// Whether a frame of that many bytes can leave.
    fn carries(&self, frame_bytes: usize) -> bool {
        let chunks = if self.socket.is_multi_buffer() { FRAMES_MAX } else { 1 };
        frame_bytes <= self.mtu_bytes + headers::ETHERNET_BYTES
            && frame_bytes <= self.socket.chunk_bytes() * chunks
    }
}

/// A datagram that is to leave.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    to: SocketAddr,
    source: SourcePort,
    ecn: Ecn,
    /// Of UDP payload.
    bytes: usize,
}

/// Writes the headers of a packet whose payload is in place.
fn head(socket: &mut QueueSocket, filled: &mut [Option<FilledFrame>], template: &Template, packet: Packet) {
    let Some((Some(first), rest)) = filled.split_first_mut() else { return };
    let length = template.length();
    let bytes = socket.filled(first);
    template.emit(bytes, packet);
    if !template.is_v6() {
        return;
    }
    let mut sum = InternetSum::default().with(bytes.get(length..).unwrap_or(&[]));
    for part in rest.iter_mut().flatten() {
        sum = sum.with(socket.filled(part));
    }
    template.seal_v6(socket.filled(first), sum);
}

/// Hands a frame to the core if it is a datagram for this endpoint; returns the number of datagrams.
fn hand_in(local: SocketAddr, frame: &[u8], inlet: &mut Inlet<'_>, stats: &mut PortStats) -> usize {
    let Ok(parsed) = headers::parse(frame, frame.len()) else {
        stats.not_datagrams += 1;
        return 0;
    };
    let Some(bytes) = frame.get(parsed.payload) else {
        stats.not_datagrams += 1;
        return 0;
    };
    if !is_ours(local, parsed.destination) {
        stats.not_datagrams += 1;
        return 0;
    }
    let message = Received {
        source: parsed.source,
        length: bytes.len(),
        segment_bytes: bytes.len(),
        ecn: parsed.ecn,
        overflows: None,
        truncated: false,
    };
    inlet.hand_in(&message, bytes)
}

/// Whether a destination is the own address, or any for one that is unspecified.
fn is_ours(local: SocketAddr, destination: SocketAddr) -> bool {
    local.port() == destination.port()
        && match local.ip() {
            IpAddr::V6(ip) if ip.is_unspecified() => true,
            IpAddr::V4(ip) if ip.is_unspecified() => destination.is_ipv4(),
            ip => ip == destination.ip(),
        }
}

/// What the kernel leaves empty in front of a received frame (`XDP_PACKET_HEADROOM`).
const HEADROOM_BYTES: usize = 256;

/// What every path carries (`SPEC.md` MR-PATH-33).
const DATAGRAM_BYTES_LEAST: usize = 1232;

/// Longest packet that is put together: what an IP header can say.
const PACKET_BYTES_MAX: usize = 65_536;

/// Frames looked at in one round, also those that are no datagrams.
const FRAMES_PER_ROUND: usize = 1024;
