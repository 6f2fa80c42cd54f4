"""Renders a server's answer for the model: a block of untrusted text, images, and what was omitted.

Used by server_tools and servers. Text is bounded and can't leave its block; images are recognized by their bytes, not
by their declared type.
"""

import base64
import binascii
import json
from typing import Any, Final

from kitbag.messages import Image, Text
from kitbag.text.hidden_characters import collapse_whitespace
from kitbag.tools.base import ToolOutput
from kitbag.tools.files.read import MAX_IMAGE_BYTES, format_size, image_type
from kitbag.tools.web.untrusted_text import untrusted_block, untrusted_line

MAX_CHARS: Final = 50_000
MAX_IMAGES: Final = 8
_TAIL_CHARS = 5_000
_MAX_PARTS = 1_000


def render_result(server: str, tool: str, result: Any) -> ToolOutput:
    """Of the SDK's CallToolResult."""
    texts: list[str] = []
    images: list[Image] = []
    omitted: list[str] = []
    parts = list(result.content)
    for part in parts[:_MAX_PARTS]:
        rendered = _render_part(part)
        if isinstance(rendered, str):
            texts.append(rendered)
        elif len(images) < MAX_IMAGES:
            images.append(rendered)
        else:
            omitted.append("an image")
    if len(parts) > _MAX_PARTS:
        omitted.append(f"{len(parts) - _MAX_PARTS:,} more parts")
    if not texts and not images and result.structured_content is not None:
        texts.append(json.dumps(result.structured_content, ensure_ascii=False))
    text, truncation = truncate_middle("\n".join(texts))
    if omitted:
        truncation = ", ".join(filter(None, (truncation, f"{len(omitted)} parts omitted: {omitted[0]}")))
    content: list[Text | Image] = []
    if text or not images:
        content.append(Text(untrusted_block("server-output", {"server": server, "tool": tool}, text or "(empty)")))
    if truncation:
        content.append(Text(f"[{truncation}. Request less data.]"))
    size = f"{len(text):,} characters" if text else "no text"
    summary = f"{size}, {len(images)} images" if images else size
    is_error = bool(result.is_error)
    if is_error:
        summary = untrusted_line(text, 200) or "failed"
    return ToolOutput(content=(*content, *images), summary=summary, is_error=is_error, truncation=truncation)


def truncate_middle(text: str) -> tuple[str, str]:
    """The start and the end, and what was cut."""
    if len(text) <= MAX_CHARS:
        return text, ""
    head = text[: MAX_CHARS - _TAIL_CHARS]
    truncation = f"{len(text) - MAX_CHARS:,} characters omitted from the middle"
    return f"{head}\n[… {truncation} …]\n{text[-_TAIL_CHARS:]}", truncation


def _render_part(part: Any) -> str | Image:
    kind = part.type
    if kind == "text":
        return part.text
    if kind == "image":
        return _decode_image(part.data, part.mime_type)
    if kind == "audio":
        return f"[audio, {collapse_whitespace(part.mime_type)[:60]}: not supported]"
    if kind == "resource_link":
        about = collapse_whitespace(part.description or part.title or "")[:300]
        return (
            f"[resource {collapse_whitespace(part.name)[:200]}:"
            f" {collapse_whitespace(str(part.uri))[:1000]}{f' ({about})' if about else ''}]"
        )
    if kind == "resource":
        return _render_resource(part.resource)
    return f"[content of type {collapse_whitespace(str(kind))[:60]}: not supported]"


def _render_resource(resource: Any) -> str | Image:
    where = collapse_whitespace(str(resource.uri))[:1000]
    text = getattr(resource, "text", None)
    if text is not None:
        return f"[resource {where}]\n{text}"
    image = _decode_image(resource.blob, resource.mime_type or "")
    return f"{image[:-1]}: {where}]" if isinstance(image, str) else image


def _decode_image(data: str, called: str) -> str | Image:
    what = collapse_whitespace(called)[:60] or "data"
    if len(data) > MAX_IMAGE_BYTES * 4 // 3 + 4:
        size = format_size(len(data) * 3 // 4)
        return f"[{what}, {size}: too large, the maximum is {format_size(MAX_IMAGE_BYTES)}]"
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return f"[{what}: invalid base64]"
    media_type = image_type(raw)
    if not media_type:
        return f"[{what}, {format_size(len(raw))}: not a supported image]"
    return Image(media_type=media_type, data=base64.b64encode(raw).decode())


def render_prompt(server: str, name: str, result: Any) -> str:
    """A server's prompt, as part of the user's message."""
    texts: list[str] = []
    for message in list(result.messages)[:_MAX_PARTS]:
        rendered = _render_part(message.content)
        text_part = rendered if isinstance(rendered, str) else "[image: not supported in prompts]"
        texts.append(text_part if message.role == "user" else f"[assistant:] {text_part}")
    text, truncation = truncate_middle("\n\n".join(texts))
    note = f"\n[{truncation}.]" if truncation else ""
    return untrusted_block("server-output", {"server": server, "prompt": name}, text or "(empty)") + note
