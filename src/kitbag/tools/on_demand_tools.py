"""Tools of MCP servers that are described only when a message needs them, so that hundreds cost what a few do.

The others stay callable by name, and SearchTools finds them. What was described once stays described: tools come first
in a request, and removing one would invalidate the provider's prompt cache. Used by toolset; uses library.routing.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import Meta

from kitbag.library.dialects.tool_aliases import SEARCH_TOOLS
from kitbag.library.registry import Registry
from kitbag.models.provider import ToolSpec
from kitbag.text.hidden_characters import collapse_whitespace
from kitbag.tools.base import Arguments, Tool, ToolContext, ToolOutput, load_description, text_output

if TYPE_CHECKING:
    from kitbag.library.routing.description_search import DescriptionSearch

SERVER_TOOL_PREFIX: Final = "mcp__"
MAX_LISTED_CHARACTERS: Final = 4_000_000
"""Of names, descriptions and schemas of tools that are described on demand: most are never sent."""
MAX_DESCRIBED_TOOLS: Final = 20
"""If there are more tools of servers, they are described on demand."""
_PER_MESSAGE: Final = 8
_MIN_SHARE: Final = 0.3
"""Of the best score."""
_REPEATED_SHARE: Final = 0.8
"""What the score of a tool counts if tools before it match all words that it matches: a message may have several
needs, and a server many similar tools."""
_MAX_SUMMARY: Final = 160
_MAX_SERVERS: Final = 12


class SearchToolsArguments(Arguments, frozen=True):
    query: Annotated[str, Meta(min_length=1, max_length=2_000)]


class OnDemandTools:
    def __init__(self, tools: Mapping[str, Tool[Any]], library: Registry | None = None) -> None:
        """`library`: says which encoder there is, to find tools by meaning."""
        self._tools = dict(tools)
        self._library = library
        self._finder: DescriptionSearch | None = None
        self._described: dict[str, ToolSpec] = {}
        """In the order in which they were described."""
        self.search_tool: Tool[Any] = Tool(
            name=SEARCH_TOOLS,
            description=f"{load_description(SEARCH_TOOLS)} {_list_servers(self._tools)}",
            arguments=SearchToolsArguments,
            run=self._search,
            read_only=True,
        )

    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(self._described.values())

    def find(self, message: str) -> list[str]:
        """Names of the few tools that a message needs, best first."""
        finder = self._finder = self._finder or self._make_finder()
        left = {name: match for name, match in zip(self._tools, finder.match(message), strict=True) if match.score > 0}
        least = _MIN_SHARE * max((match.score for match in left.values()), default=0.0)
        covered: set[str] = set()
        found: list[str] = []
        while left and len(found) < _PER_MESSAGE:
            values = {name: match.score * _share_of_new(match.words, covered) for name, match in left.items()}
            name = min(values, key=lambda name: (-values[name], name))
            if values[name] < least:
                break
            covered.update(left.pop(name).words)
            found.append(name)
        return found

    def _make_finder(self) -> "DescriptionSearch":
        from kitbag.library.routing.description_search import DescriptionSearch

        texts = [(_plain_name(name), tool.description) for name, tool in self._tools.items()]
        return DescriptionSearch(texts, self._library)

    def list_new(self, message: str) -> list[ToolSpec]:
        """Of the tools that a message needs, those that are not described yet."""
        return [self._tools[name].spec for name in self.find(message) if name not in self._described]

    def describe(self, names: Iterable[str]) -> None:
        for name in names:
            if name in self._tools and name not in self._described:
                self._described[name] = self._tools[name].spec

    async def _search(self, arguments: SearchToolsArguments, context: ToolContext, /) -> ToolOutput:
        del context
        names = self.find(arguments.query)
        if not names:
            return text_output("No matching tools. Try different keywords, or continue without.", "no tools found")
        self.describe(names)
        lines = [f"- {name}: {_summarize(self._tools[name].description)}" for name in names]
        return text_output("\n".join(("You can call these from now on:", *lines)), f"{len(names)} found")


def _share_of_new(words: Mapping[str, float], covered: Collection[str]) -> float:
    """1 if no tool before has one of the words, `_REPEATED_SHARE` if others have all."""
    total = sum(words.values())
    if not total:
        return 1.0
    new = sum(weight for word, weight in words.items() if word not in covered)
    return _REPEATED_SHARE + (1.0 - _REPEATED_SHARE) * new / total


def _plain_name(name: str) -> str:
    return name.removeprefix(SERVER_TOOL_PREFIX).replace("__", " ")


def _summarize(description: str) -> str:
    text = collapse_whitespace(description)
    return text if len(text) <= _MAX_SUMMARY else f"{text[: _MAX_SUMMARY - 1]}…"


def _list_servers(names: Iterable[str]) -> str:
    counts = Counter(name.removeprefix(SERVER_TOOL_PREFIX).partition("__")[0] for name in names)
    shown = ", ".join(f"{server} ({count})" for server, count in sorted(counts.items())[:_MAX_SERVERS])
    more = f" and {len(counts) - _MAX_SERVERS} more" if len(counts) > _MAX_SERVERS else ""
    return f"Servers and their tools: {shown}{more}."
