"""Questions wait for anybody's answer: the first counts, once, across processes and restarts."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from kitbag.errors import AmbiguousError, InvalidError, NotFoundError
from kitbag.permissions.approvals.approval import (
    ApprovalAnswer,
    ApprovalRequest,
    Approvals,
    Denial,
    Permit,
    action_digest,
    canonical_json,
)
from kitbag.permissions.approvals.queue import ANSWER_FIELDS, ApprovalQueue, QueueApprover
from kitbag.permissions.decisions.decide import Permissions
from kitbag.permissions.model import DecisionPart, PermissionDecision, SandboxSupport, Workspace
from kitbag.permissions.rules.rule import PermissionRules
from kitbag.store.journal import Journal, journal_path
from kitbag.store.redaction import Redactor
from support.matrix import long
from support.waiting import TEST_TIMEOUT, until_true

pytestmark = pytest.mark.usefixtures("store")

CANARY = "CANARY_SECRET_4f7a9c"


@pytest.fixture
def path(tmp_path: Path) -> str:
    return journal_path(str(tmp_path / "home"))


@pytest.fixture
def journal(path: str) -> Iterator[Journal]:
    with Journal.open(path, Redactor([CANARY])) as opened:
        yield opened


def question(command: str = "git push", question_id: str = "0badcafe", asked_by: str = "task-1") -> ApprovalRequest:
    arguments = canonical_json({"command": command, "odd": "\u202e\ud800\0"})
    judgement = PermissionDecision(
        effect="ask",
        reason="uses the network",
        parts=(DecisionPart(what=command, effect="ask", reason="why", rule="", source=""),),
        sandbox="workspace",
        network=True,
    )
    digest = action_digest("Bash", arguments, "/w")
    return ApprovalRequest(
        id=question_id,
        tool="Bash",
        arguments=arguments,
        directory="/w",
        decision=judgement,
        digest=digest,
        asked_by=asked_by,
        facts=(("a", "b"),),
        suggestion="Bash(x)",
    )


def ask(path: str, journal: Journal | None = None) -> None:
    """In a process of its own, killed when the question is stored."""
    code = (
        "import asyncio, os, signal, sys\nsys.path[:0] = sys.argv[2:]\n"
        "from kitbag.store.journal import Journal\nfrom kitbag.store.redaction import Redactor\n"
        "from kitbag.permissions.approvals.queue import ApprovalQueue, QueueApprover\n"
        "from test_queue import question\n"
        "async def main():\n"
        "    journal = Journal.open(sys.argv[1], Redactor())\n"
        "    asyncio.get_running_loop().create_task(QueueApprover(ApprovalQueue(journal)).ask(question()))\n"
        "    await journal.wait_async(0)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    here = os.path.dirname(__file__)
    done = subprocess.run(
        [sys.executable, "-c", code, path, here, os.path.dirname(os.path.dirname(here))],
        capture_output=True,
        text=True,
        timeout=TEST_TIMEOUT,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


def test_a_question_is_seen_as_it_was_asked_by_another_process(journal: Journal, path: str) -> None:
    asyncio.run(ApprovalQueue(journal).put(question()))
    with Journal.open(path, Redactor()) as other:
        (waiting,) = ApprovalQueue(other).pending()
    assert waiting.request == question()
    assert waiting.is_complete


def test_the_one_who_asks_gets_the_answer_from_another_process(journal: Journal, path: str) -> None:
    async def main() -> ApprovalAnswer:
        asking = asyncio.create_task(QueueApprover(ApprovalQueue(journal)).ask(question()))
        await journal.wait_async(0)
        await asyncio.to_thread(answer_elsewhere)
        return await asyncio.wait_for(asking, TEST_TIMEOUT)

    def answer_elsewhere() -> None:
        with Journal.open(path, Redactor()) as other:
            ApprovalQueue(other).answer("0bad", ApprovalAnswer(choice="deny", reason="not today"), "test")

    assert asyncio.run(main()) == ApprovalAnswer(choice="deny", reason="not today")
    assert ApprovalQueue(journal).pending() == []


def test_the_first_answer_counts_of_many_at_once(journal: Journal, path: str) -> None:
    asyncio.run(ApprovalQueue(journal).put(question()))
    outcomes: list[str] = []
    ready = threading.Barrier(6)

    def answer(choice: str) -> None:
        with Journal.open(path, Redactor()) as other:
            queue = ApprovalQueue(other)
            queue.pending()
            ready.wait()
            try:
                queue.answer("0badcafe", ApprovalAnswer(choice=choice))  # type: ignore[arg-type]
                outcomes.append(choice)
            except InvalidError as error:
                outcomes.append("late" if "answered" in error.problem else error.problem)

    threads = [threading.Thread(target=answer, args=(choice,)) for choice in ("allow", "deny") * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TEST_TIMEOUT)
    (winner,) = [outcome for outcome in outcomes if outcome != "late"]
    assert asyncio.run(ApprovalQueue(journal).wait("0badcafe")) == ApprovalAnswer(choice=winner)  # type: ignore[arg-type]


@pytest.mark.file_store
def test_a_question_outlives_the_one_who_asked_and_its_answer_is_used_once(path: str) -> None:
    ask(path)
    with Journal.open(path, Redactor()) as journal:
        queue = ApprovalQueue(journal)
        assert [waiting.request.id for waiting in queue.pending()] == ["0badcafe"]
        queue.answer("0badcafe", ApprovalAnswer(choice="allow"))

        async def again() -> None:
            approver = QueueApprover(ApprovalQueue(journal))
            assert await approver.ask(question(question_id="11111111")) == ApprovalAnswer(choice="allow")
            # It was for one use: the same wish once more is a question of its own.
            next_time = asyncio.create_task(approver.ask(question(question_id="22222222")))
            while not (waiting := queue.pending()):
                await asyncio.sleep(0)
            assert [one.request.id for one in waiting] == ["22222222"]
            queue.answer("22222222", ApprovalAnswer(choice="deny"))
            assert await asyncio.wait_for(next_time, TEST_TIMEOUT) == ApprovalAnswer(choice="deny")

        asyncio.run(again())


@pytest.mark.parametrize(
    "other",
    [
        question("git push --force", "11111111"),
        question("git push", "11111111", asked_by="task-2"),
        question("git push", "11111111", asked_by=""),
        msgspec.structs.replace(question("git push", "11111111"), facts=(("resolves to", "/etc"),)),
        msgspec.structs.replace(
            question("git push", "11111111"),
            decision=PermissionDecision(effect="ask", reason="x", parts=(), sandbox="none", network=True),
        ),
    ],
)
def test_an_answer_is_for_nothing_and_nobody_else(journal: Journal, other: ApprovalRequest) -> None:
    queue = ApprovalQueue(journal)
    asyncio.run(queue.put(question()))
    queue.answer("0badcafe", ApprovalAnswer(choice="allow"))
    assert queue.find_same_request(question(question_id="x")) == "0badcafe"
    assert queue.find_same_request(other) is None


def test_two_of_one_asker_with_the_same_wish_need_two_answers(journal: Journal) -> None:
    async def main() -> None:
        queue = ApprovalQueue(journal)
        approver = QueueApprover(queue)
        asking = {asyncio.create_task(approver.ask(question(question_id=name))) for name in ("aaaaaaaa", "bbbbbbbb")}
        answered = 0
        while asking:
            for waiting in queue.pending():
                await asyncio.to_thread(queue.answer, waiting.request.id, ApprovalAnswer(choice="allow"))
                answered += 1
            done, asking = await asyncio.wait(asking, timeout=0.01)
            assert all(task.result() == ApprovalAnswer(choice="allow") for task in done)
        assert answered == 2

    asyncio.run(main())


def test_waiting_ends_with_its_time_or_when_it_is_cancelled_and_the_question_stays(journal: Journal) -> None:
    async def main() -> None:
        queue = ApprovalQueue(journal)
        await queue.put(question())
        assert await queue.wait("0badcafe", 0.01) is None
        task = asyncio.create_task(queue.wait("0badcafe"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(queue.pending()) == 1
        assert [one for one in asyncio.all_tasks() if one is not asyncio.current_task() and not one.cancelling()] == []

    asyncio.run(main())


@long
def test_a_thousand_can_wait(journal: Journal) -> None:
    async def main() -> None:
        queue = ApprovalQueue(journal)
        approver = QueueApprover(queue)
        names = [f"{number:08x}" for number in range(1000)]
        asking = [asyncio.create_task(approver.ask(question(question_id=name, asked_by=name))) for name in names]
        await until_true(lambda: len(queue.pending()) == 1000)
        await queue.withdraw(names[0])
        for name in names[1:]:
            await journal.write_once(
                f"answer:{name}",
                "approvals",
                "answer",
                {"id": name, **ANSWER_FIELDS.write(ApprovalAnswer(choice="allow")), "by": ""},
            )
        answers = await asyncio.wait_for(asyncio.gather(*asking), TEST_TIMEOUT)
        assert [answer.choice for answer in answers] == ["deny", *["allow"] * 999]

    asyncio.run(main())


def test_a_question_is_found_by_what_its_id_begins_with(journal: Journal) -> None:
    queue = ApprovalQueue(journal)
    for name in ("aa11", "aa22", "bb33"):
        asyncio.run(queue.put(question(question_id=name)))
    assert queue.find("bb").request.id == "bb33"
    assert queue.find("aa11").request.id == "aa11"
    with pytest.raises(AmbiguousError):
        queue.find("aa")
    for name in ("cc", ""):
        with pytest.raises(NotFoundError):
            queue.find(name)
    queue.answer("bb", ApprovalAnswer(choice="deny"))
    with pytest.raises(InvalidError, match="already answered"):
        queue.find("bb33")
    with pytest.raises(InvalidError, match="already"):
        asyncio.run(queue.put(question(question_id="aa11")))


@pytest.mark.file_store
def test_what_holds_a_secret_is_not_written_down_and_not_allowed_unseen(journal: Journal, path: str) -> None:
    secret = question(f"curl -H 'X-Key: {CANARY}' example.org")
    queue = ApprovalQueue(journal)
    assert not asyncio.run(queue.put(secret))
    assert not queue.find("0badcafe").is_complete
    with pytest.raises(InvalidError, match="contains a secret"):
        queue.answer("0badcafe", ApprovalAnswer(choice="allow"))
    queue.answer("0badcafe", ApprovalAnswer(choice="deny"))
    with pytest.raises(InvalidError, match="environment variable"):
        asyncio.run(QueueApprover(queue).ask(msgspec.structs.replace(secret, id="11111111", asked_by="task-2")))
    assert queue.pending() == []
    journal.close()
    for name in os.listdir(os.path.dirname(path)):
        assert CANARY.encode() not in Path(path).with_name(name).read_bytes()


def test_records_of_another_version_are_passed_over(journal: Journal) -> None:
    for body in ({}, {"id": 1}, [], "x", {"id": "a", "judgement": {}, "facts": []}, {"id": "b", "facts": 3}):
        for kind in ("question", "answer", "used", "more"):
            journal.append("approvals", kind, body)
    asyncio.run(ApprovalQueue(journal).put(question()))
    assert [waiting.request.id for waiting in ApprovalQueue(journal).pending()] == ["0badcafe"]


def test_through_all_of_it_a_permit_comes_from_another_process(journal: Journal, path: str, tmp_path: Path) -> None:
    allowed = Permissions(
        Workspace(root=str(tmp_path), home=str(tmp_path), kitbag_home=str(tmp_path / "home")),
        "default",
        PermissionRules(),
        SandboxSupport(kind="none"),
    )
    wish = {"command": "git push \u202e"}

    async def main() -> list[Permit | Denial]:
        approvals = Approvals(QueueApprover(ApprovalQueue(journal)))
        asking = [
            asyncio.create_task(approvals.authorize(allowed, "Bash", wish, asked_by=f"task-{number}"))
            for number in range(2)
        ]
        queue = ApprovalQueue(journal)
        while len(queue.pending()) < 2:
            await asyncio.sleep(0)
        for number, waiting in enumerate(queue.pending()):
            answer = ApprovalAnswer(choice="deny" if number else "allow", reason="no" if number else "")
            await asyncio.to_thread(queue.answer, waiting.request.id, answer)
        return await asyncio.gather(*asking)

    found = asyncio.run(main())
    (permit,) = [one for one in found if isinstance(one, Permit)]
    (refusal,) = [one for one in found if isinstance(one, Denial)]
    assert permit.use("Bash", wish).effect == "ask"
    assert refusal.reason == "the user denied this action: no"
