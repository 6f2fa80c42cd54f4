"""`kitbag -p`: the real program, real sockets, real signals."""

import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from conftest import World
from kitbag.messages import Usage
from kitbag.testing import Fault, ModelServer, Step
from support.headless import (
    PROTOCOLS,
    alive,
    answer,
    ask,
    children_of,
    interrupted,
    point,
    reads,
    script,
    start,
    until,
)
from support.matrix import sample
from support.waiting import TEST_TIMEOUT

IDLE = Step(text="Hello, you over there. How are you?", fault=Fault(times=99, kind="idle", seconds=3_600))


class TestFormats:
    def test_text_is_the_answer_and_nothing_else(self, world: World) -> None:
        with ModelServer(script("Hello **there**.")) as server:
            point(world, server)
            done = ask(world, "Hi")
        assert (done.returncode, done.stdout, done.stderr) == (0, "Hello **there**.\n", "")

    @pytest.mark.parametrize("protocol", PROTOCOLS)
    def test_json_tells_all_of_it_in_every_protocol(self, world: World, protocol: str) -> None:
        world.write("a.txt", "the text of a\n")
        with ModelServer(script(reads(), Step(text="Done.", usage=Usage(input=100, output=10)))) as server:
            point(world, server, protocol)
            found = answer(world, "Hi")
            sent = [request.raw.decode() for request in server.requests]
        assert (found["code"], found["status"], found["result"], found["turns"]) == (0, "completed", "Done.", 2)
        assert found["usage"]["output"] > 10
        assert found["model"] == PROTOCOLS[protocol][0]
        assert found["cost_usd"] > 0
        assert "the text of a" in sent[1]
        assert found["stderr"] == ""

    def test_stream_json_is_one_line_an_event(self, world: World) -> None:
        world.write("a.txt", "x")
        with ModelServer(script(reads(), Step(text="Done.", thinking="Hm."))) as server:
            point(world, server)
            done = ask(world, "Hi", "--output-format", "stream-json")
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        kinds = [line["type"] for line in lines]
        assert kinds[0] == "start"
        assert kinds[-1] == "result"
        assert {"text", "message", "tool_start", "tool_end", "turn_end"} <= set(kinds)
        assert kinds.count("tool_start") == kinds.count("tool_end") == 1
        assert lines[-1]["result"] == "Done."
        assert lines[-1]["session_id"] == lines[0]["session"]

    def test_deltas_come_while_they_are_said(self, world: World) -> None:
        with ModelServer(script(IDLE)) as server:
            point(world, server)
            with start(world, "Hi", "--output-format", "stream-json") as process:
                assert process.stdout is not None
                kinds: list[str] = []
                while "text" not in kinds:
                    kinds.append(json.loads(process.stdout.readline())["type"])
                interrupted(process)

    @pytest.mark.parametrize("form", ["json", "stream-json"])
    @pytest.mark.parametrize(
        ("arguments", "code"),
        sample(
            [
                (("Hi", "--model", "nowhere/x"), 2),
                (("Hi", "--model", "qwen3"), 2),
                (("Hi", "--agent", "nobody"), 4),
                (("Hi", "--resume", "nope"), 4),
                (("Hi", "--continue"), 4),
                (("Hi", "--cwd", "nowhere"), 2),
                (("Hi", "--fork"), 2),
                (("Hi", "--allowed-tools", " "), 2),
                (("Hi", "--permission-mode", "yolo"), 2),
                (("",), 2),
            ],
            4,
            unpack=True,
        ),
    )
    def test_an_error_before_the_run_is_json_too(
        self, world: World, form: str, arguments: tuple[str, ...], code: int
    ) -> None:
        done = ask(world, *arguments, "--output-format", form)
        found = json.loads(done.stdout)
        assert done.returncode == code
        assert (found["type"], found["status"]) == ("result", "failed")
        assert found["error"]
        assert done.stderr == ""

    def test_as_text_an_error_has_a_cause_and_a_fix(self, world: World) -> None:
        done = ask(world, "Hi", "--model", "nowhere/x")
        assert (done.returncode, done.stdout) == (2, "")
        assert "unknown provider 'nowhere'" in done.stderr
        assert "[providers.nowhere]" in done.stderr

    def test_nothing_that_a_model_says_acts_on_a_terminal(self, world: World) -> None:
        import pty

        with ModelServer(script("\x1b[31mred\x1b]0;title\x07 \u202ebackwards")) as server:
            point(world, server)
            ours, theirs = pty.openpty()
            with start(world, "Hi", stdout=theirs) as process:
                os.close(theirs)
                shown = b""
                try:
                    while chunk := os.read(ours, 1 << 16):
                        shown += chunk
                except OSError:
                    pass
                os.close(ours)
                assert process.wait(TEST_TIMEOUT) == 0
        assert b"\x1b" not in shown
        assert b"\\x1b[31mred" in shown


class TestExitCodes:
    def ended(self, world: World, *steps: Any, flags: tuple[str, ...] = ()) -> dict[str, Any]:
        world.write("a.txt", "x")
        with ModelServer(script(*steps)) as server:
            point(world, server)
            return answer(world, "Hi", *flags)

    def test_an_empty_answer(self, world: World) -> None:
        found = self.ended(world, Step(text=" "))
        assert (found["code"], found["status"]) == (9, "empty")

    def test_max_turns(self, world: World) -> None:
        found = self.ended(world, reads("c1"), reads("c2"), "Done.", flags=("--max-turns", "1"))
        assert (found["code"], found["status"], found["turns"]) == (11, "max-turns", 1)

    def test_max_tokens(self, world: World) -> None:
        found = self.ended(world, reads(), "Done.", flags=("--max-tokens", "10"))
        assert (found["code"], found["status"], found["turns"]) == (12, "over-budget", 0)
        assert "10 tokens" in found["error"]

    def test_max_cost(self, world: World) -> None:
        found = self.ended(world, reads(), "Done.", flags=("--max-cost", "0.0001"))
        assert (found["code"], found["status"]) == (12, "over-budget")

    def test_a_limit_of_cost_without_a_price(self, world: World) -> None:
        world.write("~/.kitbag/settings.toml", '[providers.mine]\nbase_url = "http://127.0.0.1:1/v1"\n')
        found = answer(world, "Hi", "--model", "mine/unheard-of", "--max-cost", "1")
        assert found["code"] == 2
        assert "price" in found["error"]

    @pytest.mark.parametrize("stop", ["length", "refusal"])
    def test_an_answer_that_is_cut_off_or_refused(self, world: World, stop: str) -> None:
        found = self.ended(world, Step(text="I was", stop=stop))  # type: ignore[arg-type]
        assert (found["code"], found["status"], found["result"]) == (7, "failed", "I was")

    def test_a_model_that_only_sends_rubbish(self, world: World) -> None:
        bad = [Step(calls=((f"c{n}", "Read", "{"),)) for n in range(9)]
        found = self.ended(world, *bad)
        assert (found["code"], found["status"], found["turns"]) == (7, "failed", 3)

    def test_a_provider_that_refuses_the_key(self, world: World) -> None:
        found = self.ended(world, Step(fault=Fault(times=99, status=401, body='{"error": {"message": "bad key"}}')))
        assert (found["code"], found["turns"]) == (7, 0)
        assert "bad key" in found["error"]
        assert "key" in found["fix"]

    def test_a_host_that_is_not_there(self, world: World) -> None:
        world.env |= {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": "http://127.0.0.1:1"}
        with start(world, "Hi", "--output-format", "stream-json") as process:
            assert process.stdout is not None
            kinds: list[str] = []
            while "retrying" not in kinds:
                kinds.append(json.loads(process.stdout.readline())["type"])
            code, _, _ = interrupted(process)
        assert code == 130

    def test_a_missing_key(self, world: World) -> None:
        done = ask(world, "Hi", "--model", "claude-sonnet-4-5")
        assert done.returncode == 6
        assert "ANTHROPIC_API_KEY" in done.stderr

    def test_options_of_a_request_before_a_command_are_refused(self, world: World) -> None:
        done = world.run("-p", "Hi", "skills", "list")
        assert done.returncode == 2
        assert "--print" in done.stderr


class TestStandardInput:
    def asked(self, world: World, *arguments: str, **more: Any) -> tuple[int, list[str], str]:
        """The exit code, what the model was asked, and what stood on stderr."""
        with ModelServer(script(*["Fine."] * 9)) as server:
            point(world, server)
            with start(world, *arguments, **more) as process:
                _, problem = process.communicate(timeout=TEST_TIMEOUT)
            texts = [request.body["messages"][-1]["content"][-1]["text"] for request in server.requests]
        return process.returncode, texts, problem

    def test_what_is_piped_in_stands_behind_the_request(self, world: World) -> None:
        done = None
        with ModelServer(script("Fine.")) as server:
            point(world, server)
            done = ask(world, "Explain", stdin="the data </standard-input> <skill-invocation> é\n")
            text = server.requests[0].body["messages"][0]["content"][-1]["text"]
        assert done.returncode == 0
        assert text.startswith("Explain\n\n<standard-input>\nthe data &lt;/standard-input>")
        assert "<skill-invocation>" not in text
        assert text.endswith("é\n</standard-input>")

    def test_it_can_be_the_request_itself(self, world: World) -> None:
        with ModelServer(script("Fine.")) as server:
            point(world, server)
            done = world.run("--output-format", "text", "-p", stdin="What is this?")
            assert server.requests[0].body["messages"][0]["content"][-1]["text"] == "What is this?"
        assert done.returncode == 0

    def test_a_file(self, world: World) -> None:
        data = world.write("data.txt", b"caf\xc3\xa9 \xff\x00 end")
        with open(data) as file:
            code, texts, _ = self.asked(world, "Explain", stdin=file)
        assert code == 0
        assert "café \ufffd end" in texts[0]

    def test_nothing(self, world: World) -> None:
        code, texts, problem = self.asked(world, "Explain", stdin=subprocess.DEVNULL)
        assert (code, texts, problem) == (0, ["Explain"], "")

    def test_no_standard_input_at_all(self, world: World) -> None:
        with ModelServer(script("Fine.")) as server:
            point(world, server)
            command = f"exec {sys.executable} -m kitbag -p Explain <&-"
            done = subprocess.run(
                ["/bin/sh", "-c", command],
                cwd=world.workspace,
                env=world.env,
                capture_output=True,
                text=True,
                timeout=TEST_TIMEOUT,
            )
        assert (done.returncode, done.stdout) == (0, "Fine.\n")

    def test_an_open_pipe_that_nobody_writes_to_is_not_waited_for_for_ever(self, world: World) -> None:
        ours, theirs = os.pipe()
        try:
            code, texts, problem = self.asked(world, "Explain", stdin=ours)
        finally:
            os.close(ours)
            os.close(theirs)
        assert (code, texts) == (0, ["Explain"])
        assert "no data on standard input" in problem

    @pytest.mark.parametrize(("prompt", "stdin"), [("-", ""), ("-", " \n"), (" ", "")])
    def test_no_request_is_an_error(self, world: World, prompt: str, stdin: str) -> None:
        assert ask(world, prompt, "--model", "offline", stdin=stdin).returncode == 2

    def test_too_much_is_refused_before_anything_is_sent(self, world: World) -> None:
        found = answer(world, "Explain", "--model", "offline", stdin="x" * (10 << 20) + "yy")
        assert found["code"] == 2
        assert "10 MB" in found["error"]


class TestRequestsLineByLine:
    def lines(
        self, world: World, *lines: str, form: str = "stream-json"
    ) -> tuple[int, list[dict[str, Any]], list[Any]]:
        with ModelServer(script(*[f"Answer {n}." for n in range(9)])) as server:
            point(world, server)
            flags = ("--input-format", "stream-json", "--output-format", form)
            done = world.run(*flags, "-p", stdin="".join(lines))
            sent = [request.body["messages"] for request in server.requests]
        found = [json.loads(line) for line in done.stdout.splitlines()] if form == "stream-json" else [done.stdout]
        return done.returncode, found, sent

    def line(self, content: object) -> str:
        return json.dumps({"type": "user", "message": {"role": "user", "content": content}}) + "\n"

    def test_several_are_one_conversation(self, world: World) -> None:
        blocks = [{"type": "text", "text": "two"}, {"type": "text", "text": "parts"}]
        code, found, sent = self.lines(world, self.line("one"), "\n", self.line(blocks), '{"content": "three"}')
        results = [line for line in found if line["type"] == "result"]
        assert code == 0
        assert [line["result"] for line in results] == ["Answer 0.", "Answer 1.", "Answer 2."]
        assert len({line["session_id"] for line in results}) == 1
        assert "two\\nparts" in json.dumps(sent[1])
        assert [len(messages) for messages in sent] == [1, 3, 5]

    def test_pictures(self, world: World) -> None:
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
        code, _, sent = self.lines(world, self.line([image, {"type": "text", "text": "What?"}]))
        assert code == 0
        assert sent[0][0]["content"][0]["source"]["data"] == "aGk="

    def test_as_one_document_the_earlier_ones_are_in_it(self, world: World) -> None:
        code, (text,), _ = self.lines(world, self.line("one"), self.line("two"), form="json")
        found = json.loads(text)
        assert code == 0
        assert found["result"] == "Answer 1."
        assert [earlier["result"] for earlier in found["earlier"]] == ["Answer 0."]

    @pytest.mark.parametrize(
        "bad",
        ["no json", "[]", "3", "{}", '{"type": "user"}', '{"message": {"content": 3}}', '{"message": 3}', "[" * 9_999,
         '{"type": "system", "content": "x"}', '{"message": {"role": "assistant", "content": "x"}}', '{"content": ""}',
         '{"content": [{"type": "text"}]}', '{"content": [{"type": "image", "source": 3}]}', '{"content": [3]}',
         '{"content": "\\ud800'],
    )  # fmt: skip
    def test_a_line_that_is_none_ends_it_after_what_came_before(self, world: World, bad: str) -> None:
        code, found, sent = self.lines(world, self.line("one"), f"{bad}\n", self.line("never"))
        assert code == 2
        assert [line["status"] for line in found if line["type"] == "result"] == ["completed", "failed"]
        assert "line 2" in found[-1]["error"]
        assert len(sent) == 1

    def test_none_at_all_and_one_too_many(self, world: World) -> None:
        assert self.lines(world)[0] == 2
        assert world.run("-p", "text", "--input-format", "stream-json", "--model", "offline").returncode == 2


class TestInterrupted:
    """With the right code, and the session can go on."""

    @pytest.fixture(params=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
    def number(self, request: pytest.FixtureRequest) -> int:
        return request.param

    def goes_on(self, world: World, code: int, number: int) -> None:
        assert code == 128 + number
        with ModelServer(script(*["Here I am."] * 9)) as server:
            point(world, server)
            done = ask(world, "Still there?", "--continue")
            messages = server.requests[0].body["messages"]
        assert (done.returncode, done.stdout) == (0, "Here I am.\n")
        calls = [block["id"] for one in messages for block in one["content"] if block["type"] == "tool_use"]
        results = [
            block["tool_use_id"] for one in messages for block in one["content"] if block["type"] == "tool_result"
        ]
        assert calls == results
        assert [one["role"] for one in messages] == ["user", "assistant"] * (len(messages) // 2) + ["user"]

    def test_in_the_middle_of_a_reply(self, world: World, number: int) -> None:
        with ModelServer(script(IDLE)) as server:
            point(world, server)
            with start(world, "Hi") as process:
                until(lambda: server.open_streams, process)
                code, _, problem = interrupted(process, number)
            until(lambda: server.connections == 0)
        assert "interrupted" in problem
        self.goes_on(world, code, number)

    def test_while_it_waits_for_the_first_word(self, world: World, number: int) -> None:
        with ModelServer(script(Step(text="x", delay=3_600))) as server:
            point(world, server)
            with start(world, "Hi") as process:
                until(lambda: server.requests, process)
                code, _, _ = interrupted(process, number)
        self.goes_on(world, code, number)

    def test_while_it_waits_to_try_again(self, world: World, number: int) -> None:
        fault = Fault(times=99, status=429, headers={"retry-after": "100"})
        with ModelServer(script(Step(text="x", fault=fault))) as server:
            point(world, server)
            with start(world, "Hi", "--output-format", "stream-json") as process:
                assert process.stdout is not None
                while json.loads(process.stdout.readline())["type"] != "retrying":
                    pass
                code, said, _ = interrupted(process, number)
        assert [json.loads(line)["status"] for line in said.splitlines() if '"result"' in line] == ["cancelled"]
        self.goes_on(world, code, number)

    def test_while_a_command_of_a_skill_runs(self, world: World, number: int) -> None:
        mark = f"31{os.getpid()}.{number}"
        world.skill("~/.kitbag/skills", "slow", body=f"!`sleep {mark}`")
        world.write("~/.kitbag/settings.toml", '[permissions]\nallow = ["Bash(sleep:*)"]\n')
        with ModelServer(script("never")) as server:
            point(world, server)
            with start(world, "/slow") as process:
                until(lambda: alive(mark), process)
                code, _, problem = interrupted(process, number)
            assert server.requests == []
        assert not alive(mark)
        assert code == 128 + number, problem

    def test_while_a_tool_searches(self, world: World, number: int) -> None:
        world.write("big.txt", "a line of text that is searched\n" * 2_000_000)
        step = Step(
            calls=(("c1", "Grep", json.dumps({"pattern": "(a|l|i|n|e|o|f|t|x| ){5,40}zz", "path": "big.txt"})),)
        )
        with ModelServer(script(step, "Done.")) as server:
            point(world, server)
            with start(world, "Hi", "--output-format", "stream-json") as process:
                assert process.stdout is not None
                while json.loads(process.stdout.readline())["type"] != "tool_start":
                    pass
                code, _, _ = interrupted(process, number)
            until(lambda: not children_of(process.pid))
        if code != 0:  # it may have been done before the signal came
            self.goes_on(world, code, number)

    def test_while_it_waits_for_standard_input(self, world: World, number: int) -> None:
        ours, theirs = os.pipe()
        with start(world, "-", stdin=ours) as process:
            until(lambda: _waits_in_read(process.pid), process)
            code, _, _ = interrupted(process, number)
        os.close(ours)
        os.close(theirs)
        assert code == 128 + number

    def test_while_it_waits_for_the_next_line(self, world: World, number: int) -> None:
        with ModelServer(script("Fine.")) as server:
            point(world, server)
            flags = ("--input-format", "stream-json", "--output-format", "stream-json")
            with start(world, "-", *flags, stdin=subprocess.PIPE) as process:
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write('{"content": "Hi"}\n')
                process.stdin.flush()
                while json.loads(process.stdout.readline())["type"] != "result":
                    pass
                code, _, _ = interrupted(process, number)
        self.goes_on(world, code, number)

    def test_while_nobody_reads_what_it_says(self, world: World, number: int) -> None:
        with ModelServer(script(Step(text="x" * 2_000_000))) as server:
            point(world, server)
            with start(world, "Hi", "--output-format", "stream-json") as process:
                until(lambda: server.requests and _waits_in_write(process.pid), process)
                code, _, _ = interrupted(process, number)
        assert code == 128 + number

    def test_twice_in_a_row(self, world: World) -> None:
        with ModelServer(script(IDLE)) as server:
            point(world, server)
            with start(world, "Hi") as process:
                until(lambda: server.open_streams, process)
                process.send_signal(signal.SIGINT)
                code, _, _ = interrupted(process)
        self.goes_on(world, code, signal.SIGINT)


def _waits_in(pid: int, call: str) -> bool:
    try:
        with open(f"/proc/{pid}/wchan") as file:
            found = file.read()
            return found in ("", "0") or call in found  # nothing where the system does not tell
    except OSError:
        return True


def _waits_in_read(pid: int) -> bool:
    return _state(pid) == "S" and _waits_in(pid, "pipe_read")


def _waits_in_write(pid: int) -> bool:
    return _state(pid) == "S" and _waits_in(pid, "pipe_write")


def _state(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return ""


class TestOutputThatGoesNowhere:
    @pytest.mark.parametrize("form", ["text", "json", "stream-json"])
    def test_a_reader_that_has_gone_ends_it_quietly(self, world: World, form: str) -> None:
        with ModelServer(script(*[reads(f"c{n}") for n in range(50)], "x" * 500_000)) as server:
            point(world, server)
            ours, theirs = os.pipe()
            os.close(ours)
            with start(world, "Hi", "--output-format", form, stdout=theirs) as process:
                os.close(theirs)
                _, problem = process.communicate(timeout=TEST_TIMEOUT)
        assert process.returncode == 141
        assert "Traceback" not in problem

    def test_a_full_disk_behind_it_is_an_error(self, world: World) -> None:
        with ModelServer(script("Fine.")) as server, open("/dev/full", "w") as full:
            point(world, server)
            with start(world, "Hi", stdout=full) as process:
                _, problem = process.communicate(timeout=TEST_TIMEOUT)
        assert process.returncode == 1
        assert "No space left" in problem
        assert "Traceback" not in problem


class TestWhatCanNotBeKept:
    def test_a_home_that_can_t_be_written(self, world: World) -> None:
        (world.home / ".kitbag").write_text("a file")
        done = ask(world, "Hi", "--model", "offline")
        assert done.returncode == 6
        assert ".kitbag" in done.stderr
        assert "Traceback" not in done.stderr

    def test_a_disk_that_fills_up_in_the_middle(self, world: World) -> None:
        """A limit on the size of files is to the journal what a full disk is."""
        world.write("a.txt", "x" * 40_000)
        with ModelServer(script(*[reads(f"c{n}") for n in range(40)], "Done.")) as server:
            point(world, server)
            command = f"ulimit -f 600; exec {sys.executable} -m kitbag -p Hi --output-format json"
            done = subprocess.run(
                ["/bin/bash", "-c", f"trap '' XFSZ; {command}"],
                cwd=world.workspace, env=world.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TEST_TIMEOUT,
            )  # fmt: skip
        found = json.loads(done.stdout)
        assert found["status"] == "failed"
        assert done.returncode == 6
        assert "journal.db" in found["error"]
        assert "Traceback" not in done.stderr
        sessions = world.json("sessions", "list")
        assert len(sessions) == 1


class TestSecrets:
    CANARY = "sk-ant-canary-0123456789abcdef"

    def everywhere(self, world: World, server: ModelServer, *flags: str) -> str:
        point(world, server)
        world.env["ANTHROPIC_API_KEY"] = self.CANARY
        world.env["MY_LLM"] = "plain-looking-canary-value"
        world.write("~/.kitbag/settings.toml", '[providers.anthropic]\nkey_env = "MY_LLM"\n')
        done = ask(world, "Hi", *flags)
        state = b"".join(
            path.read_bytes() for path in world.home.rglob("*") if path.is_file() and path.suffix != ".toml"
        )
        return done.stdout + done.stderr + state.decode("latin-1")

    @pytest.mark.parametrize("form", ["text", "json", "stream-json"])
    def test_neither_a_key_that_the_model_says_nor_one_in_an_error_gets_out(self, world: World, form: str) -> None:
        world.write("notes.txt", f"key {self.CANARY} and plain-looking-canary-value\n")
        said = f"Your key is {self.CANARY}, or plain-looking-canary-value."
        with ModelServer(script(reads("c1", "notes.txt"), Step(text=said, thinking=said))) as server:
            found = self.everywhere(world, server, "--output-format", form)
            assert self.CANARY in server.requests[1].raw.decode(), "the model itself gets what it read"
        assert self.CANARY not in found
        assert "[REDACTED]" in found
        echo = Fault(times=99, status=401, body=json.dumps({"error": {"message": f"invalid key {self.CANARY}"}}))
        with ModelServer(script(Step(fault=echo))) as server:
            found = self.everywhere(world, server, "--output-format", form)
        assert self.CANARY not in found
        assert "plain-looking-canary-value" not in found.replace("notes.txt", "")

    def test_nor_does_one_that_comes_in_pieces(self, world: World) -> None:
        with ModelServer(script(Step(text="x" * 33 + self.CANARY + " end"))) as server:
            point(world, server)
            world.env["ANTHROPIC_API_KEY"] = self.CANARY
            done = ask(world, "Hi", "--output-format", "stream-json")
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        text = "".join(line["text"] for line in lines if line["type"] == "text")
        assert text == "x" * 33 + "[REDACTED] end"

    def test_nor_does_one_that_ends_as_it_begins_where_a_piece_ends_with_it(self, world: World) -> None:
        key = "canary-0123456789-c"
        said = f"It: {key}".rjust(24)  # the server sends pieces of 24 characters
        with ModelServer(script(Step(text=f"{said} end"))) as server:
            point(world, server)
            world.env["ANTHROPIC_API_KEY"] = key
            done = ask(world, "Hi", "--output-format", "stream-json")
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        text = "".join(line["text"] for line in lines if line["type"] == "text")
        assert text == " It: [REDACTED] end"


class TestModelsAndSessions:
    def test_offline_says_what_it_is(self, world: World) -> None:
        done = ask(world, "What is here?")
        assert done.returncode == 0
        assert done.stdout.startswith("No language model is connected")

    def test_a_script_from_a_file_is_found_again_by_a_session(self, world: World) -> None:
        file = world.write("script.json", '["One.", "Two."]', world.outside)
        assert ask(world, "a", "--model", f"scripted:{file}").stdout == "One.\n"
        assert ask(world, "b", "--continue").stdout == "Two.\n"

    def test_sessions_are_listed(self, world: World) -> None:
        assert world.json("sessions", "list") == []
        assert not (world.home / ".kitbag").exists(), "to look is no reason to make something"
        first = answer(world, "the first words", "--model", "offline")["session_id"]
        second = answer(world, "\x1b[31mother words", "--model", "offline")["session_id"]
        rows = world.json("sessions", "list")
        assert [row["id"] for row in rows] == [second, first]
        assert (rows[1]["about"], rows[1]["cost"]) == ("the first words", 0.0)
        assert rows[1]["turns"] >= 1
        assert rows[1]["directory"] == str(world.workspace)
        assert rows[1]["status"] == "completed"
        text = world.ok("sessions", "list")
        assert "the first words" in text
        assert "\x1b" not in text
        assert world.json("sessions", "list", "--here", cwd=world.outside) == []

    def test_models_names_keys_and_never_shows_them(self, world: World) -> None:
        world.env |= {"OPENAI_API_KEY": "sk-canary-000111222", "OPENAI_BASE_URL": "http://me:pass-word@box/v1?key=zzz"}
        found = world.json("models")
        assert found["chosen"]["name"] == "openai/gpt-5"
        assert found["chosen"]["why"] == "OPENAI_API_KEY is set"
        keys = {provider["name"]: provider["has_key"] for provider in found["providers"]}
        assert keys["openai"]
        assert not keys["anthropic"]
        text = json.dumps(found) + world.ok("models")
        for secret in ("sk-canary", "pass-word", "zzz"):
            assert secret not in text
        assert world.run("models", "--model", "sonnet").returncode == 0

    def test_a_project_has_no_say_in_models(self, world: World) -> None:
        world.write(".kitbag/settings.toml", 'model = "openai/evil"\n[providers.openai]\nbase_url = "http://evil"\n')
        found = world.json("models")
        assert found["chosen"]["name"] == "offline"
        assert "evil" not in json.dumps(found)


def test_a_run_whose_every_call_was_denied_is_no_success(world: World) -> None:
    write = {"name": "Write", "arguments": {"file_path": "new.txt", "content": "x\n"}}
    read = {"name": "Read", "arguments": {"file_path": "script.json"}}
    for calls, code in (([write], 6), ([write, write], 6), ([write, read], 0), ([], 0)):
        file = world.write("script.json", json.dumps([{"calls": calls}, "Done."] if calls else ["Done."]))
        done = world.run("-p", "go", "--model", f"scripted:{file}")
        assert (done.returncode, done.stdout) == (code, "Done.\n"), calls
        assert ("denied: Write" in done.stderr) == bool(calls)
    assert not (world.workspace / "new.txt").exists()


@pytest.mark.parametrize(
    ("model", "fix"),
    [("antropic/claude", "did you mean anthropic?"), ("zzz/claude", "use one of anthropic, openai, ")],
)
def test_an_unknown_provider_gets_a_suggestion_and_a_way_to_add_it(world: World, model: str, fix: str) -> None:
    done = ask(world, "Hi", "--model", model)
    assert (done.returncode, fix in done.stderr) == (2, True), done.stderr
    assert f"[providers.{model.partition('/')[0]}] base_url" in done.stderr
