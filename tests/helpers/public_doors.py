"""The doors of releases for pictures that are declared public: for tests that do not ask what is counted."""

from functools import partial

from dpose.release import api, files, obfuscate

pixelize = partial(api.pixelize, public=True)
release_array = partial(api.release_array, public=True)
release_file = partial(api.release_file, public=True)
release_video = partial(api.release_video, public=True)
release_picture = partial(files.release_picture, public=True)
release_all = partial(files.release_all, public=True)
obfuscate_file = partial(obfuscate.obfuscate_file, public=True)
