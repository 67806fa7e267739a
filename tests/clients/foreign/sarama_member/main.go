// A consumer of sarama that obeys lines of its input; they stand in tests/clients/endings/member.py.
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
	"sync"
	"syscall"
	"time"

	"github.com/IBM/sarama"
)

func main() {
	with := map[string]string{}
	for _, each := range os.Args[1:] {
		name, value, _ := strings.Cut(each, "=")
		with[name] = value
	}
	lines := make(chan string, 100)
	go read(lines)
	ctx := context.Background()
	if with["handles_sigterm"] == "true" {
		var cancel context.CancelFunc
		ctx, cancel = signal.NotifyContext(ctx, syscall.SIGTERM)
		defer cancel()
	}
	group, err := sarama.NewConsumerGroup([]string{with["bootstrap"]}, with["group_id"], config(with))
	if err != nil {
		panic(err)
	}
	member := &member{group: group, topic: with["topic"]}
	member.subscribe(ctx)
	closed := false
	for !closed || with["handles_sigterm"] != "true" {
		select {
		case <-ctx.Done():
			member.unsubscribe()
			if !closed {
				group.Close()
			}
			return
		case line := <-lines:
			closed = member.obey(ctx, line) || closed
		}
	}
	<-ctx.Done()
}

func config(with map[string]string) *sarama.Config {
	config := sarama.NewConfig()
	config.ClientID = with["client_id"]
	config.Version = sarama.MaxVersion
	config.Consumer.Group.InstanceId = with["instance_id"]
	config.Consumer.Group.Session.Timeout = ms(with["session_ms"])
	config.Consumer.Group.Heartbeat.Interval = ms(with["heartbeat_ms"])
	config.Consumer.Group.Rebalance.Timeout = ms(with["poll_interval_ms"])
	config.Consumer.MaxProcessingTime = ms(with["poll_interval_ms"])
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	return config
}

// A consumer group that consumes, or does not. It is its own handler, as sarama's examples have it.
type member struct {
	group   sarama.ConsumerGroup
	topic   string
	lock    sync.Mutex
	session sarama.ConsumerGroupSession
	cancel  context.CancelFunc
	done    chan struct{}
}

func (member *member) Setup(session sarama.ConsumerGroupSession) error {
	member.lock.Lock()
	defer member.lock.Unlock()
	member.session = session
	return nil
}

func (member *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (member *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case _, more := <-claim.Messages():
			if !more {
				return nil
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

func (member *member) subscribe(above context.Context) {
	var ctx context.Context
	ctx, member.cancel = context.WithCancel(above)
	member.done = make(chan struct{})
	go func() {
		defer close(member.done)
		for ctx.Err() == nil {
			err := member.group.Consume(ctx, []string{member.topic}, member)
			if errors.Is(err, sarama.ErrClosedConsumerGroup) {
				return
			}
			if err != nil {
				fmt.Println("error", err)
				time.Sleep(100 * time.Millisecond)
			}
		}
	}()
}

// The nearest that sarama has: Consume is left, and called again.
func (member *member) unsubscribe() {
	member.cancel()
	<-member.done
}

// Whether the client is closed now.
func (member *member) obey(ctx context.Context, line string) bool {
	words := strings.Fields(line)
	switch words[0] {
	case "commit":
		member.lock.Lock()
		defer member.lock.Unlock()
		for _, partition := range member.session.Claims()[member.topic] {
			member.session.MarkOffset(member.topic, partition, 1, "")
		}
		member.session.Commit()
	case "stall":
		seconds, err := strconv.ParseFloat(words[1], 64)
		if err != nil {
			panic(err)
		}
		time.Sleep(time.Duration(seconds * float64(time.Second)))
	case "unsubscribe":
		member.unsubscribe()
	case "subscribe":
		member.subscribe(ctx)
	case "close":
		if err := member.group.Close(); err != nil {
			fmt.Println("error", err)
		}
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
