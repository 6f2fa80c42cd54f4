"""What is pasted stands in the line as it is, or as a few words, and goes along when it is sent."""

import base64
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kitbag.chat.input import pastes as pasting
from kitbag.chat.input.pastes import MAX_INLINE_CHARACTERS, MAX_INLINE_LINES, PasteStore, sanitize_paste
from kitbag.messages import Image
from kitbag.tools.files.read import MAX_IMAGE_BYTES

PNG = b"\x89PNG\r\n\x1a\n" + b"data"
GIF, JPEG, WEBP = b"GIF89a" + b"data", b"\xff\xd8\xff" + b"data", b"RIFF\0\0\0\0WEBPdata"


class Line:
    """A line to paste into, and what the person was told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told: list[str] = []
        self.pastes = PasteStore(self.told.append)

    def file(self, name: str, data: bytes = PNG) -> Path:
        path = self.folder / name
        path.write_bytes(data)
        return path


@pytest.fixture
def line(tmp_path: Path) -> Line:
    return Line(tmp_path)


class TestTexts:
    @pytest.mark.parametrize(
        "text", ["", "x", "a\nb", "\n".join("abcdefghij"), "y" * MAX_INLINE_CHARACTERS, "tab\there"]
    )
    def test_a_short_one_stays(self, line: Line, text: str) -> None:
        assert line.pastes.take(text) == text

    def test_a_long_one_is_a_few_words_and_goes_along_whole(self, line: Line) -> None:
        text = "\n".join(f"line {number}" for number in range(120))
        assert line.pastes.take(text) == "[pasted text #1, 120 lines]"
        assert line.pastes.take("z" * 5_000) == "[pasted text #2, 5,000 characters]"
        found = line.pastes.expand("Explain [pasted text #1, 120 lines] please")
        assert found.text == f"Explain {text} please"
        assert found.images == ()

    def test_what_was_deleted_does_not_go_along(self, line: Line) -> None:
        label = line.pastes.take("a\n" * 50)
        assert line.pastes.expand("nothing").text == "nothing"
        assert line.pastes.expand(label[:-1]).text == label[:-1]

    @pytest.mark.parametrize("text", ["[pasted text #1, 120 lines]", "[image #1 x.png]", "[pasted text #7, 1 line]"])
    def test_words_that_only_look_like_it_stay(self, line: Line, text: str) -> None:
        assert line.pastes.expand(text).text == text
        line.pastes.take("b\n" * 50)
        assert line.pastes.expand(text).text == text

    def test_what_is_pasted_may_hold_such_words_itself(self, line: Line) -> None:
        first = line.pastes.take("one\n" * 50)
        second = line.pastes.take(first)
        assert second != first
        assert line.pastes.expand(second).text == first

    def test_line_ends_are_one_kind_and_nothing_that_a_terminal_obeys_is_left(self, line: Line) -> None:
        assert line.pastes.take("a\r\nb\rc") == "a\nb\nc"
        assert line.pastes.take("\x1b[31mred\x1b[0m\x07 \x1b]0;title\x07x\x00\x9b1mé\x85") == "red xé"
        assert line.pastes.take("half \ud800 character") == "half \ufffd character"

    @given(st.lists(st.text(max_size=30) | st.text(st.sampled_from("ab\n"), min_size=30, max_size=80), max_size=5))
    def test_what_is_taken_comes_back(self, texts: list[str]) -> None:
        pastes = PasteStore()
        taken = [pastes.take(text) for text in texts]
        assert pastes.expand("|".join(taken)).text == "|".join(map(sanitize_paste, texts))
        assert all(len(words) <= MAX_INLINE_CHARACTERS and words.count("\n") <= MAX_INLINE_LINES for words in taken)

    @given(st.text())
    def test_no_text_brings_control_characters_in(self, text: str) -> None:
        found = sanitize_paste(text)
        assert not any((ord(char) < 32 and char not in "\n\t") or 127 <= ord(char) < 160 for char in found)
        assert sanitize_paste(found) == found

    def test_what_returns_to_the_line_stands_for_the_same_message_also_in_another_chat(self, tmp_path: Path) -> None:
        before, after = Line(tmp_path).pastes, Line(tmp_path).pastes
        picture = tmp_path / "x.png"
        picture.write_bytes(PNG)
        typed = " and ".join(["see", *map(before.take, ("a\n" * 50, str(picture), "b" * 90_000))])
        sent = before.expand(typed)
        assert before.restore(sent.text, sent.images, typed) == typed
        after.take("c\n" * 50)
        returned = after.restore(sent.text, sent.images, typed)
        again = after.expand(returned)
        assert (again.text.replace("[image #3", "[image #2"), again.images) == sent
        assert len(returned) < 300
        assert after.expand(after.restore("", sent.images, "")).images == sent.images

    def test_a_message_that_returns_may_hold_such_words_itself(self, line: Line) -> None:
        text = "it says [pasted text #2, 50 lines] here"
        returned = line.pastes.restore(text, (), "")
        line.pastes.take("c\n" * 50)
        assert line.pastes.expand(returned) == (text, ())

    def test_memory_is_bounded_and_what_is_gone_is_told(self, line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pasting, "MAX_STORED_CHARACTERS", 5_000)
        first, second = line.pastes.take("a" * 3_000), line.pastes.take("b" * 3_000)
        assert line.pastes.expand(first).text == first
        assert "Paste it again" in line.told[0]
        assert line.pastes.expand(second).text == "b" * 3_000

    def test_one_that_is_far_too_long_is_cut_and_that_is_told(
        self, line: Line, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pasting, "MAX_TEXT_LENGTH", 2_000)
        label = line.pastes.take("a" * 3_000)
        assert line.pastes.expand(label).text == "a" * 2_000
        assert "2,000 of 3,000" in line.told[0]


class TestPictures:
    @pytest.mark.parametrize(
        ("name", "data", "kind"),
        [
            ("a.png", PNG, "png"),
            ("b.gif", GIF, "gif"),
            ("c.jpg", JPEG, "jpeg"),
            ("d.webp", WEBP, "webp"),
            ("e", PNG, "png"),
        ],
    )
    def test_they_are_told_by_their_content(self, line: Line, name: str, data: bytes, kind: str) -> None:
        label = line.pastes.take(str(line.file(name, data)))
        assert label == f"[image #1 {name}]"
        found = line.pastes.expand(f"See {label}!")
        assert found.text == f"See {label}!"
        assert found.images == (Image(media_type=f"image/{kind}", data=base64.b64encode(data).decode()),)

    def test_paths_are_read_as_terminals_write_them(self, line: Line) -> None:
        path = str(line.file("my shot.png"))
        forms = (
            path,
            f"'{path}'",
            f'"{path}"',
            path.replace(" ", "\\ "),
            f"{path} ",
            f"{path}\r\n",
            f"file://{path}".replace(" ", "%20"),
            f"file://localhost{path}".replace(" ", "%20"),
        )
        assert [line.pastes.take(form).endswith("my shot.png]") for form in forms] == [True] * len(forms)
        assert line.told == []

    def test_several_at_once_also_beside_other_files(self, line: Line) -> None:
        first, second, text = line.file("a b.png"), line.file("c.gif", GIF), line.file("d.txt", b"x")
        escaped = str(first).replace(" ", "\\ ")
        assert line.pastes.take(f"{escaped} {second}") == "[image #1 a b.png] [image #2 c.gif]"
        assert line.pastes.take(f"file://{second}\nfile://{text}") == f"[image #3 c.gif] {text}"
        assert len(line.pastes.expand("[image #1 a b.png][image #1 a b.png] [image #2 c.gif]").images) == 2

    def test_other_files_and_sentences_stay_as_they_are(self, line: Line) -> None:
        picture, text = line.file("a.png"), line.file("d.txt", b"x")
        for words in (
            str(text),
            f"look at {picture}",
            "a.png",
            f"{picture} is nice",
            f"{picture}x",
            "file://other/a.png",
        ):
            assert line.pastes.take(words) == words
        assert line.told == []

    def test_why_one_is_not_taken_is_told(self, line: Line) -> None:
        false, large = line.file("a.png", b"no picture"), line.file("b.png", PNG + b"\0" * MAX_IMAGE_BYTES)
        assert line.pastes.take(str(false)) == str(false)
        assert line.pastes.take(str(large)) == str(large)
        assert "a.png is not a PNG" in line.told[0]
        assert "b.png is too large" in line.told[1]

    def test_a_pipe_in_place_of_one_holds_up_nothing(self, line: Line) -> None:
        os.mkfifo(line.folder / "a.png")
        assert line.pastes.take(str(line.folder / "a.png")) == str(line.folder / "a.png")

    def test_names_can_t_break_out_of_their_words(self, line: Line) -> None:
        label = line.pastes.take("'" + str(line.file("a] [image #9 {x}\u202e.png")) + "'")
        assert label.count("[") == label.count("]") == 1
        assert "\u202e" not in label
        assert len(line.pastes.expand(label).images) == 1
        address = f"file://{line.file('b')}".replace("/b", "/%1b%0ab")
        assert line.pastes.take(address) == address

    @given(st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=60))
    def test_whatever_one_is_called_its_words_lead_to_it(
        self, tmp_path_factory: pytest.TempPathFactory, name: str
    ) -> None:
        pastes = PasteStore()
        label = pastes._store_image(name, "image/png", PNG)  # pyright: ignore[reportPrivateUsage]
        assert label.isprintable() or name.isprintable() is False
        assert "\n" not in label
        assert len(pastes.expand(f"x {label} y").images) == 1


class TestTheClipboard:
    def program(self, line: Line, name: str, script: str) -> dict[str, str]:
        """An environment in which this program is the only one that could be asked."""
        folder = line.folder / "bin"
        folder.mkdir(exist_ok=True)
        path = folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return {"PATH": str(folder), "WAYLAND_DISPLAY": "w", "DISPLAY": ":0"}

    @pytest.mark.parametrize("name", ["wl-paste", "xclip", "pngpaste"])
    def test_a_picture_is_taken_from_whichever_program_there_is(self, line: Line, name: str) -> None:
        environment = self.program(line, name, f"/bin/cat {line.file('clip.png')}")
        assert line.pastes.from_clipboard(environment) == "[image #1 clipboard]"
        assert line.pastes.expand("[image #1 clipboard]").images[0].media_type == "image/png"

    def test_the_kind_that_is_there_is_asked_for(self, line: Line) -> None:
        script = f'case "$*" in *image/gif*) /bin/cat {line.file("clip.gif", GIF)};; *) exit 1;; esac'
        assert line.pastes.from_clipboard(self.program(line, "wl-paste", script)) == "[image #1 clipboard]"

    def test_without_a_picture_or_a_program_it_is_told(self, line: Line) -> None:
        assert line.pastes.from_clipboard(self.program(line, "xclip", "echo words")) is None
        assert line.pastes.from_clipboard({"PATH": "/no/such/folder"}) is None
        assert line.told[0] == "no image in the clipboard"
        assert "wl-paste" in line.told[1]

    def test_one_that_never_ends_or_never_stops_is_ended(self, line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("kitbag.chat.clipboard.TIMEOUT_SECONDS", 0.2)
        assert line.pastes.from_clipboard(self.program(line, "xclip", "exec /bin/sleep 60")) is None
        monkeypatch.setattr("kitbag.chat.clipboard.TIMEOUT_SECONDS", 20.0)
        picture = line.file("large.png", PNG + b"\0" * 100_000)
        script = f"while :; do /bin/cat {picture}; done"
        assert line.pastes.from_clipboard(self.program(line, "xclip", script)) is None
        assert "too large" in line.told[1]

    def test_programs_of_the_current_folder_are_not_run(self, line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
        self.program(line, "xclip", f"/bin/cat {line.file('clip.png')}")
        monkeypatch.chdir(line.folder / "bin")
        assert line.pastes.from_clipboard({"PATH": ".:", "DISPLAY": ":0"}) is None
