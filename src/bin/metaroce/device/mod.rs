//! `serve --control`: a device under test for the compliance suite, with the backend that the command line names.
//!
//! The commands are those of `conformance/CONTROL.md`; the interpreter is that of the suite, so that its in-process device
//! and this one understand the same.

mod channel;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use metaroce::{Access, Endpoint, Event, HeapStorage, Instant, ProtectionDomain, RegionId, RegisteredRegion};
use metaroce_conformance::suite::DEVICE_LIMITS;
use metaroce_conformance::suite::control::{Backend, Interpreter, Settings};
use metaroce_mio::{DriverConfig, Region, RegionMemory};
use serde_json::json;

use self::channel::Channel;
use crate::args::OutputArgs;
use crate::reactor::Reactor;
use crate::{backend, interrupt, net};

/// Serves one suite after another until Ctrl-C.
///
/// # Errors
/// When an address can't be used, or the sockets fail.
pub(crate) fn serve(
    listen: &str,
    planes: &[String],
    control: &str,
    output: OutputArgs,
) -> anyhow::Result<()> {
    let listen = net::resolve(listen)?;
    let planes = net::planes(planes, listen.port())?;
    let mut config = DriverConfig::new(listen)?;
    config.limits = DEVICE_LIMITS;
    let reactor = Reactor::new(config)?;
    let address = reactor.driver.local_address();
    let mut device = Device { reactor: Some(reactor), address, planes, regions: BTreeMap::new() };
    let channel = Channel::open(control)?;
    announce(address, channel.address(), output);
    let mut interpreter = Interpreter::default();
    while !interrupt::requested() {
        let Some(reactor) = &mut device.reactor else {
            anyhow::bail!("the device could not be started anew")
        };
        channel.wakes(reactor.waker());
        reactor.turn()?;
        let asked = channel.next();
        match asked {
            Some(asked) => {
                let answer = interpreter.execute(&mut device, &asked.command);
                asked.answer(answer);
            }
            None => reactor.sleep(NAP)?,
        }
    }
    Ok(())
}

fn announce(address: SocketAddr, control: SocketAddr, output: OutputArgs) {
    let mut out = std::io::stdout().lock();
    let line = if output.json {
        json!({ "listening": address.to_string(), "control": control.to_string() }).to_string()
    } else {
        format!("device under test on UDP {address}, control channel on TCP {control}, Ctrl-C ends it")
    };
    // Nobody reads it any more: serving goes on.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

struct Device {
    /// `None` only if a restart failed.
    reactor: Option<Reactor>,
    address: SocketAddr,
    /// Those that the command line names.
    planes: Vec<SocketAddr>,
    regions: BTreeMap<RegionId, Region>,
}

impl Device {
    fn reactor(&mut self) -> Result<&mut Reactor, String> {
        self.reactor.as_mut().ok_or_else(|| GONE.to_owned())
    }

    /// Addresses of `count` planes but the first: those of the command line, or, on loopback, those that follow.
    fn further_planes(&self, count: u8) -> Result<Vec<SocketAddr>, String> {
        let wanted = usize::from(count.saturating_sub(1));
        if wanted <= self.planes.len() {
            return Ok(self.planes.iter().take(wanted).copied().collect());
        }
        match self.address {
            SocketAddr::V4(address) if address.ip().is_loopback() => {
                let first = u32::from(*address.ip());
                let ip = |plane: u8| Ipv4Addr::from(first.saturating_add(u32::from(plane)));
                Ok((1..count).map(|plane| SocketAddr::from((ip(plane), address.port()))).collect())
            }
            _ => Err(format!("{count} planes: start it with --plane for each further one")),
        }
    }

    fn region(&self, region: RegionId) -> Result<Region, String> {
        self.regions.get(&region).copied().ok_or_else(|| "no such region".to_owned())
    }
}

impl Backend for Device {
    fn name(&self) -> String {
        format!("metaroce {}, backend {}", env!("CARGO_PKG_VERSION"), backend::chosen().name())
    }

    fn address(&self) -> SocketAddr {
        self.address
    }

    fn restart(&mut self, settings: &Settings) -> Result<(), String> {
        let mut config = DriverConfig::new(self.address).map_err(|error| error.to_string())?;
        config.limits = DEVICE_LIMITS;
        backend::tell_rate(&mut config);
        settings.apply(&mut config.endpoint, &mut config.limits);
        config.local.extend(self.further_planes(settings.planes.unwrap_or(1))?);
        // One packet at a time, as on a wire: bursts of one path would hide how the paths are chosen.
        config.burst_packets = Some(1);
        // Refused before anything is given up.
        Endpoint::new(config.endpoint, HeapStorage::new(&config.limits))
            .map_err(|error| error.to_string())?;
        // The old sockets have to be closed first: the new ones take their address.
        self.reactor = None;
        self.regions.clear();
        self.reactor = Some(Reactor::new(config).map_err(|error| format!("{error:#}"))?);
        Ok(())
    }

    fn endpoint(&mut self) -> Result<&mut Endpoint<HeapStorage>, String> {
        Ok(self.reactor()?.driver.endpoint_mut())
    }

    fn now(&self) -> Instant {
        self.reactor.as_ref().map_or(Instant::from_nanos(0), |reactor| reactor.driver.now())
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.reactor.as_mut()?.poll_event()
    }

    fn register(
        &mut self,
        length: u32,
        base: u64,
        access: Access,
        domain: ProtectionDomain,
    ) -> Result<RegisteredRegion, String> {
        let memory = RegionMemory::zeroed(length as usize).map_err(|error| error.to_string())?;
        let region = self.reactor()?.driver.register_region_at(memory, base, access, domain);
        let region = region.map_err(|error| error.to_string())?;
        self.regions.insert(region.id(), region);
        Ok(RegisteredRegion { id: region.id(), key: region.key() })
    }

    fn deregister(&mut self, region: RegionId) -> Result<(), String> {
        let known = self.region(region)?;
        self.reactor()?.driver.deregister_region(known).map_err(|error| error.to_string())?;
        self.regions.remove(&region);
        Ok(())
    }

    fn read(&self, region: RegionId, offset: u64, length: usize) -> Result<Vec<u8>, String> {
        let region = self.region(region)?;
        if region.len() < offset.saturating_add(length as u64) {
            return Err(PAST_END.to_owned());
        }
        let mut bytes = vec![0; length];
        let reactor = self.reactor.as_ref().ok_or_else(|| GONE.to_owned())?;
        reactor.driver.copy_out(region, offset, &mut bytes).map_err(|_| PAST_END.to_owned())?;
        Ok(bytes)
    }

    fn write(&mut self, region: RegionId, offset: u64, bytes: &[u8]) -> Result<(), String> {
        let region = self.region(region)?;
        self.reactor()?.driver.copy_in(region, offset, bytes).map_err(|_| PAST_END.to_owned())
    }
}

/// How long the loop sleeps at most before it looks for Ctrl-C.
const NAP: Duration = Duration::from_millis(100);

const GONE: &str = "the device could not be started anew";
const PAST_END: &str = "past the end of the region";
