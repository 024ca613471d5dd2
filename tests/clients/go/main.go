// One member that reads and commits, and tells everything it does, by franz-go: see tests/operated/members.py.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type offsets = map[string]map[int32]kgo.EpochOffset

type event = map[string]any

var (
	args     = map[string]string{}
	printing sync.Mutex
	owned    = map[int32]bool{}
	owning   sync.Mutex
	// What is uncommitted is looked up before the library puts commits in order: two at a time could go back.
	committing sync.Mutex
	lastError  string
)

func tell(name string, rest event) {
	printing.Lock()
	defer printing.Unlock()
	rest["ev"], rest["t"] = name, time.Now().UnixMicro()
	line, err := json.Marshal(rest)
	if err != nil {
		panic(err)
	}
	os.Stdout.Write(append(line, '\n'))
}

// code is Kafka's name of the error.
func code(err error) string {
	var known *kerr.Error
	if errors.As(err, &known) {
		return known.Message
	}
	return "ERROR"
}

func outcome(err error) event {
	if err == nil {
		return event{"ok": true}
	}
	return event{"ok": false, "err": code(err), "msg": err.Error()}
}

func told(err error) {
	if code(err) != lastError {
		tell("error", event{"err": code(err), "msg": err.Error()})
	}
	lastError = code(err)
}

// quarrels hears what the library says of its group by itself.
type quarrels struct{}

func (quarrels) OnGroupManageError(err error) { told(err) }

func indexes(of map[string][]int32) []int32 {
	out := []int32{}
	for _, partitions := range of {
		out = append(out, partitions...)
	}
	return out
}

func commitUncommitted(ctx context.Context, client *kgo.Client) event {
	committing.Lock()
	defer committing.Unlock()
	return outcome(client.CommitUncommittedOffsets(ctx))
}

func own(partitions []int32, has bool) []int32 {
	owning.Lock()
	defer owning.Unlock()
	for _, p := range partitions {
		owned[p] = has
	}
	return partitions
}

func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func commitError(resp *kmsg.OffsetCommitResponse, err error) error {
	if err != nil || resp == nil {
		return err
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				return kerr.ErrorForCode(p.ErrorCode)
			}
		}
	}
	return nil
}

// commitSync commits as the member, or without membership in assign mode.
func commitSync(client *kgo.Client, what offsets) (out error) {
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Second)
	defer cancel()
	if args["parts"] != "" {
		var list kadm.Offsets
		for t, of := range what {
			for p, o := range of {
				list.Add(kadm.Offset{Topic: t, Partition: p, At: o.Offset, LeaderEpoch: -1})
			}
		}
		done, err := kadm.NewClient(client).CommitOffsets(ctx, args["group"], list)
		if err == nil {
			err = done.Error()
		}
		return err
	}
	client.CommitOffsetsSync(ctx, what, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		out = commitError(resp, err)
	})
	return out
}

func main() {
	for _, word := range os.Args[1:] {
		name, value, _ := strings.Cut(word, "=")
		args[name] = value
	}
	topic, commits := args["topic"], args["commits"]
	opts := []kgo.Opt{
		kgo.SeedBrokers(args["bootstrap"]), kgo.ClientID(args["client"]), kgo.WithHooks(quarrels{}),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100 * time.Millisecond), kgo.MetadataMinAge(100 * time.Millisecond),
	}
	if args["parts"] != "" {
		at := map[int32]kgo.Offset{}
		for _, index := range strings.Split(args["parts"], ",") {
			at[int32(number(index))] = kgo.NewOffset().AtStart()
		}
		opts = append(opts, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: at}))
	} else {
		opts = append(opts, kgo.ConsumerGroup(args["group"]), kgo.ConsumeTopics(topic),
			kgo.RebalanceTimeout(time.Duration(number(args["rebalance_ms"]))*time.Millisecond),
			kgo.OnPartitionsAssigned(func(_ context.Context, client *kgo.Client, of map[string][]int32) {
				member, _ := client.GroupMetadata()
				tell("assigned", event{"p": own(indexes(of), true), "member": member})
			}),
			kgo.OnPartitionsRevoked(func(ctx context.Context, client *kgo.Client, of map[string][]int32) {
				// The library does so by itself only where nobody else listens.
				if commits != "sync" {
					tell("commit", commitUncommitted(ctx, client))
				}
				tell("revoked", event{"p": own(indexes(of), false)})
			}),
			kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, of map[string][]int32) {
				tell("lost", event{"p": own(indexes(of), false)})
			}))
		if args["instance"] != "" {
			opts = append(opts, kgo.InstanceID(args["instance"]))
		}
		switch commits {
		case "sync":
			opts = append(opts, kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll())
		case "auto":
			opts = append(opts, kgo.AutoCommitInterval(200*time.Millisecond), kgo.AutoCommitCallback(
				func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
					tell("commit", outcome(commitError(resp, err)))
				}))
		default:
			opts = append(opts, kgo.DisableAutoCommit())
		}
		switch args["protocol"] {
		case "consumer":
			opts = append(opts, kgo.ServerSideBalancer())
		case "cooperative":
			opts = append(opts, kgo.Balancers(kgo.CooperativeStickyBalancer()))
		default:
			opts = append(opts, kgo.Balancers(kgo.RangeBalancer()))
		}
		if args["protocol"] != "consumer" {
			opts = append(opts, kgo.SessionTimeout(time.Duration(number(args["session_ms"]))*time.Millisecond), kgo.HeartbeatInterval(500*time.Millisecond))
		}
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		panic(err)
	}
	commands := make(chan string, 100)
	go func() {
		in := bufio.NewScanner(os.Stdin)
		for in.Scan() {
			commands <- in.Text()
		}
		// Whoever started it is gone.
		os.Exit(1)
	}()
	for {
		select {
		case line := <-commands:
			words := strings.Fields(line)
			switch words[0] {
			case "close":
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				if args["parts"] == "" {
					client.AllowRebalance()
					if commits != "sync" {
						commitUncommitted(ctx, client)
					}
					err = client.LeaveGroupContext(ctx)
				}
				cancel()
				client.Close()
				tell("done", outcome(err))
				return
			case "hold":
				// Only who has read something holds up a rebalance.
				for !read(client, topic, commits) {
				}
				tell("holds", event{})
				time.Sleep(time.Duration(number(words[1])) * time.Millisecond)
				tell("done", event{"ok": true})
			case "commit", "insist":
				what, isLost := map[int32]kgo.EpochOffset{}, false
				owning.Lock()
				for i := 1; i < len(words); i += 2 {
					p := int32(number(words[i]))
					what[p] = kgo.EpochOffset{Epoch: -1, Offset: number(words[i+1])}
					isLost = isLost || words[0] == "commit" && args["parts"] == "" && !owned[p]
				}
				owning.Unlock()
				if isLost {
					tell("done", event{"ok": false, "err": "LOST"})
				} else {
					tell("done", outcome(commitSync(client, offsets{topic: what})))
				}
			case "config":
				value, err := configure(client, words[1], words[2])
				rest := outcome(err)
				rest["value"] = value
				tell("done", rest)
			default:
				panic(line)
			}
		default:
		}
		read(client, topic, commits)
		if commits == "sync" {
			client.AllowRebalance()
		}
	}
}

// configure sets a config of the group and reads it back.
func configure(client *kgo.Client, key, value string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Second)
	defer cancel()
	config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	config.Name, config.Value = key, &value
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeGroupConfig, args["group"]
	resource.Configs = append(resource.Configs, config)
	set := kmsg.NewPtrIncrementalAlterConfigsRequest()
	set.Resources = append(set.Resources, resource)
	done, err := set.RequestWith(ctx, client)
	if err != nil {
		return "", err
	}
	if err := kerr.ErrorForCode(done.Resources[0].ErrorCode); err != nil {
		return "", err
	}
	of := kmsg.NewDescribeConfigsRequestResource()
	of.ResourceType, of.ResourceName, of.ConfigNames = resource.ResourceType, resource.ResourceName, []string{key}
	ask := kmsg.NewPtrDescribeConfigsRequest()
	ask.Resources = append(ask.Resources, of)
	told, err := ask.RequestWith(ctx, client)
	if err != nil {
		return "", err
	}
	return *told.Resources[0].Configs[0].Value, kerr.ErrorForCode(told.Resources[0].ErrorCode)
}

// read returns whether there was anything.
func read(client *kgo.Client, topic, commits string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	fetches := client.PollRecords(ctx, 100)
	fetches.EachError(func(_ string, _ int32, err error) {
		if !errors.Is(err, context.DeadlineExceeded) {
			told(err)
		}
	})
	rows := [][3]any{}
	done := map[int32]kgo.EpochOffset{}
	fetches.EachRecord(func(r *kgo.Record) {
		rows = append(rows, [3]any{r.Partition, r.Offset, string(r.Value)})
		done[r.Partition] = kgo.EpochOffset{Epoch: -1, Offset: r.Offset + 1}
	})
	if len(rows) == 0 {
		return false
	}
	lastError = ""
	tell("read", event{"m": rows})
	switch commits {
	case "sync":
		tell("commit", outcome(commitSync(client, offsets{topic: done})))
	case "revoke":
		tell("commit", commitUncommitted(context.Background(), client))
	}
	return true
}
