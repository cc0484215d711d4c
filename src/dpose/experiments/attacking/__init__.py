"""`dpose attack`: what somebody can still find out from pictures that were released."""
