# docker build -t erelong .
# docker run -p 127.0.0.1:8080:8080 -v erelong:/data -e ERELONG_AUTH__ALLOW_ANONYMOUS=true erelong

FROM python:3.13-slim AS build
COPY requirements.txt /tmp/
# Wheels only, each checked against its hash: nothing of the outside runs while the image is built.
RUN python -m venv /opt/venv \
    && /opt/venv/bin/pip install --no-cache-dir --disable-pip-version-check \
        --only-binary :all: --require-hashes -r /tmp/requirements.txt \
    && /opt/venv/bin/pip uninstall --quiet --yes pip
WORKDIR /opt/erelong
COPY config.toml ./
COPY app app
# Unchecked: the root may be read-only and file times may change on the way, so bytecode must stand on its own.
RUN python -m compileall -q --invalidation-mode unchecked-hash app

FROM python:3.13-slim
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    ERELONG_SERVER__HOST=0.0.0.0
RUN groupadd --gid 10001 erelong \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /data --shell /usr/sbin/nologin erelong \
    && install -d -o 10001 -g 10001 -m 0750 /data
COPY --from=build /opt/venv /opt/venv
COPY --from=build /opt/erelong /opt/erelong
# The service reads ./config.toml: mount another over /opt/erelong/config.toml.
WORKDIR /opt/erelong
USER 10001:10001
VOLUME ["/data"]
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 CMD ["python", "-m", "app", "health"]
ENTRYPOINT ["python", "-m", "app"]
CMD ["serve", "--data", "/data"]
