package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// A command. Changes wait for "publish", which sends all of them together: as a snapshot, or as one update of each
// LinearCache.
//
//	{"command":"set-endpoints","name":"web","endpoints":[{"address":"10.0.0.1","port":80,"health":"DRAINING",
//	  "priority":1,"region":"r","zone":"z","subZone":"s"}]}
//	{"command":"set-cluster","name":"web","edsName":"web-endpoints"}
//	{"command":"remove-endpoints","name":"web"}
//	{"command":"remove-cluster","name":"web"}
//	{"command":"publish","version":"7"}      without a version, one that no snapshot had before
//	{"command":"stats"}
//	{"command":"stop"}
//
// Nothing is validated: everything that can be marshalled is sent.
type command struct {
	Command   string  `json:"command"`
	Name      string  `json:"name"`
	Endpoints []place `json:"endpoints"`
	EdsName   string  `json:"edsName"`
	Version   string  `json:"version"`
}

// An endpoint. Endpoints of the same priority and locality are sent together, in the order of their first endpoints.
type place struct {
	Address  string `json:"address"`
	Port     uint32 `json:"port"`
	Health   string `json:"health"`
	Priority uint32 `json:"priority"`
	Region   string `json:"region"`
	Zone     string `json:"zone"`
	SubZone  string `json:"subZone"`
}

// An answer: whether the command succeeded, and for "stats" the counts.
type answer struct {
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`
	Stats *stats `json:"stats,omitempty"`
}

// The resources of the next publication.
type stage struct {
	resources resources
	clusters  map[string]types.Resource
	endpoints map[string]types.Resource
	published int
}

func newStage(resources resources) *stage {
	return &stage{
		resources: resources,
		clusters:  make(map[string]types.Resource),
		endpoints: make(map[string]types.Resource),
	}
}

// Executes a command; returns true if it was the last one.
func (s *stage) obey(line []byte, counts *counts) (answer, bool) {
	var told command
	reader := json.NewDecoder(bytes.NewReader(line))
	reader.DisallowUnknownFields()
	if err := reader.Decode(&told); err != nil {
		return answer{Error: fmt.Sprintf("this is no command: %v", err)}, false
	}
	switch told.Command {
	case "stats":
		return answer{OK: true, Stats: counts.stats()}, false
	case "stop":
		return answer{OK: true}, true
	}
	if err := s.change(&told); err != nil {
		return answer{Error: err.Error()}, false
	}
	return answer{OK: true}, false
}

func (s *stage) change(told *command) error {
	if told.Name == "" && told.Command != "publish" {
		return errors.New("name is missing")
	}
	switch told.Command {
	case "set-endpoints":
		assignment, err := assignment(told.Name, told.Endpoints)
		if err != nil {
			return err
		}
		s.endpoints[told.Name] = assignment
	case "set-cluster":
		s.clusters[told.Name] = edsCluster(told.Name, told.EdsName)
	case "remove-endpoints":
		delete(s.endpoints, told.Name)
	case "remove-cluster":
		delete(s.clusters, told.Name)
	case "publish":
		s.published++
		version := told.Version
		if version == "" {
			version = strconv.Itoa(s.published)
		}
		return s.resources.publish(version, maps.Clone(s.clusters), maps.Clone(s.endpoints))
	default:
		return fmt.Errorf("unknown command %q", told.Command)
	}
	return nil
}

func assignment(name string, places []place) (*endpoint.ClusterLoadAssignment, error) {
	type key struct {
		priority              uint32
		region, zone, subZone string
	}
	localities := make(map[key]*endpoint.LocalityLbEndpoints)
	made := &endpoint.ClusterLoadAssignment{ClusterName: name}
	for _, place := range places {
		key := key{place.Priority, place.Region, place.Zone, place.SubZone}
		locality, ok := localities[key]
		if !ok {
			locality = &endpoint.LocalityLbEndpoints{
				Locality:            &core.Locality{Region: place.Region, Zone: place.Zone, SubZone: place.SubZone},
				LoadBalancingWeight: wrapperspb.UInt32(1),
				Priority:            place.Priority,
			}
			localities[key] = locality
			made.Endpoints = append(made.Endpoints, locality)
		}
		health := core.HealthStatus_UNKNOWN
		if place.Health != "" {
			number, ok := core.HealthStatus_value[place.Health]
			if !ok {
				return nil, fmt.Errorf("unknown health %q; it is UNKNOWN, HEALTHY, UNHEALTHY, DRAINING, TIMEOUT or DEGRADED", place.Health)
			}
			health = core.HealthStatus(number)
		}
		locality.LbEndpoints = append(locality.LbEndpoints, &endpoint.LbEndpoint{
			HealthStatus: health,
			HostIdentifier: &endpoint.LbEndpoint_Endpoint{
				Endpoint: &endpoint.Endpoint{Address: socketAddress(place.Address, place.Port)},
			},
		})
	}
	return made, nil
}

func socketAddress(address string, port uint32) *core.Address {
	return &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{
		Address:       address,
		PortSpecifier: &core.SocketAddress_PortValue{PortValue: port},
	}}}
}

// A cluster whose endpoints are sent on the same stream under edsName; if it is empty, under the cluster's name.
func edsCluster(name, edsName string) *cluster.Cluster {
	return &cluster.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &cluster.Cluster_Type{Type: cluster.Cluster_EDS},
		EdsClusterConfig: &cluster.Cluster_EdsClusterConfig{
			ServiceName: edsName,
			EdsConfig: &core.ConfigSource{
				ResourceApiVersion:    core.ApiVersion_V3,
				ConfigSourceSpecifier: &core.ConfigSource_Ads{Ads: &core.AggregatedConfigSource{}},
			},
		},
	}
}
