"""`dpose statement`: shown, checked, signed, verified and passed on; mistakes are one line and exit code 2."""

import json
import shutil
import struct
import zlib
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import yaml
from PIL import Image as Pillow

from clips import write as write_clip
from dpose.cli import main
from dpose.files import file_digest
from dpose.media import encode_image, write_image
from dpose.media.tags import extract_text
from dpose.privacy.accounting import epsilon
from dpose.privacy.sections import About
from dpose.privacy.statement import Kind, PrivacyStatement
from dpose.release.api import pixelize
from dpose.release.embed import NAME, SEAL, bound_to, read_sidecar, read_stamp, sealed, sidecar_of, stamp
from dpose.runs.statement_files import open_statement
from dpose.training.plan import TrainingPlan
from refusals import refused
from run_folders import finished_run, sealed_again

DELTA = 1e-5
PLAN = TrainingPlan(delta=DELTA, noise_multiplier=2.0, steps=30, expected_batch_size=50, unit="image")
EVENT = PLAN.bind(1000).event


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A finished run of Ward 7."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    about = About(curator="Ward 7", contact="dpo@example.org", why_epsilon="our board allows no more")
    made = tmp_path / "ward-pose"
    finished_run(made, tmp_path / "runs-state", PLAN, task="pose", about=about)
    statement = PrivacyStatement.from_json((made / "privacy.json").read_text())
    dated = replace(statement.deployment, date="2026-05-03")
    sealed_again(made, replace(statement, deployment=dated))
    return made


def told(capsys, *arguments, code=0):
    assert main([str(a) for a in arguments]) == code
    found = capsys.readouterr()
    if code:
        assert len(found.err.strip().splitlines()) == 1
    return " ".join((found.err if code else found.out).split())


def test_it_is_shown_and_checked(folder, capsys):
    assert "Ward 7" in told(capsys, "statement", "show", folder)
    assert main(["statement", "show", str(folder / "privacy.json"), "--json"]) == 0
    assert capsys.readouterr().out == (folder / "privacy.json").read_text()
    assert "as schema 3 says" in told(capsys, "statement", "check", folder)
    assert json.loads(told(capsys, "statement", "schema"))["title"] == "dpose privacy statement"


def test_a_prettier_number_is_neither_checked_nor_signed_nor_exported(folder, tmp_path, capsys):
    values = json.loads((folder / "privacy.json").read_text())
    values["groups"][3]["epsilon"] = "0.5"
    (folder / "privacy.json").write_text(json.dumps(values))
    told(capsys, "statement", "key", tmp_path / "h.pem")
    for arguments in (("check",), ("sign", "--key", tmp_path / "h.pem"), ("export", "--registry")):
        verb, *more = arguments
        assert "groups: says less" in told(capsys, "statement", verb, folder, *more, code=2)
    assert not (folder / "privacy.json.sig").exists()


def test_it_is_signed_and_verified(folder, tmp_path, capsys):
    key = tmp_path / "h.pem"
    told(capsys, "statement", "key", key)
    told(capsys, "statement", "sign", folder, "--key", key)
    said = told(capsys, "statement", "verify", folder, "--key", f"{key}.pub")
    assert "the signature holds" in said
    assert "does not show that the statement is true" in said
    assert "the seal holds" in said
    changed = (folder / "privacy.json").read_text().replace("Ward 7", "Ward 8")
    (folder / "privacy.json").write_text(changed)
    said = told(capsys, "statement", "verify", folder, "--key", f"{key}.pub", code=2)
    assert "[signed-file-changed]" in said


def test_a_signed_statement_beside_other_weights_or_without_its_ledger_is_refused(folder, tmp_path, capsys):
    key = tmp_path / "h.pem"
    told(capsys, "statement", "key", key)
    told(capsys, "statement", "sign", folder, "--key", key)
    (folder / "model.safetensors").write_bytes(b"other weights")
    said = told(capsys, "statement", "verify", folder, "--key", f"{key}.pub", code=2)
    assert "model.safetensors is not the one that was sealed" in said
    (folder / "ledger.jsonl").unlink()
    said = told(capsys, "statement", "verify", folder, "--key", f"{key}.pub", code=2)
    assert "[ledger-missing]" in said


def test_a_signed_run_is_checked_whatever_stands_beside_it(folder, tmp_path, capsys):
    """A count's or a release's own seal does not stand for a run's."""
    key = tmp_path / "h.pem"
    told(capsys, "statement", "key", key)
    told(capsys, "statement", "sign", folder, "--key", key)
    for name, code in (("counts.json", "count-beside-others"), ("a.npz", "release-beside-run")):
        for inside in (folder, folder / "below"):
            inside.mkdir(exist_ok=True)
            (inside / name).write_text("{}")
            if name == "a.npz":
                assert told(capsys, "verify", folder)  # nobody's statement
                np.savez(inside / name, scores=np.zeros(1))
                assert told(capsys, "verify", folder)
                newer = bytearray((inside / name).read_bytes())  # a zip that cannot be looked into may be anything
                newer[newer.index(b"PK\x01\x02") + 6] = 99
                (inside / name).write_bytes(newer)
                assert f"[{code}]" in told(capsys, "verify", folder, code=2)
                np.savez(inside / name, about=np.zeros(1))
            for arguments in (("verify",), ("statement", "verify", "--key", f"{key}.pub")):
                assert f"[{code}]" in told(capsys, *arguments, folder, code=2)
            (inside / name).unlink()


def test_the_registry_gets_its_fields_and_nothing_made_up(folder, tmp_path, capsys):
    out = tmp_path / "entry.yaml"
    told(capsys, "statement", "export", folder, "--registry", "--out", out)
    entry = yaml.safe_load(out.read_text())
    assert set(entry) == {"url_slug", "status", "tier", "deployment"}
    assert (entry["url_slug"], entry["status"], entry["tier"]) == ("ward-pose-2026", "Draft", 2)
    said = entry["deployment"]
    assert set(said) == {
        "basic",
        "dp_variant",
        "privacy_loss",
        "deployment_model",
        "accounting",
        "implementation",
        "administrative",
    }
    assert said["basic"]["data_curators"] == ["Ward 7"]
    assert said["basic"]["intended_use"] == said["basic"]["data_product_region"] == "not stated"
    assert said["basic"]["publication_date"] == "2026-05-03"
    assert said["deployment_model"]["model_name"] == "Central"
    assert said["administrative"]["registry_authors"] == ["dpo@example.org"]
    spent = said["privacy_loss"]["privacy_parameters"]
    assert epsilon([EVENT], DELTA) <= spent["epsilon"] <= 1.001 * epsilon([EVENT], DELTA)
    assert spent["delta"] == DELTA


def test_a_released_picture_says_who_releases_it_and_what_several_times_as_much_costs(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    source, released = tmp_path / "street.png", tmp_path / "released.png"
    write_image(source, np.zeros((48, 64, 3), np.uint8))
    said = (
        "--set",
        "about.curator=Ward 7",
        "--set",
        "about.contact=dpo@example.org",
        "--set",
        "about.why_epsilon=our board's",
    )
    told(capsys, "pixelize", source, "--epsilon", 2, "--out", released, *said)
    shown = told(capsys, "statement", "show", released)
    for word in ("Ward 7", "dpo@example.org", "our board's", "Several times as much", "32: 4, 48: 6"):
        assert word in shown
    assert shown.count("Several times as much") == 1
    assert "as schema 3 says" in told(capsys, "statement", "check", released)
    values = json.loads(_printed(capsys, "statement", "show", released, "--json"))
    assert [group["units"] for group in values["groups"]] == list(range(1, 11))
    assert values["groups"][9]["epsilon"] == "20.0"
    entry = yaml.safe_load(_printed(capsys, "statement", "export", released, "--registry"))
    assert entry["deployment"]["basic"]["publication_date"] == values["deployment"]["date"]
    assert entry["deployment"]["basic"]["data_curators"] == ["Ward 7"]
    assert entry["deployment"]["dp_variant"]["variant_name"] == "Pure DP"
    assert Fraction(str(entry["deployment"]["privacy_loss"]["privacy_parameters"]["epsilon"])) == 2
    key = tmp_path / "h.pem"
    told(capsys, "statement", "key", key)
    told(capsys, "statement", "sign", released, "--key", key)
    said = told(capsys, "statement", "verify", released, "--key", f"{key}.pub")
    assert "the signature holds" in said
    assert "the recorded noise costs epsilon 2" in said


def _printed(capsys, *arguments):
    capsys.readouterr()
    assert main(list(map(str, arguments))) == 0
    return capsys.readouterr().out


def test_the_cards_metadata_are_those_that_training_writes(folder, capsys):
    from dpose.training.folder import front_matter

    statement = PrivacyStatement.from_json((folder / "privacy.json").read_text())
    assert _printed(capsys, "statement", "export", folder, "--model-card") == front_matter("pose", statement, "dp-sgd")


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "no/such/run"),
        ("check", "."),
        ("export", "{folder}"),
        ("export", "{folder}", "--registry", "--model-card"),
        ("export", "{folder}/privacy.json", "--model-card"),
        ("sign", "{folder}", "--key", "no.pem"),
        ("verify", "{folder}", "--key", "no.pub"),
        ("key", "{folder}"),
    ],
)
def test_mistakes_are_told_in_a_line(folder, capsys, arguments):
    told(capsys, "statement", *(a.format(folder=folder) for a in arguments), code=2)


def test_what_guarantees_nothing_is_not_registered(folder, capsys):
    (folder / "privacy.json").write_text(PrivacyStatement(Kind.NONE, "image", seal="ab" * 32).to_json())
    said = told(capsys, "statement", "export", folder, "--registry", code=2)
    assert "[guarantee-missing]" in said
    assert "nothing is claimed" in told(capsys, "statement", "check", folder)


def test_a_picture_from_a_seed_has_no_date_and_can_be_made_again(tmp_path, capsys, monkeypatch):
    source = tmp_path / "street.png"
    write_image(source, np.zeros((48, 64, 3), np.uint8))
    for name in ("a", "b"):
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / name / "state"))
        told(capsys, "pixelize", source, "--epsilon", 2, "--seed", 1, "--out", tmp_path / name / "out.png")
    assert (tmp_path / "a" / "out.png").read_bytes() == (tmp_path / "b" / "out.png").read_bytes()
    values = json.loads(_printed(capsys, "statement", "show", tmp_path / "a" / "out.png", "--json"))
    assert values["deployment"]["date"] == ""


def test_what_several_times_as_much_costs_cannot_be_made_prettier(tmp_path):
    made = pixelize(np.zeros((48, 64), np.uint8), 2, 16, 16, public=True).statement
    assert made.verify() == 2
    groups = tuple(replace(one, epsilon=min(one.epsilon, 5.0)) for one in made.groups)
    for forged in (groups, made.groups[:5], (*made.groups[:9], replace(groups[9], units=11))):
        with refused("groups-understated", where="groups"):
            replace(made, groups=forged).verify()


def _stamped(file):
    """A file's statement, and its seal as one line."""
    statement, _ = read_stamp(file.read_bytes(), str(file))
    return statement, extract_text(file.read_bytes(), SEAL)[0]


def _with_exif(data):
    exif = Pillow.Exif()
    exif[0x0112] = 6
    if data.startswith(b"\x89PNG"):
        return _with_chunk(data, b"eXIf", exif.tobytes().removeprefix(b"Exif\0\0"))
    return _with_segment(data, 0xE1, exif.tobytes())


def _with_profile(data):
    if data.startswith(b"\x89PNG"):
        return _with_chunk(data, b"iCCP", b"x\0\0" + zlib.compress(bytes(128)))
    return _with_segment(data, 0xE2, b"ICC_PROFILE\0\1\1" + bytes(128))


def _with_segment(data, marker, body):
    return data[:2] + bytes((0xFF, marker)) + struct.pack(">H", len(body) + 2) + body + data[2:]


def _with_chunk(data, name, body):
    if not data.startswith(b"\x89PNG"):
        return data
    chunk = struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
    return data[:33] + chunk + data[33:]


ADDED = {
    "bytes behind the end": lambda data: data + b"more",
    "a second picture behind the end": lambda data: data + encode_image(np.zeros((9, 9, 3), np.uint8), ".jpg"),
    "orientation": _with_exif,
    "a colour profile": _with_profile,
    "gamma": lambda data: _with_chunk(data, b"gAMA", struct.pack(">I", 9)),
    "transparency": lambda data: _with_chunk(data, b"tRNS", bytes(6)),
    "an animation": lambda data: _with_chunk(data, b"acTL", struct.pack(">II", 2, 0)),
}


class TestForgeries:
    """Everything that is no longer just the file that was signed is refused, and named."""

    @pytest.fixture
    def signed(self, tmp_path, capsys, monkeypatch):
        """A released picture of both formats, signed, and the raw photograph that it was made from."""
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        raw = np.random.default_rng(0).integers(0, 256, (48, 64, 3)).astype(np.uint8)
        write_image(tmp_path / "raw.png", raw)
        key = tmp_path / "h.pem"
        told(capsys, "statement", "key", key)
        for suffix in ("png", "jpg"):
            file = tmp_path / f"released.{suffix}"
            told(capsys, "pixelize", tmp_path / "raw.png", "--epsilon", 2, "--again", "--out", file)
            told(capsys, "statement", "sign", file, "--key", key)
            assert "the signature holds" in told(capsys, "statement", "verify", file, "--key", f"{key}.pub")
        return tmp_path, raw

    def refused(self, capsys, file):
        key = file.parent / "h.pem.pub"
        if key.is_file():
            assert "signature" not in told(capsys, "statement", "verify", file, "--key", key, code=2).split(":")[0]
        return told(capsys, "verify", file, code=2)

    @pytest.mark.parametrize("suffix", ["png", "jpg"])
    def test_a_raw_photograph_with_the_signed_file_beside_it(self, signed, capsys, suffix):
        """Statement, seal and signature are genuine and the signed file lies under the name of a video's sidecar."""
        folder, raw = signed
        genuine = folder / f"released.{suffix}"
        statement, line = _stamped(genuine)
        forged = folder / "street.jpg"
        forged.write_bytes(stamp(encode_image(raw, ".jpg"), statement, line))
        beside = forged.with_name("street.jpg.privacy.json")
        shutil.copy(genuine, beside)
        shutil.copy(f"{genuine}.sig", f"{beside}.sig")
        shutil.copy(f"{genuine}.sig", f"{forged}.sig")
        assert "file is not the one that was sealed" in self.refused(capsys, forged)

    @pytest.mark.parametrize("source", ["released.jpg", "released.npz", "clip.mp4"])
    @pytest.mark.parametrize("suffix", [".png", ".jpg"])
    def test_the_statement_of_something_else(self, signed, capsys, source, suffix):
        folder, raw = signed
        released = folder / "released.npz" if source.endswith("npz") else folder / source
        if source == "clip.mp4":
            write_clip(folder / "in.mp4")
            told(capsys, "pixelize", folder / "in.mp4", "--epsilon", 2, "--block", 8, "--out", released)
            statement, line = read_sidecar(released)
        elif source == "released.npz":
            made = pixelize(raw, 2, 4, 16, public=True)
            statement, line = sealed(made.frames[0], made.statement)
        else:
            statement, line = _stamped(released)
        forged = folder / f"street{suffix}"
        forged.write_bytes(stamp(encode_image(raw, suffix), statement, line))
        self.refused(capsys, forged)

    @pytest.mark.parametrize("what", ADDED)
    @pytest.mark.parametrize("suffix", ["png", "jpg"])
    def test_what_is_added_later_and_bound_again(self, signed, capsys, suffix, what):
        """Everything is genuine but the digest outside the seal, which a forger computes anew."""
        folder, _ = signed
        genuine = folder / f"released.{suffix}"
        statement, line = _stamped(genuine)
        bare = extract_text(extract_text(genuine.read_bytes(), SEAL)[1], NAME)[1]
        changed = ADDED[what](bare)
        if changed == bare:
            pytest.skip("no such thing in this format")
        genuine.write_bytes(stamp(changed, statement, line))
        assert "file is not the one that was sealed" in self.refused(capsys, genuine)

    def test_more_bytes_in_the_statements_own_segment(self, signed, capsys):
        folder, _ = signed
        genuine = folder / "released.jpg"
        data = genuine.read_bytes()
        at = data.index(NAME.encode()) - 4
        (length,) = struct.unpack_from(">H", data, at + 2)
        end = at + 2 + length
        genuine.write_bytes(data[: at + 2] + struct.pack(">H", length + 4) + data[at + 4 : end] + b"more" + data[end:])
        assert "text is damaged" in self.refused(capsys, genuine)

    def test_another_video_under_a_signed_sidecar(self, signed, capsys):
        folder, _ = signed
        released, key = folder / "out.mp4", folder / "h.pem"
        write_clip(folder / "in.mp4")
        told(capsys, "pixelize", folder / "in.mp4", "--epsilon", 2, "--block", 8, "--out", released)
        told(capsys, "statement", "sign", released, "--key", key)
        said = told(capsys, "statement", "verify", released, "--key", f"{key}.pub")
        assert "the signature holds" in said
        genuine = released.read_bytes()
        for other in (genuine + b"\0", (folder / "in.mp4").read_bytes()):
            released.write_bytes(other)
            self.refused(capsys, released)
        statement, line = read_sidecar(released)
        bound = bound_to(file_digest(released), statement)
        sidecar_of(released).write_text(json.dumps(json.loads(bound.to_json()) | {"sealed": line}))
        assert "file is not the one that was sealed" in self.refused(capsys, released)

    def test_words_alone_are_not_taken_for_what_they_are_about(self, signed, folder, capsys):
        there, _ = signed
        told(capsys, "statement", "sign", folder / "privacy.json", "--key", there / "h.pem")
        said = told(capsys, "statement", "verify", folder / "privacy.json", "--key", there / "h.pem.pub")
        assert "what it is about was not looked at" in said

    def test_what_is_signed_is_the_picture_itself_and_the_sidecar_of_a_video(self, signed, folder, capsys):
        there, _ = signed
        write_clip(there / "in.mp4")
        told(capsys, "pixelize", there / "in.mp4", "--epsilon", 2, "--block", 8, "--out", there / "out.mp4")
        for name in ("released.jpg", "released.png"):
            (there / f"{name}.privacy.json").write_text("a file that lies beside it")
            assert open_statement(there / name).file == there / name
        assert open_statement(there / "out.mp4").file == there / "out.mp4.privacy.json"
        assert open_statement(folder).file == open_statement(folder / "privacy.json").file
