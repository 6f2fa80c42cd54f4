"""The server of `kitbag mcp --http` with the tools, prompts and resources that the scenarios of the MCP conformance
suite expect.

Transport, sessions, guard and dispatch are the product's; a request that names no fixture is the product's to answer.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from mcp import MCPError
from mcp_types import (
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    AudioContent,
    BlobResourceContents,
    CallToolRequestParams,
    CallToolResult,
    CompleteRequestParams,
    CompleteResult,
    Completion,
    ContentBlock,
    EmbeddedResource,
    EmptyResult,
    GetPromptRequestParams,
    GetPromptResult,
    ImageContent,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PaginatedRequestParams,
    Prompt,
    PromptArgument,
    PromptMessage,
    PromptReference,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    SamplingMessage,
    SubscribeRequestParams,
    TextContent,
    TextResourceContents,
    Tool,
    UnsubscribeRequestParams,
)

from kitbag.assembly.run_options import Options
from kitbag.mcp_server.http import MAX_CONNECTIONS, create_application
from kitbag.mcp_server.server import Context, KitbagServer
from kitbag.mcp_server.server_state import HttpOptions, ServerState
from kitbag.net.local_server import Application, Receive, Scope, Send, run_application

TOKEN = "t" * 40
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
Parts = list[ContentBlock]
ToolFixture = Callable[[Context, dict[str, Any]], Awaitable[Parts]]

NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}}
SCHEMA_2020_12: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
HEADER_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"region": {"type": "string", "x-mcp-header": "Region"}, "query": {"type": "string"}},
    "required": ["region", "query"],
}


def string(**more: Any) -> dict[str, Any]:
    return {"type": "string", **more}


def titled(*names: str, label: str) -> list[dict[str, str]]:
    return [{"const": f"value{number}", "title": f"{name} {label}"} for number, name in enumerate(names, 1)]


def embedded(uri: str, kind: str, text: str) -> EmbeddedResource:
    return EmbeddedResource(resource=TextResourceContents(uri=uri, mime_type=kind, text=text))


# Tools


async def simple_text(_: Context, __: dict[str, Any]) -> Parts:
    return [TextContent(text="This is a simple text response for testing.")]


async def image(_: Context, __: dict[str, Any]) -> Parts:
    return [ImageContent(data=PNG, mime_type="image/png")]


async def audio(_: Context, __: dict[str, Any]) -> Parts:
    return [AudioContent(data=WAV, mime_type="audio/wav")]


async def embedded_resource(_: Context, __: dict[str, Any]) -> Parts:
    return [embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")]


async def mixed(_: Context, __: dict[str, Any]) -> Parts:
    data = embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}')
    return [TextContent(text="Multiple content types test:"), ImageContent(data=PNG, mime_type="image/png"), data]


async def failing(_: Context, __: dict[str, Any]) -> Parts:
    raise ValueError("This tool intentionally returns an error for testing")


async def progress(context: Context, _: dict[str, Any]) -> Parts:
    for done in (0, 50, 100):
        await context.session.report_progress(done, 100, f"{done} of 100")
    return [TextContent(text="done")]


async def sampling(context: Context, arguments: dict[str, Any]) -> Parts:
    asked = SamplingMessage(role="user", content=TextContent(text=arguments["prompt"]))
    answer: Any = await context.session.create_message([asked], max_tokens=100, related_request_id=context.request_id)
    return [TextContent(text=f"LLM response: {answer.content.text}")]


def eliciting(properties: dict[str, Any], required: list[str]) -> ToolFixture:
    async def elicit(context: Context, arguments: dict[str, Any]) -> Parts:
        schema = {"type": "object", "properties": properties, "required": required}
        message = arguments.get("message", "Please fill in the form")
        answer = await context.session.elicit_form(message, schema, context.request_id)
        return [TextContent(text=f"Elicitation completed: action={answer.action}, content={answer.content}")]

    return elicit


async def missing_capability(_: Context, __: dict[str, Any]) -> Parts:
    needed = {"requiredCapabilities": {"sampling": {}}}
    raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, "this tool needs sampling", needed)


async def logging(context: Context, _: dict[str, Any]) -> Parts:
    await context.session.send_log_message("info", "logged", related_request_id=context.request_id)
    return [TextContent(text="done")]


USER = {"username": string(description="User's response"), "email": string(description="User's email address")}
DEFAULTS = {
    "name": string(default="John Doe"),
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": string(enum=["active", "inactive", "pending"], default="active"),
    "verified": {"type": "boolean", "default": True},
}
OPTIONS = ["option1", "option2", "option3"]
ENUMS = {
    "untitledSingle": string(enum=OPTIONS),
    "titledSingle": string(oneOf=titled("First", "Second", "Third", label="Option")),
    "legacyEnum": string(enum=["opt1", "opt2", "opt3"], enumNames=["Option One", "Option Two", "Option Three"]),
    "untitledMulti": {"type": "array", "items": string(enum=OPTIONS)},
    "titledMulti": {"type": "array", "items": {"anyOf": titled("First", "Second", "Third", label="Choice")}},
}
TOOLS: dict[str, tuple[ToolFixture, dict[str, Any]]] = {
    "test_simple_text": (simple_text, NO_ARGUMENTS),
    "test_image_content": (image, NO_ARGUMENTS),
    "test_audio_content": (audio, NO_ARGUMENTS),
    "test_embedded_resource": (embedded_resource, NO_ARGUMENTS),
    "test_multiple_content_types": (mixed, NO_ARGUMENTS),
    "test_error_handling": (failing, NO_ARGUMENTS),
    "test_tool_with_progress": (progress, NO_ARGUMENTS),
    "test_sampling": (sampling, {"type": "object", "properties": {"prompt": string()}, "required": ["prompt"]}),
    "test_elicitation": (
        eliciting(USER, ["username", "email"]),
        {"type": "object", "properties": {"message": string()}, "required": ["message"]},
    ),
    "test_elicitation_sep1034_defaults": (eliciting(DEFAULTS, []), NO_ARGUMENTS),
    "test_elicitation_sep1330_enums": (eliciting(ENUMS, []), NO_ARGUMENTS),
    "json_schema_2020_12_tool": (simple_text, SCHEMA_2020_12),
    "test_missing_capability": (missing_capability, NO_ARGUMENTS),
    "test_streaming_elicitation": (simple_text, NO_ARGUMENTS),
    "test_logging_tool": (logging, NO_ARGUMENTS),
    "test_trigger_tool_change": (simple_text, NO_ARGUMENTS),
    "test_trigger_prompt_change": (simple_text, NO_ARGUMENTS),
    "test_header_tool": (simple_text, HEADER_SCHEMA),
}
RESOURCES: dict[str, TextResourceContents | BlobResourceContents] = {
    "test://static-text": TextResourceContents(uri="test://static-text", mime_type="text/plain", text="Static text."),
    "test://static-binary": BlobResourceContents(uri="test://static-binary", mime_type="image/png", blob=PNG),
    "test://watched-resource": TextResourceContents(uri="test://watched-resource", mime_type="text/plain", text="W"),
}


class ConformanceServer(KitbagServer):
    def __init__(self, state: ServerState) -> None:
        super().__init__(state)
        self.get_tool_input_schema = lambda name: TOOLS[name][1] if name in TOOLS else None
        self._replace("tools/list", PaginatedRequestParams, self._fixture_tools)
        self._replace("tools/call", CallToolRequestParams, self._fixture_call)
        self._replace("resources/list", PaginatedRequestParams, self._fixture_resources)
        self._replace("resources/templates/list", PaginatedRequestParams, self._fixture_templates)
        self._replace("resources/read", ReadResourceRequestParams, self._fixture_read)
        self._replace("resources/subscribe", SubscribeRequestParams, self._fixture_subscribe)
        self._replace("resources/unsubscribe", UnsubscribeRequestParams, self._fixture_subscribe)
        self._replace("prompts/list", PaginatedRequestParams, self._fixture_prompts)
        self._replace("prompts/get", GetPromptRequestParams, self._fixture_prompt)
        self._replace("completion/complete", CompleteRequestParams, self._fixture_complete)

    def _replace(self, method: str, params_type: Any, fixture: Callable[..., Awaitable[Any]]) -> None:
        product = self.get_request_handler(method)
        assert product is not None, f"the product serves {method}"

        async def handle(context: Context, params: Any) -> Any:
            return await fixture(context, params, lambda: product.handler(context, params))

        self.add_request_handler(method, params_type, handle)

    async def _fixture_tools(self, _: Context, params: Any, product: Callable[[], Awaitable[Any]]) -> ListToolsResult:
        listed: ListToolsResult = await product()
        own = [Tool(name=name, description=f"{name}.", input_schema=TOOLS[name][1]) for name in TOOLS]
        return listed.model_copy(update={"tools": [*listed.tools, *own]})

    async def _fixture_call(self, context: Context, params: Any, product: Callable[[], Awaitable[Any]]) -> Any:
        if params.name not in TOOLS:
            return await product()
        if params.name.startswith("test_trigger_"):
            await self._notify_clients(self._state.served, self._state.served)
        try:
            return CallToolResult(content=await TOOLS[params.name][0](context, params.arguments or {}))
        except ValueError as error:
            return CallToolResult(content=[TextContent(text=str(error))], is_error=True)

    async def _fixture_resources(self, _: Context, __: Any, product: Callable[[], Awaitable[Any]]) -> Any:
        listed: ListResourcesResult = await product()
        own = [Resource(uri=uri, name=uri, mime_type=one.mime_type) for uri, one in RESOURCES.items()]
        return listed.model_copy(update={"resources": [*listed.resources, *own]})

    async def _fixture_templates(self, _: Context, __: Any, product: Callable[[], Awaitable[Any]]) -> Any:
        listed: ListResourceTemplatesResult = await product()
        own = ResourceTemplate(uri_template="test://template/{id}/data", name="template", mime_type="application/json")
        return listed.model_copy(update={"resource_templates": [*listed.resource_templates, own]})

    async def _fixture_read(self, _: Context, params: Any, product: Callable[[], Awaitable[Any]]) -> Any:
        uri = str(params.uri)
        if uri in RESOURCES:
            return ReadResourceResult(contents=[RESOURCES[uri]])
        if uri.startswith("test://template/") and uri.endswith("/data"):
            number = uri.removeprefix("test://template/").removesuffix("/data")
            text = f'{{"id":"{number}","templateTest":true,"data":"Data for ID: {number}"}}'
            return ReadResourceResult(contents=[TextResourceContents(uri=uri, mime_type="application/json", text=text)])
        return await product()

    async def _fixture_subscribe(self, _: Context, params: Any, product: Callable[[], Awaitable[Any]]) -> Any:
        return EmptyResult() if str(params.uri) in RESOURCES else await product()

    async def _fixture_prompts(self, _: Context, __: Any, product: Callable[[], Awaitable[Any]]) -> Any:
        listed: ListPromptsResult = await product()
        named = [PromptArgument(name="resourceUri", required=True)]
        own = [
            Prompt(name="test_prompt_with_embedded_resource", description="Embeds a resource.", arguments=named),
            Prompt(name="test_prompt_with_image", description="Holds an image."),
        ]
        return listed.model_copy(update={"prompts": [*listed.prompts, *own]})

    async def _fixture_prompt(self, _: Context, params: Any, product: Callable[[], Awaitable[Any]]) -> Any:
        given = params.arguments or {}
        if params.name == "test_prompt_with_image":
            parts: Parts = [ImageContent(data=PNG, mime_type="image/png"), TextContent(text="Please analyze it.")]
        elif params.name == "test_prompt_with_embedded_resource":
            if "resourceUri" not in given:
                raise MCPError(INVALID_PARAMS, "missing argument 'resourceUri'")
            held = embedded(given["resourceUri"], "text/plain", "Embedded resource content for testing.")
            parts = [held, TextContent(text="Please process the embedded resource above.")]
        else:
            return await product()
        return GetPromptResult(messages=[PromptMessage(role="user", content=part) for part in parts])

    async def _fixture_complete(self, _: Context, params: Any, product: Callable[[], Awaitable[Any]]) -> Any:
        if isinstance(params.ref, PromptReference) and params.ref.name.startswith("test_"):
            return CompleteResult(completion=Completion(values=["paris", "park"], total=2, has_more=False))
        return await product()


def with_token(inner: Application) -> Application:
    """The suite cannot authenticate."""

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = {**scope, "headers": [*scope["headers"], (b"authorization", f"Bearer {TOKEN}".encode())]}
        await inner(scope, receive, send)

    return application


@contextlib.asynccontextmanager
async def conformance_server(directory: str) -> AsyncIterator[str]:
    """Yields the server's URL."""
    state = ServerState(Options(directory=directory))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        guarded = create_application(ConformanceServer(state), state.clients, HttpOptions(port=port), port, TOKEN)
        running = asyncio.create_task(run_application(with_token(guarded), listener, MAX_CONNECTIONS))
        try:
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            running.cancel()
            await asyncio.wait([running])
