//! Idempotent producers of one partition: who wrote last, and the last five batches of each, so that a batch sent
//! again is recognised and a missing one is noticed.

use std::collections::VecDeque;

use hashbrown::HashMap;

use super::batch::Header;

/// Kafka keeps this many batches per producer; clients keep no more in flight.
const BATCHES: usize = 5;
/// More producers than this in one partition push out the one silent for longest.
const PRODUCERS_MAX: usize = 100_000;

/// One batch that was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Appended {
    pub(super) first_sequence: i32,
    pub(super) last_sequence: i32,
    pub(super) base_offset: i64,
    /// The batch's largest timestamp.
    pub(super) timestamp: i64,
}

/// What is known of one producer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Producer {
    pub(super) epoch: i16,
    /// When it was last heard of, in unix milliseconds.
    pub(super) seen_ms: i64,
    pub(super) batches: VecDeque<Appended>,
}

/// What a batch of an idempotent producer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The next one.
    Next,
    /// Sent again; this is where it is.
    Duplicate(Appended),
    /// A batch before it is missing: OUT_OF_ORDER_SEQUENCE_NUMBER.
    Gap,
    /// An older instance of the producer: INVALID_PRODUCER_EPOCH.
    Fenced,
}

/// The producers of a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Producers {
    map: HashMap<i64, Producer>,
}

impl Producers {
    /// Judges a batch that carries a producer id.
    pub(super) fn judge(&self, header: &Header) -> Verdict {
        let Some(producer) = self.map.get(&header.producer_id) else {
            // Unknown, maybe forgotten with its records: Kafka takes any sequence number.
            return Verdict::Next;
        };
        if header.producer_epoch < producer.epoch {
            return Verdict::Fenced;
        }
        if header.producer_epoch > producer.epoch {
            return if header.base_sequence == 0 {
                Verdict::Next
            } else {
                Verdict::Gap
            };
        }
        let same = |batch: &&Appended| {
            batch.first_sequence == header.base_sequence
                && batch.last_sequence == header.last_sequence()
        };
        if let Some(batch) = producer.batches.iter().find(same) {
            return Verdict::Duplicate(*batch);
        }
        match producer.batches.back() {
            Some(last) if header.base_sequence != last.last_sequence.wrapping_add(1) & i32::MAX => {
                Verdict::Gap
            }
            _ => Verdict::Next,
        }
    }

    /// Remembers a batch that was appended at `base_offset`.
    pub(super) fn note(&mut self, header: &Header, base_offset: i64, now_ms: i64) {
        if !self.map.contains_key(&header.producer_id) && self.map.len() >= PRODUCERS_MAX {
            let oldest = self
                .map
                .iter()
                .min_by_key(|(_, producer)| producer.seen_ms)
                .map(|(id, _)| *id);
            oldest.map(|id| self.map.remove(&id));
        }
        let producer = self
            .map
            .entry(header.producer_id)
            .or_insert_with(|| Producer {
                epoch: header.producer_epoch,
                seen_ms: now_ms,
                batches: VecDeque::new(),
            });
        if producer.epoch != header.producer_epoch {
            producer.epoch = header.producer_epoch;
            producer.batches.clear();
        }
        producer.seen_ms = now_ms;
        if producer.batches.len() == BATCHES {
            producer.batches.pop_front();
        }
        producer.batches.push_back(Appended {
            first_sequence: header.base_sequence,
            last_sequence: header.last_sequence(),
            base_offset,
            timestamp: header.max_timestamp,
        });
    }

    /// Forgets who was silent since before `before_ms`.
    pub(super) fn expire(&mut self, before_ms: i64) {
        self.map.retain(|_, producer| producer.seen_ms >= before_ms);
    }

    /// All of them, in order of id.
    pub(super) fn sorted(&self) -> Vec<(i64, &Producer)> {
        let mut all: Vec<_> = self
            .map
            .iter()
            .map(|(id, producer)| (*id, producer))
            .collect();
        all.sort_unstable_by_key(|(id, _)| *id);
        all
    }

    pub(super) fn put(&mut self, id: i64, producer: Producer) {
        self.map.insert(id, producer);
    }
}

#[cfg(test)]
mod tests {
    use super::super::batch::tests::Batch;
    use super::*;

    fn header(count: usize, epoch: i16, sequence: i32) -> Header {
        Header::read(&Batch::of(&vec![1; count], 0).by(7, epoch, sequence).bytes()).unwrap()
    }

    #[test]
    fn the_last_five_batches_are_recognised_and_gaps_are_noticed() {
        let mut producers = Producers::default();
        for index in 0..6 {
            let next = header(2, 0, index * 2);
            assert_eq!(producers.judge(&next), Verdict::Next);
            producers.note(&next, i64::from(index) * 2, 100);
        }
        for index in 1..6 {
            let Verdict::Duplicate(found) = producers.judge(&header(2, 0, index * 2)) else {
                panic!("{index}")
            };
            assert_eq!(found.base_offset, i64::from(index) * 2);
        }
        assert_eq!(producers.judge(&header(2, 0, 0)), Verdict::Gap);
        assert_eq!(producers.judge(&header(1, 0, 10)), Verdict::Gap);
        assert_eq!(producers.judge(&header(2, 0, 14)), Verdict::Gap);
        assert_eq!(producers.judge(&header(2, 0, 12)), Verdict::Next);
    }

    #[test]
    fn a_newer_epoch_begins_at_zero_and_fences_the_older() {
        let mut producers = Producers::default();
        producers.note(&header(1, 0, 0), 0, 100);
        assert_eq!(producers.judge(&header(1, 1, 3)), Verdict::Gap);
        assert_eq!(producers.judge(&header(1, 1, 0)), Verdict::Next);
        producers.note(&header(1, 1, 0), 1, 100);
        assert_eq!(producers.judge(&header(1, 0, 1)), Verdict::Fenced);
    }

    #[test]
    fn an_unknown_or_forgotten_producer_may_begin_anywhere() {
        let mut producers = Producers::default();
        assert_eq!(producers.judge(&header(1, 0, 40)), Verdict::Next);
        producers.note(&header(1, 0, 40), 0, 100);
        producers.expire(101);
        assert_eq!(producers.judge(&header(1, 0, 90)), Verdict::Next);
    }

    #[test]
    fn sequences_go_on_at_zero_behind_the_largest() {
        let mut producers = Producers::default();
        producers.note(&header(1, 0, i32::MAX), 0, 100);
        assert_eq!(producers.judge(&header(1, 0, 0)), Verdict::Next);
    }
}
