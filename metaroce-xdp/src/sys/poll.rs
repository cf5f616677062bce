//! Sleeping until one of a few descriptors is readable.

use std::io;
use std::os::fd::RawFd;
use std::ptr;
use std::time::Duration;

/// Sleeps until one of `descriptors` is readable, or `timeout` has passed (`None`: for ever); says of each whether it is,
/// as bits from the lowest. Looks at the first 16 only.
///
/// Instead of an `epoll` in which the sockets stay: that would be told of every packet, also while nobody sleeps.
///
/// # Errors
/// What the system says; a signal is none.
pub(crate) fn wait_readable(
    descriptors: impl Iterator<Item = RawFd>,
    timeout: Option<Duration>,
) -> io::Result<u16> {
    let mut polled = [libc::pollfd { fd: -1, events: libc::POLLIN, revents: 0 }; 16];
    let mut count: libc::nfds_t = 0;
    for (entry, descriptor) in polled.iter_mut().zip(descriptors) {
        entry.fd = descriptor;
        count += 1;
    }
    let span = timeout.map(|timeout| libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(timeout.subsec_nanos().cast_signed()),
    });
    let span = span.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: `polled` has at least `count` entries and lives through the call, as does `span`, which may be null.
    let ready = unsafe { libc::ppoll(polled.as_mut_ptr(), count, span, ptr::null()) };
    if ready < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::Interrupted { Ok(0) } else { Err(error) };
    }
    let bits = polled.iter().enumerate().filter(|(_, entry)| entry.revents != 0);
    Ok(bits.fold(0, |bits, (index, _)| bits | 1 << index))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::AsRawFd as _;
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    use super::*;

    #[test]
    fn it_says_which_is_readable_and_waits_no_longer_than_asked() {
        let (mut near, far) = UnixStream::pair().unwrap();
        let descriptors = || [near.as_raw_fd(), far.as_raw_fd()].into_iter();
        let start = Instant::now();
        assert_eq!(wait_readable(descriptors(), Some(Duration::from_millis(2))).unwrap(), 0);
        assert!(start.elapsed() >= Duration::from_millis(2));
        near.write_all(b"x").unwrap();
        let descriptors = [near.as_raw_fd(), far.as_raw_fd()].into_iter();
        assert_eq!(wait_readable(descriptors, None).unwrap(), 2);
    }
}
