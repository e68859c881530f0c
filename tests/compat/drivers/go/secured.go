package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// What a connection holds and what an error's kind is, is told in drivers/python/secured.py.
type connection struct {
	Servers     string `json:"servers"`
	Protocol    string `json:"protocol"`
	Authority   string `json:"ca"`
	Certificate string `json:"certificate"`
	Mechanism   string `json:"mechanism"`
	Username    string `json:"username"`
	Password    string `json:"password"`
	Token       string `json:"token"`
}

type securedArguments struct {
	Connection connection `json:"connection"`
	Topic      string     `json:"topic"`
	Group      string     `json:"group"`
	Value      string     `json:"value"`
}

// refusal names an error as the client or Go's own library does.
type refusal struct{ cause error }

func (r refusal) Error() string { return r.cause.Error() }

func (r refusal) kind() string {
	var fromBroker *kerr.Error
	if errors.As(r.cause, &fromBroker) {
		return fromBroker.Message
	}
	innermost := r.cause
	for inner := errors.Unwrap(innermost); inner != nil; inner = errors.Unwrap(innermost) {
		innermost = inner
	}
	var alert tls.AlertError
	var remote *net.OpError
	if errors.As(r.cause, &alert) || errors.As(r.cause, &remote) && remote.Op == "remote error" {
		return "tls alert"
	}
	return fmt.Sprintf("%T", innermost)
}

func (c connection) tlsConfig() (*tls.Config, error) {
	trusted, err := os.ReadFile(c.Authority)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(trusted)
	if c.Certificate != "" {
		own, err := tls.LoadX509KeyPair(c.Certificate, c.Certificate)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}

func (c connection) mechanism() sasl.Mechanism {
	password := scram.Auth{User: c.Username, Pass: c.Password}
	switch c.Mechanism {
	case "PLAIN":
		return plain.Auth{User: c.Username, Pass: c.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		return password.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return password.AsSha512Mechanism()
	}
	return oauth.Auth{Token: c.Token}.AsMechanism()
}

// open connects at once, so that an error is the one of the first attempt.
func (c connection) open(ctx context.Context, more ...kgo.Opt) (*kgo.Client, error) {
	options := append(more,
		kgo.SeedBrokers(strings.Split(c.Servers, ",")...),
		kgo.RequestRetries(0),
		kgo.FetchMaxWait(100*time.Millisecond),
	)
	if strings.HasSuffix(c.Protocol, "SSL") {
		config, err := c.tlsConfig()
		if err != nil {
			return nil, err
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	if c.Mechanism != "" {
		options = append(options, kgo.SASL(c.mechanism()))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	if err := client.Ping(ctx); err != nil {
		client.Close()
		return nil, refusal{err}
	}
	return client, nil
}

func (d *driver) securedProduce(ctx context.Context, raw json.RawMessage) (any, error) {
	asked, err := decode[securedArguments](raw)
	if err != nil {
		return nil, err
	}
	client, err := asked.Connection.open(ctx)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	sent := &kgo.Record{Topic: asked.Topic, Value: []byte(asked.Value)}
	if err := client.ProduceSync(ctx, sent).FirstErr(); err != nil {
		return nil, refusal{err}
	}
	return nil, nil
}

const readTimeout = 30 * time.Second

func (d *driver) securedConsume(_ context.Context, raw json.RawMessage) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	asked, err := decode[securedArguments](raw)
	if err != nil {
		return nil, err
	}
	client, err := asked.Connection.open(ctx,
		kgo.ConsumeTopics(asked.Topic),
		kgo.ConsumerGroup(asked.Group),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	for {
		fetches := client.PollRecords(ctx, 1)
		for _, failed := range fetches.Errors() {
			return nil, refusal{failed.Err}
		}
		for _, found := range fetches.Records() {
			return string(found.Value), nil
		}
	}
}
