package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// place travels as the pair [topic, partition].
type place struct {
	topic     string
	partition int32
}

func (p place) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{p.topic, p.partition})
}

// placeOffset travels as the triple [topic, partition, offset].
type placeOffset struct {
	place
	offset int64
}

func (p placeOffset) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{p.topic, p.partition, p.offset})
}

func (p *placeOffset) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&p.topic, &p.partition, &p.offset})
}

// member is a consumer that counts what its rebalances gave and took; the client calls back from
// goroutines of its own.
type member struct {
	client     *kgo.Client
	session    *kgo.GroupTransactSession
	group      string
	lock       sync.Mutex
	assignment []place
	revoked    []place
	rebalances int
}

func placesOf(partitions map[string][]int32) []place {
	places := []place{}
	for topic, numbers := range partitions {
		for _, number := range numbers {
			places = append(places, place{topic, number})
		}
	}
	return places
}

func (m *member) onAssigned(_ context.Context, _ *kgo.Client, added map[string][]int32) {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.rebalances++
	m.assignment = append(m.assignment, placesOf(added)...)
}

func (m *member) onRevoked(_ context.Context, _ *kgo.Client, removed map[string][]int32) {
	m.lock.Lock()
	defer m.lock.Unlock()
	places := placesOf(removed)
	m.revoked = append(m.revoked, places...)
	m.assignment = slices.DeleteFunc(m.assignment, func(owned place) bool {
		return slices.Contains(places, owned)
	})
}

type memberArguments struct {
	Member       string        `json:"member"`
	Group        string        `json:"group"`
	Topics       []string      `json:"topics"`
	Pattern      *string       `json:"pattern"`
	Topic        string        `json:"topic"`
	Partition    int32         `json:"partition"`
	Offset       int64         `json:"offset"`
	Offsets      []placeOffset `json:"offsets"`
	Metadata     string        `json:"metadata"`
	Asynchronous bool          `json:"asynchronous"`
	Count        int           `json:"count"`
	TimeoutMs    int64         `json:"timeout_ms"`
	Settings     struct {
		Assignor            *string `json:"assignor"`
		InstanceID          *string `json:"instance_id"`
		Protocol            string  `json:"protocol"`
		Reset               string  `json:"reset"`
		AutoCommit          bool    `json:"auto_commit"`
		SessionTimeoutMs    int64   `json:"session_timeout_ms"`
		HeartbeatIntervalMs int64   `json:"heartbeat_interval_ms"`
		MetadataMaxAgeMs    int64   `json:"metadata_max_age_ms"`
		TransactionalID     *string `json:"transactional_id"`
	} `json:"settings"`
}

func balancerOf(assignor *string) kgo.GroupBalancer {
	if assignor == nil {
		return kgo.RangeBalancer()
	}
	switch *assignor {
	case "roundrobin":
		return kgo.RoundRobinBalancer()
	case "sticky":
		return kgo.StickyBalancer()
	case "cooperative-sticky":
		return kgo.CooperativeStickyBalancer()
	}
	return kgo.RangeBalancer()
}

func milliseconds(count int64) time.Duration {
	return time.Duration(count) * time.Millisecond
}

func startOptions(reset string) []kgo.Opt {
	switch reset {
	case "earliest":
		return []kgo.Opt{kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}
	case "latest":
		return []kgo.Opt{kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd())}
	}
	return []kgo.Opt{
		kgo.ConsumeStartOffset(kgo.NewOffset().AtCommitted()),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
	}
}

func (d *driver) memberOptions(asked memberArguments, joined *member) []kgo.Opt {
	settings := asked.Settings
	options := []kgo.Opt{
		kgo.SeedBrokers(d.servers...),
		kgo.ClientID(asked.Member),
		kgo.ConsumerGroup(asked.Group),
		kgo.Balancers(balancerOf(settings.Assignor)),
		kgo.SessionTimeout(milliseconds(settings.SessionTimeoutMs)),
		kgo.HeartbeatInterval(milliseconds(settings.HeartbeatIntervalMs)),
		kgo.MetadataMaxAge(milliseconds(settings.MetadataMaxAgeMs)),
		kgo.MetadataMinAge(min(milliseconds(settings.MetadataMaxAgeMs), time.Second)),
		kgo.FetchMaxWait(milliseconds(100)),
		kgo.OnPartitionsAssigned(joined.onAssigned),
		kgo.OnPartitionsLost(joined.onRevoked),
	}
	if settings.Protocol == "consumer" {
		// The client takes this balancer for the broker's assignor `uniform`.
		options = append(options, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	}
	options = append(options, startOptions(settings.Reset)...)
	if settings.InstanceID != nil {
		options = append(options, kgo.InstanceID(*settings.InstanceID))
	}
	revoked := joined.onRevoked
	if settings.AutoCommit {
		options = append(options, kgo.AutoCommitInterval(milliseconds(100)))
		// A callback of one's own takes the place of the client's, which commits.
		revoked = func(ctx context.Context, client *kgo.Client, removed map[string][]int32) {
			client.CommitUncommittedOffsets(ctx)
			joined.onRevoked(ctx, client, removed)
		}
	} else {
		options = append(options, kgo.DisableAutoCommit())
	}
	options = append(options, kgo.OnPartitionsRevoked(revoked))
	if asked.Pattern != nil {
		return append(options, kgo.ConsumeRegex(), kgo.ConsumeTopics("^"+*asked.Pattern+"$"))
	}
	return append(options, kgo.ConsumeTopics(asked.Topics...))
}

func (d *driver) memberJoin(_ context.Context, raw json.RawMessage) (any, error) {
	asked, err := decode[memberArguments](raw)
	if err != nil {
		return nil, err
	}
	joined := &member{group: asked.Group, assignment: []place{}, revoked: []place{}}
	err = joined.start(d.memberOptions(asked, joined), asked.Settings.TransactionalID)
	d.members[asked.Member] = joined
	return nil, err
}

// start makes the member's client, for a transactional id as one that commits by transactions.
func (m *member) start(options []kgo.Opt, transactionalID *string) (err error) {
	if transactionalID == nil {
		m.client, err = kgo.NewClient(options...)
		return err
	}
	options = append(options,
		kgo.TransactionalID(*transactionalID),
		kgo.RequireStableFetchOffsets(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	m.session, err = kgo.NewGroupTransactSession(options...)
	if err == nil {
		m.client = m.session.Client()
	}
	return err
}

func (d *driver) memberPoll(_ context.Context, raw json.RawMessage) (any, error) {
	asked, err := decode[memberArguments](raw)
	if err != nil {
		return nil, err
	}
	polled := d.members[asked.Member]
	ctx, cancel := context.WithTimeout(context.Background(), milliseconds(asked.TimeoutMs))
	defer cancel()
	found := []memberRecord{}
	for len(found) < asked.Count && ctx.Err() == nil {
		fetches := polled.client.PollFetches(ctx)
		for _, failed := range fetches.Errors() {
			if ctx.Err() == nil {
				return nil, fmt.Errorf("partition %d: %w", failed.Partition, failed.Err)
			}
		}
		for _, r := range fetches.Records() {
			found = append(found, memberRecord{consumed(r), r.Topic})
		}
	}
	polled.lock.Lock()
	defer polled.lock.Unlock()
	return map[string]any{
		"records":    found,
		"assignment": slices.Clone(polled.assignment),
		"rebalances": polled.rebalances,
		"revoked":    slices.Clone(polled.revoked),
	}, nil
}

type memberRecord struct {
	record
	Topic string `json:"topic"`
}

func (d *driver) memberCommit(ctx context.Context, raw json.RawMessage) (any, error) {
	asked, err := decode[memberArguments](raw)
	if err != nil {
		return nil, err
	}
	offsets := map[string]map[int32]kgo.EpochOffset{}
	for _, given := range asked.Offsets {
		if offsets[given.topic] == nil {
			offsets[given.topic] = map[int32]kgo.EpochOffset{}
		}
		offsets[given.topic][given.partition] = kgo.EpochOffset{Epoch: -1, Offset: given.offset}
	}
	client := d.members[asked.Member].client
	if asked.Asynchronous {
		client.CommitOffsets(withMetadata(context.Background(), asked.Metadata), offsets, nil)
		return nil, nil
	}
	client.CommitOffsetsSync(withMetadata(ctx, asked.Metadata), offsets, func(
		_ *kgo.Client, _ *kmsg.OffsetCommitRequest, answer *kmsg.OffsetCommitResponse, failed error,
	) {
		err = commitError(answer, failed)
	})
	return nil, err
}

func withMetadata(ctx context.Context, metadata string) context.Context {
	return kgo.PreCommitFnContext(ctx, func(request *kmsg.OffsetCommitRequest) error {
		for _, topic := range request.Topics {
			for index := range topic.Partitions {
				topic.Partitions[index].Metadata = &metadata
			}
		}
		return nil
	})
}

func commitError(answer *kmsg.OffsetCommitResponse, failed error) error {
	if failed != nil {
		return failed
	}
	for _, topic := range answer.Topics {
		for _, partition := range topic.Partitions {
			if err := kerr.ErrorForCode(partition.ErrorCode); err != nil {
				return err
			}
		}
	}
	return nil
}

// memberCommitted asks the broker: what the client itself tells is what it remembers.
func (d *driver) memberCommitted(ctx context.Context, raw json.RawMessage) (any, error) {
	asked, err := decode[memberArguments](raw)
	if err != nil {
		return nil, err
	}
	offsets, err := d.admin.FetchOffsets(ctx, d.members[asked.Member].group)
	if err != nil {
		return nil, err
	}
	found, known := offsets.Lookup(asked.Topic, asked.Partition)
	if !known {
		return nil, nil
	}
	return map[string]any{"offset": found.At, "metadata": found.Metadata}, found.Err
}

func (d *driver) memberSeek(_ context.Context, raw json.RawMessage) (any, error) {
	asked, err := decode[memberArguments](raw)
	if err != nil {
		return nil, err
	}
	offset := kgo.EpochOffset{Epoch: -1, Offset: asked.Offset}
	d.members[asked.Member].client.SetOffsets(map[string]map[int32]kgo.EpochOffset{
		asked.Topic: {asked.Partition: offset},
	})
	return nil, nil
}

func (d *driver) memberPause(_ context.Context, raw json.RawMessage) (any, error) {
	asked, err := decode[memberArguments](raw)
	if err != nil {
		return nil, err
	}
	places := map[string][]int32{asked.Topic: {asked.Partition}}
	d.members[asked.Member].client.PauseFetchPartitions(places)
	return nil, nil
}

func (d *driver) memberResume(_ context.Context, raw json.RawMessage) (any, error) {
	asked, err := decode[memberArguments](raw)
	if err != nil {
		return nil, err
	}
	places := map[string][]int32{asked.Topic: {asked.Partition}}
	d.members[asked.Member].client.ResumeFetchPartitions(places)
	return nil, nil
}

func (d *driver) memberClose(_ context.Context, raw json.RawMessage) (any, error) {
	asked, err := decode[memberArguments](raw)
	if err != nil {
		return nil, err
	}
	if closed := d.members[asked.Member]; closed != nil {
		delete(d.members, asked.Member)
		closed.client.Close()
	}
	return nil, nil
}
