"""The chat loop: handles user actions, runs the agent's turns and `/commands`, and shows their events.

Used by start. Uses runtime/agent for turns, event_blocks to turn events into blocks, commands for `/name`. User
actions, finished tasks and background changes go through one queue and are handled one at a time.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Literal

import msgspec

from kitbag.agent.compact import estimate_message_tokens
from kitbag.agent.inbox import InboxMessage
from kitbag.agent.run import Run
from kitbag.agent.shield import run_to_completion
from kitbag.assembly.run_options import Options
from kitbag.chat.background import BackgroundMonitor
from kitbag.chat.commands import COMMANDS, ChatCommand
from kitbag.chat.event_blocks import EventView
from kitbag.chat.pending import PendingSubmissions
from kitbag.chat.shell_commands import run_shell_command
from kitbag.chat.ui import ChatStatus, ChatUI, ExitRequested, KeyPressed, LiveState, Submitted, UserAction
from kitbag.errors import KitbagError
from kitbag.events import MessageDelivered
from kitbag.messages import Image
from kitbag.runtime.agent import Agent
from kitbag.store.streaming_redaction import StreamingRedactor
from kitbag.text.tokens import estimate_tokens
from kitbag.views.blocks import Block, NoticeBlock, UserBlock, notice_block, text_block


def chat_status(agent: Agent, used_tokens: int, background: BackgroundMonitor) -> ChatStatus:
    """`used_tokens`: tokens of the last request and its reply, as counted by the provider."""
    persona = agent.environment.library.persona
    totals = agent.session.totals
    background_cost = background.cost
    return ChatStatus(
        model=agent.chosen.name,
        mode=agent.permissions.current_mode,
        persona=(persona.full_name if persona is not None else agent.environment.library.team) or agent.options.agent,
        used=used_tokens,
        window=agent.chosen.info.window,
        cost=None if totals.unpriced or background_cost is None else totals.cost + background_cost,
        tasks=background.running,
        questions=background.questions,
        directory=agent.environment.places.cwd,
    )


def estimate_used_tokens(agent: Agent) -> int:
    """An estimate for the time before the provider's first count."""
    prompt = sum(estimate_tokens(block.text) for block in agent.system_blocks)
    tools = sum(len(spec.description) + len(str(spec.schema)) for spec in agent.toolset.specs()) // 4
    return prompt + tools + sum(estimate_message_tokens(message) for message in agent.session.messages())


AgentFactory = Callable[[Options], Agent]
_ALL_EXCHANGES: Final = 1 << 40
_EXIT_WORDS: Final = frozenset(("exit", "quit", "/quit"))
"""Words that exit, as in a shell. From a pipe they are messages."""


class _TaskEvent(msgspec.Struct, frozen=True):
    """`foreground` and `side`: that task ended. `background`: a background task changed."""

    source: Literal["foreground", "side", "background"]


class Chat:
    """Implements CommandContext."""

    agent: Agent
    """Replaced by /clear and /resume."""

    def __init__(
        self,
        ui: ChatUI,
        agent: Agent,
        open_agent: AgentFactory,
        on_agent: Callable[[Agent], None] = lambda agent: None,
        early_actions: Sequence[UserAction] = (),
    ) -> None:
        """`agent` is open; `open_agent` makes other agents, not yet open; `on_agent` is called with each agent the chat
        uses; `early_actions` happened before the chat started."""
        self.ui = ui
        self.agent = agent
        self.pending = PendingSubmissions()
        """What waits for the foreground task."""
        self._open_agent = open_agent
        self._on_agent = on_agent
        self._events: asyncio.Queue[UserAction | _TaskEvent] = asyncio.Queue()
        for action in early_actions:
            self._events.put_nowait(action)
        self._foreground: asyncio.Task[None] | None = None
        self._side: asyncio.Task[None] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._run: Run | None = None
        self._live = LiveState()
        self._exit: ExitRequested | None = None
        self._holds_background = False
        """The last run was canceled or failed: background results wait for the user's next message."""
        self._set_agent(agent)

    def _set_agent(self, agent: Agent, background: BackgroundMonitor | None = None) -> None:
        self.agent = agent
        self._on_agent(agent)
        agent.is_interactive = True
        self.ui.redact = self._redact
        self.view = EventView(self.show, self._draw, self._make_redactor)
        self.view.details_open = self.ui.keeps_everything
        self.background = BackgroundMonitor(agent, agent.environment.places.kitbag_home, background)
        self.pending.load(agent.inbox)

    def _redact(self, text: str) -> str:
        return self.agent.journal.redactor.redact_known(text)

    def _make_redactor(self) -> StreamingRedactor:
        return StreamingRedactor(self._redact, self.agent.journal.redactor.known_values)

    # For commands and start

    @property
    def details_open(self) -> bool:
        """Whether tool results and thinking are shown in full."""
        return self.view.details_open

    @property
    def is_working(self) -> bool:
        """Whether a foreground task is running."""
        return self._foreground is not None

    def show(self, *blocks: Block) -> None:
        self.ui.show(*blocks)

    async def open_session(self, options: Options) -> None:
        """Replaces the current session with a new one, or with `options.resume`, once it is open. Raises KitbagError
        and then keeps the current session."""
        # If the settings became stricter, an earlier, freer mode must not carry over to the new session.
        agent = self._open_agent(
            msgspec.structs.replace(options, settings_mode=self.agent.environment.live_rules.settings_mode)
        )
        await agent.__aenter__()
        await run_to_completion(self._switch_to(agent))

    async def _switch_to(self, agent: Agent) -> None:
        await self._stop_watching()
        before, is_open = self.agent, self.view.details_open
        pending, self.pending = self.pending, PendingSubmissions()
        self._set_agent(agent, self.background)
        await pending.move_to(self.pending, before.inbox, agent.inbox)
        self.view.details_open = is_open
        await self.show_welcome()
        self._start_watching()
        await before.close()

    async def run_activity(self, activity: str, work: Coroutine[Any, Any, None]) -> None:
        """Awaits `work` with a spinner and the elapsed time; Esc cancels it."""
        self._draw(LiveState(activity=activity, started_at=time.monotonic()))
        try:
            await work
        finally:
            self._draw(LiveState())

    def submit(self, text: str, images: Sequence[Image] = ()) -> None:
        """Handles a text as if the user had typed it."""
        self._events.put_nowait(Submitted(text=text, images=tuple(images)))

    async def cancel(self) -> bool:
        """Cancels the foreground task and waits until it ends. False: nothing was running."""
        foreground = self._foreground
        if foreground is None or foreground is asyncio.current_task():
            return False
        await self._cancel_foreground()
        await asyncio.wait([foreground])
        return True

    def interrupt(self) -> None:
        """As Esc does."""
        self._events.put_nowait(KeyPressed("cancel"))

    async def flush(self) -> None:
        """Waits until the UI has received all events of the current run."""
        if self._run is not None:
            await self._run.drain()

    def refresh(self) -> None:
        """Redraws the status line after a change."""
        self._draw(self._live)

    def reset_usage(self) -> None:
        """Estimates the used tokens again, until the provider counts them."""
        self.view.used_tokens = estimate_used_tokens(self.agent)

    def request_exit(self, code: int = 0) -> None:
        self._events.put_nowait(ExitRequested(exit_code=code))

    # Start and exit

    async def run(self) -> int:
        """Returns the exit code."""
        await self.show_welcome()
        preloading = asyncio.create_task(self._preload_renderer())
        reading = asyncio.create_task(self._read_actions())
        self._start_watching()
        if self.pending:  # an earlier process left them
            self._start_next()
        try:
            while self._exit is None or (not self._exit.immediately and self._is_busy()):
                await self._handle(await self._events.get())
                await asyncio.sleep(0)  # let a new task take its first step; if canceled before, it would not be shown
        finally:
            for task in (reading, preloading, self._foreground, self._side):
                await self._stop(task)
            await self._stop_watching()
        self._show_goodbye()
        return self._exit.exit_code

    async def show_welcome(self) -> None:
        """Shows what the user must know before the first message, and the end of a resumed session."""
        from kitbag.chat.welcome import welcome_blocks

        notices, self.agent.notices = self.agent.notices, []
        self.show(*welcome_blocks(self.agent), *map(notice_block, notices))
        if self.ui.keeps_everything:
            await self.view.replay(self.agent.session, exchanges=_ALL_EXCHANGES)
        else:
            await self.view.replay(self.agent.session)
        self.view.used_tokens = self.view.used_tokens or estimate_used_tokens(self.agent)
        self.refresh()

    def _show_goodbye(self) -> None:
        from kitbag.chat.welcome import goodbye_blocks

        self._draw(LiveState())
        self.show(*goodbye_blocks(self.agent))

    async def _preload_renderer(self) -> None:
        """Imports the renderer while the user types, not when the first reply is drawn."""
        if not self.ui.is_plain:
            from kitbag.views.rendering.render import preload

            await asyncio.to_thread(preload)

    async def _read_actions(self) -> None:
        """Continues after the end of input while queued messages are processed: a signal may arrive."""
        is_at_end = False
        try:
            while True:
                action = await self.ui.next()
                self._events.put_nowait(action)
                await asyncio.sleep(0)  # take simultaneous input in turn, so that the UI sees the length of the queue
                if isinstance(action, ExitRequested):
                    if action.immediately or is_at_end:
                        return
                    is_at_end = True
        except Exception as error:  # noqa: BLE001 - no further input is possible
            self._show_bug(error)
            self.request_exit(1)

    def _start_watching(self) -> None:
        self._watcher = asyncio.create_task(self._follow_background())

    async def _stop_watching(self) -> None:
        await self._stop(self._watcher)
        self._watcher = None

    async def _follow_background(self) -> None:
        async for blocks in self.background.follow():
            self.show(*blocks)
            self.refresh()
            self._events.put_nowait(_TaskEvent("background"))

    # Events, one at a time

    async def _handle(self, event: UserAction | _TaskEvent) -> None:
        match event:
            case ExitRequested():
                self._exit = event
            case Submitted():
                await self._accept(event)
            case KeyPressed("cancel"):
                await self._cancel_foreground()
            case KeyPressed("unqueue"):
                self._give_back(await self.pending.take_back_last(self.agent.inbox))
            case KeyPressed("details"):
                self._toggle_details()
            case KeyPressed("background"):
                if not self.agent.move_to_background():
                    self.show(NoticeBlock("info", "no command or agent is running that could move to the background"))
            case KeyPressed("mode"):
                self._start_side(self._cycle_mode())
            case _TaskEvent("foreground"):
                self._foreground = None
                self._start_next()
            case _TaskEvent("side"):
                self._side = None
                self._start_next()
            case _:
                self._holds_background = False
                self._start_next()

    def _is_busy(self) -> bool:
        return self._foreground is not None or self._side is not None or bool(self.pending)

    async def _accept(self, submitted: Submitted) -> None:
        """Starts a submission, or lets it wait for the running task. A message steers the agent's work."""
        if submitted.text.strip().lower() in _EXIT_WORDS and not submitted.is_piped:
            submitted = Submitted(text="/exit")
        command = _parse_command(submitted.text)
        runs_now = command is not None and command.while_working and not submitted.is_piped
        if command is not None and runs_now and self._side is None:
            self._start_side(self._run_command(command, submitted))
        elif not self._is_busy():
            self._start(submitted)
        else:
            is_message = command is None and not submitted.shell_command and not submitted.is_piped
            steers = self._run is not None and not submitted.waits and not submitted.text.startswith("/")
            try:
                await self.pending.add(
                    submitted, self.agent.inbox if is_message else None, "steer" if steers else "after"
                )
            except KitbagError as error:
                self.show(NoticeBlock("error", error.problem, error.fix))
                self.ui.insert(submitted)
            self.refresh()

    def _start_next(self) -> None:
        """Starts the next queued submission if nothing is running."""
        if self._foreground is not None or self._side is not None:
            return
        if steering := self.pending.steering_messages():
            self._start_foreground(self._run_turn(Submitted(text=""), steering))
        elif self.pending:
            waiting = self.pending.next()
            self._start(waiting.submitted, waiting.message)
        elif self._exit is None and not self._holds_background and self.background.has_news():
            self._start_foreground(self._run_turn(Submitted(text="")))
        self.refresh()

    def _start(self, submitted: Submitted, message: InboxMessage | None = None) -> None:
        """`message`: the submission, if it waits in the inbox."""
        command = _parse_command(submitted.text)
        if message is not None:
            self._start_foreground(self._run_turn(submitted, [message]))
        elif shell_command := submitted.shell_command:
            self._start_foreground(run_shell_command(self.agent, shell_command, self.show, self._draw))
        elif command is None:
            self._start_foreground(self._run_turn(submitted))
        elif command.while_working:
            self._start_side(self._run_command(command, submitted))
        else:
            self._start_foreground(self._run_command(command, submitted))

    def _start_foreground(self, work: Coroutine[Any, Any, None]) -> None:
        self._foreground = asyncio.create_task(self._run_guarded(work))
        self._foreground.add_done_callback(lambda _: self._events.put_nowait(_TaskEvent("foreground")))

    def _start_side(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs a command beside the foreground task. At most one at a time."""
        if self._side is not None:
            work.close()
            return
        self._side = asyncio.create_task(self._run_guarded(work))
        self._side.add_done_callback(lambda _: self._events.put_nowait(_TaskEvent("side")))

    async def _run_guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """Shows errors, so that no task ends the chat."""
        try:
            await work
        except KitbagError as error:
            self.show(NoticeBlock("error", error.problem, error.fix))
        except asyncio.CancelledError:
            self.show(text_block("interrupted", "dim"))
            raise
        except Exception as error:  # noqa: BLE001 - shown; the chat continues
            self._show_bug(error)

    def _show_bug(self, error: BaseException) -> None:
        fix = "report this bug; the session is saved and you can continue"
        self.show(NoticeBlock("error", f"internal error: {type(error).__name__}: {error}", fix))

    async def _stop(self, task: "asyncio.Task[None] | None") -> None:
        if task is None:
            return
        task.cancel()
        await asyncio.wait([task])
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._show_bug(error)

    async def _run_command(self, command: ChatCommand, submitted: Submitted) -> None:
        self.show(UserBlock(submitted.text))
        arguments = submitted.text.strip().partition(" ")[2].strip()
        await command.load()(self, arguments)
        self.refresh()

    async def _run_turn(self, submitted: Submitted, messages: Sequence[InboxMessage] = ()) -> None:
        """`messages`: what this turn delivers from the inbox: the submission, or messages that steer."""
        if (submitted.text or submitted.images) and not messages:
            self.show(UserBlock(submitted.display_text, len(submitted.images)))
        if submitted.text.startswith("/") and await self._is_unknown_command(submitted):
            await self.pending.take_back_messages(self.agent.inbox, [message.id for message in messages])
            return
        self.agent.is_interactive = not submitted.is_piped  # piped input may contain text written by others
        self._holds_background = True
        message = messages[0] if messages and (submitted.text or submitted.images) else None
        try:
            async with self.agent.run(submitted.text, submitted.images, message) as run:
                self._run = run
                async for event in run:
                    if isinstance(event, MessageDelivered):
                        self._show_delivered(event)
                    self.view.handle(event)
            self._holds_background = run.ended.status in ("cancelled", "failed")
        finally:
            self._run = None
            if self._exit is None or not self._exit.immediately:  # else resuming the session delivers them
                left = self.pending.take_back_messages(self.agent.inbox, [message.id for message in messages])
                self._give_back(await run_to_completion(left))
            self._draw(LiveState())
            self.background.refresh()

    def _show_delivered(self, event: MessageDelivered) -> None:
        submitted = self.pending.remove(event.id)
        self.show(UserBlock(submitted.display_text if submitted is not None else event.text, event.images))
        self.refresh()

    async def _is_unknown_command(self, submitted: Submitted) -> bool:
        """If so, shows a notice and puts the text back into the input line."""
        from kitbag.chat.unknown_commands import describe_unknown_command

        notice = await asyncio.to_thread(describe_unknown_command, submitted.text, self.agent.skills)
        if notice is not None:
            self.show(notice)
            self.ui.insert(submitted)
        return notice is not None

    async def _cancel_foreground(self) -> None:
        """Messages that steer are delivered at once. Without them, what is queued returns to the input line: it was
        meant for after the canceled run."""
        if self._run is not None:
            self._run.cancel()
        elif self._foreground is not None:
            self._foreground.cancel()
        elif self._side is not None:
            self._side.cancel()
        else:
            return
        if not self.pending.steering_messages():
            self._give_back(await self.pending.take_back(self.agent.inbox))

    def _give_back(self, submissions: Sequence[Submitted]) -> None:
        """Puts them into the input line."""
        if submissions:
            self.ui.insert(*submissions)
            self.refresh()

    def _toggle_details(self) -> None:
        self.view.details_open = not self.view.details_open
        if self.view.details_open:
            self.ui.unfold(self.view.details())
            self.ui.hint("details expanded; press the same key again to collapse them")
        else:
            self.ui.fold()
            self.ui.hint("details collapsed")

    async def _cycle_mode(self) -> None:
        from kitbag.chat.commands.mode import cycle_mode

        await cycle_mode(self)
        self.refresh()

    def _draw(self, live: LiveState) -> None:
        self._live = live
        if self.pending:
            steering, queued = self.pending.shown(steering=True), self.pending.shown(steering=False)
            live = msgspec.structs.replace(live, steering=steering, queued=queued)
        self.ui.draw(live, chat_status(self.agent, self.view.used_tokens, self.background))


def _parse_command(text: str) -> ChatCommand | None:
    """None: not a built-in command. The agent handles skills, custom commands and paths."""
    name, _, _ = text.strip().partition(" ")
    return COMMANDS.get(name[1:].lower()) if name.startswith("/") and "\n" not in name else None
