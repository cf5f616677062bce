//! Two drivers, connected, that take turns on one thread.

use std::time::{Duration, Instant};

use metaroce_core::CloseMode;
use metaroce_core::config::ConnectOptions;
use metaroce_core::event::{CloseReason, Completion, CompletionKind, Event, Status};
use metaroce_core::ids::{ConnectionHandle, ProtectionDomain};
use metaroce_core::region::Access;
use metaroce_core::request::{Operation, WorkRequest};
use metaroce_mio::{Backend, DriverConfig, HostDriver, OpenBackend, Region, RegionMemory};

pub const DOMAIN: ProtectionDomain = ProtectionDomain(0);
pub const V4: &str = "127.0.0.1:0";
pub const V6: &str = "[::1]:0";

/// Two drivers, connected, that take turns on this thread.
pub struct Two<B: Backend + ?Sized> {
    pub drivers: [Box<HostDriver<B>>; 2],
    pub connections: [ConnectionHandle; 2],
    pub events: [Vec<Event>; 2],
}

impl<B: OpenBackend> Two<B> {
    pub fn connect(configs: [DriverConfig; 2]) -> Self {
        Self::join(configs.map(|config| Box::new(HostDriver::<B>::new(config).expect("a driver"))))
    }
}

impl<B: Backend + ?Sized> Two<B> {
    pub fn join(drivers: [Box<HostDriver<B>>; 2]) -> Self {
        let mut drivers = drivers;
        let remote = drivers[1].local_address();
        let first = drivers[0].connect(ConnectOptions::to(remote)).expect("connecting");
        let mut two = Self { drivers, connections: [first; 2], events: [Vec::new(), Vec::new()] };
        let second = two.run(|_, events| {
            events[1].iter().find_map(|event| match event {
                Event::Incoming { connection, .. } => Some(*connection),
                _ => None,
            })
        });
        two.connections[1] = second;
        two.drivers[1].accept(second, DOMAIN, &[]).expect("accepting");
        two.run(|_, events| events.iter().all(|events| events.iter().any(is_connected)).then_some(()));
        two
    }

    /// Takes turns until `done` gives something; at most for a minute.
    pub fn run<T>(
        &mut self,
        mut done: impl FnMut(&[Box<HostDriver<B>>; 2], &[Vec<Event>; 2]) -> Option<T>,
    ) -> T {
        let start = Instant::now();
        loop {
            let mut idle = true;
            for (driver, events) in self.drivers.iter_mut().zip(&mut self.events) {
                let turn = driver.turn().expect("turned");
                events.extend(std::iter::from_fn(|| driver.poll_event()));
                idle &= !turn.more && turn.received + turn.sent == 0;
            }
            if let Some(outcome) = done(&self.drivers, &self.events) {
                return outcome;
            }
            assert!(start.elapsed() < Duration::from_mins(1), "no progress: {:#?}", self.drivers);
            if idle {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
    }

    pub fn completion(&mut self, side: usize, id: u64) -> Completion {
        self.run(|_, events| {
            events[side].iter().find_map(|event| match event {
                Event::Completion(completion) if completion.id == id => Some(*completion),
                _ => None,
            })
        })
    }

    pub fn region(&mut self, side: usize, memory: RegionMemory) -> Region {
        self.drivers[side].register_region(memory, Access::ALL, DOMAIN).expect("registered")
    }

    /// Writes `length` bytes from the first to the second, in work requests of 8 MiB, and compares them.
    pub fn write_and_verify(&mut self, length: usize) {
        // An earlier call's completion is not this one's.
        self.events.iter_mut().for_each(Vec::clear);
        let bytes = pattern(length);
        let source = self.region(0, RegionMemory::copied_from(&bytes).expect("memory"));
        let target = self.region(1, RegionMemory::zeroed(length).expect("memory"));
        let stream = self.drivers[0].open_stream(self.connections[0]).expect("a stream");
        let mut last = 0;
        for start in (0..length).step_by(8 << 20) {
            let part =
                source.segment(start as u64, u32::try_from((length - start).min(8 << 20)).expect("fits"));
            let operation = Operation::Write { remote: target.remote(start as u64), immediate: None };
            last = 1000 + start as u64;
            let request = WorkRequest::new(last, operation, std::slice::from_ref(&part));
            self.drivers[0].post(self.connections[0], stream, request).expect("posted");
        }
        let completion = self.completion(0, last);
        assert_eq!((completion.kind, completion.status), (CompletionKind::Write, Status::Success));
        let mut arrived = vec![0; length];
        self.drivers[1].copy_out(target, 0, &mut arrived).expect("inside");
        assert!(arrived == bytes, "the bytes differ");
    }

    pub fn close(&mut self) {
        self.drivers[0].close(self.connections[0], CloseMode::Drain).expect("closing");
        let reasons = self.run(|_, events| {
            let reason = |events: &Vec<Event>| {
                events.iter().find_map(|event| match event {
                    Event::Closed { reason, .. } => Some(*reason),
                    _ => None,
                })
            };
            Some([reason(&events[0])?, reason(&events[1])?])
        });
        assert_eq!(reasons, [CloseReason::Local, CloseReason::Peer]);
    }
}

fn is_connected(event: &Event) -> bool {
    matches!(event, Event::Connected { .. })
}

pub fn config(address: &str, seed: u64) -> DriverConfig {
    DriverConfig::with_seed(address.parse().expect("an address"), seed)
}

pub fn configs(address: &str, change: impl Fn(&mut DriverConfig)) -> [DriverConfig; 2] {
    [1, 2].map(|seed| {
        let mut config = config(address, seed);
        change(&mut config);
        config
    })
}

pub fn pattern(length: usize) -> Vec<u8> {
    let mut state = 1u32;
    let words = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_le_bytes()[3]
    });
    words.take(length).collect()
}
