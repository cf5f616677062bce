#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub use metaroce_core::*;

#[cfg(feature = "mio")]
pub use metaroce_mio as mio;
#[cfg(feature = "uring")]
pub use metaroce_uring as uring;
#[cfg(feature = "xdp")]
pub use metaroce_xdp as xdp;
