//! What happened: a hash of it, always, and a story of it, on demand.

use std::collections::VecDeque;
use std::fmt::Write as _;

/// How many lines of the story are kept.
const LINES_KEPT: usize = 100_000;

/// Takes in everything that happens in a world.
#[derive(Debug)]
pub(super) struct Trace {
    hash: u64,
    story: Option<VecDeque<String>>,
    now: i64,
}

impl Trace {
    pub(super) fn new(told: bool) -> Self {
        Self {
            hash: 0xcbf2_9ce4_8422_2325,
            story: told.then(VecDeque::new),
            now: 0,
        }
    }

    /// Time goes on.
    pub(super) fn at(&mut self, now: i64) {
        self.now = now;
        self.note(now as u64);
    }

    /// Takes a number in.
    pub(super) fn note(&mut self, word: u64) {
        // FNV over words, with a turn so that high bits reach low ones.
        self.hash = (self.hash ^ word)
            .wrapping_mul(0x0000_0100_0000_01b3)
            .rotate_left(29);
    }

    /// Takes bytes in.
    pub(super) fn note_bytes(&mut self, bytes: &[u8]) {
        self.note(u64::from(crc32c::crc32c(bytes)));
    }

    /// Tells a line of the story, if anybody listens.
    pub(super) fn tell(&mut self, line: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            let mut text = String::new();
            let (seconds, ms) = (self.now / 1000, self.now % 1000);
            let _ = write!(text, "{seconds:>5}.{ms:03}  {}", line());
            if story.len() == LINES_KEPT {
                story.pop_front();
            }
            story.push_back(text);
        }
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    pub(super) fn into_story(self) -> Vec<String> {
        self.story.map(Vec::from).unwrap_or_default()
    }
}
