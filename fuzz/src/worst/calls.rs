//! Timers, sending, posting and events.

use metaroce_core::wire::Vector256;
use metaroce_core::{CloseMode, Limits, Operation, Progress, Segment, StreamId, WorkRequest};

use super::scene::{MS, PEER, Scene, VICTIM, block};
use crate::probe;

/// As many connections as there may be have packets in flight on all paths, and hear of the first path only: all others
/// time out at once, and all that is in flight there goes again.
pub fn timers_of_all(limits: &Limits) {
    let mut scene = Scene::new(limits, limits.connections);
    scene.lose(|packet| packet.from == VICTIM && packet.base.path.0 != 0);
    let each = limits.requests as usize * 3 / 4 / limits.connections as usize;
    for connection in 0..scene.connections.len() {
        scene.post_writes(VICTIM, connection, 0, 40_000, each - 2);
    }
    scene.net.settle();
    // Later than what is lost there is progress.
    for _ in 0..2 {
        scene.net.run_for(50 * MS);
        for connection in 0..scene.connections.len() {
            scene.post_writes(VICTIM, connection, 1, 40_000, 1);
        }
    }
    scene.net.run_for(MS);
    let _ = scene.fire_counted(1_050 * MS);
}

/// A connection fails, with everything open on one stream.
pub fn timers_that_end_all(limits: &Limits) {
    let mut scene = super::data::with_everything_open(limits);
    let _ = scene.fire_counted(11_000 * MS);
}

/// All connections owe acknowledgements of all paths.
pub fn transmit_of_acks(limits: &Limits) {
    let mut scene = Scene::new(limits, limits.connections);
    for connection in 0..scene.connections.len() {
        scene.post_writes(PEER, connection, 0, 100_000, 1);
    }
    // They arrive at once, and nobody asks for the answers before all have.
    let sent = scene.withheld();
    for packet in &sent {
        scene.hand_in(packet);
    }
    assert!(scene.transmit_counted(64) > 1);
}

/// All connections have data to send on all paths.
pub fn transmit_of_64(limits: &Limits) {
    let mut scene = Scene::new(limits, limits.connections);
    let each = limits.requests as usize * 3 / 4 / limits.connections as usize;
    for connection in 0..scene.connections.len() {
        scene.post_writes(VICTIM, connection, 0, 64, each);
    }
    assert_eq!(scene.transmit_counted(64), 64.min(each * scene.connections.len()));
}

/// All packets of a stream were refused, and waited their time; then the first of them failed.
pub fn transmit_after_all_was_refused(limits: &Limits) {
    let mut scene = Scene::new(limits, 1);
    scene.lose(|packet| packet.from == VICTIM);
    scene.post_writes(VICTIM, 0, 0, 1 << 20, 64);
    scene.net.settle();
    for (path, sent) in scene.psns().iter().enumerate() {
        for chunk in sent.chunks(256) {
            let &(largest, timestamp) = chunk.last().unwrap();
            let mut refused = Vector256::EMPTY;
            (0..chunk.len()).for_each(|back| refused.insert(u32::try_from(back).unwrap()));
            let ack = scene.ack(0, &[(block(path, largest, timestamp, sent.len()), refused)], []);
            scene.hand_in(&ack);
        }
    }
    let now = scene.net.now().after(500 * MS);
    while scene.net.hosts[VICTIM].endpoint.handle_timeout(now) == Progress::More {}
    let handle = scene.connections[0][0];
    scene.net.hosts[VICTIM].endpoint.reset_stream(now, handle, StreamId(0)).unwrap();
    scene.transmit_counted(64);
}

/// A request of as many segments as there may be, on a new stream.
pub fn post_of_four_segments(limits: &Limits) {
    let mut scene = Scene::new(limits, limits.connections);
    let segments = [Segment { region: scene.regions[VICTIM].id, offset: 0, length: 64 }; 4];
    let operation = Operation::Write { remote: scene.remote(VICTIM), immediate: None };
    let request = WorkRequest::new(0, operation, &segments);
    let posted = probe::counted(|| scene.post(VICTIM, 0, 7, request));
    assert_eq!(posted, Some(Ok(())));
}

/// One of many events.
pub fn event(limits: &Limits) {
    let mut scene = Scene::new(limits, 1);
    scene.post_writes(VICTIM, 0, 0, 64, usize::MAX);
    let now = scene.net.now();
    let handle = scene.connections[0][0];
    let endpoint = &mut scene.net.hosts[VICTIM].endpoint;
    endpoint.close(now, handle, CloseMode::Flush).unwrap();
    let event = probe::counted(|| endpoint.poll_event());
    assert!(event.is_some_and(|event| event.is_some()));
}
