from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from findwall.errors import InputError
from findwall.model.diagnosis import Diagnosis, from_json, to_json
from findwall.report import document as report_document

Document = Callable[[str], Diagnosis]


@pytest.mark.parametrize("name", ["full", "no_verdict", "nothing_known", "hostile", "cpu_only"])
def test_written_and_read_is_the_same(document: Document, name: str, tmp_path: Path) -> None:
    report_document.write(document(name), str(tmp_path / "out.json"))
    assert from_json((tmp_path / "out.json").read_bytes()) == document(name)
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


def test_stdout_gets_the_document_alone(
    document: Document, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    report_document.write(document("full"), "-")
    assert capfdbinary.readouterr().out == to_json(document("full"))


def test_a_failed_write_leaves_the_old_file(
    document: Document, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out.json"
    target.write_text("old")

    def full_disk(_self: Path, _target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full_disk)
    with pytest.raises(InputError, match="No space left on device"):
        report_document.write(document("full"), str(target))
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


def test_a_missing_folder_is_a_clear_error(document: Document, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot write"):
        report_document.write(document("full"), str(tmp_path / "no" / "out.json"))


def test_a_link_stays_a_link_and_a_device_a_device(document: Document, tmp_path: Path) -> None:
    link = tmp_path / "link.json"
    link.symlink_to(tmp_path / "real.json")
    report_document.write(document("full"), str(link))
    assert link.is_symlink()
    assert (tmp_path / "real.json").is_file()
    report_document.write(document("full"), os.devnull)
    assert not Path(os.devnull).is_file()
