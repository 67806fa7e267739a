// A consumer of franz-go that obeys lines of its input; they stand in tests/clients/endings/member.py.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	with := map[string]string{}
	for _, each := range os.Args[1:] {
		name, value, _ := strings.Cut(each, "=")
		with[name] = value
	}
	lines := make(chan string, 100)
	go read(lines)
	ctx, cancel := context.WithCancel(context.Background())
	if with["handles_sigterm"] == "true" {
		ctx, cancel = signal.NotifyContext(ctx, syscall.SIGTERM)
	}
	defer cancel()
	client, err := kgo.NewClient(options(with)...)
	if err != nil {
		panic(err)
	}
	closed := false
	for ctx.Err() == nil {
		if closed {
			time.Sleep(50 * time.Millisecond)
		} else {
			polling, done := context.WithTimeout(ctx, 50*time.Millisecond)
			client.PollFetches(polling).EachError(func(_ string, _ int32, err error) {
				if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
					fmt.Println("error", err)
				}
			})
			done()
		}
		select {
		case line := <-lines:
			closed = obey(client, with["topic"], line) || closed
		default:
		}
	}
	client.Close()
}

func options(with map[string]string) []kgo.Opt {
	chosen := []kgo.Opt{
		kgo.SeedBrokers(with["bootstrap"]),
		kgo.ClientID(with["client_id"]),
		kgo.ConsumerGroup(with["group_id"]),
		kgo.ConsumeTopics(with["topic"]),
		kgo.DisableAutoCommit(),
		kgo.SessionTimeout(ms(with["session_ms"])),
		kgo.HeartbeatInterval(ms(with["heartbeat_ms"])),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, got map[string][]int32) {
			partitions.Store(append([]int32{}, got[with["topic"]]...))
		}),
	}
	if with["instance_id"] != "" {
		chosen = append(chosen, kgo.InstanceID(with["instance_id"]))
	}
	return chosen
}

var partitions atomic.Value

// Whether the client is closed now.
func obey(client *kgo.Client, topic string, line string) bool {
	words := strings.Fields(line)
	switch words[0] {
	case "commit":
		offsets := map[int32]kgo.EpochOffset{}
		for _, partition := range partitions.Load().([]int32) {
			offsets[partition] = kgo.EpochOffset{Epoch: -1, Offset: 1}
		}
		client.CommitOffsetsSync(context.Background(), map[string]map[int32]kgo.EpochOffset{topic: offsets}, nil)
	case "stall":
		seconds, err := strconv.ParseFloat(words[1], 64)
		if err != nil {
			panic(err)
		}
		time.Sleep(time.Duration(seconds * float64(time.Second)))
	case "unsubscribe":
		client.PurgeTopicsFromConsuming(topic)
	case "subscribe":
		client.AddConsumeTopics(topic)
	case "close":
		client.Close()
		return true
	case "raise":
		panic("nobody catches this")
	default:
		panic("not understood: " + line)
	}
	return false
}

func ms(text string) time.Duration {
	number, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return time.Duration(number) * time.Millisecond
}

func read(lines chan<- string) {
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		lines <- input.Text()
	}
	os.Exit(3)
}
