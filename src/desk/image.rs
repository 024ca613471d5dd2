//! The image of topics in the core's words, kept from what the data plane announces.

use std::sync::Arc;

use crate::broker::{self, TopicSummary};
use crate::group::types::{Topic, TopicId, Topics, TopicsChange};

/// All topics, as coordinators are told of them.
#[derive(Clone, Debug, Default)]
pub struct Image(Arc<Topics>);

impl Image {
    /// Begins with what there is.
    #[must_use]
    pub fn of(topics: &broker::TopicsImage) -> Self {
        let mut image = Topics::default();
        for summary in topics.iter() {
            image.insert(summary.name.clone(), topic(summary));
        }
        Self(Arc::new(image))
    }

    /// All topics now.
    #[must_use]
    pub fn topics(&self) -> &Arc<Topics> {
        &self.0
    }

    /// Takes a change in; gives it as every coordinator must hear of it. Changes must be taken in the order in which
    /// they were announced.
    pub fn take(&mut self, change: &broker::TopicsChange) -> TopicsChange {
        let mut topics = (*self.0).clone();
        for gone in &change.deleted {
            topics.remove(&gone.name);
        }
        for summary in change.created.iter().chain(&change.grown) {
            topics.insert(summary.name.clone(), topic(summary));
        }
        self.0 = Arc::new(topics);
        let names = |summaries: &[TopicSummary]| {
            let names = summaries.iter().map(|summary| summary.name.clone());
            names.collect()
        };
        let gone = |gone: &TopicSummary| (gone.name.clone(), TopicId(gone.id.into_bytes()));
        TopicsChange {
            topics: self.0.clone(),
            created: names(&change.created),
            grown: names(&change.grown),
            deleted: change.deleted.iter().map(gone).collect(),
        }
    }
}

fn topic(summary: &TopicSummary) -> Topic {
    Topic {
        id: TopicId(summary.id.into_bytes()),
        partitions: summary.partitions,
    }
}
