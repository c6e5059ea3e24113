// Command csds asks a client of control planes for its status (CSDS), with the calls and types of grpcdebug, and prints
// the answer as JSON. States have the names of those types. A resource of an unknown type, or one that cannot be
// decoded as its type, is an error.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	// Types of resources that may be in use at a client, so that they can be printed.
	_ "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	status "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
)

// Time limit of the answer.
const answerWithin = 30 * time.Second

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "csds:", err)
		os.Exit(1)
	}
}

func run() error {
	streams := flag.Bool("stream", false, "ask by the stream, not by the single call")
	flag.Parse()
	if flag.NArg() != 1 {
		return errors.New("usage: csds [-stream] ADDRESS")
	}
	// The address needs no resolution, and no proxy is used.
	connection, err := grpc.NewClient(
		"passthrough:///"+flag.Arg(0), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
	)
	if err != nil {
		return err
	}
	defer connection.Close()
	within, cancel := context.WithTimeout(context.Background(), answerWithin)
	defer cancel()
	ask := fetch
	if *streams {
		ask = stream
	}
	answer, err := ask(within, status.NewClientStatusDiscoveryServiceClient(connection))
	if err != nil {
		return err
	}
	text, err := protojson.Marshal(answer)
	if err != nil {
		return err
	}
	fmt.Println(string(text))
	return nil
}

// Sends the request that grpcdebug sends.
func fetch(
	within context.Context, client status.ClientStatusDiscoveryServiceClient,
) (*status.ClientStatusResponse, error) {
	return client.FetchClientStatus(within, &status.ClientStatusRequest{})
}

// Sends two requests on one stream, which must end cleanly, and returns the second answer.
func stream(
	within context.Context, client status.ClientStatusDiscoveryServiceClient,
) (*status.ClientStatusResponse, error) {
	stream, err := client.StreamClientStatus(within)
	if err != nil {
		return nil, err
	}
	var answer *status.ClientStatusResponse
	for range 2 {
		if err := stream.Send(&status.ClientStatusRequest{}); err != nil {
			return nil, err
		}
		if answer, err = stream.Recv(); err != nil {
			return nil, err
		}
	}
	if err := stream.CloseSend(); err != nil {
		return nil, err
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("the stream ends with %w", err)
	}
	return answer, nil
}
