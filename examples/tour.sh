#!/bin/sh
# What `make run` shows: the sample workspace, screen by screen. Takes the kitbag command as its argument.
# It works on a copy in a home directory of its own, so that your settings and skills stay out of the picture.
set -eu
kitbag=$1
here=$(cd "$(dirname "$0")" && pwd)
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
export HOME="$home" KITBAG_HOME="$home/.kitbag" GIT_CONFIG_NOSYSTEM=1
unset KITBAG_MODEL ANTHROPIC_API_KEY OPENAI_API_KEY 2>/dev/null || true
# The sample needs a Python as new as Kitbag does, under the name python3.
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || PATH=$(dirname "$kitbag"):$PATH
cp -R "$here/workspace" "$home/shop"
cd "$home/shop"
git init -q .
git add -A
git -c user.name=Tour -c user.email=tour@example.com commit -q -m 'SHOP-1: the shop'

# Listings are for a pipe here, so nothing else fits them to the terminal.
width=$(stty size 2>/dev/null < /dev/tty | cut -d ' ' -f 2)
if [ "${width:-0}" -lt 20 ]; then width=100; fi

show() {
    if [ -t 1 ]; then printf '\n\033[1;36m$'; else printf '\n$'; fi
    column=1
    for word in "$@"; do
        case $word in *[\ \`\"\(]*) word="'$word'" ;; esac
        if [ $((column + ${#word})) -gt 76 ]; then
            printf ' \\\n   '
            column=3
        fi
        printf ' %s' "$word"
        column=$((column + ${#word} + 1))
    done
    if [ -t 1 ]; then printf '\033[0m\n'; else printf '\n'; fi
}
step() {
    show kitbag "$@"
    "$kitbag" "$@"
}
# part FIRST-LINE LAST-LINE ARGUMENTS...: only these lines of what it prints, and how many there are.
part() {
    first=$1 last=$2
    shift 2
    show kitbag "$@"
    "$kitbag" "$@" > "$home/out" 2>&1
    sed -n "$first,${last}p" "$home/out" | cut -c "1-$width"
    echo "   (lines $first to $last of $(wc -l < "$home/out" | tr -d ' '))"
}
differences() {
    show git diff --stat
    git --no-pager diff --stat
    if git diff --quiet; then echo "(no difference)"; fi
}
say() {
    if [ -t 1 ]; then printf '\n\033[1m%s\033[0m\n' "$*"; else printf '\n%s\n' "$*"; fi
}

say "1. A small web shop with skills and agents in the formats of six tools.
   Nothing in it counts until you trust it; this is what you would trust:"
part 1 10 trust --yes

say "2. At the start a model sees names and descriptions, not instructions:"
part 1 11 skills list

say "3. Ask. There is no key and no network here, so the built-in offline mode
   answers: no language model, but it loads the skill that fits and quotes."
part 1 20 -p 'How are amounts of money rounded?' --model offline

say "4. The ledger: every token the model was given, and what loading every
   skill at the start would have cost instead."
show kitbag context
"$kitbag" context > "$home/out"
sed -n 1,3p "$home/out"
grep ' if all were' "$home/out"
last=$(grep -n '^last request' "$home/out" | cut -d: -f1)
sed -n "${last}p" "$home/out"

say "5. A piece of work. The tests fail because half a cent is rounded to even.
   One prompt fixes it and runs the tests; you allow that command first:"
step config set permissions.allow '["Bash(python3 -m unittest:*)"]'
step -p 'Replace `ROUND_HALF_EVEN` by `ROUND_HALF_UP` in app/' \
    --permission-mode acceptEdits --model offline
differences

say "6. And back:"
step undo --yes
differences

say "Next: start the chat in examples/workspace, or connect a model of your own.
   $kitbag setup
   $kitbag
   $kitbag --persona shop/developer -p 'Review PR #123 for security issues'"
