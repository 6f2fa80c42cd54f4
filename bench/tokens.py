"""How far the token estimate is from a real tokenizer, and how fast both are.

    python bench/tokens.py [--json FILE]

For each kind of text: characters, exact tokens (o200k), the estimate and its error, plain characters / 4
and its error, and megabytes a second of both. The last columns count by cl100k, an older vocabulary.
Without the extra `tokens` the exact columns are empty.
"""

import argparse
import ast
import inspect
import json
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

from kitbag.text.tokens import estimate_tokens, token_counter

CHINESE = """
在开始修改代码之前，请先完整地阅读相关的文件，弄清楚这个模块要解决什么问题。如果需求不明确，不要猜测，应当先向提出需求
的人询问。每一次修改都应当尽可能小，只做一件事情，并且附带能够证明它正确的测试。提交之前请运行全部测试。如果有测试失
败，必须先找到真正的原因，而不是简单地跳过它。对于偶尔失败的测试，要特别小心：它们往往说明程序中存在竞争条件或者没有释
放的资源。错误信息应当告诉用户发生了什么、为什么会发生，以及接下来可以怎么办。写文档的时候，请站在读者的角度考虑问题。
读者通常没有耐心看完很长的介绍，他们希望马上知道这个工具能做什么、怎样安装、怎样使用。例子比抽象的描述更加有用，但是例
子必须能够真正运行，否则只会让人失望。性能优化需要以测量为依据。没有数据支持的优化常常让代码变得复杂，却没有带来任何好
处。先用分析工具找出最慢的部分，然后再决定是否值得改进。许多时候，换一个更合适的数据结构就能解决问题，并不需要复杂的技
巧。代码审查的目的不是挑错，而是让大家对系统有共同的理解。提出意见的时候要具体，说明理由，最好给出替代的写法；收到意见
的时候不要急着辩解，先想一想对方为什么会这样看。如果双方意见不一致，可以请第三个人来判断。处理用户数据时必须遵守最小权
限的原则：只读取完成任务所需要的内容，不保存多余的信息，不把密码和密钥写进日志。任何来自外部的输入都不能直接相信，必须
先检查格式、长度和范围。当任务完成以后，请用一两句话总结所做的工作，列出修改过的文件，并说明还有哪些问题没有解决。这样
接手的人才能很快继续下去。遇到不熟悉的框架时，先查看项目里已有的用法，再查官方手册，最后才去网上搜索。同一个功能在项目
中应当只有一种写法，新的代码要和周围的代码保持一致的风格。
"""

JAPANESE = """
コードを変更する前に、関連するファイルを最後まで読み、そのモジュールが何を解決しようとしているのかを理解してください。
要件がはっきりしないときは推測せず、依頼した人に確認します。一回の変更はできるだけ小さくし、一つのことだけを行い、正し
さを示すテストを必ず付けます。コミットする前に、すべてのテストを実行してください。失敗したテストがあれば、本当の原因を
見つけるまで調べます。無視したり、一時的に無効にしたりしてはいけません。たまに失敗するテストには特に注意が必要です。多
くの場合、競合状態や解放されていないリソースが隠れています。エラーメッセージは、何が起きたのか、なぜ起きたのか、次に何
をすればよいのかを利用者に伝えるものでなければなりません。文書を書くときは、読む人の立場で考えましょう。読者は長い説明
を読む時間がありません。このツールで何ができるのか、どうやってインストールするのか、どう使うのかをすぐに知りたいので
す。抽象的な説明よりも、実際に動く例のほうが役に立ちます。性能の改善は測定に基づいて行います。データのない最適化は、コ
ードを複雑にするだけで、良い結果をもたらさないことが多いものです。まずプロファイラで一番遅い部分を見つけ、それから改善
する価値があるかどうかを判断します。コードレビューの目的は間違い探しではなく、システムについての理解を共有することで
す。意見を述べるときは具体的に理由を説明し、できれば別の書き方を示してください。外部から来た入力はそのまま信用せず、形
式、長さ、範囲を必ず確認してください。作業が終わったら、行ったことを短くまとめ、変更したファイルの一覧と、まだ残ってい
る問題を書いてください。そうすれば、次の担当者がすぐに作業を続けることができます。
"""

KOREAN = """
코드를 수정하기 전에 관련된 파일을 끝까지 읽고, 이 모듈이 어떤 문제를 해결하려고 하는지 먼저 이해하십시오. 요구 사항이
분명하지 않다면 추측하지 말고 요청한 사람에게 물어보아야 합니다. 한 번의 변경은 가능한 한 작게 만들고, 한 가지 일만
하며, 올바르다는 것을 보여 주는 테스트를 함께 추가합니다. 커밋하기 전에 모든 테스트를 실행하십시오. 실패한 테스트가
있다면 진짜 원인을 찾아야 하며, 단순히 건너뛰어서는 안 됩니다. 가끔 실패하는 테스트는 특히 조심해야 합니다. 대부분의
경우 경쟁 상태나 해제되지 않은 자원이 숨어 있기 때문입니다. 오류 메시지는 무엇이 일어났는지, 왜 일어났는지, 그리고
다음에 무엇을 할 수 있는지를 사용자에게 알려 주어야 합니다. 문서를 작성할 때에는 읽는 사람의 입장에서 생각하십시오.
독자는 긴 소개를 읽을 시간이 없습니다. 이 도구로 무엇을 할 수 있는지, 어떻게 설치하고 어떻게 사용하는지를 바로 알고
싶어 합니다. 추상적인 설명보다 실제로 동작하는 예제가 훨씬 더 도움이 됩니다. 성능 개선은 측정 결과를 바탕으로 해야
합니다. 데이터가 없는 최적화는 코드를 복잡하게 만들 뿐이고 아무런 이익도 주지 못하는 경우가 많습니다. 먼저 가장 느린
부분을 찾은 다음에 고칠 가치가 있는지 결정하십시오. 코드 리뷰의 목적은 잘못을 찾는 것이 아니라 시스템에 대한 이해를
함께 나누는 것입니다. 의견을 말할 때에는 구체적인 이유를 설명하고, 가능하면 다른 방법을 제시하십시오. 외부에서 들어온
입력은 그대로 믿지 말고 형식과 길이와 범위를 반드시 확인해야 합니다. 작업이 끝나면 한 일을 짧게 정리하고, 변경한
파일의 목록과 아직 남아 있는 문제를 적어 주십시오.
"""

RUSSIAN = """
Прежде чем менять код, прочитайте связанные с ним файлы до конца и поймите, какую задачу решает этот
модуль. Если требования неясны, не гадайте, а спросите того, кто поставил задачу. Каждое изменение
должно быть как можно меньше, делать одно дело и сопровождаться проверкой, которая показывает, что
оно работает правильно.
Перед отправкой запустите все тесты. Если какой-то из них не проходит, найдите настоящую причину и не
отключайте его на время. Особенно внимательно относитесь к тестам, которые падают изредка: чаще всего
за ними скрываются гонки или ресурсы, которые никто не освободил.
Сообщение об ошибке должно говорить пользователю, что произошло, почему это произошло и что можно
сделать дальше.
Когда пишете документацию, думайте о читателе. У него нет времени на длинное введение, он хочет сразу
узнать, что умеет программа, как её установить и как ею пользоваться. Работающий пример полезнее
любого отвлечённого описания.
Ускорять программу следует только после измерений. Улучшения, сделанные наугад, часто усложняют код и
не приносят никакой пользы. Сначала найдите самое медленное место, потом решайте, стоит ли его менять.
Цель проверки кода состоит не в поиске виноватых, а в том, чтобы все одинаково понимали систему.
Высказывайте замечания конкретно, объясняйте причины и по возможности предлагайте другой вариант.
Никакие данные, пришедшие извне, нельзя использовать без проверки формата, длины и допустимых значений.
"""

ARABIC = """
قبل أن تغيّر أي جزء من البرنامج، اقرأ الملفات المتعلقة به حتى النهاية وافهم المشكلة التي يحلها هذا الجزء.
إذا كانت المتطلبات غير واضحة فلا تخمن، بل اسأل الشخص الذي طلب العمل. يجب أن يكون كل تغيير صغيرا قدر
الإمكان، وأن يقوم بعمل واحد فقط، وأن يرافقه اختبار يثبت صحته.
قبل إرسال التغيير شغّل جميع الاختبارات. إذا فشل أحدها فابحث عن السبب الحقيقي ولا تتجاهله. الاختبارات التي
تفشل أحيانا تحتاج إلى عناية خاصة، لأنها تدل غالبا على تسابق بين العمليات أو على موارد لم تحرر بعد.
يجب أن تخبر رسالة الخطأ المستخدم بما حدث، ولماذا حدث، وما الذي يمكنه أن يفعله بعد ذلك.
عندما تكتب الوثائق فكر في القارئ. ليس لديه وقت لقراءة مقدمة طويلة، وهو يريد أن يعرف فورا ماذا يفعل هذا
البرنامج، وكيف يثبته، وكيف يستخدمه. المثال الذي يعمل فعلا أنفع من أي وصف مجرد.
تحسين الأداء يجب أن يعتمد على القياس. التحسينات التي لا تستند إلى بيانات تجعل البرنامج أكثر تعقيدا دون أي
فائدة في كثير من الأحيان. ابحث أولا عن أبطأ جزء، ثم قرر هل يستحق التغيير أم لا.
ليس الهدف من مراجعة البرنامج البحث عن الأخطاء فقط، بل أن يفهم الجميع النظام فهما مشتركا. قدم ملاحظاتك بشكل
محدد واشرح أسبابها، واقترح بديلا إن أمكن.
لا تثق بأي مدخلات تأتي من الخارج قبل أن تتحقق من شكلها وطولها وحدودها.
عند الانتهاء اكتب ملخصا قصيرا لما قمت به، وقائمة بالملفات التي تغيرت، والمسائل التي لم تحل بعد.
"""

JAVASCRIPT = """
import { readFile } from "node:fs/promises";
import path from "node:path";

const DEFAULTS = { retries: 3, timeoutMs: 5_000, extensions: [".md", ".txt"] };

/** Reads documents below a folder and remembers them by their relative path. */
export class DocumentStore {
  #documents = new Map();

  constructor(root, options = {}) {
    this.root = path.resolve(root);
    this.options = { ...DEFAULTS, ...options };
  }

  async load(name) {
    const cached = this.#documents.get(name);
    if (cached !== undefined) return cached;
    const file = path.join(this.root, name);
    if (!file.startsWith(this.root + path.sep)) {
      throw new RangeError(`outside of the store: ${name}`);
    }
    for (let attempt = 1; attempt <= this.options.retries; attempt++) {
      try {
        const text = await readFile(file, { encoding: "utf8", signal: AbortSignal.timeout(this.options.timeoutMs) });
        const entry = Object.freeze({ name, text, lines: text.split("\\n").length });
        this.#documents.set(name, entry);
        return entry;
      } catch (error) {
        if (error.code === "ENOENT" || attempt === this.options.retries) throw error;
        await new Promise((resolve) => setTimeout(resolve, 2 ** attempt * 10));
      }
    }
  }

  search(words) {
    const wanted = words.map((word) => word.trim().toLowerCase()).filter(Boolean);
    return [...this.#documents.values()]
      .map((entry) => ({ entry, score: wanted.filter((word) => entry.text.toLowerCase().includes(word)).length }))
      .filter(({ score }) => score > 0)
      .sort((left, right) => right.score - left.score || left.entry.name.localeCompare(right.entry.name))
      .slice(0, 10);
  }
}

export async function main(argv = process.argv.slice(2)) {
  const [root = ".", ...words] = argv;
  const store = new DocumentStore(root, { retries: 2 });
  await Promise.all(["README.md", "CHANGELOG.md"].map((name) => store.load(name).catch(() => null)));
  for (const { entry, score } of store.search(words)) {
    console.log(`${String(score).padStart(3)}  ${entry.name} (${entry.lines} lines)`);
  }
}
"""

SHELL = """
#!/usr/bin/env bash
# Builds the packages in dist/, writes a checksum beside each, tags the commit and pushes the tag.
# Refuses to publish what was not committed. Environment: PYTHON (who builds), REMOTE (default: origin).
set -euo pipefail

readonly root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
readonly version="${1:?usage: release.sh VERSION [--dry-run]}"
dry_run=false
[[ "${2:-}" == "--dry-run" ]] && dry_run=true

log() { printf '%s %s\\n' "$(date +%H:%M:%S)" "$*" >&2; }
die() { log "error: $*"; exit 1; }

require() {
  for tool in "$@"; do
    command -v "$tool" >/dev/null 2>&1 || die "$tool is not installed"
  done
}

check_tree() {
  if [[ -n "$(git -C "$root" status --porcelain)" ]]; then
    die "there are changes that were not committed"
  fi
  local branch="$(git -C "$root" rev-parse --abbrev-ref HEAD)"
  [[ "$branch" == main ]] || die "releases are made from main, not from $branch"
}

build() {
  rm -rf "$root/dist"
  python3 -m build --outdir "$root/dist" "$root" >"$root/build.log" 2>&1 || {
    tail -n 20 "$root/build.log" >&2
    die "the build failed"
  }
  for file in "$root"/dist/*; do
    log "built $(basename "$file"), $(stat -c %s "$file") bytes"
    sha256sum "$file" | awk '{ print $1 }' >"$file.sha256"
  done
}

notes() {
  local last="$(git describe --tags --abbrev=0 2>/dev/null || true)"
  git log --no-merges --format='- %s (%h)' "${last:+$last..}HEAD" | sed -e 's/^- fix: /- Fixed: /' | sort -u
}

main() {
  require git python3 awk sha256sum
  cd "$root"
  check_tree
  [[ "$version" =~ ^[0-9]+\\.[0-9]+\\.[0-9]+$ ]] || die "not a version: $version (write it as 1.2.3)"
  grep -q "^## $version" CHANGELOG.md || die "CHANGELOG.md says nothing about $version"
  build
  if $dry_run; then
    log "dry run: v$version stays here; $(notes | wc -l) changes since the last one, see $root/build.log"
    return 0
  fi
  git tag -a "v$version" -m "Release $version"
  git push "${REMOTE:-origin}" "v$version" || die "the tag exists here only: delete it with git tag -d v$version"
  log "published v$version"
}

main "$@"
"""

SKILL = """
---
name: reviewing-migrations
description: Reviews database migrations for safety. Use when a change adds or alters a migration.
allowed-tools: Read, Grep, Bash(git diff:*)
---

# Reviewing migrations

## Summary

A migration runs once, on data nobody can restore in a minute. Find out **what it locks**, for how long, and
whether the version before it still works while it runs. Say so in one table, then list what must change.

## Core rules

1. Never approve a migration that rewrites a large table in one statement.
2. `ADD COLUMN ... NOT NULL` needs a default that the database can store without a rewrite.
3. Create indexes with `CONCURRENTLY`, outside of a transaction.
4. Renames happen in three releases: add, copy, remove.
5. Every step has a way back; a dropped column has none, so it waits for one release.

## Steps

- [ ] Read the migration and the models it belongs to (`git diff main... -- migrations/ models/`).
- [ ] For each statement, look up its lock in [references/locks.md](references/locks.md).
- [ ] Estimate the rows it touches. Over 1,000,000 rows: ask for batches of 5,000.
- [ ] Check that old code runs on the new schema, and new code on the old one.

## Example

```sql
-- Bad: takes an exclusive lock and rewrites the table.
ALTER TABLE orders ADD COLUMN state text NOT NULL DEFAULT compute_state(id);

-- Good: three short steps.
ALTER TABLE orders ADD COLUMN state text;
UPDATE orders SET state = 'open' WHERE state IS NULL AND id BETWEEN 1 AND 5000;
ALTER TABLE orders ALTER COLUMN state SET DEFAULT 'open';
```

| statement | lock | time | verdict |
|---|---|---|---|
| `ADD COLUMN` without default | exclusive | < 10 ms | fine |
| `CREATE INDEX` | share | minutes | use `CONCURRENTLY` |
| `ALTER TYPE` | exclusive | minutes | split |

## When something is wrong

Don't rewrite the migration yourself. Name the line, the lock it takes and the statement that would do instead; if
you aren't sure how large a table is, say which query would tell (`SELECT reltuples FROM pg_class ...`).

## References

See `references/locks.md` for all locks and <https://www.postgresql.org/docs/current/explicit-locking.html>.
"""

WORDS = ["encoding", "header", "schema", "order", "limits", "errors", "dates", "totals", "rights", "names"]
RECORDS = [
    {
        "id": f"task-{number:04d}",
        "title": f"Check the {word} of the import",
        "state": ["queued", "running", "completed"][number % 3],
        "priority": number % 5,
        "started": None if number % 3 == 0 else f"2026-03-{number % 28 + 1:02d}T09:{number % 60:02d}:00Z",
        "tokens": {"input": number * 137, "output": number * 11, "cached": number * 96},
        "labels": ["import", word],
        "depends": [f"task-{number - 1:04d}"] if number else [],
        "done": number % 3 == 2,
    }
    for number, word in enumerate(WORDS * 2)
]


def samples() -> dict[str, str]:
    """The texts that are written down here: the same everywhere, so that their counts can be too."""
    written = {
        "Markdown skill": SKILL,
        "JavaScript": JAVASCRIPT,
        "shell": SHELL,
        "JSON": json.dumps(RECORDS, indent=2),
        "JSON, compact": json.dumps(RECORDS, separators=(",", ":")),
        "Chinese": CHINESE,
        "Japanese": JAPANESE,
        "Korean": KOREAN,
        "Russian": RUSSIAN,
        "Arabic": ARABIC,
    }
    return {kind: text.lstrip("\n") for kind, text in written.items()}


def library_samples() -> dict[str, str]:
    """Prose and code of this Python's standard library."""
    sources = [inspect.getsource(module) for module in (argparse, ast, inspect, json, textwrap)]
    prose = [
        text
        for source in sources
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node))
    ]
    return {"English": "\n\n".join(prose), "Python": "\n".join(sources)}


def speed(count: Callable[[str], int], text: str) -> float:
    """Megabytes of UTF-8 a second, the best of five rounds."""
    many = text * max(1, 200_000 // len(text))
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        count(many)
        best = min(best, time.perf_counter() - start)
    return len(many.encode()) / 1e6 / best


def older_counter() -> Callable[[str], int] | None:
    try:
        import splintr
    except ImportError:
        return None
    tokenizer = splintr.Tokenizer.from_pretrained("cl100k_base")
    return lambda text: len(tokenizer.encode_ordinary(text))


def measure() -> list[dict[str, float | str | None]]:
    best = token_counter()
    exact, older = best.count if best.exact else None, older_counter()
    rows: list[dict[str, float | str | None]] = []
    for kind, text in {**library_samples(), **samples()}.items():
        estimate, plain = estimate_tokens(text), round(len(text) / 4)
        real, old = exact and exact(text), older and older(text)
        row: dict[str, float | str | None] = {"kind": kind, "bytes": len(text.encode()), "exact": real, "cl100k": old}
        row |= {"estimate": estimate, "estimate_error": real and 100 * (estimate / real - 1)}
        row |= {"chars_4": plain, "chars_4_error": real and 100 * (plain / real - 1)}
        row |= {"estimate_mb_s": speed(estimate_tokens, text), "exact_mb_s": exact and speed(exact, text)}
        row |= {"cl100k_error": old and 100 * (estimate / old - 1)}
        rows.append(row)
    return rows


COLUMNS = (
    ("bytes", "bytes", "d"),
    ("exact", "o200k", "d"),
    ("estimate", "estimate", "d"),
    ("estimate_error", "error %", "+.1f"),
    ("chars_4", "chars/4", "d"),
    ("chars_4_error", "error %", "+.1f"),
    ("estimate_mb_s", "estimate MB/s", ".0f"),
    ("exact_mb_s", "exact MB/s", ".0f"),
    ("cl100k", "cl100k", "d"),
    ("cl100k_error", "error %", "+.1f"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    options = parser.parse_args()
    rows = measure()
    print(f"{'':16}" + "".join(f"{head:>{len(head) + 3}}" for _, head, _ in COLUMNS))
    for row in rows:
        cells = (
            f"{'-' if row[key] is None else format(row[key], form):>{len(head) + 3}}" for key, head, form in COLUMNS
        )
        print(f"{row['kind']:16}" + "".join(cells))
    if rows[0]["exact"] is None:
        print("\nNo tokenizer to compare with: pip install 'kitbag[tokens]'", file=sys.stderr)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
