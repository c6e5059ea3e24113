package main

import (
	"context"
	"maps"
	"sync"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
)

// The answer to "stats": counts since the start.
type stats struct {
	// Time since the start, in milliseconds.
	ElapsedMs int64 `json:"elapsedMs"`
	// Number of streams that were opened, and of those that are open.
	Streams     int `json:"streams"`
	OpenStreams int `json:"openStreams"`
	// By type URL.
	Types map[string]typeStats `json:"types"`
}

// Requests and responses of one type.
type typeStats struct {
	// All requests, including ACKs and NACKs.
	Requests int `json:"requests"`
	Acks     int `json:"acks"`
	Nacks    int `json:"nacks"`
	// Responses; Empty counts those without resources.
	Responses int `json:"responses"`
	Empty     int `json:"emptyResponses"`
	// Of the last request: the names, the version of the client, and the text of its refusal.
	Names       []string `json:"names"`
	VersionInfo string   `json:"versionInfo"`
	LastError   string   `json:"lastError"`
	// The node of the last request with a node.
	Node string `json:"node"`
}

// Counts by the library's callbacks, which run in the goroutine of each stream.
type counts struct {
	server.CallbackFuncs
	began time.Time

	mu      sync.Mutex
	streams int
	open    int
	types   map[string]typeStats
}

func newCounts() *counts {
	return &counts{began: time.Now(), types: make(map[string]typeStats)}
}

func (c *counts) OnStreamOpen(context.Context, int64, string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streams++
	c.open++
	return nil
}

func (c *counts) OnStreamClosed(int64, *core.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
}

func (c *counts) OnStreamRequest(_ int64, request *discovery.DiscoveryRequest) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.types[request.GetTypeUrl()]
	of.Requests++
	switch {
	case request.GetErrorDetail() != nil:
		of.Nacks++
	case request.GetResponseNonce() != "":
		of.Acks++
	}
	of.Names = request.GetResourceNames()
	of.VersionInfo = request.GetVersionInfo()
	of.LastError = request.GetErrorDetail().GetMessage()
	of.Node = request.GetNode().GetId()
	c.types[request.GetTypeUrl()] = of
	return nil
}

func (c *counts) OnStreamResponse(
	_ context.Context, _ int64, request *discovery.DiscoveryRequest, response *discovery.DiscoveryResponse,
) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.types[request.GetTypeUrl()]
	of.Responses++
	if len(response.GetResources()) == 0 {
		of.Empty++
	}
	c.types[request.GetTypeUrl()] = of
}

func (c *counts) stats() *stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &stats{
		ElapsedMs:   time.Since(c.began).Milliseconds(),
		Streams:     c.streams,
		OpenStreams: c.open,
		Types:       maps.Clone(c.types),
	}
}
