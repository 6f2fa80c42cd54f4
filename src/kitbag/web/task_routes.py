"""`/api/tasks`: shows a task, answers its questions, sends it messages, stops and resumes it.

Mounted by application, which imports it at the first request. The list is the topic of task_feed.
Everything else is what `kitbag tasks` and `/tasks` do.
"""

import asyncio
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kitbag.agent.shield import run_ignoring_cancellation
from kitbag.chat.task_blocks import output_page, task_detail_blocks
from kitbag.errors import InvalidError, NotFoundError
from kitbag.permissions.approvals.queue import ApprovalQueue, require_person
from kitbag.tasks.board import Board
from kitbag.tasks.resume import resume_task
from kitbag.tasks.send import send_to_task
from kitbag.tasks.stop import stop_task, stopped_message
from kitbag.tasks.task import Task
from kitbag.tasks.worker_process import ensure_tasks_hosted
from kitbag.text.human_format import shorten_path
from kitbag.views.blocks import Block, NoticeBlock, ReplyBlock, TableBlock, VerbatimBlock, text_block
from kitbag.web.html.blocks import render_block
from kitbag.web.requests import SentAnswer, answer_json, handle_errors, read_body, read_number, state_of
from kitbag.web.task_reader import open_board

_MAX_EXCHANGES: Final = 1_000
_MAX_BLOCKS: Final = 20_000


class SentText(msgspec.Struct, frozen=True, kw_only=True):
    text: str = ""


@handle_errors
async def show_task(request: Request) -> Response:
    """What a tab of the task shows: `overview`, `transcript` (the last `limit` blocks) or `context`."""
    part = request.path_params["part"]
    limit = read_number(request, "limit", 200, _MAX_BLOCKS)
    read = _PARTS.get(part)
    if read is None:
        raise NotFoundError(f"a task has no {part[:40]!r}", "reload the page")
    async with open_board(state_of(request).places) as board:
        return answer_json(await asyncio.to_thread(_read_part, board, request.path_params["task"], read, limit))


def _read_part(board: Board, name: str, read: Any, limit: int) -> dict[str, Any]:
    task = board.find(name)
    blocks: list[Block] = read(board, task)
    redact = board.journal.redactor.redact_text
    shown = blocks[-limit:]
    return {
        "id": task.id,
        "omitted": len(blocks) - len(shown),
        "blocks": [str(render_block(one, redact)) for one in shown],
    }


def _transcript(board: Board, task: Task) -> list[Block]:
    from kitbag.agent.resume import resume
    from kitbag.chat.replay import replay_session

    if task.kind == "command":
        return [text_block("A command has no transcript; its output is all there is.", "dim")]
    try:
        session = resume(board.journal, task.session)
    except NotFoundError:
        return [text_block("It has not started yet.", "dim")]
    return list(replay_session(session, _MAX_EXCHANGES).blocks)


def _context(board: Board, task: Task) -> list[Block]:
    """The ledger: what its next request contains."""
    from kitbag.chat.commands.context import context_bars
    from kitbag.library.scopes import find_places
    from kitbag.runtime.context_report import report_session_context
    from kitbag.views.context import describe_last_request, describe_skill_tokens

    if task.kind == "command":
        return [text_block("A command has no context: no model is involved.", "dim")]
    try:
        report = report_session_context(find_places(task.directory), task.session)
    except NotFoundError:
        return [text_block("It has not started yet.", "dim")]
    rows = tuple(
        (row["kind"], f"{row['tokens']:,}", f"{row['bytes']:,}", str(row["count"]), shorten_path(row["name"]))
        for row in report["groups"]
    )
    lines = [describe_skill_tokens(report), describe_last_request(report)]
    return [
        context_bars(report),
        TableBlock(headers=("KIND", "TOKENS", "BYTES", "COUNT", "NAME"), rows=rows, title="In its next request"),
        *(text_block(line, "dim") for line in lines if line),
        *(NoticeBlock("warning", warning) for warning in report["warnings"]),
    ]


_PARTS: Final = {"overview": task_detail_blocks, "transcript": _transcript, "context": _context}


@handle_errors
async def show_output(request: Request) -> Response:
    """A page of its answer or output, from `offset`."""
    offset = read_number(request, "offset", 0, 1 << 50)
    async with open_board(state_of(request).places) as board:
        return answer_json(await asyncio.to_thread(_read_output, board, request.path_params["task"], offset))


def _read_output(board: Board, name: str, offset: int) -> dict[str, Any]:
    task = board.find(name)
    page = output_page(board, task, offset)
    block: Block = VerbatimBlock(page.text, page.title) if task.kind == "command" else ReplyBlock(page.text)
    html = str(render_block(block, board.journal.redactor.redact_text)) if page.text else ""
    return {"id": task.id, "html": html, "next": page.next_offset, "title": page.title}


@handle_errors
async def send_message(request: Request) -> Response:
    sent = await read_body(request, SentText)
    places = state_of(request).places
    async with open_board(places) as board:
        task = board.find(request.path_params["task"])
        await send_to_task(board, task, sent.text)
        hosting = await ensure_tasks_hosted(board, places.kitbag_home)
    return answer_json({"text": hosting.problem or "sent; it gets the message after its running tool calls"}, 202)


@handle_errors
async def stop(request: Request) -> Response:
    await read_body(request, SentText)
    async with open_board(state_of(request).places) as board:
        task = board.find(request.path_params["task"])
        stopped = await run_ignoring_cancellation(stop_task(board, task, "person"))
    return answer_json({"text": "; ".join((stopped_message(stopped), *stopped.report.warnings))})


@handle_errors
async def resume(request: Request) -> Response:
    sent = await read_body(request, SentText)
    places = state_of(request).places
    async with open_board(places) as board:
        task = board.find(request.path_params["task"])
        hosting = await resume_task(board, task, sent.text.strip(), places.kitbag_home)
    return answer_json({"text": hosting.problem or "resumed in the background"}, 202)


@handle_errors
async def answer_question(request: Request) -> Response:
    sent = await read_body(request, SentAnswer)
    state = state_of(request)
    require_person()
    async with open_board(state.places) as board:
        try:
            queue = await asyncio.to_thread(ApprovalQueue, board.journal)
            outcome = await state.tasks.questions.answer(sent.question, sent.answer, queue)
        except InvalidError as error:
            return answer_json({"problem": error.problem, "fix": error.fix}, 409)
        finally:
            state.tasks.publish_questions()
    if outcome == "stale":
        return answer_json({"problem": "this question was already answered", "fix": ""}, 409)
    return answer_json({"outcome": outcome}, 202)


ROUTES = [
    Route("/answers", answer_question, methods=["POST"]),
    Route("/{task}/output", show_output, methods=["GET"]),
    Route("/{task}/messages", send_message, methods=["POST"]),
    Route("/{task}/stop", stop, methods=["POST"]),
    Route("/{task}/resume", resume, methods=["POST"]),
    Route("/{task}/{part}", show_task, methods=["GET"]),
]
