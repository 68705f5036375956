# The service; the migration step is the same image with another command.
FROM python:3.11-slim

WORKDIR /meshplan
COPY constraints.txt pyproject.toml README.md LICENSE alembic.ini ./
COPY planner planner
COPY api api
COPY profiler profiler
COPY migrations migrations
RUN python -m pip install --no-cache-dir --constraint constraints.txt pip setuptools \
    && python -m pip install --no-cache-dir --constraint constraints.txt --no-build-isolation . \
    && useradd --system --no-create-home meshplan

USER meshplan
ENV MESHPLAN_HOST=0.0.0.0 MESHPLAN_PORT=8000
EXPOSE 8000
CMD ["meshplan", "serve"]
