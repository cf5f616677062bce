//! How a case ends early.

use super::port::PortError;

/// What a case ends with.
pub type Outcome<T = ()> = Result<T, Stop>;

/// Why a case ends before its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The device broke a rule.
    Failed {
        /// The requirement, `MR-…`.
        requirement: String,
        /// What was seen, and what was asked for.
        text: String,
    },
    /// The suite could not look: something is missing here.
    Skipped(String),
    /// The rule asks nothing of such a device.
    NotApplicable(String),
    /// Sockets or control channel are gone.
    Broken(String),
}

impl Stop {
    /// The device broke `requirement`.
    pub fn failed(requirement: &str, text: impl Into<String>) -> Self {
        Self::Failed { requirement: requirement.to_owned(), text: text.into() }
    }
}

impl From<PortError> for Stop {
    fn from(error: PortError) -> Self {
        match error {
            PortError::Unsupported(reason) => Self::Skipped(reason),
            PortError::Broken(reason) => Self::Broken(reason),
        }
    }
}
