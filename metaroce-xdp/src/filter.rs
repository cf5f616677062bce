//! The XDP program: takes the UDP datagrams of one port out of the stream of packets, and leaves everything else to the
//! kernel.
//!
//! Assembled here, so that building needs no compiler for BPF. In C it would read
//!
//! ```c
//! if (packet is IPv4 without options and no fragment, or IPv6 without extension headers)
//!     if (it is UDP, to our port, to our address if we have one, and no longer than a datagram of ours)
//!         return bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS);
//! return XDP_PASS;
//! ```
//!
//! `XDP_PASS` is also what becomes of a datagram on a queue without a socket: it reaches the UDP socket that the driver
//! keeps. The same goes for what is longer than a datagram of ours: several datagrams that a sender on the same machine left
//! in one piece (segmentation offload), which only the kernel can take apart.

use std::net::IpAddr;

use crate::sys::bpf::Instruction;

/// What the program takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Filter {
    /// UDP destination port.
    pub(crate) port: u16,
    /// Destination addresses.
    pub(crate) scope: Scope,
    /// Longest UDP payload.
    pub(crate) payload_bytes_max: u16,
}

/// Destination addresses that are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All.
    Any,
    /// All of IPv4.
    AnyV4,
    /// One.
    Address(IpAddr),
}

impl Filter {
    /// The program; `map` is the descriptor of the map from queue to socket.
    pub(crate) fn assemble(&self, map: i32) -> Vec<Instruction> {
        let mut code = Assembler::default();
        code.put(MOVE, CONTEXT, R1, 0, 0);
        code.put(LOAD_WORD, DATA, CONTEXT, CONTEXT_DATA, 0);
        code.put(LOAD_WORD, DATA_END, CONTEXT, CONTEXT_DATA_END, 0);
        code.require_bytes(42);
        code.put(LOAD_HALF, PORT, DATA, 12, 0);
        code.jump_if(JUMP_EQUAL, PORT, in_memory_16(0x86dd), Label::V6);
        code.pass_unless(PORT, in_memory_16(0x0800));
        self.assemble_v4(&mut code);
        code.place(Label::V6);
        self.assemble_v6(&mut code);
        code.place(Label::Udp);
        code.pass_unless(PROTOCOL, 17);
        code.pass_unless(PORT, in_memory_16(self.port));
        code.put(TO_BIG_ENDIAN, LENGTH, 0, 0, 16);
        code.jump_if(JUMP_GREATER, LENGTH, i32::from(self.payload_bytes_max).saturating_add(8), Label::Pass);
        code.put(LOAD_WORD, R2, CONTEXT, CONTEXT_QUEUE, 0);
        code.put(LOAD_64, R1, PSEUDO_MAP, 0, map);
        code.put(0, 0, 0, 0, 0);
        code.put(MOVE_IMMEDIATE, R3, 0, 0, XDP_PASS);
        code.put(CALL, 0, 0, 0, REDIRECT_MAP);
        code.put(EXIT, 0, 0, 0, 0);
        code.place(Label::Pass);
        code.put(MOVE_IMMEDIATE, R0, 0, 0, XDP_PASS);
        code.put(EXIT, 0, 0, 0, 0);
        code.finish()
    }

    fn assemble_v4(&self, code: &mut Assembler) {
        if matches!(self.scope, Scope::Address(IpAddr::V6(_))) {
            return code.jump(Label::Pass);
        }
        code.put(LOAD_BYTE, PORT, DATA, 14, 0);
        code.pass_unless(PORT, 0x45);
        code.put(LOAD_HALF, PORT, DATA, 20, 0);
        code.put(AND, PORT, 0, 0, in_memory_16(0x3fff));
        code.pass_unless(PORT, 0);
        if let Scope::Address(IpAddr::V4(address)) = self.scope {
            code.put(LOAD_WORD, PORT, DATA, 30, 0);
            code.jump_if(JUMP_UNEQUAL_32, PORT, i32::from_ne_bytes(address.octets()), Label::Pass);
        }
        code.put(LOAD_BYTE, PROTOCOL, DATA, 23, 0);
        code.put(LOAD_HALF, PORT, DATA, 36, 0);
        code.put(LOAD_HALF, LENGTH, DATA, 38, 0);
        code.jump(Label::Udp);
    }

    fn assemble_v6(&self, code: &mut Assembler) {
        if matches!(self.scope, Scope::Address(IpAddr::V4(_)) | Scope::AnyV4) {
            return code.jump(Label::Pass);
        }
        code.require_bytes(62);
        if let Scope::Address(IpAddr::V6(address)) = self.scope {
            let octets = address.octets();
            for (word, offset) in octets.as_chunks::<4>().0.iter().zip([38, 42, 46, 50]) {
                code.put(LOAD_WORD, PORT, DATA, offset, 0);
                code.jump_if(JUMP_UNEQUAL_32, PORT, i32::from_ne_bytes(*word), Label::Pass);
            }
        }
        code.put(LOAD_BYTE, PROTOCOL, DATA, 20, 0);
        code.put(LOAD_HALF, PORT, DATA, 56, 0);
        code.put(LOAD_HALF, LENGTH, DATA, 58, 0);
    }
}

/// A place to jump to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Label {
    V6,
    Udp,
    Pass,
}

/// Code under way; jumps are forward only, so each gets its distance when its label is placed.
#[derive(Debug, Default)]
struct Assembler {
    code: Vec<Instruction>,
    /// Jumps whose label is not placed yet.
    open: Vec<(usize, Label)>,
}

impl Assembler {
    fn put(&mut self, code: u8, to: u8, from: u8, offset: i16, immediate: i32) {
        let registers = if cfg!(target_endian = "little") { to | from << 4 } else { to << 4 | from };
        self.code.push(Instruction { code, registers, offset, immediate });
    }

    fn jump(&mut self, label: Label) {
        self.open.push((self.code.len(), label));
        self.put(JUMP, 0, 0, 0, 0);
    }

    fn jump_if(&mut self, condition: u8, register: u8, immediate: i32, label: Label) {
        self.open.push((self.code.len(), label));
        self.put(condition, register, 0, 0, immediate);
    }

    fn pass_unless(&mut self, register: u8, immediate: i32) {
        self.jump_if(JUMP_UNEQUAL, register, immediate, Label::Pass);
    }

    /// Passes packets whose first buffer is shorter; the verifier wants this before anything is read.
    fn require_bytes(&mut self, bytes: i32) {
        self.put(MOVE, SCRATCH, DATA, 0, 0);
        self.put(ADD, SCRATCH, 0, 0, bytes);
        self.open.push((self.code.len(), Label::Pass));
        self.put(JUMP_GREATER_REGISTER, SCRATCH, DATA_END, 0, 0);
    }

    fn place(&mut self, label: Label) {
        let here = self.code.len();
        let code = &mut self.code;
        self.open.retain(|(at, wanted)| {
            if *wanted == label
                && let Some(jump) = code.get_mut(*at)
            {
                jump.offset = i16::try_from(here - at - 1).unwrap_or(i16::MAX);
            }
            *wanted != label
        });
    }

    fn finish(self) -> Vec<Instruction> {
        debug_assert!(self.open.is_empty(), "a label was not placed");
        self.code
    }
}

/// What a 16-bit load gives for a field that holds `value` in network order.
fn in_memory_16(value: u16) -> i32 {
    i32::from(u16::from_ne_bytes(value.to_be_bytes()))
}

// Registers. R1 to R5 are lost in a call; R6 to R9 are not.
const R0: u8 = 0;
const R1: u8 = 1;
const R2: u8 = 2;
const R3: u8 = 3;
const DATA: u8 = 2;
const DATA_END: u8 = 3;
const SCRATCH: u8 = 4;
const PORT: u8 = 5;
const CONTEXT: u8 = 6;
const PROTOCOL: u8 = 7;
const LENGTH: u8 = 8;

// Offsets in `struct xdp_md`.
const CONTEXT_DATA: i16 = 0;
const CONTEXT_DATA_END: i16 = 4;
const CONTEXT_QUEUE: i16 = 16;

// Operations (RFC 9669).
const MOVE: u8 = 0xbf;
const MOVE_IMMEDIATE: u8 = 0xb7;
const ADD: u8 = 0x07;
const AND: u8 = 0x57;
const TO_BIG_ENDIAN: u8 = 0xdc;
const LOAD_WORD: u8 = 0x61;
const LOAD_HALF: u8 = 0x69;
const LOAD_BYTE: u8 = 0x71;
const LOAD_64: u8 = 0x18;
const JUMP: u8 = 0x05;
const JUMP_EQUAL: u8 = 0x15;
const JUMP_UNEQUAL: u8 = 0x55;
const JUMP_UNEQUAL_32: u8 = 0x56;
const JUMP_GREATER: u8 = 0x25;
const JUMP_GREATER_REGISTER: u8 = 0x2d;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

/// Source of a 64-bit load whose value is a map's descriptor.
const PSEUDO_MAP: u8 = 1;
const REDIRECT_MAP: i32 = 51;
const XDP_PASS: i32 = 2;

#[cfg(test)]
mod tests;
