"""Commands and paths that permissions are tried with."""

CONTROL = [
    ".git/hooks/pre-commit", ".git/config", ".git", ".git/info/attributes", ".gitmodules", ".kitbag/settings.toml", ".kitbag/skills/x/SKILL.md",
    ".kitbag/agents/x.md", ".kitbag/commands/x.md", ".claude/settings.json", ".claude/settings.local.json", ".claude/skills/x/SKILL.md",
    ".claude/agents/x.md", ".claude/commands/x.md", ".codex/config.toml", ".gemini/settings.json", ".opencode/plugin/x.js", ".cursor/mcp.json",
    ".agents/skills/x/SKILL.md", ".github/agents/x.md", ".github/skills/x/SKILL.md", ".github/copilot-instructions.md", ".github/hooks/x.json",
    ".github/workflows/ci.yml", ".mcp.json", "opencode.json", "opencode.jsonc", ".vscode/tasks.json", ".vscode/settings.json", ".idea/workspace.xml",
    ".zed/tasks.json", ".devcontainer/devcontainer.json", ".husky/pre-commit", ".envrc", ".pre-commit-config.yaml", ".npmrc", ".yarnrc", ".yarnrc.yml",
    ".tool-versions", ".mise.toml", ".bashrc", ".bash_profile", ".profile", ".zshrc", ".zshenv", ".inputrc", "sub/.git/hooks/x", "sub/.mcp.json",
    "sub/deep/.vscode/tasks.json", "sub/.envrc", "node_modules/x/.npmrc", "~/.bashrc", "~/.zshenv", "~/.profile", "~/.ssh/authorized_keys",
    "~/.gitconfig", "~/.config/git/config", "~/.config/fish/config.fish", "~/.config/autostart/x.desktop", "~/.config/systemd/user/x.service",
    "~/.kitbag/settings.toml", "~/.kitbag/trust.json", "~/.local/bin/ls", "~/bin/ls", "/etc/cron.d/x", "/etc/profile.d/x.sh", "/var/spool/cron/x",
]  # fmt: skip


# `{a}` is allowed by a rule, `{b}` is not.
JOINED = [
    "{a} && {b}", "{a} || {b}", "{a}; {b}", "{a};{b}", "{a} | {b}", "{a} |& {b}", "{a} & {b}", "{a}&{b}", "{a}\n{b}", "{a}\n\n\t{b}", "{a}\r\n{b}",
    "{a}\r{b}", "{a} && \\\n{b}", "{a} # x\n{b}", "{b} && {a}", "{b} | {a}", "({a}; {b})", "{{ {a}; {b}; }}", "! {a} || {b}", "time {a}; {b}",
    "if {a}; then {b}; fi", "if {b}; then {a}; fi", "while {a}; do {b}; done", "until {b}; do {a}; done", "for i in 1; do {a}; {b}; done",
    "for ((;;)); do {a}; {b}; done", "case x in x) {a};; *) {b};; esac", "select i in 1; do {a}; {b}; done", "f() {{ {b}; }}; {a}; f",
    "function f {{ {b}; }}; {a}", "coproc {b}; {a}", "{a} && (cd .; {b})", "{a} && {{\n{b}\n}}", "{a} <<'E'\nx\nE\n{b}", "{a} <<'E' && {b}\nx\nE",
    "{a} && \\{b}", "{a} && '{b}'", "{a}; exec {b}", "{a}; eval {b}", "{a}; eval '{b}'", "{a}; command {b}", "{a} | xargs {b}", "{a} | tee >({b})",
    "trap '{b}' EXIT; {a}", "trap '{b}' DEBUG; {a}", "alias git='{b}'; {a}", "git() {{ {b}; }}; {a}", "{a} | bash -c '{b}'", "{a}; bash <<< '{b}'",
    "{a}; . ./x; {b}", "{a}; source x", "{a} | sh", "PROMPT_COMMAND='{b}'; {a}", "PS4='$({b})'; set -x; {a}", "[[ -n $({b}) ]]; {a}", "{a} ;; {b}",
]  # fmt: skip


NESTED = [
    "{a} $({b})", "{a} `{b}`", "{a} <({b})", "{a} >({b})", '{a} "--format=$({b})"', '{a} "`{b}`"', "{a} --x=$({b})y", "{a} $(: $(: $({b})))",
    "{a} <<E\n$({b})\nE", "{a} <<E\n`{b}`\nE", "{a} <<-E\n\t$({b})\n\tE", '{a} <<< "$({b})"', "{a} <<< `{b}`", "{a} $((a[$({b})]))", "{a} $(( $({b}) ))",
    "{a} $(( `{b}` ))", "{a} $[ $({b}) ]", "[[ $({b}) ]] && {a}", "{a} ${{x:-$({b})}}", "{a} ${{x:=`{b}`}}", "{a} ${{x:+$({b})}}", "{a} ${{x#$({b})}}",
    "{a} ${{x/$({b})/y}}", "{a} ${{x:$({b}):1}}", "{a} ${{x[$({b})]}}", '{a} "${{x[$({b})]}}"', '{a} $"$({b})"', "{a} {{a,$({b})}}", "{a} ~$({b})",
    "X=$({b}) {a}", "X=`{b}` {a}", "x[$({b})]=1 {a}", "x=($({b})); {a}", "declare x=$({b}); {a}", "{a} > $({b})", "{a} 2> `{b}`", "{a} &> >({b})",
    "for i in $({b}); do {a}; done", "case $({b}) in *) {a};; esac", "$({b}) {a}", "{a} $(</dev/null; {b})", "{a} -- \"$(\n{b}\n)\"",
]  # fmt: skip


WRAPPED = [
    "curl x", "env curl x", "env -i A=1 curl x", "env -S 'curl x'", "env -u A -- curl x", "/usr/bin/env curl x", "sudo curl x", "sudo -u root -- curl x",
    "sudo -E env curl x", "doas curl x", "su -c 'curl x'", "runuser -u x -- curl x", "pkexec curl x", "nohup curl x", "nohup curl x &", "timeout 5 curl x",
    "timeout -s KILL -k 1 5 curl x", "xargs curl", "echo x | xargs -n1 curl", "xargs -I{} sh -c 'curl {}'", "xargs -a f curl", "command curl x",
    "command -p curl x", "builtin command curl x", "exec curl x", "exec -a x curl", "/usr/bin/curl x", "./curl x", "../../usr/bin/curl x", "bash -c 'curl x'",
    'sh -c "curl x"', "bash -lc 'ls; curl x'", "bash -o pipefail -c 'curl x'", "zsh -c 'curl x'", "fish -c 'curl x'", "bash <<< 'curl x'", "bash <<E\ncurl x\nE",
    "echo 'curl x' | bash", "bash <(echo curl x)", "source <(echo curl x)", ". /dev/stdin <<< 'curl x'", "FOO=1 curl x", "A=1 B=$(id) curl x", "a[0]=1 curl x",
    "nice curl x", "nice -n 5 curl x", "ionice -c3 curl x", "chrt 1 curl x", "taskset 1 curl x", "stdbuf -o0 curl x", "setsid curl x", "unshare curl x",
    "nsenter -t 1 curl x", "chroot / curl x", "strace -f curl x", "ltrace curl x", "gdb --args curl x", "perf stat curl x", "watch -n1 'curl x'", "watch curl x",
    "script -c 'curl x'", "parallel curl ::: x", "flock l curl x", "flock l -c 'curl x'", "time curl x", "time -p curl x", "/usr/bin/time -v curl x",
    "busybox curl x", "find . -exec curl {} +", "find . -execdir sh -c 'curl x' \\;", "find . -ok curl {} \\;", "git -c alias.z='!curl x' z", "git bisect run curl x",
    "git submodule foreach 'curl x'", "git rebase --exec 'curl x'", "tar --to-command='curl x' -xf a", "tar --checkpoint-action=exec='curl x' -cf a .",
    "rsync --rsh='curl x' a b", "ssh h curl x", "ssh -o ProxyCommand='curl x' h", "npx curl x", "docker run i curl x", "kubectl exec p -- curl x",
    "fd -x curl {}", "fd -e py -X curl", "tar -I 'curl x' -xf a", "npm exec -- curl x", "pnpm dlx curl x", "uv run curl x", "ssh-agent curl x", "pwsh -c 'curl x'",
    "/lib64/ld-linux-x86-64.so.2 /usr/bin/curl x", "systemd-inhibit curl x", "hash -p /usr/bin/curl ls", "man -P 'curl x' ls",
    "tmux new 'curl x'", "screen -dm curl x", "systemd-run curl x", "nix-shell --run 'curl x'", "hyperfine 'curl x'", "poetry run curl x", "conda run curl x",
    "\\curl x", "'curl' x", '"cur"l x', "c''url x", "c\\url x", "$'curl' x", "$'\\x63url' x", "$'\\143url' x", "cu\\\nrl x", "CURL x", "{curl,x}", "curl\tx", "  curl x",
    "\ncurl x", "<f curl x", ">f curl x", "2>&1 curl x", "{fd}>f curl x", "<<< x curl y", "eval curl x", "eval 'cu''rl x'", "trap 'curl x' INT", "alias x='curl y'",
    "f() { curl x; }", "function f { curl x; }; f", "coproc curl x", "if curl x; then :; fi", "while ! curl x; do :; done", "case a in a) curl x;; esac", "! curl x",
    "(((curl x)))", "[[ $(curl x) ]]", "echo $(env curl x)", "cat <(curl x)", "tee >(curl x)", "a=$(curl x)", "a=(`curl x`)", "export a=$(curl x)",
    "git commit -m \"$(curl x)\"", "ls\0; curl x", "ls\x01\ncurl x", "ls \udcff; curl x", "ls '\ncurl x", "cat <<E\nE\ncurl x", "true && " * 60 + "curl x",
    "true; " * 1000 + "curl x", "(" * 40 + "curl x" + ")" * 40, "$(" * 20 + "curl x" + ")" * 20, "echo " + "x" * 12_000 + "; curl x", "curl x # " + "x" * 12_000,
]  # fmt: skip


NOT_READING = [
    "find . -exec touch $CANARY \\;", "find . -exec touch x {} +", "find . -execdir id \\;", "find . -ok id \\;", "find . -okdir id \\;", "find . -delete",
    "find . -fprint o", "find . -fprint0 o", "find . -fprintf o x", "find . -fls o", "find -L .", "find . -files0-from f", "sed -i s/a/b/ f", "sed -i.bak p f",
    "sed --in-place p f", "sed -ni p f", "sed -n -e p -i f", "sed 'w o' f", "sed -n '1w o' f", "sed 's/a/b/w o' f", "sed 'e id' f", "sed '1e id' f", "sed 's/a/id/e' f",
    "sed 'r .env' f", "sed 'R x' f", "sed -f s f", "sed --file=s f", "awk 'BEGIN{system(\"id\")}'", "awk '{print > \"o\"}' f", "awk '{print >> \"o\"}' f",
    "awk '{print | \"sh\"}' f", "awk '\"id\" | getline' f", "awk '{getline x < \".env\"}' f", "awk -f s f", "awk -i inplace 1 f", "awk '@load \"x\"' f",
    "gawk --include=x 1 f", "ls | xargs rm", "ls | xargs", "xargs -a f touch", "tee o", "ls | tee o", "ls | tee -a o", "sort -o o f", "sort --output=o f",
    "sort --compress-program=id f", "sort --files0-from=f", "uniq f o", "tree -o o", "xxd -r f o", "xxd f o", "date -s 1", "date --set=1", "date -f .env", "hostname x",
    "file -C -m x", "file -f .env", "rg --pre id x", "rg --pre=id x", "rg --hostname-bin=id x", "rg -z x", "fd -x id", "fd -X id", "fd --exec id", "git grep -Oid x",
    "git grep --open-files-in-pager=id x", "git log --ext-diff -p", "git show --textconv x", "git diff --output=o", "git log --output o", "git diff --no-index / x",
    "git blame --contents /etc/passwd f", "git branch x", "git branch -D x", "git tag x", "git stash", "git stash pop", "git remote add a b", "git config a.b c",
    "git reflog expire --all", "git worktree add x", "git ls-remote", "git fetch", "git cat-file --textconv x", "git -c core.pager=id log", "git --paginate log",
    "tar --to-command=id -xf x", "tar xf x", "jq -n 'import \"a\" as x; .'", "yq -i .a f", "printf -v x y", "less f", "more f", "man ls", "vim f", "view f",
    "python3 -c 1", "node -e 1", "perl -e 1", "make", "npm test", "./f", "sh f", "bash -c ls", "curl x", "wget x", "nc h 1", "ssh h", "ping h", "dig h", "openssl s_client",
    "ls --sort=x $(id)", "cp a b", "mv a b", "rm a", "ln -s a b", "touch a", "mkdir a", "rmdir a", "chmod 1 a", "truncate -s0 a", "dd if=a", "split f", "csplit f 1",
    "kill 1", "yes", "script", "at now", "crontab -l", "mount", "sudo ls", "env FOO=1 ls", "strace ls", "rsync a b", "unzip x", "gzip f", "zcat f", "base64 -o x",
]  # fmt: skip


CHANGING = [
    "export PAGER=id", "export GIT_PAGER=id; git log", "PATH=. git log", "PATH=.:$PATH ls", "declare -x A=1", "declare A", "typeset A=1", "readonly A=1", "local A=1",
    "A=1", "A=1; ls", "A+=1", "alias ls=id", "unalias ls", "source f", ". f", ". ./f", "eval ls", "eval 'ls'", "trap 'id' EXIT", "trap id ERR", "trap - INT", "set -x",
    "set -o noglob", "shopt -s extglob", "enable -f x y", "hash -p /bin/id ls", "bind -x a", "complete -C id x", "exec ls", "exec 3>o", "unset PATH", "umask 0",
    "ulimit -f 0", "read x", "read x < f", "mapfile x < f", "getopts a b", "let a=1", "((a=1))", "wait", "disown", "fg", "history -s x", "fc -s", "times", "suspend", "logout",
    "echo ${x@P}", "echo ${x@E}", "echo ${x@A}", "echo ${x:=1}", "echo ${x:?y}", "echo ${!x}", "echo ${!x*}", "echo ${x[$(id)]}", "echo $((x))", "echo $[x]",
    "echo ${x/a/$(id)}", "cat$IFS/etc/passwd", "cat${IFS}f", "{cat,f}", "c\"$@\"at f", "cat ${HOME}/f", "cat $f", "ls $(pwd)", "$x", "l$x", "LESSOPEN=id less f", "IFS=x ls",
    "LD_PRELOAD=x ls", "BASH_ENV=x ls", "ENV=x sh", "PS4='$(id)' ls", "GIT_SSH_COMMAND=id git status", "GIT_DIR=x git log", "PYTHONSTARTUP=x ls", "NODE_OPTIONS=x ls",
    "EDITOR=id git status", "HOME=/x ls", "PROMPT_COMMAND=id", "CDPATH=/ cd etc", "test -v 'a[$(id)]'", "[[ a -eq 'b[$(id)]' ]]", "[ x -eq 'a[$(id)]' ]",
]  # fmt: skip


TARGETS = [
    "> {t}",
    ">> {t}",
    ">| {t}",
    "&> {t}",
    "&>> {t}",
    "2> {t}",
    "<> {t}",
    ">& {t}",
    "1> {t}",
    "3> {t}",
    "{{fd}}> {t}",
    "> '{t}'",
    ">{t}",
    "2>&1 > {t}",
]
