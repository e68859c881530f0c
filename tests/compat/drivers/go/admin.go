package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// adminArguments is the union of what the admin operations take.
type adminArguments struct {
	Topic             string            `json:"topic"`
	Partition         int32             `json:"partition"`
	Partitions        int32             `json:"partitions"`
	ReplicationFactor int16             `json:"replication_factor"`
	Configs           map[string]string `json:"configs"`
	SetConfigs        map[string]string `json:"set_configs"`
	DeleteConfigs     []string          `json:"delete_configs"`
	Total             int               `json:"total"`
	Offset            int64             `json:"offset"`
	Kind              string            `json:"kind"`
	Name              string            `json:"name"`
	At                any               `json:"at"`
}

func (d *driver) createTopic(ctx context.Context, raw json.RawMessage) (any, error) {
	asked, err := decode[adminArguments](raw)
	if err != nil {
		return nil, err
	}
	configs := map[string]*string{}
	for name, value := range asked.Configs {
		configs[name] = &value
	}
	_, err = d.admin.CreateTopic(
		ctx, asked.Partitions, asked.ReplicationFactor, configs, asked.Topic)
	return nil, err
}

func (d *driver) deleteTopic(ctx context.Context, raw json.RawMessage) (any, error) {
	asked, err := decode[adminArguments](raw)
	if err != nil {
		return nil, err
	}
	_, err = d.admin.DeleteTopic(ctx, asked.Topic)
	return nil, err
}

func (d *driver) listTopics(ctx context.Context, _ json.RawMessage) (any, error) {
	topics, err := d.admin.ListTopics(ctx)
	return topics.Names(), err
}

func (d *driver) describeTopic(ctx context.Context, raw json.RawMessage) (any, error) {
	asked, err := decode[adminArguments](raw)
	if err != nil {
		return nil, err
	}
	topics, err := d.admin.ListTopics(ctx, asked.Topic)
	if err != nil {
		return nil, err
	}
	if err := topics[asked.Topic].Err; err != nil {
		return nil, err
	}
	described := []map[string]any{}
	for _, partition := range topics[asked.Topic].Partitions.Sorted() {
		described = append(described, map[string]any{
			"partition": partition.Partition,
			"leader":    partition.Leader,
			"replicas":  partition.Replicas,
			"isr":       partition.ISR,
		})
	}
	return described, nil
}

func (d *driver) describeCluster(ctx context.Context, _ json.RawMessage) (any, error) {
	cluster, err := kmsg.NewPtrDescribeClusterRequest().RequestWith(ctx, d.client)
	if err != nil {
		return nil, err
	}
	brokers := [][]any{}
	for _, broker := range cluster.Brokers {
		brokers = append(brokers, []any{broker.NodeID, broker.Host, broker.Port})
	}
	return map[string]any{
		"cluster_id":    cluster.ClusterID,
		"controller_id": cluster.ControllerID,
		"brokers":       brokers,
	}, nil
}

func (d *driver) createPartitions(ctx context.Context, raw json.RawMessage) (any, error) {
	asked, err := decode[adminArguments](raw)
	if err != nil {
		return nil, err
	}
	answers, err := d.admin.UpdatePartitions(ctx, asked.Total, asked.Topic)
	if err != nil {
		return nil, err
	}
	answer, err := answers.On(asked.Topic, nil)
	if err != nil {
		return nil, err
	}
	return nil, answer.Err
}

func (d *driver) deleteRecords(ctx context.Context, raw json.RawMessage) (any, error) {
	asked, err := decode[adminArguments](raw)
	if err != nil {
		return nil, err
	}
	var offsets kadm.Offsets
	offsets.AddOffset(asked.Topic, asked.Partition, asked.Offset, -1)
	answers, err := d.admin.DeleteRecords(ctx, offsets)
	if err != nil {
		return nil, err
	}
	answer, err := answers.On(asked.Topic, asked.Partition, nil)
	if err != nil {
		return nil, err
	}
	return answer.LowWatermark, answer.Err
}

func (d *driver) describeConfigs(ctx context.Context, raw json.RawMessage) (any, error) {
	asked, err := decode[adminArguments](raw)
	if err != nil {
		return nil, err
	}
	var resources kadm.ResourceConfigs
	if asked.Kind == "broker" {
		id, err := strconv.Atoi(asked.Name)
		if err != nil {
			return nil, err
		}
		resources, err = d.admin.DescribeBrokerConfigs(ctx, int32(id))
		if err != nil {
			return nil, err
		}
	} else if resources, err = d.admin.DescribeTopicConfigs(ctx, asked.Name); err != nil {
		return nil, err
	}
	described := map[string]any{}
	if resources[0].Err != nil {
		return nil, resources[0].Err
	}
	for _, config := range resources[0].Configs {
		isDefault := config.Source == kmsg.ConfigSourceDefaultConfig
		described[config.Key] = map[string]any{"value": config.Value, "default": isDefault}
	}
	return described, nil
}

func altered(answers kadm.AlterConfigsResponses, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return nil, answers[0].Err
}

func (d *driver) alterConfigs(ctx context.Context, raw json.RawMessage) (any, error) {
	asked, err := decode[adminArguments](raw)
	if err != nil {
		return nil, err
	}
	changes := []kadm.AlterConfig{}
	for name, value := range asked.Configs {
		changes = append(changes, kadm.AlterConfig{Name: name, Value: &value})
	}
	return altered(d.admin.AlterTopicConfigsState(ctx, changes, asked.Topic))
}

func (d *driver) incrementalAlterConfigs(ctx context.Context, raw json.RawMessage) (any, error) {
	asked, err := decode[adminArguments](raw)
	if err != nil {
		return nil, err
	}
	changes := []kadm.AlterConfig{}
	for name, value := range asked.SetConfigs {
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: &value})
	}
	for _, name := range asked.DeleteConfigs {
		changes = append(changes, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: name})
	}
	return altered(d.admin.AlterTopicConfigs(ctx, changes, asked.Topic))
}

func (d *driver) listOffsets(ctx context.Context, raw json.RawMessage) (any, error) {
	asked, err := decode[adminArguments](raw)
	if err != nil {
		return nil, err
	}
	var listed kadm.ListedOffsets
	switch at := asked.At.(type) {
	case float64:
		// The client answers the end where nothing is as late; ask the broker itself.
		return d.offsetAtTime(ctx, asked, int64(at))
	case string:
		switch at {
		case "earliest":
			listed, err = d.admin.ListStartOffsets(ctx, asked.Topic)
		case "latest":
			listed, err = d.admin.ListEndOffsets(ctx, asked.Topic)
		default:
			listed, err = d.admin.ListMaxTimestampOffsets(ctx, asked.Topic)
		}
	}
	if err != nil {
		return nil, err
	}
	found, known := listed.Lookup(asked.Topic, asked.Partition)
	if !known {
		return nil, fmt.Errorf("no answer for partition %d", asked.Partition)
	}
	return map[string]any{"offset": found.Offset, "timestamp_ms": found.Timestamp}, found.Err
}

func (d *driver) offsetAtTime(
	ctx context.Context, asked adminArguments, milli int64,
) (any, error) {
	partition := kmsg.NewListOffsetsRequestTopicPartition()
	partition.Partition = asked.Partition
	partition.Timestamp = milli
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = asked.Topic
	topic.Partitions = append(topic.Partitions, partition)
	request := kmsg.NewPtrListOffsetsRequest()
	request.ReplicaID = -1
	request.Topics = append(request.Topics, topic)
	shard := d.client.RequestSharded(ctx, request)[0]
	if shard.Err != nil {
		return nil, shard.Err
	}
	found := shard.Resp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions
	index := slices.IndexFunc(found, func(p kmsg.ListOffsetsResponseTopicPartition) bool {
		return p.Partition == asked.Partition
	})
	if index < 0 {
		return nil, fmt.Errorf("no answer for partition %d", asked.Partition)
	}
	return map[string]any{"offset": found[index].Offset, "timestamp_ms": found[index].Timestamp},
		kerr.ErrorForCode(found[index].ErrorCode)
}
