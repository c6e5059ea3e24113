package main

import (
	"context"
	"fmt"
	"slices"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
)

// A cache of the library, and the way to set its resources.
type resources interface {
	// The cache that the server serves.
	cache() cache.Cache
	// Replaces all resources by these. A LinearCache has its own versions.
	publish(version string, clusters, endpoints map[string]types.Resource) error
}

func newResources(kind string) (resources, error) {
	switch kind {
	case "snapshot-ads":
		return snapshots{cache.NewSnapshotCache(true, everyNode{}, nil)}, nil
	case "snapshot":
		return snapshots{cache.NewSnapshotCache(false, everyNode{}, nil)}, nil
	case "linear":
		return newLinear(), nil
	default:
		return nil, fmt.Errorf("-cache %q: it is snapshot-ads, snapshot or linear", kind)
	}
}

// Gives all nodes the same id, so that they get the same snapshot.
type everyNode struct{}

const everyone = "every-node"

func (everyNode) ID(*core.Node) string { return everyone }

// A SnapshotCache.
type snapshots struct {
	of cache.SnapshotCache
}

func (s snapshots) cache() cache.Cache { return s.of }

func (s snapshots) publish(version string, clusters, endpoints map[string]types.Resource) error {
	snapshot, err := cache.NewSnapshot(version, map[resource.Type][]types.Resource{
		resource.ClusterType:  values(clusters),
		resource.EndpointType: values(endpoints),
	})
	if err != nil {
		return err
	}
	return s.of.SetSnapshot(context.Background(), everyone, snapshot)
}

func values(named map[string]types.Resource) []types.Resource {
	all := make([]types.Resource, 0, len(named))
	for _, resource := range named {
		all = append(all, resource)
	}
	return all
}

// A LinearCache for each type.
type linear struct {
	of map[string]*cache.LinearCache
	// The last published resources, by type and name: a LinearCache treats every update as a change.
	last map[string]map[string]types.Resource
}

func newLinear() *linear {
	return &linear{
		of: map[string]*cache.LinearCache{
			resource.ClusterType:  cache.NewLinearCache(resource.ClusterType),
			resource.EndpointType: cache.NewLinearCache(resource.EndpointType),
		},
		last: make(map[string]map[string]types.Resource),
	}
}

func (l *linear) cache() cache.Cache {
	muxed := &cache.MuxCache{
		Classify:      func(request *cache.Request) string { return request.GetTypeUrl() },
		ClassifyDelta: func(request *cache.DeltaRequest) string { return request.GetTypeUrl() },
		Caches:        make(map[string]cache.Cache),
	}
	for typeURL, one := range l.of {
		muxed.Caches[typeURL] = one
	}
	return muxed
}

func (l *linear) publish(_ string, clusters, endpoints map[string]types.Resource) error {
	for typeURL, now := range map[string]map[string]types.Resource{
		resource.ClusterType:  clusters,
		resource.EndpointType: endpoints,
	} {
		before := l.last[typeURL]
		changed := make(map[string]types.Resource)
		for name, resource := range now {
			if before[name] != resource {
				changed[name] = resource
			}
		}
		var gone []string
		for name := range before {
			if _, is := now[name]; !is {
				gone = append(gone, name)
			}
		}
		slices.Sort(gone)
		if len(changed)+len(gone) > 0 {
			if err := l.of[typeURL].UpdateResources(changed, gone); err != nil {
				return err
			}
		}
		l.last[typeURL] = now
	}
	return nil
}
