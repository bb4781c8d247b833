#!/bin/sh
# Debian's part of the test set-up: a browser for the viewer's tests, a Redis for the proxy's, a Java for the model's.
# As root they are installed; else the line to run is printed and those tests are skipped, except in CI, where a missing
# part is a failure.
set -eu

PACKAGES=""

# need PROGRAM PACKAGES TESTS: what to install, and who needs it, where a program is missing.
need() {
    command -v "$1" >/dev/null 2>&1 && return
    echo "$1 is not installed; $3 need it."
    PACKAGES="$PACKAGES $2"
}

need chromium "chromium fonts-dejavu-core" "the viewer's tests"
need redis-server redis-server "the proxy's tests of shared state"
need java default-jre-headless "the model's checks"

if [ -z "$PACKAGES" ]; then
    exit 0
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "Installing$PACKAGES ..."
    apt-get update -qq
    # shellcheck disable=SC2086  # a list of packages
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $PACKAGES >/dev/null
    exit 0
fi
echo "Those tests are skipped. To run them too:  sudo apt-get install -y$PACKAGES"
if [ -n "${CI:-}" ]; then
    exit 1
fi
