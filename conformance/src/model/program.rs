//! Random programs: what hosts post, when, over what links and with what limits.

use metaroce_core::{AtomicOperation, Config, Limits};

use crate::{Faults, Outage, Random};

/// Longest message, bytes.
const LENGTH_MAX: u64 = 64 << 10;

/// A whole run: everything follows from one seed.
#[derive(Clone, Debug)]
pub struct Program {
    /// How many hosts there are.
    pub hosts: usize,
    /// The two hosts of each connection; the first connects.
    pub connections: Vec<[usize; 2]>,
    /// What is posted, in this order.
    pub steps: Vec<Step>,
    /// Tables of every host.
    pub limits: Limits,
    /// Faults of the links, until they heal.
    pub faults: Faults,
    /// What falls silent for a while, counted from when the connections are open.
    pub outage: Option<Outage>,
    /// How each connection ends.
    pub ending: Ending,
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
    /// With a fence.
    pub fence: bool,
    /// Without a completion.
    pub unsignalled: bool,
    /// Virtual time that passes before, ns.
    pub wait_ns: u64,
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
    /// A WRITE.
    Write {
        /// Bytes.
        length: u32,
        /// With it or without.
        immediate: Option<u32>,
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
        let mut program = Self {
            hosts,
            limits: limits(random),
            faults: faults(random),
            outage: random.chance(300_000).then(|| outage(random, hosts)),
            ending: ending(random),
            steps: Vec::new(),
            connections,
        };
        // So many CLOSEs in a row may be lost that the connection counts as failed.
        let Faults { loss, corruption, truncation, .. } = program.faults;
        program.ending.healed |= loss + corruption + truncation > 100_000 || program.outage.is_some();
        program.add_steps(random);
        program
    }

    fn add_steps(&mut self, random: &mut Random) {
        let count = 4 + random.below(56);
        let streams = 1 + random.below(5);
        let sparse = random.chance(300_000);
        let mut flows = Flows::default();
        for _ in 0..count {
            let connection = pick(random, self.connections.len());
            let side = pick(random, 2);
            let stream = u16::try_from(random.below(streams)).unwrap_or(0);
            let work = flows.next_work(random, [connection, side, usize::from(stream)]);
            self.push(random, [connection, side], stream, work, sparse);
        }
        // Every message that needs a receive gets one in the end, and now and then one more is posted.
        for ([connection, side, stream], capacity) in flows.missing(random) {
            let stream = u16::try_from(stream).unwrap_or(0);
            self.push(random, [connection, side], stream, Work::Receive { capacity }, sparse);
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
        let receive = matches!(work, Work::Receive { .. });
        self.steps.push(Step {
            connection,
            side,
            stream,
            work,
            segments,
            fence: !receive && random.chance(100_000),
            unsignalled: !receive && random.chance(100_000),
            wait_ns,
        });
    }
}

/// What is on its way on each stream of each side of each connection.
#[derive(Default)]
struct Flows {
    flows: std::collections::BTreeMap<[usize; 3], Flow>,
}

/// Messages of one side that need a receive, and receives of the other, by index: the longest message that fits.
#[derive(Default)]
struct Flow {
    needs: Vec<u32>,
    receives: Vec<u32>,
    wrote: bool,
}

impl Flows {
    fn flow(&mut self, key: [usize; 3]) -> &mut Flow {
        self.flows.entry(key).or_default()
    }

    fn next_work(&mut self, random: &mut Random, key: [usize; 3]) -> Work {
        let [connection, side, stream] = key;
        let length = length(random);
        let immediate = random.chance(400_000).then(|| u32::try_from(random.below(1 << 32)).unwrap_or(7));
        match random.below(10) {
            0..=2 => Work::Send { length: self.flow(key).need(length), immediate },
            3 | 4 => {
                let flow = self.flow(key);
                flow.wrote = true;
                if immediate.is_some() {
                    flow.need(0);
                }
                Work::Write { length, immediate }
            }
            5 => Work::Read { length },
            6 if self.flow(key).wrote => Work::ReadBack,
            6 | 7 => Work::Atomic(atomic(random)),
            8 => Work::Count(1 + random.below(5)),
            _ => {
                let capacity = self.flow([connection, 1 - side, stream]).receive(length);
                Work::Receive { capacity }
            }
        }
    }

    /// Receives that are still to be posted, on the side that receives.
    fn missing(&mut self, random: &mut Random) -> Vec<([usize; 3], u32)> {
        let mut missing = Vec::new();
        for ([connection, side, stream], flow) in &mut self.flows {
            let extra = usize::from(random.chance(200_000));
            while flow.receives.len() < flow.needs.len() + extra {
                let slack = u32::try_from(random.below(100)).unwrap_or(0);
                missing.push(([*connection, 1 - side, *stream], flow.receive(slack)));
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
}

/// A configuration of one host: what the defaults leave to chance is set by it.
#[must_use]
pub fn config(random: &mut Random) -> Config {
    let mut config = Config {
        rto_ns_min: 200_000,
        pto_ns_min: 100_000,
        rtt_ns_initial: 50_000,
        ..Config::sockets(random.next_u64())
    };
    let mut choose = |values: &[u32]| {
        let at = pick(random, values.len());
        values.get(at).copied().unwrap_or(1)
    };
    config.initial_credits = choose(&[1, 2, 16]);
    config.message_window = choose(&[2, 8, 1024]);
    config.window_bytes_max = choose(&[9_000, 64 << 10, 4 << 20]);
    config.mtu_bytes = u16::try_from(choose(&[1_232, 1_500, 4_176])).unwrap_or(1_232);
    config.reads_granted = u16::try_from(choose(&[1, 3, 64])).unwrap_or(1);
    config.burst_packets = u8::try_from(choose(&[1, 1, 8])).unwrap_or(1);
    config.ack_packets = u8::try_from(choose(&[1, 8, 64])).unwrap_or(1);
    config.reorder_tolerance = u8::try_from(choose(&[0, 3, 32])).unwrap_or(3);
    config.paths_per_plane = u8::try_from(choose(&[1, 2, 8])).unwrap_or(1);
    config.checksum_wanted = true;
    config
}

fn limits(random: &mut Random) -> Limits {
    let small = random.chance(500_000);
    let choose = |random: &mut Random, few: u32, many: u32| if random.chance(500_000) { few } else { many };
    Limits {
        connections: 4,
        paths_per_connection: 8,
        streams: 32,
        requests: 128,
        receives: 96,
        messages: if small { choose(random, 8, 40) } else { 256 },
        packets: if small { choose(random, 16, 64) } else { 2048 },
        regions: 8,
        queues: 1,
        csn_window: if small { choose(random, 64, 128) } else { 1024 },
    }
}

/// Each kind of fault is on or off: one that is always on can hide what another shows.
fn faults(random: &mut Random) -> Faults {
    let worst = if random.chance(200_000) { 200_000 } else { 30_000 };
    let mut rate = || {
        let on = random.chance(500_000);
        let rate = u32::try_from(random.below(worst)).unwrap_or(0);
        if on { rate } else { 0 }
    };
    let (loss, duplication, reordering) = (rate(), rate(), rate());
    let (corruption, truncation, marking) = (rate(), rate(), rate());
    Faults {
        loss,
        duplication,
        reordering,
        corruption,
        truncation,
        marking,
        reorder_ns: 1 << (10 + random.below(12)),
        delay_ns: 1 << (8 + random.below(12)),
        byte_ps: 1 << (6 + random.below(8)),
    }
}

fn outage(random: &mut Random, hosts: usize) -> Outage {
    let paths = match random.below(3) {
        0 => u64::MAX,
        1 => 1 << random.below(8),
        _ => random.next_u64(),
    };
    Outage {
        host: pick(random, hosts),
        paths,
        start_ns: random.below(5_000_000),
        span_ns: 1 << (14 + random.below(12)),
    }
}

fn ending(random: &mut Random) -> Ending {
    let by = match random.below(3) {
        0 => [true, false],
        1 => [false, true],
        _ => [true, true],
    };
    Ending { early: random.chance(300_000), by, healed: random.chance(500_000) }
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

fn pick(random: &mut Random, count: usize) -> usize {
    usize::try_from(random.below(count as u64)).unwrap_or(0)
}
