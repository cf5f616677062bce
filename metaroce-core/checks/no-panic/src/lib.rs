//! `metaroce-core` as firmware would link it: no std, no heap, storage in a `static`, C calls around the data path.
//!
//! `tests/no_panic.rs` in the root of the repository builds this with full optimisation, links it with
//! `--gc-sections` from the C functions on, and fails if panic code or an allocator is reached.
#![no_std]

use core::net::SocketAddr;
use core::panic::PanicInfo;
use core::slice;

use metaroce_core::{
    AtomicOperation, ConnectionHandle, Datagram, Disposition, Ecn, Endpoint, Event, Instant, Limits, Memory,
    MemoryError, Progress, RegionId, Segment, StreamId, Transmit, WorkRequest,
};

unsafe extern "C" {
    /// Never defined: a symbol table that mentions it shows that a panic can be reached.
    fn metaroce_panic_reached() -> !;
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    // SAFETY: it takes nothing and never returns; nothing that runs is ever linked with it.
    unsafe { metaroce_panic_reached() }
}

/// One region of memory that firmware owns.
#[repr(C)]
pub struct Window {
    base: *mut u8,
    length: usize,
}

impl Memory for Window {
    fn write(&mut self, _region: RegionId, offset: u64, bytes: &[u8]) -> Result<(), MemoryError> {
        let start = usize::try_from(offset).map_err(|_| MemoryError)?;
        let end = start.checked_add(bytes.len()).ok_or(MemoryError)?;
        if end > self.length {
            return Err(MemoryError);
        }
        // SAFETY: the caller of the C functions promises `length` writable bytes at `base`.
        unsafe { self.base.add(start).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    fn atomic(
        &mut self,
        _region: RegionId,
        _offset: u64,
        _operation: AtomicOperation,
    ) -> Result<u64, MemoryError> {
        Err(MemoryError)
    }
}

/// Two connections of four paths.
const LIMITS: Limits = Limits::SMALL;

type Tables = metaroce_core::fixed_storage!(LIMITS);

/// The endpoint of the firmware.
pub type Machine = Endpoint<Tables>;

/// The tables, ready in the image: nothing has to be allocated.
pub static TABLES: Sealed<Tables> = Sealed(Tables::new(LIMITS));

/// Data that only the C side, which has one thread, hands out.
#[repr(transparent)]
pub struct Sealed<T>(T);

// SAFETY: nothing here reads it; whoever takes its address answers for the threads.
unsafe impl<T> Sync for Sealed<T> {}

/// A datagram as the C side hands it in.
#[repr(C)]
pub struct Received {
    bytes: *const u8,
    length: usize,
    source: [u8; 4],
    port: u16,
    plane: u8,
    ecn: u8,
}

/// Hands in a datagram: 0 consumed, 1 duplicate, 2 dropped.
///
/// # Safety
/// All pointers are valid, and no other call is under way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn metaroce_handle_datagram(
    machine: &mut Machine,
    window: &mut Window,
    now: u64,
    received: &Received,
) -> u32 {
    // SAFETY: as the caller promises.
    let bytes = unsafe { slice::from_raw_parts(received.bytes, received.length) };
    let source = SocketAddr::from((received.source, received.port));
    let datagram = Datagram { source, plane: received.plane, ecn: Ecn::from_bits(received.ecn), bytes };
    match machine.handle_datagram(Instant::from_nanos(now), datagram, window) {
        Disposition::Consumed => 0,
        Disposition::Duplicate => 1,
        Disposition::Dropped(_) => 2,
    }
}

/// Lets timers run; 1 if more are due.
#[unsafe(no_mangle)]
pub extern "C" fn metaroce_handle_timeout(machine: &mut Machine, now: u64) -> u32 {
    u32::from(machine.handle_timeout(Instant::from_nanos(now)) == Progress::More)
}

/// Fills descriptors; returns how many.
///
/// # Safety
/// `out` points to `count` descriptors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn metaroce_poll_transmit(
    machine: &mut Machine,
    now: u64,
    out: *mut Transmit,
    count: usize,
) -> usize {
    // SAFETY: as the caller promises.
    let out = unsafe { slice::from_raw_parts_mut(out, count) };
    machine.poll_transmit(Instant::from_nanos(now), out)
}

/// The next event; 0 if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn metaroce_poll_event(machine: &mut Machine, out: &mut Event) -> u32 {
    machine.poll_event().map_or(0, |event| {
        *out = event;
        1
    })
}

/// When to call [`metaroce_handle_timeout`] at the latest.
#[unsafe(no_mangle)]
pub extern "C" fn metaroce_next_deadline(machine: &mut Machine) -> u64 {
    machine.next_deadline().unwrap_or(Instant::FAR_FUTURE).as_nanos()
}

/// Posts work; 0 if it was taken.
#[unsafe(no_mangle)]
pub extern "C" fn metaroce_post(
    machine: &mut Machine,
    now: u64,
    connection: &ConnectionHandle,
    stream: u16,
    request: &WorkRequest<'_>,
) -> u32 {
    u32::from(machine.post(Instant::from_nanos(now), *connection, StreamId(stream), *request).is_err())
}

/// Posts a receive; 0 if it was taken.
#[unsafe(no_mangle)]
pub extern "C" fn metaroce_post_recv(
    machine: &mut Machine,
    connection: &ConnectionHandle,
    stream: u16,
    segment: &Segment,
) -> u32 {
    let segments = slice::from_ref(segment);
    u32::from(machine.post_recv(*connection, StreamId(stream), 0, segments).is_err())
}
