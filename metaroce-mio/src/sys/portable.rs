//! What every system has: one datagram a call, copied into one buffer; no ECN, no offload.

use std::io;
use std::net::SocketAddr;

use mio::net::UdpSocket;
use socket2::Socket;

use super::{Gather, ReceiveBatch, Received, canonical};

/// Sends the pieces as one datagram.
pub(super) fn send(
    socket: &UdpSocket,
    to: SocketAddr,
    gather: &Gather<'_>,
    scratch: &mut Vec<u8>,
) -> io::Result<usize> {
    scratch.clear();
    for part in gather.parts() {
        part.append_to(scratch);
    }
    socket.send_to(scratch, to)
}

/// Receives one datagram after another until none is left or the batch is full; says how many, and whether none is left.
pub(super) fn receive(socket: &UdpSocket, batch: &mut ReceiveBatch) -> io::Result<(usize, bool)> {
    let mut count = 0;
    let slots = batch.buffer.chunks_exact_mut(batch.slot_bytes.max(1));
    for (message, slot) in batch.received.iter_mut().zip(slots) {
        match socket.recv_from(slot) {
            Ok((length, source)) => {
                // Whether the system cut it cannot be told; what fills the slot to its end may be cut.
                let truncated = length == slot.len();
                let source = canonical(source);
                *message = Received { source, length, segment_bytes: length, truncated, ..Received::NOTHING };
                count += 1;
            }
            // What has been received is worth more than the error, which comes again if it matters.
            Err(error) if count > 0 => return Ok((count, error.kind() == io::ErrorKind::WouldBlock)),
            Err(error) => return Err(error),
        }
    }
    Ok((count, false))
}

/// Non-blocking, with buffers as large as the system grants.
pub(super) fn configure(socket: &Socket, receive_bytes: usize, send_bytes: usize) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    shrinking(receive_bytes, |bytes| socket.set_recv_buffer_size(bytes));
    shrinking(send_bytes, |bytes| socket.set_send_buffer_size(bytes));
    Ok(())
}

/// Tries ever smaller sizes: some systems refuse what passes their limit, others cut it.
fn shrinking(bytes: usize, set: impl Fn(usize) -> io::Result<()>) {
    let mut bytes = bytes;
    while set(bytes).is_err() && bytes > 65_536 {
        bytes /= 2;
    }
}
