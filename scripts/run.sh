#!/bin/sh
# Start the service, plan one example, say where the page is, and serve until Ctrl-C. For `make run`.
set -eu

MESHPLAN_DATABASE_URL="${MESHPLAN_DATABASE_URL:-sqlite:///$(pwd)/var/meshplan.sqlite3}"
MESHPLAN_HOST="${MESHPLAN_HOST:-127.0.0.1}"
MESHPLAN_PORT="${MESHPLAN_PORT:-8000}"
export MESHPLAN_DATABASE_URL MESHPLAN_HOST MESHPLAN_PORT

case "$MESHPLAN_HOST" in
0.0.0.0) address="http://127.0.0.1:$MESHPLAN_PORT" ;;
*) address="http://$MESHPLAN_HOST:$MESHPLAN_PORT" ;;
esac

is_ready() {
    python -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=1)' "$address/readyz" 2>/dev/null
}

if is_ready; then
    echo "something serves at $address already: stop it, or set MESHPLAN_PORT to another port" >&2
    exit 1
fi

meshplan serve --host "$MESHPLAN_HOST" --port "$MESHPLAN_PORT" &
service=$!
trap 'kill "$service" 2>/dev/null || true; wait "$service" 2>/dev/null || true' EXIT
trap 'exit 0' INT TERM

waited=0
until is_ready; do
    kill -0 "$service" 2>/dev/null || { echo "the service did not start: see above" >&2; exit 1; }
    [ "$waited" -lt 120 ] || { echo "the service is not ready after $waited s" >&2; exit 1; }
    sleep 1
    waited=$((waited + 1))
done

echo
echo "\$ meshplan plan --model llama-3-8b --cluster h100-sxm:8 --global-batch 128 --sequence 8192"
meshplan plan --model llama-3-8b --cluster h100-sxm:8 --global-batch 128 --sequence 8192
echo
echo "The web form is at $address/ (Ctrl-C stops the service)."
wait "$service"
