"""The documentation holds together: links lead somewhere, code compiles, commands are understood, the site builds."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import dpose
from dpose.media.images import write_image
from dpose.pose.backbones import BACKBONES
from dpose.pose.data import SOURCES
from dpose.training.methods import METHODS

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def name(page):
    return str(page.relative_to(ROOT))


def prose(page):
    """A page without its code, where brackets are no links."""
    return re.sub(r"`[^`\n]*`", "", FENCE.sub("", page.read_text(encoding="utf-8")))


def anchors(page):
    """What GitHub and MyST call a page's headings; equal ones are numbered."""
    found = []
    for heading in re.findall(r"^#{1,6} +(.*?) *$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).replace(" ", "-")
        found.append(slug if slug not in found else f"{slug}-{found.count(slug)}")
    return found


def broken(page, link):
    """Why a link of a page leads nowhere; "" where it leads somewhere, or elsewhere in the world."""
    if re.match(r"[a-z]+:", link):
        return ""
    file, _, anchor = link.partition("#")
    target = (page.parent / file).resolve() if file else page
    if not target.exists():
        return f"no file {file}"
    if not target.is_relative_to(ROOT):
        return f"{file} is not in the repository"
    if anchor and anchor not in anchors(target):
        return f"no heading {anchor}"
    return ""


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page):
    found = {link: broken(page, link) for link in LINK.findall(prose(page))}
    assert {link: why for link, why in found.items() if why} == {}


def test_a_link_that_leads_nowhere_is_noticed():
    page = ROOT / "docs" / "guide.md"
    assert broken(page, "nowhere.md") == "no file nowhere.md"
    assert broken(page, "guide/train.md#not-a-heading") == "no heading not-a-heading"
    assert broken(page, "#install") == broken(page, "https://example.org") == ""
    assert "not in the repository" in broken(page, "../..")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_python_of_a_page_compiles_and_imports_what_there_is(page):
    for language, code in FENCE.findall(page.read_text(encoding="utf-8")):
        if language == "python":
            for node in ast.walk(ast.parse(code)):
                if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("dpose"):
                    module = __import__(node.module, fromlist=["x"])
                    assert all(hasattr(module, alias.name) for alias in node.names), ast.unparse(node)
                if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "dpose":
                    assert hasattr(dpose, node.attr), node.attr


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "examples").glob("*.py")), ids=name)
def test_an_example_compiles(path):
    compile(path.read_text(encoding="utf-8"), str(path), "exec")


def test_what_the_guide_adds_works(tmp_path):
    """The page on adding a dataset, a backbone, a method, run as it stands."""
    before = [dict(registry) for registry in (SOURCES, BACKBONES, METHODS)]
    try:
        page = (ROOT / "docs" / "guide" / "extend.md").read_text(encoding="utf-8")
        for language, code in FENCE.findall(page):
            if language == "python":
                exec(code, {})
        write_image(tmp_path / "train" / "a.png", np.zeros((60, 40, 3), np.uint8))
        units = dpose.open_data(f"mine:{tmp_path}")
        assert (len(units), units.unit_id(0), units.load(0, np.random.default_rng(0))[0].image.ndim) == (1, "a.png", 3)
        x, _ = dpose.PoseModel(dpose.PoseConfig("stem"))(torch.zeros(1, 3, 128, 96))
        assert x.shape == (1, 16, 192)
        assert dpose.TrainingPlan(method="dp-sgd-clamped", epsilon=8, delta=1e-5).kind.private
    finally:
        for registry, kept in zip((SOURCES, BACKBONES, METHODS), before, strict=True):
            registry.clear()
            registry.update(kept)


def test_every_public_name_is_in_the_reference():
    pages = "\n".join(p.read_text(encoding="utf-8") for p in (ROOT / "docs" / "api").glob("*.md"))
    shown = set(re.findall(r"auto\w+:: dpose\.(\w+)$", pages, re.MULTILINE))
    assert shown == set(dpose.__all__)


def test_the_page_of_what_is_public_names_every_public_name():
    page = (ROOT / "docs" / "public-api.md").read_text(encoding="utf-8")
    rows = [line.rpartition("|")[0].rpartition("|")[2] for line in page.splitlines() if line.startswith("| ")]
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(dpose.__all__)


def test_formulas_are_made_of_what_is_known():
    """What latex2mathml does not know it shows as text, without a word."""
    convert = pytest.importorskip("latex2mathml.converter").convert
    count = 0
    for page in PAGES:
        for language, tex in FENCE.findall(page.read_text(encoding="utf-8")):
            if language == "math":
                count += 1
                made = convert(tex.replace("{aligned}", "{align*}"), display="block")
                assert "\\" not in made, (page, tex)
                assert "&#x00026;" not in made, (page, tex)
                assert "&amp;" not in made, (page, tex)
    assert count > 30


@pytest.mark.slow
def test_the_site_builds_and_asks_no_other_host(tmp_path):
    pytest.importorskip("furo")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    done = subprocess.run(
        [*command, "-d", tmp_path / "trees", ROOT / "docs", tmp_path / "site"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > len(PAGES) - 10
    for page in pages:
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|iframe)[^>]* src=\"([^\"]+)\"", text)
        loaded += re.findall(r"<link[^>]* rel=\"(?:stylesheet|preload|icon)\"[^>]* href=\"([^\"]+)\"", text)
        assert [url for url in loaded if re.match(r"(https?:)?//", url)] == [], page
    styles = "".join(p.read_text(encoding="utf-8") for p in (tmp_path / "site" / "_static").rglob("*.css"))
    assert not re.findall(r"url\(['\"]?https?:", styles)
    assert '"sensit"' in (tmp_path / "site" / "searchindex.js").read_text(encoding="utf-8")
    assert "<math" in (tmp_path / "site" / "proofs" / "pixelization.html").read_text(encoding="utf-8")
