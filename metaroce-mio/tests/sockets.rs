//! The tests of every backend, on the mio backend.

mod suite;

use metaroce_mio::Polled;
use metaroce_mio::socket::Sockets;

impl suite::Tested for Polled {
    fn missing() -> Option<String> {
        None
    }

    fn sockets_mut(&mut self) -> &mut Sockets {
        Self::sockets_mut(self)
    }
}

backend_tests!(Polled);
