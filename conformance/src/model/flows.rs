//! What each stream of a program needs: every message finds a receive that it fits.

use std::collections::BTreeMap;

use metaroce_core::{AtomicOperation, TagEntry};

use super::program::{Place, Style, Work};
use crate::Random;

/// Longest message, bytes.
const LENGTH_MAX: u64 = 64 << 10;
/// Longest message of a shared queue, or of a tagged receive: any of them fits.
const SHARED_MAX: u32 = 6_000;
/// Longest message to a window.
const WINDOW_MAX: u32 = 600;
/// Longest datagram: less than a packet.
const DATAGRAM_MAX: u64 = 900;

/// What is on its way on each stream of each side of each connection.
pub(super) struct Flows {
    connections: Vec<[usize; 2]>,
    styles: Vec<Style>,
    doomed: Option<(usize, u16)>,
    by_stream: BTreeMap<[usize; 3], Flow>,
    /// Messages that draw on the shared queue of each host, and receives in it.
    shared: BTreeMap<usize, [usize; 2]>,
}

/// Messages of one side that need a receive, and receives of the other, by index: the longest message that fits.
#[derive(Default)]
struct Flow {
    needs: Vec<u32>,
    receives: Vec<u32>,
    tags: Vec<u64>,
    entries: Vec<TagEntry>,
    wrote: bool,
}

impl Flows {
    pub(super) const fn new(
        connections: Vec<[usize; 2]>,
        styles: Vec<Style>,
        doomed: Option<(usize, u16)>,
    ) -> Self {
        Self { connections, styles, doomed, by_stream: BTreeMap::new(), shared: BTreeMap::new() }
    }

    fn flow(&mut self, key: [usize; 3]) -> &mut Flow {
        self.by_stream.entry(key).or_default()
    }

    fn style(&self, stream: usize) -> Style {
        self.styles.get(stream).copied().unwrap_or(Style::Own)
    }

    fn host(&self, connection: usize, side: usize) -> usize {
        self.connections.get(connection).and_then(|sides| sides.get(side)).copied().unwrap_or(0)
    }

    /// A message of about `length` bytes needs a receive: returns its length.
    fn need(&mut self, [connection, side, stream]: [usize; 3], length: u32) -> u32 {
        if self.style(stream) == Style::Shared {
            let [needs, _] = self.shared.entry(self.host(connection, 1 - side)).or_default();
            *needs += 1;
            return length.min(SHARED_MAX);
        }
        self.flow([connection, side, stream]).need(length)
    }

    pub(super) fn next_work(&mut self, random: &mut Random, key: [usize; 3]) -> Work {
        let [connection, _, stream] = key;
        let doomed =
            self.doomed.is_some_and(|doomed| (doomed.0, usize::from(doomed.1)) == (connection, stream));
        let length = length(random);
        let immediate = random.chance(400_000).then(|| u32::try_from(random.below(1 << 32)).unwrap_or(7));
        match random.below(16) {
            0 | 1 => Work::Send { length: self.need(key, length), immediate },
            2 => Work::SendInvalidate { length: self.need(key, length) },
            3 | 4 if self.style(stream) != Style::Shared => {
                let bits = random.below(4) << 8 | random.below(4);
                self.flow(key).tags.push(bits);
                Work::SendTagged { length: length.min(SHARED_MAX), bits, immediate }
            }
            3..=6 => self.write(random, key, length, immediate),
            7 if doomed => Work::Read { length },
            7 => Work::WriteSignal { length, addend: 1 + random.below(1 << 40) },
            9 if self.flow(key).wrote => Work::ReadBack,
            9 | 10 if !doomed => Work::Atomic(atomic(random)),
            11 if !doomed => Work::Count(1 + random.below(5)),
            8..=11 => Work::Read { length },
            12 => Work::Datagram {
                length: u32::try_from(random.below(DATAGRAM_MAX + 1)).unwrap_or(0),
                immediate,
                right: [random.chance(800_000), random.chance(800_000)],
            },
            13 => {
                Work::ReceiveDatagram { capacity: u32::try_from(random.below(2 * DATAGRAM_MAX)).unwrap_or(0) }
            }
            _ => self.receive(random, key, length),
        }
    }

    fn write(&mut self, random: &mut Random, key: [usize; 3], length: u32, immediate: Option<u32>) -> Work {
        if immediate.is_some() {
            self.need(key, 0);
        }
        let doomed = self.doomed.is_some_and(|doomed| (doomed.0, usize::from(doomed.1)) == (key[0], key[2]));
        let (place, length) = match random.below(4) {
            0 if !doomed => (Place::Tail, length),
            1 => (Place::Window, length.min(WINDOW_MAX)),
            _ => (Place::Plain, length),
        };
        self.flow(key).wrote |= place != Place::Window;
        Work::Write { length, immediate, place }
    }

    /// A receive for messages of the other side.
    fn receive(&mut self, random: &mut Random, [connection, side, stream]: [usize; 3], length: u32) -> Work {
        let from = [connection, 1 - side, stream];
        match self.style(stream) {
            Style::Shared => self.shared_receive(random, self.host(connection, side)),
            style if random.chance(500_000) => {
                let mask = match random.below(if style == Style::Own { 5 } else { 1 }) {
                    0 | 1 => 0xff,
                    2 => 0,
                    3 => 0xf01,
                    _ => u64::MAX,
                };
                let bits = random.below(4) << 8 | random.below(4);
                self.flow(from).entry(random, TagEntry { bits, mask })
            }
            _ => Work::Receive { capacity: self.flow(from).receive(length) },
        }
    }

    fn shared_receive(&mut self, random: &mut Random, host: usize) -> Work {
        let [_, receives] = self.shared.entry(host).or_default();
        *receives += 1;
        Work::ReceiveShared { capacity: SHARED_MAX + u32::try_from(random.below(100)).unwrap_or(0) }
    }

    /// Receives that are still to be posted, on the side that receives.
    pub(super) fn missing(&mut self, random: &mut Random) -> Vec<([usize; 3], Work)> {
        let mut missing = Vec::new();
        for ([connection, side, stream], flow) in &mut self.by_stream {
            let at = [*connection, 1 - side, *stream];
            if self.styles.get(*stream) == Some(&Style::Shared) {
                continue;
            }
            let extra = usize::from(random.chance(200_000));
            while flow.receives.len() < flow.needs.len() + extra {
                let slack = u32::try_from(random.below(100)).unwrap_or(0);
                missing.push((at, Work::Receive { capacity: flow.receive(slack) }));
            }
            let unordered = self.styles.get(*stream) == Some(&Style::Unordered);
            let mask = if unordered { 0xff } else { u64::MAX };
            for bits in flow.unmatched() {
                missing.push((at, flow.entry(random, TagEntry { bits, mask })));
            }
        }
        for (number, sides) in self.connections.clone().into_iter().enumerate() {
            for (side, host) in sides.into_iter().enumerate() {
                let extra = usize::from(random.chance(200_000));
                while let Some(&[needs, receives]) = self.shared.get(&host)
                    && receives < needs + extra
                {
                    missing.push(([number, side, 0], self.shared_receive(random, host)));
                }
            }
        }
        missing
    }
}

impl Flow {
    /// A message of about `length` bytes is sent: returns its length, which fits its receive.
    fn need(&mut self, length: u32) -> u32 {
        let fits = self.receives.get(self.needs.len()).map_or(length, |&capacity| capacity.min(length));
        self.needs.push(fits);
        fits
    }

    /// A receive with `slack` bytes more than its message needs: returns its capacity.
    fn receive(&mut self, slack: u32) -> u32 {
        let needed = self.needs.get(self.receives.len()).copied().unwrap_or(0);
        let capacity = needed.saturating_add(slack);
        self.receives.push(capacity);
        capacity
    }

    /// A tagged receive that any tagged message fits.
    fn entry(&mut self, random: &mut Random, entry: TagEntry) -> Work {
        self.entries.push(entry);
        let slack = u32::try_from(random.below(100)).unwrap_or(0);
        Work::ReceiveTagged { capacity: SHARED_MAX + slack, entry }
    }

    /// The bits of messages that no entry is left for, each one taking the first that matches.
    fn unmatched(&self) -> Vec<u64> {
        let mut entries = self.entries.clone();
        let mut unmatched = Vec::new();
        for &bits in &self.tags {
            match entries.iter().position(|entry| matches(*entry, bits)) {
                Some(at) => {
                    entries.remove(at);
                }
                None => unmatched.push(bits),
            }
        }
        unmatched
    }
}

/// Whether a message with these bits matches an entry.
pub(super) const fn matches(entry: TagEntry, bits: u64) -> bool {
    (bits ^ entry.bits) & entry.mask == 0
}

fn atomic(random: &mut Random) -> AtomicOperation {
    let operand = random.next_u64() >> random.below(64);
    match random.below(8) {
        0 => AtomicOperation::FetchAdd(operand),
        1 => AtomicOperation::CompareSwap { compare: 0, swap: operand },
        2 => AtomicOperation::Swap(operand),
        3 => AtomicOperation::Min(operand),
        4 => AtomicOperation::Max(operand),
        5 => AtomicOperation::And(operand),
        6 => AtomicOperation::Or(operand),
        _ => AtomicOperation::Xor(operand),
    }
}

/// Lengths of interest: nothing, a byte, about a packet, many packets.
fn length(random: &mut Random) -> u32 {
    let length = match random.below(8) {
        0 => 0,
        1 => 1 + random.below(8),
        2 => 1_140 + random.below(25),
        3 => 4_090 + random.below(12),
        4 => random.below(LENGTH_MAX + 1),
        _ => random.below(6_000),
    };
    u32::try_from(length).unwrap_or(0)
}

pub(super) fn pick(random: &mut Random, count: usize) -> usize {
    usize::try_from(random.below(count as u64)).unwrap_or(0)
}
