// Command go-control-plane serves ADS with the library github.com/envoyproxy/go-control-plane, on which many control
// planes are based.
//
// It prints the address that it listens on as its first line. Then it reads commands from standard input, one JSON
// object a line, and answers each with one JSON object a line (commands.go). It ends with the command "stop", and at the
// end of its input, so that it ends with the process that started it.
//
// The caches are those of the library, used as documented:
//
//	snapshot-ads  a SnapshotCache for ADS: silent until a request names all endpoints of the snapshot
//	snapshot      a SnapshotCache that answers requests for a part of the snapshot
//	linear        a LinearCache for each type behind a MuxCache
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

// The longest command, in bytes.
const longestCommand = 16 << 20

// Minimum interval between pings of a client, as in Envoy Gateway, which uses this library.
const pingsAtLeastApart = 15 * time.Second

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "go-control-plane:", err)
		os.Exit(1)
	}
}

func run() error {
	listen := flag.String("listen", "127.0.0.1:0", "the address to listen on; port 0 takes a free one")
	kind := flag.String("cache", "snapshot", "the cache: snapshot-ads, snapshot or linear")
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("unknown argument %q; there are only flags (-help)", flag.Arg(0))
	}
	resources, err := newResources(*kind)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}

	counts := newCounts()
	ends, end := context.WithCancel(context.Background())
	defer end()
	served := server.NewServer(ends, resources.cache(), counts)
	patience := keepalive.EnforcementPolicy{MinTime: pingsAtLeastApart, PermitWithoutStream: true}
	transport := grpc.NewServer(grpc.KeepaliveEnforcementPolicy(patience))
	discovery.RegisterAggregatedDiscoveryServiceServer(transport, served)

	fmt.Println(listener.Addr())
	failed := make(chan error, 1)
	go func() { failed <- transport.Serve(listener) }()
	told := make(chan error, 1)
	go func() { told <- converse(resources, counts) }()
	defer transport.Stop()
	select {
	case err := <-failed:
		return err
	case err := <-told:
		return err
	}
}

// Answers commands until the command "stop" or the end of the input.
func converse(resources resources, counts *counts) error {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, longestCommand)
	answers := json.NewEncoder(os.Stdout)
	stage := newStage(resources)
	for lines.Scan() {
		answer, stops := stage.obey(lines.Bytes(), counts)
		if err := answers.Encode(answer); err != nil {
			return err
		}
		if stops {
			return nil
		}
	}
	return lines.Err()
}
