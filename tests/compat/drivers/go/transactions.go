package main

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// transactional is a producer with a transactional id. One that commits the offsets of a group is
// the group's member as well: the session ends the transaction with what the member has read.
type transactional struct {
	client  *kgo.Client
	session *kgo.GroupTransactSession
	isOpen  bool
}

type transactionArguments struct {
	Producer        string   `json:"producer"`
	TransactionalID string   `json:"transactional_id"`
	TimeoutMs       int64    `json:"timeout_ms"`
	Member          *string  `json:"member"`
	Topic           string   `json:"topic"`
	Records         []record `json:"records"`
	Committed       bool     `json:"committed"`
}

var errNotCommitted = errors.New("the group has moved on: not committed")

func (d *driver) transactionOpen(ctx context.Context, raw json.RawMessage) (any, error) {
	asked, err := decode[transactionArguments](raw)
	if err != nil {
		return nil, err
	}
	made := &transactional{}
	if asked.Member != nil {
		made.session = d.members[*asked.Member].session
		made.client = made.session.Client()
	} else {
		made.client, err = kgo.NewClient(
			kgo.SeedBrokers(d.servers...),
			kgo.TransactionalID(asked.TransactionalID),
			kgo.TransactionTimeout(milliseconds(asked.TimeoutMs)),
			kgo.RecordPartitioner(kgo.ManualPartitioner()),
		)
		if err != nil {
			return nil, err
		}
	}
	d.producers[asked.Producer] = made
	_, _, err = made.client.ProducerID(ctx)
	return nil, err
}

func (d *driver) transactionBegin(_ context.Context, raw json.RawMessage) (any, error) {
	asked, err := decode[transactionArguments](raw)
	if err != nil {
		return nil, err
	}
	begun := d.producers[asked.Producer]
	begun.isOpen = true
	return nil, begun.client.BeginTransaction()
}

func (d *driver) transactionSend(ctx context.Context, raw json.RawMessage) (any, error) {
	asked, err := decode[transactionArguments](raw)
	if err != nil {
		return nil, err
	}
	return sendAll(ctx, d.producers[asked.Producer].client, asked.Topic, asked.Records), nil
}

func sendAll(ctx context.Context, client *kgo.Client, topic string, records []record) []delivery {
	deliveries := make([]delivery, len(records))
	var pending sync.WaitGroup
	for index, given := range records {
		pending.Add(1)
		client.Produce(ctx, kafkaRecord(topic, given), func(r *kgo.Record, err error) {
			defer pending.Done()
			deliveries[index] = delivery{Partition: r.Partition, Offset: r.Offset}
			if err != nil {
				deliveries[index].Error = failureOf(err)
			}
		})
	}
	pending.Wait()
	return deliveries
}

// transactionOffsets has nothing to do: the session knows what its member has read.
func (d *driver) transactionOffsets(_ context.Context, _ json.RawMessage) (any, error) {
	return nil, nil
}

func (d *driver) transactionEnd(ctx context.Context, raw json.RawMessage) (any, error) {
	asked, err := decode[transactionArguments](raw)
	if err != nil {
		return nil, err
	}
	ended := d.producers[asked.Producer]
	if !ended.isOpen {
		return nil, nil
	}
	ended.isOpen = false
	try := kgo.TransactionEndTry(asked.Committed)
	if ended.session == nil {
		if err := ended.client.Flush(ctx); err != nil {
			return nil, err
		}
		return nil, ended.client.EndTransaction(ctx, try)
	}
	committed, err := ended.session.End(ctx, try)
	if err == nil && committed != asked.Committed {
		return nil, errNotCommitted
	}
	return nil, err
}

func (d *driver) transactionClose(_ context.Context, raw json.RawMessage) (any, error) {
	asked, err := decode[transactionArguments](raw)
	if err != nil {
		return nil, err
	}
	closed := d.producers[asked.Producer]
	delete(d.producers, asked.Producer)
	if closed.session == nil {
		closed.client.Close()
	}
	return nil, nil
}
