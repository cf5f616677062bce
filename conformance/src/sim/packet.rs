//! Packets on their way: real header bytes, payload by description.

use metaroce_core::Ecn;
use smallvec::SmallVec;

use super::transport::BaselineHeader;
use super::units::FRAMING_BYTES;

/// The name of a packet in its [`Arena`].
pub type PacketId = u32;

/// Header bytes that lie in the packet itself: most headers do, and reading them then touches no other memory.
const HEADER_BYTES: usize = 96;

/// One packet.
#[derive(Clone, Debug)]
pub struct Packet {
    /// Host that sent it.
    pub from: u32,
    /// Host that it is for.
    pub to: u32,
    /// Plane that it goes over.
    pub plane: u8,
    /// UDP source port, the entropy of ECMP.
    pub source_port: u16,
    /// ECN field.
    pub ecn: Ecn,
    /// Header bytes of a MetaRoCE packet; empty for the baselines.
    pub header: SmallVec<[u8; HEADER_BYTES]>,
    /// Header of a baseline's packet.
    pub baseline: BaselineHeader,
    /// Bytes of payload.
    pub payload_bytes: u32,
    /// Where in the sender's memory the payload comes from.
    pub payload_offset: u64,
    /// Bytes of zeros after it.
    pub padding_bytes: u32,
    /// A byte that was changed: its place, and the bits.
    pub corrupt: Option<(u32, u8)>,
}

impl Packet {
    const EMPTY: Self = Self {
        from: 0,
        to: 0,
        plane: 0,
        source_port: 0,
        ecn: Ecn::NotEct,
        header: SmallVec::new_const(),
        baseline: BaselineHeader::NONE,
        payload_bytes: 0,
        payload_offset: 0,
        padding_bytes: 0,
        corrupt: None,
    };

    /// Bytes of the UDP payload.
    #[must_use]
    pub fn datagram_bytes(&self) -> u64 {
        self.header.len() as u64
            + u64::from(self.baseline.bytes)
            + u64::from(self.payload_bytes)
            + u64::from(self.padding_bytes)
    }

    /// Bytes on the wire, with all framing.
    #[must_use]
    pub fn wire_bytes(&self) -> u64 {
        self.datagram_bytes() + FRAMING_BYTES
    }
}

/// A packet as links and switches see it. It goes from hop to hop by value, so that a packet's own memory is touched
/// only where it is sent and where it arrives: with many packets under way that is what a hop would cost most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traveller {
    /// The packet itself.
    pub id: PacketId,
    /// Host that sent it.
    pub from: u32,
    /// Host that it is for.
    pub to: u32,
    /// Bytes of the UDP payload.
    pub datagram_bytes: u32,
    /// UDP source port.
    pub source_port: u16,
    /// ECN field, as it is by now.
    pub ecn: Ecn,
    /// When it entered the link that it is in, ps.
    pub entered_ps: u64,
}

impl Traveller {
    /// A packet that sets out.
    #[must_use]
    pub fn new(id: PacketId, packet: &Packet) -> Self {
        Self {
            id,
            from: packet.from,
            to: packet.to,
            datagram_bytes: u32::try_from(packet.datagram_bytes()).unwrap_or(u32::MAX),
            source_port: packet.source_port,
            ecn: packet.ecn,
            entered_ps: 0,
        }
    }

    /// Bytes on the wire, with all framing.
    #[must_use]
    pub fn wire_bytes(&self) -> u64 {
        u64::from(self.datagram_bytes) + FRAMING_BYTES
    }
}

/// All packets that exist. Slots are used again.
#[derive(Debug, Default)]
pub struct Arena {
    packets: Vec<Packet>,
    free: Vec<PacketId>,
}

impl Arena {
    /// A slot with an empty packet in it.
    pub fn allocate(&mut self) -> (PacketId, &mut Packet) {
        let id = self.free.pop().unwrap_or_else(|| {
            self.packets.push(Packet::EMPTY);
            u32::try_from(self.packets.len() - 1).unwrap_or(u32::MAX)
        });
        let packet = self.slot(id);
        *packet = Packet::EMPTY;
        (id, packet)
    }

    /// Gives a slot back.
    pub fn free(&mut self, id: PacketId) {
        self.free.push(id);
    }

    /// The packet.
    #[must_use]
    pub fn get(&self, id: PacketId) -> Option<&Packet> {
        self.packets.get(id as usize)
    }

    /// The packet, to change.
    pub fn slot(&mut self, id: PacketId) -> &mut Packet {
        let at = id as usize;
        if at >= self.packets.len() {
            self.packets.resize(at + 1, Packet::EMPTY);
        }
        #[expect(clippy::indexing_slicing, reason = "the line before makes it long enough")]
        &mut self.packets[at]
    }

    /// A second packet like the first.
    pub fn copy(&mut self, id: PacketId) -> PacketId {
        let original = self.slot(id).clone();
        let (copy, packet) = self.allocate();
        *packet = original;
        copy
    }

    /// Packets that exist now.
    #[must_use]
    pub fn live(&self) -> usize {
        self.packets.len() - self.free.len()
    }
}
