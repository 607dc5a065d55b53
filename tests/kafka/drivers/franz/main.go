// Drives franz-go. argv: role, options.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
)

type options struct {
	Brokers         string `json:"brokers"`
	Password        string `json:"password"`
	Topic           string `json:"topic"`
	Output          string `json:"output"`
	Group           string `json:"group"`
	Instance        string `json:"instance"`
	TransactionalID string `json:"transactional_id"`
	Codec           string `json:"codec"`
	Sender          string `json:"sender"`
	Idempotent      bool   `json:"idempotent"`
	First           int    `json:"first"`
	Count           int    `json:"count"`
	PauseMs         int    `json:"pause_ms"`
}

var (
	given   options
	telling sync.Mutex
)

func tell(event map[string]any) {
	line, _ := json.Marshal(event)
	telling.Lock()
	defer telling.Unlock()
	fmt.Println(string(line))
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// untilStdinEnds is done when the test has seen enough.
func untilStdinEnds() context.Context {
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	return ctx
}

func connection(more ...kgo.Opt) []kgo.Opt {
	login := plain.Auth{User: "anybody", Pass: given.Password}.AsMechanism()
	return append([]kgo.Opt{kgo.SeedBrokers(given.Brokers), kgo.SASL(login)}, more...)
}

func grouped(more ...kgo.Opt) []kgo.Opt {
	var lock sync.Mutex
	held := map[string]map[int32]bool{}
	changed := func(parts map[string][]int32, now bool) {
		lock.Lock()
		defer lock.Unlock()
		for topic, some := range parts {
			if held[topic] == nil {
				held[topic] = map[int32]bool{}
			}
			for _, part := range some {
				held[topic][part] = now
			}
		}
		all := [][]any{}
		for topic, some := range held {
			for part, is := range some {
				if is {
					all = append(all, []any{topic, part})
				}
			}
		}
		tell(map[string]any{"assigned": all, "ready": true})
	}
	settings := []kgo.Opt{
		kgo.ConsumerGroup(given.Group), kgo.ConsumeTopics(given.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.SessionTimeout(6 * time.Second), kgo.HeartbeatInterval(500 * time.Millisecond),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, parts map[string][]int32) { changed(parts, true) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, parts map[string][]int32) { changed(parts, false) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, parts map[string][]int32) { changed(parts, false) }),
	}
	if given.Instance != "" {
		settings = append(settings, kgo.InstanceID(given.Instance))
	}
	return connection(append(settings, more...)...)
}

func produce() {
	codec := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}[given.Codec]
	settings := []kgo.Opt{kgo.ProducerBatchCompression(codec)}
	if !given.Idempotent {
		settings = append(settings, kgo.DisableIdempotentWrite())
	}
	client, err := kgo.NewClient(connection(settings...)...)
	must(err)
	for n := given.First; n < given.First+given.Count; n++ {
		client.Produce(context.Background(), &kgo.Record{
			Topic: given.Topic, Key: []byte("k" + strconv.Itoa(n%8)), Value: []byte(strconv.Itoa(n)),
			Headers: []kgo.RecordHeader{{Key: "from", Value: []byte(given.Sender)}},
		}, func(_ *kgo.Record, err error) {
			if err != nil {
				tell(map[string]any{"failed": n, "error": err.Error()})
			} else {
				tell(map[string]any{"acked": n})
			}
		})
		time.Sleep(time.Duration(given.PauseMs) * time.Millisecond)
	}
	must(client.Flush(context.Background()))
	client.Close()
}

func tellRecord(record *kgo.Record) {
	var from any
	for _, header := range record.Headers {
		if header.Key == "from" {
			from = string(header.Value)
		}
	}
	tell(map[string]any{"record": []any{
		record.Topic, record.Partition, record.Offset, string(record.Key), string(record.Value), from,
	}})
}

func consume() {
	client, err := kgo.NewClient(connection(
		kgo.ConsumeTopics(given.Topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	)...)
	must(err)
	for seen := 0; seen < given.Count; {
		client.PollFetches(context.Background()).EachRecord(func(record *kgo.Record) {
			tellRecord(record)
			seen++
		})
	}
	client.Close()
}

func member() {
	ctx := untilStdinEnds()
	client, err := kgo.NewClient(grouped(kgo.DisableAutoCommit())...)
	must(err)
	for ctx.Err() == nil {
		fetched := client.PollFetches(ctx)
		fetched.EachRecord(tellRecord)
		if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
			tell(map[string]any{"error": err.Error()})
		}
	}
	client.Close()
}

func transform() {
	ctx := untilStdinEnds()
	for ctx.Err() == nil {
		if err := work(ctx); err != nil && ctx.Err() == nil {
			tell(map[string]any{"retry": err.Error()})
		}
	}
}

// work transforms with one session, until it fails.
func work(ctx context.Context) error {
	session, err := kgo.NewGroupTransactSession(grouped(
		kgo.TransactionalID(given.TransactionalID), kgo.TransactionTimeout(30*time.Second),
		kgo.RequireStableFetchOffsets(),
	)...)
	if err != nil {
		return err
	}
	defer session.Close()
	for rounds := 1; ctx.Err() == nil; {
		fetched := session.PollRecords(ctx, 20)
		if fetched.NumRecords() == 0 {
			continue
		}
		if err := session.Begin(); err != nil {
			return err
		}
		values := []int{}
		fetched.EachRecord(func(record *kgo.Record) {
			value, _ := strconv.Atoi(string(record.Value))
			values = append(values, value)
			session.Produce(ctx, &kgo.Record{Topic: given.Output, Key: record.Key, Value: record.Value}, nil)
		})
		wanted := kgo.TransactionEndTry(rounds%4 != 0)
		rounds++
		committed, err := session.End(context.Background(), wanted)
		if err != nil {
			return err
		}
		if committed {
			tell(map[string]any{"committed": values})
		}
	}
	return nil
}

func main() {
	must(json.Unmarshal([]byte(os.Args[2]), &given))
	map[string]func(){"produce": produce, "consume": consume, "member": member, "transform": transform}[os.Args[1]]()
	tell(map[string]any{"done": true})
}
