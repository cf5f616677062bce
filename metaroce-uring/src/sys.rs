//! What needs `unsafe`: the rings shared with the kernel, and the memory that it reads and writes.

pub(crate) mod buffers;
pub(crate) mod price;
pub(crate) mod registered;
pub(crate) mod ring;
pub(crate) mod slots;
pub(crate) mod wake;
