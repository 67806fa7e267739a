// A client of franz-go, driven by lines of JSON; what they say stands in ../__init__.py.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const closedWithin = 15 * time.Second

type settings struct {
	Bootstrap   string `json:"bootstrap"`
	GroupID     string `json:"group_id"`
	Topic       string `json:"topic"`
	InstanceID  string `json:"instance_id"`
	SessionMs   int    `json:"session_ms"`
	HeartbeatMs int    `json:"heartbeat_ms"`
}

type request struct {
	ID        int    `json:"id"`
	Do        string `json:"do"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Value     string `json:"value"`
}

type line map[string]any

var out struct {
	sync.Mutex
	*json.Encoder
}

func say(event string, more line) {
	more["event"] = event
	out.Lock()
	defer out.Unlock()
	if err := out.Encode(more); err != nil {
		os.Exit(1) // nobody listens any more
	}
}

func main() {
	out.Encoder = json.NewEncoder(os.Stdout)
	var with settings
	if err := json.Unmarshal([]byte(os.Args[1]), &with); err != nil {
		panic(err)
	}
	client, err := kgo.NewClient(options(with)...)
	if err != nil {
		say("error", line{"message": err.Error(), "is_fatal": true})
		os.Exit(1)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if with.GroupID != "" {
		go consume(ctx, client)
	}
	requests := bufio.NewScanner(os.Stdin)
	requests.Buffer(nil, 64<<20)
	for requests.Scan() {
		var asked request
		if err := json.Unmarshal(requests.Bytes(), &asked); err != nil {
			panic(err)
		}
		answer(client, with, asked)
	}
	time.AfterFunc(closedWithin, func() { os.Exit(1) })
	cancel()
	client.Close()
	say("closed", line{})
}

func options(with settings) []kgo.Opt {
	chosen := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(with.Bootstrap, ",")...),
		kgo.DefaultProduceTopic(with.Topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.AllowAutoTopicCreation(),
		kgo.MetadataMinAge(100 * time.Millisecond),
	}
	if with.GroupID == "" {
		return chosen
	}
	chosen = append(chosen,
		kgo.ConsumerGroup(with.GroupID),
		kgo.ConsumeTopics(with.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.Balancers(kgo.RangeBalancer()),
		kgo.DisableAutoCommit(),
		kgo.SessionTimeout(time.Duration(with.SessionMs)*time.Millisecond),
		kgo.HeartbeatInterval(time.Duration(with.HeartbeatMs)*time.Millisecond),
		kgo.OnPartitionsAssigned(func(_ context.Context, client *kgo.Client, got map[string][]int32) {
			memberID, generation := client.GroupMetadata()
			partitions := append([]int32{}, got[with.Topic]...)
			say("assigned", line{"partitions": partitions, "member_id": memberID, "generation_id": generation})
		}),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
			say("revoked", line{"partitions": append([]int32{}, lost[with.Topic]...)})
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
			say("lost", line{"partitions": append([]int32{}, lost[with.Topic]...)})
		}),
	)
	if with.InstanceID != "" {
		chosen = append(chosen, kgo.InstanceID(with.InstanceID))
	}
	return chosen
}

func consume(ctx context.Context, client *kgo.Client) {
	for ctx.Err() == nil {
		fetched := client.PollFetches(ctx)
		if fetched.IsClientClosed() {
			return
		}
		fetched.EachError(func(topic string, partition int32, err error) {
			if ctx.Err() == nil {
				isFatal := errors.Is(err, kerr.FencedInstanceID) || errors.Is(err, kerr.GroupAuthorizationFailed)
				say("error", line{"message": err.Error(), "is_fatal": isFatal})
			}
		})
		fetched.EachRecord(func(record *kgo.Record) {
			say("record", line{
				"partition": record.Partition, "offset": record.Offset, "value": string(record.Value),
			})
		})
	}
}

func answer(client *kgo.Client, with settings, asked request) {
	ctx, cancel := context.WithTimeout(context.Background(), closedWithin)
	defer cancel()
	var result any
	var err error
	switch asked.Do {
	case "commit":
		err = commit(ctx, client, with.Topic, asked)
	case "committed":
		result, err = committed(ctx, client, with, asked.Partition)
	case "produce":
		record := &kgo.Record{Partition: asked.Partition, Value: []byte(asked.Value)}
		err = client.ProduceSync(ctx, record).FirstErr()
		result = record.Offset
	default:
		err = errors.New("no such thing to do: " + asked.Do)
	}
	done := line{"id": asked.ID, "result": result}
	if err != nil {
		done["error"] = err.Error()
	}
	say("done", done)
}

func commit(ctx context.Context, client *kgo.Client, topic string, asked request) error {
	var refused error
	offsets := map[string]map[int32]kgo.EpochOffset{topic: {asked.Partition: {Epoch: -1, Offset: asked.Offset}}}
	client.CommitOffsetsSync(ctx, offsets, func(
		_ *kgo.Client, _ *kmsg.OffsetCommitRequest, answered *kmsg.OffsetCommitResponse, err error,
	) {
		refused = err
		if answered == nil {
			return
		}
		for _, topic := range answered.Topics {
			for _, partition := range topic.Partitions {
				if code := kerr.ErrorForCode(partition.ErrorCode); code != nil {
					refused = code
				}
			}
		}
	})
	return refused
}

func committed(ctx context.Context, client *kgo.Client, with settings, partition int32) (any, error) {
	asking := kmsg.NewPtrOffsetFetchRequest()
	asking.Group = with.GroupID
	topic := kmsg.NewOffsetFetchRequestTopic()
	topic.Topic = with.Topic
	topic.Partitions = []int32{partition}
	asking.Topics = append(asking.Topics, topic)
	answered, err := asking.RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	if code := kerr.ErrorForCode(answered.ErrorCode); code != nil {
		return nil, code
	}
	for _, topic := range answered.Topics {
		for _, each := range topic.Partitions {
			if each.Offset >= 0 {
				return each.Offset, kerr.ErrorForCode(each.ErrorCode)
			}
		}
	}
	return nil, nil
}
