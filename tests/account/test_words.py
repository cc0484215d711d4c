"""What pictures have given: of the worst of them, restated for who is asked about; sums are for readers."""

import pytest

from dpose.account import Budget, budget_states, charges, set_budget
from dpose.account.words import answered, dataset_of, datasets, lines_of, picture_of, relations_of
from dpose.privacy.accounting import Accountant, epsilon
from dpose.privacy.events import SampledGaussian
from dpose.privacy.marks import marks_of
from dpose.privacy.neighbours import ACCOUNT_FORMS, Neighbours, Relation
from quick import quick  # noqa: F401
from refusals import refused
from stored import EVENT, WARD, charged, release_charge, run_charge, union

THREE = [marks_of([f"picture {k}"]) for k in range(3)]
IMAGE = Neighbours("image")


def only(answers):
    (answer,) = answers
    return answer


def test_what_shares_no_picture_composes_in_parallel():
    charged(*(run_charge(k, marks) for k, marks in enumerate(THREE)))
    answer = only(answered(charges(), [IMAGE], 1e-5))
    assert answer.epsilon == pytest.approx(epsilon([EVENT], 1e-5))
    assert answer.together == pytest.approx(epsilon([SampledGaussian(0.25, 3.0, 60, 1.0)], 1e-5))


def test_the_worst_picture_is_the_one_that_most_have_read():
    charged(run_charge(0, union(*THREE)), run_charge(1, THREE[1]), run_charge(2, THREE[2]))
    twice = epsilon([SampledGaussian(0.25, 3.0, 40, 1.0)], 1e-5)
    assert only(answered(charges(), [IMAGE], 1e-5)).epsilon == pytest.approx(twice)
    assert only(answered(charges(), [IMAGE], 1e-5, THREE[0])).epsilon == pytest.approx(epsilon([EVENT], 1e-5))


def test_a_person_may_be_in_all_of_them():
    charged(*(run_charge(k, marks, unit="subject") for k, marks in enumerate(THREE)))
    answer = only(answered(charges(), [Neighbours("subject")], 1e-5))
    assert answer.epsilon == answer.together > epsilon([EVENT], 1e-5)


def test_one_picture_by_two_digests_is_one_picture():
    """In parallel they would hide one of two readers."""
    charged(run_charge(0, THREE[0]), run_charge(1, THREE[1]))
    both = union(THREE[0], THREE[1])
    assert only(answered(charges(), [IMAGE], 1e-5, both)).epsilon == pytest.approx(epsilon([EVENT], 1e-5))
    twice = epsilon([SampledGaussian(0.25, 3.0, 40, 1.0)], 1e-5)
    assert only(answered(charges(), [IMAGE], 1e-5, both, same=True)).epsilon == pytest.approx(twice)


def test_the_person_of_a_picture_is_asked_of_all_that_was_read_with_it():
    """The account does not know who is on a picture: her others are among those of the run for subjects."""
    charged(run_charge(0, union(THREE[0], THREE[1]), unit="subject"), run_charge(1, THREE[1], unit="subject"))
    one = only(picture_of("a", THREE[0], 1e-5, [Neighbours("subject")]).answers)
    assert one.epsilon == pytest.approx(epsilon([SampledGaussian(0.25, 3.0, 40, 1.0)], 1e-5))
    assert only(dataset_of("a", THREE[0], 1e-5, [Neighbours("subject")]).answers) == one
    assert [entry.id for entry in picture_of("a", THREE[0]).entries] == [f"{0:032x}"]
    assert Neighbours("subject") in [answer.requested for answer in picture_of("a", THREE[0]).answers]


def test_what_was_taken_to_be_public_has_no_bound():
    charged(run_charge(0, WARD), run_charge(1, THREE[0], opened=WARD[:1]))
    assert only(answered(charges(), [IMAGE], 1e-5)).unbounded.total() == 1


def test_training_enters_pixels_as_a_replacement():
    charged(run_charge(0, THREE[0]), release_charge(1, THREE[0]))
    alone = only(answered(charges()[:1], [Neighbours.of_pixels(16)], 1e-5)).epsilon
    assert alone == pytest.approx(epsilon([EVENT], 1e-5, relation=Relation.REPLACE))
    assert only(answered(charges(), [Neighbours.of_pixels(16)], 1e-5)).epsilon > max(2, alone)


def test_a_reason_is_counted_for_each_that_has_it():
    charged(run_charge(0, unit="crop"), run_charge(1, unit="crop"), run_charge(2, events=()))
    found = only(answered(charges(), [IMAGE], 1e-5))
    assert sorted(found.unbounded.values()) == [1, 2]
    assert found.epsilon == float("inf")
    assert found.together == 0


def test_releases_of_one_folder_are_one_dataset_and_a_run_joins_them():
    charged(*(release_charge(k, marks) for k, marks in enumerate(THREE)))
    (one,) = datasets()
    assert one.name == "photos/0.png, photos/1.png, photos/2.png"
    charged(run_charge(5, union(THREE[0], WARD)))
    assert sorted(len(one.entries) for one in datasets()) == [2, 2]


def test_lines_are_joined_only_where_nothing_tells_them_apart():
    day = {"at": "2026-10-01T00:00:00+00:00", "folder": "out/a.png"}
    charged(*(release_charge(k, marks, **day) for k, marks in enumerate(THREE)))
    charged(release_charge(3, WARD[:1], epsilon=1.0, **day), run_charge(4), run_charge(5))
    assert [(line.count, line.entry.what) for line in lines_of(charges())] == [
        (3, "release"),
        (1, "release"),
        (1, "training"),
        (1, "training"),
    ]
    assert [line.epsilon for line in lines_of(charges())][:2] == [2, 1]


def test_what_is_asked_by_default_is_what_the_charges_claim():
    made = [run_charge(0), run_charge(1, unit="subject"), release_charge(2, WARD, pixels=64)]
    assert [str(one) for one in relations_of(made)] == [
        "any 64 pixels of the picture",
        "each image",
        "each subject",
        "each image",
    ]
    assert [one.replaces for one in relations_of(made)] == [True, False, False, True]


@pytest.mark.parametrize("word", ["", "pixels", "pixels:-1", "image:removed", "frame", "pixels:16/frame"])
def test_neighbours_that_are_none(word):
    with refused("m-not-positive" if "-1" in word else "neighbours-unknown"):
        Neighbours.parse(word, ACCOUNT_FORMS)


@pytest.mark.parametrize(("delta", "accountant"), [(1e-9, Accountant.PLD), (1e-12, Accountant.RDP)])
def test_a_run_of_a_tiny_delta_does_not_keep_the_account_from_answering(delta, accountant):
    """Each choice is asked at a 65th of delta, below what loss distributions resolve, and a charge stays."""
    claimed = epsilon([EVENT], delta, accountant=accountant)
    set_budget(Budget(claimed * 1.0001, delta, "ward", THREE[0]))  # just large enough for the run's own claim
    charged(run_charge(0, THREE[0], delta=delta), release_charge(1, THREE[1], delta=delta), run_charge(2, THREE[1]))
    alone = only(answered(charges()[:1], [IMAGE], None))
    assert alone.delta == delta
    assert alone.epsilon == pytest.approx(claimed)
    assert claimed < alone.chosen < 2 * claimed
    assert lines_of(charges())[0].epsilon == pytest.approx(claimed)
    assert only(budget_states()).fixed == pytest.approx(claimed)
    for one in datasets():
        assert all(answer.epsilon <= answer.chosen < float("inf") for answer in one.answers)
    mixed = only(answered(charges(), [Neighbours.of_pixels(16)], delta, THREE[1]))
    assert 2 < mixed.epsilon < mixed.chosen < float("inf")
