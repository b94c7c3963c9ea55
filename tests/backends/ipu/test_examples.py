"""The emitted programs that the documentation shows are what is emitted, and read as meant."""

import re

from tests.backends.ipu.examples import FOLDER, examples


def test_the_examples_are_what_is_emitted() -> None:
    for path, text in examples().items():
        assert path.read_text(encoding="utf-8") == text, (
            f"{path.name} is no longer what is emitted; run python -m tests.backends.ipu.examples"
        )


def test_every_example_is_emitted() -> None:
    assert sorted(FOLDER.glob("ipu_*/*.cpp")) == sorted(examples())


def test_lines_are_at_most_100_characters_long() -> None:
    for text in examples().values():
        assert max(map(len, text.splitlines())) <= 100


def test_a_value_keeps_its_name() -> None:
    text = next(text for path, text in examples().items() if path.name == "perceptron_step.cpp")
    assert re.search(r"Tensor hidden = popops::map\(graph, pe::Tanh\(pe::_1 \+ pe::_2\),", text)
    assert 'step, "hidden");' in text
