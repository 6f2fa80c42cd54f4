"""What of a long text is shown."""

from kitbag.tools.web.excerpt import MOST_CHARACTERS, fitting, window


def test_a_short_text_is_whole() -> None:
    assert window("abc", 0) == ("abc", "")
    assert fitting("abc", "zebra") == ("abc", "")


def test_windows_end_with_a_line_and_join() -> None:
    text = "".join(f"line {number}\n" for number in range(20_000))
    first = window(text, 0)
    assert first.text.endswith("\n")
    assert f"Go on with offset={len(first.text)}." in first.note
    assert text.startswith(first.text + window(text, len(first.text)).text)


def test_a_text_without_lines_is_cut_anywhere() -> None:
    assert window("x" * 200_000, 0).text == "x" * MOST_CHARACTERS
    assert window("x" * 200_000, 199_999) == ("x", "Characters 200,000-200,000 of 200,000.")


def test_the_parts_that_fit_come_in_their_order_and_say_where_they_are() -> None:
    filler = "nothing here\n\n" * 2_000
    text = f"# Top\n\n{filler}## Quagga\n\nstripes one\n\n{filler}stripes two\n\n{filler}"
    found = fitting(text, "What does the page say about STRIPES of the quagga?")
    assert found.text.startswith("# Top")
    assert found.text.index("stripes one") < found.text.index("stripes two")
    gap = found.text.partition("from offset=")[2].partition(" ")[0]
    assert window(text, int(gap)).text.startswith("nothing here")
    assert len(found.text) <= MOST_CHARACTERS + 1_000


def test_words_that_say_nothing_choose_nothing() -> None:
    text = "the page is what it is\n" * 10_000
    for prompt in ("", "Summarize the page, please", "zebra", "!?"):
        assert fitting(text, prompt) == window(text, 0)


def test_odd_words_are_only_words() -> None:
    text = "C++ and a.b*c (d) \\ [x]\n" * 5_000
    assert fitting(text, "c++ (d) [x] a.b*c \\").text
