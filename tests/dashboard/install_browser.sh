#!/bin/sh
# Chromium for the tests of the dashboard, from the distribution. Does nothing where there is one.
set -eu
for name in chromium chromium-browser google-chrome; do
    if command -v "$name" >/dev/null; then exit 0; fi
done
if ! command -v apt-get >/dev/null; then
    echo "no Chromium, and no apt-get to install it with: install it yourself to test the dashboard in a browser" >&2
    exit 1
fi
as_root=""
if [ "$(id -u)" -ne 0 ]; then
    if ! sudo -n true 2>/dev/null; then
        echo "no Chromium, and neither root nor sudo without a password to install it: apt-get install chromium" >&2
        exit 1
    fi
    as_root="sudo -n"
fi
export DEBIAN_FRONTEND=noninteractive
install() { $as_root apt-get install --yes --quiet --no-install-recommends chromium fonts-dejavu-core >&2; }
install || { $as_root apt-get update --quiet >&2 && install; }
