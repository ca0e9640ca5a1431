"""Lines of a file: each once, in order, with the number and the byte at which it ends."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.cli.produce.input_file import BadInput, InputFile, opened
from broker.cli.produce.lines import Lines, keys_of, line_chunks

texts = st.lists(st.sampled_from([b"", b"a", b"bc\r", b"\xff" * 9]), max_size=12)


async def chunks(file: InputFile, skip: int) -> list[Lines]:
    return [it async for it in line_chunks(file, skip)]


@settings(deadline=None, max_examples=60)
@given(texts, st.booleans(), st.integers(0, 13), st.integers(1, 5))
def test_what_is_skipped_and_what_is_read_is_the_whole_file(
    lines: list[bytes], ends: bool, skip: int, size: int
) -> None:
    content = b"\n".join(lines) + (b"\n" if ends and lines else b"")
    physical = content.split(b"\n")
    if not physical[-1]:
        physical.pop()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "lines"
        path.write_bytes(content)
        with opened([path]) as (file,):
            found = anyio.run(chunks, file, skip)
    parts = [
        chunk.part(start, min(start + size, len(chunk.lines)))
        for chunk in found
        for start in range(0, len(chunk.lines), size)
    ]
    assert [line for part in parts for line in part.lines] == physical[skip:]
    at = skip
    for part in parts:
        assert part.first == at + 1
        at += len(part.lines)
        assert part.end.done == at
        byte = part.end.byte or 0
        assert byte <= len(content) + 1
        # Another run that begins at this byte reads the rest.
        assert content[byte:].split(b"\n")[: len(physical) - at] == physical[at:] or at == len(
            physical
        )
    assert [it for part in parts for it in part.kept()] == [
        it.removesuffix(b"\r") for it in physical[skip:] if it.removesuffix(b"\r")
    ]


async def test_a_line_without_a_key_is_named_by_its_number() -> None:
    lines = Lines("some.txt", [b'{"k": 1}', b"", b'{"k": "a"}', b"what"], first=7, byte=0)
    with pytest.raises(BadInput, match=r"some\.txt, line 10: with --key a line must be a JSON"):
        keys_of(lines, "k")
    assert keys_of(lines.part(0, 3), "k") == ["1", "a"]
    with pytest.raises(BadInput, match=r"line 7: field 'z' of --key is missing"):
        keys_of(lines, "z")
    assert keys_of(lines, None) is None


async def test_input_without_line_ends_does_not_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "long"
    with path.open("wb") as out:
        os.truncate(out.fileno(), 40 * 1024 * 1024)
    with opened([path]) as (file,), pytest.raises(BadInput, match="line 1: the line is longer"):
        await chunks(file, 0)


async def test_what_ctrl_c_cut_off_is_no_line() -> None:
    here, there = os.pipe()
    os.write(there, b"one\nhal")
    file = InputFile("stdin", here)
    found: list[Lines] = []
    async for chunk in line_chunks(file, 0):
        found.append(chunk)
        file.left = True
    assert [line for chunk in found for line in chunk.lines] == [b"one"]
    os.close(here)
    os.close(there)
