//! `--backend`: what moves the datagrams, chosen at run time.

use std::sync::OnceLock;

use clap::ValueEnum;
use metaroce_mio::{Backend, BuildError, DriverConfig};

use crate::args::BackendArgs;

/// A driver over the backend that was chosen.
pub(crate) type Driver = metaroce_mio::HostDriver<dyn Backend>;

/// The backends that there are, whether compiled in or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum BackendKind {
    /// UDP sockets by mio: every system
    #[default]
    Mio,
    /// Linux `io_uring`: fewer system calls
    Uring,
    /// Linux `AF_XDP`: past the kernel's UDP
    Xdp,
}

impl BackendKind {
    /// The name, as the command line takes it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Mio => "mio",
            Self::Uring => "uring",
            Self::Xdp => "xdp",
        }
    }
}

/// Where the filter of the backend on `AF_XDP` is attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum AttachKind {
    /// In the driver if it can, else in the stack
    #[default]
    Auto,
    /// In the driver
    Native,
    /// In the stack: every device
    Generic,
}

static CHOSEN: OnceLock<BackendArgs> = OnceLock::new();

/// Has every later [`open`] take this backend. The first call counts.
pub(crate) fn choose(arguments: BackendArgs) {
    let _ = CHOSEN.set(arguments);
}

/// The backend that was chosen.
pub(crate) fn chosen() -> BackendKind {
    CHOSEN.get().map(|arguments| arguments.backend).unwrap_or_default()
}

/// Tells the endpoint the rate of its lines, if the command line does.
pub(crate) fn tell_rate(config: &mut DriverConfig) {
    if let Some(kbps) = CHOSEN.get().and_then(|arguments| arguments.rate) {
        config.endpoint.inbound_rate_kbps = kbps;
    }
}

/// Opens a driver over the backend that was chosen.
///
/// # Errors
/// When sockets can't be opened, or the backend is not compiled in or can't work here; the text says what to do.
pub(crate) fn open(config: DriverConfig) -> Result<Box<Driver>, BuildError> {
    match chosen() {
        BackendKind::Mio => Ok(Box::new(metaroce_mio::Driver::new(config)?)),
        BackendKind::Uring => open_uring(config),
        BackendKind::Xdp => open_xdp(config),
    }
}

#[cfg(all(feature = "uring", target_os = "linux"))]
fn open_uring(config: DriverConfig) -> Result<Box<Driver>, BuildError> {
    Ok(Box::new(metaroce_uring::Driver::new(config)?))
}

#[cfg(not(all(feature = "uring", target_os = "linux")))]
fn open_uring(_config: DriverConfig) -> Result<Box<Driver>, BuildError> {
    Err(absent("io_uring", BackendKind::Uring))
}

#[cfg(all(feature = "xdp", target_os = "linux"))]
fn open_xdp(config: DriverConfig) -> Result<Box<Driver>, BuildError> {
    use metaroce::xdp::{Attach, XdpOptions};

    let chosen = CHOSEN.get().cloned().unwrap_or_default();
    let interface = chosen.interface.ok_or_else(|| {
        BuildError::Unsupported("`--backend xdp` needs `--interface IF`, one that `ip link` shows".to_owned())
    })?;
    let mut options = XdpOptions::new(interface);
    options.queue = chosen.queue;
    options.attach = match chosen.attach {
        AttachKind::Auto => Attach::Automatic,
        AttachKind::Native => Attach::Native,
        AttachKind::Generic => Attach::Generic,
    };
    Ok(Box::new(metaroce::xdp::Driver::with_options(config, vec![options])?))
}

#[cfg(not(all(feature = "xdp", target_os = "linux")))]
fn open_xdp(_config: DriverConfig) -> Result<Box<Driver>, BuildError> {
    Err(absent("AF_XDP", BackendKind::Xdp))
}

/// What a program says that was built without a backend.
#[cfg_attr(all(feature = "uring", feature = "xdp"), allow(dead_code, reason = "nothing is absent then"))]
fn absent(what: &str, kind: BackendKind) -> BuildError {
    let name = kind.name();
    BuildError::Unsupported(format!(
        "this program was built without {what}: build it with `--features {name}` on Linux, or take `--backend mio`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_command_line() {
        for kind in BackendKind::value_variants() {
            assert_eq!(BackendKind::from_str(kind.name(), false), Ok(*kind));
        }
    }

    #[test]
    fn what_is_not_compiled_in_says_what_to_do() {
        let text = absent("io_uring", BackendKind::Uring).to_string();
        assert!(text.contains("--features uring") && text.contains("--backend mio"), "{text}");
    }
}
