"""Public data sets by name: what each is also called, and which of them hold pictures of which others.

    set_called("MS-COCO"), set_called("crowdpose:val")          # "coco", "crowdpose"
    shares_pictures("coco", "crowdpose")                      # True: CrowdPose was chosen from COCO, MPII and others
    sets_in("vitpose-b-multi-coco-aic-mpii.pth")              # ("coco", "aic", "mpii")

A set is written `NAME` or `NAME:SPLIT`. The table says what may be shared, in doubt that it is: a relation too many
refuses first weights that would have done, one too few calls a picture protected that a model has learnt.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class KnownSet:
    """A public data set.

    Attributes:
        title: For readers.
        aliases: Other names, in small letters and digits alone: "mscoco" stands for "MS-COCO" and "ms_coco", too.
        of: Sets that some of its pictures are from, by their keys; or, of a mixture that files of weights are named
            after, the sets that it stands for.
        rendered: Whether all people in it are rendered.
        within: For a split that is part of another, that other. Two splits that are not are apart.
    """

    title: str
    aliases: tuple[str, ...] = ()
    of: tuple[str, ...] = ()
    rendered: bool = False
    within: Mapping[str, str] = field(default_factory=dict)


KNOWN_SETS: dict[str, KnownSet] = {
    # photographs of people with joints
    "coco": KnownSet("COCO", ("mscoco", "microsoftcoco", "cocokeypoints", "cocopose", "cocoperson")),
    "mpii": KnownSet("MPII Human Pose", ("mpiihumanpose", "mpiipose", "mpiihumanposedataset")),
    # Johnson and Everingham, BMVC 2010 and CVPR 2011: LSPET was made to train for LSP; both were gathered on Flickr by
    # words of sport, of which gymnastics, athletics and parkour are in both lists
    "lsp": KnownSet("Leeds Sports Pose", ("leedssportspose", "leedssportsposes", "leedssports")),
    "lspet": KnownSet(
        "Leeds Sports Pose Extended",
        ("lspextended", "leedssportsposeextended", "leedssportsposeextendedtraining", "lspe", "hrlspet"),
        ("lsp",),
        within={"choosing-train": "private", "choosing-test": "private"},
    ),
    "aic": KnownSet("AI Challenger", ("aichallenger", "aichallengerkeypoint", "aichallengerhumankeypoint")),
    # Li et al., CVPR 2019, section 4: chosen from COCO, MPII and AI Challenger by how crowded they are
    "crowdpose": KnownSet("CrowdPose", of=("coco", "mpii", "aic")),
    # Jin et al., ECCV 2020: more joints on COCO 2017. mmpose and ViTPose call weights of it "wholebody" alone
    "coco-wholebody": KnownSet("COCO-WholeBody", ("wholebody", "cocowb"), ("coco",)),
    # Zhang et al., CVPR 2019 (Pose2Seg): labelled as COCO and used beside it; its photographs are of unsaid origin
    "ochuman": KnownSet("OCHuman", ("occludedhuman", "ochumanpose"), ("coco",)),
    # Ju et al., CVPR 2023: its training file `training_humanart_coco.json` lists COCO's pictures with its own
    "humanart": KnownSet("Human-Art", of=("coco",)),
    # Fang et al., TPAMI 2022 (AlphaPose): training pictures are HICO-DET's, validation pictures COCO val2017's
    "halpe": KnownSet("Halpe-FullBody", ("halpefullbody", "halpe26", "halpe136"), ("hico", "coco")),
    "hico": KnownSet("HICO-DET", ("hicodet",)),
    # Duan et al., ICCV 2019: triplets of joints on MPII
    "mpii-trb": KnownSet("MPII-TRB", of=("mpii",)),
    # Andriluka et al., CVPR 2018: frames around MPII's pictures, from the same videos
    "posetrack": KnownSet(
        "PoseTrack",
        ("posetrack17", "posetrack18", "posetrack21", "posetrack2017", "posetrack2018", "posetrack2021"),
        ("mpii",),
    ),
    # Lassner et al., CVPR 2017 (Unite the People): LSP, LSPET and MPII
    "up3d": KnownSet("Unite the People (UP-3D)", ("unitethepeople", "upis1h"), ("lsp", "lspet", "mpii")),
    # Jhuang et al., ICCV 2013: clips of HMDB51
    "jhmdb": KnownSet("J-HMDB", ("subjhmdb",), ("hmdb51",)),
    # Gueler et al., CVPR 2018: surfaces on COCO
    "densepose": KnownSet("DensePose-COCO", ("densepose", "cocodensepose"), ("coco",)),
    # Gong et al., CVPR 2017 (Look into Person): people cut out of COCO
    "look-into-person": KnownSet("Look into Person (LIP)", of=("coco",)),
    # Gupta et al., CVPR 2019: other labels on COCO 2017
    "lvis": KnownSet("LVIS", of=("coco",)),
    # Krishna et al., IJCV 2017: pictures that are in COCO and in YFCC100M
    "visualgenome": KnownSet("Visual Genome", of=("coco",)),
    # COCO's people for other purposes: all of them take its pictures
    "coco-reid": KnownSet("COCO-ReID", of=("coco",)),
    "refcoco": KnownSet("RefCOCO", ("refcoco+", "refcocog", "vcoco"), ("coco",)),
    "ubody": KnownSet("UBody"),
    "flic": KnownSet("FLIC"),
    "pennaction": KnownSet("Penn Action"),
    "3dpw": KnownSet("3DPW", ("3dposesinthewild",)),
    "h36m": KnownSet("Human3.6M", ("human36m", "hm36")),
    "mpi-inf-3dhp": KnownSet("MPI-INF-3DHP", ("mpiinf3dhp", "3dhp")),
    "ap10k": KnownSet("AP-10K"),
    "apt36k": KnownSet("APT-36K"),
    # pictures of things
    "imagenet": KnownSet("ImageNet", ("ilsvrc", "ilsvrc2012", "in1k", "in12k", "in21k", "in22k")),
    "openimages": KnownSet("Open Images", ("openimagesv4", "openimagesv6", "openimagesv7")),
    # Orekondy et al., ICCV 2017: its photographs are Open Images'
    "vispr": KnownSet("VISPR", of=("openimages",)),
    # clips of actions
    "hmdb51": KnownSet("HMDB51", ("hmdb",)),
    # Wu et al., TPAMI 2020: 515 of HMDB51's clips
    "pahmdb": KnownSet("PA-HMDB51", ("pahmdb51",), ("hmdb51",)),
    "ucf101": KnownSet("UCF101", ("ucf",)),
    # Idrees et al., CVIU 2017: UCF101 is what it trains on; UCF50 is the part of UCF101 that was there before
    "thumos14": KnownSet("THUMOS14", ("thumos",), ("ucf101",)),
    "ucf50": KnownSet("UCF50", of=("ucf101",)),
    "kinetics": KnownSet("Kinetics", ("kinetics400", "kinetics600", "kinetics700", "k400", "k600", "k700")),
    # mixtures that files of weights are named after. mmpose, projects/rtmpose: seven public sets, and OCHuman as the
    # eighth; projects/rtmw: fourteen, of which those of faces and hands alone are left out here
    "body7": KnownSet("mmpose's Body7", of=("aic", "coco", "crowdpose", "mpii", "jhmdb", "halpe", "posetrack")),
    "body8": KnownSet("mmpose's Body8", of=("body7", "ochuman")),
    "cocktail": KnownSet(
        "mmpose's cocktail", ("cocktail13", "cocktail14"), ("body7", "coco-wholebody", "ubody", "humanart")
    ),
    # Yang et al., ICCV workshops 2023 (DWPose): UBody and COCO
    "ucoco": KnownSet("UBody and COCO", of=("ubody", "coco")),
    # Xu et al., TPAMI 2023 (ViTPose++)
    "vitpose-plus": KnownSet(
        "ViTPose+'s mixture",
        ("vitpose+", "vitposeplus", "vitpose++"),
        ("coco", "aic", "mpii", "coco-wholebody", "ap10k", "apt36k"),
    ),
    # dpose's own rendered people, who are not real
    "synthetic-studio": KnownSet("rendered people (studio)", rendered=True),
    "synthetic-ward": KnownSet("rendered people (ward)", rendered=True),
    "synthetic-clips-studio": KnownSet("rendered clips (studio)", rendered=True),
    "synthetic-clips-ward": KnownSet("rendered clips (ward)", rendered=True),
}
"""Every set that is known, by key. A set from outside is an entry more."""


@dataclass(frozen=True)
class SetNames:
    """Which public sets some data are, as far as names tell.

    Attributes:
        notes: What the data are called, fit to stand in an artefact: a set with its split, or, of anybody's data in a
            common format, "folder NAME:SPLIT", which is no set's name.
        sets: The public sets that they may hold pictures of: those among `notes`, and those that the names of labelled
            pictures speak of. The latter are a fact about private labels, for refusals alone.
        whole: Whether `notes` names all of the data.
    """

    notes: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()
    whole: bool = False

    @property
    def declared(self) -> SetNames:
        """The same without what pictures alone tell."""
        return replace(self, sets=tuple(name for name in self.sets if name in self.notes))

    def __add__(self, other: SetNames) -> SetNames:
        notes, sets = (tuple(dict.fromkeys(pair)) for pair in (self.notes + other.notes, self.sets + other.sets))
        return SetNames(notes, sets, self.whole and other.whole)


NO_NAMES = SetNames()
"""Names of data about which nothing is declared."""


def set_names_of(data: object) -> SetNames:
    """What `data` say of themselves in an attribute `set_names`, or what they are made of says."""
    said = getattr(data, "set_names", None)
    if isinstance(said, SetNames):
        return said
    inner = (getattr(data, name, None) for name in ("unmerged", "dataset", "real"))
    return next((set_names_of(each) for each in inner if each is not None), NO_NAMES)


_LONGEST = 6
"""Words of the longest name."""


def set_called(name: str) -> str:
    """The key of the set that `name` names, whatever its case, dashes and split; "" if there is none of that name.

    >>> set_called("MS-COCO"), set_called("AI Challenger"), set_called("mpii:val"), set_called("our ward")
    ('coco', 'aic', 'mpii', '')
    """
    whole, aliases = _plain(name), _aliases()
    for text in (whole, _plain(name.partition(":")[0])):
        if text in aliases:
            return aliases[text]
        # "coco2017", "coco-stuff", "mscoco_val2014": whatever is called so has its pictures
        if text.startswith(("coco", "mscoco")):
            return "coco"
        if text.startswith("imagenet"):
            return "imagenet"
    return ""


def sets_in(text: str) -> tuple[str, ...]:
    """The keys of the sets whose names are words of `text`, such as a file's name; each once, in their order.

    >>> sets_in("rtmpose-m_simcc-body7_pt-aic-coco_420e-256x192.pth")
    ('body7', 'aic', 'coco')
    """
    words, aliases, found = re.findall(r"[a-z0-9]+\+*", text.lower()), _aliases(), []
    at = 0
    while at < len(words):
        for count in range(min(_LONGEST, len(words) - at), 0, -1):
            name = "".join(words[at : at + count])
            key = aliases.get(name) or ("coco" if re.fullmatch(r"(ms)?coco(train|val)?\d*", name) else None)
            if key:
                found.append(key)
                at += count - 1
                break
        at += 1
    return tuple(dict.fromkeys(found))


def shares_pictures(one: str, other: str) -> bool:
    """Whether two sets may share pictures: they are one, or one is made from the other, or both from a third.

    Two splits of one set are apart, unless one is part of the other. A set without a split is all of it. Sets that are
    not in the table share pictures where they are called the same.

    >>> shares_pictures("coco", "crowdpose:val"), shares_pictures("crowdpose", "posetrack")
    (True, True)
    >>> shares_pictures("lspet:public", "lspet:private"), shares_pictures("lspet", "lspet:private")
    (False, True)
    """
    mine, its = _key_and_split(one), _key_and_split(other)
    if mine[0] == its[0]:
        within = KNOWN_SETS[mine[0]].within if mine[0] in KNOWN_SETS else {}
        splits = {mine[1], its[1]}
        return "" in splits or len(splits) == 1 or any({s, within.get(s, s)} == splits for s in splits)
    return bool(_origins(mine[0]) & _origins(its[0]))


def shared(learnt: Iterable[str], sets: Iterable[str]) -> tuple[str, str] | None:
    """The first of `learnt` that may share pictures with one of `sets`, with that; None if none does.

    Rendered people are not real and share no pictures.
    """
    requested = [name for name in sets if not is_rendered(name)]
    pairs = ((one, other) for one in learnt if not is_rendered(one) for other in requested)
    return next((pair for pair in pairs if shares_pictures(*pair)), None)


def is_rendered(name: str) -> bool:
    """Whether all people in the set are rendered."""
    key = set_called(name)
    return bool(key) and KNOWN_SETS[key].rendered


def title_of(name: str) -> str:
    """A set for readers: "COCO", "MPII Human Pose's val split"; one that is not known as it is written."""
    key, split = _key_and_split(name)
    if key not in KNOWN_SETS:
        return name
    return KNOWN_SETS[key].title + (f"'s {split} split" if split else "")


def _key_and_split(name: str) -> tuple[str, str]:
    key, (before, _, split) = set_called(name), name.partition(":")
    return (key, split.strip()) if key else (before.strip().lower(), split.strip())


def _origins(key: str) -> frozenset[str]:
    """A set with all that its pictures are from."""
    if key not in KNOWN_SETS:
        return frozenset({key})
    return frozenset({key}).union(*map(_origins, KNOWN_SETS[key].of))


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9+]", "", name.lower())


def _aliases() -> dict[str, str]:
    table = KNOWN_SETS.items()
    return {alias: key for key, known in table for alias in map(_plain, (key, *known.aliases))}
