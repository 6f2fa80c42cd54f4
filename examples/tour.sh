#!/bin/sh
# What `make run` shows: the sample workspace through Kitbag's eyes. Takes the kitbag command as its argument.
# It works on its own home directory, so that your own settings and skills stay out of the picture.
set -eu
kitbag=$1
cd "$(dirname "$0")/workspace"
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
export HOME="$home" KITBAG_HOME="$home/.kitbag"

step() {
    printf '\n\033[1;36m$ kitbag %s\033[0m\n' "$*"
    "$kitbag" "$@"
}
# Plain when piped.
[ -t 1 ] || step() {
    printf '\n$ kitbag %s\n' "$*"
    "$kitbag" "$@"
}

echo "A workspace with skills, agents, a command, a team with two personas, and files of five other tools."
step skills list
step skills show code-review
step skills show code-review --level 0
step agents list
step personas show developer
step plugins install ../plugins/release-kit
step skills which tag-release
step pack SHOP-41 --explain
step doctor
printf '\nNext: cd examples/workspace, then try  %s skills list --team shop --persona support\n' "$kitbag"
