"""Audits of guarantees: canaries, shadow runs, planted faults, and what they find beside what is claimed."""
