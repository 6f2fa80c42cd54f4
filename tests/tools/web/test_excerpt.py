"""What of a long text is shown."""

from kitbag.tools.web.excerpt import MAX_CHARS, excerpt_window, relevant_excerpt


def test_a_short_text_is_whole() -> None:
    assert excerpt_window("abc", 0) == ("abc", "")
    assert relevant_excerpt("abc", "zebra") == ("abc", "")


def test_windows_end_with_a_line_and_join() -> None:
    text = "".join(f"line {number}\n" for number in range(20_000))
    first = excerpt_window(text, 0)
    assert first.text.endswith("\n")
    assert f"Continue with offset={len(first.text)}." in first.note
    assert text.startswith(first.text + excerpt_window(text, len(first.text)).text)


def test_a_text_without_lines_is_cut_anywhere() -> None:
    assert excerpt_window("x" * 200_000, 0).text == "x" * MAX_CHARS
    assert excerpt_window("x" * 200_000, 199_999) == ("x", "Characters 200,000-200,000 of 200,000.")


def test_the_parts_that_fit_come_in_their_order_and_say_where_they_are() -> None:
    filler = "nothing here\n\n" * 2_000
    text = f"# Top\n\n{filler}## Quagga\n\nstripes one\n\n{filler}stripes two\n\n{filler}"
    found = relevant_excerpt(text, "What does the page say about STRIPES of the quagga?")
    assert found.text.startswith("# Top")
    assert found.text.index("stripes one") < found.text.index("stripes two")
    gap = found.text.partition("from offset=")[2].partition(" ")[0]
    assert excerpt_window(text, int(gap)).text.startswith("nothing here")
    assert len(found.text) <= MAX_CHARS + 1_000


def test_words_that_say_nothing_choose_nothing() -> None:
    text = "the page is what it is\n" * 10_000
    for prompt in ("", "Summarize the page, please", "zebra", "!?"):
        assert relevant_excerpt(text, prompt) == excerpt_window(text, 0)


def test_odd_words_are_only_words() -> None:
    text = "C++ and a.b*c (d) \\ [x]\n" * 5_000
    assert relevant_excerpt(text, "c++ (d) [x] a.b*c \\").text
