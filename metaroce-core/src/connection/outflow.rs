//! What we send the peer: within the share that it gave us on each plane, and, at the start, within its allowance.

use crate::config::PLANES_MAX;
use crate::connection::Connection;
use crate::path::Path;
use crate::rng::Rng;
use crate::share::{FRAMING_BYTES, bytes_in, time_for};
use crate::table::Idx;
use crate::time::Instant;
use crate::view::View;

/// RTTs, and packet intervals at the share, after which a share is stale and a pause counts as idle.
const STALE: u64 = 8;
/// A pause of up to this part of the fabric's RTT, or of a packet interval that is longer, is made up for: clocks and
/// schedulers are coarse, and packets of other connections may be in the way.
const SLACK_DIVISOR: u64 = 8;
/// Intervals of less than a packet per RTT vary by so many thousandths: of a thousand senders whose turns stayed as they
/// are, the same would always meet the queue that the others make, and be marked until they starve.
const TURN_JITTER: u32 = 50;
/// Bytes of payload that need no announcement.
const UNANNOUNCED_BYTES: u64 = 256;
/// A share whose packet interval is longer than this part of an RTT is asked for once more as data starts.
const FEW_DIVISOR: u64 = 8;
/// Windows of a plane add up to at most so many products of rate and RTT: queues too short to be marked, at two hops or
/// three, and acknowledgements that wait for company, take as long as the base RTT.
const WINDOW_PRODUCTS: u64 = 2;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outflows {
    planes: [Outflow; PLANES_MAX],
    /// What the peer allows to start with, bytes.
    allowance_bytes: u64,
    start: Start,
    /// When data was last sent, and whether nothing was left to send then.
    last_sent: Instant,
    drained: bool,
}

/// What the peer allows on one plane.
#[derive(Clone, Copy, Debug)]
struct Outflow {
    /// The share it told last, kbit/s of wire bytes.
    share_kbps: u64,
    stale_at: Instant,
    /// When the next packet may go.
    next_at: Instant,
}

/// Whether new data may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// Nothing was sent for long, or ever.
    Idle,
    /// The peer was told that there is something, and has to say how much may go; at the latest then a packet goes.
    Asking { until: Instant },
    /// One packet went on trust: the next waits for what the peer says.
    Alone,
    /// Data flows.
    Running,
}

impl Outflows {
    pub(crate) const NEW: Self = Self {
        planes: [Outflow { share_kbps: 0, stale_at: Instant::ZERO, next_at: Instant::ZERO }; PLANES_MAX],
        allowance_bytes: 0,
        start: Start::Idle,
        last_sent: Instant::ZERO,
        drained: true,
    };

    /// The peer's start allowance.
    pub(crate) fn allow(&mut self, allowance_kib: u32) {
        self.allowance_bytes = u64::from(allowance_kib) << 10;
    }

    /// The share on a plane, kbit/s, if it is fresh.
    pub(crate) fn fresh_kbps(&self, now: Instant, plane: u8) -> Option<u64> {
        let flow = self.planes.get(usize::from(plane))?;
        //= MR-CC-22, MR-CC-23
        (now < flow.stale_at && flow.share_kbps > 0).then_some(flow.share_kbps)
    }

    /// The share told last on a plane, kbit/s; 0 before the first.
    pub(crate) fn told_kbps(&self, plane: u8) -> u64 {
        self.planes.get(usize::from(plane)).map_or(0, |flow| flow.share_kbps)
    }

    /// When the share lets the next packet out on a plane; the past for now.
    pub(crate) fn opens_at(&self, now: Instant, plane: u8) -> Instant {
        if self.fresh_kbps(now, plane).is_none() {
            return Instant::ZERO;
        }
        self.planes.get(usize::from(plane)).map_or(Instant::ZERO, |flow| flow.next_at)
    }

    /// Whether the one packet that may go unasked has gone, and no share came yet.
    pub(crate) fn waits_for_share(&self) -> bool {
        self.start == Start::Alone
    }

    /// A packet went; whether anything is left to send.
    pub(crate) fn on_data(&mut self, drained: bool) {
        self.drained = drained;
    }

    /// A packet of `bytes` was sent.
    pub(crate) fn on_sent(&mut self, now: Instant, plane: u8, bytes: u64, fabric_rtt_ns: u64, rng: &mut Rng) {
        self.last_sent = now;
        if let Some(kbps) = self.fresh_kbps(now, plane)
            && let Some(flow) = self.planes.get_mut(usize::from(plane))
        {
            //= MR-CC-30
            let interval_ns = time_for(bytes + FRAMING_BYTES, kbps);
            let slack_ns = fabric_rtt_ns.max(interval_ns) / SLACK_DIVISOR;
            let earliest = now.as_nanos().saturating_sub(slack_ns);
            let from = flow.next_at.max(Instant::from_nanos(earliest));
            //= MR-CC-31
            let varies = interval_ns > fabric_rtt_ns;
            flow.next_at =
                from.after(if varies { rng.jitter(interval_ns, TURN_JITTER) } else { interval_ns });
        }
    }
}

impl Outflow {
    /// The peer told a share. `interval_ns` is the time of a full packet at that share, `turn_ns` when the turn of
    /// the first comes.
    fn on_share(&mut self, now: Instant, share_kbps: u64, rtt_ns: u64, interval_ns: u64, turn_ns: u64) {
        if now >= self.stale_at {
            self.next_at = self.next_at.max(now.after(turn_ns));
        } else if share_kbps > self.share_kbps {
            //= MR-CC-29
            // A turn that was taken stays if the share falls: those who start together were told ever less, so that
            // their turns follow one another; stretched to one interval, they would all come at its end.
            let wait = self.next_at.since(now);
            if wait > 0 {
                self.next_at = now.after(wait.saturating_mul(self.share_kbps) / share_kbps);
            }
        }
        self.share_kbps = share_kbps;
        self.stale_at = now.after(STALE * rtt_ns.max(interval_ns));
    }
}

/// The peer acknowledged a path, and told its share of the path's plane.
pub(crate) fn on_share(
    view: &mut View<'_>,
    now: Instant,
    connection: Idx<Connection>,
    at: Idx<Path>,
    share_kbps: u32,
) {
    let path = view.paths.at_mut(at);
    let plane = usize::from(path.plane);
    let rtt_ns = path.rtt.smoothed_or(view.config.rtt_ns_initial);
    let owner = view.connections.at_mut(connection);
    let packet_bytes = u64::from(owner.paths.payload_bytes) + FRAMING_BYTES;
    let interval_ns = time_for(packet_bytes, u64::from(share_kbps));
    let sends = owner.has_data() || !owner.outbound.packets.is_empty();
    let Some(flow) = owner.outflows.planes.get_mut(plane) else { return };
    if sends && now >= flow.stale_at && interval_ns > rtt_ns / FEW_DIVISOR {
        // The first answer counted those who had been heard of by then; by the next all who start now have. The next
        // packet would ask too late. Whoever has nothing to send asks for nothing: where answers come later than a share
        // lasts, one question would follow the other for ever.
        path.timeouts.probe_owed = true;
    }
    // Whoever is told its share first is told a large one, and many may be told the same at once: turns begin from two
    // thirds to five thirds of an interval from now, so that they never come faster than the line takes them.
    let turn_ns = interval_ns * 2 / 3 + view.rng.jitter(interval_ns / 2, 1000);
    flow.on_share(now, u64::from(share_kbps), rtt_ns, interval_ns, turn_ns);
    if let Start::Asking { .. } | Start::Alone = owner.outflows.start {
        owner.outflows.start = Start::Running;
    }
}

/// Whether a packet with `bytes` of payload, the first after nothing was in flight, may go. After a pause the windows
/// start anew, and where the peer allows less than a packet it is asked first.
pub(crate) fn start(view: &mut View<'_>, now: Instant, connection: Idx<Connection>, bytes: u64) -> bool {
    if is_idle(view, now, connection) {
        let flows = &mut view.connections.at_mut(connection).outflows;
        let first = flows.start == Start::Idle;
        flows.start = Start::Running;
        //= MR-CC-16
        super::paths::restart(view, now, connection, first);
        let packet_bytes = u64::from(view.connections.at(connection).paths.payload_bytes);
        //= MR-CC-14
        if start_bytes(view.connections.at(connection), view.config) < packet_bytes {
            if bytes > UNANNOUNCED_BYTES {
                announce(view, now, connection);
            } else {
                view.connections.at_mut(connection).outflows.start = Start::Alone;
            }
        }
    }
    let flows = &mut view.connections.at_mut(connection).outflows;
    let Start::Asking { until } = flows.start else { return true };
    if now < until && bytes > UNANNOUNCED_BYTES {
        return false;
    }
    flows.start = Start::Alone;
    true
}

fn is_idle(view: &View<'_>, now: Instant, connection: Idx<Connection>) -> bool {
    let owner = view.connections.at(connection);
    match owner.outflows.start {
        Start::Idle => true,
        Start::Asking { .. } | Start::Alone => false,
        // Who waits for a small window is not idle.
        Start::Running if !owner.outflows.drained => false,
        Start::Running => {
            let rtt_ns = owner.rtt_ns(&view.paths, view.config);
            let told = owner.outflows.planes.iter().filter(|flow| flow.share_kbps > 0);
            let slowest = told.map(|flow| flow.share_kbps).min().unwrap_or(0);
            let interval_ns = time_for(u64::from(owner.paths.payload_bytes), slowest);
            now.since(owner.outflows.last_sent) > STALE * rtt_ns.max(interval_ns)
        }
    }
}

/// Asks the peer for a share, on one path of every plane.
fn announce(view: &mut View<'_>, now: Instant, connection: Idx<Connection>) {
    let mut asked = 0u8;
    let mut until = now;
    for at in view.connections.at(connection).path_indices() {
        let path = view.paths.at_mut(at);
        let plane = 1u8.checked_shl(u32::from(path.plane)).unwrap_or(0);
        if !path.takes_data() || asked & plane != 0 {
            continue;
        }
        asked |= plane;
        path.timeouts.probe_owed = true;
        let config = view.config;
        let pto = path.rtt.pto_ns(config.rtt_ns_initial, config.ack_delay_ns_max, config.pto_ns_min);
        until = until.max(now.after(pto));
    }
    view.connections.at_mut(connection).outflows.start = Start::Asking { until };
    super::paths::wait_for_pace(view, connection, until);
}

/// Bytes that the connection may send on each plane before the first feedback.
pub(crate) fn start_bytes(owner: &Connection, config: &crate::config::Config) -> u64 {
    //= MR-CC-13
    let product = bytes_in(u64::from(config.inbound_rate_kbps), config.rtt_ns_initial);
    let most = u64::from(config.window_bytes_start) / u64::from(owner.planes.verified());
    product.min(most).min(owner.outflows.allowance_bytes)
}

/// Keeps the windows of a plane's paths, taken together, within what rate and RTT can use. O(paths).
pub(crate) fn limit_windows(view: &mut View<'_>, now: Instant, connection: Idx<Connection>, plane: u8) {
    let owner = view.connections.at(connection);
    let config = view.config;
    let (mut sum, mut rtt_ns) = (0u64, config.rtt_ns_initial);
    let of_plane = |path: &Path| path.plane == plane && path.takes_data();
    for at in owner.path_indices() {
        let path = view.paths.at(at);
        if of_plane(path) {
            sum = sum.saturating_add(path.window.window_bytes);
            rtt_ns = rtt_ns.max(path.rtt.base_ns());
        }
    }
    let rate_kbps = u64::from(config.inbound_rate_kbps);
    let kbps = owner.outflows.fresh_kbps(now, plane).map_or(rate_kbps, |share| share.min(rate_kbps));
    //= MR-CC-7
    let most = bytes_in(kbps, rtt_ns).saturating_mul(WINDOW_PRODUCTS);
    if sum <= most {
        return;
    }
    // Not below a packet: where all windows are that small, the share itself sets the pace.
    let floor = u64::from(owner.paths.payload_bytes) + FRAMING_BYTES;
    for at in owner.path_indices() {
        let path = view.paths.at_mut(at);
        let window = path.window.window_bytes;
        if of_plane(path) && window > floor {
            let scaled = u128::from(window) * u128::from(most) / u128::from(sum.max(1));
            path.window.window_bytes = u64::try_from(scaled).unwrap_or(u64::MAX).max(floor);
        }
    }
}

/// What the connection could send now on one of its planes if the share allowed it, KiB; 0 if that is nothing.
pub(crate) fn demand_kib(owner: &Connection) -> u32 {
    //= MR-CC-17, MR-CC-18
    if !owner.has_data() {
        return 0;
    }
    let planes = u64::from(owner.planes.verified());
    u32::try_from(owner.queued_bytes.div_ceil(1024 * planes.max(1))).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rng() -> Rng {
        Rng::new(1)
    }

    fn told(share_kbps: u64, interval_ns: u64) -> Outflows {
        let mut flows = Outflows::NEW;
        if let Some(flow) = flows.planes.first_mut() {
            flow.on_share(Instant::from_nanos(1_000), share_kbps, 10_000, interval_ns, interval_ns);
        }
        flows
    }

    //= MR-CC-23 test
    #[test]
    fn a_share_of_nothing_does_not_stop_a_sender() {
        let flows = told(0, 0);
        assert_eq!(flows.opens_at(Instant::from_nanos(2_000), 0), Instant::ZERO);
    }

    //= MR-CC-22 test
    #[test]
    fn a_share_holds_for_eight_round_trips_or_packet_intervals() {
        let flows = told(1_000_000, 34_000);
        assert_eq!(flows.fresh_kbps(Instant::from_nanos(272_000), 0), Some(1_000_000));
        assert_eq!(flows.fresh_kbps(Instant::from_nanos(274_000), 0), None);
        assert_eq!(flows.opens_at(Instant::from_nanos(2_000), 0), Instant::from_nanos(35_000), "its turn");
    }

    //= MR-CC-29 test
    #[test]
    fn a_turn_stays_if_the_share_falls_and_comes_sooner_if_it_rises() {
        let (at, then) = (Instant::from_nanos(11_000), Instant::from_nanos(35_000));
        for (share_kbps, turn) in [(500_000, 35_000), (1_000_000, 35_000), (2_000_000, 23_000)] {
            let mut flows = told(1_000_000, 34_000);
            assert_eq!(flows.opens_at(at, 0), then);
            if let Some(flow) = flows.planes.first_mut() {
                flow.on_share(at, share_kbps, 10_000, 34_000, 1);
            }
            assert_eq!(flows.opens_at(at, 0), Instant::from_nanos(turn), "{share_kbps} kbit/s");
        }
    }

    //= MR-CC-30 test
    #[test]
    fn a_pause_of_an_eighth_of_a_long_interval_is_made_up_for() {
        // 934 bytes and framing take 100 us at 80 Mbit/s.
        // No longer than the fabric's RTT, so that they do not vary.
        for (late_ns, next) in [(12_000, 200_000), (12_500, 200_000), (20_000, 207_500)] {
            let mut flows = told(80_000, 100_000);
            flows.on_sent(Instant::from_nanos(0), 0, 934, 100_000, &mut rng());
            let first = flows.opens_at(Instant::from_nanos(1), 0).as_nanos();
            flows.on_sent(Instant::from_nanos(first + late_ns), 0, 934, 100_000, &mut rng());
            let second = flows.opens_at(Instant::from_nanos(first + late_ns), 0).as_nanos();
            assert_eq!(second - first + 100_000, next, "{late_ns} ns late");
        }
    }

    #[test]
    fn packets_are_an_interval_apart_and_a_pause_is_made_up_for_only_in_part() {
        let mut flows = told(8_000_000, 1_000);
        // 934 bytes and framing take 1 µs; the slack is an eighth of 8 µs.
        flows.on_sent(Instant::from_nanos(50_000), 0, 934, 8_000, &mut rng());
        assert_eq!(flows.opens_at(Instant::from_nanos(50_000), 0), Instant::from_nanos(50_000));
        flows.on_sent(Instant::from_nanos(50_000), 0, 934, 8_000, &mut rng());
        assert_eq!(flows.opens_at(Instant::from_nanos(50_000), 0), Instant::from_nanos(51_000));
    }

    //= MR-CC-31 test
    #[test]
    fn intervals_longer_than_an_rtt_vary_by_a_twentieth_and_are_right_on_average() {
        let mut rng = rng();
        let (mut least, mut most, mut sum) = (u64::MAX, 0, 0);
        for _ in 0..1_000 {
            let mut flows = told(80_000, 1);
            flows.on_sent(Instant::from_nanos(50_000), 0, 934, 99_999, &mut rng);
            let interval = flows.opens_at(Instant::from_nanos(50_000), 0).as_nanos() - 50_000 + 100_000 / 8;
            (least, most, sum) = (least.min(interval), most.max(interval), sum + interval);
        }
        assert!(
            (95_000..96_000).contains(&least) && (104_000..=105_000).contains(&most),
            "{least} to {most}"
        );
        assert!((99_500..100_500).contains(&(sum / 1_000)), "{} on average", sum / 1_000);
    }
}
