# One image, three commands: web, worker (with its queues), beat. See compose.yaml.
FROM python:3.12-slim-bookworm AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/portal
COPY requirements.txt /tmp/
RUN /opt/portal/bin/pip install --require-hashes -r /tmp/requirements.txt
WORKDIR /srv/portal
COPY manage.py ./
COPY portal portal
COPY budgets budgets
COPY clusters clusters
COPY templates templates
COPY static static
# collectstatic reads settings only; the key it needs there signs nothing.
RUN PORTAL_SECRET_KEY=build PORTAL_STATIC_ROOT=/srv/static \
    /opt/portal/bin/python manage.py collectstatic --no-input \
    && /opt/portal/bin/python -m compileall -q /srv/portal

FROM python:3.12-slim-bookworm
ENV PATH=/opt/portal/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    PORTAL_STATIC_ROOT=/srv/static PORTAL_SPOOL_FOLDER=/var/spool/portal \
    DJANGO_SETTINGS_MODULE=portal.settings
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin portal \
    && install -d -m 0700 -o 10001 /var/spool/portal
COPY --from=build /opt/portal /opt/portal
COPY --from=build /srv /srv
WORKDIR /srv/portal
USER 10001
EXPOSE 8000
# Preloaded: the port opens when it can answer, so that nobody waits for one of several webs that only
# begins.
CMD ["gunicorn", "portal.wsgi:application", "--bind", "0.0.0.0:8000", "--workers", "2", \
     "--threads", "4", "--preload", "--worker-tmp-dir", "/dev/shm", "--access-logfile", "-", "--no-control-socket"]
