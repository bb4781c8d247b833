#!/bin/sh
# Debian's part of the test set-up: a browser for the viewer's tests. As root it is installed; else the line to run is
# printed and those tests are skipped, except in CI, where a missing part is a failure.
set -eu

PACKAGES="chromium fonts-dejavu-core"

if command -v chromium >/dev/null 2>&1; then
    exit 0
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "Installing $PACKAGES ..."
    apt-get update -qq
    # shellcheck disable=SC2086  # a list of packages
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $PACKAGES >/dev/null
    exit 0
fi
echo "The viewer's tests need a browser and are skipped. To run them too:  sudo apt-get install -y $PACKAGES"
if [ -n "${CI:-}" ]; then
    exit 1
fi
