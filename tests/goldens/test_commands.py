"""Every command of dpose with the names of its options: a move to entry points loses none."""

import pytest

from goldens import doors
from goldens.held import hold, hold_cases

COMMANDS = doors.commands()


@pytest.mark.parametrize("words", sorted(COMMANDS))
def test_a_command_has_the_options_that_it_had(words):
    hold("commands", words, COMMANDS[words])


def test_no_command_is_lost():
    hold_cases("commands", COMMANDS)
