//! Every metric once: its name, labels, unit and help; the handles that other rooms write to; the
//! text that `/metrics` shows. Each server has a recorder of its own, so that two in one process do
//! not mix. Kafka's group-coordinator metrics have Kafka's names with `convoke_` in front; times are
//! in seconds, as Prometheus wants them. Serving the text is not done here.
#![expect(
    clippy::disallowed_methods,
    reason = "latencies are measured with the monotonic clock"
)]

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use dashmap::DashMap;
use kafka_protocol::error::ResponseError;
use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{
    Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};

use super::errors::each_error;
use crate::group::Noted;
use crate::group::stats::{Cause, Census, Stats};
use crate::wire;
use crate::wire::api::{APIS, Api};

/// The kind of a metric, as Prometheus names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows; begins at 0 with the process.
    Counter,
    /// A value of this moment.
    Gauge,
    /// A distribution in buckets.
    Histogram,
}

/// What is known about one metric.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    /// Its name. Seconds, bytes and totals are told by the end.
    pub name: &'static str,
    /// Its kind.
    pub kind: MetricKind,
    /// Its labels.
    pub labels: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
    /// Upper bounds of the buckets; empty unless it is a histogram.
    buckets: &'static [f64],
}

/// Seconds, from the shortest request to one that waits for members.
const SECONDS: &[f64] = &[
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 30.0, 60.0, 300.0,
];
/// Bytes of a batch.
const BYTES: &[f64] = &[
    256.0,
    1024.0,
    4096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
];
/// Members of a batch.
const COUNTS: &[f64] = &[
    1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 4096.0, 16_384.0,
];

const METADATA: Metadata<'static> = Metadata::new("convoke", Level::INFO, None);

/// A handle that can be registered.
trait Instrument: Clone {
    const KIND: MetricKind;

    fn register(recorder: &PrometheusRecorder, key: &Key) -> Self;
}

impl Instrument for Counter {
    const KIND: MetricKind = MetricKind::Counter;

    fn register(recorder: &PrometheusRecorder, key: &Key) -> Self {
        recorder.register_counter(key, &METADATA)
    }
}

impl Instrument for Gauge {
    const KIND: MetricKind = MetricKind::Gauge;

    fn register(recorder: &PrometheusRecorder, key: &Key) -> Self {
        recorder.register_gauge(key, &METADATA)
    }
}

impl Instrument for Histogram {
    const KIND: MetricKind = MetricKind::Histogram;

    fn register(recorder: &PrometheusRecorder, key: &Key) -> Self {
        recorder.register_histogram(key, &METADATA)
    }
}

type Labels = Vec<Cow<'static, str>>;

/// One metric with labels. A combination of labels shows up once it has been asked for.
pub struct Family<T> {
    recorder: Arc<PrometheusRecorder>,
    metric: &'static Metric,
    handles: Mutex<BTreeMap<Labels, T>>,
}

impl<T> std::fmt::Debug for Family<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Family")
            .field("metric", &self.metric.name)
            .finish_non_exhaustive()
    }
}

#[expect(
    private_bounds,
    reason = "only counters, gauges and histograms come in families"
)]
impl<T: Instrument> Family<T> {
    /// The handle for these label values, in the order of the metric's labels. Keep it where it is
    /// used often. Values must come from a bounded set: each is kept for good.
    pub fn get(&self, values: &[&'static str]) -> T {
        self.with(values.iter().map(|value| Cow::Borrowed(*value)).collect())
    }

    fn with(&self, values: Labels) -> T {
        debug_assert_eq!(
            values.len(),
            self.metric.labels.len(),
            "{}",
            self.metric.name
        );
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = handles.get(&values) {
            return handle.clone();
        }
        let names = self.metric.labels.iter();
        let labels: Vec<_> = names
            .zip(&values)
            .map(|(name, value)| Label::new(*name, value.clone()))
            .collect();
        let handle = T::register(&self.recorder, &Key::from_parts(self.metric.name, labels));
        handles.insert(values, handle.clone());
        handle
    }
}

macro_rules! metrics {
    (
        plain { $($plain:ident: $plain_type:ty = $plain_name:literal, $plain_buckets:expr, $plain_help:literal;)+ }
        families { $($family:ident: $family_type:ty = $family_name:literal, $labels:expr, $family_buckets:expr, $family_help:literal;)+ }
    ) => {
        /// Every metric, in the order of the documentation.
        pub static METRICS: &[Metric] = &[
            $(Metric {
                name: $plain_name,
                kind: <$plain_type as Instrument>::KIND,
                labels: &[],
                help: $plain_help,
                buckets: $plain_buckets,
            },)+
            $(Metric {
                name: $family_name,
                kind: <$family_type as Instrument>::KIND,
                labels: &$labels,
                help: $family_help,
                buckets: $family_buckets,
            },)+
        ];

        /// The handles of one server's metrics. Writing to one is an atomic operation or two.
        #[derive(Debug)]
        pub struct Metrics {
            $(#[doc = $plain_help] pub $plain: $plain_type,)+
            $(#[doc = $family_help] pub $family: Family<$family_type>,)+
            prometheus: PrometheusHandle,
            started: Instant,
            apis: Box<[ApiHandles]>,
            errors: DashMap<(i16, i16), Counter>,
        }

        impl Metrics {
            fn build(recorder: PrometheusRecorder) -> Self {
                let recorder = Arc::new(recorder);
                Self {
                    $($plain: <$plain_type as Instrument>::register(
                        &recorder,
                        &Key::from_static_name($plain_name),
                    ),)+
                    $($family: Family {
                        recorder: recorder.clone(),
                        metric: metric($family_name),
                        handles: Mutex::default(),
                    },)+
                    prometheus: recorder.handle(),
                    started: Instant::now(),
                    apis: ApiHandles::all(),
                    errors: DashMap::new(),
                }
            }
        }
    };
}

const NO: &[f64] = &[];

metrics! {
    plain {
        offset_count: Gauge = "convoke_offset_count", NO, "Committed offsets held.";
        offsets_expiring: Gauge = "convoke_offsets_expiring", NO, "Committed offsets that expire within a day if nobody comes back, as of when offsets were last looked through.";
        member_count: Gauge = "convoke_member_count", NO, "Members of all groups.";
        offset_commits: Counter = "convoke_offset_commits_total", NO, "Offsets committed, counted by partition.";
        offset_expirations: Counter = "convoke_offset_expirations_total", NO, "Offsets that expired.";
        offset_deletions: Counter = "convoke_offset_deletions_total", NO, "Offsets deleted by OffsetDelete.";
        classic_completed_rebalances: Counter = "convoke_classic_completed_rebalances_total", NO, "Generations of classic groups that became Stable.";
        consumer_group_rebalances: Counter = "convoke_consumer_group_rebalances_total", NO, "Rises of consumer groups' epochs.";
        event_queue_size: Gauge = "convoke_event_queue_size", NO, "Requests and events that wait in the shards' mailboxes when somebody looks.";
        event_queue_seconds: Histogram = "convoke_event_queue_seconds", SECONDS, "Time in a shard's mailbox, of one event for each shard and look.";
        event_processing_seconds: Histogram = "convoke_event_processing_seconds", SECONDS, "Time a coordinator took for one batch of events.";
        event_batch_size: Histogram = "convoke_event_batch_size", COUNTS, "Events a shard took from its mailbox at once.";
        event_purgatory_seconds: Histogram = "convoke_event_purgatory_seconds", SECONDS, "Time replies waited for their records to be durable.";
        shard_load_seconds: Histogram = "convoke_shard_load_seconds", SECONDS, "Time to load the group log into the shards, or one shard anew.";
        log_append_seconds: Histogram = "convoke_log_append_seconds", SECONDS, "Time to write one batch to the group log, without its sync.";
        log_sync_seconds: Histogram = "convoke_log_sync_seconds", SECONDS, "Time of one sync of the group log.";
        log_batch_frames: Histogram = "convoke_log_batch_frames", COUNTS, "Batches of records, one for each batch of a shard, that became durable with one sync.";
        log_batch_bytes: Histogram = "convoke_log_batch_bytes", BYTES, "Bytes that became durable with one sync.";
        log_bytes: Gauge = "convoke_log_bytes", NO, "Bytes of the group log on disk.";
        log_segments: Gauge = "convoke_log_segments", NO, "Files of the group log.";
        request_bytes_in_flight: Gauge = "convoke_request_bytes_in_flight", NO, "Bytes of requests in memory, as queued.max.request.bytes limits them.";
        reply_bytes_in_flight: Gauge = "convoke_reply_bytes_in_flight", NO, "Bytes of large replies in memory, as convoke.queued.max.reply.bytes limits them.";
        journal_dropped: Counter = "convoke_journal_dropped_total", NO, "Entries that are not in the journal's file because the disk was too slow for them.";
        group_memory_bytes: Gauge = "convoke_group_memory_bytes", NO, "Bytes that groups keep in memory, about, as convoke.group.memory.max.bytes limits them.";
        connections: Gauge = "convoke_connections", NO, "Open connections of clients.";
        connections_accepted: Counter = "convoke_connections_accepted_total", NO, "Connections that were let in.";
        received_bytes: Counter = "convoke_received_bytes_total", NO, "Bytes of requests that came in.";
        sent_bytes: Counter = "convoke_sent_bytes_total", NO, "Bytes of replies that went out.";
        topics: Gauge = "convoke_topics", NO, "Topics.";
        partitions: Gauge = "convoke_partitions", NO, "Partitions of all topics.";
        topic_data_bytes: Gauge = "convoke_topic_data_bytes", NO, "Bytes of topic data on disk.";
        produced_bytes: Counter = "convoke_produced_bytes_total", NO, "Bytes of batches that Produce appended.";
        produced_records: Counter = "convoke_produced_records_total", NO, "Records that Produce appended.";
        fetched_bytes: Counter = "convoke_fetched_bytes_total", NO, "Bytes of batches that Fetch handed out.";
        ready: Gauge = "convoke_ready", NO, "1 once everything is loaded and clients are served.";
    }
    families {
        group_count: Gauge = "convoke_group_count", ["protocol"], NO, "Groups by protocol.";
        classic_group_count: Gauge = "convoke_classic_group_count", ["state"], NO, "Classic groups by state.";
        consumer_group_count: Gauge = "convoke_consumer_group_count", ["state"], NO, "Consumer groups by state.";
        rebalances: Counter = "convoke_rebalances_total", ["cause"], NO, "Rebalances begun, by cause.";
        rebalance_seconds: Histogram = "convoke_rebalance_seconds", ["protocol"], SECONDS, "How long rebalances took, from what began them until every member had its assignment.";
        shards: Gauge = "convoke_shards", ["state"], NO, "Shards by state: loading, active, failed.";
        requests: Counter = "convoke_requests_total", ["api", "version"], NO, "Requests answered.";
        request_errors: Counter = "convoke_request_errors_total", ["api", "error"], NO, "Errors in replies. A reply may name several; each counts, as in Kafka.";
        request_seconds: Histogram = "convoke_request_seconds", ["api"], SECONDS, "Time from a request to its reply. Waiting that the protocol asks for (JoinGroup, SyncGroup, Fetch) is in it.";
        connections_refused: Counter = "convoke_connections_refused_total", ["reason"], NO, "Connections closed on arrival: max_connections, max_connections_per_ip.";
        connections_closed: Counter = "convoke_connections_closed_total", ["reason"], NO, "Connections closed for a fault of the client's: broken frames, requests that are not served, idling, slowness.";
        build: Gauge = "convoke_build_info", ["version"], NO, "Always 1; the label tells the version.";
    }
}

fn metric(name: &str) -> &'static Metric {
    METRICS
        .iter()
        .find(|metric| metric.name == name)
        .expect("the macro writes each name twice")
}

/// What one API writes to, registered when it is first asked for.
#[derive(Debug, Default)]
struct ApiHandles {
    /// By version, from the API's lowest.
    requests: Box<[OnceLock<Counter>]>,
    seconds: OnceLock<Histogram>,
}

impl ApiHandles {
    /// By API key, so that finding one is an index.
    fn all() -> Box<[Self]> {
        let mut all = Vec::new();
        for api in APIS {
            let at = usize::try_from(api.key).expect("keys of the table are not negative");
            let versions = usize::try_from(api.max - api.min).map_or(0, |span| span + 1);
            all.resize_with(all.len().max(at + 1), Self::default);
            all[at].requests = std::iter::repeat_with(OnceLock::new)
                .take(versions)
                .collect();
        }
        all.into_boxed_slice()
    }
}

impl Metrics {
    /// A recorder and its handles, with every help text in place.
    pub fn new() -> Self {
        let mut builder = PrometheusBuilder::new();
        for metric in METRICS.iter().filter(|metric| !metric.buckets.is_empty()) {
            builder = builder
                .set_buckets_for_metric(Matcher::Full(metric.name.to_owned()), metric.buckets)
                .expect("the buckets are not empty");
        }
        let recorder = builder.build_recorder();
        for metric in METRICS {
            let (name, help) = (metric.name.into(), metric.help.into());
            match metric.kind {
                MetricKind::Counter => recorder.describe_counter(name, None, help),
                MetricKind::Gauge => recorder.describe_gauge(name, None, help),
                MetricKind::Histogram => recorder.describe_histogram(name, None, help),
            }
        }
        let metrics = Self::build(recorder);
        metrics.build.get(&[env!("CARGO_PKG_VERSION")]).set(1.0);
        metrics
    }

    /// All metrics in Prometheus' text format.
    pub fn render(&self) -> String {
        self.prometheus.render()
    }

    /// Moves what histograms have gathered into their buckets. Until then each value takes eight
    /// bytes, so the server calls this every second.
    pub fn upkeep(&self) {
        self.prometheus.run_upkeep();
    }

    /// Microseconds since the metrics were made.
    pub fn now_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// A request was answered, or needed no answer.
    pub fn answered(&self, header: &wire::Header, started_us: u64, reply: Option<&wire::Reply>) {
        let api = header.api;
        if let Some(handles) = usize::try_from(api.key)
            .ok()
            .and_then(|key| self.apis.get(key))
        {
            self.count(api, handles, header.api_version);
            let seconds = handles
                .seconds
                .get_or_init(|| self.request_seconds.get(&[api.name]));
            let took_us = self.now_us().saturating_sub(started_us);
            seconds.record(Duration::from_micros(took_us));
        }
        if let Some(reply) = reply {
            each_error(reply, |code| self.failed(api, code));
        }
    }

    fn count(&self, api: &'static Api, handles: &ApiHandles, version: i16) {
        let at = usize::try_from(version - api.min).unwrap_or(usize::MAX);
        let register = || {
            self.requests
                .with(vec![api.name.into(), version.to_string().into()])
        };
        // ApiVersions is answered in versions that are not served, too.
        match handles.requests.get(at) {
            Some(counter) => counter.get_or_init(register).increment(1),
            None => self.requests.get(&[api.name, "other"]).increment(1),
        }
    }

    fn failed(&self, api: &'static Api, code: i16) {
        if let Some(counter) = self.errors.get(&(api.key, code)) {
            counter.increment(1);
            return;
        }
        let counter = self
            .request_errors
            .with(vec![api.name.into(), error_name(code).into()]);
        counter.increment(1);
        self.errors.insert((api.key, code), counter);
    }

    /// Takes what a journal has finished.
    pub(crate) fn noted(&self, noted: &Noted) {
        if let Noted::Rebalance {
            kind, rebalance, ..
        } = noted
            && rebalance.outcome == "completed"
            && let Some(ended_at) = rebalance.ended_at
        {
            let took_ms = ended_at.since(rebalance.began_at);
            let took = Duration::from_millis(u64::try_from(took_ms).unwrap_or(0));
            self.rebalance_seconds.get(&[*kind]).record(took);
        }
    }

    /// Takes what a coordinator has done since `before`.
    pub fn stats(&self, before: &Stats, now: &Stats) {
        let grow = |counter: &Counter, before: u64, now: u64| {
            // A coordinator that was loaded anew begins at 0 again.
            counter.increment(now.checked_sub(before).unwrap_or(now));
        };
        grow(
            &self.offset_commits,
            before.offset_commits,
            now.offset_commits,
        );
        grow(
            &self.offset_expirations,
            before.offset_expirations,
            now.offset_expirations,
        );
        grow(
            &self.offset_deletions,
            before.offset_deletions,
            now.offset_deletions,
        );
        let completed = &self.classic_completed_rebalances;
        grow(
            completed,
            before.classic_completed_rebalances,
            now.classic_completed_rebalances,
        );
        grow(
            &self.consumer_group_rebalances,
            before.consumer_rebalances,
            now.consumer_rebalances,
        );
        for cause in Cause::ALL {
            let at = cause as usize;
            if now.rebalances[at] != before.rebalances[at] {
                let counter = self.rebalances.get(&[cause.name()]);
                grow(&counter, before.rebalances[at], now.rebalances[at]);
            }
        }
    }

    /// Shows how many groups, members and offsets all shards hold together.
    pub fn census(&self, all: &Census) {
        self.offset_count.set(float(all.offsets));
        self.offsets_expiring.set(float(all.offsets_expiring));
        self.member_count.set(float(all.members));
        for (protocol, counts, states, by_state) in [
            (
                "classic",
                &all.classic,
                Census::CLASSIC_STATES,
                &self.classic_group_count,
            ),
            (
                "consumer",
                &all.consumer,
                Census::CONSUMER_STATES,
                &self.consumer_group_count,
            ),
        ] {
            self.group_count
                .get(&[protocol])
                .set(float(counts.iter().sum()));
            for (state, count) in states.into_iter().zip(counts) {
                by_state.get(&[state]).set(float(*count));
            }
        }
    }

    /// A connection ended for a reason that is the client's.
    pub fn connection_closed(&self, reason: &'static str) {
        self.connections_closed.get(&[reason]).increment(1);
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

/// Counts are far below the 2^53 from which a float would round.
fn float(count: u64) -> f64 {
    count as f64
}

/// Kafka's name of an error code: `UNKNOWN_MEMBER_ID` for 25.
fn error_name(code: i16) -> String {
    let Some(error) = ResponseError::try_from_code(code) else {
        return "NONE".to_owned();
    };
    if matches!(error, ResponseError::Unknown(_)) {
        return code.to_string();
    }
    let mut name = String::new();
    for c in error.to_string().chars() {
        if c.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(c.to_ascii_uppercase());
    }
    name
}

/// The table of metrics as Markdown, for docs/operations.md.
pub fn markdown() -> String {
    let mut out = "| metric | kind | labels | meaning |\n|---|---|---|---|\n".to_owned();
    for metric in METRICS {
        let kind = match metric.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        let labels = metric.labels.join(", ");
        out += &format!(
            "| `{}` | {kind} | {labels} | {} |\n",
            metric.name, metric.help
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(key: i16, version: i16) -> wire::Header {
        let mut frame = Vec::new();
        frame.extend_from_slice(&key.to_be_bytes());
        frame.extend_from_slice(&version.to_be_bytes());
        frame.extend_from_slice(&[0, 0, 0, 7, 0xff, 0xff]);
        // A Heartbeat of version 0: group "g", generation 1, member "m".
        frame.extend_from_slice(&[0, 1, b'g', 0, 0, 0, 1, 0, 1, b'm']);
        let mut peer = wire::Peer::new("/127.0.0.1");
        wire::decode(frame.into(), &mut peer).unwrap().0
    }

    fn heartbeat_reply(error: crate::group::request::ErrorCode) -> wire::Reply {
        wire::Reply::Group(crate::group::request::Reply::Heartbeat(error))
    }

    #[test]
    fn two_servers_do_not_mix() {
        let (one, two) = (Metrics::new(), Metrics::new());
        one.offset_commits.increment(3);
        two.offset_commits.increment(4);
        assert!(
            one.render().contains("convoke_offset_commits_total 3"),
            "{}",
            one.render()
        );
        assert!(
            two.render().contains("convoke_offset_commits_total 4"),
            "{}",
            two.render()
        );
    }

    #[test]
    fn a_request_is_counted_by_version_and_its_errors_by_name() {
        use crate::group::request::ErrorCode;
        let metrics = Metrics::new();
        let header = header(12, 0);
        let started_us = metrics.now_us();
        metrics.answered(&header, started_us, Some(&heartbeat_reply(ErrorCode::None)));
        metrics.answered(
            &header,
            started_us,
            Some(&heartbeat_reply(ErrorCode::UnknownMemberId)),
        );
        metrics.answered(&header, started_us, None);
        metrics.upkeep();
        let text = metrics.render();
        for line in [
            r#"convoke_requests_total{api="Heartbeat",version="0"} 3"#,
            r#"convoke_request_errors_total{api="Heartbeat",error="UNKNOWN_MEMBER_ID"} 1"#,
            r#"convoke_request_seconds_count{api="Heartbeat"} 3"#,
            r#"convoke_request_seconds_bucket{api="Heartbeat",le="+Inf"} 3"#,
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("NONE"), "{text}");
    }

    #[test]
    fn every_metric_has_help_and_a_name_of_its_kind() {
        for (at, metric) in METRICS.iter().enumerate() {
            assert!(
                METRICS[..at].iter().all(|other| other.name != metric.name),
                "{}",
                metric.name
            );
            assert!(metric.name.starts_with("convoke_") && metric.help.ends_with('.'));
            let total = metric.name.ends_with("_total");
            assert_eq!(total, metric.kind == MetricKind::Counter, "{}", metric.name);
            assert_eq!(
                metric.buckets.is_empty(),
                metric.kind != MetricKind::Histogram
            );
            assert!(metric.buckets.is_sorted());
        }
        let metrics = Metrics::new();
        metrics.connection_closed("tls");
        let text = metrics.render();
        assert!(
            text.contains("# HELP convoke_offset_count Committed offsets held."),
            "{text}"
        );
        assert!(
            text.contains(r#"convoke_connections_closed_total{reason="tls"} 1"#),
            "{text}"
        );
    }

    #[test]
    fn what_coordinators_did_adds_up() {
        let metrics = Metrics::new();
        let mut now = Stats {
            offset_commits: 5,
            ..Stats::default()
        };
        now.rebalances[Cause::MemberLeft as usize] = 2;
        metrics.stats(&Stats::default(), &now);
        metrics.stats(&now, &Stats::default());
        metrics.stats(
            &Stats::default(),
            &Stats {
                offset_commits: 1,
                ..Stats::default()
            },
        );
        let census = Census {
            classic: [1, 2, 3, 4],
            offsets: 9,
            ..Census::default()
        };
        metrics.census(&census);
        let text = metrics.render();
        for line in [
            "convoke_offset_commits_total 6",
            r#"convoke_rebalances_total{cause="member_left"} 2"#,
            r#"convoke_group_count{protocol="classic"} 10"#,
            r#"convoke_classic_group_count{state="Stable"} 4"#,
            "convoke_offset_count 9",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn errors_have_kafkas_names() {
        for (code, name) in [
            (-1, "UNKNOWN_SERVER_ERROR"),
            (0, "NONE"),
            (25, "UNKNOWN_MEMBER_ID"),
            (79, "MEMBER_ID_REQUIRED"),
            (999, "999"),
        ] {
            assert_eq!(error_name(code), name);
        }
    }
}
