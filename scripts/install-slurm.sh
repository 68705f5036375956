#!/bin/sh
# Install Debian's Slurm and munge, with which a test runs the job script of the profiler. For `make test`.
set -eu

if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
    echo "No Slurm, and no way to install it here: the test that runs a job script is skipped." >&2
    exit 0
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    slurmctld slurmd slurm-client munge >/dev/null
