//! Log lines: to stderr, as text for people or JSON for machines.

use std::io::IsTerminal as _;

use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

/// How to log.
#[derive(Debug, Args)]
pub(super) struct Logging {
    /// How log lines look.
    #[arg(long, value_enum, default_value = "text")]
    log_format: Format,
    /// What is logged: error, warn, info, debug, trace, or directives such as
    /// `info,convoke::group=debug`. [default: RUST_LOG, or info]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Why there can be no log.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The level is none.
    #[error(
        "{origin}={value}: {reason}; use error, warn, info, debug, trace, or directives such as info,convoke::group=debug"
    )]
    Level {
        /// The flag or the variable.
        origin: &'static str,
        /// Its value.
        value: String,
        /// Why it cannot be used.
        reason: String,
    },
}

impl Logging {
    /// Logs from here on. To be called once in a process.
    pub(super) fn start(&self) -> Result<(), Error> {
        let filter = self.filter()?;
        let lines = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr);
        // Only an embedding program could have set one already, and then it keeps its own.
        let _ = match self.log_format {
            Format::Text => lines.with_ansi(std::io::stderr().is_terminal()).try_init(),
            Format::Json => lines.json().try_init(),
        };
        Ok(())
    }

    fn filter(&self) -> Result<EnvFilter, Error> {
        let variable = || {
            std::env::var("RUST_LOG")
                .ok()
                .filter(|value| !value.is_empty())
        };
        let (origin, value) = match (&self.log_level, variable()) {
            (Some(level), _) => ("--log-level", level.clone()),
            (None, Some(level)) => ("RUST_LOG", level),
            (None, None) => ("--log-level", "info".to_owned()),
        };
        match EnvFilter::try_new(&value) {
            Ok(filter) if is_sensible(&value) => Ok(filter),
            Ok(_) => Err(Error::Level {
                origin,
                value,
                reason: "not a level".to_owned(),
            }),
            Err(error) => Err(Error::Level {
                origin,
                value,
                reason: error.to_string(),
            }),
        }
    }
}

/// A misspelt level alone reads as the name of a target, which would silence everything.
fn is_sensible(directives: &str) -> bool {
    let levels = ["off", "error", "warn", "info", "debug", "trace"];
    let known = |word: &str| levels.contains(&word.to_ascii_lowercase().as_str());
    directives.contains(['=', ',', ':', '[']) || known(directives.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_level(level: &str) -> Result<(), String> {
        let logging = Logging {
            log_format: Format::Text,
            log_level: Some(level.to_owned()),
        };
        logging
            .filter()
            .map(|_| ())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_misspelt_level_is_refused() {
        for level in [
            "info",
            "WARN",
            "info,convoke::group=debug",
            "convoke=trace",
            "off",
        ] {
            assert_eq!(with_level(level), Ok(()), "{level}");
        }
        for level in ["inof", "convoke=loud", ""] {
            let text = with_level(level).unwrap_err();
            assert!(
                text.starts_with(&format!("--log-level={level}: ")),
                "{text}"
            );
        }
    }
}
