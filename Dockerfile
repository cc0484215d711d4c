# dpose for a processor, as a user without rights. Two stages: what builds it stays behind.
#   docker build -t dpose . && docker run --rm --network none -v "$PWD/data:/data:ro" dpose --help
FROM python:3.12-slim AS build
RUN python -m venv /opt/dpose
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN /opt/dpose/bin/pip install --no-cache-dir .

FROM python:3.12-slim
RUN useradd --create-home --uid 1000 dpose
COPY --from=build /opt/dpose /opt/dpose
ENV PATH=/opt/dpose/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    DPOSE_PICTURE_CACHE=off
USER dpose
WORKDIR /home/dpose
# the keys of runs and the account of data: mount a folder here, or they end with the container
RUN mkdir -p -m 700 .local/state/dpose
ENTRYPOINT ["dpose"]
CMD ["--help"]
