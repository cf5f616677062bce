//! How an interface is used.

use std::thread;
use std::time::{Duration, Instant};

use crate::error::OpenError;

/// How one queue of an interface is used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct XdpOptions {
    /// The interface, by name.
    pub interface: String,
    /// Its queue; default 0. What arrives on other queues reaches the driver through the kernel, which is slower: see the
    /// crate's documentation on queues.
    pub queue: u32,
    /// Where the filter is attached; default [`Attach::Automatic`].
    pub attach: Attach,
    /// Who copies frames; default [`CopyMode::Automatic`].
    pub copy: CopyMode,
    /// Chunks to receive into, a power of two, 64 to 65,536; default 2048. Each holds a packet, or a part of one. More take
    /// up larger bursts, but all are written in turn, and soon they do not fit the processor's caches.
    pub receive_frames: u32,
    /// Chunks to send from, a power of two, 64 to 65,536; default 2048.
    pub transmit_frames: u32,
    /// Bytes of a chunk: 2048 or 4096; default 4096. The kernel leaves 256 of them empty when it receives.
    pub chunk_bytes: u32,
    /// Also datagrams that take several chunks, where kernel (6.6) and driver have that; default `false`: the largest
    /// datagram is what fits one chunk. One of several is put together before it is taken in, which is one copy more.
    pub multi_buffer: bool,
    /// Has the device polled from the driver's thread instead of by interrupts; default no. It helps devices with an
    /// interrupt of their own per queue, and drivers that are never idle.
    pub busy_poll: Option<BusyPoll>,
    /// How long to try when the queue is busy; default 2 s. After a process has ended the kernel takes some time to let go
    /// of its queue.
    pub patience: Duration,
}

/// Where the filter is attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attach {
    /// In the driver if it can, else generically.
    #[default]
    Automatic,
    /// In the driver, before the kernel makes a packet of a frame.
    Native,
    /// In the stack: works for every device.
    Generic,
}

/// Who copies frames between device and UMEM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyMode {
    /// Nobody if the driver can do without and the filter is in the driver, else the kernel.
    #[default]
    Automatic,
    /// The kernel.
    Copy,
    /// Nobody: the device reads and writes the UMEM, or opening fails.
    ZeroCopy,
}

/// Polling the device from the driver's thread (`SO_PREFER_BUSY_POLL`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyPoll {
    /// How long one call may poll, µs.
    pub micros: u32,
    /// Packets that one call may take in, 1 to 65,535.
    pub packets: u16,
}

impl XdpOptions {
    /// Defaults for queue 0 of an interface.
    #[must_use]
    pub fn new(interface: impl Into<String>) -> Self {
        Self {
            interface: interface.into(),
            queue: 0,
            attach: Attach::Automatic,
            copy: CopyMode::Automatic,
            receive_frames: 2048,
            transmit_frames: 2048,
            chunk_bytes: 4096,
            multi_buffer: false,
            busy_poll: None,
            patience: Duration::from_secs(2),
        }
    }

    /// # Errors
    /// [`OpenError::Config`] with the field that is out of range.
    pub(crate) fn check(&self) -> Result<(), OpenError> {
        let frames = |count: u32| count.is_power_of_two() && (64..=65_536).contains(&count);
        let fields = [
            ("XdpOptions::receive_frames", frames(self.receive_frames)),
            ("XdpOptions::transmit_frames", frames(self.transmit_frames)),
            ("XdpOptions::chunk_bytes", matches!(self.chunk_bytes, 2048 | 4096)),
            ("XdpOptions::busy_poll", self.busy_poll.is_none_or(|poll| poll.packets > 0)),
        ];
        match fields.iter().find(|(_, good)| !good) {
            Some((field, _)) => Err(OpenError::Config(field)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_range_is_named() {
        assert!(XdpOptions::new("eth0").check().is_ok());
        let bad = XdpOptions { receive_frames: 100, ..XdpOptions::new("eth0") };
        assert!(matches!(bad.check(), Err(OpenError::Config("XdpOptions::receive_frames"))));
        let bad = XdpOptions { chunk_bytes: 8192, ..XdpOptions::new("eth0") };
        assert!(matches!(bad.check(), Err(OpenError::Config("XdpOptions::chunk_bytes"))));
    }
}

/// Time to try again what the kernel will let go of soon.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience(Option<Instant>);

impl XdpOptions {
    /// The time of [`patience`](Self::patience), from now on.
    pub(crate) fn start_waiting(&self) -> Patience {
        Patience(Instant::now().checked_add(self.patience))
    }
}

impl Patience {
    /// Sleeps a little and returns true, or returns false if the time is over.
    pub(crate) fn wait(self) -> bool {
        const PAUSE: Duration = Duration::from_millis(10);
        let more = self.0.is_none_or(|until| Instant::now() < until);
        if more {
            thread::sleep(PAUSE);
        }
        more
    }
}
