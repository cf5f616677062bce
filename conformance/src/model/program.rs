//! Random programs: what hosts post, when, over what links and with what limits.

use metaroce_core::{AtomicOperation, Limits, TagEntry};

use super::flows::{Flows, pick};
use super::setting;
use crate::{Faults, Random};

/// A whole run: everything follows from one seed.
#[derive(Clone, Debug)]
pub struct Program {
    /// How many hosts there are.
    pub hosts: usize,
    /// The two hosts of each connection; the first connects.
    pub connections: Vec<[usize; 2]>,
    /// What is posted, in this order.
    pub steps: Vec<Step>,
    /// What streams draw on, by their number; the same at both sides of all connections.
    pub styles: Vec<Style>,
    /// A connection and stream that is reset in the end, with all that is under way on it.
    pub doomed: Option<(usize, u16)>,
    /// Tables of every host.
    pub limits: Limits,
    /// Faults of the links, until they heal.
    pub faults: Faults,
    /// How each connection ends.
    pub ending: Ending,
}

/// What the messages of a stream draw on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Its own receives; tagged messages match in the order of the stream.
    Own,
    /// The same, but tagged messages match as they arrive.
    Unordered,
    /// The shared queue of the host.
    Shared,
}

/// How the connections of a program end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// Close as soon as everything is posted, not when everything is complete.
    pub early: bool,
    /// Which sides close.
    pub by: [bool; 2],
    /// The links heal before the close, not after it.
    pub healed: bool,
}

/// One post.
#[expect(clippy::struct_excessive_bools, reason = "flags of a request")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Which connection.
    pub connection: usize,
    /// Which of its two sides.
    pub side: usize,
    /// Which stream.
    pub stream: u16,
    /// What to post.
    pub work: Work,
    /// Local segments, 1 to 4.
    pub segments: u32,
    /// Short data that is sent goes inline.
    pub inline: bool,
    /// With a fence.
    pub fence: bool,
    /// Asks for a solicited event.
    pub solicited: bool,
    /// Without a completion.
    pub unsignalled: bool,
    /// Virtual time that passes before, ns.
    pub wait_ns: u64,
}

/// Where a WRITE goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A region that is written once.
    Plain,
    /// A region with ordered tails.
    Tail,
    /// A region whose key SENDs with invalidate of the same stream and side take away.
    Window,
}

/// What a step posts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A SEND.
    Send {
        /// Bytes.
        length: u32,
        /// With it or without.
        immediate: Option<u32>,
    },
    /// A SEND that takes away the key of the window; a plain one if the key is away already.
    SendInvalidate {
        /// Bytes.
        length: u32,
    },
    /// A tagged SEND.
    SendTagged {
        /// Bytes.
        length: u32,
        /// What entries are compared with.
        bits: u64,
        /// With it or without.
        immediate: Option<u32>,
    },
    /// A WRITE.
    Write {
        /// Bytes.
        length: u32,
        /// With it or without.
        immediate: Option<u32>,
        /// Where to.
        place: Place,
    },
    /// A WRITE that then adds to the signal word of this stream and side at the peer.
    WriteSignal {
        /// Bytes.
        length: u32,
        /// Not 0.
        addend: u64,
    },
    /// A READ of the peer's source, which never changes.
    Read {
        /// Bytes.
        length: u32,
    },
    /// A READ of what the newest WRITE of the same stream and side wrote.
    ReadBack,
    /// An operation on the word of this stream and side at the peer.
    Atomic(AtomicOperation),
    /// A fetch-add on a word of the peer that all streams use.
    Count(u64),
    /// A receive.
    Receive {
        /// Bytes.
        capacity: u32,
    },
    /// A tagged receive.
    ReceiveTagged {
        /// Bytes.
        capacity: u32,
        /// What it matches.
        entry: TagEntry,
    },
    /// A receive for the shared queue of the host.
    ReceiveShared {
        /// Bytes.
        capacity: u32,
    },
    /// A datagram to the peer's queue.
    Datagram {
        /// Bytes.
        length: u32,
        /// With it or without.
        immediate: Option<u32>,
        /// With the right key and number of the queue.
        right: [bool; 2],
    },
    /// A receive for the datagrams of the host.
    ReceiveDatagram {
        /// Bytes.
        capacity: u32,
    },
    /// Resets the stream; nothing more is posted to it.
    Reset,
}

impl Work {
    /// Whether it is a request of a stream.
    pub(super) const fn is_request(self) -> bool {
        use Work::{Datagram, Receive, ReceiveDatagram, ReceiveShared, ReceiveTagged, Reset};
        !matches!(
            self,
            Receive { .. }
                | ReceiveTagged { .. }
                | ReceiveShared { .. }
                | ReceiveDatagram { .. }
                | Datagram { .. }
                | Reset
        )
    }
}

impl Program {
    /// The program of a seed.
    #[must_use]
    pub fn random(random: &mut Random) -> Self {
        let connections = match random.below(4) {
            0 => vec![[0, 1], [1, 0]],
            1 => vec![[0, 1], [0, 2], [2, 1]],
            _ => vec![[0, 1]],
        };
        let hosts = connections.iter().flatten().max().map_or(0, |last| last + 1);
        let style = |random: &mut Random| match random.below(5) {
            0 | 1 => Style::Shared,
            2 => Style::Unordered,
            _ => Style::Own,
        };
        let styles: Vec<_> = (0..=random.below(5)).map(|_| style(random)).collect();
        let doomed = random.chance(250_000).then(|| {
            let stream = u16::try_from(pick(random, styles.len())).unwrap_or(0);
            (pick(random, connections.len()), stream)
        });
        let mut program = Self {
            hosts,
            limits: setting::limits(random),
            faults: setting::faults(random),
            ending: setting::ending(random),
            steps: Vec::new(),
            styles,
            doomed,
            connections,
        };
        // So many CLOSEs in a row may be lost that the connection counts as failed.
        let Faults { loss, corruption, truncation, .. } = program.faults;
        program.ending.healed |= loss + corruption + truncation > 100_000;
        program.add_steps(random);
        program
    }

    fn add_steps(&mut self, random: &mut Random) {
        let count = 4 + random.below(56);
        let sparse = random.chance(300_000);
        let mut flows = Flows::new(self.connections.clone(), self.styles.clone(), self.doomed);
        let mut reset = false;
        for number in 0..count {
            let connection = pick(random, self.connections.len());
            let side = pick(random, 2);
            let stream = u16::try_from(pick(random, self.styles.len())).unwrap_or(0);
            if self.doomed == Some((connection, stream)) {
                if reset {
                    continue;
                }
                if number > count / 2 {
                    reset = true;
                    self.push(random, [connection, side], stream, Work::Reset, sparse);
                    continue;
                }
            }
            let work = flows.next_work(random, [connection, side, usize::from(stream)]);
            self.push(random, [connection, side], stream, work, sparse);
        }
        // Every message that needs a receive gets one in the end, and now and then one more is posted.
        let doomed = self.doomed.map(|(connection, stream)| (connection, usize::from(stream)));
        for ([connection, side, stream], work) in flows.missing(random) {
            let own = !matches!(work, Work::ReceiveShared { .. });
            if own && reset && doomed == Some((connection, stream)) {
                continue;
            }
            let stream = u16::try_from(stream).unwrap_or(0);
            self.push(random, [connection, side], stream, work, sparse);
        }
    }

    fn push(
        &mut self,
        random: &mut Random,
        [connection, side]: [usize; 2],
        stream: u16,
        work: Work,
        sparse: bool,
    ) {
        let wait_ns = match random.below(if sparse { 3 } else { 10 }) {
            0 => random.below(200_000),
            1 if sparse => random.below(20_000_000),
            _ => 0,
        };
        let one_segment = matches!(work, Work::Atomic(_) | Work::Count(_));
        let segments = if one_segment { 1 } else { 1 + u32::try_from(random.below(4)).unwrap_or(0) };
        let request = work.is_request();
        self.steps.push(Step {
            connection,
            side,
            stream,
            work,
            segments,
            inline: random.chance(500_000),
            fence: request && random.chance(100_000),
            solicited: request && random.chance(300_000),
            unsignalled: request && random.chance(100_000),
            wait_ns,
        });
    }
}
