//! Configs of topics and groups.

use super::*;

#[test]
fn topic_configs_are_set_checked_shown_and_obeyed() {
    run(async {
        let world = memory();
        world.create("t", 1, &[("retention.ms", "5000")]).await;
        assert_eq!(
            world.configs_of(2, "t").await["retention.ms"],
            ("5000".to_owned(), 1)
        );
        for (key, operation, value, code) in [
            ("retention.ms", 0, Some("x"), 40),
            ("retention.ms", 2, Some("1"), 40),
            ("retention.ms", 0, None, 42),
            ("retention.ms", 9, Some("1"), 42),
            ("foo", 0, Some("1"), 40),
            ("foo", 1, None, 0),
            ("cleanup.policy", 2, Some("compact"), 0),
            ("max.message.bytes", 0, Some("100"), 0),
            ("retention.ms", 1, None, 0),
        ] {
            assert_eq!(
                world.alter(2, "t", key, operation, value).await,
                code,
                "{key}"
            );
        }
        let configs = world.configs_of(2, "t").await;
        assert_eq!(configs["cleanup.policy"], ("delete,compact".to_owned(), 1));
        assert_eq!(configs["retention.ms"], ("604800000".to_owned(), 5));
        assert_eq!(
            world
                .produce("t", 0, batch(&[NOW_MS], 100))
                .await
                .error_code,
            10
        );
        assert_eq!(
            world
                .alter(2, "t", "cleanup.policy", 3, Some("delete"))
                .await,
            0
        );
        assert_eq!(
            world.configs_of(2, "t").await["cleanup.policy"].0,
            "compact"
        );
        assert_eq!(
            world.alter(2, "nope", "retention.ms", 0, Some("1")).await,
            3
        );
        assert_eq!(world.alter(4, "1", "node.id", 0, Some("1")).await, 42);
        // The older call replaces them all.
        let config = AlterableConfig::default()
            .with_name(text("segment.ms"))
            .with_value(Some(text("7")));
        let resource = AlterConfigsResource::default()
            .with_resource_type(2)
            .with_resource_name(text("t"))
            .with_configs(vec![config]);
        let request = AlterConfigsRequest::default().with_resources(vec![resource]);
        assert_eq!(
            world.broker.alter_configs(request).await.responses[0].error_code,
            0
        );
        let configs = world.configs_of(2, "t").await;
        assert_eq!(
            (
                configs["segment.ms"].0.as_str(),
                configs["max.message.bytes"].1
            ),
            ("7", 5)
        );
    });
}

#[test]
fn group_configs_are_set_told_and_kept() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        {
            let world = on_disk(dir.path());
            let key = "consumer.session.timeout.ms";
            for (name, key, value, code) in [
                ("", key, "50000", 42),
                ("g", "foo", "1", 40),
                ("g", key, "1", 40),
                ("g", key, "soon", 40),
                ("g", "consumer.heartbeat.interval.ms", "46000", 40),
                ("g", key, "50000", 0),
                ("g", "consumer.heartbeat.interval.ms", "46000", 0),
                ("g", key, "46000", 40),
            ] {
                assert_eq!(
                    world.alter(32, name, key, 0, Some(value)).await,
                    code,
                    "{key}={value}"
                );
            }
            assert_eq!(world.alter(32, "h", key, 0, Some("60000")).await, 0);
            assert_eq!(world.alter(32, "h", key, 1, None).await, 0);
            let told = world.groups.lock().unwrap();
            assert_eq!(
                told.iter()
                    .map(|change| change.configs.len())
                    .collect::<Vec<_>>(),
                [1, 2, 1, 0]
            );
        }
        let world = on_disk(dir.path());
        assert_eq!(world.broker.group_configs()["g"].len(), 2);
        let configs = world.configs_of(32, "g").await;
        assert_eq!(
            configs["consumer.session.timeout.ms"],
            ("50000".to_owned(), 8)
        );
        assert_eq!(
            world.configs_of(32, "none").await["consumer.session.timeout.ms"],
            ("45000".to_owned(), 5)
        );
        let resource = DescribeConfigsResource::default()
            .with_resource_type(32)
            .with_resource_name(text("g"))
            .with_configuration_keys(None);
        let request = DescribeConfigsRequest::default()
            .with_resources(vec![resource])
            .with_include_synonyms(true);
        let described = world.broker.describe_configs(&request, 4);
        let synonyms = described.results[0].configs.iter().map(|config| {
            let of = |synonym: &DescribeConfigsSynonym| {
                (synonym.value.as_deref().unwrap().to_owned(), synonym.source)
            };
            config.synonyms.iter().map(of).collect::<Vec<_>>()
        });
        let told = |values: &[(&str, i8)]| -> Vec<(String, i8)> {
            values.iter().map(|(v, s)| ((*v).to_owned(), *s)).collect()
        };
        assert_eq!(
            synonyms.collect::<Vec<_>>(),
            [
                told(&[("46000", 8), ("5000", 4), ("45000", 5)]),
                told(&[("50000", 8), ("45000", 5)]),
            ],
            "the group's own, the file's if it sets another, the built-in one"
        );
        let list = ListConfigResourcesRequest::default().with_resource_types(vec![32]);
        let listed = world
            .broker
            .list_config_resources(&list, 1)
            .config_resources;
        assert_eq!(
            listed
                .iter()
                .map(|resource| &*resource.resource_name)
                .collect::<Vec<_>>(),
            ["g"]
        );
    });
}
