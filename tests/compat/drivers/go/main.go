// Driver for franz-go. The protocol is told in drivers/python/loop.py: a JSON request a line on
// standard input, a JSON answer a line on standard output.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const timeout = 10 * time.Second

type request struct {
	Operation string          `json:"operation"`
	Arguments json.RawMessage `json:"arguments"`
}

type failure struct {
	Code    *int16  `json:"code"`
	Kind    *string `json:"kind"`
	Message string  `json:"message"`
}

// driver holds what lives longer than one request.
type driver struct {
	servers  []string
	client   *kgo.Client
	admin    *kadm.Client
	consumer *kgo.Client
	members  map[string]*member
	// Those with a transactional id.
	producers map[string]*transactional
}

type operation func(context.Context, json.RawMessage) (any, error)

func (d *driver) operations() map[string]operation {
	return map[string]operation{
		"create_topic":              d.createTopic,
		"delete_topic":              d.deleteTopic,
		"list_topics":               d.listTopics,
		"describe_topic":            d.describeTopic,
		"describe_cluster":          d.describeCluster,
		"create_partitions":         d.createPartitions,
		"delete_records":            d.deleteRecords,
		"describe_configs":          d.describeConfigs,
		"alter_configs":             d.alterConfigs,
		"incremental_alter_configs": d.incrementalAlterConfigs,
		"list_offsets":              d.listOffsets,
		"produce":                   d.produce,
		"consumer_open":             d.consumerOpen,
		"consumer_read":             d.consumerRead,
		"consumer_seek":             d.consumerSeek,
		"consumer_close":            d.consumerClose,
		"member_join":               d.memberJoin,
		"member_poll":               d.memberPoll,
		"member_commit":             d.memberCommit,
		"member_committed":          d.memberCommitted,
		"member_seek":               d.memberSeek,
		"member_pause":              d.memberPause,
		"member_resume":             d.memberResume,
		"member_close":              d.memberClose,
		"list_groups":               d.listGroups,
		"describe_group":            d.describeGroup,
		"list_group_offsets":        d.listGroupOffsets,
		"alter_group_offsets":       d.alterGroupOffsets,
		"delete_group":              d.deleteGroup,
		"delete_group_offsets":      d.deleteGroupOffsets,
		"transaction_open":          d.transactionOpen,
		"transaction_begin":         d.transactionBegin,
		"transaction_send":          d.transactionSend,
		"transaction_offsets":       d.transactionOffsets,
		"transaction_end":           d.transactionEnd,
		"transaction_close":         d.transactionClose,
		"secured_produce":           d.securedProduce,
		"secured_consume":           d.securedConsume,
	}
}

func failureOf(err error) *failure {
	var refused refusal
	if errors.As(err, &refused) {
		kind := refused.kind()
		return &failure{Kind: &kind, Message: err.Error()}
	}
	var fromBroker *kerr.Error
	if errors.As(err, &fromBroker) {
		return &failure{Code: &fromBroker.Code, Message: err.Error()}
	}
	kind := "client"
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, kgo.ErrRecordTimeout):
		kind = "timeout"
	case errors.Is(err, errNotCommitted):
		kind = "fenced"
	case strings.Contains(err.Error(), "no prior committed offset"):
		kind = "no_offset"
	case strings.Contains(err.Error(), "invalid record partitioning choice"):
		kind = "unknown_partition"
	}
	return &failure{Kind: &kind, Message: err.Error()}
}

func version() string {
	info, _ := debug.ReadBuildInfo()
	for _, dependency := range info.Deps {
		if dependency.Path == "github.com/twmb/franz-go" {
			return strings.TrimPrefix(dependency.Version, "v")
		}
	}
	return "unknown"
}

func decode[T any](arguments json.RawMessage) (T, error) {
	var decoded T
	err := json.Unmarshal(arguments, &decoded)
	return decoded, err
}

func main() {
	servers := strings.Split(os.Args[1], ",")
	client, err := kgo.NewClient(kgo.SeedBrokers(servers...))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	d := &driver{
		servers:   servers,
		client:    client,
		admin:     kadm.NewClient(client),
		members:   map[string]*member{},
		producers: map[string]*transactional{},
	}
	operations := d.operations()
	answers := json.NewEncoder(os.Stdout)
	answers.Encode(map[string]string{"client": "franz-go", "version": version()})
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var asked request
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		result, err := d.carryOut(operations, asked)
		if err != nil {
			answers.Encode(map[string]any{"error": failureOf(err)})
		} else {
			answers.Encode(map[string]any{"result": result})
		}
	}
	client.Close()
}

func (d *driver) carryOut(operations map[string]operation, asked request) (any, error) {
	found, known := operations[asked.Operation]
	if !known {
		return nil, fmt.Errorf("no operation %q", asked.Operation)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return found(ctx, asked.Arguments)
}
