# The image: one static binary, the authorities that Debian trusts, and the bill of materials; no shell, no libc, no root.
#
#   make image IMAGE_REGISTRY=registry.example IMAGE_TAG=0.1.0 ARCH="amd64 arm64"
#
# Cross-compiled, never emulated: the compilers run on the builder's own platform. Only aws-lc-sys and libmimalloc-sys need a
# C compiler for the target, and one clang compiles for all of them, given musl's headers; Rust brings musl itself and its
# linker (rust-lld). So neither cargo-zigbuild nor tonistiigi/xx is needed: they would be one more compiler, or one more image, to
# trust, for what is three variables here.
#
# The base image is named by its version, for its digest cannot be told without asking a registry. `make push` wants it:
# BASE_DIGEST=sha256:…
# Any Debian with this Rust, rustup and a C linker will do; .ci/image makes one where no registry can be reached.
ARG RUST_IMAGE=docker.io/library/rust:1.95.0-bookworm

FROM --platform=$BUILDPLATFORM ${RUST_IMAGE} AS tools
# The compiler of rust-toolchain.toml, without the components that it asks for and a build does not need.
ENV RUSTUP_TOOLCHAIN=1.95.0
# Debian's compilers are taken as they are: what they compile of is pinned in Cargo.lock.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates clang jq llvm \
    && rm -rf /var/lib/apt/lists/*
# Headers alone, unpacked and not installed: the package of another platform would bring that platform's compiler.
WORKDIR /opt/musl
RUN for arch in amd64 arm64; do \
        [ "$arch" = "$(dpkg --print-architecture)" ] || dpkg --add-architecture "$arch"; \
    done \
    && apt-get update \
    && apt-get download musl-dev:amd64 musl-dev:arm64 \
    && for package in *.deb; do dpkg-deb --extract "$package" . || exit 1; done \
    && rm -rf ./*.deb /var/lib/apt/lists/*
RUN rustup target add x86_64-unknown-linux-musl aarch64-unknown-linux-musl
RUN --mount=type=cache,id=cargo-registry,target=/usr/local/cargo/registry \
    cargo install --locked --version 0.5.9 cargo-cyclonedx
# __DATE__ and __TIME__ would tell when it was compiled, and no two builds would be alike.
ENV CC_x86_64_unknown_linux_musl=clang \
    CC_aarch64_unknown_linux_musl=clang \
    AR_x86_64_unknown_linux_musl=llvm-ar \
    AR_aarch64_unknown_linux_musl=llvm-ar \
    CFLAGS_x86_64_unknown_linux_musl="--target=x86_64-unknown-linux-musl -nostdlibinc -isystem /opt/musl/usr/include/x86_64-linux-musl -ffile-prefix-map=/usr/local/cargo=cargo -ffile-prefix-map=/src=. -Wno-builtin-macro-redefined -D__DATE__=__FILE__ -D__TIME__=__FILE__" \
    CFLAGS_aarch64_unknown_linux_musl="--target=aarch64-unknown-linux-musl -nostdlibinc -isystem /opt/musl/usr/include/aarch64-linux-musl -ffile-prefix-map=/usr/local/cargo=cargo -ffile-prefix-map=/src=. -Wno-builtin-macro-redefined -D__DATE__=__FILE__ -D__TIME__=__FILE__" \
    CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_LINKER=rust-lld \
    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER=rust-lld \
    RUSTFLAGS="--remap-path-prefix=/usr/local/cargo=cargo --remap-path-prefix=/src=."
WORKDIR /src

FROM tools AS build
# The platform of the image, as the builder sets it: amd64 or arm64.
ARG TARGETARCH
COPY . .
# One target folder for both platforms, one after the other: build scripts and macros are the builder's own in both.
# Cargo tells by its time whether a file of the workspace has changed. That says nothing here, where a file may have the
# time of its commit or of a checkout, and the folder outlasts both; so all of them count as changed.
RUN --mount=type=cache,id=cargo-registry,target=/usr/local/cargo/registry \
    --mount=type=cache,id=cargo-target,target=/src/target,sharing=locked \
    case "$TARGETARCH" in \
        amd64) target=x86_64-unknown-linux-musl ;; \
        arm64) target=aarch64-unknown-linux-musl ;; \
        *) echo "no target for the platform '$TARGETARCH'" >&2; exit 1 ;; \
    esac \
    && find . -path ./target -prune -o -type f -exec touch {} + \
    && cargo build --release --locked --no-default-features --features pkcs12 --target "$target" \
        --bin azure-backend-pool-controller \
    && install -D -m 0755 -t /out "target/$target/release/azure-backend-pool-controller" \
    && echo "$target" >/opt/target
# Seconds since 1970 of the commit: the time of all that the image has. It comes so late because a commit that changes
# nothing of the above need not compile it again.
ARG SOURCE_DATE_EPOCH=0
# Scanners look for the bill of materials there: a static binary does not tell of what it was made. `cargo metadata`, of
# which cargo-cyclonedx makes it, also names crates of features that are switched off; so what
# `cargo tree` does not name is taken out again.
RUN --mount=type=cache,id=cargo-registry,target=/usr/local/cargo/registry \
    export SOURCE_DATE_EPOCH \
    && target="$(cat /opt/target)" \
    && cargo cyclonedx --format json --target "$target" --no-build-deps --spec-version 1.5 \
    && cargo tree --locked --no-default-features --features pkcs12 --edges normal,no-proc-macro --target "$target" --prefix none --format '{p}' >/opt/crates \
    && install -d /out/usr/share/sbom \
    && jq --rawfile crates /opt/crates ' \
        ($crates | split("\n") | map(split(" ")[:2] | join(" "))) as $linked \
        | .components |= map(select("\(.name) v\(.version)" | IN($linked[]))) \
        | [.metadata.component, .components[] | ."bom-ref"] as $refs \
        | .dependencies |= map(select(.ref | IN($refs[])) \
            | if .dependsOn then .dependsOn |= map(select(IN($refs[]))) else . end)' \
        azure-backend-pool-controller.cdx.json >/out/usr/share/sbom/azure-backend-pool-controller.cdx.json \
    && install -D -m 0644 -t /out/etc/ssl/certs /etc/ssl/certs/ca-certificates.crt \
    && install -m 0644 -t /out LICENSE \
    && chmod 0644 /out/usr/share/sbom/* \
    && find /out -exec touch --date="@$SOURCE_DATE_EPOCH" {} +

# For `make sbom`: the bill of materials alone.
FROM scratch AS sbom
COPY --from=build /out/usr/share/sbom/ /

FROM scratch
ARG VERSION=unknown
ARG REVISION=unknown
# Before the files: a builder that keeps layers must not take those of another commit, which have another time.
LABEL org.opencontainers.image.title="azure-backend-pool-controller" \
      org.opencontainers.image.description="Keeps Azure Load Balancer backend pools equal to what the Kubernetes cluster says." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /out/ /
# By number: Kubernetes' runAsNonRoot cannot judge a name.
USER 65532:65532
EXPOSE 8080 8443
ENTRYPOINT ["/azure-backend-pool-controller"]
CMD ["run"]
