//! The tests of every backend, on this one.
#![cfg(target_os = "linux")]

#[path = "../../metaroce-mio/tests/suite/mod.rs"]
mod suite;

use metaroce_mio::socket::Sockets;
use metaroce_uring::Uring;

impl suite::Tested for Uring {
    fn missing() -> Option<String> {
        metaroce_uring::check().err().map(|error| error.to_string())
    }

    fn sockets_mut(&mut self) -> &mut Sockets {
        Self::sockets_mut(self)
    }
}

backend_tests!(Uring);
