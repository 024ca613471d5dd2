//! C13, C20, C37, C43–C51 where sockets, processes and disks matter.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use convoke::client::Client;
use kafka_protocol::messages::ListGroupsRequest;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::group::{codes, commit_request, fetch_request, fetched};
use super::member::Member;
use super::words::codes::*;
use super::words::{ErrorCode, Outcome, code};
use super::world::{World, within};

#[tokio::test]
async fn c13_a_large_group_syncs_and_survives_a_restart() {
    let mut world = world!(durable);
    if !world.is_ours() {
        // Kafka refuses records over 1 MB, and the group gathers again for ever.
        return;
    }
    let group_id = world.name("group");
    let group = world.group_named(&group_id);
    let mut members = Vec::new();
    for index in 0..300 {
        let metadata = vec![u8::try_from(index % 251).unwrap(); 10_000];
        let member = group.member("m").await;
        members.push(member.follows("consumer", &[("range", &metadata)]));
    }
    group.join_all(&members.iter().collect::<Vec<_>>()).await;
    let leader = members.iter().find(|member| member.leads()).unwrap();
    let share = |member: &Member| Bytes::from(member.id().repeat(250));
    let shares: Vec<_> = members.iter().map(|m| (m.id(), share(m))).collect();
    assert_eq!(leader.assign(&shares).await.error(), NONE);
    let mut syncs: Vec<_> = members.iter().map(Member::syncing).collect();
    for (member, sync) in members.iter().zip(syncs.drain(..)) {
        assert_eq!(sync.reply().await.assignment, share(member));
    }
    drop(group);

    world.restart().await;
    let client = world.connect().await;
    for member in &members {
        let member = member.on(client.clone());
        assert_eq!(member.heartbeat().await, NONE);
        assert_eq!(member.sync().await.assignment, share(&member));
    }
}

#[tokio::test]
async fn c20_a_replacement_that_cannot_be_stored_did_not_happen() {
    let world = world!(durable "offsets.topic.segment.bytes" = "65536", "offsets.topic.num.partitions" = "1");
    if !world.is_ours() {
        return;
    }
    let topic = world.topic(1).await;
    let group = world.group();
    let m1 = group.static_member("i1").await;
    m1.settle().await;
    world.disk().set_full(true);
    fill(&world, &topic).await;
    let m2 = m1.restarted(world.connect().await);
    assert_eq!(m2.join().await.error(), COORDINATOR_NOT_AVAILABLE);
    assert_eq!(m1.heartbeat().await, NONE);
    world.disk().set_full(false);
    within("room again", async {
        while m2.join().await.error() != NONE {}
    })
    .await;
    assert_eq!(m1.heartbeat().await, FENCED_INSTANCE_ID);
    assert_eq!(m2.heartbeat().await, NONE);
}

/// Commits to one new group after another until there is no room for anything more.
async fn fill(world: &World, topic: &str) {
    let client = world.connect().await;
    within("a full disk", async {
        // Large records first, so that it does not take long; then the smallest.
        for metadata in ["x".repeat(4_000), String::new()] {
            loop {
                let mut request = commit_request(&world.name("g"), &[(topic, 0, 0)]);
                request.topics[0].partitions[0].committed_metadata = Some(metadata.clone().into());
                match codes(&client.send_as(9, &request).await.unwrap())[0] {
                    NONE => {}
                    refused => {
                        assert_eq!(refused, COORDINATOR_NOT_AVAILABLE);
                        break;
                    }
                }
            }
        }
    })
    .await;
}

#[tokio::test]
async fn c50_a_full_disk_is_told_keeps_what_was_and_heals() {
    let world = world!(durable "offsets.topic.segment.bytes" = "65536", "offsets.topic.num.partitions" = "1");
    if !world.is_ours() {
        return;
    }
    let topic = world.topic(1).await;
    let group = world.group();
    let member_group = world.group();
    let [a] = member_group.stable(["a"]).await;
    let empty = world.group();
    assert_eq!(empty.commit(&topic, 0, 1).await, NONE);
    assert_eq!(group.commit(&topic, 0, 2).await, NONE);
    world.disk().set_full(true);
    fill(&world, &topic).await;
    for _ in 0..2 {
        // What was acknowledged is there, what was not is not; reads and heartbeats go on.
        assert_eq!(group.committed(&topic, 0).await, 2);
        assert_eq!(a.heartbeat().await, NONE);
        assert_eq!(group.commit(&topic, 0, 7).await, COORDINATOR_NOT_AVAILABLE);
        assert_eq!(empty.delete().await, COORDINATOR_NOT_AVAILABLE);
        assert_eq!(a.commit(&topic, 0, 7).await, COORDINATOR_NOT_AVAILABLE);
        assert_eq!(empty.committed(&topic, 0).await, 1);
    }
    world.disk().set_full(false);
    within("room again", async {
        while group.commit(&topic, 0, 8).await != NONE {}
    })
    .await;
    assert_eq!(empty.delete().await, NONE);
    member_group.rebalance(&[&a]).await;
}

#[tokio::test]
async fn c37_a_stalled_disk_is_answered_with_what_clients_retry() {
    let world = world!(durable "offsets.commit.timeout.ms" = "2000");
    if !world.is_ours() {
        return;
    }
    let topic = world.topic(1).await;
    let group = world.group();
    assert_eq!(group.commit(&topic, 0, 1).await, NONE);
    let other = world.group();
    let [a] = other.stable(["a"]).await;
    let held = world.disk().hold_syncs();
    let retriable = [
        COORDINATOR_NOT_AVAILABLE,
        COORDINATOR_LOAD_IN_PROGRESS,
        NOT_COORDINATOR,
    ];
    assert!(retriable.contains(&group.commit(&topic, 0, 2).await));
    assert!(retriable.contains(&a.commit(&topic, 0, 2).await));
    let fresh = world.group().member("b").await;
    let join = fresh.join_once().await.error();
    assert!(
        retriable.contains(&join) || join == MEMBER_ID_REQUIRED,
        "{join:?}"
    );
    drop(held);

    let offset = within("recovery", async {
        loop {
            let topics = [(&*topic, &[0][..])];
            let fetched = group.fetch_as(9, Some(&topics)).await;
            if fetched.error == NONE {
                return fetched.partitions[0].2;
            }
        }
    })
    .await;
    assert!([1, 2].contains(&offset), "{offset}");
    within("recovery", async {
        while group.commit(&topic, 0, 3).await != NONE {}
    })
    .await;
    assert_eq!(group.committed(&topic, 0).await, 3);
    within("recovery", async { while a.heartbeat().await != NONE {} }).await;
}

#[tokio::test]
async fn c47_while_loading_every_call_has_its_answer() {
    let mut world = world!(durable);
    if !world.is_ours() {
        return;
    }
    let topic = world.topic(1).await;
    let id = world.name("group");
    let group = world.group_named(&id);
    let [a] = group.stable(["a"]).await;
    assert_eq!(a.commit(&topic, 0, 5).await, NONE);
    drop(group);

    let held = world.disk().hold_reads();
    world.begin_restart().await;
    let group = world.group_named(&id);
    let a = a.on(world.connect().await);
    let b = group.member("b").await;
    let loading = COORDINATOR_LOAD_IN_PROGRESS;
    assert_eq!(group.find().await, NONE);
    assert_eq!(a.heartbeat().await, NONE);
    assert_eq!(b.join().await.error(), loading);
    assert_eq!(a.sync().await.error(), loading);
    assert_eq!(a.commit(&topic, 0, 6).await, loading);
    assert_eq!(group.commit(&topic, 0, 6).await, loading);
    assert_eq!(group.fetch_as(9, None).await.error, loading);
    assert_eq!(group.fetch_as(7, None).await.error, loading);
    assert_eq!(code(group.describe().await.error_code), loading);
    assert_eq!(group.delete().await, loading);
    assert_eq!(
        group.delete_offsets(&[(&topic, &[0])]).await.error(),
        loading
    );
    assert_eq!(group.leave(&[(&a.id(), None)]).await.error(), loading);
    // C58: a list is answered at once as well.
    let list = group.send(4, &ListGroupsRequest::default()).await.unwrap();
    assert_eq!(list.error(), loading);

    drop(held);
    world.available().await;
    assert_eq!(a.heartbeat().await, NONE);
    assert_eq!(group.committed(&topic, 0).await, 5);
    assert_eq!(a.commit(&topic, 0, 6).await, NONE);
}

#[tokio::test]
async fn c46_from_the_first_connection_on_nothing_half_loaded_is_told() {
    let mut world = world!(durable);
    let topic = world.topic(50).await;
    let client = world.connect().await;
    let ids: Vec<_> = (0..100).map(|_| world.name("group")).collect();
    for (id, offset) in ids.iter().zip(1..) {
        let offsets: Vec<_> = (0..50)
            .map(|partition| (&*topic, partition, offset))
            .collect();
        let reply = client
            .send_as(9, &commit_request(id, &offsets))
            .await
            .unwrap();
        assert_eq!(codes(&reply), [NONE; 50]);
    }
    let mut members = Vec::new();
    for _ in 0..10 {
        let [member] = world.group().stable(["m"]).await;
        members.push(member);
    }
    world.begin_restart().await;
    let client = world.connect().await;
    let loading = |error: ErrorCode| {
        [
            COORDINATOR_LOAD_IN_PROGRESS,
            NOT_COORDINATOR,
            COORDINATOR_NOT_AVAILABLE,
        ]
        .contains(&error)
    };
    let partitions: Vec<_> = (0..50).collect();
    let topics = [(&*topic, &partitions[..])];
    for (id, offset) in ids.iter().zip(1..) {
        within(id, async {
            loop {
                let request = fetch_request(9, &[(id, Some(&topics))]);
                let group = fetched(9, client.send_as(9, &request).await.unwrap()).remove(0);
                if !loading(group.error) {
                    assert_eq!(group.error, NONE);
                    assert!(
                        group
                            .partitions
                            .iter()
                            .all(|p| (p.2, p.5) == (offset, NONE)),
                        "{id}"
                    );
                    return;
                }
                for member in &members {
                    let beat = member.on(client.clone()).heartbeat().await;
                    assert!(beat == NONE || loading(beat), "{beat:?}");
                }
            }
        })
        .await;
    }
}

#[tokio::test]
async fn c48_history_does_not_grow_with_what_was_overwritten() {
    let world =
        world!(durable "offsets.topic.segment.bytes" = "4194304", "convoke.log.sync" = "none");
    if !world.is_ours() {
        return;
    }
    let topic = world.topic(50).await;
    let group = world.group();
    // About 200 KB live. Overwritten 200 times, that is 40 MB of history.
    for offset in 0..200 {
        let offsets: Vec<_> = (0..50).map(|p| (&*topic, p, offset)).collect();
        let mut request = group.commit_request(&offsets);
        for partition in &mut request.topics[0].partitions {
            partition.committed_metadata = Some("x".repeat(4_000).into());
        }
        let reply = group.send(9, &request).await.unwrap();
        assert_eq!(codes(&reply), [NONE; 50]);
    }
    within("a small log", async {
        while stored_bytes(world.folder()) > 24 << 20 {
            assert_eq!(group.find().await, NONE);
        }
    })
    .await;
}

/// The bytes of all files below a folder.
fn stored_bytes(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else {
        // It went while we looked.
        return 0;
    };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => stored_bytes(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

#[tokio::test]
async fn c44_a_deleted_group_does_not_come_back() {
    let mut world = world!(durable);
    let topic = world.topic(5).await;
    let id = world.name("group");
    {
        let group = world.group_named(&id);
        let offsets: Vec<_> = (0..5).map(|partition| (&*topic, partition, 9)).collect();
        assert_eq!(group.commit_all(&offsets).await, [NONE; 5]);
        assert_eq!(group.delete().await, NONE);
    }
    for round in 0..3 {
        {
            let group = world.group_named(&id);
            assert!(world.group_ids().await.is_empty());
            assert_eq!(group.state().await, "Dead");
            assert_eq!(group.committed(&topic, 4).await, -1);
            assert!(group.committed_all().await.is_empty());
        }
        match round {
            0 => world.restart().await,
            _ => world.stop_and_start().await,
        }
    }
}

#[tokio::test]
async fn c51_a_topic_made_again_starts_without_offsets() {
    let mut world = world!(durable);
    let name = world.name("topic");
    let old = world.create_topic(&name, 1).await;
    let id = world.name("group");
    let group = world.group_named(&id);
    assert_eq!(group.commit(&name, 0, 1_000).await, NONE);
    let client = world.connect().await;
    assert_eq!(fetch_by_id(&client, &id, old).await, (1_000, 0));

    world.delete_topic(&name).await;
    within("the offset to go", async {
        while group.committed(&name, 0).await != -1 {}
    })
    .await;
    assert_eq!(fetch_by_id(&client, &id, old).await, (-1, 100));

    let new = world.create_topic(&name, 1).await;
    assert_ne!(old, new);
    assert_eq!(group.committed(&name, 0).await, -1);
    assert_eq!(group.commit(&name, 0, 5).await, NONE);
    assert_eq!(commit_by_id(&client, &id, old, 1_001).await, 100);
    assert_eq!(fetch_by_id(&client, &id, new).await, (5, 0));
    drop(group);
    world.restart().await;
    assert_eq!(world.group_named(&id).committed(&name, 0).await, 5);
}

/// A compact string.
fn compact(out: &mut BytesMut, text: &str) {
    out.put_u8(u8::try_from(text.len() + 1).unwrap());
    out.put_slice(text.as_bytes());
}

/// OffsetFetch 10 of partition 0 of a topic id: offset and error code.
async fn fetch_by_id(client: &Client, group_id: &str, topic_id: Uuid) -> (i64, i16) {
    let mut body = BytesMut::new();
    body.put_u8(2);
    compact(&mut body, group_id);
    body.put_u8(0); // no member id
    body.put_i32(-1);
    body.put_u8(2);
    body.put_slice(topic_id.as_bytes());
    body.put_slice(&[2, 0, 0, 0, 0, 0, 0]); // partition 0; tags of topic and group
    body.put_slice(&[0, 0]); // not only stable; tags
    let reply = client.exchange(9, 10, true, &body).await;
    let mut reply = within("a fetch", async { reply }).await.unwrap();
    reply.advance(4 + 1 + 1 + group_id.len() + 1 + 16 + 1 + 4);
    let offset = reply.get_i64();
    let _leader_epoch = reply.get_i32();
    assert_eq!(reply.get_u8(), 1, "metadata is empty");
    (offset, reply.get_i16())
}

/// OffsetCommit 10 of partition 0 of a topic id, without membership: the error code.
async fn commit_by_id(client: &Client, group_id: &str, topic_id: Uuid, offset: i64) -> i16 {
    let mut body = BytesMut::new();
    compact(&mut body, group_id);
    body.put_i32(-1);
    body.put_slice(&[1, 0, 2]); // member id, instance id; one topic
    body.put_slice(topic_id.as_bytes());
    body.put_slice(&[2, 0, 0, 0, 0]);
    body.put_i64(offset);
    body.put_i32(-1);
    body.put_slice(&[1, 0, 0, 0]); // metadata; tags
    let mut reply = client.exchange(8, 10, true, &body).await.unwrap();
    reply.advance(4 + 1 + 16 + 1 + 4);
    reply.get_i16()
}

/// The server as a process.
struct Process {
    child: Child,
    bootstrap: String,
}

impl Process {
    fn start(data: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_convoke"))
            .args([
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--http",
                "off",
                "--data",
            ])
            .arg(data)
            .args(["--set", "group.initial.rebalance.delay.ms=0"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let bootstrap = lines
            .map_while(Result::ok)
            .find_map(|line| {
                line.trim()
                    .strip_prefix("bootstrap.servers=")
                    .map(str::to_owned)
            })
            .expect("the banner names its address");
        Self { child, bootstrap }
    }

    /// SIGKILL.
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A test that failed leaves no process behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn c43_what_was_acknowledged_survives_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let mut process = Process::start(folder.path());
    let world = World::at_address(&process.bootstrap);
    world.available().await;
    let topic = world.topic(1).await;
    let ids: Vec<_> = (0..20).map(|_| world.name("group")).collect();
    let acknowledged: Arc<Mutex<BTreeMap<String, i64>>> = Arc::default();
    let group_id = world.name("group");
    let [member] = world.group_named(&group_id).stable(["m"]).await;

    for round in 0..5 {
        let world = World::at_address(&process.bootstrap);
        world.available().await;
        let mut committers = JoinSet::new();
        for id in &ids {
            let (client, topic, id) = (world.connect().await, topic.clone(), id.clone());
            let acknowledged = acknowledged.clone();
            let next = acknowledged
                .lock()
                .unwrap()
                .get(&id)
                .map_or(0, |last| last + 1);
            committers.spawn(async move {
                for offset in next.. {
                    let commit = commit_request(&id, &[(&topic, 0, offset)]);
                    match client.send_as(9, &commit).await {
                        Ok(reply) => assert_eq!(codes(&reply), [NONE]),
                        Err(_) => return,
                    }
                    acknowledged.lock().unwrap().insert(id.clone(), offset);
                }
            });
        }
        // In the middle of it, after a few hundred more acknowledgements.
        let total = || acknowledged.lock().unwrap().values().sum::<i64>();
        let until = total() + 200 + 37 * round;
        within("acknowledgements", async {
            while total() < until {
                tokio::task::yield_now().await;
            }
        })
        .await;
        process.kill();
        within("the committers to notice", committers.join_all()).await;

        process = Process::start(folder.path());
        let world = World::at_address(&process.bootstrap);
        world.available().await;
        let all = acknowledged.lock().unwrap().clone();
        for (id, last) in all {
            let committed = world.group_named(&id).committed(&topic, 0).await;
            assert!(
                committed == last || committed == last + 1,
                "{id}: {committed}, not {last}"
            );
        }
        assert_eq!(member.on(world.connect().await).heartbeat().await, NONE);
    }
}
