//! The lives of connection, path and stream as tables. The core checks its steps against them in debug builds; the
//! diagrams of section 16 of `SPEC.md` are drawn from them.

use crate::stats::{ConnectionState, PathState};

/// One step of a life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition<S> {
    /// Where from; `None` where nothing was before.
    pub from: Option<S>,
    /// Where to; `None` when it is gone.
    pub to: Option<S>,
    /// What brings it about, for people.
    pub cause: &'static str,
}

/// Where a stream is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamState {
    /// Work flows.
    Open,
    /// It ended; this side's STREAM_RESET waits for its requests to run out.
    EndingUnsent,
    /// This side's STREAM_RESET is on its way.
    EndingSent,
    /// This side's STREAM_RESET has its verdict; the peer's, or a CSN below it, is missing.
    EndingJudged,
}

/// The life of a connection.
pub const CONNECTION: &[Transition<ConnectionState>] = {
    use ConnectionState::{
        Accepting, Closing, Connecting, Draining, Ending, Incoming, Open, PeerClosing, Resting,
    };
    &[
        first(Connecting, "connect"),
        first(Incoming, "CONNECT"),
        step(Connecting, Connecting, "RETRY, repeat"),
        step(Connecting, Open, "ACCEPT"),
        step(Connecting, Ending, "REJECT, timeout, closed here"),
        step(Incoming, Accepting, "accepted"),
        step(Incoming, Ending, "rejected, timeout"),
        step(Accepting, Accepting, "repeat"),
        step(Accepting, Open, "CONFIRM or any valid packet"),
        step(Accepting, Draining, "closed here"),
        step(Accepting, PeerClosing, "CLOSE"),
        step(Accepting, Ending, "timeout, RESET"),
        step(Open, Draining, "closed here"),
        step(Open, PeerClosing, "CLOSE"),
        step(Open, Ending, "failure, RESET, quoting CLOSE_ACK"),
        step(Draining, Closing, "everything judged"),
        step(Draining, PeerClosing, "CLOSE"),
        step(Draining, Ending, "failure, RESET, quoting CLOSE_ACK"),
        step(Closing, Closing, "repeat"),
        step(Closing, Ending, "CLOSE_ACK, CLOSE, failure"),
        step(PeerClosing, Ending, "everything judged, failure"),
        step(Ending, Resting, "everything reported"),
        last(Resting, "rest is over"),
    ]
};

/// The life of a path, as long as its connection lives.
pub const PATH: &[Transition<PathState>] = {
    use PathState::{Congested, Dead, Good, Parked, Probing, Suspect, Unverified};
    &[
        first(Good, "on plane 0"),
        first(Unverified, "on a further plane"),
        step(Unverified, Good, "the peer's address returned its token"),
        step(Good, Congested, "a quarter of its last packets marked"),
        step(Congested, Good, "clear again, or moved to another route"),
        step(Good, Parked, "windows feed fewer paths"),
        step(Parked, Good, "windows feed more paths, or a sibling timed out"),
        step(Good, Suspect, "RTO while another path progressed"),
        step(Congested, Suspect, "RTO while another path progressed"),
        step(Suspect, Good, "answered"),
        step(Suspect, Dead, "one more RTO"),
        step(Dead, Dead, "probed again, by another route"),
        step(Dead, Probing, "first answer on this route"),
        step(Probing, Probing, "second answer"),
        step(Probing, Dead, "probe unanswered"),
        step(Probing, Good, "third answer"),
    ]
};

/// The life of a stream.
pub const STREAM: &[Transition<StreamState>] = {
    use StreamState::{EndingJudged, EndingSent, EndingUnsent, Open};
    &[
        first(Open, "first use by either side"),
        step(Open, EndingUnsent, "reset here, STREAM_RESET, failed request, close"),
        step(EndingUnsent, EndingSent, "own requests have run out"),
        step(EndingSent, EndingJudged, "verdict of our STREAM_RESET"),
        last(EndingJudged, "peer's STREAM_RESET, and all CSNs below it, seen"),
    ]
};

/// Whether a table has a step between two states. O(steps).
pub(crate) fn allows<S: Copy + PartialEq>(table: &[Transition<S>], from: S, to: S) -> bool {
    table.iter().any(|step| step.from == Some(from) && step.to == Some(to))
}

const fn first<S: Copy>(to: S, cause: &'static str) -> Transition<S> {
    Transition { from: None, to: Some(to), cause }
}

const fn step<S: Copy>(from: S, to: S, cause: &'static str) -> Transition<S> {
    Transition { from: Some(from), to: Some(to), cause }
}

const fn last<S: Copy>(from: S, cause: &'static str) -> Transition<S> {
    Transition { from: Some(from), to: None, cause }
}
