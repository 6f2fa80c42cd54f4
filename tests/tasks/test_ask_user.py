"""A background agent asks the user through the queue of approvals; any process answers, and the answer survives a crash."""

import asyncio
import json

import pytest

from chat.held import held, workshop_at_home
from kitbag.errors import InvalidError
from kitbag.permissions.approvals.approval import ApprovalAnswer
from kitbag.permissions.approvals.queue import ApprovalQueue
from kitbag.tasks.send import send_to_task
from support.talking_face import TalkingFace
from support.workshop import Workshop, call

__all__ = ["workshop_at_home"]
ASK = call(
    "AskUser",
    questions=[
        {"question": "Tabs or spaces?", "options": [{"label": "Tabs"}, {"label": "Spaces"}]},
        {"question": "Why?"},
    ],
)


def put(workshop: Workshop) -> str:
    workshop.agent("asker", tools="AskUser, Read")
    return workshop.put(agent="asker", options={"only_tools": ["AskUser", "Read"]})


def results(workshop: Workshop, task_id: str) -> str:
    return str([record.body for record in workshop.records(task_id, "result")])


def test_the_command_line_answers_and_the_agent_goes_on(workshop: Workshop) -> None:
    workshop.script(ASK, {"text": "Thank you."})
    task_id = put(workshop)
    workshop.worker()
    workshop.until_asked(task_id)
    [waiting] = ApprovalQueue(workshop.journal).pending()
    shown = workshop.world.run("permissions", "pending")
    assert "Tabs or spaces?" in shown.stdout
    assert "2) Spaces" in shown.stdout
    name = waiting.request.id
    wrong = workshop.world.run("permissions", "answer", name, "--answer", "1")
    assert (wrong.returncode, "needs 2 answers" in wrong.stderr) == (2, True)
    answered = workshop.world.run("permissions", "answer", name, "--answer", "2", "--answer", "they are safe", "--json")
    assert json.loads(answered.stdout)["answers"] == ["Spaces", "they are safe"]
    assert workshop.until_status(task_id, "completed").result.text == "Thank you."  # type: ignore[union-attr]
    assert "Tabs or spaces?\\n-> Spaces" in results(workshop, task_id)
    assert "they are safe" in results(workshop, task_id)


def test_an_answer_given_while_no_worker_runs_is_used_by_the_next(workshop: Workshop) -> None:
    workshop.script(ASK, {"text": "Thank you."})
    task_id = put(workshop)
    pid = workshop.worker()
    workshop.until_asked(task_id)
    workshop.nursery.kill(pid)
    queue = ApprovalQueue(workshop.journal)
    [waiting] = queue.pending()
    queue.answer(waiting.request.id, ApprovalAnswer(choice="allow", answers=("Tabs", "because")), "test")
    workshop.worker()
    workshop.until_status(task_id, "completed")
    assert "-> Tabs" in results(workshop, task_id)
    assert queue.pending() == []


def test_who_declines_leaves_the_decision_to_the_agent(workshop: Workshop) -> None:
    workshop.script(ASK, {"text": "I decided."})
    task_id = put(workshop)
    workshop.worker()
    workshop.until_asked(task_id)
    [waiting] = ApprovalQueue(workshop.journal).pending()
    assert workshop.world.run("permissions", "answer", waiting.request.id, "deny").returncode == 0
    workshop.until_status(task_id, "completed")
    assert "no answer from the user" in results(workshop, task_id)


def test_the_chat_shows_the_question_and_asks_it(workshop_at_home: Workshop) -> None:
    workshop = workshop_at_home
    workshop.script(ASK, {"text": "Thank you."})
    face = TalkingFace("1", "because", plain=True)

    async def answer() -> str:
        async with held(workshop, face) as talk:
            task_id = await asyncio.to_thread(put, workshop)
            await asyncio.to_thread(workshop.worker)
            await asyncio.to_thread(workshop.until_asked, task_id)
            await talk.command(f"/tasks answer {task_id}")
            await asyncio.to_thread(workshop.until_status, task_id, "completed")
            return task_id

    task_id = asyncio.run(answer())
    assert "-> Tabs" in results(workshop, task_id)
    assert "-> because" in results(workshop, task_id)
    assert "answered: asker" in face.seen()


# Steering


def test_a_message_reaches_an_agent_of_a_worker_after_its_call_and_once_after_a_crash(workshop: Workshop) -> None:
    workshop.script(ASK, {"text": "Done."})
    task_id = put(workshop)
    pid = workshop.worker()
    workshop.until_asked(task_id)
    sent = workshop.world.run("tasks", "send", task_id, "Use tabs.")
    assert sent.returncode == 0, sent.stderr
    assert "pending message  Use tabs." in workshop.world.ok("tasks", "show", task_id)
    assert workshop.world.json("tasks", "show", task_id)["pending_messages"] == ["Use tabs."]
    workshop.nursery.kill(pid)
    queue = ApprovalQueue(workshop.journal)
    queue.answer(queue.pending()[0].request.id, ApprovalAnswer(choice="allow", answers=("Tabs", "")), "test")
    workshop.worker()
    workshop.until_status(task_id, "completed")
    kinds = [(record.kind, "Use tabs." in str(record.body)) for record in workshop.records(task_id)]
    assert kinds.count(("user", True)) == 1
    assert kinds.index(("result", False)) < kinds.index(("user", True)) < len(kinds) - 1
    assert workshop.world.json("tasks", "show", task_id)["pending_messages"] == []
    late = workshop.world.run("tasks", "send", task_id, "too late")
    assert (late.returncode, "kitbag tasks resume" in late.stderr) == (6, True)


def test_a_worker_that_dies_right_after_the_delivery_does_not_deliver_again(workshop: Workshop) -> None:
    workshop.script({"text": "Done."})
    task_id = put(workshop)
    asyncio.run(send_to_task(workshop.board, workshop.task(task_id), "Use tabs."))
    workshop.nursery.wait(workshop.worker("message-delivered"))
    workshop.worker()
    workshop.until_status(task_id, "completed")
    users = [str(record.body) for record in workshop.records(task_id, "user")]
    assert ["Use tabs." in user for user in users] == [False, True], "after the task, once"


def test_a_command_gets_no_messages(workshop: Workshop) -> None:
    request = workshop.wish(command="sleep 1")
    made = workshop.board.create("c1", "command", request, root="root", parent="", depth=1, background=True)
    task = asyncio.run(made)
    with pytest.raises(InvalidError, match="is a command"):
        asyncio.run(send_to_task(workshop.board, task, "hello"))
