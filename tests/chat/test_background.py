"""The watch over background work: figures that follow it, its end and its questions told once, and no work when idle."""

import asyncio
import subprocess
import sys

import pytest

from chat.held import begun, held, model, said, workshop_at_home
from kitbag.assembly.run_options import Options
from kitbag.chat.background import BackgroundMonitor
from kitbag.runtime.agent import Agent
from kitbag.runtime.session_locks import is_session_open
from kitbag.tasks.delegation import TaskDelegation
from kitbag.tasks.stop import stop_task
from kitbag.testing import Rule, Script, Scripted, Step
from support.talking_face import TalkingFace, talking
from support.waiting import TEST_TIMEOUT, until_true
from support.workshop import Workshop, call

__all__ = ["workshop_at_home"]
pytestmark = pytest.mark.usefixtures("workshop_at_home")


async def until(background: BackgroundMonitor, is_so: str) -> str:
    """What was told until that is in it."""
    told = ""
    while is_so not in told:
        told += said(await background.wait_for_change())
    return told


def test_the_end_of_a_task_is_told_once_and_the_model_hears_of_it(workshop: Workshop) -> None:
    async def look() -> None:
        async with talking(workshop.world, "I see.") as chat:
            background = chat.chat.background
            task = await begun(workshop, chat.agent.session.id, description="a search")
            workshop.worker()
            told = await until(background, "ended after")
            assert task.id in told
            assert "(a search)" in told
            assert "completed" in told
            assert f"/tasks show {task.id}" in told
            assert background.running == 0
            # Only what began it can be told: here that is done by the agent itself.
            chat.agent.delegation = _with_past(chat.agent)
            assert background.has_news()
            async with chat.agent.run("") as run:
                async for _ in run:
                    pass
            background.refresh()
            assert not background.has_news()
            assert str(chat.model.requests[0].messages).count("<task-notification") == 1
            assert not background._blocks

    asyncio.run(look())


def _with_past(agent: Agent) -> TaskDelegation:
    return TaskDelegation(agent.parent_context, agent.session.id)


def test_figures_follow_what_runs_and_what_it_costs(workshop: Workshop) -> None:
    workshop.script({"text": "Never.", "delay": 60})

    async def look() -> None:
        async with held(workshop) as chat:
            background = chat.chat.background
            task = await begun(workshop, chat.agent.session.id)
            await begun(workshop, "another conversation")
            while background.running != 1:
                await background.wait_for_change()
            workshop.worker()
            workshop.until_status(task.id, "running")
            await stop_task(workshop.board, workshop.task(task.id), "person")
            told = await until(background, "ended after")
            assert "cancelled" in told
            assert background.running == 0
            assert not background.has_news(), "what was stopped does not wake the model"

    asyncio.run(look())


def test_a_question_is_told_once_with_how_to_answer_it(workshop: Workshop) -> None:
    workshop.script(call("Bash", command="touch asked.txt && touch more.txt"), {"text": "Done."})

    async def look() -> None:
        async with held(workshop) as chat:
            task = await begun(workshop, chat.agent.session.id, options={"only_tools": [], "ask": ["Bash"]})
            workshop.worker()
            told = await until(chat.chat.background, "needs approval")
            assert f"/tasks answer {task.id}" in told
            assert "touch asked.txt" in told
            assert (chat.chat.background.running, chat.chat.background.questions) == (1, 1)
            chat.chat.background.refresh()
            assert not chat.chat.background._blocks
            await stop_task(workshop.board, workshop.task(task.id), "person")
            while chat.chat.background.questions:
                await chat.chat.background.wait_for_change()

    asyncio.run(look())


def test_after_clear_the_work_of_the_session_before_is_still_watched(workshop: Workshop) -> None:
    workshop.script(call("Bash", command="touch asked.txt && touch more.txt"), {"text": "Done."})

    async def look() -> None:
        async with held(workshop, TalkingFace(None)) as chat:
            task = await begun(workshop, chat.agent.session.id, options={"only_tools": [], "ask": ["Bash"]})
            workshop.worker()
            await until(chat.chat.background, "needs approval")
            await chat.command("/clear")
            background = chat.chat.background
            await until_true(lambda: (background.running, background.questions) == (1, 1))
            assert "is still pending" in await chat.command("/tasks answer")
            await stop_task(workshop.board, workshop.task(task.id), "person")
            await until_true(lambda: "ended after" in said(tuple(chat.face.blocks)))
            await until_true(lambda: (background.running, background.questions) == (0, 0))
            assert not background.has_news(), "the new session did not start it"
            await chat.command("/clear")
            chat.chat.background.refresh()
            assert said(tuple(chat.face.blocks)).count("ended after") == 1

    asyncio.run(look())


def test_work_that_nobody_does_wakes_a_worker(workshop: Workshop) -> None:
    async def look() -> None:
        async with held(workshop) as chat:
            task = await begun(workshop, chat.agent.session.id)
            assert task.id in await until(chat.chat.background, "ended after")

    asyncio.run(look())
    assert workshop.board.all()[0].status == "completed"


def test_a_worker_that_can_t_be_started_is_told_of_once(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")

    async def look() -> None:
        async with held(workshop) as chat:
            await begun(workshop, chat.agent.session.id)
            told = await until(chat.chat.background, "could not start a worker")
            chat.chat.background._watcher._next_check = 0.0  # type: ignore[union-attr]
            await chat.chat.background._poll()
            assert said(tuple(chat.chat.background._blocks)) == ""
            assert told.count("start a worker") == 1

    asyncio.run(look())


def test_a_journal_that_can_t_be_read_is_told_of_and_ends_nothing(workshop: Workshop) -> None:
    async def look() -> None:
        async with held(workshop) as chat:
            chat.agent.journal.close()
            assert "can't monitor background tasks" in await until(chat.chat.background, "monitor")
            chat.chat.background.refresh()
            assert not chat.chat.background.has_news()

    asyncio.run(look())


def test_it_ends_when_it_is_cancelled_and_other_windows_know_as_long_as_the_chat_is_open(workshop: Workshop) -> None:
    async def look() -> None:
        async with held(workshop) as chat:
            session, polls = chat.agent.session.id, asyncio.Event()

            async def follow() -> None:
                async for _ in chat.chat.background.follow():
                    pass

            assert is_session_open(workshop.home, session)
            following = asyncio.create_task(follow())
            asyncio.get_running_loop().call_soon(polls.set)
            await polls.wait()
            following.cancel()
            with pytest.raises(asyncio.CancelledError):
                await following
            assert is_session_open(workshop.home, session)
        assert not is_session_open(workshop.home, session)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(look())


_CHAT = """
import asyncio
from kitbag.chat.background import BackgroundMonitor
from kitbag.runtime.agent import Agent
from kitbag.assembly.run_options import Options

async def main():
    async with Agent(options=Options(model={model!r}, only_tools=("Task", "Bash"))) as agent:
        background = BackgroundMonitor(agent, agent.environment.places.kitbag_home)
        async with agent.run("Go") as run:
            async for _ in run:
                pass
        print("started", flush=True)
        async for _ in background.follow():
            pass

asyncio.run(main())
"""


def test_after_a_chat_was_killed_the_next_one_tells_what_its_background_work_came_to(workshop: Workshop) -> None:
    begin = call("Task", subagent_type="doer", prompt="Seek it.", run_in_background=True)
    release = workshop.world.workspace / "release"
    wait = call("Bash", command=f"while [ ! -e {release} ]; do sleep 0.05; done")
    workshop.script(begin, {"text": "Started."}, Seek=[wait, {"text": "The answer is 42."}])
    program = _CHAT.format(model=model(workshop))
    killed = subprocess.Popen(
        [sys.executable, "-c", program], cwd=workshop.world.workspace, env=workshop.environment, stdout=subprocess.PIPE
    )
    try:
        assert killed.stdout is not None
        assert killed.stdout.readline() == b"started\n"
        [task] = workshop.board.all()
        session = task.root
        workshop.until(lambda: is_session_open(workshop.home, session))
    finally:
        killed.kill()
        killed.communicate(timeout=TEST_TIMEOUT)
    assert not is_session_open(workshop.home, session)
    release.touch()

    async def look() -> None:
        provider = Scripted(Script([Rule([Step(text="I see."), Step(text="Yes.")])]))
        options = Options(directory=str(workshop.world.workspace), resume="last")
        async with asyncio.timeout(TEST_TIMEOUT), Agent(options=options, provider=provider) as agent:
            assert agent.session.id == session
            background = BackgroundMonitor(agent, workshop.home)
            told = await until(background, "ended after")
            assert f"doer {task.id}" in told
            assert "completed" in told
            assert background.has_news()
            for request in ("", "And?"):
                async with agent.run(request) as run:
                    async for _ in run:
                        pass
            assert str(provider.requests[-1].messages).count("The answer is 42.") == 1
            background.refresh()
            assert not background.has_news()
        # The one after it has nothing to tell.
        async with asyncio.timeout(TEST_TIMEOUT), Agent(options=options, provider=Scripted(Script([]))) as agent:
            background = BackgroundMonitor(agent, workshop.home)
            await background._poll()
            assert not background._blocks
            assert not background.has_news()

    asyncio.run(look())


def test_it_costs_next_to_nothing_when_nothing_happens(workshop: Workshop) -> None:
    """Looks, and does not read: the journal is asked for its last record, a few times a second."""
    workshop.script({"text": "Never.", "delay": 60})

    async def look() -> None:
        async with held(workshop) as chat:
            task = await begun(workshop, chat.agent.session.id)
            workshop.worker()
            workshop.until_status(task.id, "running")
            while chat.chat.background.running != 1:
                await chat.chat.background.wait_for_change()
            asked: list[str] = []
            journal = chat.agent.journal
            query = journal._query
            journal._query = lambda text, values: asked.append(text) or query(text, values)  # type: ignore[method-assign]
            for _ in range(10):
                await chat.chat.background._poll()
            assert len(asked) <= 10 + 3  # once somebody is looked for who does it
            await stop_task(workshop.board, workshop.task(task.id), "person")

    asyncio.run(look())
