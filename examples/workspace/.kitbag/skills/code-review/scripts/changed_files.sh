#!/bin/sh
# Print the files that differ from a base, one per line: committed, uncommitted and new ones.
# Usage: changed_files.sh [BASE]     BASE defaults to main, else master, else the previous commit.
set -eu

if ! git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    echo "changed_files.sh: not inside a git repository" >&2
    exit 2
fi

base=${1:-}
if [ -z "$base" ]; then
    for candidate in main master HEAD~1 HEAD; do
        if git rev-parse --verify --quiet "$candidate^{commit}" >/dev/null; then
            base=$candidate
            break
        fi
    done
fi
if [ -z "$base" ] || ! git rev-parse --verify --quiet "$base^{commit}" >/dev/null; then
    echo "changed_files.sh: no such commit or branch: ${base:-(the repository has no commits)}" >&2
    exit 2
fi

# Compare with the point where the branch began, so that newer work on the base does not show up here.
start=$(git merge-base "$base" HEAD 2>/dev/null) || start=$base

{
    git diff --name-only --diff-filter=d --relative "$start"
    git ls-files --others --exclude-standard
} | sort -u
