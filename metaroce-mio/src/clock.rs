//! From the system's monotonic clock to the core's and back.

use std::time::{Duration, Instant as SystemInstant};

use metaroce_core::time::Instant;

/// The epoch of one driver: the core's time 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    epoch: SystemInstant,
}

impl Clock {
    /// Starts at one second, so that "before the first packet" has room.
    pub(crate) fn new() -> Self {
        let now = SystemInstant::now();
        Self { epoch: now.checked_sub(HEAD_START).unwrap_or(now) }
    }

    /// Now, in the core's terms.
    pub(crate) fn now(&self) -> Instant {
        self.core(SystemInstant::now())
    }

    /// A point of the system's clock in the core's terms; what lies before the epoch becomes the epoch.
    pub(crate) fn core(&self, at: SystemInstant) -> Instant {
        let nanos = at.saturating_duration_since(self.epoch).as_nanos();
        Instant::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// A point of the core's time on the system's clock; `None` for never.
    pub(crate) fn system(&self, at: Instant) -> Option<SystemInstant> {
        if at == Instant::FAR_FUTURE {
            None
        } else {
            self.epoch.checked_add(Duration::from_nanos(at.as_nanos()))
        }
    }
}

const HEAD_START: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back_is_the_same_point() {
        let clock = Clock::new();
        let at = SystemInstant::now() + Duration::from_micros(1500);
        assert_eq!(clock.system(clock.core(at)), Some(at));
    }

    #[test]
    fn never_stays_never_and_the_clock_does_not_start_at_zero() {
        let clock = Clock::new();
        assert_eq!(clock.system(Instant::FAR_FUTURE), None);
        assert!(clock.now() > Instant::ZERO);
    }
}
