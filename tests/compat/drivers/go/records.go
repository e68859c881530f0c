package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// header travels as the pair [name, base64 or null].
type header struct {
	name  string
	value []byte
}

func (h header) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{h.name, h.value})
}

func (h *header) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&h.name, &h.value})
}

type record struct {
	Partition   *int32   `json:"partition"`
	Offset      int64    `json:"offset"`
	TimestampMs *int64   `json:"timestamp_ms"`
	Key         []byte   `json:"key"`
	Value       []byte   `json:"value"`
	Headers     []header `json:"headers"`
}

type produceArguments struct {
	Topic      string   `json:"topic"`
	Records    []record `json:"records"`
	Acks       int      `json:"acks"`
	Codec      string   `json:"codec"`
	Idempotent bool     `json:"idempotent"`
}

type delivery struct {
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`
	Error     *failure `json:"error,omitempty"`
}

func codecOf(name string) kgo.CompressionCodec {
	switch name {
	case "gzip":
		return kgo.GzipCompression()
	case "snappy":
		return kgo.SnappyCompression()
	case "lz4":
		return kgo.Lz4Compression()
	case "zstd":
		return kgo.ZstdCompression()
	}
	return kgo.NoCompression()
}

func (d *driver) producerOptions(asked produceArguments) []kgo.Opt {
	options := []kgo.Opt{
		kgo.SeedBrokers(d.servers...),
		kgo.ProducerBatchCompression(codecOf(asked.Codec)),
		kgo.ProducerLinger(20 * time.Millisecond),
		kgo.RecordPartitioner(byRecord{kgo.StickyKeyPartitioner(nil)}),
	}
	switch asked.Acks {
	case 0:
		options = append(options, kgo.RequiredAcks(kgo.NoAck()))
	case 1:
		options = append(options, kgo.RequiredAcks(kgo.LeaderAck()))
	default:
		options = append(options, kgo.RequiredAcks(kgo.AllISRAcks()))
	}
	if !asked.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	return options
}

// unchosen marks a record whose partition is left to its key.
const unchosen = -1

// byRecord takes the partition that a record names and asks the usual partitioner otherwise.
type byRecord struct{ usual kgo.Partitioner }

type byRecordInTopic struct{ kgo.TopicPartitioner }

func (p byRecord) ForTopic(topic string) kgo.TopicPartitioner {
	return byRecordInTopic{p.usual.ForTopic(topic)}
}

func (p byRecordInTopic) Partition(r *kgo.Record, count int) int {
	if r.Partition != unchosen {
		return int(r.Partition)
	}
	return p.TopicPartitioner.Partition(r, count)
}

func (p byRecordInTopic) RequiresConsistency(r *kgo.Record) bool {
	return r.Partition != unchosen || p.TopicPartitioner.RequiresConsistency(r)
}

func (d *driver) produce(ctx context.Context, raw json.RawMessage) (any, error) {
	asked, err := decode[produceArguments](raw)
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(d.producerOptions(asked)...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	deliveries := sendAll(ctx, client, asked.Topic, asked.Records)
	if asked.Acks == 0 {
		for index := range deliveries {
			deliveries[index].Offset = -1
		}
	}
	return deliveries, nil
}

func kafkaRecord(topic string, given record) *kgo.Record {
	made := &kgo.Record{Topic: topic, Key: given.Key, Value: given.Value, Partition: unchosen}
	for _, h := range given.Headers {
		made.Headers = append(made.Headers, kgo.RecordHeader{Key: h.name, Value: h.value})
	}
	if given.Partition != nil {
		made.Partition = *given.Partition
	}
	if given.TimestampMs != nil {
		made.Timestamp = time.UnixMilli(*given.TimestampMs)
	}
	return made
}

type consumerArguments struct {
	Topic      string  `json:"topic"`
	Partition  int32   `json:"partition"`
	Partitions []int32 `json:"partitions"`
	Offset     int64   `json:"offset"`
	Reset      string  `json:"reset"`
	Isolation  string  `json:"isolation"`
	FetchBytes int32   `json:"fetch_bytes"`
	Count      int     `json:"count"`
	TimeoutMs  int64   `json:"timeout_ms"`
	Start      struct {
		At          string `json:"at"`
		Offset      int64  `json:"offset"`
		TimestampMs int64  `json:"timestamp_ms"`
	} `json:"start"`
}

// fetchSeen tells when the first fetch is on its way: the start offset is resolved by then.
type fetchSeen struct {
	once sync.Once
	seen chan struct{}
}

func (f *fetchSeen) OnBrokerWrite(
	_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error,
) {
	if key == int16(kmsg.Fetch) && err == nil {
		f.once.Do(func() { close(f.seen) })
	}
}

func (a consumerArguments) startOffset() kgo.Offset {
	switch a.Start.At {
	case "earliest":
		return kgo.NewOffset().AtStart()
	case "latest":
		return kgo.NewOffset().AtEnd()
	case "timestamp":
		return kgo.NewOffset().AfterMilli(a.Start.TimestampMs)
	}
	return kgo.NewOffset().At(a.Start.Offset)
}

func (a consumerArguments) resetOffset() kgo.Offset {
	switch a.Reset {
	case "earliest":
		return kgo.NewOffset().AtStart()
	case "latest":
		return kgo.NewOffset().AtEnd()
	}
	return kgo.NoResetOffset()
}

func (d *driver) consumerOpen(ctx context.Context, raw json.RawMessage) (any, error) {
	asked, err := decode[consumerArguments](raw)
	if err != nil {
		return nil, err
	}
	places := map[int32]kgo.Offset{}
	for _, partition := range asked.Partitions {
		places[partition] = asked.startOffset()
	}
	isolation := kgo.ReadUncommitted()
	if asked.Isolation == "read_committed" {
		isolation = kgo.ReadCommitted()
	}
	hook := &fetchSeen{seen: make(chan struct{})}
	d.consumer, err = kgo.NewClient(
		kgo.SeedBrokers(d.servers...),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{asked.Topic: places}),
		kgo.ConsumeResetOffset(asked.resetOffset()),
		kgo.FetchIsolationLevel(isolation),
		kgo.FetchMaxWait(500*time.Millisecond),
		kgo.FetchMaxPartitionBytes(asked.FetchBytes),
		kgo.WithHooks(hook),
	)
	if err != nil || asked.Start.At != "latest" {
		return nil, err
	}
	select {
	case <-hook.seen:
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (d *driver) consumerRead(_ context.Context, raw json.RawMessage) (any, error) {
	asked, err := decode[consumerArguments](raw)
	if err != nil {
		return nil, err
	}
	limit := time.Duration(asked.TimeoutMs) * time.Millisecond
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	found := []record{}
	for len(found) < asked.Count && ctx.Err() == nil {
		fetches := d.consumer.PollRecords(ctx, asked.Count-len(found))
		for _, failed := range fetches.Errors() {
			if ctx.Err() == nil {
				return nil, fmt.Errorf("partition %d: %w", failed.Partition, failed.Err)
			}
		}
		for _, r := range fetches.Records() {
			found = append(found, consumed(r))
		}
	}
	return found, nil
}

func consumed(r *kgo.Record) record {
	milli := r.Timestamp.UnixMilli()
	headers := []header{}
	for _, h := range r.Headers {
		headers = append(headers, header{h.Key, h.Value})
	}
	return record{&r.Partition, r.Offset, &milli, r.Key, r.Value, headers}
}

func (d *driver) consumerSeek(_ context.Context, raw json.RawMessage) (any, error) {
	asked, err := decode[consumerArguments](raw)
	if err != nil {
		return nil, err
	}
	offset := kgo.EpochOffset{Epoch: -1, Offset: asked.Offset}
	d.consumer.SetOffsets(map[string]map[int32]kgo.EpochOffset{
		asked.Topic: {asked.Partition: offset},
	})
	return nil, nil
}

func (d *driver) consumerClose(_ context.Context, _ json.RawMessage) (any, error) {
	if d.consumer != nil {
		d.consumer.Close()
		d.consumer = nil
	}
	return nil, nil
}
