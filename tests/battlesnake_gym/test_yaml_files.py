"""The YAML loader of all commands."""

from pathlib import Path

import pytest
import yaml

from battlesnake_gym.common.yaml_files import read_yaml


def test_numbers_with_exponent_are_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    numbers = ["1e-4", "1e0", "-2E3", "+1.5e+2", ".5e1", "3.e2", "1.5e3", "1.0e+3"]
    path.write_text("numbers:\n" + "".join(f"- {number}\n" for number in numbers))
    assert read_yaml(path)["numbers"] == [float(number) for number in numbers]
    assert all(isinstance(number, float) for number in read_yaml(path)["numbers"])
    words = ["e4", "1e", "1e-", "1e4x", "'1e4'", "v1e4", "."]
    path.write_text("words:\n" + "".join(f"- {word}\n" for word in words))
    assert read_yaml(path)["words"] == [word.strip("'") for word in words]


def test_other_values_are_those_of_pyyaml(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    text = "{a: 1, b: 2.5, c: yes, d: text, e: [~, .inf], f: 2001-01-01, g: 1_000}"
    path.write_text(text)
    assert read_yaml(path) == yaml.safe_load(text)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_encodings_of_editors(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("name: Ünï\r\nnumber: 1\r\n", encoding=encoding, newline="")
    assert read_yaml(path) == {"name": "Ünï", "number": 1}


@pytest.mark.parametrize(
    "data",
    [b"a: [", b"a: \xff", b"a: " + b"9" * 5000, b"[" * 30000, b"a: 2001-99-99", b"a: !!bool x",
     b"a: !!int ''", b"a: !!timestamp x", b"a: " + b"59:" * 5000 + b"5.5", b'a: "\\UFFFFFFFF"',
     b"%YAML " + b"1" * 5000],
)  # fmt: skip
def test_broken_file_is_named(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"a\.yaml.* YAML"):
        read_yaml(path)


@pytest.mark.parametrize(
    ("indent", "problem"),
    [
        ("\t", "'.t'.* spaces"),
        ("a: tree\n  ", "key 'a' is repeated; omit one"),
        ("b: !!bool x\n  ", "'x' is not a valid bool"),
    ],
)
def test_a_problem_is_named_with_its_line_and_the_remedy(
    tmp_path: Path, indent: str, problem: str
) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(f"name: x\nsnakes:\n  {indent}a: hungry\n".replace("  \t", "\t"))
    with pytest.raises(ValueError, match=rf"line [34].* column [136].*{problem}"):
        read_yaml(path)
