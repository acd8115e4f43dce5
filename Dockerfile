# docker build -t erelong .
# docker run -d -p 127.0.0.1:8080:8080 -v erelong:/data -e ERELONG_AUTH__ALLOW_ANONYMOUS=true erelong

# To pin the base image: --build-arg BASE=python@sha256:…
ARG BASE=python:3.13-slim-trixie

FROM ${BASE} AS build
COPY requirements.txt /tmp/
# Only wheels, each checked against its hash: no downloaded code runs during the build.
RUN python -m venv /opt/venv \
    && /opt/venv/bin/pip install --no-cache-dir --no-compile --disable-pip-version-check \
        --only-binary :all: --require-hashes -r /tmp/requirements.txt \
    && /opt/venv/bin/pip uninstall --quiet --yes pip \
    && find /opt/venv -type d \( -name tests -o -name sqlite_extra_binaries \) -prune -exec rm -r {} + \
    && find /opt/venv -type f -name "*.py[ix]" -delete
WORKDIR /opt/erelong
COPY app/erelong erelong
# Unchecked: the root may be read-only and file times may change in transit, so bytecode must not depend on sources.
RUN python -m compileall -q --invalidation-mode unchecked-hash /opt/venv/lib erelong

FROM ${BASE}
# PYTHONSAFEPATH: files in the user's working directory must not replace modules of erelong.
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONPATH=/opt/erelong \
    PYTHONSAFEPATH=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    ERELONG_SERVER__HOST=0.0.0.0 \
    ERELONG_STORE__PATH=/data/erelong.db
RUN groupadd --gid 10001 erelong \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /data --shell /usr/sbin/nologin erelong \
    && install -d -o 10001 -g 10001 -m 0750 /data
COPY --from=build /opt/venv /opt/venv
COPY --from=build /opt/erelong /opt/erelong
# Settings, and the modules that they name: mount a folder over it, or add files to it in your own image.
WORKDIR /etc/erelong
COPY config.toml ./
USER 10001:10001
VOLUME ["/data"]
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 CMD ["python", "-m", "erelong", "health"]
ENTRYPOINT ["python", "-m", "erelong"]
CMD ["serve"]
