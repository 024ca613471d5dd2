//! The patterns that model consumers subscribe to, each with its meaning in plain words: a second opinion on what the
//! core compiles, and cheap enough to be asked after every step.

/// What a pattern means.
type Meaning = fn(&str) -> bool;

const MEANINGS: [(&str, Meaning); 3] = [
    ("t.*", |topic| topic.starts_with('t')),
    ("t[01]", |topic| matches!(topic, "t0" | "t1")),
    ("t2", |topic| topic == "t2"),
];

/// Whether a pattern matches a topic; an empty one matches none.
pub(super) fn matches(pattern: &str, topic: &str) -> bool {
    let known = MEANINGS.iter().find(|(text, _)| *text == pattern);
    known.is_some_and(|(_, means)| means(topic))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::pattern::Pattern;

    #[test]
    fn a_pattern_means_what_the_core_reads() {
        for (text, means) in MEANINGS {
            let pattern = Pattern::new(text).unwrap();
            for topic in ["t0", "t1", "t2", "t", "t01", "u", "xt0", ""] {
                assert_eq!(pattern.matches(topic), means(topic), "{text} {topic}");
            }
        }
    }
}
