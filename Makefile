# What needs more than cargo: the image, the chart, dependencies, fixtures, and clusters on Azure (docs/development). The
# names of the variables are cloud-provider-azure's.
#
#   make image IMAGE_REGISTRY=registry.example/team [IMAGE_TAG=0.1.0] [ARCH="amd64 arm64"]
#   make push  IMAGE_REGISTRY=… BASE_DIGEST=sha256:…    builds it and pushes it
#   make push  OCI_LAYOUT=FOLDER                        builds it and writes it to an OCI layout, without a registry
#   make sbom                     writes the bill of materials to target/sbom
#   make chart                    checks the chart, and packs it into target/chart
#   make chart-readme             writes the table of values again
#   make config-reference         writes config/reference.yaml and the schema of the values' `config`
#   make features                 writes the common features of the workspace's crates (needs cargo-hakari)
#   make update-dependencies      takes the newest versions that Cargo.toml and go.mod allow, and checks them
#   make update-fixtures          writes everything that is made from other files or modules
#   make test-e2e                 runs the tests against your own cluster and subscription
#   make deploy-workload-cluster, make delete-workload-cluster    a cluster on Azure, with Cluster API
#
# With DRY_RUN=true the last five print what they would do.

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

# Where `make push` writes an OCI layout to, in place of a registry.
OCI_LAYOUT ?=
DRY_RUN ?=
# Options of the tests: cluster, conformance or all; a part of the name of tests to run, and of those to leave out; where
# the folder of the reports is; true: against a simulated Azure.
SUITE ?= all
FOCUS ?=
SKIP ?=
REPORTS ?= target/e2e
SIMULATED ?=

comma := ,
space := $(subst ,, )
PLATFORMS = $(subst $(space),$(comma),$(addprefix linux/,$(strip $(ARCH))))

BUILD = SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) docker buildx build \
	--build-arg VERSION=$(VERSION) --build-arg REVISION=$(REVISION) \
	--build-arg SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) \
	--build-arg RUST_IMAGE=$(RUST_IMAGE)$(addprefix @,$(BASE_DIGEST)) $(BUILD_ARGS) --platform $(PLATFORMS)

# Runs a command, or prints it.
RUN = $(if $(filter true,$(DRY_RUN)),@echo +)

.PHONY: image push sbom chart chart-readme config-reference features update-dependencies update-fixtures test-e2e \
	deploy-workload-cluster delete-workload-cluster

image:
	$(if $(IMAGE_REGISTRY),,$(error name the registry: make $@ IMAGE_REGISTRY=registry.example/team))
	$(BUILD) --provenance=mode=max --tag $(IMAGE_REGISTRY)/$(NAME):$(IMAGE_TAG) --output $(OUTPUT) .

# What others will run is not built on what a tag names today.
push: override OUTPUT = type=image,push=true,rewrite-timestamp=true
push:
ifneq ($(OCI_LAYOUT),)
	$(BUILD) --provenance=mode=max --tag $(NAME):$(IMAGE_TAG) \
		--output type=oci,tar=false,dest=$(OCI_LAYOUT),rewrite-timestamp=true .
else
	$(if $(BASE_DIGEST),,$(error name the base image's digest: make $@ BASE_DIGEST=sha256:…, as `docker buildx imagetools inspect $(RUST_IMAGE)` tells it))
	$(MAKE) image BASE_DIGEST=$(BASE_DIGEST) OUTPUT=$(OUTPUT)
endif

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

# The tools that .ci/run has installed, or those that are installed here. Status 69 of .ci/advisories: the database cannot
# be reached, and its copy lacks new packages.
update-dependencies: export PATH := $(CURDIR)/.tools/cargo/bin:$(PATH)
update-dependencies:
	$(RUN) sh -c 'for tool in cargo-hakari cargo-machete cargo-deny; do \
		command -v $$tool >/dev/null || cargo install --locked $$tool || exit 1; done'
	$(RUN) cargo update
	$(RUN) sh -c 'cd tests/go-control-plane && GOWORK=off go get -u ./... && GOWORK=off go mod tidy'
	$(RUN) cargo hakari generate
	$(RUN) cargo machete
	$(RUN) cargo deny --locked check bans licenses sources
	$(RUN) sh -c '.ci/advisories || test $$? = 69'

update-fixtures:
	$(RUN) tests/k8s-azure-manifest/update-schemas
	$(RUN) charts/values-table
	$(RUN) $(MAKE) config-reference

test-e2e:
	cargo run --quiet --package e2e -- --suite $(SUITE) --focus "$(FOCUS)" --skip "$(SKIP)" --reports "$(REPORTS)" \
		$(if $(filter true,$(DRY_RUN)),--dry-run) $(if $(filter true,$(SIMULATED)),--simulated)

deploy-workload-cluster:
	@DRY_RUN=$(DRY_RUN) tests/k8s-azure-manifest/workload-cluster deploy

delete-workload-cluster:
	@DRY_RUN=$(DRY_RUN) tests/k8s-azure-manifest/workload-cluster delete
