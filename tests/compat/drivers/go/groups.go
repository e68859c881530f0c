package main

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
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

type describedMember struct {
	ClientID   string  `json:"client_id"`
	InstanceID *string `json:"instance_id"`
	Assignment []place `json:"assignment"`
}

// describeGroup asks for a group of the newer protocol first: each request knows one kind only.
func (d *driver) describeGroup(ctx context.Context, raw json.RawMessage) (any, error) {
	asked, err := decode[groupArguments](raw)
	if err != nil {
		return nil, err
	}
	groups, err := d.admin.DescribeConsumerGroups(ctx, asked.Group)
	if err != nil {
		return nil, err
	}
	described := groups[asked.Group]
	if errors.Is(described.Err, kerr.GroupIDNotFound) {
		return d.describeClassicGroup(ctx, asked.Group)
	}
	members := []describedMember{}
	for _, found := range described.Members {
		places := []place{}
		found.Assignment.Each(func(topic string, partition int32) {
			places = append(places, place{topic, partition})
		})
		members = append(members, describedMember{found.ClientID, found.InstanceID, places})
	}
	return description(described.State, described.AssignorName, members), described.Err
}

func (d *driver) describeClassicGroup(ctx context.Context, group string) (any, error) {
	groups, err := d.admin.DescribeGroups(ctx, group)
	if err != nil {
		return nil, err
	}
	described, err := groups.On(group, nil)
	if err != nil {
		return nil, err
	}
	members := []describedMember{}
	for _, found := range described.Members {
		places := []place{}
		if assigned, known := found.Assigned.AsConsumer(); known {
			for _, topic := range assigned.Topics {
				partitions := map[string][]int32{topic.Topic: topic.Partitions}
				places = append(places, placesOf(partitions)...)
			}
		}
		members = append(members, describedMember{found.ClientID, found.InstanceID, places})
	}
	return description(described.State, described.Protocol, members), described.Err
}

func description(state, assignor string, members []describedMember) map[string]any {
	return map[string]any{"state": state, "assignor": assignor, "members": members}
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
