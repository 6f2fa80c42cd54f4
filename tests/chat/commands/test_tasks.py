"""`/tasks` and `/stop`: the same in a live panel and in words; tasks are read, stopped, resumed and answered."""

import asyncio

import msgspec
import pytest

from chat.held import WaitingFace, begun, held, workshop_at_home
from kitbag.chat.commands.tasks import stop_command, tasks_command
from kitbag.dialogs.form import Form, FormAnswer
from kitbag.errors import AmbiguousError, InvalidError, NotFoundError, UsageError
from kitbag.permissions.approvals.approval import ApprovalAnswer
from kitbag.permissions.approvals.queue import ApprovalQueue
from kitbag.processes.descendants import MARKER_VARIABLE
from kitbag.tasks.task import TaskResult
from kitbag.views.blocks import TableBlock, VerbatimBlock
from support.talking_face import Talk, TalkingFace
from support.waiting import TEST_TIMEOUT, until_true
from support.workshop import Workshop, call

__all__ = ["workshop_at_home"]
pytestmark = pytest.mark.usefixtures("workshop_at_home")


async def done(workshop: Workshop, root: str, prompt: str = "Find it.") -> str:
    """A task that has ended."""
    task = await begun(workshop, root, prompt, description="a search")
    await asyncio.to_thread(workshop.work)
    return task.id


class TestInWords:
    def test_this_conversation_s_come_first_then_those_of_the_directory_and_with_all_the_others(
        self, workshop: Workshop
    ) -> None:
        async def look() -> None:
            async with held(workshop) as chat:
                other = await done(workshop, "another")
                ours = await done(workshop, chat.agent.session.id)
                away = await begun(workshop, "another")
                moved = msgspec.structs.replace(workshop.wish(), directory="/elsewhere")
                far = await workshop.board.create(
                    "f" * 12, "agent", moved, root="x", parent="", depth=1, background=False
                )
                await workshop.board.finish(away.id, 0, TaskResult(status="failed", error="it broke"))
                await workshop.board.finish(far.id, 0, TaskResult(status="completed"))
                await tasks_command(chat.chat, "")
                table = chat.face.blocks[-1]
                assert isinstance(table, TableBlock)
                assert [row[0] for row in table.rows] == [ours, away.id, other]
                assert table.rows[0][1:4] == ("doer", "completed", "1")
                assert table.rows[0][-1] == "a search"
                assert table.rows[1][-1].endswith("it broke")
                await tasks_command(chat.chat, "all")
                table = chat.face.blocks[-1]
                assert isinstance(table, TableBlock)
                assert far.id in [row[0] for row in table.rows]

        asyncio.run(look())

    def test_nothing_is_there(self, workshop: Workshop) -> None:
        async def look() -> None:
            async with held(workshop) as chat:
                await tasks_command(chat.chat, "")
                assert "no tasks in this directory" in chat.face.seen()
                await tasks_command(chat.chat, "answer")
                assert "no pending approvals" in chat.face.seen()
                await stop_command(chat.chat, "all")
                assert "nothing is running in this session" in chat.face.seen()

        asyncio.run(look())

    @pytest.mark.parametrize("arguments", ["show {}", "{}"])
    def test_one_is_read_by_the_beginning_of_its_id(self, workshop: Workshop, arguments: str) -> None:
        workshop.script(call("Bash", command="echo hello"), {"text": "The answer is 42."})

        async def look() -> None:
            async with held(workshop) as chat:
                task_id = await done(workshop, chat.agent.session.id)
                await tasks_command(chat.chat, arguments.format(task_id[:5]))
                assert VerbatimBlock("Find it.", "Prompt") in chat.face.blocks
                assert VerbatimBlock("The answer is 42.", "Answer") in chat.face.blocks
                assert "✓ Bash(echo hello)" in chat.face.seen()
                assert "completed" in chat.face.seen()

        asyncio.run(look())

    @pytest.mark.parametrize(
        ("arguments", "error", "words"),
        [
            ("show", UsageError, "list tasks with /tasks"),
            ("show nothing", NotFoundError, "/tasks all"),
            ("stop {}0", NotFoundError, "did you mean"),
            ("output aa x", NotFoundError, "no task named 'aa'"),
            ("output {} x", UsageError, "invalid output offset"),
            ("output {} -1", UsageError, "invalid output offset"),
            ("resume", UsageError, "needs a task ID"),
            ("answer nobody", NotFoundError, "nobody"),
            ("shwo", UsageError, "did you mean /tasks show"),
            ("something else", NotFoundError, "something"),
            ("show aaa", AmbiguousError, "aaab"),
        ],
    )
    def test_what_is_wrong_is_said_with_what_is_close(
        self, workshop: Workshop, arguments: str, error: type[Exception], words: str
    ) -> None:
        async def look() -> None:
            async with held(workshop) as chat:
                task_id = await done(workshop, chat.agent.session.id)
                for made in ("aaab00000000", "aaac00000000"):
                    wish = workshop.wish()
                    task = workshop.board.create(made, "agent", wish, root="", parent="", depth=1, background=False)
                    await workshop.board.finish((await task).id, 0, TaskResult(status="completed"))
                with pytest.raises(error) as caught:
                    await tasks_command(chat.chat, arguments.format(task_id))
                assert words in f"{caught.value} {getattr(caught.value, 'fix', '')}"

        asyncio.run(look())

    def test_a_long_answer_is_shown_in_pages(self, workshop: Workshop) -> None:
        long = "".join(f"line {number:05}\n" for number in range(1_500))
        workshop.script({"text": long})

        async def look() -> None:
            async with held(workshop) as chat:
                task_id = await done(workshop, chat.agent.session.id)
                shown, offset, pages = "", "0", list[VerbatimBlock]()
                while offset:
                    await tasks_command(chat.chat, f"output {task_id} {offset}")
                    pages = [block for block in chat.face.blocks if isinstance(block, VerbatimBlock)]
                    shown += pages[-1].text
                    more = chat.face.seen().rpartition("\n")[2]
                    offset = (
                        more.removeprefix(f"next page: /tasks output {task_id[:8]} ") if "/tasks output" in more else ""
                    )
                assert len(pages) == 3
                assert shown.strip() == long.strip()
                await tasks_command(chat.chat, f"output {task_id} 999999")
                assert "end of output" in chat.face.seen()

        asyncio.run(look())

    def test_what_a_command_printed_is_shown_in_pages(self, workshop: Workshop) -> None:
        async def look() -> None:
            async with held(workshop, face=TalkingFace("m", "q", pressed=[("enter", "c" * 12)])) as chat:
                wish = msgspec.structs.replace(workshop.wish(), agent="", prompt="", command="seq 100000")
                task = await workshop.board.create(
                    "c" * 12, "command", wish, root=chat.agent.session.id, parent="", depth=1, background=False
                )
                output = workshop.world.write(f"~/.kitbag/state/output/{task.id}", "")
                output.write_text("".join(f"{number}\n" for number in range(1, 100_001)))
                await workshop.board.finish(task.id, 0, TaskResult(status="completed", exit_code=0))
                await tasks_command(chat.chat, "")
                pages = [
                    block for block in chat.face.blocks if isinstance(block, VerbatimBlock) and "bytes" in block.title
                ]
                assert len(pages) == 2
                assert pages[0].text.startswith("1\n2\n")
                assert int(pages[1].text.split()[0]) == int(pages[0].text.split()[-1]) + 1
                assert "seq 100000" in chat.face.seen()

        asyncio.run(look())


class TestStopping:
    def test_a_task_is_stopped_with_what_it_began(self, workshop: Workshop) -> None:
        async def look() -> None:
            async with held(workshop) as chat:
                session = chat.agent.session.id
                parent = await begun(workshop, session)
                child = await begun(workshop, session, parent=parent.id)
                await tasks_command(chat.chat, f"stop {parent.id[:6]}")
                assert f"{parent.id} stopped: cancelled, with 1 task it started" in chat.face.seen()
                assert workshop.task(child.id).status == "cancelled"
                await tasks_command(chat.chat, f"stop {parent.id}")
                assert "had already ended" in chat.face.seen()

        asyncio.run(look())

    def test_stop_alone_is_for_what_works_in_front(self, workshop: Workshop) -> None:
        async def look() -> None:
            async with held(workshop) as chat:
                front = await works_in_front(chat)
                await stop_command(chat.chat, "")
                assert front.cancelled()
                chat.chat._foreground = None
                await stop_command(chat.chat, "")
                assert "nothing is running in the foreground" in chat.face.seen()

        asyncio.run(look())

    def test_all_is_everything_of_this_conversation_and_nothing_of_others(self, workshop: Workshop) -> None:
        async def look() -> None:
            async with held(workshop) as chat:
                front = await works_in_front(chat)
                session = chat.agent.session.id
                parent = await begun(workshop, session)
                orphan = await begun(workshop, session, parent=parent.id)
                await workshop.board.claim(parent)
                await workshop.board.finish(parent.id, 1, TaskResult(status="completed"))
                second, other = await begun(workshop, session), await begun(workshop, "another")
                await stop_command(chat.chat, "all")
                assert front.cancelled()
                assert [workshop.task(one.id).status for one in (orphan, second)] == ["cancelled"] * 2
                assert workshop.task(other.id).status == "queued"
                await stop_command(chat.chat, other.id[:6])
                assert workshop.task(other.id).status == "cancelled"

        asyncio.run(look())


class TestResuming:
    @pytest.mark.parametrize("in_panel", [True, False])
    def test_it_goes_on_with_what_it_is_told(self, workshop: Workshop, in_panel: bool) -> None:
        workshop.script({"text": "The answer is 42."}, {"text": "Once more: 42."})

        async def look() -> None:
            face = TalkingFace("Look again.", plain=not in_panel)
            async with held(workshop, face=face) as chat:
                task_id = await done(workshop, chat.agent.session.id)
                face.pressed = [("r", task_id)]
                await tasks_command(chat.chat, "" if in_panel else f"resume {task_id[:6]} Look again.")
                assert f"resumed {task_id}" in chat.face.seen()
                assert workshop.board.request(task_id).message == "Look again."
                ended = await workshop.board.wait_until(lambda task: task.ended_run == 2, task_id)
                assert ended is not None
                assert ended.status == "completed"

        asyncio.run(look())

    def test_one_that_runs_or_is_a_command_does_not(self, workshop: Workshop) -> None:
        async def look() -> None:
            face = TalkingFace()
            async with held(workshop, face=face) as chat:
                task = await begun(workshop, chat.agent.session.id)
                await workshop.board.claim(task)
                with pytest.raises(InvalidError, match="is running"):
                    await tasks_command(chat.chat, f"resume {task.id} more")
                face.pressed = [("r", task.id)]
                await tasks_command(chat.chat, "")
                assert "is running" in chat.face.seen()
                assert face.forms == []

        asyncio.run(look())


class TestAnswering:
    ASKS = {"only_tools": [], "ask": ["Bash"]}  # noqa: RUF012

    def script(self, workshop: Workshop) -> None:
        workshop.script(call("Bash", command="touch asked.txt"), {"text": "Done."})

    @pytest.mark.parametrize(("key", "is_there"), [("y", True), ("n", False)])
    def test_the_question_is_seen_exactly_and_the_answer_counts(
        self, workshop: Workshop, key: str, is_there: bool
    ) -> None:
        self.script(workshop)

        async def look() -> None:
            face = TalkingFace(key)
            async with held(workshop, face=face) as chat:
                task = await begun(workshop, chat.agent.session.id, options=self.ASKS)
                workshop.worker()
                await workshop.board.wait_until(lambda one: bool(one.questions), task.id)
                await waiting_for(chat.agent.journal)
                face.pressed = [("a", task.id)]
                await tasks_command(chat.chat, "")
                assert "touch asked.txt" in chat.face.seen()
                assert "completed" in (await ended(workshop, task.id))

        asyncio.run(look())
        assert (workshop.world.workspace / "asked.txt").exists() == is_there

    def test_left_it_waits_on_and_is_answered_by_the_number_of_the_question(self, workshop: Workshop) -> None:
        self.script(workshop)

        async def look() -> None:
            face = TalkingFace(None, "w", "use another name")
            async with held(workshop, face=face) as chat:
                task = await begun(workshop, chat.agent.session.id, options=self.ASKS)
                workshop.worker()
                question = await waiting_for(chat.agent.journal)
                await tasks_command(chat.chat, f"answer {task.id[:6]}")
                assert chat.face.forms[0].cancel_effect == "answer later"
                assert f"approval {question} is still pending" in chat.face.seen()
                await tasks_command(chat.chat, f"answer {question}")
                assert "denied" in chat.face.seen()
                assert "completed" in (await ended(workshop, task.id))
                assert "use another name" in str(workshop.records(task.id, "result"))

        asyncio.run(look())

    def test_a_question_that_is_answered_elsewhere_goes_away(self, workshop: Workshop) -> None:
        self.script(workshop)

        async def look() -> None:
            async with held(workshop, face=WaitingFace()) as chat:
                task = await begun(workshop, chat.agent.session.id, options=self.ASKS)
                workshop.worker()
                question = await waiting_for(chat.agent.journal)
                asking = asyncio.create_task(tasks_command(chat.chat, "answer"))
                await until_true(lambda: chat.face.forms)
                ApprovalQueue(chat.agent.journal).answer(question, ApprovalAnswer(choice="deny"), "elsewhere")
                await asking
                assert "answered elsewhere" in chat.face.seen()
                await ended(workshop, task.id)

        asyncio.run(look())

    def test_an_agent_can_t_answer_for_the_person(self, workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
        self.script(workshop)

        async def look() -> None:
            async with held(workshop) as chat:
                await begun(workshop, chat.agent.session.id, options=self.ASKS)
                workshop.worker()
                await waiting_for(chat.agent.journal)
                monkeypatch.setenv(MARKER_VARIABLE, "1")
                with pytest.raises(InvalidError, match="cannot answer"):
                    await tasks_command(chat.chat, "answer")

        asyncio.run(look())


async def works_in_front(talk: Talk) -> "asyncio.Task[None]":
    talk.chat._start_foreground(asyncio.sleep(600))
    await asyncio.sleep(0)
    assert talk.chat._foreground is not None
    return talk.chat._foreground


async def waiting_for(journal: object) -> str:
    """The number of the question that waits."""
    queue = ApprovalQueue(journal)  # type: ignore[arg-type]
    return (await until_true(queue.pending))[0].request.id


async def ended(workshop: Workshop, task_id: str) -> str:
    task = await workshop.board.wait_until(lambda one: one.is_finished, task_id, TEST_TIMEOUT)
    return str(task)


def test_the_panel_shows_what_each_does(workshop: Workshop) -> None:
    async def look() -> None:
        face = TalkingFace()
        async with held(workshop, face=face) as chat:
            await begun(workshop, "another", description="a search of others")
            task = await begun(workshop, chat.agent.session.id, description="a search")
            face.pressed = [("s", task.id)]
            await tasks_command(chat.chat, "")
            [ours, other] = [face.line(row.id) for row in face.panels[-1]]
            assert ours.startswith(task.id[:8])
            assert "cancelled" in ours
            assert "a search" in ours
            assert other.endswith("  a search of others (another session)")
            assert ours.index("a search") == other.index("a search")

    asyncio.run(look())


def test_a_panel_asks_before_each_further_page(workshop: Workshop) -> None:
    workshop.script({"text": "x" * 20_000})

    async def look() -> None:
        def more(form: Form) -> FormAnswer:
            assert [option.key for option in form.options] == ["m", "q"]
            return FormAnswer(("m",))

        face = TalkingFace(more, more)
        async with held(workshop, face=face) as chat:
            face.pressed = [("enter", await done(workshop, chat.agent.session.id))]
            await tasks_command(chat.chat, "")
            pages = [block.text for block in face.blocks if isinstance(block, VerbatimBlock)][1:]
            assert "".join(pages) == "x" * 20_000

    asyncio.run(look())
