"""What a run folder says of a run's settings, and what this machine knows besides: where data and first weights lie."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpose.errors import DposeError
from dpose.files import file_json
from dpose.pose.backbones import shipped_weights
from dpose.pose.hub import PREFIX
from dpose.runs.build import resolved
from dpose.runs.config import RunConfig, filled_in, without_none
from dpose.runs.data import IMAGENET, any_spec
from dpose.runs.data import in_a_folder as in_a_folder
from dpose.runs.tasks import task_entry
from dpose.training.folder import Places, kept_places, run_id_of
from dpose.units import UnitDataset


def run_config(folder: Path) -> RunConfig:
    """The configuration of the run in `folder`: with its paths where this machine keeps them, else as there."""
    kept = kept_places(run_id_of(folder))
    return _config_of(folder, kept.settings if kept else _settings(folder))


def places_known(folder: Path) -> bool:
    """Whether the paths of the run in `folder` are known here: kept by this machine, or in the folder, as once."""
    return not run_id_of(folder) or kept_places(run_id_of(folder)) is not None


def whole_config(folder: Path, given: Mapping[str, Any] | None = None) -> RunConfig:
    """The configuration of the run in `folder`, to go on with it.

    Args:
        folder: The run folder.
        given: As `RunConfig` takes them, paths that stand in place of the run's own; None for one that was not given.
    """
    config, places = run_config(folder), without_none(given or {})
    if not places_known(folder):
        missing = _missing(config, places)
        if missing:
            raise DposeError(
                "data-places-unknown",
                "this machine does not know where the run's data are: a run folder holds no paths",
                str(folder),
                f"give {' and '.join(missing)} again, with --resume",
            )
    return RunConfig.from_dict(filled_in(places, config.to_dict()), str(folder)) if places else config


def _missing(config: RunConfig, given: Mapping[str, Any]) -> list[str]:
    """Options whose paths are shortened in the run folder and not given."""
    data, model = given.get("data", {}), given.get("model", {})
    options = {
        "--data": (None if data.get("private") else config.data.sources),
        "--public": (None if data.get("public") or not config.data.public else (config.data.public,)),
        "--set data.validation_data": (None if data.get("validation_data") else (config.data.validation_data,)),
    }
    found = [name for name, specs in options.items() if specs and any(map(in_a_folder, specs))]
    init = config.model.init
    known = not init or init == IMAGENET or init in shipped_weights() or init.startswith(PREFIX)
    if not known and not model.get("init"):
        found.append("--init")
    return found


def learnt_from(run_id: str, *, state_dir: Path | None = None) -> tuple[UnitDataset, ...]:
    """What the run `run_id` learnt from, opened again; nothing where this machine does not know where that lies.

    Its units come first, then the public ones that its method read.
    """
    kept = kept_places(run_id, state_dir)
    if kept is None:
        return ()
    try:
        config = _config_of(Path(run_id), kept.settings)
        learns = task_entry(config.task).learns
        return learns(config) if learns else ()
    except DposeError:  # moved since, or of another dpose
        return ()


def typed_command(folder: Path) -> str:
    """What the user typed to begin the run in `folder`; "" where it is not known."""
    kept = kept_places(run_id_of(folder))
    return kept.command if kept else str(_settings(folder).get("command", ""))


def data_recorded(folder: Path) -> bool:
    """Whether the run in `folder` says what its data are: one made from Python, of units in memory, does not."""
    return "data" in _settings(folder)


def _config_of(folder: Path, settings: Mapping[str, Any]) -> RunConfig:
    if "data" not in settings:
        raise DposeError(
            "run-made-from-python",
            "was made from Python: its data are not recorded",
            str(folder),
            "to go on with it, call dpose.train again with options=RunOptions(resume=True)",
        )
    known = {key: value for key, value in settings.items() if key in RunConfig.model_fields}
    # of a run that began before noise could be exact; a plan of today names its own
    if isinstance(known.get("plan"), Mapping):
        known["plan"] = {"noise": "float", **known["plan"]}
    return RunConfig.from_dict(known, str(folder / "config.json"))


def _settings(folder: Path) -> dict[str, Any]:
    file = folder / "config.json"
    try:
        return dict(file_json(file)["run"])
    except json.JSONDecodeError as error:
        raise DposeError("config-damaged", "is cut off or no JSON", str(file), "bring it back from a copy") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DposeError("run-missing", "holds no run", str(folder), "give a folder that `dpose train` made") from error


def shown_settings(config: RunConfig, command: str = "") -> dict[str, Any]:
    """What of a run's settings stands in its folder, which travels: of each path the last part.

    Args:
        config: The run's.
        command: What the user typed.
    """
    values = config.to_dict()
    data, model = values["data"], values["model"]
    for name in ("private", "public", "validation_data"):
        named = data[name]
        data[name] = [_shown(n) for n in named] if isinstance(named, list | tuple) else named and _shown(named)
    if not str(model["init"]).startswith(PREFIX):  # a name on the Hub is no path
        model["init"] = model["init"] and Path(model["init"]).name
    return {**values, "command": shown_command(command)}


def shown_command(command: str) -> str:
    """A command, quoted for a shell, with the last part alone of every path in it."""
    try:
        words = shlex.split(command)
    except ValueError:  # a quote that nothing ends
        words = command.split()
    return shlex.join(map(_without_folders, words))


def _without_folders(word: str) -> str:
    """What follows the last slash, behind the option and the dataset's name that it stands behind."""
    found = re.match(r"--[a-z][a-z-]*=|([a-z_]+)(\.[a-z_]+)*=", word)
    option = found.group() if found and (found[1] is None or found[1] in RunConfig.model_fields) else ""
    value = word.removeprefix(option)
    if re.match("[a-z0-9_]+:", value):
        with contextlib.suppress(DposeError):  # of such data as there are not
            value = _shown(value)
    return option + value.rstrip("/").rpartition("/")[2]


def _shown(spec: str) -> str:
    """A spec of poses or videos as it was written, with the last part of its root."""
    found = any_spec(spec)
    return found.shown if found else spec


def places_of(config: RunConfig, command: str = "") -> Places:
    """What of a run's settings its folder must not hold."""
    return Places(config.to_dict(), command)


def check_begun(folder: Path, config: RunConfig) -> None:
    """Refuse to go on with the run in `folder` unless it began with `config`.

    Raises:
        DposeError: it holds a run with other settings, or none.
    """
    mine = resolved(config)
    same = run_config(folder) == mine
    if not same and not places_known(folder):
        same = _config_of(folder, _settings(folder)) == _config_of(folder, shown_settings(mine))
    if not same:
        raise DposeError(
            "run-of-other-settings",
            "holds a run with other settings",
            str(folder),
            "remove it, or choose another --out",
        )
