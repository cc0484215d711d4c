"""The release commands as they are typed: what is written, what is told, and one line for every mistake."""

import io
import json
import subprocess
import sys
from pathlib import Path

import av
import cv2
import numpy as np
import pytest

from archives import edited, npy, rebuilt
from dpose.cli import main

PICTURE = cv2.GaussianBlur(np.random.default_rng(0).integers(0, 256, (96, 128, 3)).astype(np.uint8), (0, 0), 4)
ROOT = Path(__file__).resolve().parents[2]
BASIC = ["--epsilon", "2", "--neighbours", "pixels:16", "--block", "16"]


@pytest.fixture(autouse=True)
def _local(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    cv2.imwrite("a.png", PICTURE)


def command_refused(capsys, arguments, *words):
    code = main([str(a) for a in arguments])
    lines = capsys.readouterr().err.strip().splitlines()
    assert code == 2, lines
    assert len(lines) == 1, lines
    for word in words:
        assert word in lines[0]


def shown(capsys):
    """What was printed, without line breaks."""
    return " ".join(capsys.readouterr().out.split())


def test_pixelize_restore_verify(capsys, tmp_path):
    assert main(["pixelize", "a.png", *BASIC, "--out", "out/"]) == 0
    told = shown(capsys)
    assert "This protects any 16 pixels of the picture" in told
    assert told.startswith("WARNING: an object of 100 x 96 pixels keeps epsilon 1,200")  # all that fits
    assert "Not hidden: that a person is there and what they broadly look like" in told
    assert "How it was released:" not in told
    assert "The whole statement: dpose statement show out/000001.png" in told
    assert main(["statement", "show", "out/000001.png"]) == 0
    whole = shown(capsys)
    assert whole.startswith("WARNING: an object of 100 x 96 pixels keeps epsilon 1,200")
    assert whole.count("WARNING") == 1
    assert "an object of 100 x 96 pixels is protected with epsilon 1,200" in whole
    assert "How it was released:" in whole
    regions = ["--epsilon", "2", "--block", "32", "--set", "subdivide=4", "--set", "regions.kind=private", "--again"]
    assert main(["pixelize", "a.png", *regions, "--out", "out2"]) == 0
    assert "This protects any 16 pixels of the picture with epsilon = 2" in shown(capsys)
    assert main(["restore", "out2/000001.npz", "b.png"]) == 0
    assert np.array_equal(cv2.imread("b.png"), cv2.imread("out2/000001.png"))
    capsys.readouterr()
    for target in ("out", "out2", "b.png", "out2/000001.npz"):
        assert main(["verify", target]) == 0
    assert shown(capsys).count("is claimed") == 6


def test_public_masks_and_paper_mode(capsys):
    cv2.imwrite("mask.png", np.where(np.arange(128) < 64, 255, 0).astype(np.uint8)[None].repeat(96, 0))
    more = ["--epsilon", "2", "--block", "16", "--set", "subdivide=4", "--again"]
    assert main(["pixelize", "a.png", *more, "--set", "regions.kind=public:mask.png", "--out", "public"]) == 0
    assert "was not made from this picture" in shown(capsys)
    assert (
        main(["pixelize", "a.png", *more, "--set", "regions.kind=paper:mask.png", "--set", "paper=3", "--out", "paper"])
        == 0
    )
    assert "NOTHING IS GUARANTEED" in shown(capsys)
    assert main(["verify", "paper"]) == 0
    assert "nothing is claimed" in shown(capsys)


@pytest.mark.skipif(sys.platform == "win32", reason="names there have no control characters")
def test_control_characters_of_a_name_are_escaped(capsys):
    cv2.imwrite("new\nline.png", PICTURE)
    cv2.imwrite("\x1b[31mred.png", PICTURE[::-1])
    assert main(["pixelize", "new\nline.png", "\x1b[31mred.png", *BASIC, "--out", "out", "--keep-names"]) == 0
    told = capsys.readouterr().out
    assert "\nnew\\nline.png -> out/new\\nline.png, out/new\\nline.npz\n" in told
    assert main(["account"]) == 0
    account = capsys.readouterr().out
    assert "new\\nline.png" in account
    assert "\\x1b[31mred.png" in account
    assert "\x1b[31mred" not in told + account


def test_explain_releases_nothing(capsys, tmp_path):
    assert main(["pixelize", "a.png", *BASIC, "--explain"]) == 0
    assert "gray levels on a cell's average" in shown(capsys)
    assert [p.name for p in tmp_path.iterdir()] == ["a.png"]


def test_no_object_is_larger_than_the_picture(capsys):
    cv2.imwrite("small.png", PICTURE[:64, :64])
    assert main(["pixelize", "small.png", *BASIC, "--explain"]) == 0
    told = shown(capsys)
    assert "100 x 100" not in told
    assert "epsilon for an object of 64 x 64: 512" in told
    assert main(["pixelize", "small.png", *BASIC, "--out", "small-out.png"]) == 0
    assert main(["statement", "show", "small-out.png"]) == 0
    told = shown(capsys)
    assert "100 x 100" not in told
    assert "an object of 64 x 64 pixels is protected with epsilon 512" in told


@pytest.mark.parametrize("workers", ["1", "3"])
def test_every_file_that_is_written_is_told_and_every_one_that_is_not(capsys, tmp_path, workers):
    (tmp_path / "in").mkdir()
    for number in range(8):
        cv2.imwrite(f"in/{number}.png", np.roll(PICTURE, number, 0))
    for broken in (1, 4):
        path = tmp_path / "in" / f"{broken}.png"
        path.write_bytes(path.read_bytes()[:-50])
    assert main(["pixelize", "in", *BASIC, "--out", "out", "--workers", workers]) == 1
    out, error = capsys.readouterr()
    written = list((tmp_path / "out").iterdir())
    assert len(written) == 12  # six pictures with their archives
    for path in written:
        assert f"out/{path.name}" in out
    (line,) = error.strip().splitlines()
    assert "2 of 8 files were not released, as named above; the others are done" in line
    for broken in (1, 4):
        assert f"not released: in/{broken}.png: the png file is cut short" in out
    (tmp_path / "in" / "1.png").unlink()
    # what was released before is no less there when the command is given again
    assert main(["pixelize", "in", *BASIC, "--out", "out", "--workers", workers]) == 1
    assert "1 of 7 files was not released" in capsys.readouterr().err


@pytest.mark.parametrize("more", [[], ["--engine", "local"]])
def test_where_nothing_can_be_released_each_reason_is_told(capsys, tmp_path, more):
    (tmp_path / "in").mkdir()
    for number in range(2):
        (tmp_path / "in" / f"{number}.png").write_bytes(b"no picture")
    assert main(["pixelize", "in", *BASIC, "--out", "out", *more]) == (1 if more else 2)
    out, error = capsys.readouterr()
    assert out.count("not released: ") == 2
    assert out.count("in/1.png: not a readable picture") == 1
    assert "2 of 2 files were not released, as named above; nothing was released" in error


def test_a_seed_takes_the_guarantee_away(capsys):
    assert main(["pixelize", "a.png", *BASIC, "--seed", "1", "--out", "out"]) == 0
    assert "NOTHING IS GUARANTEED" in shown(capsys)


def test_a_folder_says_that_epsilons_add_up(capsys):
    cv2.imwrite("b.png", np.roll(PICTURE, 1, 0))
    assert main(["pixelize", ".", *BASIC, "--out", "out"]) == 0
    told = shown(capsys)
    assert "epsilons add up" in told
    assert told.count("This protects any") == 1


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (["--epsilon", "0"], ["epsilon"]),
        (["--epsilon", "nan"], ["epsilon"]),
        (["--epsilon", "-1"], ["epsilon"]),
        (["--epsilon", "1e99"], ["epsilon"]),
        (["--neighbours", "pixels:0"], ["neighbours"]),
        (["--neighbours", "pixels:99999999"], ["a.png", "only 12,288 pixels"]),
        (["--neighbours", "people:1"], ["people:1"]),
        (["--block", "0"], ["block"]),
        (["--block", "97"], ["a.png", "larger than the picture"]),
        (["--set", "subdivide=3", "--set", "regions.kind=private"], ["subdivide", "1, 2, 4, 8, 16"]),
        (["--set", "subdivide=2"], ["regions"]),
        (["--set", "subdivide=2", "--set", "regions.kind=public:small.png"], ["a.png", "mask has 5 x 4"]),
        (["--set", "subdivide=2", "--set", "regions.kind=public:absent.png"], ["absent.png"]),
        (["--set", "subdivide=2", "--set", "regions.kind=secret"], ["secret"]),
        (["--set", "subdivide=2", "--set", "regions.kind=paper:small.png"], ["paper"]),
        (
            ["--set", "subdivide=2", "--set", "regions.kind=private", "--set", "regions.segmenter=absent.onnx"],
            ["absent.onnx"],
        ),
        (["--set", "subdivide=2", "--set", "regions.kind=private", "--set", "regions.share=1"], ["share"]),
        (["--set", "subdivide=2", "--set", "regions.kind=private", "--set", "regions.quantile=1"], ["quantile"]),
        (["--set", "regions.threshold=3"], ["regions.kind=private"]),
        (["--delta", "1"], ["delta"]),
        (["--set", "paper=4"], ["paper"]),
        (["--out", "x.gif"], []),
    ],
)
def test_bad_options(capsys, tmp_path, changed, words):
    cv2.imwrite("small.png", np.zeros((4, 5), np.uint8))
    if changed == ["--out", "x.gif"]:
        (tmp_path / "x.gif").write_text("a file where a folder should be")
    command_refused(capsys, ["pixelize", "a.png", *BASIC, "--out", "out", *changed], *words)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("shape", "words"), [((1, 1), ["larger than the picture"]), ((1, 300), ["larger than the picture"])]
)
def test_pictures_that_are_too_small(capsys, tmp_path, shape, words):
    cv2.imwrite("tiny.png", np.zeros(shape, np.uint8))
    command_refused(capsys, ["pixelize", "tiny.png", *BASIC, "--out", "out"], "tiny.png", *words)
    assert not (tmp_path / "out").exists()


def test_broken_files(capsys, tmp_path):
    (tmp_path / "cut.png").write_bytes((tmp_path / "a.png").read_bytes()[:-50])
    (tmp_path / "cut.mp4").write_bytes(b"\0\0\0\x18ftypmp42")
    for name in ("cut.png", "cut.mp4", "absent.png"):
        command_refused(capsys, ["pixelize", name, *BASIC, "--out", "out"], name)
    assert not [p for p in (tmp_path / "out").rglob("*") if p.is_file()]
    main(["pixelize", "a.png", *BASIC, "--out", "good"])
    data = bytearray((tmp_path / "good" / "000001.npz").read_bytes())
    data[len(data) // 2] ^= 0x40
    (tmp_path / "bad.npz").write_bytes(data)
    capsys.readouterr()
    command_refused(capsys, ["restore", "bad.npz", "x.png"], "bad.npz")
    command_refused(capsys, ["restore", "absent.npz", "x.png"], "absent.npz")
    command_refused(capsys, ["restore", "good/000001.npz", "x.gif"], "x.gif")
    command_refused(capsys, ["verify", "a.png"], "[statement-missing]")
    command_refused(capsys, ["verify", "bad.npz"], "bad.npz")
    assert not (tmp_path / "x.png").exists()


def test_a_mistake_says_what_to_do(capsys, tmp_path):
    make_clip(tmp_path / "film.mp4", frames=2)
    clip = ["--epsilon", "2", "--delta", "1e-5", "--out", "out"]
    command_refused(capsys, ["release-video", "a.png", *clip], "a.png: is no video; dpose pixelize takes pictures [")
    command_refused(capsys, ["pixelize", "film.mp4", *BASIC, "--out", "x.png"], "name it x.mp4, or a folder [out-of-")
    command_refused(capsys, ["pixelize", "a.png", *BASIC, "--out", "x.mp4"], "name it x.png, or a folder [out-of-")
    command_refused(capsys, ["restore", "a.png", "b.png"], "is a picture, no archive; name the .npz", "[archive-damage")


def test_verify_checks_every_artefact_that_is_named(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    assert main(["verify", "--help"]) == 0
    assert "Run folders; released pictures, archives or videos; folders of those." in shown(capsys)
    assert main(["pixelize", "a.png", *BASIC, "--out", "b.png"]) == 0
    capsys.readouterr()
    assert main(["verify", "b.png", "b.png"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("b.png: ") for line in lines)
    assert main(["verify", "a.png", "absent.png", "b.png"]) == 2
    said = capsys.readouterr()
    assert [line.partition(": the")[0].partition(": carries")[0] for line in said.out.splitlines()] == [
        "does not hold: a.png",
        "does not hold: absent.png",
        "b.png",
    ]
    assert "2 of 3 artefacts do not hold" in said.err
    assert "[artefacts-not-verified]" in said.err


def test_a_folder_is_verified_to_its_end_and_its_originals_are_refused(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    folder = Path("out")
    assert main(["pixelize", "a.png", *BASIC, "--out", str(folder)]) == 0
    (folder / "notes.txt").write_text("x")
    capsys.readouterr()
    assert main(["verify", str(folder)]) == 0
    assert "not looked at, as neither picture nor video: 1 (notes.txt)" in shown(capsys)
    originals = [folder / "raw.webp", folder / "raw.tiff", folder / ".thumb.png", folder / ".cache" / "x"]
    for original in originals:
        original.parent.mkdir(exist_ok=True)
        cv2.imwrite("original" + (original.suffix or ".png"), np.eye(9, dtype=np.uint8))
        Path("original" + (original.suffix or ".png")).rename(original)
    # kinds that nothing here reads or writes show as much
    unread = {"a.jp2": b"\0\0\0\x0cjP  ", "a.dat": b"P5\n9 9\n255\n", "a.dcm": b"\0" * 128 + b"DICM", "a.tga": b"\0"}
    for name, data in unread.items():
        (folder / name).write_bytes(data)
        originals.append(folder / name)
    assert main(["verify", str(folder)]) == 2
    said = capsys.readouterr()
    lines = said.out.splitlines()
    for original in originals:
        assert [line for line in lines if line.startswith(f"does not hold: {original}: carries no privacy statement")]
    assert len([line for line in lines if "the recorded noise costs" in line]) == 2
    assert "8 of 10 released files do not hold" in said.err
    command_refused(capsys, ["verify", "nosuch"], "nosuch: there is no such file or folder")
    Path("empty").mkdir()
    command_refused(capsys, ["verify", "empty"], "empty: is an empty folder")


def test_a_declared_face_is_explained_at_its_size(capsys):
    cv2.imwrite("portrait.png", np.zeros((400, 300, 3), np.uint8))
    assert (
        main(["pixelize", "portrait.png", "--epsilon", "2", "--protect", "face", "--face-size", "40x40", "--explain"])
        == 0
    )
    said = shown(capsys)
    assert "epsilon for a face of 40 x 40: 2" in said
    assert "100 x 100" not in said


def test_what_is_wrapped_goes_on_below_its_beginning(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    make_clip(Path("film.mp4"), frames=2)
    for command, more in (("pixelize", BASIC), ("release-video", ["--epsilon", "2", "--delta", "1e-5"])):
        file = {"pixelize": "a.png", "release-video": "film.mp4"}[command]
        assert main([command, file, *more, "--explain"]) == 0
        name, *lines = capsys.readouterr().out.splitlines()
        assert name == f"{file}:"
        assert all(line.startswith("  ") for line in lines)
        assert any(line.startswith("    ") for line in lines)
    main(["pixelize", "a.png", *BASIC, "--out", "b.png"])
    capsys.readouterr()
    assert main(["statement", "show", "b.png"]) == 0
    told = capsys.readouterr().out
    listed = told[told.index("Caveats:\n") :].split("\n\n")[0].splitlines()[1:]
    assert {line[:2] for line in listed} == {"* ", "  "}


def test_out_is_needed(capsys):
    command_refused(capsys, ["pixelize", "a.png", *BASIC], "--out")


def test_help_needs_no_torch():
    code = (
        "import sys, dpose.cli; code = dpose.cli.main(['pixelize', '--help']); "
        "sys.exit(code or ('torch' in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "--neighbours" in done.stdout


def make_clip(path, frames=40, sound=False, size=(64, 48)):
    with av.open(str(path), "w") as out:
        video = out.add_stream("mpeg4" if path.suffix == ".avi" else "libx264", rate=10)
        video.width, video.height, video.pix_fmt = *size, "yuv420p"
        tone = out.add_stream("aac", rate=44_100) if sound else None
        rng = np.random.default_rng(0)
        for _ in range(frames):
            pixels = rng.integers(0, 256, (size[1], size[0], 3)).astype(np.uint8)
            out.mux(video.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        out.mux(video.encode(None))
        if tone is not None:
            for start in range(0, 44_100 * frames // 10 - 1023, 1024):
                wave = (np.sin(np.arange(start, start + 1024) / 7) * 9000).astype(np.int16)[None]
                samples = av.AudioFrame.from_ndarray(wave, format="s16", layout="mono")
                samples.rate, samples.pts = 44_100, start
                out.mux(tone.encode(samples))
            out.mux(tone.encode(None))
    return path


def sound_of(path):
    with av.open(str(path)) as container:
        if not container.streams.audio:
            return None
        return [bytes(p) for p in container.demux(container.streams.audio[0]) if p.size]


def stamps_of(path):
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        return [frame.pts * stream.time_base for frame in container.decode(stream)]


def test_a_clip_with_sound(capsys, tmp_path):
    source = make_clip(tmp_path / "clip.mp4", sound=True)
    assert main(["pixelize", "clip.mp4", *BASIC, "--out", "quiet.mp4"]) == 0
    assert sound_of(tmp_path / "quiet.mp4") is None
    assert "not protected at all" not in shown(capsys)
    asked = ["pixelize", "clip.mp4", *BASIC, "--keep-audio", "--again", "--workers", "3", "--out", "loud.mp4"]
    assert main(asked) == 0
    assert "WARNING: the sound was copied unchanged and is not protected at all" in shown(capsys)
    assert sound_of(tmp_path / "loud.mp4") == sound_of(source)
    for name in ("quiet.mp4", "loud.mp4"):
        assert stamps_of(tmp_path / name) == stamps_of(source)
        assert main(["verify", name]) == 0


@pytest.mark.parametrize("name", ["clip.avi", "clip.mkv"])
def test_a_video_whose_stream_ends_early(capsys, tmp_path, name):
    data = make_clip(tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(data[: len(data) * 6 // 10])
    command_refused(capsys, ["pixelize", name, *BASIC, "--out", "out"], name)
    command_refused(capsys, ["pixelize", name, *BASIC, "--out", "clip.mp4"], name)
    assert sorted(p.name for p in tmp_path.rglob("*") if p.is_file()) == sorted(["a.png", name])


def test_a_film_that_lacks_its_end_says_so_where_it_is_released(capsys, tmp_path):
    data = make_clip(tmp_path / "clip.mkv", frames=6).read_bytes()
    with av.open(str(tmp_path / "clip.mkv")) as clip:
        at = [packet.pos for packet in clip.demux(video=0) if packet.size]
    (tmp_path / "clip.mkv").write_bytes(data[: at[2]])
    assert main(["pixelize", "clip.mkv", *BASIC, "--out", "out"]) == 0
    told = shown(capsys)
    assert "clip.mkv -> out/000001.mp4, out/000001.mp4.privacy.json not whole: " in told
    assert "not whole" not in (tmp_path / "out" / "000001.mp4.privacy.json").read_text()


def test_m_beyond_a_picture_of_one_pixel(capsys):
    cv2.imwrite("dot.png", PICTURE[:1, :1])
    command_refused(capsys, ["pixelize", "dot.png", *BASIC, "--block", "1", "--out", "x.png"], "there is only 1 pixel;")


def test_b_and_m_that_do_not_fit_a_clip(capsys, tmp_path):
    make_clip(tmp_path / "clip.mp4", frames=3)
    command_refused(capsys, ["pixelize", "clip.mp4", *BASIC, "--block", "49", "--out", "x.mp4"], "clip.mp4", "49")
    command_refused(capsys, ["pixelize", "clip.mp4", *BASIC, "--neighbours", "pixels:9217", "--out", "x.mp4"], "9,216")
    frame = ["--neighbours", "pixels:3073/frame"]
    command_refused(capsys, ["pixelize", "clip.mp4", *BASIC, *frame, "--out", "x.mp4"], "3,072")
    assert not list(tmp_path.glob("x*"))


@pytest.mark.parametrize("name", ["deep.tiff", "deep.png"])
def test_a_float_picture(capsys, tmp_path, name):
    """No format that dpose reads holds floating-point pixels; one under a known name is refused by its content."""
    assert cv2.imwrite("deep.tiff", np.full((40, 40), np.nan, np.float32))
    (tmp_path / "deep.png").write_bytes((tmp_path / "deep.tiff").read_bytes())
    command_refused(capsys, ["pixelize", name, *BASIC, "--out", "out"], name)
    assert not (tmp_path / "out").exists()


def test_an_archive_that_asks_for_all_memory(capsys, tmp_path):
    """A kilobyte: one block, divided into a million parts a side."""
    main(["pixelize", "a.png", *BASIC, "--set", "subdivide=2", "--set", "regions.kind=private", "--out", "good.npz"])
    with np.load(tmp_path / "good.npz", allow_pickle=False) as file:
        members = {name: file[name] for name in file.files}
    about = json.loads(members["about"].tobytes())
    about |= {"block": 10**6, "subdivide": 10**6}
    members["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    members["mask"] = np.packbits(np.ones(1, bool))
    np.savez(tmp_path / "bomb.npz", **members)
    capsys.readouterr()
    command_refused(capsys, ["restore", "bomb.npz", "x.png"], "bomb.npz", "[archive-damaged]")
    command_refused(capsys, ["verify", "bomb.npz"], "bomb.npz", "[archive-damaged]")


@pytest.mark.parametrize("damage", ["value", "version", "cut", "text"])
def test_a_broken_archive(capsys, tmp_path, damage):
    main(["pixelize", "a.png", *BASIC, "--out", "good"])
    good = (tmp_path / "good" / "000001.npz").read_bytes()
    with np.load(io.BytesIO(good), allow_pickle=False) as file:
        luma = file["luma"]
    bad = {
        "value": rebuilt(good, luma=npy(luma ^ 1)),
        "version": edited(good, lambda about: about.update(version=9)),
        "cut": good[:-40],
        "text": b"an archive",
    }
    (tmp_path / "bad.npz").write_bytes(bad[damage])
    capsys.readouterr()
    word = {"value": "changed", "version": "newer"}.get(damage, "bad.npz")
    command_refused(capsys, ["restore", "bad.npz", "x.png"], "bad.npz", word)
    assert not (tmp_path / "x.png").exists()
