# syntax=docker/dockerfile:1
# Two stages: a builder that is discarded, and an image with one program, without a shell and without root.
ARG BUILDER=docker.io/library/rust:1-bookworm
ARG RUNTIME=gcr.io/distroless/cc-debian12:nonroot

FROM ${BUILDER} AS builder
WORKDIR /src
# rust-toolchain.toml is not copied: the image's own compiler is new enough, and rustup would download another one.
COPY Cargo.toml Cargo.lock build.rs config.toml ./
COPY src src
# Cargo.toml names the benchmarks, so cargo needs the files even if it does not build them.
COPY benches benches
# The revision shown in curtsy_build_info: --build-arg REVISION="$(git rev-parse --short=12 HEAD)"
ARG REVISION=
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    CURTSY_REVISION="${REVISION}" cargo build --profile dist --locked --features jemalloc --bin curtsy \
    && cp target/dist/curtsy /usr/local/bin/curtsy
# The runtime image has no shell, so the folder is made here.
RUN mkdir -p /image/var/lib/curtsy

FROM ${RUNTIME}
LABEL org.opencontainers.image.title="curtsy" \
      org.opencontainers.image.description="A forward proxy that makes any client polite to every host" \
      org.opencontainers.image.licenses="MIT OR Apache-2.0"
COPY --from=builder --chown=65532:65532 /image/var/lib/curtsy /var/lib/curtsy
COPY deploy/image.toml /etc/curtsy/config.toml
COPY --from=builder /usr/local/bin/curtsy /usr/local/bin/curtsy

USER 65532:65532
VOLUME /var/lib/curtsy
EXPOSE 3128 3129
# curtsy is process 1 and handles the signal itself: requests in flight finish within `shutdown_grace` (30 s).
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s CMD ["/usr/local/bin/curtsy", "health"]
ENTRYPOINT ["/usr/local/bin/curtsy"]
CMD ["run"]
