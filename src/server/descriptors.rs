//! How many file descriptors connections may take: the log and the topics must find one when they need it.

/// Kept back for the group log, the journal, sockets that listen and the HTTP port.
const KEPT_BACK: usize = 64;

/// The process's limit of open files; `None` where the system does not tell.
fn limit() -> Option<usize> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    soft_limit(&limits)
}

fn soft_limit(limits: &str) -> Option<usize> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// What there is to share out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Descriptors {
    /// For connections.
    pub(super) connections: usize,
    /// For files of topics that are kept open.
    pub(super) topic_files: usize,
}

impl Descriptors {
    /// Shares out the limit of this process; `topic_files_max` is what the topics would take at most.
    pub(super) fn of_process(topic_files_max: usize) -> Self {
        Self::of(limit().unwrap_or(usize::MAX), topic_files_max)
    }

    fn of(limit: usize, topic_files_max: usize) -> Self {
        let topic_files = topic_files_max.min(limit / 4);
        Self {
            connections: limit.saturating_sub(topic_files + KEPT_BACK).max(1),
            topic_files,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_get_theirs_first() {
        let limits = "Limit        Soft Limit  Hard Limit  Units\nMax open files            1024       524288      files\n";
        assert_eq!(soft_limit(limits), Some(1024));
        assert_eq!(
            soft_limit("Max open files   unlimited  unlimited files"),
            None
        );
        let shared = Descriptors::of(1024, 512);
        assert_eq!((shared.connections, shared.topic_files), (704, 256));
        let shared = Descriptors::of(65_536, 512);
        assert_eq!((shared.connections, shared.topic_files), (64_960, 512));
        assert_eq!(Descriptors::of(10, 512).connections, 1);
    }
}
