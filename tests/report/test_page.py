"""The whole page: complete in itself, in order, whatever the run left."""

import re

import numpy as np
import pytest

from dpose.report.page import PosePair
from dpose.runs.reporting import write_run_report
from refusals import refused

HOSTILE = "</title></style><script>alert('x')</script><img src=x onerror=alert(1)>\x00\u202e\ud800&amp;"
ORDER = ["guarantee", "scores", "curves", "joints", "pictures", "diagnostics", "settings", "check"]


@pytest.fixture
def tiles():
    rng = np.random.default_rng(0)
    return [PosePair(f"unit {k}", *rng.integers(0, 256, (2, 256, 192, 3), np.uint8)) for k in range(12)]


@pytest.fixture
def full(make_run, steps):
    run = make_run().log(*steps(20), {"type": "diagnostics", "step": 4, "subspace_rank": 97.0})
    return run.scored(0, 0.2, 0.0).scored(20, 0.6, 7.9).evaluated()


def test_everything_is_there_in_order(full, report, tiles):
    page = report(full.path, tiles=tiles, pictures_of="synthetic:ward:public")
    assert list(page.sections()) == ORDER
    assert len(page.text) < 3_000_000
    assert len(list(page.root.iter("h1"))) == 1
    assert len(list(page.root.iter("h2"))) == len(ORDER)
    images = list(page.sections()["pictures"].iter("img"))
    assert len(images) == 24
    assert all(i.get("alt") and i.get("width") and i.get("height") for i in images)
    assert "12 units of synthetic:ward:public" in page.words("pictures")
    assert "Pose model, dp-sgd training" in page.words()
    assert "nano, 128 x 96 pixels" in page.words()
    assert "synthetic:ward:train, 1,000 images" in page.words()


def test_links_lead_to_sections_and_tables_have_heads(full, report, tiles):
    page = report(full.path, tiles=tiles)
    links = [a.get("href") for a in page.root.iter("a")]
    assert links == [f"#{key}" for key in ORDER]
    for section in page.root.iter("section"):
        (title,) = (node for node in section.iter() if node.get("id") == section.get("aria-labelledby"))
        assert title.tag == "h2"
    for table in page.root.iter("table"):
        assert table.find("caption") is not None
        assert all(th.get("scope") for th in table.iter("th"))
    for svg in page.root.iter("svg"):
        assert svg.get("role") == "img"
        assert svg.get("aria-label")
    for figure in page.root.iter("figure"):
        assert figure.find("figcaption") is not None


def test_the_page_asks_for_nothing(full, report, tiles):
    page = report(full.path, tiles=tiles)
    assert not re.findall(r"<(?:script|link|iframe|object|embed|base|form)\b", page.text)
    assert not re.findall(r"\b(?:https?:)?//\w", re.sub(r'src="data:[^"]*"', "", page.text))
    assert "@import" not in page.text
    assert not re.findall(r"url\((?!#)", page.text)  # but a chart may name a part of itself
    assert {node.get("src", "")[:5] for node in page.root.iter("img")} == {"data:"}
    policy = next(m for m in page.root.iter("meta") if m.get("http-equiv"))
    assert policy.get("content").startswith("default-src 'none'")


def test_an_empty_run_has_a_page_too(make_run, report):
    run = make_run(statement=False)
    (run.path / "log.jsonl").unlink()
    page = report(run.path)
    assert list(page.sections()) == [k for k in ORDER if k not in ("joints", "diagnostics")]
    assert "No pictures were given" in page.words("pictures")


def test_the_caller_says_why_there_are_no_pictures(make_run, report):
    page = report(make_run().path, no_pictures="Give --pictures <DATA>.")
    assert "Give --pictures <DATA>." in page.words("pictures")


def test_hostile_texts_stay_texts(make_run, steps, report):
    run = make_run(
        name="a <b>'run'",
        config={"task": HOSTILE, "model": {"preset": HOSTILE, HOSTILE: HOSTILE, "input_size": [HOSTILE, 1]}},
        run={"command": HOSTILE, HOSTILE: {HOSTILE: [HOSTILE]}, "optimizer": {HOSTILE: HOSTILE}},
        caveats=(HOSTILE.encode("utf-8", "replace").decode(), "a\n\n* b"),
        public=("<b>bold</b>",),
    )
    run.log(*steps(3), {"type": "diagnostics", "step": 1, "public" + HOSTILE: 1.0})
    named = {"name": HOSTILE, "result": {"columns": {HOSTILE: 1.0}, "metric": HOSTILE, "joints": {HOSTILE: {}}}}
    for step in (0, 3):
        run.scored(step, 0.5, 1.0, data=HOSTILE)
    run.evaluated(HOSTILE, beside=[named]).evaluated(HOSTILE, result=named["result"])
    pixels = np.zeros((8, 8, 3), np.uint8)
    page = report(run.path, tiles=[PosePair(HOSTILE, pixels, pixels)], pictures_of=HOSTILE)
    assert page.text.count(HOSTILE[:20]) == 0
    assert {node.tag for node in page.root.iter()} & {"script"} == set()
    assert [node.get("src")[:5] for node in page.root.iter("img")] == ["data:", "data:"]
    assert not [key for node in page.root.iter() for key in node.attrib if key.startswith("on")]
    for character in "\x00\u202e\ud800":
        assert character not in page.text
    assert HOSTILE[:20] in page.words("scores")


def test_a_report_is_written_again_and_whole(make_run, report):
    run = make_run()
    first = report(run.path).text
    run.evaluated()
    assert "Evaluation" not in first
    assert "Evaluation" in report(run.path).text
    assert sorted(p.name for p in run.path.iterdir()) == [
        "config.json", "evaluations", "log.jsonl", "privacy.json", "report.html",
    ]  # fmt: skip


def test_a_folder_that_is_no_run_gets_no_report(tmp_path):
    with refused("run-missing"):
        write_run_report(tmp_path)
    assert list(tmp_path.iterdir()) == []
