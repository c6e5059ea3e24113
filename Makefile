# What needs more than cargo: the image and the chart.
#
#   make image REGISTRY=registry.example/team TAG=0.1.0 [PLATFORMS=linux/amd64,linux/arm64] [PUSH=true]
#   make sbom                     writes the bill of materials to target/sbom
#   make chart                    checks the chart, and packs it into target/chart
#   make chart-readme             writes the table of values anew

NAME := azure-backend-pool-controller
VERSION := $(shell sed -n '/^\[workspace.package\]/,/^$$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
REVISION := $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
# Each time in the image is that of the commit, so that two builds of one commit are alike.
SOURCE_DATE_EPOCH ?= $(shell git log -1 --pretty=%ct 2>/dev/null || echo 0)

REGISTRY ?=
TAG ?= $(VERSION)
PLATFORMS ?= linux/amd64,linux/arm64
# Without PUSH=true the image is built and stays in the builder's cache; one platform may be loaded by OUTPUT=type=docker.
PUSH ?= false
OUTPUT ?= type=image,push=$(PUSH),rewrite-timestamp=true
BUILD_ARGS ?=
HELM ?= $(if $(wildcard .tools/k8s/helm),.tools/k8s/helm,helm)

BUILD = SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) docker buildx build \
	--build-arg VERSION=$(VERSION) --build-arg REVISION=$(REVISION) \
	--build-arg SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) $(BUILD_ARGS)

.PHONY: image sbom chart chart-readme

image:
	$(if $(REGISTRY),,$(error name the registry: make image REGISTRY=registry.example/team))
	$(BUILD) --platform $(PLATFORMS) --provenance=mode=max --tag $(REGISTRY)/$(NAME):$(TAG) --output $(OUTPUT) .

sbom:
	$(BUILD) --platform $(PLATFORMS) --target sbom --output type=local,dest=target/sbom .

chart:
	charts/check
	mkdir -p target/chart
	$(HELM) package charts/$(NAME) --destination target/chart

chart-readme:
	charts/values-table
