//! The data folder: who may open it, and the real disk.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use convoke::log::fault_fs::FaultFs;
use convoke::log::fs::{Fs, FsFile, Open, RealFs};
use convoke::log::{Error, Folder, FolderOptions, LogOptions, Recovery};

use super::{
    DIR, PARTITIONS, State, folder, folder_of, open_in, open_with, payload, place, run, runtime,
    small, state_after, wait_for,
};

const OPTIONS: FolderOptions = FolderOptions {
    partition_count: PARTITIONS,
    node_id: 1,
};

fn rewrite_meta(fs: &FaultFs, change: impl Fn(&str) -> String) {
    let path = Path::new(DIR).join("convoke.meta");
    let text = String::from_utf8(fs.bytes(&path).unwrap()).unwrap();
    let body = change(text.rsplit_once("crc32c=").unwrap().0);
    let text = format!("{body}crc32c={:08x}\n", crc32c::crc32c(body.as_bytes()));
    fs.remove(&path).unwrap();
    fs.open(&path, Open::Create)
        .unwrap()
        .write_at(&[text.as_bytes()], 0)
        .unwrap();
}

#[test]
fn the_identity_is_drawn_once() {
    let fs = FaultFs::new();
    let first = folder(&fs).unwrap().identity().clone();
    assert_eq!(folder(&fs).unwrap().identity(), &first);
    assert_eq!(first.cluster_id.len(), 22);
    assert!(
        first
            .cluster_id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    );
    let other = folder(&FaultFs::new()).unwrap().identity().clone();
    assert_ne!(first.cluster_id, other.cluster_id);
}

#[test]
fn a_folder_in_use_is_refused() {
    let real = tempfile::tempdir().unwrap();
    let fault = FaultFs::new();
    for (fs, dir) in [
        (RealFs::shared(), real.path()),
        (fault.shared(), Path::new(DIR)),
    ] {
        let held = folder_of(fs.clone(), dir).unwrap();
        let error = folder_of(fs.clone(), dir).unwrap_err();
        assert!(matches!(error, Error::InUse { .. }), "{error}");
        drop(held);
        folder_of(fs, dir).unwrap();
    }
}

#[test]
fn a_lock_that_the_system_refuses_is_not_taken_for_one_that_is_held() {
    let real = tempfile::tempdir().unwrap();
    std::fs::create_dir(real.path().join("convoke.lock")).unwrap();
    let error = folder_of(RealFs::shared(), real.path()).unwrap_err();
    assert!(matches!(error, Error::Io { action: "lock", .. }), "{error}");
}

#[test]
fn a_folder_of_other_settings_is_refused_with_both() {
    let fs = FaultFs::new();
    drop(folder(&fs).unwrap());
    let open = |partition_count, node_id| {
        Folder::open(
            fs.shared(),
            Path::new(DIR),
            FolderOptions {
                partition_count,
                node_id,
            },
        )
        .unwrap_err()
        .to_string()
    };
    let error = open(50, 1);
    assert!(
        error.contains("offsets.topic.num.partitions=3") && error.contains("50"),
        "{error}"
    );
    let error = open(PARTITIONS, 7);
    assert!(
        error.contains("node.id=1") && error.contains('7'),
        "{error}"
    );
}

#[test]
fn a_newer_format_is_refused() {
    let fs = FaultFs::new();
    drop(folder(&fs).unwrap());
    rewrite_meta(&fs, |text| text.replace("format=1", "format=2"));
    let error = folder(&fs).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Newer {
                found: 2,
                known: 1,
                ..
            }
        ),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .contains("start the version that wrote it"),
        "{error}"
    );
}

#[test]
fn a_damaged_meta_file_is_refused() {
    let fs = FaultFs::new();
    drop(folder(&fs).unwrap());
    let path = Path::new(DIR).join("convoke.meta");
    for at in 0..fs.bytes(&path).unwrap().len() as u64 {
        fs.flip(&path, at, 2);
        assert!(
            matches!(
                folder(&fs),
                Err(Error::Damaged { .. } | Error::Newer { .. })
            ),
            "byte {at}"
        );
        fs.flip(&path, at, 2);
    }
    folder(&fs).unwrap();
}

#[test]
fn a_folder_of_someone_else_is_left_alone() {
    let real = tempfile::tempdir().unwrap();
    std::fs::write(real.path().join("thesis.txt"), "do not touch").unwrap();
    let error = Folder::open(RealFs::shared(), real.path(), OPTIONS).unwrap_err();
    assert!(
        matches!(error, Error::NotOurs { .. }) && error.to_string().contains("thesis.txt"),
        "{error}"
    );
    assert_eq!(std::fs::read_dir(real.path()).unwrap().count(), 1);
    // A fresh volume is not someone else's.
    let volume = tempfile::tempdir().unwrap();
    std::fs::create_dir(volume.path().join("lost+found")).unwrap();
    Folder::open(RealFs::shared(), volume.path(), OPTIONS).unwrap();
}

#[test]
fn the_real_disk_keeps_what_was_acknowledged() {
    let real = tempfile::tempdir().unwrap();
    let dir = real.path().join("below/one/more");
    let mut done = 0;
    for _ in 0..3 {
        let (log, state) = open_in(RealFs::shared(), &dir, small()).unwrap();
        assert_eq!(state, state_after(done));
        let mut shard = log.shard(0..PARTITIONS);
        let mut state: State = state;
        runtime().block_on(async {
            for n in done + 1..=done + 100 {
                shard.reserve(payload(n).len() as u64).unwrap();
                let position = shard.append(place(n).0, payload(n)).unwrap();
                state.insert(place(n), n);
                wait_for(&mut shard, position).await.unwrap();
                super::snapshot(&mut shard, &state, &log).await;
            }
        });
        done += 100;
        log.close().unwrap();
    }
    assert!(Path::new(&dir).join("group").exists());
}

#[test]
fn the_real_disk_does_as_the_door_says() {
    let real = tempfile::tempdir().unwrap();
    let fault = FaultFs::new();
    fault.create_dirs(Path::new("/here")).unwrap();
    for (fs, dir) in [
        (RealFs::shared(), real.path()),
        (fault.shared(), Path::new("/here")),
    ] {
        let path = dir.join("file");
        assert!(fs.open(&path, Open::Read).is_err());
        let file: Arc<dyn FsFile> = fs.open(&path, Open::Create).unwrap();
        assert!(fs.open(&path, Open::Create).is_err());
        let many: Vec<&[u8]> = std::iter::repeat_n(&b"ab"[..], 3000).collect();
        file.write_at(&many, 10).unwrap();
        assert_eq!(file.size().unwrap(), 6010);
        file.preallocate(8000).unwrap();
        file.preallocate(100).unwrap();
        assert_eq!(file.size().unwrap(), 8000);
        let mut bytes = [7; 12];
        assert_eq!(file.read_at(&mut bytes, 6008).unwrap(), 12);
        assert_eq!(&bytes[..3], b"ab\0");
        assert_eq!(file.read_at(&mut bytes, 7995).unwrap(), 5);
        file.truncate(5).unwrap();
        file.sync_data().unwrap();
        file.sync_all().unwrap();
        fs.rename(&path, &dir.join("other")).unwrap();
        fs.create_dirs(&dir.join("below/deep")).unwrap();
        fs.sync_dir(dir).unwrap();
        assert_eq!(fs.list(dir).unwrap(), ["below", "other"]);
        fs.remove(&dir.join("other")).unwrap();
        fs.remove_dir_all(&dir.join("below")).unwrap();
        assert!(fs.list(dir).unwrap().is_empty());
    }
}

/// Nothing can be kept in a device, and the system says so.
#[cfg(target_os = "linux")]
#[test]
fn what_the_real_disk_refuses_is_told() {
    let full = RealFs.open(Path::new("/dev/full"), Open::Write).unwrap();
    let error = full.write_at(&[b"a"], 0).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    assert!(full.preallocate(10).is_err());
    let real = tempfile::tempdir().unwrap();
    let dir = RealFs.open(real.path(), Open::Read).unwrap();
    assert!(dir.read_at(&mut [0; 8], 0).is_err(), "a folder is no file");
}

#[test]
fn a_number_in_a_name_that_no_log_reaches_is_none_of_ours() {
    let fs = FaultFs::new();
    drop(open_in(fs.shared(), Path::new(DIR), small()).unwrap());
    let group = Path::new(DIR).join("group");
    let spare = group.join("spare-18446744073709551615");
    fs.open(&spare, Open::Create).unwrap();
    let (log, _) = open_in(fs.shared(), Path::new(DIR), small()).unwrap();
    let mut shard = log.shard(0..PARTITIONS);
    // Long enough for spare files to be made.
    for n in 1..=100 {
        shard.reserve(payload(n).len() as u64).unwrap();
        shard.append(place(n).0, payload(n)).unwrap();
    }
    drop((shard, log));
    let (log, state) = open_in(fs.shared(), Path::new(DIR), small()).unwrap();
    assert_eq!(state, state_after(100));
    drop(log);
    assert_eq!(fs.bytes(&spare), Some(Vec::new()), "it is left alone");

    let segment = group.join("18446744073709551615.seg");
    fs.open(&segment, Open::Create).unwrap();
    let error = open_in(fs.shared(), Path::new(DIR), small()).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
}

/// A meta file that says too few partitions hides nothing: what lies beside it is damage, not left out.
#[test]
fn files_of_partitions_that_the_folder_does_not_have_are_damage() {
    let whole_log = LogOptions::default();
    for (options, appends, told) in [
        (whole_log, 40, "frames of partition"),
        (small(), 120, "a snapshot of a partition"),
    ] {
        let fs = FaultFs::new();
        let (log, mut state) = open_with(&fs, options.clone()).unwrap();
        run(&fs, &log, &mut state, 1..=appends);
        log.close().unwrap();
        rewrite_meta(&fs, |text| text.replace("partitions=3", "partitions=1"));
        let fewer = FolderOptions {
            partition_count: 1,
            ..OPTIONS
        };
        let folder = Folder::open(fs.shared(), Path::new(DIR), fewer).unwrap();
        let opened = Recovery::open(Arc::new(folder), options)
            .and_then(|recovery| recovery.run(&mut |_| ControlFlow::Continue(()), &mut |_| ()));
        let error = opened.map(|_| ()).unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "{error}");
        assert!(error.to_string().contains(told), "{error}");
    }
}
