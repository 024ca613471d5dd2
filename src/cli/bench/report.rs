//! What a run reports: a table for people, or the same as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use super::load::Measured;

/// A run and the server that it was made against.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// The version of this program.
    pub convoke: &'static str,
    pub started_unix_ms: u64,
    pub server: ServerSummary,
    pub settings: Settings,
    pub phases: Vec<PhaseReport>,
    /// What a reader has to know.
    pub notes: Vec<String>,
    /// Whether every check holds. If not, the figures mean nothing.
    pub ok: bool,
}

/// What the server says of itself. Kafka's protocol has no word for a version.
#[derive(Debug, Serialize)]
pub(super) struct ServerSummary {
    pub bootstrap: String,
    pub cluster_id: Option<String>,
    pub brokers: usize,
    /// Finalized features and their levels.
    pub features: BTreeMap<String, i16>,
    /// How many APIs it offers.
    pub apis: usize,
    /// The versions that the run has spoken.
    pub used: BTreeMap<&'static str, i16>,
}

/// What was asked for.
#[derive(Debug, Serialize)]
pub(super) struct Settings {
    pub seconds: u64,
    pub warmup_seconds: u64,
    pub connections: u32,
    pub depth: u32,
    pub topic_partitions: i32,
}

#[derive(Debug, Serialize)]
pub(super) struct PhaseReport {
    pub name: &'static str,
    pub groups: u32,
    /// In each group; 0 where there are none.
    pub members: u32,
    /// Of each commit, or to be assigned; 0 where it does not matter.
    pub partitions: u32,
    /// At most; 0 where everybody waits for the others.
    pub in_flight: usize,
    /// Requests a second of an open loop; latencies count from the moment at which a request was due.
    pub rate: Option<u32>,
    /// Good answers, or rounds.
    pub count: u64,
    pub per_second: f64,
    pub latency_us: Option<Latency>,
    /// Bad answers by error code, warm-up included.
    pub errors: BTreeMap<String, u64>,
    /// Requests that were due and never sent, because all that may be in flight was.
    pub unsent: u64,
    pub checks: Vec<Check>,
}

/// Microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Latency {
    pub p50: f64,
    pub p99: f64,
    pub p99_9: f64,
    pub max: f64,
    pub mean: f64,
}

#[derive(Debug, Serialize)]
pub(super) struct Check {
    pub name: &'static str,
    pub ok: bool,
    /// What is wrong.
    pub detail: String,
}

impl Check {
    /// `wrong` is told only if it is.
    pub(super) fn new(name: &'static str, ok: bool, wrong: String) -> Self {
        Self {
            name,
            ok,
            detail: if ok { String::new() } else { wrong },
        }
    }
}

impl PhaseReport {
    pub(super) fn new(name: &'static str, measured: &Measured) -> Self {
        let latency = &measured.latency;
        let us = |nanos: u64| nanos as f64 / 1e3;
        let at = |quantile| us(latency.value_at_quantile(quantile));
        let latency_us = (!latency.is_empty()).then(|| Latency {
            p50: at(0.5),
            p99: at(0.99),
            p99_9: at(0.999),
            max: us(latency.max()),
            mean: latency.mean() / 1e3,
        });
        let per_second = if measured.seconds > 0.0 {
            measured.answered as f64 / measured.seconds
        } else {
            0.0
        };
        Self {
            name,
            groups: 0,
            members: 0,
            partitions: 0,
            in_flight: 0,
            rate: None,
            count: measured.answered,
            per_second,
            latency_us,
            errors: measured.errors.clone(),
            unsent: measured.unsent,
            checks: vec![Check::new(
                "something was measured",
                measured.answered > 0,
                "nothing was; give it more --seconds".to_owned(),
            )],
        }
    }

    /// How its numbers came about.
    fn shape(&self) -> String {
        let mut parts = vec![match (self.groups, self.members) {
            (1, members) => format!("one group of {members}"),
            (groups, 0) => format!("{groups} groups without members"),
            (groups, members) => format!("{groups} groups of {members}"),
        }];
        if self.partitions > 0 {
            parts.push(format!("{} partitions", self.partitions));
        }
        match self.rate {
            Some(rate) => parts.push(format!("open loop, {rate} a second")),
            None if self.in_flight > 0 => parts.push(format!("{} in flight", self.in_flight)),
            None => {}
        }
        parts.join(", ")
    }
}

impl Report {
    /// Pretty JSON with a line end.
    pub(super) fn json(&self) -> String {
        // Strings, numbers and maps with string keys always can be written.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }

    pub(super) fn table(&self) -> String {
        let server = &self.server;
        let mut text = format!(
            "server    {}, cluster {}, {} broker{}, {} APIs\n",
            server.bootstrap,
            server.cluster_id.as_deref().unwrap_or("without an id"),
            server.brokers,
            if server.brokers == 1 { "" } else { "s" },
            server.apis,
        );
        let pairs = |name: &str, level: &i16| format!("{name} {level}");
        let features: Vec<_> = server.features.iter().map(|(n, v)| pairs(n, v)).collect();
        if !features.is_empty() {
            let _ = writeln!(text, "features  {}", features.join(", "));
        }
        let used: Vec<_> = server.used.iter().map(|(n, v)| pairs(n, v)).collect();
        let _ = writeln!(text, "spoken    {}", used.join(", "));
        let settings = &self.settings;
        let _ = writeln!(
            text,
            "load      {} connections, {} deep, {} s after {} s of warm-up\n",
            settings.connections, settings.depth, settings.seconds, settings.warmup_seconds,
        );
        let _ = writeln!(
            text,
            "{:20}{:>13}{:>10}{:>10}{:>10}{:>10}  of",
            "", "a second", "p50", "p99", "p99.9", "max"
        );
        for phase in &self.phases {
            let _ = write!(text, "{:20}{:>13}", phase.name, number(phase.per_second));
            if let Some(latency) = phase.latency_us {
                for us in [latency.p50, latency.p99, latency.p99_9, latency.max] {
                    let _ = write!(text, "{:>10}", time(us));
                }
            } else {
                let _ = write!(text, "{:>40}", "nothing measured");
            }
            let _ = writeln!(text, "  {}", phase.shape());
        }
        text.push('\n');
        for phase in &self.phases {
            self.tell_checks(&mut text, phase);
        }
        for note in &self.notes {
            let _ = writeln!(text, "note      {note}");
        }
        text
    }

    fn tell_checks(&self, text: &mut String, phase: &PhaseReport) {
        for check in &phase.checks {
            let verdict = if check.ok { "ok" } else { "FAILED" };
            let _ = write!(text, "{verdict:10}{}: {}", phase.name, check.name);
            let colon = if check.ok { "" } else { ": " };
            let _ = writeln!(text, "{colon}{}", check.detail);
        }
        for (code, count) in &phase.errors {
            let _ = writeln!(text, "{:10}{}: {count} times {code}", "seen", phase.name);
        }
        if phase.unsent > 0 {
            let _ = writeln!(
                text,
                "{:10}{}: {} requests were due and never sent; the percentiles are lower bounds",
                "seen", phase.name, phase.unsent
            );
        }
    }
}

/// A rate, with as many digits as say something.
fn number(value: f64) -> String {
    if value < 100.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.0}")
    }
}

/// Microseconds in the unit that reads well.
fn time(us: f64) -> String {
    match us {
        us if us < 1e3 => format!("{us:.0} us"),
        us if us < 1e5 => format!("{:.2} ms", us / 1e3),
        us if us < 1e6 => format!("{:.0} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_rates_read_well() {
        let times = [3.4, 999.0, 12_340.0, 123_400.0, 1_234_000.0].map(time);
        assert_eq!(times, ["3 us", "999 us", "12.34 ms", "123 ms", "1.23 s"]);
        assert_eq!([3.456, 45_678.9].map(number), ["3.46", "45679"]);
    }
}
