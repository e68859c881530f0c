package main

import (
	"context"
	"encoding/json"

	"github.com/twmb/franz-go/pkg/kadm"
)

type groupArguments struct {
	Group     string        `json:"group"`
	Groups    []string      `json:"groups"`
	Topic     string        `json:"topic"`
	Partition int32         `json:"partition"`
	Offsets   []placeOffset `json:"offsets"`
}

func (d *driver) listGroups(ctx context.Context, _ json.RawMessage) (any, error) {
	listed, err := d.admin.ListGroups(ctx)
	groups := []map[string]any{}
	for _, group := range listed {
		groups = append(groups, map[string]any{"group": group.Group, "state": group.State})
	}
	return groups, err
}

func (d *driver) describeGroup(ctx context.Context, raw json.RawMessage) (any, error) {
	asked, err := decode[groupArguments](raw)
	if err != nil {
		return nil, err
	}
	groups, err := d.admin.DescribeGroups(ctx, asked.Group)
	if err != nil {
		return nil, err
	}
	described, err := groups.On(asked.Group, nil)
	if err != nil {
		return nil, err
	}
	members := []map[string]any{}
	for _, found := range described.Members {
		places := []place{}
		if assigned, known := found.Assigned.AsConsumer(); known {
			for _, topic := range assigned.Topics {
				places = append(places, placesOf(map[string][]int32{topic.Topic: topic.Partitions})...)
			}
		}
		members = append(members, map[string]any{
			"client_id":   found.ClientID,
			"instance_id": found.InstanceID,
			"assignment":  places,
		})
	}
	return map[string]any{
		"state":    described.State,
		"assignor": described.Protocol,
		"members":  members,
	}, described.Err
}

func (d *driver) listGroupOffsets(ctx context.Context, raw json.RawMessage) (any, error) {
	asked, err := decode[groupArguments](raw)
	if err != nil {
		return nil, err
	}
	found := map[string][]placeOffset{}
	for group, offsets := range d.admin.FetchManyOffsets(ctx, asked.Groups...) {
		if offsets.Err != nil {
			return nil, offsets.Err
		}
		found[group] = []placeOffset{}
		offsets.Fetched.Each(func(at kadm.OffsetResponse) {
			found[group] = append(found[group], placeOffset{place{at.Topic, at.Partition}, at.At})
		})
	}
	return found, nil
}

func (d *driver) alterGroupOffsets(ctx context.Context, raw json.RawMessage) (any, error) {
	asked, err := decode[groupArguments](raw)
	if err != nil {
		return nil, err
	}
	var offsets kadm.Offsets
	for _, given := range asked.Offsets {
		offsets.AddOffset(given.topic, given.partition, given.offset, -1)
	}
	return nil, d.admin.CommitAllOffsets(ctx, asked.Group, offsets)
}

func (d *driver) deleteGroup(ctx context.Context, raw json.RawMessage) (any, error) {
	asked, err := decode[groupArguments](raw)
	if err != nil {
		return nil, err
	}
	_, err = d.admin.DeleteGroup(ctx, asked.Group)
	return nil, err
}

func (d *driver) deleteGroupOffsets(ctx context.Context, raw json.RawMessage) (any, error) {
	asked, err := decode[groupArguments](raw)
	if err != nil {
		return nil, err
	}
	var places kadm.TopicsSet
	places.Add(asked.Topic, asked.Partition)
	deleted, err := d.admin.DeleteOffsets(ctx, asked.Group, places)
	if err != nil {
		return nil, err
	}
	return nil, deleted.Error()
}
