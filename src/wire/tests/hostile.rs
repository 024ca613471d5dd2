//! Liars: no count is believed, no body is read beyond its end, nothing large is reserved.

use super::*;

/// Peak of the address space in KiB; reservations count, used or not.
fn address_space_peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmPeak:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn without_large_reservations(test: impl FnOnce()) {
    let before = address_space_peak_kib();
    test();
    if let (Some(before), Some(after)) = (before, address_space_peak_kib()) {
        // Every thread's heap reserves some; a believed count of 2^31 would reserve far more.
        let grown_gib = (after - before) >> 20;
        assert!(grown_gib < 16, "the address space grew by {grown_gib} GiB");
    }
}

/// The bytes with the length at `at` replaced.
fn lie(body: &[u8], at: usize, kind: Length, value: u32) -> Vec<u8> {
    let mut out = body[..at].to_vec();
    let rest = match kind {
        Length::Int16 => {
            out.extend((value as u16).to_be_bytes());
            at + 2
        }
        Length::Int32 => {
            out.extend(value.to_be_bytes());
            at + 4
        }
        Length::Varint => {
            let mut left = value;
            while left >= 0x80 {
                out.push(left as u8 | 0x80);
                left >>= 7;
            }
            out.push(left as u8);
            at + 1 + body[at..].iter().take_while(|byte| **byte >= 0x80).count()
        }
    };
    out.extend_from_slice(&body[rest..]);
    out
}

#[test]
fn a_count_or_length_beyond_the_frame_is_refused_everywhere() {
    without_large_reservations(|| {
        let mut lies = 0;
        for (api, version) in rows() {
            let made = Maker::body(guard::program(api.shape, version), 1, true);
            for (at, kind) in made.lengths {
                let left = (made.out.len() - at) as u32;
                for value in [
                    left + 2,
                    left + 1000,
                    0x7fff,
                    0x7fff_ffff,
                    0x7fff_fffe,
                    0x8000_0000,
                ] {
                    let body = lie(&made.out, at, kind, value);
                    if matches!(kind, Length::Int16) && value > 0x7fff {
                        continue;
                    }
                    // As int32, 2^31 is negative: null, which may be allowed.
                    let negative = matches!(kind, Length::Int32) && value == 0x8000_0000;
                    let outcome = decode_body(api, version, body);
                    assert!(
                        outcome.is_err() || negative,
                        "{} {version}: {value} at {at} was believed",
                        api.name
                    );
                    lies += 1;
                }
            }
        }
        assert!(lies > 3000, "{lies}");
    });
}

#[test]
fn any_length_at_any_place_is_survived() {
    without_large_reservations(|| {
        for (api, version) in rows() {
            let made = Maker::body(guard::program(api.shape, version), 2, true);
            for (at, kind) in made.lengths {
                for value in (0..70).chain([u32::MAX, u32::MAX - 1, 0xffff, 0xfffe, 0x8000]) {
                    let _ = decode_body(api, version, lie(&made.out, at, kind, value));
                }
            }
        }
    });
}

#[test]
fn a_body_cut_anywhere_is_refused() {
    for (api, version) in rows() {
        for seed in 0..3 {
            let made = Maker::body(guard::program(api.shape, version), seed, seed == 0);
            for end in 0..made.out.len() {
                let outcome = decode_body(api, version, made.out[..end].to_vec());
                assert!(
                    outcome.is_err(),
                    "{} {version} cut at {end} was read",
                    api.name
                );
            }
        }
    }
}

#[test]
fn small_bodies_with_huge_counts_are_refused_or_harmless() {
    without_large_reservations(|| {
        for (api, version) in rows() {
            for huge in [
                &[0x7f, 0xff, 0xff, 0xff][..],
                &[0xff, 0xff, 0xff, 0xff, 0x0f],
                &[0xff; 5],
            ] {
                for length in [4usize, 5, 15, 40] {
                    for at in 0..=length.saturating_sub(huge.len()) {
                        let mut body = vec![0; length];
                        let end = (at + huge.len()).min(length);
                        body[at..end].copy_from_slice(&huge[..end - at]);
                        let _ = decode_body(api, version, body);
                    }
                }
            }
        }
    });
}

#[test]
fn many_tiny_elements_hit_the_budget() {
    // ListGroups 5: empty state filters of one byte each.
    let count = guard::ELEMENTS_MAX + 1;
    let mut maker = Maker::body(&[], 0, true);
    maker.varint(count + 1);
    maker.out.resize(maker.out.len() + count as usize, 1);
    maker.out.extend([1, 0]);
    let api = api::by_key(16).unwrap();
    let refused = decode_body(api, 5, maker.out);
    assert!(matches!(
        refused,
        Err(Error::Malformed {
            refusal: Refusal {
                why: Flaw::TooManyElements { .. },
                ..
            },
            ..
        })
    ));
}

#[test]
fn a_commit_of_a_hundred_thousand_partitions_passes() {
    let mut body = Writer::new(2_000_000, true);
    body.string("g");
    body.i32(1);
    body.string("m");
    body.nullable_string(None);
    let partitions: Vec<i32> = (0..100_000).collect();
    body.items(&["t"], |w, topic| {
        w.string(topic);
        w.items(&partitions, |w, index| {
            w.i32(*index);
            w.i64(5);
            w.i32(-1);
            w.nullable_string(Some(""));
            w.tags();
        });
        w.tags();
    });
    body.tags();
    let body = body.finish().unwrap().to_vec();
    let call = decode_body(api::by_key(8).unwrap(), 9, body).unwrap();
    let Call::Group(request::Request::OffsetCommit(commit)) = call else {
        panic!("{call:?}")
    };
    assert_eq!(commit.topics[0].partitions.len(), 100_000);
}

#[test]
fn random_bytes_are_survived() {
    without_large_reservations(|| {
        let mut dice = Dice(11);
        for (api, version) in rows() {
            for _ in 0..200 {
                let length = dice.roll(60) as usize;
                let mut body: Vec<u8> = (0..length).map(|_| dice.roll(256) as u8).collect();
                let _ = decode_body(api, version, body.clone());
                body.iter_mut().for_each(|byte| *byte &= 7);
                let _ = decode_body(api, version, body);
            }
        }
        for length in 0..40 {
            let frame: Vec<u8> = (0..length).map(|_| dice.roll(256) as u8).collect();
            let _ = decode(Bytes::from(frame), &mut peer());
        }
    });
}

#[test]
fn a_refusal_says_what_is_wrong_and_where() {
    let told = [
        (
            Flaw::CutShort { needed: 8, left: 3 },
            "a field of 8 bytes with 3 left",
        ),
        (
            Flaw::Count { count: 9, left: 4 },
            "an array of 9 elements with 4 bytes left",
        ),
        (Flaw::Null, "null where a value is required"),
        (
            Flaw::StringTooLong { bytes: 40_000 },
            "a string of 40000 bytes (at most 32767)",
        ),
        (Flaw::TooManyElements { limit: 7 }, "more than 7 elements"),
        (Flaw::Varint, "a varint longer than five bytes"),
        (
            Flaw::Tag { tag: 3 },
            "tagged field 3, which this version does not have",
        ),
    ];
    for (why, text) in told {
        let refusal = Refusal { at: 5, why };
        assert_eq!(refusal.to_string(), format!("{text} at byte 5 of the body"));
    }
}
