//! Which receives of the peer a stream may use, and when it asks for more.

use crate::connection::Connection;
use crate::ids::{ReceiveIndex, Serial, StreamId};
use crate::stream::refusal::RETRY_NS_MAX;
use crate::stream::{find, refresh, refusal};
use crate::table::Idx;
use crate::time::Instant;
use crate::view::View;

/// What the peer told of its receives.
#[derive(Debug)]
pub struct Credits {
    limit: Limit,
    /// Receives that the peer has told of.
    posted: ReceiveIndex,
    /// When a blocked stream asks again, and the delay after that.
    ask_at: Instant,
    ask_delay_ns: u64,
}

/// Which receives may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    /// Those below this index.
    Until(ReceiveIndex),
    /// Any: the peer's stream draws on a shared queue.
    NoneNeeded,
}

impl Credits {
    pub(crate) const NEW: Self = Self {
        limit: Limit::Until(ReceiveIndex::new(0)),
        posted: ReceiveIndex::new(0),
        ask_at: Instant::FAR_FUTURE,
        ask_delay_ns: 0,
    };

    /// The peer lets a stream of which it told nothing yet use this many receives.
    pub(crate) fn grant(&mut self, initial_credits: u32) {
        self.limit = Limit::Until(ReceiveIndex::new(initial_credits));
    }

    /// Goes on as after so many receives (for tests).
    pub(crate) fn start_at(&mut self, posted: ReceiveIndex, initial_credits: u32) {
        self.posted = posted;
        self.limit = Limit::Until(posted.plus(initial_credits));
    }

    /// Whether the receive `next` may be used.
    pub(crate) fn allow(&self, next: ReceiveIndex) -> bool {
        match self.limit {
            //= MR-STR-9
            Limit::Until(limit) => next.before(limit),
            Limit::NoneNeeded => true,
        }
    }

    /// Has a blocked stream ask, first at the time returned; `None` if it asks already.
    pub(crate) fn start_asking(&mut self, now: Instant, delay_ns: u64) -> Option<Instant> {
        if self.ask_at != Instant::FAR_FUTURE {
            return None;
        }
        self.ask_delay_ns = delay_ns;
        self.ask_at = now.after(delay_ns);
        Some(self.ask_at)
    }

    pub(crate) const fn stop_asking(&mut self) {
        self.ask_at = Instant::FAR_FUTURE;
    }

    /// When the stream asks next.
    pub(crate) const fn ask_at(&self) -> Instant {
        self.ask_at
    }

    /// Whether it is time to ask; the next time is later by twice the delay.
    pub(crate) fn take_question(&mut self, now: Instant, delay_ns_min: u64) -> bool {
        if self.ask_at > now {
            return false;
        }
        //= MR-STR-12
        self.ask_delay_ns = self.ask_delay_ns.saturating_mul(2).min(RETRY_NS_MAX.max(delay_ns_min));
        self.ask_at = now.after(self.ask_delay_ns);
        true
    }

    /// Takes in what the peer tells: `posted` so far, or none needed. Returns whether it is news.
    fn learn(&mut self, posted: Option<ReceiveIndex>) -> bool {
        let Some(posted) = posted else {
            let news = self.limit != Limit::NoneNeeded;
            self.limit = Limit::NoneNeeded;
            return news;
        };
        //= MR-STR-10
        if !self.posted.before(posted) {
            return false;
        }
        self.posted = posted;
        // What was told once stays: the initial credits are a promise to try, not a count of receives.
        if let Limit::Until(limit) = self.limit
            && limit.before(posted)
        {
            self.limit = Limit::Until(posted);
        }
        true
    }
}

/// CREDIT: the peer's receives, `posted` so far, or none needed.
pub(crate) fn on_credit(
    view: &mut View<'_>,
    now: Instant,
    connection: Idx<Connection>,
    id: StreamId,
    posted: Option<ReceiveIndex>,
) {
    let Some(stream) = find(view, connection, id) else { return };
    if view.streams.at_mut(stream).requester.credits.learn(posted) {
        //= MR-STR-16
        // A receive was posted: no need to wait out the delay.
        refusal::hurry(view, now, stream);
        refresh(view, now, stream);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_once_stays_and_old_news_is_none() {
        let mut credits = Credits::NEW;
        credits.grant(4);
        let allows = |credits: &Credits, next| credits.allow(ReceiveIndex::new(next));
        assert!(allows(&credits, 3) && !allows(&credits, 4));
        assert!(
            credits.learn(Some(ReceiveIndex::new(2))),
            "below the initial credits it is news all the same"
        );
        assert!(allows(&credits, 3));
        assert!(credits.learn(Some(ReceiveIndex::new(9))) && allows(&credits, 8) && !allows(&credits, 9));
        assert!(!credits.learn(Some(ReceiveIndex::new(5))) && allows(&credits, 8));
        assert!(credits.learn(None) && !credits.learn(None) && allows(&credits, 1 << 30));
    }

    #[test]
    fn credit_counts_on_past_the_wrap() {
        let mut credits = Credits::NEW;
        for step in 1..=16u32 {
            assert!(credits.learn(Some(ReceiveIndex::new(step << 28))));
        }
        assert!(credits.learn(Some(ReceiveIndex::new(3))));
        assert!(credits.allow(ReceiveIndex::new(2)) && !credits.allow(ReceiveIndex::new(3)));
        assert!(credits.allow(ReceiveIndex::new(u32::MAX)));
    }
}
