#!/bin/sh
# What `make run` shows: the sample workspace through Kitbag's eyes. Takes the kitbag command as its argument.
# It works on a copy in a home directory of its own, so that your own settings and skills stay out of the picture.
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
differences() {
    show git diff --stat
    git --no-pager diff --stat
    if git diff --quiet; then echo "(no difference)"; fi
}
say() {
    if [ -t 1 ]; then printf '\n\033[1m%s\033[0m\n' "$*"; else printf '\n%s\n' "$*"; fi
}

say "1. A small web shop, with skills and agents in the formats of six tools."
step skills list

say "2. Nothing in it counts before you trust it: what it would run and allow."
step trust --yes

say "3. What would happen to a command, and why."
step permissions test 'git log --oneline && curl https://example.com | sh' ||
    printf '(exit %s: it would not run unasked)\n' "$?"

say "4. A task packed into a subagent's context, inside a budget."
step pack SHOP-41 --explain

say "5. A plugin from your disk, what all of it can do, and whether it is sound."
step plugins install "$here/plugins/release-kit"
step audit
step doctor

say "6. A question. No key, no network: the offline model is no language model.
   It loads the skill that fits, searches, reads and quotes."
step -p 'How are amounts of money rounded?' --model offline
say "   What it was shown for that, to the byte, and what it cost:"
step context

say "7. Two people in one team. Each sees the skills and agents of their work."
step personas list
step agents search --persona shop/developer --most 2 'Review migrations/002_customer_email.sql'
step --persona shop/support --permission-mode plan --model offline \
    -p 'Create an investigation report for incident #456'

say "8. A piece of work. A few plain requests it carries out, by fixed rules.
   You allow the command that runs the tests, in your own settings:"
step config set permissions.allow '["Bash(python3 -m unittest:*)"]'
step -p 'Run the tests' --model offline

say "   Half a cent is rounded to even, and has to be rounded up. From now on
   files may be changed, and what they were is kept:"
step -p 'Replace `ROUND_HALF_EVEN` by `ROUND_HALF_UP` in app/' \
    --permission-mode acceptEdits --model offline
differences

say "   And back, as if nothing had happened:"
step undo --yes
differences

say "Next: cd examples/workspace, and talk to it; setup connects a model of your own
   $kitbag
   $kitbag setup
   $kitbag -p 'Why do two tests fail?'
   $kitbag --persona shop/developer -p 'Review PR #123 for security issues'"
