"""Fixtures of reports and of run folders."""

from run_folders import *  # noqa: F403
