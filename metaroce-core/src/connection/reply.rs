//! Answers to packets that belong to no connection: nothing is remembered of them, and no answer is larger than what
//! it answers.

use core::net::{IpAddr, SocketAddr};

use crate::connection::control::write_control;
use crate::connection::output::Sink;
use crate::ids::WireConnectionId;
use crate::time::Instant;
use crate::transmit::{Datagram, Ecn, SourcePort};
use crate::view::View;
use crate::wire::{
    BASE_BYTES, COOKIE_BYTES, Connect, Control, QUOTE_BYTES, Reject, RejectReason, Reset, ResetProof, Retry,
};

/// Answers that wait for the next `poll_transmit`; more are not given.
const REPLIES: usize = 8;
/// How long a cookie is good for at least, ns (at most twice that).
const COOKIE_NS: u64 = 8_000_000_000;

/// Answers that wait to be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replies {
    waiting: [Option<Reply>; REPLIES],
}

#[derive(Clone, Copy, Debug)]
struct Reply {
    to: SocketAddr,
    plane: u8,
    kind: ReplyKind,
}

#[derive(Clone, Copy, Debug)]
enum ReplyKind {
    Retry { connection: WireConnectionId, nonce: u64, cookie: [u8; COOKIE_BYTES] },
    Reject { connection: WireConnectionId, nonce: u64, reason: RejectReason },
    Reset { quote: [u8; QUOTE_BYTES] },
    GivenUp { connection: WireConnectionId, mine: WireConnectionId, nonce_xor: u64 },
}

impl Replies {
    pub(crate) const NEW: Self = Self { waiting: [None; REPLIES] };

    fn push(&mut self, reply: Reply) {
        if let Some(slot) = self.waiting.iter_mut().find(|slot| slot.is_none()) {
            *slot = Some(reply);
        }
    }

    /// Sends what waits.
    pub(crate) fn fill(&mut self, now: Instant, sink: &mut Sink<'_>) {
        for slot in &mut self.waiting {
            if sink.is_full() {
                break;
            }
            let Some(reply) = slot.take() else { continue };
            let (to, control) = match reply.kind {
                ReplyKind::Retry { connection, nonce, cookie } => {
                    (connection, Control::Retry(Retry { echoed_nonce: nonce, cookie }))
                }
                ReplyKind::Reject { connection, nonce, reason } => {
                    (connection, Control::Reject(Reject { reason, echoed_nonce: nonce, private_data: &[] }))
                }
                ReplyKind::Reset { quote } => {
                    (WireConnectionId(0), Control::Reset(Reset { proof: ResetProof::Quote(quote) }))
                }
                ReplyKind::GivenUp { connection, mine, nonce_xor } => {
                    let proof = ResetProof::Ids { yours: connection, mine, nonce_xor };
                    (connection, Control::Reset(Reset { proof }))
                }
            };
            sink.emit(|transmit| {
                transmit.destination = reply.to;
                transmit.plane = reply.plane;
                transmit.source = SourcePort::Receive;
                transmit.ecn = Ecn::Ect0;
                transmit.checksummed = true;
                write_control(transmit, now, to, &control)
            });
        }
    }
}

/// RETRY: the CONNECT is to come again with this cookie.
pub(crate) fn retry(view: &mut View<'_>, now: Instant, datagram: &Datagram<'_>, connect: &Connect<'_>) {
    let cookie = cookie(view, datagram.source, connect.nonce, now.as_nanos() / COOKIE_NS);
    let kind = ReplyKind::Retry { connection: connect.connection, nonce: connect.nonce, cookie };
    view.replies.push(Reply { to: datagram.source, plane: datagram.plane, kind });
}

/// REJECT without a connection.
pub(crate) fn reject(
    view: &mut View<'_>,
    datagram: &Datagram<'_>,
    connect: &Connect<'_>,
    reason: RejectReason,
) {
    let kind = ReplyKind::Reject { connection: connect.connection, nonce: connect.nonce, reason };
    view.replies.push(Reply { to: datagram.source, plane: datagram.plane, kind });
}

/// RESET for DATA or a PROBE with an unknown id, quoting its base header.
pub(crate) fn reset_unknown(view: &mut View<'_>, datagram: &Datagram<'_>) {
    //= MR-CLS-12
    let Some(quote) = datagram.bytes.first_chunk::<QUOTE_BYTES>() else { return };
    let kind = ReplyKind::Reset { quote: *quote };
    let reset = Control::Reset(Reset { proof: ResetProof::Quote(*quote) });
    //= MR-CLS-13
    if datagram.bytes.len() < BASE_BYTES + reset.encoded_length() {
        return;
    }
    // The packet came from a path's source port, on which nobody need listen.
    let to = SocketAddr::new(datagram.source.ip(), view.config.peer_port);
    view.replies.push(Reply { to, plane: datagram.plane, kind });
}

/// RESET for an ACCEPT that comes when the connector has given up, so that the acceptor need not wait for it.
pub(crate) fn reset_accept(
    view: &mut View<'_>,
    datagram: &Datagram<'_>,
    mine: WireConnectionId,
    nonce: u64,
    accept: &Connect<'_>,
) {
    let nonce_xor = nonce ^ accept.nonce;
    let kind = ReplyKind::GivenUp { connection: accept.connection, mine, nonce_xor };
    view.replies.push(Reply { to: datagram.source, plane: datagram.plane, kind });
}

/// Whether the CONNECT carries a cookie that was given to this address for this nonce.
pub(crate) fn cookie_is_right(
    view: &View<'_>,
    now: Instant,
    datagram: &Datagram<'_>,
    connect: &Connect<'_>,
) -> bool {
    //= MR-HS-19
    let period = now.as_nanos() / COOKIE_NS;
    [period, period.wrapping_sub(1)]
        .into_iter()
        .any(|period| cookie(view, datagram.source, connect.nonce, period) == connect.cookie)
}

fn cookie(view: &View<'_>, source: SocketAddr, nonce: u64, period: u64) -> [u8; COOKIE_BYTES] {
    let first = view.secret.hash(&[hash_address(view, source), nonce, period, 0]);
    let second = view.secret.hash(&[hash_address(view, source), nonce, period, 1]);
    ((u128::from(first) << 64) | u128::from(second)).to_be_bytes()
}

/// A keyed hash of an address and port.
pub(crate) fn hash_address(view: &View<'_>, address: SocketAddr) -> u64 {
    let ip = match address.ip() {
        IpAddr::V4(ip) => u128::from(ip.to_bits()),
        IpAddr::V6(ip) => ip.to_bits(),
    };
    let bytes = ip.to_be_bytes();
    let half = |bytes: Option<&[u8; 8]>| bytes.map_or(0, |bytes| u64::from_be_bytes(*bytes));
    let (first, second) = (half(bytes.first_chunk()), half(bytes.last_chunk()));
    view.secret.hash(&[first, second, u64::from(address.port()), u64::from(address.is_ipv6())])
}
