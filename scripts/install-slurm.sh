#!/bin/sh
# Install Debian's Slurm and munge, with which a test runs the job script of the profiler. For `make test`.
set -eu

packages="slurmctld slurmd slurm-client munge"
skipped="The test that runs a job script is skipped: no Slurm, and no way to install it here."

if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
    echo "$skipped" >&2
    exit 0
fi
{
    apt-get update -qq
    # shellcheck disable=SC2086 - several packages
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages >/dev/null
} || echo "$skipped" >&2
