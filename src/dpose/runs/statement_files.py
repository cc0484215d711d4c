"""Where statements lie: a run or model folder, a statement's own file, a released picture, archive or video.

Which bytes a signature is of, and what they bind, is answered here alone (`open_statement`):

* a picture or archive: of the file itself, which carries its statement and seal. The seal binds every other byte of a
  picture, and an archive's values and mask;
* a video: of its sidecar, FILE.privacy.json, which is part of the format. The sidecar's seal binds the video's bytes;
* a run or model folder: of its privacy.json. Its seal binds weights, config, card and log;
* a statement's own file: of that file. What it is about is not looked at.

No other file counts because it lies beside one of these.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dpose.errors import DposeError
from dpose.files import file_bytes
from dpose.privacy.statement import PrivacyStatement

LARGEST = 16 * 1024 * 1024
"""Bytes of a statement; a larger file is none."""


@dataclass(frozen=True)
class StatementFile:
    """A statement and the file that it lies in.

    Attributes:
        file: What a signature would sign.
        statement: As it stands there.
        folder: The run or model folder; None of anything else.
        found: What is known of a release that was checked while it was opened, in a line; of anything else that
            nothing was.
    """

    file: Path
    statement: PrivacyStatement
    folder: Path | None = None
    found: str = "what it is about was not looked at: name the run's folder, or the released file"

    @property
    def name(self) -> str:
        """SHA-256 of the artefact."""
        return self.folder.resolve().name if self.folder else self.file.name


def open_statement(path: Path) -> StatementFile:
    """The statement of whatever `path` is, and the file whose bytes a signature is of.

    Raises:
        DposeError: there is none, or a released file does not hold what its statement says.
    """
    from dpose.media.kinds import kind_of
    from dpose.release.embed import sidecar_of
    from dpose.release.verify import ARTEFACTS, verify_release

    if path.is_file() and path.suffix.lower() in ARTEFACTS:
        statement, found = verify_release(path)
        video = kind_of(path) == "video"
        return StatementFile(sidecar_of(path) if video else path, statement, found=found)
    file = path / "privacy.json" if path.is_dir() else path
    return StatementFile(
        file, PrivacyStatement.from_json(_text(file), str(file)), path if path.is_dir() else None
    )


def card_metadata(opened: StatementFile) -> str:
    """The metadata of a model card, as those that training writes have.

    Raises:
        DposeError: it is no model, or its configuration cannot be read.
    """
    import json

    from dpose.training.folder import front_matter

    if opened.folder is None:
        raise DposeError("card-without-model", "only a model has a card", str(opened.file), "name its folder")
    path = opened.folder / "config.json"
    try:
        config = json.loads(_text(path))
        return front_matter(
            str(config["task"]), opened.statement, config.get("run", {}).get("plan", {}).get("method", "")
        )
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise DposeError("config-invalid", "is no model's configuration", str(path)) from error


def _text(file: Path) -> str:
    try:
        return file_bytes(file, LARGEST).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = f" ({error.strerror})" if isinstance(error, OSError) else ""
        raise DposeError(
            "statement-missing",
            f"there is no readable privacy statement{reason}",
            str(file),
            "name a run, model or release",
        ) from error
