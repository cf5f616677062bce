//! Devices with one rule broken each: the suite has to blame that rule.
//!
//! A fault is a [`Shim`] around the honest core: it meddles with configuration, commands, packets, memory or reports, and
//! the core itself stays free of hooks.

mod behaviour;
mod copies;
mod hooks;
mod packets;
mod planes;

use super::case::Verdict;
use super::in_process::{InProcess, Shim};
use super::monitor::ALWAYS;

/// One broken rule.
#[derive(Clone, Copy)]
pub struct Fault {
    /// Its name.
    pub name: &'static str,
    /// The requirement that it breaks, and that must be blamed.
    pub breaks: &'static str,
    /// What the device does wrong.
    pub about: &'static str,
    /// The shim that does it.
    pub make: fn() -> Box<dyn Shim>,
}

impl Fault {
    const fn new(
        name: &'static str,
        breaks: &'static str,
        about: &'static str,
        make: fn() -> Box<dyn Shim>,
    ) -> Self {
        Self { name, breaks, about, make }
    }
}

/// All faults.
#[must_use]
pub fn all() -> Vec<&'static Fault> {
    [packets::FAULTS, behaviour::FAULTS, copies::FAULTS, planes::FAULTS].into_iter().flatten().collect()
}

/// How a fault fared.
#[derive(Clone, Debug)]
pub struct Hunt {
    /// The case that blamed the requirement that is broken.
    pub caught_by: Option<&'static str>,
    /// What else was blamed before: case and requirement.
    pub others: Vec<(&'static str, String)>,
}

/// Runs the cases that judge the requirement which a fault breaks, until one blames it.
///
/// # Errors
/// If the endpoint refuses its configuration.
pub fn hunt(fault: &Fault, seed: u64) -> Result<Hunt, String> {
    let mut hunt = Hunt { caught_by: None, others: Vec::new() };
    for case in super::all_cases() {
        if !ALWAYS.contains(&fault.breaks) && !case.requirements.contains(&fault.breaks) {
            continue;
        }
        let mut port = InProcess::with_shim(seed, (fault.make)())?;
        match super::run(&mut port, case, seed).verdict {
            Verdict::Failed { requirement, .. } if requirement == fault.breaks => {
                hunt.caught_by = Some(case.name);
                return Ok(hunt);
            }
            Verdict::Failed { requirement, .. } => hunt.others.push((case.name, requirement)),
            // The device behaves so wrongly that the case can't go on; another one may.
            Verdict::Broken(_) | Verdict::Passed | Verdict::Skipped(_) | Verdict::NotApplicable(_) => {}
        }
    }
    Ok(hunt)
}

/// The fault of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Fault> {
    all().into_iter().find(|fault| fault.name == name)
}
