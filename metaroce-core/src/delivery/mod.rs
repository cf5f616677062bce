//! Delivery: one per connection and direction. Each packet (CSN) is judged once, for ever.

mod inbound;
mod outbound;

pub use inbound::Inbound;
pub(crate) use inbound::{Seen, inbound_words};
pub(crate) use outbound::{Cause, Place, Queued};
pub use outbound::{Outbound, Packet};
