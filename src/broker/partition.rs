//! One partition: its bounds and its bytes.

use uuid::Uuid;

/// One partition of a topic.
#[derive(Debug)]
pub(super) struct Partition {
    #[expect(dead_code, reason = "names the folder")]
    pub(super) topic: Uuid,
    #[expect(dead_code, reason = "names the folder")]
    pub(super) index: i32,
}

impl Partition {
    pub(super) fn new(topic: Uuid, index: i32) -> Self {
        Self { topic, index }
    }

    /// How far it reaches.
    pub(super) fn bounds(&self) -> super::Bounds {
        super::Bounds::default()
    }

    /// The bytes its segments take.
    pub(super) fn size_bytes(&self) -> u64 {
        0
    }
}
