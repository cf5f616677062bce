//! Requests of the device, as the cases post them.

use super::super::control::{Place, Request, Stretch};
use super::super::link::Region;

/// A WRITE into the suite's memory, which is there only in name.
pub(super) const fn write_request(key: u32, address: u64) -> Request {
    Request::Write { to: Place { key, address }, immediate: None }
}

/// Bytes of a region of the device.
pub(super) const fn local(region: &Region, offset: u32, length: u32) -> Stretch {
    Stretch { region: region.number, offset, length }
}
