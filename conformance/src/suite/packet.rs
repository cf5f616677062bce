//! A datagram of the device, taken apart; and any datagram in words.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

use metaroce_core::Ecn;
use metaroce_core::ids::Serial;
use metaroce_core::wire::{
    AckBody, Base, Connect, Control, DataHeader, Frame, FrameIter, PacketType, Probe, ProbeReply, Vector256,
};

/// A well-formed datagram that the device sent.
#[derive(Clone, Debug)]
pub struct Packet {
    /// When it arrived, ns of the port's clock.
    pub at_ns: u64,
    /// IP address that it came from.
    pub source_ip: IpAddr,
    /// UDP port that it came from.
    pub source_port: u16,
    /// Which of the suite's sources it came to, by [`Source::number`](super::port::Source::number).
    pub to: u8,
    /// ECN codepoint.
    pub ecn: Ecn,
    /// Its base header.
    pub base: Base,
    /// The whole UDP payload.
    pub bytes: Vec<u8>,
}

/// A block of an acknowledgement with what was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The block.
    pub body: AckBody,
    /// The vector of its REFUSED frame, empty if it has none.
    pub refused: Vector256,
}

impl Block {
    /// Whether `psn` was told accepted.
    #[must_use]
    pub fn accepts(&self, psn: u32) -> bool {
        self.body.flags & 1 == 0 && self.body.accepted.contains(self.body.largest.raw().wrapping_sub(psn))
    }

    /// Whether `psn` was told refused.
    #[must_use]
    pub fn refuses(&self, psn: u32) -> bool {
        self.body.flags & 1 == 0 && self.refused.contains(self.body.largest.raw().wrapping_sub(psn))
    }
}

/// A CONNECT or ACCEPT of the device, with its private data.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields of SPEC.md, section 3.6")]
pub struct Terms {
    pub id: u32,
    pub nonce: u64,
    pub incarnation: u64,
    pub wants_checksum: bool,
    pub implicit: bool,
    pub mtu: u32,
    pub service: u32,
    pub streams: u16,
    pub paths: u8,
    pub reads: u16,
    pub message_window: u32,
    pub csn_window: u32,
    pub initial_credits: u32,
    pub start_allowance_kib: u32,
    pub planes: Vec<SocketAddr>,
    pub echo: u64,
    pub cookie: [u8; 16],
    pub private: Vec<u8>,
}

impl Packet {
    /// What follows the base header.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        self.bytes.get(20..).unwrap_or_default()
    }

    /// Whether it is of `kind`.
    #[must_use]
    pub fn is(&self, kind: PacketType) -> bool {
        self.base.kind == kind
    }

    /// The PSN.
    #[must_use]
    pub fn psn(&self) -> u32 {
        self.base.psn.raw()
    }

    /// The DATA header and payload.
    #[must_use]
    pub fn data(&self) -> Option<(DataHeader, &[u8])> {
        if self.is(PacketType::Data) { DataHeader::parse(self.body()).ok() } else { None }
    }

    /// The PROBE.
    #[must_use]
    pub fn probe(&self) -> Option<Probe> {
        if self.is(PacketType::Probe) { Probe::parse(self.body()).ok().map(|(probe, _)| probe) } else { None }
    }

    /// The CONTROL.
    #[must_use]
    pub fn control(&self) -> Option<Control<'_>> {
        if self.is(PacketType::Control) {
            Control::parse(self.body()).ok().map(|(body, _)| body)
        } else {
            None
        }
    }

    /// The terms of a CONNECT or ACCEPT.
    #[must_use]
    pub fn terms(&self) -> Option<Terms> {
        match self.control()? {
            Control::Connect(terms) | Control::Accept(terms) => Some(Terms::from(&terms)),
            _ => None,
        }
    }

    /// The token, if it is a PROBE_REPLY.
    #[must_use]
    pub fn reply_token(&self) -> Option<u64> {
        let reply = self.is(PacketType::ProbeReply).then(|| ProbeReply::parse(self.body()).ok())?;
        reply.map(|(reply, _)| reply.token)
    }

    /// All acknowledgements that it carries, of ACK or PROBE_REPLY.
    #[must_use]
    pub fn blocks(&self) -> Vec<Block> {
        let (first, frames) = match self.base.kind {
            PacketType::Ack => match AckBody::parse(self.body()) {
                Ok(parsed) => parsed,
                Err(_) => return Vec::new(),
            },
            PacketType::ProbeReply => match ProbeReply::parse(self.body()) {
                Ok((reply, frames)) => (reply.ack, frames),
                Err(_) => return Vec::new(),
            },
            _ => return Vec::new(),
        };
        let mut blocks = vec![Block { body: first, refused: Vector256::EMPTY }];
        let mut adjacent = true;
        for frame in FrameIter::new(frames).flatten() {
            match frame {
                Frame::Refused(vector) if adjacent => {
                    if let Some(last) = blocks.last_mut() {
                        last.refused = vector;
                    }
                    adjacent = false;
                }
                Frame::Ack(body) => {
                    blocks.push(Block { body, refused: Vector256::EMPTY });
                    adjacent = true;
                }
                _ => adjacent = false,
            }
        }
        blocks
    }

    /// The acknowledgement of `path` that it carries.
    #[must_use]
    pub fn block_of(&self, path: u8) -> Option<Block> {
        self.blocks().into_iter().find(|block| block.body.path.0 == path)
    }

    /// The frames of an ACK or PROBE_REPLY.
    #[must_use]
    pub fn frames(&self) -> Vec<Frame> {
        let skip = match self.base.kind {
            PacketType::Ack => 64,
            PacketType::ProbeReply => 72,
            _ => return Vec::new(),
        };
        FrameIter::new(self.body().get(skip..).unwrap_or_default()).flatten().collect()
    }

    /// What its PLANE frame says: bitmaps of silent and of unreachable planes.
    #[must_use]
    pub fn plane_frame(&self) -> Option<(u32, u32)> {
        self.frames().into_iter().find_map(|frame| match frame {
            Frame::Plane { silent, unreachable } => Some((silent, unreachable)),
            _ => None,
        })
    }

    /// The start allowance of its START frame, KiB.
    #[must_use]
    pub fn start_frame(&self) -> Option<u32> {
        self.frames().into_iter().find_map(|frame| match frame {
            Frame::Start { allowance_kib } => Some(allowance_kib),
            _ => None,
        })
    }

    /// The credit of a stream that it tells.
    #[must_use]
    pub fn credit(&self, stream: u16) -> Option<u32> {
        self.frames().into_iter().find_map(|frame| match frame {
            Frame::Credit { stream: of, posted, .. } if of.0 == stream => Some(posted.raw()),
            _ => None,
        })
    }

    /// The NACK of a stream that it tells: reason and delay.
    #[must_use]
    pub fn nack(&self, stream: u16) -> Option<(u8, u32)> {
        self.frames().into_iter().find_map(|frame| match frame {
            Frame::Nack { stream: of, reason, delay_us } if of.0 == stream => Some((reason.code(), delay_us)),
            _ => None,
        })
    }
}

impl From<&Connect<'_>> for Terms {
    fn from(terms: &Connect<'_>) -> Self {
        Self {
            id: terms.connection.0,
            nonce: terms.nonce,
            incarnation: terms.incarnation,
            wants_checksum: terms.wants_checksum,
            implicit: terms.implicit,
            mtu: terms.mtu_bytes,
            service: terms.service,
            streams: terms.streams,
            paths: terms.paths,
            reads: terms.reads,
            message_window: terms.message_window,
            csn_window: terms.csn_window,
            initial_credits: terms.initial_credits,
            start_allowance_kib: terms.start_allowance_kib,
            planes: terms.planes.as_slice().to_vec(),
            echo: terms.echoed_nonce,
            cookie: terms.cookie,
            private: terms.private_data.to_vec(),
        }
    }
}

/// A datagram in words, on one line.
#[must_use]
pub fn describe(bytes: &[u8]) -> String {
    let (base, body) = match Base::parse(bytes) {
        Ok(parsed) => parsed,
        Err(error) => return format!("no packet ({error:?}), {} bytes", bytes.len()),
    };
    let mut out = format!(
        "{:?} to {:08x} path {} epoch {} psn {}",
        base.kind,
        base.connection.0,
        base.path.0,
        base.epoch,
        base.psn.raw()
    );
    match base.kind {
        PacketType::Data => match DataHeader::parse(body) {
            Ok((data, payload)) => describe_data(&mut out, &data, payload),
            Err(error) => push(&mut out, format_args!(": malformed ({error:?})")),
        },
        PacketType::Ack => match AckBody::parse(body) {
            Ok((ack, frames)) => {
                describe_block(&mut out, &ack);
                describe_frames(&mut out, frames);
            }
            Err(error) => push(&mut out, format_args!(": malformed ({error:?})")),
        },
        PacketType::ProbeReply => match ProbeReply::parse(body) {
            Ok((reply, frames)) => {
                push(&mut out, format_args!(" token {:016x}", reply.token));
                describe_block(&mut out, &reply.ack);
                describe_frames(&mut out, frames);
            }
            Err(error) => push(&mut out, format_args!(": malformed ({error:?})")),
        },
        PacketType::Probe => match Probe::parse(body) {
            Ok((probe, _)) => push(
                &mut out,
                format_args!(
                    " token {:016x} stream {} demand {} KiB",
                    probe.token, probe.stream.0, probe.demand_kib
                ),
            ),
            Err(error) => push(&mut out, format_args!(": malformed ({error:?})")),
        },
        PacketType::Control => match Control::parse(body) {
            Ok((control, _)) => describe_control(&mut out, &control),
            Err(error) => push(&mut out, format_args!(": malformed ({error:?})")),
        },
    }
    push(&mut out, format_args!(", {} bytes", bytes.len()));
    out
}

fn describe_control(out: &mut String, control: &Control<'_>) {
    match control {
        Control::Connect(terms) | Control::Accept(terms) => push(
            out,
            format_args!(
                " {} id {:08x} nonce {:016x} echo {:016x} paths {} planes {:?} W {} credits {} start {} KiB mtu {}{}{}",
                if matches!(control, Control::Connect(_)) { "CONNECT" } else { "ACCEPT" },
                terms.connection.0,
                terms.nonce,
                terms.echoed_nonce,
                terms.paths,
                terms.planes.as_slice(),
                terms.csn_window,
                terms.initial_credits,
                terms.start_allowance_kib,
                terms.mtu_bytes,
                if terms.implicit { " implicit" } else { "" },
                if terms.cookie == [0; 16] { "" } else { " with cookie" },
            ),
        ),
        other => push(out, format_args!(" {other:x?}")),
    }
}

fn describe_data(out: &mut String, data: &DataHeader, payload: &[u8]) {
    push(
        out,
        format_args!(
            " {:?} {:?} stream {} csn {} msn {} bytes {}..{} of {} demand {} KiB",
            data.opcode,
            data.flags,
            data.stream.0,
            data.csn.raw(),
            data.msn.raw(),
            data.offset,
            u64::from(data.offset) + payload.len() as u64,
            data.length,
            data.demand_kib
        ),
    );
    if data.receive_index.raw() != 0 {
        push(out, format_args!(" receive {}", data.receive_index.raw()));
    }
    if let Some(remote) = data.remote {
        push(out, format_args!(" at {:08x}:{:x}", remote.key.0, remote.address));
    }
    if let Some(immediate) = data.immediate {
        push(out, format_args!(" immediate {immediate:x}"));
    }
}

fn describe_block(out: &mut String, ack: &AckBody) {
    if ack.flags & 1 == 1 {
        push(out, format_args!(" [path {} empty]", ack.path.0));
        return;
    }
    let missing: Vec<u32> = (0..ack.accepted.iter().last().unwrap_or(0))
        .filter(|bit| !ack.accepted.contains(*bit))
        .map(|bit| ack.largest.raw().wrapping_sub(bit))
        .take(8)
        .collect();
    push(
        out,
        format_args!(
            " [path {} epoch {} largest {}, {} accepted, without {missing:?}, {} packets, {} marked, next csn {}, {} kbit/s]",
            ack.path.0,
            ack.epoch,
            ack.largest.raw(),
            ack.accepted.count(),
            ack.packets,
            ack.marked,
            ack.cumulative.raw(),
            ack.share_kbps
        ),
    );
}

fn describe_frames(out: &mut String, frames: &[u8]) {
    for frame in FrameIter::new(frames) {
        match frame {
            Ok(Frame::Ack(body)) => describe_block(out, &body),
            Ok(Frame::Refused(vector)) => {
                push(out, format_args!(" refused {:?}", vector.iter().take(8).collect::<Vec<_>>()));
            }
            Ok(frame) => push(out, format_args!(" {frame:?}")),
            Err(error) => push(out, format_args!(" malformed frame ({error:?})")),
        }
    }
}

fn push(out: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing into a string never fails.
    let _ = out.write_fmt(arguments);
}
