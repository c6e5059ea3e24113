# What needs more than cargo: the image and the chart. The names of the image's variables are cloud-provider-azure's.
#
#   make image IMAGE_REGISTRY=registry.example/team [IMAGE_TAG=0.1.0] [ARCH="amd64 arm64"]
#   make push  IMAGE_REGISTRY=… BASE_DIGEST=sha256:…    builds it and pushes it
#   make sbom                     writes the bill of materials to target/sbom
#   make chart                    checks the chart, and packs it into target/chart
#   make chart-readme             writes the table of values anew
#   make config-reference         writes config/reference.yaml and the schema of the values' `config` anew
#   make features                 writes the common features of the workspace's crates (needs cargo-hakari)

NAME := azure-backend-pool-controller
VERSION := $(shell sed -n '/^\[workspace.package\]/,/^$$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
REVISION := $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
# Each time in the image is that of the commit, so that two builds of one commit are alike.
SOURCE_DATE_EPOCH ?= $(shell git log -1 --pretty=%ct 2>/dev/null || echo 0)

IMAGE_REGISTRY ?=
IMAGE_TAG ?= $(VERSION)
ARCH ?= amd64 arm64
# `make image` leaves the image in the builder's cache; one platform may be loaded by OUTPUT=type=docker.
OUTPUT ?= type=image,push=false,rewrite-timestamp=true
# The digest of the image that everything is compiled in, as `docker buildx imagetools inspect $(RUST_IMAGE)` tells it.
BASE_DIGEST ?=
RUST_IMAGE := $(shell sed -n 's/^ARG RUST_IMAGE=//p' Dockerfile)
BUILD_ARGS ?=
HELM ?= $(if $(wildcard .tools/k8s/helm),.tools/k8s/helm,helm)

comma := ,
space := $(subst ,, )
PLATFORMS = $(subst $(space),$(comma),$(addprefix linux/,$(strip $(ARCH))))

BUILD = SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) docker buildx build \
	--build-arg VERSION=$(VERSION) --build-arg REVISION=$(REVISION) \
	--build-arg SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) \
	--build-arg RUST_IMAGE=$(RUST_IMAGE)$(addprefix @,$(BASE_DIGEST)) $(BUILD_ARGS) --platform $(PLATFORMS)

.PHONY: image push sbom chart chart-readme config-reference features

image:
	$(if $(IMAGE_REGISTRY),,$(error name the registry: make $@ IMAGE_REGISTRY=registry.example/team))
	$(BUILD) --provenance=mode=max --tag $(IMAGE_REGISTRY)/$(NAME):$(IMAGE_TAG) --output $(OUTPUT) .

# What others will run is not built on what a tag names today.
push: override OUTPUT = type=image,push=true,rewrite-timestamp=true
push:
	$(if $(BASE_DIGEST),,$(error name the base image's digest: make $@ BASE_DIGEST=sha256:…, as `docker buildx imagetools inspect $(RUST_IMAGE)` tells it))
	$(MAKE) image BASE_DIGEST=$(BASE_DIGEST) OUTPUT=$(OUTPUT)

sbom:
	$(BUILD) --target sbom --output type=local,dest=target/sbom .

chart:
	charts/check
	mkdir -p target/chart
	$(HELM) package charts/$(NAME) --destination target/chart

chart-readme:
	charts/values-table

# Both come from the key table in config/src/controller.rs.
config-reference:
	UPDATE_REFERENCE=1 cargo test --package config --test config -- in_step_with_the_key_table

features:
	cargo hakari generate
