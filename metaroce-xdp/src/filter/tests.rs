use std::net::SocketAddr;

use metaroce_core::transmit::Ecn;

use super::*;
use crate::headers::checksum::InternetSum;
use crate::headers::{Mac, Packet, Template};

const QUEUE: u64 = 3;
const MAP: i32 = 77;

/// What a program does to a packet.
#[derive(Debug, PartialEq)]
enum Verdict {
    Passed,
    /// To the socket of a queue.
    Redirected(u64),
}

/// Runs a program as the kernel would, with every access checked against the packet's end.
fn run(program: &[Instruction], packet: &[u8]) -> Verdict {
    const DATA_AT: u64 = 0x1000;
    let end = DATA_AT + packet.len() as u64;
    let mut registers = [0u64; 11];
    let mut checked_until = DATA_AT;
    let mut at = 0;
    for _ in 0..200 {
        let Instruction { code, registers: pair, offset, immediate } = program[at];
        let (to, from) = (usize::from(pair & 15), usize::from(pair >> 4));
        at += 1;
        let sign_extended = i64::from(immediate).cast_unsigned();
        let taken = match code {
            MOVE => {
                registers[to] = registers[from];
                false
            }
            MOVE_IMMEDIATE => {
                registers[to] = sign_extended;
                false
            }
            ADD => {
                registers[to] = registers[to].wrapping_add(sign_extended);
                false
            }
            AND => {
                registers[to] &= sign_extended;
                false
            }
            TO_BIG_ENDIAN => {
                assert_eq!(immediate, 16);
                registers[to] = u64::from(u16::try_from(registers[to]).unwrap().to_be());
                false
            }
            LOAD_WORD if from == usize::from(CONTEXT) => {
                registers[to] = match offset {
                    CONTEXT_DATA => DATA_AT,
                    CONTEXT_DATA_END => end,
                    CONTEXT_QUEUE => QUEUE,
                    _ => panic!("no such field"),
                };
                false
            }
            LOAD_WORD | LOAD_HALF | LOAD_BYTE => {
                let bytes = match code {
                    LOAD_WORD => 4,
                    LOAD_HALF => 2,
                    _ => 1,
                };
                let start = registers[from] + u64::try_from(offset).unwrap();
                assert!(start + bytes <= checked_until, "the verifier would refuse this");
                let start = usize::try_from(start - DATA_AT).unwrap();
                let mut value = [0; 8];
                value[..usize::try_from(bytes).unwrap()]
                    .copy_from_slice(&packet[start..start + usize::try_from(bytes).unwrap()]);
                registers[to] = u64::from_le_bytes(value);
                false
            }
            LOAD_64 => {
                assert_eq!((from, immediate), (usize::from(PSEUDO_MAP), MAP));
                at += 1;
                false
            }
            JUMP => true,
            JUMP_EQUAL => registers[to] == sign_extended,
            JUMP_UNEQUAL => registers[to] != sign_extended,
            JUMP_UNEQUAL_32 => registers[to] & 0xffff_ffff != u64::from(immediate.cast_unsigned()),
            JUMP_GREATER => registers[to] > sign_extended,
            JUMP_GREATER_REGISTER => {
                let beyond = registers[to] > registers[from];
                if !beyond {
                    checked_until = checked_until.max(registers[to]);
                }
                beyond
            }
            CALL => {
                assert_eq!((immediate, registers[3]), (REDIRECT_MAP, 2));
                return Verdict::Redirected(registers[2]);
            }
            EXIT => {
                assert_eq!(registers[0], 2, "all that it can say itself is XDP_PASS");
                return Verdict::Passed;
            }
            _ => panic!("unknown operation {code:#x}"),
        };
        if taken {
            at += usize::try_from(offset).unwrap();
        }
    }
    panic!("it does not end");
}

fn frame(source: &str, destination: &str, payload: &[u8]) -> Vec<u8> {
    let destination: SocketAddr = destination.parse().unwrap();
    let template =
        Template::new(Mac::default(), Mac::default(), source.parse().unwrap(), destination).unwrap();
    let mut frame = vec![0; template.length()];
    let packet = Packet { source_port: 50_000, ecn: Ecn::Ect0, payload_bytes: payload.len() };
    template.emit(&mut frame, packet).unwrap();
    frame.extend_from_slice(payload);
    template.seal_v6(&mut frame, InternetSum::default().with(payload));
    frame
}

fn verdict(filter: Filter, frame: &[u8]) -> Verdict {
    let program = filter.assemble(MAP);
    assert_eq!(unreachable(&program), [0; 0], "the verifier refuses code that nothing leads to");
    run(&program, frame)
}

/// Instructions to which no way leads.
fn unreachable(program: &[Instruction]) -> Vec<usize> {
    let mut reached = vec![false; program.len()];
    let mut open = vec![0];
    while let Some(at) = open.pop() {
        if std::mem::replace(&mut reached[at], true) {
            continue;
        }
        let Instruction { code, offset, .. } = program[at];
        let target = || at + 1 + usize::try_from(offset).unwrap();
        match code {
            EXIT => {}
            JUMP => open.push(target()),
            JUMP_EQUAL | JUMP_UNEQUAL | JUMP_UNEQUAL_32 | JUMP_GREATER | JUMP_GREATER_REGISTER => {
                open.extend([at + 1, target()]);
            }
            LOAD_64 => {
                reached[at + 1] = true;
                open.push(at + 2);
            }
            _ => open.push(at + 1),
        }
    }
    (0..program.len()).filter(|at| !reached[*at]).collect()
}

const ANY: Filter = Filter { port: 4795, scope: Scope::Any, payload_bytes_max: 4176 };

#[test]
fn datagrams_to_the_port_go_to_the_socket_of_their_queue() {
    for (source, destination) in [("10.0.9.1", "10.0.9.2:4795"), ("fd00::1", "[fd00::2]:4795")] {
        for length in [0, 1, 4176] {
            let frame = frame(source, destination, &vec![1; length]);
            assert_eq!(verdict(ANY, &frame), Verdict::Redirected(QUEUE));
        }
    }
}

#[test]
fn another_port_is_passed() {
    for (source, destination) in [("10.0.9.1", "10.0.9.2:4796"), ("fd00::1", "[fd00::2]:4796")] {
        assert_eq!(verdict(ANY, &frame(source, destination, b"abc")), Verdict::Passed);
    }
    // The byte order matters: 4795 is 0x12bb.
    assert_eq!(verdict(ANY, &frame("10.0.9.1", "10.0.9.2:47890", b"abc")), Verdict::Passed);
}

#[test]
fn only_the_address_asked_for_is_taken() {
    for (own, source, to, other) in [
        ("10.0.9.2", "10.0.9.1", "10.0.9.2:4795", "10.0.9.3:4795"),
        ("200.1.2.3", "10.0.9.1", "200.1.2.3:4795", "201.1.2.3:4795"),
        ("fd00::2", "fd00::1", "[fd00::2]:4795", "[fd00::3]:4795"),
        ("fd00::2", "fd00::1", "[fd00::2]:4795", "[fd01::2]:4795"),
        ("fd00:0:0:1::ffff:2", "fd00::1", "[fd00::1:0:0:ffff:2]:4795", "[fd00::1:0:1:ffff:2]:4795"),
    ] {
        let filter = Filter { scope: Scope::Address(own.parse().unwrap()), ..ANY };
        assert_eq!(verdict(filter, &frame(source, to, b"abc")), Verdict::Redirected(QUEUE), "{to}");
        assert_eq!(verdict(filter, &frame(source, other, b"abc")), Verdict::Passed, "{other}");
    }
    let v4 = Filter { scope: Scope::Address("10.0.9.2".parse().unwrap()), ..ANY };
    assert_eq!(verdict(v4, &frame("fd00::1", "[fd00::2]:4795", b"abc")), Verdict::Passed);
    let v6 = Filter { scope: Scope::Address("fd00::2".parse().unwrap()), ..ANY };
    assert_eq!(verdict(v6, &frame("10.0.9.1", "10.0.9.2:4795", b"abc")), Verdict::Passed);
}

#[test]
fn any_ipv4_address_is_no_ipv6_address() {
    let filter = Filter { scope: Scope::AnyV4, ..ANY };
    assert_eq!(verdict(filter, &frame("10.0.9.1", "10.0.9.2:4795", b"abc")), Verdict::Redirected(QUEUE));
    assert_eq!(verdict(filter, &frame("fd00::1", "[fd00::2]:4795", b"abc")), Verdict::Passed);
}

#[test]
fn what_is_longer_than_a_datagram_of_ours_is_passed() {
    for (source, destination) in [("10.0.9.1", "10.0.9.2:4795"), ("fd00::1", "[fd00::2]:4795")] {
        assert_eq!(verdict(ANY, &frame(source, destination, &[1; 4177])), Verdict::Passed);
    }
}

#[test]
fn everything_else_is_passed() {
    let good = frame("10.0.9.1", "10.0.9.2:4795", b"abc");
    for (changes, what) in [
        (&[(12, 0x08), (13, 0x06)][..], "ARP"),
        (&[(12, 0x81), (13, 0x00)], "a VLAN tag"),
        (&[(14, 0x46)], "IPv4 options"),
        (&[(20, 0x20)], "a first fragment"),
        (&[(21, 0x01)], "a later fragment"),
        (&[(23, 6)], "TCP"),
        (&[(23, 1)], "ICMP"),
    ] {
        let mut frame = good.clone();
        for (at, byte) in changes {
            frame[*at] = *byte;
        }
        assert_eq!(verdict(ANY, &frame), Verdict::Passed, "{what}");
    }
    let mut unfragmentable = good.clone();
    unfragmentable[20] = 0x40;
    assert_eq!(verdict(ANY, &unfragmentable), Verdict::Redirected(QUEUE));
    let good = frame("fd00::1", "[fd00::2]:4795", b"abc");
    for next in [0, 6, 43, 44, 58, 60] {
        let mut frame = good.clone();
        frame[20] = next;
        assert_eq!(verdict(ANY, &frame), Verdict::Passed, "next header {next}");
    }
}

#[test]
fn a_packet_cut_anywhere_is_passed_and_nothing_beyond_its_end_is_read() {
    for (source, destination, headers) in
        [("10.0.9.1", "10.0.9.2:4795", 42), ("fd00::1", "[fd00::2]:4795", 62)]
    {
        let frame = frame(source, destination, b"");
        for length in 0..headers {
            assert_eq!(verdict(ANY, &frame[..length]), Verdict::Passed, "{length} bytes");
        }
    }
}

#[test]
fn filter_and_parser_agree_on_what_is_a_datagram() {
    fn property(changes: Vec<(u8, u8)>, v6: bool) -> bool {
        let (source, destination) =
            if v6 { ("fd00::1", "[fd00::2]:4795") } else { ("10.0.9.1", "10.0.9.2:4795") };
        let mut frame = frame(source, destination, &[1; 20]);
        for (at, byte) in changes.into_iter().take(3) {
            let at = usize::from(at) % 62;
            frame[at] = byte;
        }
        let parsed = crate::headers::parse(&frame, frame.len()).ok();
        let ours = parsed.is_some_and(|parsed| parsed.destination.port() == 4795);
        // What the parser takes the filter takes too; the filter does not check sums and lengths.
        !ours || verdict(ANY, &frame) == Verdict::Redirected(QUEUE)
    }
    quickcheck::QuickCheck::new().tests(5000).quickcheck(property as fn(Vec<(u8, u8)>, bool) -> bool);
}
