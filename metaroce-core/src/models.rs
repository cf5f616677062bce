//! Models of the containers, for property tests and fuzzing; feature `models`. No part of the API.
//!
//! Each function plays operations on a container and on a plain model of it, and panics where they differ.

pub use crate::bits::model::window_does_what_a_set_does;
pub use crate::index::model::index_does_what_a_map_does;
pub use crate::list::model::lists_of_two_tags_do_what_queues_do;
pub use crate::pool::model::pool_does_what_a_map_with_a_stack_does;
pub use crate::ring::model::ring_does_what_a_bounded_queue_does;
pub use crate::table::model::table_does_what_a_map_does;
pub use crate::wheel::model::wheel_does_what_a_map_of_deadlines_does;
