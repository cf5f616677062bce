//! Acknowledgements of much at once.

use metaroce_core::ids::{Psn, ReceiveIndex};
use metaroce_core::wire::{AckBody, Frame, NackReason, Vector256};
use metaroce_core::{Limits, Operation, Segment, StreamId, WorkRequest};

use super::scene::{MS, Scene, VICTIM, block};

const ALL: Vector256 = Vector256::from_words([u64::MAX; 4]);

/// A connection on which as much is in flight as its windows let, a half of it sent long before the other.
fn flying(limits: &Limits, length: u32) -> Scene {
    let mut scene = Scene::new(limits, 1);
    scene.lose(|packet| packet.from == VICTIM);
    let half = limits.requests as usize * 3 / 8;
    for _ in 0..2 {
        scene.post_writes(VICTIM, 0, 0, length, half);
        scene.net.settle();
        scene.net.run_for(100 * MS);
    }
    scene
}

/// Blocks for all paths, made of what was sent on each.
fn blocks(
    scene: &Scene,
    make: impl Fn(&[(Psn, u32)], AckBody) -> Option<(AckBody, Vector256)>,
) -> Vec<(AckBody, Vector256)> {
    let paths = scene.psns();
    let sent = paths.iter().enumerate().filter(|(_, sent)| !sent.is_empty());
    sent.filter_map(|(path, sent)| {
        let (largest, timestamp) = *sent.last()?;
        make(sent, block(path, largest, timestamp, sent.len()))
    })
    .collect()
}

/// The newest 256 packets of each path are acknowledged, which makes all that was sent long before them lost. The requests
/// are short: each packet completes one, if those before it are complete.
pub fn of_all(limits: &Limits) {
    let mut scene = flying(limits, 64);
    let all = blocks(&scene, |_, body| Some((AckBody { accepted: ALL, ..body }, Vector256::EMPTY)));
    let ack = scene.ack(0, &all, []);
    scene.hand_in_counted(&ack);
}

/// All packets are refused, the newest first: those that the last acknowledgement refuses go before all of them.
pub fn refusing_all(limits: &Limits) {
    let mut scene = Scene::new(limits, 1);
    scene.lose(|packet| packet.from == VICTIM);
    scene.post_writes(VICTIM, 0, 0, 1 << 20, 64);
    scene.post_writes(VICTIM, 0, 0, 64, usize::MAX);
    scene.net.settle();
    let longest = scene.psns().iter().map(Vec::len).max().unwrap();
    for newest in (0..longest.div_ceil(256)).rev() {
        let all = blocks(&scene, |sent, body| {
            // Those from here on, 256 at most.
            let first = newest * 256;
            let last = sent.len().min(first + 256).checked_sub(1).filter(|last| *last >= first)?;
            let (largest, echoed_timestamp) = sent[last];
            let mut refused = Vector256::EMPTY;
            (0..=last - first).for_each(|back| refused.insert(u32::try_from(back).unwrap()));
            Some((AckBody { largest, echoed_timestamp, ..body }, refused))
        });
        let ack = scene.ack(0, &all, []);
        if newest == 0 { scene.hand_in_counted(&ack) } else { scene.hand_in(&ack) }
    }
}

/// READs wait for their responses, then a WRITE waits for its verdict, and the one behind it is refused: each NACK might be the
/// one that fails it.
pub fn full_of_nacks(limits: &Limits) {
    let mut scene = Scene::new_with(limits, 1, Some(0));
    scene.lose(|packet| packet.from == VICTIM);
    let segments = [Segment { region: scene.regions[VICTIM].id, offset: 0, length: 8 }];
    let read = Operation::Read { remote: scene.remote(VICTIM) };
    // Fewer than 256 for each path.
    let reads = (limits.requests as usize / 2).min(250 * usize::from(limits.paths_per_connection));
    for _ in 0..reads {
        scene.post(VICTIM, 0, 0, WorkRequest::new(0, read, &segments)).unwrap();
    }
    scene.net.settle();
    let all = blocks(&scene, |_, body| Some((AckBody { accepted: ALL, ..body }, Vector256::EMPTY)));
    let ack = scene.ack(0, &all, []);
    scene.hand_in(&ack);
    scene.clear();
    assert_eq!(scene.post_writes(VICTIM, 0, 0, 8, 2), 2);
    // The share may have them wait for their turn.
    scene.net.run_for(MS);
    let (path, psn, timestamp) = scene.last_sent();
    let mut last = Vector256::EMPTY;
    last.insert(0);
    let nack = Frame::Nack { stream: StreamId(0), reason: NackReason::NoReceive, delay_us: 1 };
    let nacks = std::iter::repeat_n(nack, 1_000);
    let ack = scene.ack(0, &[(block(path, psn, timestamp, 1_000), last)], nacks);
    scene.hand_in_counted(&ack);
}

/// Streams wait for credit, and each gets some again and again.
pub fn full_of_credits(limits: &Limits) {
    let mut scene = Scene::new(limits, 1);
    scene.lose(|packet| packet.from == VICTIM);
    let streams = u16::try_from(limits.streams / 2).unwrap();
    let segments = [Segment { region: scene.regions[VICTIM].id, offset: 0, length: 8 }];
    let send = WorkRequest::new(0, Operation::Send { immediate: None }, &segments);
    while (0..streams).all(|stream| scene.post(VICTIM, 0, stream, send).is_ok()) {}
    scene.net.settle();
    let first = blocks(&scene, |_, body| Some((body, Vector256::EMPTY)));
    let credits = (0..1_000u16).map(|number| Frame::Credit {
        stream: StreamId(number % streams),
        none_needed: false,
        posted: ReceiveIndex::new(u32::from(number)),
    });
    let ack = scene.ack(0, &first[..1], credits);
    scene.hand_in_counted(&ack);
}
