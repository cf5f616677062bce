//! Calls into the core that cost the most: states that a hostile peer, or an application that wants everything at once, can
//! bring about, and the one call that then has to deal with them. `tests/work.rs` counts its instructions.

mod acks;
mod calls;
mod data;
mod scene;

use metaroce_core::Limits;

use crate::probe::Call;

/// One call, and its bounds.
pub struct Case {
    /// Its name, for the program `counted`.
    pub name: &'static str,
    /// What is counted.
    pub call: Call,
    /// Brings it about.
    run: fn(&Limits),
    /// Most instructions with [`Limits::SMALL`] and [`Limits::HOST`]: about twice what was counted when they were set.
    pub most: [u64; 2],
}

/// The limits, by the ends of names.
pub const LIMITS: [(&str, Limits); 2] = [("small", Limits::SMALL), ("host", Limits::HOST)];

/// All cases.
pub const CASES: &[Case] = &[
    case("ack-of-all", Call::Datagram, acks::of_all, [57_000, 2_100_000]),
    case("ack-refusing-all", Call::Datagram, acks::refusing_all, [140_000, 2_200_000]),
    case("ack-full-of-nacks", Call::Datagram, acks::full_of_nacks, [740_000, 740_000]),
    case("ack-full-of-credits", Call::Datagram, acks::full_of_credits, [760_000, 790_000]),
    case("data-of-9000-bytes", Call::Datagram, data::of_9000_bytes, [93_000, 93_000]),
    case(
        "data-that-lets-all-take-effect",
        Call::Datagram,
        data::that_lets_all_take_effect,
        [33_000, 3_300_000],
    ),
    case("data-with-a-tag", Call::Datagram, data::with_a_tag, [9_700, 370_000]),
    case("result-that-fails-all", Call::Datagram, data::result_that_fails_all, [6_200, 160_000]),
    case("reset-of-everything", Call::Datagram, data::reset_of_everything, [43_000, 4_700_000]),
    case("close-with-receives", Call::Datagram, data::close_with_receives, [26_000, 2_800_000]),
    case("timers-of-all", Call::Timeout, calls::timers_of_all, [82_000, 25_000_000]),
    case("timers-that-end-all", Call::Timeout, calls::timers_that_end_all, [64_000, 7_200_000]),
    case("transmit-of-64", Call::Transmit, calls::transmit_of_64, [110_000, 360_000]),
    case("transmit-of-acks", Call::Transmit, calls::transmit_of_acks, [12_000, 290_000]),
    case(
        "transmit-after-all-was-refused",
        Call::Transmit,
        calls::transmit_after_all_was_refused,
        [55_000, 2_800_000],
    ),
    case("post-of-four-segments", Call::Post, calls::post_of_four_segments, [3_500, 3_500]),
    case("event", Call::Event, calls::event, [150, 150]),
];

const fn case(name: &'static str, call: Call, run: fn(&Limits), most: [u64; 2]) -> Case {
    Case { name, call, run, most }
}

/// Runs the case that is named `CASE-small` or `CASE-host`; whether there is one.
#[must_use]
pub fn run(name: &str) -> bool {
    for case in CASES {
        for (end, limits) in &LIMITS {
            if name.strip_suffix(end).and_then(|rest| rest.strip_suffix('-')) == Some(case.name) {
                (case.run)(limits);
                return true;
            }
        }
    }
    false
}
