"""Procedural pictures of people with exact labels: two looks, still and moving, no downloads.

from dpose_scene.render import render_person
person = render_person("ward", seed=7)
person.image, person.keypoints, person.mask
"""
