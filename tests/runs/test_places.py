"""What a run folder says of paths: nothing but their last part; and what this machine keeps."""

import io
import json
import stat

import pytest
from rich.console import Console

from dpose.runs.build import resolved
from dpose.runs.config import RunConfig
from dpose.runs.places import check_begun, run_config, shown_command, shown_settings, whole_config
from dpose.runs.reporting import make_report
from dpose.training.folder import Places, keep_places, kept_places
from dpose.training.plan import TrainingPlan
from refusals import refused
from run_folders import finished_run

RUN = "0123456789abcdef" * 2


def config(**data):
    return resolved(_config(**data))


def _config(**data):
    return RunConfig.from_dict(
        {
            "data": {"private": ["lspet:/srv/Ms Ito/lspet:private", "synthetic:ward"], **data},
            "model": {"init": "/srv/Ms Ito/runs/coco"},
            "plan": {"method": "non-private"},
        }
    )


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("dpose train --data mpii:/srv/a/mpii:train --out runs/x", "dpose train --data mpii:mpii:train --out x"),
        ("dpose train --data=lspet:/srv/lspet/ --init ~/w/coco/", "dpose train --data=lspet:lspet --init coco"),
        ("dpose train --data 'mpii:/srv/Ms Ito/mpii'", "dpose train --data mpii:mpii"),
        ("--data mpii:/a:b/c/mpii,annotations=/x/y.json", "--data mpii:mpii,annotations=y.json"),
        ("dpose train --data 'coco:Smith, Anna/ward:train'", "dpose train --data coco:ward:train"),
        ("dpose train --init 'anna=smith/w/model'", "dpose train --init model"),
        ("--set data.public=coco:Smith,Anna/ward", "--set data.public=coco:ward"),
        ("--config ../anna/x.yaml --set model.init=/home/anna/m", "--config x.yaml --set model.init=m"),
        ("--data synthetic:ward:train", "--data synthetic:ward:train"),
        ("/ --out a", "'' --out a"),
        ("dpose train --data 'coco:/home/Ms Ito/ward 3/coco:train'", "dpose train --data coco:coco:train"),
        ("", ""),
    ],
)
def test_a_command_keeps_the_last_part_of_each_path(typed, shown):
    assert shown_command(typed) == shown


def test_settings_keep_the_last_part_of_each_path_and_are_settings_still():
    full = config(validation_data="mpii:/srv/b/mpii:val,annotations=/srv/labels.json", public="coco:~/c/coco")
    shown = shown_settings(full, "dpose train")
    assert "/" not in json.dumps(shown)
    assert shown["data"]["private"] == ["lspet:lspet:private", "synthetic:ward"]
    assert shown["data"]["validation_data"] == "mpii:mpii:val,annotations=labels.json"
    assert shown["data"]["public"] == "coco:coco"
    del shown["command"]
    assert RunConfig.from_dict(shown)


def test_videos_and_none_and_names_of_weights_stay():
    full = RunConfig.from_dict(
        {
            "task": "action",
            "data": {"private": "ucf101:/srv/a/ucf:train", "validation_data": "none"},
            "model": {"preset": "mvit-b", "init": "/srv/b/mvit.safetensors"},
            "plan": {"method": "non-private"},
        }
    )
    shown = shown_settings(full)
    assert shown["data"]["private"] == "ucf101:ucf:train"
    assert shown["data"]["validation_data"] == "none"
    assert shown["model"]["init"] == "mvit.safetensors"


@pytest.fixture
def folder(tmp_path):
    values = {"task": "pose", "run_id": RUN, "run": shown_settings(config())}
    (tmp_path / "config.json").write_text(json.dumps(values))
    return tmp_path


def test_what_is_kept_is_read_where_it_is_and_not_elsewhere(folder):
    assert run_config(folder).data.sources[0] == "lspet:lspet:private"
    with refused("data-places-unknown", where=("--data", "--init")):
        whole_config(folder)
    given = {"data": {"private": ["lspet:/mnt/lspet:private", "synthetic:ward"]}, "model": {"init": "/mnt/coco"}}
    assert whole_config(folder, given).data.sources[0] == "lspet:/mnt/lspet:private"
    check_begun(folder, config())  # by what the folder says
    keep_places(RUN, Places(config().to_dict(), "typed"))
    assert whole_config(folder) == config()
    check_begun(folder, config())
    with refused("run-of-other-settings"):
        check_begun(folder, config(limit=3))


def test_a_folder_of_before_holds_its_paths_itself(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"run": {**config().to_dict(), "command": "typed"}}))
    assert whole_config(tmp_path) == config()


@pytest.mark.parametrize("kept", [True, False])
def test_a_run_of_before_noise_could_be_exact_goes_on_with_the_noise_that_it_had(tmp_path, kept):
    private = {"method": "dp-sgd", "epsilon": 8.0, "delta": 1e-4, "noise": "float"}
    began = resolved(RunConfig.from_dict({"data": {"private": "synthetic:ward"}, "plan": private}))
    values = began.to_dict()
    assert values["plan"].pop("noise") == "float"
    if kept:
        keep_places(RUN, Places(values, "typed"))
    (tmp_path / "config.json").write_text(json.dumps({"run_id": RUN if kept else "", "run": values}))
    assert whole_config(tmp_path) == began
    check_begun(tmp_path, began)


@pytest.mark.parametrize("plan", [3, None, ["noise"]])
def test_a_plan_that_is_none_is_refused(tmp_path, plan):
    (tmp_path / "config.json").write_text(json.dumps({"run": {**config().to_dict(), "plan": plan}}))
    with refused("setting-invalid", where="plan"):
        run_config(tmp_path)


def test_a_run_made_from_python_has_a_report_and_is_gone_on_with_from_python(tmp_path):
    made = tmp_path / "made"
    finished_run(
        made,
        tmp_path / "state",
        TrainingPlan(method="dp-sgd", epsilon=8, delta=1e-4, steps=9, unit="image"),
        task="pose",
    )
    with refused("run-made-from-python", where=(str(made), "RunOptions(resume=True)")):
        whole_config(made, {"data": {"private": ["lspet:/mnt/lspet:private"]}})
    shown = Console(file=io.StringIO(), force_terminal=True)
    page = make_report(made, console=shown).read_text()
    assert "writing the report" in shown.file.getvalue()
    assert "The run was made from Python" in page
    with refused("pictures-not-public"):
        make_report(made, pictures="lspet:/mnt/lspet:private", console=Console(quiet=True))


@pytest.mark.parametrize("found", ["../keys/x", 7, None, "0" * 31, "G" * 32])
def test_a_name_that_is_none_opens_no_file(tmp_path, found):
    (tmp_path / "config.json").write_text(json.dumps({"run_id": found, "run": config().to_dict()}))
    assert whole_config(tmp_path) == config()


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"schema": 2}', '{"schema": 1, "settings": 3}'])
def test_what_is_kept_and_broken_is_none(content, monkeypatch, tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / f"{RUN}.json").write_text(content)
    assert kept_places(RUN, tmp_path) is None


def test_nobody_else_can_look_where_paths_are_kept(tmp_path):
    keep_places("0" * 32, Places({"data": "/ward"}), tmp_path)
    (file,) = (tmp_path / "runs").iterdir()
    assert (stat.S_IMODE(file.stat().st_mode), stat.S_IMODE(file.parent.stat().st_mode)) == (0o600, 0o700)
