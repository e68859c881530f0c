#!/bin/sh
# Installs what Debian has of the toolchains that some tests need, where it may, and says what is
# missing. Never fails: a test without its toolchain is listed as not run.
set -u

missing=""
for program in kcat java mvn go node npm; do
    command -v "$program" >/dev/null 2>&1 || missing="$missing $program"
done
[ -z "$missing" ] && exit 0

if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
    packages=""
    for program in $missing; do
        case "$program" in
            kcat) packages="$packages kcat" ;;
            java) packages="$packages openjdk-17-jdk-headless" ;;
            mvn) packages="$packages maven" ;;
            go) packages="$packages golang-go" ;;
            node) packages="$packages nodejs" ;;
            npm) packages="$packages npm" ;;
        esac
    done
    echo "installing:$packages"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >/dev/null 2>&1
    # shellcheck disable=SC2086 # the list is meant to be split
    apt-get install -y -qq --no-install-recommends $packages >/dev/null 2>&1
fi
for program in $missing; do
    command -v "$program" >/dev/null 2>&1 || echo "not found: $program (its tests will not run)"
done
exit 0
