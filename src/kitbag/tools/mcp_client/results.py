"""What a server answered, as a model is shown it: a block of data, images, and what was left out.

Used by `offered`. Text is bounded and can't leave its block; an image is one by its bytes, not by what it is called.
"""

import base64
import binascii
import json
from typing import Any, Final

from kitbag.messages import Image, Text
from kitbag.text.hidden_characters import one_line
from kitbag.tools.base import Outcome
from kitbag.tools.files.read import MOST_IMAGE_BYTES, amount, image_type
from kitbag.tools.web.untrusted_text import block, line

MOST_CHARACTERS: Final = 50_000
MOST_IMAGES: Final = 8
_TAIL = 5_000
_MOST_PARTS = 1_000


def outcome_of(server: str, tool: str, result: Any) -> Outcome:
    """Of the SDK's CallToolResult."""
    texts: list[str] = []
    images: list[Image] = []
    left: list[str] = []
    parts = list(result.content)
    for part in parts[:_MOST_PARTS]:
        found = _part(part)
        if isinstance(found, str):
            texts.append(found)
        elif len(images) < MOST_IMAGES:
            images.append(found)
        else:
            left.append("an image")
    if len(parts) > _MOST_PARTS:
        left.append(f"{len(parts) - _MOST_PARTS:,} further parts")
    if not texts and not images and result.structured_content is not None:
        texts.append(json.dumps(result.structured_content, ensure_ascii=False))
    text, cut = shortened("\n".join(texts))
    if left:
        cut = ", ".join(filter(None, (cut, f"{len(left)} parts are left out: {left[0]}")))
    content: list[Text | Image] = []
    if text or not images:
        content.append(Text(block("server-output", {"server": server, "tool": tool}, text or "(nothing)")))
    if cut:
        content.append(Text(f"[{cut}. Ask for less.]"))
    size = f"{len(text):,} characters" if text else "no text"
    summary = f"{size}, {len(images)} images" if images else size
    is_error = bool(result.is_error)
    if is_error:
        summary = line(text, 200) or "failed"
    return Outcome((*content, *images), summary, is_error=is_error, cut=cut)


def shortened(text: str) -> tuple[str, str]:
    """The beginning and the end, and what is missing, in words."""
    if len(text) <= MOST_CHARACTERS:
        return text, ""
    head = text[: MOST_CHARACTERS - _TAIL]
    cut = f"{len(text) - MOST_CHARACTERS:,} characters were cut from the middle"
    return f"{head}\n[… {cut} …]\n{text[-_TAIL:]}", cut


def _part(part: Any) -> str | Image:
    kind = part.type
    if kind == "text":
        return part.text
    if kind == "image":
        return _picture(part.data, part.mime_type)
    if kind == "audio":
        return f"[sound, {one_line(part.mime_type)[:60]}, which can't be heard here]"
    if kind == "resource_link":
        about = one_line(part.description or part.title or "")[:300]
        return (
            f"[resource {one_line(part.name)[:200]}: {one_line(str(part.uri))[:1000]}{f' ({about})' if about else ''}]"
        )
    if kind == "resource":
        return _resource(part.resource)
    return f"[a part of the type {one_line(str(kind))[:60]}, which can't be shown]"


def _resource(resource: Any) -> str | Image:
    where = one_line(str(resource.uri))[:1000]
    text = getattr(resource, "text", None)
    if text is not None:
        return f"[resource {where}]\n{text}"
    found = _picture(resource.blob, resource.mime_type or "")
    return f"{found[:-1]}: {where}]" if isinstance(found, str) else found


def _picture(data: str, called: str) -> str | Image:
    what = one_line(called)[:60] or "data"
    if len(data) > MOST_IMAGE_BYTES * 4 // 3 + 4:
        return f"[{what}, {amount(len(data) * 3 // 4)}, which is too much: images may have {amount(MOST_IMAGE_BYTES)}]"
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return f"[{what}, which can't be read]"
    media_type = image_type(raw)
    if not media_type:
        return f"[{what}, {amount(len(raw))}, which is no image that can be shown]"
    return Image(media_type, base64.b64encode(raw).decode())


def prompt_text(server: str, name: str, result: Any) -> str:
    """What a server's prompt says, as a part of what the person says."""
    texts: list[str] = []
    for message in list(result.messages)[:_MOST_PARTS]:
        found = _part(message.content)
        said = found if isinstance(found, str) else "[an image, which can't be shown here]"
        texts.append(said if message.role == "user" else f"[the assistant:] {said}")
    text, cut = shortened("\n\n".join(texts))
    note = f"\n[{cut}.]" if cut else ""
    return block("server-output", {"server": server, "prompt": name}, text or "(nothing)") + note
