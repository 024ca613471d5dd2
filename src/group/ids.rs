//! Member ids made by the coordinator, from a seed, so that a run can be repeated.

use std::sync::Arc;

use super::types::MemberId;

/// A seeded generator (SplitMix64) of member ids.
#[derive(Debug)]
pub(super) struct Ids(u64);

impl Ids {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn bytes(&mut self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.next().to_be_bytes());
        bytes[8..].copy_from_slice(&self.next().to_be_bytes());
        bytes
    }

    /// An id for a classic member: `<prefix>-<uuid4>`, the prefix being its client id or its instance id.
    pub(super) fn classic(&mut self, prefix: &str) -> MemberId {
        let uuid = uuid::Builder::from_random_bytes(self.bytes()).into_uuid();
        Arc::from(format!("{prefix}-{uuid}"))
    }

    /// An id for a member of a consumer group: a UUID in 22 characters of base64url, as Kafka writes it.
    pub(super) fn consumer(&mut self) -> MemberId {
        const ALPHABET: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        loop {
            let uuid = uuid::Builder::from_random_bytes(self.bytes())
                .into_uuid()
                .as_u128();
            // 128 bits and 4 zero bits, six at a time. Kafka too draws again where a dash would stand first.
            let text: String = (0..22)
                .map(|place| {
                    let bits = if place == 21 {
                        uuid << 4
                    } else {
                        uuid >> (122 - 6 * place)
                    };
                    char::from(ALPHABET[(bits & 63) as usize])
                })
                .collect();
            if !text.starts_with('-') {
                return Arc::from(text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_ids_again() {
        let (mut one, mut two) = (Ids::new(7), Ids::new(7));
        let id = one.classic("c");
        assert_eq!(id, two.classic("c"));
        assert_ne!(id, one.classic("c"));
        assert_eq!(id.len(), "c-".len() + 36);
    }

    #[test]
    fn a_consumer_id_is_a_uuid_in_22_characters() {
        let mut ids = Ids::new(7);
        for _ in 0..100 {
            let id = ids.consumer();
            assert_eq!(id.len(), 22);
            assert!(
                !id.starts_with('-')
                    && id
                        .bytes()
                        .all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
            );
        }
    }
}
