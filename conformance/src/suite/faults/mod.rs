//! Devices with one rule broken each: the suite has to blame that rule.

use super::in_process::Shim;

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

/// All faults.
#[must_use]
pub fn all() -> Vec<&'static Fault> {
    Vec::new()
}

/// The fault of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Fault> {
    all().into_iter().find(|fault| fault.name == name)
}
